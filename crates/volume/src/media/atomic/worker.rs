//! The thread of an atomic medium: it writes groups of changes to the journal, and then carries them out.
//!
//! A delta ends when it is in the journal; its page stays in memory (see `pages`) until it is written to its place, a bounded number
//! of pages at a time. Such a write can be torn, too, and its base is gone then; so the whole page goes to the journal first. There
//! is always room for that: the journal keeps it free for every page.

use std::hash::{BuildHasher as _, Hasher as _};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use diskside_io::Errno;
use diskside_io::buffer::Buffer;
use diskside_wire::delta::{Delta, DeltaMismatch, page_checksum};

use super::disk::{Disk, Part};
use super::journal::{CHANGES_MAX, Change, ChangeKind, PAGE_LEN, Start, encode, group_len};
use super::replay::OpenError;
use super::space::Space;
use super::{Job, Next, Shared, overlap};
use crate::medium::Medium;

/// The most bytes of pages that wait in memory, whatever the journal holds.
const PAGES_LEN_MAX: u64 = 64 << 20;
/// The part of a journal whose room pages may claim.
const PAGES_SHARE: u64 = 3;

pub(super) struct Worker {
    pub(super) inner: Arc<dyn Medium>,
    pub(super) journal: Arc<dyn Medium>,
    pub(super) shared: Arc<Shared>,
    pub(super) disk: Disk,
    space: Space,
    /// Pages that are read, or written to their places, at a time.
    pub(super) depth: usize,
    pub(super) id: u64,
    pub(super) sequence: u64,
    /// Where the next group goes.
    pub(super) at: u64,
}

/// A write, or a delta that was applied in memory.
struct Ready {
    job: Job,
    /// The page that the delta makes.
    page: Option<Buffer>,
    is_copy: bool,
}

impl Worker {
    pub(super) fn open(
        inner: Arc<dyn Medium>,
        journal: Arc<dyn Medium>,
        shared: Arc<Shared>,
        depth: usize,
    ) -> io::Result<Self> {
        let id = std::hash::RandomState::new().build_hasher().finish();
        let mut worker =
            Self { inner, journal, shared, disk: Disk::new()?, space: Space::default(), depth, id, sequence: 0, at: 0 };
        worker.carry_on().map_err(|error| match error {
            OpenError::Disk(errno) => io::Error::from(errno),
            other => io::Error::new(io::ErrorKind::InvalidData, format!("the journal {other}")),
        })?;
        worker.shared.id.store(worker.id, Ordering::Release);
        Ok(worker)
    }

    pub(super) fn run(&mut self) {
        loop {
            match self.shared.next() {
                Next::Group(group) => self.carry_out(group),
                Next::Idle => self.write_oldest(),
                Next::End => break,
            }
            while self.shared.pages.memory() > self.pages_len_max() && !self.has_failed() {
                self.write_oldest();
            }
        }
        // Nobody needs the journal any more: it says so, and the volume is whole without it.
        // Else the next opening carries out once more what is in its place.
        if !self.has_failed() && self.empty().is_ok() {
            self.shared.is_empty.store(true, Ordering::Release);
        }
    }

    fn has_failed(&self) -> bool {
        self.shared.failed.load(Ordering::Acquire)
    }

    fn pages_len_max(&self) -> u64 {
        (self.shared.journal_len / PAGES_SHARE).min(PAGES_LEN_MAX)
    }

    /// Empties the journal: all that it has is in its place, durably. Without that a group that is being written over the first
    /// ones could leave one of them whole, and those behind it not: then an old change would be carried out again, and the
    /// ones after it not.
    pub(super) fn empty(&mut self) -> Result<(), Errno> {
        let all = self.shared.pages.oldest(usize::MAX);
        self.write_pages(&all)?;
        self.disk.flush(&*self.inner)?;
        let start = Start { id: self.id, sequence: self.sequence + 1 };
        self.disk.write(&*self.journal, &mut [Part::new(0, start.encode())], true).remove(0)?;
        self.at = PAGE_LEN as u64;
        Ok(())
    }

