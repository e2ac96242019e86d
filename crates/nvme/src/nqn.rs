//! NVMe Qualified Names: how hosts and subsystems are called (NVMe Base 4.7).

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The longest NQN, in bytes, without its terminating NUL (NVMe Base 4.7).
pub const NQN_LEN_MAX: usize = 223;

/// The well-known name of the discovery subsystem (NVMe Base 3.1.3.3).
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// The start of the names of hosts that gave none.
const ANONYMOUS: &str = "nqn.2026-11.io.diskside:anonymous:";

/// A valid NVMe Qualified Name. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Nqn(Arc<str>);

/// Why a text is not an NQN.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NqnError {
    /// Longer than [`NQN_LEN_MAX`].
    #[error("an NQN has at most {NQN_LEN_MAX} bytes, this one has {0}")]
    TooLong(usize),
    /// It does not start with `nqn.`.
    #[error("an NQN starts with \"nqn.\", as in nqn.2014-08.org.example:name; got {0:?}")]
    Prefix(String),
    /// It is not UTF-8, or contains a space or a character that is not seen, such as one that controls the direction of writing.
    #[error("an NQN is printable UTF-8 without spaces")]
    Characters,
    /// The 256-byte field has no terminating NUL.
    #[error("the NQN field has no terminating NUL")]
    Unterminated,
}

impl Nqn {
    /// Checks and keeps a name.
    pub fn new(name: &str) -> Result<Self, NqnError> {
        if name.len() > NQN_LEN_MAX {
            return Err(NqnError::TooLong(name.len()));
        }
        if !name.starts_with("nqn.") || name.len() == 4 {
            return Err(NqnError::Prefix(name.chars().take(40).collect()));
        }
        if !name.chars().all(is_printable) {
            return Err(NqnError::Characters);
        }
        Ok(Self(name.into()))
    }

    /// The discovery subsystem's name.
    pub fn discovery() -> Self {
        Self(DISCOVERY_NQN.into())
    }

    /// Whether this is the discovery subsystem's well-known name.
    pub fn is_discovery(&self) -> bool {
        &*self.0 == DISCOVERY_NQN
    }

    /// The name of a host that gave none and has this identifier.
    pub(crate) fn anonymous(host_id: &[u8; 16]) -> Self {
        Self(format!("{ANONYMOUS}{:032x}", u128::from_be_bytes(*host_id)).into())
    }

    /// Whether this is the name of a host that gave none.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.0.starts_with(ANONYMOUS)
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A name of a test vector, which no host has.
    #[cfg(test)]
    pub(crate) fn unchecked(name: &str) -> Self {
        Self(name.into())
    }

    /// Reads a NUL-terminated field of a structure.
    pub fn from_field(field: &[u8; 256]) -> Result<Self, NqnError> {
        let end = field.iter().position(|&byte| byte == 0).ok_or(NqnError::Unterminated)?;
        let name = std::str::from_utf8(&field[..end]).map_err(|_| NqnError::Characters)?;
        Self::new(name)
    }

    /// The name as a NUL-padded field of a structure.
    pub fn to_field(&self) -> [u8; 256] {
        let mut field = [0; 256];
        field[..self.0.len()].copy_from_slice(self.0.as_bytes());
        field
    }
}

/// Whether a character is seen where it is printed: neither a space nor one of the category Cf, among others.
fn is_printable(c: char) -> bool {
    // Those that combine with the letter before are escaped at the beginning of a text alone.
    let mut text = [b'-'; 5];
    let len = c.encode_utf8(&mut text[1..]).len();
    let text = std::str::from_utf8(&text[..=len]).unwrap_or_default();
    match c {
        '"' | '\'' | '\\' => true,
        c => !c.is_whitespace() && text.escape_debug().count() == 2,
    }
}

impl FromStr for Nqn {
    type Err = NqnError;

    fn from_str(name: &str) -> Result<Self, NqnError> {
        Self::new(name)
    }
}

impl fmt::Display for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_their_field() {
        let longest = format!("nqn.{}", "x".repeat(NQN_LEN_MAX - 4));
        for name in [DISCOVERY_NQN, "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6", &longest] {
            let nqn = Nqn::new(name).unwrap();
            assert_eq!(Nqn::from_field(&nqn.to_field()).unwrap(), nqn);
        }
    }

    /// A name could say that it is another's: what it has of invisible characters, and of those that turn the direction of writing,
    /// came into the audit file as it was, and `cat` showed `live` where there was `evil`.
    #[test]
    fn a_name_has_no_character_that_is_not_seen() {
        for c in "\u{202e}\u{200b}\u{feff}\u{2066}\u{ad}\u{e0001}\u{2028}\u{1b}\u{85}\u{7f}\n \u{3000}".chars() {
            assert_eq!(
                Nqn::new(&format!("nqn.2014-08.x:{c}live")),
                Err(NqnError::Characters),
                "{}",
                c.escape_unicode()
            );
        }
        for seen in ["grüße", "gru\u{308}ße", "名前", "a\"b'c\\d{}"] {
            assert!(Nqn::new(&format!("nqn.2014-08.x:{seen}")).is_ok(), "{seen}");
        }
    }

    #[test]
    fn what_is_no_name_is_refused_with_the_reason() {
        assert_eq!(Nqn::new(&format!("nqn.{}", "x".repeat(220))), Err(NqnError::TooLong(224)));
        assert_eq!(Nqn::new("iqn.2014"), Err(NqnError::Prefix("iqn.2014".into())));
        assert_eq!(Nqn::new("nqn."), Err(NqnError::Prefix("nqn.".into())));
        assert_eq!(Nqn::new("nqn.a b"), Err(NqnError::Characters));
        assert_eq!(Nqn::from_field(&[b'n'; 256]), Err(NqnError::Unterminated));
        let mut field = [0; 256];
        field[..6].copy_from_slice(b"nqn.\xff\xfe");
        assert_eq!(Nqn::from_field(&field), Err(NqnError::Characters));
    }
}
