//! The messages between the process that scans and the one that started it, over two pipes.
//!
//! A frame is a byte that says which it is, three zeros, a u32 length, and so many bytes; all numbers are little endian. First
//! the parent sends one Start. Then the child speaks, and each Read and each Turn of it is answered, in order. Its last frame
//! is Done or Failed. Neither side believes a length that is longer than the bounds here.

use crate::several::{FILE_LEN_MAX, OneFile, Several};
use std::io::{self, Read, Write};

/// The most bytes of a frame with output.
pub const OUTPUT_LEN_MAX: usize = 1 << 20;
/// The most bytes of one read.
pub const READ_LEN_MAX: usize = 8 << 20;
/// The most bytes of a Start besides its plan.
const START_LEN_MAX: usize = 16 << 10;
/// Bytes of how a function ended.
const STOP_LEN: usize = 40;
/// The most bytes of a message.
const MESSAGE_LEN_MAX: usize = 1500;
/// Bytes of a report behind the Arrow stream that it is of.
pub const REPORT_LEN: usize = 72;
const REPORT_MAGIC: &[u8; 8] = b"DSSCAN\x01\0";

/// To whom a frame goes: both sides number theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// The process that scans.
    Child,
    /// The one that started it.
    Parent,
}

/// One message.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// To the child: what to do.
    Start(Start),
    /// To the child: what to do with several files, each of which follows in a frame.
    Several(Several),
    /// To the child: one of several files.
    File(OneFile),
    /// To the child: the bytes that it asked for.
    Bytes(Vec<u8>),
    /// To the child: why there are none.
    NotRead(String),
    /// To the child: it may compute.
    Granted {
        /// With so many threads, until it is granted the next turn.
        threads: u32,
    },
    /// To the parent: bytes of the result.
    Output(Vec<u8>),
    /// To the parent: it asks for bytes of the file.
    Read {
        /// Where they begin.
        offset: u64,
        /// How many.
        len: u32,
        /// What they are.
        of: ReadOf,
    },
    /// To the parent: it is in this row group and asks whether to continue.
    Turn {
        /// Which.
        row_group: u32,
    },
    /// To the parent: it asks for the scan of one of several files. Reads at the number of this request, from 0 on, bring the next
    /// bytes of its result, and at its end none.
    Scan {
        /// The file.
        file: u32,
        /// What is scanned of it: a plan as bytes.
        plan: Vec<u8>,
    },
    /// To the parent: it has nothing to compute until the bytes come that it asked for, and asks for a turn then.
    Waits,
    /// To the parent: all of the result is there.
    Done(Report),
    /// To the parent: there will be no more.
    Failed(Failure),
}

/// What a read brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOf {
    /// Rows.
    Rows,
    /// Footers, Bloom filters, dictionaries and indexes of pages: short, and read again by scans of other rows, so that a parent may
    /// keep them.
    Metadata,
}

/// How the child reads the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadsBy {
    /// It is its descriptor 2: standard error says nothing that a frame does not say better.
    Descriptor,
    /// It asks.
    Requests,
}

/// What the child does.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// How it reads.
    pub reads_by: ReadsBy,
    /// With how many threads it computes; `None`: it asks for turns, which say so.
    pub threads: Option<u32>,
    /// Length of the file.
    pub file_len: u64,
    /// Bytes of address space that it may use.
    pub memory_len: u64,
    /// How messages call the file.
    pub name: String,
    /// The plan, as bytes: the child parses what a host sent.
    pub plan: Vec<u8>,
}

/// What a scan came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Row groups of the file.
    pub row_groups: u64,
    /// Of those of the plan's part: known to have no row that is wanted.
    pub pruned: u64,
    /// Rows of those that were decoded.
    pub rows_read: u64,
    /// Rows that the filter took.
    pub rows_selected: u64,
    /// Bytes of the chunks of needed columns in the row groups of the part that are not pruned.
    pub needed_len: u64,
    /// The same of the whole file.
    pub needed_len_of_all: u64,
    /// Bytes that were read, those of the footer among them.
    pub read_len: u64,
    /// Bytes of the file.
    pub file_len: u64,
    /// The part of `pruned` that dictionaries of columns ruled out. It is not among the bytes of a report.
    pub pruned_by_dictionaries: u64,
}

