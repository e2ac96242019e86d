//! Buffers for I/O: [`Buffer`] (owned, aligned), [`Pool`] (a bounded set of them), [`Arena`] (memory that a ring
//! registers) and [`SharedMemory`] (bytes that several threads and the kernel use at once).
//!
//! A `Buffer` is moved into an operation and comes back when the operation is over. Its alignment,
//! [`ALIGNMENT_BYTES`], satisfies `O_DIRECT` on every file system and device with blocks of up to 4 KiB.

mod arena;
pub(crate) mod memory;
mod pool;
mod ranges;
mod shared;

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

pub use arena::Arena;
pub use memory::{ALIGNMENT_BYTES, Hugepages};
pub use pool::{Pool, PoolStats};
pub use ranges::{RangeGuard, RangeMemory};
pub use shared::{SharedMemory, SharedSlice};

use memory::Memory;
use pool::Home;

/// An owned block of initialised bytes with a stable address.
///
/// It dereferences to its first [`len`](Self::len) bytes. Dropping a buffer that came from a
/// [`Pool`] gives it back to the pool.
pub struct Buffer {
    // Taken only by `drop` and `into_vec`.
    memory: Option<Memory>,
    len: usize,
    home: Option<Arc<Home>>,
}

impl Buffer {
    /// A new aligned buffer of `len` zero bytes.
    pub fn zeroed(len: usize) -> Self {
        Self::with_hugepages(len, Hugepages::No)
    }

    /// Like [`zeroed`](Self::zeroed), and asks the kernel for huge pages where `hugepages` says so.
    pub fn with_hugepages(len: usize, hugepages: Hugepages) -> Self {
        Self { memory: Some(Memory::zeroed(len, hugepages)), len, home: None }
    }

    /// Like [`with_hugepages`](Self::with_hugepages), for a length that somebody else chose: too much is an error.
    ///
    /// # Errors
    /// There is not so much memory.
    pub fn try_with_hugepages(len: usize, hugepages: Hugepages) -> io::Result<Self> {
        Ok(Self { memory: Some(Memory::try_zeroed(len, hugepages)?), len, home: None })
    }

    /// A new aligned buffer that holds a copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buffer = Self::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    /// Bytes in use: what the buffer dereferences to.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no byte is in use.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that the buffer can hold without a new allocation.
    pub fn capacity(&self) -> usize {
        self.memory().len()
    }

    /// Sets the bytes in use. Bytes that come into use hold what they last held (zero at first).
    ///
    /// # Panics
    /// If `len` is more than [`capacity`](Self::capacity).
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "length {len} exceeds the buffer's capacity {}", self.capacity());
        self.len = len;
    }

    /// Whether the buffer starts at a multiple of [`ALIGNMENT_BYTES`] (buffers made from a `Vec` may not).
    pub fn is_aligned(&self) -> bool {
        self.memory().address().as_ptr().addr().is_multiple_of(ALIGNMENT_BYTES)
    }

    /// The bytes in use as a vector, without a copy where the buffer was made from one.
    pub fn into_vec(mut self) -> Vec<u8> {
        if self.home.is_none()
            && let Some(memory) = self.memory.take()
        {
            match memory.into_vec() {
                Ok(mut vec) => {
                    vec.truncate(self.len);
                    return vec;
                }
                Err(memory) => self.memory = Some(memory),
            }
        }
        self.to_vec()
    }

    /// Whether its memory is part of `arena`.
    pub(crate) fn is_of(&self, arena: &Arena) -> bool {
        arena.has(self.memory())
    }

    fn from_arena(memory: Memory, len: usize) -> Self {
        Self { memory: Some(memory), len, home: None }
    }

    fn from_pool(memory: Memory, len: usize, home: Arc<Home>) -> Self {
        Self { memory: Some(memory), len, home: Some(home) }
    }

    fn memory(&self) -> &Memory {
        self.memory.as_ref().expect("a live buffer has memory")
    }
}

/// A part of a buffer, to be filled.
#[derive(Debug)]
pub struct Part {
    /// The buffer.
    pub buffer: Buffer,
    /// The part.
    pub range: Range<usize>,
}

impl Part {
    /// All of a buffer.
    pub fn whole(buffer: Buffer) -> Self {
        Self { range: 0..buffer.len(), buffer }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Whether it starts at a multiple of [`ALIGNMENT_BYTES`].
    pub fn is_aligned(&self) -> bool {
        self.buffer.is_aligned() && self.range.start.is_multiple_of(ALIGNMENT_BYTES)
    }

    /// Its bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.buffer[self.range.clone()]
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory().as_slice()[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        &mut self.memory.as_mut().expect("a live buffer has memory").as_mut_slice()[..len]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let (Some(home), Some(memory)) = (self.home.take(), self.memory.take()) {
            home.give_back(memory);
        }
    }
}

impl From<Vec<u8>> for Buffer {
    /// Takes the vector's bytes without a copy; the result may be unaligned.
    fn from(vec: Vec<u8>) -> Self {
        let len = vec.len();
        Self { memory: Some(Memory::from_vec(vec)), len, home: None }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("len", &self.len)
            .field("capacity", &self.capacity())
            .field("pooled", &self.home.is_some())
            .finish()
    }
}
