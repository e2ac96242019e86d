//! The guard of writes against seeded interleavings on a model of the kernel and of the target: between any two of the
//! guard's system calls, and between any two blocks that the target writes, others open the file, write it, move, share,
//! punch and cut it, the target's connection breaks, it crashes, or everything takes too long.
//!
//! These hold: every block that the target writes is the file's at that moment, and nobody else has the file then; and
//! a reader of the file at the end gets what was written last, by anybody.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use diskside_layout::guard::Stamp;
use diskside_layout::{Disk, FileOps, Place, Reason, WriteGuard, WriteGuardConfig, WriteOps, WriteTicket};
use diskside_sys::cache::Residency;
use diskside_sys::extent::{Extent, ExtentFlags, Told};
use diskside_sys::lease::Lease;

const BLOCK: u64 = 4096;
/// Blocks of the file.
const BLOCKS: usize = 3;
/// Blocks of the device.
const DEVICE_BLOCKS: usize = 6 * BLOCKS;
/// How long the kernel waits for the holder of a lease, in steps. A request takes some thirty.
const PATIENCE: u64 = 80;
/// What another file has in its blocks.
const FOREIGN: u32 = 0xdead;
const REQUESTS: u32 = 3;
const SEEDS: u64 = 20_000;

/// The operations of others on the file. They need it open, so they wait for a lease.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Other {
    /// Reads it: its pages are in the page cache.
    Read,
    /// Opens it, and closes it a while later.
    Stay,
    Write(usize),
    /// Moves its blocks elsewhere; the old ones become another file's.
    Move,
    /// Cuts it and writes it again. Its blocks become another file's.
    Rewrite,
    /// Punches a hole and allocates it again: space that was never written.
    Punch(usize),
    /// Makes a twin that has the same blocks, or removes it.
    Share,
}

/// A mistake of those who have to keep apart. Without one of these the invariants do not hold, which shows that the
/// test looks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Flaw {
    #[default]
    None,
    /// The kernel says that a lease is in force whatever is the case.
    HiddenBreaks,
    /// The page cache says that it is empty.
    HiddenPages,
    /// A lost connection is taken for the end of the call.
    NoFence,
    /// The file is given up as soon as someone wants it.
    NoPatience,
}

struct World {
    dice: u64,
    time: u64,
    flaw: Flaw,
    /// Which block of the device each block of the file is.
    places: Vec<usize>,
    /// The content of the file's blocks, for a reader.
    truth: Vec<u32>,
    /// Pages, and whether they are dirty.
    cache: Vec<Option<(u32, bool)>>,
    unwritten: Vec<bool>,
    is_shared: bool,
    device: Vec<u32>,
    /// Whether a block of the device is this file's.
    is_ours: Vec<bool>,
    /// Descriptors of others.
    open: usize,
    lease: Option<Lease>,
    wanted_at: Option<u64>,
    waiting: Vec<Other>,
    answer_due: bool,
    values: u32,
    target: Target,
    wrong: Vec<String>,
}

/// The call at the target.
#[derive(Default)]
struct Target {
    /// The writes to come: block of the device, of the file, and the content.
    writes: VecDeque<(usize, usize, u32)>,
    is_running: bool,
    until: u64,
    /// When a Cancel arrives.
    cancel_at: Option<u64>,
    /// The host does not hear of it any more.
    is_lost: bool,
    /// When it hears that the connection is gone.
    hears_at: Option<u64>,
    landed: usize,
}

impl World {
    fn new(seed: u64, flaw: Flaw) -> Self {
        let dice = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut device = vec![FOREIGN; DEVICE_BLOCKS];
        device[..BLOCKS].copy_from_slice(&[100, 101, 102]);
        Self {
            dice,
            time: 0,
            flaw,
            places: (0..BLOCKS).collect(),
            truth: vec![100, 101, 102],
            cache: vec![None; BLOCKS],
            unwritten: vec![false; BLOCKS],
            is_shared: false,
            device,
            is_ours: (0..DEVICE_BLOCKS).map(|block| block < BLOCKS).collect(),
            open: 0,
            lease: None,
            wanted_at: None,
            waiting: Vec::new(),
            answer_due: false,
            values: 1000,
            target: Target::default(),
            wrong: Vec::new(),
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 33) % bound
    }

