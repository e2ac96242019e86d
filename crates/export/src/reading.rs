//! How files are read: what is asked for and no more, and the next piece meanwhile.
//!
//! The kernel's own read-ahead is of megabytes on many disks. Hosts ask for what they lack, and functions for parts of
//! files: with every part as slow as what lies behind it, the disk would be busy with bytes that nobody wants. So both read
//! through an open file of their own that says so. Past the page cache, nothing is kept for the next call, and nothing that
//! others need is driven out.

use std::io::IoSliceMut;
use std::num::NonZero;
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

use diskside_io::buffer::{ALIGNMENT_BYTES, Part};
use diskside_io::ownring::{self, Moved};
use diskside_io::readahead::open_direct;
use diskside_io::ring::Op;
use diskside_sys::attributes::is_remote;
use diskside_sys::cache::residency;
use rustix::buffer::spare_capacity;
use rustix::fs::{Advice, CWD, Mode, OFlags, Statx, fadvise, openat};
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2};

use super::attributes::ReadTimes;
use super::open_file::OpenFile;
use crate::FileAccess;

/// Shorter reads of hosts are the kernel's to foresee.
pub(super) const LONG_LEN_MIN: usize = 64 << 10;
/// The read-ahead behind a host's read that continues where the last one ended, at least.
const PLAIN_AHEAD_LEN: u64 = 512 << 10;

/// After so many short reads in a row that were not in memory, the next ones are hardly worth a look: two calls of the kernel each.
const MISSES_MIN: u32 = 16;
/// Then one of so many is looked at, so that a file which has come to memory is noticed.
const LOOK_EVERY: u32 = 16;

/// After so many reads in a row that were in memory, the next one is taken to be there, too.
const HITS_MIN: u32 = 64;

/// A file's open files to read from, made when they are needed. `None` in one: it cannot be opened again.
#[derive(Debug, Default)]
pub(super) struct Readers {
    buffered: OnceLock<Option<Arc<OwnedFd>>>,
    direct: OnceLock<Option<Arc<OwnedFd>>>,
    /// Whether its file system waits for others while a read is begun.
    is_remote: OnceLock<bool>,
    times: OnceLock<ReadTimes>,
    /// Short reads of hosts since the last one that was in memory.
    misses: AtomicU32,
    /// Reads of traversals since the last one that was not in memory.
    hits: AtomicU32,
    /// Where the last long read of a host ended.
    plain_end: AtomicU64,
    /// The file system opens it with `O_DIRECT` and takes no such reads, or not in these blocks.
    refused: AtomicBool,
}

/// A range that is read through the page cache or past it.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    end: u64,
    direct: bool,
}

impl Reading {
    /// Through the page cache, nothing ahead.
    pub(super) fn here_and_there() -> Self {
        Self { end: 0, direct: false }
    }

    /// Chooses for a range of a file of so many bytes.
    pub(super) fn of(file: &OpenFile, range: &Range<u64>, len_bytes: u64) -> Self {
        let direct = match file.export.access {
            FileAccess::Buffered => false,
            FileAccess::Direct => true,
            FileAccess::Auto => !stays_cached(len_bytes) && !is_mostly_cached(file, range),
        };
        Self { end: range.end, direct }
    }

    /// Reads some bytes into the start of a part of a buffer: none only at the end of the file.
    pub(super) async fn read(&self, file: &OpenFile, offset: u64, into: Part) -> Moved {
        let (readers, range, len) = (&file.readers, into.range.clone(), into.len() as u64);
        let is_remote = *readers.is_remote.get_or_init(|| is_remote(&file.fd).unwrap_or(false));
        let direct = if self.direct { readers.direct(file, offset, &into) } else { None };
        let mut buffer = into.buffer;
        if let Some((direct, whole)) = direct {
            let range = range.start..range.start + whole;
            let read = Op::Read { file: Arc::clone(direct), offset, buffer, range };
            let moved = ownring::moved_of(Some(file.export.health.ask(Instant::now())), read, is_remote).await;
            if !matches!(moved.result, Err(Errno::INVAL | Errno::OPNOTSUPP)) {
                return moved;
            }
            // The file system opens it so, and takes no such reads.
            readers.refused.store(true, Ordering::Relaxed);
            buffer = moved.buffer;
        }
        let asked = Some(file.export.health.ask(Instant::now()));
        let fd = readers.buffered(file);
        let next = offset.saturating_add(len);
        begin_reading(fd.as_fd(), next, self.end.saturating_sub(next).min(len));
        // The kernel's threads copy what comes to the page cache, some pieces at a time: this one would copy all of them.
        ownring::moved_of(asked, Op::Read { file: Arc::clone(fd), offset, buffer, range }, true).await
    }

    /// Whether it passes the page cache by.
    pub(super) fn is_direct(&self) -> bool {
        self.direct
    }

    /// Fills the buffer if the page cache has all of it; waits for nothing.
    pub(super) fn read_now(&self, file: &OpenFile, offset: u64, buffer: &mut [u8]) -> bool {
        !self.direct && file.readers.read_cached(file, offset, buffer)
    }
}

impl Readers {
    /// Fills the buffer if the page cache has all of it; waits for nothing if it has.
    pub(super) fn read_cached(&self, file: &OpenFile, offset: u64, into: &mut [u8]) -> bool {
        let len = into.len();
        // Fewer bytes are as good as none, and the read that waits reports any error.
        preadv2(self.buffered(file), &mut [IoSliceMut::new(into)], offset, ReadWriteFlags::NOWAIT) == Ok(len)
    }

