//! A request on its way through a queue: cut into commands, put together again, sent again where that is right.
//!
//! **What is sent again.** When a connection is lost, nobody knows whether the commands in flight
//! were executed. A request is sent again if doing it twice is doing it once: reads, and writes,
//! Write Zeroes and Deallocate, which name their position and whose caller was not told that they
//! are done. Flush is not: writes that were acknowledged before may be gone with the controller's
//! cache, and a later flush would not know. It fails, and says so. Other commands are sent again
//! only if their caller says that they may be ([`Command::repeatable`]).
//!
//! Besides, a part is sent again after a status that promises that it helps (Command Interrupted,
//! Transient Transport Error, Namespace Not Ready, path errors; never with Do Not Retry) and after
//! data that arrived damaged; a command that must not be executed twice only after one that says that it was not begun.
//! `retries_max` bounds how often.

mod staged;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use diskside_io::buffer::Buffer;
use diskside_io::request::{Cause, Outcome, Promise, Request, Status as IoStatus};
use diskside_nvme::host::{Answer, CommandError, Data, Submission};
use diskside_nvme::status::StatusType;
use diskside_nvme::wire::{DsmRange, Sqe};
use diskside_nvme::{BufferId, BufferSlice, Status};
use diskside_wire::function::{FunctionCommand as _, FunctionKind, function_opcode};
use zerocopy::IntoBytes as _;

pub use self::staged::{Command, CommandData, CommandFailure, CommandOutcome};
pub(crate) use self::staged::{Staged, refuse};
use crate::volume_state::{GONE, VolumeState};

/// Why a part of a call was not sent that was cancelled before it began.
pub(crate) const WITHDRAWN: &str = "the call was cancelled before it began";
/// The most blocks of one Read, Write or Write Zeroes (NLB is 16 bits wide, 0's based).
const COMMAND_BLOCKS_MAX: u64 = 1 << 16;
/// The longest buffer of one request: 32 bits name ranges in it.
pub(crate) const BUFFER_LEN_MAX: usize = u32::MAX as usize;

/// What a queue can carry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) transfer_len_max: u32,
    pub(crate) command_timeout: Duration,
    pub(crate) retries_max: u8,
    /// Entries of the queue.
    pub(crate) entries: u16,
}

/// A request in progress. Parts are equally long except the last, and numbered from 0.
pub(crate) struct Job {
    work: Work,
    memory: JobMemory,
    parts: u32,
    /// Parts from here on were never sent.
    next: u32,
    /// Parts to be sent again.
    again: Vec<u32>,
    outstanding: u32,
    /// It has a place among those that wait at the target.
    pub(crate) has_place: bool,
    /// Parts sent again for other reasons than a loss.
    retries: u32,
    /// Connections that were lost meanwhile.
    losses: u8,
    /// The first part that failed for good.
    failed: Option<(u32, Failure)>,
    answer: Answer,
}

enum Work {
    Blocks { volume: Arc<VolumeState>, promise: Promise, kind: Kind, first: u64, blocks: u64, part_blocks: u64 },
    Flush { volume: Arc<VolumeState>, promise: Promise, acknowledged: u64 },
    Command { sqe: Sqe, timeout: Option<Duration>, repeatable: bool, promise: Promise<CommandOutcome> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write { durable: bool },
    WriteZeroes,
    Deallocate,
}

/// The bytes that a job's commands refer to. Writes are shared with the sends under way.
pub(crate) enum JobMemory {
    None,
    In(Buffer),
    Out(Arc<Buffer>),
}

#[derive(Clone, Debug)]
enum Failure {
    Command(CommandError),
    NotSent(&'static str),
}

/// What follows the end of one command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Other commands of the job are in flight.
    Wait,
    /// A part is to be sent again, at once.
    Again,
    /// A part is to be sent again, after a while.
    AgainLater,
    /// The job is over: [`Job::finish`].
    Finish,
}

impl Job {
    /// Whether it need not be finished before the connection ends: it changes nothing, and nobody waits for what it reads.
    pub(crate) fn is_dispensable(&self) -> bool {
        matches!(&self.work, Work::Blocks { kind: Kind::Read, promise, .. } if !promise.is_awaited())
    }

