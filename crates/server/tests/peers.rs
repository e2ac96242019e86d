//! Peers that are broken, silent, slow or many: they cost themselves, and nobody else.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use common::{Controller, HOST, Queue, builder, memory_target, pattern, start, tcp};
use diskside_nvme::wire::{CommonHeader, IcReq, PduKind, Sqe};
use diskside_server::Running;
use diskside_server::config::{Size, VolumeSpec};
use zerocopy::IntoBytes;

const BLOCK: usize = 4096;

/// Somebody else's command works.
fn check_others(running: &Running) {
    let controller = Controller::connect(running);
    let mut queue = controller.io_queue(1, 4);
    queue.write(1, 9, &pattern(BLOCK, 9)).ok();
    assert_eq!(queue.read(1, 9, 1).ok(), pattern(BLOCK, 9));
}

/// Waits for what another thread does soon.
#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < until, "{what}: not within 10 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn connections(running: &Running) -> u64 {
    running.handle().stats().reactors.iter().map(|reactor| reactor.connections).sum()
}

/// Reads until the target closes, and gives what it said.
fn last_words(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => bytes,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => bytes,
        Err(error) => panic!("the target did not close: {error}"),
    }
}

#[test]
fn what_is_no_nvme_is_told_so_and_closed() {
    let volume = VolumeSpec::new("data", "mem:1MiB").writable();
    let running = start(builder().volume(volume).limits(|limits| limits.handshake_ms = 500));
    let address = running.handle().local_addresses()[0];
    let long_pdu = {
        let mut header = CommonHeader::new(PduKind::IcReq);
        header.len.set(u32::MAX);
        header.as_bytes().to_vec()
    };
    for garbage in [b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n".to_vec(), vec![0xff; 4096], vec![0; 128], long_pdu] {
        let mut stream = tcp(address);
        stream.write_all(&garbage).unwrap();
        let said = last_words(&mut stream);
        assert_eq!(said.first(), Some(&(PduKind::C2hTermReq as u8)), "{garbage:?} is answered by C2HTermReq");
    }
    // A command before Connect, and a second ICReq.
    for kind in [PduKind::CapsuleCmd, PduKind::IcReq] {
        let mut queue = Queue::negotiate(Box::new(tcp(address))).unwrap();
        match kind {
            PduKind::IcReq => queue.wire.write_all(IcReq::new(false, false).as_bytes()).unwrap(),
            _ => drop(queue.post(Sqe::flush(1), None, 0).unwrap()),
        }
        let ended = (0..3).find_map(|_| queue.step().err());
        assert!(ended.is_some(), "{kind:?} ends the connection");
    }
    eventually("all are gone", || connections(&running) == 0);
    check_others(&running);
}

#[test]
fn bytes_that_break_off_or_are_random_do_no_harm() {
    let running = memory_target(1);
    let address = running.handle().local_addresses()[0];
    for seed in 0..200 {
        let controller = Controller::connect(&running);
        let mut stream = tcp(address);
        let mut bytes = IcReq::new(false, false).as_bytes().to_vec();
        bytes.extend(pattern(seed as usize * 37 % 3000, seed));
        if seed % 3 == 0 {
            bytes.truncate(seed as usize % 128);
        }
        // The target may have closed it in the middle.
        let _ = stream.write_all(&bytes);
        drop((stream, controller));
    }
    eventually("all are gone", || connections(&running) == 0);
    check_others(&running);
}

#[test]
fn one_byte_at_a_time_is_enough() {
    struct Dribble(TcpStream);
    impl Read for Dribble {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            self.0.read(&mut into[..1])
        }
    }
    impl Write for Dribble {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.write(&bytes[..1])
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let running = memory_target(1);
    let controller = Controller::connect(&running);
    let wire = Dribble(tcp(running.handle().local_addresses()[0]));
    let mut queue = Queue::negotiate(Box::new(wire)).unwrap();
    queue.connect(running.handle().nqn(), HOST, 1, 4, controller.id, 0).unwrap();
    queue.write(1, 0, &pattern(3 * BLOCK, 1)).ok();
    assert_eq!(queue.read(1, 0, 3).ok(), pattern(3 * BLOCK, 1));
}

