//! `ds_memcpy`, `ds_memmove`, `ds_memset`, `ds_memcmp`, `ds_find`.

use super::*;
use proptest::prelude::*;
use zerocopy::IntoBytes;

/// Long enough for several steps of a helper, so that their joints are tested.
const LONG: usize = 200_000;

fn words(len: usize) -> Vec<u64> {
    vec![0; len.div_ceil(8)]
}

fn bytes(words: &mut [u64]) -> &mut [u8] {
    words.as_mut_bytes()
}

/// Deterministic noise.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn copies_equal_copy_within(from in 0..LONG, to in 0..LONG, len in 0..LONG, seed: u64) {
        let len = len.min(LONG - from).min(LONG - to);
        let mut expected = noise(LONG, seed);
        let mut memory = words(LONG);
        bytes(&mut memory)[..LONG].copy_from_slice(&expected);
        expected.copy_within(from..from + len, to);
        let mut host = Host::new();
        let mappings = Mappings::new().writable(RegionId::OUTPUT, &mut bytes(&mut memory)[..LONG]);
        for name in ["ds_memmove", "ds_memcpy"] {
            prop_assert!(host.helpers.find(name).is_some());
        }
        let name = if seed % 2 == 0 { "ds_memmove" } else { "ds_memcpy" };
        let args = [OUTPUT + to as u64, OUTPUT + from as u64, len as u64];
        let result = host.mapped(mappings, |host| host.call(name, &args));
        prop_assert_eq!(result, Ok(OUTPUT + to as u64));
        prop_assert!(bytes(&mut memory)[..LONG] == expected[..]);
    }

    #[test]
    fn memset_equals_fill(at in 0..LONG, len in 0..LONG, value: u64) {
        let len = len.min(LONG - at);
        let mut expected = noise(LONG, 3);
        let mut memory = words(LONG);
        bytes(&mut memory)[..LONG].copy_from_slice(&expected);
        expected[at..at + len].fill(value as u8);
        let mut host = Host::new();
        let mappings = Mappings::new().writable(RegionId::OUTPUT, &mut bytes(&mut memory)[..LONG]);
        let args = [OUTPUT + at as u64, value, len as u64];
        prop_assert_eq!(host.mapped(mappings, |host| host.call("ds_memset", &args)), Ok(args[0]));
        prop_assert!(bytes(&mut memory)[..LONG] == expected[..]);
    }

    #[test]
    fn memcmp_equals_the_order_of_slices(len in 0..LONG, flip in 0..LONG, up: bool) {
        let a = noise(len, 9);
        let mut b = a.clone();
        if let Some(byte) = b.get_mut(flip) {
            *byte = if up { byte.saturating_add(1) } else { byte.saturating_sub(1) };
        }
        let expected = match a.cmp(&b) {
            std::cmp::Ordering::Less => u64::MAX,
            std::cmp::Ordering::Equal => 0,
            std::cmp::Ordering::Greater => 1,
        };
        let mut host = Host::new();
        let mappings = Mappings::new().read_only(RegionId::INPUT, &a).read_only(RegionId::ARGS, &b);
        let args = [INPUT, ARGS, len as u64];
        prop_assert_eq!(host.mapped(mappings, |host| host.call("ds_memcmp", &args)), Ok(expected));
    }

    #[test]
    fn find_equals_a_window_scan(hay in proptest::collection::vec(0u8..3, 0..300), needle in proptest::collection::vec(0u8..3, 0..6)) {
        let expected = if needle.is_empty() {
            Some(0)
        } else {
            hay.windows(needle.len()).position(|w| w == needle)
        };
        let expected = expected.map_or(u64::MAX, |at| at as u64);
        let mut host = Host::new();
        let mappings = Mappings::new().read_only(RegionId::INPUT, &hay).read_only(RegionId::ARGS, &needle);
        let args = [INPUT, hay.len() as u64, ARGS, needle.len() as u64];
        // Twice: the second call uses the prepared needle.
        let found = host.mapped(mappings, |host| [host.call("ds_find", &args), host.call("ds_find", &args)]);
        prop_assert_eq!(found, [Ok(expected), Ok(expected)]);
    }

    /// A match that lies across the joint of two steps, with needles of all lengths.
    #[test]
    fn find_sees_across_the_joints_of_steps(needle_len in 1usize..3000, shift in -3000i64..3000) {
        let needle = vec![7u8; needle_len];
        let at = (65_536 + shift) as usize;
        let mut hay = vec![0u8; LONG];
        hay[at..at + needle_len].fill(7);
        let mut host = Host::new();
        let mappings = Mappings::new().read_only(RegionId::INPUT, &hay).read_only(RegionId::ARGS, &needle);
        let args = [INPUT, LONG as u64, ARGS, needle_len as u64];
        prop_assert_eq!(host.mapped(mappings, |host| host.call("ds_find", &args)), Ok(at as u64));
    }
}

