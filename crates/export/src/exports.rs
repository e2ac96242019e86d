//! All exported directories of a target.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use diskside_rights::{Access, HostRights, Rights};
use diskside_volume::stats::AccessStats;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::ExportSpec;
use crate::export::{Export, ExportError};
use crate::session::FileSession;

/// The exported directories of a target.
#[derive(Debug)]
pub struct Exports {
    pub(crate) list: Vec<Arc<Export>>,
    /// Handles that are open in all sessions, and the most there may be.
    pub(crate) handles: AtomicUsize,
    pub(crate) handles_max: usize,
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
    pub fn stats(&self) -> impl Iterator<Item = (&str, AccessStats, AccessStats)> {
        self.list.iter().map(|export| (export.name.as_str(), export.operations.stats(), export.functions.stats()))
    }

    /// A session for one association of a host that may use all of them.
    pub fn session(self: &Arc<Self>) -> FileSession {
        self.session_with(HostRights::everything())
    }

    /// A session for one association of a host with these rights: other exports are to it as if they were not there.
    pub fn session_with(self: &Arc<Self>, rights: HostRights) -> FileSession {
        FileSession::new(Arc::clone(self), rights)
    }

    pub(crate) fn find(&self, name: &[u8], rights: &Rights) -> Option<&Arc<Export>> {
        let named = self.list.iter().find(|export| export.name.as_bytes() == name);
        named.filter(|export| rights.export(&export.name) > Access::None)
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
