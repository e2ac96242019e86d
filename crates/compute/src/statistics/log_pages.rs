//! The vendor's log pages, and what the command set's Identify says.

use diskside_engine::pieces::{PIECE_LEN, PIECE_LEN_MAX};
use diskside_io::ring::{Interface, interface};
use diskside_nvme::Status;
use diskside_nvme::wire::{Sqe, admin_opcode};
use diskside_sbpf::helpers::Helper;
use diskside_wire::function::{
    CapabilityPage, ErrorRecord, ErrorRecordsPage, FunctionKind, HelperEntry, ProgramDirectory, ProgramEntry,
    ProgramImageHeader, REQUEST_LEN_MAX, StatisticsEntry, StatisticsPage, TierHint, WAIT_MAX_MS, function_log,
    opcode_bit, program_state, quota_limit, statistics_kind, target_io,
};
use zerocopy::IntoBytes;

use crate::Compute;
use crate::call::answer::Answer;
use crate::call::context::CallContext;
use crate::call::plan::FOLDED_LEN_MAX;
use crate::call::rights::of_service;
use crate::environment::Environment;
use crate::limits::{COMMANDS, PREPARED_MAX, PROGRAM_LEN_MAX, TAG_LIMITS};
use diskside_export::Space;
use diskside_rights::{Access, HostQuota, Limit, Rights};
use diskside_scan::{SCAN_NAME, SCAN_PIND};
use diskside_volume::Volume;
use diskside_volume::health::HealthStats;
use diskside_volume::stats::AccessStats;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The answer to an admin command that reads. `errors` are those of the controller, `owner` has the hosts.
pub(crate) fn answer(
    context: &CallContext,
    sqe: &Sqe,
    errors: impl FnOnce() -> Vec<ErrorRecord>,
    owner: &Compute,
) -> Answer {
    if sqe.opcode() != admin_opcode::GET_LOG_PAGE {
        return Status::INVALID_FIELD.dnr().into();
    }
    let compute = &context.environment;
    let page = match sqe.log_page() {
        function_log::CAPABILITIES => capabilities(context),
        function_log::STATISTICS => {
            compute.runs.count();
            statistics(context, owner)
        }
        function_log::ERRORS => ErrorRecordsPage::encode(&errors()),
        function_log::PROGRAMS => {
            let (generation, mut entries) =
                compute.programs.directory(&context.host.nqn, |program| context.may_run(program));
            entries.extend(scans(context));
            ProgramDirectory::encode(generation, &entries)
        }
        function_log::PROGRAM_IMAGE => match compute.programs.get(&context.host.nqn, sqe.log_specific_id()) {
            Ok(program) if !context.may_run(&program) => return Status::NO_PROGRAM.dnr().into(),
            Ok(program) => {
                let (len, id) = (program.object.len() as u32, program.id());
                let mut page = ProgramImageHeader::new(len, id, program.sha256()).as_bytes().to_vec();
                page.extend_from_slice(&program.object);
                page
            }
            Err(status) => return status.into(),
        },
        _ => return Status::INVALID_LOG_PAGE.dnr().into(),
    };
    Answer::of_page(&page, sqe)
}

/// The service `scan`, where the host may use it: an entry without an object.
fn scans(context: &CallContext) -> Option<ProgramEntry> {
    let is_there = context.environment.scanner.is_some() && context.rights.may_run(&of_service(SCAN_NAME));
    is_there.then(|| {
        let mut entry = ProgramEntry::new(SCAN_PIND, SCAN_NAME);
        entry.state = program_state::DEVICE_DEFINED | program_state::ACTIVE;
        entry.functions.set(1);
        entry
    })
}

