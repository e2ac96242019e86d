//! What was computed since the target started: totals, and by program.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use diskside_nvme::wire::function::{Outcome, StatisticsEntry, StatisticsPage, Trailer, statistics_kind};

/// Counters of the compute namespace.
#[derive(Debug)]
pub(crate) struct Statistics {
    started_at: Instant,
    pub(crate) started: AtomicU64,
    pub(crate) succeeded: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) prepared_calls: AtomicU64,
    media_read: AtomicU64,
    media_written: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) sent: AtomicU64,
    run_us: AtomicU64,
    back_edges: AtomicU64,
    programs: Mutex<BTreeMap<u16, Counters>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    calls: u64,
    failed: u64,
    read: u64,
    written: u64,
    run_us: u64,
}

impl Statistics {
    pub(crate) fn new() -> Self {
        Self {
            started_at: Instant::now(),
            started: AtomicU64::new(0),
            succeeded: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            prepared_calls: AtomicU64::new(0),
            media_read: AtomicU64::new(0),
            media_written: AtomicU64::new(0),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            run_us: AtomicU64::new(0),
            back_edges: AtomicU64::new(0),
            programs: Mutex::default(),
        }
    }

    /// A call has ended that was given, beside what it read from media, bytes of its host and kept ones.
    pub(crate) fn ended(&self, trailer: &Trailer, pind: u16, received: u64, kept: u64) {
        let ok = trailer.outcome == Outcome::Ok;
        if ok { &self.succeeded } else { &self.failed }.fetch_add(1, Ordering::Relaxed);
        self.media_read.fetch_add(trailer.media_read, Ordering::Relaxed);
        self.media_written.fetch_add(trailer.media_written, Ordering::Relaxed);
        self.received.fetch_add(received, Ordering::Relaxed);
        self.run_us.fetch_add(trailer.times.run_us.into(), Ordering::Relaxed);
        self.back_edges.fetch_add(trailer.back_edges, Ordering::Relaxed);
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        let counters = programs.entry(pind).or_default();
        counters.calls += 1;
        counters.failed += u64::from(!ok);
        counters.read += trailer.media_read + received + kept;
        counters.written += trailer.result_len + trailer.media_written;
        counters.run_us += u64::from(trailer.times.run_us);
    }

    /// The page; what is counted elsewhere is left to the caller. `name` gives a program's.
    pub(crate) fn page(&self, name: impl Fn(u16) -> String) -> (StatisticsPage, Vec<StatisticsEntry>) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut page = StatisticsPage::new();
        page.uptime_ms.set(u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX));
        page.started.set(get(&self.started));
        page.succeeded.set(get(&self.succeeded));
        page.failed.set(get(&self.failed));
        page.prepared_calls.set(get(&self.prepared_calls));
        page.media_read.set(get(&self.media_read));
        page.media_written.set(get(&self.media_written));
        page.received.set(get(&self.received));
        page.sent.set(get(&self.sent));
        page.run_us.set(get(&self.run_us));
        page.back_edges.set(get(&self.back_edges));
        let programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = programs.iter().map(|(pind, counters)| {
            let mut entry = StatisticsEntry::new(statistics_kind::PROGRAM, (*pind).into(), &name(*pind));
            entry.operations.set(counters.calls);
            entry.read.set(counters.read);
            entry.written.set(counters.written);
            entry.busy_us.set(counters.run_us);
            entry.failed.set(counters.failed);
            entry
        });
        (page, entries.collect())
    }
}
