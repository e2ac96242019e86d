//! Traversals: over whatever holds the bytes, where they run, and what one host's may take of a reactor that others use.

use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::client::{COMPUTE, Client, VOLUME, start};
use crate::common::builder;
use crate::standard::compiled;
use diskside_nvme::wire::Sqe;
use diskside_server::Running;
use diskside_server::config::{ExportSpec, VolumeSpec};
use diskside_server::stats::ReactorStats;
use diskside_wire::file::{FileFlags, FileRequest};
use diskside_wire::function::{
    Endpoint, EndpointKind, FunctionCommand, FunctionKind, FunctionRequest, LayoutAction, LayoutRequest, LayoutRun,
    Outcome, statistics_kind,
};

pub(crate) const FREE: u16 = 100;
const OTHER: &str = "nqn.2026-11.org.example:other";
/// Words of the file that is walked through.
const WORDS: u64 = 32 << 10;
pub(crate) const LEN: u64 = WORDS * 8;
/// Work that a host's traversals may take of a turn, and what one step may take more.
const HOST_WORK_MAX: u64 = 1024;
const STEP_WORK_MAX: u64 = 3;

/// The word at each place says where the next one is: one way through all of them, far and wide.
pub(crate) fn next_of(at: u64) -> u64 {
    (at / 8 * 10_501 + 4_321) % WORDS * 8
}

pub(crate) fn words() -> Vec<u8> {
    (0..WORDS).flat_map(|word| next_of(word * 8).to_le_bytes()).collect()
}

/// Where a walk of so many steps ends.
pub(crate) fn end_of(steps: u64, at: u64) -> [u8; 8] {
    (0..steps).fold(at, |at, _| next_of(at)).to_le_bytes()
}

pub(crate) fn input(steps: u64, at: u64) -> Vec<u8> {
    [steps, at].iter().flat_map(|word| word.to_le_bytes()).collect()
}

impl Client {
    fn load_walks(&mut self) {
        self.load_walks_at(FREE);
    }

    fn load_walks_at(&mut self, pind: u16) {
        self.load(pind, &compiled("walk")).ok();
        self.activate(pind, true).ok();
    }
}

pub(crate) fn request(function: &str, source: Endpoint) -> FunctionRequest {
    FunctionRequest {
        function: Some(function.into()),
        sources: vec![source],
        args: vec![0; 16],
        result_len_max: 64,
        ..FunctionRequest::new(FunctionKind::Traverse, FREE)
    }
}

fn reactor(running: &Running) -> ReactorStats {
    running.handle().stats().reactors[0]
}

/// Walks that a reactor can take at once, and one that is too long for it: as Calls and as requests.
fn walk(client: &mut Client, source: Endpoint) {
    let request = request("walk", source);
    let handle = client.prepare(&request);
    for (steps, at) in [(0, 8), (1, 0), (7, 800), (900, 16), (1500, 24)] {
        let wanted = end_of(steps, at);
        assert_eq!(client.call(handle, &input(steps, at), 8).ok(), wanted, "{steps} steps from {at}");
        let request = FunctionRequest { args: input(steps, at), ..request.clone() };
        let (result, trailer) = client.run(&request);
        assert_eq!((trailer.outcome, &result[..]), (Outcome::Ok, &wanted[..]), "{}", trailer.message);
        assert_eq!((u64::from(trailer.hop), trailer.media_read), (steps + 1, steps * 8));
    }
}

fn layout(generation: u64, runs: Vec<LayoutRun>) -> LayoutRequest {
    LayoutRequest { action: LayoutAction::Set, id: 7, nsid: VOLUME, generation, file_len: LEN, runs }
}

pub(crate) fn send(client: &mut Client, request: &LayoutRequest) -> u64 {
    let bytes = request.encode();
    let answer = client.queue.command(Sqe::layout_send(COMPUTE, bytes.len() as u32), Some(&bytes), 0);
    assert!(answer.status.is_success(), "{}", answer.status);
    answer.result
}

