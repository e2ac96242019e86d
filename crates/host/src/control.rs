//! The thread of one connection's admin queue: brings the controller up, keeps it, and brings it up again.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use diskside_io::buffer::Buffer;
use diskside_io::request::{Lost as _, Promise};
use diskside_io::ring::{GroupId, Ring, RingConfig};
use diskside_nvme::auth::TlsPsk;
use diskside_nvme::host::{
    Admin, AdminConfig, AdminEvent, Completed, ConnectionError, ControllerInfo, Data, NamespaceInfo, Submission,
};
use diskside_nvme::{Nqn, Status};

use crate::connection::{ConnectionState, Shared};
use crate::error::HostError;
use crate::job::{Command, CommandData, CommandFailure, CommandOutcome, Limits};
use crate::link::{Link, NoMemory};
use crate::queue::{QueueOrder, Report};
use crate::route::Peer;
use crate::stats::add;

/// Buffers that answers to admin commands arrive in.
const RECEIVE_BUFFERS: u16 = 4;
const RECEIVE_BUFFER_BYTES: usize = 16 << 10;

/// What others want of the control thread.
pub(crate) enum Order {
    /// What a namespace is.
    Identify { nsid: u32, answer: SyncSender<Result<NamespaceInfo, HostError>> },
    /// Any admin command.
    Command { command: Command, promise: Promise<CommandOutcome> },
    /// News of a queue.
    Report { queue_id: u16, report: Report },
    /// Shut the controller down and end.
    Close,
}

pub(crate) struct Control {
    shared: Arc<Shared>,
    subsystem: Nqn,
    orders: Receiver<Order>,
    ring: Ring,
    group: GroupId,
    epoch: u64,
    /// Orders that came while there was no controller.
    waiting: VecDeque<Order>,
    closing: bool,
    /// Which queues have been told to attach and have not said that they are down.
    attached: Vec<bool>,
    /// Where the first association's success or failure goes.
    announce: Option<SyncSender<Result<(), HostError>>>,
    jitter: u64,
}

/// One association, from its TCP connection to its end.
struct Session {
    link: Link<Admin>,
    /// The controller, once it is up.
    info: Option<Box<ControllerInfo>>,
    /// Namespaces asked for: by whom. No one in particular when volumes are looked at again.
    asked: HashMap<u32, Vec<SyncSender<Result<NamespaceInfo, HostError>>>>,
    /// Volumes whose namespaces are looked at before the queues are attached.
    checking: usize,
    commands: HashMap<u64, (Promise<CommandOutcome>, Option<Buffer>)>,
    next_command: u64,
    queues_up: u16,
    up: bool,
    /// The key of a channel that authenticating made: the association must use that channel.
    generated: Option<TlsPsk>,
    /// Coming up must be over by then.
    deadline: Instant,
    /// Why the session ends, if it is known.
    error: Option<HostError>,
}

/// A loss is reported after this, and again whenever so much more has passed.
const TELL_LOSS_AFTER: Duration = Duration::from_secs(1);
const TELL_LOSS_EVERY: Duration = Duration::from_secs(10);

fn given_up(address: Peer, waited: Duration, why: &HostError) -> String {
    if waited.is_zero() {
        return format!("the connection to the server {address} was lost: {why}");
    }
    let waited = waited.as_secs_f64();
    format!("the server {address} was lost, and was not back within {waited} s (--loss-timeout-ms): {why}")
}

/// Texts of losses that are kept. A program that runs for long and loses many servers hears less of the later ones.
const LOSS_TEXTS_MAX: usize = 1024;

/// A text that all requests of a connection may end with. Each is kept once, however often a server is lost.
fn shared_text(text: String) -> &'static str {
    static TEXTS: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = texts.get(text.as_str()) {
        return known;
    }
    if texts.len() >= LOSS_TEXTS_MAX {
        return "the server was lost, and was not back in time (--loss-timeout-ms)";
    }
    let text: &str = Box::leak(text.into_boxed_str());
    texts.insert(text);
    text
}

