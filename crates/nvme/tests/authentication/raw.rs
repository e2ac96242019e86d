//! A queue whose host is the test: each command goes out as it is, and what comes back is seen.

use diskside_nvme::auth::{Host, Names, Step};
use diskside_nvme::controller::{Connection, ConnectionConfig, Operation, Request};
use diskside_nvme::host::HostIdentity;
use diskside_nvme::pdu::{Decoder, Digests, Encoder, Header, Payload, Role, Step as Pdu};
use diskside_nvme::wire::{CONTROLLER_ID_DYNAMIC, ConnectData, IcReq, Sgl, Sqe};
use diskside_nvme::{Nqn, Segment, Status, Transmit};
use std::task::Waker;
use std::time::Instant;
use zerocopy::IntoBytes;

use super::support::medium::Fault;
use super::support::pair::{SUBSYSTEM, Target, bytes_of, random};

pub struct Queue {
    pub connection: Connection,
    decoder: Decoder,
    next_cid: u16,
    /// Work that is not done by itself, if the test wants to.
    pub holds_work: bool,
    pub work: Vec<Request>,
    /// Reads and writes are carried out, if the test wants to.
    pub serves: bool,
}

/// The answer to a command, and the data that came with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: Status,
    pub result: u64,
    pub data: Vec<u8>,
}

/// The data of a command.
#[derive(Clone, Copy, Debug)]
pub enum With<'a> {
    Nothing,
    InCapsule(&'a [u8]),
    /// Room for so many bytes, or so many bytes to be asked for.
    Transport(u32),
}

impl Queue {
    /// A connection that has said ICReq.
    pub fn new(target: &mut Target, now: Instant) -> Self {
        Self::of(target.accept(now), target, now)
    }

    /// One of a host that is part of the target's own process.
    pub fn trusted(target: &mut Target, now: Instant) -> Self {
        let config = ConnectionConfig { trusted: true, ..ConnectionConfig::default() };
        let connection = Connection::new(target.subsystems.clone(), config, Waker::noop().clone(), now);
        Self::of(connection, target, now)
    }

    fn of(connection: Connection, target: &mut Target, now: Instant) -> Self {
        let decoder = Decoder::new(Role::Host, 0, u32::MAX);
        let mut queue = Self { connection, decoder, next_cid: 0, holds_work: false, work: Vec::new(), serves: false };
        queue.exchange(target, now, IcReq::new(false, false).as_bytes());
        queue.decoder.negotiated(Digests::default());
        queue
    }

    pub fn connect(
        &mut self,
        target: &mut Target,
        now: Instant,
        queue_id: u16,
        cntlid: Option<u16>,
        host: &HostIdentity,
    ) -> Answer {
        let cntlid = cntlid.unwrap_or(CONTROLLER_ID_DYNAMIC);
        let subsystem = Nqn::new(SUBSYSTEM).unwrap();
        let data = ConnectData::new(host.id, cntlid, subsystem.to_field(), host.nqn.to_field());
        let sqe = Sqe::connect(queue_id, 32, true, 5000);
        self.command(target, now, sqe, With::InCapsule(data.as_bytes())).expect("Connect is answered")
    }

    /// Sends a command; `None`: it is not answered yet.
    pub fn command(&mut self, target: &mut Target, now: Instant, mut sqe: Sqe, with: With<'_>) -> Option<Answer> {
        self.next_cid += 1;
        sqe.set_cid(self.next_cid);
        let (sgl, payload) = match with {
            With::Nothing => (Sgl::transport(0), Payload::None),
            With::InCapsule(bytes) => (Sgl::in_capsule(bytes.len() as u32), Payload::Bytes(bytes)),
            With::Transport(len) => (Sgl::transport(len), Payload::None),
        };
        sqe.set_sgl(sgl);
        let mut out = Transmit::new();
        Encoder::new(Digests::default(), 0).command(&mut out, sqe, payload);
        let bytes: Vec<u8> = out
            .segments()
            .flat_map(|segment| match segment {
                Segment::Bytes(bytes) => bytes.to_vec(),
                Segment::Buffer(_) => panic!("all of it is bytes"),
            })
            .collect();
        self.exchange(target, now, &bytes)
    }

