//! One connection that drives one state machine of `diskside-nvme`, over a ring or over memory.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use diskside_io::Errno;
use diskside_io::buffer::Buffer;
use diskside_io::ring::{Completion, GroupId, Op, Payload, Ring, SEGMENTS_MAX, SendBatch};
use diskside_nvme::host::{Admin, Connection, ConnectionError};
use diskside_nvme::{BufferId, BufferSlice, Buffers, Segment, Transmit};
use diskside_tls::{RecordError, RecordWriter};

use crate::channel::{Channel, Receiver, Room};
use crate::error::HostError;
use crate::route::{Peer, Stream, StreamRead, StreamWrite, Wired};

/// What both machines of a host can do.
pub(crate) trait Machine {
    fn handle_bytes(&mut self, now: Instant, bytes: &[u8], memory: &mut impl Memory);
    /// Where the next bytes belong, if they are data for a buffer of the memory.
    fn receive_target(&self) -> Option<BufferSlice>;
    /// These bytes came and are there already.
    fn handle_received(&mut self, now: Instant, bytes: &[u8], memory: &mut impl Memory);
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

    /// Adds a range to what is sealed.
    fn seal(&self, slice: BufferSlice, writer: &mut RecordWriter<'_>);

    /// Gives a buffer away that is being filled, until it comes back.
    fn lend(&mut self, buffer: BufferId) -> Option<Buffer>;

    /// Takes back what was lent.
    fn take_back(&mut self, id: BufferId, buffer: Buffer);
}

/// For commands that carry their data themselves.
pub(crate) struct NoMemory;

/// A connection and its machine.
pub(crate) struct Link<M> {
    pub(crate) machine: M,
    wire: Wire,
    transmit: Transmit,
    /// The wire is shut down; what is still under way comes to an end.
    closing: bool,
    /// Why its secure channel could not continue.
    broken: Option<RecordError>,
}

enum Wire {
    Socket(Socket),
    Stream {
        stream: Box<dyn Stream>,
        /// What the other end had no room for.
        unsent: Option<Vec<u8>>,
    },
}

struct Socket {
    socket: Arc<OwnedFd>,
    group: GroupId,
    /// Tells this link's completions from those of earlier ones on the same ring.
    epoch: u64,
    /// Away while it is being sent.
    batch: Option<Box<SendBatch>>,
    receiving: bool,
    /// If there is a secure channel: it, and what of it is being sent.
    channel: Option<Box<Channel>>,
    sealed: Option<Sealed>,
}

/// What a send carries of a channel.
struct Sealed {
    /// Away while it is being sent.
    bytes: Vec<u8>,
    sent: usize,
    len: usize,
    /// Bytes of the machine's that are in it.
    plain_len: usize,
}

/// When a send has so many bytes no more are added: of many writes that come together, the target begins the first while
/// the others are copied.
const SEND_BYTES_ENOUGH: usize = 32 << 10;
const RECEIVE: u64 = 0;
const SEND: u64 = 1;

impl<M: Machine> Link<M> {
    /// Begins to drive `machine` over a fresh connection. Epochs of links on one ring differ.
    pub(crate) fn new(machine: M, wired: Wired, group: GroupId, epoch: u64) -> Self {
        let wire = match wired {
            Wired::Stream(stream) => Wire::Stream { stream, unsent: None },
            Wired::Socket(socket, channel) => {
                let (socket, batch) = (Arc::new(socket), Some(Box::default()));
                Wire::Socket(Socket { socket, group, epoch, batch, receiving: false, channel, sealed: None })
            }
        };
        Self { machine, wire, transmit: Transmit::new(), closing: false, broken: None }
    }

    /// Registers the link's socket with the ring that will drive it; [`unregister`](Self::unregister) at the end.
    pub(crate) fn register(&self, ring: &mut Ring) {
        if let Wire::Socket(socket) = &self.wire {
            ring.register_file(&socket.socket);
        }
    }

    pub(crate) fn unregister(&self, ring: &mut Ring) {
        if let Wire::Socket(socket) = &self.wire {
            ring.unregister_file(&socket.socket);
        }
    }

    /// Takes a completion of this link's ring.
    pub(crate) fn handle(&mut self, done: Completion, now: Instant, memory: &mut impl Memory) {
        let Wire::Socket(socket) = &mut self.wire else { return };
        if done.token >> 1 != socket.epoch {
            return;
        }
        if done.token & 1 == SEND {
            return self.handle_sent(done);
        }
        socket.receiving = done.more;
        match (done.result, done.payload) {
            (Ok(0), _) => self.close(),
            (Ok(_), Payload::Received(bytes)) if !self.closing => match &mut socket.channel {
                None => self.machine.handle_bytes(now, &bytes, memory),
                Some(channel) => match channel.open(&bytes, &mut Opened { machine: &mut self.machine, memory, now }) {
                    Ok(true) => {}
                    Ok(false) => self.close(),
                    Err(error) => {
                        self.broken = Some(error);
                        self.close();
                    }
                },
            },
            (Ok(_) | Err(Errno::NOBUFS | Errno::INTR), _) => {}
            (Err(_), _) => self.close(),
        }
    }

