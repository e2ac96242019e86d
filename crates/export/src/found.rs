//! Files that a function reads by their paths: found, read and closed on the export's threads, without a handle.

use std::os::fd::AsFd as _;
use std::sync::Arc;

use diskside_objects::Kind;
use diskside_wire::file::FileOp;
use rustix::buffer::spare_capacity;
use rustix::fs::{FileType, OFlags, Statx};
use rustix::io::{Errno, pread};

use super::attributes::{settled_version, status, version};
use super::root::{open_file, same_file};
use super::{FileSession, FileSource};
use crate::objects::{self, object_path};
use crate::reply::FileError;

/// The longest file that is read as it is found.
pub const SHORT_FILE_LEN_MAX: usize = 256 << 10;

/// What is at a path.
#[derive(Debug)]
pub enum Found {
    /// A short file: all of it, as it was at one moment.
    Short {
        /// What it holds.
        bytes: Vec<u8>,
        /// Its version.
        version: u64,
    },
    /// A longer file, to be [opened](FileSession::open_source) when it is read.
    Long,
}

/// How often a short file is read again that changed while it was read.
const ATTEMPTS_MAX: usize = 8;

impl FileSession {
    /// Runs `work` on a thread of the export that a path begins with. Does not wait for it.
    pub fn on_export_of(&self, path: &[u8], work: impl FnOnce(&FileSession) + Send + 'static) -> Result<(), FileError> {
        let export = self.beginning(FileOp::Lookup, None, path)?.export;
        let session = self.clone();
        export.workers.submit_for(self.whose(), None, move || work(&session));
        Ok(())
    }

    /// The file at a path, on a thread of its export. It is not among the files that the call changes.
    pub fn find_file(&self, path: &[u8], changed: &[Statx]) -> Result<Found, FileError> {
        if let Some(found) = find_object(self, path)? {
            return Ok(found);
        }
        let start = self.start(FileOp::Lookup, None, path)?;
        let failed = |errno| start.export.error(errno, start.name());
        for _ in 0..ATTEMPTS_MAX {
            let (fd, found) = open_file(start.dir(), start.path, OFlags::RDONLY).map_err(failed)?;
            if FileType::from_raw_mode(found.stx_mode.into()) != FileType::RegularFile {
                return Err(failed(Errno::ISDIR));
            }
            if changed.iter().any(|changed| same_file(changed, &found)) {
                return Err(failed(Errno::TXTBSY));
            }
            if found.stx_size > SHORT_FILE_LEN_MAX as u64 {
                return Ok(Found::Long);
            }
            let (before, known) = settled_version(fd.as_fd()).map_err(failed)?;
            let mut bytes = Vec::with_capacity((known.stx_size as usize).min(SHORT_FILE_LEN_MAX));
            while bytes.len() < bytes.capacity() {
                let at = bytes.len() as u64;
                match pread(&fd, spare_capacity(&mut bytes), at) {
                    Ok(0) => break,
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(errno) => return Err(failed(errno)),
                }
            }
            if bytes.len() as u64 == known.stx_size && version(&status(fd.as_fd()).map_err(failed)?) == before {
                start.export.functions.read(Some(bytes.len() as u64));
                return Ok(Found::Short { bytes, version: before });
            }
        }
        Err(FileError::changed(&start.name()))
    }

    /// Opens the file at a path to read from it. Waits for a thread of the export.
    pub fn open_source(&self, path: &[u8]) -> Result<FileSource, FileError> {
        let export = self.beginning(FileOp::Lookup, None, path)?.export;
        let (session, path) = (self.clone(), path.to_vec());
        let is_store = export.store.is_some();
        let opened = export.workers.run_for(self.whose(), move || {
            if is_store {
                return FileSource::of_object(Arc::new(object_path(&session, FileOp::Lookup, None, &path)?.open()?));
            }
            let start = session.start(FileOp::Lookup, None, &path)?;
            let opened = open_file(start.dir(), start.path, OFlags::RDONLY);
            let (fd, _) = opened.map_err(|errno| start.export.error(errno, start.name()))?;
            FileSource::new(Arc::new(start.open(fd, true, false)))
        });
        opened.unwrap_or_else(|| Err(FileError::because(Errno::IO, "the target failed; see its log")))
    }
}

/// The object at a path of a store, all of it if it is short; `None`: the path is not in a store.
fn find_object(session: &FileSession, path: &[u8]) -> Result<Option<Found>, FileError> {
    let export = session.beginning(FileOp::Lookup, None, path)?.export;
    if export.store.is_none() {
        return Ok(None);
    }
    let at = object_path(session, FileOp::Lookup, None, path)?;
    let first = at.tree()?.store.first(&at.path, SHORT_FILE_LEN_MAX as u32);
    let (meta, bytes) = first.map_err(|error| at.failed(&error))?;
    if meta.kind == Kind::Directory {
        return Err(FileError::new(Errno::ISDIR, &at.name));
    }
    if meta.len > SHORT_FILE_LEN_MAX as u64 {
        return Ok(Some(Found::Long));
    }
    export.functions.read(Some(bytes.len() as u64));
    Ok(Some(Found::Short { bytes, version: objects::version(&at.path, &meta) }))
}
