//! Asymmetric Namespace Access (Base 2.0, 8.1): the state of a path, by which hosts with several choose.
//!
//! A path is a listener. All namespaces are one group, whose state each controller tells for the path over which its admin queue came.
//! Those of memory and of programs are in it as volumes are: a namespace of such a controller must be in a group, and a function that is
//! called over a path that is closed would read the volumes all the same.

use std::fmt;

use zerocopy::IntoBytes;

use crate::status::Status;
use crate::wire::{AnaGroup, AnaHeader, CSI_NVM, NSID_ALL, feature};

use super::execute::CSS_ALL;
use super::shared::Controller;

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

    /// Of a host that came through this listener.
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
pub(super) fn log_page(controller: &Controller, changes: u64, groups_only: bool) -> Vec<u8> {
    let namespaces = controller.subsystem.snapshot_for(controller);
    let all_command_sets = controller.cc().css() == CSS_ALL;
    let visible = namespaces.iter().filter(|namespace| all_command_sets || namespace.csi == CSI_NVM);
    let members: Vec<u32> = visible.map(|namespace| namespace.nsid).collect();
    let told: &[u32] = if groups_only { &[] } else { &members };
    let groups = u16::from(groups_only || !members.is_empty());
    let mut page = AnaHeader::new(changes, groups).as_bytes().to_vec();
    if groups > 0 {
        let group = AnaGroup::new(GROUP, told.len() as u32, changes, namespaces.path.number());
        page.extend_from_slice(group.as_bytes());
        page.extend(told.iter().flat_map(|nsid| nsid.to_le_bytes()));
    }
    page
}

/// Whether a feature can be had, or set, over the path (Base 2.0, 8.1.4): those of reservations and of the NVM command set are the
/// namespaces'.
pub(super) fn check_feature(controller: &Controller, fid: u8, nsid: u32, sets: bool) -> Result<(), Status> {
    let is_of_namespaces = matches!(
        fid,
        feature::ERROR_RECOVERY
            | feature::WRITE_ATOMICITY
            | feature::RESERVATION_MASK
            | feature::RESERVATION_PERSISTENCE
    );
    let is_of_all = sets && nsid == NSID_ALL;
    if is_of_namespaces || is_of_all { controller.subsystem.snapshot_for(controller).path.check() } else { Ok(()) }
}
