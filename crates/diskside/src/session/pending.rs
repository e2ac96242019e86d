//! Work that continues elsewhere.

use super::error::SessionError;
use super::run::RunOptions;
use diskside_host::drive;
use diskside_io::request::{RequestFuture, block_on};
use diskside_sbpf::machine::CancelToken;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The result of a request, now or later: poll it, wait for it, or await it.
///
/// A function can be stopped: [`cancel`](Self::cancel) asks for it, and the request ends with
/// [`FailureKind::Cancelled`](super::FailureKind::Cancelled), or well if it was faster. When it has ended, nothing of it
/// runs or writes any more, here or at a target. Dropping a function's request cancels it, and does not wait. Plain
/// reads and writes end by themselves: cancelling them does nothing, and dropping them gives up only the outcome.
#[derive(Debug)]
pub struct Pending<T> {
    future: RequestFuture<Result<T, SessionError>>,
    cancels: Cancels,
}

/// The token that stops the request, also when it is dropped.
#[derive(Debug)]
struct Cancels(Option<CancelToken>);

/// The options of a request that can be cancelled, also by the token that the caller put into them, which may be that of many.
pub(super) struct Cancellable {
    options: RunOptions,
    outer: Option<CancelToken>,
    cancel: CancelToken,
}

impl Cancellable {
    pub(super) fn new(options: &RunOptions) -> Self {
        let (mut options, cancel) = (options.clone(), CancelToken::new());
        let outer = options.limits.cancel.replace(cancel.clone());
        Self { options, outer, cancel }
    }

    pub(super) fn options(&self) -> &RunOptions {
        &self.options
    }

    /// A function. It continues by itself when what it waits for has come, and goes to a thread of its own to compute.
    pub(super) fn run<T, F>(self, work: impl FnOnce(RunOptions) -> F) -> Pending<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, SessionError>> + Send + 'static,
    {
        let Self { options, outer, cancel } = self;
        let own = cancel.clone();
        let watch = outer.map(|outer| outer.when_cancelled(move || own.cancel()));
        let work = work(options);
        let future = drive(async move {
            let _watch = watch;
            work.await
        });
        Pending { future, cancels: Cancels(Some(cancel)) }
    }
}

impl<T: Send + 'static> Pending<T> {
    /// A function, which can be cancelled, also by the token of its options.
    pub(super) fn run<F>(options: &RunOptions, work: impl FnOnce(RunOptions) -> F) -> Self
    where
        F: Future<Output = Result<T, SessionError>> + Send + 'static,
    {
        Cancellable::new(options).run(work)
    }
}

impl<T> Pending<T> {
    pub(super) fn of(future: RequestFuture<Result<T, SessionError>>) -> Self {
        Self { future, cancels: Cancels(None) }
    }

    /// Asks that the function be stopped, and does not wait: [`wait`](Self::wait) tells when it has stopped.
    pub fn cancel(&self) {
        self.cancels.cancel();
    }

    /// Whether the result is there.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.future.is_done()
    }

    /// Waits for the result.
    pub fn wait(self) -> Result<T, SessionError> {
        let Self { future, cancels } = self;
        let result = block_on(future);
        drop(cancels);
        result
    }

    /// The result if it is there, else the request again.
    pub fn try_take(self) -> Result<Result<T, SessionError>, Self> {
        let Self { future, cancels } = self;
        future.try_take().map_err(|future| Self { future, cancels })
    }
}

impl Cancels {
    fn cancel(&self) {
        // Nobody hears it for a request that is over.
        if let Some(token) = &self.0 {
            token.cancel();
        }
    }
}

impl Drop for Cancels {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T, SessionError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.future).poll(context)
    }
}
