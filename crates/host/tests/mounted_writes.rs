//! Writes of a target into files of a mounted volume, while others do to these files, and to all others, whatever they
//! can. No other file's block is ever touched, and readers get what was written.
//!
//! The oracle is the whole image: it is full. Every block of every file says whose it is and where it belongs, files
//! that nobody may change fill the rest, and the file system's own blocks are what its checker says they are.

mod common;
#[path = "../../layout/tests/lab/mod.rs"]
mod lab;

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{Wire, as_runs};
use diskside_host::Volume;
use diskside_host::function::{Compute, FunctionKind, FunctionRequest};
use diskside_host::mounted::{
    Counters, MountedError, MountedFile, MountedOptions, MountedWriter, Pool, PoolLimits, RETURNED_LEN_MAX, Reason,
    WriteWay,
};
use diskside_io::buffer::Buffer;
use diskside_target::Running;
use lab::{Kind, Lab, run};
use rustix::fs::{FallocateFlags, fallocate};

const BLOCK: usize = 4096;
/// Length of a file that is written: more than what comes back as bytes.
const LEN: usize = (1 << 20) + (64 << 10);
/// `DISKSIDE_STRESS_SECONDS` makes it longer.
const SECONDS: u64 = 4;

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

/// What a function did not write before it failed stays as it was; what it wrote is seen.
#[test]
fn a_function_that_fails_half_way_leaves_what_it_wrote() {
    let Some(world) = World::new(Kind::Ext4) else { return };
    let path = world.lab.mount.join("file");
    file_of(&path, &vec![1; 4 << 20]);
    let counters = Arc::default();
    let writer = world.open(&path, &counters).expect("admitted");
    let mut input = as_runs(&vec![2; 3 << 20]);
    // An odd byte at the end is no pair.
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

// -- the stress test --------------------------------------------------------------------------------------------------

/// The bytes of a block: whose it is, where it belongs, which version of the file it is.
fn block(owner: u32, at: usize, version: u32) -> Vec<u8> {
    let words = [0x0d15_c51d_u32, owner, at as u32, version].map(u32::to_le_bytes);
    words.concat().repeat(BLOCK / 16)
}

fn blocks(owner: u32, len: usize, version: u32) -> Vec<u8> {
    let all: Vec<Vec<u8>> = (0..len / BLOCK).map(|at| block(owner, at, version)).collect();
    all.concat()
}

struct Stress {
    world: World,
    kind: Kind,
    stop: AtomicBool,
    counters: Arc<Counters>,
    /// Whose each block is that the target was told to write, and that the file has.
    next_owner: AtomicU64,
    disturbances: AtomicU64,
    verified: AtomicU64,
    /// Files that were written in the pool and took a victim's place.
    published: AtomicU64,
    /// How often each program did what it is there for.
    moved: AtomicU64,
    deduplicated: AtomicU64,
}

/// A file of the stress test. Who writes or replaces it has it, so that its bytes are known when nobody does; who only
/// opens, moves or shares it does that at any time.
struct Victim {
    path: PathBuf,
    state: Mutex<(u32, u32)>,
}

impl Stress {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    fn fresh(&self, path: &Path) -> (u32, u32) {
        let owner = self.next_owner.fetch_add(1, Ordering::SeqCst) as u32;
        let beside = path.with_extension("new");
        file_of(&beside, &blocks(owner, LEN, 0));
        fs::rename(&beside, path).expect("renamed");
        (owner, 0)
    }

    /// Lets the target write the file again and again, and compares what readers get.
    fn write_often(&self, victim: &Victim, others: &[Victim], seed: u64) {
        let mut random = seed;
        let mut below = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % bound
        };
        while !self.stopped() {
            let mut state = victim.state.lock().expect("nobody panics with it");
            let (owner, version) = *state;
            let next = version + 1;
            let output = blocks(owner, LEN, next);
            let written = self.world.open(&victim.path, &self.counters).map_err(MountedError::Plain);
            let written = written.and_then(|writer| self.world.write(&writer, 0, &output));
            match written {
                Ok(way) => {
                    assert_eq!(way, WriteWay::Volume);
                    assert!(fs::read(&victim.path).expect("read") == output, "readers get what was written");
                    state.1 = next;
                    self.verified.fetch_add(1, Ordering::SeqCst);
                }
                Err(MountedError::Plain(refusal)) => {
                    let bytes = fs::read(&victim.path).expect("read");
                    assert!(bytes == blocks(owner, LEN, version), "{refusal}: nothing may be written");
                }
                // Some of it is written, and only where it belongs; the plain way writes all of it.
                Err(MountedError::Undone(_)) => {
                    let bytes = fs::read(&victim.path).expect("read");
                    let (old, new) = (blocks(owner, LEN, version), &output);
                    let fits = bytes.chunks(BLOCK).enumerate().all(|(at, bytes)| {
                        let range = at * BLOCK..(at + 1) * BLOCK;
                        bytes == &old[range.clone()] || bytes == &new[range]
                    });
                    assert!(fits, "each block is one of its own");
                    file_of(&victim.path, &output);
                    state.1 = next;
                }
                Err(error) => panic!("{error}"),
            }
            // Others change it for good: other blocks, and what it had are given to others at once.
            match below(8) {
                0 => *state = self.fresh(&victim.path),
                3 | 4 => {
                    if let Some(owner) = self.publish(&victim.path) {
                        *state = (owner, 0);
                    }
                }
                1 => {
                    let file = OpenOptions::new().write(true).open(&victim.path).expect("open");
                    file.set_len(0).expect("cut");
                    file.write_all_at(&blocks(owner, LEN, state.1), 0).expect("written");
                }
                2 => {
                    let file = OpenOptions::new().write(true).open(&victim.path).expect("open");
                    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    fallocate(&file, flags, 0, (LEN / 2) as u64).expect("punched");
                    file.write_all_at(&blocks(owner, LEN / 2, state.1), 0).expect("written");
                    file.sync_data().expect("durable");
                }
                _ => {}
            }
            drop(state);
            // Nobody else's bytes changed.
            let other = &others[below(others.len() as u64) as usize];
            if let Ok(state) = other.state.try_lock() {
                assert!(fs::read(&other.path).expect("read") == blocks(state.0, LEN, state.1), "another file");
            }
        }
    }

    /// Another file takes the place of one, and was written by the volume before: in the pool, which keeps the old one. Says
    /// whose it is.
    fn publish(&self, path: &Path) -> Option<u32> {
        let limits = PoolLimits { len_max_bytes: 4 << 20, ..PoolLimits::default() };
        let pool = Pool::open(&self.world.lab.mount, limits).expect("a pool");
        let pooled = match pool.take(LEN as u64).expect("looked") {
            Some(pooled) => pooled,
            // No space, or none that the pool may have.
            None => pool.prepare(LEN as u64).ok().flatten()?,
        };
        let owner = self.next_owner.fetch_add(1, Ordering::SeqCst) as u32;
        let output = blocks(owner, LEN, 0);
        let written = self.world.open(pooled.path(), &self.counters).map_err(MountedError::Plain);
        let written = written.and_then(|writer| self.world.write(&writer, 0, &output));
        match written {
            Ok(way) => {
                assert_eq!(way, WriteWay::Volume);
                pooled.publish(LEN as u64, path).expect("published");
                assert!(fs::read(path).expect("read") == output, "what was published is whole");
                self.published.fetch_add(1, Ordering::SeqCst);
                Some(owner)
            }
            // A child of another test has it open.
            Err(MountedError::Plain(refusal) | MountedError::Undone(refusal)) => {
                let may_be = matches!(refusal.reason, Reason::Opened | Reason::LeaseBroken | Reason::Cached);
                assert!(may_be, "a file of the pool: {refusal}");
                pooled.give_back().expect("given back");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// What others do without asking anybody: they open files, move their blocks, share them, take freed blocks.
    fn disturb(&self, victims: &[Victim], seed: u64) {
        let mut random = seed;
        let mut below = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % bound
        };
        let mount = &self.world.lab.mount;
        while !self.stopped() {
            let path = &victims[below(victims.len() as u64) as usize].path;
            let twin = mount.join(format!("twin{seed}"));
            // Kept open until the next disturbance: who comes meanwhile is refused, and not only who is at it already.
            let mut open = None;
            match below(8) {
                0 => open = OpenOptions::new().write(true).open(path).ok(),
                1 => open = File::open(path).ok(),
                2 => drop(fs::read(path)),
                3 => {
                    let xfs = matches!(self.kind, Kind::Xfs);
                    let ended = Command::new(if xfs { "xfs_fsr" } else { "e4defrag" }).arg(path).output();
                    // Where there is no space, or the file goes meanwhile, it says so.
                    let ended = ended.expect("the program is there");
                    self.moved.fetch_add(u64::from(ended.status.success()), Ordering::SeqCst);
                }
                4 if matches!(self.kind, Kind::Xfs) => {
                    let _ = Command::new("cp").arg("--reflink=always").arg(path).arg(&twin).output();
                    let _ = fs::remove_file(&twin);
                    if fs::read(path).and_then(|bytes| fs::write(&twin, bytes)).is_ok() {
                        let dedupe = format!("dedupe {} 0 0 {LEN}", twin.display());
                        let ended = Command::new("xfs_io").args(["-r", "-c", &dedupe]).arg(path).output();
                        let ended = ended.expect("the program is there");
                        let did = String::from_utf8_lossy(&ended.stdout).contains("deduped");
                        self.deduplicated.fetch_add(u64::from(did), Ordering::SeqCst);
                    }
                    let _ = fs::remove_file(&twin);
                }
                5 => run(Command::new("sync").arg("-f").arg(mount)),
                _ => {
                    // Blocks that someone gave up, at once with other bytes. Where there is no space, less is enough.
                    let file = File::create(mount.join(format!("churn{}", below(4)))).expect("made");
                    let _ = file.write_all_at(&[0xee; 1 << 20], 0);
                    let _ = file.sync_data();
                }
            }
            self.disturbances.fetch_add(1, Ordering::SeqCst);
            // Time for a write to come to its end.
            std::thread::sleep(Duration::from_millis(below(200)));
            drop(open);
        }
    }
}

/// Files that nobody may change, all over what space there is but for some MiB. Says how many.
fn fill_up(mount: &Path) -> usize {
    const BALLAST_LEN: usize = 8 << 20;
    const FREE_BYTES: u64 = 12 << 20;
    for count in 0.. {
        let told = rustix::fs::statvfs(mount).expect("told");
        if told.f_bavail * told.f_frsize < FREE_BYTES + BALLAST_LEN as u64 {
            return count;
        }
        let bytes = blocks(u32::MAX - count as u32, BALLAST_LEN, 0);
        fs::write(mount.join(format!("ballast{count}")), bytes).expect("written");
    }
    unreachable!("space ends")
}

fn stress(kind: Kind) {
    let Some(world) = World::new(kind) else { return };
    let stress = Stress {
        kind,
        world,
        stop: AtomicBool::new(false),
        counters: Arc::default(),
        next_owner: AtomicU64::new(1),
        disturbances: AtomicU64::new(0),
        verified: AtomicU64::new(0),
        published: AtomicU64::new(0),
        moved: AtomicU64::new(0),
        deduplicated: AtomicU64::new(0),
    };
    let mount = stress.world.lab.mount.clone();
    let victims: Vec<Victim> = (0..3)
        .map(|at| mount.join(format!("victim{at}")))
        .map(|path| Victim { state: Mutex::new(stress.fresh(&path)), path })
        .collect();
    let ballast = fill_up(&mount);
    let seconds = std::env::var("DISKSIDE_STRESS_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SECONDS);
    // As long as it takes for some writes to succeed, on a machine that is busy.
    let (least, most) = (Instant::now() + Duration::from_secs(seconds), Instant::now() + Duration::from_secs(120));
    std::thread::scope(|scope| {
        // Ends the others also when one of them panics.
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let (stress, victims) = (&stress, &victims[..]);
        for (at, victim) in victims.iter().enumerate() {
            scope.spawn(move || {
                let _stop = Stop(&stress.stop);
                stress.write_often(victim, victims, at as u64 + 1);
            });
        }
        scope.spawn(move || {
            let _stop = Stop(&stress.stop);
            stress.disturb(victims, 77);
        });
        let xfs = matches!(stress.kind, Kind::Xfs);
        let enough = || {
            stress.verified.load(Ordering::SeqCst) >= 12
                && stress.counters.plain().len() >= 2
                && stress.published.load(Ordering::SeqCst) >= 2
                && stress.moved.load(Ordering::SeqCst) >= 1
                && (!xfs || stress.deduplicated.load(Ordering::SeqCst) >= 1)
        };
        while !stress.stopped() && (Instant::now() < least || !enough() && Instant::now() < most) {
            std::thread::sleep(Duration::from_millis(20));
        }
        stress.stop.store(true, Ordering::SeqCst);
    });
    let verified = stress.verified.load(Ordering::SeqCst);
    let disturbances = stress.disturbances.load(Ordering::SeqCst);
    let [published, moved, deduplicated] =
        [&stress.published, &stress.moved, &stress.deduplicated].map(|count| count.load(Ordering::SeqCst));
    println!(
        "{kind:?}: {verified} written and read, {published} published, {disturbances} disturbances, of which {moved} \
         defragmentations and {deduplicated} deduplications; {}",
        stress.counters
    );
    assert!(published >= 2 && moved >= 1 && (deduplicated >= 1 || !matches!(kind, Kind::Xfs)));
    assert!(verified >= 12, "{verified}: a guard that always refuses would pass");
    assert!(stress.counters.plain().len() >= 2, "a guard that never refuses would pass: {}", stress.counters);
    // The whole image, as it comes from the device.
    stress.world.lab.remount();
    for victim in &victims {
        let (owner, version) = *victim.state.lock().expect("nobody panics with it");
        assert!(fs::read(&victim.path).expect("read") == blocks(owner, LEN, version), "{}", victim.path.display());
    }
    for count in 0..ballast {
        let bytes = fs::read(mount.join(format!("ballast{count}"))).expect("read");
        assert!(bytes == blocks(u32::MAX - count as u32, bytes.len(), 0), "ballast {count} was written");
    }
    check(kind, stress.world);
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

#[test]
fn no_other_files_block_is_ever_touched_on_ext4() {
    stress(Kind::Ext4);
}

#[test]
fn no_other_files_block_is_ever_touched_on_xfs() {
    stress(Kind::Xfs);
}
