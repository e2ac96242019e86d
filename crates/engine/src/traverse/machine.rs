//! The machine: one program, its context and its scratch, step by step.

use super::{
    Step, TraverseError, TraverseFault as Fault, TraverseFunction, TraverseLimits, TraverseRead, TraverseRequest,
};
use crate::turns::Turns;
use crate::worker::source_line;
use diskside_abi::context::{BpfXrp, DsTraverse, NEXT_MAX};
use diskside_sbpf::activation::{Activation, ActivationOptions, Code, Limits, Mappings, Program};
use diskside_sbpf::image::Kind;
use diskside_sbpf::machine::{CancelToken, Environment, NoEnvironment};
use diskside_sbpf::region::RegionId;
use diskside_sbpf::trap::TrapKind;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Instant;
use zerocopy::{FromZeros, IntoBytes};

/// A traversal, to be started again and again: its memory and its activation are kept.
pub struct Traversal {
    activation: Activation,
    context: Context,
    limits: TraverseLimits,
    registers: [u64; 5],
    /// Lengths of the files.
    files: Vec<u64>,
    scratch: Vec<u64>,
    scratch_cap: usize,
    /// Reads that were asked for and not yet fed, in that order, with the hop that asked. The first
    /// `taken` of them are with the driver.
    reads: VecDeque<(TraverseRead, u32)>,
    taken: usize,
    /// Number of the next step.
    hop: u32,
    read_bytes: u64,
    edges_left: u64,
    deadline: Option<Instant>,
    cancel: Option<CancelToken>,
    /// When it may compute; `None`: its driver sees to that.
    pub(super) turns: Option<Arc<dyn Turns>>,
    result_len: usize,
}

/// Helpers with effects do nothing, as everywhere in traversals, but a long step gives others their turn.
struct InTurns(Arc<dyn Turns>);

impl Environment for InTurns {
    fn log(&mut self, message: &[u8]) {
        NoEnvironment.log(message);
    }

    fn now_ns(&mut self) -> u64 {
        NoEnvironment.now_ns()
    }

    fn pause(&mut self) {
        self.0.pause();
    }
}

/// The context of the program; writable memory of a program is aligned.
enum Context {
    Traverse(Box<Aligned<DsTraverse>>),
    Xrp(Box<Aligned<BpfXrp>>),
}

#[repr(C, align(64))]
struct Aligned<T>(T);

impl Traversal {
    /// A traversal by a function, run by this code.
    #[must_use]
    pub fn new(function: &TraverseFunction, code: Arc<dyn Code>, limits: TraverseLimits) -> Self {
        Self::with(function, code, limits, None)
    }

    /// The same of one that computes in turns with others: [`run`](Self::run) waits for its turn, gives others theirs in
    /// long steps, and keeps none while it reads.
    #[must_use]
    pub fn in_turns(
        function: &TraverseFunction,
        code: Arc<dyn Code>,
        limits: TraverseLimits,
        turns: Arc<dyn Turns>,
    ) -> Self {
        Self::with(function, code, limits, Some(turns))
    }

    fn with(
        function: &TraverseFunction,
        code: Arc<dyn Code>,
        limits: TraverseLimits,
        turns: Option<Arc<dyn Turns>>,
    ) -> Self {
        let program = function.program();
        let environment: Box<dyn Environment + Send> = match &turns {
            Some(turns) => Box::new(InTurns(Arc::clone(turns))),
            None => Box::new(NoEnvironment),
        };
        let options = ActivationOptions { heap_quota_bytes: limits.heap_quota_bytes, environment };
        let context = match program.entry().kind {
            Kind::Xrp => Context::Xrp(Box::new(Aligned(BpfXrp::new_zeroed()))),
            _ => Context::Traverse(Box::new(Aligned(DsTraverse::new_zeroed()))),
        };
        Self {
            activation: Activation::new(program, code, options),
            context,
            limits,
            registers: program.entry_registers(&[]),
            files: Vec::new(),
            scratch: Vec::new(),
            scratch_cap: 0,
            reads: VecDeque::new(),
            taken: 0,
            hop: 0,
            read_bytes: 0,
            edges_left: 0,
            deadline: None,
            cancel: None,
            turns,
            result_len: 0,
        }
    }

