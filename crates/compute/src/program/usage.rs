//! Whether a program may run, and how often it does right now.
//!
//! An executing program is not unloaded, and one that was deactivated or unloaded begins no execution any more: neither
//! by a new request nor by a prepared one. Both are decided by one word, so nothing comes in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use diskside_nvme::Status;

/// Shared by the place of a loaded program and everything that may run it.
#[derive(Debug)]
pub struct Usage(AtomicU64);

/// One execution of a program, from when its command was accepted until the program has stopped.
#[derive(Debug)]
pub struct InUse(Arc<Usage>);

/// The low bits count executions.
const INACTIVE: u64 = 1 << 62;
const UNLOADED: u64 = 1 << 63;
const COUNT: u64 = INACTIVE - 1;

impl Usage {
    pub(crate) fn new(active: bool) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(if active { 0 } else { INACTIVE })))
    }

    /// An execution begins.
    ///
    /// # Errors
    /// The program was deactivated or unloaded.
    pub fn begin(self: &Arc<Self>) -> Result<InUse, Status> {
        let counted = |state: u64| (state & !COUNT == 0).then_some(state + 1);
        match self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, counted) {
            Ok(_) => Ok(InUse(Arc::clone(self))),
            Err(state) if state & UNLOADED != 0 => Err(Status::NO_PROGRAM.dnr()),
            Err(_) => Err(Status::PROGRAM_NOT_ACTIVATED.dnr()),
        }
    }

    pub(crate) fn set_active(&self, active: bool) {
        if active {
            self.0.fetch_and(!INACTIVE, Ordering::Release);
        } else {
            self.0.fetch_or(INACTIVE, Ordering::Release);
        }
    }

    /// No execution begins any more.
    ///
    /// # Errors
    /// Some run, so many; nothing changes.
    pub(crate) fn unload(&self) -> Result<(), u64> {
        let ended = |state: u64| (state & COUNT == 0).then_some(state | UNLOADED);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, ended).map(drop).map_err(|state| state & COUNT)
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_is_not_unloaded_and_what_was_unloaded_does_not_run() {
        let usage = Usage::new(false);
        assert_eq!(usage.begin().unwrap_err(), Status::PROGRAM_NOT_ACTIVATED.dnr());
        usage.set_active(true);
        let (first, second) = (usage.begin().unwrap(), usage.begin().unwrap());
        usage.set_active(false);
        assert_eq!(usage.unload(), Err(2), "deactivating stops nothing that runs");
        assert_eq!(usage.begin().unwrap_err(), Status::PROGRAM_NOT_ACTIVATED.dnr());
        drop(first);
        assert_eq!(usage.unload(), Err(1));
        drop(second);
        assert_eq!(usage.unload(), Ok(()));
        usage.set_active(true);
        assert_eq!(usage.begin().unwrap_err(), Status::NO_PROGRAM.dnr());
    }
}
