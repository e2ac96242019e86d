//! Functions over delimited text.

mod common;

use common::{EINVAL, shipped};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use std::collections::BTreeMap;

/// The values of a row: key, count, sum, least, greatest, lines without a number.
type Row = (String, u64, f64, f64, f64, u64);

fn rows(output: &[u8]) -> Vec<Row> {
    let word = |row: &[u8], at: usize| u64::from_le_bytes(row[at..at + 8].try_into().unwrap());
    let rows = output.chunks_exact(104).map(|row| {
        let key = String::from_utf8(row[..64].iter().copied().take_while(|b| *b != 0).collect()).unwrap();
        let real = |at| f64::from_bits(word(row, at));
        (key, word(row, 64), real(72), real(80), real(88), word(row, 96))
    });
    rows.collect()
}

/// Cuts at line ends.
fn line_cuts(picks: &[Index], text: &[u8]) -> Vec<usize> {
    let ends: Vec<usize> = (1..=text.len()).filter(|&i| text[i - 1] == b'\n').collect();
    let mut cuts: Vec<usize> = picks.iter().filter(|_| !ends.is_empty()).map(|p| ends[p.index(ends.len())]).collect();
    cuts.sort_unstable();
    cuts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Sums are of quarters, and so exact in any order.
    #[test]
    fn csv_aggregate(table in vec((0usize..9, -4000i32..4000, any::<bool>()), 0..200), picks in vec(any::<Index>(), 0..4)) {
        const KEYS: [&str; 9] = ["Berlin", "Aarhus", "", "a", "ab", "b", "B", "Z\u{fc}rich", "x y"];
        let mut text = String::from("id,city,price\n");
        let mut expected: BTreeMap<&str, Row> = BTreeMap::new();
        for (line, (key, quarters, is_number)) in table.iter().enumerate() {
            let (key, value) = (KEYS[*key], f64::from(*quarters) / 4.0);
            let number = if *is_number { value.to_string() } else { "n/a".to_owned() };
            text += &format!("{line},\"{key}\",{number}\n");
            let row = expected.entry(key).or_insert((key.to_owned(), 0, 0.0, f64::INFINITY, f64::NEG_INFINITY, 0));
            row.1 += 1;
            if *is_number {
                (row.2, row.3, row.4) = (row.2 + value, row.3.min(value), row.4.max(value));
            } else {
                row.5 += 1;
            }
        }
        for row in expected.values_mut().filter(|row| row.1 == row.5) {
            (row.3, row.4) = (0.0, 0.0);
        }
        let expected: Vec<Row> = expected.into_values().collect();
        let args = [("columns", "id,city,price"), ("by", "city"), ("sum", "price")];
        let function = shipped("csv_aggregate");
        prop_assert_eq!(rows(&function.run(text.as_bytes(), &args).unwrap()), expected.clone());
        let cuts = line_cuts(&picks, text.as_bytes());
        prop_assert_eq!(rows(&function.run_in_chunks(text.as_bytes(), &cuts, &args).unwrap()), expected);
    }
}

#[test]
fn csv_columns_go_by_number_and_other_delimiters() {
    let function = shipped("csv_aggregate");
    let input = b"a;1\nb;x\na;-1e2\nshort\n";
    let got = rows(&function.run(input, &[("by", "1"), ("sum", "2"), ("delimiter", ";")]).unwrap());
    let row = |key: &str, count, sum, min, max, not| (key.to_owned(), count, sum, min, max, not);
    let short = row("short", 1, 0.0, 0.0, 0.0, 1);
    assert_eq!(got, [row("a", 2, -99.0, -100.0, 1.0, 0), row("b", 1, 0.0, 0.0, 0.0, 1), short.clone()]);
    // Without a column to sum, lines are counted.
    let got = rows(&function.run(input, &[("by", "1"), ("delimiter", ";")]).unwrap());
    assert_eq!(got.iter().map(|row| (row.0.as_str(), row.1)).collect::<Vec<_>>(), [("a", 2), ("b", 1), ("short", 1)]);
    // Lines that lack the column are in no group.
    let got = rows(&function.run(input, &[("by", "2"), ("delimiter", ";")]).unwrap());
    assert_eq!(got.iter().map(|row| row.0.as_str()).collect::<Vec<_>>(), ["-1e2", "1", "x"]);
}

#[test]
fn csv_columns_that_are_not_there_and_keys_that_are_too_long_are_errors() {
    const E2BIG: i64 = -7;
    let function = shipped("csv_aggregate");
    for args in [&[("by", "city")][..], &[("by", "0")], &[("by", "1"), ("sum", "price")], &[("by", "9999999")]] {
        assert_eq!(function.run(b"a,1\n", args), Err(EINVAL), "{args:?}");
    }
    let long = format!("{},1\n", "x".repeat(65));
    assert_eq!(function.run(long.as_bytes(), &[("by", "1"), ("sum", "2")]), Err(E2BIG));
    let fits = format!("{},1\n", "x".repeat(64));
    assert_eq!(rows(&function.run(fits.as_bytes(), &[("by", "1"), ("sum", "2")]).unwrap())[0].0.len(), 64);
}
