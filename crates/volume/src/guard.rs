//! Guards that keep a block whole while it is read and written at once.
//!
//! NVMe promises that a write of one logical block is atomic: a read of that block sees it before or after, never
//! half of it (NVM Command Set 2.1.4, "Atomic Operations"). Media do not promise it: memory is copied byte by byte,
//! and a file goes through pages. So an access holds its range, shared for reads and alone for writes.
//!
//! Ranges are held by 4-KiB pages, and pages share a fixed table of counters: distant pages may collide, which costs a
//! wait and nothing else. Nobody sleeps here: a caller that cannot have a range asks again later.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// The pages of one volume that are being read or written.
#[derive(Debug)]
pub struct RangeGuards {
    counters: Box<[AtomicU32]>,
}

/// How a range is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Together with other readers.
    Shared,
    /// Alone.
    Exclusive,
}

impl RangeGuards {
    /// Holds nothing.
    pub fn new() -> Self {
        Self { counters: (0..COUNTERS).map(|_| AtomicU32::new(0)).collect() }
    }

    /// Holds the pages of `range`, all or none. A writer that is refused keeps further readers out until it
    /// has had its turn: it must ask again until it succeeds, or [`give_up`](Self::give_up).
    #[must_use]
    pub fn try_hold(&self, range: Range<u64>, mode: Mode) -> bool {
        let counters = counters(range);
        for (held, index) in counters.clone().enumerate() {
            if !self.try_hold_one(index, mode) {
                counters.take(held).for_each(|index| self.release_one(index, mode));
                return false;
            }
        }
        true
    }

    /// Lets go of what [`try_hold`](Self::try_hold) held.
    pub fn release(&self, range: Range<u64>, mode: Mode) {
        counters(range).for_each(|index| self.release_one(index, mode));
    }

    /// Stops waiting for `range` as a writer.
    pub fn give_up(&self, range: Range<u64>) {
        for index in counters(range) {
            self.counters[index].fetch_and(!WRITER_WAITS, Ordering::Relaxed);
        }
    }

    fn try_hold_one(&self, index: usize, mode: Mode) -> bool {
        let counter = &self.counters[index];
        let mut seen = counter.load(Ordering::Relaxed);
        loop {
            let wanted = match mode {
                Mode::Shared if seen & (WRITER | WRITER_WAITS) == 0 => seen + 1,
                Mode::Shared => return false,
                Mode::Exclusive if seen & !WRITER_WAITS == 0 => WRITER,
                Mode::Exclusive => {
                    counter.fetch_or(WRITER_WAITS, Ordering::Relaxed);
                    return false;
                }
            };
            match counter.compare_exchange_weak(seen, wanted, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
    }

    fn release_one(&self, index: usize, mode: Mode) {
        let counter = &self.counters[index];
        let before = match mode {
            Mode::Shared => counter.fetch_sub(1, Ordering::Release),
            Mode::Exclusive => counter.fetch_and(!WRITER, Ordering::Release),
        };
        debug_assert!(
            match mode {
                Mode::Shared => before & !(WRITER | WRITER_WAITS) > 0,
                Mode::Exclusive => before & WRITER != 0,
            },
            "only what is held is released"
        );
    }
}

impl Default for RangeGuards {
    fn default() -> Self {
        Self::new()
    }
}

/// The counters of a range, each once.
fn counters(range: Range<u64>) -> impl Iterator<Item = usize> + Clone {
    let first = range.start / PAGE_BYTES;
    let pages = match range.end {
        end if end > range.start => (end - 1) / PAGE_BYTES - first + 1,
        _ => 0,
    };
    (0..pages.min(COUNTERS as u64)).map(move |page| ((first + page) % COUNTERS as u64) as usize)
}

const PAGE_BYTES: u64 = 4096;
const COUNTERS: usize = 4096;
/// A writer holds the page.
const WRITER: u32 = 1 << 31;
/// A writer wants the page next.
const WRITER_WAITS: u32 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::Mode::{Exclusive, Shared};
    use super::*;

    #[test]
    fn readers_share_and_writers_do_not() {
        let guards = RangeGuards::new();
        assert!(guards.try_hold(0..4096, Shared) && guards.try_hold(0..512, Shared));
        assert!(!guards.try_hold(512..1024, Exclusive), "512-byte blocks of one page share it");
        assert!(guards.try_hold(4096..8192, Exclusive));
        assert!(!guards.try_hold(0..8192, Shared), "all or none");
        guards.give_up(512..1024);
        guards.release(4096..8192, Exclusive);
        assert!(guards.try_hold(4096..8192, Exclusive), "the refused reader held nothing");
    }

    #[test]
    fn a_waiting_writer_is_not_starved_and_can_give_up() {
        let guards = RangeGuards::new();
        assert!(guards.try_hold(0..4096, Shared));
        assert!(!guards.try_hold(0..4096, Exclusive));
        assert!(!guards.try_hold(0..4096, Shared), "the writer is next");
        guards.release(0..4096, Shared);
        assert!(guards.try_hold(0..4096, Exclusive));
        guards.release(0..4096, Exclusive);
        assert!(guards.try_hold(0..4096, Shared));
        assert!(!guards.try_hold(0..4096, Exclusive));
        guards.give_up(0..4096);
        assert!(guards.try_hold(0..4096, Shared));
    }

    #[test]
    fn a_range_longer_than_the_table_holds_everything_once() {
        let guards = RangeGuards::new();
        let all = 0..(1 << 40);
        assert!(guards.try_hold(all.clone(), Exclusive));
        assert!(!guards.try_hold(1 << 30..(1 << 30) + 1, Shared));
        guards.release(all.clone(), Exclusive);
        assert!(guards.try_hold(7..7, Exclusive), "an empty range holds nothing");
        assert!(guards.try_hold(all, Shared));
    }

    #[test]
    fn two_threads_never_write_one_page_at_once() {
        let guards = RangeGuards::new();
        let inside = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        while !guards.try_hold(0..4096, Exclusive) {
                            std::hint::spin_loop();
                        }
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        guards.release(0..4096, Exclusive);
                    }
                });
            }
        });
    }
}
