//! What authenticating hosts takes of a target: exponentiations and handshakes off the reactors.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::Instant;

use diskside_nvme::auth::{Exponents, Names, TlsPsk, Work};
use diskside_nvme::controller::Tag;
use diskside_sys::schedule::{Behind, step_back};

use crate::channel::{Shaking, TlsKeys};
use crate::shared::{Mailboxes, Message};

/// Threads that compute: a queue of hosts that come at once goes on beside the reactors, not in their place.
const THREADS_MAX: usize = 2;
/// Work that waits for a thread; what is beyond is refused, and its connection closed.
const WAITING_MAX: usize = 1024;

/// Work for one connection.
struct Job {
    reactor: usize,
    connection: usize,
    task: Task,
    /// Gone with the connection.
    alive: Weak<()>,
}

enum Task {
    /// Something to compute for a command.
    Compute(Tag, Work),
    /// A handshake to carry on, with what came.
    Shake(Box<Shaking>, Vec<u8>),
}

/// Threads that compute what authenticating takes. They start with the first work, and end with the target.
#[derive(Debug)]
pub(crate) struct Authenticators {
    mailboxes: Arc<Mailboxes>,
    /// With which hosts make secure channels.
    tls: Arc<RwLock<TlsKeys>>,
    jobs: OnceLock<Option<SyncSender<Job>>>,
}

impl Authenticators {
    pub(crate) fn new(mailboxes: Arc<Mailboxes>, tls: TlsKeys) -> Self {
        Self { mailboxes, tls: Arc::new(RwLock::new(tls)), jobs: OnceLock::new() }
    }

    /// Changes the keys with which hosts make secure channels. Those that are made stay.
    pub(crate) fn set_tls(&self, keys: TlsKeys) {
        *self.tls.write().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    /// Lets a host make secure channels with a key that its authentication made. It has to prove itself anew for another when
    /// the keys of hosts change.
    pub(crate) fn add_generated(&self, (names, psk): (Names, TlsPsk)) {
        let mut keys = self.tls.write().unwrap_or_else(PoisonError::into_inner);
        keys.add_generated(names, psk, Instant::now());
    }

    /// Has something computed for a connection of a reactor. False: there is too much to do already.
    pub(crate) fn compute(&self, of: (usize, usize), tag: Tag, work: Work, alive: &Arc<()>) -> bool {
        self.give(of, Task::Compute(tag, work), alive)
    }

    /// Has a handshake carried on for a connection of a reactor. False: there is too much to do already.
    pub(crate) fn shake(&self, of: (usize, usize), shaking: Shaking, received: Vec<u8>, alive: &Arc<()>) -> bool {
        self.give(of, Task::Shake(Box::new(shaking), received), alive)
    }

    fn give(&self, (reactor, connection): (usize, usize), task: Task, alive: &Arc<()>) -> bool {
        let job = Job { reactor, connection, task, alive: Arc::downgrade(alive) };
        let jobs = self.jobs.get_or_init(|| self.start());
        jobs.as_ref().is_some_and(|jobs| jobs.try_send(job).is_ok())
    }

    fn start(&self) -> Option<SyncSender<Job>> {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let receiver = Arc::new(Mutex::new(receiver));
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        for index in 0..threads {
            let (receiver, mailboxes, tls) =
                (Arc::clone(&receiver), Arc::clone(&self.mailboxes), Arc::clone(&self.tls));
            let thread = std::thread::Builder::new().name(format!("diskside-auth-{index}"));
            if let Err(error) = thread.spawn(move || work(&receiver, &mailboxes, &tls)) {
                tracing::error!(%error, "a thread that authenticates hosts cannot be started");
                if index == 0 {
                    return None;
                }
            }
        }
        Some(sender)
    }
}

fn work(jobs: &Mutex<Receiver<Job>>, mailboxes: &Mailboxes, tls: &RwLock<TlsKeys>) {
    // Who comes, with the right key or a wrong one, shall not hold up those that are served.
    if let Err(error) = step_back(Behind::Calls) {
        tracing::debug!(%error, "a thread that authenticates hosts keeps its scheduling policy and priority");
    }
    let mut exponents = Exponents::default();
    loop {
        // One waits at the channel, the others for the lock; the target's end closes the channel.
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { reactor, connection, task, alive }) = job else { return };
        if alive.strong_count() == 0 {
            continue;
        }
        let message = match task {
            Task::Compute(tag, work) => {
                Message::Computed { connection, tag, done: diskside_keys::compute_with(&mut exponents, work) }
            }
            Task::Shake(shaking, received) => {
                Message::Shaken { connection, alive, shaken: Box::new(shaking.go_on(&received, tls)) }
            }
        };
        if let Some(mailbox) = mailboxes.get().and_then(|mailboxes| mailboxes.get(reactor)) {
            mailbox.send(message);
        }
    }
}
