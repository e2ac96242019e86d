//! Functions over columns of numbers: statistics, histogram, extremes, grouping.

mod common;

use common::{EINVAL, ENOSPC, bytes_of, cuts, shipped, words};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use std::collections::BTreeMap;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn stats64(values: Vec<i64>, picks in vec(any::<Index>(), 0..4)) {
        let input = bytes_of(&values, i64::to_le_bytes);
        let sum = values.iter().fold(0i64, |s, v| s.wrapping_add(*v));
        let min = values.iter().copied().min().unwrap_or(i64::MAX);
        let max = values.iter().copied().max().unwrap_or(i64::MIN);
        let expected = vec![values.len() as u64, sum as u64, min as u64, max as u64];
        let function = shipped("stats64");
        prop_assert_eq!(words(&function.run(&input, &[]).unwrap()), expected.clone());
        let in_chunks = function.run_in_chunks(&input, &cuts(&picks, input.len(), 8), &[]).unwrap();
        prop_assert_eq!(words(&in_chunks), expected);
    }

    #[test]
    fn stats32(values: Vec<i32>, picks in vec(any::<Index>(), 0..4)) {
        let input = bytes_of(&values, i32::to_le_bytes);
        let sum: i64 = values.iter().copied().map(i64::from).sum();
        let min = values.iter().copied().min().unwrap_or(i32::MAX);
        let max = values.iter().copied().max().unwrap_or(i32::MIN);
        let extremes = u64::from(min as u32) | u64::from(max as u32) << 32;
        let expected = vec![values.len() as u64, sum as u64, extremes];
        let function = shipped("stats32");
        prop_assert_eq!(words(&function.run(&input, &[]).unwrap()), expected.clone());
        let in_chunks = function.run_in_chunks(&input, &cuts(&picks, input.len(), 4), &[]).unwrap();
        prop_assert_eq!(words(&in_chunks), expected);
    }

    #[test]
    fn histogram(values: Vec<i16>, lo in -300i64..300, width in 1u64..5000, bins in 1usize..20, picks in vec(any::<Index>(), 0..4)) {
        let input = bytes_of(&values, i16::to_le_bytes);
        let mut expected = vec![(i64::MIN, 0u64)];
        expected.extend((0..=bins).map(|i| (lo + (i as u64 * width) as i64, 0)));
        for v in &values {
            let row = expected.iter().rposition(|r| r.0 <= i64::from(*v)).unwrap();
            expected[row].1 += 1;
        }
        let expected: Vec<u64> = expected.into_iter().flat_map(|(from, count)| [from as u64, count]).collect();
        let (lo, width, bins) = (lo.to_string(), width.to_string(), bins.to_string());
        let args = [("type", "i16"), ("lo", &*lo), ("width", &width), ("bins", &bins)];
        let function = shipped("histogram");
        prop_assert_eq!(words(&function.run(&input, &args).unwrap()), expected.clone());
        let in_chunks = function.run_in_chunks(&input, &cuts(&picks, input.len(), 2), &args).unwrap();
        prop_assert_eq!(words(&in_chunks), expected);
    }

    /// One byte each by default: the counts of all 256 values.
    #[test]
    fn byte_histogram(input: Vec<u8>) {
        let result = words(&shipped("histogram").run(&input, &[]).unwrap());
        prop_assert_eq!(result.len(), 2 * 258);
        for value in 0..=255u8 {
            let row = &result[2 * (usize::from(value) + 1)..][..2];
            let count = input.iter().filter(|v| **v == value).count() as u64;
            prop_assert_eq!(row, [u64::from(value), count]);
        }
        prop_assert_eq!((result[1], result[515]), (0, 0));
    }

    #[test]
    fn topk_and_bottomk(values in vec(-9i32..9, 0..200), k in 1usize..12, picks in vec(any::<Index>(), 0..4)) {
        // Rows of 12 bytes with the value in the middle.
        let input: Vec<u8> = values.iter().flat_map(|v| [[7; 4], v.to_le_bytes(), [9; 4]].concat()).collect();
        let k_text = k.to_string();
        let args = [("row_len", "12"), ("offset", "4"), ("type", "i32"), ("k", &*k_text)];
        let mut rows: Vec<(usize, i32)> = values.iter().copied().enumerate().collect();
        for name in ["topk", "bottomk"] {
            if name == "topk" {
                rows.sort_by_key(|&(i, v)| (std::cmp::Reverse(v), i));
            } else {
                rows.sort_by_key(|&(i, v)| (v, i));
            }
            let mut expected: Vec<u64> = rows.iter().take(k).flat_map(|&(i, v)| [i as u64, i64::from(v) as u64]).collect();
            while expected.len() < 2 * k {
                expected.extend([u64::MAX, 0]);
            }
            let function = shipped(name);
            prop_assert_eq!(words(&function.run(&input, &args).unwrap()), expected.clone());
            let in_chunks = function.run_in_chunks(&input, &cuts(&picks, input.len(), 12), &args).unwrap();
            prop_assert_eq!(words(&in_chunks), expected);
        }
    }

    #[test]
    fn aggregate(rows in vec((-20i16..20, any::<i32>()), 0..300), picks in vec(any::<Index>(), 0..4)) {
        // Rows of 7 bytes: the value first, then the key, then one byte more.
        let input: Vec<u8> =
            rows.iter().flat_map(|(k, v)| [&v.to_le_bytes()[..], &k.to_le_bytes(), &[1]].concat()).collect();
        let expected = grouped(rows.iter().map(|&(k, v)| (i64::from(k), i64::from(v))));
        let args =
            [("row_len", "7"), ("key_offset", "4"), ("key_type", "i16"), ("value_offset", "0"), ("value_type", "i32")];
        let function = shipped("aggregate");
        prop_assert_eq!(words(&function.run(&input, &args).unwrap()), expected.clone());
        let in_chunks = function.run_in_chunks(&input, &cuts(&picks, input.len(), 7), &args).unwrap();
        prop_assert_eq!(words(&in_chunks), expected);
    }
}

