//! Measuring the device beside a request that does not need it.

use super::job::Job;
use super::{RunOptions, device};
use crate::session::error::SessionError;
use diskside_host::drive;
use diskside_io::request::RequestFuture;
use diskside_sbpf::machine::{CancelToken, CancelWatch};
use std::ops::Range;

/// A part that runs at the device, whose result nobody needs.
pub(super) struct Measuring {
    cancel: CancelToken,
    /// The request's own token ends it too, until it is left alone.
    _watch: Option<CancelWatch>,
    ended: RequestFuture<Result<(), SessionError>>,
}

impl Measuring {
    pub(super) fn start(job: &Job<'_>, range: Range<u64>) -> Self {
        let (file, now, mounted) = (job.file.clone(), job.now, job.mounted.is_some());
        let (function, args) = (job.function.clone(), job.args.to_vec());
        let cancel = CancelToken::new();
        let mut options = RunOptions { progress: None, ..job.options.clone() };
        let outer = options.limits.cancel.replace(cancel.clone());
        let own = cancel.clone();
        let watch = outer.map(|outer| outer.when_cancelled(move || own.cancel()));
        // What failed is tried again when the next measurement is due.
        let ended = drive(async move {
            let mounted = mounted.then(|| file.inner.place.mounted(&file.inner.session)).flatten().and_then(Result::ok);
            let mut job = Job { mounted, ..Job::new(&file, now, &function, &args, &options) };
            job.load().await?;
            let done = device::finish(&job, device::start(&job, &range).await?).await?;
            job.learn_probe(&done.observation, None);
            Ok(())
        });
        Self { cancel, _watch: watch, ended }
    }

    /// With its request, which ran: then it ends by itself. Of one that failed, or was cancelled, nothing runs any more.
    pub(super) async fn end<T>(measuring: Option<Self>, ran: Result<T, SessionError>) -> Result<T, SessionError> {
        if let (Some(Self { cancel, ended, .. }), true) = (measuring, ran.is_err()) {
            cancel.cancel();
            drop(ended.await);
        }
        ran
    }
}
