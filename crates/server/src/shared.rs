//! The state that all reactors of a target share: read seldom, changed more seldom, never on the path of a command.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak, mpsc};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use diskside_io::ring;
use diskside_nvme::auth::Done;
use diskside_nvme::controller::{Subsystem, Subsystems, Tag};

use crate::audit::{Audit, KnownNames};
use crate::authenticate::Authenticators;
use crate::channel::Shaken;
use crate::config::ServeConfig;
use crate::half_open::{ConnectionSlot, Entrant, HalfOpen};
use crate::link::LoopEnd;
use crate::notices::Notices;
use crate::stats::ReactorCounters;
use diskside_compute::{Answer, Compute, Name, Reactors};
use diskside_export::Exports;
use diskside_rights::{QuotaTable, RightsTable};
use diskside_volume::VolumeTable;
use diskside_volume::health::Health;
use diskside_volume::stats::Registry;

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
    /// Hears what hosts do.
    pub(crate) audit: Arc<Audit>,
    pub(crate) names: Arc<KnownNames>,
    /// What hosts may use.
    pub(crate) rights: Arc<RightsTable>,
    /// And how much they may take.
    pub(crate) quotas: Arc<QuotaTable>,
    pub(crate) volume_stats: Arc<Registry>,
    pub(crate) host_stats: Registry,
    pub(crate) reactor_stats: Vec<ReactorCounters>,
    /// The most connections at a time.
    pub(crate) connections_max: usize,
    /// Connections by reactor.
    pub(crate) connections: Vec<AtomicUsize>,
    pub(crate) connections_refused: AtomicUsize,
    /// Those that were closed before their hosts were let in, because others came.
    pub(crate) connections_given_up: AtomicUsize,
    pub(crate) notices: Notices,
    /// Whether every host must prove who it is.
    pub(crate) authenticates: AtomicBool,
    /// Whether every host must come over a secure channel.
    pub(crate) channels: AtomicBool,
    /// What computes for hosts that authenticate.
    pub(crate) authenticators: Authenticators,
    /// Connections whose hosts were not let in yet.
    pub(crate) half_open: HalfOpen,
    /// Processors that the process may use.
    pub(crate) processors: usize,
    /// When it was last seen that there are more threads to run than those.
    pub(crate) crowded: Mutex<Option<Instant>>,
    /// The reactors, once all of them run.
    pub(crate) mailboxes: Arc<Mailboxes>,
    /// With what the process closed itself to the files of others, if it did.
    pub(crate) confined_to: OnceLock<ServeConfig>,
    /// The reactors have ended, and the media are closed.
    pub(crate) ended: AtomicBool,
}

