//! One TCP connection of a controller, which is one queue pair.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::auth::{self, AuthError, Names, TlsPsk};
use crate::buffer::{BufferPool, BufferSlice, Buffers};
use crate::nqn::Nqn;
use crate::pdu::{Decoder, Encoder, Role, Step};
use crate::transmit::Transmit;
use crate::wire::{FatalError, PduKind, Sqe};

use super::command::QueueKind;
use super::config::Place;
use super::request::{Operation, Request, Tag};
use super::shared::{Controller, Counters};
use super::slots::{Sink, Slots};
use super::subsystem::{Namespaces, Subsystems};

/// Bytes of write data that a command capsule may carry. I/O controllers say so in IOCCSZ; on admin queues it is what the
/// transport allows (TCP 3.3.2.2).
pub(super) const IN_CAPSULE_LEN: u32 = 8192;
/// The most Asynchronous Event Requests outstanding.
pub(super) const ASYNC_EVENTS_MAX: u8 = 4;
/// The most Aborts outstanding.
pub(super) const ABORTS_MAX: u8 = 4;
/// The most bytes of answers that a connection keeps in memory before it stops reading commands.
const UNSENT_BYTES_MAX: usize = 256 << 10;

/// The settings of a connection, given when it is made.
#[derive(Clone, Debug)]
pub struct ConnectionConfig {
    /// The address of this machine to which the host connected, if it is known: the discovery log gives it to the host.
    pub local_address: Option<IpAddr>,
    /// The most data bytes of one H2CData PDU (MAXH2CDATA); a multiple of 4, at least 4,096.
    pub h2c_data_len_max: u32,
    /// The most bytes that one R2T asks for; a multiple of 4.
    pub r2t_len_max: u32,
    /// How long a peer may take to send ICReq and Connect.
    pub connect_timeout: Duration,
    /// How long a host may take to authenticate, each time.
    pub authentication_timeout: Duration,
    /// The peer is part of this process: it need neither be known nor authenticate.
    pub trusted: bool,
    /// Whether header digests are used when the host asks for them.
    pub allow_header_digest: bool,
    /// Whether data digests are used when the host asks for them.
    pub allow_data_digest: bool,
}

impl Default for ConnectionConfig {
    fn default() -> Self {
        Self {
            local_address: None,
            h2c_data_len_max: 128 << 10,
            r2t_len_max: 1 << 20,
            connect_timeout: Duration::from_secs(10),
            authentication_timeout: Duration::from_secs(30),
            trusted: false,
            allow_header_digest: true,
            allow_data_digest: true,
        }
    }
}

impl ConnectionError {
    /// Whether the connection ended because of something else that ended, in whatever order: then the reason, if it is
    /// worth a word, is said there. So end the I/O queues of every host that shuts its controller down.
    pub fn is_consequence(&self) -> bool {
        matches!(self, Self::ControllerGone | Self::Shutdown)
    }
}

/// Where the key of a secure channel is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelKind {
    /// It is one of the host's.
    Known,
    /// An authentication made it (secure channel concatenation).
    Generated,
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

/// One connection. See the [module of the controller](super) for how to drive it.
#[derive(Debug)]
pub struct Connection {
    pub(super) subsystems: Arc<Subsystems>,
    pub(super) config: ConnectionConfig,
    pub(super) waker: Waker,
    /// Whose key the secure channel has over which the bytes come, if they do.
    pub(super) channel: Option<(Names, ChannelKind)>,
    /// The key of the channel that must follow, which the host's authentication made.
    pub(super) generated: Option<TlsPsk>,
    pub(super) state: State,
    pub(super) error: Option<ConnectionError>,
    pub(super) decoder: Decoder,
    pub(super) encoder: Encoder,
    /// The bytes to be sent next.
    pub(super) out: Transmit,
    /// Answers in `out`: their commands' places are taken until they are handed over.
    pub(super) unsent_answers: u32,
    /// Bytes of data in `out` itself.
    pub(super) unsent_bytes: usize,
    /// A batch was handed over and not yet reported as sent.
    sending: bool,
    pub(super) slots: Slots,
    pub(super) requests: VecDeque<Request>,
    /// Where the data of the current PDU goes.
    pub(super) inbound: Inbound,
    /// Bytes of the current input are in their place already.
    pub(super) placed: bool,
    /// A command in front of whose data reading stopped, because there was no buffer.
    pub(super) held: Option<(Sqe, u32)>,
    /// Commands that wait for a buffer.
    pub(super) waiting: VecDeque<Tag>,
    /// Commands whose parameters are to be asked for, once others' have come.
    pub(super) parameters_unasked: VecDeque<Tag>,
    /// Bytes of parameters that were asked for and have not come completely.
    pub(super) parameters_asked: u32,
    /// R2Ts whose data has not come completely.
    pub(super) r2ts: u32,
    /// Bytes that R2Ts asked for and whose PDUs have not begun to come.
    pub(super) awaited_bytes: u64,
    pub(super) link: Option<Link>,
    pub(super) deadline: Option<Instant>,
    /// A deadline was put off, because this side looked too late.
    pub(super) was_late: bool,
    /// When authenticating must be over.
    pub(super) authentication_deadline: Option<Instant>,
    /// Requests for events, oldest first.
    pub(super) events: VecDeque<Tag>,
    /// The target shuts down: nothing is read, what the embedder has is still answered.
    pub(super) finishing: bool,
    /// The host that was not let in last, until somebody asked.
    pub(super) refused: Option<Nqn>,
}

