//! Decides which way reads go: the one that takes less time.
//!
//! Reads at the server are faster where RocksDB would read several blocks for one value, and slower where most blocks
//! are in its caches. So both are measured. While RocksDB makes the reads, the mean time of all of them is known; one
//! of some goes to the server, which shows how long such a read takes, and keys that are noted as the cache of values
//! would keep them show how many would. If these would take a tenth less time together, reads go to the server, and the
//! mean time of all of them is compared with the one that RocksDB had. After a wrong choice it tries again later, and
//! later each time.
//!
//! Where a read takes so little time that no server can be faster, most reads are passed by: they are not even counted one by one.
//!
//! No clock is read here: the caller gives times.

use crate::values;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A hash that costs next to nothing: who knows which keys have the same one can make the estimate wrong, and nothing else.
pub(crate) fn hash(key: &[u8]) -> u64 {
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let (first, last) = match (key.first_chunk::<8>(), key.last_chunk::<8>()) {
        (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
        _ => (word(key), 0),
    };
    let mixed = (first ^ last.rotate_left(32) ^ key.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 7
}

/// Which way a read goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// RocksDB makes it.
    Plain,
    /// The server, to see what that takes.
    Probe,
    /// The server.
    Server,
    /// RocksDB makes it, and nobody looks.
    Passed,
}

#[derive(Debug)]
pub(crate) struct Tuner {
    is_server: AtomicBool,
    /// Whether most reads are passed by, and how many were.
    is_fast: AtomicBool,
    passed: AtomicU64,
    reads: AtomicU64,
    /// Since the last look.
    spent_ns: AtomicU64,
    count: AtomicU64,
    seen: AtomicU64,
    seen_new: AtomicU64,
    probes: AtomicU64,
    probe_ns: AtomicU64,
    /// One of [`NOTED`] keys, as the cache of values would keep them.
    noted: Option<Cache<u64, u32, ByItself>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// When the last look was taken.
    looked: Duration,
    /// When this way was taken.
    since: Duration,
    /// Mean time of a read that RocksDB makes.
    plain_ns: f64,
    /// Part of the keys that the cache of values would not have.
    new_part: f64,
    votes: u32,
    /// Before then the other way is not taken.
    not_before: Duration,
    patience: Duration,
}

#[derive(Clone, Debug)]
struct ByItself;

impl Weighter<u64, u32> for ByItself {
    fn weight(&self, _: &u64, weight: &u32) -> u64 {
        u64::from(*weight)
    }
}

/// One of so many keys is noted.
const NOTED: u64 = 8;
/// One of so many reads is a probe: at first, until there were some, and then.
const PROBE_FIRST: u64 = 16;
const PROBES_FIRST: u64 = 32;
const PROBE: u64 = 64;
/// Reads in less time than a round trip over any network are from memory.
const FAST_NS: f64 = 15_000.0;
/// Then one of so many is looked at.
const PASSED: u32 = 32;
/// One of so many reads that RocksDB makes is timed.
const TIMED: u64 = 4;
/// One looks so often, at so many reads at least.
const LOOK: Duration = Duration::from_millis(200);
const LOOK_READS: u64 = 48;
/// The cache of values has so much time to fill.
const SETTLE: Duration = Duration::from_secs(2);
/// After so much time at the server, RocksDB's time is measured again.
const AGAIN: Duration = Duration::from_secs(120);
const AGAIN_FOR: Duration = Duration::from_millis(600);
const PATIENCE: Duration = Duration::from_secs(4);
const PATIENCE_MAX: Duration = Duration::from_secs(300);
/// What has to be gained.
const GAIN: f64 = 0.9;
const LOSS: f64 = 0.98;

thread_local! {
    static PASSED_HERE: Cell<u32> = const { Cell::new(0) };
}

impl Tuner {
    pub(crate) fn new(values_bytes: u64) -> Self {
        let noted = values_bytes / NOTED;
        Self {
            is_server: AtomicBool::new(false),
            is_fast: AtomicBool::new(false),
            passed: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            spent_ns: AtomicU64::new(0),
            count: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            seen_new: AtomicU64::new(0),
            probes: AtomicU64::new(0),
            probe_ns: AtomicU64::new(0),
            noted: (noted > 0).then(|| Cache::with_weighter((noted / 512) as usize + 16, noted, ByItself)),
            state: Mutex::new(State {
                looked: Duration::ZERO,
                since: Duration::ZERO,
                plain_ns: 0.0,
                new_part: 1.0,
                votes: 0,
                not_before: Duration::ZERO,
                patience: PATIENCE,
            }),
        }
    }

    /// Whether the next read is passed by: it touches nothing that other threads do.
    pub(crate) fn passes(&self) -> bool {
        if !self.is_fast.load(Relaxed) {
            return false;
        }
        let passed = PASSED_HERE.get() + 1;
        let passes = passed < PASSED;
        PASSED_HERE.set(if passes { passed } else { 0 });
        if !passes {
            self.passed.fetch_add(u64::from(PASSED - 1), Relaxed);
        }
        passes
    }

    /// The reads that were passed by, but for the last ones of each thread.
    pub(crate) fn passed(&self) -> u64 {
        self.passed.load(Relaxed)
    }

    /// The way of the next read, and whether it is timed.
    pub(crate) fn way(&self) -> (Way, bool) {
        if self.is_server.load(Relaxed) {
            return (Way::Server, true);
        }
        let every = if self.probes.load(Relaxed) < PROBES_FIRST { PROBE_FIRST } else { PROBE };
        let read = self.reads.fetch_add(1, Relaxed);
        if read % every == every - 1 {
            (Way::Probe, true)
        } else {
            (Way::Plain, read.is_multiple_of(TIMED) || self.is_fast.load(Relaxed))
        }
    }

    /// A read of this key, by its hash, found so many bytes.
    pub(crate) fn note(&self, hash: u64, key_len: usize, value_len: usize) {
        if !hash.is_multiple_of(NOTED) || self.is_server.load(Relaxed) {
            return;
        }
        self.seen.fetch_add(1, Relaxed);
        if self.noted.as_ref().is_none_or(|noted| noted.get(&hash).is_none()) {
            self.seen_new.fetch_add(1, Relaxed);
            if let Some(noted) = &self.noted {
                noted.insert(hash, values::weight(key_len, value_len) as u32);
            }
        }
    }

    /// The server answered a probe in so much time.
    pub(crate) fn probed(&self, took: Duration) {
        let took = took.as_nanos() as u64;
        // The mean of the first ones, and then of some of the last.
        let count = self.probes.fetch_add(1, Relaxed).min(PROBES_FIRST - 1) + 1;
        let mean = self.probe_ns.load(Relaxed);
        self.probe_ns.store(mean.saturating_add_signed((took as i64 - mean as i64) / count as i64), Relaxed);
    }

    /// So many reads, which were no probes, took so much time and ended now. While RocksDB's cache of blocks is being filled nothing is
    /// decided.
    pub(crate) fn took(&self, reads: u64, took: Duration, now: Duration, is_filling: impl FnOnce() -> bool) {
        self.spent_ns.fetch_add(took.as_nanos() as u64, Relaxed);
        let before = self.count.fetch_add(reads, Relaxed);
        if before / LOOK_READS != (before + reads) / LOOK_READS
            && let Ok(mut state) = self.state.try_lock()
            && now.saturating_sub(state.looked) >= LOOK
        {
            let mean_ns = self.spent_ns.swap(0, Relaxed) as f64 / self.count.swap(0, Relaxed).max(1) as f64;
            state.looked = now;
            self.look(&mut state, mean_ns, now, is_filling());
        }
    }

    fn look(&self, state: &mut State, mean_ns: f64, now: Duration, is_filling: bool) {
        if self.is_server.load(Relaxed) {
            if now.saturating_sub(state.since) < SETTLE {
                return;
            }
            state.votes = if mean_ns > LOSS * state.plain_ns { state.votes + 1 } else { 0 };
            let is_wrong = state.votes >= 3;
            if is_wrong || now.saturating_sub(state.since) >= AGAIN {
                // One that was right may come back at once.
                let wait = if is_wrong { state.patience } else { AGAIN_FOR };
                state.patience = if is_wrong { (2 * state.patience).min(PATIENCE_MAX) } else { PATIENCE };
                state.not_before = now + wait;
                self.turn(state, false, now);
            }
            return;
        }
        let (seen, new) = (self.seen.swap(0, Relaxed), self.seen_new.swap(0, Relaxed));
        if seen >= 16 {
            state.new_part = (state.new_part + 3.0 * new as f64 / seen as f64) / 4.0;
        }
        let before = state.plain_ns;
        state.plain_ns = if before == 0.0 { mean_ns } else { (before + mean_ns) / 2.0 };
        self.is_fast.store(!is_filling && state.plain_ns.max(mean_ns) < FAST_NS, Relaxed);
        if is_filling || now < state.not_before || self.probes.load(Relaxed) < PROBE_FIRST {
            state.votes = 0;
            return;
        }
        let server_ns = state.new_part * self.probe_ns.load(Relaxed) as f64;
        // A cache that still gets warmer makes the next ones faster.
        let is_better = server_ns < GAIN * state.plain_ns.min(mean_ns) && mean_ns > 0.9 * before;
        state.votes = if is_better { state.votes + 1 } else { 0 };
        if state.votes >= 2 {
            self.turn(state, true, now);
        }
    }

    fn turn(&self, state: &mut State, is_server: bool, now: Duration) {
        (state.votes, state.since) = (0, now);
        if !is_server {
            state.plain_ns = 0.0;
        }
        self.is_fast.store(false, Relaxed);
        self.is_server.store(is_server, Relaxed);
    }

    /// Whether reads go to the server now.
    pub(crate) fn is_server(&self) -> bool {
        self.is_server.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where all was in memory, reads were 0.88 times as many as RocksDB's own: threads took turns at three counters for each.
    #[test]
    fn reads_from_memory_are_passed_by_until_they_are_slow() {
        let tuner = Tuner::new(1 << 20);
        let mut now = Duration::ZERO;
        // So many reads, of which one takes so long; how many were passed by.
        let mut reads = |count: u32, us: u64| {
            let mut passed = 0;
            for _ in 0..count {
                let took = Duration::from_micros(us);
                now += took;
                if tuner.passes() {
                    passed += 1;
                } else if let (Way::Plain, true) = tuner.way() {
                    tuner.took(1, took, now, || false);
                }
            }
            passed
        };
        assert_eq!(reads(1000, 300), 0, "reads of a disk");
        reads(1_000_000, 2);
        let before = tuner.passed();
        let passed = reads(32_000, 2);
        assert_eq!(passed, 31_000);
        assert_eq!(tuner.passed() - before, 31_000);
        // The next ones are not in memory.
        reads(10_000, 300);
        assert_eq!(reads(1000, 300), 0);
    }

    /// What reads take here, in microseconds.
    struct World {
        plain_us: u64,
        server_us: u64,
        /// So many of 100 reads by way of the server are answered from memory.
        known_of_100: u64,
        now: Duration,
    }

    impl World {
        /// The part of reads that go to the server in so many seconds.
        fn run(&mut self, tuner: &Tuner, seconds: u64) -> f64 {
            let (mut server, mut all) = (0, 0);
            let end = self.now + Duration::from_secs(seconds);
            while self.now < end {
                all += 1;
                let hash = all * NOTED;
                let (way, is_timed) = tuner.way();
                let us = match way {
                    Way::Plain => self.plain_us,
                    Way::Probe => self.server_us,
                    Way::Server if all % 100 < self.known_of_100 => 1,
                    Way::Server => self.server_us,
                    Way::Passed => unreachable!("reads of a disk are not passed by"),
                };
                let took = Duration::from_micros(us);
                self.now += took;
                server += u64::from(way != Way::Plain);
                let hash = if all % 100 < self.known_of_100 { NOTED } else { hash };
                tuner.note(hash, 20, 100);
                match way {
                    Way::Probe => tuner.probed(took),
                    _ if !is_timed => {}
                    _ => tuner.took(1, took, self.now, || false),
                }
            }
            server as f64 / all as f64
        }
    }

    fn world(plain_us: u64, server_us: u64, known_of_100: u64) -> World {
        World { plain_us, server_us, known_of_100, now: Duration::ZERO }
    }

    #[test]
    fn the_faster_way_is_taken_and_the_slower_one_seldom_tried() {
        for (plain_us, server_us, known, is_server) in [
            (1300, 700, 0, true),
            (400, 700, 0, false),
            (100, 400, 0, false),
            // A value is less than a block: more of them are in memory.
            (160, 500, 80, true),
            (160, 500, 50, false),
        ] {
            let (tuner, mut world) = (Tuner::new(1 << 20), world(plain_us, server_us, known));
            world.run(&tuner, 5);
            assert_eq!(tuner.is_server(), is_server, "{plain_us} {server_us} {known}");
            let part = world.run(&tuner, 30);
            let expected = if is_server { 0.98..=1.0 } else { 0.0..=0.02 };
            assert!(expected.contains(&part), "{plain_us} {server_us} {known}: {part}");
        }
    }

    #[test]
    fn a_way_that_becomes_slower_is_left_and_not_soon_taken_again() {
        let (tuner, mut world) = (Tuner::new(1 << 20), world(1300, 700, 0));
        world.run(&tuner, 10);
        assert!(tuner.is_server());
        // The server is busy now.
        world.server_us = 3000;
        world.run(&tuner, 10);
        assert!(!tuner.is_server());
        assert!(world.run(&tuner, 60) < 0.05);
        // And is not any more.
        world.server_us = 600;
        world.run(&tuner, 60);
        assert!(tuner.is_server());
        // RocksDB's time is measured again now and then: here it has got the working set into memory.
        world.plain_us = 100;
        world.run(&tuner, 125);
        assert!(!tuner.is_server());
    }
}
