//! A medium whose writes are there as a whole or not at all, whatever happens meanwhile.
//!
//! A thread writes what hosts want to write to a journal first, many writes as one group, and durably; then to its place;
//! then the writes end. So what has ended survives power loss, and a page that was being written is carried out from the
//! journal when the volume is opened again, or was never begun. When the journal is full the medium is flushed, the
//! journal is emptied, and begins again.
//!
//! A delta is in the journal as its record alone; its page is in memory until it is written to its place (`atomic::worker`).

mod disk;
mod journal;
mod mark;
mod pages;
mod replay;
mod space;
mod worker;

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use diskside_io::Errno;
use diskside_io::buffer::Buffer;
use diskside_io::request::{Outcome, Promise, Status, promise};
use diskside_wire::delta::Delta;

use self::journal::{CHANGES_MAX, Change, ChangeKind, Header, PAGE_LEN, START_MAGIC, Start, is_start};
pub(super) use self::mark::{ATTRIBUTE, Mark};
use self::pages::{Pages, Place};
use self::worker::Worker;
use crate::medium::{Access, Action, Medium, Properties, Shortened, Step};

/// Bytes of a journal.
pub(super) const JOURNAL_LEN: u64 = 32 << 20;
/// The shortest: there is room for any group.
pub(super) const JOURNAL_LEN_MIN: u64 = 4 << 20;
/// The most of a journal that is used: what waits there is carried out before a volume can be opened.
const JOURNAL_LEN_MAX: u64 = 256 << 20;
/// The longest promise: longer writes end here.
pub const ATOMIC_LEN_MAX: u64 = 64 << 10;
/// The shortest.
pub const ATOMIC_LEN_MIN: u64 = 4 << 10;
/// The shortest block of a volume.
const BLOCK_LEN_MIN: u64 = 512;
/// Bytes of one write that are carried out at a time.
const WRITE_LEN_MAX: u64 = 1 << 20;
/// Bytes of a group, unless one write alone has more.
const GROUP_DATA_LEN: usize = 2 << 20;
/// Pages that are read for deltas, or written to their places, at a time, unless the user says how many.
pub const DELTA_DEPTH: u32 = 16;
/// The most.
pub const DELTA_DEPTH_MAX: u32 = 64;
/// Pages that deltas made are written to their places when nothing else was asked for so long.
const IDLE: Duration = Duration::from_millis(20);

/// Any medium, with a journal beside it that makes each of its writes whole.
#[derive(Debug)]
pub struct AtomicMedium {
    inner: Arc<dyn Medium>,
    properties: Properties,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The file that is marked as long as the journal may have what it lacks.
    marked: Option<Arc<OwnedFd>>,
}

/// How a medium is made atomic.
#[derive(Clone, Debug)]
pub struct AtomicOptions {
    /// What messages call the volume.
    pub name: String,
    /// Writes of up to so many bytes are whole or not there.
    pub atomic_len: u32,
    /// Pages that are read for deltas, or written to their places, at a time.
    pub delta_depth: u32,
}

impl AtomicOptions {
    /// Writes of up to so many bytes.
    pub fn new(atomic_len: u32) -> Self {
        Self { name: String::new(), atomic_len, delta_depth: DELTA_DEPTH }
    }
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
    /// What messages call the volume.
    name: String,
    /// A write failed that the journal has, or it could not be written: no more are taken.
    failed: AtomicBool,
    /// Ranges that may be half written since. They are whole again when the volume is opened again.
    broken: Mutex<Vec<Range<u64>>>,
    /// Pages that deltas made, and that are not in their places yet.
    pages: Pages,
    /// The room of the journal.
    journal_len: u64,
    /// The identifier of the journal, once it is open.
    id: AtomicU64,
    /// The journal has nothing that the volume lacks, and will not.
    is_empty: AtomicBool,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    ends: bool,
}

#[derive(Debug)]
struct Job {
    change: Change,
    /// The data of a write, or the record of a delta.
    data: Option<Buffer>,
    promise: Promise<Outcome>,
}

