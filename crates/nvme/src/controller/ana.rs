//! Asymmetric Namespace Access (Base 2.0, 8.1): the state of a path, by which hosts with several choose.
//!
//! A path is a listener. All namespaces are one group, whose state each controller tells for the path over which its admin queue came.
//! Those of memory and of programs are in it as volumes are: a namespace of such a controller must be in a group, and a function that is
//! called over a path that is closed would read the volumes all the same.

use std::fmt;

use zerocopy::IntoBytes;

use crate::status::Status;
use crate::wire::{AnaGroup, AnaHeader, NSID_ALL, feature};

/// The state of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathState {
    /// As good as any.
    #[default]
    Optimized,
    /// One that works, for hosts that have no better one.
    NonOptimized,
    /// One over which volumes cannot be reached now.
    Inaccessible,
}

impl PathState {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Optimized, Self::NonOptimized, Self::Inaccessible];

    /// Its number in the log page.
    const fn number(self) -> u8 {
        match self {
            Self::Optimized => 1,
            Self::NonOptimized => 2,
            Self::Inaccessible => 3,
        }
    }

    /// The state with this number in the log page. `None`: one that our servers do not give.
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.number() == number)
    }

    /// Whether a command to a namespace is carried out. A host does well to repeat one that is not over another path.
    pub(super) const fn check(self) -> Result<(), Status> {
        match self {
            Self::Optimized | Self::NonOptimized => Ok(()),
            Self::Inaccessible => Err(Status::ANA_INACCESSIBLE),
        }
    }
}

/// As nvme-cli says it.
impl fmt::Display for PathState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Optimized => "optimized",
            Self::NonOptimized => "non-optimized",
            Self::Inaccessible => "inaccessible",
        })
    }
}

/// The states of the listeners, by number; those behind the last are as by default.
#[derive(Debug, Default)]
pub(super) struct Paths(Vec<PathState>);

impl Paths {
    pub(super) const fn new(states: Vec<PathState>) -> Self {
        Self(states)
    }

    /// The state of the path of a host that came through this listener.
    pub(super) fn of(&self, listener: Option<u16>) -> PathState {
        listener.and_then(|listener| self.0.get(usize::from(listener))).copied().unwrap_or_default()
    }
}

/// The group of all namespaces, and the largest identifier of one.
pub(super) const GROUP: u32 = 1;

/// ANATT: a transition takes no time, and the field is not to be 0.
pub(super) const TRANSITION_S: u8 = 1;

/// ANACAP: the three states, and a namespace's group stays the same.
pub(super) const CAPABILITIES: u8 = 0b111 | 1 << 6;

/// The log page, after so many changes: the group, if the host sees a namespace of it or asks for groups alone.
pub(super) fn log_page(path: PathState, members: &[u32], changes: u64, groups_only: bool) -> Vec<u8> {
    let told = if groups_only { &[] } else { members };
    let groups = u16::from(groups_only || !members.is_empty());
    let mut page = AnaHeader::new(changes, groups).as_bytes().to_vec();
    if groups > 0 {
        let group = AnaGroup::new(GROUP, told.len() as u32, changes, path.number());
        page.extend_from_slice(group.as_bytes());
        page.extend(told.iter().flat_map(|nsid| nsid.to_le_bytes()));
    }
    page
}

/// Whether a feature is not to be read, or set, over a path that is closed (Base 2.0, 8.1.4): those of reservations and of the NVM command
/// set belong to the namespaces, and what is set for all namespaces is set for none.
pub(super) const fn is_of_path(fid: u8, nsid: u32, sets: bool) -> bool {
    use feature::{ERROR_RECOVERY, RESERVATION_MASK, RESERVATION_PERSISTENCE, WRITE_ATOMICITY};
    let belongs_to_namespaces =
        matches!(fid, ERROR_RECOVERY | WRITE_ATOMICITY | RESERVATION_MASK | RESERVATION_PERSISTENCE);
    belongs_to_namespaces || sets && nsid == NSID_ALL
}
