//! Whether paths are worth their time: where one block is missing in most searches, a path brings no more than a read.

use std::sync::atomic::{AtomicU32, Ordering};

/// Blocks are counted in so many parts.
const UNIT: u32 = 256;
/// Fewer than 1.15 blocks on a path: reads are as good.
const WORTH_MIN: u32 = UNIT * 115 / 100;
/// So many reads are plain then, before a path is tried again.
const REST: u32 = 512;
/// A path counts one part in so many.
const WEIGHT: u32 = 16;

/// What is known of one table.
#[derive(Debug)]
pub(crate) struct Tuner {
    /// Blocks of a path, on average.
    blocks: AtomicU32,
    resting: AtomicU32,
}

impl Default for Tuner {
    fn default() -> Self {
        Self { blocks: AtomicU32::new(4 * UNIT), resting: AtomicU32::new(0) }
    }
}

impl Tuner {
    /// Whether the next read takes a path.
    pub(crate) fn takes_path(&self) -> bool {
        let down = |left: u32| left.checked_sub(1);
        self.resting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, down).is_err()
    }

    /// A path had so many blocks.
    pub(crate) fn note(&self, blocks: usize) {
        let average = self.blocks.load(Ordering::Relaxed);
        let now = average - average / WEIGHT + (blocks as u32).min(64) * UNIT / WEIGHT;
        self.blocks.store(now, Ordering::Relaxed);
        if now < WORTH_MIN {
            self.resting.store(REST, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_one_block_end_and_are_tried_again() {
        let tuner = Tuner::default();
        let mut paths = 0;
        for _ in 0..10_000 {
            if tuner.takes_path() {
                tuner.note(1);
                paths += 1;
            }
        }
        assert!((30..120).contains(&paths), "{paths}");
        while !tuner.takes_path() {}
        (0..8).for_each(|_| tuner.note(3));
        assert!((0..100).all(|_| tuner.takes_path()), "they are worth it again");
    }
}
