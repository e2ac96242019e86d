//! Which namespaces hosts see: those of volumes, memory and functions that they have a right to; and how many connections
//! they may have.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use diskside_nvme::Nqn;
use diskside_nvme::controller::{Access, Namespace, Place, Visibility};
use diskside_nvme::wire::{CSI_NVM, CSI_SLM};
use diskside_rights::{Access as Right, Grants, QuotaTable};
use diskside_volume::VolumeTable;

use crate::audit::Audit;

/// The rights of hosts by these grants, and their limits by these quotas.
#[derive(Debug)]
pub(super) struct Granted {
    pub(super) grants: Arc<Grants>,
    pub(super) volumes: Arc<VolumeTable>,
    pub(super) quotas: Arc<QuotaTable>,
    pub(super) audit: Arc<Audit>,
}

impl Visibility for Granted {
    fn access(&self, host: &Nqn, namespace: &Namespace) -> Access {
        let rights = self.grants.of(host.as_str());
        let right = match namespace.csi {
            CSI_NVM => self.volumes.find(namespace.nsid).map_or(Right::None, |volume| rights.volume(&volume.name)),
            CSI_SLM if rights.memory().is_none() => Right::None,
            CSI_SLM => Right::Write,
            _ if rights.has_compute() => Right::Write,
            _ => Right::None,
        };
        match right {
            Right::None => Access::None,
            Right::Read => Access::Read,
            Right::Write => Access::Write,
        }
    }

    fn denied(&self, host: &Nqn, namespace: &Namespace) {
        let quota = self.quotas.of(host.as_str());
        match self.volumes.find(namespace.nsid).filter(|_| namespace.csi == CSI_NVM) {
            Some(volume) => quota.deny(format_args!("to use volume {}", volume.name)),
            None => quota.deny(format_args!("to use namespace {}", namespace.nsid)),
        }
    }

    fn reserved(&self, host: &Nqn, namespace: &Namespace, action: &'static str) {
        if let Some(volume) = self.volumes.find(namespace.nsid) {
            self.audit.tell_reservation(host.as_str(), &format!("{action} on volume {}", volume.name));
        }
    }

    fn conflicted(&self, host: &Nqn, namespace: &Namespace) {
        if let Some(volume) = self.volumes.find(namespace.nsid) {
            volume.reservation_conflicts.fetch_add(1, Ordering::Relaxed);
            self.audit.tell_reservation(host.as_str(), &format!("conflict on volume {}", volume.name));
        }
    }

    fn admit(&self, host: &Nqn) -> Option<Place> {
        self.quotas.of(host.as_str()).connect().map(Place::of)
    }
}