impl Control {
    /// A control thread's state, for the calling thread.
    pub(crate) fn new(
        shared: Arc<Shared>,
        subsystem: Nqn,
        orders: Receiver<Order>,
        announce: SyncSender<Result<(), HostError>>,
    ) -> std::io::Result<Self> {
        let mut ring = Ring::new(&RingConfig { entries: 16, spin: Duration::ZERO, ..RingConfig::default() })?;
        let group = ring.provide(RECEIVE_BUFFERS, RECEIVE_BUFFER_BYTES)?;
        let jitter = u64::from_le_bytes(shared.options.identity.id[..8].try_into().expect("eight bytes")) | 1;
        Ok(Self {
            shared,
            subsystem,
            orders,
            ring,
            group,
            epoch: 0,
            waiting: VecDeque::new(),
            closing: false,
            attached: Vec::new(),
            announce: Some(announce),
            jitter,
        })
    }

    pub(crate) fn waker(&self) -> diskside_io::ring::Waker {
        self.ring.waker()
    }

    /// Makes one association after the other until the connection is closed or given up.
    pub(crate) fn run(mut self) {
        let options = self.shared.options.clone();
        let mut lost_at: Option<Instant> = None;
        let mut told_at = None;
        let mut delay = options.reconnect_delay_min;
        let why = loop {
            let (was_up, error) = self.associate();
            self.shared.set_state(ConnectionState::Lost);
            if let Some(announce) = self.announce.take() {
                // The caller of `connect` sees the first failure and may try again.
                let _ = announce.send(Err(self.shared.explained(error)));
                break "the server never answered";
            }
            if self.closing {
                break "the connection was closed";
            }
            let now = Instant::now();
            if was_up {
                (lost_at, told_at) = (None, None);
                delay = options.reconnect_delay_min;
            }
            let since = *lost_at.get_or_insert(now);
            self.shared.note_problem(&error);
            let (away, address) = (now.duration_since(since), self.shared.peer());
            if away >= options.loss_timeout {
                if told_at.is_some() {
                    tracing::warn!(
                        "the server {address} is given up after {:.0} s: what uses it fails from now on",
                        away.as_secs_f64()
                    );
                }
                break shared_text(given_up(address, options.loss_timeout, &error));
            }
            // A short loss concerns nobody.
            if away >= TELL_LOSS_AFTER
                && told_at.is_none_or(|told: Instant| now.duration_since(told) >= TELL_LOSS_EVERY)
            {
                told_at = Some(now);
                let left = options.loss_timeout.saturating_sub(away).as_secs_f64();
                tracing::warn!(
                    "the server {address} has been away for {:.0} s; trying again for {left:.0} s: {error}",
                    away.as_secs_f64()
                );
            }
            self.pause(delay);
            if self.closing {
                break "the connection was closed";
            }
            delay = (delay * 2).min(options.reconnect_delay_max);
        };
        self.shared.give_up(why);
        self.refuse_orders(why);
    }

    /// Brings the controller up and serves it until it is lost. Says whether it was up, and why it ended.
    fn associate(&mut self) -> (bool, HostError) {
        // The controller that made a key may be another now.
        self.shared.set_generated(None);
        match self.associate_once() {
            // What comes of the key is the association.
            (_, _, Some(psk)) => {
                self.shared.set_generated(Some(psk));
                let (was_up, error, _) = self.associate_once();
                (was_up, error)
            }
            (was_up, error, None) => (was_up, error),
        }
    }

    /// The same over one connection, which may end with the key for another.
    fn associate_once(&mut self) -> (bool, HostError, Option<TlsPsk>) {
        let address = self.shared.peer();
        let options = &self.shared.options;
        let wired = match self.shared.dial(self.ring.waker()) {
            Ok(wired) => wired,
            Err(error) => return (false, error, None),
        };
        let now = Instant::now();
        self.epoch += 1;
        let admin = Admin::new(self.admin_config(), now);
        let mut session = Session {
            link: Link::new(admin, wired, self.group, self.epoch),
            info: None,
            asked: HashMap::new(),
            checking: 0,
            commands: HashMap::new(),
            next_command: 0,
            queues_up: 0,
            up: false,
            generated: None,
            deadline: now + options.connect_timeout * 3,
            error: None,
        };
        self.serve(&mut session);
        self.detach_queues();
        session.refuse_asked(address);
        let was_up = session.up;
        if was_up && !self.closing && !self.shared.is_ending() {
            add(&self.shared.counters.losses, 1);
            if session.info.is_some_and(|info| info.write_cache) {
                self.shared.each_volume(|volume| volume.note_loss());
            }
        }
        let ended = session.link.ended(address, ConnectionError::PeerClosed);
        (was_up, session.error.unwrap_or(ended), session.generated)
    }

