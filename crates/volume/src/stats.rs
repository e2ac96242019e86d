//! Counters per volume and per host.
//!
//! A reactor's counter has one writer, its thread, so that counting takes no locked instruction; readers add the reactors'
//! parts up and may see a command a moment before or after. What engines and exports' threads do is counted apart.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;

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

/// What threads that may wait do with a volume or an export: any of them counts.
#[derive(Debug, Default)]
pub struct AccessCounters {
    operations: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    busy_ns: AtomicU64,
    failed: AtomicU64,
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
}

impl AccessCounters {
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

    /// Something else than reading or writing.
    pub fn other(&self, failed: bool) {
        self.operations(1, failed);
    }

    /// How long one of them took.
    pub fn took(&self, time: Duration) {
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
        }
    }

    fn operations(&self, count: u64, failed: bool) {
        self.operations.fetch_add(count, Ordering::Relaxed);
        if failed {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

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
    }
    total
}
