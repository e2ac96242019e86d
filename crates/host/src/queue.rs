//! The thread of one I/O queue pair: takes staged requests, sends their commands, ends them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use diskside_io::buffer::Buffer;
use diskside_io::ring::{GroupId, Ring, RingConfig, SendBatch, Waker};
use diskside_nvme::host::{Completed, Connection, ConnectionConfig, ConnectionError, Event, SubmitError};
use diskside_nvme::{BufferId, BufferSlice, Buffers, crc32c};
use diskside_tls::RecordWriter;

use crate::connection::Shared;
use crate::control::Order;
use crate::error::HostError;
use crate::job::{Job, JobMemory, Limits, Next, Staged, WITHDRAWN, refuse};
use crate::link::{Link, Memory};
use crate::places::Places;
use crate::stats::add;

/// Buffers that bytes arrive in, for each queue. The kernel uses them in turn, so together they must
/// stay in the core's own cache: eight times as much cost a third of the reads at depth 128.
const RECEIVE_BUFFERS: u16 = 4;
const RECEIVE_BUFFER_BYTES: usize = 64 << 10;
/// How long a part waits that failed for a passing reason.
const TRANSIENT_DELAY: Duration = Duration::from_millis(100);
const TOO_LONG: &str = "the command moves more data than the controller takes at once";

/// What the control thread tells a queue.
pub(crate) enum QueueOrder {
    /// Connect, and answer with one [`Report::Up`] if that succeeds and one [`Report::Down`] at the end.
    Attach { config: Box<ConnectionConfig>, limits: Limits },
    /// Give the connection up.
    Detach,
    /// Fail everything that waits, and what comes.
    Refuse(&'static str),
    /// Finish what there is, then end.
    Close,
}

/// What a queue tells the control thread.
pub(crate) enum Report {
    Up,
    Down(HostError),
    Late {
        command_id: u16,
    },
    /// The controller says that there is no such namespace: what is it now?
    Gone {
        nsid: u32,
    },
}

/// How a queue reports.
#[derive(Clone)]
pub(crate) struct ToControl {
    pub(crate) orders: Sender<Order>,
    pub(crate) waker: Waker,
}

impl ToControl {
    pub(crate) fn send(&self, order: Order) {
        // A control thread that has ended wants no more news.
        if self.orders.send(order).is_ok() {
            self.waker.wake();
        }
    }
}

pub(crate) struct Queue {
    id: u16,
    shared: Arc<Shared>,
    orders: Receiver<QueueOrder>,
    staged: Receiver<Staged>,
    /// Requests of the queue's own thread, before those of others.
    local: VecDeque<Staged>,
    ring: Ring,
    group: GroupId,
    epoch: u64,
    link: Option<Link<Connection>>,
    /// Why the machine said that it ended.
    ended: Option<ConnectionError>,
    limits: Limits,
    jobs: Jobs,
    /// Jobs with commands to send, in the order in which they came.
    issuing: VecDeque<u32>,
    /// Jobs that send more later.
    delayed: Vec<(Instant, u32)>,
    /// Of jobs that wait at the target; those beyond are held here.
    places: Places,
    refusing: Option<&'static str>,
    closing: bool,
}

impl Queue {
    /// A queue for the calling thread.
    pub(crate) fn new(
        id: u16,
        shared: Arc<Shared>,
        orders: Receiver<QueueOrder>,
        staged: Receiver<Staged>,
    ) -> std::io::Result<Self> {
        let mut ring = Ring::new(&RingConfig { entries: 64, spin: shared.options.spin, ..RingConfig::default() })?;
        let group = ring.provide(RECEIVE_BUFFERS, RECEIVE_BUFFER_BYTES)?;
        let limits = Limits {
            transfer_len_max: 0,
            command_timeout: shared.options.command_timeout,
            retries_max: shared.options.retries_max,
            entries: 0,
        };
        Ok(Self {
            id,
            shared,
            orders,
            staged,
            local: VecDeque::new(),
            ring,
            group,
            epoch: 0,
            link: None,
            ended: None,
            limits,
            jobs: Jobs::default(),
            issuing: VecDeque::new(),
            delayed: Vec::new(),
            places: Places::new(limits.entries),
            refusing: None,
            closing: false,
        })
    }

    pub(crate) fn waker(&self) -> Waker {
        self.ring.waker()
    }

    /// Serves the queue until it is closed.
    pub(crate) fn run(mut self) {
        while self.turn(None) {}
        self.end();
    }

    /// Tells the control thread that the queue is no more.
    pub(crate) fn end(self) {
        let (id, shared) = (self.id, Arc::clone(&self.shared));
        // In this order: an order to attach that was sent is answered, a later one cannot be sent.
        drop(self);
        shared.report(id, Report::Down(HostError::Closed("the queue has ended")));
    }

