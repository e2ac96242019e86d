//! The accesses of one kernel that are under way, on a ring of the thread that runs it.
//!
//! The thread drives its ring while the kernel waits, and only then. Whatever the kernel asks for becomes an [`Operation`],
//! whether it waits for it at once or later. Where a program looks at its deadline and at cancellation so does a wait; an
//! end in the middle leaves nothing under way ([`Flight::land`]).

mod files;

use super::operation::{Later, Operation, State, Step, Way};
use super::slices::Slices;
use super::{DirectPolicy, IoCounts};
use crate::turns::Turns;
use diskside_io::buffer::Buffer;
use diskside_io::bytefile::{Access, Begun, ByteFile, Direction};
use diskside_io::ring::{Payload, Ring, RingConfig};
use diskside_sbpf::files::{Ended, FileFault};
use diskside_sbpf::machine::{CancelToken, CancelWatch};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The longest access that is one operation.
pub(super) const ACCESS_LEN_MAX: u64 = 512 << 10;
/// How soon bytes are asked for again that somebody else has.
const BUSY_RETRY: Duration = Duration::from_micros(50);
/// How long a wait sleeps at most before it looks around.
const LOOK: Duration = Duration::from_millis(20);
/// How long a program computes before what is under way is looked at.
const PAUSE: Duration = Duration::from_micros(100);
/// How long it polls before it sleeps: others have use for the processor.
const SPIN: Duration = Duration::from_micros(20);

/// See the [module](self).
pub(super) struct Flight {
    files: Vec<Arc<dyn ByteFile>>,
    readonly: usize,
    policy: DirectPolicy,
    slice_len: u64,
    depth: usize,
    until: Option<Instant>,
    cancel: Option<CancelToken>,
    turns: Option<Arc<dyn Turns>>,
    ring: Option<Ring>,
    watch: Option<CancelWatch>,
    /// By their age.
    operations: BTreeMap<u64, Operation>,
    begun: u64,
    slices: Slices,
    spare: Vec<Buffer>,
    /// Files whose file system takes no direct accesses after all.
    refuse_direct: Vec<bool>,
    /// Nothing more is begun.
    landing: bool,
    /// When a program that computes was interrupted last.
    looked: Instant,
    pub(super) counts: IoCounts,
}

/// What decides how a flight goes.
pub(super) struct FlightPlan {
    pub(super) files: Vec<Arc<dyn ByteFile>>,
    /// The first so many may not be written.
    pub(super) readonly: usize,
    pub(super) policy: DirectPolicy,
    pub(super) slice_len: u64,
    pub(super) slices_max: usize,
    pub(super) depth: usize,
    pub(super) until: Option<Instant>,
    pub(super) cancel: Option<CancelToken>,
    pub(super) turns: Option<Arc<dyn Turns>>,
}

/// A write failed that the kernel never asked about.
#[derive(Debug)]
pub(super) struct Unheard {
    pub(super) file: usize,
    pub(super) errno: Errno,
}

impl Flight {
    pub(super) fn new(plan: FlightPlan) -> Self {
        let FlightPlan { files, readonly, policy, slice_len, slices_max, depth, until, cancel, turns } = plan;
        let refuse_direct = vec![false; files.len()];
        let (slices, spare, operations) = (Slices::new(slices_max), Vec::new(), BTreeMap::new());
        let (ring, watch, begun, landing, counts) = (None, None, 0, false, IoCounts::default());
        Self {
            files,
            readonly,
            policy,
            slice_len,
            depth,
            until,
            cancel,
            turns,
            ring,
            watch,
            operations,
            begun,
            slices,
            spare,
            refuse_direct,
            landing,
            looked: Instant::now(),
            counts,
        }
    }

