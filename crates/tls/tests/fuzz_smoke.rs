//! What fuzzers do for hours, for a moment.

#[allow(unreachable_pub, reason = "fuzzers use it as well")]
mod support;

use diskside_nvme::auth::{Hash, TlsPsk};
use diskside_tls::Handshake;
use proptest::prelude::*;

/// What a host says first, with nothing wrong in it.
fn first_words() -> Vec<u8> {
    let psk = TlsPsk { identity: "NVMe1R01 a b c".into(), hash: Hash::Sha256, key: vec![1; 32].into() };
    Handshake::host(psk).unwrap().step(&[]).unwrap().output
}

proptest! {
    #[test]
    fn any_bytes_are_looked_at(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        support::hello(&bytes);
        support::hello(&[&[9, 22, 3, 1, 0, 200, 1, 0, 0, 190], &bytes[..]].concat());
    }

    #[test]
    fn first_words_with_something_changed_are_looked_at(
        split: u8, at in any::<proptest::sample::Index>(), to: u8, cut in any::<proptest::sample::Index>(),
    ) {
        let mut bytes = first_words();
        support::hello(&[&[split], &bytes[..]].concat());
        let index = at.index(bytes.len());
        bytes[index] = to;
        support::hello(&[&[split], &bytes[..]].concat());
        support::hello(&[&[split], &bytes[..cut.index(bytes.len())]].concat());
    }

    #[test]
    fn any_records_are_opened(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        support::records(&bytes);
    }

    #[test]
    fn records_of_the_channel_itself_are_opened(
        split: u8,
        script in proptest::collection::vec(
            prop_oneof![
                Just(vec![23, 2, 0, 1, 2]),
                Just(vec![22, 5, 0, 24, 0, 0, 1, 0]),
                Just(vec![22, 5, 3, 24, 0, 0, 1, 1]),
                Just(vec![22, 4, 0, 4, 0, 0, 9]),
                Just(vec![22, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
                Just(vec![21, 2, 0, 1, 0]),
                proptest::collection::vec(any::<u8>(), 3..9),
            ],
            0..20,
        ),
    ) {
        support::records(&[&[0, split], &script.concat()[..]].concat());
    }
}
