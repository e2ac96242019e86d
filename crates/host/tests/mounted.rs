//! Reads of a mounted file at its volume, while others change the file and its blocks in every way that they can.
//!
//! Nobody wins by luck: every block says whose it is, where it belongs and in which state of its file it was written;
//! all states of each file are on record; and freed blocks are given to other files, with other bytes, at once. The
//! bytes from the volume are compared with the record, whether they were proved (then they must be one of the states
//! between question and answer) or thrown away (then the wrong bytes are counted: the guard kept them away).

mod common;
#[path = "../../layout/tests/lab/mod.rs"]
mod lab;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::{Duration, Instant};

use diskside_host::function::{Compute, FunctionKind, FunctionRequest};
use diskside_host::mounted::{
    Counters, MountedCalls, MountedError, MountedFile, MountedOptions, Proof, Reason, Way, read_pieces,
};
use lab::{Kind, Lab, run, until_nobody_writes};
use rustix::fs::{FallocateFlags, fallocate};

const BLOCK: usize = 4096;
/// The most blocks of a file.
const BLOCKS_MAX: usize = 24;
const FILES: usize = 3;
const READERS: usize = 2;
/// `DISKSIDE_STRESS_SECONDS` makes it longer.
const SECONDS: u64 = 4;

/// The content of a block in a state of its file: `None` is zeroes.
type Block = Option<u32>;

/// One file, from its making to its end: every state that it was in.
struct Object {
    id: u32,
    states: Mutex<Vec<Vec<Block>>>,
    /// States that have begun to be written, and that are written.
    begun: AtomicUsize,
    done: AtomicUsize,
    next_version: AtomicU64,
}

impl Object {
    fn new(id: u32) -> Arc<Self> {
        let states = Mutex::new(vec![Vec::new()]);
        Arc::new(Self {
            id,
            states,
            begun: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            next_version: AtomicU64::new(1),
        })
    }

    fn states(&self) -> MutexGuard<'_, Vec<Vec<Block>>> {
        self.states.lock().expect("nobody panics with it")
    }

    /// Changes the file by `change`, which gets the next state.
    fn change(&self, next: Vec<Block>, change: impl FnOnce(&[Block])) {
        self.states().push(next.clone());
        self.begun.fetch_add(1, Ordering::SeqCst);
        change(&next);
        self.done.fetch_add(1, Ordering::SeqCst);
    }

    fn now(&self) -> Vec<Block> {
        self.states().last().expect("the first").clone()
    }

    fn version(&self) -> Block {
        Some(self.next_version.fetch_add(1, Ordering::SeqCst) as u32)
    }

    fn bytes(&self, at: usize, block: Block) -> Vec<u8> {
        let Some(version) = block else { return vec![0; BLOCK] };
        let words = [0xd15c_51deu32, self.id, at as u32, version];
        words.iter().flat_map(|word| word.to_le_bytes()).cycle().take(BLOCK).collect()
    }

    /// Whether bytes from `offset` on are those of a state.
    fn has(&self, state: &[Block], offset: usize, bytes: &[u8], wanted: usize) -> bool {
        let len = (state.len() * BLOCK).saturating_sub(offset).min(wanted);
        if bytes.len() != len {
            return false;
        }
        let mut at = offset;
        bytes.is_empty()
            || state.iter().enumerate().skip(offset / BLOCK).all(|(index, block)| {
                let end = ((index + 1) * BLOCK).min(offset + len);
                let same = at >= end
                    || self.bytes(index, *block)[at % BLOCK..end - index * BLOCK] == bytes[at - offset..end - offset];
                at = at.max(end);
                same
            })
    }
}

struct Arena {
    lab: Lab,
    kind: Kind,
    /// The present object of each name; replaced together with the file.
    objects: Vec<RwLock<Arc<Object>>>,
    next_id: AtomicU64,
    stop: AtomicBool,
    counters: Arc<Counters>,
    /// Answers that were thrown away, and held what the file never did at that time.
    kept_away: AtomicU64,
    disturbances: AtomicU64,
    thrown_away: AtomicU64,
    proved: AtomicU64,
}