    /// Makes it stoppable, now and when it begins again.
    pub fn stop_with(&mut self, cancel: CancelToken) {
        self.cancel = Some(cancel);
    }

    /// Begins again, and forgets what was before.
    ///
    /// # Errors
    /// An error in the request, as hop 0, or in the first step when it needs no data.
    pub fn start(&mut self, request: &TraverseRequest<'_>) -> Result<Step, TraverseError> {
        self.reads.clear();
        self.taken = 0;
        self.hop = 0;
        self.read_bytes = 0;
        self.edges_left = self.limits.edges_max;
        self.deadline = request.deadline;
        self.result_len = 0;
        self.files.clear();
        self.files.extend_from_slice(request.files);
        self.set_scratch(request.input, request.scratch_cap)?;
        if self.program().verified().effects.writes_globals || !self.program().image().imports.is_empty() {
            self.activation.reset();
        }
        self.context.clear(request.scratch_cap, request.files.len());
        if request.first.is_empty() {
            return self.step(None);
        }
        for read in request.first {
            self.ask(*read, 0).map_err(|fault| self.error(0, fault))?;
        }
        Ok(Step::Read)
    }

    /// The next read for the driver, if there is one that it has not taken yet.
    pub fn take_read(&mut self) -> Option<TraverseRead> {
        let read = self.reads.get(self.taken)?.0;
        self.taken += 1;
        Some(read)
    }

    /// Runs the step that gets the bytes of the oldest read that was taken.
    ///
    /// # Errors
    /// The step failed, and why. The traversal is over then.
    ///
    /// # Panics
    /// If no read was taken, or the bytes are not as many as were asked for: that is the driver's part.
    pub fn feed(&mut self, data: &[u8]) -> Result<Step, TraverseError> {
        assert!(self.taken > 0, "a traversal is fed what it asked for");
        let (read, _) = self.reads.pop_front().expect("as many reads as were taken, at least");
        self.taken -= 1;
        assert_eq!(data.len() as u64, read.len, "a read is fed as a whole");
        self.step(Some((read, data)))
    }

    /// The error of a traversal whose oldest read that was taken cannot be answered.
    #[must_use]
    pub fn read_failed(&self, why: &io::Error) -> TraverseError {
        match self.reads.front() {
            Some(&(read, hop)) => {
                let errno = why.raw_os_error().unwrap_or(diskside_io::Errno::IO.raw_os_error());
                self.error(hop, Fault::Read { read, reason: why.to_string(), errno })
            }
            None => self.error(self.hop, Fault::Stalled),
        }
    }

