//! Chunks of arrays: each is decoded whole, by the codecs that its array names, to a length that is known before.
//!
//! So no chunk makes more than it may, whatever its bytes say.

use super::blosc;
use super::{Codec, Decoder};
use crc_fast::CrcAlgorithm::{Crc32Iscsi, Crc32IsoHdlc};
use flate2::{Decompress, FlushDecompress, Status};

/// A codec of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChunkCodec {
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
    /// RFC 1950.
    Zlib,
    /// The length in 4 bytes, lowest first, and a block of LZ4.
    Lz4,
    /// A frame of Blosc 1, compressed by LZ4, zlib or Zstandard.
    Blosc,
    /// The bytes, and their CRC-32C in 4 bytes, lowest first.
    Crc32c,
}

impl ChunkCodec {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Zlib => "zlib",
            Self::Lz4 => "lz4",
            Self::Blosc => "blosc",
            Self::Crc32c => "crc32c",
        }
    }
}

/// How the chunks of an array are encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkCodecs {
    codecs: Vec<ChunkCodec>,
    len: usize,
}

/// Why a chunk cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChunkDamage {
    /// A codec does not take its bytes.
    #[error("the {} data of the chunk is damaged: {what}", .codec.name())]
    Corrupt {
        /// Which codec.
        codec: ChunkCodec,
        /// What is wrong.
        what: String,
    },
    /// It is not as long as chunks of its array are.
    #[error("the chunk decodes to {found} bytes, and those of its array have {wanted}")]
    Length {
        /// Bytes that it has.
        found: usize,
        /// Bytes that it ought to have.
        wanted: usize,
    },
    /// The giver of turns has ended it.
    #[error("decoding was stopped")]
    Stopped,
}

/// Runs a step of decoding when it is its turn; false ends it.
pub type Turn<'a> = &'a mut dyn FnMut(&mut dyn FnMut()) -> bool;

/// Bytes that are made in a turn, more or less: of gzip and zlib, and of long chunks of zstd.
const STEP_LEN: usize = 256 << 10;
/// The longest chunks of zstd and of gzip that are decoded in one turn, which is faster: some 10 ms.
const ONE_TURN_LEN_MAX: usize = 16 << 20;
const ONE_TURN_GZIP_LEN_MAX: usize = 8 << 20;

impl ChunkCodecs {
    /// Codecs in the order of decoding, and the bytes of a decoded chunk.
    #[must_use]
    pub fn new(codecs: Vec<ChunkCodec>, len: usize) -> Self {
        Self { codecs, len }
    }

    /// Bytes of a decoded chunk.
    #[must_use]
    pub fn decoded_len(&self) -> usize {
        self.len
    }

    /// The most bytes of an encoded chunk, and of what some of its codecs have decoded: what cannot be made smaller
    /// becomes a little longer.
    #[must_use]
    pub fn encoded_len_max(&self) -> usize {
        if self.codecs.is_empty() { self.len } else { self.len.saturating_add(self.len / 16 + (64 << 10)) }
    }

    /// The most bytes that a [`ChunkDecoder`] holds.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let rooms = match self.codecs.iter().filter(|codec| **codec != ChunkCodec::Crc32c).count() {
            0 => 0,
            1 => 1,
            _ => 2,
        };
        // Those of blocks that are shuffled, which may be as long as the chunk.
        let shuffled = if self.codecs.contains(&ChunkCodec::Blosc) { 2 } else { 0 };
        (rooms + shuffled) * self.encoded_len_max() as u64 + Codec::Zstd.memory_bytes()
    }
}

/// Decodes chunks, and keeps its memory from one to the next.
#[derive(Default)]
pub struct ChunkDecoder {
    rooms: [Vec<u8>; 2],
    blosc: blosc::Room,
    zstd: Option<zstd::bulk::Decompressor<'static>>,
    gzip: Option<libdeflater::Decompressor>,
}

