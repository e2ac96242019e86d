//! Programs and layouts of a controller: how they come, are verified and are prepared for calls.

use std::collections::btree_map::Entry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use diskside_engine::{CallError, TierError, Turns};
use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_nvme::wire::program_opcode;
use diskside_rights::{Access, Scarce};
use diskside_wire::function::{
    Class, FUNCTION_VERSION, FunctionCommand, FunctionKind, FunctionRequest, LayoutAction, LayoutRequest, WAIT_MAX_MS,
};

use super::{Answers, Association, Kept, guarded};
use crate::call::answer::{Answer, Problem};
use crate::call::plan::Plan;
use crate::call::prepared::Prepared;
use crate::call::tags::{Effect, Waiter};
use crate::environment::Environment;
use crate::limits::PREPARED_MAX;
use crate::program::credentials::why_refused;
use crate::program::slot::Unverified;
use crate::reactors::Name;
use crate::schedule::pool::WorkClass;
use crate::schedule::quota::Holding;

impl Association {
    pub(super) fn prepare(
        self: &Arc<Self>,
        tag: u64,
        waiter: Waiter<Name>,
        request: FunctionRequest,
        holding: Holding,
    ) -> Vec<Effect<Name>> {
        if request.kind == FunctionKind::Traverse {
            return self.prepare_traversal(tag, waiter, request, holding);
        }
        if request.kind == FunctionKind::Launch {
            let problem = Problem::in_data_at(4, "a launch is not prepared: each opens its files anew");
            return self.effects_of(|tags| tags.refused(tag, waiter, problem));
        }
        let plan = match Plan::new(&self.context, request.kind, request) {
            Ok(plan) if plan.sources.iter().any(crate::call::plan::PlannedSource::is_stream) => {
                let problem = Problem::in_data_at(64, "a prepared request has no host stream");
                return self.effects_of(|tags| tags.refused(tag, waiter, problem));
            }
            Ok(plan) => plan,
            Err(problem) => return self.effects_of(|tags| tags.refused(tag, waiter, problem)),
        };
        if let Some(told) = plan.refusal() {
            self.context.host.quota().refuse(Scarce::Memory);
            let problem = Problem::new(Status::INSUFFICIENT_RESOURCES.dnr(), told);
            return self.effects_of(|tags| tags.refused(tag, waiter, problem));
        }
        let (me, name, class) = (Arc::clone(self), waiter.name, plan.request.class);
        let run = Box::new(move || {
            let made = me.compiling(name, class, |turns| match Prepared::new(&me.context, plan, holding, turns) {
                Ok(prepared) => Ok(me.keep(Kept::Call(Arc::new(prepared)))),
                Err(CallError::Tier(error)) => Err(not_compiled(&error)),
                Err(error) => Err(Problem::new(Status::INVALID_PROGRAM_DATA.dnr(), error.to_string())),
            });
            me.prepared(tag, waiter, made.flatten());
        });
        self.submit_or_refuse(tag, waiter, run)
    }

    /// Makes what a prepare asks for, in turns of the host that end when the command is aborted.
    pub(super) fn compiling<T>(
        &self,
        name: Name,
        class: Class,
        make: impl FnOnce(&Arc<dyn Turns>) -> Result<T, Problem>,
    ) -> Result<Result<T, Problem>, Problem> {
        let turn = self.context.turn(class, self.stops.taken(name), Instant::now() + COMPILE_WAIT_MAX);
        let turns = self.context.environment.turns(turn, &Arc::default());
        let made = guarded(|| make(&turns));
        self.stops.end(name);
        made
    }

    /// Ends a prepare: with the handle, without room for one, or with what is wrong.
    pub(super) fn prepared(self: &Arc<Self>, tag: u64, waiter: Waiter<Name>, made: Result<Option<u32>, Problem>) {
        self.with_tags(&mut Answers::default(), |tags| match made {
            Ok(Some(handle)) => tags.done_at_once(tag, waiter, Answer::success().with_result(handle.into())),
            Ok(None) => tags.refused(tag, waiter, Status::FUNCTION_BUSY.into()),
            Err(problem) => tags.refused(tag, waiter, problem),
        });
    }

    pub(super) fn keep(&self, prepared: Kept) -> Option<u32> {
        let mut table = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        if table.all.len() >= PREPARED_MAX {
            return None;
        }
        loop {
            table.last = table.last.wrapping_add(1).max(1);
            let handle = table.last;
            if let Entry::Vacant(free) = table.all.entry(handle) {
                free.insert(prepared);
                return Some(handle);
            }
        }
    }

