//! The guard on real file systems: what it says is where the bytes are, and it hears of every change.

mod lab;

use std::fs::{self, File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use diskside_layout::{Admitted, Guard, GuardConfig, OpenFile, Proof, Reason, Refusal, Ticket, admit, watched};
use diskside_sys::lease::break_time;
use lab::{Kind, Lab, run};

const ALL: [Kind; 3] = [Kind::Ext4, Kind::Ext4WithBlocksOf1KiB, Kind::Xfs];

fn config(admitted: &Admitted, proof: Proof) -> GuardConfig {
    GuardConfig {
        proof,
        own_writer: false,
        place: admitted.place.clone(),
        moves_under_lease: admitted.moves_under_lease(),
        extents_max: 1 << 16,
        clock_tick: Duration::ZERO,
    }
}

fn guard(path: &Path, proof: Proof) -> Guard<OpenFile> {
    let file = File::open(path).expect("open");
    let admitted = admit(&file).expect("admitted");
    watched(file, config(&admitted, proof)).expect("a guard")
}

/// A ticket. Other tests start programs, and their children have our descriptors for a moment.
fn begin(guard: &Guard<OpenFile>, range: Range<u64>) -> Result<Ticket<OpenFile>, Refusal> {
    let patience = Instant::now() + Duration::from_secs(20);
    loop {
        match guard.begin(range.clone()) {
            Err(refusal) if refusal.reason == Reason::Writer && Instant::now() < patience => {}
            result => return result,
        }
    }
}

/// What the device holds where the ticket says.
fn through_device(lab: &Lab, ticket: &Ticket<OpenFile>) -> Vec<u8> {
    let range = ticket.range();
    let mut bytes = vec![0; (range.end - range.start) as usize];
    for read in ticket.layout().reads(range, 512) {
        let block = lab.on_device(read.physical, read.len as usize);
        let wanted = &block[read.wanted];
        bytes[read.at..read.at + wanted.len()].copy_from_slice(wanted);
    }
    bytes
}

fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes()[2] ^ seed).collect()
}

/// A file with a hole, unwritten space, dirty pages and an end in the middle of a block.
fn mixed(path: &Path) -> Vec<u8> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).expect("a file");
    file.write_all_at(&pattern(1, 70_000), 0).expect("written");
    file.sync_all().expect("durable");
    file.write_all_at(&pattern(2, 10_001), 300_000).expect("written");
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 400_000, 100_000).expect("allocated");
    file.write_all_at(&pattern(3, 777), 450_000).expect("written, and not flushed");
    file.write_all_at(&pattern(4, 5_000), 20_000).expect("written over, and not flushed");
    drop(file);
    fs::read(path).expect("read")
}

#[test]
fn every_range_is_where_the_layout_says() {
    for kind in ALL {
        let Some(lab) = Lab::new(kind) else { continue };
        for proof in [Proof::Request, Proof::Epoch, Proof::Detect] {
            let path = lab.mount.join(format!("{proof:?}"));
            let bytes = mixed(&path);
            let len = bytes.len() as u64;
            let guard = guard(&path, proof);
            let ranges: [Range<u64>; 8] = [
                0..len,
                0..1,
                4_095..4_097,
                60_000..310_000,
                299_999..300_002,
                399_000..460_000,
                len - 1..len + 9,
                len..len + 5,
            ];
            for range in ranges {
                let ticket = begin(&guard, range.clone()).expect("a ticket");
                let found = through_device(&lab, &ticket);
                let finished = guard.finish(ticket);
                assert!(finished.is_ok(), "nothing changed: {kind:?} {proof:?} {range:?}: {finished:?}");
                let wanted = &bytes[(range.start.min(len)) as usize..range.end.min(len) as usize];
                assert!(found == wanted, "{kind:?} {proof:?} {range:?}");
            }
        }
    }
}