/// Where the data of the current PDU goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inbound {
    /// Its command was refused.
    Discard,
    /// To a command; `at` is the place of the next byte.
    Slot { slot: u32, at: u32 },
}

/// A queue of a controller, from Connect on.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) controller: Arc<Controller>,
    pub(super) queue_id: u16,
    pub(super) entries: u16,
    pub(super) flow_control: bool,
    pub(super) sqhd: u16,
    pub(super) namespaces: Arc<Namespaces>,
    /// The host enabled all command sets, not only NVM. Of I/O queues: it cannot change while they live.
    pub(super) all_command_sets: bool,
    pub(super) counters: Arc<Counters>,
    /// Set when this queue must end.
    pub(super) close: Arc<AtomicBool>,
    /// The gate: until it is set nothing but authentication is done. An I/O queue is the controller's only then.
    pub(super) authenticated: bool,
    /// The host is let in only to make the key of a secure channel.
    pub(super) must_concatenate: bool,
    /// If the host has keys: what authenticates it.
    pub(super) authentication: Option<Box<auth::Controller>>,
    /// The data that the embedder keeps for it, once it is let in.
    pub(super) place: Option<Place>,
}

impl Connection {
    /// A connection that was just accepted. `waker` is woken, from any thread, when something outside this connection
    /// concerns it: then call [`handle_wake`](Self::handle_wake). It is woken with locks held, and must not call back.
    pub fn new(subsystems: Arc<Subsystems>, config: ConnectionConfig, waker: Waker, now: Instant) -> Self {
        let deadline = Some(now + config.connect_timeout);
        let decoder = Decoder::new(Role::Controller, IN_CAPSULE_LEN, config.h2c_data_len_max);
        Self {
            subsystems,
            config,
            waker,
            channel: None,
            generated: None,
            state: State::Negotiating,
            error: None,
            decoder,
            encoder: Encoder::plain(),
            out: Transmit::new(),
            unsent_answers: 0,
            unsent_bytes: 0,
            sending: false,
            slots: Slots::new(),
            requests: VecDeque::new(),
            inbound: Inbound::Discard,
            placed: false,
            held: None,
            waiting: VecDeque::new(),
            parameters_unasked: VecDeque::new(),
            parameters_asked: 0,
            r2ts: 0,
            awaited_bytes: 0,
            link: None,
            deadline,
            was_late: false,
            authentication_deadline: None,
            events: VecDeque::new(),
            finishing: false,
            refused: None,
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

    /// Takes the name of a host that was not let in, if a Connect since the last call named one.
    pub fn take_refused(&mut self) -> Option<Nqn> {
        self.refused.take()
    }

    /// Whether the host has proved who it is, by authentication or by its secure channel; one that need not has not.
    pub fn has_proved_itself(&self) -> bool {
        let has_key = |link: &Link| link.authentication.is_some() || self.channel.is_some();
        self.link.as_ref().is_some_and(|link| link.authenticated && has_key(link))
    }

    /// Why it ended, if it was not the host's Disconnect.
    pub fn error(&self) -> Option<&ConnectionError> {
        self.error.as_ref()
    }

    /// Whether more input is welcome. If not, leave it in the socket (back-pressure) until a completion, a send or
    /// [`handle_buffers`](Self::handle_buffers) made room.
    pub fn wants_input(&self) -> bool {
        self.is_open() && self.held.is_none() && self.unsent_bytes < UNSENT_BYTES_MAX
    }

    /// Whether the pool had no buffer for this connection: call [`handle_buffers`](Self::handle_buffers) when it has.
    pub fn awaits_buffers(&self) -> bool {
        self.held.is_some() || !self.waiting.is_empty()
    }

    /// If the next bytes of the stream are write data: where they belong. A shell may receive right into it and then call
    /// [`handle_received`](Self::handle_received) instead of `handle_bytes`.
    pub fn receive_target(&self) -> Option<BufferSlice> {
        if self.wants_input() { self.data_target() } else { None }
    }

    fn data_target(&self) -> Option<BufferSlice> {
        let Inbound::Slot { slot, at } = self.inbound else { return None };
        if !self.decoder.at_data() {
            return None;
        }
        let mut target = self.slots.checked(slot)?.target(at)?;
        target.len = target.len.min(self.decoder.data_left());
        (target.len > 0).then_some(target)
    }

    /// Bytes of write data that the host was asked for and has not begun to send. While there are many, a shell does well
    /// to receive headers alone, so that it can receive what is behind them into the
    /// [`receive_target`](Self::receive_target).
    pub fn awaited_bytes(&self) -> u64 {
        self.awaited_bytes
    }

    /// Queue identifier: 0 for an admin queue; `None` before Connect.
    pub fn queue_id(&self) -> Option<u16> {
        self.link.as_ref().map(|link| link.queue_id)
    }

    /// Controller identifier; `None` before Connect.
    pub fn controller_id(&self) -> Option<u16> {
        self.link.as_ref().map(|link| link.controller.cntlid)
    }

    /// Names the controller among all of this process, also those that are gone; `None` before Connect.
    pub fn association(&self) -> Option<u64> {
        self.link.as_ref().map(|link| link.controller.association)
    }

    /// Entries of the submission queue; 0 before Connect.
    pub fn queue_entries(&self) -> u16 {
        self.link.as_ref().map_or(0, |link| link.entries)
    }

    /// The bytes come over a secure channel whose key is that of these two: before the first of them is handed over. The
    /// host must connect by the name of the key, and to its subsystem.
    pub fn set_channel(&mut self, names: Names, kind: ChannelKind) {
        self.channel = Some((names, kind));
    }

    /// Takes the key of a secure channel that the host's authentication made, and its names: it must be known before what
    /// there is to send is sent, because the host comes with it next.
    pub fn take_generated(&mut self) -> Option<(Names, TlsPsk)> {
        let link = self.link.as_ref()?;
        let psk = self.generated.take()?;
        let names = Names { host: link.controller.host.clone(), subsystem: link.controller.subsystem.nqn().clone() };
        Some((names, psk))
    }

    /// The host's name; `None` before Connect.
    pub fn host_nqn(&self) -> Option<&Nqn> {
        self.link.as_ref().map(|link| &link.controller.host)
    }

    /// The subsystem's name; `None` before Connect.
    pub fn subsystem_nqn(&self) -> Option<&Nqn> {
        self.link.as_ref().map(|link| link.controller.subsystem.nqn())
    }

    /// Whether the host need not, or need no longer, prove who it is; false before Connect.
    pub fn is_authenticated(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.authenticated)
    }

    /// Commands that arrived and whose answer was not yet handed to `poll_transmit`.
    pub fn commands_outstanding(&self) -> u32 {
        self.slots.len() + self.unsent_answers
    }

    // -- B: what happened ---------------------------------------------------------------------------------------------

    /// Bytes came from the socket. Returns how many were consumed: fewer than given means that
    /// [`wants_input`](Self::wants_input) became false; keep the rest and offer it again later. Bytes that come after the
    /// end are consumed and dropped.
    pub fn handle_bytes(&mut self, now: Instant, bytes: &[u8], pool: &mut impl BufferPool) -> usize {
        self.look_around();
        let mut input = bytes;
        while self.wants_input() && self.take_step(now, &mut input, pool) {}
        if self.is_open() { bytes.len() - input.len() } else { bytes.len() }
    }

    /// Bytes came from the socket and already are in what was the [`receive_target`](Self::receive_target) when the receive
    /// began, from its start on, and not beyond its end. Data digests are checked from `bytes`. All of them are taken,
    /// also where further input became unwelcome meanwhile: they are in their place.
    pub fn handle_received(&mut self, now: Instant, bytes: &[u8], pool: &mut impl BufferPool) {
        self.look_around();
        if !self.is_open() {
            return;
        }
        debug_assert!(
            self.data_target().is_some_and(|target| bytes.len() <= target.len as usize),
            "bytes were received into the target"
        );
        self.placed = true;
        let mut input = bytes;
        while self.is_open() && self.take_step(now, &mut input, pool) {}
        self.placed = false;
    }

    /// Takes what is next in the input; false if there is nothing left of it.
    fn take_step(&mut self, now: Instant, input: &mut &[u8], pool: &mut impl BufferPool) -> bool {
        match self.decoder.step(input) {
            Ok(Step::Starved) => return false,
            Ok(Step::Header(header)) => self.on_header(now, header, pool),
            Ok(Step::Data(data)) => self.on_data(data, pool),
            Ok(Step::End { intact }) => self.on_end(now, intact, pool),
            Err(error) => self.terminate(error),
        }
        true
    }

    /// The socket is gone or was closed; call it once at the end of every connection. Buffers that the connection owns
    /// are released; those of a batch that is being sent are in the `Transmit`, see [`Transmit::abandon`]. Requests that
    /// the embedder has may still be completed (that only releases), or forgotten with the connection.
    pub fn handle_close(&mut self, buffers: &mut impl Buffers) {
        self.end(Some(ConnectionError::PeerClosed), State::Closed);
        self.out.abandon(|buffer| buffers.release(buffer));
        self.sending = false;
        self.held = None;
        let slots: Vec<u32> = self.slots.indices().collect();
        for slot in slots {
            if let Sink::Buffer(buffer) = self.slots.remove(slot) {
                buffers.release(buffer);
            }
        }
        for request in self.requests.drain(..) {
            if let Some(slice) = request.operation.data() {
                buffers.release(slice.buffer);
            }
        }
    }

    /// [`poll_timeout`](Self::poll_timeout) has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        let is_due = |deadline: Option<Instant>| deadline.is_some_and(|deadline| now >= deadline);
        if !self.is_open() || self.excuse(now) {
            return;
        }
        if is_due(self.authentication_deadline) {
            return self.end(Some(ConnectionError::Authentication(AuthError::Timeout)), State::Closed);
        }
        if !is_due(self.deadline) {
            return;
        }
        if let Some(link) = &self.link
            && link.controller.features().keep_alive_ms == 0
            && !link.controller.subsystem.is_discovery()
            && link.controller.take_heard()
        {
            self.deadline = Some(now + SILENCE_MAX);
            return;
        }
        let error = match &self.link {
            None => ConnectionError::ConnectTimeout,
            Some(link) => ConnectionError::KeepAliveExpired(self.keep_alive(link)),
        };
        self.end(Some(error), State::Closed);
    }

