//! Inputs: made from counters, so that every run has the same.

use std::fmt::Write as _;

/// What a function is given.
pub struct Data {
    pub input: Vec<u8>,
    pub args: Vec<u8>,
    pub out_cap: usize,
    /// Whether it counts on an output of zeroes.
    pub accumulates: bool,
}

impl Data {
    /// For a function that accumulates a small result.
    pub fn text(input: Vec<u8>) -> Self {
        Self { input, args: vec![0; 8], out_cap: 256, accumulates: true }
    }

    /// For a function that writes as much as it reads, or thereabouts.
    pub fn bulk(input: Vec<u8>, out_cap: usize) -> Self {
        Self { input, args: vec![0; 8], out_cap, accumulates: false }
    }

    /// With arguments.
    pub fn args(self, args: Vec<u8>) -> Self {
        Self { args, ..self }
    }

    /// With another room for the result.
    pub fn out(self, out_cap: usize) -> Self {
        Self { out_cap, ..self }
    }
}

pub const BASE64: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

const WORDS: [&str; 24] = [
    "block",
    "sector",
    "extent",
    "queue",
    "namespace",
    "of",
    "the",
    "a",
    "flush",
    "target",
    "host",
    "write",
    "Read",
    "nearest",
    "range",
    "capsule",
    "Function",
    "disk",
    "side",
    "is",
    "NVMe",
    "over",
    "and",
    "namespaces",
];
const CITIES: [&str; 8] = ["Aarhus", "Berlin", "Chennai", "Dakar", "Edinburgh", "Fukuoka", "Geneva", "Havana"];

/// A scrambled number (SplitMix64's finaliser).
pub fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// Numbers below a bound, one after another.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 += 1;
        (mix(self.0) >> 16) % bound
    }

    fn of<'t>(&mut self, words: &[&'t str]) -> &'t str {
        words[self.below(words.len() as u64) as usize]
    }
}

/// Lines until there are so many bytes; the last one is whole.
fn lines(size: usize, mut line: impl FnMut(&mut String, &mut Random)) -> Vec<u8> {
    let mut text = String::with_capacity(size + 1024);
    let mut random = Random(size as u64);
    while text.len() < size {
        line(&mut text, &mut random);
        text.push('\n');
    }
    text.into_bytes()
}

fn put(text: &mut String, words: std::fmt::Arguments<'_>) {
    text.write_fmt(words).expect("writing to a string does not fail");
}

pub fn web_log(size: usize) -> Vec<u8> {
    const STATUSES: [&str; 10] = ["200", "200", "200", "200", "200", "304", "301", "404", "403", "500"];
    lines(size, |text, r| {
        let address = [r.below(223) + 1, r.below(256), r.below(256), r.below(256)].map(|n| n.to_string()).join(".");
        put(
            text,
            format_args!("{address} - - [22/Nov/2026:{:02}:{:02}:{:02} +0000] ", r.below(24), r.below(60), r.below(60)),
        );
        put(text, format_args!("\"GET /{}/{}.html HTTP/1.1\" ", r.of(&WORDS), r.of(&WORDS)));
        put(text, format_args!("{} {} \"-\" \"Mozilla/5.0 (X11; Linux x86_64)\"", r.of(&STATUSES), r.below(100_000)));
    })
}

pub fn sales_csv(size: usize) -> Vec<u8> {
    lines(size, |text, r| {
        put(text, format_args!("{},{},{},", r.below(1_000_000), r.of(&CITIES), r.below(10_000)));
        put(text, format_args!("{}.{:02},2026-11-{:02}", r.below(1000), r.below(100), r.below(28) + 1));
    })
}

pub fn quoted_csv(size: usize) -> Vec<u8> {
    lines(size, |text, r| {
        put(text, format_args!("{},\"{}, {}\",", r.below(1000), r.of(&WORDS), r.of(&WORDS)));
        put(text, format_args!("{},\"he said \"\"{}\"\"\",{}", r.of(&CITIES), r.of(&WORDS), r.below(100)));
    })
}

pub fn json_lines(size: usize) -> Vec<u8> {
    lines(size, |text, r| {
        put(text, format_args!("{{\"id\":{},\"city\":\"{}\",\"tags\":[", r.below(1_000_000), r.of(&CITIES)));
        put(text, format_args!("\"{}\",\"say \\\"{}\\\"\"],", r.of(&WORDS), r.of(&WORDS)));
        put(
            text,
            format_args!("\"price\":{},\"at\":{{\"x\":{},\"y\":{}}}}}", r.below(10_000), r.below(90), r.below(90)),
        );
    })
}

pub fn logfmt(size: usize) -> Vec<u8> {
    lines(size, |text, r| {
        let level = r.of(&["info", "info", "info", "warn", "error"]);
        put(text, format_args!("time=2026-11-22T{:02}:{:02}:00Z level={level} ", r.below(24), r.below(60)));
        put(text, format_args!("msg={}-{} ms={} host=h{}", r.of(&WORDS), r.of(&WORDS), r.below(5000), r.below(64)));
    })
}

