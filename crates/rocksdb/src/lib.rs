//! RocksDB, unmodified, with its reads at the storage server.
//!
//! A read that RocksDB cannot answer from memory is a chain: the index of a table, perhaps a part of it, then a block of data,
//! and so on for each table that may have the key. Over a network each link is a round trip. `Reads` asks the
//! server that has the tables to follow the chain (`functions/sst_get.bpf.c`): one round trip, and only the value travels.
//!
//! RocksDB does everything else, and every read that cannot be decided at the server. The server's answer is exact, whatever is
//! written, flushed and compacted meanwhile: the module `reads` says why.

#![cfg_attr(not(feature = "librocksdb"), forbid(unsafe_code))]

#[cfg(feature = "librocksdb")]
pub mod database;
#[cfg(feature = "librocksdb")]
mod ffi;
pub mod plan;
#[cfg(feature = "librocksdb")]
pub mod reads;
#[cfg(feature = "librocksdb")]
pub mod scope;
pub mod store;
pub mod table;
#[cfg(feature = "librocksdb")]
mod tuner;
#[cfg(feature = "librocksdb")]
mod values;

#[cfg(feature = "librocksdb")]
pub use database::Database;
pub use diskside::host::ConnectOptions;
#[cfg(feature = "librocksdb")]
pub use reads::{Mode, Options, Reads};
#[cfg(feature = "librocksdb")]
pub use scope::{Family, Scope, Snapshot};
pub use store::Store;
