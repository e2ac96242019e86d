//! The state behind function commands, driven by bytes: Send, Receive, Call, Cancel, Clear and Layout Send of two
//! controllers, several tags, in any order, with files of an export, a volume and memory, against a running target.
//!
//! These hold: every command is answered, once; a call that ends well over bytes that nobody writes gave the same as
//! alone, and its trailer says so; nothing outside the exported directory is touched; and when the hosts have gone no
//! engine is busy for them, and the next host is served.

use crate::common::{Answer, Controller, Queue, pattern};
use diskside_nvme::wire::Sqe;
use diskside_server::config::{ExportSpec, Size, VolumeSpec};
use diskside_server::{Running, Target};
use diskside_wire::file::{FileFlags, FileHandle, FileRequest, OpenedFile};
use diskside_wire::function::{
    ClearSelect, Endpoint, EndpointKind, FunctionCommand, FunctionKind, FunctionRequest, LayoutAction, LayoutRequest,
    LayoutRun, Outcome, Placement, ProgramDirectory, ReceiveAnswer, StatisticsPage, Trailer, function_log,
    function_opcode,
};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use zerocopy::FromBytes;

const VOLUME: u32 = 1;
const MEMORY: u32 = 1023;
const COMPUTE: u32 = 1024;
const VOLUME_LEN: u64 = 256 << 10;
/// A volume that nobody can write: what calls give over it is known.
const STILL: u32 = 2;
const STILL_LEN: u64 = 64 << 10;
const TAGS: u64 = 6;
const NAMES: [&[u8]; 5] = [b"data/a", b"data/b", b"data/c/d", b"data/way-out", b"data"];
/// Commands of one input, and of one queue at a time.
const COMMANDS_MAX: usize = 120;
const OPEN_MAX: usize = 24;
const HELD_MAX: usize = 24;
/// The longest that a command of an input may wait.
const WAIT_MAX_MS: u32 = 16;
/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);
const OUTSIDE: &[u8] = b"nobody reaches this";

/// A running target, made once because that takes long, and the directory that it exports.
pub struct Lab {
    running: Running,
    directory: PathBuf,
    programs: u16,
    /// Programs whose results are known, with them.
    known: Vec<(u16, Vec<u8>)>,
    /// Results that were compared so far.
    pub compared: AtomicU64,
}

/// One controller, with what it has under way.
struct Host {
    _controller: Controller,
    queue: Queue,
    open: Vec<(u16, Posted)>,
    /// Parts of requests, and input, may wait for what comes before them: nobody waits for their answers.
    held: usize,
    /// Results of the tags whose requests are of [`Lab::known`], so far.
    results: HashMap<u64, (usize, Vec<u8>)>,
    files: Vec<FileHandle>,
    prepared: Vec<u32>,
}

enum Posted {
    Receive { tag: u64, offset: u64 },
    Prepare,
    Held,
    Other,
}

struct Run<'a> {
    lab: &'a Lab,
    input: &'a [u8],
    hosts: [Host; 2],
}

impl Lab {
    /// `directory` is a new one, for the export and what is beside it.
    pub fn new(directory: &Path) -> Self {
        let root = directory.join("root");
        std::fs::create_dir(&root).expect("a directory");
        std::fs::write(directory.join("outside"), OUTSIDE).expect("a file");
        let listen = "127.0.0.1:0".parse().expect("an address");
        let builder = Target::builder().nqn(crate::common::NQN).listen([listen]).reactors(2);
        let path = directory.join("still");
        std::fs::write(&path, pattern(STILL_LEN as usize, 5)).expect("a file");
        let read_only = VolumeSpec::new("still", path.display().to_string());
        let volume = VolumeSpec::new("data", format!("mem:{VOLUME_LEN}")).writable();
        let builder = builder.volume(volume).volume(read_only).export(ExportSpec::new("data", &root).writable());
        let builder = builder.compute(|compute| {
            compute.engines = 2;
            compute.host_calls = 4;
            compute.memory = Size::from_bytes(64 << 10);
        });
        let running = builder.build().expect("a target").start().expect("it starts");
        let mut lab = Self {
            running,
            directory: directory.to_owned(),
            programs: 0,
            known: Vec::new(),
            compared: AtomicU64::new(0),
        };
        lab.refresh();
        let mut host = lab.host();
        let page = Sqe::get_log_page(function_log::PROGRAMS, 0, 64 << 10, 0, false);
        let page = host._controller.admin.command(page, None, 64 << 10).ok();
        let programs = ProgramDirectory::decode(&page).expect("a list").1;
        lab.programs = programs.len() as u16;
        for name in ["stats64", "wc", "bitmap", "histogram"] {
            let Some(program) = programs.iter().find(|program| program.name() == name) else { continue };
            let request = still(program.pind.get());
            if let (result, Some(trailer)) = host.finish(99, &request)
                && trailer.outcome == Outcome::Ok
            {
                lab.known.push((program.pind.get(), result));
            }
        }
        assert!(lab.known.len() >= 2, "there are functions to compare");
        lab
    }

