//! Writes of a target into files of a mounted volume, while others do to these files, and to all others, whatever they
//! can. No other file's block is ever touched, and readers get what was written.
//!
//! The oracle is the whole image: it is full. Every block of every file says whose it is and where it belongs, files
//! that nobody may change fill the rest, and the file system's own blocks are what its checker says they are.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diskside_host::mounted::{Counters, MountedError, Pool, PoolLimits, Reason, WriteWay};
use rustix::fs::{FallocateFlags, fallocate};

use super::lab::{Kind, run};
use super::{BLOCK, LEN, World, check, file_of};

/// `DISKSIDE_STRESS_SECONDS` makes it longer.
const SECONDS: u64 = 4;

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
    /// The owner of each block that the target must write, and that the file has.
    next_owner: AtomicU64,
    disturbances: AtomicU64,
    verified: AtomicU64,
    /// Files that were written in the pool and took a victim's place.
    published: AtomicU64,
    /// How often each program did what it is there for.
    moved: AtomicU64,
    deduplicated: AtomicU64,
}

/// A file of the stress test. A thread that writes or replaces it has it, so that its bytes are known when nobody does;
/// one that only opens, moves or shares it does that at any time.
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

    /// The work of others that ask nobody: they open files, move their blocks, share them, take freed blocks.
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

/// Files that nobody may change, all over the free space except some MiB. Says how many.
pub(super) fn fill_up(mount: &Path) -> usize {
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

#[test]
fn no_other_files_block_is_ever_touched_on_ext4() {
    stress(Kind::Ext4);
}

#[test]
fn no_other_files_block_is_ever_touched_on_xfs() {
    stress(Kind::Xfs);
}
