//! One call of a function: activation, tiers, state, records, read-ahead and combine.

#![forbid(unsafe_code)]
