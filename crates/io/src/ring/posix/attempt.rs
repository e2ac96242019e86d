//! Trying an operation without waiting.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags};
use rustix::net::{RecvFlags, SocketFlags};

use super::super::op::{Completion, Op, Payload, TRANSFER_BYTES_MAX};
use super::super::provided::Group;
use super::descriptors::{Descriptor, Direction, Kind};
use crate::buffer::Buffer;

/// Arrivals that one operation takes before others have their turn.
const EVENTS_AT_ONCE_MAX: usize = 16;
/// Stands for "from where it is" in calls that take an offset.
const NO_OFFSET: u64 = u64::MAX;

/// What became of an operation.
pub(super) enum Step {
    /// It is over.
    Done(Result<u32, Errno>),
    /// It is over: this came of it.
    Accepted(OwnedFd),
    /// It continues when others have had their turn.
    Later,
    /// It waits until the descriptor is ready.
    Wait(Direction),
    /// It may block: a thread does it.
    Thread { is_positioned: bool },
    /// The kernel does it meanwhile, or a thread.
    Kernel,
}

/// An operation, and how far it is.
pub(super) struct Trial<'a> {
    pub(super) token: u64,
    pub(super) op: &'a mut Op,
    /// Bytes that were moved. For operations without bytes: whether it was begun.
    pub(super) moved: &'a mut usize,
    pub(super) descriptor: &'a mut Descriptor,
    pub(super) groups: &'a [Rc<Group>],
    /// The events of operations that continue.
    pub(super) ready: &'a mut VecDeque<Completion>,
}

impl Trial<'_> {
    pub(super) fn run(self) -> Step {
        let Trial { token, op, moved, descriptor, groups, ready } = self;
        let mut emit = |result, payload| ready.push_back(Completion { token, result: Ok(result), more: true, payload });
        match op {
            Op::Read { file, offset, buffer, range } => match descriptor.kind(file) {
                Kind::File { cached } => {
                    read_cached(descriptor, file, *offset, &mut buffer[range.clone()], moved, cached)
                }
                Kind::Direct => Step::Kernel,
                Kind::Stream => read_stream(descriptor, file, &mut buffer[range.clone()]),
            },
            Op::Write { file, buffer, range, .. } => match descriptor.kind(file) {
                Kind::File { .. } => Step::Thread { is_positioned: true },
                Kind::Direct => Step::Kernel,
                Kind::Stream => write_stream(descriptor, file, &buffer[range.clone()]),
            },
            Op::Sync { .. } | Op::Allocate { .. } => Step::Thread { is_positioned: true },
            Op::Accept { listener } => accept(descriptor, listener, moved),
            Op::Receive { socket, group } => receive(descriptor, socket, &groups[group.index()], &mut emit),
            Op::ReceiveInto { socket, buffer, range, whole } => {
                receive_into(descriptor, socket, (buffer, range.clone()), *whole, moved)
            }
            Op::Send { socket, batch } => loop {
                if !descriptor.output.is_ready {
                    break Step::Wait(Direction::Out);
                }
                match batch.send(socket, *moved) {
                    Ok(sent) => *moved += sent,
                    Err(Errno::INTR) => continue,
                    Err(Errno::AGAIN) => descriptor.output.is_ready = false,
                    Err(errno) => break Step::Done(partial(*moved, errno)),
                }
                if *moved >= batch.len_bytes() {
                    break Step::Done(Ok(*moved as u32));
                }
            },
            Op::Connect { socket, address } => connect(socket, *address, moved),
            Op::Readable { file } => match descriptor.kind(file) {
                Kind::File { .. } | Kind::Direct => Step::Done(Ok(PollFlags::IN.bits().into())),
                Kind::Stream => match is_ready(file, PollFlags::IN) {
                    Some(found) => Step::Done(Ok(found.bits().into())),
                    None => Step::Wait(Direction::In),
                },
            },
            Op::Nop => Step::Done(Ok(0)),
        }
    }
}

