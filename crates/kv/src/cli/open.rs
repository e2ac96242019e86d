//! Opening a store by what a user writes.

use super::Failure;
use diskside::host::{ConnectOptions, Url, Volume};
use diskside_kv::port::Shared;
use diskside_kv::remote::RemotePushdown;
use diskside_kv::{KvError, Mode, Options, Pushdown, Store};
use std::path::Path;
use std::sync::Arc;

/// Opens a path or a URL.
pub(super) fn open(what: &str, options: &Options) -> Result<Store, Failure> {
    if !is_url(what) {
        return Ok(Store::open_file(Path::new(what), options)?);
    }
    let volume = volume(what)?;
    let pushdown: Option<Box<dyn Pushdown>> = match options.mode {
        Mode::Pushdown => Some(Box::new(RemotePushdown::new(volume.connection(), volume.nsid())?)),
        Mode::Plain | Mode::Async => None,
    };
    Ok(Store::open(Box::new(Shared(Arc::new(volume))), pushdown, options)?)
}

/// Connects to a volume.
pub(super) fn volume(url: &str) -> Result<Volume, Failure> {
    let parsed: Url = url.parse().map_err(|error| Failure::Usage(format!("{url}: {error}")))?;
    Volume::connect(&parsed, &ConnectOptions::default())
        .map_err(|error| KvError::Open { name: url.to_owned(), reason: error.to_string() }.into())
}

pub(super) fn is_url(what: &str) -> bool {
    what.contains("://")
}
