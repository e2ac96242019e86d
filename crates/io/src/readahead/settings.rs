//! The settings of read-ahead.

use crate::buffer::Hugepages;

/// More chunks than this are not read at once, whatever is asked for.
pub(super) const DEPTH_MAX: usize = 1024;

/// How a file is read ahead.
#[derive(Clone, Debug)]
pub struct ReadAhead {
    /// Bytes of a chunk; the last may be shorter. At least 1.
    pub chunk_bytes: usize,
    /// Chunks read, or being read, before the consumer asks for them. At least 1; more than 1,024 are taken as 1,024.
    pub depth: usize,
    /// Bytes that the first chunk has more than the others, such as one that tells whether a record begins behind it.
    pub lead_bytes: usize,
    /// Free bytes behind each chunk, for [`Chunk::append`](super::Chunk::append).
    pub tailroom_bytes: usize,
    /// Through the page cache or past it.
    pub access: Access,
    /// Whether to ask for huge pages for the buffers.
    pub hugepages: Hugepages,
}

/// Through the page cache or past it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// `O_DIRECT` where the file system allows it and less than half of the range is cached; else buffered. An open file that
    /// can also be written is read through its descriptor alone: that may have to be the only one.
    #[default]
    Auto,
    /// Through the page cache.
    Buffered,
    /// With `O_DIRECT`; an error where the file system refuses it.
    Direct,
}

impl Default for ReadAhead {
    fn default() -> Self {
        Self {
            chunk_bytes: 8 << 20,
            depth: 3,
            lead_bytes: 0,
            tailroom_bytes: 0,
            access: Access::Auto,
            hugepages: Hugepages::Ask,
        }
    }
}
