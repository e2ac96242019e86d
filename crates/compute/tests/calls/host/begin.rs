//! The commands of the host: calls that it begins, sends, gives up, and the program that it loads for them.

use std::collections::BTreeMap;
use std::time::Duration;

use diskside_nvme::host::{Data, Submission};
use diskside_nvme::wire::Sqe;
use diskside_wire::function::{
    ClearSelect, Endpoint, EndpointKind, FunctionCommand as _, FunctionKind, FunctionRequest,
};

use super::super::link::HostEnd;
use super::super::service::{Engines, args, result_of};
use super::super::{NSID, TIMEOUT, World, pattern, some_ms};
use super::call::Call;
use super::{Command, Op, Program, program, tag_of};

impl World {
    pub(super) fn begin_something(&mut self, engines: &Engines) {
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
    pub(super) fn send_program(&mut self, engines: &Engines) {
        let object = program();
        let pind = engines.free();
        let (sqe, data, command) = match self.host.program {
            Program::Absent | Program::Loading(_) => {
                let at = self.host.program.sent_len();
                let part = &object[at as usize..object.len().min(at as usize + 7000)];
                let sqe = Sqe::load_program(NSID, pind, object.len() as u32, at, part.len() as u32);
                (sqe, Data::SendBytes(part.to_vec()), Command::Load)
            }
            _ => (Sqe::activate_program(NSID, pind, true), Data::None, Command::Activate),
        };
        self.submit(0, sqe, data, command);
    }

    pub(super) fn send_command(&mut self, command: Command, engines: &Engines) {
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

    pub(super) fn abort_something(&mut self) {
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
}
