//! The work of authenticating hosts, off the reactors: exponentiations and handshakes.

mod queue;

use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use diskside_nvme::auth::{Exponents, Names, TlsPsk, Work};
use diskside_nvme::controller::Tag;
use diskside_sys::schedule::{Behind, step_back};

pub(crate) use self::queue::Origin;
use self::queue::{Pushed, Queue};
use crate::channel::{Shaken, Shaking, TlsKeys};
use crate::half_open::ConnectionSlot;
use crate::shared::{Mailboxes, Message};

/// Threads that compute: hosts that come at once queue up beside the reactors, not in their place.
const THREADS_MAX: usize = 2;
/// Jobs that wait for a thread. One that comes on top takes the place of a job for an address that has more of them, or
/// is refused; the connection of the one that goes is closed.
const WAITING_MAX: usize = 1024;
/// How long a thread rests after a job while functions run, in times of what the job took.
const REST: u32 = 4;
const REST_MAX: Duration = Duration::from_millis(20);

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
    shared: Arc<Shared>,
    /// Whether there are threads.
    started: OnceLock<bool>,
}

/// What the threads work with.
struct Shared {
    mailboxes: Arc<Mailboxes>,
    /// With which hosts make secure channels.
    tls: RwLock<TlsKeys>,
    jobs: Queue<Job>,
    /// Whether functions run.
    functions_run: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Authenticators {
    pub(crate) fn new(
        mailboxes: Arc<Mailboxes>,
        tls: TlsKeys,
        functions_run: Box<dyn Fn() -> bool + Send + Sync>,
    ) -> Self {
        let shared = Shared { mailboxes, tls: RwLock::new(tls), jobs: Queue::new(WAITING_MAX), functions_run };
        Self { shared: Arc::new(shared), started: OnceLock::new() }
    }

    /// Changes the keys with which hosts make secure channels. Those that are made stay.
    pub(crate) fn set_tls(&self, keys: TlsKeys) {
        *self.shared.tls.write().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    /// Lets a host make secure channels with a key that its authentication made. It has to prove itself again for another when
    /// the keys of hosts change.
    pub(crate) fn add_generated(&self, (names, psk): (Names, TlsPsk)) {
        let mut keys = self.shared.tls.write().unwrap_or_else(PoisonError::into_inner);
        keys.add_generated(names, psk, Instant::now());
    }

    /// Has something computed for a connection, in turns with those of other origins. False: there
    /// is too much to do already.
    pub(crate) fn compute(&self, place: ConnectionSlot, origin: Origin, tag: Tag, work: Work) -> bool {
        self.give(place, origin, Task::Compute(tag, work))
    }

    /// Has a handshake carried on for a connection; the same otherwise.
    pub(crate) fn shake(&self, place: ConnectionSlot, origin: Origin, shaking: Shaking, received: Vec<u8>) -> bool {
        self.give(place, origin, Task::Shake(Box::new(shaking), received))
    }

    /// Carries a handshake on at once, on this thread.
    pub(crate) fn shake_here(&self, shaking: Shaking, received: &[u8]) -> Shaken {
        shaking.go_on(received, &self.shared.tls)
    }

    fn give(&self, place: ConnectionSlot, origin: Origin, task: Task) -> bool {
        if !*self.started.get_or_init(|| self.start()) {
            return false;
        }
        match self.shared.jobs.push(origin, Job { place, task }) {
            Pushed::Waits => true,
            Pushed::InPlaceOf(Job { place: ConnectionSlot { reactor, connection, alive }, .. }) => {
                self.shared.send(reactor, Message::GiveWay { connection, alive });
                true
            }
            Pushed::Refused => false,
        }
    }

    /// False: there is no thread.
    fn start(&self) -> bool {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let mut started = false;
        for index in 0..threads {
            let shared = Arc::clone(&self.shared);
            match std::thread::Builder::new().name(format!("diskside-auth-{index}")).spawn(move || shared.work()) {
                Ok(_) => started = true,
                Err(error) => tracing::error!(%error, "a thread that authenticates hosts cannot be started"),
            }
        }
        started
    }
}

impl Drop for Authenticators {
    fn drop(&mut self) {
        self.shared.jobs.close();
    }
}

impl Shared {
    fn work(&self) {
        // A host that comes, with the right key or a wrong one, does not delay those that are served.
        if let Err(error) = step_back(Behind::Calls) {
            tracing::debug!(%error, "a thread that authenticates hosts keeps its scheduling policy and priority");
        }
        let mut exponents = Exponents::default();
        while let Some(Job { place: ConnectionSlot { reactor, connection, alive }, task }) = self.jobs.pop() {
            if alive.strong_count() == 0 {
                continue;
            }
            let begun = Instant::now();
            let message = match task {
                Task::Compute(tag, work) => {
                    Message::Computed { connection, tag, done: diskside_keys::compute_with(&mut exponents, work) }
                }
                Task::Shake(shaking, received) => {
                    Message::Shaken { connection, alive, shaken: Box::new(shaking.go_on(&received, &self.tls)) }
                }
            };
            self.send(reactor, message);
            // One job after the other would keep a processor until the kernel's next tick, which calls notice.
            if (self.functions_run)() {
                std::thread::sleep((begun.elapsed() * REST).min(REST_MAX));
            }
        }
    }

    fn send(&self, reactor: usize, message: Message) {
        if let Some(mailbox) = self.mailboxes.get().and_then(|mailboxes| mailboxes.get(reactor)) {
            mailbox.send(message);
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("jobs", &self.jobs).finish_non_exhaustive()
    }
}
