//! The heap region: what `ds_alloc` gives out, under a quota.

use crate::machine::RegionEntry;

/// Allocator over the heap region's offsets.
#[derive(Clone, Debug, Default)]
pub struct Heap {
    quota_bytes: u64,
}

impl Heap {
    /// An empty heap that gives out at most this many bytes at one time.
    #[must_use]
    pub fn new(quota_bytes: u64) -> Self {
        Self { quota_bytes }
    }

    /// Frees everything.
    pub fn clear(&mut self) {}

    /// How the region is mapped now.
    pub fn entry(&mut self) -> RegionEntry {
        debug_assert!(self.quota_bytes < 1 << 40);
        RegionEntry::UNMAPPED
    }
}