    /// A caller that looks much later than it was asked to stood still: its process was stopped, or its machine. The host's words
    /// meanwhile may not have been heard, so the host has its time once more, and then none before it is heard.
    fn excuse(&mut self, now: Instant) -> bool {
        let is_late = self.poll_timeout().is_some_and(|due| now.saturating_duration_since(due) >= LATE);
        if !is_late || std::mem::replace(&mut self.was_late, true) {
            return false;
        }
        let time = self.link.as_ref().map_or(self.config.connect_timeout, |link| self.keep_alive(link));
        self.deadline = self.deadline.map(|deadline| deadline.max(now + time));
        let time = self.config.authentication_timeout;
        self.authentication_deadline = self.authentication_deadline.map(|deadline| deadline.max(now + time));
        true
    }

    /// The waker was woken.
    pub fn handle_wake(&mut self, _now: Instant) {
        self.look_around();
        if !self.is_open() {
            return;
        }
        match self.link.as_ref().map(|link| link.queue_id) {
            Some(0) => self.tell_events(),
            Some(_) => self.obey_aborts(),
            None => {}
        }
        if self.queue_kind() == Some(QueueKind::Admin) {
            self.finish_aborts();
        }
    }

    /// The pool has buffers again after it had none. Returns whether the connection still waits for more; if not, offer
    /// input that was not consumed again.
    pub fn handle_buffers(&mut self, now: Instant, pool: &mut impl BufferPool) -> bool {
        if self.is_open() {
            self.serve_waiting(now, pool);
            if let Some((sqe, data_len)) = self.held.take() {
                self.on_command(now, sqe, data_len, pool);
            }
        }
        self.awaits_buffers()
    }

