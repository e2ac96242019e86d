//! Numbers that all hosts share: connections, open files.

use std::sync::atomic::{AtomicU64, Ordering};

/// So many places for all hosts. The last eighth of them is for hosts that have less than an eighth: one host alone can have
/// most, and none can keep the others out.
#[derive(Debug)]
pub struct Places {
    max: AtomicU64,
    taken: AtomicU64,
}

/// Why a host gets no more places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPlace {
    /// There are only so many, and all are taken.
    AllTaken {
        /// How many there are.
        max: u64,
    },
    /// What is left of so many is for other hosts.
    ForOthers {
        /// How many there are.
        max: u64,
    },
}

impl Places {
    /// So many.
    #[must_use]
    pub fn new(max: u64) -> Self {
        Self { max: AtomicU64::new(max), taken: AtomicU64::new(0) }
    }

    /// How many there are.
    pub fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }

    /// Changes how many there are. Hosts keep what they have.
    pub fn set_max(&self, max: u64) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// Takes one for a host, which has `own`.
    ///
    /// # Errors
    /// All are taken, or the rest is for others.
    pub fn take(&self, own: &AtomicU64) -> Result<(), NoPlace> {
        let (max, taken, had) =
            (self.max(), self.taken.fetch_add(1, Ordering::Relaxed), own.fetch_add(1, Ordering::Relaxed));
        let part = max / 8;
        let refused = if taken >= max {
            NoPlace::AllTaken { max }
        } else if part > 0 && taken >= max - part && had >= part {
            NoPlace::ForOthers { max }
        } else {
            return Ok(());
        };
        self.give_back(own, 1);
        Err(refused)
    }

    /// Gives back so many of a host.
    pub fn give_back(&self, own: &AtomicU64, count: u64) {
        self.taken.fetch_sub(count, Ordering::Relaxed);
        own.fetch_sub(count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One host with its right key had all 4,096 connections, or all open files, and nobody else could come.
    #[test]
    fn one_host_can_have_most_and_keeps_nobody_out() {
        let places = Places::new(80);
        let (greedy, others) = (AtomicU64::new(0), [0, 0].map(AtomicU64::new));
        let got = (0..100).filter(|_| places.take(&greedy).is_ok()).count();
        assert_eq!((got, places.take(&greedy)), (70, Err(NoPlace::ForOthers { max: 80 })));
        for other in &others {
            (0..5).for_each(|_| places.take(other).unwrap());
        }
        assert_eq!(places.take(&others[0]), Err(NoPlace::AllTaken { max: 80 }));
        assert_eq!(
            (greedy.load(Ordering::Relaxed), others[0].load(Ordering::Relaxed)),
            (70, 5),
            "refusals count nothing"
        );
        places.give_back(&greedy, 70);
        (0..60).for_each(|_| places.take(&others[1]).unwrap());
    }

    #[test]
    fn few_places_are_for_whoever_comes_first() {
        let (places, host) = (Places::new(4), AtomicU64::new(0));
        (0..4).for_each(|_| places.take(&host).unwrap());
        assert_eq!(places.take(&host), Err(NoPlace::AllTaken { max: 4 }));
    }
}
