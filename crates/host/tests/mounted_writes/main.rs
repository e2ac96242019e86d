//! Writes of a target into files of a mounted volume: what is written, and that nothing is any more once a file is given up.

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../layout/tests/lab/mod.rs"]
mod lab;
mod stress;

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Wire, as_runs};
use diskside_host::Volume;
use diskside_host::function::{Compute, FunctionKind, FunctionRequest};
use diskside_host::mounted::{
    Counters, MountedError, MountedFile, MountedOptions, MountedWriter, RETURNED_LEN_MAX, Reason, WriteWay,
};
use diskside_io::buffer::Buffer;
use diskside_server::Running;
use lab::{Kind, Lab, run};
use stress::fill_up;

const BLOCK: usize = 4096;
/// Length of a file that is written: more than what comes back as bytes.
const LEN: usize = (1 << 20) + (64 << 10);

struct World {
    lab: Lab,
    target: Running,
    volume: Volume,
    compute: Compute,
    bitmap: u16,
}

impl World {
    fn new(kind: Kind) -> Option<Self> {
        let lab = Lab::new(kind)?;
        let target = common::serve_image(&lab.image);
        let volume = common::connect(&target);
        let compute = Compute::new(volume.connection()).expect("it computes");
        let programs = compute.programs().expect("listed");
        let bitmap = programs.iter().find(|program| program.name == "bitmap").expect("shipped").index;
        Some(Self { lab, target, volume, compute, bitmap })
    }

    fn open(&self, path: &Path, counters: &Arc<Counters>) -> Result<MountedWriter, diskside_host::mounted::Refusal> {
        let options = MountedOptions { counters: Arc::clone(counters), ..MountedOptions::default() };
        MountedWriter::open(path, &self.volume, &self.compute, &options)
    }

    fn request(&self) -> FunctionRequest {
        FunctionRequest::new(FunctionKind::Write, self.bitmap)
    }

    /// Writes `bytes` at the target; says which way they went.
    fn write(&self, writer: &MountedWriter, offset: u64, bytes: &[u8]) -> Result<WriteWay, MountedError> {
        let input = vec![Buffer::copy_of(&as_runs(bytes))];
        let written = writer.pwrite_fn(&self.request(), input, offset, bytes.len() as u64, false)?;
        assert_eq!(written.len_bytes, bytes.len() as u64);
        Ok(written.way)
    }
}

fn file_of(path: &Path, bytes: &[u8]) {
    let mut file = File::create(path).expect("made");
    file.write_all(bytes).expect("written");
    file.sync_all().expect("durable");
}

/// Asks once more while a child of another test, between `fork` and `exec`, has our descriptors.
fn alone<T>(mut attempt: impl FnMut() -> Result<T, MountedError>) -> Result<T, MountedError> {
    let patience = Instant::now() + Duration::from_secs(20);
    loop {
        match attempt() {
            Err(MountedError::Plain(refusal)) if refusal.reason == Reason::Opened && Instant::now() < patience => {}
            result => return result,
        }
    }
}

#[test]
fn output_is_written_where_the_file_is() {
    for kind in [Kind::Ext4, Kind::Xfs] {
        let Some(world) = World::new(kind) else { continue };
        let path = world.lab.mount.join("file");
        let mut bytes = common::pattern(LEN + 777, 1);
        file_of(&path, &bytes);
        let before = fs::metadata(&path).expect("told");
        let counters = Arc::default();
        for (offset, len) in [(0, LEN + 777), (4096, LEN - 4096), (1, RETURNED_LEN_MAX as usize + 1)] {
            // In the page cache, and newer than what the volume has.
            let file = OpenOptions::new().write(true).open(&path).expect("open");
            file.write_all_at(&[3; 100], 500_000).expect("written");
            drop(file);
            bytes[500_000..500_100].fill(3);
            let output = common::pattern(len, offset as u32 + 7);
            let writer = world.open(&path, &counters).expect("admitted");
            let way = alone(|| world.write(&writer, offset as u64, &output)).expect("written");
            assert_eq!(way, WriteWay::Volume, "{kind:?}");
            bytes[offset..offset + len].copy_from_slice(&output);
            drop(writer);
            assert!(fs::read(&path).expect("read") == bytes, "{kind:?}: {len} bytes at {offset}");
        }
        let after = fs::metadata(&path).expect("told");
        assert!((after.mtime(), after.mtime_nsec()) > (before.mtime(), before.mtime_nsec()), "it was written");
        assert_eq!((after.len(), after.blocks()), (before.len(), before.blocks()));
        assert_eq!(counters.at_volume(), 3);

        // Little comes back, also where the volume may not write; much of it then does not go at all.
        let writer = world.open(&path, &counters).expect("admitted");
        let reader = File::open(&path).expect("open");
        assert_eq!(world.write(&writer, bytes.len() as u64, b"more").expect("written"), WriteWay::Returned);
        bytes.extend_from_slice(b"more");
        assert!(fs::read(&path).expect("read") == bytes);
        let refused = |offset: u64| match world.write(&writer, offset, &bytes[..LEN]) {
            Err(MountedError::Plain(refusal)) => refusal.reason,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(0), Reason::Opened);
        drop(reader);
        let now = loop {
            match refused(8192) {
                Reason::Opened => {}
                reason => break reason,
            }
        };
        assert_eq!(now, Reason::Range);
        assert!(fs::read(&path).expect("read") == bytes, "nothing was written");
        drop(writer);
        check(kind, world);
    }
}

