//! Inputs, by a text that says all of them: `KIND:LEN:SEED`, or `KIND:LEN:SEED:FORM` of one that is stored in another form.
//!
//! Of one kind and seed a shorter input is the start of a longer one, so that a failing case can be cut in half.

use fastrand::Rng;
use std::fmt;
use std::io::Write as _;
use std::str::FromStr;

/// What an input is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Any bytes.
    Bytes,
    /// Zeros.
    Zeros,
    /// Lines of up to some dozens of bytes, the last of which may have no end.
    Lines,
    /// The same, with an end.
    Closed,
    /// Few lines, each of thousands of bytes, and empty ones.
    Long,
    /// One line without an end.
    Endless,
    /// Small numbers of eight bytes.
    Words,
    /// Floating-point numbers of eight bytes, of very different magnitudes.
    Floats,
    /// Counts and bytes in turn: what `bitmap` expands.
    Runs,
    /// Lines of comma-separated values, the first with the names of their columns: `city`, `price` and `note`.
    Table,
}

const KINDS: [(Kind, &str); 10] = [
    (Kind::Bytes, "bytes"),
    (Kind::Zeros, "zeros"),
    (Kind::Lines, "lines"),
    (Kind::Closed, "closed"),
    (Kind::Long, "long"),
    (Kind::Endless, "endless"),
    (Kind::Words, "words"),
    (Kind::Floats, "floats"),
    (Kind::Runs, "runs"),
    (Kind::Table, "table"),
];

/// How an input is stored: what a function is given of it is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Form {
    /// As it is.
    #[default]
    Plain,
    /// Compressed, in two members.
    Gzip,
    /// Compressed, in two frames.
    Zstd,
    /// Behind the header of a NumPy file.
    Npy,
}

const FORMS: [(Form, &str); 4] =
    [(Form::Plain, "plain"), (Form::Gzip, "gzip"), (Form::Zstd, "zstd"), (Form::Npy, "npy")];

/// An input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Input {
    /// What it is made of.
    pub kind: Kind,
    /// How long it is.
    pub len: usize,
    /// Which one it is.
    pub seed: u64,
    /// How it is stored.
    pub form: Form,
}

impl Input {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut rng = Rng::with_seed(self.seed);
        let mut bytes = Vec::with_capacity(self.len + 64);
        while bytes.len() < self.len {
            self.extend(&mut bytes, &mut rng);
        }
        bytes.truncate(self.len);
        if self.kind == Kind::Closed
            && let Some(last) = bytes.last_mut()
        {
            *last = b'\n';
        }
        bytes
    }

    /// Its file.
    #[must_use]
    pub fn stored(&self) -> Vec<u8> {
        let bytes = self.bytes();
        let (first, second) = bytes.split_at(bytes.len() / 3);
        match self.form {
            Form::Plain => bytes,
            Form::Gzip => [gzip(first), gzip(second)].concat(),
            Form::Zstd => [zstandard(first), zstandard(second)].concat(),
            Form::Npy => [npy_header(self.kind, bytes.len()), bytes].concat(),
        }
    }

    fn extend(&self, bytes: &mut Vec<u8>, rng: &mut Rng) {
        match self.kind {
            Kind::Zeros => bytes.resize(self.len, 0),
            Kind::Bytes => bytes.push(rng.u8(..)),
            Kind::Lines | Kind::Closed => line(bytes, rng, 60),
            Kind::Long => {
                let longest = [1, 1, 5000, 20_000][rng.usize(..4)];
                line(bytes, rng, longest);
            }
            Kind::Endless => bytes.push(b'a' + rng.u8(..26)),
            Kind::Words => bytes.extend((rng.u64(..5000) + 1).to_le_bytes()),
            Kind::Floats => {
                let magnitude = [1e-9, 1.0, 1e3, 1e15][rng.usize(..4)];
                bytes.extend(((rng.f64() - 0.5) * magnitude).to_le_bytes());
            }
            Kind::Runs => bytes.extend([rng.u8(..20), rng.u8(..)]),
            Kind::Table if bytes.is_empty() => bytes.extend(b"city,price,note\n"),
            Kind::Table => row(bytes, rng),
        }
    }
}

fn line(bytes: &mut Vec<u8>, rng: &mut Rng, longest: usize) {
    const WORDS: [&str; 8] = ["ERROR", "fine", ";", "a;b", "", "needle", "x", "0123456789"];
    let end = bytes.len() + rng.usize(..longest);
    while bytes.len() < end {
        bytes.extend(WORDS[rng.usize(..WORDS.len())].bytes());
        bytes.push(b' ');
    }
    bytes.push(b'\n');
}

fn row(bytes: &mut Vec<u8>, rng: &mut Rng) {
    const CITIES: [&str; 6] = ["Bern", "Oslo", "\"New York\"", "city", "", "\"a, \"\"b\"\"\""];
    let (city, price) = (CITIES[rng.usize(..CITIES.len())], rng.u32(..100_000));
    bytes.extend(format!("{city},{}.{:02},", price / 100, price % 100).bytes());
    line(bytes, rng, 40);
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory takes all")
}

fn zstandard(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).expect("memory takes all")
}

/// The header of an array of as many dimensions as a row has.
fn npy_header(kind: Kind, len: usize) -> Vec<u8> {
    let (descr, width) = match kind {
        Kind::Words if len.is_multiple_of(8) => ("<i8", 8),
        Kind::Floats if len.is_multiple_of(8) => ("<f8", 8),
        _ => ("|u1", 1),
    };
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({},), }}", len / width);
    // Magic, version and length are ten bytes, and the elements begin at a multiple of 64.
    let padded_len = (text.len() + 11).next_multiple_of(64) - 11;
    text.push_str(&" ".repeat(padded_len - text.len()));
    text.push('\n');
    [b"\x93NUMPY\x01\0", &(text.len() as u16).to_le_bytes()[..], text.as_bytes()].concat()
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, name) = KINDS.iter().find(|(kind, _)| *kind == self.kind).expect("all kinds have names");
        write!(f, "{name}:{}:{}", self.len, self.seed)?;
        let (form, name) = FORMS.iter().find(|(form, _)| *form == self.form).expect("all forms have names");
        if *form == Form::Plain { Ok(()) } else { write!(f, ":{name}") }
    }
}

impl FromStr for Input {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            let (kinds, forms) = (KINDS.map(|k| k.1).join(", "), FORMS.map(|f| f.1).join(", "));
            format!("`{text}` is no input: write KIND:LEN:SEED:FORM, with a kind of {kinds} and a form of {forms}")
        };
        let parts: Vec<&str> = text.split(':').collect();
        let (kind, len, seed, form) = match parts[..] {
            [kind, len] => (kind, len, "0", "plain"),
            [kind, len, seed] => (kind, len, seed, "plain"),
            [kind, len, seed, form] => (kind, len, seed, form),
            _ => return Err(bad()),
        };
        let (kind, _) = KINDS.into_iter().find(|(_, name)| *name == kind).ok_or_else(bad)?;
        let len = len.parse().map_err(|_| bad())?;
        let seed = seed.parse().map_err(|_| bad())?;
        let (form, _) = FORMS.into_iter().find(|(_, name)| *name == form).ok_or_else(bad)?;
        Ok(Self { kind, len, seed, form })
    }
}
