//! The programs of the compute namespace: shipped ones from the start, others loaded by hosts.
//!
//! A program belongs to the host that loaded it: for others there is none at its index, though they cannot load one there.
//! Shipped ones are everybody's to run. A program is verified when its last part has arrived. The same object loaded twice
//! shares what was verified and compiled: it is compared byte by byte.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use diskside_engine::{Engine, LoadError};
use diskside_nvme::Status;
use diskside_nvme::wire::PROGRAM_TYPE_EBPF;
use diskside_nvme::wire::Sqe;
use diskside_rights::{HostQuota, Scarce};
use diskside_wire::function::{ProgramEntry, program_state};

use crate::call::answer::Problem;
use crate::program::loaded::LoadedProgram;
use crate::program::slot::{Entry, Place, Slot, Unloaded, Unverified, bytes_downloaded};
use crate::program::usage::Usage;

/// Bounds of what is loaded.
#[derive(Clone, Copy, Debug)]
pub struct ProgramLimits {
    /// Program indexes.
    pub indexes: usize,
    /// Bytes of one program.
    pub len_max: usize,
    /// Bytes of all that were downloaded.
    pub total_len_max: usize,
    /// Programs of one host.
    pub host_programs_max: usize,
    /// Programs that are active.
    pub active_max: usize,
}

/// All programs, by index.
#[derive(Debug)]
pub struct Programs {
    limits: ProgramLimits,
    table: Mutex<Table>,
}

#[derive(Debug)]
struct Table {
    slots: Vec<Slot>,
    generation: u64,
    /// Verifications begun so far.
    tickets: u64,
    /// What is verified already and still in use somewhere.
    verified: Vec<Weak<LoadedProgram>>,
}

/// A program that may run now.
#[derive(Debug)]
pub struct ActiveProgram {
    /// What is run.
    pub program: Arc<LoadedProgram>,
    /// Which calls run it.
    pub usage: Arc<Usage>,
}

impl Programs {
    /// The shipped programs, active.
    pub fn new(engine: &Engine, limits: ProgramLimits) -> Result<Self, LoadError> {
        let mut slots: Vec<Slot> = Vec::new();
        let mut verified = Vec::new();
        for shipped in diskside_functions::shipped() {
            let program = Arc::new(LoadedProgram::load(engine, shipped.object.into(), Some(shipped.name))?);
            verified.push(Arc::downgrade(&program));
            let (puid, usage) = (program.id(), Usage::new(true));
            slots.push(Slot::Loaded(Entry { puid, program, owner: None, active: true, usage }));
        }
        slots.resize_with(limits.indexes.max(slots.len()), Slot::default);
        Ok(Self { limits, table: Mutex::new(Table { slots, generation: 1, tickets: 0, verified }) })
    }

    /// Program indexes.
    pub(crate) fn indexes(&self) -> usize {
        self.lock().slots.len()
    }

    /// The program that `host` has at an index, to be run.
    pub fn active(&self, host: &str, pind: u16) -> Result<ActiveProgram, Status> {
        match self.lock().entry(host, pind)? {
            Entry { program, usage, active: true, .. } => {
                Ok(ActiveProgram { program: Arc::clone(program), usage: Arc::clone(usage) })
            }
            _ => Err(Status::PROGRAM_NOT_ACTIVATED.dnr()),
        }
    }

    /// The program that `host` has at an index, active or not.
    pub fn get(&self, host: &str, pind: u16) -> Result<Arc<LoadedProgram>, Status> {
        self.lock().entry(host, pind).map(|entry| Arc::clone(&entry.program))
    }

