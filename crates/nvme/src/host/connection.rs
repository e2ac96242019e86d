//! One TCP connection of a host, which is one queue pair.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use zerocopy::IntoBytes;

use crate::buffer::{BufferSlice, Buffers};
use crate::nqn::Nqn;
use crate::pdu::{BufferAfter, Decoder, Digests, Encoder, Header, Payload, Role, Step};
use crate::status::Status;
use crate::transmit::{After, Transmit};
use crate::wire::{ConnectData, Cqe, FatalError, H2cData, IcReq, IcResp, PduKind, Sgl, Sqe, pdu_flags};

use super::commands::{Commands, Kind, Moved};
use super::submission::{Answer, CommandError, Completed, Data, Submission, SubmitError};

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
    #[error("the controller refused the connection: {name} ({status:?}){}", Parameter(*parameter))]
    Refused {
        /// Its status.
        status: Status,
        /// The specification's name of it for Connect.
        name: &'static str,
        /// Which parameter was invalid, if the status is about one.
        parameter: Option<crate::wire::ConnectError>,
    },
    /// The controller wants DH-HMAC-CHAP, which is not implemented.
    #[error("the controller requires in-band authentication, which is not supported")]
    AuthenticationRequired,
    /// Digests were asked for and not granted.
    #[error("the controller does not do the digests that were asked for")]
    DigestsRefused,
    /// ICResp or the answer to Connect did not come in time.
    #[error("the controller did not answer {step} in time")]
    ConnectTimeout {
        /// What was waited for.
        step: &'static str,
    },
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
    config: ConnectionConfig,
    state: State,
    error: Option<ConnectionError>,
    decoder: Decoder,
    encoder: Encoder,
    out: Transmit,
    sending: bool,
    commands: Commands,
    inbound: Option<Inbound>,
    /// Bytes of the current input are in their place already.
    placed: bool,
    h2c_data_max: u32,
    events: VecDeque<Event>,
    /// Nothing can be late before this.
    next_check: Option<Instant>,
    connect_deadline: Option<Instant>,
    reported: bool,
}

/// Data that is arriving.
#[derive(Clone, Copy, Debug)]
struct Inbound {
    index: u16,
    at: u32,
    success: bool,
}

/// Byte offsets in PDUs, for Fatal Error Information.
mod at {
    pub(super) const FLAGS: u32 = 1;
    pub(super) const VERSION: u32 = 8;
    pub(super) const CCCID: u32 = 8;
    pub(super) const ALIGNMENT: u32 = 10;
    pub(super) const DIGESTS: u32 = 11;
    pub(super) const H2C_DATA_MAX: u32 = 12;
    pub(super) const R2T_LEN: u32 = 16;
    pub(super) const RESPONSE_CID: u32 = 8 + 12;
}

