//! Ctrl-C: the first stops the function, wherever it runs; the second the command.

use crate::error::Failure;
use diskside::sandbox::machine::CancelToken;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

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
            eprintln!("diskside: stopping; once more ends this command at once");
            pulled.cancel();
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(listen).map_err(failed)?;
    Ok(token)
}
