//! Standard executions: one run of a program over memory ranges, as NVMe's Execute Program asks for.

use crate::call::{CallError, CallLimits, Place};
use crate::code::{CodeCache, OnMiss, TierChoice};
use crate::context::Context;
use crate::environment::{CallEnvironment, Log};
use crate::function::Function;
use crate::state::State;
use crate::turns::{Turns, in_turn};
use crate::worker::{trap_before, trapped};
use diskside_abi::context::{DsCall, DsExec, DsRange, FLAG_FIRST, FLAG_LAST, PERM_READ, PERM_WRITE, UNKNOWN};
use diskside_io::buffer::Buffer;
use diskside_sbpf::activation::{Activation, ActivationOptions, Limits, Mappings, Ranges};
use diskside_sbpf::image::Kind;
use diskside_sbpf::region::RegionId;
use std::sync::Arc;
use std::time::Instant;
use zerocopy::IntoBytes;

/// One execution.
///
/// A program of kind `exec` sees all ranges and the data, which is range 0. A program that runs over bytes (`read`,
/// `write`, `lambda`, `lambda_io`) gets range 1 as its input, range 2 as its output, and the data as its arguments. One that
/// works in place (`delilah`) gets the one range and the state.
#[derive(Debug)]
pub struct Execution<'a> {
    /// What runs.
    pub function: &'a Function,
    /// Memory ranges, from range 1 on, each with its namespace.
    pub ranges: Vec<(u32, &'a mut [u8])>,
    /// The data that came with the command.
    pub data: &'a [u8],
    /// First parameter of the command.
    pub cparam1: u64,
    /// Second parameter of the command.
    pub cparam2: u64,
    /// What a program that works in place finds again.
    pub state: Option<State>,
    /// Which tier runs it.
    pub tier: TierChoice,
    /// When to stop it.
    pub limits: CallLimits,
    /// Who says when it may compute.
    pub turns: Option<Arc<dyn Turns>>,
}

/// Most memory ranges of an execution: the data takes one window, too.
pub const EXECUTION_RANGES_MAX: usize = Ranges::MAX - 1;

