//! The work that a target may do for a host when that goes away: how each is begun, how one sees that it has begun, and
//! what it must not leave behind.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use super::{statistics, until};
use crate::client::{COMPUTE, Client, Received, VOLUME, shared_memory, start};
use crate::common::builder;
use crate::standard::{MEMORY, compiled, range};
use diskside_nvme::wire::Sqe;
use diskside_nvme::wire::memory::Execution;
use diskside_server::Running;
use diskside_server::config::{ComputeConfig, ExportSpec, Size, VolumeSpec};
use diskside_volume::media::{FaultPlan, FaultyMedium, MemoryMedium};
use diskside_wire::file::{FileFlags, FileRequest};
use diskside_wire::function::{
    Endpoint, EndpointKind, FunctionCommand, FunctionKind, FunctionRequest, LayoutAction, LayoutRequest, LayoutRun,
    Placement,
};
use zerocopy::IntoBytes;

pub(super) const WATCHER: &str = "nqn.2026-11.org.example:watcher";
/// Where programs are loaded.
pub(super) const FREE: u16 = 100;
const OUTPUT: u32 = 2;
const SLOW: u32 = 3;
/// The volume that functions read: zeroes, and from here on ones, at which `late` loops for ever.
const ZEROES_LEN: u64 = 9 << 20;
const INPUT_LEN: u64 = 10 << 20;
/// The bytes that output replaces, and how much of it there is at least when it is seen.
const BEFORE: u8 = 0x55;
const OUTPUT_LEN: usize = 10 << 20;
const SEEN_LEN: usize = 64 << 10;
/// More than two sockets hold.
const UNREAD_LEN: u32 = 512 << 10;
const UNREAD_COUNT: u64 = 24;
const UNREAD_SOURCES: u64 = 2;
/// Longer than any test.
const HOUR_MS: u32 = 3_600_000;

/// What is going on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Work {
    /// A function that never ends.
    Loop,
    /// The same in a prepared request.
    PreparedLoop,
    /// An Execute Program.
    Execution,
    /// One of many steps, over a slow medium.
    Traversal,
    PreparedTraversal,
    /// A function that wrote some of its output, and makes no more.
    Write(SinkKind),
    /// The same in a prepared request, into a volume.
    PreparedWrite,
    /// A call that waits for its host's stream.
    Stream,
    /// A request of which a part came.
    HalfRequest,
    /// A call over memory that a program of another host has.
    MemoryRead,
    /// One whose output goes there.
    MemoryWrite,
    /// A traversal through it.
    MemoryWalk,
    /// A read whose result waits to be asked for.
    HalfRead,
    /// One whose answers the host asked for and does not read.
    Unread,
    /// File operations, more than there are threads.
    FileOperations,
    /// A program of which a part came.
    HalfLoad,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum SinkKind {
    Volume,
    Memory,
    Layout,
    InPlace,
    Append,
    Replace,
}

pub(super) const SINKS: [SinkKind; 6] =
    [SinkKind::Volume, SinkKind::Memory, SinkKind::Layout, SinkKind::InPlace, SinkKind::Append, SinkKind::Replace];

impl Work {
    /// Whether it ends by itself, soon.
    pub(super) fn ends_by_itself(self) -> bool {
        matches!(self, Self::PreparedLoop | Self::PreparedTraversal | Self::PreparedWrite)
    }
}

/// Work that was begun: its tag, and a command that waits.
pub(super) struct Begun {
    pub(super) tag: Option<u64>,
    pub(super) waits: Option<u16>,
    /// Where the result continues.
    pub(super) taken: u64,
    /// Its request did not come whole.
    pub(super) is_half: bool,
    /// Who has what it waits for.
    holder: Option<Client>,
}

impl Begun {
    /// Engines that others keep busy.
    pub(super) fn others_engines(&self) -> u32 {
        u32::from(self.holder.is_some())
    }

    /// Whether its end is counted.
    pub(super) fn is_counted(&self) -> bool {
        self.tag.is_some() && !self.is_half
    }
}

/// A target with a volume to read, one to write, memory, and an export with one file.
pub(super) struct Lab {
    pub(super) running: Running,
    dir: tempfile::TempDir,
}

