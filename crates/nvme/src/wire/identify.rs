//! Data of Identify (Base 5.1.13, NVM 4.1.5).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::command::{Sqe, admin_opcode};

/// Which structure Identify asks for (CNS).
pub mod cns {
    #![allow(missing_docs, reason = "the names are the specification's")]
    pub const NAMESPACE: u8 = 0x00;
    pub const CONTROLLER: u8 = 0x01;
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    pub const NAMESPACE_DESCRIPTORS: u8 = 0x03;
    pub const COMMAND_SET_NAMESPACE: u8 = 0x05;
    pub const COMMAND_SET_CONTROLLER: u8 = 0x06;
    pub const COMMAND_SET_ACTIVE_NAMESPACES: u8 = 0x07;
    pub const INDEPENDENT_NAMESPACE: u8 = 0x08;
    pub const ALLOCATED_NAMESPACES: u8 = 0x10;
    pub const ALLOCATED_NAMESPACE: u8 = 0x11;
    pub const ATTACHED_CONTROLLERS: u8 = 0x12;
    pub const CONTROLLERS: u8 = 0x13;
    pub const COMMAND_SET_ALLOCATED_NAMESPACES: u8 = 0x1a;
    pub const COMMAND_SET_ALLOCATED_NAMESPACE: u8 = 0x1b;
    pub const IO_COMMAND_SETS: u8 = 0x1c;
}

/// Types of namespace identification descriptors (CNS 03h).
pub mod descriptor_type {
    /// EUI-64, 8 bytes.
    pub const EUI64: u8 = 1;
    /// NGUID, 16 bytes.
    pub const NGUID: u8 = 2;
    /// UUID, 16 bytes.
    pub const UUID: u8 = 3;
    /// I/O command set identifier, 1 byte.
    pub const CSI: u8 = 4;
}

impl Sqe {
    /// Identify.
    pub fn identify(cns: u8, nsid: u32, csi: u8) -> Self {
        Self::new(admin_opcode::IDENTIFY, nsid).with_bits(10, 0, 8, cns.into()).with_bits(11, 24, 8, csi.into())
    }

    /// CNS of Identify (dword 10 bits 7:0).
    pub const fn identify_cns(&self) -> u8 {
        self.bits(10, 0, 8) as u8
    }

    /// CNTID of Identify (dword 10 bits 31:16).
    pub const fn identify_controller(&self) -> u16 {
        self.bits(10, 16, 16) as u16
    }

    /// CSI of Identify (dword 11 bits 31:24).
    pub const fn identify_csi(&self) -> u8 {
        self.bits(11, 24, 8) as u8
    }
}

