//! Sources of a traversal that a reactor reads itself: a read is a copy of what is in memory, or else the reactor's ring
//! reads it, as it reads what commands ask for.
//!
//! The place of a volume's bytes is known when the request is looked up. A file may move or go away between two calls,
//! so each call opens it again, and keeps it only while it runs: a Revoke waits for calls that use a layout.

use std::ops::Range;
use std::sync::Arc;

use diskside_engine::traverse::TraverseRead;
use diskside_io::buffer::SharedMemory;
use diskside_wire::file::FileHandle;
use diskside_wire::function::Endpoint;

use crate::call::context::CallContext;
use crate::call::plan::PlannedSource;
use crate::endpoint::layouts::Layout;
use crate::environment::Environment;
use diskside_export::CachedFile;
use diskside_volume::Volume;
use diskside_volume::cache::Lookups;
use diskside_volume::guard::{Asks, Mode};
use diskside_volume::stats::AccessCounters;

/// Of longer reads only the beginning is fetched ahead; the rest streams well.
const PREFETCH_LEN_MAX: u64 = 4096;
/// A reactor's ring reads at most so much for a traversal in one piece; threads read more.
const BLOCKS_LEN_MAX: u64 = 1 << 20;

/// A source that a reactor may read, as the request names it.
#[derive(Debug)]
pub(crate) enum Near {
    /// A range of a volume.
    Volume(VolumeBytes, Range<u64>),
    /// A file of a mounted volume, by its layout.
    Layout(u32, Endpoint),
    /// A file of an export.
    File(FileHandle, Endpoint),
}

/// One that a call has open.
#[derive(Debug)]
pub(crate) enum Opened {
    /// All of it is in the plan.
    Volume,
    Layout {
        layout: Arc<Layout>,
        bytes: VolumeBytes,
        /// Where in the file the source begins.
        start: u64,
    },
    File {
        file: CachedFile,
        start: u64,
    },
}

/// A volume, and where its bytes may be at hand.
#[derive(Debug)]
pub(crate) struct VolumeBytes {
    volume: Arc<Volume>,
    place: BytesPlace,
}

/// What became of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadNow {
    /// The bytes are there.
    Done,
    /// A command that writes there has it, or is next: it will not take long.
    Busy,
    /// They are not in memory.
    Waits,
}

/// Where the bytes of a volume are.
#[derive(Debug)]
enum BytesPlace {
    /// Here, all of them.
    Memory(SharedMemory),
    /// Those that the page cache has.
    PageCache,
    /// Those that another call has read.
    Kept(Lookups),
    /// None: the volume passes the page cache by, and nothing of it is kept.
    Nowhere,
}

/// Blocks of a volume that are to be read.
#[derive(Debug)]
pub(crate) struct Blocks {
    pub(crate) volume: Arc<Volume>,
    pub(crate) range: Range<u64>,
    /// Bytes in front of those that are wanted.
    pub(crate) skip: usize,
    /// Where they are kept.
    pub(crate) cache: Option<Lookups>,
}

impl Near {
    /// `None`: a reactor cannot read it.
    pub(crate) fn of(compute: &Environment, source: &PlannedSource) -> Option<Self> {
        Some(match source {
            PlannedSource::Volume(volume, range) => {
                Self::Volume(VolumeBytes::of(compute, volume, range.end - range.start), range.clone())
            }
            PlannedSource::Layout(id, endpoint) => Self::Layout(*id, *endpoint),
            PlannedSource::File(handle, endpoint) => Self::File(*handle, *endpoint),
            PlannedSource::Memory(..) | PlannedSource::HostStream | PlannedSource::Paths => return None,
        })
    }

    /// Opens it for a call and says how long it is. `None`: a thread has to find out what is the matter.
    pub(crate) fn open(&self, context: &CallContext) -> Option<(Opened, u64)> {
        match self {
            Self::Volume(_, range) => Some((Opened::Volume, range.end - range.start)),
            Self::Layout(id, endpoint) => {
                let compute = &context.environment;
                let layout = context.layout(*id, endpoint.generation).ok()?;
                let range = layout.range(endpoint);
                let len = range.end - range.start;
                let bytes = VolumeBytes::of(compute, layout.volume(), len);
                Some((Opened::Layout { layout, bytes, start: range.start }, len))
            }
            Self::File(handle, endpoint) => {
                let file = context.files.cached(*handle)?;
                let end = endpoint.offset.saturating_add(endpoint.len).min(file.len_bytes());
                let len = end.saturating_sub(endpoint.offset);
                Some((Opened::File { file, start: endpoint.offset }, len))
            }
        }
    }

    /// Copies bytes, unless that would wait. A read lies inside of the source.
    pub(crate) fn read(&self, opened: &Opened, read: &TraverseRead, into: &mut [u8]) -> ReadNow {
        match (self, opened) {
            (Self::Volume(bytes, range), _) => bytes.read(range.start + read.offset, into),
            (_, Opened::Layout { layout, bytes, start }) => {
                let part = |at, part: &mut [u8]| match bytes.read(at, part) {
                    ReadNow::Done => Ok(()),
                    other => Err(other),
                };
                layout.gather(start + read.offset, into, part).map_or_else(|other| other, |()| ReadNow::Done)
            }
            (_, Opened::File { file, start }) => {
                if file.read_now(start + read.offset, into) {
                    ReadNow::Done
                } else {
                    ReadNow::Waits
                }
            }
            (_, Opened::Volume) => unreachable!("only a volume is opened as one"),
        }
    }

