//! What paths a pattern means.

use globset::{GlobBuilder, GlobMatcher};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

/// A path, or many by wildcards.
#[derive(Clone, Debug)]
pub struct Pattern {
    names: Vec<Name>,
    /// Whether the files below a directory are meant where a directory is.
    below: bool,
    /// Whether symbolic links below a directory are reported, too.
    links: bool,
}

/// What one name of a path may be.
#[derive(Clone, Debug)]
enum Name {
    Literal(Vec<u8>),
    /// With wildcards, which begin no hidden name.
    Glob {
        matcher: GlobMatcher,
        hidden: bool,
    },
    /// `**`: any number of directories that are not hidden.
    Directories,
}

/// Why bytes are not a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// It has too many names.
    #[error("a pattern has at most {NAMES_MAX} names, not {0}")]
    TooManyNames(usize),
    /// A name with wildcards is too long.
    #[error("a name with wildcards has at most {NAME_LEN_MAX} bytes, not {0}")]
    NameTooLong(usize),
    /// A name is none.
    #[error("{name:?} is no pattern of a name: {why}")]
    Malformed {
        /// Which name.
        name: String,
        /// What is wrong.
        why: String,
    },
}

const NAMES_MAX: usize = 63;
const NAME_LEN_MAX: usize = 255;

impl Pattern {
    /// Whether a path has characters that match others in a pattern.
    #[must_use]
    pub fn has_wildcards(path: &[u8]) -> bool {
        path.iter().any(|byte| b"*?[".contains(byte))
    }

    /// The meaning of a pattern; with `below`, of a directory the files in it and in those in it.
    ///
    /// # Errors
    /// Why it means nothing.
    pub fn parse(path: &[u8], below: bool) -> Result<Self, PatternError> {
        Self::of(path, below, parse_name)
    }

    /// Below a directory, symbolic links are meant, too: as what they lead to, and without what is in directories that they lead to.
    #[must_use]
    pub fn with_links(self, links: bool) -> Self {
        Self { links, ..self }
    }

    /// The path itself, whatever bytes it has.
    ///
    /// # Errors
    /// It has too many names.
    pub fn literal(path: &[u8], below: bool) -> Result<Self, PatternError> {
        Self::of(path, below, |name| Ok(Name::Literal(name.to_vec())))
    }

    fn of(path: &[u8], below: bool, parse: impl Fn(&[u8]) -> Result<Name, PatternError>) -> Result<Self, PatternError> {
        let names = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty() && *name != b".");
        let names = names.map(parse).collect::<Result<Vec<_>, _>>()?;
        if names.len() > NAMES_MAX {
            return Err(PatternError::TooManyNames(names.len()));
        }
        Ok(Self { names, below, links: false })
    }

    /// Where a path stands in the pattern that has no name yet.
    pub(crate) fn start(&self) -> Place {
        self.with_none(Place(1))
    }

    /// The place of a path that continues with `name`.
    pub(crate) fn step(&self, place: Place, name: &[u8]) -> Place {
        let mut next = Place(if self.below { place.0 & self.end() } else { 0 });
        let hidden_name = name.first() == Some(&b'.');
        for (index, wanted) in self.names.iter().enumerate().filter(|(index, _)| place.0 & 1 << index != 0) {
            next.0 |= match wanted {
                Name::Literal(literal) if literal == name => 2 << index,
                Name::Glob { matcher, hidden } if (*hidden || !hidden_name) && is_match(matcher, name) => 2 << index,
                Name::Directories if !hidden_name => 1 << index,
                _ => 0,
            };
        }
        self.with_none(next)
    }

    /// Whether a path that stands here is meant.
    pub(crate) fn is_meant(&self, place: Place) -> bool {
        place.0 & self.end() != 0
    }

    /// Whether a path that stands here is one of those that the pattern itself says, and not only below one.
    pub(crate) fn is_named(&self, before: Place, place: Place) -> bool {
        self.is_meant(place) && !(self.below && self.is_meant(before))
    }

    /// Whether longer paths that begin so may be meant.
    pub(crate) fn goes_on(&self, place: Place) -> bool {
        place.0 & (self.end() - 1) != 0 || self.below && self.is_meant(place)
    }

    /// The one name that can come next, if only one can.
    pub(crate) fn only(&self, place: Place) -> Option<&[u8]> {
        match self.names.get(place.0.trailing_zeros() as usize) {
            Some(Name::Literal(name)) if place.0.is_power_of_two() => Some(name),
            _ => None,
        }
    }

    pub(crate) fn has_links(&self) -> bool {
        self.links
    }

    pub(crate) fn is_below(&self) -> bool {
        self.below
    }

    /// `**` also matches no directory.
    fn with_none(&self, mut place: Place) -> Place {
        for (index, name) in self.names.iter().enumerate() {
            if place.0 & 1 << index != 0 && matches!(name, Name::Directories) {
                place.0 |= 2 << index;
            }
        }
        place
    }

    fn end(&self) -> u64 {
        1 << self.names.len()
    }
}

/// The names of a pattern that may come next: bit by bit, with one for its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(u64);

fn parse_name(name: &[u8]) -> Result<Name, PatternError> {
    if name == b"**" {
        return Ok(Name::Directories);
    }
    if !Pattern::has_wildcards(name) {
        return Ok(Name::Literal(name.to_vec()));
    }
    if name.len() > NAME_LEN_MAX {
        return Err(PatternError::NameTooLong(name.len()));
    }
    let malformed = |why: String| PatternError::Malformed { name: String::from_utf8_lossy(name).into_owned(), why };
    let text = std::str::from_utf8(name).map_err(|_| malformed("it is not UTF-8".into()))?;
    let glob = GlobBuilder::new(&without_braces(text)).literal_separator(true).backslash_escape(true).build();
    let matcher = glob.map_err(|error| malformed(error.kind().to_string()))?.compile_matcher();
    Ok(Name::Glob { matcher, hidden: name.first() == Some(&b'.') })
}

/// Braces are the shell's to expand: here they are bytes of a name.
fn without_braces(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    let (mut in_class, mut escaped) = (false, false);
    for c in name.chars() {
        match c {
            '{' | '}' if !in_class && !escaped => text.extend(['\\', c]),
            _ => text.push(c),
        }
        in_class = if in_class { c != ']' } else { c == '[' && !escaped };
        escaped = c == '\\' && !escaped && !in_class;
    }
    text
}

fn is_match(matcher: &GlobMatcher, name: &[u8]) -> bool {
    matcher.is_match(OsStr::from_bytes(name))
}
