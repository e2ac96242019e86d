//! The state of the descriptors on which operations of a ring work.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Weak};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fs::{FileType, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::slab::Key;

/// Descriptors by number. One that was closed is known until its number means another one.
#[derive(Default)]
pub(super) struct Descriptors {
    by_number: Vec<Option<Box<Descriptor>>>,
    generation: u32,
}

pub(super) struct Descriptor {
    /// It is not kept open for this.
    file: Weak<OwnedFd>,
    /// Tells it from others that had its number.
    generation: u32,
    /// Whether it was added to the epoll set: that is for operations which have to wait.
    is_watched: bool,
    /// The peer has closed, or an error waits: few bytes do not mean that no more will come.
    is_hung_up: bool,
    kind: Option<Kind>,
    is_tcp: Option<bool>,
    pub(super) input: Side,
    pub(super) output: Side,
}

/// One direction of a descriptor.
pub(super) struct Side {
    /// Whether it is worth trying: nothing says that it would block.
    pub(super) is_ready: bool,
    /// Operations that wait for this, in the order in which they came.
    pub(super) waiting: VecDeque<Key>,
}

/// Directions, for those who wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    In,
    Out,
}

/// How a descriptor is read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// At positions. It never says that it would block; `cached` if reads of what is in memory can be told from others.
    File { cached: bool },
    /// The same, past the page cache.
    Direct,
    /// From where it is; it can be waited for.
    Stream,
}

impl Descriptors {
    /// What is known of a descriptor that is open.
    pub(super) fn of(&mut self, file: &Arc<OwnedFd>) -> &mut Descriptor {
        let number = number(file);
        if self.by_number.len() <= number {
            self.by_number.resize_with(number + 1, || None);
        }
        let place = &mut self.by_number[number];
        let is_known = place.as_ref().is_some_and(|known| std::ptr::eq(known.file.as_ptr(), Arc::as_ptr(file)));
        if !is_known {
            self.generation = self.generation.wrapping_add(1);
            *place = Some(Box::new(Descriptor::new(file, self.generation)));
        }
        place.as_mut().expect("it was put there just now, if it was not there")
    }

    /// The descriptor of an event; nothing if that was closed meanwhile.
    pub(super) fn of_event(&mut self, data: u64) -> Option<&mut Descriptor> {
        let (number, generation) = ((data & u64::from(u32::MAX)) as usize, (data >> 32) as u32);
        let known = self.by_number.get_mut(number)?.as_deref_mut()?;
        (known.generation == generation).then_some(known)
    }

    /// Adds a descriptor to an epoll set, unless it is there.
    pub(super) fn watch(&mut self, epoll: &OwnedFd, file: &Arc<OwnedFd>) -> Result<(), Errno> {
        let data = number(file) as u64;
        let known = self.of(file);
        if known.is_watched {
            return Ok(());
        }
        let data = EventData::new_u64(data | u64::from(known.generation) << 32);
        // Edges: the kernel says once that something has changed, also what it is now.
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        match epoll::add(epoll, file, data, flags) {
            // The same open file had this number before, under another owner.
            Err(Errno::EXIST) => epoll::modify(epoll, file, data, flags)?,
            other => other?,
        }
        known.is_watched = true;
        Ok(())
    }

    /// Takes a descriptor out of an epoll set. It would be by itself when the last descriptor of the open file is closed,
    /// but another process may have one.
    pub(super) fn forget(&mut self, epoll: &OwnedFd, file: &OwnedFd) {
        let Some(place) = self.by_number.get_mut(number(file)) else { return };
        let is_idle = |known: &mut Box<Descriptor>| known.input.waiting.is_empty() && known.output.waiting.is_empty();
        if place.take_if(is_idle).is_some_and(|known| known.is_watched) {
            // It fails if it is not there, which is as good.
            let _ = epoll::delete(epoll, file);
        }
    }
}

impl Descriptor {
    fn new(file: &Arc<OwnedFd>, generation: u32) -> Self {
        let side = || Side { is_ready: true, waiting: VecDeque::new() };
        Self {
            file: Arc::downgrade(file),
            generation,
            is_watched: false,
            is_hung_up: false,
            kind: None,
            is_tcp: None,
            input: side(),
            output: side(),
        }
    }

    pub(super) fn side(&mut self, direction: Direction) -> &mut Side {
        match direction {
            Direction::In => &mut self.input,
            Direction::Out => &mut self.output,
        }
    }

    /// Notes what an event says.
    pub(super) fn note(&mut self, flags: EventFlags) {
        let ended = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        self.is_hung_up |= flags.intersects(ended);
        self.input.is_ready |= flags.intersects(EventFlags::IN | ended);
        self.output.is_ready |= flags.intersects(EventFlags::OUT | ended);
    }

    /// How it is read and written.
    pub(super) fn kind(&mut self, file: &OwnedFd) -> Kind {
        *self.kind.get_or_insert_with(|| kind(file))
    }

    /// It is not as it seemed: nothing says when it would block, or what is cached.
    pub(super) fn may_always_block(&mut self) {
        self.kind = Some(Kind::File { cached: false });
    }

    /// Fewer bytes came than there was room for: whether more are there cannot be learned by asking again.
    pub(super) fn note_short(&mut self, socket: &OwnedFd) {
        let is_tcp = *self.is_tcp.get_or_insert_with(|| is_tcp(socket));
        if is_tcp && !self.is_hung_up {
            self.input.is_ready = false;
        }
    }
}

fn kind(file: &OwnedFd) -> Kind {
    let Ok(found) = rustix::fs::fstat(file) else { return Kind::File { cached: false } };
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile | FileType::BlockDevice => {
            // With O_DIRECT nothing is cached, and asking would wait for the disk.
            let is_direct = rustix::fs::fcntl_getfl(file).is_ok_and(|flags| flags.contains(OFlags::DIRECT));
            if is_direct { Kind::Direct } else { Kind::File { cached: true } }
        }
        FileType::Directory => Kind::File { cached: false },
        FileType::CharacterDevice if rustix::fs::seek(file, SeekFrom::Current(0)).is_ok() => {
            Kind::File { cached: false }
        }
        _ => Kind::Stream,
    }
}

/// Of other sockets a read may end where one message does, although more are there.
fn is_tcp(socket: &OwnedFd) -> bool {
    let domain = sockopt::socket_domain(socket);
    matches!(domain, Ok(AddressFamily::INET | AddressFamily::INET6))
        && sockopt::socket_type(socket) == Ok(SocketType::STREAM)
}

fn number(file: &OwnedFd) -> usize {
    // Open descriptors have numbers from 0 on.
    file.as_raw_fd() as usize
}
