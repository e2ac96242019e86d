//! From a request of the machine to a task, and from its end to an answer.

use std::rc::Rc;
use std::sync::Arc;

use diskside_io::Errno;
use diskside_nvme::controller::{Completion, MediumId, Operation, Request, Tag};
use diskside_nvme::{BufferSlice, Buffers, Status};

use super::connection::Connection;
use super::core::Core;
use super::memory::AccountMemory;
use super::task::{Asker, Bench, Ended, Kind, Next, Source, Task, Work};
use diskside_volume::guard::{Asks, Mode};
use diskside_volume::medium::{Access, Action};
use diskside_volume::stats::IoCounters;
use diskside_wire::delta::Delta;

impl Connection {
    /// Starts what the machine asks for, and continues calls of traversals; until enough is answered for one send,
    /// whose end brings us back here. Traversals that cannot take a step now, or whose host has had its share of the
    /// turn, continue in the next. True if there was anything to do.
    pub(super) fn start_requests(&mut self, core: &mut Core) -> bool {
        let mut started = false;
        self.function.take_share(&core.shares);
        while !self.is_closed() && !self.function.is_batch_full() {
            if let Some(request) = self.next_request(core) {
                self.start(core, request);
            } else if !self.run_calls(core) {
                break;
            }
            started = true;
        }
        if let Some(why) = self.function.give_share_back(&mut core.shares) {
            core.put_off(self.id, why);
        }
        started
    }

    /// The next request, unless its host has had its rate: then it waits where it is, and the connection for its timer.
    fn next_request(&mut self, core: &Core) -> Option<Request> {
        let refused = self.machine.take_refused_commands();
        if let Some(quota) = self.quota.as_ref().filter(|_| refused > 0) {
            quota.count_refused(core.now, refused.into());
        }
        if let Some(quota) = self.quota.as_ref().filter(|quota| quota.has_rates())
            && let Some(next) = self.machine.next_operation()
            && !next.is_prompt()
            && !core.is_stopping()
            && let Err(pause) = quota.begin_command(core.now, next.len_bytes())
        {
            quota.wait(core.now, pause, &mut self.paused);
            return None;
        }
        let request = self.machine.poll_request()?;
        if let Some(quota) = &self.quota {
            quota.end_wait(core.now, self.paused.take());
        }
        Some(request)
    }

    /// Goes on with a task that waited.
    pub(super) fn resume_task(&mut self, core: &mut Core, key: usize) {
        let is_closed = self.is_closed();
        let mut bench = Bench { memory: &mut core.memory, account: &mut self.account, copy_reads: self.copy_reads };
        if is_closed {
            self.tasks -= 1;
            let task = core.tasks.remove(key);
            task.leave(core.now);
            task.abandon(&mut bench);
            self.mark_dirty(core);
            return;
        }
        match core.tasks[key].advance(&mut bench) {
            Next::End(ended) => {
                self.tasks -= 1;
                let task = core.tasks.remove(key);
                task.leave(core.now);
                self.finish(core, task, ended);
            }
            next => core.park(key, next),
        }
    }

    fn start(&mut self, core: &mut Core, request: Request) {
        let Request { tag, medium, operation, .. } = request;
        if let Operation::Cancel = operation {
            let own = |task: &&mut Task| task.connection == self.id && task.asker == Asker::Command(tag);
            if let Some(task) = core.tasks.iter_mut().map(|(_, task)| task).find(own) {
                task.cancel();
            } else {
                self.abort_function(core, tag);
            }
            return;
        }
        let operation = match operation {
            Operation::Authenticate(work) => {
                let authenticators = &core.shared.authenticators;
                if !authenticators.compute(self.slot(core), self.origin(), tag, work) {
                    self.close(core, "too many hosts authenticate at a time");
                }
                return;
            }
            Operation::Other(other) => return self.start_function(core, tag, other),
            Operation::GiveBack(data) => {
                return AccountMemory::new(&mut core.memory, &mut self.account).release(data.buffer);
            }
            operation => operation,
        };
        if let Operation::Read { offset, len, .. } = operation
            && self.read_at_once(core, tag, medium, offset, len)
        {
            return;
        }
        if let Operation::Write { offset, data, fua } = operation
            && self.write_at_once(core, tag, medium, offset, data, fua)
        {
            return;
        }
        match self.task(core, tag, medium, operation) {
            Ok(task) => self.run(core, task),
            Err(status) => self.answer(core, tag, status.into()),
        }
    }

