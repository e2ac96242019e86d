//! `libdiskside_rocksdb`: reads of RocksDB at the storage server, for C (`include/diskside/rocksdb.h`) and C++
//! (`include/diskside/rocksdb.hpp`).
//!
//! The header has the conditions that every call's caller must meet. Nothing unwinds into C: a panic becomes an error.

#![cfg_attr(not(feature = "librocksdb"), forbid(unsafe_code))]

#[cfg(feature = "librocksdb")]
mod calls;
