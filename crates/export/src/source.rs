//! An open file as input of a function: read anywhere, and known to have stayed the same; or as far as it is in memory.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use diskside_io::buffer::{Buffer, Part};
use diskside_io::readahead::{self, ReadAt, ReadAtError};
use diskside_wire::file::{FileHandle, FileOp};
use rustix::fs::{FileType, Statx};
use rustix::io::Errno;

use super::FileSession;
use super::attributes::{is_recent, settled_version, status, status_now, version};
use super::open_file::OpenFile;
use super::operations::opened_for;
use super::reading::Reading;
use crate::objects::OpenObject;
use crate::reply::FileError;
use crate::session::Opened;
use diskside_objects::Kind;
use diskside_volume::cache::ObjectVersion;
use diskside_volume::media::OBJECT_READS_AT_ONCE;
use diskside_volume::medium::READS_AT_ONCE;
use diskside_volume::stats::AccessCounters;
use std::io;

/// Copies of descriptors are above the standard ones.
const FIRST_DESCRIPTOR: i32 = 3;

/// A file that a function reads. Cheap to clone; used from any thread.
#[derive(Clone, Debug)]
pub struct FileSource {
    of: Of,
    version: u64,
    len_bytes: u64,
}

#[derive(Clone, Debug)]
enum Of {
    File {
        file: Arc<OpenFile>,
        reading: Reading,
    },
    /// One version of an object: no read of it gives bytes of another.
    Object(Arc<OpenObject>),
}

/// A file of which a reactor reads what the page cache has: nothing here waits.
#[derive(Debug)]
pub struct CachedFile {
    file: Arc<OpenFile>,
    version: u64,
    len_bytes: u64,
}

impl FileSession {
    /// The file of a handle, if it can be told at once that it may be read, and how long it is.
    pub fn cached(&self, handle: FileHandle) -> Option<CachedFile> {
        let file = opened_for(self, FileOp::Read, handle).ok()?;
        let known = status_now(file.fd.as_fd())?;
        let is_file = FileType::from_raw_mode(known.stx_mode.into()) == FileType::RegularFile;
        // One that changed in this clock tick may change again and look the same.
        let settled = is_file && !is_recent(&known) && !file.readers.is_noted(&file, &known);
        settled.then(|| CachedFile { file, version: version(&known), len_bytes: known.stx_size })
    }

    /// The file of a handle, to read from. Waits up to 50 ms if the file changed just now, and for the disk: not for
    /// a reactor.
    pub fn source(&self, handle: FileHandle) -> Result<FileSource, FileError> {
        match self.get(FileOp::Read, handle)? {
            Opened::File(_) => FileSource::new(opened_for(self, FileOp::Read, handle)?),
            Opened::Object(object) => FileSource::of_object(object),
        }
    }
}

impl FileSource {
    /// As [`FileSession::source`].
    pub(super) fn new(file: Arc<OpenFile>) -> Result<Self, FileError> {
        let name = file.name.clone();
        let (version, status) = settled_version(file.fd.as_fd()).map_err(|errno| FileError::new(errno, &name))?;
        if FileType::from_raw_mode(status.stx_mode.into()) != FileType::RegularFile {
            return Err(no_file(&name));
        }
        let of = Of::File { file, reading: Reading::here_and_there() };
        Ok(Self { of, version, len_bytes: status.stx_size })
    }

    pub(super) fn of_object(object: Arc<OpenObject>) -> Result<Self, FileError> {
        if object.meta.kind != Kind::Object {
            return Err(no_file(&object.name));
        }
        Ok(Self { version: object.version(), len_bytes: object.meta.len, of: Of::Object(object) })
    }

    /// What is read, if it is a file of a directory.
    pub(super) fn file(&self) -> Option<&OpenFile> {
        match &self.of {
            Of::File { file, .. } => Some(file),
            Of::Object(_) => None,
        }
    }

    /// How messages call it: the export and the path.
    pub fn name(&self) -> &str {
        match &self.of {
            Of::File { file, .. } => &file.name,
            Of::Object(object) => &object.name,
        }
    }

    /// What is counted of its export.
    pub fn counters(&self) -> Arc<AccessCounters> {
        let export = match &self.of {
            Of::File { file, .. } => &file.export,
            Of::Object(object) => &object.export,
        };
        Arc::clone(&export.functions)
    }

    /// Its version from before the first read.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Its length in bytes from before the first read.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// The version of an object of a store, which the kernel does not cache.
    pub fn version_of_object(&self) -> Option<ObjectVersion> {
        match &self.of {
            Of::File { .. } => None,
            Of::Object(object) => object.version_of_all(),
        }
    }

