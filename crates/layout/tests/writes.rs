//! Guarded writes on real file systems: what the device was given is what readers get, and what cannot be proved is
//! refused before anything is written.

mod lab;

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt, MetadataExt as _, OpenOptionsExt, PermissionsExt as _};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use diskside_layout::{OpenFile, Reason, Refusal, WriteGuard, WriteGuardConfig, WriteTicket, admit, watched_writer};
use diskside_sys::lease::break_time;
use lab::{Kind, Lab, run};

const ALL: [Kind; 3] = [Kind::Ext4, Kind::Ext4WithBlocksOf1KiB, Kind::Xfs];
const LEN: usize = 1 << 20;

fn guard(path: &Path) -> WriteGuard<OpenFile> {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("open");
    let place = admit(&file).expect("admitted").place;
    let config = WriteGuardConfig { place, extents_max: 1 << 16, patience: break_time() };
    watched_writer(file, config).expect("a guard")
}

/// A ticket. Other tests start programs, and their children have our descriptors for a moment.
fn begin(guard: &WriteGuard<OpenFile>, range: std::ops::Range<u64>) -> Result<WriteTicket<OpenFile>, Refusal> {
    let patience = Instant::now() + Duration::from_secs(20);
    loop {
        match guard.begin(range.clone()) {
            Err(refusal) if refusal.reason == Reason::Opened && Instant::now() < patience => {}
            result => return result,
        }
    }
}

/// A file whose blocks all hold data.
fn full(path: &Path) -> Vec<u8> {
    let bytes: Vec<u8> = (0..LEN).map(|at| (at / 7) as u8).collect();
    let mut file = File::create(path).expect("made");
    file.write_all(&bytes).expect("written");
    file.sync_all().expect("durable");
    bytes
}

/// Writes bytes where the ticket says, as a volume would: whole sectors.
fn through_device(lab: &Lab, ticket: &WriteTicket<OpenFile>, start: usize, bytes: &[u8]) {
    let image = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(&lab.image).expect("open");
    for piece in ticket.layout().pieces(start as u64..(start + bytes.len()) as u64) {
        let part = &bytes[piece.logical as usize - start..][..piece.len as usize];
        let physical = piece.physical.expect("every byte has a place");
        let first = physical / 4096 * 4096;
        let end = (physical + piece.len).next_multiple_of(4096);
        let mut blocks = lab.on_device(first, (end - first) as usize);
        blocks[(physical - first) as usize..][..part.len()].copy_from_slice(part);
        // Memory for O_DIRECT has to be aligned.
        let mut memory = vec![0; blocks.len() + 4096];
        let skip = memory.as_ptr().align_offset(4096);
        memory[skip..skip + blocks.len()].copy_from_slice(&blocks);
        image.write_all_at(&memory[skip..skip + blocks.len()], first).expect("written");
    }
}

#[test]
fn readers_get_what_the_device_was_given() {
    for kind in ALL {
        let Some(lab) = Lab::new(kind) else { continue };
        let path = lab.mount.join("file");
        let mut bytes = full(&path);
        // In the page cache, some of it newer than what the device has.
        let writer = OpenOptions::new().write(true).open(&path).expect("open");
        writer.write_all_at(&[9; 5000], 30_000).expect("written");
        drop(writer);
        bytes[30_000..35_000].fill(9);
        assert!(fs::read(&path).expect("read") == bytes);
        let before = fs::metadata(&path).expect("told");
        for (start, len) in [(0, LEN), (4096, 8192), (1, 1), (29_999, 7_001), (LEN - 10, 10)] {
            let guard = guard(&path);
            let ticket = begin(&guard, start as u64..(start + len) as u64).expect("a ticket");
            let written: Vec<u8> = (0..len).map(|at| (at * 31 + start) as u8).collect();
            through_device(&lab, &ticket, start, &written);
            bytes[start..start + len].copy_from_slice(&written);
            ticket.finish().expect("proved");
            drop(guard);
            assert!(fs::read(&path).expect("read") == bytes, "{kind:?}, {len} bytes at {start}");
        }
        let after = fs::metadata(&path).expect("told");
        assert_eq!(after.len(), before.len());
        let times = |of: &fs::Metadata| ((of.mtime(), of.mtime_nsec()), (of.ctime(), of.ctime_nsec()));
        assert!(times(&after).0 > times(&before).0 && times(&after).1 > times(&before).1, "as a write does");
        // And it is what the file system brings when nothing of it is in memory any more.
        lab.remount();
        assert!(fs::read(&path).expect("read") == bytes, "{kind:?} mounted anew");
    }
}

