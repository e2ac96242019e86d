//! The tables that all controllers share, under a seeded scheduler: who is there, what is loaded, whose turn it is.
//!
//! Each seed is one world: three hosts come with controllers and go, also while another connection of the same controller
//! comes; they load programs part by part, good and bad ones; verifications end whenever chance says so, also after their
//! host has gone and another one began to load in the same place; programs are activated and unloaded while calls of them
//! wait and run; and calls go through the queues of the pool. A model that is no more than what the specification says
//! tells what each command is answered, and everything is compared after each step.
//!
//! These hold: a program is what its owner loaded, and goes with the owner's last controller; a call runs the program
//! that was there when it came, which is not unloaded meanwhile; hosts stay within their bounds and take turns; and
//! when all have gone, nothing is left.
//!
//! `DISKSIDE_SIM_SEED=n` runs one seed, `DISKSIDE_SIM_SEEDS=n` so many.

mod model;
#[path = "../../../nvme/tests/support/rng.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is shared with tests that use more of it")]
mod rng;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use diskside_engine::Engine;
use diskside_nvme::Status;
use diskside_nvme::wire::Sqe;
use diskside_rights::{HostQuota, QuotaTable};
use diskside_wire::function::{Class, program_state};

use self::model::{HOSTS, Model, ModelSlot, NQNS};
use self::rng::Rng;
use diskside_compute::internal::Host;
use diskside_compute::internal::InUse;
use diskside_compute::internal::Peers;
use diskside_compute::internal::{ActiveProgram, LoadedProgram, ProgramLimits, Programs, Unverified};
use diskside_compute::internal::{Bounds, Ledger};
use diskside_compute::internal::{PoolLimits, Queues, Work};

const SEEDS: u64 = 1000;
const STEPS: u64 = 250;
/// Program indexes that hosts can load at.
const FREE: usize = 4;
const CALLS: PoolLimits = PoolLimits {
    threads_max: usize::MAX,
    host_calls_max: 2,
    memory: Bounds { host_max: 100, total_max: u64::MAX },
    host_queue_max: 4,
    host_prompt_max: 1,
    prompt_threads: 0,
    parked_max: 0,
};

/// The part that all worlds share: verifying the shipped programs takes long.
struct Shared {
    engine: Engine,
    programs: Programs,
    /// Index of the first program that is not shipped.
    first: u16,
    /// The objects that hosts load: two good programs, and one that is invalid.
    objects: Vec<Vec<u8>>,
    /// Keeps what was verified of them, so that loading them again is quick.
    _verified: Vec<Arc<LoadedProgram>>,
}

/// A controller that does nothing.
struct Controller {
    host: Arc<Host>,
    index: usize,
}

/// A call that waits or runs.
struct SimCall {
    host: u64,
    class: Class,
    memory: u64,
    /// The program as it was when the call came, and the object that it must be.
    program: Arc<LoadedProgram>,
    object: usize,
    /// Where it was loaded, and by which load.
    loaded: (usize, u64),
    _in_use: InUse,
}

struct World<'a> {
    shared: &'a Shared,
    rng: Rng,
    peers: Peers<Controller>,
    controllers: BTreeMap<u64, Arc<Controller>>,
    /// Controllers whose last connection is gone, and that nobody has heard of yet.
    leaving: Vec<(u64, usize)>,
    verifying: Vec<(usize, u64, Unverified)>,
    model: Model,
    queues: Queues,
    waiting: BTreeMap<u64, SimCall>,
    running: BTreeMap<u64, SimCall>,
    /// Set by work when it runs.
    ran: Arc<Mutex<Option<u64>>>,
    last_call: u64,
    last_host: u64,
    summary: Summary,
}

/// What happened in all worlds.
#[derive(Debug, Default, PartialEq, Eq)]
struct Summary {
    rejoined: u64,
    late_verifications: u64,
    loaded: u64,
    bad: u64,
    refused: u64,
    kept_in_use: u64,
    calls: u64,
    full: u64,
}

