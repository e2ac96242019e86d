//! A bounded set of equal buffers.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::memory::{Hugepages, Memory};
use super::{ALIGNMENT_BYTES, Buffer, kept};

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
                kept::take(len_bytes, hugepages).unwrap_or_else(|| Memory::zeroed(len_bytes, hugepages))
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
        kept::keep(std::mem::take(&mut shelf.free), self.hugepages);
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
}
