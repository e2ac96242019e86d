//! One TCP connection of a host, which is one queue pair.

use std::time::{Duration, Instant};

use crate::buffer::{BufferSlice, Buffers};
use crate::nqn::Nqn;
use crate::status::Status;
use crate::transmit::Transmit;

use super::submission::{Completed, Submission, SubmitError};

/// Who a host is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostIdentity {
    /// Its name.
    pub nqn: Nqn,
    /// Its Host Identifier: the same for all its connections, not zero.
    pub id: [u8; 16],
}

/// What a connection is told when it is made.
#[derive(Clone, Debug)]
pub struct ConnectionConfig {
    /// Who connects.
    pub host: HostIdentity,
    /// To which subsystem.
    pub subsystem: Nqn,
    /// Queue identifier: 0 for the admin queue.
    pub queue_id: u16,
    /// Controller identifier: FFFFh on an admin queue to be given one.
    pub controller_id: u16,
    /// Entries of the queue, 2 or more.
    pub entries: u16,
    /// Keep Alive Timeout of the controller in milliseconds; 0: none. Admin queue only.
    pub keep_alive_ms: u32,
    /// Ask for header digests.
    pub header_digest: bool,
    /// Ask for data digests.
    pub data_digest: bool,
    /// Bytes of write data that may travel with a command: 8,192 on admin queues, what
    /// [`ControllerInfo::in_capsule_len`](super::ControllerInfo::in_capsule_len) says on I/O queues.
    pub in_capsule_len: u32,
    /// The most bytes of data of one command.
    pub transfer_len_max: u32,
    /// How long ICResp and the answer to Connect may take.
    pub connect_timeout: Duration,
}

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Waiting for ICResp.
    Negotiating,
    /// Waiting for the answer to Connect.
    Connecting,
    /// Taking commands.
    Live,
    /// Nothing more is read. Send what `poll_transmit` still gives, then close the socket.
    Draining,
    /// Close the socket.
    Closed,
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The controller refused Connect.
    #[error("the controller refused the connection: {name} ({status:?})")]
    Refused {
        /// Its status.
        status: Status,
        /// The specification's name of it for Connect.
        name: &'static str,
    },
    /// The peer closed the socket.
    #[error("the controller closed the connection")]
    PeerClosed,
}

/// Something that the embedder wants to know.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// The queue pair is established and takes commands.
    Connected {
        /// The controller's identifier.
        controller_id: u16,
    },
    /// A command has ended.
    Completed(Completed),
    /// A command takes longer than its timeout: abort it over the admin queue ([`Admin::abort`](super::Admin::abort)), or
    /// wait. If it is not completed when the same time has passed again, the connection is closed.
    Late {
        /// From its submission.
        user_data: u64,
        /// Its command identifier.
        command_id: u16,
    },
    /// The connection has ended; all commands were reported before.
    Closed(ConnectionError),
}

/// One connection. See the [module of the host](super) for how to drive it.
#[derive(Debug)]
pub struct Connection {
    state: State,
}

impl Connection {
    /// A connection whose socket is connected. ICReq is ready to be sent.
    pub fn new(config: ConnectionConfig, now: Instant) -> Self {
        let _ = (config, now);
        Self { state: State::Negotiating }
    }

    // -- A: what is known ---------------------------------------------------------------------------------------------

    /// Where the connection stands.
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether [`submit`](Self::submit) would take a command now.
    pub fn can_submit(&self) -> bool {
        false
    }

    /// Commands in flight.
    pub fn in_flight(&self) -> u32 {
        0
    }

    /// If the next bytes of the stream are data for a caller's buffer: where they belong. A shell may receive right into
    /// it and then call [`handle_received`](Self::handle_received) instead of `handle_bytes`.
    pub fn receive_target(&self) -> Option<BufferSlice> {
        None
    }

    // -- B: what happened ---------------------------------------------------------------------------------------------

    /// Bytes came from the socket; all are consumed.
    pub fn handle_bytes(&mut self, now: Instant, bytes: &[u8], buffers: &mut impl Buffers) {
        let _ = (now, bytes, buffers);
    }

    /// Bytes came from the socket and already are in the [`receive_target`](Self::receive_target), from its start on.
    pub fn handle_received(&mut self, now: Instant, bytes: &[u8], buffers: &mut impl Buffers) {
        let _ = (now, bytes, buffers);
    }

    /// The socket is gone. Call it when no send is under way any more: commands in flight are reported as lost, and their
    /// buffers are the caller's again.
    pub fn handle_close(&mut self) {}

    /// [`poll_timeout`](Self::poll_timeout) has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        let _ = now;
    }

    /// The batch was sent completely; the `Transmit` is empty and can be used again.
    pub fn handle_transmitted(&mut self, transmit: &mut Transmit) {
        transmit.clear();
    }

    // -- C: commands --------------------------------------------------------------------------------------------------

    /// Sends a command. Returns its command identifier (for an Abort).
    pub fn submit(
        &mut self,
        now: Instant,
        submission: Submission,
        buffers: &mut impl Buffers,
    ) -> Result<u16, SubmitError> {
        let _ = (now, submission, buffers);
        Err(SubmitError::NotReady)
    }

    /// Ends the connection: no more commands are taken; those in flight are reported as lost.
    pub fn disconnect(&mut self, now: Instant) {
        let _ = now;
    }

    // -- D: what to do ------------------------------------------------------------------------------------------------

    /// What happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        None
    }

    /// Moves what there is to send into `transmit`, which must be empty. Returns whether there is anything.
    pub fn poll_transmit(&mut self, transmit: &mut Transmit) -> bool {
        let _ = transmit;
        false
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}
