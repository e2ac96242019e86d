//! Measuring the device beside a request that does not need it.

use super::job::Job;
use super::{RunOptions, device};
use diskside_sbpf::machine::{CancelToken, CancelWatch};
use std::ops::Range;
use std::thread::JoinHandle;

/// A part that runs at the device, whose result nobody needs.
pub(super) struct Measuring {
    cancel: CancelToken,
    /// The request's own token ends it too, until it is left alone.
    _watch: Option<CancelWatch>,
    thread: Option<JoinHandle<()>>,
}

impl Measuring {
    pub(super) fn start(job: &Job<'_>, range: Range<u64>) -> Option<Self> {
        let (file, now, mounted) = (job.file.clone(), job.now, job.mounted.is_some());
        let (function, args) = (job.function.clone(), job.args.to_vec());
        let cancel = CancelToken::new();
        let mut options = RunOptions { progress: None, ..job.options.clone() };
        let outer = options.limits.cancel.replace(cancel.clone());
        let own = cancel.clone();
        let watch = outer.map(|outer| outer.when_cancelled(move || own.cancel()));
        let work = move || {
            let mounted = mounted.then(|| file.inner.place.mounted(&file.inner.session)).flatten().and_then(Result::ok);
            let (function, args, options) = (&function, &args[..], &options);
            let mut job = Job { mounted, ..Job::new(&file, now, function, args, options) };
            let done = job.load().and_then(|()| device::finish(&job, device::start(&job, &range)?));
            // What failed is tried again when the next measurement is due.
            if let Ok(done) = done {
                job.learn_probe(&done.observation, None);
            }
        };
        // Without a thread nothing is measured this time.
        let thread = std::thread::Builder::new().name("diskside".into()).spawn(work).ok()?;
        Some(Self { cancel, _watch: watch, thread: Some(thread) })
    }

    /// It ends by itself, after its request.
    pub(super) fn leave(mut self) {
        self.thread = None;
    }
}

/// Nothing of a request that failed, or was cancelled, runs when it has ended.
impl Drop for Measuring {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.cancel.cancel();
            // A panic there was reported already.
            let _ = thread.join();
        }
    }
}
