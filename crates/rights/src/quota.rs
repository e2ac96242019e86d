//! How much each host may take at a time, and who had to wait or was refused.
//!
//! An operator writes [`QuotaRule`]s. [`Quotas`] picks of them what holds for a host, and a [`QuotaTable`] keeps one
//! [`HostQuota`] for each host that is connected, shared by all that serve it. Limits are replaced while hosts are connected:
//! who has a [`HostQuota`] reads them again each time, without a lock. A host without limits costs one such look.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use crate::pace::Pace;
use crate::places::Places;

/// How much a host may take; `None`: what every host may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostLimits {
    /// Commands a second.
    pub iops: Option<u64>,
    /// Bytes of data a second that commands move, in either direction.
    pub bytes_per_s: Option<u64>,
    /// Its weight where functions of several hosts want to compute.
    pub cpu_share: Option<u64>,
    /// Bytes that its calls use, and that wait or are kept for it.
    pub memory_bytes: Option<u64>,
    /// Programs that it has loaded.
    pub programs: Option<u64>,
    /// Connections.
    pub connections: Option<u64>,
    /// Bytes of its named states.
    pub state_bytes: Option<u64>,
    /// Bytes of its files, in each export.
    pub space_bytes: Option<u64>,
    /// Its files and directories, in each export.
    pub files: Option<u64>,
}

/// One of the limits of a [`HostLimits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Commands a second.
    Iops,
    /// Bytes a second.
    BytesPerS,
    /// Weight.
    CpuShare,
    /// Bytes.
    Memory,
    /// Programs.
    Programs,
    /// Connections.
    Connections,
    /// Bytes of named states.
    State,
    /// Bytes of files in an export.
    Space,
    /// Files in an export.
    Files,
}

impl Limit {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Iops,
        Self::BytesPerS,
        Self::CpuShare,
        Self::Memory,
        Self::Programs,
        Self::Connections,
        Self::State,
        Self::Space,
        Self::Files,
    ];

    /// How operators write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Iops => "iops",
            Self::BytesPerS => "bytes_per_s",
            Self::CpuShare => "cpu_share",
            Self::Memory => "memory",
            Self::Programs => "programs",
            Self::Connections => "connections",
            Self::State => "state",
            Self::Space => "space",
            Self::Files => "files",
        }
    }
}

/// Limits, and the hosts each of which has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaRule {
    /// Names of hosts and of their groups, NQNs, or `*` for every host.
    pub of: Vec<String>,
    /// The limits of each of them.
    pub limits: HostLimits,
}

/// The weight of a host that has none of its own.
pub const CPU_SHARE: u64 = 100;

impl HostLimits {
    /// In the order of [`Limit::ALL`].
    fn values(&self) -> [Option<u64>; 9] {
        let Self { iops, bytes_per_s, cpu_share, memory_bytes, programs, connections, .. } = *self;
        let Self { state_bytes, space_bytes, files, .. } = *self;
        [iops, bytes_per_s, cpu_share, memory_bytes, programs, connections, state_bytes, space_bytes, files]
    }

    fn of_values(values: [Option<u64>; 9]) -> Self {
        let [iops, bytes_per_s, cpu_share, memory_bytes, programs, connections, state_bytes, space_bytes, files] =
            values;
        Self { iops, bytes_per_s, cpu_share, memory_bytes, programs, connections, state_bytes, space_bytes, files }
    }

    /// Whether it says how much a host may hold in exports.
    pub fn limits_space(&self) -> bool {
        self.space_bytes.is_some() || self.files.is_some()
    }

    /// Whether it limits nothing.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// The smaller of each.
    fn least(self, other: Self) -> Self {
        let (a, b) = (self.values(), other.values());
        Self::of_values(std::array::from_fn(|at| a[at].into_iter().chain(b[at]).min()))
    }

    /// These, and where they say nothing those.
    fn or(self, other: Self) -> Self {
        let (a, b) = (self.values(), other.values());
        Self::of_values(std::array::from_fn(|at| a[at].or(b[at])))
    }
}

/// The limits of all hosts.
#[derive(Clone, Debug, Default)]
pub struct Quotas {
    /// By NQN: how the host is called, and what it may take.
    by_nqn: BTreeMap<String, (String, HostLimits)>,
    others: HostLimits,
}