    /// The batch was sent completely; the `Transmit` is empty and can be used again.
    pub fn handle_transmitted(&mut self, transmit: &mut Transmit) {
        debug_assert!(transmit.is_empty(), "only a batch that was sent completely is done");
        transmit.clear();
        self.sending = false;
    }

    // -- D: what to do (C, the embedder's answers, is in `reply`) -----------------------------------------------------

    /// The operation that [`poll_request`](Self::poll_request) gives next. It may be left there; the connection continues to
    /// receive.
    pub fn next_operation(&self) -> Option<&Operation> {
        self.requests.front().map(|request| &request.operation)
    }

    /// The next request for the media.
    pub fn poll_request(&mut self) -> Option<Request> {
        self.requests.pop_front()
    }

    /// Moves what there is to send into `transmit`, which must be empty. Returns whether there is anything.
    pub fn poll_transmit(&mut self, transmit: &mut Transmit) -> bool {
        debug_assert!(transmit.is_clear(), "one batch at a time");
        if self.out.is_empty() || self.state == State::Closed {
            return false;
        }
        std::mem::swap(&mut self.out, transmit);
        self.unsent_answers = 0;
        self.unsent_bytes = 0;
        self.sending = true;
        true
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let deadlines = [self.deadline, self.authentication_deadline].into_iter().flatten();
        if self.is_open() { deadlines.min() } else { None }
    }

