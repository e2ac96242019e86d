//! Runs cases.

use std::time::Instant;

use diskside_nvme::controller::{
    BlockSize, CommandSet, Completion, Connection, MediumId, Namespace, Operation, PathState, Request, State,
    SubsystemConfig,
};
use diskside_nvme::pdu::{Decoder, Digests, Encoder, Header, Payload, Role, Step as Pdu};
use diskside_nvme::wire::{Cc, ConnectData, FatalError, IcReq, Sgl, Sqe, pdu_flags, property};
use diskside_nvme::{DISCOVERY_NQN, Nqn, Segment, Status, Transmit};
use zerocopy::IntoBytes;

use super::cases::{self, Case, Spoil, Step};
use super::support::medium::Fault;
use super::support::pair::{SUBSYSTEM, Target, bytes_of, identity, namespace};

/// Runs all cases of a file, of which there must be at least `at_least`.
pub fn file(name: &str, text: &str, at_least: usize) {
    let cases = cases::parse(text);
    assert!(cases.len() >= at_least, "{name} has only {} cases", cases.len());
    let mut failures = Vec::new();
    for case in &cases {
        for split in [usize::MAX, 1] {
            if let Err(problem) = run(case, split) {
                failures.push(format!("{name}:{} {}", problem.0, format_args!("{}: {}", case.name, problem.1)));
                break;
            }
        }
    }
    assert!(failures.is_empty(), "{} of {} cases failed:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

/// A connection, and what it said that was not yet looked at.
struct Bench {
    now: Instant,
    target: Target,
    connection: Connection,
    /// Keeps the controller of an I/O queue alive.
    admin: Option<Connection>,
    decoder: Decoder,
    digests: Digests,
    said: Vec<String>,
    transmit: Transmit,
    /// Bytes are given in pieces of this length.
    split: usize,
    requests: Vec<Request>,
    fabrics: bool,
}

fn run(case: &Case, split: usize) -> Result<(), (usize, String)> {
    let mut bench = Bench::new(case, split);
    for (line, step) in &case.steps {
        match step {
            Step::Send(bytes) => bench.send(bytes),
            Step::Command { sqe, data, spoil } => {
                let pdu = bench.pdu(*spoil, |encoder, out, data| encoder.command(out, *sqe, data), data);
                bench.send(&pdu);
            }
            Step::H2cData { header, last, data, spoil } => {
                let flags = if *last { pdu_flags::LAST } else { 0 };
                let pdu = bench.pdu(*spoil, |encoder, out, data| encoder.put(out, header, flags, data), data);
                bench.send(&pdu);
            }
            Step::Medium(what) => bench.medium(what).map_err(|problem| (*line, problem))?,
            Step::Path(state) => bench.path(state).map_err(|problem| (*line, problem))?,
            Step::Want(want) => bench.want(want).map_err(|problem| (*line, problem))?,
        }
    }
    bench.want("nothing").map_err(|problem| (case.line, problem))?;
    bench.connection.handle_close(&mut bench.target.memory);
    // What the medium answers after the end is released at once.
    for request in bench.requests.drain(..) {
        let tag = request.tag;
        if let Some(answer) = bench.target.media.carry_out(request, &mut bench.target.memory, Fault::None) {
            bench.connection.complete(bench.now, tag, answer, &mut bench.target.memory);
        }
    }
    match bench.target.memory.in_use() {
        0 => Ok(()),
        leaked => Err((case.line, format!("{leaked} buffers were not given back"))),
    }
}

/// A target with a volume of 16,384 blocks of 512 bytes (namespace 1), a read-only one of 256 blocks of 4,096 (2), a
/// compute namespace with vendor's commands 81h, 82h, 84h and 87h (4), and a small volume of 16 blocks (5).
fn target() -> Target {
    let config = SubsystemConfig {
        transfer_len_max: 64 << 10,
        io_queues_max: 4,
        command_sets: vec![CommandSet {
            csi: 4,
            io_commands: vec![(0x81, 0), (0x82, 0), (0x84, 0), (0x87, 0)],
            admin_commands: vec![(0x85, 0), (0x88, 0)],
            log_pages: vec![0xc0],
            identify: true,
        }],
        ..SubsystemConfig::new(Nqn::new(SUBSYSTEM).unwrap(), "S1")
    };
    let mut target = Target::with_config(config);
    target.add(1, 16_384, BlockSize::B512);
    let medium = target.media.add(256 << 12);
    let read_only = Namespace { read_only: true, ..namespace(2, medium, 256, BlockSize::B4096) };
    target.subsystem.add_namespace(read_only).unwrap();
    let compute = Namespace { csi: 4, blocks: 0, ..namespace(4, MediumId(99), 0, BlockSize::B512) };
    target.subsystem.add_namespace(compute).unwrap();
    target.add(5, 16, BlockSize::B512);
    target.config.r2t_len_max = 32 << 10;
    target.config.h2c_data_len_max = 16 << 10;
    target.config.listener = Some(0);
    target
}

impl Bench {
    fn new(case: &Case, split: usize) -> Self {
        let target = target();
        let now = Instant::now();
        let mut bench = Self {
            now,
            connection: target.accept(now),
            admin: None,
            target,
            decoder: Decoder::new(Role::Host, 0, u32::MAX),
            digests: Digests::default(),
            said: Vec::new(),
            transmit: Transmit::new(),
            split: usize::MAX,
            requests: Vec::new(),
            fabrics: true,
        };
        let has = |word: &str| case.on.iter().any(|on| on == word);
        let state = case.on.first().map(String::as_str).unwrap_or_else(|| panic!("line {}: on what?", case.line));
        let digests = Digests { header: has("hdgst"), data: has("ddgst") };
        let hpda = case.on.iter().find_map(|word| word.strip_prefix("hpda=")).map_or(0, |text| text.parse().unwrap());
        match state {
            "fresh" => {}
            "initialized" => bench.initialize(digests, hpda),
            "admin" => {
                bench.initialize(digests, hpda);
                bench.connect(0, SUBSYSTEM, 0xffff, false);
            }
            "enabled" => bench.enable(SUBSYSTEM),
            "discovery" => bench.enable(DISCOVERY_NQN),
            "io" => {
                bench.enable(SUBSYSTEM);
                let cntlid = bench.connection.controller_id().unwrap();
                let io = bench.target.accept(now);
                bench.admin = Some(std::mem::replace(&mut bench.connection, io));
                bench.decoder = Decoder::new(Role::Host, 0, u32::MAX);
                bench.initialize(digests, hpda);
                bench.connect(1, SUBSYSTEM, cntlid, has("flow"));
                bench.fabrics = false;
            }
            state => panic!("line {}: {state}?", case.line),
        }
        bench.fabrics &= !matches!(state, "enabled");
        if has("inaccessible") {
            bench.path("inaccessible").expect("the state is known");
        }
        bench.said.clear();
        bench.split = split;
        bench
    }

    fn initialize(&mut self, digests: Digests, hpda: u8) {
        let mut request = IcReq::new(digests.header, digests.data);
        request.alignment = hpda;
        self.send(request.as_bytes());
        self.decoder.negotiated(digests);
        self.digests = digests;
        self.said.clear();
    }

    fn connect(&mut self, queue_id: u16, subsystem: &str, cntlid: u16, flow: bool) {
        let entries = if queue_id == 0 { 32 } else { 4 };
        let mut sqe = Sqe::connect(queue_id, entries, !flow, 0);
        sqe.set_cid(0xfff0);
        sqe.set_sgl(Sgl::in_capsule(1024));
        let host = identity();
        let data = ConnectData::new(host.id, cntlid, Nqn::new(subsystem).unwrap().to_field(), host.nqn.to_field());
        let pdu = self.pdu(Spoil::Nothing, |encoder, out, data| encoder.command(out, sqe, data), data.as_bytes());
        self.send(&pdu);
        assert_eq!(self.connection.state(), State::Live, "{:?}", self.said);
    }

    fn enable(&mut self, subsystem: &str) {
        self.initialize(Digests::default(), 0);
        self.connect(0, subsystem, 0xffff, false);
        let cc = Cc::default().with_enable(1).with_css(6).with_iosqes(6).with_iocqes(4);
        let mut sqe = Sqe::property_set(property::CC, false, cc.0.into());
        sqe.set_cid(0xfff1);
        let pdu = self.pdu(Spoil::Nothing, |encoder, out, data| encoder.command(out, sqe, data), &[]);
        self.send(&pdu);
    }

    /// A PDU as it goes over the wire, with the digests that are in use, or with one of them wrong.
    fn pdu(&self, spoil: Spoil, write: impl FnOnce(&Encoder, &mut Transmit, Payload<'_>), data: &[u8]) -> Vec<u8> {
        let mut out = Transmit::new();
        let payload = if data.is_empty() { Payload::None } else { Payload::Bytes(data) };
        write(&Encoder::new(self.digests, 0), &mut out, payload);
        let mut bytes: Vec<u8> = Vec::new();
        for segment in out.segments() {
            match segment {
                Segment::Bytes(part) => bytes.extend_from_slice(part),
                Segment::Buffer(_) => panic!("all of it is bytes"),
            }
        }
        let header_len = usize::from(bytes[2]);
        match spoil {
            Spoil::Nothing => {}
            Spoil::HeaderDigest => bytes[header_len] ^= 1,
            Spoil::DataDigest => *bytes.last_mut().expect("there is a digest") ^= 1,
        }
        bytes
    }

    fn send(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let piece = &rest[..rest.len().min(self.split)];
            let taken = self.connection.handle_bytes(self.now, piece, &mut self.target.memory);
            rest = &rest[taken..];
            while let Some(request) = self.connection.poll_request() {
                self.requests.push(request);
            }
            self.listen();
            assert!(taken > 0, "the connection takes no more input");
        }
    }

    /// Takes down what the connection says.
    fn listen(&mut self) {
        while self.connection.poll_transmit(&mut self.transmit) {
            let bytes = bytes_of(&mut self.transmit, &mut self.target.memory, true);
            self.connection.handle_transmitted(&mut self.transmit);
            let mut input = bytes.as_slice();
            loop {
                let header = match self.decoder.step(&mut input).expect("a controller speaks correctly") {
                    Pdu::Starved => break,
                    Pdu::Header(header) => header,
                    Pdu::Data(_) => continue,
                    Pdu::End { intact } => {
                        assert!(intact, "a controller's digests are right");
                        continue;
                    }
                };
                self.said.push(self.describe(&header));
            }
        }
    }

    fn describe(&self, header: &Header) -> String {
        match header {
            Header::IcResp(response) => format!(
                "ICResp hdgst={} ddgst={} maxh2cdata={}",
                u8::from(response.header_digest()),
                u8::from(response.data_digest()),
                response.h2c_data_max.get()
            ),
            Header::Response(cqe) => {
                let status = cqe.status();
                let name = status.name_for(self.fabrics).unwrap_or("?");
                let mut text = if status.is_success() { "ok".to_owned() } else { name.to_owned() };
                if status.do_not_retry() {
                    text.push_str(", dnr");
                }
                if cqe.result() != 0 {
                    text.push_str(&format!(", result={:x}", cqe.result()));
                }
                if cqe.sqhd() != 0 {
                    text.push_str(&format!(", sqhd={:x}", cqe.sqhd()));
                }
                text
            }
            Header::C2hData { offset, len, last, success, .. } => {
                let mut text = format!("data {offset} {len}");
                if *last {
                    text.push_str(" last");
                }
                if *success {
                    text.push_str(" success");
                }
                text
            }
            Header::R2t { ttag, offset, len, .. } => format!("R2T {ttag} {offset} {len}"),
            Header::TermReq(error) => {
                let (fes, fei) = FatalError::to_fields(*error);
                format!("terminate {fes} {fei}")
            }
            header => panic!("a controller does not send {header:?}"),
        }
    }

    fn want(&mut self, want: &str) -> Result<(), String> {
        if want == "closed" {
            let state = self.connection.state();
            return if state == State::Closed { Ok(()) } else { Err(format!("it is {state:?}")) };
        }
        if want == "nothing" {
            return if self.said.is_empty() { Ok(()) } else { Err(format!("it also said: {}", self.said.join("; "))) };
        }
        if self.said.is_empty() {
            return Err(format!("wanted {want:?}, it said nothing (and asks the medium {:?})", self.requests));
        }
        let said = self.said.remove(0);
        if said != want {
            return Err(format!("wanted {want:?}, it said {said:?}"));
        }
        if want.starts_with("terminate") {
            return self.want("closed");
        }
        Ok(())
    }

    /// The state of the path changes.
    fn path(&mut self, state: &str) -> Result<(), String> {
        let state = match state {
            "optimized" => PathState::Optimized,
            "non-optimized" => PathState::NonOptimized,
            "inaccessible" => PathState::Inaccessible,
            state => return Err(format!("path {state}?")),
        };
        self.target.subsystem.set_path_states(vec![state]);
        self.connection.handle_wake(self.now);
        self.listen();
        Ok(())
    }

    fn medium(&mut self, what: &str) -> Result<(), String> {
        if self.requests.is_empty() {
            return Err("the medium was not asked for anything".into());
        }
        let request = self.requests.remove(0);
        let tag = request.tag;
        let memory = &mut self.target.memory;
        let completion = match (what, &request.operation) {
            ("ok", Operation::Other(other)) => {
                let answer = Completion::bytes(vec![0xab; other.answer_len_max.min(16) as usize]).with_result(0x55);
                if let Some(data) = other.data {
                    memory.remove(data.buffer);
                }
                answer
            }
            ("ok", _) => self.target.media.carry_out(request, memory, Fault::None).expect("it is answered"),
            ("EIO", _) => self.target.media.carry_out(request, memory, Fault::Io).expect("it is answered"),
            ("ENOSPC", _) => self.target.media.carry_out(request, memory, Fault::NoSpace).expect("it is answered"),
            ("vanishes", _) => {
                drop(self.target.media.carry_out(request, memory, Fault::Io));
                Status::INTERNAL_ERROR.into()
            }
            (what, _) => return Err(format!("medium {what}?")),
        };
        self.connection.complete(self.now, tag, completion, &mut self.target.memory);
        self.listen();
        Ok(())
    }
}
