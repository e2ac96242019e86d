//! Reads of many keys in their order, by RocksDB's own iterators.

use super::raw::{chars, checked};
use super::{Database, DatabaseError};
use crate::ffi::*;
use crate::scope::{ReadOptions, Scope};
use std::ffi::c_char;

impl Database {
    /// At most so many keys with their values, in order, from the first one that is not before `from`. RocksDB reads them, as it
    /// does by its iterators: blocks that are not in memory travel whole.
    ///
    /// # Errors
    /// What RocksDB said.
    #[allow(clippy::type_complexity, reason = "pairs of a key and a value")]
    pub fn scan(
        &self,
        scope: &Scope<'_>,
        from: &[u8],
        count_max: usize,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>, DatabaseError> {
        let own = scope.snapshot.map(|snapshot| ReadOptions::new().at(snapshot));
        let mut found = Vec::new();
        // SAFETY: the options outlive the iterator, which is destroyed once; what it points to is copied before it is moved.
        unsafe {
            let iterator = self.iterator(own.as_ref().unwrap_or(&self.usual), scope);
            rocksdb_iter_seek(iterator, chars(from), from.len());
            while found.len() < count_max && rocksdb_iter_valid(iterator) != 0 {
                let (mut key_len, mut value_len) = (0, 0);
                let key = copied(rocksdb_iter_key(iterator, &raw mut key_len), key_len);
                let value = copied(rocksdb_iter_value(iterator, &raw mut value_len), value_len);
                found.push((key, value));
                // The block behind the last one may be another, which nothing needs.
                if found.len() < count_max {
                    rocksdb_iter_next(iterator);
                }
            }
            let outcome = checked(|error| rocksdb_iter_get_error(iterator, error));
            rocksdb_iter_destroy(iterator);
            outcome.map(|()| found)
        }
    }
}

/// # Safety
/// There must be so many bytes.
unsafe fn copied(bytes: *const c_char, len: usize) -> Vec<u8> {
    if len == 0 {
        // An empty one may be nowhere.
        return Vec::new();
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), len).to_vec() }
}
