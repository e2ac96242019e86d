//! One reactor: a thread with a ring, and the connections that it alone serves.
//!
//! Each turn of its loop takes every completion that is there, lets the connections' machines and tasks go as far
//! as they get, and hands everything that came of it to the kernel in one system call: one send per connection with
//! all its answers, and the media's operations. Then it polls for up to `poll_us`, and sleeps when nothing happened.
//!
//! A connection stays with its reactor for life. The I/O queues of one controller may live on different reactors:
//! they share what the machines share through [`Subsystems`](diskside_nvme::controller::Subsystems), which the path
//! of a command never locks, and the volumes.

mod audit;
mod channel;
mod connection;
mod function;
mod local;
mod media;
mod memory;
mod receive;
mod sends;
mod start;
mod task;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use diskside_io::Errno;
use diskside_io::ring::{Completion, GroupId, Op, OpId, Payload, Ring, RingConfig, SendBatch};
use diskside_io::socket::SocketOptions;
use diskside_nvme::Transmit;
use slab::Slab;

use self::connection::{Connection, Link};
use self::local::LocalVolumes;
use self::memory::Memory;
use self::sends::Sends;
use self::task::{Next, Task};
use crate::half_open::{ConnectionSlot, Entrant};
use crate::link::LoopEnd;
use crate::shared::{Mailbox, Message, Shared};
use crate::stats::ReactorCounters;
use diskside_compute::{NextTurn, Shares};
use diskside_volume::stats::IoCounters;

/// A reactor. It is made on its own thread and stays there.
pub(crate) struct Reactor {
    connections: Slab<Connection>,
    listeners: Vec<Listening>,
    messages: Vec<Message>,
    core: Core,
}

/// What a reactor's connections share.
pub(crate) struct Core {
    index: usize,
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    ring: Ring,
    /// Where arriving bytes go first; idle connections hold none of it.
    group: GroupId,
    memory: Memory,
    volumes: LocalVolumes,
    hosts: HashMap<String, Arc<IoCounters>>,
    tasks: Slab<Task>,
    /// Tasks that wait for memory, for a block, and for their next turn.
    memory_waiters: VecDeque<usize>,
    block_waiters: VecDeque<usize>,
    yielded: VecDeque<usize>,
    /// What traversals took of this turn, and connections whose traversals go on in the next.
    shares: Shares,
    put_off: NextTurn,
    timers: BinaryHeap<Reverse<(Instant, Timer)>>,
    /// Timers of tasks among them.
    delayed: usize,
    /// Connections to settle at the end of the turn.
    dirty: Vec<usize>,
    /// What sends of this turn carry, and which of them go with the next.
    sends: Sends,
    /// Connections that do not read, and whose reads are to be copied.
    to_detach: VecDeque<usize>,
    /// Connections whose machine waits for memory.
    starved: Vec<usize>,
    /// Where records of secure channels are opened.
    opened: Vec<u8>,
    /// Where they are sealed.
    spare_sealed: Vec<Vec<u8>>,
    spare_transmits: Vec<Transmit>,
    #[expect(clippy::vec_box, reason = "batches travel in their boxes, to the ring and back")]
    spare_batches: Vec<Box<SendBatch>>,
    sends_in_flight: usize,
    /// Operations of media that the ring has not ended, and whether some were not handed to the kernel yet.
    media_in_flight: usize,
    /// Reads for traversals among them.
    fetches_in_flight: usize,
    media_waits: bool,
    /// Whether operations of media ended in this turn.
    media_ended: bool,
    /// What operations of media worked on, registered with the ring until the volumes change.
    media_files: Vec<Arc<OwnedFd>>,
    asked_to_register: bool,
    stall_check: Instant,
    owed_check: Instant,
    stop_at: Option<Instant>,
    now: Instant,
}

struct Listening {
    socket: Arc<OwnedFd>,
    accept: Option<OpId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Connection(usize),
    Task(usize),
    Accept(usize),
}

/// What a completion belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Accept(usize),
    Receive(usize),
    Send(usize),
    Task(usize),
}