    /// Ends all: after a kernel that ended well what it wrote is written, and what it did not wait for is no less an error;
    /// after any other nothing more is begun. When this returns nothing is under way.
    pub(super) fn land(&mut self, ended_well: bool) -> Result<Option<Unheard>, FileFault> {
        let flown = match ended_well {
            true => self.drive(|flight| flight.operations.values().all(|it| it.is_over() || !it.is_write())),
            false => Ok(()),
        };
        self.landing = true;
        if let Some(ring) = &mut self.ring {
            for operation in self.operations.values() {
                if let State::Ring(id, ..) = &operation.state {
                    ring.cancel(*id);
                }
            }
        }
        self.operations.retain(|_, it| !matches!(it.state, State::Next | State::Until(..)));
        while self.operations.values().any(|it| !it.is_over()) {
            self.poll(Instant::now());
            self.wait_for_ring(LOOK);
        }
        flown?;
        Ok(self.operations.values().find_map(|it| match &it.state {
            State::Ended(Err(errno)) if it.is_write() => Some(Unheard { file: it.file, errno: *errno }),
            _ => None,
        }))
    }

    /// Takes a new operation and begins it.
    fn begin(&mut self, operation: Operation) -> u64 {
        let id = self.begun;
        self.begun += 1;
        self.counts.accesses += 1;
        self.advance(id, operation);
        id
    }

    /// Begins the steps of an operation until one has to be waited for, and keeps it.
    fn advance(&mut self, id: u64, mut operation: Operation) {
        while matches!(operation.state, State::Next) && !self.landing {
            if operation.moved >= operation.len {
                self.end(&mut operation, None);
                break;
            }
            self.step(id, &mut operation);
        }
        if matches!(operation.state, State::Next) {
            self.end(&mut operation, Some(Errno::CANCELED));
        }
        self.operations.insert(id, operation);
    }

    fn step(&mut self, id: u64, operation: &mut Operation) {
        let mut step = operation.next_step(self.policy, self.slice_len);
        let file = Arc::clone(&self.files[operation.file]);
        if step.way == Way::Slice {
            step.version = file.version();
            if let Some(version) = step.version
                && let Some(bytes) = self.slices.get((operation.file, step.start), version)
            {
                self.counts.kept += 1;
                if !operation.take_read(&step, bytes, bytes.len() as u64) {
                    self.end(operation, None);
                }
                return;
            }
        }
        if operation.direction == Direction::Write {
            let first = step.start / self.slice_len;
            for slice in first..(step.start + step.len as u64).div_ceil(self.slice_len) {
                self.slices.remove((operation.file, slice * self.slice_len));
            }
        }
        let is_all = operation.moved == 0 && step.len as u64 == operation.len && step.way == Way::Straight;
        let buffer = match operation.bytes.take_if(|_| is_all) {
            Some(own) => own,
            None => {
                let mut buffer = self.buffer(step.len);
                if let (Direction::Write, Some(bytes)) = (operation.direction, &operation.bytes) {
                    let from = operation.moved as usize;
                    buffer.copy_from_slice(&bytes[from..from + step.len]);
                }
                buffer
            }
        };
        let cached = self.refuse_direct[operation.file];
        let access = Access { direction: operation.direction, offset: step.start, buffer, cached };
        let begun = file.begin(access);
        self.begun(id, operation, step, begun);
    }

    fn begun(&mut self, id: u64, operation: &mut Operation, mut step: Step, begun: Begun) {
        self.counts.requests += 1;
        let now = Instant::now();
        operation.state = match begun {
            Begun::Ring { op, after, hold, direct } => {
                step.direct = direct;
                if after.is_zero() {
                    return self.push(id, operation, step, op, hold);
                }
                State::Until(now + after, step, Later::Push { op, hold })
            }
            Begun::Elsewhere { future, buffer, hold } => {
                State::Elsewhere { future, buffer, hold, step, is_heard: false }
            }
            Begun::Done { result, buffer, after, hold } if after.is_zero() => {
                drop(hold);
                return self.complete(operation, step, result, buffer);
            }
            Begun::Done { result, buffer, after, hold } => {
                State::Until(now + after, step, Later::Complete { result, buffer, hold })
            }
            Begun::Busy { access, hold } => {
                self.counts.requests -= 1;
                State::Until(now + BUSY_RETRY, step, Later::Again { access, hold })
            }
        };
    }

