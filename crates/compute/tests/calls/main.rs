//! Hosts, connections and the tag table under a seeded scheduler: function commands byte by byte.
//!
//! Each seed is one world: a host that loads a program, activates it, prepares requests, makes calls that read and that
//! write, cancels and aborts them, over an admin and some I/O connections of one controller at a time; the same
//! machines as everywhere on both ends. The simulation of `nvme` is the network: bytes are split anywhere, delayed,
//! damaged or lost where digests notice it, and connections die at any moment. Engines are part of the scheduler: a
//! call makes a piece of its result, writes one, or reads a piece of its input, at random.
//!
//! These hold: every command ends exactly once; a command fails only for a reason; results and written bytes are what
//! the function makes, or the call was cancelled and they are the start of that; after a cancel that waited nothing of
//! the call runs or writes; and when a host is gone, at whatever moment, no tag, command, byte or call of it is left,
//! and none of its programs.
//!
//! `DISKSIDE_SIM_SEED=n` runs one seed and prints what happens, `DISKSIDE_SIM_SEEDS=n` so many.

mod host;
#[path = "../../../nvme/tests/simulation/link.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is shared with a test that uses more of it")]
mod link;
mod service;
#[path = "../../../nvme/tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use diskside_nvme::controller::{BlockSize, CommandSet, ConnectionConfig, MediumId, Namespace, State, SubsystemConfig};
use diskside_nvme::host::{self as nvme_host, Admin, AdminConfig};
use diskside_nvme::wire::{CSI_COMPUTE, program_opcode};
use diskside_nvme::{BufferId, Buffers as _, Nqn};
use diskside_wire::function::function_opcode;

use self::host::HostSide;
use self::link::{Fate, HostEnd, Link, Weather, Wire};
use self::service::{Engines, Service};
use self::support::memory::Memory;
use self::support::pair::{SUBSYSTEM, Target, admin_config};
use self::support::rng::Rng;

const SEEDS: u64 = 100;
/// Places at which a connection is lost in a world.
const CUTS: u64 = 16;
/// Namespace of the function commands.
const NSID: u32 = 1024;
/// A world that has not ended after so many steps is stuck.
const STEPS_MAX: u64 = 400_000;

/// What all worlds went through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Summary {
    worlds: u64,
    calls: u64,
    writes: u64,
    prepared_calls: u64,
    aborted_calls: u64,
    cancelled: u64,
    refused: u64,
    pending: u64,
    busy: u64,
    early: u64,
    killed: u64,
    killed_in_calls: u64,
    disturbed: u64,
    associations: u64,
    steps: u64,
}

/// One world.
struct World {
    rng: Rng,
    verbose: bool,
    now: Instant,
    target: Target,
    memory: Memory,
    config: AdminConfig,
    links: Vec<Link>,
    /// Serial numbers of the links.
    serials: Vec<u64>,
    last_serial: u64,
    services: BTreeMap<u64, Service>,
    host: HostSide,
    weather: Weather,
    kills: u64,
    /// When a connection is cut in any case.
    cut_at: Option<u64>,
    disturbed: bool,
    summary: Summary,
    steps: u64,
}

/// Something that can happen now.
#[derive(Clone, Copy, Debug)]
enum Action {
    Issue,
    HostSends(usize),
    ControllerSends(usize),
    ToController(usize),
    ToHost(usize),
    Buffers(usize),
    Engine(u64),
}

