//! An open file as output of a function: in place, at its end, or as a whole.

mod lane;
mod replacement;

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;

use diskside_wire::file::{FileHandle, FileOp};
use rustix::fs;
use rustix::io::Errno;

use super::FileSession;
use super::attributes::status;
use super::open_file::OpenFile;
use super::operations::{opened_for, sync};
use crate::reply::FileError;
use lane::{Lane, Position};
use replacement::Replacement;

/// Where a function's output goes in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkMode {
    /// Over what is there, from this byte on. Readers see it as it comes; a failure leaves a part.
    InPlace {
        /// First byte.
        offset: u64,
    },
    /// At the end. A failure takes back what was added, if nobody else added something.
    Append,
    /// As a new file that takes the old one's name when all of it is on stable media. Readers see the old content or
    /// the new, never a part; a failure leaves the old. The handle is then one of the new file.
    Replace,
}

/// A file that a function writes. Its bytes are durable when [`finish`](Self::finish) says so; dropping it first is a
/// failure.
#[derive(Debug)]
pub struct FileSink {
    session: FileSession,
    handle: FileHandle,
    /// The file that is written: the handle's, or the new one.
    file: Arc<OpenFile>,
    way: Way,
    lane: Lane,
    /// Bytes that are in the file, once that is known.
    written: Option<u64>,
    durable: u64,
    failure: Option<FileError>,
    finished: bool,
}

#[derive(Debug)]
enum Way {
    InPlace,
    /// With the file's length at the start.
    Append(u64),
    Replace(Arc<Replacement>),
}

impl FileSession {
    /// The file of a handle, to write to. Waits for the disk: not for a reactor.
    pub fn sink(&self, handle: FileHandle, mode: SinkMode) -> Result<FileSink, FileError> {
        let file = opened_for(self, FileOp::Write, handle)?;
        let (file, way, position) = match mode {
            SinkMode::InPlace { offset } => (file, Way::InPlace, Position::At(offset)),
            SinkMode::Append => {
                let status = status(file.fd.as_fd()).map_err(|errno| FileError::new(errno, &file.name))?;
                (file, Way::Append(status.stx_size), Position::End(status.stx_size))
            }
            SinkMode::Replace => {
                let old = Arc::clone(&file);
                let (new, replacement) = on_worker(&file, "create", move || Replacement::begin(old))?;
                (Arc::new(new), Way::Replace(Arc::new(replacement)), Position::At(0))
            }
        };
        let (session, lane) = (self.clone(), Lane::new(Arc::clone(&file), position));
        let (written, durable, failure) = (None, 0, None);
        Ok(FileSink { session, handle, file, way, lane, written, durable, failure, finished: false })
    }
}

impl FileSink {
    /// Output that waits in memory for the disk, at most.
    pub const MEMORY_BYTES: u64 = lane::MEMORY_BYTES;

    /// Bytes written so far, some of which may still be on their way to the file; after a failure those that are in it.
    pub fn written_bytes(&self) -> u64 {
        self.written.unwrap_or_else(|| self.lane.put_bytes())
    }

    /// The first so many bytes of the output are on stable media, where readers find them.
    pub fn durable_bytes(&self) -> u64 {
        self.durable
    }

    /// The file of the handle: a replacement is to take its place.
    pub(super) fn named(&self) -> &OpenFile {
        if let Way::Replace(replacement) = &self.way { replacement.old() } else { &self.file }
    }

    /// Whether it is written where it is, and nowhere else.
    pub(super) fn is_in_place(&self) -> bool {
        matches!(self.way, Way::InPlace)
    }

    /// Whether the file stays what it is until a new one takes its place.
    pub(super) fn is_replaced(&self) -> bool {
        matches!(self.way, Way::Replace(_))
    }

    /// Why writing failed, if it did: [`Write`] can only say the kind.
    pub fn take_failure(&mut self) -> Option<FileError> {
        self.failure.take()
    }

    /// Writes `data` behind what was written. A failure may be that of earlier bytes.
    pub fn append(&mut self, data: &[u8]) -> Result<(), FileError> {
        let put = self.lane.put(data);
        if put.is_err() || matches!(self.way, Way::Append(_)) {
            // A writer that appends hears at once of others that do.
            return self.drain();
        }
        put
    }

    /// Waits until everything is in the file, and gives up the memory that it waited in.
    ///
    /// # Errors
    /// Not all of it is.
    pub fn settle(&mut self) -> Result<(), FileError> {
        let drained = self.drain();
        self.lane.shrink();
        drained
    }

    fn drain(&mut self) -> Result<(), FileError> {
        let (written, result) = self.lane.drain();
        if result.is_err() {
            self.written = Some(written);
        }
        result
    }

