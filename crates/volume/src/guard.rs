//! Guards that keep a block whole while it is read and written at once.
//!
//! NVMe promises that a write of one logical block is atomic: a read of that block sees it before or after, never
//! half of it (NVM Command Set 2.1.4, "Atomic Operations"). Media do not promise it: memory is copied byte by byte,
//! and a file goes through pages. So an access holds its range, shared for reads and alone for writes.
//!
//! Ranges are held by 4-KiB pages, and pages share a fixed table of counters: distant pages may collide, which costs a
//! wait and nothing else. Nobody sleeps here: a caller that cannot have a range asks again later, when [`releases`] have been counted.
//!
//! **Turns.** A writer that waits keeps further readers out, or readers that follow each other would keep it out for ever. Readers that
//! have waited for a millisecond come before all writers, or writers would do the same to them. A writer that asks for the first time
//! comes behind those that wait, or one host's new writes would be in front of another's for ever.

use std::ops::Range;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

/// The pages of one volume that are being read or written.
#[derive(Debug)]
pub struct RangeGuards {
    counters: Box<[AtomicU32]>,
    /// Since when, and until when, a reader of some page has asked in vain, as [`Asked`].
    asked: Box<[AtomicU64]>,
}

/// When readers were refused, in microseconds since the process began to count: first and last, 32 bits each. Nobody waits: 0.
#[derive(Clone, Copy)]
struct Asked {
    first_us: u32,
    last_us: u32,
}

/// How a range is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Together with other readers.
    Shared,
    /// Alone.
    Exclusive,
}

/// Who asks for a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// A caller that has another way if it is refused: it waits for nothing, and leaves no trace.
    Once,
    /// One that will ask [`Again`](Self::Again) if it is refused, until it succeeds, or [gives up](RangeGuards::give_up).
    First,
    /// One that was refused before, and waits.
    Again,
}

