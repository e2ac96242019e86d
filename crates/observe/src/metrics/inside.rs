//! The metrics that only the server's own process tells: commands, operations and calls of hosts, volumes and exports.

use std::collections::BTreeMap;

use diskside_server::stats::IoStats;
use diskside_volume::stats::AccessStats;
use diskside_wire::function::{StatisticsEntry, statistics_kind};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::families::{BYTES, Lines, SECONDS, Value};
use crate::seen::{Inside, entry_name, entry_program};

impl Lines {
    /// What only the server's own process tells.
    pub(super) fn inside(&mut self, inside: &Inside, entries: &[StatisticsEntry]) {
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

        self.gauge(
            "io_uring",
            "1 where the server reads and writes by io_uring, 0 where it uses epoll and threads",
            None,
            f64::from(u8::from(stats.io_uring)),
        );
        let paths = stats
            .paths
            .iter()
            .map(|(address, state)| (vec![("address", address.clone()), ("state", state.clone())], Value::Whole(1)));
        self.family("path_state", "1 for the state of each path", None, MetricType::Gauge, paths.collect());
        let conflicts = stats.reservation_conflicts.iter();
        let conflicts = conflicts.map(|(name, count)| (vec![("volume", name.clone())], Value::Whole(*count)));
        self.family(
            "volume_reservation_conflicts",
            "Commands that a reservation kept from a volume",
            None,
            MetricType::Counter,
            conflicts.collect(),
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
}

type CommandFamily = (&'static str, &'static str, Option<&'static Unit>, fn(&IoStats) -> u64);

type AccessFamily = (&'static str, &'static str, Option<&'static Unit>, fn(&AccessStats) -> Value);

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