fn capabilities(context: &CallContext) -> Vec<u8> {
    let compute = &context.environment;
    let has_exports = compute.exports.names().iter().any(|name| context.rights.export(name) > Access::None);
    let (config, mut page) = (&compute.config, CapabilityPage::new());
    page.abi_version.set(diskside_sbpf::image::ABI_VERSION as u16);
    page.engines.set(config.engines as u16);
    page.opcodes.set(COMMANDS.iter().map(|(opcode, _)| opcode_bit(*opcode)).sum());
    let bit = |kind: FunctionKind| 1 << kind as u32;
    let mut kinds = bit(FunctionKind::Read) | bit(FunctionKind::Write) | bit(FunctionKind::Prepare);
    kinds |= bit(FunctionKind::Traverse) | bit(FunctionKind::Launch);
    let mut endpoints = 1 << 1;
    if has_exports {
        kinds |= bit(FunctionKind::File);
        endpoints |= 1 << 2;
    }
    if context.memory().is_some() {
        endpoints |= 1 << 3;
    }
    page.kinds.set(kinds);
    let by_paths = if has_exports { 1 << 6 } else { 0 };
    page.source_kinds.set(endpoints | 1 << 4 | 1 << 5 | by_paths);
    page.sink_kinds.set(endpoints);
    let mut tiers = vec![TierHint::Best, TierHint::Interpreter, TierHint::Cranelift];
    tiers.extend(compute.engine.code().has_llvm().then_some(TierHint::Llvm));
    page.tiers.set(tiers.into_iter().map(|tier| 1 << tier as u32).sum());
    page.request_len_max.set(REQUEST_LEN_MAX as u32);
    page.chunk_len_max.set(PIECE_LEN_MAX as u32);
    page.chunk_len_default.set(PIECE_LEN as u32);
    page.program_len_max.set(PROGRAM_LEN_MAX as u32);
    page.folded_len_max.set(FOLDED_LEN_MAX as u64);
    page.wait_max_ms.set(WAIT_MAX_MS);
    page.tags_max.set(TAG_LIMITS.tags_max as u32);
    page.prepared_max.set(PREPARED_MAX as u32);
    page.programs.set(compute.programs.indexes() as u32);
    let quota = context.host.quota();
    page.host_programs_max.set(quota.programs_of(config.host_programs.into()) as u32);
    page.host_running_max.set(config.host_calls as u32);
    page.host_memory_max.set(quota.memory_of(config.host_memory.bytes()));
    page.call_max_ms.set(config.call_ms);
    page.io = match interface() {
        Ok(Interface::IoUring) => target_io::IO_URING,
        Ok(Interface::Posix(_)) => target_io::POSIX,
        Err(_) => 0,
    };
    let helpers: Vec<HelperEntry> = compute.engine.helpers().iter().map(described).collect();
    page.encode_described(&helpers)
}

fn described(helper: &Helper) -> HelperEntry {
    HelperEntry {
        name: helper.name.into(),
        version: helper.version,
        cost: helper.cost.name().into(),
        prototype: helper.prototype.into(),
        doc: helper.doc.into(),
    }
}

/// The counters: of everything for hosts that may see it, else of what the host itself does, and of the volumes and exports
/// that it may use.
fn statistics(context: &CallContext, owner: &Compute) -> Vec<u8> {
    let (compute, rights) = (&context.environment, context.rights.now());
    let sees_all = rights.sees_all_counters();
    let (page, mut entries) = if sees_all { of_all(compute, owner) } else { of_host(context, owner) };
    let of = (!sees_all).then_some((&*rights, &*context.host.nqn));
    entries.extend(of_places(compute, of));
    entries.extend(of_quotas(compute, owner, of));
    entries.extend(of_space(compute, of));
    page.encode(&entries)
}

/// The counters of everything, for who runs the target.
pub(crate) fn everything(compute: &Environment, owner: &Compute) -> (StatisticsPage, Vec<StatisticsEntry>) {
    let (page, mut entries) = of_all(compute, owner);
    entries.extend(of_places(compute, None));
    entries.extend(of_quotas(compute, owner, None));
    entries.extend(of_space(compute, None));
    (page, entries)
}

