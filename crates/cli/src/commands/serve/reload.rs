//! SIGHUP: the configuration is read again, and takes effect whole or not at all.

use crate::error::Failure;
use crate::journal::WARNING;
use crate::output::{say, say_at};
use diskside::target::config::{ConfigError, ServeConfig};
use diskside::target::service::Service;
use diskside::target::{Handle, Reloaded};
use signal_hook::consts::SIGHUP;
use signal_hook::iterator::Signals;
use std::sync::Arc;

/// A configuration as it was read.
pub(super) struct Resolved {
    pub(super) config: ServeConfig,
    /// Whether `security.require` was written, and does not follow from the keys of hosts.
    pub(super) is_require_written: bool,
    /// Whether the file says where to listen, and flags say otherwise.
    pub(super) is_listen_overridden: bool,
}

pub(super) const LISTEN_OVERRIDDEN: &str =
    "listen: --listen takes the place of the file's, whose addresses and states of paths have no effect";

/// Takes down SIGHUP from now on, when a server has only begun to start: one that came before anybody listened ended it.
pub(super) fn hangups() -> Result<Signals, Failure> {
    Signals::new([SIGHUP]).map_err(Failure::environment("listening for signals"))
}

/// Reads it at each SIGHUP. What cannot be is said, and nothing changes.
pub(super) fn on_hangup(
    mut hangups: Signals,
    handle: Handle,
    at_start: ServeConfig,
    service: Arc<Service>,
    resolve: impl Fn() -> Result<Resolved, ConfigError> + Send + 'static,
) -> Result<signal_hook::iterator::Handle, Failure> {
    let closer = hangups.handle();
    let listen = move || {
        for _ in hangups.forever() {
            service.reloading();
            let reloaded = resolve().map_err(|e| e.to_string());
            if reloaded.as_ref().is_ok_and(|new| new.is_listen_overridden) {
                say_at(WARNING, format_args!("diskside: {LISTEN_OVERRIDDEN}"));
            }
            let careful = reloaded.and_then(|new| check(&handle.config(), &new).map(|()| new.config));
            match careful.and_then(|config| handle.reload(&config).map_err(|e| e.to_string())) {
                Ok(reloaded) => {
                    say(format_args!("diskside: the configuration was read again{}", told(&reloaded)));
                    reloaded.failed.iter().for_each(|why| {
                        say_at(
                            WARNING,
                            format_args!(
                                "diskside: of the new configuration this failed, and the next reload tries again: {why}"
                            ),
                        );
                    });
                    for volume in handle.volumes().iter().filter(|volume| !volume.medium.has_name()) {
                        let what = "its file was removed: all that hosts write is lost when the server ends";
                        say_at(WARNING, format_args!("diskside: volume `{}`: {what}", volume.name));
                    }
                    let warnings = handle.config().warnings();
                    warnings.iter().for_each(|warning| say_at(WARNING, format_args!("diskside: {warning}")));
                }
                Err(error) => {
                    let hint = if at_start.confine && error.contains("Permission denied") { CONFINED_TO } else { "" };
                    handle.tell_not_reloaded(&error);
                    say_at(WARNING, format_args!("diskside: the configuration stays as it was: {error}{hint}"));
                }
            }
            service.ready(&super::status(&handle));
        }
    };
    std::thread::Builder::new()
        .name("reload".into())
        .spawn(listen)
        .map_err(Failure::environment("the thread that reloads"))?;
    Ok(closer)
}

/// Refuses a file that looks cut off, or whose end was lost by mistake: a server that runs does not take it.
fn check(now: &ServeConfig, new: &Resolved) -> Result<(), String> {
    let Resolved { config: new, is_require_written, .. } = new;
    let serves = |config: &ServeConfig| !config.volumes.is_empty() || !config.exports.is_empty();
    if serves(now) && !serves(new) {
        return Err("it serves nothing any more, neither a volume nor an export: is it whole? To serve nothing, stop the server".into());
    }
    if !now.grants.is_empty() && new.grants.is_empty() {
        return Err(NO_GRANT.to_owned());
    }
    let again = "or, if that is meant, start the server again";
    let (before, after) = (&now.security, &new.security);
    if !before.require_signed_by.is_empty() && after.require_signed_by.is_empty() {
        return Err(format!(
            "security.require_signed_by is gone, and programs that nobody signed would run: name a key, {again}"
        ));
    }
    if after.require < before.require && !is_require_written {
        return Err(format!(
            "hosts would have to prove less than before, and no security.require says so: write it, {again}"
        ));
    }
    if !now.known_hosts.is_empty() && new.known_hosts.is_empty() && !new.authenticates_hosts() {
        return Err(format!("no [[host]] is left, so everybody would be let in: keep one, {again}"));
    }
    Ok(())
}

const NO_GRANT: &str = "no [[grant]] is left, and without any every host that is let in may use and change all that is served: \
    keep one, such as to = [\"*\"] with what all may, or start the server again";

fn told(Reloaded { added, removed, let_in, let_out, paths, waiting, failed: _ }: &Reloaded) -> String {
    let mut text = String::new();
    let all = [
        ("served now", added),
        ("not served any more", removed),
        ("hosts let in", let_in),
        ("hosts not let in any more", let_out),
        ("paths", paths),
    ];
    for (what, names) in all {
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
