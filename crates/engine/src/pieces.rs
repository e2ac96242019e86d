//! The pieces of its input on which a function is called.
//!
//! They lie on one grid: piece *k* of a request over `[start, end)` holds the records that begin in `[start + k × len,
//! start + (k + 1) × len)`. So they are the same wherever the function runs, in whatever parts the request is carried
//! out, and however many threads do that. The function's declarations decide whether there is a grid: where its records
//! end, so that none is cut, and how its outputs are joined. Otherwise it is called once, over everything.

use crate::call::CallError;
use crate::function::Function;
use crate::split::{RECORD_LEN_MAX, Split};
use diskside_sbpf::image::Kind;
use std::ops::Range;

/// Bytes of a piece, more or less, when nobody asks for another length. Long enough that a call costs nothing beside it,
/// short enough that a request of some MiB is read, computed and sent at once, and that what was read is still in the cache.
pub const PIECE_LEN: usize = 4 << 20;
/// What is one piece is read in windows of this.
pub const WINDOW_LEN: usize = 8 << 20;
/// The longest piece that can be asked for.
pub const PIECE_LEN_MAX: usize = 1 << 30;
/// The most bytes that a function is called on which runs once over its whole input, unless longer pieces are asked for.
pub const WHOLE_LEN_MAX: usize = 128 << 20;

/// How the input of a call is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// Between which records.
    pub split: Split,
    /// The grid's step. Of [`Split::Whole`]: the most bytes that there may be.
    pub len_bytes: usize,
    /// Why there is one piece only.
    pub undivided: Option<Undivided>,
}

/// Why a function runs once over its whole input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undivided {
    /// The caller asked for that.
    Asked,
    /// A request of its kind is one run.
    Kind(Kind),
    /// It does not say what its records are.
    Records,
    /// It does not say what becomes of several outputs.
    Outputs,
    /// It says neither.
    Undeclared,
}

/// What a caller asks for instead of the function's own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// Bytes of a piece.
    pub len_bytes: Option<usize>,
    /// Records.
    pub split: Option<Split>,
    /// Outputs stand one after another, though they could be folded.
    pub unfolded: bool,
}

/// The part of a request that a call carries out: its source's range is that part. For a stream, where it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The range of the request, whose start is the grid's.
    pub request: Range<u64>,
    /// Where in the source the data begins: offsets that the function sees count from there.
    pub zero: u64,
}

impl Pieces {
    /// How a function's input is cut, with these arguments.
    ///
    /// # Errors
    /// Records or pieces of a length that cannot be.
    pub fn of(function: &Function, args: &[u8], asked: &Asked) -> Result<Self, CallError> {
        if let Some(len) = asked.len_bytes.filter(|len| *len == 0 || *len > PIECE_LEN_MAX) {
            return Err(CallError::BadChunkLen(len));
        }
        let (split, undivided) = split_of(function, args, asked);
        let record_len = match split {
            Split::Whole => {
                let len_bytes = asked.len_bytes.unwrap_or(0).max(WHOLE_LEN_MAX);
                return Ok(Self { split, len_bytes, undivided });
            }
            Split::Delimiter(_) => 1,
            Split::Bytes => u64::from(function.note().piece_records),
            Split::Fixed(len) => {
                if len == 0 || len as usize > RECORD_LEN_MAX {
                    return Err(CallError::BadRecordLen(len as usize));
                }
                u64::from(len) * u64::from(function.note().piece_records)
            }
        };
        let wanted = asked.len_bytes.unwrap_or_else(|| function.piece_len(PIECE_LEN)) as u64;
        let len = (wanted / record_len).max(1) * record_len;
        let len_bytes = usize::try_from(len).ok().filter(|len| *len <= PIECE_LEN_MAX);
        let len_bytes = len_bytes.ok_or(CallError::BadChunkLen(usize::try_from(len).unwrap_or(usize::MAX)))?;
        Ok(Self { split, len_bytes, undivided })
    }

    /// Sees to it that a function that runs once is not given too much.
    ///
    /// # Errors
    /// The input is longer than one piece may be.
    pub fn check_len(&self, function: &Function, name: &str, len: Option<u64>) -> Result<(), CallError> {
        let Some(reason) = self.undivided.filter(|_| len.is_none_or(|len| len > self.len_bytes as u64)) else {
            return Ok(());
        };
        Err(CallError::Undivided {
            source_name: name.to_owned(),
            function: function.main().entry().section.clone(),
            len,
            max: self.len_bytes,
            remedy: reason.remedy(len),
        })
    }

