//! Waiting for a server that may have stopped answering.

use super::alarm::Alarm;
use diskside_io::request::run_here;
use diskside_sbpf::machine::CancelToken;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, Instant};

/// How long the answer to a call is waited for after it was cancelled. A server stops a call within milliseconds, and says so.
const PATIENCE: Duration = Duration::from_millis(250);

/// How long a call is waited for: as long as it takes, until it is cancelled.
pub(super) struct Patience<'a> {
    cancel: Option<&'a CancelToken>,
    /// How long after that.
    left: Duration,
    /// When it was seen to be cancelled.
    since: Option<Instant>,
}

impl<'a> Patience<'a> {
    /// With a call that this stops.
    pub(super) fn new(cancel: Option<&'a CancelToken>) -> Self {
        Self { cancel, left: PATIENCE, since: None }
    }

    /// With what need not say that it has stopped.
    pub(super) fn none(cancel: Option<&'a CancelToken>) -> Self {
        Self { left: Duration::ZERO, ..Self::new(cancel) }
    }

    /// The outcome of a future. `None`: the call was cancelled, and its server does not say that it has stopped.
    pub(super) async fn answer<F: Future>(&mut self, future: F) -> Option<F::Output> {
        let Some(cancel) = self.cancel else { return Some(future.await) };
        let (mut future, mut watch, mut alarm) = (pin!(future), None, None);
        poll_fn(|context| {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(Some(output));
            }
            if watch.is_none() {
                // The task that polls this keeps its waker.
                let waker = context.waker().clone();
                watch = Some(cancel.when_cancelled(move || waker.wake()));
            }
            if !cancel.is_cancelled() {
                return Poll::Pending;
            }
            let until = *self.since.get_or_insert_with(Instant::now) + self.left;
            Pin::new(alarm.get_or_insert_with(|| Alarm::at(until))).poll(context).map(|()| None)
        })
        .await
    }

    /// The same in a thread that waits.
    pub(super) fn wait<F: Future>(&mut self, future: F) -> Option<F::Output> {
        run_here(self.answer(future))
    }
}

/// The outcome of a future that comes before a time.
pub(super) async fn before<F: Future>(until: Option<Instant>, future: F) -> Option<F::Output> {
    let (mut future, mut alarm) = (pin!(future), until.map(Alarm::at));
    poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        alarm.as_mut().map_or(Poll::Pending, |alarm| Pin::new(alarm).poll(context).map(|()| None))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ctrl-C on a scan at a server that had stopped answering was without effect for as long as that was silent.
    #[test]
    fn a_call_that_was_cancelled_is_not_waited_for_without_end() {
        let cancel = CancelToken::new();
        let mut patience = Patience::new(Some(&cancel));
        assert_eq!(patience.wait(async { 7 }), Some(7));
        let canceller = cancel.clone();
        let cancelling = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            canceller.cancel();
        });
        let began = Instant::now();
        assert_eq!(patience.wait(std::future::pending::<()>()), None);
        assert!(began.elapsed() >= PATIENCE, "a server has some time to say that it has stopped");
        cancelling.join().unwrap();
        // All pieces of a call share its patience; what is there is taken.
        assert_eq!((patience.wait(async { 8 }), patience.wait(std::future::pending::<()>())), (Some(8), None));
        assert!(Patience::new(None).wait(async {}).is_some());
    }
}
