//! The chunks of a file in order, while the next ones are being read.
//!
//! ```no_run
//! # use diskside_io::readahead::{ChunkReader, ReadAhead};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut sum = 0_u64;
//! for chunk in ChunkReader::open("data.bin", .., &ReadAhead::default())? {
//!     let chunk = chunk?; // up to `depth` chunks after this one are read meanwhile
//!     sum += chunk.iter().map(|&byte| u64::from(byte)).sum::<u64>();
//! }
//! # Ok(()) }
//! ```
//!
//! A thread with a ring of its own fills aligned buffers of a bounded pool; the consumer gets the
//! buffers themselves, without a copy, and gives each back by dropping its [`Chunk`]. Memory is
//! bounded by `(depth + 1) × (chunk_bytes + tailroom_bytes + 12 KiB)`. So at most `depth + 1` chunks
//! exist: who keeps that many and asks for another waits until one of them is dropped. A range of a file that is one
//! short chunk is read at once, on the caller's thread: with many small files a thread and a ring for each would be most
//! of the work.
//!
//! The range is fixed when the reader is made. A file that ends before the range does has been
//! shortened meanwhile; that is [`ReadError::Shrunk`], never a short success.

mod any;
mod error;
mod plan;
mod reader;

use std::fmt;
use std::io;
use std::ops::{Bound, Deref, Range, RangeBounds};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use rustix::fs::{Advice, FileType, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

use crate::buffer::{Buffer, Hugepages, Pool};
use crate::instance::file_len_bytes;
use crate::ring::{Ring, RingConfig, Waker};
use any::{CloseStream, InOrder, RangeReader, StreamReader};
pub use any::{ReadAt, ReadAtError, ReadStream};
pub use error::ReadError;
use plan::Plan;
use reader::{Reader, Source};

/// How long the consumer looks for the next chunk before it sleeps.
const CONSUMER_SPIN: Duration = Duration::from_micros(50);
/// Pages looked at to learn whether a file is cached.
const CACHE_SAMPLES: u64 = 16;
/// A range of a file that is one chunk and no longer than this is read where it is asked for.
const SHORT_LEN_MAX: u64 = 1 << 20;
/// More chunks than this are not read at once, whatever is asked for.
const DEPTH_MAX: usize = 1024;

/// How a file is read ahead.
#[derive(Clone, Debug)]
pub struct ReadAhead {
    /// Bytes of a chunk; the last may be shorter. At least 1.
    pub chunk_bytes: usize,
    /// Chunks read, or being read, before the consumer asks for them. At least 1; more than 1,024 are taken as 1,024.
    pub depth: usize,
    /// Bytes that the first chunk has more than the others, such as one that tells whether a record begins behind it.
    pub lead_bytes: usize,
    /// Free bytes behind each chunk, for [`Chunk::append`].
    pub tailroom_bytes: usize,
    /// Through the page cache or past it.
    pub access: Access,
    /// Whether to ask for huge pages for the buffers.
    pub hugepages: Hugepages,
}

/// Through the page cache or past it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// `O_DIRECT` where the file system allows it and less than half of the range is cached; else buffered. An open file that
    /// can also be written is read through its descriptor alone: that may have to be the only one.
    #[default]
    Auto,
    /// Through the page cache.
    Buffered,
    /// With `O_DIRECT`; an error where the file system refuses it.
    Direct,
}

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

/// A regular file when reading began.
#[derive(Debug)]
struct Began {
    file: Arc<OwnedFd>,
    path: PathBuf,
    len_bytes: u64,
    /// Seconds and nanoseconds.
    modified: (i64, u64),
}

impl Began {
    /// `None`: the system says nothing of it, or it is not a regular file.
    fn of(file: &Arc<OwnedFd>, path: &Path) -> Option<Self> {
        let found = rustix::fs::fstat(file).ok()?;
        let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        is_file.then(|| Self {
            file: Arc::clone(file),
            path: path.to_owned(),
            len_bytes: found.st_size.cast_unsigned(),
            modified: (found.st_mtime, found.st_mtime_nsec),
        })
    }

    /// Whether what was read is what the file had at the start. One that has become longer is taken to have only grown, as a log
    /// does.
    fn check(&self) -> Result<(), ReadError> {
        let Some(now) = Self::of(&self.file, &self.path) else { return Ok(()) };
        if now.len_bytes > self.len_bytes || (now.len_bytes, now.modified) == (self.len_bytes, self.modified) {
            return Ok(());
        }
        Err(ReadError::Changed { path: self.path.clone(), how: "it was written meanwhile".into() })
    }
}

/// Consecutive bytes of a file, in a buffer that is used again after this is dropped.
pub struct Chunk {
    /// `None` only while it is being dropped.
    buffer: Option<Buffer>,
    data: Range<usize>,
    offset: u64,
    last: bool,
    control: Arc<Control>,
}

/// Where chunks come from.
enum Coming {
    Thread(Receiver<Result<Chunk, ReadError>>),
    /// All there is, read already.
    Read(Option<Box<Result<Chunk, ReadError>>>),
}

/// How the consumer tells the reading thread something.
struct Control {
    stop: AtomicBool,
    wake: Wake,
}

/// How the reading thread sleeps.
enum Wake {
    Ring(Waker),
    /// The one that sleeps, or slept last.
    Thread(Mutex<Thread>),
}