impl Quotas {
    /// The limits that these rules give, for hosts given as name, NQN and groups. A rule that names the host goes before one that
    /// names a group of it, and that before one of all hosts; of several alike the smallest number holds.
    ///
    /// # Errors
    /// A rule is of nobody, or of somebody who is not known.
    pub fn new<'a>(
        rules: &[QuotaRule],
        hosts: impl IntoIterator<Item = (&'a str, &'a str, &'a [String])>,
    ) -> Result<Self, String> {
        let mut hosts: BTreeMap<&str, (&str, &[String])> =
            hosts.into_iter().map(|(name, nqn, groups)| (nqn, (name, groups))).collect();
        let names: BTreeSet<&str> =
            hosts.values().flat_map(|(name, groups)| groups.iter().map(String::as_str).chain([*name])).collect();
        for rule in rules {
            if rule.of.is_empty() {
                return Err("`of` is empty: write names of hosts or groups, or \"*\" for every host".into());
            }
            if rule.limits.is_none() {
                return Err(format!("it limits nothing: write one of {}", Limit::ALL.map(Limit::name).join(", ")));
            }
            for of in &rule.of {
                if of.starts_with("nqn.") {
                    hosts.entry(of).or_insert((of, &[]));
                } else if of != "*" && !names.contains(of.as_str()) {
                    return Err(format!("`{of}` is neither a [[host]] nor a group of one"));
                }
            }
        }
        let least = |is_of: &dyn Fn(&str) -> bool| {
            let found = rules.iter().filter(|rule| rule.of.iter().any(|of| is_of(of)));
            found.fold(HostLimits::default(), |limits, rule| limits.least(rule.limits))
        };
        let others = least(&|of| of == "*");
        let limits = |(nqn, (name, groups)): (&str, (&str, &[String]))| {
            let by_group = least(&|of| groups.iter().any(|group| group == of));
            let limits = least(&|of| of == name || of == nqn).or(by_group).or(others);
            (nqn.to_owned(), (name.to_owned(), limits))
        };
        Ok(Self { by_nqn: hosts.into_iter().map(limits).collect(), others })
    }

    /// Whether it is said of any host how much it may hold in exports.
    pub fn limits_space(&self) -> bool {
        self.others.limits_space() || self.by_nqn.values().any(|(_, limits)| limits.limits_space())
    }

    /// How a host is called, and what it may take.
    fn of<'a>(&'a self, nqn: &'a str) -> (&'a str, HostLimits) {
        self.by_nqn.get(nqn).map_or((nqn, self.others), |(name, limits)| (name, *limits))
    }
}

/// Learns when a host wanted more than its quota, or something to which it has no right. It must not wait.
pub trait QuotaWatch: fmt::Debug + Send + Sync {
    /// Which host, and of what it has all that it may.
    fn refused(&self, nqn: &str, what: &str);

    /// Which host, and what it tried to do without the right to it.
    fn denied(&self, nqn: &str, what: &str);
}

/// Nobody hears of it.
#[derive(Debug)]
struct Unwatched;

impl QuotaWatch for Unwatched {
    fn refused(&self, _nqn: &str, _what: &str) {}

    fn denied(&self, _nqn: &str, _what: &str) {}
}

/// The quotas of all hosts that are connected.
#[derive(Debug)]
pub struct QuotaTable {
    rules: RwLock<Quotas>,
    hosts: Mutex<Hosts>,
    watch: Arc<dyn QuotaWatch>,
    /// Connections of all hosts.
    connections: Arc<Places>,
    /// Rates count from here.
    epoch: Instant,
}

#[derive(Debug, Default)]
struct Hosts {
    by_nqn: BTreeMap<String, Arc<HostQuota>>,
    last: u32,
    /// With so many it is looked who is gone.
    sweep_at: usize,
}

/// Hosts that are gone are looked for from so many on, and from so many on also those are forgotten that took more than their
/// rate allows: names cost a peer nothing.
const SWEEP_MIN: usize = 256;
const GONE_MAX: usize = 16 << 10;

impl QuotaTable {
    /// Nobody has limits yet.
    pub fn new(watch: Arc<dyn QuotaWatch>) -> Arc<Self> {
        let (rules, hosts) = (RwLock::default(), Mutex::default());
        Arc::new(Self { rules, hosts, watch, connections: Arc::new(Places::new(NONE)), epoch: Instant::now() })
    }

    /// Bounds the connections of all hosts together.
    pub fn bound_connections(&self, max: u64) {
        self.connections.set_max(max);
    }