impl AtomicMedium {
    /// `inner`, with a journal. Carries out first what `journal` has and `inner` may not.
    pub fn new(inner: Arc<dyn Medium>, journal: Arc<dyn Medium>, options: &AtomicOptions) -> io::Result<Self> {
        let journal_len = journal.properties().len_bytes.min(JOURNAL_LEN_MAX);
        let shared = Arc::new(Shared { name: options.name.clone(), journal_len, ..Shared::default() });
        let atomic_len = options.atomic_len;
        let properties =
            Properties { volatile_write_cache: false, atomic_len, delta_len: atomic_len, ..inner.properties().clone() };
        let depth = options.delta_depth.clamp(1, DELTA_DEPTH_MAX) as usize;
        let (told, hears) = mpsc::sync_channel(1);
        let worker = (Arc::clone(&inner), Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("atomic".into()).spawn(move || {
            let (inner, shared) = worker;
            match Worker::open(inner, journal, shared, depth) {
                Ok(mut worker) => {
                    let _ = told.send(Ok(()));
                    worker.run();
                }
                Err(error) => drop(told.send(Err(error))),
            }
        })?;
        hears.recv().unwrap_or_else(|_| Err(io::Error::other("the thread of the journal ended")))?;
        Ok(Self { inner, properties, shared, thread: Some(thread), marked: None })
    }

    /// Marks the file of the volume as one whose journal is at `path`, until the medium is closed in order.
    pub(super) fn mark(&mut self, file: &Arc<OwnedFd>, path: &Path) -> Result<(), Errno> {
        let mark = Mark { id: self.shared.id.load(Ordering::Acquire), journal: path.to_owned() };
        mark.put(file)?;
        self.marked = Some(Arc::clone(file));
        Ok(())
    }

    fn enqueue(&self, change: Change, data: Option<Buffer>) -> Action {
        if self.shared.failed.load(Ordering::Acquire) {
            return Action::Failed(Errno::IO);
        }
        let (promise, future) = promise();
        self.shared.lock().jobs.push_back(Job { change, data, promise });
        self.shared.arrived.notify_one();
        Action::Elsewhere(future)
    }
}

impl AtomicMedium {
    /// Whether both ranges of a delta are inside the medium, and the page is as short as the medium promises.
    fn takes(&self, delta: &Delta<'_>) -> bool {
        let ends_inside = |range: Range<u64>| range.end <= self.properties.len_bytes && range.end > range.start;
        let is_aligned = delta.base_offset.abs_diff(delta.offset).is_multiple_of(BLOCK_LEN_MIN);
        is_aligned
            && delta.page_len <= self.properties.delta_len
            && ends_inside(delta.range())
            && ends_inside(delta.base_range())
    }
}

impl Drop for AtomicMedium {
    fn drop(&mut self) {
        self.shared.lock().ends = true;
        self.shared.arrived.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of it was reported where it happened.
            let _ = thread.join();
        }
        if let Some(file) = self.marked.take().filter(|_| self.shared.is_empty.load(Ordering::Acquire)) {
            // One that stays, since this process has become another user, costs a look at the journal.
            let _ = Mark::remove(file);
        }
    }
}

impl Medium for AtomicMedium {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn shortened(&self) -> Option<Shortened> {
        self.inner.shortened()
    }

    fn start(&self, access: &Access<'_>) -> Step {
        match *access {
            Access::Write { offset, data, .. } => {
                let end = offset + data.len() as u64;
                let end = match data.len() as u64 > WRITE_LEN_MAX {
                    // Pages are cut nowhere.
                    true => (offset + WRITE_LEN_MAX) / ATOMIC_LEN_MAX * ATOMIC_LEN_MAX,
                    false => end,
                };
                let len = end - offset;
                let change = Change { offset, len, kind: ChangeKind::Write };
                self.enqueue(change, Some(Buffer::copy_of(&data[..len as usize]))).into()
            }
            Access::Zero { offset, len, .. } => {
                self.enqueue(Change { offset, len, kind: ChangeKind::Zero }, None).into()
            }
            Access::Delta(delta) if !self.takes(&delta) => Action::Failed(Errno::INVAL).into(),
            Access::Delta(delta) => {
                let record = delta.as_bytes();
                let kind = ChangeKind::Delta { record_len: record.len() as u32 };
                let change = Change { offset: delta.offset, len: delta.page_len.into(), kind };
                self.enqueue(change, Some(Buffer::copy_of(record))).into()
            }
            // What has ended is durable.
            Access::Flush if self.shared.failed.load(Ordering::Acquire) => Action::Failed(Errno::IO).into(),
            Access::Flush => Action::Done(0).into(),
            Access::Read { offset, len } => match self.shared.pages.place(offset, len as u64) {
                // Whole, whatever became of its place.
                Place::Here(bytes) => Action::Bytes(bytes).into(),
                Place::Below(len) if self.shared.is_broken(&(offset..offset + len)) => Action::Failed(Errno::IO).into(),
                Place::Below(len) => self.inner.start(&Access::Read { offset, len: len as usize }),
            },
        }
    }

    fn read_now(&self, offset: u64, into: &mut [u8]) -> bool {
        let range = offset..offset + into.len() as u64;
        !self.shared.is_broken(&range)
            && self.shared.pages.overlapping(&range).is_empty()
            && self.inner.read_now(offset, into)
    }

