//! An open file as input of a function: read anywhere, and known to have stayed the same; or as far as it is in memory.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use diskside_io::readahead::{ReadAt, ReadAtError};
use diskside_wire::file::{FileHandle, FileOp};
use rustix::fs::{AtFlags, FileType, Statx, StatxFlags, statx};
use rustix::io::Errno;

use super::FileSession;
use super::attributes::{is_recent, settled_version, status, version};
use super::open_file::OpenFile;
use super::operations::opened_for;
use super::reading::Reading;
use crate::reply::FileError;
use diskside_volume::medium::READS_AT_ONCE;
use diskside_volume::stats::AccessCounters;

/// Copies of descriptors are above the standard ones.
const FIRST_DESCRIPTOR: i32 = 3;

/// A file that a function reads. Cheap to clone; used from any thread.
#[derive(Clone, Debug)]
pub struct FileSource {
    file: Arc<OpenFile>,
    version: u64,
    len_bytes: u64,
    reading: Reading,
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
        let known = status_now(&file)?;
        let is_file = FileType::from_raw_mode(known.stx_mode.into()) == FileType::RegularFile;
        // One that changed in this clock tick may change again and look the same.
        let settled = is_file && !is_recent(&known);
        settled.then(|| CachedFile { file, version: version(&known), len_bytes: known.stx_size })
    }

    /// The file of a handle, to read from. Waits up to 50 ms if the file changed just now, and for the disk: not for
    /// a reactor.
    pub fn source(&self, handle: FileHandle) -> Result<FileSource, FileError> {
        FileSource::new(opened_for(self, FileOp::Read, handle)?)
    }
}

impl FileSource {
    /// As [`FileSession::source`].
    pub(super) fn new(file: Arc<OpenFile>) -> Result<Self, FileError> {
        let name = file.name.clone();
        let (version, status) = settled_version(file.fd.as_fd()).map_err(|errno| FileError::new(errno, &name))?;
        if FileType::from_raw_mode(status.stx_mode.into()) != FileType::RegularFile {
            return Err(FileError::because(Errno::ISDIR, format!("{name} is a directory; a function reads a file")));
        }
        Ok(Self { file, version, len_bytes: status.stx_size, reading: Reading::here_and_there() })
    }

    /// What is read.
    pub(super) fn file(&self) -> &OpenFile {
        &self.file
    }

    /// How messages call it: the export and the path.
    pub fn name(&self) -> &str {
        &self.file.name
    }

    /// What is counted of its export.
    pub fn counters(&self) -> Arc<AccessCounters> {
        Arc::clone(&self.file.export.functions)
    }

    /// Its version from before the first read.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Its length in bytes from before the first read.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// The open file, for a process that reads it by itself.
    pub fn descriptor(&self) -> Result<OwnedFd, FileError> {
        let copied = rustix::io::fcntl_dupfd_cloexec(self.file.fd.as_fd(), FIRST_DESCRIPTOR);
        copied.map_err(|errno| FileError::new(errno, self.name()))
    }

    /// The same, to read that range of it from its start to its end.
    pub fn reading(mut self, range: &Range<u64>) -> Self {
        self.reading = Reading::of(&self.file, range, self.len_bytes);
        self
    }

    /// Whether everything read so far belongs to [`version`](Self::version). Asked after the last read.
    pub fn unchanged(&self) -> Result<(), FileError> {
        let now = status(self.file.fd.as_fd()).map_err(|errno| FileError::new(errno, self.name()))?;
        if version(&now) == self.version { Ok(()) } else { Err(FileError::changed(self.name())) }
    }
}

impl FileSource {
    /// Whether everything read so far is what the file had at the start: it stayed the same, or has become longer, and is taken to
    /// have only grown, as a log does. Asked after the last read.
    pub fn unchanged_or_grown(&self) -> Result<(), FileError> {
        let now = status(self.file.fd.as_fd()).map_err(|errno| FileError::new(errno, self.name()))?;
        let is_same = version(&now) == self.version || now.stx_size > self.len_bytes;
        if is_same { Ok(()) } else { Err(FileError::changed(self.name())) }
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
        status_now(&self.file).is_some_and(|now| version(&now) == self.version)
    }

    /// Fills `into` with the bytes at `offset`, if the page cache has all of them; else it holds anything.
    pub fn read_now(&self, offset: u64, into: &mut [u8]) -> bool {
        self.file.readers.read_cached(&self.file, offset, into)
    }
}

/// The status as this machine knows it: another one is not asked.
fn status_now(file: &OpenFile) -> Option<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let known = statx(&file.fd, "", flags, StatxFlags::BASIC_STATS).ok()?;
    let wanted = StatxFlags::TYPE | StatxFlags::SIZE | StatxFlags::INO | StatxFlags::MTIME | StatxFlags::CTIME;
    StatxFlags::from_bits_retain(known.stx_mask).contains(wanted).then_some(known)
}

impl ReadAt for FileSource {
    fn len(&self) -> u64 {
        self.len_bytes
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadAtError> {
        let mut filled = 0;
        while filled < buffer.len() {
            let rest = &mut buffer[filled..];
            match self.reading.read(&self.file, offset.saturating_add(filled as u64), rest) {
                // It ends before the length that it had when it was opened.
                Ok(0) => return Err(ReadAtError::Changed(FileError::changed(self.name()).message)),
                Ok(count) => filled += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(ReadAtError::Io(errno.into())),
            }
        }
        Ok(())
    }

    fn reads_at_once(&self) -> usize {
        READS_AT_ONCE
    }
}
