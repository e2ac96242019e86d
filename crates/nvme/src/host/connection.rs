//! One TCP connection of a host, which is one queue pair.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::auth::{self, AuthError, TlsPsk, Work};
use crate::buffer::{BufferSlice, Buffers};
use crate::nqn::Nqn;
use crate::pdu::{Decoder, Encoder, Role, Step};
use crate::status::Status;
use crate::transmit::Transmit;
use crate::wire::{FatalError, IcReq, PduKind};

use super::commands::{Commands, Kind};
use super::login::Login;
use super::submission::{CommandError, Completed, Submission, SubmitError};

/// The identity of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostIdentity {
    /// Its name.
    pub nqn: Nqn,
    /// Its Host Identifier: the same for all its connections, not zero.
    pub id: [u8; 16],
}

/// The settings of a connection, given when it is made.
#[derive(Clone, Debug)]
pub struct ConnectionConfig {
    /// The host that connects.
    pub host: HostIdentity,
    /// To which subsystem.
    pub subsystem: Nqn,
    /// Queue identifier: 0 for the admin queue.
    pub queue_id: u16,
    /// Controller identifier: FFFFh on an admin queue to be given one.
    pub controller_id: u16,
    /// Entries of the queue, 2 or more: as many commands can be in flight.
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
    /// How long ICResp and the answer to Connect may take; authenticating may take as long again.
    pub connect_timeout: Duration,
    /// With what the host proves who it is.
    pub login: Login,
}

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Waiting for ICResp.
    Negotiating,
    /// Waiting for the answer to Connect.
    Connecting,
    /// Proving who the host is.
    Authenticating,
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
    #[error("the controller refused the connection: {name} {}{}", status.numbers(), Parameter(*parameter))]
    Refused {
        /// Its status.
        status: Status,
        /// The specification's name of it for Connect.
        name: &'static str,
        /// Which parameter was invalid, if the status is about one.
        parameter: Option<crate::wire::ConnectError>,
    },
    /// The controller wants DH-HMAC-CHAP, and there is no key.
    #[error("the controller requires authentication, and this host has no key for it")]
    AuthenticationRequired,
    /// There is a key, and the controller does not ask for it: it may be another than the one that is meant.
    #[error("the controller does not ask for authentication, and this host has a key for it")]
    AuthenticationNotAsked,
    /// Authentication failed.
    #[error("authentication failed: {0}")]
    Authentication(AuthError),
    /// Authentication made the key of a secure channel: the host connects again, over that.
    #[error("a secure channel follows, and this connection is over")]
    ChannelFollows,
    /// Digests were asked for and not granted.
    #[error("the controller does not do the digests that were asked for")]
    DigestsRefused,
    /// ICResp or the answer to Connect did not come in time.
    #[error("the controller did not answer {step} in time")]
    ConnectTimeout {
        /// The step that was awaited.
        step: &'static str,
    },
    /// Keep Alive was not answered in time: the peer stands still, or cannot be reached.
    #[error("the controller has said nothing for {0:?}, not even to Keep Alive")]
    Silent(Duration),
    /// A command was late, and then as late again.
    #[error("a command took longer than twice its timeout of {0:?}")]
    CommandTimeout(Duration),
    /// The peer broke the protocol.
    #[error("the controller broke the protocol: {0}")]
    Protocol(FatalError),
    /// The peer says that we broke the protocol.
    #[error("the controller terminated the connection: {0}")]
    Terminated(FatalError),
    /// A step of bringing the controller up failed.
    #[error("{step} failed: {error}")]
    Setup {
        /// Which.
        step: &'static str,
        /// Why.
        error: CommandError,
    },
    /// The controller came up with a fatal error, or not in time.
    #[error("the controller did not become ready: {0}")]
    NotReady(&'static str),
    /// The controller lacks something that is needed.
    #[error("the controller cannot be used: {0}")]
    Unsupported(&'static str),
    /// The peer closed the socket.
    #[error("the controller closed the connection")]
    PeerClosed,
    /// We were asked to disconnect.
    #[error("the connection was closed as asked for")]
    Disconnected,
}

/// Says which parameter of Connect was invalid.
struct Parameter(Option<crate::wire::ConnectError>);

impl std::fmt::Display for Parameter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use crate::wire::ConnectError::{InCommand, InData};
        let name = match self.0 {
            None => return Ok(()),
            Some(InCommand(42)) => "the queue identifier",
            Some(InCommand(44)) => "the queue size",
            Some(InCommand(48)) => "the Keep Alive Timeout",
            Some(InData(0)) => "the Host Identifier",
            Some(InData(16)) => "the controller identifier",
            Some(InData(256)) => "the subsystem's NQN: there is no such subsystem here",
            Some(InData(512)) => "the host's NQN",
            Some(InCommand(offset)) => return write!(f, "; byte {offset} of the command is invalid"),
            Some(InData(offset)) => return write!(f, "; byte {offset} of the data is invalid"),
        };
        write!(f, "; it objects to {name}")
    }
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
    /// Compute this, and hand it to [`Connection::computed`].
    Compute(Work),
    /// The authentication made this key: connect again, over a secure channel with it. This connection ends.
    Channel(TlsPsk),
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
    /// The connection has ended; all commands were reported before. Comes after
    /// [`handle_close`](Connection::handle_close), once.
    Closed(ConnectionError),
}

