//! Directories served by name: what hosts may open beneath them, and as whom.
//!
//! An [`Exports`] is made from the configuration. Each association of a host has a [`FileSession`], which keeps its
//! handles and carries out its file operations ([`diskside_nvme::wire::file`]); functions read and write the same
//! handles through a [`FileSource`] and a [`FileSink`].
//!
//! # What holds
//!
//! * **Beneath.** Every path is resolved by `openat2` beneath the export's root, without magic links and without
//!   entering another mount. `..` and symbolic links work inside; what leads out fails with `EXDEV`, also while
//!   directories are being renamed.
//! * **As whom.** Everything that the kernel checks permissions for runs on threads of the export that have its user,
//!   group and groups for good, and no capability of root. Reading an open file needs no permission any more and may
//!   happen on any thread; writing happens on the export's, so that quotas and reserved blocks are the user's.
//! * **Handles.** Bounded per session ([`HANDLES_MAX`]) and in all (half of the files that the process may open, so that
//!   connections and disks have the rest), closed with their session. A number that is used again has another
//!   generation.
//! * **Changes are noticed.** A [`FileSource`] knows the file's version from before the first read and compares it
//!   after the last. A version differs when inode, size or a time of change differ; a file that changed in the clock
//!   tick that just passes is waited for, so that a later change cannot have the same time.
//! * **No reactor waits.** Requests are queued for the export's threads, which answer through a callback.

mod attributes;
mod conflict;
mod credentials;
mod operations;
mod reading;
mod root;
mod session;
mod sink;
mod source;
mod unnamed;
mod workers;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub(crate) use conflict::conflict;
pub use session::{FileSession, HANDLES_MAX};
pub use sink::{FileSink, SinkMode};
pub(crate) use source::CachedFile;
pub use source::FileSource;

use crate::config::{ExportSpec, FileAccess};
use crate::stats::{AccessCounters, AccessStats};
use credentials::Credentials;
use root::Root;
use workers::Workers;

/// The exported directories of a target.
#[derive(Debug)]
pub struct Exports {
    list: Vec<Arc<Export>>,
    /// Handles that are open in all sessions, and the most there may be.
    handles: AtomicUsize,
    handles_max: usize,
}

/// How a file operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReply {
    /// What it returns, or why it failed.
    pub returned: Result<u64, FileError>,
    /// The result's bytes.
    pub result: Vec<u8>,
    /// Version of the file that it was about; 0 where there is none, or where it changed meanwhile.
    pub version: u64,
    /// Bytes of this write that survive power loss.
    pub durable_bytes: u64,
}

/// Why a file operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FileError {
    /// What the kernel said, or would have.
    pub errno: Errno,
    /// Whether the file changed while it was used: the bytes belong to no one version.
    pub changed: bool,
    /// What failed, and on which file.
    pub message: String,
}

/// Why a directory cannot be exported.
#[derive(Debug, thiserror::Error)]
#[error("export `{name}`: {what}")]
pub struct ExportError {
    /// The export.
    pub name: String,
    /// What is wrong, and what to do.
    pub what: String,
}

/// One exported directory.
#[derive(Debug)]
pub(crate) struct Export {
    name: String,
    read_only: bool,
    access: FileAccess,
    uid: u32,
    gid: u32,
    root: Root,
    workers: Workers,
    /// What hosts do with its files themselves.
    pub(crate) operations: AccessCounters,
    /// What functions do with them.
    pub(crate) functions: Arc<AccessCounters>,
}

impl Exports {
    /// Opens the directories and starts a thread for each, with its user and group.
    pub fn open(specs: &[ExportSpec]) -> Result<Arc<Self>, ExportError> {
        let list: Vec<_> = specs.iter().map(|spec| Export::open(spec).map(Arc::new)).collect::<Result<_, _>>()?;
        let handles_max = if list.is_empty() { 0 } else { handles_max() };
        Ok(Arc::new(Self { list, handles: AtomicUsize::new(0), handles_max }))
    }

    /// Whether nothing is exported.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The exports' names, in the order of the configuration.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(|export| export.name.as_str())
    }

    /// What was done with each, in the order of the configuration: by hosts themselves, and by functions.
    pub(crate) fn stats(&self) -> impl Iterator<Item = (&str, AccessStats, AccessStats)> {
        self.list.iter().map(|export| (export.name.as_str(), export.operations.stats(), export.functions.stats()))
    }

    /// A session for one association of a host.
    pub fn session(self: &Arc<Self>) -> FileSession {
        FileSession::new(Arc::clone(self))
    }

    fn find(&self, name: &[u8]) -> Option<&Arc<Export>> {
        self.list.iter().find(|export| export.name.as_bytes() == name)
    }
}

impl Export {
    fn open(spec: &ExportSpec) -> Result<Self, ExportError> {
        let wrong = |what: String| ExportError { name: spec.name.clone(), what };
        spec.check().map_err(wrong)?;
        let root = Root::open(&spec.path).map_err(|error| wrong(format!("{}: {error}", spec.path.display())))?;
        let credentials = Credentials::of(spec).map_err(wrong)?;
        let (uid, gid) = (credentials.uid, credentials.gid);
        if uid == 0 && spec.uid.is_none() && !spec.read_only {
            tracing::warn!(export = spec.name, "hosts work as root in this directory; state uid= and gid=");
        }
        let workers = Workers::start(&spec.name, credentials).map_err(|error| wrong(start_error(spec, &error)))?;
        let (operations, functions) = Default::default();
        tracing::info!(export = spec.name, path = %spec.path.display(), uid, gid, read_only = spec.read_only, "exported");
        let (name, read_only, access) = (spec.name.clone(), spec.read_only, spec.access);
        Ok(Self { name, read_only, access, uid, gid, root, workers, operations, functions })
    }
}

impl FileError {
    /// A failure of `what` with `errno`; the message says both.
    pub(crate) fn new(errno: Errno, what: impl fmt::Display) -> Self {
        Self { errno, changed: false, message: format!("{what}: {}", io::Error::from(errno)) }
    }

    /// A failure with a reason of our own.
    pub(crate) fn because(errno: Errno, message: impl Into<String>) -> Self {
        Self { errno, changed: false, message: message.into() }
    }

    /// The file changed while it was used.
    pub(crate) fn changed(path: &str) -> Self {
        let message = format!("{path} changed while it was read; read it again");
        Self { errno: Errno::STALE, changed: true, message }
    }
}

impl FileReply {
    /// Nothing but a return value.
    pub(crate) fn done(returned: u64) -> Self {
        Self { returned: Ok(returned), result: Vec::new(), version: 0, durable_bytes: 0 }
    }
}

impl From<FileError> for FileReply {
    fn from(error: FileError) -> Self {
        Self { returned: Err(error), ..Self::done(0) }
    }
}

/// Half of the files that this process may have open, once it may have as many as it is allowed to ask for.
fn handles_max() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        match setrlimit(Resource::Nofile, raised) {
            Ok(()) => limit = raised,
            Err(errno) => tracing::warn!(%errno, "the limit of open files stays at {:?}", limit.current),
        }
    }
    limit.current.map_or(usize::MAX, |files| usize::try_from(files / 2).unwrap_or(usize::MAX))
}

fn start_error(spec: &ExportSpec, error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(code) if code == Errno::PERM.raw_os_error() => {
            let (uid, gid) = (spec.uid.unwrap_or_default(), spec.gid.unwrap_or_default());
            format!("cannot act as uid {uid}, gid {gid}: this needs CAP_SETUID and CAP_SETGID")
        }
        _ => format!("cannot start its thread: {error}"),
    }
}