fn grouped(rows: impl Iterator<Item = (i64, i64)>) -> Vec<u64> {
    let mut groups: BTreeMap<i64, [i64; 4]> = BTreeMap::new();
    for (key, v) in rows {
        groups
            .entry(key)
            .and_modify(|[count, sum, min, max]| {
                *count += 1;
                *sum = sum.wrapping_add(v);
                *min = v.min(*min);
                *max = v.max(*max);
            })
            .or_insert([1, v, v, v]);
    }
    groups.into_iter().flat_map(|(key, [c, s, min, max])| [key, c, s, min, max]).map(|v| v as u64).collect()
}

/// More groups than the first table holds: it grows several times.
#[test]
fn aggregate_of_many_groups() {
    let rows: Vec<(i64, i64)> =
        (0..9000).map(|i: i64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15u64 as i64) % 5000, i)).collect();
    let input: Vec<u8> = rows.iter().flat_map(|(k, v)| [k.to_le_bytes(), v.to_le_bytes()].concat()).collect();
    let args = [("row_len", "16"), ("value_offset", "8")];
    let function = shipped("aggregate");
    // Each group is longer than a row here: more room than usual.
    let result = function.chunk(&input, 0, true, &function.args(&args), 1 << 20).unwrap();
    assert_eq!(words(&result), grouped(rows.into_iter()));
    assert_eq!(function.chunk(&input, 0, true, &function.args(&args), 4096), Err(ENOSPC));
}

#[test]
fn columns_outside_their_row_are_refused() {
    for (name, args) in [
        ("topk", &[("row_len", "8"), ("offset", "1")][..]),
        ("histogram", &[("row_len", "4"), ("offset", "1"), ("type", "u32")]),
        ("aggregate", &[("row_len", "8"), ("key_offset", "4")]),
        ("aggregate", &[("row_len", "8"), ("value_offset", "4294967295")]),
    ] {
        assert_eq!(shipped(name).run(&[0; 64], args), Err(EINVAL), "{name} {args:?}");
    }
    // A chunk that starts within a row.
    let function = shipped("topk");
    let args = function.args(&[("row_len", "16")]);
    assert_eq!(function.chunk(&[0; 64], 8, true, &args, 1 << 16), Err(EINVAL));
}

/// Names and types of the results, as the command line shows them.
#[test]
fn results_are_described() {
    for (name, fields) in [
        ("stats64", "count sum min max"),
        ("stats32", "count sum min max"),
        ("wc", "lines words bytes"),
        ("grep_count", "rows"),
        ("grep_scalar", "rows"),
        ("knn", "index distance"),
        ("knn_f32", "index distance"),
        ("topk", "index value"),
        ("aggregate", "key count sum min max"),
        ("histogram", "from count"),
    ] {
        let function = shipped(name);
        let program =
            function.image.programs.iter().find(|p| p.name == name && p.kind != diskside_sbpf::image::Kind::Combine);
        let result = program.unwrap().result.as_ref().unwrap_or_else(|| panic!("{name} describes no result"));
        let names: Vec<&str> = result.fields.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names.join(" "), fields, "{name}");
    }
}