#[test]
fn who_says_nothing_is_closed_in_time() {
    let running = start(
        builder().volume(VolumeSpec::new("data", "mem:1MiB").writable()).limits(|limits| limits.handshake_ms = 300),
    );
    let address = running.handle().local_addresses()[0];
    let began = Instant::now();
    let mut silent = tcp(address);
    let mut half = tcp(address);
    half.write_all(IcReq::new(false, false).as_bytes()).unwrap();
    let controller = Controller::connect(&running);
    last_words(&mut silent);
    last_words(&mut half);
    assert!(began.elapsed() >= Duration::from_millis(250));
    let mut queue = controller.io_queue(1, 4);
    assert_eq!(queue.read(1, 0, 1).ok(), vec![0; BLOCK], "who has connected stays");
}

#[test]
fn a_host_without_keep_alive_is_closed_with_all_its_queues() {
    let running = memory_target(1);
    let controller = Controller::connect_as(running.handle(), HOST, 500).unwrap();
    let mut queue = controller.io_queue(1, 4);
    let cid = queue.post(Sqe::read(1, 0, 1), None, BLOCK).unwrap();
    queue.wait(cid).unwrap().ok();
    eventually("the controller is gone", || running.handle().controllers().is_empty() && connections(&running) == 0);
    assert!(queue.step().is_err());
    check_others(&running);
}

/// Reads are posted by a host that does not take the answers.
fn post_without_reading(queue: &mut Queue, reads: u64, blocks: u32) {
    for at in 0..reads {
        queue.post(Sqe::read(1, at % 4 * u64::from(blocks), blocks), None, blocks as usize * BLOCK).unwrap();
    }
}

#[test]
fn a_host_that_does_not_read_holds_up_nobody() {
    // The stuck host's reads cover the very blocks that the other one writes.
    let running = memory_target(8);
    let stuck = Controller::connect(&running);
    let mut stuck_queue = stuck.io_queue(1, 64);
    let before = pattern(256 * BLOCK, 1);
    stuck_queue.write(1, 0, &before).ok();
    post_without_reading(&mut stuck_queue, 60, 256);
    let controller = Controller::connect(&running);
    let mut queue = controller.io_queue(1, 4);
    let began = Instant::now();
    let after = pattern(256 * BLOCK, 2);
    queue.write(1, 0, &after).ok();
    assert_eq!(queue.read(1, 0, 256).ok(), after);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    let stats = running.handle().stats();
    assert!(stats.reactors[0].stalled_reads > 0, "{stats:?}");
    assert!(stats.reactors[0].memory_held_bytes <= 256 << 20);
    // When it reads at last, every block it gets is whole: from before or from after.
    for cid in (1..=60).step_by(4) {
        let data = stuck_queue.wait(cid + 1).unwrap().ok();
        for (at, block) in data.chunks(BLOCK).enumerate() {
            let at = at * BLOCK..(at + 1) * BLOCK;
            assert!(cid % 4 != 1 || block == &before[at.clone()] || block == &after[at]);
        }
    }
}

/// Reads that waited for the memory of their connection held the part that all reads of a file may have: a host that asked for 120 MiB and
/// took no answers kept everybody else from reading the volume, for over a minute.
#[test]
fn a_host_that_takes_no_answers_keeps_nobody_from_reading_the_same_file() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let running =
        start(builder().volume(VolumeSpec::new("data", image.to_str().unwrap()).writable()).limits(|limits| {
            limits.memory = Size::from_mib(64);
            limits.connection_memory = Size::from_mib(8);
        }));
    let stuck = Controller::connect(&running);
    let mut queue = stuck.io_queue(1, 64);
    post_without_reading(&mut queue, 60, 256);
    eventually("reads wait for memory", || running.handle().stats().reactors[0].memory_waits > 0);
    let began = Instant::now();
    check_others(&running);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    (1..=60).for_each(|cid| drop(queue.wait(cid).unwrap().ok()));
}