#[test]
fn a_thousand_seeds() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let shared = Shared::new();
    let mut summary = Summary::default();
    let seeds = match number("DISKSIDE_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("DISKSIDE_SIM_SEEDS").unwrap_or(SEEDS),
    };
    let count = seeds.end - seeds.start;
    for seed in seeds {
        let world = std::panic::AssertUnwindSafe(|| World::new(&shared, seed).run());
        match std::panic::catch_unwind(world) {
            Ok(happened) => summary.add(&happened),
            Err(panic) => {
                eprintln!("seed {seed} failed; replay it with DISKSIDE_SIM_SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    println!("{summary:?}");
    // A simulation in which nothing happens proves nothing.
    if count >= 100 {
        let Summary { rejoined, late_verifications, loaded, bad, refused, kept_in_use, calls, full } = summary;
        let happened = [rejoined, late_verifications, loaded, bad, refused, kept_in_use, calls, full];
        assert!(happened.iter().all(|times| *times > count / 10), "{happened:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_world() {
    let shared = Shared::new();
    for seed in [3, 17] {
        assert_eq!(World::new(&shared, seed).run(), World::new(&shared, seed).run(), "seed {seed}");
    }
}

impl Shared {
    fn new() -> Self {
        let engine = Engine::new(diskside_sbpf::helpers::standard());
        let first = diskside_functions::shipped().len();
        let mut objects: Vec<Vec<u8>> = Vec::new();
        objects.extend(diskside_functions::shipped().iter().take(2).map(|shipped| shipped.object.to_vec()));
        objects.push(vec![0x7f; 3000]);
        let limits = ProgramLimits {
            indexes: first + FREE,
            len_max: 1 << 20,
            total_len_max: objects[0].len() + 2 * objects[1].len(),
            host_programs_max: 2,
            active_max: 2,
        };
        let programs = Programs::new(&engine, limits).expect("the shipped functions are good");
        let load = |object: &Vec<u8>| {
            let (first, len) = (first as u16, object.len() as u32);
            let sqe = Sqe::load_program(1, first, len, 0, len);
            let unverified = programs
                .load(("keeper", &HostQuota::unlimited()), 0, &sqe, object)
                .expect("it fits")
                .expect("all of it is there");
            programs.verify(&engine, unverified).expect("it is good");
            let program = programs.get("keeper", first).expect("it is there");
            programs.forget_host("keeper");
            program
        };
        let verified = objects[..2].iter().map(load).collect();
        Self { engine, programs, first: first as u16, objects, _verified: verified }
    }
}

impl Summary {
    fn add(&mut self, other: &Self) {
        self.rejoined += other.rejoined;
        self.late_verifications += other.late_verifications;
        self.loaded += other.loaded;
        self.bad += other.bad;
        self.refused += other.refused;
        self.kept_in_use += other.kept_in_use;
        self.calls += other.calls;
        self.full += other.full;
    }
}

impl<'a> World<'a> {
    fn new(shared: &'a Shared, seed: u64) -> Self {
        let total_len_max = shared.objects[0].len() + 2 * shared.objects[1].len();
        Self {
            shared,
            rng: Rng::new(seed),
            peers: Peers::new(Ledger::new(CALLS.memory), QuotaTable::unwatched()),
            controllers: BTreeMap::new(),
            leaving: Vec::new(),
            verifying: Vec::new(),
            model: Model::new(FREE, total_len_max),
            queues: Queues::default(),
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            ran: Arc::default(),
            last_call: 0,
            last_host: 0,
            summary: Summary::default(),
        }
    }

    fn run(mut self) -> Summary {
        for _ in 0..STEPS {
            let host = self.rng.below(HOSTS as u64) as usize;
            match self.rng.below(24) {
                0 | 1 => self.join(host),
                2 => self.drop_controller(),
                3 => self.leave(),
                4..=8 => self.load(host),
                9 | 10 => self.verify(),
                11..=13 => self.activate(host),
                14 => self.unload(host),
                15..=19 => self.call(host),
                20 | 21 => self.take(),
                _ => self.finish(),
            }
            self.compare();
        }
        while !self.controllers.is_empty() {
            self.drop_controller();
        }
        while !self.leaving.is_empty() {
            self.leave();
        }
        while !self.verifying.is_empty() {
            self.verify();
        }
        while !self.waiting.is_empty() || !self.running.is_empty() {
            self.take();
            self.finish();
        }
        self.compare();
        assert!(self.queues.is_idle() && self.peers.hosts().next().is_none());
        let left = self.shared.programs.directory("", |_| true).1.len();
        assert_eq!(left, usize::from(self.shared.first), "the hosts' programs went with them");
        self.summary
    }

    // -- who is there -------------------------------------------------------------------------------------------------

    fn join(&mut self, host: usize) {
        // Two controllers of each host.
        let id = (host as u64) * 2 + self.rng.below(2);
        let rejoins = self.leaving.iter().any(|(left, _)| *left == id);
        let before = self.controllers.get(&id).map(Arc::as_ptr);
        let controller = self.peers.join(id, NQNS[host], |of| Arc::new(Controller { host: of, index: host }));
        assert_eq!(controller.host.nqn, NQNS[host]);
        assert!(before.is_none_or(|known| known == Arc::as_ptr(&controller)), "one that is there is not made anew");
        self.summary.rejoined += u64::from(rejoins && before.is_none());
        self.controllers.insert(id, controller);
    }

    fn drop_controller(&mut self) {
        let Some(id) = self.pick_key(|world| world.controllers.keys().copied().collect()) else { return };
        let controller = self.controllers.remove(&id).expect("it was picked");
        self.leaving.push((id, controller.index));
    }

    /// The tables hear of a controller that is gone.
    fn leave(&mut self) {
        if self.leaving.is_empty() {
            return;
        }
        let at = self.rng.below(self.leaving.len() as u64) as usize;
        let (id, host) = self.leaving.swap_remove(at);
        let last = self.peers.leave(id, NQNS[host]);
        assert_eq!(last, self.controllers_of(host) == 0, "host {host}");
        if last {
            self.shared.programs.forget_host(NQNS[host]);
            self.model.forget(host);
        }
    }

    /// Controllers of a host, with those that nobody heard of.
    fn controllers_of(&self, host: usize) -> usize {
        let here = self.controllers.values().filter(|controller| controller.index == host).count();
        here + self.leaving.iter().filter(|(_, of)| *of == host).count()
    }

    fn is_there(&self, host: usize) -> bool {
        self.controllers.values().any(|controller| controller.index == host)
    }

    // -- programs -----------------------------------------------------------------------------------------------------

    /// The next part of a program, or the first, or one that does not belong there.
    fn load(&mut self, host: usize) {
        if !self.is_there(host) {
            return;
        }
        let slot = self.rng.below(FREE as u64) as usize;
        let (object, offset) = match &self.model.slots[slot] {
            ModelSlot::Loading { object, sent, .. } if self.rng.chance(85) => (*object, *sent),
            _ => (*self.rng.pick(&[0, 0, 1, 1, 2]), 0),
        };
        let bytes = &self.shared.objects[object];
        let offset = if self.rng.chance(4) { offset + 1 } else { offset };
        let left = bytes.len().saturating_sub(offset);
        let len = if self.rng.chance(50) { left } else { left.min(2000) };
        let data = &bytes[offset.min(bytes.len())..][..len];
        let sqe = Sqe::load_program(1, self.index(slot), bytes.len() as u32, offset as u32, len as u32);
        let done = self.shared.programs.load((NQNS[host], &HostQuota::unlimited()), host as u64, &sqe, data);
        let wanted = self.model.load(host, slot, object, bytes.len(), offset, len);
        match (done, wanted) {
            (Ok(None), Ok(None)) => {}
            (Ok(Some(unverified)), Ok(Some(ticket))) => self.verifying.push((slot, ticket, unverified)),
            (Err(problem), Err(status)) => {
                assert_eq!(problem.status, status, "{:?}", problem.record);
                self.summary.refused += 1;
            }
            (done, wanted) => panic!("{done:?}, and it should be {wanted:?}"),
        }
    }

    fn verify(&mut self) {
        if self.verifying.is_empty() {
            return;
        }
        let at = self.rng.below(self.verifying.len() as u64) as usize;
        let (slot, ticket, unverified) = self.verifying.swap_remove(at);
        if self.rng.chance(10) {
            self.shared.programs.give_up(unverified.place());
            self.model.give_up(slot, ticket);
            return;
        }
        let done = self.shared.programs.verify(&self.shared.engine, unverified);
        let bad = self.shared.objects.len() - 1;
        let late = !self.model.is_verifying(slot, ticket);
        let wanted = self.model.verify(slot, ticket, bad);
        // An invalid program is refused, wherever it would have gone.
        match done {
            Ok(()) => assert_eq!(wanted, Ok(())),
            Err(problem) => assert_eq!(wanted, Err(problem.status), "{:?}", problem.record),
        }
        self.summary.loaded += u64::from(wanted.is_ok());
        self.summary.late_verifications += u64::from(late);
        self.summary.bad += u64::from(wanted == Err(Status::INVALID_PROGRAM_DATA.dnr()));
    }

    fn activate(&mut self, host: usize) {
        let (slot, activate) = (self.rng.below(FREE as u64) as usize, self.rng.chance(80));
        let host = self.model.slots[slot].owner().filter(|_| self.rng.chance(80)).unwrap_or(host);
        let sqe = Sqe::activate_program(1, self.index(slot), activate);
        let done = self.shared.programs.activation(NQNS[host], &sqe).map_err(|problem| problem.status);
        assert_eq!(done, self.model.activate(host, slot, activate));
    }

    fn unload(&mut self, host: usize) {
        let mut slot = self.rng.below(FREE as u64) as usize;
        if self.rng.chance(50) {
            slot = (0..FREE).find(|slot| self.model.calls(*slot) > 0).unwrap_or(slot);
        }
        let host = self.model.slots[slot].owner().filter(|_| self.rng.chance(80)).unwrap_or(host);
        if self.rng.chance(70) {
            let deactivate = Sqe::activate_program(1, self.index(slot), false);
            let done = self.shared.programs.activation(NQNS[host], &deactivate).map_err(|problem| problem.status);
            assert_eq!(done, self.model.activate(host, slot, false));
        }
        let sqe = Sqe::unload_program(1, self.index(slot));
        let done = self.shared.programs.load((NQNS[host], &HostQuota::unlimited()), host as u64, &sqe, &[]);
        let done = done.map(drop).map_err(|problem| problem.status);
        let wanted = self.model.unload(host, slot);
        assert_eq!(done, wanted);
        self.summary.kept_in_use += u64::from(wanted == Err(Status::PROGRAM_IN_USE));
    }

    fn index(&self, slot: usize) -> u16 {
        self.shared.first + slot as u16
    }

    // -- calls --------------------------------------------------------------------------------------------------------

    fn call(&mut self, host: usize) {
        let Some(controller) = self.controllers.values().find(|controller| controller.index == host) else { return };
        let id = controller.host.id;
        let mut slot = self.rng.below(FREE as u64) as usize;
        if self.rng.chance(80) {
            slot = (0..FREE).find(|slot| self.model.active(host, *slot).is_ok()).unwrap_or(slot);
        }
        let (found, object) =
            match (self.shared.programs.active(NQNS[host], self.index(slot)), self.model.active(host, slot)) {
                (Ok(found), Ok(object)) => (found, object),
                (Err(status), Err(wanted)) => return assert_eq!(status, wanted),
                (found, wanted) => panic!("{:?}, and it should be {wanted:?}", found.map(|found| found.program.id())),
            };
        self.last_call += 1;
        let (number, ran) = (self.last_call, Arc::clone(&self.ran));
        let class = if self.rng.chance(30) { Class::Background } else { Class::Normal };
        let memory = *self.rng.pick(&[0, 10, 40, 60, 500]);
        let run = Box::new(move || *ran.lock().expect("no panics") = Some(number));
        let queued = self.waiting.values().filter(|call| call.host == id).count();
        let work = Work { host: id, class: class.into(), memory, memory_max: u64::MAX, cancel: None, run };
        let taken = self.queues.push(work, &CALLS);
        assert_eq!(taken, queued < CALLS.host_queue_max);
        if taken {
            let ActiveProgram { program, usage } = found;
            let (in_use, loaded) = (usage.begin().expect("it is active"), self.model.begin(slot));
            self.waiting.insert(number, SimCall { host: id, class, memory, program, object, loaded, _in_use: in_use });
            self.summary.calls += 1;
        } else {
            self.summary.full += 1;
        }
    }

    /// A thread looks for work.
    fn take(&mut self) {
        let wanted = self.next_call();
        let Some(work) = self.queues.next(&CALLS) else { return assert_eq!(wanted, None) };
        (work.run)();
        let number = self.ran.lock().expect("no panics").take().expect("it ran");
        assert_eq!(Some(number), wanted);
        let call = self.waiting.remove(&number).expect("it waited");
        assert_eq!((work.host, work.class, work.memory), (call.host, call.class.into(), call.memory));
        self.last_host = call.host;
        self.running.insert(number, call);
    }

    /// Normal calls before background ones, hosts in turn, each within its bounds.
    fn next_call(&self) -> Option<u64> {
        let hosts: BTreeSet<u64> = self.waiting.values().map(|call| call.host).collect();
        let (before, after): (Vec<u64>, Vec<u64>) = hosts.into_iter().partition(|host| *host <= self.last_host);
        let heads = after.into_iter().chain(before).filter_map(|host| {
            let of_host = self.waiting.iter().filter(|(_, call)| call.host == host);
            of_host.min_by_key(|(number, call)| (call.class == Class::Background, **number))
        });
        let mut ready = heads.filter(|(_, call)| self.may_run(call)).collect::<Vec<_>>();
        // Stable: turns stay as they are.
        ready.sort_by_key(|(_, call)| call.class == Class::Background);
        ready.first().map(|(number, _)| **number)
    }

    fn finish(&mut self) {
        let Some(number) = self.pick_key(|world| world.running.keys().copied().collect()) else { return };
        let call = self.running.remove(&number).expect("it was picked");
        assert!(call.program.object[..] == self.shared.objects[call.object][..], "it ran what was there when it came");
        self.queues.done(call.host, call.class.into(), call.memory);
        self.model.end(call.loaded);
    }

    fn may_run(&self, call: &SimCall) -> bool {
        let running = || self.running.values().filter(|other| other.host == call.host);
        let memory: u64 = running().map(|other| other.memory).sum();
        let count = running().count();
        count < CALLS.host_calls_max && (memory == 0 || memory + call.memory <= CALLS.memory.host_max)
    }

    // -- everything ---------------------------------------------------------------------------------------------------

    fn compare(&self) {
        for (host, name) in NQNS.iter().enumerate() {
            let found = self.peers.hosts().find(|(nqn, _)| nqn == name).map_or(0, |(_, controllers)| controllers);
            assert_eq!(found, self.controllers_of(host), "controllers of host {host}");
        }
        assert_eq!(self.peers.all().len(), self.controllers.len());
        assert_eq!(self.queues.waiting(), self.waiting.len());
        let (_, entries) = self.shared.programs.directory(NQNS[0], |_| true);
        for slot in 0..FREE {
            let entry = entries.iter().find(|entry| entry.pind.get() == self.index(slot));
            let told = entry.map(|entry| (entry.len.get() as usize, entry.state));
            let has = |holds: bool, bit: u8| if holds { bit } else { 0 };
            let wanted = match &self.model.slots[slot] {
                ModelSlot::Loaded { owner: 0, object, active, .. } => {
                    let state = has(*active, program_state::ACTIVE) | program_state::OWN;
                    Some((self.shared.objects[*object].len(), state))
                }
                _ => None,
            };
            assert_eq!(told, wanted, "slot {slot}");
        }
    }

    fn pick_key(&mut self, keys: impl Fn(&Self) -> Vec<u64>) -> Option<u64> {
        let keys = keys(self);
        (!keys.is_empty()).then(|| *self.rng.pick(&keys))
    }
}
