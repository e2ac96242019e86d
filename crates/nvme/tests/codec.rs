//! A decoder reads what an encoder writes, however the stream is split.

mod support;

use diskside_nvme::Transmit;
use diskside_nvme::pdu::{Decoder, Digests, Encoder, Header, Payload, Role, Step};
use diskside_nvme::wire::{C2hData, Cqe, FatalError, H2cData, PduKind, R2t, Sqe, pdu_flags};
use diskside_nvme::{Segment, Status};
use proptest::prelude::*;

/// A PDU of either direction.
#[derive(Clone, Debug)]
enum Pdu {
    Command(Sqe, Vec<u8>),
    H2cData { cccid: u16, ttag: u16, offset: u32, last: bool, data: Vec<u8> },
    Response { cid: u16, result: u64, status: u16 },
    C2hData { cccid: u16, offset: u32, last: bool, success: bool, data: Vec<u8> },
    R2t { cccid: u16, ttag: u16, offset: u32, len: u32 },
}

fn data(least: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), least..600)
}

fn sqe() -> impl Strategy<Value = Sqe> {
    (any::<u8>(), any::<u32>(), any::<u16>(), any::<[u32; 6]>()).prop_map(|(opcode, nsid, cid, dwords)| {
        let mut sqe = Sqe::new(opcode, nsid);
        sqe.set_cid(cid);
        dwords.iter().zip(10..).fold(sqe, |sqe, (dword, n)| sqe.with_dword(n, *dword))
    })
}

fn to_controller() -> impl Strategy<Value = Pdu> {
    prop_oneof![
        (sqe(), data(0)).prop_map(|(sqe, data)| Pdu::Command(sqe, data)),
        (any::<u16>(), any::<u16>(), any::<u32>(), any::<bool>(), data(1))
            .prop_map(|(cccid, ttag, offset, last, data)| Pdu::H2cData { cccid, ttag, offset, last, data }),
    ]
}

fn to_host() -> impl Strategy<Value = Pdu> {
    prop_oneof![
        (any::<u16>(), any::<u64>(), 0_u16..0x8000).prop_map(|(cid, result, status)| Pdu::Response {
            cid,
            result,
            status
        }),
        (any::<u16>(), any::<u32>(), any::<bool>(), any::<bool>(), data(1)).prop_map(
            |(cccid, offset, last, success, data)| Pdu::C2hData { cccid, offset, last, success: success && last, data }
        ),
        any::<(u16, u16, u32, u32)>().prop_map(|(cccid, ttag, offset, len)| Pdu::R2t { cccid, ttag, offset, len }),
    ]
}

fn payload(data: &[u8]) -> Payload<'_> {
    if data.is_empty() { Payload::None } else { Payload::Bytes(data) }
}

fn encode(pdus: &[Pdu], encoder: &Encoder) -> Vec<u8> {
    let mut out = Transmit::new();
    for pdu in pdus {
        match pdu {
            Pdu::Command(sqe, data) => encoder.command(&mut out, *sqe, payload(data)),
            Pdu::H2cData { cccid, ttag, offset, last, data } => {
                let flags = if *last { pdu_flags::LAST } else { 0 };
                let header = H2cData::new(*cccid, *ttag, *offset, data.len() as u32);
                encoder.put(&mut out, &header, flags, payload(data));
            }
            Pdu::Response { cid, result, status } => {
                encoder.response(&mut out, Cqe::new(*cid, Status::from_bits(*status), *result));
            }
            Pdu::C2hData { cccid, offset, last, success, data } => {
                let flags = if *last { pdu_flags::LAST } else { 0 } | if *success { pdu_flags::SUCCESS } else { 0 };
                let header = C2hData::new(*cccid, *offset, data.len() as u32);
                encoder.put(&mut out, &header, flags, payload(data));
            }
            Pdu::R2t { cccid, ttag, offset, len } => {
                encoder.put(&mut out, &R2t::new(*cccid, *ttag, *offset, *len), 0, Payload::None);
            }
        }
    }
    bytes(&out)
}

fn bytes(out: &Transmit) -> Vec<u8> {
    out.segments()
        .flat_map(|segment| match segment {
            Segment::Bytes(bytes) => bytes.to_vec(),
            Segment::Buffer(_) => panic!("all of it is bytes"),
        })
        .collect()
}

/// Headers, and data behind each.
fn decode(stream: &[u8], cuts: &[usize], role: Role, digests: Digests) -> Result<Vec<(Header, Vec<u8>)>, FatalError> {
    let mut decoder = Decoder::new(role, 8192, u32::MAX);
    decoder.negotiated(digests);
    let mut pdus: Vec<(Header, Vec<u8>)> = Vec::new();
    let mut from = 0;
    for to in cuts.iter().map(|cut| cut % (stream.len() + 1)).chain([stream.len()]) {
        let mut piece = if to > from { &stream[from..to] } else { continue };
        from = to;
        loop {
            match decoder.step(&mut piece)? {
                Step::Starved => break,
                Step::Header(header) => pdus.push((header, Vec::new())),
                Step::Data(data) => pdus.last_mut().expect("data follows a header").1.extend_from_slice(data),
                Step::End { intact } => assert!(intact, "digests are right"),
            }
        }
    }
    assert!(decoder.at_boundary(), "nothing is left over");
    Ok(pdus)
}

