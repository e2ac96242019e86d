//! Functions over rows: nearest neighbours and filters.

mod common;

use common::{EINVAL, ENOSPC, bytes_of, cuts, shipped, words};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// The k nearest as the function lays them out; `distances` has one entry a row.
fn nearest(distances: &[u64], k: usize) -> Vec<u64> {
    let mut rows: Vec<(u64, u64)> = distances.iter().enumerate().map(|(i, d)| (*d, i as u64)).collect();
    rows.sort_unstable();
    let mut expected: Vec<u64> = rows.iter().take(k).flat_map(|&(d, i)| [i, d]).collect();
    expected.resize(2 * k, u64::MAX);
    expected
}

fn list<T: ToString>(values: &[T]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Rows to search, and what must be found.
struct Knn<'a> {
    input: &'a [u8],
    row_len: usize,
    k: usize,
    manhattan: bool,
    target: String,
    distances: &'a [u64],
}

impl Knn<'_> {
    /// Runs whole and in chunks at row ends.
    fn check(&self, name: &str, picks: &[Index]) {
        let expected = nearest(self.distances, self.k);
        let (row_len, k) = (self.row_len.to_string(), self.k.to_string());
        let metric = ["squared", "manhattan"][usize::from(self.manhattan)];
        let args = [("row_len", &*row_len), ("k", &k), ("metric", metric), ("target", &self.target)];
        let function = shipped(name);
        assert_eq!(words(&function.run(self.input, &args).unwrap()), expected, "{name}");
        let cuts = cuts(picks, self.input.len(), self.row_len);
        let in_chunks = function.run_in_chunks(self.input, &cuts, &args).unwrap();
        assert_eq!(words(&in_chunks), expected, "{name} in chunks");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn knn(n in 1usize..40, bytes: Vec<u8>, seed in vec(any::<u8>(), 40), k in 1usize..6, manhattan: bool, picks in vec(any::<Index>(), 0..3)) {
        let target = &seed[..n];
        let rows = bytes.len() / n;
        let distance = |row: &[u8]| {
            row.iter().zip(target).map(|(a, b)| u64::from(a.abs_diff(*b))).map(|d| if manhattan { d } else { d * d }).sum()
        };
        let distances: Vec<u64> = bytes.chunks_exact(n).map(distance).collect();
        Knn { input: &bytes[..rows * n], row_len: n, k, manhattan, target: list(target), distances: &distances }.check("knn", &picks);
    }

    #[test]
    fn knn_u32(n in 1usize..9, values in vec(prop_oneof![0u32..9, any::<u32>()], 0..120), seed in vec(any::<u32>(), 9), k in 1usize..6, manhattan: bool, picks in vec(any::<Index>(), 0..3)) {
        let target = &seed[..n];
        let rows = values.len() / n;
        let distance = |row: &[u32]| {
            let exact: u128 = row.iter().zip(target).map(|(a, b)| u128::from(a.abs_diff(*b))).map(|d| if manhattan { d } else { d * d }).sum();
            u64::try_from(exact).unwrap_or(u64::MAX)
        };
        let distances: Vec<u64> = values.chunks_exact(n).map(distance).collect();
        let input = bytes_of(&values[..rows * n], u32::to_le_bytes);
        Knn { input: &input, row_len: 4 * n, k, manhattan, target: list(target), distances: &distances }.check("knn_u32", &picks);
    }

    #[test]
    fn knn_f32(n in 1usize..9, values in vec(prop_oneof![-9f32..9.0, any::<f32>()], 0..120), target in vec(-5i8..5, 9), k in 1usize..6, manhattan: bool, picks in vec(any::<Index>(), 0..3)) {
        let target: Vec<f32> = target[..n].iter().map(|v| f32::from(*v) / 4.0).collect();
        let rows = values.len() / n;
        let distance = |row: &[f32]| {
            let mut sum = 0.0f64;
            for (a, b) in row.iter().zip(&target) {
                let d = f64::from(*a) - f64::from(*b);
                sum += if manhattan { d.abs() } else { d * d };
            }
            if sum.is_nan() { diskside_sbpf::float::NAN_F64 } else { sum.to_bits() }
        };
        let distances: Vec<u64> = values.chunks_exact(n).map(distance).collect();
        let input = bytes_of(&values[..rows * n], f32::to_le_bytes);
        Knn { input: &input, row_len: 4 * n, k, manhattan, target: list(&target), distances: &distances }.check("knn_f32", &picks);
    }

    #[test]
    fn filters_of_a_plain_column(values in vec(-5i32..5, 0..5000), lo in -5i32..5, op in 0usize..7, picks in vec(any::<Index>(), 0..3)) {
        let hi = lo + 2;
        let name = ["eq", "ne", "lt", "le", "gt", "ge", "between"][op];
        let holds = |v: i32| [v == lo, v != lo, v < lo, v <= lo, v > lo, v >= lo, lo <= v && v <= hi][op];
        let matches: Vec<bool> = values.iter().map(|v| holds(*v)).collect();
        let (lo_text, hi_text) = (lo.to_string(), hi.to_string());
        for (function, input) in [
            ("filter_i32", bytes_of(&values, i32::to_le_bytes)),
            ("filter_i64", values.iter().flat_map(|v| i64::from(*v).to_le_bytes()).collect()),
            ("filter_f32", values.iter().flat_map(|v| (*v as f32).to_le_bytes()).collect()),
            ("filter_f64", values.iter().flat_map(|v| f64::from(*v).to_le_bytes()).collect()),
        ] {
            let width = if function.ends_with("64") { 8 } else { 4 };
            check_filter(function, &input, width, &matches, &[("op", name), ("lo", &lo_text), ("hi", &hi_text)], &picks);
        }
    }

    #[test]
    fn filters_of_rows(values in vec(0u16..50, 0..5000), lo in 0u16..50, picks in vec(any::<Index>(), 0..3)) {
        let matches: Vec<bool> = values.iter().map(|v| *v >= lo).collect();
        let lo = lo.to_string();
        // Rows of 13 bytes with the element at 5.
        let rows_of = |wide: fn(u16) -> Vec<u8>| -> Vec<u8> {
            values.iter().enumerate().flat_map(|(i, v)| {
                let mut row = vec![i as u8; 13];
                let element = wide(*v);
                row[5..5 + element.len()].copy_from_slice(&element);
                row
            }).collect()
        };
        let args = [("op", "ge"), ("lo", &*lo), ("row_len", "13"), ("offset", "5")];
        check_filter("filter_u32", &rows_of(|v| u32::from(v).to_le_bytes().to_vec()), 13, &matches, &args, &picks);
        check_filter("filter_u64", &rows_of(|v| u64::from(v).to_le_bytes().to_vec()), 13, &matches, &args, &picks);
    }
}