impl Arena {
    fn path(&self, index: usize) -> PathBuf {
        self.lab.mount.join(format!("file{index}"))
    }

    fn new_object(&self) -> Arc<Object> {
        Object::new(self.next_id.fetch_add(1, Ordering::SeqCst) as u32)
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

/// A small generator, so that a run is much like the next.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % bound
    }
}

fn write_all(file: &File, object: &Object, state: &[Block]) {
    for (at, block) in state.iter().enumerate().filter(|(_, block)| block.is_some()) {
        with_space(file, || file.write_all_at(&object.bytes(at, *block), (at * BLOCK) as u64));
    }
}

fn made(mount: &Path, path: &Path) -> File {
    with_space(&File::open(mount).expect("mounted"), || File::create(path))
}

/// Does what needs space in the file system of an open file. The little that is free is what others gave back, which XFS does in the
/// background: on a busy machine it was not there yet.
fn with_space<T>(file: &File, mut work: impl FnMut() -> std::io::Result<T>) -> T {
    for _ in 0..100 {
        match work() {
            Err(error) if error.kind() == std::io::ErrorKind::StorageFull => {
                rustix::fs::syncfs(file).expect("synced");
                std::thread::sleep(Duration::from_millis(20));
            }
            done => return done.expect("written"),
        }
    }
    panic!("no space is given back");
}

fn fresh(object: &Object, blocks: usize) -> Vec<Block> {
    vec![object.version(); blocks]
}

/// One thing that others do to a file.
fn disturb(arena: &Arena, index: usize, dice: &mut Dice) {
    let path = arena.path(index);
    let held = arena.objects[index].read().expect("nobody panics with it");
    let object = Arc::clone(&held);
    let open = || OpenOptions::new().read(true).write(true).open(&path).expect("open");
    let mut next = object.now();
    let whole = 2 + dice.below(BLOCKS_MAX - 2);
    let first = dice.below(next.len().max(1));
    match dice.below(11) {
        // Overwrite in place, some of it or all.
        0 | 1 => {
            let version = object.version();
            next.iter_mut().skip(first).for_each(|block| *block = version);
            object.change(next, |next| {
                let file = open();
                write_all(&file, &object, next);
                if first.is_multiple_of(2) {
                    file.sync_data().expect("durable");
                }
            });
        }
        // Cut to nothing and write again, into other blocks.
        2 => object.change(fresh(&object, whole), |next| {
            let file = OpenOptions::new().write(true).truncate(true).open(&path).expect("open");
            write_all(&file, &object, next);
        }),
        // A hole.
        3 if !next.is_empty() => {
            next[first] = None;
            object.change(next, |_| {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(open(), flags, (first * BLOCK) as u64, BLOCK as u64).expect("punched");
            });
        }
        // Shorter.
        4 => {
            next.truncate(first);
            object.change(next, |next| open().set_len((next.len() * BLOCK) as u64).expect("cut"));
        }
        // Longer, by space that was never written.
        5 => {
            let before = next.len();
            next.resize(whole.max(before), None);
            object.change(next, |next| {
                if next.len() > before {
                    let len = (next.len() - before) * BLOCK;
                    let file = open();
                    let offset = (before * BLOCK) as u64;
                    with_space(&file, || Ok(fallocate(&file, FallocateFlags::empty(), offset, len as u64)?));
                }
            });
        }
        // Past the page cache.
        6 => {
            let version = object.version();
            next.iter_mut().for_each(|block| *block = version);
            object.change(next, |next| {
                let file = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(&path).expect("open");
                for (at, block) in next.iter().enumerate() {
                    let bytes = Aligned::new(&object.bytes(at, *block));
                    with_space(&file, || file.write_all_at(bytes.bytes(), (at * BLOCK) as u64));
                }
            });
        }
        // Defragmentation: other blocks, the same bytes, the same times.
        7 => {
            let program = if matches!(arena.kind, Kind::Xfs) { "xfs_fsr" } else { "e4defrag" };
            let _ = Command::new(program).arg(&path).output();
        }
        // A twin that shares the blocks, and then deduplication onto another.
        8 if matches!(arena.kind, Kind::Xfs) => {
            let twin = arena.lab.mount.join(format!("twin{index}"));
            let _ = Command::new("cp").arg("--reflink=always").arg(&path).arg(&twin).output();
            let _ = fs::remove_file(&twin);
            fs::copy(&path, &twin).expect("copied");
            let dedupe = format!("dedupe {} 0 0 {}", twin.display(), next.len() * BLOCK);
            let _ = Command::new("xfs_io").args(["-r", "-c", &dedupe]).arg(&path).output();
        }
        // Another file takes its name; the old one goes when nobody has it open.
        9 => {
            drop(held);
            let mut place = arena.objects[index].write().expect("nobody panics with it");
            let object = arena.new_object();
            let beside = path.with_extension("new");
            object.change(fresh(&object, whole), |next| {
                write_all(&made(&arena.lab.mount, &beside), &object, next);
            });
            fs::rename(&beside, &path).expect("renamed");
            *place = object;
        }
        _ => run(Command::new("sync").arg("-f").arg(&arena.lab.mount)),
    }
}