    fn carry_out(&mut self, group: Vec<Job>) {
        if self.has_failed() {
            return group.into_iter().for_each(|job| job.end(Err(Errno::IO)));
        }
        match group[0].change.kind {
            ChangeKind::Zero => self.carry_out_zeroes(group),
            ChangeKind::Delta { .. } | ChangeKind::Write => self.carry_out_data(group),
        }
    }

    fn carry_out_zeroes(&mut self, group: Vec<Job>) {
        let changes: Vec<_> = group.iter().map(|job| job.change).collect();
        let noted = self
            .write_overlapping(changes.iter().map(Change::range), is_inside)
            .and_then(|()| self.make_room(&changes))
            .and_then(|()| self.append(&changes, &[]));
        if let Err(errno) = noted {
            return self.fail(group, errno);
        }
        for job in group {
            self.space.forget(&job.change.range());
            let result = self.disk.zero(&*self.inner, job.change.offset, job.change.len);
            self.placed(&job.change, result);
            job.end(result);
        }
    }

    /// Writes and deltas, and pages that have waited long enough: the journal is waited for once.
    fn carry_out_data(&mut self, group: Vec<Job>) {
        let (space, medium) = (&mut self.space, &*self.inner);
        let group = group.into_iter().filter_map(|job| match space.reserve(medium, &job.change.range()) {
            Ok(()) => Some(job),
            Err(errno) => {
                job.end(Err(errno));
                None
            }
        });
        let group = group.collect();
        let ready = match self.ready(group) {
            Ok(ready) if ready.is_empty() => return,
            Ok(ready) => ready,
            Err((group, errno)) => return self.fail(group, errno),
        };
        let mut parts = match self.note(&ready) {
            Ok(riders) => riders,
            Err(errno) => return self.fail(ready.into_iter().map(|it| it.job).collect(), errno),
        };
        let mut changes: Vec<_> = parts.iter().map(write_of).collect();
        let mut jobs: Vec<_> = parts.iter().map(|_| None).collect();
        for Ready { mut job, page, is_copy } in ready {
            match page {
                // It ends here: its page goes to its place later.
                Some(page) if !is_copy => {
                    self.shared.pages.insert(&job.change.range(), &page);
                    job.end(Ok(()));
                }
                page => {
                    let data = page.or_else(|| job.data.take()).expect("a write has data");
                    parts.push(Part::new(job.change.offset, data));
                    changes.push(job.change);
                    jobs.push(Some(job));
                }
            }
        }
        let results = self.disk.write(&*self.inner, &mut parts, false);
        for ((change, job), result) in changes.iter().zip(jobs).zip(results) {
            self.placed(change, result);
            if let Some(job) = job {
                job.end(result);
            }
        }
    }

    /// Writes what is ready to the journal as one group, and with it pages that have waited: these are returned.
    fn note(&mut self, ready: &[Ready]) -> Result<Vec<Part>, Errno> {
        let mut changes: Vec<_> = ready.iter().map(Ready::change).collect();
        self.make_room(&changes)?;
        let riders = self.riders(&changes);
        changes.extend(riders.iter().map(write_of));
        let data: Vec<_> =
            ready.iter().map(Ready::data).chain(riders.iter().filter_map(|part| part.buffer.as_deref())).collect();
        self.append(&changes, &data)?;
        Ok(riders)
    }

