//! Counters per volume and per host.
//!
//! A reactor's counter has one writer, its thread, so that counting takes no locked instruction; readers add the reactors'
//! parts up and may see a command a moment before or after. What engines and exports' threads do is counted apart.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use diskside_io::Errno;
use diskside_io::bytefile::Direction;
use serde::Serialize;

/// Upper bounds of the buckets in which latencies are counted, in microseconds. A last bucket has those that took longer.
pub const LATENCY_BOUNDS_US: [u64; 14] =
    [10, 25, 100, 250, 1_000, 2_500, 10_000, 25_000, 100_000, 250_000, 1_000_000, 2_500_000, 10_000_000, 60_000_000];

/// How many of something took how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LatencyStats {
    /// Of each bucket those that are in no lower one.
    pub counts: [u64; LATENCY_BOUNDS_US.len() + 1],
    /// Microseconds of all together.
    pub sum_us: u64,
}

impl LatencyStats {
    /// One took so long.
    pub fn count(&mut self, time_us: u64) {
        self.counts[bucket_of(time_us)] += 1;
        self.sum_us = self.sum_us.saturating_add(time_us);
    }

    /// All of `other` too.
    pub fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, other)| *count += other);
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
    }
}

fn bucket_of(time_us: u64) -> usize {
    LATENCY_BOUNDS_US.partition_point(|bound| *bound < time_us)
}

/// [`LatencyStats`] that any thread counts.
#[derive(Debug, Default)]
pub struct LatencyCounters {
    counts: [AtomicU64; LATENCY_BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl LatencyCounters {
    /// One took so long.
    pub fn count(&self, time: Duration) {
        let time_us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.counts[bucket_of(time_us)].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(time_us, Ordering::Relaxed);
    }

    /// The counts so far.
    pub fn stats(&self) -> LatencyStats {
        let counts = self.counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        LatencyStats { counts, sum_us: self.sum_us.load(Ordering::Relaxed) }
    }
}

/// Commands, bytes and errors of a volume or of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IoStats {
    /// Read, Verify and Compare commands that ended.
    pub reads: u64,
    /// Bytes that reads gave to hosts.
    pub read_bytes: u64,
    /// Write and Copy commands that ended.
    pub writes: u64,
    /// Bytes that writes took from hosts.
    pub written_bytes: u64,
    /// Flush commands that ended.
    pub flushes: u64,
    /// Write Zeroes and Deallocate commands that ended.
    pub zeroes: u64,
    /// Commands that ended with an error of the medium.
    pub errors: u64,
    /// Microseconds in which commands were under way, added up over the reactors: of a volume, and not where a command is
    /// no more than a copy.
    pub busy_us: u64,
    /// How long those commands took: of a volume.
    pub latency: LatencyStats,
}

/// A number that one thread changes and any thread reads.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds; for the one thread that owns the counter.
    pub fn add(&self, n: u64) {
        self.set(self.get() + n);
    }

    /// Sets it; for the one thread that owns the counter.
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Accesses of threads that may wait to a volume or an export: any of them counts.
#[derive(Debug, Default)]
pub struct AccessCounters {
    operations: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    busy_ns: AtomicU64,
    failed: AtomicU64,
    latency: LatencyCounters,
}

/// The sums of [`AccessCounters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessStats {
    /// Reads, writes and everything else.
    pub operations: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Microseconds in which operations were under way, added up over the threads.
    pub busy_us: u64,
    /// Operations that failed.
    pub failed: u64,
    /// How long operations took.
    pub latency: LatencyStats,
}

impl AccessCounters {
    /// A read or a write that moved so many bytes, and took so long.
    pub fn ended(&self, direction: Direction, result: Result<u64, Errno>, took: Duration) {
        self.took(took);
        match direction {
            Direction::Read => self.read(result.ok()),
            Direction::Write => self.wrote(result.unwrap_or(0), result.is_err()),
        }
    }

    /// One read of so many bytes; `None`: it failed.
    pub fn read(&self, bytes: Option<u64>) {
        self.reads(1, bytes);
    }

    /// Some reads of so many bytes together.
    pub fn reads(&self, count: u64, bytes: Option<u64>) {
        self.operations(count, bytes.is_none());
        self.read_bytes.fetch_add(bytes.unwrap_or(0), Ordering::Relaxed);
    }