/// One connection. See the [module of the host](super) for how to drive it.
#[derive(Debug)]
pub struct Connection {
    pub(super) config: ConnectionConfig,
    pub(super) state: State,
    pub(super) error: Option<ConnectionError>,
    pub(super) decoder: Decoder,
    pub(super) encoder: Encoder,
    pub(super) out: Transmit,
    pub(super) sending: bool,
    pub(super) commands: Commands,
    pub(super) inbound: Option<Inbound>,
    /// Bytes of the current input are in their place already.
    pub(super) placed: bool,
    pub(super) h2c_data_max: u32,
    pub(super) events: VecDeque<Event>,
    /// Nothing can be late before this.
    pub(super) next_check: Option<Instant>,
    pub(super) connect_deadline: Option<Instant>,
    /// The machine that proves the host's identity, from Connect until it is done; and the identifier that Connect gave.
    pub(super) authentication: Option<(Box<auth::Host>, u16)>,
    pub(super) reported: bool,
}

/// Data that is arriving.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inbound {
    pub(super) index: u16,
    pub(super) at: u32,
    pub(super) success: bool,
}

impl Connection {
    /// A connection whose socket is connected. ICReq is ready to be sent.
    pub fn new(config: ConnectionConfig, now: Instant) -> Self {
        debug_assert!(config.entries >= 2, "a queue has at least two entries");
        let mut out = Transmit::new();
        Encoder::plain().initialize(&mut out, &IcReq::new(config.header_digest, config.data_digest));
        Self {
            state: State::Negotiating,
            error: None,
            decoder: Decoder::new(Role::Host, 0, u32::MAX),
            encoder: Encoder::plain(),
            out,
            sending: false,
            commands: Commands::new(config.entries.max(2)),
            inbound: None,
            placed: false,
            h2c_data_max: 0,
            events: VecDeque::new(),
            next_check: None,
            connect_deadline: Some(now + config.connect_timeout),
            authentication: None,
            reported: false,
            config,
        }
    }

    // -- A: what is known ---------------------------------------------------------------------------------------------

    /// Where the connection stands.
    pub fn state(&self) -> State {
        match self.state {
            State::Draining if self.out.is_empty() && !self.sending => State::Closed,
            state => state,
        }
    }

    /// Why it ended, or is about to.
    pub fn error(&self) -> Option<&ConnectionError> {
        self.error.as_ref()
    }

