//! Traversals of volumes whose bytes are in memory, on the reactor that received them.
//!
//! What a step reads is rarely in the processor's cache, and to wait for it takes longer than the step. So the reads that
//! a step asks for are fetched ahead, and Calls that arrive together run side by side, a step of each in turn: while one
//! waits for its memory the others compute.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use diskside_engine::Traversal;
use diskside_engine::traverse::{Step, TraverseError, TraverseFault, TraverseRead};
use diskside_nvme::wire::function::Trailer;
use diskside_sbpf::trap::TrapKind;

use super::{Bytes, Near, TraversePlan};
use crate::compute::Compute;
use crate::compute::association::Name;
use crate::compute::prepared::CallCommand;
use crate::guard::Mode;

/// Calls that run side by side: enough to keep the memory busy, and few enough to stay in the nearest cache themselves.
pub(crate) const LANES_MAX: usize = 8;
/// Steps between two looks at the clock, which costs as much as a step.
const HOPS_BETWEEN_LOOKS: u32 = 32;
/// Of longer reads only the beginning is fetched ahead; the rest streams well.
const PREFETCH_LEN_MAX: u64 = 4096;

/// A traversal between two of its steps.
#[derive(Debug)]
pub(crate) struct Running {
    pub(super) plan: Arc<TraversePlan>,
    bench: Box<Bench>,
}

/// A traversal with its memory, kept for the next call.
#[derive(Debug)]
pub(super) struct Bench {
    traversal: Traversal,
    /// Where reads are copied to: what a program works on is its own.
    buffer: Vec<u8>,
    /// What scratch begins with.
    args: Vec<u8>,
    /// Reads that were asked for and fetched ahead, in order.
    reads: VecDeque<TraverseRead>,
}

/// What became of a step.
#[derive(Debug)]
pub(crate) enum Progress {
    /// There is another one.
    Goes,
    /// It was the last. [`Running::result`] has the result.
    Done,
    /// It failed, so the traversal is over.
    Failed(Box<TraverseError>),
    /// This is nothing for a reactor: a read would wait, for a disk or for a command that writes there right now, or the
    /// traversal is large. A thread runs it again from the start, which nobody notices, since traversals write nothing.
    Elsewhere,
}

/// A Call that runs beside others.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) name: Name,
    pub(crate) command: CallCommand,
    pub(crate) running: Running,
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

    /// Takes steps, of each call in turn, until one has ended, and gives it.
    pub(crate) fn run(&mut self) -> Option<(Lane, Progress)> {
        while !self.lanes.is_empty() {
            if self.next >= self.lanes.len() {
                self.next = 0;
            }
            match self.lanes[self.next].running.step() {
                Progress::Goes => self.next += 1,
                ended => return Some((self.lanes.swap_remove(self.next), ended)),
            }
        }
        None
    }
}

impl Bench {
    pub(super) fn new(traversal: Traversal) -> Self {
        Self { traversal, buffer: Vec::new(), args: Vec::new(), reads: VecDeque::new() }
    }
}

impl Running {
    /// Begins a traversal, if a reactor can run it. `args` fills in what scratch begins with.
    pub(crate) fn begin(
        plan: Arc<TraversePlan>,
        compute: &Compute,
        args: impl FnOnce(&mut Vec<u8>),
        deadline: Instant,
    ) -> Option<(Self, Progress)> {
        plan.near.as_ref()?;
        let mut bench = plan.take_bench(compute).ok()?;
        bench.args.clear();
        args(&mut bench.args);
        bench.reads.clear();
        let Bench { traversal, args, .. } = &mut *bench;
        let step = traversal.start(&plan.request(args, &plan.lens, deadline));
        let mut running = Self { plan, bench };
        let progress = running.follow(step);
        Some((running, progress))
    }

    /// Takes the next step.
    pub(crate) fn step(&mut self) -> Progress {
        let bench = &mut *self.bench;
        let read = bench.reads.pop_front().expect("a traversal that goes on has asked for a read");
        let len = read.len as usize;
        if bench.buffer.len() < len {
            bench.buffer.resize(len, 0);
        }
        if !sources(&self.plan)[read.file as usize].read(&read, &mut bench.buffer[..len]) {
            return Progress::Elsewhere;
        }
        let step = bench.traversal.feed(&bench.buffer[..len]);
        self.follow(step)
    }

    fn follow(&mut self, step: Result<Step, TraverseError>) -> Progress {
        let Bench { traversal, reads, .. } = &mut *self.bench;
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
            sources(&self.plan)[read.file as usize].prefetch(&read);
            reads.push_back(read);
        }
        Progress::Goes
    }

    /// Takes all steps.
    pub(crate) fn finish(&mut self, mut progress: Progress) -> Progress {
        while let Progress::Goes = progress {
            progress = self.step();
        }
        progress
    }

    /// The result, once it is done.
    pub(crate) fn result(&self) -> &[u8] {
        self.bench.traversal.result()
    }

    /// The trailer, once it is done.
    pub(crate) fn trailer(&self) -> Trailer {
        super::trailer_of(&self.bench.traversal)
    }

    /// Keeps its memory for the next.
    pub(crate) fn give_back(self) -> Arc<TraversePlan> {
        self.plan.give_back(self.bench);
        self.plan
    }
}

fn sources(plan: &TraversePlan) -> &[Near] {
    plan.near.as_deref().unwrap_or_default()
}

impl Near {
    /// Copies bytes, unless that would wait. A read lies inside of the source.
    fn read(&self, read: &TraverseRead, into: &mut [u8]) -> bool {
        let offset = self.start + read.offset;
        let range = offset..offset + read.len;
        // A command that writes there has it now.
        if !self.volume.guards.try_hold(range.clone(), Mode::Shared) {
            return false;
        }
        let is_read = match &self.bytes {
            Bytes::Memory(memory) => {
                memory.read(offset as usize, into);
                true
            }
            Bytes::PageCache => self.volume.medium.read_now(offset, into),
            Bytes::Kept(cache) => cache.read_kept(&self.volume, offset, into),
        };
        self.volume.release(range, Mode::Shared);
        is_read
    }

    fn prefetch(&self, read: &TraverseRead) {
        if let Bytes::Memory(memory) = &self.bytes {
            let start = (self.start + read.offset) as usize;
            memory.prefetch(start..start + read.len.min(PREFETCH_LEN_MAX) as usize);
        }
    }
}

/// Whether more hops, bytes or budget would have helped.
fn is_exhausted(error: &TraverseError) -> bool {
    match &error.fault {
        TraverseFault::TooManyHops(_) | TraverseFault::TooManyBytes(_) => true,
        TraverseFault::Trapped { trap, .. } => trap.kind == TrapKind::Budget,
        _ => false,
    }
}
