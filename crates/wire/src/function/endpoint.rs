//! Sources and sinks of a request.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::field::FieldError;

/// Where bytes come from or go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The kind of the endpoint.
    pub kind: EndpointKind,
    /// First byte.
    pub offset: u64,
    /// Length in bytes; [`Endpoint::TO_END`]: to the end.
    pub len: u64,
    /// Generation of the file or layout that is meant; 0: any.
    pub generation: u64,
    /// For a sink: the output is on stable media before the call ends (flag bit 0).
    pub durable: bool,
    /// For a sink that is a file: where the output goes.
    pub placement: Placement,
}

/// Where in a file the output goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Over what is there, from the entry's offset on.
    #[default]
    InPlace,
    /// At the end (flag bit 1).
    Append,
    /// As a new file that takes the old one's place when it is complete (flag bit 2).
    Replace,
}

/// The kind of an [`Endpoint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointKind {
    /// Bytes of the volume with this NSID.
    Volume(u32),
    /// An open file of an export, by its handle.
    File(u32),
    /// A range of the memory namespace with this NSID.
    Memory(u32),
    /// The file that a layout describes.
    Layout(u32),
    /// The data that the host sends after the request, with the same tag.
    HostStream,
    /// Files of exports, whole and one after another: their paths, which begin with an export's name, are what the host
    /// sends after the request. Each is 16 bits of length and so many bytes, and each file is a source of its own.
    Paths,
}

impl EndpointKind {
    /// Whether the host sends something for it after the request.
    pub const fn takes_input(self) -> bool {
        matches!(self, Self::HostStream | Self::Paths)
    }
}

impl Endpoint {
    /// A length that means all there is.
    pub const TO_END: u64 = u64::MAX;

    /// So many bytes of it.
    pub const fn new(kind: EndpointKind, offset: u64, len: u64) -> Self {
        Self { kind, offset, len, generation: 0, durable: false, placement: Placement::InPlace }
    }

    /// All of it.
    pub const fn whole(kind: EndpointKind) -> Self {
        Self::new(kind, 0, Self::TO_END)
    }
}

impl Endpoint {
    /// Bytes of an entry.
    pub const ENTRY_LEN: usize = 32;

    /// As an entry.
    pub fn to_bytes(&self) -> [u8; Self::ENTRY_LEN] {
        zerocopy::transmute!(EndpointEntry::new(self))
    }

    /// Parses an entry at byte `base` of the data: of a sink, or of a source.
    ///
    /// # Errors
    /// The first field that cannot be as it is.
    pub fn from_bytes(bytes: [u8; Self::ENTRY_LEN], base: usize, sink: bool) -> Result<Self, FieldError> {
        let entry: EndpointEntry = zerocopy::transmute!(bytes);
        entry.parse(base, sink)
    }
}

/// An endpoint as it is sent.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct EndpointEntry {
    pub(super) kind: u8,
    pub(super) flags: u8,
    reserved2: U16,
    pub(super) id: U32,
    pub(super) offset: U64,
    pub(super) len: U64,
    pub(super) generation: U64,
}
const _: () = assert!(size_of::<EndpointEntry>() == 32);

/// Flags of an entry.
const FLAG_DURABLE: u8 = 1 << 0;
const FLAG_APPEND: u8 = 1 << 1;
const FLAG_REPLACE: u8 = 1 << 2;

impl EndpointEntry {
    pub(super) fn new(endpoint: &Endpoint) -> Self {
        let (kind, id) = match endpoint.kind {
            EndpointKind::Volume(id) => (1, id),
            EndpointKind::File(id) => (2, id),
            EndpointKind::Memory(id) => (3, id),
            EndpointKind::Layout(id) => (4, id),
            EndpointKind::HostStream => (5, 0),
            EndpointKind::Paths => (6, 0),
        };
        Self {
            kind,
            flags: (if endpoint.durable { FLAG_DURABLE } else { 0 })
                | match endpoint.placement {
                    Placement::InPlace => 0,
                    Placement::Append => FLAG_APPEND,
                    Placement::Replace => FLAG_REPLACE,
                },
            reserved2: U16::ZERO,
            id: U32::new(id),
            offset: U64::new(endpoint.offset),
            len: U64::new(endpoint.len),
            generation: U64::new(endpoint.generation),
        }
    }

    pub(super) fn parse(&self, base: usize, sink: bool) -> Result<Endpoint, FieldError> {
        let id = self.id.get();
        let kind = match self.kind {
            1 => EndpointKind::Volume(id),
            2 => EndpointKind::File(id),
            3 => EndpointKind::Memory(id),
            4 => EndpointKind::Layout(id),
            5 if !sink => EndpointKind::HostStream,
            6 if !sink => EndpointKind::Paths,
            _ => return Err(FieldError::new(base, "this type of source or sink is not known")),
        };
        let known = match (sink, kind) {
            (false, _) => 0,
            (true, EndpointKind::File(_)) => FLAG_DURABLE | FLAG_APPEND | FLAG_REPLACE,
            (true, _) => FLAG_DURABLE,
        };
        if self.flags & !known != 0 {
            return Err(FieldError::new(base + 1, "this flag is not known here"));
        }
        let placement = match self.flags & (FLAG_APPEND | FLAG_REPLACE) {
            0 => Placement::InPlace,
            FLAG_APPEND => Placement::Append,
            FLAG_REPLACE => Placement::Replace,
            _ => return Err(FieldError::new(base + 1, "the output is appended or replaces the file, not both")),
        };
        if self.reserved2.get() != 0 {
            return Err(FieldError::new(base + 2, "reserved bytes are zero"));
        }
        let (offset, len) = (self.offset.get(), self.len.get());
        if len != Endpoint::TO_END && offset.checked_add(len).is_none() {
            return Err(FieldError::new(base + 16, "the range ends behind 2^64"));
        }
        if kind == EndpointKind::Paths && (offset != 0 || len != Endpoint::TO_END) {
            return Err(FieldError::new(base + 8, "files by their paths are read whole: offset 0, to the end"));
        }
        let durable = self.flags & FLAG_DURABLE != 0;
        Ok(Endpoint { kind, offset, len, generation: self.generation.get(), durable, placement })
    }
}
