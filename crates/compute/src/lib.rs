//! Functions at the target: the compute namespace and its commands (`docs/wire.md`), beside the reactors.
//!
//! | Module | What it is |
//! |---|---|
//! | `controller` | one controller of a host, as far as it computes: carries out what its tags say |
//! | `call` | a call, from the parts of its request to its trailer |
//! | `endpoint` | what calls read and write |
//! | `schedule` | threads, permits and quotas, shared fairly among hosts |
//! | `program` | what is loaded, verified and active |
//! | `standard` | memory, range sets and Execute Program, as the specifications have them |
//! | `statistics` | what was run, read and written, and the log pages |
//! | `host`, `hosts` | the memory that is kept for a host, and which hosts and controllers there are |
//! | `environment`, `reactors` | the parts of the target with which functions work |
//! | `watch` | hears what hosts load and run |
//! | `config`, `limits` | the functions that may run, and how much they may use |
//!
//! A reactor hands a command over and never waits: what takes time happens on threads of the pool, whose answers come
//! back through the reactor's mailbox.

#![forbid(unsafe_code)]

mod call;
mod config;
mod controller;
mod endpoint;
mod environment;
#[doc(hidden)]
pub mod fuzz;
mod host;
mod hosts;
#[doc(hidden)]
pub mod internal;
mod limits;
mod program;
mod reactors;
mod schedule;
mod standard;
mod statistics;
mod watch;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use diskside_nvme::controller::{BlockSize, CommandSet, HostReservations, MediumId, Namespace};
use diskside_nvme::wire::{CSI_COMPUTE, CSI_SLM, program_opcode};
use diskside_rights::HostRights;
use diskside_volume::stats::{AccessStats, LatencyStats};
use diskside_wire::function::{StatisticsEntry, StatisticsPage, function_log};

pub use call::answer::{Answer, Piece, SHORT_LEN_MAX};
pub use call::traverse::{AwaitedRead, ReadId};
pub use config::{ComputeConfig, ComputeSettings, ConfigProblem};
pub use controller::{Answers, Command, FileRead};
pub use diskside_engine::LlvmOptions;
pub use environment::Surroundings;
pub use host::STATE_BYTES_MAX;
pub use reactors::{Name, Reactors};
pub use schedule::quota::Holding;
pub use schedule::turn_share::{NextTurn, PutOff, Share, Shares};
pub use statistics::failures::Failure;
pub use watch::{ProgramEvent, Watch};

pub use crate::controller::Association;
use crate::environment::Environment;
use crate::host::Host;
use crate::hosts::Peers;
use crate::limits::COMMANDS;
use crate::schedule::clock::Timed;
use crate::standard::Standard;
use crate::statistics::log_pages;

/// What computes, shared by all reactors.
pub struct Compute {
    environment: Arc<Environment>,
    peers: Mutex<Peers<Association>>,
    /// The clock is to look at all calls' reservations.
    reservations_moved: AtomicBool,
    me: Weak<Self>,
}

impl Compute {
    /// Verifies the shipped functions and starts the clock.
    pub fn start(config: ComputeConfig, surroundings: Surroundings) -> io::Result<Arc<Self>> {
        let environment = Arc::new(Environment::new(config, surroundings)?);
        let peers = Mutex::new(Peers::new(Arc::clone(&environment.ledger), Arc::clone(&environment.quotas)));
        let reservations_moved = AtomicBool::new(false);
        Ok(Arc::new_cyclic(|me| Self { environment, peers, reservations_moved, me: me.clone() }))
    }

