//! A reactor's own handles of what is shared: cloned and counted without touching other cores' cache lines.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use diskside_io::buffer::SharedMemory;
use diskside_io::ring::Op;
use diskside_nvme::controller::MediumId;

use diskside_volume::stats::{IoCounters, Registry};
use diskside_volume::{Volume, VolumeTable};

/// A volume and this reactor's counters of it.
#[derive(Debug)]
pub(crate) struct LocalVolume {
    pub(crate) volume: Arc<Volume>,
    pub(crate) counters: Arc<IoCounters>,
    /// The bytes, of a volume in memory.
    pub(crate) memory: Option<SharedMemory>,
    /// Commands that are under way here, and since when their time is not counted yet.
    under_way: Cell<(u32, Option<Instant>)>,
    /// Whether all its operations take a worker of the kernel.
    pub(super) is_remote: bool,
    /// Its operations that take one.
    pub(super) workers: RefCell<Workers>,
    /// Bytes of reads that it has not answered.
    at_medium: Cell<u64>,
}

/// Memory that a read has while its medium is asked. It is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct AtMedium {
    volume: Rc<LocalVolume>,
    len: u64,
}

impl AtMedium {
    /// `None` if reads of this volume have as much as all reads of a volume may: a disk that hangs must not take the memory of all.
    pub(crate) fn begin(volume: &Rc<LocalVolume>, len: u64, max: u64) -> Option<Self> {
        let now = volume.at_medium.get();
        if now > 0 && now + len > max {
            return None;
        }
        volume.at_medium.set(now + len);
        Some(Self { volume: Rc::clone(volume), len })
    }
}

impl Drop for AtMedium {
    fn drop(&mut self) {
        self.volume.at_medium.set(self.volume.at_medium.get() - self.len);
    }
}

#[derive(Debug, Default)]
pub(super) struct Workers {
    /// Those that are with the kernel.
    pub(super) busy: usize,
    /// Those that wait, with their tasks.
    pub(super) waiting: VecDeque<(usize, Op)>,
}

impl LocalVolume {
    /// A command is under way.
    pub(crate) fn begin(&self, now: Instant) {
        let (count, since) = self.under_way.get();
        self.under_way.set((count + 1, since.or(Some(now))));
    }

    /// A command that was under way since `began` has ended.
    pub(crate) fn end(&self, now: Instant, began: Option<Instant>) {
        if let Some(began) = began {
            self.counters.latency.count(now.saturating_duration_since(began));
        }
        let (count, since) = self.under_way.get();
        let Some(since) = since else { return };
        // The rest of a microsecond is left for the next one.
        let busy_us = u64::try_from(now.saturating_duration_since(since).as_micros()).unwrap_or(u64::MAX);
        self.counters.busy_us.add(busy_us);
        self.under_way.set((count - 1, (count > 1).then(|| since + Duration::from_micros(busy_us))));
    }
}

/// The volumes that this reactor has used, by [`MediumId`].
#[derive(Debug, Default)]
pub(crate) struct LocalVolumes {
    volumes: Vec<Option<Rc<LocalVolume>>>,
    /// Serial numbers and where they are, in order.
    by_serial: Vec<(u64, usize)>,
    version: u64,
}

impl LocalVolumes {
    /// The volume, if it still exists.
    pub(crate) fn get(&self, medium: MediumId) -> Option<&Rc<LocalVolume>> {
        self.volumes.get(usize::try_from(medium.0).ok()?)?.as_ref()
    }

    /// This reactor's handle of a volume, if it still exists.
    pub(crate) fn of(&self, volume: &Volume) -> Option<&Rc<LocalVolume>> {
        let found = self.by_serial.binary_search_by_key(&volume.serial(), |(serial, _)| *serial).ok()?;
        self.volumes.get(self.by_serial[found].1)?.as_ref()
    }

    /// Whether a volume's bytes are not in memory: then they are read and written through the ring.
    pub(crate) fn any_outside_memory(&self) -> bool {
        self.volumes.iter().flatten().any(|volume| volume.memory.is_none())
    }

    /// The table's version that was seen last.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Takes over what was added and removed since the last call; one atomic load when nothing was.
    pub(crate) fn refresh(&mut self, table: &VolumeTable, registry: &Registry) {
        let version = table.version();
        if version == self.version {
            return;
        }
        self.version = version;
        let known = std::mem::take(&mut self.volumes);
        let mut known = known.into_iter();
        self.volumes = table
            .snapshot()
            .into_iter()
            .map(|volume| {
                let known = known.next().flatten();
                let volume = volume?;
                Some(known.unwrap_or_else(|| {
                    let counters = registry.register(&volume.name);
                    let (memory, is_remote) = (volume.medium.memory().cloned(), volume.medium.is_remote());
                    Rc::new(LocalVolume {
                        volume,
                        counters,
                        memory,
                        under_way: Cell::default(),
                        is_remote,
                        workers: RefCell::default(),
                        at_medium: Cell::default(),
                    })
                }))
            })
            .collect();
        let places = self.volumes.iter().enumerate();
        self.by_serial = places.filter_map(|(at, volume)| Some((volume.as_ref()?.volume.serial(), at))).collect();
        self.by_serial.sort_unstable();
    }
}