    /// One that nobody watches.
    pub fn unwatched() -> Arc<Self> {
        Self::new(Arc::new(Unwatched))
    }

    /// Replaces all limits, also of hosts that are connected.
    pub fn set(&self, quotas: Quotas) {
        // In the order of `of`, so that none has limits of before in the end.
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        for (nqn, host) in &mut hosts.by_nqn {
            host.set(quotas.of(nqn).1);
        }
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = quotas;
    }

    /// The quota of a host, the same for all who ask as long as one of them keeps it.
    pub fn of(&self, nqn: &str) -> Arc<HostQuota> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = hosts.by_nqn.get(nqn) {
            return Arc::clone(known);
        }
        if hosts.by_nqn.len() >= hosts.sweep_at.max(SWEEP_MIN) {
            let (now, is_full) = (Instant::now(), hosts.by_nqn.len() >= GONE_MAX);
            // A host that comes again at once has not slept off what it took.
            hosts.by_nqn.retain(|_, host| Arc::strong_count(host) > 1 || !is_full && host.pause(now).is_some());
            hosts.sweep_at = 2 * hosts.by_nqn.len();
        }
        hosts.last = hosts.last.wrapping_add(1);
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        let (name, limits) = rules.of(nqn);
        let host =
            HostQuota::new(hosts.last, (nqn, name), limits, (Arc::clone(&self.watch), self.epoch), &self.connections);
        hosts.by_nqn.insert(nqn.to_owned(), Arc::clone(&host));
        host
    }

    /// How a host is called, and what it may take, connected or not.
    pub fn rule_of(&self, nqn: &str) -> (String, HostLimits) {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        let (name, limits) = rules.of(nqn);
        (name.to_owned(), limits)
    }

    /// Those of hosts that are connected, or were lately, and that have limits.
    pub fn all(&self) -> Vec<Arc<HostQuota>> {
        let hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.by_nqn.values().filter(|host| host.has_limits()).map(Arc::clone).collect()
    }
}

/// The limits of one host, and what came of them.
#[derive(Debug)]
pub struct HostQuota {
    /// Tells it from all others.
    pub id: u32,
    nqn: String,
    name: String,
    commands: Pace,
    bytes: Pace,
    /// By [`Limit`].
    limits: [AtomicU64; Limit::ALL.len()],
    counters: [Counters; Limit::ALL.len()],
    connections: AtomicU64,
    all_connections: Arc<Places>,
    open_files: AtomicU64,
    watch: Arc<dyn QuotaWatch>,
    epoch: Instant,
}

/// As in [`QuotaCounters`], of one limit.
#[derive(Debug, Default)]
struct Counters {
    pauses: AtomicU64,
    paused_us: AtomicU64,
    refusals: AtomicU64,
}

/// A resource that a host may not have more of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scarce {
    /// Bytes.
    Memory,
    /// Programs.
    Programs,
    /// Connections.
    Connections,
    /// Bytes of named states.
    State,
    /// Bytes of files in an export.
    Space,
    /// Files in an export.
    Files,
}

/// The work of a host that its quota bears on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaCounters {
    /// How often a connection of it waited because the host had had its rate.
    pub pauses: u64,
    /// How long they waited, together.
    pub paused_us: u64,
    /// How often it was refused something.
    pub refusals: u64,
}

impl QuotaCounters {
    fn plus(self, other: Self) -> Self {
        Self {
            pauses: self.pauses + other.pauses,
            paused_us: self.paused_us + other.paused_us,
            refusals: self.refusals + other.refusals,
        }
    }
}

/// A host has had its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Until when.
    pub until: Instant,
    /// Which rate; of several the one that lasts longest.
    pub by: Limit,
}

/// No limit.
const NONE: u64 = u64::MAX;
/// A connection that waits for its host's rate does so for this long at least: then several commands continue at once.
const PAUSE_MIN: Duration = Duration::from_millis(1);

impl HostQuota {
    fn new(
        id: u32,
        (nqn, name): (&str, &str),
        limits: HostLimits,
        (watch, epoch): (Arc<dyn QuotaWatch>, Instant),
        all_connections: &Arc<Places>,
    ) -> Arc<Self> {
        let (commands, bytes) = (Pace::default(), Pace::default());
        let quota = Self {
            id,
            nqn: nqn.to_owned(),
            name: name.to_owned(),
            commands,
            bytes,
            limits: std::array::from_fn(|_| AtomicU64::new(NONE)),
            counters: Default::default(),
            connections: AtomicU64::new(0),
            all_connections: Arc::clone(all_connections),
            open_files: AtomicU64::new(0),
            watch,
            epoch,
        };
        quota.set(limits);
        Arc::new(quota)
    }

