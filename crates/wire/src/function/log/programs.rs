//! Pages of programs: which there are, and the object of one.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{PAGE_VERSION, fill, header, text};
use crate::function::field::FieldError;

/// LID C3h: the header; an entry per program follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ProgramDirectory {
    version: U16,
    header_len: U16,
    entries: U32,
    /// Changes with every load and unload.
    pub generation: U64,
    reserved16: [u8; 48],
}
const _: () = assert!(size_of::<ProgramDirectory>() == 64);

/// Where a program is in its life: bits of [`ProgramEntry::state`].
pub mod program_state {
    /// It came with the target and cannot be unloaded.
    pub const DEVICE_DEFINED: u8 = 1 << 0;
    /// It is active.
    pub const ACTIVE: u8 = 1 << 1;
    /// The asking host loaded it.
    pub const OWN: u8 = 1 << 2;
}

/// A program that is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ProgramEntry {
    /// Program index.
    pub pind: U16,
    /// Bits of [`program_state`].
    pub state: u8,
    /// Program type (PTYPE).
    pub program_type: u8,
    /// Bytes of its object.
    pub len: U32,
    /// The first 64 bits of its [`sha256`](Self::sha256), the first byte highest.
    pub program_id: U64,
    /// Identifier that its loader gave it (PID), or 0.
    pub puid: U64,
    /// Functions in it.
    pub functions: U16,
    reserved26: [u8; 6],
    name: [u8; 64],
    /// SHA-256 of its object.
    pub sha256: [u8; 32],
}
const _: () = assert!(size_of::<ProgramEntry>() == 128);

impl ProgramEntry {
    /// An entry of zeroes, except the index and the name: that of its first function.
    pub fn new(pind: u16, name: &str) -> Self {
        let mut entry = Self::new_zeroed();
        entry.pind.set(pind);
        fill(&mut entry.name, name);
        entry
    }

    /// Name of its first function.
    pub fn name(&self) -> String {
        text(&self.name)
    }
}

impl ProgramDirectory {
    /// The whole page.
    pub fn encode(generation: u64, entries: &[ProgramEntry]) -> Vec<u8> {
        let mut page = Self::new_zeroed();
        page.version.set(PAGE_VERSION);
        page.header_len.set(size_of::<Self>() as u16);
        page.entries.set(entries.len() as u32);
        page.generation.set(generation);
        let mut bytes = page.as_bytes().to_vec();
        bytes.extend_from_slice(entries.as_bytes());
        bytes
    }

    /// Bytes of the whole page, which begins with these.
    pub fn len(&self) -> usize {
        usize::from(self.header_len.get()) + self.entries.get() as usize * size_of::<ProgramEntry>()
    }

    /// Whether there are no programs.
    pub fn is_empty(&self) -> bool {
        self.entries.get() == 0
    }

    /// Parses a page.
    ///
    /// # Errors
    /// The first field that cannot be as it is.
    pub fn decode(bytes: &[u8]) -> Result<(Self, Vec<ProgramEntry>), FieldError> {
        let (page, rest) = header::<Self>(bytes, |page| (page.version, page.header_len))?;
        let entries = <[ProgramEntry]>::ref_from_prefix_with_elems(rest, page.entries.get() as usize);
        let (entries, _) = entries.map_err(|_| FieldError::new(4, "the entries go beyond the end"))?;
        Ok((*page, entries.to_vec()))
    }
}

/// LID C4h: the header; the program's object follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ProgramImageHeader {
    version: U16,
    header_len: U16,
    /// Bytes of the object.
    pub object_len: U32,
    /// The first 64 bits of its [`sha256`](Self::sha256), the first byte highest.
    pub program_id: U64,
    /// SHA-256 of the object.
    pub sha256: [u8; 32],
    reserved48: [u8; 16],
}
const _: () = assert!(size_of::<ProgramImageHeader>() == 64);

impl ProgramImageHeader {
    /// A header.
    pub fn new(object_len: u32, program_id: u64, sha256: [u8; 32]) -> Self {
        let mut header = Self::new_zeroed();
        header.version.set(PAGE_VERSION);
        header.header_len.set(size_of::<Self>() as u16);
        header.object_len.set(object_len);
        header.program_id.set(program_id);
        header.sha256 = sha256;
        header
    }

    /// Bytes of the whole page, which begins with these.
    pub fn len(&self) -> usize {
        usize::from(self.header_len.get()) + self.object_len.get() as usize
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.object_len.get() == 0
    }

    /// Parses a page: the header, and the object's bytes as far as they are there.
    ///
    /// # Errors
    /// The first field that cannot be as it is.
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), FieldError> {
        let (header, rest) = header::<Self>(bytes, |page| (page.version, page.header_len))?;
        Ok((*header, &rest[..rest.len().min(header.object_len.get() as usize)]))
    }
}
