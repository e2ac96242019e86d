//! Inputs, by a text that says all of them: `KIND:LEN:SEED`.
//!
//! Of one kind and seed a shorter input is the start of a longer one, so that a failing case can be cut in half.

use fastrand::Rng;
use std::fmt;
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
}

const KINDS: [(Kind, &str); 9] = [
    (Kind::Bytes, "bytes"),
    (Kind::Zeros, "zeros"),
    (Kind::Lines, "lines"),
    (Kind::Closed, "closed"),
    (Kind::Long, "long"),
    (Kind::Endless, "endless"),
    (Kind::Words, "words"),
    (Kind::Floats, "floats"),
    (Kind::Runs, "runs"),
];

/// An input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Input {
    /// What it is made of.
    pub kind: Kind,
    /// How long it is.
    pub len: usize,
    /// Which one it is.
    pub seed: u64,
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

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, name) = KINDS.iter().find(|(kind, _)| *kind == self.kind).expect("all kinds have names");
        write!(f, "{name}:{}:{}", self.len, self.seed)
    }
}

impl FromStr for Input {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad =
            || format!("`{text}` is no input: write KIND:LEN:SEED, with a kind of {}", KINDS.map(|k| k.1).join(", "));
        let mut parts = text.split(':');
        let (Some(kind), Some(len), seed, None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
            return Err(bad());
        };
        let (kind, _) = KINDS.into_iter().find(|(_, name)| *name == kind).ok_or_else(bad)?;
        let len = len.parse().map_err(|_| bad())?;
        let seed = seed.unwrap_or("0").parse().map_err(|_| bad())?;
        Ok(Self { kind, len, seed })
    }
}
