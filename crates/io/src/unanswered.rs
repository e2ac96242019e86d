//! Operations that a disk was asked for and has not answered: how many there are, and since when.
//!
//! Code that asks a disk for something keeps an [`Asked`] until it has answered. That takes a lock that others seldom want: each thread has one of a few
//! lists, so that reactors and engines do not wait for each other.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::slab::{Key, Slab};

/// More threads than this share lists.
const LISTS: usize = 8;

/// The operations of one disk, or of whatever is watched as one.
#[derive(Default)]
pub struct Unanswered {
    lists: [List; LISTS],
}

/// Two lists never share a line of a processor's cache.
#[derive(Default)]
#[repr(align(128))]
struct List(Mutex<Slab<Instant>>);

/// An operation that is not answered. Dropping it says that it is.
#[derive(Debug)]
pub struct Asked {
    of: Arc<Unanswered>,
    list: usize,
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
    pub fn ask(self: &Arc<Self>, now: Instant) -> Asked {
        let list = LIST.with(|list| *list);
        let key = self.lists[list].lock().insert(now);
        Asked { of: Arc::clone(self), list, key }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.lists.iter().map(|list| list.lock().len()).sum()
    }

    /// Whether the disk owes nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Since when the oldest of them waits. Looks at all of them.
    pub fn oldest(&self) -> Option<Instant> {
        self.lists.iter().filter_map(|list| list.lock().values().min().copied()).min()
    }
}

/// The disks of this machine, as reads of local files see them. A command tells of them when it has waited for long.
pub fn here() -> &'static Arc<Unanswered> {
    static HERE: LazyLock<Arc<Unanswered>> = LazyLock::new(Arc::default);
    &HERE
}

impl Asked {
    /// It goes on: the disk has answered a part of it, and is asked for the next.
    pub fn goes_on(&self, now: Instant) {
        if let Some(since) = self.of.lists[self.list].lock().get_mut(self.key) {
            *since = now;
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.of.lists[self.list].lock().remove(self.key);
    }
}

impl List {
    fn lock(&self) -> MutexGuard<'_, Slab<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        let (disk, start) = (Arc::new(Unanswered::default()), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!((disk.oldest(), disk.is_empty()), (None, true));
        let later = disk.ask(at(7));
        let (theirs, earlier) = (Arc::clone(&disk), at(3));
        let first = std::thread::spawn(move || theirs.ask(earlier)).join().unwrap();
        let last = disk.ask(at(9));
        assert_eq!((disk.oldest(), disk.len()), (Some(at(3)), 3));
        first.goes_on(at(8));
        assert_eq!(disk.oldest(), Some(at(7)));
        drop(later);
        assert_eq!((disk.oldest(), disk.len()), (Some(at(8)), 2));
        drop((first, last));
        assert_eq!((disk.oldest(), disk.is_empty()), (None, true));
    }
}
