//! Where a connection stands, and the reasons for which it ends.

use std::time::Duration;

use crate::auth::AuthError;
use crate::wire::FatalError;

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Waiting for ICReq.
    Negotiating,
    /// Waiting for the Connect command.
    Connecting,
    /// Taking commands.
    Live,
    /// Nothing more is read. Send what `poll_transmit` still gives, then close the socket.
    Draining,
    /// Close the socket.
    Closed,
}

/// Why a connection ended other than by Disconnect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The peer closed the socket.
    #[error("the host closed the connection")]
    PeerClosed,
    /// The peer did not say ICReq and Connect in time.
    #[error("the host did not send ICReq and Connect in time")]
    ConnectTimeout,
    /// The host did not prove who it is.
    #[error("the host did not authenticate: {0}")]
    Authentication(AuthError),
    /// The host has as many connections as it may.
    #[error("the host has as many connections as it may")]
    TooMany,
    /// The peer broke the protocol.
    #[error("the host broke the protocol: {0}")]
    Protocol(FatalError),
    /// The peer says that we broke the protocol.
    #[error("the host terminated the connection: {0}")]
    Terminated(FatalError),
    /// No Keep Alive came in time.
    #[error("the host sent no Keep Alive for {0:?}")]
    KeepAliveExpired(Duration),
    /// The controller was reset or shut down, its admin connection ended, or its subsystem was removed.
    #[error("the controller is gone")]
    ControllerGone,
    /// The target is shutting down.
    #[error("the target is shutting down")]
    Shutdown,
}

impl ConnectionError {
    /// Whether the connection ended because of something else that ended, in whatever order: then the reason, if it is
    /// worth a word, is said there. So end the I/O queues of every host that shuts its controller down.
    pub fn is_consequence(&self) -> bool {
        matches!(self, Self::ControllerGone | Self::Shutdown)
    }
}
