//! How a command that excludes hosts waits for what they have begun.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::Waker;

use super::lock::lock;
use super::request::Tag;

/// Commands of a connection that may wait for others at a time.
pub(super) const AWAITED_MAX: usize = 8;

/// A command that excludes hosts waits, until all queues of these know of it and their writes that had begun are over: a host that
/// fences another one off relies on that. Each such queue, and each write beside the queues, holds this until then.
#[derive(Debug)]
pub(super) struct Fence {
    pub(super) nsid: u32,
    /// The commands of those who hold this one are to be aborted, too, where the embedder still can.
    pub(super) aborts: bool,
    wait: Arc<Wait>,
}

/// Ends the wait of a command when nobody holds a fence of it any more.
#[derive(Debug)]
struct Wait {
    is_down: Arc<AtomicBool>,
    /// Wakes the connection that waits.
    waker: Waker,
}

impl Fence {
    /// Sets this, and wakes that, when nobody holds it any more, nor one of those that abort.
    pub(super) fn new(nsid: u32, is_down: &Arc<AtomicBool>, waker: Waker) -> Self {
        Self { nsid, aborts: false, wait: Arc::new(Wait { is_down: Arc::clone(is_down), waker }) }
    }

    /// The same for those whose commands are to be aborted.
    pub(super) fn aborting(&self) -> Self {
        Self { nsid: self.nsid, aborts: true, wait: Arc::clone(&self.wait) }
    }

    /// Whether the command that waits for it is still there.
    pub(super) fn is_awaited(&self) -> bool {
        Arc::strong_count(&self.wait.is_down) > 1
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.is_down.store(true, Ordering::Release);
        self.waker.wake_by_ref();
    }
}

/// Where others put up fences, as long as it exists: for an I/O queue of a host, until its connection is gone, because clusters fence hosts
/// off that have just vanished; or for one write that the embedder carries out for a host beside its queues.
#[derive(Debug)]
pub(super) struct FenceInbox {
    waker: Waker,
    fences: Mutex<Vec<Arc<Fence>>>,
    number: u64,
    among: Arc<FenceInboxes>,
}

impl FenceInbox {
    /// It holds the fence from now on, whether anybody has taken note or not.
    pub(super) fn put_up(&self, fence: &Arc<Fence>) {
        let mut fences = lock(&self.fences);
        fences.retain(|fence| fence.is_awaited());
        fences.push(Arc::clone(fence));
        drop(fences);
        self.waker.wake_by_ref();
    }

    /// Those of which nobody has taken note.
    pub(super) fn take(&self) -> Vec<Arc<Fence>> {
        std::mem::take(&mut lock(&self.fences))
    }
}

impl Drop for FenceInbox {
    fn drop(&mut self) {
        lock(&self.among.table).by_number.remove(&self.number);
    }
}

/// All that there are.
#[derive(Debug, Default)]
pub(super) struct FenceInboxes {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    last: u64,
    by_number: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    host: [u8; 16],
    /// `None`: any.
    nsid: Option<u32>,
    inbox: Weak<FenceInbox>,
}

impl FenceInboxes {
    /// One for what is done for a host from now on, to a namespace or to any.
    pub(super) fn add(self: &Arc<Self>, host: [u8; 16], nsid: Option<u32>, waker: Waker) -> Arc<FenceInbox> {
        let mut table = lock(&self.table);
        table.last += 1;
        let number = table.last;
        let inbox = Arc::new(FenceInbox { waker, fences: Mutex::default(), number, among: Arc::clone(self) });
        table.by_number.insert(number, Entry { host, nsid, inbox: Arc::downgrade(&inbox) });
        inbox
    }

    /// Those for what is done to a namespace for some hosts, each with its host.
    pub(super) fn of(&self, nsid: u32, is_concerned: impl Fn(&[u8; 16]) -> bool) -> Vec<([u8; 16], Arc<FenceInbox>)> {
        let table = lock(&self.table);
        let mut hosts = BTreeMap::new();
        let entries = table.by_number.values().filter(|entry| entry.nsid.is_none_or(|only| only == nsid));
        let concerned = entries.filter(|entry| *hosts.entry(entry.host).or_insert_with(|| is_concerned(&entry.host)));
        // The last owner of one that is found here is the caller, behind the lock.
        concerned.filter_map(|entry| Some((entry.host, entry.inbox.upgrade()?))).collect()
    }
}

/// The fences of a connection: those that it holds for others, and its own commands that wait for others.
#[derive(Debug, Default)]
pub(super) struct Fences {
    /// With the commands that are not over.
    pub(super) held: Vec<(Vec<Arc<Fence>>, Vec<Tag>)>,
    pub(super) awaited: Vec<(Tag, Arc<AtomicBool>)>,
    /// The commands are forgotten, though the embedder may still have some: fences stay up until the connection is gone.
    pub(super) are_kept: bool,
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn who_holds_a_fence_is_woken_and_who_waits_for_it() {
        let (holder, waiter) = (Arc::new(Count::default()), Arc::new(Count::default()));
        let inbox = Arc::new(FenceInboxes::default()).add([1; 16], None, Arc::clone(&holder).into());
        let is_down = Arc::new(AtomicBool::new(false));
        let fence = Arc::new(Fence::new(1, &is_down, Arc::clone(&waiter).into()));
        inbox.put_up(&fence);
        drop(fence);
        assert_eq!((holder.0.load(Ordering::Relaxed), waiter.0.load(Ordering::Relaxed)), (1, 0));
        assert!(!is_down.load(Ordering::Relaxed));
        drop(inbox);
        assert_eq!(waiter.0.load(Ordering::Relaxed), 1);
        assert!(is_down.load(Ordering::Relaxed));
    }

    #[test]
    fn inboxes_are_found_by_host_and_namespace_and_go() {
        let all = Arc::new(FenceInboxes::default());
        let kept = [([1; 16], None), ([1; 16], Some(7)), ([2; 16], Some(8))]
            .map(|(host, nsid)| all.add(host, nsid, Waker::noop().clone()));
        let count = |nsid, host: u8| all.of(nsid, |other| other[0] == host).len();
        assert_eq!((count(7, 1), count(8, 1), count(8, 2), count(7, 2)), (2, 1, 1, 0));
        drop(kept);
        assert_eq!(count(7, 1), 0);
        assert!(lock(&all.table).by_number.is_empty());
    }
}
