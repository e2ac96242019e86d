//! Rings without io_uring: many connections, slow and lost peers, threads and descriptors.

mod without;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use diskside_io::Errno;
use diskside_io::buffer::Buffer;
use diskside_io::ring::{Completion, Interface, Op, Payload, Ring, RingConfig, SendBatch, interface};
use rustix::process::{Resource, getrlimit, setrlimit};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn ring() -> Ring {
    assert!(matches!(interface().unwrap(), Interface::Posix(why) if why == "DISKSIDE_IO asks for it"));
    Ring::new(&RingConfig { spin: Duration::ZERO, ..RingConfig::default() }).unwrap()
}

/// Takes completions until it is enough.
fn serve(ring: &mut Ring, mut each: impl FnMut(&mut Ring, Completion) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < deadline, "it hangs with {} in flight", ring.in_flight());
        ring.wait(Some(Duration::from_millis(100))).unwrap();
        while let Some(done) = ring.next_completion() {
            if each(ring, done) {
                return;
            }
        }
    }
}

fn pair() -> (Arc<OwnedFd>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (Arc::new(listener.accept().unwrap().0.into()), far)
}

fn batch(bytes: &[u8]) -> Box<SendBatch> {
    let mut batch = Box::new(SendBatch::new());
    // Pieces that end anywhere: a partial send continues within one of them.
    for piece in bytes.chunks(100_003) {
        batch.put_buffer(Buffer::copy_of(piece), 0..piece.len());
    }
    batch
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Threads of rings, by their name.
fn io_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(task.ok()?.path().join("comm")).ok();
    tasks.filter_map(name).filter(|name| name.trim() == "io-file").count()
}

#[test]
fn a_thousand_connections_are_served_and_nothing_is_left_of_them() {
    const CONNECTIONS: usize = 1000;
    if !without::is_here("a_thousand_connections_are_served_and_nothing_is_left_of_them") {
        return;
    }
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let before = open_descriptors();
    {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let hosts = std::thread::spawn(move || {
            let mut streams: Vec<_> = (0..CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
            for round in 0..3 {
                streams.iter_mut().for_each(|stream| stream.write_all(&[round; 700]).unwrap());
                for stream in &mut streams {
                    let mut back = [0; 700];
                    stream.read_exact(&mut back).unwrap();
                    assert_eq!(back, [round; 700]);
                }
            }
        });
        let mut ring = ring();
        let group = ring.provide(64, 4096).unwrap();
        let listener: Arc<OwnedFd> = Arc::new(listener.into());
        ring.push(u64::MAX, Op::Accept { listener: Arc::clone(&listener) });
        let mut sockets: Vec<Arc<OwnedFd>> = Vec::new();
        let mut ended = 0;
        serve(&mut ring, |ring, done| {
            let token = done.token;
            let socket = sockets.get((token & 0xffff) as usize).cloned();
            match done.payload {
                Payload::Accepted(socket) => {
                    let socket = Arc::new(socket);
                    ring.register_file(&socket);
                    ring.push(sockets.len() as u64, Op::Receive { socket: Arc::clone(&socket), group });
                    sockets.push(socket);
                    ring.push(u64::MAX, Op::Accept { listener: Arc::clone(&listener) });
                }
                Payload::Received(bytes) => {
                    ring.push(token | 1 << 32, Op::Send { socket: socket.unwrap(), batch: batch(&bytes) });
                }
                Payload::Batch(sent) => assert_eq!(done.result, Ok(sent.len_bytes() as u32)),
                _ if done.result == Ok(0) => {
                    ring.unregister_file(&socket.unwrap());
                    ended += 1;
                }
                // All buffers are with others for the moment.
                _ => {
                    assert_eq!((done.result, done.more), (Err(Errno::NOBUFS), false));
                    ring.push(token, Op::Receive { socket: socket.unwrap(), group });
                }
            }
            ended == CONNECTIONS
        });
        hosts.join().unwrap();
    }
    assert_eq!(open_descriptors(), before);
    assert_eq!(io_threads(), 0, "sockets need no thread");
}

/// Edges are said once: a receive that missed one would wait for ever.
#[test]
fn no_arrival_is_missed() {
    if !without::is_here("no_arrival_is_missed") {
        return;
    }
    let (near, mut far) = pair();
    let mut there = far.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        let mut random = 1_u32;
        for round in 0..3_000_u32 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let len = 1 + (random >> 16) as usize % 300;
            let bytes = vec![round as u8; len];
            far.write_all(&bytes).unwrap();
            let mut back = vec![0; len];
            far.read_exact(&mut back).unwrap();
            assert_eq!(back, bytes);
        }
        far.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut ring = ring();
    let group = ring.provide(8, 256).unwrap();
    ring.push(1, Op::Receive { socket: Arc::clone(&near), group });
    serve(&mut ring, |ring, done| {
        match done.payload {
            Payload::Received(bytes) => {
                ring.push(2, Op::Send { socket: Arc::clone(&near), batch: batch(&bytes) });
            }
            Payload::Batch(_) => assert!(matches!(done.result, Ok(1..))),
            _ => return done.result == Ok(0),
        }
        false
    });
    writer.join().unwrap();
    drop((ring, near));
    assert_eq!(there.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_send_goes_on_as_its_peer_takes_it_and_ends_with_the_peer() {
    if !without::is_here("a_send_goes_on_as_its_peer_takes_it_and_ends_with_the_peer") {
        return;
    }
    let bytes: Vec<u8> = (0..12_000_000_u32).map(|at| (at / 7) as u8).collect();
    let mut ring = ring();
    let (near, mut far) = pair();
    ring.push(1, Op::Send { socket: near, batch: batch(&bytes) });
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        far.read_to_end(&mut all).unwrap();
        all
    });
    serve(&mut ring, |_, done| {
        assert_eq!(done.result, Ok(bytes.len() as u32));
        true
    });
    assert!(reader.join().unwrap() == bytes);

    // Cancelled, it says how much the socket took; that much comes, and no more.
    let (near, mut far) = pair();
    let id = ring.push(2, Op::Send { socket: near, batch: batch(&bytes) });
    ring.submit().unwrap();
    ring.cancel(id);
    let mut sent = 0;
    serve(&mut ring, |_, done| {
        sent = done.result.unwrap() as usize;
        true
    });
    assert!(0 < sent && sent < bytes.len());
    let mut all = Vec::new();
    far.read_to_end(&mut all).unwrap();
    assert!(all[..] == bytes[..sent]);

    // A peer that goes.
    let (near, far) = pair();
    ring.push(3, Op::Send { socket: Arc::clone(&near), batch: batch(&bytes) });
    ring.submit().unwrap();
    drop(far);
    serve(&mut ring, |_, done| {
        assert!(matches!(done.result, Ok(sent) if (sent as usize) < bytes.len()), "{:?}", done.result);
        true
    });
    ring.push(4, Op::Send { socket: near, batch: batch(b"more") });
    serve(&mut ring, |_, done| {
        assert!(matches!(done.result, Err(Errno::PIPE | Errno::CONNRESET)), "{:?}", done.result);
        true
    });
}

