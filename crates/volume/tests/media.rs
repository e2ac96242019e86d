//! The media, driven by a ring as a reactor would: what is written is read, what is flushed survives.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use diskside_io::Errno;
use diskside_io::buffer::{Buffer, Part};
use diskside_io::bytefile::{ByteFile as _, Direction};
use diskside_io::ownring;
use diskside_io::readahead::ReadAt as _;
use diskside_io::ring::{Op, Payload, Ring, RingConfig};
use diskside_sys::lock::{Lock, try_lock};
use diskside_volume::blocking::{VolumeReader, flush, write_at, write_blocks};
use diskside_volume::media::{
    FaultPlan, FaultyMedium, FileMedium, LossyMedium, MemoryMedium, OpenOptions, SlowedMedium,
};
use diskside_volume::medium::{Access, Action, Medium};
use diskside_volume::{Volume, VolumeFile};
use rustix::fs::{FlockOperation, flock};

const MIB: u64 = 1 << 20;

fn options(size: Option<u64>) -> OpenOptions {
    OpenOptions { read_only: false, buffered: false, size, block_bytes: 512 }
}

/// Carries accesses out, one at a time.
struct Driver {
    ring: Ring,
}

impl Driver {
    fn new() -> Self {
        Self { ring: Ring::new(&RingConfig { spin: Duration::ZERO, ..RingConfig::default() }).unwrap() }
    }

    fn ring(&mut self, op: Op) -> (Result<u32, Errno>, Option<Buffer>) {
        self.ring.push(0, op);
        loop {
            self.ring.wait(None).unwrap();
            if let Some(done) = self.ring.next_completion() {
                return match done.payload {
                    Payload::Buffer(buffer) => (done.result, Some(buffer)),
                    _ => (done.result, None),
                };
            }
        }
    }

    fn read(&mut self, medium: &dyn Medium, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let (offset, left) = (offset + bytes.len() as u64, len - bytes.len());
            match medium.start(&Access::Read { offset, len: left }).action {
                Action::Failed(errno) => return Err(errno),
                Action::Bytes(slice) => {
                    let mut part = vec![0; slice.len()];
                    slice.copy_to(&mut part);
                    bytes.extend(part);
                }
                Action::File { file, len } => {
                    let (buffer, range) = (Buffer::zeroed(left), 0..len);
                    let (read, buffer) = self.ring(Op::Read { file, offset, buffer, range });
                    bytes.extend_from_slice(&buffer.unwrap()[..read? as usize]);
                }
                other => panic!("{other:?} is no answer to a read"),
            }
        }
        Ok(bytes)
    }

    fn write(&mut self, medium: &dyn Medium, offset: u64, data: &[u8], durable: bool) -> Result<(), Errno> {
        let mut done = 0;
        while done < data.len() {
            let (offset, data) = (offset + done as u64, &data[done..]);
            match medium.start(&Access::Write { offset, data, durable }).action {
                Action::Failed(errno) => return Err(errno),
                Action::Done(written) => done += written as usize,
                Action::File { file, len } => {
                    let (buffer, range) = (Buffer::copy_of(data), 0..len);
                    done += self.ring(Op::Write { file, offset, buffer, range, durable }).0? as usize;
                }
                other => panic!("{other:?} is no answer to a write"),
            }
        }
        Ok(())
    }

    fn zero(&mut self, medium: &dyn Medium, offset: u64, len: u64, deallocate: bool) -> Result<(), Errno> {
        let mut done = 0;
        while done < len {
            let access = Access::Zero { offset: offset + done, len: len - done, deallocate };
            match medium.start(&access).action {
                Action::Failed(errno) => return Err(errno),
                Action::Done(zeroed) => done += zeroed,
                Action::WriteZeroes => {
                    self.write(medium, offset + done, &vec![0; (len - done) as usize], false)?;
                    done = len;
                }
                Action::Ring(op) => match self.ring(op).0 {
                    Ok(_) => done = len,
                    Err(Errno::OPNOTSUPP) => medium.refused(&access),
                    Err(errno) => return Err(errno),
                },
                other => panic!("{other:?} is no answer to a zero"),
            }
        }
        Ok(())
    }

    fn flush(&mut self, medium: &dyn Medium) -> Result<(), Errno> {
        match medium.start(&Access::Flush).action {
            Action::Done(_) => Ok(()),
            Action::Failed(errno) => Err(errno),
            Action::Ring(op) => self.ring(op).0.map(drop),
            other => panic!("{other:?} is no answer to a flush"),
        }
    }
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31) ^ seed).collect()
}

