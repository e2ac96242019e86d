//! Run a function at the disk's side: the public crate.

#![forbid(unsafe_code)]