pub(crate) fn execute(code: &CodeCache, execution: Execution<'_>) -> Result<u64, CallError> {
    let Execution { function, ranges, data, cparam1, cparam2, state, tier, limits, turns } = execution;
    let name = || function.main().entry().section.clone();
    let bad = |what: &'static str| CallError::BadRanges { function: name(), given: ranges.len(), what };
    if ranges.len() > EXECUTION_RANGES_MAX {
        return Err(bad("at most 239 fit"));
    }
    if !function.is_executable() {
        return Err(bad("its kind is not run by an execution"));
    }
    let (exec, in_place) = (function.kind() == Kind::Exec, function.is_in_place());
    match ranges.len() {
        _ if exec => {}
        1 if in_place && data.is_empty() => {}
        _ if in_place => return Err(bad("it takes one, and no data")),
        2 => {}
        _ => return Err(bad("it takes two: its input and its output")),
    }
    if let Some(schema) = function.args()
        && !exec
        && data.len() < schema.len_bytes as usize
    {
        return Err(CallError::BadArgs { given: data.len(), wants: schema.len_bytes, name: schema.name.clone() });
    }
    let started = Instant::now();
    let options = ActivationOptions {
        heap_quota_bytes: limits.heap_quota_bytes,
        environment: Box::new(CallEnvironment::new(Log::default(), turns.clone())),
    };
    let mut activation =
        Activation::new(function.main(), code.get(function.main(), tier, OnMiss::of(turns.as_ref()))?, options);
    let bytes = ranges.iter().map(|(_, range)| range.len() as u64).sum();
    let output_cap = ranges.get(1).map_or(0, |(_, output)| output.len() as u64);
    let mut machine_limits = Limits::for_bytes(bytes, data.len() as u64);
    machine_limits.budget = limits.budget_or(machine_limits.budget);
    machine_limits.deadline = limits.until(started);
    machine_limits.cancel.clone_from(&limits.cancel);
    let turns = turns.as_deref();
    let place = Place { source: "its memory ranges".into(), source_index: 0, range: 0..bytes, folded: None };
    let returned = if in_place {
        let state = state.as_ref().map(|state| state.lock(machine_limits.deadline, machine_limits.cancel.as_ref()));
        let mut state = state
            .transpose()
            .map_err(|kind| trapped(function.main(), place.clone(), trap_before(function.main(), kind), 0))?;
        let state_len = state.as_ref().map_or(0, |state| size_of_val(&**state));
        let mut mappings = Mappings::new();
        for (_, range) in ranges {
            mappings = mappings.writable(RegionId::RANGE_FIRST, range);
        }
        if let Some(state) = &mut state {
            mappings = mappings.writable(RegionId::STATE, state.as_mut_bytes());
        }
        let registers = function.main().entry_registers(&[bytes, state_len as u64]);
        in_turn(turns, || activation.call(&mappings, registers, &machine_limits))
    } else if exec {
        let context = exec_context(&ranges, data.len(), cparam1, cparam2);
        let mut data = Buffer::copy_of(data);
        let mut mapped = Ranges::new();
        mapped.push(&mut data);
        for (_, range) in ranges {
            mapped.push(range);
        }
        let mappings = Mappings::new().read_only(RegionId::CONTEXT, &context).ranges(&mut mapped);
        in_turn(turns, || activation.call(&mappings, function.main().entry_registers(&[]), &machine_limits))
    } else {
        let mut ranges = ranges.into_iter().map(|(_, range)| range);
        let (input, output) = (ranges.next().unwrap_or_default(), ranges.next().unwrap_or_default());
        let in_len = input.len() as u64;
        // All of the input at once.
        let about = DsCall {
            flags: (FLAG_FIRST | FLAG_LAST).into(),
            record_index: UNKNOWN.into(),
            source_len: in_len.into(),
            ..DsCall::default()
        };
        let context = Context::new(function.kind(), in_len, data.len() as u64, output.len() as u64, about);
        let mappings = Mappings::new()
            .read_only(RegionId::INPUT, input)
            .writable(RegionId::OUTPUT, output)
            .read_only(RegionId::ARGS, data)
            .read_only(RegionId::CONTEXT, context.as_bytes());
        in_turn(turns, || activation.call(&mappings, function.main().entry_registers(&[in_len]), &machine_limits))
    };
    match returned {
        // A function over bytes returns how many it wrote, or a negative number.
        Ok(returned) if !exec && !in_place && returned.value > output_cap && returned.value.cast_signed() >= 0 => {
            Err(CallError::OutputFull { function: name(), place, returned: returned.value, cap: output_cap })
        }
        Ok(returned) => Ok(returned.value),
        Err(stopped) => Err(trapped(function.main(), place, stopped.trap, machine_limits.budget)),
    }
}

/// `struct ds_exec` with its ranges, the first of which is the data.
fn exec_context(ranges: &[(u32, &mut [u8])], data_len: usize, cparam1: u64, cparam2: u64) -> Vec<u8> {
    let perm = PERM_READ | PERM_WRITE;
    let range = |index: usize, len: usize, nsid: u32| DsRange {
        addr: RegionId(RegionId::RANGE_FIRST.0 + index as u8).base().into(),
        len: (len as u64).into(),
        perm: perm.into(),
        nsid: nsid.into(),
    };
    let exec = DsExec {
        size: (DsExec::LEN_BYTES as u32).into(),
        nranges: (ranges.len() as u32 + 1).into(),
        cparam1: cparam1.into(),
        cparam2: cparam2.into(),
        data: RegionId::RANGE_FIRST.base().into(),
        data_len: (data_len as u64).into(),
    };
    let mut context = exec.as_bytes().to_vec();
    context.extend_from_slice(range(0, data_len, 0).as_bytes());
    for (index, (nsid, bytes)) in (1..).zip(ranges) {
        context.extend_from_slice(range(index, bytes.len(), *nsid).as_bytes());
    }
    context
}
