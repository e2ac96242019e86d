//! Commands that engines answer, from the machine to the compute service and back.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use diskside_io::Errno;
use diskside_nvme::controller::{Completion, OtherCommand, Tag};
use diskside_nvme::wire::Sqe;
use diskside_nvme::wire::program_opcode;
use diskside_nvme::{BufferSlice, Status};
use diskside_rights::HostRights;
use diskside_wire::function::{FunctionCommand, function_opcode};

use super::connection::{Connection, Link};
use super::core::Core;
use super::memory::AccountMemory;
use super::task::{Asker, Task, Work};
use diskside_compute::{
    Answer, Answers, Association, AwaitedRead, Command, FileRead, Name, Piece, PutOff, ReadId, SHORT_LEN_MAX, Shares,
};

/// What a connection needs for function commands.
pub(super) struct FunctionState {
    /// Tells this connection from others that had its place.
    serial: u64,
    association: Option<Arc<Association>>,
    /// Answers that wait for memory.
    held: VecDeque<(Tag, Answer)>,
    /// What commands have led to and was not dealt with yet.
    answers: Answers,
    /// Traversals under way, as the reactor's [`Shares`] count them.
    traversals: usize,
    /// Work that they were allowed last.
    share_given: u32,
}

impl FunctionState {
    pub(super) fn new() -> Self {
        static SERIALS: AtomicU64 = AtomicU64::new(0);
        let serial = SERIALS.fetch_add(1, Ordering::Relaxed);
        Self {
            serial,
            association: None,
            held: VecDeque::new(),
            answers: Answers::of(serial),
            traversals: 0,
            share_given: 0,
        }
    }

    /// Another send is put together.
    pub(super) fn begin_batch(&mut self) {
        self.answers.calls = 0;
    }

    /// Whether the answers so far should leave before more calls are run. A host that has its answers sends its next
    /// commands while this side computes; answered all at once, both sides would wait for each other in turn.
    pub(super) fn is_batch_full(&self) -> bool {
        self.answers.calls >= CALLS_PER_SEND
    }

    /// The next read of a file that a command asks for.
    pub(super) fn next_file_read(&mut self) -> Option<FileRead> {
        self.answers.next_file_read()
    }

    /// Begins to deal with commands: with what is left of the host's share of this turn.
    pub(super) fn take_share(&mut self, shares: &Shares) {
        self.answers.share = match &self.association {
            Some(association) => shares.of(association.host_id()),
            None => shares.of(NO_HOST),
        };
        // Its own count as begun, and may continue.
        self.answers.share.lanes_left += self.traversals;
        self.share_given = self.answers.share.work_left;
    }

    /// Gives back the rest of it. Says why there is something to continue in the next turn, if there is.
    pub(super) fn give_share_back(&mut self, shares: &mut Shares) -> Option<PutOff> {
        let share = std::mem::take(&mut self.answers.share);
        let given = std::mem::take(&mut self.share_given);
        let work = given - share.work_left;
        let association = self.association.as_ref()?;
        shares.took(association.host_id(), work, self.traversals, self.answers.calls_begun());
        self.traversals = self.answers.calls_begun();
        // With enough for a send, its end brings us back.
        let goes_on = self.answers.has_calls() && !self.is_batch_full();
        goes_on.then_some(match (given, share.has_work()) {
            (0, _) => PutOff::Nothing,
            (_, true) => PutOff::Busy,
            (_, false) => PutOff::Share,
        })
    }

    /// The connection is gone, and with it every call of its controller.
    pub(super) fn close(&mut self, now: Instant, shares: &mut Shares) {
        self.held.clear();
        if let Some(association) = self.association.take() {
            let work = self.share_given - self.answers.share.work_left;
            shares.took(association.host_id(), work, self.traversals, 0);
            association.lost(now, self.serial);
        }
        (self.traversals, self.share_given) = (0, 0);
        self.answers = Answers::of(self.serial);
    }
}

impl Core {
    /// Continues a connection's traversals in the next turn.
    pub(super) fn put_off(&mut self, connection: usize, why: PutOff) {
        if self.put_off.push(connection, why) && why != PutOff::Busy {
            self.counters().traversals_put_off.add(1);
        }
    }
}

