//! A host, as far as it computes: what it shares between its controllers. Told apart by NQN, which is a name and no proof.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use diskside_engine::State;
use diskside_nvme::Status;
use diskside_rights::HostRights;
use diskside_wire::function::StateName;

use crate::ComputeConfig;
use crate::call::answer::Problem;
use crate::endpoint::layouts::Layouts;
use crate::schedule::quota::{Account, Holding, PART_BYTES};
use crate::standard::Standard;

/// A host.
#[derive(Debug)]
pub struct Host {
    /// Its number among all hosts that there ever were.
    pub id: u64,
    /// Its name.
    pub nqn: String,
    /// What it makes the target hold.
    pub(crate) account: Account,
    pub(crate) layouts: Layouts,
    states: Mutex<States>,
    /// Its own memory namespace, where it has one and has used it.
    memory: OnceLock<Option<Arc<Standard>>>,
}

/// The states that a host has used.
#[derive(Debug, Default)]
struct States {
    own: BTreeMap<u64, Arc<NamedState>>,
    /// Those that it shares: they are there as long as one of the hosts is that has used them.
    shared: BTreeMap<u64, Arc<NamedState>>,
}

/// The states that hosts share, by the hash of their names.
#[derive(Debug, Default)]
pub(crate) struct SharedStates(Mutex<BTreeMap<u64, Weak<NamedState>>>);

/// A state, known by the hash of its name.
#[derive(Debug)]
struct NamedState {
    /// Not set: only executions have used it, which name no more than the hash.
    name: OnceLock<String>,
    len_bytes: u64,
    state: State,
    #[expect(dead_code, reason = "kept as long as the state is")]
    holding: Holding,
}

/// Named states of one host, their bytes, and those of one.
const STATES_MAX: usize = 64;
const STATE_BYTES_MAX: u64 = 64 << 20;
const STATE_LEN_MAX: u64 = 16 << 20;

impl Host {
    pub(crate) fn new(id: u64, nqn: String, account: Account) -> Self {
        let (states, memory) = Default::default();
        Self { id, nqn, account, layouts: Layouts::default(), states, memory }
    }

    /// The memory namespace that is this host's alone; it is made when it is first asked for.
    pub(crate) fn own_memory(&self, config: &ComputeConfig) -> Option<&Arc<Standard>> {
        self.memory.get_or_init(|| Standard::new(config).map(Arc::new)).as_ref()
    }

    /// The state of this name, the host's own or one that it shares; it is made when it is first asked for.
    pub(crate) fn state(
        &self,
        name: &str,
        len_bytes: u64,
        (shared, rights): (&SharedStates, &HostRights),
    ) -> Result<State, Problem> {
        let id = StateName::id_of(name);
        let mut states = self.lock();
        if rights.shares_state(name) {
            let mut all = shared.lock();
            let state = match all.get(&id).and_then(Weak::upgrade) {
                Some(known) => known.with(id, Some(name), len_bytes)?,
                None => {
                    let made = self.make(&states, id, Some(name), len_bytes)?;
                    all.retain(|_, state| state.strong_count() > 0);
                    all.insert(id, Arc::downgrade(&made));
                    made
                }
            };
            states.shared.insert(id, Arc::clone(&state));
            return Ok(state.state.clone());
        }
        self.own_state(&mut states, id, Some(name), len_bytes)
    }

    /// The state whose name has this hash, or the number that a host has given it; likewise. One that is shared it finds
    /// once somebody has named it.
    pub(crate) fn state_by_id(
        &self,
        id: u64,
        len_bytes: u64,
        (shared, rights): (&SharedStates, &HostRights),
    ) -> Result<State, Problem> {
        let mut states = self.lock();
        if let Some(known) = shared.of(id, rights) {
            let state = known.with(id, None, len_bytes)?;
            states.shared.insert(id, Arc::clone(&state));
            return Ok(state.state.clone());
        }
        self.own_state(&mut states, id, None, len_bytes)
    }

    fn own_state(&self, states: &mut States, id: u64, name: Option<&str>, len_bytes: u64) -> Result<State, Problem> {
        if let Some(known) = states.own.get(&id) {
            return Ok(Arc::clone(known).with(id, name, len_bytes)?.state.clone());
        }
        let made = self.make(states, id, name, len_bytes)?;
        let state = made.state.clone();
        states.own.insert(id, made);
        Ok(state)
    }

