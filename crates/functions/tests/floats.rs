//! Functions over columns of floating-point numbers and over numbers in text, and sketches, whole and in pieces.

mod common;

use common::{EINVAL, shipped};
use std::collections::{BTreeMap, BTreeSet};

/// Some numbers, among them NaN, infinities and equal ones.
fn numbers(count: usize) -> Vec<f64> {
    let mut state = 11u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0, 1e-310, -7.25];
    let number = |_| match random() % 40 {
        0 => special[random() as usize % special.len()],
        _ => (random() % 40_000) as f64 / 16.0 - 500.0,
    };
    (0..count).map(number).collect()
}

fn bytes(numbers: &[f64]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

fn words(output: &[u8]) -> Vec<u64> {
    output.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().expect("eight bytes"))).collect()
}

/// The outputs over the whole and over pieces, which are the same.
fn run(name: &str, input: &[u8], cuts: &[usize], args: &[(&str, &str)]) -> Vec<u8> {
    let function = shipped(name);
    let whole = function.run(input, args).expect("it runs");
    assert!(function.run_in_chunks(input, cuts, args).expect("it runs") == whole, "{name} in pieces");
    whole
}

#[test]
fn statistics_leave_nan_out() {
    // Of sixteenths, whose sums are exact, so that pieces give the same.
    let finite: Vec<f64> = numbers(500).into_iter().filter(|n| !n.is_infinite() && n.abs() != 1e-310).collect();
    let of: Vec<f64> = finite.iter().copied().filter(|n| !n.is_nan()).collect();
    let got = words(&run("float_stats", &bytes(&finite), &[80, 888], &[]));
    let sum: f64 = of.iter().sum();
    let (min, max) = of.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), n| (min.min(*n), max.max(*n)));
    let expected = [sum, min, max, sum / of.len() as f64].map(f64::to_bits);
    assert_eq!((got[0], got[5]), (of.len() as u64, (finite.len() - of.len()) as u64));
    assert_eq!(got[1..5], expected);
    // The second of three floats in rows of 12 bytes.
    let rows: Vec<u8> = finite.iter().flat_map(|n| [0f32, *n as f32, 1.0]).flat_map(f32::to_le_bytes).collect();
    let args = [("type", "f32"), ("row_len", "12"), ("offset", "4")];
    assert_eq!(words(&run("float_stats", &rows, &[120], &args))[0..5], got[0..5]);
}

#[test]
fn histograms_have_each_number_once() {
    let all = numbers(800);
    let args = [("lo", "-100"), ("width", "12.5"), ("bins", "20")];
    let text: String = all.iter().map(|n| format!("x,{n}\n")).collect();
    let cut = text[..900].rfind('\n').expect("a line") + 1;
    let csv = [&args[..], &[("column", "2")]].concat();
    // "NaN" and "inf" are not numbers in text.
    let written: Vec<f64> = all.iter().copied().filter(|n| n.is_finite()).collect();
    for (got, of) in [
        (words(&run("float_histogram", &bytes(&all), &[800, 1600], &args)), &all),
        (words(&run("csv_histogram", text.as_bytes(), &[cut], &csv)), &written),
    ] {
        let mut counts = vec![0u64; 22];
        for n in of {
            let bin = if *n < -100.0 {
                0
            } else if *n >= 150.0 || n.is_nan() {
                21
            } else {
                1 + ((n + 100.0) / 12.5) as usize
            };
            counts[bin] += 1;
        }
        assert_eq!(got.iter().skip(1).step_by(2).copied().collect::<Vec<_>>(), counts);
        assert_eq!(f64::from_bits(got[2]), -100.0);
    }
    for wrong in [("width", "0"), ("width", "-1"), ("width", "nan"), ("lo", "inf")] {
        assert_eq!(shipped("float_histogram").run(&[], &[wrong]), Err(EINVAL), "{wrong:?}");
    }
}

#[test]
fn the_greatest_and_least_have_their_places() {
    let all = numbers(700);
    let mut ranked: Vec<(usize, f64)> = all.iter().copied().enumerate().filter(|(_, n)| !n.is_nan()).collect();
    let input = bytes(&all);
    for (name, greatest) in [("float_topk", true), ("float_bottomk", false)] {
        ranked.sort_by(|a, b| {
            let order = a.1.partial_cmp(&b.1).expect("numbers");
            (if greatest { order.reverse() } else { order }).then(a.0.cmp(&b.0))
        });
        let got = words(&run(name, &input, &[8, 2400], &[("k", "9")]));
        let expected: Vec<u64> = ranked[..9].iter().flat_map(|(at, n)| [*at as u64, n.to_bits()]).collect();
        assert_eq!(got, expected, "{name}");
    }
    let few = words(&run("float_topk", &bytes(&[2.0, f64::NAN]), &[8], &[("k", "3")]));
    assert_eq!(few, [0, 2f64.to_bits(), u64::MAX, 0, u64::MAX, 0]);
    let text = b"name,n\na,7\nb,-1e3\nc,x\n\nd,7\ne\nf,0.5\n";
    let args = [("column", "n"), ("columns", "name,n"), ("k", "3")];
    let got = run("csv_topk", text, &[11, 18], &args);
    let lines: Vec<String> = got
        .chunks_exact(64)
        .map(|row| String::from_utf8(row[16..].iter().copied().take_while(|b| *b != 0).collect()).expect("text"))
        .collect();
    assert_eq!(lines, ["a,7", "d,7", "f,0.5"]);
    assert_eq!(words(&got)[1], 7, "where the line begins");
}

