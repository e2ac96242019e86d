//! One look at a server.

use std::collections::BTreeMap;

use diskside_compute::Failure;
use diskside_server::Handle;
use diskside_server::stats::Stats;
use diskside_volume::health::{Below, HealthStats};
use diskside_volume::stats::{AccessStats, LatencyStats};
use diskside_wire::function::{StatisticsEntry, StatisticsPage, quota_limit, statistics_kind};

/// What a server told.
#[derive(Debug)]
pub struct Seen {
    /// Totals of functions. They are 0 where a server computes nothing.
    pub page: StatisticsPage,
    /// Counters by function, volume, export and quota, limits of quotas, and what hosts hold.
    pub entries: Vec<StatisticsEntry>,
    /// What only the server's own process knows.
    pub inside: Option<Inside>,
}

/// What a server tells nobody over the network.
#[derive(Debug, Default)]
pub struct Inside {
    /// Counters of reactors, hosts, volumes and connections.
    pub stats: Stats,
    /// How long calls took, by number of the function.
    pub calls: BTreeMap<u32, LatencyStats>,
    /// How long hosts' own operations on files took, by export.
    pub exports: BTreeMap<String, LatencyStats>,
    /// Calls of functions, by host.
    pub host_calls: BTreeMap<String, AccessStats>,
    /// Operations on files, by host.
    pub host_files: BTreeMap<String, AccessStats>,
    /// Calls that hosts had run here because they chose so, by their word for why.
    pub calls_by_reason: BTreeMap<String, u64>,
    /// What failed lately, the newest first.
    pub failures: Vec<Failure>,
    /// Controllers that hosts have.
    pub controllers: usize,
}

impl Seen {
    /// The server of this process, now.
    pub fn of(handle: &Handle) -> Self {
        let (page, entries) = match handle.compute() {
            Some(compute) => compute.statistics(),
            None => (StatisticsPage::new(), Vec::new()),
        };
        let calls = handle.compute().map(|compute| compute.latencies()).unwrap_or_default();
        let exports = handle.exports().stats().into_iter().map(|(name, hosts, _)| (name, hosts.latency)).collect();
        let mut stats = handle.stats();
        stats.hosts = named(handle, stats.hosts);
        let host_calls = handle.compute().map(|compute| compute.calls_by_host()).unwrap_or_default();
        let inside = Inside {
            stats,
            calls,
            exports,
            host_calls: named(handle, host_calls),
            host_files: named(handle, handle.exports().operations_by_host()),
            calls_by_reason: handle.compute().map(|compute| compute.calls_by_reason()).unwrap_or_default(),
            failures: failures(handle),
            controllers: handle.controllers().len(),
        };
        Self { page, entries, inside: Some(inside) }
    }
}

fn failures(handle: &Handle) -> Vec<Failure> {
    let mut failures = handle.compute().map(|compute| compute.failures()).unwrap_or_default();
    for Failure { host, .. } in &mut failures {
        if let Some(name) = handle.name_of(host) {
            *host = name;
        }
    }
    failures
}

/// Hosts by the names that the configuration has for them, where it has some.
fn named<T>(handle: &Handle, by_nqn: BTreeMap<String, T>) -> BTreeMap<String, T> {
    by_nqn.into_iter().map(|(nqn, of)| (handle.name_of(&nqn).unwrap_or(nqn), of)).collect()
}

/// What an entry counts.
pub fn kind_name(kind: u8) -> &'static str {
    match kind {
        statistics_kind::FUNCTION => "function",
        statistics_kind::VOLUME => "volume",
        statistics_kind::EXPORT => "export",
        statistics_kind::VOLUME_BY_FUNCTIONS => "volume, by functions",
        statistics_kind::EXPORT_BY_FUNCTIONS => "export, by functions",
        statistics_kind::QUOTA => "quota",
        statistics_kind::SPACE => "space",
        statistics_kind::QUOTA_LIMIT => "limit of a quota",
        _ => "other",
    }
}

/// Entries that count work. Space of hosts is in [`held`], and limits of them in [`quotas`]; kinds of a later server are not known.
pub fn counters(entries: &[StatisticsEntry]) -> impl Iterator<Item = &StatisticsEntry> {
    entries.iter().filter(|entry| (statistics_kind::FUNCTION..=statistics_kind::QUOTA).contains(&entry.kind))
}

/// Functions that ran too long ago to have an entry of their own have one together.
pub fn entry_name(entry: &StatisticsEntry) -> String {
    let is_rest = entry.kind == statistics_kind::FUNCTION && entry.id.get() == 0;
    if is_rest { "(others)".to_owned() } else { entry.name() }
}

/// A disk below a volume or an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// `volume` or `export`.
    pub kind: &'static str,
    /// The name of that.
    pub name: String,
    /// Operations that it has not answered.
    pub waiting: u64,
    /// Milliseconds that the oldest of them has waited.
    pub oldest_ms: u64,
    /// Operations that it failed; `None`: the server does not tell.
    pub errors: Option<u64>,
}