/// Checks all three forms against the expected matches.
fn check_filter(name: &str, input: &[u8], row_len: usize, matches: &[bool], args: &[(&str, &str)], picks: &[Index]) {
    let mut bitmap = vec![0u8; matches.len().div_ceil(8)];
    let mut positions = Vec::new();
    let mut rows = Vec::new();
    for (i, row) in input.chunks_exact(row_len).enumerate().filter(|(i, _)| matches[*i]) {
        bitmap[i / 8] |= 1 << (i % 8);
        positions.extend_from_slice(&(i as u64).to_le_bytes());
        rows.extend_from_slice(row);
    }
    let function = shipped(name);
    for (form, expected, unit) in [("bitmap", bitmap, 8), ("positions", positions, 1), ("rows", rows, 1)] {
        let args: Vec<_> = args.iter().copied().chain([("form", form)]).collect();
        let cap = matches.len() * row_len.max(8) + 64;
        let result = function.chunk(input, 0, true, &function.args(&args), cap);
        assert!(result.as_deref() == Ok(&expected[..]), "{name} {form}");
        let mut joined = Vec::new();
        let cuts = cuts(picks, input.len(), row_len * unit);
        let ends = cuts.iter().copied().chain([input.len()]);
        for (start, end) in [0].into_iter().chain(cuts.iter().copied()).zip(ends) {
            let last = end == input.len();
            joined.extend(function.chunk(&input[start..end], start as u64, last, &function.args(&args), cap).unwrap());
        }
        assert!(joined == expected, "{name} {form} in chunks");
    }
}

#[test]
fn knn_refuses_what_does_not_fit_together() {
    let function = shipped("knn");
    let run = |row_len: &str, target: &str| function.run(&[0; 32], &[("row_len", row_len), ("target", target)]);
    assert_eq!(run("4", "1,2,3"), Err(EINVAL), "the target is no row");
    assert_eq!(run("4", "1,2,3,4,5"), Err(EINVAL), "the target is no row");
    assert!(run("4", "1,2,3,4").is_ok());
    assert_eq!(shipped("knn_u32").run(&[0; 32], &[("row_len", "6"), ("target", "1")]), Err(EINVAL));
    let args = function.args(&[("row_len", "4"), ("target", "1,2,3,4")]);
    assert_eq!(function.chunk(&[0; 32], 2, true, &args, 4096), Err(EINVAL), "a chunk that starts within a row");
}

#[test]
fn filter_says_when_the_output_is_too_small() {
    let function = shipped("filter_u32");
    let input = [0u8; 4096];
    for (form, needed) in [("bitmap", 128), ("positions", 8192), ("rows", 4096)] {
        let args = function.args(&[("op", "eq"), ("lo", "0"), ("form", form)]);
        assert_eq!(function.chunk(&input, 0, true, &args, needed).map(|r| r.len()), Ok(needed), "{form}");
        assert_eq!(function.chunk(&input, 0, true, &args, needed - 8), Err(ENOSPC), "{form}");
    }
    let args = function.args(&[("op", "eq"), ("lo", "0")]);
    assert_eq!(function.chunk(&input[..4], 0, false, &args, 64), Err(EINVAL), "a bitmap cannot end within a byte");
}
