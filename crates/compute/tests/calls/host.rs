//! The host of a world: its program, its requests and its calls, and what may become of them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use diskside_nvme::Status;
use diskside_nvme::host::{self as nvme_host, AdminEvent, Answer, CommandError, Completed, Data, Event, Submission};
use diskside_nvme::wire::Sqe;
use diskside_wire::function::{
    ClearSelect, Endpoint, EndpointKind, FunctionCommand, FunctionKind, FunctionRequest, Outcome, ReceiveAnswer,
    Trailer,
};

use super::link::HostEnd;
use super::service::{Engines, args, result_of};
use super::{NSID, TIMEOUT, World, pattern, some_ms};

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

/// A call, until its trailer has come and all of its commands have ended.
#[derive(Debug)]
struct Call {
    /// Its output goes to a medium.
    writes: bool,
    /// The request, then its input.
    bytes: Vec<u8>,
    /// Where the parts begin in which it is sent; one more at the end.
    cuts: Vec<usize>,
    expected: Vec<u8>,
    got: BTreeMap<u64, Vec<u8>>,
    receives: u32,
    outstanding: u32,
    trailer: Option<Trailer>,
    /// It names a program that is not there.
    bad: bool,
    refused: bool,
    /// A cancel was sent; it has ended.
    cancelling: bool,
    stopped: bool,
    /// Bytes of the result came damaged, and come once.
    spoilt: bool,
    /// Receives may ask for bytes that another had.
    overlaps: bool,
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

impl Call {
    fn is_over(&self) -> bool {
        self.refused || self.trailer.is_some() || self.spoilt && self.stopped
    }

    /// Bytes that came without a gap.
    fn whole(&self) -> Vec<u8> {
        let mut whole = Vec::new();
        for (offset, bytes) in &self.got {
            assert!(*offset >= whole.len() as u64, "bytes are handed out once");
            if *offset > whole.len() as u64 {
                break;
            }
            whole.extend_from_slice(bytes);
        }
        whole
    }

