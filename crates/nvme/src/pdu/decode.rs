//! Bytes to PDUs.

use zerocopy::FromBytes;

use crate::digest::{Crc32c, crc32c};
use crate::wire::{
    C2hData, CommonHeader, Cqe, FatalError, H2cData, IcReq, IcResp, PduKind, R2t, Sqe, TERM_REQ_DATA_MAX, TermReq,
    pdu_flags,
};

use super::{DIGEST_LEN, Digests};

/// Which side reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A controller reads what a host sends.
    Controller,
    /// A host reads what a controller sends.
    Host,
}

/// Takes a stream apart.
#[derive(Debug)]
pub struct Decoder {
    role: Role,
    /// `None` until ICReq and ICResp were exchanged.
    negotiated: Option<Digests>,
    /// The most bytes of data in a command capsule.
    capsule_data_max: u32,
    /// The most bytes of data in a data PDU.
    data_max: u32,
    stage: Stage,
    /// The digest of the data so far, if data digests are in use.
    digest: Option<Crc32c>,
    /// The header that is being gathered, and of the last PDU that was found wrong.
    header: [u8; HEADER_MAX],
    have: usize,
}

/// ICReq is the longest header; command capsules are the longest that have a digest.
const HEADER_MAX: usize = 128;

#[derive(Debug)]
enum Stage {
    /// The first eight bytes.
    Common,
    /// The rest of the header, and its digest.
    Header(Layout),
    /// Padding in front of data.
    Padding { left: usize, layout: Layout },
    /// Data.
    Data { left: u32 },
    /// The data's digest.
    DataDigest { want: u32, got: [u8; DIGEST_LEN], have: usize },
    /// After a TermReq or an error: nothing more is read.
    Ended,
}

/// The content of the common header of a PDU, checked.
#[derive(Clone, Copy, Debug)]
struct Layout {
    kind: PduKind,
    flags: u8,
    /// Header and its digest.
    header_len: usize,
    padding_len: usize,
    data_len: u32,
    data_digest: bool,
}

/// The next part of the stream.
#[derive(Debug)]
pub enum Step<'a> {
    /// The input is used up.
    Starved,
    /// A header that is well-formed. If its data length is not 0, data and [`Step::End`] follow.
    Header(Header),
    /// The next bytes of its data.
    Data(&'a [u8]),
    /// The end of its data.
    End {
        /// Whether the data's digest is right; true if digests are not in use.
        intact: bool,
    },
}

/// A PDU's header.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "the fields are those of the PDU headers in `wire`")]
pub enum Header {
    IcReq(IcReq),
    IcResp(IcResp),
    /// The peer ends the connection.
    TermReq(FatalError),
    Command {
        sqe: Sqe,
        data_len: u32,
    },
    Response(Cqe),
    H2cData {
        cccid: u16,
        ttag: u16,
        offset: u32,
        len: u32,
        last: bool,
    },
    C2hData {
        cccid: u16,
        offset: u32,
        len: u32,
        last: bool,
        success: bool,
    },
    R2t {
        cccid: u16,
        ttag: u16,
        offset: u32,
        len: u32,
    },
}

/// Byte offsets of header fields, for Fatal Error Information.
mod at {
    pub(super) const KIND: u32 = 0;
    pub(super) const FLAGS: u32 = 1;
    pub(super) const HEADER_LEN: u32 = 2;
    pub(super) const DATA_OFFSET: u32 = 3;
    pub(super) const LEN: u32 = 4;
    pub(super) const DATAL: u32 = 16;
}

impl Decoder {
    /// A decoder of a new connection. A command capsule may carry `capsule_data_max` bytes of data, a data PDU `data_max`.
    pub fn new(role: Role, capsule_data_max: u32, data_max: u32) -> Self {
        Self {
            role,
            negotiated: None,
            capsule_data_max,
            data_max,
            stage: Stage::Common,
            digest: None,
            header: [0; HEADER_MAX],
            have: 0,
        }
    }

    /// ICReq and ICResp were exchanged.
    pub fn negotiated(&mut self, digests: Digests) {
        self.negotiated = Some(digests);
    }

    /// Bytes of data of the current PDU that are still to come.
    pub fn data_left(&self) -> u32 {
        match &self.stage {
            Stage::Data { left } => *left,
            Stage::Padding { layout, .. } => layout.data_len,
            _ => 0,
        }
    }

    /// Whether the next byte of the stream is data of the current PDU.
    pub fn at_data(&self) -> bool {
        matches!(self.stage, Stage::Data { .. })
    }

    /// Whether the stream is between two PDUs.
    pub fn at_boundary(&self) -> bool {
        matches!(self.stage, Stage::Common) && self.have == 0
    }

    /// As much of the header of the PDU that was found wrong as there is, for a TermReq.
    pub fn offending_header(&self) -> &[u8] {
        &self.header[..self.have.min(TERM_REQ_DATA_MAX)]
    }

