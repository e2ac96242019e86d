//! One connection: its machine, its link, and what it has in flight.

mod send;
mod slow;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use diskside_nvme::Nqn;
use diskside_nvme::auth::Done;
use diskside_nvme::controller::{self, ConnectionConfig, State, Tag};
use rustix::net::{Shutdown, shutdown};

use super::channel::Channel;
use super::core::Core;
use super::function::FunctionState;
use super::kept::Kept;
use super::late::Late;
use super::memory::{Account, AccountMemory};
use super::receive::Receive;
use crate::audit::Told;
use crate::authenticate::Origin;
use crate::half_open::{ConnectionSlot, Entrant};
use crate::link::LoopEnd;
use diskside_rights::{HostQuota, Wait};
use diskside_volume::stats::IoCounters;
use send::Sending;

/// A connection of a reactor.
pub(super) struct Connection {
    pub(super) id: usize,
    pub(super) machine: controller::Connection,
    pub(super) account: Account,
    pub(super) counters: Option<Arc<IoCounters>>,
    /// The quota of its host; `None` before Connect.
    pub(super) quota: Option<Arc<HostQuota>>,
    /// Its host has had its rate, and there are commands of it.
    pub(super) paused: Option<Wait>,
    /// Function commands: its controller's state, once one came.
    pub(super) function: FunctionState,
    /// Tasks that have not ended.
    pub(super) tasks: usize,
    /// The peer reads too slowly for blocks to be held until it has.
    pub(super) copy_reads: bool,
    /// Bytes of volumes that were fetched into the cache for the batch that is being put together.
    pub(super) prefetched_bytes: u32,
    pub(super) link: Link,
    /// Between the socket and the machine.
    pub(super) channel: Channel,
    /// The host is not let in yet.
    entrant: Option<Entrant>,
    /// Gone with the connection: then nobody waits for what is computed for it.
    pub(super) alive: Arc<()>,
    pub(super) peer: String,
    pub(super) phase: Phase,
    /// Bytes that came and that the machine did not take yet.
    pub(super) carry: Vec<u8>,
    /// Bytes that came behind them, or that others come before.
    pub(super) late: Late,
    /// So many of both, as they were counted last.
    pub(super) kept_len: usize,
    /// Much data is on its way: it is received right into its place.
    pub(super) places_data: bool,
    sending: Option<Sending>,
    /// Since when the host owes data without having sent much of it, and bytes that came since.
    owed_since: Option<Instant>,
    heard_bytes: usize,
    timer: Option<Instant>,
    /// The events of it that the audit has already.
    pub(super) told: Told,
    dirty: bool,
    starved: bool,
    /// It sends nothing before the next turn, or before its reads are copied.
    holds_sends: Option<Hold>,
}

/// Why a connection does not send what it has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    /// Others come first in this turn.
    Turn,
    /// Its host does not read, and what it asked for is to be copied first.
    Detach,
}

/// Where a connection's bytes go.
pub(super) enum Link {
    /// A TCP socket.
    Socket {
        /// The socket.
        socket: Arc<OwnedFd>,
        /// The number of the listener through which it came.
        listener: usize,
        /// The receive under way.
        receive: Option<Receive>,
    },
    /// Memory.
    Loop(LoopEnd),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Bytes go both ways.
    Open,
    /// Everything was said; the peer has until then to close, so that it reads our last words before a reset.
    Lingering(Instant),
    /// Nothing goes either way; waiting for the kernel to release what is in flight.
    Closed,
}

impl Connection {
    pub(super) fn new(
        core: &mut Core,
        id: usize,
        link: Link,
        peer: String,
        alive: Arc<()>,
        entrant: Option<Entrant>,
    ) -> Self {
        let limits = &core.shared.config.limits;
        let local_address = match &link {
            // IPv4 that came to an IPv6 socket is IPv4 again.
            Link::Socket { socket, .. } => {
                diskside_io::socket::local_address(socket).ok().map(|address| address.ip().to_canonical())
            }
            Link::Loop(_) => None,
        };
        let listener = match &link {
            Link::Socket { listener, .. } => u16::try_from(*listener).ok(),
            Link::Loop(_) => None,
        };
        let config = ConnectionConfig {
            local_address,
            listener,
            connect_timeout: Duration::from_millis(u64::from(limits.handshake_ms)),
            r2t_len_max: limits.transfer.bytes() as u32,
            trusted: matches!(link, Link::Loop(_)),
            ..ConnectionConfig::default()
        };
        let waker = core.mailbox.connection_waker(id);
        let machine = controller::Connection::new(Arc::clone(&core.shared.subsystems), config, waker, core.now);
        tracing::debug!(peer, "connection accepted");
        let account = Account::new(id, limits.connection_memory.bytes());
        let mut connection = Self {
            id,
            machine,
            account,
            counters: None,
            quota: None,
            paused: None,
            function: FunctionState::new(),
            tasks: 0,
            copy_reads: false,
            prefetched_bytes: 0,
            channel: match &link {
                Link::Socket { .. } => Channel::Undecided,
                Link::Loop(_) => Channel::None,
            },
            link,
            entrant,
            alive,
            peer,
            phase: Phase::Open,
            carry: Vec::new(),
            late: Late::default(),
            kept_len: 0,
            places_data: false,
            sending: None,
            owed_since: None,
            heard_bytes: 0,
            timer: None,
            told: Told::default(),
            dirty: false,
            starved: false,
            holds_sends: None,
        };
        connection.mark_dirty(core);
        connection
    }