    /// Checks what came in the end, and what was written.
    fn check(&self, written: &[u8]) {
        assert!(self.writes || written.is_empty());
        assert!(self.expected.starts_with(written), "it wrote something else");
        let Some(trailer) = self.trailer.as_ref().filter(|_| !self.spoilt) else {
            return assert!(self.spoilt || self.bad || self.cancelling, "refused for no reason");
        };
        let whole = self.whole();
        assert!(!self.bad && self.expected.starts_with(&whole), "these are not its bytes");
        match trailer.outcome {
            Outcome::Ok if self.writes => {
                assert_eq!((whole.len(), written.len()), (0, self.expected.len()), "all of it was written");
                assert_eq!(trailer.media_written, written.len() as u64);
            }
            Outcome::Ok => assert_eq!(whole.len(), self.expected.len(), "all of the result came"),
            Outcome::Cancelled => assert!(self.cancelling, "cancelled for no reason"),
            other => panic!("{other:?}: {}", trailer.message),
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

    // -- what is begun ------------------------------------------------------------------------------------------------

    fn begin_something(&mut self, engines: &Engines) {
        if self.host.to_do == 0 {
            return;
        }
        self.host.to_do -= 1;
        let waits =
            |command: &Command| matches!(command, Command::Prepare { .. } | Command::Call { .. } | Command::Clear);
        let busy = self.host.commands.iter().any(|(_, command)| waits(command))
            || self.host.ops.values().any(|op| waits(&op.command));
        if self.rng.chance(40) && !busy {
            let result_len = self.rng.between(1, 3000);
            match self.host.prepared {
                None => self.host.soon(Command::Prepare { result_len }),
                Some(_) if self.rng.chance(20) => self.host.soon(Command::Clear),
                Some(_) => {
                    for _ in 0..self.rng.between(1, 5) {
                        let seed = self.rng.next();
                        self.host.soon(Command::Call { seed });
                    }
                }
            }
            return;
        }
        let (rng, host) = (&mut self.rng, &mut self.host);
        host.last_tag += 1;
        let tag = host.last_tag;
        let result_len = *rng.pick(&[0, 1, 100, 4096, 20_000]) + rng.below(3);
        let input_len = if rng.chance(50) { 0 } else { rng.between(1, 20_000) };
        let (seed, bad) = (rng.next(), rng.chance(6));
        let input = pattern(seed ^ 1, input_len);
        let source = if input_len > 0 { EndpointKind::HostStream } else { EndpointKind::Volume(1) };
        let writes = rng.chance(40);
        let kind = if writes { FunctionKind::Write } else { FunctionKind::Read };
        let request = FunctionRequest {
            args: args(result_len, input_len, seed),
            sources: vec![Endpoint::whole(source)],
            sinks: if writes { vec![Endpoint::whole(EndpointKind::Volume(1))] } else { Vec::new() },
            ..FunctionRequest::new(kind, engines.free() + u16::from(bad))
        };
        let mut bytes = request.encode();
        bytes.extend_from_slice(&input);
        let mut cuts = vec![0, bytes.len()];
        for _ in 0..rng.below(5) {
            cuts.push(rng.below(bytes.len() as u64) as usize);
        }
        cuts.sort_unstable();
        cuts.dedup();
        let sum = input.iter().map(|byte| u64::from(*byte)).sum();
        let parts = cuts.len() - 1;
        let call = Call {
            writes,
            bytes,
            cuts,
            expected: result_of(result_len, seed, sum),
            got: BTreeMap::new(),
            receives: 0,
            outstanding: 0,
            trailer: None,
            bad,
            refused: false,
            cancelling: false,
            stopped: false,
            spoilt: false,
            overlaps: false,
        };
        host.calls.insert(tag, call);
        (0..parts).for_each(|part| host.soon(Command::Send { tag, part }));
        // Several Receives at once, each to be filled, or one after another.
        let len = rng.between(128, 9000) as u32;
        for index in 0..rng.between(1, 4) {
            host.calls.get_mut(&tag).expect("just made").receives += 1;
            host.soon(Command::Receive { tag, offset: index * u64::from(len), len });
        }
        if rng.chance(25) {
            let later = Duration::from_micros(rng.below(20_000));
            host.commands.push((Some(self.now + later), Command::Cancel { tag }));
        }
        self.summary.calls += 1;
        self.summary.writes += u64::from(writes);
    }

    /// The program goes over the admin queue, part after part.
    fn send_program(&mut self, engines: &Engines) {
        let object = program();
        let pind = engines.free();
        let (sqe, data, command) = match self.host.program {
            Program::Absent | Program::Loading(_) => {
                let at = match self.host.program {
                    Program::Loading(at) => at,
                    _ => 0,
                };
                let part = &object[at as usize..object.len().min(at as usize + 7000)];
                let sqe = Sqe::load_program(NSID, pind, object.len() as u32, at, part.len() as u32);
                (sqe, Data::SendBytes(part.to_vec()), Command::Load)
            }
            _ => (Sqe::activate_program(NSID, pind, true), Data::None, Command::Activate),
        };
        self.submit(0, sqe, data, command);
    }

    fn send_command(&mut self, command: Command, engines: &Engines) {
        let timeout_ms = some_ms(&mut self.rng);
        let (sqe, data) = match command {
            Command::Load | Command::Activate => unreachable!("the program goes another way"),
            Command::Send { tag, part } => {
                let Some(call) = self.host.calls.get(&tag).filter(|call| !call.is_over()) else { return };
                let part_range = call.cuts[part]..call.cuts[part + 1];
                let (offset, len) = (part_range.start as u64, part_range.len() as u32);
                let kind = if call.writes { FunctionKind::Write } else { FunctionKind::Read };
                let mut sqe = Sqe::function_send(NSID, kind, tag, offset, len);
                if part == 0 {
                    sqe = sqe.with_first();
                }
                if part + 2 == call.cuts.len() {
                    sqe = sqe.with_last();
                }
                let sqe = sqe.with_function_timeout_ms(timeout_ms);
                (sqe, Data::SendBytes(call.bytes[part_range].to_vec()))
            }
            Command::Receive { tag, offset, len } => {
                if self.host.calls.get(&tag).is_none_or(Call::is_over) {
                    return;
                }
                let mut sqe = Sqe::function_receive(NSID, tag, offset, len, timeout_ms).with_fill();
                if self.rng.chance(30) {
                    sqe = sqe.with_pad();
                }
                (sqe, Data::ReceiveBytes(len))
            }
            Command::Cancel { tag } => {
                let Some(call) = self.host.calls.get_mut(&tag).filter(|call| !call.is_over()) else { return };
                call.cancelling = true;
                (Sqe::function_cancel(NSID, tag, true, timeout_ms), Data::None)
            }
            Command::Prepare { result_len } => {
                self.host.last_tag += 1;
                let mut request = FunctionRequest::new(FunctionKind::Read, engines.free());
                request.args = args(result_len, 0, 0);
                request.sources = vec![Endpoint::whole(EndpointKind::Volume(1))];
                let bytes = request.encode();
                let sqe = Sqe::function_send(NSID, FunctionKind::Prepare, self.host.last_tag, 0, bytes.len() as u32);
                (sqe.with_first().with_last(), Data::SendBytes(bytes))
            }
            Command::Call { seed } => {
                let Some(prepared) = self.host.prepared else { return };
                let len = prepared.result_len as u32;
                (Sqe::function_call(NSID, prepared.handle, &seed.to_le_bytes(), len, 0), Data::ReceiveBytes(len))
            }
            Command::Clear => {
                let Some(prepared) = self.host.prepared else { return };
                (Sqe::function_clear(NSID, ClearSelect::Prepared, prepared.handle.into(), 0..0), Data::None)
            }
        };
        if let Some(call) = tag_of(command).and_then(|tag| self.host.calls.get_mut(&tag)) {
            call.outstanding += 1;
        }
        let queues = self.queues();
        let link = *self.rng.pick(&queues);
        self.submit(link, sqe, data, command);
    }

    fn submit(&mut self, link: usize, sqe: Sqe, data: Data, command: Command) {
        self.host.last_op += 1;
        let user_data = self.host.last_op;
        let submission = Submission { sqe, data, user_data, timeout: Some(TIMEOUT) };
        let submitted = match &mut self.links[link].host {
            HostEnd::Admin(admin) => admin.submit(self.now, submission, &mut self.memory),
            HostEnd::Io(io) => io.submit(self.now, submission, &mut self.memory),
        };
        let command_id = submitted.expect("there was room");
        self.say(|| format!("{user_data} on link {link}: {command:?}"));
        self.host.ops.insert(user_data, Op { command, link, command_id, aborted: false });
    }

    fn abort_something(&mut self) {
        let is_call = |op: &Op| matches!(op.command, Command::Call { .. });
        let calls = self.rng.chance(50) && self.host.ops.values().any(is_call);
        let can_be = |op: &Op| if calls { is_call(op) } else { tag_of(op.command).is_some() };
        let waiting = self.host.ops.iter().filter(|(_, op)| can_be(op)).map(|(number, _)| *number);
        let waiting: Vec<u64> = waiting.collect();
        if waiting.is_empty() {
            return;
        }
        let number = *self.rng.pick(&waiting);
        let op = self.host.ops.get_mut(&number).expect("just seen");
        op.aborted = true;
        if let HostEnd::Admin(admin) = &mut self.links[0].host {
            admin.abort(self.now, op.link as u16, op.command_id);
        }
    }

    // -- what became of it --------------------------------------------------------------------------------------------

    pub(super) fn collect_events(&mut self) {
        for index in 0..self.links.len() {
            loop {
                let ended = match &mut self.links[index].host {
                    HostEnd::Admin(admin) => match admin.poll_event() {
                        None => break,
                        Some(AdminEvent::Ready(info)) => {
                            for queue in 1..=info.io_queues {
                                let HostEnd::Admin(admin) = &self.links[0].host else { unreachable!("it is first") };
                                let Some(config) = admin.io_queue_config(queue) else { break };
                                let io = nvme_host::Connection::new(config, self.now);
                                self.add_link(HostEnd::Io(Box::new(io)));
                            }
                            continue;
                        }
                        Some(AdminEvent::Completed(completed)) => completed,
                        Some(_) => continue,
                    },
                    HostEnd::Io(io) => match io.poll_event() {
                        None => break,
                        Some(Event::Completed(completed)) => completed,
                        Some(_) => continue,
                    },
                };
                self.ended(ended);
            }
        }
        if self.links.iter().any(|link| link.dead) {
            if let Some(alive) = self.links.iter().position(|link| !link.dead) {
                // The host gives up the association, and begins a new one.
                self.cut(alive);
                return self.collect_events();
            }
            self.links.clear();
            self.serials.clear();
            self.host.begin_association();
        }
        for link in &mut self.links {
            link.controller.handle_wake(self.now);
        }
    }

    fn ended(&mut self, completed: Completed) {
        let Completed { user_data, outcome } = completed;
        let op = self.host.ops.remove(&user_data).unwrap_or_else(|| panic!("{user_data} ended twice"));
        self.say(|| format!("{user_data} {:?}: {:?}", op.command, outcome.as_ref().map(|answer| answer.result)));
        if outcome == Err(CommandError::ConnectionLost) {
            return;
        }
        if let Some(call) = tag_of(op.command).and_then(|tag| self.host.calls.get_mut(&tag)) {
            call.outstanding -= 1;
        }
        match outcome {
            Ok(answer) if op.aborted && answer.result != 0 && matches!(op.command, Command::Call { .. }) => {
                self.stopped(&answer);
            }
            Err(CommandError::Status { status, .. }) if op.aborted && status.is(Status::FUNCTION_FAILED) => {
                // There was no room for a trailer.
                assert!(matches!(op.command, Command::Call { .. }));
                self.summary.aborted_calls += 1;
            }
            Ok(answer) => self.succeeded(op.command, answer),
            Err(error) => self.failed(op.command, &error),
        }
        let Some(tag) = tag_of(op.command) else { return };
        let Some(call) = self.host.calls.get_mut(&tag) else { return };
        if !call.is_over() && call.receives == 0 && !call.spoilt {
            // Somebody has to ask for what is left, and for the trailer.
            call.receives = 1;
            let (offset, len) = (call.whole().len() as u64, self.rng.between(128, 6000) as u32);
            self.host.soon(Command::Receive { tag, offset, len });
        } else if call.is_over() && call.outstanding == 0 {
            let call = self.host.calls.remove(&tag).expect("just seen");
            let written = self.services.values().find_map(|service| service.written(tag)).unwrap_or_default();
            call.check(written);
            self.summary.cancelled += u64::from(call.trailer.is_some_and(|t| t.outcome == Outcome::Cancelled));
            self.summary.refused += u64::from(call.refused);
        }
    }

    /// A Function Call that was given up has ended.
    fn stopped(&mut self, answer: &Answer) {
        let told = ReceiveAnswer::from_result(answer.result).expect("it fits");
        assert!(told.end && told.result_len == 0, "{told:?}");
        let trailer = Trailer::decode(&answer.bytes[..told.trailer_len.into()]).expect("a trailer");
        assert_eq!(trailer.outcome, Outcome::Cancelled);
        self.summary.aborted_calls += 1;
    }

    fn succeeded(&mut self, command: Command, answer: Answer) {
        let host = &mut self.host;
        match command {
            Command::Load => {
                let at = match host.program {
                    Program::Loading(at) => at,
                    _ => 0,
                };
                let at = at + 7000;
                host.program = if at as usize >= program().len() { Program::Loaded } else { Program::Loading(at) };
            }
            Command::Activate => host.program = Program::Active,
            Command::Prepare { result_len } => {
                host.prepared = Some(Prepared { handle: answer.result as u32, result_len });
            }
            Command::Call { seed } => {
                let result_len = host.prepared.expect("it is given up when no call is there").result_len;
                assert_eq!(answer.bytes[..answer.received_len as usize], result_of(result_len, seed, 0));
                self.summary.prepared_calls += 1;
            }
            Command::Clear => host.prepared = None,
            Command::Send { .. } => {}
            Command::Cancel { tag } => {
                let running = self.services.values().any(|service| service.runs(tag));
                let call = self.host.calls.get_mut(&tag).expect("it is kept while commands are out");
                if answer.result != 0 && !call.is_over() {
                    return self.host.soon(command);
                }
                assert!(answer.result != 0 || !running, "a cancel is a fence");
                if answer.result == 0 {
                    self.services.values_mut().for_each(|service| service.fence(tag));
                }
                call.stopped = true;
            }
            Command::Receive { tag, offset, len } => self.received(tag, offset, len, &answer),
        }
    }

    fn received(&mut self, tag: u64, offset: u64, len: u32, answer: &Answer) {
        let told = ReceiveAnswer::from_result(answer.result).expect("it fits");
        let call = self.host.calls.get_mut(&tag).expect("it is kept while commands are out");
        call.receives -= 1;
        self.summary.pending += u64::from(told.pending);
        let (result, rest) = answer.bytes.split_at(told.result_len as usize);
        if !result.is_empty() {
            call.got.insert(offset, result.to_vec());
        }
        if told.trailer_len > 0 {
            assert!(told.end && call.trailer.is_none(), "one trailer");
            call.trailer = Some(Trailer::decode(&rest[..told.trailer_len.into()]).expect("a trailer"));
        }
        let left = len - told.result_len;
        if told.pending && left > 0 && !call.is_over() {
            call.receives += 1;
            // A Receive has 128 bytes at least: this one may take what the next ones were to have.
            call.overlaps |= left < 128;
            let offset = offset + u64::from(told.result_len);
            self.host.soon(Command::Receive { tag, offset, len: left.max(128) });
        }
    }

    /// Whether there is a reason for a command to fail like this; sends it again where that helps.
    fn failed(&mut self, command: Command, error: &CommandError) {
        let call = tag_of(command).and_then(|tag| self.host.calls.get_mut(&tag));
        let again = match error {
            CommandError::Status { status, .. } if status.is(Status::TRANSIENT_TRANSPORT_ERROR) => {
                assert!(self.disturbed, "damaged for no reason");
                true
            }
            CommandError::Status { status, .. } if status.is(Status::COMMAND_ABORT_REQUESTED) => true,
            CommandError::Status { status, .. } if status.is(Status::FUNCTION_BUSY) => {
                self.summary.busy += 1;
                true
            }
            CommandError::Status { status, .. } if status.is(Status::RESULT_OFFSET_PASSED) => {
                let (Command::Receive { tag, len, .. }, Some(call)) = (command, call) else {
                    panic!("{command:?} has no offset in a result")
                };
                assert!(call.overlaps, "each byte was asked for once");
                let offset = call.whole().len() as u64;
                return self.host.soon(Command::Receive { tag, offset, len });
            }
            CommandError::Status { status, .. } if status.is(Status::TAG_LIMIT_EXCEEDED) => true,
            // It came before the Send that opens the tag.
            CommandError::Status { status, .. } if status.is(Status::UNKNOWN_TAG) => {
                self.summary.early += 1;
                if let (Command::Cancel { .. }, Some(call)) = (command, call) {
                    assert!(!call.spoilt, "bytes of it came");
                    call.cancelling = false;
                    return;
                }
                true
            }
            CommandError::DataDigest => {
                assert!(self.disturbed, "damaged for no reason");
                if let (Command::Receive { tag, .. }, Some(call)) = (command, call) {
                    call.receives -= 1;
                    if !std::mem::replace(&mut call.spoilt, true) {
                        self.host.soon(Command::Cancel { tag });
                    }
                }
                return;
            }
            CommandError::Status { status, .. } => {
                let call = call.unwrap_or_else(|| panic!("{command:?} failed for no reason: {status}"));
                assert!(call.bad || call.cancelling, "{command:?} failed for no reason: {status}");
                call.receives -= u32::from(matches!(command, Command::Receive { .. }));
                call.refused = true;
                return;
            }
            error => panic!("{command:?}: {error}"),
        };
        assert!(again);
        if let Command::Load | Command::Activate = command {
            return;
        }
        self.host.commands.push((Some(self.now + RETRY), command));
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