    /// Whether [`submit`](Self::submit) would take a command now.
    pub fn can_submit(&self) -> bool {
        self.state == State::Live && !self.commands.is_full()
    }

    /// Commands in flight.
    pub fn in_flight(&self) -> u32 {
        self.commands.len()
    }

    /// If the next bytes of the stream are data for a caller's buffer: where they belong. A shell may receive right into
    /// it and then call [`handle_received`](Self::handle_received) instead of `handle_bytes`.
    pub fn receive_target(&self) -> Option<BufferSlice> {
        let inbound = self.inbound?;
        if !self.is_open() || !self.decoder.at_data() {
            return None;
        }
        let mut target = self.commands.get(inbound.index).target(inbound.at)?;
        target.len = target.len.min(self.decoder.data_left());
        (target.len > 0).then_some(target)
    }

    // -- B: what happened ---------------------------------------------------------------------------------------------

    /// Bytes came from the socket; all are consumed.
    pub fn handle_bytes(&mut self, _now: Instant, bytes: &[u8], buffers: &mut impl Buffers) {
        let mut input = bytes;
        while self.is_open() {
            match self.decoder.step(&mut input) {
                Ok(Step::Starved) => break,
                Ok(Step::Header(header)) => self.on_header(header, buffers),
                Ok(Step::Data(data)) => self.on_data(data, buffers),
                Ok(Step::End { intact }) => self.on_end(intact),
                Err(error) => self.terminate(error),
            }
        }
    }

    /// Bytes came from the socket and already are in the [`receive_target`](Self::receive_target), from its start on.
    /// Data digests are checked from `bytes`.
    pub fn handle_received(&mut self, now: Instant, bytes: &[u8], buffers: &mut impl Buffers) {
        debug_assert!(
            self.receive_target().is_some_and(|target| bytes.len() <= target.len as usize),
            "bytes were received into the target"
        );
        self.placed = true;
        self.handle_bytes(now, bytes, buffers);
        self.placed = false;
    }

    /// The socket is gone or was closed; call it once at the end of every connection, and when no send is under way any
    /// more: commands in flight are reported as lost, and their buffers are the caller's again.
    pub fn handle_close(&mut self) {
        let closed = match self.state {
            State::Authenticating => ConnectionError::Authentication(AuthError::Closed),
            _ => ConnectionError::PeerClosed,
        };
        self.end(closed, State::Closed);
        self.state = State::Closed;
        self.out.clear();
        self.sending = false;
        for index in self.commands.indices() {
            let command = self.commands.remove(index);
            if command.kind == Kind::User {
                let outcome = command.outcome.unwrap_or(Err(CommandError::ConnectionLost));
                self.events.push_back(Event::Completed(Completed { user_data: command.user_data, outcome }));
            }
        }
        if !std::mem::replace(&mut self.reported, true) {
            let error = self.error.clone().unwrap_or(ConnectionError::PeerClosed);
            self.events.push_back(Event::Closed(error));
        }
    }