/// A file in pieces of odd lengths, all over a volume. Gives the runs, and the bytes of the volume.
fn scattered(file: &[u8]) -> (Vec<LayoutRun>, Vec<u8>) {
    let mut device = vec![0xee; 4 * file.len()];
    let (mut runs, mut logical, mut at) = (Vec::new(), 0, 2 * file.len() + 3);
    while logical < file.len() {
        let len = (1013 + logical % 4001).min(file.len() - logical);
        device[at..at + len].copy_from_slice(&file[logical..logical + len]);
        runs.push(LayoutRun { logical: logical as u64, physical: at as u64, len: len as u64 });
        (logical, at) = (logical + len, at + len + 7);
    }
    (runs, device)
}

/// Steps over a layout run on the reactor, see each generation as it is, and keep no Revoke waiting.
#[test]
fn a_file_of_a_mounted_volume_is_followed_on_the_reactor() {
    let running = start(builder().reactors(1).volume(VolumeSpec::new("data", "mem:4MiB").writable()));
    let mut client = Client::connect(&running);
    client.load_walks();
    let (runs, device) = scattered(&words());
    client.fill(&device);
    send(&mut client, &layout(1, runs.clone()));
    let source = Endpoint { generation: 1, ..Endpoint::new(EndpointKind::Layout(7), 0, Endpoint::TO_END) };
    walk(&mut client, source);
    assert!(reactor(&running).traversal_work_turn_max >= 900, "{:?}", reactor(&running));

    // Holes read as zeroes: a walk that comes there continues at the beginning.
    let hole = runs.iter().position(|run| run.logical > next_of(0)).unwrap() - 1;
    let with_hole = [&runs[..hole], &runs[hole + 2..]].concat();
    let prepared = client.prepare(&request("walk", source));
    send(&mut client, &layout(2, with_hole));
    let stale = client.call(prepared, &input(2, 0), 8);
    assert_ne!(stale.data[..], end_of(2, 0), "a prepared request names its generation");
    let now = client.prepare(&request("walk", Endpoint { generation: 2, ..source }));
    assert_eq!(client.call(now, &input(2, 0), 8).ok(), [0; 8]);

    let revoke = LayoutRequest { action: LayoutAction::Revoke, ..layout(2, Vec::new()) };
    assert_eq!(send(&mut client, &revoke), 0, "no call that has ended keeps the layout");
    let (result, trailer) =
        client.run(&FunctionRequest { args: input(1, 0), ..request("walk", Endpoint { generation: 2, ..source }) });
    assert_eq!((result.len(), trailer.outcome), (0, Outcome::Stale), "{}", trailer.message);
}

/// A file of an export, as far as the page cache has it; what is written to it, and where it ends, is seen.
#[test]
fn a_file_of_an_export_is_followed_on_the_reactor() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), words()).unwrap();
    let running = start(builder().reactors(1).export(ExportSpec::new("data", dir.path()).writable()));
    let mut client = Client::connect(&running);
    client.load_walks();
    let file = client.open("data/file", FileFlags::READ);
    let source = Endpoint { generation: file.generation, ..Endpoint::whole(EndpointKind::File(file.id)) };
    walk(&mut client, source);
    let work = reactor(&running).traversal_work_turn_max;
    if is_read_at_once(&dir.path().join("file")) {
        assert!(work >= 900, "{work}");
    } else {
        eprintln!("NOT TESTED: this file system does not say what the page cache has");
    }

    let handle = client.prepare(&request("walk", source));
    let writer = std::fs::OpenOptions::new().write(true).open(dir.path().join("file")).unwrap();
    writer.write_all_at(&4096_u64.to_le_bytes(), 80).unwrap();
    assert_eq!(client.call(handle, &input(1, 80), 8).ok(), 4096_u64.to_le_bytes());
    // From a place on, and no further than the file goes.
    let window = Endpoint { offset: 800, ..source };
    let (result, _) = client.run(&FunctionRequest { args: input(1, 8), ..request("walk", window) });
    assert_eq!(result, next_of(808).to_le_bytes());
    writer.set_len(LEN - 8).unwrap();
    let (_, trailer) = client.run(&FunctionRequest { args: input(1, LEN - 8), ..request("walk", source) });
    assert!(trailer.message.contains("which is 262136 bytes long"), "{}", trailer.message);
}