    fn admin_config(&self) -> AdminConfig {
        let options = &self.shared.options;
        AdminConfig {
            host: options.identity.clone(),
            subsystem: self.subsystem.clone(),
            io_queues: options.io_queues,
            io_queue_entries: options.queue_depth + 1,
            keep_alive_ms: options.keep_alive.as_millis().min(u128::from(u32::MAX)) as u32,
            header_digest: options.header_digest,
            data_digest: options.data_digest,
            connect_timeout: options.connect_timeout,
            login: self.shared.login(),
            command_timeout: options.command_timeout,
        }
    }

    fn serve(&mut self, session: &mut Session) {
        loop {
            let now = Instant::now();
            while let Some(done) = self.ring.next_completion() {
                session.link.handle(done, now, &mut NoMemory);
            }
            session.link.take_in(now, &mut NoMemory);
            self.take_events(session, now);
            self.take_orders(session, now);
            if !session.up && now >= session.deadline && session.error.is_none() {
                let after = self.shared.options.connect_timeout * 3;
                session.end(HostError::TooSlow { address: self.shared.peer(), after });
            }
            session.link.pump(&mut self.ring, now, &mut NoMemory);
            if session.link.is_finished() {
                return self.take_events(session, now);
            }
            let coming_up = (!session.up).then_some(session.deadline);
            let next = session.link.deadline().into_iter().chain(coming_up).min();
            let patience = next.map(|next| next.saturating_duration_since(now));
            if let Err(source) = self.ring.wait(patience) {
                session.error = Some(HostError::Environment { what: "the connection's ring", source });
                return;
            }
        }
    }

    fn take_events(&mut self, session: &mut Session, now: Instant) {
        while let Some(event) = session.link.machine.poll_event() {
            match event {
                AdminEvent::Compute(work) => session.link.machine.computed(now, diskside_keys::compute(work)),
                AdminEvent::Channel(psk) => session.generated = Some(psk),
                AdminEvent::Ready(info) => self.controller_ready(session, info, now),
                AdminEvent::Namespace { nsid, info } => self.namespace_known(session, nsid, info),
                AdminEvent::NamespacesChanged { .. } => {
                    let link = &mut session.link;
                    self.shared.each_volume(|volume| link.machine.identify_namespace(now, volume.nsid()));
                }
                AdminEvent::Completed(completed) => session.complete(completed),
                AdminEvent::Aborted { aborted: true, .. } => add(&self.shared.counters.aborts, 1),
                AdminEvent::Closed(source) => {
                    let error = session.link.ended(self.shared.peer(), source);
                    session.error.get_or_insert(error);
                }
                _ => {}
            }
        }
    }

    fn controller_ready(&mut self, session: &mut Session, info: Box<ControllerInfo>, now: Instant) {
        let granted = info.io_queues;
        let needed = self.shared.queue_count().unwrap_or(1);
        if granted < needed {
            return session.end(HostError::Queues { address: self.shared.peer(), granted, needed });
        }
        if self.shared.queue_count().is_none()
            && let Err(source) = Shared::start_queues(&self.shared, granted.min(self.shared.options.io_queues))
        {
            return session.end(HostError::Environment { what: "starting the threads of the I/O queues", source });
        }
        self.shared.set_controller(&info);
        session.info = Some(info);
        let link = &mut session.link;
        let mut checking = 0;
        self.shared.each_volume(|volume| {
            link.machine.identify_namespace(now, volume.nsid());
            checking += 1;
        });
        session.checking = checking;
        if checking == 0 {
            self.attach_queues(session);
        }
    }

