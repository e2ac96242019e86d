//! The log page of Asymmetric Namespace Access, LID 0Ch (Base 2.0, 5.16.1.13).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::command::Sqe;
use super::log::log_page;

/// The log page's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct AnaHeader {
    /// CHGCNT: counts changes of the page since the controller's reset.
    pub changes: U64,
    /// NAGD: how many groups follow.
    pub groups: U16,
    reserved10: [u8; 6],
}
const _: () = assert!(size_of::<AnaHeader>() == 16);

/// ANA Group Descriptor: a group of namespaces; their NSIDs follow, ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct AnaGroup {
    /// AGID.
    pub group: U32,
    /// NNV: how many NSIDs follow.
    pub namespaces: U32,
    /// CHGCNT: counts changes of the group since the controller's reset; 0: not counted.
    pub changes: U64,
    /// State of the group through this controller: 1 optimized, 2 non-optimized, 3 inaccessible, 4 lost for good, 15 changing.
    pub state: u8,
    reserved17: [u8; 15],
}
const _: () = assert!(size_of::<AnaGroup>() == 32);

impl AnaHeader {
    /// The head of a page of so many groups.
    pub fn new(changes: u64, groups: u16) -> Self {
        Self { changes: changes.into(), groups: groups.into(), reserved10: [0; 6] }
    }
}

impl AnaGroup {
    /// A group of so many namespaces.
    pub fn new(group: u32, namespaces: u32, changes: u64, state: u8) -> Self {
        let (group, namespaces, changes) = (group.into(), namespaces.into(), changes.into());
        Self { group, namespaces, changes, state, reserved17: [0; 15] }
    }
}

impl Sqe {
    /// Get Log Page of Asymmetric Namespace Access; with `groups_only` no NSIDs are told (RGO).
    pub fn ana_log(groups_only: bool, offset: u64, len: u32, retain: bool) -> Self {
        Self::get_log_page(log_page::ANA, offset, len, 0, retain).with_bits(10, 8, 1, groups_only.into())
    }

    /// RGO: of the log of Asymmetric Namespace Access the groups alone are wanted (dword 10 bit 8).
    pub const fn ana_groups_only(&self) -> bool {
        self.bits(10, 8, 1) != 0
    }
}