/// Identify Controller, CNS 01h (Base 5.1.13.2.1).
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IdentifyController {
    /// VID.
    pub pci_vendor: U16,
    /// SSVID.
    pub pci_subsystem_vendor: U16,
    /// SN, ASCII, space-padded.
    pub serial: [u8; 20],
    /// MN, ASCII, space-padded.
    pub model: [u8; 40],
    /// FR, ASCII, space-padded.
    pub firmware: [u8; 8],
    /// RAB, as a power of two.
    pub arbitration_burst: u8,
    /// IEEE OUI.
    pub ieee_oui: [u8; 3],
    /// CMIC: bit 1 the subsystem may have several controllers; bit 3 it reports Asymmetric Namespace Access.
    pub multi_path: u8,
    /// MDTS: 2^value pages of CAP.MPSMIN are the most of one transfer; 0: no limit.
    pub transfer_max_exponent: u8,
    /// CNTLID.
    pub controller_id: U16,
    /// VER.
    pub version: U32,
    /// RTD3R in microseconds.
    pub rtd3_resume_us: U32,
    /// RTD3E in microseconds.
    pub rtd3_entry_us: U32,
    /// OAES: the asynchronous events that are available, see [`AsyncEventConfig`](super::AsyncEventConfig).
    pub async_events: U32,
    /// CTRATT: bit 0 the Host Identifier has 128 bits.
    pub attributes: U32,
    reserved100: [u8; 11],
    /// CNTRLTYPE: 1 I/O controller, 2 discovery.
    pub controller_type: u8,
    /// FGUID.
    pub fru_guid: [u8; 16],
    /// CRDT1 to CRDT3, in 100 ms.
    pub retry_delay_100ms: [U16; 3],
    /// CRCAP: reachability.
    pub reachability: u8,
    reserved135: [u8; 118],
    /// NVMSR: 1 the subsystem is a storage device.
    pub subsystem_report: u8,
    /// VWCI.
    pub vpd_write_cycles: u8,
    /// MEC.
    pub management_endpoints: u8,
    /// OACS: optional admin commands.
    pub optional_admin_commands: U16,
    /// ACL: concurrent Abort commands, 0's based.
    pub abort_limit: u8,
    /// AERL: concurrent Asynchronous Event Requests, 0's based.
    pub async_event_limit: u8,
    /// FRMW: firmware slots.
    pub firmware_updates: u8,
    /// LPA: bit 1 effects log, bit 2 extended offsets, bit 5 log of supported pages.
    pub log_attributes: u8,
    /// ELPE: entries of the error log, 0's based.
    pub error_log_entries: u8,
    /// NPSS: power states, 0's based.
    pub power_states: u8,
    reserved264: [u8; 2],
    /// WCTEMP in kelvin.
    pub warning_temperature_k: U16,
    /// CCTEMP in kelvin.
    pub critical_temperature_k: U16,
    reserved270: [u8; 10],
    /// TNVMCAP in bytes.
    pub capacity_total: [u8; 16],
    /// UNVMCAP in bytes.
    pub capacity_unallocated: [u8; 16],
    reserved312: [u8; 8],
    /// KAS: granularity of the keep alive timer in 100 ms; 0: no keep alive.
    pub keep_alive_100ms: U16,
    reserved322: [u8; 20],
    /// ANATT: the longest transition of Asymmetric Namespace Access in seconds.
    pub ana_transition_s: u8,
    /// ANACAP: bits 0 to 4 states that are reported; bit 6 the group of a namespace stays.
    pub ana_capabilities: u8,
    /// ANAGRPMAX: the largest identifier of a group.
    pub ana_group_max: U32,
    /// NANAGRPID: the number of groups.
    pub ana_groups: U32,
    reserved352: [u8; 160],
    /// SQES: 66h.
    pub sq_entry_size: u8,
    /// CQES: 44h.
    pub cq_entry_size: u8,
    /// MAXCMD: the most commands outstanding on one queue.
    pub commands_max: U16,
    /// NN: the largest NSID.
    pub namespaces_max: U32,
    /// ONCS: optional NVM commands, see [`IdentifyController::COMPARE`] and its neighbours.
    pub optional_nvm_commands: U16,
    /// FUSES: fused operations.
    pub fused_operations: U16,
    /// FNA.
    pub format_attributes: u8,
    /// VWC: bit 0 there is a volatile write cache; bits 2:1 10b Flush does not take NSID FFFFFFFFh.
    pub volatile_write_cache: u8,
    /// AWUN in blocks, 0's based.
    pub atomic_write_normal: U16,
    /// AWUPF in blocks, 0's based.
    pub atomic_write_power_fail: U16,
    /// ICSVSCC.
    pub vendor_command_format: u8,
    /// NWPC.
    pub write_protection: u8,
    /// ACWU in blocks, 0's based.
    pub atomic_compare_write: U16,
    /// OCFS, formats of Copy source ranges: bit n is format n.
    pub copy_formats: U16,
    /// SGLS: bits 1:0 SGLs are supported; bit 20 offsets into the capsule.
    pub sgl_support: U32,
    /// MNAN: the most namespaces.
    pub allowed_namespaces: U32,
    reserved544: [u8; 224],
    /// SUBNQN, NUL-padded.
    pub subsystem_nqn: [u8; 256],
    reserved1024: [u8; 768],
    /// IOCCSZ: size of an I/O command capsule in 16 bytes.
    pub io_command_capsule_16: U32,
    /// IORCSZ: size of an I/O response capsule in 16 bytes.
    pub io_response_capsule_16: U32,
    /// ICDOFF: where data in a capsule starts, in 16 bytes after the entry; 0.
    pub in_capsule_offset_16: U16,
    /// FCATT: bit 0 static controllers.
    pub fabrics_attributes: u8,
    /// MSDBD: the most SGL data block descriptors in a capsule.
    pub sgl_descriptors_max: u8,
    /// OFCS: bit 0 Disconnect.
    pub optional_fabrics_commands: U16,
    /// DCTYPE.
    pub discovery_type: u8,
    reserved1807: [u8; 241],
    /// PSD0, in centiwatts.
    pub power_state0_centiwatts: U16,
    reserved2050: [u8; 2046],
}
const _: () = assert!(size_of::<IdentifyController>() == 4096);