    /// Layout Send. A Revoke waits for calls, so a thread of the pool has it.
    pub(super) fn layout(self: &Arc<Self>, name: Name, sqe: &Sqe, data: &[u8], here: &mut Answers) {
        if sqe.function_version() != FUNCTION_VERSION {
            return self.answer(name, Problem::in_command(44, "the version is not 1").into(), here);
        }
        if sqe.function_len() as usize != data.len() {
            return self.answer(name, Problem::in_command(40, "LEN is not the length of the data").into(), here);
        }
        let request = match LayoutRequest::decode(data) {
            Ok(request) => request,
            Err(error) => return self.answer(name, Problem::in_data(error).into(), here),
        };
        if request.action != LayoutAction::Revoke {
            let kept = self
                .context
                .volume(request.nsid, Access::Read)
                .and_then(|volume| self.context.host.layouts.keep(volume, &self.context.host.account, request));
            return self.answer(name, kept.map_or_else(Into::into, |()| Answer::success()), here);
        }
        let wait_ms = match sqe.function_timeout_ms() {
            0 => WAIT_MAX_MS,
            asked => asked.min(WAIT_MAX_MS),
        };
        let until = Instant::now() + Duration::from_millis(wait_ms.into());
        let me = Arc::clone(self);
        let run = Box::new(move || {
            let over = guarded(|| me.context.host.layouts.revoke(request.id, request.generation, until));
            let answer = over.map(|over| Answer::success().with_result(u64::from(!over)));
            me.answer(name, answer.unwrap_or_else(Into::into), &mut Answers::default());
        });
        if !self.context.submit(WorkClass::Prompt, 0, run) {
            self.answer(name, Status::FUNCTION_BUSY.into(), here);
        }
    }

    /// Load Program, or Program Activation Management. Gives what is to be verified before it is answered.
    pub(crate) fn program_command(&self, sqe: &Sqe, data: &[u8]) -> Result<Option<Unverified>, Problem> {
        let (host, programs) = (&self.context.host, &self.context.environment.programs);
        if sqe.nsid() != self.context.environment.config.nsid {
            return Err(Status::INVALID_NAMESPACE_OR_FORMAT.dnr().into());
        }
        if sqe.opcode() == program_opcode::ACTIVATION {
            return programs.activation(&host.nqn, sqe).map(|()| None);
        }
        if sqe.unloads_program() {
            let unloaded = programs.unload(&host.nqn, sqe.program_index())?;
            // It may be large, and to free it takes longer than others should wait. Where too much work waits already
            // it is freed here.
            let free = Box::new(move || drop(unloaded));
            self.context.submit(WorkClass::Prompt, 0, free);
            return Ok(None);
        }
        let rights = self.context.rights.now();
        let refuse = |problem: Problem| {
            // An index that another program has is not refused to this host: it tries the next one.
            if !problem.told().is_empty() {
                self.context.tell_loaded(None, sqe.program_len() as usize, Some(problem.told()));
            }
            problem
        };
        if !rights.may_load() {
            return Err(refuse(Problem::new(Status::OPERATION_DENIED.dnr(), NO_PROGRAMS)));
        }
        let loaded = programs.load((&host.nqn, host.quota()), self.id, sqe, data).map_err(refuse)?;
        // Before anything of it is read.
        match loaded.as_ref().and_then(|unverified| why_refused(&unverified.credentials(), &rights)) {
            Some(told) => {
                let refused = loaded.expect("it was just looked at");
                self.context.tell_loaded(Some(refused.sha256()), refused.len_bytes(), Some(&told));
                programs.give_up(refused.place());
                Err(Problem::new(Status::OPERATION_DENIED.dnr(), told))
            }
            None => Ok(loaded),
        }
    }

    /// Verifies a program on a thread of the pool.
    pub(super) fn verify(self: &Arc<Self>, name: Name, unverified: Unverified, here: &mut Answers) {
        let me = Arc::clone(self);
        let (memory, place) = (unverified.len_bytes() as u64 * 16, unverified.place());
        let turn = self.context.turn(Class::Normal, self.stops.taken(name), Instant::now() + COMPILE_WAIT_MAX);
        let run = Box::new(move || {
            let Environment { programs, engine, compilers, .. } = &*me.context.environment;
            let (sha256, len) = (unverified.sha256(), unverified.len_bytes());
            let verify = || compilers.verify(&turn, || programs.verify(engine, unverified));
            let verified = catch_unwind(AssertUnwindSafe(verify));
            me.stops.end(name);
            let not_verified = |problem| {
                programs.give_up(place);
                Err(problem)
            };
            let verified = match verified {
                Ok(Some(verified)) => verified,
                Ok(None) if turn.cancel.is_cancelled() => not_verified(Status::COMMAND_ABORT_REQUESTED.into()),
                Ok(None) => not_verified(Problem::new(Status::COMMAND_INTERRUPTED, "other programs are compiled")),
                Err(_) => not_verified(Problem::new(Status::INTERNAL_ERROR, "the verifier failed: a bug")),
            };
            me.context.tell_loaded(Some(sha256), len, verified.as_ref().err().map(Problem::told));
            me.answer(name, verified.map_or_else(Into::into, |()| Answer::success()), &mut Answers::default());
        });
        if !self.context.submit(WorkClass::Prompt, memory, run) {
            self.stops.end(name);
            self.context.environment.programs.give_up(place);
            self.answer(name, Status::FUNCTION_BUSY.into(), here);
        }
    }
}

/// Why a prepare has no code.
pub(super) fn not_compiled(error: &TierError) -> Problem {
    let status = match error {
        TierError::CallEnded => Status::COMMAND_ABORT_REQUESTED,
        _ => Status::INVALID_PROGRAM_DATA.dnr(),
    };
    Problem::new(status, error.to_string())
}

const NO_PROGRAMS: &str =
    "this host may load no programs, only run those of the server that `diskside functions` lists";

/// How long a load or a prepare waits for compilers that work for other hosts.
const COMPILE_WAIT_MAX: Duration = Duration::from_secs(60);
