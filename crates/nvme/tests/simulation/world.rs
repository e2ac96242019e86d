//! A host, a target, and what happens to them.

mod commands;

use std::collections::BTreeMap;
use std::time::Instant;

use diskside_nvme::controller::{BlockSize, Completion, ConnectionConfig, Operation, Request, State};
use diskside_nvme::host::{self, Admin, AdminConfig, Data, Submission};
use diskside_nvme::wire::Sqe;
use diskside_nvme::{BufferSlice, Buffers, Status};

use super::link::{Fate, HostEnd, Link, Weather, Wire};
use super::model::{Model, Range};
use super::support::medium::Fault;
use super::support::memory::Memory;
use super::support::pair::{SUBSYSTEM, Target, admin_config};
use super::support::rng::Rng;
use commands::{Op, OpKind};

/// One world.
pub struct World {
    rng: Rng,
    verbose: bool,
    now: Instant,
    target: Target,
    memory: Memory,
    config: AdminConfig,
    links: Vec<Link>,
    model: Model,
    blocks: u64,
    block_len: u32,
    ops: BTreeMap<u64, Op>,
    next_op: u64,
    /// Commands that are still to be sent.
    to_do: u64,
    weather: Weather,
    media_faults: u64,
    kills: u64,
    /// Bytes of the present association were damaged or lost.
    disturbed: bool,
    summary: Summary,
    steps: u64,
}

/// What a world, or all of them, went through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub worlds: u64,
    pub completed: u64,
    pub failed: u64,
    pub killed: u64,
    pub damaged: u64,
    pub lost_bytes: u64,
    pub media_failures: u64,
    pub digest_errors: u64,
    pub stalls: u64,
    pub aborts: u64,
    pub associations: u64,
}

impl Summary {
    pub fn add(&mut self, other: &Summary) {
        self.worlds += other.worlds;
        self.completed += other.completed;
        self.failed += other.failed;
        self.killed += other.killed;
        self.damaged += other.damaged;
        self.lost_bytes += other.lost_bytes;
        self.media_failures += other.media_failures;
        self.digest_errors += other.digest_errors;
        self.stalls += other.stalls;
        self.aborts += other.aborts;
        self.associations += other.associations;
    }
}

/// Something that can happen now.
#[derive(Clone, Copy, Debug)]
enum Action {
    Issue,
    HostPolls(usize),
    HostSends(usize),
    ControllerPolls(usize),
    ControllerSends(usize),
    ToController(usize),
    ToHost(usize),
    Medium(usize),
    Buffers(usize),
}

const NSID: u32 = 1;
/// A world that has not ended after so many steps is stuck.
const STEPS_MAX: u64 = 400_000;

impl World {
    pub fn new(seed: u64, verbose: bool) -> Self {
        let mut rng = Rng::new(seed);
        let (block_size, blocks) = *rng.pick(&[(BlockSize::B512, 96), (BlockSize::B512, 400), (BlockSize::B4096, 64)]);
        let mut target = Target::new();
        target.add(NSID, blocks, block_size);
        if rng.chance(50) {
            target.memory = Memory::with_pool(rng.between(1, 6) as usize);
        }
        target.config = ConnectionConfig {
            h2c_data_len_max: *rng.pick(&[4096, 8192, 128 << 10]),
            r2t_len_max: *rng.pick(&[4096, 16 << 10, 1 << 20]),
            ..ConnectionConfig::default()
        };
        let mut config = admin_config(SUBSYSTEM, rng.between(1, 3) as u16);
        config.io_queue_entries = *rng.pick(&[2, 3, 8, 32]);
        (config.header_digest, config.data_digest) = (rng.chance(50), rng.chance(50));
        let mut weather = Weather { delay: *rng.pick(&[0, 20, 60]), ..Weather::default() };
        if config.header_digest && config.data_digest {
            // Only with both digests is every damage noticed.
            weather.damage = *rng.pick(&[0, 1, 2]);
            weather.lose = *rng.pick(&[0, 0, 1]);
        }
        Self {
            now: Instant::now(),
            model: Model::new(blocks),
            blocks,
            block_len: block_size.bytes(),
            target,
            memory: Memory::default(),
            config,
            links: Vec::new(),
            ops: BTreeMap::new(),
            next_op: 1,
            to_do: rng.between(40, 80),
            weather,
            media_faults: *rng.pick(&[0, 0, 5, 15]),
            kills: *rng.pick(&[0, 0, 1, 4]),
            disturbed: false,
            summary: Summary { worlds: 1, ..Summary::default() },
            steps: 0,
            verbose,
            rng,
        }
    }

