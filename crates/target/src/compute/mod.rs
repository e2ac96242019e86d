//! Functions at the target: the compute namespace and its commands (`docs/wire.md`), beside the reactors.
//!
//! | Module | What it decides |
//! |---|---|
//! | `tags` | which Send and Receive belong together, what waits, who gets which bytes (no I/O) |
//! | `association` | one controller: carries out what its tags say |
//! | `job` | a call, from its request to its trailer, on a thread of the pool |
//! | `prepared` | Function Calls; small ones run on the reactor itself |
//! | `traverse` | chains of dependent reads; those in memory run on the reactor itself |
//! | `programs`, `usage` | what is loaded, verified and active, and what of it runs |
//! | `peers` | which hosts and controllers there are |
//! | `ledger` | what each host makes the target hold, and whether there is room for more |
//! | `pool`, `gate` | how many calls run and compute at a time, shared fairly among hosts |
//! | `cache` | blocks of volumes that one call read, kept for the next |
//! | `blocking`, `sink`, `input` | volumes, files and hosts as sources and sinks of threads that may wait |
//! | `metered`, `statistics` | what was read, run and written |
//! | `layouts`, `layout_sink` | files that hosts have on volumes which they mounted |
//! | `standard` | memory, range sets and Execute Program, as the specifications have them |
//! | `clock` | ends what has waited long enough |
//!
//! A reactor hands a command over and never waits: what takes time happens on threads of the pool, whose answers come
//! back through the reactor's mailbox.

pub(crate) mod answer;
pub(crate) mod association;
mod blocking;
mod cache;
mod clock;
mod control;
mod gate;
mod host;
mod input;
mod job;
mod layout_sink;
mod layouts;
mod ledger;
mod logs;
mod metered;
mod peers;
mod pool;
mod prepared;
mod programs;
mod result;
#[cfg(test)]
mod simulation;
mod sink;
pub(crate) mod standard;
mod statistics;
mod tags;
mod trailer;
pub(crate) mod traverse;
mod usage;
mod way;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use diskside_engine::Engine;
use diskside_nvme::controller::{BlockSize, CommandSet, MediumId, Namespace};
use diskside_nvme::wire::CommandEffects;
use diskside_nvme::wire::function::{CSI_COMPUTE, CSI_SLM, function_log, function_opcode, program_opcode};

use self::answer::Answer;
use self::association::{Association, Name};
pub(crate) use self::blocking::READS_AT_ONCE;
pub(crate) use self::cache::BlockCache;
use self::clock::Clock;
use self::gate::Gate;
use self::ledger::Ledger;
pub(crate) use self::ledger::{Bounds, Holding};
pub(crate) use self::logs::answer as log_answer;
use self::peers::Peers;
use self::pool::{Pool, PoolLimits};
use self::programs::{ProgramLimits, Programs};
use self::standard::Standard;
use self::statistics::Statistics;
use self::way::Way;
use crate::config::ComputeConfig;
use crate::export::Exports;
use crate::shared::{Mailbox, Message};
use crate::stats::Registry;
use crate::volume::VolumeTable;

/// The function commands that are answered, and their entries of the effects log.
pub(crate) const COMMANDS: &[(u8, u32)] = &[
    (function_opcode::SEND, CommandEffects::CHANGES_BLOCKS),
    (function_opcode::RECEIVE, 0),
    (function_opcode::CANCEL, 0),
    (function_opcode::CALL, CommandEffects::CHANGES_BLOCKS),
    (function_opcode::CLEAR, 0),
    (function_opcode::LAYOUT_SEND, 0),
];
/// Bounds of one controller's tags.
pub(crate) const TAG_LIMITS: tags::Limits = tags::Limits { tags_max: 256, send_bytes_max: 16 << 20 };
/// The most bytes of a program.
pub(crate) const PROGRAM_LEN_MAX: usize = 4 << 20;
/// Threads that run calls, most of them waiting for disks and hosts.
const THREADS_MAX: usize = 64;
/// Work of one host at a time that its calls must not hold up, and threads that are kept for it.
const HOST_PROMPT_MAX: usize = 4;
const PROMPT_THREADS: usize = 8;
/// Calls of one host that wait for a thread.
const HOST_QUEUE_MAX: usize = 1024;

/// What computes, shared by all reactors.
pub(crate) struct Compute {
    pub(crate) config: ComputeConfig,
    pub(crate) engine: Engine,
    pub(crate) programs: Programs,
    pub(crate) gate: Arc<Gate>,
    pub(crate) way: Arc<Way>,
    pub(crate) pool: Pool,
    pub(crate) ledger: Arc<Ledger>,
    clock: Clock,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) statistics: Statistics,
    pub(crate) volumes: Arc<VolumeTable>,
    pub(crate) volume_stats: Arc<Registry>,
    pub(crate) exports: Arc<Exports>,
    /// The memory namespace, if there is one.
    pub(crate) standard: Option<Standard>,
    mailboxes: Arc<OnceLock<Vec<Arc<Mailbox>>>>,
    peers: Mutex<Peers<Association>>,
    me: Weak<Self>,
}

/// What of the target functions work with.
pub(crate) struct Surroundings {
    pub(crate) volumes: Arc<VolumeTable>,
    pub(crate) volume_stats: Arc<Registry>,
    pub(crate) exports: Arc<Exports>,
    pub(crate) mailboxes: Arc<OnceLock<Vec<Arc<Mailbox>>>>,
}