#[test]
fn threads_are_few_and_end_with_their_ring() {
    if !without::is_here("threads_are_few_and_end_with_their_ring") {
        return;
    }
    let file: Arc<OwnedFd> = Arc::new(tempfile::tempfile().unwrap().into());
    let (mut ring, before) = (ring(), open_descriptors());
    let write = |at: u64| Op::Write {
        file: Arc::clone(&file),
        offset: at * 1000,
        buffer: Buffer::copy_of(&[at as u8; 1000]),
        range: 0..1000,
        durable: at.is_multiple_of(100),
    };
    for at in 0..1000 {
        ring.push(at, write(at));
    }
    let (mut left, mut threads_max) = (1000, 0);
    serve(&mut ring, |_, done| {
        assert_eq!(done.result, Ok(1000));
        left -= 1;
        threads_max = threads_max.max(io_threads());
        left == 0
    });
    assert!((1..=32).contains(&threads_max), "{threads_max}");
    for at in 0..1000 {
        let (file, buffer) = (Arc::clone(&file), Buffer::zeroed(1000));
        ring.push(at, Op::Read { file, offset: at * 1000, buffer, range: 0..1000 });
    }
    serve(&mut ring, |ring, done| {
        let Payload::Buffer(buffer) = done.payload else { panic!("a read returns its buffer") };
        assert_eq!((done.result, &buffer[..]), (Ok(1000), &[done.token as u8; 1000][..]));
        ring.in_flight() == 0
    });
    drop(ring);
    let deadline = Instant::now() + PATIENCE;
    while io_threads() > 0 {
        assert!(Instant::now() < deadline, "a thread outlives its ring");
        std::thread::yield_now();
    }
    assert_eq!(open_descriptors(), before - 2, "an epoll set and what wakes it");
}