    /// Whether parts of a request may run apart.
    #[must_use]
    pub fn is_divisible(&self) -> bool {
        self.undivided.is_none()
    }

    /// The last place where a piece begins at or before `at`, in a request that begins at `start`.
    #[must_use]
    pub fn down(&self, start: u64, at: u64) -> u64 {
        let len = self.len_bytes as u64;
        start + at.saturating_sub(start) / len * len
    }

    /// The first such place at or behind `at`.
    #[must_use]
    pub fn up(&self, start: u64, at: u64) -> u64 {
        start.saturating_add(at.saturating_sub(start).next_multiple_of(self.len_bytes as u64))
    }
}

fn split_of(function: &Function, args: &[u8], asked: &Asked) -> (Split, Option<Undivided>) {
    let kind = function.kind();
    if matches!(kind, Kind::Lambda | Kind::LambdaIo | Kind::Delilah) {
        return (Split::Whole, Some(Undivided::Kind(kind)));
    }
    if asked.split == Some(Split::Whole) {
        return (Split::Whole, Some(Undivided::Asked));
    }
    let declared = || record_len_of(function, args).map(Split::Fixed).or(function.note().split);
    let by_type = || function.main().entry().input.map(|element| Split::Fixed(element.len_bytes));
    let split = asked.split.or_else(declared).or_else(by_type);
    // Nobody counts delimited records.
    let split = split.filter(|split| !matches!(split, Split::Delimiter(_)) || function.note().piece_records == 1);
    let outputs = function.combine().is_some() || function.note().concatenates || asked.unfolded;
    match (split, outputs) {
        (Some(split), true) => (split, None),
        (Some(_), false) => (Split::Whole, Some(Undivided::Outputs)),
        (None, true) => (Split::Whole, Some(Undivided::Records)),
        (None, false) => (Split::Whole, Some(Undivided::Undeclared)),
    }
}

/// The record length that the arguments give; `None` where they say nothing, or 0.
fn record_len_of(function: &Function, args: &[u8]) -> Option<u32> {
    let field = function.args()?.fields.iter().find(|field| field.is_record_len)?;
    let (at, len) = (field.offset as usize, field.ty.len_bytes() as usize);
    let mut value = [0; 8];
    value[..len].copy_from_slice(args.get(at..at + len)?);
    match u64::from_le_bytes(value) {
        0 => None,
        len => Some(u32::try_from(len).unwrap_or(u32::MAX)),
    }
}

impl Undivided {
    /// What to do about input of so many bytes, for an error.
    fn remedy(self, len: Option<u64>) -> String {
        let declared = match self {
            Self::Asked => return format!("{}ask for records instead", one_piece(len)),
            Self::Kind(kind) => {
                let kind = kind.name();
                return format!("{}run it over a shorter range: a request of kind `{kind}` is one run", one_piece(len));
            }
            Self::Records => RECORDS.to_owned(),
            Self::Outputs => OUTPUTS.to_owned(),
            Self::Undeclared => format!("{RECORDS} and {OUTPUTS}"),
        };
        // Pieces of a function that looks back have the wrong result where they begin, and nothing fails.
        format!("{}declare {declared} in its source; {LOOKS_BACK}", one_piece(len))
    }
}

const RECORDS: &str =
    "what its records are (DS_SPLIT_LINES, DS_SPLIT_RECORDS(bytes), DS_SPLIT_BYTES, or a type of `in`)";
const OUTPUTS: &str = "what becomes of its outputs (a `combine`, or DS_CONCATENATE)";
const LOOKS_BACK: &str = "if it looks back over earlier bytes, it must then keep them in a state (DS_STATE)";

/// How to ask for one piece of input of so many bytes, if that is possible, before what else can be done.
fn one_piece(len: Option<u64>) -> String {
    match len {
        Some(len) if len > PIECE_LEN_MAX as u64 => String::new(),
        Some(len) => format!("ask for one piece of all of it (--chunk {len}), or "),
        None => format!("ask for one piece of all of it (--chunk, of up to {PIECE_LEN_MAX} bytes), or "),
    }
}
