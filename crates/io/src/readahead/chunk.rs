//! A chunk: bytes of a file in a buffer that goes back into its pool.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use super::control::Control;
use crate::buffer::Buffer;

/// Consecutive bytes of a file, in a buffer that is used again after this is dropped.
pub struct Chunk {
    /// `None` only while it is being dropped.
    buffer: Option<Buffer>,
    data: Range<usize>,
    offset: u64,
    last: bool,
    control: Arc<Control>,
}

impl Chunk {
    pub(super) fn new(buffer: Buffer, data: Range<usize>, offset: u64, last: bool, control: &Arc<Control>) -> Self {
        Self { buffer: Some(buffer), data, offset, last, control: Arc::clone(control) }
    }

    /// Position of the chunk's first byte in the file.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether the range ends with this chunk.
    pub fn is_last(&self) -> bool {
        self.last
    }

    /// Bytes that [`append`](Self::append) can still take.
    pub fn tailroom_bytes(&self) -> usize {
        self.buffer.as_ref().expect("present until dropped").len() - self.data.end
    }

    /// Puts bytes directly behind the chunk's own, so that a record that ends in the next chunk is contiguous. Returns
    /// false, and does nothing, when they exceed the tailroom.
    #[must_use = "bytes that do not fit are not appended"]
    pub fn append(&mut self, bytes: &[u8]) -> bool {
        let (start, end) = (self.data.end, self.data.end + bytes.len());
        let buffer = self.buffer.as_mut().expect("present until dropped");
        let Some(room) = buffer.get_mut(start..end) else { return false };
        room.copy_from_slice(bytes);
        self.data.end = end;
        true
    }
}

impl Deref for Chunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer.as_ref().expect("present until dropped")[self.data.clone()]
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // First into the pool, then the news of it.
        self.buffer = None;
        self.control.wake();
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunk").field("offset", &self.offset).field("len", &self.data.len()).finish_non_exhaustive()
    }
}
