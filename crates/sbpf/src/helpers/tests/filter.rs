//! `ds_filter_*` against a loop with the comparison operators of the language.

use super::*;
use diskside_abi::filter::DsFilter;
use proptest::prelude::*;
use zerocopy::IntoBytes;

const OPS: u32 = 7;

fn holds<T: PartialOrd>(op: u32, x: T, lo: &T, hi: &T) -> bool {
    match op {
        0 => x == *lo,
        1 => x != *lo,
        2 => x < *lo,
        3 => x <= *lo,
        4 => x > *lo,
        5 => x >= *lo,
        _ => *lo <= x && x <= *hi,
    }
}

/// Bitmap and positions, the plain way.
fn expected(matches: &[bool]) -> (Vec<u8>, Vec<u8>) {
    let mut bitmap = vec![0u8; matches.len().div_ceil(8)];
    let mut positions = Vec::new();
    for (i, _) in matches.iter().enumerate().filter(|(_, m)| **m) {
        bitmap[i / 8] |= 1 << (i % 8);
        positions.extend_from_slice(&(i as u32).to_le_bytes());
    }
    (bitmap, positions)
}

/// Calls a filter over `input` (starting `skew` bytes into its region): the result and the output.
fn filter(
    name: &str,
    input: &[u8],
    n: u64,
    spec: &DsFilter,
    skew: usize,
    out_cap: usize,
) -> (Result<u64, Trap>, Vec<u8>) {
    let mut skewed = vec![0xee; skew];
    skewed.extend_from_slice(input);
    let mut out = vec![0xaa55_aa55_aa55_aa55u64; out_cap.div_ceil(8)];
    let bytes = out.as_mut_slice().as_mut_bytes();
    let mut host = Host::new();
    let mappings = Mappings::new()
        .read_only(RegionId::INPUT, &skewed)
        .read_only(RegionId::ARGS, spec.as_bytes())
        .writable(RegionId::OUTPUT, &mut bytes[..out_cap]);
    let args = [OUTPUT, out_cap as u64, INPUT + skew as u64, n, ARGS];
    let result = host.mapped(mappings, |host| host.call(name, &args));
    (result, bytes[..out_cap].to_vec())
}

macro_rules! filter_property {
    ($test:ident, $name:literal, $type:ty, $bits:expr, $values:expr) => {
        proptest! {
            #![proptest_config(ProptestConfig::with_cases(48))]
            #[test]
            fn $test(
                values in proptest::collection::vec($values, 0..700),
                lo in $values, hi in $values, op in 0..OPS, skew in 0usize..9,
            ) {
                let bits: fn($type) -> u64 = $bits;
                let matches: Vec<bool> = values.iter().map(|&x| holds(op, x, &lo, &hi)).collect();
                let count = matches.iter().filter(|m| **m).count() as u64;
                let (bitmap, positions) = expected(&matches);
                let input: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                let n = values.len() as u64;
                for (form, wanted) in [(0u32, bitmap), (1, positions)] {
                    let spec = DsFilter { op: op.into(), form: form.into(), lo: bits(lo).into(), hi: bits(hi).into() };
                    let (result, out) = filter($name, &input, n, &spec, skew, wanted.len());
                    prop_assert_eq!(result, Ok(count));
                    prop_assert!(out == wanted);
                    let (result, out) = filter($name, &input, n, &spec, skew, wanted.len() + 5);
                    prop_assert_eq!(result, Ok(count));
                    prop_assert!(out[..wanted.len()] == wanted[..], "room to spare changes nothing");
                    if !wanted.is_empty() {
                        let (result, _) = filter($name, &input, n, &spec, skew, wanted.len() - 1);
                        prop_assert_eq!(result, Ok(-28i64 as u64), "-DS_ENOSPC");
                    }
                }
            }
        }
    };
}