    /// The short way of a read whose bytes are in memory, and which nothing is in the way of: no task, no copy.
    /// False where there is no short way; then nothing has happened.
    fn read_at_once(&mut self, core: &mut Core, tag: Tag, medium: MediumId, offset: u64, len: u32) -> bool {
        let Some(volume) = core.volumes.get(medium).filter(|_| !self.copy_reads) else { return false };
        let Some(memory) = &volume.memory else { return false };
        let range = offset..offset + u64::from(len);
        let Some(charge) = core.memory.charge(&mut self.account, len as usize) else { return false };
        if !volume.volume.guards.try_hold(range.clone(), Mode::Shared, Asks::Once) {
            core.memory.uncharge(&mut self.account, charge);
            return false;
        }
        if len <= PREFETCH_LEN_MAX && self.prefetched_bytes + len <= PREFETCH_BYTES_MAX {
            self.prefetched_bytes += len;
            memory.prefetch(range.start as usize..range.end as usize);
        }
        let volume = Rc::clone(volume);
        volume.counters.reads.add(1);
        volume.counters.read_bytes.add(len.into());
        let id = core.memory.insert_volume(&self.account, charge, volume, offset, len as usize);
        if let Some(counters) = self.host_counters(core) {
            counters.reads.add(1);
            counters.read_bytes.add(len.into());
        }
        self.answer(core, tag, Completion::data(BufferSlice::new(id, len)));
        true
    }

    /// The short way of a write to memory: from where its bytes arrived to where they belong. False where there is no
    /// short way; then the bytes are to be written yet.
    fn write_at_once(
        &mut self,
        core: &mut Core,
        tag: Tag,
        medium: MediumId,
        offset: u64,
        data: BufferSlice,
        durable: bool,
    ) -> bool {
        let Some(volume) = core.volumes.get(medium) else { return false };
        if volume.memory.is_none() || volume.volume.has_failed() {
            return false;
        }
        let (guards, range) = (&volume.volume.guards, offset..offset + u64::from(data.len));
        if !guards.try_hold(range.clone(), Mode::Exclusive, Asks::Once) {
            return false;
        }
        let access = Access::Write { offset, data: core.memory.filled(data), durable };
        let step = volume.volume.medium.start(&access);
        volume.volume.release(range, Mode::Exclusive);
        if !step.delay.is_zero() || !matches!(step.action, Action::Done(len) if len == u64::from(data.len)) {
            return false;
        }
        volume.counters.writes.add(1);
        volume.counters.written_bytes.add(data.len.into());
        if let Some(counters) = self.host_counters(core) {
            counters.writes.add(1);
            counters.written_bytes.add(data.len.into());
        }
        self.release(core, Some(data));
        self.answer(core, tag, Completion::success());
        true
    }

    /// Runs a new task as far as it gets; only one that has to wait is kept.
    pub(super) fn run(&mut self, core: &mut Core, mut task: Task) {
        task.host = self.account.host.as_ref().map_or(0, |host| Rc::as_ptr(host).addr());
        let mut bench = Bench { memory: &mut core.memory, account: &mut self.account, copy_reads: self.copy_reads };
        let next = if task.is_long() { Next::Yield } else { task.advance(&mut bench) };
        match next {
            Next::End(ended) => self.finish(core, task, ended),
            next => {
                match next {
                    Next::Memory => core.counters().memory_waits.add(1),
                    Next::Block => core.counters().block_waits.add(1),
                    _ => {}
                }
                self.tasks += 1;
                task.begin(core.now);
                let key = core.tasks.insert(task);
                core.park(key, next);
            }
        }
    }