    fn push(
        &mut self,
        id: u64,
        operation: &mut Operation,
        step: Step,
        op: diskside_io::ring::Op,
        hold: diskside_io::bytefile::Hold,
    ) {
        match self.ring() {
            Ok(ring) => operation.state = State::Ring(ring.push(id, op), step, hold),
            Err(errno) => self.end(operation, Some(errno)),
        }
    }

    /// A step has ended.
    fn complete(&mut self, operation: &mut Operation, step: Step, result: Result<u64, Errno>, buffer: Buffer) {
        operation.state = State::Next;
        let own = operation.bytes.is_none();
        let count = match result {
            Ok(count) => count.min(step.len as u64),
            Err(errno) => {
                self.take_back(operation, own, buffer);
                if errno == Errno::INVAL && step.direct && !self.refuse_direct[operation.file] {
                    self.refuse_direct[operation.file] = true;
                    return;
                }
                return self.end(operation, Some(errno));
            }
        };
        let is_whole = step.start.is_multiple_of(self.slice_len) && (step.len as u64).is_multiple_of(self.slice_len);
        let is_direct = is_whole && step.way != Way::Slice && self.policy != DirectPolicy::Off;
        self.counts.direct += u64::from(is_direct);
        let goes_on = match operation.direction {
            Direction::Read => {
                self.counts.read_bytes += count;
                operation.take_read(&step, if own { &[] } else { &buffer }, count)
            }
            Direction::Write => {
                self.counts.written_bytes += count;
                operation.moved += count;
                count > 0
            }
        };
        if step.way == Way::Slice
            && let Some(version) = step.version.filter(|_| count > 0)
            && self.files[operation.file].version() == Some(version)
        {
            let mut kept = buffer;
            kept.set_len(count as usize);
            if let Some(spare) = self.slices.keep((operation.file, step.start), version, kept) {
                self.keep_spare(spare);
            }
        } else {
            self.take_back(operation, own, buffer);
        }
        if !goes_on && operation.moved < operation.len {
            // A device that takes no bytes has failed; it is not at its end.
            let errno = (operation.direction == Direction::Write).then_some(Errno::IO);
            self.end(operation, errno);
        }
    }

    fn take_back(&mut self, operation: &mut Operation, own: bool, buffer: Buffer) {
        if own {
            operation.bytes = Some(buffer);
        } else {
            self.keep_spare(buffer);
        }
    }

    /// Keeps a buffer to be used again, if there are not enough.
    fn keep_spare(&mut self, buffer: Buffer) {
        if self.spare.len() <= self.depth {
            self.spare.push(buffer);
        }
    }

    /// With an error, whatever was moved before.
    fn end(&mut self, operation: &mut Operation, errno: Option<Errno>) {
        let result = errno.map_or(Ok(operation.moved), Err);
        let (offset, took) = (operation.offset, operation.began.elapsed());
        self.files[operation.file].ended(operation.direction, offset, result, took);
        operation.state = State::Ended(result);
    }

    /// Does what is due, and takes the completions of those who do something for it: also of those that were asked just
    /// now, for a next step.
    fn poll(&mut self, now: Instant) {
        let unheard = |it: &Operation| matches!(it.state, State::Elsewhere { is_heard: false, .. });
        loop {
            self.poll_once(now);
            if !self.operations.values().any(unheard) {
                return;
            }
        }
    }