/// What every medium must do.
fn check_medium(medium: &dyn Medium) {
    let mut driver = Driver::new();
    assert_eq!(medium.properties().len_bytes, MIB);
    assert_eq!(driver.read(medium, 0, MIB as usize).unwrap(), vec![0; MIB as usize]);
    let data = pattern(96 << 10, 7);
    driver.write(medium, 4096, &data, false).unwrap();
    driver.write(medium, MIB - 512, &data[..512], true).unwrap();
    assert_eq!(driver.read(medium, 4096, data.len()).unwrap(), data);
    driver.flush(medium).unwrap();
    driver.zero(medium, 8192, 4096, true).unwrap();
    driver.zero(medium, 16384 + 512, 512, false).unwrap();
    let mut expected = data.clone();
    expected[4096..8192].fill(0);
    expected[12288 + 512..12288 + 1024].fill(0);
    assert_eq!(driver.read(medium, 4096, data.len()).unwrap(), expected);
    assert_eq!(driver.read(medium, MIB - 512, 512).unwrap(), data[..512]);
}

/// A volume that is slow because it was told to be was reported as a disk that hangs.
#[test]
fn the_time_that_a_slowed_medium_takes_is_not_its_disks() {
    let dir = tempfile::tempdir().unwrap();
    let file = FileMedium::open(&dir.path().join("data.img"), &options(Some(MIB))).unwrap();
    let media: [Arc<dyn Medium>; 2] = [Arc::new(MemoryMedium::new(MIB, false).unwrap()), Arc::new(file)];
    for medium in media {
        let slowed = SlowedMedium::new(medium, Duration::ZERO, Some(MIB));
        let volume = Arc::new(Volume::new("slow", 1, [1; 16], 512, Arc::new(slowed)));
        let reader = VolumeReader { volume: Arc::clone(&volume) };
        let reading = std::thread::spawn(move || {
            ownring::run(reader.read(0, Part::whole(Buffer::zeroed(512 << 10)))).unwrap();
        });
        let mut longest_ms = 0;
        while !reading.is_finished() {
            longest_ms = longest_ms.max(volume.health.stats().oldest_ms);
            std::thread::sleep(Duration::from_millis(1));
        }
        reading.join().unwrap();
        assert!(longest_ms < 300, "{longest_ms} ms of the half second that it takes");
    }
}

#[test]
fn memory_reads_what_was_written() {
    check_medium(&MemoryMedium::new(MIB, false).unwrap());
}

#[test]
fn a_file_reads_what_was_written_and_keeps_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data.img");
    check_medium(&FileMedium::open(&path, &options(Some(MIB))).unwrap());
    let medium = FileMedium::open(&path, &options(None)).unwrap();
    assert_eq!(Driver::new().read(&medium, 4096, 4096).unwrap(), pattern(4096, 7));
}

#[test]
fn a_buffered_file_does_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let options = OpenOptions { buffered: true, ..options(Some(MIB)) };
    let medium = FileMedium::open(&dir.path().join("data.img"), &options).unwrap();
    assert!(!medium.properties().direct);
    check_medium(&medium);
}

/// A caller that must not wait reads the bytes in the page cache, as a whole or not at all.
#[test]
fn what_is_in_the_page_cache_is_read_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data.img");
    let data = pattern(MIB as usize, 3);
    std::fs::write(&path, &data).unwrap();
    let mut into = vec![0; 1000];
    let buffered = FileMedium::open(&path, &OpenOptions { buffered: true, ..options(None) }).unwrap();
    assert!(buffered.read_now(12_345, &mut into));
    assert_eq!(into, data[12_345..13_345]);
    assert!(!buffered.read_now(MIB - 999, &mut into), "beyond the end");
    drop(buffered);
    let direct = FileMedium::open(&path, &options(None)).unwrap();
    assert!(!direct.properties().direct || !direct.read_now(0, &mut into), "what is direct has no cache");
}

