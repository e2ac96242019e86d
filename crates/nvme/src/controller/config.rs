//! The configuration of a target: subsystems, namespaces, who may connect, and where they are found.

use std::any::Any;
use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::auth::Policy;
use crate::nqn::Nqn;
use crate::wire::CSI_NVM;
use crate::wire::CSI_SLM;

use super::request::MediumId;

/// The facts about a subsystem that are fixed for its whole life.
#[derive(Clone, Debug)]
pub struct SubsystemConfig {
    /// Its name.
    pub nqn: Nqn,
    /// Serial number, at most 20 printable ASCII characters.
    pub serial: String,
    /// Model number, at most 40 printable ASCII characters.
    pub model: String,
    /// Firmware revision, at most 8 printable ASCII characters.
    pub firmware: String,
    /// The hosts that may connect.
    pub allowed_hosts: AllowedHosts,
    /// The hosts among them that must authenticate, and with which keys.
    pub authentication: Policy,
    /// The largest NSID; at most [`NAMESPACES_MAX`].
    pub namespaces_max: u32,
    /// The most I/O queue pairs of one controller.
    pub io_queues_max: u16,
    /// The most entries of one I/O queue.
    pub queue_entries_max: u16,
    /// The most bytes of one data transfer; a power of two, at least 4096 (MDTS).
    pub transfer_len_max: u32,
    /// Whether the media have a volatile write cache that Flush empties.
    pub write_cache: bool,
    /// Controllers get the identifiers behind this one first, and then those before it.
    pub last_controller_id: u16,
    /// Further I/O command sets and vendor's commands that the embedder answers.
    pub command_sets: Vec<CommandSet>,
}

/// The most namespaces of a subsystem.
pub const NAMESPACES_MAX: u32 = 1024;

impl SubsystemConfig {
    /// A subsystem that anyone may connect to, with the limits that suit most: 1,024 namespaces, 128 I/O queues of 128
    /// entries, transfers of up to 1 MiB, and a write cache.
    pub fn new(nqn: Nqn, serial: impl Into<String>) -> Self {
        Self {
            nqn,
            serial: serial.into(),
            model: "Diskside".into(),
            firmware: env!("CARGO_PKG_VERSION").into(),
            allowed_hosts: AllowedHosts::Any,
            authentication: Policy::open(),
            namespaces_max: NAMESPACES_MAX,
            io_queues_max: 128,
            queue_entries_max: 128,
            transfer_len_max: 1 << 20,
            write_cache: true,
            last_controller_id: 0,
            command_sets: Vec::new(),
        }
    }
}

/// Hosts that may connect to a subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedHosts {
    /// Every host.
    Any,
    /// The hosts with these names; the subsystem is hidden from others in the discovery log.
    Only(BTreeSet<Nqn>),
}

impl AllowedHosts {
    /// Whether `host` may connect.
    pub fn contains(&self, host: &Nqn) -> bool {
        match self {
            AllowedHosts::Any => true,
            AllowedHosts::Only(names) => names.contains(host),
        }
    }
}

/// How a host may use a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Not at all: to this host it does not exist.
    None,
    /// As one that refuses writes.
    Read,
    /// As it is.
    Write,
}

/// Which namespaces a host sees, as the embedder decides, and how many connections it may have. Its view may change only
/// with [`set_visibility`](super::Subsystem::set_visibility).
pub trait Visibility: std::fmt::Debug + Send + Sync {
    /// How this host may use this namespace.
    fn access(&self, host: &Nqn, namespace: &Namespace) -> Access;

    /// This host has no right to a command that it sent to this namespace, which it does not see or may only read.
    fn denied(&self, _host: &Nqn, _namespace: &Namespace) {}

