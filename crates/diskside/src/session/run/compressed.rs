//! Inputs that are compressed: which are, and what of them a function is given.

use super::job::Job;
use super::part::InputPart;
use super::{Decompress, Header, RunOptions};
use diskside_engine::{Codec, Source};
use diskside_io::stream::StreamPart;
use diskside_wire::function::{CompressedBy, Decompression, Endpoint};
use std::sync::Arc;

/// A file whose bytes are compressed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compressed {
    pub(super) codec: Codec,
    /// Which of the decompressed bytes the function is given.
    pub(super) part: InputPart,
}

impl Compressed {
    /// As a target is asked for it.
    pub(super) fn request(self) -> Decompression {
        let InputPart { start, end } = self.part;
        Decompression {
            by: match self.codec {
                Codec::Gzip => CompressedBy::Gzip,
                Codec::Zstd => CompressedBy::Zstd,
            },
            offset: start,
            len: end.map_or(Endpoint::TO_END, |end| end - start),
        }
    }

    /// The decompressed bytes of the source, in whole records where a delimiter ends them.
    pub(super) fn source(self, compressed: Source, delimiter: Option<u8>) -> Source {
        part_of(compressed.decompressed(Some(self.codec), None), self.part, delimiter)
    }
}

/// The request to a target for many files, each compressed in its own way or not.
pub(super) fn as_each_says(options: &RunOptions) -> Option<Decompression> {
    let by = match (options.decompress, options.header) {
        _ if options.chunks.is_some() => return None,
        (Decompress::Never, _) => return None,
        (Decompress::Auto, Header::Ignore) => CompressedBy::Any,
        (Decompress::Auto, _) => CompressedBy::AnyWithoutHeader,
        (Decompress::Only(Codec::Gzip), _) => CompressedBy::Gzip,
        (Decompress::Only(Codec::Zstd), _) => CompressedBy::Zstd,
    };
    Some(Decompression { by, offset: 0, len: Endpoint::TO_END })
}

/// A part of a source that is a stream.
pub(super) fn part_of(source: Source, part: InputPart, delimiter: Option<u8>) -> Source {
    match source {
        Source::Stream { name, stream } if !part.is_whole() => {
            Source::Stream { name, stream: Arc::new(StreamPart::new(stream, part.start, part.end, delimiter)) }
        }
        source => source,
    }
}

impl Job<'_> {
    /// The source that this side reads: of what is compressed, what it decompresses to.
    pub(super) fn readable(&self, source: Source) -> Source {
        match self.compressed {
            Some(compressed) => compressed.source(source, self.options.delimiter(self.function, self.args)),
            None => source,
        }
    }
}