impl IdentifyController {
    /// ONCS bit 0.
    pub const COMPARE: u16 = 1 << 0;
    /// ONCS bit 2.
    pub const DATASET_MANAGEMENT: u16 = 1 << 2;
    /// ONCS bit 3.
    pub const WRITE_ZEROES: u16 = 1 << 3;
    /// ONCS bit 4: the Select field of Get Features.
    pub const SELECT: u16 = 1 << 4;
    /// ONCS bit 5.
    pub const RESERVATIONS: u16 = 1 << 5;
    /// ONCS bit 6.
    pub const TIMESTAMP: u16 = 1 << 6;
    /// ONCS bit 7.
    pub const VERIFY: u16 = 1 << 7;
    /// ONCS bit 8.
    pub const COPY: u16 = 1 << 8;

    /// All zeroes.
    pub fn zeroed() -> Self {
        Self::new_zeroed()
    }

    /// Text of a space-padded field.
    pub fn text(field: &[u8]) -> String {
        String::from_utf8_lossy(field).trim_end_matches([' ', '\0']).to_owned()
    }
}

/// Descriptor formats of Copy source ranges, as OCFS tells them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyFormats(pub u16);

impl CopyFormats {
    /// Whether `format` is supported.
    pub const fn contains(self, format: u8) -> bool {
        format < 16 && self.0 & 1 << format != 0
    }
}

/// A logical block format (NVM 4.1.5.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LbaFormat {
    /// MS: bytes of metadata of a block.
    pub metadata_len: U16,
    /// LBADS: a block has 2^value bytes.
    pub block_shift: u8,
    performance: u8,
}
const _: () = assert!(size_of::<LbaFormat>() == 4);

impl LbaFormat {
    /// A format without metadata.
    pub const fn new(block_shift: u8) -> Self {
        Self { metadata_len: U16::ZERO, block_shift, performance: 0 }
    }
}

/// Identify Namespace of the NVM command set, CNS 00h (NVM 4.1.5.1).
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IdentifyNamespace {
    /// NSZE: size in blocks.
    pub size: U64,
    /// NCAP: blocks that can be allocated.
    pub capacity: U64,
    /// NUSE: blocks that are allocated.
    pub utilization: U64,
    /// NSFEAT: bit 0 thin provisioning, bit 1 NAWUN to NABSPF are given, bit 4 the optimal sizes below are given.
    pub features: u8,
    /// NLBAF: number of formats, 0's based.
    pub formats: u8,
    /// FLBAS: bits 3:0 the format in use.
    pub format_in_use: u8,
    /// MC.
    pub metadata: u8,
    /// DPC.
    pub protection_capabilities: u8,
    /// DPS.
    pub protection: u8,
    /// NMIC: bit 0 several controllers may be attached.
    pub sharing: u8,
    /// RESCAP: types of reservations, see [`RESERVATION_CAPABILITIES`](super::RESERVATION_CAPABILITIES).
    pub reservations: u8,
    /// FPI.
    pub format_progress: u8,
    /// DLFEAT: bits 2:0 001b deallocated blocks read as zeroes; bit 3 Write Zeroes can deallocate.
    pub deallocation: u8,
    /// NAWUN and NAWUPF (in blocks, 0's based), NACWU, NABSN, NABO and NABSPF.
    pub atomicity: [U16; 6],
    /// NOIOB: optimal boundary of an I/O in blocks.
    pub optimal_boundary: U16,
    /// NVMCAP in bytes.
    pub capacity_bytes: [u8; 16],
    /// NPWG: preferred write granularity in blocks, 0's based.
    pub write_granularity: U16,
    /// NPWA: preferred write alignment in blocks, 0's based.
    pub write_alignment: U16,
    /// NPDG: preferred deallocation granularity in blocks, 0's based.
    pub deallocate_granularity: U16,
    /// NPDA: preferred deallocation alignment in blocks, 0's based.
    pub deallocate_alignment: U16,
    /// NOWS: optimal write size in blocks, 0's based.
    pub optimal_write: U16,
    /// MSSRL: the most blocks of one Copy source range.
    pub copy_range_blocks_max: U16,
    /// MCL: the most blocks of one Copy.
    pub copy_blocks_max: U32,
    /// MSRC: the most source ranges of one Copy, 0's based.
    pub copy_ranges_max: u8,
    reserved81: [u8; 11],
    /// ANAGRPID.
    pub ana_group: U32,
    reserved96: [u8; 3],
    /// NSATTR: bit 0 write-protected now.
    pub attributes: u8,
    /// NVMSETID.
    pub nvm_set: U16,
    /// ENDGID.
    pub endurance_group: U16,
    /// NGUID.
    pub nguid: [u8; 16],
    /// EUI64.
    pub eui64: [u8; 8],
    /// LBAF0 to LBAF63.
    pub lba_formats: [LbaFormat; 64],
    /// The vendor's: Write Delta.
    pub delta: DeltaSupport,
    reserved396: [u8; 3700],
}
const _: () = assert!(size_of::<IdentifyNamespace>() == 4096);

