//! The ring against real files, sockets and threads.

mod without;

use std::io::Write as _;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use diskside_io::Errno;
use diskside_io::buffer::{Arena, Buffer, Hugepages, SharedMemory};
use diskside_io::ring::{Completion, Op, Payload, Ring, RingConfig, SendBatch, Waker};
use diskside_io::socket::{SocketOptions, listen_at, local_address, socket_for};

fn sleepy() -> RingConfig {
    RingConfig { spin: Duration::ZERO, ..RingConfig::default() }
}

/// Waits until `wanted` completions have come, for at most ten seconds.
fn gather(ring: &mut Ring, wanted: usize) -> Vec<Completion> {
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut found = Vec::new();
    while found.len() < wanted {
        assert!(Instant::now() < deadline, "only {} of {wanted} completions came: {found:?}", found.len());
        ring.wait(Some(Duration::from_millis(100))).unwrap();
        found.extend(std::iter::from_fn(|| ring.next_completion()));
    }
    found
}

fn file_with(bytes: &[u8]) -> Arc<OwnedFd> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    Arc::new(file.into())
}

#[test]
fn a_read_gives_the_buffer_back_with_the_bytes() {
    for config in [RingConfig::default(), sleepy(), RingConfig { sq_poll: Some(Duration::from_millis(10)), ..sleepy() }]
    {
        let file = file_with(b"0123456789");
        let mut ring = Ring::new(&config).unwrap();
        ring.push(7, Op::Read { file, offset: 2, buffer: Buffer::zeroed(16), range: 4..16 });
        let done = gather(&mut ring, 1).pop().unwrap();
        assert_eq!((done.token, done.result, done.more), (7, Ok(8), false));
        let Payload::Buffer(buffer) = done.payload else { panic!("a read returns its buffer") };
        assert_eq!(&buffer[..], b"\0\0\0\x0023456789\0\0\0\0");
        assert_eq!(ring.in_flight(), 0);
    }
}

#[test]
fn what_was_written_and_synchronised_is_in_the_file() {
    let file = file_with(b"");
    let mut ring = Ring::new(&sleepy()).unwrap();
    let buffer = Buffer::copy_of(b"..durable..");
    ring.push(1, Op::Write { file: file.clone(), offset: 3, buffer, range: 2..9, durable: true });
    assert_eq!(gather(&mut ring, 1)[0].result, Ok(7));
    ring.push(2, Op::Sync { file: file.clone(), data_only: true });
    let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    ring.push(3, Op::Allocate { file: file.clone(), flags, offset: 3, len: 2 });
    assert!(gather(&mut ring, 2).iter().all(|done| done.result == Ok(0)));
    let mut content = [0; 10];
    assert_eq!(rustix::io::pread(&file, &mut content, 0).unwrap(), 10);
    assert_eq!(&content, b"\0\0\0\0\0rable");
}

#[test]
fn registered_descriptors_work_like_any_other() {
    let file = file_with(b"0123456789");
    let mut ring = Ring::new(&sleepy()).unwrap();
    assert!(ring.register_file(&file) && ring.register_file(&file), "twice is as good as once");
    assert!(ring.is_registered(&file));
    let read = |file: &Arc<OwnedFd>| Op::Read { file: file.clone(), offset: 2, buffer: Buffer::zeroed(4), range: 0..4 };
    let bytes = |done: &Completion| match &done.payload {
        Payload::Buffer(buffer) => buffer.to_vec(),
        other => panic!("a read returns its buffer, not {other:?}"),
    };
    ring.push(1, read(&file));
    assert_eq!(bytes(&gather(&mut ring, 1)[0]), b"2345");
    // Unregistered files mix with it, and a registration may end while an operation is in flight.
    let other = file_with(b"abcdefghij");
    ring.push(2, read(&other));
    ring.push(3, read(&file));
    ring.submit().unwrap();
    ring.unregister_file(&file);
    assert!(!ring.is_registered(&file));
    ring.push(4, read(&file));
    let mut done = gather(&mut ring, 3);
    done.sort_by_key(|done| done.token);
    assert_eq!(done.iter().map(bytes).collect::<Vec<_>>(), [b"cdef", b"2345", b"2345"]);

    let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
    let (near, far) = (Arc::new(OwnedFd::from(near)), Arc::new(OwnedFd::from(far)));
    assert!(ring.register_file(&near) && ring.register_file(&far));
    let group = ring.provide(8, 4096).unwrap();
    ring.push(5, Op::Receive { socket: far, group });
    for word in [b"one", b"two"] {
        let mut batch = Box::<SendBatch>::default();
        batch.put(word);
        ring.push(6, Op::Send { socket: near.clone(), batch });
        let done = gather(&mut ring, 2);
        let came = done.iter().find(|done| done.token == 5).unwrap();
        assert!(came.more && matches!(&came.payload, Payload::Received(bytes) if bytes[..] == *word), "{came:?}");
    }
}

