//! The file that is read: its range, whether the page cache has it, and whether it changed meanwhile.

use std::io;
use std::ops::{Bound, Range, RangeBounds};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Advice, FileType, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

use super::error::ReadError;
use crate::instance::file_len_bytes;

/// Pages looked at to learn whether a file is cached.
const CACHE_SAMPLES: u64 = 16;

/// A regular file when reading began.
#[derive(Debug)]
pub(super) struct Began {
    file: Arc<OwnedFd>,
    path: PathBuf,
    len_bytes: u64,
    /// Seconds and nanoseconds.
    modified: (i64, u64),
}

impl Began {
    /// `None`: the system says nothing of it, or it is not a regular file.
    pub(super) fn of(file: &Arc<OwnedFd>, path: &Path) -> Option<Self> {
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
    pub(super) fn check(&self) -> Result<(), ReadError> {
        let Some(now) = Self::of(&self.file, &self.path) else { return Ok(()) };
        if now.len_bytes > self.len_bytes || (now.len_bytes, now.modified) == (self.len_bytes, self.modified) {
            return Ok(());
        }
        Err(ReadError::Changed { path: self.path.clone(), how: "it was written meanwhile".into() })
    }
}

/// The range of the file in bytes.
pub(super) fn check(file: &OwnedFd, path: &Path, range: impl RangeBounds<u64>) -> Result<Range<u64>, ReadError> {
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
pub(super) fn within(path: &Path, range: impl RangeBounds<u64>, len: u64) -> Result<Range<u64>, ReadError> {
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

pub(super) fn is_writable(file: &OwnedFd) -> bool {
    rustix::fs::fcntl_getfl(file).is_ok_and(|flags| flags & OFlags::RWMODE != OFlags::RDONLY)
}

/// Whether at least half of the range is in the page cache, judged by samples.
pub(super) fn mostly_cached(file: &OwnedFd, range: &Range<u64>) -> bool {
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
