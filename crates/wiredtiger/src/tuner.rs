//! Whether paths are worth their time: where one block is missing in most searches, a path brings no more than a read. And whether
//! lookups at the server are, of which those that fall back bring nothing.

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
    /// Whether the next read takes a path, or is made by a lookup.
    pub(crate) fn is_worth(&self) -> bool {
        let down = |left: u32| left.checked_sub(1);
        self.resting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, down).is_err()
    }

    /// A path had so many blocks, or a lookup saved so many.
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
            if tuner.is_worth() {
                tuner.note(1);
                paths += 1;
            }
        }
        assert!((30..120).contains(&paths), "{paths}");
        while !tuner.is_worth() {}
        (0..8).for_each(|_| tuner.note(3));
        assert!((0..100).all(|_| tuner.is_worth()), "they are worth it again");
    }

    /// Every lookup in a table of WiredTiger 11 fell back, and was made none the less: searches took twice the trips of plain ones.
    #[test]
    fn lookups_that_fall_back_end() {
        let run = |decided: fn(usize) -> bool| {
            let (tuner, mut made) = (Tuner::default(), 0);
            for at in 0..10_000 {
                if tuner.is_worth() {
                    tuner.note(if decided(at) { 3 } else { 0 });
                    made += 1;
                }
            }
            made
        };
        assert!(run(|_| false) < 100);
        assert!(run(|at| at % 5 == 0) < 500);
        assert_eq!(run(|at| at % 2 == 0), 10_000);
    }
}
