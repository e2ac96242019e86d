//! Chunks of arrays: encoded bytes that anybody may have written, decoded by any codecs to any length.
#![no_main]

use diskside_decompress::{ChunkCodec, ChunkCodecs, ChunkDecoder};
use libfuzzer_sys::fuzz_target;

const CODECS: [ChunkCodec; 6] =
    [ChunkCodec::Blosc, ChunkCodec::Lz4, ChunkCodec::Crc32c, ChunkCodec::Zlib, ChunkCodec::Gzip, ChunkCodec::Zstd];

// The first byte is two codecs, the second and third the length; most inputs are of one codec.
fuzz_target!(|bytes: &[u8]| {
    let Some((&[codecs, low, high], bytes)) = bytes.split_first_chunk() else { return };
    let chosen = [codecs % 8, codecs / 8 % 8].map(usize::from);
    let codecs: Vec<ChunkCodec> = chosen.iter().filter_map(|index| CODECS.get(*index)).copied().collect();
    let len = usize::from(u16::from_le_bytes([low, high]));
    let codecs = ChunkCodecs::new(codecs, len);
    let mut decoder = ChunkDecoder::default();
    let mut turn = |work: &mut dyn FnMut()| {
        work();
        true
    };
    if let Ok(decoded) = decoder.decode(&codecs, bytes, &mut turn) {
        assert_eq!(decoded.len(), len);
    }
});