    /// The same for a reactor. To try has the kernel read what is not there, for which it may have to ask the disk where that is: so it is
    /// asked first if it has the bytes, unless the file was in memory all the time. It does not tell those who neither own the file nor may
    /// write it: then it is tried.
    pub(super) fn read_hot(&self, file: &OpenFile, offset: u64, into: &mut [u8]) -> bool {
        let is_hot = || self.hits.load(Ordering::Relaxed) >= HITS_MIN;
        let is_there = || is_cached(file, offset..offset + into.len() as u64).unwrap_or(true);
        let is_read = (is_hot() || is_there()) && self.read_cached(file, offset, into);
        if !is_read {
            self.hits.store(0, Ordering::Relaxed);
        } else if !is_hot() {
            self.hits.fetch_add(1, Ordering::Relaxed);
        }
        is_read
    }

    /// Adds up to so many bytes for a host that reads itself. One that continues where it was finds the next ones there.
    pub(super) fn read_plain(
        &self,
        file: &OpenFile,
        offset: u64,
        len: usize,
        into: &mut Vec<u8>,
    ) -> Result<usize, Errno> {
        // Of short reads the kernel knows better what comes next.
        if len < LONG_LEN_MIN {
            return pread(&file.fd, spare_capacity(into), offset);
        }
        let (fd, end) = (self.buffered(file), offset.saturating_add(len as u64));
        if self.plain_end.swap(end, Ordering::Relaxed) == offset {
            begin_reading(fd.as_fd(), end, (len as u64).max(PLAIN_AHEAD_LEN));
        }
        pread(fd, spare_capacity(into), offset)
    }

    /// Fills the buffer with so many bytes, all there are, as [`read_plain`](Self::read_plain) would; waits for nothing.
    pub(super) fn read_plain_now(&self, file: &OpenFile, offset: u64, into: &mut [u8], there: usize) -> bool {
        preadv2(&file.fd, &mut [IoSliceMut::new(into)], offset, ReadWriteFlags::NOWAIT) == Ok(there)
    }

    /// Whether to look if the next short read of a host is in memory.
    pub(super) fn is_worth_a_look(&self) -> bool {
        let misses = self.misses.fetch_add(1, Ordering::Relaxed);
        misses < MISSES_MIN || misses.is_multiple_of(LOOK_EVERY)
    }

    /// One was in memory.
    pub(super) fn was_in_memory(&self) {
        self.misses.store(0, Ordering::Relaxed);
    }

    /// Whether a read of a file with this status waits for its disk, to note the time, although its bytes are in memory.
    pub(super) fn is_noted(&self, file: &OpenFile, known: &Statx) -> bool {
        let times = self.times.get_or_init(|| ReadTimes::of(file.fd.as_fd()));
        times.is_noted(known, SystemTime::now())
    }

    fn buffered<'a>(&'a self, file: &'a OpenFile) -> &'a Arc<OwnedFd> {
        let opened = self.buffered.get_or_init(|| {
            let path = format!("/proc/self/fd/{}", file.fd.as_raw_fd());
            let fd = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
            fadvise(&fd, 0, None, Advice::Random).ok()?;
            Some(Arc::new(fd))
        });
        opened.as_ref().unwrap_or(&file.fd)
    }

    /// The descriptor past the page cache, and how many of these bytes are whole blocks for it. `None`: none of them.
    fn direct(&self, file: &OpenFile, offset: u64, into: &Part) -> Option<(&Arc<OwnedFd>, usize)> {
        let whole = into.len() / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
        let is_aligned = offset.is_multiple_of(ALIGNMENT_BYTES as u64) && into.is_aligned();
        if whole == 0 || !is_aligned || self.refused.load(Ordering::Relaxed) {
            return None;
        }
        let opened = self.direct.get_or_init(|| open_direct(&file.fd).ok().map(Arc::new));
        opened.as_ref().map(|direct| (direct, whole))
    }
}

/// Has the kernel read what is not in the page cache. Only advice: a file system that ignores it is slower.
fn begin_reading(fd: BorrowedFd<'_>, offset: u64, len: u64) {
    if let Some(len) = NonZero::new(len) {
        let _ = fadvise(fd, offset, Some(len), Advice::WillNeed);
    }
}

/// Whether the page cache has all of a range. `None`: the kernel does not tell.
pub(super) fn is_cached(file: &OpenFile, range: Range<u64>) -> Option<bool> {
    let page = rustix::param::page_size() as u64;
    let pages = range.end.div_ceil(page) - range.start / page;
    if range.is_empty() {
        return Some(true);
    }
    Some(residency(&file.fd, range).ok()?.cached >= pages)
}

/// Whether the page cache holds half of a range. Where the kernel does not tell, it is read through it.
fn is_mostly_cached(file: &OpenFile, range: &Range<u64>) -> bool {
    let pages = (range.end - range.start) / rustix::param::page_size() as u64;
    residency(&file.fd, range.clone()).map_or(true, |held| held.cached >= pages / 2)
}

/// Whether a file of so many bytes may stay in the page cache from one call to the next: half of the machine's memory is
/// more than it can count on.
fn stays_cached(len_bytes: u64) -> bool {
    let machine = rustix::system::sysinfo();
    let memory_bytes = machine.totalram as u64 * u64::from(machine.mem_unit);
    len_bytes <= memory_bytes / 2
}
