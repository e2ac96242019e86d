//! Volumes: a medium, its name on the wire, and what its accesses hold.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Instant;

use diskside_io::Errno;
use diskside_io::unanswered::Asked;
use diskside_nvme::controller::{BlockSize, MediumId, Namespace};

use crate::cache::BlockCache;
use crate::guard::{Mode, RangeGuards};
use crate::health::{Below, Failure, Health};
use crate::medium::{Medium, Shortened};
use crate::stats::AccessCounters;

/// A medium with a name. Shared by all reactors and everybody else who reads and writes it.
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
    /// Nobody may write it, whatever its medium can do.
    pub read_only: bool,
    /// The ranges that are being read and written. Every access holds its range here.
    pub guards: RangeGuards,
    /// A flush failed: what was acknowledged may be lost, and a later flush that succeeds would hide it.
    failed: AtomicBool,
    /// It was removed: nothing that still knows it reads or writes it any more.
    removed: AtomicBool,
    /// No other volume of this process has it.
    serial: u64,
    /// Counts ranges that could be written and were released.
    writes: AtomicU64,
    /// What keeps blocks of it, once something did.
    kept_in: OnceLock<Arc<BlockCache>>,
    /// What functions, and copies from and to memory, do with it.
    pub functions: Arc<AccessCounters>,
    /// How its medium is, as all who use it see it.
    pub health: Health,
    /// Commands that a reservation of another host kept from it.
    pub reservation_conflicts: AtomicU64,
}

static SERIAL: AtomicU64 = AtomicU64::new(0);

impl Volume {
    /// A volume of `medium`, which may be written if that can be.
    pub fn new(name: &str, nsid: u32, uuid: [u8; 16], block_bytes: u32, medium: Arc<dyn Medium>) -> Self {
        Self {
            name: name.to_owned(),
            nsid,
            uuid,
            block_bytes,
            read_only: medium.properties().read_only,
            medium,
            guards: RangeGuards::new(),
            failed: AtomicBool::new(false),
            removed: AtomicBool::new(false),
            serial: SERIAL.fetch_add(1, Ordering::Relaxed),
            writes: AtomicU64::new(0),
            kept_in: OnceLock::new(),
            functions: Arc::default(),
            health: Health::new(Below::Volume, name),
            reservation_conflicts: AtomicU64::new(0),
        }
    }

    /// The same, which nobody may write.
    #[must_use]
    pub fn protected(self) -> Self {
        Self { read_only: true, ..self }
    }

    /// Its medium is asked for something; what this returns is to be kept until it has answered. `None`: it is memory.
    pub fn ask(&self, now: Instant) -> Option<Asked> {
        self.medium.memory().is_none().then(|| self.health.ask(now))
    }

    /// Its medium failed something that a function, a copy or a traversal asked it for. What is not the medium's counts for nothing here.
    pub fn failed(&self, operation: &str, offset: Option<u64>, errno: Errno) {
        if !self.is_removed() {
            let failure = Failure { operation, file: None, offset, errno };
            self.health.failed_because(&failure, || self.why(errno));
        }
    }

    /// Why a read failed with that, as far as it is known: for the operator of the server.
    pub fn why(&self, errno: Errno) -> Option<String> {
        let Shortened { path, len_bytes } = self.shortened(errno)?;
        let (path, len) = (path.display(), self.medium.properties().len_bytes);
        Some(format!(
            "{path} has {len_bytes} bytes, fewer than the volume, which has {len}: it was shortened; stop the server, make it as long again \
             (truncate -s {len} {path}), and check its content, for what was cut off reads as zeroes"
        ))
    }

    /// An error for a host whose function was to read it. Paths are the server's own.
    pub fn error(&self, errno: Errno) -> io::Error {
        let error = io::Error::from(errno);
        match self.shortened(errno) {
            Some(Shortened { len_bytes, .. }) => {
                let len = self.medium.properties().len_bytes;
                let told = "the volume's image was shortened: it has";
                io::Error::other(format!("{error}: {told} {len_bytes} bytes of {len}; the server's log has its path"))
            }
            None => error,
        }
    }

    fn shortened(&self, errno: Errno) -> Option<Shortened> {
        if errno == Errno::IO { self.medium.shortened() } else { None }
    }

    /// Its name, and how many commands reservations kept from it.
    pub fn conflicts(&self) -> (String, u64) {
        (self.name.clone(), self.reservation_conflicts.load(Ordering::Relaxed))
    }

