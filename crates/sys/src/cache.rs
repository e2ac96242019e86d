//! The page cache of a file: what it holds, and bringing a range of it to the device.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;

use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::checked;

/// How many pages of a range the page cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Residency {
    /// Pages that it holds.
    pub cached: u64,
    /// Pages that are to be written or being written; `None` where the kernel does not tell (before 6.5).
    pub unwritten: Option<u64>,
}

/// The pages of a range that are in the page cache. The range is widened to whole pages.
///
/// Takes time for each folio that is there, so ask about some tens of MiB at a time.
///
/// # Errors
/// `EPERM` on a file that the caller neither owns nor may write: then it cannot be known.
pub fn residency(file: impl AsFd, range: Range<u64>) -> io::Result<Residency> {
    let file = file.as_fd();
    match residency_by_cachestat(file, &range) {
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => residency_by_mincore(file, &range),
        result => result,
    }
}

fn residency_by_cachestat(file: BorrowedFd<'_>, range: &Range<u64>) -> io::Result<Residency> {
    // A length of 0 would mean: to the end of the file.
    if range.is_empty() {
        return Ok(Residency { cached: 0, unwritten: Some(0) });
    }
    let asked = [range.start, range.end - range.start];
    // cache, dirty, writeback, evicted, recently_evicted
    let mut told = [0u64; 5];
    // SAFETY: cachestat reads a `struct cachestat_range` (two u64) and writes a `struct cachestat` (five u64).
    let answer =
        unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), asked.as_ptr(), told.as_mut_ptr(), 0 as libc::c_uint) };
    checked(answer as libc::c_int)?;
    Ok(Residency { cached: told[0], unwritten: Some(told[1] + told[2]) })
}

/// For kernels before 6.5. On a file that one may not write, `mincore` claims that every page is there; so a caller
/// that may not gets the error of `cachestat`.
#[doc(hidden)]
pub fn residency_by_mincore(file: BorrowedFd<'_>, range: &Range<u64>) -> io::Result<Residency> {
    let nothing = Residency { cached: 0, unwritten: None };
    if !may_know(file)? {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    let page = rustix::param::page_size() as u64;
    let end = range.end.min(statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::SIZE)?.stx_size);
    let (mut start, mut cached) = (range.start / page * page, 0);
    while start < end {
        let len = (end - start).min(MINCORE_BYTES_MAX) as usize;
        let mut pages = vec![0u8; len.div_ceil(page as usize)];
        // SAFETY: a fresh mapping of `len` bytes that is never read through, so a file that shrinks meanwhile does no
        // harm; `pages` has a byte for each of its pages; it is unmapped once, by its own address and length.
        unsafe {
            let mapping = mmap(ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, start)?;
            let answer = checked(libc::mincore(mapping, len, pages.as_mut_ptr()));
            munmap(mapping, len)?;
            answer?;
        }
        cached += pages.iter().filter(|page| **page & 1 != 0).count() as u64;
        start += len as u64;
    }
    Ok(Residency { cached, ..nothing })
}

/// The kernel's own condition for a true answer: the caller owns the file, or may write it.
fn may_know(file: BorrowedFd<'_>) -> io::Result<bool> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let access = rustix::fs::accessat(rustix::fs::CWD, path, rustix::fs::Access::WRITE_OK, AtFlags::EACCESS);
    if access.is_ok() {
        return Ok(true);
    }
    let owner = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::UID)?.stx_uid;
    Ok(owner == rustix::process::geteuid().as_raw())
}

/// Writes out the range's dirty pages and waits until the device has them. Makes nothing durable, allocates what was
/// delayed, and costs next to nothing where nothing is dirty.
///
/// # Errors
/// Those of `sync_file_range`, a failed write among them.
pub fn flush(file: impl AsFd, range: Range<u64>) -> io::Result<()> {
    let too_far = |_| io::Error::from(io::ErrorKind::InvalidInput);
    if range.is_empty() {
        return Ok(());
    }
    let start = libc::off64_t::try_from(range.start).map_err(too_far)?;
    let len = libc::off64_t::try_from(range.end - range.start).map_err(too_far)?;
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: only integers are passed.
    checked(unsafe { libc::sync_file_range(file.as_fd().as_raw_fd(), start, len, flags) })?;
    Ok(())
}

/// Begins to write out the range's dirty pages, and does not wait. Failures are reported when the file is made durable.
///
/// # Errors
/// Those of `sync_file_range` itself.
pub fn begin_flush(file: impl AsFd, range: Range<u64>) -> io::Result<()> {
    let too_far = |_| io::Error::from(io::ErrorKind::InvalidInput);
    if range.is_empty() {
        return Ok(());
    }
    let start = libc::off64_t::try_from(range.start).map_err(too_far)?;
    let len = libc::off64_t::try_from(range.end - range.start).map_err(too_far)?;
    // SAFETY: only integers are passed.
    checked(unsafe { libc::sync_file_range(file.as_fd().as_raw_fd(), start, len, libc::SYNC_FILE_RANGE_WRITE) })?;
    Ok(())
}

/// One number for all architectures since system calls are numbered together.
const SYS_CACHESTAT: libc::c_long = 451;
/// Bytes mapped at a time.
const MINCORE_BYTES_MAX: u64 = 64 << 20;