/// The counters of volumes and exports: of all, or of those that a host may use.
fn of_places(compute: &Environment, of: Option<(&Rights, &str)>) -> Vec<StatisticsEntry> {
    let mut entries = Vec::new();
    let volumes = compute.volumes.snapshot();
    for (name, stats) in compute.volume_stats.stats() {
        let is_seen = |volume: &&Arc<Volume>| {
            volume.name == name && of.is_none_or(|(rights, _)| rights.volume(&name) > Access::None)
        };
        let Some(volume) = volumes.iter().flatten().find(is_seen) else { continue };
        let mut entry = StatisticsEntry::new(statistics_kind::VOLUME, volume.nsid, &volume.name);
        entry.operations.set(stats.reads + stats.writes);
        entry.read.set(stats.read_bytes);
        entry.written.set(stats.written_bytes);
        entry.busy_us.set(stats.busy_us);
        entry.failed.set(stats.errors);
        waits(&mut entry, &volume.health.stats());
        entries.push(entry);
    }
    for volume in volumes.iter().flatten() {
        let functions = volume.functions.stats();
        let is_seen = of.is_none_or(|(rights, _)| rights.volume(&volume.name) > Access::None);
        if is_seen && functions != AccessStats::default() {
            entries.push(accesses(statistics_kind::VOLUME_BY_FUNCTIONS, volume.nsid, &volume.name, &functions));
        }
    }
    let mut disks = Vec::new();
    compute.exports.each_disk(|health| disks.push(health.stats()));
    for (id, (name, hosts, functions)) in (0..).zip(compute.exports.stats()) {
        if of.is_some_and(|(rights, _)| rights.export(&name) == Access::None) {
            continue;
        }
        let mut entry = accesses(statistics_kind::EXPORT, id, &name, &hosts);
        if let Some(disk) = disks.iter().find(|disk| disk.name == name) {
            waits(&mut entry, disk);
        }
        entries.push(entry);
        if functions != AccessStats::default() {
            entries.push(accesses(statistics_kind::EXPORT_BY_FUNCTIONS, id, &name, &functions));
        }
    }
    entries
}

/// What the disk below a volume or an export has not answered.
fn waits(entry: &mut StatisticsEntry, disk: &HealthStats) {
    entry.waiting.set(u32::try_from(disk.waiting).unwrap_or(u32::MAX));
    entry.oldest_ms.set(u32::try_from(disk.oldest_ms).unwrap_or(u32::MAX));
}

/// The effects of quotas, by host and by limit: of all hosts that have one, or of one host.
fn of_quotas(compute: &Environment, owner: &Compute, of: Option<(&Rights, &str)>) -> Vec<StatisticsEntry> {
    let mut quotas = compute.quotas.all();
    quotas.retain(|quota| of.is_none_or(|(_, nqn)| quota.is_of(nqn)));
    let mut entries: Vec<_> = quotas.iter().map(|quota| quota_entry(quota)).collect();
    if !quotas.is_empty() {
        let levels = Levels::new(compute, owner, of);
        // A peer that connects under many names must not displace hosts that are there.
        quotas.sort_by_key(|quota| quota.connections() == 0);
        let limits = quotas.iter().flat_map(|quota| limit_entries(quota, &levels));
        entries.extend(limits.take(LIMIT_ENTRIES_MAX));
    }
    entries
}

/// The entries of space that hosts hold in exports.
fn of_space(compute: &Environment, of: Option<(&Rights, &str)>) -> Vec<StatisticsEntry> {
    let held = held(compute, of).into_iter().take(SPACE_ENTRIES_MAX);
    held.map(|(export, nqn, space)| space_entry(compute, export, &nqn, space)).collect()
}