    fn value(&mut self) -> u32 {
        self.values += 1;
        self.values
    }

    /// A moment: what others happen to do, what the target gets done, and whether the kernel still waits.
    fn step(&mut self) {
        self.time += 1;
        match self.below(24) {
            0 => self.come(Other::Read),
            1 => self.come(Other::Stay),
            2 => {
                let block = self.below(BLOCKS as u64) as usize;
                self.come(Other::Write(block));
            }
            3 => self.come(Other::Move),
            4 if self.below(2) == 0 => self.come(Other::Rewrite),
            4 => {
                let block = self.below(BLOCKS as u64) as usize;
                self.come(Other::Punch(block));
            }
            5 if self.below(4) == 0 => self.come(Other::Share),
            // Somebody closes the file.
            6..=8 => self.open = self.open.saturating_sub(1),
            9 => self.write_back(0..BLOCKS),
            // The thread that answers breaks gets to run.
            10..=14 => self.answer_due = self.wanted_at.is_some(),
            15 if self.below(4) == 0 => self.lose_connection(),
            16 if self.below(4) == 0 => self.time += PATIENCE / 3,
            _ => {}
        }
        self.target_step();
        if self.wanted_at.is_some_and(|at| at + PATIENCE <= self.time) {
            self.lease = None;
            self.let_them_in();
        }
    }

    /// Someone wants the file.
    fn come(&mut self, other: Other) {
        if self.lease.is_some() {
            self.wanted_at.get_or_insert(self.time);
            self.waiting.push(other);
        } else {
            self.happen(other);
        }
    }

    fn let_them_in(&mut self) {
        self.wanted_at = None;
        for other in std::mem::take(&mut self.waiting) {
            self.happen(other);
        }
    }

    fn happen(&mut self, other: Other) {
        match other {
            Other::Read => {
                for block in 0..BLOCKS {
                    let bytes = self.read(block);
                    self.cache[block].get_or_insert((bytes, false));
                }
            }
            Other::Stay => self.open += 1,
            Other::Write(block) => self.write(block),
            Other::Move => {
                self.write_back(0..BLOCKS);
                let bytes: Vec<u32> = self.places.iter().map(|place| self.device[*place]).collect();
                self.leave();
                for (place, bytes) in self.places.clone().into_iter().zip(bytes) {
                    self.device[place] = bytes;
                }
            }
            Other::Rewrite => {
                self.leave();
                self.unwritten.fill(false);
                (0..BLOCKS).for_each(|block| self.write(block));
            }
            Other::Punch(block) => {
                (self.unwritten[block], self.truth[block], self.cache[block]) = (true, 0, None);
            }
            Other::Share => self.is_shared = !self.is_shared,
        }
    }

    /// Its blocks are another file's from now on, and it has others.
    fn leave(&mut self) {
        let free: Vec<usize> = (0..DEVICE_BLOCKS).filter(|block| !self.is_ours[*block]).collect();
        let start = self.below((free.len() - BLOCKS + 1) as u64) as usize;
        for place in std::mem::replace(&mut self.places, free[start..start + BLOCKS].to_vec()) {
            (self.device[place], self.is_ours[place]) = (FOREIGN, false);
        }
        self.places.iter().for_each(|place| self.is_ours[*place] = true);
        self.is_shared = false;
    }

    /// As a program writes: into the page cache.
    fn write(&mut self, block: usize) {
        let bytes = self.value();
        (self.truth[block], self.cache[block]) = (bytes, Some((bytes, true)));
    }