#[test]
fn what_cannot_be_written_in_place_says_why() {
    for kind in ALL {
        let Some(lab) = Lab::new(kind) else { continue };
        let path = lab.mount.join("file");
        full(&path);
        let refused = |range: std::ops::Range<u64>| begin(&guard(&path), range).expect_err("refused").reason;
        let end = LEN as u64;
        // Others have it open.
        let reader = File::open(&path).expect("open");
        assert_eq!(guard(&path).begin(0..4096).expect_err("refused").reason, Reason::Opened, "{kind:?}");
        drop(reader);
        let guarded = guard(&path);
        let ticket = begin(&guarded, 0..4096).expect("a ticket");
        assert_eq!(guarded.begin(8192..9000).expect_err("one at a time").reason, Reason::Opened);
        drop(ticket);
        drop(begin(&guarded, 8192..9000).expect("it was given up"));
        drop(guarded);
        // Not in the file.
        assert_eq!((refused(end - 1..end + 1), refused(5..5)), (Reason::Range, Reason::Range));
        // A write would take rights away.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).expect("set");
        assert_eq!(refused(0..4096), Reason::Rights);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("set");
        // Space that was never written, and none.
        let writer = OpenOptions::new().write(true).open(&path).expect("open");
        rustix::fs::fallocate(&writer, rustix::fs::FallocateFlags::empty(), end, 65_536).expect("allocated");
        drop(writer);
        assert_eq!(refused(end - 4096..end + 4096), Reason::Unwritten);
        OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(end * 3)).expect("longer");
        assert_eq!(refused(end * 2..end * 2 + 4096), Reason::Unwritten, "a hole");
        drop(begin(&guard(&path), 0..end).expect("what was written is fine"));
        // Shared with a twin.
        if matches!(kind, Kind::Xfs) {
            let twin = lab.mount.join("twin");
            run(Command::new("cp").arg("--reflink=always").arg(&path).arg(&twin));
            assert_eq!(refused(0..4096), Reason::Shared);
        }
    }
}

/// A program that wants the file waits until nothing is written any more, and no longer.
#[test]
fn the_lease_is_kept_until_the_writes_have_ended() {
    for kind in [Kind::Ext4, Kind::Xfs] {
        let Some(lab) = Lab::new(kind) else { continue };
        let path = lab.mount.join("file");
        full(&path);
        let guard = guard(&path);
        let ticket = begin(&guard, 0..LEN as u64).expect("a ticket");
        let (told, hears) = channel();
        ticket.when_wanted(move || told.send(()).expect("someone listens"));
        let other = path.clone();
        let (opened, is_open) = channel();
        std::thread::spawn(move || {
            let file = File::open(&other).expect("open");
            opened.send(Instant::now()).expect("someone listens");
            file
        });
        hears.recv_timeout(Duration::from_secs(20)).expect("we are told");
        assert!(is_open.try_recv().is_err(), "it waits");
        through_device(&lab, &ticket, 0, &[7; LEN]);
        let ended = Instant::now();
        ticket.finish().expect("the file was ours until now");
        let opened = is_open.recv_timeout(Duration::from_secs(20)).expect("and now it is open");
        assert!(opened >= ended, "{kind:?}: not before");
        assert!(fs::read(&path).expect("read").iter().all(|byte| *byte == 7));
        // A caller that asks late hears at once.
        drop(is_open);
    }
}

/// The kernel waits for nobody for ever: what took longer is not vouched for.
#[test]
fn what_took_longer_than_the_kernels_patience_is_not_vouched_for() {
    let Some(lab) = Lab::new(Kind::Ext4) else { return };
    let path = lab.mount.join("file");
    full(&path);
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("open");
    let place = admit(&file).expect("admitted").place;
    // A kernel without any patience, as far as the guard knows.
    let guard = watched_writer(file, WriteGuardConfig { place, extents_max: 100, patience: Duration::ZERO });
    let guard = guard.expect("a guard");
    let ticket = begin(&guard, 0..4096).expect("a ticket");
    assert_eq!(ticket.time_left(), Duration::ZERO);
    let (told, hears) = channel();
    ticket.when_wanted(move || told.send(()).expect("someone listens"));
    std::thread::scope(|scope| {
        scope.spawn(|| File::open(&path).expect("open"));
        hears.recv_timeout(Duration::from_secs(20)).expect("we are told");
        assert_eq!(ticket.finish().expect_err("it may be someone else's by now").reason, Reason::LeaseBroken);
    });
}

/// A page that we ourselves have mapped does not go.
#[test]
fn a_cache_that_does_not_empty_is_a_reason() {
    let Some(lab) = Lab::new(Kind::Ext4) else { return };
    let path = lab.mount.join("file");
    full(&path);
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("open");
    let place = admit(&file).expect("admitted").place;
    // A pipe that holds a page of the file keeps it in the cache, and needs no descriptor.
    let (reading, writing) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
    let mut at = 0;
    let spliced = rustix::pipe::splice(&file, Some(&mut at), &writing, None, 4096, rustix::pipe::SpliceFlags::empty());
    assert_eq!(spliced.expect("spliced"), 4096);
    let config = WriteGuardConfig { place, extents_max: 100, patience: break_time() };
    let guard = watched_writer(file, config).expect("a guard");
    assert_eq!(begin(&guard, 0..4096).expect_err("a page stays").reason, Reason::Cached);
    drop((reading, writing));
    // Children of other tests have the pipe for a moment.
    let patience = Instant::now() + Duration::from_secs(20);
    loop {
        match begin(&guard, 0..4096) {
            Err(refusal) if refusal.reason == Reason::Cached && Instant::now() < patience => {}
            result => break drop(result.expect("it has gone")),
        }
    }
}
