//! The system calls on real files: those of the file system that the tests are built on, and, for root, an XFS.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use diskside_sys::attributes::{FileSystem, extended_flags, file_system, file_system_uuid};
use diskside_sys::extent::{ExtentFlags, Told, extents};
use diskside_sys::lease::{Heard, Lease, Listener, Notice, lease, release, take};
use diskside_sys::{cache, lease as leases};
use rustix::fs::{FallocateFlags, fallocate};

const PAGE: u64 = 4096;

/// A directory on the disk that this is built on: `/tmp` may be memory, which has neither extents nor leases.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

fn file_of(directory: &Path, bytes: &[u8]) -> std::path::PathBuf {
    let path = directory.join("file");
    let mut file = File::create(&path).expect("a file");
    file.write_all(bytes).expect("written");
    file.sync_all().expect("durable");
    path
}

#[test]
fn extents_tell_holes_and_unwritten_space() {
    let directory = directory();
    let path = file_of(directory.path(), &[]);
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("open");
    file.write_all_at(&[1; 8192], 0).expect("written");
    file.write_all_at(&[2; 4096], 64 << 10).expect("written");
    fallocate(&file, FallocateFlags::empty(), 128 << 10, 16 << 10).expect("allocated");

    let mut found = Vec::new();
    let told = extents(&file, 0..1 << 20, true, 100, &mut found).expect("extents");
    assert_eq!(told, Told::All);
    let data: Vec<_> = found.iter().filter(|e| !e.flags.contains(ExtentFlags::UNWRITTEN)).collect();
    assert!(data.iter().any(|e| e.logical == 0 && e.len >= 8192), "{found:?}");
    assert!(data.iter().any(|e| e.logical <= 64 << 10 && e.logical + e.len >= 68 << 10), "{found:?}");
    assert!(found.iter().any(|e| e.flags.contains(ExtentFlags::UNWRITTEN) && e.logical == 128 << 10), "{found:?}");
    assert!(found.iter().all(|e| !e.flags.intersects(ExtentFlags::DELALLOC)), "sync leaves nothing delayed: {found:?}");

    let mut one = Vec::new();
    assert_eq!(extents(&file, 0..1 << 20, false, 1, &mut one).expect("extents"), Told::Part);
    assert_eq!(one[..], found[..1]);
    let mut hole = Vec::new();
    extents(&file, 32 << 10..36 << 10, false, 100, &mut hole).expect("extents");
    assert_eq!(hole, [], "a hole has no extent");
}

/// More extents than one request has room for are reported in several, without a gap or a repetition.
#[test]
fn many_extents_are_told_in_steps() {
    let directory = directory();
    let path = file_of(directory.path(), &[]);
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("open");
    for block in 0..100 {
        file.write_all_at(&[3; 4096], block * 2 * PAGE).expect("written");
    }
    let mut found = Vec::new();
    assert_eq!(extents(&file, 0..1 << 30, true, 1000, &mut found).expect("extents"), Told::All);
    let written: Vec<u64> =
        found.iter().filter(|e| !e.flags.contains(ExtentFlags::UNWRITTEN)).map(|e| e.logical).collect();
    assert_eq!(written, (0..100).map(|block| block * 2 * PAGE).collect::<Vec<_>>());
    assert!(found.last().expect("extents").flags.contains(ExtentFlags::LAST));
}

#[test]
fn extents_of_a_pipe_are_refused() {
    let (read, _write) = rustix::pipe::pipe().expect("a pipe");
    assert!(extents(&read, 0..4096, false, 10, &mut Vec::new()).is_err());
}

#[test]
fn a_writer_and_a_read_lease_exclude_each_other() {
    let directory = directory();
    let path = file_of(directory.path(), b"bytes");
    let file = File::open(&path).expect("open");
    let writer = OpenOptions::new().write(true).open(&path).expect("open");
    let refused = take(&file, Lease::Read, Notice::Silent).expect_err("a writer has it open");
    assert_eq!(refused.raw_os_error(), Some(libc::EAGAIN));
    drop(writer);

    take(&file, Lease::Read, Notice::Silent).expect("a lease");
    assert_eq!(lease(&file).expect("asked"), Some(Lease::Read));
    let waits = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&path).expect_err("leased");
    assert_eq!(waits.raw_os_error(), Some(libc::EAGAIN));
    assert_eq!(lease(&file).expect("asked"), None, "broken although the other has gone away");
    // The trap: taking it again says yes, and there still is none.
    let _ = take(&file, Lease::Read, Notice::Silent);
    assert_eq!(lease(&file).expect("asked"), None);
    release(&file).expect("released");
    release(&file).expect("there is none, which is fine");
    OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&path).expect("free again");
}

