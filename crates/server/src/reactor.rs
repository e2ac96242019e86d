//! One reactor: a thread with a ring, and the connections that it alone serves.
//!
//! Each turn of its loop takes every completion that is there, lets the connections' machines and tasks go as far
//! as they get, and hands everything that came of it to the kernel in one system call: one send per connection with
//! all its answers, and the media's operations. Then it polls for up to `poll_us`, and sleeps when nothing happened.
//!
//! A connection stays with its reactor for life. The I/O queues of one controller may live on different reactors:
//! they share what the machines share through [`Subsystems`](diskside_nvme::controller::Subsystems), which the path
//! of a command never locks, and the volumes.

mod accept;
mod audit;
mod channel;
mod connection;
mod core;
mod file_reads;
mod files;
mod function;
mod kept;
mod late;
mod local;
mod media;
mod memory;
mod receive;
mod sends;
mod start;
mod steps;
mod task;
mod token;
mod waiting;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use diskside_io::ring::{Completion, Payload, Ring, RingConfig};
use slab::Slab;

use self::accept::Listening;
use self::connection::Connection;
use self::core::{Core, STALL, Timer};
use self::file_reads::FileReads;
use self::late::Inputs;
use self::local::LocalVolumes;
use self::memory::Memory;
use self::sends::Sends;
use self::steps::{STEPS_TIME, Steps};
use self::token::Token;
use crate::shared::{Mailbox, Message, Shared};
use diskside_compute::{NextTurn, Shares};

/// A reactor. It is made on its own thread and stays there.
pub(crate) struct Reactor {
    connections: Slab<Connection>,
    listeners: Vec<Listening>,
    messages: Vec<Message>,
    core: Core,
}

impl Reactor {
    /// A reactor for the calling thread.
    pub(crate) fn new(index: usize, shared: Arc<Shared>) -> io::Result<Self> {
        let spin = Duration::from_micros(u64::from(shared.config.poll_us));
        let mut ring = Ring::new(&RingConfig { entries: RING_ENTRIES, spin, ..RingConfig::default() })?;
        let group = ring.provide(RECEIVE_BUFFERS, RECEIVE_BUFFER_BYTES)?;
        let bound = shared.config.limits.memory.bytes() / shared.config.reactors as u64;
        let now = Instant::now();
        let core = Core {
            index,
            mailbox: Arc::new(Mailbox::new(&mut ring)?),
            ring,
            group,
            memory: Memory::new(bound),
            volumes: LocalVolumes::default(),
            hosts: HashMap::new(),
            tasks: Slab::new(),
            files: FileReads::new(),
            memory_waiters: VecDeque::new(),
            block_waiters: Steps::default(),
            rate_waiters: Steps::default(),
            rate_at: None,
            yielded: Steps::default(),
            shares: Shares::default(),
            put_off: NextTurn::default(),
            inputs: Inputs::default(),
            kept: kept::Kept::new(bound),
            timers: BinaryHeap::new(),
            delayed: 0,
            dirty: Vec::new(),
            sends: Sends::default(),
            to_detach: VecDeque::new(),
            starved: Vec::new(),
            opened: Vec::new(),
            spare_sealed: Vec::new(),
            spare_transmits: Vec::new(),
            spare_batches: Vec::new(),
            sends_in_flight: 0,
            media_in_flight: 0,
            fetches_in_flight: 0,
            media_waits: false,
            media_ended: false,
            releases_seen: 0,
            blocks_asked: now,
            media_files: Vec::new(),
            asked_to_register: false,
            stall_check: now,
            owed_check: now,
            stop_at: None,
            now,
            shared,
        };
        Ok(Self { connections: Slab::new(), listeners: Vec::new(), messages: Vec::new(), core })
    }

    /// Where other threads leave messages.
    pub(crate) fn mailbox(&self) -> Arc<Mailbox> {
        Arc::clone(&self.core.mailbox)
    }

