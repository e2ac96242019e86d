//! The requests of a controller to its embedder, and the embedder's answers.

use crate::auth::Work;
use crate::buffer::BufferSlice;
use crate::status::Status;
use crate::wire::Sqe;

/// Names one command of one connection, from its [`Request`] to its completion. A tag of a command that has ended is
/// recognised as stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

impl Tag {
    /// The tag as one number, for a ring's user data.
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.slot as u64
    }

    /// The tag that [`to_bits`](Self::to_bits) made.
    pub const fn from_bits(bits: u64) -> Self {
        Self { slot: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// The embedder's own name of a namespace's medium: an index in a table of volumes, say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MediumId(pub u64);

/// A command that is checked and complete (its data arrived) and that only the medium can answer.
///
/// Each request except [`Operation::Cancel`] and [`Operation::GiveBack`] is answered exactly once by
/// [`Connection::complete`](super::Connection::complete), in any order.
#[derive(Debug)]
pub struct Request {
    /// Names the command in the completion.
    pub tag: Tag,
    /// The namespace that the command named (0 for commands of the controller as a whole).
    pub nsid: u32,
    /// That namespace's medium ([`MediumId`]`(u64::MAX)` if the command names no namespace).
    pub medium: MediumId,
    /// The operation to carry out.
    pub operation: Operation,
}

impl Request {
    /// The host gave up on a command, or another host has it given up.
    pub(super) const fn cancel(tag: Tag, nsid: u32) -> Self {
        Self { tag, nsid, medium: MediumId(u64::MAX), operation: Operation::Cancel }
    }
}

/// A range of bytes on a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// A source of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopySource {
    /// The source's namespace.
    pub nsid: u32,
    /// Its medium.
    pub medium: MediumId,
    /// The range to copy.
    pub range: ByteRange,
}

/// The operation that a [`Request`] asks for. Offsets and lengths are in bytes, multiples of the namespace's block size, and
/// inside it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Operation {
    /// Read `len` bytes at `offset`; answered by [`Completion::data`].
    Read {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len: u32,
        /// Force Unit Access: the data must come from stable media.
        fua: bool,
    },
    /// Write `data` at `offset`. The data's buffer is the embedder's from here on.
    Write {
        /// First byte.
        offset: u64,
        /// The data to write.
        data: BufferSlice,
        /// The data must be on stable media before the answer: Force Unit Access, or the write cache is off.
        fua: bool,
    },
    /// Change the `len` bytes at `offset` as `record` says; the result is durable as that of a Write. The record is not checked, and
    /// its buffer is the embedder's from here on.
    WriteDelta {
        /// First byte.
        offset: u64,
        /// Length of the page in bytes.
        len: u32,
        /// The data of the command.
        record: BufferSlice,
    },
    /// Compare `data` with the bytes at `offset`: success, or [`Status::COMPARE_FAILURE`].
    /// The data's buffer is the embedder's from here on.
    Compare {
        /// First byte.
        offset: u64,
        /// The data that the medium should hold.
        data: BufferSlice,
    },
    /// Bring all completed writes to stable media.
    Flush,
    /// Make `range` read as zeroes.
    WriteZeroes {
        /// The range to clear.
        range: ByteRange,
        /// The zeroes must be on stable media before the answer.
        fua: bool,
        /// The host allows the blocks to be deallocated.
        deallocate: bool,
    },
    /// The contents of `ranges` are no longer needed; deallocated blocks read as zeroes afterwards.
    Deallocate {
        /// The ranges to give up.
        ranges: Vec<ByteRange>,
    },
    /// Check that `range` can be read.
    Verify {
        /// The range to check.
        range: ByteRange,
    },
    /// Copy `sources`, one after the other, to `offset`.
    Copy {
        /// Where from, in order. Sources do not overlap the destination.
        sources: Vec<CopySource>,
        /// Where to.
        offset: u64,
        /// The copy must be on stable media before the answer.
        fua: bool,
    },
    /// Compute what authenticating the host takes, and hand it to
    /// [`Connection::computed`](super::Connection::computed) instead of completing it.
    Authenticate(Work),
    /// A command that this crate does not know, of a [`CommandSet`](super::CommandSet) that the embedder declared.
    Other(OtherCommand),
    /// The buffer is the embedder's again, to release: its command was refused in the meantime. It is not answered.
    GiveBack(BufferSlice),
    /// The host gave up on the command with this request's tag (Abort), or was preempted by another one that aborts it. A hint that is not answered: the
    /// command itself still is, with [`Status::COMMAND_ABORT_REQUESTED`] if it stopped early.
    Cancel,
}