    /// Takes what came without the ring: over memory.
    pub(crate) fn take_in(&mut self, now: Instant, memory: &mut impl Memory) {
        while let Wire::Stream { stream, .. } = &mut self.wire
            && !self.closing
        {
            match stream.read() {
                StreamRead::Bytes(bytes) => self.machine.handle_bytes(now, &bytes, memory),
                StreamRead::Empty => return,
                StreamRead::Closed => self.close(),
            }
        }
    }

    /// Does what the machine wants: its timers, the next send, the next receive.
    pub(crate) fn pump(&mut self, ring: &mut Ring, now: Instant, memory: &mut impl Memory) {
        if self.machine.poll_timeout().is_some_and(|deadline| deadline <= now) {
            self.machine.handle_timeout(now, memory);
        }
        if self.closing {
            return;
        }
        match &mut self.wire {
            Wire::Socket(socket) => socket.pump(ring, &mut self.machine, &mut self.transmit, memory),
            Wire::Stream { .. } => self.write_stream(memory),
        }
        if self.machine.is_over() && !self.wire.is_sending() {
            self.close();
        }
    }

    /// When [`pump`](Self::pump) wants to be called, whatever happens.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.machine.poll_timeout()
    }

    /// Shuts the wire down, so that what is under way ends.
    pub(crate) fn close(&mut self) {
        if !self.closing {
            self.closing = true;
            if let Wire::Socket(socket) = &self.wire {
                // It fails when the peer was first, which is as good.
                let _ = rustix::net::shutdown(&socket.socket, rustix::net::Shutdown::Both);
            }
        }
    }

    /// Why it ended: the reason of its machine, unless its secure channel could not continue.
    pub(crate) fn ended(&self, address: Peer, source: ConnectionError) -> HostError {
        match self.broken {
            Some(source) => HostError::ChannelBroken { address, source },
            None => HostError::Ended { address, source, joined_as: None },
        }
    }

    /// Whether the link is at its end: the kernel has released everything, and the machine knows.
    pub(crate) fn is_finished(&mut self) -> bool {
        let quiet = match &self.wire {
            Wire::Socket(socket) => !socket.receiving && socket.batch.is_some(),
            Wire::Stream { .. } => true,
        };
        let finished = self.closing && quiet;
        if finished {
            self.transmit.abandon(|_| {});
            self.machine.handle_close();
        }
        finished
    }

    fn write_stream(&mut self, memory: &impl Memory) {
        while let Wire::Stream { stream, unsent } = &mut self.wire {
            let bytes = match unsent.take() {
                Some(bytes) => bytes,
                None if self.machine.poll_transmit(&mut self.transmit) => {
                    let mut batch = SendBatch::new();
                    gather(&self.transmit, (usize::MAX, usize::MAX), memory, &mut batch);
                    batch.to_vec()
                }
                None => return,
            };
            match stream.write(bytes) {
                StreamWrite::Taken => {
                    let sent = self.transmit.remaining();
                    self.transmit.advance(sent, |_| {});
                    self.machine.handle_transmitted(&mut self.transmit);
                }
                StreamWrite::Full(bytes) => {
                    *unsent = Some(bytes);
                    return;
                }
                StreamWrite::Closed => return self.close(),
            }
        }
    }

    fn handle_sent(&mut self, done: Completion) {
        let mut channel_len = None;
        if let (Payload::Batch(mut batch), Wire::Socket(socket)) = (done.payload, &mut self.wire) {
            if let Some(sealed) = &mut socket.sealed {
                sealed.bytes = batch.take_vec().unwrap_or_default();
                sealed.sent += done.result.map_or(0, |sent| sent as usize);
                // Sealed bytes leave as they are; the machine's bytes have left when all of them have.
                let all = sealed.sent >= sealed.len;
                channel_len = Some(if all { sealed.plain_len } else { 0 });
                if let (Some(sealed), Some(channel)) = (socket.sealed.take_if(|_| all), &mut socket.channel) {
                    channel.recycle(sealed.bytes);
                }
            }
            // Lets go of the buffers before the machine reports what they were for.
            batch.clear();
            socket.batch = Some(batch);
        }
        match done.result {
            Ok(sent) if !self.closing => {
                let sent = channel_len.unwrap_or(sent as usize);
                if sent == 0 {
                    return;
                }
                // A host's buffers stay its callers': nothing to release.
                self.transmit.advance(sent, |_| {});
                if self.transmit.is_empty() {
                    self.machine.handle_transmitted(&mut self.transmit);
                }
            }
            Ok(_) | Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => self.close(),
        }
    }
}

