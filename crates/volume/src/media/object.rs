//! An object of a remote store, `s3://BUCKET/KEY` or `https://HOST/PATH`: read-only, by ranges, in one version.

use std::io;

use diskside_io::Errno;
use diskside_io::buffer::{Hugepages, SharedMemory};
use diskside_objects::{Answered, Ask, Asker, Kind, Meta, READ_LEN_MAX, Store};

use crate::medium::{Access, Action, Medium, Properties, Step};
use crate::pending::{Answer, pending};

/// Reads that functions have under way for one call: a store answers many at a time, each after a long while.
pub const OBJECT_READS_AT_ONCE: usize = 8;

/// One version of an object.
#[derive(Debug)]
pub struct ObjectMedium {
    properties: Properties,
    object: Meta,
    store: Store,
}

impl ObjectMedium {
    /// Opens an object for blocks of so many bytes.
    ///
    /// # Errors
    /// The program `diskside-objects` is not there, or what the store says.
    pub fn open(url: &str, block_bytes: u32) -> io::Result<Self> {
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("{url} {what}"));
        let store = Store::open(url)?;
        let told = |error| io::Error::other(format!("{url}: {error}"));
        let object = store.head("").map_err(told)?;
        if object.kind == Kind::Directory {
            return Err(invalid("is not found (404): a volume is one object; what is below a key can be an export"));
        }
        // Stores that give whole objects only are of no use: each read would move all of it.
        if object.len > 1 {
            store.read("", &object.version, object.len - 1, 1).map_err(told)?;
        }
        let len_bytes = object.len.next_multiple_of(u64::from(block_bytes));
        if len_bytes == 0 {
            return Err(invalid("is empty: a volume has a block at least"));
        }
        let properties = Properties {
            len_bytes,
            read_only: true,
            volatile_write_cache: false,
            thin: false,
            direct: true,
            atomic_len: 0,
            delta_len: 0,
        };
        Ok(Self { properties, object, store })
    }

    fn read(&self, offset: u64, len: usize) -> Action {
        let (pending, answer) = match pending() {
            Ok(both) => both,
            Err(errno) => return Action::Failed(errno),
        };
        // Behind the object are zeroes, up to the end of a block.
        let in_object = self.object.len.saturating_sub(offset).min(len as u64) as u32;
        let version = self.object.version.clone();
        let ask = Ask::Read { path: String::new(), version, offset, len: in_object };
        self.store.ask(ask, Box::new(Read { answer, len }));
        Action::Pending(pending)
    }
}

/// A read that the store has not answered.
struct Read {
    answer: Answer,
    /// Bytes, with the zeroes behind the object.
    len: usize,
}

impl Asker for Read {
    fn is_wanted(&self) -> bool {
        self.answer.is_wanted()
    }

    fn take(self: Box<Self>, answer: Answered) {
        let bytes = answer.map(|(_, bytes)| {
            let memory = SharedMemory::zeroed(self.len, Hugepages::No);
            memory.write(0, &bytes);
            memory.slice(0..self.len)
        });
        self.answer.give(bytes.map_err(|error| error.errno));
    }
}

impl Medium for ObjectMedium {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn start(&self, access: &Access<'_>) -> Step {
        match *access {
            Access::Read { offset, len } => self.read(offset, len.min(READ_LEN_MAX)),
            Access::Write { .. } | Access::Delta(_) | Access::Zero { .. } => Action::Failed(Errno::ROFS),
            Access::Flush => Action::Done(0),
        }
        .into()
    }

    fn reads_at_once(&self) -> usize {
        OBJECT_READS_AT_ONCE
    }
}