/// The largest CPDA: 128 bytes (TCP 3.6.2.3).
const ALIGNMENT_MAX: u8 = 31;

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
        self.end(ConnectionError::PeerClosed, State::Closed);
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
            let step = if self.state == State::Negotiating { "ICReq" } else { "Connect" };
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

    /// What happened.
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

    fn is_open(&self) -> bool {
        !matches!(self.state, State::Draining | State::Closed)
    }

    fn end(&mut self, error: ConnectionError, state: State) {
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
    fn terminate(&mut self, error: FatalError) {
        let header = self.decoder.offending_header();
        Encoder::plain().terminate(&mut self.out, PduKind::H2cTermReq, error, header);
        self.end(ConnectionError::Protocol(error), State::Draining);
    }

    // -- PDUs ---------------------------------------------------------------------------------------------------------

    fn on_header(&mut self, header: Header, buffers: &mut impl Buffers) {
        match header {
            Header::IcResp(response) => self.on_ic_resp(&response, buffers),
            Header::Response(cqe) => self.on_response(cqe),
            Header::C2hData { cccid, offset, len, success, .. } => self.on_c2h_data(cccid, offset, len, success),
            Header::R2t { cccid, ttag, offset, len } => self.on_r2t(cccid, ttag, offset, len, buffers),
            Header::TermReq(error) => self.end(ConnectionError::Terminated(error), State::Closed),
            // The decoder lets nothing else through to a host.
            Header::IcReq(_) | Header::Command { .. } | Header::H2cData { .. } => {
                self.terminate(FatalError::PduSequence);
            }
        }
    }

    fn on_ic_resp(&mut self, response: &IcResp, buffers: &mut impl Buffers) {
        let invalid = FatalError::InvalidHeaderField;
        if response.version.get() != 0 {
            return self.terminate(invalid(at::VERSION));
        }
        if response.alignment > ALIGNMENT_MAX {
            return self.terminate(invalid(at::ALIGNMENT));
        }
        let digests = Digests { header: response.header_digest(), data: response.data_digest() };
        let ConnectionConfig { header_digest, data_digest, .. } = self.config;
        if digests.header && !header_digest || digests.data && !data_digest {
            return self.terminate(invalid(at::DIGESTS));
        }
        let most = response.h2c_data_max.get();
        if most < H2C_DATA_MAX_LEAST || !most.is_multiple_of(4) {
            return self.terminate(invalid(at::H2C_DATA_MAX));
        }
        if (digests.header, digests.data) != (header_digest, data_digest) {
            return self.end(ConnectionError::DigestsRefused, State::Draining);
        }
        self.h2c_data_max = most;
        self.decoder.negotiated(digests);
        self.encoder = Encoder::new(digests, response.alignment);
        self.state = State::Connecting;
        let ConnectionConfig { host, subsystem, queue_id, controller_id, entries, keep_alive_ms, .. } = &self.config;
        let data = ConnectData::new(host.id, *controller_id, subsystem.to_field(), host.nqn.to_field());
        let sqe = Sqe::connect(*queue_id, *entries, true, *keep_alive_ms);
        self.begin(Kind::Connect, sqe, Data::SendBytes(data.as_bytes().to_vec()), buffers);
    }

    /// Writes a command capsule and takes a slot for the command.
    fn begin(&mut self, kind: Kind, mut sqe: Sqe, data: Data, buffers: &mut impl Buffers) -> u16 {
        let index = self.commands.insert();
        sqe.set_cid(self.commands.cid(index));
        let len = data.len();
        let to_controller = matches!(data, Data::Send(_) | Data::SendBytes(_));
        let in_capsule = to_controller && len > 0 && len <= self.config.in_capsule_len;
        sqe.set_sgl(if in_capsule { Sgl::in_capsule(len) } else { Sgl::transport(len) });
        let command = self.commands.get_mut(index);
        (command.kind, command.len) = (kind, len);
        if !in_capsule {
            command.data = Moved::new(data);
            self.encoder.command(&mut self.out, sqe, Payload::None);
            return index;
        }
        command.data = Moved::InCapsule;
        match data {
            Data::Send(slice) => {
                command.references += 1;
                let payload = self.borrowed(index, slice, buffers);
                self.encoder.command(&mut self.out, sqe, payload);
            }
            Data::SendBytes(bytes) => self.encoder.command(&mut self.out, sqe, Payload::Bytes(&bytes)),
            Data::None | Data::Receive(_) | Data::ReceiveBytes(_) => {}
        }
        index
    }

    fn borrowed(&self, index: u16, slice: BufferSlice, buffers: &mut impl Buffers) -> Payload<'static> {
        let digest = if self.encoder.data_digest() { buffers.digest(slice) } else { 0 };
        Payload::Buffer { slice, digest, after: BufferAfter(After::Keep { slot: index.into() }) }
    }

    fn on_r2t(&mut self, cccid: u16, ttag: u16, offset: u32, len: u32, buffers: &mut impl Buffers) {
        let Some(index) = self.commands.find(cccid) else {
            return self.terminate(FatalError::InvalidHeaderField(at::CCCID));
        };
        let command = self.commands.get_mut(index);
        if !matches!(command.data, Moved::Send(_) | Moved::SendBytes(_)) {
            return self.terminate(FatalError::InvalidHeaderField(at::CCCID));
        }
        if len == 0 {
            return self.terminate(FatalError::InvalidHeaderField(at::R2T_LEN));
        }
        let end = u64::from(offset) + u64::from(len);
        if offset != command.done || end > command.len.into() {
            return self.terminate(FatalError::DataTransferOutOfRange);
        }
        command.done += len;
        self.send_data(index, cccid, ttag, offset, len, buffers);
    }

    /// Answers an R2T with H2CData PDUs, each as long as the controller takes.
    fn send_data(&mut self, index: u16, cccid: u16, ttag: u16, offset: u32, len: u32, buffers: &mut impl Buffers) {
        let end = offset + len;
        let mut from = offset;
        while from < end {
            let part = (end - from).min(self.h2c_data_max);
            let flags = if from + part == end { pdu_flags::LAST } else { 0 };
            let header = H2cData::new(cccid, ttag, from, part);
            let command = self.commands.get_mut(index);
            match &command.data {
                Moved::Send(slice) => {
                    let slice = slice.part(from, part);
                    command.references += 1;
                    let payload = self.borrowed(index, slice, buffers);
                    self.encoder.put(&mut self.out, &header, flags, payload);
                }
                Moved::SendBytes(bytes) => {
                    let bytes = &bytes[from as usize..(from + part) as usize];
                    self.encoder.put(&mut self.out, &header, flags, Payload::Bytes(bytes));
                }
                Moved::None | Moved::InCapsule | Moved::Receive(_) | Moved::ReceiveBytes(_) => return,
            }
            from += part;
        }
    }

    fn on_c2h_data(&mut self, cccid: u16, offset: u32, len: u32, success: bool) {
        let Some(index) = self.commands.find(cccid) else {
            return self.terminate(FatalError::InvalidHeaderField(at::CCCID));
        };
        let command = self.commands.get(index);
        if !matches!(command.data, Moved::Receive(_) | Moved::ReceiveBytes(_)) {
            return self.terminate(FatalError::InvalidHeaderField(at::CCCID));
        }
        let end = u64::from(offset) + u64::from(len);
        if offset != command.done || end > command.len.into() {
            return self.terminate(FatalError::DataTransferOutOfRange);
        }
        if success && command.kind == Kind::Connect {
            return self.terminate(FatalError::InvalidHeaderField(at::FLAGS));
        }
        self.inbound = Some(Inbound { index, at: offset, success });
    }

    fn on_data(&mut self, data: &[u8], buffers: &mut impl Buffers) {
        let Some(inbound) = &mut self.inbound else { return };
        let command = self.commands.get_mut(inbound.index);
        match &mut command.data {
            Moved::Receive(slice) if !self.placed => {
                buffers.write(slice.buffer, slice.offset + inbound.at, data);
            }
            Moved::ReceiveBytes(bytes) => bytes[inbound.at as usize..][..data.len()].copy_from_slice(data),
            _ => {}
        }
        inbound.at += data.len() as u32;
    }

    fn on_end(&mut self, intact: bool) {
        let Some(Inbound { index, at, success }) = self.inbound.take() else { return };
        let command = self.commands.get_mut(index);
        command.done = at;
        command.damaged |= !intact;
        if success {
            self.finish(index, Cqe::new(0, Status::SUCCESS, 0));
        }
    }

    fn on_response(&mut self, cqe: Cqe) {
        let Some(index) = self.commands.find(cqe.cid()) else {
            return self.terminate(FatalError::InvalidHeaderField(at::RESPONSE_CID));
        };
        if self.commands.get(index).kind == Kind::Connect {
            return self.on_connected(index, cqe);
        }
        self.finish(index, cqe);
    }

    fn on_connected(&mut self, index: u16, cqe: Cqe) {
        self.commands.remove(index);
        let status = cqe.status();
        if !status.is_success() {
            let name = status.name_for(true).unwrap_or("Unknown status");
            let about_parameter = status.is(Status::CONNECT_INVALID_PARAMETERS);
            let parameter = about_parameter.then(|| crate::wire::ConnectError::from_result(cqe.result()));
            return self.end(ConnectionError::Refused { status, name, parameter }, State::Draining);
        }
        // AUTHREQ, bits 31:16 (Base 6.3).
        if cqe.result() >> 16 & 0xffff != 0 {
            return self.end(ConnectionError::AuthenticationRequired, State::Draining);
        }
        if cqe.sqhd() != 0xffff {
            // The controller insists on flow control: a queue is full with one entry less.
            self.commands.limit(u32::from(self.config.entries) - 1);
        }
        self.connect_deadline = None;
        self.state = State::Live;
        self.events.push_back(Event::Connected { controller_id: cqe.result() as u16 });
    }

    /// A command has ended, as far as the controller is concerned.
    fn finish(&mut self, index: u16, cqe: Cqe) {
        let command = self.commands.get_mut(index);
        let (status, result) = (cqe.status(), cqe.result());
        let receives = matches!(command.data, Moved::Receive(_) | Moved::ReceiveBytes(_));
        let outcome = if !status.is_success() {
            Err(CommandError::Status { status, result })
        } else if command.damaged {
            Err(CommandError::DataDigest)
        } else if receives && command.whole && command.done < command.len {
            Err(CommandError::ShortTransfer { got: command.done, want: command.len })
        } else {
            let received_len = if receives { command.done } else { 0 };
            let mut bytes = match &mut command.data {
                Moved::ReceiveBytes(bytes) => std::mem::take(bytes),
                _ => Vec::new(),
            };
            bytes.truncate(received_len as usize);
            Ok(Answer { result, received_len, bytes })
        };
        command.outcome = Some(outcome);
        if command.references == 0 {
            self.report(index);
        }
    }

    /// Tells the caller, and frees the slot.
    fn report(&mut self, index: u16) {
        let command = self.commands.remove(index);
        if let Some(outcome) = command.outcome {
            self.events.push_back(Event::Completed(Completed { user_data: command.user_data, outcome }));
        }
    }
}

/// The least MAXH2CDATA that a controller may grant (TCP 3.6.2.3).
const H2C_DATA_MAX_LEAST: u32 = 4096;

/// Opcodes from here on are the vendor's: only they say how much data makes an answer.
const VENDOR_OPCODES: u8 = 0x80;
