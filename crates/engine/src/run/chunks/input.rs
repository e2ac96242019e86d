//! The bytes of a piece: the read buffer that holds it, or memory where it does not fit one.

use diskside_io::readahead::Chunk;
use std::ops::Range;
use std::sync::Arc;

/// Bytes for the function.
pub(in super::super) enum Input {
    Read { chunk: Chunk, from: usize },
    Joined(Vec<u8>),
    Shared { bytes: Arc<[u8]>, range: Range<usize> },
}

impl Input {
    pub(in super::super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Read { chunk, from } => &chunk[*from..],
            Self::Joined(bytes) => bytes,
            Self::Shared { bytes, range } => &bytes[range.clone()],
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Puts bytes behind its own. A piece that outgrows its buffer moves to memory, with room for `capacity` bytes.
    pub(super) fn append(&mut self, more: &[u8], capacity: usize) {
        if let Self::Read { chunk, .. } = self
            && chunk.append(more)
        {
            return;
        }
        let mut bytes = match std::mem::replace(self, Self::Joined(Vec::new())) {
            Self::Joined(bytes) => bytes,
            other => {
                let mut bytes = Vec::with_capacity(capacity.max(other.len() + more.len()));
                bytes.extend_from_slice(other.bytes());
                bytes
            }
        };
        if bytes.capacity() < bytes.len() + more.len() {
            bytes.reserve_exact(capacity.saturating_sub(bytes.len()).max(more.len()));
        }
        bytes.extend_from_slice(more);
        *self = Self::Joined(bytes);
    }
}
