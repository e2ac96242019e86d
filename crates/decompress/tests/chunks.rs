//! Chunks of arrays: each codec's encoded bytes decode to the input; damaged ones, and those of another length, are
//! errors, and make no more than they may.

use diskside_decompress::{ChunkCodec, ChunkCodecs, ChunkDamage, ChunkDecoder};
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use proptest::prelude::*;
use std::io::Write as _;

fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

fn encode(codec: ChunkCodec, bytes: &[u8]) -> Vec<u8> {
    match codec {
        ChunkCodec::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory")
        }
        ChunkCodec::Zlib => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory")
        }
        ChunkCodec::Zstd => zstd::bulk::compress(bytes, 3).expect("memory"),
        ChunkCodec::Lz4 => [&(bytes.len() as u32).to_le_bytes(), &lz4_flex::block::compress(bytes)[..]].concat(),
        ChunkCodec::Crc32c => [bytes, &checksum(bytes).to_le_bytes()].concat(),
        ChunkCodec::Blosc => blosc(bytes, 1, 1),
    }
}

/// A frame of Blosc with blocks of LZ4, unshuffled and not split.
fn blosc(bytes: &[u8], element_len: u8, blocks: usize) -> Vec<u8> {
    let block_len = bytes.len().div_ceil(blocks).max(1);
    let blocks: Vec<Vec<u8>> = bytes.chunks(block_len).map(lz4_flex::block::compress).collect();
    let mut frame = vec![2, 1, 1 << 5 | 1 << 4, element_len];
    let mut at = 16 + 4 * blocks.len();
    let (mut starts, mut data) = (Vec::new(), Vec::new());
    for (block, plain) in blocks.iter().zip(bytes.chunks(block_len)) {
        // What is as long as the bytes is these.
        let block = if block.len() < plain.len() { &block[..] } else { plain };
        starts.extend((at as u32).to_le_bytes());
        data.extend((block.len() as u32).to_le_bytes());
        data.extend(block);
        at += 4 + block.len();
    }
    for number in [bytes.len(), block_len, at] {
        frame.extend((number as u32).to_le_bytes());
    }
    [frame, starts, data].concat()
}

fn decode(codecs: &[ChunkCodec], len: usize, bytes: &[u8]) -> Result<Vec<u8>, ChunkDamage> {
    let codecs = ChunkCodecs::new(codecs.to_vec(), len);
    let mut decoder = ChunkDecoder::default();
    let mut turn = |work: &mut dyn FnMut()| {
        work();
        true
    };
    // The same decoder again: nothing of a chunk, damaged or not, stays for the next.
    let first = decoder.decode(&codecs, bytes, &mut turn).map(<[u8]>::to_vec);
    let again = decoder.decode(&codecs, bytes, &mut turn).map(<[u8]>::to_vec);
    assert_eq!(first, again);
    if let Ok(bytes) = &first {
        assert_eq!(bytes.len(), len);
    }
    first
}

const ALL: [ChunkCodec; 6] =
    [ChunkCodec::Gzip, ChunkCodec::Zstd, ChunkCodec::Zlib, ChunkCodec::Lz4, ChunkCodec::Blosc, ChunkCodec::Crc32c];

fn numbers(len: usize) -> Vec<u8> {
    (0..len as u32).map(|n| (n.wrapping_mul(n) >> 9) as u8).collect()
}

#[test]
fn what_is_encoded_comes_back_by_every_codec_and_two_of_them() {
    for len in [1, 17, 4_096, 600_000] {
        let bytes = numbers(len);
        assert_eq!(decode(&[], len, &bytes).as_ref(), Ok(&bytes));
        for first in ALL {
            assert_eq!(decode(&[first], len, &encode(first, &bytes)).as_ref(), Ok(&bytes), "{first:?} {len}");
            for second in ALL {
                let encoded = encode(second, &encode(first, &bytes));
                assert_eq!(decode(&[second, first], len, &encoded).as_ref(), Ok(&bytes), "{second:?} {first:?} {len}");
            }
        }
    }
}

