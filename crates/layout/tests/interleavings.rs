//! The guard against every interleaving with two steps of others, on a model of the kernel: between any two of the
//! guard's system calls, and between any two block reads, others open the file for writing, write, move its extents
//! and give the blocks to other files.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use diskside_layout::guard::Stamp;
use diskside_layout::{Disk, FileOps, Guard, GuardConfig, Place, Proof, Reason};
use diskside_sys::extent::{Extent, ExtentFlags, Told};
use diskside_sys::lease::Lease;

const BLOCK: u64 = 4096;
/// Blocks of the file.
const BLOCKS: usize = 2;

/// What others do at some moment.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Other {
    /// Opens the file for writing, changes a block, closes it.
    Write,
    /// Opens it for writing, moves its blocks elsewhere and writes foreign bytes to the old ones.
    MoveAway,
    /// Opens it for writing and moves its blocks back to where they were; what is foreign there is gone.
    MoveBack,
    /// Cuts it; its blocks become another file's.
    Truncate,
    /// Moves its blocks through a descriptor that is open for reading (XFS); the old ones become another file's.
    Dedupe,
    /// The program whose descriptor is read changes a block: no lease is in its way.
    OwnWrite,
    /// It cuts the file; its blocks become another file's.
    OwnTruncate,
    /// The kernel loses its patience with the holder of the lease.
    Timeout,
    /// The thread that answers breaks gets to run.
    Answer,
}

const EXT4: [Other; 6] =
    [Other::Write, Other::MoveAway, Other::MoveBack, Other::Truncate, Other::Timeout, Other::Answer];
/// Twice moved by deduplication, there and back, is what is not proved: so MoveBack, which needs a lease, stays, and
/// only one of the two steps is a Dedupe.
const XFS: [Other; 7] =
    [Other::Dedupe, Other::Write, Other::MoveAway, Other::MoveBack, Other::Truncate, Other::Timeout, Other::Answer];

#[derive(Debug)]
struct World {
    /// Which block of the device each block of the file is.
    places: Vec<usize>,
    /// What the file's blocks hold, by the file system's word.
    bytes: Vec<u32>,
    /// Blocks of the file whose bytes are only in the page cache.
    dirty: Vec<bool>,
    device: Vec<u32>,
    lease: Option<Lease>,
    wanted: bool,
    waiting: Vec<Other>,
    changes: u64,
    /// Calls so far, and what happens before which of them.
    calls: usize,
    plan: Vec<(usize, Other)>,
    answer_due: bool,
    /// A kernel that never speaks of breaks: with it the test has to fail.
    lies: bool,
}

const FOREIGN: u32 = 0xdead;

impl World {
    fn new(plan: Vec<(usize, Other)>) -> Self {
        Self {
            places: (0..BLOCKS).collect(),
            bytes: (0..BLOCKS as u32).map(|block| 100 + block).collect(),
            // The last block was written just now and not flushed: the device has old bytes.
            dirty: (0..BLOCKS).map(|block| block + 1 == BLOCKS).collect(),
            device: (0..4 * BLOCKS as u32)
                .map(|block| if block + 1 < BLOCKS as u32 { 100 + block } else { 7 })
                .collect(),
            lease: None,
            wanted: false,
            waiting: Vec::new(),
            changes: 0,
            calls: 0,
            plan,
            answer_due: false,
            lies: false,
        }
    }

    /// One call of the guard or one read of the device: what others planned before it happens first.
    fn step(&mut self) {
        let now = self.calls;
        self.calls += 1;
        for (_, other) in self.plan.clone().into_iter().filter(|(when, _)| *when == now) {
            match other {
                Other::Timeout => self.let_them_in(),
                Other::Answer => self.answer_due = true,
                Other::Dedupe | Other::OwnWrite | Other::OwnTruncate => self.happen(other),
                _ if self.lease.is_some() => {
                    self.wanted = true;
                    self.waiting.push(other);
                }
                _ => self.happen(other),
            }
        }
    }

    /// The lease is over: those who waited continue.
    fn let_them_in(&mut self) {
        if self.wanted {
            self.lease = None;
            self.wanted = false;
            for other in std::mem::take(&mut self.waiting) {
                self.happen(other);
            }
        }
    }

    fn happen(&mut self, other: Other) {
        self.changes += 1;
        match other {
            Other::Write | Other::OwnWrite if self.places.is_empty() => {}
            Other::Write | Other::OwnWrite => {
                self.bytes[0] = 1000 + self.changes as u32;
                self.dirty[0] = true;
            }
            Other::MoveAway | Other::Dedupe => self.move_to(BLOCKS),
            Other::MoveBack => self.move_to(0),
            Other::Truncate | Other::OwnTruncate => {
                for place in std::mem::take(&mut self.places) {
                    self.device[place] = FOREIGN;
                }
                self.bytes.clear();
                self.dirty.clear();
            }
            Other::Timeout | Other::Answer => unreachable!("they change nothing"),
        }
    }

