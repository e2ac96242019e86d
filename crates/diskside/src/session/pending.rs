//! Work that goes on elsewhere.

use super::error::SessionError;
use diskside_io::request::{RequestFuture, block_on, promise};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The result of a request, now or later: poll it, wait for it, or await it. Dropping it gives the result up.
#[derive(Debug)]
pub struct Pending<T> {
    future: RequestFuture<Result<T, SessionError>>,
}

impl<T: Send + 'static> Pending<T> {
    /// Work for a thread of its own.
    pub(super) fn spawn(work: impl FnOnce() -> Result<T, SessionError> + Send + 'static) -> Self {
        let (promise, future) = promise();
        let spawned = std::thread::Builder::new().name("diskside".into()).spawn(move || promise.complete(work()));
        // Without a thread the promise is gone, and says that the request was lost.
        drop(spawned);
        Self { future }
    }
}

impl<T> Pending<T> {
    pub(super) fn of(future: RequestFuture<Result<T, SessionError>>) -> Self {
        Self { future }
    }

    /// Whether the result is there.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.future.is_done()
    }

    /// Waits for the result.
    pub fn wait(self) -> Result<T, SessionError> {
        block_on(self.future)
    }

    /// The result if it is there, else the request again.
    pub fn try_take(self) -> Result<Result<T, SessionError>, Self> {
        self.future.try_take().map_err(|future| Self { future })
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T, SessionError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.future).poll(context)
    }
}
