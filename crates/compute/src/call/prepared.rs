//! Requests that were prepared once and run by Function Call.
//!
//! A call that needs nothing but memory and is small runs on the reactor that received it, without a thread: when its
//! function has no effects, and its one source is a short range of a volume in memory. It gets a small budget there; what
//! needs more is run again from the start on an engine, which changes nothing since it has no effects.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use diskside_engine::split::Split;
use diskside_engine::{Asked, CallError, OnMiss, Pieces, SmallCall, SmallInput, Turns};
use diskside_nvme::Status;
use diskside_sbpf::trap::TrapKind;
use diskside_wire::function::{Outcome, ReceiveAnswer, TRAILER_LEN, Trailer};

use crate::call::answer::{Answer, Problem};
use crate::call::command::CallCommand;
use crate::call::context::CallContext;
use crate::call::plan::{Plan, PlannedSource, chunk_len_of, split_of, tier_of};
use crate::call::runs::Runs;
use crate::call::trailer;
use crate::environment::Environment;
use crate::schedule::quota::{Account, Holding};
use diskside_volume::Volume;
use diskside_volume::guard::{Asks, Mode};

/// The most bytes of input of a call on a reactor.
const SMALL_INPUT_MAX: u64 = 64 << 10;
/// The most bytes that it may give back, folded or not.
const SMALL_OUTPUT_MAX: u64 = 64 << 10;
/// Back edges that it may take there: some 10 µs.
const SMALL_BUDGET: u64 = 8 << 10;
/// What an activation takes beside its input and output, about.
const BENCH_BYTES: usize = 16 << 10;
/// Activations kept for later calls, as long as the host has not much already.
const SPARE_MAX: usize = 8;

/// A prepared request.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) plan: Plan,
    small: Option<Small>,
    /// Reports its calls.
    pub(crate) runs: Arc<Runs>,
    #[expect(dead_code, reason = "kept as long as the request is")]
    holding: Holding,
}

/// What a call on a reactor needs.
#[derive(Debug)]
struct Small {
    volume: Arc<Volume>,
    name: Arc<str>,
    offset: u64,
    len: usize,
    source_len: u64,
    budget: u64,
    /// It proved to need more than its budget once.
    too_big: AtomicBool,
    spare: Mutex<Vec<Bench>>,
    /// The host's, which benches that are kept are charged to.
    account: Account,
}

/// An activation, and where its input is copied to.
#[derive(Debug)]
struct Bench {
    call: SmallCall,
    input: Vec<u8>,
    /// Counts its memory; `None`: it is not kept.
    holding: Option<Holding>,
}

impl Prepared {
    /// Compiles what is needed. Takes milliseconds the first time.
    pub(crate) fn new(
        context: &CallContext,
        plan: Plan,
        holding: Holding,
        turns: &Arc<dyn Turns>,
    ) -> Result<Self, CallError> {
        let compute = &context.environment;
        let small = Small::new(compute, &context.host.account, &plan, OnMiss::Turns(turns))?;
        if small.is_none() {
            let tier = tier_of(plan.request.tier);
            compute.engine.code().get(plan.function.main(), tier, OnMiss::Turns(turns))?;
        }
        let runs = context.runs(plan.program(), plan.function.name());
        Ok(Self { plan, small, runs, holding })
    }

    /// Runs the call here and now, if it is small. `None`: it is for an engine.
    pub(crate) fn run_small(&self, context: &CallContext, command: &CallCommand) -> Option<Answer> {
        let small = self.small.as_ref().filter(|small| !small.too_big.load(Ordering::Relaxed))?;
        let spare = small.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut bench = match spare {
            Some(bench) => bench,
            // A reactor compiles nothing.
            None => small.bench(&context.environment, &self.plan, OnMiss::Fail).ok()?,
        };
        let range = small.offset..small.offset + small.len as u64;
        // A command that writes there has it now: an engine can wait for it, a reactor cannot.
        if !small.volume.guards.try_hold(range.clone(), Mode::Shared, Asks::Once) {
            small.give_back(bench);
            return None;
        }
        let read = small.volume.medium.memory().map(|memory| memory.read(small.offset as usize, &mut bench.input));
        small.volume.guards.release(range, Mode::Shared);
        read?;
        small.volume.functions.read(Some(small.len as u64));
        let deadline = Instant::now() + command.timeout;
        let input =
            SmallInput { source: &small.name, source_len: small.source_len, offset: small.offset, bytes: &bench.input };
        let ran = match command.args_len {
            0 => bench.call.run(&input, &self.plan.request.args, small.budget, Some(deadline)),
            _ => bench.call.run(&input, &command.args(&self.plan.request.args), small.budget, Some(deadline)),
        };
        let answer = match ran {
            Ok(result) => {
                let mut trailer = Trailer::new(Outcome::Ok);
                trailer.media_read = small.len as u64;
                self.runs.ended(&trailer);
                Some(answer(result, trailer, command.len))
            }
            Err(CallError::Trapped { trap, .. })
                if trap.kind == TrapKind::Budget && small.budget != self.plan.request.budget =>
            {
                small.too_big.store(true, Ordering::Relaxed);
                None
            }
            Err(error) => {
                let trailer = trailer::of_call(&error);
                self.runs.ended(&trailer);
                Some(answer(&[], trailer, command.len))
            }
        };
        small.give_back(bench);
        answer
    }
}