impl Shared {
    /// Gives a new connection to the reactor with the fewest. Where there are too many already one goes whose host was not let
    /// in; `None` where there is none.
    pub(crate) fn place_connection(&self) -> Option<usize> {
        let counts = || self.connections.iter().map(|count| count.load(Ordering::Relaxed));
        if counts().sum::<usize>() >= self.connections_max && !self.give_way() {
            self.connections_refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let (reactor, _) = counts().enumerate().min_by_key(|(_, count)| *count)?;
        self.connections[reactor].fetch_add(1, Ordering::Relaxed);
        Some(reactor)
    }

    /// Notes a connection from this address whose host is not let in yet. Another one goes if there are too many; where no host
    /// must prove who it is, only when there are too many connections of all.
    pub(crate) fn enter(&self, address: Option<IpAddr>, place: ConnectionSlot) -> Entrant {
        let address = address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let is_bounded = self.authenticates.load(Ordering::Relaxed);
        let total_max = is_bounded.then(|| self.connections_max.div_ceil(2));
        let (entrant, gone) = self.half_open.enter(address, total_max, place);
        self.close(gone);
        entrant
    }

    /// Has a connection closed whose host was not let in, for others. False: there is none.
    pub(crate) fn give_way(&self) -> bool {
        self.close(self.half_open.give_way())
    }

    /// Has a connection closed that gives way to others. False: there is none.
    fn close(&self, place: Option<ConnectionSlot>) -> bool {
        let Some(ConnectionSlot { reactor, connection, alive }) = place else { return false };
        self.connections_given_up.fetch_add(1, Ordering::Relaxed);
        self.send(reactor, Message::GiveWay { connection, alive })
    }

    /// Whether a connection without a secure channel is refused.
    pub(crate) fn requires_channel(&self) -> bool {
        self.channels.load(Ordering::Relaxed)
    }

    /// Whether more threads may want to run than there are processors: a reactor that polls then keeps an engine from
    /// computing.
    pub(crate) fn is_crowded(&self) -> bool {
        let working = self.compute.as_ref().map_or(0, |compute| compute.working());
        working > 0 && working + self.config.reactors > self.processors
    }

    /// Whether that was so lately: between two calls of a host that has one at a time it is not.
    pub(crate) fn was_crowded(&self, now: Instant) -> bool {
        let mut crowded = self.crowded.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_crowded() {
            *crowded = Some(now);
        }
        crowded.is_some_and(|at| now.saturating_duration_since(at) < CROWDED_LATELY)
    }

    /// Whether nothing is served any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// The answers of all disks below volumes and exports to a question.
    pub(crate) fn disks<T>(&self, ask: impl Fn(&Health) -> T) -> Vec<T> {
        let volumes = self.volumes.snapshot();
        let on_disks = volumes.iter().flatten().filter(|volume| volume.medium.memory().is_none());
        let mut told: Vec<T> = on_disks.map(|volume| ask(&volume.health)).collect();
        self.exports.each_disk(|health| told.push(ask(health)));
        told
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

/// Calls of a host that has one at a time come again sooner than this.
const CROWDED_LATELY: Duration = Duration::from_millis(10);

/// Messages of other threads to a reactor.
#[derive(Debug)]
pub(crate) enum Message {
    /// Accept connections on these sockets.
    Listen(Vec<Arc<OwnedFd>>),
    /// A new connection of yours, and the number of the listener through which it came.
    Socket(OwnedFd, usize),
    /// A new connection of yours, in memory.
    Loop(LoopEnd),
    /// Something concerns this connection.
    Wake(usize),
    /// Somebody else did what this task asked for.
    Done(usize),
    /// The answer to a command that was handed to an engine.
    Answer(Box<(Name, Answer)>),
    /// What a host's authentication takes is computed.
    Computed {
        /// Of this connection, or of one that had its place before.
        connection: usize,
        /// For this command.
        tag: Tag,
        /// The result.
        done: Done,
    },
    /// A host's handshake was carried on.
    Shaken {
        /// Of this connection, or of one that had its place before.
        connection: usize,
        /// Of which of them.
        alive: Weak<()>,
        /// What came of it.
        shaken: Box<Shaken>,
    },
    /// Close this connection: its host was not let in, and others come.
    GiveWay {
        /// It, or one that has its place now.
        connection: usize,
        /// Which of them is meant.
        alive: Weak<()>,
    },
    /// Volumes were added or removed.
    VolumesChanged,
    /// Hosts may take more, or less, than before.
    QuotasChanged,
    /// Say that you are there.
    Ping(mpsc::Sender<()>),
    /// Let nobody in any more.
    StopListening,
    /// Finish what is in flight, until then at most, and end.
    Stop(Instant),
    /// End without waiting.
    StopNow,
}

/// The mailboxes of all reactors, once all of them run.
#[derive(Debug, Default)]
pub(crate) struct Mailboxes(OnceLock<Vec<Arc<Mailbox>>>);

impl Mailboxes {
    pub(crate) fn get(&self) -> Option<&Vec<Arc<Mailbox>>> {
        self.0.get()
    }

    /// Sets them; false where they are set already.
    pub(crate) fn set(&self, mailboxes: Vec<Arc<Mailbox>>) -> bool {
        self.0.set(mailboxes).is_ok()
    }
}

impl Reactors for Mailboxes {
    fn deliver(&self, name: Name, answer: Answer) {
        if let Some(mailbox) = self.get().and_then(|mailboxes| mailboxes.get(name.reactor)) {
            mailbox.send(Message::Answer(Box::new((name, answer))));
        }
    }

    fn give_way(&self, at_most: Duration) -> bool {
        let mut waited = false;
        for mailbox in self.get().into_iter().flatten() {
            waited |= mailbox.precedence.give_way(at_most);
        }
        waited
    }
}

/// A reactor's incoming messages.
pub(crate) struct Mailbox {
    /// `None` once the reactor has ended.
    messages: Mutex<Option<Vec<Message>>>,
    waker: ring::Waker,
    precedence: ring::Precedence,
}

impl Mailbox {
    pub(crate) fn new(ring: &mut ring::Ring) -> io::Result<Self> {
        Ok(Self { messages: Mutex::new(Some(Vec::new())), waker: ring.waker(), precedence: ring.precedence()? })
    }

    /// Leaves a message. A reactor that has ended drops it, and with it the connection that it may carry.
    pub(crate) fn send(&self, message: Message) {
        if let Some(messages) = &mut *self.lock() {
            messages.push(message);
        }
        self.waker.wake();
    }

    /// Swaps the messages with an empty vector.
    pub(crate) fn take(&self, into: &mut Vec<Message>) {
        if let Some(messages) = &mut *self.lock() {
            std::mem::swap(messages, into);
        }
    }

    /// The reactor has ended: nobody reads what is here or still comes.
    pub(crate) fn close(&self) {
        // Dropped without the lock: the other ends of connections may be woken by it, and ask for more.
        let unread = self.lock().take();
        drop(unread);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Message>>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What wakes one task of the reactor.
    pub(crate) fn task_waker(self: &Arc<Self>, task: usize) -> Waker {
        Arc::new(TaskWaker { mailbox: Arc::clone(self), task }).into()
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

/// Wakes a task, or a later one in the same place, which looks whether it is meant.
struct TaskWaker {
    mailbox: Arc<Mailbox>,
    task: usize,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.mailbox.send(Message::Done(self.task));
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

#[cfg(test)]
mod tests {
    use diskside_io::ring::{Ring, RingConfig};

    use super::*;
    use crate::link::{LoopRead, loop_pair};

    /// Nothing failed when mailboxes kept to themselves that a reactor waits for the caller's processor.
    #[test]
    fn engines_give_way_to_any_reactor_that_waits_for_their_processor() {
        const MOMENT: Duration = Duration::from_millis(1);
        // The test's thread alone stays here: rings begin awake, where they are made.
        let mut here = rustix::thread::CpuSet::new();
        here.set(rustix::thread::sched_getcpu());
        rustix::thread::sched_setaffinity(None, &here).unwrap();
        let mailboxes = Mailboxes::default();
        assert!(!mailboxes.give_way(MOMENT), "no reactor runs yet");
        let mut rings: Vec<_> = (0..2).map(|_| Ring::new(&RingConfig::default()).unwrap()).collect();
        assert!(mailboxes.set(rings.iter_mut().map(|ring| Arc::new(Mailbox::new(ring).unwrap())).collect()));
        assert!(mailboxes.give_way(MOMENT), "both wait");
        rings.remove(0);
        assert!(mailboxes.give_way(MOMENT), "the second waits");
        rings.clear();
        assert!(!mailboxes.give_way(MOMENT), "they have ended");
    }

    #[test]
    fn a_connection_that_nobody_will_serve_is_closed_at_once() {
        let mut ring = Ring::new(&RingConfig::default()).unwrap();
        let mailbox = Mailbox::new(&mut ring).unwrap();
        let (before, target) = loop_pair();
        mailbox.send(Message::Loop(target));
        assert_eq!(before.read(), LoopRead::Empty);
        mailbox.close();
        assert_eq!(before.read(), LoopRead::Closed);
        let (after, target) = loop_pair();
        mailbox.send(Message::Loop(target));
        assert_eq!(after.read(), LoopRead::Closed);
    }
}
