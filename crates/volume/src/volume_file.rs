//! A volume as a file that is read and written byte by byte, by a thread that drives a ring of its own.
//!
//! Accesses hold their blocks as commands of hosts do, from their beginning to their end, and end as late as the medium
//! says (`latency_us`). Nothing waits here: a caller that cannot have a block has to ask again.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use diskside_io::Errno;
use diskside_io::buffer::{Buffer, Part};
use diskside_io::bytefile::{self, Begun, ByteFile, Direction, Hold};
use diskside_io::request::{Outcome, Status, promise};
use diskside_io::ring::Op;

use crate::Volume;
use crate::blocking::{blocks_of, flush, write_held};
use crate::guard::{Asks, Mode};
use crate::medium::{self, Action, Step};
use crate::pending::Pending;

/// Whether a volume may be accessed so now, and what is to be kept until that is over.
pub type May = dyn Fn(Direction) -> Result<Hold, Errno> + Send + Sync;

/// A volume, byte by byte.
pub struct VolumeFile {
    volume: Arc<Volume>,
    may: Box<May>,
}

/// Blocks that are held until it is dropped.
struct Held {
    volume: Arc<Volume>,
    range: Range<u64>,
    mode: Mode,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.volume.release(self.range.clone(), self.mode);
    }
}

/// A writer that waits until it is dropped.
struct Waiting {
    volume: Arc<Volume>,
    range: Range<u64>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.volume.guards.give_up(self.range.clone());
    }
}

impl VolumeFile {
    /// A volume; `may` is asked before each access.
    pub fn new(volume: Arc<Volume>, may: Box<May>) -> Self {
        Self { volume, may }
    }

    fn check(&self, direction: Direction) -> Result<Hold, Errno> {
        let leave = (self.may)(direction)?;
        match direction {
            _ if self.volume.is_removed() => Err(Errno::NODEV),
            Direction::Write if self.volume.read_only => Err(Errno::ROFS),
            Direction::Write if self.volume.has_failed() => Err(Errno::IO),
            _ => Ok(leave),
        }
    }

    fn len(&self) -> u64 {
        self.volume.medium.properties().len_bytes
    }

    fn hold(&self, range: Range<u64>, mode: Mode) -> Result<Hold, Hold> {
        let volume = Arc::clone(&self.volume);
        if self.volume.guards.try_hold(range.clone(), mode, Asks::Again) {
            return Ok(Some(Box::new(Held { volume, range, mode })));
        }
        Err((mode == Mode::Exclusive).then(|| Box::new(Waiting { volume, range }) as _))
    }

    /// With what says, until the access is over, that the medium is asked for it.
    fn asked(&self, hold: Hold) -> Hold {
        match self.volume.ask(Instant::now()) {
            Some(asked) => Some(Box::new((hold, asked))),
            None => hold,
        }
    }

    fn read(&self, access: bytefile::Access) -> Begun {
        let offset = access.offset;
        let len = self.len().saturating_sub(offset).min(access.buffer.len() as u64) as usize;
        if len == 0 {
            return Begun::at_once(Ok(0), access.buffer);
        }
        let whole = blocks_of(&self.volume, offset, len);
        if whole != (offset..offset + len as u64) {
            return Begun::at_once(Err(Errno::INVAL), access.buffer);
        }
        let hold = match self.hold(whole, Mode::Shared) {
            Ok(hold) => self.asked(hold),
            Err(hold) => return Begun::Busy { access, hold },
        };
        begin_read(&self.volume, offset, Part { buffer: access.buffer, range: 0..len }, hold)
    }

    fn write(&self, access: bytefile::Access, leave: Hold) -> Begun {
        let (offset, len) = (access.offset, access.buffer.len());
        if len == 0 {
            return Begun::at_once(Ok(0), access.buffer);
        }
        if offset.checked_add(len as u64).is_none_or(|end| end > self.len()) {
            return Begun::at_once(Err(Errno::NOSPC), access.buffer);
        }
        let whole = blocks_of(&self.volume, offset, len);
        let is_whole = whole == (offset..offset + len as u64);
        let hold: Hold = match self.hold(whole, Mode::Exclusive) {
            Ok(hold) => self.asked(Some(Box::new((hold, leave)))),
            Err(hold) => return Begun::Busy { access, hold },
        };
        if !is_whole {
            // The bytes around them are read, and written again, while nobody else has them.
            let written = write_held(&self.volume, offset, &access.buffer);
            return done(written.map(|()| len as u64), access.buffer, Duration::ZERO, hold);
        }
        begin_write(&self.volume, offset, Part::whole(access.buffer), hold)
    }
}

