//! The handles of one association, and the way of a request to the export's threads.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use diskside_rights::{Access, HostQuota, HostRights, NoPlace};
use diskside_sbpf::machine::CancelToken;
use diskside_wire::file::{self, FileFlags, FileHandle, FileOp, FileRequest, MalformedRequest};
use rustix::io::Errno;
use slab::Slab;

use super::attributes::status_now;
use super::open_file::{OpenFile, Start};
use super::{objects, operations};
use crate::export::Export;
use crate::exports::Exports;
use crate::objects::OpenObject;
use crate::reply::{FileError, FileReply};
use crate::used::UsedExport;
use crate::workers::Whose;
use diskside_volume::health::is_of_disk;
use diskside_volume::stats::AccessCounters;

/// Handles that one session may have open.
pub const HANDLES_MAX: usize = 1024;

/// The files that one association of a host has open. Clones are the same session; when the last one is dropped, its
/// handles are closed.
#[derive(Clone, Debug)]
pub struct FileSession {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    exports: Arc<Exports>,
    rights: HostRights,
    quota: Arc<HostQuota>,
    /// Those of its host.
    operations: Arc<AccessCounters>,
    table: Mutex<Table>,
    /// The exports that its host was told of, in the order of their cursors.
    seen: Mutex<Vec<String>>,
}

#[derive(Debug)]
struct Table {
    open: Slab<(u64, Opened)>,
    /// Given to the next handle. It starts anywhere, so that a handle of an earlier association is not one of this.
    generation: u64,
}

/// Where a path begins.
pub(super) struct Beginning<'a> {
    pub(super) export: Arc<Export>,
    /// The object of the handle that it begins with.
    pub(super) opened: Option<Opened>,
    /// The rest.
    pub(super) path: &'a [u8],
}

/// The object that a handle refers to.
#[derive(Clone, Debug)]
pub(super) enum Opened {
    File(Arc<OpenFile>),
    Object(Arc<OpenObject>),
}

impl FileSession {
    pub(super) fn new(exports: Arc<Exports>, rights: HostRights, quota: Arc<HostQuota>) -> Self {
        let table = Table { open: Slab::new(), generation: RandomState::new().hash_one(0) };
        let operations = exports.by_host.of(rights.nqn());
        let (table, seen) = (Mutex::new(table), Mutex::default());
        Self { inner: Arc::new(Inner { exports, rights, quota, operations, table, seen }) }
    }

    /// With whom other hosts take turns on the threads of an export.
    pub(super) fn whose(&self) -> Whose {
        Whose::Host(Arc::as_ptr(&self.inner.operations).addr())
    }

    /// Queues a request. `reply` is called once, on a thread of the export or on this one; its result is at most
    /// `result_len_max` bytes. Never waits for a disk.
    ///
    /// # Errors
    /// The bytes are not a request; `reply` is not called.
    pub fn submit(
        &self,
        request: impl AsRef<[u8]> + Send + 'static,
        result_len_max: usize,
        reply: impl FnOnce(FileReply) + Send + 'static,
    ) -> Result<(), MalformedRequest> {
        self.submit_unless(&CancelToken::new(), request, result_len_max, drop, reply)
    }

