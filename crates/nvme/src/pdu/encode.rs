//! PDUs to bytes.

use zerocopy::{Immutable, IntoBytes};

use crate::buffer::BufferSlice;
use crate::digest::{Crc32c, crc32c};
use crate::transmit::{After, Transmit, ZEROES};
use crate::wire::{CommonHeader, Cqe, FatalError, PduKind, Sqe, TERM_REQ_DATA_MAX, TermReq, pdu_flags};

use super::{DIGEST_LEN, Digests};

/// Writes PDUs as they were negotiated.
#[derive(Clone, Copy, Debug)]
pub struct Encoder {
    digests: Digests,
    /// Data starts at a multiple of this many bytes.
    alignment: usize,
}

/// The data of a PDU.
#[derive(Debug)]
pub enum Payload<'a> {
    /// None.
    None,
    /// Bytes, which are copied.
    Bytes(&'a [u8]),
    /// Bytes, which are copied, and so many zeroes behind them.
    Padded(&'a [u8], usize),
    /// A range of a buffer of the embedder, and its CRC32C if data digests are in use.
    Buffer {
        /// The range.
        slice: BufferSlice,
        /// Its CRC32C, or anything if digests are not in use.
        digest: u32,
        #[doc(hidden)]
        after: BufferAfter,
    },
}

/// The fate of a buffer after it was sent.
#[derive(Clone, Copy, Debug)]
pub struct BufferAfter(pub(crate) After);

impl BufferAfter {
    /// It is released.
    pub const RELEASE: Self = Self(After::Release);
}

impl Payload<'_> {
    fn len(&self) -> usize {
        match self {
            Payload::None => 0,
            Payload::Bytes(bytes) => bytes.len(),
            Payload::Padded(bytes, zeroes) => bytes.len() + zeroes,
            Payload::Buffer { slice, .. } => slice.len as usize,
        }
    }
}

/// A command capsule's header.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct CapsuleCmd {
    common: CommonHeader,
    sqe: Sqe,
}

/// A response capsule's header.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct CapsuleResp {
    common: CommonHeader,
    cqe: Cqe,
}

const HEADER_MAX: usize = 128;

impl Encoder {
    /// An encoder for a peer that wants data aligned to `alignment_dwords` dwords, 0's based (HPDA, CPDA).
    pub fn new(digests: Digests, alignment_dwords: u8) -> Self {
        Self { digests, alignment: (alignment_dwords as usize + 1) * 4 }
    }

    /// An encoder for PDUs that come before the negotiation.
    pub fn plain() -> Self {
        Self::new(Digests::default(), 0)
    }

    /// Whether data digests are in use.
    pub fn data_digest(&self) -> bool {
        self.digests.data
    }

    /// A command capsule.
    pub fn command(&self, out: &mut Transmit, sqe: Sqe, data: Payload<'_>) {
        self.put(out, &CapsuleCmd { common: CommonHeader::new(PduKind::CapsuleCmd), sqe }, 0, data);
    }

    /// A response capsule.
    pub fn response(&self, out: &mut Transmit, cqe: Cqe) {
        self.put(out, &CapsuleResp { common: CommonHeader::new(PduKind::CapsuleResp), cqe }, 0, Payload::None);
    }

    /// ICReq or ICResp: never with digests.
    pub fn initialize(&self, out: &mut Transmit, pdu: &(impl IntoBytes + Immutable)) {
        out.push_bytes(pdu.as_bytes());
    }

    /// A TermReq of the given direction, with a copy of the offending header. Never with digests.
    pub fn terminate(&self, out: &mut Transmit, kind: PduKind, error: FatalError, header: &[u8]) {
        let header = &header[..header.len().min(TERM_REQ_DATA_MAX)];
        out.push_bytes(TermReq::new(kind, error, header.len()).as_bytes());
        out.push_bytes(header);
    }

    /// Any other PDU: `header` begins with its common header, `flags` are added to those of the digests.
    pub fn put(&self, out: &mut Transmit, header: &(impl IntoBytes + Immutable), flags: u8, data: Payload<'_>) {
        let source = header.as_bytes();
        let hlen = source.len();
        let mut bytes = [0; HEADER_MAX + DIGEST_LEN];
        bytes[..hlen].copy_from_slice(source);

        let digest_len = if self.digests.header { DIGEST_LEN } else { 0 };
        let header_len = hlen + digest_len;
        let data_len = data.len();
        let data_digest = self.digests.data && data_len > 0;
        let (pdo, len) = if data_len == 0 {
            (0, header_len)
        } else {
            let pdo = header_len.next_multiple_of(self.alignment);
            (pdo, pdo + data_len + if data_digest { DIGEST_LEN } else { 0 })
        };
        bytes[1] = flags
            | if self.digests.header { pdu_flags::HDGST } else { 0 }
            | if data_digest { pdu_flags::DDGST } else { 0 };
        bytes[3] = pdo as u8;
        bytes[4..8].copy_from_slice(&(len as u32).to_le_bytes());
        if self.digests.header {
            let digest = crc32c(&bytes[..hlen]).to_le_bytes();
            bytes[hlen..header_len].copy_from_slice(&digest);
        }
        out.push_bytes(&bytes[..header_len]);
        if data_len == 0 {
            return;
        }
        if pdo > header_len {
            out.push_zeros(pdo - header_len);
        }
        let digest = match data {
            Payload::None => 0,
            Payload::Bytes(bytes) => {
                out.push_bytes(bytes);
                if data_digest { crc32c(bytes) } else { 0 }
            }
            Payload::Padded(bytes, zeroes) => {
                out.push_bytes(bytes);
                out.push_zeros(zeroes);
                if data_digest { padded_crc32c(bytes, zeroes) } else { 0 }
            }
            Payload::Buffer { slice, digest, after } => {
                out.push_buffer(slice, after.0);
                digest
            }
        };
        if data_digest {
            out.push_bytes(&digest.to_le_bytes());
        }
    }
}

fn padded_crc32c(bytes: &[u8], zeroes: usize) -> u32 {
    let mut crc = Crc32c::new();
    crc.update(bytes);
    let mut left = zeroes;
    while left > 0 {
        let len = left.min(ZEROES.len());
        crc.update(&ZEROES[..len]);
        left -= len;
    }
    crc.finish()
}
