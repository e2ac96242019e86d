//! The standard computing commands: Subsystem Local Memory, memory range sets and Execute Program
//! (`docs/standard.md`).
//!
//! There is one memory namespace. Its bytes are borrowed range by range: a command, or a program that runs, has its
//! ranges alone from its start to its end, and who asks for the same bytes meanwhile waits. So every command sees memory
//! as if commands ran one after the other where they overlap. A program that runs has all ranges of its execution,
//! whether it writes them or not.
//!
//! Everything here may wait and runs on threads of the pool.

pub(crate) mod charge;
mod copy;
mod execute;
mod functions;
mod launch;
mod pages;
mod sets;
pub(crate) mod state;

use std::sync::Arc;
use std::time::{Duration, Instant};

use diskside_nvme::Status;
use diskside_nvme::controller::CommandSet;
use diskside_nvme::wire::CSI_SLM;
use diskside_nvme::wire::memory::{EXECUTE_PROGRAM, RANGE_SET_MANAGEMENT, memory_log, memory_opcode};
use diskside_nvme::wire::{CommandEffects, Sqe, admin_opcode, nvm_opcode};

pub(crate) use self::state::Standard;
use crate::call::answer::{Answer, Problem};
use crate::call::context::CallContext;
use crate::call::control::Control;
use crate::call::used::{Lost, Used};
use crate::environment::Environment;
use crate::schedule::quota::HostBytes;

/// A command that a thread has.
#[derive(Debug)]
pub(crate) struct StandardCommand {
    sqe: Box<Sqe>,
    admin: bool,
    /// Data from the host.
    data: HostBytes,
    /// Stops it: nobody wants its answer any more, or its host lost a right.
    control: Arc<Control>,
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
    pub(crate) fn new(sqe: Box<Sqe>, admin: bool, data: HostBytes, (control, until): (Arc<Control>, Instant)) -> Self {
        Self { sqe, admin, data, control, until }
    }

    /// It is about to use this, if its host still may.
    fn uses(&self, context: &CallContext, used: Used) -> Result<(), Problem> {
        self.control.uses(context, [used]).map_err(Lost::problem)
    }

    /// Whether it may continue with the next of several parts.
    fn check(&self) -> Result<(), Problem> {
        if self.control.cancel.is_cancelled() { Err(Status::COMMAND_ABORT_REQUESTED.into()) } else { Ok(()) }
    }

    /// Bytes that it takes while it runs, beside its data.
    pub(crate) fn memory(&self, context: &CallContext) -> u64 {
        let own = if self.admin { 0 } else { copy::memory(&self.sqe, &self.data) + launch::memory(context, self) };
        u64::from(self.sqe.sgl().len()) + own
    }
}

impl Standard {
    /// The command set of memory namespaces, for the subsystem.
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
    pub(crate) fn wait_max(compute: &Environment) -> Duration {
        compute.standard.as_ref().map_or(Duration::ZERO, |standard| standard.wait_max)
    }

    /// Carries a command out.
    pub(crate) fn run(context: &Arc<CallContext>, command: &StandardCommand) -> Answer {
        let Some(standard) = context.memory() else { return Status::INVALID_OPCODE.dnr().into() };
        let StandardCommand { sqe, admin, data, .. } = command;
        // Its host went away while it was queued.
        if command.control.cancel.is_cancelled() {
            return Status::COMMAND_ABORT_REQUESTED.into();
        }
        if let Err(problem) = command.uses(context, Used::Memory(Arc::clone(standard))) {
            return problem.into();
        }
        let done = if *admin {
            standard.admin(context, sqe, data)
        } else if sqe.nsid() == standard.nsid {
            standard.memory_command(context, command)
        } else if sqe.opcode() == nvm_opcode::COPY {
            standard.copy_to_volume(context, command)
        } else {
            standard.execute(context, command)
        };
        done.unwrap_or_else(Into::into)
    }

    fn admin(&self, context: &CallContext, sqe: &Sqe, data: &[u8]) -> Result<Answer, Problem> {
        let compute = &context.environment;
        match sqe.opcode() {
            RANGE_SET_MANAGEMENT if sqe.nsid() == compute.config.nsid => self.manage_sets(&context.host.nqn, sqe, data),
            RANGE_SET_MANAGEMENT => Err(Status::INVALID_NAMESPACE_OR_FORMAT.dnr().into()),
            admin_opcode::IDENTIFY => Ok(Answer::bytes(pages::identify(self, compute, sqe))),
            _ => Ok(Answer::of_page(&pages::log(self, context, sqe.log_page())?, sqe)),
        }
    }

    fn memory_command(&self, context: &CallContext, command: &StandardCommand) -> Result<Answer, Problem> {
        let StandardCommand { sqe, data, until, .. } = command;
        if sqe.opcode() == memory_opcode::COPY {
            return self.copy_to_memory(context, command);
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
}

fn in_command(message: String) -> Problem {
    Problem::new(Status::INVALID_FIELD.dnr(), message)
}