    fn read(&self, block: usize) -> u32 {
        match self.cache[block] {
            Some((bytes, _)) => bytes,
            None if self.unwritten[block] => 0,
            None => self.device[self.places[block]],
        }
    }

    fn write_back(&mut self, blocks: Range<usize>) {
        for block in blocks {
            if let Some((bytes, dirty @ true)) = &mut self.cache[block] {
                *dirty = false;
                self.device[self.places[block]] = *bytes;
                self.unwritten[block] = false;
            }
        }
    }

    fn lose_connection(&mut self) {
        if self.target.is_running && !self.target.is_lost {
            self.target.is_lost = true;
            if self.below(3) == 0 {
                // It crashed, and its call with it.
                self.target.is_running = false;
            } else {
                self.target.hears_at = Some(self.time + self.below(PATIENCE));
            }
        }
    }

    fn target_step(&mut self) {
        let now = self.time;
        let target = &mut self.target;
        let is_due = |at: Option<u64>| at.is_some_and(|at| at <= now);
        if target.is_running && (now >= target.until || is_due(target.cancel_at) || is_due(target.hears_at)) {
            target.is_running = false;
        }
        if self.target.is_running && self.below(2) == 0 {
            match self.target.writes.pop_front() {
                Some((place, block, bytes)) => self.land(place, block, bytes),
                None => self.target.is_running = false,
            }
        }
    }

    /// The device writes.
    fn land(&mut self, place: usize, block: usize, bytes: u32) {
        self.target.landed += 1;
        if !self.is_ours[place] || self.places[block] != place {
            self.wrong.push(format!("block {place} was another file's"));
        }
        if self.lease.is_none() {
            self.wrong.push(format!("block {place} was written after the file was given up"));
        }
        self.device[place] = bytes;
        self.truth[block] = bytes;
    }
}

#[derive(Clone)]
struct Kernel(Arc<Mutex<World>>);

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Kernel")
    }
}

impl Kernel {
    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().expect("one thread")
    }

    fn step(&self) -> MutexGuard<'_, World> {
        let mut world = self.world();
        world.step();
        world
    }
}

impl FileOps for Kernel {
    fn take_lease(&self, lease: Lease) -> io::Result<()> {
        assert_eq!(lease, Lease::Write, "a writer has no use for another");
        let mut world = self.step();
        if world.flaw == Flaw::HiddenBreaks {
            return Ok(());
        }
        if world.open > 0 {
            return Err(io::Error::from_raw_os_error(11));
        }
        world.lease = Some(lease);
        Ok(())
    }

    fn lease(&self) -> io::Result<Option<Lease>> {
        let world = self.step();
        let told = world.lease.filter(|_| world.wanted_at.is_none());
        Ok(if world.flaw == Flaw::HiddenBreaks { Some(Lease::Write) } else { told })
    }

    fn release_lease(&self) -> io::Result<()> {
        let mut world = self.step();
        world.lease = None;
        world.let_them_in();
        Ok(())
    }

    fn flush(&self, range: Range<u64>) -> io::Result<()> {
        self.step().write_back(blocks(&range));
        Ok(())
    }

    fn extents(&self, range: Range<u64>, sync: bool, _: usize, found: &mut Vec<Extent>) -> io::Result<Told> {
        let mut world = self.step();
        if sync {
            world.write_back(0..BLOCKS);
        }
        for block in blocks(&range) {
            let (logical, physical) = (block as u64 * BLOCK, world.places[block] as u64 * BLOCK);
            let mut flags = ExtentFlags::default();
            if world.unwritten[block] {
                flags = ExtentFlags::UNWRITTEN;
            } else if world.is_shared {
                flags = ExtentFlags::SHARED;
            }
            found.push(Extent { logical, physical, len: BLOCK, flags });
        }
        Ok(Told::All)
    }

    fn stamp(&self) -> io::Result<Stamp> {
        drop(self.step());
        let time = Duration::ZERO;
        Ok(Stamp { len: BLOCKS as u64 * BLOCK, sectors: 0, mtime: time, ctime: time })
    }

