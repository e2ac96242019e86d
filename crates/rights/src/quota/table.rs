//! The quotas of all hosts that are connected, of which each host has one, however many connections it has.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use super::host::HostQuota;
use super::limits::{HostLimits, NONE};
use super::rules::Quotas;
use super::watch::{QuotaWatch, Unwatched};
use crate::places::Places;

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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::host::{Pause, QuotaCounters, Scarce};
    use super::super::limits::Limit;
    use super::super::rules::tests::{quotas, rule};
    use super::*;

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
            let mut waits = None;
            bob.wait(now, pause, &mut waits);
            bob.end_wait(now + Duration::from_micros(bytes), waits);
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
    /// A connection that had waited 5 ms for `iops` when it found that it had to wait 2 s for `bytes_per_s` was counted as one that
    /// waited for `iops` all the time: its operator raised the wrong limit. Now each has its own part.
    #[test]
    fn a_wait_for_one_limit_after_another_is_told_of_both() {
        let table = QuotaTable::unwatched();
        table.set(
            quotas(&[rule(&["bob"], HostLimits { iops: Some(1), bytes_per_s: Some(1000), ..HostLimits::default() })])
                .unwrap(),
        );
        let (bob, now, mut waits) = (table.of("nqn.b"), Instant::now(), None);
        let later = |ms| now + Duration::from_millis(ms);
        bob.wait(now, Pause { until: later(5), by: Limit::Iops }, &mut waits);
        bob.wait(later(3), Pause { until: later(6), by: Limit::Iops }, &mut waits);
        bob.wait(later(6), Pause { until: later(2000), by: Limit::BytesPerS }, &mut waits);
        assert_eq!(waits.unwrap().until, later(2000));
        bob.end_wait(later(2000), waits);
        let told = [Limit::Iops, Limit::BytesPerS].map(|limit| bob.counters_of(limit));
        assert_eq!(told.map(|counters| (counters.pauses, counters.paused_us)), [(1, 6_000), (1, 1_994_000)]);
    }
}