/// An object; made once, since that takes long.
pub(super) fn compiled_once(name: &'static str) -> Vec<u8> {
    static OBJECTS: LazyLock<Mutex<HashMap<&str, Vec<u8>>>> = LazyLock::new(Mutex::default);
    OBJECTS.lock().unwrap().entry(name).or_insert_with(|| compiled(name)).clone()
}

impl Lab {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        // One call of a host at a time: if one that is gone were still counted, no other would begin.
        let bounds = |compute: &mut ComputeConfig| {
            (compute.engines, compute.host_calls) = (2, 1);
            (compute.memory_wait_ms, compute.execution_ms) = (HOUR_MS, HOUR_MS);
            // The slow medium is asked each time.
            compute.cache = Size::from_bytes(0);
        };
        let volumes = ["data=mem:10MiB,rw", "output=mem:10MiB,rw"];
        let builder = volumes.into_iter().fold(builder(), |builder, spec| builder.volume(spec.parse().unwrap()));
        let plan = FaultPlan { delay_ppm: 1_000_000, delay_max: Duration::from_millis(50), ..FaultPlan::default() };
        let slow = FaultyMedium::new(Arc::new(MemoryMedium::new(1 << 20, false).unwrap()), 4096, plan);
        let builder = builder.grant(shared_memory());
        let builder = builder.medium(VolumeSpec::new("slow", "slow").writable(), Arc::new(slow));
        let running = start(builder.compute(bounds).export(ExportSpec::new("data", dir.path()).writable()));
        let ones = vec![1; (INPUT_LEN - ZEROES_LEN) as usize / 2];
        let mut client = Client::connect_as(&running, WATCHER);
        for half in 0..2 {
            client.queue.write(VOLUME, ZEROES_LEN / 4096 + half * ones.len() as u64 / 4096, &ones).ok();
        }
        Self { running, dir }
    }

    /// Everything that output may fall on, as it is at the beginning.
    pub(super) fn refresh(&self, watcher: &mut Client, work: Work) {
        std::fs::write(self.out(), vec![BEFORE; OUTPUT_LEN]).unwrap();
        if !matches!(work, Work::Write(_) | Work::PreparedWrite) {
            return;
        }
        let part = vec![BEFORE; 512 << 10];
        for index in 0..OUTPUT_LEN / part.len() {
            watcher.queue.write(OUTPUT, (index * part.len()) as u64 / 4096, &part).ok();
            let start = (index * part.len()) as u64;
            watcher.queue.command(Sqe::memory_write(MEMORY, start, part.len() as u32), Some(&part), 0).ok();
        }
    }

    fn out(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    /// Bytes of each file in the export that is open: the test has none of them open.
    pub(super) fn open_files(&self) -> Vec<u64> {
        let dir = std::fs::canonicalize(self.dir.path()).unwrap();
        let fds = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| fd.ok().map(|fd| fd.path()));
        let inside = fds.filter(|fd| std::fs::read_link(fd).is_ok_and(|to| to.starts_with(&dir) && to != dir));
        inside.filter_map(|fd| std::fs::metadata(fd).ok()).map(|file| file.len()).collect()
    }

    // -- how it begins ------------------------------------------------------------------------------------------------

    /// Begins it, and waits until it is under way.
    pub(super) fn begin(&self, client: &mut Client, watcher: &mut Client, work: Work) -> Begun {
        let begun = match work {
            Work::Loop => {
                let request = endless(client, "hostile", 3, FunctionKind::Read, 1);
                call(client, &request)
            }
            Work::PreparedLoop => {
                let request = endless(client, "hostile", 3, FunctionKind::Read, 1);
                prepared(client, &request)
            }
            Work::Execution => {
                load(client, "endless");
                let execution = Execution { pind: FREE, ranges: 1, data_len: 32, ..Execution::default() };
                let sqe = Sqe::execute_program(COMPUTE, &execution);
                let cid = client.queue.post(sqe, Some(range(0, 32 << 20).as_bytes()), 0).unwrap();
                Begun { tag: None, waits: Some(cid), taken: 0, is_half: false, holder: None }
            }
            Work::Traversal => {
                let request = walk(client);
                call(client, &request)
            }
            Work::PreparedTraversal => {
                let request = walk(client);
                prepared(client, &request)
            }
            Work::Write(kind) => {
                let sink = sink(client, kind);
                let request = endless(client, "late", 2, FunctionKind::Write, INPUT_LEN);
                call(client, &FunctionRequest { sinks: vec![sink], ..request })
            }
            Work::PreparedWrite => {
                let sink = sink(client, SinkKind::Volume);
                let request = endless(client, "late", 2, FunctionKind::Write, INPUT_LEN);
                prepared(client, &FunctionRequest { sinks: vec![sink], ..request })
            }
            Work::Stream => {
                let sources = vec![Endpoint::whole(EndpointKind::HostStream)];
                let request = FunctionRequest { sources, ..client.over("stats64", &[], 0) };
                send_part(client, &request, request.encode().len())
            }
            Work::HalfRequest => {
                let request = client.over("stats64", &[], 4096);
                Begun { is_half: true, ..send_part(client, &request, 70) }
            }
            Work::MemoryRead | Work::MemoryWrite | Work::MemoryWalk => {
                let (holder, memory) = (self.hold_memory(), Endpoint::new(EndpointKind::Memory(MEMORY), 0, 4096));
                let request = match work {
                    Work::MemoryRead => FunctionRequest { sources: vec![memory], ..client.over("stats64", &[], 0) },
                    Work::MemoryWalk => FunctionRequest { sources: vec![memory], ..walk(client) },
                    _ => {
                        let request = endless(client, "late", 0, FunctionKind::Write, 4096);
                        FunctionRequest { sinks: vec![memory], ..request }
                    }
                };
                Begun { holder: Some(holder), ..call(client, &request) }
            }
            Work::HalfRead => {
                let request = endless(client, "late", 0, FunctionKind::Read, ZEROES_LEN);
                let begun = call(client, &request);
                let first = Received::of(client.queue.wait(begun.waits.unwrap()).unwrap());
                let taken = first.bytes.len() as u64;
                assert!(taken > 0);
                // It asks for what is far behind.
                let cid = client.post_receive(begun.tag.unwrap(), ZEROES_LEN - 4096, 4096, 10_000);
                Begun { waits: Some(cid), taken, ..begun }
            }
            Work::Unread => {
                let mut request = endless(client, "late", 0, FunctionKind::Read, ZEROES_LEN);
                request.sources = vec![request.sources[0]; UNREAD_SOURCES as usize];
                let tag = client.tag();
                client.send(tag, &request).ok();
                let receives = (0..UNREAD_COUNT).map(|index| {
                    let at = index * u64::from(UNREAD_LEN);
                    let sqe = Sqe::function_receive(COMPUTE, tag, at, UNREAD_LEN, 10_000).with_fill();
                    client.queue.post(sqe, None, UNREAD_LEN as usize).unwrap()
                });
                let first = receives.collect::<Vec<u16>>()[0];
                client.queue.wait(first).unwrap().ok();
                // Nobody knows what was lost on the way.
                Begun { tag: Some(tag), waits: None, taken: UNREAD_SOURCES * ZEROES_LEN, is_half: false, holder: None }
            }
            Work::FileOperations => {
                for _ in 0..30 {
                    let flags = FileFlags::READ;
                    let args = FileRequest::Lookup { dir: None, path: b"data/out", flags }.to_bytes();
                    let request = FunctionRequest { args, ..FunctionRequest::new(FunctionKind::File, 0) }.encode();
                    let (tag, len) = (client.tag(), request.len() as u32);
                    let sqe = Sqe::function_send(COMPUTE, FunctionKind::File, tag, 0, len).with_first().with_last();
                    client.queue.post(sqe, Some(&request), 0).unwrap();
                }
                Begun { tag: None, waits: None, taken: 0, is_half: false, holder: None }
            }
            Work::HalfLoad => {
                let object = compiled_once("late");
                let sqe = Sqe::load_program(COMPUTE, FREE, object.len() as u32, 0, 1000);
                client.controller.admin.command(sqe, Some(&object[..1000]), 0).ok();
                let other = Sqe::load_program(COMPUTE, FREE, object.len() as u32, 0, 1000);
                let refused = watcher.controller.admin.command(other, Some(&object[..1000]), 0);
                assert!(refused.status.is(diskside_nvme::Status::PROGRAM_IN_USE), "{}", refused.status);
                Begun { tag: None, waits: None, taken: 0, is_half: false, holder: None }
            }
        };
        until("it is under way", watcher, |watcher| {
            let page = statistics(watcher);
            let (busy, queued, open) = (page.engines_busy.get(), page.queued.get(), page.tags_open.get());
            match work {
                Work::Loop | Work::PreparedLoop | Work::Execution => busy > 0,
                Work::Write(kind) => busy > 0 && self.has_written(watcher, kind),
                Work::PreparedWrite => busy > 0 && self.has_written(watcher, SinkKind::Volume),
                // Traversals take no engine.
                Work::Traversal | Work::Stream | Work::HalfRequest | Work::HalfRead => (queued, open) == (0, 1),
                Work::MemoryRead | Work::MemoryWrite | Work::MemoryWalk => (queued, open) == (0, 1),
                Work::PreparedTraversal => queued == 0,
                Work::Unread | Work::FileOperations | Work::HalfLoad => true,
            }
        });
        begun
    }

    /// A host whose program has the memory until it goes.
    fn hold_memory(&self) -> Client {
        let mut holder = Client::connect_as(&self.running, "nqn.2026-11.org.example:holder");
        holder.load(FREE + 1, &compiled_once("endless")).ok();
        holder.activate(FREE + 1, true).ok();
        let execution = Execution { pind: FREE + 1, ranges: 1, data_len: 32, ..Execution::default() };
        let sqe = Sqe::execute_program(COMPUTE, &execution);
        holder.queue.post(sqe, Some(range(0, 32 << 20).as_bytes()), 0).unwrap();
        until("the memory is held", &mut holder, |holder| statistics(holder).engines_busy.get() > 0);
        holder
    }

    fn has_written(&self, watcher: &mut Client, kind: SinkKind) -> bool {
        match kind {
            SinkKind::Append => std::fs::metadata(self.out()).unwrap().len() >= (OUTPUT_LEN + SEEN_LEN) as u64,
            // The new file has no name yet.
            SinkKind::Replace => self.open_files().iter().any(|len| (SEEN_LEN..OUTPUT_LEN).contains(&(*len as usize))),
            _ => self.content(watcher, kind, SEEN_LEN).iter().all(|byte| *byte == 0),
        }
    }

    // -- what is left of it -------------------------------------------------------------------------------------------

    fn content(&self, watcher: &mut Client, kind: SinkKind, len: usize) -> Vec<u8> {
        let parts = (0..len).step_by(SEEN_LEN);
        match kind {
            SinkKind::Volume | SinkKind::Layout => {
                let part = |at| watcher.queue.read(OUTPUT, at as u64 / 4096, (SEEN_LEN / 4096) as u32).ok();
                parts.map(part).collect::<Vec<_>>().concat()
            }
            SinkKind::Memory => {
                let sqe = |at| Sqe::memory_read(MEMORY, at as u64, SEEN_LEN as u32);
                parts.map(|at| watcher.queue.command(sqe(at), None, SEEN_LEN).ok()).collect::<Vec<_>>().concat()
            }
            SinkKind::InPlace | SinkKind::Append | SinkKind::Replace => {
                let mut bytes = std::fs::read(self.out()).unwrap();
                bytes.truncate(len);
                bytes
            }
        }
    }

    /// Nothing was written that should not be, and nothing is being written any more.
    pub(super) fn check(&self, watcher: &mut Client, work: Work) {
        let kind = match work {
            Work::Write(kind) => kind,
            Work::PreparedWrite => SinkKind::Volume,
            _ => return,
        };
        let content = self.content(watcher, kind, limit(kind));
        // Quick even where nothing is optimised: block by block.
        let is_all = |block: &[u8], byte: u8| *block == [byte; 4096][..block.len()];
        let written = content.chunks(4096).take_while(|block| is_all(block, 0)).count() * 4096;
        let mut rest = content[written.min(content.len())..].chunks(4096);
        assert!(rest.all(|block| is_all(block, BEFORE)), "{kind:?}: the output, from its start, or nothing");
        match kind {
            SinkKind::Append | SinkKind::Replace => {
                assert_eq!((written, content.len()), (0, OUTPUT_LEN), "{kind:?}: the file is as it was");
            }
            _ => assert!((SEEN_LEN..=ZEROES_LEN as usize).contains(&written), "{kind:?}: {written} bytes"),
        }
        let names: Vec<_> =
            std::fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["out"]);
        assert!(self.content(watcher, kind, limit(kind)) == content, "{kind:?}: it is still being written");
    }
}