    /// Lets the queue finish what there is, then end.
    pub(crate) fn close_now(&mut self) {
        self.closing = true;
        self.shared.set_ending();
    }

    /// Takes a request of the queue's own thread.
    pub(crate) fn stage(&mut self, staged: Staged) {
        self.local.push_back(staged);
    }

    /// Does everything there is to do, after waiting for it for `patience_max` at most. False at the queue's end.
    pub(crate) fn turn(&mut self, patience_max: Option<Duration>) -> bool {
        let now = Instant::now();
        self.take_orders(now);
        self.work(now);
        if self.closing && self.close() {
            return false;
        }
        let patience = self.patience(now).into_iter().chain(patience_max).min();
        self.ring.expect_answers(self.jobs.len > 0 && self.link.is_some());
        if self.ring.wait(patience).is_err() {
            self.link = None;
            self.refuse_all("the queue's ring failed");
            return false;
        }
        let now = Instant::now();
        while let Some(done) = self.ring.next_completion() {
            if let Some(link) = &mut self.link {
                link.handle(done, now, &mut self.jobs);
            }
        }
        self.take_in(now);
        self.note_ring();
        true
    }

    fn take_orders(&mut self, now: Instant) {
        loop {
            match self.orders.try_recv() {
                Ok(QueueOrder::Attach { config, limits }) => self.attach(*config, limits, now),
                Ok(QueueOrder::Detach) => {
                    if let Some(link) = &mut self.link {
                        link.close();
                    }
                }
                Ok(QueueOrder::Refuse(why)) => {
                    self.refusing = Some(why);
                    self.refuse_all(why);
                }
                Ok(QueueOrder::Close) => self.closing = true,
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.closing = true;
                    return;
                }
            }
        }
    }

    fn attach(&mut self, config: ConnectionConfig, limits: Limits, now: Instant) {
        match self.shared.dial(self.ring.waker()) {
            Ok(wired) => {
                self.limits = limits;
                self.places.set_entries(limits.entries);
                self.refusing = None;
                self.ended = None;
                self.epoch += 1;
                let link = Link::new(Connection::new(config, now), wired, self.group, self.epoch);
                link.register(&mut self.ring);
                self.link = Some(link);
            }
            Err(error) => self.report(Report::Down(error)),
        }
    }

    /// Everything that can be done without waiting.
    fn work(&mut self, now: Instant) {
        if self.link.is_none() {
            if let Some(why) = self.refusing {
                self.refuse_all(why);
            }
            return;
        }
        self.take_in(now);
        self.resume_delayed(now);
        self.issue(now);
        if let Some(link) = &mut self.link {
            link.pump(&mut self.ring, now, &mut self.jobs);
        }
        self.drop_finished_link();
    }

    fn drop_finished_link(&mut self) {
        if self.link.as_mut().is_some_and(Link::is_finished) {
            self.take_events();
            let source = self.ended.take().unwrap_or(ConnectionError::PeerClosed);
            let Some(link) = self.link.take() else { return };
            let down = link.ended(self.shared.peer(), source);
            link.unregister(&mut self.ring);
            self.note_loss();
            self.report(Report::Down(down));
        }
    }

    fn note_loss(&mut self) {
        for index in 0..self.jobs.slots.len() as u32 {
            if self.jobs.get_mut(index).is_some_and(|job| job.note_loss(&self.limits)) {
                self.end_job(index);
            }
        }
    }

    /// Ends a job that may still be waiting to send.
    fn end_job(&mut self, index: u32) {
        self.issuing.retain(|&other| other != index);
        self.delayed.retain(|&(_, other)| other != index);
        self.finish_job(index);
    }

    /// Ends a job that waits nowhere but, perhaps, for a place.
    fn finish_job(&mut self, index: u32) {
        let job = self.jobs.remove(index);
        if let Some((tag, _)) = job.waits_with() {
            match job.has_place {
                true => self.places.give_back(tag),
                false => self.places.forget(tag, index),
            }
            self.give_places();
        }
        job.finish();
    }

    /// Ends the parts of a call that has not begun.
    fn withdraw(&mut self, tag: u64) {
        for index in self.places.withdraw(tag) {
            let mut job = self.jobs.remove(index);
            job.refuse(WITHDRAWN);
            job.finish();
        }
    }

    fn give_places(&mut self) {
        while let Some(index) = self.places.next() {
            self.jobs.get_mut(index).expect("a job that is held exists").has_place = true;
            self.issuing.push_back(index);
        }
    }

    /// Takes what came, and what the machine makes of it.
    fn take_in(&mut self, now: Instant) {
        if let Some(link) = &mut self.link {
            link.take_in(now, &mut self.jobs);
        }
        self.take_events();
    }