    /// [`poll_timeout`](Self::poll_timeout) has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if !self.is_open() {
            return;
        }
        if self.connect_deadline.is_some_and(|deadline| now >= deadline) {
            let step = match self.state {
                State::Negotiating => "ICReq",
                State::Authenticating => "authentication",
                _ => "Connect",
            };
            return self.end(ConnectionError::ConnectTimeout { step }, State::Closed);
        }
        if self.next_check.is_none_or(|check| now < check) {
            return;
        }
        self.next_check = None;
        for index in self.commands.indices() {
            let command_id = self.commands.cid(index);
            let command = self.commands.get_mut(index);
            let (Some(deadline), Some(timeout)) = (command.deadline, command.timeout) else { continue };
            if command.outcome.is_some() {
                continue;
            }
            let mut next = deadline;
            if now >= deadline {
                if command.late {
                    return self.end(ConnectionError::CommandTimeout(timeout), State::Closed);
                }
                command.late = true;
                next = now + timeout;
                command.deadline = Some(next);
                let user_data = command.user_data;
                self.events.push_back(Event::Late { user_data, command_id });
            }
            self.next_check = Some(self.next_check.map_or(next, |check| check.min(next)));
        }
    }

    /// The batch was sent completely; the `Transmit` is empty and can be used again.
    pub fn handle_transmitted(&mut self, transmit: &mut Transmit) {
        debug_assert!(transmit.is_empty(), "only a batch that was sent completely is done");
        for slot in transmit.borrowed_slots() {
            let index = slot as u16;
            let command = self.commands.get_mut(index);
            if !command.in_use {
                continue;
            }
            command.references -= 1;
            if command.references == 0 && command.outcome.is_some() {
                self.report(index);
            }
        }
        transmit.clear();
        self.sending = false;
    }

    // -- C: commands --------------------------------------------------------------------------------------------------

    /// Sends a command. Returns its command identifier (for an Abort).
    pub fn submit(
        &mut self,
        now: Instant,
        submission: Submission,
        buffers: &mut impl Buffers,
    ) -> Result<u16, SubmitError> {
        if self.state != State::Live {
            return Err(SubmitError::NotReady);
        }
        if self.commands.is_full() {
            return Err(SubmitError::Full);
        }
        let (len, max) = (submission.data.len(), self.config.transfer_len_max);
        if len > max {
            return Err(SubmitError::TooLong { len, max });
        }
        let index = self.begin(Kind::User, submission.sqe, submission.data, buffers);
        let command = self.commands.get_mut(index);
        command.user_data = submission.user_data;
        command.whole = self.config.queue_id > 0 && submission.sqe.opcode() < VENDOR_OPCODES;
        if let Some(timeout) = submission.timeout {
            let deadline = now + timeout;
            command.timeout = Some(timeout);
            command.deadline = Some(deadline);
            self.next_check = Some(self.next_check.map_or(deadline, |check| check.min(deadline)));
        }
        Ok(self.commands.cid(index))
    }

    /// Ends the connection: no more commands are taken; those in flight are reported as lost by
    /// [`handle_close`](Self::handle_close).
    pub fn disconnect(&mut self, _now: Instant) {
        self.end(ConnectionError::Disconnected, State::Draining);
    }

    // -- D: what to do ------------------------------------------------------------------------------------------------

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Moves what there is to send into `transmit`, which must be empty. Returns whether there is anything.
    pub fn poll_transmit(&mut self, transmit: &mut Transmit) -> bool {
        debug_assert!(transmit.is_clear(), "one batch at a time");
        if self.out.is_empty() || self.state == State::Closed {
            return false;
        }
        std::mem::swap(&mut self.out, transmit);
        self.sending = true;
        true
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if !self.is_open() {
            return None;
        }
        match (self.connect_deadline, self.next_check) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    // -- life ---------------------------------------------------------------------------------------------------------

    pub(super) fn is_open(&self) -> bool {
        !matches!(self.state, State::Draining | State::Closed)
    }

    pub(super) fn end(&mut self, error: ConnectionError, state: State) {
        if self.is_open() {
            self.state = state;
            self.error = Some(error);
            self.inbound = None;
        }
    }

    /// Ends the connection for a reason that only the embedder of this connection knows.
    pub(super) fn fail(&mut self, error: ConnectionError) {
        self.end(error, State::Draining);
    }

    /// The peer broke the protocol: tell it, and end.
    pub(super) fn terminate(&mut self, error: FatalError) {
        let header = self.decoder.offending_header();
        Encoder::plain().terminate(&mut self.out, PduKind::H2cTermReq, error, header);
        self.end(ConnectionError::Protocol(error), State::Draining);
    }
}

/// Opcodes from here on are the vendor's: only they say how much data makes an answer.
const VENDOR_OPCODES: u8 = 0x80;
