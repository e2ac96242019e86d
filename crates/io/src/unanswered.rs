//! Operations that a disk was asked for and has not answered: how many there are, and since when.
//!
//! Code that asks a disk for something keeps an [`Asked`] until it has answered. That takes a lock that others seldom want: each thread has one of a few
//! lists, so that reactors and engines do not wait for each other.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::slab::{Key, Slab};

/// More threads than this share lists.
const LISTS: usize = 8;
/// An operation that was left may have been answered when its ring was not looked at for so long.
const LEFT_KNOWN: Duration = Duration::from_secs(3);

/// The operations of one disk, or of whatever is watched as one.
#[derive(Default)]
pub struct Unanswered {
    lists: [Arc<List>; LISTS],
}

/// Two lists, and their counts, never share a line of a processor's cache.
#[derive(Default)]
#[repr(align(128))]
struct List(Mutex<Slab<Operation>>);

/// Since when an operation waits, and when it was last known to, if nobody waits for it any more.
struct Operation {
    since: Instant,
    left: Option<Instant>,
}

/// An operation that is not answered. Dropping it says that it is.
#[derive(Debug)]
pub struct Asked {
    list: Arc<List>,
    key: Key,
}

thread_local! {
    static LIST: usize = {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        THREADS.fetch_add(1, Ordering::Relaxed) % LISTS
    };
}

impl Unanswered {
    /// The disk is asked for something, now.
    pub fn ask(&self, now: Instant) -> Asked {
        let list = Arc::clone(&self.lists[LIST.with(|list| *list)]);
        let key = list.lock().insert(Operation { since: now, left: None });
        Asked { list, key }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        let count = |list: &Arc<List>| list.lock().values().filter(|operation| operation.is_known()).count();
        self.lists.iter().map(count).sum()
    }

    /// Whether the disk owes nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Since when the oldest of them waits. Looks at all of them.
    pub fn oldest(&self) -> Option<Instant> {
        let oldest = |list: &Arc<List>| {
            list.lock().values().filter(|operation| operation.is_known()).map(|operation| operation.since).min()
        };
        self.lists.iter().filter_map(oldest).min()
    }
}

/// The disks of this machine, as reads of local files see them. A command tells of them when it has waited for long.
pub fn here() -> &'static Unanswered {
    static HERE: LazyLock<Unanswered> = LazyLock::new(Unanswered::default);
    &HERE
}

impl Asked {
    /// The disk has answered a part of it, and is asked for the next.
    pub fn goes_on(&self, now: Instant) {
        if let Some(operation) = self.list.lock().get_mut(self.key) {
            operation.since = now;
        }
    }

    /// Nobody waits for it any more, and it is not answered yet. To be said again whenever its ring is looked at: a thread that computes
    /// does not see that the disk has answered, and nobody should hear for hours of a disk that is well.
    pub(crate) fn is_left(&self, now: Instant) {
        if let Some(operation) = self.list.lock().get_mut(self.key) {
            operation.left = Some(now);
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.list.lock().remove(self.key);
    }
}

impl Operation {
    fn is_known(&self) -> bool {
        self.left.is_none_or(|left| left.elapsed() < LEFT_KNOWN)
    }
}

impl List {
    fn lock(&self) -> MutexGuard<'_, Slab<Operation>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for List {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("List").field("len", &self.lock().len()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Unanswered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unanswered").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_oldest_is_the_one_that_was_asked_first_whichever_thread_asked() {
        let (disk, start) = (Unanswered::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!((disk.oldest(), disk.is_empty()), (None, true));
        let later = disk.ask(at(7));
        let first = std::thread::scope(|scope| scope.spawn(|| disk.ask(at(3))).join().unwrap());
        let last = disk.ask(at(9));
        assert_eq!((disk.oldest(), disk.len()), (Some(at(3)), 3));
        first.goes_on(at(8));
        assert_eq!(disk.oldest(), Some(at(7)));
        drop(later);
        assert_eq!((disk.oldest(), disk.len()), (Some(at(8)), 2));
        drop((first, last));
        assert_eq!((disk.oldest(), disk.is_empty()), (None, true));
    }

    #[test]
    fn an_operation_that_was_left_counts_as_long_as_its_ring_is_looked_at() {
        let (disk, now) = (Unanswered::default(), Instant::now());
        let asked = disk.ask(now - LEFT_KNOWN);
        assert_eq!(disk.len(), 1);
        asked.is_left(now);
        assert_eq!((disk.oldest(), disk.len()), (Some(now - LEFT_KNOWN), 1));
        asked.is_left(now - LEFT_KNOWN);
        assert_eq!((disk.oldest(), disk.len()), (None, 0), "it may be answered by now");
    }
}
