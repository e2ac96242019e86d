//! How file operations end.

use std::fmt;
use std::io;

use diskside_volume::cache::ObjectVersion;
use diskside_wire::file::FileOp;
use rustix::io::Errno;

/// How a file operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReply {
    /// What it returns, or why it failed.
    pub returned: Result<u64, FileError>,
    /// The result's bytes.
    pub result: Vec<u8>,
    /// Version of the file that it was about; 0 where there is none, or where it changed meanwhile.
    pub version: u64,
    /// Bytes of this write that survive power loss.
    pub durable_bytes: u64,
    /// The host wants nothing to be kept of this version: a cache of blocks of objects must drop it.
    pub dropped: Option<ObjectVersion>,
}

/// Why a file operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FileError {
    /// What the kernel said, or would have.
    pub errno: Errno,
    /// Whether the file changed while it was used: the bytes belong to no one version.
    pub changed: bool,
    /// What failed, and on which file.
    pub message: String,
}

impl FileError {
    /// A failure of `what` with `errno`; the message says both.
    pub(crate) fn new(errno: Errno, what: impl fmt::Display) -> Self {
        Self { errno, changed: false, message: format!("{what}: {}", io::Error::from(errno)) }
    }

    /// A failure with a reason of our own.
    pub(crate) fn because(errno: Errno, message: impl Into<String>) -> Self {
        Self { errno, changed: false, message: message.into() }
    }

    /// The host has no room for what it asked for.
    pub(crate) fn too_short(op: FileOp) -> Self {
        let message = format!("{op}: the result has no room for one record; ask for 4096 bytes or more");
        Self::because(Errno::INVAL, message)
    }

    /// The file changed while it was used.
    pub fn changed(path: &str) -> Self {
        let message = format!("{path} changed while it was read; read it again");
        Self { errno: Errno::STALE, changed: true, message }
    }
}

impl FileReply {
    /// Nothing but a return value.
    pub(crate) fn done(returned: u64) -> Self {
        Self { returned: Ok(returned), result: Vec::new(), version: 0, durable_bytes: 0, dropped: None }
    }
}

impl From<FileError> for FileReply {
    fn from(error: FileError) -> Self {
        Self { returned: Err(error), ..Self::done(0) }
    }
}