impl ChunkDecoder {
    /// The decoded bytes of a chunk.
    ///
    /// # Errors
    /// It is damaged, or of another length; or a turn ended it.
    pub fn decode<'a>(
        &'a mut self,
        codecs: &ChunkCodecs,
        bytes: &'a [u8],
        turn: Turn<'_>,
    ) -> Result<&'a [u8], ChunkDamage> {
        let Self { rooms: [first, second], blosc, zstd, gzip } = self;
        let (mut from, mut to) = (first, second);
        // The bytes that were decoded so far are still in those that were given.
        let mut given = Some(bytes);
        for (index, codec) in codecs.codecs.iter().enumerate() {
            let input = given.unwrap_or(&from[..]);
            let corrupt = |what: String| match what.is_empty() {
                true => ChunkDamage::Stopped,
                false => ChunkDamage::Corrupt { codec: *codec, what },
            };
            if *codec == ChunkCodec::Crc32c {
                let checked = checked(input).map_err(corrupt)?.len();
                match &mut given {
                    Some(bytes) => *bytes = &bytes[..checked],
                    None => from.truncate(checked),
                }
                continue;
            }
            let rest = &codecs.codecs[index + 1..];
            let is_last = rest.iter().all(|codec| *codec == ChunkCodec::Crc32c);
            let most = if is_last { codecs.len + 4 * rest.len() } else { codecs.encoded_len_max() };
            to.resize(most, 0);
            let len = match codec {
                ChunkCodec::Gzip => gzip_of(gzip, input, to, turn),
                ChunkCodec::Zstd => zstd_of(zstd, input, to, turn),
                ChunkCodec::Zlib => zlib(input, to, turn),
                ChunkCodec::Lz4 => in_turn(turn, || lz4(input, to)).flatten(),
                ChunkCodec::Blosc => blosc::decode(input, to, blosc, turn),
                ChunkCodec::Crc32c => unreachable!("it was checked above"),
            };
            to.truncate(len.map_err(corrupt)?);
            given = None;
            std::mem::swap(&mut from, &mut to);
        }
        let decoded = match given {
            Some(bytes) => bytes,
            None => &from[..],
        };
        match decoded.len() {
            len if len == codecs.len => Ok(decoded),
            found => Err(ChunkDamage::Length { found, wanted: codecs.len }),
        }
    }
}

impl std::fmt::Debug for ChunkDecoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChunkDecoder").finish_non_exhaustive()
    }
}

/// The result of a step. An empty error: it was stopped.
pub(super) fn in_turn<T>(turn: Turn<'_>, work: impl FnOnce() -> T) -> Result<T, String> {
    let (mut work, mut result) = (Some(work), None);
    let goes_on = turn(&mut || result = work.take().map(|work| work()));
    result.filter(|_| goes_on).ok_or_else(String::new)
}

pub(super) fn too_long(most: usize) -> String {
    format!("it decodes to more than the {most} bytes that there may be")
}

/// The bytes before a checksum.
fn checked(bytes: &[u8]) -> Result<&[u8], String> {
    let Some((bytes, told)) = bytes.split_last_chunk::<4>() else {
        return Err(format!("{} bytes have no room for a checksum", bytes.len()));
    };
    let (told, found) = (u32::from_le_bytes(*told), crc_fast::checksum(Crc32Iscsi, bytes) as u32);
    if told == found {
        Ok(bytes)
    } else {
        Err(format!("its checksum says {told:08x}, and that of its bytes is {found:08x}"))
    }
}

fn lz4(bytes: &[u8], out: &mut [u8]) -> Result<usize, String> {
    let Some((told, block)) = bytes.split_first_chunk::<4>() else {
        return Err(format!("{} bytes have no room for its length", bytes.len()));
    };
    let (told, most) = (u32::from_le_bytes(*told) as usize, out.len());
    let out = out.get_mut(..told).ok_or_else(|| too_long(most))?;
    match lz4_flex::block::decompress_into(block, out) {
        Ok(len) if len == told => Ok(len),
        Ok(len) => Err(format!("it says that it decodes to {told} bytes, and decodes to {len}")),
        Err(error) => Err(error.to_string()),
    }
}

/// A long chunk is decoded in steps, but not one whose window is longer than those may have: that has its window in the chunk.
fn zstd_of(
    zstd: &mut Option<zstd::bulk::Decompressor<'static>>,
    bytes: &[u8],
    out: &mut [u8],
    turn: Turn<'_>,
) -> Result<usize, String> {
    if out.len() > ONE_TURN_LEN_MAX {
        match by_steps(Codec::Zstd, bytes, out, turn) {
            Err(what) if what.contains("its window is larger") => {}
            done => return done,
        }
    }
    in_turn(turn, || zstd_at_once(zstd, bytes, out)).flatten()
}

