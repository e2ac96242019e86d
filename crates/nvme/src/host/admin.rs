//! The admin queue of a host: brings a controller up, keeps it alive, learns its namespaces, and tells what changed.

mod sequence;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::auth::{Done, TlsPsk, Work};
use crate::buffer::{BufferSlice, Buffers};
use crate::nqn::Nqn;
use crate::transmit::Transmit;
use crate::wire::{CONTROLLER_ID_DYNAMIC, Cc, Sqe, admin_opcode, cns, property};

use super::connection::{Connection, ConnectionConfig, ConnectionError, Event, HostIdentity, State};
use super::info::{ControllerInfo, DiscoveredSubsystem, NamespaceInfo};
use super::learn::Discovery;
use super::login::Login;
use super::submission::NoBuffers;
use super::submission::{CommandError, Completed, Data, Submission, SubmitError};

/// The settings of an admin connection, given when it is made.
#[derive(Clone, Debug)]
pub struct AdminConfig {
    /// The host that connects.
    pub host: HostIdentity,
    /// To which subsystem; [`Nqn::discovery`] for discovery.
    pub subsystem: Nqn,
    /// I/O queue pairs wanted (0 for discovery).
    pub io_queues: u16,
    /// Entries of each I/O queue wanted.
    pub io_queue_entries: u16,
    /// Keep Alive Timeout in milliseconds; 0: none. A controller that does not answer Keep Alive for so long is given up, too,
    /// whatever its commands may take.
    pub keep_alive_ms: u32,
    /// Ask for header digests, on all queues.
    pub header_digest: bool,
    /// Ask for data digests, on all queues.
    pub data_digest: bool,
    /// With what the host proves who it is, on all queues.
    pub login: Login,
    /// How long each step of coming up may take.
    pub connect_timeout: Duration,
    /// How long an admin command may take.
    pub command_timeout: Duration,
}

/// Something that the embedder wants to know.
#[derive(Debug)]
#[non_exhaustive]
pub enum AdminEvent {
    /// Compute this, and hand it to [`Admin::computed`].
    Compute(Work),
    /// Authenticating made this key: connect again, over a secure channel with it, and without authentication. This connection
    /// ends.
    Channel(TlsPsk),
    /// The controller is up: connect its I/O queues.
    Ready(Box<ControllerInfo>),
    /// The answer to [`Admin::identify_namespace`].
    Namespace {
        /// The namespace asked for.
        nsid: u32,
        /// The known facts, or why there are none.
        info: Result<NamespaceInfo, CommandError>,
    },
    /// Namespaces came, went or changed; these are the active ones now, and those that the controller names as changed.
    NamespacesChanged {
        /// Active namespaces, ascending.
        active: Vec<u32>,
        /// Changed namespaces (empty if the controller did not say which).
        changed: Vec<u32>,
    },
    /// The answer to [`Admin::discover`].
    Discovered(Result<Vec<DiscoveredSubsystem>, CommandError>),
    /// The discovery log has changed: ask again.
    DiscoveryChanged,
    /// A command of [`Admin::submit`] has ended.
    Completed(Completed),
    /// An [`abort`](Admin::abort) was answered: whether the command was aborted.
    Aborted {
        /// Queue of the command.
        queue_id: u16,
        /// Its identifier.
        command_id: u16,
        /// Whether the controller says that it was aborted. If not it may still complete.
        aborted: bool,
    },
    /// The connection has ended, and with it the controller: close its I/O queues.
    Closed(ConnectionError),
}

/// The admin queue's connection and the sequence that brings a controller up.
#[derive(Debug)]
pub struct Admin {
    pub(super) config: AdminConfig,
    pub(super) connection: Connection,
    pub(super) info: Option<ControllerInfo>,
    /// Whether there was an [`AdminEvent::Ready`].
    pub(super) ready: bool,
    /// CC as it was set last.
    cc: Cc,
    /// Until when RDY, or the end of a shutdown, is waited for.
    ready_deadline: Option<Instant>,
    /// When CSTS is read again.
    next_poll: Option<Instant>,
    next_keep_alive: Option<Instant>,
    /// The purposes of the answers to commands in flight, by user data.
    purposes: BTreeMap<u64, Purpose>,
    next_ticket: u64,
    /// Commands of our own that wait for a place in the queue.
    backlog: VecDeque<(Purpose, Sqe, Data)>,
    pub(super) discovery: Option<Discovery>,
    shutting_down: bool,
    /// When something was last said to have happened: time for calls that have none.
    now: Instant,
    pub(super) events: VecDeque<AdminEvent>,
}

