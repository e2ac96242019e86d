//! Traversals of sources whose bytes are in memory, on the reactor that received them.
//!
//! What a step reads is rarely in the processor's cache, and to wait for it takes longer than the step. So the reads that
//! a step asks for are fetched ahead, and Calls that arrive together run side by side, a step of each in turn: while one
//! waits for its memory the others compute. When the host's [`Share`] of the reactor's turn is used up, they stay between
//! two steps until the next.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use diskside_engine::traverse::{Step, TraverseError, TraverseFault, TraverseRead};
use diskside_engine::{TierChoice, Traversal};
use diskside_sbpf::activation::Tier;
use diskside_sbpf::trap::TrapKind;
use diskside_wire::function::Trailer;

use super::TraversePlan;
use crate::call::command::CallCommand;
use crate::call::context::CallContext;
use crate::call::job::tier_of;
use crate::endpoint::non_blocking::{Near, Opened, ReadNow};
use crate::program::usage::InUse;
use crate::reactors::Name;
use crate::schedule::quota::Holding;
use crate::schedule::turn_share::{Meter, Share};

/// Calls that run side by side: enough to keep the memory busy, and few enough to stay in the nearest cache themselves.
pub(crate) const LANES_MAX: usize = 8;
/// How often a read is tried whose block is being written, most often in as many turns of the reactor. A thread would wait
/// for longer than nearly all writes take, not least for the processor.
const BUSY_TRIES_MAX: u32 = 256;
/// Steps between two looks at the clock, which costs as much as a step.
const HOPS_BETWEEN_LOOKS: u32 = 32;

/// A traversal between two of its steps.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) plan: Arc<TraversePlan>,
    bench: Box<Bench>,
    meter: Meter,
    /// How often the next read was tried.
    tries: u32,
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
    reads: VecDeque<TraverseRead>,
    /// The sources of the call that has it, and their lengths.
    opened: Vec<Opened>,
    lens: Vec<u64>,
    /// What was read of each: how often, and bytes.
    read: Vec<(u64, u64)>,
    /// What it is charged to; `None`: it is not kept.
    holding: Option<Holding>,
}

/// What became of a step.
#[derive(Debug)]
pub(crate) enum Progress {
    /// There is another one.
    Goes,
    /// There is another one, and what it needs is being written right now.
    Busy,
    /// It was the last. [`Running::result`] has the result.
    Done,
    /// It failed, so the traversal is over.
    Failed(Box<TraverseError>),
    /// This is nothing for a reactor: a read would wait, for a disk or for long, or the traversal is large, or more than the
    /// host's share. A thread runs it again from the start, which nobody notices, since traversals write nothing.
    Elsewhere,
}

/// A Call that has not begun.
#[derive(Debug)]
pub(crate) struct WaitingCall {
    pub(crate) name: Name,
    pub(crate) command: CallCommand,
    pub(crate) plan: Arc<TraversePlan>,
    pub(crate) deadline: Instant,
    pub(crate) in_use: InUse,
}

/// A Call that runs beside others.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) name: Name,
    pub(crate) command: CallCommand,
    pub(crate) running: Running,
    pub(crate) in_use: InUse,
}

/// Calls that run side by side.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    lanes: Vec<Lane>,
    next: usize,
}

impl Lanes {
    pub(crate) fn len(&self) -> usize {
        self.lanes.len()
    }

    /// Adds a call that has asked for its first read.
    pub(crate) fn push(&mut self, lane: Lane) {
        self.lanes.push(lane);
    }

    /// Takes steps, of each call in turn, until one has ended, and gives it; or until the share is used up, or none can go on.
    pub(crate) fn run(&mut self, share: &mut Share) -> Option<(Lane, Progress)> {
        let mut busy = 0;
        while busy < self.lanes.len() && share.has_work() {
            if self.next >= self.lanes.len() {
                self.next = 0;
            }
            match self.lanes[self.next].running.step(share) {
                Progress::Goes => (self.next, busy) = (self.next + 1, 0),
                Progress::Busy => (self.next, busy) = (self.next + 1, busy + 1),
                ended => return Some((self.lanes.swap_remove(self.next), ended)),
            }
        }
        None
    }
}

impl Bench {
    pub(crate) fn new(traversal: Traversal, holding: Option<Holding>) -> Self {
        let (buffer, args, reads) = Default::default();
        Self { traversal, buffer, args, reads, opened: Vec::new(), lens: Vec::new(), read: Vec::new(), holding }
    }

    /// Whether it may be kept for another call.
    pub(crate) fn is_charged(&self) -> bool {
        self.holding.is_some()
    }

    /// Lets go of the call's sources, and of a buffer that is longer than this. Says how long the buffer is.
    pub(crate) fn clear(&mut self, buffer_len_max: usize) -> usize {
        self.opened.clear();
        self.lens.clear();
        self.read.clear();
        self.reads.clear();
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
        let mut running = Self { plan, bench, meter: Meter::new(is_interpreted), tries: 0 };
        share.take(running.meter.step(&running.bench.traversal, 0));
        let progress = running.follow(step);
        Some((running, progress))
    }

    /// Takes the next step.
    pub(crate) fn step(&mut self, share: &mut Share) -> Progress {
        let bench = &mut *self.bench;
        let read = bench.reads.pop_front().expect("a traversal that goes on has asked for a read");
        let len = read.len as usize;
        if bench.buffer.len() < len {
            bench.buffer.resize(len, 0);
        }
        let (source, opened) = (&sources(&self.plan)[read.file as usize], &bench.opened[read.file as usize]);
        let is_read = source.read(opened, &read, &mut bench.buffer[..len]);
        if is_read == ReadNow::Busy && self.tries < BUSY_TRIES_MAX {
            bench.reads.push_front(read);
            self.tries += 1;
            share.take(1);
            return Progress::Busy;
        }
        if is_read != ReadNow::Done {
            share.take(1);
            return Progress::Elsewhere;
        }
        self.tries = 0;
        let (count, bytes) = &mut bench.read[read.file as usize];
        (*count, *bytes) = (*count + 1, *bytes + read.len);
        let step = bench.traversal.feed(&bench.buffer[..len]);
        share.take(self.meter.step(&bench.traversal, read.len));
        self.follow(step)
    }

    fn follow(&mut self, step: Result<Step, TraverseError>) -> Progress {
        let Bench { traversal, reads, opened, .. } = &mut *self.bench;
        // Who mixes two versions of a file may end in any way: a thread sees what is the matter.
        let ends = !matches!(step, Ok(Step::Read));
        if ends && !opened.iter().all(Opened::is_unchanged) {
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
            reads.push_back(read);
        }
        Progress::Goes
    }

    /// Takes all steps; as many as the share allows.
    pub(crate) fn finish(&mut self, mut progress: Progress, share: &mut Share) -> Progress {
        while let Progress::Goes = progress {
            progress = if share.has_work() { self.step(share) } else { Progress::Elsewhere };
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
