//! The words, numbers and symbols of a text.

use super::TextError;

/// One of them.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Word(String),
    /// A name in double quotes.
    Quoted(String),
    /// In single quotes.
    Text(String),
    Number {
        digits: i128,
        scale: u8,
    },
    Float(f64),
    Symbol(&'static str),
}

/// Longer ones first.
const SYMBOLS: [&str; 14] = ["<>", "<=", ">=", "!=", "==", "<", ">", "=", "(", ")", ",", "*", "+", "-"];

/// All tokens, each with where it begins.
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, TextError> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }
        let rest = &text[at..];
        let wrong = |what: &str| TextError { what: what.into(), rest: rest.into() };
        let (token, len) = if first == '\'' || first == '"' {
            let (inside, len) = quoted(rest, first).ok_or_else(|| wrong("a text has no closing quote"))?;
            (if first == '"' { Token::Quoted(inside) } else { Token::Text(inside) }, len)
        } else if first.is_ascii_digit() || (first == '.' && rest[1..].starts_with(|c: char| c.is_ascii_digit())) {
            number(rest).ok_or_else(|| wrong("a number has at most 38 digits, 37 of them behind the point"))?
        } else if first.is_alphabetic() || first == '_' {
            let len = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
            (Token::Word(rest[..len].into()), len)
        } else {
            let symbol = SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol));
            let symbol = symbol.ok_or_else(|| match first {
                '%' => wrong("a scan has no remainders"),
                '/' => wrong("a scan does not divide: compare with a product, such as `a > 2 * b` for `a / 2 > b`"),
                '.' if matches!(found.last(), Some((_, Token::Word(_) | Token::Quoted(_)))) => wrong(
                    "a scan reaches no field within a nested column: output the column whole, and compare its fields where the rows \
                     are read; a name that has a point itself is in \"double quotes\"",
                ),
                _ => wrong("unknown character"),
            })?;
            (Token::Symbol(symbol), symbol.len())
        };
        found.push((at, token));
        at += len;
    }
    Ok(found)
}

/// A quote within is written twice.
fn quoted(text: &str, quote: char) -> Option<(String, usize)> {
    let mut inside = String::new();
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, char)) = chars.next() {
        if char != quote {
            inside.push(char);
        } else if chars.next_if(|(_, next)| *next == quote).is_some() {
            inside.push(quote);
        } else {
            return Some((inside, at + 1));
        }
    }
    None
}

/// A number with a sign perhaps and nothing else, exactly: its digits, and how many of them are behind the point.
pub(crate) fn exact(text: &str) -> Option<(i128, u8)> {
    let plain = text.strip_prefix('-').unwrap_or(text);
    match number(plain).filter(|_| plain.starts_with(|first: char| first.is_ascii_digit())) {
        Some((Token::Number { digits, scale }, len)) if len == plain.len() => {
            Some((if plain.len() < text.len() { -digits } else { digits }, scale))
        }
        _ => None,
    }
}

fn number(text: &str) -> Option<(Token, usize)> {
    let digits_from = |from: usize| text[from..].bytes().take_while(u8::is_ascii_digit).count();
    let whole = digits_from(0);
    let mut len = whole;
    let mut scale = 0;
    if text[len..].starts_with('.') {
        scale = digits_from(len + 1);
        len += 1 + scale;
    }
    if text[len..].starts_with(['e', 'E']) {
        let sign = usize::from(text[len + 1..].starts_with(['+', '-']));
        let exponent = digits_from(len + 1 + sign);
        if exponent > 0 {
            len += 1 + sign + exponent;
            return Some((Token::Float(text[..len].parse().ok()?), len));
        }
    }
    let digits: String = text[..len].chars().filter(|c| *c != '.').collect();
    let digits = digits.parse().ok().filter(|digits| *digits < 10_i128.pow(38))?;
    let scale = u8::try_from(scale).ok().filter(|scale| *scale <= 37)?;
    Some((Token::Number { digits, scale }, len))
}
