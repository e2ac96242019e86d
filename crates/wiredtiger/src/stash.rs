//! Blocks that were read before WiredTiger asked for them.

use crate::blocks::Blocks;
use crate::writes::{Mark, Writes};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Blocks of one trip, from a file of which it knows whether they have been written since.
#[derive(Debug)]
struct Trip {
    file: u64,
    mark: Mark,
    blocks: Blocks,
    /// The blocks that may be served.
    left: u64,
}

/// The trips of a thread, the newest last.
#[derive(Debug)]
pub(crate) struct Stash {
    shared: Arc<Shared>,
}

/// Other threads take it away when all together have too much: a thread that waits for its next request cannot.
#[derive(Debug, Default)]
struct Shared {
    trips: Mutex<Vec<Trip>>,
    /// When it was given its last blocks.
    used: AtomicU64,
}

/// The stashes of all threads, the bytes in them, and how often one was given blocks.
static ALL: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());
static HELD_LEN: AtomicUsize = AtomicUsize::new(0);
static CLOCK: AtomicU64 = AtomicU64::new(0);

/// What came of a look into the stash.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Served,
    /// It was there, and has been written since.
    Stale,
    Missing,
}

/// A search leaves one trip behind, a scan another.
const TRIPS_MAX: usize = 4;
/// Blocks of a trip that are kept.
const BLOCKS_MAX: usize = 64;

/// The most bytes in the stashes of all threads.
const HELD_LEN_MAX: usize = 64 << 20;

impl Default for Stash {
    fn default() -> Self {
        let shared = Arc::<Shared>::default();
        let mut all = lock(&ALL);
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(&shared));
        Self { shared }
    }
}

impl Drop for Stash {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Shared {
    fn clear(&self) {
        let trips = std::mem::take(&mut *lock(&self.trips));
        HELD_LEN.fetch_sub(len_of(&trips), Ordering::Relaxed);
    }
}

impl Stash {
    /// Keeps the blocks but the first, which was asked for.
    pub(crate) fn keep(&mut self, file: u64, mark: Mark, blocks: Blocks) {
        let left = (1..blocks.len().min(BLOCKS_MAX)).fold(0, |left, at| left | 1 << at);
        if left == 0 {
            return;
        }
        let mut trips = lock(&self.shared.trips);
        if trips.len() == TRIPS_MAX {
            let oldest = trips.remove(0);
            HELD_LEN.fetch_sub(oldest.blocks.len_bytes(), Ordering::Relaxed);
        }
        let held = HELD_LEN.fetch_add(blocks.len_bytes(), Ordering::Relaxed) + blocks.len_bytes();
        trips.push(Trip { file, mark, blocks, left });
        drop(trips);
        self.shared.used.store(CLOCK.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        if held > HELD_LEN_MAX {
            self.make_room();
        }
    }

    /// Takes blocks from the threads that have not asked for some for the longest time.
    fn make_room(&self) {
        let mut others: Vec<Arc<Shared>> = lock(&ALL).iter().filter_map(Weak::upgrade).collect();
        others.retain(|one| !Arc::ptr_eq(one, &self.shared));
        others.sort_by_key(|one| one.used.load(Ordering::Relaxed));
        for other in others {
            if HELD_LEN.load(Ordering::Relaxed) <= HELD_LEN_MAX {
                break;
            }
            other.clear();
        }
    }

    /// Copies a block, once, if it is what the file has now. With `unchecked` whatever it is.
    pub(crate) fn take(&mut self, file: u64, offset: u64, to: &mut [u8], writes: &Writes, unchecked: bool) -> Taken {
        let range = offset..offset + to.len() as u64;
        let mut trips = lock(&self.shared.trips);
        for index in (0..trips.len()).rev() {
            let trip = &mut trips[index];
            let Trip { blocks, left, .. } = trip;
            if trip.file != file {
                continue;
            }
            let wanted = |(at, (start, bytes)): &(usize, (u64, &[u8]))| {
                *at < BLOCKS_MAX && *left & 1 << at != 0 && *start == offset && bytes.len() == to.len()
            };
            let Some((at, (_, bytes))) = blocks.iter().enumerate().find(wanted) else { continue };
            let is_fresh = unchecked || writes.untouched(&range, trip.mark);
            if is_fresh {
                to.copy_from_slice(bytes);
            }
            *left &= !(1 << at);
            if *left == 0 {
                let used_up = trips.remove(index);
                HELD_LEN.fetch_sub(used_up.blocks.len_bytes(), Ordering::Relaxed);
            }
            return if is_fresh { Taken::Served } else { Taken::Stale };
        }
        Taken::Missing
    }

    pub(crate) fn clear(&mut self) {
        self.shared.clear();
    }
}

fn len_of(trips: &[Trip]) -> usize {
    trips.iter().map(|trip| trip.blocks.len_bytes()).sum()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 1 << 20;

    /// Two blocks, as a function gives them.
    fn trip() -> Blocks {
        let mut bytes = [2_u32, 0, 0, 0].map(u32::to_le_bytes).concat();
        for offset in [0_u64, LEN as u64] {
            bytes.extend([offset, (LEN / 2) as u64].map(u64::to_le_bytes).concat());
            bytes.resize(bytes.len() + LEN / 2, offset as u8);
        }
        Blocks::parse(bytes).expect("it has that form")
    }

    /// Threads that were idle kept the last blocks that they had read ahead, four MiB each, as long as they lived.
    #[test]
    fn idle_threads_lose_their_blocks_when_all_have_too_many() {
        let (writes, mut to) = (Writes::default(), vec![0; LEN / 2]);
        let mut stashes: Vec<Stash> = (0..80).map(|_| Stash::default()).collect();
        for stash in &mut stashes {
            stash.keep(1, writes.mark(), trip());
            assert!(HELD_LEN.load(Ordering::Relaxed) <= HELD_LEN_MAX);
        }
        let mut take = |stash: &mut Stash| stash.take(1, LEN as u64, &mut to, &writes, false);
        assert_eq!(take(&mut stashes[0]), Taken::Missing);
        assert_eq!(take(&mut stashes[79]), Taken::Served);
        drop(stashes);
        assert_eq!(HELD_LEN.load(Ordering::Relaxed), 0);
    }
}
