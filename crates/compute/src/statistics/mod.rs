//! What was run, read and written, and the log pages that say it.

pub(crate) mod counters;
pub(crate) mod failures;
pub(crate) mod log_pages;
pub(crate) mod reasons;
