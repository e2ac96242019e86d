//! Reservations of the namespaces of a subsystem, and whom their changes concern.

use std::sync::Arc;
use std::time::Instant;

use crate::status::Status;

use super::super::config::Namespace;
use super::super::lock::lock;
use super::super::reservations::{Change, Reserved, Told};
use super::super::shared::Controller;
use super::Subsystem;

impl Subsystem {
    /// Sets what is called, on any thread and without a lock held, after a reservation excludes hosts that are connected from more
    /// than before. Only once.
    pub fn watch_reservations(&self, watch: impl Fn() + Send + Sync + 'static) {
        self.reservations.set_watch(Box::new(watch));
    }

    /// Changes the reservations of a namespace, and tells hosts. Returns what changed: hosts that are excluded, or preempted, may have
    /// begun what is not over.
    pub(in crate::controller) fn change_reservations(
        &self,
        now: Instant,
        namespace: &Namespace,
        change: impl FnOnce(&mut Reserved) -> Result<Vec<Told>, Status>,
    ) -> Result<Change, Status> {
        let nsid = namespace.nsid;
        let mut state = lock(&self.state);
        // It may have gone meanwhile, and its number may be another's.
        if state.namespaces.get(nsid).is_none_or(|now| now.uuid != namespace.uuid) {
            return Err(Status::INVALID_NAMESPACE_OR_FORMAT.dnr());
        }
        let change = self.reservations.change(now, nsid, change)?;
        if change.moves_rights() {
            let by_nsid = state.namespaces.by_nsid.clone();
            self.renew(&mut state, by_nsid);
        }
        let controllers: Vec<Arc<Controller>> = state.controllers.values().cloned().collect();
        drop(state);
        for told in &change.told {
            for controller in controllers.iter().filter(|controller| controller.host_id == told.host) {
                controller.tell_reservation(nsid, told.notice);
            }
        }
        if controllers.iter().any(|controller| change.restricts(&controller.host_id)) {
            self.reservations.tell_watch();
        }
        Ok(change)
    }
}
