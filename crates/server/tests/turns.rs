//! Hosts take turns at one medium: however much one of them asks for, the others' commands come in between.

mod common;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Controller, Queue, builder, pattern, start};
use diskside_nvme::wire::Sqe;
use diskside_server::Running;
use diskside_server::config::VolumeSpec;

const GREEDY: &str = "nqn.2026-11.org.example:greedy";
const MODEST: &str = "nqn.2026-11.org.example:modest";
const BLOCK: usize = 4096;
const MIB_BLOCKS: u32 = 256;

fn serve(volume: &str) -> Running {
    start(builder().volume(volume.parse::<VolumeSpec>().unwrap()))
}

fn connect(running: &Running, host: &str) -> (Controller, Queue) {
    let mut controller = Controller::connect_as(running.handle(), host, 0).unwrap();
    controller.enable(0);
    let queue = controller.io_queue(1, 128);
    (controller, queue)
}

/// A host kept a queue full of writes of one block. Whenever a reader was let ask, a writer waited already, and readers of that block, of
/// whichever host, got no answer as long as this lasted.
#[test]
fn a_block_that_is_always_written_is_read_in_between() {
    let running = serve("data=mem:4MiB,rw,latency_us=500");
    let (_reader, mut reads) = connect(&running, MODEST);
    let (_writer, mut writes) = connect(&running, GREEDY);
    let has_read = AtomicBool::new(false);
    let mut written = 0;
    std::thread::scope(|scope| {
        let data = pattern(BLOCK, 1);
        let mut open: Vec<u16> = Vec::new();
        let post = |writes: &mut Queue| writes.post(Sqe::write(1, 5, 1), Some(&data), 0).unwrap();
        open.extend((0..64).map(|_| post(&mut writes)));
        writes.wait(open.remove(0)).unwrap().ok();
        scope.spawn(|| {
            for _ in 0..3 {
                reads.read(1, 5, 1).ok();
            }
            has_read.store(true, Ordering::SeqCst);
        });
        while !has_read.load(Ordering::SeqCst) && written < WRITES_MAX {
            open.push(post(&mut writes));
            writes.wait(open.remove(0)).unwrap().ok();
            written += 1;
        }
        // Else the reads would end once nobody writes.
        assert!(has_read.load(Ordering::SeqCst), "three reads waited for {written} writes");
    });
}

/// A host kept a queue full of writes of one block. Each new one had the block as soon as it was released, and the write of another host
/// waited for hundreds of them.
#[test]
fn a_block_that_is_always_written_is_written_by_others_in_between() {
    let running = serve("data=mem:4MiB,rw,latency_us=500");
    let (_modest, mut one) = connect(&running, MODEST);
    let (_greedy, mut many) = connect(&running, GREEDY);
    let is_over = AtomicBool::new(false);
    let data = pattern(BLOCK, 1);
    let mut waited_for = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let post = |many: &mut Queue| many.post(Sqe::write(1, 5, 1), Some(&data), 0).unwrap();
            let mut open: VecDeque<u16> = (0..64).map(|_| post(&mut many)).collect();
            while !is_over.load(Ordering::SeqCst) {
                open.push_back(post(&mut many));
                many.wait(open.pop_front().unwrap()).unwrap().ok();
            }
        });
        while writes(&running) < 64 {
            std::thread::yield_now();
        }
        for _ in 0..20 {
            let before = writes(&running);
            let status = one.write(1, 5, &data).status;
            waited_for.push(writes(&running) - before);
            assert!(status.is_success());
        }
        is_over.store(true, Ordering::SeqCst);
    });
    assert!(waited_for.iter().all(|writes| *writes < 32), "writes of another host that came first: {waited_for:?}");
}

/// Each takes half a millisecond, one after the other.
const WRITES_MAX: usize = 10_000;

/// All accesses of a medium with a rate stood in one line: a host with many long reads under way had all the others wait for seconds.
#[test]
fn a_host_with_many_reads_of_a_slow_medium_lets_others_come_in_between() {
    let running = serve("data=mem:4MiB,rw,rate=4MiB");
    let (_greedy, mut many) = connect(&running, GREEDY);
    let (_modest, mut one) = connect(&running, MODEST);
    fill(&mut one);
    let before = reads(&running);
    let posted = (0..40).map(|_| many.post(Sqe::read(1, 0, MIB_BLOCKS), None, 1 << 20).unwrap());
    let posted: Vec<u16> = posted.collect();
    many.wait(posted[0]).unwrap().ok();
    one.read(1, 0, 1).ok();
    let meanwhile = reads(&running) - before;
    assert!(meanwhile < 20, "{meanwhile} of 40 reads came before another host's");
}

/// The reads of a host that went away were counted when they came, and never given back: a host that connected again and again, and
/// read nothing, kept all the others from the medium for as long as it liked.
#[test]
fn reads_of_a_host_that_went_away_take_nothing_of_the_rate() {
    let running = serve("data=mem:4MiB,rw,rate=2MiB");
    let (_modest, mut one) = connect(&running, MODEST);
    fill(&mut one);
    for _ in 0..3 {
        let (greedy, mut many) = connect(&running, GREEDY);
        for _ in 0..40 {
            many.post(Sqe::read(1, 0, MIB_BLOCKS), None, 1 << 20).unwrap();
        }
        drop((many, greedy));
    }
    let began = Instant::now();
    one.read(1, 0, 1).ok();
    let (took, all) = (began.elapsed(), Duration::from_secs(60));
    assert!(took < all / 2, "{took:?}, and all that was asked for takes {all:?}");
}

/// Blocks that were never written are answered without the medium.
fn fill(queue: &mut Queue) {
    queue.write(1, 0, &pattern(1 << 20, 2)).status.is_success().then_some(()).unwrap();
}

fn writes(running: &Running) -> u64 {
    running.handle().stats().volumes["data"].writes
}

fn reads(running: &Running) -> u64 {
    running.handle().stats().volumes["data"].reads
}
