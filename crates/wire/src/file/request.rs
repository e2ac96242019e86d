//! The requests of a host to a file: 64 bytes of header, paths, data.

use std::fmt;
use std::ops::BitOr;

use zerocopy::{FromBytes, IntoBytes};

use super::header::{Header, USES, malformed};

/// One file operation. Its encoding is [`to_bytes`](Self::to_bytes); [`parse`](Self::parse) takes nothing else.
///
/// Every request says what its result holds and what its return value counts; where nothing is said, the result is
/// empty and the return value 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileRequest<'a> {
    /// The exports, as [`Export`](super::Export) records from `cursor` on. Returns their number; 0: no more.
    ListExports {
        /// 0, or the cursor of the last record that is known.
        cursor: u64,
        /// The most bytes of records.
        len_max: u32,
    },
    /// Opens what is at `path`: an [`OpenedFile`](super::OpenedFile).
    Lookup {
        /// The directory that `path` starts from; `None`: `path` starts with an export's name.
        dir: Option<FileHandle>,
        /// The path to open; empty: `dir` itself, with access of its own.
        path: &'a [u8],
        /// [`READ`](FileFlags::READ), [`WRITE`](FileFlags::WRITE), both, or neither for attributes alone;
        /// [`DIRECTORY`](FileFlags::DIRECTORY), [`NO_FOLLOW`](FileFlags::NO_FOLLOW).
        flags: FileFlags,
    },
    /// [`FileAttributes`](super::FileAttributes) of a handle or a path.
    Stat {
        /// The file or directory; `None`: `path` starts with an export's name.
        base: Option<FileHandle>,
        /// A path from `base` on; empty: `base` itself.
        path: &'a [u8],
        /// [`NO_FOLLOW`](FileFlags::NO_FOLLOW).
        flags: FileFlags,
    },
    /// The entries of a directory, as [`DirEntry`](super::DirEntry) records from `cursor` on, `.` and `..` left out.
    /// Returns their number; 0: no more. Entries that come or go meanwhile may be listed or not; the others are
    /// listed once.
    List {
        /// The directory; `None`: `path` starts with an export's name.
        base: Option<FileHandle>,
        /// A path from `base` on; empty: `base` itself.
        path: &'a [u8],
        /// 0, or the cursor of the last record that is known.
        cursor: u64,
        /// The most bytes of records.
        len_max: u32,
        /// [`ATTRIBUTES`](FileFlags::ATTRIBUTES): each record with attributes.
        flags: FileFlags,
    },
    /// Up to `len` bytes from `offset` on, as they are. Returns their number, which is less than `len` at the file's
    /// end or at the target's bound for one result; 0: the end.
    Read {
        /// The file.
        file: FileHandle,
        /// First byte.
        offset: u64,
        /// The most bytes.
        len: u32,
    },
    /// Writes `data`. Returns the number of bytes written, which is less than asked for only if the medium filled up.
    Write {
        /// The file.
        file: FileHandle,
        /// First byte; 0 with [`APPEND`](FileFlags::APPEND).
        offset: u64,
        /// The data to write.
        data: &'a [u8],
        /// [`DURABLE`](FileFlags::DURABLE), [`APPEND`](FileFlags::APPEND).
        flags: FileFlags,
    },
    /// Makes a file and opens it: an [`OpenedFile`](super::OpenedFile). An existing one is opened, if not
    /// [`EXCLUSIVE`](FileFlags::EXCLUSIVE).
    Create {
        /// The directory that `path` starts from; `None`: `path` starts with an export's name.
        dir: Option<FileHandle>,
        /// The file.
        path: &'a [u8],
        /// Permission bits, 0 to 0o777.
        mode: u32,
        /// [`READ`](FileFlags::READ), [`WRITE`](FileFlags::WRITE), [`EXCLUSIVE`](FileFlags::EXCLUSIVE),
        /// [`TRUNCATE`](FileFlags::TRUNCATE), [`NO_FOLLOW`](FileFlags::NO_FOLLOW); or `WRITE`,
        /// [`UNNAMED`](FileFlags::UNNAMED) and perhaps `READ`.
        flags: FileFlags,
    },
    /// Makes a file `len` bytes long; what is added reads as zeroes.
    Truncate {
        /// The file.
        file: FileHandle,
        /// The new length in bytes.
        len: u64,
    },
    /// Gives a file or directory another name in the same export. A file that had that name is gone, if not
    /// [`NO_REPLACE`](FileFlags::NO_REPLACE).
    Rename {
        /// The directory that both paths start from; `None`: both start with the export's name.
        dir: Option<FileHandle>,
        /// The old name.
        from: &'a [u8],
        /// The new name.
        to: &'a [u8],
        /// [`NO_REPLACE`](FileFlags::NO_REPLACE).
        flags: FileFlags,
    },
    /// Removes a name of a file that is not a directory.
    Unlink {
        /// The directory that `path` starts from; `None`: `path` starts with an export's name.
        dir: Option<FileHandle>,
        /// The name.
        path: &'a [u8],
    },
    /// Makes a directory.
    MakeDirectory {
        /// The directory that `path` starts from; `None`: `path` starts with an export's name.
        dir: Option<FileHandle>,
        /// The new directory.
        path: &'a [u8],
        /// Permission bits, 0 to 0o777.
        mode: u32,
    },
    /// Removes an empty directory.
    RemoveDirectory {
        /// The directory that `path` starts from; `None`: `path` starts with an export's name.
        dir: Option<FileHandle>,
        /// The directory to remove.
        path: &'a [u8],
    },
    /// Makes what was written to a file, or which names a directory holds, survive power loss.
    Sync {
        /// The file or directory.
        file: FileHandle,
        /// [`DATA_ONLY`](FileFlags::DATA_ONLY), [`DROP_CACHED`](FileFlags::DROP_CACHED).
        flags: FileFlags,
    },
    /// Makes a file that was created [`UNNAMED`](FileFlags::UNNAMED) survive power loss, and gives it its name. A file that had
    /// that name is gone.
    Publish {
        /// The file.
        file: FileHandle,
    },
    /// The files that a pattern matches, as [`FoundFile`](super::FoundFile) records behind the path `after`, in the order of the
    /// names' bytes; what a directory holds comes right behind its name. Returns the number of records; 0: no more.
    Find {
        /// The directory that `pattern` starts from; `None`: `pattern` starts with an export's name.
        dir: Option<FileHandle>,
        /// A path with `*`, `?`, `[…]` and `**`. A file that has that very name is meant, if there is one.
        pattern: &'a [u8],
        /// Empty, or the path of the last record that is known.
        after: &'a [u8],
        /// The most bytes of records.
        len_max: u32,
        /// [`RECURSIVE`](FileFlags::RECURSIVE), [`LINKS`](FileFlags::LINKS), [`ATTRIBUTES`](FileFlags::ATTRIBUTES).
        flags: FileFlags,
    },
    /// Gives a handle up.
    Close {
        /// The handle.
        file: FileHandle,
    },
}

