//! The results of file operations.

use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::request::{FileHandle, PATH_LEN_MAX};

/// The facts about a file, in 128 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct FileAttributes {
    /// The file's version: differs when the content may differ. It is derived from its number, size, and times of
    /// change; see [`RECENT`](Self::RECENT) for what these cannot tell.
    pub version: U64,
    /// Number of the file within its file system.
    pub inode: U64,
    /// Number of the file system.
    pub device: U64,
    /// Length in bytes.
    pub size: U64,
    /// Bytes taken on the medium.
    pub allocated: U64,
    /// Kind of file and permission bits, as Linux' `st_mode` has them.
    pub mode: U32,
    /// Number of names.
    pub links: U32,
    /// Owner.
    pub uid: U32,
    /// Group.
    pub gid: U32,
    /// When the content changed last.
    pub modified: FileTime,
    /// When content or attributes changed last.
    pub changed: FileTime,
    /// The length in bytes that reads are best a multiple of.
    pub block_len: U32,
    /// See the constants of this type.
    pub flags: U32,
    reserved: [u8; 32],
}
const _: () = assert!(size_of::<FileAttributes>() == 128);

/// A point in time since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct FileTime {
    /// Whole seconds.
    pub seconds: I64,
    /// Nanoseconds beside them, under 1,000,000,000.
    pub nanoseconds: U32,
    reserved: [u8; 4],
}
const _: () = assert!(size_of::<FileTime>() == 16);

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FileKind {
    /// None of those below, or not known.
    Other = 0,
    /// A regular file.
    File = 1,
    /// A directory.
    Directory = 2,
    /// A symbolic link.
    Symlink = 3,
}

/// The answer to a lookup or create.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct OpenedFile {
    id: U32,
    /// 1: this request created the file.
    pub created: U32,
    generation: U64,
    /// Its attributes.
    pub attributes: FileAttributes,
}
const _: () = assert!(size_of::<OpenedFile>() == 144);

/// One name in a directory: 24 bytes, the attributes if they were asked for, the name, padding to 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// Where the listing continues after this entry.
    pub cursor: u64,
    /// Number of the file within its file system.
    pub inode: u64,
    /// The kind of the entry, as far as the directory tells.
    pub kind: FileKind,
    /// Its attributes, if they were asked for and the file was still there.
    pub attributes: Option<FileAttributes>,
    /// Its name.
    pub name: &'a [u8],
}

/// A file that a pattern matches: 24 bytes, the attributes if they were asked for, the path, padding to 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundFile<'a> {
    /// The kind of the file; a symbolic link only where it leads to nothing that can be reached.
    pub kind: FileKind,
    /// Nothing was found here: this is where the search continues, which has looked at much.
    pub is_mark: bool,
    /// Its attributes, if they were asked for and the file was still there.
    pub attributes: Option<FileAttributes>,
    /// Its path, which begins as that of the pattern does.
    pub path: &'a [u8],
}

/// One export: 24 bytes, its name, padding to 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Export<'a> {
    /// Where the listing continues after this export.
    pub cursor: u64,
    /// Whether nothing in it can be changed.
    pub read_only: bool,
    /// The user that accesses run as.
    pub uid: u32,
    /// The group that accesses run as.
    pub gid: u32,
    /// Its name, with which paths start.
    pub name: &'a [u8],
}

/// Why an answer's bytes are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("answer to a file request, byte {at}: {what}")]
pub struct MalformedAnswer {
    /// The byte where it goes wrong.
    pub at: usize,
    /// The error.
    pub what: &'static str,
}

/// Records of a listing, one after the other. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Records<'a, T> {
    bytes: &'a [u8],
    at: usize,
    parse: fn(&'a [u8]) -> Parsed<T>,
}

/// A record and its length, or what is wrong with it.
type Parsed<T> = Result<(T, usize), &'static str>;

impl FileAttributes {
    /// Flag: nothing in the file's export can be changed.
    pub const READ_ONLY: u32 = 1;
    /// Flag: changed so short a time ago that a further change might leave the version as it is. Content that is
    /// kept under this version must be asked for again.
    pub const RECENT: u32 = 1 << 1;

    /// Attributes of zeroes.
    pub fn zeroed() -> Self {
        Self::read_from_bytes(&[0; 128]).expect("128 bytes make attributes")
    }

    /// The kind of the file, from the mode.
    pub fn kind(&self) -> FileKind {
        match self.mode.get() & 0o170_000 {
            0o100_000 => FileKind::File,
            0o040_000 => FileKind::Directory,
            0o120_000 => FileKind::Symlink,
            _ => FileKind::Other,
        }
    }