    /// Takes the next step, and the bytes it needs off `input`.
    ///
    /// After an error, or the peer's TermReq, all further input is dropped.
    pub fn step<'a>(&mut self, input: &mut &'a [u8]) -> Result<Step<'a>, FatalError> {
        let step = self.try_step(input);
        if step.is_err() {
            self.stage = Stage::Ended;
        }
        step
    }

    fn try_step<'a>(&mut self, input: &mut &'a [u8]) -> Result<Step<'a>, FatalError> {
        loop {
            match &mut self.stage {
                Stage::Common => {
                    if !self.gather(input, size_of::<CommonHeader>()) {
                        return Ok(Step::Starved);
                    }
                    self.stage = Stage::Header(self.check_common()?);
                }
                Stage::Header(layout) => {
                    let layout = *layout;
                    if !self.gather(input, layout.header_len) {
                        return Ok(Step::Starved);
                    }
                    let header = self.check_header(&layout)?;
                    self.have = 0;
                    self.stage = match header {
                        Header::TermReq(_) => Stage::Ended,
                        _ if layout.data_len == 0 => Stage::Common,
                        _ if layout.padding_len == 0 => self.begin_data(&layout),
                        _ => Stage::Padding { left: layout.padding_len, layout },
                    };
                    return Ok(Step::Header(header));
                }
                Stage::Padding { left, layout } => {
                    *left -= split(input, *left).len();
                    if *left > 0 {
                        return Ok(Step::Starved);
                    }
                    let layout = *layout;
                    self.stage = self.begin_data(&layout);
                }
                Stage::Data { left: 0 } => match self.digest.take() {
                    None => {
                        self.stage = Stage::Common;
                        return Ok(Step::End { intact: true });
                    }
                    Some(digest) => {
                        self.stage = Stage::DataDigest { want: digest.finish(), got: [0; DIGEST_LEN], have: 0 };
                    }
                },
                Stage::Data { left } => {
                    if input.is_empty() {
                        return Ok(Step::Starved);
                    }
                    let bytes = split(input, *left as usize);
                    *left -= bytes.len() as u32;
                    if let Some(digest) = &mut self.digest {
                        digest.update(bytes);
                    }
                    return Ok(Step::Data(bytes));
                }
                Stage::DataDigest { want, got, have } => {
                    let bytes = split(input, DIGEST_LEN - *have);
                    got[*have..*have + bytes.len()].copy_from_slice(bytes);
                    *have += bytes.len();
                    if *have < DIGEST_LEN {
                        return Ok(Step::Starved);
                    }
                    let intact = u32::from_le_bytes(*got) == *want;
                    self.stage = Stage::Common;
                    return Ok(Step::End { intact });
                }
                Stage::Ended => {
                    *input = &[];
                    return Ok(Step::Starved);
                }
            }
        }
    }

    fn begin_data(&mut self, layout: &Layout) -> Stage {
        self.digest = layout.data_digest.then(Crc32c::new);
        Stage::Data { left: layout.data_len }
    }

    /// Gathers the first `len` bytes of the header; returns whether they are there.
    fn gather(&mut self, input: &mut &[u8], len: usize) -> bool {
        let bytes = split(input, len - self.have);
        self.header[self.have..self.have + bytes.len()].copy_from_slice(bytes);
        self.have += bytes.len();
        self.have == len
    }

    fn check_common(&self) -> Result<Layout, FatalError> {
        let invalid = |offset| Err(FatalError::InvalidHeaderField(offset));
        let common = CommonHeader::ref_from_bytes(&self.header[..8]).expect("eight bytes make a common header");
        let Some(kind) = PduKind::from_byte(common.kind).filter(|kind| self.may_send(*kind)) else {
            return invalid(at::KIND);
        };
        self.check_order(kind)?;
        if common.header_len != kind.header_len() {
            return invalid(at::HEADER_LEN);
        }
        let len = common.len.get();
        let hlen = common.header_len as u32;
        if matches!(kind, PduKind::IcReq | PduKind::IcResp | PduKind::H2cTermReq | PduKind::C2hTermReq) {
            // These carry neither digests nor data that matters; a TermReq ends with a copy of a header.
            let most = if kind.header_len() == 24 { hlen + TERM_REQ_DATA_MAX as u32 } else { hlen };
            if len < hlen || len > most {
                return invalid(at::LEN);
            }
            return Ok(Layout {
                kind,
                flags: common.flags,
                header_len: hlen as usize,
                padding_len: 0,
                data_len: 0,
                data_digest: false,
            });
        }

        let digests = self.negotiated.unwrap_or_default();
        let header_digest = common.flags & pdu_flags::HDGST != 0;
        if header_digest != digests.header {
            return invalid(at::FLAGS);
        }
        let header_len = hlen + if header_digest { DIGEST_LEN as u32 } else { 0 };
        let data_digest = common.flags & pdu_flags::DDGST != 0;
        let may_have_data = matches!(kind, PduKind::CapsuleCmd | PduKind::H2cData | PduKind::C2hData);
        let needs_data = matches!(kind, PduKind::H2cData | PduKind::C2hData);
        if len < header_len || (len > header_len && !may_have_data) || (len == header_len && needs_data) {
            return invalid(at::LEN);
        }
        if len == header_len {
            if data_digest {
                return invalid(at::FLAGS);
            }
            let (padding_len, data_len) = (0, 0);
            return Ok(Layout {
                kind,
                flags: common.flags,
                header_len: header_len as usize,
                padding_len,
                data_len,
                data_digest,
            });
        }
        if data_digest != digests.data {
            return invalid(at::FLAGS);
        }
        let pdo = common.data_offset as u32;
        if pdo < header_len || !pdo.is_multiple_of(4) {
            return invalid(at::DATA_OFFSET);
        }
        let trailer = if data_digest { DIGEST_LEN as u32 } else { 0 };
        let Some(data_len) = len.checked_sub(pdo + trailer).filter(|len| *len > 0) else {
            return invalid(at::LEN);
        };
        if kind == PduKind::CapsuleCmd && data_len > self.capsule_data_max {
            return invalid(at::LEN);
        }
        if needs_data && data_len > self.data_max {
            return Err(FatalError::LimitExceeded);
        }
        Ok(Layout {
            kind,
            flags: common.flags,
            header_len: header_len as usize,
            padding_len: (pdo - header_len) as usize,
            data_len,
            data_digest,
        })
    }

    /// Whether the peer may ever send this.
    fn may_send(&self, kind: PduKind) -> bool {
        use PduKind::{C2hData, C2hTermReq, CapsuleCmd, CapsuleResp, H2cData, H2cTermReq, IcReq, IcResp, R2t};
        match self.role {
            Role::Controller => matches!(kind, IcReq | H2cTermReq | CapsuleCmd | H2cData),
            Role::Host => matches!(kind, IcResp | C2hTermReq | CapsuleResp | C2hData | R2t),
        }
    }

    /// ICReq and ICResp come first, and once; a TermReq may come at any time.
    fn check_order(&self, kind: PduKind) -> Result<(), FatalError> {
        let initialize = matches!(kind, PduKind::IcReq | PduKind::IcResp);
        let terminate = matches!(kind, PduKind::H2cTermReq | PduKind::C2hTermReq);
        if terminate || initialize == self.negotiated.is_none() { Ok(()) } else { Err(FatalError::PduSequence) }
    }

    fn check_header(&self, layout: &Layout) -> Result<Header, FatalError> {
        let hlen = layout.kind.header_len() as usize;
        let bytes = &self.header[..hlen];
        if layout.header_len > hlen {
            let (want, got) = (crc32c(bytes).to_le_bytes(), &self.header[hlen..layout.header_len]);
            if want != got {
                return Err(FatalError::HeaderDigest);
            }
        }
        let last = layout.flags & pdu_flags::LAST != 0;
        let success = layout.flags & pdu_flags::SUCCESS != 0;
        Ok(match layout.kind {
            PduKind::IcReq => Header::IcReq(read(bytes)),
            PduKind::IcResp => Header::IcResp(read(bytes)),
            PduKind::H2cTermReq | PduKind::C2hTermReq => Header::TermReq(read::<TermReq>(bytes).error()),
            PduKind::CapsuleCmd => Header::Command { sqe: read(&bytes[8..]), data_len: layout.data_len },
            PduKind::CapsuleResp => Header::Response(read::<Cqe>(&bytes[8..])),
            PduKind::H2cData => {
                let pdu: H2cData = read(bytes);
                check_data_len(pdu.len.get(), layout)?;
                let (cccid, ttag) = (pdu.cccid.get(), pdu.ttag.get());
                Header::H2cData { cccid, ttag, offset: pdu.offset.get(), len: pdu.len.get(), last }
            }
            PduKind::C2hData => {
                let pdu: C2hData = read(bytes);
                check_data_len(pdu.len.get(), layout)?;
                if success && !last {
                    return Err(FatalError::InvalidHeaderField(at::FLAGS));
                }
                let cccid = pdu.cccid.get();
                Header::C2hData { cccid, offset: pdu.offset.get(), len: pdu.len.get(), last, success }
            }
            PduKind::R2t => {
                let pdu: R2t = read(bytes);
                let (cccid, ttag) = (pdu.cccid.get(), pdu.ttag.get());
                Header::R2t { cccid, ttag, offset: pdu.offset.get(), len: pdu.len.get() }
            }
        })
    }
}

/// DATAL must agree with PLEN.
fn check_data_len(datal: u32, layout: &Layout) -> Result<(), FatalError> {
    if datal == layout.data_len { Ok(()) } else { Err(FatalError::InvalidHeaderField(at::DATAL)) }
}

/// Takes up to `len` bytes off `input`.
fn split<'a>(input: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at(len.min(input.len()));
    *input = rest;
    taken
}

fn read<T: FromBytes>(bytes: &[u8]) -> T {
    T::read_from_bytes(bytes).expect("the header's length was checked against its type")
}
