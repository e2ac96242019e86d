//! Every pointer parameter of every helper, one byte off at both ends of its region.

use super::*;
use zerocopy::IntoBytes;

const LEN: usize = 4096;

/// Regions that hold each pointer parameter of a call: input, output and arguments, in order.
const PLACES: [RegionId; 3] = [RegionId::INPUT, RegionId::OUTPUT, RegionId::ARGS];

/// The most that the parameter `index` needs, with all counts at `count`.
fn needed(param: Param, count: u64) -> Option<u64> {
    match param {
        Param::Scalar | Param::Pointer => None,
        Param::Read { unit, .. } | Param::Write { unit, .. } => Some(count * u64::from(unit)),
        Param::ReadWithin { .. } | Param::WriteWithin { .. } => Some(count),
        Param::Struct(len) => Some(u64::from(len)),
    }
}

/// A call of `helper` in which each pointer is at the start of a region of its own.
fn valid_args(helper: &super::super::Helper, count: u64) -> ([u64; 5], Vec<(usize, RegionId, u64)>) {
    let mut args = [0; 5];
    let mut pointers = Vec::new();
    let mut places = PLACES.into_iter();
    for (i, &param) in helper.params.iter().enumerate() {
        if let Some(len) = needed(param, count) {
            let region = places.next().unwrap();
            args[i] = region.base();
            pointers.push((i, region, len));
        }
        if let Param::Read { len, .. } | Param::Write { len, .. } = param {
            args[usize::from(len)] = count;
        }
        if let Param::ReadWithin { boundary } | Param::WriteWithin { boundary } = param {
            args[usize::from(boundary)] = count;
        }
    }
    (args, pointers)
}

fn with_regions<R>(host: &mut Host, f: impl FnOnce(&mut Host) -> R) -> (R, [Vec<u64>; 3]) {
    let mut memory = [(); 3].map(|()| vec![0u64; LEN / 8]);
    let [a, b, c] = &mut memory;
    let mappings = Mappings::new()
        .writable(PLACES[0], as_bytes(a))
        .writable(PLACES[1], as_bytes(b))
        .writable(PLACES[2], as_bytes(c));
    let result = host.mapped(mappings, f);
    (result, memory)
}

fn as_bytes(words: &mut [u64]) -> &mut [u8] {
    words.as_mut_bytes()
}

/// Sanity of the test itself: the calls that the others bend are accepted.
#[test]
fn exact_ranges_are_accepted() {
    let mut host = Host::new();
    for helper in standard().iter() {
        let (mut args, pointers) = valid_args(helper, 8);
        for &(i, region, len) in &pointers {
            args[i] = region.base() + LEN as u64 - len;
        }
        let (result, _) = with_regions(&mut host, |host| host.call(helper.name, &args));
        assert!(result.is_ok() || pointers.is_empty(), "{}: {result:?}", helper.name);
    }
}

#[test]
fn one_byte_past_the_end_traps_and_writes_nothing() {
    let mut host = Host::new();
    let mut tried = 0;
    for helper in standard().iter() {
        let (args, pointers) = valid_args(helper, 8);
        for &(i, region, len) in &pointers {
            let mut args = args;
            args[i] = region.base() + LEN as u64 - len + 1;
            let (result, memory) = with_regions(&mut host, |host| host.call(helper.name, &args));
            let trap = result.expect_err(helper.name);
            assert_eq!(trap.kind, TrapKind::OutOfBounds, "{}", helper.name);
            assert_eq!(trap.region, Some(region), "{}", helper.name);
            assert_eq!(trap.offset, (LEN as u64 - len + 1) as i64);
            assert_eq!((trap.len, trap.bound), (len, LEN as u64));
            assert_eq!(trap.helper.map(|h| h.0), Some(helper.name));
            assert!(memory.iter().flatten().all(|&w| w == 0), "{} wrote before it trapped", helper.name);
            tried += 1;
        }
    }
    assert!(tried > 40, "{tried} pointer parameters");
}

#[test]
fn one_byte_before_the_start_traps() {
    let mut host = Host::new();
    for helper in standard().iter() {
        let (args, pointers) = valid_args(helper, 8);
        for &(i, region, _) in &pointers {
            let mut args = args;
            args[i] = region.base() - 1;
            let (result, _) = with_regions(&mut host, |host| host.call(helper.name, &args));
            let trap = result.expect_err(helper.name);
            assert_eq!(trap.kind, TrapKind::OutOfBounds, "{}", helper.name);
            assert_eq!((trap.region, trap.offset), (Some(region), -1), "{}", helper.name);
        }
    }
}

#[test]
fn null_and_wild_pointers_trap() {
    let mut host = Host::new();
    for helper in standard().iter() {
        let (args, pointers) = valid_args(helper, 8);
        for &(i, ..) in &pointers {
            for wild in [0, 1, 0xffff, u64::MAX, 1 << 63, RegionId::STATE.base()] {
                let mut args = args;
                args[i] = wild;
                let (result, _) = with_regions(&mut host, |host| host.call(helper.name, &args));
                let trap = result.expect_err(helper.name);
                let unmapped = trap.kind == TrapKind::Unmapped;
                assert!(unmapped, "{} at {wild:#x}: {trap}", helper.name);
            }
        }
    }
}

