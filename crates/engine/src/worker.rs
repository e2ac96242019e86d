//! One thread's copy of a function: its activation, its output, its clock.

use crate::call::{Call, CallError, Folded, Place};
use crate::code::{CodeCache, OnMiss, TierChoice};
use crate::context::Context;
use crate::environment::{CallEnvironment, Log, Why};
use crate::frames::FrameHeader;
use diskside_abi::context::{DsCall, FLAG_FIRST, FLAG_LAST};
use diskside_io::buffer::{Buffer, Hugepages};
use diskside_sbpf::activation::{Activation, ActivationOptions, Limits, Mappings, Program, Tier};
use diskside_sbpf::image::Kind;
use diskside_sbpf::machine::CancelToken;
use diskside_sbpf::region::{REGION_LEN_MAX, RegionId};
use diskside_sbpf::trap::{Trap, TrapKind};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// The chunk, as the function knows it.
#[derive(Clone, Debug)]
pub(crate) struct ChunkInfo {
    pub(crate) source: Arc<str>,
    pub(crate) source_index: u32,
    pub(crate) source_len: u64,
    pub(crate) chunk_index: u32,
    pub(crate) offset: u64,
    pub(crate) record_index: u64,
    pub(crate) first: bool,
    pub(crate) last: bool,
    /// Whether it is a piece of a source, and not all that the function made of one.
    pub(crate) of_piece: bool,
}

impl ChunkInfo {
    /// The place of a result that came as a frame.
    pub(crate) fn of_frame(source: &str, header: &FrameHeader) -> Self {
        Self {
            source: source.into(),
            source_index: header.source_index,
            source_len: 0,
            chunk_index: header.chunk_index,
            offset: header.offset,
            record_index: 0,
            first: false,
            last: false,
            of_piece: true,
        }
    }

    pub(crate) fn place(&self, len: usize) -> Place {
        let range = self.offset..self.offset + len as u64;
        Place { source: self.source.to_string(), source_index: self.source_index, range, folded: None }
    }

    /// The place of a result that is folded.
    fn place_of_result(&self, len: usize, into_bytes: usize) -> Place {
        let folded = Some(Box::new(Folded { of_piece: self.of_piece, into_bytes: into_bytes as u64 }));
        Place { folded, ..self.place(len) }
    }

    /// The place of the chunk, as programs know it.
    pub(crate) fn about(&self) -> DsCall {
        let flags = if self.first { FLAG_FIRST } else { 0 } | if self.last { FLAG_LAST } else { 0 };
        DsCall {
            flags: flags.into(),
            in_offset: self.offset.into(),
            record_index: self.record_index.into(),
            source_len: self.source_len.into(),
            source_index: self.source_index.into(),
            chunk_index: self.chunk_index.into(),
            ..DsCall::default()
        }
    }
}

/// Counters of one worker.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) chunks: u64,
    pub(crate) input_bytes: u64,
    pub(crate) output_bytes: u64,
    pub(crate) edges: u64,
    pub(crate) run: Duration,
    /// The last chunk, by source and number, and what the function returned over it.
    pub(crate) last: Option<((u32, u32), u64)>,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.chunks += other.chunks;
        self.input_bytes += other.input_bytes;
        self.output_bytes += other.output_bytes;
        self.edges += other.edges;
        self.run += other.run;
        self.last = self.last.max(other.last);
    }
}

/// Runs the function over chunks.
pub(crate) struct Worker<'c> {
    code: &'c CodeCache,
    call: &'c Call<'c>,
    activation: Activation,
    why: Why,
    until: Option<Instant>,
    output: Output,
    pub(crate) tally: Tally,
}

impl<'c> Worker<'c> {
    pub(crate) fn new(
        code: &'c CodeCache,
        call: &'c Call<'c>,
        log: &Log,
        until: Option<Instant>,
    ) -> Result<Self, CallError> {
        let (activation, why) = activate(code, call, call.function.main(), log)?;
        Ok(Self { code, call, activation, why, until, output: Output::default(), tally: Tally::default() })
    }

    pub(crate) fn tier(&self) -> Tier {
        self.activation.tier()
    }

