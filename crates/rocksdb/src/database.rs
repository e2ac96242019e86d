//! A database of RocksDB, by its C interface: what reads at the server need of it, and enough to fill one.

use crate::ffi::*;
use crate::plan::{Plan, TableFile, number_of};
use std::ffi::{CStr, CString, c_char};
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

/// An open database. Any number of threads use it at a time.
pub struct Database {
    db: NonNull<rocksdb_t>,
    /// Of the default column family, if the database was opened here: then it is closed with this, too.
    own: Option<NonNull<rocksdb_column_family_handle_t>>,
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

/// RocksDB's cache of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cache {
    /// How much fits.
    pub capacity_bytes: u64,
    /// How much is in it.
    pub used_bytes: u64,
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
            let (name, mut family) = (c"default".as_ptr(), ptr::null_mut());
            let (names, options, families) = (&raw const name, [parsed.cast_const()], &raw mut family);
            let opened = parsing.and_then(|()| {
                checked(|error| {
                    rocksdb_open_column_families(parsed, path.as_ptr(), 1, names, options.as_ptr(), families, error)
                })
            });
            rocksdb_options_destroy(base);
            rocksdb_options_destroy(parsed);
            let mut database = Self::over(opened?.cast());
            database.own = NonNull::new(family);
            Ok(database)
        }
    }

    /// Over a handle of the C interface (`rocksdb_t *`) that the caller has opened.
    ///
    /// # Safety
    /// It must be open, and stay open as long as this is used. Tables with uncommitted data (`WRITE_PREPARED` of a
    /// `TransactionDB`) do not say so: reads at the server would give them.
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
            if MEMORY_IS_BEFORE_DEADLINE.get_or_init(|| is_memory_before_deadline().unwrap_or(false)) == &true {
                rocksdb_readoptions_set_deadline(cached.0.as_ptr(), OVER);
            }
            rocksdb_readoptions_set_read_tier(memory.0.as_ptr(), MEMTABLE_TIER);
            rocksdb_readoptions_set_background_purge_on_iterator_cleanup(memory.0.as_ptr(), 1);
        }
        // SAFETY: takes nothing.
        let writing = NonNull::new(unsafe { rocksdb_writeoptions_create() }).expect("RocksDB allocates or aborts");
        Self { db, own: None, usual: ReadOptions::new(), cached, memory, writing }
    }

    /// The value of a key, as RocksDB reads it.
    ///
    /// # Errors
    /// What RocksDB said.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, DatabaseError> {
        self.get_by(&self.usual, key)
    }

    /// The values of keys, as RocksDB reads them: together if it was opened here, else one after the other.
    ///
    /// # Errors
    /// What RocksDB said.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>, DatabaseError> {
        let Some(family) = self.own else { return keys.iter().map(|key| self.get(key.as_ref())).collect() };
        let (at, lens): (Vec<_>, Vec<_>) = keys.iter().map(|key| (chars(key.as_ref()), key.as_ref().len())).unzip();
        let (mut values, mut errors) = (vec![ptr::null_mut(); keys.len()], vec![ptr::null_mut(); keys.len()]);
        let (db, options) = (self.db.as_ptr(), self.usual.0.as_ptr());
        // SAFETY: all lists are as long as `keys`, and the keys outlive the call.
        unsafe {
            let (values, errors) = (values.as_mut_ptr(), errors.as_mut_ptr());
            let (at, lens, family) = (at.as_ptr(), lens.as_ptr(), family.as_ptr());
            rocksdb_batched_multi_get_cf(db, options, family, keys.len(), at, lens, values, errors, false);
        }
        // Each is taken, also behind one that failed.
        let found: Vec<Result<_, DatabaseError>> = values
            .into_iter()
            .zip(errors)
            // SAFETY: RocksDB gives a value, or none, or an error, and they are ours.
            .map(|(value, error)| unsafe { refused(error).map(|()| pinned_value(value)) })
            .collect();
        found.into_iter().collect()
    }

    /// The value of a key if RocksDB can tell without reading a file.
    ///
    /// # Errors
    /// What RocksDB said.
    pub fn get_in_memory(&self, key: &[u8]) -> Result<InMemory, DatabaseError> {
        match self.get_by(&self.cached, key) {
            // Some versions say so of a table that is not open: rocksdb 7.8's TableCache::Get.
            Ok(Some(value)) if value.is_empty() => Ok(self.sought_in_memory(key)),
            Ok(value) => Ok(InMemory::Known(value)),
            Err(error) if FILES_ARE_NEEDED.iter().any(|text| error.0.starts_with(text)) => Ok(InMemory::Unknown),
            Err(error) => Err(error),
        }
    }

    /// Number of the super version: it changes with the set of memtables and tables.
    #[must_use]
    pub fn super_version(&self) -> Option<u64> {
        self.property(SUPER_VERSION)
    }

    /// The cache of blocks; `None`: there is none.
    #[must_use]
    pub fn cache(&self) -> Option<Cache> {
        let capacity_bytes = self.property(CACHE_CAPACITY)?;
        Some(Cache { capacity_bytes, used_bytes: self.property(CACHE_USAGE)? })
    }

    fn property(&self, name: &CStr) -> Option<u64> {
        let mut number = 0;
        // SAFETY: the name ends with a zero, and `number` outlives the call.
        let failed = unsafe { rocksdb_property_int(self.db.as_ptr(), name.as_ptr(), &raw mut number) };
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

    /// What an iterator over memory alone finds there: it does not take a table that is not open for an empty value, and fails
    /// if one is needed. (`KeyMayExist` does not tell either: it says that the value was found, and is empty, if an index is not in
    /// memory.)
    fn sought_in_memory(&self, key: &[u8]) -> InMemory {
        // SAFETY: the options live as long as `self`; key and value are copied before the iterator is destroyed.
        unsafe {
            let iterator = rocksdb_create_iterator(self.db.as_ptr(), self.cached.0.as_ptr());
            rocksdb_iter_seek(iterator, chars(key), key.len());
            let found = if rocksdb_iter_valid(iterator) == 0 {
                InMemory::Unknown
            } else {
                let (mut key_len, mut len) = (0, 0);
                let at = rocksdb_iter_key(iterator, &raw mut key_len).cast::<u8>();
                let value = rocksdb_iter_value(iterator, &raw mut len).cast::<u8>();
                let is_there = std::slice::from_raw_parts(at, key_len) == key;
                InMemory::Known(is_there.then(|| match len {
                    0 => Vec::new(),
                    len => std::slice::from_raw_parts(value, len).to_vec(),
                }))
            };
            rocksdb_iter_destroy(iterator);
            found
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: nothing uses them any more: pins borrow the database.
        unsafe {
            rocksdb_writeoptions_destroy(self.writing.as_ptr());
            if let Some(family) = self.own {
                rocksdb_column_family_handle_destroy(family.as_ptr());
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

/// How RocksDB's `Status::Incomplete` and `Status::TimedOut` begin in words.
const FILES_ARE_NEEDED: [&str; 2] = ["Result incomplete", "Operation timed out"];
const CACHE_CAPACITY: &CStr = c"rocksdb.block-cache-capacity";
const CACHE_USAGE: &CStr = c"rocksdb.block-cache-usage";
const SUPER_VERSION: &CStr = c"rocksdb.current-super-version-number";

/// A deadline of reads that is over.
const OVER: u64 = 1;

/// rocksdb 7.8 reads parts of indexes of two levels although files are forbidden (`PartitionIndexReader::NewIterator` does not
/// pass the tier on). It does pass the deadline on, which is looked at before a file is read: one that is over forbids that. With
/// a version that looked at it before the memtables nothing would ever be found there, so whether it does is tried.
static MEMORY_IS_BEFORE_DEADLINE: OnceLock<bool> = OnceLock::new();

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
            rocksdb_readoptions_set_deadline(reading.0.as_ptr(), OVER);
            let written = checked(|error| rocksdb_put(db, writing, key, 3, value, 5, error));
            let found = written.and_then(|()| {
                let mut len = 0;
                let found = checked(|error| rocksdb_get(db, reading.0.as_ptr(), key, 3, &raw mut len, error))?;
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

/// Calls with room for an error, which RocksDB allocates.
fn checked<T>(call: impl FnOnce(*mut *mut c_char) -> T) -> Result<T, DatabaseError> {
    let mut error = ptr::null_mut();
    let value = call(&raw mut error);
    // SAFETY: RocksDB leaves null there, or an error that is ours.
    unsafe { refused(error) }.map(|()| value)
}

/// Takes an error of RocksDB's; null is none.
///
/// # Safety
/// It must be ours.
unsafe fn refused(error: *mut c_char) -> Result<(), DatabaseError> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: an error is a string that ends with a zero.
    unsafe {
        let text = CStr::from_ptr(error).to_string_lossy().into_owned();
        rocksdb_free(error.cast());
        Err(DatabaseError(text))
    }
}

/// Copies a value of RocksDB's, and gives it back; null is none.
///
/// # Safety
/// It must be ours.
unsafe fn pinned_value(value: *mut rocksdb_pinnableslice_t) -> Option<Vec<u8>> {
    let mut len = 0;
    (!value.is_null()).then(|| {
        // SAFETY: the bytes are there until the value is destroyed.
        unsafe {
            let at = rocksdb_pinnableslice_value(value, &raw mut len);
            // An empty one may be nowhere.
            let copy = if len == 0 { Vec::new() } else { std::slice::from_raw_parts(at.cast::<u8>(), len).to_vec() };
            rocksdb_pinnableslice_destroy(value);
            copy
        }
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of a key was empty now and then where tables were opened by one thread while another asked what is in memory:
    /// rocksdb 7.8's `KeyMayExist` says "found" of a key whose index is not in memory, with an empty value.
    #[test]
    fn what_is_not_in_memory_is_not_found_empty() {
        let directory = tempfile::tempdir().expect("a directory");
        let cold = "block_based_table_factory={cache_index_and_filter_blocks=true;block_cache=1024}";
        let open = |options: &str| Database::open(directory.path(), &format!("{options};{cold}")).expect("it opens");
        {
            let database = open("create_if_missing=true");
            database.put(b"empty", b"").expect("written");
            database.put(b"key", b"value").expect("written");
            // What is in memory alone, RocksDB is sure of.
            assert_eq!(database.get_in_memory(b"empty"), Ok(InMemory::Known(Some(Vec::new()))));
            database.flush().expect("flushed");
        }
        let database = open("max_open_files=-1");
        for key in [&b"key"[..], b"empty", b"none"] {
            assert_eq!(database.sought_in_memory(key), InMemory::Unknown);
        }
    }
}
