//! A host that runs functions: requests in, results and trailers out.

use std::collections::BTreeMap;

use crate::common::{Answer, Controller, HOST, Queue, builder};
use diskside_engine::{Call, Engine, Function, Sink, Source};
use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_server::config::{FunctionRule, GrantSpec, MemoryRight, Mode, VolumeSpec};
use diskside_server::{Running, TargetBuilder};
use diskside_wire::function::{
    Endpoint, EndpointKind, ErrorRecord, ErrorRecordsPage, FunctionCommand, FunctionKind, FunctionRequest, Outcome,
    ProgramDirectory, ReceiveAnswer, Trailer, function_log,
};

/// Namespace ID of the compute namespace.
pub(crate) const COMPUTE: u32 = 1024;
/// Namespace ID of the volume.
pub(crate) const VOLUME: u32 = 1;

/// Where the sources of programs are; messages name them so.
pub(crate) const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/compute/");

/// A target with one volume of memory, namespace 1.
pub(crate) fn target(mib: u64) -> Running {
    start(builder().volume(VolumeSpec::new("data", format!("mem:{mib}MiB")).writable()))
}

/// Every host may use everything, and all have one device memory together.
pub(crate) fn shared_memory() -> GrantSpec {
    let all = || BTreeMap::from([("*".to_owned(), Mode::ReadWrite)]);
    GrantSpec {
        to: vec!["*".to_owned()],
        volumes: all(),
        exports: all(),
        functions: vec![FunctionRule::Any],
        state: Vec::new(),
        memory: Some(MemoryRight::Shared),
        statistics: true,
    }
}

pub(crate) fn start(builder: TargetBuilder) -> Running {
    builder.build().unwrap().start().unwrap()
}

pub(crate) struct Client {
    pub(crate) controller: Controller,
    pub(crate) queue: Queue,
    last_tag: u64,
}

impl Client {
    pub(crate) fn connect(running: &Running) -> Self {
        Self::connect_as(running, HOST)
    }

    pub(crate) fn connect_as(running: &Running, host: &str) -> Self {
        Self::of(Controller::connect_as(running.handle(), host, 0).unwrap())
    }

    pub(crate) fn connect_loop(running: &Running) -> Self {
        Self::of(Controller::connect_loop(running))
    }

    fn of(mut controller: Controller) -> Self {
        controller.enable(6);
        let queue = controller.io_queue(1, 64);
        Self { controller, queue, last_tag: 0 }
    }

    /// Writes bytes to the start of the volume.
    pub(crate) fn fill(&mut self, bytes: &[u8]) {
        for (index, part) in bytes.chunks(512 << 10).enumerate() {
            let mut blocks = part.to_vec();
            blocks.resize(part.len().next_multiple_of(4096), 0);
            self.queue.write(VOLUME, index as u64 * 128, &blocks).ok();
        }
    }

    pub(crate) fn tag(&mut self) -> u64 {
        self.last_tag += 1;
        self.last_tag
    }

    /// Index of the shipped program of this name.
    pub(crate) fn pind(&mut self, name: &str) -> u16 {
        let programs = self.programs();
        let program = programs.iter().find(|program| program.name() == name);
        program.unwrap_or_else(|| panic!("no program {name}")).pind.get()
    }

    pub(crate) fn programs(&mut self) -> Vec<diskside_wire::function::ProgramEntry> {
        ProgramDirectory::decode(&self.log(function_log::PROGRAMS, 0)).unwrap().1
    }

    pub(crate) fn errors(&mut self) -> Vec<ErrorRecord> {
        ErrorRecordsPage::decode(&self.log(function_log::ERRORS, 0)).unwrap()
    }

    /// The newest error record: the byte of the data that it names, and its text without the directory of sources.
    pub(crate) fn said(&mut self) -> (Option<u32>, String) {
        let record = self.errors().swap_remove(0);
        (record.location, record.message.replace(SOURCES, ""))
    }

