//! `ds_decompress` against what the libraries compress, and against bytes that lie.

use super::*;
use crate::helpers::decompress::LEN_MAX;
use proptest::prelude::*;
use zstd::zstd_safe;

const SNAPPY: u64 = 0;
const LZ4: u64 = 1;
const ZSTD: u64 = 2;
const ENOSPC: i64 = -28;
const EBADMSG: i64 = -74;

fn compress(codec: u64, dict: &[u8], bytes: &[u8]) -> Vec<u8> {
    match codec {
        SNAPPY => snap::raw::Encoder::new().compress_vec(bytes).unwrap(),
        LZ4 if dict.is_empty() => lz4_flex::block::compress(bytes),
        LZ4 => lz4_flex::block::compress_with_dict(bytes, dict),
        _ => {
            let mut room = vec![0; zstd_safe::compress_bound(bytes.len())];
            let len = zstd_safe::CCtx::create().compress_using_dict(&mut room[..], bytes, dict, 3).unwrap();
            room.truncate(len);
            room
        }
    }
}

/// The result, and the bytes of the output afterwards, which were not zero before.
fn decompress(codec: u64, dict: &[u8], bytes: &[u8], room: usize) -> (Result<i64, Trap>, Vec<u8>) {
    // Behind the output comes nothing that may be touched.
    let mut output = vec![0xaa; room];
    let how = [&(codec as u32).to_le_bytes()[..], &(dict.len() as u32).to_le_bytes(), &(ARGS + 16).to_le_bytes(), dict];
    let how = how.concat();
    let mappings = Mappings::new()
        .read_only(RegionId::INPUT, bytes)
        .writable(RegionId::OUTPUT, &mut output)
        .read_only(RegionId::ARGS, &how);
    let args = [OUTPUT, room as u64, INPUT, bytes.len() as u64, ARGS];
    let result = Host::new().mapped(mappings, |host| host.call("ds_decompress", &args));
    (result.map(u64::cast_signed), output)
}

fn text(len: usize) -> Vec<u8> {
    (0..).flat_map(|i: u32| format!("line {} of {}\n", i, i % 7).into_bytes()).take(len).collect()
}

#[test]
fn what_was_compressed_comes_back() {
    for codec in [SNAPPY, LZ4, ZSTD] {
        for len in [0, 1, 100, 4096, 300_000] {
            let (bytes, dict) = (text(len), text(5000).split_off(3000));
            for dict in [&b""[..], &dict] {
                if codec == SNAPPY && !dict.is_empty() {
                    continue;
                }
                let packed = compress(codec, dict, &bytes);
                let (result, output) = decompress(codec, dict, &packed, len);
                assert_eq!((result, &output), (Ok(len as i64), &bytes), "codec {codec}, {len} bytes");
                // There may be more room than is needed.
                let (result, output) = decompress(codec, dict, &packed, len + 100);
                assert_eq!((result, &output[..len]), (Ok(len as i64), &bytes[..]), "codec {codec}, {len} bytes");
                if len > 0 {
                    let (result, output) = decompress(codec, dict, &packed, len - 1);
                    assert_eq!(result, Ok(ENOSPC), "codec {codec}, {len} bytes");
                    assert!(output.iter().all(|byte| *byte == 0), "codec {codec}: nothing of it is left");
                }
            }
        }
    }
}

/// A small input that becomes very large: the output is never longer than its room.
#[test]
fn bombs_do_not_go_off() {
    let zeros = vec![0; LEN_MAX as usize + 1];
    for codec in [SNAPPY, LZ4, ZSTD] {
        let packed = compress(codec, b"", &zeros);
        assert_eq!(decompress(codec, b"", &packed, 4096).0, Ok(ENOSPC), "codec {codec}");
        assert_eq!(decompress(codec, b"", &packed, zeros.len()).0, Ok(ENOSPC), "codec {codec}: the limit of a call");
        let packed = compress(codec, b"", &zeros[1..]);
        assert_eq!(decompress(codec, b"", &packed, zeros.len() - 1).0, Ok(LEN_MAX as i64), "codec {codec}");
    }
    // A frame that says that it needs a window of 2 GiB.
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x03, 0x00, 0x00, b'a', b'b', b'c'];
    assert!(matches!(decompress(ZSTD, b"", &frame, 16).0, Ok(EBADMSG | ENOSPC | 0..=16)));
    // Budget is paid before anything is done.
    let (packed, mut host) = (compress(SNAPPY, b"", &text(4096)), Host::new());
    let mut output = vec![0; 4096];
    let mappings = Mappings::new()
        .read_only(RegionId::INPUT, &packed)
        .writable(RegionId::OUTPUT, &mut output)
        .read_only(RegionId::ARGS, &[0; 16]);
    host.budget(60);
    let result =
        host.mapped(mappings, |host| host.call("ds_decompress", &[OUTPUT, 4096, INPUT, packed.len() as u64, ARGS]));
    assert_eq!(why(result).0, TrapKind::Budget);
    assert!(output.iter().all(|byte| *byte == 0));
}

#[test]
fn other_codecs_dictionaries_elsewhere_and_overlaps_are_refused() {
    let (kind, what) = why(decompress(3, b"", b"abc", 10).0.map(i64::cast_unsigned));
    assert_eq!((kind, what), (TrapKind::Helper, "how->codec is not one of enum ds_codec"));
    let mut host = Host::new();
    let mut memory = vec![0; 64];
    // A dictionary of four bytes at address 0.
    memory[4] = 4;
    let mappings = Mappings::new().writable(RegionId::OUTPUT, &mut memory);
    let (elsewhere, overlap) = host.mapped(mappings, |host| {
        let elsewhere = host.call("ds_decompress", &[OUTPUT + 32, 8, OUTPUT + 48, 8, OUTPUT]);
        (elsewhere, host.call("ds_decompress", &[OUTPUT + 32, 8, OUTPUT + 39, 8, OUTPUT + 8]))
    });
    assert_eq!(why(elsewhere).0, TrapKind::Unmapped);
    assert_eq!(why(overlap), (TrapKind::Helper, "the output overlaps the input"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Damage gives an error or other bytes, and never a trap, a crash or more than there is room for.
    #[test]
    fn damaged_bytes_do_no_harm(codec in 0u64..3, len in 0usize..3000, hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), room in 0usize..4000, dict in prop::collection::vec(any::<u8>(), 0..64)) {
        let dict = if codec == SNAPPY { &[][..] } else { &dict };
        let mut packed = compress(codec, dict, &text(len));
        for (at, byte) in hits {
            let at = at.index(packed.len());
            packed[at] = byte;
        }
        let (result, output) = decompress(codec, dict, &packed, room);
        match result.expect("no trap") {
            made @ 0.. => prop_assert!(made as usize <= room),
            error => prop_assert!((error == ENOSPC || error == EBADMSG) && output.iter().all(|byte| *byte == 0)),
        }
    }
}
