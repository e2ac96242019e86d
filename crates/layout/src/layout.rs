//! A file's extents, and what has to be read from the volume for a range of the file.

use std::ops::Range;

use diskside_sys::extent::{Extent, ExtentFlags};

use crate::place::Place;
use crate::reason::{Reason, Refusal};

/// Where a file's bytes are on its volume, for as long as a generation lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Which period of the file this is for: another one when the file may have changed.
    pub generation: u64,
    /// Length of the file in bytes.
    pub len: u64,
    /// The range for which it is known. Outside nothing is known.
    pub range: Range<u64>,
    /// Runs of bytes on the volume, in the order of the file, not overlapping. What they do not cover reads as zeroes.
    pub runs: Vec<Run>,
}

/// Bytes of a file that lie in one piece on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First byte in the file.
    pub logical: u64,
    /// First byte on the volume.
    pub physical: u64,
    /// Length in bytes.
    pub len: u64,
}

/// A part of a range: bytes of the volume, or zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First byte in the file.
    pub logical: u64,
    /// Length in bytes.
    pub len: u64,
    /// First byte on the volume; `None` for zeroes.
    pub physical: Option<u64>,
}

/// A read of whole blocks, of which some bytes are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockRead {
    /// First byte on the volume, a multiple of the block length.
    pub physical: u64,
    /// Length in bytes, a multiple of the block length.
    pub len: u64,
    /// Which of the bytes read are wanted.
    pub wanted: Range<usize>,
    /// Where they go, in a buffer for the range that was asked for.
    pub at: usize,
}

/// Flags of extents whose bytes are not where the file system says they are, or not as they are.
const NOT_READABLE: ExtentFlags = ExtentFlags::from_bits(
    ExtentFlags::UNKNOWN.bits()
        | ExtentFlags::DELALLOC.bits()
        | ExtentFlags::ENCODED.bits()
        | ExtentFlags::DATA_ENCRYPTED.bits()
        | ExtentFlags::NOT_ALIGNED.bits()
        | ExtentFlags::DATA_INLINE.bits()
        | ExtentFlags::DATA_TAIL.bits(),
);

impl Layout {
    /// Takes what the file system says of `range` in a file of `len` bytes.
    ///
    /// # Errors
    /// [`Reason::Extent`] for extents that cannot be read in place or make no sense, [`Reason::OutOfDevice`] for those
    /// outside of the place.
    pub fn new(
        generation: u64,
        len: u64,
        range: Range<u64>,
        extents: &[Extent],
        place: &Place,
    ) -> Result<Self, Refusal> {
        let mut runs: Vec<Run> = Vec::with_capacity(extents.len());
        let mut done = 0;
        for extent in extents {
            if extent.flags.intersects(NOT_READABLE) {
                return Err(Refusal::new(Reason::Extent, format!("{} at byte {}", extent.flags, extent.logical)));
            }
            let block_len = u64::from(place.block_len.max(1));
            let fields = [extent.logical, extent.physical, extent.len];
            let ends = (extent.logical.checked_add(extent.len), extent.physical.checked_add(extent.len));
            let (Some(logical_end), Some(physical_end)) = ends else {
                return Err(Refusal::new(Reason::Extent, format!("{extent:?} has no end")));
            };
            if extent.logical < done || fields.iter().any(|field| field % block_len != 0) {
                return Err(Refusal::new(Reason::Extent, format!("{extent:?} with blocks of {block_len} bytes")));
            }
            done = logical_end;
            if extent.flags.contains(ExtentFlags::UNWRITTEN) {
                continue;
            }
            if physical_end > place.len || place.offset.checked_add(place.len).is_none() {
                return Err(Refusal::new(Reason::OutOfDevice, format!("{extent:?}, {} bytes of device", place.len)));
            }
            // Past the end of the file the blocks hold what they held before.
            let inside = len.saturating_sub(extent.logical).min(extent.len);
            let run = Run { logical: extent.logical, physical: place.offset + extent.physical, len: inside };
            match runs.last_mut() {
                _ if inside == 0 => {}
                Some(last) if last.logical + last.len == run.logical && last.physical + last.len == run.physical => {
                    last.len += run.len;
                }
                _ => runs.push(run),
            }
        }
        Ok(Self { generation, len, range, runs })
    }

    /// Forgets where bytes before `start` are.
    pub(crate) fn cut_before(&mut self, start: u64) {
        self.runs.retain(|run| run.logical + run.len > start);
        if let Some(first) = self.runs.first_mut() {
            let skip = start.saturating_sub(first.logical);
            *first = Run { logical: first.logical + skip, physical: first.physical + skip, len: first.len - skip };
        }
    }

    /// Whether everything in `range` that the file has is known.
    #[must_use]
    pub fn covers(&self, range: &Range<u64>) -> bool {
        self.range.start <= range.start && range.end.min(self.len) <= self.range.end
    }

    /// The pieces of a range, in order and without a gap; the range ends with the file.
    #[must_use]
    pub fn pieces(&self, range: Range<u64>) -> Vec<Piece> {
        debug_assert!(self.covers(&range), "{range:?} is outside of {:?}", self.range);
        let end = range.end.min(self.len);
        let mut at = range.start;
        let mut pieces = Vec::new();
        let first = self.runs.partition_point(|run| run.logical + run.len <= at);
        for run in &self.runs[first..] {
            if run.logical >= end {
                break;
            }
            if at < run.logical {
                pieces.push(Piece { logical: at, len: run.logical - at, physical: None });
                at = run.logical;
            }
            let skip = at - run.logical;
            let len = (run.len - skip).min(end - at);
            pieces.push(Piece { logical: at, len, physical: Some(run.physical + skip) });
            at += len;
        }
        if at < end {
            pieces.push(Piece { logical: at, len: end - at, physical: None });
        }
        pieces
    }

    /// The reads of whole blocks that bring a range; what they leave out is zeroes.
    #[must_use]
    pub fn reads(&self, range: Range<u64>, block_len: u32) -> Vec<BlockRead> {
        let (block_len, start) = (u64::from(block_len), range.start);
        let read = |piece: Piece| {
            let physical = piece.physical?;
            let first = physical / block_len * block_len;
            let skip = (physical - first) as usize;
            Some(BlockRead {
                physical: first,
                len: (physical + piece.len).next_multiple_of(block_len) - first,
                wanted: skip..skip + piece.len as usize,
                at: (piece.logical - start) as usize,
            })
        };
        self.pieces(range).into_iter().filter_map(read).collect()
    }
}
