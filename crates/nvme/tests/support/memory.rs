//! Buffers that notice when they are used after they were released, released twice, or leaked.

use std::collections::{BTreeMap, BTreeSet};

use diskside_nvme::{BufferId, BufferPool, BufferSlice, Buffers, crc32c};

/// Buffers by handle. Handles are never used again.
#[derive(Debug, Default)]
pub struct Memory {
    buffers: BTreeMap<BufferId, Vec<u8>>,
    last: u64,
    /// The most buffers that the pool hands out at a time; `None`: no limit.
    pub pool_max: Option<usize>,
    /// No buffers for data that is still to be asked for.
    pub is_owed_enough: bool,
    from_pool: BTreeSet<BufferId>,
}

impl Memory {
    pub fn with_pool(max: usize) -> Self {
        Self { pool_max: Some(max), ..Self::default() }
    }

    /// A new buffer with these bytes.
    pub fn insert(&mut self, bytes: Vec<u8>) -> BufferId {
        self.last += 1;
        let id = BufferId(self.last);
        self.buffers.insert(id, bytes);
        id
    }

    pub fn slice(&self, slice: BufferSlice) -> &[u8] {
        let buffer = self.buffers.get(&slice.buffer).unwrap_or_else(|| panic!("{slice:?} was released"));
        &buffer[slice.offset as usize..][..slice.len as usize]
    }

    /// Takes a buffer away.
    pub fn remove(&mut self, id: BufferId) -> Vec<u8> {
        self.from_pool.remove(&id);
        self.buffers.remove(&id).unwrap_or_else(|| panic!("{id:?} was released before"))
    }

    /// Buffers of the pool that are in use.
    pub fn pool_in_use(&self) -> usize {
        self.from_pool.len()
    }

    pub fn in_use(&self) -> usize {
        self.buffers.len()
    }
}

impl Buffers for Memory {
    fn write(&mut self, buffer: BufferId, offset: u32, bytes: &[u8]) {
        let memory = self.buffers.get_mut(&buffer).unwrap_or_else(|| panic!("{buffer:?} was released"));
        memory[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn digest(&mut self, slice: BufferSlice) -> u32 {
        crc32c(self.slice(slice))
    }

    fn release(&mut self, buffer: BufferId) {
        self.remove(buffer);
    }
}

impl BufferPool for Memory {
    fn acquire(&mut self, len: u32) -> Option<BufferId> {
        if self.is_owed_enough { None } else { self.acquire_arriving(len) }
    }

    fn acquire_arriving(&mut self, len: u32) -> Option<BufferId> {
        if self.pool_max.is_some_and(|max| self.from_pool.len() >= max) {
            return None;
        }
        let id = self.insert(vec![0xee; len as usize]);
        self.from_pool.insert(id);
        Some(id)
    }
}
