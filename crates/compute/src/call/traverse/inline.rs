//! Traversals on the reactor that received them.
//!
//! The bytes that a step reads are rarely in the processor's cache, and to wait for them takes longer than the step. So
//! the reads that a step asks for are fetched ahead, and Calls that arrive together run side by side, a step of each in
//! turn: while one waits for its memory the others compute. When the host's [`Share`] of the reactor's turn is used up,
//! they stay between two steps until the next.
//!
//! The reactor's ring reads what is not in memory, all that a step asked for at once. A call that waits for it has no
//! thread: it is memory, which is charged to its host, and any number of them may wait.

mod lanes;
mod reads;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use diskside_engine::traverse::{Step, TraverseError, TraverseFault, TraverseRead};
use diskside_engine::{TierChoice, Traversal};
use diskside_io::Errno;
use diskside_sbpf::activation::Tier;
use diskside_sbpf::trap::TrapKind;
use diskside_wire::function::Trailer;

pub(crate) use self::lanes::Lanes;
use self::reads::{Asked, Bytes, CallId, Outbox, Room};
pub use self::reads::{AwaitedRead, ReadId};
use super::TraversePlan;
use crate::call::command::CallCommand;
use crate::call::context::CallContext;
use crate::call::plan::tier_of;
use crate::endpoint::non_blocking::{Near, Opened, ReadNow};
use crate::program::usage::InUse;
use crate::reactors::Name;
use crate::schedule::quota::{Account, Holding};
use crate::schedule::turn_share::{Meter, Share};

/// Calls that run side by side: enough to keep the memory busy, and few enough to stay in the nearest cache themselves.
pub(crate) const LANES_MAX: usize = 8;
/// How often a read is tried whose block is being written, most often in as many turns of the reactor. A thread would wait
/// for longer than nearly all writes take, not least for the processor.
const BUSY_TRIES_MAX: u32 = 256;
/// Steps between two looks at the clock, which costs as much as a step.
const HOPS_BETWEEN_LOOKS: u32 = 32;
/// Work that a read by the ring counts as.
const AWAITED_READ_WORK: u32 = 4;

/// A traversal between two of its steps.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) plan: Arc<TraversePlan>,
    bench: Box<Bench>,
    meter: Meter,
    /// How often the next read was tried.
    tries: u32,
    /// Names its reads; `None`: it may not wait.
    id: Option<CallId>,
    /// It waits for its next read.
    waits: bool,
    /// Reads that its steps were given so far.
    fed: u32,
}

/// A traversal with its memory, kept for the next call.
#[derive(Debug)]
pub(crate) struct Bench {
    traversal: Traversal,
    /// Where reads are copied to: what a program works on is its own.
    buffer: Vec<u8>,
    /// What scratch begins with.
    args: Vec<u8>,
    /// Reads that were asked for and fetched ahead, in order.
    reads: VecDeque<Asked>,
    /// The memory of a read that its steps were given.
    spare: Option<Room>,
    /// The sources of the call that has it, and their lengths.
    opened: Vec<Opened>,
    lens: Vec<u64>,
    /// How often each was read, and how many bytes.
    read: Vec<(u64, u64)>,
    /// Its bytes, and their charge. `None`: there is none as long as it is one of few.
    len: usize,
    holding: Option<Holding>,
    /// Whether it is kept for the next call.
    is_kept: bool,
}

/// What became of a step.
#[derive(Debug)]
pub(crate) enum Progress {
    /// There is another one.
    Goes,
    /// There is another one, and what it needs is being written right now.
    Busy,
    /// There is another one, and what it needs is being read.
    Waits,
    /// It was the last. [`Running::result`] has the result.
    Done,
    /// It failed, so the traversal is over.
    Failed(Box<TraverseError>),
    /// This is nothing for a reactor: a read would wait for what no ring reads, or for long, or the traversal is large, or more
    /// than the host's share. A thread runs it again from the start, which nobody notices, since traversals write nothing.
    Elsewhere,
}

/// A Call that has not begun.
#[derive(Debug)]
pub(crate) struct WaitingCall {
    pub(crate) name: Name,
    pub(crate) command: CallCommand,
    pub(crate) plan: Arc<TraversePlan>,
    pub(crate) arrived: Instant,
    pub(crate) in_use: InUse,
    /// The version of its host's rights when they were looked at.
    pub(crate) rights_version: u64,
}

/// A Call that runs beside others.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) name: Name,
    pub(crate) command: CallCommand,
    pub(crate) running: Running,
    pub(crate) arrived: Instant,
    pub(crate) in_use: InUse,
    /// As of the call that waited.
    pub(crate) rights_version: u64,
}