    /// The job of a request that [`VolumeState`] found valid, or of a command.
    pub(crate) fn new(staged: Staged, limits: &Limits) -> Self {
        let (work, memory) = match staged {
            Staged::Command { command: Command { sqe, data, timeout, repeatable }, promise } => {
                promise.set_in_flight();
                let memory = match data {
                    CommandData::None => JobMemory::None,
                    CommandData::Send(buffer) => JobMemory::Out(Arc::new(buffer)),
                    CommandData::Receive(buffer) => JobMemory::In(buffer),
                };
                (Work::Command { sqe, timeout, repeatable, promise }, memory)
            }
            Staged::Request { volume, request, promise } => {
                promise.set_in_flight();
                Self::request(volume, request, promise, limits)
            }
        };
        let parts = match &work {
            Work::Blocks { blocks, part_blocks, .. } => blocks.div_ceil(*part_blocks) as u32,
            Work::Flush { .. } | Work::Command { .. } => 1,
        };
        Self {
            work,
            memory,
            parts,
            next: 0,
            again: Vec::new(),
            outstanding: 0,
            has_place: false,
            retries: 0,
            losses: 0,
            failed: None,
            answer: Answer::default(),
        }
    }

    fn request(volume: Arc<VolumeState>, request: Request, promise: Promise, limits: &Limits) -> (Work, JobMemory) {
        let block_len = u64::from(volume.block_len());
        let transfer_blocks = (u64::from(limits.transfer_len_max) / block_len).clamp(1, COMMAND_BLOCKS_MAX);
        let blocks = |kind, offset: u64, len: u64, part_blocks, volume, promise| Work::Blocks {
            volume,
            promise,
            kind,
            first: offset / block_len,
            blocks: len / block_len,
            part_blocks,
        };
        match request {
            Request::Read { offset, buffer } => {
                let len = volume.readable(offset, buffer.len());
                (blocks(Kind::Read, offset, len, transfer_blocks, volume, promise), JobMemory::In(buffer))
            }
            Request::Write { offset, buffer, durable } => {
                let kind = Kind::Write { durable };
                let len = buffer.len() as u64;
                (blocks(kind, offset, len, transfer_blocks, volume, promise), JobMemory::Out(Arc::new(buffer)))
            }
            Request::WriteZeroes { offset, len } => {
                (blocks(Kind::WriteZeroes, offset, len, transfer_blocks, volume, promise), JobMemory::None)
            }
            Request::Deallocate { offset, len } => {
                (blocks(Kind::Deallocate, offset, len, u32::MAX.into(), volume, promise), JobMemory::None)
            }
            Request::Flush => {
                let acknowledged = volume.writes_acknowledged();
                (Work::Flush { volume, promise, acknowledged }, JobMemory::None)
            }
        }
    }

    /// Why the job must not be sent at all, if so.
    pub(crate) fn obstacle(&self) -> Option<&'static str> {
        match &self.work {
            // It waited, for instance for the connection, and what has the number now is another one's.
            Work::Blocks { volume, .. } | Work::Flush { volume, .. } if volume.is_gone() => Some(GONE),
            Work::Flush { volume, .. } if volume.take_at_risk() => Some(FLUSH_LOST),
            _ => None,
        }
    }

    /// Notes that a command failed because there is no such namespace. Gives its number to the first who does.
    pub(crate) fn note_gone(&self, outcome: &Result<Answer, CommandError>) -> Option<u32> {
        let (Work::Blocks { volume, .. } | Work::Flush { volume, .. }) = &self.work else { return None };
        match outcome {
            Err(CommandError::Status { status, .. }) if status.is(Status::INVALID_NAMESPACE_OR_FORMAT) => {
                volume.note_gone().then(|| volume.nsid())
            }
            _ => None,
        }
    }

    /// The tag of the call whose part it is, if its command waits at the target until something else happens there; and whether it is
    /// a Send of an operation on a file.
    pub(crate) fn waits_with(&self) -> Option<(u64, bool)> {
        match &self.work {
            Work::Command { sqe, .. } if [function_opcode::SEND, function_opcode::RECEIVE].contains(&sqe.opcode()) => {
                let is_send = sqe.opcode() == function_opcode::SEND;
                Some((sqe.function_tag(), is_send && sqe.function_kind() == FunctionKind::File as u8))
            }
            _ => None,
        }
    }

