//! A rate: a bucket of tokens that fills as time passes, which several threads take from.
//!
//! It is kept as a time, as in ATM's generic cell rate algorithm (ITU-T I.371): when what was taken so far would have been
//! earned. A taker that comes before that waits. It may take more than there is, so one large command passes, and the next
//! waits for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Time that is not used is kept for this long.
const BURST: Duration = Duration::from_millis(50);

/// A rate; none at first.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Units a second; 0: as many as one likes.
    per_second: AtomicU64,
    /// When all that was taken is earned, in nanoseconds.
    earned_ns: AtomicU64,
}

impl Pace {
    pub(crate) fn set(&self, per_second: Option<u64>) {
        self.per_second.store(per_second.map_or(0, |rate| rate.max(1)), Ordering::Relaxed);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.per_second.load(Ordering::Relaxed) > 0
    }

    /// Until when nothing more may be taken, if that is later than now.
    pub(crate) fn pause(&self, now: Duration) -> Option<Duration> {
        let earned = Duration::from_nanos(self.earned_ns.load(Ordering::Relaxed));
        (self.is_set() && earned > now).then_some(earned)
    }

    /// Takes units, whether or not they are earned.
    pub(crate) fn take(&self, now: Duration, units: u64) {
        let per_second = self.per_second.load(Ordering::Relaxed);
        if per_second == 0 || units == 0 {
            return;
        }
        let cost_ns = (u128::from(units) * 1_000_000_000).div_ceil(u128::from(per_second));
        let cost_ns = u64::try_from(cost_ns).unwrap_or(u64::MAX);
        let kept_from = u64::try_from(now.saturating_sub(BURST).as_nanos()).unwrap_or(u64::MAX);
        let add = |earned: u64| Some(earned.max(kept_from).saturating_add(cost_ns));
        // It gives no error: there is always a next value.
        let _ = self.earned_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes one unit whenever that is allowed, from `from` to `to` in steps of 0.1 ms; says how many it got.
    fn taken(pace: &Pace, from: Duration, to: Duration) -> u64 {
        let mut now = from;
        let mut taken = 0;
        while now < to {
            while taken < 1_000_000 && pace.pause(now).is_none() {
                pace.take(now, 1);
                taken += 1;
            }
            now += Duration::from_micros(100);
        }
        taken
    }

    #[test]
    fn a_second_gives_what_the_rate_says_and_a_rest_no_more_than_a_burst() {
        let (pace, second) = (Pace::default(), Duration::from_secs(1));
        assert!(pace.pause(second).is_none(), "no rate, no pause");
        pace.set(Some(1000));
        let first = taken(&pace, second, 2 * second);
        assert!((1000..=1052).contains(&first), "a second's, and what was kept of before: {first}");
        let next = taken(&pace, 2 * second, 3 * second);
        assert!((999..=1001).contains(&next), "{next}");
        let rested = taken(&pace, 10 * second, 11 * second);
        assert!((1000..=1052).contains(&rested), "{rested}");
        pace.set(None);
        assert!(pace.pause(11 * second).is_none());
    }

    #[test]
    fn what_is_larger_than_a_burst_passes_and_the_next_waits_for_it() {
        let (pace, now) = (Pace::default(), Duration::from_secs(5));
        pace.set(Some(1 << 20));
        assert!(pace.pause(now).is_none());
        pace.take(now, 4 << 20);
        assert_eq!(pace.pause(now), Some(now + Duration::from_secs(4) - BURST));
        assert!(pace.pause(now + Duration::from_secs(4)).is_none());
        pace.take(now, u64::MAX);
        assert!(pace.pause(now).is_some(), "it is bounded by the clock");
    }
}
