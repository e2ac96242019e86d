//! Rights that are taken away under calls that run, and under results that nobody fetched yet.
//!
//! A change of the configuration was a change for later calls alone. One that ran already went on to its end with a file, a volume,
//! a program or a state that its host had no right to any more, and all of its result was sent. Now it ends, and nothing more is sent.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::client::{COMPUTE, Client, Received, VOLUME, locally, start};
use crate::common::{Answer, NQN, builder, pattern};
use crate::standard::{MEMORY, compiled, range};
use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_nvme::wire::memory::Execution;
use diskside_server::Running;
use diskside_server::config::{ServeConfig, Settings, Size, VolumeSpec};
use diskside_volume::media::{FaultPlan, FaultyMedium, MemoryMedium};
use diskside_wire::file::{FileFlags, FileHandle, FileRequest};
use diskside_wire::function::{
    Endpoint, EndpointKind, FunctionCommand, FunctionKind, FunctionRequest, Outcome, Placement, StateName,
    StatisticsPage, Trailer, function_log,
};
use zerocopy::IntoBytes;

const ANN: &str = "nqn.2026-11.org.example:ann";
const BOB: &str = "nqn.2026-11.org.example:bob";
const SLOW: u32 = 9;
/// Where a program is that copies its input, or computes for ever.
const COPIES: u16 = 100;
const ENDLESS: u16 = 101;
const COUNTS: u16 = 102;
const SELECTS: u16 = 103;
const WALKS: u16 = 104;
const REREADS: u16 = 105;
const FOR_EVER: u64 = 2;
const LEN: usize = 8 << 20;
const PART: u32 = 256 << 10;
/// Memory of an execution. The budget of a program grows with it: this is enough for minutes.
const TAKEN_LEN: u32 = 32 << 20;
/// Longer than a call takes to hear that it must stop, and less than any that nobody stops.
const SOON: Duration = Duration::from_secs(15);
/// A Function Call ends by itself after this.
const CALL_MAX: Duration = Duration::from_secs(10);
const ACCESS: i64 = -13;
const STALE: i64 = -116;

const VOLUMES: &str = "volumes = { data = 'rw' }\n";
const EXPORTS: &str = "exports = { logs = 'rw' }\n";
const READS_EXPORTS: &str = "exports = { logs = 'r' }\n";
const FUNCTIONS: &str = "functions = ['any']\n";
const SHARED: &str = "state = ['shared/*']\n";
const REST: &str = "memory = 'own'\nstatistics = true\n";

/// A target with a volume and an export, and two hosts that may use all of it.
struct Lab {
    running: Running,
    dir: tempfile::TempDir,
    bytes: Vec<u8>,
}

impl Lab {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // Its first byte has the program that computes for ever do so.
        let bytes = [vec![1], pattern(LEN - 1, 3)].concat();
        std::fs::write(dir.path().join("x"), &bytes).unwrap();
        std::fs::write(dir.path().join("out"), b"old").unwrap();
        let all = [VOLUMES, EXPORTS, FUNCTIONS, SHARED, REST].concat();
        let config = config(dir.path(), &[(ANN, &all), (BOB, &all)]);
        let running = start(builder().config(config).compute(|compute| {
            (compute.execution_ms, compute.memory_wait_ms) = (3_600_000, 2_000);
        }));
        let lab = Self { running, dir, bytes };
        lab.connect(BOB).fill(&lab.bytes);
        lab
    }

    fn connect(&self, host: &str) -> Client {
        Client::connect_as(&self.running, host)
    }

    /// A host with the programs.
    fn with_programs(&self, host: &str) -> Client {
        let mut client = self.connect(host);
        let first = if host == ANN { 0 } else { 50 };
        for (pind, name) in [(COPIES, "late"), (ENDLESS, "endless"), (COUNTS, "state"), (SELECTS, "select")] {
            client.load(pind + first, &compiled(name)).ok();
            client.activate(pind + first, true).ok();
        }
        client
    }

    /// Leaves one of two hosts these rights, and the other all.
    fn leave_ann(&self, rights: &[&str]) {
        let all = [VOLUMES, EXPORTS, FUNCTIONS, SHARED, REST].concat();
        let config = config(self.dir.path(), &[(ANN, &rights.concat()), (BOB, &all)]);
        self.running.handle().reload(&config).unwrap();
    }
}