    fn namespace_known(
        &mut self,
        session: &mut Session,
        nsid: u32,
        info: Result<NamespaceInfo, diskside_nvme::host::CommandError>,
    ) {
        let lost = matches!(info, Err(diskside_nvme::host::CommandError::ConnectionLost));
        if !lost {
            self.shared.each_volume(|volume| {
                if volume.nsid() == nsid {
                    volume.update(info.as_ref().ok());
                }
            });
        }
        let there = session.info.as_ref().map(|info| info.namespaces.clone()).unwrap_or_default();
        for answer in session.asked.remove(&nsid).unwrap_or_default() {
            let info = info.clone().map_err(|source| namespace_error(nsid, source, &there));
            // The caller may have given up.
            let _ = answer.send(info);
        }
        if session.checking > 0 && !lost {
            session.checking -= 1;
            if session.checking == 0 {
                self.attach_queues(session);
            }
        }
    }

    fn attach_queues(&mut self, session: &Session) {
        let Some(info) = &session.info else { return };
        let options = &self.shared.options;
        let limits = Limits {
            transfer_len_max: info.transfer_len_max,
            command_timeout: options.command_timeout,
            retries_max: options.retries_max,
            entries: info.io_queue_entries,
        };
        let queues = self.shared.queue_count().unwrap_or(0);
        self.attached.resize(usize::from(queues), false);
        for queue_id in 1..=queues {
            if let Some(config) = session.link.machine.io_queue_config(queue_id) {
                let order = QueueOrder::Attach { config: Box::new(config), limits };
                self.attached[usize::from(queue_id - 1)] = self.shared.order(queue_id, order);
            }
        }
    }

    fn take_orders(&mut self, session: &mut Session, now: Instant) {
        if session.up {
            for order in std::mem::take(&mut self.waiting) {
                self.take_order(session, order, now);
            }
        }
        loop {
            match self.orders.try_recv() {
                Ok(order) => self.take_order(session, order, now),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.closing = true;
                    return session.link.machine.shutdown(now);
                }
            }
        }
    }

    fn take_order(&mut self, session: &mut Session, order: Order, now: Instant) {
        match order {
            Order::Report { queue_id, report } => self.take_report(session, queue_id, report, now),
            Order::Close => {
                self.closing = true;
                session.link.machine.shutdown(now);
            }
            order if !session.up => self.waiting.push_back(order),
            Order::Identify { nsid, answer } => {
                session.asked.entry(nsid).or_default().push(answer);
                session.link.machine.identify_namespace(now, nsid);
            }
            Order::Command { command, promise } => session.submit(command, promise, now),
        }
    }

    fn take_report(&mut self, session: &mut Session, queue_id: u16, report: Report, now: Instant) {
        match report {
            Report::Up => {
                session.queues_up += 1;
                if Some(session.queues_up) == self.shared.queue_count() && session.error.is_none() {
                    session.up = true;
                    self.shared.set_state(ConnectionState::Up);
                    add(&self.shared.counters.associations, 1);
                    if let Some(announce) = self.announce.take() {
                        // The caller waits for it; it cannot be gone.
                        let _ = announce.send(Ok(()));
                    }
                }
            }
            Report::Down(error) => {
                self.note_down(queue_id);
                if !self.closing && !self.shared.is_ending() {
                    session.end(error);
                }
            }
            Report::Late { command_id } => session.link.machine.abort(now, queue_id, command_id),
            // A controller that comes up is asked for every volume anyhow.
            Report::Gone { nsid } if session.up => session.link.machine.identify_namespace(now, nsid),
            Report::Gone { .. } => {}
        }
    }

    fn note_down(&mut self, queue_id: u16) {
        if let Some(attached) = self.attached.get_mut(usize::from(queue_id - 1)) {
            *attached = false;
        }
    }

    /// Takes the queues' connections down and waits until nothing of them is left.
    fn detach_queues(&mut self) {
        for (index, attached) in self.attached.iter_mut().enumerate() {
            // A queue that has ended takes no orders.
            *attached = *attached && self.shared.order(index as u16 + 1, QueueOrder::Detach);
        }
        while self.attached.contains(&true) {
            match self.orders.recv() {
                Ok(Order::Report { queue_id, report: Report::Down(_) }) => self.note_down(queue_id),
                Ok(Order::Report { .. }) => {}
                Ok(Order::Close) => self.closing = true,
                Ok(order) => self.waiting.push_back(order),
                Err(_) => {
                    self.closing = true;
                    return;
                }
            }
        }
    }

    /// Waits about that long before connecting again, unless the connection is closed.
    fn pause(&mut self, delay: Duration) {
        // A xorshift: hosts that lost the same target need not come back all at once.
        self.jitter ^= self.jitter << 13;
        self.jitter ^= self.jitter >> 7;
        self.jitter ^= self.jitter << 17;
        let percent = 75 + (self.jitter % 51) as u32;
        let until = Instant::now() + delay * percent / 100;
        while !self.closing {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            match self.orders.recv_timeout(left) {
                Ok(Order::Report { .. }) => {}
                Ok(Order::Close) => self.closing = true,
                Ok(order) => self.waiting.push_back(order),
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => return,
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => self.closing = true,
            }
        }
    }

    fn refuse_orders(&mut self, why: &'static str) {
        let waiting = std::mem::take(&mut self.waiting);
        for order in waiting.into_iter().chain(self.orders.try_iter()) {
            match order {
                Order::Identify { answer, .. } => drop(answer.send(Err(HostError::Closed(why)))),
                Order::Command { promise, .. } => promise.complete(CommandOutcome::lost(why)),
                Order::Report { .. } | Order::Close => {}
            }
        }
    }
}