/// Each of these happens while a request is in flight, by another thread that waits for us if it has to.
type Change = (&'static str, fn(&Path));

const CHANGES: [Change; 8] = [
    ("overwrite", |path| writer(path).write_all_at(b"x", 5).expect("written")),
    ("truncate", |path| writer(path).set_len(4096).expect("cut")),
    ("extend", |path| writer(path).set_len(10 << 20).expect("extended")),
    ("truncate by path", |path| run(Command::new("python3").args(["-c", TRUNCATE]).arg(path))),
    ("punch", |path| {
        let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(writer(path), flags, 0, 8192).expect("punched");
    }),
    ("append", |path| writer(path).write_all_at(b"more", 1 << 20).expect("written")),
    ("mapped store", |path| run(Command::new("python3").args(["-c", MAPPED_STORE]).arg(path))),
    ("open for writing and nothing else", |path| drop(writer(path))),
];

/// By `truncate(2)`: the program of that name opens the file with `O_NONBLOCK`, and so fails where others wait.
const TRUNCATE: &str = "import os, sys; os.truncate(sys.argv[1], 100)";
const MAPPED_STORE: &str = "import mmap, sys; f = open(sys.argv[1], 'r+b'); m = mmap.mmap(f.fileno(), 4096); m[0] = 88";

fn writer(path: &Path) -> File {
    OpenOptions::new().write(true).open(path).expect("open")
}

#[test]
fn a_change_in_flight_is_noticed_and_waits_for_nobody() {
    for kind in [Kind::Ext4, Kind::Xfs] {
        let Some(lab) = Lab::new(kind) else { continue };
        for proof in [Proof::Request, Proof::Epoch] {
            for (what, change) in CHANGES {
                let path = lab.mount.join("file");
                fs::write(&path, pattern(9, 100_000)).expect("written");
                let guard = guard(&path, proof);
                let ticket = begin(&guard, 0..50_000).expect("a ticket");
                let started = Instant::now();
                change(&path);
                assert!(started.elapsed() < break_time() / 2, "{what} waited for the request");
                let refusal = guard.finish(ticket).expect_err(what);
                assert_eq!(refusal.reason, Reason::LeaseBroken, "{kind:?} {proof:?} {what}");
                // And the next one sees the new bytes.
                let bytes = fs::read(&path).expect("read");
                let ticket = begin(&guard, 0..50_000).expect("a ticket");
                let found = through_device(&lab, &ticket);
                guard.finish(ticket).expect("nothing changed");
                assert!(found == bytes[..50_000.min(bytes.len())], "{kind:?} {proof:?} {what}");
            }
        }
    }
}

#[test]
fn defragmentation_in_flight_is_noticed() {
    let Some(lab) = Lab::new(Kind::Ext4) else { return };
    let path = lab.mount.join("file");
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path).expect("a file");
    // Blocks written backwards, each made durable alone, end up apart.
    for block in (0..64u64).rev() {
        file.write_all_at(&pattern(block as u8, 4096), block * 4096).expect("written");
        file.sync_data().expect("durable");
    }
    drop(file);
    let guard = guard(&path, Proof::Epoch);
    let ticket = begin(&guard, 0..1 << 18).expect("a ticket");
    if Command::new("e4defrag").arg(&path).output().is_err() {
        eprintln!("NOT TESTED: defragmentation needs e4defrag");
        return;
    }
    assert_eq!(guard.finish(ticket).expect_err("opened for writing").reason, Reason::LeaseBroken);
}

/// Deduplication moves extents through a descriptor that is only open for reading, so the lease says nothing.
#[test]
fn deduplication_under_the_lease_is_noticed() {
    let Some(lab) = Lab::new(Kind::Xfs) else { return };
    if Command::new("xfs_io").arg("-V").output().is_err() {
        eprintln!("NOT TESTED: deduplication needs xfs_io");
        return;
    }
    for proof in [Proof::Request, Proof::Epoch] {
        let (path, twin) = (lab.mount.join("file"), lab.mount.join("twin"));
        let bytes = pattern(5, 1 << 16);
        for path in [&path, &twin] {
            // A file of its own each time: writing over one that shares blocks would be something else.
            let _ = fs::remove_file(path);
            fs::write(path, &bytes).expect("written");
        }
        run(Command::new("sync").arg("-f").arg(&lab.mount));
        let guard = guard(&path, proof);
        let ticket = begin(&guard, 0..1 << 16).expect("a ticket");
        let dedupe = format!("dedupe {} 0 0 65536", twin.display());
        run(Command::new("xfs_io").args(["-r", "-c", &dedupe]).arg(&path));
        assert_eq!(guard.finish(ticket).expect_err("moved").reason, Reason::Remapped, "{proof:?}");
        let ticket = begin(&guard, 0..1 << 16).expect("a ticket");
        assert!(through_device(&lab, &ticket) == bytes);
        guard.finish(ticket).expect("nothing changed");
    }
}

#[test]
fn unlinking_a_file_that_is_read_does_no_harm() {
    for kind in [Kind::Ext4, Kind::Xfs] {
        let Some(lab) = Lab::new(kind) else { continue };
        let path = lab.mount.join("file");
        let bytes = pattern(6, 200_000);
        fs::write(&path, &bytes).expect("written");
        let guard = guard(&path, Proof::Epoch);
        let ticket = begin(&guard, 0..200_000).expect("a ticket");
        fs::remove_file(&path).expect("unlinked");
        fs::write(&path, pattern(7, 200_000)).expect("another file of this name");
        run(Command::new("sync").arg("-f").arg(&lab.mount));
        assert!(through_device(&lab, &ticket) == bytes, "the blocks stay the open file's");
        guard.finish(ticket).expect("a lease is about the file, not about its name");
    }
}