/// As long as a descriptor is registered it is open, so that its number cannot come to mean something else.
#[test]
fn a_registered_descriptor_is_open_until_its_registration_ends() {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let writer = Arc::new(writer);
    let mut ring = Ring::new(&sleepy()).unwrap();
    assert!(ring.register_file(&writer));
    let kept = Arc::downgrade(&writer);
    let reader = Arc::new(reader);
    ring.push(1, Op::Read { file: reader, offset: 0, buffer: Buffer::zeroed(1), range: 0..1 });
    drop(writer);
    ring.wait(Some(Duration::ZERO)).unwrap();
    assert!(ring.next_completion().is_none(), "somebody could still write");
    ring.unregister_file(&kept.upgrade().unwrap());
    assert!(kept.upgrade().is_none(), "nobody has it any more");
    assert_eq!(gather(&mut ring, 1)[0].result, Ok(0), "the end of the pipe");
}

#[test]
fn places_of_registered_descriptors_are_used_again() {
    let mut ring = Ring::new(&sleepy()).unwrap();
    for round in 0..3000 {
        let file = file_with(b"0123456789");
        assert!(ring.register_file(&file), "round {round}: a table has some thousand places");
        if round % 500 == 0 {
            ring.push(1, Op::Read { file: file.clone(), offset: 4, buffer: Buffer::zeroed(2), range: 0..2 });
            assert_eq!(gather(&mut ring, 1)[0].result, Ok(2));
        }
        ring.unregister_file(&file);
    }
}

#[test]
fn registered_memory_reads_and_writes_like_any_other() {
    let file = file_with(b"");
    let arena = Arena::new(64 << 10);
    let (mut ring, mut other) = (Ring::new(&sleepy()).unwrap(), Ring::new(&sleepy()).unwrap());
    ring.register(&arena).unwrap();
    assert!(ring.register(&arena).is_err(), "once is enough");
    let mut fill = arena.take(4096).unwrap();
    fill.fill(0x5a);
    ring.push(1, Op::Write { file: file.clone(), offset: 10, buffer: fill, range: 5..25, durable: true });
    assert_eq!(gather(&mut ring, 1)[0].result, Ok(20));
    // Memory that is registered with one ring is ordinary memory for another one, and on one ring both kinds mix.
    for ring in [&mut ring, &mut other] {
        for buffer in [arena.take(8192).unwrap(), Buffer::zeroed(8192)] {
            ring.push(2, Op::Read { file: file.clone(), offset: 0, buffer, range: 4096..8192 });
            let done = gather(ring, 1).remove(0);
            assert_eq!(done.result, Ok(30));
            let Payload::Buffer(buffer) = done.payload else { panic!("a read returns its buffer") };
            assert_eq!(&buffer[4096..4106], [0; 10]);
            assert_eq!(&buffer[4106..4126], [0x5a; 20]);
        }
    }
    drop(ring);
    assert_eq!(arena.free_bytes(), arena.len_bytes());
}

#[test]
fn an_error_carries_its_errno_and_the_buffer() {
    let read_only = Arc::new(std::fs::File::open("/proc/self/exe").unwrap().into());
    let full: Arc<OwnedFd> = Arc::new(std::fs::File::options().write(true).open("/dev/full").unwrap().into());
    let mut ring = Ring::new(&sleepy()).unwrap();
    let buffer = || Buffer::zeroed(10);
    ring.push(0, Op::Write { file: read_only, offset: 0, buffer: buffer(), range: 0..10, durable: false });
    ring.push(1, Op::Write { file: full, offset: 0, buffer: buffer(), range: 0..10, durable: false });
    let mut found = gather(&mut ring, 2);
    found.sort_by_key(|done| done.token);
    assert_eq!(found[0].result, Err(Errno::BADF));
    assert_eq!(found[1].result, Err(Errno::NOSPC));
    assert!(found.iter().all(|done| matches!(done.payload, Payload::Buffer(_))));
}

#[test]
fn more_operations_than_the_queues_hold_wait_in_the_backlog() {
    let mut ring = Ring::new(&RingConfig { entries: 8, ..sleepy() }).unwrap();
    for token in 0..10_000 {
        ring.push(token, Op::Nop);
    }
    let mut tokens: Vec<u64> = gather(&mut ring, 10_000).iter().map(|done| done.token).collect();
    tokens.sort_unstable();
    assert!(tokens.iter().copied().eq(0..10_000));
}

