//! One block of memory that a ring registers, and the buffers cut from it.

use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Buffer;
use super::memory::{ALIGNMENT_BYTES, Hugepages, Memory};

/// A bounded block of aligned memory, from which buffers of any power of two are cut.
///
/// [`Ring::register`](crate::ring::Ring::register) tells the kernel of it once. Reads and writes of such a ring with
/// such a buffer then spare the kernel the search for its pages. A dropped buffer goes back to the arena, and freed
/// neighbours become one again.
#[derive(Clone)]
pub struct Arena {
    shared: Arc<Shared>,
}

/// Where a buffer's memory goes back to.
pub(crate) struct Part {
    shared: Arc<Shared>,
    offset: usize,
}

struct Shared {
    memory: Memory,
    free: Mutex<Free>,
}

/// The free blocks: of each size, twice that of the one before, their offsets.
struct Free {
    by_size: Vec<Vec<usize>>,
}

impl Arena {
    /// An arena of `len_bytes`, rounded up to a power of two of at least [`ALIGNMENT_BYTES`].
    pub fn new(len_bytes: usize) -> Self {
        let len_bytes = len_bytes.max(ALIGNMENT_BYTES).next_power_of_two();
        let mut by_size = vec![Vec::new(); size_class(len_bytes) + 1];
        by_size[size_class(len_bytes)].push(0);
        let memory = Memory::zeroed(len_bytes, Hugepages::Ask);
        Self { shared: Arc::new(Shared { memory, free: Mutex::new(Free { by_size }) }) }
    }

    /// A buffer of `len` bytes, or `None` when there is no block left for it. It holds what its last user left.
    pub fn take(&self, len: usize) -> Option<Buffer> {
        let class = size_class(len.max(1).checked_next_power_of_two()?);
        let offset = self.shared.lock().take(class)?;
        let part = Part { shared: Arc::clone(&self.shared), offset };
        let start = self.shared.at(offset);
        Some(Buffer::from_arena(Memory::from_part(start, ALIGNMENT_BYTES << class, part), len))
    }

    /// Length in bytes.
    pub fn len_bytes(&self) -> usize {
        self.shared.memory.len()
    }

    /// Bytes of blocks that are not taken.
    pub fn free_bytes(&self) -> usize {
        let free = self.shared.lock();
        free.by_size.iter().enumerate().map(|(class, blocks)| blocks.len() * (ALIGNMENT_BYTES << class)).sum()
    }

    /// Where it is, for the kernel.
    pub(crate) fn address(&self) -> NonNull<u8> {
        self.shared.memory.address()
    }

    /// Whether `memory` is one of its parts.
    pub(crate) fn has(&self, memory: &Memory) -> bool {
        memory.part().is_some_and(|part| Arc::ptr_eq(&part.shared, &self.shared))
    }
}

impl Part {
    /// The memory's owner is done with it.
    pub(super) fn give_back(&self, len: usize) {
        self.shared.lock().give_back(self.offset, size_class(len));
    }
}

impl Shared {
    fn at(&self, offset: usize) -> NonNull<u8> {
        // SAFETY: offsets come from `Free`, which cuts the block of memory and nothing else.
        unsafe { self.memory.address().add(offset) }
    }

    fn lock(&self) -> MutexGuard<'_, Free> {
        // The lists are consistent between any two statements: a panic elsewhere cannot break them.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Free {
    /// Takes a block of this size, cutting a larger one if need be.
    fn take(&mut self, class: usize) -> Option<usize> {
        let from = (class..self.by_size.len()).find(|&from| !self.by_size[from].is_empty())?;
        let offset = self.by_size[from].pop()?;
        for half in class..from {
            self.by_size[half].push(offset + (ALIGNMENT_BYTES << half));
        }
        Some(offset)
    }

    /// Takes a block back, and joins it with its other half as often as that is free.
    fn give_back(&mut self, mut offset: usize, mut class: usize) {
        while class + 1 < self.by_size.len() {
            let other = offset ^ (ALIGNMENT_BYTES << class);
            let Some(at) = self.by_size[class].iter().position(|&free| free == other) else { break };
            self.by_size[class].swap_remove(at);
            offset = offset.min(other);
            class += 1;
        }
        self.by_size[class].push(offset);
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("len_bytes", &self.len_bytes()).field("free_bytes", &self.free_bytes()).finish()
    }
}

fn size_class(len: usize) -> usize {
    (len.max(ALIGNMENT_BYTES) / ALIGNMENT_BYTES).trailing_zeros() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = ALIGNMENT_BYTES;

    #[test]
    fn buffers_are_cut_apart_and_grow_together_again() {
        let arena = Arena::new(16 * PAGE);
        let mut small: Vec<Buffer> = std::iter::from_fn(|| arena.take(PAGE)).collect();
        assert_eq!((small.len(), arena.free_bytes()), (16, 0));
        for (index, buffer) in small.iter_mut().enumerate() {
            assert!(buffer.is_aligned());
            buffer.fill(index as u8);
        }
        assert!(small.iter().enumerate().all(|(index, buffer)| buffer.iter().all(|&byte| byte == index as u8)));
        // Every second one: no two neighbours are free.
        let kept: Vec<Buffer> = small.into_iter().enumerate().filter(|(at, _)| at % 2 == 1).map(|(_, it)| it).collect();
        assert!(arena.free_bytes() == 8 * PAGE && arena.take(2 * PAGE).is_none());
        drop(kept);
        let all = arena.take(16 * PAGE).expect("all halves have found each other");
        assert!(arena.take(1).is_none());
        drop(all);
        assert_eq!(arena.free_bytes(), 16 * PAGE);
    }

    #[test]
    fn odd_lengths_take_the_next_power_of_two_and_too_long_ones_nothing() {
        let arena = Arena::new(8 * PAGE);
        let buffer = arena.take(3 * PAGE - 1).unwrap();
        assert_eq!((buffer.len(), buffer.capacity(), arena.free_bytes()), (3 * PAGE - 1, 4 * PAGE, 4 * PAGE));
        assert!(arena.take(8 * PAGE).is_none() && arena.take(usize::MAX).is_none());
        assert_eq!(arena.take(0).unwrap().capacity(), PAGE);
    }

    #[test]
    fn a_buffer_outlives_its_arena_and_knows_it() {
        let (arena, other) = (Arena::new(PAGE), Arena::new(PAGE));
        let mut buffer = arena.take(PAGE).unwrap();
        assert!(buffer.is_of(&arena) && !buffer.is_of(&other) && !Buffer::zeroed(PAGE).is_of(&arena));
        drop(arena);
        buffer[PAGE - 1] = 7;
        assert_eq!(buffer[PAGE - 1], 7);
    }
}
