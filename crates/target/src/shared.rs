//! What all reactors of a target share: read seldom, changed more seldom, never on the path of a command.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Wake, Waker};

use diskside_io::ring;
use diskside_nvme::controller::{Subsystem, Subsystems};

use crate::compute::Compute;
use crate::compute::answer::Answer;
use crate::compute::association::Name;
use crate::config::ServeConfig;
use crate::export::Exports;
use crate::link::LoopEnd;
use crate::stats::{ReactorCounters, Registry};
use crate::volume::VolumeTable;

/// What all reactors share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: ServeConfig,
    pub(crate) subsystems: Arc<Subsystems>,
    pub(crate) subsystem: Arc<Subsystem>,
    pub(crate) volumes: Arc<VolumeTable>,
    /// What computes, if there is a compute namespace.
    pub(crate) compute: Option<Arc<Compute>>,
    pub(crate) exports: Arc<Exports>,
    pub(crate) volume_stats: Arc<Registry>,
    pub(crate) host_stats: Registry,
    pub(crate) reactor_stats: Vec<ReactorCounters>,
    /// Connections by reactor.
    pub(crate) connections: Vec<AtomicUsize>,
    pub(crate) connections_refused: AtomicUsize,
    /// The reactors, once all of them run.
    pub(crate) mailboxes: Arc<OnceLock<Vec<Arc<Mailbox>>>>,
}

impl Shared {
    /// Gives a new connection to the reactor with the fewest. `None` where there are too many already.
    pub(crate) fn place_connection(&self) -> Option<usize> {
        let counts = || self.connections.iter().map(|count| count.load(Ordering::Relaxed));
        if counts().sum::<usize>() >= self.config.limits.connections {
            self.connections_refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let (reactor, _) = counts().enumerate().min_by_key(|(_, count)| *count)?;
        self.connections[reactor].fetch_add(1, Ordering::Relaxed);
        Some(reactor)
    }

    /// Sends a message to one reactor; `false` where there is none yet.
    pub(crate) fn send(&self, reactor: usize, message: Message) -> bool {
        match self.mailboxes.get() {
            Some(mailboxes) => {
                mailboxes[reactor].send(message);
                true
            }
            None => false,
        }
    }
}

/// What a reactor is told by other threads.
#[derive(Debug)]
pub(crate) enum Message {
    /// Accept connections on these sockets.
    Listen(Vec<Arc<OwnedFd>>),
    /// A new connection of yours.
    Socket(OwnedFd),
    /// A new connection of yours, in memory.
    Loop(LoopEnd),
    /// Something concerns this connection.
    Wake(usize),
    /// The answer to a command that was handed to an engine.
    Answer(Box<(Name, Answer)>),
    /// Volumes were added or removed.
    VolumesChanged,
    /// Finish what is in flight and end.
    Stop,
    /// End without waiting.
    StopNow,
}

/// A reactor's incoming messages.
pub(crate) struct Mailbox {
    messages: Mutex<Vec<Message>>,
    waker: ring::Waker,
}

impl Mailbox {
    pub(crate) fn new(waker: ring::Waker) -> Self {
        Self { messages: Mutex::default(), waker }
    }

    pub(crate) fn send(&self, message: Message) {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).push(message);
        self.waker.wake();
    }

    /// Swaps the messages with an empty vector.
    pub(crate) fn take(&self, into: &mut Vec<Message>) {
        std::mem::swap(&mut *self.messages.lock().unwrap_or_else(PoisonError::into_inner), into);
    }

    /// What wakes one connection of the reactor.
    pub(crate) fn connection_waker(self: &Arc<Self>, connection: usize) -> Waker {
        Arc::new(ConnectionWaker { mailbox: Arc::clone(self), connection }).into()
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").finish_non_exhaustive()
    }
}

/// Wakes a connection, or a later one in the same place, which does no harm.
struct ConnectionWaker {
    mailbox: Arc<Mailbox>,
    connection: usize,
}

impl Wake for ConnectionWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.mailbox.send(Message::Wake(self.connection));
    }
}
