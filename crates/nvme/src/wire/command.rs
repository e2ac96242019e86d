//! Submission and completion queue entries (Base 4.1, 4.2).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::status::Status;

use super::bits::{field, with_field};

/// The NVM command set's identifier (Base 5.1.13.2.1, CSI).
pub const CSI_NVM: u8 = 0;

/// The Subsystem Local Memory command set's identifier.
pub const CSI_SLM: u8 = 3;

/// The Computational Programs command set's identifier.
pub const CSI_COMPUTE: u8 = 4;

/// The NSID that means all namespaces.
pub const NSID_ALL: u32 = 0xffff_ffff;

/// Admin commands (Base 3.1.3.4, figure "Opcodes for Admin Commands").
pub mod admin_opcode {
    #![allow(missing_docs, reason = "the names are the specification's")]
    pub const GET_LOG_PAGE: u8 = 0x02;
    pub const IDENTIFY: u8 = 0x06;
    pub const ABORT: u8 = 0x08;
    pub const SET_FEATURES: u8 = 0x09;
    pub const GET_FEATURES: u8 = 0x0a;
    pub const ASYNC_EVENT_REQUEST: u8 = 0x0c;
    pub const KEEP_ALIVE: u8 = 0x18;
    pub const FABRICS: u8 = 0x7f;
}

/// I/O commands of the NVM command set (NVM 3, figure "Opcodes for NVM Commands").
pub mod nvm_opcode {
    #![allow(missing_docs, reason = "the names are the specification's")]
    pub const FLUSH: u8 = 0x00;
    pub const WRITE: u8 = 0x01;
    pub const READ: u8 = 0x02;
    pub const COMPARE: u8 = 0x05;
    pub const WRITE_ZEROES: u8 = 0x08;
    pub const DATASET_MANAGEMENT: u8 = 0x09;
    pub const VERIFY: u8 = 0x0c;
    pub const COPY: u8 = 0x19;
    /// Write Delta, a vendor's command of ours (docs/wire.md): dwords 10 to 12 as of Write, the data is a record.
    pub const WRITE_DELTA: u8 = 0x89;
}

/// Which way a command's data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// No data.
    None,
    /// From the host to the controller.
    ToController,
    /// From the controller to the host.
    ToHost,
    /// Both ways: no transport that this crate knows can carry it.
    Both,
}

/// Bits 1:0 of an opcode (Base 3.3.3.1, figure "Command Dword 0"). Fabrics commands have them in their FCTYPE.
pub const fn direction(opcode: u8) -> Direction {
    match opcode & 3 {
        0 => Direction::None,
        1 => Direction::ToController,
        2 => Direction::ToHost,
        _ => Direction::Both,
    }
}

/// A submission queue entry (Base 4.1.1). Dwords 10 to 15 belong to the command.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Sqe {
    opcode: u8,
    flags: u8,
    cid: U16,
    nsid: U32,
    cdw2: U32,
    cdw3: U32,
    mptr: U64,
    sgl: Sgl,
    cdw10: [U32; 6],
}
const _: () = assert!(size_of::<Sqe>() == 64);

/// PSDT 01b: the data pointer is an SGL, as it always is over fabrics (Base 3.3.3.1).
const FLAGS_SGL: u8 = 0x40;

impl Sqe {
    /// A command without data, PSDT set for an SGL.
    pub fn new(opcode: u8, nsid: u32) -> Self {
        let mut sqe = Self::read_from_bytes(&[0; 64]).expect("64 bytes make an entry");
        sqe.opcode = opcode;
        sqe.flags = FLAGS_SGL;
        sqe.nsid.set(nsid);
        sqe
    }

    /// Opcode.
    pub const fn opcode(&self) -> u8 {
        self.opcode
    }

    /// FUSE: part of a fused operation (bits 1:0 of the flags).
    pub const fn fuse(&self) -> u8 {
        self.flags & 3
    }

    /// PSDT: how the data pointer is to be read (bits 7:6 of the flags).
    pub const fn psdt(&self) -> u8 {
        self.flags >> 6
    }

    /// Sets the flags byte: for tests of what peers may send.
    #[must_use]
    pub const fn with_flags(mut self, flags: u8) -> Self {
        self.flags = flags;
        self
    }

    /// Command identifier.
    pub const fn cid(&self) -> u16 {
        self.cid.get()
    }

    /// Sets the command identifier.
    pub const fn set_cid(&mut self, cid: u16) {
        self.cid = U16::new(cid);
    }

    /// Sets the namespace identifier.
    #[must_use]
    pub fn with_nsid(mut self, nsid: u32) -> Self {
        self.nsid.set(nsid);
        self
    }

    /// Namespace identifier.
    pub const fn nsid(&self) -> u32 {
        self.nsid.get()
    }

    /// The data pointer, an SGL descriptor.
    pub const fn sgl(&self) -> Sgl {
        self.sgl
    }

    /// Sets the data pointer.
    pub const fn set_sgl(&mut self, sgl: Sgl) {
        self.sgl = sgl;
    }

    /// Command dword `n`: 2, 3, or 10 to 15.
    ///
    /// # Panics
    /// For any other number.
    pub const fn dword(&self, n: usize) -> u32 {
        match n {
            2 => self.cdw2.get(),
            3 => self.cdw3.get(),
            10..=15 => self.cdw10[n - 10].get(),
            _ => panic!("not a dword of a command"),
        }
    }

