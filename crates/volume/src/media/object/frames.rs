//! What a server and `diskside-objects` say to each other over two pipes. All numbers are little endian.
//!
//! The server first sends a URL: a u32 length and so many bytes. The answer is an [`Opened`]. Then each [`Request`] of 24
//! bytes has a [`Reply`] of 16 and the bytes behind it, in any order. Neither side believes a length beyond the bounds here.

use std::io::{self, Read, Write};

/// The most bytes of one read.
pub const READ_LEN_MAX: usize = 1 << 20;
/// The most bytes of a URL, a version or a message.
const TEXT_LEN_MAX: usize = 8 << 10;

/// What an object is, or why it cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// It is there.
    Object {
        /// Bytes.
        len: u64,
        /// What tells this version from others: its entity tag, or when it was modified.
        version: String,
    },
    /// It is not.
    Refused(String),
}

/// A read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which read: the reply has it again.
    pub id: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

/// The answer to one, with the bytes behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Which read.
    pub id: u64,
    /// 0, or the error number.
    pub errno: u32,
    /// Bytes that follow.
    pub len: u32,
}

/// Writes a text with its length.
///
/// # Errors
/// The text is too long, or the pipe broke.
pub fn write_text(out: &mut impl Write, text: &str) -> io::Result<()> {
    if text.len() > TEXT_LEN_MAX {
        return Err(malformed("a text is too long"));
    }
    out.write_all(&(text.len() as u32).to_le_bytes())?;
    out.write_all(text.as_bytes())
}

/// Reads a text.
///
/// # Errors
/// It is too long or no UTF-8, or the pipe broke.
pub fn read_text(from: &mut impl Read) -> io::Result<String> {
    let mut len = [0; 4];
    from.read_exact(&mut len)?;
    let len = u32::from_le_bytes(len) as usize;
    if len > TEXT_LEN_MAX {
        return Err(malformed("a text is too long"));
    }
    let mut text = vec![0; len];
    from.read_exact(&mut text)?;
    String::from_utf8(text).map_err(|_| malformed("a text is not UTF-8"))
}

impl Opened {
    /// Writes it.
    ///
    /// # Errors
    /// The pipe broke.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let (is_there, len, text) = match self {
            Self::Object { len, version } => (1_u8, *len, version),
            Self::Refused(message) => (0, 0, message),
        };
        out.write_all(&[is_there])?;
        out.write_all(&len.to_le_bytes())?;
        let end = text.floor_char_boundary(TEXT_LEN_MAX);
        write_text(out, &text[..end])?;
        out.flush()
    }

    /// Reads it.
    ///
    /// # Errors
    /// It makes no sense, or the pipe broke.
    pub fn read(from: &mut impl Read) -> io::Result<Self> {
        let mut head = [0; 9];
        from.read_exact(&mut head)?;
        let [is_there, len @ ..] = head;
        let (len, text) = (u64::from_le_bytes(len), read_text(from)?);
        match is_there {
            1 => Ok(Self::Object { len, version: text }),
            0 => Ok(Self::Refused(text)),
            _ => Err(malformed("neither opened nor refused")),
        }
    }
}

impl Request {
    /// Writes it.
    ///
    /// # Errors
    /// The pipe broke.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.id.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.len.to_le_bytes());
        out.write_all(&bytes)
    }

    /// Reads the next one; `None` at the end.
    ///
    /// # Errors
    /// It asks for too much, or the pipe broke.
    pub fn read(from: &mut impl Read) -> io::Result<Option<Self>> {
        let mut bytes = [0; 24];
        match from.read_exact(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let [id, offset, rest] = [0, 8, 16].map(|at| u64_at(&bytes, at));
        let len = rest as u32;
        if len as usize > READ_LEN_MAX {
            return Err(malformed("a read is too long"));
        }
        Ok(Some(Self { id, offset, len }))
    }
}

impl Reply {
    /// As bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.id.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.errno.to_le_bytes());
        bytes[12..].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    /// Reads the next one, without its bytes.
    ///
    /// # Errors
    /// It has too many, or the pipe broke.
    pub fn read(from: &mut impl Read) -> io::Result<Self> {
        let mut bytes = [0; 16];
        from.read_exact(&mut bytes)?;
        let [id, rest] = [0, 8].map(|at| u64_at(&bytes, at));
        let reply = Self { id, errno: rest as u32, len: (rest >> 32) as u32 };
        if reply.len as usize > READ_LEN_MAX {
            return Err(malformed("a reply is too long"));
        }
        Ok(reply)
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn malformed(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_as_they_were() {
        let mut bytes = Vec::new();
        let opened =
            [Opened::Object { len: u64::MAX, version: "\"abc\"".into() }, Opened::Refused("404 Not Found".into())];
        for opened in &opened {
            opened.write(&mut bytes).unwrap();
        }
        let request = Request { id: 7, offset: 1 << 40, len: READ_LEN_MAX as u32 };
        request.write(&mut bytes).unwrap();
        let reply = Reply { id: 7, errno: 116, len: 4096 };
        bytes.extend(reply.to_bytes());
        let mut from = &bytes[..];
        assert_eq!([Opened::read(&mut from).unwrap(), Opened::read(&mut from).unwrap()], opened);
        assert_eq!(Request::read(&mut from).unwrap(), Some(request));
        assert_eq!(Reply::read(&mut from).unwrap(), reply);
        assert!(Request::read(&mut from).unwrap().is_none());
    }

    #[test]
    fn lengths_beyond_the_bounds_are_not_believed() {
        let reply = Reply { id: 1, errno: 0, len: READ_LEN_MAX as u32 + 1 };
        assert!(Reply::read(&mut &reply.to_bytes()[..]).is_err());
        let mut request = Vec::new();
        Request { id: 1, offset: 0, len: u32::MAX }.write(&mut request).unwrap();
        assert!(Request::read(&mut &request[..]).is_err());
        assert!(read_text(&mut &u32::MAX.to_le_bytes()[..]).is_err());
        assert!(Opened::read(&mut &[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..]).is_err());
    }
}
