//! PDU headers of NVMe/TCP (TCP 3.6.2).

use std::fmt;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Flags of the common header.
pub mod pdu_flags {
    /// A header digest follows the header.
    pub const HDGST: u8 = 1 << 0;
    /// A data digest follows the data.
    pub const DDGST: u8 = 1 << 1;
    /// H2CData, C2HData: the last of its transfer.
    pub const LAST: u8 = 1 << 2;
    /// C2HData: the command succeeded and no CapsuleResp follows.
    pub const SUCCESS: u8 = 1 << 3;
}

/// PDU types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PduKind {
    /// Initialize Connection Request.
    IcReq = 0x00,
    /// Initialize Connection Response.
    IcResp = 0x01,
    /// The host terminates the connection.
    H2cTermReq = 0x02,
    /// The controller terminates the connection.
    C2hTermReq = 0x03,
    /// Command capsule.
    CapsuleCmd = 0x04,
    /// Response capsule.
    CapsuleResp = 0x05,
    /// Data from host to controller.
    H2cData = 0x06,
    /// Data from controller to host.
    C2hData = 0x07,
    /// Ready to transfer.
    R2t = 0x09,
}

impl PduKind {
    /// The type with this number.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0x00 => Self::IcReq,
            0x01 => Self::IcResp,
            0x02 => Self::H2cTermReq,
            0x03 => Self::C2hTermReq,
            0x04 => Self::CapsuleCmd,
            0x05 => Self::CapsuleResp,
            0x06 => Self::H2cData,
            0x07 => Self::C2hData,
            0x09 => Self::R2t,
            _ => return None,
        })
    }

    /// HLEN: bytes of the header, without digest.
    pub const fn header_len(self) -> u8 {
        match self {
            Self::IcReq | Self::IcResp => 128,
            Self::CapsuleCmd => 72,
            _ => 24,
        }
    }
}

/// The first 8 bytes of every PDU (TCP 3.6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CommonHeader {
    /// PDU type, see [`PduKind`].
    pub kind: u8,
    /// See [`pdu_flags`].
    pub flags: u8,
    /// HLEN: bytes of the header, without digest.
    pub header_len: u8,
    /// PDO: where data starts, in bytes from the start of the PDU; 0 if there is none.
    pub data_offset: u8,
    /// PLEN: bytes of the whole PDU.
    pub len: U32,
}
const _: () = assert!(size_of::<CommonHeader>() == 8);

impl CommonHeader {
    /// A header without data, digests or flags.
    pub const fn new(kind: PduKind) -> Self {
        let header_len = kind.header_len();
        Self { kind: kind as u8, flags: 0, header_len, data_offset: 0, len: U32::new(header_len as u32) }
    }
}

/// Initialize Connection Request (TCP 3.6.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IcReq {
    /// Common header.
    pub common: CommonHeader,
    /// PDU format version: 0.
    pub version: U16,
    /// HPDA: the host wants data aligned to this many dwords, 0's based, at most 31.
    pub alignment: u8,
    digests: u8,
    /// The most R2Ts outstanding for one command, 0's based.
    pub r2t_max: U32,
    reserved: [u8; 112],
}
const _: () = assert!(size_of::<IcReq>() == 128);

/// Initialize Connection Response (TCP 3.6.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IcResp {
    /// Common header.
    pub common: CommonHeader,
    /// PDU format version: 0.
    pub version: U16,
    /// CPDA: the controller wants data aligned to this many dwords, 0's based, at most 31.
    pub alignment: u8,
    digests: u8,
    /// The most data bytes of one H2CData PDU; a multiple of 4, at least 4,096.
    pub h2c_data_max: U32,
    reserved: [u8; 112],
}
const _: () = assert!(size_of::<IcResp>() == 128);

const HEADER_DIGEST: u8 = 1;
const DATA_DIGEST: u8 = 2;

/// DGST of ICReq and ICResp.
const fn digests(header: bool, data: bool) -> u8 {
    let header = if header { HEADER_DIGEST } else { 0 };
    let data = if data { DATA_DIGEST } else { 0 };
    header | data
}