    /// Whether its time is over, or it was cancelled; drivers ask before they wait.
    ///
    /// # Errors
    /// [`Fault::Deadline`] or [`Fault::Cancelled`], with the hop.
    pub fn check_deadline(&self, now: Instant) -> Result<(), TraverseError> {
        if self.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
            return Err(self.error(self.hop, Fault::Cancelled));
        }
        match self.deadline {
            Some(deadline) if now >= deadline => Err(self.error(self.hop, Fault::Deadline)),
            _ => Ok(()),
        }
    }

    /// Whether there is anything for [`check_deadline`](Self::check_deadline) to look at.
    pub(super) fn may_be_stopped(&self) -> bool {
        self.deadline.is_some() || self.cancel.is_some()
    }

    /// When it is stopped.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// The bytes that travel back, once it is done.
    #[must_use]
    pub fn result(&self) -> &[u8] {
        &self.scratch.as_bytes()[..self.result_len]
    }

    /// Steps so far.
    #[must_use]
    pub fn hops(&self) -> u32 {
        self.hop
    }

    /// Bytes that were asked for so far.
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// Retreating edges taken so far.
    #[must_use]
    pub fn edges(&self) -> u64 {
        self.limits.edges_max - self.edges_left
    }

    /// What it may use.
    #[must_use]
    pub fn limits(&self) -> &TraverseLimits {
        &self.limits
    }

    /// The program that runs.
    #[must_use]
    pub fn program(&self) -> &Arc<Program> {
        self.activation.program()
    }

    fn set_scratch(&mut self, input: &[u8], scratch_cap: usize) -> Result<(), TraverseError> {
        let max = self.limits.scratch_cap_max;
        if scratch_cap > max || input.len() > scratch_cap {
            return Err(self.error(0, Fault::Scratch { input: input.len(), scratch_cap, max }));
        }
        self.scratch_cap = scratch_cap;
        self.scratch.clear();
        self.scratch.resize(scratch_cap.div_ceil(8), 0);
        self.scratch.as_mut_bytes()[..input.len()].copy_from_slice(input);
        Ok(())
    }

    /// One call of the program, and what follows from it.
    fn step(&mut self, given: Option<(TraverseRead, &[u8])>) -> Result<Step, TraverseError> {
        let hop = self.hop;
        if hop >= self.limits.hops_max {
            return Err(self.error(hop, Fault::TooManyHops(self.limits.hops_max)));
        }
        self.hop += 1;
        match self.call(hop, given).and_then(|done| self.follow(hop, done)) {
            Ok(step) => Ok(step),
            Err(fault) => Err(self.error(hop, fault)),
        }
    }

    /// Calls the program; true when it is done.
    fn call(&mut self, hop: u32, given: Option<(TraverseRead, &[u8])>) -> Result<bool, Fault> {
        let (read, data) = given.unwrap_or((TraverseRead { file: 0, offset: 0, len: 0, cookie: 0 }, &[]));
        let budget = self.limits.step_edges_max.min(self.edges_left);
        let limits = Limits { budget, deadline: self.deadline, cancel: self.cancel.clone() };
        let context = self.context.fill(&read, hop);
        let mappings = Mappings::new()
            .writable(RegionId::CONTEXT, context)
            .read_only(RegionId::INPUT, data)
            .writable(RegionId::SCRATCH, &mut self.scratch.as_mut_bytes()[..self.scratch_cap]);
        let returned = match self.activation.call(&mappings, self.registers, &limits) {
            Ok(returned) => returned,
            Err(stopped) if stopped.trap.kind == TrapKind::Deadline => return Err(Fault::Deadline),
            Err(stopped) if stopped.trap.kind == TrapKind::Cancelled => return Err(Fault::Cancelled),
            Err(stopped) => {
                let source_line = source_line(self.program(), &stopped.trap);
                return Err(Fault::Trapped { trap: Box::new(stopped.trap), source_line });
            }
        };
        self.edges_left -= limits.budget - returned.edges_left;
        self.context.verdict(returned.value)
    }

    fn follow(&mut self, hop: u32, done: bool) -> Result<Step, Fault> {
        if done {
            let result_len = match &self.context {
                Context::Traverse(context) => context.0.result_len.get(),
                Context::Xrp(_) => self.scratch_cap as u64,
            };
            if result_len > self.scratch_cap as u64 {
                return Err(Fault::ResultTooLong { result_len, scratch_cap: self.scratch_cap });
            }
            self.result_len = result_len as usize;
            return Ok(Step::Done);
        }
        let asked = self.context.asked()?;
        for i in 0..asked {
            let read = self.context.next(i)?;
            self.ask(read, hop)?;
        }
        if self.reads.is_empty() { Err(Fault::Stalled) } else { Ok(Step::Read) }
    }

    /// Puts a read on the list, if it may be made.
    fn ask(&mut self, read: TraverseRead, hop: u32) -> Result<(), Fault> {
        let Some(&file_len) = self.files.get(read.file as usize) else {
            return Err(Fault::NoSuchFile { file: read.file, nfiles: self.files.len() });
        };
        if read.len == 0 {
            return Err(Fault::EmptyRead { file: read.file, offset: read.offset });
        }
        if read.len > self.limits.read_len_max {
            return Err(Fault::ReadTooLong { len: read.len, max: self.limits.read_len_max });
        }
        if read.offset.checked_add(read.len).is_none_or(|end| end > file_len) {
            return Err(Fault::BeyondEnd { read, file_len });
        }
        if self.reads.len() >= self.limits.reads_outstanding_max {
            return Err(Fault::TooManyReads(self.limits.reads_outstanding_max));
        }
        self.read_bytes += read.len;
        if self.read_bytes > self.limits.read_bytes_max {
            return Err(Fault::TooManyBytes(self.limits.read_bytes_max));
        }
        self.reads.push_back((read, hop));
        Ok(())
    }

    #[cold]
    fn error(&self, hop: u32, fault: Fault) -> TraverseError {
        TraverseError { function: self.program().entry().section.clone(), hop, fault }
    }
}