    /// A group's jobs that can be carried out: each delta is applied to its base in memory. The others have ended.
    fn ready(&mut self, group: Vec<Job>) -> Result<Vec<Ready>, (Vec<Job>, Errno)> {
        // A page of which a part changes is written first: the journal has whole pages then, and parts behind them.
        let is_delta = |job: &&Job| matches!(job.change.kind, ChangeKind::Delta { .. });
        let writes: Vec<_> = group.iter().filter(|job| !is_delta(job)).map(|job| job.change.range()).collect();
        let deltas: Vec<_> = group.iter().filter(is_delta).map(|job| delta_of(job).range()).collect();
        let bases: Vec<_> = group.iter().filter(is_delta).map(|job| delta_of(job).base_range()).collect();
        let first = self.write_overlapping(writes.into_iter(), is_inside);
        let is_exactly = |page: &Range<u64>, range: Range<u64>| *page == range;
        let ranges = deltas.into_iter().chain(bases.iter().cloned());
        if let Err(errno) = first.and_then(|()| self.write_overlapping(ranges, is_exactly)) {
            return Err((group, errno));
        }
        let mut contents = self.contents(&bases).into_iter();
        let mut ready = Vec::with_capacity(group.len());
        for job in group {
            if !is_delta(&&job) {
                ready.push(Ready { job, page: None, is_copy: false });
                continue;
            }
            let content = contents.next().expect("each delta has a base");
            match content.and_then(|mut page| apply(&delta_of(&job), &mut page).map(|changes| (page, changes))) {
                Err(errno) => job.end(Err(errno)),
                // It was sent again.
                Ok((_, false)) => job.end(Ok(())),
                Ok((page, true)) => {
                    let is_copy = delta_of(&job).is_copy();
                    ready.push(Ready { job, page: Some(page), is_copy });
                }
            }
        }
        Ok(ready)
    }

    /// A change was carried out in its place, or not as a whole.
    fn placed(&self, change: &Change, result: Result<(), Errno>) {
        match result {
            Ok(()) => self.shared.pages.remove_inside(&change.range()),
            Err(_) => self.shared.fail(std::iter::once(change.range())),
        }
    }

    /// The content of the journal is unknown now, but nothing of the group was begun.
    fn fail(&self, group: Vec<Job>, errno: Errno) {
        self.shared.fail(std::iter::empty());
        group.into_iter().for_each(|job| job.end(Err(errno)));
    }

    /// The present content of pages, each of which is in memory as a whole, or not at all.
    fn contents(&mut self, ranges: &[Range<u64>]) -> Vec<Result<Buffer, Errno>> {
        let new = |range: &Range<u64>| Buffer::zeroed((range.end - range.start) as usize);
        let mut contents: Vec<_> = ranges.iter().map(|range| Ok(new(range))).collect();
        let mut below = Vec::new();
        for (index, range) in ranges.iter().enumerate() {
            match (self.shared.pages.get(range), &mut contents[index]) {
                (Some(page), Ok(content)) => page.copy_to(content),
                _ => below.push(index),
            }
        }
        for some in below.chunks(self.depth) {
            let reads = some.iter().map(|&index| (ranges[index].start, new(&ranges[index]))).collect();
            for (&index, result) in some.iter().zip(self.disk.read_all(&*self.inner, reads)) {
                contents[index] = result;
            }
        }
        contents
    }

    /// Writes the pages to their places that overlap one of the ranges, but those that are `fine` as they are.
    fn write_overlapping(
        &mut self,
        ranges: impl Iterator<Item = Range<u64>>,
        fine: impl Fn(&Range<u64>, Range<u64>) -> bool,
    ) -> Result<(), Errno> {
        if self.shared.pages.bytes() == 0 {
            return Ok(());
        }
        for range in ranges {
            let mut pages = self.shared.pages.overlapping(&range);
            pages.retain(|page| !fine(page, range.clone()));
            self.write_pages(&pages)?;
        }
        Ok(())
    }

    fn write_oldest(&mut self) {
        let oldest = self.shared.pages.oldest(self.depth);
        if let Err(errno) = self.write_pages(&oldest) {
            tracing::error!(volume = %self.shared.name, %errno, "pages that were made of deltas cannot be written to their places");
            self.shared.fail(std::iter::empty());
        }
    }

    /// Writes pages to their places, `depth` at a time; whole to the journal first, which has room for them.
    pub(super) fn write_pages(&mut self, pages: &[Range<u64>]) -> Result<(), Errno> {
        for some in pages.chunks(self.depth) {
            let mut parts = self.parts_of(some);
            if parts.is_empty() {
                continue;
            }
            let data: Vec<&[u8]> = parts.iter().filter_map(|part| part.buffer.as_deref()).collect();
            let changes: Vec<_> = parts.iter().map(write_of).collect();
            self.append(&changes, &data)?;
            let results = self.disk.write(&*self.inner, &mut parts, false);
            for (change, result) in changes.iter().zip(results) {
                if let Err(errno) = result {
                    self.shared.fail(changes.iter().map(Change::range));
                    return Err(errno);
                }
                self.shared.pages.remove_inside(&change.range());
            }
        }
        Ok(())
    }

