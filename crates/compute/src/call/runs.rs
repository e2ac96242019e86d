//! Counts and reports calls of a prepared request. There may be a million a second, so several are counted together, and the rest
//! when statistics are read; reported are the first at once, then once a minute how many there were, and the rest when the
//! request goes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use diskside_volume::stats::AccessCounters;
use diskside_wire::function::{Outcome, Trailer};

use crate::environment::Environment;
use crate::host::Host;
use crate::statistics::counters::{Ended, FunctionId};
use crate::watch::ProgramEvent;

/// How often they are reported.
const TELL: Duration = Duration::from_secs(60);
/// So many calls are counted together.
const TOGETHER: u64 = 64;

/// Calls of a prepared request.
#[derive(Debug)]
pub(crate) struct Runs {
    environment: Arc<Environment>,
    host: Arc<Host>,
    /// All calls of the host.
    of_host: Arc<AccessCounters>,
    program_id: u64,
    sha256: [u8; 32],
    function: String,
    uncounted: Uncounted,
    untold: Mutex<Untold>,
}

/// The prepared requests of a target.
#[derive(Debug, Default)]
pub(crate) struct AllRuns(Mutex<Vec<Weak<Runs>>>);

/// Those that are in no statistics yet.
#[derive(Debug, Default)]
struct Uncounted {
    calls: AtomicU64,
    failed: AtomicU64,
    read: AtomicU64,
    written: AtomicU64,
    run_us: AtomicU64,
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
    pub(crate) fn new(
        environment: &Arc<Environment>,
        (host, of_host): (&Arc<Host>, &Arc<AccessCounters>),
        (program_id, sha256): (u64, [u8; 32]),
        function: &str,
    ) -> Arc<Self> {
        let runs = Arc::new(Self {
            environment: Arc::clone(environment),
            host: Arc::clone(host),
            of_host: Arc::clone(of_host),
            program_id,
            sha256,
            function: function.to_owned(),
            uncounted: Uncounted::default(),
            untold: Mutex::default(),
        });
        environment.runs.add(&runs);
        runs
    }

    /// A call has ended.
    pub(crate) fn ended(&self, trailer: &Trailer) {
        if self.uncounted.add(trailer) >= TOGETHER {
            self.count();
        }
        self.tell(trailer);
    }

    /// One that an engine ran, and that is counted.
    pub(crate) fn counted(&self, trailer: &Trailer) {
        for statistics in [&self.environment.statistics, &self.host.statistics] {
            statistics.prepared_calls.fetch_add(1, Ordering::Relaxed);
        }
        self.tell(trailer);
    }

    fn tell(&self, trailer: &Trailer) {
        if self.environment.watch.wants() {
            self.report(trailer);
        }
    }

    fn count(&self) {
        let ended = self.uncounted.take();
        if ended.calls == 0 {
            return;
        }
        let function = FunctionId { program_id: self.program_id, name: &self.function };
        for statistics in [&self.environment.statistics, &self.host.statistics] {
            statistics.prepared_ended(function, &ended);
        }
        self.of_host.called_often(ended.calls, ended.failed, ended.read, ended.written);
    }

    fn report(&self, trailer: &Trailer) {
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
            self.report_these(&told);
        }
    }

    fn report_these(&self, runs: &Untold) {
        let Untold { calls, bytes, run_us, failed, .. } = runs;
        let (sha256, function) = (self.sha256, &*self.function);
        let (calls, failed) = (Some(*calls), failed.as_deref());
        let ran = ProgramEvent::Ran { sha256, function, calls, bytes: *bytes, run_us: *run_us, failed };
        self.environment.watch.program(&self.host.nqn, ran);
    }
}

impl AllRuns {
    fn add(&self, runs: &Arc<Runs>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() == all.capacity() {
            all.retain(|runs| runs.strong_count() > 0);
        }
        all.push(Arc::downgrade(runs));
    }

    /// Statistics have all calls that ended until now.
    pub(crate) fn count(&self) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        all.iter().filter_map(Weak::upgrade).for_each(|runs| runs.count());
    }
}

impl Uncounted {
    /// One more; how many that makes.
    fn add(&self, trailer: &Trailer) -> u64 {
        self.read.fetch_add(trailer.media_read, Ordering::Relaxed);
        self.written.fetch_add(trailer.result_len + trailer.media_written, Ordering::Relaxed);
        self.run_us.fetch_add(trailer.times.run_us.into(), Ordering::Relaxed);
        self.failed.fetch_add(u64::from(trailer.outcome != Outcome::Ok), Ordering::Relaxed);
        1 + self.calls.fetch_add(1, Ordering::Relaxed)
    }

    fn take(&self) -> Ended {
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed);
        Ended {
            calls: take(&self.calls),
            failed: take(&self.failed),
            read: take(&self.read),
            written: take(&self.written),
            run_us: take(&self.run_us),
        }
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        self.count();
        let untold = std::mem::take(self.untold.get_mut().unwrap_or_else(PoisonError::into_inner));
        if untold.calls > 0 {
            self.report_these(&untold);
        }
    }
}
