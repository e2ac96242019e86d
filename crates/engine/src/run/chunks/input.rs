//! The bytes of a piece: the read buffer that holds it, or memory where it does not fit one.

use crate::call::{Call, CallError};
use crate::worker::{ChunkInfo, stopped_before};
use diskside_decompress::{ChunkCodecs, ChunkDamage, ChunkDecoder};
use diskside_io::readahead::{Chunk, ReadError};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// Bytes for the function.
pub(in super::super) enum Input {
    Read { chunk: Chunk, from: usize },
    Joined(Vec<u8>),
    Shared { bytes: Arc<[u8]>, range: Range<usize> },
    Encoded { bytes: Arc<[u8]>, codecs: Arc<ChunkCodecs> },
}

impl Input {
    /// As the function is given them; what is encoded is decoded to memory of the decoder's.
    pub(in super::super) fn decoded<'a>(
        &'a self,
        decoder: &'a mut ChunkDecoder,
        call: &Call<'_>,
        until: Option<Instant>,
        info: &ChunkInfo,
    ) -> Result<&'a [u8], CallError> {
        let Self::Encoded { bytes, codecs } = self else { return Ok(self.bytes()) };
        let place = || info.place(codecs.decoded_len());
        let mut stopped = None;
        let mut turn = |work: &mut dyn FnMut()| {
            call.in_turn(|| {
                // It may have waited long for its turn; who is not wanted any more had none.
                stopped = stopped_before(call, until, place);
                if stopped.is_none() {
                    work();
                }
            });
            stopped.is_none()
        };
        let decoded = decoder.decode(codecs, bytes, &mut turn);
        decoded.map_err(|damage| match damage {
            ChunkDamage::Stopped => stopped.unwrap_or_else(|| CallError::Cancelled { place: place() }),
            damage => {
                let error = ReadError::Damaged { path: (&*info.source).into(), how: damage.to_string() };
                CallError::Read { source_index: info.source_index, error }
            }
        })
    }

    /// As they were read.
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Read { chunk, from } => &chunk[*from..],
            Self::Joined(bytes) => bytes,
            Self::Encoded { bytes, .. } => bytes,
            Self::Shared { bytes, range } => &bytes[range.clone()],
        }
    }

    /// Bytes that the function is given.
    pub(in super::super) fn len(&self) -> usize {
        match self {
            Self::Encoded { codecs, .. } => codecs.decoded_len(),
            plain => plain.bytes().len(),
        }
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