impl Small {
    fn new(
        compute: &Environment,
        account: &Account,
        plan: &Plan,
        on_miss: OnMiss<'_>,
    ) -> Result<Option<Self>, CallError> {
        let [PlannedSource::Volume(volume, range)] = &plan.sources[..] else { return Ok(None) };
        if plan.request.decompression.is_some() {
            return Ok(None);
        }
        let len = range.end - range.start;
        let source_len = volume.medium.properties().len_bytes;
        let (split, chunk_len) = (split_of(plan.request.split), chunk_len_of(&plan.request));
        let asked = Asked { len_bytes: chunk_len, split, unfolded: !plan.request.fold };
        let pieces = Pieces::of(&plan.function, &plan.request.args, &asked)?;
        // Records with a delimiter may begin before the range and end after it.
        let whole = !matches!(pieces.split, Split::Delimiter(_)) || range.start == 0 && range.end == source_len;
        let small = whole
            && volume.medium.memory().is_some()
            && plan.function.is_pure()
            && !plan.function.is_in_place()
            // What a heap was once is kept with it.
            && !plan.function.uses_heap()
            && plan.sinks.is_empty()
            && len <= SMALL_INPUT_MAX
            && len <= pieces.len_bytes as u64
            && plan.request.part.is_none()
            && !plan.request.frames
            && plan.function.output_cap(len) <= SMALL_OUTPUT_MAX;
        if !small {
            return Ok(None);
        }
        let budget = match plan.request.budget {
            0 => SMALL_BUDGET,
            asked => asked.min(SMALL_BUDGET),
        };
        let small = Self {
            volume: Arc::clone(volume),
            name: volume.name.as_str().into(),
            offset: range.start,
            len: len as usize,
            source_len,
            budget,
            too_big: AtomicBool::new(false),
            spare: Mutex::default(),
            account: account.clone(),
        };
        // The first is made now, so that the prepare reports what cannot be compiled.
        let bench = small.bench(compute, plan, on_miss)?;
        small.give_back(bench);
        Ok(Some(small))
    }

    fn bench(&self, compute: &Environment, plan: &Plan, on_miss: OnMiss<'_>) -> Result<Bench, CallError> {
        let (request, folded) = (&plan.request, plan.limits.folded_len_max.min(SMALL_OUTPUT_MAX as usize));
        let call = SmallCall::new(
            &compute.engine,
            &plan.function,
            tier_of(request.tier),
            split_of(request.split),
            request.fold,
            folded,
            on_miss,
        )?;
        let fold_len = if plan.function.combine().is_some() && request.fold { folded } else { 0 };
        let output_len = plan.function.output_cap(self.len as u64) as usize;
        let holding = self.account.hold_spare(self.len + output_len + fold_len + BENCH_BYTES);
        Ok(Bench { call, input: vec![0; self.len], holding })
    }

    fn give_back(&self, bench: Bench) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE_MAX && bench.holding.is_some() {
            spare.push(bench);
        }
    }
}

/// The answer to a Call whose buffer has `len` bytes.
pub fn answer(result: &[u8], mut trailer: Trailer, len: u32) -> Answer {
    let len = len as usize;
    let mut result = result;
    if trailer.outcome == Outcome::Ok && result.len() > len {
        let told = format!("the result has {} bytes, the buffer of the Call {len}", result.len());
        trailer = trailer::simple(Outcome::OutputFull, &told);
    }
    if trailer.outcome != Outcome::Ok {
        result = &[];
        if len < TRAILER_LEN {
            return Problem::new(Status::FUNCTION_FAILED.dnr(), trailer.message).into();
        }
    }
    if trailer.outcome == Outcome::Ok && result.len() == len {
        return Answer::copied(result.to_vec());
    }
    let mut bytes = result.to_vec();
    let mut told = ReceiveAnswer { result_len: result.len() as u32, end: true, ..ReceiveAnswer::default() };
    if len - result.len() >= TRAILER_LEN {
        trailer.result_len = result.len() as u64;
        let trailer = trailer.encode((len - result.len()).min(u16::MAX.into()));
        told.trailer_len = trailer.len() as u16;
        bytes.extend_from_slice(&trailer);
    }
    Answer::copied(bytes).with_result(told.to_result())
}