    /// A write of so many bytes, which all were written unless it `failed`.
    pub fn wrote(&self, bytes: u64, failed: bool) {
        self.operations(1, failed);
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A call of a function, which read and gave so many bytes.
    pub fn called(&self, read_bytes: u64, written_bytes: u64, run_time: Duration, failed: bool) {
        self.operations(1, failed);
        self.read_bytes.fetch_add(read_bytes, Ordering::Relaxed);
        self.written_bytes.fetch_add(written_bytes, Ordering::Relaxed);
        self.took(run_time);
    }

    /// Calls of a function, which read and gave so many bytes together; how long each took is not known.
    pub fn called_often(&self, calls: u64, failed: u64, read_bytes: u64, written_bytes: u64) {
        self.operations.fetch_add(calls, Ordering::Relaxed);
        self.failed.fetch_add(failed, Ordering::Relaxed);
        self.read_bytes.fetch_add(read_bytes, Ordering::Relaxed);
        self.written_bytes.fetch_add(written_bytes, Ordering::Relaxed);
    }

    /// Something else than reading or writing.
    pub fn other(&self, failed: bool) {
        self.operations(1, failed);
    }

    /// How long one of them took.
    pub fn took(&self, time: Duration) {
        self.latency.count(time);
        self.busy_ns.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The sums so far.
    pub fn stats(&self) -> AccessStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        AccessStats {
            operations: get(&self.operations),
            read_bytes: get(&self.read_bytes),
            written_bytes: get(&self.written_bytes),
            busy_us: get(&self.busy_ns) / 1000,
            failed: get(&self.failed),
            latency: self.latency.stats(),
        }
    }

    fn operations(&self, count: u64, failed: bool) {
        self.operations.fetch_add(count, Ordering::Relaxed);
        if failed {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Accesses of hosts, by their names. These come from peers: past a bound hosts share one, `(others)`.
#[derive(Debug, Default)]
pub struct AccessesByHost {
    by_name: Mutex<BTreeMap<String, Arc<AccessCounters>>>,
}

impl AccessesByHost {
    /// The counters of a host, which stay when it goes.
    pub fn of(&self, nqn: &str) -> Arc<AccessCounters> {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = by_name.len() < HOSTS_MAX || by_name.contains_key(nqn);
        Arc::clone(by_name.entry(if has_room { nqn } else { OTHER_HOSTS }.to_owned()).or_default())
    }

    /// The sums of those that did anything.
    pub fn stats(&self) -> BTreeMap<String, AccessStats> {
        let by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        let stats = by_name.iter().map(|(name, counters)| (name.clone(), counters.stats()));
        stats.filter(|(_, stats)| stats.operations > 0).collect()
    }
}

/// Hosts that are counted by name.
pub const HOSTS_MAX: usize = 1024;
/// What those beyond are called together.
pub const OTHER_HOSTS: &str = "(others)";

/// One reactor's part of an [`IoStats`].
#[derive(Debug, Default)]
pub struct IoCounters {
    /// See [`IoStats::reads`].
    pub reads: Counter,
    /// See [`IoStats::read_bytes`].
    pub read_bytes: Counter,
    /// See [`IoStats::writes`].
    pub writes: Counter,
    /// See [`IoStats::written_bytes`].
    pub written_bytes: Counter,
    /// See [`IoStats::flushes`].
    pub flushes: Counter,
    /// See [`IoStats::zeroes`].
    pub zeroes: Counter,
    /// See [`IoStats::errors`].
    pub errors: Counter,
    /// See [`IoStats::busy_us`].
    pub busy_us: Counter,
    /// See [`IoStats::latency`].
    pub latency: LatencyCounters,
}

/// The reactors' counters by name. Locked only when a reactor meets a name for the first time, and to read.
#[derive(Debug, Default)]
pub struct Registry {
    by_name: Mutex<BTreeMap<String, Vec<Arc<IoCounters>>>>,
}

impl Registry {
    /// New counters for one reactor under `name`.
    pub fn register(&self, name: &str) -> Arc<IoCounters> {
        let counters = Arc::new(IoCounters::default());
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        by_name.entry(name.to_owned()).or_default().push(Arc::clone(&counters));
        counters
    }

    /// The sums by name.
    pub fn stats(&self) -> BTreeMap<String, IoStats> {
        let by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        by_name.iter().map(|(name, parts)| (name.clone(), sum(parts))).collect()
    }
}

fn sum(parts: &[Arc<IoCounters>]) -> IoStats {
    let mut total = IoStats::default();
    for part in parts {
        total.reads += part.reads.get();
        total.read_bytes += part.read_bytes.get();
        total.writes += part.writes.get();
        total.written_bytes += part.written_bytes.get();
        total.flushes += part.flushes.get();
        total.zeroes += part.zeroes.get();
        total.errors += part.errors.get();
        total.busy_us += part.busy_us.get();
        total.latency.add(&part.latency.stats());
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let counters = LatencyCounters::default();
        for us in [0, 10, 11, 60_000_000, 60_000_001] {
            counters.count(Duration::from_micros(us));
        }
        let stats = counters.stats();
        assert_eq!((stats.counts[0], stats.counts[1], stats.counts[13], stats.counts[14]), (2, 1, 1, 1));
        assert_eq!(stats.counts.iter().sum::<u64>(), 5);
        assert_eq!(stats.sum_us, 120_000_022);
    }
}
