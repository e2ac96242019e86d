//! One export: the root of a directory, or a store of objects, and the threads that have its user and group.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use diskside_sys::attributes::is_remote;
use diskside_volume::health::{Below, Failure, Health};
use diskside_volume::stats::AccessCounters;
use rustix::io::Errno;

use crate::credentials::Credentials;
use crate::objects::StoreTree;
use crate::root::Root;
use crate::space::{Countable, Ledger};
use crate::workers::{STORE_THREADS_MAX, THREADS_MAX, Workers};
use crate::{ExportSpec, FileAccess};

/// Why a directory cannot be exported.
#[derive(Debug, thiserror::Error)]
#[error("export `{name}`: {what}")]
pub struct ExportError {
    /// The export.
    pub name: String,
    /// What is wrong, and what to do.
    pub what: String,
}

/// One export.
#[derive(Debug)]
pub(crate) struct Export {
    /// As it was asked for.
    pub(crate) spec: ExportSpec,
    /// It is not served any more: nothing can be done with what hosts have open in it.
    pub(crate) withdrawn: AtomicBool,
    pub(crate) name: String,
    pub(crate) read_only: bool,
    pub(crate) access: FileAccess,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) root: Root,
    /// The log tells once that its directory was removed.
    pub(crate) is_told_removed: AtomicBool,
    /// Its path is being looked at, which can take as long as a disk hangs.
    pub(crate) is_looked_at: AtomicBool,
    /// The tree below a URL, for an export that is not a directory: it has no root.
    pub(crate) store: Option<StoreTree>,
    pub(crate) workers: Workers,
    /// No other process or machine is asked when its files are read.
    pub(crate) is_local: bool,
    /// What hosts hold in it.
    pub(crate) ledger: Arc<Ledger>,
    /// What hosts do with its files themselves.
    pub(crate) operations: AccessCounters,
    /// What functions do with them.
    pub(crate) functions: Arc<AccessCounters>,
    /// How the disk below it is, or its store.
    pub(crate) health: Arc<Health>,
}

impl Export {
    pub(crate) fn open(spec: &ExportSpec) -> Result<Self, ExportError> {
        let wrong = |what: String| ExportError { name: spec.name.clone(), what };
        spec.check().map_err(wrong)?;
        let credentials = Credentials::of(spec).map_err(wrong)?;
        let (uid, gid) = (credentials.uid, credentials.gid);
        if uid == 0 && spec.uid.is_none() && spec.rw {
            tracing::warn!(export = spec.name, "hosts work as root in this directory; state uid= and gid=");
        }
        let url = spec.url();
        let threads_max = if url.is_some() { STORE_THREADS_MAX } else { THREADS_MAX };
        let health = Arc::new(Health::new(Below::Export, &spec.name));
        let workers = Workers::start(&spec.name, credentials, threads_max, &health);
        let workers = workers.map_err(|error| wrong(start_error(spec, &error)))?;
        let store = url.map(StoreTree::open).transpose().map_err(|error| wrong(error.to_string()))?;
        let root = match &store {
            Some(_) => Root::none().map_err(|errno| wrong(io::Error::from(errno).to_string()))?,
            None => open_root(&spec.path, &workers).map_err(|error| wrong(root_error(&spec.path, &error)))?,
        };
        let is_local = store.is_none() && is_remote(&root).is_ok_and(|is_remote| !is_remote);
        let (operations, functions) = Default::default();
        tracing::info!(export = spec.name, path = %spec.path.display(), uid, gid, rw = spec.rw, "exported");
        let (name, read_only, access) = (spec.name.clone(), !spec.rw, spec.access);
        let (spec, withdrawn, ledger) = (spec.clone(), AtomicBool::new(false), Ledger::new(&name));
        Ok(Self {
            spec,
            withdrawn,
            name,
            read_only,
            access,
            uid,
            gid,
            root,
            is_told_removed: AtomicBool::new(false),
            is_looked_at: AtomicBool::new(false),
            store,
            workers,
            is_local,
            ledger,
            operations,
            functions,
            health,
        })
    }

    /// The disk, or the store, failed something that `file` was asked for.
    pub(crate) fn failed(&self, operation: &str, file: &str, offset: Option<u64>, errno: Errno) {
        self.health.failed(&Failure { operation, file: Some(file), offset, errno });
    }
}

impl Countable for Export {
    fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    fn is_withdrawn(&self) -> bool {
        self.withdrawn.load(Ordering::Acquire)
    }

    fn submit(&self, job: impl FnOnce() + Send + 'static) {
        self.workers.submit(job);
    }
}

/// Opens the directory as this process; where that may not, as the export's user, who is the one that needs to.
pub(crate) fn open_root(path: &Path, workers: &Workers) -> io::Result<Root> {
    match Root::open(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let path = path.to_owned();
            workers.run(move || Root::open(&path)).unwrap_or(Err(error))
        }
        opened => opened,
    }
}

fn root_error(path: &Path, error: &io::Error) -> String {
    match path.parent().filter(|_| path.is_file()) {
        Some(parent) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            format!("{} is a file; export its directory, {}", path.display(), parent.display())
        }
        None => format!("{}: {error}", path.display()),
    }
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
