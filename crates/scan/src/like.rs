//! Patterns of LIKE: `%` is any text, `_` any character, and `\` takes the next one for what it is.

use memchr::memmem::Finder;

/// A pattern, ready to be compared with many texts.
#[derive(Debug)]
pub enum Pattern {
    /// This text.
    Equal(String),
    /// It begins so.
    Prefix(String),
    /// It ends so.
    Suffix(String),
    /// It has this in it.
    Contains(Box<Finder<'static>>),
    /// It fits parts, one behind the other.
    Any(Vec<Part>),
}

/// A part of a pattern that is none of the simple ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Any text.
    Text,
    /// Any character.
    One,
    /// This character.
    Char(char),
}

impl Pattern {
    /// The pattern that a text means; `None`: it ends with a lone `\`.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let mut parts = Vec::new();
        let mut chars = text.chars();
        while let Some(char) = chars.next() {
            match char {
                '%' if parts.last() == Some(&Part::Text) => {}
                '%' => parts.push(Part::Text),
                '_' => parts.push(Part::One),
                '\\' => parts.push(Part::Char(chars.next()?)),
                char => parts.push(Part::Char(char)),
            }
        }
        let plain = |parts: &[Part]| {
            let char = |part: &Part| if let Part::Char(char) = part { Some(*char) } else { None };
            parts.iter().map(char).collect::<Option<String>>()
        };
        let found = match &parts[..] {
            [Part::Text, inner @ .., Part::Text] => {
                plain(inner).map(|inner| Self::Contains(Box::new(Finder::new(&inner).into_owned())))
            }
            [Part::Text, end @ ..] => plain(end).map(Self::Suffix),
            [start @ .., Part::Text] => plain(start).map(Self::Prefix),
            all => plain(all).map(Self::Equal),
        };
        Some(found.unwrap_or(Self::Any(parts)))
    }

    /// Whether a text is like it.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        match self {
            Self::Equal(pattern) => text == pattern,
            Self::Prefix(pattern) => text.starts_with(pattern),
            Self::Suffix(pattern) => text.ends_with(pattern),
            Self::Contains(finder) => finder.find(text.as_bytes()).is_some(),
            Self::Any(parts) => matches(parts, text),
        }
    }
}

/// Goes back to the last `%` when what follows it does not fit: never further, so time is the product of the lengths at most.
fn matches(parts: &[Part], text: &str) -> bool {
    let (mut at, mut rest) = (0, text.chars());
    let mut again: Option<(usize, std::str::Chars<'_>)> = None;
    loop {
        let before = rest.clone();
        match (parts.get(at), rest.next()) {
            (Some(Part::Text), _) => {
                at += 1;
                rest = before.clone();
                again = Some((at, before));
                continue;
            }
            (Some(Part::One), Some(_)) => {
                at += 1;
                continue;
            }
            (Some(Part::Char(wanted)), Some(found)) if *wanted == found => {
                at += 1;
                continue;
            }
            (None, None) => return true,
            _ => {}
        }
        let Some((from, start)) = &mut again else { return false };
        if start.next().is_none() {
            return false;
        }
        (at, rest) = (*from, start.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_sql_has_it() {
        for (pattern, text, matches) in [
            ("%fox%", "the fox", true),
            ("%fox%", "fo x", false),
            ("a%", "abc", true),
            ("%c", "abc", true),
            ("abc", "abc", true),
            ("abc", "abcd", false),
            ("", "", true),
            ("%", "", true),
            ("_", "\u{e9}", true),
            ("_", "", false),
            ("a%b%c", "a-b-b-c", true),
            ("a%b%c", "a-c-b", false),
            ("%a_c%", "xxabcx", true),
            (r"50\%", "50%", true),
            (r"50\%", "500", false),
            ("%%a%%", "bab", true),
            ("a_%", "a", false),
            ("_%_", "ab", true),
        ] {
            assert_eq!(Pattern::new(pattern).unwrap().matches(text), matches, "{text} like {pattern}");
        }
        assert!(Pattern::new("a\\").is_none());
    }
}