    /// Releases a range of [`guards`](Self::guards). Cached blocks of a range that could be written are dropped first.
    pub fn release(&self, range: Range<u64>, mode: Mode) {
        if mode == Mode::Exclusive {
            if let Some(cache) = self.kept_in.get() {
                cache.written(self.serial, &range);
            }
            self.writes.fetch_add(1, Ordering::Release);
        }
        self.guards.release(range, mode);
    }

    /// Its number among all volumes that there ever were.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// The version of its content: another number once anybody has written, or could have.
    pub fn version(&self) -> u64 {
        self.writes.load(Ordering::Acquire)
    }

    /// Says that blocks will be kept; before the first of them is read.
    pub fn keep_in(&self, cache: &Arc<BlockCache>) {
        self.kept_in.get_or_init(|| Arc::clone(cache));
    }

    /// Whether a flush failed. Such a volume takes no more writes until it is opened again: the kernel reports a
    /// lost write once and then calls the page clean, so that only refusing keeps the promise of Flush.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Whether it was removed from its target. Its medium may be somebody else's by now.
    pub fn is_removed(&self) -> bool {
        self.removed.load(Ordering::SeqCst)
    }

    /// Notes that a flush failed.
    pub fn set_failed(&self) {
        if !self.failed.swap(true, Ordering::Relaxed) {
            tracing::error!(volume = self.name, "a flush failed; no more writes until the volume is opened again");
        }
    }

    /// Notes that the medium ends before the volume does. A write behind its end would make it long again, and bytes that were cut off
    /// would be zeroes, of which nobody heard.
    pub fn note_end(&self) {
        if let Some(why) = self.why(Errno::IO)
            && !self.failed.swap(true, Ordering::Relaxed)
        {
            let ends = if self.read_only { "" } else { "; no more writes until the volume is opened again" };
            tracing::error!(volume = self.name, "{why}{ends}");
        }
    }

    /// How hosts see it.
    pub fn namespace(&self, medium: MediumId) -> Namespace {
        let properties = self.medium.properties();
        Namespace {
            nsid: self.nsid,
            medium,
            csi: diskside_nvme::wire::CSI_NVM,
            blocks: properties.len_bytes / u64::from(self.block_bytes),
            block_size: if self.block_bytes == 512 { BlockSize::B512 } else { BlockSize::B4096 },
            atomic_blocks: u16::try_from(properties.atomic_len / self.block_bytes).unwrap_or(u16::MAX).max(1),
            delta_len_max: properties.delta_len,
            read_only: self.read_only,
            deallocate: !self.read_only,
            uuid: self.uuid,
        }
    }
}

/// The volumes by [`MediumId`]. An ID is never used twice, so that a command that is late finds nothing.
#[derive(Debug, Default)]
pub struct VolumeTable {
    volumes: RwLock<Vec<Option<Arc<Volume>>>>,
    /// Counts changes: reactors look at it instead of taking the lock.
    version: AtomicU64,
}

impl VolumeTable {
    /// Adds a volume.
    pub fn add(&self, volume: Arc<Volume>) -> MediumId {
        let mut volumes = self.volumes.write().unwrap_or_else(PoisonError::into_inner);
        volumes.push(Some(volume));
        self.version.fetch_add(1, Ordering::Release);
        MediumId(volumes.len() as u64 - 1)
    }

    /// Takes a volume out; who still has it reads and writes it no more.
    pub fn remove(&self, name: &str) -> Option<Arc<Volume>> {
        let mut volumes = self.volumes.write().unwrap_or_else(PoisonError::into_inner);
        let entry = volumes.iter_mut().find(|entry| entry.as_ref().is_some_and(|volume| volume.name == name))?;
        self.version.fetch_add(1, Ordering::Release);
        entry.take().inspect(|volume| {
            volume.removed.store(true, Ordering::SeqCst);
            if let Some(cache) = volume.kept_in.get() {
                cache.clear(Some(volume.serial));
            }
        })
    }

    /// Takes all volumes out.
    pub fn clear(&self) {
        self.volumes.write().unwrap_or_else(PoisonError::into_inner).clear();
        self.version.fetch_add(1, Ordering::Release);
    }

    /// The volume with this namespace ID.
    pub fn find(&self, nsid: u32) -> Option<Arc<Volume>> {
        let volumes = self.volumes.read().unwrap_or_else(PoisonError::into_inner);
        volumes.iter().flatten().find(|volume| volume.nsid == nsid).cloned()
    }

    /// Counts the changes so far.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// All volumes; each stands at its [`MediumId`].
    pub fn snapshot(&self) -> Vec<Option<Arc<Volume>>> {
        self.volumes.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