/// Leaves so little space that blocks which a file gives up are used again at once.
fn fill_up(lab: &Lab) {
    let mount = rustix::fs::statvfs(&lab.mount).expect("told");
    let len = (mount.f_bavail * mount.f_frsize).saturating_sub(FREE_BYTES);
    let ballast = File::create(lab.mount.join("ballast")).expect("made");
    fallocate(ballast, FallocateFlags::empty(), 0, len).expect("allocated");
}

/// Takes blocks that were just freed, and fills them at once with bytes that belong to no other file.
fn churn(arena: &Arena) {
    let foreign = Aligned::new(&[0xee; FOREIGN_LEN]);
    for round in 0.. {
        if arena.stopped() {
            return;
        }
        let path = |round: usize| arena.lab.mount.join(format!("foreign{}", round % FOREIGN_FILES));
        let file =
            OpenOptions::new().write(true).create(true).custom_flags(libc::O_DIRECT).open(path(round)).expect("made");
        // Where space is used up for a moment, what fits is enough.
        let _ = file.write_at(foreign.bytes(), 0);
        let _ = fs::remove_file(path(round + 1));
        std::thread::sleep(Duration::from_micros(300));
    }
}

const FREE_BYTES: u64 = 10 << 20;
const FOREIGN_LEN: usize = 1 << 20;
const FOREIGN_FILES: usize = 6;

/// Bytes where `O_DIRECT` takes them.
struct Aligned(Vec<u8>, usize);

impl Aligned {
    fn new(bytes: &[u8]) -> Self {
        let mut memory = vec![0; bytes.len() + BLOCK];
        let skip = memory.as_ptr().align_offset(BLOCK);
        memory[skip..skip + bytes.len()].copy_from_slice(bytes);
        Self(memory, skip)
    }

    fn bytes(&self) -> &[u8] {
        &self.0[self.1..self.0.len() - (BLOCK - self.1)]
    }
}

