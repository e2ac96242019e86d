//! The metadata of a file, and when its content may have changed.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use diskside_wire::file::{FileAttributes, FileTime};
use rustix::fs::{AtFlags, Statx, StatxFlags, StatxTimestamp, statx};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use twox_hash::XxHash3_64;

/// How long a file that changed just now is waited for. A tick is 1 to 10 ms.
const SETTLE_MAX: Duration = Duration::from_millis(50);
const SETTLE_POLL: Duration = Duration::from_millis(1);

/// The status of an open file.
pub(super) fn status(file: BorrowedFd<'_>) -> Result<Statx, Errno> {
    status_at(file, b"", AtFlags::EMPTY_PATH)
}

/// The status as this machine knows it: another one is not asked.
pub(super) fn status_now(file: BorrowedFd<'_>) -> Option<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let known = statx(file, "", flags, StatxFlags::BASIC_STATS).ok()?;
    let wanted = StatxFlags::TYPE | StatxFlags::SIZE | StatxFlags::INO | StatxFlags::MTIME | StatxFlags::CTIME;
    StatxFlags::from_bits_retain(known.stx_mask).contains(wanted).then_some(known)
}

/// The status of a name in a directory, or with `EMPTY_PATH` of the directory itself.
pub(super) fn status_at(dir: BorrowedFd<'_>, name: &[u8], flags: AtFlags) -> Result<Statx, Errno> {
    statx(dir, name, flags | AtFlags::NO_AUTOMOUNT, StatxFlags::BASIC_STATS)
}

/// The version of a file, once no further change can leave it as it is: waits for the end of the clock tick in which
/// the file changed last.
pub(super) fn settled_version(file: BorrowedFd<'_>) -> Result<(u64, Statx), Errno> {
    let started = Instant::now();
    loop {
        let status = status(file)?;
        if !is_recent(&status) || started.elapsed() >= SETTLE_MAX {
            return Ok((version(&status), status));
        }
        std::thread::sleep(SETTLE_POLL);
    }
}

/// A digest of all that shows a change of content. Never 0.
pub(super) fn version(status: &Statx) -> u64 {
    let time = |time: &StatxTimestamp| (time.tv_sec as u64, u64::from(time.tv_nsec));
    let (mtime, ctime) = (time(&status.stx_mtime), time(&status.stx_ctime));
    let words = [device(status), status.stx_ino, status.stx_size, mtime.0, mtime.1, ctime.0, ctime.1];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    XxHash3_64::oneshot(&bytes).max(1)
}

/// The status as it travels.
pub(super) fn attributes(status: &Statx, read_only: bool) -> FileAttributes {
    let time = |time: &StatxTimestamp| FileTime::new(time.tv_sec, time.tv_nsec);
    let mut attributes = FileAttributes::zeroed();
    attributes.version.set(version(status));
    attributes.inode.set(status.stx_ino);
    attributes.device.set(device(status));
    attributes.size.set(status.stx_size);
    attributes.allocated.set(status.stx_blocks.saturating_mul(512));
    attributes.mode.set(status.stx_mode.into());
    attributes.links.set(status.stx_nlink);
    attributes.uid.set(status.stx_uid);
    attributes.gid.set(status.stx_gid);
    attributes.modified = time(&status.stx_mtime);
    attributes.changed = time(&status.stx_ctime);
    attributes.block_len.set(status.stx_blksize);
    let read_only = if read_only { FileAttributes::READ_ONLY } else { 0 };
    let recent = if is_recent(status) { FileAttributes::RECENT } else { 0 };
    attributes.flags.set(read_only | recent);
    attributes
}

/// Whether the file changed in the clock tick that passes now: another change could get the same time.
pub(super) fn is_recent(status: &Statx) -> bool {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    let changed = &status.stx_ctime;
    (changed.tv_sec, i64::from(changed.tv_nsec)) >= (now.tv_sec, now.tv_nsec)
}

fn device(status: &Statx) -> u64 {
    u64::from(status.stx_dev_major) << 32 | u64::from(status.stx_dev_minor)
}
