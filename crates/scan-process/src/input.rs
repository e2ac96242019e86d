//! The bytes of the file: read by descriptor, or asked for and awaited.

use bytes::Bytes;
use diskside_scan::{Failure, FailureKind, Frame, READ_LEN_MAX, ReadOf, ReadsBy, Start, To};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::reader::{ChunkReader, Length};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{Read, Stderr, Write as _};
use std::ops::Range;
use std::os::fd::AsFd as _;

/// Ranges with so few bytes between them are read together.
const GAP_LEN_MAX: u64 = 64 << 10;
/// Reads that are asked for at one time.
const ASKED_MAX: usize = 32;

/// The file.
pub(crate) struct Input {
    name: String,
    len: u64,
    read_len: u64,
    file: Option<Stderr>,
    /// Reads that were begun: first those that were asked for, then those that will be.
    begun: VecDeque<(Range<u64>, ReadOf)>,
    asked: usize,
    /// Answers that came before they were waited for.
    early: RefCell<VecDeque<Frame>>,
    takes_turns: bool,
    has_waited: Cell<bool>,
}

/// What other threads do while bytes are waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Computes {
    Something,
    Nothing,
}

/// Ranges on their way.
pub(crate) struct Fetching(Vec<Range<u64>>);

/// Ranges that any thread may read.
pub(crate) struct Unread {
    name: String,
    len: u64,
    parts: Parts,
}

enum Parts {
    Here(Vec<(u64, Bytes)>),
    InFile(Vec<Range<u64>>),
}

/// Ranges of the file that are here.
#[derive(Clone)]
pub(crate) struct Fetched {
    len: u64,
    parts: Vec<(u64, Bytes)>,
}

impl Input {
    pub(crate) fn new(start: &Start) -> Self {
        let file = (start.reads_by == ReadsBy::Descriptor).then(std::io::stderr);
        let (name, len) = (start.name.clone(), start.file_len);
        let (begun, early, has_waited) = Default::default();
        Self { name, len, read_len: 0, file, begun, asked: 0, early, takes_turns: start.threads.is_none(), has_waited }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn read_len(&self) -> u64 {
        self.read_len
    }

    pub(crate) fn failure(&self, kind: FailureKind, what: impl std::fmt::Display) -> Failure {
        Failure { kind, message: format!("{}: {what}", self.name) }
    }

    /// Begins to read ranges that have rows.
    ///
    /// # Errors
    /// One is not in the file.
    pub(crate) fn begin(&mut self, ranges: Vec<Range<u64>>) -> Result<Fetching, Failure> {
        self.begin_of(ranges, ReadOf::Rows)
    }

    /// The same of what tells where rows are and which.
    pub(crate) fn begin_metadata(&mut self, ranges: Vec<Range<u64>>) -> Result<Fetching, Failure> {
        self.begin_of(ranges, ReadOf::Metadata)
    }

    fn begin_of(&mut self, mut ranges: Vec<Range<u64>>, of: ReadOf) -> Result<Fetching, Failure> {
        if let Some(range) = ranges.iter().find(|range| range.start > range.end || range.end > self.len) {
            let told = format!("bytes {} to {} are not in it: it has {}", range.start, range.end, self.len);
            return Err(self.failure(FailureKind::File, told));
        }
        ranges.sort_unstable_by_key(|range| range.start);
        let mut joined: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            match joined.last_mut() {
                Some(last)
                    if range.start <= last.end.saturating_add(GAP_LEN_MAX)
                        && range.end.saturating_sub(last.start) <= READ_LEN_MAX as u64 =>
                {
                    last.end = last.end.max(range.end);
                }
                _ => joined.push(range),
            }
        }
        if self.file.is_none() {
            self.begun.extend(joined.iter().flat_map(pieces).map(|piece| (piece, of)));
            self.ask()?;
        }
        Ok(Fetching(joined))
    }