    fn poll_once(&mut self, now: Instant) {
        let due = |it: &Operation| match &it.state {
            State::Until(at, ..) => *at <= now,
            State::Elsewhere { .. } => true,
            _ => false,
        };
        let ids: Vec<u64> = self.operations.iter().filter(|(_, it)| due(it)).map(|(&id, _)| id).collect();
        for id in ids {
            let Some(mut operation) = self.operations.remove(&id) else { continue };
            match std::mem::replace(&mut operation.state, State::Next) {
                State::Until(_, step, later) => match later {
                    Later::Push { op, hold } => self.push(id, &mut operation, step, op, hold),
                    Later::Complete { result, buffer, hold } => {
                        drop(hold);
                        self.complete(&mut operation, step, result, buffer);
                    }
                    Later::Again { access, hold } => {
                        drop(hold);
                        let begun = self.files[operation.file].begin(access);
                        self.begun(id, &mut operation, step, begun);
                    }
                },
                State::Elsewhere { mut future, buffer, hold, step, .. } => {
                    let waker = self.ring().ok().map(|ring| std::task::Waker::from(ring.waker()));
                    let mut context = Context::from_waker(waker.as_ref().unwrap_or(std::task::Waker::noop()));
                    match Pin::new(&mut future).poll(&mut context) {
                        Poll::Pending => {
                            operation.state = State::Elsewhere { future, buffer, hold, step, is_heard: true };
                        }
                        Poll::Ready(outcome) => {
                            drop(hold);
                            let result = outcome.status.to_result();
                            let result = result.map(|()| outcome.transferred_bytes);
                            let result = result.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO));
                            let buffer = outcome.buffer.or(buffer).unwrap_or_else(|| Buffer::zeroed(step.len));
                            self.complete(&mut operation, step, result, buffer);
                        }
                    }
                }
                state => operation.state = state,
            }
            self.advance(id, operation);
        }
    }

    /// Waits until that holds.
    fn drive(&mut self, done: impl Fn(&Self) -> bool) -> Result<(), FileFault> {
        let began = Instant::now();
        let driven = self.drive_until(done);
        self.counts.waited += began.elapsed();
        driven
    }

    fn drive_until(&mut self, done: impl Fn(&Self) -> bool) -> Result<(), FileFault> {
        loop {
            let now = Instant::now();
            self.poll(now);
            if done(self) {
                return Ok(());
            }
            let is_over = self.until.is_some_and(|until| now >= until);
            if is_over || self.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
                return Err(FileFault::Interrupted);
            }
            let next = self.operations.values().filter_map(|it| match &it.state {
                State::Until(at, ..) => Some(*at),
                _ => None,
            });
            let next = next.chain(self.until).min().map_or(LOOK, |at| at.saturating_duration_since(now));
            self.wait_for_ring(next.min(LOOK));
        }
    }

    /// Sleeps until the ring has something, or for so long. Others may compute meanwhile; and what has ended keeps no bytes from
    /// anybody when this thread waits for its turn.
    fn wait_for_ring(&mut self, timeout: Duration) {
        let turns = self.turns.clone();
        let mut wait = || self.wait_and_take(timeout);
        match &turns {
            Some(turns) => turns.away(&mut wait),
            None => wait(),
        }
    }

    fn wait_and_take(&mut self, timeout: Duration) {
        let Ok(ring) = self.ring() else { return std::thread::sleep(timeout) };
        // An error of the wait itself ends it early: the completions that are there are taken all the same.
        let _ = ring.wait(Some(timeout));
        while let Some(done) = self.ring.as_mut().and_then(Ring::next_completion) {
            let Some(mut operation) = self.operations.remove(&done.token) else { continue };
            let Payload::Buffer(buffer) = done.payload else { continue };
            if let State::Ring(_, step, hold) = std::mem::replace(&mut operation.state, State::Next) {
                drop(hold);
                self.complete(&mut operation, step, done.result.map(u64::from), buffer);
            }
            self.advance(done.token, operation);
        }
    }

    fn ring(&mut self) -> Result<&mut Ring, Errno> {
        if self.ring.is_none() {
            let entries = (self.depth + 1).next_power_of_two() as u32;
            let ring = Ring::new(&RingConfig { entries, spin: SPIN, ..RingConfig::default() });
            let ring = ring.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            let waker = ring.waker();
            self.watch = self.cancel.as_ref().map(|cancel| cancel.when_cancelled(move || waker.wake()));
            self.ring = Some(ring);
        }
        Ok(self.ring.as_mut().expect("it was made just now"))
    }

    fn buffer(&mut self, len: usize) -> Buffer {
        let fits = self.spare.iter().position(|buffer| buffer.capacity() >= len && buffer.is_aligned());
        match fits {
            Some(at) => {
                let mut buffer = self.spare.swap_remove(at);
                buffer.set_len(len);
                buffer
            }
            None => Buffer::zeroed(len),
        }
    }

    /// A file of the call that may be accessed so.
    fn check(&self, file: u32, direction: Direction) -> Result<usize, FileFault> {
        let file = file as usize;
        let is_fine = file < self.files.len() && (direction == Direction::Read || file >= self.readonly);
        if is_fine { Ok(file) } else { Err(errno(Errno::BADF)) }
    }

    /// Runs one operation to its end.
    fn at_once(&mut self, at: At, direction: Direction, bytes: Buffer) -> Result<(u64, Option<Buffer>), FileFault> {
        let operation = Operation::new(at, direction, bytes, None, 0);
        let id = self.begin(operation);
        self.drive(|flight| flight.operations.get(&id).is_none_or(Operation::is_over))?;
        let Some(Operation { state: State::Ended(result), bytes, .. }) = self.operations.remove(&id) else {
            return Err(errno(Errno::IO));
        };
        result.map(|moved| (moved, bytes)).map_err(errno)
    }

    /// Whether one more may be under way.
    fn check_depth(&self) -> Result<(), FileFault> {
        let full = self.operations.values().filter(|it| it.cookie.is_some()).count() >= self.depth;
        if full { Err(errno(Errno::AGAIN)) } else { Ok(()) }
    }

    fn hand_over(&mut self, id: u64, take: &mut dyn FnMut(Ended<'_>)) {
        let Some(operation) = self.operations.remove(&id) else { return };
        let State::Ended(result) = operation.state else { return };
        let is_read = operation.direction == Direction::Read;
        let moved = if is_read { operation.moved as usize } else { 0 };
        let bytes = operation.bytes.as_ref().map_or(&[][..], |bytes| &bytes[..moved]);
        let result = result.map_err(Errno::raw_os_error);
        take(Ended { cookie: operation.cookie.unwrap_or(0), result, bytes, address: operation.address });
        if let Some(buffer) = operation.bytes {
            self.keep_spare(buffer);
        }
    }

    fn oldest_ended(&self) -> Option<u64> {
        self.operations.iter().find(|(_, it)| it.cookie.is_some() && it.is_over()).map(|(&id, _)| id)
    }
}

/// Which bytes of which file.
#[derive(Clone, Copy)]
struct At {
    file: usize,
    offset: u64,
    len: u64,
}

impl Operation {
    fn new(at: At, direction: Direction, bytes: Buffer, cookie: Option<u64>, address: u64) -> Self {
        let (moved, state, began) = (0, State::Next, Instant::now());
        let At { file, offset, len } = at;
        Self { cookie, address, file, direction, offset, len, moved, bytes: Some(bytes), state, began }
    }

    fn is_over(&self) -> bool {
        matches!(self.state, State::Ended(_))
    }

    fn is_write(&self) -> bool {
        self.direction == Direction::Write
    }
}

impl Flight {
    /// The kernel gets what was begun now: the program may compute for long.
    fn submit(&mut self) {
        if let Some(ring) = &mut self.ring {
            // What cannot be submitted now the next wait submits.
            let _ = ring.submit();
        }
    }
}

fn errno(errno: Errno) -> FileFault {
    FileFault::Errno(errno.raw_os_error())
}
