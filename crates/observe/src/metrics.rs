//! A look at a server in the text format of OpenMetrics, which Prometheus reads.

use std::collections::BTreeMap;
use std::fmt;

use diskside_server::stats::{IoStats, ReactorStats};
use diskside_volume::stats::{AccessStats, LATENCY_BOUNDS_US, LatencyStats};
use diskside_wire::function::{StatisticsEntry, StatisticsPage, statistics_kind};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use crate::seen::{Held, Inside, Quota, Seen, counters, entry_name, entry_program, held, kind_name, quotas};

/// The media type.
pub const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const BYTES: Option<&Unit> = Some(&Unit::Bytes);
const SECONDS: Option<&Unit> = Some(&Unit::Seconds);

/// The text of one scrape; nothing was seen when the server cannot be reached.
pub fn page(seen: Option<&Seen>) -> String {
    let mut text = String::new();
    let mut registry = Registry::with_prefix("diskside");
    registry.register_collector(Box::new(Told(Lines::of(seen))));
    text::encode(&mut text, &registry).expect("a string takes every metric");
    text
}

/// Collectors outlive what they tell of, so it is taken down first.
#[derive(Debug)]
struct Told(Vec<Family>);

#[derive(Debug)]
struct Family {
    name: &'static str,
    help: &'static str,
    unit: Option<&'static Unit>,
    kind: MetricType,
    series: Vec<(Labels, Value)>,
}

type Labels = Vec<(&'static str, String)>;

#[derive(Debug)]
enum Value {
    Whole(u64),
    Number(f64),
    Latencies(LatencyStats),
}

impl Collector for Told {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Family { name, help, unit, kind, series } in &self.0 {
            let mut family = encoder.encode_descriptor(name, help, *unit, *kind)?;
            if let [(labels, value)] = &series[..]
                && labels.is_empty()
            {
                encode(value, *kind, family)?;
                continue;
            }
            for (labels, value) in series {
                encode(value, *kind, family.encode_family(labels)?)?;
            }
        }
        Ok(())
    }
}

fn encode(value: &Value, kind: MetricType, mut encoder: MetricEncoder<'_>) -> fmt::Result {
    match (value, kind) {
        (Value::Whole(value), MetricType::Counter) => ConstCounter::new(*value).encode(encoder),
        (Value::Number(value), MetricType::Counter) => ConstCounter::new(*value).encode(encoder),
        (Value::Whole(value), _) => ConstGauge::new(*value as f64).encode(encoder),
        (Value::Number(value), _) => ConstGauge::new(*value).encode(encoder),
        (Value::Latencies(LatencyStats { counts, sum_us }), _) => {
            let bounds = LATENCY_BOUNDS_US.iter().map(|us| *us as f64 / 1e6).chain([f64::INFINITY]);
            let (buckets, sum): (Vec<(f64, u64)>, f64) = (bounds.zip(*counts).collect(), *sum_us as f64 / 1e6);
            encoder.encode_histogram::<NoLabelSet>(sum, counts.iter().sum(), &buckets, None)
        }
    }
}

/// Families as they are taken down.
#[derive(Default)]
struct Lines(Vec<Family>);

impl Lines {
    fn of(seen: Option<&Seen>) -> Vec<Family> {
        let mut lines = Self::default();
        let up = Value::Number(f64::from(u8::from(seen.is_some())));
        lines.one("up", "Whether the server could be asked: 1, or 0 if it did not answer", None, MetricType::Gauge, up);
        if let Some(seen) = seen {
            lines.totals(&seen.page);
            lines.entries(&seen.entries);
            if let Some(inside) = &seen.inside {
                lines.inside(inside, &seen.entries);
            }
        }
        lines.0
    }

