//! The admin queue of a host: brings a controller up, keeps it alive, learns its namespaces, and tells what changed.

use std::time::{Duration, Instant};

use crate::buffer::{BufferSlice, Buffers};
use crate::nqn::Nqn;
use crate::transmit::Transmit;

use super::connection::{ConnectionConfig, ConnectionError, HostIdentity, State};
use super::submission::{Completed, Submission, SubmitError};

/// What an admin connection is told when it is made.
#[derive(Clone, Debug)]
pub struct AdminConfig {
    /// Who connects.
    pub host: HostIdentity,
    /// To which subsystem; [`Nqn::discovery`] for discovery.
    pub subsystem: Nqn,
    /// I/O queue pairs wanted (0 for discovery).
    pub io_queues: u16,
    /// Entries of each I/O queue wanted.
    pub io_queue_entries: u16,
    /// Keep Alive Timeout in milliseconds; 0: none.
    pub keep_alive_ms: u32,
    /// Ask for header digests, on all queues.
    pub header_digest: bool,
    /// Ask for data digests, on all queues.
    pub data_digest: bool,
    /// How long each step of coming up may take.
    pub connect_timeout: Duration,
    /// How long an admin command may take.
    pub command_timeout: Duration,
}

/// What is known of a controller that came up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerInfo {
    /// Controller identifier.
    pub controller_id: u16,
    /// Subsystem's name.
    pub subsystem: Nqn,
    /// Serial number.
    pub serial: String,
    /// Model number.
    pub model: String,
    /// Firmware revision.
    pub firmware: String,
    /// Version: major, minor, tertiary.
    pub version: (u16, u8, u8),
    /// I/O queue pairs granted.
    pub io_queues: u16,
    /// Entries of an I/O queue: what was wanted, or the controller's most.
    pub io_queue_entries: u16,
    /// Bytes of write data that may travel with a command on an I/O queue.
    pub in_capsule_len: u32,
    /// The most bytes of data of one command.
    pub transfer_len_max: u32,
    /// Whether there is a volatile write cache, so that Flush matters.
    pub write_cache: bool,
    /// Optional NVM commands (ONCS).
    pub optional_commands: u16,
    /// Active namespaces, ascending.
    pub namespaces: Vec<u32>,
}

/// What is known of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceInfo {
    /// Its identifier.
    pub nsid: u32,
    /// I/O command set.
    pub csi: u8,
    /// Size in blocks.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_len: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether deallocated blocks are known to read as zeroes.
    pub deallocate_zeroes: bool,
    /// Its UUID, if it has one.
    pub uuid: Option<[u8; 16]>,
}

/// An entry of a discovery log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredSubsystem {
    /// Its name.
    pub nqn: Nqn,
    /// Address, as text.
    pub address: String,
    /// Port (TRSVCID), as text.
    pub service: String,
    /// Transport type: 3 = TCP.
    pub transport: u8,
    /// Subsystem type: 1 = referral to a discovery service, 2 = NVM subsystem, 3 = this discovery service.
    pub kind: u8,
}

/// Something that the embedder wants to know.
#[derive(Debug)]
#[non_exhaustive]
pub enum AdminEvent {
    /// The controller is up: connect its I/O queues.
    Ready(Box<ControllerInfo>),
    /// The answer to [`Admin::identify_namespace`].
    Namespace {
        /// The namespace asked for.
        nsid: u32,
        /// What is known, or why nothing is.
        info: Result<NamespaceInfo, super::CommandError>,
    },
    /// Namespaces came, went or changed; these are the active ones now, and those that the controller names as changed.
    NamespacesChanged {
        /// Active namespaces, ascending.
        active: Vec<u32>,
        /// Changed namespaces (empty if the controller did not say which).
        changed: Vec<u32>,
    },
    /// The answer to [`Admin::discover`].
    Discovered(Result<Vec<DiscoveredSubsystem>, super::CommandError>),
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
    state: State,
}

impl Admin {
    /// A connection whose socket is connected.
    pub fn new(config: AdminConfig, now: Instant) -> Self {
        let _ = (config, now);
        Self { state: State::Negotiating }
    }

    /// Where the connection stands.
    pub fn state(&self) -> State {
        self.state
    }

    /// What is known of the controller; `None` until it is up.
    pub fn controller(&self) -> Option<&ControllerInfo> {
        None
    }

    /// The configuration of the connection for I/O queue `queue_id`, 1 up to the number granted; `None` until the
    /// controller is up, or beyond that number.
    pub fn io_queue_config(&self, queue_id: u16) -> Option<ConnectionConfig> {
        let _ = queue_id;
        None
    }

    /// As [`Connection::receive_target`](super::Connection::receive_target).
    pub fn receive_target(&self) -> Option<BufferSlice> {
        None
    }

    /// Bytes came from the socket; all are consumed.
    pub fn handle_bytes(&mut self, now: Instant, bytes: &[u8], buffers: &mut impl Buffers) {
        let _ = (now, bytes, buffers);
    }

    /// As [`Connection::handle_received`](super::Connection::handle_received).
    pub fn handle_received(&mut self, now: Instant, bytes: &[u8], buffers: &mut impl Buffers) {
        let _ = (now, bytes, buffers);
    }

    /// The socket is gone.
    pub fn handle_close(&mut self) {}

    /// [`poll_timeout`](Self::poll_timeout) has passed.
    pub fn handle_timeout(&mut self, now: Instant, buffers: &mut impl Buffers) {
        let _ = (now, buffers);
    }

    /// The batch was sent completely; the `Transmit` is empty and can be used again.
    pub fn handle_transmitted(&mut self, transmit: &mut Transmit) {
        transmit.clear();
    }

    /// Asks for a namespace's size and format; answered by [`AdminEvent::Namespace`].
    pub fn identify_namespace(&mut self, now: Instant, nsid: u32) {
        let _ = (now, nsid);
    }

    /// Reads the discovery log; answered by [`AdminEvent::Discovered`].
    pub fn discover(&mut self, now: Instant) {
        let _ = now;
    }

    /// Asks for the end of a command; answered by [`AdminEvent::Aborted`].
    pub fn abort(&mut self, now: Instant, queue_id: u16, command_id: u16) {
        let _ = (now, queue_id, command_id);
    }

    /// Sends any other admin command.
    pub fn submit(
        &mut self,
        now: Instant,
        submission: Submission,
        buffers: &mut impl Buffers,
    ) -> Result<u16, SubmitError> {
        let _ = (now, submission, buffers);
        Err(SubmitError::NotReady)
    }

    /// Shuts the controller down in good order (CC.SHN); the connection closes when that is done.
    pub fn shutdown(&mut self, now: Instant) {
        let _ = now;
    }

    /// What happened.
    pub fn poll_event(&mut self) -> Option<AdminEvent> {
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
