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
use super::journal::{Change, ChangeKind, PAGE_LEN, encode, group_len};
use super::{Job, Next, Shared};
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
    /// Pages that are read, or written to their places, at a time.
    pub(super) depth: usize,
    pub(super) id: u64,
    pub(super) sequence: u64,
    /// Where the next group goes.
    pub(super) at: u64,
}

/// A delta that was applied in memory.
struct Applied {
    job: Job,
    page: Buffer,
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
        let mut worker = Self { inner, journal, shared, disk: Disk::new()?, depth, id, sequence: 0, at: 0 };
        worker.carry_on().map_err(io::Error::from)?;
        Ok(worker)
    }

    pub(super) fn run(&mut self) {
        loop {
            match self.shared.next() {
                Next::Group(group) => self.carry_out(group),
                Next::Idle => self.write_oldest(),
                Next::End => break,
            }
            while self.shared.pages.bytes() > self.pages_len_max() && !self.has_failed() {
                self.write_oldest();
            }
        }
        // Nobody needs the journal any more: it says so, and the volume is whole without it.
        if !self.has_failed() {
            // Else the next opening carries out once more what is in its place.
            let _ = self.empty();
        }
    }

    fn has_failed(&self) -> bool {
        self.shared.failed.load(Ordering::Acquire)
    }

    fn pages_len_max(&self) -> u64 {
        (self.journal.properties().len_bytes / PAGES_SHARE).min(PAGES_LEN_MAX)
    }

    /// Empties the journal: all that it has is in its place, durably. Without that a group that is being written over the first
    /// ones could leave one of them whole, and those behind it not: then an old change would be carried out again, and the
    /// ones after it not.
    pub(super) fn empty(&mut self) -> Result<(), Errno> {
        let all = self.shared.pages.oldest(usize::MAX);
        self.write_pages(&all)?;
        self.disk.flush(&*self.inner)?;
        self.disk.write(&*self.journal, &mut [Part::new(0, Buffer::zeroed(PAGE_LEN))], true).remove(0)?;
        self.at = 0;
        Ok(())
    }

    fn carry_out(&mut self, group: Vec<Job>) {
        if self.has_failed() {
            return group.into_iter().for_each(|job| job.end(Err(Errno::IO)));
        }
        match group[0].change.kind {
            ChangeKind::Delta { .. } => self.carry_out_deltas(group),
            ChangeKind::Write | ChangeKind::Zero => self.carry_out_writes(group),
        }
    }

    fn carry_out_writes(&mut self, group: Vec<Job>) {
        let data: Vec<_> = group.iter().filter_map(|job| job.data.as_deref()).collect();
        let changes: Vec<_> = group.iter().map(|job| job.change).collect();
        // A page of which a part changes is written first: the journal has whole pages then, and parts behind them.
        let is_inside = |page: &Range<u64>, range: Range<u64>| range.start <= page.start && page.end <= range.end;
        let noted = self
            .write_overlapping(changes.iter().map(Change::range), is_inside)
            .and_then(|()| self.note(&changes, &data, 0));
        if let Err(errno) = noted {
            return self.fail(group, errno);
        }
        let mut jobs = group;
        let results = match jobs[0].change.kind {
            ChangeKind::Zero => {
                let zero = |job: &Job| self.disk.zero(&*self.inner, job.change.offset, job.change.len);
                jobs.iter().map(zero).collect()
            }
            _ => {
                let part = |job: &mut Job| Part::new(job.change.offset, job.data.take().expect("a write has data"));
                let mut parts: Vec<_> = jobs.iter_mut().map(part).collect();
                self.disk.write(&*self.inner, &mut parts, false)
            }
        };
        self.end(jobs.into_iter().map(|job| (job.change, job)).zip(results));
    }

    fn carry_out_deltas(&mut self, group: Vec<Job>) {
        let deltas: Vec<_> = group.iter().map(|job| delta_of(job).range()).collect();
        let bases: Vec<_> = group.iter().map(|job| delta_of(job).base_range()).collect();
        let is_exactly = |page: &Range<u64>, range: Range<u64>| *page == range;
        if let Err(errno) = self.write_overlapping(deltas.into_iter().chain(bases.iter().cloned()), is_exactly) {
            return self.fail(group, errno);
        }
        let contents = self.contents(&bases);
        let mut applied = Vec::with_capacity(group.len());
        for (job, content) in group.into_iter().zip(contents) {
            match content.and_then(|mut page| apply(&delta_of(&job), &mut page).map(|changes| (page, changes))) {
                Err(errno) => job.end(Err(errno)),
                // It was sent again.
                Ok((_, false)) => job.end(Ok(())),
                Ok((page, true)) => {
                    let is_copy = delta_of(&job).is_copy();
                    applied.push(Applied { job, page, is_copy });
                }
            }
        }
        if applied.is_empty() {
            return;
        }
        // When the journal is carried out, a base elsewhere may have changed: the journal gets the page.
        let changes: Vec<_> = applied.iter().map(Applied::change).collect();
        let data: Vec<_> = applied.iter().map(Applied::data).collect();
        let claimed = applied.iter().map(|it| it.page.len() + 2 * PAGE_LEN).sum::<usize>() as u64;
        if let Err(errno) = self.note(&changes, &data, claimed) {
            return self.fail(applied.into_iter().map(|it| it.job).collect(), errno);
        }
        let (copies, pages): (Vec<_>, Vec<_>) = applied.into_iter().partition(|it| it.is_copy);
        for Applied { job, page, .. } in pages {
            self.shared.pages.insert(&job.change.range(), &page);
            job.end(Ok(()));
        }
        let (jobs, mut parts): (Vec<_>, Vec<_>) = copies
            .into_iter()
            .map(|Applied { job, page, .. }| {
                let part = Part::new(job.change.offset, page);
                ((job.change, job), part)
            })
            .unzip();
        let results = self.disk.write(&*self.inner, &mut parts, false);
        self.end(jobs.into_iter().zip(results));
    }

    /// Ends jobs that were carried out in their places.
    fn end(&mut self, results: impl Iterator<Item = ((Change, Job), Result<(), Errno>)>) {
        for ((change, job), result) in results {
            match result {
                Ok(()) => self.shared.pages.remove_inside(&change.range()),
                Err(_) => self.shared.fail(std::iter::once(change.range())),
            }
            job.end(result);
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
            tracing::error!(%errno, "pages that were made of deltas cannot be written to their places");
            self.shared.fail(std::iter::empty());
        }
    }

    /// Writes pages to their places, `depth` at a time; whole to the journal first, which has room for them.
    pub(super) fn write_pages(&mut self, pages: &[Range<u64>]) -> Result<(), Errno> {
        for some in pages.chunks(self.depth) {
            let content = |range: &Range<u64>| {
                let page = self.shared.pages.get(range)?;
                let mut buffer = Buffer::zeroed(page.len());
                page.copy_to(&mut buffer);
                Some(Part::new(range.start, buffer))
            };
            let mut parts: Vec<_> = some.iter().filter_map(content).collect();
            if parts.is_empty() {
                continue;
            }
            let data: Vec<&[u8]> = parts.iter().filter_map(|part| part.buffer.as_deref()).collect();
            let change = |(data, part): (&&[u8], &Part)| Change {
                offset: part.offset,
                len: data.len() as u64,
                kind: ChangeKind::Write,
            };
            let changes: Vec<_> = data.iter().zip(&parts).map(change).collect();
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

    /// Writes a group to the journal, durably. `claimed` bytes behind it are for pages that the group brings to memory.
    fn note(&mut self, changes: &[Change], data: &[&[u8]], claimed: u64) -> Result<(), Errno> {
        let data_len = data.iter().map(|data| data.len()).sum();
        let wanted = group_len(data_len) as u64 + claimed;
        if self.at + wanted + self.shared.pages.reserve() > self.journal.properties().len_bytes {
            self.empty()?;
        }
        self.append(changes, data)
    }

    fn append(&mut self, changes: &[Change], data: &[&[u8]]) -> Result<(), Errno> {
        self.sequence += 1;
        let bytes = encode(self.id, self.sequence, changes, data.iter().copied());
        let len = bytes.len() as u64;
        if self.at + len > self.journal.properties().len_bytes {
            tracing::error!("a group does not fit the journal");
            return Err(Errno::NOSPC);
        }
        self.disk.write(&*self.journal, &mut [Part::new(self.at, bytes)], true).remove(0)?;
        self.at += len;
        Ok(())
    }
}

impl Applied {
    fn change(&self) -> Change {
        let kind = if self.is_copy { ChangeKind::Write } else { self.job.change.kind };
        Change { kind, ..self.job.change }
    }

    fn data(&self) -> &[u8] {
        if self.is_copy { &self.page } else { self.job.data.as_deref().unwrap_or_default() }
    }
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
