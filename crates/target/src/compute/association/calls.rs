//! Function Calls of one controller: prepared requests, run here or on a thread.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_nvme::wire::function::{Class, Trailer};

use super::{Answers, Association, Kept, Name, PENDING_GRACE};
use crate::compute::job;
use crate::compute::pool::Work;
use crate::compute::prepared::{self, CallCommand};

impl Association {
    /// A Function Call.
    pub(super) fn call(self: &Arc<Self>, now: Instant, name: Name, sqe: &Sqe, here: &mut Answers) {
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
        let in_use = match prepared.plan.usage.begin() {
            Ok(in_use) => in_use,
            Err(status) => return self.answer(name, status.into(), here),
        };
        if let Some(answer) = prepared.run_small(&self.compute, &command) {
            return self.answer(name, answer, here);
        }
        let (class, memory) = (prepared.plan.request.class, prepared.plan.memory());
        let work = move |me: &Arc<Self>, queued| job::run_prepared(me, &prepared.plan, &command, queued, in_use);
        self.call_on_thread(name, &command, class, memory, work, here);
    }

    /// A Function Call that a thread of the pool runs.
    pub(super) fn call_on_thread(
        self: &Arc<Self>,
        name: Name,
        command: &CallCommand,
        class: Class,
        memory: u64,
        work: impl FnOnce(&Arc<Self>, Instant) -> (Vec<u8>, Trailer) + Send + 'static,
        here: &mut Answers,
    ) {
        let (me, queued, command) = (Arc::clone(self), Instant::now(), *command);
        let run = Box::new(move || {
            if !me.lock().pending.iter().any(|(_, pending)| *pending == name) {
                return;
            }
            let (result, trailer) = work(&me, queued);
            me.compute.statistics.prepared_calls.fetch_add(1, Ordering::Relaxed);
            if me.take_pending(name) {
                me.answer(name, prepared::answer(&result, trailer, command.len), &mut Answers::default());
            }
        });
        {
            let mut calls = self.lock();
            // The engine ends it in time; who is never given to one has this.
            calls.pending.push((queued + command.timeout + PENDING_GRACE, name));
            self.arm(&mut calls);
        }
        let submitted = self.compute.pool.submit(Work { host: self.host.id, class, memory, run });
        if !submitted && self.take_pending(name) {
            self.answer(name, Status::FUNCTION_BUSY.into(), here);
        }
    }

    /// Whether a Function Call is still to be answered; it is not any more.
    fn take_pending(&self, name: Name) -> bool {
        let mut calls = self.lock();
        let at = calls.pending.iter().position(|(_, pending)| *pending == name);
        at.map(|at| calls.pending.swap_remove(at)).is_some()
    }
}
