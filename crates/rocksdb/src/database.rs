//! A database of RocksDB, by its C interface: what reads at the server need of it, and enough to fill one.

use crate::ffi::*;
use crate::plan::{Plan, TableFile, number_of};
use std::ffi::{CStr, CString, c_char};
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;
use std::ptr::{self, NonNull};

/// An open database. Any number of threads use it at a time.
pub struct Database {
    db: NonNull<rocksdb_t>,
    /// Whether it is closed with this.
    own: bool,
    usual: ReadOptions,
    cached: ReadOptions,
    memory: ReadOptions,
    writing: NonNull<rocksdb_writeoptions_t>,
}

/// What RocksDB said.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct DatabaseError(String);

/// What RocksDB knows of a key without reading a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InMemory {
    /// Its value, or that there is none.
    Known(Option<Vec<u8>>),
    /// Only files can tell.
    Unknown,
}

/// Keeps the tables of a super version from being deleted, and its memtables in memory.
pub struct Pin<'a> {
    iterator: NonNull<rocksdb_iterator_t>,
    database: PhantomData<&'a Database>,
}

struct ReadOptions(NonNull<rocksdb_readoptions_t>);

// SAFETY: RocksDB's handles may be used by any thread, and by several at a time (`include/rocksdb/db.h`); the options here are
// not changed after they were made. Iterators have another type.
unsafe impl Send for Database {}
// SAFETY: as above.
unsafe impl Sync for Database {}

impl Database {
    /// Opens a database, with options as RocksDB writes them: `create_if_missing=true;write_buffer_size=1048576`.
    ///
    /// # Errors
    /// What RocksDB said.
    pub fn open(path: &Path, options: &str) -> Result<Self, DatabaseError> {
        let (path, text) = (c_string(path.as_os_str().as_encoded_bytes())?, c_string(options.as_bytes())?);
        // SAFETY: both options live until they are destroyed here; strings end with a zero.
        unsafe {
            let (base, parsed) = (rocksdb_options_create(), rocksdb_options_create());
            let parsing = checked(|error| rocksdb_get_options_from_string(base, text.as_ptr(), parsed, error));
            let opened = parsing.and_then(|()| checked(|error| rocksdb_open(parsed, path.as_ptr(), error)));
            rocksdb_options_destroy(base);
            rocksdb_options_destroy(parsed);
            let mut database = Self::over(opened?.cast());
            database.own = true;
            Ok(database)
        }
    }

    /// Over a handle of the C interface (`rocksdb_t *`) that the caller has opened.
    ///
    /// # Safety
    /// It must be open, and stay open as long as this is used.
    ///
    /// # Panics
    /// If it is null.
    #[must_use]
    pub unsafe fn over(handle: *mut std::ffi::c_void) -> Self {
        let db = NonNull::new(handle.cast()).expect("an open database is not null");
        let (cached, memory) = (ReadOptions::new(), ReadOptions::new());
        // SAFETY: the options were just made.
        unsafe {
            rocksdb_readoptions_set_read_tier(cached.0.as_ptr(), BLOCK_CACHE_TIER);
            rocksdb_readoptions_set_read_tier(memory.0.as_ptr(), MEMTABLE_TIER);
            rocksdb_readoptions_set_background_purge_on_iterator_cleanup(memory.0.as_ptr(), 1);
        }
        // SAFETY: takes nothing.
        let writing = NonNull::new(unsafe { rocksdb_writeoptions_create() }).expect("RocksDB allocates or aborts");
        Self { db, own: false, usual: ReadOptions::new(), cached, memory, writing }
    }

