//! A host's answers to messages that a controller should not send, and how commands end.

mod support;

use std::time::{Duration, Instant};

use diskside_nvme::host::{
    Answer, CommandError, Completed, Connection, ConnectionConfig, ConnectionError, Data, Event, Login, State,
    Submission, SubmitError,
};
use diskside_nvme::pdu::{BufferAfter, Decoder, Digests, Encoder, Header, Payload, Role, Step};
use diskside_nvme::wire::{C2hData, CommonHeader, Cqe, FatalError, IcResp, PduKind, R2t, Sqe, pdu_flags};
use diskside_nvme::{BufferSlice, Nqn, Segment, Status, Transmit};
use support::memory::Memory;
use support::pair::{SUBSYSTEM, bytes_of, identity};
use zerocopy::{Immutable, IntoBytes};

/// A host whose controller is this test.
struct Bench {
    now: Instant,
    host: Connection,
    memory: Memory,
    decoder: Decoder,
    encoder: Encoder,
    transmit: Transmit,
    /// Headers that the host sent.
    said: Vec<Header>,
}

fn config(digests: Digests) -> ConnectionConfig {
    ConnectionConfig {
        host: identity(),
        subsystem: Nqn::new(SUBSYSTEM).unwrap(),
        queue_id: 1,
        controller_id: 1,
        entries: 4,
        keep_alive_ms: 0,
        header_digest: digests.header,
        data_digest: digests.data,
        in_capsule_len: 8192,
        transfer_len_max: 1 << 20,
        connect_timeout: Duration::from_secs(3),
        login: Login::Never,
    }
}

impl Bench {
    fn new(digests: Digests) -> Self {
        let now = Instant::now();
        let mut bench = Self {
            now,
            host: Connection::new(config(digests), now),
            memory: Memory::default(),
            decoder: Decoder::new(Role::Controller, 8192, 1 << 20),
            encoder: Encoder::plain(),
            transmit: Transmit::new(),
            said: Vec::new(),
        };
        bench.listen();
        assert!(matches!(bench.said.remove(0), Header::IcReq(_)));
        bench
    }

    /// After ICResp and Connect.
    fn live(digests: Digests) -> Self {
        let mut bench = Self::new(digests);
        bench.initialize(digests);
        let sqe = bench.command();
        bench.respond(Cqe::new(sqe.cid(), Status::SUCCESS, 1).with_sqhd(0xffff));
        assert!(matches!(bench.host.poll_event(), Some(Event::Connected { controller_id: 1 })));
        bench
    }

    fn initialize(&mut self, digests: Digests) {
        self.decoder.negotiated(digests);
        self.encoder = Encoder::new(digests, 0);
        self.send_bytes(IcResp::new(digests.header, digests.data, 4096).as_bytes());
    }

    fn send_bytes(&mut self, bytes: &[u8]) {
        self.host.handle_bytes(self.now, bytes, &mut self.memory);
        self.listen();
    }

    fn send(&mut self, header: &(impl IntoBytes + Immutable), flags: u8, data: &[u8]) {
        let mut out = Transmit::new();
        let payload = if data.is_empty() { Payload::None } else { Payload::Bytes(data) };
        self.encoder.put(&mut out, header, flags, payload);
        let bytes = bytes_of(&mut out, &mut self.memory, false);
        self.send_bytes(&bytes);
    }

    fn respond(&mut self, cqe: Cqe) {
        let mut out = Transmit::new();
        self.encoder.response(&mut out, cqe);
        let bytes = bytes_of(&mut out, &mut self.memory, false);
        self.send_bytes(&bytes);
    }

    fn listen(&mut self) {
        while self.host.poll_transmit(&mut self.transmit) {
            let bytes = bytes_of(&mut self.transmit, &mut self.memory, false);
            self.host.handle_transmitted(&mut self.transmit);
            self.hear(&bytes);
        }
    }

    fn hear(&mut self, bytes: &[u8]) {
        let mut input = bytes;
        loop {
            match self.decoder.step(&mut input).expect("a host speaks correctly") {
                Step::Starved => return,
                Step::Header(header) => self.said.push(header),
                Step::Data(_) => {}
                Step::End { intact } => assert!(intact, "a host's digests are right"),
            }
        }
    }

    /// The command that the host sent.
    fn command(&mut self) -> Sqe {
        match self.said.remove(0) {
            Header::Command { sqe, .. } => sqe,
            header => panic!("no command: {header:?}"),
        }
    }

