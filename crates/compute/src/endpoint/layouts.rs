//! Layouts: where files are that hosts have on volumes which they mounted (`docs/wire.md`, "Layout Send").
//!
//! A target cannot know whether a layout is still right; the host knows, by its lease, and throws away results that are
//! not. The target promises the fence: when a Revoke has completed, no call reads or writes by that generation any
//! more. Calls that write stop for it; calls that read continue to their end.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use diskside_engine::ReadAt;
use diskside_io::Errno;
use diskside_io::buffer::Part;
use diskside_io::readahead::Reading;
use diskside_nvme::Status;
use diskside_wire::function::{Endpoint, FieldError, LayoutAction, LayoutRequest, LayoutRun};

use crate::call::answer::Problem;
use crate::schedule::quota::{Account, Holding, PART_BYTES};
use diskside_export::FileError;
use diskside_volume::blocking::VolumeReader;
use diskside_volume::{Volume, VolumeTable};

/// Layouts of one host, and their runs together: 24 MiB.
const LAYOUTS_MAX: usize = 1024;
const RUNS_MAX: usize = 1 << 20;
/// Runs are kept in segments that generations share, so that to append copies no more than this; two that follow each other
/// have more than one may have, so there are few.
const SEGMENT_RUNS: usize = 4096;
/// How often a fence looks whether the last call has ended.
const FENCE_POLL: Duration = Duration::from_millis(1);

/// The layouts of one host.
#[derive(Debug, Default)]
pub(crate) struct Layouts {
    table: Mutex<BTreeMap<u32, Slot>>,
    /// Runs of all segments, those that only calls still use among them.
    runs: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Slot {
    current: Option<Arc<Layout>>,
    /// Generations that are replaced or revoked, and that calls still use.
    former: Vec<Weak<Layout>>,
}

/// A layout, as long as the table or a call has it.
#[derive(Debug)]
pub(crate) struct Layout {
    volume: Arc<Volume>,
    generation: u64,
    file_len: u64,
    segments: Vec<Arc<Segment>>,
    /// Replaced or revoked: nothing is written by it any more.
    retired: AtomicBool,
}

/// Runs in order; at least one.
#[derive(Debug)]
struct Segment {
    runs: Vec<LayoutRun>,
    /// Those of all segments of the host.
    counted: Arc<AtomicUsize>,
    #[expect(dead_code, reason = "kept as long as the runs are")]
    holding: Holding,
}

/// A file by its layout, for one call.
#[derive(Debug)]
pub(crate) struct LayoutReader {
    layout: Arc<Layout>,
    /// The volume.
    bytes: Arc<dyn ReadAt>,
}

impl Layouts {
    /// Sets a layout, or appends to it.
    ///
    /// # Errors
    /// The field that cannot be, a volume that is not there, or too much.
    pub(crate) fn keep(&self, volume: Arc<Volume>, account: &Account, request: LayoutRequest) -> Result<(), Problem> {
        let len_bytes = volume.medium.properties().len_bytes;
        if request.runs.iter().any(|run| run.physical + run.len > len_bytes) {
            let told = format!("a run ends past volume {}, which has {len_bytes} bytes", volume.name);
            return Err(Problem::new(Status::LBA_OUT_OF_RANGE.dnr(), told));
        }
        let mut table = self.lock();
        let (layouts, runs) = (table.len(), self.runs.load(Ordering::Relaxed));
        if runs + request.runs.len() > RUNS_MAX || (layouts >= LAYOUTS_MAX && !table.contains_key(&request.id)) {
            let told = format!("this host has {layouts} layouts of {runs} runs; revoke some");
            return Err(Problem::new(Status::FUNCTION_BUSY, told));
        }
        let LayoutRequest { action, id, generation, file_len, mut runs, .. } = request;
        let current = table.get(&id).and_then(|slot| slot.current.as_ref());
        let mut segments = match (action, current) {
            (LayoutAction::Set, Some(current)) if generation <= current.generation => {
                return Err(Problem::in_data(FieldError::new(16, "a later generation of this layout is kept")));
            }
            (LayoutAction::Set, _) => Vec::new(),
            (LayoutAction::Append, Some(current))
                if current.generation == generation
                    && current.file_len == file_len
                    && Arc::ptr_eq(&current.volume, &volume) =>
            {
                let end = current.segments.last().map_or(0, |last| last.end());
                if runs.first().is_some_and(|run| run.logical < end) {
                    return Err(Problem::in_data(FieldError::new(
                        40,
                        "runs that are appended lie behind those before",
                    )));
                }
                current.segments.clone()
            }
            (LayoutAction::Append, _) => {
                return Err(Problem::in_data(FieldError::new(16, "no such generation of this layout is kept")));
            }
            (LayoutAction::Revoke, _) => {
                return Err(Problem::in_data(FieldError::new(4, "a layout that is revoked is not kept")));
            }
        };
        if segments.last().is_some_and(|last| last.runs.len() + runs.len() <= SEGMENT_RUNS)
            && let Some(last) = segments.pop()
        {
            runs = [&last.runs[..], &runs].concat();
        }
        if !runs.is_empty() {
            runs.shrink_to_fit();
            let held = account.hold(size_of_val(&runs[..]) + PART_BYTES);
            let holding = held.map_err(|no_room| Problem::new(Status::FUNCTION_BUSY, no_room.to_string()))?;
            self.runs.fetch_add(runs.len(), Ordering::Relaxed);
            segments.push(Arc::new(Segment { runs, counted: Arc::clone(&self.runs), holding }));
        }
        let slot = table.entry(id).or_default();
        slot.retire();
        let retired = AtomicBool::new(false);
        slot.current = Some(Arc::new(Layout { volume, generation, file_len, segments, retired }));
        Ok(())
    }

