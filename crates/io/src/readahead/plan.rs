//! Which bytes go where: the arithmetic of chunks, aligned windows and buffers.

use std::ops::Range;

use crate::buffer::ALIGNMENT_BYTES;

/// A range of a file cut into chunks.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    range: Range<u64>,
    chunk_bytes: u64,
    /// Where in a buffer the aligned window of a chunk begins.
    headroom: usize,
}

/// One chunk: the bytes wanted, and the aligned window of the file that holds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) wanted: Range<u64>,
    /// The window read with `O_DIRECT`.
    pub(super) window: Range<u64>,
    pub(super) last: bool,
}

impl Plan {
    pub(super) fn new(range: Range<u64>, chunk_bytes: usize, headroom_bytes: usize) -> Self {
        Self { range, chunk_bytes: chunk_bytes as u64, headroom: headroom_bytes.next_multiple_of(ALIGNMENT_BYTES) }
    }

    pub(super) fn pieces(&self) -> u64 {
        (self.range.end - self.range.start).div_ceil(self.chunk_bytes)
    }

    pub(super) fn piece(&self, index: u64) -> Piece {
        let align = ALIGNMENT_BYTES as u64;
        let start = self.range.start + index * self.chunk_bytes;
        let end = start.saturating_add(self.chunk_bytes).min(self.range.end);
        let window = start / align * align..end.next_multiple_of(align);
        Piece { wanted: start..end, window, last: end == self.range.end }
    }

    pub(super) fn end(&self) -> u64 {
        self.range.end
    }

    /// Bytes of a buffer that holds any chunk's window behind the headroom.
    pub(super) fn buffer_bytes(&self) -> usize {
        let longest = self.chunk_bytes.min(self.range.end - self.range.start) as usize;
        self.headroom + longest.next_multiple_of(ALIGNMENT_BYTES) + ALIGNMENT_BYTES
    }

    /// Where the file's byte at `offset` lies in the buffer of a piece.
    pub(super) fn position(&self, piece: &Piece, offset: u64) -> usize {
        self.headroom + (offset - piece.window.start) as usize
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_tile_the_range_and_fit_their_buffers(
            start in 0_u64..20_000, len in 0_u64..100_000, chunk in 1_usize..30_000, headroom in 0_usize..9_000,
        ) {
            let plan = Plan::new(start..start + len, chunk, headroom);
            let mut at = start;
            for index in 0..plan.pieces() {
                let piece = plan.piece(index);
                prop_assert_eq!(piece.wanted.start, at);
                prop_assert!(piece.wanted.end > at && piece.wanted.end - at <= chunk as u64);
                prop_assert!(piece.window.start <= at && piece.window.end >= piece.wanted.end);
                prop_assert!(piece.window.start.is_multiple_of(4096) && piece.window.end.is_multiple_of(4096));
                prop_assert_eq!(plan.position(&piece, piece.window.start) % 4096, 0);
                prop_assert!(plan.position(&piece, piece.wanted.start) >= headroom);
                prop_assert!(plan.position(&piece, piece.window.end) <= plan.buffer_bytes());
                prop_assert_eq!(piece.last, index + 1 == plan.pieces());
                at = piece.wanted.end;
            }
            prop_assert_eq!(at, start + len);
        }
    }
}