#[test]
fn memory_stays_in_its_bound_and_commands_wait() {
    let running = start(builder().volume(VolumeSpec::new("data", "mem:8MiB").writable()).limits(|limits| {
        limits.memory = Size::from_mib(8);
        limits.connection_memory = Size::from_mib(1);
    }));
    let greedy: Vec<_> = (0..6).map(|_| Controller::connect(&running)).collect();
    let mut queues: Vec<Queue> = greedy.iter().map(|controller| controller.io_queue(1, 64)).collect();
    for queue in &mut queues {
        post_without_reading(queue, 60, 64);
    }
    check_others(&running);
    let stats = running.handle().stats();
    assert!(stats.reactors[0].memory_waits > 0, "{stats:?}");
    assert!(stats.reactors[0].memory_held_bytes <= 8 << 20, "{stats:?}");
    // All of them at once. One after the other, the last ones were disconnected on a busy machine, because they read
    // nothing for two seconds while somebody waited that held nothing.
    std::thread::scope(|scope| {
        for queue in &mut queues {
            scope.spawn(|| (0..60).for_each(|cid| drop(queue.wait(cid + 1).unwrap().ok())));
        }
    });
    eventually("all memory came back", || running.handle().stats().reactors[0].memory_in_flight_bytes == 0);
}

#[test]
fn who_holds_all_memory_and_does_not_read_is_given_up_for_others() {
    let running = start(builder().volume(VolumeSpec::new("data", "mem:8MiB").writable()).limits(|limits| {
        limits.memory = Size::from_mib(1);
        limits.connection_memory = Size::from_mib(1);
    }));
    let stuck = Controller::connect(&running);
    let mut queue = stuck.io_queue(1, 64);
    // Ten times what sockets keep on the way, so that the rest stays with the target.
    post_without_reading(&mut queue, 60, 256);
    check_others(&running);
    assert!(std::iter::repeat_with(|| queue.step()).any(|step| step.is_err()), "it was closed");
}

#[test]
fn writes_wait_for_memory_too() {
    let running = start(builder().volume(VolumeSpec::new("data", "mem:16MiB").writable()).limits(|limits| {
        limits.memory = Size::from_mib(2);
        limits.connection_memory = Size::from_mib(2);
    }));
    let controllers: Vec<_> = (0..4).map(|_| Controller::connect(&running)).collect();
    std::thread::scope(|scope| {
        for (index, controller) in controllers.iter().enumerate() {
            let mut queue = controller.io_queue(1, 32);
            scope.spawn(move || {
                let data = pattern(128 * BLOCK, index as u64);
                let base = index as u64 * 1024;
                let writes: Vec<u16> =
                    (0..8).map(|at| queue.post(Sqe::write(1, base + at * 128, 128), Some(&data), 0).unwrap()).collect();
                writes.into_iter().for_each(|cid| drop(queue.wait(cid).unwrap().ok()));
                for at in 0..8 {
                    assert_eq!(queue.read(1, base + at * 128, 128).ok(), data);
                }
            });
        }
    });
}

#[test]
fn a_connection_too_many_is_closed_and_room_comes_back() {
    let running =
        start(builder().volume(VolumeSpec::new("data", "mem:1MiB").writable()).limits(|limits| limits.connections = 2));
    let address = running.handle().local_addresses()[0];
    let first = Controller::connect(&running);
    let second = Controller::connect(&running);
    let mut third = tcp(address);
    assert_eq!(last_words(&mut third), b"");
    assert_eq!(running.handle().stats().connections_refused, 1);
    drop((first, second));
    eventually("they are gone", || connections(&running) == 0);
    // Who says nothing kept others out until its time was over.
    let (mut first, _second) = (tcp(address), tcp(address));
    eventually("two are there", || connections(&running) == 2);
    let third = Controller::connect(&running);
    assert_eq!(last_words(&mut first), b"", "the oldest gives way");
    let stats = running.handle().stats();
    assert_eq!((stats.connections_refused, stats.connections_given_up, stats.connections_half_open), (1, 1, 1));
    drop((_second, third));
    eventually("they are gone", || connections(&running) == 0);
    check_others(&running);
}

/// Hosts connect as soon as an address is bound. Those that the first reactor handed on to others, before it knew them,
/// were closed.
#[test]
fn hosts_that_wait_when_the_target_starts_are_let_in_by_all_reactors() {
    for _ in 0..20 {
        let target = builder().reactors(3).build().unwrap();
        let address = target.handle().local_addresses()[0];
        let waiting: Vec<TcpStream> = (0..12).map(|_| tcp(address)).collect();
        let _running = target.start().unwrap();
        for stream in waiting {
            Queue::negotiate(Box::new(stream)).unwrap();
        }
    }
}
