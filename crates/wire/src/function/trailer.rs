//! The trailer: what became of a call. 128 bytes, a message, and elements for all that came later.

use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::command::FUNCTION_VERSION;
use super::field::FieldError;
use super::tlv;

/// Length of a trailer without its message.
pub const TRAILER_LEN: usize = 128;

/// The most bytes of its message.
pub const MESSAGE_LEN_MAX: usize = 2048;

/// The fixed part of a trailer.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TrailerHeader {
    pub(super) version: U16,
    pub(super) len: U16,
    pub(super) outcome: U32,
    pub(super) returned: I64,
    pub(super) result_len: U64,
    pub(super) media_read: U64,
    pub(super) media_written: U64,
    pub(super) durable: U64,
    pub(super) times_us: [U32; 6],
    pub(super) back_edges: U64,
    pub(super) insn: U32,
    pub(super) trap_kind: U16,
    pub(super) region: U16,
    pub(super) trap_offset: U64,
    pub(super) bound: U64,
    pub(super) hop: U32,
    pub(super) helper: U32,
    pub(super) generation: U64,
    pub(super) message_len: U32,
    pub(super) tlv_len: U32,
}
const _: () = assert!(size_of::<TrailerHeader>() == TRAILER_LEN);

/// How a call ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Outcome {
    /// Well.
    #[default]
    Ok = 0,
    /// The function returned a negative number, an errno.
    Errno = 1,
    /// It was stopped at an access or a call that it must not make.
    Trap = 2,
    /// It took more back edges than its budget.
    Budget = 3,
    /// It took longer than its deadline.
    Deadline = 4,
    /// It was cancelled.
    Cancelled = 5,
    /// A medium or a file failed.
    Media = 6,
    /// The file or its layout changed.
    Stale = 7,
    /// The output did not fit its place.
    OutputFull = 8,
    /// It could not be begun: arguments, limits, records that cannot be as they are.
    Refused = 9,
}

impl Outcome {
    /// The outcome of this number.
    pub const fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Ok,
            1 => Self::Errno,
            2 => Self::Trap,
            3 => Self::Budget,
            4 => Self::Deadline,
            5 => Self::Cancelled,
            6 => Self::Media,
            7 => Self::Stale,
            8 => Self::OutputFull,
            9 => Self::Refused,
            _ => return None,
        })
    }
}

/// Where the time went, in microseconds; parts overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Waiting for an engine.
    pub queue_us: u32,
    /// Waiting for input.
    pub read_us: u32,
    /// In the function, all threads together.
    pub run_us: u32,
    /// Waiting for output to be written.
    pub write_us: u32,
    /// Waiting for the host to take the result.
    pub send_us: u32,
    /// In all.
    pub total_us: u32,
}

/// Where in the input a function failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceInSource {
    /// Which source of the request.
    pub source_index: u32,
    /// First byte of the chunk that it was given.
    pub offset: u64,
    /// Length of that chunk.
    pub len: u64,
}

/// A trailer, parsed. Fields that a trap has are 0 without one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trailer {
    /// How the call ended.
    pub outcome: Outcome,
    /// The value that the function returned last, or the negative errno.
    pub returned: i64,
    /// Bytes of the result stream in all.
    pub result_len: u64,
    /// Bytes that were read from media and files.
    pub media_read: u64,
    /// Bytes that were written to media and files.
    pub media_written: u64,
    /// Bytes of the output, from its start, that are on stable media.
    pub durable: u64,
    /// Where the time went.
    pub times: Times,
    /// Back edges taken.
    pub back_edges: u64,
    /// Instruction of a trap.
    pub insn: u32,
    /// The kind of the trap: a number of `docs/wire.md`.
    pub trap_kind: u16,
    /// Region of a trap.
    pub region: u16,
    /// Offset in that region.
    pub trap_offset: u64,
    /// Bound of that region.
    pub bound: u64,
    /// Hop of a traversal. For a launch: bytes of the mask that its result begins with, before the blocks that it names; 0: the
    /// result is whole.
    pub hop: u32,
    /// Helper that trapped.
    pub helper: u32,
    /// Generation of the file or layout that was used.
    pub generation: u64,
    /// The whole story in words, with the source line.
    pub message: String,
    /// Where in the input it failed.
    pub place: Option<PlaceInSource>,
    /// Lines that the program logged.
    pub log: Vec<String>,
    /// How many more lines it logged.
    pub log_dropped: u64,
    /// The data that the function was called on; `None`: not told.
    pub called: Option<Called>,
    /// Bytes that it gave back, before anything is folded; `None`: not told.
    pub output_bytes: Option<u64>,
    /// Windows of the input that were read ahead, besides one for each thread; `None`: not told.
    pub depth: Option<u32>,
    /// The range that was asked for and is not in the input.
    pub missing: Option<MissingRange>,
    /// Microseconds in which results of pieces were folded; `None`: not told.
    pub fold_us: Option<u64>,
    /// Row groups of a scan that dictionaries of their columns ruled out.
    pub by_dictionaries: Option<u64>,
}