    /// Submits a command and returns its identifier.
    fn submit(&mut self, sqe: Sqe, data: Data, user_data: u64) -> u16 {
        let timeout = Some(Duration::from_secs(2));
        let cid = self.host.submit(self.now, Submission { sqe, data, user_data, timeout }, &mut self.memory).unwrap();
        self.listen();
        assert_eq!(self.command().cid(), cid);
        cid
    }

    fn completed(&mut self) -> Result<Answer, CommandError> {
        match self.host.poll_event() {
            Some(Event::Completed(Completed { outcome, .. })) => outcome,
            event => panic!("not completed: {event:?}"),
        }
    }

    /// The host's objection: it said so, and ended.
    fn objected(&mut self) -> (u16, u32) {
        let Some(Header::TermReq(error)) = self.said.pop() else { panic!("it did not object: {:?}", self.host) };
        assert_eq!(self.host.state(), State::Closed);
        assert_eq!(self.host.error(), Some(&ConnectionError::Protocol(error)));
        self.host.handle_close();
        while let Some(event) = self.host.poll_event() {
            if let Event::Completed(Completed { outcome, .. }) = event {
                assert!(matches!(outcome, Ok(_) | Err(CommandError::ConnectionLost)), "{outcome:?}");
            }
        }
        error.to_fields()
    }
}

#[test]
fn a_wrong_icresp_is_objected_to() {
    let ic = |change: fn(&mut [u8])| {
        let mut bytes = IcResp::new(false, false, 4096).as_bytes().to_vec();
        change(&mut bytes);
        bytes
    };
    let cases: [(&str, Vec<u8>, (u16, u32)); 9] = [
        ("version", ic(|b| b[8] = 1), (1, 8)),
        ("alignment", ic(|b| b[10] = 32), (1, 10)),
        ("a digest that nobody asked for", ic(|b| b[11] = 1), (1, 11)),
        ("MAXH2CDATA too small", ic(|b| b[12..16].copy_from_slice(&2048_u32.to_le_bytes())), (1, 12)),
        ("MAXH2CDATA in half dwords", ic(|b| b[12..16].copy_from_slice(&4098_u32.to_le_bytes())), (1, 12)),
        ("length", ic(|b| b[4] = 24), (1, 4)),
        ("header length", ic(|b| b[2] = 24), (1, 2)),
        ("ICReq", ic(|b| b[0] = 0), (1, 0)),
        ("a response first", CommonHeader::new(PduKind::CapsuleResp).as_bytes().to_vec(), (2, 0)),
    ];
    for (name, bytes, want) in cases {
        let mut bench = Bench::new(Digests::default());
        bench.send_bytes(&bytes);
        assert_eq!(bench.objected(), want, "{name}");
    }
}

#[test]
fn digests_that_are_refused_end_the_connection() {
    let mut bench = Bench::new(Digests { header: true, data: true });
    bench.send_bytes(IcResp::new(true, false, 4096).as_bytes());
    assert_eq!(bench.host.error(), Some(&ConnectionError::DigestsRefused));
}

