//! Log pages (Base 5.1.12).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::status::Status;

use super::command::{Sqe, admin_opcode};

/// Log page identifiers.
pub mod log_page {
    #![allow(missing_docs, reason = "the names are the specification's")]
    pub const SUPPORTED_PAGES: u8 = 0x00;
    pub const ERROR: u8 = 0x01;
    pub const SMART: u8 = 0x02;
    pub const FIRMWARE_SLOT: u8 = 0x03;
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    pub const EFFECTS: u8 = 0x05;
    pub const ANA: u8 = 0x0c;
    pub const FEATURES: u8 = super::LID_FEATURES;
    pub const MI_COMMANDS: u8 = super::LID_MI_COMMANDS;
    pub const DISCOVERY: u8 = 0x70;
    pub const RESERVATION: u8 = 0x80;
}

/// Feature Identifiers Supported and Effects.
pub const LID_FEATURES: u8 = 0x12;
/// NVMe-MI Commands Supported and Effects.
pub const LID_MI_COMMANDS: u8 = 0x13;

impl Sqe {
    /// Sets the Log Specific Identifier of Get Log Page (dword 11 bits 31:16).
    #[must_use]
    pub fn with_log_specific_id(self, id: u16) -> Self {
        self.with_bits(11, 16, 16, id.into())
    }

    /// LSI of Get Log Page (dword 11 bits 31:16).
    pub const fn log_specific_id(&self) -> u16 {
        self.bits(11, 16, 16) as u16
    }

    /// Get Log Page of `len` bytes (a multiple of 4) from byte `offset` on. With `retain` the event that led to it stays
    /// masked.
    pub fn get_log_page(lid: u8, offset: u64, len: u32, csi: u8, retain: bool) -> Self {
        debug_assert!(len >= 4 && len.is_multiple_of(4), "whole dwords");
        let dwords = len / 4 - 1;
        Self::new(admin_opcode::GET_LOG_PAGE, 0)
            .with_bits(10, 0, 8, lid.into())
            .with_bits(10, 15, 1, retain as u32)
            .with_bits(10, 16, 16, dwords)
            .with_bits(11, 0, 16, dwords >> 16)
            .with_qword(12, offset)
            .with_bits(14, 24, 8, csi.into())
    }

    /// LID (dword 10 bits 7:0).
    pub const fn log_page(&self) -> u8 {
        self.bits(10, 0, 8) as u8
    }

    /// RAE: keep the event masked (dword 10 bit 15).
    pub const fn log_retains_event(&self) -> bool {
        self.bits(10, 15, 1) != 0
    }

    /// Length in bytes: NUMDL (dword 10 bits 31:16) and NUMDU (dword 11 bits 15:0), 0's based dwords.
    pub const fn log_len(&self) -> u64 {
        let dwords = self.bits(10, 16, 16) as u64 | (self.bits(11, 0, 16) as u64) << 16;
        (dwords + 1) * 4
    }

    /// LPO (dwords 12 and 13): offset in bytes, or an index if [`log_offset_is_index`](Self::log_offset_is_index).
    pub const fn log_offset(&self) -> u64 {
        self.qword(12)
    }

    /// OT (dword 14 bit 23).
    pub const fn log_offset_is_index(&self) -> bool {
        self.bits(14, 23, 1) != 0
    }

    /// CSI of Get Log Page (dword 14 bits 31:24).
    pub const fn log_csi(&self) -> u8 {
        self.bits(14, 24, 8) as u8
    }

    /// Abort of a command.
    pub fn abort(queue_id: u16, cid: u16) -> Self {
        Self::new(admin_opcode::ABORT, 0).with_bits(10, 0, 16, queue_id.into()).with_bits(10, 16, 16, cid.into())
    }

    /// SQID of Abort (dword 10 bits 15:0).
    pub const fn abort_queue(&self) -> u16 {
        self.bits(10, 0, 16) as u16
    }

    /// CID of Abort (dword 10 bits 31:16).
    pub const fn abort_cid(&self) -> u16 {
        self.bits(10, 16, 16) as u16
    }
}

/// Entry of the error log, LID 01h (Base 5.1.12.1.2).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ErrorEntry {
    /// Counts errors; 0: no entry.
    pub count: U64,
    /// Queue of the command.
    pub queue_id: U16,
    /// Identifier of the command.
    pub cid: U16,
    status: U16,
    /// Parameter error location: byte in bits 7:0, bit in 10:8; FFFFh: not about one.
    pub location: U16,
    /// First block in question.
    pub lba: U64,
    /// Namespace.
    pub nsid: U32,
    /// VSIA.
    pub vendor_page: u8,
    /// TRTYPE: 3 TCP.
    pub transport: u8,
    /// CSI of the command.
    pub csi: u8,
    /// Opcode of the command.
    pub opcode: u8,
    /// Command specific.
    pub command_specific: U64,
    /// Transport specific.
    pub transport_specific: U16,
    reserved42: [u8; 21],
    /// Log page version: 1 = CSI and opcode are given.
    pub version: u8,
}
const _: () = assert!(size_of::<ErrorEntry>() == 64);

