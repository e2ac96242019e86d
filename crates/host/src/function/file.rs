//! Files of exports: lookup, attributes, listing, reading, writing, and what changes names.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use diskside_io::Errno;
use diskside_io::buffer::Buffer;
use diskside_io::request::{AsyncIo, Outcome, Request, RequestFuture, Status, block_on};
use diskside_wire::file::{
    FileAttributes, FileFlags, FileHandle, FileKind, FileRequest, OpenedFile, REQUEST_HEADER_LEN,
};
use diskside_wire::function::{Endpoint, EndpointKind, FunctionKind, FunctionRequest, TRAILER_LEN};
use zerocopy::FromBytes as _;

use super::compute::Compute;
use super::error::FunctionError;
use super::listing::{ListBounds, gather, search};
use super::stream::{CallOutcome, FIRST_LEN_BYTES};
use crate::connection::Connection;
use crate::task::drive;

/// Bytes of a listing that are asked for at once.
const LISTING_LEN: u32 = 256 << 10;
/// Bytes of a pattern's matches that are asked for at once: the target looks for the place to continue each time.
const FOUND_LEN: u32 = 1 << 20;
/// Bytes of one read, and of one write: a request is at most 256 KiB long.
const READ_LEN_BYTES: usize = 1 << 20;
const WRITE_LEN_BYTES: usize = 192 << 10;
/// Parts of one request that are in flight at once.
const PARTS: usize = 8;
/// What a flush says once.
const AT_RISK: &str = "the target has forgotten the file since it was written, as after a restart: what was not flushed before \
                       may be lost, write it again";
/// Room for a trailer with its message, so that one Receive brings it with the result.
const TRAILER_ROOM_BYTES: u64 = TRAILER_LEN as u64 + 1024;

/// The exports of a target. Clones refer to the same connection.
#[derive(Clone, Debug)]
pub struct Files {
    compute: Compute,
}

/// What is known of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Differs when the content may differ; see [`FileInfo::recent`].
    pub version: u64,
    /// Length in bytes.
    pub len_bytes: u64,
    /// Kind of file.
    pub kind: FileKind,
    /// Permission bits.
    pub permissions: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// When the content changed last: seconds since 1970 and nanoseconds.
    pub modified: (i64, u32),
    /// Number of the file, and of its file system.
    pub inode: (u64, u64),
    /// Whether nothing in its export can be changed.
    pub read_only: bool,
    /// Changed so short a time ago that a further change might keep the version.
    pub recent: bool,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name: mostly UTF-8.
    pub name: Vec<u8>,
    /// Kind of file.
    pub kind: FileKind,
    /// The rest, if the file was still there.
    pub info: Option<FileInfo>,
}

/// A file that a pattern means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its path, from the export's name on: mostly UTF-8.
    pub path: Vec<u8>,
    /// Kind of file; a symbolic link only where it leads to nothing that can be reached.
    pub kind: FileKind,
    /// The rest, if it was asked for and the file was still there.
    pub info: Option<FileInfo>,
}

/// An export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedExport {
    /// Its name, with which paths start.
    pub name: String,
    /// Whether nothing in it can be changed.
    pub read_only: bool,
    /// The user and group that accesses run as.
    pub owner: (u32, u32),
}

type Answer = Result<CallOutcome, FunctionError>;

impl Files {
    /// The files of a controller's target.
    pub fn new(connection: &Connection) -> Result<Self, FunctionError> {
        Ok(Self { compute: Compute::new(connection)? })
    }

    /// The files of the target that runs these functions.
    #[must_use]
    pub fn of(compute: &Compute) -> Self {
        Self { compute: compute.clone() }
    }

    /// What runs functions over them.
    #[must_use]
    pub fn compute(&self) -> &Compute {
        &self.compute
    }

    /// Any operation. `result_len` is the most that its result may have. One that only looks something up is sent again when
    /// the connection is lost before its answer came, `retries_max` times.
    pub fn request(&self, request: &FileRequest<'_>, result_len: u64) -> RequestFuture<Answer> {
        let mut call = FunctionRequest::new(FunctionKind::File, 0);
        call.args = request.to_bytes();
        let first = (result_len + TRAILER_ROOM_BYTES).max(TRAILER_ROOM_BYTES);
        let mut repeats = if request.is_repeatable() { self.compute.connection().retries_max() } else { 0 };
        let compute = self.compute.clone();
        let mut stream = compute.stream_expecting(&call, Vec::new(), first);
        drive(async move {
            loop {
                let answer = match stream {
                    Ok(stream) => stream.collect(result_len.max(FIRST_LEN_BYTES.into())).await,
                    Err(error) => Err(error),
                };
                match answer {
                    Err(error) if error.is_loss() && repeats > 0 => repeats -= 1,
                    answer => return answer,
                }
                stream = compute.stream_expecting(&call, Vec::new(), first);
            }
        })
    }

