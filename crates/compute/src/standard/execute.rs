//! Execute Program: one run of a program over memory ranges, as a command of its own.

use std::sync::Arc;
use std::time::Instant;

use diskside_engine::{CallError, CallLimits, Execution, State, TierChoice};
use diskside_nvme::Status;
use diskside_nvme::wire::memory::MemoryRange;
use diskside_wire::function::{Class, Outcome, Trailer};

use super::StandardCommand;
use super::launch::KernelCommand;
use super::sets::parse_ranges;
use super::state::Standard;
use crate::call::answer::{Answer, Problem};
use crate::call::context::CallContext;
use crate::call::used::Used;
use crate::program::programs::ActiveProgram;

impl Standard {
    /// Execute Program.
    pub(crate) fn execute(&self, context: &Arc<CallContext>, standard: &StandardCommand) -> Result<Answer, Problem> {
        let compute = &context.environment;
        let (command, data, cancel) = (standard.sqe.execution(), &standard.data, &standard.control.cancel);
        if command.rsid != 0 && command.ranges != 0 {
            return Err(Problem::in_command(10, "ranges are named by RSID or come with the command, not both"));
        }
        // Linux passes no DLEN on: with data it then means all of it.
        let data_len = if command.data_len == 0 { data.len() } else { command.data_len as usize };
        let data = data.get(..data_len).ok_or_else(|| Problem::in_command(16, "there is less data than DLEN says"))?;
        let ActiveProgram { program, usage } = context.program(command.pind)?;
        let _in_use = usage.begin()?;
        standard.uses(context, Used::program(&program.credentials()))?;
        let inline_len = command.ranges as usize * size_of::<MemoryRange>();
        let ranges = match command.rsid {
            0 if command.ranges <= super::sets::RANGES_MAX.into() && inline_len > data.len() => {
                return Err(Problem::in_command(12, "the data is shorter than its ranges"));
            }
            0 => parse_ranges(data, command.ranges)?,
            rsid => self.sets().get(&context.host.nqn, rsid)?,
        };
        let data = &data[inline_len..];
        let places = self.check_ranges(&ranges)?;
        if let (Err(_), Ok(kernel)) = (program.function(None), program.kernel(None)) {
            let launched = KernelCommand { program: &program, kernel, places: &places, data, data_at: inline_len };
            return self.launch(context, standard, &launched);
        }
        let function = self.functions.get(compute.engine.helpers(), &program)?;
        let (cparam1, cparam2) = (command.cparam1, command.cparam2);
        let state = if function.is_in_place() { state_of(context, cparam1, cparam2)? } else { None };
        if let Some(state) = &state {
            standard.uses(context, Used::State(state.clone()))?;
        }
        let mut guard = self.lock(&places, standard.until)?;
        let ranges = guard.parts().into_iter().map(|part| (self.nsid, part)).collect();
        let deadline = Some(self.execution_max);
        let limits = CallLimits { deadline, cancel: Some(cancel.clone()), ..CallLimits::default() };
        let until = Instant::now() + self.execution_max;
        let turn = context.turn(Class::Normal, cancel.clone(), until);
        let turns = Some(compute.turns(turn, &Arc::default()));
        let tier = TierChoice::Best;
        let bytes = places.iter().map(|place| place.len() as u64).sum();
        let begun = Instant::now();
        let execution = Execution { function: &function, ranges, data, cparam1, cparam2, state, tier, limits, turns };
        let executed = compute.engine.execute(execution);
        let mut trailer = Trailer::new(if executed.is_ok() { Outcome::Ok } else { Outcome::Refused });
        trailer.media_read = bytes;
        trailer.times.run_us = u32::try_from(begun.elapsed().as_micros()).unwrap_or(u32::MAX);
        trailer.message = executed.as_ref().err().map(ToString::to_string).unwrap_or_default();
        context.tell_ran(&program, function.name(), &trailer, None);
        match executed {
            Ok(returned) => Ok(Answer::success().with_result(returned)),
            Err(_) if cancel.is_cancelled() => Err(Status::COMMAND_ABORT_REQUESTED.into()),
            Err(error @ (CallError::BadRanges { .. } | CallError::BadArgs { .. })) => {
                Err(Problem::new(Status::INVALID_FIELD.dnr(), error.to_string()))
            }
            Err(error) => Err(Problem::new(Status::FUNCTION_FAILED.dnr(), error.to_string())),
        }
    }
}

/// The state that an execution names by its parameters: CPARAM1 is its number, CPARAM2 its length in bytes.
fn state_of(context: &CallContext, id: u64, len_bytes: u64) -> Result<Option<State>, Problem> {
    match (id, len_bytes) {
        (0, 0) => Ok(None),
        (_, 0) => {
            Err(Problem::in_command(48, "CPARAM2 is the length of the state that CPARAM1 names, at least 1 byte"))
        }
        _ => context.host.state_by_id(id, len_bytes, context.shared_states()).map(Some),
    }
}
