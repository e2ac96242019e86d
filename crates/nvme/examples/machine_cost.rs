//! The cost of both machines per command, without a network and without media: `cargo run --release -p diskside-nvme
//! --example machine_cost`. Reads and writes of 4 KiB through one I/O queue; the best of many batches, so that a busy
//! machine does not count.

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use diskside_nvme::controller::{BlockSize, Completion, Connection, Operation};
use diskside_nvme::host::{self, Data, Event, Submission};
use diskside_nvme::wire::Sqe;
use diskside_nvme::{BufferId, BufferPool, BufferSlice, Buffers, Segment, Transmit};
use support::pair::{Pair, SUBSYSTEM, Target, admin_config};

/// Memory that costs nothing.
struct Nothing;

impl Buffers for Nothing {
    fn write(&mut self, _: BufferId, _: u32, _: &[u8]) {}

    fn digest(&mut self, _: BufferSlice) -> u32 {
        0
    }

    fn release(&mut self, _: BufferId) {}
}

impl BufferPool for Nothing {
    fn acquire(&mut self, _: u32) -> Option<BufferId> {
        Some(BufferId(1))
    }
}

const LEN: u32 = 4096;
const BATCHES: u32 = 20_000;

fn main() {
    let mut target = Target::new();
    target.add(1, 1 << 14, BlockSize::B512);
    let mut config = admin_config(SUBSYSTEM, 1);
    config.io_queue_entries = 128;
    let mut pair = Pair::connect(target, config);
    let (mut host, end) = pair.io.take().expect("there is an I/O queue");
    let mut controller = end.connection;
    println!("ns per command   host  controller");
    for depth in [1, 32, 128] {
        for writes in [false, true] {
            let mut best = (Duration::MAX, Duration::MAX);
            for _ in 0..BATCHES / depth {
                let (on_host, on_controller) = batch(&mut host, &mut controller, pair.now, depth, writes);
                best = (best.0.min(on_host), best.1.min(on_controller));
            }
            let each = |time: Duration| time.as_nanos() as u64 / u64::from(depth);
            let name = if writes { "write" } else { "read" };
            println!("{name:>5}, depth {depth:>3} {:>6} {:>10}", each(best.0), each(best.1));
        }
    }
}

/// One batch of `depth` commands there and back; the time in each machine.
fn batch(
    host: &mut host::Connection,
    controller: &mut Connection,
    now: Instant,
    depth: u32,
    writes: bool,
) -> (Duration, Duration) {
    let slice = BufferSlice::new(BufferId(2), LEN);
    let (mut there, mut back) = (Transmit::new(), Transmit::new());
    let (mut on_host, mut on_controller) = (Duration::ZERO, Duration::ZERO);

    let start = Instant::now();
    for index in 0..u64::from(depth) {
        let (sqe, data) = if writes {
            (Sqe::write(1, index * 8, 8), Data::Send(slice))
        } else {
            (Sqe::read(1, index * 8, 8), Data::Receive(slice))
        };
        let submission = Submission { sqe, data, user_data: index, timeout: Some(Duration::from_secs(30)) };
        host.submit(now, submission, &mut Nothing).expect("there is room");
    }
    host.poll_transmit(&mut there);
    on_host += start.elapsed();
    let bytes = flat(&mut there);

    let start = Instant::now();
    controller.handle_bytes(now, &bytes, &mut Nothing);
    while let Some(request) = controller.poll_request() {
        let answer = match request.operation {
            Operation::Read { len, .. } => Completion::data(BufferSlice::new(BufferId(3), len)),
            _ => Completion::success(),
        };
        controller.complete(now, request.tag, answer, &mut Nothing);
    }
    controller.poll_transmit(&mut back);
    on_controller += start.elapsed();
    let bytes = flat(&mut back);

    let start = Instant::now();
    controller.handle_transmitted(&mut back);
    on_controller += start.elapsed();

    let start = Instant::now();
    host.handle_transmitted(&mut there);
    host.handle_bytes(now, &bytes, &mut Nothing);
    let mut ended = 0;
    while let Some(Event::Completed(completed)) = host.poll_event() {
        assert!(completed.outcome.is_ok(), "nothing fails here");
        ended += 1;
    }
    on_host += start.elapsed();
    assert_eq!(ended, depth);
    (on_host, on_controller)
}

/// The bytes of a batch, which is then as good as sent.
fn flat(transmit: &mut Transmit) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(transmit.remaining());
    for segment in transmit.segments() {
        match segment {
            Segment::Bytes(part) => bytes.extend_from_slice(part),
            Segment::Buffer(slice) => bytes.resize(bytes.len() + slice.len as usize, 0),
        }
    }
    transmit.advance(bytes.len(), |_| ());
    bytes
}
