//! The chunks of a call's sources, each with whole records, read ahead.

use super::headroom;
use crate::call::{Call, CallError, Growth, Place, Source};
use crate::split::{RECORD_LEN_MAX, Split, first_record, record_index, whole_records};
use crate::worker::ChunkInfo;
use diskside_io::readahead::{Chunk, ChunkReader, ReadAhead, ReadAt, ReadError};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes for the function: a read buffer, or memory.
pub(super) enum Input {
    Read { chunk: Chunk, range: Range<usize> },
    Joined(Vec<u8>),
    Shared { bytes: Arc<[u8]>, range: Range<usize> },
}

impl Input {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Read { chunk, range } => &chunk[range.clone()],
            Self::Joined(bytes) => bytes,
            Self::Shared { bytes, range } => &bytes[range.clone()],
        }
    }
}

/// Iterates over the chunks of all sources.
pub(super) struct Chunks<'a> {
    sources: std::iter::Enumerate<std::slice::Iter<'a, Source>>,
    split: Split,
    chunk_len: usize,
    depth: usize,
    growth: Option<&'a Arc<dyn Growth>>,
    current: Option<Current>,
    waited: Duration,
}

/// The source being read.
struct Current {
    name: Arc<str>,
    index: u32,
    len: u64,
    reading: Reading,
    /// Start of a record whose end was not yet read, and its offset in the source.
    carry: Vec<u8>,
    offset: u64,
    chunk_index: u32,
    room: Room,
}

/// How long a chunk may become.
struct Room {
    len: usize,
    /// Who may give more; `None`: there is as much as a record may have.
    growth: Option<Arc<dyn Growth>>,
}

impl Room {
    /// Sees to it that there is room for so many bytes of a record, of this source, that begins here.
    fn reach(&mut self, len: usize, (source, source_index): (&str, u32), offset: u64) -> Result<(), CallError> {
        let place = || Place { source: source.to_owned(), source_index, range: offset..offset + len as u64 };
        if len > RECORD_LEN_MAX {
            return Err(CallError::RecordTooLong { place: place(), max: RECORD_LEN_MAX });
        }
        if let Some(growth) = self.growth.as_ref().filter(|_| len > self.len) {
            let wanted = len.next_power_of_two().min(RECORD_LEN_MAX);
            growth.grow(wanted).map_err(|why| CallError::NoRoomForRecord { place: place(), why })?;
            self.len = wanted;
        }
        Ok(())
    }
}

enum Reading {
    Ahead {
        reader: ChunkReader,
        origin: Origin,
        /// True until the first record that starts in the range is found.
        skipping: bool,
        /// Where the range ends, when the last record may go on after it.
        extends_from: Option<u64>,
        done: bool,
    },
    Memory {
        bytes: Arc<[u8]>,
        at: usize,
        done: bool,
    },
}

/// What can be opened once more, to read the end of a record that goes on after a range.
#[derive(Clone)]
enum Origin {
    File(PathBuf),
    Reader(String, Arc<dyn ReadAt>),
    Stream,
}

impl Origin {
    fn open(&self, range: Range<u64>, how: &ReadAhead) -> Result<ChunkReader, ReadError> {
        match self {
            Self::File(path) => ChunkReader::open(path, range, how),
            Self::Reader(name, reader) => ChunkReader::over(Arc::clone(reader), name, range, how),
            Self::Stream => Err(std::io::Error::from(std::io::ErrorKind::NotSeekable).into()),
        }
    }

    /// Bytes in all.
    fn len(&self) -> Result<u64, ReadError> {
        match self {
            Self::File(path) => std::fs::metadata(path)
                .map(|metadata| metadata.len())
                .map_err(|source| ReadError::Open { path: path.clone(), source }),
            Self::Reader(_, reader) => Ok(reader.len()),
            Self::Stream => Ok(u64::MAX),
        }
    }
}

impl<'a> Chunks<'a> {
    pub(super) fn new(call: &'a Call<'_>, split: Split, chunk_len: usize, threads: usize) -> Self {
        Self {
            sources: call.sources.iter().enumerate(),
            split,
            chunk_len,
            // One chunk with each thread, one on its way to them, and two being read.
            depth: threads + 3,
            growth: call.growth.as_ref(),
            current: None,
            waited: Duration::ZERO,
        }
    }

    /// Time spent waiting for input.
    pub(super) fn waited(&self) -> Duration {
        self.waited
    }

