//! The namespaces as a connection sees them: a snapshot, so that commands need no lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ana::PathState;
use super::config::Namespace;
use super::reservations::Exclusion;

/// A snapshot of the namespaces, by NSID.
#[derive(Debug, Default)]
pub(super) struct Namespaces {
    pub(super) epoch: u64,
    pub(super) by_nsid: Vec<Option<Namespace>>,
    /// The namespaces from which reservations exclude the host.
    pub(super) excluded: BTreeMap<u32, Exclusion>,
    /// The state of the path over which the host reaches them.
    pub(super) path: PathState,
}

impl Namespaces {
    pub(super) fn get(&self, nsid: u32) -> Option<&Namespace> {
        self.by_nsid.get(nsid.checked_sub(1)? as usize)?.as_ref()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Namespace> {
        self.by_nsid.iter().flatten()
    }

    /// The commands to a namespace from which a reservation keeps the host.
    pub(super) fn exclusion(&self, nsid: u32) -> Exclusion {
        self.excluded.get(&nsid).copied().unwrap_or_default()
    }

    /// All namespaces, as they are to the embedder.
    pub(super) fn of(epoch: u64, by_nsid: Vec<Option<Namespace>>) -> Arc<Self> {
        Arc::new(Self { epoch, by_nsid, excluded: BTreeMap::new(), path: PathState::Optimized })
    }
}
