//! Changes of a database: writes, and operations on its files.

use super::raw::{c_string, chars, checked};
use super::{Database, DatabaseError};
use crate::ffi::*;
use crate::scope::Family;
use std::path::Path;
use std::ptr::{self, NonNull};

impl Database {
    /// Writes a value.
    ///
    /// # Errors
    /// What RocksDB said.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), DatabaseError> {
        let (db, writing) = (self.db.as_ptr(), self.writing.as_ptr());
        // SAFETY: both slices outlive the call.
        checked(|error| unsafe {
            rocksdb_put(db, writing, chars(key), key.len(), chars(value), value.len(), error);
        })
    }

    /// Writes a value in a column family.
    ///
    /// # Errors
    /// What RocksDB said.
    pub fn put_in(&self, family: Family<'_>, key: &[u8], value: &[u8]) -> Result<(), DatabaseError> {
        let (db, writing, family) = (self.db.as_ptr(), self.writing.as_ptr(), family.handle_in(self));
        // SAFETY: both slices outlive the call.
        checked(|error| unsafe {
            rocksdb_put_cf(db, writing, family, chars(key), key.len(), chars(value), value.len(), error);
        })
    }

    /// Writes an operand, for a database with a merge operator.
    ///
    /// # Errors
    /// What RocksDB said.
    pub fn merge(&self, key: &[u8], operand: &[u8]) -> Result<(), DatabaseError> {
        let (db, writing) = (self.db.as_ptr(), self.writing.as_ptr());
        // SAFETY: both slices outlive the call.
        checked(|error| unsafe {
            rocksdb_merge(db, writing, chars(key), key.len(), chars(operand), operand.len(), error);
        })
    }

    /// Deletes a key.
    ///
    /// # Errors
    /// What RocksDB said.
    pub fn delete(&self, key: &[u8]) -> Result<(), DatabaseError> {
        let (db, writing) = (self.db.as_ptr(), self.writing.as_ptr());
        // SAFETY: the slice outlives the call.
        checked(|error| unsafe { rocksdb_delete(db, writing, chars(key), key.len(), error) })
    }

    /// Writes the memtables to tables, of all column families that were opened here, and waits.
    ///
    /// # Errors
    /// What RocksDB said.
    pub fn flush(&self) -> Result<(), DatabaseError> {
        // SAFETY: the options live until they are destroyed here.
        unsafe {
            let (db, options) = (self.db.as_ptr(), rocksdb_flushoptions_create());
            let flush =
                |family: &(_, NonNull<_>)| checked(|error| rocksdb_flush_cf(db, options, family.1.as_ptr(), error));
            let flushed = match &self.own[..] {
                [] => checked(|error| rocksdb_flush(db, options, error)),
                own => own.iter().try_for_each(flush),
            };
            rocksdb_flushoptions_destroy(options);
            flushed
        }
    }

    /// Makes a copy in a directory that is not there yet, of links where that is possible.
    ///
    /// # Errors
    /// What RocksDB said.
    pub fn checkpoint(&self, directory: &Path) -> Result<(), DatabaseError> {
        let directory = c_string(directory.as_os_str().as_encoded_bytes())?;
        // SAFETY: the object is destroyed once, and the string outlives the call.
        unsafe {
            let object = checked(|error| rocksdb_checkpoint_object_create(self.db.as_ptr(), error))?;
            let made = checked(|error| rocksdb_checkpoint_create(object, directory.as_ptr(), 0, error));
            rocksdb_checkpoint_object_destroy(object);
            made
        }
    }

    /// Keeps RocksDB from deleting files, as for a backup, or lets it.
    ///
    /// # Errors
    /// What RocksDB said.
    pub fn hold_files(&self, yes: bool) -> Result<(), DatabaseError> {
        // SAFETY: the database is open.
        checked(|error| unsafe {
            if yes {
                rocksdb_disable_file_deletions(self.db.as_ptr(), error);
            } else {
                rocksdb_enable_file_deletions(self.db.as_ptr(), 0, error);
            }
        })
    }

    /// Compacts everything, and waits.
    pub fn compact(&self) {
        // SAFETY: null is the first key, and the last.
        unsafe { rocksdb_compact_range(self.db.as_ptr(), ptr::null(), 0, ptr::null(), 0) }
    }
}