#[test]
fn a_write_lease_is_for_the_only_one_who_has_the_file() {
    let directory = directory();
    let path = file_of(directory.path(), b"bytes");
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("open");
    let reader = File::open(&path).expect("open");
    assert!(take(&file, Lease::Write, Notice::Silent).is_err());
    drop(reader);
    take(&file, Lease::Write, Notice::Silent).expect("a lease");
    file.write_all_at(b"own", 0).expect("own writes do not break it");
    file.set_len(3).expect("nor does this");
    assert_eq!(lease(&file).expect("asked"), Some(Lease::Write));
    release(&file).expect("released");
}

/// The listener's thread learns which file is wanted, and the writer continues as soon as the lease is released. Twice,
/// since releasing a lease forgets where notices go.
#[test]
fn a_listener_hears_of_each_break() {
    let directory = directory();
    let path = file_of(directory.path(), b"bytes");
    let file = File::open(&path).expect("open");
    std::thread::scope(|scope| {
        let (send, receive) = std::sync::mpsc::channel();
        let listener = scope.spawn({
            let file = &file;
            move || {
                let listener = Listener::new().expect("a listener");
                send.send((listener.address(), listener.waker().expect("a waker"))).expect("sent");
                let mut breaks = 0;
                loop {
                    match listener.wait(None).expect("waited") {
                        Heard::Break(number) => {
                            assert_eq!(number, file.as_raw_fd());
                            breaks += 1;
                            release(file).expect("released");
                        }
                        Heard::Woken => return breaks,
                        other => panic!("{other:?}"),
                    }
                }
            }
        });
        let (address, waker) = receive.recv().expect("started");
        for _ in 0..2 {
            take(&file, Lease::Read, Notice::Listener(address)).expect("a lease");
            let started = Instant::now();
            drop(OpenOptions::new().write(true).open(&path).expect("open"));
            assert!(started.elapsed() < leases::break_time() / 2, "the listener answered, not the kernel's timer");
        }
        waker.wake();
        assert_eq!(listener.join().expect("ended well"), 2);
    });
}

#[test]
fn a_listener_stops_waiting_when_the_time_is_over() {
    let listener = Listener::new().expect("a listener");
    assert_eq!(listener.wait(Some(Duration::from_millis(1))).expect("waited"), Heard::Nothing);
}

#[test]
fn both_ways_to_ask_for_residency_agree() {
    let directory = directory();
    let path = file_of(directory.path(), &[7; 20 * PAGE as usize]);
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("open");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("advised");
    let by_mincore = |range| cache::residency_by_mincore(file.as_fd(), &range).expect("asked").cached;
    let whole = 0..20 * PAGE;
    assert_eq!(cache::residency(&file, whole.clone()).expect("asked").cached, by_mincore(whole.clone()));
    assert_eq!(by_mincore(whole.clone()), 0, "clean pages that nobody maps are dropped");

    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).expect("advised");
    file.read_exact_at(&mut [0; 1], 3 * PAGE).expect("read");
    let told = cache::residency(&file, whole.clone()).expect("asked");
    assert_eq!(told.cached, by_mincore(whole.clone()));
    assert_eq!(cache::residency(&file, 3 * PAGE..3 * PAGE + 1).expect("asked").cached, 1);
    assert_eq!(cache::residency(&file, 10 * PAGE..10 * PAGE).expect("asked").cached, 0, "an empty range has no page");

    file.write_all_at(&[8; PAGE as usize], 5 * PAGE).expect("written");
    if let Some(unwritten) = cache::residency(&file, whole.clone()).expect("asked").unwritten {
        assert_eq!(unwritten, 1);
        cache::flush(&file, whole.clone()).expect("flushed");
        assert_eq!(cache::residency(&file, whole).expect("asked").unwritten, Some(0));
    }
}

#[test]
fn a_file_tells_its_file_system() {
    let directory = directory();
    let path = file_of(directory.path(), b"bytes");
    let file = File::open(&path).expect("open");
    let kind = file_system(&file).expect("asked");
    if matches!(kind, FileSystem::Ext4 | FileSystem::Xfs) {
        assert_eq!(extended_flags(&file).expect("asked") & 1, 0, "not on a realtime device");
        assert_ne!(file_system_uuid(&file).expect("asked"), Some([0; 16]));
    }
    let proc = File::open("/proc/self/status").expect("open");
    assert_eq!(file_system(&proc).expect("asked"), FileSystem::Other(0x9fa0));
    assert_eq!(file_system_uuid(&proc).expect("asked"), None);
}
