//! One command, or one read of a traversal, at work on its volume: which accesses it makes, what it holds meanwhile, and how it ends.
//!
//! A task never blocks. [`Task::advance`] does what can be done at once and says what it needs next: a ring
//! operation, memory, a block that another command holds, time, or nothing more. Most reads and writes of memory
//! volumes end in the first call.

mod access;
mod long;

use std::future::Future as _;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use diskside_io::Errno;
use diskside_io::buffer::Buffer;
use diskside_io::request::RequestFuture;
use diskside_io::ring::Op;
use diskside_io::unanswered::Asked;
use diskside_nvme::controller::{ByteRange, Completion, Tag};
use diskside_nvme::{BufferId, BufferSlice, Status};

use self::long::{ZERO_STEP_BYTES, piece};
use super::local::{AtMedium, LocalVolume};
use super::memory::{Account, Charge, Memory};
use diskside_compute::ReadId;
use diskside_volume::blocking::moved_elsewhere;
use diskside_volume::cache::Lookups;
use diskside_volume::guard::Mode;
use diskside_volume::medium::{Access, Action};
use diskside_wire::delta::Delta;

/// A command at work.
#[derive(Debug)]
pub(crate) struct Task {
    /// The connection that it came from.
    pub(crate) connection: usize,
    /// The host of that: with others it takes turns.
    pub(crate) host: usize,
    /// Who asked for it there.
    pub(crate) asker: Asker,
    /// The volume that it names.
    pub(crate) volume: Rc<LocalVolume>,
    /// What it counts as, and with how many bytes.
    pub(crate) kind: Kind,
    pub(crate) len_bytes: u64,
    work: Work,
    /// Bytes of the current access that are done.
    done: usize,
    /// The range that it holds, and where.
    held: Option<Held>,
    /// It was refused a range as a writer and keeps others out of it.
    waits_for: Option<Range<u64>>,
    /// Memory of its own, and what it is charged with.
    buffer: Option<Buffer>,
    charge: Option<Charge>,
    /// Its operation takes a thread of the kernel, of which its volume has few.
    pub(super) has_worker: bool,
    /// Its part of the memory of reads of its volume.
    at_medium: Option<AtMedium>,
    /// An action of the medium that waits for its time or for memory.
    pending: Option<Action>,
    /// What somebody else does of the current access.
    elsewhere: Option<RequestFuture>,
    /// Its medium is asked for something, and has not answered.
    asked: Option<Asked>,
    /// What the last ring operation failed with.
    failed: Option<Errno>,
    cancelled: bool,
    /// When its delay is over, while it is in one.
    pub(crate) delayed_until: Option<Instant>,
    /// Since when it is under way, of a command.
    began: Option<Instant>,
}

/// Who asked for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// A command of the host, which the machine knows by this name.
    Command(Tag),
    /// A call of a traversal, and when it did.
    Traversal(ReadId, Instant),
}

/// What a task counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Read, Compare, Verify.
    Read,
    /// Write, Copy.
    Write,
    /// Write Zeroes, Deallocate.
    Zero,
    Flush,
}

/// What a task does.
#[derive(Debug)]
pub(crate) enum Work {
    Read {
        offset: u64,
        len: usize,
    },
    /// The data are in the task's buffer, from `at` on.
    Write {
        offset: u64,
        at: usize,
        len: usize,
        durable: bool,
    },
    /// A record that was checked is in the task's buffer.
    Delta {
        offset: u64,
        len: usize,
        at: usize,
        record_len: usize,
    },
    Compare {
        offset: u64,
        theirs: Buffer,
        at: usize,
        len: usize,
        charge: Option<Charge>,
    },
    /// Blocks for a traversal, and where they are kept.
    Fetch {
        offset: u64,
        len: usize,
        cache: Option<Lookups>,
    },
    Verify {
        range: ByteRange,
        at: u64,
    },
    Zero {
        ranges: Vec<ByteRange>,
        index: usize,
        at: u64,
        deallocate: bool,
        by_writing: bool,
        durable: bool,
    },
    Copy {
        sources: Vec<Source>,
        index: usize,
        at: u64,
        to: u64,
        writing: bool,
        durable: bool,
    },
    Flush {
        submitted: bool,
    },
}

