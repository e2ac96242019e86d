//! Waiting for a server that may have stopped answering.

use diskside_io::request::{run_here, run_here_while};
use diskside_sbpf::machine::CancelToken;
use std::time::{Duration, Instant};

/// How long the answer to a call is waited for after it was cancelled. A server stops a call within milliseconds, and says so.
const PATIENCE: Duration = Duration::from_millis(250);

/// Runs a future to its end. `None`: it was cancelled, and the server does not say that it has stopped.
pub(super) fn run_unless_cancelled<F: Future>(future: F, cancel: Option<&CancelToken>) -> Option<F::Output> {
    let Some(cancel) = cancel else { return Some(run_here(future)) };
    let thread = std::thread::current();
    let _watch = cancel.when_cancelled(move || thread.unpark());
    let mut since = None;
    run_here_while(future, || {
        let is_cancelled = cancel.is_cancelled();
        is_cancelled.then(|| PATIENCE.saturating_sub(since.get_or_insert_with(Instant::now).elapsed()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ctrl-C on a scan at a server that had stopped answering was without effect for as long as that was silent.
    #[test]
    fn a_call_that_was_cancelled_is_not_waited_for_without_end() {
        assert_eq!(run_unless_cancelled(async { 7 }, Some(&CancelToken::new())), Some(7));
        let cancel = CancelToken::new();
        let canceller = cancel.clone();
        let cancelling = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            canceller.cancel();
        });
        let began = Instant::now();
        assert_eq!(run_unless_cancelled(std::future::pending::<()>(), Some(&cancel)), None);
        assert!(began.elapsed() >= PATIENCE, "a server has some time to say that it has stopped");
        cancelling.join().unwrap();
        // The next piece of the same call has its own patience, and what is there is taken.
        assert_eq!(run_unless_cancelled(async { 8 }, Some(&cancel)), Some(8));
    }
}
