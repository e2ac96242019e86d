//! The standard computing commands: Subsystem Local Memory, memory range sets and Execute Program
//! (`docs/standard.md`).
//!
//! There is one memory namespace. Its bytes are borrowed range by range: a command, or a program that runs, has its
//! ranges alone from its start to its end, and who asks for the same bytes meanwhile waits. So every command sees memory
//! as if commands ran one after the other where they overlap. A program that runs has all ranges of its execution,
//! whether it writes them or not.
//!
//! Everything here may wait and runs on threads of the pool.

mod copy;
pub(crate) mod endpoint;
mod execute;
mod pages;
mod sets;

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use diskside_io::buffer::{RangeGuard, RangeMemory};
use diskside_nvme::Status;
use diskside_nvme::controller::CommandSet;
use diskside_nvme::wire::function::CSI_SLM;
use diskside_nvme::wire::memory::{EXECUTE_PROGRAM, RANGE_SET_MANAGEMENT, memory_log, memory_opcode};
use diskside_nvme::wire::{CommandEffects, Sqe, admin_opcode, nvm_opcode};
use diskside_sbpf::machine::CancelToken;

use self::execute::Functions;
use self::sets::RangeSets;
use super::Compute;
use super::answer::{Answer, Problem};
use super::association::Association;
use super::ledger::HostBytes;
use crate::config::ComputeConfig;

/// The memory namespace and what goes with it.
#[derive(Debug)]
pub(crate) struct Standard {
    nsid: u32,
    memory: RangeMemory,
    sets: Mutex<RangeSets>,
    functions: Functions,
    /// How long a command waits in all.
    wait_max: Duration,
    /// How long a program may run.
    execution_max: Duration,
}

/// A command that a thread has.
#[derive(Debug)]
pub(crate) struct StandardCommand {
    sqe: Box<Sqe>,
    admin: bool,
    /// Data from the host.
    data: HostBytes,
    /// Pulled when nobody wants its answer any more.
    cancel: CancelToken,
    /// When all its waits are over: for a thread, for memory, and for room for its answer.
    until: Instant,
}

/// Starts and lengths of memory commands are multiples of this.
const MEMORY_GRANULARITY: u64 = 4;
const MEMORY_GRANULARITY_EXPONENT: u8 = 2;

/// I/O commands of the compute namespace that are answered here.
pub(crate) const IO_COMMANDS: &[(u8, u32)] = &[(EXECUTE_PROGRAM, CommandEffects::CHANGES_BLOCKS)];
/// Admin commands of the compute namespace that are answered here.
pub(crate) const ADMIN_COMMANDS: &[(u8, u32)] = &[(RANGE_SET_MANAGEMENT, 0)];
/// Log pages that are answered here.
pub(crate) const LOG_PAGES: [u8; 3] = [memory_log::PROGRAMS, memory_log::PROGRAM_TYPES, memory_log::RANGE_SETS];

impl StandardCommand {
    pub(crate) fn new(sqe: Box<Sqe>, admin: bool, data: HostBytes, (cancel, until): (CancelToken, Instant)) -> Self {
        Self { sqe, admin, data, cancel, until }
    }

    /// Bytes that it takes while it runs, beside its data.
    pub(crate) fn memory(&self) -> u64 {
        u64::from(self.sqe.sgl().len()) + if self.admin { 0 } else { copy::memory(&self.sqe, &self.data) }
    }
}

impl Standard {
    /// The memory namespace, if there is one.
    pub(crate) fn new(config: &ComputeConfig) -> Option<Self> {
        let len_bytes = config.memory.bytes();
        (len_bytes > 0).then(|| Self {
            nsid: config.memory_nsid,
            memory: RangeMemory::zeroed(len_bytes as usize),
            sets: Mutex::default(),
            functions: Functions::default(),
            wait_max: Duration::from_millis(config.memory_wait_ms.into()),
            execution_max: Duration::from_millis(config.execution_ms.into()),
        })
    }

    /// What the subsystem is told of memory namespaces.
    pub(crate) fn command_set() -> CommandSet {
        let effects = |opcode: u8| if opcode == memory_opcode::READ { 0 } else { CommandEffects::CHANGES_BLOCKS };
        CommandSet {
            csi: CSI_SLM,
            io_commands: memory_opcode::ALL.iter().map(|opcode| (*opcode, effects(*opcode))).collect(),
            admin_commands: Vec::new(),
            log_pages: Vec::new(),
            identify: true,
        }
    }

    /// The identifier of the memory namespace.
    pub(crate) fn nsid(&self) -> u32 {
        self.nsid
    }

    /// Whether a command is answered here.
    pub(crate) fn takes(&self, sqe: &Sqe, admin: bool) -> bool {
        match (admin, sqe.opcode()) {
            (true, RANGE_SET_MANAGEMENT | admin_opcode::IDENTIFY) => true,
            (true, admin_opcode::GET_LOG_PAGE) => LOG_PAGES.contains(&sqe.log_page()),
            (true, _) => false,
            (false, EXECUTE_PROGRAM | nvm_opcode::COPY) => true,
            (false, _) => sqe.nsid() == self.nsid,
        }
    }

    /// How long a command waits in all, for a thread, for memory, and for room for its answer.
    pub(crate) fn wait_max(compute: &Compute) -> Duration {
        compute.standard.as_ref().map_or(Duration::ZERO, |standard| standard.wait_max)
    }