    /// The command sets that the subsystem reports.
    pub fn command_sets(config: &ComputeConfig) -> Vec<CommandSet> {
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
    pub fn namespaces(&self, uuid: impl Fn(&str) -> [u8; 16]) -> Vec<Namespace> {
        let namespace = |nsid: u32, csi: u8, name: &str| Namespace {
            nsid,
            medium: MediumId(u64::MAX),
            csi,
            blocks: 0,
            block_size: BlockSize::B4096,
            atomic_blocks: 1,
            delta_len_max: 0,
            read_only: false,
            deallocate: false,
            uuid: uuid(name),
        };
        let compute = namespace(self.environment.config.nsid, CSI_COMPUTE, "\0compute");
        let memory = self.environment.standard.as_ref().map(|standard| namespace(standard.nsid(), CSI_SLM, "\0memory"));
        [Some(compute), memory].into_iter().flatten().collect()
    }

    /// Whether one of them has this identifier.
    pub fn has_nsid(&self, nsid: u32) -> bool {
        nsid == self.environment.config.nsid
            || self.environment.standard.as_ref().is_some_and(|standard| nsid == standard.nsid())
    }

    /// The controller of a connection, whose host has these rights, and to which volumes are reserved so.
    pub fn association(
        &self,
        id: u64,
        nqn: &str,
        rights: impl FnOnce() -> (HostRights, HostReservations),
    ) -> Option<Arc<Association>> {
        let me = self.me.upgrade()?;
        let environment = || Arc::clone(&self.environment);
        Some(self.peers().join(id, nqn, |host| Association::new(id, host, rights(), environment(), me)))
    }

    /// A controller is gone.
    fn forget(&self, id: u64, nqn: &str) {
        self.environment.programs.forget_controller(id);
        let mut peers = self.peers();
        // Nobody of this host comes in between.
        if peers.leave(id, nqn) {
            self.environment.programs.forget_host(nqn);
            if let Some(standard) = &self.environment.standard {
                standard.forget_host(nqn);
            }
        }
    }

    /// The host of this name, while it has a controller that computes.
    fn host(&self, nqn: &str) -> Option<Arc<Host>> {
        self.peers().host(nqn)
    }

    /// Tags that are open, of all controllers, or of those of one host.
    fn tags_open(&self, host: Option<u64>) -> usize {
        // The last one of a controller's owners must not go while the peers are locked.
        let all = self.peers().all();
        let counted = all.iter().filter(|association| host.is_none_or(|host| association.host_id() == host));
        counted.map(|association| association.tags_open()).sum()
    }

    /// The counters of everything since the start, as hosts see them that may see all.
    pub fn statistics(&self) -> (StatisticsPage, Vec<StatisticsEntry>) {
        self.environment.runs.count();
        log_pages::everything(&self.environment, self)
    }

    /// How long calls took, by the number that their function has in [`statistics`](Self::statistics).
    pub fn latencies(&self) -> BTreeMap<u32, LatencyStats> {
        self.environment.statistics.latencies()
    }

    /// Calls by host since the server started: their number, bytes that they read and gave, and the time in which they ran.
    pub fn calls_by_host(&self) -> BTreeMap<String, AccessStats> {
        self.environment.runs.count();
        self.environment.calls_by_host.stats()
    }

    /// Failures of late, the newest first: some of each host.
    pub fn failures(&self) -> Vec<Failure> {
        self.environment.failures.all()
    }

    /// Calls that came here because their hosts chose so, by the word that these have for why.
    pub fn calls_by_reason(&self) -> BTreeMap<String, u64> {
        self.environment.reasons.counts()
    }

    /// Calls that run, or wait for a thread.
    pub fn working(&self) -> usize {
        self.environment.pool.working()
    }

    /// Calls whose results hosts have not fetched yet.
    pub fn calls_open(&self) -> usize {
        self.tags_open(None)
    }

    /// Refuses calls from now on, like a target that has too much to do: hosts try again. Calls that have begun
    /// continue.
    pub fn take_no_more(&self) {
        self.environment.is_ending.store(true, Ordering::Relaxed);
    }

    /// Rights of hosts, or what is exported, have changed: ends calls that use what their hosts may not use any more, with the results
    /// that nobody took yet.
    pub fn rights_changed(&self) {
        let all = self.peers().all();
        all.iter().for_each(Association::rights_changed);
    }

    /// The same of reservations. Never waits: a host that makes many changes has them looked at together, by the clock. Each piece
    /// of output asks by itself.
    pub fn reservations_changed(&self) {
        if !self.reservations_moved.swap(true, Ordering::AcqRel) {
            let me: Weak<dyn Timed> = self.me.clone();
            self.environment.clock.arm(Instant::now(), CLOCK_ID, me);
        }
    }

    /// Stops every call and waits for it.
    pub fn stop(&self) {
        let all = self.peers().all();
        for association in all {
            association.lost(Instant::now(), u64::MAX);
        }
        self.environment.pool.stop();
    }

    fn peers(&self) -> MutexGuard<'_, Peers<Association>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells it apart from controllers, which the clock wakes, too.
const CLOCK_ID: u64 = u64::MAX;

impl Timed for Compute {
    fn timed_out(self: Arc<Self>, _now: Instant) {
        // First: what changes from here on is looked at again.
        self.reservations_moved.store(false, Ordering::Release);
        self.rights_changed();
    }
}

impl fmt::Debug for Compute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compute").field("config", &self.environment.config).finish_non_exhaustive()
    }
}
