//! The facts that a host learns about controllers, namespaces and discovery.

use zerocopy::FromBytes;

use crate::nqn::Nqn;
use crate::wire::{
    CSI_NVM, CopyFormats, DiscoveryEntry, IdentifyController, IdentifyNamespace, IndependentNamespace, Version,
    descriptor_type,
};

/// The known facts about a controller that came up.
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
    /// Optional NVM commands (ONCS), see [`IdentifyController::COMPARE`] and its neighbours.
    pub optional_commands: u16,
    /// Formats of Copy source ranges.
    pub copy_formats: CopyFormats,
    /// Active namespaces, ascending.
    pub namespaces: Vec<u32>,
}

/// The known facts about a namespace.
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
    /// Bytes of a write that is there as a whole or not at all, also when power fails: at least a block.
    pub atomic_len: u32,
    /// Bytes of the longest page that a Write Delta changes; 0: there is no such command.
    pub delta_len_max: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether deallocated blocks are known to read as zeroes.
    pub deallocate_zeroes: bool,
    /// Its UUID, if it has one.
    pub uuid: Option<[u8; 16]>,
    /// Its NGUID, if it has one.
    pub nguid: Option<[u8; 16]>,
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

impl ControllerInfo {
    /// Reads Identify Controller. The caller gives the facts that it does not tell.
    pub(super) fn parse(id: &IdentifyController, transfer_len_unlimited: u32) -> Self {
        let text = IdentifyController::text;
        let version = Version(id.version.get());
        let transfer_len_max = match u32::from(id.transfer_max_exponent) {
            0 => transfer_len_unlimited,
            exponent => 4096_u32.checked_shl(exponent).unwrap_or(u32::MAX).min(transfer_len_unlimited),
        };
        let capsule_len = id.io_command_capsule_16.get().saturating_mul(16);
        Self {
            controller_id: id.controller_id.get(),
            subsystem: Nqn::from_field(&id.subsystem_nqn).unwrap_or_else(|_| Nqn::discovery()),
            serial: text(&id.serial),
            model: text(&id.model),
            firmware: text(&id.firmware),
            version: (version.major() as u16, version.minor() as u8, version.tertiary() as u8),
            io_queues: 0,
            io_queue_entries: 0,
            in_capsule_len: capsule_len.saturating_sub(64),
            transfer_len_max,
            write_cache: id.volatile_write_cache & 1 != 0,
            optional_commands: id.optional_nvm_commands.get(),
            copy_formats: CopyFormats(id.copy_formats.get()),
            namespaces: Vec::new(),
        }
    }
}

impl NamespaceInfo {
    /// The facts known before anything was asked.
    pub(super) fn unknown(nsid: u32) -> Self {
        Self {
            nsid,
            csi: CSI_NVM,
            blocks: 0,
            block_len: 0,
            atomic_len: 0,
            delta_len_max: 0,
            read_only: false,
            deallocate_zeroes: false,
            uuid: None,
            nguid: None,
        }
    }

    /// Reads the list of descriptors (CNS 03h).
    pub(super) fn read_descriptors(&mut self, mut list: &[u8]) {
        while let [kind, len, _, _, rest @ ..] = list {
            let len = usize::from(*len);
            if len == 0 || rest.len() < len {
                return;
            }
            let (value, tail) = rest.split_at(len);
            match (*kind, value) {
                (descriptor_type::UUID, value) => self.uuid = value.try_into().ok(),
                (descriptor_type::CSI, [csi]) => self.csi = *csi,
                _ => {}
            }
            list = tail;
        }
    }

    /// Reads Identify Namespace (CNS 00h). Returns whether the namespace is there and its format can be used.
    pub(super) fn read_identify(&mut self, bytes: &[u8]) -> bool {
        let Ok(id) = IdentifyNamespace::ref_from_bytes(bytes) else { return false };
        let format = id.lba_format();
        self.blocks = id.size.get();
        self.block_len = 1_u32.checked_shl(format.block_shift.into()).unwrap_or(0);
        // NSABP says that NAWUPF counts; what the controller says of all namespaces is not asked for.
        let atomic_blocks = if id.features & 1 << 1 != 0 { u32::from(id.atomicity[1].get()) + 1 } else { 1 };
        self.atomic_len = self.block_len.saturating_mul(atomic_blocks);
        self.delta_len_max = id.delta.page_len_max();
        self.read_only = id.attributes & 1 != 0;
        self.deallocate_zeroes = id.deallocation & 7 == 1;
        self.nguid = Some(id.nguid).filter(|nguid| *nguid != [0; 16]);
        let sound = (9..=16).contains(&format.block_shift) && format.metadata_len.get() == 0;
        self.blocks > 0 && sound
    }

    /// Reads the structure for namespaces of other command sets (CNS 08h).
    pub(super) fn read_independent(&mut self, bytes: &[u8]) {
        if let Ok(id) = IndependentNamespace::ref_from_bytes(bytes) {
            self.read_only = id.attributes & 1 != 0;
        }
    }
}

impl DiscoveredSubsystem {
    /// Reads an entry of the discovery log; `None` if its NQN is none.
    pub(super) fn parse(entry: &DiscoveryEntry) -> Option<Self> {
        Some(Self {
            nqn: Nqn::from_field(&entry.nqn).ok()?,
            address: DiscoveryEntry::text(&entry.address),
            service: DiscoveryEntry::text(&entry.service),
            transport: entry.transport,
            kind: entry.kind,
        })
    }
}