    /// Sends a request, which is refused when it comes, with this status and this text.
    #[track_caller]
    pub(crate) fn is_refused(&mut self, kind: FunctionKind, request: &FunctionRequest, status: Status, told: &str) {
        let tag = self.tag();
        let answer = self.send_as(tag, kind, request);
        assert_eq!(answer.status, status, "sent as {kind:?}: {request:?}");
        let (location, said) = self.said();
        assert_eq!(said, if told.is_empty() { status.to_string() } else { told.to_owned() }, "sent as {kind:?}");
        let named = said.strip_prefix("byte ").and_then(|rest| rest.split_once(" of the data")).map(|(at, _)| at);
        assert_eq!(location.map(|at| at.to_string()).as_deref(), named, "{said}");
    }

    pub(crate) fn log(&mut self, lid: u8, specific_id: u16) -> Vec<u8> {
        let sqe = Sqe::get_log_page(lid, 0, 256 << 10, 0, false).with_log_specific_id(specific_id);
        self.controller.admin.command(sqe, None, 256 << 10).ok()
    }

    /// A request that reads a range of the volume.
    pub(crate) fn over(&mut self, name: &str, args: &[(&str, &str)], len: u64) -> FunctionRequest {
        let args = encode(&function(name), args);
        let pind = self.pind(name);
        FunctionRequest {
            args,
            sources: vec![Endpoint::new(EndpointKind::Volume(VOLUME), 0, len)],
            ..FunctionRequest::new(FunctionKind::Read, pind)
        }
    }

    /// Sends a request.
    pub(crate) fn send(&mut self, tag: u64, request: &FunctionRequest) -> Answer {
        let kind = request.kind;
        self.send_as(tag, kind, request)
    }

    pub(crate) fn send_as(&mut self, tag: u64, kind: FunctionKind, request: &FunctionRequest) -> Answer {
        let bytes = request.encode();
        let sqe = Sqe::function_send(COMPUTE, kind, tag, 0, bytes.len() as u32).with_first().with_last();
        self.queue.command(sqe, Some(&bytes), 0)
    }

    pub(crate) fn post_receive(&mut self, tag: u64, offset: u64, len: u32, timeout_ms: u32) -> u16 {
        let sqe = Sqe::function_receive(COMPUTE, tag, offset, len, timeout_ms);
        self.queue.post(sqe, None, len as usize).unwrap()
    }

    pub(crate) fn receive(&mut self, tag: u64, offset: u64, len: u32, timeout_ms: u32) -> Received {
        let cid = self.post_receive(tag, offset, len, timeout_ms);
        Received::of(self.queue.wait(cid).unwrap())
    }

    /// The result and the trailer of a tag, from `offset` on.
    pub(crate) fn finish(&mut self, tag: u64) -> (Vec<u8>, Trailer) {
        let mut result = Vec::new();
        loop {
            let received = self.receive(tag, result.len() as u64, 256 << 10, 10_000);
            result.extend_from_slice(&received.bytes);
            if let Some(trailer) = received.trailer {
                return (result, trailer);
            }
            assert!(!received.answer.end, "the end comes with its trailer");
        }
    }

    /// Sends a request and receives all that comes of it.
    pub(crate) fn run(&mut self, request: &FunctionRequest) -> (Vec<u8>, Trailer) {
        let tag = self.tag();
        self.send(tag, request).ok();
        self.finish(tag)
    }

    /// The result of a request that ends well.
    pub(crate) fn result(&mut self, request: &FunctionRequest) -> Vec<u8> {
        let (result, trailer) = self.run(request);
        assert_eq!(trailer.outcome, Outcome::Ok, "{}", trailer.message);
        assert_eq!(trailer.result_len, result.len() as u64);
        result
    }

    /// Prepares a request and gives its handle.
    pub(crate) fn prepare(&mut self, request: &FunctionRequest) -> u32 {
        let tag = self.tag();
        let answer = self.send_as(tag, FunctionKind::Prepare, request);
        assert!(answer.status.is_success(), "{}", answer.status);
        answer.result as u32
    }