fn same(pdu: &Pdu, header: &Header, data: &[u8]) -> bool {
    match (pdu, header) {
        (Pdu::Command(sqe, sent), Header::Command { sqe: got, data_len }) => {
            sqe == got && sent == data && *data_len as usize == data.len()
        }
        (
            Pdu::H2cData { cccid, ttag, offset, last, data: sent },
            Header::H2cData { cccid: c, ttag: t, offset: o, len, last: l },
        ) => (cccid, ttag, offset, last) == (c, t, o, l) && sent == data && *len as usize == data.len(),
        (Pdu::Response { cid, result, status }, Header::Response(cqe)) => {
            (*cid, *result, *status) == (cqe.cid(), cqe.result(), cqe.status().bits())
        }
        (
            Pdu::C2hData { cccid, offset, last, success, data: sent },
            Header::C2hData { cccid: c, offset: o, len, last: l, success: s },
        ) => (cccid, offset, last, success) == (c, o, l, s) && sent == data && *len as usize == data.len(),
        (Pdu::R2t { cccid, ttag, offset, len }, Header::R2t { cccid: c, ttag: t, offset: o, len: l }) => {
            (cccid, ttag, offset, len) == (c, t, o, l)
        }
        _ => false,
    }
}

fn check(pdus: &[Pdu], cuts: &[usize], role: Role, digests: Digests, alignment: u8) {
    let mut cuts = cuts.to_vec();
    let stream = encode(pdus, &Encoder::new(digests, alignment));
    cuts.iter_mut().for_each(|cut| *cut %= stream.len() + 1);
    cuts.sort_unstable();
    let decoded = decode(&stream, &cuts, role, digests).expect("what was encoded is valid");
    assert_eq!(decoded.len(), pdus.len());
    for (pdu, (header, data)) in pdus.iter().zip(&decoded) {
        assert!(same(pdu, header, data), "{pdu:?} became {header:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn hosts_speak_and_controllers_understand(
        pdus in prop::collection::vec(to_controller(), 1..8),
        cuts in prop::collection::vec(any::<usize>(), 0..20),
        (header, data) in any::<(bool, bool)>(),
        alignment in 0_u8..32,
    ) {
        check(&pdus, &cuts, Role::Controller, Digests { header, data }, alignment);
    }

    #[test]
    fn controllers_speak_and_hosts_understand(
        pdus in prop::collection::vec(to_host(), 1..8),
        cuts in prop::collection::vec(any::<usize>(), 0..20),
        (header, data) in any::<(bool, bool)>(),
        alignment in 0_u8..32,
    ) {
        check(&pdus, &cuts, Role::Host, Digests { header, data }, alignment);
    }

    /// With both digests no single bit of a PDU can change unnoticed, except in padding.
    #[test]
    fn digests_notice_every_bit(pdu in to_controller(), bit in any::<usize>()) {
        let digests = Digests { header: true, data: true };
        let mut stream = encode(std::slice::from_ref(&pdu), &Encoder::new(digests, 0));
        let bit = bit % (stream.len() * 8);
        stream[bit / 8] ^= 1 << (bit % 8);
        let mut decoder = Decoder::new(Role::Controller, 8192, u32::MAX);
        decoder.negotiated(digests);
        let mut input = stream.as_slice();
        let noticed = loop {
            match decoder.step(&mut input) {
                Err(_) | Ok(Step::End { intact: false }) => break true,
                // A longer length waits for bytes that never come, and with them for the digest.
                Ok(Step::Starved) => break !decoder.at_boundary(),
                Ok(Step::Header(_) | Step::Data(_) | Step::End { intact: true }) => {}
            }
        };
        prop_assert!(noticed, "bit {bit} of {pdu:?}");
    }
}

#[test]
fn a_termination_shows_the_header_that_offended() {
    let mut decoder = Decoder::new(Role::Controller, 8192, 4096);
    decoder.negotiated(Digests::default());
    let mut input: &[u8] = &[4, 0, 71, 0, 72, 0, 0, 0, 1, 2, 3];
    let error = decoder.step(&mut input).expect_err("a header of 71 bytes is wrong");
    let mut out = Transmit::new();
    Encoder::plain().terminate(&mut out, PduKind::C2hTermReq, error, decoder.offending_header());
    assert_eq!(
        bytes(&out),
        [[3, 0, 24, 0, 32, 0, 0, 0].as_slice(), &[1, 0, 2, 0, 0, 0], &[0; 10], &[4, 0, 71, 0, 72, 0, 0, 0],].concat()
    );
}
