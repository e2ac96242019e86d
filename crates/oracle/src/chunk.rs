//! Inputs as chunks of an array, each encoded in one of the ways that there are.

use crate::case::Case;
use crate::input::{Form, Input, gzip};
use diskside::ChunkCodec;
use std::io::Write as _;

/// The longest input that is one piece for every function.
const LEN_MAX: usize = 64 << 10;

const CODECS: [ChunkCodec; 6] =
    [ChunkCodec::Gzip, ChunkCodec::Zstd, ChunkCodec::Zlib, ChunkCodec::Lz4, ChunkCodec::Blosc, ChunkCodec::Crc32c];

/// The codec by which a case is run as a chunk: it has one input, which is one piece anyway.
pub(crate) fn codec_of(case: &Case) -> Option<ChunkCodec> {
    let [Input { len, seed, form: Form::Plain, .. }] = case.inputs[..] else { return None };
    // Pieces that are asked for are rounded to records, which only the function knows.
    let is_whole = case.range.is_none() && case.split.is_none() && case.chunk_len.is_none();
    (is_whole && (1..=LEN_MAX).contains(&len)).then(|| CODECS[(len as u64 ^ seed) as usize % CODECS.len()])
}

/// An input as a chunk.
pub(crate) fn encoded(codec: ChunkCodec, bytes: &[u8]) -> Vec<u8> {
    match codec {
        ChunkCodec::Gzip => gzip(bytes),
        ChunkCodec::Zstd => zstd::bulk::compress(bytes, 1).expect("memory takes all"),
        ChunkCodec::Zlib => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory takes all")
        }
        ChunkCodec::Lz4 => [&(bytes.len() as u32).to_le_bytes(), &lz4_flex::block::compress(bytes)[..]].concat(),
        ChunkCodec::Blosc => blosc(bytes),
        ChunkCodec::Crc32c => [bytes, &crc32c(bytes).to_le_bytes()].concat(),
    }
}

/// Two blocks of LZ4, of elements of four bytes whose bytes stand apart.
fn blosc(bytes: &[u8]) -> Vec<u8> {
    const ELEMENT: usize = 4;
    let block_len = bytes.len().div_ceil(2 * ELEMENT) * ELEMENT;
    let block_len = block_len.min(bytes.len());
    let shuffled = |block: &[u8]| -> Vec<u8> {
        let (whole, rest) = block.split_at(block.len() / ELEMENT * ELEMENT);
        let planes = (0..ELEMENT).flat_map(|byte| whole.iter().skip(byte).step_by(ELEMENT));
        planes.chain(rest).copied().collect()
    };
    let plain: Vec<Vec<u8>> = bytes.chunks(block_len).map(shuffled).collect();
    let (mut starts, mut data) = (Vec::new(), Vec::new());
    for block in &plain {
        let packed = lz4_flex::block::compress(block);
        // What is as long as the block is the block.
        let packed = if packed.len() < block.len() { &packed } else { block };
        starts.extend(((16 + 4 * plain.len() + data.len()) as u32).to_le_bytes());
        data.extend((packed.len() as u32).to_le_bytes());
        data.extend(packed);
    }
    let mut frame = vec![2, 1, 1 << 5 | 1 << 4 | 1, ELEMENT as u8];
    for number in [bytes.len(), block_len, 16 + starts.len() + data.len()] {
        frame.extend((number as u32).to_le_bytes());
    }
    [frame, starts, data].concat()
}

fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 })
    };
    !bytes.iter().fold(!0, step)
}
