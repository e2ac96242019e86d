//! How the consumer and the reading thread wake each other.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, Thread};

use crate::ring::Waker;

/// How the consumer tells the reading thread something.
pub(super) struct Control {
    pub(super) stop: AtomicBool,
    pub(super) wake: Wake,
}

/// How the reading thread sleeps.
pub(super) enum Wake {
    Ring(Waker),
    /// The one that sleeps, or slept last.
    Thread(Mutex<Thread>),
}

impl Control {
    /// For a reader on this thread, which sleeps by parking it.
    pub(super) fn of_this_thread() -> Arc<Self> {
        let wake = Wake::Thread(Mutex::new(std::thread::current()));
        Arc::new(Self { stop: AtomicBool::new(false), wake })
    }

    pub(super) fn wake(&self) {
        match &self.wake {
            Wake::Ring(waker) => waker.wake(),
            Wake::Thread(thread) => thread.lock().unwrap_or_else(PoisonError::into_inner).unpark(),
        }
    }
}

impl Wake {
    /// Registers the thread that is woken from here on. A change after that is not missed.
    pub(super) fn is_for_this_thread(&self) {
        if let Wake::Thread(thread) = self {
            *thread.lock().unwrap_or_else(PoisonError::into_inner) = std::thread::current();
        }
    }
}

/// Starts the thread of a reader that sleeps by parking.
pub(super) fn spawn(read: impl FnOnce(Arc<Control>) + Send + 'static) -> io::Result<(Arc<Control>, JoinHandle<()>)> {
    let (answer, made) = sync_channel(1);
    let thread = std::thread::Builder::new().name("read-ahead".into()).spawn(move || {
        let control = Control::of_this_thread();
        if answer.send(Arc::clone(&control)).is_ok() {
            read(control);
        }
    })?;
    let control = made.recv().map_err(|_| io::Error::other("the reading thread ended at its start"))?;
    Ok((control, thread))
}
