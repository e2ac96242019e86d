//! Files and functions, here and at targets: the interface for programs.
//!
//! ```no_run
//! use diskside::session::{RunOptions, Session, SessionOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let session = Session::new(SessionOptions::default());
//! let stats = session.function("stats64")?;
//! let file = session.open("diskside://server/data/measured.u64")?;
//! let whole = file.fold_fn(&stats, &[], &RunOptions::default()).wait()?;
//! println!("{} ({} bytes on the wire)", whole.result.len(), whole.received_bytes);
//! # Ok(()) }
//! ```
//!
//! A [`Session`] keeps a connection to each target, the blocks that were read from their exports, and
//! what it has measured. A [`File`] is a path here, a file of an export, or a volume. Beside `pread` and
//! `pwrite` it has [`pread_fn`](File::pread_fn) and [`pwrite_fn`](File::pwrite_fn), which run a function
//! over a range and give back only its result, or write only its output. Where they run is chosen for
//! each request ([`Where::Auto`]) by the [dispatcher](diskside_dispatch).

mod alarm;
mod answered;
mod cache;
mod copied;
mod copies;
mod crowd;
mod descriptor;
mod environment;
mod error;
mod file;
mod file_io;
mod first_line;
mod footers;
mod function;
mod kernel;
mod learnt;
mod link;
mod memo;
mod metrics;
mod mounted;
mod one_version;
mod open_mode;
mod patience;
mod pending;
mod place;
mod run;
mod scan;
mod segments;
mod short_files;
mod traversal;
mod tries;
mod writer;

pub use answered::{Answered, ServerFailure};
pub use diskside_dispatch::{Counts, Decision, Observation, Plan, Policy, Reason, Side};
pub use environment::EnvironmentError;
pub use error::{FailureKind, SessionError};
pub use file::File;
pub use function::SessionFunction;
pub use kernel::{KernelRan, SessionKernel};
pub use one_version::is_another_version;
pub use open_mode::OpenMode;
pub use pending::Pending;
pub use run::{ChunkRange, Chunks, Decompress, Header, LocalBytes, Prepared, Ran, RanPart, Resumed, RunOptions, Where};
pub use scan::{BothCounts, FileCounts, ScanFiles, ScanOptions, ScanPlace, Scanned};
pub use traversal::{Followed, SessionTraversal};
pub use writer::FileWriter;

use crate::library::ResolveError;
use crate::location::{ExportUrl, Location};
use cache::BlockCache;
use copies::CopySets;
use diskside_dispatch::{Dispatcher, PairView};
use diskside_engine::{Engine, State};
use diskside_host::function::{Compute, Files, FunctionError, ListedExport};
use diskside_host::mounted::{Counters, Proof};
use diskside_host::{ConnectOptions, Connection, Url};
use diskside_io::instance::{InstanceConfig, Instances};
use diskside_io::request::run_here;
use diskside_sbpf::image::Kind;
use diskside_wire::function::StateName;
use footers::Footers;
use learnt::LearntFiles;
use link::Link;
use memo::Memo;
use short_files::ShortFiles;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tries::Tries;

/// How a [`Session`] works.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// How connections are made.
    pub connect: ConnectOptions,
    /// Bytes of files of exports that are kept; 0: none.
    pub cache_len_bytes: u64,
    /// Bytes of footers, Bloom filters and indexes of files of exports that are kept for further scans on this machine; 0: none.
    pub footers_len_bytes: u64,
    /// How [`Where::Auto`] chooses a side.
    pub policy: Policy,
    /// Where what was learnt of functions at targets is kept for the next session
    /// ([`Session::save_learnt`]); `None`: nowhere.
    pub learnt_directory: Option<PathBuf>,
    /// Volumes that local files may be on, beside those that the kernel tells of.
    pub mounted_volumes: Vec<Url>,
    /// How sure a function over a file on a mounted volume has to be of the file's blocks.
    pub mounted_proof: Proof,
    /// The instances that read and write the files of this machine that the session opens.
    pub instances: InstanceConfig,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            connect: ConnectOptions::default(),
            cache_len_bytes: 256 << 20,
            footers_len_bytes: 64 << 20,
            policy: Policy::default(),
            learnt_directory: None,
            mounted_volumes: Vec::new(),
            mounted_proof: Proof::default(),
            instances: InstanceConfig::default(),
        }
    }
}