    pub(crate) fn call(&mut self, handle: u32, args: &[u8], len: u32) -> Answer {
        let sqe = Sqe::function_call(COMPUTE, handle, args, len, 0);
        self.queue.command(sqe, None, len as usize)
    }

    /// Loads and activates a program, in parts.
    pub(crate) fn load(&mut self, pind: u16, object: &[u8]) -> Answer {
        let mut offset = 0;
        for part in object.chunks(6000) {
            let sqe = Sqe::load_program(COMPUTE, pind, object.len() as u32, offset, part.len() as u32);
            let answer = self.controller.admin.command(sqe, Some(part), 0);
            offset += part.len() as u32;
            if !answer.status.is_success() || offset as usize == object.len() {
                return answer;
            }
        }
        unreachable!("an object has bytes")
    }

    /// Whether this host could load a program at an index: no other one has it.
    pub(crate) fn can_load_at(&mut self, pind: u16) -> bool {
        let begin = Sqe::load_program(COMPUTE, pind, 100, 0, 10);
        let answer = self.controller.admin.command(begin, Some(&[0; 10]), 0);
        if answer.status.is_success() {
            self.controller.admin.command(Sqe::unload_program(COMPUTE, pind), None, 0).ok();
        } else {
            assert_eq!(answer.status, Status::PROGRAM_IN_USE.dnr());
        }
        answer.status.is_success()
    }

    pub(crate) fn activate(&mut self, pind: u16, activate: bool) -> Answer {
        self.controller.admin.command(Sqe::activate_program(COMPUTE, pind, activate), None, 0)
    }
}

/// What a Receive brought.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) answer: ReceiveAnswer,
    pub(crate) bytes: Vec<u8>,
    pub(crate) trailer: Option<Trailer>,
}

impl Received {
    pub(crate) fn of(answer: Answer) -> Self {
        let result = answer.result;
        let data = answer.ok();
        let answer = ReceiveAnswer::from_result(result).unwrap();
        let (bytes, rest) = data.split_at(answer.result_len as usize);
        let trailer = &rest[..answer.trailer_len.into()];
        let trailer = (!trailer.is_empty()).then(|| Trailer::decode(trailer).unwrap());
        Self { answer, bytes: bytes.to_vec(), trailer }
    }
}

pub(crate) fn engine() -> &'static Engine {
    static ENGINE: std::sync::OnceLock<Engine> = std::sync::OnceLock::new();
    ENGINE.get_or_init(|| Engine::new(diskside_sbpf::helpers::standard()))
}

/// A shipped function.
pub(crate) fn function(name: &str) -> Function {
    let shipped = diskside_functions::shipped().iter().find(|shipped| shipped.name == name).unwrap();
    engine().load(shipped.object, Some(name)).unwrap()
}

pub(crate) fn encode(function: &Function, args: &[(&str, &str)]) -> Vec<u8> {
    let args: Vec<_> = args.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    function.args().map_or_else(Vec::new, |schema| diskside_engine::args::encode(schema, &args).unwrap())
}

/// What the function gives here, over the same bytes.
pub(crate) fn locally(name: &str, args: &[(&str, &str)], bytes: &[u8]) -> Vec<u8> {
    let function = function(name);
    let source = Source::Bytes { name: "here".into(), bytes: bytes.into() };
    let call = Call::new(&function, vec![source], encode(&function, args));
    engine().run(&call, &mut Sink::Memory).unwrap().result
}

/// Runs of 64 and different bytes, as `bitmap` takes them: it makes 32 times as much of them.
pub(crate) fn runs(len: usize) -> Vec<u8> {
    (0..len / 2).flat_map(|run| [64, (run * 31) as u8]).collect()
}

/// The object of a shipped function.
pub(crate) fn object(name: &str) -> &'static [u8] {
    diskside_functions::shipped().iter().find(|shipped| shipped.name == name).unwrap().object
}
