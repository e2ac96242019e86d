//! The library that functions include: the same in the sandbox and natively, and what Rust's standard library says.

mod common;

use common::twins::Twins;
use std::sync::OnceLock;

/// What both twins give, which has to be the same.
fn run(input: &[u8]) -> Vec<u8> {
    static TWINS: OnceLock<Twins> = OnceLock::new();
    TWINS.get_or_init(|| Twins::of("library")).run(input)
}

/// Reads the output in order.
struct Reader<'o>(&'o [u8]);

impl Reader<'_> {
    fn word(&mut self) -> u64 {
        let (word, rest) = self.0.split_at(8);
        self.0 = rest;
        u64::from_le_bytes(word.try_into().expect("eight bytes"))
    }

    fn text(&mut self) -> Vec<u8> {
        let len = self.word() as usize;
        let (text, rest) = self.0.split_at(len);
        self.0 = rest;
        text.to_vec()
    }
}

/// What is said of one field.
#[derive(Debug, PartialEq)]
struct Said {
    field: Vec<u8>,
    unsigned: Option<u64>,
    signed: Option<i64>,
    real: Option<f64>,
    found: i64,
}

/// Of each line: its text, a checksum of its characters, and its fields.
fn lines(input: &[u8], fields: &[usize]) -> Vec<(Vec<u8>, u64, Vec<Said>)> {
    let output = run(input);
    let mut reader = Reader(&output);
    let lines = fields.iter().map(|count| {
        let (line, characters) = (reader.text(), reader.word());
        let fields = (0..*count).map(|_| {
            let (field, _trimmed) = (reader.text(), reader.text());
            let mut optional = || {
                let there = reader.word() == 1;
                let value = reader.word();
                there.then_some(value)
            };
            let (unsigned, signed, real) = (optional(), optional(), optional());
            let _order_equal_start = (reader.word(), reader.word(), reader.word());
            let found = reader.word() as i64;
            reader.word();
            Said { field, unsigned, signed: signed.map(|v| v as i64), real: real.map(f64::from_bits), found }
        });
        let fields = fields.collect();
        (line, characters, fields)
    });
    lines.collect()
}

#[test]
fn numbers_are_parsed_as_rust_parses_them_or_refused() {
    for text in [
        "0",
        "-0",
        "7",
        "+7",
        "18446744073709551615",
        "18446744073709551616",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "-9223372036854775809",
        "0.5",
        ".5",
        "5.",
        "-3.25",
        "1e3",
        "1E-3",
        "6.02e23",
        "1e22",
        "1e400",
        "-1e-400",
        "0e999999999",
        "123456789012345",
        "0.1",
        "0.3",
        "99.99",
        "1234.5678",
        "1e-5",
        "-1e2",
    ] {
        let lines = lines(text.as_bytes(), &[1]);
        let said = &lines[0].2[0];
        assert_eq!(said.unsigned, text.parse().ok().filter(|_| !text.starts_with('+')), "{text}");
        assert_eq!(said.signed, text.parse().ok(), "{text}");
        assert_eq!(said.real.map(f64::to_bits), text.parse::<f64>().ok().map(f64::to_bits), "{text}");
    }
    for text in ["", "-", "+", ".", "e5", "1e", "1e+", "12a", "1.2.3", "--1", "0x10", "1 2", "inf", "nan", "1e1.5"] {
        let lines = lines(format!("{text},").as_bytes(), &[2]);
        let said = &lines[0].2[0];
        assert_eq!((said.unsigned, said.signed, said.real), (None, None, None), "{text:?}");
    }
}

/// Long numbers lose digits, but no more than a few units of the last place.
#[test]
fn long_numbers_are_near() {
    for text in [
        "3.14159265358979323846264338327950288",
        "0.000000000000000000000000000012345678901234567",
        "1e308",
        "2.5e-300",
    ] {
        let lines = lines(text.as_bytes(), &[1]);
        let (got, expected) = (lines[0].2[0].real.expect("a number"), text.parse::<f64>().expect("a number"));
        assert!((got.to_bits() as i64 - expected.to_bits() as i64).abs() <= 16, "{text}: {got} and {expected}");
    }
}

#[test]
fn fields_end_at_delimiters_and_quotes_hold_them() {
    let fields = |line: &str, count: usize| -> Vec<String> {
        let lines = lines(line.as_bytes(), &[count]);
        lines[0].2.iter().map(|said| String::from_utf8(said.field.clone()).expect("text")).collect()
    };
    assert_eq!(fields("a,b", 2), ["a", "b"]);
    assert_eq!(fields("a,,", 3), ["a", "", ""]);
    assert_eq!(fields("\n", 1), [""]);
    assert_eq!(fields("\"a,b\",c\r\n", 2), ["a,b", "c"]);
    assert_eq!(fields("\"say \"\"x\"\"\",c", 2), ["say \"\"x\"\"", "c"]);
    assert_eq!(fields("\"open,c", 1), ["open,c"]);
    assert_eq!(fields("\"a\"rest,c", 2), ["a", "c"]);
    assert_eq!(fields("\"\"", 1), [""]);
    let lines = lines(b"\"ab,c\"", &[1]);
    assert_eq!(lines[0].2[0].found, 1);
}

#[test]
fn characters_are_those_of_utf_8_and_others_are_replaced() {
    // A sequence that is cut is one character for each of its bytes here, and may be one for all in Rust.
    for text in
        [&b"plain"[..], "h\u{e9}llo \u{6771}\u{4eac} \u{1f600}".as_bytes(), b"\xff", b"a\x80b", b"\xc0a", b"\xf5"]
    {
        let lines = lines(text, &[1]);
        let expected = String::from_utf8_lossy(text);
        let sum = expected.chars().fold(0u64, |sum, c| sum.wrapping_mul(31).wrapping_add(u64::from(u32::from(c))));
        assert_eq!(lines[0].1, sum, "{}", text.escape_ascii());
    }
}

/// Anything is taken, with the same answer inside and outside: quotes that stay open, keys that are too long, noise.
#[test]
fn twins_agree_over_noise() {
    let mut state = 1u64;
    let mut random = |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    for turn in 0..60 {
        let alphabet: &[u8] = if turn % 2 == 0 { b"ab,\",\n 01.e-\r" } else { b"0123456789.,-\n" };
        let input: Vec<u8> = (0..random(600))
            .map(|_| match random(12) {
                0 => random(256) as u8,
                _ => alphabet[random(alphabet.len() as u64) as usize],
            })
            .collect();
        run(&input);
    }
    // Enough keys to let the table grow, and lines to sort.
    let many: String = (0..9000).map(|i| format!("k{},{}\n", i * 7919 % 5000, i % 100)).collect();
    run(many.as_bytes());
}

/// Groups come in order, each once.
#[test]
fn groups_are_sorted_and_counted() {
    let output = run(b"b,a,b\na,\xff,c,aab\n");
    let rows: Vec<(String, u64)> = output[output.len() - 5 * 24..]
        .chunks(24)
        .map(|row| {
            let name = row[..8].iter().take_while(|b| **b != 0).copied().collect::<Vec<u8>>();
            (name.escape_ascii().to_string(), u64::from_le_bytes(row[8..16].try_into().expect("eight")))
        })
        .collect();
    let expected = [("a", 2), ("aab", 1), ("b", 2), ("c", 1), ("\\xff", 1)];
    assert_eq!(rows, expected.map(|(name, count)| (name.to_owned(), count)));
}