    /// Runs until all commands have ended, then checks what is left.
    pub fn run(mut self) -> Summary {
        while self.to_do > 0 || !self.ops.is_empty() {
            self.step();
        }
        self.clear_sky();
        self.check_all_blocks();
        self.part();
        let summary = self.summary.clone();
        assert_eq!(self.memory.in_use(), 0, "the host's buffers are all back");
        assert_eq!(self.target.memory.in_use(), 0, "the target's buffers are all back");
        assert!(self.target.subsystem.controllers().is_empty(), "no controller is left");
        summary
    }

    fn step(&mut self) {
        self.steps += 1;
        assert!(self.steps < STEPS_MAX, "nothing comes to an end: {:#?}", self.links);
        if self.links.is_empty() {
            self.associate();
        }
        if self.kills > 0 && self.rng.below(4000) < self.kills {
            let link = self.rng.below(self.links.len() as u64) as usize;
            self.summary.killed += 1;
            self.say(|| format!("link {link} is cut"));
            self.cut(link);
            self.collect_events();
            return;
        }
        if self.rng.below(2000) == 0 {
            self.change_namespaces();
        }
        if self.rng.below(500) == 0 {
            self.abort_something();
        }
        let actions = self.possible();
        if actions.is_empty() {
            return self.wait();
        }
        let action = *self.rng.pick(&actions);
        self.act(action);
        self.collect_events();
    }

    // -- what can happen ----------------------------------------------------------------------------------------------

    fn possible(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        let pool_has = {
            let memory = &self.target.memory;
            memory.pool_max.is_none_or(|max| memory.pool_in_use() < max)
        };
        for (index, link) in self.links.iter_mut().enumerate().filter(|(_, link)| !link.dead) {
            let mut add = |possible: bool, action: Action| {
                if possible {
                    actions.push(action);
                }
            };
            add(!link.to_controller.is_sending(), Action::HostPolls(index));
            add(link.to_controller.is_sending(), Action::HostSends(index));
            add(!link.to_host.is_sending(), Action::ControllerPolls(index));
            add(link.to_host.is_sending(), Action::ControllerSends(index));
            let arrives = |wire: &Wire, now| wire.next_arrival().is_some_and(|at| at <= now);
            let unread = !link.to_controller.arrived.is_empty() && link.controller.wants_input();
            add(arrives(&link.to_controller, self.now) || unread, Action::ToController(index));
            add(arrives(&link.to_host, self.now), Action::ToHost(index));
            add(!link.requests.is_empty(), Action::Medium(index));
            add(link.controller.awaits_buffers() && pool_has, Action::Buffers(index));
        }
        // Polling is possible, but only something where there is something to send: try those first of all.
        actions.retain(|action| match *action {
            Action::HostPolls(index) => {
                let link = &mut self.links[index];
                let polled = match &mut link.host {
                    HostEnd::Admin(admin) => admin.poll_transmit(link.to_controller.transmit()),
                    HostEnd::Io(io) => io.poll_transmit(link.to_controller.transmit()),
                };
                if polled {
                    link.to_controller.begin();
                }
                polled
            }
            Action::ControllerPolls(index) => {
                let link = &mut self.links[index];
                let polled = link.controller.poll_transmit(link.to_host.transmit());
                if polled {
                    link.to_host.begin();
                }
                polled
            }
            _ => true,
        });
        if self.to_do > 0 && self.live_queues().next().is_some() {
            actions.push(Action::Issue);
        }
        actions
    }

