//! Overwriting a file's content, where no other file can take its place.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::fs::{self, FallocateFlags, FlockOperation};
use rustix::io::Errno;

const PIECE_LEN: usize = 1 << 20;
/// How long to wait for another who overwrites the file.
const TURN_PATIENCE: Duration = Duration::from_secs(10);
const TURN_LOOK: Duration = Duration::from_millis(5);

/// Makes the content of `from` that of `to`. Room is reserved first, so that a full disk is met before anything is changed.
///
/// # Errors
/// The system's error. Unless it was about room, `to` may hold the beginning of the new content before the rest of the
/// old.
pub(crate) fn overwrite(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<(), Errno> {
    let len = fs::fstat(from)?.st_size.cast_unsigned();
    let _turn = Turn::take(to);
    reserve(to, len)?;
    let mut piece = vec![0; PIECE_LEN];
    let mut offset = 0;
    while offset < len {
        let read = retry(|| rustix::io::pread(from, &mut piece[..], offset))?;
        if read == 0 {
            return Err(Errno::IO);
        }
        let mut written = 0;
        while written < read {
            match retry(|| rustix::io::pwrite(to, &piece[written..read], offset + written as u64))? {
                0 => return Err(Errno::IO),
                more => written += more,
            }
        }
        offset += read as u64;
    }
    fs::ftruncate(to, len)
}

/// Keeps others that overwrite the same file waiting, as two at once would leave a mix of both.
struct Turn<'a>(Option<BorrowedFd<'a>>);

impl<'a> Turn<'a> {
    /// Waits for a while only: the lock may be one that the user's own program keeps.
    fn take(file: BorrowedFd<'a>) -> Self {
        let end = Instant::now() + TURN_PATIENCE;
        loop {
            match retry(|| fs::flock(file, FlockOperation::NonBlockingLockExclusive)) {
                Ok(()) => return Self(Some(file)),
                Err(Errno::WOULDBLOCK) if Instant::now() < end => std::thread::sleep(TURN_LOOK),
                Err(_) => return Self(None),
            }
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(file) = self.0 {
            let _ = fs::flock(file, FlockOperation::Unlock);
        }
    }
}

/// Where the file system can: others find out as they write.
fn reserve(file: BorrowedFd<'_>, len: u64) -> Result<(), Errno> {
    if len == 0 {
        return Ok(());
    }
    match retry(|| fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, len)) {
        Err(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(errno),
        _ => Ok(()),
    }
}

fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}
