//! Why a file or a stream could not be read.

use std::io;
use std::path::PathBuf;

/// Why a range could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file could not be opened or looked at.
    #[error("cannot open {}: {source}", path.display())]
    Open {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It cannot be read by position.
    #[error("{} is a {kind}: read-ahead needs a regular file or a block device", path.display())]
    NotAFile {
        /// Which file.
        path: PathBuf,
        /// What it is instead.
        kind: &'static str,
    },
    /// The range asked for is not in the file.
    #[error("bytes {start}..{end} are not in {}, which has {len} bytes", path.display())]
    OutOfRange {
        /// Which file.
        path: PathBuf,
        /// Start of the range.
        start: u64,
        /// End of the range.
        end: u64,
        /// Length of the file.
        len: u64,
    },
    /// The file became shorter while it was read.
    #[error("{} was shortened while it was read: it ends at byte {found}, {expected} bytes were expected", path.display())]
    Shrunk {
        /// Which file.
        path: PathBuf,
        /// Where the file ends now.
        found: u64,
        /// The end of the range.
        expected: u64,
    },
    /// What was being read is no longer what it was.
    #[error("{} changed while it was read: {how}", path.display())]
    Changed {
        /// What was read.
        path: PathBuf,
        /// How that shows.
        how: String,
    },
    /// What was read is not what it has to be.
    #[error("{}: {how}", path.display())]
    Damaged {
        /// What was read.
        path: PathBuf,
        /// What is wrong, and where.
        how: String,
    },
    /// A read failed.
    #[error("reading {} at byte {offset}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Position in bytes.
        offset: u64,
        /// What the system said.
        source: io::Error,
    },
    /// Nobody wants it any more, as [`ChunkReader::next_unless`](super::ChunkReader::next_unless) was told.
    #[error("reading was stopped")]
    Stopped,
    /// The ring or its thread could not be made, or a parameter is out of bounds.
    #[error("read-ahead: {0}")]
    Setup(#[from] io::Error),
}