impl Bench {
    pub(crate) fn new(traversal: Traversal, len: usize, account: &Account) -> Self {
        let (buffer, args, reads, spare) = Default::default();
        let (opened, lens, read) = Default::default();
        let holding = account.hold_spare(len);
        let is_kept = holding.is_some();
        Self { traversal, buffer, args, reads, spare, opened, lens, read, len, holding, is_kept }
    }

    /// Whether it may be kept for another call.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Sees to it that it is charged; false if there is no room.
    fn is_charged(&mut self, account: &Account) -> bool {
        if self.holding.is_none() {
            self.holding = account.hold(self.len).ok();
        }
        self.holding.is_some()
    }

    /// Lets go of the call's sources, and of a buffer that is longer than this. Says how long the buffer is.
    pub(crate) fn clear(&mut self, buffer_len_max: usize) -> usize {
        self.opened.clear();
        self.lens.clear();
        self.read.clear();
        self.reads.clear();
        self.spare = None;
        if self.buffer.capacity() > buffer_len_max {
            self.buffer = Vec::new();
        }
        self.buffer.capacity()
    }
}

impl Running {
    /// Begins a traversal, if a reactor can run it. `args` fills in what scratch begins with.
    pub(crate) fn begin(
        plan: Arc<TraversePlan>,
        context: &CallContext,
        args: impl FnOnce(&mut Vec<u8>),
        deadline: Instant,
        share: &mut Share,
    ) -> Option<(Self, Progress)> {
        let near = plan.near.as_ref().filter(|_| share.has_work())?;
        let mut bench = plan.take_bench(&context.environment).ok()?;
        for source in near {
            let Some((opened, len)) = source.open(context) else {
                plan.give_back(bench);
                return None;
            };
            bench.opened.push(opened);
            bench.lens.push(len);
            bench.read.push((0, 0));
        }
        bench.args.clear();
        args(&mut bench.args);
        let Bench { traversal, args, lens, .. } = &mut *bench;
        let step = traversal.start(&plan.request(args, lens, deadline));
        let is_interpreted = tier_of(plan.request.tier) == TierChoice::Only(Tier::Interpreter);
        let meter = Meter::new(is_interpreted);
        let mut running = Self { plan, bench, meter, tries: 0, id: None, waits: false, fed: 0 };
        share.take(running.meter.step(&running.bench.traversal, 0));
        let progress = running.follow(step);
        Some((running, progress))
    }

    /// Takes the next step. What it would wait for goes to the outbox.
    pub(crate) fn step(&mut self, share: &mut Share, outbox: &mut Outbox) -> Progress {
        let bench = &mut *self.bench;
        let Asked { read, bytes } = bench.reads.pop_front().expect("a traversal that goes on has asked for a read");
        let step = match bytes {
            Bytes::Wanted => match self.read_now(&read) {
                ReadNow::Done => {
                    let bench = &mut *self.bench;
                    bench.traversal.feed(&bench.buffer[..read.len as usize])
                }
                is_read => {
                    self.bench.reads.push_front(Asked { read, bytes: Bytes::Wanted });
                    return self.wait(is_read, share, outbox);
                }
            },
            Bytes::OnTheWay { .. } => {
                bench.reads.push_front(Asked { read, bytes });
                return self.ask(share, outbox);
            }
            Bytes::Here(room) => {
                let step = bench.traversal.feed(room.bytes());
                room.spare(&mut bench.spare);
                step
            }
            Bytes::Failed(errno) => Err(bench.traversal.read_failed(&io::Error::from(errno))),
        };
        (self.tries, self.fed) = (0, self.fed + 1);
        share.take(self.meter.step(&self.bench.traversal, read.len));
        self.follow(step)
    }

    /// Copies what the next step is given into its buffer, if that can be done now.
    fn read_now(&mut self, read: &TraverseRead) -> ReadNow {
        let bench = &mut *self.bench;
        let (file, len) = (read.file as usize, read.len as usize);
        if bench.buffer.len() < len {
            bench.buffer.resize(len, 0);
        }
        let is_read = sources(&self.plan)[file].read(&bench.opened[file], read, &mut bench.buffer[..len]);
        if is_read == ReadNow::Done {
            let (count, bytes) = &mut bench.read[file];
            (*count, *bytes) = (*count + 1, *bytes + read.len);
        }
        is_read
    }

    /// The next read cannot be made now.
    fn wait(&mut self, is_read: ReadNow, share: &mut Share, outbox: &mut Outbox) -> Progress {
        share.take(1);
        if is_read == ReadNow::Busy && self.tries < BUSY_TRIES_MAX {
            self.tries += 1;
            return Progress::Busy;
        }
        if is_read == ReadNow::Waits && self.bench.is_charged(&self.plan.account) {
            self.ask(share, outbox)
        } else {
            Progress::Elsewhere
        }
    }

