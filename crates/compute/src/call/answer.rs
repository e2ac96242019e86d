//! The answer to a command: a status, the completion's two dwords, and bytes.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use diskside_io::buffer::Buffer;
use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_wire::function::{FieldError, ReceiveAnswer};

use crate::schedule::quota::{Holding, NoRoom};

/// An answer to a command.
#[derive(Debug)]
pub struct Answer {
    /// The command's status.
    pub status: Status,
    /// Dwords 0 and 1 of the completion.
    pub result: u64,
    /// The data, in order.
    pub pieces: Vec<Piece>,
    /// Instead of pieces: a few bytes, which are copied behind their header.
    pub short: Vec<u8>,
    /// What the error records say about it.
    pub(crate) record: Option<Record>,
}

/// What the error records say about a command that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub(crate) location: Option<u32>,
    pub(crate) message: String,
}

/// Bytes up to this many are copied together with their header: that costs less than to send them from where they are.
pub const SHORT_LEN_MAX: usize = 8 << 10;

/// Bytes in a shared buffer.
#[derive(Clone, Debug)]
pub struct Piece {
    buffer: Arc<Buffer>,
    range: Range<usize>,
    /// Whose memory the buffer counts as; `None`: nobody's.
    holding: Option<Arc<Holding>>,
}

/// Why a command is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The status that it is answered with.
    pub status: Status,
    /// What the error log says of it.
    pub record: Option<Record>,
}

impl Answer {
    /// Nothing but success.
    pub fn success() -> Self {
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
            pieces.push(Piece::zeroes(missing));
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
    pub fn data_len(&self) -> usize {
        self.short.len() + self.pieces.iter().map(Piece::len).sum::<usize>()
    }

    /// Bytes that are charged to nobody.
    pub(crate) fn uncharged_len(&self) -> usize {
        self.pieces.iter().filter(|piece| piece.holding.is_none() && !piece.is_zeroes()).map(Piece::len).sum()
    }

    /// Charges them.
    pub(crate) fn charge(&mut self, holding: Holding) {
        let holding = Arc::new(holding);
        for piece in self.pieces.iter_mut().filter(|piece| piece.holding.is_none()) {
            piece.holding = Some(Arc::clone(&holding));
        }
    }

    /// The bytes of a log page that were asked for; what lies behind the page's end reads as zeroes (Base 5.1.12).
    pub(crate) fn of_page(page: &[u8], sqe: &Sqe) -> Self {
        let from = usize::try_from(sqe.log_offset()).ok().filter(|from| *from <= page.len() && from.is_multiple_of(4));
        let Some(from) = from.filter(|_| !sqe.log_offset_is_index()) else { return Status::INVALID_FIELD.dnr().into() };
        let len = sqe.log_len() as usize;
        let mut bytes = page[from..page.len().min(from + len)].to_vec();
        bytes.resize(len, 0);
        Self::bytes(bytes)
    }

    /// Sets dwords 0 and 1 of the completion.
    pub fn with_result(mut self, result: u64) -> Self {
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
        Self { buffer, range, holding: None }
    }

    /// Bytes that are charged to a host.
    pub(crate) fn held(bytes: Vec<u8>, holding: Holding) -> Self {
        Self { holding: Some(Arc::new(holding)), ..Self::of(bytes) }
    }

    /// Zeroes, which all answers share.
    fn zeroes(len: usize) -> Self {
        Self::new(Arc::clone(all_zeroes()), 0..len)
    }

    fn is_zeroes(&self) -> bool {
        Arc::ptr_eq(&self.buffer, all_zeroes())
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Keeps the first `at` bytes and gives the rest.
    pub(crate) fn split_off(&mut self, at: usize) -> Self {
        let middle = self.range.start + at;
        let (buffer, holding) = (Arc::clone(&self.buffer), self.holding.clone());
        let rest = Self { buffer, range: middle..self.range.end, holding };
        self.range.end = middle;
        rest
    }

    /// The memory that it lies in, where, and what was charged for it.
    pub fn into_parts(self) -> (Arc<Buffer>, Range<usize>, Option<Arc<Holding>>) {
        (self.buffer, self.range, self.holding)
    }

    /// The bytes themselves.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.range.clone()]
    }
}

/// As many as an answer may have; pages that nobody writes to cost nothing.
fn all_zeroes() -> &'static Arc<Buffer> {
    static ZEROES: OnceLock<Arc<Buffer>> = OnceLock::new();
    ZEROES.get_or_init(|| Arc::new(Buffer::zeroed(ANSWER_LEN_MAX)))
}

/// The largest `limits.transfer`.
const ANSWER_LEN_MAX: usize = 16 << 20;

impl Problem {
    /// A status with a story for the error records.
    pub(crate) fn new(status: Status, message: impl Into<String>) -> Self {
        Self { status, record: Some(Record { location: None, message: message.into() }) }
    }

    /// A host has no room for something, which it may ask for again.
    pub(crate) fn busy(no_room: NoRoom) -> Self {
        Self::new(Status::FUNCTION_BUSY, no_room.to_string())
    }

    /// The message for people; empty where the status says all.
    pub(crate) fn told(&self) -> &str {
        self.record.as_ref().map_or("", |record| &record.message)
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