/// The result of an operation that must not continue: the bytes that it has moved are not lost.
pub(super) fn partial(moved: usize, errno: Errno) -> Result<u32, Errno> {
    if moved > 0 { Ok(moved as u32) } else { Err(errno) }
}

/// Gives a socket back as it was before its operation, which did not end by itself.
pub(super) fn abandon(op: &Op, moved: usize) {
    if let (Op::Connect { socket, .. }, 1..) = (op, moved) {
        let _ = set_blocking(socket, moved == WAS_BLOCKING);
    }
}

/// Reads what is in the page cache. The rest is for a thread.
fn read_cached(
    descriptor: &mut Descriptor,
    file: &OwnedFd,
    offset: u64,
    wanted: &mut [u8],
    moved: &mut usize,
    cached: bool,
) -> Step {
    let len = wanted.len().min(TRANSFER_BYTES_MAX);
    if !cached {
        return Step::Thread { is_positioned: true };
    }
    loop {
        let rest = &mut wanted[*moved..len];
        let at = offset.saturating_add(*moved as u64);
        match rustix::io::preadv2(file, &mut [IoSliceMut::new(rest)], at, ReadWriteFlags::NOWAIT) {
            Ok(0) => return Step::Done(Ok(*moved as u32)),
            Ok(more) => *moved += more,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Step::Thread { is_positioned: true },
            // A thread asks again, in the way that every file has; its answer is the file's.
            Err(_) => {
                descriptor.may_always_block();
                return Step::Thread { is_positioned: true };
            }
        }
        if *moved == len {
            return Step::Done(Ok(len as u32));
        }
    }
}

fn read_stream(descriptor: &mut Descriptor, file: &OwnedFd, wanted: &mut [u8]) -> Step {
    let len = wanted.len().min(TRANSFER_BYTES_MAX);
    while descriptor.input.is_ready {
        let mut pieces = [IoSliceMut::new(&mut wanted[..len])];
        match rustix::io::preadv2(file, &mut pieces, NO_OFFSET, ReadWriteFlags::NOWAIT) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => descriptor.input.is_ready = false,
            Err(Errno::OPNOTSUPP | Errno::NOSYS) if is_ready(file, PollFlags::IN).is_some() => {
                return Step::Thread { is_positioned: false };
            }
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => descriptor.input.is_ready = false,
            other => return Step::Done(other.map(|len| len as u32)),
        }
    }
    Step::Wait(Direction::In)
}

fn write_stream(descriptor: &mut Descriptor, file: &OwnedFd, bytes: &[u8]) -> Step {
    let len = bytes.len().min(TRANSFER_BYTES_MAX);
    while descriptor.output.is_ready {
        match rustix::io::pwritev2(file, &[IoSlice::new(&bytes[..len])], NO_OFFSET, ReadWriteFlags::NOWAIT) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => descriptor.output.is_ready = false,
            Err(Errno::OPNOTSUPP | Errno::NOSYS) if is_ready(file, PollFlags::OUT).is_some() => {
                return Step::Thread { is_positioned: false };
            }
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => descriptor.output.is_ready = false,
            other => return Step::Done(other.map(|len| len as u32)),
        }
    }
    Step::Wait(Direction::Out)
}

fn accept(descriptor: &mut Descriptor, listener: &OwnedFd, begun: &mut usize) -> Step {
    if *begun == 0 {
        // Between a look and a call somebody else may take the connection: only this keeps the call from waiting.
        if let Err(errno) = set_blocking(listener, false) {
            return Step::Done(Err(errno));
        }
        *begun = 1;
    }
    for _ in 0..EVENTS_AT_ONCE_MAX {
        if !descriptor.input.is_ready {
            return Step::Wait(Direction::In);
        }
        match rustix::net::accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(socket) => return Step::Accepted(socket),
            // It went away before it was accepted.
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(Errno::AGAIN) => descriptor.input.is_ready = false,
            Err(errno) => return Step::Done(Err(errno)),
        }
    }
    Step::Later
}

