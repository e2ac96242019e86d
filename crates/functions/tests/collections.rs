//! The library's tables, lists, sets and sketches: the same in the sandbox and natively, and what Rust's collections say.

mod common;

use common::twins::{Twins, object};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

fn run(input: &[u8]) -> Vec<u8> {
    static TWINS: OnceLock<Twins> = OnceLock::new();
    TWINS.get_or_init(|| Twins::of("collections")).run(input)
}

/// What the function says of its lines.
#[derive(Debug)]
struct Said {
    decimals: i64,
    ends: u64,
    shouts: u64,
    known: u64,
    /// Of numbers below 1000, and below 77.
    bits: [u64; 2],
    numbers: Vec<u64>,
    distinct: f64,
    reals: u64,
    deciles: Vec<f64>,
    greatest: Vec<(i32, u32, u64)>,
    table: Vec<(i32, u32, u64)>,
}

struct Words<'o>(&'o [u8]);

impl Words<'_> {
    fn next(&mut self) -> u64 {
        let (word, rest) = self.0.split_at(8);
        self.0 = rest;
        u64::from_le_bytes(word.try_into().expect("eight bytes"))
    }

    fn real(&mut self) -> f64 {
        f64::from_bits(self.next())
    }

    fn rows(&mut self) -> Vec<(i32, u32, u64)> {
        let count = self.next() / 16;
        let row = |words: &mut Self| {
            let first = words.next();
            (first as i32, (first >> 32) as u32, words.next())
        };
        (0..count).map(|_| row(self)).collect()
    }
}

fn said(input: &[u8]) -> Said {
    let output = run(input);
    let mut words = Words(&output);
    Said {
        decimals: words.next() as i64,
        ends: words.next(),
        shouts: words.next(),
        known: words.next(),
        bits: [words.next(), words.next()],
        numbers: std::iter::from_fn(|| Some(words.next()).filter(|n| *n != u64::MAX)).collect(),
        distinct: words.real(),
        reals: words.next(),
        deciles: (0..=10).map(|_| words.real()).collect(),
        greatest: words.rows(),
        table: words.rows(),
    }
}

/// Lines of numbers, of which some occur often.
fn numbers(count: u64, bound: u64) -> Vec<i32> {
    let mut state = 7u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    (0..count).map(|_| (random() % bound) as i32 - (bound / 4) as i32).collect()
}

fn lines(numbers: &[i32]) -> Vec<u8> {
    numbers.iter().map(|n| format!("{n}\n")).collect::<String>().into_bytes()
}

#[test]
fn collections_are_those_of_rust() {
    for (count, bound) in [(0, 1), (1, 9), (5, 9), (8, 9), (3000, 1300), (9000, 30_000), (9000, 5)] {
        let numbers = numbers(count, bound);
        let said = said(&lines(&numbers));
        let mut table: BTreeMap<i32, (u32, u64)> = BTreeMap::new();
        for (at, number) in numbers.iter().enumerate() {
            let row = table.entry(*number).or_default();
            *row = (row.0 + 1, at as u64);
        }
        let rows: Vec<_> = table.iter().map(|(number, row)| (*number, row.0, row.1)).collect();
        assert_eq!(said.table, rows);
        let mut greatest: Vec<_> = numbers.iter().enumerate().map(|(at, n)| (*n, 1, at as u64)).collect();
        greatest.sort_by_key(|row| (std::cmp::Reverse(row.0), row.2));
        greatest.truncate(7);
        assert_eq!(said.greatest, greatest);
        let set: BTreeSet<u64> =
            numbers.iter().filter(|n| (0..1000).contains(*n)).map(|n| u64::from(n.unsigned_abs())).collect();
        assert_eq!(said.numbers, set.iter().copied().collect::<Vec<_>>());
        assert_eq!(said.bits, [set.len() as u64, set.range(..77).count() as u64]);
        assert_eq!(said.known, set.len() as u64);
        assert_eq!(said.decimals, numbers.iter().map(|n| i64::from(*n) * 100).sum::<i64>());
        assert_eq!(said.reals, count);
        let (estimate, exact) = (said.distinct, table.len() as f64);
        assert!((estimate - exact).abs() <= 0.5 + exact * 0.03, "{estimate} for {exact}");
        let mut sorted = numbers;
        sorted.sort_unstable();
        for (tenth, quantile) in said.deciles.iter().enumerate() {
            let rank = sorted.len().saturating_sub(1) as u64 * tenth as u64 / 10;
            let exact = sorted.get(rank as usize).copied().map_or(0.0, f64::from);
            assert!((quantile - exact).abs() <= exact.abs() * 0.008, "{quantile} for {exact}");
        }
    }
}

/// Sums of money are exact, and what is none is left out.
#[test]
fn decimals_are_exact_or_refused() {
    for (text, hundredths) in [
        ("1", 100),
        ("-1.25", -125),
        ("+1.230", 123),
        (".5", 50),
        ("5.", 500),
        ("-0.00", 0),
        ("92233720368547758.07", i64::MAX),
        ("-92233720368547758.08", i64::MIN),
    ] {
        assert_eq!(said(text.as_bytes()).decimals, hundredths, "{text}");
    }
    for text in ["", "-", ".", "1.239", "92233720368547758.08", "-92233720368547758.09", "1e5", "1.2.3", "1 ", "0x1"] {
        assert_eq!(said(text.as_bytes()).decimals, 0, "{text:?}");
    }
}

#[test]
fn texts_are_compared_by_their_ends_and_without_case() {
    let said = said(b"ing\nrunning\nING\nerror[1]\nERROR[1]\nerror{1}\nError[2]\n");
    assert_eq!((said.ends, said.shouts), (2, 2));
}

/// A value that is not a number, or far from 0, is in a sketch too, or is left out.
#[test]
fn quantiles_take_every_number() {
    let said = said(b"-1e22\n-7\n0\n1e-200\n0.25\n1e22\nnan\n");
    assert_eq!(said.reals, 6);
    assert_eq!((said.deciles[0], said.deciles[10]), (-1e22, 1e22));
    let near = |got: f64, exact: f64| (got - exact).abs() <= exact.abs() * 0.008;
    assert!(near(said.deciles[2], -7.0) && said.deciles[5] == 0.0 && near(said.deciles[8], 0.25), "{said:?}");
}

/// Outputs of pieces fold into that of the whole.
#[test]
fn pieces_fold_into_the_whole() {
    let function = object("collections", "folds");
    let numbers = numbers(400, 60);
    let text = lines(&numbers);
    let ends: Vec<usize> = (1..=text.len()).filter(|&i| text[i - 1] == b'\n').collect();
    let whole = function.run_in_chunks(&text, &[], &[]).expect("it runs");
    for cuts in [&[100][..], &[1, 2, 3], &[50, 51, 200, 399], &[0, 0, 0]] {
        let cuts: Vec<usize> = cuts.iter().map(|&line| ends[line]).collect();
        assert!(function.run_in_chunks(&text, &cuts, &[]).expect("it runs") == whole, "{cuts:?}");
    }
}
