//! A host, as far as it computes: what it shares between its controllers. Told apart by NQN, which is a name and no proof.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use diskside_engine::State;
use diskside_nvme::Status;
use diskside_nvme::wire::function::StateName;

use super::answer::Problem;
use super::layouts::Layouts;

/// A host.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) id: u64,
    pub(crate) nqn: String,
    pub(crate) layouts: Layouts,
    states: Mutex<BTreeMap<u64, NamedState>>,
}

#[derive(Debug)]
struct NamedState {
    name: String,
    len_bytes: usize,
    state: State,
}

/// Named states of one host, and their bytes.
const STATES_MAX: usize = 64;
const STATE_BYTES_MAX: usize = 64 << 20;

impl Host {
    pub(super) fn new(id: u64, nqn: String) -> Self {
        Self { id, nqn, layouts: Layouts::default(), states: Mutex::default() }
    }

    /// The state of this name; it is made when it is first asked for.
    pub(crate) fn state(&self, name: &str, len_bytes: usize) -> Result<State, Problem> {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let id = StateName::id_of(name);
        if let Some(known) = states.get(&id) {
            if known.name == name && known.len_bytes == len_bytes {
                return Ok(known.state.clone());
            }
            let told = format!("the state `{}` has {} bytes", known.name, known.len_bytes);
            return Err(Problem::new(Status::INVALID_FIELD.dnr(), told));
        }
        let used: usize = states.values().map(|state| state.len_bytes).sum();
        if states.len() >= STATES_MAX || used + len_bytes > STATE_BYTES_MAX {
            let told = format!("this host has {} named states of {used} bytes, all that it may have", states.len());
            return Err(Problem::new(Status::INSUFFICIENT_RESOURCES.dnr(), told));
        }
        let state = State::new(len_bytes);
        states.insert(id, NamedState { name: name.to_owned(), len_bytes, state: state.clone() });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_one_by_name_and_has_one_size() {
        let host = Host::new(1, "nqn.2026-11.org.example:a".into());
        let state = host.state("counters", 64).unwrap();
        assert_eq!(state.snapshot(), vec![0; 64]);
        assert_eq!(host.state("counters", 64).unwrap().snapshot().len(), 64);
        assert!(host.state("counters", 128).unwrap_err().record.unwrap().message.contains("has 64 bytes"));
        assert_eq!(StateName::id_of("a"), 0xaf63_dc4c_8601_ec8c, "as in the test vectors of FNV");
        host.clear_state(StateName::id_of("counters"), 8, u64::MAX).unwrap();
        assert!(host.clear_state(1, 0, 8).is_err());
        assert!(host.state("large", STATE_BYTES_MAX).is_err());
    }
}
