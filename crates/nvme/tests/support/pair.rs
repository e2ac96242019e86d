//! A host and a target joined in memory, without faults: what one sends the other gets at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use diskside_nvme::controller::{
    self, BlockSize, ConnectionConfig, MediumId, Namespace, Operation, Request, Subsystem, SubsystemConfig, Subsystems,
};
use diskside_nvme::host::{
    Admin, AdminConfig, AdminEvent, CommandError, Completed, Data, Event, HostIdentity, Login, Submission,
};
use diskside_nvme::wire::{CSI_NVM, Sqe};
use diskside_nvme::{BufferSlice, Buffers, Nqn, Segment, Transmit, host};

use super::medium::{Fault, Media};
use super::memory::Memory;

pub const SUBSYSTEM: &str = "nqn.2026-01.test:volumes";

/// A target with one subsystem.
pub struct Target {
    pub subsystems: Arc<Subsystems>,
    pub subsystem: Arc<Subsystem>,
    pub media: Media,
    pub memory: Memory,
    pub config: ConnectionConfig,
}

impl Target {
    pub fn new() -> Self {
        Self::with_config(SubsystemConfig::new(Nqn::new(SUBSYSTEM).unwrap(), "S1"))
    }

    pub fn with_config(config: SubsystemConfig) -> Self {
        let subsystems = Subsystems::new();
        let subsystem = subsystems.add(config).unwrap();
        Self {
            subsystems,
            subsystem,
            media: Media::default(),
            memory: Memory::default(),
            config: ConnectionConfig::default(),
        }
    }

    /// The same target as another thread of it serves it, with memory and media of its own.
    pub fn beside(&self) -> Self {
        let media = Media { media: self.media.media.clone(), ..Media::default() };
        let (subsystems, subsystem) = (Arc::clone(&self.subsystems), Arc::clone(&self.subsystem));
        Self { subsystems, subsystem, media, memory: Memory::default(), config: self.config.clone() }
    }

    /// Adds a volume.
    pub fn add(&mut self, nsid: u32, blocks: u64, block_size: BlockSize) -> MediumId {
        let medium = self.media.add((blocks << block_size.shift()) as usize);
        self.subsystem.add_namespace(namespace(nsid, medium, blocks, block_size)).unwrap();
        medium
    }

    pub fn accept(&self, now: Instant) -> controller::Connection {
        controller::Connection::new(self.subsystems.clone(), self.config.clone(), Waker::noop().clone(), now)
    }

    /// Carries out what a connection asks for.
    pub fn serve(&mut self, connection: &mut controller::Connection, now: Instant) {
        while let Some(request) = connection.poll_request() {
            let tag = request.tag;
            let request = match request {
                Request { operation: Operation::Authenticate(work), .. } => {
                    connection.computed(now, tag, work.run(&mut random));
                    continue;
                }
                request => request,
            };
            if let Some(completion) = self.media.carry_out(request, &mut self.memory, Fault::None) {
                connection.complete(now, tag, completion, &mut self.memory);
            }
        }
    }
}

pub fn namespace(nsid: u32, medium: MediumId, blocks: u64, block_size: BlockSize) -> Namespace {
    Namespace {
        nsid,
        medium,
        csi: CSI_NVM,
        blocks,
        block_size,
        atomic_blocks: 1,
        delta_len_max: 0,
        read_only: false,
        deallocate: true,
        uuid: [nsid as u8; 16],
    }
}

pub fn identity() -> HostIdentity {
    HostIdentity { nqn: Nqn::new("nqn.2026-01.test:host").unwrap(), id: [7; 16] }
}

pub fn admin_config(subsystem: &str, io_queues: u16) -> AdminConfig {
    AdminConfig {
        host: identity(),
        subsystem: Nqn::new(subsystem).unwrap(),
        io_queues,
        io_queue_entries: 32,
        keep_alive_ms: 5000,
        header_digest: false,
        data_digest: false,
        connect_timeout: Duration::from_secs(5),
        login: Login::Never,
        command_timeout: Duration::from_secs(10),
    }
}

