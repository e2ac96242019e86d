//! The last hour, as rates.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use diskside_wire::function::statistics_kind;

use crate::seen::Seen;

/// From one look to the next.
pub const PERIOD: Duration = Duration::from_secs(5);
/// An hour of them.
const SAMPLES_MAX: usize = 3600 / PERIOD.as_secs() as usize;

/// What happened between two looks, or is so at the second one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Calls of functions that ended, in a second.
    pub calls: f64,
    /// Those of them that failed.
    pub failed: f64,
    /// Bytes that hosts read of volumes and exports themselves, in a second.
    pub host_bytes: f64,
    /// Bytes that functions read, in a second.
    pub function_bytes: f64,
    /// Bytes of results that were sent, in a second.
    pub result_bytes: f64,
    /// Functions that computed.
    pub busy: f64,
    /// Calls that waited for an engine.
    pub queued: f64,
    /// Bytes that hosts made the server hold.
    pub memory_bytes: f64,
}

/// Samples of an hour, the newest last.
#[derive(Debug, Default)]
pub struct History {
    samples: VecDeque<Sample>,
    last: Option<(Instant, Totals)>,
}

#[derive(Clone, Copy, Debug)]
struct Totals {
    uptime_ms: u64,
    calls: u64,
    failed: u64,
    host_bytes: u64,
    function_bytes: u64,
    result_bytes: u64,
}

impl History {
    /// The samples, the newest last; each is [`PERIOD`] after the one before, or somewhat more.
    pub fn samples(&self) -> impl ExactSizeIterator<Item = &Sample> {
        self.samples.iter()
    }

    /// A look. One that comes too early after the last one that counted, because somebody asked, does not count.
    pub fn add(&mut self, now: Instant, seen: &Seen) {
        let totals = totals(seen);
        let Some((then, before)) = self.last else {
            self.last = Some((now, totals));
            return;
        };
        let seconds = now.saturating_duration_since(then).as_secs_f64();
        if seconds < PERIOD.as_secs_f64() * 0.9 {
            return;
        }
        self.last = Some((now, totals));
        if totals.uptime_ms < before.uptime_ms {
            // It is another server: its counters have begun again.
            return;
        }
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        let page = &seen.page;
        self.samples.push_back(Sample {
            calls: rate(totals.calls, before.calls),
            failed: rate(totals.failed, before.failed),
            host_bytes: rate(totals.host_bytes, before.host_bytes),
            function_bytes: rate(totals.function_bytes, before.function_bytes),
            result_bytes: rate(totals.result_bytes, before.result_bytes),
            busy: page.engines_busy.get().into(),
            queued: page.queued.get().into(),
            memory_bytes: (page.calls_memory.get() + page.kept_memory.get()) as f64,
        });
        if self.samples.len() > SAMPLES_MAX {
            self.samples.pop_front();
        }
    }
}

fn totals(seen: &Seen) -> Totals {
    let of = |kinds: [u8; 2]| {
        let entries = seen.entries.iter().filter(|entry| kinds.contains(&entry.kind));
        entries.map(|entry| entry.read.get() + entry.written.get()).sum()
    };
    Totals {
        uptime_ms: seen.page.uptime_ms.get(),
        calls: seen.page.succeeded.get() + seen.page.failed.get(),
        failed: seen.page.failed.get(),
        host_bytes: of([statistics_kind::VOLUME, statistics_kind::EXPORT]),
        function_bytes: of([statistics_kind::VOLUME_BY_FUNCTIONS, statistics_kind::EXPORT_BY_FUNCTIONS]),
        result_bytes: seen.page.sent.get(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskside_wire::function::StatisticsPage;

    fn seen(uptime_s: u64, calls: u64) -> Seen {
        let mut page = StatisticsPage::new();
        page.uptime_ms.set(uptime_s * 1000);
        page.succeeded.set(calls);
        Seen { page, entries: Vec::new(), inside: None }
    }

    #[test]
    fn an_hour_of_rates_is_kept_and_a_new_server_is_no_rate() {
        let (mut history, start) = (History::default(), Instant::now());
        for at in 0..2000_u64 {
            history.add(start + PERIOD * at as u32, &seen(at * 5, at * 10));
            // Somebody asks in between.
            history.add(start + PERIOD * at as u32 + Duration::from_secs(1), &seen(at * 5 + 1, at * 10 + 9));
        }
        assert_eq!(history.samples().len(), SAMPLES_MAX);
        assert!(history.samples().all(|sample| sample.calls == 2.0));
        history.add(start + PERIOD * 2000, &seen(1, 3));
        history.add(start + PERIOD * 2001, &seen(6, 8));
        assert_eq!(history.samples().last().map(|sample| sample.calls), Some(1.0));
    }
}
