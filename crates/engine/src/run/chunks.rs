//! The pieces of a call's sources, read ahead in windows of the grid.
//!
//! Window *k* is the bytes from one step of the grid to the next. The records that begin in it are piece *k*: it starts
//! behind the end of a record that began before, and takes from the windows after it what its own last record lacks.

mod input;
mod origin;

pub(super) use input::Input;

use crate::call::{Call, CallError, Growth, Place, Source, Sources};
use crate::environment::Log;
use crate::pieces::Pieces;
use crate::split::{RECORD_LEN_MAX, Split, record_index};
use crate::worker::{ChunkInfo, is_over, stopped_before};
use diskside_decompress::ChunkCodecs;
use diskside_io::readahead::{Chunk, ChunkReader, ReadAhead, ReadError, ReadStream};
use origin::Origin;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Iterates over the pieces of all sources.
pub(super) struct Chunks<'a> {
    call: &'a Call<'a>,
    until: Option<Instant>,
    pieces: Pieces,
    sources: Opening<'a>,
    depth: usize,
    log: Log,
    current: Option<Current<'a>>,
    waited: Duration,
}

/// Sources in their order, those of [`Source::Many`] one by one.
struct Opening<'a> {
    named: std::slice::Iter<'a, Source>,
    many: Option<&'a dyn Sources>,
    /// The index of the next source.
    index: u32,
}

impl<'a> Opening<'a> {
    fn of(sources: &'a [Source]) -> Self {
        Self { named: sources.iter(), many: None, index: 0 }
    }
}

impl<'a> Iterator for Opening<'a> {
    type Item = (u32, Result<Cow<'a, Source>, ReadError>);

    fn next(&mut self) -> Option<Self::Item> {
        let source = loop {
            if let Some(many) = self.many {
                match many.next() {
                    Ok(Some(source)) => break Ok(Cow::Owned(source)),
                    Ok(None) => self.many = None,
                    Err(error) => break Err(error),
                }
            }
            match self.named.next()? {
                Source::Many { sources, .. } => self.many = Some(&**sources),
                source => break Ok(Cow::Borrowed(source)),
            }
        };
        let index = self.index;
        self.index += 1;
        Some((index, source))
    }
}

/// The source being read.
struct Current<'a> {
    call: &'a Call<'a>,
    /// When its call has to have ended.
    until: Option<Instant>,
    pieces: Pieces,
    name: Arc<str>,
    /// In the call, for errors, and in the request, for the function.
    index: u32,
    request_index: u32,
    len: u64,
    /// The range of the request, and where in the source its data begins.
    request: Range<u64>,
    zero: u64,
    /// Where what a stream gives begins in what it is a stream of.
    base: u64,
    windows: Windows,
    stream: Option<Arc<dyn ReadStream>>,
    /// The next window's number on the grid.
    next_window: u64,
    open: Option<Open>,
    room: Room,
    is_done: bool,
}

/// Where windows come from.
enum Windows {
    Ahead {
        reader: Box<ChunkReader>,
        origin: Origin,
        /// What is left of the last window.
        left: Option<(Chunk, usize)>,
        /// The byte before the first window, which tells whether a record begins there, was read with it.
        has_lead: bool,
        /// Where the range ends, if the source continues behind it.
        goes_on: Option<u64>,
    },
    Memory {
        bytes: Arc<[u8]>,
        at: usize,
    },
    /// All of it is one.
    Encoded {
        bytes: Arc<[u8]>,
        codecs: Arc<ChunkCodecs>,
    },
}

/// A piece whose last record was not read to its end.
struct Open {
    input: Input,
    window: u64,
    offset: u64,
    /// Where in the piece its last record begins.
    record: usize,
}

/// How long a piece may become.
struct Room {
    len: usize,
    /// Where more memory comes from; `None`: there is as much as a piece may have.
    growth: Option<Arc<dyn Growth>>,
}

/// Windows that are read ahead, besides one for each thread, unless a call says otherwise: one on its way there, one
/// whose last record continues, and two being read.
pub const DEPTH: usize = 4;

/// The most windows that a call may have read ahead, besides one for each thread.
pub const DEPTH_MAX: usize = 64;

impl<'a> Chunks<'a> {
    /// With so many windows that are read ahead: one for each thread, or nobody would get the next, and more.
    pub(super) fn new(call: &'a Call<'_>, until: Option<Instant>, pieces: Pieces, depth: usize, log: Log) -> Self {
        let sources = Opening::of(&call.sources);
        Self { call, until, pieces, sources, depth, log, current: None, waited: Duration::ZERO }
    }

