//! A host's connection to a controller: its threads, and what is shared between them.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use diskside_io::request::{Lost as _, RequestFuture, passing, promise};
use diskside_io::ring::Waker;
use diskside_keys::KeySource;
use diskside_nvme::auth::TlsPsk;
use diskside_nvme::host::{ConnectionError, ControllerInfo, Login};
use diskside_nvme::{Nqn, Status};

use crate::channel::ChannelKey;
use crate::control::{Control, Order};
use crate::error::HostError;
use crate::job::{Command, CommandOutcome, Staged, refuse};
use crate::login::{Party, login};
use crate::options::{ConnectOptions, other_name};
use crate::queue::{Queue, QueueOrder, Report, ToControl};
use crate::route::{Peer, Route, Transport, Wired};
use crate::stats::{Counters, Stats};
use crate::url::{PORT_DEFAULT, Url};
use crate::volume::Volume;
use crate::volume_state::VolumeState;

/// An association with a controller: an admin queue with a thread that keeps it alive and makes it again when it is
/// lost, and I/O queues with a thread each. Clones refer to the same one; it ends in good order, after all requests,
/// when the last clone and the last [`Volume`] are gone.
#[derive(Clone)]
pub struct Connection {
    inner: Arc<Inner>,
}

/// Name of the threads of admin queues.
const CONTROL_THREAD: &str = "nvme-admin";

/// The part that users hold, and threads do not.
struct Inner {
    shared: Arc<Shared>,
    control: ToControl,
    thread: Option<JoinHandle<()>>,
}

/// What users and threads share.
pub(crate) struct Shared {
    pub(crate) options: ConnectOptions,
    login: Login,
    pub(crate) counters: Counters,
    /// System calls and sleeps of each queue's ring.
    pub(crate) ring_stats: Vec<(AtomicU64, AtomicU64)>,
    route: Route,
    /// With what the queues come, if this association's authentication made it.
    generated: Mutex<Option<Arc<ChannelKey>>>,
    to_control: OnceLock<ToControl>,
    queues: OnceLock<Vec<QueueHandle>>,
    turn: AtomicU64,
    controller: Mutex<Option<ControllerInfo>>,
    volumes: Mutex<Vec<Weak<VolumeState>>>,
    problem: Mutex<Option<String>>,
    state: AtomicU8,
    ending: AtomicBool,
}

/// Where a [`Connection`] stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ConnectionState {
    /// Commands pass.
    Up = 0,
    /// The association was lost and is being made again; requests wait for that.
    Lost = 1,
    /// It was given up: every request fails, also later ones.
    Ended = 2,
}

