//! The metadata of a file, and when its content may have changed.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use diskside_wire::file::{FileAttributes, FileTime};
use rustix::fs::{AtFlags, StatVfsMountFlags, Statx, StatxFlags, StatxTimestamp, fstatvfs, statx};
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

/// When a file system notes the time of a read, which may wait for its disk although the bytes are in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadTimes {
    Never,
    /// `relatime`: if the time that it knows is not behind the last change, or a day ago.
    Sometimes,
    Always,
}

impl ReadTimes {
    /// As the file's mount has them.
    pub(super) fn of(file: BorrowedFd<'_>) -> Self {
        let flags = fstatvfs(file).map_or(StatVfsMountFlags::empty(), |known| known.f_flag);
        if flags.intersects(StatVfsMountFlags::NOATIME | StatVfsMountFlags::RDONLY) {
            Self::Never
        } else if flags.contains(StatVfsMountFlags::RELATIME) {
            Self::Sometimes
        } else {
            Self::Always
        }
    }

    /// Whether a read of a file with this status is noted.
    pub(super) fn is_noted(self, known: &Statx, now: SystemTime) -> bool {
        let at = |time: &StatxTimestamp| (time.tv_sec, time.tv_nsec);
        let read = at(&known.stx_atime);
        let now_s = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed());
        match self {
            Self::Never => false,
            Self::Always => true,
            Self::Sometimes => {
                read <= at(&known.stx_mtime) || read <= at(&known.stx_ctime) || now_s.saturating_sub(read.0) >= DAY_S
            }
        }
    }
}

const DAY_S: i64 = 24 * 3600;

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

#[cfg(test)]
mod tests {
    use rustix::fs::{Timespec, Timestamps, futimens};
    use std::os::fd::AsFd as _;

    use super::*;

    /// A read of bytes in memory froze a reactor while the disk hung: the file system noted the time, for which it waited for its journal.
    #[test]
    fn a_read_after_a_change_or_the_first_of_a_day_is_noted() {
        let file = tempfile::tempfile().unwrap();
        let now = SystemTime::now();
        let seconds = now.duration_since(UNIX_EPOCH).unwrap().as_secs().cast_signed();
        let status = |read_s: i64| {
            let time = |tv_sec| Timespec { tv_sec, tv_nsec: 0 };
            let times = Timestamps { last_access: time(read_s), last_modification: time(seconds - 1000) };
            futimens(&file, &times).unwrap();
            status_now(file.as_fd()).unwrap()
        };
        // Its status changed just now: whatever was read before that is not the last.
        let before = status(seconds - 10);
        assert!(ReadTimes::Sometimes.is_noted(&before, now));
        let after = status(seconds + 10);
        assert!(!ReadTimes::Sometimes.is_noted(&after, now));
        let next_day = now + Duration::from_secs(24 * 3600 + 20);
        assert!(ReadTimes::Sometimes.is_noted(&after, next_day));
        assert!(ReadTimes::Always.is_noted(&after, now) && !ReadTimes::Never.is_noted(&before, now));
    }
}
