//! Ways to a target: TCP, or memory.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::Waker;

use diskside_io::socket::tune;
use diskside_nvme::host::ConnectionError;

use crate::channel::{Channel, ChannelKey, ConnectError};
use crate::error::HostError;
use crate::options::ConnectOptions;

/// What a connection leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A target at this address.
    Tcp(SocketAddr),
    /// A target in this process.
    Embedded,
}

/// A target in this process that connections in memory lead to.
pub trait Transport: Send + Sync {
    /// A new connection, or why there is none.
    fn connect(&self) -> io::Result<Box<dyn Stream>>;
}

/// One end of a connection in memory: bytes in order, as many on their way as the other end allows.
/// Dropping it closes the connection.
pub trait Stream: Send {
    /// Sets the waker for bytes that came, for room to write again, and for the other end's going.
    fn set_waker(&mut self, waker: Waker);

    /// Takes what the other end wrote.
    fn read(&mut self) -> StreamRead;

    /// Hands bytes to the other end.
    fn write(&mut self, bytes: Vec<u8>) -> StreamWrite;
}

/// What [`Stream::read`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamRead {
    /// These bytes came.
    Bytes(Vec<u8>),
    /// Nothing came yet; the waker will be woken.
    Empty,
    /// Nothing will come any more.
    Closed,
}

/// What became of the bytes of [`Stream::write`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamWrite {
    /// They are on their way.
    Taken,
    /// The other end has not read enough; here they are again, and the waker will be woken.
    Full(Vec<u8>),
    /// The other end is gone.
    Closed,
}

/// How a connection's links are made.
#[derive(Clone)]
pub(crate) enum Route {
    /// To an address, over TLS if there is a key for it.
    Tcp(SocketAddr, Option<Arc<ChannelKey>>),
    Embedded(Arc<dyn Transport>),
}

/// A fresh connection.
pub(crate) enum Wired {
    Socket(OwnedFd, Option<Box<Channel>>),
    Stream(Box<dyn Stream>),
}

impl Route {
    pub(crate) fn peer(&self) -> Peer {
        match self {
            Self::Tcp(address, _) => Peer::Tcp(*address),
            Self::Embedded(_) => Peer::Embedded,
        }
    }

    /// The same over TLS, if there is a key.
    pub(crate) fn secured(self, key: Option<ChannelKey>) -> Self {
        match (self, key) {
            (Self::Tcp(address, _), Some(key)) => Self::Tcp(address, Some(Arc::new(key))),
            (route, _) => route,
        }
    }

    /// A server that refused this host's key, and was then talked to without TLS, closes the connection and says no more: the
    /// refusal is the reason.
    pub(crate) fn explained(&self, error: HostError) -> HostError {
        let Self::Tcp(_, Some(key)) = self else { return error };
        let is_closed = matches!(error, HostError::Ended { source: ConnectionError::PeerClosed, .. });
        match key.take_refusal().filter(|_| is_closed) {
            Some(source) => HostError::Channel { address: self.peer(), source },
            None => error,
        }
    }

    /// A new connection. `waker` wakes the thread that will drive it.
    pub(crate) fn connect(
        &self,
        options: &ConnectOptions,
        waker: diskside_io::ring::Waker,
    ) -> Result<Wired, HostError> {
        let failed = |source: io::Error| HostError::Connect { address: self.peer(), source };
        match self {
            Self::Tcp(address, key) => {
                let (stream, channel) = match key {
                    None => (TcpStream::connect_timeout(address, options.connect_timeout).map_err(failed)?, None),
                    Some(key) => match key.connect(address, options.connect_timeout) {
                        Ok((stream, channel)) => (stream, channel.map(Box::new)),
                        Err(ConnectError::Socket(error)) => return Err(failed(error)),
                        Err(ConnectError::Channel(source)) => {
                            return Err(HostError::Channel { address: self.peer(), source });
                        }
                    },
                };
                let socket = OwnedFd::from(stream);
                tune(&socket, &options.socket).map_err(failed)?;
                Ok(Wired::Socket(socket, channel))
            }
            Self::Embedded(transport) => {
                let mut stream = transport.connect().map_err(failed)?;
                stream.set_waker(waker.into());
                Ok(Wired::Stream(stream))
            }
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Embedded => f.write_str("the embedded target"),
        }
    }
}
