//! What a host asks of a file: 64 bytes of header, paths, data.

use std::fmt;
use std::ops::BitOr;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

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
        /// What to open; empty: `dir` itself, with access of its own.
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
    /// What a directory holds, as [`DirEntry`](super::DirEntry) records from `cursor` on, `.` and `..` left out.
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
        /// What to write.
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
        /// [`TRUNCATE`](FileFlags::TRUNCATE), [`NO_FOLLOW`](FileFlags::NO_FOLLOW).
        flags: FileFlags,
    },
    /// Makes a file `len` bytes long; what is added reads as zeroes.
    Truncate {
        /// The file.
        file: FileHandle,
        /// The new length in bytes.
        len: u64,
    },
    /// Gives a file or directory another name in the same export. What had that name is gone, if not
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
    /// Removes a name of a file that is no directory.
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
        /// [`DATA_ONLY`](FileFlags::DATA_ONLY).
        flags: FileFlags,
    },
    /// Gives a handle up.
    Close {
        /// The handle.
        file: FileHandle,
    },
}

/// What names an open file or directory to a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileHandle {
    /// Its number, never 0.
    pub id: u32,
    /// Which of all that had this number: one that is not current is answered with `ESTALE`.
    pub generation: u64,
}

/// Options of file operations. Each operation takes those that its documentation names and refuses the others.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct FileFlags(u32);

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
}

/// Why bytes are no file request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("file request, byte {at}: {what}")]
pub struct MalformedRequest {
    /// The byte where the field in question begins.
    pub at: u32,
    /// What is wrong.
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
    /// Refuse what is no directory.
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

    /// Whether all of `flags` are set.
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
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
        })
    }
}

const VERSION: u16 = 1;

/// The first 64 bytes of a request.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Header {
    pub(super) version: U16,
    pub(super) op: u8,
    pub(super) reserved3: u8,
    pub(super) flags: U32,
    pub(super) handle: U32,
    pub(super) mode: U32,
    pub(super) generation: U64,
    /// A byte of the file, a cursor, or a length to truncate to.
    pub(super) offset: U64,
    /// The most bytes of the result.
    pub(super) len: U32,
    pub(super) path_len: U16,
    pub(super) new_path_len: U16,
    pub(super) data_len: U32,
    pub(super) reserved44: [u8; 20],
}
const _: () = assert!(size_of::<Header>() == 64);

/// Which fields an operation uses. The others must be 0.
struct Uses {
    op: FileOp,
    flags: u32,
    mode: bool,
    offset: bool,
    len: bool,
    data: bool,
    names: Names,
}

/// How an operation says which file it means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    Nothing,
    /// By a handle.
    Handle,
    /// By a path, from a handle on if there is one.
    Path,
    /// By a handle, a path, or both.
    HandleOrPath,
    /// By two paths.
    TwoPaths,
}

const OPEN: u32 = FileFlags::READ.0 | FileFlags::WRITE.0 | FileFlags::NO_FOLLOW.0;

#[rustfmt::skip]
const USES: [Uses; 14] = {
    use FileOp::*;
    use Names::*;
    type F = FileFlags;
    const fn uses(op: FileOp, names: Names, flags: u32, fields: [bool; 4]) -> Uses {
        let [mode, offset, len, data] = fields;
        Uses { op, flags, mode, offset, len, data, names }
    }
    [   //                                                                          mode   offset len    data
        uses(ListExports,     Nothing,      0,                                     [false, true,  true,  false]),
        uses(Lookup,          HandleOrPath, OPEN | F::DIRECTORY.0,                 [false, false, false, false]),
        uses(Stat,            HandleOrPath, F::NO_FOLLOW.0,                        [false, false, false, false]),
        uses(List,            HandleOrPath, F::ATTRIBUTES.0,                       [false, true,  true,  false]),
        uses(Read,            Handle,       0,                                     [false, true,  true,  false]),
        uses(Write,           Handle,       F::DURABLE.0 | F::APPEND.0,            [false, true,  false, true]),
        uses(Create,          Path,         OPEN | F::EXCLUSIVE.0 | F::TRUNCATE.0, [true,  false, false, false]),
        uses(Truncate,        Handle,       0,                                     [false, true,  false, false]),
        uses(Rename,          TwoPaths,     F::NO_REPLACE.0,                       [false, false, false, false]),
        uses(Unlink,          Path,         0,                                     [false, false, false, false]),
        uses(MakeDirectory,   Path,         0,                                     [true,  false, false, false]),
        uses(RemoveDirectory, Path,         0,                                     [false, false, false, false]),
        uses(Sync,            Handle,       F::DATA_ONLY.0,                        [false, false, false, false]),
        uses(Close,           Handle,       0,                                     [false, false, false, false]),
    ]
};