/// Connections, functions and files. Clones refer to the same one.
#[derive(Clone, Debug)]
pub struct Session {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    options: SessionOptions,
    engine: Arc<Engine>,
    cache: Arc<BlockCache>,
    footers: Footers,
    short_files: ShortFiles,
    links: Arc<Memo<String, Arc<Link>>>,
    copies: CopySets,
    dispatcher: Mutex<Dispatcher>,
    sizes: Mutex<scan::Sizes>,
    instances: OnceLock<Instances>,
    learnt: Option<LearntFiles>,
    mounted: Arc<Counters>,
    plain_disks: mounted::PlainDisks,
    /// Threads of this session that run functions here.
    host_threads: AtomicUsize,
    /// Named states of calls that run here, with their lengths.
    states: Mutex<HashMap<String, (u32, State)>>,
}

impl Session {
    /// A session without connections yet.
    #[must_use]
    pub fn new(options: SessionOptions) -> Self {
        let links = Arc::default();
        let inner = Inner {
            engine: Arc::new(Engine::new(crate::helpers()).with_llvm_if_found()),
            cache: Arc::new(BlockCache::new(options.cache_len_bytes)),
            footers: Footers::new(options.footers_len_bytes),
            short_files: ShortFiles::default(),
            copies: CopySets::new(&options.connect, &links),
            links,
            dispatcher: Mutex::new(Dispatcher::new(options.policy)),
            sizes: Mutex::default(),
            instances: OnceLock::new(),
            states: Mutex::default(),
            learnt: options.learnt_directory.clone().map(LearntFiles::new),
            mounted: Arc::default(),
            plain_disks: mounted::PlainDisks::default(),
            host_threads: AtomicUsize::new(0),
            options,
        };
        Self { inner: Arc::new(inner) }
    }

    /// The engine that runs functions on this side.
    #[must_use]
    pub fn engine(&self) -> &Arc<Engine> {
        &self.inner.engine
    }

    /// The state of this name of calls that run here; it is made when it is first asked for.
    fn state(&self, call: &str, state: &StateName) -> Result<State, SessionError> {
        let mut states = self.inner.states.lock().unwrap_or_else(PoisonError::into_inner);
        let known = states.entry(state.name.clone());
        let (len_bytes, kept) = known.or_insert_with(|| (state.len_bytes, State::new(state.len_bytes as usize)));
        if *len_bytes == state.len_bytes {
            return Ok(kept.clone());
        }
        let why = "the named state has another size since it was first used";
        Err(SessionError::Unsupported { name: call.to_owned(), why })
    }

    /// Zeroes a range of a named state of calls that ran here. While a call uses the state, this comes behind it and before the
    /// next.
    pub fn clear_state(&self, name: &str, range: Range<u64>) -> Result<(), SessionError> {
        let states = self.inner.states.lock().unwrap_or_else(PoisonError::into_inner);
        let why = "no call of this session that ran here has named such a state";
        let (_, state) = states.get(name).ok_or_else(|| SessionError::Unsupported { name: name.to_owned(), why })?;
        let bound = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        let cleared = state.clear(bound(range.start), bound(range.end.saturating_sub(range.start)));
        cleared.map_err(|error| SessionError::file(name, std::io::Error::other(error)))
    }

    /// Zeroes a range of a named state that this host has at a target, as [`clear_state`](Self::clear_state) does here.
    pub fn clear_state_at(&self, target: &Url, name: &str, range: Range<u64>) -> Result<(), SessionError> {
        let cleared = self.compute(target)?.clear_state(name, range);
        cleared.map_err(|error| SessionError::device(&target.to_string(), error))
    }

    /// Finds a function: a shipped one by its name, `FILE.o[:NAME]`, or `FILE.c[:NAME]` to compile.
    pub fn function(&self, what: impl AsRef<OsStr>) -> Result<SessionFunction, ResolveError> {
        SessionFunction::resolve(&self.inner.engine, what)
    }

    /// Takes a file of raw bytecode, entered at its first instruction, as a function of this kind.
    pub fn raw_function(&self, path: &Path, kind: Kind) -> Result<SessionFunction, ResolveError> {
        SessionFunction::resolve_raw(&self.inner.engine, path, kind)
    }

