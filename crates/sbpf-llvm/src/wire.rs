//! The messages between parent and child.
//!
//! The parent writes LLVM's text to the child's standard input and closes it. The child answers with
//! one line, `ok REMARKS_LEN OBJECT_LEN` or `error LEN`, and so many bytes: remarks as lines of text,
//! then an object; or what is wrong. Everything about the processor is in the child's arguments.

/// Most bytes of text that a child takes.
pub const TEXT_LEN_MAX: usize = 8 << 20;
/// Most bytes that a parent takes.
pub const ANSWER_LEN_MAX: usize = 8 << 20;
/// Longest first line.
const HEADER_LEN_MAX: usize = 64;

/// The answer of a child.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It compiled.
    Object {
        /// The optimiser's messages, a line each.
        remarks: String,
        /// The object.
        object: Vec<u8>,
    },
    /// It did not, for this reason.
    Error(String),
}

impl Answer {
    /// As bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Object { remarks, object } => {
                let mut bytes = format!("ok {} {}\n", remarks.len(), object.len()).into_bytes();
                bytes.extend_from_slice(remarks.as_bytes());
                bytes.extend_from_slice(object);
                bytes
            }
            Self::Error(message) => format!("error {}\n{message}", message.len()).into_bytes(),
        }
    }

    /// From bytes, all of them.
    ///
    /// # Errors
    /// The problem with them.
    pub fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        let end = bytes.iter().take(HEADER_LEN_MAX).position(|b| *b == b'\n').ok_or("no first line")?;
        let header = std::str::from_utf8(&bytes[..end]).map_err(|_| "the first line is no text")?;
        let body = &bytes[end + 1..];
        let words: Vec<&str> = header.split(' ').collect();
        let number = |word: &str| word.parse::<usize>().map_err(|_| "a length is no number");
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| "text is not UTF-8");
        match words[..] {
            ["ok", remarks_len, object_len] => {
                let (remarks_len, object_len) = (number(remarks_len)?, number(object_len)?);
                if remarks_len.checked_add(object_len) != Some(body.len()) {
                    return Err("the answer has another length than it says");
                }
                let (remarks, object) = body.split_at(remarks_len);
                Ok(Self::Object { remarks: text(remarks)?, object: object.to_vec() })
            }
            ["error", len] if number(len)? == body.len() => Ok(Self::Error(text(body)?)),
            ["error", _] => Err("the answer has another length than it says"),
            _ => Err("the first line is neither `ok` nor `error`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_survive_the_way() {
        for answer in [
            Answer::Object { remarks: "program:3:1: vectorized loop\n".into(), object: vec![0x7f, b'E', 0, 10] },
            Answer::Object { remarks: String::new(), object: Vec::new() },
            Answer::Error("no such processor".into()),
        ] {
            assert_eq!(Answer::parse(&answer.to_bytes()), Ok(answer));
        }
    }

    #[test]
    fn anything_else_is_refused_with_a_reason() {
        for (bytes, why) in [
            (&b""[..], "no first line"),
            (b"\n", "the first line is neither `ok` nor `error`"),
            (b"ok 1\nx", "the first line is neither `ok` nor `error`"),
            (b"ok 1 x\nxx", "a length is no number"),
            (b"ok 1 1\nxxx", "the answer has another length than it says"),
            (b"ok 18446744073709551615 1\n", "the answer has another length than it says"),
            (b"error 3\nno", "the answer has another length than it says"),
            (b"ok 1 0\n\xff", "text is not UTF-8"),
            (b"\xff\n", "the first line is no text"),
            (&[b'o'; 1000], "no first line"),
        ] {
            assert_eq!(Answer::parse(bytes), Err(why), "{}", bytes.escape_ascii());
        }
    }
}
