//! Ctrl-C: the first stops the function, wherever it runs; the second the command. And a deadline for what nothing can stop.

use crate::error::Failure;
use crate::output::say;
use diskside::sandbox::machine::CancelToken;
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Lets a write beyond the greatest length that files may have (`ulimit -f`) fail with an error, which names the file, instead
/// of ending the command.
pub(crate) fn survive_file_size_limit() {
    // Without it the signal does what it does to every command.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::<AtomicBool>::default());
}

/// A token that the first SIGINT or SIGTERM pulls.
pub(crate) fn cancel_on_signal() -> Result<CancelToken, Failure> {
    let failed = |error| Failure::Environment(format!("listening for signals: {error}"));
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let token = CancelToken::new();
    let pulled = token.clone();
    let listen = move || {
        for signal in signals.forever() {
            if pulled.is_cancelled() {
                std::process::exit(128 + signal);
            }
            say("diskside: stopping; once more ends this command at once");
            pulled.cancel();
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(listen).map_err(failed)?;
    Ok(token)
}

/// Ends the command when the deadline is long past before this is dropped: opening a file on a disk that hangs has no end of its own.
pub(crate) struct Watch(#[expect(dead_code, reason = "dropped, it ends the thread")] Option<Sender<()>>);

/// A deadline is the function's: opening files may take so much longer.
const OPENING_MAX: Duration = Duration::from_secs(5);

impl Watch {
    pub(crate) fn until(deadline: Option<Duration>) -> Result<Self, Failure> {
        let Some(deadline) = deadline else { return Ok(Self(None)) };
        let (over, is_over) = channel();
        let watch = move || {
            if is_over.recv_timeout(deadline.saturating_add(OPENING_MAX)) == Err(RecvTimeoutError::Timeout) {
                say("diskside: the deadline passed while files were opened");
                std::process::exit(Failure::Function(String::new()).exit_code().into());
            }
        };
        let failed = |error| Failure::Environment(format!("watching the deadline: {error}"));
        std::thread::Builder::new().name("deadline".into()).spawn(watch).map_err(failed)?;
        Ok(Self(Some(over)))
    }
}