/// How the function of a plan ended on the rows that it was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stop {
    /// The row group that has these rows; `None`: they are of several.
    pub row_group: Option<u64>,
    /// Why it was stopped: a number of `docs/wire.md`; 0: it was not.
    pub trap_kind: u16,
    /// The region of an access; bit 15: it was a write.
    pub region: u16,
    /// The instruction at which it was stopped.
    pub insn: u32,
    /// The offset of an access in that region.
    pub offset: u64,
    /// The length of that region, if it was an access.
    pub bound: u64,
    /// The negative errno that it returned; 0: none.
    pub returned: i64,
}

/// Whose fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The plan cannot be carried out on this file: an unknown column, a text that is compared with a number.
    Plan,
    /// The file is damaged, or not of the format.
    File,
    /// It is all right, but has something that a scan does not read.
    Unsupported,
    /// It needs more memory.
    Memory,
    /// Reading failed, or the parent's frames are not as they should be.
    Reading,
    /// A defect of ours, or of what we use: a panic.
    Bug,
    /// The function of the plan failed on the rows.
    Function(Stop),
}

/// Why a scan ended without its result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Whose fault it is.
    pub kind: FailureKind,
    /// For a person; the file is named.
    pub message: String,
}

/// What is not a frame.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The other side is gone.
    #[error("the other side is gone")]
    Ended,
    /// The pipe broke.
    #[error("pipe: {0}")]
    Pipe(#[from] io::Error),
    /// It makes no sense.
    #[error("{0}")]
    Malformed(&'static str),
}

const START: u8 = 1;
const BYTES: u8 = 2;
const GRANTED: u8 = 3;
const NOT_READ: u8 = 4;
const SEVERAL: u8 = 5;
const FILE: u8 = 6;
const OUTPUT: u8 = 17;
const READ: u8 = 18;
const TURN: u8 = 19;
const DONE: u8 = 20;
const FAILED: u8 = 21;
const WAITS: u8 = 22;
const SCAN: u8 = 23;

impl Frame {
    /// Writes it, with one call where it is short.
    ///
    /// # Errors
    /// The pipe broke.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let (kind, body) = match self {
            Self::Start(start) => (START, start.to_bytes()),
            Self::Several(several) => (SEVERAL, several.to_bytes()),
            Self::File(file) => (FILE, file.to_bytes()),
            Self::Bytes(bytes) => return write_long(to, BYTES, bytes),
            Self::NotRead(message) => (NOT_READ, cut(message).into()),
            Self::Granted { threads } => (GRANTED, threads.to_le_bytes().into()),
            Self::Output(bytes) => return write_long(to, OUTPUT, bytes),
            Self::Read { offset, len, of } => {
                (READ, [&offset.to_le_bytes()[..], &len.to_le_bytes(), &[u8::from(*of == ReadOf::Metadata)]].concat())
            }
            Self::Turn { row_group } => (TURN, row_group.to_le_bytes().into()),
            Self::Scan { file, plan } => (SCAN, [&file.to_le_bytes()[..], plan].concat()),
            Self::Waits => (WAITS, Vec::new()),
            Self::Done(report) => {
                (DONE, [&report.to_bytes()[..], &report.pruned_by_dictionaries.to_le_bytes()].concat())
            }
            Self::Failed(failure) => (FAILED, failure.to_bytes()),
        };
        write_long(to, kind, &body)
    }

    /// Reads the next one.
    ///
    /// # Errors
    /// There is none, or it is not one that this side gets.
    pub fn read(from: &mut impl Read, to: To) -> Result<Self, FrameError> {
        let mut header = [0; 8];
        let mut filled = 0;
        while filled < header.len() {
            match from.read(&mut header[filled..]) {
                Ok(0) => return Err(FrameError::Ended),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        let [kind, 0, 0, 0, len @ ..] = header else { return Err(FrameError::Malformed("unknown bits in a frame")) };
        let len = u32::from_le_bytes(len) as usize;
        let (sent_to, len_max) = match kind {
            START => (To::Child, START_LEN_MAX + crate::PLAN_LEN_MAX),
            SEVERAL => (To::Child, START_LEN_MAX + crate::PLAN_LEN_MAX),
            FILE => (To::Child, FILE_LEN_MAX),
            BYTES => (To::Child, READ_LEN_MAX),
            NOT_READ => (To::Child, MESSAGE_LEN_MAX),
            GRANTED => (To::Child, 4),
            OUTPUT => (To::Parent, OUTPUT_LEN_MAX),
            READ => (To::Parent, 13),
            TURN => (To::Parent, 4),
            SCAN => (To::Parent, 4 + crate::PLAN_LEN_MAX),
            WAITS => (To::Parent, 0),
            DONE => (To::Parent, REPORT_LEN + 8),
            FAILED => (To::Parent, 1 + STOP_LEN + MESSAGE_LEN_MAX),
            _ => return Err(FrameError::Malformed("unknown frame")),
        };
        if sent_to != to {
            return Err(FrameError::Malformed("a frame of the other side"));
        }
        if len > len_max {
            return Err(FrameError::Malformed("a frame is too long"));
        }
        let mut body = vec![0; len];
        from.read_exact(&mut body).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => FrameError::Ended,
            _ => error.into(),
        })?;
        Self::of(kind, body).ok_or(FrameError::Malformed("a frame has not the length of its kind"))
    }

    fn of(kind: u8, body: Vec<u8>) -> Option<Self> {
        Some(match kind {
            START => Self::Start(Start::from_bytes(&body)?),
            SEVERAL => Self::Several(Several::from_bytes(&body)?),
            FILE => Self::File(OneFile::from_bytes(&body)?),
            BYTES => Self::Bytes(body),
            NOT_READ => Self::NotRead(String::from_utf8_lossy(&body).into_owned()),
            GRANTED => Self::Granted { threads: u32::from_le_bytes(body.try_into().ok()?) },
            OUTPUT => Self::Output(body),
            READ => {
                let (offset, rest) = body.split_first_chunk()?;
                let (len, of) = rest.split_first_chunk()?;
                let of = match of {
                    [0] => ReadOf::Rows,
                    [1] => ReadOf::Metadata,
                    _ => return None,
                };
                Self::Read { offset: u64::from_le_bytes(*offset), len: u32::from_le_bytes(*len), of }
            }
            TURN => Self::Turn { row_group: u32::from_le_bytes(body.try_into().ok()?) },
            SCAN => {
                let (file, plan) = body.split_first_chunk()?;
                Self::Scan { file: u32::from_le_bytes(*file), plan: plan.to_vec() }
            }
            WAITS => Self::Waits,
            DONE => {
                let (report, last) = body.split_last_chunk()?;
                Self::Done(Report { pruned_by_dictionaries: u64::from_le_bytes(*last), ..Report::from_bytes(report)? })
            }
            _ => Self::Failed(Failure::from_bytes(&body)?),
        })
    }
}

