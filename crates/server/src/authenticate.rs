//! What authenticating hosts takes of a target: keys from their files, and exponentiations and handshakes off the reactors.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};

use diskside_keys::{KeyFileError, read_secret, read_tls_secret};
use diskside_nvme::Nqn;
use diskside_nvme::auth::{HostKeys, Names, Policy, Secret, TlsSecret, Work};
use diskside_nvme::controller::Tag;
use diskside_sys::schedule::{Policy as SchedulingPolicy, set_policy};

use crate::channel::{Shaking, TlsKeys};
use crate::config::{ConfigError, HostSpec, KeyFile, Requirement, Security};
use crate::shared::{Mailboxes, Message};

/// Threads that compute: a queue of hosts that come at once goes on beside the reactors, not in their place.
const THREADS_MAX: usize = 2;
/// Work that waits for a thread; what is beyond is refused, and its connection closed.
const WAITING_MAX: usize = 1024;

/// Reads the keys, and says who of the hosts of the subsystem `nqn` must have one.
pub(crate) fn policy(
    security: &Security,
    hosts: &[HostSpec],
    subsystem: &Nqn,
) -> Result<(Policy, TlsKeys), PolicyError> {
    let wrong = |field: String, what| PolicyError::Config(ConfigError::Value { field, what });
    let accepted = security.accepted().map_err(|(field, what)| wrong(format!("security.{field}"), what))?;
    let mut known = BTreeMap::new();
    let mut tls = TlsKeys::default();
    if hosts.iter().any(|host| !host.tls_keys.is_empty()) {
        diskside_tls::is_available().map_err(PolicyError::Tls)?;
    }
    for host in hosts.iter().filter(|host| host.has_keys()) {
        let nqn = Nqn::new(&host.nqn).map_err(|error| wrong(format!("host `{}`", host.name), error.to_string()))?;
        let read = |KeyFile(path): &KeyFile| -> Result<Secret, PolicyError> {
            read_secret(path).map_err(|source| PolicyError::Key { host: host.name.clone(), source })
        };
        let keys = host.dhchap_keys.iter().map(read).collect::<Result<_, _>>()?;
        let controller_key = host.dhchap_controller_key.as_ref().map(read).transpose()?;
        for KeyFile(path) in &host.tls_keys {
            let secret: TlsSecret =
                read_tls_secret(path).map_err(|source| PolicyError::Key { host: host.name.clone(), source })?;
            for subsystem in [subsystem.clone(), Nqn::discovery()] {
                tls.add(&Names { host: nqn.clone(), subsystem }, &secret);
            }
        }
        known.insert(nqn, HostKeys { keys, controller_key, has_channel_key: !host.tls_keys.is_empty() });
    }
    let policy = Policy {
        required: security.require != Requirement::None,
        channel_required: security.require.needs_tls(),
        both_required: security.require == Requirement::TlsAuth,
        hosts: known,
        accepted,
    };
    Ok((policy, tls))
}

/// Why there is no policy.
pub(crate) enum PolicyError {
    Config(ConfigError),
    Key { host: String, source: KeyFileError },
    Tls(diskside_tls::Unavailable),
}

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
    if let Err(error) = set_policy(SchedulingPolicy::Batch) {
        tracing::debug!(%error, "a thread that authenticates hosts has the usual policy");
    }
    loop {
        // One waits at the channel, the others for the lock; the target's end closes the channel.
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { reactor, connection, task, alive }) = job else { return };
        if alive.strong_count() == 0 {
            continue;
        }
        let message = match task {
            Task::Compute(tag, work) => Message::Computed { connection, tag, done: diskside_keys::compute(work) },
            Task::Shake(shaking, received) => {
                let keys = tls.read().unwrap_or_else(PoisonError::into_inner);
                Message::Shaken { connection, alive, shaken: Box::new(shaking.go_on(&received, &keys)) }
            }
        };
        if let Some(mailbox) = mailboxes.get().and_then(|mailboxes| mailboxes.get(reactor)) {
            mailbox.send(message);
        }
    }
}