    /// When its call has to have ended.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Runs the function over one chunk; its output is valid until the next run.
    pub(crate) fn run(&mut self, input: &[u8], info: &ChunkInfo) -> Result<&[u8], CallError> {
        let function = self.call.function;
        // A function without loops does not look for itself.
        if self.call.limits.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
            return Err(CallError::Cancelled { place: info.place(input.len()) });
        }
        let cap = function.output_cap(input.len() as u64);
        let max = self.call.limits.output_len_max.min(REGION_LEN_MAX);
        if cap > max {
            let (function, place) = (function.main().entry().section.clone(), info.place(input.len()));
            return Err(CallError::OutputTooLarge { function, place, asked: cap, max });
        }
        let limits = limits(self.call, input.len() as u64 + cap, self.until);
        // An expanding function writes much: large pages avoid most of the page faults. A function that uses little of
        // its room touches little.
        let expands = cap >= HUGEPAGES_RATIO * (input.len() as u64).max(1);
        let hugepages = if expands { Hugepages::Ask } else { Hugepages::No };
        let output = self.output.zeroed(cap, hugepages).map_err(|source| no_memory(function.main(), cap, source))?;
        let args_len = self.call.args.len() as u64;
        let context = Context::new(function.kind(), input.len() as u64, args_len, cap, info.about());
        let state = self.call.state.as_ref().map(|state| state.lock(limits.deadline, limits.cancel.as_ref()));
        let too_late = |kind| trapped(function.main(), info.place(input.len()), trap_before(function.main(), kind), 0);
        let mut state = state.transpose().map_err(too_late)?;
        let state_len = state.as_ref().map_or(0, |state| size_of_val(&**state));
        let mut mappings = if function.is_in_place() {
            output.copy_from_slice(input);
            Mappings::new().writable(RegionId::RANGE_FIRST, output)
        } else {
            Mappings::new()
                .read_only(RegionId::INPUT, input)
                .writable(RegionId::OUTPUT, output)
                .read_only(RegionId::ARGS, &self.call.args)
                .read_only(RegionId::CONTEXT, context.as_bytes())
        };
        if let Some(state) = &mut state {
            mappings = mappings.writable(RegionId::STATE, state.as_mut_bytes());
        }
        let args = function.main().entry_registers(&[input.len() as u64, state_len as u64]);
        let activation = &mut self.activation;
        // Nothing of one piece is left for the next, or results would depend on which pieces run together.
        activation.forget();
        let (result, ran) = self.call.in_turn(|| {
            let started = Instant::now();
            // It may have waited long for its turn, and short programs do not look themselves.
            let result = match over(self.call, self.until, started) {
                Some(kind) => Err(trap_before(function.main(), kind)),
                None => activation.call(&mappings, args, &limits).map_err(|stopped| stopped.trap),
            };
            (result, started.elapsed())
        });
        self.tally.run += ran;
        let place = || info.place(input.len());
        let returned = result.map_err(|trap| trapped(function.main(), place(), trap, limits.budget))?;
        let len = if function.is_in_place() {
            input.len()
        } else {
            output_len(function.main(), value_of(function.kind(), returned.value), cap, &self.why, place)?
        };
        self.tally.last = Some(((info.source_index, info.chunk_index), returned.value));
        self.tally.chunks += 1;
        self.tally.input_bytes += input.len() as u64;
        self.tally.output_bytes += len as u64;
        self.tally.edges += limits.budget - returned.edges_left;
        self.take_better_code(input.len() as u64);
        Ok(&self.output.bytes()[..len])
    }

    /// Like [`run`](Self::run); the output is the caller's to keep.
    pub(crate) fn run_apart(&mut self, input: &[u8], info: &ChunkInfo) -> Result<Buffer, CallError> {
        let len = self.run(input, info)?.len();
        Ok(self.output.take(len))
    }
}

impl Worker<'_> {
    /// The next chunk runs in better code, when there is some by now.
    fn take_better_code(&mut self, input_len: u64) {
        if self.call.tier == TierChoice::Best
            && let Some(better) =
                self.code.ran(self.call.function.main(), self.tier(), input_len, self.call.turns.as_ref())
        {
            self.activation.set_code(better);
        }
    }
}

