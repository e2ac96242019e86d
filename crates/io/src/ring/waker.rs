//! Waking a ring's thread from other threads.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

use rustix::event::{EventfdFlags, eventfd};

/// Wakes the thread that waits on a ring; for any thread, any number of clones.
///
/// Waking a ring that is awake costs one atomic swap; only a sleeping one costs a system call.
#[derive(Clone, Debug)]
pub struct Waker {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    pending: AtomicBool,
    sleeping: AtomicBool,
    eventfd: Arc<OwnedFd>,
}

impl Wake for Waker {
    fn wake(self: Arc<Self>) {
        Self::wake(&self);
    }
}

impl From<Waker> for std::task::Waker {
    fn from(waker: Waker) -> Self {
        Arc::new(waker).into()
    }
}

impl Waker {
    pub(super) fn new() -> io::Result<Self> {
        let eventfd = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let shared = Shared { pending: AtomicBool::new(false), sleeping: AtomicBool::new(false), eventfd };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Makes the current or next [`wait`](super::Ring::wait) return with
    /// [`woken`](super::Wait::woken) set. What was written before is visible to the woken thread.
    pub fn wake(&self) {
        let shared = &*self.shared;
        // Sequential consistency: either the sleeper sees `pending`, or we see `sleeping`.
        if !shared.pending.swap(true, Ordering::SeqCst) && shared.sleeping.load(Ordering::SeqCst) {
            // Any count but zero wakes. It can only fail when the counter is full, and then the ring is awake.
            let _ = rustix::io::write(&shared.eventfd, &1_u64.to_le_bytes());
        }
    }

    /// Ends the ring's sleep, if it sleeps, for something that it finds by itself.
    pub(super) fn nudge(&self) {
        if self.shared.sleeping.load(Ordering::SeqCst) {
            // As above.
            let _ = rustix::io::write(&self.shared.eventfd, &1_u64.to_le_bytes());
        }
    }

    pub(super) fn eventfd(&self) -> &Arc<OwnedFd> {
        &self.shared.eventfd
    }

    /// Whether someone called `wake` since the last call.
    pub(super) fn take_pending(&self) -> bool {
        self.shared.pending.load(Ordering::Relaxed) && self.shared.pending.swap(false, Ordering::SeqCst)
    }

    pub(super) fn is_pending(&self) -> bool {
        self.shared.pending.load(Ordering::Acquire)
    }

    /// Announces that the ring is about to sleep; false when it must not, because someone woke it.
    pub(super) fn fall_asleep(&self) -> bool {
        self.shared.sleeping.store(true, Ordering::SeqCst);
        if self.shared.pending.load(Ordering::SeqCst) {
            self.wake_up();
            return false;
        }
        true
    }

    pub(super) fn wake_up(&self) {
        self.shared.sleeping.store(false, Ordering::SeqCst);
    }
}
