//! SIGHUP: the configuration is read anew, and takes effect whole or not at all.

use crate::error::Failure;
use crate::journal::WARNING;
use crate::output::{say, say_at};
use diskside::target::config::{ConfigError, ServeConfig};
use diskside::target::service::Service;
use diskside::target::{Handle, Reloaded};
use signal_hook::consts::SIGHUP;
use signal_hook::iterator::Signals;
use std::sync::Arc;

/// Reads it at each SIGHUP. What cannot be is said, and nothing changes.
pub(super) fn on_hangup(
    handle: Handle,
    at_start: ServeConfig,
    service: Arc<Service>,
    resolve: impl Fn() -> Result<ServeConfig, ConfigError> + Send + 'static,
) -> Result<signal_hook::iterator::Handle, Failure> {
    let failed = Failure::environment("listening for signals");
    let mut signals = Signals::new([SIGHUP]).map_err(&failed)?;
    let closer = signals.handle();
    let listen = move || {
        for _ in signals.forever() {
            service.reloading();
            let reloaded = resolve().map_err(|e| e.to_string());
            match reloaded.and_then(|config| handle.reload(&config).map_err(|e| e.to_string())) {
                Ok(reloaded) => say(format_args!("diskside: the configuration was read again{}", told(&reloaded))),
                Err(error) => {
                    let hint = if at_start.confine && error.contains("Permission denied") { CONFINED_TO } else { "" };
                    say_at(WARNING, format_args!("diskside: the configuration stays as it was: {error}{hint}"));
                }
            }
            service.ready(&super::status(&handle));
        }
    };
    std::thread::Builder::new().name("reload".into()).spawn(listen).map_err(failed)?;
    Ok(closer)
}

fn told(Reloaded { added, removed, waiting, .. }: &Reloaded) -> String {
    let mut text = String::new();
    for (what, names) in [("served now", added), ("not served any more", removed)] {
        if !names.is_empty() {
            text += &format!("; {what}: {}", names.join(", "));
        }
    }
    if !waiting.is_empty() {
        text += &format!("; changed, and as they were until the server is started again: {}", waiting.join(", "));
    }
    text
}

const CONFINED_TO: &str = "; a server reaches only the directories of the files that it had at its start: for keys, an audit \
    file or a configuration elsewhere start it again";
