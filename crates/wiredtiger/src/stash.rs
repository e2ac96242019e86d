//! Blocks that were read before WiredTiger asked for them.

use crate::blocks::Blocks;
use crate::writes::{Mark, Writes};

/// Blocks of one trip, from a file of which it knows whether they have been written since.
#[derive(Debug)]
struct Trip {
    file: u64,
    mark: Mark,
    blocks: Blocks,
    /// The blocks that may be served.
    left: u64,
}

/// The trips of a thread, the newest last.
#[derive(Debug, Default)]
pub(crate) struct Stash {
    trips: Vec<Trip>,
}

/// What came of a look into the stash.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Served,
    /// It was there, and has been written since.
    Stale,
    Missing,
}

/// A search leaves one trip behind, a scan another.
const TRIPS_MAX: usize = 4;
/// Blocks of a trip that are kept.
const BLOCKS_MAX: usize = 64;

impl Stash {
    /// Keeps the blocks but the first, which was asked for.
    pub(crate) fn keep(&mut self, file: u64, mark: Mark, blocks: Blocks) {
        if self.trips.len() == TRIPS_MAX {
            self.trips.remove(0);
        }
        let left = (1..blocks.len().min(BLOCKS_MAX)).fold(0, |left, at| left | 1 << at);
        self.trips.push(Trip { file, mark, blocks, left });
    }

    /// Copies a block, once, if it is what the file has now. With `unchecked` whatever it is.
    pub(crate) fn take(&mut self, file: u64, offset: u64, to: &mut [u8], writes: &Writes, unchecked: bool) -> Taken {
        let range = offset..offset + to.len() as u64;
        for index in (0..self.trips.len()).rev() {
            let trip = &mut self.trips[index];
            let Trip { blocks, left, .. } = trip;
            if trip.file != file {
                continue;
            }
            let wanted = |(at, (start, bytes)): &(usize, (u64, &[u8]))| {
                *at < BLOCKS_MAX && *left & 1 << at != 0 && *start == offset && bytes.len() == to.len()
            };
            let Some((at, (_, bytes))) = blocks.iter().enumerate().find(wanted) else { continue };
            let is_fresh = unchecked || writes.untouched(&range, trip.mark);
            if is_fresh {
                to.copy_from_slice(bytes);
            }
            *left &= !(1 << at);
            if *left == 0 {
                self.trips.remove(index);
            }
            return if is_fresh { Taken::Served } else { Taken::Stale };
        }
        Taken::Missing
    }

    pub(crate) fn clear(&mut self) {
        self.trips.clear();
    }
}
