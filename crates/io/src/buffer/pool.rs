//! A bounded set of equal buffers.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::memory::{Hugepages, MAP_THRESHOLD_BYTES, Memory};
use super::{ALIGNMENT_BYTES, Buffer};

/// A bounded set of equal aligned buffers, shared by any number of threads.
///
/// Memory is allocated when a buffer is first needed and kept for the next user:
/// a pool never holds more than `buffers_max × len_bytes`. When the pool is gone the process keeps up to 32 MiB for pools
/// to come. A reused buffer holds the bytes that its last user left.
#[derive(Clone)]
pub struct Pool {
    home: Arc<Home>,
}

/// What a [`Pool`] holds at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolStats {
    /// Buffers taken and not yet given back.
    pub taken: usize,
    /// Buffers that have memory, taken or not.
    pub allocated: usize,
    /// The bound.
    pub buffers_max: usize,
    /// Bytes of one buffer.
    pub len_bytes: usize,
}

pub(crate) struct Home {
    len_bytes: usize,
    buffers_max: usize,
    hugepages: Hugepages,
    shelf: Mutex<Shelf>,
    returned: Condvar,
}

#[derive(Default)]
struct Shelf {
    free: Vec<Memory>,
    allocated: usize,
}

impl Pool {
    /// A pool of at most `buffers_max` buffers of `len_bytes` each (rounded up to [`ALIGNMENT_BYTES`]).
    pub fn new(buffers_max: usize, len_bytes: usize, hugepages: Hugepages) -> Self {
        let len_bytes = len_bytes.max(1).next_multiple_of(ALIGNMENT_BYTES);
        let home = Home { len_bytes, buffers_max, hugepages, shelf: Mutex::default(), returned: Condvar::new() };
        Self { home: Arc::new(home) }
    }

    /// A buffer, or `None` when all are taken.
    pub fn take(&self) -> Option<Buffer> {
        self.take_from(&mut self.home.lock())
    }

    /// A buffer; sleeps until one is given back when all are taken.
    ///
    /// # Panics
    /// If the pool was made for no buffers at all.
    pub fn take_blocking(&self) -> Buffer {
        assert!(self.home.buffers_max > 0, "a pool of no buffers can never give one");
        let mut shelf = self.home.lock();
        loop {
            if let Some(buffer) = self.take_from(&mut shelf) {
                return buffer;
            }
            shelf = self.home.returned.wait(shelf).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Frees the memory of the buffers that are not taken.
    pub fn shrink(&self) {
        let freed = {
            let mut shelf = self.home.lock();
            shelf.allocated -= shelf.free.len();
            std::mem::take(&mut shelf.free)
        };
        drop(freed);
    }

    /// What the pool holds at the moment.
    pub fn stats(&self) -> PoolStats {
        let shelf = self.home.lock();
        PoolStats {
            taken: shelf.allocated - shelf.free.len(),
            allocated: shelf.allocated,
            buffers_max: self.home.buffers_max,
            len_bytes: self.home.len_bytes,
        }
    }

    fn take_from(&self, shelf: &mut Shelf) -> Option<Buffer> {
        let memory = match shelf.free.pop() {
            Some(memory) => memory,
            None if shelf.allocated < self.home.buffers_max => {
                shelf.allocated += 1;
                let (len_bytes, hugepages) = (self.home.len_bytes, self.home.hugepages);
                take_kept(len_bytes, hugepages).unwrap_or_else(|| Memory::zeroed(len_bytes, hugepages))
            }
            None => return None,
        };
        Some(Buffer::from_pool(memory, self.home.len_bytes, Arc::clone(&self.home)))
    }
}

impl Home {
    pub(super) fn give_back(&self, memory: Memory) {
        self.lock().free.push(memory);
        self.returned.notify_one();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Shelf> {
        // A shelf is consistent between any two statements: a panic elsewhere cannot break it.
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let shelf = self.shelf.get_mut().unwrap_or_else(PoisonError::into_inner);
        keep(std::mem::take(&mut shelf.free), self.hugepages);
    }
}

// Memory of pools that are gone, for pools that come: a call's readers live for milliseconds, and to fault fresh pages in takes
// longer than to read into them. It holds what its last user left, so only pools get it: they say of all their buffers that they do.

/// Bytes that a process keeps for pools to come.
const KEPT_BYTES_MAX: usize = 32 << 20;

static KEPT: Mutex<Kept> = Mutex::new(Kept { free: VecDeque::new(), bytes: 0 });

/// The one that was used last is in front: its bytes are likely to be in the processor's caches.
struct Kept {
    free: VecDeque<(Memory, Hugepages)>,
    bytes: usize,
}

/// Memory of this size, if there is some.
fn take_kept(len: usize, hugepages: Hugepages) -> Option<Memory> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).take(len, hugepages)
}

/// Keeps memory of a pool that is gone; what was kept longest makes room.
fn keep(freed: Vec<Memory>, hugepages: Hugepages) {
    let beyond = KEPT.lock().unwrap_or_else(PoisonError::into_inner).keep(freed, hugepages);
    // To give memory back takes long, and others wait for the lock.
    drop(beyond);
}

impl Kept {
    fn take(&mut self, len: usize, hugepages: Hugepages) -> Option<Memory> {
        let at = self.free.iter().position(|(memory, how)| (memory.len(), *how) == (len, hugepages))?;
        let (memory, _) = self.free.remove(at)?;
        self.bytes -= memory.len();
        Some(memory)
    }