impl Reactor {
    /// A reactor for the calling thread.
    pub(crate) fn new(index: usize, shared: Arc<Shared>) -> io::Result<Self> {
        let spin = Duration::from_micros(u64::from(shared.config.poll_us));
        let mut ring = Ring::new(&RingConfig { entries: RING_ENTRIES, spin, ..RingConfig::default() })?;
        let group = ring.provide(RECEIVE_BUFFERS, RECEIVE_BUFFER_BYTES)?;
        let bound = shared.config.limits.memory.bytes() / shared.config.reactors as u64;
        let now = Instant::now();
        let core = Core {
            index,
            mailbox: Arc::new(Mailbox::new(&mut ring)?),
            ring,
            group,
            memory: Memory::new(bound),
            volumes: LocalVolumes::default(),
            hosts: HashMap::new(),
            tasks: Slab::new(),
            memory_waiters: VecDeque::new(),
            block_waiters: VecDeque::new(),
            yielded: VecDeque::new(),
            shares: Shares::default(),
            put_off: NextTurn::default(),
            timers: BinaryHeap::new(),
            delayed: 0,
            dirty: Vec::new(),
            sends: Sends::default(),
            to_detach: VecDeque::new(),
            starved: Vec::new(),
            opened: Vec::new(),
            spare_sealed: Vec::new(),
            spare_transmits: Vec::new(),
            spare_batches: Vec::new(),
            sends_in_flight: 0,
            media_in_flight: 0,
            fetches_in_flight: 0,
            media_waits: false,
            media_ended: false,
            media_files: Vec::new(),
            asked_to_register: false,
            stall_check: now,
            owed_check: now,
            stop_at: None,
            now,
            shared,
        };
        Ok(Self { connections: Slab::new(), listeners: Vec::new(), messages: Vec::new(), core })
    }

    /// Where other threads leave messages.
    pub(crate) fn mailbox(&self) -> Arc<Mailbox> {
        Arc::clone(&self.core.mailbox)
    }

