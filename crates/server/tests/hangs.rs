//! A disk that hangs: how much of the server its commands may take, and that other volumes are served meanwhile.

mod common;

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::{Controller, Queue, builder, pattern, start};
use diskside_io::Errno;
use diskside_io::ring::Op;
use diskside_nvme::wire::Sqe;
use diskside_server::Running;
use diskside_server::config::{Size, VolumeSpec};
use diskside_volume::media::MemoryMedium;
use diskside_volume::medium::{Access, Action, Medium, Properties, Step};
use diskside_volume::pending::{Answer, pending};
use rustix::event::{EventfdFlags, eventfd};

const MIB: usize = 1 << 20;
const MIB_BLOCKS: u32 = 256;
const BLOCK: usize = 4096;
/// Namespace IDs: media follow the volumes that are specified.
const HUNG: u32 = 2;
const CALM: u32 = 1;

/// Memory that, while it hangs, owes the answers to reads, and whose flushes each wait for a descriptor.
#[derive(Debug)]
struct Hanging {
    inner: MemoryMedium,
    properties: Properties,
    hangs: AtomicBool,
    reads: Mutex<Vec<(Answer, Range<usize>)>>,
    flushes: Mutex<Vec<Arc<OwnedFd>>>,
}

impl Hanging {
    fn new(len: usize) -> Arc<Self> {
        let inner = MemoryMedium::new(len as u64, false).unwrap();
        let properties = Properties { volatile_write_cache: true, ..inner.properties().clone() };
        let (reads, flushes) = Default::default();
        Arc::new(Self { inner, properties, hangs: AtomicBool::new(false), reads, flushes })
    }

    /// Bytes of the reads that it was asked for and has not answered.
    fn owed(&self) -> usize {
        lock(&self.reads).iter().map(|(_, range)| range.len()).sum()
    }

    /// Answers these reads and all to come.
    fn recover(&self) {
        self.hangs.store(false, Ordering::SeqCst);
        for (answer, range) in lock(&self.reads).drain(..) {
            answer.give(Ok(self.inner.memory().unwrap().slice(range)));
        }
    }

    fn end_flush(&self, number: usize) {
        rustix::io::write(&lock(&self.flushes)[number], &1_u64.to_le_bytes()).unwrap();
    }
}