/// So many bytes are looked at.
fn limit(kind: SinkKind) -> usize {
    match kind {
        SinkKind::Append => usize::MAX,
        _ => OUTPUT_LEN,
    }
}

fn load(client: &mut Client, name: &'static str) {
    client.load(FREE, &compiled_once(name)).ok();
    client.activate(FREE, true).ok();
}

/// A request of a program over the start or the end of the volume; it goes wrong as `how` says.
fn endless(client: &mut Client, name: &'static str, how: u64, kind: FunctionKind, len: u64) -> FunctionRequest {
    load(client, name);
    // `hostile` loops for ever at its first byte that is not 0, `late` when it has copied the bytes before.
    let start = if len == 1 { ZEROES_LEN } else { 0 };
    FunctionRequest {
        args: how.to_le_bytes().to_vec(),
        sources: vec![Endpoint::new(EndpointKind::Volume(VOLUME), start, len)],
        chunk_len: 64 << 10,
        budget: u64::MAX,
        ..FunctionRequest::new(kind, FREE)
    }
}

/// A traversal of as many steps as there may be, each over a slow medium.
fn walk(client: &mut Client) -> FunctionRequest {
    load(client, "walk");
    FunctionRequest {
        function: Some("walk".into()),
        args: [4000_u64, 0].iter().flat_map(|word| word.to_le_bytes()).collect(),
        sources: vec![Endpoint::whole(EndpointKind::Volume(SLOW))],
        ..FunctionRequest::new(FunctionKind::Traverse, FREE)
    }
}