    fn take_events(&mut self) {
        while let Some(event) = self.link.as_mut().and_then(|link| link.machine.poll_event()) {
            match event {
                Event::Compute(work) => {
                    let done = diskside_keys::compute(work);
                    if let Some(link) = &mut self.link {
                        link.machine.computed(Instant::now(), done);
                    }
                }
                Event::Connected { .. } => self.report(Report::Up),
                Event::Completed(completed) => self.complete(completed),
                Event::Late { command_id, .. } => {
                    add(&self.shared.counters.timeouts, 1);
                    self.report(Report::Late { command_id });
                }
                Event::Closed(error) => self.ended = Some(error),
                _ => {}
            }
        }
    }

    /// Sends commands while the connection takes them: first of jobs begun, then of staged requests.
    fn issue(&mut self, now: Instant) {
        while self.link.as_ref().is_some_and(|link| link.machine.can_submit()) {
            let index = match self.issuing.front() {
                Some(&index) => index,
                None => {
                    let Some(staged) = self.local.pop_front().or_else(|| self.staged.try_recv().ok()) else { return };
                    let job = Job::new(staged, &self.limits);
                    if let Some(tag) = job.cancels() {
                        self.withdraw(tag);
                    }
                    let index = self.jobs.insert(job);
                    self.issuing.push_back(index);
                    index
                }
            };
            let job = self.jobs.get_mut(index).expect("a job that is issued exists");
            if let Some(why) = job.obstacle() {
                job.refuse(why);
            }
            if !job.has_more() {
                self.issuing.pop_front();
                if job.is_idle() {
                    self.finish_job(index);
                }
                continue;
            }
            if let Some((tag, is_of_file)) = job.waits_with().filter(|_| !job.has_place) {
                self.issuing.pop_front();
                self.places.ask(tag, index, is_of_file);
                self.give_places();
                continue;
            }
            let Some(link) = &mut self.link else { return };
            let submission = job.next_command(index, &self.limits);
            let part = submission.user_data as u32;
            let counts = job.counts(part);
            let submitted = link.machine.submit(now, submission, &mut self.jobs);
            let job = self.jobs.get_mut(index).expect("looked up above");
            match submitted {
                Ok(_) => {
                    let counters = &self.shared.counters;
                    add(&counters.commands, 1);
                    add(&counters.read_bytes, counts.0);
                    add(&counters.written_bytes, counts.1);
                    if !job.has_more() {
                        self.issuing.pop_front();
                    }
                }
                Err(SubmitError::Full | SubmitError::NotReady) => {
                    job.not_taken(part);
                    return;
                }
                Err(_) => {
                    job.not_taken(part);
                    job.refuse(TOO_LONG);
                }
            }
        }
    }

    fn complete(&mut self, completed: Completed) {
        let (index, part) = ((completed.user_data >> 32) as u32, completed.user_data as u32);
        if completed.outcome.is_err() {
            add(&self.shared.counters.command_errors, 1);
        }
        let job = self.jobs.get_mut(index).expect("a completion belongs to a job");
        if let Some(nsid) = job.note_gone(&completed.outcome) {
            self.shared.report(self.id, Report::Gone { nsid });
        }
        let next = job.complete(part, completed.outcome, &self.limits);
        match next {
            Next::Wait => {}
            Next::Finish if job.has_failed() => self.end_job(index),
            Next::Finish => self.finish_job(index),
            Next::Again => {
                add(&self.shared.counters.retries, 1);
                if !self.issuing.contains(&index) {
                    self.issuing.push_front(index);
                }
            }
            Next::AgainLater => {
                add(&self.shared.counters.retries, 1);
                self.issuing.retain(|&other| other != index);
                self.delayed.retain(|&(_, other)| other != index);
                self.delayed.push((Instant::now() + TRANSIENT_DELAY, index));
            }
        }
    }

    fn resume_delayed(&mut self, now: Instant) {
        let mut at = 0;
        while at < self.delayed.len() {
            let (when, index) = self.delayed[at];
            if when <= now {
                self.delayed.swap_remove(at);
                self.issuing.push_back(index);
            } else {
                at += 1;
            }
        }
    }

    /// Ends the queue in good order; true when it has ended.
    fn close(&mut self) -> bool {
        let is_needed = self.jobs.slots.iter().flatten().any(|job| !job.is_dispensable());
        if let Some(link) = self.link.as_mut().filter(|_| !is_needed) {
            link.close();
            // A connection in memory is at its end at once, and nothing would wake the thread later.
            self.drop_finished_link();
        }
        let over = self.link.is_none();
        if over {
            self.refuse_all("the connection was closed");
        }
        over
    }