impl Control {
    fn wake(&self) {
        match &self.wake {
            Wake::Ring(waker) => waker.wake(),
            Wake::Thread(thread) => thread.lock().unwrap_or_else(PoisonError::into_inner).unpark(),
        }
    }
}

impl Default for ReadAhead {
    fn default() -> Self {
        Self {
            chunk_bytes: 8 << 20,
            depth: 3,
            lead_bytes: 0,
            tailroom_bytes: 0,
            access: Access::Auto,
            hugepages: Hugepages::Ask,
        }
    }
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
        let wake = Wake::of(&std::thread::current());
        let control = Arc::new(Control { stop: AtomicBool::new(false), wake });
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
            let wake = Wake::of(&std::thread::current());
            let control = Arc::new(Control { stop: AtomicBool::new(false), wake });
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

impl Chunk {
    /// Position of the chunk's first byte in the file.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether the range ends with this chunk.
    pub fn is_last(&self) -> bool {
        self.last
    }

    /// Bytes that [`append`](Self::append) can still take.
    pub fn tailroom_bytes(&self) -> usize {
        self.buffer.as_ref().expect("present until dropped").len() - self.data.end
    }

    /// Puts bytes directly behind the chunk's own, so that a record that ends in the next chunk is contiguous. Returns
    /// false, and does nothing, when they exceed the tailroom.
    #[must_use = "bytes that do not fit are not appended"]
    pub fn append(&mut self, bytes: &[u8]) -> bool {
        let (start, end) = (self.data.end, self.data.end + bytes.len());
        let buffer = self.buffer.as_mut().expect("present until dropped");
        let Some(room) = buffer.get_mut(start..end) else { return false };
        room.copy_from_slice(bytes);
        self.data.end = end;
        true
    }
}

impl Deref for Chunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer.as_ref().expect("present until dropped")[self.data.clone()]
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // First into the pool, then the news of it.
        self.buffer = None;
        self.control.wake();
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunk").field("offset", &self.offset).field("len", &self.data.len()).finish_non_exhaustive()
    }
}

/// Starts the thread of a reader that sleeps by parking.
fn spawn(read: impl FnOnce(Arc<Control>) + Send + 'static) -> io::Result<(Arc<Control>, JoinHandle<()>)> {
    let (answer, made) = sync_channel(1);
    let thread = std::thread::Builder::new().name("read-ahead".into()).spawn(move || {
        let wake = Wake::of(&std::thread::current());
        let control = Arc::new(Control { stop: AtomicBool::new(false), wake });
        if answer.send(Arc::clone(&control)).is_ok() {
            read(control);
        }
    })?;
    let control = made.recv().map_err(|_| io::Error::other("the reading thread ended at its start"))?;
    Ok((control, thread))
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

/// The range of the file in bytes.
fn check(file: &OwnedFd, path: &Path, range: impl RangeBounds<u64>) -> Result<Range<u64>, ReadError> {
    let open_error = |source: io::Error| ReadError::Open { path: path.to_owned(), source };
    let stat = rustix::fs::fstat(file).map_err(|errno| open_error(errno.into()))?;
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile | FileType::BlockDevice => None,
        FileType::Directory => Some("directory"),
        FileType::Fifo => Some("pipe"),
        FileType::Socket => Some("socket"),
        FileType::CharacterDevice => Some("character device"),
        _ => Some("special file"),
    };
    if let Some(kind) = kind {
        return Err(ReadError::NotAFile { path: path.to_owned(), kind });
    }
    let len = file_len_bytes(file).map_err(open_error)?;
    within(path, range, len)
}

/// The range of `len` bytes.
fn within(path: &Path, range: impl RangeBounds<u64>, len: u64) -> Result<Range<u64>, ReadError> {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => len.max(start),
    };
    if start > end || end > len {
        return Err(ReadError::OutOfRange { path: path.to_owned(), start, end, len });
    }
    Ok(start..end)
}

/// The same file once more, past the page cache. It is opened by what the descriptor means, not by a name, which may mean
/// another file by now.
///
/// # Errors
/// The file system does not take `O_DIRECT`, or the file may not be opened by this user.
pub fn open_direct(file: impl AsFd) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECT;
    rustix::fs::open(path, flags, Mode::empty())
}

/// Whether at least half of the range is in the page cache, judged by samples.
fn is_writable(file: &OwnedFd) -> bool {
    rustix::fs::fcntl_getfl(file).is_ok_and(|flags| flags & OFlags::RWMODE != OFlags::RDONLY)
}

fn mostly_cached(file: &OwnedFd, range: &Range<u64>) -> bool {
    // The kernel begins to read the missing page, without waiting for it, and not all that comes behind it.
    let _ = rustix::fs::fadvise(file, 0, None, Advice::Random);
    let len = range.end - range.start;
    let samples = CACHE_SAMPLES.min(len.div_ceil(4096)).max(1);
    let mut cached = 0;
    for sample in 0..samples {
        let at = range.start + len / samples * sample;
        let mut byte = [0];
        // A read that must not wait succeeds only from the cache.
        match rustix::io::preadv2(file, &mut [io::IoSliceMut::new(&mut byte)], at, ReadWriteFlags::NOWAIT) {
            Ok(_) => cached += 1,
            Err(Errno::AGAIN) => {}
            // A file system that cannot say is read the ordinary way.
            Err(_) => return true,
        }
    }
    cached * 2 >= samples
}
