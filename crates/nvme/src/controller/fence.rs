//! How a command that excludes hosts waits for what they have begun.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use super::request::Tag;
use super::subsystem::lock;

/// A command that excludes hosts waits, until all queues of these know of it and their writes that had begun are over: a host that
/// fences another one off relies on that. Each such queue holds this until then.
#[derive(Debug)]
pub(super) struct Fence {
    pub(super) nsid: u32,
    /// Their commands are to be aborted, too, where the embedder still can.
    pub(super) aborts: bool,
    is_down: Arc<AtomicBool>,
    /// Wakes the connection that waits.
    waker: Waker,
}

impl Fence {
    /// Sets this, and wakes that, when nobody holds it any more.
    pub(super) fn new(nsid: u32, aborts: bool, is_down: &Arc<AtomicBool>, waker: Waker) -> Self {
        Self { nsid, aborts, is_down: Arc::clone(is_down), waker }
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        self.is_down.store(true, Ordering::Release);
        self.waker.wake_by_ref();
    }
}

/// Where others put up fences for an I/O queue, as long as its connection exists: it may still have begun writes when its controller is gone,
/// and clusters fence hosts off that have just vanished.
#[derive(Debug)]
pub(super) struct FenceInbox {
    pub(super) host: [u8; 16],
    waker: Waker,
    fences: Mutex<Vec<Arc<Fence>>>,
}

impl FenceInbox {
    pub(super) fn new(host: [u8; 16], waker: Waker) -> Self {
        Self { host, waker, fences: Mutex::default() }
    }

    /// The connection holds the fence from now on, whether it has taken note or not.
    pub(super) fn put_up(&self, fence: &Arc<Fence>) {
        lock(&self.fences).push(Arc::clone(fence));
        self.waker.wake_by_ref();
    }

    /// Those that it has not taken note of.
    pub(super) fn take(&self) -> Vec<Arc<Fence>> {
        std::mem::take(&mut lock(&self.fences))
    }
}

/// The fences of a connection: those that it holds for others, and its own commands that wait for others.
#[derive(Debug, Default)]
pub(super) struct Fences {
    /// With the commands that are not over.
    pub(super) held: Vec<(Arc<Fence>, Vec<Tag>)>,
    pub(super) awaited: Vec<(Tag, Arc<AtomicBool>)>,
}