    // -- life ---------------------------------------------------------------------------------------------------------

    /// Whether commands are taken, or may be once the host connects.
    pub(super) fn is_open(&self) -> bool {
        !self.finishing && !matches!(self.state, State::Draining | State::Closed)
    }

    pub(super) fn queue_kind(&self) -> Option<QueueKind> {
        self.link.as_ref().map(|link| if link.queue_id == 0 { QueueKind::Admin } else { QueueKind::Io })
    }

    /// Notices what others changed: the end of the controller or the target, and the namespaces.
    fn look_around(&mut self) {
        let Some(link) = &mut self.link else {
            if self.subsystems.is_shutting_down() {
                self.end(Some(ConnectionError::Shutdown), State::Closed);
            }
            return;
        };
        if self.subsystems.is_shutting_down() {
            // Whatever order the controller's queues end in: each first answers what the embedder has.
            if self.is_open() && !self.finishing {
                self.finishing = true;
                self.error = Some(ConnectionError::Shutdown);
                self.finish_if_idle();
            }
            return;
        }
        if link.close.load(Ordering::Acquire) || link.controller.is_closed() {
            self.end(Some(ConnectionError::ControllerGone), State::Closed);
            return;
        }
        if link.controller.subsystem.epoch() != link.namespaces.epoch {
            link.namespaces = link.controller.subsystem.snapshot_for(&link.controller);
        }
    }

    /// While finishing: ends once the embedder owes no answer.
    pub(super) fn finish_if_idle(&mut self) {
        let owed = |slot| self.slots.get(slot).stage == super::slots::Stage::WithEmbedder;
        if self.finishing && !self.slots.indices().any(owed) {
            self.end(None, State::Draining);
        }
    }

    /// The peer broke the protocol: tell it, and end.
    pub(super) fn terminate(&mut self, error: FatalError) {
        let encoder = Encoder::plain();
        encoder.terminate(&mut self.out, PduKind::C2hTermReq, error, self.decoder.offending_header());
        self.end(Some(ConnectionError::Protocol(error)), State::Draining);
    }

    /// Ends the connection, and with an admin queue its controller.
    pub(super) fn end(&mut self, error: Option<ConnectionError>, state: State) {
        if matches!(self.state, State::Draining | State::Closed) {
            if state == State::Closed {
                self.state = state;
            }
            return;
        }
        self.state = state;
        self.deadline = None;
        if self.error.is_none() {
            self.error = error;
        }
        self.unlink();
    }

    fn unlink(&mut self) {
        let Some(link) = &mut self.link else { return };
        link.place = None;
        if link.queue_id == 0 {
            link.controller.subsystem.detach(link.controller.cntlid);
            link.controller.close();
        } else {
            link.controller.remove_queue(link.queue_id, &link.close);
        }
    }

    /// How long the host may be silent.
    pub(super) fn keep_alive(&self, link: &Link) -> Duration {
        let timeout_ms = link.controller.features().keep_alive_ms;
        match (timeout_ms, link.controller.subsystem.is_discovery()) {
            (0, false) => SILENCE_MAX,
            // Discovery controllers without a timeout end after two minutes without a command (Base 3.1.3.3.1).
            (0, true) => Duration::from_secs(120),
            (timeout_ms, _) => {
                let granularity_ms = u64::from(super::identify::KEEP_ALIVE_GRANULARITY_100MS) * 100;
                Duration::from_millis(u64::from(timeout_ms).next_multiple_of(granularity_ms))
            }
        }
    }
}

/// How long a host that asked for no Keep Alive may send no command at all: its controller must not stay for ever.
const SILENCE_MAX: Duration = Duration::from_secs(600);

/// So late nobody looks at a deadline who has not stood still.
const LATE: Duration = Duration::from_secs(1);

impl Drop for Connection {
    /// A connection that is dropped without [`handle_close`](Self::handle_close) must not leave its controller behind.
    fn drop(&mut self) {
        if !matches!(self.state, State::Draining | State::Closed) {
            self.unlink();
        }
    }
}
