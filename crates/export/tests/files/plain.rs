//! Reads of hosts that a reactor does by itself: answered like those that a thread of the export does.

use std::fs::{File, FileTimes, OpenOptions};
use std::io::Write as _;
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use diskside_export::{FileReply, PlainRead};
use diskside_io::ring::{Completion, Payload, Ring, RingConfig};
use diskside_sys::cache::residency;
use diskside_wire::file::{FileFlags, FileHandle, FileRequest};
use rustix::fs::{Advice, fadvise};
use rustix::io::Errno;

use super::host::Host;

const LEN_MAX: usize = 1 << 20;

fn read(file: FileHandle, offset: u64, len: u32) -> FileRequest<'static> {
    FileRequest::Read { file, offset, len }
}

fn begin(host: &Host, request: FileRequest<'_>) -> Option<PlainRead> {
    host.session.plain_read(&request.to_bytes(), LEN_MAX, true, |_| ()).map(|read| read.unwrap())
}

/// The same where threads read what is not in memory.
fn begin_in_memory(host: &Host, request: FileRequest<'_>) -> Option<PlainRead> {
    host.session.plain_read(&request.to_bytes(), LEN_MAX, false, |_| ()).map(|read| read.unwrap())
}

/// One operation of a read. True: it was the last.
fn step(ring: &mut Ring, read: &mut PlainRead) -> bool {
    ring.push_to_worker(0, read.operation());
    loop {
        ring.wait(Some(Duration::from_secs(10))).unwrap();
        if let Some(Completion { result, payload, .. }) = ring.next_completion() {
            let Payload::Buffer(buffer) = payload else { panic!("a read has a buffer") };
            return read.completed(result, Some(buffer));
        }
    }
}

fn finish(ring: &mut Ring, mut read: PlainRead) -> FileReply {
    while !step(ring, &mut read) {}
    read.reply()
}

fn forget(host: &Host, name: &str) {
    let file = File::open(host.path().join(name)).unwrap();
    file.sync_all().unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
}

/// The time of its next read need not be noted, and it changes no more.
fn read_later(host: &Host, name: &str) {
    let accessed = SystemTime::now() + Duration::from_hours(1);
    let file = OpenOptions::new().write(true).open(host.path().join(name)).unwrap();
    file.set_times(FileTimes::new().set_accessed(accessed)).unwrap();
    settle(host, &format!("data/{name}"));
}