    /// Time spent waiting for input.
    pub(super) fn waited(&self) -> Duration {
        self.waited
    }

    fn open(&self, index: u32, source: &Source) -> Result<Current<'a>, ReadError> {
        let (windows, range, len) = match source {
            Source::Bytes { bytes, .. } => {
                let len = bytes.len() as u64;
                (Windows::Memory { bytes: Arc::clone(bytes), at: 0 }, 0..len, len)
            }
            Source::Chunk { bytes, codecs, .. } => {
                let (bytes, codecs) = (Arc::clone(bytes), Arc::clone(codecs));
                let len = codecs.decoded_len() as u64;
                (Windows::Encoded { bytes, codecs }, 0..len, len)
            }
            Source::Stream { name, stream } => {
                let lead_bytes = stream.lead_bytes();
                let how = ReadAhead { lead_bytes, ..self.how() };
                let reader = ChunkReader::of_stream(Arc::clone(stream), name, &how)?;
                let windows = Windows::Ahead {
                    reader: reader.into(),
                    origin: Origin::Stream,
                    left: None,
                    has_lead: lead_bytes > 0,
                    goes_on: None,
                };
                (windows, 0..u64::MAX, u64::MAX)
            }
            Source::File { .. } | Source::Open { .. } | Source::Reader { .. } => self.open_ahead(source)?,
            Source::Many { .. } => unreachable!("those of many come one by one"),
        };
        let part = self.call.part.as_ref();
        let request = part.map_or_else(|| range.clone(), |part| part.request.clone());
        let source_index = self.call.source_index + index;
        let base = match source {
            Source::Stream { stream, .. } => {
                let start = part.map_or(0, |part| part.request.start) + stream.start();
                start - stream.lead_bytes() as u64
            }
            _ => 0,
        };
        let step = self.pieces.len_bytes as u64;
        let stream = match source {
            Source::Stream { stream, .. } => Some(Arc::clone(stream)),
            _ => None,
        };
        Ok(Current {
            call: self.call,
            until: self.until,
            pieces: self.pieces,
            name: source.name().into(),
            index,
            request_index: source_index,
            len,
            next_window: range.start.saturating_sub(request.start) / step,
            request,
            zero: part.map_or(0, |part| part.zero),
            base,
            windows,
            stream,
            open: None,
            // A window, and the end of a record that continues in the next: the usual.
            room: Room { len: 2 * self.window_len(), growth: self.call.growth.clone() },
            is_done: false,
        })
    }

    fn open_ahead(&self, source: &Source) -> Result<(Windows, Range<u64>, u64), ReadError> {
        let (origin, range) = Origin::of(source).expect("a file or a reader");
        let Some(range) = range else {
            let (reader, len) = origin.open_all(&self.how())?;
            let windows = Windows::Ahead { reader: reader.into(), origin, left: None, has_lead: false, goes_on: None };
            return Ok((windows, 0..len, len));
        };
        let is_delimited = matches!(self.pieces.split, Split::Delimiter(_));
        let zero = self.call.part.as_ref().map_or(0, |part| part.zero);
        let has_lead = is_delimited && range.start > zero && !range.is_empty();
        let how = ReadAhead { lead_bytes: has_lead.into(), ..self.how() };
        let reader = origin.open(range.start - u64::from(has_lead)..range.end, &how)?;
        let len = origin.len()?;
        // It may have become longer since the request was made, of which this is a part.
        let len = self.call.source_len.map_or(len, |known| known.clamp(range.end, len.max(range.end)));
        let goes_on = (is_delimited && range.end < len).then_some(range.end);
        Ok((Windows::Ahead { reader: reader.into(), origin, left: None, has_lead, goes_on }, range, len))
    }

    fn how(&self) -> ReadAhead {
        let tailroom_bytes = if matches!(self.pieces.split, Split::Delimiter(_)) { RECORD_ROOM } else { 0 };
        ReadAhead { chunk_bytes: self.window_len(), depth: self.depth, tailroom_bytes, ..ReadAhead::default() }
    }

    /// What is not cut is read in windows all the same.
    fn window_len(&self) -> usize {
        match self.pieces.split {
            Split::Whole => self.pieces.len_bytes.min(crate::pieces::WINDOW_LEN),
            Split::Bytes | Split::Fixed(_) | Split::Delimiter(_) => self.pieces.len_bytes,
        }
    }
}