struct QueueHandle {
    staging: SyncSender<Staged>,
    orders: Sender<QueueOrder>,
    waker: Waker,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Connection {
    /// Connects to the subsystem that a URL names.
    pub fn connect(url: &Url, options: &ConnectOptions) -> Result<Self, HostError> {
        options.check()?;
        let subsystem = subsystem_of(url)?;
        let options = &options.for_server(url);
        first_success((url, &options.key), |route| Self::connect_by(route, url.tls, subsystem.clone(), options))
    }

    /// Connects to a subsystem of a target in this process: the same commands and the same checks, without a socket.
    pub fn embedded(
        transport: Arc<dyn Transport>,
        subsystem: Nqn,
        options: &ConnectOptions,
    ) -> Result<Self, HostError> {
        options.check()?;
        Self::connect_by(Route::Embedded(transport), false, subsystem, options)
    }

    fn connect_by(route: Route, tls: bool, subsystem: Nqn, options: &ConnectOptions) -> Result<Self, HostError> {
        let (connection, announced) = Self::begin(Shared::new(route, tls, &subsystem, options)?, subsystem)?;
        announced.recv().map_err(|_| ended())??;
        Ok(connection)
    }

    /// Connects with one I/O queue, which the calling thread turns itself.
    pub(crate) fn connect_inline(url: &Url, options: &ConnectOptions) -> Result<(Self, Queue), HostError> {
        let options = ConnectOptions { io_queues: 1, ..options.for_server(url) };
        options.check()?;
        let subsystem = subsystem_of(url)?;
        first_success((url, &options.key), |route| Self::connect_inline_by(route, url.tls, subsystem.clone(), &options))
    }

    fn connect_inline_by(
        route: Route,
        tls: bool,
        subsystem: Nqn,
        options: &ConnectOptions,
    ) -> Result<(Self, Queue), HostError> {
        let shared = Shared::new(route, tls, &subsystem, options)?;
        let (orders, received) = channel();
        let (staging, staged) = sync_channel(options.staging_max);
        let mut queue = Queue::new(1, Arc::clone(&shared), received, staged).map_err(environment)?;
        let handle = QueueHandle { staging, orders, waker: queue.waker(), thread: Mutex::new(None) };
        shared.set_queues(vec![handle]).map_err(environment)?;
        let (connection, announced) = Self::begin(shared, subsystem)?;
        loop {
            queue.turn(Some(Duration::from_millis(1)));
            match announced.try_recv() {
                Ok(Ok(())) => return Ok((connection, queue)),
                Ok(Err(error)) => return Err(error),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Err(ended()),
            }
        }
    }

    /// Starts the control thread, which says when the controller is up, or why not.
    fn begin(shared: Arc<Shared>, subsystem: Nqn) -> Result<(Self, Receiver<Result<(), HostError>>), HostError> {
        let (orders, received) = channel();
        let (announce, announced) = sync_channel(1);
        let (answer, made) = sync_channel(1);
        let thread = std::thread::Builder::new().name(CONTROL_THREAD.into()).spawn({
            let shared = Arc::clone(&shared);
            move || match Control::new(Arc::clone(&shared), subsystem, received, announce) {
                Ok(control) => {
                    let to_control = ToControl { orders, waker: control.waker() };
                    // Set once, here, before anything can ask for it.
                    let _ = shared.to_control.set(to_control.clone());
                    if answer.send(Ok(to_control)).is_ok() {
                        control.run();
                    }
                }
                Err(error) => drop(answer.send(Err(error))),
            }
        });
        let thread = thread.map_err(environment)?;
        let control = made.recv().map_err(|_| ended())?.map_err(environment)?;
        Ok((Self { inner: Arc::new(Inner { shared, control, thread: Some(thread) }) }, announced))
    }

    /// A namespace of blocks.
    pub fn volume(&self, nsid: u32) -> Result<Volume, HostError> {
        let (answer, answered) = sync_channel(1);
        self.inner.control.send(Order::Identify { nsid, answer });
        let info = answered.recv().map_err(|_| ended())??;
        let state = Arc::new(VolumeState::new(&info)?);
        self.inner.shared.lock_volumes().push(Arc::downgrade(&state));
        Ok(Volume::new(state, self.clone()))
    }

    /// Sends any admin command; the data of one moves at most once, its buffer comes back.
    pub fn command(&self, command: Command) -> RequestFuture<CommandOutcome> {
        let (promise, future) = promise();
        if let Err(refused) = self.inner.control.orders.send(Order::Command { command, promise }) {
            if let Order::Command { promise, .. } = refused.0 {
                promise.complete(CommandOutcome::lost("the connection is closed"));
            }
        } else {
            self.inner.control.waker.wake();
        }
        future
    }

    /// What the controller said of itself when it last came up.
    pub fn controller(&self) -> ControllerInfo {
        let controller = self.inner.shared.controller.lock().unwrap_or_else(PoisonError::into_inner);
        controller.clone().expect("a connection was up once")
    }

    /// The most bytes that one command moves.
    pub(crate) fn transfer_len_max(&self) -> u32 {
        let controller = self.inner.shared.controller.lock().unwrap_or_else(PoisonError::into_inner);
        controller.as_ref().map_or(4096, |controller| controller.transfer_len_max)
    }

    /// How long a command may take.
    pub(crate) fn command_timeout(&self) -> Duration {
        self.inner.shared.options.command_timeout
    }

    /// How often a command is sent again whose connection was lost.
    pub(crate) fn retries_max(&self) -> u8 {
        self.inner.shared.options.retries_max
    }

    /// Where the controller is.
    pub fn address(&self) -> Peer {
        self.inner.shared.peer()
    }

    /// I/O queues in use.
    pub fn io_queues(&self) -> u16 {
        self.inner.shared.queue_count().unwrap_or(0)
    }

    /// Where it stands: whether its controller can be reached, as far as is known.
    pub fn state(&self) -> ConnectionState {
        match self.inner.shared.state.load(Ordering::Acquire) {
            0 => ConnectionState::Up,
            1 => ConnectionState::Lost,
            _ => ConnectionState::Ended,
        }
    }

    /// Why the last association ended, if one did.
    pub fn last_problem(&self) -> Option<String> {
        self.inner.shared.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the connection has done so far.
    pub fn stats(&self) -> Stats {
        let shared = &self.inner.shared;
        let sum = |of: fn(&(AtomicU64, AtomicU64)) -> &AtomicU64| {
            shared.ring_stats.iter().map(|stats| of(stats).load(Ordering::Relaxed)).sum()
        };
        Stats { enters: sum(|stats| &stats.0), sleeps: sum(|stats| &stats.1), ..shared.counters.snapshot() }
    }

    /// Hands a request to the queues in turn.
    pub(crate) fn stage(&self, staged: Staged) {
        let shared = &self.inner.shared;
        let queues = shared.queues.get().expect("a connection that came up has queues");
        let turn = shared.turn.fetch_add(1, Ordering::Relaxed) % queues.len() as u64;
        queues[turn as usize].stage(staged);
    }

    /// A queue for commands that are to go together, chosen in turn.
    pub(crate) fn lane(&self) -> Lane {
        let shared = &self.inner.shared;
        let queues = shared.queues.get().expect("a connection that came up has queues");
        Lane((shared.turn.fetch_add(1, Ordering::Relaxed) % queues.len() as u64) as usize)
    }

    /// Hands commands to one queue, which sends them together. Never sleeps: a queue's own thread may call it.
    pub(crate) fn command_on(&self, lane: Lane, command: Command) -> RequestFuture<CommandOutcome> {
        let (promise, future) = promise();
        let queue = &self.inner.shared.queues.get().expect("a connection that came up has queues")[lane.0];
        match queue.staging.try_send(Staged::Command { command, promise }) {
            Ok(()) => queue.waker.wake(),
            Err(TrySendError::Disconnected(staged)) => refuse(staged, QUEUE_ENDED),
            // Thousands of requests wait. This one waits where it delays nobody.
            Err(TrySendError::Full(staged)) => {
                let connection = self.clone();
                std::thread::spawn(move || {
                    connection.inner.shared.queues.get().expect("as above")[lane.0].stage(staged);
                });
            }
        }
        future
    }
}

const QUEUE_ENDED: &str = "the queue's thread has ended";

impl QueueHandle {
    /// Hands a request over; sleeps while too many wait.
    fn stage(&self, staged: Staged) {
        match self.staging.send(staged) {
            Ok(()) => self.waker.wake(),
            Err(refused) => refuse(refused.0, QUEUE_ENDED),
        }
    }
}

/// One of a connection's queues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane(usize);

impl Drop for Inner {
    fn drop(&mut self) {
        let ending =
            Ending { shared: Arc::clone(&self.shared), control: self.control.clone(), thread: self.thread.take() };
        // The end of a request may set off the drop of the last connection: then this is a queue's thread, which cannot
        // wait for itself, and must not for another connection.
        if self.shared.is_own_thread() || passing::is_passing() {
            std::thread::spawn(move || ending.run());
        } else {
            ending.run();
        }
    }
}

/// The end of a connection in good order.
struct Ending {
    shared: Arc<Shared>,
    control: ToControl,
    thread: Option<JoinHandle<()>>,
}

impl Ending {
    fn run(self) {
        self.shared.set_ending();
        // First the queues, so that what was submitted is done; then the controller.
        for queue in self.shared.queues.get().into_iter().flatten() {
            let _ = queue.orders.send(QueueOrder::Close);
            queue.waker.wake();
        }
        let threads = self.shared.queues.get().into_iter().flatten();
        for thread in threads.filter_map(|queue| queue.thread.lock().unwrap_or_else(PoisonError::into_inner).take()) {
            // A panic in it is a bug that its own message reports; its promises already said "lost".
            let _ = thread.join();
        }
        self.control.send(Order::Close);
        if let Some(thread) = self.thread {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("address", &self.address()).finish_non_exhaustive()
    }
}

/// The subsystem that a URL names.
fn subsystem_of(url: &Url) -> Result<Nqn, HostError> {
    url.subsystem.clone().ok_or(HostError::Incomplete {
        missing: "subsystem",
        example: "a subsystem is written nvme-tcp://host:port/NQN; `diskside discover` lists those of a target",
    })
}

/// Tries the addresses of a URL's host in turn.
pub(crate) fn first_success<T>(
    (url, key): (&Url, &KeySource),
    mut attempt: impl FnMut(Route) -> Result<T, HostError>,
) -> Result<T, HostError> {
    let mut failure = None;
    for address in url.addresses(PORT_DEFAULT)? {
        match attempt(Route::Tcp(address, None)) {
            Ok(success) => return Ok(success),
            Err(error) => failure = Some(error),
        }
    }
    Err(with_other_name(failure.expect("a host name has at least one address"), url, key))
}

/// Adds to the error of a server that wants a key, or another one, by which name the user keeps a key for that server.
fn with_other_name(mut error: HostError, url: &Url, key: &KeySource) -> HostError {
    if let HostError::Ended { source, joined_as, .. } = &mut error {
        let wants_key = match source {
            ConnectionError::AuthenticationRequired | ConnectionError::Authentication(_) => true,
            // As it is where TLS is required.
            ConnectionError::PeerClosed => true,
            ConnectionError::Refused { status, .. } => status.is(Status::CONNECT_INVALID_HOST),
            _ => false,
        };
        if wants_key {
            *joined_as = other_name(url, key);
        }
    }
    error
}

fn environment(source: io::Error) -> HostError {
    HostError::Environment { what: "starting the connection", source }
}

fn ended() -> HostError {
    HostError::Closed("its control thread has ended")
}

impl Shared {
    fn new(route: Route, tls: bool, subsystem: &Nqn, options: &ConnectOptions) -> Result<Arc<Self>, HostError> {
        let Party { identity, login, channel } = login(options, route.peer(), tls, subsystem)?;
        let route = route.secured(channel);
        Ok(Arc::new(Self {
            options: ConnectOptions { identity, ..options.clone() },
            login,
            counters: Counters::default(),
            ring_stats: (0..options.io_queues).map(|_| Default::default()).collect(),
            route,
            generated: Mutex::default(),
            to_control: OnceLock::new(),
            queues: OnceLock::new(),
            turn: AtomicU64::new(0),
            controller: Mutex::new(None),
            volumes: Mutex::default(),
            problem: Mutex::new(None),
            state: AtomicU8::new(ConnectionState::Lost as u8),
            ending: AtomicBool::new(false),
        }))
    }

    pub(crate) fn peer(&self) -> Peer {
        self.route.peer()
    }

    /// See [`Route::explained`].
    pub(crate) fn explained(&self, error: HostError) -> HostError {
        self.route.explained(error)
    }

    /// A new connection for a queue, whose thread `waker` wakes.
    pub(crate) fn dial(&self, waker: Waker) -> Result<Wired, HostError> {
        let generated = self.generated.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match (&self.route, generated) {
            (Route::Tcp(address, _), Some(key)) => Route::Tcp(*address, Some(key)).connect(&self.options, waker),
            (route, _) => route.connect(&self.options, waker),
        }
    }

    /// From now on queues come over a channel with this key, which proves who this host is; without one, as at first.
    pub(crate) fn set_generated(&self, key: Option<TlsPsk>) {
        let key = key.map(|psk| Arc::new(ChannelKey::generated(psk)));
        *self.generated.lock().unwrap_or_else(PoisonError::into_inner) = key;
    }

    /// With what a queue authenticates.
    pub(crate) fn login(&self) -> Login {
        let generated = self.generated.lock().unwrap_or_else(PoisonError::into_inner);
        if generated.is_some() { Login::Never } else { self.login.clone() }
    }

    /// I/O queues, once the first association has said how many.
    pub(crate) fn queue_count(&self) -> Option<u16> {
        self.queues.get().map(|queues| queues.len() as u16)
    }

    /// Starts the threads of the I/O queues.
    pub(crate) fn start_queues(this: &Arc<Self>, count: u16) -> io::Result<()> {
        let queues = (1..=count).map(|id| QueueHandle::start(id, this)).collect::<io::Result<_>>()?;
        this.set_queues(queues)
    }

    fn set_queues(&self, queues: Vec<QueueHandle>) -> io::Result<()> {
        self.queues.set(queues).map_err(|_| io::Error::other("the queues were started twice"))
    }

    /// Tells the control thread news of a queue.
    pub(crate) fn report(&self, queue_id: u16, report: Report) {
        if let Some(control) = self.to_control.get() {
            control.send(Order::Report { queue_id, report });
        }
    }

    /// Tells a queue something; false if it has ended.
    pub(crate) fn order(&self, queue_id: u16, order: QueueOrder) -> bool {
        let queue = self.queues.get().and_then(|queues| queues.get(usize::from(queue_id) - 1));
        queue.is_some_and(|queue| {
            let sent = queue.orders.send(order).is_ok();
            queue.waker.wake();
            sent
        })
    }

    /// The queues end by order of their owner.
    pub(crate) fn set_ending(&self) {
        self.ending.store(true, Ordering::Release);
    }

    /// Whether the last user is gone: queues end by order of their owner.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    /// No association will follow: everything that waits fails.
    pub(crate) fn give_up(&self, why: &'static str) {
        self.set_state(ConnectionState::Ended);
        for queue_id in 1..=self.queue_count().unwrap_or(0) {
            self.order(queue_id, QueueOrder::Refuse(why));
        }
    }

    pub(crate) fn set_state(&self, state: ConnectionState) {
        self.state.store(state as u8, Ordering::Release);
    }

    pub(crate) fn set_controller(&self, info: &ControllerInfo) {
        *self.controller.lock().unwrap_or_else(PoisonError::into_inner) = Some(info.clone());
    }

    pub(crate) fn note_problem(&self, error: &HostError) {
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
    }

    /// Whether the calling thread is one of the connection's.
    fn is_own_thread(&self) -> bool {
        let own = std::thread::current().id();
        self.queues.get().into_iter().flatten().any(|queue| {
            let thread = queue.thread.lock().unwrap_or_else(PoisonError::into_inner);
            thread.as_ref().is_some_and(|thread| thread.thread().id() == own)
        }) || std::thread::current().name() == Some(CONTROL_THREAD)
    }

    /// Calls `with` for each volume in use.
    pub(crate) fn each_volume(&self, mut with: impl FnMut(&VolumeState)) {
        let mut volumes = self.lock_volumes();
        volumes.retain(|volume| volume.strong_count() > 0);
        volumes.iter().filter_map(Weak::upgrade).for_each(|volume| with(&volume));
    }

    fn lock_volumes(&self) -> std::sync::MutexGuard<'_, Vec<Weak<VolumeState>>> {
        self.volumes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueHandle {
    fn start(id: u16, shared: &Arc<Shared>) -> io::Result<Self> {
        let (orders, received) = channel();
        let (staging, staged) = sync_channel(shared.options.staging_max);
        let (answer, made) = sync_channel(1);
        let thread = std::thread::Builder::new().name(format!("nvme-io-{id}")).spawn({
            let shared = Arc::clone(shared);
            move || match Queue::new(id, shared, received, staged) {
                Ok(queue) => {
                    if answer.send(Ok(queue.waker())).is_ok() {
                        queue.run();
                    }
                }
                Err(error) => drop(answer.send(Err(error))),
            }
        })?;
        let waker = made.recv().map_err(|_| io::Error::other("the queue's thread ended at its start"))??;
        Ok(Self { staging, orders, waker, thread: Mutex::new(Some(thread)) })
    }
}
