//! Which bytes go where: the arithmetic of chunks, aligned windows and buffers.

use std::ops::Range;

use super::settings::ReadAhead;
use crate::buffer::ALIGNMENT_BYTES;

/// A range of a file cut into chunks.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    range: Range<u64>,
    chunk_bytes: u64,
    /// What the first chunk has more than the others.
    lead: u64,
    /// Free bytes behind the aligned window of a chunk.
    tailroom: usize,
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
    pub(super) fn new(range: Range<u64>, how: &ReadAhead) -> Self {
        let lead = (how.lead_bytes as u64).min(range.end - range.start);
        Self { range, chunk_bytes: how.chunk_bytes as u64, lead, tailroom: how.tailroom_bytes }
    }

    pub(super) fn pieces(&self) -> u64 {
        let len = self.range.end - self.range.start;
        (len - self.lead).div_ceil(self.chunk_bytes).max(u64::from(len > 0))
    }

    pub(super) fn piece(&self, index: u64) -> Piece {
        let align = ALIGNMENT_BYTES as u64;
        let origin = self.range.start + self.lead;
        let start = if index == 0 { self.range.start } else { origin + index * self.chunk_bytes };
        let end = origin.saturating_add((index + 1).saturating_mul(self.chunk_bytes)).min(self.range.end);
        let window = start / align * align..end.next_multiple_of(align);
        Piece { wanted: start..end, window, last: end == self.range.end }
    }

    /// Bytes of a buffer that holds any chunk's window, and has the tailroom behind it.
    pub(super) fn buffer_bytes(&self) -> usize {
        let longest = self.chunk_bytes.saturating_add(self.lead).min(self.range.end - self.range.start) as usize;
        longest.next_multiple_of(ALIGNMENT_BYTES) + ALIGNMENT_BYTES + self.tailroom
    }

    /// Where the file's byte at `offset` lies in the buffer of a piece.
    pub(super) fn position(piece: &Piece, offset: u64) -> usize {
        (offset - piece.window.start) as usize
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_tile_the_range_and_fit_their_buffers(
            start in 0_u64..20_000, len in 0_u64..100_000, chunk in 1_usize..30_000, lead in 0_usize..2,
            tailroom in 0_usize..9_000,
        ) {
            let how = ReadAhead { chunk_bytes: chunk, lead_bytes: lead, tailroom_bytes: tailroom, ..ReadAhead::default() };
            let plan = Plan::new(start..start + len, &how);
            let mut at = start;
            for index in 0..plan.pieces() {
                let piece = plan.piece(index);
                prop_assert_eq!(piece.wanted.start, at);
                let more = if index == 0 { lead } else { 0 };
                prop_assert!(piece.wanted.end > at && piece.wanted.end - at <= (chunk + more) as u64);
                prop_assert!(piece.last || piece.wanted.end == start + lead as u64 + (index + 1) * chunk as u64);
                prop_assert!(piece.window.start <= at && piece.window.end >= piece.wanted.end);
                prop_assert!(piece.window.start.is_multiple_of(4096) && piece.window.end.is_multiple_of(4096));
                prop_assert_eq!(Plan::position(&piece, piece.window.start), 0);
                prop_assert!(Plan::position(&piece, piece.window.end) + tailroom <= plan.buffer_bytes());
                prop_assert_eq!(piece.last, index + 1 == plan.pieces());
                at = piece.wanted.end;
            }
            prop_assert_eq!(at, start + len);
        }
    }
}
