//! A call over one small input, again and again: activated once, run where the caller is, nothing allocated.
//!
//! It gives what [`Engine::run`] gives over a source of one chunk.

use crate::Engine;
use crate::call::{CallError, Folded, Place};
use crate::code::{OnMiss, TierChoice};
use crate::context::Context;
use crate::environment::{CallEnvironment, Log, Why};
use crate::function::Function;
use crate::pieces::{Asked, Pieces};
use crate::split::{Split, record_index};
use crate::worker::{ChunkInfo, Output, no_memory, output_len, trapped, value_of};
use diskside_io::buffer::Hugepages;
use diskside_sbpf::activation::{Activation, ActivationOptions, Limits, Mappings, Program};
use diskside_sbpf::region::RegionId;
use std::sync::Arc;
use std::time::Instant;
use zerocopy::IntoBytes;

/// A function that is activated for small inputs. One call at a time.
#[derive(Debug)]
pub struct SmallCall {
    function: Function,
    activation: Activation,
    why: Why,
    output: Output,
    fold: Option<Fold>,
    split: Option<Split>,
}

#[derive(Debug)]
struct Fold {
    program: Arc<Program>,
    activation: Activation,
    why: Why,
    accumulator: Vec<u64>,
}

/// The one chunk of a small call.
#[derive(Clone, Debug)]
pub struct SmallInput<'a> {
    /// What errors call the source.
    pub source: &'a Arc<str>,
    /// The source's length in bytes.
    pub source_len: u64,
    /// Where in the source the bytes begin.
    pub offset: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl SmallCall {
    /// Activates a function. Its results are folded if `fold` says so, into at most `folded_len_max` bytes.
    ///
    /// # Errors
    /// The tier cannot run it, or it works in place.
    pub fn new(
        engine: &Engine,
        function: &Function,
        tier: TierChoice,
        split: Option<Split>,
        fold: bool,
        folded_len_max: usize,
        on_miss: OnMiss<'_>,
    ) -> Result<Self, CallError> {
        if !function.runs_over_bytes() || function.is_in_place() {
            let (function, kind) = (function.name().to_owned(), function.kind().name());
            return Err(CallError::WrongKind { function, kind });
        }
        let activate = |program: &Arc<Program>| {
            let environment = CallEnvironment::new(Log::default(), None);
            let why = environment.why();
            let options = ActivationOptions { environment: Box::new(environment), ..ActivationOptions::default() };
            Ok::<_, CallError>((Activation::new(program, engine.code().get(program, tier, on_miss)?, options), why))
        };
        let fold = match function.combine().filter(|_| fold) {
            None => None,
            Some(program) => {
                let (activation, why) = activate(program)?;
                let accumulator = vec![0; folded_len_max.div_ceil(8)];
                Some(Fold { program: Arc::clone(program), activation, why, accumulator })
            }
        };
        let (activation, why) = activate(function.main())?;
        Ok(Self { activation, why, function: function.clone(), output: Output::default(), fold, split })
    }

    /// Runs the function; its result is valid until the next run.
    ///
    /// # Errors
    /// Why it did not end well.
    pub fn run(
        &mut self,
        input: &SmallInput<'_>,
        args: &[u8],
        budget: u64,
        deadline: Option<Instant>,
    ) -> Result<&[u8], CallError> {
        let function = &self.function;
        if let Some(schema) = function.args().filter(|schema| args.len() < schema.len_bytes as usize) {
            return Err(CallError::BadArgs { given: args.len(), wants: schema.len_bytes, name: schema.name.clone() });
        }
        let asked = Asked { len_bytes: None, split: self.split, unfolded: self.fold.is_none() };
        let pieces = Pieces::of(function, args, &asked)?;
        let input_len = input.bytes.len();
        let place = || Place {
            source: input.source.to_string(),
            source_index: 0,
            range: input.offset..input.offset + input_len as u64,
            folded: None,
        };
        let info = ChunkInfo {
            source: Arc::clone(input.source),
            source_index: 0,
            source_len: input.source_len,
            chunk_index: 0,
            offset: input.offset,
            record_index: record_index(pieces.split, input.offset),
            first: true,
            last: true,
            of_piece: true,
        };
        let cap = function.output_cap(input_len as u64);
        let output = self.output.zeroed(cap, Hugepages::No);
        let output = output.map_err(|source| no_memory(function.main(), cap, source))?;
        let limits = Limits { budget, deadline, cancel: None };
        let context = Context::new(function.kind(), input_len as u64, args.len() as u64, cap, info.about());
        let mappings = Mappings::new()
            .read_only(RegionId::INPUT, input.bytes)
            .writable(RegionId::OUTPUT, output)
            .read_only(RegionId::ARGS, args)
            .read_only(RegionId::CONTEXT, context.as_bytes());
        let registers = function.main().entry_registers(&[input_len as u64]);
        self.activation.forget();
        let returned = self
            .activation
            .call(&mappings, registers, &limits)
            .map_err(|stopped| trapped(function.main(), place(), stopped.trap, budget))?;
        let len = output_len(function.main(), value_of(function.kind(), returned.value), cap, &self.why, place)?;
        let output = &self.output.bytes()[..len];
        let Some(fold) = &mut self.fold else { return Ok(output) };
        let range = input.offset..input.offset + len as u64;
        let place = || Place {
            range: range.clone(),
            folded: Some(Box::new(Folded { of_piece: true, into_bytes: 0 })),
            ..place()
        };
        fold.accumulator.fill(0);
        let cap = fold.accumulator.len() * 8;
        let mappings = Mappings::new()
            .writable(RegionId::ACCUMULATOR, fold.accumulator.as_mut_bytes())
            .read_only(RegionId::INPUT, output);
        let registers = fold.program.entry_registers(&[0, cap as u64, len as u64]);
        fold.activation.forget();
        let returned = fold
            .activation
            .call(&mappings, registers, &limits)
            .map_err(|stopped| trapped(&fold.program, place(), stopped.trap, budget))?;
        let folded = output_len(&fold.program, returned.value as i64, cap as u64, &fold.why, place)?;
        Ok(&fold.accumulator.as_bytes()[..folded])
    }
}