#[test]
fn a_medium_that_cannot_deallocate_or_zero_still_reads_zeroes() {
    let dir = tempfile::tempdir().unwrap();
    let medium = FileMedium::open(&dir.path().join("data.img"), &options(Some(MIB))).unwrap();
    let mut driver = Driver::new();
    driver.write(&medium, 0, &pattern(8192, 1), false).unwrap();
    let access = Access::Zero { offset: 0, len: 4096, deallocate: true };
    medium.refused(&access);
    assert!(matches!(medium.start(&access).action, Action::Ring(_)), "zeroes the range instead of punching it");
    medium.refused(&access);
    assert!(matches!(medium.start(&access).action, Action::WriteZeroes));
    driver.zero(&medium, 0, 4096, true).unwrap();
    let bytes = driver.read(&medium, 0, 8192).unwrap();
    assert_eq!((&bytes[..4096], &bytes[4096..]), (&vec![0; 4096][..], &pattern(8192, 1)[4096..]));
}

#[test]
fn deallocating_gives_space_back() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data.img");
    let medium = FileMedium::open(&path, &options(Some(MIB))).unwrap();
    let mut driver = Driver::new();
    driver.write(&medium, 0, &vec![7; MIB as usize], true).unwrap();
    let full = path.metadata().unwrap().blocks();
    driver.zero(&medium, 0, MIB, true).unwrap();
    driver.flush(&medium).unwrap();
    assert!(path.metadata().unwrap().blocks() < full / 2);
}

#[test]
fn a_new_file_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data.img");
    drop(FileMedium::open(&path, &options(Some(MIB))).unwrap());
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn what_cannot_be_opened_says_which_and_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data.img");
    let fails = |path: &Path, options: &OpenOptions| FileMedium::open(path, options).unwrap_err().to_string();
    let error = fails(&path, &options(None));
    assert!(error.contains("data.img") && error.contains("size=1GiB"), "{error}");
    std::fs::write(&path, vec![0; 1000]).unwrap();
    let error = fails(&path, &options(None));
    assert!(error.contains("not a multiple of the 512-byte block"), "{error}");
    std::fs::write(&path, vec![0; 8192]).unwrap();
    let error = fails(&path, &options(Some(4096)));
    assert!(error.contains("never shrunk"), "{error}");
    let error = fails(dir.path(), &OpenOptions { read_only: true, ..options(None) });
    assert!(error.contains("neither a regular file nor a block device"), "{error}");
    let first = FileMedium::open(&path, &options(None)).unwrap();
    let error = fails(&path, &options(None));
    assert!(error.contains("served by another process"), "{error}");
    drop(first);
    FileMedium::open(&path, &options(Some(1 << 16))).unwrap();
    assert_eq!(path.metadata().unwrap().len(), 1 << 16, "grown");
    std::fs::write(&path, b"").unwrap();
    let error = fails(&path, &options(None));
    assert!(error.contains("is empty; give it a size"), "{error}");
}

/// A program that writes an image below a running target makes the target's copy of it stale. Locks keep programs away
/// that ask.
#[test]
fn an_image_in_use_is_locked_for_programs_that_respect_locks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data.img");
    let tool = || std::fs::File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
    let may = |lock| {
        let (tool, other) = (tool(), tool());
        let flock_kind = if lock == Lock::Shared {
            FlockOperation::NonBlockingLockShared
        } else {
            FlockOperation::NonBlockingLockExclusive
        };
        (try_lock(&tool, lock).unwrap(), flock(&other, flock_kind).is_ok())
    };
    let medium = FileMedium::open(&path, &options(Some(MIB))).unwrap();
    assert_eq!(may(Lock::Shared), (false, false));
    drop(medium);
    // Read-only volumes go together, with each other and with programs that only read.
    let read_only = OpenOptions { read_only: true, ..options(None) };
    let two = [FileMedium::open(&path, &read_only).unwrap(), FileMedium::open(&path, &read_only).unwrap()];
    assert_eq!((may(Lock::Shared), may(Lock::Exclusive)), ((true, true), (false, false)));
    drop(two);
    // The other way around.
    let tool = tool();
    assert!(try_lock(&tool, Lock::Shared).unwrap());
    let error = FileMedium::open(&path, &options(None)).unwrap_err().to_string();
    assert!(error.contains("data.img is served by another process") && error.contains("QEMU"), "{error}");
    drop(tool);
    FileMedium::open(&path, &options(None)).unwrap();
}

