//! The first 64 bytes of a request, and which of their fields each operation uses.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::request::{FileFlags, FileHandle, FileOp, FileRequest, MalformedRequest, PATH_LEN_MAX};

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
pub(super) struct Uses {
    pub(super) op: FileOp,
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
    /// By one path or two.
    PathAndMore,
}

const OPEN: u32 = FileFlags::READ.0 | FileFlags::WRITE.0 | FileFlags::NO_FOLLOW.0;
const FIND: u32 = FileFlags::RECURSIVE.0 | FileFlags::LINKS.0 | FileFlags::ATTRIBUTES.0;
const CREATE: u32 = FileFlags::EXCLUSIVE.0 | FileFlags::TRUNCATE.0 | FileFlags::UNNAMED.0;
/// The other flags that are allowed for a file that is to have no name.
const UNNAMED: u32 = FileFlags::UNNAMED.0 | FileFlags::READ_WRITE.0;

#[rustfmt::skip]
pub(super) const USES: [Uses; 16] = {
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
        uses(Create,          Path,         OPEN | CREATE,                         [true,  false, false, false]),
        uses(Truncate,        Handle,       0,                                     [false, true,  false, false]),
        uses(Rename,          TwoPaths,     F::NO_REPLACE.0,                       [false, false, false, false]),
        uses(Unlink,          Path,         0,                                     [false, false, false, false]),
        uses(MakeDirectory,   Path,         0,                                     [true,  false, false, false]),
        uses(RemoveDirectory, Path,         0,                                     [false, false, false, false]),
        uses(Sync,            Handle,       F::DATA_ONLY.0 | F::DROP_CACHED.0,     [false, false, false, false]),
        uses(Close,           Handle,       0,                                     [false, false, false, false]),
        uses(Publish,         Handle,       0,                                     [false, false, false, false]),
        uses(Find,            PathAndMore,  FIND,                                  [false, false, true,  false]),
    ]
};

impl Header {
    pub(super) fn new(op: FileOp) -> Self {
        let mut header = Self::read_from_bytes(&[0; 64]).expect("64 bytes make a header");
        header.version.set(VERSION);
        header.op = op as u8;
        header
    }

    /// Fills in the fields of `request` and gives back what follows the header.
    pub(super) fn fill<'a>(&mut self, request: &FileRequest<'a>) -> [&'a [u8]; 3] {
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
            FileRequest::Find { dir, pattern, after, len_max, flags } => {
                self.set_handle(dir);
                self.set_range(0, len_max);
                self.flags.set(flags.0);
                parts[0] = pattern;
                parts[1] = after;
            }
            FileRequest::Close { file } | FileRequest::Publish { file } => self.set_handle(Some(file)),
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
    pub(super) fn check(&self) -> Result<FileOp, MalformedRequest> {
        if self.version.get() != VERSION {
            return Err(malformed(0, "the version is not 1"));
        }
        let uses = USES.iter().find(|uses| uses.op as u8 == self.op).ok_or(malformed(2, "an unknown operation"))?;
        let named = self.handle.get() != 0;
        let handle_wanted = match uses.names {
            Names::Nothing => Some(false),
            Names::Handle => Some(true),
            Names::Path | Names::HandleOrPath | Names::TwoPaths | Names::PathAndMore => None,
        };
        let has_path = self.path_len.get() > 0;
        let path_wanted = match uses.names {
            Names::Nothing | Names::Handle => Some(false),
            Names::Path | Names::TwoPaths | Names::PathAndMore => Some(true),
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
                uses.names == Names::PathAndMore || (uses.names == Names::TwoPaths) == (self.new_path_len.get() > 0),
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

    pub(super) fn to_request<'a>(
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
            FileOp::Create
                if flags.contains(FileFlags::UNNAMED)
                    && (flags.0 & !UNNAMED != 0 || !flags.contains(FileFlags::WRITE)) =>
            {
                return Err(malformed(4, "a file without a name is new, and opened for writing"));
            }
            FileOp::Create => FileRequest::Create { dir, path, mode, flags },
            FileOp::Truncate => FileRequest::Truncate { file, len: offset },
            FileOp::Rename => FileRequest::Rename { dir, from: path, to: new_path, flags },
            FileOp::Unlink => FileRequest::Unlink { dir, path },
            FileOp::MakeDirectory => FileRequest::MakeDirectory { dir, path, mode },
            FileOp::RemoveDirectory => FileRequest::RemoveDirectory { dir, path },
            FileOp::Sync => FileRequest::Sync { file, flags },
            FileOp::Close => FileRequest::Close { file },
            FileOp::Publish => FileRequest::Publish { file },
            FileOp::Find => FileRequest::Find { dir, pattern: path, after: new_path, len_max: len, flags },
        })
    }
}

pub(super) const fn malformed(at: usize, what: &'static str) -> MalformedRequest {
    MalformedRequest { at: at as u32, what }
}
