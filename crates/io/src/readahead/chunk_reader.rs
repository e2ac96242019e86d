//! The chunks of a file, of anything that can be read at a position, or of a stream, in order.

use std::fmt;
use std::io;
use std::ops::{Range, RangeBounds};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::{Duration, Instant};

use rustix::fs::{Advice, Mode, OFlags};

use super::any::{CloseStream, ReadAt, ReadStream, StreamReader};
use super::chunk::Chunk;
use super::control::{Control, ReadingThread, spawn};
use super::error::ReadError;
use super::file::{Began, check, is_writable, mostly_cached, open_direct, within};
use super::local::LocalFile;
use super::plan::Plan;
use super::reader::RangeReader;
use super::settings::{Access, DEPTH_MAX, ReadAhead};
use crate::buffer::Pool;
use crate::ownring;

/// How long the consumer looks for the next chunk before it sleeps.
const CONSUMER_SPIN: Duration = Duration::from_micros(50);
/// A range of a file that is one chunk and no longer than this is read where it is asked for.
const SHORT_LEN_MAX: u64 = 1 << 20;
/// Chunks that are read at once of anything but a file of this machine, at most.
const READS_AT_ONCE_MAX: usize = 8;

/// Reads a range of a file ahead; an iterator over its chunks. After an error it ends.
pub struct ChunkReader {
    chunks: Coming,
    range: Range<u64>,
    direct: bool,
    /// The regular file that is read, as it was at the start.
    began: Option<Began>,
    control: Arc<Control>,
    /// Whether the last chunk, or an error, was handed out.
    ended: bool,
    stream: Option<CloseStream>,
    thread: Option<ReadingThread>,
}

/// Where chunks come from.
enum Coming {
    Thread(Receiver<Result<Chunk, ReadError>>),
    /// All there is, for the consumer to read.
    Here(Option<Box<RangeReader>>),
}

impl ChunkReader {
    /// Reads `range` of the file at `path`; an open end is the end of the file.
    pub fn open(path: impl AsRef<Path>, range: impl RangeBounds<u64>, how: &ReadAhead) -> Result<Self, ReadError> {
        let path = path.as_ref();
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|errno| ReadError::Open { path: path.to_owned(), source: errno.into() })?;
        Self::new(Arc::new(file), path, range, how)
    }

    /// Reads `range` of an open file, which errors call `name`. Its position is not used.
    pub fn new(
        file: Arc<OwnedFd>,
        name: impl AsRef<Path>,
        range: impl RangeBounds<u64>,
        how: &ReadAhead,
    ) -> Result<Self, ReadError> {
        let path = name.as_ref().to_owned();
        check_how(how)?;
        let range = check(&file, &path, range)?;
        let len = range.end - range.start;
        let began = Began::of(&file, &path);
        if how.access != Access::Direct && len <= SHORT_LEN_MAX.min(how.chunk_bytes as u64) {
            let file = LocalFile::new(path.clone(), file, None, false, range.end);
            let reader = RangeReader::new(Arc::new(file), path, &range, how, 1);
            let mut this = Self::here(reader, range);
            this.began = began;
            return Ok(this);
        }
        let direct = match how.access {
            Access::Buffered => None,
            Access::Direct => Some(open_direct(&*file).map(Arc::new).map_err(|errno| {
                let source = io::Error::from(errno);
                ReadError::Open {
                    path: path.clone(),
                    source: io::Error::new(source.kind(), format!("O_DIRECT: {source}")),
                }
            })?),
            Access::Auto if is_writable(&file) || mostly_cached(&file, &range) => None,
            Access::Auto => open_direct(&*file).map(Arc::new).ok(),
        };
        // Only advice: a file system that ignores it is slower.
        let _ = rustix::fs::fadvise(&file, range.start, None, Advice::Sequential);
        let (is_direct, depth) = (direct.is_some(), how.depth.min(DEPTH_MAX));
        let file = LocalFile::new(path.clone(), file, direct, how.access == Access::Auto, range.end);
        let reader = RangeReader::new(Arc::new(file), path, &range, how, depth);
        let mut this = Self::start(true, reader, range)?;
        (this.direct, this.began) = (is_direct, began);
        Ok(this)
    }

    /// For the consumer to read when it asks.
    fn here(reader: RangeReader, range: Range<u64>) -> Self {
        let (control, ended) = (Control::of_this_thread(), range.is_empty());
        let chunks = Coming::Here(Some(Box::new(reader)));
        Self { chunks, range, direct: false, began: None, control, ended, stream: None, thread: None }
    }

    fn start(has_ring: bool, reader: RangeReader, range: Range<u64>) -> Result<Self, ReadError> {
        let (deliver, chunks) = channel();
        let (control, thread) = spawn(has_ring, move |control| reader.run(&control, &deliver))?;
        let (ended, chunks, thread) = (range.is_empty(), Coming::Thread(chunks), Some(thread));
        Ok(Self { chunks, range, direct: false, began: None, control, ended, stream: None, thread })
    }

    /// Reads `range` of anything that can be read at a position, which errors call `name`. A range of one chunk is read
    /// by the thread that asks for it.
    pub fn over(
        reader: Arc<dyn ReadAt>,
        name: impl AsRef<Path>,
        range: impl RangeBounds<u64>,
        how: &ReadAhead,
    ) -> Result<Self, ReadError> {
        let name = name.as_ref().to_owned();
        check_how(how)?;
        let range = within(&name, range, reader.len())?;
        let depth = reader.reads_at_once().clamp(1, READS_AT_ONCE_MAX);
        let reader = RangeReader::new(reader, name, &range, how, depth);
        if reader.plan.pieces() > 1 {
            return Self::start(false, reader, range);
        }
        Ok(Self::here(reader, range))
    }

    /// Reads a stream to its end. An empty one gives one empty chunk. Its `range` ends nowhere.
    pub fn of_stream(stream: Arc<dyn ReadStream>, name: impl AsRef<Path>, how: &ReadAhead) -> Result<Self, ReadError> {
        let name = name.as_ref().to_owned();
        check_how(how)?;
        // The arithmetic of a single chunk: a stream has no positions to align to.
        let (chunk_bytes, lead_bytes) = (how.chunk_bytes, how.lead_bytes);
        let plan = Plan::new(0..(chunk_bytes + lead_bytes) as u64, how);
        let pool = Pool::new(how.depth.min(DEPTH_MAX) + 1, plan.buffer_bytes(), how.hugepages);
        let (deliver, chunks) = channel();
        let close = CloseStream(Arc::downgrade(&stream));
        let (control, thread) = spawn(false, move |control| {
            StreamReader { stream, name, chunk_bytes, lead_bytes, pool, control, deliver }.run();
        })?;
        let range = 0..u64::MAX;
        Ok(Self {
            chunks: Coming::Thread(chunks),
            range,
            direct: false,
            began: None,
            control,
            ended: false,
            stream: Some(close),
            thread: Some(thread),
        })
    }

    /// The bytes that will be read.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Whether the last chunk was handed out, or an error.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether reading began with `O_DIRECT`.
    pub fn is_direct(&self) -> bool {
        self.direct
    }
}

