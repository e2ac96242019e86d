//! The metrics of what any host may ask a server for: its totals and its entries.

use diskside_wire::function::{StatisticsEntry, StatisticsPage};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::families::{BYTES, Labels, Lines, SECONDS, Value};
use crate::seen::{Disk, Held, Quota, counters, entry_name, entry_program, held, kind_name, quotas};

impl Lines {
    pub(super) fn totals(&mut self, page: &StatisticsPage) {
        self.gauge("uptime", "Time since the server started", SECONDS, page.uptime_ms.get() as f64 / 1000.0);
        self.gauge("engines", "Calls of functions that may compute at the same time", None, page.engines.get().into());
        self.gauge("engines_busy", "Calls of functions that compute now", None, page.engines_busy.get().into());
        self.gauge("calls_queued", "Calls of functions that wait for an engine", None, page.queued.get().into());
        self.gauge(
            "tags_open",
            "Requests to functions that are open: begun, and not ended",
            None,
            page.tags_open.get().into(),
        );
        self.counter("calls_started", "Calls of functions that began", None, page.started.get());
        self.counter("calls_succeeded", "Calls of functions that ended with a result", None, page.succeeded.get());
        self.counter(
            "calls_failed",
            "Calls of functions that ended without a result: failed, stopped or cancelled",
            None,
            page.failed.get(),
        );
        self.counter(
            "prepared_calls",
            "Calls of functions by requests that were prepared before",
            None,
            page.prepared_calls.get(),
        );
        self.counter("media_read", "Bytes that functions read from volumes and exports", BYTES, page.media_read.get());
        self.counter(
            "media_written",
            "Bytes that functions wrote to volumes and exports",
            BYTES,
            page.media_written.get(),
        );
        self.counter("received", "Bytes that hosts sent as input of functions", BYTES, page.received.get());
        self.counter("sent", "Bytes of results that were sent to hosts", BYTES, page.sent.get());
        self.seconds("run", "Time in which functions ran, all threads together", page.run_us.get());
        self.gauge(
            "cache",
            "Bytes of volumes that are kept in memory for later calls of functions",
            BYTES,
            page.cache_len.get() as f64,
        );
        self.gauge(
            "cache_max",
            "Bytes of volumes that may be kept in memory for later calls of functions",
            BYTES,
            page.cache_len_max.get() as f64,
        );
        self.gauge(
            "calls_memory",
            "Bytes of memory that running calls of functions may use",
            BYTES,
            page.calls_memory.get() as f64,
        );
        self.gauge(
            "kept_memory",
            "Bytes of memory that wait for calls of functions or are kept for hosts",
            BYTES,
            page.kept_memory.get() as f64,
        );
        self.gauge(
            "memory_max",
            "Bytes of memory that all hosts together may make the server hold",
            BYTES,
            page.memory_max.get() as f64,
        );
        self.counter("cache_read", "Bytes that functions read from the cache of volumes", BYTES, page.cache_read.get());
        self.counter(
            "cache_hits",
            "Blocks that functions asked for and the cache of volumes had",
            None,
            page.cache_hits.get(),
        );
        self.counter(
            "cache_misses",
            "Blocks that functions asked for and the cache of volumes did not have",
            None,
            page.cache_misses.get(),
        );
    }

    pub(super) fn entries(&mut self, entries: &[StatisticsEntry]) {
        self.held(entries);
        self.quotas(entries);
        let entries: Vec<_> = counters(entries).collect();
        let labels: Vec<Labels> = entries.iter().map(|entry| entry_labels(entry)).collect();
        let mut each = |name, help, unit, value: &dyn Fn(&StatisticsEntry) -> f64| {
            let series =
                labels.iter().zip(&entries).map(|(labels, entry)| (labels.clone(), Value::Number(value(entry))));
            self.family(name, help, unit, MetricType::Counter, series.collect());
        };
        each(
            "operations",
            "Calls of a function; commands, reads and writes of a volume or an export; pauses by a quota",
            None,
            &|entry| entry.operations.get() as f64,
        );
        each("operations_failed", "Operations that failed; of a quota, requests that it refused", None, &|entry| {
            entry.failed.get() as f64
        });
        each("operations_read", "Bytes that operations read", BYTES, &|entry| entry.read.get() as f64);
        each("operations_written", "Bytes that operations wrote", BYTES, &|entry| entry.written.get() as f64);
        each(
            "operations_busy",
            "Time that operations took; of a quota, time in which it paused requests",
            SECONDS,
            &|entry| entry.busy_us.get() as f64 / 1e6,
        );
    }

