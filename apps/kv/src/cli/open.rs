//! Opening a store by what a user writes.

use super::Failure;
use diskside::host::{ConnectOptions, HostError, Url, Volume};
use diskside_kv::mounted::MountedPushdown;
use diskside_kv::port::Shared;
use diskside_kv::remote::RemotePushdown;
use diskside_kv::{KvError, Mode, Options, Pushdown, Store};
use std::path::Path;
use std::sync::Arc;

/// Opens a path or a URL, to read it. A path may be on a mounted volume: then its target follows the pointers, if it can.
pub(super) fn open(what: &str, options: &Options, explain: bool) -> Result<Store, Failure> {
    if !is_url(what) {
        let path = Path::new(what);
        if options.mode == Mode::Pushdown {
            match MountedPushdown::new(path) {
                Ok(pushdown) => return Ok(Store::open_mounted(pushdown, options)?),
                Err(refusal) if explain => crate::say(format_args!("{what}: pointers are followed here: {refusal}")),
                Err(_) => {}
            }
        }
        return Ok(Store::open_file(path, options)?);
    }
    let volume = volume(what)?;
    let pushdown: Option<Box<dyn Pushdown>> = match options.mode {
        Mode::Pushdown => Some(Box::new(RemotePushdown::new(volume.connection(), volume.nsid())?)),
        Mode::Plain | Mode::Async => None,
    };
    Ok(Store::open(Box::new(Shared(Arc::new(volume))), pushdown, options)?)
}

/// Opens a path or a URL, to read and write it.
pub(super) fn open_to_write(what: &str, options: &Options) -> Result<Store, Failure> {
    if is_url(what) { open(what, options, false) } else { Ok(Store::open_file(Path::new(what), options)?) }
}

/// Connects to a volume.
pub(super) fn volume(url: &str) -> Result<Volume, Failure> {
    let parsed: Url = url.parse().map_err(|error| Failure::Usage(format!("{url}: {error}")))?;
    Volume::connect(&parsed, &ConnectOptions::default()).map_err(|error| match error {
        HostError::Url(_) | HostError::OtherKey { .. } | HostError::Incomplete { .. } => {
            Failure::Usage(format!("{url}: {error}"))
        }
        _ => KvError::Open { name: url.to_owned(), reason: error.to_string() }.into(),
    })
}

pub(super) fn is_url(what: &str) -> bool {
    what.contains("://")
}