fn zstd_at_once(
    zstd: &mut Option<zstd::bulk::Decompressor<'static>>,
    bytes: &[u8],
    out: &mut [u8],
) -> Result<usize, String> {
    let zstd = match zstd {
        Some(zstd) => zstd,
        none => none.insert(zstd::bulk::Decompressor::new().map_err(|error| error.to_string())?),
    };
    zstd.decompress_to_buffer(bytes, out).map_err(|error| match error.to_string() {
        said if said == "Destination buffer is too small" => too_long(out.len()),
        said => said,
    })
}

/// 1.7 times as fast as by steps. Input that is not one whole member goes through the steps again, which also say what
/// is wrong with it.
fn gzip_of(
    gzip: &mut Option<libdeflater::Decompressor>,
    bytes: &[u8],
    out: &mut [u8],
    turn: Turn<'_>,
) -> Result<usize, String> {
    if out.len() <= ONE_TURN_GZIP_LEN_MAX
        && let Some(len) = in_turn(turn, || only_member(gzip.get_or_insert_default(), bytes, out))?
    {
        return Ok(len);
    }
    by_steps(Codec::Gzip, bytes, out, turn)
}

/// The length that a member decodes to that fits and is all there is.
fn only_member(gzip: &mut libdeflater::Decompressor, bytes: &[u8], out: &mut [u8]) -> Option<usize> {
    let len = gzip.gzip_decompress(bytes, out).ok()?;
    // Bytes behind a member are not looked at, and its end is not reported. It ends with the checksum and the length of
    // its decoded bytes, so it may end only where these are first found.
    let checksum = crc_fast::checksum(Crc32IsoHdlc, &out[..len]) as u32;
    let end = [checksum.to_le_bytes(), (len as u32).to_le_bytes()].concat();
    (memchr::memmem::find(bytes, &end)? + end.len() == bytes.len()).then_some(len)
}

/// A step that there is no room for tells that there would be more.
fn room_at(out: &mut [u8], at: usize) -> &mut [u8] {
    let end = out.len().min(at + STEP_LEN);
    &mut out[at..end]
}

fn by_steps(codec: Codec, mut bytes: &[u8], out: &mut [u8], turn: Turn<'_>) -> Result<usize, String> {
    let mut decoder = Decoder::new(codec).map_err(|damage| damage.to_string())?;
    let (mut at, most) = (0, out.len());
    loop {
        let mut beyond = [0];
        let room = if at < most { room_at(out, at) } else { &mut beyond };
        let step = in_turn(turn, || decoder.step(bytes, room))?.map_err(|damage| damage.to_string())?;
        bytes = &bytes[step.read..];
        match step.written {
            0 if bytes.is_empty() => break,
            written if at + written > most => return Err(too_long(most)),
            written => at += written,
        }
    }
    decoder.finish().map_err(|damage| damage.to_string())?;
    if decoder.has_garbage() {
        return Err("what follows its last member is none".to_owned());
    }
    Ok(at)
}

fn zlib(bytes: &[u8], out: &mut [u8], turn: Turn<'_>) -> Result<usize, String> {
    let mut inflate = Decompress::new(true);
    let (mut read, mut at, most) = (0, 0, out.len());
    loop {
        let mut beyond = [0];
        let room = if at < most { room_at(out, at) } else { &mut beyond };
        let status = in_turn(turn, || inflate.decompress(&bytes[read..], room, FlushDecompress::None))?;
        let status = status.map_err(|error| error.message().unwrap_or("no deflate data").to_owned())?;
        let (done, made) = (inflate.total_in() as usize, inflate.total_out() as usize);
        if made > most {
            return Err(too_long(most));
        }
        match status {
            Status::StreamEnd if done == bytes.len() => return Ok(made),
            Status::StreamEnd => return Err(format!("something follows its end at byte {done}")),
            _ if (done, made) == (read, at) => return Err(format!("it is cut off: it ends at byte {done}")),
            _ => (read, at) = (done, made),
        }
    }
}