#[test]
fn groups_have_statistics_of_their_own() {
    let all: Vec<f64> = numbers(900).into_iter().filter(|n| !n.is_infinite() && n.abs() != 1e-310).collect();
    let mut input = Vec::new();
    let mut groups: BTreeMap<i64, (u64, f64, u64)> = BTreeMap::new();
    for (i, n) in all.iter().enumerate() {
        let key = (i * i % 37) as i64 - 9;
        input.extend(key.to_le_bytes().into_iter().chain(n.to_le_bytes()));
        let group = groups.entry(key).or_default();
        *group = if n.is_nan() { (group.0, group.1, group.2 + 1) } else { (group.0 + 1, group.1 + n, group.2) };
    }
    let got = words(&run("float_aggregate", &input, &[160, 4800], &[("row_len", "16"), ("offset", "8")]));
    let got: Vec<(i64, u64, f64, u64)> =
        got.chunks_exact(7).map(|row| (row[0] as i64, row[1], f64::from_bits(row[2]), row[6])).collect();
    let expected: Vec<_> = groups.into_iter().map(|(key, g)| (key, g.0, g.1, g.2)).collect();
    assert_eq!(got, expected);
}

#[test]
fn sketches_of_columns_and_text_are_near() {
    let all: Vec<f64> = numbers(5000).into_iter().filter(|n| n.is_finite() && n.abs() != 1e-310).collect();
    let text: String = all.iter().map(|n| format!("{n};x\n")).collect();
    let cut = text[..9000].rfind('\n').expect("a line") + 1;
    let csv = [("column", "1"), ("delimiter", ";")];
    let mut sorted = all.clone();
    sorted.sort_by(f64::total_cmp);
    for got in [
        words(&run("quantiles", &bytes(&all), &[8000, 16_000], &[])),
        words(&run("csv_quantiles", text.as_bytes(), &[cut], &csv)),
    ] {
        assert_eq!(got[0], all.len() as u64);
        for (at, part) in [0, 10, 100, 250, 500, 750, 900, 990, 999].into_iter().enumerate() {
            let (got, exact) = (f64::from_bits(got[1 + at]), sorted[(sorted.len() - 1) * part / 1000]);
            assert!((got - exact).abs() <= exact.abs() * 0.008, "{part}: {got} for {exact}");
        }
        assert_eq!(f64::from_bits(got[10]), *sorted.last().expect("some"));
    }
    let different = all.iter().map(|n| n.to_bits()).collect::<BTreeSet<_>>().len() as f64;
    for got in [
        words(&run("distinct", &bytes(&all), &[8000], &[])),
        words(&run("csv_distinct", text.as_bytes(), &[cut], &csv)),
    ] {
        assert_eq!(got[0], all.len() as u64);
        let estimate = f64::from_bits(got[1]);
        assert!((estimate - different).abs() <= different * 0.03, "{estimate} for {different}");
    }
}

#[test]
fn text_has_statistics_too() {
    let text = b"city,price\nGraz,2.5\nLinz,n/a\n\"Wien\", 10 \nGraz\nGraz,-1e1\n";
    let args = [("column", "price"), ("columns", "city,price")];
    let got = words(&run("csv_stats", text, &[11, 20], &args));
    assert_eq!((got[0], got[5]), (3, 1));
    assert_eq!(got[1..5], [2.5, -10.0, 10.0, 2.5 / 3.0].map(f64::to_bits));
    for (name, wrong) in [("csv_stats", "3x"), ("csv_histogram", "0"), ("csv_quantiles", "cost"), ("csv_distinct", "")]
    {
        assert_eq!(shipped(name).run(text, &[("column", wrong)]), Err(EINVAL), "{name} of {wrong:?}");
    }
}

/// A column that no line has gave zeros, as if the table were empty: the number was wrong, or the delimiter.
#[test]
fn a_column_that_no_line_has_is_an_error() {
    let text = b"a;1\nb;2\n\nlong;3;4\n";
    for (name, column) in [
        ("csv_stats", "column"),
        ("csv_histogram", "column"),
        ("csv_quantiles", "column"),
        ("csv_topk", "column"),
        ("csv_bottomk", "column"),
        ("csv_distinct", "column"),
        ("csv_aggregate", "by"),
    ] {
        let function = shipped(name);
        let semicolons = [(column, "4"), ("delimiter", ";")];
        assert_eq!(function.run(text, &semicolons), Err(EINVAL), "{name} of column 4");
        assert_eq!(function.run(text, &[(column, "2")]), Err(EINVAL), "{name} with commas");
        // One line has it; and lines without anything say nothing of columns.
        let third = [(column, "3"), ("delimiter", ";")];
        assert!(function.run(text, &third).is_ok(), "{name} of column 3");
        assert!(function.run(b"\n\n", &third).is_ok(), "{name} of blank lines");
        // Only the beginning of a request tells: the lines of a later piece may be shorter.
        assert!(function.run_in_chunks(b"1;2;3\n1;2\n", &[6], &third).is_ok(), "{name} in pieces");
    }
    let sums = [("by", "1"), ("sum", "9"), ("delimiter", ";")];
    assert_eq!(shipped("csv_aggregate").run(text, &sums), Err(EINVAL));
}

/// A sketch travels with the result, so that results can be folded, and is not shown.
#[test]
fn sketches_are_hidden() {
    for (name, shown) in [("distinct", "rows distinct"), ("csv_distinct", "rows distinct")] {
        let function = shipped(name);
        let program = function.image.programs.iter().find(|p| p.name == name).expect("it is there");
        let schema = program.result.as_ref().expect("it is described");
        let names: Vec<&str> = schema.fields.iter().filter(|f| !f.is_hidden).map(|f| f.name.as_str()).collect();
        assert_eq!(names.join(" "), shown, "{name}");
        assert!(schema.fields.iter().any(|f| f.is_hidden && f.name == "sketch.registers"), "{name}");
    }
}