impl Session {
    /// Gives the association up; the first reason counts.
    fn end(&mut self, error: HostError) {
        self.error.get_or_insert(error);
        self.link.close();
    }

    fn submit(&mut self, command: Command, promise: Promise<CommandOutcome>, now: Instant) {
        promise.set_in_flight();
        let Command { sqe, data, timeout, .. } = command;
        let (data, buffer) = match data {
            CommandData::None => (Data::None, None),
            CommandData::Send(buffer) => (Data::SendBytes(buffer.to_vec()), Some(buffer)),
            CommandData::Receive(buffer) => (Data::ReceiveBytes(buffer.len() as u32), Some(buffer)),
        };
        let user_data = self.next_command;
        let submission = Submission { sqe, data, user_data, timeout };
        match self.link.machine.submit(now, submission, &mut NoMemory) {
            Ok(_) => {
                self.next_command += 1;
                self.commands.insert(user_data, (promise, buffer));
            }
            Err(_) => {
                let failure = CommandFailure::NotSent("the admin queue takes no such command now");
                promise.complete(CommandOutcome { result: Err(failure), buffer });
            }
        }
    }

    fn complete(&mut self, completed: Completed) {
        let Some((promise, mut buffer)) = self.commands.remove(&completed.user_data) else { return };
        if let (Ok(answer), Some(buffer)) = (&completed.outcome, &mut buffer) {
            let len = answer.bytes.len().min(buffer.len());
            buffer[..len].copy_from_slice(&answer.bytes[..len]);
        }
        let result = completed.outcome.map_err(CommandFailure::Command);
        promise.complete(CommandOutcome { result, buffer });
    }

    fn refuse_asked(&mut self, address: Peer) {
        for answer in self.asked.drain().flat_map(|(_, answers)| answers) {
            let source = ConnectionError::PeerClosed;
            let _ = answer.send(Err(HostError::Ended { address, source, joined_as: None }));
        }
    }
}

fn namespace_error(nsid: u32, source: diskside_nvme::host::CommandError, there: &[u32]) -> HostError {
    use diskside_nvme::host::CommandError;
    match source {
        CommandError::NoSuchNamespace => HostError::NoNamespace { nsid, there: there.to_vec() },
        CommandError::Status { status, .. } if status.is(Status::INVALID_NAMESPACE_OR_FORMAT) => {
            HostError::NoNamespace { nsid, there: there.to_vec() }
        }
        source => HostError::Command { what: format!("identifying namespace {nsid}"), source },
    }
}