/// The purpose of the answer to a command.
#[derive(Debug)]
pub(super) enum Purpose {
    Capabilities,
    Enable,
    PollStatus,
    IdentifyController,
    Queues,
    EventConfig,
    /// The next 1,024 active namespaces; those before, and which ones had changed if this is not the first time.
    ActiveNamespaces {
        so_far: Vec<u32>,
        changed: Option<Vec<u32>>,
    },
    ChangedNamespaces,
    EventRequest,
    /// A log page that is read only to be told of its next event.
    Acknowledge,
    KeepAlive,
    Descriptors(NamespaceInfo),
    Namespace(NamespaceInfo),
    DiscoveryHeader,
    DiscoveryPart,
    DiscoveryCheck,
    Abort {
        queue_id: u16,
        command_id: u16,
    },
    Shutdown,
    PollShutdown,
    User(u64),
}

/// Entries of the admin queue.
const ENTRIES: u16 = 32;
/// Bytes of data that an admin command capsule may carry (TCP 3.3.2.2).
const IN_CAPSULE_LEN: u32 = 8192;
/// The longest transfer that is asked for where a controller has no limit.
const TRANSFER_LEN_MAX: u32 = 1 << 20;
/// How often CSTS is read while it is not ready.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

impl Admin {
    /// A connection whose socket is connected.
    pub fn new(config: AdminConfig, now: Instant) -> Self {
        let connection = ConnectionConfig {
            host: config.host.clone(),
            subsystem: config.subsystem.clone(),
            queue_id: 0,
            controller_id: CONTROLLER_ID_DYNAMIC,
            entries: ENTRIES,
            keep_alive_ms: config.keep_alive_ms,
            header_digest: config.header_digest,
            data_digest: config.data_digest,
            in_capsule_len: IN_CAPSULE_LEN,
            transfer_len_max: TRANSFER_LEN_MAX,
            connect_timeout: config.connect_timeout,
            login: config.login.clone(),
        };
        Self {
            config,
            connection: Connection::new(connection, now),
            info: None,
            ready: false,
            cc: Cc::default(),
            ready_deadline: None,
            next_poll: None,
            next_keep_alive: None,
            purposes: BTreeMap::new(),
            next_ticket: 0,
            backlog: VecDeque::new(),
            discovery: None,
            shutting_down: false,
            now,
            events: VecDeque::new(),
        }
    }

    // -- A: what is known ---------------------------------------------------------------------------------------------

    /// Where the connection stands.
    pub fn state(&self) -> State {
        self.connection.state()
    }

    /// The known facts about the controller; `None` until it is up.
    pub fn controller(&self) -> Option<&ControllerInfo> {
        self.info.as_ref().filter(|_| self.ready)
    }

    /// The configuration of the connection for I/O queue `queue_id`, 1 up to the number granted; `None` until the
    /// controller is up, or beyond that number.
    pub fn io_queue_config(&self, queue_id: u16) -> Option<ConnectionConfig> {
        let info = self.controller()?;
        if queue_id == 0 || queue_id > info.io_queues {
            return None;
        }
        Some(ConnectionConfig {
            host: self.config.host.clone(),
            subsystem: self.config.subsystem.clone(),
            queue_id,
            controller_id: info.controller_id,
            entries: info.io_queue_entries,
            keep_alive_ms: 0,
            header_digest: self.config.header_digest,
            data_digest: self.config.data_digest,
            in_capsule_len: info.in_capsule_len,
            transfer_len_max: info.transfer_len_max,
            connect_timeout: self.config.connect_timeout,
            login: self.config.login.clone(),
        })
    }

    /// As [`Connection::receive_target`](super::Connection::receive_target).
    pub fn receive_target(&self) -> Option<BufferSlice> {
        self.connection.receive_target()
    }

    // -- B: what happened ---------------------------------------------------------------------------------------------

    /// Takes the result that [`AdminEvent::Compute`] asked for.
    pub fn computed(&mut self, now: Instant, done: Done) {
        self.connection.computed(now, done);
        self.advance(now);
    }

    /// Bytes came from the socket; all are consumed.
    pub fn handle_bytes(&mut self, now: Instant, bytes: &[u8], buffers: &mut impl Buffers) {
        self.connection.handle_bytes(now, bytes, buffers);
        self.advance(now);
    }