    fn open(&self, index: usize, source: &Source) -> Result<Current, ReadError> {
        let name: Arc<str> = source.name().into();
        let (reading, len, offset) = match source {
            Source::Bytes { bytes, .. } => {
                (Reading::Memory { bytes: Arc::clone(bytes), at: 0, done: false }, bytes.len() as u64, 0)
            }
            Source::File { path, range } => self.open_ahead(Origin::File(path.clone()), range.as_ref())?,
            Source::Reader { name, reader, range } => {
                self.open_ahead(Origin::Reader(name.clone(), Arc::clone(reader)), range.as_ref())?
            }
            Source::Stream { name, stream } => {
                let reader = ChunkReader::of_stream(Arc::clone(stream), name, &self.how())?;
                let origin = Origin::Stream;
                (Reading::Ahead { reader, origin, skipping: false, extends_from: None, done: false }, u64::MAX, 0)
            }
        };
        // A chunk and the start of a record from the one before: the usual.
        let room = Room { len: 2 * self.chunk_len, growth: self.growth.cloned() };
        Ok(Current { name, index: index as u32, len, reading, carry: Vec::new(), offset, chunk_index: 0, room })
    }

    fn how(&self) -> ReadAhead {
        ReadAhead {
            chunk_bytes: self.chunk_len,
            depth: self.depth,
            headroom_bytes: headroom(self.split),
            ..ReadAhead::default()
        }
    }

    /// The range of a source that is read ahead, the source's length, and where reading begins.
    fn open_ahead(&self, origin: Origin, range: Option<&Range<u64>>) -> Result<(Reading, u64, u64), ReadError> {
        let how = self.how();
        let Some(range) = range else {
            let reader = match &origin {
                Origin::File(path) => ChunkReader::open(path, .., &how)?,
                other => other.open(0..other.len()?, &how)?,
            };
            let len = reader.range().end;
            return Ok((Reading::Ahead { reader, origin, skipping: false, extends_from: None, done: false }, len, 0));
        };
        let delimited = matches!(self.split, Split::Delimiter(_));
        let skipping = delimited && range.start > 0;
        let start = if skipping { range.start - 1 } else { range.start };
        let reader = origin.open(start..range.end, &how)?;
        let len = origin.len()?;
        let extends_from = (delimited && range.end < len).then_some(range.end);
        Ok((Reading::Ahead { reader, origin, skipping, extends_from, done: false }, len, start))
    }
}

impl Iterator for Chunks<'_> {
    type Item = Result<(Input, ChunkInfo), CallError>;

    fn next(&mut self) -> Option<Self::Item> {
        let started = Instant::now();
        let next = loop {
            if let Some(current) = &mut self.current {
                match current.next(self.split, self.chunk_len) {
                    Ok(Some(next)) => break Some(Ok(next)),
                    Ok(None) => self.current = None,
                    Err(e) => break Some(Err(e)),
                }
            }
            let Some((index, source)) = self.sources.next() else {
                break None;
            };
            match self.open(index, source) {
                Ok(current) => self.current = Some(current),
                Err(error) => break Some(Err(CallError::Read { source_index: index as u32, error })),
            }
        };
        self.waited += started.elapsed();
        next
    }
}

impl Current {
    /// The next chunk of whole records.
    fn next(&mut self, split: Split, chunk_len: usize) -> Result<Option<(Input, ChunkInfo)>, CallError> {
        loop {
            match &mut self.reading {
                Reading::Memory { done: true, .. } | Reading::Ahead { done: true, .. } => {
                    return Ok(None);
                }
                Reading::Memory { bytes, at, done } => {
                    let wanted = at.saturating_add(chunk_len).min(bytes.len());
                    let mut end = *at + whole_records(split, &bytes[*at..wanted], wanted == bytes.len());
                    if end == *at && wanted < bytes.len() {
                        // No record ends within a chunk: take it as long as it is.
                        end = match split {
                            Split::Delimiter(d) => {
                                memchr::memchr(d, &bytes[wanted..]).map_or(bytes.len(), |i| wanted + i + 1)
                            }
                            Split::None | Split::Fixed(_) => wanted,
                        };
                    }
                    let range = *at..end;
                    *at = end;
                    *done = end == bytes.len();
                    let (offset, last) = (range.start as u64, *done);
                    let input = Input::Shared { bytes: Arc::clone(bytes), range };
                    return Ok(Some((input, self.info(split, offset, last))));
                }
                Reading::Ahead { .. } => {
                    if let Some(next) = self.next_ahead(split)? {
                        return Ok(next);
                    }
                }
            }
        }
    }