    /// Serves until told to stop. An error is the ring's: nothing more can be done then.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        while !(self.core.is_stopping() && self.connections.is_empty()) {
            self.core.ring.expect_answers(self.core.media_in_flight > 0 || self.core.delayed > 0);
            self.core.ring.give_way(self.core.shared.is_crowded() || self.core.may_rest());
            let wait = self.core.ring.wait(self.timeout())?;
            self.core.media_waits = false;
            self.core.media_ended = false;
            self.core.now = Instant::now();
            self.core.refresh_volumes();
            self.resume_put_off();
            self.resume_sends();
            if wait.woken {
                self.read_messages();
            }
            while let Some(completion) = self.core.ring.next_completion() {
                self.handle(completion);
            }
            self.run_timers();
            self.detach_some();
            self.retry_tasks();
            self.settle();
            self.core.memory.keep_arrived();
            self.end_turn(wait.completions || wait.woken);
        }
        Ok(())
    }

    /// How long nothing will happen by itself.
    fn timeout(&self) -> Option<Duration> {
        let core = &self.core;
        if !core.yielded.is_empty() || !core.dirty.is_empty() || !core.put_off.is_empty() {
            return Some(Duration::ZERO);
        }
        let goes_on = (core.sends.are_put_off() || !core.to_detach.is_empty())
            .then(|| if core.shared.is_crowded() { TURN_PAUSE } else { Duration::ZERO });
        let timer =
            core.timers.peek().map(|Reverse((at, timer))| match (at.saturating_duration_since(core.now), timer) {
                // A sleep would take longer.
                (left, Timer::Task(_)) if left < DELAY_SLEPT_MIN => Duration::ZERO,
                (left, _) => left,
            });
        let blocks = (!core.block_waiters.is_empty()).then_some(BLOCK_RETRY);
        let stall = (core.sends_in_flight > 0).then_some(STALL);
        let owed = (core.memory.owed_bytes() > 0).then_some(OWED_LOOK);
        let shrink = (core.memory.held_bytes() > core.memory.in_flight_bytes()).then_some(SHRINK);
        let stop = core.stop_at.map(|at| at.saturating_duration_since(core.now));
        [goes_on, timer, blocks, stall, owed, shrink, stop].into_iter().flatten().min()
    }

    fn handle(&mut self, completion: Completion) {
        let token = Token::from_bits(completion.token);
        match token {
            Token::Accept(listener) => self.accepted(listener, completion),
            Token::Receive(id) => {
                if let Some(connection) = self.connections.get_mut(id) {
                    connection.received(&mut self.core, completion);
                }
            }
            Token::Send(id) => {
                self.core.sends_in_flight -= 1;
                if let Some(connection) = self.connections.get_mut(id) {
                    connection.sent(&mut self.core, completion);
                }
            }
            Token::Task(key) => {
                self.core.media_in_flight -= 1;
                self.core.media_ended = true;
                let buffer = match completion.payload {
                    Payload::Buffer(buffer) => Some(buffer),
                    _ => None,
                };
                let task = &mut self.core.tasks[key];
                self.core.fetches_in_flight -= usize::from(task.is_fetch());
                task.completed(completion.result, buffer);
                self.resume(key);
            }
        }
    }

    fn resume(&mut self, key: usize) {
        let id = self.core.tasks[key].connection;
        let connection = &mut self.connections[id];
        connection.resume_task(&mut self.core, key);
    }

    /// Tasks that waited for something that may have come.
    fn retry_tasks(&mut self) {
        for _ in 0..self.core.yielded.len() {
            if let Some(key) = self.core.yielded.pop_front() {
                self.resume(key);
            }
        }
        for _ in 0..self.core.block_waiters.len() {
            if let Some(key) = self.core.block_waiters.pop_front() {
                self.resume(key);
            }
        }
        if let Some(id) = self.core.memory.reserved_for()
            && !self.waiting_for_memory().any(|waits| waits.id == id)
        {
            self.core.memory.unreserve();
        }
        if self.core.memory.is_hungry() && !self.is_somebody_hungry() {
            self.core.memory.sate();
        }
        if !self.core.memory.take_released() {
            return;
        }
        for _ in 0..self.core.memory_waiters.len() {
            if let Some(key) = self.core.memory_waiters.pop_front() {
                self.resume(key);
            }
        }
        for id in std::mem::take(&mut self.core.starved) {
            if let Some(connection) = self.connections.get_mut(id) {
                connection.fed(&mut self.core);
            }
        }
    }

    /// Sends that were put off, in this order and before others that come now.
    fn resume_sends(&mut self) {
        for id in self.core.sends.begin_turn() {
            if let Some(connection) = self.connections.get_mut(id) {
                connection.resume_send(&mut self.core);
            }
        }
    }

    /// Copies what peers that do not read hold of volumes, a little in each turn: they may be many, and each hold much.
    fn detach_some(&mut self) {
        let mut left = DETACHED_BYTES;
        while left > 0
            && let Some(&id) = self.core.to_detach.front()
        {
            let connection = self.connections.get_mut(id);
            match connection.and_then(|connection| connection.detach_some(&mut self.core)) {
                Some(copied) => left = left.saturating_sub(copied),
                None => drop(self.core.to_detach.pop_front()),
            }
        }
    }

    fn settle(&mut self) {
        let mut index = 0;
        while let Some(&id) = self.core.dirty.get(index) {
            index += 1;
            let Some(connection) = self.connections.get_mut(id) else { continue };
            if connection.settle(&mut self.core) {
                connection.unregister(&mut self.core);
                self.connections.remove(id);
                self.core.forget_connection();
            }
        }
        self.core.dirty.clear();
    }

    fn run_timers(&mut self) {
        while let Some(&Reverse((at, timer))) = self.core.timers.peek() {
            if at > self.core.now {
                break;
            }
            self.core.timers.pop();
            match timer {
                Timer::Connection(id) => {
                    if let Some(connection) = self.connections.get_mut(id) {
                        connection.timed_out(&mut self.core, at);
                    }
                }
                Timer::Task(key) => {
                    // A delay may have been cut short, and the place have a new task.
                    self.core.delayed -= 1;
                    if self.core.tasks.get(key).is_some_and(|task| task.delayed_until == Some(at)) {
                        self.core.tasks[key].delayed_until = None;
                        self.resume(key);
                    }
                }
                Timer::Accept(listener) => self.accept(listener),
            }
        }
        if self.core.sends_in_flight > 0 && self.core.now >= self.core.stall_check {
            self.core.stall_check = self.core.now + STALL;
            let starving = self.is_starving();
            for (_, connection) in &mut self.connections {
                connection.check_stall(&mut self.core, starving);
            }
        }
        if self.core.memory.owed_bytes() > 0 && self.core.now >= self.core.owed_check {
            self.core.owed_check = self.core.now + OWED_LOOK;
            let starving = self.is_starving();
            for (_, connection) in &mut self.connections {
                connection.check_owed(&mut self.core, starving);
            }
        }
        if self.core.stop_at.is_some_and(|at| self.core.now >= at) {
            for (_, connection) in &mut self.connections {
                connection.close(&mut self.core, "the target stops");
            }
        }
    }

    /// Whether a connection that holds no memory waits for some: then those who do not let go of theirs must.
    fn is_starving(&self) -> bool {
        self.waiting_for_memory().any(|waits| waits.account.charged == 0)
    }

    /// Whether one waits that could have some but for others.
    fn is_somebody_hungry(&self) -> bool {
        self.waiting_for_memory().any(|waits| self.core.memory.is_kept_from(&waits.account))
    }

    fn waiting_for_memory(&self) -> impl Iterator<Item = &Connection> {
        let tasks = self.core.memory_waiters.iter().map(|&key| self.core.tasks[key].connection);
        self.core.starved.iter().copied().chain(tasks).filter_map(|id| self.connections.get(id))
    }

    fn end_turn(&mut self, busy: bool) {
        let core = &mut self.core;
        if !busy && core.memory.in_flight_bytes() == 0 {
            core.memory.shrink();
            core.spare_sealed.clear();
            core.spare_transmits.clear();
            core.spare_batches.clear();
        }
        let (stats, ring) = (core.counters(), core.ring.stats());
        stats.turns.add(1);
        stats.traversal_work_turn_max.set(core.shares.work_max().into());
        stats.sleeps.set(ring.sleeps);
        stats.enters.set(ring.enters);
        stats.connections.set(self.connections.len() as u64);
        stats.memory_in_flight_bytes.set(core.memory.in_flight_bytes());
        stats.memory_held_bytes.set(core.memory.held_bytes());
    }

    fn read_messages(&mut self) {
        let mut messages = std::mem::take(&mut self.messages);
        self.core.mailbox.take(&mut messages);
        for message in messages.drain(..) {
            match message {
                Message::Listen(_) if self.core.is_stopping() => {}
                Message::Listen(sockets) => {
                    for socket in sockets {
                        self.listeners.push(Listening { socket, accept: None });
                        self.accept(self.listeners.len() - 1);
                    }
                }
                // A reactor that stops lets nobody in any more: the peer sees the end at once.
                Message::Socket(_) | Message::Loop(_) if self.core.is_stopping() => self.core.forget_connection(),
                Message::Socket(socket) => self.add_socket(socket),
                Message::Loop(end) => self.add_loop(end),
                Message::Wake(id) => {
                    if let Some(connection) = self.connections.get_mut(id) {
                        connection.woken(&mut self.core);
                    }
                }
                Message::Done(key) => {
                    let waker = self.core.mailbox.task_waker(key);
                    // The task may have ended, and another be in its place.
                    let task = self.core.tasks.get_mut(key).filter(|task| task.is_elsewhere());
                    if task.is_some_and(|task| task.listen(&waker)) {
                        self.resume(key);
                    }
                }
                Message::Answer(answer) => {
                    let (name, answer) = *answer;
                    if let Some(connection) = self.connections.get_mut(name.connection) {
                        connection.answered(&mut self.core, name, answer);
                    }
                }
                Message::Computed { connection, tag, done } => {
                    if let Some(connection) = self.connections.get_mut(connection) {
                        connection.computed(&mut self.core, tag, done);
                    }
                }
                Message::Shaken { connection, alive, shaken } => {
                    // What belongs to one connection opens no other.
                    if let Some(connection) = self.connections.get_mut(connection).filter(|found| found.is(&alive)) {
                        connection.shaken(&mut self.core, *shaken);
                    }
                }
                Message::GiveWay { connection, alive } => {
                    if let Some(connection) = self.connections.get_mut(connection).filter(|found| found.is(&alive)) {
                        connection.give_way(&mut self.core);
                    }
                }
                Message::VolumesChanged => self.core.refresh_volumes(),
                Message::QuotasChanged => {
                    for (_, connection) in self.connections.iter_mut().filter(|(_, found)| found.paused.is_some()) {
                        connection.mark_dirty(&mut self.core);
                    }
                }
                // Who asked may not wait any more.
                Message::Ping(asker) => drop(asker.send(())),
                Message::Stop => self.stop(),
                Message::StopNow => {
                    self.stop();
                    self.core.stop_at = Some(self.core.now);
                }
            }
        }
        self.messages = messages;
    }

    fn accept(&mut self, listener: usize) {
        if !self.core.is_stopping() {
            let listening = &mut self.listeners[listener];
            let op = Op::Accept { listener: Arc::clone(&listening.socket) };
            listening.accept = Some(self.core.ring.push(Token::Accept(listener).bits(), op));
        }
    }

    fn accepted(&mut self, listener: usize, completion: Completion) {
        let Some(listening) = self.listeners.get_mut(listener) else {
            // The target stops: who came last is not let in.
            return;
        };
        listening.accept = None;
        match (completion.result, completion.payload) {
            (Ok(_), Payload::Accepted(socket)) => {
                match self.core.shared.place_connection() {
                    Some(reactor) if reactor == self.core.index => self.add_socket(socket),
                    Some(reactor) => drop(self.core.shared.send(reactor, Message::Socket(socket))),
                    None => {
                        if let Some(left_out) = self.core.shared.notices.admit("too many", self.core.now) {
                            tracing::warn!(left_out, "too many connections: one more was closed");
                        }
                    }
                }
                match self.core.shared.is_crowded() {
                    true => self.core.timers.push(Reverse((self.core.now + ACCEPT_PAUSE, Timer::Accept(listener)))),
                    false => self.accept(listener),
                }
            }
            (Err(Errno::CANCELED), _) => {}
            (result, _) => {
                // Out of descriptors or memory, most likely: room may come when a connection ends.
                if let Some(left_out) = self.core.shared.notices.admit("accept", self.core.now) {
                    tracing::warn!(?result, left_out, "accept failed; trying again soon");
                }
                let at = self.core.now + ACCEPT_RETRY;
                self.core.timers.push(Reverse((at, Timer::Accept(listener))));
            }
        }
    }

    fn add_socket(&mut self, socket: OwnedFd) {
        let options = SocketOptions {
            congestion_control: self.core.shared.config.congestion_control.clone(),
            ..SocketOptions::default()
        };
        if let Err(error) = diskside_io::socket::tune(&socket, &options).and_then(|()| keep_alive(&socket))
            && let Some(left_out) = self.core.shared.notices.admit("socket", self.core.now)
        {
            tracing::warn!(%error, left_out, "a new connection's socket");
        }
        // Where it cannot be set, as with a socket that is none of TCP's, the kernel's own bounds hold.
        let _ = diskside_sys::socket::set_unsent_bytes_max(&socket, UNSENT_BYTES_MAX);
        let address = diskside_io::socket::peer_address(&socket).ok();
        let peer = address.map_or_else(|| "?".into(), |peer| peer.to_string());
        let alive = Arc::new(());
        let connection = self.connections.vacant_entry().key();
        let place = ConnectionSlot { reactor: self.core.index, connection, alive: Arc::downgrade(&alive) };
        let entrant = self.core.shared.enter(address.map(|address| address.ip()), place);
        let socket = Arc::new(socket);
        self.core.ring.register_file(&socket);
        self.add_connection(Link::Socket { socket, receive: None }, peer, alive, Some(entrant));
    }

    fn add_loop(&mut self, end: LoopEnd) {
        let entry = self.connections.vacant_entry();
        end.set_waker(self.core.mailbox.connection_waker(entry.key()));
        self.add_connection(Link::Loop(end), "loop".into(), Arc::new(()), None);
    }

    fn add_connection(&mut self, link: Link, peer: String, alive: Arc<()>, entrant: Option<Entrant>) {
        let entry = self.connections.vacant_entry();
        let id = entry.key();
        entry.insert(Connection::new(&mut self.core, id, link, peer, alive, entrant));
        self.core.counters().connections_total.add(1);
    }

    /// Takes no more connections and commands; what is in flight ends first.
    fn stop(&mut self) {
        if self.core.is_stopping() {
            return;
        }
        let wait = Duration::from_millis(u64::from(self.core.shared.config.limits.stop_ms));
        self.core.stop_at = Some(self.core.now + wait);
        for listening in self.listeners.drain(..) {
            if let Some(accept) = listening.accept {
                self.core.ring.cancel(accept);
            }
        }
        for (_, connection) in &mut self.connections {
            connection.woken(&mut self.core);
        }
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        self.core.mailbox.close();
    }
}