/// Free bytes behind each window for the end of its last record.
pub(super) const RECORD_ROOM: usize = 64 << 10;

impl Iterator for Chunks<'_> {
    type Item = Result<(Input, ChunkInfo), CallError>;

    fn next(&mut self) -> Option<Self::Item> {
        let started = Instant::now();
        let next = loop {
            if let Some(current) = &mut self.current {
                match current.next() {
                    Ok(Some(next)) => break Some(Ok(next)),
                    Ok(None) => {
                        if let Some(warning) = current.warning() {
                            self.log.warn(&warning);
                        }
                        self.current = None;
                    }
                    Err(error) => break Some(Err(error)),
                }
            }
            let Some((index, source)) = self.sources.next() else { break None };
            match source.and_then(|source| self.open(index, &source)) {
                Ok(current) => self.current = Some(current),
                Err(error) => break Some(Err(self.not_opened(index, error))),
            }
        };
        self.waited += started.elapsed();
        next
    }
}

impl Chunks<'_> {
    fn not_opened(&self, source_index: u32, error: ReadError) -> CallError {
        let place = || Place { source: "its next source".into(), source_index, range: 0..0, folded: None };
        let stopped = matches!(error, ReadError::Stopped).then(|| stopped_before(self.call, self.until, place));
        stopped.flatten().unwrap_or(CallError::Read { source_index, error })
    }
}

