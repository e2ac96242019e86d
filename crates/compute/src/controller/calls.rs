//! Function Calls of one controller: prepared requests, run here or on a thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_wire::function::{Class, Outcome, Trailer};

use super::{Answers, Association, Kept, PENDING_GRACE, Pending};
use crate::call::answer::SHORT_LEN_MAX;
use crate::call::command::CallCommand;
use crate::call::control::Control;
use crate::call::job;
use crate::call::prepared;
use crate::call::trailer;
use crate::reactors::Name;
use crate::schedule::quota::PART_BYTES;

impl Association {
    /// A Function Call.
    pub(crate) fn call(self: &Arc<Self>, now: Instant, name: Name, sqe: &Sqe, here: &mut Answers) {
        let command = match CallCommand::parse(sqe) {
            Ok(command) => command,
            Err(problem) => return self.answer(name, problem.into(), here),
        };
        let found = {
            let table = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
            table.all.get(&command.handle).cloned()
        };
        let prepared = match found {
            Some(Kept::Call(prepared)) => prepared,
            Some(Kept::Traverse(plan)) => return self.call_traversal(now, name, command, plan, here),
            None => return self.answer(name, Status::UNKNOWN_HANDLE.dnr().into(), here),
        };
        if let Err(problem) = prepared.plan.check(&self.context) {
            return self.answer(name, problem.into(), here);
        }
        let in_use = match prepared.plan.usage.begin() {
            Ok(in_use) => in_use,
            Err(status) => return self.answer(name, status.into(), here),
        };
        if let Some(answer) = prepared.run_small(&self.context, &command) {
            return self.answer(name, answer, here);
        }
        let (class, memory) = (prepared.plan.request.class, prepared.plan.memory());
        let writes = !prepared.plan.sinks.is_empty();
        let work = move |me: &Arc<Self>, control: &Arc<Control>, queued| {
            let (context, events) = (&me.context, Arc::clone(me) as _);
            let ran = job::run_prepared(context, events, &prepared.plan, &command, control, queued, in_use);
            prepared.runs.counted(&ran.1);
            ran
        };
        self.call_on_thread(name, &command, now, (class, memory, writes), work, here);
    }

    /// A Function Call that a thread of the pool runs: of a class, with so much memory, and perhaps writing. What time it had before
    /// it came to a thread, it had.
    pub(crate) fn call_on_thread(
        self: &Arc<Self>,
        name: Name,
        command: &CallCommand,
        arrived: Instant,
        (class, memory, writes): (Class, u64, bool),
        work: impl FnOnce(&Arc<Self>, &Arc<Control>, Instant) -> (Vec<u8>, Trailer) + Send + 'static,
        here: &mut Answers,
    ) {
        let (me, command, control) = (Arc::clone(self), *command, Arc::<Control>::default());
        let until = arrived + command.timeout;
        let pending = Pending { name, until: Some(until), begun: false, writes, len: command.len, control };
        let control = Arc::clone(&pending.control);
        let run = Box::new(move || {
            if !me.begin_pending(name, until) {
                return;
            }
            let ran = catch_unwind(AssertUnwindSafe(|| work(&me, &control, arrived)));
            let (result, trailer) = ran.unwrap_or_else(|_| (Vec::new(), trailer::bug()));
            let mut answer = prepared::answer(&result, trailer, command.len);
            drop(result);
            let len = answer.uncharged_len();
            if len > SHORT_LEN_MAX {
                let is_unwanted = || control.cancel.is_cancelled();
                match me.context.hold_until(len + PART_BYTES, until, is_unwanted, || true) {
                    Ok(holding) => answer.charge(holding),
                    Err(no_room) => {
                        answer = prepared::answer(&[], trailer::without_room(&no_room, is_unwanted()), command.len);
                    }
                }
            }
            if let Some(pending) = me.take_pending(name) {
                if let Some(lost) = pending.control.lost() {
                    answer = prepared::answer(&[], lost.trailer(), command.len);
                }
                me.answer(name, answer, &mut Answers::default());
            }
        });
        {
            let mut calls = self.lock();
            calls.pending.push(pending);
            self.arm(&mut calls);
        }
        let submitted = self.context.submit(class.into(), memory, run);
        if !submitted && self.take_pending(name).is_some() {
            self.answer(name, Status::FUNCTION_BUSY.into(), here);
        }
    }

    /// Whether a Function Call is to be run: it is not answered yet, and its time is not over.
    fn begin_pending(self: &Arc<Self>, name: Name, until: Instant) -> bool {
        let mut calls = self.lock();
        let Some(at) = calls.pending.iter().position(|pending| pending.name == name) else { return false };
        if Instant::now() >= until {
            calls.pending.swap_remove(at);
            drop(calls);
            self.answer(name, Status::FUNCTION_BUSY.into(), &mut Answers::default());
            return false;
        }
        let pending = &mut calls.pending[at];
        pending.begun = true;
        pending.until = Some(until + PENDING_GRACE);
        true
    }

    /// A Function Call that is still to be answered; it is not any more.
    fn take_pending(&self, name: Name) -> Option<Pending> {
        let mut calls = self.lock();
        let at = calls.pending.iter().position(|pending| pending.name == name);
        at.map(|at| calls.pending.swap_remove(at))
    }

    /// Answers Function Calls whose time is over. No engine has begun those that are *Function Resources Busy*: only
    /// these may be sent again.
    pub(crate) fn end_pending(self: &Arc<Self>, now: Instant) {
        let mut ended = Vec::new();
        self.lock().pending.retain_mut(|pending| {
            if pending.until.is_none_or(|until| until > now) {
                return true;
            }
            if !pending.begun {
                ended.push((pending.name, Status::FUNCTION_BUSY.into()));
                return false;
            }
            pending.control.stop();
            // Its answer says that nothing is being written any more.
            if pending.writes {
                pending.until = None;
                return true;
            }
            let told = "the deadline passed while the call waited for a medium, or for an engine to go on";
            ended.push((pending.name, prepared::answer(&[], trailer::simple(Outcome::Deadline, told), pending.len)));
            false
        });
        for (name, answer) in ended {
            self.answer(name, answer, &mut Answers::default());
        }
    }

    /// Answers Function Calls that use what their host may not use any more.
    pub(super) fn end_lost(self: &Arc<Self>) {
        let mut ended = Vec::new();
        self.lock().pending.retain_mut(|pending| {
            let Some(lost) = pending.control.check_rights(&self.context) else { return true };
            // As with one whose time is over.
            if pending.writes && pending.begun {
                return true;
            }
            ended.push((pending.name, prepared::answer(&[], lost.trailer(), pending.len)));
            false
        });
        for (name, answer) in ended {
            self.answer(name, answer, &mut Answers::default());
        }
    }

    /// A connection is gone, or the target stops: calls of the controller end, and those of that connection are not begun.
    pub(crate) fn stop_pending(&self, serial: u64) {
        self.lock().pending.retain(|pending| {
            pending.control.stop();
            pending.name.serial != serial
        });
    }

    /// The host gave up on a command: if it is a Function Call, it ends.
    pub(crate) fn abort_pending(&self, name: Name) {
        self.lock().pending.iter().filter(|pending| pending.name == name).for_each(|pending| pending.control.stop());
    }
}