impl Core {
    /// One connection less that was placed here.
    fn forget_connection(&self) {
        self.shared.connections[self.index].fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
    }

    fn is_stopping(&self) -> bool {
        self.stop_at.is_some()
    }

    /// Whether a disk has enough to do for traversals, and nothing else: their steps are as fast when some of them are taken
    /// together, and to look out for each alone would take all of a processor.
    fn may_rest(&self) -> bool {
        self.fetches_in_flight >= RESTING_FETCHES_MIN && self.fetches_in_flight == self.media_in_flight
    }

    fn counters(&self) -> &ReactorCounters {
        &self.shared.reactor_stats[self.index]
    }

    /// Puts a task where it is found again when what it needs has come.
    fn park(&mut self, key: usize, next: Next) {
        match next {
            Next::Submit(op) => {
                self.register_file_of(&op);
                self.ring.push(Token::Task(key).bits(), op);
                self.media_in_flight += 1;
                self.fetches_in_flight += usize::from(self.tasks[key].is_fetch());
                self.media_waits = true;
            }
            Next::Memory => self.memory_waiters.push_back(key),
            Next::Block => self.block_waiters.push_back(key),
            Next::Delay(delay) => {
                let until = self.now + delay;
                self.tasks[key].delayed_until = Some(until);
                self.delayed += 1;
                self.timers.push(Reverse((until, Timer::Task(key))));
            }
            Next::Elsewhere => {
                let waker = self.mailbox.task_waker(key);
                if self.tasks[key].listen(&waker) {
                    self.yielded.push_back(key);
                }
            }
            Next::Yield => self.yielded.push_back(key),
            Next::End(_) => unreachable!("a task that ended is not parked"),
        }
    }