    /// A new state, charged to this host.
    fn make(&self, states: &States, id: u64, name: Option<&str>, len_bytes: u64) -> Result<Arc<NamedState>, Problem> {
        if len_bytes > STATE_LEN_MAX {
            return Err(too_long());
        }
        let all = || states.own.values().chain(states.shared.values());
        let (count, used) = (all().count(), all().map(|state| state.len_bytes).sum::<u64>());
        if count >= STATES_MAX || used + len_bytes > STATE_BYTES_MAX {
            let told = format!("this host has {count} named states of {used} bytes, all that it may have");
            return Err(Problem::new(Status::INSUFFICIENT_RESOURCES.dnr(), told));
        }
        let held = self.account.hold(len_bytes as usize + name.map_or(0, str::len) + PART_BYTES);
        let holding =
            held.map_err(|no_room| Problem::new(Status::INSUFFICIENT_RESOURCES.dnr(), no_room.to_string()))?;
        let made = NamedState { name: OnceLock::new(), len_bytes, state: State::new(len_bytes as usize), holding };
        Arc::new(made).with(id, name, len_bytes)
    }

    /// Zeroes a range of the state whose name has this hash. Never waits: a run that uses it now is before that.
    pub(crate) fn clear_state(
        &self,
        id: u64,
        (offset, len): (u64, u64),
        (shared, rights): (&SharedStates, &HostRights),
    ) -> Result<(), Problem> {
        let known = shared.of(id, rights).or_else(|| self.lock().own.get(&id).cloned());
        let known = known.ok_or_else(|| Problem::in_command(8, "there is no state with this hash"))?;
        let bound = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        let cleared = known.state.clear(bound(offset), bound(len));
        cleared.map_err(|error| Problem::new(Status::FUNCTION_BUSY, error.to_string()))
    }

    fn lock(&self) -> MutexGuard<'_, States> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NamedState {
    /// It, if this is its name and its length.
    fn with(self: Arc<Self>, id: u64, name: Option<&str>, len_bytes: u64) -> Result<Arc<Self>, Problem> {
        if len_bytes > STATE_LEN_MAX {
            return Err(too_long());
        }
        let is_other = |name: &str| self.name.get().is_some_and(|known| known != name);
        let other = name.is_some_and(is_other);
        if other || self.len_bytes != len_bytes {
            let called = called(self.name.get().map(String::as_str), id);
            return Err(refused(format!("the state {called} has {} bytes", self.len_bytes)));
        }
        if let Some(name) = name {
            self.name.get_or_init(|| name.to_owned());
        }
        Ok(self)
    }
}

