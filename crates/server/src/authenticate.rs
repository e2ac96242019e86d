//! What authenticating hosts takes of a target: keys from their files, exponentiations and handshakes off the reactors, and
//! bounds for those who have not proved who they are.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
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
/// Connections from one address that have not authenticated: more than one host has queues.
const HALF_OPEN_PER_ADDRESS_MAX: usize = 256;

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

/// Connections whose hosts have not proved who they are, by address.
#[derive(Debug, Default)]
pub(crate) struct HalfOpen {
    by_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// One such connection. Dropped when the host has proved it, or with the connection.
#[derive(Debug)]
pub(crate) struct Entrant {
    by_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
    address: IpAddr,
}

impl HalfOpen {
    /// One more from this address; `None` where there are too many already, there or of all the `connections_max`
    /// connections that the target may have: half of them are for hosts that are known.
    pub(crate) fn enter(&self, address: IpAddr, connections_max: usize) -> Option<Entrant> {
        let address = of_one_machine(address);
        let mut by_address = lock(&self.by_address);
        let here = by_address.get(&address).copied().unwrap_or(0);
        if here >= HALF_OPEN_PER_ADDRESS_MAX || by_address.values().sum::<usize>() >= connections_max.div_ceil(2) {
            return None;
        }
        by_address.insert(address, here + 1);
        Some(Entrant { by_address: Arc::clone(&self.by_address), address })
    }
}

impl Drop for Entrant {
    fn drop(&mut self) {
        let mut by_address = lock(&self.by_address);
        if let Some(here) = by_address.get_mut(&self.address) {
            *here -= 1;
            if *here == 0 {
                by_address.remove(&self.address);
            }
        }
    }
}

/// What a machine has at least: of IPv6 a network of 64 bits.
fn of_one_machine(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::from((u128::from(address) >> 64 << 64).to_be_bytes()),
        address => address,
    }
}

fn lock(by_address: &Mutex<HashMap<IpAddr, usize>>) -> std::sync::MutexGuard<'_, HashMap<IpAddr, usize>> {
    by_address.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_known_leaves_room_for_others() {
        let (here, there) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let half_open = HalfOpen::default();
        let mut entrants: Vec<_> =
            (0..HALF_OPEN_PER_ADDRESS_MAX).map(|_| half_open.enter(here, 4096).unwrap()).collect();
        assert!(half_open.enter(here, 4096).is_none(), "an address has its share");
        drop(half_open.enter(there, 4096).expect("another has its own"));
        entrants.pop();
        entrants.push(half_open.enter(here, 4096).expect("one has gone"));
        assert!(half_open.enter(there, 512).is_none(), "half of all connections");
        drop(entrants);
        // One machine has 2^64 addresses of IPv6.
        let six = |last| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, last]);
        let entrants: Vec<_> =
            (0..HALF_OPEN_PER_ADDRESS_MAX).map(|i| half_open.enter(six(i as u16), 4096).unwrap()).collect();
        assert!(half_open.enter(six(9999), 4096).is_none());
        drop(entrants);
        assert!(lock(&half_open.by_address).is_empty());
    }
}
