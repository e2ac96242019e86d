//! Pages of one version of a file, up to a number of bytes; connections of a process to the same version share them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Memory of a page beside its bytes.
const SLOT_LEN: usize = 128;

#[derive(Debug)]
pub(crate) struct PageCache {
    len_max: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    pages: HashMap<u32, Slot>,
    /// By when they were used last: the first one leaves next.
    order: BTreeMap<u64, u32>,
    clock: u64,
    len: usize,
}

#[derive(Debug)]
struct Slot {
    bytes: Arc<[u8]>,
    used: u64,
}

impl PageCache {
    pub(crate) fn new(len_max: usize) -> Self {
        Self { len_max, held: Mutex::default() }
    }

    pub(crate) fn len_max(&self) -> usize {
        self.len_max
    }

    pub(crate) fn get(&self, page: u32) -> Option<Arc<[u8]>> {
        let held = &mut *self.lock();
        let slot = held.pages.get_mut(&page)?;
        held.clock += 1;
        held.order.remove(&slot.used);
        held.order.insert(held.clock, page);
        slot.used = held.clock;
        Some(Arc::clone(&slot.bytes))
    }

    pub(crate) fn contains(&self, page: u32) -> bool {
        self.lock().pages.contains_key(&page)
    }

    pub(crate) fn insert(&self, page: u32, bytes: &[u8]) {
        let held = &mut *self.lock();
        if held.pages.contains_key(&page) {
            return;
        }
        held.len += bytes.len() + SLOT_LEN;
        held.clock += 1;
        held.order.insert(held.clock, page);
        held.pages.insert(page, Slot { bytes: bytes.into(), used: held.clock });
        while held.len > self.len_max && held.pages.len() > 1 {
            let Some((_, oldest)) = held.order.pop_first() else { break };
            if let Some(slot) = held.pages.remove(&oldest) {
                held.len -= slot.bytes.len() + SLOT_LEN;
            }
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.lock().len
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_within_its_bytes_and_keeps_pages_that_are_used() {
        let cache = PageCache::new(10 * (512 + SLOT_LEN));
        for page in 1..=1000 {
            cache.insert(page, &[page as u8; 512]);
            assert!(cache.get(1).is_some(), "page 1 is used all the time and was evicted for page {page}");
        }
        assert!(cache.len() <= 10 * (512 + SLOT_LEN), "{}", cache.len());
        assert!(cache.contains(1000) && !cache.contains(500));
        assert_eq!(cache.get(1000).as_deref(), Some(&[1000_u32 as u8; 512][..]));
    }

    #[test]
    fn a_page_longer_than_all_of_it_is_kept_alone() {
        let cache = PageCache::new(100);
        cache.insert(1, &[1; 512]);
        cache.insert(2, &[2; 512]);
        assert!(!cache.contains(1) && cache.contains(2));
    }
}
