//! One target of a session.

use super::crowd::{Crowd, Present};
use super::error::SessionError;
use super::function::SessionFunction;
use super::memo::Memo;
use diskside_dispatch::{Side, Waits};
use diskside_host::function::{Compute, Files, FunctionError, Program};
use diskside_host::{ConnectOptions, Connection, ConnectionState, HostError, Url, discover};
use diskside_nvme::{Nqn, Status};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{RwLock, Semaphore};

/// A connection with what is known of its target.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) name: String,
    pub(super) connection: Connection,
    /// `None`: it runs no functions and has no exports.
    compute: Option<Compute>,
    /// By the SHA-256 of their objects.
    programs: Memo<[u8; 32], Arc<LoadedProgram>>,
    /// Held for writing while programs are unloaded to make room: nobody loads them again meanwhile.
    unloading: RwLock<()>,
    /// How often a program was asked for.
    uses: AtomicU64,
    round_trip_ns: AtomicU64,
    running: AtomicU32,
    /// How often calls of this session were more than the target has engines.
    crowds: AtomicU64,
    waits: Mutex<KnownWaits>,
    /// Requests of this session on the host and at the device.
    crowd: [Arc<Crowd>; 2],
    /// Turns of short runs, which nothing else keeps from being thousands at a time: a queue takes so many calls that wait.
    short_runs: Arc<Semaphore>,
}

/// Short runs that are under way at a target; half of the calls that a queue of 128 entries lets wait.
const SHORT_RUNS_MAX: usize = 32;

/// A program at the target. A holder of it has a call under way, or a request prepared: it stays there meanwhile.
#[derive(Debug)]
pub(super) struct LoadedProgram {
    /// Its index.
    pub(super) index: u16,
    /// Whether it is of this host, which may unload it.
    own: bool,
    /// When it was asked for last, counted in [`Link::uses`].
    used: AtomicU64,
}

/// What calls waited for because of other hosts.
#[derive(Debug, Default)]
struct KnownWaits {
    waits: Waits,
    /// When the target last said something of it, or was last asked.
    heard: Option<Instant>,
}

impl KnownWaits {
    /// Whether turns were long when something was heard of them last, and that was some time ago.
    fn is_doubtful(&self) -> bool {
        self.waits.turn_s() > WAIT_SHORT_S && self.heard.is_none_or(|heard| heard.elapsed() > WAIT_OLD)
    }
}

/// What a turn may wait without a question to the target.
const WAIT_SHORT_S: f64 = 1e-3;
/// Older ones may be over: while nothing runs at the target, no call says more.
const WAIT_OLD: Duration = Duration::from_millis(250);

/// Subsystem type in a discovery log.
const NVM_SUBSYSTEM: u8 = 2;
/// Transport type in a discovery log.
const TCP: u8 = 3;

impl Link {
    /// Connects to a target whose subsystem may be left out if there is only one.
    pub(super) fn connect(url: &Url, options: &ConnectOptions) -> Result<Self, SessionError> {
        let name = url.to_string();
        let failed = |source| SessionError::Target { target: name.clone(), source };
        let url = if url.subsystem.is_some() { url.clone() } else { with_subsystem(url, options)? };
        let connection = Connection::connect(&url, options).map_err(failed)?;
        Self::over(name.clone(), connection)
    }

    pub(super) fn over(name: String, connection: Connection) -> Result<Self, SessionError> {
        let compute = match Compute::new(&connection) {
            Ok(compute) => Some(compute),
            Err(FunctionError::NoCompute { .. }) => None,
            Err(error) => return Err(SessionError::device(&name, error)),
        };
        Ok(Self {
            name,
            connection,
            compute,
            programs: Memo::default(),
            unloading: RwLock::new(()),
            uses: AtomicU64::new(0),
            round_trip_ns: AtomicU64::new(u64::MAX),
            running: AtomicU32::new(0),
            crowds: AtomicU64::new(0),
            waits: Mutex::default(),
            crowd: Default::default(),
            short_runs: Arc::new(Semaphore::new(SHORT_RUNS_MAX)),
        })
    }

    /// The turns of short runs: who has one sends its call, and gives it back when the call has ended.
    pub(super) fn short_runs(&self) -> &Arc<Semaphore> {
        &self.short_runs
    }

