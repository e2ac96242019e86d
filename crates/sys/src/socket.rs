//! What the kernel does for a TCP socket.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::checked;

/// Bounds what the socket takes and has not sent yet (`TCP_NOTSENT_LOWAT`); what is on its way does not count. A send beyond it
/// waits as it does for a full buffer.
///
/// # Errors
/// It is not a TCP socket.
pub fn set_unsent_bytes_max(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    let len = size_of::<u32>() as libc::socklen_t;
    // SAFETY: the kernel reads as many bytes as the length says, during the call alone.
    let answer = unsafe {
        let value = (&raw const bytes).cast::<c_void>();
        libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, value, len)
    };
    checked(answer).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Write};
    use std::net::{TcpListener, TcpStream};

    /// A peer that did not read had the kernel keep megabytes for it.
    #[test]
    fn a_peer_that_does_not_read_gets_little_more() {
        let taken = |bytes_max: Option<u32>| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let _peer = listener.accept().unwrap();
            if let Some(bytes) = bytes_max {
                set_unsent_bytes_max(&stream, bytes).unwrap();
            }
            stream.set_nonblocking(true).unwrap();
            let mut taken = 0;
            loop {
                match stream.write(&[0; 16 << 10]) {
                    Ok(len) => taken += len,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return taken,
                    Err(error) => panic!("{error}"),
                }
            }
        };
        let (bounded, free) = (taken(Some(64 << 10)), taken(None));
        assert!(bounded < free, "{bounded} of {free} bytes");
    }

    #[test]
    fn other_sockets_are_refused() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        set_unsent_bytes_max(&one, 1).unwrap_err();
    }
}
