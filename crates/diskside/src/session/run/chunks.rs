//! Chunks of an array as the input of a run.

use diskside_engine::{ChunkCodec, ChunkCodecs};
use diskside_wire::function::{ChunkCodec as WireCodec, ChunkInput};
use std::ops::Range;
use std::sync::Arc;

/// The files of a run are chunks of an array, in exports of one target. The function is called once on each, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunks {
    /// The codecs that decode them, in this order; none: they are plain.
    pub codecs: Vec<ChunkCodec>,
    /// Bytes of each when it is decoded, at most 128 MiB; of any other length it is an error.
    pub len_bytes: u64,
    /// Which range of its file each is, as in a shard, where a file is named once for each of its chunks; none: whole files.
    pub ranges: Vec<ChunkRange>,
}

/// A range of a file that is a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkRange {
    /// Which bytes.
    pub bytes: Range<u64>,
    /// The version of the file in which they are the chunk, as of that whose index says so; of any other it is an error. `None`:
    /// any, but one for ranges of a file that follow one another.
    pub version: Option<u64>,
}

impl Chunks {
    /// As a target is asked for them.
    pub(super) fn request(&self) -> ChunkInput {
        let codec = |codec: &ChunkCodec| match codec {
            ChunkCodec::Gzip => WireCodec::Gzip,
            ChunkCodec::Zstd => WireCodec::Zstd,
            ChunkCodec::Zlib => WireCodec::Zlib,
            ChunkCodec::Lz4 => WireCodec::Lz4,
            ChunkCodec::Blosc => WireCodec::Blosc,
            ChunkCodec::Crc32c => WireCodec::Crc32c,
        };
        let codecs = self.codecs.iter().map(codec).collect();
        ChunkInput { len: self.len_bytes, ranged: !self.ranges.is_empty(), codecs }
    }

    /// As this side decodes them.
    pub(super) fn codecs(&self) -> Arc<ChunkCodecs> {
        Arc::new(ChunkCodecs::new(self.codecs.clone(), self.len_bytes as usize))
    }

    /// Which range of its file a chunk is.
    pub(super) fn range(&self, index: usize) -> Option<&ChunkRange> {
        self.ranges.get(index)
    }

    /// Whether it names versions, which come no more once they are gone.
    pub(super) fn names_versions(&self) -> bool {
        self.ranges.iter().any(|range| range.version.is_some())
    }

    /// Bytes of a chunk in the mean; `None`: as many as its file has.
    pub(super) fn mean_len(&self) -> Option<u64> {
        let len = |range: &ChunkRange| range.bytes.end.saturating_sub(range.bytes.start);
        let bytes: u64 = self.ranges.iter().map(len).fold(0, u64::saturating_add);
        (!self.ranges.is_empty()).then(|| bytes / self.ranges.len() as u64)
    }
}