/// Folds results with the function's `combine`.
pub(crate) struct Folder<'c> {
    call: &'c Call<'c>,
    program: Arc<Program>,
    activation: Activation,
    why: Why,
    until: Option<Instant>,
    accumulator: Buffer,
    len: usize,
    pub(crate) run: Duration,
}

impl<'c> Folder<'c> {
    /// `None` when results are not to be folded.
    pub(crate) fn new(
        code: &CodeCache,
        call: &'c Call<'c>,
        log: &Log,
        until: Option<Instant>,
    ) -> Result<Option<Self>, CallError> {
        let Some(program) = call.function.combine().filter(|_| call.fold) else {
            return Ok(None);
        };
        let (activation, why) = activate(code, call, program, log)?;
        let room = result_room(call);
        let accumulator = Buffer::try_with_hugepages(room.next_multiple_of(8), Hugepages::No)
            .map_err(|source| no_memory(program, room as u64, source))?;
        Ok(Some(Self {
            call,
            program: Arc::clone(program),
            activation,
            why,
            until,
            accumulator,
            len: 0,
            run: Duration::ZERO,
        }))
    }

    pub(crate) fn fold(&mut self, part: &[u8], info: &ChunkInfo) -> Result<(), CallError> {
        let cap = result_room(self.call);
        let limits = limits(self.call, (self.len + part.len()) as u64, self.until);
        let mappings = Mappings::new()
            .writable(RegionId::ACCUMULATOR, &mut self.accumulator[..cap])
            .read_only(RegionId::INPUT, part);
        let args = self.program.entry_registers(&[self.len as u64, cap as u64, part.len() as u64]);
        let activation = &mut self.activation;
        activation.forget();
        let (result, ran) = self.call.in_turn(|| {
            let started = Instant::now();
            (activation.call(&mappings, args, &limits), started.elapsed())
        });
        self.run += ran;
        let place = || info.place_of_result(part.len(), self.len);
        let returned = result.map_err(|stopped| trapped(&self.program, place(), stopped.trap, limits.budget))?;
        self.len = output_len(&self.program, returned.value as i64, cap as u64, &self.why, place)?;
        Ok(())
    }

    pub(crate) fn result(&self) -> &[u8] {
        &self.accumulator[..self.len]
    }
}

/// Output that has room for so many times its input is taken to be filled.
const HUGEPAGES_RATIO: u64 = 4;

/// The return value of a program of this kind.
pub(crate) fn value_of(kind: Kind, register: u64) -> i64 {
    match kind {
        Kind::LambdaIo => i64::from(register as i32),
        _ => register as i64,
    }
}

/// Output memory, all zeros before each run.
#[derive(Debug, Default)]
pub(crate) struct Output {
    small: Vec<u64>,
    large: Option<Buffer>,
}

impl Output {
    /// Up to this, zeroing is cheaper than fresh pages.
    const SMALL_LEN_MAX: usize = 64 << 10;

    pub(crate) fn zeroed(&mut self, len: u64, hugepages: Hugepages) -> io::Result<&mut [u8]> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        if len <= Self::SMALL_LEN_MAX {
            self.large = None;
            self.small.clear();
            self.small.resize(len.div_ceil(8), 0);
            return Ok(&mut self.small.as_mut_bytes()[..len]);
        }
        // Fresh pages cost only where they are touched.
        Ok(&mut self.large.insert(Buffer::try_with_hugepages(len, hugepages)?)[..len])
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.large {
            Some(b) => b,
            None => self.small.as_bytes(),
        }
    }

    /// The first bytes, without a copy where they are many.
    fn take(&mut self, len: usize) -> Buffer {
        match self.large.take() {
            Some(mut large) => {
                large.set_len(len);
                large
            }
            None => Buffer::from(self.small.as_bytes()[..len].to_vec()),
        }
    }
}

