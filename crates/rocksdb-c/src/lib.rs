//! `libdiskside_rocksdb`: reads of RocksDB at the storage server, for C (`include/diskside/rocksdb.h`) and C++
//! (`include/diskside/rocksdb.hpp`).
//!
//! What every call trusts its caller in stands in the header. Nothing unwinds into C: a panic becomes an error.

#![cfg_attr(not(feature = "librocksdb"), forbid(unsafe_code))]

#[cfg(feature = "librocksdb")]
mod calls;
