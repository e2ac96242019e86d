//! An object of a remote store, `s3://BUCKET/KEY` or `https://HOST/PATH`: read-only, by ranges, in one version.
//!
//! The store is spoken to by a process of its own, `diskside-objects`, which has the network, the libraries for it and the
//! credentials; here are a pipe to it and the reads that it has not answered yet. Every read asks for the version that
//! the volume was opened with, so an object that is replaced fails reads with `ESTALE`: they never mix two versions.

pub mod frames;
mod process;

use std::io;

use diskside_io::Errno;

use self::process::Process;
pub use self::process::{files_of_connections, program};
use crate::medium::{Access, Action, Medium, Properties, Step};
use crate::pending::pending;

/// Reads that functions have under way for one call: a store answers many at a time, each after a long while.
const READS_AT_ONCE: usize = 8;

/// One version of an object.
#[derive(Debug)]
pub struct ObjectMedium {
    properties: Properties,
    /// Bytes of the object itself: what follows in its last block are zeroes.
    object_len: u64,
    process: Process,
}

impl ObjectMedium {
    /// Opens an object for blocks of so many bytes.
    ///
    /// # Errors
    /// The program `diskside-objects` is not there, or what the store says.
    pub fn open(url: &str, block_bytes: u32) -> io::Result<Self> {
        let (process, object_len) = Process::open(url)?;
        let len_bytes = object_len.next_multiple_of(u64::from(block_bytes));
        if len_bytes == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{url} is empty: a volume has a block at least"),
            ));
        }
        let properties = Properties {
            len_bytes,
            read_only: true,
            volatile_write_cache: false,
            thin: false,
            direct: true,
            atomic_len: 0,
        };
        Ok(Self { properties, object_len, process })
    }

    fn read(&self, offset: u64, len: usize) -> Action {
        let (pending, answer) = match pending() {
            Ok(both) => both,
            Err(errno) => return Action::Failed(errno),
        };
        let in_object = self.object_len.saturating_sub(offset).min(len as u64) as usize;
        self.process.read(offset, in_object, len, answer);
        Action::Pending(pending)
    }
}

impl Medium for ObjectMedium {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn start(&self, access: &Access<'_>) -> Step {
        match *access {
            Access::Read { offset, len } => self.read(offset, len.min(frames::READ_LEN_MAX)),
            Access::Write { .. } | Access::Zero { .. } => Action::Failed(Errno::ROFS),
            Access::Flush => Action::Done(0),
        }
        .into()
    }

    fn reads_at_once(&self) -> usize {
        READS_AT_ONCE
    }
}