fn read_often(arena: &Arena, volume: &diskside_host::Volume, proof: Proof, seed: u64) {
    let mut dice = Dice(seed);
    let options = MountedOptions { proof, counters: Arc::clone(&arena.counters), ..MountedOptions::default() };
    while !arena.stopped() {
        let index = dice.below(FILES);
        let (object, file) = {
            let object = arena.objects[index].read().expect("nobody panics with it");
            (Arc::clone(&object), MountedFile::open(&arena.path(index), volume, &options).expect("admitted"))
        };
        for _ in 0..8 {
            // Mostly inside of the file, at times past its end.
            let blocks = if dice.below(8) == 0 { BLOCKS_MAX } else { object.now().len().max(1) };
            let (offset, len) = (dice.below(blocks * BLOCK), 1 + dice.below(6 * BLOCK));
            let before = object.done.load(Ordering::SeqCst);
            let fits = |bytes: &[u8]| {
                let states = object.states();
                let until = object.begun.load(Ordering::SeqCst);
                (before..=until).any(|state| object.has(&states[state], offset, bytes, len))
            };
            // As `MountedFile::prove` does it, but looking at what is thrown away as well.
            let Ok(ticket) = file.guard().begin(offset as u64..(offset + len) as u64) else {
                std::thread::sleep(Duration::from_micros(200));
                continue;
            };
            if dice.below(2) == 0 {
                wait_for_harm(&object, before, &mut dice);
            }
            let bytes = read_pieces(volume, &ticket).expect("the volume answers");
            match file.guard().finish(ticket) {
                Ok(()) => {
                    assert!(
                        fits(&bytes),
                        "file {index}, {len} bytes at {offset}: {:x?}...",
                        &bytes[..bytes.len().min(16)]
                    );
                    arena.proved.fetch_add(1, Ordering::SeqCst);
                }
                Err(refusal) => {
                    assert!(matches!(refusal.reason, Reason::LeaseBroken | Reason::Remapped), "{refusal}");
                    arena.thrown_away.fetch_add(1, Ordering::SeqCst);
                    arena.kept_away.fetch_add(u64::from(!fits(&bytes)), Ordering::SeqCst);
                }
            }
            // And as others use it: with a second try and the plain way.
            let mut buffer = vec![0; len];
            let before = object.done.load(Ordering::SeqCst);
            let (read, way) = file.read_at(&mut buffer, offset as u64).expect("read");
            if way == Way::Volume {
                let states = object.states();
                let until = object.begun.load(Ordering::SeqCst);
                let fits = (before..=until).any(|state| object.has(&states[state], offset, &buffer[..read], len));
                assert!(fits, "file {index}, {len} bytes at {offset}");
            }
        }
    }
}

/// Between question and answer: until someone has changed the file, and for others to take blocks that it gave up.
fn wait_for_harm(object: &Object, before: usize, dice: &mut Dice) {
    let patience = Instant::now() + Duration::from_millis(40);
    while object.done.load(Ordering::SeqCst) == before && Instant::now() < patience {
        std::thread::sleep(Duration::from_micros(200));
    }
    std::thread::sleep(Duration::from_micros(dice.below(10_000) as u64));
}