fn config(dir: &Path, grants: &[(&str, &str)]) -> ServeConfig {
    let mut text = format!(
        "nqn = '{NQN}'\nlisten = ['127.0.0.1:0']\n\
         [[volume]]\nname = 'data'\npath = 'mem:8MiB'\nrw = true\nnsid = {VOLUME}\n\
         [[export]]\nname = 'logs'\npath = '{}'\nrw = true\n",
        dir.display()
    );
    hosts(&mut text, grants);
    resolved(&text)
}

fn hosts(text: &mut String, grants: &[(&str, &str)]) {
    for (nqn, _) in grants {
        let name = nqn.rsplit(':').next().unwrap();
        writeln!(text, "[[host]]\nname = '{name}'\nnqn = '{nqn}'").unwrap();
    }
    for (nqn, rights) in grants {
        writeln!(text, "[[grant]]\nto = ['{nqn}']\n{rights}").unwrap();
    }
}

fn resolved(text: &str) -> ServeConfig {
    ServeConfig::resolve(Settings::from_toml(text, "a test").unwrap()).unwrap()
}

fn volume() -> Endpoint {
    Endpoint::whole(EndpointKind::Volume(VOLUME))
}

fn of_file(file: FileHandle) -> Endpoint {
    Endpoint { generation: file.generation, ..Endpoint::whole(EndpointKind::File(file.id)) }
}

/// Copies a source: to its host, or to a sink.
fn copies(source: Endpoint, sink: Option<Endpoint>) -> FunctionRequest {
    let kind = if sink.is_some() { FunctionKind::Write } else { FunctionKind::Read };
    let (sources, sinks) = (vec![source], sink.into_iter().collect());
    FunctionRequest { args: vec![0; 8], sources, sinks, chunk_len: 64 << 10, ..FunctionRequest::new(kind, COPIES) }
}

/// Computes for ever over a source.
fn loops(source: Endpoint) -> FunctionRequest {
    FunctionRequest { args: FOR_EVER.to_le_bytes().to_vec(), budget: u64::MAX, ..copies(source, None) }
}

impl Client {
    fn open_to(&mut self, path: &str, flags: FileFlags) -> Endpoint {
        of_file(self.open(path, flags))
    }

    /// Waits until a call computes.
    fn await_computing(&mut self) {
        self.await_page(|page| page.engines_busy.get() > 0);
    }

    /// Waits until none does.
    fn await_idle(&mut self) {
        self.await_page(|page| page.engines_busy.get() == 0);
    }