    /// The exports; an error if there are more than a million.
    pub fn exports(&self) -> Result<Vec<ListedExport>, FunctionError> {
        gather(&self.target(), ListBounds::default(), |cursor| {
            let request = FileRequest::ListExports { cursor, len_max: LISTING_LEN };
            Ok(block_on(self.request(&request, LISTING_LEN.into()))?.result)
        })
    }

    /// The metadata of the file at `path`, which starts with an export's name. Follows symbolic links.
    pub fn stat(&self, path: &[u8]) -> Result<FileInfo, FunctionError> {
        block_on(self.info(path))
    }

    /// As [`stat`](Self::stat), without waiting.
    pub fn info(&self, path: &[u8]) -> RequestFuture<Result<FileInfo, FunctionError>> {
        let request = FileRequest::Stat { base: None, path, flags: FileFlags::NONE };
        let answer = self.request(&request, size_of::<FileAttributes>() as u64);
        drive(async move {
            let attributes = FileAttributes::read_from_bytes(&answer.await?.result).map_err(|_| short("attributes"))?;
            Ok(FileInfo::new(&attributes))
        })
    }

    /// The entries of the directory at `path`, in no order; an error if there are more than a million.
    pub fn list(&self, path: &[u8]) -> Result<Vec<Listed>, FunctionError> {
        let of = format!("{}: {}", self.target(), String::from_utf8_lossy(path));
        gather(&of, ListBounds::default(), |cursor| {
            let flags = FileFlags::ATTRIBUTES;
            let request = FileRequest::List { base: None, path, cursor, len_max: LISTING_LEN, flags };
            Ok(block_on(self.request(&request, LISTING_LEN.into()))?.result)
        })
    }

    /// The matches of a pattern: a path with `*`, `?`, `[…]` and `**`; in the order of the bytes of names. With
    /// [`RECURSIVE`](FileFlags::RECURSIVE), the files below a directory, too. An error if there are more than a
    /// million.
    pub fn find(&self, pattern: &[u8], flags: FileFlags) -> Result<Vec<Found>, FunctionError> {
        let of = format!("{}: {}", self.target(), String::from_utf8_lossy(pattern));
        search(&of, ListBounds::default(), |after| {
            let request = FileRequest::Find { dir: None, pattern, after, len_max: FOUND_LEN, flags };
            Ok(block_on(self.request(&request, FOUND_LEN.into()))?.result)
        })
    }

    fn target(&self) -> String {
        self.compute.connection().address().to_string()
    }

    /// Opens the file at `path`.
    pub fn open(&self, path: &[u8], flags: FileFlags) -> Result<RemoteFile, FunctionError> {
        block_on(self.lookup(path, flags))
    }

    /// As [`open`](Self::open), without waiting.
    pub fn lookup(&self, path: &[u8], flags: FileFlags) -> RequestFuture<Result<RemoteFile, FunctionError>> {
        self.opened(path, &FileRequest::Lookup { dir: None, path, flags })
    }

    /// Makes a file, or opens the one that is there, depending on `flags`.
    pub fn create(&self, path: &[u8], mode: u32, flags: FileFlags) -> Result<RemoteFile, FunctionError> {
        block_on(self.opened(path, &FileRequest::Create { dir: None, path, mode, flags }))
    }

    fn opened(&self, path: &[u8], request: &FileRequest<'_>) -> RequestFuture<Result<RemoteFile, FunctionError>> {
        let answer = self.request(request, size_of::<OpenedFile>() as u64);
        let (files, path) = (self.clone(), path.to_vec());
        drive(async move {
            let opened = OpenedFile::read_from_bytes(&answer.await?.result).map_err(|_| short("opened file"))?;
            let info = Mutex::new(FileInfo::new(&opened.attributes));
            let (unsynced, at_risk, refusal) = Default::default();
            let opened = Opened { files, handle: opened.handle(), path, info, unsynced, at_risk, refusal };
            Ok(RemoteFile { inner: Arc::new(opened) })
        })
    }