#[test]
fn a_wrong_pdu_is_objected_to() {
    type Case = (&'static str, fn(&mut Bench), (u16, u32));
    let cases: [Case; 17] = [
        ("ICResp again", |b| b.send_bytes(IcResp::new(false, false, 4096).as_bytes()), (2, 0)),
        ("a command", |b| b.send_bytes(CommonHeader::new(PduKind::CapsuleCmd).as_bytes()), (1, 0)),
        ("a response to nothing", |b| b.respond(Cqe::new(0x77, Status::SUCCESS, 0)), (1, 20)),
        (
            "a response twice",
            |b| {
                let cid = b.submit(Sqe::flush(1), Data::None, 1);
                b.respond(Cqe::new(cid, Status::SUCCESS, 0));
                b.respond(Cqe::new(cid, Status::SUCCESS, 0));
            },
            (1, 20),
        ),
        ("data for nothing", |b| b.send(&C2hData::new(0x77, 0, 512), pdu_flags::LAST, &[0; 512]), (1, 8)),
        (
            "data for a write",
            |b| {
                let cid = b.submit(Sqe::write(1, 0, 1), Data::SendBytes(vec![1; 512]), 1);
                b.send(&C2hData::new(cid, 0, 512), pdu_flags::LAST, &[0; 512]);
            },
            (1, 8),
        ),
        (
            "data that begins late",
            |b| {
                let cid = b.submit(Sqe::read(1, 0, 2), Data::ReceiveBytes(1024), 1);
                b.send(&C2hData::new(cid, 512, 512), pdu_flags::LAST, &[0; 512]);
            },
            (4, 0),
        ),
        (
            "too much data",
            |b| {
                let cid = b.submit(Sqe::read(1, 0, 2), Data::ReceiveBytes(1024), 1);
                b.send(&C2hData::new(cid, 0, 1028), pdu_flags::LAST, &[0; 1028]);
            },
            (4, 0),
        ),
        (
            "data whose end overflows",
            |b| {
                let cid = b.submit(Sqe::read(1, 0, 2), Data::ReceiveBytes(1024), 1);
                b.send(&C2hData::new(cid, 0, 1024), 0, &[0; 1024]);
                b.send(&C2hData::new(cid, 1024, 4), pdu_flags::LAST, &[0; 4]);
            },
            (4, 0),
        ),
        (
            "success before the last",
            |b| {
                let cid = b.submit(Sqe::read(1, 0, 2), Data::ReceiveBytes(1024), 1);
                b.send(&C2hData::new(cid, 0, 512), pdu_flags::SUCCESS, &[0; 512]);
            },
            (1, 1),
        ),
        (
            "DATAL that is not the data's length",
            |b| {
                let cid = b.submit(Sqe::read(1, 0, 2), Data::ReceiveBytes(1024), 1);
                b.send(&C2hData::new(cid, 0, 512), 0, &[0; 1024]);
            },
            (1, 16),
        ),
        ("R2T for nothing", |b| b.send(&R2t::new(0x77, 0, 0, 512), 0, &[]), (1, 8)),
        (
            "R2T for a read",
            |b| {
                let cid = b.submit(Sqe::read(1, 0, 2), Data::ReceiveBytes(1024), 1);
                b.send(&R2t::new(cid, 0, 0, 1024), 0, &[]);
            },
            (1, 8),
        ),
        (
            "R2T for data that is there",
            |b| {
                let cid = b.submit(Sqe::write(1, 0, 1), Data::SendBytes(vec![1; 512]), 1);
                b.send(&R2t::new(cid, 0, 0, 512), 0, &[]);
            },
            (1, 8),
        ),
        (
            "R2T for no bytes",
            |b| {
                let cid = b.submit(Sqe::write(1, 0, 32), Data::SendBytes(vec![1; 16384]), 1);
                b.send(&R2t::new(cid, 0, 0, 0), 0, &[]);
            },
            (1, 16),
        ),
        (
            "R2T for too many bytes",
            |b| {
                let cid = b.submit(Sqe::write(1, 0, 32), Data::SendBytes(vec![1; 16384]), 1);
                b.send(&R2t::new(cid, 0, 0, 16388), 0, &[]);
            },
            (4, 0),
        ),
        (
            "R2T out of order",
            |b| {
                let cid = b.submit(Sqe::write(1, 0, 32), Data::SendBytes(vec![1; 16384]), 1);
                b.send(&R2t::new(cid, 0, 4096, 4096), 0, &[]);
            },
            (4, 0),
        ),
    ];
    for (name, act, want) in cases {
        let mut bench = Bench::live(Digests::default());
        act(&mut bench);
        assert_eq!(bench.objected(), want, "{name}");
    }
}

#[test]
fn a_wrong_header_digest_ends_the_connection_and_a_wrong_data_digest_its_command() {
    let digests = Digests { header: true, data: true };
    let mut bench = Bench::live(digests);
    let cid = bench.submit(Sqe::read(1, 0, 1), Data::ReceiveBytes(512), 1);
    let mut out = Transmit::new();
    let flags = pdu_flags::LAST | pdu_flags::SUCCESS;
    bench.encoder.put(&mut out, &C2hData::new(cid, 0, 512), flags, Payload::Bytes(&[5; 512]));
    let mut bytes = bytes_of(&mut out, &mut bench.memory, false);
    *bytes.last_mut().unwrap() ^= 1;
    bench.send_bytes(&bytes);
    assert_eq!(bench.completed(), Err(CommandError::DataDigest));

    bench.submit(Sqe::read(1, 0, 1), Data::ReceiveBytes(512), 2);
    bytes[24] ^= 1;
    bench.send_bytes(&bytes);
    assert_eq!(bench.objected(), (3, 0));
}

#[test]
fn a_read_that_succeeds_with_too_few_bytes_has_failed() {
    let mut bench = Bench::live(Digests::default());
    let cid = bench.submit(Sqe::read(1, 0, 2), Data::ReceiveBytes(1024), 1);
    bench.send(&C2hData::new(cid, 0, 512), pdu_flags::LAST, &[1; 512]);
    bench.respond(Cqe::new(cid, Status::SUCCESS, 0));
    assert_eq!(bench.completed(), Err(CommandError::ShortTransfer { got: 512, want: 1024 }));
    // A vendor's command may well answer with less.
    let cid = bench.submit(Sqe::new(0x82, 4), Data::ReceiveBytes(1024), 1);
    bench.send(&C2hData::new(cid, 0, 512), pdu_flags::LAST, &[1; 512]);
    bench.respond(Cqe::new(cid, Status::SUCCESS, 7));
    assert_eq!(bench.completed(), Ok(Answer { result: 7, received_len: 512, bytes: vec![1; 512] }));
}

#[test]
fn a_failed_command_says_why() {
    let mut bench = Bench::live(Digests::default());
    let cid = bench.submit(Sqe::read(1, 0, 1), Data::ReceiveBytes(512), 1);
    bench.respond(Cqe::new(cid, Status::LBA_OUT_OF_RANGE.dnr(), 3));
    let error = bench.completed().unwrap_err();
    assert_eq!(error, CommandError::Status { status: Status::LBA_OUT_OF_RANGE.dnr(), result: 3 });
    assert_eq!(error.to_string(), "LBA Out of Range (SCT 0h, SC 80h, do not retry)");
}

/// The answer to a write can be processed before the send that carried its data is reported as done. The caller must not
/// get its memory back in between: the kernel may still read it.
#[test]
fn a_buffer_is_the_callers_again_only_when_no_send_refers_to_it() {
    let mut bench = Bench::live(Digests::default());
    let buffer = bench.memory.insert(vec![3; 16384]);
    let sqe = Sqe::write(1, 0, 32);
    let cid = bench.submit(sqe, Data::Send(BufferSlice::new(buffer, 16384)), 9);
    bench.host.handle_bytes(bench.now, &pdu(&bench.encoder, &R2t::new(cid, 5, 0, 16384)), &mut bench.memory);
    let mut transmit = Transmit::new();
    assert!(bench.host.poll_transmit(&mut transmit));
    // Four H2CData of 4,096 bytes each, as MAXH2CDATA demands.
    assert_eq!(transmit.segments().filter(|segment| matches!(segment, Segment::Buffer(_))).count(), 4);
    let mut out = Transmit::new();
    bench.encoder.response(&mut out, Cqe::new(cid, Status::SUCCESS, 0));
    let response = bytes_of(&mut out, &mut bench.memory, false);
    bench.host.handle_bytes(bench.now, &response, &mut bench.memory);
    assert!(bench.host.poll_event().is_none(), "the send is still under way");
    let bytes = bytes_of(&mut transmit, &mut bench.memory, false);
    bench.host.handle_transmitted(&mut transmit);
    assert_eq!(bench.completed(), Ok(Answer::default()));
    bench.hear(&bytes);
    let sent: Vec<_> = bench
        .said
        .iter()
        .map(|header| match header {
            Header::H2cData { cccid, ttag: 5, offset, len, last } if *cccid == cid => (*offset, *len, *last),
            header => panic!("{header:?}"),
        })
        .collect();
    assert_eq!(sent, [(0, 4096, false), (4096, 4096, false), (8192, 4096, false), (12288, 4096, true)]);
}

fn pdu(encoder: &Encoder, header: &(impl IntoBytes + Immutable)) -> Vec<u8> {
    let mut out = Transmit::new();
    encoder.put(&mut out, header, 0, Payload::None);
    bytes_of(&mut out, &mut Memory::default(), false)
}

#[test]
fn connect_that_is_refused_says_by_what() {
    let cases: [(Status, u64, &str); 4] = [
        (Status::CONNECT_INVALID_HOST, 0, "the controller refused the connection: Connect Invalid Host"),
        (Status::CONNECT_INVALID_PARAMETERS, 0x1_0100, "there is no such subsystem here"),
        (Status::CONNECT_INVALID_PARAMETERS, 42, "it objects to the queue identifier"),
        (Status::CONNECT_CONTROLLER_BUSY, 0, "Connect Controller Busy"),
    ];
    for (status, result, want) in cases {
        let mut bench = Bench::new(Digests::default());
        bench.initialize(Digests::default());
        let sqe = bench.command();
        bench.respond(Cqe::new(sqe.cid(), status.dnr(), result));
        let error = bench.host.error().expect("it ended").to_string();
        assert!(error.contains(want), "{error}");
    }
    let mut bench = Bench::new(Digests::default());
    bench.initialize(Digests::default());
    let sqe = bench.command();
    bench.respond(Cqe::new(sqe.cid(), Status::SUCCESS, 1 << 17 | 1));
    assert_eq!(bench.host.error(), Some(&ConnectionError::AuthenticationRequired));
}

#[test]
fn a_queue_takes_as_many_commands_as_it_has_entries() {
    for (sqhd, most) in [(0xffff, 4), (1, 3)] {
        let mut bench = Bench::new(Digests::default());
        bench.initialize(Digests::default());
        let sqe = bench.command();
        bench.respond(Cqe::new(sqe.cid(), Status::SUCCESS, 1).with_sqhd(sqhd));
        for user_data in 0..most {
            assert!(bench.host.can_submit());
            bench.submit(Sqe::flush(1), Data::None, user_data);
        }
        assert!(!bench.host.can_submit());
        let submission = Submission { sqe: Sqe::flush(1), data: Data::None, user_data: 9, timeout: None };
        let refused = bench.host.submit(bench.now, submission, &mut bench.memory);
        assert_eq!(refused, Err(SubmitError::Full), "with a queue head of {sqhd:#x} in the answer to Connect");
    }
}

#[test]
fn what_is_too_long_is_not_sent() {
    let mut bench = Bench::live(Digests::default());
    let data = Data::ReceiveBytes((1 << 20) + 512);
    let submission = Submission { sqe: Sqe::read(1, 0, 2049), data, user_data: 1, timeout: None };
    let refused = bench.host.submit(bench.now, submission, &mut bench.memory);
    assert_eq!(refused, Err(SubmitError::TooLong { len: (1 << 20) + 512, max: 1 << 20 }));
}

#[test]
fn a_late_command_is_reported_and_then_given_up_with_its_connection() {
    let mut bench = Bench::live(Digests::default());
    let cid = bench.submit(Sqe::flush(1), Data::None, 6);
    let at = bench.host.poll_timeout().expect("the command has a timeout");
    assert_eq!(at, bench.now + Duration::from_secs(2));
    bench.host.handle_timeout(at);
    match bench.host.poll_event() {
        Some(Event::Late { user_data: 6, command_id }) => assert_eq!(command_id, cid),
        event => panic!("{event:?}"),
    }
    let at = bench.host.poll_timeout().expect("it is waited for once more");
    bench.host.handle_timeout(at);
    assert_eq!(bench.host.state(), State::Closed);
    bench.host.handle_close();
    assert_eq!(bench.completed(), Err(CommandError::ConnectionLost));
    let event = bench.host.poll_event();
    assert!(
        matches!(event, Some(Event::Closed(ConnectionError::CommandTimeout(timeout))) if timeout.as_secs() == 2),
        "{event:?}"
    );
    assert!(bench.host.poll_event().is_none(), "the end is told once");
}

#[test]
fn a_controller_that_does_not_answer_is_given_up() {
    for (initialized, want) in [(false, "ICReq"), (true, "Connect")] {
        let mut bench = Bench::new(Digests::default());
        if initialized {
            bench.initialize(Digests::default());
        }
        let at = bench.host.poll_timeout().expect("it is waited for");
        bench.host.handle_timeout(at);
        assert_eq!(bench.host.error(), Some(&ConnectionError::ConnectTimeout { step: want }));
    }
}

#[test]
fn the_controllers_termination_is_passed_on() {
    let mut bench = Bench::live(Digests::default());
    let mut out = Transmit::new();
    Encoder::plain().terminate(&mut out, PduKind::C2hTermReq, FatalError::DataTransferOutOfRange, &[1; 24]);
    let bytes = bytes_of(&mut out, &mut bench.memory, false);
    bench.send_bytes(&bytes);
    assert_eq!(bench.host.error(), Some(&ConnectionError::Terminated(FatalError::DataTransferOutOfRange)));
    assert_eq!(bench.host.state(), State::Closed);
}

#[test]
fn data_of_the_embedder_is_sent_with_its_digest() {
    let digests = Digests { header: false, data: true };
    let mut out = Transmit::new();
    let mut memory = Memory::default();
    let buffer = memory.insert(vec![7; 100]);
    let slice = BufferSlice { buffer, offset: 10, len: 50 };
    let digest = diskside_nvme::crc32c(&[7; 50]);
    let payload = Payload::Buffer { slice, digest, after: BufferAfter::RELEASE };
    Encoder::new(digests, 3).put(&mut out, &C2hData::new(1, 0, 50), pdu_flags::LAST, payload);
    let bytes = bytes_of(&mut out, &mut memory, true);
    assert_eq!(bytes.len(), 32 + 50 + 4, "padded to sixteen bytes");
    assert_eq!(bytes[82..], digest.to_le_bytes());
    assert_eq!(memory.in_use(), 0);
}
