//! Hosts that ask for memory and never send what it is for, or take what they asked for: others read and write on.

mod common;

use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use common::{Controller, Queue, builder, pattern, start};
use diskside_io::ring::{Interface, interface};
use diskside_nvme::wire::{IcReq, Sqe};
use diskside_server::Running;
use diskside_server::config::{Size, VolumeSpec};
use zerocopy::IntoBytes;

const BLOCK: usize = 4096;

fn target(memory_mib: u64) -> Running {
    start(builder().volume(VolumeSpec::new("data", "mem:8MiB").writable()).limits(|limits| {
        limits.memory = Size::from_mib(memory_mib);
        limits.connection_memory = Size::from_mib(1);
    }))
}

fn connect(running: &Running, name: &str) -> Controller {
    Controller::connect_as(running.handle(), &format!("nqn.2026-11.org.example:{name}"), 0).unwrap()
}

/// Asks to write 1 MiB in all, and leaves every question for the data of it unanswered.
fn owe(controller: &Controller, queue_id: u16) -> Queue {
    let mut queue = controller.io_queue(queue_id, 32);
    for _ in 0..16 {
        queue.post(Sqe::write(1, 0, 16), Some(&vec![1; 16 * BLOCK]), 0).unwrap();
    }
    queue
}

/// One name with many connections that owed data, and were idle otherwise, held all memory for ever: nobody's write of more
/// than a capsule ended.
#[test]
fn one_host_that_owes_data_stops_nobody() {
    let running = target(4);
    let greedy = connect(&running, "greedy");
    let _owing: Vec<_> = (1..=60).map(|id| owe(&greedy, id)).collect();
    let other = connect(&running, "other");
    let mut queue = other.io_queue(1, 4);
    let data = pattern(16 * BLOCK, 1);
    queue.write(1, 100, &data).ok();
    assert_eq!(queue.read(1, 100, 16).ok(), data);
}

/// Sixty names did the same to reads of a megabyte. Names cost nothing, so it is the data owed that is bounded, and who sends
/// none of it is given up as soon as somebody else waits.
#[test]
fn many_hosts_that_owe_data_stop_nobody() {
    let running = target(4);
    let greedy: Vec<_> = (0..60).map(|n| connect(&running, &format!("greedy{n}"))).collect();
    let _owing: Vec<_> = greedy.iter().map(|controller| owe(controller, 1)).collect();
    let other = connect(&running, "other");
    let mut queue = other.io_queue(1, 4);
    assert_eq!(queue.read(1, 1000, 256).ok(), vec![0; 256 * BLOCK]);
    let data = pattern(256 * BLOCK, 1);
    queue.write(1, 1000, &data).ok();
    assert_eq!(queue.read(1, 1000, 256).ok(), data);
}

/// A connection whose answers are not read takes no commands, but what came behind them was kept, most of a megabyte for each of any
/// number of connections, and no bound counted it. The connections of a host that keeps most end now.
#[test]
fn hosts_that_send_and_do_not_read_are_given_up() {
    let running = start(builder().volume(VolumeSpec::new("data", "mem:8MiB").writable()).limits(|limits| {
        limits.memory = Size::from_mib(32);
        limits.connection_memory = Size::from_mib(4);
    }));
    let other = connect(&running, "other");
    let mut queue = other.io_queue(1, 4);
    // Without io_uring less is read ahead of its use: most of it stays in the sockets.
    let enough = match interface().unwrap() {
        Interface::IoUring => 20 << 20,
        Interface::Posix(_) => 1 << 20,
    };
    let kept_bytes = || running.handle().stats().reactors[0].input_kept_max_bytes;
    let (began, mut rounds) = (Instant::now(), 0);
    // On a busy machine answers pile up otherwise, and less is kept.
    while rounds < 3 || kept_bytes() < enough {
        assert!(began.elapsed() < Duration::from_secs(120), "{} were kept at most", kept_bytes());
        drop(send_and_do_not_read(&running));
        rounds += 1;
    }
    assert!(kept_bytes() <= 32 << 20, "{} with 32 MiB of memory", kept_bytes());
    let data = pattern(16 * BLOCK, 1);
    queue.write(1, 100, &data).ok();
    assert_eq!(queue.read(1, 100, 16).ok(), data);
}

/// Connections of four hosts, each with answers that nobody reads, and all behind them that a socket takes.
fn send_and_do_not_read(running: &Running) -> Vec<(Queue, TcpStream)> {
    let greedy: Vec<_> = (0..4).map(|n| connect(running, &format!("greedy{n}"))).collect();
    let begin = |n: u16| {
        let (host, id) = (usize::from(n % 4), 1 + n / 4);
        let stream = common::tcp(running.handle().local_addresses()[0]);
        let mut queue = Queue::negotiate(Box::new(stream.try_clone().unwrap())).unwrap();
        let name = format!("nqn.2026-11.org.example:greedy{host}");
        queue.connect(running.handle().nqn(), &name, id, 256, greedy[host].id, 0).unwrap();
        (queue, stream)
    };
    let mut unread: Vec<_> = (0..44).map(begin).collect();
    // More than sockets hold. They come one by one: many at once would be one send, which holds all the memory.
    for _ in 0..80 {
        for (queue, _) in &mut unread {
            queue.post(Sqe::read(1, 0, 32), None, 32 * BLOCK).unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    for (_, stream) in &unread {
        stream.set_nonblocking(true).unwrap();
        let mut stream: &TcpStream = stream;
        while let Ok(1..) = stream.write(&[0; 64 << 10]) {}
    }
    std::thread::sleep(Duration::from_millis(300));
    unread
}

/// Each connection of a peer that broke the protocol was a line of log: a loop wrote thousands in seconds.
#[test]
fn broken_peers_write_a_bounded_log() {
    let running = target(4);
    for _ in 0..100 {
        let mut stream = common::tcp(running.handle().local_addresses()[0]);
        std::io::Write::write_all(&mut stream, &[IcReq::new(false, false).as_bytes(), &[0xff; 128]].concat()).unwrap();
        // It gets an error, and is closed.
        drop(std::io::Read::read_to_end(&mut stream, &mut Vec::new()));
    }
    assert_eq!(running.handle().stats().log_lines_left_out, 90);
}
