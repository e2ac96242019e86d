//! Controller properties (Base 3.1.4), which a host reads and writes with Fabrics commands.

use super::bits::{field, with_field};

/// Offsets of properties.
pub mod property {
    /// Controller Capabilities, 8 bytes.
    pub const CAP: u32 = 0x00;
    /// Version, 4 bytes.
    pub const VS: u32 = 0x08;
    /// Controller Configuration, 4 bytes.
    pub const CC: u32 = 0x14;
    /// Controller Status, 4 bytes.
    pub const CSTS: u32 = 0x1c;
    /// NVM Subsystem Reset, 4 bytes.
    pub const NSSR: u32 = 0x20;
    /// Controller Ready Timeouts, 4 bytes.
    pub const CRTO: u32 = 0x68;
}

/// Defines getters and `with_` setters of bit fields: name, setter, first bit, width, meaning.
macro_rules! fields {
    ($type:ident($raw:ty): $($get:ident, $with:ident, $low:literal, $width:literal, $doc:literal;)*) => {
        impl $type {
            $(#[doc = $doc]
            pub const fn $get(self) -> $raw { field(self.0 as u64, $low, $width) as $raw }
            #[doc = concat!("Sets: ", $doc)]
            #[must_use]
            pub const fn $with(self, value: $raw) -> Self {
                Self(with_field(self.0 as u64, $low, $width, value as u64) as $raw)
            })*
        }
    };
}

/// Controller Capabilities (Base 3.1.4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cap(pub u64);

fields! { Cap(u64):
    mqes, with_mqes, 0, 16, "MQES: the most entries of a queue, 0's based.";
    cqr, with_cqr, 16, 1, "CQR: queues must be contiguous; 1 over fabrics.";
    to, with_to, 24, 8, "TO: the longest wait for ready, in units of 500 ms.";
    css_nvm, with_css_nvm, 37, 1, "CSS bit 0: the NVM command set.";
    css_multiple, with_css_multiple, 43, 1, "CSS bit 6: one or more I/O command sets, see Identify CNS 1Ch.";
    css_admin_only, with_css_admin_only, 44, 1, "CSS bit 7: no I/O command set.";
    mpsmin, with_mpsmin, 48, 4, "MPSMIN: smallest memory page size, 2^(12 + value) bytes.";
    mpsmax, with_mpsmax, 52, 4, "MPSMAX: largest memory page size, 2^(12 + value) bytes.";
    crms_with_media, with_crms_with_media, 59, 1, "CRMS bit 0 (CRWMS): Controller Ready With Media.";
}

/// Version (Base 3.1.4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version(pub u32);

fields! { Version(u32):
    major, with_major, 16, 16, "Major version.";
    minor, with_minor, 8, 8, "Minor version.";
    tertiary, with_tertiary, 0, 8, "Tertiary version.";
}

/// Controller Configuration (Base 3.1.4.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cc(pub u32);

fields! { Cc(u32):
    enable, with_enable, 0, 1, "EN: enabled.";
    css, with_css, 4, 3, "CSS: 000b the NVM command set, 110b all that are supported, 111b none.";
    mps, with_mps, 7, 4, "MPS: memory page size, 2^(12 + value) bytes.";
    ams, with_ams, 11, 3, "AMS: arbitration.";
    shutdown, with_shutdown, 14, 2, "SHN: 00b none, 01b normal, 10b abrupt.";
    iosqes, with_iosqes, 16, 4, "IOSQES: size of submission queue entries, 2^value bytes; 6.";
    iocqes, with_iocqes, 20, 4, "IOCQES: size of completion queue entries, 2^value bytes; 4.";
}

/// Controller Status (Base 3.1.4.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Csts(pub u32);

fields! { Csts(u32):
    ready, with_ready, 0, 1, "RDY: ready for commands.";
    fatal, with_fatal, 1, 1, "CFS: a fatal error.";
    shutdown, with_shutdown, 2, 2, "SHST: 00b normal operation, 01b shutting down, 10b shut down.";
}