    /// Sets command dword `n`: 2, 3, or 10 to 15.
    ///
    /// # Panics
    /// For any other number.
    #[must_use]
    pub const fn with_dword(mut self, n: usize, value: u32) -> Self {
        match n {
            2 => self.cdw2 = U32::new(value),
            3 => self.cdw3 = U32::new(value),
            10..=15 => self.cdw10[n - 10] = U32::new(value),
            _ => panic!("not a dword of a command"),
        }
        self
    }

    /// Dword 4: the metadata pointer's low half, where no command of ours has metadata. Linux does not pass it on.
    pub const fn dword4(&self) -> u32 {
        self.mptr.get() as u32
    }

    /// Sets dword 4.
    #[must_use]
    pub const fn with_dword4(mut self, value: u32) -> Self {
        self.mptr = U64::new(value as u64);
        self
    }

    /// Dwords `n` (low half) and `n + 1`.
    pub const fn qword(&self, n: usize) -> u64 {
        self.dword(n) as u64 | (self.dword(n + 1) as u64) << 32
    }

    /// Sets dwords `n` (low half) and `n + 1`.
    #[must_use]
    pub const fn with_qword(self, n: usize, value: u64) -> Self {
        self.with_dword(n, value as u32).with_dword(n + 1, (value >> 32) as u32)
    }

    /// `width` bits of dword `n`, from bit `low` on.
    pub const fn bits(&self, n: usize, low: u32, width: u32) -> u32 {
        field(self.dword(n) as u64, low, width) as u32
    }

    /// Sets `width` bits of dword `n`, from bit `low` on.
    #[must_use]
    pub const fn with_bits(self, n: usize, low: u32, width: u32, value: u32) -> Self {
        let word = with_field(self.dword(n) as u64, low, width, value as u64);
        self.with_dword(n, word as u32)
    }
}

impl std::fmt::Debug for Sqe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sqe {{ opcode {:02X}h, flags {:02X}h, cid {:#06x}", self.opcode, self.flags, self.cid.get())?;
        write!(f, ", nsid {:#x}, {:?}, dwords", self.nsid.get(), self.sgl)?;
        for n in [2, 3, 10, 11, 12, 13, 14, 15] {
            write!(f, " {n}: {:#x}", self.dword(n))?;
        }
        f.write_str(" }")
    }
}

/// An SGL descriptor (Base 4.3.2).
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Sgl {
    address: U64,
    len: U32,
    reserved: [u8; 3],
    identifier: u8,
}
const _: () = assert!(size_of::<Sgl>() == 16);

/// The descriptors that NVMe/TCP uses, and the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SglKind {
    /// Data Block with an offset into the capsule (type 0h, subtype 1h).
    InCapsule,
    /// Transport Data Block (type 5h, subtype Ah): the transport knows where the data is.
    Transport,
    /// Any other identifier byte.
    Other(u8),
}

impl Sgl {
    /// Data of `len` bytes at the start of the capsule's data.
    pub const fn in_capsule(len: u32) -> Self {
        Self::raw(0, len, 0x01)
    }

    /// Data of `len` bytes that the transport moves.
    pub const fn transport(len: u32) -> Self {
        Self::raw(0, len, 0x5a)
    }

    /// Any descriptor: for tests of what peers may send.
    pub const fn raw(address: u64, len: u32, identifier: u8) -> Self {
        Self { address: U64::new(address), len: U32::new(len), reserved: [0; 3], identifier }
    }

    /// Type and subtype.
    pub const fn kind(&self) -> SglKind {
        match self.identifier {
            0x01 => SglKind::InCapsule,
            0x5a => SglKind::Transport,
            other => SglKind::Other(other),
        }
    }

    /// Address, or offset into the capsule.
    pub const fn address(&self) -> u64 {
        self.address.get()
    }

    /// Length in bytes.
    pub const fn len(&self) -> u32 {
        self.len.get()
    }

    /// Whether it describes no bytes.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl std::fmt::Debug for Sgl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sgl {:02X}h {:#x}+{}", self.identifier, self.address.get(), self.len.get())
    }
}

/// A completion queue entry (Base 4.2.1). Over fabrics there is no phase tag.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Cqe {
    result: U64,
    sqhd: U16,
    sqid: U16,
    cid: U16,
    status: U16,
}
const _: () = assert!(size_of::<Cqe>() == 16);

impl Cqe {
    /// An entry. `result` is dwords 0 (low half) and 1.
    pub const fn new(cid: u16, status: Status, result: u64) -> Self {
        Self {
            result: U64::new(result),
            sqhd: U16::ZERO,
            sqid: U16::ZERO,
            cid: U16::new(cid),
            status: U16::new(status.bits() << 1),
        }
    }

    /// Sets the submission queue head.
    #[must_use]
    pub const fn with_sqhd(mut self, head: u16) -> Self {
        self.sqhd = U16::new(head);
        self
    }

    /// Dwords 0 (low half) and 1.
    pub const fn result(&self) -> u64 {
        self.result.get()
    }

    /// Submission queue head; meaningless if SQ flow control is off.
    pub const fn sqhd(&self) -> u16 {
        self.sqhd.get()
    }

    /// Command identifier.
    pub const fn cid(&self) -> u16 {
        self.cid.get()
    }

    /// Status.
    pub const fn status(&self) -> Status {
        Status::from_bits(self.status.get() >> 1)
    }
}

impl std::fmt::Debug for Cqe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cqe {{ cid {:#06x}, {:?}", self.cid(), self.status())?;
        write!(f, ", result {:#x}, sqhd {} }}", self.result(), self.sqhd())
    }
}