#[test]
fn memory_beyond_the_machines_is_refused() {
    let error = MemoryMedium::new(1 << 60, false).unwrap_err().to_string();
    assert!(error.contains("on a machine with"), "{error}");
}

#[test]
fn a_read_only_medium_refuses_every_write() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data.img");
    std::fs::write(&path, vec![5; 8192]).unwrap();
    let read_only = OpenOptions { read_only: true, ..options(None) };
    let media: [Arc<dyn Medium>; 3] = [
        Arc::new(FileMedium::open(&path, &read_only).unwrap()),
        Arc::new(LossyMedium::open(&path, &read_only).unwrap()),
        Arc::new(MemoryMedium::new(8192, true).unwrap()),
    ];
    let mut driver = Driver::new();
    for medium in &media {
        assert_eq!(driver.write(&**medium, 0, &[1; 512], false), Err(Errno::ROFS));
        assert_eq!(driver.zero(&**medium, 0, 512, true), Err(Errno::ROFS));
        assert_eq!(driver.flush(&**medium), Ok(()));
        assert!(driver.read(&**medium, 0, 512).is_ok());
    }
}

#[test]
fn a_crash_loses_exactly_what_was_not_flushed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data.img");
    let medium = LossyMedium::open(&path, &options(Some(MIB))).unwrap();
    check_medium(&medium);
    let mut driver = Driver::new();
    driver.write(&medium, 0, &[1; 4096], false).unwrap();
    driver.flush(&medium).unwrap();
    driver.write(&medium, 0, &[2; 2048], false).unwrap();
    driver.write(&medium, 65536, &[3; 512], true).unwrap();
    driver.zero(&medium, 2048, 512, true).unwrap();
    assert_eq!(medium.unflushed_blocks(), 5);
    assert_eq!(driver.read(&medium, 0, 2048).unwrap(), [2; 2048]);
    medium.crash();
    assert_eq!(driver.read(&medium, 0, 512), Err(Errno::IO));
    assert_eq!(driver.flush(&medium), Err(Errno::IO));
    drop(medium);
    let medium = LossyMedium::open(&path, &options(None)).unwrap();
    assert_eq!(driver.read(&medium, 0, 4096).unwrap(), [1; 4096], "flushed, then overwritten and zeroed in vain");
    assert_eq!(driver.read(&medium, 65536, 512).unwrap(), [3; 512], "force unit access");
}

#[test]
fn faults_come_as_often_as_planned_and_the_same_each_time() {
    let run = |seed| {
        let plan =
            FaultPlan { seed, eio_ppm: 100_000, enospc_ppm: 100_000, short_ppm: 500_000, ..FaultPlan::default() };
        let medium = FaultyMedium::new(Arc::new(MemoryMedium::new(MIB, false).unwrap()), 512, plan);
        let mut driver = Driver::new();
        let mut outcomes = Vec::new();
        for turn in 0..300_u32 {
            let data = pattern(8192, turn as u8);
            let written = driver.write(&medium, 0, &data, false);
            if written.is_ok() {
                match driver.read(&medium, 0, 8192) {
                    Ok(bytes) => assert_eq!(bytes, data, "short transfers add up"),
                    Err(errno) => assert_eq!(errno, Errno::IO),
                }
            }
            outcomes.push(written);
        }
        assert!(medium.accesses() > 600, "some were short");
        outcomes
    };
    let outcomes = run(1);
    assert_eq!(outcomes, run(1));
    assert_ne!(outcomes, run(2));
    for outcome in [Ok(()), Err(Errno::IO), Err(Errno::NOSPC)] {
        assert!(outcomes.iter().filter(|seen| **seen == outcome).count() > 20, "{outcome:?}");
    }
}