impl Seen {
    /// The disks below volumes and exports.
    pub fn disks(&self) -> Vec<Disk> {
        if let Some(inside) = &self.inside {
            return inside.stats.disks.iter().map(Disk::of).collect();
        }
        let of_entry = |entry: &StatisticsEntry| Disk {
            kind: kind_name(entry.kind),
            name: entry.name(),
            waiting: entry.waiting.get().into(),
            oldest_ms: entry.oldest_ms.get().into(),
            errors: None,
        };
        let is_place = |kind| [statistics_kind::VOLUME, statistics_kind::EXPORT].contains(&kind);
        self.entries.iter().filter(|entry| is_place(entry.kind)).map(of_entry).collect()
    }
}

impl Disk {
    fn of(HealthStats { below, name, waiting, oldest_ms, errors }: &HealthStats) -> Self {
        let kind = match below {
            Below::Volume => kind_name(statistics_kind::VOLUME),
            Below::Export => kind_name(statistics_kind::EXPORT),
        };
        Self { kind, name: name.clone(), waiting: *waiting, oldest_ms: *oldest_ms, errors: Some(*errors) }
    }
}

/// What a host holds in an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The host's name at the target.
    pub host: String,
    /// The export.
    pub export: String,
    /// Bytes of its files.
    pub bytes: u64,
    /// The most of them, if it has a quota.
    pub bytes_max: Option<u64>,
    /// Files and directories.
    pub files: u64,
    /// The most of them, if it has a quota.
    pub files_max: Option<u64>,
}

/// What hosts hold in exports.
pub fn held(entries: &[StatisticsEntry]) -> impl Iterator<Item = Held> {
    let export = |id| entries.iter().find(|entry| entry.kind == statistics_kind::EXPORT && entry.id.get() == id);
    let max = |most: u64| Some(most).filter(|most| *most > 0);
    entries.iter().filter(|entry| entry.kind == statistics_kind::SPACE).map(move |entry| Held {
        host: entry.name(),
        export: export(entry.id.get()).map(StatisticsEntry::name).unwrap_or_default(),
        bytes: entry.written.get(),
        bytes_max: max(entry.read.get()),
        files: entry.operations.get(),
        files_max: max(entry.program_id.get()),
    })
}

/// One of the limits of a host, and its effects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The host's number at the target.
    pub id: u64,
    /// Its name there.
    pub host: String,
    /// The limit, as a configuration calls it.
    pub quota: &'static str,
    /// How much of it the host has now; `None`: it is a rate or a weight, of which nothing is used up.
    pub used: Option<u64>,
    /// How much it may have.
    pub max: u64,
    /// How often it was refused more; `None`: it is a rate or a weight.
    pub refusals: Option<u64>,
    /// How often a connection of it waited; `None`: it is not a rate.
    pub pauses: Option<u64>,
    /// How many microseconds they waited, together.
    pub paused_us: Option<u64>,
    /// How many microseconds functions of the host ran; `None`: it is not a weight.
    pub run_us: Option<u64>,
}

impl Quota {
    /// Whether it is a number of bytes.
    pub fn is_of_bytes(&self) -> bool {
        ["bytes_per_s", "memory", "state", "space"].contains(&self.quota)
    }
}

/// The limits of hosts. Limits that are not known here are left out.
pub fn quotas(entries: &[StatisticsEntry]) -> impl Iterator<Item = Quota> {
    let limits = entries.iter().filter(|entry| entry.kind == statistics_kind::QUOTA_LIMIT);
    limits.filter_map(|entry| {
        let limit = entry.id.get();
        let (is_level, is_weight) = (quota_limit::is_level(limit), limit == quota_limit::CPU_SHARE);
        let is_rate = !is_level && !is_weight;
        Some(Quota {
            id: entry.program_id.get(),
            host: entry.name(),
            quota: quota_limit::name(limit)?,
            used: is_level.then(|| entry.written.get()),
            max: entry.read.get(),
            refusals: is_level.then(|| entry.failed.get()),
            pauses: is_rate.then(|| entry.operations.get()),
            paused_us: is_rate.then(|| entry.busy_us.get()),
            run_us: is_weight.then(|| entry.busy_us.get()),
        })
    })
}

/// The content hash of a function's program, which tells functions of one name apart.
pub fn entry_program(entry: &StatisticsEntry) -> Option<String> {
    (entry.kind == statistics_kind::FUNCTION && entry.program_id.get() != 0)
        .then(|| format!("{:016x}", entry.program_id.get()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The quota of a host, three of its limits, and a limit and an entry of which nobody knows yet what they are.
    pub(crate) fn limits() -> Vec<StatisticsEntry> {
        let mut sum = StatisticsEntry::new(statistics_kind::QUOTA, 4, "ann");
        sum.operations.set(7);
        sum.busy_us.set(2500);
        sum.failed.set(3);
        let limit = |number, [used, max, pauses, us, refusals]: [u64; 5]| {
            let mut limit = StatisticsEntry::new(statistics_kind::QUOTA_LIMIT, number, "ann");
            limit.written.set(used);
            limit.read.set(max);
            limit.operations.set(pauses);
            limit.busy_us.set(us);
            limit.failed.set(refusals);
            limit.program_id.set(4);
            limit
        };
        vec![
            sum,
            limit(quota_limit::IOPS, [0, 200, 7, 2500, 0]),
            limit(quota_limit::CPU_SHARE, [0, 50, 0, 2500, 0]),
            limit(quota_limit::MEMORY, [1 << 20, 128 << 20, 0, 0, 3]),
            limit(77, [1, 2, 0, 0, 0]),
            StatisticsEntry::new(77, 4, "ann"),
        ]
    }
}