/// All complete at once: far more than the completion queue holds, so that the kernel has to keep the others.
#[test]
fn more_completions_at_once_than_the_queues_hold_all_come() {
    const WATCHES: u64 = 100;
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
    let event = Arc::new(event);
    let mut ring = Ring::new(&RingConfig { entries: 8, ..sleepy() }).unwrap();
    for token in 0..WATCHES {
        ring.push(token, Op::Readable { file: Arc::clone(&event) });
    }
    // All are in the kernel before the event comes.
    ring.wait(Some(Duration::ZERO)).unwrap();
    assert!(ring.next_completion().is_none() && ring.in_flight() == WATCHES as usize);
    rustix::io::write(&event, &[1; 8]).unwrap();
    let mut done: Vec<_> =
        gather(&mut ring, WATCHES as usize).into_iter().map(|done| (done.token, done.more)).collect();
    done.sort_unstable();
    assert_eq!(done, (0..WATCHES).map(|token| (token, false)).collect::<Vec<_>>());
    assert_eq!(ring.in_flight(), 0);
}

#[test]
fn connections_are_accepted_and_carry_batches_whole() {
    let mut ring = Ring::new(&RingConfig::default()).unwrap();
    let group = ring.provide(4, 1000).unwrap();
    let options = SocketOptions { congestion_control: Some("reno".into()), ..SocketOptions::default() };
    for text in ["127.0.0.1:0", "[::1]:0"] {
        let listener = Arc::new(listen_at(text.parse().unwrap(), 16, &options).unwrap());
        let address: SocketAddr = local_address(&listener).unwrap();
        ring.push(1, Op::Accept { listener: Arc::clone(&listener) });
        let client = Arc::new(socket_for(address, &options).unwrap());
        ring.push(2, Op::Connect { socket: client.clone(), address });
        let mut found = gather(&mut ring, 2);
        found.sort_by_key(|done| done.token);
        assert_eq!(found[1].result, Ok(0));
        let accepted = found.swap_remove(0);
        assert!(!accepted.more, "one connection, and no others");
        let Payload::Accepted(server) = accepted.payload else { panic!("an accept yields a socket") };

        let shared = SharedMemory::zeroed(1 << 20, Hugepages::No);
        shared.write(0, &vec![b's'; 100_000]);
        let mut batch = Box::new(SendBatch::new());
        batch.put(b"head");
        batch.put_shared(shared.slice(0..100_000));
        batch.put_buffer(Buffer::copy_of(&vec![b'b'; 50_000]), 0..50_000);
        batch.put(b"tail");
        let expected = batch.to_vec();
        ring.push(3, Op::Send { socket: Arc::new(server), batch });
        ring.push(4, Op::Receive { socket: client.clone(), group });

        let mut received = Vec::new();
        let (mut sent, mut ended) = (false, false);
        while !sent || !ended {
            for done in gather(&mut ring, 1) {
                match (done.token, done.payload) {
                    (3, Payload::Batch(mut batch)) => {
                        assert_eq!(done.result, Ok(expected.len() as u32));
                        assert_eq!(batch.drain_buffers().count(), 1);
                        sent = true; // the server's socket closes here
                    }
                    (4, Payload::Received(bytes)) => received.extend_from_slice(&bytes),
                    (4, Payload::None) if done.result == Err(Errno::NOBUFS) => {}
                    // The end of the stream is a result of 0.
                    (4, Payload::None) if done.result == Ok(0) => ended = true,
                    other => panic!("unexpected completion {other:?}"),
                }
                if done.token == 4 && !done.more && !ended {
                    ring.push(4, Op::Receive { socket: client.clone(), group });
                }
            }
        }
        assert_eq!(received, expected);
        let accept = ring.push(1, Op::Accept { listener });
        ring.cancel(accept);
        let end = gather(&mut ring, 1).pop().unwrap();
        assert_eq!((end.token, end.result, end.more), (1, Err(Errno::CANCELED), false));
    }
}

#[test]
fn held_buffers_stop_a_receive_and_given_back_they_let_it_go_on() {
    let mut ring = Ring::new(&sleepy()).unwrap();
    let group = ring.provide(2, 100).unwrap();
    let (here, mut there) = std::os::unix::net::UnixStream::pair().unwrap();
    let socket = Arc::new(OwnedFd::from(here));
    ring.push(1, Op::Receive { socket: socket.clone(), group });
    there.write_all(&[1; 300]).unwrap();
    let found = gather(&mut ring, 3);
    assert_eq!(found[0].result, Ok(100));
    assert_eq!(found[1].result, Ok(100));
    assert_eq!((found[2].result, found[2].more), (Err(Errno::NOBUFS), false));
    drop(found);
    ring.push(2, Op::Receive { socket, group });
    let last = gather(&mut ring, 1).pop().unwrap();
    assert_eq!((last.token, last.result), (2, Ok(100)));
    // Bytes may outlive the ring that received them.
    drop(ring);
    let Payload::Received(bytes) = last.payload else { panic!("a receive yields bytes") };
    assert_eq!(&bytes[..], &[1; 100]);
}