impl Context {
    /// Sets what holds for the whole traversal, and clears the rest.
    fn clear(&mut self, scratch_cap: usize, nfiles: usize) {
        match self {
            Self::Traverse(context) => {
                context.0.zero();
                context.0.scratch_cap.set(scratch_cap as u64);
                context.0.nfiles.set(nfiles as u32);
            }
            Self::Xrp(context) => context.0.zero(),
        }
    }

    /// Sets what is valid for one step. Every field that the program reads is set, since `next[n]` of a step may have
    /// been written beyond `next`.
    #[inline]
    fn fill(&mut self, read: &TraverseRead, hop: u32) -> &mut [u8] {
        match self {
            Self::Traverse(context) => {
                let t = &mut context.0;
                t.size.set(DsTraverse::LEN_BYTES as u32);
                t.data.set(RegionId::INPUT.base());
                t.data_len.set(read.len);
                t.offset.set(read.offset);
                t.file.set(read.file);
                t.hop.set(hop);
                t.cookie.set(read.cookie);
                t.scratch.set(RegionId::SCRATCH.base());
                t.nnext.set(0);
                t.as_mut_bytes()
            }
            Self::Xrp(context) => {
                let x = &mut context.0;
                x.data.set(RegionId::INPUT.base());
                x.scratch.set(RegionId::SCRATCH.base());
                x.done.set(0);
                // A list of reads that ends at once: programs write what they want.
                x.size.fill(0.into());
                x.next_addr.fill(0.into());
                x.fd_arr.fill((read.file as i32).into());
                x.cur_fd.set(read.file as i32);
                x.as_mut_bytes()
            }
        }
    }

    /// Whether what was returned means that the traversal is done.
    fn verdict(&self, value: u64) -> Result<bool, Fault> {
        match self {
            Self::Traverse(_) => match value as i64 {
                0 => Ok(false),
                1 => Ok(true),
                code if code < 0 => Err(Fault::Errno { code }),
                _ => Err(Fault::BadReturn(value)),
            },
            // XRP: the block's program failed if it returned anything but 0.
            Self::Xrp(context) => match value as u32 as i32 {
                0 => Ok(context.0.done.get() != 0),
                code => Err(Fault::Errno { code: -i64::from(code).abs() }),
            },
        }
    }

    /// How many reads are asked for.
    fn asked(&self) -> Result<usize, Fault> {
        match self {
            Self::Traverse(context) => {
                let asked = context.0.nnext.get();
                if asked as usize > NEXT_MAX { Err(Fault::TooManyNext(asked)) } else { Ok(asked as usize) }
            }
            Self::Xrp(context) => Ok(context.0.size.iter().take_while(|len| len.get() != 0).count()),
        }
    }

    #[inline]
    fn next(&self, i: usize) -> Result<TraverseRead, Fault> {
        Ok(match self {
            Self::Traverse(context) => {
                let next = &context.0.next[i];
                TraverseRead {
                    file: next.file.get(),
                    offset: next.offset.get(),
                    len: next.len.get(),
                    cookie: next.cookie.get(),
                }
            }
            Self::Xrp(context) => TraverseRead {
                file: context.0.fd_arr[i].get() as u32,
                offset: context.0.next_addr[i].get(),
                len: context.0.size[i].get(),
                cookie: i as u32,
            },
        })
    }
}

impl std::fmt::Debug for Traversal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Traversal")
            .field("activation", &self.activation)
            .field("hop", &self.hop)
            .field("reads", &self.reads)
            .finish_non_exhaustive()
    }
}