#[test]
fn long_chunks_are_decoded_in_turns_and_can_be_stopped() {
    let bytes = vec![7; 20 << 20];
    for codec in [ChunkCodec::Gzip, ChunkCodec::Zstd, ChunkCodec::Zlib] {
        let (codecs, encoded) = (ChunkCodecs::new(vec![codec], bytes.len()), encode(codec, &bytes));
        for stop_at in [1, 40, usize::MAX] {
            let mut turns = 0;
            let mut turn = |work: &mut dyn FnMut()| {
                work();
                turns += 1;
                turns < stop_at
            };
            let mut decoder = ChunkDecoder::default();
            match decoder.decode(&codecs, &encoded, &mut turn) {
                Ok(found) => assert!(found == bytes && stop_at == usize::MAX),
                Err(damage) => assert!(damage == ChunkDamage::Stopped && turns == stop_at),
            }
        }
    }
}

#[test]
fn a_chunk_of_another_length_is_told_and_a_bomb_makes_no_more_than_it_may() {
    let bytes = numbers(10_000);
    for codec in ALL {
        let encoded = encode(codec, &bytes);
        for wanted in [0, 1, 9_999, 10_001, 1 << 20] {
            let error = decode(&[codec], wanted, &encoded).expect_err("another length").to_string();
            let told = format!("the chunk decodes to 10000 bytes, and those of its array have {wanted}");
            assert!(error == told || wanted < 10_000 && error.contains("more than the"), "{codec:?} {wanted}: {error}");
        }
    }
    // A megabyte of nothing in some bytes, a gigabyte in some more: each is refused before it is made.
    let zeroes = vec![0; 1 << 24];
    for codec in [ChunkCodec::Gzip, ChunkCodec::Zstd, ChunkCodec::Zlib, ChunkCodec::Lz4, ChunkCodec::Blosc] {
        let error = decode(&[codec], 4_096, &encode(codec, &zeroes)).expect_err("a bomb").to_string();
        assert!(error.contains("more than the 4096 bytes that there may be"), "{codec:?}: {error}");
        let twice = encode(codec, &encode(codec, &zeroes));
        assert!(decode(&[codec, codec], 4_096, &twice).is_err());
    }
}

#[test]
fn what_is_wrong_is_told() {
    let bytes = numbers(3_000);
    let checked = encode(ChunkCodec::Crc32c, &bytes);
    let mut changed = checked.clone();
    changed[17] ^= 1;
    let error = decode(&[ChunkCodec::Crc32c], 3_000, &changed).expect_err("another checksum").to_string();
    assert!(error.starts_with("the crc32c data of the chunk is damaged: its checksum says "), "{error}");
    for (codec, cut, told) in [
        (ChunkCodec::Crc32c, 3, "3 bytes have no room for a checksum"),
        (ChunkCodec::Lz4, 3, "3 bytes have no room for its length"),
        (ChunkCodec::Gzip, 40, "the gzip data is cut off"),
        (ChunkCodec::Zlib, 40, "it is cut off: it ends at byte 40"),
        (ChunkCodec::Blosc, 9, "it has 9 bytes, and its header alone has 16"),
        (ChunkCodec::Blosc, 100, "and it has 100"),
    ] {
        let error = decode(&[codec], 3_000, &encode(codec, &bytes)[..cut]).expect_err("cut off").to_string();
        assert!(error.contains(told), "{error}");
    }
    for codec in ALL {
        // gzip(1) leaves out what follows; zarr does not read such a chunk, and it would have been reduced nevertheless.
        let followed = [&encode(codec, &bytes)[..], b"more"].concat();
        assert!(decode(&[codec], 3_000, &followed).is_err(), "{codec:?}");
    }
    let padded = [&encode(ChunkCodec::Gzip, &bytes)[..], &[0; 100]].concat();
    assert!(decode(&[ChunkCodec::Gzip], 3_000, &padded).is_ok(), "zeroes are what tapes have");
}

