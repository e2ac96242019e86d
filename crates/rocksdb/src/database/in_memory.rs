//! Options of reads that read no file.

use super::DatabaseError;
use super::raw::{chars, checked, taken};
use crate::ffi::*;
use crate::scope::ReadOptions;
use std::sync::OnceLock;

/// A deadline of reads that is over.
const OVER: u64 = 1;

/// rocksdb 7.8 reads parts of indexes of two levels although files are forbidden (`PartitionIndexReader::NewIterator` does not
/// pass the tier on). It does pass the deadline on, which is looked at before a file is read: one that is over forbids that. With
/// a version that looked at it before the memtables nothing would ever be found there, so whether it does is tried.
static MEMORY_IS_BEFORE_DEADLINE: OnceLock<bool> = OnceLock::new();

/// Options of reads that are answered from memory, or not at all.
pub(super) fn cached_options() -> ReadOptions {
    let options = ReadOptions::new();
    // SAFETY: the options were just made.
    unsafe {
        rocksdb_readoptions_set_read_tier(options.as_ptr(), BLOCK_CACHE_TIER);
        if MEMORY_IS_BEFORE_DEADLINE.get_or_init(|| is_memory_before_deadline().unwrap_or(false)) == &true {
            rocksdb_readoptions_set_deadline(options.as_ptr(), OVER);
        }
    }
    options
}

/// Tries it with a database in memory.
fn is_memory_before_deadline() -> Result<bool, DatabaseError> {
    let (key, value) = (chars(b"key"), chars(b"value"));
    // SAFETY: everything is destroyed once, in the opposite order; key and value are as long as is said.
    unsafe {
        let (env, options) = (rocksdb_create_mem_env(), rocksdb_options_create());
        rocksdb_options_set_env(options, env);
        rocksdb_options_set_create_if_missing(options, 1);
        let tried = checked(|error| rocksdb_open(options, c"/deadline".as_ptr(), error)).and_then(|db| {
            let (reading, writing) = (ReadOptions::new(), rocksdb_writeoptions_create());
            rocksdb_readoptions_set_deadline(reading.as_ptr(), OVER);
            let written = checked(|error| rocksdb_put(db, writing, key, 3, value, 5, error));
            let found = written.and_then(|()| {
                let mut len = 0;
                let found = checked(|error| rocksdb_get(db, reading.as_ptr(), key, 3, &raw mut len, error))?;
                Ok(!found.is_null() && taken(found, len) == b"value")
            });
            rocksdb_writeoptions_destroy(writing);
            rocksdb_close(db);
            found
        });
        rocksdb_options_destroy(options);
        rocksdb_env_destroy(env);
        tried
    }
}
