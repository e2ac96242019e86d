//! Waiting for a server that may have stopped answering.

use diskside_io::request::{run_here, run_here_while};
use diskside_sbpf::machine::CancelToken;
use std::time::{Duration, Instant};

/// How long the answer to a call is waited for after it was cancelled. A server stops a call within milliseconds, and says so.
const PATIENCE: Duration = Duration::from_millis(250);

/// How long a call is waited for: as long as it takes, until it is cancelled.
pub(super) struct Patience<'a> {
    cancel: Option<&'a CancelToken>,
    /// When it was seen to be cancelled.
    since: Option<Instant>,
}

impl<'a> Patience<'a> {
    /// With a call that this stops.
    pub(super) fn new(cancel: Option<&'a CancelToken>) -> Self {
        Self { cancel, since: None }
    }

    /// Runs a future to its end. `None`: the call was cancelled, and its server does not say that it has stopped.
    pub(super) fn wait<F: Future>(&mut self, future: F) -> Option<F::Output> {
        let Some(cancel) = self.cancel else { return Some(run_here(future)) };
        let thread = std::thread::current();
        let _watch = cancel.when_cancelled(move || thread.unpark());
        run_here_while(future, || {
            let since = cancel.is_cancelled().then(|| *self.since.get_or_insert_with(Instant::now));
            since.map(|since| PATIENCE.saturating_sub(since.elapsed()))
        })
    }
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
