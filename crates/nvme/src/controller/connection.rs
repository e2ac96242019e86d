//! One TCP connection of a controller, which is one queue pair.

use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::buffer::{BufferPool, BufferSlice, Buffers};
use crate::nqn::Nqn;
use crate::transmit::Transmit;

use super::request::{Completion, Request, Tag};
use super::subsystem::Subsystems;

/// What a connection is told when it is made.
#[derive(Clone, Debug)]
pub struct ConnectionConfig {
    /// The most data bytes of one H2CData PDU (MAXH2CDATA); a multiple of 4, at least 4,096.
    pub h2c_data_len_max: u32,
    /// The most bytes that one R2T asks for.
    pub r2t_len_max: u32,
    /// How long a peer may take to send ICReq and Connect.
    pub connect_timeout: Duration,
    /// Whether header digests are used when the host asks for them.
    pub allow_header_digest: bool,
    /// Whether data digests are used when the host asks for them.
    pub allow_data_digest: bool,
}

impl Default for ConnectionConfig {
    fn default() -> Self {
        Self {
            h2c_data_len_max: 128 << 10,
            r2t_len_max: 1 << 20,
            connect_timeout: Duration::from_secs(10),
            allow_header_digest: true,
            allow_data_digest: true,
        }
    }
}

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
}

/// One connection. See the [module of the controller](super) for how to drive it.
#[derive(Debug)]
pub struct Connection {
    state: State,
}

impl Connection {
    /// A connection that was just accepted. `waker` is woken, from any thread, when something outside this connection
    /// concerns it: then call [`handle_wake`](Self::handle_wake).
    pub fn new(
        subsystems: Arc<Subsystems>,
        config: ConnectionConfig,
        waker: Waker,
        now: Instant,
    ) -> Self {
        let _ = (subsystems, config, waker, now);
        Self {
            state: State::Negotiating,
        }
    }

    // -- A: what is known ---------------------------------------------------------------------------------------------

    /// Where the connection stands.
    pub fn state(&self) -> State {
        self.state
    }

    /// Why it ended, if it was not the host's Disconnect.
    pub fn error(&self) -> Option<&ConnectionError> {
        None
    }

    /// Whether more input is welcome. If not, leave it in the socket (back-pressure) until a completion, a send or
    /// [`handle_buffers`](Self::handle_buffers) made room.
    pub fn wants_input(&self) -> bool {
        true
    }

    /// If the next bytes of the stream are write data: where they belong. A shell may receive right into it and then call
    /// [`handle_received`](Self::handle_received) instead of `handle_bytes`.
    pub fn receive_target(&self) -> Option<BufferSlice> {
        None
    }

    /// Queue identifier: 0 for an admin queue; `None` before Connect.
    pub fn queue_id(&self) -> Option<u16> {
        None
    }

    /// Controller identifier; `None` before Connect.
    pub fn controller_id(&self) -> Option<u16> {
        None
    }

    /// The host's name; `None` before Connect.
    pub fn host_nqn(&self) -> Option<&Nqn> {
        None
    }

    /// Commands that arrived and whose answer was not yet handed to `poll_transmit`.
    pub fn commands_outstanding(&self) -> u32 {
        0
    }

    // -- B: what happened ---------------------------------------------------------------------------------------------

    /// Bytes came from the socket. Returns how many were consumed: fewer than given means that
    /// [`wants_input`](Self::wants_input) became false; keep the rest and offer it again later.
    pub fn handle_bytes(
        &mut self,
        now: Instant,
        bytes: &[u8],
        pool: &mut impl BufferPool,
    ) -> usize {
        let _ = (now, pool);
        bytes.len()
    }

    /// Bytes came from the socket and already are in the [`receive_target`](Self::receive_target), from its start on.
    pub fn handle_received(&mut self, now: Instant, bytes: &[u8], pool: &mut impl BufferPool) {
        let _ = (now, bytes, pool);
    }

    /// The socket is gone (end of stream, reset, an error). Buffers that the connection owns are released. Requests that
    /// the embedder has may still be completed (that only releases), or forgotten with the connection.
    pub fn handle_close(&mut self, buffers: &mut impl Buffers) {
        let _ = buffers;
    }

    /// [`poll_timeout`](Self::poll_timeout) has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        let _ = now;
    }

    /// The waker was woken.
    pub fn handle_wake(&mut self, now: Instant) {
        let _ = now;
    }

    /// The pool has buffers again after it had none. Returns whether the connection still waits for more.
    pub fn handle_buffers(&mut self, now: Instant, pool: &mut impl BufferPool) -> bool {
        let _ = (now, pool);
        false
    }

    /// The batch was sent completely; the `Transmit` is empty and can be used again.
    pub fn handle_transmitted(&mut self, transmit: &mut Transmit) {
        transmit.clear();
    }

    // -- C: the embedder's answers ------------------------------------------------------------------------------------

    /// More data for the host, in order, before the completion: lets a long read leave in several buffers.
    pub fn push_data(&mut self, tag: Tag, slice: BufferSlice, buffers: &mut impl Buffers) {
        let _ = (tag, slice, buffers);
    }

    /// The answer to a request. Of a command that ended meanwhile only the buffer is released.
    pub fn complete(
        &mut self,
        now: Instant,
        tag: Tag,
        completion: Completion,
        buffers: &mut impl Buffers,
    ) {
        let _ = (now, tag, completion, buffers);
    }

    // -- D: what to do ------------------------------------------------------------------------------------------------

    /// The next request for the media.
    pub fn poll_request(&mut self) -> Option<Request> {
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