/// Bytes that a function did not write before it failed stay as they were; those that it wrote are seen.
#[test]
fn a_function_that_fails_half_way_leaves_what_it_wrote() {
    let Some(world) = World::new(Kind::Ext4) else { return };
    let path = world.lab.mount.join("file");
    file_of(&path, &vec![1; 4 << 20]);
    let counters = Arc::default();
    let writer = world.open(&path, &counters).expect("admitted");
    let mut input = as_runs(&vec![2; 3 << 20]);
    // An odd byte at the end is not a pair.
    input.push(9);
    let request = FunctionRequest { chunk_len: 65_536, ..world.request() };
    let failed = alone(|| writer.pwrite_fn(&request, vec![Buffer::copy_of(&input)], 0, 4 << 20, false));
    assert!(matches!(failed, Err(MountedError::Function(_))), "{failed:?}");
    drop(writer);
    let bytes = fs::read(&path).expect("read");
    let written = bytes.iter().take_while(|byte| **byte == 2).count();
    assert!(written >= 1 << 20, "{written}");
    assert!(bytes[written..].iter().all(|byte| *byte == 1));
}

/// Someone opens the file while the target writes: he waits for the fence, not for the function, and finds a file that
/// nobody writes any more.
#[test]
fn who_wants_the_file_gets_it_behind_a_fence() {
    for kind in [Kind::Ext4, Kind::Xfs] {
        let Some(world) = World::new(kind) else { continue };
        let path = world.lab.mount.join("file");
        file_of(&path, &vec![1; 16 << 20]);
        let counters = Arc::default();
        let mut cancelled = 0;
        for round in 0..10u64 {
            let writer = world.open(&path, &counters).expect("admitted");
            let (path, done) = (&path, &AtomicBool::new(false));
            let ended = std::thread::scope(|scope| {
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(3 * round));
                    let began = Instant::now();
                    let file = OpenOptions::new().read(true).write(true).open(path).expect("open");
                    assert!(began.elapsed() < Duration::from_secs(30), "who opens it does not wait for the kernel");
                    // From here on it is ours: what we write stays.
                    file.write_all_at(&[0x99; BLOCK], 0).expect("written");
                    while !done.load(Ordering::SeqCst) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    let mut first = [0; BLOCK];
                    file.read_exact_at(&mut first, 0).expect("read");
                    assert!(first == [0x99; BLOCK], "written behind the fence");
                });
                // Some 50 MiB of input: long enough to be interrupted.
                let input = vec![Buffer::copy_of(&[60, 2].repeat((16 << 20) / 60))];
                let request = FunctionRequest { chunk_len: 65_536, ..world.request() };
                let ended = writer.pwrite_fn(&request, input, 0, 16 << 20, false);
                drop(writer);
                done.store(true, Ordering::SeqCst);
                ended
            });
            match ended {
                Ok(_) => {}
                Err(MountedError::Undone(refusal)) if refusal.reason == Reason::LeaseBroken => cancelled += 1,
                Err(MountedError::Plain(refusal)) if refusal.reason == Reason::Opened => {}
                Err(MountedError::Plain(refusal)) if refusal.reason == Reason::LeaseBroken => {}
                Err(error) => panic!("{error}"),
            }
        }
        println!("{kind:?}: {cancelled} of 10 were cancelled; {counters}");
    }
}

