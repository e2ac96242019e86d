//! Frames of Blosc 1: blocks, shuffled or not, whose compressed parts the libraries of each compressor decompress.
//!
//! Facts are those of C-Blosc's README_CHUNK_FORMAT: a header of 16 bytes, where each block begins, then blocks, of which some
//! are split into as many parts as an element has bytes.

mod shuffle;

use super::chunk::{Turn, in_turn, too_long};
use flate2::{Decompress, FlushDecompress, Status};
use shuffle::{bit_unshuffle, unshuffle};

const HEADER_LEN: usize = 16;
/// The version that all of C-Blosc 1 writes.
const VERSION: u8 = 2;
/// The meaning of the flags, and where in them the compressor's number is.
const BYTES_SHUFFLED: u8 = 1 << 0;
const COPIED: u8 = 1 << 1;
const BITS_SHUFFLED: u8 = 1 << 2;
const RESERVED: u8 = 1 << 3;
const NOT_SPLIT: u8 = 1 << 4;
const COMPRESSOR_SHIFT: u8 = 5;
/// A block is split if its elements have no more bytes than this, and there are at least so many of them.
const PARTS_MAX: usize = 16;
const SPLIT_ELEMENTS_MIN: usize = 128;

/// What is kept from one frame to the next.
#[derive(Default)]
pub(super) struct Room {
    shuffled: Vec<u8>,
    planes: Vec<u8>,
    zstd: Option<zstd::bulk::Decompressor<'static>>,
    zlib: Option<Decompress>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Compressor {
    /// That of `lz4hc`, too.
    Lz4,
    Zlib,
    Zstd,
}

struct Frame<'a> {
    bytes: &'a [u8],
    flags: u8,
    element_len: usize,
    len: usize,
    block_len: usize,
}

impl<'a> Frame<'a> {
    fn of(bytes: &'a [u8], most: usize) -> Result<Self, String> {
        let Some((header, _)) = bytes.split_first_chunk::<HEADER_LEN>() else {
            return Err(format!("it has {} bytes, and its header alone has {HEADER_LEN}", bytes.len()));
        };
        let [version, _, flags, element_len, ..] = *header;
        if version != VERSION {
            return Err(format!("it has version {version} of the format, and {VERSION} is read"));
        }
        let frame = Self {
            bytes,
            flags,
            element_len: element_len.into(),
            len: number(header, 4)?,
            block_len: number(header, 8)?,
        };
        let told = number(header, 12)?;
        if told != bytes.len() {
            return Err(format!("its header says that it has {told} bytes, and it has {}", bytes.len()));
        }
        if frame.len > most {
            return Err(too_long(most));
        }
        if frame.len > 0 && (frame.block_len == 0 || frame.block_len > frame.len || element_len == 0) {
            return Err(format!("blocks of {} bytes, with elements of {element_len}, cannot be", frame.block_len));
        }
        if flags & RESERVED != 0 {
            return Err("its header has flags that are not known".to_owned());
        }
        Ok(frame)
    }

    fn compressor(&self) -> Result<Compressor, String> {
        let name = match self.flags >> COMPRESSOR_SHIFT {
            1 => return Ok(Compressor::Lz4),
            3 => return Ok(Compressor::Zlib),
            4 => return Ok(Compressor::Zstd),
            0 => "blosclz",
            2 => "snappy",
            _ => "not known",
        };
        Err(format!("its compressor is {name}; lz4, lz4hc, zlib and zstd are read"))
    }

    /// Parts of a block of so many bytes.
    fn parts(&self, len: usize) -> usize {
        let is_split = self.flags & NOT_SPLIT == 0
            && self.element_len <= PARTS_MAX
            && len / self.element_len >= SPLIT_ELEMENTS_MIN
            && len == self.block_len;
        if is_split { self.element_len } else { 1 }
    }
}