fn stress(kind: Kind) {
    let Some(lab) = Lab::new(kind) else { return };
    let target = common::serve_image(&lab.image);
    let volume = common::connect(&target);
    let objects = (0..FILES).map(|id| RwLock::new(Object::new(id as u32))).collect();
    let arena = Arena {
        lab,
        kind,
        objects,
        next_id: AtomicU64::new(FILES as u64),
        stop: AtomicBool::new(false),
        counters: Arc::default(),
        kept_away: AtomicU64::new(0),
        disturbances: AtomicU64::new(0),
        thrown_away: AtomicU64::new(0),
        proved: AtomicU64::new(0),
    };
    for index in 0..FILES {
        let object = Arc::clone(&arena.objects[index].read().expect("nobody panics with it"));
        object.change(fresh(&object, BLOCKS_MAX), |next| {
            write_all(&File::create(arena.path(index)).expect("made"), &object, next);
        });
    }
    fill_up(&arena.lab);
    let seconds = std::env::var("DISKSIDE_STRESS_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SECONDS);
    // As long as it takes for the guard to have said yes and no, on a machine that is busy.
    let (least, most) = (Instant::now() + Duration::from_secs(seconds), Instant::now() + Duration::from_secs(120));
    let enough = |arena: &Arena| {
        let said_no = arena.thrown_away.load(Ordering::SeqCst) >= 5 && arena.counters.plain().iter().any(by_others);
        said_no && arena.proved.load(Ordering::SeqCst) >= 50
    };
    let goes_on = |arena: &Arena| Instant::now() < least || !enough(arena) && Instant::now() < most;
    let arena = &arena;
    std::thread::scope(|scope| {
        // Ends the others also when one of them panics.
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let stop = || Stop(&arena.stop);
        scope.spawn(move || {
            let _stop = stop();
            churn(arena);
        });
        for index in 0..FILES {
            scope.spawn(move || {
                let _stop = stop();
                let mut dice = Dice(0x9e37_79b9 + index as u64);
                while !arena.stopped() && goes_on(arena) {
                    disturb(arena, index, &mut dice);
                    arena.disturbances.fetch_add(1, Ordering::SeqCst);
                    // Time for others to take a lease and be proved right.
                    std::thread::sleep(Duration::from_micros(dice.below(6000) as u64));
                }
            });
        }
        for (reader, proof) in [Proof::Request, Proof::Epoch].into_iter().cycle().take(READERS).enumerate() {
            let volume = volume.clone();
            scope.spawn(move || {
                let _stop = stop();
                read_often(arena, &volume, proof, 77 + reader as u64);
            });
        }
    });
    let (proved, kept_away) = (arena.proved.load(Ordering::SeqCst), arena.kept_away.load(Ordering::SeqCst));
    let thrown_away = arena.thrown_away.load(Ordering::SeqCst);
    let disturbances = arena.disturbances.load(Ordering::SeqCst);
    println!(
        "{kind:?}: {disturbances} disturbances; {proved} proved, {thrown_away} thrown away, {kept_away} of them wrong; {}",
        arena.counters
    );
    assert!(proved >= 50, "{proved} proved: a guard that always refuses would pass");
    assert!(thrown_away >= 5, "{thrown_away} thrown away: a guard that never refuses would pass");
    assert!(arena.counters.plain().iter().any(by_others), "{}", arena.counters);
}

/// Whether a request went the plain way because of what others did.
fn by_others((reason, _): &(Reason, u64)) -> bool {
    matches!(reason, Reason::LeaseBroken | Reason::Writer)
}

#[test]
fn no_foreign_byte_reaches_a_reader_on_ext4() {
    stress(Kind::Ext4);
}

#[test]
fn no_foreign_byte_reaches_a_reader_on_xfs() {
    stress(Kind::Xfs);
}

/// The harm itself: the file gives its blocks up, another file gets them, and the volume brings that one's bytes.
#[test]
fn bytes_of_another_file_are_brought_and_thrown_away() {
    for kind in [Kind::Ext4, Kind::Xfs] {
        let Some(lab) = Lab::new(kind) else { continue };
        let target = common::serve_image(&lab.image);
        let volume = common::connect(&target);
        fill_up(&lab);
        let path = lab.mount.join("file");
        fs::write(&path, vec![0x11; 1 << 20]).expect("written");
        until_nobody_writes(&path);
        let file = MountedFile::open(&path, &volume, &MountedOptions::default()).expect("admitted");
        let ticket = file.guard().begin(0..1 << 20).expect("a ticket");
        assert!(read_pieces(&volume, &ticket).expect("read").iter().all(|byte| *byte == 0x11));

        File::create(&path).expect("cut to nothing");
        let sync = || rustix::fs::syncfs(File::open(&lab.mount).expect("open")).expect("durable");
        sync();
        // All space that is free, and so what the file gave up.
        let thief = File::create(lab.mount.join("thief")).expect("made");
        let foreign = vec![0xee; 1 << 20];
        for at in 0.. {
            if thief.write_all_at(&foreign, at << 20).is_err() {
                break;
            }
        }
        sync();
        let brought = read_pieces(&volume, &ticket).expect("read");
        assert!(brought.contains(&0xee), "{kind:?}: the blocks are another file's by now");
        assert_eq!(file.guard().finish(ticket).expect_err("thrown away").reason, Reason::LeaseBroken);
        let mut buffer = [7; 100];
        assert_eq!(file.read_at(&mut buffer, 0).expect("read").0, 0, "the file is empty");
    }
}

/// Two volumes with file systems made alike are not confused.
#[test]
fn another_volume_is_refused() {
    let (Some(lab), Some(twin)) = (Lab::new(Kind::Ext4), Lab::new(Kind::Ext4)) else { return };
    let (target, other) = (common::serve_image(&lab.image), common::serve_image(&twin.image));
    let path: &Path = &lab.mount.join("file");
    fs::write(path, b"bytes").expect("written");
    until_nobody_writes(path);
    let options = MountedOptions::default();
    let refusal = MountedFile::open(path, &common::connect(&other), &options).expect_err("another");
    assert_eq!(refusal.reason, Reason::OtherVolume);
    let file = MountedFile::open(path, &common::connect(&target), &options).expect("the one");
    let mut buffer = [0; 9];
    assert_eq!(file.read_at(&mut buffer, 1).expect("read"), (4, Way::Volume));
    assert_eq!(&buffer[..4], b"ytes");
    // With a writer there, the bytes come the plain way, and are right all the same.
    let _writer = OpenOptions::new().write(true).open(path).expect("open");
    assert_eq!(file.read_at(&mut buffer, 1).expect("read"), (4, Way::Plain(Reason::Writer)));
    assert_eq!(options.counters.to_string(), "1 at the volume, 0 asked twice, 1 plain: writer");
}

/// A function runs at the target over a file that only this host's file system knows, and again when the file changed.
#[test]
fn a_function_runs_over_a_mounted_file_at_its_target() {
    for kind in [Kind::Ext4, Kind::Xfs] {
        let Some(lab) = Lab::new(kind) else { continue };
        let target = common::serve_image(&lab.image);
        let volume = common::connect(&target);
        let compute = Compute::new(volume.connection()).expect("it computes");
        let programs = compute.programs().expect("listed");
        let stats = programs.iter().find(|program| program.name == "stats64").expect("shipped").index;
        let path = lab.mount.join("file");
        let numbers = |len: u64, step: u64| (0..len).flat_map(|n| (n * step).to_le_bytes()).collect::<Vec<u8>>();
        for proof in [Proof::Request, Proof::Epoch] {
            fs::write(&path, numbers(50_000, 3)).expect("written");
            until_nobody_writes(&path);
            let options = MountedOptions { proof, ..MountedOptions::default() };
            let file = Arc::new(MountedFile::open(&path, &volume, &options).expect("admitted"));
            let calls = MountedCalls::new(&file, &compute).expect("one subsystem");
            let request = FunctionRequest::new(FunctionKind::Read, stats);
            // count, sum, least, greatest: the first two words.
            let counted = |range: std::ops::Range<u64>| {
                let result = calls.pread_fn(&request, range).expect("it runs").result;
                let word = |at: usize| u64::from_le_bytes(result[at * 8..][..8].try_into().expect("8 bytes"));
                (word(0), word(1))
            };
            assert_eq!(counted(0..400_000), (50_000, 3 * (49_999 * 50_000 / 2)), "{kind:?} {proof:?}");
            assert_eq!(counted(8..24), (2, 3 + 6), "a range");
            assert_eq!(counted(399_992..1 << 40), (1, 3 * 49_999), "up to the end");
            fs::write(&path, numbers(1000, 5)).expect("written anew");
            until_nobody_writes(&path);
            assert_eq!(counted(0..400_000), (1000, 5 * (999 * 1000 / 2)), "{kind:?} {proof:?}");
            assert_eq!((options.counters.at_volume(), options.counters.plain()), (4, Vec::new()));

            let _writer = OpenOptions::new().write(true).open(&path).expect("open");
            let refused = calls.pread_fn(&request, 0..8).expect_err("not now");
            assert!(matches!(&refused, MountedError::Plain(refusal) if refusal.reason == Reason::Writer), "{refused}");
        }
    }
}
