//! Features (Base 5.1.12 Get Features, 5.1.25 Set Features).

use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::command::{Sqe, admin_opcode};

/// Feature identifiers.
pub mod feature {
    #![allow(missing_docs, reason = "the names are the specification's")]
    pub const ARBITRATION: u8 = 0x01;
    pub const POWER_MANAGEMENT: u8 = 0x02;
    pub const TEMPERATURE_THRESHOLD: u8 = 0x04;
    pub const ERROR_RECOVERY: u8 = 0x05;
    pub const VOLATILE_WRITE_CACHE: u8 = 0x06;
    pub const NUMBER_OF_QUEUES: u8 = 0x07;
    pub const INTERRUPT_COALESCING: u8 = 0x08;
    pub const INTERRUPT_VECTOR_CONFIG: u8 = 0x09;
    pub const WRITE_ATOMICITY: u8 = 0x0a;
    pub const ASYNC_EVENT_CONFIG: u8 = 0x0b;
    pub const TIMESTAMP: u8 = 0x0e;
    pub const KEEP_ALIVE_TIMER: u8 = 0x0f;
    pub const HOST_BEHAVIOR: u8 = 0x16;
    pub const IO_COMMAND_SET_PROFILE: u8 = 0x19;
    pub const HOST_IDENTIFIER: u8 = 0x81;
    pub const RESERVATION_MASK: u8 = 0x82;
    pub const RESERVATION_PERSISTENCE: u8 = 0x83;
}

impl Sqe {
    /// Set Features with one dword of value.
    pub fn set_features(fid: u8, value: u32) -> Self {
        Self::new(admin_opcode::SET_FEATURES, 0).with_bits(10, 0, 8, fid.into()).with_dword(11, value)
    }

    /// Get Features; `select` is 0 for the current value, 1 default, 2 saved, 3 capabilities.
    pub fn get_features(fid: u8, select: u8) -> Self {
        Self::new(admin_opcode::GET_FEATURES, 0).with_bits(10, 0, 8, fid.into()).with_bits(10, 8, 3, select.into())
    }

    /// FID of Get and Set Features (dword 10 bits 7:0).
    pub const fn feature_id(&self) -> u8 {
        self.bits(10, 0, 8) as u8
    }

    /// SEL of Get Features (dword 10 bits 10:8).
    pub const fn feature_select(&self) -> u8 {
        self.bits(10, 8, 3) as u8
    }

    /// SV of Set Features: save across resets (dword 10 bit 31).
    pub const fn feature_save(&self) -> bool {
        self.bits(10, 31, 1) != 0
    }
}

/// Asynchronous Event Configuration, dword 11 (Base 5.1.25.1.5), and the same bits of OAES.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AsyncEventConfig(pub u32);

impl AsyncEventConfig {
    /// Attached Namespace Attribute Notices, bit 8.
    pub const NAMESPACE_ATTRIBUTE: u32 = 1 << 8;
    /// Asymmetric Namespace Access Change Notices, bit 11.
    pub const ASYMMETRIC_ACCESS: u32 = 1 << 11;
    /// Discovery Log Page Change, bit 31.
    pub const DISCOVERY_LOG: u32 = 1 << 31;

    /// Whether the host wants to hear of namespaces that change.
    pub const fn namespace_attribute(self) -> bool {
        self.0 & Self::NAMESPACE_ATTRIBUTE != 0
    }

    /// Whether the host wants to hear of states of paths that change.
    pub const fn asymmetric_access(self) -> bool {
        self.0 & Self::ASYMMETRIC_ACCESS != 0
    }

    /// Whether the host wants to hear of changes of the discovery log.
    pub const fn discovery_log(self) -> bool {
        self.0 & Self::DISCOVERY_LOG != 0
    }
}

/// Host Behavior Support (Base 5.1.25.1.14).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct HostBehavior {
    /// ACRE: the host knows Command Retry Delay.
    pub advanced_retry: u8,
    /// ETDAS: the host knows telemetry data area 4.
    pub telemetry_area_4: u8,
    /// LBAFEE: the host knows extended LBA formats.
    pub extended_lba_formats: u8,
    /// HDISNS: the host knows dispersed namespaces.
    pub dispersed_namespaces: u8,
    copy_formats: U16,
    reserved: [u8; 506],
}
const _: () = assert!(size_of::<HostBehavior>() == 512);

impl HostBehavior {
    /// Whether the host enabled descriptor format `format` of Copy (CDFE). Format 0h needs no enabling.
    pub const fn copy_format(&self, format: u8) -> bool {
        format == 0 || format < 16 && self.copy_formats.get() & 1 << format != 0
    }
}
