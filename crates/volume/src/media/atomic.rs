//! A medium whose writes are there as a whole or not at all, whatever happens meanwhile.
//!
//! A thread writes what hosts want to write to a journal first, many writes as one group, and durably; then to its place;
//! then the writes end. So what has ended survives power loss, and a page that was being written is carried out from the
//! journal when the volume is opened again, or was never begun. When the journal is full the medium is flushed, the
//! journal is emptied, and begins again.

mod disk;
mod journal;

use std::collections::VecDeque;
use std::fs::File;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;

use diskside_io::Errno;
use diskside_io::buffer::Buffer;
use diskside_io::request::{Outcome, Promise, Status, promise};

use self::disk::{Disk, Part};
use self::journal::{CHANGES_MAX, Change, ChangeKind, Header, MAGIC, PAGE_LEN, encode, group_len};
use crate::medium::{Access, Action, Medium, Properties, Step};

/// Bytes of a journal.
pub(super) const JOURNAL_LEN: u64 = 32 << 20;
/// The shortest: there is room for any group.
pub(super) const JOURNAL_LEN_MIN: u64 = 4 << 20;
/// The longest promise: longer writes end here.
pub const ATOMIC_LEN_MAX: u64 = 64 << 10;
/// The shortest.
pub const ATOMIC_LEN_MIN: u64 = 4 << 10;
/// Bytes of one write that are carried out at a time.
const WRITE_LEN_MAX: u64 = 1 << 20;
/// Bytes of a group, unless one write alone has more.
const GROUP_DATA_LEN: usize = 2 << 20;

/// Any medium, with a journal beside it that makes each of its writes whole.
#[derive(Debug)]
pub struct AtomicMedium {
    inner: Arc<dyn Medium>,
    properties: Properties,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
    /// A write failed that the journal has, or it could not be written: no more are taken.
    failed: AtomicBool,
    /// Ranges that may be half written since. They are whole again when the volume is opened again.
    broken: Mutex<Vec<Range<u64>>>,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    ends: bool,
}

#[derive(Debug)]
struct Job {
    change: Change,
    /// The data of a write.
    data: Option<Buffer>,
    promise: Promise<Outcome>,
}

impl AtomicMedium {
    /// `inner`, of which writes of up to `atomic_len` bytes are whole or not there. Carries out first what `journal` has and
    /// `inner` may not.
    pub fn new(inner: Arc<dyn Medium>, journal: Arc<dyn Medium>, atomic_len: u32) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let properties = Properties { volatile_write_cache: false, atomic_len, ..inner.properties().clone() };
        let (told, hears) = mpsc::sync_channel(1);
        let worker = (Arc::clone(&inner), Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("atomic".into()).spawn(move || {
            let (inner, shared) = worker;
            match Worker::open(inner, journal, shared) {
                Ok(mut worker) => {
                    let _ = told.send(Ok(()));
                    worker.run();
                }
                Err(error) => drop(told.send(Err(error))),
            }
        })?;
        hears.recv().unwrap_or_else(|_| Err(io::Error::other("the thread of the journal ended")))?;
        Ok(Self { inner, properties, shared, thread: Some(thread) })
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

impl Drop for AtomicMedium {
    fn drop(&mut self) {
        self.shared.lock().ends = true;
        self.shared.arrived.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of it was reported where it happened.
            let _ = thread.join();
        }
    }
}

impl Medium for AtomicMedium {
    fn properties(&self) -> &Properties {
        &self.properties
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
            // What has ended is durable.
            Access::Flush if self.shared.failed.load(Ordering::Acquire) => Action::Failed(Errno::IO).into(),
            Access::Flush => Action::Done(0).into(),
            Access::Read { offset, len } if self.shared.is_broken(&(offset..offset + len as u64)) => {
                Action::Failed(Errno::IO).into()
            }
            Access::Read { .. } => self.inner.start(access),
        }
    }