    fn drop_cached(&self) -> Result<(), Errno> {
        self.inner.drop_cached()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_broken(&self, range: &Range<u64>) -> bool {
        self.failed.load(Ordering::Acquire)
            && self.broken.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|it| overlap(it, range))
    }

    fn fail(&self, broken: impl Iterator<Item = Range<u64>>) {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner).extend(broken);
        if !self.failed.swap(true, Ordering::AcqRel) {
            tracing::error!(
                volume = %self.name,
                "a write to the journal, or from it, failed: no more writes until the volume is opened again"
            );
        }
    }

    /// What the journal's thread does next.
    fn next(&self) -> Next {
        let mut queue = self.lock();
        while queue.jobs.is_empty() {
            if queue.ends {
                return Next::End;
            }
            if self.pages.bytes() == 0 || self.failed.load(Ordering::Acquire) {
                queue = self.arrived.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let (after, waited) = self.arrived.wait_timeout(queue, IDLE).unwrap_or_else(PoisonError::into_inner);
            queue = after;
            if waited.timed_out() && queue.jobs.is_empty() && !queue.ends {
                return Next::Idle;
            }
        }
        let len_max = GROUP_DATA_LEN.min(self.journal_len as usize / 2);
        let (mut group, mut data_len): (Vec<Job>, usize) = (Vec::new(), 0);
        while let Some(job) = queue.jobs.front() {
            let len = Self::weight(job);
            let clashes = group.iter().any(|other: &Job| {
                !is_alike(&other.change, &job.change) || overlap(&other.change.range(), &job.change.range())
            });
            if !group.is_empty() && (clashes || data_len + len > len_max || group.len() == CHANGES_MAX) {
                break;
            }
            data_len += len;
            group.extend(queue.jobs.pop_front());
        }
        Next::Group(group)
    }

    /// How much a job takes of its group. Behind a group the journal keeps room for the pages of its deltas.
    fn weight(job: &Job) -> usize {
        match job.change.kind {
            ChangeKind::Delta { record_len } => job.change.len as usize + record_len as usize + 2 * PAGE_LEN,
            _ => job.data.as_ref().map_or(0, |data| data.len()),
        }
    }
}

/// What the journal's thread does next.
enum Next {
    /// These, together.
    Group(Vec<Job>),
    /// Pages that wait, since nothing else was asked for.
    Idle,
    /// The medium is closed.
    End,
}

/// Whether both can be in one group: zeroes are written in another way.
fn is_alike(one: &Change, other: &Change) -> bool {
    matches!(one.kind, ChangeKind::Zero) == matches!(other.kind, ChangeKind::Zero)
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

impl Job {
    fn end(self, result: Result<(), Errno>) {
        let status = result.map_or_else(Status::from_errno, |()| Status::Success);
        let transferred_bytes = if result.is_ok() { self.change.len } else { 0 };
        self.promise.complete(Outcome { status, transferred_bytes, buffer: None });
    }
}

/// What a file or device is, as a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// None: it has other bytes.
    Other,
    /// It could be made one: all zeroes.
    New,
    /// One of this identifier, if it has one. `pending`: it has writes that its volume may not have.
    Journal { id: Option<u64>, pending: bool },
}

impl Kind {
    /// Looks at the file or device.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let read_page = |at: u64| {
            let mut page = vec![0; PAGE_LEN];
            match file.read_exact_at(&mut page, at) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
                result => result.map(|()| Some(page)),
            }
        };
        let Some(first) = read_page(0)? else { return Ok(if is_zero(&file)? { Self::New } else { Self::Other }) };
        if let Some(Start { id, sequence }) = Start::parse(&first) {
            let group = read_page(PAGE_LEN as u64)?.and_then(|page| Header::parse(&page));
            let pending = group.is_some_and(|group| (group.id, group.sequence) == (id, sequence));
            return Ok(Self::Journal { id: Some(id), pending });
        }
        if first.starts_with(&START_MAGIC) {
            // Damaged: opening it says so.
            return Ok(Self::Journal { id: None, pending: true });
        }
        if is_start(&first[..8]) {
            return Ok(Self::Journal { id: None, pending: Header::parse(&first).is_some() });
        }
        Ok(if is_zero(&file)? { Self::New } else { Self::Other })
    }
}

/// Whether there is nothing but zeroes where a journal would be. A file system, too, may begin with some.
fn is_zero(file: &File) -> io::Result<bool> {
    let (mut part, mut at) = (vec![0; 1 << 20], 0);
    while at < JOURNAL_LEN_MAX {
        let read = file.read_at(&mut part, at)?;
        if read == 0 {
            break;
        }
        if part[..read].iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        at += read as u64;
    }
    Ok(true)
}