    /// Makes everything durable and, of a replacement, visible. Gives the bytes that are.
    ///
    /// # Errors
    /// Nothing is published, and what can be taken back is.
    pub fn finish(&mut self) -> Result<u64, FileError> {
        self.complete()?;
        self.publish()
    }

    /// Makes everything durable. Replacements can still be taken back: by [`abort`](Self::abort).
    ///
    /// # Errors
    /// Replacements are taken back.
    pub fn complete(&mut self) -> Result<(), FileError> {
        if let Err(error) = self.settle() {
            self.undo();
            return Err(error);
        }
        let file = Arc::clone(&self.file);
        let synced = match &self.way {
            Way::InPlace | Way::Append(_) => on_worker(&self.file, "sync", move || sync(&file, true)),
            Way::Replace(replacement) => {
                let replacement = Arc::clone(replacement);
                on_worker(&self.file, "sync", move || sync(&file, false).and_then(|()| replacement.check()))
            }
        };
        if synced.is_err() {
            // Asked again it may say that all is well, having dropped what it could not write.
            if matches!(self.way, Way::InPlace) { self.finished = true } else { self.undo() }
        }
        synced
    }

    /// Shows a replacement to others. Gives the bytes that are durable. After [`complete`](Self::complete).
    ///
    /// # Errors
    /// Nothing is published.
    pub fn publish(&mut self) -> Result<u64, FileError> {
        self.finished = true;
        if let Way::Replace(replacement) = &self.way {
            let (replacement, new) = (Arc::clone(replacement), Arc::clone(&self.file));
            let handle_file = on_worker(&self.file, "publish", move || replacement.publish(&new))?;
            self.session.replace(self.handle, handle_file);
        }
        self.durable = self.written_bytes();
        Ok(self.durable)
    }

    /// Ends without success: takes back what can be taken back, and gives the bytes of the output that are durable
    /// and stay.
    pub fn abort(&mut self) -> u64 {
        if !self.finished {
            self.undo();
        }
        self.durable
    }

    fn undo(&mut self) {
        self.finished = true;
        let written = match self.way {
            // In place nothing is taken back, so as much as possible is there.
            Way::InPlace => self.lane.drain().0,
            Way::Append(_) | Way::Replace(_) => self.lane.discard(),
        };
        self.written = Some(written);
        let file = Arc::clone(&self.file);
        let undone = match &self.way {
            Way::InPlace => on_worker(&self.file, "sync", move || sync(&file, true).map(|()| written)),
            Way::Append(start) => {
                let start = *start;
                on_worker(&self.file, "truncate", move || take_back(&file, start, written))
            }
            Way::Replace(replacement) => {
                let replacement = Arc::clone(replacement);
                on_worker(&self.file, "unlink", move || {
                    replacement.discard();
                    Ok(0)
                })
            }
        };
        self.durable = undone.unwrap_or_else(|error| {
            // Often somebody else appended meanwhile. A failure of the disk is in the log already, and a host can have any number of these.
            tracing::debug!(file = self.file.name, %error, "a failed write could not be taken back");
            0
        });
    }
}

impl Write for FileSink {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.append(data).map_err(|error| {
            let io = io::Error::new(io::Error::from(error.errno).kind(), error.message.clone());
            self.failure = Some(error);
            io
        })?;
        Ok(data.len())
    }

    /// Does nothing: [`FileSink::finish`] makes the output durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for FileSink {
    fn drop(&mut self) {
        self.abort();
    }
}

fn still_ours(file: &OpenFile, len: u64) -> Result<(), FileError> {
    let failed = |errno| FileError::new(errno, format!("writing {}", file.name));
    if status(file.fd.as_fd()).map_err(failed)?.stx_size == len {
        return Ok(());
    }
    let message = format!("writing {}: another writer changed the file's length meanwhile", file.name);
    Err(FileError::because(Errno::STALE, message))
}

/// Cuts off what was appended, unless something else came behind it. Gives the bytes that stay durable.
fn take_back(file: &OpenFile, start: u64, written: u64) -> Result<u64, FileError> {
    if written == 0 {
        return Ok(0);
    }
    still_ours(file, start + written)?;
    let _change = file.changing();
    fs::ftruncate(&file.fd, start).map_err(|errno| FileError::new(errno, format!("shortening {}", file.name)))?;
    Ok(0)
}

/// Runs `job` as the export's user, and tells of a disk that fails the operation.
fn on_worker<T: Send + 'static>(
    file: &OpenFile,
    operation: &str,
    job: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileError> {
    let failed = || FileError::because(Errno::IO, format!("{}: the target failed; see its log", file.name));
    let done = file.export.workers.run(job).ok_or_else(failed)?;
    done.inspect_err(|error| file.export.failed(operation, &file.name, None, error.errno))
}
