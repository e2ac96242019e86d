//! The work since the target started: totals, and by function.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use diskside_volume::stats::LatencyStats;
use diskside_wire::function::{Outcome, StatisticsEntry, StatisticsPage, Trailer, statistics_kind};

/// Functions that have counters of their own; of more, those that ran longest ago are counted together.
pub(crate) const FUNCTIONS_MAX: usize = 1024;

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
    functions: Mutex<Functions>,
}

/// Identifies a function wherever it was loaded, also after it is unloaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FunctionId<'a> {
    /// Content hash of its program.
    pub(crate) program_id: u64,
    pub(crate) name: &'a str,
}

/// Counters by function, the one that ran last at the end.
#[derive(Debug, Default)]
struct Functions {
    listed: Vec<Counted>,
    /// Those that are not listed any more.
    others: Counters,
    /// Functions that were ever listed.
    numbers: u32,
}

/// Calls that ended, together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ended {
    pub(crate) calls: u64,
    pub(crate) failed: u64,
    pub(crate) read: u64,
    pub(crate) written: u64,
    pub(crate) run_us: u64,
}

#[derive(Debug)]
struct Counted {
    number: u32,
    program_id: u64,
    name: Box<str>,
    counters: Counters,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    calls: u64,
    failed: u64,
    read: u64,
    written: u64,
    run_us: u64,
    latency: LatencyStats,
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
            functions: Mutex::default(),
        }
    }

    /// A call has ended that was given, besides what it read from media, bytes of its host and kept ones.
    pub(crate) fn ended(&self, trailer: &Trailer, function: FunctionId<'_>, received: u64, kept: u64) {
        let ok = trailer.outcome == Outcome::Ok;
        if ok { &self.succeeded } else { &self.failed }.fetch_add(1, Ordering::Relaxed);
        self.media_read.fetch_add(trailer.media_read, Ordering::Relaxed);
        self.media_written.fetch_add(trailer.media_written, Ordering::Relaxed);
        self.received.fetch_add(received, Ordering::Relaxed);
        self.run_us.fetch_add(trailer.times.run_us.into(), Ordering::Relaxed);
        self.back_edges.fetch_add(trailer.back_edges, Ordering::Relaxed);
        let mut latency = LatencyStats::default();
        latency.count(trailer.times.total_us.into());
        let call = Counters {
            calls: 1,
            failed: u64::from(!ok),
            read: trailer.media_read + received + kept,
            written: trailer.result_len + trailer.media_written,
            run_us: trailer.times.run_us.into(),
            latency,
        };
        self.functions.lock().unwrap_or_else(PoisonError::into_inner).count(function, &call);
    }

    /// Calls of a prepared request have ended. How long each took nobody looked: that would take as long as some of them.
    pub(crate) fn prepared_ended(&self, function: FunctionId<'_>, ended: &Ended) {
        let &Ended { calls, failed, read, written, run_us } = ended;
        self.prepared_calls.fetch_add(calls, Ordering::Relaxed);
        let calls = Counters { calls, failed, read, written, run_us, latency: LatencyStats::default() };
        self.functions.lock().unwrap_or_else(PoisonError::into_inner).count(function, &calls);
    }

    /// How long calls took, in all, by number of the function as in [`page`](Self::page).
    pub(crate) fn latencies(&self) -> BTreeMap<u32, LatencyStats> {
        let functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        let listed = functions.listed.iter().map(|counted| (counted.number, counted.counters.latency));
        listed.chain((functions.others.calls > 0).then_some((0, functions.others.latency))).collect()
    }

    /// The page; what is counted elsewhere is left to the caller.
    pub(crate) fn page(&self) -> (StatisticsPage, Vec<StatisticsEntry>) {
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
        (page, self.functions.lock().unwrap_or_else(PoisonError::into_inner).entries())
    }
}