/// The harm itself: someone cuts the file while the target writes it, and another file takes all space that there is, so also
/// what the first gave up. That file gets not one byte of the output.
#[test]
fn blocks_that_a_file_gives_up_are_not_written_any_more() {
    const LEN: usize = 16 << 20;
    for kind in [Kind::Ext4, Kind::Xfs] {
        let Some(world) = World::new(kind) else { continue };
        let (path, thief) = (world.lab.mount.join("file"), world.lab.mount.join("thief"));
        file_of(&path, &vec![1; LEN]);
        fill_up(&world.lab.mount);
        let counters = Arc::default();
        let (mut rounds, mut interrupted) = (0u64, 0);
        while interrupted < 2 && rounds < 30 {
            let writer = world.open(&path, &counters).expect("admitted");
            let ended = std::thread::scope(|scope| {
                let stealing = scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(2 * rounds));
                    File::create(&path).expect("cut to nothing");
                    steal(&thief);
                });
                let input = vec![Buffer::copy_of(&[60, 2].repeat(LEN / 60))];
                let request = FunctionRequest { chunk_len: 65_536, ..world.request() };
                let ended = writer.pwrite_fn(&request, input, 0, LEN as u64, false);
                drop(writer);
                stealing.join().expect("it stole");
                ended
            });
            match ended {
                Err(MountedError::Undone(_)) => interrupted += 1,
                Ok(_) | Err(MountedError::Plain(_)) => {}
                Err(error) => panic!("{error}"),
            }
            assert!(of_device(&thief).iter().all(|byte| *byte == 0xee), "{kind:?}: another file was written");
            rounds += 1;
            fs::remove_file(&thief).expect("removed");
            file_of(&path, &vec![1; LEN]);
        }
        println!("{kind:?}: {interrupted} of {rounds} were interrupted; {counters}");
        assert!(interrupted > 0, "{kind:?}: {counters}");
    }
}

/// Takes all space, and has it on the device.
fn steal(path: &Path) {
    rustix::fs::syncfs(File::open(path.parent().expect("a directory")).expect("open")).expect("durable");
    let file = File::create(path).expect("made");
    for at in 0.. {
        if file.write_all_at(&[0xee; 1 << 20], at << 20).is_err() {
            break;
        }
    }
    // What did not fit as a whole may end anywhere.
    let len = file.metadata().expect("told").len();
    file.set_len(len / BLOCK as u64 * BLOCK as u64).expect("cut");
    file.sync_all().expect("durable");
}

/// A file's bytes as the device has them.
fn of_device(path: &Path) -> Vec<u8> {
    let file = File::open(path).expect("open");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("dropped");
    fs::read(path).expect("read")
}

/// The connection goes while the target writes. The lease is kept until the target has said, by a new connection, that
/// nothing is written any more.
#[test]
fn a_lost_connection_is_fenced_before_the_file_is_given_up() {
    let Some(world) = World::new(Kind::Ext4) else { return };
    let path = world.lab.mount.join("file");
    file_of(&path, &vec![1; 8 << 20]);
    let wire = Wire::to(common::address(&world.target));
    let volume = Volume::connect(&common::url_at(wire.address), &common::options()).expect("connected");
    let compute = Compute::new(volume.connection()).expect("it computes");
    let counters = Arc::default();
    let options = MountedOptions { counters: Arc::clone(&counters), ..MountedOptions::default() };
    let writer = MountedWriter::open(&path, &volume, &compute, &options).expect("admitted");
    let input = as_runs(&vec![2; 4 << 20]);
    wire.cut_after(2 << 20);
    let lost = alone(|| writer.pwrite_fn(&world.request(), vec![Buffer::copy_of(&input)], 0, 8 << 20, false));
    assert!(matches!(&lost, Err(MountedError::Undone(refusal)) if refusal.reason == Reason::Failed), "{lost:?}");
    drop(writer);
    // It is ours again, and stays as we write it.
    file_of(&path, &vec![3; 8 << 20]);
    assert!(fs::read(&path).expect("read").iter().all(|byte| *byte == 3));
    let image = MountedFile::open(&path, &world.volume, &MountedOptions::default()).expect("admitted");
    let mut bytes = vec![0; 8 << 20];
    image.read_at(&mut bytes, 0).expect("read");
    assert!(bytes.iter().all(|byte| *byte == 3), "nothing was written behind the fence");
}

/// The file system's own blocks are sound.
fn check(kind: Kind, world: World) {
    world.lab.unmount();
    if matches!(kind, Kind::Xfs) {
        run(Command::new("xfs_repair").arg("-n").arg(world.lab.device()));
    } else {
        run(Command::new("e2fsck").args(["-f", "-n"]).arg(world.lab.device()));
    }
}