    /// Says what it does not keep.
    fn keep(&mut self, freed: Vec<Memory>, hugepages: Hugepages) -> Vec<Memory> {
        // Less than that the allocator keeps itself, and what is searched here stays short.
        let (freed, mut beyond): (Vec<_>, Vec<_>) =
            freed.into_iter().partition(|memory| memory.len() >= MAP_THRESHOLD_BYTES);
        for memory in freed {
            self.bytes += memory.len();
            self.free.push_front((memory, hugepages));
        }
        while self.bytes > KEPT_BYTES_MAX
            && let Some((memory, _)) = self.free.pop_back()
        {
            self.bytes -= memory.len();
            beyond.push(memory);
        }
        beyond
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_holds_and_a_returned_buffer_is_used_again() {
        let pool = Pool::new(2, 5000, Hugepages::No);
        let (first, second) = (pool.take().unwrap(), pool.take().unwrap());
        assert_eq!(first.len(), 8192);
        assert!(first.is_aligned() && second.is_aligned());
        assert!(pool.take().is_none());
        drop(first);
        assert_eq!(pool.stats(), PoolStats { taken: 1, allocated: 2, buffers_max: 2, len_bytes: 8192 });
        let again = pool.take().unwrap();
        assert!(pool.take().is_none());
        drop((again, second));
        pool.shrink();
        assert_eq!(pool.stats().allocated, 0);
    }

    #[test]
    fn a_sleeper_gets_the_buffer_that_another_thread_gives_back() {
        let pool = Pool::new(1, 4096, Hugepages::No);
        let held = pool.take().unwrap();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| pool.take_blocking().len());
            drop(held);
            assert_eq!(sleeper.join().unwrap(), 4096);
        });
    }

    #[test]
    fn a_buffer_outlives_its_pool() {
        let pool = Pool::new(1, 4096, Hugepages::Ask);
        let mut buffer = pool.take().unwrap();
        drop(pool);
        buffer[0] = 7;
        assert_eq!(buffer[0], 7);
    }

    const LEN: usize = 1 << 20;

    fn fresh(len: usize) -> Memory {
        Memory::zeroed(len, Hugepages::No)
    }

    #[test]
    fn memory_is_had_again_by_its_size() {
        let mut kept = Kept { free: VecDeque::new(), bytes: 0 };
        let (first, second) = (fresh(LEN), fresh(2 * LEN));
        let address = second.address();
        assert!(kept.keep(vec![first, second], Hugepages::No).is_empty());
        assert!(kept.take(2 * LEN, Hugepages::Ask).is_none());
        assert!(kept.take(3 * LEN, Hugepages::No).is_none());
        assert_eq!(kept.take(2 * LEN, Hugepages::No).unwrap().address(), address);
        assert!(kept.take(2 * LEN, Hugepages::No).is_none());
        assert_eq!(kept.bytes, LEN);
    }

    #[test]
    fn what_was_kept_longest_makes_room() {
        let mut kept = Kept { free: VecDeque::new(), bytes: 0 };
        let first = fresh(LEN);
        let address = first.address();
        assert!(kept.keep(vec![first], Hugepages::No).is_empty());
        let beyond = kept.keep((0..KEPT_BYTES_MAX / LEN).map(|_| fresh(LEN)).collect(), Hugepages::No);
        assert_eq!(beyond.iter().map(Memory::address).collect::<Vec<_>>(), [address]);
        assert_eq!(kept.bytes, KEPT_BYTES_MAX);
    }

    #[test]
    fn blocks_of_another_order_are_given_back() {
        let mut kept = Kept { free: VecDeque::new(), bytes: 0 };
        assert_eq!(kept.keep(vec![fresh(KEPT_BYTES_MAX + LEN), fresh(LEN / 2)], Hugepages::No).len(), 2);
        assert_eq!(kept.bytes, 0);
    }
}
