//! A host, as far as it computes: what it shares between its controllers. Told apart by NQN, which is a name and no proof.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use diskside_engine::State;
use diskside_nvme::Status;
use diskside_rights::{HostQuota, HostRights, Scarce};
use diskside_wire::function::StateName;

use crate::ComputeConfig;
use crate::call::answer::Problem;
use crate::endpoint::layouts::Layouts;
use crate::schedule::quota::{Account, Holding, KEPT_PART, PART_BYTES};
use crate::standard::Standard;
use crate::standard::charge::DeviceMemory;
use crate::statistics::counters::Statistics;

/// A host.
#[derive(Debug)]
pub struct Host {
    /// Its number among all hosts that there ever were.
    pub id: u64,
    /// Its name.
    pub nqn: String,
    /// What it makes the target hold.
    pub(crate) account: Account,
    /// What it computed since it came.
    pub(crate) statistics: Statistics,
    pub(crate) layouts: Layouts,
    states: Mutex<States>,
    /// Its own memory namespace, where it has one and has used it.
    memory: OnceLock<Option<Arc<Standard>>>,
}

/// The states that a host has used.
#[derive(Debug, Default)]
struct States {
    own: Vec<Arc<NamedState>>,
    /// Those that it shares: they are there as long as one of the hosts is that has used them.
    shared: BTreeMap<Arc<str>, Arc<NamedState>>,
}

/// The states that hosts share, by their names.
#[derive(Debug, Default)]
pub(crate) struct SharedStates(Mutex<BTreeMap<Arc<str>, Weak<NamedState>>>);

/// A state. Two names may have one hash: the name tells states apart, and the hash finds them for who has room for no more.
#[derive(Debug)]
struct NamedState {
    /// Of its name.
    id: u64,
    /// Not set: only executions have used it, which name no more than the hash.
    name: OnceLock<Arc<str>>,
    len_bytes: u64,
    state: State,
    #[expect(dead_code, reason = "kept as long as the state is")]
    holding: Holding,
}

/// Named states of one host, and bytes of one.
const STATES_MAX: usize = 64;
/// Bytes of the named states of one host.
pub const STATE_BYTES_MAX: u64 = 64 << 20;
const STATE_LEN_MAX: u64 = 16 << 20;

impl Host {
    pub(crate) fn new(id: u64, nqn: String, account: Account) -> Self {
        let (states, memory) = Default::default();
        Self { id, nqn, account, statistics: Statistics::new(), layouts: Layouts::default(), states, memory }
    }

    /// What it may take.
    pub(crate) fn quota(&self) -> &Arc<HostQuota> {
        self.account.quota()
    }

    /// Bytes that its calls may use while they run.
    pub(crate) fn calls_memory_max(&self, config: &ComputeConfig) -> u64 {
        let quota = self.quota().memory_of(u64::MAX);
        config.calls_memory().host_max.min(quota - quota / KEPT_PART)
    }

    /// The memory namespace that is this host's alone; it is made when it is first asked for.
    pub(crate) fn own_memory(&self, config: &ComputeConfig, all: &Arc<DeviceMemory>) -> Option<&Arc<Standard>> {
        self.memory.get_or_init(|| Standard::own(config, self.id, all).map(Arc::new)).as_ref()
    }