/// Counts whose product with the element size wraps must not come back small.
#[test]
fn wrapped_lengths_trap() {
    let mut host = Host::new();
    for helper in standard().iter() {
        let (args, pointers) = valid_args(helper, 8);
        for param in helper.params {
            let (Param::Read { len, unit } | Param::Write { len, unit }) = *param else { continue };
            for count in [
                u64::MAX,
                u64::MAX / u64::from(unit) - 1,
                (u64::MAX / u64::from(unit)).wrapping_add(1).max(1 << 41),
                1 << 62,
                1 << 40,
            ] {
                let mut args = args;
                args[usize::from(len)] = count;
                let (result, memory) = with_regions(&mut host, |host| host.call(helper.name, &args));
                let trap = result.expect_err(helper.name);
                assert_eq!(trap.kind, TrapKind::OutOfBounds, "{} {count:#x}: {trap}", helper.name);
                assert!(memory.iter().flatten().all(|&w| w == 0));
            }
        }
        drop(pointers);
    }
}

#[test]
fn writing_to_read_only_memory_traps() {
    let mut host = Host::new();
    let bytes = [0u8; LEN];
    for helper in standard().iter() {
        let (args, pointers) = valid_args(helper, 8);
        for &(i, region, _) in &pointers {
            if !matches!(helper.params[i], Param::Write { .. } | Param::WriteWithin { .. }) {
                continue;
            }
            let mut memory = PLACES.map(|_| [0u64; LEN / 8]);
            let places = PLACES.iter().zip(&mut memory);
            let mappings = places.fold(Mappings::new(), |m, (&place, memory)| match place == region {
                true => m.read_only(place, &bytes),
                false => m.writable(place, IntoBytes::as_mut_bytes(&mut memory[..])),
            });
            let trap = host.mapped(mappings, |host| host.call(helper.name, &args)).expect_err(helper.name);
            assert_eq!((trap.kind, trap.region), (TrapKind::ReadOnly, Some(region)), "{}", helper.name);
        }
    }
}

/// With nothing to do, nothing is touched: the pointers may be anything.
#[test]
fn zero_length_needs_no_memory() {
    let mut host = Host::new();
    for name in ["ds_memcpy", "ds_memmove", "ds_memset", "ds_memcmp"] {
        assert!(host.call(name, &[0, 0, 0]).is_ok(), "{name}");
    }
    assert_eq!(host.call("ds_popcount", &[0, 0]), Ok(0));
    assert_eq!(host.call("ds_sum_u64", &[1, 0]), Ok(0));
    assert_eq!(host.call("ds_find", &[0, 0, 0, 0]), Ok(0));
}

#[test]
fn helpers_cost_one_edge_and_one_for_each_64_bytes() {
    let mut host = Host::new();
    let bytes = vec![0u8; 200_000];
    for (name, args, edges) in [
        ("ds_popcount", [INPUT, 200_000, 0, 0], 1 + 3125),
        ("ds_popcount", [INPUT, 1, 0, 0], 2),
        ("ds_sum_u64", [INPUT, 1024, 0, 0], 1 + 128),
        ("ds_crc32c", [0, INPUT, 65, 0], 3),
        ("ds_memcmp", [INPUT, INPUT, 6400, 0], 1 + 100),
    ] {
        let before = host.machine.edges_left();
        host.over(name, &bytes, &args).unwrap();
        assert_eq!(before - host.machine.edges_left(), edges, "{name}");
    }
}

#[test]
fn a_helper_stops_when_the_budget_ends() {
    let mut host = Host::new();
    let bytes = vec![1u8; 1 << 20];
    host.budget((1 << 20) / 64);
    let trap = host.over("ds_popcount", &bytes, &[INPUT, 1 << 20]).unwrap_err();
    assert_eq!(trap.kind, TrapKind::Budget);
    assert_eq!(trap.helper.map(|h| h.0), Some("ds_popcount"));
    assert_eq!(host.machine.edges_left(), 0);
    host.budget((1 << 20) / 64 + 1);
    assert_eq!(host.over("ds_popcount", &bytes, &[INPUT, 1 << 20]), Ok(1 << 20));
    assert_eq!(host.machine.edges_left(), 0, "to the last edge");
}

#[test]
fn a_pulled_token_and_a_passed_deadline_stop_a_helper() {
    let mut host = Host::new();
    let bytes = vec![1u8; 1 << 20];
    let limits = Limits::for_bytes(1 << 20, 0);
    assert!(limits.cancel.is_none());
    let token = crate::machine::CancelToken::new();
    token.cancel();
    host.machine.cancel = Some(token);
    let trap = host.over("ds_crc32c", &bytes, &[0, INPUT, 1 << 20]).unwrap_err();
    assert_eq!(trap.kind, TrapKind::Cancelled);
    host.machine.cancel = None;
    host.machine.deadline = Some(std::time::Instant::now());
    let trap = host.over("ds_crc32c", &bytes, &[0, INPUT, 1 << 20]).unwrap_err();
    assert_eq!(trap.kind, TrapKind::Deadline);
}