#[test]
fn late_accesses_say_how_late() {
    let plan = FaultPlan { delay_ppm: 1_000_000, delay_max: Duration::from_millis(10), ..FaultPlan::default() };
    let medium = FaultyMedium::new(Arc::new(MemoryMedium::new(MIB, false).unwrap()), 512, plan);
    let delays: Vec<Duration> = (0..100).map(|_| medium.start(&Access::Read { offset: 0, len: 512 }).delay).collect();
    assert!(delays.iter().all(|delay| *delay < Duration::from_millis(10)));
    assert!(delays.iter().any(|delay| *delay > Duration::from_millis(5)));
}

/// Root opened the volume that a link led to, and served it, also if the server's own user had made the link, in its own
/// directory: that user could have any file and any device of the machine, through the server.
#[test]
fn root_follows_no_link_of_somebody_else() {
    let directory = tempfile::tempdir().unwrap();
    let (image, link) = (directory.path().join("image"), directory.path().join("link"));
    std::fs::write(&image, [0; 8192]).unwrap();
    std::os::unix::fs::symlink("image", &link).unwrap();
    let options = OpenOptions { read_only: true, buffered: true, size: None, block_bytes: 4096 };
    FileMedium::open(&link, &options).unwrap();
    // Only root can give the link to somebody, and only root must not follow it then.
    if std::os::unix::fs::lchown(&link, Some(65534), None).is_ok() {
        let error = FileMedium::open(&link, &options).unwrap_err().to_string();
        assert!(error.contains("is a link of user 65534, who could have it lead to any file"), "{error}");
        FileMedium::open(&image, &options).unwrap();
    }
}

/// The link was looked at first, and the path opened afterwards: the user of the directory could exchange a file of its own for
/// a link in between. A link of root's that led to one of the user's was followed at any time.
#[test]
fn root_follows_no_link_that_somebody_exchanges_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("precious"), [1; 8192]).unwrap();
    std::fs::write(at("image"), [0; 8192]).unwrap();
    std::os::unix::fs::symlink("precious", at("link")).unwrap();
    std::os::unix::fs::symlink(at("link"), at("of-root")).unwrap();
    std::os::unix::fs::symlink("image", at("good")).unwrap();
    std::os::unix::fs::symlink(at("good"), at("chain")).unwrap();
    std::os::unix::fs::symlink("round", at("round")).unwrap();
    let options = OpenOptions { read_only: true, buffered: true, size: None, block_bytes: 4096 };
    let first_byte = |medium: &FileMedium| {
        let mut byte = [0];
        rustix::io::pread(medium.file(), &mut byte, 0).unwrap();
        byte[0]
    };
    assert_eq!(first_byte(&FileMedium::open(&at("chain"), &options).unwrap()), 0, "a chain of links");
    assert!(FileMedium::open(&at("round"), &options).is_err());
    // A link to a file that is not there yet is followed, too, and the file made.
    std::os::unix::fs::symlink("new", at("to-new")).unwrap();
    let made = OpenOptions { read_only: false, size: Some(8192), ..options.clone() };
    drop(FileMedium::open(&at("to-new"), &made).unwrap());
    assert_eq!(at("new").metadata().unwrap().len(), 8192);
    // Only root can give the link to somebody, and only root must not follow it then.
    if std::os::unix::fs::lchown(at("link"), Some(65534), None).is_err() {
        return;
    }
    let error = FileMedium::open(&at("of-root"), &options).unwrap_err().to_string();
    assert!(error.contains("is a link of user 65534"), "{error}");
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                renameat_with(CWD, at("image"), CWD, at("link"), RenameFlags::EXCHANGE).unwrap();
            }
        });
        let opened = |_| FileMedium::open(&at("image"), &options).map(|medium| first_byte(&medium));
        let seen: Vec<_> = (0..5000).map(opened).collect();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(seen.iter().flatten().all(|byte| *byte == 0), "the file that the link led to was opened");
    });
}