/// Sends a request and asks for its result.
fn call(client: &mut Client, request: &FunctionRequest) -> Begun {
    let tag = client.tag();
    client.send(tag, request).ok();
    let cid = client.post_receive(tag, 0, 4096, 10_000);
    Begun { tag: Some(tag), waits: Some(cid), taken: 0, is_half: false, holder: None }
}

/// Prepares a request and calls it.
fn prepared(client: &mut Client, request: &FunctionRequest) -> Begun {
    let handle = client.prepare(request);
    let sqe = Sqe::function_call(COMPUTE, handle, &[], 4096, 0);
    Begun {
        tag: None,
        waits: Some(client.queue.post(sqe, None, 4096).unwrap()),
        taken: 0,
        is_half: false,
        holder: None,
    }
}

/// Sends the first bytes of what a call needs, and asks for its result.
fn send_part(client: &mut Client, request: &FunctionRequest, len: usize) -> Begun {
    let (tag, bytes) = (client.tag(), &request.encode()[..len]);
    let sqe = Sqe::function_send(COMPUTE, request.kind, tag, 0, len as u32).with_first();
    client.queue.command(sqe, Some(bytes), 0).ok();
    let cid = client.post_receive(tag, 0, 4096, 10_000);
    Begun { tag: Some(tag), waits: Some(cid), taken: 0, is_half: false, holder: None }
}