impl ErrorEntry {
    /// An entry for a command that failed.
    pub fn new(count: u64, queue_id: u16, cid: u16, status: Status) -> Self {
        let mut entry = Self::new_zeroed();
        entry.count.set(count);
        entry.queue_id.set(queue_id);
        entry.cid.set(cid);
        entry.status.set(status.bits() << 1);
        entry.location.set(0xffff);
        entry.transport = super::transport_type::TCP;
        entry.version = 1;
        entry
    }

    /// The command's status.
    pub const fn status(&self) -> Status {
        Status::from_bits(self.status.get() >> 1)
    }
}

/// SMART / Health Information, LID 02h (Base 5.1.12.1.3). Wide counters are little-endian 128-bit numbers.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SmartLog {
    /// Critical warning.
    pub critical_warning: u8,
    /// Composite temperature in kelvin.
    pub temperature_k: U16,
    /// Available spare in percent.
    pub spare_percent: u8,
    /// Threshold of the available spare in percent.
    pub spare_threshold_percent: u8,
    /// Percentage used.
    pub used_percent: u8,
    /// Endurance group critical warning.
    pub endurance_warning: u8,
    reserved7: [u8; 25],
    /// 512,000 bytes that hosts read.
    pub data_units_read: [u8; 16],
    /// 512,000 bytes that hosts wrote.
    pub data_units_written: [u8; 16],
    /// Read and Compare commands.
    pub read_commands: [u8; 16],
    /// Write commands.
    pub write_commands: [u8; 16],
    /// Minutes busy.
    pub busy_minutes: [u8; 16],
    /// Power cycles.
    pub power_cycles: [u8; 16],
    /// Hours of operation.
    pub power_on_hours: [u8; 16],
    /// Unsafe shutdowns.
    pub unsafe_shutdowns: [u8; 16],
    /// Media errors.
    pub media_errors: [u8; 16],
    /// Entries that were ever made in the error log.
    pub error_entries: [u8; 16],
    /// Warning temperature time in minutes.
    pub warning_minutes: U32,
    /// Critical temperature time in minutes.
    pub critical_minutes: U32,
    reserved200: [u8; 312],
}
const _: () = assert!(size_of::<SmartLog>() == 512);

impl SmartLog {
    /// All zeroes.
    pub fn zeroed() -> Self {
        Self::new_zeroed()
    }
}

/// Firmware Slot Information, LID 03h (Base 5.1.12.1.4).
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct FirmwareSlotLog {
    /// AFI: bits 2:0 the slot in use.
    pub active: u8,
    reserved1: [u8; 7],
    /// Revisions of slots 1 to 7, ASCII, space-padded.
    pub revisions: [[u8; 8]; 7],
    reserved64: [u8; 448],
}
const _: () = assert!(size_of::<FirmwareSlotLog>() == 512);

impl FirmwareSlotLog {
    /// One slot, in use.
    pub fn new(revision: [u8; 8]) -> Self {
        let mut log = Self::new_zeroed();
        log.active = 1;
        log.revisions[0] = revision;
        log
    }
}

/// The effect of a command on the state of a controller: entry of the effects log (Base 5.1.12.1.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandEffects(pub u32);

impl CommandEffects {
    /// CSUPP: the command is supported.
    pub const SUPPORTED: u32 = 1 << 0;
    /// LBCC: it may change the contents of blocks.
    pub const CHANGES_BLOCKS: u32 = 1 << 1;
    /// NCC: it may change what a namespace can do.
    pub const CHANGES_NAMESPACE: u32 = 1 << 2;
    /// NIC: it may change which namespaces there are.
    pub const CHANGES_INVENTORY: u32 = 1 << 3;
    /// CCC: it may change what the controller can do.
    pub const CHANGES_CONTROLLER: u32 = 1 << 4;
}

/// Commands Supported and Effects, LID 05h.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct EffectsLog {
    /// ACS: admin commands, by opcode.
    pub admin: [U32; 256],
    /// IOCS: I/O commands, by opcode.
    pub io: [U32; 256],
    reserved2048: [u8; 2048],
}
const _: () = assert!(size_of::<EffectsLog>() == 4096);

impl EffectsLog {
    /// No command supported.
    pub fn zeroed() -> Self {
        Self::new_zeroed()
    }
}