    fn task(&mut self, core: &mut Core, tag: Tag, medium: MediumId, operation: Operation) -> Result<Task, Status> {
        let data = match &operation {
            Operation::Write { data, .. } | Operation::Compare { data, .. } => Some(*data),
            Operation::WriteDelta { record, .. } => Some(*record),
            _ => None,
        };
        if core.volumes.get(medium).is_none() {
            // It may have been added after this turn began.
            core.refresh_volumes();
        }
        let volume = core.volumes.get(medium).map(Rc::clone).ok_or(Status::INVALID_NAMESPACE_OR_FORMAT.dnr());
        let volume = volume.inspect_err(|_| self.release(core, data))?;
        let new = |work| Task::new(self.id, Asker::Command(tag), Rc::clone(&volume), work);
        Ok(match operation {
            Operation::Read { offset, len, .. } => new(Work::Read { offset, len: len as usize }),
            Operation::Write { offset, data, fua } => {
                let (at, len) = (data.offset as usize, data.len as usize);
                new(Work::Write { offset, at, len, durable: fua })
                    .with_data(core.memory.take(&mut self.account, data.buffer))
            }
            Operation::WriteDelta { offset, len, record } => {
                let wanted = offset..offset + u64::from(len);
                if Delta::parse(core.memory.filled(record)).is_ok_and(|delta| delta.range() == wanted) {
                    let (at, record_len) = (record.offset as usize, record.len as usize);
                    new(Work::Delta { offset, len: len as usize, at, record_len })
                        .with_data(core.memory.take(&mut self.account, record.buffer))
                } else {
                    self.release(core, data);
                    return Err(Status::INVALID_FIELD.dnr());
                }
            }
            Operation::Compare { offset, data } => {
                let (theirs, charge) = core.memory.take(&mut self.account, data.buffer);
                let (at, len) = (data.offset as usize, data.len as usize);
                new(Work::Compare { offset, theirs, at, len, charge: Some(charge) })
            }
            Operation::Flush => new(Work::Flush { submitted: false }),
            Operation::WriteZeroes { range, fua, deallocate } => {
                new(Work::Zero { ranges: vec![range], index: 0, at: 0, deallocate, by_writing: false, durable: fua })
            }
            Operation::Deallocate { ranges } => {
                new(Work::Zero { ranges, index: 0, at: 0, deallocate: true, by_writing: false, durable: false })
            }
            Operation::Verify { range } => new(Work::Verify { range, at: 0 }),
            Operation::Copy { sources, offset, fua } => {
                let sources = sources
                    .into_iter()
                    .map(|source| {
                        let volume =
                            core.volumes.get(source.medium).ok_or(Status::INVALID_NAMESPACE_OR_FORMAT.dnr())?;
                        Ok(Source { volume: Rc::clone(volume), range: source.range })
                    })
                    .collect::<Result<_, Status>>()?;
                new(Work::Copy { sources, index: 0, at: 0, to: offset, writing: false, durable: fua })
            }
            _ => return Err(Status::INVALID_OPCODE.dnr()),
        })
    }

    fn finish(&mut self, core: &mut Core, task: Task, ended: Ended) {
        let tag = match task.asker {
            Asker::Command(tag) => tag,
            Asker::Traversal(id, _) => return self.fetched(core, id, task, ended.failed),
        };
        count(&task.volume.counters, &task, &ended);
        if let Some(errno) = ended.failed {
            task.volume.volume.health.count(errno);
            log_failure(core, &task, errno);
        }
        if let Some(counters) = self.host_counters(core) {
            count(counters, &task, &ended);
        }
        self.answer(core, tag, ended.completion);
    }

    /// The counters of this connection's host; `None` before Connect.
    fn host_counters(&mut self, core: &mut Core) -> Option<&Arc<IoCounters>> {
        if self.counters.is_none() {
            let host = self.machine.host_nqn()?.to_string();
            self.counters = Some(core.host_counters(&host));
        }
        self.counters.as_ref()
    }

    pub(super) fn answer(&mut self, core: &mut Core, tag: Tag, completion: Completion) {
        let mut pool = AccountMemory::new(&mut core.memory, &mut self.account);
        self.machine.complete(core.now, tag, completion, &mut pool);
        self.mark_dirty(core);
    }

    fn release(&mut self, core: &mut Core, data: Option<BufferSlice>) {
        if let Some(data) = data {
            let mut pool = AccountMemory::new(&mut core.memory, &mut self.account);
            pool.release(data.buffer);
        }
    }
}

/// A disk that fails or is full has few lines of the log, however many commands fail.
fn log_failure(core: &Core, task: &Task, errno: Errno) {
    let (volume, kind) = (&task.volume.volume.name, task.kind);
    let cause = format!("{kind:?} {errno}");
    if let Some(left_out) = core.shared.notices.admit_once(&format!("volume {volume}:"), Some(&cause), core.now) {
        let has_failed = kind != Kind::Read && task.volume.volume.has_failed();
        let stays = || has_failed.then(|| "it takes no more writes until the server opens it again".to_owned());
        let (len_bytes, why) = (task.len_bytes, task.volume.volume.why(errno).or_else(stays));
        tracing::warn!(%volume, command = ?kind, len_bytes, error = %errno, why, left_out, "the volume's medium failed a command");
    }
}

fn count(counters: &Arc<IoCounters>, task: &Task, ended: &Ended) {
    let (number, bytes) = match task.kind {
        Kind::Read => (&counters.reads, Some(&counters.read_bytes)),
        Kind::Write => (&counters.writes, Some(&counters.written_bytes)),
        Kind::Zero => (&counters.zeroes, None),
        Kind::Flush => (&counters.flushes, None),
    };
    number.add(1);
    if ended.failed.is_some() {
        counters.errors.add(1);
    } else if let Some(bytes) = bytes.filter(|_| !ended.refused) {
        bytes.add(task.len_bytes);
    }
}

/// Short reads are fetched into the cache while their batch is put together; long ones stream well without.
const PREFETCH_LEN_MAX: u32 = 8 << 10;
/// How much is fetched of one batch: more would push each other out before it is sent.
const PREFETCH_BYTES_MAX: u32 = 128 << 10;
