//! The data that leaves: the embedder's answers, our own, and the PDUs that carry them.

use std::time::Instant;

use crate::buffer::{BufferSlice, Buffers};
use crate::pdu::{BufferAfter, Payload};
use crate::status::Status;
use crate::wire::{C2hData, Cqe, Sqe, pdu_flags};

use super::command::{Command, Io};
use super::connection::{Connection, State};
use super::request::{Answer, Completion, Tag};
use super::shared::Counters;
use super::slots::{Sink, Stage};

impl Connection {
    // -- C: the embedder's answers ------------------------------------------------------------------------------------

    /// More data for the host, in order, before the completion: lets a long read leave in several buffers. Each call
    /// hands over one buffer.
    pub fn push_data(&mut self, tag: Tag, slice: BufferSlice, buffers: &mut impl Buffers) {
        let Some(slot) = self.owed(tag) else { return buffers.release(slice.buffer) };
        let command = self.slots.get(slot);
        if slice.len == 0 || !self.can_send() || !fits(command.len, command.done, slice.len) {
            debug_assert!(!self.can_send() || fits(command.len, command.done, slice.len), "more data than asked for");
            return buffers.release(slice.buffer);
        }
        self.send_buffer(slot, slice, 0, buffers);
    }

    /// The answer to a request. If the command ended meanwhile, only the buffer is released.
    pub fn complete(&mut self, _now: Instant, tag: Tag, completion: Completion, buffers: &mut impl Buffers) {
        let Some(slot) = self.owed(tag) else {
            if let Answer::Buffer(slice) = completion.data {
                buffers.release(slice.buffer);
            }
            return;
        };
        if !self.can_send() {
            if let Answer::Buffer(slice) = completion.data {
                buffers.release(slice.buffer);
            }
            self.slots.remove(slot);
            return self.drop_fences();
        }
        self.deliver(slot, completion, buffers);
        self.drop_fences();
        self.finish_if_idle();
    }

    fn deliver(&mut self, slot: u32, completion: Completion, buffers: &mut impl Buffers) {
        let Completion { status, result, data } = completion;
        let given = match &data {
            Answer::None => 0,
            Answer::Buffer(slice) => slice.len as usize,
            Answer::Bytes(bytes) => bytes.len(),
        };
        if status.is_success() && !self.may_answer_with(slot, given) {
            debug_assert!(false, "{given} bytes do not answer {:?}", self.slots.get(slot));
            if let Answer::Buffer(slice) = data {
                buffers.release(slice.buffer);
            }
            return self.answer(slot, Status::INTERNAL_ERROR, 0);
        }
        if status.is_success() {
            self.count(slot);
        }
        match data {
            Answer::Buffer(slice) if slice.len > 0 && status.is_success() => {
                let success = self.may_skip_response(result);
                let flags = pdu_flags::LAST | if success { pdu_flags::SUCCESS } else { 0 };
                self.send_buffer(slot, slice, flags, buffers);
                self.after_data(slot, success, result);
            }
            Answer::Bytes(bytes) if status.is_success() => self.answer_bytes(slot, &bytes, result),
            Answer::Buffer(slice) => {
                buffers.release(slice.buffer);
                self.answer(slot, status, result);
            }
            Answer::None | Answer::Bytes(_) => self.answer(slot, status, result),
        }
    }

    /// Whether `given` more bytes make a successful answer: all of a read, no more than the host takes otherwise.
    fn may_answer_with(&self, slot: u32, given: usize) -> bool {
        let command = self.slots.get(slot);
        let total = command.done as usize + given;
        match command.command {
            Command::Io(Io::Read { .. }) => total == command.len as usize,
            Command::Other { .. } => total <= command.len as usize,
            _ => given == 0,
        }
    }

    /// The slot of a command whose answer the embedder owes.
    pub(super) fn owed(&self, tag: Tag) -> Option<u32> {
        self.slots.tagged(tag).filter(|slot| self.slots.get(*slot).stage == Stage::WithEmbedder)
    }

    pub(super) fn can_send(&self) -> bool {
        !matches!(self.state, State::Draining | State::Closed)
    }

    // -- our own answers ----------------------------------------------------------------------------------------------

    /// Ends a command without data.
    pub(super) fn answer(&mut self, slot: u32, status: Status, result: u64) {
        let sqe = self.slots.get(slot).sqe;
        if !status.is_success() {
            self.log_failure(&sqe, status);
            self.count_refused();
        }
        let sink = self.slots.remove(slot);
        debug_assert!(!matches!(sink, Sink::Buffer(_)), "a buffer is given back before its command ends");
        self.respond(sqe.cid(), status, result);
    }

