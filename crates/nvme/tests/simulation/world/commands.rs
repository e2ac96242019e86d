//! The host of a world: the commands that it sends, and what may become of them.

use std::time::Duration;

use diskside_nvme::controller::BlockSize;
use diskside_nvme::host::{self, AdminEvent, CommandError, Completed, ConnectionError, Data, Event, Submission};
use diskside_nvme::wire::{CopySourceEntry, DsmRange, Sqe};
use diskside_nvme::{BufferId, BufferSlice, Status};
use zerocopy::IntoBytes;

use super::super::link::HostEnd;
use super::super::model::{Range, Written, stamped};
use super::super::support::pair::namespace;
use super::{NSID, World};

/// A command in flight.
#[derive(Debug)]
pub(super) struct Op {
    pub(super) link: usize,
    pub(super) command_id: u16,
    pub(super) buffer: Option<BufferId>,
    pub(super) kind: OpKind,
}

#[derive(Debug)]
pub(super) enum OpKind {
    Read(Range),
    /// Any command that leaves `stamp` in the range.
    Write {
        range: Range,
        stamp: u64,
    },
    Compare {
        range: Range,
        equal: bool,
    },
    /// From a block that is only read.
    Copy {
        from: Range,
        to: Range,
        stamp: u64,
    },
    Check(Range),
    Flush,
}

impl World {
    pub(super) fn collect_events(&mut self) {
        for index in 0..self.links.len() {
            loop {
                match &mut self.links[index].host {
                    HostEnd::Admin(admin) => match admin.poll_event() {
                        Some(event) => self.on_admin_event(event),
                        None => break,
                    },
                    HostEnd::Io(io) => match io.poll_event() {
                        Some(event) => self.on_io_event(event),
                        None => break,
                    },
                }
            }
        }
        if self.links.iter().any(|link| link.dead) {
            // The host gives up the association, and begins a new one.
            for index in 0..self.links.len() {
                if !self.links[index].dead {
                    self.cut(index);
                    return self.collect_events();
                }
            }
            self.links.clear();
            assert!(self.ops.is_empty(), "commands that never ended: {:?}", self.ops);
        }
        for link in self.links.iter_mut() {
            link.controller.handle_wake(self.now);
        }
    }

    fn on_admin_event(&mut self, event: AdminEvent) {
        self.say(|| format!("admin: {event:?}"));
        match event {
            AdminEvent::Ready(info) => {
                for queue in 1..=info.io_queues {
                    let HostEnd::Admin(admin) = &self.links[0].host else { panic!("the first link is the admin's") };
                    // The connection may have ended right after.
                    let Some(config) = admin.io_queue_config(queue) else { return };
                    let io = host::Connection::new(config, self.now);
                    self.add_link(HostEnd::Io(Box::new(io)));
                }
            }
            AdminEvent::Closed(error) => self.expect_end(&error),
            AdminEvent::Aborted { aborted, .. } => self.summary.aborts += u64::from(aborted),
            AdminEvent::NamespacesChanged { active, .. } => assert_eq!(active[0], NSID),
            event => panic!("unexpected: {event:?}"),
        }
    }

    fn on_io_event(&mut self, event: Event) {
        match event {
            Event::Connected { .. } => {}
            Event::Completed(Completed { user_data, outcome }) => {
                let op = self.ops.remove(&user_data).unwrap_or_else(|| panic!("{user_data} ended twice"));
                self.say(|| format!("{user_data} {:?}: {outcome:?}", op.kind));
                self.end_op(op, outcome.map(|_| ()));
            }
            Event::Late { .. } => assert!(self.disturbed, "late for no reason"),
            Event::Closed(error) => {
                self.say(|| format!("I/O queue closed: {error}"));
                self.expect_end(&error);
            }
            event => panic!("unexpected: {event:?}"),
        }
    }

    /// Whether there is a reason for a connection to end like this.
    fn expect_end(&self, error: &ConnectionError) {
        let explained = match error {
            ConnectionError::PeerClosed => true,
            ConnectionError::Disconnected => self.to_do == 0,
            _ => self.disturbed,
        };
        assert!(explained, "a connection ended for no reason: {error}");
    }

    fn random_range(&mut self) -> Range {
        let most = match self.rng.below(10) {
            0..=5 => 8,
            6..=8 => 64,
            _ => self.blocks,
        };
        let blocks = self.rng.between(1, most.min(self.blocks));
        Range { slba: self.rng.below(self.blocks - blocks + 1), blocks }
    }

