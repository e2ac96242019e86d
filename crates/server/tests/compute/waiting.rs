//! Traversals whose bytes a disk has: they wait for the reactor's ring, without a thread, whatever the disk does meanwhile.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::client::{COMPUTE, Client, VOLUME, locally, start};
use crate::common::{Answer, builder};
use crate::standard::compiled;
use crate::traversals::{FREE, LEN, end_of, input, next_of, request, words};
use diskside_io::Errno;
use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_server::config::VolumeSpec;
use diskside_server::{Running, TargetBuilder};
use diskside_volume::health::HealthStats;
use diskside_volume::media::{FaultPlan, FaultyMedium, FileMedium, OpenOptions};
use diskside_volume::medium::{Access, Action, Medium, Properties, Step};
use diskside_wire::function::{
    Endpoint, EndpointKind, FunctionCommand, FunctionRequest, LayoutAction, LayoutRequest, LayoutRun, Outcome,
    ReceiveAnswer, Trailer, statistics_kind,
};

/// Commands of one queue, of which it has 64.
const CALLS: usize = 60;
/// Room for a result, or for the trailer of a call that failed.
const ROOM: u32 = 1024;

/// What a disk does that is not well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Well,
    /// Every read fails.
    Fails,
    /// Every read takes so long.
    Stalls(Duration),
    /// Every read brings its first block.
    Short,
    /// No read comes back.
    Hangs,
}

/// A disk that is a file, opened past the page cache where that can be.
#[derive(Debug)]
struct Disk {
    file: FileMedium,
    mood: Mutex<Mood>,
    reads: AtomicU64,
    /// Nobody writes to it: reads of it hang, as long as there is its other end.
    hung: (Arc<OwnedFd>, Mutex<Option<OwnedFd>>),
}

impl Disk {
    fn of(file: FileMedium) -> Self {
        let (end, writer) = rustix::pipe::pipe().unwrap();
        Self {
            file,
            mood: Mutex::new(Mood::Well),
            reads: AtomicU64::new(0),
            hung: (Arc::new(end), Mutex::new(Some(writer))),
        }
    }

    fn is(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    /// Reads that hang end, without a byte.
    fn answers(&self) {
        self.hung.1.lock().unwrap().take();
    }
}

impl Medium for Disk {
    fn properties(&self) -> &Properties {
        self.file.properties()
    }

    fn start(&self, access: &Access<'_>) -> Step {
        let step = self.file.start(access);
        if access.is_write() || matches!(access, Access::Flush) {
            return step;
        }
        self.reads.fetch_add(1, Ordering::SeqCst);
        match (*self.mood.lock().unwrap(), step.action) {
            (Mood::Fails, _) => Action::Failed(Errno::IO).into(),
            (Mood::Stalls(delay), action) => Step { delay, action },
            (Mood::Hangs, Action::File { len, .. }) => Action::File { file: Arc::clone(&self.hung.0), len }.into(),
            (Mood::Short, Action::File { file, .. }) => Action::File { file, len: 512 }.into(),
            (_, action) => action.into(),
        }
    }
}

struct Fixture {
    path: PathBuf,
    disk: Arc<Disk>,
    running: Running,
    _dir: tempfile::TempDir,
}

/// The file that is walked through, in a directory that is not memory.
fn store() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("store");
    std::fs::write(&path, [words(), vec![0; 4096]].concat()).unwrap();
    (dir, path)
}

fn open(path: &Path) -> FileMedium {
    let options = OpenOptions { read_only: false, buffered: false, size: None, block_bytes: 512 };
    FileMedium::open(path, &options).unwrap()
}

fn spec() -> VolumeSpec {
    VolumeSpec { block: 512, ..VolumeSpec::new("data", "disk").writable() }
}

/// A target of which one host's calls have one thread, and that keeps nothing.
fn target() -> TargetBuilder {
    builder().reactors(1).compute(|compute| {
        compute.host_calls = 1;
        compute.cache = "0".parse().unwrap();
    })
}

impl Fixture {
    fn new() -> Self {
        let (dir, path) = store();
        let disk = Arc::new(Disk::of(open(&path)));
        let running = start(target().medium(spec(), Arc::clone(&disk) as Arc<dyn Medium>));
        Self { path, disk, running, _dir: dir }
    }

    fn client(&self) -> Client {
        Client::connect(&self.running)
    }

