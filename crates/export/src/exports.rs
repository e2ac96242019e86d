//! All exported directories of a target.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use diskside_rights::{Access, HostQuota, HostRights, Places, Rights};
use diskside_volume::health::Health;
use diskside_volume::stats::{AccessStats, AccessesByHost};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::ExportSpec;
use crate::again::{AtPath, look_at_all};
use crate::counted::check_countable;
use crate::export::{Export, ExportError};
use crate::session::FileSession;
use crate::space::Space;

/// The exported directories of a target.
#[derive(Debug)]
pub struct Exports {
    list: RwLock<List>,
    /// Handles that are open in all sessions, and the most there may be.
    pub(crate) handles: Places,
    /// What hosts did with files, by name.
    pub(crate) by_host: AccessesByHost,
    /// Whether it is known, or about to be, what hosts hold.
    keeps_accounts: AtomicBool,
}

type List = Arc<[Arc<Export>]>;

/// Exports that are open, and served once [`Exports::replace`] takes them.
#[derive(Debug)]
pub struct OpenedExports {
    list: List,
    /// Those whose path names another directory than before, which they are now.
    opened_again: Vec<String>,
    /// Those that stay as they are although their directory is gone or another one, and why.
    kept: Vec<ExportError>,
}

impl Exports {
    /// Opens the directories and starts a thread for each, with its user and group.
    pub fn open(specs: &[ExportSpec]) -> Result<Arc<Self>, ExportError> {
        let exports = Arc::new(Self::of(Vec::new(), 0));
        exports.replace(exports.prepare(specs)?);
        Ok(exports)
    }

    pub(crate) fn of(list: Vec<Arc<Export>>, handles_max: u64) -> Self {
        let (by_host, keeps_accounts) = Default::default();
        Self { list: RwLock::new(list.into()), handles: Places::new(handles_max), by_host, keeps_accounts }
    }

    /// Opens those of `specs` that are new or changed, and those whose path names another directory than the one that is served.
    /// The served ones stay as they are until [`replace`](Self::replace).
    ///
    /// A directory that is not there, cannot be read or does not answer does not fail an export that is served already: it stays
    /// as it is, and the rest of a configuration does not wait for it.
    ///
    /// # Errors
    /// One that is new or changed cannot be opened.
    pub fn prepare(&self, specs: &[ExportSpec]) -> Result<OpenedExports, ExportError> {
        self.prepare_unless(specs, |_| None)
    }