    fn now(&self) -> Duration {
        Duration::MAX
    }

    fn is_ours(&self) -> bool {
        true
    }
}

impl WriteOps for Kernel {
    fn drop_cache(&self) -> io::Result<()> {
        let mut world = self.step();
        if world.below(4) > 0 {
            // Dirty pages stay, and so do all of them at times.
            world.cache.iter_mut().for_each(|page| *page = page.filter(|(_, dirty)| *dirty));
        }
        Ok(())
    }

    fn residency(&self, range: Range<u64>) -> io::Result<Residency> {
        let world = self.step();
        let pages = &world.cache[blocks(&range)];
        let cached = pages.iter().flatten().count() as u64;
        let cached = if world.flaw == Flaw::HiddenPages { 0 } else { cached };
        Ok(Residency { cached, unwritten: None })
    }

    fn touch(&self) -> io::Result<()> {
        drop(self.step());
        Ok(())
    }

    fn loses_rights_when_written(&self) -> io::Result<bool> {
        drop(self.step());
        Ok(false)
    }

    fn elapsed(&self) -> Duration {
        Duration::from_secs(self.world().time)
    }

    fn pause(&self) {
        drop(self.step());
    }
}

fn blocks(range: &Range<u64>) -> Range<usize> {
    (range.start / BLOCK) as usize..range.end.div_ceil(BLOCK) as usize
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ended {
    Written,
    /// It was refused before anything was written.
    Plain(Reason),
    /// Something may be written, and all of it is written once more.
    Undone,
}

/// As `MountedWriter` of the host does it.
fn write(kernel: &Kernel, guard: &WriteGuard<Kernel>, range: Range<usize>) -> Ended {
    let ticket = match guard.begin(range.start as u64 * BLOCK..range.end as u64 * BLOCK) {
        Ok(ticket) => ticket,
        Err(refusal) => return Ended::Plain(refusal.reason),
    };
    let output: Vec<u32> = range.clone().map(|_| kernel.world().value()).collect();
    start(kernel, &ticket, &range, &output);
    let cancelled = kernel.clone();
    ticket.when_wanted(move || {
        let mut world = cancelled.world();
        let at = world.time + world.below(6);
        world.target.cancel_at.get_or_insert(at);
    });
    let answer = || {
        let is_due = std::mem::take(&mut kernel.world().answer_due);
        if is_due && let Some(answerer) = guard.answerer().upgrade() {
            answerer.answer_break();
        }
    };
    // Until the trailer comes, or the connection is gone.
    let is_lost = loop {
        answer();
        let world = kernel.step();
        if world.target.is_lost {
            break true;
        }
        if !world.target.is_running || world.flaw == Flaw::NoPatience && world.wanted_at.is_some() {
            break false;
        }
    };
    let mut is_fenced = !is_lost || kernel.world().flaw == Flaw::NoFence;
    while !is_fenced && !ticket.time_held().is_zero() {
        // A Revoke over a new connection, which ends the call as well.
        let mut world = kernel.step();
        let at = world.time + world.below(10);
        world.target.hears_at = world.target.hears_at.map(|hears| hears.min(at));
        is_fenced = !world.target.is_running;
        drop(world);
        answer();
    }
    let is_whole = !is_lost && kernel.world().target.writes.is_empty();
    let finished = if is_fenced { ticket.finish().is_ok() } else { drop_ticket(ticket) };
    if !(finished && is_whole) {
        return Ended::Undone;
    }
    Ended::Written
}

fn drop_ticket(ticket: WriteTicket<Kernel>) -> bool {
    drop(ticket);
    false
}

fn start(kernel: &Kernel, ticket: &WriteTicket<Kernel>, range: &Range<usize>, output: &[u32]) {
    let mut writes = VecDeque::new();
    for piece in ticket.layout().pieces(range.start as u64 * BLOCK..range.end as u64 * BLOCK) {
        let (first, place) = (piece.logical / BLOCK, piece.physical.expect("every byte has a place") / BLOCK);
        for at in 0..piece.len / BLOCK {
            let block = (first + at) as usize;
            writes.push_back(((place + at) as usize, block, output[block - range.start]));
        }
    }
    let time_left = ticket.time_left().as_secs();
    let mut world = kernel.step();
    // On its way it loses some time.
    let until = world.time + time_left + world.below(5);
    world.target = Target { writes, is_running: true, until, ..Target::default() };
}

/// Some requests, one after the other. How they ended, and what was wrong.
fn run(seed: u64, flaw: Flaw) -> (Vec<Ended>, Vec<String>) {
    let kernel = Kernel(Arc::new(Mutex::new(World::new(seed, flaw))));
    let place =
        Place { disk: Disk::Other("model".into()), device: "model".into(), offset: 0, len: 1 << 20, block_len: 512 };
    let config = WriteGuardConfig { place, extents_max: 100, patience: Duration::from_secs(PATIENCE) };
    let guard = WriteGuard::new(kernel.clone(), config);
    let mut all = Vec::new();
    for _ in 0..REQUESTS {
        let range = {
            let mut world = kernel.world();
            world.target = Target::default();
            let (first, len) = (world.below(2) as usize, 1 + world.below(2) as usize);
            first..first + len
        };
        let ended = write(&kernel, &guard, range.clone());
        let mut world = kernel.world();
        match ended {
            Ended::Plain(reason) if world.target.landed > 0 => {
                world.wrong.push(format!("{reason:?}, and something was written"));
            }
            // As the caller does then: through the file system.
            Ended::Plain(_) | Ended::Undone => range.for_each(|block| world.write(block)),
            Ended::Written => {}
        }
        for block in 0..BLOCKS {
            let (found, wanted) = (world.read(block), world.truth[block]);
            // A write under way at the target is wrong when it lands.
            if found != wanted {
                world.wrong.push(format!("block {block} reads {found}, and {wanted} was written: {ended:?}"));
            }
        }
        // A target that was not waited for writes on.
        for _ in 0..PATIENCE {
            world.target_step();
            world.time += 1;
        }
        all.push(ended);
    }
    let wrong = std::mem::take(&mut kernel.world().wrong);
    (all, wrong)
}

#[test]
fn every_block_that_is_written_is_the_files_and_is_seen() {
    let (mut written, mut undone, mut reasons) = (0, 0, Vec::new());
    for seed in 0..SEEDS {
        let (ended, wrong) = run(seed, Flaw::None);
        assert!(wrong.is_empty(), "seed {seed}: {ended:?}: {wrong:?}");
        for ended in ended {
            match ended {
                Ended::Written => written += 1,
                Ended::Undone => undone += 1,
                Ended::Plain(reason) if reasons.contains(&reason) => {}
                Ended::Plain(reason) => reasons.push(reason),
            }
        }
    }
    println!("{written} written, {undone} undone, refused: {reasons:?}");
    assert!(written > SEEDS / 10, "{written} were written: a guard that always refuses would pass");
    assert!(undone > SEEDS / 100, "{undone} were interrupted");
    for reason in [Reason::Opened, Reason::LeaseBroken, Reason::Unwritten, Reason::Shared, Reason::Cached] {
        assert!(reasons.contains(&reason), "{reason:?} is not among {reasons:?}");
    }
}

/// The test can fail: each of what the proof rests on is missed when it is not there.
#[test]
fn each_flaw_is_found_out() {
    for (flaw, what) in [
        (Flaw::HiddenBreaks, "another file's"),
        (Flaw::HiddenPages, "reads"),
        (Flaw::NoFence, "after the file was given up"),
        (Flaw::NoPatience, "after the file was given up"),
    ] {
        let found = (0..SEEDS).any(|seed| run(seed, flaw).1.iter().any(|wrong| wrong.contains(what)));
        assert!(found, "{flaw:?}");
    }
}