    /// Whether the target cannot be reached now, as far as is known.
    pub(super) fn is_lost(&self) -> bool {
        self.connection.state() != ConnectionState::Up
    }

    /// Whether nobody tries to reach the target any more.
    pub(super) fn is_ended(&self) -> bool {
        self.connection.state() == ConnectionState::Ended
    }

    pub(super) fn compute(&self) -> Result<&Compute, SessionError> {
        self.compute.as_ref().ok_or_else(|| {
            let subsystem = self.connection.controller().subsystem.as_str().to_owned();
            SessionError::device(&self.name, FunctionError::NoCompute { subsystem })
        })
    }

    pub(super) fn files(&self) -> Result<Files, SessionError> {
        Ok(Files::of(self.compute()?))
    }

    /// Whether the target has the function's program, as far as is known: then asking for it takes no time.
    pub(super) fn has_program(&self, function: &SessionFunction) -> bool {
        self.programs.get(&function.sha256()).is_some()
    }

    /// The function's program at the target, where it is loaded if it was not.
    pub(super) async fn program(&self, function: &SessionFunction) -> Result<Arc<LoadedProgram>, SessionError> {
        self.program_of(function.sha256(), function.object()).await
    }

    /// The program with this object, whose SHA-256 this is.
    pub(super) async fn program_of(&self, sha256: [u8; 32], object: &[u8]) -> Result<Arc<LoadedProgram>, SessionError> {
        let load = async {
            let loaded = self.load(self.compute()?, object).await;
            let Program { index, own, .. } = loaded.map_err(|error| SessionError::device(&self.name, error))?;
            Ok::<_, SessionError>(Arc::new(LoadedProgram { index, own, used: AtomicU64::new(0) }))
        };
        let program = self.programs.get_or_make(sha256, |_| true, load).await?;
        program.used.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Ok(program)
    }

    /// Loads a program. Where the target has no room for one more, those go that this session has used least recently and that no
    /// call of it has: they are loaded again when they are asked for.
    async fn load(&self, compute: &Compute, object: &[u8]) -> Result<Program, FunctionError> {
        let first = {
            let _others_load_too = self.unloading.read().await;
            compute.load_soon(object).await
        };
        let mut error = match first {
            Err(error) if is_full(&error) => error,
            loaded => return loaded,
        };
        let _alone = self.unloading.write().await;
        loop {
            let is_idle = |program: &Arc<LoadedProgram>| program.own && Arc::strong_count(program) == 1;
            let oldest = |program: &_| is_idle(program).then(|| program.used.load(Ordering::Relaxed));
            let Some(program) = self.programs.take_least(oldest) else { return Err(error) };
            match compute.unload_soon(program.index).await {
                Err(error) if error.is_loss() => return Err(error),
                // Another session of this host may have calls of it: then another one has to go.
                _ => {}
            }
            error = match compute.load_soon(object).await {
                Err(error) if is_full(&error) => error,
                loaded => return loaded,
            };
        }
    }

    /// The target says that a program is gone: it forgets those of a host that was away.
    pub(super) fn forget_programs(&self) {
        self.programs.clear();
    }

    /// Takes note of how long a short exchange took; the shortest of late counts.
    pub(super) fn note_round_trip(&self, took: Duration) {
        let took_ns = took.as_nanos() as u64;
        let known_ns = self.round_trip_ns.load(Ordering::Relaxed);
        // Rises by an eighth each time that nothing was as fast.
        let next_ns = took_ns.min(known_ns.saturating_add(known_ns / 8));
        self.round_trip_ns.store(next_ns, Ordering::Relaxed);
    }

    pub(super) fn round_trip_s(&self) -> f64 {
        match self.round_trip_ns.load(Ordering::Relaxed) {
            u64::MAX => 0.0,
            ns => ns as f64 * 1e-9,
        }
    }

