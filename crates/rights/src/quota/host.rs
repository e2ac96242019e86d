//! The quota of one host: its rates, the amounts that it may have, and how often it reached them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::limits::{CPU_SHARE, HostLimits, Limit, NONE};
use super::watch::{QuotaWatch, Unwatched};
use crate::pace::Pace;
use crate::places::Places;

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

/// Since when a connection waits for a rate of its host, and until when.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    since: Instant,
    /// Until when.
    pub until: Instant,
    by: Limit,
}

/// A connection that waits for its host's rate does so for this long at least: then several commands continue at once.
const PAUSE_MIN: Duration = Duration::from_millis(1);

impl HostQuota {
    pub(super) fn new(
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

    pub(super) fn set(&self, limits: HostLimits) {
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

    pub(super) fn has_limits(&self) -> bool {
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

    /// Counts commands that were refused before they could wait, which the next ones wait for: for a second's worth at a time, so that
    /// a broken program delays its host and does not lock it out.
    pub fn count_refused(&self, now: Instant, commands: u64) {
        let Some(per_second) = self.limit(Limit::Iops).filter(|_| commands > 0) else { return };
        let since = self.since_epoch(now);
        if self.commands.pause(since).is_none_or(|until| until < since + Duration::from_secs(1)) {
            self.commands.take(since, commands.min(per_second));
        }
    }

    /// Counts bytes that a command turned out to move, which the next ones wait for.
    pub fn move_bytes(&self, now: Instant, bytes: u64) {
        self.bytes.take(self.since_epoch(now), bytes);
    }

    /// Until when the host has had its rate, if it has.
    pub(super) fn pause(&self, now: Instant) -> Option<Pause> {
        let since = self.since_epoch(now);
        let rates = [(Limit::Iops, &self.commands), (Limit::BytesPerS, &self.bytes)];
        let due = rates.into_iter().filter_map(|(by, rate)| Some((rate.pause(since)?, by)));
        let (due, by) = due.max_by_key(|(due, _)| *due)?;
        Some(Pause { until: self.epoch + due, by })
    }

    /// A connection waits for a rate: for the one that it waited for already, or, once that is paid, for another. Each is charged
    /// with its own part of the time.
    pub fn wait(&self, now: Instant, Pause { until, by }: Pause, waits: &mut Option<Wait>) {
        match waits {
            Some(wait) if wait.by == by => wait.until = until,
            _ => {
                self.end_wait(now, waits.take());
                self.counters[by as usize].pauses.fetch_add(1, Ordering::Relaxed);
                *waits = Some(Wait { since: now, until, by });
            }
        }
    }

    /// A connection waits no longer.
    pub fn end_wait(&self, now: Instant, wait: Option<Wait>) {
        let Some(Wait { since, by, .. }) = wait else { return };
        let waited_us = u64::try_from(now.saturating_duration_since(since).as_micros()).unwrap_or(u64::MAX);
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
        let (limit, unit) = match what {
            Scarce::Memory => (Limit::Memory, " bytes"),
            Scarce::Programs => (Limit::Programs, ""),
            Scarce::Connections => (Limit::Connections, ""),
            Scarce::State => (Limit::State, " bytes"),
        };
        if let Some(most) = self.limit(limit) {
            self.refuse_more(limit, &format!("it may have {most}{unit}, and wanted more"));
        }
    }

    /// Tells that the host wanted more of a limit of its quota than it may have, and why that is so.
    pub fn refuse_more(&self, limit: Limit, why: &str) {
        self.counters[limit as usize].refusals.fetch_add(1, Ordering::Relaxed);
        self.watch.refused(&self.nqn, &format!("{}: {why}", limit.name()));
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