/// One member is decoded at once by a library that looks no further than its end. Bytes behind it count, too, even if
/// they end as the member does.
#[test]
fn members_of_gzip_that_follow_one_another_are_one_chunk() {
    let (first, second) = (numbers(3_000), numbers(700));
    let [first_encoded, second_encoded] = [&first, &second].map(|bytes| encode(ChunkCodec::Gzip, bytes));
    let both = [&first_encoded[..], &second_encoded].concat();
    assert_eq!(decode(&[ChunkCodec::Gzip], 3_700, &both), Ok([&first[..], &second].concat()));
    let twice = [&first_encoded[..], &first_encoded].concat();
    assert_eq!(decode(&[ChunkCodec::Gzip], 6_000, &twice), Ok([&first[..], &first].concat()));
    for followed in [&both, &twice] {
        let error = decode(&[ChunkCodec::Gzip], 3_000, followed).expect_err("too many bytes").to_string();
        assert!(error.contains("more than the 3000 bytes that there may be"), "{error}");
    }
    // A long chunk goes through the steps from the beginning.
    let long = numbers((8 << 20) + 1);
    assert!(decode(&[ChunkCodec::Gzip], long.len(), &encode(ChunkCodec::Gzip, &long)) == Ok(long));
}

#[test]
fn frames_of_blosc_that_cannot_be_are_refused() {
    let good = blosc(&numbers(40_000), 4, 4);
    assert!(decode(&[ChunkCodec::Blosc], 40_000, &good).is_ok());
    let with = |at: usize, bytes: &[u8]| {
        let mut frame = good.clone();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        decode(&[ChunkCodec::Blosc], 40_000, &frame).expect_err("it cannot be").to_string()
    };
    for (at, bytes, told) in [
        (0, &[3][..], "it has version 3 of the format, and 2 is read"),
        (2, &[1 << 4], "its compressor is blosclz; lz4, lz4hc, zlib and zstd are read"),
        (2, &[2 << 5], "its compressor is snappy"),
        (2, &[7 << 5], "its compressor is not known"),
        (2, &[1 << 5 | 8], "flags that are not known"),
        (3, &[0], "with elements of 0, cannot be"),
        (4, &[0xff; 4], "the number at byte 4 is below 0"),
        (8, &[0; 4], "blocks of 0 bytes"),
        (8, &[0xff, 0xff, 0xff, 0x7f], "blocks of 2147483647 bytes"),
        (12, &[0; 4], "its header says that it has 0 bytes"),
        (16, &[0xff, 0xff, 0xff, 0x7f], "block 0: it ends before byte 2147483647"),
        (32, &[0xff, 0xff, 0xff, 0x7f], "block 0: a part of 2147483647 bytes reaches beyond the end"),
    ] {
        let error = with(at, bytes);
        assert!(error.contains(told), "byte {at}: {error}");
    }
    // All four blocks are the one that takes the most bytes: together more than there are.
    let noise = (0..10_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8);
    let mut frame = blosc(&[0; 30_000].into_iter().chain(noise).collect::<Vec<u8>>(), 4, 4);
    let last: [u8; 4] = frame[28..32].try_into().expect("four bytes");
    frame[16..28].copy_from_slice(&last.repeat(3));
    let error = decode(&[ChunkCodec::Blosc], 40_000, &frame).expect_err("they overlap").to_string();
    assert!(error.contains("its parts overlap others"), "{error}");
    // Plain bytes whose number is another one.
    let copied =
        [&[2, 1, 2, 1][..], &8_u32.to_le_bytes(), &8_u32.to_le_bytes(), &23_u32.to_le_bytes(), &[0; 7]].concat();
    let error = decode(&[ChunkCodec::Blosc], 8, &copied).expect_err("one is missing").to_string();
    assert!(error.contains("it has 7 bytes as they were, and its header says 8"), "{error}");
}

proptest! {
    #[test]
    fn no_bytes_make_a_codec_panic_or_give_another_length(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(), len in 0_usize..500, flags in any::<u8>(), element_len in 0_u8..20,
    ) {
        let plain = numbers(len);
        for codec in ALL {
            drop(decode(&[codec], len, &bytes));
            let mut encoded = encode(codec, &plain);
            for (at, byte) in &changes {
                let at = at.index(encoded.len());
                encoded[at] ^= byte;
            }
            drop(decode(&[codec], len, &encoded));
            encoded.truncate(cut.index(encoded.len() + 1));
            drop(decode(&[codec], len, &encoded));
        }
        let mut frame = blosc(&plain, element_len, 3);
        frame[2] = flags;
        drop(decode(&[ChunkCodec::Blosc], len, &frame));
    }
}
