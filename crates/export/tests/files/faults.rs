//! Disks that fail below an export, and files that others cut, empty or remove while they are used: each access fails or succeeds by
//! itself, with the file's name, and output is never called durable that is not.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::Command;

use diskside_export::{ExportSpec, Exports, FileSink, SinkMode};
use diskside_io::readahead::ReadAt as _;
use diskside_wire::file::{FileFlags, FileRequest};
use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};
use rustix::io::Errno;

use super::credentials::{Mounted, mount_tmpfs};
use super::host::Host;

const RW: FileFlags = FileFlags::READ_WRITE;
const MIB: usize = 1 << 20;

/// An export on a file system in an image, of whose end the image may have nothing.
struct Disk {
    host: Host,
    image: PathBuf,
    // In this order.
    _mounted: Mounted,
    _below: Option<Mounted>,
    _dir: tempfile::TempDir,
}

impl Disk {
    /// `room`: the image is on a file system of so many bytes, which are fewer than its own.
    fn new(room: Option<&str>) -> Option<Self> {
        let (dir, point) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let below = match room {
            Some(room) => Some(mount_tmpfs(dir.path(), room)?),
            None => None,
        };
        let image = dir.path().join("image");
        File::create(&image).unwrap().set_len(64 * MIB as u64).unwrap();
        // Without a journal the first error is the one of the file.
        let made = Command::new("mkfs.ext4").args(["-q", "-F", "-O", "^has_journal", "-N", "128"]).arg(&image).output();
        let mounted =
            made.and_then(|_| Command::new("mount").args(["-o", "loop"]).arg(&image).arg(point.path()).output());
        if !mounted.as_ref().is_ok_and(|output| output.status.success()) {
            eprintln!("SKIPPED: this test needs to mount an image: {mounted:?}");
            return None;
        }
        let mounted = Mounted(point.path().to_owned());
        let session = Exports::open(&[ExportSpec::new("data", point.path()).writable()]).unwrap().session();
        Some(Self { host: Host { dir: point, session }, image, _mounted: mounted, _below: below, _dir: dir })
    }

    /// Makes a file that is on the disk, and nowhere else.
    fn put(&self, name: &str, bytes: &[u8]) {
        self.host.file(name, bytes);
        let file = File::open(self.host.path().join(name)).unwrap();
        file.sync_all().unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    }

    /// The disk has nothing any more behind so many bytes.
    fn cut(&self, len: usize) {
        OpenOptions::new().write(true).open(&self.image).unwrap().set_len(len as u64).unwrap();
    }
}

/// A disk that fails, or has no more room, says so when it is asked to keep what it took.
#[track_caller]
fn is_of_disk(errno: Errno, message: &str) {
    assert!([Errno::IO, Errno::NOSPC, Errno::ROFS].contains(&errno), "{errno:?}: {message}");
    assert!(message.contains("data/"), "{message}");
}

#[test]
fn a_disk_that_fails_reads_fails_what_reads_there_and_no_more() {
    let Some(disk) = Disk::new(None) else { return };
    let host = &disk.host;
    disk.put("ballast", &vec![1; 8 * MIB]);
    disk.put("x", &vec![7; 4 * MIB]);
    let file = host.open("data/x", RW);
    let source = host.session.source(file).unwrap();
    // Most blocks of the file system's own are in memory.
    disk.cut(MIB);
    let (errno, message) = host.read(file).unwrap_err();
    assert_eq!((errno, message.as_str()), (5, "read data/x at byte 0: Input/output error (os error 5)"));
    let mut bytes = vec![0; MIB];
    for _ in 0..2 {
        let error = source.read_exact_at(0, &mut bytes).unwrap_err().to_string();
        assert!(error.contains("Input/output error (os error 5)"), "{error}");
    }
    // Nobody changed the file, and what is in memory is still there.
    assert_eq!(source.unchanged(), Ok(()));
    assert_eq!(host.stat("data/x").size.get(), 4 * MIB as u64);
    assert_eq!(host.list("data", 4096), ["ballast", "lost+found", "x"]);
}

/// The kernel takes bytes into memory that the disk has no room for, and says so when they are to be durable: once, and all is well when
/// it is asked again.
#[test]
fn a_disk_that_loses_what_it_took_is_told_of_at_each_sync_and_output_there_is_not_called_durable() {
    let Some(disk) = Disk::new(Some("6m")) else { return };
    let host = &disk.host;
    disk.put("old", b"what was there");
    let file = host.create("data/plain", RW).unwrap().handle();
    let part = vec![3; MIB];
    let written = (0..12).find_map(|at| host.write(file, at * MIB as u64, &part).returned.err());
    if let Some(error) = written {
        is_of_disk(error.errno, &error.message);
    }
    for _ in 0..3 {
        let (errno, message) = host.try_ask(FileRequest::Sync { file, flags: FileFlags::NONE }).unwrap_err();
        is_of_disk(Errno::from_raw_os_error(errno), &message);
    }
    let ends = |sink: &mut FileSink| {
        let refused = (0..12).find_map(|_| sink.append(&part).err());
        refused.unwrap_or_else(|| sink.finish().unwrap_err())
    };
    for mode in [SinkMode::Replace, SinkMode::Append, SinkMode::InPlace { offset: 0 }] {
        let mut sink = host.session.sink(host.open("data/old", RW), mode).unwrap();
        let error = ends(&mut sink);
        is_of_disk(error.errno, &error.message);
        assert_eq!(sink.abort(), 0, "{mode:?}: none of it is durable");
        drop(sink);
        if mode != (SinkMode::InPlace { offset: 0 }) {
            assert_eq!(host.content("old"), b"what was there", "{mode:?}");
        }
    }
    assert_eq!(host.list("data", 4096), ["lost+found", "old", "plain"], "nothing is beside them");
}

