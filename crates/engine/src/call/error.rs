//! Why a call failed, where, and what to do about it.

use crate::code::TierError;
use crate::frames::BrokenFrames;
use crate::pieces::PIECE_LEN_MAX;
use diskside_io::readahead::ReadError;
use diskside_sbpf::trap::{Trap, TrapKind};
use std::ops::Range;

/// Why a call did not end well. Nothing of its result is to be used.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// A source could not be read.
    #[error("{error}")]
    Read {
        /// Which of the call's sources, from 0.
        source_index: u32,
        /// Which bytes, and why.
        error: ReadError,
    },
    /// The function was stopped.
    #[error(
        "{place}: {function} was stopped at instruction {insn}{source_line}: {trap}{}", remedy_of(trap), insn = .trap.insn
    )]
    Trapped {
        /// Which program.
        function: String,
        /// Where in the source.
        place: Place,
        /// Why.
        trap: Box<Trap>,
        /// ` (file:line: text)`, or empty.
        source_line: String,
    },
    /// The call was cancelled, while the function did not run.
    #[error("{place}: the call was cancelled")]
    Cancelled {
        /// Where in the source it would have gone on.
        place: Place,
    },
    /// The deadline passed while bytes were waited for, which the function was to be given next.
    #[error("{}: the deadline passed {}", place.source, awaited(place))]
    Late {
        /// Where in the source they begin.
        place: Place,
    },
    /// The function returned a negative number: an errno.
    #[error("{place}: {function} returned {code}: {}", .why.clone().unwrap_or_else(|| errno_text(*code)))]
    Errno {
        /// Which program.
        function: String,
        /// Where in the source.
        place: Place,
        /// The negative number.
        code: i64,
        /// Why, if the function says it (`ds_fail`).
        why: Option<String>,
    },
    /// The function returned more bytes than its output holds.
    #[error("{place}: {function} returned {returned}, but {}", room_of(place, *cap))]
    OutputFull {
        /// Which program.
        function: String,
        /// Where in the source.
        place: Place,
        /// What it returned.
        returned: u64,
        /// What there was.
        cap: u64,
    },
    /// The function's object asks for more room for its output than a run is given.
    #[error(
        "{place}: {function} asks for room for {asked} bytes of output, but a run is given {max} at most; ask for less with \
         DS_OUTPUT in its source, or for shorter chunks"
    )]
    OutputTooLarge {
        /// Which program.
        function: String,
        /// Where in the source.
        place: Place,
        /// What it asks for, for the bytes there.
        asked: u64,
        /// The limit.
        max: u64,
    },
    /// There is no memory for the function's output.
    #[error("{function}: no memory for {len} bytes of output: {source}")]
    NoMemory {
        /// Which program.
        function: String,
        /// Bytes that were asked for.
        len: u64,
        /// What the system said.
        source: std::io::Error,
    },
    /// A record does not fit a chunk, however large.
    #[error(
        "{place}: no end of the record within {max} bytes; is the split right, or does the data end before its source does?"
    )]
    RecordTooLong {
        /// Where it starts.
        place: Place,
        /// The limit.
        max: usize,
    },
    /// There is no memory for a record that is longer than a chunk.
    #[error("{place}: the record does not end here, and for a longer one there is no memory: {why}")]
    NoRoomForRecord {
        /// What was read of it.
        place: Place,
        /// Why, in the words of who gives it.
        why: String,
    },
    /// There is no memory for the piece that a function is given that runs once over its whole input.
    #[error(
        "{place}: the function runs once over its whole input, and for one piece that is so long there is no memory: {why}"
    )]
    NoRoomForPiece {
        /// What was read of it.
        place: Place,
        /// Why, in the words of who gives it.
        why: String,
    },
    /// The function runs once over its whole input, which is longer than that may be.
    #[error(
        "{source_name}: {function} runs once over its whole input, of up to {max} bytes, and this {}; {remedy}",
        .len.map_or_else(|| "is longer".to_owned(), |len| format!("has {len}"))
    )]
    Undivided {
        /// What is too long.
        source_name: String,
        /// Which program.
        function: String,
        /// Bytes there, if that is known.
        len: Option<u64>,
        /// The limit.
        max: usize,
        /// What its author, or the caller, can do.
        remedy: String,
    },
    /// A part of the request did not give a sequence of results.
    #[error("{part}: {error}")]
    Frames {
        /// Of which source.
        part: String,
        /// Where.
        error: BrokenFrames,
    },
    /// No piece can be so long.
    #[error("chunks of {0} bytes cannot be: a chunk is 1 to {PIECE_LEN_MAX} bytes")]
    BadChunkLen(usize),
    /// The records' fixed length cannot be used.
    #[error("records of {0} bytes cannot be split: a record is 1 to {max} bytes", max = crate::split::RECORD_LEN_MAX)]
    BadRecordLen(usize),
    /// The result is larger than the caller takes.
    #[error("the result exceeds {max} bytes; write it to a file, or raise the limit")]
    ResultTooLarge {
        /// The limit.
        max: usize,
    },
    /// The arguments are shorter than the program's structure.
    #[error("the arguments are {given} bytes, the function's structure `{name}` is {wants} bytes")]
    BadArgs {
        /// Bytes given.
        given: usize,
        /// Bytes of the structure.
        wants: u32,
        /// Its name.
        name: String,
    },
    /// It does not run so.
    #[error("`{function}` is of kind `{kind}`, which is not run over bytes in this way")]
    WrongKind {
        /// Which function.
        function: String,
        /// Its kind.
        kind: &'static str,
    },
    /// A kernel cannot be launched so.
    #[error("{function} cannot be launched so: {what}")]
    BadLaunch {
        /// Which program.
        function: String,
        /// What is wrong.
        what: &'static str,
    },
    /// A kernel marked blocks of its result that it has no room for.
    #[error("{function} marked a block behind the room for its result, which has {blocks}")]
    BadMask {
        /// Which program.
        function: String,
        /// Blocks that there is room for.
        blocks: usize,
    },
    /// A kernel ended, and a write failed that it had begun and never waited for.
    #[error("{function} did not wait for a write of {file}, which failed: {source}")]
    FileWrite {
        /// Which program.
        function: String,
        /// Which file.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// An execution has not the memory ranges that its program takes.
    #[error("{function} was given {given} memory ranges: {what}")]
    BadRanges {
        /// Which program.
        function: String,
        /// Ranges given.
        given: usize,
        /// What is wrong with that.
        what: &'static str,
    },
    /// The tier cannot run it.
    #[error(transparent)]
    Tier(#[from] TierError),
    /// The result could not be written out.
    #[error("writing the result: {0}")]
    Write(std::io::Error),
    /// A thread could not be started.
    #[error("starting a thread: {0}")]
    Thread(std::io::Error),
}

/// A place in a source, or in what the function made of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Name of the source.
    pub source: String,
    /// Which of the call's sources, from 0.
    pub source_index: u32,
    /// Which bytes the function was given; of a result that is folded: where the piece begins, and so many bytes as the result has.
    pub range: Range<u64>,
    /// What a `combine` was given, if it was one.
    pub folded: Option<Box<Folded>>,
}