/// All bytes of a batch; the batch is then as good as sent.
pub fn bytes_of(transmit: &mut Transmit, memory: &mut Memory, release: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    for segment in transmit.segments() {
        match segment {
            Segment::Bytes(part) => bytes.extend_from_slice(part),
            Segment::Buffer(slice) => bytes.extend_from_slice(memory.slice(slice)),
        }
    }
    transmit.advance(bytes.len(), |buffer| {
        assert!(release, "a host owns no buffers");
        memory.release(buffer);
    });
    bytes
}

/// The controller's end of a connection and what goes with it.
pub struct ControllerEnd {
    pub connection: controller::Connection,
    transmit: Transmit,
    /// Input that was not consumed yet.
    backlog: Vec<u8>,
}

impl ControllerEnd {
    pub fn new(connection: controller::Connection) -> Self {
        Self { connection, transmit: Transmit::new(), backlog: Vec::new() }
    }

    /// Gives it bytes, serves what it asks for, and returns what it sends.
    pub fn exchange(&mut self, target: &mut Target, now: Instant, bytes: &[u8]) -> Vec<u8> {
        self.backlog.extend_from_slice(bytes);
        let mut sent = Vec::new();
        loop {
            self.connection.handle_wake(now);
            let taken = self.connection.handle_bytes(now, &self.backlog, &mut target.memory);
            self.backlog.drain(..taken);
            target.serve(&mut self.connection, now);
            self.connection.handle_buffers(now, &mut target.memory);
            let more = self.connection.poll_transmit(&mut self.transmit);
            if more {
                sent.extend(bytes_of(&mut self.transmit, &mut target.memory, true));
                self.connection.handle_transmitted(&mut self.transmit);
            }
            if !more && (taken == 0 || self.backlog.is_empty()) {
                return sent;
            }
        }
    }
}

/// A host with an admin queue and one I/O queue, connected.
pub struct Pair {
    pub now: Instant,
    pub target: Target,
    pub memory: Memory,
    pub admin: Admin,
    pub admin_end: ControllerEnd,
    pub io: Option<(host::Connection, ControllerEnd)>,
    next_user_data: u64,
    admin_events: Vec<AdminEvent>,
    io_events: VecDeque<Event>,
}

/// Bytes that are as good as random in a test, and the same each time.
pub fn random(bytes: &mut [u8]) {
    bytes.iter_mut().enumerate().for_each(|(index, byte)| *byte = (index * 37 + 11) as u8);
}

impl Pair {
    /// Brings an association up. `io`: with an I/O queue.
    pub fn connect(target: Target, config: AdminConfig) -> Self {
        let now = Instant::now();
        let io_queues = config.io_queues;
        let admin_end = ControllerEnd::new(target.accept(now));
        let admin = Admin::new(config, now);
        let mut pair = Self {
            now,
            target,
            memory: Memory::default(),
            admin,
            admin_end,
            io: None,
            next_user_data: 0,
            admin_events: Vec::new(),
            io_events: VecDeque::new(),
        };
        pair.run();
        match pair.admin_events.remove(0) {
            AdminEvent::Ready(_) => {}
            event => panic!("the controller did not come up: {event:?}"),
        }
        if io_queues > 0 {
            let config = pair.admin.io_queue_config(1).expect("a queue was granted");
            let end = ControllerEnd::new(pair.target.accept(pair.now));
            pair.io = Some((host::Connection::new(config, pair.now), end));
            pair.run();
            let event = pair.io_event();
            assert!(matches!(event, Some(Event::Connected { .. })), "the I/O queue did not connect: {event:?}");
        }
        pair
    }