impl Compute {
    /// Verifies the shipped functions and starts the clock.
    pub(crate) fn start(config: ComputeConfig, surroundings: Surroundings) -> io::Result<Arc<Self>> {
        let engine = Engine::new(diskside_sbpf::helpers::standard()).with_llvm_if_found();
        let limits = ProgramLimits {
            indexes: config.programs.into(),
            len_max: PROGRAM_LEN_MAX,
            total_len_max: config.program_memory.bytes() as usize,
            host_programs_max: config.host_programs.into(),
            active_max: config.active_programs.into(),
        };
        let programs = Programs::new(&engine, limits).map_err(io::Error::other)?;
        let pool = Pool::new(PoolLimits {
            threads_max: THREADS_MAX,
            host_calls_max: config.host_calls,
            memory: config.calls_memory(),
            host_queue_max: HOST_QUEUE_MAX,
            host_prompt_max: HOST_PROMPT_MAX,
            prompt_threads: PROMPT_THREADS,
        });
        let (gate, clock) = (Arc::new(Gate::new(config.engines)), Clock::start()?);
        let ledger = Ledger::new(config.kept_memory());
        let cache = Arc::new(BlockCache::new(config.cache.bytes()));
        let standard = Standard::new(&config);
        let Surroundings { volumes, volume_stats, exports, mailboxes } = surroundings;
        Ok(Arc::new_cyclic(|me| Self {
            config,
            engine,
            programs,
            gate,
            way: Arc::new(Way::new(Arc::clone(&mailboxes))),
            pool,
            ledger: Arc::clone(&ledger),
            clock,
            cache,
            statistics: Statistics::new(),
            volumes,
            volume_stats,
            exports,
            standard,
            mailboxes,
            peers: Mutex::new(Peers::new(ledger)),
            me: me.clone(),
        }))
    }

    /// What the subsystem is told of it.
    pub(crate) fn command_sets(config: &ComputeConfig) -> Vec<CommandSet> {
        let mut compute = CommandSet {
            csi: CSI_COMPUTE,
            io_commands: COMMANDS.to_vec(),
            admin_commands: vec![(program_opcode::LOAD, 0), (program_opcode::ACTIVATION, 0)],
            log_pages: function_log::ALL.to_vec(),
            identify: false,
        };
        if config.memory.bytes() == 0 {
            return vec![compute];
        }
        compute.io_commands.extend_from_slice(standard::IO_COMMANDS);
        compute.admin_commands.extend_from_slice(standard::ADMIN_COMMANDS);
        compute.log_pages.extend_from_slice(&standard::LOG_PAGES);
        compute.identify = true;
        vec![compute, Standard::command_set()]
    }

    /// The compute namespace and the memory namespace. `uuid` makes an identifier from a
    /// name, which no volume can have because of its NUL.
    pub(crate) fn namespaces(&self, uuid: impl Fn(&str) -> [u8; 16]) -> Vec<Namespace> {
        let namespace = |nsid: u32, csi: u8, name: &str| Namespace {
            nsid,
            medium: MediumId(u64::MAX),
            csi,
            blocks: 0,
            block_size: BlockSize::B4096,
            read_only: false,
            deallocate: false,
            uuid: uuid(name),
        };
        let compute = namespace(self.config.nsid, CSI_COMPUTE, "\0compute");
        let memory = self.standard.as_ref().map(|standard| namespace(standard.nsid(), CSI_SLM, "\0memory"));
        [Some(compute), memory].into_iter().flatten().collect()
    }

    /// Whether one of them has this identifier.
    pub(crate) fn has_nsid(&self, nsid: u32) -> bool {
        nsid == self.config.nsid || self.standard.as_ref().is_some_and(|standard| nsid == standard.nsid())
    }

    /// The controller of a connection.
    pub(crate) fn association(&self, id: u64, nqn: &str) -> Option<Arc<Association>> {
        let me = self.me.upgrade()?;
        Some(self.peers().join(id, nqn, |host| Association::new(id, host, me)))
    }

    /// A controller is gone.
    fn forget(&self, id: u64, nqn: &str) {
        self.programs.forget_controller(id);
        let mut peers = self.peers();
        // Nobody of this host comes in between.
        if peers.leave(id, nqn) {
            self.programs.forget_host(nqn);
            if let Some(standard) = &self.standard {
                standard.forget_host(nqn);
            }
        }
    }

    /// Tags that are open, of all controllers.
    fn tags_open(&self) -> usize {
        // The last one of a controller's owners must not go while the peers are locked.
        let all = self.peers().all();
        all.iter().map(|association| association.tags_open()).sum()
    }

    /// Hands an answer to the reactor whose connection it belongs to.
    fn deliver(&self, name: Name, answer: Answer) {
        if let Some(mailbox) = self.mailboxes.get().and_then(|mailboxes| mailboxes.get(name.reactor)) {
            mailbox.send(Message::Answer(Box::new((name, answer))));
        }
    }

    /// Stops every call and waits for it.
    pub(crate) fn stop(&self) {
        let all = self.peers().all();
        for association in all {
            association.lost(std::time::Instant::now(), u64::MAX);
        }
        self.pool.stop();
    }

    fn peers(&self) -> MutexGuard<'_, Peers<Association>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Compute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compute").field("config", &self.config).finish_non_exhaustive()
    }
}
