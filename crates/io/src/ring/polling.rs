//! How long a thread polls before it sleeps.
//!
//! Waking a sleeping thread costs some 20 µs of latency, so a thread that is about to get work better looks out for
//! it. That pays only where work comes soon and the processor is the thread's own:
//!
//! * an answer that is known to be due, of a disk or of a peer, is worth looking out for longer;
//! * pauses that outlast the longest polling time halve it, down to nothing: at rest no time is burnt. The first
//!   pause that polling would have covered brings all of it back;
//! * a polling thread that another one pushed aside has used up its share of the processor, and runs after that one for
//!   milliseconds, where a sleeper runs at once. So it stops polling for a while, longer each time that it happens
//!   again.

use std::time::{Duration, Instant};

/// What a ring's waits have taught about polling.
#[derive(Debug)]
pub(super) struct Polling {
    /// While nothing in particular is expected.
    quiet: Window,
    /// While an answer is due.
    due: Window,
    /// No polling before this: the processor is contended.
    rest_until: Option<Instant>,
    rest: Duration,
}

/// How long to poll, between nothing and a bound.
#[derive(Clone, Copy, Debug)]
struct Window {
    max: Duration,
    now: Duration,
}

/// How many times as long it polls for an answer that is due. Disks take that long, and answer in bursts: a thread that
/// sleeps then keeps the whole burst waiting.
const DUE_FACTOR: u32 = 4;
/// Nothing between two looks takes so long, unless the thread does not run.
const AWAY: Duration = Duration::from_millis(1);
const REST_MIN: Duration = Duration::from_millis(100);
const REST_MAX: Duration = Duration::from_secs(2);
/// Windows below this are none.
const WINDOW_MIN: Duration = Duration::from_micros(2);

impl Polling {
    /// Polls for `max` at most, for an answer that is due for [`DUE_FACTOR`] times as long; zero never polls.
    pub(super) fn new(max: Duration) -> Self {
        let (quiet, due) = (Window::new(max), Window::new(max * DUE_FACTOR));
        Self { quiet, due, rest_until: None, rest: REST_MIN }
    }

    /// How long to poll in a wait that begins now; `due` says whether an answer is due.
    pub(super) fn window(&self, now: Instant, due: bool) -> Duration {
        match self.rest_until {
            Some(until) if now < until => Duration::ZERO,
            _ if due => self.due.now,
            _ => self.quiet.now,
        }
    }

    /// Two looks with nothing between them were this far apart. True if polling should stop.
    pub(super) fn note_look(&mut self, apart: Duration, now: Instant) -> bool {
        if apart < AWAY {
            return false;
        }
        // Once polling went undisturbed for as long as the last rest, the count begins again.
        let again = self.rest_until.is_some_and(|until| now < until + self.rest);
        self.rest = if again { (self.rest * 2).min(REST_MAX) } else { REST_MIN };
        self.rest_until = Some(now + self.rest);
        true
    }

    /// The thread slept, and its whole pause took this long.
    pub(super) fn note_sleep(&mut self, pause: Duration, due: bool) {
        let window = if due { &mut self.due } else { &mut self.quiet };
        window.note_sleep(pause);
    }
}

impl Window {
    fn new(max: Duration) -> Self {
        Self { max, now: max }
    }

    fn note_sleep(&mut self, pause: Duration) {
        self.now = match self.now / 2 {
            _ if pause <= self.max => self.max,
            half if half < WINDOW_MIN => Duration::ZERO,
            half => half,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Duration = Duration::from_micros(100);

    #[test]
    fn long_pauses_end_polling_and_one_short_pause_brings_it_back() {
        let mut polling = Polling::new(MAX);
        let now = Instant::now();
        assert_eq!(polling.window(now, false), MAX);
        polling.note_sleep(Duration::from_millis(3), false);
        assert_eq!(polling.window(now, false), MAX / 2);
        (0..5).for_each(|_| polling.note_sleep(Duration::from_millis(3), false));
        assert_eq!(polling.window(now, false), Duration::ZERO);
        polling.note_sleep(Duration::from_micros(80), false);
        assert_eq!(polling.window(now, false), MAX);
    }

    #[test]
    fn an_answer_that_is_due_is_looked_out_for_longer() {
        let mut polling = Polling::new(MAX);
        let now = Instant::now();
        assert_eq!(polling.window(now, true), 4 * MAX);
        (0..12).for_each(|_| polling.note_sleep(Duration::from_millis(3), true));
        assert_eq!(polling.window(now, true), Duration::ZERO, "slow answers are not");
        assert_eq!(polling.window(now, false), MAX, "each of the two learns for itself");
        polling.note_sleep(3 * MAX, true);
        assert_eq!(polling.window(now, true), 4 * MAX);
        polling.note_look(Duration::from_millis(4), now);
        assert_eq!(polling.window(now, true), Duration::ZERO, "whoever was pushed aside polls for nothing");
    }

    #[test]
    fn a_thread_that_is_pushed_aside_rests_longer_each_time() {
        let mut polling = Polling::new(MAX);
        let mut now = Instant::now();
        assert!(!polling.note_look(Duration::from_micros(30), now));
        let mut rests = Vec::new();
        for _ in 0..8 {
            assert!(polling.note_look(Duration::from_millis(4), now));
            let from = now;
            while polling.window(now, false).is_zero() {
                now += Duration::from_millis(1);
            }
            rests.push((now - from).as_millis());
        }
        assert_eq!(rests, [100, 200, 400, 800, 1600, 2000, 2000, 2000]);
        now += Duration::from_secs(5);
        assert!(polling.note_look(Duration::from_millis(4), now));
        assert_eq!(polling.window(now + REST_MIN, false), MAX, "after a long undisturbed time it begins anew");
    }

    #[test]
    fn who_never_polls_never_does() {
        let mut polling = Polling::new(Duration::ZERO);
        polling.note_sleep(Duration::ZERO, false);
        assert_eq!(polling.window(Instant::now(), false), Duration::ZERO);
    }
}