    /// This host has changed the reservation or a registration of this namespace by this action.
    fn reserved(&self, _host: &Nqn, _namespace: &Namespace, _action: &'static str) {}

    /// A reservation, or its key, kept this host from a command to this namespace.
    fn conflicted(&self, _host: &Nqn, _namespace: &Namespace) {}

    /// Whether this host, which need not or need no longer prove who it is, may have one more connection. `None`: not now.
    fn admit(&self, _host: &Nqn) -> Option<Place> {
        Some(Place::default())
    }
}

/// The data that an embedder keeps for a connection as long as it lasts.
#[derive(Default)]
pub struct Place(Option<Box<dyn Any + Send + Sync>>);

impl Place {
    /// This is dropped when the connection ends.
    pub fn of(kept: impl Any + Send + Sync) -> Self {
        Self(Some(Box::new(kept)))
    }
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place").field("is_kept", &self.0.is_some()).finish()
    }
}

/// Every host sees every namespace.
#[derive(Clone, Copy, Debug)]
pub struct AllVisible;

impl Visibility for AllVisible {
    fn access(&self, _host: &Nqn, _namespace: &Namespace) -> Access {
        Access::Write
    }
}

/// Size of a logical block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockSize {
    /// 512 bytes.
    B512,
    /// 4,096 bytes.
    B4096,
}

impl BlockSize {
    /// As a power of two (LBADS).
    pub const fn shift(self) -> u32 {
        match self {
            BlockSize::B512 => 9,
            BlockSize::B4096 => 12,
        }
    }

    /// In bytes.
    pub const fn bytes(self) -> u32 {
        1 << self.shift()
    }
}

/// A namespace of a subsystem, attached to the controllers of all hosts that [may see](Visibility) it.
#[derive(Clone, Debug)]
pub struct Namespace {
    /// Its identifier, 1 up to the subsystem's `namespaces_max`.
    pub nsid: u32,
    /// The embedder's name of its medium, handed back in every [`Request`](super::Request).
    pub medium: MediumId,
    /// Its I/O command set: [`CSI_NVM`] for a volume, or that of a declared [`CommandSet`].
    pub csi: u8,
    /// Size in blocks.
    pub blocks: u64,
    /// Size of a block.
    pub block_size: BlockSize,
    /// Blocks of a write that is there as a whole or not at all, also when power fails: 1 for one that promises no more.
    pub atomic_blocks: u16,
    /// Bytes of the longest page that a Write Delta changes; 0: the namespace has no such command.
    pub delta_len_max: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether blocks can be deallocated, and then read as zeroes.
    pub deallocate: bool,
    /// Globally unique, and the same after a restart of the target: hosts tell volumes apart by it.
    pub uuid: [u8; 16],
}

/// A command set beyond NVM, or a vendor's additions: what the embedder answers as
/// [`Operation::Other`](super::Operation::Other).
#[derive(Clone, Debug, Default)]
pub struct CommandSet {
    /// Command set identifier of the namespaces that take these commands.
    pub csi: u8,
    /// I/O commands: opcode and its entry of the effects log. An opcode's low two bits say its data's direction.
    pub io_commands: Vec<(u8, u32)>,
    /// Admin commands: opcode and its entry of the effects log.
    pub admin_commands: Vec<(u8, u32)>,
    /// Log pages that the embedder answers (its Get Log Page commands arrive as `Other`).
    pub log_pages: Vec<u8>,
    /// Whether Identify with CNS 05h and 06h of this command set is the embedder's to answer; else the answer is zeroes.
    pub identify: bool,
}

/// An address where the subsystems are found, as the discovery log tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// IP address.
    pub address: IpAddr,
    /// It listens on all addresses of the machine: a host is given the one to which it connected, if that is known.
    pub any: bool,
    /// TCP port.
    pub port: u16,
}

/// A controller, as [`Subsystem::controllers`](super::Subsystem::controllers) lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerInfo {
    /// Controller identifier.
    pub cntlid: u16,
    /// The host it belongs to.
    pub host: Nqn,
    /// Queue identifiers of its I/O queue pairs that are connected.
    pub io_queues: Vec<u16>,
}