    /// Takes a function from the bytes of an object, by name; without a name, the only one there.
    pub fn load(&self, object: &[u8], name: Option<&str>) -> Result<SessionFunction, ResolveError> {
        SessionFunction::load(&self.inner.engine, object, name)
    }

    /// Finds a function over columns, for [`scan`](File::scan): `FILE.o[:NAME]` or `FILE.c[:NAME]`.
    pub fn columns_function(&self, what: impl AsRef<OsStr>) -> Result<SessionFunction, ResolveError> {
        SessionFunction::resolve_columns(&self.inner.engine, what)
    }

    /// As [`load`](Self::load), of a function over columns.
    pub fn load_columns(&self, object: &[u8], name: Option<&str>) -> Result<SessionFunction, ResolveError> {
        SessionFunction::load_columns(&self.inner.engine, object, name)
    }

    /// Opens what a path or URL names, for reading.
    pub fn open(&self, what: &str) -> Result<File, SessionError> {
        File::open(self, &what.parse()?, OpenMode::Read)
    }

    /// The file of a path or URL, for reading; a file of an export is opened only when it is used, and may be closed
    /// again after that: so a run may be over more files than a target lets a host have open. A missing file is noticed
    /// when it is used.
    pub fn open_late(&self, location: &Location) -> Result<File, SessionError> {
        File::late(self, location)
    }

    /// Opens what a path or URL names.
    pub fn open_as(&self, location: &Location, mode: OpenMode) -> Result<File, SessionError> {
        File::open(self, location, mode)
    }

    /// The file behind a descriptor of this process, which is duplicated: reads and writes go through it, with the
    /// rights that it has. Measurements are kept for the file, not for its name.
    ///
    /// # Errors
    /// It is not open for this (`EBADF`), or has no positions (`ESPIPE`).
    pub fn open_descriptor(&self, descriptor: impl AsFd, mode: OpenMode) -> Result<File, SessionError> {
        File::of_descriptor(self, descriptor.as_fd(), mode)
    }

    /// The files of the target that a URL names.
    ///
    /// # Errors
    /// The target cannot be used, or the URL names several, whose files are only looked at ([`look`](Self::look)).
    pub fn files(&self, url: &ExportUrl) -> Result<Files, SessionError> {
        file::refuse_write(true, url)?;
        self.link(&url.target())?.files()
    }