    /// The value of a key, as RocksDB reads it.
    ///
    /// # Errors
    /// What RocksDB said.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, DatabaseError> {
        self.get_by(&self.usual, key)
    }

    /// The value of a key if RocksDB can tell without reading a file.
    ///
    /// # Errors
    /// What RocksDB said.
    pub fn get_in_memory(&self, key: &[u8]) -> Result<InMemory, DatabaseError> {
        match self.get_by(&self.cached, key) {
            // Some versions say so of a table that is not open: rocksdb 7.8's TableCache::Get.
            Ok(Some(value)) if value.is_empty() => Ok(self.value_that_exists(key)),
            Ok(value) => Ok(InMemory::Known(value)),
            Err(error) if error.0.starts_with(INCOMPLETE) => Ok(InMemory::Unknown),
            Err(error) => Err(error),
        }
    }

    /// Number of the super version: it changes with the set of memtables and tables.
    #[must_use]
    pub fn super_version(&self) -> Option<u64> {
        let mut number = 0;
        // SAFETY: the name ends with a zero, and `number` outlives the call.
        let failed = unsafe { rocksdb_property_int(self.db.as_ptr(), SUPER_VERSION.as_ptr(), &raw mut number) };
        (failed == 0).then_some(number)
    }

    /// Pins the super version of now.
    #[must_use]
    pub fn pin(&self) -> Pin<'_> {
        // SAFETY: the options live as long as `self`, and so longer than the iterator.
        let iterator = unsafe { rocksdb_create_iterator(self.db.as_ptr(), self.memory.0.as_ptr()) };
        Pin {
            iterator: NonNull::new(iterator).expect("RocksDB gives an iterator, if need be one with an error"),
            database: PhantomData,
        }
    }

    /// The tables of now; `None`: they have another form, as those of another path.
    #[must_use]
    pub fn plan(&self) -> Option<Plan> {
        loop {
            let super_version = self.super_version()?;
            let levels = self.levels()?;
            if self.super_version()? == super_version {
                return Some(Plan { super_version, levels });
            }
        }
    }

    fn levels(&self) -> Option<Vec<Vec<TableFile>>> {
        // SAFETY: each part of the metadata is destroyed before the whole, and its strings are copied before they are freed.
        unsafe {
            let family = rocksdb_get_column_family_metadata(self.db.as_ptr());
            let count = rocksdb_column_family_metadata_get_level_count(family);
            let levels = (0..count).map(|i| {
                let level = rocksdb_column_family_metadata_get_level_metadata(family, i);
                let files = rocksdb_level_metadata_get_file_count(level);
                let files = (0..files).map(|i| {
                    let file = rocksdb_level_metadata_get_sst_file_metadata(level, i);
                    let found = table_file(file);
                    rocksdb_sst_file_metadata_destroy(file);
                    found
                });
                let files: Option<Vec<TableFile>> = files.collect();
                rocksdb_level_metadata_destroy(level);
                files
            });
            let levels: Option<Vec<_>> = levels.collect();
            rocksdb_column_family_metadata_destroy(family);
            levels
        }
    }

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

    /// Writes the memtables to tables, and waits.
    ///
    /// # Errors
    /// What RocksDB said.
    pub fn flush(&self) -> Result<(), DatabaseError> {
        // SAFETY: the options live until they are destroyed here.
        unsafe {
            let options = rocksdb_flushoptions_create();
            let flushed = checked(|error| rocksdb_flush(self.db.as_ptr(), options, error));
            rocksdb_flushoptions_destroy(options);
            flushed
        }
    }

    /// Compacts everything, and waits.
    pub fn compact(&self) {
        // SAFETY: null is the first key, and the last.
        unsafe { rocksdb_compact_range(self.db.as_ptr(), ptr::null(), 0, ptr::null(), 0) }
    }

    fn get_by(&self, options: &ReadOptions, key: &[u8]) -> Result<Option<Vec<u8>>, DatabaseError> {
        let (mut len, options) = (0, options.0.as_ptr());
        // SAFETY: the slice outlives the call.
        let value = checked(|error| unsafe {
            rocksdb_get(self.db.as_ptr(), options, chars(key), key.len(), &raw mut len, error)
        })?;
        // SAFETY: RocksDB gives null, or so many bytes that are ours.
        Ok((!value.is_null()).then(|| unsafe { taken(value, len) }))
    }

    /// The value that RocksDB is sure of without a file. That it says there is none may be an error, too.
    fn value_that_exists(&self, key: &[u8]) -> InMemory {
        let (mut value, mut len, mut found) = (ptr::null_mut(), 0, 0);
        // SAFETY: the slice outlives the call; there is no timestamp; a value is ours.
        unsafe {
            let (db, options) = (self.db.as_ptr(), self.usual.0.as_ptr());
            let (value_at, len_at, found_at) = (&raw mut value, &raw mut len, &raw mut found);
            let exists =
                rocksdb_key_may_exist(db, options, chars(key), key.len(), value_at, len_at, ptr::null(), 0, found_at);
            let value = (!value.is_null()).then(|| taken(value, len));
            if exists != 0 && found != 0 && value.is_some() { InMemory::Known(value) } else { InMemory::Unknown }
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: nothing uses them any more: pins borrow the database.
        unsafe {
            rocksdb_writeoptions_destroy(self.writing.as_ptr());
            if self.own {
                rocksdb_close(self.db.as_ptr());
            }
        }
    }
}