impl Connection {
    /// Hands a command over.
    pub(super) fn start_function(&mut self, core: &mut Core, tag: Tag, other: OtherCommand) {
        let OtherCommand { sqe, admin, data, .. } = other;
        let data = match data {
            None => Vec::new(),
            Some(slice) => {
                let (buffer, charge) = core.memory.take(&mut self.account, slice.buffer);
                let start = slice.offset as usize;
                let bytes = buffer[start..start + slice.len as usize].to_vec();
                core.memory.give_back(buffer);
                core.memory.uncharge(&mut self.account, charge);
                bytes
            }
        };
        let Some(association) = self.association(core) else {
            return self.answer(core, tag, Status::INVALID_OPCODE.dnr().into());
        };
        let name = self.name(core, tag, &sqe);
        let entries = self.machine.queue_entries();
        association.command(core.now, Command { name, entries, sqe, admin, data }, &mut self.function.answers);
        self.answer_functions(core);
        self.start_file_reads(core);
    }

    /// A read of a file has ended.
    pub(super) fn answer_file(&mut self, core: &mut Core, read: FileRead) {
        if self.is_closed() {
            return read.answer(&mut Answers::default());
        }
        read.answer(&mut self.function.answers);
        self.answer_functions(core);
    }

    /// Continues calls, until one has ended. False if nothing happened: there are none, none can take a step, or the
    /// host has had its share of the turn.
    pub(super) fn run_calls(&mut self, core: &mut Core) -> bool {
        let Some(association) = self.function.association.as_ref().filter(|_| self.function.answers.has_calls()) else {
            return false;
        };
        let goes_on = association.run_calls(&mut self.function.answers);
        self.answer_functions(core);
        self.start_reads(core) || goes_on
    }

    /// Starts the reads that calls wait for. True if one has ended at once, so that its call continues.
    fn start_reads(&mut self, core: &mut Core) -> bool {
        let ready = self.function.answers.calls_begun();
        while let Some(AwaitedRead { id, volume, range, cache }) = self.function.answers.next_read() {
            if core.volumes.of(&volume).is_none() {
                // It may have been added after this turn began.
                core.refresh_volumes();
            }
            let Some(volume) = core.volumes.of(&volume).map(Rc::clone) else {
                self.function.answers.arrived(id, Err(Errno::NODEV));
                continue;
            };
            let work = Work::Fetch { offset: range.start, len: (range.end - range.start) as usize, cache };
            self.run(core, Task::new(self.id, Asker::Traversal(id, core.now), volume, work));
        }
        self.function.answers.calls_begun() > ready
    }

    /// A read of a traversal has ended.
    pub(super) fn fetched(&mut self, core: &mut Core, id: ReadId, task: Task, failed: Option<Errno>) {
        let counters = Arc::clone(&task.volume.volume.functions);
        if let Some(errno) = failed {
            task.volume.volume.failed("read", task.fetched_from(), errno);
        }
        let len_bytes = task.len_bytes;
        let answers = &mut self.function.answers;
        match (failed, task.into_fetched()) {
            (None, Some((buffer, charge))) => {
                counters.read(Some(len_bytes));
                answers.arrived(id, Ok(&buffer));
                core.memory.give_back(buffer);
                core.memory.uncharge(&mut self.account, charge);
            }
            (failed, _) => {
                counters.read(None);
                answers.arrived(id, Err(failed.unwrap_or(Errno::IO)));
            }
        }
        self.mark_dirty(core);
    }

    /// When calls are to be ended that wait for a medium for too long, at the latest.
    pub(super) fn calls_due(&self) -> Option<Instant> {
        self.function.answers.next_deadline()
    }

    /// Ends calls that wait for a medium for too long.
    pub(super) fn end_late_calls(&mut self, core: &mut Core) {
        if let Some(association) = self.function.association.clone() {
            association.end_late_calls(core.now, &mut self.function.answers);
            self.answer_functions(core);
        }
    }

    fn answer_functions(&mut self, core: &mut Core) {
        let mut answers = std::mem::take(&mut self.function.answers);
        for (tag, answer) in answers.drain() {
            self.answer_function(core, tag, answer);
        }
        self.function.answers = answers;
    }

    /// The host gave up on a command.
    pub(super) fn abort_function(&mut self, core: &mut Core, tag: Tag) {
        let Some(association) = self.function.association.clone() else { return };
        let name = self.name(core, tag, &Sqe::new(0, 0));
        association.abort(name, &mut self.function.answers);
        self.answer_functions(core);
    }

    /// An engine has the answer to a command of this connection, or of one that had its place.
    pub(super) fn answered(&mut self, core: &mut Core, name: Name, answer: Answer) {
        if name.serial == self.function.serial && !self.is_closed() {
            self.answer_function(core, name.tag, answer);
        }
    }