/// The space that hosts hold in exports: all hosts in all exports, or one host in those that it may use.
fn held(compute: &Environment, of: Option<(&Rights, &str)>) -> Vec<(u32, String, Space)> {
    let exports = compute.exports.names();
    let is_seen = |export: u32, nqn: &str| {
        let name = exports.get(export as usize);
        of.is_none_or(|(rights, own)| own == nqn && name.is_some_and(|name| rights.export(name) > Access::None))
    };
    let mut held = compute.exports.held();
    held.retain(|(export, nqn, _)| is_seen(*export, nqn));
    held
}

/// Hosts that hold less than so many others are not listed.
const SPACE_ENTRIES_MAX: usize = 1000;

/// Limits of quotas that are listed.
const LIMIT_ENTRIES_MAX: usize = 1000;

/// What a host holds in an export.
fn space_entry(compute: &Environment, export: u32, nqn: &str, space: Space) -> StatisticsEntry {
    let (name, limits) = compute.quotas.rule_of(nqn);
    let mut entry = StatisticsEntry::new(statistics_kind::SPACE, export, &name);
    entry.operations.set(space.files);
    entry.written.set(space.bytes);
    entry.read.set(limits.space_bytes.unwrap_or(0));
    entry.program_id.set(limits.files.unwrap_or(0));
    entry
}

/// What came of a host's quota.
fn quota_entry(quota: &HostQuota) -> StatisticsEntry {
    let (counters, mut entry) =
        (quota.counters(), StatisticsEntry::new(statistics_kind::QUOTA, quota.id, quota.name()));
    entry.operations.set(counters.pauses);
    entry.busy_us.set(counters.paused_us);
    entry.failed.set(counters.refusals);
    entry
}

/// The limits of a host's quota, and how much of each is used.
fn limit_entries(quota: &HostQuota, levels: &Levels<'_>) -> Vec<StatisticsEntry> {
    let limits = Limit::ALL.into_iter().filter_map(|limit| Some((limit, quota.limit(limit)?)));
    let entry = |(limit, most)| {
        let counters = quota.counters_of(limit);
        let mut entry = StatisticsEntry::new(statistics_kind::QUOTA_LIMIT, limit_number(limit), quota.name());
        entry.read.set(most);
        entry.written.set(levels.used(quota, limit));
        entry.operations.set(counters.pauses);
        entry.busy_us.set(if limit == Limit::CpuShare { levels.run_us(quota) } else { counters.paused_us });
        entry.failed.set(counters.refusals);
        entry.program_id.set(quota.id.into());
        entry
    };
    limits.map(entry).collect()
}

fn limit_number(limit: Limit) -> u32 {
    match limit {
        Limit::Iops => quota_limit::IOPS,
        Limit::BytesPerS => quota_limit::BYTES_PER_S,
        Limit::CpuShare => quota_limit::CPU_SHARE,
        Limit::Memory => quota_limit::MEMORY,
        Limit::Programs => quota_limit::PROGRAMS,
        Limit::Connections => quota_limit::CONNECTIONS,
        Limit::State => quota_limit::STATE,
        Limit::Space => quota_limit::SPACE,
        Limit::Files => quota_limit::FILES,
    }
}

/// How much hosts have now of all that quotas limit.
struct Levels<'a> {
    compute: &'a Environment,
    owner: &'a Compute,
    /// By NQN, as the others.
    programs: BTreeMap<String, u64>,
    /// The most in one export.
    held: BTreeMap<String, Space>,
    calls: BTreeMap<String, AccessStats>,
}

impl<'a> Levels<'a> {
    fn new(compute: &'a Environment, owner: &'a Compute, of: Option<(&Rights, &str)>) -> Self {
        let mut most: BTreeMap<String, Space> = BTreeMap::new();
        for (_, nqn, space) in held(compute, of) {
            let most = most.entry(nqn).or_default();
            *most = Space { bytes: most.bytes.max(space.bytes), files: most.files.max(space.files) };
        }
        let (programs, calls) = (compute.programs.by_host(), compute.calls_by_host.stats());
        Self { compute, owner, programs, held: most, calls }
    }