impl Medium for Hanging {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn start(&self, access: &Access<'_>) -> Step {
        match *access {
            Access::Read { offset, len } if self.hangs.load(Ordering::SeqCst) => {
                let (pending, answer) = pending().unwrap();
                lock(&self.reads).push((answer, offset as usize..offset as usize + len));
                Action::Pending(pending).into()
            }
            Access::Flush if self.hangs.load(Ordering::SeqCst) => {
                let file = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap());
                lock(&self.flushes).push(Arc::clone(&file));
                Action::Ring(Op::Readable { file }).into()
            }
            _ => self.inner.start(access),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A server, which ends also when a test fails: a disk that hangs for good is nothing that it could wait for.
struct Served(Running, Arc<Hanging>);

impl Drop for Served {
    fn drop(&mut self) {
        self.1.recover();
        let flushes = lock(&self.1.flushes).len();
        (0..flushes).for_each(|number| self.1.end_flush(number));
    }
}

/// One reactor with this much memory, a volume that can hang, and one whose reads need memory, too.
fn serve(medium: &Arc<Hanging>, memory_mib: u64) -> Served {
    Served(running(medium, memory_mib), Arc::clone(medium))
}

fn running(medium: &Arc<Hanging>, memory_mib: u64) -> Running {
    let builder = builder().reactors(1).limits(|limits| {
        limits.memory = Size::from_mib(memory_mib);
        limits.connection_memory = Size::from_mib(memory_mib);
    });
    let builder = builder.medium(VolumeSpec::new("hung", "hanging").writable(), medium.clone());
    start(builder.volume("calm=mem:4MiB,rw,latency_us=10".parse().unwrap()))
}

/// How many operations wait for the disk that hangs, and for how long the oldest has, as the operator of the server sees it.
fn seen(served: &Served) -> (u64, u64) {
    let disks = served.0.handle().stats().disks;
    assert!(disks.iter().all(|disk| disk.name == "hung" || disk.waiting == 0), "{disks:?}");
    let hung = disks.iter().find(|disk| disk.name == "hung").expect("it is served");
    (hung.waiting, hung.oldest_ms)
}

fn connect(served: &Served, host: &str) -> (Controller, Queue) {
    connect_to(&served.0, host)
}

fn connect_to(running: &Running, host: &str) -> (Controller, Queue) {
    let mut controller = Controller::connect_as(running.handle(), host, 0).unwrap();
    controller.enable(0);
    let queue = controller.io_queue(1, 128);
    (controller, queue)
}

/// The other volume is written, flushed and read.
fn is_calm(queue: &mut Queue, seed: u64) {
    let bytes = pattern(MIB, seed);
    queue.write(CALM, 0, &bytes).ok();
    queue.flush(CALM).ok();
    assert!(queue.read(CALM, 0, MIB_BLOCKS).ok() == bytes);
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The reads of two hosts had all the memory while the disk below them hung, so that nobody could read from any other.
#[test]
fn reads_of_a_disk_that_hangs_leave_half_of_the_memory_to_others() {
    let medium = Hanging::new(32 * MIB);
    let served = serve(&medium, 16);
    let bytes = pattern(MIB, 1);
    let (_calm, mut calm) = connect(&served, "nqn.2026-11.org.example:calm");
    calm.write(HUNG, 0, &bytes).ok();
    medium.hangs.store(true, Ordering::SeqCst);
    let mut hosts: Vec<_> = (0..2).map(|n| connect(&served, &format!("nqn.2026-11.org.example:{n}"))).collect();
    let mut posted = Vec::new();
    for (_, queue) in &mut hosts {
        // Each of them asks for as much as there is.
        posted
            .push((0..16).map(|_| queue.post(Sqe::read(HUNG, 0, MIB_BLOCKS), None, MIB).unwrap()).collect::<Vec<_>>());
    }
    until("reads have their part of the memory", || medium.owed() >= 8 * MIB);
    for seed in 2..6 {
        is_calm(&mut calm, seed);
    }
    assert_eq!(medium.owed(), 8 * MIB, "half of the memory, and no more");
    // A host that goes changes nothing of that.
    drop(hosts.pop());
    is_calm(&mut calm, 6);
    medium.recover();
    let ((_, queue), posted) = (&mut hosts[0], &posted[0]);
    for cid in posted {
        assert!(queue.wait(*cid).unwrap().ok() == bytes);
    }
    is_calm(&mut calm, 7);
}

/// Flushes wait in threads of the kernel, of which a ring has few: those of one disk that hung were all of them.
#[test]
fn two_flushes_of_a_disk_that_hangs_are_under_way_and_the_next_follow_one_by_one() {
    let medium = Hanging::new(4 * MIB);
    let served = serve(&medium, 16);
    let (_host, mut queue) = connect(&served, "nqn.2026-11.org.example:host");
    is_calm(&mut queue, 1);
    medium.hangs.store(true, Ordering::SeqCst);
    let posted: Vec<u16> = (0..6).map(|_| queue.post(Sqe::flush(HUNG), None, 0).unwrap()).collect();
    until("the medium was asked for all of them", || lock(&medium.flushes).len() == 6);
    // Those behind the first two are not with the kernel, so that nothing of theirs can end.
    (2..6).for_each(|number| medium.end_flush(number));
    for seed in 2..6 {
        is_calm(&mut queue, seed);
    }
    assert!(posted.iter().all(|cid| queue.is_open(*cid)), "more than two are under way");
    // Nothing showed which disk it was.
    assert_eq!(seen(&served).0, 6);
    let (_, before) = seen(&served);
    until("the oldest grows older", || seen(&served).1 > before + 50);
    // One is over, and then all that could end do, one after the other, beside the one that still hangs.
    medium.end_flush(0);
    for cid in [posted[0], posted[2], posted[3], posted[4], posted[5]] {
        queue.wait(cid).unwrap().ok();
    }
    is_calm(&mut queue, 6);
    assert!(queue.is_open(posted[1]));
    assert_eq!(seen(&served).0, 1, "the one that hangs");
    medium.end_flush(1);
    queue.wait(posted[1]).unwrap().ok();
    assert_eq!(seen(&served), (0, 0));
}

/// A server did not end as long as its disk hung, however often it was asked to, and kept a processor busy meanwhile.
#[test]
fn a_server_ends_although_its_disk_hangs() {
    let medium = Hanging::new(4 * MIB);
    let running = running(&medium, 16);
    let (_host, mut queue) = connect_to(&running, "nqn.2026-11.org.example:host");
    queue.write(HUNG, 0, &pattern(MIB, 1)).ok();
    medium.hangs.store(true, Ordering::SeqCst);
    queue.post(Sqe::read(HUNG, 0, 1), None, BLOCK).unwrap();
    queue.post(Sqe::flush(HUNG), None, 0).unwrap();
    until("the medium was asked for both", || medium.owed() > 0 && lock(&medium.flushes).len() == 1);
    running.handle().stop_now();
    let (ended, has_ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || drop(ended.send(running.wait())));
    has_ended.recv_timeout(Duration::from_secs(30)).expect("it ends").unwrap();
}

/// A disk that gives its reads up is one that fails them: its hosts hear of it, and it serves the next ones.
#[test]
fn reads_that_a_disk_gives_up_end_with_an_error_and_no_memory_is_lost() {
    let medium = Hanging::new(4 * MIB);
    let served = serve(&medium, 16);
    let (_host, mut queue) = connect(&served, "nqn.2026-11.org.example:host");
    let bytes = pattern(MIB, 1);
    queue.write(HUNG, 0, &bytes).ok();
    // As much as there is, again and again.
    for _ in 0..4 {
        medium.hangs.store(true, Ordering::SeqCst);
        let posted: Vec<u16> = (0..8).map(|_| queue.post(Sqe::read(HUNG, 0, MIB_BLOCKS), None, MIB).unwrap()).collect();
        until("all are under way", || medium.owed() == 8 * MIB);
        medium.hangs.store(false, Ordering::SeqCst);
        assert_eq!(seen(&served).0, 8);
        for (answer, _) in lock(&medium.reads).drain(..) {
            answer.give(Err(Errno::IO));
        }
        for cid in posted {
            queue.wait(cid).unwrap().fails_with(diskside_nvme::Status::UNRECOVERED_READ_ERROR);
        }
        assert!(queue.read(HUNG, 0, MIB_BLOCKS).ok() == bytes);
    }
    let disks = served.0.handle().stats().disks;
    assert_eq!(disks.iter().map(|disk| disk.errors).collect::<Vec<_>>(), [0, 32], "{disks:?}");
    is_calm(&mut queue, 2);
}
