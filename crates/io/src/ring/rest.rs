//! How long a thread that gives its processor away sleeps, although completions come.
//!
//! Half as long as it has worked since it slept last: so others have a third of the processor, in pieces that are worth having, and
//! a thread with much to do does more of it at a time. With as long a rest as the work, what came meanwhile waited twice as long, and others
//! had a quarter more; without one they had next to nothing, because the thread woke for each completion. One with little to do rests so briefly that it is not worth a timer.

use std::time::Duration;

/// As many completions end a rest.
pub(super) const COMPLETIONS: usize = 64;
/// No wait with a rest is longer where nobody asks for less: the kernel takes a rest only together with a timeout.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);

const MIN: Duration = Duration::from_micros(10);
const MAX: Duration = Duration::from_micros(100);
/// It works so many times as long as it rests.
const WORK_OF_REST: u32 = 2;

/// What a thread has worked so far.
#[derive(Debug, Default)]
pub(super) struct Rests {
    /// Its processor time when it fell asleep last.
    used_before: Option<Duration>,
}

impl Rests {
    /// How long to rest now, of a wait that ends after `timeout`: zero is not at all. `used` is the thread's processor time so
    /// far. Most of the work is the kernel's, for the operations that it is given with the very call that waits; so it
    /// counts for the rest after.
    pub(super) fn next(&mut self, used: Duration, timeout: Option<Duration>) -> Duration {
        let Some(before) = self.used_before.replace(used) else { return Duration::ZERO };
        let rest = (used.saturating_sub(before) / WORK_OF_REST).min(MAX).min(timeout.unwrap_or(MAX));
        if rest < MIN { Duration::ZERO } else { rest }
    }

    /// Nobody has use for the processor any more: the count begins again when somebody has.
    pub(super) fn forget(&mut self) {
        self.used_before = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_is_half_as_long_as_the_work_before_it() {
        let us = Duration::from_micros;
        let mut rests = Rests::default();
        assert_eq!(rests.next(us(5000), None), us(0), "the count begins");
        assert_eq!(rests.next(us(5080), None), us(40));
        assert_eq!(rests.next(us(5098), None), us(0), "not worth a timer");
        assert_eq!(rests.next(us(9000), None), MAX);
        assert_eq!(rests.next(us(9100), Some(us(30))), us(30), "something else is due");
        assert_eq!(rests.next(us(9200), Some(us(0))), us(0));
        assert_eq!(rests.next(us(9100), None), us(0), "a clock that goes back");
        rests.forget();
        assert_eq!(rests.next(us(9900), None), us(0));
    }
}
