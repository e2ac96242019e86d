//! Rings without io_uring: sockets and pipes by epoll, files by `preadv2` where they are cached and by threads where not.
//!
//! An operation is tried as soon as it begins. If it would block, its descriptor is watched (once, by edges), and it is tried
//! again when the kernel says that something has changed; files, which never say so, go to a [thread](workers), or past the page cache
//! to the [kernel](aio).

mod aio;
mod attempt;
mod descriptors;
mod workers;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::config::{OpId, RingConfig};
use super::driver::Driver;
use super::op::{Completion, Op, Payload};
use super::provided::{Group, GroupId};
use super::waker::Waker;
use crate::buffer::Arena;
use crate::slab::{Key, Slab};
use aio::{Aio, Ends};
use attempt::{Step, Trial, abandon, partial};
use descriptors::{Descriptors, Direction};

pub(crate) use workers::{Done, Job, Workers};

/// Marks events of the waker. No descriptor has this: their generations begin at one.
const WAKER: u64 = 0;
/// Marks those of [`Aio`].
const AIO: u64 = 1;
/// Events that one look takes; more are there for the next.
const EVENTS_MAX: usize = 256;

/// An epoll set and operations in flight.
pub(super) struct Posix {
    epoll: OwnedFd,
    descriptors: Descriptors,
    slots: Slab<InFlight>,
    groups: Vec<Rc<Group>>,
    /// To be tried: pushed just now, or stopped to let others have their turn.
    due: VecDeque<Key>,
    /// Ended, and not taken.
    ready: VecDeque<Completion>,
    /// Pushed, and their end not taken.
    in_flight: usize,
    /// Operations that wait for descriptors.
    waiting: usize,
    workers: Workers,
    /// Made when it is needed; an error: it cannot be.
    aio: Option<io::Result<Aio>>,
    /// Registered descriptors, by number.
    kept: Vec<Option<Arc<OwnedFd>>>,
    has_arena: bool,
    events: Vec<Event>,
    enters: u64,
    completions: u64,
}

struct InFlight {
    token: u64,
    /// `None` while a thread has it, or the kernel.
    op: Option<Op>,
    /// See [`Trial::moved`].
    moved: usize,
    /// What it waits for.
    waits: Option<Direction>,
}