    /// The same; of another directory at the path of a served export `refuse` says why it is not to be opened.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub fn prepare_unless(
        &self,
        specs: &[ExportSpec],
        refuse: impl Fn(&ExportSpec) -> Option<String>,
    ) -> Result<OpenedExports, ExportError> {
        let served = self.list();
        let same = |spec: &ExportSpec| served.iter().find(|export| export.spec == *spec);
        let mut found = look_at_all(specs.iter().filter_map(same));
        let (mut list, mut opened_again, mut kept) = (Vec::new(), Vec::new(), Vec::new());
        for spec in specs {
            let Some(export) = same(spec) else {
                list.push(Arc::new(Export::open(spec)?));
                continue;
            };
            let opened = match found.remove(&spec.name) {
                None | Some(AtPath::Same) => Ok(None),
                Some(AtPath::Unusable(why)) => Err(why),
                Some(AtPath::Another(is_readable)) => match refuse(spec) {
                    None => is_readable.and_then(|()| Export::open(spec).map(Some).map_err(|error| error.what)),
                    Some(why) => Err(why),
                },
            };
            match opened {
                Ok(Some(again)) => {
                    opened_again.push(spec.name.clone());
                    list.push(Arc::new(again));
                    continue;
                }
                Ok(None) => {}
                Err(what) => kept.push(ExportError { name: spec.name.clone(), what }),
            }
            list.push(Arc::clone(export));
        }
        Ok(OpenedExports { list: list.into(), opened_again, kept })
    }

    /// Whether accounts can be kept of what hosts hold in what is served.
    ///
    /// # Errors
    /// Which export that cannot be, and why.
    pub fn check_accounts(&self) -> Result<(), ExportError> {
        check_countable(self.list().iter().map(|export| (&export.spec, Some(&**export))))
    }

    /// The same of exports that are not open yet.
    ///
    /// # Errors
    /// As [`check_accounts`](Self::check_accounts).
    pub fn check_accounts_of(specs: &[ExportSpec]) -> Result<(), ExportError> {
        check_countable(specs.iter().map(|spec| (spec, None)))
    }

    /// Keeps accounts of what hosts hold, for good, and counts what is there. Waits a moment for that; hosts that have a quota
    /// wait for the rest.
    pub fn keep_accounts(&self) {
        self.keeps_accounts.store(true, Ordering::SeqCst);
        if !self.count(COUNT_PATIENCE) {
            tracing::info!(
                "what hosts hold in exports is being counted; until it is known, those with a quota of it add nothing"
            );
        }
    }

    /// Counts again what hosts hold, if accounts are kept. False: that takes longer than `patience`, and continues.
    pub fn count(&self, patience: Duration) -> bool {
        let (end, list) = (Instant::now() + patience, self.list());
        if self.keeps_accounts.load(Ordering::SeqCst) {
            list.iter().for_each(Export::keep_accounts);
        }
        list.iter().all(|export| export.is_counted_within(end.saturating_duration_since(Instant::now())))
    }

    /// The holdings of hosts, by the number of the export and the host's NQN; most bytes first.
    pub fn held(&self) -> Vec<(u32, String, Space)> {
        let of = |(number, export): (u32, &Arc<Export>)| {
            export.ledger.held().into_iter().map(move |(nqn, space)| (number, nqn, space))
        };
        let mut held: Vec<_> = (0..).zip(self.list().iter()).flat_map(of).collect();
        held.sort_by_key(|(_, _, space)| std::cmp::Reverse((space.bytes, space.files)));
        held
    }

    /// Serves these instead. Handles of hosts in others are stale from now on; calls that run end once
    /// [`UsedExport::check`](crate::UsedExport::check) is asked for them.
    pub fn replace(&self, list: OpenedExports) {
        self.swap(list.list);
        if self.keeps_accounts.load(Ordering::SeqCst) {
            self.keep_accounts();
        }
    }

    /// Serves at once only those of the served ones that are among `next`: what hosts hold is counted when the others follow.
    pub fn withdraw_all_but(&self, next: &OpenedExports) {
        let served = self.list();
        let stays = |export: &&Arc<Export>| next.list.iter().any(|other| Arc::ptr_eq(other, export));
        let staying: List = served.iter().filter(stays).cloned().collect();
        if staying.len() < served.len() {
            self.swap(staying);
        }
    }

    fn swap(&self, list: List) {
        if !list.is_empty() && self.handles.max() == 0 {
            self.handles.set_max(files_max() / 2);
        }
        let before = std::mem::replace(&mut *self.list.write().unwrap_or_else(PoisonError::into_inner), list);
        let after = self.list();
        for export in before.iter().filter(|export| !after.iter().any(|other| Arc::ptr_eq(other, export))) {
            export.withdrawn.store(true, Ordering::Release);
        }
    }

    pub(crate) fn list(&self) -> List {
        Arc::clone(&self.list.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether nothing is exported.
    pub fn is_empty(&self) -> bool {
        self.list().is_empty()
    }

    /// The exports' names, in the order of the configuration.
    pub fn names(&self) -> Vec<String> {
        self.list().iter().map(|export| export.name.clone()).collect()
    }

    /// Numbers of the stores that a host with these rights may read.
    pub fn stores(&self, rights: &Rights) -> Vec<u64> {
        let list = self.list();
        let readable = list.iter().filter(|export| rights.export(&export.name) > Access::None);
        readable.filter_map(|export| Some(export.store.as_ref()?.number())).collect()
    }

    /// The operations on each, in the order of the configuration: by hosts themselves, and by functions.
    pub fn stats(&self) -> Vec<(String, AccessStats, AccessStats)> {
        let stats = |export: &Arc<Export>| (export.name.clone(), export.operations.stats(), export.functions.stats());
        self.list().iter().map(stats).collect()
    }

    /// Calls `each` with how the disk below each is, in the order of the configuration.
    pub fn each_disk(&self, mut each: impl FnMut(&Health)) {
        self.list().iter().for_each(|export| each(&export.health));
    }

    /// Operations of hosts on files since the start.
    pub fn operations_by_host(&self) -> BTreeMap<String, AccessStats> {
        self.by_host.stats()
    }

    /// A session for one association of a host that may use all of them.
    pub fn session(self: &Arc<Self>) -> FileSession {
        self.session_with(HostRights::everything(), HostQuota::unlimited())
    }

    /// A session for one association of a host with these rights and this quota: other exports are to it as if they were not
    /// there.
    pub fn session_with(self: &Arc<Self>, rights: HostRights, quota: Arc<HostQuota>) -> FileSession {
        FileSession::new(Arc::clone(self), rights, quota)
    }

    pub(crate) fn find(&self, name: &[u8], rights: &Rights) -> Option<Arc<Export>> {
        let named = self.list().iter().find(|export| export.name.as_bytes() == name).cloned();
        named.filter(|export| rights.export(&export.name) > Access::None)
    }

    /// Whether there is an export of this name, for any host.
    pub(crate) fn has(&self, name: &[u8]) -> bool {
        self.list().iter().any(|export| export.name.as_bytes() == name)
    }
}

impl OpenedExports {
    /// Whether accounts can be kept of what hosts hold in them.
    ///
    /// # Errors
    /// Which export that cannot be, and why.
    pub fn check_accounts(&self) -> Result<(), ExportError> {
        check_countable(self.list.iter().map(|export| (&export.spec, Some(&**export))))
    }

    /// The names of those whose path named another directory than the one that was served.
    pub fn opened_again(&self) -> &[String] {
        &self.opened_again
    }

    /// Those that stay as they are although their directory is gone or another one, and why.
    pub fn kept(&self) -> &[ExportError] {
        &self.kept
    }
}

/// How long a server or a reload waits for what hosts hold to be counted.
const COUNT_PATIENCE: Duration = Duration::from_secs(5);

/// The files that this process may have open, once it may have as many as it is allowed to ask for. Half of them are for handles
/// of exports.
pub fn files_max() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        match setrlimit(Resource::Nofile, raised) {
            Ok(()) => limit = raised,
            Err(errno) => tracing::warn!(%errno, "the limit of open files stays at {:?}", limit.current),
        }
    }
    limit.current.unwrap_or(u64::MAX)
}