#[test]
fn a_file_that_others_cut_empty_or_remove_is_read_as_it_is_now() {
    let host = Host::new();
    let bytes: Vec<u8> = (0..100_000).map(|at| (at % 251) as u8).collect();
    host.file("x", &bytes);
    let file = host.open("data/x", RW);
    let read = |offset, len| host.ask(FileRequest::Read { file, offset, len });
    let version = || host.stat("data/x").version;
    let whole = version();
    let others = OpenOptions::new().write(true).open(host.path().join("x")).unwrap();

    // Cut: what is left, and nothing behind it.
    others.set_len(50_000).unwrap();
    let part = read(40_000, 20_000);
    assert_eq!((part.returned.unwrap(), part.result), (10_000, bytes[40_000..50_000].to_vec()));
    assert_eq!(read(60_000, 10).returned.unwrap(), 0);
    let cut = version();
    assert_ne!(cut, whole, "who compares versions sees that it changed");

    // Given back in the middle: zeroes.
    fallocate(&others, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 4096, 8192).unwrap();
    let mut sparse = bytes[..50_000].to_vec();
    sparse[4096..12_288].fill(0);
    assert!(host.read(file).unwrap() == sparse);
    assert_ne!(version(), cut);

    // Removed: the handle has it, and the next one finds nothing.
    fs::remove_file(host.path().join("x")).unwrap();
    assert!(host.read(file).unwrap() == sparse);
    assert_eq!(host.write(file, 0, b"still").returned, Ok(5));
    assert_eq!(host.try_open("data/x", FileFlags::READ).unwrap_err().0, Errno::NOENT.raw_os_error());
}

#[test]
fn a_source_whose_blocks_are_given_back_has_changed() {
    let host = Host::new();
    host.file("x", vec![9; 64 << 10]);
    let source = host.session.source(host.open("data/x", FileFlags::READ)).unwrap();
    let others = OpenOptions::new().write(true).open(host.path().join("x")).unwrap();
    fallocate(&others, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 32 << 10).unwrap();
    let error = source.unchanged().unwrap_err();
    assert!(error.changed, "{error:?}");
    assert_eq!(error.message, "data/x changed while it was read; read it again");
}

#[test]
fn output_meets_files_that_others_cut_or_remove_meanwhile() {
    let host = Host::new();
    let begin = |mode| {
        host.file("x", "0123456789");
        let mut sink = host.session.sink(host.open("data/x", RW), mode).unwrap();
        sink.append(b"abc").unwrap();
        sink
    };
    let path = host.path().join("x");
    let cut = || OpenOptions::new().write(true).open(&path).unwrap().set_len(2).unwrap();

    // Appended to a file that is cut: there is no end any more that it could continue.
    let mut sink = begin(SinkMode::Append);
    cut();
    let error = sink.append(b"def").and_then(|()| sink.finish().map(drop)).unwrap_err();
    assert_eq!(error.message, "writing data/x: another writer changed the file's length meanwhile");
    drop(sink);
    assert_eq!(
        host.content("x"),
        b"01def",
        "nothing is cut off that may be another's, also the bytes that met the change"
    );

    // In place it goes where it was meant to, and the file has zeroes before it.
    let mut sink = begin(SinkMode::InPlace { offset: 6 });
    sink.settle().unwrap();
    cut();
    sink.append(b"def").unwrap();
    assert_eq!(sink.finish(), Ok(6));
    assert_eq!(host.content("x"), b"01\0\0\0\0\0\0\0def");

    // A file without a name takes what is written in place, as for every program that has it open.
    let mut sink = begin(SinkMode::InPlace { offset: 0 });
    let still_open = File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(sink.finish(), Ok(3));
    let mut bytes = [0; 10];
    still_open.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"abc3456789");

    // A replacement has no name to take.
    let mut sink = begin(SinkMode::Replace);
    fs::remove_file(&path).unwrap();
    let error = sink.finish().unwrap_err();
    assert!([Errno::STALE, Errno::NOENT].contains(&error.errno) && error.message.contains("data/x"), "{error:?}");
    assert_eq!(host.list("data", 4096), [""; 0], "and leaves nothing");
}