    /// The same; what is cancelled before it begins is not done, and a search that has begun ends. `uses` is told of the export before
    /// the host's right to it is looked at for the last time; of Close it is not, which needs no right.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn submit_unless(
        &self,
        cancel: &CancelToken,
        request: impl AsRef<[u8]> + Send + 'static,
        result_len_max: usize,
        uses: impl FnOnce(UsedExport),
        reply: impl FnOnce(FileReply) + Send + 'static,
    ) -> Result<(), MalformedRequest> {
        let parsed = FileRequest::parse(request.as_ref())?;
        let export = match self.export_of(&parsed) {
            Ok(Some(export)) => export,
            Ok(None) => {
                let rights = self.inner.rights.now();
                let mut seen = self.inner.seen.lock().unwrap_or_else(PoisonError::into_inner);
                let listed = operations::list_exports(&self.inner.exports, &rights, &mut seen, &parsed, result_len_max);
                drop(seen);
                reply(listed);
                return Ok(());
            }
            Err(error) => {
                reply(error.into());
                return Ok(());
            }
        };
        if parsed.op() != FileOp::Close {
            uses(UsedExport::new(&export, Access::Read));
        }
        let file = self.file_of(&parsed);
        let mut guard = ReplyGuard(Some(reply));
        let (session, cancel) = (self.clone(), cancel.clone());
        let counted = Arc::clone(&export);
        export.workers.submit_for(self.whose(), file, move || {
            if cancel.is_cancelled() {
                return guard.send(FileError::because(Errno::CANCELED, "cancelled before it began").into());
            }
            let done = match FileRequest::parse(request.as_ref()) {
                Ok(request) => {
                    let began = Instant::now();
                    let execute = if counted.store.is_some() { objects::execute } else { operations::execute };
                    let done = execute(&session, &request, result_len_max, &cancel).unwrap_or_else(Into::into);
                    let took = began.elapsed();
                    for counters in [&counted.operations, &*session.inner.operations] {
                        counters.took(took);
                        count(counters, &request, &done);
                    }
                    if let Err(error) = &done.returned {
                        session.tell_of_failure(&counted, &request, error);
                    }
                    counted.count_if_due();
                    done
                }
                Err(malformed) => FileError::because(Errno::INVAL, malformed.to_string()).into(),
            };
            guard.send(done);
        });
        Ok(())
    }

    /// Counts a read of so many bytes; `None`: it failed.
    pub(super) fn count_read(&self, export: &Export, took: Duration, bytes: Option<u64>) {
        for counters in [&export.operations, &*self.inner.operations] {
            counters.took(took);
            counters.read(bytes);
        }
    }

    /// Has a failure of the disk in the log.
    fn tell_of_failure(&self, export: &Export, request: &FileRequest<'_>, error: &FileError) {
        use FileRequest as R;
        // A search that takes too long is not the disk's.
        if !is_of_disk(error.errno) || matches!(request, R::Find { .. }) && error.errno == Errno::TIMEDOUT {
            return;
        }
        let (handle, path) = subject(request);
        let offset = match request {
            R::Read { offset, .. } => Some(*offset),
            R::Write { offset, flags, .. } if !flags.contains(FileFlags::APPEND) => Some(*offset),
            _ => None,
        };
        let opened = handle.and_then(|handle| self.find(request.op(), handle).ok());
        let parts = opened.iter().map(|opened| opened.name().to_owned());
        let parts = parts.chain((!path.is_empty()).then(|| path.escape_ascii().to_string()));
        let name = parts.collect::<Vec<_>>().join("/");
        export.failed(&request.op().to_string(), &name, offset, error.errno);
    }

    /// The export of a handle, to be used so. `None`: the handle is none, or not any more.
    pub fn used(&self, handle: FileHandle, access: Access) -> Option<UsedExport> {
        let opened = self.find(FileOp::Read, handle).ok()?;
        Some(UsedExport::new(opened.export(), access))
    }

    /// The export that a path begins with, to be read.
    ///
    /// # Errors
    /// There is none of this name for the host.
    pub fn used_at(&self, path: &[u8]) -> Result<UsedExport, FileError> {
        let export = self.beginning(FileOp::Lookup, None, path)?.export;
        Ok(UsedExport::new(&export, Access::Read))
    }

    /// The export that a request is about; `None` for the list of exports.
    fn export_of(&self, request: &FileRequest<'_>) -> Result<Option<Arc<Export>>, FileError> {
        if let FileRequest::ListExports { .. } = request {
            return Ok(None);
        }
        let (dir, path) = subject(request);
        self.beginning(request.op(), dir, path).map(|begins| Some(begins.export))
    }

    /// The number of the file that a request reads or writes.
    fn file_of(&self, request: &FileRequest<'_>) -> Option<u64> {
        let (FileRequest::Read { file, .. }
        | FileRequest::Write { file, .. }
        | FileRequest::Truncate { file, .. }
        | FileRequest::Sync { file, .. }) = *request
        else {
            return None;
        };
        let Opened::File(file) = self.find(request.op(), file).ok()? else { return None };
        status_now(file.fd.as_fd()).map(|status| status.stx_ino)
    }

    /// Where `path` begins: at the object of a handle, or at the export that is its first name.
    pub(super) fn beginning<'a>(
        &self,
        op: FileOp,
        dir: Option<FileHandle>,
        path: &'a [u8],
    ) -> Result<Beginning<'a>, FileError> {
        if let Some(handle) = dir {
            let opened = self.get(op, handle)?;
            return Ok(Beginning { export: Arc::clone(opened.export()), opened: Some(opened), path });
        }
        let (name, path) = match path.iter().position(|&byte| byte == b'/') {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (path, &[][..]),
        };
        let export = self.inner.exports.find(name, &self.inner.rights.now()).ok_or_else(|| {
            if self.inner.exports.has(name) {
                self.inner.quota.deny(format_args!("to use export {}", name.escape_ascii()));
            }
            FileError::because(Errno::NOENT, format!("{op}: there is no export `{}`", name.escape_ascii()))
        })?;
        Ok(Beginning { export, opened: None, path })
    }

    /// Where `path` starts in a directory: from a handle's, or from that of the export which is its first name.
    pub(super) fn start<'a>(
        &self,
        op: FileOp,
        dir: Option<FileHandle>,
        path: &'a [u8],
    ) -> Result<Start<'a>, FileError> {
        let Beginning { export, opened, path } = self.beginning(op, dir, path)?;
        let dir = opened.map(|opened| opened.file(op)).transpose()?;
        let quota = Arc::clone(&self.inner.quota);
        Ok(Start { read_only: self.is_read_only(&export), export, dir, path, quota })
    }

    /// Whether the host may change nothing in an export: as it is served, or by its rights.
    pub(super) fn is_read_only(&self, export: &Export) -> bool {
        export.read_only || self.inner.rights.export(&export.name) < Access::Write
    }

    /// The object that a handle refers to. The host may have lost the right to it, or to change it, since it was opened.
    pub(super) fn get(&self, op: FileOp, handle: FileHandle) -> Result<Opened, FileError> {
        let file = self.find(op, handle)?;
        let export = file.export();
        let access = self.inner.rights.export(&export.name);
        match op {
            // It can always close what it has open.
            FileOp::Close => Ok(file),
            _ if export.withdrawn.load(Ordering::Acquire) => Err(stale(op, handle)),
            _ if access == Access::None => {
                self.inner.quota.deny(format_args!("to use export {}", export.name));
                Err(stale(op, handle))
            }
            FileOp::Write | FileOp::Truncate | FileOp::Publish if access < Access::Write => {
                self.inner.quota.deny(format_args!("to change export {}", export.name));
                let message = format!("{op} {}: this host may not change the export any more", file.name());
                Err(FileError::because(Errno::ROFS, message))
            }
            _ => Ok(file),
        }
    }

    /// The same of a file of a directory.
    pub(super) fn file(&self, op: FileOp, handle: FileHandle) -> Result<Arc<OpenFile>, FileError> {
        self.get(op, handle)?.file(op)
    }

    fn find(&self, op: FileOp, handle: FileHandle) -> Result<Opened, FileError> {
        let table = self.table();
        match table.open.get(key(handle)) {
            Some((generation, file)) if *generation == handle.generation => Ok(file.clone()),
            _ => Err(stale(op, handle)),
        }
    }

    /// Gives a handle to an open file.
    pub(super) fn insert(&self, op: FileOp, file: impl Into<Opened>) -> Result<FileHandle, FileError> {
        let mut table = self.table();
        if table.open.len() >= HANDLES_MAX {
            let message = format!("{op}: {HANDLES_MAX} handles are open, which is the limit; close some");
            return Err(FileError::because(Errno::MFILE, message));
        }
        self.inner.exports.handles.take(self.inner.quota.open_files()).map_err(|no_place| {
            let why = match no_place {
                NoPlace::AllTaken { max } => format!("the target has {max} files open for all hosts, its limit"),
                NoPlace::ForOthers { max } => {
                    format!("the target keeps the last eighth of its {max} open files for hosts with fewer; close some")
                }
            };
            FileError::because(Errno::NFILE, format!("{op}: {why}"))
        })?;
        let generation = table.generation;
        table.generation = generation.wrapping_add(1);
        let id = table.open.insert((generation, file.into())) as u32 + 1;
        Ok(FileHandle { id, generation })
    }

    /// Makes a handle one of another file. A handle that was closed meanwhile stays closed.
    pub(super) fn replace(&self, handle: FileHandle, file: OpenFile) {
        if let Some((generation, open)) = self.table().open.get_mut(key(handle))
            && *generation == handle.generation
        {
            *open = file.into();
        }
    }

    pub(super) fn remove(&self, op: FileOp, handle: FileHandle) -> Result<Opened, FileError> {
        let file = self.find(op, handle)?;
        let mut table = self.table();
        match table.open.get(key(handle)) {
            Some((generation, _)) if *generation == handle.generation => {
                table.open.remove(key(handle));
                self.inner.exports.handles.give_back(self.inner.quota.open_files(), 1);
                Ok(file)
            }
            _ => Err(stale(op, handle)),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.inner.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Opened {
    pub(super) fn export(&self) -> &Arc<Export> {
        match self {
            Self::File(file) => &file.export,
            Self::Object(object) => &object.export,
        }
    }

    /// How messages call it.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::File(file) => &file.name,
            Self::Object(object) => &object.name,
        }
    }

    /// The file of a directory, for what objects of a store do not do.
    fn file(self, op: FileOp) -> Result<Arc<OpenFile>, FileError> {
        match self {
            Self::File(file) => Ok(file),
            Self::Object(object) => Err(objects::cannot(op, &object.name)),
        }
    }
}

