//! Counters of runs, reads and writes, and the log pages that report them.

pub(crate) mod counters;
pub(crate) mod failures;
pub(crate) mod log_pages;
pub(crate) mod reasons;