    /// Counts a call at the device until the guard is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> Running {
        let running = self.running.fetch_add(1, Ordering::Relaxed) + 1;
        if running > self.engines() {
            self.crowds.fetch_add(1, Ordering::Relaxed);
        }
        let crowds = (running <= self.engines()).then(|| self.crowds.load(Ordering::Relaxed));
        Running { link: Arc::clone(self), crowds }
    }

    /// Counts a request on a side until what it gives is dropped.
    pub(super) fn enter(&self, side: Side) -> Present {
        self.crowd[side as usize].enter()
    }

    /// Requests of this session that run on a side now.
    pub(super) fn at_once(&self, side: Side) -> u32 {
        self.crowd[side as usize].running()
    }

    fn engines(&self) -> u32 {
        self.compute.as_ref().map_or(1, |compute| compute.capabilities().engines.get().max(1)).into()
    }

    /// Whether the next one who wants to know how long turns take has to ask the target.
    pub(super) fn asks_for_turns(&self) -> bool {
        self.lock_waits().is_doubtful()
    }

    /// How long other hosts make a turn of a call wait.
    pub(super) async fn turn_s(&self) -> f64 {
        {
            let mut known = self.lock_waits();
            if !known.is_doubtful() {
                return known.waits.turn_s();
            }
            // This one asks, without the lock; others use what is known meanwhile.
            known.heard = Some(Instant::now());
        }
        let page = match &self.compute {
            Some(compute) => compute.statistics_soon().await.ok(),
            None => None,
        };
        let mut known = self.lock_waits();
        if let Some((page, _)) = page {
            known.heard = Some(Instant::now());
            if page.queued.get() == 0 && page.engines_busy.get() < page.engines.get() {
                known.waits.clear();
            }
        }
        known.waits.turn_s()
    }

    fn lock_waits(&self) -> MutexGuard<'_, KnownWaits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls of this session for each engine before a new one.
    pub(super) fn waiting(&self) -> f64 {
        let running = self.running.load(Ordering::Relaxed);
        f64::from(running.saturating_sub(self.engines())) / f64::from(self.engines())
    }
}

/// Whether the target has no room for one more program.
fn is_full(error: &FunctionError) -> bool {
    let full = [
        Status::INSUFFICIENT_PROGRAM_RESOURCES,
        Status::MAXIMUM_PROGRAMS_ACTIVATED,
        Status::MAXIMUM_PROGRAM_BYTES_EXCEEDED,
    ];
    matches!(error, FunctionError::NoIndex { .. }) || full.iter().any(|status| error.is_status(*status))
}

/// A call at a device.
#[derive(Debug)]
pub(super) struct Running {
    link: Arc<Link>,
    /// As they were counted when it began, if this session's calls did not have to wait for each other then.
    crowds: Option<u64>,
}

impl Running {
    /// Takes note of how long it waited for its turns, unless it may have waited for this session's own calls.
    pub(super) fn note_wait(&self, waited: Duration, turns: u64) {
        if self.crowds == Some(self.link.crowds.load(Ordering::Relaxed)) {
            let mut known = self.link.lock_waits();
            known.waits.note(waited.as_secs_f64(), turns);
            known.heard = Some(Instant::now());
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.link.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Asks the target which subsystem it has.
fn with_subsystem(url: &Url, options: &ConnectOptions) -> Result<Url, SessionError> {
    let found = discover(url, options).map_err(|source| SessionError::Target { target: url.to_string(), source })?;
    let port = url.port.unwrap_or(diskside_host::PORT_DEFAULT).to_string();
    let entries: Vec<_> =
        found.into_iter().filter(|entry| entry.kind == NVM_SUBSYSTEM && entry.transport == TCP).collect();
    // A forwarded port is not what the target calls its own: then whatever it has is meant.
    let is_forwarded = entries.iter().all(|entry| entry.service != port);
    let mut names: Vec<Nqn> = Vec::new();
    for entry in entries {
        if (is_forwarded || entry.service == port) && !names.contains(&entry.nqn) {
            names.push(entry.nqn);
        }
    }
    if names.is_empty()
        && let Some(joined_as) = options.other_name(url)
    {
        return Err(SessionError::Target { target: url.to_string(), source: HostError::NotListed { joined_as } });
    }
    let why = match &names[..] {
        [only] => return Ok(Url { subsystem: Some(only.clone()), ..url.clone() }),
        [] => {
            "it lists no subsystem that this host may use; let the host in there (diskside key allow, or diskside serve --hosts \
             NQN,...), or connect as a host that may (--key FILE, --hostnqn NQN)"
        }
        _ => "it lists several subsystems; files are found only where there is one",
    };
    Err(SessionError::Unsupported { name: url.to_string(), why })
}