    /// A Load Program of `host` with its data. With its last part the program is to be [verified](Self::verify), on a
    /// thread that may take its time.
    pub fn load(
        &self,
        (host, quota): (&str, &HostQuota),
        controller: u64,
        sqe: &Sqe,
        data: &[u8],
    ) -> Result<Option<Unverified>, Problem> {
        if sqe.unloads_program() {
            drop(self.unload(host, sqe.program_index())?);
            return Ok(None);
        }
        let (pind, len) = (sqe.program_index(), sqe.program_len() as usize);
        let (offset, part_len) = (sqe.load_offset() as usize, sqe.load_len() as usize);
        let mut table = self.lock();
        let table = &mut *table;
        let mut used = bytes_downloaded(table.slots.iter());
        let is_own = |slot: &&Slot| slot.owner() == Some(host);
        let mut own_bytes = bytes_downloaded(table.slots.iter().filter(is_own));
        let own = table.slots.iter().filter(is_own).count();
        let taken = table.slots.iter().filter_map(Slot::owner).count();
        let for_hosts = table.slots.iter().filter(|slot| !slot.is_shipped()).count();
        let slot = table.slots.get_mut(usize::from(pind)).ok_or(Status::INVALID_PROGRAM_INDEX.dnr())?;
        let mine = slot.owner() == Some(host);
        let invalid = |message: &str| Problem::new(Status::INVALID_PROGRAM_DATA.dnr(), message);
        match slot {
            Slot::Loaded(Entry { owner: None, .. }) => return Err(Status::PROGRAM_INDEX_NOT_DOWNLOADABLE.dnr().into()),
            Slot::Loaded(_) | Slot::Verifying { .. } => return Err(Status::PROGRAM_IN_USE.dnr().into()),
            // Another process of the same host may load another program.
            Slot::Loading { controller: other, .. } if !mine || *other != controller => {
                return Err(Status::PROGRAM_IN_USE.dnr().into());
            }
            // Offset 0 begins again: the host may have abandoned the load that it began.
            Slot::Loading { bytes, .. } if offset == 0 => {
                used -= bytes.len();
                own_bytes -= bytes.len();
                *slot = Slot::Empty;
            }
            Slot::Loading { .. } | Slot::Empty => {}
        }
        if offset == 0 {
            let id_type =
                sqe.program_id_type().ok_or(Problem::in_command(43, "this type of identifier is reserved"))?;
            if sqe.program_type() != PROGRAM_TYPE_EBPF {
                return Err(Status::INVALID_PROGRAM_TYPE.dnr().into());
            }
            if len == 0 || part_len == 0 {
                return Err(invalid("a program has at least one byte"));
            }
            if len > self.limits.len_max || used + len > self.limits.total_len_max {
                return Err(Status::MAXIMUM_PROGRAM_BYTES_EXCEEDED.dnr().into());
            }
            if is_for_others(self.limits.total_len_max, (used, own_bytes), len) {
                return Err(bytes_for_others());
            }
            if !mine && is_for_others(for_hosts, (taken, own), 1) {
                let told =
                    "the last eighth of the target's program indexes is for hosts that have fewer; unload a program";
                return Err(Problem::new(Status::INSUFFICIENT_PROGRAM_RESOURCES.dnr(), told));
            }
            // A slot whose load this host begins again was its own before.
            if own - usize::from(mine) >= quota.programs_of(self.limits.host_programs_max) {
                quota.refuse(Scarce::Programs);
                let told = format!("this host has {own} programs, all that it may have; unload one");
                return Err(Problem::new(Status::INSUFFICIENT_PROGRAM_RESOURCES.dnr(), told));
            }
            let puid = (id_type as u8 == 1).then(|| sqe.program_puid());
            let owner = host.to_owned();
            *slot = Slot::Loading { owner, controller, puid, len, bytes: Vec::new() };
        }
        let Slot::Loading { len, bytes, puid, .. } = slot else {
            return Err(invalid("a load begins with its first byte"));
        };
        if offset.checked_add(part_len).is_none_or(|end| end > *len) {
            *slot = Slot::Empty;
            return Err(Status::PROGRAM_TOO_BIG.dnr().into());
        }
        if offset != bytes.len() || part_len != data.len() || part_len == 0 {
            *slot = Slot::Empty;
            return Err(invalid("the parts of a program follow each other, each as long as its data"));
        }
        if used + part_len > self.limits.total_len_max {
            *slot = Slot::Empty;
            return Err(Status::MAXIMUM_PROGRAM_BYTES_EXCEEDED.dnr().into());
        }
        if is_for_others(self.limits.total_len_max, (used, own_bytes), part_len) {
            *slot = Slot::Empty;
            return Err(bytes_for_others());
        }
        bytes.extend_from_slice(data);
        if bytes.len() < *len {
            return Ok(None);
        }
        let (object, puid, len) = (std::mem::take(bytes), puid.unwrap_or(0), *len);
        table.tickets += 1;
        let ticket = table.tickets;
        *slot = Slot::Verifying { owner: host.to_owned(), len, ticket };
        Ok(Some(Unverified { object, puid, place: Place { pind, ticket } }))
    }