    fn read_now(&self, offset: u64, into: &mut [u8]) -> bool {
        !self.shared.is_broken(&(offset..offset + into.len() as u64)) && self.inner.read_now(offset, into)
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
                "a write to a journal, or from it, failed; no more writes until the volume is opened again"
            );
        }
    }

    /// The next group; `None`: the medium is closed.
    fn next_group(&self) -> Option<Vec<Job>> {
        let mut queue = self.lock();
        while queue.jobs.is_empty() {
            if queue.ends {
                return None;
            }
            queue = self.arrived.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        let (mut group, mut data_len): (Vec<Job>, usize) = (Vec::new(), 0);
        while let Some(job) = queue.jobs.front() {
            let len = job.data.as_ref().map_or(0, |data| data.len());
            let clashes = group.iter().any(|other: &Job| {
                other.change.kind != job.change.kind || overlap(&other.change.range(), &job.change.range())
            });
            if !group.is_empty() && (clashes || data_len + len > GROUP_DATA_LEN || group.len() == CHANGES_MAX) {
                break;
            }
            data_len += len;
            group.extend(queue.jobs.pop_front());
        }
        Some(group)
    }
}

impl Change {
    fn range(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.len)
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// The thread that has the journal.
struct Worker {
    inner: Arc<dyn Medium>,
    journal: Arc<dyn Medium>,
    shared: Arc<Shared>,
    disk: Disk,
    id: u64,
    sequence: u64,
    /// Where the next group goes.
    at: u64,
}

impl Worker {
    fn open(inner: Arc<dyn Medium>, journal: Arc<dyn Medium>, shared: Arc<Shared>) -> io::Result<Self> {
        let id = std::hash::RandomState::new().build_hasher().finish();
        let mut worker = Self { inner, journal, shared, disk: Disk::new()?, id, sequence: 0, at: 0 };
        worker.carry_on().map_err(io::Error::from)?;
        Ok(worker)
    }

    /// Carries out what the journal has, in order.
    fn carry_on(&mut self) -> Result<(), Errno> {
        let (mut at, mut last, mut count) = (0, None, 0);
        while let Some((header, data)) = self.group_at(at, last)? {
            let mut rest = &data[..];
            for change in &header.changes {
                if change.range().end > self.inner.properties().len_bytes {
                    tracing::error!("the journal is that of a longer volume");
                    return Err(Errno::INVAL);
                }
                match change.kind {
                    ChangeKind::Zero => self.disk.zero(&*self.inner, change.offset, change.len)?,
                    ChangeKind::Write => {
                        let (bytes, others) = rest.split_at(change.len as usize);
                        rest = others;
                        let mut part = [Part::new(change.offset, Buffer::copy_of(bytes))];
                        self.disk.write(&*self.inner, &mut part, false).remove(0)?;
                    }
                }
                count += 1;
            }
            at += header.group_len() as u64;
            last = Some((header.id, header.sequence));
        }
        if count > 0 {
            self.empty()?;
            tracing::info!(writes = count, "carried out the writes of a journal");
        }
        Ok(())
    }

    /// The group there, if a whole one is that follows the last one.
    fn group_at(&mut self, at: u64, last: Option<(u64, u64)>) -> Result<Option<(Header, Buffer)>, Errno> {
        let len = self.journal.properties().len_bytes;
        if at + PAGE_LEN as u64 > len {
            return Ok(None);
        }
        let page = self.disk.read(&*self.journal, at, Buffer::zeroed(PAGE_LEN))?;
        let follows =
            |header: &Header| last.is_none_or(|(id, sequence)| (header.id, header.sequence) == (id, sequence + 1));
        let Some(header) = Header::parse(&page).filter(follows) else { return Ok(None) };
        if at + header.group_len() as u64 > len {
            return Ok(None);
        }
        let pages = Buffer::zeroed(header.group_len() - PAGE_LEN);
        let mut data = self.disk.read(&*self.journal, at + PAGE_LEN as u64, pages)?;
        data.set_len(header.data_len);
        Ok(header.matches(&data).then_some((header, data)))
    }