/// Why a subsystem or a namespace was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The name is taken, or it is the discovery subsystem's.
    #[error("a subsystem named {0} exists already")]
    NameTaken(Nqn),
    /// The NSID is 0 or above the subsystem's maximum.
    #[error("namespace id {nsid} is outside 1..={max}")]
    NsidOutOfRange {
        /// The id.
        nsid: u32,
        /// The largest allowed.
        max: u32,
    },
    /// The NSID is in use.
    #[error("namespace {0} exists already")]
    NsidTaken(u32),
    /// The NSID names another volume to hosts that are still connected.
    #[error(
        "namespace {0} was another volume, and hosts that are still connected know it as that: \
         choose another number, or wait until they are gone"
    )]
    NsidKnown(u32),
    /// There is no such namespace.
    #[error("there is no namespace {0}")]
    NoSuchNamespace(u32),
    /// A volume without blocks, or larger than 2^63 bytes.
    #[error("namespace {nsid} cannot have {blocks} blocks of {block_len} bytes")]
    Size {
        /// The id.
        nsid: u32,
        /// Blocks asked for.
        blocks: u64,
        /// Bytes of a block.
        block_len: u32,
    },
    /// The namespace's command set was not declared.
    #[error("namespace {nsid} has command set {csi:#04x}, which the subsystem does not declare")]
    UnknownCommandSet {
        /// The id.
        nsid: u32,
        /// Command set identifier.
        csi: u8,
    },
    /// A field of [`SubsystemConfig`] is out of its limits.
    #[error("subsystem: {0}")]
    Invalid(&'static str),
}

impl SubsystemConfig {
    /// Checks what can be checked before a subsystem is made.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let ascii = |text: &str, max: usize| text.len() <= max && text.bytes().all(|b| (0x20..0x7f).contains(&b));
        let problem = if !ascii(&self.serial, 20) {
            "a serial number has at most 20 printable ASCII characters"
        } else if !ascii(&self.model, 40) {
            "a model number has at most 40 printable ASCII characters"
        } else if !ascii(&self.firmware, 8) {
            "a firmware revision has at most 8 printable ASCII characters"
        } else if self.namespaces_max == 0 || self.namespaces_max > NAMESPACES_MAX {
            "a subsystem has 1 to 1,024 namespaces"
        } else if self.io_queues_max == 0 {
            "a controller has at least one I/O queue"
        } else if self.queue_entries_max < 32 {
            "a queue has at least 32 entries"
        } else if !self.transfer_len_max.is_power_of_two() || !(1 << 12..=1 << 30).contains(&self.transfer_len_max) {
            "the longest transfer is a power of two from 4 KiB to 1 GiB"
        } else {
            return Ok(());
        };
        Err(ConfigError::Invalid(problem))
    }

    /// Checks a namespace on its own.
    pub(super) fn check_namespace(&self, namespace: &Namespace) -> Result<(), ConfigError> {
        let Namespace { nsid, csi, blocks, block_size, .. } = *namespace;
        if nsid == 0 || nsid > self.namespaces_max {
            return Err(ConfigError::NsidOutOfRange { nsid, max: self.namespaces_max });
        }
        if csi != CSI_NVM && !self.command_sets.iter().any(|set| set.csi == csi) {
            return Err(ConfigError::UnknownCommandSet { nsid, csi });
        }
        let too_large = blocks > i64::MAX as u64 >> block_size.shift();
        if csi == CSI_NVM && (blocks == 0 || too_large) {
            return Err(ConfigError::Size { nsid, blocks, block_len: block_size.bytes() });
        }
        Ok(())
    }

    /// Whether there are memory namespaces: then copies from them, and the reachability of namespaces, exist.
    pub(super) fn has_memory(&self) -> bool {
        self.command_set(CSI_SLM).is_some()
    }

    /// The declared command set of this identifier.
    pub(super) fn command_set(&self, csi: u8) -> Option<&CommandSet> {
        self.command_sets.iter().find(|set| set.csi == csi)
    }
}
