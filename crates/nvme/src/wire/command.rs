//! Submission and completion queue entries.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The NVM command set's identifier.
pub const CSI_NVM: u8 = 0;

/// A submission queue entry (NVMe Base 4.1.1).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Sqe {
    opcode: u8,
    flags: u8,
    cid: U16,
    nsid: U32,
    cdw2: U32,
    cdw3: U32,
    mptr: U64,
    sgl_address: U64,
    sgl_len: U32,
    sgl_reserved: [u8; 3],
    sgl_kind: u8,
    cdw10_15: [U32; 6],
}
const _: () = assert!(size_of::<Sqe>() == 64);

/// A completion queue entry (NVMe Base 4.2.1).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Cqe {
    result: U64,
    sqhd: U16,
    sqid: U16,
    cid: U16,
    status: U16,
}
const _: () = assert!(size_of::<Cqe>() == 16);