    /// Runs the commands that the bytes mean.
    pub fn run(&self, input: &[u8]) {
        self.refresh();
        let mut run = Run { lab: self, input, hosts: [self.host(), self.host()] };
        for _ in 0..COMMANDS_MAX {
            if run.input.is_empty() {
                break;
            }
            let at = usize::from(run.byte() & 1);
            if run.hosts[at].held > HELD_MAX {
                run.hosts[at] = self.host();
            }
            run.step(at);
        }
        let leave_at_once = run.byte() & 1 == 1;
        for host in run.hosts.iter_mut().filter(|_| !leave_at_once) {
            host.end();
        }
        drop(run);
        self.check();
    }

    fn host(&self) -> Host {
        let mut controller = Controller::connect_loop(&self.running);
        controller.enable(6);
        let queue = controller.io_queue(1, 64);
        let (open, results) = (Vec::new(), HashMap::new());
        Host { _controller: controller, queue, open, held: 0, results, files: Vec::new(), prepared: Vec::new() }
    }

    /// The exported directory as it is at the beginning.
    fn refresh(&self) {
        let root = self.directory.join("root");
        for entry in std::fs::read_dir(&root).expect("it is there").flatten() {
            let path = entry.path();
            let _ = std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir_all(&path));
        }
        std::fs::create_dir(root.join("c")).expect("a directory");
        std::fs::write(root.join("a"), pattern(40_000, 3)).expect("a file");
        std::fs::write(root.join("c/d"), b"short").expect("a file");
        std::os::unix::fs::symlink("../outside", root.join("way-out")).expect("a link");
    }

    fn check(&self) {
        assert_eq!(std::fs::read(self.directory.join("outside")).expect("it is there"), OUTSIDE);
        let mut host = self.host();
        let until = Instant::now() + PATIENCE;
        loop {
            let page = Sqe::get_log_page(function_log::STATISTICS, 0, 64 << 10, 0, false);
            let page = host._controller.admin.command(page, None, 64 << 10).ok();
            let (now, _) = StatisticsPage::decode(&page).expect("statistics");
            let left = (now.engines_busy.get(), now.queued.get(), now.tags_open.get());
            if left == (0, 0, 0) {
                break;
            }
            assert!(Instant::now() < until, "engines busy, queued, tags open of hosts that are gone: {left:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
        let (pind, wanted) = &self.known[0];
        let (result, trailer) = host.finish(1, &still(*pind));
        assert!(trailer.is_some_and(|trailer| trailer.outcome == Outcome::Ok) && result == *wanted);
    }
}

/// A request over bytes that nobody writes.
fn still(pind: u16) -> FunctionRequest {
    let source = Endpoint::new(EndpointKind::Volume(STILL), 0, STILL_LEN);
    FunctionRequest { sources: vec![source], ..FunctionRequest::new(FunctionKind::Read, pind) }
}

impl Host {
    fn post(&mut self, sqe: Sqe, out: Option<&[u8]>, in_len: usize, posted: Posted) {
        let cid = self.queue.post(sqe, out, in_len).expect("the connection lasts");
        if let Posted::Held = posted {
            self.held += 1;
            return;
        }
        self.open.push((cid, posted));
        while self.open.len() > OPEN_MAX {
            self.wait_first();
        }
    }

    fn wait_first(&mut self) {
        let (cid, posted) = self.open.remove(0);
        let answer = self.queue.wait(cid).expect("every command is answered");
        match posted {
            Posted::Receive { tag, offset } => self.received(tag, offset, answer),
            Posted::Prepare if answer.status.is_success() => self.prepared.push(answer.result as u32),
            Posted::Prepare | Posted::Held | Posted::Other => {}
        }
    }

    fn wait_all(&mut self) {
        while !self.open.is_empty() {
            self.wait_first();
        }
    }

    fn received(&mut self, tag: u64, offset: u64, answer: Answer) {
        if !answer.status.is_success() {
            return;
        }
        let told = ReceiveAnswer::from_result(answer.result).expect("an answer that can be");
        let (bytes, rest) = answer.data.split_at(told.result_len as usize);
        let trailer = &rest[..told.trailer_len.into()];
        let trailer = (!trailer.is_empty()).then(|| Trailer::decode(trailer).expect("a trailer"));
        if let Ok(opened) = OpenedFile::read_from_bytes(bytes) {
            self.files.push(opened.handle());
        }
        let Some((_, result)) = self.results.get_mut(&tag) else { return };
        if result.len() as u64 == offset {
            result.extend_from_slice(bytes);
        }
        if let Some(trailer) = trailer.filter(|trailer| trailer.outcome == Outcome::Ok) {
            assert_eq!(trailer.result_len, offset + bytes.len() as u64, "the end is where the trailer is");
        }
    }

    /// Runs a request alone.
    fn finish(&mut self, tag: u64, request: &FunctionRequest) -> (Vec<u8>, Option<Trailer>) {
        let bytes = request.encode();
        let send = Sqe::function_send(COMPUTE, request.kind, tag, 0, bytes.len() as u32).with_first().with_last();
        self.queue.command(send, Some(&bytes), 0).ok();
        let mut result = Vec::new();
        loop {
            let receive = Sqe::function_receive(COMPUTE, tag, result.len() as u64, 256 << 10, 10_000);
            let answer = self.queue.command(receive, None, 256 << 10);
            let told = ReceiveAnswer::from_result(answer.result).expect("an answer that can be");
            let data = answer.ok();
            let (bytes, rest) = data.split_at(told.result_len as usize);
            result.extend_from_slice(bytes);
            if told.trailer_len > 0 {
                return (result, Trailer::decode(&rest[..told.trailer_len.into()]).ok());
            }
            assert!(!told.end, "the end comes with its trailer");
        }
    }

    /// Stops everything, and sees every answer.
    fn end(&mut self) {
        for tag in 0..TAGS {
            self.post(Sqe::function_cancel(COMPUTE, tag, true, 5000), None, 0, Posted::Other);
        }
        self.wait_all();
    }
}

impl Run<'_> {
    // -- the input ----------------------------------------------------------------------------------------------------

    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.input.split_first() else { return 0 };
        self.input = rest;
        *first
    }

    fn word(&mut self) -> u64 {
        u64::from(u16::from_le_bytes([self.byte(), self.byte()]))
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte()) % all.len()]
    }

    /// A place or a length: most often one that can be.
    fn place(&mut self) -> u64 {
        let word = self.word();
        match self.byte() % 8 {
            0 => word << 48,
            1 => u64::MAX,
            2 => VOLUME_LEN - word % 64,
            3 | 4 => word / 4096 * 4096,
            _ => word,
        }
    }

    fn wait_ms(&mut self) -> u32 {
        1 + u32::from(self.byte()) % WAIT_MAX_MS
    }

    fn tag(&mut self) -> u64 {
        u64::from(self.byte()) % TAGS
    }

    // -- commands -----------------------------------------------------------------------------------------------------

    fn step(&mut self, at: usize) {
        match self.byte() % 16 {
            0 | 1 => self.send_known(at),
            2 | 3 => self.send(at),
            4 | 5 => self.file(at),
            6 => self.more_input(at),
            7..=9 => self.receive(at),
            10 => self.call(at),
            11 => self.cancel(at),
            12 => self.clear(at),
            13 => self.layout(at),
            14 => self.volume(at),
            _ => match self.byte() % 4 {
                0 => self.hosts[at] = self.lab.host(),
                1 => self.hosts[at].wait_all(),
                _ => self.raw(at),
            },
        }
    }

    fn send_known(&mut self, at: usize) {
        let (tag, which) = (self.tag(), usize::from(self.byte()) % self.lab.known.len());
        let mut request = still(self.lab.known[which].0);
        request.threads_max = u16::from(self.byte() % 4);
        self.hosts[at].results.remove(&tag);
        self.post_request(at, tag, &request, false);
        if self.byte().is_multiple_of(2) {
            self.whole(at, tag, which);
        }
    }

    /// The whole result of a known call, compared; unless something else meddles with its tag.
    fn whole(&mut self, at: usize, tag: u64, which: usize) {
        let host = &mut self.hosts[at];
        host.wait_all();
        host.results.insert(tag, (which, Vec::new()));
        let len = 128 << 10;
        let receive = Sqe::function_receive(COMPUTE, tag, 0, len, 100).with_fill();
        let cid = host.queue.post(receive, None, len as usize).expect("the connection lasts");
        let answer = host.queue.wait(cid).expect("every command is answered");
        if answer.status.is_success() {
            let told = ReceiveAnswer::from_result(answer.result).expect("an answer that can be");
            let (bytes, rest) = answer.data.split_at(told.result_len as usize);
            let trailer = Trailer::decode(&rest[..told.trailer_len.into()]).ok();
            if trailer.is_some_and(|trailer| trailer.outcome == Outcome::Ok && trailer.media_read == STILL_LEN) {
                // The tag may be that of another call, whose request came before.
                let is_known = self.lab.known.iter().any(|(_, known)| known == bytes);
                assert!(is_known, "another result than alone");
                self.lab.compared.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.hosts[at].results.remove(&tag);
    }

    fn endpoint(&mut self, at: usize) -> Endpoint {
        let files = self.hosts[at].files.clone();
        let file = files.get(usize::from(self.byte()) % (files.len() + 1));
        let kind = match self.byte() % 8 {
            0 => EndpointKind::HostStream,
            1 | 2 => EndpointKind::Volume([77, STILL, VOLUME, VOLUME][usize::from(self.byte()) % 4]),
            3 => EndpointKind::Memory(MEMORY),
            4 => EndpointKind::Layout(u32::from(self.byte() % 3)),
            _ => EndpointKind::File(file.map_or(u32::from(self.byte()), |file| file.id)),
        };
        if kind == EndpointKind::HostStream {
            return Endpoint::whole(kind);
        }
        let mut endpoint = Endpoint::new(kind, self.place(), self.place());
        endpoint.generation = match (kind, self.byte() % 8) {
            (_, 0) => self.word(),
            (EndpointKind::File(_), _) => file.map_or(0, |file| file.generation),
            (EndpointKind::Layout(_), _) => 1,
            _ => 0,
        };
        endpoint
    }

    fn sink(&mut self, at: usize) -> Endpoint {
        let mut sink = self.endpoint(at);
        if let EndpointKind::Volume(_) | EndpointKind::Layout(_) = sink.kind {
            sink.offset %= VOLUME_LEN;
        }
        sink.durable = self.byte().is_multiple_of(4);
        sink.placement = self.one_of(&[Placement::InPlace, Placement::Append, Placement::Replace]);
        sink
    }

    fn send(&mut self, at: usize) {
        let kinds = [FunctionKind::Read, FunctionKind::Read, FunctionKind::Write, FunctionKind::Traverse];
        let kind = if self.byte() == 0 { FunctionKind::Launch } else { self.one_of(&kinds) };
        let mut request = FunctionRequest::new(kind, u16::from(self.byte()) % (self.lab.programs + 2));
        request.sources = (0..self.byte() % 4).map(|_| self.endpoint(at)).collect();
        if kind == FunctionKind::Write || self.byte() == 0 {
            request.sinks = (0..=self.byte() % 2).map(|_| self.sink(at)).collect();
        }
        let args_len = usize::from(self.byte()) % 40;
        request.args = (0..args_len).map(|_| self.byte()).collect();
        request.chunk_len = [0, 512, 4096, 70_000, u32::MAX][usize::from(self.byte()) % 5];
        request.budget = [0, 0, 1, 100_000][usize::from(self.byte()) % 4];
        request.deadline_ms = [0, 1, 50][usize::from(self.byte()) % 3];
        request.result_len_max = [0, 0, 10, 100_000][usize::from(self.byte()) % 4];
        let (tag, prepare) = (self.tag(), self.byte().is_multiple_of(4));
        self.hosts[at].results.remove(&tag);
        self.post_request(at, tag, &request, prepare);
    }

    /// Sends a request: whole, in parts, in parts the wrong way round, or not all of it.
    fn post_request(&mut self, at: usize, tag: u64, request: &FunctionRequest, prepare: bool) {
        let mut bytes = request.encode();
        if self.byte() == 0 {
            let (place, change) = (usize::from(self.byte()) % bytes.len(), self.byte());
            bytes[place] ^= change;
        }
        let kind = if prepare { FunctionKind::Prepare } else { request.kind };
        let open = request.sources.iter().any(|source| source.kind == EndpointKind::HostStream)
            && !self.byte().is_multiple_of(4);
        let cut = 1 + usize::from(self.byte()) % bytes.len();
        let (first, second) = bytes.split_at(cut);
        let parts: &[(usize, &[u8])] = match self.byte() % 16 {
            0 => &[(0, first), (cut, second)],
            1 => &[(cut, second), (0, first)],
            2 => &[(0, first), (0, first), (cut, second)],
            3 => &[(0, first)],
            4 => &[(cut, second)],
            _ => &[(0, &bytes)],
        };
        for (offset, part) in parts.iter().copied().filter(|(_, part)| !part.is_empty()) {
            let mut sqe = Sqe::function_send(COMPUTE, kind, tag, offset as u64, part.len() as u32);
            if offset == 0 {
                sqe = sqe.with_first();
            }
            if offset + part.len() == bytes.len() && !open {
                sqe = sqe.with_last();
            }
            let posted = match prepare {
                _ if part.len() < bytes.len() => Posted::Held,
                true => Posted::Prepare,
                false => Posted::Other,
            };
            self.hosts[at].post(sqe, Some(part), 0, posted);
        }
    }

    /// Input of a call whose request was sent, or of none.
    fn more_input(&mut self, at: usize) {
        let (tag, offset, len) = (self.tag(), self.place(), usize::from(self.byte()) * 40 + 1);
        let mut sqe = Sqe::function_send(COMPUTE, FunctionKind::Read, tag, offset, len as u32);
        if self.byte().is_multiple_of(2) {
            sqe = sqe.with_last();
        }
        self.hosts[at].post(sqe, Some(&pattern(len, 9)), 0, Posted::Held);
    }

    fn file(&mut self, at: usize) {
        let files = self.hosts[at].files.clone();
        let file = files.get(usize::from(self.byte()) % (files.len() + 1)).copied();
        let handle = file.unwrap_or(FileHandle { id: 3, generation: 9 });
        let (path, other) = (self.one_of(&NAMES), self.one_of(&NAMES));
        let all = [FileFlags::READ, FileFlags::READ_WRITE, FileFlags::WRITE, FileFlags::NONE, FileFlags::NO_FOLLOW];
        let flags = self.one_of(&all);
        let (offset, len) = (self.place(), self.word() as u32);
        let data = pattern(len as usize % 5000, 4);
        let request = match self.byte() % 14 {
            0..=3 => FileRequest::Lookup { dir: None, path, flags },
            4 => FileRequest::Create { dir: None, path, mode: 0o640, flags: flags | FileFlags::READ_WRITE },
            5 => {
                FileRequest::Stat { base: file, path: if file.is_some() { b"" } else { path }, flags: FileFlags::NONE }
            }
            6 => FileRequest::List { base: None, path, cursor: offset, len_max: len, flags: FileFlags::NONE },
            7 => FileRequest::Read { file: handle, offset, len },
            8 => FileRequest::Write { file: handle, offset: offset % (1 << 20), data: &data, flags: FileFlags::NONE },
            9 => FileRequest::Truncate { file: handle, len: offset % (1 << 20) },
            10 => FileRequest::Rename { dir: None, from: path, to: other, flags: FileFlags::NONE },
            11 => FileRequest::Unlink { dir: None, path },
            12 => FileRequest::Sync { file: handle, flags: FileFlags::NONE },
            _ => FileRequest::ListExports { cursor: 0, len_max: len },
        };
        let (tag, args) = (self.tag(), request.to_bytes());
        let request = FunctionRequest { args, ..FunctionRequest::new(FunctionKind::File, 0) };
        self.hosts[at].results.remove(&tag);
        self.post_request(at, tag, &request, false);
        if !self.byte().is_multiple_of(4) {
            let receive = Sqe::function_receive(COMPUTE, tag, 0, 8192, 20);
            self.hosts[at].post(receive, None, 8192, Posted::Receive { tag, offset: 0 });
            self.hosts[at].wait_all();
        }
    }

    fn receive(&mut self, at: usize) {
        let tag = self.tag();
        let offset = if self.byte().is_multiple_of(4) { self.place() } else { 0 };
        let (len, wait_ms) = (u32::from(self.byte()) * 64, self.wait_ms());
        let mut sqe = Sqe::function_receive(COMPUTE, tag, offset, len, wait_ms);
        if self.byte().is_multiple_of(2) {
            sqe = sqe.with_fill();
        }
        self.hosts[at].post(sqe, None, len as usize, Posted::Receive { tag, offset });
    }

    fn call(&mut self, at: usize) {
        let prepared = &self.hosts[at].prepared;
        let handle = prepared.last().copied().unwrap_or(1);
        let handle = if self.byte() == 0 { self.word() as u32 } else { handle };
        let args = [self.byte(); 16];
        let args_len = usize::from(self.byte()) % 17;
        let (len, wait_ms) = (u32::from(self.byte()) * 32, self.wait_ms());
        let sqe = Sqe::function_call(COMPUTE, handle, &args[..args_len], len, wait_ms as u16);
        self.hosts[at].post(sqe, None, len as usize, Posted::Other);
    }

    fn cancel(&mut self, at: usize) {
        let sqe = Sqe::function_cancel(COMPUTE, self.tag(), self.byte().is_multiple_of(2), self.wait_ms());
        self.hosts[at].post(sqe, None, 0, Posted::Other);
    }

    fn clear(&mut self, at: usize) {
        let select = self.one_of(&[ClearSelect::Cache, ClearSelect::State, ClearSelect::Prepared]);
        let id = match select {
            ClearSelect::Prepared => self.hosts[at].prepared.pop().map_or(7, u64::from),
            _ => u64::from(self.byte() % 3),
        };
        let start = self.place();
        let sqe = Sqe::function_clear(COMPUTE, select, id, start..start.saturating_add(self.place()));
        self.hosts[at].post(sqe, None, 0, Posted::Other);
    }

    fn layout(&mut self, at: usize) {
        let runs = (0..self.byte() % 4).map(|index| LayoutRun {
            logical: u64::from(index) * 8192,
            physical: self.place() % VOLUME_LEN,
            len: self.word() % 8192 + 1,
        });
        let request = LayoutRequest {
            runs: runs.collect(),
            action: self.one_of(&[LayoutAction::Set, LayoutAction::Set, LayoutAction::Append, LayoutAction::Revoke]),
            id: u32::from(self.byte() % 3),
            nsid: if self.byte() == 0 { 5 } else { VOLUME },
            generation: 1 + u64::from(self.byte() % 2),
            file_len: self.word(),
        };
        let bytes = request.encode();
        let sqe = Sqe::layout_send(COMPUTE, bytes.len() as u32).with_function_timeout_ms(self.wait_ms());
        self.hosts[at].post(sqe, Some(&bytes), 0, Posted::Other);
    }

    /// Plain reads and writes.
    fn volume(&mut self, at: usize) {
        let lba = u64::from(self.byte()) % (VOLUME_LEN >> 12);
        if self.byte().is_multiple_of(2) {
            self.hosts[at].post(Sqe::read(VOLUME, lba, 1), None, 4096, Posted::Other);
        } else {
            self.hosts[at].post(Sqe::write(VOLUME, lba, 1), Some(&pattern(4096, lba)), 0, Posted::Other);
        }
    }

    /// Any command of functions, its fields as they come.
    fn raw(&mut self, at: usize) {
        let opcode = self.one_of(&function_opcode::ALL);
        let mut sqe = Sqe::new(opcode, if self.byte() == 0 { VOLUME } else { COMPUTE });
        for dword in 10..16 {
            sqe = sqe.with_dword(dword, self.word() as u32 * if self.byte() == 0 { 65_521 } else { 1 });
        }
        // Commands that wait, wait shortly; their tags and data are others'.
        sqe = sqe.with_qword(2, self.tag()).with_dword(14, self.wait_ms());
        let len = usize::from(self.byte()) * 8;
        if opcode & 3 == 1 {
            let data: Vec<u8> = (0..len.min(64)).map(|_| self.byte()).collect();
            self.hosts[at].post(sqe, Some(&data), 0, Posted::Held);
        } else {
            self.hosts[at].post(sqe, None, if opcode & 3 == 2 { len } else { 0 }, Posted::Held);
        }
    }
}
