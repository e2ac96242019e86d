//! How long output that is not wanted any more waits for a disk.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How often a thread that waits for a disk looks whether it still is to.
pub(super) const LOOK: Duration = Duration::from_millis(20);
/// A disk that is well answers within that: then it is known what is written, and taken back what is to be.
const LEFT_AFTER: Duration = Duration::from_secs(5);

/// Says when to leave a disk that does not answer.
#[derive(Clone)]
pub(super) struct Patience {
    stopped: Arc<dyn Fn() -> bool + Send + Sync>,
    /// When that was noticed.
    since: Arc<OnceLock<Instant>>,
}

impl Patience {
    pub(super) fn new(stopped: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { stopped: Arc::new(stopped), since: Arc::default() }
    }

    /// Whether it has waited for long enough although nobody wants it any more.
    pub(super) fn is_over(&self) -> bool {
        (self.stopped)() && self.since.get_or_init(Instant::now).elapsed() >= LEFT_AFTER
    }
}

impl fmt::Debug for Patience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patience").field("since", &self.since).finish_non_exhaustive()
    }
}