impl Failure {
    fn to_bytes(&self) -> Vec<u8> {
        let (number, stop) = match self.kind {
            FailureKind::Plan => (0, None),
            FailureKind::File => (1, None),
            FailureKind::Unsupported => (2, None),
            FailureKind::Memory => (3, None),
            FailureKind::Reading => (4, None),
            FailureKind::Bug => (5, None),
            // 6 had no more than a message.
            FailureKind::Function(stop) => (7, Some(stop)),
        };
        let mut bytes = vec![number];
        if let Some(Stop { row_group, trap_kind, region, insn, offset, bound, returned }) = stop {
            bytes.extend_from_slice(&row_group.unwrap_or(u64::MAX).to_le_bytes());
            bytes.extend_from_slice(&trap_kind.to_le_bytes());
            bytes.extend_from_slice(&region.to_le_bytes());
            bytes.extend_from_slice(&insn.to_le_bytes());
            bytes.extend_from_slice(&offset.to_le_bytes());
            bytes.extend_from_slice(&bound.to_le_bytes());
            bytes.extend_from_slice(&returned.to_le_bytes());
        }
        bytes.extend_from_slice(cut(&self.message));
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (number, mut message) = bytes.split_first()?;
        let kind = match number {
            0 => FailureKind::Plan,
            1 => FailureKind::File,
            2 => FailureKind::Unsupported,
            3 => FailureKind::Memory,
            4 => FailureKind::Reading,
            5 => FailureKind::Bug,
            7 => {
                let (stop, rest) = message.split_first_chunk()?;
                message = rest;
                FailureKind::Function(Stop::from_bytes(stop)?)
            }
            _ => return None,
        };
        Some(Self { kind, message: String::from_utf8_lossy(message).into_owned() })
    }
}