impl Functions {
    fn count(&mut self, function: FunctionId<'_>, call: &Counters) {
        let same = |known: &Counted| known.program_id == function.program_id && *known.name == *function.name;
        // What ran lately is found at once.
        match self.listed.iter().rposition(same) {
            Some(at) => self.listed[at..].rotate_left(1),
            None => {
                if self.listed.len() == FUNCTIONS_MAX {
                    self.others.add(&self.listed.remove(0).counters);
                }
                self.numbers += 1;
                let (program_id, name) = (function.program_id, function.name.into());
                self.listed.push(Counted { number: self.numbers, program_id, name, counters: Counters::default() });
            }
        }
        self.listed.last_mut().expect("it was put there").counters.add(call);
    }

    /// In the order in which they ran first.
    fn entries(&self) -> Vec<StatisticsEntry> {
        let mut listed: Vec<&Counted> = self.listed.iter().collect();
        listed.sort_unstable_by_key(|counted| counted.number);
        let mut entries: Vec<StatisticsEntry> = listed.into_iter().map(Counted::entry).collect();
        if self.others.calls > 0 {
            entries.push(self.others.entry(0, 0, ""));
        }
        entries
    }
}

impl Counted {
    fn entry(&self) -> StatisticsEntry {
        self.counters.entry(self.number, self.program_id, &self.name)
    }
}

impl Counters {
    fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.failed += other.failed;
        self.read += other.read;
        self.written += other.written;
        self.run_us += other.run_us;
        self.latency.add(&other.latency);
    }

    fn entry(&self, number: u32, program_id: u64, name: &str) -> StatisticsEntry {
        let mut entry = StatisticsEntry::new(statistics_kind::FUNCTION, number, name);
        entry.operations.set(self.calls);
        entry.read.set(self.read);
        entry.written.set(self.written);
        entry.busy_us.set(self.run_us);
        entry.failed.set(self.failed);
        entry.program_id.set(program_id);
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(statistics: &Statistics, program_id: u64, name: &str, bytes: u64) {
        let trailer = Trailer { media_read: bytes, ..Trailer::new(Outcome::Ok) };
        statistics.ended(&trailer, FunctionId { program_id, name }, 0, 0);
    }

    #[test]
    fn no_more_functions_are_listed_than_the_limit_and_no_call_is_lost() {
        let statistics = Statistics::new();
        let more = 10;
        for program in 0..(FUNCTIONS_MAX + more) as u64 {
            call(&statistics, program, "f", 3);
            // It ran last, always.
            call(&statistics, 0, "f", 1);
        }
        let entries = statistics.page().1;
        assert_eq!(entries.len(), FUNCTIONS_MAX + 1);
        let found = |entry: &StatisticsEntry| (entry.program_id.get(), entry.name(), entry.operations.get());
        let all = FUNCTIONS_MAX + more;
        assert_eq!(found(&entries[0]), (0, "f".to_owned(), all as u64 + 1), "what runs stays");
        assert_eq!(found(&entries[1]), (more as u64 + 1, "f".to_owned(), 1), "those that ran longest ago went");
        assert_eq!(found(&entries[FUNCTIONS_MAX]), (0, String::new(), more as u64), "and are counted together");
        assert_eq!(entries.iter().map(|entry| entry.read.get()).sum::<u64>(), all as u64 * 4);
        let mut numbers: Vec<u32> = entries.iter().map(|entry| entry.id.get()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), entries.len(), "each has a number of its own");
    }

    #[test]
    fn functions_of_one_program_and_those_of_one_name_are_told_apart() {
        let statistics = Statistics::new();
        for (program, name) in [(1, "f"), (1, "g"), (2, "f"), (1, "f")] {
            call(&statistics, program, name, 1);
        }
        let entries = statistics.page().1;
        let found = entries.iter().map(|entry| (entry.program_id.get(), entry.name(), entry.operations.get()));
        let found: Vec<_> = found.collect();
        assert_eq!(found, [(1, "f".to_owned(), 2), (1, "g".to_owned(), 1), (2, "f".to_owned(), 1)]);
    }
}