fn done(result: Result<u64, Errno>, buffer: Buffer, after: Duration, hold: Hold) -> Begun {
    Begun::Done { result, buffer, after, hold }
}

/// Says how the medium reads whole blocks into a part of a buffer: some of them at least. The caller holds them.
pub(crate) fn begin_read(volume: &Volume, offset: u64, into: Part, hold: Hold) -> Begun {
    let Part { mut buffer, range } = into;
    let Step { delay, action } = volume.medium.start(&medium::Access::Read { offset, len: range.len() });
    match action {
        Action::Bytes(bytes) => {
            let count = bytes.len().min(range.len());
            bytes.part(0..count).copy_to(&mut buffer[range][..count]);
            done(Ok(count as u64), buffer, delay, hold)
        }
        Action::File { file, len } => {
            // What the kernel asked for beyond the end it does not get.
            let range = range.start..range.end.min(range.start + len);
            Begun::Ring { op: Op::Read { file, offset, buffer, range }, after: delay, hold, direct: false }
        }
        Action::Pending(pending) => later(pending, Part { buffer, range }, hold),
        action => done(failed(&action), buffer, delay, hold),
    }
}

/// Says how the medium writes whole blocks of a buffer: some of them at least. The caller holds them alone.
pub(crate) fn begin_write(volume: &Volume, offset: u64, blocks: Part, hold: Hold) -> Begun {
    let Part { buffer, range } = blocks;
    let data = &buffer[range.clone()];
    let Step { delay, action } = volume.medium.start(&medium::Access::Write { offset, data, durable: false });
    match action {
        Action::Done(count) => done(Ok(count), buffer, delay, hold),
        Action::Elsewhere(future) => Begun::Elsewhere { future, buffer: Some(buffer), hold },
        Action::File { file, len } => {
            let range = range.start..range.end.min(range.start + len);
            let op = Op::Write { file, offset, buffer, range, durable: false };
            Begun::Ring { op, after: delay, hold, direct: false }
        }
        action => done(failed(&action), buffer, delay, hold),
    }
}

/// A read whose bytes the medium brings later.
fn later(pending: Pending, into: Part, hold: Hold) -> Begun {
    let (promise, future) = promise::<Outcome>();
    let Part { mut buffer, range } = into;
    pending.then(move |action| {
        let (status, transferred_bytes) = match action {
            Action::Bytes(bytes) => {
                let count = bytes.len().min(range.len());
                bytes.part(0..count).copy_to(&mut buffer[range][..count]);
                (Status::Success, count as u64)
            }
            action => (Status::from_errno(failed(&action).err().unwrap_or(Errno::IO)), 0),
        };
        promise.complete(Outcome { status, transferred_bytes, buffer: Some(buffer) });
    });
    Begun::Elsewhere { future, buffer: None, hold }
}

fn failed(action: &Action) -> Result<u64, Errno> {
    match action {
        Action::Failed(errno) => Err(*errno),
        _ => Err(Errno::IO),
    }
}

impl ByteFile for VolumeFile {
    fn name(&self) -> &str {
        &self.volume.name
    }

    fn len_bytes(&self) -> Result<u64, Errno> {
        self.check(Direction::Read).map(|_| self.len())
    }

    fn begin(&self, access: bytefile::Access) -> Begun {
        match self.check(access.direction) {
            Err(errno) => Begun::at_once(Err(errno), access.buffer),
            Ok(_) if access.direction == Direction::Read => self.read(access),
            Ok(leave) => self.write(access, leave),
        }
    }

    fn version(&self) -> Option<u64> {
        Some(self.volume.version())
    }

    fn sync(&self) -> Result<(), Errno> {
        self.check(Direction::Write)?;
        flush(&self.volume)
    }

    fn ended(&self, direction: Direction, offset: u64, result: Result<u64, Errno>, took: Duration) {
        // Beyond the end there is no space.
        if let Err(errno) = result
            && offset < self.len()
        {
            let operation = if direction == Direction::Read { "read" } else { "write" };
            self.volume.failed(operation, Some(offset), errno);
        }
        self.volume.functions.ended(direction, result, took);
    }
}

impl std::fmt::Debug for VolumeFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VolumeFile").field("volume", &self.volume.name).finish_non_exhaustive()
    }
}