    /// Verifies a program. Takes milliseconds.
    pub fn verify(&self, engine: &Engine, unverified: Unverified) -> Result<(), Problem> {
        let Unverified { object, puid, place } = unverified;
        let same = |program: &Arc<LoadedProgram>| program.object[..] == object[..];
        // A device-defined program means one function where none is named; this load does not.
        let alike = |program: &Arc<LoadedProgram>| program.default_function.is_none() && same(program);
        let known = self.lock().verified.iter().filter_map(Weak::upgrade).find(alike);
        let loaded = known.map_or_else(|| LoadedProgram::load(engine, object.into(), None).map(Arc::new), Ok);
        let mut table = self.lock();
        let table = &mut *table;
        let slot = &mut table.slots[usize::from(place.pind)];
        let Some(owner) = slot.owner_of(place) else {
            return Err(Status::NO_PROGRAM.dnr().into());
        };
        match loaded {
            Ok(program) => {
                let owner = Some(std::mem::take(owner));
                table.verified.retain(|program| program.strong_count() > 0);
                table.verified.push(Arc::downgrade(&program));
                *slot = Slot::Loaded(Entry { program, owner, active: false, puid, usage: Usage::new(false) });
                table.generation += 1;
                Ok(())
            }
            Err(error) => {
                *slot = Slot::Empty;
                Err(Problem::new(Status::INVALID_PROGRAM_DATA.dnr(), error.to_string()))
            }
        }
    }

    /// A program that is to be verified will not be.
    pub fn give_up(&self, place: Place) {
        let slot = &mut self.lock().slots[usize::from(place.pind)];
        if slot.owner_of(place).is_some() {
            *slot = Slot::Empty;
        }
    }

    /// An unload of `host`. What is given is still to be freed.
    pub fn unload(&self, host: &str, pind: u16) -> Result<Unloaded, Problem> {
        let mut table = self.lock();
        let slot = table.slots.get_mut(usize::from(pind)).ok_or(Status::INVALID_PROGRAM_INDEX.dnr())?;
        match slot {
            Slot::Loaded(Entry { owner: None, .. }) => return Err(Status::PROGRAM_INDEX_NOT_DOWNLOADABLE.dnr().into()),
            _ if slot.owner() != Some(host) => return Err(Status::NO_PROGRAM.dnr().into()),
            Slot::Empty => return Err(Status::NO_PROGRAM.dnr().into()),
            Slot::Verifying { .. } => return Err(Status::PROGRAM_IN_USE.dnr().into()),
            Slot::Loaded(Entry { active: true, .. }) => return Err(Status::PROGRAM_IN_USE.dnr().into()),
            Slot::Loaded(entry) => drop(entry.usage.unload().map_err(still_runs)?),
            Slot::Loading { .. } => {}
        }
        let unloaded = Unloaded { _slot: std::mem::take(slot) };
        table.generation += 1;
        Ok(unloaded)
    }

    /// A Program Activation Management of `host`. Calls that run continue.
    pub fn activation(&self, host: &str, sqe: &Sqe) -> Result<(), Problem> {
        let activate = match sqe.activation_select() {
            0 => false,
            1 => true,
            _ => return Err(Problem::in_command(42, "SEL is 0 (deactivate) or 1 (activate)")),
        };
        let mut table = self.lock();
        let loaded = |slot: &Slot| matches!(slot, Slot::Loaded(Entry { active: true, owner: Some(_), .. }));
        let active = table.slots.iter().filter(|slot| loaded(slot)).count();
        let own = table.slots.iter().filter(|slot| loaded(slot) && slot.owner() == Some(host)).count();
        let slot = table.slots.get_mut(usize::from(sqe.program_index())).ok_or(Status::INVALID_PROGRAM_INDEX.dnr())?;
        let Slot::Loaded(entry) = slot else { return Err(Status::NO_PROGRAM.dnr().into()) };
        if !entry.is_for(host) {
            return Err(Status::NO_PROGRAM.dnr().into());
        }
        if entry.active == activate {
            return Ok(());
        }
        if entry.owner.is_none() {
            return Err(Problem::new(
                Status::OPERATION_DENIED.dnr(),
                "this program came with the target and stays active",
            ));
        }
        if activate && active >= self.limits.active_max {
            let told = format!("{active} programs of hosts are active, all that may be; deactivate one");
            return Err(Problem::new(Status::MAXIMUM_PROGRAMS_ACTIVATED.dnr(), told));
        }
        if activate && is_for_others(self.limits.active_max, (active, own), 1) {
            let told =
                "the last eighth of the programs that may be active is for hosts that have fewer; deactivate one";
            return Err(Problem::new(Status::MAXIMUM_PROGRAMS_ACTIVATED.dnr(), told));
        }
        entry.active = activate;
        entry.usage.set_active(activate);
        table.generation += 1;
        Ok(())
    }