    /// The blocks to read for bytes that are not at hand. `None`: a thread has to read them.
    pub(crate) fn blocks(&self, opened: &Opened, read: &TraverseRead) -> Option<Blocks> {
        match (self, opened) {
            (Self::Volume(bytes, range), _) => bytes.blocks(range.start + read.offset, read.len),
            (_, Opened::Layout { layout, bytes, start }) => {
                let (at, len) = layout.place(start + read.offset)?;
                (len >= read.len).then(|| bytes.blocks(at, read.len))?
            }
            (_, Opened::File { .. }) => None,
            (_, Opened::Volume) => unreachable!("only a volume is opened as one"),
        }
    }

    /// Whether the target keeps these bytes.
    pub(crate) fn is_kept(&self, opened: &Opened, read: &TraverseRead) -> bool {
        match (self, opened) {
            (Self::Volume(bytes, range), _) => bytes.is_kept(range.start + read.offset, read.len),
            (_, Opened::Layout { layout, bytes, start }) => {
                layout.place(start + read.offset).is_some_and(|(at, len)| bytes.is_kept(at, len.min(read.len)))
            }
            _ => false,
        }
    }

    /// Whether it is known that all of it is in memory.
    pub(crate) fn is_memory(&self) -> bool {
        matches!(self, Self::Volume(VolumeBytes { place: BytesPlace::Memory(_), .. }, _))
    }

    /// What is counted of it.
    pub(crate) fn counters<'a>(&'a self, opened: &'a Opened) -> &'a AccessCounters {
        match (self, opened) {
            (Self::Volume(bytes, _), _) | (_, Opened::Layout { bytes, .. }) => &bytes.volume.functions,
            (_, Opened::File { file, .. }) => file.counters(),
            (_, Opened::Volume) => unreachable!("only a volume is opened as one"),
        }
    }

    /// Has bytes on their way into the processor's cache.
    pub(crate) fn prefetch(&self, opened: &Opened, read: &TraverseRead) {
        match (self, opened) {
            (Self::Volume(bytes, range), _) => bytes.prefetch(range.start + read.offset, read.len),
            (_, Opened::Layout { layout, bytes, start }) => {
                if let Some((at, len)) = layout.place(start + read.offset) {
                    bytes.prefetch(at, len.min(read.len));
                }
            }
            _ => {}
        }
    }
}

impl Opened {
    /// The version of a file of an export.
    pub(crate) fn version(&self) -> Option<u64> {
        match self {
            Self::File { file, .. } => Some(file.version()),
            Self::Volume | Self::Layout { .. } => None,
        }
    }

    /// Whether what was read is known to belong together: a volume and a layout are their host's to keep still.
    pub(crate) fn is_unchanged(&self) -> bool {
        match self {
            Self::File { file, .. } => file.unchanged(),
            Self::Volume | Self::Layout { .. } => true,
        }
    }
}

impl VolumeBytes {
    fn of(compute: &Environment, volume: &Arc<Volume>, len_bytes: u64) -> Self {
        let place = match volume.medium.memory() {
            Some(memory) => BytesPlace::Memory(memory.clone()),
            None if !volume.medium.properties().direct => BytesPlace::PageCache,
            None => compute.cache.lookups(volume, len_bytes).map_or(BytesPlace::Nowhere, BytesPlace::Kept),
        };
        Self { volume: Arc::clone(volume), place }
    }

    /// The blocks with these bytes: those that are kept are kept whole.
    fn blocks(&self, offset: u64, len: u64) -> Option<Blocks> {
        let (unit, cache) = match &self.place {
            BytesPlace::Memory(_) => return None,
            BytesPlace::Kept(lookups) => (lookups.unit_len_bytes(), Some(lookups.clone())),
            BytesPlace::PageCache | BytesPlace::Nowhere => (u64::from(self.volume.block_bytes), None),
        };
        if let Some(lookups) = &cache {
            self.volume.keep_in(lookups.cache());
        }
        let start = offset / unit * unit;
        let end = (offset + len).next_multiple_of(unit).min(self.volume.medium.properties().len_bytes);
        let blocks =
            Blocks { volume: Arc::clone(&self.volume), range: start..end, skip: (offset - start) as usize, cache };
        (end - start <= BLOCKS_LEN_MAX).then_some(blocks)
    }

    fn is_kept(&self, offset: u64, len: u64) -> bool {
        match &self.place {
            BytesPlace::Kept(lookups) => lookups.has(&self.volume, &(offset..offset + len)),
            BytesPlace::Memory(_) | BytesPlace::PageCache | BytesPlace::Nowhere => false,
        }
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> ReadNow {
        if let BytesPlace::Nowhere = self.place {
            return ReadNow::Waits;
        }
        let range = offset..offset + into.len() as u64;
        if !self.volume.guards.try_hold(range.clone(), Mode::Shared, Asks::Again) {
            return ReadNow::Busy;
        }
        let is_read = match &self.place {
            BytesPlace::Memory(memory) => {
                memory.read(offset as usize, into);
                true
            }
            BytesPlace::PageCache => self.volume.medium.read_now(offset, into),
            BytesPlace::Kept(lookups) => lookups.read_kept(&self.volume, offset, into),
            BytesPlace::Nowhere => false,
        };
        self.volume.release(range, Mode::Shared);
        if is_read { ReadNow::Done } else { ReadNow::Waits }
    }

    fn prefetch(&self, offset: u64, len: u64) {
        if let BytesPlace::Memory(memory) = &self.place {
            memory.prefetch(offset as usize..(offset + len.min(PREFETCH_LEN_MAX)) as usize);
        }
    }
}
