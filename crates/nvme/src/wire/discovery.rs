//! The discovery log page (Base 5.1.12.3.1).

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Transport types of discovery entries.
pub mod transport_type {
    /// TCP.
    pub const TCP: u8 = 3;
}

/// Subsystem types of discovery entries.
pub mod subsystem_type {
    /// Another discovery service.
    pub const REFERRAL: u8 = 1;
    /// An NVM subsystem.
    pub const NVM: u8 = 2;
    /// The discovery service that gave the log.
    pub const CURRENT_DISCOVERY: u8 = 3;
}

/// Header of the discovery log page.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DiscoveryHeader {
    /// GENCTR: changes with the log.
    pub generation: U64,
    /// NUMREC: entries that follow.
    pub records: U64,
    /// RECFMT: 0.
    pub record_format: U16,
    reserved: [u8; 1006],
}
const _: () = assert!(size_of::<DiscoveryHeader>() == 1024);

impl DiscoveryHeader {
    /// A header.
    pub const fn new(generation: u64, records: u64) -> Self {
        Self {
            generation: U64::new(generation),
            records: U64::new(records),
            record_format: U16::ZERO,
            reserved: [0; 1006],
        }
    }
}

/// Entry of the discovery log page.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DiscoveryEntry {
    /// TRTYPE, see [`transport_type`].
    pub transport: u8,
    /// ADRFAM: 1 IPv4, 2 IPv6.
    pub address_family: u8,
    /// SUBTYPE, see [`subsystem_type`].
    pub kind: u8,
    /// TREQ: bits 1:0 secure channel (0 not specified, 1 required, 2 not required), bit 2 SQ flow control may be disabled.
    pub requirements: u8,
    /// PORTID.
    pub port_id: U16,
    /// CNTLID: FFFFh if controllers are given dynamically.
    pub controller_id: U16,
    /// ASQSZ: the most entries of an admin queue.
    pub admin_entries: U16,
    /// EFLAGS.
    pub flags: U16,
    reserved12: [u8; 20],
    /// TRSVCID: port number as text, space-padded.
    pub service: [u8; 32],
    reserved64: [u8; 192],
    /// SUBNQN, NUL-padded.
    pub nqn: [u8; 256],
    /// TRADDR: address as text, space-padded.
    pub address: [u8; 256],
    /// TSAS: transport specific; for TCP, byte 0 is the security type (0 none).
    pub transport_specific: [u8; 256],
}
const _: () = assert!(size_of::<DiscoveryEntry>() == 1024);

impl DiscoveryEntry {
    /// Whether SQ flow control may be disabled (TREQ bit 2).
    pub const FLOW_CONTROL_OPTIONAL: u8 = 1 << 2;

    /// ADRFAM: IPv4.
    pub const IPV4: u8 = 1;
    /// ADRFAM: IPv6.
    pub const IPV6: u8 = 2;

    /// An entry of zeroes.
    pub fn zeroed() -> Self {
        Self::read_from_bytes(&[0; 1024]).expect("1,024 bytes make an entry")
    }

    /// SECTYPE of TCP (TSAS byte 0).
    pub const fn tcp_security(&self) -> u8 {
        self.transport_specific[0]
    }

    /// Text of a space- or NUL-padded field.
    pub fn text(field: &[u8]) -> String {
        let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
        String::from_utf8_lossy(&field[..end]).trim_end().to_owned()
    }

    /// Size of [`DiscoveryHeader`] and of each entry, in bytes.
    pub const LEN: u32 = size_of::<Self>() as u32;
}

impl std::fmt::Debug for DiscoveryEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DiscoveryEntry")
            .field("transport", &self.transport)
            .field("kind", &self.kind)
            .field("nqn", &Self::text(&self.nqn))
            .field("address", &Self::text(&self.address))
            .field("service", &Self::text(&self.service))
            .finish_non_exhaustive()
    }
}
