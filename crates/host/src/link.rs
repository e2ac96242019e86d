//! One TCP connection that drives one state machine of `diskside-nvme` over a ring.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use diskside_io::Errno;
use diskside_io::ring::{Completion, GroupId, Op, Payload, Ring, SEGMENTS_MAX, SendBatch};
use diskside_io::socket::{SocketOptions, tune};
use diskside_nvme::host::{Admin, Connection};
use diskside_nvme::{BufferId, BufferSlice, Buffers, Segment, Transmit};

use crate::error::HostError;

/// What both machines of a host can do.
pub(crate) trait Machine {
    fn handle_bytes(&mut self, now: Instant, bytes: &[u8], memory: &mut impl Memory);
    fn handle_timeout(&mut self, now: Instant, memory: &mut impl Memory);
    fn handle_transmitted(&mut self, transmit: &mut Transmit);
    fn handle_close(&mut self);
    fn poll_transmit(&mut self, transmit: &mut Transmit) -> bool;
    fn poll_timeout(&self) -> Option<Instant>;
    /// Whether the machine wants its socket closed.
    fn is_over(&self) -> bool;
}

/// The memory that a machine's commands refer to.
pub(crate) trait Memory: Buffers {
    /// Adds a range to a batch, without a copy.
    fn append(&self, slice: BufferSlice, batch: &mut SendBatch);
}

/// For commands that carry their data themselves.
pub(crate) struct NoMemory;

/// A connected socket and its machine.
pub(crate) struct Link<M> {
    pub(crate) machine: M,
    socket: Arc<OwnedFd>,
    group: GroupId,
    /// Tells this link's completions from those of earlier ones on the same ring.
    epoch: u64,
    transmit: Transmit,
    batch: Option<Box<SendBatch>>,
    receiving: bool,
    /// The socket is shut down; what is still under way comes to an end.
    closing: bool,
}

const RECEIVE: u64 = 0;
const SEND: u64 = 1;

impl<M: Machine> Link<M> {
    /// Begins to drive `machine` over a connected socket. Epochs of links on one ring differ.
    pub(crate) fn new(machine: M, socket: OwnedFd, group: GroupId, epoch: u64) -> Self {
        Self {
            machine,
            socket: Arc::new(socket),
            group,
            epoch,
            transmit: Transmit::new(),
            batch: Some(Box::default()),
            receiving: false,
            closing: false,
        }
    }

    /// Takes a completion of this link's ring.
    pub(crate) fn handle(&mut self, done: Completion, now: Instant, memory: &mut impl Memory) {
        if done.token >> 1 != self.epoch {
            return;
        }
        if done.token & 1 == SEND {
            return self.handle_sent(done);
        }
        self.receiving = done.more;
        match (done.result, done.payload) {
            (Ok(0), _) => self.close(),
            (Ok(_), Payload::Received(bytes)) if !self.closing => self.machine.handle_bytes(now, &bytes, memory),
            (Ok(_) | Err(Errno::NOBUFS | Errno::INTR), _) => {}
            (Err(_), _) => self.close(),
        }
    }

    /// Does what the machine wants: its timers, the next send, the next receive.
    pub(crate) fn pump(&mut self, ring: &mut Ring, now: Instant, memory: &mut impl Memory) {
        if self.machine.poll_timeout().is_some_and(|deadline| deadline <= now) {
            self.machine.handle_timeout(now, memory);
        }
        if !self.closing && !self.receiving {
            let op = Op::Receive { socket: Arc::clone(&self.socket), group: self.group };
            ring.push(self.epoch << 1 | RECEIVE, op);
            self.receiving = true;
        }
        self.send(ring, memory);
        if self.machine.is_over() && self.batch.is_some() && !self.closing {
            self.close();
        }
    }

