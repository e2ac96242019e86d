//! Standard computing commands of one controller: they may wait, so threads of the pool have them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use diskside_nvme::Status;
use diskside_sbpf::machine::CancelToken;

use super::{Answers, Association, Command, Name, guarded};
use crate::compute::pool::Work;
use crate::compute::standard::{Standard, StandardCommand};

/// What stops the commands that are queued or run.
#[derive(Debug, Default)]
pub(super) struct Stops(Mutex<Vec<(Name, CancelToken)>>);

impl Stops {
    fn begin(&self, name: Name) -> CancelToken {
        let token = CancelToken::new();
        self.lock().push((name, token.clone()));
        token
    }

    fn end(&self, name: Name) {
        self.lock().retain(|(other, _)| *other != name);
    }

    /// Stops one command; one that is not there has ended.
    pub(super) fn stop(&self, name: Name) {
        self.lock().iter().filter(|(other, _)| *other == name).for_each(|(_, token)| token.cancel());
    }

    /// Stops all of them.
    pub(super) fn stop_all(&self) {
        self.lock().iter().for_each(|(_, token)| token.cancel());
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Name, CancelToken)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Association {
    /// A standard computing command.
    pub(super) fn standard(self: &Arc<Self>, command: Command, here: &mut Answers) {
        let Command { name, sqe, admin, data, .. } = command;
        let memory = data.len() as u64 + u64::from(sqe.sgl().len());
        let cancel = self.stops.begin(name);
        let command = StandardCommand::new(sqe, admin, data, cancel);
        let me = Arc::clone(self);
        let run = Box::new(move || {
            let answer = guarded(|| Standard::run(&me, &command)).unwrap_or_else(Into::into);
            me.stops.end(name);
            me.answer(name, answer, &mut Answers::default());
        });
        if !self.compute.pool.submit(Work { host: self.host.id, class: Default::default(), memory, run }) {
            self.stops.end(name);
            self.answer(name, Status::FUNCTION_BUSY.into(), here);
        }
    }
}