    fn live_queues(&self) -> impl Iterator<Item = usize> + '_ {
        self.links.iter().enumerate().filter_map(|(index, link)| match &link.host {
            HostEnd::Io(io) if !link.dead && io.can_submit() => Some(index),
            _ => None,
        })
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Issue => self.issue(),
            Action::HostPolls(index) | Action::HostSends(index) => self.host_sends(index),
            Action::ControllerPolls(index) | Action::ControllerSends(index) => self.controller_sends(index),
            Action::ToController(index) => self.controller_receives(index),
            Action::ToHost(index) => self.host_receives(index),
            Action::Medium(index) => self.medium_answers(index),
            Action::Buffers(index) => {
                let link = &mut self.links[index];
                link.controller.handle_buffers(self.now, &mut self.target.memory);
                self.take_requests(index);
            }
        }
    }

    fn host_sends(&mut self, index: usize) {
        let link = &mut self.links[index];
        let (fate, done) = link.to_controller.send_some(self.now, &mut self.rng, self.weather, &mut self.memory, false);
        if done {
            let transmit = link.to_controller.transmit();
            match &mut link.host {
                HostEnd::Admin(admin) => admin.handle_transmitted(transmit),
                HostEnd::Io(io) => io.handle_transmitted(transmit),
            }
        }
        self.note(fate, index);
        self.close_if_over(index);
    }

    fn controller_sends(&mut self, index: usize) {
        let link = &mut self.links[index];
        let memory = &mut self.target.memory;
        let (fate, done) = link.to_host.send_some(self.now, &mut self.rng, self.weather, memory, true);
        if done {
            link.controller.handle_transmitted(link.to_host.transmit());
        }
        self.note(fate, index);
        self.close_if_over(index);
    }

    fn controller_receives(&mut self, index: usize) {
        let link = &mut self.links[index];
        link.to_controller.receive_some(self.now, &mut self.rng);
        let memory = &mut self.target.memory;
        let arrived = &mut link.to_controller.arrived;
        let target = link.controller.receive_target().filter(|_| !arrived.is_empty() && self.rng.chance(50));
        if let Some(target) = target {
            let len = (target.len as usize).min(arrived.len());
            memory.write(target.buffer, target.offset, &arrived[..len]);
            link.controller.handle_received(self.now, &arrived[..len], memory);
            arrived.drain(..len);
        } else {
            let taken = link.controller.handle_bytes(self.now, arrived, memory);
            arrived.drain(..taken);
            if !arrived.is_empty() {
                self.summary.stalls += 1;
                assert!(!link.controller.wants_input(), "bytes are left only if they are not wanted");
            }
        }
        self.take_requests(index);
        self.close_if_over(index);
    }

    fn host_receives(&mut self, index: usize) {
        let link = &mut self.links[index];
        link.to_host.receive_some(self.now, &mut self.rng);
        let mut bytes = std::mem::take(&mut link.to_host.arrived);
        while !bytes.is_empty() {
            let target = match &link.host {
                HostEnd::Admin(admin) => admin.receive_target(),
                HostEnd::Io(io) => io.receive_target(),
            };
            let target = target.filter(|_| self.rng.chance(50));
            let len = target.map_or(bytes.len(), |target| (target.len as usize).min(bytes.len()));
            if let Some(target) = target {
                self.memory.write(target.buffer, target.offset, &bytes[..len]);
            }
            match (&mut link.host, target.is_some()) {
                (HostEnd::Admin(admin), false) => admin.handle_bytes(self.now, &bytes[..len], &mut self.memory),
                (HostEnd::Admin(admin), true) => admin.handle_received(self.now, &bytes[..len], &mut self.memory),
                (HostEnd::Io(io), false) => io.handle_bytes(self.now, &bytes[..len], &mut self.memory),
                (HostEnd::Io(io), true) => io.handle_received(self.now, &bytes[..len], &mut self.memory),
            }
            bytes.drain(..len);
        }
        self.close_if_over(index);
    }

    fn take_requests(&mut self, index: usize) {
        let link = &mut self.links[index];
        while let Some(request) = link.controller.poll_request() {
            if let Operation::GiveBack(_) = request.operation {
                forget(&request, &mut self.target.memory);
            } else if matches!(request.operation, Operation::Cancel) {
                let at = link.requests.iter().position(|pending| pending.tag == request.tag);
                if let Some(at) = at.filter(|_| self.rng.chance(50)) {
                    let pending = link.requests.swap_remove(at);
                    forget(&pending, &mut self.target.memory);
                    let answer = Status::COMMAND_ABORT_REQUESTED.into();
                    link.controller.complete(self.now, pending.tag, answer, &mut self.target.memory);
                }
            } else {
                link.requests.push(request);
            }
        }
    }

    fn medium_answers(&mut self, index: usize) {
        let link = &mut self.links[index];
        let request = link.requests.swap_remove(self.rng.below(link.requests.len() as u64) as usize);
        let fault = match self.rng.chance(self.media_faults) {
            false => Fault::None,
            true => *self.rng.pick(&[Fault::Io, Fault::NoSpace]),
        };
        self.summary.media_failures += u64::from(fault != Fault::None);
        let tag = request.tag;
        if let Operation::Read { offset, len, .. } = request.operation
            && self.rng.chance(30)
        {
            // The medium gives some of it at first, and may then fail.
            let first = self.rng.below(u64::from(len)) as u32;
            let bytes = self.target.media.media[request.medium.0 as usize][offset as usize..][..len as usize].to_vec();
            let (head, tail) = bytes.split_at(first as usize);
            if first > 0 {
                let buffer = self.target.memory.insert(head.to_vec());
                link.controller.push_data(tag, BufferSlice::new(buffer, first), &mut self.target.memory);
            }
            let completion = match fault {
                Fault::None => {
                    let buffer = self.target.memory.insert(tail.to_vec());
                    Completion::data(BufferSlice::new(buffer, len - first))
                }
                Fault::Io | Fault::NoSpace => Completion::failed(Status::UNRECOVERED_READ_ERROR),
            };
            link.controller.complete(self.now, tag, completion, &mut self.target.memory);
            return;
        }
        if let Some(completion) = self.target.media.carry_out(request, &mut self.target.memory, fault) {
            link.controller.complete(self.now, tag, completion, &mut self.target.memory);
        }
    }

    /// Nothing can happen now: time passes until something can.
    fn wait(&mut self) {
        let mut next: Option<Instant> = None;
        let mut consider = |at: Option<Instant>| next = [next, at].into_iter().flatten().min();
        for link in self.links.iter().filter(|link| !link.dead) {
            consider(link.to_controller.next_arrival());
            consider(link.to_host.next_arrival());
            consider(link.controller.poll_timeout());
            consider(match &link.host {
                HostEnd::Admin(admin) => admin.poll_timeout(),
                HostEnd::Io(io) => io.poll_timeout(),
            });
        }
        let next = next.unwrap_or_else(|| panic!("nothing will ever happen: {:#?}", self.links));
        self.now = self.now.max(next);
        for index in 0..self.links.len() {
            let link = &mut self.links[index];
            if link.dead {
                continue;
            }
            link.controller.handle_timeout(self.now);
            match &mut link.host {
                HostEnd::Admin(admin) => admin.handle_timeout(self.now),
                HostEnd::Io(io) => io.handle_timeout(self.now),
            }
            self.close_if_over(index);
        }
        self.collect_events();
    }

    // -- connections --------------------------------------------------------------------------------------------------

    fn associate(&mut self) {
        assert!(self.summary.associations < 100, "no association lasts");
        self.summary.associations += 1;
        self.disturbed = false;
        let admin = Admin::new(self.config.clone(), self.now);
        self.add_link(HostEnd::Admin(Box::new(admin)));
    }

    fn add_link(&mut self, host: HostEnd) {
        let controller = self.target.accept(self.now);
        self.links.push(Link {
            host,
            controller,
            to_controller: Wire::default(),
            to_host: Wire::default(),
            requests: Vec::new(),
            dead: false,
        });
    }

    /// Closes the sockets of a connection that one of its ends has done with.
    fn close_if_over(&mut self, index: usize) {
        let link = &mut self.links[index];
        if link.dead {
            return;
        }
        let host = match &link.host {
            HostEnd::Admin(admin) => admin.state(),
            HostEnd::Io(io) => io.state(),
        };
        // Nobody reads what the other end still sends; bytes that were sent to it may still arrive.
        let read_all = link.to_host.next_arrival().is_none() && !link.to_host.is_sending();
        let controller_over = link.controller.state() == State::Closed && read_all;
        if host == host::State::Closed || controller_over {
            self.cut(index);
        }
    }

    /// The connection is gone, for both ends.
    fn cut(&mut self, index: usize) {
        let link = &mut self.links[index];
        if std::mem::replace(&mut link.dead, true) {
            return;
        }
        link.to_controller.cut(&mut self.memory, false);
        link.to_host.cut(&mut self.target.memory, true);
        // Requests that the medium has may be carried out all the same, and answered too late.
        link.controller.handle_close(&mut self.target.memory);
        for request in std::mem::take(&mut link.requests) {
            let tag = request.tag;
            if self.rng.chance(50) {
                forget(&request, &mut self.target.memory);
            } else if let Some(completion) = self.target.media.carry_out(request, &mut self.target.memory, Fault::None)
            {
                link.controller.complete(self.now, tag, completion, &mut self.target.memory);
            }
        }
        match &mut link.host {
            HostEnd::Admin(admin) => admin.handle_close(),
            HostEnd::Io(io) => io.handle_close(),
        }
    }

    // -- the end ------------------------------------------------------------------------------------------------------

    /// From here on nothing goes wrong.
    fn clear_sky(&mut self) {
        self.weather = Weather::default();
        (self.media_faults, self.kills) = (0, 0);
        // Damaged bytes of before may still be on their way: begin again.
        if self.disturbed {
            for index in 0..self.links.len() {
                self.cut(index);
            }
            self.collect_events();
        }
    }

    fn check_all_blocks(&mut self) {
        let mut slba = 0;
        while slba < self.blocks {
            let range = Range { slba, blocks: (self.blocks - slba).min(32) };
            while self.live_queues().next().is_none() {
                self.step();
            }
            assert!(self.model.begin_read(range), "nothing else is under way");
            let len = range.blocks as u32 * self.block_len;
            let buffer = self.memory.insert(vec![0xdd; len as usize]);
            let id = self.next_op;
            self.next_op += 1;
            let sqe = Sqe::read(NSID, slba, range.blocks as u32);
            let data = Data::Receive(BufferSlice::new(buffer, len));
            let link = self.live_queues().next().expect("one is live");
            let HostEnd::Io(io) = &mut self.links[link].host else { panic!("a live queue is an I/O queue") };
            let submission = Submission { sqe, data, user_data: id, timeout: None };
            let command_id = io.submit(self.now, submission, &mut self.memory).expect("there was room");
            self.ops.insert(id, Op { link, command_id, buffer: Some(buffer), kind: OpKind::Read(range) });
            let failed = self.summary.failed;
            while self.ops.contains_key(&id) {
                self.step_without_aborts();
            }
            assert_eq!(self.summary.failed, failed, "reads succeed when nothing goes wrong");
            slba += range.blocks;
        }
    }

    fn step_without_aborts(&mut self) {
        let actions = self.possible();
        if actions.is_empty() {
            return self.wait();
        }
        let action = *self.rng.pick(&actions);
        self.act(action);
        self.collect_events();
    }

    /// Shuts the controller down in good order.
    fn part(&mut self) {
        assert!(self.links.iter().all(|link| link.controller.awaited_bytes() == 0), "all data that was asked for came");
        let HostEnd::Admin(admin) = &mut self.links[0].host else { panic!("the first link is the admin's") };
        admin.shutdown(self.now);
        while !self.links.is_empty() {
            self.steps += 1;
            assert!(self.steps < STEPS_MAX, "it does not shut down: {:#?}", self.links);
            self.step_without_aborts();
        }
    }

    fn note(&mut self, fate: Fate, index: usize) {
        match fate {
            Fate::Sent => return,
            Fate::Damaged => self.summary.damaged += 1,
            Fate::Lost => self.summary.lost_bytes += 1,
        }
        self.disturbed = true;
        self.say(|| format!("link {index}: {fate:?}"));
    }

    fn say(&self, what: impl FnOnce() -> String) {
        if self.verbose {
            println!("{:>6} {}", self.steps, what());
        }
    }
}

/// Drops a request that the medium will not carry out.
fn forget(request: &Request, memory: &mut Memory) {
    if let Operation::Write { data, .. } | Operation::Compare { data, .. } | Operation::GiveBack(data) =
        &request.operation
    {
        memory.release(data.buffer);
    }
}