    /// Gives it bytes, does what it asks for, and returns the answer that comes, if one does.
    pub fn exchange(&mut self, target: &mut Target, now: Instant, bytes: &[u8]) -> Option<Answer> {
        let taken = self.connection.handle_bytes(now, bytes, &mut target.memory);
        assert_eq!(taken, bytes.len(), "all of it is taken");
        while let Some(request) = self.connection.poll_request() {
            match request {
                request if self.holds_work => self.work.push(request),
                Request { tag, operation: Operation::Authenticate(work), .. } => {
                    self.connection.computed(now, tag, work.run(&mut random));
                }
                request if self.serves => {
                    let tag = request.tag;
                    if let Some(done) = target.media.carry_out(request, &mut target.memory, Fault::None) {
                        self.connection.complete(now, tag, done, &mut target.memory);
                    }
                }
                other => panic!("nothing else is asked for here: {other:?}"),
            }
        }
        let mut transmit = Transmit::new();
        let mut answer = Answer { status: Status::SUCCESS, result: 0, data: Vec::new() };
        let mut is_answered = false;
        while self.connection.poll_transmit(&mut transmit) {
            let bytes = bytes_of(&mut transmit, &mut target.memory, true);
            self.connection.handle_transmitted(&mut transmit);
            let mut input = bytes.as_slice();
            loop {
                match self.decoder.step(&mut input).expect("the controller keeps to the protocol") {
                    Pdu::Starved => break,
                    Pdu::Header(Header::Response(cqe)) => {
                        assert!(!is_answered, "one answer at a time");
                        is_answered = true;
                        (answer.status, answer.result) = (cqe.status(), cqe.result());
                    }
                    Pdu::Header(Header::C2hData { success, .. }) => is_answered |= success,
                    Pdu::Header(Header::IcResp(_)) | Pdu::End { .. } => {}
                    Pdu::Data(bytes) => answer.data.extend_from_slice(bytes),
                    Pdu::Header(header) => panic!("it asks for nothing, and says nothing else: {header:?}"),
                }
            }
        }
        is_answered.then_some(answer)
    }

    pub fn send(&mut self, target: &mut Target, now: Instant, message: &[u8]) -> Option<Answer> {
        let sqe = Sqe::authentication_send(message.len() as u32);
        self.command(target, now, sqe, With::InCapsule(message))
    }

    pub fn receive(&mut self, target: &mut Target, now: Instant) -> Answer {
        let sqe = Sqe::authentication_receive(4096);
        self.command(target, now, sqe, With::Transport(4096)).expect("it is answered")
    }

    /// Authenticates, step by step; `between` is called after each, and in front of the first, until it is done.
    pub fn authenticate(
        &mut self,
        target: &mut Target,
        now: Instant,
        mut host: Host,
        mut between: impl FnMut(&mut Self, &mut Target),
    ) -> Result<(), diskside_nvme::auth::AuthError> {
        let mut step = host.start();
        loop {
            between(self, target);
            step = match step {
                Step::Send(message) => {
                    let answer = self.send(target, now, &message).expect("it is answered");
                    assert!(answer.status.is_success(), "{answer:?}");
                    host.sent()
                }
                Step::Receive(_) => {
                    let answer = self.receive(target, now);
                    assert!(answer.status.is_success(), "{answer:?}");
                    host.received(&answer.data)
                }
                Step::Compute(work) => host.computed(work.run(&mut random)),
                over => over,
            };
            // After the last word nothing is between.
            match step {
                Step::Authenticated => return Ok(()),
                Step::Failed(error) => return Err(error),
                _ => {}
            }
        }
    }
}

/// What the host of these names says.
pub fn host_of(names: Names, two_way: bool) -> Host {
    Host::new(names, super::credentials(two_way), 0)
}