impl IcReq {
    /// A request for the given digests, without wishes for alignment and with one R2T per command.
    pub const fn new(header_digest: bool, data_digest: bool) -> Self {
        Self {
            common: CommonHeader::new(PduKind::IcReq),
            version: U16::ZERO,
            alignment: 0,
            digests: digests(header_digest, data_digest),
            r2t_max: U32::ZERO,
            reserved: [0; 112],
        }
    }

    /// The host wants header digests.
    pub const fn header_digest(&self) -> bool {
        self.digests & HEADER_DIGEST != 0
    }

    /// The host wants data digests.
    pub const fn data_digest(&self) -> bool {
        self.digests & DATA_DIGEST != 0
    }
}

impl IcResp {
    /// A response that grants the given digests and wishes no alignment.
    pub const fn new(header_digest: bool, data_digest: bool, h2c_data_max: u32) -> Self {
        Self {
            common: CommonHeader::new(PduKind::IcResp),
            version: U16::ZERO,
            alignment: 0,
            digests: digests(header_digest, data_digest),
            h2c_data_max: U32::new(h2c_data_max),
            reserved: [0; 112],
        }
    }

    /// Header digests are in use from here on.
    pub const fn header_digest(&self) -> bool {
        self.digests & HEADER_DIGEST != 0
    }

    /// Data digests are in use from here on.
    pub const fn data_digest(&self) -> bool {
        self.digests & DATA_DIGEST != 0
    }
}

/// Host or Controller to the other: terminate (TCP 3.6.2.4, 3.6.2.5). The header of the offending PDU follows as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TermReq {
    /// Common header.
    pub common: CommonHeader,
    /// Fatal Error Status.
    pub fes: U16,
    /// Fatal Error Information, at byte 10 and so not aligned.
    pub fei: U32,
    reserved: [u8; 10],
}
const _: () = assert!(size_of::<TermReq>() == 24);

/// The most bytes of an offending header that a TermReq carries.
pub const TERM_REQ_DATA_MAX: usize = 128;

impl TermReq {
    /// A request of the given direction for `error`, with `data_len` bytes of the offending header behind it.
    pub fn new(kind: PduKind, error: FatalError, data_len: usize) -> Self {
        debug_assert!(data_len <= TERM_REQ_DATA_MAX, "at most {TERM_REQ_DATA_MAX} bytes are shown");
        let mut common = CommonHeader::new(kind);
        common.len.set(common.header_len as u32 + data_len as u32);
        let (fes, fei) = error.to_fields();
        Self { common, fes: U16::new(fes), fei: U32::new(fei), reserved: [0; 10] }
    }

    /// The error that the peer reports.
    pub fn error(&self) -> FatalError {
        FatalError::from_fields(self.fes.get(), self.fei.get())
    }
}

/// Why a connection is terminated: FES and FEI of a TermReq (TCP 3.6.2.4, figure "Fatal Error Status").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FatalError {
    /// FES 01h: a field of a PDU header is invalid; FEI is its byte offset in the PDU.
    InvalidHeaderField(u32),
    /// FES 02h: a PDU came at the wrong time.
    PduSequence,
    /// FES 03h: a header digest is wrong.
    HeaderDigest,
    /// FES 04h: data lies outside the transfer.
    DataTransferOutOfRange,
    /// FES 05h: more data in a PDU, or more R2Ts, than was agreed.
    LimitExceeded,
    /// FES 06h: a parameter is not supported; FEI is its byte offset in the PDU.
    UnsupportedParameter(u32),
    /// A reserved FES.
    Other(u16),
}

impl FatalError {
    /// FES and FEI.
    pub const fn to_fields(self) -> (u16, u32) {
        match self {
            Self::InvalidHeaderField(offset) => (1, offset),
            Self::PduSequence => (2, 0),
            Self::HeaderDigest => (3, 0),
            Self::DataTransferOutOfRange => (4, 0),
            Self::LimitExceeded => (5, 0),
            Self::UnsupportedParameter(offset) => (6, offset),
            Self::Other(fes) => (fes, 0),
        }
    }