    /// The open file, for a process that reads it by itself. `None`: it is an object of a store, which has none.
    pub fn descriptor(&self) -> Result<Option<OwnedFd>, FileError> {
        let Some(file) = self.file() else { return Ok(None) };
        let copied = rustix::io::fcntl_dupfd_cloexec(file.fd.as_fd(), FIRST_DESCRIPTOR);
        copied.map(Some).map_err(|errno| FileError::new(errno, self.name()))
    }

    /// The process that reads it by its [`descriptor`](Self::descriptor) was told this by the disk.
    pub fn failed(&self, errno: Errno) {
        let export = match &self.of {
            Of::File { file, .. } => &file.export,
            Of::Object(object) => &object.export,
        };
        export.failed("read", self.name(), None, errno);
    }

    /// The same, to read that range of it from its start to its end.
    pub fn reading(mut self, range: &Range<u64>) -> Self {
        if let Of::File { file, reading } = &mut self.of {
            *reading = Reading::of(file, range, self.len_bytes);
        }
        self
    }

    /// Whether everything read so far belongs to [`version`](Self::version). Asked after the last read.
    pub fn unchanged(&self) -> Result<(), FileError> {
        let Some(now) = self.status()? else { return Ok(()) };
        if version(&now) == self.version { Ok(()) } else { Err(FileError::changed(self.name())) }
    }

    /// Whether everything read so far is what the file had at the start: it stayed the same, or has become longer, and is taken to
    /// have only grown, as a log does. Asked after the last read.
    pub fn unchanged_or_grown(&self) -> Result<(), FileError> {
        let Some(now) = self.status()? else { return Ok(()) };
        let is_same = version(&now) == self.version || now.stx_size > self.len_bytes;
        if is_same { Ok(()) } else { Err(FileError::changed(self.name())) }
    }

    /// As it is now; of an object nothing has to be asked.
    fn status(&self) -> Result<Option<Statx>, FileError> {
        let Some(file) = self.file() else { return Ok(None) };
        status(file.fd.as_fd()).map(Some).map_err(|errno| FileError::new(errno, self.name()))
    }

    async fn fill(&self, (file, how): (&OpenFile, &Reading), offset: u64, into: Part) -> Result<Buffer, ReadAtError> {
        let Part { mut buffer, range } = into;
        let mut at = range.start;
        while at < range.end {
            let from = offset.saturating_add((at - range.start) as u64);
            let moved = how.read(file, from, Part { buffer, range: at..range.end }).await;
            buffer = moved.buffer;
            match moved.result {
                // It ends before the length that it had when it was opened.
                Ok(0) => return Err(ReadAtError::Changed(FileError::changed(self.name()).message)),
                Ok(count) => at += count as usize,
                Err(Errno::INTR) => {}
                Err(errno) => {
                    file.export.failed("read", &file.name, Some(from), errno);
                    return Err(ReadAtError::Io(errno.into()));
                }
            }
        }
        Ok(buffer)
    }
}

impl CachedFile {
    /// What is counted of its export.
    pub fn counters(&self) -> &AccessCounters {
        &self.file.export.functions
    }

    /// Its length when it was opened.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Its version from before the first read.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether everything read so far is known to belong to [`version`](Self::version). Asked after the last read.
    pub fn unchanged(&self) -> bool {
        status_now(self.file.fd.as_fd()).is_some_and(|now| version(&now) == self.version)
    }

    /// Fills `into` with the bytes at `offset`, if the page cache has all of them; else it holds anything.
    pub fn read_now(&self, offset: u64, into: &mut [u8]) -> bool {
        self.file.readers.read_hot(&self.file, offset, into)
    }
}

impl ReadAt for FileSource {
    fn len(&self) -> u64 {
        self.len_bytes
    }

    fn read(&self, offset: u64, into: Part) -> readahead::Reading<'_> {
        match &self.of {
            Of::File { file, reading } => Box::pin(self.fill((file, reading), offset, into)),
            Of::Object(object) => Box::pin(async move {
                let _asked = object.export.health.ask(Instant::now());
                object.fill(offset, into).await.map_err(|error| match error.changed {
                    true => ReadAtError::Changed(error.message),
                    false => {
                        object.export.failed("read", &object.name, Some(offset), error.errno);
                        ReadAtError::Io(io::Error::other(error.message))
                    }
                })
            }),
        }
    }

    fn read_now(&self, offset: u64, buffer: &mut [u8]) -> bool {
        match &self.of {
            Of::File { file, reading } => reading.read_now(file, offset, buffer),
            Of::Object(_) => false,
        }
    }

    fn has_memory(&self) -> bool {
        matches!(&self.of, Of::File { reading, .. } if !reading.is_direct())
    }

    fn reads_at_once(&self) -> usize {
        match &self.of {
            Of::File { .. } => READS_AT_ONCE,
            Of::Object(_) => OBJECT_READS_AT_ONCE,
        }
    }
}

fn no_file(name: &str) -> FileError {
    FileError::because(Errno::ISDIR, format!("{name} is a directory; a function reads a file"))
}
