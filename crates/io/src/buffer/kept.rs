//! Memory of pools that are gone, for pools that come: a call's readers live for milliseconds, and to fault fresh pages in
//! takes longer than to read into them.
//!
//! It holds what its last user left, so only pools get it: they say of all their buffers that they do.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use super::memory::{Hugepages, MAP_THRESHOLD_BYTES, Memory};

/// Bytes that a process keeps for pools to come.
const KEPT_BYTES_MAX: usize = 32 << 20;

static KEPT: Mutex<Kept> = Mutex::new(Kept { free: VecDeque::new(), bytes: 0 });

/// The one that was used last is in front: its bytes are likely to be in the processor's caches.
struct Kept {
    free: VecDeque<(Memory, Hugepages)>,
    bytes: usize,
}

/// Memory of this size, if there is some.
pub(super) fn take(len: usize, hugepages: Hugepages) -> Option<Memory> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).take(len, hugepages)
}

/// Keeps memory of a pool that is gone; what was kept longest makes room.
pub(super) fn keep(freed: Vec<Memory>, hugepages: Hugepages) {
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
