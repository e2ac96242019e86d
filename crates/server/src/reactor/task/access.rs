//! The needs of a task for its accesses: the medium's answers, memory, and the ranges that it holds.

use std::ops::Range;
use std::rc::Rc;
use std::time::Instant;

use diskside_io::Errno;
use diskside_io::buffer::Buffer;
use diskside_io::ring::Op;

use super::long::STEP_BYTES;
use super::{Bench, Flow, Held, Next, Task, Work, broken};
use crate::reactor::local::{AtMedium, LocalVolume};
use diskside_volume::guard::{Asks, Mode};
use diskside_volume::medium::{Access, Action};

impl Task {
    /// Its medium is asked for what it needs next: that of the volume whose blocks it holds, which of a copy's source is another.
    pub(in crate::reactor) fn ask(&mut self, now: Instant) {
        let volume = self.held.as_ref().map_or(&self.volume, |held| &held.volume);
        self.asked = volume.volume.ask(now);
    }

    /// The place of a fetch on its volume.
    pub(in crate::reactor) fn fetched_from(&self) -> Option<u64> {
        match self.work {
            Work::Fetch { offset, .. } => Some(offset),
            _ => None,
        }
    }

    /// Reads `len` bytes at `offset` into the task's buffer.
    pub(super) fn transfer_in(&mut self, volume: &LocalVolume, offset: u64, len: usize) -> Flow {
        while self.done < len {
            let (at, left) = (offset + self.done as u64, len - self.done);
            let action = match self.next_action(volume, &Access::Read { offset: at, len: left }) {
                Ok(action) => action,
                Err(next) => return Flow::Needs(next),
            };
            match action {
                Action::Bytes(slice) => {
                    let Some(buffer) = &mut self.buffer else { unreachable!("made before the first transfer") };
                    let part = slice.len().min(left);
                    slice.part(0..part).copy_to(&mut buffer[self.done..self.done + part]);
                    self.done += part;
                }
                Action::File { file, len } => {
                    let Some(buffer) = self.buffer.take() else { unreachable!("made before the first transfer") };
                    let range = self.done..self.done + len.min(left);
                    return Flow::Needs(Next::Submit(Op::Read { file, offset: at, buffer, range }));
                }
                Action::Failed(errno) => return Flow::Failed(errno),
                other => return Flow::Failed(broken(&other)),
            }
        }
        Flow::Done
    }

    /// Writes `len` bytes of the task's buffer, from `start` on, to `offset`.
    pub(super) fn transfer_out(
        &mut self,
        volume: &LocalVolume,
        offset: u64,
        start: usize,
        len: usize,
        durable: bool,
    ) -> Flow {
        while self.done < len {
            let at = offset + self.done as u64;
            let part = start + self.done..start + len;
            let Some(buffer) = self.buffer.take() else { unreachable!("it has data to write") };
            let access = Access::Write { offset: at, data: &buffer[part.clone()], durable };
            let action = self.next_action(volume, &access);
            match action {
                Err(next) => {
                    self.buffer = Some(buffer);
                    return Flow::Needs(next);
                }
                Ok(Action::File { file, len }) => {
                    let range = part.start..part.end.min(part.start + len);
                    return Flow::Needs(Next::Submit(Op::Write { file, offset: at, buffer, range, durable }));
                }
                Ok(action) => {
                    self.buffer = Some(buffer);
                    match action {
                        Action::Done(0) => return Flow::Failed(Errno::IO),
                        Action::Done(written) => self.done += (written as usize).min(part.len()),
                        Action::Elsewhere(future) => {
                            self.elsewhere = Some(future);
                            return Flow::Needs(Next::Elsewhere);
                        }
                        Action::Failed(errno) => return Flow::Failed(errno),
                        other => return Flow::Failed(broken(&other)),
                    }
                }
            }
        }
        Flow::Done
    }