fn sink(client: &mut Client, kind: SinkKind) -> Endpoint {
    let placement = match kind {
        SinkKind::Volume => return Endpoint::new(EndpointKind::Volume(OUTPUT), 0, OUTPUT_LEN as u64),
        SinkKind::Memory => return Endpoint::new(EndpointKind::Memory(MEMORY), 0, OUTPUT_LEN as u64),
        SinkKind::Layout => {
            let len = OUTPUT_LEN as u64;
            let runs = vec![LayoutRun { logical: 0, physical: 0, len }];
            // The host may be known from before.
            static GENERATION: AtomicU64 = AtomicU64::new(1);
            let (action, generation) = (LayoutAction::Set, GENERATION.fetch_add(1, Ordering::Relaxed));
            let layout = LayoutRequest { action, id: 7, nsid: OUTPUT, generation, file_len: len, runs }.encode();
            let sqe = Sqe::layout_send(COMPUTE, layout.len() as u32);
            client.queue.command(sqe, Some(&layout), 0).ok();
            return Endpoint { generation, ..Endpoint::new(EndpointKind::Layout(7), 0, len) };
        }
        SinkKind::InPlace => Placement::InPlace,
        SinkKind::Append => Placement::Append,
        SinkKind::Replace => Placement::Replace,
    };
    let file = client.open("data/out", FileFlags::READ_WRITE);
    Endpoint { generation: file.generation, placement, ..Endpoint::whole(EndpointKind::File(file.id)) }
}