/// A traversal over a file that somebody changed mixed what was before with what came after, and said nothing.
#[test]
fn a_file_that_changes_under_a_traversal_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, words()).unwrap();
    let running = start(builder().reactors(1).export(ExportSpec::new("data", dir.path()).writable()));
    let mut client = Client::connect(&running);
    client.load_walks();
    let file = client.open("data/file", FileFlags::READ);
    let source = Endpoint { generation: file.generation, ..Endpoint::whole(EndpointKind::File(file.id)) };
    let (_, stat) = client.file(FileRequest::Stat { base: Some(file), path: b"", flags: FileFlags::NONE });
    let request = request("walk", source);
    for steps in [7, 1500] {
        let (_, trailer) = client.run(&FunctionRequest { args: input(steps, 8), ..request.clone() });
        assert_eq!((trailer.outcome, trailer.generation), (Outcome::Ok, stat.generation), "{trailer:?}");
    }
    let stop = AtomicBool::new(false);
    let changed = std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            while !stop.load(Ordering::Relaxed) {
                // The bytes that are there already: only the times of the file show the write.
                file.write_all_at(&next_of(8).to_le_bytes(), 8).unwrap();
            }
        });
        // On a busy machine the writer may not come in between.
        let walk = FunctionRequest { args: input(4000, 8), ..request };
        let changed = (0..2000).map(|_| client.run(&walk).1).find(|trailer| trailer.outcome != Outcome::Ok);
        // A host that guards the file itself is not told, on the reactor or on a thread.
        for steps in [7, 4000] {
            let guarded = FunctionRequest { guarded: true, args: input(steps, 8), ..walk.clone() };
            let handle = client.prepare(&FunctionRequest { args: input(steps, 8), ..guarded.clone() });
            for _ in 0..100 {
                let (result, trailer) = client.run(&guarded);
                assert_eq!((trailer.outcome, result.len()), (Outcome::Ok, 8), "{trailer:?}");
                assert_eq!(client.call(handle, &input(steps, 8), 8).ok(), result);
            }
        }
        stop.store(true, Ordering::Relaxed);
        changed
    });
    let changed = changed.expect("no walk heard of a change");
    assert_eq!(changed.outcome, Outcome::Stale, "{changed:?}");
    assert_eq!(changed.message, "data/file changed while it was read; read it again");
}

/// A cancel did nothing to a traversal: it ran, and ended well.
#[test]
fn a_traversal_that_waits_for_a_thread_is_cancelled() {
    let running = start(
        builder().compute(|compute| compute.host_calls = 1).volume(VolumeSpec::new("data", "mem:1MiB").writable()),
    );
    let mut client = Client::connect(&running);
    client.load_walks();
    client.load_counter(FREE + 1);
    let first = client.count_for_ever();
    // Over memory, which a reactor does not follow.
    let memory = Endpoint::new(EndpointKind::Memory(1023), 0, 4096);
    let (request, tag) = (FunctionRequest { args: input(3, 0), ..request("walk", memory) }, client.tag());
    client.send(tag, &request).ok();
    client.queue.command(Sqe::function_cancel(COMPUTE, tag, false, 0), None, 0).ok();
    client.cancel(first);
    let (result, trailer) = client.finish(tag);
    assert_eq!((trailer.outcome, result.len()), (Outcome::Cancelled, 0), "{trailer:?}");
    assert_eq!(client.run(&request).1.outcome, Outcome::Ok);
}

fn is_read_at_once(path: &std::path::Path) -> bool {
    let file = std::fs::File::open(path).unwrap();
    let mut bytes = [0; 8];
    let mut parts = [std::io::IoSliceMut::new(&mut bytes)];
    rustix::io::preadv2(&file, &mut parts, 0, rustix::io::ReadWriteFlags::NOWAIT) == Ok(8)
}

/// A walk that takes more than a host may have of a turn continues in the next, as often as it takes.
#[test]
fn a_long_walk_takes_several_turns() {
    let running = start(builder().reactors(1).volume(VolumeSpec::new("data", "mem:1MiB").writable()));
    let mut client = Client::connect(&running);
    client.load_walks();
    client.fill(&words());
    // Each step reads 2 KiB, and three units is what it costs.
    let source = Endpoint::new(EndpointKind::Volume(VOLUME), 0, LEN + 2048);
    let handle = client.prepare(&request("stroll", source));
    assert_eq!(client.call(handle, &input(500, 0), 8).ok(), end_of(500, 0));
    let stats = reactor(&running);
    assert!(stats.traversals_put_off > 0, "{stats:?}");
    let one_share = HOST_WORK_MAX..=HOST_WORK_MAX + STEP_WORK_MAX;
    assert!(one_share.contains(&stats.traversal_work_turn_max), "{stats:?}");
}