impl Posix {
    pub(super) fn new(config: &RingConfig, waker: Waker) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, waker.eventfd(), EventData::new_u64(WAKER), EventFlags::IN | EventFlags::ET)?;
        Ok(Self {
            epoll,
            descriptors: Descriptors::default(),
            slots: Slab::with_capacity(config.entries as usize),
            groups: Vec::new(),
            due: VecDeque::new(),
            ready: VecDeque::new(),
            in_flight: 0,
            waiting: 0,
            workers: Workers::new(Some(waker)),
            aio: None,
            kept: Vec::new(),
            has_arena: false,
            events: Vec::with_capacity(EVENTS_MAX),
            enters: 0,
            completions: 0,
        })
    }

    /// Tries what is due, once.
    fn begin(&mut self) {
        for _ in 0..self.due.len() {
            let Some(key) = self.due.pop_front() else { break };
            self.attempt(key);
        }
        if let Some(Ok(aio)) = &mut self.aio {
            let refused = aio.submit();
            refused.into_iter().for_each(|job| self.workers.push(job));
        }
    }

    /// Tries an operation, unless it is over.
    fn attempt(&mut self, key: Key) {
        let Some(InFlight { token, op: Some(op), moved, .. }) = self.slots.get_mut(key) else { return };
        let step = match op.file() {
            None => Step::Done(Ok(0)),
            Some(file) => {
                let descriptor = self.descriptors.of(file);
                let (groups, ready) = (&self.groups, &mut self.ready);
                let before = ready.len();
                let step = Trial { token: *token, op, moved, descriptor, groups, ready }.run();
                self.completions += (ready.len() - before) as u64;
                step
            }
        };
        match step {
            Step::Done(result) => self.finish(key, result),
            Step::Accepted(socket) => {
                let result = Ok(socket.as_raw_fd().cast_unsigned());
                self.end(key, result, |_| Payload::Accepted(socket));
            }
            Step::Later => self.due.push_back(key),
            Step::Wait(direction) => self.wait(key, direction),
            Step::Thread { is_positioned } => {
                let job = self.job(key, is_positioned);
                self.workers.push(job);
            }
            Step::Kernel => {
                let job = self.job(key, true);
                let refused = match self.aio() {
                    Some(aio) => aio.push(job).err(),
                    None => Some(job),
                };
                if let Some(job) = refused {
                    self.workers.push(job);
                }
            }
        }
    }

    /// Somebody else carries an operation out.
    fn job(&mut self, key: Key, is_positioned: bool) -> Job {
        let slot = self.slots.get_mut(key).expect("it was there just now");
        let op = slot.op.take().expect("it was there just now");
        Job { id: key.to_bits(), op, moved: slot.moved, is_positioned }
    }

    /// `None` where the kernel has it not, or not for us: threads do the same.
    fn aio(&mut self) -> Option<&mut Aio> {
        let epoll = &self.epoll;
        let make = || {
            let aio = Aio::new()?;
            epoll::add(epoll, aio.bell(), EventData::new_u64(AIO), EventFlags::IN | EventFlags::ET)?;
            Ok(aio)
        };
        self.aio.get_or_insert_with(make).as_mut().ok()
    }

    /// Takes what the kernel has done.
    fn take_ended(&mut self) {
        let Some(Ok(aio)) = &mut self.aio else { return };
        let Ends { done, refused } = aio.take_ended();
        refused.into_iter().for_each(|job| self.workers.push(job));
        done.into_iter().for_each(|done| self.take_back(done));
    }

    fn has_direct(&self) -> bool {
        matches!(&self.aio, Some(Ok(aio)) if aio.in_flight() > 0)
    }

    fn wait(&mut self, key: Key, direction: Direction) {
        let slot = self.slots.get_mut(key).expect("an operation that waits is in flight");
        let file = slot.op.as_ref().and_then(Op::file).expect("and nobody else has it").clone();
        match self.descriptors.watch(&self.epoll, &file) {
            Ok(()) => {
                slot.waits = Some(direction);
                self.waiting += 1;
                self.descriptors.of(&file).side(direction).waiting.push_back(key);
            }
            Err(Errno::PERM) => {
                self.descriptors.of(&file).may_always_block();
                self.due.push_back(key);
            }
            Err(errno) => self.finish(key, Err(errno)),
        }
    }

    /// Ends an operation.
    fn finish(&mut self, key: Key, result: Result<u32, Errno>) {
        self.end(key, result, |op| op.map_or(Payload::None, into_payload));
    }

    fn end(&mut self, key: Key, result: Result<u32, Errno>, payload: impl FnOnce(Option<Op>) -> Payload) {
        let InFlight { token, op, .. } = self.slots.remove(key).expect("it ends once");
        self.completions += 1;
        let payload = payload(op);
        self.ready.push_back(Completion { token, result, more: false, payload });
    }

    /// Takes what threads have done. Says whether there was something.
    fn take_done(&mut self) -> bool {
        if !self.workers.has_done() {
            return false;
        }
        self.workers.take_done().into_iter().for_each(|done| self.take_back(done));
        true
    }

    fn take_back(&mut self, done: Done) {
        let key = Key::from_bits(done.id);
        let slot = self.slots.get_mut(key).expect("what somebody else has cannot end otherwise");
        slot.op = Some(done.op);
        self.finish(key, done.result);
    }

    /// Waits until something happens, and continues with what waited for it. Says whether something did.
    fn look_at_descriptors(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        self.enters += 1;
        let mut events = std::mem::take(&mut self.events);
        let found = wait(&self.epoll, &mut events, timeout);
        if found.is_ok() {
            events.iter().for_each(|event| self.take_event(event.data.u64(), event.flags));
        }
        let any = !events.is_empty();
        events.clear();
        self.events = events;
        match found {
            Ok(()) => Ok(any),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    fn take_event(&mut self, data: u64, flags: EventFlags) {
        if data == AIO {
            return self.take_ended();
        }
        let Some(descriptor) = self.descriptors.of_event(data) else { return };
        descriptor.note(flags);
        for direction in [Direction::In, Direction::Out] {
            // Those that have to wait again stand in the same order.
            for _ in 0..self.descriptors.of_event(data).map_or(0, |known| known.side(direction).waiting.len()) {
                let next = self.descriptors.of_event(data).and_then(|known| known.side(direction).waiting.pop_front());
                let Some(key) = next else { break };
                self.waiting -= 1;
                if let Some(slot) = self.slots.get_mut(key) {
                    slot.waits = None;
                }
                self.attempt(key);
            }
        }
    }
}

impl Driver for Posix {
    fn push(&mut self, token: u64, op: Op) -> OpId {
        check(&op);
        let key = self.slots.insert(InFlight { token, op: Some(op), moved: 0, waits: None });
        self.in_flight += 1;
        self.due.push_back(key);
        OpId(key)
    }

    fn push_to_worker(&mut self, token: u64, op: Op) -> OpId {
        if !matches!(op, Op::Read { .. } | Op::Write { .. } | Op::Sync { .. } | Op::Allocate { .. }) {
            return self.push(token, op);
        }
        check(&op);
        let key = self.slots.insert(InFlight { token, op: None, moved: 0, waits: None });
        self.in_flight += 1;
        self.workers.push(Job { id: key.to_bits(), op, moved: 0, is_positioned: true });
        OpId(key)
    }

    fn cancel(&mut self, OpId(key): OpId) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        match &slot.op {
            None => match self.workers.cancel(key.to_bits()) {
                Some(op) => slot.op = Some(op),
                None => return,
            },
            Some(op) => {
                abandon(op, slot.moved);
                if let (Some(direction), Some(file)) = (slot.waits, op.file()) {
                    self.descriptors.of(file).side(direction).waiting.retain(|waiting| *waiting != key);
                    self.waiting -= 1;
                }
            }
        }
        let moved = match &slot.op {
            Some(Op::Accept { .. } | Op::Connect { .. }) => 0,
            _ => slot.moved,
        };
        self.finish(key, partial(moved, Errno::CANCELED));
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn provide(&mut self, buffers: u16, len_bytes: usize) -> io::Result<GroupId> {
        let id = GroupId::at(self.groups.len());
        self.groups.push(Group::ours(buffers, len_bytes)?);
        Ok(id)
    }

    fn register(&mut self, _: &Arena) -> io::Result<()> {
        if std::mem::replace(&mut self.has_arena, true) {
            return Err(Errno::BUSY.into());
        }
        Ok(())
    }

    fn register_file(&mut self, file: &Arc<OwnedFd>) -> bool {
        let number = number(file);
        if self.kept.len() <= number {
            self.kept.resize_with(number + 1, || None);
        }
        self.kept[number] = Some(Arc::clone(file));
        true
    }

    fn is_registered(&self, file: &OwnedFd) -> bool {
        self.kept.get(number(file)).is_some_and(Option::is_some)
    }

    fn unregister_file(&mut self, file: &OwnedFd) {
        let kept = self.kept.get_mut(number(file)).and_then(Option::take);
        if let Some(kept) = kept {
            self.descriptors.forget(&self.epoll, &kept);
        }
    }

    fn submit(&mut self) -> io::Result<()> {
        // Also looks: a thread that is woken again and again would never sleep, and hear of no descriptor.
        self.look().map(drop)
    }

    fn look(&mut self) -> io::Result<bool> {
        let mut any = !self.due.is_empty();
        self.begin();
        any |= self.take_done();
        if self.waiting > 0 || self.has_direct() {
            any |= self.look_at_descriptors(Some(Duration::ZERO))?;
        }
        Ok(any)
    }

    fn has_completions(&mut self) -> bool {
        self.take_done();
        !self.ready.is_empty()
    }

    fn listen(&mut self) {
        // It always does: the waker is in the set.
    }

    fn can_rest(&self) -> bool {
        false
    }

    fn sleep(&mut self, _: Duration, timeout: Option<Duration>) -> io::Result<()> {
        self.begin();
        self.take_done();
        // Operations that end from here on wake this thread, which has said that it sleeps.
        let must_not = !self.ready.is_empty() || !self.due.is_empty() || self.workers.has_done();
        self.look_at_descriptors(if must_not { Some(Duration::ZERO) } else { timeout })?;
        self.take_done();
        Ok(())
    }

    fn next_completion(&mut self) -> Option<Completion> {
        let done = self.ready.pop_front()?;
        self.in_flight -= usize::from(!done.more);
        Some(done)
    }

    fn counts(&self) -> (u64, u64) {
        (self.enters, self.completions)
    }
}

impl AsFd for Posix {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

fn check(op: &Op) {
    if let Op::Read { buffer, range, .. } | Op::Write { buffer, range, .. } | Op::ReceiveInto { buffer, range, .. } = op
    {
        assert!(buffer.get(range.clone()).is_some(), "a range lies within its buffer");
    }
}

/// What the owner of an operation gets back.
pub(super) fn into_payload(op: Op) -> Payload {
    match op {
        Op::Read { buffer, .. } | Op::Write { buffer, .. } | Op::ReceiveInto { buffer, .. } => Payload::Buffer(buffer),
        Op::Send { batch, .. } => Payload::Batch(batch),
        _ => Payload::None,
    }
}

/// Takes events, of which there is room for some, once there is one or the time is over.
fn wait(epoll: &OwnedFd, events: &mut Vec<Event>, timeout: Option<Duration>) -> Result<(), Errno> {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    if let Some(timeout) = timeout.filter(|timeout| !timeout.is_zero()) {
        // epoll's own call counts milliseconds, or is so new that containers deny it. More than it can name is for ever.
        let timeout = Timespec::try_from(timeout).ok();
        if poll(&mut [PollFd::new(epoll, PollFlags::IN)], timeout.as_ref())? == 0 {
            return Ok(());
        }
    }
    let timeout = timeout.is_some().then_some(&at_once);
    epoll::wait(epoll, spare_capacity(events), timeout).map(drop)
}

fn number(file: &OwnedFd) -> usize {
    // Open descriptors have numbers from 0 on.
    file.as_raw_fd() as usize
}