    /// Bytes of the named states that it has used.
    pub(crate) fn state_bytes(&self) -> u64 {
        self.lock().used_bytes()
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
            let state = match all.get(name).and_then(Weak::upgrade) {
                Some(known) => known.of_len(len_bytes)?,
                None => {
                    let made = self.make(&states, id, Some(name), len_bytes)?;
                    all.retain(|_, state| state.strong_count() > 0);
                    all.insert(name.into(), Arc::downgrade(&made));
                    made
                }
            };
            states.shared.insert(name.into(), Arc::clone(&state));
            return Ok(state.state.clone());
        }
        let named = states.own.iter().find(|state| state.name.get().is_some_and(|known| **known == *name));
        // One that was known by its hash alone is the first that has a name with this hash.
        let known = named.or_else(|| states.own.iter().find(|state| state.id == id && state.name.get().is_none()));
        if let Some(known) = known {
            let known = Arc::clone(known).of_len(len_bytes)?;
            known.name.get_or_init(|| name.into());
            return Ok(known.state.clone());
        }
        self.make_own(&mut states, id, Some(name), len_bytes)
    }

    /// The state whose name has this hash, or the number that a host has given it; it is made when it is first asked
    /// for. A shared state is found once somebody has named it.
    pub(crate) fn state_by_id(
        &self,
        id: u64,
        len_bytes: u64,
        (shared, rights): (&SharedStates, &HostRights),
    ) -> Result<State, Problem> {
        let mut states = self.lock();
        if let Some((name, known)) = shared.of(id, rights) {
            let known = known.of_len(len_bytes)?;
            states.shared.insert(name, Arc::clone(&known));
            return Ok(known.state.clone());
        }
        match states.own.iter().find(|state| state.id == id) {
            Some(known) => Ok(Arc::clone(known).of_len(len_bytes)?.state.clone()),
            None => self.make_own(&mut states, id, None, len_bytes),
        }
    }

    /// Whether a state that it was given is its own, or one that it still shares.
    pub(crate) fn may_use(&self, state: &State, rights: &HostRights) -> bool {
        let states = self.lock();
        let mut shared = states.shared.iter().filter(|(_, shared)| shared.state.is(state));
        shared.all(|(name, _)| rights.shares_state(name))
    }

    fn make_own(&self, states: &mut States, id: u64, name: Option<&str>, len_bytes: u64) -> Result<State, Problem> {
        let made = self.make(states, id, name, len_bytes)?;
        let state = made.state.clone();
        states.own.push(made);
        Ok(state)
    }

    /// A new state, charged to this host.
    fn make(&self, states: &States, id: u64, name: Option<&str>, len_bytes: u64) -> Result<Arc<NamedState>, Problem> {
        if len_bytes > STATE_LEN_MAX {
            return Err(too_long());
        }
        let (count, used) = (states.all().count(), states.used_bytes());
        let quota = self.quota().state_of(STATE_BYTES_MAX);
        if quota < STATE_BYTES_MAX && used + len_bytes > quota {
            self.quota().refuse(Scarce::State);
            let told = format!(
                "this host has {count} named states of {used} bytes, and its quota, `state`, allows {quota} bytes of them"
            );
            return Err(Problem::new(Status::INSUFFICIENT_RESOURCES.dnr(), told));
        }
        if count >= STATES_MAX || used + len_bytes > STATE_BYTES_MAX {
            let told = format!("this host has {count} named states of {used} bytes, all that it may have");
            return Err(Problem::new(Status::INSUFFICIENT_RESOURCES.dnr(), told));
        }
        let held = self.account.hold(len_bytes as usize + name.map_or(0, str::len) + PART_BYTES);
        let holding =
            held.map_err(|no_room| Problem::new(Status::INSUFFICIENT_RESOURCES.dnr(), no_room.to_string()))?;
        let name = name.map_or_else(OnceLock::new, |name| OnceLock::from(Arc::from(name)));
        Ok(Arc::new(NamedState { id, name, len_bytes, state: State::new(len_bytes as usize), holding }))
    }

    /// Zeroes a range of the state whose name has this hash. Never waits: a run that uses it now is before that.
    pub(crate) fn clear_state(
        &self,
        id: u64,
        (offset, len): (u64, u64),
        (shared, rights): (&SharedStates, &HostRights),
    ) -> Result<(), Problem> {
        let own = || self.lock().own.iter().find(|state| state.id == id).cloned();
        let known = shared.of(id, rights).map(|(_, state)| state).or_else(own);
        let known = known.ok_or_else(|| Problem::in_command(8, "there is no state with this hash"))?;
        let bound = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        let cleared = known.state.clear(bound(offset), bound(len));
        cleared.map_err(|error| Problem::new(Status::FUNCTION_BUSY, error.to_string()))
    }

    fn lock(&self) -> MutexGuard<'_, States> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl States {
    fn all(&self) -> impl Iterator<Item = &Arc<NamedState>> {
        self.own.iter().chain(self.shared.values())
    }

    fn used_bytes(&self) -> u64 {
        self.all().map(|state| state.len_bytes).sum()
    }
}

