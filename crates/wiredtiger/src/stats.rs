//! Counters of all databases of the process.

use crate::blocks::{REASONS, Reason};
use std::sync::atomic::{AtomicU64, Ordering};

/// `DS_WT_FALLBACKS`.
pub(crate) const FALLBACKS: usize = 32;

/// Why a function gave nothing, beside the reasons of the functions themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fallback {
    /// The server failed, or the way to it.
    Server,
    /// The result has another form.
    Form,
    /// A path does not begin with the block that was asked for.
    Other,
    Of(Reason),
}

const OWN: [&str; 3] = ["server", "form", "other-block"];

impl Fallback {
    fn index(self) -> usize {
        match self {
            Self::Server => REASONS.len(),
            Self::Form => REASONS.len() + 1,
            Self::Other => REASONS.len() + 2,
            Self::Of(Reason(number)) => (number as usize) % REASONS.len(),
        }
    }
}

/// The name of a fallback, by its number.
pub(crate) fn name(index: usize) -> Option<&'static str> {
    REASONS.iter().chain(&OWN).nth(index).copied()
}

const _: () = assert!(REASONS.len() + OWN.len() <= FALLBACKS);

/// As `struct ds_wt_stats`.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) reads: AtomicU64,
    pub(crate) served: AtomicU64,
    pub(crate) stale: AtomicU64,
    pub(crate) trips: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) paths: AtomicU64,
    pub(crate) pushed: AtomicU64,
    pub(crate) ahead: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) reopened: AtomicU64,
    pub(crate) fallbacks: [AtomicU64; FALLBACKS],
}

pub(crate) static STATS: Stats = Stats {
    reads: AtomicU64::new(0),
    served: AtomicU64::new(0),
    stale: AtomicU64::new(0),
    trips: AtomicU64::new(0),
    bytes: AtomicU64::new(0),
    paths: AtomicU64::new(0),
    pushed: AtomicU64::new(0),
    ahead: AtomicU64::new(0),
    writes: AtomicU64::new(0),
    written_bytes: AtomicU64::new(0),
    syncs: AtomicU64::new(0),
    reopened: AtomicU64::new(0),
    fallbacks: [const { AtomicU64::new(0) }; FALLBACKS],
};

pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// One trip to the server, which brought so many bytes.
pub(crate) fn trip(kind: Option<&AtomicU64>, bytes: usize) {
    add(&STATS.trips, 1);
    add(&STATS.bytes, bytes as u64);
    if let Some(kind) = kind {
        add(kind, 1);
    }
}

pub(crate) fn fell_back(why: Fallback) {
    add(&STATS.fallbacks[why.index()], 1);
}

impl Stats {
    /// All of them, in the order of `struct ds_wt_stats`.
    pub(crate) fn snapshot(&self) -> [u64; 12 + FALLBACKS] {
        let own = [
            &self.reads,
            &self.served,
            &self.stale,
            &self.trips,
            &self.bytes,
            &self.paths,
            &self.pushed,
            &self.ahead,
            &self.writes,
            &self.written_bytes,
            &self.syncs,
            &self.reopened,
        ];
        let mut all = own.into_iter().chain(&self.fallbacks).map(|counter| counter.load(Ordering::Relaxed));
        std::array::from_fn(|_| all.next().unwrap_or(0))
    }
}