    /// Reads ranges. Those that were begun first are finished first.
    pub(crate) fn finish(&mut self, fetching: Fetching) -> Result<Fetched, Failure> {
        self.wait(fetching, Computes::Nothing)?.read()
    }

    /// Waits until ranges can be read without waiting for the parent.
    pub(crate) fn wait(&mut self, fetching: Fetching, meanwhile: Computes) -> Result<Unread, Failure> {
        let Fetching(ranges) = fetching;
        self.read_len += ranges.iter().map(|range| range.end - range.start).sum::<u64>();
        let parts = match &self.file {
            Some(_) => Parts::InFile(ranges),
            None => {
                let here = |range: Range<u64>| Ok((range.start, Bytes::from(self.receive(&range, meanwhile)?)));
                Parts::Here(ranges.into_iter().map(here).collect::<Result<_, _>>()?)
            }
        };
        Ok(Unread { name: self.name.clone(), len: self.len, parts })
    }

    /// Whether ranges that were begun can most likely be read at once.
    pub(crate) fn has_come(&self) -> bool {
        self.file.is_some() || !self.early.borrow().is_empty() || is_readable()
    }

    /// Whether it has told the parent, since this was asked last, that nothing is computed: then it asks for a turn.
    pub(crate) fn has_waited(&self) -> bool {
        self.has_waited.take()
    }

    /// Reads one range of what tells where rows are and which.
    pub(crate) fn read_metadata(&mut self, range: Range<u64>) -> Result<Bytes, Failure> {
        let fetching = self.begin_metadata(vec![range])?;
        Ok(self.finish(fetching)?.first())
    }

    /// Reads one range that has rows.
    pub(crate) fn read(&mut self, range: Range<u64>) -> Result<Bytes, Failure> {
        let fetching = self.begin(vec![range])?;
        Ok(self.finish(fetching)?.first())
    }

    fn receive(&mut self, range: &Range<u64>, meanwhile: Computes) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
        for piece in pieces(range) {
            let read = self.awaited(meanwhile)?;
            if read.len() as u64 != piece.end - piece.start {
                return Err(self.failure(FailureKind::Reading, "a read brought another length"));
            }
            bytes.extend_from_slice(&read);
        }
        Ok(bytes)
    }

    /// Asks for as much at one time as it may.
    fn ask(&mut self) -> Result<(), Failure> {
        while self.asked < ASKED_MAX.min(self.begun.len()) {
            let (range, of) = &self.begun[self.asked];
            let frame = Frame::Read { offset: range.start, len: (range.end - range.start) as u32, of: *of };
            let mut out = std::io::stdout().lock();
            let sent = frame.write(&mut out).and_then(|()| out.flush());
            sent.map_err(|error| self.failure(FailureKind::Reading, error))?;
            self.asked += 1;
        }
        Ok(())
    }

    /// Waits for a turn, of so many threads. Bytes that come meanwhile are for later.
    pub(crate) fn granted(&self) -> Result<u32, Failure> {
        loop {
            match Frame::read(&mut std::io::stdin().lock(), To::Child) {
                Ok(Frame::Granted { threads }) => return Ok(threads),
                Ok(frame @ (Frame::Bytes(_) | Frame::NotRead(_))) => self.early.borrow_mut().push_back(frame),
                _ => return Err(self.failure(FailureKind::Reading, "nobody answers any more")),
            }
        }
    }

    /// The next answer. While it is not there, the server need not keep a turn for this process.
    fn answer(&self, meanwhile: Computes) -> Result<Frame, Failure> {
        if let Some(frame) = self.early.borrow_mut().pop_front() {
            return Ok(frame);
        }
        let failed = |error: &dyn std::fmt::Display| self.failure(FailureKind::Reading, error);
        if self.takes_turns && meanwhile == Computes::Nothing && !is_readable() {
            self.has_waited.set(true);
            let mut out = std::io::stdout().lock();
            Frame::Waits.write(&mut out).and_then(|()| out.flush()).map_err(|error| failed(&error))?;
        }
        Frame::read(&mut std::io::stdin().lock(), To::Child).map_err(|error| failed(&error))
    }

    fn awaited(&mut self, meanwhile: Computes) -> Result<Vec<u8>, Failure> {
        let frame = self.answer(meanwhile)?;
        self.begun.pop_front();
        self.asked -= 1;
        self.ask()?;
        match frame {
            Frame::Bytes(bytes) => Ok(bytes),
            // The parent names the file.
            Frame::NotRead(message) => Err(Failure { kind: FailureKind::Reading, message }),
            _ => Err(self.failure(FailureKind::Reading, "a read was answered with something else")),
        }
    }
}