    /// Another thread has news for the machine, or a loop's other end moved.
    pub(super) fn woken(&mut self, core: &mut Core) {
        if self.phase == Phase::Open {
            self.machine.handle_wake(core.now);
        }
        self.mark_dirty(core);
    }

    /// What the host's authentication takes is computed.
    pub(super) fn computed(&mut self, core: &mut Core, tag: Tag, done: Done) {
        if self.phase == Phase::Open {
            self.machine.computed(core.now, tag, done);
        }
        self.mark_dirty(core);
    }

    /// There may be memory for what the machine waits for.
    pub(super) fn fed(&mut self, core: &mut Core) {
        self.starved = false;
        if self.phase != Phase::Open {
            return;
        }
        let mut pool = AccountMemory::new(&mut core.memory, &mut self.account);
        self.machine.handle_buffers(core.now, &mut pool);
        let refused = pool.refused;
        self.answer_held(core);
        if refused {
            self.wait_for_memory(core);
        }
        self.mark_dirty(core);
    }

    /// The timer of `at` went off.
    pub(super) fn timed_out(&mut self, core: &mut Core, at: Instant) {
        if self.timer != Some(at) {
            return;
        }
        self.timer = None;
        match self.phase {
            Phase::Open => {
                if self.machine.poll_timeout().is_some_and(|at| at <= core.now) {
                    self.machine.handle_timeout(core.now);
                }
                self.end_late_calls(core);
            }
            Phase::Lingering(until) if until <= core.now => self.close(core, "the host did not close the connection"),
            _ => {}
        }
        self.mark_dirty(core);
    }

    /// Sees to it that the connection is settled at the end of the turn.
    pub(super) fn mark_dirty(&mut self, core: &mut Core) {
        if !self.dirty {
            self.dirty = true;
            core.dirty.push(self.id);
        }
    }

    /// Lets the machine go as far as it gets. True when the connection is over and holds nothing any more.
    pub(super) fn settle(&mut self, core: &mut Core) -> bool {
        self.prefetched_bytes = 0;
        if self.account.host.is_none()
            && let Some(host) = self.machine.host_nqn()
        {
            let host = host.to_string();
            core.memory.charge_to_host(&mut self.account, &host);
            self.quota = Some(core.shared.quotas.of(&host));
        }
        if let Some(host) = &self.account.host {
            core.sends.hear(Rc::as_ptr(host).addr(), core.now);
        }
        while self.phase == Phase::Open {
            self.function.begin_batch();
            let mut moved = false;
            while self.feed(core) | self.start_requests(core) {
                moved = true;
            }
            self.transmit(core);
            // The end of a send brings us back here. A loop's sends end at once, and may have made room for more.
            if !moved || self.sending.is_some() || self.holds_sends.is_some() {
                break;
            }
        }
        self.tell_of_arrival(core);
        // Discovery asks nobody who it is, and so tells nothing of who this is.
        let is_open_to_all = !core.shared.authenticates.load(Ordering::Relaxed);
        let is_known = self.machine.is_authenticated()
            && self.machine.subsystem_nqn().is_some_and(|nqn| is_open_to_all || !nqn.is_discovery());
        if self.entrant.is_some() && is_known {
            self.entrant = None;
        }
        self.follow_state(core);
        self.continue_late(core);
        self.note_kept(&mut core.kept);
        self.arm_receive(core);
        self.arm_timer(core);
        self.dirty = false;
        let receiving = matches!(self.link, Link::Socket { receive: Some(_), .. });
        self.phase == Phase::Closed && self.tasks == 0 && self.sending.is_none() && !receiving
    }

    /// Counts what it keeps.
    pub(super) fn note_kept(&mut self, kept: &mut Kept) {
        let sealed = match &self.channel {
            Channel::Made(made) => made.incoming.len(),
            _ => 0,
        };
        let now = if self.phase == Phase::Open { self.carry.len() + self.late.len() + sealed } else { 0 };
        kept.change(std::mem::replace(&mut self.kept_len, now), now);
    }

