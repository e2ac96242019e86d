//! The heap region: what `ds_alloc` gives out, under a quota.

/// Allocator over the heap region's offsets.
#[derive(Clone, Debug, Default)]
pub struct Heap {}