    /// The tag of the call that it cancels.
    pub(crate) fn cancels(&self) -> Option<u64> {
        match &self.work {
            Work::Command { sqe, .. } if sqe.opcode() == function_opcode::CANCEL => Some(sqe.function_tag()),
            _ => None,
        }
    }

    /// Whether a command of the job is to be sent.
    pub(crate) fn has_more(&self) -> bool {
        self.failed.is_none() && (self.next < self.parts || !self.again.is_empty())
    }

    /// The next command to send. `index` names the job in the queue.
    ///
    /// # Panics
    /// If there is none: see [`has_more`](Self::has_more).
    pub(crate) fn next_command(&mut self, index: u32, limits: &Limits) -> Submission {
        let part = self.again.pop().unwrap_or_else(|| {
            assert!(self.next < self.parts, "asked for a command of a job that has none left");
            self.next += 1;
            self.next - 1
        });
        self.outstanding += 1;
        let user_data = u64::from(index) << 32 | u64::from(part);
        let timeout = Some(limits.command_timeout);
        let range = self.part_bytes(part);
        let slice = BufferSlice {
            buffer: BufferId(index.into()),
            offset: range.start as u32,
            len: (range.end - range.start) as u32,
        };
        let in_memory = || match &self.memory {
            JobMemory::None => Data::None,
            JobMemory::In(_) => Data::Receive(slice),
            JobMemory::Out(_) => Data::Send(slice),
        };
        match &self.work {
            Work::Command { sqe, timeout: own, .. } => {
                Submission { sqe: *sqe, data: in_memory(), user_data, timeout: own.or(timeout) }
            }
            Work::Flush { volume, .. } => {
                Submission { sqe: Sqe::flush(volume.nsid()), data: Data::None, user_data, timeout }
            }
            Work::Blocks { volume, kind, .. } => {
                let nsid = volume.nsid();
                let (lba, blocks) = self.part_range(part);
                let (sqe, data) = match kind {
                    Kind::Read => (Sqe::read(nsid, lba, blocks), in_memory()),
                    Kind::Write { durable: false } => (Sqe::write(nsid, lba, blocks), in_memory()),
                    Kind::Write { durable: true } => (Sqe::write(nsid, lba, blocks).with_fua(), in_memory()),
                    Kind::WriteZeroes => (Sqe::write_zeroes(nsid, lba, blocks, false), Data::None),
                    Kind::Deallocate => {
                        let ranges = [DsmRange::new(lba, blocks)];
                        (Sqe::deallocate(nsid, 1), Data::SendBytes(ranges.as_bytes().to_vec()))
                    }
                };
                Submission { sqe, data, user_data, timeout }
            }
        }
    }

    /// Takes back a command that the queue did not take.
    pub(crate) fn not_taken(&mut self, part: u32) {
        self.outstanding -= 1;
        self.again.push(part);
    }

    /// Notes that the job cannot continue, for a reason of this side.
    pub(crate) fn refuse(&mut self, why: &'static str) -> Next {
        if self.failed.is_none() {
            self.failed = Some((self.next.min(self.parts.saturating_sub(1)), Failure::NotSent(why)));
        }
        if self.outstanding == 0 { Next::Finish } else { Next::Wait }
    }

    /// Notes the end of a command.
    pub(crate) fn complete(&mut self, part: u32, outcome: Result<Answer, CommandError>, limits: &Limits) -> Next {
        self.outstanding -= 1;
        match outcome {
            Ok(answer) => self.answer = answer,
            Err(error) => match self.remedy(&error, limits) {
                Some(next) => {
                    self.again.push(part);
                    return next;
                }
                None => {
                    if self.failed.as_ref().is_none_or(|(first, _)| part < *first) {
                        self.failed = Some((part, Failure::Command(error)));
                    }
                }
            },
        }
        let ended = self.outstanding == 0 && !self.has_more();
        if ended { Next::Finish } else { Next::Wait }
    }

