//! The endpoints that calls read and write: volumes, files of exports, files on mounted volumes, memory, and the host's
//! streams.

pub(crate) mod files;
pub(crate) mod layout_sink;
pub(crate) mod layouts;
pub(crate) mod memory;
pub(crate) mod non_blocking;
pub(crate) mod sink;

use diskside_export::FileError;
use diskside_io::Errno;
use diskside_wire::function::Outcome;

/// Bytes that are collected before they are written.
pub(crate) const WRITE_BYTES: usize = 1 << 20;
/// Bytes written under one hold of their guard.
pub(crate) const HOLD_BYTES: usize = 256 << 10;

/// What was written in the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) written: u64,
    /// Bytes from the start of the output that are on stable media.
    pub(crate) durable: u64,
}

/// Why output could not be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SinkError {
    /// It does not fit the sinks.
    #[error("the output does not fit its sinks, which hold {0} bytes")]
    Full(u64),
    /// A volume failed.
    #[error("volume {name}, writing at byte {offset}: {errno}")]
    Volume { name: String, offset: u64, errno: Errno },
    /// The memory namespace could not be locked.
    #[error("memory, writing at byte {offset}: {what}")]
    Memory { offset: u64, what: String },
    /// A file failed.
    #[error("{0}")]
    File(FileError),
    /// Nothing may be written any more.
    #[error("{why}: {written} bytes are written")]
    Stopped { outcome: Outcome, why: &'static str, written: u64 },
}