    /// Cuts the delays of a connection's tasks short: they are resumed in the next turn.
    fn end_delays(&mut self, connection: usize) {
        for (key, task) in &mut self.tasks {
            if task.connection == connection && task.delayed_until.take().is_some() {
                self.yielded.push_back(key);
            }
        }
    }

    /// This reactor's counters of a host. Names come from peers: past a bound they share one.
    fn host_counters(&mut self, host: &str) -> Arc<IoCounters> {
        let host = if self.hosts.len() < HOSTS_MAX || self.hosts.contains_key(host) { host } else { OTHER_HOSTS };
        let registry = &self.shared.host_stats;
        Arc::clone(self.hosts.entry(host.to_owned()).or_insert_with(|| registry.register(host)))
    }
}

impl Token {
    fn bits(self) -> u64 {
        let (kind, index) = match self {
            Self::Accept(index) => (0_u64, index),
            Self::Receive(index) => (1, index),
            Self::Send(index) => (2, index),
            Self::Task(index) => (3, index),
        };
        kind << 62 | index as u64
    }

    fn from_bits(bits: u64) -> Self {
        let index = (bits & !(3 << 62)) as usize;
        match bits >> 62 {
            0 => Self::Accept(index),
            1 => Self::Receive(index),
            2 => Self::Send(index),
            _ => Self::Task(index),
        }
    }
}

