//! The reservations of all namespaces of a subsystem, which connections and the embedder share.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::status::Status;
use crate::wire::ReservationNotice;

use super::super::fence::{FenceInbox, FenceInboxes};
use super::super::lock::lock;
use super::{Exclusion, HostId, Reserved, ReservedUse, Told};

/// Changes of hosts' rights to a namespace that may be made at once, and each second from then on: each costs every connection a look.
const CHANGES_AT_ONCE: u32 = 256;
const CHANGES_PER_S: u32 = 100;

/// The reservations by NSID. They outlive connections, and go with their namespaces.
#[derive(Default)]
pub(in crate::controller) struct Reservations {
    by_nsid: Mutex<BTreeMap<u32, Entry>>,
    /// What is done for hosts, so that others can wait for it.
    pub(in crate::controller) inboxes: Arc<FenceInboxes>,
    /// Namespaces with a reservation that is held. While there are none, nobody needs the lock.
    held: AtomicUsize,
    /// Rises when hosts may be excluded otherwise than before.
    version: AtomicU64,
    watch: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Debug, Default)]
struct Entry {
    reserved: Reserved,
    pace: Pace,
}

/// How fast rights change.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// Changes that are not forgotten.
    made: u32,
    forgotten_at: Option<Instant>,
}

impl Pace {
    /// Whether one more change may be made now.
    fn take(&mut self, now: Instant) -> bool {
        let each = Duration::from_secs(1) / CHANGES_PER_S;
        let from = *self.forgotten_at.get_or_insert(now);
        let over = now.saturating_duration_since(from).as_nanos() / each.as_nanos();
        let over = u32::try_from(over).unwrap_or(u32::MAX);
        if over >= self.made {
            (self.made, self.forgotten_at) = (0, Some(now));
        } else {
            (self.made, self.forgotten_at) = (self.made - over, Some(from + each * over));
        }
        let may = self.made < CHANGES_AT_ONCE;
        self.made += u32::from(may);
        may
    }
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

    /// Whether a host is excluded from anything now, by this change or since before it: who makes a change once more, or in the place of
    /// another host that is gone, waits for the same.
    pub(in crate::controller) fn excludes(&self, host: &HostId) -> bool {
        self.after.exclusion(host) != Exclusion::Nothing
    }

    /// Whether a host's registration was preempted.
    pub(in crate::controller) fn preempts(&self, host: &HostId) -> bool {
        self.told.contains(&Told { host: *host, notice: ReservationNotice::RegistrationPreempted })
    }
}

impl Reservations {
    /// Changes the reservations of a namespace, or leaves them if that fails.
    pub(in crate::controller) fn change(
        &self,
        now: Instant,
        nsid: u32,
        change: impl FnOnce(&mut Reserved) -> Result<Vec<Told>, Status>,
    ) -> Result<Change, Status> {
        let mut all = lock(&self.by_nsid);
        let entry = all.entry(nsid).or_default();
        let before = entry.reserved.clone();
        let mut after = before.clone();
        let told = change(&mut after)?;
        let change = Change { before, after, told };
        if change.moves_rights() && !entry.pace.take(now) {
            return Err(Status::COMMAND_INTERRUPTED);
        }
        entry.reserved = change.after.clone();
        self.note(&all, change.moves_rights());
        Ok(change)
    }

    /// A namespace is gone: what gets its number next has none.
    pub(in crate::controller) fn remove(&self, nsid: u32) {
        let mut all = lock(&self.by_nsid);
        let was_held = all.remove(&nsid).is_some_and(|gone| gone.reserved.is_held());
        self.note(&all, was_held);
    }

    fn note(&self, all: &BTreeMap<u32, Entry>, rights_moved: bool) {
        if rights_moved {
            self.held.store(all.values().filter(|one| one.reserved.is_held()).count(), Ordering::Release);
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// The data of a Report.
    pub(in crate::controller) fn report(&self, nsid: u32) -> Vec<u8> {
        lock(&self.by_nsid).get(&nsid).map_or_else(|| Reserved::default().report(), |one| one.reserved.report())
    }

    /// The namespaces from which a host is excluded, and how far.
    pub(in crate::controller) fn exclusions(&self, host: &HostId) -> BTreeMap<u32, Exclusion> {
        if self.held.load(Ordering::Acquire) == 0 {
            return BTreeMap::new();
        }
        let all = lock(&self.by_nsid);
        let excluded = all.iter().map(|(nsid, one)| (*nsid, one.reserved.exclusion(host)));
        excluded.filter(|(_, exclusion)| *exclusion != Exclusion::Nothing).collect()
    }

    fn exclusion(&self, nsid: u32, host: &HostId) -> Exclusion {
        if self.held.load(Ordering::Acquire) == 0 {
            return Exclusion::Nothing;
        }
        lock(&self.by_nsid).get(&nsid).map_or(Exclusion::Nothing, |one| one.reserved.exclusion(host))
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

/// A write that the embedder carries out for a host beside the requests of its connections, until it is dropped.
#[derive(Debug)]
pub struct ReservedWrite {
    _inbox: Option<Arc<FenceInbox>>,
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

    /// Begins a write to a namespace: as long as the answer exists, a command that keeps the host off waits for it. `None`: a reservation
    /// does so now.
    pub fn begin_write(&self, nsid: u32) -> Option<ReservedWrite> {
        let Some((all, host)) = &self.of else { return Some(ReservedWrite { _inbox: None }) };
        // First: who reserves behind this look finds it.
        let inbox = all.inboxes.add(*host, Some(nsid), Waker::noop().clone());
        let may = !all.exclusion(nsid, host).forbids(ReservedUse::Write);
        may.then_some(ReservedWrite { _inbox: Some(inbox) })
    }

    /// Changes when that may have.
    pub fn version(&self) -> u64 {
        self.of.as_ref().map_or(0, |(all, _)| all.version.load(Ordering::Acquire))
    }
}