    fn used(&self, quota: &HostQuota, limit: Limit) -> u64 {
        let nqn = quota.nqn();
        let held = || self.held.get(nqn).copied().unwrap_or_default();
        let host = || self.owner.host(nqn);
        match limit {
            Limit::Iops | Limit::BytesPerS | Limit::CpuShare => 0,
            Limit::Memory => host().map_or(0, |host| self.compute.pool.of_host(host.id).1 + host.account.held()),
            Limit::Programs => self.programs.get(nqn).copied().unwrap_or(0),
            Limit::Connections => quota.connections(),
            Limit::State => host().map_or(0, |host| host.state_bytes()),
            Limit::Space => held().bytes,
            Limit::Files => held().files,
        }
    }

    /// How long functions of a host have run, if it is counted by its name.
    fn run_us(&self, quota: &HostQuota) -> u64 {
        self.calls.get(quota.nqn()).map_or(0, |calls| calls.busy_us)
    }
}

fn of_all(compute: &Environment, owner: &Compute) -> (StatisticsPage, Vec<StatisticsEntry>) {
    let (mut page, entries) = compute.statistics.page();
    page.engines.set(compute.config.engines as u32);
    page.engines_busy.set(compute.gate.busy() as u32);
    page.queued.set((compute.pool.queued() + compute.gate.waiting()) as u32);
    page.tags_open.set(owner.tags_open(None) as u32);
    let kept = compute.cache.stats();
    page.cache_len.set(kept.len_bytes);
    page.cache_read.set(kept.served_bytes);
    page.cache_hits.set(kept.hits);
    page.cache_misses.set(kept.misses);
    page.cache_len_max.set(compute.config.cache.bytes());
    page.calls_memory.set(compute.pool.memory_bytes());
    page.kept_memory.set(compute.ledger.total());
    page.memory_max.set(compute.config.hosts_memory.bytes());
    (page, entries)
}

/// The work of others shows in none of it. The cache is everybody's, so it is left out.
fn of_host(context: &CallContext, owner: &Compute) -> (StatisticsPage, Vec<StatisticsEntry>) {
    let (compute, host) = (&context.environment, &context.host);
    let (mut page, entries) = host.statistics.page();
    let (busy, waiting) = compute.gate.of_host(host.id);
    let (queued, calls_memory) = compute.pool.of_host(host.id);
    page.engines.set(compute.config.engines as u32);
    page.engines_busy.set(busy as u32);
    page.queued.set((queued + waiting) as u32);
    page.tags_open.set(owner.tags_open(Some(host.id)) as u32);
    page.calls_memory.set(calls_memory);
    page.kept_memory.set(host.account.held());
    page.memory_max.set(host.quota().memory_of(compute.config.host_memory.bytes()));
    (page, entries)
}

fn accesses(kind: u8, id: u32, name: &str, stats: &AccessStats) -> StatisticsEntry {
    let mut entry = StatisticsEntry::new(kind, id, name);
    entry.operations.set(stats.operations);
    entry.read.set(stats.read_bytes);
    entry.written.set(stats.written_bytes);
    entry.busy_us.set(stats.busy_us);
    entry.failed.set(stats.failed);
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readers have names of limits by number, and operators write them.
    #[test]
    fn a_limit_is_called_the_same_where_it_is_written_and_where_it_is_read() {
        for limit in Limit::ALL {
            assert_eq!(quota_limit::name(limit_number(limit)), Some(limit.name()));
            let is_level = !matches!(limit, Limit::Iops | Limit::BytesPerS | Limit::CpuShare);
            assert_eq!(quota_limit::is_level(limit_number(limit)), is_level, "{limit:?}");
        }
        assert_eq!(quota_limit::name(Limit::ALL.len() as u32 + 1), None);
    }
}