impl From<OpenFile> for Opened {
    fn from(file: OpenFile) -> Self {
        Self::File(Arc::new(file))
    }
}

impl From<OpenObject> for Opened {
    fn from(object: OpenObject) -> Self {
        Self::Object(Arc::new(object))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let table = self.table.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.exports.handles.give_back(self.quota.open_files(), table.open.len() as u64);
    }
}

/// The handle and the path that a request is about.
fn subject<'a>(request: &FileRequest<'a>) -> (Option<FileHandle>, &'a [u8]) {
    use FileRequest as R;
    match *request {
        R::ListExports { .. } => (None, b""),
        R::Lookup { dir, path, .. }
        | R::Create { dir, path, .. }
        | R::Unlink { dir, path }
        | R::MakeDirectory { dir, path, .. }
        | R::RemoveDirectory { dir, path }
        | R::Rename { dir, from: path, .. }
        | R::Stat { base: dir, path, .. }
        | R::List { base: dir, path, .. }
        | R::Find { dir, pattern: path, .. } => (dir, path),
        R::Read { file, .. }
        | R::Write { file, .. }
        | R::Truncate { file, .. }
        | R::Sync { file, .. }
        | R::Publish { file }
        | R::Close { file } => (Some(file), b""),
    }
}

fn key(handle: FileHandle) -> usize {
    (handle.id as usize).wrapping_sub(1)
}

