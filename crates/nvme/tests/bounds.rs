//! Memory for data of commands that no pool bounds: parameters that are asked for, and data that comes before there is a buffer.

mod support;

use std::time::Instant;

use diskside_nvme::Transmit;
use diskside_nvme::controller::{BlockSize, Connection};
use diskside_nvme::pdu::{Decoder, Digests, Encoder, Header, Payload, Role, Step};
use diskside_nvme::wire::{H2cData, IcResp, Sgl, Sqe, pdu_flags};
use support::medium::{Fault, Media};
use support::memory::Memory;
use support::pair::{Pair, SUBSYSTEM, Target, admin_config, bytes_of};
use zerocopy::IntoBytes;

const RANGES_LEN: u32 = 256 * 16;
const COMMANDS: u16 = 30;

/// Each of thirty commands on each queue had its memory as soon as it said how long its parameters are, and a host that sent
/// none of them held all of it.
#[test]
fn parameters_are_asked_for_a_few_at_a_time() {
    let mut pair = pair();
    let now = pair.now;
    let (_, end) = pair.io.as_mut().unwrap();
    let (controller, memory) = (&mut end.connection, &mut pair.target.memory);
    let encoder = Encoder::new(Digests::default(), 0);
    // The pair has initialized its connection, and this decoder reads on from there.
    let mut decoder = Decoder::new(Role::Host, 0, u32::MAX);
    headers_of(&mut decoder, IcResp::new(false, false, 4096).as_bytes());
    decoder.negotiated(Digests::default());
    let mut out = Transmit::new();

    for cid in 0..COMMANDS {
        let mut sqe = Sqe::deallocate(1, 256);
        sqe.set_cid(cid);
        sqe.set_sgl(Sgl::transport(RANGES_LEN));
        encoder.command(&mut out, sqe, Payload::None);
    }
    let commands = bytes_of(&mut out, memory, true);
    assert_eq!(controller.handle_bytes(now, &commands, memory), commands.len());
    assert_eq!(controller.awaited_bytes(), 64 << 10, "sixteen of them were asked");

    let (mut out, mut answered) = (Transmit::new(), 0);
    while answered < COMMANDS {
        let mut headers = Vec::new();
        while controller.poll_transmit(&mut out) {
            let bytes = bytes_of(&mut out, memory, true);
            controller.handle_transmitted(&mut out);
            headers.extend(headers_of(&mut decoder, &bytes));
        }
        assert!(!headers.is_empty(), "{answered} were answered, and the others are not asked");
        for header in headers {
            let Header::R2t { cccid, ttag, offset, len } = header else {
                assert!(matches!(header, Header::Response(cqe) if cqe.status().is_success()), "{header:?}");
                answered += 1;
                continue;
            };
            assert_eq!((offset, len), (0, RANGES_LEN));
            let (mut out, data) = (Transmit::new(), vec![0; RANGES_LEN as usize]);
            encoder.put(&mut out, &H2cData::new(cccid, ttag, 0, len), pdu_flags::LAST, Payload::Bytes(&data));
            let bytes = bytes_of(&mut out, memory, true);
            assert_eq!(controller.handle_bytes(now, &bytes, memory), bytes.len());
            assert!(controller.awaited_bytes() <= 64 << 10);
            carry_out(controller, &mut pair.target.media, memory, now);
        }
    }
}

/// A queue that was asked for the data of one write sent others with theirs: each was kept in memory of its own as the pool had no
/// buffer, two MiB for a queue, and a host with hundreds of queues held gigabytes.
#[test]
fn data_that_comes_before_there_is_a_buffer_is_bounded() {
    const LEN: u32 = 8192;
    let mut pair = pair();
    let now = pair.now;
    let (_, end) = pair.io.as_mut().unwrap();
    let (controller, memory) = (&mut end.connection, &mut pair.target.memory);
    let encoder = Encoder::new(Digests::default(), 0);
    let mut out = Transmit::new();
    let mut send = |cid: u16, sgl: Sgl, data: &[u8], memory: &mut Memory| {
        let mut sqe = Sqe::write(1, 0, LEN / 512);
        sqe.set_cid(cid);
        sqe.set_sgl(sgl);
        encoder.command(&mut out, sqe, if data.is_empty() { Payload::None } else { Payload::Bytes(data) });
        let bytes = bytes_of(&mut out, memory, true);
        out = Transmit::new();
        (controller.handle_bytes(now, &bytes, memory), bytes.len())
    };
    memory.pool_max = Some(1);
    let (taken, len) = send(0, Sgl::transport(LEN), &[], memory);
    assert_eq!(taken, len);
    let data = vec![7; LEN as usize];
    for cid in 1..=8 {
        let (taken, len) = send(cid, Sgl::in_capsule(LEN), &data, memory);
        assert_eq!(taken, len, "64 KiB are kept");
    }
    let (taken, len) = send(9, Sgl::in_capsule(LEN), &data, memory);
    assert_eq!(len - taken, LEN as usize, "the data of the next one stays in the socket");
    assert!(!controller.wants_input());

    // With buffers all is done, in order; data that is here waits for none that is to come.
    (memory.pool_max, memory.is_owed_enough) = (None, true);
    assert!(!controller.handle_buffers(now, memory));
    assert_eq!(controller.handle_bytes(now, &data, memory), data.len());
    let written = carry_out(controller, &mut pair.target.media, memory, now);
    assert_eq!(written, 9);
}

/// A host with one I/O queue, and a target with a volume.
fn pair() -> Pair {
    let mut target = Target::new();
    target.add(1, 1 << 10, BlockSize::B512);
    Pair::connect(target, admin_config(SUBSYSTEM, 1))
}

/// Carries out what the controller asks for; returns how much that was.
fn carry_out(controller: &mut Connection, media: &mut Media, memory: &mut Memory, now: Instant) -> usize {
    let mut count = 0;
    while let Some(request) = controller.poll_request() {
        let tag = request.tag;
        let done = media.carry_out(request, memory, Fault::None).expect("it answers");
        controller.complete(now, tag, done, memory);
        count += 1;
    }
    count
}

fn headers_of(decoder: &mut Decoder, mut bytes: &[u8]) -> Vec<Header> {
    let mut headers = Vec::new();
    loop {
        match decoder.step(&mut bytes).expect("a controller speaks correctly") {
            Step::Starved => return headers,
            Step::Header(header) => headers.push(header),
            Step::Data(_) | Step::End { .. } => {}
        }
    }
}