impl SharedStates {
    /// The state whose name has this hash, if the host shares it.
    fn of(&self, id: u64, rights: &HostRights) -> Option<Arc<NamedState>> {
        let known = self.lock().get(&id).and_then(Weak::upgrade)?;
        let is_shared = known.name.get().is_some_and(|name| rights.shares_state(name));
        is_shared.then_some(known)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Weak<NamedState>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn too_long() -> Problem {
    refused(format!("a named state has at most {} MiB", STATE_LEN_MAX >> 20))
}

fn refused(told: String) -> Problem {
    Problem::new(Status::INVALID_FIELD.dnr(), told)
}

fn called(name: Option<&str>, id: u64) -> String {
    name.map_or_else(|| format!("{id:#x}"), |name| format!("`{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::quota::{Bounds, Ledger};
    use diskside_rights::{GrantSpec, Grants, RightsTable};

    #[test]
    fn a_state_is_one_by_name_and_has_one_size() {
        let ledger = Ledger::new(Bounds { host_max: 100 << 20, total_max: 400 << 20 });
        let host = Host::new(1, "nqn.2026-11.org.example:a".into(), Account::new(&ledger, 1));
        let (shared, rights) = (SharedStates::default(), HostRights::everything());
        let state = host.state("counters", 64, (&shared, &rights)).unwrap();
        assert_eq!(state.snapshot(), vec![0; 64]);
        assert_eq!(host.state("counters", 64, (&shared, &rights)).unwrap().snapshot().len(), 64);
        assert!(
            host.state("counters", 128, (&shared, &rights))
                .unwrap_err()
                .record
                .unwrap()
                .message
                .contains("has 64 bytes")
        );
        assert_eq!(StateName::id_of("a"), 0xaf63_dc4c_8601_ec8c, "as in the test vectors of FNV");
        host.clear_state(StateName::id_of("counters"), (8, u64::MAX), (&shared, &rights)).unwrap();
        assert!(host.clear_state(1, (0, 8), (&shared, &rights)).is_err());
        assert!(host.state("large", STATE_LEN_MAX + 1, (&shared, &rights)).is_err());
        for count in 0..3 {
            host.state(&format!("large {count}"), STATE_LEN_MAX, (&shared, &rights)).unwrap();
        }
        assert!(host.state("large 3", STATE_LEN_MAX, (&shared, &rights)).is_err(), "64 MiB are all that a host has");
        // Less than a host may have of states, but all that is left for it.
        let _rest = host.account.hold(36 << 20).unwrap();
        let told = host.state("more", 8 << 20, (&shared, &rights)).unwrap_err().record.unwrap().message;
        assert!(told.contains("layouts and states of this host have"), "{told}");
        drop(host);
        assert_eq!(ledger.total(), 36 << 20, "its states are gone");
    }

    /// An execution has no room for a name.
    #[test]
    fn a_state_that_was_named_by_its_hash_is_the_one_of_that_name() {
        let ledger = Ledger::new(Bounds { host_max: 100 << 20, total_max: 400 << 20 });
        let host = Host::new(1, "nqn.2026-11.org.example:a".into(), Account::new(&ledger, 1));
        let (shared, rights) = (SharedStates::default(), HostRights::everything());
        let id = StateName::id_of("counters");
        let told = |problem: Problem| problem.record.unwrap().message;
        host.state_by_id(id, 64, (&shared, &rights)).unwrap();
        assert_eq!(
            told(host.state_by_id(id, 8, (&shared, &rights)).unwrap_err()),
            format!("the state {id:#x} has 64 bytes")
        );
        assert_eq!(
            told(host.state("counters", 8, (&shared, &rights)).unwrap_err()),
            format!("the state {id:#x} has 64 bytes")
        );
        host.state("counters", 64, (&shared, &rights)).unwrap();
        assert_eq!(told(host.state_by_id(id, 8, (&shared, &rights)).unwrap_err()), "the state `counters` has 64 bytes");
        host.state_by_id(id, 64, (&shared, &rights)).unwrap();
        assert_eq!(host.states.lock().unwrap().own.len(), 1);
    }

    #[test]
    fn a_state_that_is_granted_is_shared_and_another_of_its_name_is_not() {
        let ledger = Ledger::new(Bounds { host_max: 100 << 20, total_max: 400 << 20 });
        let host = |id: u64| Host::new(id, format!("nqn.{id}"), Account::new(&ledger, id));
        let (a, b, c, shared) = (host(1), host(2), host(3), SharedStates::default());
        let grant = |nqn: &str| GrantSpec { to: vec![nqn.into()], state: vec!["kv/*".into()], ..GrantSpec::default() };
        let table = RightsTable::new(Grants::new(&[grant("nqn.1"), grant("nqn.2")], []).unwrap());
        let rights = |host: &Host| HostRights::of(&table, &host.nqn);
        let id = StateName::id_of("kv/a");
        let state = |host: &Host| host.state("kv/a", 8, (&shared, &rights(host))).unwrap();
        let by_id = |host: &Host| host.state_by_id(id, 8, (&shared, &rights(host))).unwrap();
        let own = by_id(&a);
        let first = state(&a);
        assert!(!first.is(&own), "its own is another");
        assert!(state(&b).is(&first) && by_id(&b).is(&first) && by_id(&a).is(&first));
        assert!(!state(&c).is(&first) && !by_id(&c).is(&first), "others have their own");
        assert!(c.clear_state(id, (0, 8), (&shared, &rights(&c))).is_ok());
        // It is there as long as one is who has used it, also when that is not who made it.
        drop(a);
        assert!(state(&b).is(&first));
        drop(b);
        assert!(!state(&host(1)).is(&first));
    }
}