#[test]
fn find_is_not_confused_by_changing_needles() {
    let hay = b"the disk's side of the disk";
    let mut host = Host::new();
    for (needle, at) in [(&b"disk"[..], 4), (b"side", 11), (b"disk", 4), (b"dusk", u64::MAX), (b"the disk", 0)] {
        let mappings = Mappings::new().read_only(RegionId::INPUT, hay).read_only(RegionId::ARGS, needle);
        let args = [INPUT, hay.len() as u64, ARGS, needle.len() as u64];
        assert_eq!(host.mapped(mappings, |host| host.call("ds_find", &args)), Ok(at));
    }
}

/// A hit near the start of a long input costs little: programs that go from match to match over
/// megabytes would use up any budget otherwise.
#[test]
fn find_charges_for_what_it_looked_at() {
    let mut hay = vec![0u8; 1 << 20];
    hay[100] = 1;
    let mut host = Host::new();
    let mappings = Mappings::new().read_only(RegionId::INPUT, &hay).read_only(RegionId::ARGS, &[1]);
    let before = host.machine.edges_left();
    host.mapped(mappings, |host| host.call("ds_find", &[INPUT, 1 << 20, ARGS, 1])).unwrap();
    assert_eq!(before - host.machine.edges_left(), 1 + 2);
}

/// lambda-IO takes an offset past the end as the last place where `len` bytes fit.
#[test]
fn lambda_reads_and_writes_stay_within_the_boundary() {
    let input: Vec<u8> = (0..16).collect();
    for (offset, boundary, at) in
        [(0, 16, 0), (5, 16, 5), (12, 16, 12), (13, 16, 12), (1000, 16, 12), (u64::MAX, 16, 12), (7, 8, 4), (9, 4, 0)]
    {
        let mut host = Host::new();
        let mut out = words(16);
        let mappings =
            Mappings::new().read_only(RegionId::INPUT, &input).writable(RegionId::OUTPUT, &mut bytes(&mut out)[..16]);
        let results = host.mapped(mappings, |host| {
            [
                host.call("ds_lambda_mem_read", &[OUTPUT, INPUT, offset, 4, boundary]),
                host.call("ds_lambda_mem_write", &[OUTPUT, OUTPUT, offset, 4, boundary]),
            ]
        });
        assert_eq!(results, [Ok(4), Ok(4)], "offset {offset}");
        let mut expected = [0; 16];
        expected[..4].copy_from_slice(&input[at..at + 4]);
        expected.copy_within(..4, at);
        assert_eq!(bytes(&mut out)[..16], expected, "offset {offset}, boundary {boundary}");
    }
}

/// A boundary that lies past the memory is only the caller's word.
#[test]
fn lambda_reads_and_writes_check_what_they_touch() {
    let mut host = Host::new();
    let mut out = words(16);
    let mappings =
        Mappings::new().read_only(RegionId::INPUT, &[1; 16]).writable(RegionId::OUTPUT, &mut bytes(&mut out)[..16]);
    host.mapped(mappings, |host| {
        assert_eq!(host.call("ds_lambda_mem_read", &[OUTPUT, INPUT, 12, 4, 1 << 30]), Ok(4));
        for (name, region) in [("ds_lambda_mem_read", RegionId::INPUT), ("ds_lambda_mem_write", RegionId::OUTPUT)] {
            let trap = host.call(name, &[OUTPUT, INPUT, 13, 4, 1 << 30]).unwrap_err();
            assert_eq!((trap.kind, trap.region, trap.offset), (TrapKind::OutOfBounds, Some(region), 13), "{name}");
            let trap = host.call(name, &[OUTPUT, INPUT, 0, 4, 3]).unwrap_err();
            assert!(trap.to_string().contains("len is greater than boundary"), "{name}: {trap}");
        }
    });
}