#[test]
fn a_connect_that_is_refused_says_so_and_leaves_the_socket_as_it_was() {
    if !without::is_here("a_connect_that_is_refused_says_so_and_leaves_the_socket_as_it_was") {
        return;
    }
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let socket = diskside_io::socket::socket_for(address, &Default::default()).unwrap();
    let socket = Arc::new(socket);
    let mut ring = ring();
    ring.push(1, Op::Connect { socket: Arc::clone(&socket), address });
    serve(&mut ring, |_, done| {
        assert_eq!(done.result, Err(Errno::CONNREFUSED));
        true
    });
    assert!(!rustix::fs::fcntl_getfl(&socket).unwrap().contains(rustix::fs::OFlags::NONBLOCK));
}

/// Each read past the page cache went to a thread and back: less than half of the rate of io_uring, and 25 us of the processor each.
#[test]
fn reads_and_writes_past_the_page_cache_take_no_thread() {
    const BLOCK: usize = 4096;
    const BLOCKS: usize = 400;
    if !without::is_here("reads_and_writes_past_the_page_cache_take_no_thread") {
        return;
    }
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("direct-{}", std::process::id()));
    std::fs::write(&path, vec![0; BLOCK * BLOCKS]).unwrap();
    let file = {
        use std::os::unix::fs::OpenOptionsExt as _;
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_DIRECT);
        options.open(&path).expect("a file system that knows O_DIRECT")
    };
    std::fs::remove_file(&path).unwrap();
    let file: Arc<OwnedFd> = Arc::new(file.into());
    // A write that has to allocate, or to drop pages, would wait: threads do those.
    rustix::fs::fsync(&file).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let mut ring = ring();
    let filled = |block: usize| (block % 251 + 1) as u8;
    // More at a time than the kernel is given go to threads.
    let mut each = |op: &dyn Fn(u64, Buffer) -> Op, check: &dyn Fn(usize, &Buffer)| {
        let mut next = 100;
        for block in 0..next {
            ring.push(block as u64, op((block * BLOCK) as u64, Buffer::copy_of(&[filled(block); BLOCK])));
        }
        serve(&mut ring, |ring, done| {
            let Payload::Buffer(mut buffer) = done.payload else { panic!("a buffer comes back") };
            assert_eq!(done.result, Ok(BLOCK as u32));
            check(done.token as usize, &buffer);
            if next < BLOCKS {
                buffer.fill(filled(next));
                ring.push(next as u64, op((next * BLOCK) as u64, buffer));
                next += 1;
            }
            next == BLOCKS && ring.in_flight() == 0
        });
    };
    let write = |offset: u64, buffer| {
        let durable = offset.is_multiple_of(50 * BLOCK as u64);
        Op::Write { file: Arc::clone(&file), offset, buffer, range: 0..BLOCK, durable }
    };
    each(&write, &|_, _| {});
    let read = |offset, _| Op::Read { file: Arc::clone(&file), offset, buffer: Buffer::zeroed(BLOCK), range: 0..BLOCK };
    each(&read, &|block, buffer| assert!(buffer.iter().all(|byte| *byte == filled(block)), "block {block}"));
    let threads = io_threads();
    assert!(threads <= 2, "{threads} threads at work");
    // The end of the file, what is not aligned, and what is past the end.
    for (token, offset, range) in
        [(1, (BLOCK * BLOCKS) as u64, 0..BLOCK), (2, 0, 0..100), (3, ((BLOCKS - 1) * BLOCK) as u64, 0..2 * BLOCK)]
    {
        let buffer = Buffer::zeroed(2 * BLOCK);
        ring.push(token, Op::Read { file: Arc::clone(&file), offset, buffer, range });
    }
    let mut ends = Vec::new();
    serve(&mut ring, |_, done| {
        ends.push((done.token, done.result));
        ends.len() == 3
    });
    ends.sort_unstable_by_key(|(token, _)| *token);
    assert_eq!(ends, [(1, Ok(0)), (2, Err(Errno::INVAL)), (3, Ok(BLOCK as u32))]);
    // With operations in flight the ring goes, and no memory before them.
    for block in 0..100 {
        let (offset, buffer) = ((block * BLOCK) as u64, Buffer::zeroed(BLOCK));
        ring.push(block as u64, Op::Read { file: Arc::clone(&file), offset, buffer, range: 0..BLOCK });
    }
    ring.submit().unwrap();
    drop(ring);
}
