//! `ds_crc32c` and `ds_hash64` against published values and a bitwise reference.

use super::*;
use proptest::prelude::*;

/// CRC-32C one bit after the other (RFC 3720, appendix B.4: reflected, polynomial 0x1EDC6F41).
fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    let mut crc = !seed;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

fn crc(seed: u32, bytes: &[u8]) -> u64 {
    Host::new().over("ds_crc32c", bytes, &[u64::from(seed), INPUT, bytes.len() as u64]).unwrap()
}

#[test]
fn crc32c_gives_the_published_values() {
    assert_eq!(crc(0, b"123456789"), 0xe306_9283);
    // RFC 3720, appendix B.4.
    assert_eq!(crc(0, &[0; 32]), 0x8a91_36aa);
    assert_eq!(crc(0, &[0xff; 32]), 0x62a8_ab43);
    assert_eq!(crc(0, b""), 0);
}

#[test]
fn hash64_is_xxh3() {
    let hash =
        |bytes: &[u8], seed: u64| Host::new().over("ds_hash64", bytes, &[INPUT, bytes.len() as u64, seed]).unwrap();
    // Values of XXH3_64bits_withSeed from the reference implementation's own test vectors.
    assert_eq!(hash(b"", 0), 0x2d06_8005_38d3_94c2);
    assert_eq!(hash(b"", 0x9e37_79b1_85eb_ca8d), 0xa8a6_b918_b2f0_364a);
    assert_ne!(hash(b"a", 0), hash(b"a", 1), "the seed matters");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn crc32c_equals_the_bitwise_reference(bytes: Vec<u8>, seed: u32, cut: proptest::sample::Index) {
        prop_assert_eq!(crc(seed, &bytes), u64::from(crc32c(seed, &bytes)));
        let (head, tail) = bytes.split_at(if bytes.is_empty() { 0 } else { cut.index(bytes.len()) });
        let chained = crc(crc(seed, head) as u32, tail);
        prop_assert_eq!(chained, crc(seed, &bytes), "a CRC goes on where the last one ended");
    }

    /// The hash is that of the library, in steps or at once.
    #[test]
    fn hash64_does_not_depend_on_steps(len in 0usize..200_000, seed: u64) {
        let bytes: Vec<u8> = (0..len).map(|i| ((i * 31) >> 3) as u8).collect();
        let args = [INPUT, len as u64, seed];
        let hash = Host::new().over("ds_hash64", &bytes, &args);
        prop_assert_eq!(hash, Ok(twox_hash::XxHash3_64::oneshot_with_seed(seed, &bytes)));
    }
}
