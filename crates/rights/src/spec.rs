//! Grants as an operator writes them.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::rights::{Access, MemoryRight};

/// A grant, and to whom: a `[[grant]]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantSpec {
    /// Names of hosts and of their groups, NQNs, or `*` for every host that is let in.
    pub to: Vec<String>,
    /// Volumes by name, or `*` for all, and how they may be used.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub volumes: BTreeMap<String, Mode>,
    /// Exports by name, or `*` for all, and how they may be used.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub exports: BTreeMap<String, Mode>,
    /// Functions that may be run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<FunctionRule>,
    /// Named states that those who have this grant share, by name or by what the name begins with (`kv/*`). Other states
    /// are their host's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub state: Vec<String>,
    /// The device memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryRight>,
    /// Whether the counters of all hosts may be read, as `diskside top` and `diskside metrics` do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub statistics: bool,
}

/// How a volume or an export may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Read.
    #[serde(rename = "r")]
    Read,
    /// Read and written, if it is served for that.
    #[serde(rename = "rw")]
    ReadWrite,
}

/// Functions that a host may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FunctionRule {
    /// All, and those that it loads itself: `any`.
    Any,
    /// All that come with the server: `shipped:*`.
    Shipped,
    /// One of those: `shipped:NAME`.
    ShippedNamed(String),
    /// A program of its own whose object has this SHA-256: `sha256:HEX`.
    Object([u8; 32]),
    /// Programs of its own that the holder of this key signed: `signed:HEX`.
    Signed([u8; 32]),
}

impl GrantSpec {
    /// Checks what can be checked without knowing who and what there is.
    pub fn check(&self) -> Result<(), String> {
        if self.to.is_empty() {
            return Err("`to` is empty: write names of hosts or groups, or \"*\" for every host".into());
        }
        for name in self.volumes.keys().chain(self.exports.keys()) {
            if name != "*" && name.contains('*') {
                return Err(format!("`{name}`: a name, or \"*\" for all"));
            }
        }
        for pattern in &self.state {
            let name = pattern.strip_suffix('*').unwrap_or(pattern);
            if pattern.is_empty() || name.contains('*') {
                return Err(format!("`{pattern}`: a state's name, or what it begins with and one `*` at the end"));
            }
        }
        Ok(())
    }
}

impl Mode {
    pub(crate) fn access(self) -> Access {
        match self {
            Self::Read => Access::Read,
            Self::ReadWrite => Access::Write,
        }
    }
}

impl FromStr for FunctionRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}`: write any, shipped:*, shipped:NAME, or sha256: or signed: and 64 hexadecimal digits");
        match text.split_once(':') {
            None if text == "any" => Ok(Self::Any),
            Some(("shipped", "*")) => Ok(Self::Shipped),
            Some(("shipped", name)) if !name.is_empty() => Ok(Self::ShippedNamed(name.to_owned())),
            Some(("sha256", digits)) => parse_hex(digits).map(Self::Object).ok_or_else(wrong),
            Some(("signed", digits)) => parse_hex(digits).map(Self::Signed).ok_or_else(wrong),
            _ => Err(wrong()),
        }
    }
}

fn parse_hex(digits: &str) -> Option<[u8; 32]> {
    if digits.len() != 64 || !digits.is_ascii() {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = (digit(0)? << 4 | digit(1)?) as u8;
    }
    Some(bytes)
}

impl fmt::Display for FunctionRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Shipped => f.write_str("shipped:*"),
            Self::ShippedNamed(name) => write!(f, "shipped:{name}"),
            Self::Object(bytes) | Self::Signed(bytes) => {
                f.write_str(if matches!(self, Self::Object(_)) { "sha256:" } else { "signed:" })?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

impl Serialize for FunctionRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for FunctionRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
