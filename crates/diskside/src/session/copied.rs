//! A file of which several servers hold copies.

use super::Session;
use super::copies::{CopySet, OneCopy};
use super::error::SessionError;
use super::file::{File, FileInner};
use super::one_version::COPY_DIFFERS;
use super::place::Place;
use crate::location::{ExportUrl, Location};
use diskside_host::{drive, own_thread};
use diskside_io::buffer::Buffer;
use diskside_io::request::{AsyncIo, Cause, Outcome, Request, RequestFuture, Status, run_here};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How a file of a URL with several servers is opened at any of them.
#[derive(Debug)]
pub(super) struct CopiedFile {
    pub(super) session: Session,
    pub(super) set: Arc<CopySet>,
    pub(super) location: Location,
    url: ExportUrl,
    /// It is opened when it is used.
    late: bool,
    /// At the server that was used last.
    now: Mutex<Option<Arc<FileInner>>>,
    /// The copy that bytes were read from by position.
    read: Mutex<Option<Seen>>,
}

/// The properties by which two copies are the same file at the same time: nothing more can be compared over two
/// machines.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    server: String,
    len_bytes: u64,
    modified: (i64, u32),
}

impl CopiedFile {
    pub(super) fn new(session: &Session, url: &ExportUrl, late: bool) -> Self {
        let (session, set) = (session.clone(), session.inner.copies.of(url));
        let location = Location::Export(url.clone());
        Self { session, set, location, url: url.clone(), late, now: Mutex::default(), read: Mutex::default() }
    }

    /// The file at a server. What is open there stays so.
    pub(super) fn open_at(self: &Arc<Self>, copy: &OneCopy) -> Result<File, SessionError> {
        if let Some(known) = self.known_at(copy) {
            return Ok(known);
        }
        let url = ExportUrl { path: self.url.path.clone(), ..copy.server.clone() };
        let opened = File::of_copy(&self.session, &copy.link, &url, self.late)?;
        let inner = Arc::clone(self.lock().insert(opened.inner));
        Ok(File { inner, copied: Some(Arc::clone(self)) })
    }

    /// The file at a server, if that is the one that was used last.
    pub(super) fn known_at(self: &Arc<Self>, copy: &OneCopy) -> Option<File> {
        self.last().filter(|file| is_over(&file.inner, copy))
    }

    /// It at the server that was used last.
    pub(super) fn last(self: &Arc<Self>) -> Option<File> {
        let inner = self.lock().clone()?;
        Some(File { inner, copied: Some(Arc::clone(self)) })
    }

    /// Sees to it that reads by position continue only in a copy that looks the same.
    pub(super) fn check_read(&self, inner: &FileInner) -> Result<(), SessionError> {
        let Place::Export(remote) = &inner.place else { return Ok(()) };
        let info = remote.file().map_err(|error| SessionError::device(&inner.name, error))?.info();
        let server = inner.name.clone();
        let now = Seen { server, len_bytes: info.len_bytes, modified: info.modified };
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let looks_the_same = |before: &Seen| {
            (before.len_bytes, before.modified) == (now.len_bytes, now.modified) || before.server == now.server
        };
        match read.as_ref().filter(|before| !looks_the_same(before)) {
            None => {
                *read = Some(now);
                Ok(())
            }
            Some(before) => Err(SessionError::Copies { name: now.server, read: before.server.clone() }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<FileInner>>> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_over(inner: &FileInner, copy: &OneCopy) -> bool {
    inner.place.link().is_some_and(|link| Arc::ptr_eq(link, &copy.link))
}

/// A version of a file at one server.
#[derive(Clone)]
pub(super) struct VersionAt {
    pub(super) io: Arc<dyn AsyncIo>,
    pub(super) inner: Arc<FileInner>,
}

/// A version of a file, read by position at one of several servers, and at another one when that vanishes.
#[derive(Clone)]
pub(super) struct CopiedVersion {
    file: File,
    len_bytes: u64,
    now: Arc<Mutex<VersionAt>>,
}

impl CopiedVersion {
    pub(super) fn new(file: File, now: VersionAt, len_bytes: u64) -> Self {
        Self { file, len_bytes, now: Arc::new(Mutex::new(now)) }
    }

    async fn read(self, offset: u64, buffer: Buffer) -> Outcome {
        let VersionAt { io, inner } = self.lock().clone();
        let len = buffer.len();
        let outcome = io.submit(Request::Read { offset, buffer }).await;
        if !is_lost(&outcome, &inner) {
            return outcome;
        }
        // Finding another server may take long.
        own_thread().await;
        self.read_elsewhere(offset, len, outcome)
    }

    fn read_elsewhere(&self, offset: u64, len: usize, mut outcome: Outcome) -> Outcome {
        let Some(copied) = &self.file.copied else { return outcome };
        for _ in 0..READS_MAX {
            let buffer = outcome.buffer.take().unwrap_or_else(|| Buffer::zeroed(len));
            let VersionAt { io, inner } = match self.file.version_at(copied) {
                Ok((at, _)) => {
                    *self.lock() = at.clone();
                    at
                }
                Err(SessionError::Copies { .. }) => {
                    return Outcome::failed(Status::refused(COPY_DIFFERS), Some(buffer));
                }
                Err(_) => return Outcome::failed(Status::lost("none of its servers answers"), Some(buffer)),
            };
            outcome = run_here(io.submit(Request::Read { offset, buffer }));
            if !is_lost(&outcome, &inner) {
                break;
            }
        }
        outcome
    }

    fn lock(&self) -> MutexGuard<'_, VersionAt> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many servers one read is tried at.
const READS_MAX: u32 = 4;

fn is_lost(outcome: &Outcome, inner: &FileInner) -> bool {
    let is_loss = matches!(outcome.status.cause(), Some(Cause::Lost(_)));
    is_loss || outcome.status.cause().is_some() && inner.has_lost_link()
}

impl AsyncIo for CopiedVersion {
    fn submit(&self, request: Request) -> RequestFuture {
        let this = self.clone();
        match request {
            Request::Read { offset, buffer } => drive(this.read(offset, buffer)),
            other => {
                let why = Status::refused("copies of a file are read only");
                drive(async move { Outcome::failed(why, other.into_buffer()) })
            }
        }
    }

    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.len_bytes)
    }

    fn alignment_bytes(&self) -> u32 {
        1
    }
}
