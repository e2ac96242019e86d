//! Volumes: a medium, its name on the wire, and what its accesses hold.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use diskside_nvme::controller::{BlockSize, MediumId, Namespace};

use crate::guard::RangeGuards;
use crate::medium::Medium;

/// A medium with a name. Shared by all reactors and by whoever else reads and writes it.
#[derive(Debug)]
pub struct Volume {
    /// The name that users and statistics know it by.
    pub name: String,
    /// Its namespace ID.
    pub nsid: u32,
    /// Its namespace UUID.
    pub uuid: [u8; 16],
    /// Its logical block in bytes: 512 or 4096.
    pub block_bytes: u32,
    /// Its bytes.
    pub medium: Arc<dyn Medium>,
    /// What is being read and written. Every access holds its range here.
    pub guards: RangeGuards,
    /// A flush failed: what was acknowledged may be lost, and a later flush that succeeds would hide it.
    failed: AtomicBool,
}

impl Volume {
    /// A volume of `medium`.
    pub fn new(name: &str, nsid: u32, uuid: [u8; 16], block_bytes: u32, medium: Arc<dyn Medium>) -> Self {
        Self {
            name: name.to_owned(),
            nsid,
            uuid,
            block_bytes,
            medium,
            guards: RangeGuards::new(),
            failed: AtomicBool::new(false),
        }
    }

    /// Whether a flush failed. Such a volume takes no more writes until it is opened again: the kernel reports a
    /// lost write once and then calls the page clean, so that only refusing keeps the promise of Flush.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Notes that a flush failed.
    pub fn set_failed(&self) {
        if !self.failed.swap(true, Ordering::Relaxed) {
            tracing::error!(volume = self.name, "a flush failed; no more writes until the volume is opened again");
        }
    }

    /// How hosts see it.
    pub(crate) fn namespace(&self, medium: MediumId) -> Namespace {
        let properties = self.medium.properties();
        Namespace {
            nsid: self.nsid,
            medium,
            csi: diskside_nvme::wire::CSI_NVM,
            blocks: properties.len_bytes / u64::from(self.block_bytes),
            block_size: if self.block_bytes == 512 { BlockSize::B512 } else { BlockSize::B4096 },
            read_only: properties.read_only,
            deallocate: !properties.read_only,
            uuid: self.uuid,
        }
    }
}

/// The volumes by [`MediumId`]. An ID is never used twice, so that a command that is late finds nothing.
#[derive(Debug, Default)]
pub(crate) struct VolumeTable {
    volumes: RwLock<Vec<Option<Arc<Volume>>>>,
    /// Counts changes: reactors look at it instead of taking the lock.
    version: AtomicU64,
}

impl VolumeTable {
    pub(crate) fn add(&self, volume: Arc<Volume>) -> MediumId {
        let mut volumes = self.volumes.write().unwrap_or_else(PoisonError::into_inner);
        volumes.push(Some(volume));
        self.version.fetch_add(1, Ordering::Release);
        MediumId(volumes.len() as u64 - 1)
    }

    pub(crate) fn remove(&self, name: &str) -> Option<Arc<Volume>> {
        let mut volumes = self.volumes.write().unwrap_or_else(PoisonError::into_inner);
        let entry = volumes.iter_mut().find(|entry| entry.as_ref().is_some_and(|volume| volume.name == name))?;
        self.version.fetch_add(1, Ordering::Release);
        entry.take()
    }

    pub(crate) fn clear(&self) {
        self.volumes.write().unwrap_or_else(PoisonError::into_inner).clear();
        self.version.fetch_add(1, Ordering::Release);
    }

    /// The volume with this namespace ID.
    pub(crate) fn find(&self, nsid: u32) -> Option<Arc<Volume>> {
        let volumes = self.volumes.read().unwrap_or_else(PoisonError::into_inner);
        volumes.iter().flatten().find(|volume| volume.nsid == nsid).cloned()
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn snapshot(&self) -> Vec<Option<Arc<Volume>>> {
        self.volumes.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