/// A source of a copy.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) volume: Rc<LocalVolume>,
    pub(crate) range: ByteRange,
}

#[derive(Debug)]
struct Held {
    volume: Rc<LocalVolume>,
    range: Range<u64>,
    mode: Mode,
}

/// What a task needs next.
#[derive(Debug)]
pub(crate) enum Next {
    /// It has ended.
    End(Ended),
    /// Carry this out and call [`Task::completed`].
    Submit(Op),
    /// Call again when memory was released.
    Memory,
    /// Call again soon: another command holds a block.
    Block,
    /// Call again after this long.
    Delay(Duration),
    /// Call again when the medium takes more, in this time at the earliest.
    Rate(Duration),
    /// Call again when somebody else is done: [`Task::listen`].
    Elsewhere,
    /// Call again after other work had its turn.
    Yield,
}

/// How a task ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) completion: Completion,
    /// What the medium failed it with.
    pub(crate) failed: Option<Errno>,
    /// It was not carried out for what it says itself: a delta of another base.
    pub(crate) refused: bool,
}

/// What a task works with.
pub(crate) struct Bench<'a> {
    pub(crate) memory: &'a mut Memory,
    pub(crate) account: &'a mut Account,
    /// Reads are copied at once: the peer is too slow for the volume's blocks to be held until they are sent.
    pub(crate) copy_reads: bool,
}

/// The way an access went on: it is done, or the task needs something first.
enum Flow {
    Done,
    Failed(Errno),
    Needs(Next),
}

impl Task {
    pub(crate) fn new(connection: usize, asker: Asker, volume: Rc<LocalVolume>, work: Work) -> Self {
        let (kind, len_bytes) = match &work {
            Work::Read { len, .. } | Work::Compare { len, .. } | Work::Fetch { len, .. } => (Kind::Read, *len as u64),
            Work::Verify { range, .. } => (Kind::Read, range.len),
            Work::Write { len, .. } => (Kind::Write, *len as u64),
            Work::Delta { record_len, .. } => (Kind::Write, *record_len as u64),
            Work::Copy { sources, .. } => (Kind::Write, sources.iter().map(|source| source.range.len).sum()),
            Work::Zero { .. } => (Kind::Zero, 0),
            Work::Flush { .. } => (Kind::Flush, 0),
        };
        Self {
            connection,
            host: 0,
            asker,
            volume,
            kind,
            len_bytes,
            work,
            done: 0,
            held: None,
            waits_for: None,
            buffer: None,
            charge: None,
            has_worker: false,
            at_medium: None,
            pending: None,
            elsewhere: None,
            asked: None,
            failed: None,
            cancelled: false,
            delayed_until: None,
            began: None,
        }
    }

    /// A task whose data came from the host.
    pub(crate) fn with_data(mut self, (buffer, charge): (Buffer, Charge)) -> Self {
        self.buffer = Some(buffer);
        self.charge = Some(charge);
        self
    }

    /// The host no longer wants it: it ends at the next chance.
    pub(crate) fn cancel(&mut self) {
        self.cancelled = true;
    }

    /// Whether it reads for a traversal.
    pub(crate) fn is_fetch(&self) -> bool {
        matches!(self.asker, Asker::Traversal(..))
    }

    /// Whether it has many steps, each of which takes its time: none is taken before its turn.
    pub(crate) fn is_long(&self) -> bool {
        matches!(self.work, Work::Verify { .. } | Work::Zero { .. } | Work::Copy { .. })
    }

    /// Whether what it has the ring do takes a thread of the kernel: a flush, or a range that is zeroed or given back.
    pub(crate) fn takes_worker(&self) -> bool {
        matches!(self.work, Work::Flush { .. } | Work::Zero { by_writing: false, .. })
    }

    /// It is under way, and not only a copy.
    pub(crate) fn begin(&mut self, now: Instant) {
        if let Asker::Command(_) = self.asker {
            self.began = Some(now);
            self.volume.begin(now);
        }
    }