/// The handle of an open file or directory at a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileHandle {
    /// Its number, never 0.
    pub id: u32,
    /// Which of all that had this number: one that is not current is answered with `ESTALE`.
    pub generation: u64,
}

/// Options of file operations. Each operation takes those that its documentation names and refuses the others.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct FileFlags(pub(super) u32);

/// The operations' numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "documented at FileRequest")]
pub enum FileOp {
    ListExports = 1,
    Lookup = 2,
    Stat = 3,
    List = 4,
    Read = 5,
    Write = 6,
    Create = 7,
    Truncate = 8,
    Rename = 9,
    Unlink = 10,
    MakeDirectory = 11,
    RemoveDirectory = 12,
    Sync = 13,
    Close = 14,
    Publish = 15,
    Find = 16,
}

/// Why bytes are not a file request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("file request, byte {at}: {what}")]
pub struct MalformedRequest {
    /// The byte where the field in question begins.
    pub at: u32,
    /// The error.
    pub what: &'static str,
}

/// Bytes of a request before its paths.
pub const REQUEST_HEADER_LEN: usize = size_of::<Header>();

/// The longest path, in bytes (Linux' `PATH_MAX` without its NUL).
pub const PATH_LEN_MAX: usize = 4095;

impl<'a> FileRequest<'a> {
    /// Which operation it is.
    pub fn op(&self) -> FileOp {
        match self {
            Self::ListExports { .. } => FileOp::ListExports,
            Self::Lookup { .. } => FileOp::Lookup,
            Self::Stat { .. } => FileOp::Stat,
            Self::List { .. } => FileOp::List,
            Self::Read { .. } => FileOp::Read,
            Self::Write { .. } => FileOp::Write,
            Self::Create { .. } => FileOp::Create,
            Self::Truncate { .. } => FileOp::Truncate,
            Self::Rename { .. } => FileOp::Rename,
            Self::Unlink { .. } => FileOp::Unlink,
            Self::MakeDirectory { .. } => FileOp::MakeDirectory,
            Self::RemoveDirectory { .. } => FileOp::RemoveDirectory,
            Self::Sync { .. } => FileOp::Sync,
            Self::Close { .. } => FileOp::Close,
            Self::Publish { .. } => FileOp::Publish,
            Self::Find { .. } => FileOp::Find,
        }
    }

    /// Whether it changes nothing and names nothing of its connection, so that it means the same when it is sent again over
    /// another one.
    pub fn is_repeatable(&self) -> bool {
        match self {
            Self::ListExports { .. } => true,
            Self::Lookup { dir: base, .. }
            | Self::Stat { base, .. }
            | Self::List { base, .. }
            | Self::Find { dir: base, .. } => base.is_none(),
            _ => false,
        }
    }