    /// When [`pump`](Self::pump) wants to be called, whatever happens.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.machine.poll_timeout()
    }

    /// Shuts the socket down, so that what is under way ends.
    pub(crate) fn close(&mut self) {
        if !self.closing {
            self.closing = true;
            // It fails when the peer was first, which is as good.
            let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        }
    }

    /// Whether the link is at its end: the kernel has let go of everything, and the machine was told.
    pub(crate) fn is_finished(&mut self) -> bool {
        let finished = self.closing && !self.receiving && self.batch.is_some();
        if finished {
            self.transmit.abandon(|_| {});
            self.machine.handle_close();
        }
        finished
    }

    fn send(&mut self, ring: &mut Ring, memory: &impl Memory) {
        if self.closing {
            return;
        }
        let Some(mut batch) = self.batch.take() else { return };
        if self.transmit.is_empty() && !self.machine.poll_transmit(&mut self.transmit) {
            self.batch = Some(batch);
            return;
        }
        for segment in self.transmit.segments().take(SEGMENTS_MAX) {
            match segment {
                Segment::Bytes(bytes) => batch.put(bytes),
                Segment::Buffer(slice) => memory.append(slice, &mut batch),
            }
        }
        ring.push(self.epoch << 1 | SEND, Op::Send { socket: Arc::clone(&self.socket), batch });
    }

    fn handle_sent(&mut self, done: Completion) {
        if let Payload::Batch(mut batch) = done.payload {
            // Lets go of the buffers before the machine reports what they were for.
            batch.clear();
            self.batch = Some(batch);
        }
        match done.result {
            Ok(sent) if !self.closing => {
                // A host's buffers stay its callers': nothing to release.
                self.transmit.advance(sent as usize, |_| {});
                if self.transmit.is_empty() {
                    self.machine.handle_transmitted(&mut self.transmit);
                }
            }
            Ok(_) | Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => self.close(),
        }
    }
}

/// A TCP connection to `address`.
pub(crate) fn dial(address: SocketAddr, timeout: Duration, options: &SocketOptions) -> Result<OwnedFd, HostError> {
    let failed = |source: io::Error| HostError::Connect { address, source };
    let socket = OwnedFd::from(TcpStream::connect_timeout(&address, timeout).map_err(failed)?);
    tune(&socket, options).map_err(failed)?;
    Ok(socket)
}

impl Machine for Connection {
    fn handle_bytes(&mut self, now: Instant, bytes: &[u8], memory: &mut impl Memory) {
        self.handle_bytes(now, bytes, memory);
    }

    fn handle_timeout(&mut self, now: Instant, _: &mut impl Memory) {
        self.handle_timeout(now);
    }

    fn handle_transmitted(&mut self, transmit: &mut Transmit) {
        self.handle_transmitted(transmit);
    }

    fn handle_close(&mut self) {
        self.handle_close();
    }

    fn poll_transmit(&mut self, transmit: &mut Transmit) -> bool {
        self.poll_transmit(transmit)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.poll_timeout()
    }

    fn is_over(&self) -> bool {
        is_over(self.state())
    }
}

impl Machine for Admin {
    fn handle_bytes(&mut self, now: Instant, bytes: &[u8], memory: &mut impl Memory) {
        self.handle_bytes(now, bytes, memory);
    }

    fn handle_timeout(&mut self, now: Instant, _: &mut impl Memory) {
        self.handle_timeout(now);
    }

    fn handle_transmitted(&mut self, transmit: &mut Transmit) {
        self.handle_transmitted(transmit);
    }

    fn handle_close(&mut self) {
        self.handle_close();
    }

    fn poll_transmit(&mut self, transmit: &mut Transmit) -> bool {
        self.poll_transmit(transmit)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.poll_timeout()
    }

    fn is_over(&self) -> bool {
        is_over(self.state())
    }
}

fn is_over(state: diskside_nvme::host::State) -> bool {
    use diskside_nvme::host::State;
    matches!(state, State::Draining | State::Closed)
}

impl Buffers for NoMemory {
    fn write(&mut self, _: BufferId, _: u32, _: &[u8]) {}

    fn digest(&mut self, _: BufferSlice) -> u32 {
        0
    }

    fn release(&mut self, _: BufferId) {}
}

impl Memory for NoMemory {
    fn append(&self, _: BufferSlice, _: &mut SendBatch) {}
}
