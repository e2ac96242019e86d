//! The states of the paths over which hosts reach a subsystem.

use std::sync::Arc;

use super::super::ana::{PathState, Paths};
use super::super::lock::lock;
use super::super::shared::{Controller, Notice};
use super::Subsystem;

impl Subsystem {
    /// Sets the states of the paths, by the [number](super::super::ConnectionConfig::listener) of the listener, and tells hosts whose path
    /// has another one than before. What is under way ends as it would have.
    pub fn set_path_states(&self, states: Vec<PathState>) {
        let mut state = lock(&self.state);
        let before = std::mem::replace(&mut state.paths, Paths::new(states));
        let differs = |one: &&Arc<Controller>| before.of(one.listener) != state.paths.of(one.listener);
        let concerned: Vec<Arc<Controller>> = state.controllers.values().filter(differs).cloned().collect();
        let by_nsid = state.namespaces.by_nsid.clone();
        self.renew(&mut state, by_nsid);
        drop(state);
        for controller in concerned {
            controller.notify(Notice::Path);
        }
    }
}
