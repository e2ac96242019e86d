//! gzip and zstd: recognised by their first bytes, and decompressed step by step in bounded memory. Chunks of arrays: decoded
//! whole, by the codecs of Zarr. No I/O.
//!
//! Input may be several members of gzip, or several frames of zstd, one after another: they decompress to one stream,
//! as by gzip(1) and zstd(1). Garbage behind the last member of gzip is ignored, as by gzip(1); garbage behind the last
//! frame of zstd is an error, as by zstd(1).
//!
//! ```
//! use diskside_decompress::{Codec, Decoder};
//!
//! let compressed = [0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x03, 0x19, 0x00, 0x00, b'a', b'b', b'c'];
//! assert_eq!(Codec::of(&compressed), Some(Codec::Zstd));
//! let mut decoder = Decoder::new(Codec::Zstd)?;
//! let mut bytes = [0; 16];
//! let step = decoder.step(&compressed, &mut bytes)?;
//! assert_eq!((step.read, &bytes[..step.written]), (12, &b"abc"[..]));
//! decoder.finish()?;
//! # Ok::<(), diskside_decompress::Damage>(())
//! ```

#![forbid(unsafe_code)]

mod blosc;
mod chunk;
mod gzip;
mod zstandard;

pub use chunk::{ChunkCodec, ChunkCodecs, ChunkDamage, ChunkDecoder, Turn};
use gzip::Gzip;
use zstandard::Zstandard;

/// How bytes are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
}

impl Codec {
    /// So many first bytes tell everything.
    pub const HEAD_LEN: usize = 32;

    /// How bytes are compressed that begin with these; `None` when they do not say.
    #[must_use]
    pub fn of(head: &[u8]) -> Option<Self> {
        if Gzip::is_begun_by(head) {
            Some(Self::Gzip)
        } else if Zstandard::is_begun_by(head) {
            Some(Self::Zstd)
        } else {
            None
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// The most bytes that a [`Decoder`] holds.
    #[must_use]
    pub fn memory_bytes(self) -> u64 {
        match self {
            Self::Gzip => Gzip::MEMORY_BYTES,
            Self::Zstd => Zstandard::MEMORY_BYTES,
        }
    }
}

/// Why compressed bytes do not decompress.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// They cannot be what they pretend to be.
    #[error("the {} data is damaged at byte {at}: {what}", .codec.name())]
    Corrupt {
        /// What they pretend to be.
        codec: Codec,
        /// Where in the compressed bytes that was noticed.
        at: u64,
        /// What is wrong.
        what: String,
    },
    /// They end before what they begin does.
    #[error("the {} data is cut off: it ends at byte {at}, in the middle of a {}", .codec.name(), unit(*.codec))]
    CutOff {
        /// What they are.
        codec: Codec,
        /// Bytes that there are.
        at: u64,
    },
}

fn unit(codec: Codec) -> &'static str {
    match codec {
        Codec::Gzip => "member",
        Codec::Zstd => "frame",
    }
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Bytes of the input that are done.
    pub read: usize,
    /// Bytes of the output that were made.
    pub written: usize,
}

/// Decompresses a stream.
pub struct Decoder {
    codec: Codec,
    inner: Inner,
    read_bytes: u64,
}

enum Inner {
    Gzip(Gzip),
    Zstd(Zstandard),
}

/// The error in the input of a step, and after how many bytes of it.
struct Wrong {
    read: usize,
    what: String,
}

impl Decoder {
    /// For a stream from its beginning.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(codec: Codec) -> Result<Self, Damage> {
        let inner = match codec {
            Codec::Gzip => Inner::Gzip(Gzip::new()),
            Codec::Zstd => Inner::Zstd(Zstandard::new().map_err(|error| Damage::Corrupt {
                codec,
                at: 0,
                what: error.to_string(),
            })?),
        };
        Ok(Self { codec, inner, read_bytes: 0 })
    }

    /// Decompresses some of the input. It does nothing only when the input or the room for output is used up.
    ///
    /// # Errors
    /// The input is damaged. Nothing comes after it.
    pub fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, Damage> {
        let step = match &mut self.inner {
            Inner::Gzip(gzip) => gzip.step(input, output),
            Inner::Zstd(zstd) => zstd.step(input, output),
        };
        let step = step.map_err(|Wrong { read, what }| Damage::Corrupt {
            codec: self.codec,
            at: self.read_bytes + read as u64,
            what,
        })?;
        self.read_bytes += step.read as u64;
        Ok(step)
    }

    /// There is no more input.
    ///
    /// # Errors
    /// It was cut off.
    pub fn finish(&self) -> Result<(), Damage> {
        let is_whole = match &self.inner {
            Inner::Gzip(gzip) => gzip.is_whole(),
            Inner::Zstd(zstd) => zstd.is_whole(),
        };
        if is_whole { Ok(()) } else { Err(Damage::CutOff { codec: self.codec, at: self.read_bytes }) }
    }

    /// Whether something follows the last member that is none.
    #[must_use]
    pub fn has_garbage(&self) -> bool {
        matches!(&self.inner, Inner::Gzip(gzip) if gzip.has_garbage())
    }
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").field("codec", &self.codec).field("read_bytes", &self.read_bytes).finish()
    }
}
