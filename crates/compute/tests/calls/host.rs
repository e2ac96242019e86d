//! The host of a world: its program, its requests and its calls, and what may become of them.

mod begin;
mod call;
mod outcome;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::World;
use super::link::HostEnd;
use super::service::Engines;
use call::Call;

pub(super) const NQN: &str = "nqn.2026-01.test:host";
/// Calls at a time.
const CALLS_MAX: usize = 5;
/// How soon what was busy is asked for again.
const RETRY: Duration = Duration::from_millis(100);

/// What the host has to do, and what it waits for.
#[derive(Debug, Default)]
pub(super) struct HostSide {
    to_do: u64,
    program: Program,
    prepared: Option<Prepared>,
    calls: BTreeMap<u64, Call>,
    /// Commands to send, now or later.
    commands: Vec<(Option<Instant>, Command)>,
    ops: BTreeMap<u64, Op>,
    last_op: u64,
    last_tag: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Program {
    /// So many bytes of it were sent.
    #[default]
    Absent,
    Loading(u32),
    Loaded,
    Active,
}

#[derive(Clone, Copy, Debug)]
struct Prepared {
    handle: u32,
    result_len: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Command {
    Load,
    Activate,
    Send { tag: u64, part: usize },
    Receive { tag: u64, offset: u64, len: u32 },
    Cancel { tag: u64 },
    Prepare { result_len: u64 },
    Call { seed: u64 },
    Clear,
}

#[derive(Debug)]
struct Op {
    command: Command,
    link: usize,
    command_id: u16,
    /// The host gave it up.
    aborted: bool,
}

impl HostSide {
    pub(super) fn new(to_do: u64) -> Self {
        Self { to_do, ..Self::default() }
    }

    pub(super) fn is_done(&self) -> bool {
        self.to_do == 0 && self.calls.is_empty() && self.ops.is_empty() && self.commands.is_empty()
    }

    pub(super) fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    pub(super) fn begin_association(&mut self) {
        assert!(self.ops.is_empty(), "commands that never ended: {:?}", self.ops);
        self.calls.clear();
        self.commands.clear();
        (self.program, self.prepared) = (Program::Absent, None);
    }

    fn soon(&mut self, command: Command) {
        self.commands.push((None, command));
    }
}

impl Program {
    /// Bytes of it that were sent.
    fn sent_len(self) -> u32 {
        match self {
            Self::Loading(at) => at,
            _ => 0,
        }
    }
}

impl World {
    fn queues(&self) -> Vec<usize> {
        let live = |(index, link): (usize, &super::Link)| match &link.host {
            HostEnd::Io(io) if !link.dead && io.can_submit() => Some(index),
            _ => None,
        };
        self.links.iter().enumerate().filter_map(live).collect()
    }

    /// When the next command may be sent that may not be yet.
    pub(super) fn next_command(&self) -> Option<Instant> {
        self.host.commands.iter().filter_map(|(at, _)| *at).filter(|at| *at > self.now).min()
    }

    pub(super) fn can_issue(&self) -> bool {
        if self.links.iter().any(|link| link.dead) || self.links.is_empty() {
            return false;
        }
        let HostEnd::Admin(admin) = &self.links[0].host else { return false };
        if self.host.program != Program::Active {
            let busy = self.host.ops.values().any(|op| matches!(op.command, Command::Load | Command::Activate));
            return admin.controller().is_some() && !busy && !self.host.is_done();
        }
        let due = |at: &Option<Instant>| at.is_none_or(|at| at <= self.now);
        let new = self.host.to_do > 0 && self.host.calls.len() < CALLS_MAX;
        !self.queues().is_empty() && (new || self.host.commands.iter().any(|(at, _)| due(at)))
    }

    pub(super) fn issue(&mut self, engines: &Engines) {
        if self.host.program != Program::Active {
            return self.send_program(engines);
        }
        let now = self.now;
        let due: Vec<usize> =
            (0..self.host.commands.len()).filter(|at| self.host.commands[*at].0.is_none_or(|at| at <= now)).collect();
        if due.is_empty() || self.host.to_do > 0 && self.host.calls.len() < CALLS_MAX && self.rng.chance(20) {
            return self.begin_something(engines);
        }
        if self.rng.chance(2) {
            return self.abort_something();
        }
        let at = *self.rng.pick(&due);
        let (_, command) = self.host.commands.swap_remove(at);
        self.send_command(command, engines);
    }
}

fn tag_of(command: Command) -> Option<u64> {
    match command {
        Command::Send { tag, .. } | Command::Receive { tag, .. } | Command::Cancel { tag } => Some(tag),
        _ => None,
    }
}

/// The object that hosts load: a shipped function's.
fn program() -> &'static [u8] {
    diskside_functions::shipped().iter().find(|shipped| shipped.name == "stats64").expect("it is shipped").object
}
