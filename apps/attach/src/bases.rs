//! The content of blocks that a volume is known to have, and the plan of a write: which of its pages travel as deltas.
//!
//! No I/O: a caller says when reads and writes begin and end. A block is known after a read or a write of it ended while nothing else
//! changed it. An error here, or another host that writes the volume, costs a refused delta and a full write, and no more: the
//! target compares checksums.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use diskside_wire::delta::{encode_delta, page_checksum};
use quick_cache::unsync::Cache;

/// Blocks are known, and evicted, in units of so many bytes.
pub(crate) const BLOCK_LEN: u64 = 4096;
/// Pages that were written last: the same content, written elsewhere, is a copy.
const RECENT_MAX: usize = 512;

/// How a part of a write travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// As it is.
    Full(Range<usize>),
    /// As this record.
    Delta { range: Range<usize>, record: Vec<u8> },
    /// As a record whose base is elsewhere.
    Copy { range: Range<usize>, record: Vec<u8> },
}

/// A read or write that has begun.
#[derive(Debug)]
#[must_use = "it has to end"]
pub(crate) struct Ticket {
    range: Range<u64>,
    epoch: u64,
}

/// Known blocks, within a bound of memory.
pub(crate) struct Bases {
    known: Cache<u64, Box<[u8]>>,
    /// Blocks that are being read or written.
    busy: HashMap<u64, Busy>,
    recent: VecDeque<Recent>,
    page_len: usize,
    /// Counts changes of ranges that are not followed block by block.
    epoch: u64,
}

#[derive(Debug, Default)]
struct Busy {
    users: u32,
    writers: u32,
    /// A write of it began meanwhile: what is being read may be old.
    changed: bool,
    /// Two writes of it overlap in time: nobody knows which is last.
    contested: bool,
}

#[derive(Clone, Copy, Debug)]
struct Recent {
    checksum: u64,
    offset: u64,
    len: usize,
}

impl Bases {
    /// Knows blocks of up to `len_max` bytes together; a delta changes at most `page_len` bytes.
    pub(crate) fn new(len_max: u64, page_len: usize) -> Self {
        let blocks = usize::try_from(len_max / BLOCK_LEN).unwrap_or(usize::MAX).max(1);
        Self { known: Cache::new(blocks), busy: HashMap::new(), recent: VecDeque::new(), page_len, epoch: 0 }
    }