    /// The quota of a host that may take what every host may.
    pub fn unlimited() -> Arc<Self> {
        let connections = Arc::new(Places::new(NONE));
        Self::new(0, ("", ""), HostLimits::default(), (Arc::new(Unwatched), Instant::now()), &connections)
    }

    fn set(&self, limits: HostLimits) {
        self.commands.set(limits.iops);
        self.bytes.set(limits.bytes_per_s);
        for (limit, value) in self.limits.iter().zip(limits.values()) {
            limit.store(value.unwrap_or(NONE), Ordering::Relaxed);
        }
    }

    fn get(&self, limit: Limit) -> u64 {
        self.limits[limit as usize].load(Ordering::Relaxed)
    }

    /// The most that it may take, if that is limited; of [`Limit::CpuShare`] its weight.
    pub fn limit(&self, limit: Limit) -> Option<u64> {
        Some(self.get(limit)).filter(|limit| *limit != NONE)
    }

    /// Reports that the host tried to do something to which it has no right.
    pub fn deny(&self, what: impl fmt::Display) {
        self.watch.denied(&self.nqn, &what.to_string());
    }

    /// How the host is called by its operator; its NQN, if it has no name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The host's NQN; empty for one that has no name at all.
    pub fn nqn(&self) -> &str {
        &self.nqn
    }

    /// Whether it is of this host.
    pub fn is_of(&self, nqn: &str) -> bool {
        self.nqn == nqn
    }

    fn has_limits(&self) -> bool {
        Limit::ALL.iter().any(|limit| self.limit(*limit).is_some())
    }

    // -- rates --------------------------------------------------------------------------------------------------------

    /// Whether there is a rate at all: asked for each command.
    pub fn has_rates(&self) -> bool {
        self.commands.is_set() || self.bytes.is_set()
    }

    /// Counts a command that moves so many bytes, unless the host has had its rate: then until when it waits.
    ///
    /// # Errors
    /// The host has had its rate.
    pub fn begin_command(&self, now: Instant, bytes: u64) -> Result<(), Pause> {
        if let Some(Pause { until, by }) = self.pause(now) {
            return Err(Pause { until: until.max(now + PAUSE_MIN), by });
        }
        self.commands.take(self.since_epoch(now), 1);
        self.move_bytes(now, bytes);
        Ok(())
    }

    /// Counts bytes that a command turned out to move, which the next ones wait for.
    pub fn move_bytes(&self, now: Instant, bytes: u64) {
        self.bytes.take(self.since_epoch(now), bytes);
    }

    /// Until when the host has had its rate, if it has.
    fn pause(&self, now: Instant) -> Option<Pause> {
        let since = self.since_epoch(now);
        let rates = [(Limit::Iops, &self.commands), (Limit::BytesPerS, &self.bytes)];
        let due = rates.into_iter().filter_map(|(by, rate)| Some((rate.pause(since)?, by)));
        let (due, by) = due.max_by_key(|(due, _)| *due)?;
        Some(Pause { until: self.epoch + due, by })
    }

    /// A connection begins to wait for a rate.
    pub fn count_pause(&self, by: Limit) {
        self.counters[by as usize].pauses.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection waited for so long.
    pub fn count_paused(&self, by: Limit, waited: Duration) {
        let waited_us = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        self.counters[by as usize].paused_us.fetch_add(waited_us, Ordering::Relaxed);
    }

    fn since_epoch(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.epoch)
    }

    // -- amounts ------------------------------------------------------------------------------------------------------

    /// Its weight where functions of several hosts want to compute.
    pub fn cpu_share(&self) -> u64 {
        self.limit(Limit::CpuShare).map_or(CPU_SHARE, |share| share.max(1))
    }

    /// Bytes that it may have, if every host may have `usual`.
    pub fn memory_of(&self, usual: u64) -> u64 {
        self.get(Limit::Memory).min(usual)
    }

    /// Programs that it may have, if every host may have `usual`.
    pub fn programs_of(&self, usual: usize) -> usize {
        usize::try_from(self.get(Limit::Programs)).unwrap_or(usize::MAX).min(usual)
    }