    /// The last controller of `host` is gone, and its programs go with it. Calls of others that run them or are
    /// prepared continue.
    pub fn forget_host(&self, host: &str) {
        let mut table = self.lock();
        for slot in &mut table.slots {
            // A verification that is under way finds its place gone.
            if slot.owner() == Some(host) {
                *slot = Slot::Empty;
            }
        }
        table.generation += 1;
    }

    /// A controller is gone, and what it had begun to load.
    pub(crate) fn forget_controller(&self, gone: u64) {
        for slot in &mut self.lock().slots {
            if matches!(slot, Slot::Loading { controller, .. } if *controller == gone) {
                *slot = Slot::Empty;
            }
        }
    }

    /// How many programs each host has that has any, with those that it is loading.
    pub(crate) fn by_host(&self) -> BTreeMap<String, u64> {
        let mut by_host = BTreeMap::new();
        for owner in self.lock().slots.iter().filter_map(Slot::owner) {
            *by_host.entry(owner.to_owned()).or_default() += 1;
        }
        by_host
    }

    /// The programs that `host` may run, for the directory, and the generation of that.
    pub fn directory(&self, host: &str, may_run: impl Fn(&LoadedProgram) -> bool) -> (u64, Vec<ProgramEntry>) {
        let table = self.lock();
        let entries = (0..).zip(&table.slots).filter_map(|(pind, slot)| {
            let Slot::Loaded(loaded) = slot else { return None };
            if !loaded.is_for(host) || !may_run(&loaded.program) {
                return None;
            }
            let mut entry = ProgramEntry::new(pind, loaded.program.first_name());
            let state = [
                (loaded.owner.is_none(), program_state::DEVICE_DEFINED),
                (loaded.active, program_state::ACTIVE),
                (loaded.owner.is_some(), program_state::OWN),
            ];
            entry.state = state.iter().filter(|(holds, _)| *holds).map(|(_, bit)| bit).sum();
            entry.program_type = if loaded.owner.is_none() { 0 } else { PROGRAM_TYPE_EBPF };
            entry.len.set(loaded.program.object.len() as u32);
            entry.program_id.set(loaded.program.id());
            entry.sha256 = loaded.program.sha256();
            entry.puid.set(loaded.puid);
            entry.functions.set((loaded.program.functions.len() + loaded.program.others.len()) as u16);
            Some(entry)
        });
        (table.generation, entries.collect())
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether so many more of something, of which `taken` are taken and `own` are the host's, are kept for hosts that have less: the last
/// eighth is for those that have less than an eighth. So one host can have most, and none can keep the others out.
pub(crate) fn is_for_others(max: usize, (taken, own): (usize, usize), more: usize) -> bool {
    let part = max / 8;
    part > 0 && taken + more > max - part && own + more > part
}

fn bytes_for_others() -> Problem {
    let told =
        "the last eighth of the target's memory for programs is for hosts that have less of it; unload a program";
    Problem::new(Status::MAXIMUM_PROGRAM_BYTES_EXCEEDED.dnr(), told)
}

impl Table {
    /// The program at an index, if there is one that `host` may know of.
    fn entry(&self, host: &str, pind: u16) -> Result<&Entry, Status> {
        match self.slots.get(usize::from(pind)) {
            None => Err(Status::INVALID_PROGRAM_INDEX.dnr()),
            Some(Slot::Loaded(entry)) if entry.is_for(host) => Ok(entry),
            Some(_) => Err(Status::NO_PROGRAM.dnr()),
        }
    }
}

/// It ends sooner or later, and then the command can be sent again.
fn still_runs(executions: u64) -> Problem {
    Problem::new(Status::PROGRAM_IN_USE, format!("{executions} calls of this program have not ended"))
}