    fn run(&mut self) {
        while let Some(group) = self.shared.next_group() {
            self.carry_out(group);
        }
        // Nobody needs the journal any more: it says so, and the volume is whole without it.
        if !self.shared.failed.load(Ordering::Acquire) {
            // Else the next opening carries out once more what is in its place.
            let _ = self.empty();
        }
    }

    /// Empties the journal: what it has is in its place, durably. Without that a group that is being written over the first
    /// ones could leave one of them whole, and those behind it not: then an old change would be carried out again, and the
    /// ones after it not.
    fn empty(&mut self) -> Result<(), Errno> {
        self.disk.flush(&*self.inner)?;
        self.disk.write(&*self.journal, &mut [Part::new(0, Buffer::zeroed(PAGE_LEN))], true).remove(0)?;
        self.at = 0;
        Ok(())
    }

    fn carry_out(&mut self, group: Vec<Job>) {
        if self.shared.failed.load(Ordering::Acquire) {
            return group.into_iter().for_each(|job| job.end(Err(Errno::IO)));
        }
        if let Err(errno) = self.note(&group) {
            // The content of the journal is unknown now, but nothing was begun.
            self.shared.fail(std::iter::empty());
            return group.into_iter().for_each(|job| job.end(Err(errno)));
        }
        let mut jobs = group;
        let results = match jobs[0].change.kind {
            ChangeKind::Zero => {
                let zero = |job: &Job| self.disk.zero(&*self.inner, job.change.offset, job.change.len);
                jobs.iter().map(zero).collect()
            }
            ChangeKind::Write => {
                let part = |job: &mut Job| Part::new(job.change.offset, job.data.take().expect("a write has data"));
                let mut parts: Vec<_> = jobs.iter_mut().map(part).collect();
                self.disk.write(&*self.inner, &mut parts, false)
            }
        };
        let failed = jobs.iter().zip(&results).filter(|(_, result)| result.is_err());
        let broken: Vec<_> = failed.map(|(job, _)| job.change.range()).collect();
        if !broken.is_empty() {
            self.shared.fail(broken.into_iter());
        }
        jobs.into_iter().zip(results).for_each(|(job, result)| job.end(result));
    }

    /// Writes a group to the journal, durably.
    fn note(&mut self, group: &[Job]) -> Result<(), Errno> {
        let changes: Vec<_> = group.iter().map(|job| job.change).collect();
        let data_len = group.iter().filter_map(|job| job.data.as_ref()).map(|data| data.len()).sum();
        if self.at + group_len(data_len) as u64 > self.journal.properties().len_bytes {
            self.empty()?;
        }
        self.sequence += 1;
        let bytes = encode(self.id, self.sequence, &changes, group.iter().filter_map(|job| job.data.as_deref()));
        let len = bytes.len() as u64;
        self.disk.write(&*self.journal, &mut [Part::new(self.at, bytes)], true).remove(0)?;
        self.at += len;
        Ok(())
    }
}

impl Job {
    fn end(self, result: Result<(), Errno>) {
        let status = result.map_or_else(Status::from_errno, |()| Status::Success);
        let transferred_bytes = if result.is_ok() { self.change.len } else { 0 };
        self.promise.complete(Outcome { status, transferred_bytes, buffer: None });
    }
}

/// Whether it begins as a journal does: with a group, or with zeroes.
pub(super) fn may_be_journal(path: &Path) -> io::Result<bool> {
    let mut start = [0; MAGIC.len()];
    File::open(path)?.read_exact_at(&mut start, 0)?;
    Ok(start == MAGIC || start == [0; MAGIC.len()])
}

/// Whether the file is a journal with writes that its volume may not have.
pub(super) fn has_pending(path: &Path) -> io::Result<bool> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let mut page = [0; PAGE_LEN];
    match file.read_exact_at(&mut page, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
        Ok(()) => Ok(Header::parse(&page).is_some()),
    }
}