pub fn words(size: usize) -> Vec<u8> {
    let mut text = lines(size, |text, r| {
        for _ in 0..8 + r.below(8) {
            put(text, format_args!("{} ", r.of(&WORDS)));
        }
        text.pop();
    });
    text.truncate(size);
    text
}

pub fn word_lines(size: usize) -> Vec<u8> {
    lines(size, |text, r| put(text, format_args!("{}{}", r.of(&WORDS), r.of(&["", "s", "ed", "ing"]))))
}

/// `struct word` of levenshtein.bpf.c.
pub fn word_argument(word: &str) -> Vec<u8> {
    let mut args = (word.len() as u32).to_le_bytes().to_vec();
    args.extend_from_slice(word.as_bytes());
    args.resize(36, 0);
    args
}

pub fn repeated(size: usize) -> Vec<u8> {
    let mut before = String::new();
    lines(size, |text, r| {
        if r.below(3) != 0 {
            before = format!("{} {} {}", r.of(&WORDS), r.of(&WORDS), r.below(10));
        }
        text.push_str(&before);
    })
}

pub fn c_source(size: usize) -> Vec<u8> {
    lines(size, |text, r| match r.below(3) {
        0 => put(text, format_args!("/* {} {} * {} */", r.of(&WORDS), r.of(&WORDS), r.of(&WORDS))),
        1 => put(text, format_args!("    print(\"{}\\n\", {} / {});", r.of(&WORDS), r.of(&WORDS), r.below(100))),
        _ => put(text, format_args!("    {} = {} + {};", r.of(&WORDS), r.of(&WORDS), r.below(100))),
    })
}

pub fn utf8(size: usize) -> Vec<u8> {
    const FOREIGN: [&str; 4] = ["\u{e9}t\u{e9}", "\u{3b1}\u{3b2}\u{3b3}", "\u{6771}\u{4eac}", "\u{1f600}"];
    lines(size, |text, r| {
        for _ in 0..8 {
            let word = if r.below(4) == 0 { r.of(&FOREIGN) } else { r.of(&WORDS) };
            put(text, format_args!("{word} "));
        }
    })
}

pub fn digits(size: usize, alphabet: &[u8]) -> Vec<u8> {
    (0..size as u64).map(|i| alphabet[(mix(i) % alphabet.len() as u64) as usize]).collect()
}

pub fn noise(len: usize) -> Vec<u8> {
    (0..len.div_ceil(8) as u64).flat_map(|i| mix(i).to_le_bytes()).take(len).collect()
}

/// Bytes in runs of one to thirty.
pub fn runs(size: usize) -> Vec<u8> {
    let mut random = Random(1);
    let mut bytes = Vec::with_capacity(size + 32);
    while bytes.len() < size {
        let run = 1 + random.below(30) as usize;
        bytes.resize(bytes.len() + run, random.below(256) as u8);
    }
    bytes.truncate(size);
    bytes
}

/// What lz_decode.bpf.c expands to so many bytes: literals and copies in turns.
pub fn lz(expanded: usize) -> Vec<u8> {
    let mut random = Random(2);
    let mut bytes = Vec::new();
    let mut written = 0usize;
    while written < expanded {
        let literals = 1 + random.below(24);
        bytes.push(literals as u8 - 1);
        bytes.extend((0..literals).map(|_| random.below(256) as u8));
        written += literals as usize;
        let copied = 4 + random.below(40);
        let distance = 1 + random.below((written as u64).min(60_000));
        bytes.push(124 + copied as u8);
        bytes.extend_from_slice(&(distance as u16).to_le_bytes());
        written += copied as usize;
    }
    bytes
}

/// Numbers of one to five bytes, small ones mostly.
pub fn varints(size: usize) -> Vec<u8> {
    let mut random = Random(3);
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        let bits = [7, 7, 7, 14, 14, 21, 35][random.below(7) as usize];
        let mut value = random.below(1 << bits);
        while value >= 128 {
            bytes.push(value as u8 | 128);
            value >>= 7;
        }
        bytes.push(value as u8);
    }
    bytes
}

pub fn u32s(count: usize, value: impl Fn(u64) -> u32) -> Vec<u8> {
    (0..count as u64).flat_map(|i| value(i).to_le_bytes()).collect()
}

pub fn u64s(count: usize, value: impl Fn(u64) -> u64) -> Vec<u8> {
    (0..count as u64).flat_map(|i| value(i).to_le_bytes()).collect()
}

/// Growing numbers.
pub fn sorted(count: usize, seed: u64) -> Vec<u8> {
    let mut value = 0u32;
    let mut random = Random(seed << 32);
    (0..count)
        .flat_map(|_| {
            value += 1 + random.below(7) as u32;
            value.to_le_bytes()
        })
        .collect()
}

/// Between 0 and 1.
pub fn doubles(count: usize) -> Vec<u8> {
    (0..count as u64).flat_map(|i| ((mix(i) >> 11) as f64 / (1u64 << 53) as f64).to_le_bytes()).collect()
}

/// Between 0 and 1.
pub fn floats(count: usize) -> Vec<u8> {
    (0..count as u64).flat_map(|i| ((mix(i) >> 40) as f32 / (1u64 << 24) as f32).to_le_bytes()).collect()
}