    /// Bytes of named states that it may have, if every host may have `usual`.
    pub fn state_of(&self, usual: u64) -> u64 {
        self.get(Limit::State).min(usual)
    }

    /// Bytes of its files, and files, that it may have in each export.
    pub fn space(&self) -> (Option<u64>, Option<u64>) {
        (self.limit(Limit::Space), self.limit(Limit::Files))
    }

    /// One more connection, as long as what is given is kept; `None`: it has as many as it may, or the rest is for others.
    pub fn connect(self: &Arc<Self>) -> Option<ConnectionPlace> {
        self.all_connections.take(&self.connections).ok()?;
        let place = ConnectionPlace(Arc::clone(self));
        if self.connections() > self.get(Limit::Connections) {
            self.refuse(Scarce::Connections);
            return None;
        }
        Some(place)
    }

    /// Files of exports that it has open.
    pub fn open_files(&self) -> &AtomicU64 {
        &self.open_files
    }

    /// Connections that it has.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Tells that the host wanted more of something than it may have, if that is by its quota and not as for every host.
    pub fn refuse(&self, what: Scarce) {
        let (limit, what) = match what {
            Scarce::Memory => (Limit::Memory, "memory: it has all that it may of"),
            Scarce::Programs => (Limit::Programs, "programs: it has all that it may of"),
            Scarce::Connections => (Limit::Connections, "connections: it has all that it may of"),
            Scarce::State => (Limit::State, "state: it has all that it may of"),
            Scarce::Space => (Limit::Space, "space: its files have all that they may of"),
            Scarce::Files => (Limit::Files, "files: it has all that it may of"),
        };
        if let Some(most) = self.limit(limit) {
            self.counters[limit as usize].refusals.fetch_add(1, Ordering::Relaxed);
            self.watch.refused(&self.nqn, &format!("{what} {most}"));
        }
    }

    /// The counters of one of its limits.
    pub fn counters_of(&self, limit: Limit) -> QuotaCounters {
        let Counters { pauses, paused_us, refusals } = &self.counters[limit as usize];
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        QuotaCounters { pauses: get(pauses), paused_us: get(paused_us), refusals: get(refusals) }
    }

    /// The counters of all its limits.
    pub fn counters(&self) -> QuotaCounters {
        let all = Limit::ALL.into_iter().map(|limit| self.counters_of(limit));
        all.fold(QuotaCounters::default(), QuotaCounters::plus)
    }
}