    /// Forgets a generation and all before it, and waits until no call uses them. Returns whether none does.
    pub(crate) fn revoke(&self, id: u32, generation: u64, until: Instant) -> bool {
        loop {
            if self.try_revoke(id, generation) {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(FENCE_POLL);
        }
    }

    fn try_revoke(&self, id: u32, generation: u64) -> bool {
        let mut table = self.lock();
        let Some(slot) = table.get_mut(&id) else { return true };
        if slot.current.as_ref().is_some_and(|current| current.generation <= generation) {
            slot.retire();
        }
        slot.former.retain(|layout| layout.strong_count() > 0);
        let used = slot.former.iter().filter_map(Weak::upgrade).any(|layout| layout.generation <= generation);
        if slot.current.is_none() && slot.former.is_empty() {
            table.remove(&id);
        }
        !used
    }

    /// The layout that an endpoint names. A Revoke waits until it is dropped.
    ///
    /// # Errors
    /// That generation is not kept, or its volume is gone: outcome 7.
    pub(crate) fn current(&self, volumes: &VolumeTable, id: u32, generation: u64) -> Result<Arc<Layout>, FileError> {
        let stale = |message: String| FileError { errno: Errno::STALE, changed: true, message };
        let table = self.lock();
        let layout = table.get(&id).and_then(|slot| slot.current.as_ref());
        let layout = layout.ok_or_else(|| stale(format!("layout {id} is not kept")))?;
        if generation != 0 && generation != layout.generation {
            let now = layout.generation;
            return Err(stale(format!("layout {id} has generation {now}, the call names {generation}")));
        }
        if !volumes.find(layout.volume.nsid).is_some_and(|now| Arc::ptr_eq(&now, &layout.volume)) {
            return Err(stale(format!("volume {} of layout {id} went away", layout.volume.name)));
        }
        Ok(Arc::clone(layout))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Slot>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    /// What is kept is not for new calls any more.
    fn retire(&mut self) {
        if let Some(layout) = self.current.take() {
            layout.retired.store(true, Ordering::SeqCst);
            self.former.retain(|layout| layout.strong_count() > 0);
            self.former.push(Arc::downgrade(&layout));
        }
    }
}

impl Segment {
    /// Where the last run ends in the file.
    fn end(&self) -> u64 {
        self.runs.last().map_or(0, |run| run.logical + run.len)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        self.counted.fetch_sub(self.runs.len(), Ordering::Relaxed);
    }
}

impl Layout {
    /// The runs that end behind `offset`, in order.
    fn runs_from(&self, offset: u64) -> impl Iterator<Item = &LayoutRun> {
        let at = self.segments.partition_point(|segment| segment.end() <= offset);
        let (first, rest) = self.segments[at..].split_first().unzip();
        let first = first.map_or(&[][..], |segment| {
            &segment.runs[segment.runs.partition_point(|run| run.logical + run.len <= offset)..]
        });
        first.iter().chain(rest.unwrap_or_default().iter().flat_map(|segment| &segment.runs))
    }

    /// The volume where it is.
    pub(crate) fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// Where the byte at `offset` is on the volume, and how many are there in one piece; `None`: it has no place.
    pub(crate) fn place(&self, offset: u64) -> Option<(u64, u64)> {
        let run = self.runs_from(offset).next()?;
        let skip = offset.checked_sub(run.logical)?;
        Some((run.physical + skip, run.len - skip))
    }

    /// The bytes that an endpoint means: no further than the file goes.
    pub(crate) fn range(&self, endpoint: &Endpoint) -> Range<u64> {
        let end = endpoint.offset.saturating_add(endpoint.len).min(self.file_len);
        endpoint.offset.min(end)..end
    }

    /// Fills the buffer with the file's bytes at `offset`: `read` brings those that have a place on the volume, the others
    /// are zero.
    pub(crate) fn gather<E>(
        &self,
        offset: u64,
        buffer: &mut [u8],
        mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        for (part, place) in self.parts(offset, buffer.len()) {
            match place {
                Some(place) => read(place, &mut buffer[part])?,
                None => buffer[part].fill(0),
            }
        }
        Ok(())
    }

    /// The parts of so many bytes of the file, in order: each where it is among them, and where on the volume, if it has a place there.
    fn parts(&self, offset: u64, len: usize) -> impl Iterator<Item = (Range<usize>, Option<u64>)> {
        let end = offset + len as u64;
        let (mut at, behind) = (offset, (end..end, None));
        let runs = self.runs_from(offset).take_while(move |run| run.logical < end).map(move |run| {
            let from = run.logical.max(offset);
            (from..(run.logical + run.len).min(end), Some(run.physical + from - run.logical))
        });
        let with_holes = runs.chain([behind]).flat_map(move |(part, place)| {
            let hole = std::mem::replace(&mut at, part.end)..part.start;
            [(hole, None), (part, place)]
        });
        let parts = with_holes.filter(|(part, _)| !part.is_empty());
        parts.map(move |(part, place)| ((part.start - offset) as usize..(part.end - offset) as usize, place))
    }
}

impl LayoutReader {
    /// The file that a layout says where it is.
    pub(crate) fn of(layout: Arc<Layout>) -> Self {
        let bytes = Arc::new(VolumeReader { volume: Arc::clone(&layout.volume) });
        Self { layout, bytes }
    }

    /// What errors call it.
    pub(crate) fn name(&self) -> String {
        format!("a file on {}", self.layout.volume.name)
    }

    /// Where its bytes are.
    pub(crate) fn volume(&self) -> &Arc<Volume> {
        &self.layout.volume
    }

    /// The same file, whose volume is read through `bytes`.
    pub(crate) fn over(self, bytes: Arc<dyn ReadAt>) -> Self {
        Self { bytes, ..self }
    }

    /// Whether it was replaced or revoked since.
    pub(crate) fn is_retired(&self) -> bool {
        self.layout.retired.load(Ordering::SeqCst)
    }

    /// Where the byte at `offset` is on the volume, and how many are there in one piece; `None`: it has no place.
    pub(crate) fn place(&self, offset: u64) -> Option<(u64, u64)> {
        self.layout.place(offset)
    }

    /// The bytes that an endpoint means: no further than the file goes.
    pub(crate) fn range(&self, endpoint: &Endpoint) -> Range<u64> {
        self.layout.range(endpoint)
    }
}

impl ReadAt for LayoutReader {
    fn len(&self) -> u64 {
        self.layout.file_len
    }

    fn read(&self, offset: u64, into: Part) -> Reading<'_> {
        Box::pin(async move {
            let Part { mut buffer, range } = into;
            for (part, place) in self.layout.parts(offset, range.len()) {
                let part = range.start + part.start..range.start + part.end;
                match place {
                    Some(place) => buffer = self.bytes.read(place, Part { buffer, range: part }).await?,
                    None => buffer[part].fill(0),
                }
            }
            Ok(buffer)
        })
    }

    fn reads_at_once(&self) -> usize {
        self.bytes.reads_at_once()
    }
}
