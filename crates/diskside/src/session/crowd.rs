//! How many requests of a session share a side of a link.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Counts the requests that run on a side, and over what time.
#[derive(Debug)]
pub(super) struct Crowd(Mutex<Meter>);

#[derive(Debug)]
struct Meter {
    running: u32,
    /// Seconds of all requests up to `since`: the area under `running`.
    request_s: f64,
    since: Instant,
}

/// A request that runs on a side, until it is dropped.
#[derive(Debug)]
pub(super) struct Present {
    crowd: Arc<Crowd>,
    entered: Instant,
    request_s: f64,
}

impl Default for Crowd {
    fn default() -> Self {
        Self(Mutex::new(Meter { running: 0, request_s: 0.0, since: Instant::now() }))
    }
}

impl Crowd {
    pub(super) fn enter(self: &Arc<Self>) -> Present {
        let entered = Instant::now();
        let mut meter = self.lock();
        let request_s = meter.advance(entered);
        meter.running += 1;
        drop(meter);
        Present { crowd: Arc::clone(self), entered, request_s }
    }

    /// Requests that run now.
    pub(super) fn running(&self) -> u32 {
        self.lock().running
    }

    fn lock(&self) -> MutexGuard<'_, Meter> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Meter {
    fn advance(&mut self, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(self.since);
        self.request_s += f64::from(self.running) * passed.as_secs_f64();
        self.since = self.since.max(now);
        self.request_s
    }
}

impl Present {
    /// Requests that ran here since this one entered, on the average, itself included.
    pub(super) fn at_once(&self) -> f64 {
        let now = Instant::now();
        let request_s = self.crowd.lock().advance(now) - self.request_s;
        let passed_s = now.saturating_duration_since(self.entered).as_secs_f64();
        if passed_s > 0.0 { (request_s / passed_s).max(1.0) } else { 1.0 }
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        let mut meter = self.crowd.lock();
        meter.advance(Instant::now());
        meter.running -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_average_counts_each_request_for_as_long_as_it_ran() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut meter = Meter { running: 0, request_s: 0.0, since: start };
        // One from 0 to 40 ms, another from 10 to 30 ms: 60 ms of requests.
        meter.advance(at(0));
        meter.running = 1;
        meter.advance(at(10));
        meter.running = 2;
        meter.advance(at(30));
        meter.running = 1;
        assert!((meter.advance(at(40)) - 0.060).abs() < 1e-9, "{meter:?}");
        // A clock that was read earlier counts nothing twice.
        assert!((meter.advance(at(35)) - 0.060).abs() < 1e-9, "{meter:?}");
    }

    #[test]
    fn a_request_that_ended_is_counted_no_more() {
        let crowd = Arc::new(Crowd::default());
        let first = crowd.enter();
        drop(crowd.enter());
        assert_eq!(crowd.running(), 1);
        assert!(first.at_once() >= 1.0);
        drop(first);
        assert_eq!(crowd.running(), 0);
    }
}
