//! Calls under way, and how they are stopped.

use diskside_wire::function::FunctionCommand;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use diskside_io::request::{RequestFuture, block_on};
use diskside_nvme::wire::Sqe;

use super::compute::Compute;
use super::error::FunctionError;
use super::stream::CallOutcome;
use crate::connection::Lane;
use crate::job::CommandData;

/// Stops a call. Clones stop the same one; dropping them stops nothing.
#[derive(Clone, Debug)]
pub struct CallHandle {
    compute: Compute,
    tag: u64,
    lane: Lane,
    asked: Arc<AtomicBool>,
}

impl CallHandle {
    pub(super) fn new(compute: &Compute, tag: u64, lane: Lane) -> Self {
        Self { compute: compute.clone(), tag, lane, asked: Arc::default() }
    }

    /// The tag of the call: see [`Compute::cancel`].
    #[must_use]
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// Asks the target to stop the call, and does not wait: the outcome says that it has stopped, after which nothing
    /// of it runs or writes. A call that is over does not change.
    pub fn cancel(&self) {
        self.asked.store(true, Ordering::Relaxed);
        self.send();
    }

    /// A Cancel that overtook its request found nothing to stop: the caller who learns that the call continues asks
    /// again.
    pub(super) fn cancel_again(&self) {
        if self.asked.load(Ordering::Relaxed) {
            self.send();
        }
    }

    /// In the queue of the call: behind its request.
    fn send(&self) {
        let sqe = Sqe::function_cancel(self.compute.nsid(), self.tag, false, 0);
        let command = self.compute.command(sqe, CommandData::None);
        drop(self.compute.connection().command_on(self.lane, command));
    }
}

/// A call whose result is collected. Dropped before its end, it is cancelled.
#[derive(Debug)]
#[must_use = "dropped, it is cancelled"]
pub struct RemoteCall {
    /// `None`: it was waited for.
    future: Option<RequestFuture<Result<CallOutcome, FunctionError>>>,
    /// `None`: nothing was sent, or it is prepared and has no tag.
    handle: Option<CallHandle>,
}

impl RemoteCall {
    pub(super) fn new(future: RequestFuture<Result<CallOutcome, FunctionError>>, handle: Option<CallHandle>) -> Self {
        Self { future: Some(future), handle }
    }

    /// Stops the call, for others than its owner; `None` if it cannot be stopped.
    #[must_use]
    pub fn handle(&self) -> Option<CallHandle> {
        self.handle.clone()
    }

    /// Whether its outcome is there.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.future.as_ref().is_none_or(RequestFuture::is_done)
    }

    /// Asks the target to stop it; its outcome says when it has stopped: [`CallHandle::cancel`].
    pub fn cancel(&self) {
        if let Some(handle) = self.handle.as_ref().filter(|_| !self.is_done()) {
            handle.cancel();
        }
    }

    /// Waits for its outcome.
    pub fn wait(mut self) -> Result<CallOutcome, FunctionError> {
        block_on(self.future.take().expect("it is taken only here"))
    }
}

/// A prepared call, which has no tag to be stopped by.
impl From<RequestFuture<Result<CallOutcome, FunctionError>>> for RemoteCall {
    fn from(future: RequestFuture<Result<CallOutcome, FunctionError>>) -> Self {
        Self::new(future, None)
    }
}

impl Future for RemoteCall {
    type Output = Result<CallOutcome, FunctionError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(self.future.as_mut().expect("it is taken only by `wait`, with all of it")).poll(context)
    }
}

impl Drop for RemoteCall {
    fn drop(&mut self) {
        self.cancel();
    }
}
