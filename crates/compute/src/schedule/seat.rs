//! A call that waits for its host: it takes no thread from others meanwhile, and does not wait for long while they need what
//! it holds.
//!
//! A call has its thread until it ends. While it waits for the host to read its result, or to send its input, that thread does
//! nothing, and the pool may have another one for the work of others. Their number is bounded; when there are no more, or
//! calls of others wait for memory that such calls have, a host that does nothing is given up soon.

use std::time::{Duration, Instant};

use crate::schedule::pool::Pool;

/// A call's place in the pool.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    pool: Pool,
    host: u64,
}

/// A wait for the host.
pub(crate) struct Wait<'a> {
    seat: &'a Seat,
    began: Instant,
    /// When the host last did something.
    heard: Instant,
    parked: bool,
}

impl Seat {
    pub(crate) fn new(pool: &Pool, host: u64) -> Self {
        Self { pool: pool.clone(), host }
    }

    /// Begins to wait.
    pub(crate) fn wait(&self) -> Wait<'_> {
        let now = Instant::now();
        Wait { seat: self, began: now, heard: now, parked: false }
    }
}

impl Wait<'_> {
    /// How long to wait before asking whether the wait [is over](Self::is_over).
    pub(crate) fn piece(&self, until: Instant) -> Duration {
        let piece = if self.parked { LOOK } else { PARKED_AFTER };
        until.saturating_duration_since(Instant::now()).min(piece)
    }

    /// The host did something.
    pub(crate) fn heard(&mut self) {
        self.heard = Instant::now();
    }

    /// Whether the wait is over because others need what the call holds.
    pub(crate) fn is_over(&mut self) -> bool {
        let now = Instant::now();
        if !self.parked {
            if now < self.began + PARKED_AFTER {
                return false;
            }
            self.parked = true;
            self.seat.pool.park();
        }
        let is_slow = now >= self.heard + SILENCE_MAX || now >= self.began + SLOWNESS_MAX;
        is_slow && self.seat.pool.stands_still(self.seat.host)
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if self.parked {
            self.seat.pool.unpark();
        }
    }
}

/// A wait that is shorter than this is none.
const PARKED_AFTER: Duration = Duration::from_millis(20);
/// How often a call that waits looks whether others need what it holds.
const LOOK: Duration = Duration::from_millis(500);
/// How long a host may do nothing, and how long it may take for one piece of a result or of input, while they do.
const SILENCE_MAX: Duration = Duration::from_secs(2);
const SLOWNESS_MAX: Duration = Duration::from_secs(10);

/// The message of such a call.
pub(crate) const GIVEN_UP: &str = "the call waited for its host, and calls of other hosts waited for what it held";