/// Whether an answer, or its beginning, is in the pipe. One that was read ahead of is taken for late, which costs a turn.
fn is_readable() -> bool {
    let stdin = std::io::stdin();
    let mut readable = [PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN)];
    poll(&mut readable, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) != Ok(0)
}

fn pieces(range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let end = range.end;
    (range.start..end).step_by(READ_LEN_MAX).map(move |start| start..end.min(start + READ_LEN_MAX as u64))
}

impl Unread {
    /// Reads them.
    pub(crate) fn read(self) -> Result<Fetched, Failure> {
        let parts = match self.parts {
            Parts::Here(parts) => parts,
            Parts::InFile(ranges) => {
                let read = |range: Range<u64>| match pread(&range) {
                    Ok(bytes) => Ok((range.start, Bytes::from(bytes))),
                    Err(what) => Err(Failure { kind: FailureKind::Reading, message: format!("{}: {what}", self.name) }),
                };
                ranges.into_iter().map(read).collect::<Result<_, _>>()?
            }
        };
        Ok(Fetched { len: self.len, parts })
    }
}

/// Reads a range of the file that this process has.
fn pread(range: &Range<u64>) -> Result<Vec<u8>, String> {
    let (file, len) = (std::io::stderr(), (range.end - range.start) as usize);
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let offset = range.start + bytes.len() as u64;
        match rustix::io::pread(&file, spare_capacity(&mut bytes), offset) {
            Ok(0) => return Err("it became shorter while it was read".into()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.to_string()),
        }
    }
    // A vector may have more room than it was asked for.
    bytes.truncate(len);
    Ok(bytes)
}

impl Length for Fetched {
    fn len(&self) -> u64 {
        self.len
    }
}

impl Fetched {
    /// All of the first range.
    pub(crate) fn first(&self) -> Bytes {
        self.parts.first().map_or(Bytes::new(), |(_, bytes)| bytes.clone())
    }

    fn from(&self, start: u64) -> ParquetResult<Bytes> {
        let found = self.parts.iter().find_map(|(first, bytes)| {
            let skipped = usize::try_from(start.checked_sub(*first)?).ok()?;
            (skipped < bytes.len()).then(|| bytes.slice(skipped..))
        });
        found.ok_or_else(|| ParquetError::EOF(format!("byte {start} is in no chunk of the needed columns")))
    }
}

impl ChunkReader for Fetched {
    type T = BytesReader;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        self.from(start).map(BytesReader)
    }

    fn get_bytes(&self, start: u64, len: usize) -> ParquetResult<Bytes> {
        let from = self.from(start)?;
        if len > from.len() {
            return Err(ParquetError::EOF(format!("{len} bytes from {start} on are beyond the chunk")));
        }
        Ok(from.slice(..len))
    }
}

/// Bytes, as they are read one after another.
pub(crate) struct BytesReader(Bytes);

impl BytesReader {
    /// Those that are left.
    pub(crate) fn left(self) -> Bytes {
        self.0
    }
}

impl Read for BytesReader {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let count = into.len().min(self.0.len());
        into[..count].copy_from_slice(&self.0.split_to(count));
        Ok(count)
    }
}
