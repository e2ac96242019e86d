//! The environment of functions: engine, programs, scheduling, and the parts of the target that they read and write.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use diskside_engine::{Engine, Turns};
use diskside_export::Exports;
use diskside_rights::QuotaTable;
use diskside_scan::Program;
use diskside_volume::cache::BlockCache;
use diskside_volume::stats::{AccessesByHost, Registry};
use diskside_volume::{Volume, VolumeTable};

use crate::ComputeConfig;
use crate::call::answer::Problem;
use crate::call::runs::AllRuns;
use crate::host::SharedStates;
use crate::limits::PROGRAM_LEN_MAX;
use crate::program::programs::{ProgramLimits, Programs};
use crate::reactors::Reactors;
use crate::schedule::clock::Clock;
use crate::schedule::compilers::Compilers;
use crate::schedule::merged::Merged;
use crate::schedule::permits::{Gate, HostTurns, Turn, Waited};
use crate::schedule::pool::{Pool, PoolLimits};
use crate::schedule::quota::Ledger;
use crate::schedule::yield_to_reactor::Way;
use crate::standard::charge::DeviceMemory;
use crate::standard::state::Standard;
use crate::statistics::counters::Statistics;
use crate::statistics::failures::Failures;
use crate::statistics::reasons::Reasons;
use crate::watch::Watch;

/// Threads that run calls, many of them waiting for disks.
const THREADS_MAX: usize = 64;
/// Work of one host at a time that its calls must not delay, and threads that are kept for it.
const HOST_PROMPT_MAX: usize = 4;
const PROMPT_THREADS: usize = 8;
/// Threads beside those, of calls that wait for their hosts to read or to send.
const PARKED_MAX: usize = 192;
/// Calls of one host that wait for a thread.
const HOST_QUEUE_MAX: usize = 1024;

/// All of it, shared by the controllers of all hosts.
#[derive(Debug)]
pub(crate) struct Environment {
    pub(crate) config: ComputeConfig,
    pub(crate) engine: Engine,
    /// No call begins any more.
    pub(crate) is_ending: AtomicBool,
    pub(crate) programs: Programs,
    /// The program that scans files; `None`: there are no scans here.
    pub(crate) scanner: Option<Program>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) compilers: Arc<Compilers>,
    pub(crate) way: Arc<Way>,
    pub(crate) pool: Pool,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) clock: Clock,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) statistics: Statistics,
    /// Calls by host, since the server started.
    pub(crate) calls_by_host: AccessesByHost,
    /// What counts calls of prepared requests.
    pub(crate) runs: AllRuns,
    /// What failed lately.
    pub(crate) failures: Failures,
    /// Calls by why their hosts chose this side.
    pub(crate) reasons: Reasons,
    pub(crate) volumes: Arc<VolumeTable>,
    pub(crate) volume_stats: Arc<Registry>,
    pub(crate) exports: Arc<Exports>,
    /// The memory namespace that hosts share, if there are any.
    pub(crate) standard: Option<Arc<Standard>>,
    /// The memory namespaces of the others.
    pub(crate) device_memory: Arc<DeviceMemory>,
    pub(crate) shared_states: SharedStates,
    /// Clears of volumes, by their serial numbers.
    pub(crate) clears: Merged<Box<dyn Clearing>>,
    pub(crate) quotas: Arc<QuotaTable>,
    pub(crate) reactors: Arc<dyn Reactors>,
    pub(crate) watch: Arc<dyn Watch>,
    pub(crate) has_spare_processors: bool,
}

/// Hands work to a thread. False: there is no room for it.
pub(crate) type Submitter = Box<dyn FnOnce(Box<dyn FnOnce() + Send>) -> bool>;

/// One who waits for volumes to be cleared of what is cached.
pub(crate) trait Clearing: fmt::Debug + Send {
    /// Whether something of its host may not be on the medium yet.
    fn writes(&self, volume: &Volume) -> bool;

    /// Hands work to a thread as work of its host.
    fn submitter(&self) -> Submitter;

    /// A volume was cleared, or not: the next one, or the answer.
    fn next(self: Box<Self>, cleared: Result<(), Problem>);
}

/// What of the target functions work with.
pub struct Surroundings {
    /// The volumes by namespace ID.
    pub volumes: Arc<VolumeTable>,
    /// What hosts did with them.
    pub volume_stats: Arc<Registry>,
    /// The exported directories.
    pub exports: Arc<Exports>,
    /// How much hosts may take.
    pub quotas: Arc<QuotaTable>,
    /// Who hands commands over.
    pub reactors: Arc<dyn Reactors>,
    /// Hears what hosts load and run.
    pub watch: Arc<dyn Watch>,
    /// The processors that reactors are pinned to: functions run on the others, if there are any.
    pub reactor_cores: Vec<usize>,
    /// Whether there are more processors than reactors.
    pub has_spare_processors: bool,
}

impl Environment {
    /// Verifies the shipped functions and starts the clock.
    pub(crate) fn new(config: ComputeConfig, surroundings: Surroundings) -> io::Result<Self> {
        let engine = Engine::new(diskside_sbpf::helpers::standard()).with_llvm_if_found();
        let limits = ProgramLimits {
            indexes: config.programs.into(),
            len_max: PROGRAM_LEN_MAX,
            total_len_max: config.program_memory.bytes() as usize,
            host_programs_max: config.host_programs.into(),
            active_max: config.active_programs.into(),
        };
        let programs = Programs::new(&engine, limits).map_err(io::Error::other)?;
        let limits = PoolLimits {
            threads_max: THREADS_MAX,
            host_calls_max: config.host_calls,
            memory: config.calls_memory(),
            host_queue_max: HOST_QUEUE_MAX,
            host_prompt_max: HOST_PROMPT_MAX,
            prompt_threads: PROMPT_THREADS,
            parked_max: PARKED_MAX,
        };
        let has_spare_processors = surroundings.has_spare_processors;
        let pool = Pool::beside(limits, surroundings.reactor_cores.clone());
        let (gate, clock) = (Arc::new(Gate::new(config.engines)), Clock::start()?);
        let ledger = Ledger::new(config.kept_memory());
        let cache = Arc::new(BlockCache::new(config.cache.bytes()));
        let (standard, device_memory) = (Standard::new(&config).map(Arc::new), DeviceMemory::new(&config));
        let Surroundings { volumes, volume_stats, exports, quotas, reactors, watch, .. } = surroundings;
        Ok(Self {
            config,
            engine,
            is_ending: AtomicBool::new(false),
            programs,
            scanner: Program::find().map(Program::with_spare),
            compilers: Arc::new(Compilers::new(&gate, &pool)),
            gate,
            way: Arc::new(Way::new(Arc::clone(&reactors))),
            pool,
            ledger,
            clock,
            cache,
            statistics: Statistics::new(),
            calls_by_host: AccessesByHost::default(),
            runs: AllRuns::default(),
            failures: Failures::default(),
            reasons: Reasons::default(),
            volumes,
            volume_stats,
            exports,
            standard,
            device_memory,
            shared_states: SharedStates::default(),
            clears: Merged::default(),
            quotas,
            reactors,
            watch,
            has_spare_processors,
        })
    }

    /// Turns for the threads of a call, which note how long they waited.
    pub(crate) fn turns(&self, turn: Turn, waited: &Arc<Waited>) -> Arc<dyn Turns> {
        HostTurns::of((&self.gate, &self.compilers), &self.way, turn, waited)
    }
}
