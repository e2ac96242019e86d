//! The reservations of all namespaces of a subsystem, which connections and the embedder share.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::status::Status;
use crate::wire::ReservationNotice;

use super::{Exclusion, HostId, Reserved, ReservedUse, Told};

/// The reservations by NSID. They outlive connections, and go with their namespaces.
#[derive(Default)]
pub(in crate::controller) struct Reservations {
    by_nsid: Mutex<BTreeMap<u32, Reserved>>,
    /// Namespaces with a reservation that is held. While there are none, nobody needs the lock.
    held: AtomicUsize,
    /// Rises when hosts may be excluded otherwise than before.
    version: AtomicU64,
    watch: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// A change of the reservations of a namespace.
#[derive(Debug)]
pub(in crate::controller) struct Change {
    before: Reserved,
    after: Reserved,
    /// Notices for hosts.
    pub(in crate::controller) told: Vec<Told>,
}

impl Change {
    /// Whether hosts may be excluded otherwise than before.
    pub(in crate::controller) fn moves_rights(&self) -> bool {
        self.before != self.after && (self.before.is_held() || self.after.is_held())
    }

    /// Whether a host is excluded from more than before.
    pub(in crate::controller) fn restricts(&self, host: &HostId) -> bool {
        self.before.exclusion(host) < self.after.exclusion(host)
    }

    /// The same, or whether its registration was preempted: then its commands may be to be aborted.
    pub(in crate::controller) fn concerns(&self, host: &HostId) -> bool {
        let preempted = Told { host: *host, notice: ReservationNotice::RegistrationPreempted };
        self.restricts(host) || self.told.contains(&preempted)
    }
}

impl Reservations {
    /// Changes the reservations of a namespace, or leaves them if that fails.
    pub(in crate::controller) fn change(
        &self,
        nsid: u32,
        change: impl FnOnce(&mut Reserved) -> Result<Vec<Told>, Status>,
    ) -> Result<Change, Status> {
        let mut all = self.lock();
        let before = all.get(&nsid).cloned().unwrap_or_default();
        let mut after = before.clone();
        let told = change(&mut after)?;
        all.insert(nsid, after.clone());
        let change = Change { before, after, told };
        self.note(&all, change.moves_rights());
        Ok(change)
    }

    /// A namespace is gone: what gets its number next has none.
    pub(in crate::controller) fn remove(&self, nsid: u32) {
        let mut all = self.lock();
        let was_held = all.remove(&nsid).is_some_and(|gone| gone.is_held());
        self.note(&all, was_held);
    }

    fn note(&self, all: &BTreeMap<u32, Reserved>, rights_moved: bool) {
        if rights_moved {
            self.held.store(all.values().filter(|one| one.is_held()).count(), Ordering::Release);
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// The data of a Report.
    pub(in crate::controller) fn report(&self, nsid: u32) -> Vec<u8> {
        self.lock().get(&nsid).map_or_else(|| Reserved::default().report(), Reserved::report)
    }

    /// The namespaces from which a host is excluded, and how far.
    pub(in crate::controller) fn exclusions(&self, host: &HostId) -> BTreeMap<u32, Exclusion> {
        if self.held.load(Ordering::Acquire) == 0 {
            return BTreeMap::new();
        }
        let all = self.lock();
        let excluded = all.iter().map(|(nsid, one)| (*nsid, one.exclusion(host)));
        excluded.filter(|(_, exclusion)| *exclusion != Exclusion::Nothing).collect()
    }

    fn exclusion(&self, nsid: u32, host: &HostId) -> Exclusion {
        if self.held.load(Ordering::Acquire) == 0 {
            return Exclusion::Nothing;
        }
        self.lock().get(&nsid).map_or(Exclusion::Nothing, |one| one.exclusion(host))
    }

    /// Locks. A thread that panicked while it held the lock left no half-made change behind: each is one assignment.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Reserved>> {
        self.by_nsid.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets what is called, without a lock held, after hosts are excluded from more than before. Once.
    pub(in crate::controller) fn set_watch(&self, watch: Box<dyn Fn() + Send + Sync>) {
        let is_first = self.watch.set(watch).is_ok();
        debug_assert!(is_first, "one embedder watches");
    }

    pub(in crate::controller) fn tell_watch(&self) {
        if let Some(watch) = self.watch.get() {
            watch();
        }
    }
}

impl fmt::Debug for Reservations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservations").field("by_nsid", &self.by_nsid).finish_non_exhaustive()
    }
}

/// The reservations of a subsystem as they are to one host: for what an embedder does with namespaces for it beside the requests
/// of its connections, which were looked at already.
#[derive(Clone, Debug)]
pub struct HostReservations {
    /// `None`: nothing is ever reserved.
    of: Option<(Arc<Reservations>, HostId)>,
}

impl HostReservations {
    pub(in crate::controller) fn new(all: &Arc<Reservations>, host: HostId) -> Self {
        Self { of: Some((Arc::clone(all), host)) }
    }

    /// Nothing is ever reserved.
    pub const fn none() -> Self {
        Self { of: None }
    }

    /// Whether a reservation keeps the host from using a namespace so, now.
    pub fn exclude(&self, nsid: u32, what: ReservedUse) -> bool {
        self.of.as_ref().is_some_and(|(all, host)| all.exclusion(nsid, host).forbids(what))
    }

    /// Changes when that may have.
    pub fn version(&self) -> u64 {
        self.of.as_ref().map_or(0, |(all, _)| all.version.load(Ordering::Acquire))
    }
}