    /// The disks below volumes and exports.
    pub(super) fn disks(&mut self, disks: &[Disk]) {
        let mut each = |name, help, unit, kind, value: &dyn Fn(&Disk) -> Option<Value>| {
            let series = disks.iter().filter_map(|disk| {
                let labels = vec![("kind", disk.kind.to_owned()), ("name", disk.name.clone())];
                Some((labels, value(disk)?))
            });
            self.family(name, help, unit, kind, series.collect());
        };
        each(
            "media_oldest",
            "Time that the oldest operation has waited which the disk of a volume or an export has not answered",
            SECONDS,
            MetricType::Gauge,
            &|disk| Some(Value::Number(disk.oldest_ms as f64 / 1e3)),
        );
        each(
            "media_waiting",
            "Operations of hosts and functions that the disk of a volume or an export has not answered",
            None,
            MetricType::Gauge,
            &|disk| Some(Value::Whole(disk.waiting)),
        );
        each(
            "media_errors",
            "Operations of hosts and functions that the disk of a volume or an export failed",
            None,
            MetricType::Counter,
            &|disk| disk.errors.map(Value::Whole),
        );
    }

    /// What hosts hold in exports.
    fn held(&mut self, entries: &[StatisticsEntry]) {
        let held: Vec<Held> = held(entries).collect();
        let mut each = |name, help, unit, value: &dyn Fn(&Held) -> Option<u64>| {
            let series = held.iter().filter_map(|held| {
                let labels = vec![("host", held.host.clone()), ("export", held.export.clone())];
                Some((labels, Value::Whole(value(held)?)))
            });
            self.family(name, help, unit, MetricType::Gauge, series.collect());
        };
        each("space", "Bytes of the files of a host in an export", BYTES, &|held| Some(held.bytes));
        each("space_max", "The most that it may hold there by its quota", BYTES, &|held| held.bytes_max);
        each("files", "Files and directories of a host in an export", None, &|held| Some(held.files));
        each("files_max", "The most that it may have there by its quota", None, &|held| held.files_max);
    }

    /// The quotas of hosts, and their effects.
    fn quotas(&mut self, entries: &[StatisticsEntry]) {
        let quotas: Vec<Quota> = quotas(entries).collect();
        for (name, help, unit, kind, value) in OF_QUOTAS {
            let series = quotas.iter().filter_map(|quota| {
                let labels =
                    vec![("host", quota.host.clone()), ("id", quota.id.to_string()), ("quota", quota.quota.to_owned())];
                Some((labels, value(quota)?))
            });
            self.family(name, help, unit, kind, series.collect());
        }
    }
}

type QuotaFamily = (&'static str, &'static str, Option<&'static Unit>, MetricType, fn(&Quota) -> Option<Value>);

const OF_QUOTAS: [QuotaFamily; 6] = {
    use MetricType::{Counter, Gauge};
    [
        ("quota_max", "How much a host may take by a quota, in the unit of its setting", None, Gauge, |quota| {
            Some(Value::Whole(quota.max))
        }),
        ("quota_used", "How much of a quota a host has now; not of rates and weights", None, Gauge, |quota| {
            quota.used.map(Value::Whole)
        }),
        ("quota_refusals", "Requests of a host that a quota refused", None, Counter, |quota| {
            quota.refusals.map(Value::Whole)
        }),
        ("quota_pauses", "Times that a connection of a host waited for a rate", None, Counter, |quota| {
            quota.pauses.map(Value::Whole)
        }),
        ("quota_paused", "Time that connections of a host waited for a rate", SECONDS, Counter, |quota| {
            quota.paused_us.map(|us| Value::Number(us as f64 / 1e6))
        }),
        ("quota_run", "Time in which functions ran for a host that has a cpu_share", SECONDS, Counter, |quota| {
            quota.run_us.map(|us| Value::Number(us as f64 / 1e6))
        }),
    ]
};

fn entry_labels(entry: &StatisticsEntry) -> Labels {
    let (kind, id) = (kind_name(entry.kind).to_owned(), entry.id.get().to_string());
    let mut labels = vec![("kind", kind), ("id", id), ("name", entry_name(entry))];
    labels.extend(entry_program(entry).map(|program| ("program", program)));
    labels
}
