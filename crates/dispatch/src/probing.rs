//! Bounds of trying the other side.

/// Most requests from one probe to the next, while the credit allows it.
pub const INTERVAL_MAX: u64 = 64;

/// Measurements of a side of which one may be wrong.
pub const SETTLED: u64 = 3;
