//! The outcomes of commands: each must have a reason, and some are sent again.

use diskside_nvme::Status;
use diskside_nvme::host::{self as nvme_host, AdminEvent, Answer, CommandError, Completed, Event};
use diskside_wire::function::{Outcome, ReceiveAnswer, Trailer};

use super::super::World;
use super::super::link::HostEnd;
use super::super::service::result_of;
use super::{Command, Prepared, Program, RETRY, program, tag_of};

impl World {
    pub(crate) fn collect_events(&mut self) {
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
                let at = host.program.sent_len() + 7000;
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