    fn totals(&mut self, page: &StatisticsPage) {
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

    fn entries(&mut self, entries: &[StatisticsEntry]) {
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

    /// What only the server's own process tells.
    fn inside(&mut self, inside: &Inside, entries: &[StatisticsEntry]) {
        let stats = &inside.stats;
        let info = vec![(vec![("version", env!("CARGO_PKG_VERSION").to_owned())], Value::Whole(1))];
        self.family("build", "The server's version, as a label; always 1", None, MetricType::Gauge, info);
        self.gauge(
            "controllers",
            "Controllers that hosts have made, discovery included",
            None,
            inside.controllers as f64,
        );
        self.counter(
            "connections_refused",
            "Connections that were closed because there were too many",
            None,
            stats.connections_refused,
        );
        self.counter(
            "connections_given_up",
            "Connections that were closed before their hosts were let in, because others came",
            None,
            stats.connections_given_up,
        );
        self.gauge(
            "connections_half_open",
            "Connections whose hosts are not let in yet",
            None,
            stats.connections_half_open as f64,
        );
        self.counter(
            "log_lines_left_out",
            "Lines about hosts that were left out of the log, because there had been enough",
            None,
            stats.log_lines_left_out,
        );
        self.counter(
            "audit_lines_left_out",
            "Lines that were left out of the audit file, because there had been enough or its disk was slow",
            None,
            stats.audit_lines_left_out,
        );

        self.commands("host", &OF_HOSTS, &stats.hosts);
        self.accesses(&HOST_CALLS, &inside.host_calls);
        self.accesses(&HOST_FILES, &inside.host_files);
        let reasons = inside.calls_by_reason.iter();
        let reasons = reasons.map(|(reason, calls)| (vec![("reason", reason.clone())], Value::Whole(*calls)));
        self.family(
            "calls_placed",
            "Calls of functions that hosts had run at this server because they chose so, by their reason",
            None,
            MetricType::Counter,
            reasons.collect(),
        );
        self.commands("volume", &OF_VOLUMES, &stats.volumes);
        let volumes =
            stats.volumes.iter().map(|(name, io)| (vec![("volume", name.clone())], Value::Latencies(io.latency)));
        self.histogram(
            "volume_command_duration",
            "Time that commands of a volume took at the server, but of those that were no more than a copy of memory",
            volumes.collect(),
        );
        let exports =
            inside.exports.iter().map(|(name, times)| (vec![("export", name.clone())], Value::Latencies(*times)));
        self.histogram(
            "export_operation_duration",
            "Time that hosts' own operations on files of an export took at the server",
            exports.collect(),
        );
        let functions = entries.iter().filter(|entry| entry.kind == statistics_kind::FUNCTION);
        let calls = functions.filter_map(|entry| {
            let times = inside.calls.get(&entry.id.get())?;
            let mut labels = vec![("id", entry.id.get().to_string()), ("name", entry_name(entry))];
            labels.extend(entry_program(entry).map(|program| ("program", program)));
            Some((labels, Value::Latencies(*times)))
        });
        self.histogram(
            "call_duration",
            "Time that calls of a function took at the server, from the request to the end of the result",
            calls.collect(),
        );
        self.reactors(&stats.reactors);
    }

    /// Commands by host, or by volume.
    fn commands(&mut self, label: &'static str, families: &[CommandFamily; 7], all: &BTreeMap<String, IoStats>) {
        for (name, help, unit, field) in families {
            let series = all.iter().map(|(name, io)| (vec![(label, name.clone())], Value::Whole(field(io))));
            self.family(name, help, *unit, MetricType::Counter, series.collect());
        }
    }

    /// What hosts did.
    fn accesses(&mut self, families: &[AccessFamily; 5], all: &BTreeMap<String, AccessStats>) {
        for (name, help, unit, value) in families {
            let series = all.iter().map(|(host, stats)| (vec![("host", host.clone())], value(stats)));
            self.family(name, help, *unit, MetricType::Counter, series.collect());
        }
    }

    fn reactors(&mut self, reactors: &[ReactorStats]) {
        type Field = fn(&ReactorStats) -> u64;
        let fields: [(&str, &str, Option<&'static Unit>, MetricType, Field); 14] = {
            use MetricType::{Counter, Gauge};
            [
                ("reactor_connections", "Connections that a reactor has", None, Gauge, |r| r.connections),
                ("reactor_connections_accepted", "Connections that a reactor ever had", None, Counter, |r| {
                    r.connections_total
                }),
                ("reactor_turns", "Rounds of a reactor's loop", None, Counter, |r| r.turns),
                ("reactor_sleeps", "Times that a reactor slept, because nothing was to be done", None, Counter, |r| {
                    r.sleeps
                }),
                ("reactor_enters", "System calls of a reactor into its ring", None, Counter, |r| r.enters),
                ("reactor_memory_in_flight", "Bytes of data of commands that a reactor works on", BYTES, Gauge, |r| {
                    r.memory_in_flight_bytes
                }),
                (
                    "reactor_memory_held",
                    "Bytes of memory that a reactor has for data of commands, used or kept for the next one",
                    BYTES,
                    Gauge,
                    |r| r.memory_held_bytes,
                ),
                (
                    "reactor_memory_registered",
                    "Bytes of memory that a reactor has registered with its ring",
                    BYTES,
                    Gauge,
                    |r| r.memory_registered_bytes,
                ),
                (
                    "reactor_placed",
                    "Bytes of writes that a reactor received right into their place",
                    BYTES,
                    Counter,
                    |r| r.placed_bytes,
                ),
                ("reactor_memory_waits", "Commands of a reactor that waited for memory", None, Counter, |r| {
                    r.memory_waits
                }),
                (
                    "reactor_block_waits",
                    "Commands of a reactor that waited because a block was being written",
                    None,
                    Counter,
                    |r| r.block_waits,
                ),
                (
                    "reactor_stalled_reads",
                    "Reads of a reactor whose host took too long, so that their blocks were copied and given free",
                    None,
                    Counter,
                    |r| r.stalled_reads,
                ),
                (
                    "reactor_traversals_put_off",
                    "Times that traversals of a connection went on in a reactor's next turn, because their host had had its share of one",
                    None,
                    Counter,
                    |r| r.traversals_put_off,
                ),
                (
                    "reactor_traversal_work_turn_max",
                    "The most work that traversals took of one turn of a reactor, in units of a step, a KiB or 256 iterations",
                    None,
                    Gauge,
                    |r| r.traversal_work_turn_max,
                ),
            ]
        };
        for (name, help, unit, kind, field) in fields {
            let series = reactors
                .iter()
                .enumerate()
                .map(|(index, reactor)| (vec![("reactor", index.to_string())], Value::Whole(field(reactor))));
            self.family(name, help, unit, kind, series.collect());
        }
    }

    fn gauge(&mut self, name: &'static str, help: &'static str, unit: Option<&'static Unit>, value: f64) {
        self.one(name, help, unit, MetricType::Gauge, Value::Number(value));
    }

    fn counter(&mut self, name: &'static str, help: &'static str, unit: Option<&'static Unit>, value: u64) {
        self.one(name, help, unit, MetricType::Counter, Value::Whole(value));
    }

    fn seconds(&mut self, name: &'static str, help: &'static str, value_us: u64) {
        self.one(name, help, SECONDS, MetricType::Counter, Value::Number(value_us as f64 / 1e6));
    }

    fn one(
        &mut self,
        name: &'static str,
        help: &'static str,
        unit: Option<&'static Unit>,
        kind: MetricType,
        value: Value,
    ) {
        self.family(name, help, unit, kind, vec![(Vec::new(), value)]);
    }

    fn histogram(&mut self, name: &'static str, help: &'static str, series: Vec<(Labels, Value)>) {
        self.family(name, help, SECONDS, MetricType::Histogram, series);
    }

    fn family(
        &mut self,
        name: &'static str,
        help: &'static str,
        unit: Option<&'static Unit>,
        kind: MetricType,
        series: Vec<(Labels, Value)>,
    ) {
        if !series.is_empty() {
            self.0.push(Family { name, help, unit, kind, series });
        }
    }
}

type CommandFamily = (&'static str, &'static str, Option<&'static Unit>, fn(&IoStats) -> u64);

type AccessFamily = (&'static str, &'static str, Option<&'static Unit>, fn(&AccessStats) -> Value);

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

const HOST_CALLS: [AccessFamily; 5] = [
    ("host_calls", "Calls of functions by a host that ended", None, |calls| Value::Whole(calls.operations)),
    ("host_calls_failed", "Calls of functions by a host that ended without a result", None, |calls| {
        Value::Whole(calls.failed)
    }),
    ("host_calls_read", "Bytes that functions read for a host", BYTES, |calls| Value::Whole(calls.read_bytes)),
    ("host_calls_written", "Bytes of results of functions for a host", BYTES, |calls| {
        Value::Whole(calls.written_bytes)
    }),
    ("host_calls_run", "Time in which functions ran for a host, all threads together", SECONDS, |calls| {
        Value::Number(calls.busy_us as f64 / 1e6)
    }),
];

const HOST_FILES: [AccessFamily; 5] = [
    ("host_file_operations", "Operations of a host on files of exports", None, |files| Value::Whole(files.operations)),
    ("host_file_operations_failed", "Operations of a host on files of exports that failed", None, |files| {
        Value::Whole(files.failed)
    }),
    ("host_file_read", "Bytes that a host read from files of exports", BYTES, |files| Value::Whole(files.read_bytes)),
    ("host_file_written", "Bytes that a host wrote to files of exports", BYTES, |files| {
        Value::Whole(files.written_bytes)
    }),
    ("host_file_busy", "Time that a host's operations on files of exports took", SECONDS, |files| {
        Value::Number(files.busy_us as f64 / 1e6)
    }),
];

const OF_HOSTS: [CommandFamily; 7] = [
    ("host_reads", "Read, Verify and Compare commands of a host that ended", None, |io| io.reads),
    ("host_read", "Bytes that a host read from volumes by commands", BYTES, |io| io.read_bytes),
    ("host_writes", "Write and Copy commands of a host that ended", None, |io| io.writes),
    ("host_written", "Bytes that a host wrote to volumes by commands", BYTES, |io| io.written_bytes),
    ("host_flushes", "Flush commands of a host that ended", None, |io| io.flushes),
    ("host_zeroes", "Write Zeroes and Deallocate commands of a host that ended", None, |io| io.zeroes),
    ("host_errors", "Commands of a host that ended with an error of a medium", None, |io| io.errors),
];

const OF_VOLUMES: [CommandFamily; 7] = [
    ("volume_reads", "Read, Verify and Compare commands of a volume that ended", None, |io| io.reads),
    ("volume_read", "Bytes that hosts read from a volume by commands", BYTES, |io| io.read_bytes),
    ("volume_writes", "Write and Copy commands of a volume that ended", None, |io| io.writes),
    ("volume_written", "Bytes that hosts wrote to a volume by commands", BYTES, |io| io.written_bytes),
    ("volume_flushes", "Flush commands of a volume that ended", None, |io| io.flushes),
    ("volume_zeroes", "Write Zeroes and Deallocate commands of a volume that ended", None, |io| io.zeroes),
    ("volume_errors", "Commands of a volume that ended with an error of its medium", None, |io| io.errors),
];

fn entry_labels(entry: &StatisticsEntry) -> Labels {
    let (kind, id) = (kind_name(entry.kind).to_owned(), entry.id.get().to_string());
    let mut labels = vec![("kind", kind), ("id", id), ("name", entry_name(entry))];
    labels.extend(entry_program(entry).map(|program| ("program", program)));
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskside_server::stats::Stats;

    #[test]
    fn a_page_has_what_the_server_told_with_units_and_labels() {
        let mut told = StatisticsPage::new();
        told.sent.set(12);
        told.uptime_ms.set(1500);
        let mut entry = StatisticsEntry::new(statistics_kind::EXPORT, 3, "a\"b\n");
        entry.read.set(4096);
        let mut function = StatisticsEntry::new(statistics_kind::FUNCTION, 7, "mine");
        function.program_id.set(0xab);
        let rest = StatisticsEntry::new(statistics_kind::FUNCTION, 0, "");
        let mut times = LatencyStats::default();
        [5, 30, 120_000_000].into_iter().for_each(|us| times.count(us));
        let reactor = ReactorStats { stalled_reads: 4, memory_waits: 9, ..ReactorStats::default() };
        let stats = Stats {
            hosts: [("nqn.h".to_owned(), IoStats { reads: 6, ..IoStats::default() })].into(),
            volumes: [("disk".to_owned(), IoStats { latency: times, ..IoStats::default() })].into(),
            reactors: vec![reactor],
            ..Stats::default()
        };
        let (calls, exports) = ([(7, times)].into(), [("logs".to_owned(), times)].into());
        let did =
            |operations| [("nqn.h".to_owned(), AccessStats { operations, busy_us: 1500, ..AccessStats::default() })];
        let (host_calls, host_files) = (did(4).into(), did(9).into());
        let calls_by_reason = [("faster".to_owned(), 5)].into();
        let inside = Inside {
            stats,
            calls,
            exports,
            host_calls,
            host_files,
            calls_by_reason,
            controllers: 2,
            failures: Vec::new(),
        };
        let inside = Some(inside);
        let text = page(Some(&Seen { page: told, entries: vec![entry, function, rest], inside }));
        for line in [
            "# TYPE diskside_sent_bytes counter",
            "diskside_sent_bytes_total 12",
            "diskside_up 1.0",
            "diskside_uptime_seconds 1.5",
            r#"diskside_operations_read_bytes_total{kind="export",id="3",name="a\"b\n"} 4096.0"#,
            r#"diskside_operations_total{kind="function",id="7",name="mine",program="00000000000000ab"} 0.0"#,
            r#"diskside_operations_total{kind="function",id="0",name="(others)"} 0.0"#,
            r#"diskside_reactor_stalled_reads_total{reactor="0"} 4"#,
            r#"diskside_reactor_memory_waits_total{reactor="0"} 9"#,
            r#"diskside_host_reads_total{host="nqn.h"} 6"#,
            r#"diskside_host_calls_total{host="nqn.h"} 4"#,
            r#"diskside_host_calls_run_seconds_total{host="nqn.h"} 0.0015"#,
            r#"diskside_host_file_operations_total{host="nqn.h"} 9"#,
            r#"diskside_calls_placed_total{reason="faster"} 5"#,
            "# TYPE diskside_call_duration_seconds histogram",
            r#"diskside_call_duration_seconds_bucket{le="0.00001",id="7",name="mine",program="00000000000000ab"} 1"#,
            r#"diskside_volume_command_duration_seconds_bucket{le="0.0001",volume="disk"} 2"#,
            r#"diskside_volume_command_duration_seconds_bucket{le="+Inf",volume="disk"} 3"#,
            r#"diskside_export_operation_duration_seconds_count{export="logs"} 3"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
        // The dashboard asks for what is there.
        let dashboard = include_str!("../../../packaging/grafana.json");
        let mut asked =
            dashboard.split("diskside_").skip(1).filter_map(|rest| rest.split(['{', '[', ')', ',', ' ', '"']).next());
        let missing = asked.find(|name| !text.contains(&format!("\ndiskside_{name}")));
        assert!(missing.is_none() && dashboard.matches("diskside_").count() > 20, "{missing:?}");
    }

    /// Pauses and refusals were one number for a host, whichever of its limits they were of. A limit of a later server, which has no
    /// name here, is left out.
    #[test]
    fn quotas_are_listed_by_limit_and_each_has_what_it_can_have() {
        let entries = crate::seen::tests::limits();
        let text = page(Some(&Seen { page: StatisticsPage::new(), entries, inside: None }));
        let mut found: Vec<&str> = text.lines().filter(|line| line.starts_with("diskside_quota_")).collect();
        found.sort_unstable();
        assert_eq!(
            found,
            [
                r#"diskside_quota_max{host="ann",id="4",quota="cpu_share"} 50.0"#,
                r#"diskside_quota_max{host="ann",id="4",quota="iops"} 200.0"#,
                r#"diskside_quota_max{host="ann",id="4",quota="memory"} 134217728.0"#,
                r#"diskside_quota_paused_seconds_total{host="ann",id="4",quota="iops"} 0.0025"#,
                r#"diskside_quota_pauses_total{host="ann",id="4",quota="iops"} 7"#,
                r#"diskside_quota_refusals_total{host="ann",id="4",quota="memory"} 3"#,
                r#"diskside_quota_run_seconds_total{host="ann",id="4",quota="cpu_share"} 0.0025"#,
                r#"diskside_quota_used{host="ann",id="4",quota="memory"} 1048576.0"#,
            ]
        );
        let sums = text.lines().filter(|line| line.starts_with("diskside_operations_total"));
        assert_eq!(sums.collect::<Vec<_>>(), [r#"diskside_operations_total{kind="quota",id="4",name="ann"} 7.0"#]);
    }

    /// Prometheus shows the HELP of one metric at a time, beside nothing else.
    #[test]
    fn names_follow_the_conventions_and_help_stands_alone() {
        let (page_, stats) =
            (StatisticsPage::new(), Stats { reactors: vec![ReactorStats::default()], ..Stats::default() });
        let inside = Some(Inside { stats, controllers: 0, ..Inside::default() });
        let text = page(Some(&Seen { page: page_, entries: crate::seen::tests::limits(), inside }));
        let mut names = std::collections::BTreeSet::new();
        for line in text.lines().filter_map(|line| line.strip_prefix("# HELP ")) {
            let (name, help) = line.split_once(' ').expect("a help");
            assert!(names.insert(name.to_owned()), "{name} twice");
            assert!(
                name.starts_with("diskside_") && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{name}"
            );
            assert!(help.len() > 20 && help.split(' ').count() > 3, "{name}: {help}");
            let alone = ["They", "Those", "Them", "It", "Both", "Same"];
            assert!(!alone.contains(&help.split(' ').next().expect("a word")), "{name}: {help}");
        }
        assert!(names.len() > 40, "{names:?}");
    }

    #[test]
    fn a_server_that_cannot_be_reached_is_down() {
        let text = page(None);
        assert!(text.contains("\ndiskside_up 0.0\n") && !text.contains("calls"), "{text}");
    }
}