fn activate(
    code: &CodeCache,
    call: &Call<'_>,
    program: &Arc<Program>,
    log: &Log,
) -> Result<(Activation, Why), CallError> {
    let environment = CallEnvironment::new(log.clone(), call.turns.clone());
    let why = environment.why();
    let heap_quota_bytes = call.limits.heap_quota_bytes;
    let options = ActivationOptions { heap_quota_bytes, environment: Box::new(environment) };
    Ok((Activation::new(program, code.get(program, call.tier, OnMiss::of(call.turns.as_ref()))?, options), why))
}

fn limits(call: &Call<'_>, bytes: u64, until: Option<Instant>) -> Limits {
    let mut limits = Limits::for_bytes(bytes, 0);
    limits.budget = call.limits.budget_or(limits.budget);
    limits.deadline = until;
    limits.cancel.clone_from(&call.limits.cancel);
    limits
}

/// `budget` is the one that the run had.
pub(crate) fn trapped(program: &Program, place: Place, mut trap: Trap, budget: u64) -> CallError {
    if trap.kind == TrapKind::Budget {
        trap.bound = budget;
    }
    let source_line = source_line(program, &trap);
    CallError::Trapped { function: program.entry().section.clone(), place, trap: Box::new(trap), source_line }
}

/// Bytes of a folded result: callers who want no bound say more than a program can address.
fn result_room(call: &Call<'_>) -> usize {
    call.limits.result_len_max.min(usize::try_from(REGION_LEN_MAX).unwrap_or(usize::MAX))
}

pub(crate) fn no_memory(program: &Program, len: u64, source: io::Error) -> CallError {
    CallError::NoMemory { function: program.entry().section.clone(), len, source }
}

/// Why a run is not to begin any more.
fn over(call: &Call<'_>, until: Option<Instant>, now: Instant) -> Option<TrapKind> {
    if call.limits.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
        return Some(TrapKind::Cancelled);
    }
    until.is_some_and(|until| now >= until).then_some(TrapKind::Deadline)
}

/// Whether a call was cancelled, or its time is over.
pub(crate) fn is_over(call: &Call<'_>, until: Option<Instant>) -> bool {
    over(call, until, Instant::now()).is_some()
}

/// The error of a call that is stopped before the function has its chunk.
pub(crate) fn stopped_before(
    call: &Call<'_>,
    until: Option<Instant>,
    place: impl FnOnce() -> Place,
) -> Option<CallError> {
    let kind = over(call, until, Instant::now())?;
    let place = place();
    Some(match kind {
        // It waits for bytes, and no instruction is next.
        TrapKind::Deadline if place.range.is_empty() => CallError::Late { place },
        TrapKind::Cancelled if place.range.is_empty() => CallError::Cancelled { place },
        kind => trapped(call.function.main(), place, trap_before(call.function.main(), kind), 0),
    })
}

/// The trap of a run that was stopped before its first instruction.
pub(crate) fn trap_before(program: &Program, kind: TrapKind) -> Trap {
    let insn = program.image().functions[program.entry().function].start as u32;
    Trap { kind, insn, region: None, offset: 0, len: 0, bound: 0, write: false, helper: None }
}

/// ` (file:line: text)` of a trap, or nothing.
pub(crate) fn source_line(program: &Program, trap: &Trap) -> String {
    program.image().line_of(trap.insn as usize).map_or_else(String::new, |l| {
        let text = if l.text.is_empty() { String::new() } else { format!(": {}", l.text) };
        format!(" ({}:{}{text})", l.file, l.line)
    })
}

pub(crate) fn output_len(
    program: &Program,
    value: i64,
    cap: u64,
    why: &Why,
    place: impl Fn() -> Place,
) -> Result<usize, CallError> {
    let function = || program.entry().section.clone();
    // Of this run, if it fails; else nobody wants to know.
    let why = why.take();
    if value < 0 {
        return Err(CallError::Errno { function: function(), place: place(), code: value, why });
    }
    let returned = value as u64;
    if returned > cap {
        return Err(CallError::OutputFull { function: function(), place: place(), returned, cap });
    }
    Ok(returned as usize)
}

pub(crate) fn too_large(call: &Call<'_>) -> CallError {
    CallError::ResultTooLarge { max: call.limits.result_len_max }
}