    /// Whether a flag is set.
    pub fn has(&self, flag: u32) -> bool {
        self.flags.get() & flag != 0
    }
}

impl FileTime {
    /// A point in time.
    pub const fn new(seconds: i64, nanoseconds: u32) -> Self {
        Self { seconds: I64::new(seconds), nanoseconds: U32::new(nanoseconds), reserved: [0; 4] }
    }
}

impl FileKind {
    /// The kind of this number; unknown ones are [`Other`](Self::Other).
    pub const fn from_number(number: u8) -> Self {
        match number {
            1 => Self::File,
            2 => Self::Directory,
            3 => Self::Symlink,
            _ => Self::Other,
        }
    }
}

impl OpenedFile {
    /// An answer.
    pub const fn new(handle: FileHandle, created: bool, attributes: FileAttributes) -> Self {
        Self {
            id: U32::new(handle.id),
            created: U32::new(created as u32),
            generation: U64::new(handle.generation),
            attributes,
        }
    }

    /// The handle that further requests name the file by.
    pub const fn handle(&self) -> FileHandle {
        FileHandle { id: self.id.get(), generation: self.generation.get() }
    }
}

/// The fixed part of a record of a listing.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RecordHeader {
    pub(super) cursor: U64,
    /// The inode, or uid and gid.
    pub(super) number: U64,
    /// Bytes of the whole record.
    pub(super) len: U16,
    pub(super) name_len: U16,
    /// Kind of file.
    pub(super) kind: u8,
    /// Bit 0: attributes follow, or the export is read-only.
    pub(super) flags: u8,
    pub(super) reserved: [u8; 2],
}
const _: () = assert!(size_of::<RecordHeader>() == 24);

const RECORD_HEADER_LEN: usize = size_of::<RecordHeader>();
const RECORD_ALIGN: usize = 8;

impl<'a> DirEntry<'a> {
    /// Bytes of a record with a name of `name_len` bytes.
    pub const fn encoded_len(name_len: usize, attributes: bool) -> usize {
        let attributes_len = if attributes { size_of::<FileAttributes>() } else { 0 };
        (RECORD_HEADER_LEN + attributes_len + name_len).next_multiple_of(RECORD_ALIGN)
    }

    /// Appends the record to `bytes`.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let attributes = self.attributes.as_ref().map_or(&[][..], |attributes| attributes.as_bytes());
        let header = RecordHeader {
            cursor: self.cursor.into(),
            number: self.inode.into(),
            len: (Self::encoded_len(self.name.len(), self.attributes.is_some()) as u16).into(),
            name_len: (self.name.len() as u16).into(),
            kind: self.kind as u8,
            flags: self.attributes.is_some().into(),
            reserved: [0; 2],
        };
        encode_record(bytes, &header, attributes, self.name);
    }

    /// The entries of a listing.
    pub fn parse_all(bytes: &'a [u8]) -> Records<'a, Self> {
        Records { bytes, at: 0, parse: Self::parse }
    }

    fn parse(bytes: &'a [u8]) -> Parsed<Self> {
        let (header, rest, len) = split_record(bytes)?;
        let (attributes, rest) = split_attributes(&header, rest)?;
        let entry = Self {
            cursor: header.cursor.get(),
            inode: header.number.get(),
            kind: FileKind::from_number(header.kind),
            attributes,
            name: name_of(&header, rest)?,
        };
        Ok((entry, len))
    }
}

impl<'a> FoundFile<'a> {
    /// Bytes of a record with a path of `path_len` bytes.
    pub const fn encoded_len(path_len: usize, attributes: bool) -> usize {
        DirEntry::encoded_len(path_len, attributes)
    }

    /// Appends the record to `bytes`.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let attributes = self.attributes.as_ref().map_or(&[][..], |attributes| attributes.as_bytes());
        let header = RecordHeader {
            cursor: 0.into(),
            number: 0.into(),
            len: (Self::encoded_len(self.path.len(), self.attributes.is_some()) as u16).into(),
            name_len: (self.path.len() as u16).into(),
            kind: self.kind as u8,
            flags: u8::from(self.attributes.is_some()) | u8::from(self.is_mark) << 1,
            reserved: [0; 2],
        };
        encode_record(bytes, &header, attributes, self.path);
    }

    /// The records on a page of a search.
    pub fn parse_all(bytes: &'a [u8]) -> Records<'a, Self> {
        Records { bytes, at: 0, parse: Self::parse }
    }

    fn parse(bytes: &'a [u8]) -> Parsed<Self> {
        let (header, rest, len) = split_record(bytes)?;
        let (attributes, rest) = split_attributes(&header, rest)?;
        let path = path_of(&header, rest)?;
        let (kind, is_mark) = (FileKind::from_number(header.kind), header.flags & 2 != 0);
        Ok((Self { kind, is_mark, attributes, path }, len))
    }
}