#[test]
fn a_writer_who_is_there_already_is_a_reason() {
    let Some(lab) = Lab::new(Kind::Ext4) else { return };
    let path = lab.mount.join("file");
    fs::write(&path, b"bytes").expect("written");
    let open = writer(&path);
    let guard = guard(&path, Proof::Epoch);
    assert_eq!(guard.begin(0..5).expect_err("open for writing").reason, Reason::Writer);
    drop(open);
    guard.finish(begin(&guard, 0..5).expect("a ticket")).expect("nothing changed");
    // The lease is kept, and this very thread can open the file for writing all the same.
    let started = Instant::now();
    drop(writer(&path));
    assert!(started.elapsed() < break_time() / 2);
}

#[test]
fn what_is_not_admitted_says_why() {
    let refused = |path: &Path| admit(&File::open(path).expect("open")).expect_err("refused").reason;
    assert_eq!(refused(Path::new("/proc/self/status")), Reason::FileSystem);
    assert_eq!(refused(Path::new("/")), Reason::NotRegular);
    let memory = tempfile::tempfile_in("/dev/shm").expect("a file");
    assert_eq!(admit(&memory).expect_err("refused").reason, Reason::FileSystem);

    if let Some(lab) = Lab::new(Kind::Ext4JournallingData) {
        let path = lab.mount.join("file");
        fs::write(&path, b"bytes").expect("written");
        assert_eq!(refused(&path), Reason::DataJournal, "although /proc/mounts does not show the option");
    }
    let Some(lab) = Lab::new(Kind::Ext4) else { return };
    let path = lab.mount.join("file");
    fs::write(&path, b"bytes").expect("written");
    let admitted = admit(&File::open(&path).expect("open")).expect("admitted");
    assert_eq!(admitted.place.disk, diskside_layout::Disk::File(lab.image.canonicalize().expect("a path")));
    assert_eq!(format!("/dev/{}", admitted.place.device), lab.device().display().to_string());
    admitted.check_superblock(&lab.on_device(0, 4096)).expect("the one that is mounted");
    assert!(admitted.uuid.is_some());
    if Command::new("chattr").arg("+j").arg(&path).output().is_ok_and(|output| output.status.success()) {
        assert_eq!(refused(&path), Reason::DataJournal);
    } else {
        eprintln!("NOT TESTED: chattr +j needs CAP_SYS_RESOURCE");
    }
}

#[test]
fn without_a_lease_ordinary_changes_are_noticed() {
    for kind in [Kind::Ext4, Kind::Xfs] {
        let Some(lab) = Lab::new(kind) else { continue };
        for (what, change) in &CHANGES[..7] {
            let path = lab.mount.join("file");
            fs::write(&path, pattern(9, 100_000)).expect("written");
            let guard = guard(&path, Proof::Detect);
            let ticket = begin(&guard, 0..50_000).expect("a ticket");
            change(&path);
            assert_eq!(guard.finish(ticket).expect_err(what).reason, Reason::Changed, "{kind:?} {what}");
        }
        // A file that is fresher than the clock's ticks tells nothing.
        let path = lab.mount.join("file");
        let file = File::open(&path).expect("open");
        let coarse = GuardConfig {
            clock_tick: Duration::from_secs(3600),
            ..config(&admit(&file).expect("admitted"), Proof::Detect)
        };
        let guard = Guard::new(OpenFile::new(file), coarse);
        assert_eq!(guard.begin(0..1).expect_err("too fresh").reason, Reason::TooFresh);
    }
}

#[test]
fn more_extents_than_the_limit_is_a_reason() {
    let Some(lab) = Lab::new(Kind::Ext4) else { return };
    let path = lab.mount.join("file");
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path).expect("a file");
    for block in 0..20 {
        file.write_all_at(&[1; 4096], block * 8192).expect("written");
    }
    drop(file);
    let file = File::open(&path).expect("open");
    let few = GuardConfig { extents_max: 10, ..config(&admit(&file).expect("admitted"), Proof::Epoch) };
    let guard = watched(file, few).expect("a guard");
    assert_eq!(guard.begin(0..1 << 20).expect_err("many").reason, Reason::TooManyExtents);
    // A request for few of them is fine.
    let ticket = begin(&guard, 0..32_768).expect("a ticket");
    assert_eq!(ticket.pieces().len(), 8);
    guard.finish(ticket).expect("nothing changed");
}

/// A lease outlives the descriptor where a child inherited it; the guard gives it up by name.
#[test]
fn the_lease_ends_with_the_guard() {
    let Some(lab) = Lab::new(Kind::Ext4) else { return };
    let path = lab.mount.join("file");
    fs::write(&path, b"bytes").expect("written");
    let file = File::open(&path).expect("open");
    let twin = file.try_clone().expect("the same description");
    let guard = watched(file, config(&admit(&twin).expect("admitted"), Proof::Epoch)).expect("a guard");
    guard.finish(begin(&guard, 0..5).expect("a ticket")).expect("nothing changed");
    assert!(guard.generation().is_some(), "an epoch lasts");
    drop(guard);
    OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&path).expect("nobody has a lease");
    drop(twin);
}