    fn move_to(&mut self, first: usize) {
        self.flush(0..BLOCKS);
        let (old, new): (Vec<usize>, Vec<usize>) = (self.places.clone(), (first..first + self.places.len()).collect());
        if old == new {
            return;
        }
        for (block, place) in new.iter().enumerate() {
            self.device[*place] = self.bytes[block];
        }
        old.iter().for_each(|place| self.device[*place] = FOREIGN);
        self.places = new;
    }

    fn flush(&mut self, blocks: Range<usize>) {
        for block in blocks.start..blocks.end.min(self.places.len()) {
            if std::mem::take(&mut self.dirty[block]) {
                self.device[self.places[block]] = self.bytes[block];
            }
        }
    }
}

#[derive(Clone, Debug)]
struct Kernel(Arc<Mutex<World>>);

impl Kernel {
    fn step(&self) -> MutexGuard<'_, World> {
        let mut world = self.0.lock().expect("one thread");
        world.step();
        world
    }
}

impl FileOps for Kernel {
    fn take_lease(&self, lease: Lease) -> io::Result<()> {
        let mut world = self.step();
        if !world.wanted {
            world.lease = Some(lease);
        }
        // As the kernel does: success, also while a break is pending.
        Ok(())
    }

    fn lease(&self) -> io::Result<Option<Lease>> {
        let world = self.step();
        Ok(if world.lies { Some(Lease::Read) } else { world.lease.filter(|_| !world.wanted) })
    }

    fn release_lease(&self) -> io::Result<()> {
        let mut world = self.step();
        world.lease = None;
        world.wanted = true;
        world.let_them_in();
        Ok(())
    }

    fn flush(&self, range: Range<u64>) -> io::Result<()> {
        self.step().flush(blocks(&range));
        Ok(())
    }

    fn extents(&self, range: Range<u64>, sync: bool, _: usize, found: &mut Vec<Extent>) -> io::Result<Told> {
        let mut world = self.step();
        if sync {
            world.flush(0..BLOCKS);
        }
        for block in blocks(&range).filter(|block| *block < world.places.len()) {
            let (logical, physical) = (block as u64 * BLOCK, world.places[block] as u64 * BLOCK);
            found.push(Extent { logical, physical, len: BLOCK, flags: ExtentFlags::default() });
        }
        Ok(Told::All)
    }

    fn stamp(&self) -> io::Result<Stamp> {
        let world = self.step();
        let time = Duration::from_secs(world.changes);
        Ok(Stamp { len: world.places.len() as u64 * BLOCK, sectors: 0, mtime: time, ctime: time })
    }

    fn now(&self) -> Duration {
        Duration::MAX
    }

    fn is_ours(&self) -> bool {
        true
    }
}

fn blocks(range: &Range<u64>) -> Range<usize> {
    (range.start / BLOCK) as usize..range.end.div_ceil(BLOCK) as usize
}

/// Two requests, one after the other. How many were proved, and whether one of those saw what the file did not hold.
fn run(world: World, proof: Proof, moves_under_lease: bool) -> (usize, Vec<Reason>, bool) {
    run_by(world, proof, moves_under_lease, false)
}

/// The same; `own_writer`: by the descriptor of a program that may write as well.
fn run_by(world: World, proof: Proof, moves_under_lease: bool, own_writer: bool) -> (usize, Vec<Reason>, bool) {
    let kernel = Kernel(Arc::new(Mutex::new(world)));
    let place =
        Place { disk: Disk::Other("model".into()), device: "model".into(), offset: 0, len: 1 << 20, block_len: 512 };
    let config =
        GuardConfig { proof, own_writer, place, moves_under_lease, extents_max: 100, clock_tick: Duration::ZERO };
    let guard = Guard::new(kernel.clone(), config);
    let (mut proved, mut reasons, mut wrong) = (0, Vec::new(), false);
    for _ in 0..2 {
        let ticket = match guard.begin(0..BLOCKS as u64 * BLOCK) {
            Ok(ticket) => ticket,
            Err(refusal) => {
                reasons.push(refusal.reason);
                continue;
            }
        };
        let wanted = kernel.0.lock().expect("one thread").bytes.clone();
        let mut found = Vec::new();
        for piece in ticket.pieces() {
            let Some(first) = piece.physical.map(|physical| physical / BLOCK) else { continue };
            for block in first..first + piece.len / BLOCK {
                found.push(kernel.step().device[block as usize]);
            }
            if std::mem::take(&mut kernel.0.lock().expect("one thread").answer_due)
                && let Some(answerer) = guard.answerer().upgrade()
            {
                answerer.answer_break();
            }
        }
        match guard.finish(ticket) {
            Ok(()) => {
                proved += 1;
                wrong |= found != wanted;
            }
            Err(refusal) => reasons.push(refusal.reason),
        }
    }
    guard.close();
    (proved, reasons, wrong)
}

