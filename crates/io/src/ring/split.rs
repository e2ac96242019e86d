//! One ring used by two threads: one submits, the other takes completions. For operations on files.

use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue};
use rustix::io::Errno;

use super::config::RingConfig;
use super::files::Files;
use super::interface::{Interface, interface};
use super::op::{Completion, Held, Op};
use super::posix::{self, Done, Job, Workers};
use super::uring::{InFlight, make, outcome};
use crate::slab::{Key, Slab};

/// The thread that submits.
pub(crate) enum SubmissionHalf {
    Uring(Arc<Shared>),
    Posix(Arc<Workers>),
}

/// The thread that takes completions.
pub(crate) enum CompletionHalf {
    Uring { shared: Arc<Shared>, ready: VecDeque<cqueue::Entry> },
    Posix { workers: Arc<Workers>, ready: VecDeque<Done> },
}

/// What both know of an io_uring.
pub(crate) struct Shared {
    uring: ManuallyDrop<IoUring>,
    slots: ManuallyDrop<Mutex<Slab<InFlight>>>,
}

/// A new ring for two threads. Operations that complete more than once are not for it.
pub(crate) fn split(config: &RingConfig) -> io::Result<(SubmissionHalf, CompletionHalf)> {
    match interface()? {
        Interface::IoUring => {
            let shared = Arc::new(Shared {
                uring: ManuallyDrop::new(make(config, false)?),
                slots: ManuallyDrop::new(Mutex::new(Slab::with_capacity(config.entries as usize))),
            });
            let completion = CompletionHalf::Uring { shared: Arc::clone(&shared), ready: VecDeque::new() };
            Ok((SubmissionHalf::Uring(shared), completion))
        }
        Interface::Posix(_) => {
            // Two threads never poll the device.
            let workers = Arc::new(Workers::new(None));
            let completion = CompletionHalf::Posix { workers: Arc::clone(&workers), ready: VecDeque::new() };
            Ok((SubmissionHalf::Posix(workers), completion))
        }
    }
}

impl SubmissionHalf {
    /// Adds an operation and submits first where the queue is full.
    pub(crate) fn push(&mut self, token: u64, op: Op) -> io::Result<()> {
        match self {
            Self::Uring(shared) => shared.push(token, op),
            Self::Posix(workers) => {
                workers.push(Job { id: token, op, moved: 0, is_positioned: true });
                Ok(())
            }
        }
    }

    /// Submits what was pushed.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        match self {
            Self::Uring(shared) => shared.submit(),
            Self::Posix(_) => Ok(()),
        }
    }
}

impl CompletionHalf {
    /// Sleeps until there is a completion or the timeout has passed.
    pub(crate) fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        match self {
            Self::Uring { shared, ready } => shared.wait(ready, timeout),
            Self::Posix { workers, ready } => {
                if ready.is_empty() {
                    workers.wait(timeout);
                    ready.extend(workers.take_done());
                }
                Ok(())
            }
        }
    }

    /// The next completion that was found.
    pub(crate) fn next_completion(&mut self) -> Option<Completion> {
        match self {
            Self::Uring { shared, ready } => {
                let entry = ready.pop_front()?;
                let removed = shared.slots().remove(Key::from_bits(entry.user_data()));
                let InFlight { token, held } = removed.expect("a completion belongs to an operation in flight");
                Some(Completion { token, result: outcome(&entry), more: false, payload: held.into_payload() })
            }
            Self::Posix { ready, .. } => {
                let Done { id: token, op, result } = ready.pop_front()?;
                Some(Completion { token, result, more: false, payload: posix::into_payload(op) })
            }
        }
    }
}

impl Shared {
    fn push(&self, token: u64, op: Op) -> io::Result<()> {
        let (entry, held) = op.prepare(None, &Files::default());
        assert!(!matches!(held, Held::Accept(_) | Held::Receive(..)), "a split ring takes single completions only");
        let key = self.slots().insert(InFlight { token, held });
        let entry = entry.user_data(key.to_bits());
        loop {
            // SAFETY: only the submitting half touches the submission queue, and what the entry points to is
            // owned by its slot until the completion is taken.
            if unsafe { self.uring.submission_shared().push(&entry) }.is_ok() {
                return Ok(());
            }
            self.submit()?;
        }
    }

    fn submit(&self) -> io::Result<()> {
        loop {
            match self.uring.submitter().submit() {
                Err(error) => match Errno::from_io_error(&error) {
                    // The other half makes room.
                    Some(Errno::INTR | Errno::BUSY | Errno::AGAIN) => std::thread::yield_now(),
                    _ => return Err(error),
                },
                Ok(_) => return Ok(()),
            }
        }
    }

    fn wait(&self, ready: &mut VecDeque<cqueue::Entry>, timeout: Duration) -> io::Result<()> {
        self.reap(ready);
        if ready.is_empty() {
            let timespec = Timespec::from(timeout);
            let args = SubmitArgs::new().timespec(&timespec);
            let flags = (EnterFlags::GETEVENTS | EnterFlags::EXT_ARG).bits();
            // SAFETY: nothing is submitted, and EXT_ARG goes with `SubmitArgs`, which lives through the call.
            let entered = unsafe { self.uring.submitter().enter(0, 1, flags, Some(&args)) };
            match entered.map_err(|error| (Errno::from_io_error(&error), error)) {
                Ok(_) | Err((Some(Errno::TIME | Errno::INTR | Errno::BUSY | Errno::AGAIN), _)) => {}
                Err((_, error)) => return Err(error),
            }
            self.reap(ready);
        }
        Ok(())
    }

    fn reap(&self, ready: &mut VecDeque<cqueue::Entry>) {
        // SAFETY: only the completing half touches the completion queue.
        ready.extend(unsafe { self.uring.completion_shared() });
    }

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
