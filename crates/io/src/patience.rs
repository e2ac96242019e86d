//! Waiting for what a process still has that was killed a moment ago: the kernel takes down its ring, and with it ports and locks, some time
//! after the process.

use std::time::{Duration, Instant};

/// How long it is waited for.
const MOST: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);
/// A wait that is as long is told of: else it looks as if the program hung.
const TOLD_AFTER: Duration = Duration::from_millis(500);

/// One wait, and whether it was told of.
#[derive(Debug)]
pub struct Patience {
    began: Instant,
    is_told: bool,
}

impl Patience {
    /// It begins.
    pub fn new() -> Self {
        Self { began: Instant::now(), is_told: false }
    }

    /// Sleeps for a moment. False: that was long enough. `tell` is called once, with the seconds that the wait lasts at most, when it is so long
    /// that somebody may ask why.
    pub fn wait(&mut self, tell: impl FnOnce(u64)) -> bool {
        let waited = self.began.elapsed();
        if waited >= MOST {
            return false;
        }
        if waited >= TOLD_AFTER && !std::mem::replace(&mut self.is_told, true) {
            tell(MOST.as_secs());
        }
        std::thread::sleep(POLL);
        true
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server whose port was taken said nothing for five seconds.
    #[test]
    fn a_long_wait_is_told_of_once_and_ends() {
        let (mut patience, mut told) = (Patience::new(), 0);
        assert!(patience.wait(|_| told += 1));
        assert_eq!(told, 0, "it may end at once");
        patience.began -= TOLD_AFTER;
        assert!(patience.wait(|most_s| told += most_s) && patience.wait(|most_s| told += most_s));
        assert_eq!(told, 5, "once");
        patience.began -= MOST;
        assert!(!patience.wait(|_| told += 1));
    }
}