/// A result that a `combine` folds into that of what is before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Folded {
    /// Whether it is that of a piece; else that of a whole source, or of a part of it.
    pub of_piece: bool,
    /// Bytes of the result that it is folded into.
    pub into_bytes: u64,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { source, range, .. } = self;
        let len = range.end - range.start;
        match self.folded.as_deref().copied() {
            None => write!(f, "{source}, bytes {}..{}", range.start, range.end),
            Some(Folded { of_piece: true, into_bytes }) => {
                let at = range.start;
                write!(f, "{source}, result of the piece at byte {at} ({len} bytes, folded into {into_bytes})")
            }
            Some(Folded { of_piece: false, into_bytes }) => {
                write!(f, "{source}, its result ({len} bytes, folded into {into_bytes})")
            }
        }
    }
}

/// The bytes that a call waited for when its deadline passed. No instruction of the function has to do with that.
fn awaited(place: &Place) -> String {
    match place.range.start {
        0 => "before anything was read".to_owned(),
        start => format!("while byte {start} was waited for"),
    }
}

/// The user's remedy for a trap that is not the function's fault.
fn remedy_of(trap: &Trap) -> &'static str {
    match trap.kind {
        TrapKind::Budget => "; --budget gives each run more",
        _ => "",
    }
}

/// Why so much output was too much.
fn room_of(place: &Place, cap: u64) -> String {
    match place.folded {
        None => format!("its output holds {cap} bytes; ask for more with DS_OUTPUT in its source"),
        Some(_) => format!("a folded result has {cap} bytes at most"),
    }
}

/// What the system calls the errno that a negative number is.
pub(crate) fn errno_text(code: i64) -> String {
    match i32::try_from(code).ok().and_then(i32::checked_neg).filter(|errno| *errno < ERRNO_END) {
        Some(errno) => std::io::Error::from_raw_os_error(errno).to_string(),
        None => "this is no errno".to_owned(),
    }
}

/// Linux's system calls return no error that is greater.
const ERRNO_END: i32 = 4096;