impl<'a> Export<'a> {
    /// Bytes of a record with a name of `name_len` bytes.
    pub const fn encoded_len(name_len: usize) -> usize {
        DirEntry::encoded_len(name_len, false)
    }

    /// Appends the record to `bytes`.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let header = RecordHeader {
            cursor: self.cursor.into(),
            number: (u64::from(self.uid) | u64::from(self.gid) << 32).into(),
            len: (Self::encoded_len(self.name.len()) as u16).into(),
            name_len: (self.name.len() as u16).into(),
            kind: FileKind::Directory as u8,
            flags: self.read_only.into(),
            reserved: [0; 2],
        };
        encode_record(bytes, &header, &[], self.name);
    }

    /// The exports of a listing.
    pub fn parse_all(bytes: &'a [u8]) -> Records<'a, Self> {
        Records { bytes, at: 0, parse: Self::parse }
    }

    fn parse(bytes: &'a [u8]) -> Parsed<Self> {
        let (header, rest, len) = split_record(bytes)?;
        let number = header.number.get();
        let export = Self {
            cursor: header.cursor.get(),
            read_only: header.flags & 1 != 0,
            uid: number as u32,
            gid: (number >> 32) as u32,
            name: name_of(&header, rest)?,
        };
        Ok((export, len))
    }
}

impl<T> Iterator for Records<'_, T> {
    type Item = Result<T, MalformedAnswer>;

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.at;
        let rest = &self.bytes[at..];
        if rest.is_empty() {
            return None;
        }
        Some(match (self.parse)(rest) {
            Ok((record, len)) => {
                self.at += len;
                Ok(record)
            }
            Err(what) => {
                self.at = self.bytes.len();
                Err(MalformedAnswer { at, what })
            }
        })
    }
}

fn encode_record(bytes: &mut Vec<u8>, header: &RecordHeader, attributes: &[u8], name: &[u8]) {
    debug_assert!(name.len() <= PATH_LEN_MAX, "a name fits a path");
    let end = bytes.len() + usize::from(header.len.get());
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(attributes);
    bytes.extend_from_slice(name);
    bytes.resize(end, 0);
}

/// The header, the rest of the record, and the length of both.
fn split_record(bytes: &[u8]) -> Result<(RecordHeader, &[u8], usize), &'static str> {
    let (header, _) = RecordHeader::read_from_prefix(bytes).map_err(|_| "the last record is cut off")?;
    let len = usize::from(header.len.get());
    if len < RECORD_HEADER_LEN || !len.is_multiple_of(RECORD_ALIGN) {
        return Err("a record's length is wrong");
    }
    let record = bytes.get(..len).ok_or("the last record is cut off")?;
    Ok((header, &record[RECORD_HEADER_LEN..], len))
}

/// The attributes of a record, if it has some, and what follows.
fn split_attributes<'a>(
    header: &RecordHeader,
    rest: &'a [u8],
) -> Result<(Option<FileAttributes>, &'a [u8]), &'static str> {
    if header.flags & 1 == 0 {
        return Ok((None, rest));
    }
    let (attributes, rest) = FileAttributes::read_from_prefix(rest).map_err(|_| "no room for attributes")?;
    Ok((Some(attributes), rest))
}

fn name_of<'a>(header: &RecordHeader, rest: &'a [u8]) -> Result<&'a [u8], &'static str> {
    let name = text_of(header, rest)?;
    if name.is_empty() || name.contains(&0) || name.contains(&b'/') {
        return Err("a name is empty or has a NUL or / in it");
    }
    // A host that copies a directory makes files with these names.
    if matches!(name, b"." | b"..") {
        return Err("a name is . or .., which leads elsewhere");
    }
    Ok(name)
}

fn path_of<'a>(header: &RecordHeader, rest: &'a [u8]) -> Result<&'a [u8], &'static str> {
    let path = text_of(header, rest)?;
    if path.is_empty() || path.contains(&0) {
        return Err("a path is empty or has a NUL in it");
    }
    Ok(path)
}

fn text_of<'a>(header: &RecordHeader, rest: &'a [u8]) -> Result<&'a [u8], &'static str> {
    let text = rest.get(..usize::from(header.name_len.get())).ok_or("a name is longer than its record")?;
    if text.len() > PATH_LEN_MAX { Err("a name is longer than a path") } else { Ok(text) }
}