    /// Moves bytes until nobody has anything to say.
    pub fn run(&mut self) {
        loop {
            let mut idle = true;
            let mut transmit = Transmit::new();
            if self.admin.poll_transmit(&mut transmit) {
                let bytes = bytes_of(&mut transmit, &mut self.memory, false);
                self.admin.handle_transmitted(&mut transmit);
                let back = self.admin_end.exchange(&mut self.target, self.now, &bytes);
                self.admin.handle_bytes(self.now, &back, &mut self.memory);
                idle = false;
            }
            let back = self.admin_end.exchange(&mut self.target, self.now, &[]);
            if !back.is_empty() {
                self.admin.handle_bytes(self.now, &back, &mut self.memory);
                idle = false;
            }
            while let Some(event) = self.admin.poll_event() {
                match event {
                    AdminEvent::Compute(work) => {
                        self.admin.computed(self.now, work.run(&mut random));
                        idle = false;
                    }
                    event => self.admin_events.push(event),
                }
            }
            if let Some((io, end)) = &mut self.io {
                let bytes = if io.poll_transmit(&mut transmit) {
                    let bytes = bytes_of(&mut transmit, &mut self.memory, false);
                    io.handle_transmitted(&mut transmit);
                    bytes
                } else {
                    Vec::new()
                };
                let back = end.exchange(&mut self.target, self.now, &bytes);
                io.handle_bytes(self.now, &back, &mut self.memory);
                let before = self.io_events.len();
                while let Some(event) = io.poll_event() {
                    match event {
                        Event::Compute(work) => {
                            io.computed(self.now, work.run(&mut random));
                            idle = false;
                        }
                        event => self.io_events.push_back(event),
                    }
                }
                idle &= before == self.io_events.len();
                idle &= bytes.is_empty() && back.is_empty();
            }
            if idle {
                return;
            }
        }
    }

    /// Lets time pass, step by step as timers ask.
    pub fn sleep(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.run();
            let io = self.io.as_ref();
            let timers = [
                self.admin.poll_timeout(),
                self.admin_end.connection.poll_timeout(),
                io.and_then(|(io, _)| io.poll_timeout()),
                io.and_then(|(_, end)| end.connection.poll_timeout()),
            ];
            match timers.into_iter().flatten().min().filter(|at| *at <= end) {
                Some(at) => self.now = self.now.max(at),
                None => {
                    self.now = end;
                    return;
                }
            }
            self.admin.handle_timeout(self.now);
            self.admin_end.connection.handle_timeout(self.now);
            if let Some((io, end)) = &mut self.io {
                io.handle_timeout(self.now);
                end.connection.handle_timeout(self.now);
            }
        }
    }

    /// What the I/O queue has to tell.
    pub fn io_event(&mut self) -> Option<Event> {
        let (io, _) = self.io.as_mut()?;
        self.io_events.pop_front().or_else(|| io.poll_event())
    }

    pub fn admin_events(&mut self) -> Vec<AdminEvent> {
        self.run();
        std::mem::take(&mut self.admin_events)
    }

    /// Sends an I/O command and returns its outcome.
    pub fn io(&mut self, sqe: Sqe, data: Data) -> Result<host::Answer, CommandError> {
        self.next_user_data += 1;
        let user_data = self.next_user_data;
        let submission = Submission { sqe, data, user_data, timeout: None };
        let io = &mut self.io.as_mut().expect("there is an I/O queue").0;
        io.submit(self.now, submission, &mut self.memory).unwrap();
        self.run();
        match self.io_event() {
            Some(Event::Completed(Completed { user_data: got, outcome })) if got == user_data => outcome,
            event => panic!("no completion: {event:?}"),
        }
    }

    /// Sends an admin command and returns its outcome.
    pub fn admin(&mut self, sqe: Sqe, data: Data) -> Result<host::Answer, CommandError> {
        self.next_user_data += 1;
        let user_data = self.next_user_data;
        let submission = Submission { sqe, data, user_data, timeout: None };
        self.admin.submit(self.now, submission, &mut self.memory).unwrap();
        match self.admin_events().pop() {
            Some(AdminEvent::Completed(Completed { user_data: got, outcome })) if got == user_data => outcome,
            event => panic!("no completion: {event:?}"),
        }
    }

    pub fn read(&mut self, nsid: u32, slba: u64, blocks: u32, block_len: u32) -> Result<Vec<u8>, CommandError> {
        let len = blocks * block_len;
        let buffer = self.memory.insert(vec![0xdd; len as usize]);
        let outcome = self.io(Sqe::read(nsid, slba, blocks), Data::Receive(BufferSlice::new(buffer, len)));
        let bytes = self.memory.remove(buffer);
        outcome.map(|_| bytes)
    }

    pub fn write(&mut self, nsid: u32, slba: u64, bytes: &[u8], block_len: u32) -> Result<(), CommandError> {
        let buffer = self.memory.insert(bytes.to_vec());
        let len = bytes.len() as u32;
        let sqe = Sqe::write(nsid, slba, len / block_len);
        let outcome = self.io(sqe, Data::Send(BufferSlice::new(buffer, len)));
        self.memory.remove(buffer);
        outcome.map(|_| ())
    }
}