    /// Makes a file that has no name, and nobody else sees, until it is [published](RemoteFile::publish) as `path`. Closed
    /// before, or when the connection is lost, it is gone.
    pub fn create_unnamed(&self, path: &[u8], mode: u32) -> Result<RemoteFile, FunctionError> {
        self.create(path, mode, FileFlags::READ_WRITE | FileFlags::UNNAMED)
    }

    /// Gives a file another name in the same export; with `replace` what had that name is gone.
    pub fn rename(&self, from: &[u8], to: &[u8], replace: bool) -> Result<(), FunctionError> {
        let flags = if replace { FileFlags::NONE } else { FileFlags::NO_REPLACE };
        self.run(&FileRequest::Rename { dir: None, from, to, flags })
    }

    /// Removes a file's name.
    pub fn unlink(&self, path: &[u8]) -> Result<(), FunctionError> {
        self.run(&FileRequest::Unlink { dir: None, path })
    }

    /// Makes a directory.
    pub fn make_directory(&self, path: &[u8], mode: u32) -> Result<(), FunctionError> {
        self.run(&FileRequest::MakeDirectory { dir: None, path, mode })
    }

    /// Removes an empty directory.
    pub fn remove_directory(&self, path: &[u8]) -> Result<(), FunctionError> {
        self.run(&FileRequest::RemoveDirectory { dir: None, path })
    }

    /// Has the target drop what its page cache holds of the file at `path`, after it has written out what is dirty.
    pub fn drop_cached(&self, path: &[u8]) -> Result<(), FunctionError> {
        let file = self.open(path, FileFlags::READ)?;
        self.run(&FileRequest::Sync { file: file.inner.handle, flags: FileFlags::DATA_ONLY | FileFlags::DROP_CACHED })
    }

    fn run(&self, request: &FileRequest<'_>) -> Result<(), FunctionError> {
        block_on(self.request(request, 0)).map(drop)
    }
}

impl FileInfo {
    pub(super) fn new(attributes: &FileAttributes) -> Self {
        Self {
            version: attributes.version.get(),
            len_bytes: attributes.size.get(),
            kind: attributes.kind(),
            permissions: attributes.mode.get() & 0o7777,
            owner: (attributes.uid.get(), attributes.gid.get()),
            modified: (attributes.modified.seconds.get(), attributes.modified.nanoseconds.get()),
            inode: (attributes.inode.get(), attributes.device.get()),
            read_only: attributes.has(FileAttributes::READ_ONLY),
            recent: attributes.has(FileAttributes::RECENT),
        }
    }
}

/// An open file of an export. Clones refer to the same handle, which the last one closes.
///
/// It takes reads, writes and flushes like a local file ([`AsyncIo`]).
#[derive(Clone, Debug)]
pub struct RemoteFile {
    inner: Arc<Opened>,
}

#[derive(Debug)]
struct Opened {
    files: Files,
    handle: FileHandle,
    path: Vec<u8>,
    info: Mutex<FileInfo>,
    /// Whether something was written that no flush has made durable.
    unsynced: AtomicBool,
    /// Whether something was written so through a handle that the target has forgotten since.
    at_risk: AtomicBool,
    /// Why the target refused to write more, in its words.
    refusal: Mutex<Option<String>>,
}

