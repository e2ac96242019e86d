//! Sizes with a unit: `64MiB`, `1GB`, `4096`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number of bytes, written with a unit.
///
/// `KiB MiB GiB TiB` are powers of 1024, `kB KB MB GB TB` powers of 1000, `B` or nothing is bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(u64);

impl Size {
    /// A size of `bytes`.
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// A size of `mib` times 1024 times 1024 bytes.
    pub const fn from_mib(mib: u64) -> Self {
        Self(mib << 20)
    }

    /// The size in bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let number: u64 =
            number.parse().map_err(|_| format!("`{text}` is not a size; write bytes, or a unit as in `64MiB`"))?;
        let unit = unit.trim_start();
        let scale = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .map(|(_, scale)| *scale)
            .ok_or_else(|| unknown_unit(text, number, unit))?;
        number.checked_mul(scale).map(Self).ok_or_else(|| format!("`{text}` is more than 2^64 bytes"))
    }
}

impl fmt::Display for Size {
    /// Writes the largest unit that keeps the number whole, so that parsing it gives the same size.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, scale) in [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
            if self.0 >= scale && self.0.is_multiple_of(scale) {
                return write!(f, "{}{name}", self.0 / scale);
            }
        }
        write!(f, "{}", self.0)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a size: a number of bytes, or text with a unit such as \"64MiB\"")]
        enum Written {
            Bytes(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Bytes(bytes) => Ok(Self(bytes)),
            Written::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

fn unknown_unit(text: &str, number: u64, unit: &str) -> String {
    match unit {
        "K" | "k" | "M" | "G" | "T" => {
            let unit = unit.to_ascii_uppercase();
            format!("`{text}` does not say which unit; write `{number}{unit}iB` (1024) or `{number}{unit}B` (1000)")
        }
        _ => format!("`{text}` has no known unit; use B, KiB, MiB, GiB, TiB, kB, MB, GB or TB"),
    }
}

const UNITS: [(&str, u64); 11] = [
    ("", 1),
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_have_their_value() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4096B", 4096),
            ("64MiB", 64 << 20),
            ("64 MiB", 64 << 20),
            ("1GB", 1_000_000_000),
            ("16777215TiB", 16_777_215 << 40),
        ] {
            assert_eq!(text.parse::<Size>().map(Size::bytes), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_says_what_to_write() {
        for (text, hint) in [
            ("", "is not a size"),
            ("MiB", "is not a size"),
            ("-1", "is not a size"),
            ("64M", "`64MiB` (1024) or `64MB` (1000)"),
            ("64mib", "no known unit"),
            ("1.5GiB", "no known unit"),
            ("16777216TiB", "more than 2^64"),
            ("99999999999999999999", "is not a size"),
        ] {
            let error = text.parse::<Size>().unwrap_err();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_shown_parses_to_the_same(bytes: u64) {
            proptest::prop_assert_eq!(Size(bytes).to_string().parse::<Size>(), Ok(Size(bytes)));
        }
    }
}