#[test]
fn a_hundred_seeds() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let engines = Engines::new();
    if let Some(seed) = number("DISKSIDE_SIM_SEED") {
        println!("{:?}", World::new(seed, true).run(&engines));
        return;
    }
    let mut total = Summary::default();
    for seed in 0..number("DISKSIDE_SIM_SEEDS").unwrap_or(SEEDS) {
        let world = std::panic::AssertUnwindSafe(|| World::new(seed, false).run(&engines));
        match std::panic::catch_unwind(world) {
            Ok(summary) => total.add(&summary),
            Err(panic) => {
                eprintln!("seed {seed} failed; replay it with DISKSIDE_SIM_SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    println!("{total:?}");
    // A simulation in which nothing happens proves nothing.
    assert!(total.calls > 10 * total.worlds && total.prepared_calls > 3 * total.worlds, "{total:?}");
    let happened = [total.cancelled, total.refused, total.pending, total.busy, total.early, total.killed_in_calls];
    assert!(happened.iter().all(|count| *count > total.worlds / 20), "everything was met: {total:?}");
    assert!(total.disturbed > total.worlds / 50 && total.aborted_calls > total.worlds / 50, "{total:?}");
    assert!(total.writes > 3 * total.worlds, "{total:?}");
}

/// Worlds in which all goes well, except that one connection is lost: early, late, and everywhere between.
#[test]
fn a_connection_may_be_lost_at_any_step() {
    let engines = Engines::new();
    let calm = |seed| World { kills: 0, weather: Weather::default(), ..World::new(seed, false) };
    for seed in [1, 2, 3] {
        let steps = calm(seed).run(&engines).steps;
        for part in 0..CUTS {
            let cut_at = Some(steps * part / CUTS);
            let world = std::panic::AssertUnwindSafe(|| World { cut_at, ..calm(seed) }.run(&engines));
            let killed = std::panic::catch_unwind(world).unwrap_or_else(|panic| {
                eprintln!("seed {seed} failed when a connection was lost at step {cut_at:?}");
                std::panic::resume_unwind(panic);
            });
            assert!(part < 2 || killed.killed == 1, "{killed:?}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_world() {
    let engines = Engines::new();
    for seed in [2, 5, 40] {
        let once = World::new(seed, false).run(&engines);
        assert_eq!(once, World::new(seed, false).run(&engines), "seed {seed}");
    }
}

impl Summary {
    fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.worlds, other.worlds),
            (&mut self.calls, other.calls),
            (&mut self.writes, other.writes),
            (&mut self.prepared_calls, other.prepared_calls),
            (&mut self.aborted_calls, other.aborted_calls),
            (&mut self.cancelled, other.cancelled),
            (&mut self.refused, other.refused),
            (&mut self.pending, other.pending),
            (&mut self.busy, other.busy),
            (&mut self.early, other.early),
            (&mut self.killed, other.killed),
            (&mut self.killed_in_calls, other.killed_in_calls),
            (&mut self.disturbed, other.disturbed),
            (&mut self.associations, other.associations),
            (&mut self.steps, other.steps),
        ];
        pairs.into_iter().for_each(|(mine, theirs)| *mine += theirs);
    }
}

impl World {
    fn new(seed: u64, verbose: bool) -> Self {
        let mut rng = Rng::new(seed ^ 0xf0_0d);
        let mut target = Target::with_config(SubsystemConfig {
            command_sets: vec![CommandSet {
                csi: CSI_COMPUTE,
                io_commands: function_opcode::ALL.iter().map(|opcode| (*opcode, 0)).collect(),
                admin_commands: vec![(program_opcode::LOAD, 0), (program_opcode::ACTIVATION, 0)],
                log_pages: Vec::new(),
                identify: false,
            }],
            ..SubsystemConfig::new(Nqn::new(SUBSYSTEM).unwrap(), "S1")
        });
        let namespace = Namespace {
            nsid: NSID,
            medium: MediumId(u64::MAX),
            csi: CSI_COMPUTE,
            blocks: 0,
            block_size: BlockSize::B4096,
            atomic_blocks: 1,
            delta_len_max: 0,
            read_only: false,
            deallocate: false,
            uuid: [4; 16],
        };
        target.subsystem.add_namespace(namespace).unwrap();
        if rng.chance(50) {
            target.memory = Memory::with_pool(rng.between(1, 6) as usize);
        }
        target.config = ConnectionConfig {
            h2c_data_len_max: *rng.pick(&[4096, 128 << 10]),
            r2t_len_max: *rng.pick(&[4096, 1 << 20]),
            ..ConnectionConfig::default()
        };
        let mut config = admin_config(SUBSYSTEM, rng.between(1, 3) as u16);
        config.io_queue_entries = *rng.pick(&[3, 8, 32]);
        (config.header_digest, config.data_digest) = (rng.chance(60), rng.chance(60));
        let mut weather = Weather { delay: *rng.pick(&[0, 20, 60]), ..Weather::default() };
        if config.header_digest && config.data_digest {
            weather.damage = *rng.pick(&[0, 1]);
            weather.lose = *rng.pick(&[0, 0, 1]);
        }
        Self {
            now: Instant::now(),
            target,
            memory: Memory::default(),
            config,
            links: Vec::new(),
            serials: Vec::new(),
            last_serial: 0,
            services: BTreeMap::new(),
            host: HostSide::new(rng.between(10, 30)),
            weather,
            kills: *rng.pick(&[0, 0, 3, 12]),
            cut_at: None,
            disturbed: false,
            summary: Summary { worlds: 1, ..Summary::default() },
            steps: 0,
            verbose,
            rng,
        }
    }

    /// Runs until all calls have ended, then checks what is left.
    fn run(mut self, engines: &Engines) -> Summary {
        while !self.host.is_done() {
            self.step(engines, true);
        }
        (self.weather, self.kills) = (Weather::default(), 0);
        if self.disturbed {
            (0..self.links.len()).for_each(|index| self.cut(index));
        } else if let Some(HostEnd::Admin(admin)) = self.links.first_mut().map(|link| &mut link.host) {
            admin.shutdown(self.now);
        }
        self.collect_events();
        while !self.links.is_empty() || self.services.values().any(Service::has_work) {
            self.step(engines, false);
        }
        for (association, service) in &mut self.services {
            // What nobody asks for any more is given up by and by.
            while let Some(at) = service.next_timeout() {
                service.time_out(at);
            }
            service.check_empty(*association);
        }
        engines.programs.forget_host(host::NQN);
        engines.check_empty();
        assert_eq!(self.memory.in_use(), 0, "the host's buffers are all back");
        assert_eq!(self.target.memory.in_use(), 0, "the target's buffers are all back");
        assert!(self.target.subsystem.controllers().is_empty(), "no controller is left");
        self.summary.steps = self.steps;
        self.summary
    }

    fn step(&mut self, engines: &Engines, associate: bool) {
        self.steps += 1;
        assert!(self.steps < STEPS_MAX, "nothing comes to an end: {:#?}", self.host);
        if self.links.is_empty() && associate {
            assert!(self.summary.associations < 200, "no association lasts");
            self.summary.associations += 1;
            self.disturbed = false;
            self.host.begin_association();
            let admin = Admin::new(self.config.clone(), self.now);
            self.add_link(HostEnd::Admin(Box::new(admin)));
        }
        let is_cut = self.cut_at == Some(self.steps) || self.kills > 0 && self.rng.below(8000) < self.kills;
        if is_cut && !self.links.is_empty() {
            let link = self.rng.below(self.links.len() as u64) as usize;
            self.summary.killed += 1;
            self.summary.killed_in_calls += u64::from(self.host.has_calls());
            self.say(|| format!("link {link} is cut"));
            self.cut(link);
        } else {
            let actions = self.possible();
            if actions.is_empty() {
                self.wait();
            } else {
                let action = *self.rng.pick(&actions);
                self.act(action, engines);
            }
        }
        self.collect_events();
        // Queues that were woken, to abort something, obey.
        for index in 0..self.links.len() {
            self.take_requests(index, engines);
        }
        if self.links.is_empty() {
            // As when a host's last controller is gone.
            engines.programs.forget_host(host::NQN);
        }
    }

    // -- what can happen ----------------------------------------------------------------------------------------------

    fn possible(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        let pool_has = self.target.memory.pool_max.is_none_or(|max| self.target.memory.pool_in_use() < max);
        for (index, link) in self.links.iter_mut().enumerate().filter(|(_, link)| !link.dead) {
            if !link.to_controller.is_sending() {
                let polled = match &mut link.host {
                    HostEnd::Admin(admin) => admin.poll_transmit(link.to_controller.transmit()),
                    HostEnd::Io(io) => io.poll_transmit(link.to_controller.transmit()),
                };
                if polled {
                    link.to_controller.begin();
                }
            }
            if !link.to_host.is_sending() && link.controller.poll_transmit(link.to_host.transmit()) {
                link.to_host.begin();
            }
            let mut add = |possible: bool, action: Action| {
                if possible {
                    actions.push(action);
                }
            };
            let arrives = |wire: &Wire, now| wire.next_arrival().is_some_and(|at| at <= now);
            let unread = !link.to_controller.arrived.is_empty() && link.controller.wants_input();
            add(link.to_controller.is_sending(), Action::HostSends(index));
            add(link.to_host.is_sending(), Action::ControllerSends(index));
            add(arrives(&link.to_controller, self.now) || unread, Action::ToController(index));
            add(arrives(&link.to_host, self.now), Action::ToHost(index));
            add(link.controller.awaits_buffers() && pool_has, Action::Buffers(index));
        }
        if self.can_issue() {
            actions.push(Action::Issue);
        }
        let working = self.services.iter().filter(|(_, service)| service.has_work());
        actions.extend(working.map(|(association, _)| Action::Engine(*association)));
        actions
    }

    fn act(&mut self, action: Action, engines: &Engines) {
        match action {
            Action::Issue => self.issue(engines),
            Action::HostSends(index) => self.host_sends(index),
            Action::ControllerSends(index) => self.controller_sends(index),
            Action::ToController(index) => self.controller_receives(index, engines),
            Action::ToHost(index) => self.host_receives(index),
            Action::Buffers(index) => {
                self.links[index].controller.handle_buffers(self.now, &mut self.target.memory);
                self.take_requests(index, engines);
            }
            Action::Engine(association) => {
                let Some(service) = self.services.get_mut(&association) else { return };
                service.work(self.now, &mut self.rng, engines);
                self.carry_out(association);
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
        self.note(fate);
        self.close_if_over(index);
    }

    fn controller_sends(&mut self, index: usize) {
        let link = &mut self.links[index];
        let memory = &mut self.target.memory;
        let (fate, done) = link.to_host.send_some(self.now, &mut self.rng, self.weather, memory, true);
        if done {
            link.controller.handle_transmitted(link.to_host.transmit());
        }
        self.note(fate);
        self.close_if_over(index);
    }

    fn controller_receives(&mut self, index: usize, engines: &Engines) {
        let link = &mut self.links[index];
        link.to_controller.receive_some(self.now, &mut self.rng);
        let taken = link.controller.handle_bytes(self.now, &link.to_controller.arrived, &mut self.target.memory);
        link.to_controller.arrived.drain(..taken);
        self.take_requests(index, engines);
        self.close_if_over(index);
    }

    fn host_receives(&mut self, index: usize) {
        let link = &mut self.links[index];
        link.to_host.receive_some(self.now, &mut self.rng);
        let bytes = std::mem::take(&mut link.to_host.arrived);
        match &mut link.host {
            HostEnd::Admin(admin) => admin.handle_bytes(self.now, &bytes, &mut self.memory),
            HostEnd::Io(io) => io.handle_bytes(self.now, &bytes, &mut self.memory),
        }
        self.close_if_over(index);
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
        self.services.values().for_each(|service| consider(service.next_timeout()));
        consider(self.next_command());
        let next = next.unwrap_or_else(|| panic!("nothing will ever happen: {:#?}", self.host));
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
        let due: Vec<u64> = self.services.keys().copied().collect();
        due.into_iter().for_each(|association| self.carry_out(association));
    }

    // -- connections --------------------------------------------------------------------------------------------------

    fn add_link(&mut self, host: HostEnd) {
        let controller = self.target.accept(self.now);
        let (to_controller, to_host) = Default::default();
        self.links.push(Link { host, controller, to_controller, to_host, requests: Vec::new(), dead: false });
        self.last_serial += 1;
        self.serials.push(self.last_serial);
    }

    fn close_if_over(&mut self, index: usize) {
        let link = &self.links[index];
        let host = match &link.host {
            HostEnd::Admin(admin) => admin.state(),
            HostEnd::Io(io) => io.state(),
        };
        let read_all = link.to_host.next_arrival().is_none() && !link.to_host.is_sending();
        if host == nvme_host::State::Closed || link.controller.state() == State::Closed && read_all {
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
        let association = link.controller.association();
        link.controller.handle_close(&mut self.target.memory);
        if let Some(service) = association.and_then(|association| self.services.get_mut(&association)) {
            service.lost(self.now, self.serials[index]);
        }
        match &mut link.host {
            HostEnd::Admin(admin) => admin.handle_close(),
            HostEnd::Io(io) => io.handle_close(),
        }
    }

    fn note(&mut self, fate: Fate) {
        if fate != Fate::Sent {
            self.summary.disturbed += u64::from(!self.disturbed);
            self.disturbed = true;
            self.say(|| format!("{fate:?}"));
        }
    }

    fn say(&self, what: impl FnOnce() -> String) {
        if self.verbose {
            println!("{:>6} {}", self.steps, what());
        }
    }
}

/// Bytes that a function makes of a seed.
fn pattern(seed: u64, len: u64) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed) >> 32) as u8).collect()
}

/// A wait that a command asks for.
fn some_ms(rng: &mut Rng) -> u32 {
    *rng.pick(&[1, 5, 50, 5000])
}

/// Takes a buffer's bytes.
fn take(memory: &mut Memory, buffer: BufferId, range: std::ops::Range<usize>) -> Vec<u8> {
    let bytes =
        memory.slice(diskside_nvme::BufferSlice { buffer, offset: range.start as u32, len: range.len() as u32 });
    let bytes = bytes.to_vec();
    memory.release(buffer);
    bytes
}

/// The longest that a command of a call that goes well takes.
const TIMEOUT: Duration = Duration::from_secs(60);
