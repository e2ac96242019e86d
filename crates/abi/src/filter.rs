//! What `ds_filter_*` takes.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct ds_filter`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct DsFilter {
    /// `enum ds_filter_op`: 0 eq, 1 ne, 2 lt, 3 le, 4 gt, 5 ge, 6 between (both ends belong to it).
    pub op: U32,
    /// `enum ds_filter_form`: 0 bitmap, 1 positions.
    pub form: U32,
    /// The value, or the lower end; its low bits hold an element.
    pub lo: U64,
    /// The upper end.
    pub hi: U64,
}

const _: () = assert!(size_of::<DsFilter>() == 24);