/// Decodes a frame to the beginning of `out`, of which it fills no more. How many bytes it has.
pub(super) fn decode(bytes: &[u8], out: &mut [u8], room: &mut Room, turn: Turn<'_>) -> Result<usize, String> {
    let frame = Frame::of(bytes, out.len())?;
    let out = &mut out[..frame.len];
    if frame.flags & COPIED != 0 {
        let copied = &bytes[HEADER_LEN..];
        if copied.len() != out.len() {
            return Err(format!("it has {} bytes as they were, and its header says {}", copied.len(), out.len()));
        }
        out.copy_from_slice(copied);
        return Ok(frame.len);
    }
    if frame.len == 0 {
        return Ok(0);
    }
    let compressor = frame.compressor()?;
    // No block uses bytes of another one, so what all of them use is no more than there is.
    let mut left = bytes.len();
    for (index, block) in out.chunks_mut(frame.block_len).enumerate() {
        let start = number(bytes, HEADER_LEN + 4 * index)?;
        let decoded = in_turn(turn, || decode_block(&frame, compressor, start, block, room, &mut left));
        decoded?.map_err(|what| format!("block {index}: {what}"))?;
    }
    Ok(frame.len)
}

fn decode_block(
    frame: &Frame<'_>,
    compressor: Compressor,
    mut at: usize,
    out: &mut [u8],
    room: &mut Room,
    left: &mut usize,
) -> Result<(), String> {
    let is_shuffled = frame.flags & BYTES_SHUFFLED != 0 && frame.element_len > 1;
    let is_bit_shuffled = !is_shuffled && frame.flags & BITS_SHUFFLED != 0 && out.len() >= frame.element_len;
    let mut shuffled = std::mem::take(&mut room.shuffled);
    let parts = frame.parts(out.len());
    if !out.len().is_multiple_of(parts) {
        return Err("it is no whole number of elements".to_owned());
    }
    let part_len = out.len() / parts;
    let to = if is_shuffled || is_bit_shuffled {
        shuffled.resize(out.len(), 0);
        &mut shuffled[..]
    } else {
        &mut *out
    };
    for part in to.chunks_mut(part_len) {
        let len = number(frame.bytes, at)?;
        at += 4;
        let given = at.checked_add(len).and_then(|end| frame.bytes.get(at..end));
        let given = given.ok_or_else(|| format!("a part of {len} bytes reaches beyond the end"))?;
        *left = left.checked_sub(4 + len).ok_or("its parts overlap others")?;
        at += len;
        if len == part.len() {
            part.copy_from_slice(given);
        } else {
            decompress(compressor, given, part, room)?;
        }
    }
    if is_shuffled {
        unshuffle(frame.element_len, &shuffled, out);
    } else if is_bit_shuffled {
        room.planes.resize(out.len(), 0);
        bit_unshuffle(frame.element_len, &shuffled, &mut room.planes, out);
    }
    room.shuffled = shuffled;
    Ok(())
}

/// Fills `out` exactly.
fn decompress(compressor: Compressor, bytes: &[u8], out: &mut [u8], room: &mut Room) -> Result<(), String> {
    let len = match compressor {
        Compressor::Lz4 => lz4_flex::block::decompress_into(bytes, out).map_err(|error| error.to_string())?,
        Compressor::Zstd => {
            let zstd = match &mut room.zstd {
                Some(zstd) => zstd,
                none => none.insert(zstd::bulk::Decompressor::new().map_err(|error| error.to_string())?),
            };
            zstd.decompress_to_buffer(bytes, out).map_err(|error| error.to_string())?
        }
        Compressor::Zlib => {
            let zlib = room.zlib.get_or_insert_with(|| Decompress::new(true));
            zlib.reset(true);
            match zlib.decompress(bytes, out, FlushDecompress::Finish) {
                Ok(Status::StreamEnd) => zlib.total_out() as usize,
                Ok(_) => return Err("its zlib data does not end where it ought to".to_owned()),
                Err(error) => return Err(error.to_string()),
            }
        }
    };
    if len == out.len() { Ok(()) } else { Err(format!("a part of {} bytes decodes to {len}", out.len())) }
}

/// A length or a place; none is negative.
fn number(bytes: &[u8], at: usize) -> Result<usize, String> {
    let found = at.checked_add(4).and_then(|end| bytes.get(at..end)).and_then(|bytes| bytes.try_into().ok());
    let found = found.ok_or_else(|| format!("it ends before byte {at}, where a number is to be"))?;
    usize::try_from(i32::from_le_bytes(found)).map_err(|_| format!("the number at byte {at} is below 0"))
}
