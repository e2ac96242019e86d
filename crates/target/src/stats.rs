//! Counters: per volume, per host and per reactor.
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

/// What a reactor has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReactorStats {
    /// Connections that it has.
    pub connections: u64,
    /// Connections that it ever had.
    pub connections_total: u64,
    /// Rounds of its loop.
    pub turns: u64,
    /// Times it slept.
    pub sleeps: u64,
    /// System calls into its ring.
    pub enters: u64,
    /// Bytes of command data in flight.
    pub memory_in_flight_bytes: u64,
    /// Bytes of memory for command data, in flight or kept for the next command.
    pub memory_held_bytes: u64,
    /// Bytes of memory that it has registered with its ring, for files and block devices.
    pub memory_registered_bytes: u64,
    /// Bytes of write data that were received right into their place.
    pub placed_bytes: u64,
    /// Commands that waited for memory.
    pub memory_waits: u64,
    /// Commands that waited because a block was being written.
    pub block_waits: u64,
    /// Reads whose peer took too long, so that their blocks were copied and given free.
    pub stalled_reads: u64,
    /// Times that the traversals of a connection went on in the next turn, because their host had had its share of one.
    pub traversals_put_off: u64,
    /// The most work that traversals took of one turn, in units of a step, a KiB or 256 loop iterations.
    pub traversal_work_turn_max: u64,
}

/// All counters of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// By volume name.
    pub volumes: BTreeMap<String, IoStats>,
    /// By host NQN.
    pub hosts: BTreeMap<String, IoStats>,
    /// In order.
    pub reactors: Vec<ReactorStats>,
    /// Connections that were closed because there were too many.
    pub connections_refused: u64,
}

/// A number that one thread changes and any thread reads.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds; for the one thread that owns the counter.
    pub(crate) fn add(&self, n: u64) {
        self.set(self.get() + n);
    }

    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What threads that may wait do with a volume or an export: any of them counts.
#[derive(Debug, Default)]
pub(crate) struct AccessCounters {
    operations: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    busy_ns: AtomicU64,
    failed: AtomicU64,
}

/// The sums of [`AccessCounters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AccessStats {
    pub(crate) operations: u64,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) busy_us: u64,
    pub(crate) failed: u64,
}

impl AccessCounters {
    /// One read of so many bytes; `None`: it failed.
    pub(crate) fn read(&self, bytes: Option<u64>) {
        self.reads(1, bytes);
    }

    /// Some reads of so many bytes together.
    pub(crate) fn reads(&self, count: u64, bytes: Option<u64>) {
        self.operations(count, bytes.is_none());
        self.read_bytes.fetch_add(bytes.unwrap_or(0), Ordering::Relaxed);
    }

    /// A write of so many bytes, which all were written unless it `failed`.
    pub(crate) fn wrote(&self, bytes: u64, failed: bool) {
        self.operations(1, failed);
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Something else than reading or writing.
    pub(crate) fn other(&self, failed: bool) {
        self.operations(1, failed);
    }

    /// How long one of them took.
    pub(crate) fn took(&self, time: Duration) {
        self.busy_ns.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn stats(&self) -> AccessStats {
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
pub(crate) struct IoCounters {
    pub(crate) reads: Counter,
    pub(crate) read_bytes: Counter,
    pub(crate) writes: Counter,
    pub(crate) written_bytes: Counter,
    pub(crate) flushes: Counter,
    pub(crate) zeroes: Counter,
    pub(crate) errors: Counter,
    pub(crate) busy_us: Counter,
}

/// One reactor's [`ReactorStats`].
#[derive(Debug, Default)]
pub(crate) struct ReactorCounters {
    pub(crate) connections: Counter,
    pub(crate) connections_total: Counter,
    pub(crate) turns: Counter,
    pub(crate) sleeps: Counter,
    pub(crate) enters: Counter,
    pub(crate) memory_in_flight_bytes: Counter,
    pub(crate) memory_held_bytes: Counter,
    pub(crate) memory_registered_bytes: Counter,
    pub(crate) placed_bytes: Counter,
    pub(crate) memory_waits: Counter,
    pub(crate) block_waits: Counter,
    pub(crate) stalled_reads: Counter,
    pub(crate) traversals_put_off: Counter,
    pub(crate) traversal_work_turn_max: Counter,
}

impl ReactorCounters {
    pub(crate) fn stats(&self) -> ReactorStats {
        ReactorStats {
            connections: self.connections.get(),
            connections_total: self.connections_total.get(),
            turns: self.turns.get(),
            sleeps: self.sleeps.get(),
            enters: self.enters.get(),
            memory_in_flight_bytes: self.memory_in_flight_bytes.get(),
            memory_held_bytes: self.memory_held_bytes.get(),
            memory_registered_bytes: self.memory_registered_bytes.get(),
            placed_bytes: self.placed_bytes.get(),
            memory_waits: self.memory_waits.get(),
            block_waits: self.block_waits.get(),
            stalled_reads: self.stalled_reads.get(),
            traversals_put_off: self.traversals_put_off.get(),
            traversal_work_turn_max: self.traversal_work_turn_max.get(),
        }
    }
}

/// The reactors' counters by name. Locked only when a reactor meets a name for the first time, and to read.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    by_name: Mutex<BTreeMap<String, Vec<Arc<IoCounters>>>>,
}

impl Registry {
    /// New counters for one reactor under `name`.
    pub(crate) fn register(&self, name: &str) -> Arc<IoCounters> {
        let counters = Arc::new(IoCounters::default());
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        by_name.entry(name.to_owned()).or_default().push(Arc::clone(&counters));
        counters
    }

    /// The sums by name.
    pub(crate) fn stats(&self) -> BTreeMap<String, IoStats> {
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