#[test]
fn bytes_go_straight_to_where_they_belong_and_what_follows_stays_in_the_socket() {
    let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let socket: Arc<OwnedFd> = Arc::new(ours.into());
    let mut ring = Ring::new(&sleepy()).unwrap();
    let into = |range, whole| Op::ReceiveInto { socket: Arc::clone(&socket), buffer: Buffer::zeroed(8), range, whole };
    let buffer_of = |done: Completion| match done.payload {
        Payload::Buffer(buffer) => buffer,
        other => panic!("{other:?} is no buffer"),
    };
    theirs.write_all(b"abc").unwrap();
    ring.push(1, into(2..7, true));
    ring.submit().unwrap();
    assert!(ring.next_completion().is_none(), "three of five bytes came");
    theirs.write_all(b"defghi").unwrap();
    let whole = gather(&mut ring, 1).remove(0);
    assert_eq!(whole.result, Ok(5));
    assert_eq!(&buffer_of(whole)[..], b"\0\0abcde\0");
    ring.push(2, into(0..8, false));
    let rest = gather(&mut ring, 1).remove(0);
    assert_eq!(rest.result, Ok(4), "what there is, when not all of it is waited for");
    assert_eq!(&buffer_of(rest)[..4], b"fghi");
    theirs.write_all(b"xy").unwrap();
    let id = ring.push(3, into(0..8, true));
    ring.submit().unwrap();
    ring.cancel(id);
    let cancelled = gather(&mut ring, 1).remove(0);
    assert_eq!(cancelled.result, Ok(2), "no byte that came is lost by a cancel");
    assert_eq!(&buffer_of(cancelled)[..2], b"xy");
    drop(theirs);
    ring.push(4, into(0..8, true));
    assert_eq!(gather(&mut ring, 1).remove(0).result, Ok(0));
}

#[test]
fn another_thread_wakes_a_sleeping_ring_every_time() {
    let mut ring = Ring::new(&sleepy()).unwrap();
    let waker = ring.waker();
    let heard = AtomicBool::new(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..2_000 {
                while !heard.swap(false, Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                waker.wake();
            }
        });
        for _ in 0..2_000 {
            let deadline = Instant::now() + Duration::from_secs(10);
            while !ring.wait(Some(Duration::from_secs(1))).unwrap().woken {
                assert!(Instant::now() < deadline, "a wake-up was lost");
            }
            heard.store(true, Ordering::SeqCst);
        }
    });
    assert!(ring.stats().sleeps > 0);
    const fn crosses_threads<T: Send + Sync>() {}
    const { crosses_threads::<Waker>() };
}

#[test]
fn a_wait_ends_at_its_timeout() {
    for config in [RingConfig::default(), sleepy()] {
        let mut ring = Ring::new(&config).unwrap();
        let started = Instant::now();
        let wait = ring.wait(Some(Duration::from_millis(30))).unwrap();
        assert!(!wait.woken);
        assert!(started.elapsed() >= Duration::from_millis(29));
        assert!(!ring.wait(Some(Duration::ZERO)).unwrap().woken);
    }
}

#[test]
fn a_dropped_ring_lets_go_of_everything_in_flight() {
    let (here, _there) = std::os::unix::net::UnixStream::pair().unwrap();
    let (pipe, _writer) = rustix::pipe::pipe().unwrap();
    let (socket, pipe) = (Arc::new(OwnedFd::from(here)), Arc::new(pipe));
    let mut ring = Ring::new(&RingConfig::default()).unwrap();
    let group = ring.provide(2, 4096).unwrap();
    ring.push(1, Op::Receive { socket: socket.clone(), group });
    ring.push(2, Op::Read { file: pipe.clone(), offset: 0, buffer: Buffer::zeroed(8), range: 0..8 });
    ring.push(3, Op::Readable { file: pipe.clone() });
    ring.wait(Some(Duration::from_millis(5))).unwrap();
    assert_eq!(ring.in_flight(), 3);
    let started = Instant::now();
    drop(ring);
    assert!(started.elapsed() < Duration::from_secs(2), "in-flight operations on pipes and sockets are cancelled");
    assert_eq!((Arc::strong_count(&socket), Arc::strong_count(&pipe)), (1, 1));
}

#[test]
fn a_wrong_group_is_refused_with_the_rule() {
    let mut ring = Ring::new(&sleepy()).unwrap();
    for (buffers, len) in [(3, 4096), (0, 4096), (4, 0)] {
        let error = ring.provide(buffers, len).unwrap_err();
        assert!(error.to_string().contains("power of two"), "{error}");
    }
}

#[test]
fn all_of_this_holds_without_io_uring() {
    without::all_again("all_of_this_holds_without_io_uring");
}