    /// Bytes of known blocks.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.known.len() as u64 * BLOCK_LEN
    }

    pub(crate) fn begin_read(&mut self, range: Range<u64>) -> Ticket {
        for block in whole_blocks(&range) {
            self.busy.entry(block).or_default().users += 1;
        }
        Ticket { range, epoch: self.epoch }
    }

    /// `bytes` are those that were read from the start of the range on.
    pub(crate) fn end_read(&mut self, ticket: &Ticket, bytes: &[u8]) {
        let came = ticket.range.start..ticket.range.end.min(ticket.range.start + bytes.len() as u64);
        for block in whole_blocks(&ticket.range) {
            let Some(busy) = self.busy.get_mut(&block) else { continue };
            busy.users -= 1;
            let is_sure = !busy.changed && ticket.epoch == self.epoch;
            if busy.users == 0 {
                self.busy.remove(&block);
            }
            if is_sure && whole_blocks(&came).contains(&block) {
                self.learn(block, bytes, ticket.range.start);
            }
        }
    }

    /// Plans a write, and begins it.
    pub(crate) fn begin_write(&mut self, offset: u64, data: &[u8]) -> (Ticket, Vec<Piece>) {
        let range = offset..offset + data.len() as u64;
        let mut pieces: Vec<Piece> = Vec::new();
        for part in self.pages(offset, data.len()) {
            match (self.plan(offset, data, part), pieces.last_mut()) {
                (Piece::Full(next), Some(Piece::Full(range))) => range.end = next.end,
                (piece, _) => pieces.push(piece),
            }
        }
        for block in touched_blocks(&range) {
            let busy = self.busy.entry(block).or_default();
            busy.contested |= busy.writers > 0;
            busy.changed = true;
            busy.users += 1;
            busy.writers += 1;
        }
        (Ticket { range, epoch: self.epoch }, pieces)
    }

    /// `written` are the data of the write, if it succeeded.
    pub(crate) fn end_write(&mut self, ticket: &Ticket, written: Option<&[u8]>) {
        let whole = whole_blocks(&ticket.range);
        let mut all_sure = written.is_some();
        for block in touched_blocks(&ticket.range) {
            let Some(busy) = self.busy.get_mut(&block) else { continue };
            busy.users -= 1;
            busy.writers -= 1;
            let is_sure = !busy.contested && ticket.epoch == self.epoch;
            if busy.users == 0 {
                self.busy.remove(&block);
            }
            all_sure &= is_sure;
            // It was known until now, with its place among the used ones: a new block is the first to be dropped.
            if let Some(data) = written.filter(|_| is_sure && whole.contains(&block)) {
                self.learn(block, data, ticket.range.start);
            } else {
                self.known.remove(&block);
            }
        }
        if let Some(data) = written.filter(|_| all_sure) {
            for part in self.pages(ticket.range.start, data.len()) {
                let (page, offset) = (&data[part.clone()], ticket.range.start + part.start as u64);
                if page.len() < self.page_len {
                    continue;
                }
                if self.recent.len() == RECENT_MAX {
                    self.recent.pop_front();
                }
                self.recent.push_back(Recent { checksum: page_checksum(page), offset, len: page.len() });
            }
        }
    }

    /// A range is about to change, or has changed, in another way: nothing is known of it, and of what is being read or written.
    pub(crate) fn forget(&mut self, range: &Range<u64>) {
        self.epoch += 1;
        let blocks = touched_blocks(range);
        if blocks.end - blocks.start > self.known.len() as u64 {
            self.known.retain(|block, _| !blocks.contains(block));
        } else {
            for block in blocks {
                self.known.remove(&block);
            }
        }
    }

    /// A write of so many bytes: as it is if it may be one page, wherever that is; else cut where pages of the volume begin. So no page
    /// is in two commands that is in one write.
    fn pages(&self, offset: u64, len: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let (page_len, mut start) = (self.page_len, 0);
        std::iter::from_fn(move || {
            let is_one = len <= page_len;
            let into_page = if is_one { 0 } else { ((offset + start as u64) % page_len as u64) as usize };
            let part = start..len.min(start + page_len - into_page);
            start = part.end;
            (!part.is_empty()).then_some(part)
        })
    }

    fn plan(&mut self, offset: u64, data: &[u8], part: Range<usize>) -> Piece {
        let page = &data[part.clone()];
        let at = offset + part.start as u64;
        let whole = at..at + page.len() as u64;
        if !whole.start.is_multiple_of(BLOCK_LEN) || !whole.end.is_multiple_of(BLOCK_LEN) {
            return Piece::Full(part);
        }
        if let Some(record) = self.copy_of(at, page) {
            return Piece::Copy { range: part, record };
        }
        // A record of more than half a page saves little.
        match self.content(&whole).and_then(|base| encode_delta(at, page, at, &base, page.len() / 2)) {
            Some(record) => Piece::Delta { range: part, record },
            None => Piece::Full(part),
        }
    }

    /// The record of a page that was just written elsewhere.
    fn copy_of(&mut self, at: u64, page: &[u8]) -> Option<Vec<u8>> {
        if page.len() != self.page_len || self.recent.is_empty() {
            return None;
        }
        let checksum = page_checksum(page);
        let is_it = |recent: &&Recent| recent.checksum == checksum && recent.len == page.len() && recent.offset != at;
        let Recent { offset, .. } = *self.recent.iter().rev().find(is_it)?;
        let base = self.content(&(offset..offset + page.len() as u64))?;
        (base == page).then(|| encode_delta(at, page, offset, &base, page.len()))?
    }

    /// The content of whole blocks, if all of it is known.
    fn content(&mut self, range: &Range<u64>) -> Option<Vec<u8>> {
        let mut content = Vec::with_capacity((range.end - range.start) as usize);
        for block in whole_blocks(range) {
            if self.busy.get(&block).is_some_and(|busy| busy.writers > 0) {
                return None;
            }
            content.extend_from_slice(self.known.get(&block)?);
        }
        Some(content)
    }

    fn learn(&mut self, block: u64, bytes: &[u8], offset: u64) {
        let start = (block * BLOCK_LEN - offset) as usize;
        self.known.insert(block, bytes[start..start + BLOCK_LEN as usize].into());
    }
}

/// The blocks of which all bytes are in the range.
fn whole_blocks(range: &Range<u64>) -> Range<u64> {
    range.start.div_ceil(BLOCK_LEN)..range.end / BLOCK_LEN
}

/// The blocks of which some bytes are in the range.
fn touched_blocks(range: &Range<u64>) -> Range<u64> {
    range.start / BLOCK_LEN..range.end.div_ceil(BLOCK_LEN)
}

#[cfg(test)]
mod tests;