impl Iterator for ChunkReader {
    type Item = Result<Chunk, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_unless(&|| false)
    }
}

impl ChunkReader {
    /// The next chunk, unless it is `stopped`, which is asked some times a second: then it ends with [`ReadError::Stopped`], whatever the
    /// medium does.
    pub fn next_unless(&mut self, stopped: &dyn Fn() -> bool) -> Option<Result<Chunk, ReadError>> {
        if self.ended {
            return None;
        }
        let next = self.receive(stopped).map(|next| match (next, &self.began) {
            (Ok(chunk), Some(began)) if chunk.is_last() => began.check().map(|()| chunk),
            (next, _) => next,
        });
        self.ended = next.as_ref().is_none_or(|next| next.as_ref().is_ok_and(Chunk::is_last) || next.is_err());
        // The reading thread ends after the last chunk or an error, unless it panicked.
        Some(next.unwrap_or_else(|| Err(io::Error::other("the reading thread ended before the last chunk").into())))
    }

    fn receive(&mut self, stopped: &dyn Fn() -> bool) -> Option<Result<Chunk, ReadError>> {
        let chunks = match &mut self.chunks {
            Coming::Here(reader) => {
                let reader = reader.take()?;
                let buffer = reader.pool.take().expect("nobody has a buffer yet");
                let read = ownring::run_unless(reader.piece(0, buffer, &self.control), stopped);
                return Some(read.unwrap_or(Err(ReadError::Stopped)));
            }
            Coming::Thread(chunks) => chunks,
        };
        let started = Instant::now();
        loop {
            match chunks.try_recv() {
                Ok(chunk) => return Some(chunk),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) if started.elapsed() < CONSUMER_SPIN => std::hint::spin_loop(),
                Err(TryRecvError::Empty) if stopped() => return Some(Err(ReadError::Stopped)),
                Err(TryRecvError::Empty) => match chunks.recv_timeout(ownring::LOOK) {
                    Ok(chunk) => return Some(chunk),
                    Err(RecvTimeoutError::Disconnected) => return None,
                    Err(RecvTimeoutError::Timeout) => {}
                },
            }
        }
    }
}

impl Drop for ChunkReader {
    fn drop(&mut self) {
        self.control.stop();
        self.stream = None;
        if let Some(thread) = self.thread.take() {
            thread.wait();
        }
    }
}

impl fmt::Debug for ChunkReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunkReader").field("range", &self.range).field("direct", &self.direct).finish_non_exhaustive()
    }
}

fn check_how(how: &ReadAhead) -> io::Result<()> {
    if how.chunk_bytes == 0 || how.depth == 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "chunk_bytes and depth must be at least 1"));
    }
    Ok(())
}