impl RangeGuards {
    /// Holds nothing.
    pub fn new() -> Self {
        let counters = (0..COUNTERS).map(|_| AtomicU32::new(0)).collect();
        Self { counters, asked: (0..COUNTERS).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Holds the pages of `range`, all or none. A writer that is refused, and waits, keeps further readers out until it
    /// has had its turn.
    #[must_use]
    pub fn try_hold(&self, range: Range<u64>, mode: Mode, asks: Asks) -> bool {
        self.try_hold_at(range, mode, asks, now_us)
    }

    fn try_hold_at(&self, range: Range<u64>, mode: Mode, asks: Asks, now_us: impl Fn() -> u32) -> bool {
        let counters = counters(range);
        for (held, index) in counters.clone().enumerate() {
            if !self.try_hold_one(index, mode, asks, &now_us) {
                counters.clone().take(held).for_each(|index| self.release_one(index, mode));
                if asks != Asks::Once {
                    self.note_refused(counters, mode, now_us());
                }
                return false;
            }
        }
        if mode == Mode::Shared {
            counters
                .filter(|index| self.asked[*index].load(Ordering::Relaxed) != 0)
                .for_each(|index| self.asked[index].store(0, Ordering::Relaxed));
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

    fn try_hold_one(&self, index: usize, mode: Mode, asks: Asks, now_us: &impl Fn() -> u32) -> bool {
        let counter = &self.counters[index];
        let mut seen = counter.load(Ordering::Relaxed);
        // What keeps a writer out.
        let others = if asks == Asks::Again { !WRITER_WAITS } else { u32::MAX };
        loop {
            let wanted = match mode {
                Mode::Shared if seen & (WRITER | WRITER_WAITS) == 0 => seen + 1,
                Mode::Shared if seen & WRITER == 0 && self.is_readers_turn(index, now_us) => seen + 1,
                Mode::Exclusive if seen & others == 0 && !self.is_readers_turn(index, now_us) => WRITER,
                _ => return false,
            };
            match counter.compare_exchange_weak(seen, wanted, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
    }

    /// Whether readers have waited for long, and still do: one that went away asks no more.
    fn is_readers_turn(&self, index: usize, now_us: &impl Fn() -> u32) -> bool {
        let Some(asked) = Asked::from_bits(self.asked[index].load(Ordering::Relaxed)) else { return false };
        let now_us = now_us();
        now_us.wrapping_sub(asked.first_us) >= READERS_WAIT_US && now_us.wrapping_sub(asked.last_us) < READER_GONE_US
    }

    /// Marks all pages of a range for one that waits for it: those that it could have now are others' before the rest is free.
    fn note_refused(&self, counters: impl Iterator<Item = usize>, mode: Mode, now_us: u32) {
        for index in counters {
            match mode {
                Mode::Shared => self.note_reader(index, now_us),
                Mode::Exclusive => drop(self.counters[index].fetch_or(WRITER_WAITS, Ordering::Relaxed)),
            }
        }
    }

    fn note_reader(&self, index: usize, now_us: u32) {
        let before = Asked::from_bits(self.asked[index].load(Ordering::Relaxed));
        let waits = before.filter(|before| now_us.wrapping_sub(before.last_us) < READER_GONE_US);
        let asked = Asked { first_us: waits.map_or(now_us, |before| before.first_us), last_us: now_us };
        self.asked[index].store(asked.bits(), Ordering::Relaxed);
    }

    fn release_one(&self, index: usize, mode: Mode) {
        let counter = &self.counters[index];
        let is_wanted = || self.asked[index].load(Ordering::Relaxed) != 0;
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
        if before & WRITER_WAITS != 0 || is_wanted() {
            RELEASES.fetch_add(1, Ordering::Release);
        }
    }
}

/// Changes when a page is released for which somebody waits, of any volume: it is of no use to ask again before.
pub fn releases() -> u64 {
    RELEASES.load(Ordering::Acquire)
}

static RELEASES: AtomicU64 = AtomicU64::new(0);

impl Asked {
    /// `None` if nobody waits.
    fn from_bits(bits: u64) -> Option<Self> {
        (bits != 0).then_some(Self { first_us: (bits >> 32) as u32, last_us: bits as u32 })
    }

    fn bits(self) -> u64 {
        // That of nobody only in the first microsecond, in which nobody has waited.
        u64::from(self.first_us) << 32 | u64::from(self.last_us)
    }
}

/// Wraps round in an hour, which all who compare it allow for.
fn now_us() -> u32 {
    static SINCE: LazyLock<Instant> = LazyLock::new(Instant::now);
    SINCE.elapsed().as_micros() as u32
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

/// Readers wait for so long while writers have their turn.
const READERS_WAIT_US: u32 = 1_000;
/// A reader that has not asked for so long waits no more. Callers ask much more often.
const READER_GONE_US: u32 = 20_000;
const PAGE_BYTES: u64 = 4096;
const COUNTERS: usize = 4096;
/// A writer holds the page.
const WRITER: u32 = 1 << 31;
/// A writer wants the page next.
const WRITER_WAITS: u32 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::Asks::{Again, First, Once};
    use super::Mode::{Exclusive, Shared};
    use super::*;

    #[test]
    fn readers_share_and_writers_do_not() {
        let guards = RangeGuards::new();
        assert!(guards.try_hold(0..4096, Shared, Again) && guards.try_hold(0..512, Shared, Again));
        assert!(!guards.try_hold(512..1024, Exclusive, Again), "512-byte blocks of one page share it");
        assert!(guards.try_hold(4096..8192, Exclusive, Again));
        assert!(!guards.try_hold(0..8192, Shared, Again), "all or none");
        guards.give_up(512..1024);
        guards.release(4096..8192, Exclusive);
        assert!(guards.try_hold(4096..8192, Exclusive, Again), "the refused reader held nothing");
    }

    #[test]
    fn a_waiting_writer_is_not_starved_and_can_give_up() {
        let guards = RangeGuards::new();
        assert!(guards.try_hold(0..4096, Shared, Again));
        assert!(!guards.try_hold(0..4096, Exclusive, Again));
        assert!(!guards.try_hold(0..4096, Shared, Again), "the writer is next");
        guards.release(0..4096, Shared);
        assert!(guards.try_hold(0..4096, Exclusive, Again));
        guards.release(0..4096, Exclusive);
        assert!(guards.try_hold(0..4096, Shared, Again));
        assert!(!guards.try_hold(0..4096, Exclusive, Again));
        guards.give_up(0..4096);
        assert!(guards.try_hold(0..4096, Shared, Again));
    }

    /// One host kept its queues full of writes of one block: each new one took the block when it was released, and the writes of another
    /// host, which had asked for it long before, waited for up to 0.7 s.
    #[test]
    fn a_new_writer_comes_behind_those_that_wait() {
        let guards = RangeGuards::new();
        assert!(guards.try_hold(0..4096, Exclusive, First));
        assert!(!guards.try_hold(0..8192, Exclusive, First), "it waits from now on");
        guards.release(0..4096, Exclusive);
        assert!(!guards.try_hold(0..4096, Exclusive, Once) && !guards.try_hold(0..4096, Exclusive, First));
        assert!(guards.try_hold(0..8192, Exclusive, Again));
        assert!(!guards.try_hold(0..4096, Exclusive, Once));
        guards.release(0..8192, Exclusive);
        assert!(guards.try_hold(0..4096, Exclusive, First), "who has another way leaves no trace");
    }

    /// One host kept four queues full of writes of one block: whenever it was asked, a writer waited, and another host's read of the
    /// block, or of any that shares its counter, got no answer for seconds.
    #[test]
    fn readers_have_turns_however_many_writers_there_are() {
        let guards = RangeGuards::new();
        let (page, far) = (0..4096, 0..8192);
        let ask = |range: &Range<u64>, mode, now_us: u32| guards.try_hold_at(range.clone(), mode, Again, || now_us);
        let start = u32::MAX - 500;
        let at = |us: u32| start.wrapping_add(us);
        assert!(ask(&page, Exclusive, at(0)));
        assert!(!ask(&page, Exclusive, at(1)), "the next one waits");
        // It asks several times in a microsecond, and waits all the same.
        for us in (2..900).step_by(99) {
            assert!(!ask(&page, Shared, at(us)) && !ask(&far, Shared, at(us)));
        }
        guards.release(page.clone(), Exclusive);
        assert!(ask(&page, Exclusive, at(901)), "writers have their turn");
        assert!(!ask(&page, Shared, at(1_000)));
        guards.release(page.clone(), Exclusive);
        assert!(!ask(&page, Exclusive, at(1_100)), "and then readers");
        assert!(ask(&page, Shared, at(1_101)));
        assert!(!ask(&page, Shared, at(1_102)), "one after the other, a writer comes between");
        guards.release(page.clone(), Shared);
        assert!(ask(&page, Exclusive, at(1_103)));
        guards.release(page.clone(), Exclusive);
        // One that waited and went away keeps nobody out.
        assert!(ask(&page, Exclusive, at(30_000)));
        assert!(!ask(&page, Shared, at(30_001)) && !ask(&page, Shared, at(33_000)));
        guards.release(page.clone(), Exclusive);
        assert!(!ask(&page, Exclusive, at(33_001)));
        assert!(ask(&page, Exclusive, at(33_001 + READER_GONE_US)));
    }

    /// Two writes under way on each of some pages kept a host for a minute from a read of all of them: it waited for one page at a time, and
    /// lost its turn at those that it could have had.
    #[test]
    fn an_access_of_many_pages_has_its_turn_beside_those_of_single_pages() {
        for mode in [Shared, Exclusive] {
            let guards = RangeGuards::new();
            let pages: Vec<Range<u64>> = (0..8).map(|page| page * 4096..(page + 1) * 4096).collect();
            let ask = |range: &Range<u64>, mode, asks, us: u32| guards.try_hold_at(range.clone(), mode, asks, || us);
            assert!(pages.iter().all(|page| ask(page, Exclusive, First, 0)));
            assert!(!ask(&(0..32_768), mode, First, 1));
            assert!(!ask(&(0..32_768), mode, Again, 2_000));
            for (us, page) in (2_001..).zip(&pages) {
                guards.release(page.clone(), Exclusive);
                assert!(!ask(page, Exclusive, First, us), "a new write comes before it");
            }
            assert!(ask(&(0..32_768), mode, Again, 2_010));
        }
    }

    #[test]
    fn releases_count_where_somebody_waits() {
        let guards = RangeGuards::new();
        assert!(guards.try_hold(0..4096, Exclusive, Again) && !guards.try_hold(0..4096, Shared, Again));
        let before = releases();
        guards.release(0..4096, Exclusive);
        assert!(releases() > before);
    }

    #[test]
    fn a_range_longer_than_the_table_holds_everything_once() {
        let guards = RangeGuards::new();
        let all = 0..(1 << 40);
        assert!(guards.try_hold(all.clone(), Exclusive, Again));
        assert!(!guards.try_hold(1 << 30..(1 << 30) + 1, Shared, Again));
        guards.release(all.clone(), Exclusive);
        assert!(guards.try_hold(7..7, Exclusive, Again), "an empty range holds nothing");
        assert!(guards.try_hold(all, Shared, Again));
    }

    #[test]
    fn two_threads_never_write_one_page_at_once() {
        let guards = RangeGuards::new();
        let inside = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        while !guards.try_hold(0..4096, Exclusive, Again) {
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
