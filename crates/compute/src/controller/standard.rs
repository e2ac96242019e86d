//! Standard computing commands of one controller: they may wait, so threads of the pool have them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use diskside_nvme::Status;
use diskside_sbpf::machine::CancelToken;

use super::{Answers, Association, Command, guarded};
use crate::call::answer::{Problem, SHORT_LEN_MAX};
use crate::call::context::CallContext;
use crate::call::control::Control;
use crate::reactors::Name;
use crate::schedule::pool::WorkClass;
use crate::schedule::quota::{HostBytes, PART_BYTES};
use crate::standard::{Standard, StandardCommand};

/// The commands that are queued or run: what stops them.
#[derive(Debug, Default)]
pub(crate) struct Stops(Mutex<Vec<Stop>>);

#[derive(Debug)]
struct Stop {
    name: Name,
    control: Arc<Control>,
    /// When it is answered if no thread has it by then; `None`: one has.
    until: Option<Instant>,
}

impl Stops {
    fn queued(&self, name: Name, until: Instant) -> Arc<Control> {
        self.add(name, Some(until))
    }

    /// A thread has the command, or will: it is answered when that is done.
    pub(super) fn taken(&self, name: Name) -> CancelToken {
        self.add(name, None).cancel.clone()
    }

    fn add(&self, name: Name, until: Option<Instant>) -> Arc<Control> {
        let control = Arc::<Control>::default();
        self.lock().push(Stop { name, control: Arc::clone(&control), until });
        control
    }

    /// A thread has the command. False: it was answered.
    fn begin(&self, name: Name) -> bool {
        let mut stops = self.lock();
        let found = stops.iter_mut().find(|stop| stop.name == name);
        found.map(|stop| stop.until = None).is_some()
    }

    pub(super) fn end(&self, name: Name) {
        self.lock().retain(|stop| stop.name != name);
    }

    /// Stops one command; one that is not there has ended.
    pub(crate) fn stop(&self, name: Name) {
        self.lock().iter().filter(|stop| stop.name == name).for_each(|stop| stop.control.stop());
    }

    /// Stops those that use what their host may not use any more.
    pub(crate) fn stop_lost(&self, context: &CallContext) {
        self.lock().iter().for_each(|stop| {
            stop.control.check_rights(context);
        });
    }

    /// Stops all of them.
    pub(crate) fn stop_all(&self) {
        self.lock().iter().for_each(|stop| stop.control.stop());
    }

    /// When the next one has waited for too long.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.lock().iter().filter_map(|stop| stop.until).min()
    }

    /// Those that have: they are not begun any more.
    pub(crate) fn expired(&self, now: Instant) -> Vec<Name> {
        let is_late = |stop: &mut Stop| stop.until.is_some_and(|until| until <= now);
        self.lock().extract_if(.., is_late).map(|stop| stop.name).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Stop>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Association {
    /// A standard computing command. One that no thread has in time is answered without being begun, so that none stays open
    /// for as long as its host's other calls like.
    pub(crate) fn standard(self: &Arc<Self>, command: Command, here: &mut Answers) {
        let Command { name, sqe, admin, data, .. } = command;
        // What an admin command asks takes milliseconds.
        let class = if admin { WorkClass::Prompt } else { WorkClass::Normal };
        let data = match self.context.host.account.hold(data.len() + PART_BYTES) {
            Ok(holding) => HostBytes::new(data, holding),
            Err(no_room) => return self.answer(name, Problem::busy(no_room).into(), here),
        };
        let until = Instant::now() + Standard::wait_max(&self.context.environment);
        let control = self.stops.queued(name, until);
        self.arm(&mut self.lock());
        let command = StandardCommand::new(sqe, admin, data, (Arc::clone(&control), until));
        let memory = command.memory(&self.context);
        let me = Arc::clone(self);
        let run = Box::new(move || {
            if !me.stops.begin(name) {
                return;
            }
            let mut answer = guarded(|| Standard::run(&me.context, &command)).unwrap_or_else(Into::into);
            drop(command);
            let (len, cancel) = (answer.uncharged_len(), &control.cancel);
            // The answer to an admin command does not wait for a host that reads nothing.
            if !admin && len > SHORT_LEN_MAX {
                match me.context.hold_until(len + PART_BYTES, until, || cancel.is_cancelled(), || true) {
                    Ok(holding) => answer.charge(holding),
                    Err(_) if cancel.is_cancelled() => answer = Status::COMMAND_ABORT_REQUESTED.into(),
                    Err(no_room) => answer = Problem::new(Status::COMMAND_INTERRUPTED, no_room.to_string()).into(),
                }
            }
            me.stops.end(name);
            // Looked at here: one that waited for a state has it at once from a call that ended with its right, and may end before
            // it is told itself.
            if let Some(lost) = control.check_rights(&me.context) {
                answer = lost.problem().into();
            }
            me.answer(name, answer, &mut Answers::default());
        });
        if !self.context.submit(class, memory, run) {
            self.stops.end(name);
            self.answer(name, Status::FUNCTION_BUSY.into(), here);
        }
    }
}
