//! Files, volumes and whatever else is read and written by position, for one thread that drives a ring of its own.
//!
//! A [`ByteFile`] does not do an access: it says how it is done, with the buffer in it ([`Begun`]): by the caller's ring, by
//! somebody else, or it has done it at once. So its user decides how many accesses are under way, waits for all of
//! them in one place, and can stop waiting.

use std::any::Any;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, fstat};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::buffer::{ALIGNMENT_BYTES, Buffer};
use crate::instance::file_len_bytes;
use crate::request::RequestFuture;
use crate::ring::Op;

/// Bytes that are read and written by position.
pub trait ByteFile: fmt::Debug + Send + Sync {
    /// What messages call it.
    fn name(&self) -> &str;

    /// Present length in bytes.
    fn len_bytes(&self) -> Result<u64, Errno>;

    /// Says how `access` is done. Past the end a read has no bytes.
    fn begin(&self, access: Access) -> Begun;

    /// A number that differs from that of any other content that it had or will have; `None`: there is none now, so
    /// nothing of it is kept.
    fn version(&self) -> Option<u64>;

    /// Makes durable what was written. Waits.
    fn sync(&self) -> Result<(), Errno>;

    /// Hears of an access from this byte on that has ended, to count it.
    fn ended(&self, direction: Direction, offset: u64, result: Result<u64, Errno>, took: Duration) {
        let _ = (direction, offset, result, took);
    }
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the file.
    Read,
    /// To the file.
    Write,
}

/// What is to be done.
#[derive(Debug)]
pub struct Access {
    /// Which way.
    pub direction: Direction,
    /// First byte.
    pub offset: u64,
    /// All of it is filled, or written.
    pub buffer: Buffer,
    /// Not past the page cache: that was refused.
    pub cached: bool,
}

/// How it is done.
pub enum Begun {
    /// By the caller's ring.
    Ring {
        /// The operation, with the buffer. Its result may be short.
        op: Op,
        /// How long to wait before.
        after: Duration,
        /// Dropped when the operation is over.
        hold: Hold,
        /// Whether it passes the page cache by: then `EINVAL` means that the file system cannot.
        direct: bool,
    },
    /// By somebody else.
    Elsewhere {
        /// Its outcome. The buffer may come with it.
        future: RequestFuture,
        /// Or it is here.
        buffer: Option<Buffer>,
        /// Dropped when it is over.
        hold: Hold,
    },
    /// It was done, and counts as done after that time.
    Done {
        /// Bytes moved.
        result: Result<u64, Errno>,
        /// The buffer again.
        buffer: Buffer,
        /// How long to wait.
        after: Duration,
        /// Dropped then.
        hold: Hold,
    },
    /// Somebody has these bytes and will not have them for long: to be tried again soon.
    Busy {
        /// What is to be done.
        access: Access,
        /// Dropped before it is tried again, or when it will not be.
        hold: Hold,
    },
}

/// What keeps others away from bytes.
pub type Hold = Option<Box<dyn Any + Send>>;

impl Begun {
    /// It was done, or refused, at once.
    pub fn at_once(result: Result<u64, Errno>, buffer: Buffer) -> Self {
        Self::Done { result, buffer, after: Duration::ZERO, hold: None }
    }
}

impl fmt::Debug for Begun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ring { .. } => "Ring",
            Self::Elsewhere { .. } => "Elsewhere",
            Self::Done { .. } => "Done",
            Self::Busy { .. } => "Busy",
        })
    }
}

impl Access {
    /// Whether a device can do it: offset, length and memory are multiples of [`ALIGNMENT_BYTES`].
    pub fn is_aligned(&self) -> bool {
        let whole = |n: u64| n.is_multiple_of(ALIGNMENT_BYTES as u64);
        whole(self.offset) && whole(self.buffer.len() as u64) && self.buffer.is_aligned() && !self.buffer.is_empty()
    }

    /// By the ring, on this file.
    pub fn on(self, file: Arc<OwnedFd>) -> Op {
        let Self { direction, offset, buffer, .. } = self;
        let range = 0..buffer.len();
        match direction {
            Direction::Read => Op::Read { file, offset, buffer, range },
            Direction::Write => Op::Write { file, offset, buffer, range, durable: false },
        }
    }
}

/// An open file or block device of this machine: past the page cache where an access is aligned and the file system can.
#[derive(Debug)]
pub struct LocalBytes {
    name: String,
    file: Arc<OwnedFd>,
    writable: bool,
    direct: OnceLock<Option<Arc<OwnedFd>>>,
}

impl LocalBytes {
    /// Opens a path; to be written, it is made if it is not there.
    pub fn open(path: &std::path::Path, writable: bool) -> io::Result<Self> {
        let mut options = File::options();
        options.read(true).write(writable).create(writable).truncate(false);
        Ok(Self::of(path.display().to_string(), options.open(path)?.into(), writable))
    }

    /// An open file.
    pub fn of(name: String, file: OwnedFd, writable: bool) -> Self {
        Self { name, file: Arc::new(file), writable, direct: OnceLock::new() }
    }

    /// The descriptor through the page cache.
    pub fn cached(&self) -> &Arc<OwnedFd> {
        &self.file
    }

    /// The descriptor for an access, and whether it passes the page cache by.
    pub fn descriptor(&self, access: &Access) -> (&Arc<OwnedFd>, bool) {
        if access.cached || !access.is_aligned() {
            return (&self.file, false);
        }
        match self.direct.get_or_init(|| self.open_direct().ok().map(Arc::new)) {
            Some(direct) => (direct, true),
            None => (&self.file, false),
        }
    }

    fn open_direct(&self) -> Result<OwnedFd, Errno> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let access = if self.writable { OFlags::RDWR } else { OFlags::RDONLY };
        rustix::fs::open(path, access | OFlags::CLOEXEC | OFlags::DIRECT, Mode::empty())
    }
}

impl ByteFile for LocalBytes {
    fn name(&self) -> &str {
        &self.name
    }

    fn len_bytes(&self) -> Result<u64, Errno> {
        file_len_bytes(&*self.file).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    fn begin(&self, access: Access) -> Begun {
        if access.direction == Direction::Write && !self.writable {
            return Begun::at_once(Err(Errno::BADF), access.buffer);
        }
        let (file, direct) = self.descriptor(&access);
        Begun::Ring { op: access.on(Arc::clone(file)), after: Duration::ZERO, hold: None, direct }
    }

    fn version(&self) -> Option<u64> {
        version_of(&*self.file)
    }

    fn sync(&self) -> Result<(), Errno> {
        rustix::fs::fdatasync(&self.file)
    }
}

/// A number that identifies a file's content, by its length and times; `None`: it changed in the clock tick that passes
/// now, and may change again without a trace, or it has no such times.
pub fn version_of(file: impl AsFd) -> Option<u64> {
    let found = fstat(file).ok()?;
    if rustix::fs::FileType::from_raw_mode(found.st_mode) != rustix::fs::FileType::RegularFile {
        return None;
    }
    let now = clock_gettime(ClockId::RealtimeCoarse);
    let changed = (found.st_ctime as i64, found.st_ctime_nsec as i64);
    if changed >= (now.tv_sec, now.tv_nsec) {
        return None;
    }
    let words =
        [found.st_size as u64, found.st_mtime as u64, found.st_mtime_nsec as u64, changed.0 as u64, changed.1 as u64];
    // FNV-1a over words: it is compared with what the same file had a moment before.
    let step = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3);
    Some(words.into_iter().fold(0xcbf2_9ce4_8422_2325, step))
}