    /// Carries a command out.
    pub(crate) fn run(association: &Arc<Association>, command: &StandardCommand) -> Answer {
        let Some(standard) = &association.compute.standard else { return Status::INVALID_OPCODE.dnr().into() };
        let StandardCommand { sqe, admin, data, .. } = command;
        // Whoever sent it went away while it was queued.
        if command.cancel.is_cancelled() {
            return Status::COMMAND_ABORT_REQUESTED.into();
        }
        let done = if *admin {
            standard.admin(association, sqe, data)
        } else if sqe.nsid() == standard.nsid {
            standard.memory_command(association, command)
        } else if sqe.opcode() == nvm_opcode::COPY {
            standard.copy_to_volume(association, command)
        } else {
            standard.execute(association, command)
        };
        done.unwrap_or_else(Into::into)
    }

    /// The host's last controller is gone: its range sets go too.
    pub(crate) fn forget_host(&self, host: &str) {
        self.sets().forget_host(host);
    }

    fn admin(&self, association: &Association, sqe: &Sqe, data: &[u8]) -> Result<Answer, Problem> {
        let compute = &association.compute;
        match sqe.opcode() {
            RANGE_SET_MANAGEMENT if sqe.nsid() == compute.config.nsid => self.manage_sets(association, sqe, data),
            RANGE_SET_MANAGEMENT => Err(Status::INVALID_NAMESPACE_OR_FORMAT.dnr().into()),
            admin_opcode::IDENTIFY => Ok(Answer::bytes(pages::identify(self, compute, sqe))),
            _ => Ok(super::logs::part(&pages::log(self, association, sqe.log_page())?, sqe)),
        }
    }

    fn memory_command(&self, association: &Association, command: &StandardCommand) -> Result<Answer, Problem> {
        let StandardCommand { sqe, data, until, .. } = command;
        if sqe.opcode() == memory_opcode::COPY {
            return self.copy_to_memory(association, command);
        }
        let range = self.range(sqe.memory_start(), sqe.memory_len().into(), MEMORY_GRANULARITY).map_err(in_command)?;
        let sgl_len = sqe.sgl().len() as usize;
        match sqe.opcode() {
            memory_opcode::READ if sgl_len < range.len() => Err(Status::DATA_SGL_LENGTH_INVALID.dnr().into()),
            memory_opcode::WRITE if data.len() != range.len() => Err(Status::DATA_SGL_LENGTH_INVALID.dnr().into()),
            memory_opcode::READ if range.is_empty() => Ok(Answer::success()),
            memory_opcode::READ => self.with(&[range], *until, |parts| Answer::bytes(parts[0].to_vec())),
            memory_opcode::WRITE => self.with(&[range], *until, |parts| {
                parts[0].copy_from_slice(data);
                Answer::success()
            }),
            memory_opcode::FILL => self.with(&[range], *until, |parts| {
                parts[0].fill(0);
                Answer::success()
            }),
            _ => Err(Status::INVALID_OPCODE.dnr().into()),
        }
    }

    /// Does something with ranges that nobody else has meanwhile.
    fn with<T>(
        &self,
        ranges: &[Range<usize>],
        until: Instant,
        act: impl FnOnce(&mut [&mut [u8]]) -> T,
    ) -> Result<T, Problem> {
        let mut guard = self.lock(ranges, until)?;
        Ok(act(&mut guard.parts()))
    }

    /// Waits for ranges, until then at the longest.
    fn lock(&self, ranges: &[Range<usize>], until: Instant) -> Result<RangeGuard<'_>, Problem> {
        // Whoever had them ends in time, too: the command can be sent again.
        let busy = || Problem::new(Status::COMMAND_INTERRUPTED, "a program, or another command, has this memory");
        self.memory.lock(ranges, Some(until)).ok_or_else(busy)
    }

    /// A range of the memory, if it is one.
    fn range(&self, start: u64, len: u64, granularity: u64) -> Result<Range<usize>, String> {
        if !start.is_multiple_of(granularity) || !len.is_multiple_of(granularity) {
            return Err(format!("{len} bytes at {start} do not start and end at a multiple of {granularity}"));
        }
        let size = self.memory.len() as u64;
        match start.checked_add(len).filter(|end| *end <= size) {
            Some(end) => Ok(start as usize..end as usize),
            None => Err(format!("{len} bytes at {start} do not lie in the namespace, which has {size} bytes")),
        }
    }

    fn sets(&self) -> MutexGuard<'_, RangeSets> {
        self.sets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn in_command(message: String) -> Problem {
    Problem::new(Status::INVALID_FIELD.dnr(), message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ServeConfig, Settings};

    /// A command waited for a thread, and then as long again for memory. With its own time Linux gave it up, and reset
    /// the controller.
    #[test]
    fn a_command_that_has_waited_for_a_thread_waits_no_longer_for_memory() {
        let toml = "[compute]\nmemory_wait_ms = 3600000";
        let config = Settings::from_toml(toml, "d.toml").and_then(ServeConfig::resolve).unwrap().compute;
        let standard = Standard::new(&config).unwrap();
        let now = |range: Range<usize>| standard.lock(std::slice::from_ref(&range), Instant::now());
        let has = now(0..4096).unwrap();
        let told = now(4000..8000).unwrap_err();
        assert_eq!(told.status, Status::COMMAND_INTERRUPTED);
        assert!(now(8192..8196).is_ok(), "what is free it gets");
        drop(has);
        assert!(now(4000..8000).is_ok());
    }
}