impl RemoteFile {
    /// Its path, from the export's name on.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        &self.inner.path
    }

    /// What was known of it last.
    #[must_use]
    pub fn info(&self) -> FileInfo {
        *self.inner.info.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces a handle that the target has forgotten. Bytes that were written through that and not flushed may be
    /// gone, and a flush through this one cannot tell: so its next flush fails.
    pub fn succeeds(&self, before: &Self) {
        let [unsynced, at_risk] = [&before.inner.unsynced, &before.inner.at_risk].map(|it| it.load(Ordering::SeqCst));
        self.inner.at_risk.store(unsynced || at_risk, Ordering::SeqCst);
    }

    /// Whether something was written through this handle, or one before it, that no flush has made durable.
    #[must_use]
    pub fn owes_flush(&self) -> bool {
        self.inner.unsynced.load(Ordering::SeqCst) || self.inner.at_risk.load(Ordering::SeqCst)
    }

    /// Takes the place of a handle through which so much was owed before a write that the target did not know.
    pub fn succeeds_owing(&self, owed: bool) {
        self.inner.at_risk.store(owed, Ordering::SeqCst);
    }

    /// Why the target refused the last write that it refused, in its words: the outcome of a write has but its status.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        self.inner.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A function wrote into the file at the target, and that is not durable yet.
    pub fn note_unsynced(&self) {
        self.inner.unsynced.store(true, Ordering::SeqCst);
    }

    /// Asks for its attributes again.
    pub fn refresh(&self) -> Result<FileInfo, FunctionError> {
        block_on(self.stat())
    }

    /// As [`refresh`](Self::refresh), without waiting.
    pub fn stat(&self) -> RequestFuture<Result<FileInfo, FunctionError>> {
        let request = FileRequest::Stat { base: Some(self.inner.handle), path: b"", flags: FileFlags::NONE };
        let answer = self.inner.files.request(&request, size_of::<FileAttributes>() as u64);
        let this = self.clone();
        drive(async move {
            let answer = answer.await?;
            let attributes = FileAttributes::read_from_bytes(&answer.result).map_err(|_| short("attributes"))?;
            let info = FileInfo::new(&attributes);
            *this.inner.info.lock().unwrap_or_else(PoisonError::into_inner) = info;
            Ok(info)
        })
    }

    /// The exports that it belongs to.
    #[must_use]
    pub fn files(&self) -> &Files {
        &self.inner.files
    }

    /// What names it in the sources and sinks of functions.
    #[must_use]
    pub fn endpoint(&self, offset: u64, len: u64) -> Endpoint {
        let FileHandle { id, generation } = self.inner.handle;
        Endpoint { generation, ..Endpoint::new(EndpointKind::File(id), offset, len) }
    }

    /// Up to `len` bytes, fewer at its end or where the target bounds one result. The trailer's generation is the
    /// version that was read.
    pub fn read_once(&self, offset: u64, len: u32) -> RequestFuture<Answer> {
        let request = FileRequest::Read { file: self.inner.handle, offset, len };
        self.inner.files.request(&request, len.into())
    }

    /// Fills a buffer, as a request of [`AsyncIo`] does, and tells the version that all of its bytes are of; `None`: the file changed
    /// meanwhile.
    pub async fn read_of_version(&self, offset: u64, buffer: Buffer) -> (Outcome, Option<u64>) {
        let mut versions = Versions::default();
        let outcome = self.read_noting(offset, buffer, &mut versions).await;
        (outcome, versions.only)
    }

    /// Writes at `offset`, or at the end with [`FileFlags::APPEND`]; at most 192 KiB at once.
    pub fn write_once(&self, offset: u64, data: &[u8], flags: FileFlags) -> RequestFuture<Answer> {
        let request = FileRequest::Write { file: self.inner.handle, offset, data, flags };
        self.inner.files.request(&request, 0)
    }

    /// Makes it `len` bytes long.
    pub fn truncate(&self, len: u64) -> Result<(), FunctionError> {
        self.inner.files.run(&FileRequest::Truncate { file: self.inner.handle, len })
    }

    /// Makes what was written survive power loss.
    pub fn sync(&self) -> Result<(), FunctionError> {
        self.inner.files.run(&FileRequest::Sync { file: self.inner.handle, flags: FileFlags::NONE })
    }

    /// Makes a file that was created without a name survive power loss, and gives it its name. What had that name is gone.
    pub fn publish(&self) -> Result<(), FunctionError> {
        self.inner.files.run(&FileRequest::Publish { file: self.inner.handle })
    }

    async fn read(self, offset: u64, buffer: Buffer) -> Outcome {
        self.read_noting(offset, buffer, &mut Versions::default()).await
    }

    async fn read_noting(&self, offset: u64, mut buffer: Buffer, versions: &mut Versions) -> Outcome {
        let len = buffer.len();
        let mut parts = VecDeque::new();
        let mut asked = 0;
        let mut done = 0;
        while done < len {
            while asked < len && parts.len() < PARTS {
                let part = READ_LEN_BYTES.min(len - asked);
                parts.push_back((part, self.read_once(offset + asked as u64, part as u32)));
                asked += part;
            }
            let Some((part, answer)) = parts.pop_front() else { break };
            match answer.await {
                Ok(CallOutcome { result, trailer, .. }) if result.len() <= part => {
                    versions.note(trailer.generation);
                    buffer[done..done + result.len()].copy_from_slice(&result);
                    done += result.len();
                    if result.is_empty() {
                        break;
                    }
                    if result.len() < part {
                        // The end, or as much as the target gives at once: continue behind it.
                        parts.clear();
                        asked = done;
                    }
                }
                Ok(_) => return failed(&short("bytes of a read"), done, Some(buffer)),
                Err(error) => return failed(&error, done, Some(buffer)),
            }
        }
        Outcome { status: Status::Success, transferred_bytes: done as u64, buffer: Some(buffer) }
    }

    async fn write(self, offset: u64, buffer: Buffer, durable: bool) -> Outcome {
        // Before, because also a write that fails may leave some; and after, because a flush in between knows nothing of it.
        let note = || {
            if !durable {
                self.note_unsynced();
            }
        };
        note();
        let outcome = self.write_parts(offset, buffer, durable).await;
        note();
        outcome
    }

    async fn write_parts(&self, offset: u64, buffer: Buffer, durable: bool) -> Outcome {
        let flags = if durable { FileFlags::DURABLE } else { FileFlags::NONE };
        let mut parts = VecDeque::new();
        let mut asked = 0;
        let mut done = 0;
        while done < buffer.len() {
            while asked < buffer.len() && parts.len() < PARTS {
                let end = buffer.len().min(asked + WRITE_LEN_BYTES);
                parts.push_back((end - asked, self.write_once(offset + asked as u64, &buffer[asked..end], flags)));
                asked = end;
            }
            let Some((part, answer)) = parts.pop_front() else { break };
            match answer.await {
                Ok(CallOutcome { trailer, .. }) => {
                    let written = usize::try_from(trailer.returned).unwrap_or(0).min(part);
                    done += written;
                    if written < part {
                        let status = Status::from_errno(Errno::NOSPC);
                        return Outcome { status, transferred_bytes: done as u64, buffer: Some(buffer) };
                    }
                }
                Err(error) => {
                    if error.errno().is_some() {
                        *self.inner.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
                    }
                    return failed(&error, done, Some(buffer));
                }
            }
        }
        Outcome { status: Status::Success, transferred_bytes: done as u64, buffer: Some(buffer) }
    }

    async fn flush(self) -> Outcome {
        if self.inner.at_risk.swap(false, Ordering::SeqCst) {
            return Outcome::failed(Status::lost(AT_RISK), None);
        }
        let unsynced = self.inner.unsynced.swap(false, Ordering::SeqCst);
        let request = FileRequest::Sync { file: self.inner.handle, flags: FileFlags::DATA_ONLY };
        match self.inner.files.request(&request, 0).await {
            Ok(_) => Outcome { status: Status::Success, transferred_bytes: 0, buffer: None },
            Err(error) => {
                self.inner.unsynced.fetch_or(unsynced, Ordering::SeqCst);
                failed(&error, 0, None)
            }
        }
    }
}

