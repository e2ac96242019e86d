//! What goes wrong with a store.

use std::io;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KvError {
    /// The store's bytes cannot be read or written.
    #[error("{what} at offset {offset}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Where.
        offset: u64,
        /// Why it failed.
        source: io::Error,
    },
    /// The file or volume cannot be opened.
    #[error("{name}: {reason}")]
    Open {
        /// Which.
        name: String,
        /// Why.
        reason: String,
    },
    /// The bytes are not a store, or a damaged one.
    #[error("not a sound store: {what} at offset {offset}")]
    Format {
        /// Where.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The holder of the data could not follow the pointers.
    #[error("pushed down: {0}")]
    Pushdown(String),
    /// What was asked for cannot be.
    #[error("{0}")]
    Usage(String),
}
