//! File operations: what the arguments of a function request of kind 6 say, and what its result holds.
//!
//! A target exports directories by name. A host opens a path beneath one with [`FileRequest::Lookup`] or
//! [`FileRequest::Create`] and gets a [`FileHandle`], which further requests name. Handles live as long as the
//! association with the controller; an old one is answered with `ESTALE`, never with another file.
//!
//! A request is a header of 64 bytes, then one path or two, then data ([`FileRequest`]). The answer is a result stream
//! like any other: its bytes are described at each request, and its trailer carries the rest:
//!
//! | Trailer | Success | Failure |
//! |---|---|---|
//! | outcome | ok | errno, or stale if the file changed while it was read |
//! | return | what the request counts | the negative errno, in Linux' numbers |
//! | generation | the file's version, where one file is meant | the same, if known |
//! | durable bytes | bytes of this write that survive power loss | the same |
//! | message | – | what failed, on which path |
//!
//! Paths are bytes without NUL, with `/` between names. Without a directory's handle the first name is the export's:
//! `data/logs/today`. With one, the path continues from that directory. No path leaves its export: neither by `..`, nor
//! by a symbolic link, nor by a rename that happens at the same time.
//!
//! ```
//! use diskside_wire::file::{FileFlags, FileRequest};
//!
//! let lookup = FileRequest::Lookup { dir: None, path: b"data/today.log", flags: FileFlags::READ };
//! assert_eq!(FileRequest::parse(&lookup.to_bytes()), Ok(lookup));
//! ```

mod answer;
mod header;
mod request;
#[cfg(test)]
mod tests;

pub use answer::{
    DirEntry, Export, FileAttributes, FileKind, FileTime, FoundFile, MalformedAnswer, OpenedFile, Records,
};
pub use request::{FileFlags, FileHandle, FileOp, FileRequest, MalformedRequest, PATH_LEN_MAX, REQUEST_HEADER_LEN};