    fn await_page(&mut self, is_so: impl Fn(&StatisticsPage) -> bool) {
        let began = Instant::now();
        loop {
            let page = StatisticsPage::decode(&self.log(function_log::STATISTICS, 0)).unwrap().0;
            if is_so(&page) {
                return;
            }
            assert!(began.elapsed() < SOON, "{page:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sends a request and takes the first part of its result.
    fn begin(&mut self, request: &FunctionRequest) -> (u64, Vec<u8>) {
        let tag = self.tag();
        self.send(tag, request).ok();
        let first = self.receive(tag, 0, PART, 10_000);
        assert!(!first.answer.end && !first.bytes.is_empty(), "{first:?}");
        (tag, first.bytes)
    }

    /// Has a program executed over the start of the memory; gives the command.
    fn execute_later(&mut self, execution: Execution) -> u16 {
        let sqe = Sqe::execute_program(COMPUTE, &Execution { ranges: 1, data_len: 32, ..execution });
        self.queue.post(sqe, Some(range(0, TAKEN_LEN).as_bytes()), 0).unwrap()
    }

    /// The rest of a result, behind what came of it.
    fn rest(&mut self, tag: u64, mut result: Vec<u8>) -> (Vec<u8>, Trailer) {
        loop {
            let received = self.receive(tag, result.len() as u64, PART, 10_000);
            result.extend_from_slice(&received.bytes);
            if let Some(trailer) = received.trailer {
                return (result, trailer);
            }
            assert!(!received.answer.end, "the end comes with its trailer");
        }
    }

    /// The next Receive of a call whose host lost a right brings its end, and no bytes.
    #[track_caller]
    fn ends_without(&mut self, tag: u64, result: &[u8], returned: i64, told: &str) {
        let received = self.receive(tag, result.len() as u64, PART, 10_000);
        assert!(received.bytes.is_empty(), "{} bytes more", received.bytes.len());
        lost(&received, returned, told);
        assert_eq!(received.trailer.unwrap().result_len, result.len() as u64);
    }
}

#[track_caller]
fn lost(received: &Received, returned: i64, told: &str) {
    let trailer = received.trailer.as_ref().unwrap_or_else(|| panic!("it goes on: {:?}", received.answer));
    assert_eq!((trailer.outcome, trailer.returned, &*trailer.message), (Outcome::Media, returned, told));
}

#[track_caller]
fn call_lost(answer: Answer, told: &str) {
    lost(&Received::of(answer), ACCESS, told);
}

/// 336 MB of an export came after the reload that took it away.
#[test]
fn a_stream_over_an_export_ends_with_the_right_to_it_and_that_of_another_host_does_not() {
    let lab = Lab::new();
    let (mut ann, mut bob) = (lab.with_programs(ANN), lab.with_programs(BOB));
    let begin = |client: &mut Client, pind| {
        let file = client.open_to("logs/x", FileFlags::READ);
        client.begin(&FunctionRequest { pind, ..copies(file, None) })
    };
    let ((tag, first), (bobs, bob_first)) = (begin(&mut ann, COPIES), begin(&mut bob, COPIES + 50));
    let waits = ann.open_to("logs/x", FileFlags::READ);
    let waiting = ann.tag();
    ann.send(waiting, &loops(waits)).ok();
    let receive = ann.post_receive(waiting, 0, PART, 10_000);
    ann.await_computing();

    lab.leave_ann(&[VOLUMES, FUNCTIONS, SHARED, REST]);
    let told = "this host may not use export logs any more";
    ann.ends_without(tag, &first, ACCESS, told);
    // A Receive that waits is answered.
    lost(&Received::of(ann.queue.wait(receive).unwrap()), ACCESS, told);
    let (result, trailer) = bob.rest(bobs, bob_first);
    assert_eq!((trailer.outcome, result.len()), (Outcome::Ok, LEN), "{}", trailer.message);
    assert!(result == lab.bytes);
    bob.await_idle();
}

/// Both ways of it: from one host, and from all, whose calls then tell that there is no such export.
#[test]
fn a_call_over_an_export_that_is_not_served_any_more_ends() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("x"), pattern(LEN, 4)).unwrap();
    let without = format!("nqn = '{NQN}'\nlisten = ['127.0.0.1:0']\n[[volume]]\nname = 'data'\npath = 'mem:1MiB'\n");
    let export = format!("[[export]]\nname = 'logs'\npath = '{}'\n", dir.path().display());
    let running = start(builder().config(resolved(&(without.clone() + &export))));
    let mut client = Client::connect(&running);
    client.load(COPIES, &compiled("late")).ok();
    client.activate(COPIES, true).ok();
    let file = client.open_to("logs/x", FileFlags::READ);
    let (tag, first) = client.begin(&copies(file, None));
    running.handle().reload(&resolved(&without)).unwrap();
    client.ends_without(tag, &first, STALE, "export logs is not served any more");
}

/// The export that a path named was looked at when the path came, and never again.
#[test]
fn a_call_over_files_by_their_paths_ends_with_the_right_to_their_export() {
    let lab = Lab::new();
    let mut ann = lab.with_programs(ANN);
    let (tag, request) = (ann.tag(), copies(Endpoint::whole(EndpointKind::Paths), None).encode());
    let path = b"logs/x";
    let list = [&request[..], &(path.len() as u16).to_le_bytes(), path].concat();
    // Others may follow.
    let sqe = Sqe::function_send(COMPUTE, FunctionKind::Read, tag, 0, list.len() as u32).with_first();
    let send = ann.queue.post(sqe, Some(&list), 0).unwrap();
    let end = Sqe::function_send(COMPUTE, FunctionKind::Read, tag, list.len() as u64, 0).with_last();
    let end = ann.queue.post(end, Some(&[]), 0).unwrap();
    let first = ann.receive(tag, 0, PART, 10_000);
    assert!(!first.answer.end && !first.bytes.is_empty(), "{first:?}");
    lab.leave_ann(&[VOLUMES, FUNCTIONS, SHARED, REST]);
    ann.ends_without(tag, &first.bytes, ACCESS, "this host may not use export logs any more");
    for cid in [send, end] {
        ann.queue.wait(cid).unwrap().ok();
    }
}

/// The rest of the volume was read and sent. A prepared request was refused from its next Call on.
#[test]
fn calls_over_a_volume_end_with_the_right_to_it() {
    let lab = Lab::new();
    let mut ann = lab.with_programs(ANN);
    let handle = ann.prepare(&loops(volume()));
    let call = ann.queue.post(Sqe::function_call(COMPUTE, handle, &[], PART, 10_000), None, PART as usize).unwrap();
    ann.await_computing();
    let (tag, first) = ann.begin(&copies(volume(), None));
    lab.leave_ann(&[EXPORTS, FUNCTIONS, SHARED, REST]);
    let told = "this host may not read volume data any more";
    ann.ends_without(tag, &first, ACCESS, told);
    call_lost(ann.queue.wait(call).unwrap(), told);
    ann.call(handle, &[], PART).fails_with(Status::NAMESPACE_NOT_REACHABLE.dnr());
    ann.await_idle();
}

/// A program whose hash was taken away computed for as long as its call had time.
#[test]
fn a_call_ends_with_the_right_to_its_program() {
    let lab = Lab::new();
    let mut ann = lab.with_programs(ANN);
    let hash = ann.programs().iter().find(|program| program.pind.get() == COPIES).unwrap().sha256;
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let tag = ann.tag();
    ann.send(tag, &loops(volume())).ok();
    let receive = ann.post_receive(tag, 0, PART, 30_000);
    ann.await_computing();
    lab.leave_ann(&[VOLUMES, &format!("functions = ['sha256:{hash}']\n"), REST]);
    // Named by its hash it may be run as before.
    ann.await_computing();
    lab.leave_ann(&[VOLUMES, "functions = ['shipped:*']\n", REST]);
    lost(&Received::of(ann.queue.wait(receive).unwrap()), ACCESS, "this host may not run this program any more");
}

/// Its accesses failed, and a kernel that did not mind computed until its time was over.
#[test]
fn a_kernel_ends_with_the_right_to_its_file() {
    let lab = Lab::new();
    let mut ann = lab.with_programs(ANN);
    ann.load(REREADS, &compiled("rereads")).ok();
    ann.activate(REREADS, true).ok();
    let sources = vec![ann.open_to("logs/x", FileFlags::READ)];
    let launch = FunctionRequest { sources, budget: u64::MAX, ..FunctionRequest::new(FunctionKind::Launch, REREADS) };
    let tag = ann.tag();
    ann.send(tag, &launch).ok();
    ann.await_page(|page| page.tags_open.get() == 1 && page.queued.get() == 0);
    lab.leave_ann(&[VOLUMES, FUNCTIONS, SHARED, REST]);
    ann.ends_without(tag, &[], ACCESS, "this host may not use export logs any more");
}

/// The right to read stays.
#[test]
fn a_call_that_writes_ends_with_the_right_to_write() {
    let lab = Lab::new();
    let mut ann = lab.with_programs(ANN);
    let stream = Endpoint::whole(EndpointKind::HostStream);
    let part = vec![0; PART as usize];
    let out = Endpoint { placement: Placement::Replace, ..ann.open_to("logs/out", FileFlags::READ_WRITE) };
    let begin = |client: &mut Client, sink| {
        let (tag, request) = (client.tag(), copies(stream, Some(sink)).encode());
        let sqe = Sqe::function_send(COMPUTE, FunctionKind::Write, tag, 0, request.len() as u32).with_first();
        client.queue.command(sqe, Some(&request), 0).ok();
        let sqe = Sqe::function_send(COMPUTE, FunctionKind::Write, tag, request.len() as u64, PART);
        client.queue.command(sqe, Some(&part), 0).ok();
        (tag, request.len() as u64 + u64::from(PART))
    };
    let calls = [begin(&mut ann, volume()), begin(&mut ann, out)];
    lab.leave_ann(&["volumes = { data = 'r' }\n", READS_EXPORTS, FUNCTIONS, SHARED, REST]);
    let before = ann.queue.read(VOLUME, 128, 64).ok();
    for ((tag, at), what) in calls.into_iter().zip(["write volume data", "change export logs"]) {
        let sqe = Sqe::function_send(COMPUTE, FunctionKind::Write, tag, at, PART).with_last();
        ann.queue.command(sqe, Some(&part), 0).ok();
        ann.ends_without(tag, &[], ACCESS, &format!("this host may not {what} any more"));
    }
    assert!(ann.queue.read(VOLUME, 128, 64).ok() == before, "the volume was written to");
    assert_eq!(std::fs::read(lab.dir.path().join("out")).unwrap(), b"old");
}

/// The host got what it had not asked for yet after all: of calls, and of operations on files.
#[test]
fn a_result_that_nobody_fetched_is_dropped_with_the_right_to_what_it_was_made_of() {
    let lab = Lab::new();
    let mut ann = lab.with_programs(ANN);
    let file = ann.open("logs/x", FileFlags::READ);
    let args = FileRequest::Read { file, offset: 0, len: 4096 }.to_bytes();
    let (read, call) = (ann.tag(), ann.tag());
    ann.send(read, &FunctionRequest { args, ..FunctionRequest::new(FunctionKind::File, 0) }).ok();
    let few = Endpoint { len: 4096, ..of_file(file) };
    ann.send(call, &copies(few, None)).ok();
    ann.await_page(|page| page.succeeded.get() == 1);
    // The threads of an export are asked in turn: this comes behind the read.
    ann.file(FileRequest::Stat { base: Some(file), path: b"", flags: FileFlags::NONE });
    lab.leave_ann(&[VOLUMES, FUNCTIONS, SHARED, REST]);
    ann.ends_without(call, &[], ACCESS, "this host may not use export logs any more");
    let received = ann.receive(read, 0, PART, 10_000);
    let trailer = received.trailer.unwrap();
    assert_eq!((received.bytes.len(), trailer.outcome, trailer.returned), (0, Outcome::Errno, STALE), "{trailer:?}");
}

/// A reload that ended all calls would be worse than one that ended none.
#[test]
fn calls_whose_rights_stay_notice_nothing() {
    let lab = Lab::new();
    let mut ann = lab.with_programs(ANN);
    let file = ann.open_to("logs/x", FileFlags::READ);
    let (tag, first) = ann.begin(&copies(file, None));
    let (second, of_second) = ann.begin(&copies(volume(), None));
    for rights in [[VOLUMES, READS_EXPORTS, FUNCTIONS, REST], ["volumes = { '*' = 'r' }\n", EXPORTS, FUNCTIONS, SHARED]]
    {
        lab.leave_ann(&rights);
    }
    for (tag, first) in [(tag, first), (second, of_second)] {
        let (result, trailer) = ann.rest(tag, first);
        assert_eq!((trailer.outcome, trailer.result_len), (Outcome::Ok, LEN as u64), "{}", trailer.message);
        assert!(result == lab.bytes);
    }
}

/// One has the state, and the other waits for it.
#[test]
fn a_call_and_an_execution_end_with_the_right_to_the_state_that_they_share() {
    let lab = Lab::new();
    let mut ann = lab.with_programs(ANN);
    let state = Some(StateName { name: "shared/a".into(), len_bytes: 64 });
    let sources = vec![Endpoint { len: 4096, ..volume() }];
    let (args, budget) = (vec![1; 8], u64::MAX);
    let counts = FunctionRequest { args, sources, state, budget, ..FunctionRequest::new(FunctionKind::Read, COUNTS) };
    let tag = ann.tag();
    ann.send(tag, &counts).ok();
    ann.await_computing();
    let (cparam1, cparam2) = (StateName::id_of("shared/a"), 64);
    let execution = ann.execute_later(Execution { pind: SELECTS, cparam1, cparam2, ..Execution::default() });
    // It has its memory, and takes that last.
    while ann.queue.command(Sqe::memory_read(MEMORY, 0, 64), None, 64).status.is_success() {}
    lab.leave_ann(&[VOLUMES, EXPORTS, FUNCTIONS, REST]);
    let told = "this host may not share this state any more";
    ann.ends_without(tag, &[], ACCESS, told);
    ann.queue.wait(execution).unwrap().fails_with(Status::OPERATION_DENIED.dnr());
    assert_eq!(ann.said().1, told);
}

/// An execution had its program and its memory until its time was over.
#[test]
fn an_execution_ends_with_the_right_to_its_program_or_its_memory() {
    let lab = Lab::new();
    let mut ann = lab.with_programs(ANN);
    for (rights, told) in [
        ([VOLUMES, "functions = ['shipped:*']\n", REST], "this host may not run this program any more"),
        ([VOLUMES, FUNCTIONS, "statistics = true\n"], "this host may not use this device memory any more"),
    ] {
        lab.leave_ann(&[VOLUMES, FUNCTIONS, REST]);
        let execution = ann.execute_later(Execution { pind: ENDLESS, ..Execution::default() });
        ann.await_computing();
        lab.leave_ann(&rights);
        ann.queue.wait(execution).unwrap().fails_with(Status::OPERATION_DENIED.dnr());
        assert_eq!(ann.said().1, told);
    }
    lab.leave_ann(&[VOLUMES, FUNCTIONS, REST]);
    assert_eq!(ann.queue.command(Sqe::memory_read(MEMORY, 0, 64), None, 64).ok().len(), 64, "the memory is free");
}

/// One that waits for its medium ends when the read does.
#[test]
fn traversals_end_with_the_right_to_their_volume() {
    let plan = FaultPlan { delay_ppm: 1_000_000, delay_max: Duration::from_millis(100), ..FaultPlan::default() };
    let medium = FaultyMedium::new(Arc::new(MemoryMedium::new(LEN as u64, false).unwrap()), 4096, plan);
    let config = |rights: &str| {
        let mut text = format!("nqn = '{NQN}'\nlisten = ['127.0.0.1:0']\n");
        hosts(&mut text, &[(ANN, rights)]);
        resolved(&text)
    };
    let slow = VolumeSpec { nsid: Some(SLOW), ..VolumeSpec::new("slow", "kept") };
    let all = "volumes = { '*' = 'r' }\nfunctions = ['any']\nstatistics = true\n";
    let builder = builder().config(config(all)).compute(|compute| compute.cache = Size::from_bytes(0));
    let running = start(builder.medium(slow, Arc::new(medium)));
    let mut ann = Client::connect_as(&running, ANN);
    ann.load(WALKS, &compiled("walk")).ok();
    ann.activate(WALKS, true).ok();
    // It takes minutes.
    let args = [4000_u64, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    let sources = vec![Endpoint::whole(EndpointKind::Volume(SLOW))];
    let function = Some("walk".into());
    let request = FunctionRequest { function, sources, args, ..FunctionRequest::new(FunctionKind::Traverse, WALKS) };
    let handle = ann.prepare(&request);
    let tag = ann.tag();
    ann.send(tag, &request).ok();
    ann.await_page(|page| page.started.get() == 1 && page.queued.get() == 0);
    let call = ann.queue.post(Sqe::function_call(COMPUTE, handle, &[], 4096, 10_000), None, 4096).unwrap();
    // Answered behind the Call, on the same connection.
    ann.queue.read(SLOW, 0, 1).ok();
    running.handle().reload_hosts(&config("functions = ['any']\nstatistics = true\n")).unwrap();
    let began = Instant::now();
    let told = "this host may not read volume slow any more";
    call_lost(ann.queue.wait(call).unwrap(), told);
    assert!(began.elapsed() < CALL_MAX / 2, "it ended when its time was over");
    ann.ends_without(tag, &[], ACCESS, told);
}

/// Without grants, too, where hosts have nothing but their names to lose.
#[test]
fn calls_of_a_host_that_is_removed_end() {
    let config = |names: &[&str]| {
        let mut text = format!(
            "nqn = '{NQN}'\nlisten = ['127.0.0.1:0']\n[[volume]]\nname = 'data'\npath = 'mem:1MiB'\nrw = true\nnsid = {VOLUME}\n"
        );
        hosts(&mut text, &names.iter().map(|nqn| (*nqn, "")).collect::<Vec<_>>());
        resolved(text.split("[[grant]]").next().unwrap())
    };
    let running = start(builder().config(config(&[ANN, BOB])));
    let (mut ann, mut bob) = (Client::connect_as(&running, ANN), Client::connect_as(&running, BOB));
    ann.fill(&[1; 4096]);
    ann.load(COPIES, &compiled("late")).ok();
    ann.activate(COPIES, true).ok();
    let tag = ann.tag();
    ann.send(tag, &loops(Endpoint { len: 4096, ..volume() })).ok();
    bob.await_computing();
    running.handle().reload(&config(&[BOB])).unwrap();
    bob.await_idle();
    let sqe = Sqe::function_receive(COMPUTE, tag, 0, PART, 10_000);
    let receive = ann.queue.post(sqe, None, PART as usize);
    assert!(receive.and_then(|cid| ann.queue.wait(cid)).is_err(), "it is disconnected");
    let request = bob.over("stats64", &[], 4096);
    assert_eq!(bob.result(&request), locally("stats64", &[], &[1; 4096]));
}