/// Every pair of others' steps at every pair of moments.
fn plans(others: &[Other]) -> Vec<Vec<(usize, Other)>> {
    const MOMENTS: usize = 26;
    let one: Vec<(usize, Other)> =
        (0..MOMENTS).flat_map(|when| others.iter().map(move |other| (when, *other))).collect();
    let pairs = one.iter().flat_map(|first| one.iter().map(move |second| vec![*first, *second]));
    let twice = |plan: &Vec<(usize, Other)>| plan.iter().filter(|(_, other)| *other == Other::Dedupe).count() == 2;
    pairs.filter(|plan| plan[0].0 <= plan[1].0 && !twice(plan)).collect()
}

#[test]
fn no_foreign_or_stale_byte_is_ever_proved() {
    for (others, moves_under_lease) in [(&EXT4[..], false), (&XFS[..], true)] {
        for proof in [Proof::Request, Proof::Epoch] {
            let (mut proved, mut seen) = (0, Vec::new());
            for plan in plans(others) {
                let (count, reasons, wrong) = run(World::new(plan.clone()), proof, moves_under_lease);
                assert!(!wrong, "{proof:?}: {plan:?}");
                proved += count;
                seen.extend(reasons.into_iter().filter(|reason| !seen.contains(reason)).collect::<Vec<_>>());
            }
            assert!(proved > 1000, "{proved} proved: a guard that always refuses would pass");
            assert!(seen.contains(&Reason::LeaseBroken));
            assert_eq!(seen.contains(&Reason::Remapped), moves_under_lease, "{seen:?}");
        }
    }
}

#[test]
fn undisturbed_requests_are_proved() {
    for proof in [Proof::Request, Proof::Epoch, Proof::Detect] {
        assert_eq!(run(World::new(Vec::new()), proof, true), (2, Vec::new(), false), "{proof:?}");
    }
}

/// The test can fail: if the kernel hid breaks, foreign bytes would get through, and be noticed here.
#[test]
fn a_kernel_that_hides_breaks_is_found_out() {
    let found =
        plans(&EXT4).into_iter().any(|plan| run(World { lies: true, ..World::new(plan) }, Proof::Request, false).2);
    assert!(found);
}

/// And without the look at the extents deduplication would.
#[test]
fn without_a_look_at_the_extents_deduplication_gets_through() {
    let found = plans(&XFS).into_iter().any(|plan| run(World::new(plan), Proof::Epoch, false).2);
    assert!(found);
}

/// Without a lease what is promised is less, and kept: each single change is noticed.
#[test]
fn a_change_is_noticed_without_a_lease() {
    let single = |other| (0..12).map(move |when| vec![(when, other)]);
    for plan in [Other::Write, Other::MoveAway, Other::Truncate].into_iter().flat_map(single) {
        let (_, _, wrong) = run(World::new(plan.clone()), Proof::Detect, false);
        assert!(!wrong, "{plan:?}");
    }
}

/// A program that has its file open for writing: others are kept away by the lease, whatever they do, and what it does to the
/// file itself during a request is noticed.
#[test]
fn by_a_descriptor_that_writes_too_nothing_foreign_or_stale_is_proved() {
    for (others, moves_under_lease) in [(&EXT4[..], false), (&XFS[..], true)] {
        let own = (0..30).flat_map(|when| [Other::OwnWrite, Other::OwnTruncate].map(|other| vec![(when, other)]));
        let (mut proved, mut seen) = (0, Vec::new());
        for plan in plans(others).into_iter().chain(own) {
            let (count, reasons, wrong) = run_by(World::new(plan.clone()), Proof::Epoch, moves_under_lease, true);
            assert!(!wrong, "{plan:?}");
            proved += count;
            seen.extend(reasons.into_iter().filter(|reason| !seen.contains(reason)).collect::<Vec<_>>());
        }
        assert!(proved > 1000, "{proved} proved: a guard that always refuses would pass");
        assert!(seen.contains(&Reason::LeaseBroken) && seen.contains(&Reason::Changed), "{seen:?}");
        let undisturbed = run_by(World::new(Vec::new()), Proof::Epoch, moves_under_lease, true);
        assert_eq!(undisturbed, (2, Vec::new(), false));
    }
}