/// Few distinct values, so that equal ones occur, and all the special ones.
fn small_f64() -> impl Strategy<Value = f64> {
    prop_oneof![
        6 => (-3i8..4).prop_map(f64::from),
        2 => any::<f64>(),
        1 => Just(f64::NAN),
        1 => Just(-0.0),
        1 => Just(f64::INFINITY),
        1 => Just(f64::NEG_INFINITY),
        1 => Just(f64::from_bits(1)),
        1 => Just(-f64::from_bits(1)),
        1 => Just(f64::MAX),
    ]
}

fn small_f32() -> impl Strategy<Value = f32> {
    prop_oneof![
        6 => (-3i8..4).prop_map(f32::from),
        2 => any::<f32>(),
        1 => Just(f32::NAN),
        1 => Just(-0.0),
        1 => Just(f32::INFINITY),
        1 => Just(f32::NEG_INFINITY),
        1 => Just(f32::from_bits(1)),
        1 => Just(f32::MIN),
    ]
}

macro_rules! small_integer {
    ($type:ident) => {
        prop_oneof![6 => 0..6 as $type, 2 => any::<$type>(), 1 => Just($type::MIN), 1 => Just($type::MAX)]
    };
}

filter_property!(u32s, "ds_filter_u32", u32, u64::from, small_integer!(u32));
// The upper half of a bound is noise that must not matter.
filter_property!(i32s, "ds_filter_i32", i32, |v| u64::from(v as u32) | 0xdead_beef_0000_0000, small_integer!(i32));
filter_property!(u64s, "ds_filter_u64", u64, |v| v, small_integer!(u64));
filter_property!(i64s, "ds_filter_i64", i64, |v| v as u64, small_integer!(i64));
filter_property!(f32s, "ds_filter_f32", f32, |v| u64::from(v.to_bits()), small_f32());
filter_property!(f64s, "ds_filter_f64", f64, f64::to_bits, small_f64());

/// Bits and positions continue across the joints of steps.
#[test]
fn long_inputs() {
    let values: Vec<u32> = (0..100_003u32).map(|i| i.wrapping_mul(2_654_435_761) >> 8).collect();
    let matches: Vec<bool> = values.iter().map(|&x| x < 5_000_000).collect();
    let (bitmap, positions) = expected(&matches);
    let input: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    for (form, wanted) in [(0u32, bitmap), (1, positions)] {
        let spec = DsFilter { op: 2.into(), form: form.into(), lo: 5_000_000.into(), hi: 0.into() };
        let (result, out) = filter("ds_filter_u32", &input, values.len() as u64, &spec, 3, wanted.len());
        assert_eq!(result, Ok(matches.iter().filter(|m| **m).count() as u64));
        assert!(out == wanted);
    }
}

#[test]
fn wrong_specs_are_refused_with_a_reason() {
    for (op, form, reason) in [
        (7, 0, "spec->op is not one of enum ds_filter_op"),
        (u32::MAX, 0, "spec->op is not one of enum ds_filter_op"),
        (0, 2, "spec->form is not one of enum ds_filter_form"),
    ] {
        let spec = DsFilter { op: op.into(), form: form.into(), lo: 0.into(), hi: 0.into() };
        let (result, _) = filter("ds_filter_u32", &[0; 8], 2, &spec, 0, 8);
        assert_eq!(why(result), (TrapKind::Helper, reason));
    }
}

#[test]
fn output_over_input_is_refused() {
    let spec = DsFilter::default();
    let mut memory = vec![0u64; 8];
    let bytes = memory.as_mut_slice().as_mut_bytes();
    let mut host = Host::new();
    let mappings = Mappings::new().writable(RegionId::OUTPUT, bytes).read_only(RegionId::ARGS, spec.as_bytes());
    let (overlap, apart) = host.mapped(mappings, |host| {
        (
            host.call("ds_filter_u32", &[OUTPUT + 31, 32, OUTPUT, 8, ARGS]),
            host.call("ds_filter_u32", &[OUTPUT + 32, 32, OUTPUT, 8, ARGS]),
        )
    });
    assert_eq!(why(overlap), (TrapKind::Helper, "the output overlaps the input"));
    assert_eq!(apart, Ok(8));
}
