//! What a ring can do, and what comes back.

use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use io_uring::types::{Fd, FsyncFlags};
use io_uring::{opcode, squeue};
use rustix::io::Errno;

use super::batch::SendBatch;
use super::files::Files;
use super::provided::{GroupId, Received};
use super::stable::Stable;
use crate::buffer::{Arena, Buffer};

/// The most bytes that one read or write moves; longer ranges come back short and are continued.
pub const TRANSFER_BYTES_MAX: usize = 1 << 30;

/// The index of a ring's registered arena: there is one.
const REGISTERED: u16 = 0;

/// One operation. Its buffer moves into the ring and comes back in [`Completion::payload`].
#[derive(Debug)]
pub enum Op {
    /// Reads the file at `offset` into `range` of the buffer. The result is the count of bytes read;
    /// it may be short, and is 0 at the end of the file. Pipes and sockets ignore the offset.
    Read {
        /// What is read.
        file: Arc<OwnedFd>,
        /// Position in bytes.
        offset: u64,
        /// Where the bytes go.
        buffer: Buffer,
        /// The part of the buffer to fill.
        range: Range<usize>,
    },
    /// Writes `range` of the buffer to the file at `offset`. The result is the count of bytes written.
    Write {
        /// What is written.
        file: Arc<OwnedFd>,
        /// Position in bytes.
        offset: u64,
        /// Where the bytes come from.
        buffer: Buffer,
        /// The part of the buffer to write.
        range: Range<usize>,
        /// Whether the bytes are durable when the write completes (`RWF_DSYNC`, force unit access).
        durable: bool,
    },
    /// Makes what was written durable.
    Sync {
        /// What is synchronised.
        file: Arc<OwnedFd>,
        /// Only the data and what is needed to read it back (`fdatasync`).
        data_only: bool,
    },
    /// Allocates, deallocates or zeroes a range (`fallocate`).
    Allocate {
        /// The file to change.
        file: Arc<OwnedFd>,
        /// `FALLOC_FL_…` flags.
        flags: rustix::fs::FallocateFlags,
        /// Start in bytes.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Accepts one connection, which comes with [`Payload::Accepted`]: the caller decides how fast others come, by
    /// pushing it again.
    Accept {
        /// A listening socket.
        listener: Arc<OwnedFd>,
    },
    /// Receives until cancelled: one completion with [`Payload::Received`] for each arrival, result 0
    /// at the end of the stream. When [`Completion::more`] is false the operation is over and is
    /// pushed again; with [`Errno::NOBUFS`] once some [`Received`] have been dropped.
    Receive {
        /// A connected socket.
        socket: Arc<OwnedFd>,
        /// Where buffers are taken from, see [`Ring::provide`](super::Ring::provide).
        group: GroupId,
    },
    /// Receives once, straight into `range` of a buffer. The result is the count of bytes, 0 at the end of the stream.
    /// For data whose place is known before it comes; what comes next in the stream stays in the socket.
    ReceiveInto {
        /// A connected socket.
        socket: Arc<OwnedFd>,
        /// Where the bytes go.
        buffer: Buffer,
        /// The part of the buffer to fill.
        range: Range<usize>,
        /// Wait until the range is full (`MSG_WAITALL`). It is short all the same at the end of the stream, after an
        /// error or a cancel.
        whole: bool,
    },
    /// Sends the whole batch in order (`MSG_WAITALL`). A shorter result means that the connection failed.
    Send {
        /// A connected socket.
        socket: Arc<OwnedFd>,
        /// What is sent.
        batch: Box<SendBatch>,
    },
    /// Connects a socket.
    Connect {
        /// A fresh socket of the address's family.
        socket: Arc<OwnedFd>,
        /// The peer.
        address: SocketAddr,
    },
    /// Completes when the descriptor is readable (signalfd, eventfd, a pipe), once.
    Readable {
        /// What is watched.
        file: Arc<OwnedFd>,
    },
    /// Completes at once.
    Nop,
}

/// The end of an operation, or one event of an operation that continues.
#[derive(Debug)]
pub struct Completion {
    /// What the operation was pushed with.
    pub token: u64,
    /// The operation's count, or its error.
    pub result: Result<u32, Errno>,
    /// Whether further completions of the same operation follow ([`Op::Receive`]).
    pub more: bool,
    /// What the operation owned or produced.
    pub payload: Payload,
}

/// What comes back with a [`Completion`].
#[derive(Debug)]
pub enum Payload {
    /// Nothing.
    None,
    /// The buffer of a read, a write or a receive into it. Its length is unchanged.
    Buffer(Buffer),
    /// The batch of a send.
    Batch(Box<SendBatch>),
    /// A new connection.
    Accepted(OwnedFd),
    /// Bytes that arrived.
    Received(Received),
}

/// The memory of an operation in flight. Everything the kernel points to is here, on the heap.
#[expect(dead_code, reason = "descriptors and memory are kept alive here, not read")]
pub(super) enum Held {
    Buffer(Arc<OwnedFd>, Buffer),
    Batch(Arc<OwnedFd>, Box<SendBatch>),
    Accept(Arc<OwnedFd>),
    Receive(Arc<OwnedFd>, GroupId),
    File(Arc<OwnedFd>),
    Address(Arc<OwnedFd>, Stable<Address>),
    Counter(Arc<OwnedFd>, Stable<u64>),
    None,
}

/// A socket address as the kernel wants it.
pub(super) struct Address {
    storage: MaybeUninit<libc::sockaddr_storage>,
    len: libc::socklen_t,
}

impl Op {
    /// What it works on.
    pub fn file(&self) -> Option<&Arc<OwnedFd>> {
        match self {
            Self::Read { file, .. }
            | Self::Write { file, .. }
            | Self::Sync { file, .. }
            | Self::Allocate { file, .. }
            | Self::Readable { file } => Some(file),
            Self::Accept { listener } => Some(listener),
            Self::Receive { socket, .. }
            | Self::ReceiveInto { socket, .. }
            | Self::Send { socket, .. }
            | Self::Connect { socket, .. } => Some(socket),
            Self::Nop => None,
        }
    }