    /// One read buffer: `None` when it held no whole record and more has to be read.
    #[allow(clippy::option_option, reason = "the outer level says whether to go on, the inner whether there is more")]
    fn next_ahead(&mut self, split: Split) -> Result<Option<Option<(Input, ChunkInfo)>>, CallError> {
        let Reading::Ahead { reader, origin, skipping, extends_from, done } = &mut self.reading else {
            return Ok(Some(None));
        };
        let source_index = self.index;
        let read = reader.next().transpose().map_err(|error| CallError::Read { source_index, error });
        let Some(chunk) = read? else {
            *done = true;
            if *skipping && self.chunk_index == 0 {
                return Ok(Some(None));
            }
            // An empty source is one chunk of no bytes, so that it has a result.
            if self.chunk_index == 0 && self.carry.is_empty() {
                let (offset, input) = (self.offset, Input::Joined(Vec::new()));
                return Ok(Some(Some((input, self.info(split, offset, true)))));
            }
            return Ok(Some(None));
        };
        let ends_range = chunk.is_last();
        *done = ends_range;
        let mut start = 0;
        if *skipping {
            match first_record(split, &chunk) {
                Some(i) => start = i,
                None if ends_range => return Ok(Some(None)),
                None => {
                    self.offset += chunk.len() as u64;
                    return Ok(None);
                }
            }
            *skipping = false;
            self.offset += start as u64;
            if start == chunk.len() && ends_range {
                // The first record that starts here starts at the range's end: it is the next one's.
                return Ok(Some(None));
            }
        }
        let extends = extends_from.filter(|_| ends_range);
        let whole = start + whole_records(split, &chunk[start..], ends_range && extends.is_none());
        if let Some(from) = extends {
            let (name, origin) = (Arc::clone(&self.name), origin.clone());
            let mut bytes = std::mem::take(&mut self.carry);
            bytes.extend_from_slice(&chunk[start..]);
            if whole < chunk.len() || (whole == start && !bytes.is_empty()) {
                finish_record((&name, self.index), &origin, (self.offset, from), split, &mut bytes, &mut self.room)?;
            }
            let offset = self.offset;
            return Ok(Some(Some((Input::Joined(bytes), self.info(split, offset, true)))));
        }
        if whole == start && !ends_range {
            self.carry_over(&chunk[start..])?;
            return Ok(None);
        }
        let tail = chunk[whole..].to_vec();
        let offset = self.offset;
        let input = self.join(chunk, start..whole);
        self.offset = offset + input.bytes().len() as u64;
        self.carry = tail;
        Ok(Some(Some((input, self.info(split, offset, ends_range)))))
    }

    /// The carried start of a record with the rest of it.
    fn join(&mut self, mut chunk: Chunk, range: Range<usize>) -> Input {
        let carry = std::mem::take(&mut self.carry);
        if carry.is_empty() {
            return Input::Read { chunk, range };
        }
        // A carry comes from an earlier chunk, so this one is used from its first byte.
        if range.start == 0 && chunk.prepend(&carry) {
            return Input::Read { chunk, range: 0..carry.len() + range.end };
        }
        let mut bytes = carry;
        bytes.extend_from_slice(&chunk[range]);
        Input::Joined(bytes)
    }

    fn carry_over(&mut self, bytes: &[u8]) -> Result<(), CallError> {
        self.room.reach(self.carry.len() + bytes.len(), (&self.name, self.index), self.offset)?;
        self.carry.extend_from_slice(bytes);
        Ok(())
    }

    fn info(&mut self, split: Split, offset: u64, last: bool) -> ChunkInfo {
        let chunk_index = self.chunk_index;
        self.chunk_index += 1;
        ChunkInfo {
            source: Arc::clone(&self.name),
            source_index: self.index,
            source_len: self.len,
            chunk_index,
            offset,
            record_index: record_index(split, offset),
            first: chunk_index == 0,
            last,
        }
    }
}

/// What is read first behind a range for the end of its last record.
const RECORD_REST: u64 = 16 << 10;

/// Reads on after a range until the record that began in it ends.
fn finish_record(
    source: (&str, u32),
    origin: &Origin,
    (begin, from): (u64, u64),
    split: Split,
    bytes: &mut Vec<u8>,
    room: &mut Room,
) -> Result<(), CallError> {
    let Split::Delimiter(delimiter) = split else {
        return Ok(());
    };
    if bytes.last() == Some(&delimiter) {
        return Ok(());
    }
    let failed = |error| CallError::Read { source_index: source.1, error };
    let len = origin.len().map_err(failed)?;
    // Most records end soon, and what is behind them is nobody's.
    let soon = from.saturating_add(RECORD_REST).min(len);
    for (range, chunk_bytes) in [(from..soon, RECORD_REST as usize), (soon..len, 256 << 10)] {
        let how = ReadAhead { chunk_bytes, depth: 1, ..ReadAhead::default() };
        for chunk in origin.open(range, &how).map_err(failed)? {
            let chunk = chunk.map_err(failed)?;
            let end = memchr::memchr(delimiter, &chunk).map(|i| i + 1);
            let part = &chunk[..end.unwrap_or(chunk.len())];
            room.reach(bytes.len() + part.len(), source, begin)?;
            bytes.extend_from_slice(part);
            if end.is_some() {
                return Ok(());
            }
        }
    }
    Ok(())
}