    /// Notes that the connection is gone, after the end of all commands in flight. True when the job is over.
    ///
    /// Parts of a change that were acknowledged, but are not durable, are sent again with the rest:
    /// they may be gone from the controller's cache, and the job's acknowledgement covers them all.
    pub(crate) fn note_loss(&mut self, limits: &Limits) -> bool {
        debug_assert_eq!(self.outstanding, 0, "the connection has reported all its commands");
        if self.next == 0 || self.failed.is_some() {
            return self.failed.is_some();
        }
        if let Work::Blocks { kind: Kind::Write { durable: false } | Kind::WriteZeroes | Kind::Deallocate, .. } =
            self.work
        {
            self.next = 0;
            self.again.clear();
        }
        self.losses += 1;
        if self.losses > limits.retries_max {
            self.failed = Some((0, Failure::Command(CommandError::ConnectionLost)));
        }
        self.failed.is_some()
    }

    /// Whether a part that failed so is sent again, and when.
    fn remedy(&mut self, error: &CommandError, limits: &Limits) -> Option<Next> {
        if self.failed.is_some() {
            return None;
        }
        let repeatable = match &self.work {
            Work::Blocks { .. } => true,
            Work::Flush { .. } => false,
            Work::Command { repeatable, .. } => *repeatable,
        };
        let next = match error {
            // Counted once for all parts: in `note_loss`.
            CommandError::ConnectionLost if repeatable => return Some(Next::Again),
            CommandError::DataDigest if repeatable => Next::Again,
            CommandError::Status { status, .. } if is_transient(*status) && (repeatable || was_not_begun(*status)) => {
                Next::AgainLater
            }
            _ => return None,
        };
        self.retries += 1;
        (self.retries <= u32::from(limits.retries_max) * self.parts).then_some(next)
    }

    /// Ends the job: tells its future.
    pub(crate) fn finish(self) {
        let transferred = match &self.failed {
            None => self.part_bytes(self.parts).start,
            Some((part, _)) => self.part_bytes(*part).start,
        };
        let buffer = self.memory.into_buffer();
        match self.work {
            Work::Command { promise, .. } => {
                let result = match self.failed {
                    None => Ok(self.answer),
                    Some((_, Failure::Command(error))) => Err(CommandFailure::Command(error)),
                    Some((_, Failure::NotSent(why))) => Err(CommandFailure::NotSent(why)),
                };
                promise.complete(CommandOutcome { result, buffer });
            }
            Work::Blocks { volume, promise, kind, .. } => {
                let changes = matches!(kind, Kind::Write { durable: false } | Kind::WriteZeroes | Kind::Deallocate);
                if self.failed.is_none() && changes {
                    volume.note_acknowledged();
                }
                let status = self.failed.map_or(IoStatus::Success, |(_, failure)| failure.status());
                promise.complete(Outcome { status, transferred_bytes: transferred, buffer });
            }
            Work::Flush { volume, promise, acknowledged } => {
                let status = match self.failed {
                    None => {
                        volume.note_flushed(acknowledged);
                        IoStatus::Success
                    }
                    Some((_, Failure::Command(CommandError::ConnectionLost))) => {
                        volume.note_loss_reported();
                        IoStatus::lost(FLUSH_LOST)
                    }
                    Some((_, failure)) => failure.status(),
                };
                promise.complete(Outcome { status, transferred_bytes: 0, buffer: None });
            }
        }
    }

    /// Whether no command of the job is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.outstanding == 0
    }

    /// Whether the job cannot succeed any more.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Bytes that a part reads and writes.
    pub(crate) fn counts(&self, part: u32) -> (u64, u64) {
        let range = self.part_bytes(part);
        let len = range.end - range.start;
        match &self.memory {
            JobMemory::None => (0, 0),
            JobMemory::In(_) => (len, 0),
            JobMemory::Out(_) => (0, len),
        }
    }

    pub(crate) fn memory(&self) -> &JobMemory {
        &self.memory
    }

    pub(crate) fn memory_mut(&mut self) -> &mut JobMemory {
        &mut self.memory
    }

    /// First block and count of a part.
    fn part_range(&self, part: u32) -> (u64, u32) {
        let Work::Blocks { first, blocks, part_blocks, .. } = &self.work else { return (0, 0) };
        let start = u64::from(part) * part_blocks;
        (first + start, (blocks - start).min(*part_blocks) as u32)
    }

    /// Where in the request's bytes a part lies; for the part after the last, an empty range at the end.
    fn part_bytes(&self, part: u32) -> Range<u64> {
        match &self.work {
            Work::Blocks { volume, blocks, part_blocks, .. } => {
                let block_len = u64::from(volume.block_len());
                let start = (u64::from(part) * part_blocks).min(*blocks);
                start * block_len..(start + part_blocks).min(*blocks) * block_len
            }
            Work::Flush { .. } => 0..0,
            Work::Command { .. } => match &self.memory {
                JobMemory::None => 0..0,
                JobMemory::In(buffer) => 0..buffer.len() as u64,
                JobMemory::Out(buffer) => 0..buffer.len() as u64,
            },
        }
    }
}