/// Somebody cut the image below a volume that was served: all that hosts and the log said of it was EIO.
#[test]
fn an_image_that_was_shortened_is_told_with_its_lengths() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("image");
    let medium = Arc::new(FileMedium::open(&path, &options(Some(MIB))).unwrap());
    let volume = Arc::new(Volume::new("data", 1, [1; 16], 512, medium));
    let reader = VolumeReader { volume: Arc::clone(&volume) };
    let mut bytes = [0; 512];
    reader.read_exact_at(65_536, &mut bytes).unwrap();
    assert_eq!(volume.why(Errno::IO), None);
    std::fs::File::options().write(true).open(&path).unwrap().set_len(8192).unwrap();
    let error = reader.read_exact_at(65_536, &mut bytes).unwrap_err().to_string();
    assert!(error.contains("os error 5") && error.contains("shortened: it has 8192 bytes of 1048576"), "{error}");
    assert!(!error.contains(dir.path().to_str().unwrap()), "paths of the server are not for hosts: {error}");
    let why = volume.why(Errno::IO).unwrap();
    assert!(
        why.starts_with(&format!("{} has 8192 bytes", path.display())) && why.contains("truncate -s 1048576"),
        "{why}"
    );
    assert_eq!((volume.health.stats().errors, volume.health.stats().waiting), (1, 0));
    // The next write behind its end made it long again, and zeroes were read where data had been, of which nobody heard.
    assert!(volume.has_failed(), "no more writes");
    let blocks = Part::whole(Buffer::zeroed(512));
    assert_eq!(write_blocks(&volume, MIB - 512, blocks).map(drop), Err(Errno::IO));
    assert_eq!(path.metadata().unwrap().len(), 8192);
}

/// A read of bytes in memory froze its reactor, and with it other volumes: the file system noted the time, and waited for a disk that hung.
#[test]
fn reads_of_an_image_are_not_noted() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for buffered in [false, true] {
        let options = OpenOptions { buffered, ..options(Some(MIB)) };
        let medium = FileMedium::open(&dir.path().join("image"), &options).unwrap();
        let Action::File { file, .. } = medium.start(&Access::Read { offset: 0, len: 512 }).action else {
            panic!("a file is read by its descriptor")
        };
        assert!(rustix::fs::fcntl_getfl(&file).unwrap().contains(rustix::fs::OFlags::NOATIME), "buffered: {buffered}");
    }
}

/// Failures that functions met were in no log and in no count of disks.
#[test]
fn what_a_disk_fails_for_functions_is_counted_once_each() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = FileMedium::open(&dir.path().join("image"), &options(Some(MIB))).unwrap();
    let plan = FaultPlan { eio_ppm: 1_000_000, flush_eio_ppm: 1_000_000, ..FaultPlan::default() };
    let volume = Volume::new("data", 1, [1; 16], 512, Arc::new(FaultyMedium::new(Arc::new(file), 512, plan)));
    let (volume, mut errors) = (Arc::new(volume), 0);
    let mut fails = |failed: bool| {
        errors += 1;
        assert!(failed);
        assert_eq!((volume.health.stats().errors, volume.health.stats().waiting), (errors, 0));
    };
    // The block around the bytes is read before it is written.
    fails(write_at(&volume, 100, b"bytes") == Err(Errno::IO));
    fails(write_blocks(&volume, 0, Part::whole(Buffer::zeroed(512))).is_err());
    let reader = VolumeReader { volume: Arc::clone(&volume) };
    fails(reader.read_exact_at(0, &mut [0; 512]).is_err());
    let kernel = VolumeFile::new(Arc::clone(&volume), Box::new(|_| Ok(None)));
    kernel.ended(Direction::Read, 512, Err(Errno::IO), Duration::ZERO);
    fails(true);
    kernel.ended(Direction::Write, MIB, Err(Errno::NOSPC), Duration::ZERO);
    assert_eq!(volume.health.stats().errors, 4, "there is no disk behind the end");
    fails(flush(&volume) == Err(Errno::IO));
}