fn receive(
    descriptor: &mut Descriptor,
    socket: &OwnedFd,
    group: &Rc<Group>,
    emit: &mut impl FnMut(u32, Payload),
) -> Step {
    for _ in 0..EVENTS_AT_ONCE_MAX {
        if !descriptor.input.is_ready {
            return Step::Wait(Direction::In);
        }
        let came = group.fill(|buffer| rustix::net::recv(socket, buffer, RecvFlags::DONTWAIT).map(|(_, len)| len));
        match came.unwrap_or_else(|| Err(without_buffer(socket))) {
            Ok(received) if received.is_empty() => return Step::Done(Ok(0)),
            Ok(received) => {
                let len = received.len();
                emit(len as u32, Payload::Received(received));
                if len < group.buffer_len() {
                    descriptor.note_short(socket);
                }
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => descriptor.input.is_ready = false,
            Err(errno) => return Step::Done(Err(errno)),
        }
    }
    Step::Later
}

/// Why nothing is received where no buffer is free: nothing came, or something that there is no place for.
fn without_buffer(socket: &OwnedFd) -> Errno {
    let found = rustix::net::recv(socket, &mut [0_u8][..], RecvFlags::DONTWAIT | RecvFlags::PEEK);
    found.map_or_else(|errno| errno, |_| Errno::NOBUFS)
}

fn receive_into(
    descriptor: &mut Descriptor,
    socket: &OwnedFd,
    (buffer, range): (&mut Buffer, Range<usize>),
    whole: bool,
    moved: &mut usize,
) -> Step {
    let wanted = &mut buffer[range];
    let len = wanted.len().min(TRANSFER_BYTES_MAX);
    while *moved < len {
        if !descriptor.input.is_ready {
            return Step::Wait(Direction::In);
        }
        match rustix::net::recv(socket, &mut wanted[*moved..len], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => break,
            Ok((_, more)) => {
                *moved += more;
                if *moved < len {
                    descriptor.note_short(socket);
                }
                if !whole {
                    break;
                }
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => descriptor.input.is_ready = false,
            Err(errno) => return Step::Done(partial(*moved, errno)),
        }
    }
    Step::Done(Ok(*moved as u32))
}

/// What `moved` says of a connect that is under way.
const WAS_BLOCKING: usize = 1;
const WAS_NONBLOCKING: usize = 2;

fn connect(socket: &OwnedFd, address: SocketAddr, begun: &mut usize) -> Step {
    if *begun == 0 {
        match set_blocking(socket, false) {
            Ok(was_blocking) => *begun = if was_blocking { WAS_BLOCKING } else { WAS_NONBLOCKING },
            Err(errno) => return Step::Done(Err(errno)),
        }
    }
    // Asked again, it says how the first call ended.
    let result = match rustix::net::connect(socket, &address) {
        Err(Errno::INPROGRESS | Errno::ALREADY | Errno::INTR) => return Step::Wait(Direction::Out),
        Ok(()) | Err(Errno::ISCONN) => Ok(0),
        Err(errno) => Err(errno),
    };
    let restored = set_blocking(socket, *begun == WAS_BLOCKING).map(|_| 0);
    Step::Done(result.and(restored))
}

/// Says whether it was.
fn set_blocking(file: &OwnedFd, is_blocking: bool) -> Result<bool, Errno> {
    let mut flags = rustix::fs::fcntl_getfl(file)?;
    let was_blocking = !flags.contains(OFlags::NONBLOCK);
    if was_blocking != is_blocking {
        flags.set(OFlags::NONBLOCK, !is_blocking);
        rustix::fs::fcntl_setfl(file, flags)?;
    }
    Ok(was_blocking)
}

/// What of it a descriptor is ready for now.
fn is_ready(file: &OwnedFd, wanted: PollFlags) -> Option<PollFlags> {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut watched = [PollFd::new(file, wanted)];
    matches!(poll(&mut watched, Some(&at_once)), Ok(1..)).then(|| watched[0].revents())
}