    /// The request as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        bytes
    }

    /// Appends the request to `bytes`.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let mut header = Header::new(self.op());
        let [path, new_path, data] = header.fill(self);
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(path);
        bytes.extend_from_slice(new_path);
        bytes.extend_from_slice(data);
    }

    /// Reads a request. Fields that the operation does not use must be 0.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MalformedRequest> {
        let (header, rest) = Header::ref_from_prefix(bytes)
            .map_err(|_| MalformedRequest { at: 0, what: "shorter than the header of 64 bytes" })?;
        let op = header.check()?;
        let (path_len, new_path_len) = (header.path_len.get() as usize, header.new_path_len.get() as usize);
        let len = path_len + new_path_len + header.data_len.get() as usize;
        if rest.len() != len {
            return Err(malformed(REQUEST_HEADER_LEN, "the paths and data are not as long as the header says"));
        }
        let (path, rest) = rest.split_at(path_len);
        let (new_path, data) = rest.split_at(new_path_len);
        check_path(path, REQUEST_HEADER_LEN)?;
        check_path(new_path, REQUEST_HEADER_LEN + path_len)?;
        header.to_request(op, path, new_path, data)
    }
}

impl FileFlags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// Open for reading.
    pub const READ: Self = Self(1);
    /// Open for writing.
    pub const WRITE: Self = Self(1 << 1);
    /// Open for both.
    pub const READ_WRITE: Self = Self(Self::READ.0 | Self::WRITE.0);
    /// Refuse anything but a directory.
    pub const DIRECTORY: Self = Self(1 << 2);
    /// Do not follow a symbolic link that is the path's last name.
    pub const NO_FOLLOW: Self = Self(1 << 3);
    /// Refuse a file that exists.
    pub const EXCLUSIVE: Self = Self(1 << 4);
    /// Empty a file that exists.
    pub const TRUNCATE: Self = Self(1 << 5);
    /// Complete when the bytes survive power loss.
    pub const DURABLE: Self = Self(1 << 6);
    /// Write at the file's end, wherever that is by then.
    pub const APPEND: Self = Self(1 << 7);
    /// Refuse a new name that exists.
    pub const NO_REPLACE: Self = Self(1 << 8);
    /// Leave out attributes that reading the data does not need.
    pub const DATA_ONLY: Self = Self(1 << 9);
    /// List with attributes.
    pub const ATTRIBUTES: Self = Self(1 << 10);
    /// A new file that nobody sees until it is published, and that goes with its handle.
    pub const UNNAMED: Self = Self(1 << 11);
    /// For a directory, the files in it and in those in it.
    pub const RECURSIVE: Self = Self(1 << 12);
    /// Keep nothing of the file in memory: its pages leave the page cache.
    pub const DROP_CACHED: Self = Self(1 << 13);
    /// With [`RECURSIVE`](Self::RECURSIVE), symbolic links below a directory, as what they lead to; directories that they lead to
    /// are not entered.
    pub const LINKS: Self = Self(1 << 14);

    /// Whether all of `flags` are set.
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// These flags, if `is_so`, and none otherwise.
    #[must_use]
    pub const fn when(self, is_so: bool) -> Self {
        if is_so { self } else { Self::NONE }
    }

    /// These flags as a number.
    pub const fn bits(self) -> u32 {
        self.0
    }
}

impl BitOr for FileFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for FileFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            "READ",
            "WRITE",
            "DIRECTORY",
            "NO_FOLLOW",
            "EXCLUSIVE",
            "TRUNCATE",
            "DURABLE",
            "APPEND",
            "NO_REPLACE",
            "DATA_ONLY",
            "ATTRIBUTES",
            "UNNAMED",
            "RECURSIVE",
            "DROP_CACHED",
            "LINKS",
        ];
        let set = names.iter().enumerate().filter(|(bit, _)| self.0 & 1 << bit != 0).map(|(_, name)| *name);
        write!(f, "FileFlags({})", set.collect::<Vec<_>>().join(" | "))
    }
}

impl FileOp {
    /// The operation of this number.
    pub fn from_number(number: u8) -> Option<Self> {
        USES.iter().find(|uses| uses.op as u8 == number).map(|uses| uses.op)
    }
}

impl fmt::Display for FileOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ListExports => "list exports",
            Self::Lookup => "lookup",
            Self::Stat => "stat",
            Self::List => "list",
            Self::Read => "read",
            Self::Write => "write",
            Self::Create => "create",
            Self::Truncate => "truncate",
            Self::Rename => "rename",
            Self::Unlink => "unlink",
            Self::MakeDirectory => "make directory",
            Self::RemoveDirectory => "remove directory",
            Self::Sync => "sync",
            Self::Close => "close",
            Self::Publish => "publish",
            Self::Find => "find",
        })
    }
}

fn check_path(path: &[u8], at: usize) -> Result<(), MalformedRequest> {
    match path.iter().position(|&byte| byte == 0) {
        Some(index) => Err(malformed(at + index, "a NUL in a path")),
        None => Ok(()),
    }
}
