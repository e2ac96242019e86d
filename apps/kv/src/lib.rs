//! BPF-KV: a key-value store in one file, whose lookups can be pushed down to the storage.
//!
//! A store is a B+-tree of nodes with 31 keys and a log of values of 64 bytes; see [`format`](mod@format). A lookup is
//! a chain of dependent reads, one a level and one of the log. A [`Store`] makes them one by one, or asks the holder of
//! the data to follow the pointers ([`Pushdown`]): then a lookup costs one round trip. Top levels that are in memory
//! ([`Cache`](cache::Cache)) are walked at the host, and only the rest is pushed down.
//!
//! ```
//! use diskside_kv::create::{Creation, Keys};
//! use diskside_kv::{Mode, Options, Store};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = tempfile::NamedTempFile::new()?;
//! // Two levels: 31 x 31 keys; the value of a key is its number.
//! Creation::new(Keys::Counting(961)).write(file.as_file())?;
//! let store = Store::open_file(file.path(), &Options { mode: Mode::Pushdown, ..Options::default() })?;
//! let value = store.block_on(store.get(500))?.expect("the key is there");
//! assert_eq!(&value[60..63], b"500");
//! assert_eq!(store.block_on(store.sum(0, 9, u64::MAX))?, (10, 45));
//! # Ok(()) }
//! ```
//!
//! Operations are futures of one thread: [`Store::block_on`] runs one, [`drive::Tasks`] many at a time.

#![forbid(unsafe_code)]

pub mod cache;
mod changes;
pub mod check;
pub mod create;
pub mod drive;
mod error;
pub mod format;
pub mod mounted;
pub mod port;
pub mod pushdown;
mod range;
pub mod remote;
mod store;
pub mod ycsb;

pub use cache::Sampling;
pub use error::KvError;
pub use format::Value;
pub use pushdown::Pairs;
pub use pushdown::Pushdown;
pub use store::{Counters, Mode, Options, Store};
