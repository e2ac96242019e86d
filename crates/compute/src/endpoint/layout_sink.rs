//! Output into a file that a host has on a volume which it mounted: by its layout, in place.
//!
//! The host vouches for the places, by a lease that keeps everybody else from the file, and gives it up only when this
//! call is over. So nothing is written once the layout is revoked, the call is cancelled or its deadline has passed:
//! each piece asks before. Nothing is allocated, and the file keeps its length.

use std::time::Instant;

use diskside_io::Errno;
use diskside_nvme::controller::ReservedWrite;
use diskside_rights::Access;
use diskside_wire::function::{Endpoint, Outcome};

use crate::call::rights::MayWrite;
use crate::endpoint::layouts::LayoutReader;
use crate::endpoint::{HOLD_BYTES, SinkError, WRITE_BYTES, Written};
use diskside_export::FileError;
use diskside_volume::blocking::{flush, write_at};

/// A range of a file that is being written.
#[derive(Debug)]
pub(crate) struct LayoutSink {
    layout: LayoutReader,
    may_write: MayWrite,
    /// When the host stops waiting.
    until: Instant,
    start: u64,
    end: u64,
    durable: bool,
    /// Where in the file the first byte of `pending` goes.
    at: u64,
    durable_to: u64,
    flush_failed: bool,
    pending: Vec<u8>,
}

impl LayoutSink {
    /// A sink of the bytes that `endpoint` means, no further than the file goes.
    ///
    /// # Errors
    /// Its volume takes no writes.
    pub(crate) fn new(
        layout: LayoutReader,
        granted: Access,
        endpoint: &Endpoint,
        may_write: MayWrite,
        until: Instant,
    ) -> Result<Self, FileError> {
        if layout.volume().read_only {
            let message = format!("{} is on a read-only volume; serve it with `,rw`", layout.name());
            return Err(FileError { errno: Errno::ROFS, changed: false, message });
        }
        if granted < Access::Write {
            let message = format!("{} is on a volume that is read-only to this host", layout.name());
            return Err(FileError { errno: Errno::ROFS, changed: false, message });
        }
        let range = layout.range(endpoint);
        let (start, end, durable) = (range.start, range.end, endpoint.durable);
        let (at, durable_to, flush_failed, pending) = (start, start, false, Vec::new());
        Ok(Self { layout, may_write, until, start, end, durable, at, durable_to, flush_failed, pending })
    }

    pub(crate) fn room(&self) -> u64 {
        self.end - self.at - self.pending.len() as u64
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<(), SinkError> {
        self.pending.extend_from_slice(bytes);
        if self.pending.len() >= WRITE_BYTES { self.write_pending(false) } else { Ok(()) }
    }

    pub(crate) fn finish(&mut self) -> Result<(), SinkError> {
        self.write_pending(true)?;
        self.make_durable()
    }

    /// The call failed: what was written stays.
    pub(crate) fn abort(&mut self) {
        self.pending.clear();
        // The durable bytes show a flush that fails, and the call has an error already.
        let _ = self.make_durable();
    }

    pub(crate) fn written(&self) -> Written {
        Written { written: self.at - self.start, durable: self.durable_to - self.start }
    }

    /// Writes the whole blocks that are pending; with `all` also the rest of the last one.
    pub(crate) fn write_pending(&mut self, all: bool) -> Result<(), SinkError> {
        let block = u64::from(self.layout.volume().block_bytes);
        let mut done = 0;
        while done < self.pending.len() {
            let _write = self.begin()?;
            let (physical, together) = self.layout.place(self.at).ok_or_else(|| self.no_place())?;
            let wanted = ((self.pending.len() - done) as u64).min(together);
            let end = (physical + wanted).min(physical / block * block + HOLD_BYTES as u64);
            // The rest of a block is waited for; a piece of the file may end inside a block.
            let ends_here = all || end == physical + together;
            let end = if ends_here { end } else { end / block * block };
            if end <= physical {
                break;
            }
            let len = end - physical;
            let bytes = &self.pending[done..done + len as usize];
            write_at(self.layout.volume(), physical, bytes).map_err(|errno| self.failed(errno))?;
            done += bytes.len();
            self.at += len;
        }
        self.pending.drain(..done);
        Ok(())
    }

    /// Asked before each piece: the host must be able to rely on it.
    fn begin(&self) -> Result<ReservedWrite, SinkError> {
        let stopped = |outcome, why| Err(SinkError::Stopped { outcome, why, written: self.at - self.start });
        if self.layout.is_retired() {
            return stopped(Outcome::Stale, "the layout was replaced or revoked while output was written by it");
        }
        if self.may_write.is_cancelled() {
            return stopped(Outcome::Cancelled, "the call was cancelled while its output was written");
        }
        if Instant::now() >= self.until {
            return stopped(Outcome::Deadline, "the deadline passed while output was written");
        }
        self.may_write.begin(self.layout.volume()).or_else(|why| stopped(Outcome::Cancelled, why))
    }

    fn make_durable(&mut self) -> Result<(), SinkError> {
        if self.layout.volume().medium.properties().volatile_write_cache {
            if !self.durable {
                return Ok(());
            }
            // As for a volume: one that failed is not asked again.
            if self.flush_failed {
                return Ok(());
            }
            self.flush_failed = true;
            flush(self.layout.volume()).map_err(|errno| self.failed(errno))?;
            self.flush_failed = false;
        }
        self.durable_to = self.at;
        Ok(())
    }

    fn failed(&self, errno: Errno) -> SinkError {
        SinkError::Volume { name: self.layout.name(), offset: self.at, errno }
    }

    fn no_place(&self) -> SinkError {
        let message = format!("{} has no place for byte {} in its layout", self.layout.name(), self.at);
        SinkError::File(FileError { errno: Errno::NOSPC, changed: false, message })
    }
}