/// Finds peers that vanished without a word, also where the host asked for no Keep Alive.
fn keep_alive(socket: &OwnedFd) -> io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(60))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(10))?;
    sockopt::set_tcp_keepcnt(socket, 6)?;
    Ok(sockopt::set_socket_keepalive(socket, true)?)
}

const RING_ENTRIES: u32 = 1024;
/// 2 MiB a reactor, shared by all its connections.
const RECEIVE_BUFFERS: u16 = 64;
const RECEIVE_BUFFER_BYTES: usize = 32 << 10;
/// Bytes that a socket takes before they can be sent: enough for a reactor that comes back some hundred microseconds later.
/// Without a bound a peer that does not read has the kernel keep some MiB for it.
const UNSENT_BYTES_MAX: u32 = 256 << 10;
/// Bytes that a turn copies for peers that do not read; at least one read of theirs.
const DETACHED_BYTES: usize = 256 << 10;
/// How long blocks of a memory volume stay held for a peer that does not read.
const STALL: Duration = Duration::from_millis(5);
/// How often hosts are looked after that owe data.
const OWED_LOOK: Duration = Duration::from_millis(500);
/// How soon a block is asked for again that another reactor's command holds.
const BLOCK_RETRY: Duration = Duration::from_micros(100);
/// Reads of traversals that keep a disk busy for some hundred microseconds.
const RESTING_FETCHES_MIN: usize = 96;
/// Shorter delays of media are not slept through.
const DELAY_SLEPT_MIN: Duration = Duration::from_micros(150);
/// How soon spare memory goes back to the system.
const SHRINK: Duration = Duration::from_secs(1);
/// How soon a turn follows that sends more to those who have much to read, while functions want the processor.
const TURN_PAUSE: Duration = Duration::from_micros(100);
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// How soon after a connection came the next is let in while functions want the processor. Otherwise it is one each turn. Letting
/// one in and seeing it go takes some ten microseconds: so who comes and goes has a tenth of the processor.
const ACCEPT_PAUSE: Duration = Duration::from_micros(500);
/// Hosts that a reactor counts by name.
const HOSTS_MAX: usize = 1024;
const OTHER_HOSTS: &str = "(others)";