    /// Asks the ring for the next read, and for all that are wanted behind it.
    fn ask(&mut self, share: &mut Share, outbox: &mut Outbox) -> Progress {
        let Some(id) = self.id else { return Progress::Elsewhere };
        let Bench { reads, opened, spare, .. } = &mut *self.bench;
        let blocks_of = |read: &TraverseRead, is_next: bool| {
            let (source, opened) = (&sources(&self.plan)[read.file as usize], &opened[read.file as usize]);
            if is_next || !source.is_kept(opened, read) { source.blocks(opened, read) } else { None }
        };
        let asked = outbox.ask(reads, blocks_of, (id, self.fed), (&self.plan.account, spare));
        share.take(asked * AWAITED_READ_WORK);
        self.waits = matches!(reads.front(), Some(Asked { bytes: Bytes::OnTheWay { .. }, .. }));
        if self.waits { Progress::Waits } else { Progress::Elsewhere }
    }

    /// A read has ended. True if the traversal waited for it, and continues.
    fn arrived(&mut self, read: u32, bytes: Result<&[u8], Errno>) -> bool {
        let Some(place) = read.checked_sub(self.fed).map(|place| place as usize) else { return false };
        let Some(asked) = self.bench.reads.get_mut(place) else { return false };
        asked.arrived(bytes);
        place == 0 && std::mem::take(&mut self.waits)
    }

    /// Why it ends now, if its time is over.
    fn is_late(&self, now: Instant) -> Option<Progress> {
        let error = self.bench.traversal.check_deadline(now).err()?;
        Some(Progress::Failed(Box::new(error)))
    }

    /// When its time is over.
    fn deadline(&self) -> Option<Instant> {
        self.bench.traversal.deadline()
    }

    fn follow(&mut self, step: Result<Step, TraverseError>) -> Progress {
        let Bench { traversal, reads, opened, .. } = &mut *self.bench;
        // A traversal that mixes two versions of a file may end in any way: a thread finds out.
        let ends = !matches!(step, Ok(Step::Read));
        if ends && !self.plan.request.guarded && !opened.iter().all(Opened::is_unchanged) {
            return Progress::Elsewhere;
        }
        let looked = match step {
            Ok(Step::Done) => return Progress::Done,
            Ok(Step::Read) if traversal.hops().is_multiple_of(HOPS_BETWEEN_LOOKS) => {
                traversal.check_deadline(Instant::now())
            }
            Ok(Step::Read) => Ok(()),
            Err(error) => Err(error),
        };
        match looked {
            Ok(()) => {}
            Err(error) if is_exhausted(&error) => return Progress::Elsewhere,
            Err(error) => return Progress::Failed(Box::new(error)),
        }
        while let Some(read) = traversal.take_read() {
            sources(&self.plan)[read.file as usize].prefetch(&opened[read.file as usize], &read);
            reads.push_back(Asked { read, bytes: Bytes::Wanted });
        }
        Progress::Goes
    }

    /// Takes all steps, and waits for nothing; as many as the share allows.
    pub(crate) fn finish(&mut self, mut progress: Progress, share: &mut Share) -> Progress {
        let mut outbox = Outbox::default();
        while let Progress::Goes = progress {
            progress = if share.has_work() { self.step(share, &mut outbox) } else { Progress::Elsewhere };
        }
        progress
    }

    /// The result, once it is done.
    pub(crate) fn result(&self) -> &[u8] {
        self.bench.traversal.result()
    }

    /// The trailer, once it is done.
    pub(crate) fn trailer(&self) -> Trailer {
        let generation = self.bench.opened.iter().find_map(Opened::version).unwrap_or(0);
        Trailer { generation, ..super::trailer_of(&self.bench.traversal) }
    }

    /// Keeps its memory for the next.
    pub(crate) fn give_back(self) -> Arc<TraversePlan> {
        let Bench { opened, read, .. } = &*self.bench;
        for ((source, opened), (count, bytes)) in sources(&self.plan).iter().zip(opened).zip(read) {
            if *count > 0 {
                source.counters(opened).reads(*count, Some(*bytes));
            }
        }
        self.plan.give_back(self.bench);
        self.plan
    }
}

fn sources(plan: &TraversePlan) -> &[Near] {
    plan.near.as_deref().unwrap_or_default()
}

/// Whether more hops, bytes or budget would have helped.
fn is_exhausted(error: &TraverseError) -> bool {
    match &error.fault {
        TraverseFault::TooManyHops(_) | TraverseFault::TooManyBytes(_) => true,
        TraverseFault::Trapped { trap, .. } => trap.kind == TrapKind::Budget,
        _ => false,
    }
}
