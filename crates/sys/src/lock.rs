//! Locks on whole files for others to respect: those of an open file description (`F_OFD_SETLK`, `fcntl(2)`).
//!
//! Other than those of `flock(2)`, which know nothing of them, QEMU takes and respects these. They are advisory: who does
//! not ask is not kept from anything. A lock ends when the last descriptor of its open file description is closed.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// What a lock keeps others from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// Exclusive locks. The descriptor must be open for reading.
    Shared,
    /// Any lock. The descriptor must be open for writing.
    Exclusive,
}

/// Takes a lock, or changes the one that is held. False: somebody has one that excludes it.
pub fn try_lock(file: impl AsFd, lock: Lock) -> io::Result<bool> {
    let kind = match lock {
        Lock::Shared => libc::F_RDLCK,
        Lock::Exclusive => libc::F_WRLCK,
    };
    // From the start to wherever the end will be.
    let whole = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: F_OFD_SETLK reads one `struct flock`.
    match crate::checked(unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_OFD_SETLK, &raw const whole) }) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exclusive_lock_is_alone_and_shared_ones_are_not() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let open = || std::fs::File::options().read(true).write(true).open(&path).unwrap();
        let (first, second, third) = (open(), open(), open());
        assert!(try_lock(&first, Lock::Exclusive).unwrap());
        assert!(!try_lock(&second, Lock::Exclusive).unwrap());
        assert!(!try_lock(&second, Lock::Shared).unwrap());
        assert!(try_lock(&first, Lock::Shared).unwrap(), "changed");
        assert!(try_lock(&second, Lock::Shared).unwrap());
        assert!(!try_lock(&third, Lock::Exclusive).unwrap());
        drop((first, second));
        assert!(try_lock(&third, Lock::Exclusive).unwrap(), "they end with their descriptors");
    }
}
