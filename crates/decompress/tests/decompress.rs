//! Compressed bytes come back, however they are cut; damaged ones say where.

use diskside_decompress::{Codec, Damage, Decoder};
use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use std::io::Write as _;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).expect("memory");
    encoder.include_checksum(true).and_then(|()| encoder.write_all(bytes)).expect("memory");
    encoder.finish().expect("memory")
}

fn compress(codec: Codec, bytes: &[u8]) -> Vec<u8> {
    match codec {
        Codec::Gzip => gzip(bytes),
        Codec::Zstd => zstd(bytes),
    }
}

/// Decompresses with inputs and outputs of these lengths; says also whether garbage followed.
fn decompress(codec: Codec, bytes: &[u8], (input_len, output_len): (usize, usize)) -> Result<(Vec<u8>, bool), Damage> {
    let mut decoder = Decoder::new(codec)?;
    let (mut out, mut room) = (Vec::new(), vec![0; output_len]);
    for mut input in bytes.chunks(input_len) {
        loop {
            let step = decoder.step(input, &mut room)?;
            out.extend_from_slice(&room[..step.written]);
            input = &input[step.read..];
            if step.written < output_len && input.is_empty() {
                break;
            }
            assert!(step.read > 0 || step.written > 0, "a step without progress");
        }
    }
    decoder.finish()?;
    Ok((out, decoder.has_garbage()))
}

const BOTH: [Codec; 2] = [Codec::Gzip, Codec::Zstd];
const WHOLE: (usize, usize) = (1 << 20, 1 << 16);

fn text() -> Vec<u8> {
    (0..5_000_u32).flat_map(|n| format!("{n} of {}\n", n.wrapping_mul(2_654_435_761)).into_bytes()).collect()
}

proptest! {
    #[test]
    fn streams_of_several_members_come_back_however_they_are_cut(
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..3_000), 1..4),
        input_len in 1_usize..700, output_len in 1_usize..700,
    ) {
        for codec in BOTH {
            let bytes: Vec<u8> = parts.iter().flat_map(|part| compress(codec, part)).collect();
            prop_assert_eq!(Codec::of(&bytes), Some(codec));
            let expected = (parts.concat(), false);
            prop_assert_eq!(decompress(codec, &bytes, (input_len, output_len)), Ok(expected));
        }
    }

    #[test]
    fn any_bytes_end_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..500), at in 0_usize..40, with: u8) {
        for codec in BOTH {
            // Whatever becomes of it, it ends.
            let _ = decompress(codec, &bytes, (7, 100));
            let mut damaged = compress(codec, &bytes);
            let at = at % damaged.len();
            damaged[at] ^= with;
            let _ = decompress(codec, &damaged, (7, 100));
        }
    }
}

#[test]
fn what_is_cut_off_says_where() {
    let text = text();
    for codec in BOTH {
        let whole = compress(codec, &text);
        for len in [0, 1, 2, 5, 17, 100, whole.len() / 2, whole.len() - 1] {
            let cut_off = Err(Damage::CutOff { codec, at: len as u64 });
            assert_eq!(decompress(codec, &whole[..len], WHOLE), cut_off, "{codec:?} {len}");
        }
        let two = [&whole[..], &whole[..50]].concat();
        let cut_off = Err(Damage::CutOff { codec, at: two.len() as u64 });
        assert_eq!(decompress(codec, &two, WHOLE), cut_off, "{codec:?}");
    }
    let told = Damage::CutOff { codec: Codec::Gzip, at: 7 }.to_string();
    assert_eq!(told, "the gzip data is cut off: it ends at byte 7, in the middle of a member");
    let told = Damage::CutOff { codec: Codec::Zstd, at: 7 }.to_string();
    assert_eq!(told, "the zstd data is cut off: it ends at byte 7, in the middle of a frame");
}

#[test]
fn what_is_damaged_says_where_and_what() {
    let text = text();
    let mut bytes = gzip(&text);
    let crc = bytes.len() - 8;
    bytes[crc] ^= 1;
    let told = decompress(Codec::Gzip, &bytes, WHOLE).unwrap_err().to_string();
    assert_eq!(told, format!("the gzip data is damaged at byte {}: incorrect data check", crc + 4));
    let mut bytes = zstd(&text);
    let checksum = bytes.len() - 4;
    bytes[checksum] ^= 1;
    let told = decompress(Codec::Zstd, &bytes, WHOLE).unwrap_err().to_string();
    assert!(told.starts_with("the zstd data is damaged at byte "), "{told}");
    assert!(told.ends_with(": Restored data doesn't match checksum"), "{told}");
    let told = decompress(Codec::Gzip, b"plain", WHOLE).unwrap_err().to_string();
    assert_eq!(told, "the gzip data is damaged at byte 0: it does not begin with 1f 8b");
    let told = decompress(Codec::Zstd, b"plain text", WHOLE).unwrap_err().to_string();
    assert!(told.ends_with(": Unknown frame descriptor"), "{told}");
}

#[test]
fn what_follows_the_last_member_is_ignored_as_by_gzip_and_refused_as_by_zstd() {
    let text = text();
    for (behind, is_garbage) in
        [(&[0; 600][..], false), (b"\0\0x", true), (b"garbage", true), (b"\x1f", true), (b"\x1fx", true)]
    {
        let bytes = [&gzip(&text)[..], behind].concat();
        for cut in [WHOLE, (1, 100), (bytes.len() - behind.len(), 1 << 16)] {
            assert_eq!(decompress(Codec::Gzip, &bytes, cut), Ok((text.clone(), is_garbage)), "{behind:?}");
        }
    }
    let told = decompress(Codec::Zstd, &[&zstd(&text)[..], b"garbage"].concat(), WHOLE).unwrap_err().to_string();
    assert!(told.ends_with(": Unknown frame descriptor"), "{told}");
}

#[test]
fn frames_to_be_skipped_are_skipped() {
    let skipped = [&[0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0][..], b"size"].concat();
    let bytes = [&skipped[..], &zstd(b"abc"), &skipped, &zstd(b"def"), &skipped].concat();
    assert_eq!(Codec::of(&bytes[..Codec::HEAD_LEN]), Some(Codec::Zstd));
    assert_eq!(decompress(Codec::Zstd, &bytes, (3, 100)), Ok((b"abcdef".to_vec(), false)));
}

/// A window is memory that the input asks for.
#[test]
fn a_window_that_is_too_large_is_refused_before_it_is_made() {
    let frame_of_window = |log: u8| [&[0x28, 0xb5, 0x2f, 0xfd, 0, (log - 10) << 3][..], &[0x19, 0, 0], b"abc"].concat();
    assert_eq!(decompress(Codec::Zstd, &frame_of_window(23), WHOLE), Ok((b"abc".to_vec(), false)));
    for log in [24, 31] {
        let told = decompress(Codec::Zstd, &frame_of_window(log), WHOLE).unwrap_err().to_string();
        assert!(told.contains("its window is larger than 8 MiB, which is the most that a call is given"), "{told}");
    }
}

#[test]
fn plain_bytes_are_not_recognised() {
    for plain in [
        &b""[..],
        b"\x1f",
        b"\x1f\x8b",
        b"\x1f\x8b\x07\0",
        b"\x1f\x8b\x08\xe0",
        b"\x28\xb5\x2f",
        b"text",
        b"\x50\x2a\x4d\x18\x02\0\0\0abtext",
    ] {
        assert_eq!(Codec::of(plain), None, "{plain:?}");
    }
    assert_eq!(Codec::of(b"\x1f\x8b\x08\x08name"), Some(Codec::Gzip));
}