    /// The medium's answer, or the event to wait for before that counts.
    pub(super) fn next_action(&mut self, volume: &LocalVolume, access: &Access<'_>) -> Result<Action, Next> {
        let action = match self.pending.take() {
            Some(action) => action,
            None => {
                let busy = volume.volume.medium.busy_for();
                if !busy.is_zero() {
                    return Err(Next::Rate(busy));
                }
                let step = volume.volume.medium.start(access);
                if !step.delay.is_zero() {
                    self.pending = Some(step.action);
                    return Err(Next::Delay(step.delay));
                }
                step.action
            }
        };
        let Action::Pending(pending) = action else { return Ok(action) };
        if let Some(answer) = pending.take() {
            return Ok(answer);
        }
        let file = pending.ready();
        self.pending = Some(Action::Pending(pending));
        Err(Next::Submit(Op::Readable { file }))
    }

    /// Gives a read its part of the memory that reads of its volume may have, once. Bytes in memory need none.
    pub(super) fn has_part(&mut self, bench: &Bench<'_>, len: usize) -> bool {
        if self.at_medium.is_none() && self.volume.memory.is_none() {
            self.at_medium = AtMedium::begin(&self.volume, len as u64, bench.memory.of_one_volume());
            return self.at_medium.is_some();
        }
        true
    }

    /// It asks for its part again when its host has memory for it. Others have it meanwhile: a host that takes no answers waits for long.
    pub(super) fn wait_for_memory(&mut self) -> Next {
        self.at_medium = None;
        Next::Memory
    }

    /// Charges the task for `len` bytes, once.
    pub(super) fn charged(&mut self, bench: &mut Bench<'_>, len: usize) -> bool {
        if self.charge.is_none() {
            self.charge = bench.memory.charge(bench.account, len);
        }
        self.charge.is_some()
    }

    /// Gives the task memory of its own, of at least `len` bytes and at most [`STEP_BYTES`] where that is more.
    pub(super) fn has_buffer(&mut self, bench: &mut Bench<'_>, len: usize) -> bool {
        if let Some(buffer) = &mut self.buffer
            && buffer.capacity() >= len
        {
            return true;
        }
        let len = match self.work {
            Work::Compare { len, .. } | Work::Fetch { len, .. } => len,
            _ => STEP_BYTES as usize,
        };
        if !self.charged(bench, len) {
            return false;
        }
        self.buffer = Some(bench.memory.buffer(len));
        true
    }

    pub(super) fn hold(&mut self, volume: &Rc<LocalVolume>, range: Range<u64>, mode: Mode) -> bool {
        if self.held.is_some() {
            return true;
        }
        let asks = if self.waits_for.is_some() { Asks::Again } else { Asks::First };
        if volume.volume.guards.try_hold(range.clone(), mode, asks) {
            self.waits_for = None;
            self.held = Some(Held { volume: Rc::clone(volume), range, mode });
            return true;
        }
        if mode == Mode::Exclusive {
            self.waits_for = Some(range);
        }
        false
    }

    pub(super) fn release(&mut self) {
        if let Some(Held { volume, range, mode }) = self.held.take() {
            volume.volume.release(range, mode);
        }
        if let Some(range) = self.waits_for.take() {
            self.volume.volume.guards.give_up(range);
        }
    }

    pub(super) fn next_piece(&mut self) {
        self.release();
        self.done = 0;
    }

    /// Lets go of everything: ranges, memory, charges.
    pub(super) fn let_go(&mut self, bench: &mut Bench<'_>) {
        self.release();
        if let Some(buffer) = self.buffer.take() {
            bench.memory.give_back(buffer);
        }
        if let Some(charge) = self.charge.take() {
            bench.memory.uncharge(bench.account, charge);
        }
        if let Work::Compare { theirs, charge, .. } = &mut self.work {
            bench.memory.give_back(std::mem::replace(theirs, Buffer::zeroed(0)));
            if let Some(charge) = charge.take() {
                bench.memory.uncharge(bench.account, charge);
            }
        }
    }
}
