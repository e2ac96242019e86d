//! The chunks of a file, of anything that can be read at a position, or of a stream, in order.

use std::fmt;
use std::io;
use std::ops::{Range, RangeBounds};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, Mode, OFlags};
use rustix::io::Errno;

use super::any::{CloseStream, InOrder, RangeReader, ReadAt, ReadStream, StreamReader};
use super::chunk::Chunk;
use super::control::{Control, Wake, spawn};
use super::error::ReadError;
use super::file::{Began, check, is_writable, mostly_cached, open_direct, within};
use super::plan::Plan;
use super::reader::{Reader, Source};
use super::settings::{Access, ReadAhead};
use crate::buffer::{Buffer, Pool};
use crate::ring::{Ring, RingConfig};

/// How long the consumer looks for the next chunk before it sleeps.
const CONSUMER_SPIN: Duration = Duration::from_micros(50);
/// A range of a file that is one chunk and no longer than this is read where it is asked for.
const SHORT_LEN_MAX: u64 = 1 << 20;
/// More chunks than this are not read at once, whatever is asked for.
const DEPTH_MAX: usize = 1024;

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
    thread: Option<JoinHandle<()>>,
}

/// Where chunks come from.
enum Coming {
    Thread(Receiver<Result<Chunk, ReadError>>),
    /// All there is, read already.
    Read(Option<Box<Result<Chunk, ReadError>>>),
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
            return Ok(Self::short(&file, path, range).beginning(began));
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
        let is_direct = direct.is_some();
        let source = Source { path, buffered: file, direct, may_fall_back: how.access == Access::Auto };
        let plan = Plan::new(range.clone(), how);
        let depth = how.depth.min(DEPTH_MAX);
        let pool = Pool::new(depth + 1, plan.buffer_bytes(), how.hugepages);
        Self::start(source, plan, pool, depth, range, is_direct).map(|reader| reader.beginning(began))
    }

    fn beginning(mut self, began: Option<Began>) -> Self {
        self.began = began;
        self
    }

    /// Reads a range of one chunk at once, through the page cache.
    fn short(file: &OwnedFd, path: PathBuf, range: Range<u64>) -> Self {
        let control = Control::of_this_thread();
        let ended = range.is_empty();
        let read = (!ended).then(|| Box::new(read_short(file, path, &range, &control)));
        Self {
            chunks: Coming::Read(read),
            range,
            direct: false,
            began: None,
            control,
            ended,
            stream: None,
            thread: None,
        }
    }

    fn start(
        source: Source,
        plan: Plan,
        pool: Pool,
        depth: usize,
        range: Range<u64>,
        direct: bool,
    ) -> Result<Self, ReadError> {
        let (deliver, chunks) = channel();
        let (answer, made) = sync_channel(1);
        let thread = std::thread::Builder::new().name("read-ahead".into()).spawn(move || {
            let config = RingConfig { entries: depth as u32 + 2, spin: Duration::ZERO, ..RingConfig::default() };
            let ring = match Ring::new(&config) {
                Ok(ring) => ring,
                Err(error) => return drop(answer.send(Err(error))),
            };
            let control = Arc::new(Control { stop: AtomicBool::new(false), wake: Wake::Ring(ring.waker()) });
            if answer.send(Ok(Arc::clone(&control))).is_ok() {
                Reader::new(ring, source, plan, pool, depth, control, deliver).run();
            }
        })?;
        let control = made.recv().map_err(|_| io::Error::other("the reading thread ended at its start"))??;
        let ended = range.is_empty();
        let chunks = Coming::Thread(chunks);
        Ok(Self { chunks, range, direct, began: None, control, ended, stream: None, thread: Some(thread) })
    }

    /// Reads `range` of anything that can be read at a position, which errors call `name`. A range of one chunk is read
    /// at once, on this thread.
    pub fn over(
        reader: Arc<dyn ReadAt>,
        name: impl AsRef<Path>,
        range: impl RangeBounds<u64>,
        how: &ReadAhead,
    ) -> Result<Self, ReadError> {
        let name = name.as_ref().to_owned();
        check_how(how)?;
        let range = within(&name, range, reader.len())?;
        let plan = Plan::new(range.clone(), how);
        let pieces = plan.pieces();
        let pool = Pool::new(how.depth.min(DEPTH_MAX) + 1, plan.buffer_bytes(), how.hugepages);
        let (deliver, chunks) = channel();
        let (next, deliver) = (Mutex::new(0), Mutex::new(InOrder::new(deliver)));
        let read = |control| RangeReader { reader, name, plan, pool, control, next, deliver }.run();
        let (control, thread) = if pieces <= 1 {
            let control = Control::of_this_thread();
            read(Arc::clone(&control));
            (control, None)
        } else {
            spawn(read).map(|(control, thread)| (control, Some(thread)))?
        };
        let ended = range.is_empty();
        let chunks = Coming::Thread(chunks);
        Ok(Self { chunks, range, direct: false, began: None, control, ended, stream: None, thread })
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
        let (control, thread) = spawn(move |control| {
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
        if self.ended {
            return None;
        }
        let next = self.receive().map(|next| match (next, &self.began) {
            (Ok(chunk), Some(began)) if chunk.is_last() => began.check().map(|()| chunk),
            (next, _) => next,
        });
        self.ended = next.as_ref().is_none_or(|next| next.as_ref().is_ok_and(Chunk::is_last) || next.is_err());
        // The reading thread ends after the last chunk or an error, unless it panicked.
        Some(next.unwrap_or_else(|| Err(io::Error::other("the reading thread ended before the last chunk").into())))
    }
}

impl ChunkReader {
    fn receive(&mut self) -> Option<Result<Chunk, ReadError>> {
        let chunks = match &mut self.chunks {
            Coming::Read(chunk) => return chunk.take().map(|chunk| *chunk),
            Coming::Thread(chunks) => chunks,
        };
        let started = Instant::now();
        loop {
            match chunks.try_recv() {
                Ok(chunk) => return Some(chunk),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) if started.elapsed() >= CONSUMER_SPIN => return chunks.recv().ok(),
                Err(TryRecvError::Empty) => std::hint::spin_loop(),
            }
        }
    }
}

impl Drop for ChunkReader {
    fn drop(&mut self) {
        self.control.stop.store(true, Ordering::Release);
        self.stream = None;
        self.control.wake();
        if let Some(thread) = self.thread.take() {
            // A panic in it is a bug that its own message reports.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for ChunkReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunkReader").field("range", &self.range).field("direct", &self.direct).finish_non_exhaustive()
    }
}

/// The one chunk of a short range.
fn read_short(file: &OwnedFd, path: PathBuf, range: &Range<u64>, control: &Arc<Control>) -> Result<Chunk, ReadError> {
    let mut buffer = Buffer::zeroed((range.end - range.start) as usize);
    let mut filled = 0;
    while filled < buffer.len() {
        let offset = range.start + filled as u64;
        match rustix::io::pread(file, &mut buffer[filled..], offset) {
            Ok(0) => return Err(ReadError::Shrunk { path, found: offset, expected: range.end }),
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(ReadError::Read { path, offset, source: errno.into() }),
        }
    }
    let (data, control) = (0..filled, Arc::clone(control));
    Ok(Chunk { buffer: Some(buffer), data, offset: range.start, last: true, control })
}

fn check_how(how: &ReadAhead) -> io::Result<()> {
    if how.chunk_bytes == 0 || how.depth == 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "chunk_bytes and depth must be at least 1"));
    }
    Ok(())
}