impl Header {
    fn new(op: FileOp) -> Self {
        let mut header = Self::read_from_bytes(&[0; 64]).expect("64 bytes make a header");
        header.version.set(VERSION);
        header.op = op as u8;
        header
    }

    /// Fills in the fields of `request` and gives back what follows the header.
    fn fill<'a>(&mut self, request: &FileRequest<'a>) -> [&'a [u8]; 3] {
        let mut parts: [&[u8]; 3] = [&[]; 3];
        match *request {
            FileRequest::ListExports { cursor, len_max } => self.set_range(cursor, len_max),
            FileRequest::Lookup { dir, path, flags } | FileRequest::Stat { base: dir, path, flags } => {
                self.set_handle(dir);
                self.flags.set(flags.0);
                parts[0] = path;
            }
            FileRequest::List { base, path, cursor, len_max, flags } => {
                self.set_handle(base);
                self.set_range(cursor, len_max);
                self.flags.set(flags.0);
                parts[0] = path;
            }
            FileRequest::Read { file, offset, len } => {
                self.set_handle(Some(file));
                self.set_range(offset, len);
            }
            FileRequest::Write { file, offset, data, flags } => {
                self.set_handle(Some(file));
                self.set_range(offset, 0);
                self.flags.set(flags.0);
                parts[2] = data;
            }
            FileRequest::Create { dir, path, mode, flags } => {
                self.set_handle(dir);
                self.mode.set(mode);
                self.flags.set(flags.0);
                parts[0] = path;
            }
            FileRequest::Truncate { file, len } => {
                self.set_handle(Some(file));
                self.set_range(len, 0);
            }
            FileRequest::Rename { dir, from, to, flags } => {
                self.set_handle(dir);
                self.flags.set(flags.0);
                parts[0] = from;
                parts[1] = to;
            }
            FileRequest::Unlink { dir, path } | FileRequest::RemoveDirectory { dir, path } => {
                self.set_handle(dir);
                parts[0] = path;
            }
            FileRequest::MakeDirectory { dir, path, mode } => {
                self.set_handle(dir);
                self.mode.set(mode);
                parts[0] = path;
            }
            FileRequest::Sync { file, flags } => {
                self.set_handle(Some(file));
                self.flags.set(flags.0);
            }
            FileRequest::Close { file } => self.set_handle(Some(file)),
        }
        let [path, new_path, data] = parts;
        debug_assert!(path.len() <= PATH_LEN_MAX && new_path.len() <= PATH_LEN_MAX, "paths fit");
        self.path_len.set(path.len() as u16);
        self.new_path_len.set(new_path.len() as u16);
        self.data_len.set(data.len() as u32);
        parts
    }

    fn set_handle(&mut self, handle: Option<FileHandle>) {
        if let Some(handle) = handle {
            self.handle.set(handle.id);
            self.generation.set(handle.generation);
        }
    }

    fn set_range(&mut self, offset: u64, len: u32) {
        self.offset.set(offset);
        self.len.set(len);
    }

    /// Checks everything but what follows the header.
    fn check(&self) -> Result<FileOp, MalformedRequest> {
        if self.version.get() != VERSION {
            return Err(malformed(0, "the version is not 1"));
        }
        let uses = USES.iter().find(|uses| uses.op as u8 == self.op).ok_or(malformed(2, "an unknown operation"))?;
        let named = self.handle.get() != 0;
        let handle_wanted = match uses.names {
            Names::Nothing => Some(false),
            Names::Handle => Some(true),
            Names::Path | Names::HandleOrPath | Names::TwoPaths => None,
        };
        let has_path = self.path_len.get() > 0;
        let path_wanted = match uses.names {
            Names::Nothing | Names::Handle => Some(false),
            Names::Path | Names::TwoPaths => Some(true),
            Names::HandleOrPath if named => None,
            Names::HandleOrPath => Some(true),
        };
        let rules = [
            (self.reserved3 == 0, 3, "reserved, and not 0"),
            (self.flags.get() & !uses.flags == 0, 4, "a flag that this operation does not have"),
            (
                handle_wanted.is_none_or(|wanted| wanted == named),
                8,
                "a handle where none belongs, or none where one does",
            ),
            (uses.mode || self.mode.get() == 0, 12, "a mode where none belongs"),
            (self.mode.get() & !0o777 == 0, 12, "the mode has more than permission bits"),
            (named || self.generation.get() == 0, 16, "a generation without a handle"),
            (uses.offset || self.offset.get() == 0, 24, "an offset where none belongs"),
            (uses.len || self.len.get() == 0, 32, "a length where none belongs"),
            (
                path_wanted.is_none_or(|wanted| wanted == has_path),
                36,
                "a path where none belongs, or none where one does",
            ),
            (self.path_len.get() as usize <= PATH_LEN_MAX, 36, "the path is longer than 4,095 bytes"),
            (
                (uses.names == Names::TwoPaths) == (self.new_path_len.get() > 0),
                38,
                "a new path where none belongs, or none where one does",
            ),
            (self.new_path_len.get() as usize <= PATH_LEN_MAX, 38, "the new path is longer than 4,095 bytes"),
            (uses.data || self.data_len.get() == 0, 40, "data where none belongs"),
            (self.reserved44 == [0; 20], 44, "reserved, and not 0"),
        ];
        match rules.iter().find(|(holds, ..)| !holds) {
            Some((_, at, what)) => Err(malformed(*at, what)),
            None => Ok(uses.op),
        }
    }

    fn to_request<'a>(
        self,
        op: FileOp,
        path: &'a [u8],
        new_path: &'a [u8],
        data: &'a [u8],
    ) -> Result<FileRequest<'a>, MalformedRequest> {
        let (mode, flags) = (self.mode.get(), FileFlags(self.flags.get()));
        let (offset, len) = (self.offset.get(), self.len.get());
        let file = FileHandle { id: self.handle.get(), generation: self.generation.get() };
        let dir = (file.id != 0).then_some(file);
        Ok(match op {
            FileOp::ListExports => FileRequest::ListExports { cursor: offset, len_max: len },
            FileOp::Lookup => FileRequest::Lookup { dir, path, flags },
            FileOp::Stat => FileRequest::Stat { base: dir, path, flags },
            FileOp::List => FileRequest::List { base: dir, path, cursor: offset, len_max: len, flags },
            FileOp::Read => FileRequest::Read { file, offset, len },
            FileOp::Write if flags.contains(FileFlags::APPEND) && offset != 0 => {
                return Err(malformed(24, "an offset where the file's end is meant"));
            }
            FileOp::Write => FileRequest::Write { file, offset, data, flags },
            FileOp::Create => FileRequest::Create { dir, path, mode, flags },
            FileOp::Truncate => FileRequest::Truncate { file, len: offset },
            FileOp::Rename => FileRequest::Rename { dir, from: path, to: new_path, flags },
            FileOp::Unlink => FileRequest::Unlink { dir, path },
            FileOp::MakeDirectory => FileRequest::MakeDirectory { dir, path, mode },
            FileOp::RemoveDirectory => FileRequest::RemoveDirectory { dir, path },
            FileOp::Sync => FileRequest::Sync { file, flags },
            FileOp::Close => FileRequest::Close { file },
        })
    }
}

fn check_path(path: &[u8], at: usize) -> Result<(), MalformedRequest> {
    match path.iter().position(|&byte| byte == 0) {
        Some(index) => Err(malformed(at + index, "a NUL in a path")),
        None => Ok(()),
    }
}

const fn malformed(at: usize, what: &'static str) -> MalformedRequest {
    MalformedRequest { at: at as u32, what }
}
