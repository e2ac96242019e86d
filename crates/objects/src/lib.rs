//! Objects of remote stores, `s3://BUCKET/KEY` or `https://HOST/PATH`: read by ranges, each read in one version.
//!
//! A store is spoken to by a process of its own, `diskside-objects`, which has the network, the libraries for it and the
//! credentials; it is this package's program, built with the feature `store`. Here is what a server needs: a [`Store`], which has a
//! pipe to such a process, and the [`frames`] that travel on it. A version that is read with has to be the object's
//! still, so an object that is replaced fails reads with `ESTALE`: they never mix two versions.

#![forbid(unsafe_code)]

pub mod frames;
mod process;
mod store;

pub use frames::{Ask, Entry, Kind, Meta, READ_LEN_MAX, Reply};
pub use process::{files_of_connections, program};
pub use store::{Answered, Asker, Page, Store, StoreError};

/// Whether a text names an object, or what is below a key, and no file of this machine.
#[must_use]
pub fn is_url(text: &str) -> bool {
    ["s3://", "https://", "http://"].iter().any(|scheme| text.starts_with(scheme))
}

/// Whether what is below a URL can be listed: web servers have no way to ask for that.
#[must_use]
pub fn has_lists(url: &str) -> bool {
    url.starts_with("s3://")
}