    /// Looks at the files of the target that a URL names. If it names several, those of one that answers, and of another one if
    /// that vanishes meanwhile: `look` changes nothing.
    ///
    /// # Errors
    /// The outer one: no target can be used. The inner one is the answer of a target.
    pub fn look<T>(
        &self,
        url: &ExportUrl,
        look: impl Fn(&Files) -> Result<T, FunctionError>,
    ) -> Result<Result<T, FunctionError>, SessionError> {
        if !url.has_copies() {
            return Ok(look(&self.files(url)?));
        }
        let (set, mut tries) = (self.inner.copies.of(url), Tries::default());
        loop {
            let copy = tries.copy(&set)?;
            let failed = match copy.link.files().map(|files| look(&files)) {
                Ok(Err(error)) if copy.link.is_lost() || error.is_loss() => {
                    SessionError::device(&copy.server.to_string(), error)
                }
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            tries.go_on_from(&set, &copy, failed)?;
        }
    }

    /// The exports of a target.
    pub fn exports(&self, url: &ExportUrl) -> Result<Vec<ListedExport>, SessionError> {
        self.look(url, Files::exports)?.map_err(|error| SessionError::device(&url.to_string(), error))
    }

    /// Gives the targets that URLs call `host` a connection that is there already, for instance to a target in
    /// this process ([`embedded::connect`](crate::embedded::connect)).
    pub fn attach(&self, host: &str, connection: Connection) -> Result<(), SessionError> {
        let link = Arc::new(Link::over(host.to_owned(), connection)?);
        self.inner.links.insert(host.to_owned(), link);
        Ok(())
    }

    /// Decisions so far, by reason and by plan.
    #[must_use]
    pub fn decisions(&self) -> Counts {
        self.lock_dispatcher().counts().clone()
    }

    /// Counts decisions from 0 on again.
    pub fn clear_decisions(&self) {
        self.lock_dispatcher().clear_counts();
    }

    /// What was measured of a function over a file.
    #[must_use]
    pub fn measured(&self, file: &File, function: &SessionFunction) -> Option<PairView> {
        self.lock_dispatcher().view(file.pair(function))
    }

    /// Bytes of files of exports that are kept now, those of footers among them.
    #[must_use]
    pub fn cached_bytes(&self) -> u64 {
        self.inner.cache.len_bytes() + self.inner.footers.len_bytes()
    }

    /// Writes what was learnt of functions at targets for the next session that has the same
    /// [`learnt_directory`](SessionOptions::learnt_directory). Without one it does nothing.
    pub fn save_learnt(&self) -> std::io::Result<()> {
        match &self.inner.learnt {
            Some(files) => files.save(|pair| self.lock_dispatcher().learnt(pair)),
            None => Ok(()),
        }
    }

    /// Forgets all bytes of files of exports that are kept.
    pub fn drop_cache(&self) {
        self.inner.cache.clear();
        self.inner.footers.clear();
    }

    /// The functions of the target that a URL names.
    pub fn compute(&self, url: &Url) -> Result<Compute, SessionError> {
        self.link(url)?.compute().cloned()
    }

    /// The outcomes of requests over files on mounted volumes: how many were proved, and why others were not.
    #[must_use]
    pub fn mounted_counters(&self) -> &Arc<Counters> {
        &self.inner.mounted
    }

    fn plain_disks(&self) -> &mounted::PlainDisks {
        &self.inner.plain_disks
    }

    fn mounted_volumes(&self) -> &[Url] {
        &self.inner.options.mounted_volumes
    }

    fn mounted_proof(&self) -> Proof {
        self.inner.options.mounted_proof
    }

    /// Runs `work` on so many threads of this machine.
    fn on_host<T>(&self, threads: usize, work: impl FnOnce() -> T) -> T {
        self.inner.host_threads.fetch_add(threads, Ordering::Relaxed);
        let done = work();
        self.inner.host_threads.fetch_sub(threads, Ordering::Relaxed);
        done
    }

    /// Functions of this session for each processor before a new one.
    fn host_waiting(&self) -> f64 {
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let running = self.inner.host_threads.load(Ordering::Relaxed);
        running.saturating_sub(processors) as f64 / processors as f64
    }

    /// The connection to a target. Only those that want the same one wait for it.
    fn link(&self, url: &Url) -> Result<Arc<Link>, SessionError> {
        let target = Url { nsid: None, ..url.clone() };
        let name = target.to_string();
        // One that was given up is made again for the next file that is opened.
        let is_usable = |link: &Arc<Link>| !link.is_ended();
        let links = &self.inner.links;
        if links.get(&name).is_none_or(|link| link.is_ended())
            && let Some(attached) = links.get(&target.host)
        {
            return Ok(attached);
        }
        let connect = async { Link::connect(&target, &self.inner.options.connect).map(Arc::new) };
        run_here(links.get_or_make(name, is_usable, connect))
    }

    /// What reads and writes local files.
    fn instances(&self) -> std::io::Result<&Instances> {
        match self.inner.instances.get() {
            Some(instances) => Ok(instances),
            None => {
                let started = Instances::start(&self.inner.options.instances)?;
                Ok(self.inner.instances.get_or_init(|| started))
            }
        }
    }

    fn learnt(&self) -> Option<&LearntFiles> {
        self.inner.learnt.as_ref()
    }

    fn cache(&self) -> &Arc<BlockCache> {
        &self.inner.cache
    }

    fn policy(&self) -> Policy {
        self.inner.options.policy
    }

    fn short_files(&self) -> &ShortFiles {
        &self.inner.short_files
    }

    fn lock_sizes(&self) -> std::sync::MutexGuard<'_, scan::Sizes> {
        self.inner.sizes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_dispatcher(&self) -> std::sync::MutexGuard<'_, Dispatcher> {
        self.inner.dispatcher.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_here_wait_once_there_are_more_than_processors() {
        let session = Session::new(SessionOptions::default());
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        assert_eq!(session.on_host(processors, || session.host_waiting()), 0.0);
        assert_eq!(session.on_host(processors, || session.on_host(2 * processors, || session.host_waiting())), 2.0);
        assert_eq!(session.host_waiting(), 0.0);
    }
}