    /// The kernel's form of the operation, and what must outlive it.
    ///
    /// Buffers of `registered`, and what is in `files`, are named to the kernel as that: it holds them already.
    pub(super) fn prepare(self, registered: Option<&Arena>, files: &Files) -> (squeue::Entry, Held) {
        let place = self.file().and_then(|file| files.place(file));
        let (entry, held) = self.build(registered, place);
        match place {
            Some(_) => (entry.flags(squeue::Flags::FIXED_FILE), held),
            None => (entry, held),
        }
    }

    /// As [`prepare`](Self::prepare); what it works on is named by its `place` in the ring's table, if it has one.
    fn build(self, registered: Option<&Arena>, place: Option<u32>) -> (squeue::Entry, Held) {
        let is_registered = |buffer: &Buffer| registered.is_some_and(|arena| buffer.is_of(arena));
        let fd = |file: &OwnedFd| Fd(place.map_or_else(|| file.as_raw_fd(), u32::cast_signed));
        match self {
            Self::Read { file, offset, mut buffer, range } => {
                let part = &mut buffer[range];
                let (at, len) = (part.as_mut_ptr(), transfer_len(part.len()));
                let entry = match is_registered(&buffer) {
                    true => opcode::ReadFixed::new(fd(&file), at, len, REGISTERED).offset(offset).build(),
                    false => opcode::Read::new(fd(&file), at, len).offset(offset).build(),
                };
                (entry, Held::Buffer(file, buffer))
            }
            Self::Write { file, offset, buffer, range, durable } => {
                let part = &buffer[range];
                let flags = if durable { libc::RWF_DSYNC } else { 0 };
                let (at, len) = (part.as_ptr(), transfer_len(part.len()));
                let entry = match is_registered(&buffer) {
                    true => {
                        opcode::WriteFixed::new(fd(&file), at, len, REGISTERED).offset(offset).rw_flags(flags).build()
                    }
                    false => opcode::Write::new(fd(&file), at, len).offset(offset).rw_flags(flags).build(),
                };
                (entry, Held::Buffer(file, buffer))
            }
            Self::Sync { file, data_only } => {
                let flags = if data_only { FsyncFlags::DATASYNC } else { FsyncFlags::empty() };
                (opcode::Fsync::new(fd(&file)).flags(flags).build(), Held::File(file))
            }
            Self::Allocate { file, flags, offset, len } => {
                let mode = flags.bits().cast_signed();
                let entry = opcode::Fallocate::new(fd(&file), len).offset(offset).mode(mode).build();
                (entry, Held::File(file))
            }
            Self::Accept { listener } => {
                let nobody = std::ptr::null_mut();
                let entry = opcode::Accept::new(fd(&listener), nobody, nobody.cast()).flags(libc::SOCK_CLOEXEC).build();
                (entry, Held::Accept(listener))
            }
            Self::Receive { socket, group } => {
                (opcode::RecvMulti::new(fd(&socket), group.0).build(), Held::Receive(socket, group))
            }
            Self::ReceiveInto { socket, mut buffer, range, whole } => {
                let part = &mut buffer[range];
                let flags = if whole { libc::MSG_WAITALL } else { 0 };
                let (at, len) = (part.as_mut_ptr(), transfer_len(part.len()));
                let entry = opcode::Recv::new(fd(&socket), at, len).flags(flags).build();
                (entry, Held::Buffer(socket, buffer))
            }
            Self::Send { socket, mut batch } => {
                let flags = (libc::MSG_WAITALL | libc::MSG_NOSIGNAL).cast_unsigned();
                let entry = opcode::SendMsg::new(fd(&socket), batch.message()).flags(flags).build();
                (entry, Held::Batch(socket, batch))
            }
            Self::Connect { socket, address } => {
                let address = Stable::new(Address::new(address));
                let at = address.as_ptr();
                // SAFETY: `at` points into `address`, which is alive; only field addresses and a copied length are taken.
                let (storage, len) = unsafe { ((&raw const (*at).storage).cast(), (*at).len) };
                (opcode::Connect::new(fd(&socket), storage, len).build(), Held::Address(socket, address))
            }
            Self::Readable { file } => {
                let events = libc::POLLIN.cast_unsigned().into();
                (opcode::PollAdd::new(fd(&file), events).build(), Held::File(file))
            }
            Self::Nop => (opcode::Nop::new().build(), Held::None),
        }
    }
}

impl Held {
    /// A read of an eventfd's counter: how a sleeping ring is woken.
    pub(super) fn counter_read(eventfd: Arc<OwnedFd>) -> (squeue::Entry, Self) {
        let counter = Stable::new(0_u64);
        let entry = opcode::Read::new(Fd(eventfd.as_raw_fd()), counter.as_ptr().cast(), 8).build();
        (entry, Self::Counter(eventfd, counter))
    }

