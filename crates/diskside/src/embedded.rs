//! A target in this process, reached without a socket.

use diskside_host::{ConnectOptions, Connection, HostError, Stream, StreamRead, StreamWrite, Transport};
use diskside_nvme::Nqn;
use diskside_server::Handle;
use diskside_server::link::{LoopEnd, LoopRead, LoopWriteError};
use std::io;
use std::sync::Arc;
use std::task::Waker;

/// Connects to a target that runs in this process: the same commands, checks and bounds as behind a socket.
///
/// [`Session::attach`](crate::session::Session::attach) gives the connection a name for URLs.
pub fn connect(target: &Handle, options: &ConnectOptions) -> Result<Connection, HostError> {
    let name = Nqn::new(target.nqn()).expect("a target that runs has a valid name");
    Connection::embedded(Arc::new(Embedded(target.clone())), name, options)
}

struct Embedded(Handle);

struct End(LoopEnd);

impl Transport for Embedded {
    fn connect(&self) -> io::Result<Box<dyn Stream>> {
        let refused = || io::Error::new(io::ErrorKind::ConnectionRefused, "the target takes no connection");
        Ok(Box::new(End(self.0.connect_loop().ok_or_else(refused)?)))
    }
}

impl Stream for End {
    fn set_waker(&mut self, waker: Waker) {
        self.0.set_waker(waker);
    }

    fn read(&mut self) -> StreamRead {
        match self.0.read() {
            LoopRead::Bytes(bytes) => StreamRead::Bytes(bytes),
            LoopRead::Empty => StreamRead::Empty,
            LoopRead::Closed => StreamRead::Closed,
        }
    }

    fn write(&mut self, bytes: Vec<u8>) -> StreamWrite {
        match self.0.write(bytes) {
            Ok(()) => StreamWrite::Taken,
            Err(LoopWriteError::Full(bytes)) => StreamWrite::Full(bytes),
            Err(LoopWriteError::Closed(_)) => StreamWrite::Closed,
        }
    }
}
