//! The pages of an atomic medium whose deltas are in the journal, and not in their places yet. Reads are answered from here first.
//!
//! Only the thread of the journal changes them. It does so before the command that a delta came with ends, and that command holds
//! the page alone; so no read begins in between that would need the old content and the new one. Pages do not overlap.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use diskside_io::buffer::{Hugepages, SharedMemory, SharedSlice};

use super::journal::PAGE_LEN;

/// Memory of a page beside its content, as measured with pages of 512 bytes.
const PAGE_OVERHEAD_LEN: u64 = 3 << 10;

/// Pages by their offset.
#[derive(Debug, Default)]
pub(super) struct Pages {
    map: RwLock<Map>,
    /// Their length together: reads look at it before they take the lock.
    bytes: AtomicU64,
    /// The memory that they take.
    memory: AtomicU64,
}

#[derive(Debug, Default)]
struct Map {
    pages: BTreeMap<u64, Page>,
    /// Offsets by the order in which pages came: the oldest is written first.
    order: BTreeMap<u64, u64>,
    next: u64,
}

#[derive(Debug)]
struct Page {
    content: SharedSlice,
    order: u64,
}

/// Where the first bytes of a range are.
pub(super) enum Place {
    /// Here: at least the first of them.
    Here(SharedSlice),
    /// In their place, so many of them.
    Below(u64),
}

impl Pages {
    /// The length of all pages together.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// The memory that they take, about: short pages take more than their length.
    pub(super) fn memory(&self) -> u64 {
        self.memory.load(Ordering::Acquire)
    }

    /// Bytes of the journal that hold all pages, even if each is in a group of its own.
    pub(super) fn reserve(&self) -> u64 {
        let count = self.read(|map| map.pages.len() as u64);
        self.bytes() + count * 2 * PAGE_LEN as u64
    }

    /// Where a read of `len` bytes at `offset` begins.
    pub(super) fn place(&self, offset: u64, len: u64) -> Place {
        if self.bytes() == 0 {
            return Place::Below(len);
        }
        self.read(|map| {
            let end = offset + len;
            match map.first(offset..end) {
                None => Place::Below(len),
                Some((start, _)) if start > offset => Place::Below(start - offset),
                Some((start, page)) => {
                    let from = (offset - start) as usize;
                    let to = page.content.len().min((end - start) as usize);
                    Place::Here(page.content.part(from..to))
                }
            }
        })
    }

    /// The content of exactly this page.
    pub(super) fn get(&self, range: &Range<u64>) -> Option<SharedSlice> {
        self.read(|map| map.pages.get(&range.start).filter(|page| is_exactly(page, range)).map(|it| it.content.clone()))
    }

    /// The pages that overlap the range.
    pub(super) fn overlapping(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        self.read(|map| map.all(range.clone()).collect())
    }

    /// The page with new content. It overlaps no other one.
    pub(super) fn insert(&self, range: &Range<u64>, content: &[u8]) {
        let memory = SharedMemory::zeroed(content.len(), Hugepages::No);
        memory.write(0, content);
        let content = memory.slice(0..content.len());
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(page) = map.pages.get_mut(&range.start) {
            debug_assert!(is_exactly(page, range), "pages that overlap are written first");
            page.content = content;
            return;
        }
        let order = map.next;
        map.next += 1;
        map.order.insert(order, range.start);
        map.pages.insert(range.start, Page { content, order });
        self.bytes.fetch_add(range.end - range.start, Ordering::Release);
        self.memory.fetch_add(memory_of(range), Ordering::Release);
    }

    /// Removes the pages that lie inside the range: it has other content now, or the pages are in their places.
    pub(super) fn remove_inside(&self, range: &Range<u64>) {
        if self.bytes() == 0 {
            return;
        }
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        let inside: Vec<_> =
            map.all(range.clone()).filter(|it| range.start <= it.start && it.end <= range.end).collect();
        for page in inside {
            if let Some(Page { order, .. }) = map.pages.remove(&page.start) {
                map.order.remove(&order);
            }
            self.bytes.fetch_sub(page.end - page.start, Ordering::Release);
            self.memory.fetch_sub(memory_of(&page), Ordering::Release);
        }
    }

    /// The oldest pages, at most `count`.
    pub(super) fn oldest(&self, count: usize) -> Vec<Range<u64>> {
        self.read(|map| {
            let oldest = map.order.values().take(count);
            oldest.filter_map(|start| map.pages.get(start).map(|page| range_of(*start, page))).collect()
        })
    }

    fn read<T>(&self, look: impl FnOnce(&Map) -> T) -> T {
        look(&self.map.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Map {
    /// The first page that overlaps the range.
    fn first(&self, range: Range<u64>) -> Option<(u64, &Page)> {
        let before = self.pages.range(..range.start).next_back();
        let before = before.filter(|(start, page)| range_of(**start, page).end > range.start);
        before.or_else(|| self.pages.range(range).next()).map(|(start, page)| (*start, page))
    }

    fn all(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let first = self.first(range.clone()).map_or(range.end, |(start, _)| start);
        self.pages.range(first..range.end.max(first)).map(|(start, page)| range_of(*start, page))
    }
}

/// Memory comes in whole pages of the machine, and a few hundred bytes lead to each.
fn memory_of(range: &Range<u64>) -> u64 {
    (range.end - range.start).next_multiple_of(PAGE_LEN as u64) + PAGE_OVERHEAD_LEN
}

fn range_of(start: u64, page: &Page) -> Range<u64> {
    start..start + page.content.len() as u64
}

fn is_exactly(page: &Page, range: &Range<u64>) -> bool {
    page.content.len() as u64 == range.end - range.start
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here(place: Place) -> Option<Vec<u8>> {
        let Place::Here(slice) = place else { return None };
        let mut bytes = vec![0; slice.len()];
        slice.copy_to(&mut bytes);
        Some(bytes)
    }

    #[test]
    fn a_read_is_cut_where_a_page_begins_or_ends() {
        let pages = Pages::default();
        pages.insert(&(8192..12288), &[7; 4096]);
        pages.insert(&(16384..24576), &[9; 8192]);
        assert!(matches!(pages.place(0, 8192), Place::Below(8192)));
        assert!(matches!(pages.place(0, 100_000), Place::Below(8192)));
        assert_eq!(here(pages.place(8192, 100_000)), Some(vec![7; 4096]));
        assert!(matches!(pages.place(12288, 8192), Place::Below(4096)));
        assert_eq!(here(pages.place(20480, 512)), Some(vec![9; 512]), "from inside a page");
        assert!(matches!(pages.place(24576, 4096), Place::Below(4096)));
        assert_eq!(pages.overlapping(&(12000..16385)), [8192..12288, 16384..24576]);
        assert_eq!(pages.overlapping(&(12288..16384)), []);
    }

    #[test]
    fn the_oldest_page_stays_the_oldest_when_it_changes() {
        let pages = Pages::default();
        pages.insert(&(8192..12288), &[1; 4096]);
        pages.insert(&(0..4096), &[2; 4096]);
        pages.insert(&(8192..12288), &[3; 4096]);
        assert_eq!(pages.oldest(1), vec![8192..12288; 1]);
        assert_eq!((pages.bytes(), pages.reserve()), (8192, 8192 + 2 * 8192));
        pages.remove_inside(&(100..12288));
        assert_eq!(pages.oldest(5), vec![0..4096; 1], "only those that lie inside are removed");
        pages.remove_inside(&(0..1 << 40));
        assert_eq!((pages.bytes(), pages.reserve()), (0, 0));
        assert!(matches!(pages.place(0, 4096), Place::Below(4096)));
    }
}