    /// The disk, as the operator of the server sees it.
    fn seen(&self) -> HealthStats {
        self.running.handle().stats().disks.remove(0)
    }

    /// Waits until the disk was asked for so many reads.
    fn is_asked_for(&self, reads: u64) {
        let until = Instant::now() + Duration::from_secs(20);
        while self.disk.reads.load(Ordering::SeqCst) < reads {
            assert!(Instant::now() < until, "{} of {reads}", self.disk.reads.load(Ordering::SeqCst));
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn volume() -> Endpoint {
    Endpoint::new(EndpointKind::Volume(VOLUME), 0, LEN)
}

fn load(client: &mut Client) {
    for (pind, program) in [(FREE, "walk"), (FREE + 1, "fan")] {
        client.load(pind, &compiled(program)).ok();
        client.activate(pind, true).ok();
    }
}

fn fan() -> FunctionRequest {
    FunctionRequest { pind: FREE + 1, args: vec![0; 24], ..request("fan", volume()) }
}

/// What `fan` finds.
fn mix_of(rounds: u64, mix: u64) -> [u8; 8] {
    let round = |mix: u64| {
        let words = (0..16).map(|i| (next_of(mix.wrapping_add(i * 1009) % (32 << 10) * 8), i));
        words.fold(mix, |mix, (word, i)| mix.wrapping_mul(31).wrapping_add(word).wrapping_add(i))
    };
    (0..rounds).fold(mix, |mix, _| round(mix)).to_le_bytes()
}

fn post(client: &mut Client, handle: u32, args: &[u8], timeout_ms: u16) -> u16 {
    let sqe = Sqe::function_call(COMPUTE, handle, args, ROOM, timeout_ms);
    client.queue.post(sqe, None, ROOM as usize).unwrap()
}

/// The result of a Call, or its trailer.
fn ended(answer: Answer) -> Result<Vec<u8>, Box<Trailer>> {
    assert!(answer.status.is_success(), "{}", answer.status);
    let told = ReceiveAnswer::from_call_result(answer.result, ROOM).unwrap();
    let (result, rest) = answer.data.split_at(told.result_len as usize);
    match Trailer::decode(&rest[..told.trailer_len.into()]) {
        Ok(trailer) if trailer.outcome != Outcome::Ok => Err(Box::new(trailer)),
        _ => Ok(result.to_vec()),
    }
}

fn wait(client: &mut Client, cid: u16) -> Result<Vec<u8>, Box<Trailer>> {
    ended(client.queue.wait(cid).unwrap())
}

/// Every lookup of a disk took a thread for as long as its reads took, one after the other: here the only thread of the host is
/// taken, and lookups end.
#[test]
fn lookups_of_a_disk_take_no_thread() {
    let target = Fixture::new();
    let mut client = target.client();
    load(&mut client);
    client.load_counter(FREE + 2);
    let (walk, fan) = (client.prepare(&request("walk", volume())), client.prepare(&fan()));
    let busy = client.count_for_ever();
    // Longer than what a reactor does of traversals in memory.
    assert_eq!(client.call(walk, &input(1500, 16), 8).ok(), end_of(1500, 16));
    let walks: Vec<_> = (0..CALLS as u64).map(|at| (at, post(&mut client, walk, &input(50, at * 8), 0))).collect();
    for (at, cid) in walks {
        assert_eq!(wait(&mut client, cid).unwrap(), end_of(50, at * 8));
    }
    let fans: Vec<_> = (0..CALLS as u64).map(|mix| (mix, post(&mut client, fan, &input(3, mix), 0))).collect();
    for (mix, cid) in fans {
        assert_eq!(wait(&mut client, cid).unwrap(), mix_of(3, mix), "in the order in which they were asked for");
    }
    client.cancel(busy);
}

#[test]
fn what_they_read_is_counted_where_it_is_read() {
    let target = Fixture::new();
    let mut client = target.client();
    load(&mut client);
    let walk = client.prepare(&request("walk", volume()));
    client.call(walk, &input(7, 800), 8).ok();
    let counted = client.counted(statistics_kind::VOLUME_BY_FUNCTIONS, "data").unwrap().0;
    assert_eq!(counted, [7, 7 * 512, 0, 0], "whole blocks, as they were read");
    assert_eq!(target.disk.reads.load(Ordering::SeqCst), 7);
    let volume = target.running.handle().stats().volumes["data"];
    assert_eq!((volume.reads, volume.read_bytes), (0, 0), "no host read them");
}

#[test]
fn a_file_of_a_mounted_volume_is_followed_on_its_disk() {
    let target = Fixture::new();
    let mut client = target.client();
    load(&mut client);
    client.load_counter(FREE + 2);
    // In runs of odd lengths, in their own order.
    let cut = |at: u64| LayoutRun { logical: at, physical: at, len: 7984.min(LEN - at) };
    let runs = (0..LEN).step_by(7984).map(cut).collect();
    let kept = LayoutRequest { action: LayoutAction::Set, id: 7, nsid: VOLUME, generation: 1, file_len: LEN, runs };
    crate::traversals::send(&mut client, &kept);
    let source = Endpoint { generation: 1, ..Endpoint::new(EndpointKind::Layout(7), 0, Endpoint::TO_END) };
    let walk = client.prepare(&request("walk", source));
    let busy = client.count_for_ever();
    assert_eq!(client.call(walk, &input(700, 8), 8).ok(), end_of(700, 8));
    client.cancel(busy);
    let revoke = LayoutRequest { action: LayoutAction::Revoke, runs: Vec::new(), ..kept };
    assert_eq!(crate::traversals::send(&mut client, &revoke), 0, "no call that has ended keeps the layout");
}

#[test]
fn a_disk_that_fails_fails_the_lookup_and_no_other() {
    let target = Fixture::new();
    let mut client = target.client();
    load(&mut client);
    let (walk, fan) = (client.prepare(&request("walk", volume())), client.prepare(&fan()));
    target.disk.is(Mood::Fails);
    let call = post(&mut client, walk, &input(5, 8), 0);
    let trailer = wait(&mut client, call).unwrap_err();
    assert_eq!((trailer.outcome, trailer.returned, trailer.hop), (Outcome::Media, -5, 0), "{}", trailer.message);
    let call = post(&mut client, fan, &input(1, 8), 0);
    assert_eq!(wait(&mut client, call).unwrap_err().outcome, Outcome::Media);
    assert_eq!(client.counted(statistics_kind::VOLUME_BY_FUNCTIONS, "data").unwrap().0, [17, 0, 0, 17]);
    assert_eq!(target.seen().errors, 17);
    target.disk.is(Mood::Well);
    assert_eq!(client.call(walk, &input(5, 8), 8).ok(), end_of(5, 8));
}

#[test]
fn a_disk_that_brings_less_is_asked_again() {
    let target = Fixture::new();
    let mut client = target.client();
    load(&mut client);
    let long = Endpoint::new(EndpointKind::Volume(VOLUME), 0, LEN + 2048);
    let stroll = client.prepare(&request("stroll", long));
    target.disk.is(Mood::Short);
    assert_eq!(client.call(stroll, &input(9, 0), 8).ok(), end_of(9, 0));
    assert!(target.disk.reads.load(Ordering::SeqCst) >= 9 * 4, "a block each time");
}

#[test]
fn a_disk_that_shrinks_is_an_error() {
    let target = Fixture::new();
    let mut client = target.client();
    load(&mut client);
    let walk = client.prepare(&request("walk", volume()));
    File::options().write(true).open(&target.path).unwrap().set_len(512).unwrap();
    assert_eq!(client.call(walk, &input(1, 0), 8).ok(), end_of(1, 0), "what is left of it");
    let call = post(&mut client, walk, &input(1, 4096), 0);
    let trailer = wait(&mut client, call).unwrap_err();
    assert_eq!((trailer.outcome, trailer.returned), (Outcome::Media, -5), "{}", trailer.message);
}

/// Its time is what the host gave it, not what the disk takes; and others' reads do not wait with it.
#[test]
fn a_disk_that_stalls_holds_a_lookup_until_its_deadline() {
    let target = Fixture::new();
    let mut client = target.client();
    load(&mut client);
    let walk = client.prepare(&request("walk", volume()));
    target.disk.is(Mood::Stalls(Duration::from_secs(3)));
    let began = Instant::now();
    let calls: Vec<_> = (0..CALLS as u64).map(|at| post(&mut client, walk, &input(5, at * 8), 200)).collect();
    for call in calls {
        assert_eq!(wait(&mut client, call).unwrap_err().outcome, Outcome::Deadline);
    }
    let took = began.elapsed();
    assert!((Duration::from_millis(200)..Duration::from_millis(2900)).contains(&took), "{took:?}");
    target.disk.is(Mood::Well);
    assert_eq!(client.call(walk, &input(5, 8), 8).ok(), end_of(5, 8));
}

/// A lookup that moved to a thread, which begins it again, had all of its time again, too.
#[test]
fn a_lookup_that_moves_to_a_thread_has_the_time_that_is_left() {
    let target = Fixture::new();
    let mut client = target.client();
    client.load(FREE, &compiled("astray")).ok();
    client.activate(FREE, true).ok();
    // Three reads, and then more steps of its own than a reactor takes.
    let args = [3_u64, 2].map(u64::to_le_bytes).concat();
    let handle = client.prepare(&FunctionRequest { args: args.clone(), ..request("astray", volume()) });
    target.disk.is(Mood::Stalls(Duration::from_millis(200)));
    let call = post(&mut client, handle, &args, 900);
    let trailer = wait(&mut client, call).unwrap_err();
    assert_eq!(trailer.outcome, Outcome::Deadline, "a thread has not the time for three more reads: {trailer:?}");
}

#[test]
fn a_lookup_that_waits_can_be_aborted() {
    let target = Fixture::new();
    let mut client = target.client();
    load(&mut client);
    let walk = client.prepare(&request("walk", volume()));
    target.disk.is(Mood::Stalls(Duration::from_secs(3)));
    let began = Instant::now();
    let (first, second) = (post(&mut client, walk, &input(5, 8), 0), post(&mut client, walk, &input(2, 8), 0));
    target.is_asked_for(2);
    client.controller.admin.command(Sqe::abort(1, first), None, 0).ok();
    assert_eq!(wait(&mut client, first).unwrap_err().outcome, Outcome::Cancelled);
    assert!(began.elapsed() < Duration::from_millis(2900), "it did not wait for the disk");
    target.disk.is(Mood::Well);
    assert_eq!(wait(&mut client, second).unwrap(), end_of(2, 8), "the other one goes on");
}

/// A function whose disk hung kept its thread until the disk came back, although it was cancelled; here the host has one thread.
#[test]
fn a_function_ends_although_its_disk_hangs() {
    let target = Fixture::new();
    let mut client = target.client();
    let bytes = std::fs::read(&target.path).unwrap();
    // One piece, which the call's thread reads, and several, which are read ahead.
    for chunk_len in [1 << 20, 4096] {
        let request = FunctionRequest { chunk_len, ..client.over("wc", &[], bytes.len() as u64) };
        target.disk.is(Mood::Hangs);
        let tag = client.tag();
        let reads = target.disk.reads.load(Ordering::SeqCst);
        client.send(tag, &request).ok();
        target.is_asked_for(reads + 1);
        assert!(target.seen().waiting > 0, "the reads of functions count");
        let answer = client.queue.command(Sqe::function_cancel(COMPUTE, tag, true, 10_000), None, 0);
        assert_eq!((answer.status, answer.result), (Status::SUCCESS, 0), "it has stopped");
        assert_eq!(client.finish(tag).1.outcome, Outcome::Cancelled);
        let (_, trailer) = client.run(&FunctionRequest { deadline_ms: 300, ..request.clone() });
        assert_eq!(trailer.outcome, Outcome::Deadline, "{}", trailer.message);
        target.disk.is(Mood::Well);
        assert_eq!(client.result(&request), locally("wc", &[], &bytes));
        // Reads that were left end, too (those of a pipe can be cancelled), and then nothing is owed.
        let until = Instant::now() + Duration::from_secs(20);
        while target.seen().waiting > 0 {
            assert!(Instant::now() < until, "{:?}", target.seen());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_volume_that_vanishes_ends_lookups() {
    let target = Fixture::new();
    let mut client = target.client();
    load(&mut client);
    let walk = client.prepare(&request("walk", volume()));
    target.disk.is(Mood::Stalls(Duration::from_millis(300)));
    let calls: Vec<_> = (0..CALLS as u64).map(|at| post(&mut client, walk, &input(500, at * 8), 0)).collect();
    target.is_asked_for(CALLS as u64);
    target.running.handle().remove_volume("data").unwrap();
    for call in calls {
        let answer = client.queue.wait(call).unwrap();
        if answer.status.is_success() {
            assert_eq!(ended(answer).unwrap_err().outcome, Outcome::Media);
        } else {
            assert_eq!(answer.status, Status::NAMESPACE_NOT_REACHABLE.dnr());
        }
    }
    client.call(walk, &input(1, 0), 8).fails_with(Status::NAMESPACE_NOT_REACHABLE.dnr());
}

/// Its reads were kept by timers, which end with their host: no operation was ever in the ring, and the disk was asked for nothing.
/// Here the ring has several times as many of them as it has places, 1,024, and what it has stays until the disk answers.
#[test]
fn a_host_that_disconnects_with_thousands_of_reads_leaves_nothing() {
    let target = Fixture::new();
    let mut client = target.client();
    load(&mut client);
    let fan = client.prepare(&fan());
    let mut queues = vec![client];
    queues.extend((0..3).map(|_| target.client()));
    for queue in queues.iter_mut().skip(1) {
        // Prepared requests are a controller's own.
        assert_eq!(queue.prepare(&self::fan()), fan);
    }
    target.disk.is(Mood::Hangs);
    for queue in &mut queues {
        for mix in 0..CALLS as u64 {
            post(queue, fan, &input(900, mix), 0);
        }
    }
    let thousands = (queues.len() * CALLS * 16) as u64;
    let reactor = || target.running.handle().stats().reactors[0];
    let within = |what: &str, holds: &dyn Fn() -> bool| {
        let until = Instant::now() + Duration::from_secs(20);
        while !holds() {
            assert!(Instant::now() < until, "not {what}: {:?}, {:?}", target.seen(), reactor());
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    within("all in the ring", &|| target.seen().waiting == thousands);
    drop(queues);
    target.disk.is(Mood::Well);
    let mut next = target.client();
    load(&mut next);
    let walk = next.prepare(&request("walk", volume()));
    assert_eq!(next.call(walk, &input(5, 8), 8).ok(), end_of(5, 8), "beside them");
    drop(next);
    let held = (target.seen().waiting, reactor().memory_in_flight_bytes >= thousands * 512);
    assert_eq!(held, (thousands, true), "the kernel has their memory");
    target.disk.answers();
    within("without them", &|| {
        target.seen().waiting == 0 && reactor().connections == 0 && reactor().memory_in_flight_bytes == 0
    });
    let mut last = target.client();
    load(&mut last);
    let walk = last.prepare(&request("walk", volume()));
    assert_eq!(last.call(walk, &input(5, 8), 8).ok(), end_of(5, 8));
}

/// Whatever a disk does, a lookup has the right result or says that it has none.
#[test]
fn a_disk_with_faults_of_every_kind_gives_no_wrong_result() {
    let (_dir, path) = store();
    let plan = FaultPlan {
        seed: 11,
        eio_ppm: 20_000,
        short_ppm: 300_000,
        delay_ppm: 300_000,
        delay_max: Duration::from_millis(3),
        ..FaultPlan::default()
    };
    let faulty = FaultyMedium::new(Arc::new(open(&path)), 512, plan);
    let running = start(target().medium(spec(), Arc::new(faulty)));
    let mut client = Client::connect(&running);
    load(&mut client);
    let long = Endpoint::new(EndpointKind::Volume(VOLUME), 0, LEN + 2048);
    let (stroll, fan) = (client.prepare(&request("stroll", long)), client.prepare(&fan()));
    let (mut good, mut failed) = (0, 0);
    for round in 0..10 {
        let calls: Vec<_> = (0..CALLS as u64 / 2)
            .flat_map(|at| {
                let at = at * 8 + round;
                [
                    (end_of(9, at * 8), post(&mut client, stroll, &input(9, at * 8), 0)),
                    (mix_of(2, at), post(&mut client, fan, &input(2, at), 0)),
                ]
            })
            .collect();
        for (wanted, call) in calls {
            match wait(&mut client, call) {
                Ok(result) => {
                    assert_eq!(result, wanted);
                    good += 1;
                }
                Err(trailer) => {
                    assert_eq!(trailer.outcome, Outcome::Media, "{}", trailer.message);
                    failed += 1;
                }
            }
        }
    }
    assert!(good > 100 && failed > 50, "{good} went well, {failed} failed");
    assert_eq!(running.handle().stats().reactors[0].memory_in_flight_bytes, 0);
}
