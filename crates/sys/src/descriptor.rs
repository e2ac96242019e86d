//! Descriptors that the process was started with, by their numbers.

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

use crate::checked;

/// The first number of a copy: those below are standard input, output and error.
const FIRST: libc::c_int = 3;

/// The descriptor of this number once more: the same open file, whose position both share.
///
/// # Errors
/// There is none of this number, or this process has as many as it may.
pub fn duplicate(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call takes integers, and a number without a descriptor is an error.
    let copy = checked(unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, FIRST) })?;
    // SAFETY: the kernel has made it for this call, so nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd as _;

    #[test]
    fn a_copy_shares_its_position_and_a_number_without_descriptor_is_an_error() {
        let file = tempfile::tempfile().expect("a temporary file");
        file.set_len(10).expect("room");
        let copy = duplicate(file.as_raw_fd()).expect("open");
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(7)).expect("regular");
        assert_eq!(rustix::fs::tell(&copy).expect("regular"), 7);
        assert_eq!(duplicate(RawFd::MAX).unwrap_err().raw_os_error(), Some(libc::EBADF));
    }
}
