//! Why a function was stopped. A trap is the same in every tier, to the byte.

use crate::region::RegionId;
use std::fmt;

/// The class of a trap. The numbers travel on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
pub enum TrapKind {
    /// An access outside its region.
    OutOfBounds = 1,
    /// An access to an address that no region covers, NULL among them.
    Unmapped = 2,
    /// A write to a region that is read-only to the program.
    ReadOnly = 3,
    /// An atomic operation at an address that is not a multiple of its size.
    Misaligned = 4,
    /// The budget of retreating edges is used up.
    Budget = 5,
    /// The deadline passed.
    Deadline = 6,
    /// Somebody cancelled the call.
    Cancelled = 7,
    /// A helper refused its arguments.
    Helper = 8,
}

impl TrapKind {
    /// The kind with this number.
    #[must_use]
    pub const fn from_u16(n: u16) -> Option<Self> {
        Some(match n {
            1 => Self::OutOfBounds,
            2 => Self::Unmapped,
            3 => Self::ReadOnly,
            4 => Self::Misaligned,
            5 => Self::Budget,
            6 => Self::Deadline,
            7 => Self::Cancelled,
            8 => Self::Helper,
            _ => return None,
        })
    }
}

/// The reason why the function stopped, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trap {
    /// The class.
    pub kind: TrapKind,
    /// Index of the instruction slot in the image's code.
    pub insn: u32,
    /// The region, where one is involved.
    pub region: Option<RegionId>,
    /// Offset of the access in its region; negative when it lies just before the region. The raw
    /// address when no region is involved.
    pub offset: i64,
    /// Length of the access in bytes.
    pub len: u64,
    /// Length of the region in bytes.
    pub bound: u64,
    /// True for a write.
    pub write: bool,
    /// The helper that refused, by name, with its reason.
    pub helper: Option<(&'static str, &'static str)>,
}

impl Trap {
    /// As it is shown, with names for regions.
    #[must_use]
    pub fn told<'a>(&'a self, name: &'a dyn Fn(RegionId) -> String) -> impl fmt::Display + 'a {
        Told { trap: self, name }
    }
}

impl fmt::Display for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.told(&|region| region.to_string()).fmt(f)
    }
}

/// A trap with names for regions.
struct Told<'a> {
    trap: &'a Trap,
    name: &'a dyn Fn(RegionId) -> String,
}

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let trap = self.trap;
        let verb = if trap.write { "write" } else { "read" };
        let region = |f: &mut fmt::Formatter<'_>| match trap.region {
            Some(r) => write!(f, " of {} at offset {}", (self.name)(r), trap.offset),
            None => write!(f, " at address {:#x}", trap.offset as u64),
        };
        if let Some((name, why)) = trap.helper {
            write!(f, "{name}: {why}")?;
            if trap.kind == TrapKind::Helper {
                // The place that it names is a byte of a text that it was given.
                return if trap.len > 0 { write!(f, ", at byte {}", trap.offset) } else { Ok(()) };
            }
            f.write_str(": ")?;
        }
        match trap.kind {
            TrapKind::OutOfBounds => {
                write!(f, "out-of-bounds {verb} of {} bytes", trap.len)?;
                region(f)?;
                write!(f, ", which is {} bytes long", trap.bound)
            }
            TrapKind::Unmapped => {
                write!(f, "{verb} of {} bytes", trap.len)?;
                region(f)?;
                f.write_str(", where nothing is mapped")
            }
            TrapKind::ReadOnly => {
                write!(f, "write of {} bytes", trap.len)?;
                region(f)?;
                f.write_str(", which is read-only")
            }
            TrapKind::Misaligned => {
                write!(f, "atomic access of {} bytes", trap.len)?;
                region(f)?;
                f.write_str(", which is not aligned to its size")
            }
            TrapKind::Budget if trap.bound > 0 => {
                write!(f, "the budget of {} loop iterations is used up", trap.bound)
            }
            TrapKind::Budget => f.write_str("the budget of loop iterations is used up"),
            TrapKind::Deadline => f.write_str("the deadline passed"),
            TrapKind::Cancelled => f.write_str("the call was cancelled"),
            TrapKind::Helper => f.write_str("a helper refused its arguments"),
        }
    }
}

impl std::error::Error for Trap {}
