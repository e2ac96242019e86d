//! What authenticating hosts takes of a target: exponentiations and handshakes off the reactors.

mod queue;

use std::net::IpAddr;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Instant;

use diskside_nvme::auth::{Exponents, Names, TlsPsk, Work};
use diskside_nvme::controller::Tag;
use diskside_sys::schedule::{Behind, step_back};

use self::queue::{Pushed, Queue};
use crate::channel::{Shaking, TlsKeys};
use crate::half_open::ConnectionSlot;
use crate::shared::{Mailboxes, Message};

/// Threads that compute: a queue of hosts that come at once goes on beside the reactors, not in their place.
const THREADS_MAX: usize = 2;
/// Work that waits for a thread. What comes on top takes the place of work for an address that has more of it, or is refused; the
/// connection of the one that goes is closed.
const WAITING_MAX: usize = 1024;

/// Work for one connection.
#[derive(Debug)]
struct Job {
    place: ConnectionSlot,
    task: Task,
}

#[derive(Debug)]
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
    jobs: Arc<Queue<Job>>,
    /// Whether there are threads.
    started: OnceLock<bool>,
}

impl Authenticators {
    pub(crate) fn new(mailboxes: Arc<Mailboxes>, tls: TlsKeys) -> Self {
        Self {
            mailboxes,
            tls: Arc::new(RwLock::new(tls)),
            jobs: Arc::new(Queue::new(WAITING_MAX)),
            started: OnceLock::new(),
        }
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
    pub(crate) fn compute(&self, place: ConnectionSlot, origin: Option<IpAddr>, tag: Tag, work: Work) -> bool {
        self.give(place, origin, Task::Compute(tag, work))
    }

    /// Has a handshake carried on for a connection of a reactor. False: there is too much to do already.
    pub(crate) fn shake(
        &self,
        place: ConnectionSlot,
        origin: Option<IpAddr>,
        shaking: Shaking,
        received: Vec<u8>,
    ) -> bool {
        self.give(place, origin, Task::Shake(Box::new(shaking), received))
    }

    /// `origin`: where the connection came from, if its host is not let in yet.
    fn give(&self, place: ConnectionSlot, origin: Option<IpAddr>, task: Task) -> bool {
        if !*self.started.get_or_init(|| self.start()) {
            return false;
        }
        match self.jobs.push(origin, Job { place, task }) {
            Pushed::Waits => true,
            Pushed::InPlaceOf(Job { place: ConnectionSlot { reactor, connection, alive }, .. }) => {
                send(&self.mailboxes, reactor, Message::GiveWay { connection, alive });
                true
            }
            Pushed::Refused => false,
        }
    }

    fn start(&self) -> bool {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        for index in 0..threads {
            let (jobs, mailboxes, tls) = (Arc::clone(&self.jobs), Arc::clone(&self.mailboxes), Arc::clone(&self.tls));
            let thread = std::thread::Builder::new().name(format!("diskside-auth-{index}"));
            if let Err(error) = thread.spawn(move || work(&jobs, &mailboxes, &tls)) {
                tracing::error!(%error, "a thread that authenticates hosts cannot be started");
                if index == 0 {
                    return false;
                }
            }
        }
        true
    }
}

impl Drop for Authenticators {
    fn drop(&mut self) {
        self.jobs.close();
    }
}

fn work(jobs: &Queue<Job>, mailboxes: &Mailboxes, tls: &RwLock<TlsKeys>) {
    // Who comes, with the right key or a wrong one, shall not hold up those that are served.
    if let Err(error) = step_back(Behind::Calls) {
        tracing::debug!(%error, "a thread that authenticates hosts keeps its scheduling policy and priority");
    }
    let mut exponents = Exponents::default();
    while let Some(Job { place: ConnectionSlot { reactor, connection, alive }, task }) = jobs.pop() {
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
        send(mailboxes, reactor, message);
    }
}

fn send(mailboxes: &Mailboxes, reactor: usize, message: Message) {
    if let Some(mailbox) = mailboxes.get().and_then(|mailboxes| mailboxes.get(reactor)) {
        mailbox.send(message);
    }
}