    /// Ends a command with a few bytes for the host.
    pub(super) fn answer_bytes(&mut self, slot: u32, bytes: &[u8], result: u64) {
        self.answer_padded(slot, bytes, 0, result);
    }

    /// The same with zeroes behind the bytes, which take no memory: a host may ask for a megabyte of a page of a few bytes, on
    /// each of its connections.
    pub(super) fn answer_padded(&mut self, slot: u32, bytes: &[u8], zeroes: usize, result: u64) {
        let len = bytes.len() + zeroes;
        if len == 0 {
            return self.answer(slot, Status::SUCCESS, result);
        }
        let success = self.may_skip_response(result);
        let flags = pdu_flags::LAST | if success { pdu_flags::SUCCESS } else { 0 };
        let command = self.slots.get_mut(slot);
        let header = C2hData::new(command.sqe.cid(), command.done, len as u32);
        command.done += len as u32;
        self.encoder.put(&mut self.out, &header, flags, Payload::Padded(bytes, zeroes));
        self.unsent_bytes += len;
        self.after_data(slot, success, result);
    }

    /// A response capsule for a command that has no slot (any more).
    pub(super) fn respond(&mut self, cid: u16, status: Status, result: u64) {
        let mut cqe = Cqe::new(cid, status, result);
        if let Some(link) = &mut self.link
            && link.flow_control
        {
            link.sqhd = if link.sqhd + 1 == link.entries { 0 } else { link.sqhd + 1 };
            cqe = cqe.with_sqhd(link.sqhd);
        }
        self.respond_raw(cqe);
    }

    /// A response capsule as it is.
    pub(super) fn respond_raw(&mut self, cqe: Cqe) {
        self.unsent_answers += 1;
        self.encoder.response(&mut self.out, cqe);
    }

    /// Whether the last C2HData may replace the response: the host does not wait for a queue head, and there is no
    /// result (TCP 3.6.2.9, flag SUCCESS).
    fn may_skip_response(&self, result: u64) -> bool {
        result == 0 && self.link.as_ref().is_some_and(|link| !link.flow_control)
    }

    fn send_buffer(&mut self, slot: u32, slice: BufferSlice, flags: u8, buffers: &mut impl Buffers) {
        let digest = if self.encoder.data_digest() { buffers.digest(slice) } else { 0 };
        let command = self.slots.get_mut(slot);
        let header = C2hData::new(command.sqe.cid(), command.done, slice.len);
        command.done += slice.len;
        let payload = Payload::Buffer { slice, digest, after: BufferAfter::RELEASE };
        self.encoder.put(&mut self.out, &header, flags, payload);
    }

    /// The last data of a command is in the batch: its response too, unless the data said it all.
    fn after_data(&mut self, slot: u32, success: bool, result: u64) {
        let cid = self.slots.get(slot).sqe.cid();
        self.slots.remove(slot);
        if success {
            self.unsent_answers += 1;
        } else {
            self.respond(cid, Status::SUCCESS, result);
        }
    }

    pub(super) fn log_failure(&self, sqe: &Sqe, status: Status) {
        // A host that is not authenticated leaves no trace in the controller.
        let Some(link) = self.link.as_ref().filter(|link| link.authenticated) else { return };
        let csi = link.namespaces.get(sqe.nsid()).map_or(0, |namespace| namespace.csi);
        let lba = if link.queue_id > 0 && csi == 0 { sqe.slba() } else { 0 };
        link.controller.log_error(link.queue_id, sqe, csi, lba, status);
    }

    /// A command ended here with an error, so that the embedder did not hear of it.
    pub(super) fn count_refused(&mut self) {
        if self.link.as_ref().is_some_and(|link| link.authenticated) {
            self.refused_commands = self.refused_commands.saturating_add(1);
        }
    }

    fn count(&self, slot: u32) {
        let Some(link) = &self.link else { return };
        let command = self.slots.get(slot);
        let counters = &link.counters;
        match command.command {
            Command::Io(Io::Read { .. }) => {
                Counters::add(&counters.reads, 1);
                Counters::add(&counters.read_bytes, command.len.into());
            }
            Command::Io(Io::Compare { .. }) => Counters::add(&counters.reads, 1),
            Command::Io(Io::Write { .. }) => {
                Counters::add(&counters.writes, 1);
                Counters::add(&counters.written_bytes, command.len.into());
            }
            _ => {}
        }
    }
}

/// Whether `more` bytes after `done` stay within `len`.
fn fits(len: u32, done: u32, more: u32) -> bool {
    u64::from(done) + u64::from(more) <= u64::from(len)
}