impl Current<'_> {
    /// A warning for the user about a source that was read to its end.
    fn warning(&self) -> Option<String> {
        let warning = self.stream.as_ref()?.warning()?;
        Some(format!("{}: {warning}", self.name))
    }

    /// The next piece.
    fn next(&mut self) -> Result<Option<(Input, ChunkInfo)>, CallError> {
        if self.is_done {
            return Ok(None);
        }
        if self.request.end != u64::MAX {
            self.pieces.check_len(self.call.function, &self.name, Some(self.request.end - self.request.start))?;
        }
        match &mut self.windows {
            Windows::Memory { .. } => self.next_in_memory(),
            Windows::Encoded { bytes, codecs } => {
                let input = Input::Encoded { bytes: Arc::clone(bytes), codecs: Arc::clone(codecs) };
                self.is_done = true;
                Ok(Some((input, self.info(0, 0, self.len))))
            }
            Windows::Ahead { .. } => self.next_ahead(),
        }
    }

    fn next_in_memory(&mut self) -> Result<Option<(Input, ChunkInfo)>, CallError> {
        let Windows::Memory { bytes, at } = &mut self.windows else { unreachable!("only memory is asked") };
        let (bytes, start) = (Arc::clone(bytes), *at);
        let step = self.pieces.len_bytes;
        let window = start / step;
        let wanted = ((window + 1) * step).min(bytes.len());
        let (mut end, mut record) = (wanted, start);
        if let (Split::Delimiter(delimiter), true) = (self.pieces.split, wanted < bytes.len()) {
            // The window's last byte may end a record, and the next one begins behind it.
            record = start + memchr::memrchr(delimiter, &bytes[start..wanted - 1]).map_or(0, |at| at + 1);
            end = memchr::memchr(delimiter, &bytes[wanted - 1..]).map_or(bytes.len(), |at| wanted + at);
        }
        *at = end;
        self.is_done = end == bytes.len();
        if end - record > RECORD_LEN_MAX && end > wanted {
            return Err(self.record_too_long(record as u64));
        }
        let input = Input::Shared { bytes, range: start..end };
        Ok(Some((input, self.info(window as u64, start as u64, end as u64))))
    }

    fn next_ahead(&mut self) -> Result<Option<(Input, ChunkInfo)>, CallError> {
        loop {
            // Many windows may pass before the function has a piece, and looks for itself.
            if let Some(stopped) = stopped_before(self.call, self.until, || self.place()) {
                return Err(stopped);
            }
            let Some((chunk, from)) = self.next_window()? else {
                self.is_done = true;
                return self.finish();
            };
            let (window, is_last) = (self.next_window - 1, chunk.is_last());
            // The rest of a window was looked at already for the record that ends in it.
            if let Some(open) = self.open.take() {
                if let Some(piece) = self.go_on(open, chunk, window, is_last)? {
                    return Ok(Some(piece));
                }
                continue;
            }
            let Some(from) = self.first_record(&chunk, from, window) else { continue };
            let offset = self.base + chunk.offset() + from as u64;
            let record = self.open_record(&chunk, from, is_last);
            let input = Input::Read { chunk, from };
            match record {
                None => {
                    let end = offset + input.len() as u64;
                    return Ok(Some((input, self.info(window, offset, end))));
                }
                Some(record) => self.open = Some(Open { input, window, offset, record }),
            }
        }
    }

    /// Where it is, for who stops it.
    fn place(&self) -> Place {
        let start = self.base + self.next_window * self.pieces.len_bytes as u64;
        Place { source: self.name.to_string(), source_index: self.request_index, range: start..start, folded: None }
    }

    /// Why a read was given up.
    fn stopped(&self) -> CallError {
        let stopped = stopped_before(self.call, self.until, || self.place());
        stopped.unwrap_or(CallError::Read { source_index: self.index, error: ReadError::Stopped })
    }

    /// The next window, or what a record left of the last one.
    fn next_window(&mut self) -> Result<Option<(Chunk, usize)>, CallError> {
        let Windows::Ahead { reader, left, .. } = &mut self.windows else {
            unreachable!("only what is read has windows")
        };
        if let Some(left) = left.take() {
            return Ok(Some(left));
        }
        let (call, until) = (self.call, self.until);
        let read = match reader.next_unless(&|| is_over(call, until)).transpose() {
            Err(ReadError::Stopped) => return Err(self.stopped()),
            read => read.map_err(|error| CallError::Read { source_index: self.index, error })?,
        };
        self.next_window += u64::from(read.is_some());
        Ok(read.map(|chunk| (chunk, 0)))
    }

    /// Where in a window its first record begins; `None`: none does.
    fn first_record(&mut self, chunk: &Chunk, from: usize, window: u64) -> Option<usize> {
        let Windows::Ahead { has_lead, .. } = &mut self.windows else { unreachable!("only what is read has windows") };
        // An empty source is one piece of no bytes, so that it has a result.
        if window == 0 && chunk.len() == usize::from(*has_lead) {
            return Some(chunk.len());
        }
        let from = match self.pieces.split {
            // Only of a range that begins within the source: else every record is known to end.
            Split::Delimiter(delimiter) if *has_lead => {
                let found = memchr::memchr(delimiter, chunk)?;
                *has_lead = false;
                found + 1
            }
            _ => from,
        };
        (from < chunk.len()).then_some(from)
    }

    /// Where the last record of a window begins, counted from `from`, if it continues behind the window.
    fn open_record(&self, chunk: &Chunk, from: usize, is_last: bool) -> Option<usize> {
        let Windows::Ahead { goes_on, .. } = &self.windows else { unreachable!("only what is read has windows") };
        let is_end = is_last && goes_on.is_none();
        match self.pieces.split {
            Split::Bytes | Split::Fixed(_) => None,
            Split::Whole => (!is_last).then_some(0),
            Split::Delimiter(delimiter) => {
                let bytes = &chunk[from..];
                if is_end || bytes.last() == Some(&delimiter) {
                    return None;
                }
                Some(memchr::memrchr(delimiter, bytes).map_or(0, |at| at + 1))
            }
        }
    }

    /// Takes what the open piece's last record has in a window; gives the piece when that is all.
    fn go_on(
        &mut self,
        mut open: Open,
        chunk: Chunk,
        window: u64,
        is_last: bool,
    ) -> Result<Option<(Input, ChunkInfo)>, CallError> {
        let end = match self.pieces.split {
            Split::Delimiter(delimiter) => memchr::memchr(delimiter, &chunk).map(|at| at + 1),
            Split::Whole | Split::Bytes | Split::Fixed(_) => None,
        };
        self.extend(&mut open, &chunk[..end.unwrap_or(chunk.len())])?;
        let Windows::Ahead { left, goes_on, .. } = &mut self.windows else {
            unreachable!("only what is read has windows")
        };
        match end {
            None if !is_last || goes_on.is_some() => {
                self.open = Some(open);
                return Ok(None);
            }
            Some(end) if end < chunk.len() => *left = Some((chunk, end)),
            _ => {}
        }
        debug_assert!(window >= open.window, "windows come in order");
        let end = open.offset + open.input.len() as u64;
        let info = self.info(open.window, open.offset, end);
        Ok(Some((open.input, info)))
    }

    /// After the last window: the end of an open record lies behind the range.
    fn finish(&mut self) -> Result<Option<(Input, ChunkInfo)>, CallError> {
        let Windows::Ahead { origin, goes_on, .. } = &self.windows else {
            unreachable!("only what is read has windows")
        };
        let (Some(mut open), Some(from)) = (self.open.take(), *goes_on) else {
            // A request for no bytes is one piece of none; a range in which no record begins has no piece.
            let is_empty = self.next_window == 0 && self.request.is_empty();
            let start = self.request.start;
            return Ok(is_empty.then(|| (Input::Joined(Vec::new()), self.info(0, start, start))));
        };
        let Split::Delimiter(delimiter) = self.pieces.split else { unreachable!("only records go on behind a range") };
        let origin = origin.clone();
        let (call, until) = (self.call, self.until);
        let read = origin.read_on(from..self.len, self.index, &|| is_over(call, until), |bytes| {
            if let Some(stopped) = stopped_before(self.call, self.until, || self.place()) {
                return Err(stopped);
            }
            let end = memchr::memchr(delimiter, bytes).map(|at| at + 1);
            self.extend(&mut open, &bytes[..end.unwrap_or(bytes.len())])?;
            Ok(end.is_some())
        });
        match read {
            Err(CallError::Read { error: ReadError::Stopped, .. }) => return Err(self.stopped()),
            read => read?,
        }
        let end = open.offset + open.input.len() as u64;
        let info = self.info(open.window, open.offset, end);
        Ok(Some((open.input, info)))
    }

    fn extend(&mut self, open: &mut Open, more: &[u8]) -> Result<(), CallError> {
        let len = open.input.len() + more.len();
        let capacity = if self.pieces.split == Split::Whole {
            if len > self.pieces.len_bytes {
                self.pieces.check_len(self.call.function, &self.name, None)?;
            }
            // The length of a stream is unknown.
            let is_stream = self.request.end == u64::MAX;
            if is_stream { len.next_power_of_two() } else { (self.request.end - self.request.start) as usize }
        } else {
            if len - open.record > RECORD_LEN_MAX {
                return Err(self.record_too_long(open.offset + open.record as u64));
            }
            len.next_power_of_two()
        };
        self.reach(len, capacity, open.offset)?;
        open.input.append(more, capacity);
        Ok(())
    }

    /// Sees to it that there is room for a piece of so many bytes.
    fn reach(&mut self, len: usize, wanted: usize, offset: u64) -> Result<(), CallError> {
        let Some(growth) = self.room.growth.as_ref().filter(|_| len > self.room.len) else { return Ok(()) };
        growth.grow(wanted).map_err(|why| {
            let place = Place {
                source: self.name.to_string(),
                source_index: self.request_index,
                range: offset - self.zero..offset - self.zero + len as u64,
                folded: None,
            };
            // What is not divided has no records that could end.
            match self.pieces.split {
                Split::Whole => CallError::NoRoomForPiece { place, why },
                Split::Bytes | Split::Fixed(_) | Split::Delimiter(_) => CallError::NoRoomForRecord { place, why },
            }
        })?;
        self.room.len = wanted;
        Ok(())
    }

    fn record_too_long(&self, start: u64) -> CallError {
        let range = start - self.zero..start - self.zero + RECORD_LEN_MAX as u64;
        let place = Place { source: self.name.to_string(), source_index: self.request_index, range, folded: None };
        CallError::RecordTooLong { place, max: RECORD_LEN_MAX }
    }

    fn info(&self, window: u64, start: u64, end: u64) -> ChunkInfo {
        let offset = start - self.zero;
        let is_last = match &self.windows {
            Windows::Memory { bytes, .. } => end == bytes.len() as u64,
            Windows::Encoded { .. } => true,
            // The last window of a stream shows that it has ended.
            Windows::Ahead { reader, left, .. } if self.request.end == u64::MAX => reader.has_ended() && left.is_none(),
            Windows::Ahead { .. } => end >= self.request.end,
        };
        ChunkInfo {
            source: Arc::clone(&self.name),
            source_index: self.request_index,
            source_len: if self.len == u64::MAX { u64::MAX } else { self.len - self.zero },
            chunk_index: u32::try_from(window).unwrap_or(u32::MAX),
            offset,
            record_index: record_index(self.pieces.split, offset),
            first: window == 0,
            last: is_last,
            of_piece: true,
        }
    }
}