impl IdentifyNamespace {
    /// All zeroes, which is also the answer for a namespace that is not active.
    pub fn zeroed() -> Self {
        Self::new_zeroed()
    }

    /// The format in use.
    pub const fn lba_format(&self) -> LbaFormat {
        let index = self.format_in_use & 0xf | (self.format_in_use >> 5 & 3) << 4;
        self.lba_formats[index as usize]
    }
}

/// The vendor specific bytes of Identify Namespace, from 384 on: what Write Delta can do (docs/wire.md).
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DeltaSupport {
    magic: [u8; 8],
    page_len_max: U32,
}

impl DeltaSupport {
    const MAGIC: [u8; 8] = *b"DSKDELTA";

    /// Pages of up to so many bytes; 0: none.
    pub const fn new(page_len_max: u32) -> Self {
        let magic = if page_len_max > 0 { Self::MAGIC } else { [0; 8] };
        Self { magic, page_len_max: U32::new(page_len_max) }
    }

    /// Bytes of the longest page; 0 where there is no Write Delta. Other vendors have other bytes here.
    pub fn page_len_max(&self) -> u32 {
        if self.magic == Self::MAGIC { self.page_len_max.get() } else { 0 }
    }
}

/// I/O Command Set Independent Identify Namespace, CNS 08h (Base 5.1.13.2.8).
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IndependentNamespace {
    /// NSFEAT.
    pub features: u8,
    /// NMIC: bit 0 several controllers may be attached.
    pub sharing: u8,
    /// RESCAP, as in [`IdentifyNamespace`].
    pub reservations: u8,
    /// FPI.
    pub format_progress: u8,
    /// ANAGRPID.
    pub ana_group: U32,
    /// NSATTR: bit 0 write-protected now.
    pub attributes: u8,
    reserved9: u8,
    /// NVMSETID.
    pub nvm_set: U16,
    /// ENDGID.
    pub endurance_group: U16,
    /// NSTAT: bit 0 ready.
    pub status: u8,
    /// KPIOS.
    pub key_per_io: u8,
    /// MAXKT.
    pub key_tag_max: U16,
    reserved18: [u8; 2],
    /// RGRPID: reachability group.
    pub reachability_group: U32,
    reserved24: [u8; 4072],
}
const _: () = assert!(size_of::<IndependentNamespace>() == 4096);

impl IndependentNamespace {
    /// All zeroes.
    pub fn zeroed() -> Self {
        Self::new_zeroed()
    }
}

/// Identify Controller of the NVM command set, CNS 06h with CSI 00h (NVM 4.1.5.4). Limits of 0 mean none.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct NvmControllerLimits {
    /// VSL: Verify, 2^value pages.
    pub verify_exponent: u8,
    /// WZSL: Write Zeroes, 2^value pages.
    pub write_zeroes_exponent: u8,
    /// WUSL: Write Uncorrectable, 2^value pages.
    pub write_uncorrectable_exponent: u8,
    /// DMRL: ranges of Dataset Management.
    pub dsm_ranges: u8,
    /// DMRSL: blocks of one range of Dataset Management.
    pub dsm_range_blocks: U32,
    /// DMSL: blocks of all ranges of Dataset Management.
    pub dsm_blocks: U64,
    reserved16: [u8; 4080],
}
const _: () = assert!(size_of::<NvmControllerLimits>() == 4096);

impl NvmControllerLimits {
    /// All zeroes.
    pub fn zeroed() -> Self {
        Self::new_zeroed()
    }
}

/// A list of controller identifiers, CNS 12h and 13h (Base 4.6.1).
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ControllerList {
    /// How many.
    pub count: U16,
    /// Ascending.
    pub ids: [U16; 2047],
}
const _: () = assert!(size_of::<ControllerList>() == 4096);

impl ControllerList {
    /// The first 2,047 of `ids`, which must ascend.
    pub fn new(ids: impl IntoIterator<Item = u16>) -> Self {
        let mut list = Self::new_zeroed();
        let mut count = 0;
        for (slot, id) in list.ids.iter_mut().zip(ids) {
            slot.set(id);
            count += 1;
        }
        list.count.set(count);
        list
    }
}