/// A range that is not in an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissingRange {
    /// Its first byte.
    pub start: u64,
    /// The byte behind its last.
    pub end: u64,
    /// Bytes that the input has.
    pub len: u64,
}

/// The data that a function was called on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Called {
    /// Pieces.
    pub pieces: u64,
    /// Bytes in all of them: more than the range has where its last record continues behind it, fewer where none begins.
    pub input_bytes: u64,
}

/// Types of a trailer's elements.
const TLV_PLACE: u16 = 1 | tlv::IGNORABLE;
const TLV_LOG_LINE: u16 = 2 | tlv::IGNORABLE;
const TLV_CALLED: u16 = 3 | tlv::IGNORABLE;
const TLV_OUTPUT: u16 = 4 | tlv::IGNORABLE;
const TLV_DEPTH: u16 = 5 | tlv::IGNORABLE;
const TLV_MISSING: u16 = 6 | tlv::IGNORABLE;
const TLV_LOG_DROPPED: u16 = 7 | tlv::IGNORABLE;
const TLV_FOLD: u16 = 8 | tlv::IGNORABLE;
const TLV_DICTIONARIES: u16 = 9 | tlv::IGNORABLE;
/// Bytes of the element that says how many lines there were more.
const LOG_DROPPED_LEN: usize = 12;

/// The most bytes of all elements.
const TLVS_LEN_MAX: usize = 8 << 10;

impl Trailer {
    /// A trailer of a call that ended so.
    pub fn new(outcome: Outcome) -> Self {
        Self { outcome, ..Self::default() }
    }

    /// As it is sent, in at most `room` bytes: elements are left out and the message is cut to fit.
    ///
    /// # Panics
    /// In debug builds, if `room` is less than [`TRAILER_LEN`].
    pub fn encode(&self, room: usize) -> Vec<u8> {
        debug_assert!(room >= TRAILER_LEN, "a trailer has at least 128 bytes");
        let room = room.saturating_sub(TRAILER_LEN);
        let message = cut(&self.message, room.min(MESSAGE_LEN_MAX));
        let padded_len = message.len().next_multiple_of(4);
        let mut tlvs = self.encode_tlvs();
        if padded_len + tlvs.len() > room {
            tlvs.clear();
        }
        let message_len = if tlvs.is_empty() { message.len() } else { padded_len };
        let mut header = TrailerHeader::new_zeroed();
        header.version.set(FUNCTION_VERSION.into());
        header.len.set(TRAILER_LEN as u16);
        header.outcome.set(self.outcome as u32);
        header.returned.set(self.returned);
        header.result_len.set(self.result_len);
        header.media_read.set(self.media_read);
        header.media_written.set(self.media_written);
        header.durable.set(self.durable);
        let Times { queue_us, read_us, run_us, write_us, send_us, total_us } = self.times;
        header.times_us = [queue_us, read_us, run_us, write_us, send_us, total_us].map(U32::new);
        header.back_edges.set(self.back_edges);
        header.insn.set(self.insn);
        header.trap_kind.set(self.trap_kind);
        header.region.set(self.region);
        header.trap_offset.set(self.trap_offset);
        header.bound.set(self.bound);
        header.hop.set(self.hop);
        header.helper.set(self.helper);
        header.generation.set(self.generation);
        header.message_len.set(message.len() as u32);
        header.tlv_len.set(tlvs.len() as u32);
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend_from_slice(message.as_bytes());
        bytes.resize(TRAILER_LEN + message_len, 0);
        bytes.extend_from_slice(&tlvs);
        bytes
    }

