//! One io_uring used by two threads: one submits, the other takes completions.

use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue};
use rustix::io::Errno;

use super::RingConfig;
use super::files::Files;
use super::op::{Completion, Held, Op};
use super::uring::{InFlight, build, outcome};
use crate::slab::{Key, Slab};

/// The thread that submits.
pub(crate) struct SubmissionHalf {
    shared: Arc<Shared>,
}

/// The thread that takes completions.
pub(crate) struct CompletionHalf {
    shared: Arc<Shared>,
    ready: VecDeque<cqueue::Entry>,
}

struct Shared {
    uring: ManuallyDrop<IoUring>,
    slots: ManuallyDrop<Mutex<Slab<InFlight>>>,
}

/// A new io_uring for two threads. Operations that complete more than once are not for it.
pub(crate) fn split(config: &RingConfig) -> io::Result<(SubmissionHalf, CompletionHalf)> {
    let shared = Arc::new(Shared {
        uring: ManuallyDrop::new(build(config, false)?),
        slots: ManuallyDrop::new(Mutex::new(Slab::with_capacity(config.entries as usize))),
    });
    let completion = CompletionHalf { shared: Arc::clone(&shared), ready: VecDeque::new() };
    Ok((SubmissionHalf { shared }, completion))
}

impl SubmissionHalf {
    /// Adds an operation and submits first where the queue is full.
    pub(crate) fn push(&mut self, token: u64, op: Op) -> io::Result<()> {
        let (entry, held) = op.prepare(None, &Files::default());
        assert!(!matches!(held, Held::Accept(_) | Held::Receive(..)), "a split ring takes single completions only");
        let key = self.shared.slots().insert(InFlight { token, held });
        let entry = entry.user_data(key.to_bits());
        loop {
            // SAFETY: only this half touches the submission queue, and what the entry points to is
            // owned by its slot until the completion is taken.
            if unsafe { self.shared.uring.submission_shared().push(&entry) }.is_ok() {
                return Ok(());
            }
            self.submit()?;
        }
    }

    /// Submits what was pushed.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        loop {
            match self.shared.uring.submitter().submit() {
                Err(error) => match Errno::from_io_error(&error) {
                    // The other half makes room.
                    Some(Errno::INTR | Errno::BUSY | Errno::AGAIN) => std::thread::yield_now(),
                    _ => return Err(error),
                },
                Ok(_) => return Ok(()),
            }
        }
    }
}

impl CompletionHalf {
    /// Sleeps until there is a completion or the timeout has passed.
    pub(crate) fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.reap();
        if self.ready.is_empty() {
            let timespec = Timespec::from(timeout);
            let args = SubmitArgs::new().timespec(&timespec);
            let flags = (EnterFlags::GETEVENTS | EnterFlags::EXT_ARG).bits();
            // SAFETY: nothing is submitted, and EXT_ARG goes with `SubmitArgs`, which lives through the call.
            let entered = unsafe { self.shared.uring.submitter().enter(0, 1, flags, Some(&args)) };
            match entered.map_err(|error| (Errno::from_io_error(&error), error)) {
                Ok(_) | Err((Some(Errno::TIME | Errno::INTR | Errno::BUSY | Errno::AGAIN), _)) => {}
                Err((_, error)) => return Err(error),
            }
            self.reap();
        }
        Ok(())
    }

    /// The next completion that was found.
    pub(crate) fn next_completion(&mut self) -> Option<Completion> {
        let entry = self.ready.pop_front()?;
        let removed = self.shared.slots().remove(Key::from_bits(entry.user_data()));
        let InFlight { token, held } = removed.expect("a completion belongs to an operation in flight");
        Some(Completion { token, result: outcome(&entry), more: false, payload: held.into_payload() })
    }

    fn reap(&mut self) {
        // SAFETY: only this half touches the completion queue.
        self.ready.extend(unsafe { self.shared.uring.completion_shared() });
    }
}

impl Shared {
    fn slots(&self) -> MutexGuard<'_, Slab<InFlight>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let busy = self.slots().len();
        // SAFETY: dropped once, here; the memory of operations still in flight is leaked, not freed.
        unsafe {
            ManuallyDrop::drop(&mut self.uring);
            if busy == 0 {
                ManuallyDrop::drop(&mut self.slots);
            }
        }
    }
}