    /// Serves until told to stop. An error is the ring's: nothing more can be done then.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        while !self.has_ended() {
            self.core.ring.expect_answers(self.core.media_in_flight > 0 || self.core.delayed > 0);
            self.core.ring.give_way(self.core.shared.is_crowded() || self.core.may_rest());
            let wait = self.core.ring.wait(self.timeout())?;
            self.core.media_waits = false;
            self.core.media_ended = false;
            self.core.now = Instant::now();
            self.core.refresh_volumes();
            self.resume_put_off();
            self.resume_sends();
            self.take_late();
            if wait.woken {
                self.read_messages();
            }
            while let Some(completion) = self.core.ring.next_completion() {
                self.handle(completion);
            }
            self.run_timers();
            self.detach_some();
            self.retry_tasks();
            self.settle();
            self.bound_kept();
            self.core.memory.keep_arrived();
            self.end_turn(wait.completions || wait.woken);
        }
        if !self.connections.is_empty() {
            self.tell_what_is_given_up();
        }
        Ok(())
    }

    /// Whether it was stopped, and has nothing left to do, or has waited for that for long enough.
    fn has_ended(&self) -> bool {
        let has_waited = |stop_at| self.core.now >= stop_at + MEDIA_LEFT;
        self.core.stop_at.is_some_and(|stop_at| self.connections.is_empty() || has_waited(stop_at))
    }

    fn tell_what_is_given_up(&self) {
        let volumes: BTreeSet<_> = self.core.tasks.iter().map(|(_, task)| &*task.volume.volume.name).collect();
        let exports = Vec::from_iter(self.core.files.exports()).join(", ");
        let operations = self.core.tasks.len() + self.core.files.len();
        let volumes = Vec::from_iter(volumes).join(", ");
        let what = "the target ends although its disks have not answered: operations that wait there are given up";
        tracing::warn!(volumes, exports, operations, "{what}");
    }

    /// How long nothing will happen by itself.
    fn timeout(&self) -> Option<Duration> {
        let core = &self.core;
        if !core.yielded.is_empty()
            || !core.dirty.is_empty()
            || !core.put_off.is_empty()
            || !core.inputs.waiting.is_empty()
        {
            return Some(Duration::ZERO);
        }
        let goes_on = (core.sends.are_put_off() || !core.to_detach.is_empty())
            .then(|| if core.shared.is_crowded() { TURN_PAUSE } else { Duration::ZERO });
        let timer =
            core.timers.peek().map(|Reverse((at, timer))| match (at.saturating_duration_since(core.now), timer) {
                // A sleep would take longer.
                (left, Timer::Task(_)) if left < DELAY_SLEPT_MIN => Duration::ZERO,
                (left, _) => left,
            });
        let blocks = (!core.block_waiters.is_empty()).then_some(BLOCK_RETRY);
        let rate = core.rate_at.map(|at| at.saturating_duration_since(core.now));
        let stall = (core.sends_in_flight > 0).then_some(STALL);
        let owed = (core.memory.owed_bytes() > 0).then_some(OWED_LOOK);
        let shrink = (core.memory.held_bytes() > core.memory.in_flight_bytes()).then_some(SHRINK);
        let stop = core.stop_at.map(|at| if core.now < at { at } else { at + MEDIA_LEFT });
        let stop = stop.map(|at| at.saturating_duration_since(core.now));
        [goes_on, timer, blocks, rate, stall, owed, shrink, stop].into_iter().flatten().min()
    }

    fn handle(&mut self, completion: Completion) {
        let token = Token::from_bits(completion.token);
        match token {
            Token::Accept(listener) => self.accepted(listener, completion),
            Token::Receive(id) => {
                if let Some(connection) = self.connections.get_mut(id) {
                    connection.received(&mut self.core, completion);
                }
            }
            Token::Send(id) => {
                self.core.sends_in_flight -= 1;
                if let Some(connection) = self.connections.get_mut(id) {
                    connection.sent(&mut self.core, completion);
                }
            }
            Token::Task(key) => {
                self.core.op_ended(key);
                let buffer = match completion.payload {
                    Payload::Buffer(buffer) => Some(buffer),
                    _ => None,
                };
                self.core.tasks[key].completed(completion.result, buffer);
                self.resume(key);
            }
            Token::File(key) => {
                let connection = &mut self.connections[self.core.files.connection_of(key)];
                connection.file_was_read(&mut self.core, key, completion);
            }
        }
    }

    fn resume(&mut self, key: usize) {
        let id = self.core.tasks[key].connection;
        let connection = &mut self.connections[id];
        connection.resume_task(&mut self.core, key);
    }

    /// Tasks that waited for something that may have come.
    fn retry_tasks(&mut self) {
        let began = Instant::now();
        for _ in 0..self.core.yielded.len() {
            if let Some(key) = self.core.yielded.pop() {
                self.resume(key);
            }
            if began.elapsed() >= STEPS_TIME {
                break;
            }
        }
        self.retry_blocks();
        self.retry_rates();
        if let Some(id) = self.core.memory.reserved_for()
            && !self.waiting_for_memory().any(|waits| waits.id == id)
        {
            self.core.memory.unreserve();
        }
        if self.core.memory.is_hungry() && !self.is_somebody_hungry() {
            self.core.memory.sate();
        }
        if !self.core.memory.take_released() {
            return;
        }
        for _ in 0..self.core.memory_waiters.len() {
            if let Some(key) = self.core.memory_waiters.pop_front() {
                self.resume(key);
            }
        }
        for id in std::mem::take(&mut self.core.starved) {
            if let Some(connection) = self.connections.get_mut(id) {
                connection.fed(&mut self.core);
            }
        }
    }

    /// Everybody's input has its time again. Connections that wait come before what is received now, and those first next time that
    /// had nothing of this one: others are listed again when they are settled.
    fn take_late(&mut self) {
        self.core.inputs.begin_turn();
        let mut waiting = std::mem::take(&mut self.core.inputs.waiting);
        waiting.retain(|id| {
            let connection = self.connections.get_mut(*id).filter(|found| !found.late.is_empty());
            connection.is_some_and(|connection| !connection.take_late(&mut self.core))
        });
        self.core.inputs.waiting = waiting;
    }

    /// Sends that were put off, in this order and before others that come now.
    fn resume_sends(&mut self) {
        for id in self.core.sends.begin_turn() {
            if let Some(connection) = self.connections.get_mut(id) {
                connection.resume_send(&mut self.core);
            }
        }
    }

    /// Everybody's traversals have a share again. Connections that wait for theirs come before all others.
    fn resume_put_off(&mut self) {
        self.core.shares.begin_turn();
        for id in self.core.put_off.take() {
            if let Some(connection) = self.connections.get_mut(id) {
                connection.mark_dirty(&mut self.core);
            }
        }
    }

    /// Copies what peers that do not read hold of volumes, a little in each turn: they may be many, and each hold much.
    fn detach_some(&mut self) {
        let mut left = DETACHED_BYTES;
        while left > 0
            && let Some(&id) = self.core.to_detach.front()
        {
            let connection = self.connections.get_mut(id);
            match connection.and_then(|connection| connection.detach_some(&mut self.core)) {
                Some(copied) => left = left.saturating_sub(copied),
                None => drop(self.core.to_detach.pop_front()),
            }
        }
    }

    fn settle(&mut self) {
        let mut index = 0;
        while let Some(&id) = self.core.dirty.get(index) {
            index += 1;
            let Some(connection) = self.connections.get_mut(id) else { continue };
            if connection.settle(&mut self.core) {
                connection.unregister(&mut self.core);
                self.connections.remove(id);
                self.core.forget_connection();
            }
        }
        self.core.dirty.clear();
    }

    /// Ends connections until the others keep no more than they may.
    fn bound_kept(&mut self) {
        while self.core.kept.is_over()
            && let Some(id) = self.keeps_most()
        {
            let connection = &mut self.connections[id];
            let why = "the host sends more and more, and does not take what it asked for";
            if let Some(left_out) = self.core.shared.notices.admit(&connection.peer, self.core.now) {
                let host = connection.machine.host_nqn().map(ToString::to_string);
                tracing::warn!(peer = connection.peer, host, kept_bytes = connection.kept_len, left_out, "{why}");
            }
            connection.close(&mut self.core, why);
            connection.note_kept(&mut self.core.kept);
        }
        self.core.kept.end_turn();
    }

    /// The connection that keeps most, of the host whose connections keep most; first of those that do not wait for memory, which
    /// others may have.
    fn keeps_most(&self) -> Option<usize> {
        let mut of_hosts: HashMap<usize, usize> = HashMap::new();
        let keeping = || self.connections.iter().filter(|(_, connection)| connection.kept_len > 0);
        keeping()
            .for_each(|(_, connection)| *of_hosts.entry(connection.input_of()).or_default() += connection.kept_len);
        let most = keeping().max_by_key(|(_, connection)| {
            (!connection.machine.awaits_buffers(), of_hosts[&connection.input_of()], connection.kept_len)
        });
        most.map(|(id, _)| id)
    }

    fn run_timers(&mut self) {
        while let Some(&Reverse((at, timer))) = self.core.timers.peek() {
            if at > self.core.now {
                break;
            }
            self.core.timers.pop();
            match timer {
                Timer::Connection(id) => {
                    if let Some(connection) = self.connections.get_mut(id) {
                        connection.timed_out(&mut self.core, at);
                    }
                }
                Timer::Task(key) => {
                    // A delay may have been cut short, and the place have a new task.
                    self.core.delayed -= 1;
                    if self.core.tasks.get(key).is_some_and(|task| task.delayed_until == Some(at)) {
                        self.core.tasks[key].delayed_until = None;
                        self.resume(key);
                    }
                }
                Timer::Accept(listener) => self.accept(listener),
            }
        }
        if self.core.sends_in_flight > 0 && self.core.now >= self.core.stall_check {
            self.core.stall_check = self.core.now + STALL;
            let starving = self.is_starving();
            for (_, connection) in &mut self.connections {
                connection.check_stall(&mut self.core, starving);
            }
        }
        if self.core.memory.owed_bytes() > 0 && self.core.now >= self.core.owed_check {
            self.core.owed_check = self.core.now + OWED_LOOK;
            let starving = self.is_starving();
            for (_, connection) in &mut self.connections {
                connection.check_owed(&mut self.core, starving);
            }
        }
        if self.core.stop_at.is_some_and(|at| self.core.now >= at) {
            for (_, connection) in &mut self.connections {
                connection.close(&mut self.core, "the target stops");
            }
        }
    }

    /// Whether a connection that holds no memory waits for some: then those who keep theirs must release it.
    fn is_starving(&self) -> bool {
        self.waiting_for_memory().any(|waits| waits.account.charged == 0)
    }

    /// Whether one waits that could have some if others held less.
    fn is_somebody_hungry(&self) -> bool {
        self.waiting_for_memory().any(|waits| self.core.memory.is_kept_from(&waits.account))
    }

    fn waiting_for_memory(&self) -> impl Iterator<Item = &Connection> {
        let tasks = self.core.memory_waiters.iter().map(|&key| self.core.tasks[key].connection);
        self.core.starved.iter().copied().chain(tasks).filter_map(|id| self.connections.get(id))
    }

    fn end_turn(&mut self, busy: bool) {
        let core = &mut self.core;
        if !busy && core.memory.in_flight_bytes() == 0 {
            core.memory.shrink();
            core.spare_sealed.clear();
            core.spare_transmits.clear();
            core.spare_batches.clear();
        }
        let (stats, ring) = (core.counters(), core.ring.stats());
        stats.turns.add(1);
        stats.traversal_work_turn_max.set(core.shares.work_max().into());
        stats.sleeps.set(ring.sleeps);
        stats.enters.set(ring.enters);
        stats.connections.set(self.connections.len() as u64);
        stats.memory_in_flight_bytes.set(core.memory.in_flight_bytes());
        stats.memory_held_bytes.set(core.memory.held_bytes());
        stats.input_kept_max_bytes.set(core.kept.most_bytes());
    }

    fn read_messages(&mut self) {
        let mut messages = std::mem::take(&mut self.messages);
        self.core.mailbox.take(&mut messages);
        for message in messages.drain(..) {
            match message {
                Message::Listen(_) if self.core.is_stopping() => {}
                Message::Listen(sockets) => self.listen(sockets),
                // A reactor that stops lets nobody in any more: the peer sees the end at once.
                Message::Socket(..) | Message::Loop(_) if self.core.is_stopping() => self.core.forget_connection(),
                Message::Socket(socket, listener) => self.add_socket(socket, listener),
                Message::Loop(end) => self.add_loop(end),
                Message::Wake(id) => {
                    if let Some(connection) = self.connections.get_mut(id) {
                        connection.woken(&mut self.core);
                    }
                }
                Message::Done(key) => {
                    let waker = self.core.mailbox.task_waker(key);
                    // The task may have ended, and another be in its place.
                    let task = self.core.tasks.get_mut(key).filter(|task| task.is_elsewhere());
                    if task.is_some_and(|task| task.listen(&waker)) {
                        self.resume(key);
                    }
                }
                Message::Answer(answer) => {
                    let (name, answer) = *answer;
                    if let Some(connection) = self.connections.get_mut(name.connection) {
                        connection.answered(&mut self.core, name, answer);
                    }
                }
                Message::Computed { connection, tag, done } => {
                    if let Some(connection) = self.connections.get_mut(connection) {
                        connection.computed(&mut self.core, tag, done);
                    }
                }
                Message::Shaken { connection, alive, shaken } => {
                    // What belongs to one connection opens no other.
                    if let Some(connection) = self.connections.get_mut(connection).filter(|found| found.is(&alive)) {
                        connection.shaken(&mut self.core, *shaken);
                    }
                }
                Message::GiveWay { connection, alive } => {
                    if let Some(connection) = self.connections.get_mut(connection).filter(|found| found.is(&alive)) {
                        connection.give_way(&mut self.core);
                    }
                }
                Message::VolumesChanged => self.core.refresh_volumes(),
                Message::QuotasChanged => {
                    for (_, connection) in self.connections.iter_mut().filter(|(_, found)| found.paused.is_some()) {
                        connection.mark_dirty(&mut self.core);
                    }
                }
                // Who asked may not wait any more.
                Message::Ping(asker) => drop(asker.send(())),
                Message::StopListening => self.stop_listening(),
                Message::Stop(until) => self.stop(until),
                Message::StopNow => {
                    self.stop(self.core.now);
                    self.core.stop_at = Some(self.core.now);
                }
            }
        }
        self.messages = messages;
    }

    /// Takes no more connections and commands; what is in flight ends first.
    fn stop(&mut self, until: Instant) {
        if self.core.is_stopping() {
            return;
        }
        self.core.stop_at = Some(until);
        self.stop_listening();
        for (_, connection) in &mut self.connections {
            connection.woken(&mut self.core);
        }
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        self.core.mailbox.close();
    }
}

const RING_ENTRIES: u32 = 1024;
/// 2 MiB a reactor, shared by all its connections.
const RECEIVE_BUFFERS: u16 = 64;
const RECEIVE_BUFFER_BYTES: usize = 32 << 10;
/// Bytes that a turn copies for peers that do not read; at least one read of theirs.
const DETACHED_BYTES: usize = 256 << 10;
/// How long a reactor that stops waits for media after the last connection was closed. A disk that hangs keeps no server.
const MEDIA_LEFT: Duration = Duration::from_secs(1);
/// How often hosts are looked after that owe data.
const OWED_LOOK: Duration = Duration::from_millis(500);
/// How soon a block is asked for again that another reactor's command holds.
const BLOCK_RETRY: Duration = Duration::from_micros(100);
/// Shorter delays of media are not slept through.
const DELAY_SLEPT_MIN: Duration = Duration::from_micros(150);
/// How soon spare memory goes back to the system.
const SHRINK: Duration = Duration::from_secs(1);
/// How soon a turn follows that sends more to those who have much to read, while functions want the processor.
const TURN_PAUSE: Duration = Duration::from_micros(100);