    /// There may be memory for answers that wait for it.
    pub(super) fn answer_held(&mut self, core: &mut Core) {
        while let Some((tag, answer)) = self.function.held.pop_front() {
            if let Err(answer) = self.try_answer(core, tag, answer) {
                self.function.held.push_front((tag, answer));
                self.wait_for_memory(core);
                return;
            }
        }
    }

    fn answer_function(&mut self, core: &mut Core, tag: Tag, answer: Answer) {
        if let Some(quota) = self.quota.as_ref().filter(|quota| quota.has_rates()) {
            quota.move_bytes(core.now, answer.data_len() as u64);
        }
        let refused = match self.try_answer(core, tag, answer) {
            Ok(()) => return,
            Err(answer) => answer,
        };
        self.function.held.push_back((tag, refused));
        self.wait_for_memory(core);
    }

    /// Answers a command. Gives the answer back if there is no memory for its data now.
    fn try_answer(&mut self, core: &mut Core, tag: Tag, answer: Answer) -> Result<(), Answer> {
        let len = answer.data_len();
        if !answer.status.is_success() || len == 0 {
            self.answer(core, tag, Completion::from(answer.status).with_result(answer.result));
            return Ok(());
        }
        // Where many of them wait to be sent already, they are charged like others.
        let is_copied = self.machine.wants_input();
        if !answer.short.is_empty() && is_copied {
            self.answer(core, tag, Completion::bytes(answer.short).with_result(answer.result));
            return Ok(());
        }
        if len <= SHORT_LEN_MAX && is_copied {
            let mut bytes = Vec::with_capacity(len);
            answer.pieces.iter().for_each(|piece| bytes.extend_from_slice(piece.bytes()));
            self.answer(core, tag, Completion::bytes(bytes).with_result(answer.result));
            return Ok(());
        }
        let Some(charge) = core.memory.charge(&mut self.account, len) else { return Err(answer) };
        let mut charge = Some(charge);
        let mut pieces = answer.pieces;
        if !answer.short.is_empty() {
            pieces.push(Piece::of(answer.short));
        }
        let last = pieces.len() - 1;
        for (index, piece) in pieces.into_iter().enumerate() {
            let (buffer, range, holding) = piece.into_parts();
            // The first piece has the charge of all.
            let charge = charge.take().unwrap_or_default();
            let buffer = core.memory.insert_shared(&self.account, charge, buffer, holding);
            let slice = BufferSlice { buffer, offset: range.start as u32, len: range.len() as u32 };
            if index == last {
                self.answer(core, tag, Completion::data(slice).with_result(answer.result));
            } else {
                let mut pool = AccountMemory::new(&mut core.memory, &mut self.account);
                self.machine.push_data(tag, slice, &mut pool);
            }
        }
        Ok(())
    }

    fn association(&mut self, core: &Core) -> Option<Arc<Association>> {
        if self.function.association.is_none() {
            let compute = core.shared.compute.as_ref()?;
            let host = self.machine.host_nqn()?.to_string();
            let rights = || {
                let rights = match self.link {
                    // A part of this process, which has all rights. Reservations hold for it as for any other host.
                    Link::Loop(_) => HostRights::everything(),
                    Link::Socket { .. } => HostRights::of(&core.shared.rights, &host),
                };
                (rights, self.machine.reservations())
            };
            self.function.association = compute.association(self.machine.association()?, &host, rights);
        }
        self.function.association.clone()
    }

    fn name(&self, core: &Core, tag: Tag, sqe: &Sqe) -> Name {
        let id = match sqe.opcode() {
            function_opcode::CALL => sqe.call_handle().into(),
            program_opcode::LOAD | program_opcode::ACTIVATION if self.machine.queue_id() == Some(0) => {
                sqe.program_index().into()
            }
            _ => sqe.function_tag(),
        };
        Name {
            reactor: core.index,
            connection: self.id,
            serial: self.function.serial,
            tag,
            queue_id: self.machine.queue_id().unwrap_or(0),
            cid: sqe.cid(),
            opcode: sqe.opcode(),
            id,
        }
    }
}

/// The number that no host has: of one that has not computed yet.
const NO_HOST: u64 = 0;
/// Calls that are answered by one send: few enough for the host to work at the same time, and enough to make little of
/// the system call.
const CALLS_PER_SEND: u32 = 16;