/// One host walks without end on as many queues as it likes. Another host's reads and lookups continue, since a turn of
/// the reactor has only so much room for the walks, however many they are.
#[test]
fn endless_walks_of_one_host_leave_turns_to_others() {
    const QUEUES: usize = 3;
    const CALLS: usize = 40;
    let running = start(builder().reactors(1).volume(VolumeSpec::new("data", "mem:1MiB").writable()));
    let mut client = Client::connect_as(&running, OTHER);
    client.load_walks_at(FREE + 1);
    client.fill(&words());
    let source = Endpoint::new(EndpointKind::Volume(VOLUME), 0, LEN);
    let lookup = client.prepare(&FunctionRequest { pind: FREE + 1, ..request("walk", source) });
    // A host keeps its programs as long as it is there.
    let mut walker = Client::connect(&running);
    walker.load_walks();
    let (done, walks) = (&AtomicBool::new(false), &AtomicU64::new(0));
    std::thread::scope(|scope| {
        /// Ends the walks also when what follows panics.
        struct Done<'a>(&'a AtomicBool);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let _done = Done(done);
        for _ in 0..QUEUES {
            let running = &running;
            scope.spawn(move || {
                let mut host = Client::connect(running);
                let handle = host.prepare(&request("walk", source));
                // The longest that a reactor takes.
                let sqe = Sqe::function_call(COMPUTE, handle, &input(1000, 8), 8, 0);
                let mut open: std::collections::VecDeque<u16> =
                    (0..CALLS).map(|_| host.queue.post(sqe, None, 8).unwrap()).collect();
                while let Some(cid) = open.pop_front() {
                    assert_eq!(host.queue.wait(cid).unwrap().ok(), end_of(1000, 8));
                    walks.fetch_add(1, Ordering::SeqCst);
                    if !done.load(Ordering::SeqCst) {
                        open.push_back(host.queue.post(sqe, None, 8).unwrap());
                    }
                }
            });
        }
        for round in 0..100 {
            let at = round % 64;
            let block = client.queue.read(VOLUME, at, 1).ok();
            assert_eq!(block[..8], next_of(at * 4096).to_le_bytes());
            assert_eq!(client.call(lookup, &input(7, at * 8), 8).ok(), end_of(7, at * 8));
        }
        // The walks went on as well.
        let before = walks.load(Ordering::SeqCst);
        while walks.load(Ordering::SeqCst) < before + 2 * CALLS as u64 {
            client.queue.read(VOLUME, 0, 1).ok();
        }
    });
    let stats = reactor(&running);
    assert!(stats.traversals_put_off > 0, "{stats:?}");
    // Of two hosts, and one step of each of their queues that began when there was a little left.
    let most = 2 * HOST_WORK_MAX + (QUEUES as u64 + 1) * STEP_WORK_MAX;
    assert!((HOST_WORK_MAX..=most).contains(&stats.traversal_work_turn_max), "{stats:?}");
}

/// Reads of traversals are counted where they happen: on a reactor, and on a thread after the reactor gave up.
#[test]
fn what_traversals_read_is_counted() {
    let running = start(builder().reactors(1).volume(VolumeSpec::new("data", "mem:1MiB").writable()));
    let mut client = Client::connect(&running);
    client.load_walks();
    client.fill(&words());
    let source = Endpoint::new(EndpointKind::Volume(VOLUME), 0, LEN);
    let handle = client.prepare(&request("walk", source));
    client.call(handle, &input(7, 800), 8).ok();
    client.run(&FunctionRequest { args: input(100, 0), ..request("walk", source) });
    let counted = |client: &mut Client| client.counted(statistics_kind::VOLUME_BY_FUNCTIONS, "data").unwrap().0;
    assert_eq!(counted(&mut client), [107, 107 * 8, 0, 0]);
    client.call(handle, &input(1500, 0), 8).ok();
    let [operations, read, ..] = counted(&mut client);
    assert!(operations >= 107 + 1500 && read == operations * 8, "{operations}, {read}");
}