impl Operation {
    /// Bytes that it moves, as far as that is known before it is done: data of commands, and what is copied, written or read
    /// at the media for them.
    pub fn len_bytes(&self) -> u64 {
        match self {
            Operation::Read { len, .. } => (*len).into(),
            Operation::Write { data, .. } | Operation::Compare { data, .. } => data.len.into(),
            Operation::WriteDelta { record, .. } => record.len.into(),
            Operation::WriteZeroes { deallocate: true, .. } | Operation::Deallocate { .. } | Operation::Flush => 0,
            Operation::WriteZeroes { range, .. } | Operation::Verify { range } => range.len,
            Operation::Copy { sources, .. } => sources.iter().map(|source| source.range.len).sum(),
            Operation::Other(other) => other.data.map_or(0, |data| data.len.into()),
            Operation::Authenticate(_) | Operation::Cancel | Operation::GiveBack(_) => 0,
        }
    }

    /// Whether it is done whatever the host's rate: it ends something, or is before there is a host.
    pub fn is_prompt(&self) -> bool {
        matches!(self, Operation::Authenticate(_) | Operation::Cancel | Operation::GiveBack(_))
    }

    /// Data from the host that it carries.
    pub(super) fn data(&self) -> Option<BufferSlice> {
        match self {
            Operation::Write { data, .. } | Operation::Compare { data, .. } | Operation::GiveBack(data) => Some(*data),
            Operation::WriteDelta { record, .. } => Some(*record),
            Operation::Other(other) => other.data,
            _ => None,
        }
    }
}

/// A command whose meaning is the embedder's: a further I/O command set, a vendor's opcode, a log page or an Identify
/// structure of such a set.
#[derive(Debug)]
pub struct OtherCommand {
    /// The whole submission queue entry. It came from a peer: check every field.
    pub sqe: Box<Sqe>,
    /// Whether it came on the admin queue.
    pub admin: bool,
    /// Data from the host, complete; the buffer is the embedder's from here on.
    pub data: Option<BufferSlice>,
    /// The most bytes that the host takes as an answer (0 if the opcode transfers none to the host).
    pub answer_len_max: u32,
}

/// The answer to a [`Request`].
#[derive(Debug)]
pub struct Completion {
    pub(super) status: Status,
    pub(super) result: u64,
    pub(super) data: Answer,
}

/// Data of an answer.
#[derive(Debug)]
pub(super) enum Answer {
    None,
    Buffer(BufferSlice),
    Bytes(Vec<u8>),
}

impl Completion {
    /// Done, nothing to say.
    pub const fn success() -> Self {
        Self { status: Status::SUCCESS, result: 0, data: Answer::None }
    }

    /// Done, with the last (or only) bytes for the host. The buffer is the controller's until it is released. For a Read
    /// the chunks before it (see [`push_data`](super::Connection::push_data)) and this one must add up to its length;
    /// for another command they may be fewer.
    pub const fn data(slice: BufferSlice) -> Self {
        Self { status: Status::SUCCESS, result: 0, data: Answer::Buffer(slice) }
    }

    /// Done, with a few bytes for the host that the controller keeps itself.
    pub const fn bytes(bytes: Vec<u8>) -> Self {
        Self { status: Status::SUCCESS, result: 0, data: Answer::Bytes(bytes) }
    }

    /// Failed. No more data is sent.
    pub const fn failed(status: Status) -> Self {
        Self { status, result: 0, data: Answer::None }
    }

    /// Sets dwords 0 (low half) and 1 (high half) of the completion queue entry.
    #[must_use]
    pub const fn with_result(mut self, result: u64) -> Self {
        self.result = result;
        self
    }
}

impl From<Status> for Completion {
    fn from(status: Status) -> Self {
        Self { status, result: 0, data: Answer::None }
    }
}
