//! Mistakes that the stress test makes on purpose, to show that it finds them. Without the feature `controls` there are none.

use std::sync::atomic::{AtomicBool, Ordering};

static UNLOGGED: AtomicBool = AtomicBool::new(false);
static LATE: AtomicBool = AtomicBool::new(false);

pub(crate) fn set(unlogged: bool, late: bool) {
    UNLOGGED.store(unlogged, Ordering::SeqCst);
    LATE.store(late, Ordering::SeqCst);
}

/// Blocks are kept from search to search, and served whatever has been written since.
pub(crate) fn unlogged() -> bool {
    cfg!(feature = "controls") && UNLOGGED.load(Ordering::Relaxed)
}

/// Keys are looked up when the search has been refused, and WiredTiger holds no lock any more.
pub(crate) fn late() -> bool {
    cfg!(feature = "controls") && LATE.load(Ordering::Relaxed)
}