impl Pin<'_> {
    /// Whether the memtables may have something for the key: also when that cannot be told.
    #[must_use]
    pub fn may_hold(&mut self, key: &[u8]) -> bool {
        let iterator = self.iterator.as_ptr();
        // SAFETY: the iterator is this one's alone; a key is copied before the iterator is moved again.
        unsafe {
            rocksdb_iter_seek(iterator, chars(key), key.len());
            if rocksdb_iter_valid(iterator) != 0 {
                let mut len = 0;
                let at = rocksdb_iter_key(iterator, &raw mut len);
                return std::slice::from_raw_parts(at.cast::<u8>(), len) == key;
            }
            checked(|error| rocksdb_iter_get_error(iterator, error)).is_err()
        }
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        // SAFETY: it is destroyed once, before the database is closed.
        unsafe { rocksdb_iter_destroy(self.iterator.as_ptr()) }
    }
}

impl ReadOptions {
    fn new() -> Self {
        // SAFETY: takes nothing.
        Self(NonNull::new(unsafe { rocksdb_readoptions_create() }).expect("RocksDB allocates or aborts"))
    }
}

impl Drop for ReadOptions {
    fn drop(&mut self) {
        // SAFETY: it is destroyed once.
        unsafe { rocksdb_readoptions_destroy(self.0.as_ptr()) }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("super_version", &self.super_version()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Pin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pin").finish_non_exhaustive()
    }
}

/// How RocksDB's `Status::Incomplete` begins in words.
const INCOMPLETE: &str = "Result incomplete";
const SUPER_VERSION: &CStr = c"rocksdb.current-super-version-number";

/// Calls with room for an error, which RocksDB allocates.
fn checked<T>(call: impl FnOnce(*mut *mut c_char) -> T) -> Result<T, DatabaseError> {
    let mut error = ptr::null_mut();
    let value = call(&raw mut error);
    if error.is_null() {
        return Ok(value);
    }
    // SAFETY: an error is a string of RocksDB's that is ours.
    unsafe {
        let text = CStr::from_ptr(error).to_string_lossy().into_owned();
        rocksdb_free(error.cast());
        Err(DatabaseError(text))
    }
}

/// Copies bytes that RocksDB allocated, and frees them.
///
/// # Safety
/// There must be so many, and they must be ours.
unsafe fn taken(bytes: *mut c_char, len: usize) -> Vec<u8> {
    // SAFETY: the caller's promise.
    unsafe {
        let copy = std::slice::from_raw_parts(bytes.cast::<u8>(), len).to_vec();
        rocksdb_free(bytes.cast());
        copy
    }
}

/// # Safety
/// The metadata of a file must be valid.
unsafe fn table_file(file: *mut rocksdb_sst_file_metadata_t) -> Option<TableFile> {
    // SAFETY: the caller's promise; all strings are ours.
    unsafe {
        let name = rocksdb_sst_file_metadata_get_relative_filename(file);
        let name = String::from_utf8(taken(name, CStr::from_ptr(name).to_bytes().len())).ok()?;
        let (mut smallest_len, mut largest_len) = (0, 0);
        let smallest = rocksdb_sst_file_metadata_get_smallestkey(file, &raw mut smallest_len);
        let largest = rocksdb_sst_file_metadata_get_largestkey(file, &raw mut largest_len);
        let (smallest, largest) = (taken(smallest, smallest_len), taken(largest, largest_len));
        let len_bytes = rocksdb_sst_file_metadata_get_size(file);
        Some(TableFile { number: number_of(&name)?, name, len_bytes, smallest, largest })
    }
}

fn chars(bytes: &[u8]) -> *const c_char {
    bytes.as_ptr().cast()
}

fn c_string(bytes: &[u8]) -> Result<CString, DatabaseError> {
    CString::new(bytes).map_err(|error| DatabaseError(error.to_string()))
}