    fn encode_tlvs(&self) -> Vec<u8> {
        let mut tlvs = Vec::new();
        if let Some(place) = &self.place {
            let mut value = place.source_index.to_le_bytes().to_vec();
            value.extend_from_slice(&place.offset.to_le_bytes());
            value.extend_from_slice(&place.len.to_le_bytes());
            tlv::push(&mut tlvs, TLV_PLACE, &value);
        }
        if let Some(called) = self.called {
            let value = [called.pieces.to_le_bytes(), called.input_bytes.to_le_bytes()].concat();
            tlv::push(&mut tlvs, TLV_CALLED, &value);
        }
        if let Some(bytes) = self.output_bytes {
            tlv::push(&mut tlvs, TLV_OUTPUT, &bytes.to_le_bytes());
        }
        if let Some(depth) = self.depth {
            tlv::push(&mut tlvs, TLV_DEPTH, &depth.to_le_bytes());
        }
        if let Some(MissingRange { start, end, len }) = self.missing {
            tlv::push(&mut tlvs, TLV_MISSING, &[start, end, len].map(u64::to_le_bytes).concat());
        }
        if let Some(fold_us) = self.fold_us {
            tlv::push(&mut tlvs, TLV_FOLD, &fold_us.to_le_bytes());
        }
        if let Some(row_groups) = self.by_dictionaries {
            tlv::push(&mut tlvs, TLV_DICTIONARIES, &row_groups.to_le_bytes());
        }
        let mut sent = 0;
        for line in &self.log {
            let line = cut(line, 1024);
            if tlvs.len() + line.len() + 8 + LOG_DROPPED_LEN > TLVS_LEN_MAX {
                break;
            }
            tlv::push(&mut tlvs, TLV_LOG_LINE, line.as_bytes());
            sent += 1;
        }
        let dropped = self.log_dropped.saturating_add((self.log.len() - sent) as u64);
        if dropped > 0 {
            tlv::push(&mut tlvs, TLV_LOG_DROPPED, &dropped.to_le_bytes());
        }
        tlvs
    }

