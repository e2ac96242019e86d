//! What a command is answered: a status, the completion's two dwords, and bytes.

use std::ops::Range;
use std::sync::Arc;

use diskside_io::buffer::Buffer;
use diskside_nvme::Status;
use diskside_nvme::wire::function::{FieldError, ReceiveAnswer};

/// An answer to a command.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: Status,
    /// Dwords 0 and 1 of the completion.
    pub(crate) result: u64,
    pub(crate) pieces: Vec<Piece>,
    /// Instead of pieces: a few bytes, which are copied behind their header.
    pub(crate) short: Vec<u8>,
    /// What the error records say about it.
    pub(crate) record: Option<Record>,
}

/// What the error records say about a command that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) location: Option<u32>,
    pub(crate) message: String,
}

/// Bytes up to this many are copied together with their header: that costs less than to send them from where they are.
pub(crate) const SHORT_LEN_MAX: usize = 8 << 10;

/// Bytes in a shared buffer.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    buffer: Arc<Buffer>,
    range: Range<usize>,
}

/// Why a command is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: Status,
    pub(crate) record: Option<Record>,
}

impl Answer {
    pub(crate) fn success() -> Self {
        Self { status: Status::SUCCESS, result: 0, pieces: Vec::new(), short: Vec::new(), record: None }
    }

    /// A Receive of a call that has ended, and whose trailer another one brought.
    pub(crate) fn ended() -> Self {
        Self::success().with_result(ReceiveAnswer { end: true, ..ReceiveAnswer::default() }.to_result())
    }

    /// A Receive whose time is up.
    pub(crate) fn pending(pad: Option<u32>) -> Self {
        let answer = ReceiveAnswer { pending: true, ..ReceiveAnswer::default() };
        Self::pieces(Vec::new(), pad).with_result(answer.to_result())
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.status.is_success() && self.result == ReceiveAnswer { pending: true, ..Default::default() }.to_result()
    }

    /// Data, padded with zeroes to `pad` bytes.
    pub(crate) fn pieces(mut pieces: Vec<Piece>, pad: Option<u32>) -> Self {
        let len: usize = pieces.iter().map(Piece::len).sum();
        if let Some(missing) = pad.and_then(|pad| (pad as usize).checked_sub(len)).filter(|missing| *missing > 0) {
            pieces.push(Piece::of(vec![0; missing]));
        }
        Self { pieces, ..Self::success() }
    }

    /// Just these bytes.
    pub(crate) fn bytes(bytes: Vec<u8>) -> Self {
        Self::pieces(vec![Piece::of(bytes)], None)
    }

    /// Just these bytes, which nobody else needs.
    pub(crate) fn copied(bytes: Vec<u8>) -> Self {
        if bytes.len() > SHORT_LEN_MAX { Self::bytes(bytes) } else { Self { short: bytes, ..Self::success() } }
    }

    /// Bytes of data in all.
    pub(crate) fn data_len(&self) -> usize {
        self.short.len() + self.pieces.iter().map(Piece::len).sum::<usize>()
    }

    pub(crate) fn with_result(mut self, result: u64) -> Self {
        self.result = result;
        self
    }
}

impl From<Status> for Answer {
    fn from(status: Status) -> Self {
        Self { status, ..Self::success() }
    }
}

impl From<Problem> for Answer {
    fn from(problem: Problem) -> Self {
        Self { status: problem.status, record: problem.record, ..Self::success() }
    }
}

impl Piece {
    pub(crate) fn new(buffer: Arc<Buffer>, range: Range<usize>) -> Self {
        debug_assert!(range.end <= buffer.len(), "a piece lies in its buffer");
        Self { buffer, range }
    }

    pub(crate) fn len(&self) -> usize {
        self.range.len()
    }

    /// Keeps the first `at` bytes and gives the rest.
    pub(crate) fn split_off(&mut self, at: usize) -> Self {
        let middle = self.range.start + at;
        let rest = Self { buffer: Arc::clone(&self.buffer), range: middle..self.range.end };
        self.range.end = middle;
        rest
    }

    pub(crate) fn into_parts(self) -> (Arc<Buffer>, Range<usize>) {
        (self.buffer, self.range)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.range.clone()]
    }
}

impl Problem {
    /// A status with a story for the error records.
    pub(crate) fn new(status: Status, message: impl Into<String>) -> Self {
        Self { status, record: Some(Record { location: None, message: message.into() }) }
    }

    /// A field of the command that cannot be as it is.
    pub(crate) fn in_command(byte: u32, message: &str) -> Self {
        Self::new(Status::INVALID_FIELD.dnr(), format!("byte {byte} of the command: {message}"))
    }

    /// A field of the request that cannot be as it is.
    pub(crate) fn in_data(error: FieldError) -> Self {
        Self::in_data_at(error.offset as usize, error.problem)
    }

    pub(crate) fn in_data_at(offset: usize, message: &str) -> Self {
        let record = Record { location: Some(offset as u32), message: format!("byte {offset} of the data: {message}") };
        Self { status: Status::INVALID_FIELD.dnr(), record: Some(record) }
    }
}

impl From<Status> for Problem {
    fn from(status: Status) -> Self {
        Self { status, record: None }
    }
}