    fn refuse_all(&mut self, why: &'static str) {
        self.issuing.clear();
        self.delayed.clear();
        self.places.clear();
        for mut job in self.jobs.drain() {
            job.refuse(why);
            job.finish();
        }
        while let Some(staged) = self.local.pop_front().or_else(|| self.staged.try_recv().ok()) {
            refuse(staged, why);
        }
    }

    /// How long the thread may sleep.
    fn patience(&self, now: Instant) -> Option<Duration> {
        let link = self.link.as_ref().and_then(Link::deadline);
        let delayed = self.delayed.iter().map(|&(when, _)| when).min();
        let next = link.into_iter().chain(delayed).min()?;
        Some(next.saturating_duration_since(now))
    }

    fn report(&self, report: Report) {
        self.shared.report(self.id, report);
    }

    fn note_ring(&self) {
        let stats = self.ring.stats();
        let mine = &self.shared.ring_stats[usize::from(self.id - 1)];
        mine.0.store(stats.enters, Ordering::Relaxed);
        mine.1.store(stats.sleeps, Ordering::Relaxed);
    }
}

/// The jobs of a queue by index, and the memory that their commands refer to.
#[derive(Default)]
struct Jobs {
    slots: Vec<Option<Job>>,
    free: Vec<u32>,
    len: usize,
}

impl Jobs {
    fn insert(&mut self, job: Job) -> u32 {
        self.len += 1;
        match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = Some(job);
                index
            }
            None => {
                self.slots.push(Some(job));
                (self.slots.len() - 1) as u32
            }
        }
    }

    fn get_mut(&mut self, index: u32) -> Option<&mut Job> {
        self.slots.get_mut(index as usize)?.as_mut()
    }

    fn remove(&mut self, index: u32) -> Job {
        let job = self.slots[index as usize].take().expect("a job is removed once");
        self.free.push(index);
        self.len -= 1;
        job
    }

    fn drain(&mut self) -> impl Iterator<Item = Job> {
        self.free.clear();
        self.len = 0;
        self.slots.drain(..).flatten()
    }

    fn memory_mut(&mut self, buffer: BufferId) -> Option<&mut JobMemory> {
        let job = u32::try_from(buffer.0).ok().and_then(|index| self.get_mut(index));
        job.map(Job::memory_mut)
    }

    fn memory(&self, buffer: BufferId) -> Option<&JobMemory> {
        let index = usize::try_from(buffer.0).ok()?;
        Some(self.slots.get(index)?.as_ref()?.memory())
    }
}

impl Buffers for Jobs {
    fn write(&mut self, buffer: BufferId, offset: u32, bytes: &[u8]) {
        let start = offset as usize;
        match self.memory_mut(buffer) {
            Some(JobMemory::In(buffer)) => buffer[start..start + bytes.len()].copy_from_slice(bytes),
            _ => debug_assert!(false, "data arrives only for reads in flight"),
        }
    }

    fn digest(&mut self, slice: BufferSlice) -> u32 {
        let range = slice.offset as usize..slice.offset as usize + slice.len as usize;
        match self.memory(slice.buffer) {
            Some(JobMemory::In(buffer)) => crc32c(&buffer[range]),
            Some(JobMemory::Out(buffer)) => crc32c(&buffer[range]),
            _ => 0,
        }
    }

    fn release(&mut self, _: BufferId) {}
}

impl Memory for Jobs {
    fn append(&self, slice: BufferSlice, batch: &mut SendBatch) {
        let range = slice.offset as usize..slice.offset as usize + slice.len as usize;
        match self.memory(slice.buffer) {
            Some(JobMemory::Out(buffer)) => batch.put_arc(Arc::clone(buffer), range),
            _ => debug_assert!(false, "data is sent only for writes in flight"),
        }
    }

    fn seal(&self, slice: BufferSlice, writer: &mut RecordWriter<'_>) {
        let range = slice.offset as usize..slice.offset as usize + slice.len as usize;
        match self.memory(slice.buffer) {
            Some(JobMemory::Out(buffer)) => writer.put(&buffer[range]),
            _ => debug_assert!(false, "data is sent only for writes in flight"),
        }
    }

    fn lend(&mut self, buffer: BufferId) -> Option<Buffer> {
        let memory = self.memory_mut(buffer)?;
        match std::mem::replace(memory, JobMemory::None) {
            JobMemory::In(buffer) => Some(buffer),
            other => {
                *memory = other;
                None
            }
        }
    }

    fn take_back(&mut self, id: BufferId, buffer: Buffer) {
        match self.memory_mut(id) {
            Some(memory) => *memory = JobMemory::In(buffer),
            None => debug_assert!(false, "the job of a lent buffer is still there"),
        }
    }
}