impl NamedState {
    /// It, if this is its length.
    fn of_len(self: Arc<Self>, len_bytes: u64) -> Result<Arc<Self>, Problem> {
        if len_bytes > STATE_LEN_MAX {
            return Err(too_long());
        }
        if self.len_bytes != len_bytes {
            let called = called(self.name.get().map(|name| &**name), self.id);
            return Err(refused(format!("the state {called} has {} bytes", self.len_bytes)));
        }
        Ok(self)
    }
}

impl SharedStates {
    /// The state whose name has this hash and that the host shares, with its name. Of several it is the first by name.
    fn of(&self, id: u64, rights: &HostRights) -> Option<(Arc<str>, Arc<NamedState>)> {
        let all = self.lock();
        let known = all.iter().filter_map(|(name, state)| Some((Arc::clone(name), state.upgrade()?)));
        let mut found = known.filter(|(_, state)| state.id == id);
        found.find(|(name, _)| rights.shares_state(name))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Weak<NamedState>>> {
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
        let host = Host::new(1, "nqn.2026-11.org.example:a".into(), Account::new(&ledger, 1, HostQuota::unlimited()));
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
        let host = Host::new(1, "nqn.2026-11.org.example:a".into(), Account::new(&ledger, 1, HostQuota::unlimited()));
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
        let host = |id: u64| Host::new(id, format!("nqn.{id}"), Account::new(&ledger, id, HostQuota::unlimited()));
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

    /// States were known by the hash of their names alone, and colliding names are easy to find: a host that shared one
    /// state was refused another, and the error had the name and the length of a state to which it had no right.
    #[test]
    fn names_with_the_same_hash_are_of_two_states() {
        let ledger = Ledger::new(Bounds { host_max: 100 << 20, total_max: 400 << 20 });
        let host = |id: u64| Host::new(id, format!("nqn.{id}"), Account::new(&ledger, id, HostQuota::unlimited()));
        let (a, b, shared) = (host(1), host(2), SharedStates::default());
        let names = ["8yn0iYCKYHlIj4-BwPqk", "GReLUrM4wMqfg9yzV3KQ"];
        let id = StateName::id_of(names[0]);
        assert_eq!(id, StateName::id_of(names[1]));
        let grant = |nqn: &str, name: &str| GrantSpec {
            to: vec![nqn.into()],
            state: vec![name.into()],
            ..GrantSpec::default()
        };
        let grants = Grants::new(&[grant("nqn.1", names[0]), grant("nqn.2", names[1])], []).unwrap();
        let table = RightsTable::new(grants);
        let rights = |host: &Host| HostRights::of(&table, &host.nqn);
        let first = a.state(names[0], 8, (&shared, &rights(&a))).unwrap();
        let second = b.state(names[1], 64, (&shared, &rights(&b))).unwrap();
        assert!(!first.is(&second));
        let by_id = |host: &Host, len| host.state_by_id(id, len, (&shared, &rights(host))).unwrap();
        assert!(by_id(&a, 8).is(&first) && by_id(&b, 64).is(&second));
        // Of one host, too.
        let own = a.state(names[1], 16, (&shared, &rights(&a))).unwrap();
        assert!(!own.is(&first) && own.snapshot().len() == 16);
        assert!(a.state(names[1], 16, (&shared, &rights(&a))).unwrap().is(&own));
    }
}
