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
use super::journal::{Change, ChangeKind, Header, PAGE_LEN};
use super::overlap;
use super::worker::{Worker, apply};

impl Worker {
    /// Carries out what the journal has, in order.
    pub(super) fn carry_on(&mut self) -> Result<(), Errno> {
        let (mut last, mut count) = (None, 0);
        // Pages that have to come as a whole.
        let mut missing: Vec<Range<u64>> = Vec::new();
        while let Some((header, data)) = self.group_at(self.at, last)? {
            let mut rest = &data[..];
            for change in &header.changes {
                if change.range().end > self.inner.properties().len_bytes {
                    tracing::error!("the journal is that of a longer volume");
                    return Err(Errno::INVAL);
                }
                let (bytes, others) = rest.split_at(change.data_len() as usize);
                rest = others;
                self.do_again(change, bytes, &mut missing)?;
                count += 1;
            }
            self.at += header.group_len() as u64;
            (self.id, self.sequence) = (header.id, header.sequence);
            last = Some((header.id, header.sequence));
        }
        if let Some(page) = missing.first() {
            tracing::error!(offset = page.start, "the volume is not the one that its journal was written for");
            return Err(Errno::STALE);
        }
        if count > 0 {
            self.empty()?;
            tracing::info!(writes = count, "carried out the writes of a journal");
        }
        Ok(())
    }

    fn do_again(&mut self, change: &Change, bytes: &[u8], missing: &mut Vec<Range<u64>>) -> Result<(), Errno> {
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
            tracing::error!(offset = range.start, "the journal changes a part of a page that it does not have");
            return Err(Errno::INVAL);
        }
        Ok(())
    }

    fn make_again(&mut self, range: &Range<u64>, record: &[u8], missing: &mut Vec<Range<u64>>) -> Result<(), Errno> {
        let delta = Delta::parse(record).map_err(|error| {
            tracing::error!(%error, "the journal has a record that is none");
            Errno::INVAL
        })?;
        if delta.range() != *range || delta.is_copy() {
            return Err(Errno::INVAL);
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
}