/// A connection of a host that is counted until this is dropped.
#[derive(Debug)]
pub struct ConnectionPlace(Arc<HostQuota>);

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.0.all_connections.give_back(&self.0.connections, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(of: &[&str], limits: HostLimits) -> QuotaRule {
        QuotaRule { of: of.iter().map(|of| (*of).to_owned()).collect(), limits }
    }

    fn quotas(rules: &[QuotaRule]) -> Result<Quotas, String> {
        let readers = ["readers".to_owned()];
        Quotas::new(rules, [("ann", "nqn.a", &readers[..]), ("bob", "nqn.b", &[][..])])
    }

    #[test]
    fn who_is_named_has_that_and_others_what_is_said_of_their_group_or_of_all() {
        let limits = |iops, programs| HostLimits { iops, programs, ..HostLimits::default() };
        let some = quotas(&[
            rule(&["*"], limits(Some(10), Some(4))),
            rule(&["readers"], limits(Some(100), None)),
            rule(&["readers", "bob"], limits(Some(70), None)),
            rule(&["bob", "nqn.c"], limits(None, Some(9))),
        ])
        .unwrap();
        assert_eq!(some.of("nqn.a"), ("ann", limits(Some(70), Some(4))), "the smaller of its group's");
        assert_eq!(some.of("nqn.b"), ("bob", limits(Some(70), Some(9))));
        assert_eq!(some.of("nqn.c"), ("nqn.c", limits(Some(10), Some(9))));
        assert_eq!(some.of("nqn.d"), ("nqn.d", limits(Some(10), Some(4))));
        assert!(Quotas::default().of("nqn.a").1.is_none());
    }

    #[test]
    fn what_is_no_quota_is_refused_with_its_reason() {
        let iops = HostLimits { iops: Some(1), ..HostLimits::default() };
        for (rule, want) in [
            (rule(&[], iops), "`of` is empty"),
            (rule(&["carl"], iops), "`carl` is neither a [[host]] nor a group of one"),
            (rule(&["*"], HostLimits::default()), "it limits nothing: write one of iops, bytes_per_s, cpu_share"),
        ] {
            let error = quotas(&[rule]).unwrap_err();
            assert!(error.contains(want), "{error}");
        }
    }

    #[test]
    fn connections_are_counted_until_they_end_and_limits_change_under_them() {
        let table = QuotaTable::unwatched();
        let connections = |max| HostLimits { connections: Some(max), ..HostLimits::default() };
        table.set(quotas(&[rule(&["bob"], connections(2))]).unwrap());
        let (ann, bob) = (table.of("nqn.a"), table.of("nqn.b"));
        let many: Vec<_> = (0..100).map(|_| ann.connect().expect("it has no limit")).collect();
        let first = bob.connect().unwrap();
        let _second = table.of("nqn.b").connect().unwrap();
        assert!(bob.connect().is_none());
        assert_eq!((bob.connections(), ann.connections(), bob.counters().refusals), (2, 100, 1));
        drop(first);
        let _third = bob.connect().expect("one went");
        table.set(quotas(&[rule(&["bob"], connections(3))]).unwrap());
        let _fourth = bob.connect().expect("it may have one more now");
        assert!(bob.connect().is_none());
        table.set(Quotas::default());
        assert!(bob.connect().is_some() && table.all().is_empty());
        drop(many);
        assert_eq!(ann.connections(), 0);
    }

    #[test]
    fn a_host_that_goes_and_comes_again_has_had_its_rate_all_the_same() {
        let table = QuotaTable::unwatched();
        let slow = HostLimits { bytes_per_s: Some(1000), ..HostLimits::default() };
        table.set(quotas(&[rule(&["*"], slow)]).unwrap());
        let now = Instant::now();
        table.of("nqn.a").begin_command(now, 100_000).unwrap();
        // Others come and go meanwhile.
        for other in 0..4 * SWEEP_MIN {
            drop(table.of(&format!("nqn.{other}")));
        }
        let Pause { until, by } = table.of("nqn.a").begin_command(now, 1).unwrap_err();
        assert!(until > now + Duration::from_secs(99) && by == Limit::BytesPerS, "{by:?}: {:?}", until - now);
        assert!(table.hosts.lock().unwrap().by_nqn.len() <= 2 * SWEEP_MIN, "those who took nothing are forgotten");
    }

    /// All pauses and refusals of a host were one number each: nobody could say which limit it had run into.
    #[test]
    fn pauses_and_refusals_are_counted_by_the_limit_that_they_are_of() {
        let table = QuotaTable::unwatched();
        let limits = HostLimits {
            iops: Some(1),
            bytes_per_s: Some(1000),
            programs: Some(4),
            connections: Some(0),
            ..HostLimits::default()
        };
        table.set(quotas(&[rule(&["bob"], limits)]).unwrap());
        let (bob, now) = (table.of("nqn.b"), Instant::now());
        // A second for the command, and as many for its bytes as there are thousands of them.
        for (bytes, by) in [(100, Limit::Iops), (100_000, Limit::BytesPerS)] {
            bob.begin_command(now + Duration::from_secs(bytes), bytes).unwrap();
            let pause = bob.begin_command(now + Duration::from_secs(bytes), 0).unwrap_err();
            assert_eq!(pause.by, by);
            bob.count_pause(pause.by);
            bob.count_paused(pause.by, Duration::from_micros(bytes));
        }
        assert!(bob.connect().is_none());
        [Scarce::Programs, Scarce::Programs, Scarce::State].into_iter().for_each(|what| bob.refuse(what));
        let counters = |pauses, paused_us, refusals| QuotaCounters { pauses, paused_us, refusals };
        for limit in Limit::ALL {
            let want = match limit {
                Limit::Iops => counters(1, 100, 0),
                Limit::BytesPerS => counters(1, 100_000, 0),
                Limit::Programs => counters(0, 0, 2),
                Limit::Connections => counters(0, 0, 1),
                _ => counters(0, 0, 0),
            };
            assert_eq!(bob.counters_of(limit), want, "{}", limit.name());
        }
        assert_eq!(bob.counters(), counters(2, 100_100, 3));
        let has = Limit::ALL.into_iter().filter_map(|limit| Some((limit.name(), bob.limit(limit)?)));
        let has: Vec<_> = has.collect();
        assert_eq!(has, [("iops", 1), ("bytes_per_s", 1000), ("programs", 4), ("connections", 0)]);
    }
}