    /// Parses a trailer.
    ///
    /// # Errors
    /// The first field that cannot be as it is.
    pub fn decode(bytes: &[u8]) -> Result<Self, FieldError> {
        let (header, rest) = TrailerHeader::ref_from_prefix(bytes)
            .map_err(|_| FieldError::new(bytes.len(), "the trailer has less than 128 bytes"))?;
        if header.version.get() != u16::from(FUNCTION_VERSION) {
            return Err(FieldError::new(0, "the version is not 1"));
        }
        if usize::from(header.len.get()) != TRAILER_LEN {
            return Err(FieldError::new(2, "the trailer of version 1 has 128 bytes before its message"));
        }
        let outcome =
            Outcome::from_number(header.outcome.get()).ok_or(FieldError::new(4, "this outcome is not known"))?;
        let message_len = header.message_len.get() as usize;
        let message = rest.get(..message_len).ok_or(FieldError::new(120, "the message goes beyond the end"))?;
        let message = String::from_utf8_lossy(message).into_owned();
        let tlv_len = header.tlv_len.get() as usize;
        let tlv_at = if tlv_len == 0 { message_len } else { message_len.next_multiple_of(4) };
        let tlvs = tlv_at.checked_add(tlv_len).and_then(|end| rest.get(tlv_at..end));
        let tlvs = tlvs.ok_or(FieldError::new(124, "the elements go beyond the end"))?;
        let [queue_us, read_us, run_us, write_us, send_us, total_us] = header.times_us.map(U32::get);
        let mut trailer = Self {
            outcome,
            returned: header.returned.get(),
            result_len: header.result_len.get(),
            media_read: header.media_read.get(),
            media_written: header.media_written.get(),
            durable: header.durable.get(),
            times: Times { queue_us, read_us, run_us, write_us, send_us, total_us },
            back_edges: header.back_edges.get(),
            insn: header.insn.get(),
            trap_kind: header.trap_kind.get(),
            region: header.region.get(),
            trap_offset: header.trap_offset.get(),
            bound: header.bound.get(),
            hop: header.hop.get(),
            helper: header.helper.get(),
            generation: header.generation.get(),
            message,
            place: None,
            log: Vec::new(),
            log_dropped: 0,
            called: None,
            output_bytes: None,
            depth: None,
            missing: None,
            fold_us: None,
            by_dictionaries: None,
        };
        for element in tlv::elements(tlvs, TRAILER_LEN + tlv_at) {
            let tlv::Element { kind, value, offset } = element?;
            match kind {
                TLV_PLACE => trailer.place = Some(place(value).ok_or(FieldError::new(offset, "a place has 20 bytes"))?),
                TLV_CALLED => {
                    let numbers = called(value);
                    trailer.called = Some(numbers.ok_or(FieldError::new(offset, "pieces and bytes have 16 bytes"))?);
                }
                TLV_OUTPUT => {
                    let bytes =
                        value.try_into().map_err(|_| FieldError::new(offset, "bytes of output have 8 bytes"))?;
                    trailer.output_bytes = Some(u64::from_le_bytes(bytes));
                }
                TLV_DEPTH => {
                    let depth = value.try_into().map_err(|_| FieldError::new(offset, "a depth has 4 bytes"))?;
                    trailer.depth = Some(u32::from_le_bytes(depth));
                }
                TLV_MISSING => {
                    let missing =
                        missing(value).ok_or(FieldError::new(offset, "a range and a length have 24 bytes"))?;
                    trailer.missing = Some(missing);
                }
                TLV_FOLD => {
                    let time =
                        value.try_into().map_err(|_| FieldError::new(offset, "a time of folding has 8 bytes"))?;
                    trailer.fold_us = Some(u64::from_le_bytes(time));
                }
                TLV_DICTIONARIES => {
                    let row_groups =
                        value.try_into().map_err(|_| FieldError::new(offset, "a count of row groups has 8 bytes"))?;
                    trailer.by_dictionaries = Some(u64::from_le_bytes(row_groups));
                }
                TLV_LOG_DROPPED => {
                    let dropped =
                        value.try_into().map_err(|_| FieldError::new(offset, "a count of lines has 8 bytes"))?;
                    trailer.log_dropped = u64::from_le_bytes(dropped);
                }
                TLV_LOG_LINE => trailer.log.push(String::from_utf8_lossy(value).into_owned()),
                _ if kind & tlv::IGNORABLE != 0 => {}
                _ => return Err(FieldError::new(offset - 4, "this element is not known")),
            }
        }
        Ok(trailer)
    }
}

fn called(value: &[u8]) -> Option<Called> {
    let [pieces, input_bytes] = numbers(value)?;
    Some(Called { pieces, input_bytes })
}

fn missing(value: &[u8]) -> Option<MissingRange> {
    let [start, end, len] = numbers(value)?;
    Some(MissingRange { start, end, len })
}

fn numbers<const N: usize>(value: &[u8]) -> Option<[u64; N]> {
    let (numbers, rest) = <[U64; N]>::ref_from_prefix(value).ok()?;
    rest.is_empty().then_some(numbers.map(U64::get))
}

fn place(value: &[u8]) -> Option<PlaceInSource> {
    let (source_index, rest) = value.split_first_chunk()?;
    let (offset, rest) = rest.split_first_chunk()?;
    let len = rest.try_into().ok()?;
    Some(PlaceInSource {
        source_index: u32::from_le_bytes(*source_index),
        offset: u64::from_le_bytes(*offset),
        len: u64::from_le_bytes(len),
    })
}

/// The start of `text` that has at most `len` bytes, cut between characters.
fn cut(text: &str, len: usize) -> &str {
    let mut end = text.len().min(len);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
