//! Traversals of one controller: where each of them runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use diskside_wire::function::{FunctionRequest, Outcome, Trailer};

use super::program::not_compiled;
use super::{Answers, Association, Kept};
use crate::call::answer::{Answer, Piece, Problem};
use crate::call::command::CallCommand;
use crate::call::context::{CallContext, CallEvents};
use crate::call::control::Control;
use crate::call::prepared;
use crate::call::tags::{Effect, Tags, Waiter};
use crate::call::trailer;
use crate::call::traverse::{LANES_MAX, Lane, Progress, Running, Share, TraversePlan, WaitingCall, of_traverse};
use crate::call::used::Lost;
use crate::program::usage::InUse;
use crate::reactors::Name;
use crate::schedule::quota::{Holding, PART_BYTES};

impl Association {
    /// Starts a traversal: here, if all of it is in memory.
    pub(crate) fn traverse(
        self: &Arc<Self>,
        tag: u64,
        waiter: Waiter<Name>,
        send_len: u32,
        (request, holding): (FunctionRequest, Holding),
        control: &Arc<Control>,
        share: &mut Share,
    ) -> Vec<Effect<Name>> {
        let planned = TraversePlan::new(&self.context, request, holding);
        let begun = planned.and_then(|plan| plan.usage.begin().map(|in_use| (plan, in_use)).map_err(Problem::from));
        let (plan, in_use) = match begun {
            Ok((plan, in_use)) => (Arc::new(plan), in_use),
            Err(problem) => return self.effects_of(|tags| tags.refused(tag, waiter, problem)),
        };
        let mut effects = self.effects_of(|tags| tags.accepted(tag, waiter, send_len));
        let (started, class, memory) = (Instant::now(), plan.request.class, plan.memory());
        self.context.add(|statistics| &statistics.started, 1);
        // Its result may wait here for its host, which may lose a right meanwhile.
        if let Err(lost) = control.uses(&self.context, plan.used(&self.context)) {
            effects.extend(self.effects_of(|tags| tags.ended(Instant::now(), tag, lost.trailer())));
            return effects;
        }
        // Without room for its result a thread runs it, which can wait.
        if let Ok(mut room) = self.context.host.account.hold(plan.scratch_len() + PART_BYTES)
            && let Some((result, trailer)) = plan.run_now(&self.context, started, share)
        {
            plan.tell_ran(&self.context, &trailer);
            room.shrink(result.len() + PART_BYTES);
            let piece = Piece::held(result, room);
            effects.extend(self.effects_of(|tags| traversed(tags, &self.context, &plan, tag, piece, trailer)));
            return effects;
        }
        let (me, control) = (Arc::clone(self), Arc::clone(control));
        let cancel = control.cancel.clone();
        let run = Box::new(move || {
            let run = || plan.run_waiting(&me.context, &plan.request.args, &control, started + plan.deadline());
            let (mut result, mut trailer) =
                catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| (Vec::new(), trailer::bug()));
            drop(in_use);
            let until = started + plan.deadline();
            let is_unwanted = || control.cancel.is_cancelled();
            let (len, is_asked_for) = (result.len() + PART_BYTES, || me.is_asked_for(tag));
            let piece = match me.context.hold_until(len, until, is_unwanted, is_asked_for) {
                Ok(holding) => Piece::held(result, holding),
                Err(no_room) => {
                    result.clear();
                    trailer = trailer::without_room(&no_room, is_unwanted());
                    Piece::of(result)
                }
            };
            plan.tell_ran(&me.context, &trailer);
            me.with_tags(&mut Answers::default(), |tags| {
                traversed(tags, &me.context, &plan, tag, piece, trailer);
            });
        });
        if !self.context.submit_call(class.into(), memory, cancel, run) {
            let told = "this host has too many calls waiting for an engine";
            self.ended(Instant::now(), tag, trailer::simple(Outcome::Refused, told));
        }
        effects
    }

    pub(crate) fn prepare_traversal(
        self: &Arc<Self>,
        tag: u64,
        waiter: Waiter<Name>,
        request: FunctionRequest,
        holding: Holding,
    ) -> Vec<Effect<Name>> {
        let plan = match TraversePlan::new(&self.context, request, holding) {
            Ok(plan) => plan.prepared(&self.context),
            Err(problem) => return self.effects_of(|tags| tags.refused(tag, waiter, problem)),
        };
        let (me, name, class) = (Arc::clone(self), waiter.name, plan.request.class);
        let run = Box::new(move || {
            let made = me.compiling(name, class, |turns| match plan.compile(&me.context.environment, turns) {
                Ok(()) => Ok(me.keep(Kept::Traverse(Arc::new(plan)))),
                Err(error) => Err(not_compiled(&error)),
            });
            me.prepared(tag, waiter, made.flatten());
        });
        self.submit_or_refuse(tag, waiter, run)
    }

    /// A Function Call of a traversal. It waits for its turn on this reactor: [`run_calls`](Self::run_calls).
    pub(crate) fn call_traversal(
        self: &Arc<Self>,
        now: Instant,
        name: Name,
        command: CallCommand,
        plan: Arc<TraversePlan>,
        here: &mut Answers,
    ) {
        let rights_version = self.context.rights_version();
        if let Err(problem) = plan.check(&self.context) {
            return self.answer(name, problem.into(), here);
        }
        let in_use = match plan.usage.begin() {
            Ok(in_use) => in_use,
            Err(status) => return self.answer(name, status.into(), here),
        };
        here.waiting.push_back(WaitingCall { name, command, plan, arrived: now, in_use, rights_version });
    }

    /// Begins a Call. One in memory continues beside others.
    fn begin_call(self: &Arc<Self>, call: WaitingCall, here: &mut Answers) {
        let WaitingCall { name, command, plan, arrived, in_use, rights_version } = call;
        if here.share.lanes_left <= here.lanes.ready() {
            return self.call_traversal_on_thread(name, command, plan, (arrived, in_use), here);
        }
        let deadline = arrived + command.timeout.min(plan.deadline());
        let fill = |args: &mut Vec<u8>| command.fill_args(&plan.request.args, args);
        match Running::begin(Arc::clone(&plan), &self.context, fill, deadline, &mut here.share) {
            None => self.call_traversal_on_thread(name, command, plan, (arrived, in_use), here),
            Some((running, Progress::Goes)) => {
                here.lanes.push(Lane { name, command, running, arrived, in_use, rights_version });
            }
            Some((running, ended)) => {
                self.end_call(Lane { name, command, running, arrived, in_use, rights_version }, &ended, here);
            }
        }
    }

    /// Begins calls that wait, and takes steps until one has ended. False: nothing happened, since there is nothing to
    /// do, the share is used up, or none can take a step now.
    pub fn run_calls(self: &Arc<Self>, here: &mut Answers) -> bool {
        self.end_lost_calls(here);
        let mut has_begun = false;
        while here.lanes.ready() < LANES_MAX
            && here.share.has_work()
            && let Some(call) = here.waiting.pop_front()
        {
            self.begin_call(call, here);
            has_begun = true;
        }
        match here.lanes.run(&mut here.share) {
            Some((lane, ended)) => self.end_call(lane, &ended, here),
            None => return has_begun,
        }
        true
    }

    /// A call on this reactor has come to its end, here or as a whole.
    fn end_call(self: &Arc<Self>, lane: Lane, ended: &Progress, here: &mut Answers) {
        if matches!(ended, Progress::Done | Progress::Failed(_))
            && let Some(lost) = self.lost_since(lane.rights_version, &lane.running.plan)
        {
            return self.end_lost_call(lane, &lost, here);
        }
        let Lane { name, command, running, arrived, in_use, .. } = lane;
        let (has_ended, trailer) = match ended {
            Progress::Done => (true, None),
            Progress::Failed(error) => (true, Some(of_traverse(error))),
            Progress::Goes | Progress::Busy | Progress::Waits | Progress::Elsewhere => (false, None),
        };
        if has_ended && let Some(runs) = &running.plan.runs {
            runs.ended(&trailer.unwrap_or_else(|| running.trailer()));
        }
        let answer = match ended {
            // Most often: the result fills the buffer, and no trailer is sent.
            Progress::Done if running.result().len() == command.len as usize => {
                Answer::copied(running.result().to_vec())
            }
            Progress::Done => prepared::answer(running.result(), running.trailer(), command.len),
            Progress::Failed(error) => prepared::answer(&[], of_traverse(error), command.len),
            Progress::Goes | Progress::Busy | Progress::Waits | Progress::Elsewhere => {
                return self.call_traversal_on_thread(name, command, running.give_back(), (arrived, in_use), here);
            }
        };
        running.give_back();
        here.calls += 1;
        self.answer(name, answer, here);
    }

    /// Ends calls that use what their host may not use any more. One that waits for a read is found when that has ended.
    fn end_lost_calls(self: &Arc<Self>, here: &mut Answers) {
        let version = self.context.rights_version();
        if std::mem::replace(&mut here.rights_version, version) == version {
            return;
        }
        for (lane, lost) in here.lanes.take_lost(|lane| self.lost_since(lane.rights_version, &lane.running.plan)) {
            self.end_lost_call(lane, &lost, here);
        }
    }

    fn end_lost_call(&self, lane: Lane, lost: &Lost, here: &mut Answers) {
        let plan = lane.running.give_back();
        if let Some(runs) = &plan.runs {
            runs.ended(&lost.trailer());
        }
        here.calls += 1;
        self.answer(lane.name, prepared::answer(&[], lost.trailer(), lane.command.len), here);
    }

    /// Why a call may not continue that began when its host's rights had this version.
    fn lost_since(&self, rights_version: u64, plan: &TraversePlan) -> Option<Lost> {
        let used = || plan.used(&self.context);
        let has_changed = self.context.rights_version() != rights_version;
        has_changed.then(used)?.iter().find_map(|used| used.lost(&self.context))
    }

    /// Ends calls that have waited for a medium for too long.
    pub fn end_late_calls(self: &Arc<Self>, now: Instant, here: &mut Answers) {
        for (lane, ended) in here.lanes.take_late(now) {
            self.end_call(lane, &ended, here);
        }
    }

    /// The host gave up on a command: a call that has begun, or waits for its turn, ends.
    pub(crate) fn abort_call(self: &Arc<Self>, name: Name, here: &mut Answers) {
        let len = if let Some(at) = here.waiting.iter().position(|call| call.name == name) {
            here.waiting.remove(at).map(|call| call.command.len)
        } else {
            here.lanes.take_named(name).map(|lane| {
                lane.running.give_back();
                lane.command.len
            })
        };
        if let Some(len) = len {
            let trailer = trailer::simple(Outcome::Cancelled, "the host aborted the call");
            self.answer(name, prepared::answer(&[], trailer, len), here);
        }
    }

    fn call_traversal_on_thread(
        self: &Arc<Self>,
        name: Name,
        command: CallCommand,
        plan: Arc<TraversePlan>,
        (arrived, in_use): (Instant, InUse),
        here: &mut Answers,
    ) {
        let (class, memory) = (plan.request.class, plan.memory());
        let work = move |me: &Arc<Self>, control: &Arc<Control>, arrived: Instant| {
            let deadline = arrived + command.timeout.min(plan.deadline());
            let ran = plan.run_waiting(&me.context, &command.args(&plan.request.args), control, deadline);
            drop(in_use);
            if let Some(runs) = &plan.runs {
                runs.ended(&ran.1);
            }
            ran
        };
        self.call_on_thread(name, &command, arrived, (class, memory, false), work, here);
    }
}

/// A traversal has ended.
fn traversed(
    tags: &mut Tags<Name>,
    context: &CallContext,
    plan: &TraversePlan,
    tag: u64,
    result: Piece,
    mut trailer: Trailer,
) {
    trailer.result_len = result.len() as u64;
    context.count_call(&trailer, plan.function_id(), 0, 0);
    if !result.is_empty() {
        tags.produced(tag, result);
    }
    tags.ended(Instant::now(), tag, trailer);
}