/// What a Flush says whose writes may be gone.
pub(crate) const FLUSH_LOST: &str = "the connection was lost after writes that no flush covers: they may be gone from the controller's cache, write them again";

impl JobMemory {
    fn into_buffer(self) -> Option<Buffer> {
        match self {
            Self::None => None,
            Self::In(buffer) => Some(buffer),
            // Sends release it before their commands are reported.
            Self::Out(buffer) => Some(Arc::try_unwrap(buffer).unwrap_or_else(|shared| Buffer::copy_of(&shared))),
        }
    }
}

impl Failure {
    fn status(&self) -> IoStatus {
        match self {
            Self::NotSent(why) => IoStatus::lost(why),
            Self::Command(CommandError::Status { status, .. }) => classify(*status),
            Self::Command(CommandError::ConnectionLost) => {
                IoStatus::lost("the connection was lost before the command completed, too often to try again")
            }
            Self::Command(CommandError::DataDigest) => {
                IoStatus::lost("the data arrived with a wrong digest, too often to try again")
            }
            Self::Command(CommandError::ShortTransfer { .. }) => {
                IoStatus::lost("the controller reported success but sent fewer bytes than it was asked for")
            }
            Self::Command(_) => IoStatus::lost("the command failed"),
        }
    }
}

/// The class of a status; its number and name are kept.
pub(crate) fn classify(status: Status) -> IoStatus {
    let (code, name) = (status.bits() & 0x7ff, status.name().unwrap_or("unknown status"));
    let cause = Cause::Remote { code, name, remedy: status.remedy() };
    if status.is(Status::CAPACITY_EXCEEDED) || status.is(Status::NAMESPACE_INSUFFICIENT_CAPACITY) {
        return IoStatus::OutOfSpace(cause);
    }
    let denied = [
        Status::ACCESS_DENIED,
        Status::NAMESPACE_WRITE_PROTECTED,
        Status::WRITE_TO_READ_ONLY_RANGE,
        Status::RESERVATION_CONFLICT,
        Status::OPERATION_DENIED,
        Status::PROHIBITED_BY_LOCKDOWN,
    ];
    if denied.iter().any(|&one| status.is(one)) {
        return IoStatus::AccessDenied(cause);
    }
    let broken = [Status::INTERNAL_ERROR, Status::DATA_TRANSFER_ERROR, Status::UNRECOVERED_ERROR];
    match status.kind() {
        StatusType::MediaAndDataIntegrity | StatusType::PathRelated => IoStatus::IoError(cause),
        _ if broken.iter().any(|&one| status.is(one)) => IoStatus::IoError(cause),
        _ => IoStatus::Other(cause),
    }
}

/// Whether nothing of a command was executed that ended so.
fn was_not_begun(status: Status) -> bool {
    let before =
        [Status::COMMAND_INTERRUPTED, Status::NAMESPACE_NOT_READY, Status::FUNCTION_BUSY, Status::TAG_LIMIT_EXCEEDED];
    before.iter().any(|&one| status.is(one))
}

/// Whether the same command may well succeed a little later.
fn is_transient(status: Status) -> bool {
    let passing = [
        Status::COMMAND_INTERRUPTED,
        Status::TRANSIENT_TRANSPORT_ERROR,
        Status::NAMESPACE_NOT_READY,
        Status::INTERNAL_PATH_ERROR,
        Status::ANA_TRANSITION,
        Status::CONTROLLER_PATHING_ERROR,
        Status::HOST_PATHING_ERROR,
        Status::FUNCTION_BUSY,
        Status::TAG_LIMIT_EXCEEDED,
    ];
    !status.do_not_retry() && passing.iter().any(|&one| status.is(one))
}

#[cfg(test)]
mod tests;