    /// Makes room in the journal for a group, and behind it for the pages that it brings to memory.
    fn make_room(&mut self, changes: &[Change]) -> Result<(), Errno> {
        let data_len = changes.iter().map(Change::data_len).sum::<u64>() as usize;
        let claims = |change: &Change| match change.kind {
            ChangeKind::Delta { .. } => change.len + 2 * PAGE_LEN as u64,
            ChangeKind::Write | ChangeKind::Zero => 0,
        };
        let wanted = group_len(data_len) as u64 + changes.iter().map(claims).sum::<u64>();
        if self.at + wanted + self.shared.pages.reserve() > self.shared.journal_len {
            self.empty()?;
        }
        Ok(())
    }

    /// The oldest pages, to be written with a group that brings others: the journal is waited for once for both. Twice as many as it
    /// brings, so that pages never reach the length at which commands wait for them.
    fn riders(&self, changes: &[Change]) -> Vec<Part> {
        let brings = changes.iter().filter(|change| matches!(change.kind, ChangeKind::Delta { .. })).count();
        if brings == 0 || self.shared.pages.memory() < self.pages_len_max() / 2 {
            return Vec::new();
        }
        let count = (2 * brings).min(self.depth).min(CHANGES_MAX - changes.len());
        let mut pages = self.shared.pages.oldest(count + changes.len());
        pages.retain(|page| !changes.iter().any(|change| overlap(page, &change.range())));
        pages.truncate(count);
        self.parts_of(&pages)
    }

    /// Pages in memory, as writes to their places.
    fn parts_of(&self, pages: &[Range<u64>]) -> Vec<Part> {
        let part = |range: &Range<u64>| {
            let page = self.shared.pages.get(range)?;
            let mut buffer = Buffer::zeroed(page.len());
            page.copy_to(&mut buffer);
            Some(Part::new(range.start, buffer))
        };
        pages.iter().filter_map(part).collect()
    }

    fn append(&mut self, changes: &[Change], data: &[&[u8]]) -> Result<(), Errno> {
        self.sequence += 1;
        let bytes = encode(self.id, self.sequence, changes, data.iter().copied());
        let len = bytes.len() as u64;
        if self.at + len > self.shared.journal_len {
            tracing::error!(volume = %self.shared.name, "a group does not fit the journal");
            return Err(Errno::NOSPC);
        }
        self.disk.write(&*self.journal, &mut [Part::new(self.at, bytes)], true).remove(0)?;
        self.at += len;
        Ok(())
    }
}

impl Ready {
    fn change(&self) -> Change {
        // When the journal is carried out, a base elsewhere may have changed: the journal gets the page.
        let kind = if self.is_copy { ChangeKind::Write } else { self.job.change.kind };
        Change { kind, ..self.job.change }
    }

    fn data(&self) -> &[u8] {
        match &self.page {
            Some(page) if self.is_copy => page,
            _ => self.job.data.as_deref().unwrap_or_default(),
        }
    }
}

fn write_of(part: &Part) -> Change {
    let len = part.buffer.as_ref().map_or(0, |buffer| buffer.len()) as u64;
    Change { offset: part.offset, len, kind: ChangeKind::Write }
}

fn is_inside(page: &Range<u64>, range: Range<u64>) -> bool {
    range.start <= page.start && page.end <= range.end
}

fn delta_of(job: &Job) -> Delta<'_> {
    let record = job.data.as_deref().unwrap_or_default();
    Delta::parse(record).expect("a record is queued as it was parsed")
}

/// Makes the page; false: it is made already.
pub(super) fn apply(delta: &Delta<'_>, page: &mut [u8]) -> Result<bool, Errno> {
    // A command whose answer was lost with its connection comes again.
    if !delta.is_copy() && page_checksum(page) == delta.result {
        return Ok(false);
    }
    match delta.apply(page) {
        Ok(()) => Ok(true),
        Err(DeltaMismatch::Base) => Err(Errno::STALE),
        Err(DeltaMismatch::Result) => Err(Errno::BADMSG),
    }
}