    /// Reads FES and FEI.
    pub const fn from_fields(fes: u16, fei: u32) -> Self {
        match fes {
            1 => Self::InvalidHeaderField(fei),
            2 => Self::PduSequence,
            3 => Self::HeaderDigest,
            4 => Self::DataTransferOutOfRange,
            5 => Self::LimitExceeded,
            6 => Self::UnsupportedParameter(fei),
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for FatalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidHeaderField(offset) => {
                write!(f, "Invalid PDU Header Field at byte {offset} (FES 01h)")
            }
            Self::PduSequence => f.write_str("PDU Sequence Error (FES 02h)"),
            Self::HeaderDigest => f.write_str("Header Digest Error (FES 03h)"),
            Self::DataTransferOutOfRange => f.write_str("Data Transfer Out of Range (FES 04h)"),
            Self::LimitExceeded => f.write_str("Data Transfer or R2T Limit Exceeded (FES 05h)"),
            Self::UnsupportedParameter(offset) => {
                write!(f, "Unsupported Parameter at byte {offset} (FES 06h)")
            }
            Self::Other(fes) => write!(f, "reserved Fatal Error Status {fes:02X}h"),
        }
    }
}

/// Data from the host (TCP 3.6.2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct H2cData {
    /// Common header.
    pub common: CommonHeader,
    /// CCCID: the command's identifier.
    pub cccid: U16,
    /// TTAG: from the R2T that asked for it.
    pub ttag: U16,
    /// DATAO: where in the command's data these bytes belong.
    pub offset: U32,
    /// DATAL: how many they are.
    pub len: U32,
    reserved: [u8; 4],
}
const _: () = assert!(size_of::<H2cData>() == 24);

impl H2cData {
    /// A header; digests and lengths of the common header are filled in when it is sent.
    pub const fn new(cccid: u16, ttag: u16, offset: u32, len: u32) -> Self {
        Self {
            common: CommonHeader::new(PduKind::H2cData),
            cccid: U16::new(cccid),
            ttag: U16::new(ttag),
            offset: U32::new(offset),
            len: U32::new(len),
            reserved: [0; 4],
        }
    }
}

/// Data from the controller (TCP 3.6.2.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct C2hData {
    /// Common header.
    pub common: CommonHeader,
    /// CCCID: the command's identifier.
    pub cccid: U16,
    reserved10: [u8; 2],
    /// DATAO: where in the command's data these bytes belong.
    pub offset: U32,
    /// DATAL: how many they are.
    pub len: U32,
    reserved20: [u8; 4],
}
const _: () = assert!(size_of::<C2hData>() == 24);

impl C2hData {
    /// A header; digests and lengths of the common header are filled in when it is sent.
    pub const fn new(cccid: u16, offset: u32, len: u32) -> Self {
        Self {
            common: CommonHeader::new(PduKind::C2hData),
            cccid: U16::new(cccid),
            reserved10: [0; 2],
            offset: U32::new(offset),
            len: U32::new(len),
            reserved20: [0; 4],
        }
    }
}

/// Ready to Transfer (TCP 3.6.2.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct R2t {
    /// Common header.
    pub common: CommonHeader,
    /// CCCID: the command's identifier.
    pub cccid: U16,
    /// TTAG: to be repeated in the data.
    pub ttag: U16,
    /// R2TO: where in the command's data the wanted bytes start.
    pub offset: U32,
    /// R2TL: how many are wanted.
    pub len: U32,
    reserved: [u8; 4],
}
const _: () = assert!(size_of::<R2t>() == 24);

impl R2t {
    /// A request for data.
    pub const fn new(cccid: u16, ttag: u16, offset: u32, len: u32) -> Self {
        Self {
            common: CommonHeader::new(PduKind::R2t),
            cccid: U16::new(cccid),
            ttag: U16::new(ttag),
            offset: U32::new(offset),
            len: U32::new(len),
            reserved: [0; 4],
        }
    }
}