    /// It is under way no more.
    pub(crate) fn leave(&self, now: Instant) {
        match self.asker {
            Asker::Command(_) => self.volume.end(now, self.began),
            Asker::Traversal(_, since) => self.volume.volume.functions.took(now.saturating_duration_since(since)),
        }
    }

    /// The memory of a fetch that has ended well.
    pub(crate) fn into_fetched(self) -> Option<(Buffer, Charge)> {
        self.buffer.zip(self.charge)
    }

    /// Does what can be done now.
    pub(crate) fn advance(&mut self, bench: &mut Bench<'_>) -> Next {
        if let Some(errno) = self.failed.take() {
            return self.end(bench, Err(errno));
        }
        if self.cancelled && !matches!(self.work, Work::Flush { .. }) {
            self.let_go(bench);
            return ended(Completion::failed(Status::COMMAND_ABORT_REQUESTED), None);
        }
        if self.changes_bytes() && self.volume.volume.has_failed() {
            return self.end(bench, Err(Errno::IO));
        }
        let flow = match self.work {
            Work::Read { offset, len } => return self.read(bench, offset, len),
            Work::Fetch { offset, len, .. } => return self.fetch(bench, offset, len),
            Work::Write { offset, at, len, durable } => self.write(offset, at, len, durable),
            Work::Delta { offset, len, .. } => self.delta(offset, len),
            Work::Compare { offset, len, .. } => self.compare(bench, offset, len),
            Work::Verify { .. } => self.verify(bench),
            Work::Zero { .. } => self.zero(bench),
            Work::Copy { .. } => self.copy(bench),
            Work::Flush { .. } => self.flush(),
        };
        match flow {
            Flow::Needs(next) => next,
            Flow::Failed(errno) => self.end(bench, Err(errno)),
            Flow::Done => self.end(bench, Ok(())),
        }
    }

    /// Takes the result of the ring operation that [`Next::Submit`] asked for.
    pub(crate) fn completed(&mut self, result: Result<u32, Errno>, buffer: Option<Buffer>) {
        self.asked = None;
        if buffer.is_some() {
            self.buffer = buffer;
        }
        if let Some(Action::Pending(_)) = self.pending {
            // Not bytes moved: its answer is there, and is looked at next. A wait that failed is begun again, or fails there.
            self.failed = result.err().filter(|errno| *errno != Errno::INTR && *errno != Errno::AGAIN);
            return;
        }
        match (&mut self.work, result) {
            (_, Err(Errno::INTR | Errno::AGAIN)) => {}
            (Work::Zero { deallocate, by_writing: false, .. }, Err(errno)) => {
                if errno == Errno::OPNOTSUPP {
                    let access = Access::Zero { offset: 0, len: 0, deallocate: *deallocate };
                    self.volume.volume.medium.refused(&access);
                } else {
                    self.failed = Some(errno);
                }
            }
            (Work::Zero { ranges, index, at, by_writing: false, .. }, Ok(_)) => {
                *at += piece(&ranges[*index], *at, ZERO_STEP_BYTES).len;
                self.release();
            }
            (Work::Flush { submitted }, result) => match result {
                Ok(_) => *submitted = true,
                Err(errno) => {
                    self.volume.volume.set_failed();
                    self.failed = Some(errno);
                }
            },
            (Work::Delta { len, .. }, Ok(_)) => self.done = *len,
            (_, Ok(moved)) => {
                let block = self.volume.volume.block_bytes as usize;
                let moved = moved as usize / block * block;
                if moved == 0 {
                    // The file is shorter than it was when the volume was opened.
                    self.volume.volume.note_end();
                    self.failed = Some(Errno::IO);
                }
                self.done += moved;
            }
            (_, Err(errno)) => self.failed = Some(errno),
        }
    }

    /// Has `waker` called when somebody else is done; true: that is so, and its result was taken.
    pub(crate) fn listen(&mut self, waker: &Waker) -> bool {
        let Some(mut future) = self.elsewhere.take() else { return true };
        match Pin::new(&mut future).poll(&mut Context::from_waker(waker)) {
            Poll::Pending => {
                self.elsewhere = Some(future);
                false
            }
            Poll::Ready(outcome) => {
                let moved = moved_elsewhere(outcome);
                self.completed(moved.map(|moved| u32::try_from(moved).unwrap_or(u32::MAX)), None);
                true
            }
        }
    }

