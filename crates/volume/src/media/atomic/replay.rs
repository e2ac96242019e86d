//! The opening of an atomic medium: what its journal has, and its places may not, is carried out.
//!
//! Writes go to their places again. A page that deltas make is built in memory, and written like any other such page: whole to the
//! journal first, behind the groups that are there. So opening can be cut short as often as anything else.
//!
//! A delta may find another base if the page was written after it: in its place there may be the newer page, or half of it. Then the
//! journal has that page as a whole further on, and all that matters of the delta is that this comes.

use std::ops::Range;

use diskside_io::Errno;
use diskside_io::buffer::Buffer;
use diskside_wire::delta::Delta;

use super::disk::Part;
use super::journal::{Change, ChangeKind, Header, PAGE_LEN, START_MAGIC, Start};
use super::overlap;
use super::worker::{Worker, apply};

/// Bytes of a journal that are looked at together.
const SCAN_LEN: u64 = 1 << 20;

impl Worker {
    /// Carries out what the journal has, in order.
    pub(super) fn carry_on(&mut self) -> Result<(), OpenError> {
        let first = self.disk.read(&*self.journal, 0, Buffer::zeroed(PAGE_LEN))?;
        // The identifier and the sequence number of the next group, as far as they are known.
        let mut next = None;
        if let Some(start) = Start::parse(&first) {
            (self.id, self.sequence, self.at) = (start.id, start.sequence.saturating_sub(1), PAGE_LEN as u64);
            next = Some((start.id, start.sequence));
        } else if first.starts_with(&START_MAGIC) {
            return Err(OpenError::Damaged { at: 0 });
        }
        let has_start = next.is_some();
        let count = self.check_groups(next)?;
        if count > 0 {
            tracing::info!(volume = %self.shared.name, groups = count, "carrying out writes of the journal that the volume may lack");
        }
        // Pages that have to come as a whole.
        let mut missing: Vec<Range<u64>> = Vec::new();
        while let Some((header, data)) = self.group_at(self.at, next)? {
            let mut rest = &data[..];
            for change in &header.changes {
                let (bytes, others) = rest.split_at(change.data_len() as usize);
                rest = others;
                self.do_again(change, bytes, &mut missing)?;
            }
            self.at += header.group_len() as u64;
            (self.id, self.sequence) = (header.id, header.sequence);
            next = Some((header.id, header.sequence + 1));
        }
        if let Some(page) = missing.first() {
            return Err(OpenError::OtherVolume { offset: page.start });
        }
        if count > 0 || !has_start {
            self.empty()?;
        }
        if count > 0 {
            tracing::info!(volume = %self.shared.name, "the journal is carried out");
        }
        Ok(())
    }

    /// How many groups there are. All of them are looked at before anything is changed: a journal that was carried out up to a damaged
    /// group would give pages their old content back that were acknowledged later.
    fn check_groups(&mut self, mut next: Option<(u64, u64)>) -> Result<u64, OpenError> {
        let (mut at, mut count, has_start) = (self.at, 0, next.is_some());
        while let Some((header, _)) = self.group_at(at, next)? {
            if header.changes.iter().any(|change| change.range().end > self.inner.properties().len_bytes) {
                return Err(OpenError::Longer);
            }
            at += header.group_len() as u64;
            next = Some((header.id, header.sequence + 1));
            count += 1;
        }
        match next {
            Some(next) if has_start && self.has_later_group(at, next)? => Err(OpenError::Damaged { at }),
            _ => Ok(count),
        }
    }

    /// Whether a group lies at `at` or behind it that was written after the one wanted there.
    fn has_later_group(&mut self, mut at: u64, (id, sequence): (u64, u64)) -> Result<bool, Errno> {
        let len = self.journal.properties().len_bytes;
        let is_later =
            |page: &[u8]| Header::parse(page).is_some_and(|header| header.id == id && header.sequence > sequence);
        while at + (PAGE_LEN as u64) <= len {
            let step = (len - at).min(SCAN_LEN) / PAGE_LEN as u64 * PAGE_LEN as u64;
            let pages = self.disk.read(&*self.journal, at, Buffer::zeroed(step as usize))?;
            if pages.chunks_exact(PAGE_LEN).any(is_later) {
                return Ok(true);
            }
            at += step;
        }
        Ok(false)
    }

    fn do_again(&mut self, change: &Change, bytes: &[u8], missing: &mut Vec<Range<u64>>) -> Result<(), OpenError> {
        let range = change.range();
        if let ChangeKind::Delta { .. } = change.kind {
            return self.make_again(&range, bytes, missing);
        }
        match change.kind {
            ChangeKind::Zero => self.disk.zero(&*self.inner, change.offset, change.len)?,
            _ => {
                let mut part = [Part::new(change.offset, Buffer::copy_of(bytes))];
                self.disk.write(&*self.inner, &mut part, false).remove(0)?;
            }
        }
        self.shared.pages.remove_inside(&range);
        missing.retain(|page| page.start < range.start || page.end > range.end);
        if !self.shared.pages.overlapping(&range).is_empty() || missing.iter().any(|page| overlap(page, &range)) {
            return Err(OpenError::Invalid { offset: range.start });
        }
        Ok(())
    }

    fn make_again(
        &mut self,
        range: &Range<u64>,
        record: &[u8],
        missing: &mut Vec<Range<u64>>,
    ) -> Result<(), OpenError> {
        let delta = Delta::parse(record).map_err(|_| OpenError::Invalid { offset: range.start })?;
        if delta.range() != *range || delta.is_copy() {
            return Err(OpenError::Invalid { offset: range.start });
        }
        if missing.contains(range) {
            return Ok(());
        }
        let mut page = Buffer::zeroed(delta.page_len as usize);
        match self.shared.pages.get(range) {
            Some(content) => content.copy_to(&mut page),
            None => page = self.disk.read(&*self.inner, range.start, page)?,
        }
        match apply(&delta, &mut page) {
            Ok(_) => self.shared.pages.insert(range, &page),
            Err(_) => {
                self.shared.pages.remove_inside(range);
                missing.push(range.clone());
            }
        }
        Ok(())
    }

    /// The group there, if a whole one is, with this identifier and sequence number.
    fn group_at(&mut self, at: u64, wanted: Option<(u64, u64)>) -> Result<Option<(Header, Buffer)>, Errno> {
        let len = self.journal.properties().len_bytes;
        if at + PAGE_LEN as u64 > len {
            return Ok(None);
        }
        let page = self.disk.read(&*self.journal, at, Buffer::zeroed(PAGE_LEN))?;
        let follows = |header: &Header| wanted.is_none_or(|wanted| (header.id, header.sequence) == wanted);
        let Some(header) = Header::parse(&page).filter(follows) else { return Ok(None) };
        if at + header.group_len() as u64 > len {
            return Ok(None);
        }
        let pages = Buffer::zeroed(header.group_len() - PAGE_LEN);
        let mut data = self.disk.read(&*self.journal, at + PAGE_LEN as u64, pages)?;
        data.set_len(header.data_len);
        Ok(header.matches(&data).then_some((header, data)))
    }
}

/// Why a volume with a journal cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error(transparent)]
    Disk(#[from] Errno),
    #[error("is damaged at byte {at}, and has writes behind that; if they have to be given up, fill it with zeroes")]
    Damaged { at: u64 },
    #[error("changes bytes behind the end of the volume: it is that of a longer one")]
    Longer,
    #[error("was written for another volume: the base of the page at byte {offset} is not there")]
    OtherVolume { offset: u64 },
    #[error("has an invalid record of the page at byte {offset}")]
    Invalid { offset: u64 },
}
