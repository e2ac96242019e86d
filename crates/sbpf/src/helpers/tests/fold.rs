//! `ds_sum_*`, `ds_min_*`, `ds_max_*`, `ds_popcount` against plain loops.

use super::*;
use proptest::prelude::*;

/// Calls a fold over elements that start `skew` bytes into the region.
fn fold(name: &str, input: &[u8], n: usize, skew: usize) -> u64 {
    let mut skewed = vec![0xee; skew];
    skewed.extend_from_slice(input);
    Host::new().over(name, &skewed, &[INPUT + skew as u64, n as u64]).unwrap()
}

macro_rules! integers {
    ($test:ident, $type:ident, $wide:ident, $sum:literal, $min:literal, $max:literal) => {
        proptest! {
            #[test]
            fn $test(values: Vec<$type>, skew in 0usize..9) {
                let input: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                let sum = values.iter().fold(0u64, |sum, &v| sum.wrapping_add(v as $wide as u64));
                let min = values.iter().copied().min().unwrap_or($type::MAX) as $wide as u64;
                let max = values.iter().copied().max().unwrap_or($type::MIN) as $wide as u64;
                prop_assert_eq!(fold($sum, &input, values.len(), skew), sum);
                prop_assert_eq!(fold($min, &input, values.len(), skew), min);
                prop_assert_eq!(fold($max, &input, values.len(), skew), max);
            }
        }
    };
}

integers!(u32s, u32, u64, "ds_sum_u32", "ds_min_u32", "ds_max_u32");
integers!(i32s, i32, i64, "ds_sum_i32", "ds_min_i32", "ds_max_i32");
integers!(u64s, u64, u64, "ds_sum_u64", "ds_min_u64", "ds_max_u64");
integers!(i64s, i64, i64, "ds_sum_i64", "ds_min_i64", "ds_max_i64");

/// The order that the header states.
fn lane_sum(values: impl Iterator<Item = f64>) -> u64 {
    let mut lanes = [0.0f64; 8];
    for (i, v) in values.enumerate() {
        lanes[i % 8] += v;
    }
    let [a, b, c, d, e, f, g, h] = lanes;
    let sum = ((a + e) + (c + g)) + ((b + f) + (d + h));
    if sum.is_nan() { crate::float::NAN_F64 } else { sum.to_bits() }
}

/// IEEE 754-2019 minimum over all, by the definition.
fn extreme(values: &[f64], least: bool) -> u64 {
    if values.iter().any(|v| v.is_nan()) {
        return crate::float::NAN_F64;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let found = if least { sorted.first() } else { sorted.last() };
    found.copied().unwrap_or(if least { f64::INFINITY } else { f64::NEG_INFINITY }).to_bits()
}

fn float() -> impl Strategy<Value = f32> {
    prop_oneof![
        8 => any::<f32>(),
        2 => Just(0.0f32),
        2 => Just(-0.0f32),
        1 => Just(f32::INFINITY),
        1 => Just(f32::from_bits(0xffc0_0001)),
    ]
}

proptest! {
    #[test]
    fn floats(values in proptest::collection::vec(float(), 0..40), skew in 0usize..9) {
        let wide: Vec<f64> = values.iter().map(|&v| f64::from(v)).collect();
        let narrow_bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let wide_bytes: Vec<u8> = wide.iter().flat_map(|v| v.to_le_bytes()).collect();
        let n = values.len();
        let sum = lane_sum(wide.iter().copied());
        prop_assert_eq!(fold("ds_sum_f32", &narrow_bytes, n, skew), sum);
        prop_assert_eq!(fold("ds_sum_f64", &wide_bytes, n, skew), sum);
        for (least, f32_name, f64_name) in [(true, "ds_min_f32", "ds_min_f64"), (false, "ds_max_f32", "ds_max_f64")] {
            let expected = extreme(&wide, least);
            prop_assert_eq!(fold(f64_name, &wide_bytes, n, skew), expected);
            let narrowed = crate::float::eval(crate::ir::FloatOp::F32FromF64, expected, 0);
            prop_assert_eq!(fold(f32_name, &narrow_bytes, n, skew), narrowed);
        }
    }

    #[test]
    fn popcount(bytes: Vec<u8>, skew in 0usize..9) {
        let expected: u32 = bytes.iter().map(|b| b.count_ones()).sum();
        prop_assert_eq!(fold("ds_popcount", &bytes, bytes.len(), skew), u64::from(expected));
    }
}

/// Over the joints of steps: lanes and extremes carry over.
#[test]
fn long_inputs() {
    let values: Vec<f64> = (0..30_001).map(|i| f64::from(i * 7919 % 10_007) / 3.0).collect();
    let input: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    assert_eq!(fold("ds_sum_f64", &input, values.len(), 5), lane_sum(values.iter().copied()));
    assert_eq!(fold("ds_max_f64", &input, values.len(), 5), extreme(&values, false));
    assert_eq!(fold("ds_sum_i64", &input, values.len(), 1), {
        values.iter().fold(0u64, |s, v| s.wrapping_add(v.to_bits()))
    });
}