    /// Ends the connection at once. What the kernel still has ends by itself.
    pub(super) fn close(&mut self, core: &mut Core, why: &str) {
        if self.phase == Phase::Closed {
            return;
        }
        let (host, error) = (self.machine.host_nqn().map(ToString::to_string), self.machine.error());
        match error {
            // Of every host that disconnects in good order some queue sees the controller go first.
            Some(error) if error.is_consequence() => {
                tracing::debug!(peer = self.peer, host, %error, "connection closed");
            }
            Some(error) => match core.shared.notices.admit(&self.peer, core.now) {
                Some(left_out) => tracing::warn!(peer = self.peer, host, %error, left_out, "connection closed"),
                None => tracing::debug!(peer = self.peer, host, %error, "connection closed"),
            },
            None => tracing::debug!(peer = self.peer, host, why, "connection closed"),
        }
        self.tell_of_end(core, why);
        self.phase = Phase::Closed;
        self.carry = Vec::new();
        self.late = Late::default();
        self.function.close(core.now, &mut core.shares);
        self.forget_file_reads(core);
        if self.tasks > 0 {
            core.end_delays(self.id);
        }
        let mut pool = AccountMemory::new(&mut core.memory, &mut self.account);
        self.machine.handle_close(&mut pool);
        match &self.link {
            Link::Socket { socket, .. } => {
                // Ends the receive and the send under way. An error means that the socket is gone already.
                let _ = shutdown(socket, Shutdown::Both);
                self.cancel_receive(core);
            }
            Link::Loop(_) => {}
        }
        if let Some(sending) = self.sending.take_if(|sending| sending.op.is_none()) {
            self.abandon(core, sending.transmit);
        }
        self.mark_dirty(core);
    }

    pub(super) fn wait_for_memory(&mut self, core: &mut Core) {
        if !self.starved {
            self.starved = true;
            core.counters().memory_waits.add(1);
            core.starved.push(self.id);
        }
    }

    /// Goes along when the machine, or a stop of the target, ends the connection.
    fn follow_state(&mut self, core: &mut Core) {
        if self.phase != Phase::Open {
            return;
        }
        let sends = self.sending.is_some() || self.holds_sends.is_some();
        if self.channel.has_failed() && !sends {
            return self.linger(core);
        }
        match self.machine.state() {
            // Whatever is still being sent: nobody waits for it, and a host that fell silent would never take it.
            State::Closed => self.close(core, "the controller closed the connection"),
            State::Draining if !self.channel.is_open() => self.close(core, "its secure channel was not made"),
            _ if sends => {}
            State::Draining if self.tasks == 0 => {
                if self.say_goodbye() {
                    // The end of this send brings us back here.
                    self.transmit(core);
                } else {
                    self.linger(core);
                }
            }
            _ => {}
        }
    }

    /// Everything was said.
    fn linger(&mut self, core: &mut Core) {
        match &self.link {
            Link::Socket { socket, .. } => {
                // If it fails, the peer is gone, and the receive tells.
                let _ = shutdown(socket, Shutdown::Write);
                self.phase = Phase::Lingering(core.now + LINGER);
            }
            Link::Loop(_) => self.close(core, "the controller closed the connection"),
        }
    }

    /// Keeps one timer, at or before what is due next: deadlines that only move on cost nothing.
    fn arm_timer(&mut self, core: &mut Core) {
        let due = match self.phase {
            Phase::Open => {
                let paused = self.paused.map(|paused| paused.until);
                self.machine.poll_timeout().into_iter().chain(self.calls_due()).chain(paused).min()
            }
            Phase::Lingering(until) => Some(until),
            Phase::Closed => None,
        };
        if let Some(due) = due
            && self.timer.is_none_or(|timer| due < timer)
        {
            self.timer = Some(due);
            core.timers.push(std::cmp::Reverse((due, super::core::Timer::Connection(self.id))));
        }
    }

    /// The ring releases the socket, so that it is closed with the connection.
    pub(super) fn unregister(&self, core: &mut Core) {
        if let Link::Socket { socket, .. } = &self.link {
            core.ring.unregister_file(socket);
        }
        core.memory.forget(&self.account);
    }

    /// Others come, and the host was not let in.
    pub(super) fn give_way(&mut self, core: &mut Core) {
        if self.entrant.is_some() {
            self.close(
                core,
                "too many connections have not authenticated, and this is the oldest of an address with many",
            );
        }
    }

    /// Where it is, for others.
    pub(super) fn slot(&self, core: &Core) -> ConnectionSlot {
        ConnectionSlot { reactor: core.index, connection: self.id, alive: Arc::downgrade(&self.alive) }
    }

    /// Whose it is, for those who authenticate hosts in turns.
    pub(super) fn origin(&self) -> Origin {
        match &self.entrant {
            Some(entrant) => Origin::Address(entrant.address()),
            None => {
                let mut hasher = DefaultHasher::new();
                self.machine.host_nqn().map(Nqn::as_str).hash(&mut hasher);
                Origin::Host(hasher.finish())
            }
        }
    }

    /// Whether it is the connection that this was taken from, and not one that has its place now.
    pub(super) fn is(&self, alive: &Weak<()>) -> bool {
        std::ptr::eq(alive.as_ptr(), Arc::as_ptr(&self.alive))
    }

    pub(super) fn peer(&self) -> &str {
        &self.peer
    }

    pub(super) fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }
}

/// How long a peer may take to close after our last words.
const LINGER: Duration = Duration::from_secs(1);