    /// Whether it waits for somebody else.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.elsewhere.is_some()
    }

    /// Ends it without an answer: its connection is gone.
    pub(crate) fn abandon(mut self, bench: &mut Bench<'_>) {
        self.let_go(bench);
    }

    fn read(&mut self, bench: &mut Bench<'_>, offset: u64, len: usize) -> Next {
        if !self.has_part(bench, len) {
            return Next::Block;
        }
        if !self.charged(bench, len) {
            return self.wait_for_memory();
        }
        let volume = Rc::clone(&self.volume);
        let range = offset..offset + len as u64;
        if !self.hold(&volume, range, Mode::Shared) {
            return Next::Block;
        }
        if self.buffer.is_none() {
            let action = match self.next_action(&volume, &Access::Read { offset, len }) {
                Ok(action) => action,
                Err(next) => return next,
            };
            match (action, self.charge.take()) {
                (Action::Bytes(_), Some(charge)) if volume.memory.is_some() && !bench.copy_reads => {
                    // The range stays held until the bytes were sent: the buffer's release drops it.
                    self.held = None;
                    let id = bench.memory.insert_volume(bench.account, charge, volume, offset, len);
                    return ended_with(id, len);
                }
                (action, charge) => {
                    self.pending = Some(action);
                    self.charge = charge;
                    self.buffer = Some(bench.memory.buffer(len));
                }
            }
        }
        match self.transfer_in(&volume, offset, len) {
            Flow::Needs(next) => next,
            Flow::Failed(errno) => self.end(bench, Err(errno)),
            Flow::Done => {
                self.release();
                match (self.buffer.take(), self.charge.take()) {
                    (Some(buffer), Some(charge)) => {
                        ended_with(bench.memory.insert_filled(bench.account, charge, buffer), len)
                    }
                    _ => unreachable!("a read that is done has its buffer and its charge"),
                }
            }
        }
    }

    /// The same as a read, for the target itself.
    fn fetch(&mut self, bench: &mut Bench<'_>, offset: u64, len: usize) -> Next {
        let volume = Rc::clone(&self.volume);
        if volume.volume.is_removed() {
            return self.end(bench, Err(Errno::NODEV));
        }
        if !self.has_part(bench, len) {
            return Next::Block;
        }
        if !self.has_buffer(bench, len) {
            return self.wait_for_memory();
        }
        if !self.hold(&volume, offset..offset + len as u64, Mode::Shared) {
            return Next::Block;
        }
        match self.transfer_in(&volume, offset, len) {
            Flow::Needs(next) => next,
            Flow::Failed(errno) => self.end(bench, Err(errno)),
            Flow::Done => {
                if let (Work::Fetch { cache: Some(cache), .. }, Some(buffer)) = (&self.work, &self.buffer) {
                    cache.keep(&volume.volume, offset, &buffer[..len]);
                }
                self.release();
                ended(Completion::success(), None)
            }
        }
    }

    fn write(&mut self, offset: u64, at: usize, len: usize, durable: bool) -> Flow {
        let volume = Rc::clone(&self.volume);
        if !self.hold(&volume, offset..offset + len as u64, Mode::Exclusive) {
            return Flow::Needs(Next::Block);
        }
        self.transfer_out(&volume, offset, at, len, durable)
    }

    fn compare(&mut self, bench: &mut Bench<'_>, offset: u64, len: usize) -> Flow {
        let volume = Rc::clone(&self.volume);
        if !self.has_buffer(bench, len) {
            return Flow::Needs(Next::Memory);
        }
        if !self.hold(&volume, offset..offset + len as u64, Mode::Shared) {
            return Flow::Needs(Next::Block);
        }
        self.transfer_in(&volume, offset, len)
    }

    fn delta(&mut self, offset: u64, len: usize) -> Flow {
        let volume = Rc::clone(&self.volume);
        if !self.hold(&volume, offset..offset + len as u64, Mode::Exclusive) {
            return Flow::Needs(Next::Block);
        }
        if self.done == len {
            return Flow::Done;
        }
        let Work::Delta { at, record_len, .. } = self.work else { unreachable!("called for a delta") };
        let Some(buffer) = self.buffer.take() else { unreachable!("it has its record") };
        let delta = Delta::parse(&buffer[at..at + record_len]).expect("checked before there was a task");
        let action = self.next_action(&volume, &Access::Delta(delta));
        self.buffer = Some(buffer);
        match action {
            Err(next) => Flow::Needs(next),
            Ok(Action::Elsewhere(future)) => {
                self.elsewhere = Some(future);
                Flow::Needs(Next::Elsewhere)
            }
            Ok(Action::Failed(errno)) => Flow::Failed(errno),
            Ok(other) => Flow::Failed(broken(&other)),
        }
    }

    fn flush(&mut self) -> Flow {
        if let Work::Flush { submitted: true } = self.work {
            return Flow::Done;
        }
        if self.volume.volume.has_failed() {
            return Flow::Failed(Errno::IO);
        }
        let volume = Rc::clone(&self.volume);
        match self.next_action(&volume, &Access::Flush) {
            Err(next) => Flow::Needs(next),
            Ok(Action::Done(_)) => Flow::Done,
            Ok(Action::Ring(op)) => Flow::Needs(Next::Submit(op)),
            Ok(Action::Failed(errno)) => {
                self.volume.volume.set_failed();
                Flow::Failed(errno)
            }
            Ok(other) => Flow::Failed(broken(&other)),
        }
    }

    fn is_delta(&self) -> bool {
        matches!(self.work, Work::Delta { .. })
    }

    fn changes_bytes(&self) -> bool {
        matches!(self.work, Work::Write { .. } | Work::Delta { .. } | Work::Zero { .. } | Work::Copy { .. })
    }

    fn end(&mut self, bench: &mut Bench<'_>, result: Result<(), Errno>) -> Next {
        let completion = match result {
            Ok(()) if self.differs() => Completion::failed(Status::COMPARE_FAILURE),
            Ok(()) => Completion::success(),
            Err(errno) => Completion::failed(self.status_of(errno)),
        };
        self.let_go(bench);
        let refused = self.is_delta() && matches!(result, Err(Errno::STALE | Errno::BADMSG | Errno::INVAL));
        let failed = result.err().filter(|_| !refused);
        Next::End(Ended { completion, failed, refused })
    }

    /// Whether a Compare found other bytes than the host's.
    fn differs(&self) -> bool {
        match (&self.work, &self.buffer) {
            (Work::Compare { theirs, at, len, .. }, Some(ours)) => ours[..*len] != theirs[*at..*at + *len],
            _ => false,
        }
    }

    fn status_of(&self, errno: Errno) -> Status {
        let writes = self.changes_bytes() || matches!(self.work, Work::Flush { .. });
        match errno {
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Status::CAPACITY_EXCEEDED,
            Errno::ROFS | Errno::PERM | Errno::ACCESS | Errno::BADF if writes => Status::NAMESPACE_WRITE_PROTECTED,
            Errno::STALE if self.is_delta() => Status::DELTA_BASE_MISMATCH.dnr(),
            Errno::BADMSG | Errno::INVAL if self.is_delta() => Status::INVALID_FIELD.dnr(),
            Errno::CANCELED => Status::COMMAND_ABORT_REQUESTED,
            Errno::NOMEM | Errno::NOBUFS => Status::COMMAND_INTERRUPTED,
            _ if writes => Status::WRITE_FAULT,
            _ => Status::UNRECOVERED_READ_ERROR,
        }
    }
}

fn broken(action: &Action) -> Errno {
    tracing::error!(?action, "the medium answered with what does not belong to the access");
    Errno::IO
}

fn ended(completion: Completion, failed: Option<Errno>) -> Next {
    Next::End(Ended { completion, failed, refused: false })
}

fn ended_with(id: BufferId, len: usize) -> Next {
    let completion = Completion::data(BufferSlice::new(id, len as u32));
    ended(completion, None)
}