    /// What the owner of the operation gets back.
    pub(super) fn into_payload(self) -> Payload {
        match self {
            Self::Buffer(_, buffer) => Payload::Buffer(buffer),
            Self::Batch(_, batch) => Payload::Batch(batch),
            Self::Accept(_)
            | Self::Receive(..)
            | Self::File(_)
            | Self::Address(..)
            | Self::Counter(..)
            | Self::None => Payload::None,
        }
    }
}

/// The new connection of an accept's completion.
pub(super) fn accepted(result: Result<u32, Errno>) -> Payload {
    match result {
        // SAFETY: a completion of an accept carries a descriptor that was opened for us and that nobody else knows.
        Ok(raw) => Payload::Accepted(unsafe { OwnedFd::from_raw_fd(raw.cast_signed()) }),
        Err(_) => Payload::None,
    }
}

impl Address {
    fn new(address: SocketAddr) -> Self {
        let mut storage = MaybeUninit::<libc::sockaddr_storage>::zeroed();
        let len = match address {
            SocketAddr::V4(v4) => {
                let wire = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                    sin_zero: [0; 8],
                };
                // SAFETY: `sockaddr_storage` is large and aligned enough for every address family.
                unsafe { storage.as_mut_ptr().cast::<libc::sockaddr_in>().write(wire) };
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(v6) => {
                let wire = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo().to_be(),
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                // SAFETY: as above.
                unsafe {
                    storage.as_mut_ptr().cast::<libc::sockaddr_in6>().write(wire);
                };
                size_of::<libc::sockaddr_in6>()
            }
        };
        Self { storage, len: len as libc::socklen_t }
    }
}

fn transfer_len(len: usize) -> u32 {
    len.min(TRANSFER_BYTES_MAX) as u32
}
