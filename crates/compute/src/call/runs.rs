//! Reports calls of a prepared request: the first at once, then once a minute how many there were, and the rest when
//! the request goes. There may be a million a second.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use diskside_wire::function::{Outcome, Trailer};

use crate::watch::{ProgramEvent, Watch};

/// How often.
const TELL: Duration = Duration::from_secs(60);

/// Calls of a prepared request.
#[derive(Debug)]
pub(crate) struct Runs {
    watch: Arc<dyn Watch>,
    host: String,
    sha256: [u8; 32],
    function: String,
    untold: Mutex<Untold>,
}

/// Those that were not told yet.
#[derive(Debug, Default)]
struct Untold {
    calls: u64,
    bytes: u64,
    run_us: u64,
    failed: Option<String>,
    told: Option<Instant>,
}

impl Runs {
    pub(crate) fn new(watch: &Arc<dyn Watch>, host: &str, sha256: [u8; 32], function: &str) -> Self {
        let (host, function) = (host.to_owned(), function.to_owned());
        Self { watch: Arc::clone(watch), host, sha256, function, untold: Mutex::default() }
    }

    /// A call has ended.
    pub(crate) fn ended(&self, trailer: &Trailer) {
        if !self.watch.wants() {
            return;
        }
        let now = Instant::now();
        let mut untold = self.untold.lock().unwrap_or_else(PoisonError::into_inner);
        untold.calls += 1;
        untold.bytes += trailer.media_read;
        untold.run_us += u64::from(trailer.times.run_us);
        if trailer.outcome != Outcome::Ok {
            untold.failed = Some(trailer.message.clone());
        }
        if untold.told.is_none_or(|told| now >= told + TELL) {
            let told = std::mem::replace(&mut *untold, Untold { told: Some(now), ..Untold::default() });
            drop(untold);
            self.tell(&told);
        }
    }

    fn tell(&self, runs: &Untold) {
        let Untold { calls, bytes, run_us, failed, .. } = runs;
        let (sha256, function) = (self.sha256, &*self.function);
        let (calls, failed) = (Some(*calls), failed.as_deref());
        let ran = ProgramEvent::Ran { sha256, function, calls, bytes: *bytes, run_us: *run_us, failed };
        self.watch.program(&self.host, ran);
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        let untold = std::mem::take(self.untold.get_mut().unwrap_or_else(PoisonError::into_inner));
        if untold.calls > 0 {
            self.tell(&untold);
        }
    }
}
