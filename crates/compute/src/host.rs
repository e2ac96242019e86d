//! A host, as far as it computes: what it shares between its controllers. Told apart by NQN, which is a name and no proof.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use diskside_engine::State;
use diskside_nvme::Status;
use diskside_wire::function::StateName;

use crate::call::answer::Problem;
use crate::endpoint::layouts::Layouts;
use crate::schedule::quota::{Account, Holding, PART_BYTES};

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
    states: Mutex<BTreeMap<u64, NamedState>>,
}

/// A state, known by the hash of its name.
#[derive(Debug)]
struct NamedState {
    /// `None`: only executions have used it, which name no more than the hash.
    name: Option<String>,
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
        Self { id, nqn, account, layouts: Layouts::default(), states: Mutex::default() }
    }

    /// The state of this name; it is made when it is first asked for.
    pub(crate) fn state(&self, name: &str, len_bytes: u64) -> Result<State, Problem> {
        self.state_of(StateName::id_of(name), Some(name), len_bytes)
    }

    /// The state whose name has this hash, or the number that a host has given it; likewise.
    pub(crate) fn state_by_id(&self, id: u64, len_bytes: u64) -> Result<State, Problem> {
        self.state_of(id, None, len_bytes)
    }

    fn state_of(&self, id: u64, name: Option<&str>, len_bytes: u64) -> Result<State, Problem> {
        let refused = |told: String| Err(Problem::new(Status::INVALID_FIELD.dnr(), told));
        if len_bytes > STATE_LEN_MAX {
            return refused(format!("a named state has at most {} MiB", STATE_LEN_MAX >> 20));
        }
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = states.get_mut(&id) {
            let other = name.is_some() && known.name.is_some() && known.name.as_deref() != name;
            if other || known.len_bytes != len_bytes {
                return refused(format!(
                    "the state {} has {} bytes",
                    called(known.name.as_deref(), id),
                    known.len_bytes
                ));
            }
            known.name = known.name.take().or_else(|| name.map(str::to_owned));
            return Ok(known.state.clone());
        }
        let used: u64 = states.values().map(|state| state.len_bytes).sum();
        if states.len() >= STATES_MAX || used + len_bytes > STATE_BYTES_MAX {
            let told = format!("this host has {} named states of {used} bytes, all that it may have", states.len());
            return Err(Problem::new(Status::INSUFFICIENT_RESOURCES.dnr(), told));
        }
        let held = self.account.hold(len_bytes as usize + name.map_or(0, str::len) + PART_BYTES);
        let holding =
            held.map_err(|no_room| Problem::new(Status::INSUFFICIENT_RESOURCES.dnr(), no_room.to_string()))?;
        let state = State::new(len_bytes as usize);
        states.insert(id, NamedState { name: name.map(str::to_owned), len_bytes, state: state.clone(), holding });
        Ok(state)
    }

    /// Zeroes a range of the state whose name has this hash. Never waits: a run that uses it now is before that.
    pub(crate) fn clear_state(&self, id: u64, offset: u64, len: u64) -> Result<(), Problem> {
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let known = states.get(&id).ok_or_else(|| Problem::in_command(8, "there is no state with this hash"))?;
        let bound = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        let cleared = known.state.clear(bound(offset), bound(len));
        cleared.map_err(|error| Problem::new(Status::FUNCTION_BUSY, error.to_string()))
    }
}

fn called(name: Option<&str>, id: u64) -> String {
    name.map_or_else(|| format!("{id:#x}"), |name| format!("`{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::quota::{Bounds, Ledger};

    #[test]
    fn a_state_is_one_by_name_and_has_one_size() {
        let ledger = Ledger::new(Bounds { host_max: 100 << 20, total_max: 400 << 20 });
        let host = Host::new(1, "nqn.2026-11.org.example:a".into(), Account::new(&ledger, 1));
        let state = host.state("counters", 64).unwrap();
        assert_eq!(state.snapshot(), vec![0; 64]);
        assert_eq!(host.state("counters", 64).unwrap().snapshot().len(), 64);
        assert!(host.state("counters", 128).unwrap_err().record.unwrap().message.contains("has 64 bytes"));
        assert_eq!(StateName::id_of("a"), 0xaf63_dc4c_8601_ec8c, "as in the test vectors of FNV");
        host.clear_state(StateName::id_of("counters"), 8, u64::MAX).unwrap();
        assert!(host.clear_state(1, 0, 8).is_err());
        assert!(host.state("large", STATE_LEN_MAX + 1).is_err());
        for count in 0..3 {
            host.state(&format!("large {count}"), STATE_LEN_MAX).unwrap();
        }
        assert!(host.state("large 3", STATE_LEN_MAX).is_err(), "64 MiB are all that a host has");
        // Less than a host may have of states, but all that is left for it.
        let _rest = host.account.hold(36 << 20).unwrap();
        let told = host.state("more", 8 << 20).unwrap_err().record.unwrap().message;
        assert!(told.contains("layouts and states of this host have"), "{told}");
        drop(host);
        assert_eq!(ledger.total(), 36 << 20, "its states are gone");
    }

    /// An execution has no room for a name.
    #[test]
    fn a_state_that_was_named_by_its_hash_is_the_one_of_that_name() {
        let ledger = Ledger::new(Bounds { host_max: 100 << 20, total_max: 400 << 20 });
        let host = Host::new(1, "nqn.2026-11.org.example:a".into(), Account::new(&ledger, 1));
        let id = StateName::id_of("counters");
        let told = |problem: Problem| problem.record.unwrap().message;
        host.state_by_id(id, 64).unwrap();
        assert_eq!(told(host.state_by_id(id, 8).unwrap_err()), format!("the state {id:#x} has 64 bytes"));
        assert_eq!(told(host.state("counters", 8).unwrap_err()), format!("the state {id:#x} has 64 bytes"));
        host.state("counters", 64).unwrap();
        assert_eq!(told(host.state_by_id(id, 8).unwrap_err()), "the state `counters` has 64 bytes");
        host.state_by_id(id, 64).unwrap();
        assert_eq!(host.states.lock().unwrap().len(), 1);
    }
}