/// A change of this clock tick could be followed by another that looks the same.
fn settle(host: &Host, path: &str) {
    while host.stat(path).has(diskside_wire::file::FileAttributes::RECENT) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn every_read_is_answered_as_by_a_thread() {
    let host = Host::new();
    let mut ring = Ring::new(&RingConfig { entries: 8, ..RingConfig::default() }).unwrap();
    let mut at_once = 0;
    for size in [0, 1, 4096, 100_000, 300_000] {
        let bytes: Vec<u8> = (0..size).map(|at| (at * 7 + at / 251) as u8).collect();
        host.file("x", &bytes);
        settle(&host, "data/x");
        let file = host.open("data/x", FileFlags::READ);
        let offsets =
            [0, 1, 4095, 4096, size as u64 / 2, size as u64, size as u64 + 1, 1 << 40, i64::MAX as u64 - 4096];
        for (offset, len) in
            offsets.into_iter().flat_map(|at| [0, 1, 4096, 5000, 65_535, 65_536, 400_000].map(|len| (at, len)))
        {
            let request = read(file, offset, len);
            let wanted = host.ask(request);
            let Some(plain) = begin(&host, request) else {
                assert!(len >= 64 << 10 || offset + u64::from(len) > i64::MAX as u64, "{len} at {offset}");
                continue;
            };
            // Both as it comes and by the ring.
            if let Some(reply) = plain.at_once() {
                at_once += 1;
                assert_eq!(reply, wanted, "{size} bytes, {len} at {offset}, at once");
            }
            let again = begin(&host, request).unwrap();
            assert_eq!(finish(&mut ring, again), wanted, "{size} bytes, {len} at {offset}, by the ring");
        }
        forget(&host, "x");
        let cold = begin(&host, read(file, 0, 5000)).unwrap();
        if cold.at_once().is_none() {
            assert_eq!(finish(&mut ring, cold), host.ask(read(file, 0, 5000)));
        }
        assert!(host.try_ask(FileRequest::Close { file }).is_ok());
    }
    assert!(at_once > 100, "{at_once}: memory has most of them");
}

/// Each read of a file that was not in memory asked the kernel twice whether it was: a fifth of all that a server of one processor could
/// read from a disk.
#[test]
fn a_file_that_is_not_in_memory_is_rarely_looked_at_until_it_is() {
    let host = Host::new();
    host.file("x", "");
    // Nothing but a hole, so memory has nothing of it.
    OpenOptions::new().write(true).open(host.path().join("x")).unwrap().set_len(1 << 20).unwrap();
    read_later(&host, "x");
    let file = host.open("data/x", FileFlags::READ);
    let page = |at: u64| read(file, at % 256 * 4096, 4096);
    let is_looked_at = |at| begin_in_memory(&host, page(at)).is_some_and(|plain| plain.at_once().is_none());
    assert!((0..16).all(is_looked_at));
    assert_eq!((16..160).filter(|at| is_looked_at(*at)).count(), 9, "one of sixteen");
    std::fs::write(host.path().join("x"), vec![7; 1 << 20]).unwrap();
    read_later(&host, "x");
    let first = (0..100).find_map(|at| begin_in_memory(&host, page(at))).expect("it is looked at");
    assert_eq!(first.at_once().unwrap().result, [7; 4096]);
    for at in 0..256 {
        assert!(begin_in_memory(&host, page(at)).is_some_and(|plain| plain.at_once().is_some()), "page {at}");
    }
}

/// A traversal on a reactor tried to read what was not in memory, and the kernel began to read it: on a disk that hung, with the reactor.
#[test]
fn a_reactor_has_nothing_read_by_trying() {
    let host = Host::new();
    host.file("x", "");
    let there = OpenOptions::new().read(true).write(true).open(host.path().join("x")).unwrap();
    there.set_len(1 << 20).unwrap();
    read_later(&host, "x");
    let file = host.open("data/x", FileFlags::READ);
    let cached = host.session.cached(file).unwrap();
    let is_read = |at: u64| cached.read_now(at % 256 * 4096, &mut [0; 4096]);
    assert!(!(0..256).any(is_read));
    assert_eq!(residency(&there, 0..1 << 20).unwrap().cached, 0, "nothing was read");
    (&there).write_all(&[7; 1 << 20]).unwrap();
    assert!((0..256).all(is_read));
    assert!((0..256).all(is_read), "and without a look");
}

#[test]
fn a_file_that_shrinks_or_changes_while_it_is_read_gives_what_is_there_and_no_version() {
    let host = Host::new();
    let mut ring = Ring::new(&RingConfig { entries: 8, ..RingConfig::default() }).unwrap();
    host.file("x", vec![7; 200_000]);
    settle(&host, "data/x");
    let file = host.open("data/x", FileFlags::READ);
    let mut plain = begin(&host, read(file, 180_000, 60_000)).unwrap();
    assert!(!step(&mut ring, &mut plain), "there may be more");
    OpenOptions::new().write(true).open(host.path().join("x")).unwrap().set_len(150_000).unwrap();
    let reply = finish(&mut ring, plain);
    assert_eq!((reply.returned.unwrap(), reply.result, reply.version), (20_000, vec![7; 20_000], 0));
    // It is shorter than when the read began.
    let plain = begin(&host, read(file, 149_000, 2000)).unwrap();
    OpenOptions::new().write(true).open(host.path().join("x")).unwrap().set_len(149_500).unwrap();
    let reply = plain.at_once().unwrap_or_else(|| finish(&mut ring, plain));
    assert_eq!((reply.returned.unwrap(), reply.result, reply.version), (500, vec![7; 500], 0));
}

#[test]
fn reads_that_are_nothing_for_a_ring_are_left_to_threads_and_refusals_are_the_same() {
    let host = Host::new();
    host.file("x", "12345");
    std::fs::create_dir(host.path().join("d")).unwrap();
    let (file, dir) = (host.open("data/x", FileFlags::READ), host.open("data/d", FileFlags::READ));
    let written = host.open("data/x", FileFlags::WRITE);
    // The file's own position, a directory, and a handle that is written alone.
    for (handle, offset) in [(file, u64::MAX), (file, i64::MAX as u64), (dir, 0), (written, 0)] {
        assert!(begin(&host, read(handle, offset, 4)).is_none());
        assert!(host.try_ask(read(handle, offset, 4)).is_err());
    }
    assert!(begin(&host, FileRequest::Close { file: dir }).is_none(), "another operation");
    let (sender, noted) = mpsc::channel();
    let uses = |export| sender.send(export).unwrap();
    assert!(host.session.plain_read(&read(file, 0, 4).to_bytes(), LEN_MAX, true, uses).unwrap().is_ok());
    assert!(noted.try_recv().is_ok(), "what it uses is noted");
    // An answer that fails names the file; one that was not begun says so.
    let mut plain = begin(&host, read(file, 3, 4)).unwrap();
    assert!(plain.completed(Err(Errno::IO), Some(vec![0; 4].into())));
    let error = plain.reply().returned.unwrap_err();
    assert_eq!(error.message, "read data/x at byte 3: Input/output error (os error 5)");
    let mut plain = begin(&host, read(file, 3, 4)).unwrap();
    assert!(!plain.completed(Err(Errno::INTR), Some(vec![0; 4].into())), "it is asked for again");
    assert!(plain.completed(Ok(0), None));
    assert_eq!(plain.reply().returned.unwrap_err().errno, Errno::CANCELED);
    let closed = FileRequest::Close { file };
    host.ask(closed);
    let stale = host.session.plain_read(&read(file, 0, 4).to_bytes(), LEN_MAX, true, |_| ());
    assert!(stale.is_none(), "threads say that it is stale");
}