impl Stop {
    fn from_bytes(bytes: &[u8; STOP_LEN]) -> Option<Self> {
        let (row_group, rest) = bytes.split_first_chunk()?;
        let (trap_kind, rest) = rest.split_first_chunk()?;
        let (region, rest) = rest.split_first_chunk()?;
        let (insn, rest) = rest.split_first_chunk()?;
        let (offset, rest) = rest.split_first_chunk()?;
        let (bound, returned) = rest.split_first_chunk()?;
        Some(Self {
            row_group: Some(u64::from_le_bytes(*row_group)).filter(|of| *of != u64::MAX),
            trap_kind: u16::from_le_bytes(*trap_kind),
            region: u16::from_le_bytes(*region),
            insn: u32::from_le_bytes(*insn),
            offset: u64::from_le_bytes(*offset),
            bound: u64::from_le_bytes(*bound),
            returned: i64::from_le_bytes(returned.try_into().ok()?),
        })
    }
}

fn write_long(to: &mut impl Write, kind: u8, body: &[u8]) -> io::Result<()> {
    let mut header = [0; 8];
    header[0] = kind;
    let len = u32::try_from(body.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    header[4..].copy_from_slice(&len.to_le_bytes());
    if body.len() <= 4096 {
        return to.write_all(&[&header, body].concat());
    }
    to.write_all(&header)?;
    to.write_all(body)
}

/// The beginning of a message, whole characters.
fn cut(message: &str) -> &[u8] {
    let end = (0..=message.len().min(MESSAGE_LEN_MAX)).rev().find(|end| message.is_char_boundary(*end));
    &message.as_bytes()[..end.unwrap_or(0)]
}

impl Start {
    fn to_bytes(&self) -> Vec<u8> {
        let by = u8::from(self.reads_by == ReadsBy::Requests);
        let name_len = u32::try_from(self.name.len()).unwrap_or(u32::MAX);
        let mut bytes = vec![by];
        bytes.extend_from_slice(&self.threads.unwrap_or(0).to_le_bytes());
        bytes.extend_from_slice(&self.file_len.to_le_bytes());
        bytes.extend_from_slice(&self.memory_len.to_le_bytes());
        bytes.extend_from_slice(&name_len.to_le_bytes());
        bytes.extend_from_slice(self.name.as_bytes());
        bytes.extend_from_slice(&self.plan);
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (by, rest) = bytes.split_first()?;
        let (threads, rest) = rest.split_first_chunk()?;
        let (file_len, rest) = rest.split_first_chunk()?;
        let (memory_len, rest) = rest.split_first_chunk()?;
        let (name_len, rest) = rest.split_first_chunk()?;
        let (name, plan) = rest.split_at_checked(u32::from_le_bytes(*name_len) as usize)?;
        Some(Self {
            reads_by: if *by == 0 { ReadsBy::Descriptor } else { ReadsBy::Requests },
            threads: Some(u32::from_le_bytes(*threads)).filter(|threads| *threads > 0),
            file_len: u64::from_le_bytes(*file_len),
            memory_len: u64::from_le_bytes(*memory_len),
            name: String::from_utf8_lossy(name).into_owned(),
            plan: plan.to_vec(),
        })
    }
}

impl Report {
    /// As it follows an Arrow stream.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; REPORT_LEN] {
        let mut bytes = [0; REPORT_LEN];
        let numbers = [
            self.row_groups,
            self.pruned,
            self.rows_read,
            self.rows_selected,
            self.needed_len,
            self.needed_len_of_all,
            self.read_len,
            self.file_len,
        ];
        for (to, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        bytes[64..].copy_from_slice(REPORT_MAGIC);
        bytes
    }

    /// The report of these bytes; `None`: they are not one.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; REPORT_LEN] = bytes.try_into().ok()?;
        if &bytes[64..] != REPORT_MAGIC {
            return None;
        }
        let number = |index: usize| bytes[8 * index..][..8].try_into().map(u64::from_le_bytes).ok();
        Some(Self {
            row_groups: number(0)?,
            pruned: number(1)?,
            rows_read: number(2)?,
            rows_selected: number(3)?,
            needed_len: number(4)?,
            needed_len_of_all: number(5)?,
            read_len: number(6)?,
            file_len: number(7)?,
            pruned_by_dictionaries: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{ColumnType, Literal};

    fn frames() -> Vec<(To, Frame)> {
        let start = Start {
            reads_by: ReadsBy::Requests,
            threads: Some(4),
            file_len: 1 << 40,
            memory_len: 5,
            name: "a b".into(),
            plan: vec![1, 2, 3],
        };
        let several = Several {
            files: 7,
            scanned: 5,
            are_parts: false,
            at_once: 4,
            memory_len: 1 << 31,
            name: "logs".into(),
            columns: vec![("day".into(), ColumnType::Date)],
            of_table: Some(vec![("new".into(), ColumnType::Text)]),
            plan: vec![1, 2],
        };
        let failure = Failure { kind: FailureKind::Unsupported, message: "no \u{e9}".into() };
        let stop = Stop {
            row_group: Some(1 << 33),
            trap_kind: 1,
            region: 2,
            insn: 3,
            offset: 4,
            bound: 1 << 40,
            returned: -22,
        };
        let of_function = Failure { kind: FailureKind::Function(stop), message: "it".into() };
        let report = Report { row_groups: 1, file_len: 9, pruned_by_dictionaries: 3, ..Report::default() };
        vec![
            (To::Child, Frame::Start(start)),
            (To::Child, Frame::Several(several)),
            (To::Child, Frame::File(OneFile { name: "a/b".into(), values: vec![Literal::Null, Literal::Date(3)] })),
            (To::Child, Frame::Bytes(vec![7; 9000])),
            (To::Child, Frame::NotRead("gone".into())),
            (To::Child, Frame::Granted { threads: 3 }),
            (To::Parent, Frame::Output(vec![])),
            (To::Parent, Frame::Read { offset: 3, len: 4, of: ReadOf::Rows }),
            (To::Parent, Frame::Read { offset: 3, len: 4, of: ReadOf::Metadata }),
            (To::Parent, Frame::Turn { row_group: 6 }),
            (To::Parent, Frame::Scan { file: 5, plan: vec![8; 40] }),
            (To::Parent, Frame::Waits),
            (To::Parent, Frame::Done(report)),
            (To::Parent, Frame::Failed(failure)),
            (To::Parent, Frame::Failed(of_function)),
        ]
    }

    #[test]
    fn frames_are_the_same_after_their_travel_and_no_shorter_ones_are_frames() {
        for (to, frame) in frames() {
            let mut bytes = Vec::new();
            frame.write(&mut bytes).unwrap();
            assert_eq!(Frame::read(&mut &bytes[..], to).unwrap(), frame);
            let other = if to == To::Child { To::Parent } else { To::Child };
            assert!(matches!(Frame::read(&mut &bytes[..], other), Err(FrameError::Malformed(_))));
            for len in 0..bytes.len().min(100) {
                assert!(matches!(Frame::read(&mut &bytes[..len], to), Err(FrameError::Ended)), "{frame:?} {len}");
            }
        }
    }

    #[test]
    fn a_length_beyond_its_bound_takes_no_memory() {
        let mut header = [OUTPUT, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
        let told = |header: &[u8]| Frame::read(&mut &header[..], To::Parent).unwrap_err().to_string();
        assert_eq!(told(&header), "a frame is too long");
        header[1] = 1;
        assert_eq!(told(&header), "unknown bits in a frame");
    }

    #[test]
    fn a_long_message_ends_between_characters() {
        let message = "\u{e9}".repeat(1000);
        let mut bytes = Vec::new();
        Frame::NotRead(message.clone()).write(&mut bytes).unwrap();
        assert_eq!(Frame::read(&mut &bytes[..], To::Child).unwrap(), Frame::NotRead(message[..1500].into()));
    }
}
