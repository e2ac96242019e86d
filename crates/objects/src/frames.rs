//! The messages between a server and `diskside-objects` over two pipes: JSON with its length before it, and bytes
//! behind it.
//!
//! The server sends an [`Opening`], which a [`Reply`] answers. Then each [`Request`] has a [`Reply`], in any order. Neither side
//! believes a length beyond the bounds here.

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The most bytes of one read.
pub const READ_LEN_MAX: usize = 1 << 20;
/// The most names of one page of a listing.
pub const PAGE_LEN_MAX: usize = 1000;
/// The most bytes of a path.
pub const PATH_LEN_MAX: usize = 4096;
/// A page of names that are as long as stores allow (1024 bytes), each with what is known of it.
const FRAME_LEN_MAX: usize = 4 << 20;

/// What is said first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// The URL of all paths: an object, or the beginning of keys.
    pub url: String,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Which: the reply has it again.
    pub id: u64,
    /// What is asked.
    pub ask: Ask,
}

/// The questions to a store. Paths have no `/` at their start or end; the empty one is the URL itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// What is at a path?
    Head {
        /// Below the URL.
        path: String,
    },
    /// The metadata at a path, and the first bytes, if it is an object.
    First {
        /// Below the URL.
        path: String,
        /// The most bytes.
        len: u32,
    },
    /// Bytes of an object.
    Read {
        /// Below the URL.
        path: String,
        /// The [version](Meta::version) that it has to have.
        version: String,
        /// First byte.
        offset: u64,
        /// Bytes: so many there are.
        len: u32,
    },
    /// What is directly below a path, in order of the keys.
    List {
        /// Below the URL.
        path: String,
        /// The name behind which the list continues, with a `/` if it is a directory's; empty for the start.
        after: String,
    },
}

/// An answer. An error number says which of the others there is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// Which request.
    pub id: u64,
    /// 0, or the error number.
    pub errno: i32,
    /// Why, in words.
    pub message: String,
    /// What is there.
    pub meta: Option<Meta>,
    /// A page of a listing.
    pub entries: Vec<Entry>,
    /// Whether there may be more behind the page.
    pub has_more: bool,
    /// Bytes that follow.
    pub data_len: u32,
}

/// The metadata of an object, or of the keys that begin in the same way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Which of the two.
    pub kind: Kind,
    /// Bytes of an object.
    pub len: u64,
    /// When it was written: nanoseconds since 1970.
    pub modified_ns: i64,
    /// Identifies this version: its entity tag, or when it was written.
    pub version: String,
}

/// What a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// An object.
    Object,
    /// What keys of objects begin with.
    Directory,
}

/// A name of a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Without what it is listed below.
    pub name: String,
    /// What is there.
    pub meta: Meta,
}

impl Ask {
    /// What it is about.
    #[must_use]
    pub fn path(&self) -> &str {
        let (Self::Head { path } | Self::First { path, .. } | Self::Read { path, .. } | Self::List { path, .. }) = self;
        path
    }
}

/// Writes a frame.
///
/// # Errors
/// It is too long, or the pipe broke.
pub fn write(out: &mut impl Write, frame: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(frame)?;
    if text.len() > FRAME_LEN_MAX {
        return Err(malformed("a frame is too long"));
    }
    out.write_all(&[&(text.len() as u32).to_le_bytes()[..], &text].concat())
}

/// Reads the next frame; `None` at the end.
///
/// # Errors
/// It makes no sense, or the pipe broke.
pub fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut len = [0; 4];
    match from.read_exact(&mut len) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let len = u32::from_le_bytes(len) as usize;
    if len > FRAME_LEN_MAX {
        return Err(malformed("a frame is too long"));
    }
    let mut text = Vec::new();
    if from.by_ref().take(len as u64).read_to_end(&mut text)? != len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(serde_json::from_slice(&text)?))
}

/// Reads the bytes behind a reply.
///
/// # Errors
/// It says that there are too many, or the pipe broke.
pub fn read_data(from: &mut impl Read, reply: &Reply) -> io::Result<Vec<u8>> {
    if reply.data_len as usize > READ_LEN_MAX {
        return Err(malformed("a reply is too long"));
    }
    let mut data = vec![0; reply.data_len as usize];
    from.read_exact(&mut data)?;
    Ok(data)
}

fn malformed(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_as_they_were() {
        let asks = [
            Ask::Head { path: "a/b".into() },
            Ask::First { path: String::new(), len: 7 },
            Ask::Read { path: "ü \"x\"".into(), version: "\"tag\"".into(), offset: u64::MAX, len: 1 << 20 },
            Ask::List { path: "a".into(), after: "c/".into() },
        ];
        let mut pipe = Vec::new();
        for (id, ask) in (0..).zip(&asks) {
            write(&mut pipe, &Request { id, ask: ask.clone() }).unwrap();
        }
        let mut from = &pipe[..];
        for (id, ask) in (0..).zip(asks) {
            assert_eq!(read(&mut from).unwrap(), Some(Request { id, ask }));
        }
        assert_eq!(read::<Request>(&mut from).unwrap(), None);
    }

    #[test]
    fn nobody_believes_lengths_and_nonsense() {
        let too_long = u32::MAX.to_le_bytes();
        assert_eq!(read::<Reply>(&mut &too_long[..]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let cut = [&100_u32.to_le_bytes()[..], b"{"].concat();
        assert_eq!(read::<Reply>(&mut &cut[..]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let nonsense = [&2_u32.to_le_bytes()[..], b"{}"].concat();
        assert!(read::<Reply>(&mut &nonsense[..]).is_err());
        let reply = Reply { data_len: READ_LEN_MAX as u32 + 1, ..Reply::default() };
        assert_eq!(read_data(&mut io::repeat(0), &reply).unwrap_err().to_string(), "a reply is too long");
        let path = "x".repeat(FRAME_LEN_MAX);
        assert!(write(&mut Vec::new(), &Request { id: 0, ask: Ask::Head { path } }).is_err());
    }
}
