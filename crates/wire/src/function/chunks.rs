//! Chunks of an array as the input of a call.

use super::field::FieldError;

/// Each source is an encoded chunk of an array, or a range of a file that is one. The program is called once on each, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkInput {
    /// Bytes of a decoded chunk.
    pub len: u64,
    /// Whether a first byte, a length and the file's version follow each path: the chunk is that range of that version.
    pub ranged: bool,
    /// In the order of decoding; none: chunks are as they are.
    pub codecs: Vec<ChunkCodec>,
}

/// A codec of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ChunkCodec {
    /// RFC 1952.
    Gzip = 1,
    /// RFC 8878.
    Zstd = 2,
    /// RFC 1950.
    Zlib = 3,
    /// The length in 4 bytes, and a block of LZ4.
    Lz4 = 4,
    /// A frame of Blosc 1.
    Blosc = 5,
    /// The bytes, and their CRC-32C in 4 bytes.
    Crc32c = 6,
}

/// The most codecs of a chunk.
const CODECS_MAX: usize = 8;
/// Bytes before the codecs.
const FIXED_LEN: usize = 9;

impl ChunkInput {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut value = self.len.to_le_bytes().to_vec();
        value.push(self.ranged.into());
        value.extend(self.codecs.iter().map(|codec| *codec as u8));
        value
    }

    pub(super) fn parse(value: &[u8], base: usize) -> Result<Self, FieldError> {
        let Some((fixed, codecs)) = value.split_first_chunk::<FIXED_LEN>() else {
            return Err(FieldError::new(
                base,
                "chunks have a length of 8 bytes, and a byte that says whether they are ranges",
            ));
        };
        let [len @ .., ranged] = *fixed;
        if ranged > 1 {
            return Err(FieldError::new(base + 8, "chunks are files (0) or ranges of them (1)"));
        }
        if codecs.len() > CODECS_MAX {
            return Err(FieldError::new(base + FIXED_LEN + CODECS_MAX, "a chunk has at most 8 codecs"));
        }
        let codec = |(index, number): (usize, &u8)| match number {
            1 => Ok(ChunkCodec::Gzip),
            2 => Ok(ChunkCodec::Zstd),
            3 => Ok(ChunkCodec::Zlib),
            4 => Ok(ChunkCodec::Lz4),
            5 => Ok(ChunkCodec::Blosc),
            6 => Ok(ChunkCodec::Crc32c),
            _ => Err(FieldError::new(
                base + FIXED_LEN + index,
                "codecs of chunks are 1 (gzip), 2 (zstd), 3 (zlib), 4 (lz4), 5 (blosc) and 6 (crc32c)",
            )),
        };
        let codecs = codecs.iter().enumerate().map(codec).collect::<Result<_, _>>()?;
        Ok(Self { len: u64::from_le_bytes(len), ranged: ranged == 1, codecs })
    }
}
