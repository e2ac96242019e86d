//! Regions: the windows of memory that a program sees.
//!
//! A program-visible address is `region << 40 | offset`; bits 63:48 are zero. Region 0 is never
//! mapped, so NULL and small integers trap. A region is at most [`REGION_LEN_MAX`] long, so an
//! overrun of less than 64 KiB can never reach the next one. Addresses are the same in every tier.

use std::fmt;

/// log2 of a region's window.
pub const REGION_SHIFT: u32 = 40;
/// Longest region: the window less a guard of 64 KiB.
pub const REGION_LEN_MAX: u64 = (1 << REGION_SHIFT) - GUARD_LEN;
/// The unmapped end of each window.
pub const GUARD_LEN: u64 = 64 << 10;
/// Number of windows.
pub const REGION_COUNT: usize = 256;

/// Which window an address is in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RegionId(pub u8);

impl RegionId {
    /// Never mapped.
    pub const NULL: Self = Self(0);
    /// All stack frames.
    pub const STACK: Self = Self(1);
    /// Constants of the image.
    pub const RODATA: Self = Self(2);
    /// `.data` and `.bss`, private to an activation.
    pub const DATA: Self = Self(3);
    /// The kind's context structure.
    pub const CONTEXT: Self = Self(4);
    /// Arguments.
    pub const ARGS: Self = Self(5);
    /// Input bytes.
    pub const INPUT: Self = Self(6);
    /// Output bytes.
    pub const OUTPUT: Self = Self(7);
    /// The target of `combine`'s fold.
    pub const ACCUMULATOR: Self = Self(8);
    /// Scratch of a traversal.
    pub const SCRATCH: Self = Self(9);
    /// The memory that `ds_alloc` gives out.
    pub const HEAP: Self = Self(10);
    /// Named state, shared by programs across executions.
    pub const STATE: Self = Self(11);
    /// The first memory range of a standard Execute; ranges are 16 to 255 in order of their set.
    pub const RANGE_FIRST: Self = Self(16);

    /// The address of the region's first byte.
    #[must_use]
    pub const fn base(self) -> u64 {
        (self.0 as u64) << REGION_SHIFT
    }

    /// The window that `address` is in; `None` when bits 63:48 are set.
    #[must_use]
    pub const fn of(address: u64) -> Option<Self> {
        let n = address >> REGION_SHIFT;
        if n < REGION_COUNT as u64 { Some(Self(n as u8)) } else { None }
    }
}

impl fmt::Display for RegionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Self::NULL => "null",
            Self::STACK => "stack",
            Self::RODATA => "rodata",
            Self::DATA => "data",
            Self::CONTEXT => "context",
            Self::ARGS => "args",
            Self::INPUT => "input",
            Self::OUTPUT => "output",
            Self::ACCUMULATOR => "accumulator",
            Self::SCRATCH => "scratch",
            Self::HEAP => "heap",
            Self::STATE => "state",
            Self(n) if n >= Self::RANGE_FIRST.0 => {
                return write!(f, "range {}", n - Self::RANGE_FIRST.0);
            }
            Self(n) => return write!(f, "region {n}"),
        };
        f.write_str(name)
    }
}