    /// Sends a command that does not touch what another one in flight writes.
    pub(super) fn issue(&mut self) {
        let queues: Vec<usize> = self.live_queues().collect();
        let link = *self.rng.pick(&queues);
        let range = self.random_range();
        let Range { slba, blocks } = range;
        let id = self.next_op;
        let stamp = id << 8 | 0xa5;
        let (sqe, data, kind) = match self.rng.below(100) {
            0..=34 if self.model.begin_read(range) => {
                let len = blocks as u32 * self.block_len;
                let buffer = self.memory.insert(vec![0xdd; len as usize]);
                (
                    Sqe::read(NSID, slba, blocks as u32),
                    Data::Receive(BufferSlice::new(buffer, len)),
                    OpKind::Read(range),
                )
            }
            35..=64 if self.model.begin_write(range, stamp) => {
                let buffer = self.memory.insert(stamped(vec![stamp; blocks as usize], self.block_len));
                let data = Data::Send(BufferSlice::new(buffer, blocks as u32 * self.block_len));
                let sqe = Sqe::write(NSID, slba, blocks as u32);
                (if self.rng.chance(30) { sqe.with_fua() } else { sqe }, data, OpKind::Write { range, stamp })
            }
            65..=69 if self.model.begin_write(range, 0) => {
                let sqe = Sqe::write_zeroes(NSID, slba, blocks as u32, self.rng.chance(50));
                (sqe, Data::None, OpKind::Write { range, stamp: 0 })
            }
            70..=74 if self.model.begin_write(range, 0) => {
                let entries = [DsmRange::new(slba, blocks as u32)];
                let data = Data::SendBytes(entries.as_bytes().to_vec());
                (Sqe::deallocate(NSID, 1), data, OpKind::Write { range, stamp: 0 })
            }
            75..=84 => {
                let known = self.model.known(range);
                let Some(mut stamps) = known.filter(|_| self.model.begin_read(range)) else { return };
                let equal = self.rng.chance(70);
                if !equal {
                    let at = self.rng.below(blocks) as usize;
                    stamps[at] = !stamps[at];
                }
                let data = Data::SendBytes(stamped(stamps, self.block_len));
                (Sqe::compare(NSID, slba, blocks as u32), data, OpKind::Compare { range, equal })
            }
            85..=89 if self.model.begin_read(range) => {
                (Sqe::verify(NSID, slba, blocks as u32), Data::None, OpKind::Check(range))
            }
            90..=94 => {
                let from = Range { slba, blocks: 1 };
                let to = Range { slba: self.rng.below(self.blocks), blocks: 1 };
                let Some(known) = self.model.known(from).filter(|_| from != to) else { return };
                if !self.model.begin_read(from) {
                    return;
                }
                let stamp = known[0];
                if !self.model.begin_write(to, stamp) {
                    return self.model.end_read(from);
                }
                let data = Data::SendBytes(CopySourceEntry::new(0, slba, 1).as_bytes().to_vec());
                (Sqe::copy(NSID, to.slba, 1, 0), data, OpKind::Copy { from, to, stamp })
            }
            95..=99 => (Sqe::flush(NSID), Data::None, OpKind::Flush),
            _ => return,
        };
        let buffer = match &data {
            Data::Send(slice) | Data::Receive(slice) => Some(slice.buffer),
            _ => None,
        };
        let submission = Submission { sqe, data, user_data: id, timeout: Some(Duration::from_secs(2)) };
        let HostEnd::Io(io) = &mut self.links[link].host else { panic!("a live queue is an I/O queue") };
        let command_id = io.submit(self.now, submission, &mut self.memory).expect("there was room");
        self.ops.insert(id, Op { link, command_id, buffer, kind });
        self.next_op += 1;
        self.to_do = self.to_do.saturating_sub(1);
    }

    fn end_op(&mut self, op: Op, outcome: Result<(), CommandError>) {
        let bytes = op.buffer.map(|buffer| self.memory.remove(buffer));
        self.summary.completed += 1;
        self.summary.failed += u64::from(outcome.is_err());
        if let Err(error) = &outcome {
            self.expect_failure(&op.kind, error);
        }
        let written = if outcome.is_ok() { Written::Surely } else { Written::Perhaps };
        match op.kind {
            OpKind::Read(range) => {
                self.model.end_read(range);
                if outcome.is_ok() {
                    self.model.check(range, self.block_len, &bytes.expect("a read has a buffer"));
                }
            }
            OpKind::Write { range, stamp } => self.model.end_write(range, stamp, written),
            OpKind::Copy { from, to, stamp } => {
                self.model.end_read(from);
                self.model.end_write(to, stamp, written);
            }
            OpKind::Compare { range, equal } => {
                self.model.end_read(range);
                assert!(equal || outcome.is_err(), "different blocks compared as equal");
            }
            OpKind::Check(range) => self.model.end_read(range),
            OpKind::Flush => {}
        }
    }

    /// Whether there is a reason for a command to fail like this.
    fn expect_failure(&mut self, kind: &OpKind, error: &CommandError) {
        let explained = match error {
            CommandError::Status { status, .. } if status.is(Status::COMPARE_FAILURE) => {
                matches!(kind, OpKind::Compare { equal: false, .. })
            }
            CommandError::Status { status, .. } if status.is(Status::TRANSIENT_TRANSPORT_ERROR) => {
                self.summary.digest_errors += 1;
                self.disturbed
            }
            // An Abort was asked for at random.
            CommandError::Status { status, .. } if status.is(Status::COMMAND_ABORT_REQUESTED) => true,
            CommandError::Status { status, .. } => {
                let media = [Status::WRITE_FAULT, Status::UNRECOVERED_READ_ERROR, Status::CAPACITY_EXCEEDED];
                self.media_faults > 0 && media.iter().any(|expected| status.is(*expected))
            }
            CommandError::DataDigest => {
                self.summary.digest_errors += 1;
                self.disturbed
            }
            CommandError::ConnectionLost => true,
            _ => false,
        };
        assert!(explained, "{kind:?} failed for no reason: {error}");
    }

    pub(super) fn abort_something(&mut self) {
        let Some(HostEnd::Admin(admin)) = self.links.first_mut().map(|link| &mut link.host) else { return };
        if admin.controller().is_none() || self.ops.is_empty() {
            return;
        }
        let at = self.rng.below(self.ops.len() as u64) as usize;
        let op = self.ops.values().nth(at).expect("it is below the length");
        admin.abort(self.now, op.link as u16, op.command_id);
    }

    pub(super) fn change_namespaces(&mut self) {
        const OTHER: u32 = 9;
        if self.target.subsystem.remove_namespace(OTHER).is_none() {
            let medium = diskside_nvme::controller::MediumId(0);
            self.target.subsystem.add_namespace(namespace(OTHER, medium, 8, BlockSize::B512)).expect("it is free");
        }
    }
}
