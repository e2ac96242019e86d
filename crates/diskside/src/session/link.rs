//! One target of a session.

use super::error::SessionError;
use super::function::SessionFunction;
use diskside_dispatch::Waits;
use diskside_host::function::{Compute, Files, FunctionError};
use diskside_host::{ConnectOptions, Connection, ConnectionState, Url, discover};
use diskside_nvme::Nqn;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A connection with what is known of its target.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) name: String,
    pub(super) connection: Connection,
    /// `None`: it runs no functions and has no exports.
    compute: Option<Compute>,
    /// Index at the target by content hash.
    programs: Mutex<HashMap<u64, u16>>,
    round_trip_ns: AtomicU64,
    running: AtomicU32,
    /// How often calls of this session were more than the target has engines.
    crowds: AtomicU64,
    waits: Mutex<KnownWaits>,
}

/// What calls waited for because of other hosts.
#[derive(Debug, Default)]
struct KnownWaits {
    waits: Waits,
    /// When the target last said something of it.
    told: Option<Instant>,
}

/// What a turn may wait without a question to the target.
const WAIT_SHORT_S: f64 = 1e-3;
/// What was told longer ago may be over: while nothing runs at the target, no call tells.
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
            programs: Mutex::default(),
            round_trip_ns: AtomicU64::new(u64::MAX),
            running: AtomicU32::new(0),
            crowds: AtomicU64::new(0),
            waits: Mutex::default(),
        })
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

    /// The function's index at the target, where it is loaded if it was not.
    pub(super) fn program(&self, function: &SessionFunction) -> Result<u16, SessionError> {
        self.program_of(function.hash(), function.object())
    }

    /// The index of the program with this object, whose content hash is `hash`.
    pub(super) fn program_of(&self, hash: u64, object: &[u8]) -> Result<u16, SessionError> {
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = programs.get(&hash) {
            return Ok(*index);
        }
        let program = self.compute()?.load(object, hash);
        let program = program.map_err(|error| SessionError::device(&self.name, error))?;
        programs.insert(hash, program.index);
        Ok(program.index)
    }

    /// The target says that a program is gone: it forgets those of a host that was away.
    pub(super) fn forget_programs(&self) {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner).clear();
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

    fn engines(&self) -> u32 {
        self.compute.as_ref().map_or(1, |compute| compute.capabilities().engines.get().max(1)).into()
    }

    /// How long other hosts make a turn of a call wait.
    pub(super) fn turn_s(&self) -> f64 {
        let mut known = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = known.told.is_none_or(|told| told.elapsed() > WAIT_OLD);
        if known.waits.turn_s() > WAIT_SHORT_S
            && is_old
            && let Some(Ok((page, _))) = self.compute.as_ref().map(Compute::statistics)
        {
            known.told = Some(Instant::now());
            if page.queued.get() == 0 && page.engines_busy.get() < page.engines.get() {
                known.waits.clear();
            }
        }
        known.waits.turn_s()
    }

    /// Calls of this session for each engine before a new one.
    pub(super) fn waiting(&self) -> f64 {
        let running = self.running.load(Ordering::Relaxed);
        f64::from(running.saturating_sub(self.engines())) / f64::from(self.engines())
    }
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
            let mut known = self.link.waits.lock().unwrap_or_else(PoisonError::into_inner);
            known.waits.note(waited.as_secs_f64(), turns);
            known.told = Some(Instant::now());
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
    let why = match &names[..] {
        [only] => return Ok(Url { subsystem: Some(only.clone()), ..url.clone() }),
        [] => "it lists no subsystem",
        _ => "it lists several subsystems; files are found only where there is one",
    };
    Err(SessionError::Unsupported { name: url.to_string(), why })
}
