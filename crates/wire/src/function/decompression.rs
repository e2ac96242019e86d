//! The decompression of compressed sources, as a request states it.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::endpoint::Endpoint;
use super::field::FieldError;

/// The sources are compressed, and the input is what they decompress to. Each is decompressed from its first byte to its
/// last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decompression {
    /// How they are compressed.
    pub by: CompressedBy,
    /// The first of the decompressed bytes that is input, of each source.
    pub offset: u64,
    /// How many are; [`Endpoint::TO_END`]: to the end.
    pub len: u64,
}

/// How bytes are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CompressedBy {
    /// gzip.
    Gzip = 1,
    /// zstd.
    Zstd = 2,
    /// Each source as its first bytes say; one that is neither is as it is.
    Any = 3,
    /// The same, and a file by its path that begins with a NumPy header, which a host leaves out, ends the call with
    /// `EOPNOTSUPP`.
    AnyWithoutHeader = 4,
}

/// A [`Decompression`] as it is sent.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct DecompressionValue {
    by: u8,
    reserved1: [u8; 7],
    offset: U64,
    len: U64,
}
const _: () = assert!(size_of::<DecompressionValue>() == 24);

impl DecompressionValue {
    pub(super) fn new(decompression: &Decompression) -> Self {
        let Decompression { by, offset, len } = *decompression;
        Self { by: by as u8, reserved1: [0; 7], offset: U64::new(offset), len: U64::new(len) }
    }

    pub(super) fn parse(&self, base: usize) -> Result<Decompression, FieldError> {
        let by = match self.by {
            1 => CompressedBy::Gzip,
            2 => CompressedBy::Zstd,
            3 => CompressedBy::Any,
            4 => CompressedBy::AnyWithoutHeader,
            _ => {
                return Err(FieldError::new(
                    base,
                    "sources are compressed by 1 (gzip), 2 (zstd) or 3 or 4 (either, or not)",
                ));
            }
        };
        if self.reserved1 != [0; 7] {
            return Err(FieldError::new(base + 1, "reserved bytes are zero"));
        }
        let (offset, len) = (self.offset.get(), self.len.get());
        if len != Endpoint::TO_END && offset.checked_add(len).is_none() {
            return Err(FieldError::new(base + 16, "the range ends behind 2^64"));
        }
        Ok(Decompression { by, offset, len })
    }
}
