//! An open file as output of a function: in place, at its end, or as a whole.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use diskside_nvme::wire::file::{FileHandle, FileOp};
use diskside_sys::cache::begin_flush;
use rustix::fs::{self, AtFlags, Mode, OFlags, Statx};
use rustix::io::Errno;

use super::attributes::{status, status_at};
use super::operations::{opened_for, sync, write_all};
use super::root::{open_beneath, open_parent, same_file};
use super::session::{OpenFile, Start};
use super::{FileError, FileSession};

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
    /// the new, never a part; a failure leaves the old. The handle then stands for the new file.
    Replace,
}

/// A file that a function writes. What is written is durable when [`finish`](Self::finish) says so; dropping it first
/// is a failure.
#[derive(Debug)]
pub struct FileSink {
    session: FileSession,
    handle: FileHandle,
    /// What is written to: the handle's file, or the new one.
    file: Arc<OpenFile>,
    way: Way,
    written: u64,
    durable: u64,
    failure: Option<FileError>,
    finished: bool,
}

#[derive(Debug)]
enum Way {
    InPlace(u64),
    /// With the file's length at the start.
    Append(u64),
    Replace(Arc<Replacement>),
}

/// A new file under a name of its own, in the directory of the old one.
#[derive(Debug)]
struct Replacement {
    old: Arc<OpenFile>,
    parent: OwnedFd,
    name: Vec<u8>,
    temporary: String,
}

impl FileSession {
    /// The file of a handle, to write to. Waits for the disk: not for a reactor.
    pub fn sink(&self, handle: FileHandle, mode: SinkMode) -> Result<FileSink, FileError> {
        let file = opened_for(self, FileOp::Write, handle)?;
        let (file, way) = match mode {
            SinkMode::InPlace { offset } => (file, Way::InPlace(offset)),
            SinkMode::Append => {
                let status = status(file.fd.as_fd()).map_err(|errno| FileError::new(errno, &file.name))?;
                (file, Way::Append(status.stx_size))
            }
            SinkMode::Replace => {
                let old = Arc::clone(&file);
                let (new, replacement) = on_worker(&file, move || Replacement::begin(old))?;
                (Arc::new(new), Way::Replace(Arc::new(replacement)))
            }
        };
        let session = self.clone();
        Ok(FileSink { session, handle, file, way, written: 0, durable: 0, failure: None, finished: false })
    }
}

impl FileSink {
    /// Bytes written so far.
    pub fn written_bytes(&self) -> u64 {
        self.written
    }

    /// The first so many bytes of the output are on stable media, where readers find them.
    pub fn durable_bytes(&self) -> u64 {
        self.durable
    }

    /// Why writing failed, if it did: [`Write`] can only say the kind.
    pub fn take_failure(&mut self) -> Option<FileError> {
        self.failure.take()
    }

    /// Writes `data` behind what was written.
    pub fn append(&mut self, data: Vec<u8>) -> Result<(), FileError> {
        let file = Arc::clone(&self.file);
        let (offset, expected_len) = match self.way {
            Way::InPlace(offset) => (Some(offset.saturating_add(self.written)), None),
            Way::Append(start) => (None, Some(start + self.written + data.len() as u64)),
            Way::Replace(_) => (Some(self.written), None),
        };
        let at = self.written;
        let (count, result) = on_worker(&self.file, move || {
            let failed = |errno| FileError::new(errno, format!("writing {}, byte {at} of the output", file.name));
            Ok(match write_all(&file, offset, &data) {
                Err((count, errno)) => (count, Err(failed(errno))),
                Ok(count) => {
                    if let Some(start) = offset {
                        // The disk works while the function does. What fails now fails again at the end.
                        let _ = begin_flush(&file.fd, start..start.saturating_add(count));
                    }
                    (count, expected_len.map_or(Ok(()), |len| still_ours(&file, len)))
                }
            })
        })?;
        self.written += count;
        result
    }

    /// Makes everything durable and, of a replacement, visible. Gives the bytes that are.
    pub fn finish(mut self) -> Result<u64, FileError> {
        self.finished = true;
        let file = Arc::clone(&self.file);
        match &self.way {
            Way::InPlace(_) | Way::Append(_) => on_worker(&self.file, move || sync(&file, true))?,
            Way::Replace(replacement) => {
                let (replacement, new) = (Arc::clone(replacement), Arc::clone(&file));
                let handle_file = on_worker(&self.file, move || replacement.publish(&new))?;
                self.session.replace(self.handle, handle_file);
            }
        }
        self.durable = self.written;
        Ok(self.durable)
    }

