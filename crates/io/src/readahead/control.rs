//! How the consumer and the reading thread hear of each other.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel, sync_channel};
use std::task::Waker;

use crate::ownring;

/// How the consumer tells the reading thread something.
pub(super) struct Control {
    stop: AtomicBool,
    waker: Waker,
}

impl Control {
    /// For a reader on this thread.
    pub(super) fn of_this_thread() -> Arc<Self> {
        Arc::new(Self { stop: AtomicBool::new(false), waker: ownring::waker() })
    }

    /// Something changed for the reading thread.
    pub(super) fn wake(&self) {
        self.waker.wake_by_ref();
    }

    /// Nobody wants chunks any more.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// A thread that reads.
pub(super) struct ReadingThread {
    ended: Receiver<()>,
}

impl ReadingThread {
    /// Waits until it has ended with all that it read from. Then it waits alone for the buffers that the kernel may still fill.
    pub(super) fn wait(&self) {
        // It sends nothing: this ends when it has nothing left to send with. A panic in it is a bug that its own message reports.
        let _ = self.ended.recv();
    }
}

/// Starts the thread of a reader; one that has use for a ring in any case has it made.
pub(super) fn spawn(
    has_ring: bool,
    read: impl FnOnce(Arc<Control>) + Send + 'static,
) -> io::Result<(Arc<Control>, ReadingThread)> {
    let (answer, made) = sync_channel(1);
    let (end, ended) = channel();
    std::thread::Builder::new().name("read-ahead".into()).spawn(move || {
        let control = Control::of_this_thread();
        let made = if has_ring { ownring::make_ring() } else { Ok(()) };
        let is_made = made.is_ok();
        if answer.send(made.map(|()| Arc::clone(&control))).is_ok() && is_made {
            read(control);
        }
        drop(end);
        ownring::land();
    })?;
    let control = made.recv().map_err(|_| io::Error::other("the reading thread ended at its start"))??;
    Ok((control, ReadingThread { ended }))
}