    /// As [`Connection::handle_received`](super::Connection::handle_received).
    pub fn handle_received(&mut self, now: Instant, bytes: &[u8], buffers: &mut impl Buffers) {
        self.connection.handle_received(now, bytes, buffers);
        self.advance(now);
    }

    /// As [`Connection::handle_close`](super::Connection::handle_close).
    pub fn handle_close(&mut self) {
        self.connection.handle_close();
        self.advance(self.now);
    }

    /// [`poll_timeout`](Self::poll_timeout) has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.connection.handle_timeout(now);
        let due = |at: Option<Instant>| at.is_some_and(|at| now >= at);
        if due(self.ready_deadline) {
            self.ready_deadline = None;
            let what = if self.shutting_down { "it did not shut down in time" } else { "CSTS.RDY stayed 0" };
            self.connection.fail(ConnectionError::NotReady(what));
        }
        if due(self.next_poll) {
            self.next_poll = None;
            let purpose = if self.shutting_down { Purpose::PollShutdown } else { Purpose::PollStatus };
            self.send(purpose, Sqe::property_get(property::CSTS, false), Data::None);
        }
        if due(self.next_keep_alive) {
            self.next_keep_alive = self.keep_alive_interval().map(|interval| now + interval);
            self.send(Purpose::KeepAlive, Sqe::new(admin_opcode::KEEP_ALIVE, 0), Data::None);
        }
        self.advance(now);
    }

    /// The batch was sent completely; the `Transmit` is empty and can be used again.
    pub fn handle_transmitted(&mut self, transmit: &mut Transmit) {
        self.connection.handle_transmitted(transmit);
        self.advance(self.now);
    }

    // -- C: commands --------------------------------------------------------------------------------------------------

    /// Asks for a namespace's size and format; answered by [`AdminEvent::Namespace`].
    pub fn identify_namespace(&mut self, now: Instant, nsid: u32) {
        let sqe = Sqe::identify(cns::NAMESPACE_DESCRIPTORS, nsid, 0);
        self.send(Purpose::Descriptors(NamespaceInfo::unknown(nsid)), sqe, Data::ReceiveBytes(4096));
        self.advance(now);
    }

    /// Reads the discovery log; answered by [`AdminEvent::Discovered`]. If it is being read already, one answer is for
    /// both.
    pub fn discover(&mut self, now: Instant) {
        if self.discovery.is_none() {
            self.discovery = Some(Discovery { generation: 0, records: 0, bytes: Vec::new(), tries: 0 });
            self.read_discovery_header(Purpose::DiscoveryHeader, true);
            self.advance(now);
        }
    }

    /// Asks for the end of a command; answered by [`AdminEvent::Aborted`].
    pub fn abort(&mut self, now: Instant, queue_id: u16, command_id: u16) {
        self.send(Purpose::Abort { queue_id, command_id }, Sqe::abort(queue_id, command_id), Data::None);
        self.advance(now);
    }

    /// Sends any other admin command; answered by [`AdminEvent::Completed`]. Taken once the controller is up.
    pub fn submit(
        &mut self,
        now: Instant,
        submission: Submission,
        buffers: &mut impl Buffers,
    ) -> Result<u16, SubmitError> {
        if !self.ready {
            return Err(SubmitError::NotReady);
        }
        let ticket = self.next_ticket;
        let purpose = Purpose::User(submission.user_data);
        let cid = self.connection.submit(now, Submission { user_data: ticket, ..submission }, buffers)?;
        self.next_ticket += 1;
        self.purposes.insert(ticket, purpose);
        Ok(cid)
    }

    /// Shuts the controller down in good order (CC.SHN); the connection closes when that is done.
    pub fn shutdown(&mut self, now: Instant) {
        if self.connection.state() != State::Live {
            return self.connection.disconnect(now);
        }
        if !std::mem::replace(&mut self.shutting_down, true) {
            self.next_poll = None;
            self.next_keep_alive = None;
            self.ready_deadline = Some(now + self.config.connect_timeout);
            self.cc = self.cc.with_shutdown(0b01);
            self.send(Purpose::Shutdown, Sqe::property_set(property::CC, false, self.cc.0.into()), Data::None);
            self.advance(now);
        }
    }

    /// Ends the connection at once.
    pub fn disconnect(&mut self, now: Instant) {
        self.connection.disconnect(now);
    }

    // -- D: what to do ------------------------------------------------------------------------------------------------

    /// The next event.
    pub fn poll_event(&mut self) -> Option<AdminEvent> {
        self.events.pop_front()
    }

    /// Moves what there is to send into `transmit`, which must be empty. Returns whether there is anything.
    pub fn poll_transmit(&mut self, transmit: &mut Transmit) -> bool {
        self.connection.poll_transmit(transmit)
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if matches!(self.connection.state(), State::Draining | State::Closed) {
            return None;
        }
        let ours = [self.ready_deadline, self.next_poll, self.next_keep_alive];
        ours.into_iter().chain([self.connection.poll_timeout()]).flatten().min()
    }

    // -- the sequence -------------------------------------------------------------------------------------------------

    /// Sends what waits, and takes what the connection has to tell, until there is nothing more.
    fn advance(&mut self, now: Instant) {
        self.now = now;
        loop {
            self.send_backlog(now);
            let Some(event) = self.connection.poll_event() else { return };
            match event {
                Event::Connected { .. } => {
                    self.next_keep_alive = self.keep_alive_interval().map(|interval| now + interval);
                    self.send(Purpose::Capabilities, Sqe::property_get(property::CAP, true), Data::None);
                }
                Event::Completed(Completed { user_data, outcome }) => {
                    if let Some(purpose) = self.purposes.remove(&user_data) {
                        self.on_answer(now, purpose, outcome);
                    }
                }
                Event::Compute(work) => self.events.push_back(AdminEvent::Compute(work)),
                Event::Channel(psk) => self.events.push_back(AdminEvent::Channel(psk)),
                Event::Late { user_data, .. } => self.on_late(user_data),
                Event::Closed(error) => self.on_closed(error),
            }
        }
    }

    fn send_backlog(&mut self, now: Instant) {
        while self.connection.can_submit()
            && let Some((purpose, sqe, data)) = self.backlog.pop_front()
        {
            let timeout = match purpose {
                Purpose::EventRequest => None,
                Purpose::KeepAlive => Some(self.keep_alive()),
                _ => Some(self.config.command_timeout),
            };
            let ticket = self.next_ticket;
            let submission = Submission { sqe, data, user_data: ticket, timeout };
            match self.connection.submit(now, submission, &mut NoBuffers) {
                Ok(_) => {
                    self.next_ticket += 1;
                    self.purposes.insert(ticket, purpose);
                }
                Err(_) => debug_assert!(false, "the connection said that it can take a command"),
            }
        }
    }

    pub(super) fn send(&mut self, purpose: Purpose, sqe: Sqe, data: Data) {
        self.backlog.push_back((purpose, sqe, data));
    }

    /// Any other command that is late is waited for once more; then the connection ends.
    fn on_late(&mut self, ticket: u64) {
        if matches!(self.purposes.get(&ticket), Some(Purpose::KeepAlive)) {
            self.connection.fail(ConnectionError::Silent(self.keep_alive()));
        }
    }

    // -- the end ------------------------------------------------------------------------------------------------------

    fn on_closed(&mut self, error: ConnectionError) {
        self.ready = false;
        for (purpose, ..) in std::mem::take(&mut self.backlog) {
            match purpose {
                Purpose::Descriptors(info) | Purpose::Namespace(info) => {
                    self.tell_namespace(info.nsid, Err(CommandError::ConnectionLost));
                }
                Purpose::DiscoveryHeader | Purpose::DiscoveryPart | Purpose::DiscoveryCheck => {
                    self.discovery = None;
                    self.events.push_back(AdminEvent::Discovered(Err(CommandError::ConnectionLost)));
                }
                Purpose::Abort { queue_id, command_id } => {
                    self.events.push_back(AdminEvent::Aborted { queue_id, command_id, aborted: false });
                }
                _ => {}
            }
        }
        self.events.push_back(AdminEvent::Closed(error));
    }

    /// Keep Alive is sent twice per timeout, so that one may be late.
    fn keep_alive_interval(&self) -> Option<Duration> {
        match self.config.keep_alive_ms {
            0 => None,
            _ => Some((self.keep_alive() / 2).max(Duration::from_millis(1))),
        }
    }

    fn keep_alive(&self) -> Duration {
        Duration::from_millis(self.config.keep_alive_ms.into())
    }
}