    /// Ends without success: takes back what can be taken back, and gives the bytes of the output that are durable
    /// and stay.
    pub fn abort(mut self) -> u64 {
        self.undo()
    }

    fn undo(&mut self) -> u64 {
        self.finished = true;
        let (file, written) = (Arc::clone(&self.file), self.written);
        let undone = match &self.way {
            Way::InPlace(_) => on_worker(&self.file, move || sync(&file, true).map(|()| written)),
            Way::Append(start) => {
                let start = *start;
                on_worker(&self.file, move || take_back(&file, start, written))
            }
            Way::Replace(replacement) => {
                let replacement = Arc::clone(replacement);
                on_worker(&self.file, move || {
                    replacement.discard();
                    Ok(0)
                })
            }
        };
        undone.unwrap_or_else(|error| {
            tracing::warn!(file = self.file.name, %error, "a failed write could not be taken back");
            0
        })
    }
}

impl Write for FileSink {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.append(data.to_vec()).map_err(|error| {
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
        if !self.finished {
            self.undo();
        }
    }
}

impl Replacement {
    fn begin(old: Arc<OpenFile>) -> Result<(OpenFile, Self), FileError> {
        let (parent, name, status) = own_name(&old)?;
        let temporary = format!(".diskside-{:016x}", RandomState::new().hash_one(&name));
        let how = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::from_raw_mode(u32::from(status.stx_mode) & 0o777);
        let failed = |errno| FileError::new(errno, format!("making a file beside {}", old.name));
        let fd = open_beneath(parent.as_fd(), temporary.as_bytes(), how, mode).map_err(failed)?;
        let replacement = Self { old: Arc::clone(&old), parent, name, temporary };
        // The process's umask may have taken bits that the old file has.
        if let Err(errno) = fs::fchmod(&fd, mode) {
            replacement.discard();
            return Err(failed(errno));
        }
        Ok((replacement.open_file(fd), replacement))
    }

    /// Gives the new file the name. The answer is what the handle stands for from now on.
    fn publish(&self, new: &OpenFile) -> Result<OpenFile, FileError> {
        let published = self.try_publish(new);
        if published.is_err() {
            self.discard();
        }
        published
    }

    fn try_publish(&self, new: &OpenFile) -> Result<OpenFile, FileError> {
        let failed = |errno| FileError::new(errno, format!("replacing {}", self.old.name));
        sync(new, false)?;
        own_name(&self.old)?;
        let fd = rustix::io::fcntl_dupfd_cloexec(&new.fd, 0).map_err(failed)?;
        fs::renameat(&self.parent, &*self.temporary, &self.parent, &*self.name).map_err(failed)?;
        let dir = open_beneath(self.parent.as_fd(), b".", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
        dir.and_then(|dir| fs::fsync(&dir)).map_err(failed)?;
        Ok(self.open_file(fd))
    }

    fn discard(&self) {
        if let Err(errno) = fs::unlinkat(&self.parent, &*self.temporary, AtFlags::empty())
            && errno != Errno::NOENT
        {
            tracing::warn!(file = self.temporary, %errno, "a half-written file stays beside {}", self.old.name);
        }
    }

    fn open_file(&self, fd: OwnedFd) -> OpenFile {
        let (export, dir) = (Arc::clone(&self.old.export), self.old.dir.clone());
        Start { export, dir, path: &self.old.path }.open(fd, self.old.readable, true)
    }
}

/// The directory and name of an open file, if that name still means this file, and no symbolic link.
fn own_name(file: &Arc<OpenFile>) -> Result<(OwnedFd, Vec<u8>, Statx), FileError> {
    let failed = |errno| FileError::new(errno, format!("replacing {}", file.name));
    let start = Start { export: Arc::clone(&file.export), dir: file.dir.clone(), path: &file.path };
    let (parent, name) = open_parent(start.dir(), &file.path).map_err(failed)?;
    let named = status_at(parent.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
    let opened = status(file.fd.as_fd()).map_err(failed)?;
    if !same_file(&named, &opened) {
        let message = format!("replacing {}: that name means another file by now, or a symbolic link", file.name);
        return Err(FileError::because(Errno::STALE, message));
    }
    Ok((parent, name.to_vec(), opened))
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
    fs::ftruncate(&file.fd, start).map_err(|errno| FileError::new(errno, format!("shortening {}", file.name)))?;
    Ok(0)
}

/// Runs `job` as the export's user.
fn on_worker<T: Send + 'static>(
    file: &OpenFile,
    job: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileError> {
    let failed = || FileError::because(Errno::IO, format!("{}: the target failed; see its log", file.name));
    file.export.workers.run(job).ok_or_else(failed)?
}