impl AsyncIo for RemoteFile {
    fn submit(&self, request: Request) -> RequestFuture {
        let this = self.clone();
        match request {
            Request::Read { offset, buffer } => drive(this.read(offset, buffer)),
            Request::Write { offset, buffer, durable } => drive(this.write(offset, buffer, durable)),
            Request::Flush => drive(this.flush()),
            Request::Deallocate { .. } | Request::WriteZeroes { .. } => drive(async {
                Outcome::failed(Status::refused("a file of an export takes reads, writes and flushes"), None)
            }),
        }
    }

    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.refresh()?.len_bytes)
    }

    fn alignment_bytes(&self) -> u32 {
        1
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        drop(self.files.request(&FileRequest::Close { file: self.handle }, 0));
    }
}

/// The versions of a file that parts of a read were of.
#[derive(Default)]
struct Versions {
    is_begun: bool,
    /// The one that all of them were of.
    only: Option<u64>,
}

impl Versions {
    fn note(&mut self, version: u64) {
        self.only = match self.only {
            Some(only) if only == version => Some(only),
            None if !self.is_begun => Some(version),
            _ => None,
        };
        self.is_begun = true;
    }
}

fn failed(error: &FunctionError, done: usize, buffer: Option<Buffer>) -> Outcome {
    Outcome { status: error.status(), transferred_bytes: done as u64, buffer }
}

fn short(what: &'static str) -> FunctionError {
    FunctionError::Malformed { what, problem: "it does not have the length that it must".into() }
}

const _: () = assert!(WRITE_LEN_BYTES + REQUEST_HEADER_LEN + 64 < diskside_wire::function::REQUEST_LEN_MAX);