impl Wire {
    fn is_sending(&self) -> bool {
        match self {
            Self::Socket(socket) => socket.batch.is_none(),
            Self::Stream { unsent, .. } => unsent.is_some(),
        }
    }
}

impl Socket {
    fn pump<M: Machine>(&mut self, ring: &mut Ring, machine: &mut M, transmit: &mut Transmit, memory: &impl Memory) {
        if !self.receiving {
            let op = Op::Receive { socket: Arc::clone(&self.socket), group: self.group };
            ring.push(self.epoch << 1 | RECEIVE, op);
            self.receiving = true;
        }
        let Some(mut batch) = self.batch.take() else { return };
        if transmit.is_empty() && !machine.poll_transmit(transmit) && self.sealed.is_none() {
            self.batch = Some(batch);
            return;
        }
        match &mut self.channel {
            None => gather(transmit, (SEGMENTS_MAX, SEND_BYTES_ENOUGH), memory, &mut batch),
            Some(channel) => {
                let sealed = self.sealed.get_or_insert_with(|| {
                    let mut plain_len = 0;
                    let bytes = channel.seal(|writer| plain_len = seal(transmit, memory, writer));
                    Sealed { len: bytes.len(), bytes, sent: 0, plain_len }
                });
                batch.put_vec(std::mem::take(&mut sealed.bytes), sealed.sent);
            }
        }
        ring.push(self.epoch << 1 | SEND, Op::Send { socket: Arc::clone(&self.socket), batch });
    }
}

/// Puts what is left to send into a batch: up to a number of segments, and none more when there are so many bytes.
fn gather(
    transmit: &Transmit,
    (segments_max, len_enough): (usize, usize),
    memory: &impl Memory,
    batch: &mut SendBatch,
) {
    for segment in transmit.segments().take(segments_max) {
        if batch.len_bytes() >= len_enough {
            return;
        }
        match segment {
            Segment::Bytes(bytes) => batch.put(bytes),
            Segment::Buffer(slice) => memory.append(slice, batch),
        }
    }
}

/// Seals what is left to send; none more when there are so many bytes. How many they are.
fn seal(transmit: &Transmit, memory: &impl Memory, writer: &mut RecordWriter<'_>) -> usize {
    let mut len = 0;
    for segment in transmit.segments() {
        if len >= SEND_BYTES_ENOUGH {
            break;
        }
        len += match segment {
            Segment::Bytes(bytes) => {
                writer.put(bytes);
                bytes.len()
            }
            Segment::Buffer(slice) => {
                memory.seal(slice, writer);
                slice.len as usize
            }
        };
    }
    len
}

/// Takes what a secure channel opens.
struct Opened<'a, M, B> {
    machine: &'a mut M,
    memory: &'a mut B,
    now: Instant,
}

impl<M: Machine, B: Memory> Receiver for Opened<'_, M, B> {
    fn room(&mut self, len: usize) -> Option<Room> {
        let slice = self.machine.receive_target().filter(|target| target.len as usize >= len)?;
        self.memory.lend(slice.buffer).map(|buffer| Room { buffer, slice })
    }

    fn placed(&mut self, Room { buffer, slice }: Room, len: usize) {
        let start = slice.offset as usize;
        if len > 0 {
            self.machine.handle_received(self.now, &buffer[start..start + len], self.memory);
        }
        self.memory.take_back(slice.buffer, buffer);
    }

    fn take(&mut self, bytes: &[u8]) {
        self.machine.handle_bytes(self.now, bytes, self.memory);
    }
}

impl Machine for Connection {
    fn handle_bytes(&mut self, now: Instant, bytes: &[u8], memory: &mut impl Memory) {
        self.handle_bytes(now, bytes, memory);
    }

    fn receive_target(&self) -> Option<BufferSlice> {
        self.receive_target()
    }

    fn handle_received(&mut self, now: Instant, bytes: &[u8], memory: &mut impl Memory) {
        self.handle_received(now, bytes, memory);
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

    fn receive_target(&self) -> Option<BufferSlice> {
        self.receive_target()
    }

    fn handle_received(&mut self, now: Instant, bytes: &[u8], memory: &mut impl Memory) {
        self.handle_received(now, bytes, memory);
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

    fn seal(&self, _: BufferSlice, _: &mut RecordWriter<'_>) {}

    fn lend(&mut self, _: BufferId) -> Option<Buffer> {
        None
    }

    fn take_back(&mut self, _: BufferId, _: Buffer) {}
}
