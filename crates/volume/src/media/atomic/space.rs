//! Space for pages, reserved before the journal has them: a write in the journal that finds no room in its place could be neither ended nor
//! taken back.

use std::collections::HashSet;
use std::ops::Range;

use diskside_io::Errno;

use crate::medium::Medium;

/// Space is reserved in pieces of so many bytes, so that an image without holes costs a look at each once.
const PIECE_LEN: u64 = 64 << 10;

/// The pieces that are known to have space.
#[derive(Debug, Default)]
pub(super) struct Space {
    pieces: HashSet<u64>,
}

impl Space {
    /// Makes sure that the range has space.
    pub(super) fn reserve(&mut self, medium: &dyn Medium, range: &Range<u64>) -> Result<(), Errno> {
        if !medium.may_lack_space() {
            return Ok(());
        }
        for piece in pieces_of(range) {
            if self.pieces.contains(&piece) {
                continue;
            }
            let whole = piece * PIECE_LEN..((piece + 1) * PIECE_LEN).min(medium.properties().len_bytes);
            if medium.reserve(whole.start, whole.end - whole.start).is_ok() {
                self.pieces.insert(piece);
                continue;
            }
            // A disk that is nearly full may have room for this much.
            let part = range.start.max(whole.start)..range.end.min(whole.end);
            medium.reserve(part.start, part.end - part.start)?;
        }
        Ok(())
    }

    /// The space of a range was given back.
    pub(super) fn forget(&mut self, range: &Range<u64>) {
        let pieces = pieces_of(range);
        if pieces.end - pieces.start > self.pieces.len() as u64 {
            self.pieces.retain(|piece| !pieces.contains(piece));
        } else {
            for piece in pieces {
                self.pieces.remove(&piece);
            }
        }
    }
}

fn pieces_of(range: &Range<u64>) -> Range<u64> {
    range.start / PIECE_LEN..range.end.div_ceil(PIECE_LEN)
}