fn count(counters: &AccessCounters, request: &FileRequest<'_>, done: &FileReply) {
    let failed = done.returned.is_err();
    match request {
        FileRequest::Read { .. } => counters.read((!failed).then_some(done.result.len() as u64)),
        FileRequest::Write { .. } => counters.wrote(*done.returned.as_ref().unwrap_or(&0), failed),
        _ => counters.other(failed),
    }
}

fn stale(op: FileOp, handle: FileHandle) -> FileError {
    let message = format!("{op}: handle {} is not open (any more); look the file up again", handle.id);
    FileError::because(Errno::STALE, message)
}

/// Answers also where the job that should panicked.
struct ReplyGuard<F: FnOnce(FileReply)>(Option<F>);

impl<F: FnOnce(FileReply)> ReplyGuard<F> {
    fn send(&mut self, done: FileReply) {
        if let Some(reply) = self.0.take() {
            reply(done);
        }
    }
}

impl<F: FnOnce(FileReply)> Drop for ReplyGuard<F> {
    fn drop(&mut self) {
        self.send(FileError::because(Errno::IO, "the target failed; see its log").into());
    }
}

// The limit fits the wire's numbers.
const _: () = assert!(HANDLES_MAX < u32::MAX as usize && file::PATH_LEN_MAX <= u16::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ExportSpec;
    use diskside_wire::file::FileFlags;
    use std::sync::mpsc;

    fn ask(session: &FileSession, request: FileRequest<'_>) -> FileReply {
        let (sender, receiver) = mpsc::channel();
        session.submit(request.to_bytes(), 4096, move |reply| sender.send(reply).unwrap()).unwrap();
        receiver.recv().unwrap()
    }

    #[test]
    fn other_exports_are_served_without_a_new_session_and_what_is_open_in_those_that_went_is_stale() {
        let dir = tempfile::tempdir().unwrap();
        let spec = |name: &str| ExportSpec::new(name, dir.path());
        let exports = Exports::open(&[spec("kept"), spec("gone")]).unwrap();
        let session = exports.session();
        let lookup = |path| ask(&session, FileRequest::Lookup { dir: None, path, flags: FileFlags::READ }).returned;
        assert!(lookup(b"kept").is_ok() && lookup(b"gone").is_ok());
        let handle =
            |at: usize| FileHandle { id: at as u32 + 1, generation: session.inner.table.lock().unwrap().open[at].0 };
        let stat = |at| {
            ask(&session, FileRequest::Stat { base: Some(handle(at)), path: b"", flags: FileFlags::NONE }).returned
        };
        assert!(stat(0).is_ok() && stat(1).is_ok());
        let wrong = exports.prepare(&[spec("kept"), ExportSpec::new("new", dir.path().join("missing"))]);
        assert!(wrong.is_err() && lookup(b"gone").is_ok(), "what cannot be opened changes nothing");
        exports.replace(exports.prepare(&[spec("new"), spec("kept")]).unwrap());
        assert_eq!(exports.names(), ["new", "kept"]);
        assert!(lookup(b"new").is_ok());
        assert_eq!(lookup(b"gone").unwrap_err().errno, Errno::NOENT);
        assert!(stat(0).is_ok(), "what did not change stays open");
        assert_eq!(stat(1).unwrap_err().errno, Errno::STALE);
        assert!(ask(&session, FileRequest::Close { file: handle(1) }).returned.is_ok(), "and can be closed");
    }

    /// Files that hosts opened took the descriptors that connections of others need.
    #[test]
    fn all_hosts_together_leave_descriptors_for_others() {
        let dir = tempfile::tempdir().unwrap();
        let list = vec![Arc::new(Export::open(&ExportSpec::new("data", dir.path()).writable()).unwrap())];
        let exports = Arc::new(Exports::of(list, 3));
        let (first, second) = (exports.session(), exports.session());
        let open = FileRequest::Lookup { dir: None, path: b"data", flags: FileFlags::READ };
        for session in [&first, &first, &second] {
            assert!(ask(session, open).returned.is_ok());
        }
        let error = ask(&second, open).returned.unwrap_err();
        assert_eq!(error.errno, Errno::NFILE);
        assert_eq!(error.message, "lookup: the target has 3 files open for all hosts, its limit");
        let file = FileHandle { id: 1, generation: first.table().open[0].0 };
        assert!(ask(&first, FileRequest::Close { file }).returned.is_ok());
        assert!(ask(&second, open).returned.is_ok());
        // The workers may still hold the session of a request that was just answered.
        drop(first);
        let room = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(2));
            ask(&second, open).returned.is_ok()
        });
        assert!(room, "a session gives back what it had");
    }
}
