//! A database of RocksDB, by its C interface: what reads at the server need of it, and enough to fill one.

mod in_memory;
mod raw;
mod scan;
mod writes;

use self::in_memory::cached_options;
pub(crate) use self::raw::checked;
use self::raw::{c_string, chars, pinned_value, refused, table_file, taken};
use crate::ffi::*;
use crate::plan::{Plan, TableFile};
use crate::scope::{Family, ReadOptions, Scope, Snapshot};
use std::ffi::{CStr, c_char};
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;
use std::ptr::{self, NonNull};

/// An open database. Any number of threads use it at a time.
pub struct Database {
    db: NonNull<rocksdb_t>,
    /// The column families by name, if the database was opened here: then it is closed with this, too.
    own: Vec<(String, NonNull<rocksdb_column_family_handle_t>)>,
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
        Self::open_families(path, options, &[])
    }

    /// The same, with all column families that it has beside the default one; `create_missing_column_families=true` makes them.
    ///
    /// # Errors
    /// What RocksDB said.
    pub fn open_families(path: &Path, options: &str, families: &[&str]) -> Result<Self, DatabaseError> {
        let (path, text) = (c_string(path.as_os_str().as_encoded_bytes())?, c_string(options.as_bytes())?);
        let names: Vec<&str> = std::iter::once("default").chain(families.iter().copied()).collect();
        let texts = names.iter().map(|name| c_string(name.as_bytes())).collect::<Result<Vec<_>, _>>()?;
        let pointers: Vec<*const c_char> = texts.iter().map(|name| name.as_ptr()).collect();
        // SAFETY: both options live until they are destroyed here; strings end with a zero; all lists are equally long.
        unsafe {
            let (base, parsed) = (rocksdb_options_create(), rocksdb_options_create());
            let parsing = checked(|error| rocksdb_get_options_from_string(base, text.as_ptr(), parsed, error));
            let mut handles = vec![ptr::null_mut(); names.len()];
            let (count, options) = (names.len() as i32, vec![parsed.cast_const(); names.len()]);
            let (names_at, options_at, handles_at) = (pointers.as_ptr(), options.as_ptr(), handles.as_mut_ptr());
            let opened = parsing.and_then(|()| {
                checked(|error| {
                    rocksdb_open_column_families(parsed, path.as_ptr(), count, names_at, options_at, handles_at, error)
                })
            });
            rocksdb_options_destroy(base);
            rocksdb_options_destroy(parsed);
            let mut database = Self::over(opened?.cast());
            let handles = handles.into_iter().map(|handle| NonNull::new(handle).expect("one for each name"));
            database.own = names.into_iter().map(str::to_owned).zip(handles).collect();
            Ok(database)
        }
    }

    /// A column family of a database that was opened here, by its name.
    #[must_use]
    pub fn family(&self, name: &str) -> Option<Family<'_>> {
        let (_, handle) = self.own.iter().find(|(own, _)| own == name)?;
        // SAFETY: it is one of this database, and is destroyed with it.
        Some(unsafe { Family::over(self, handle.as_ptr().cast()) })
    }

    /// The database as it is now, kept until this is dropped.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot<'_> {
        Snapshot::of(self)
    }

    pub(crate) fn handle(&self) -> *mut rocksdb_t {
        self.db.as_ptr()
    }

    pub(crate) fn writing(&self) -> *const rocksdb_writeoptions_t {
        self.writing.as_ptr()
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        self.db == other.db
    }

    /// The handle of a scope's column family; null: the default one of a database that was opened elsewhere.
    fn family_of(&self, scope: &Scope<'_>) -> *mut rocksdb_column_family_handle_t {
        match (scope.family, self.own.first()) {
            (Some(family), _) => family.handle_in(self),
            (None, Some((_, default))) => default.as_ptr(),
            (None, None) => ptr::null_mut(),
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
        let (cached, memory) = (cached_options(), ReadOptions::new());
        // SAFETY: the options were just made.
        unsafe {
            rocksdb_readoptions_set_read_tier(memory.as_ptr(), MEMTABLE_TIER);
            rocksdb_readoptions_set_background_purge_on_iterator_cleanup(memory.as_ptr(), 1);
        }
        // SAFETY: takes nothing.
        let writing = NonNull::new(unsafe { rocksdb_writeoptions_create() }).expect("RocksDB allocates or aborts");
        Self { db, own: Vec::new(), usual: ReadOptions::new(), cached, memory, writing }
    }

    /// The value of a key, as RocksDB reads it.
    ///
    /// # Errors
    /// What RocksDB said.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, DatabaseError> {
        self.get_in(&Scope::default(), key)
    }

    /// The same, in a column family or of a snapshot.
    ///
    /// # Errors
    /// What RocksDB said.
    pub fn get_in(&self, scope: &Scope<'_>, key: &[u8]) -> Result<Option<Vec<u8>>, DatabaseError> {
        match scope.snapshot {
            None => self.get_by(&self.usual, scope, key),
            Some(snapshot) => self.get_by(&ReadOptions::new().at(snapshot), scope, key),
        }
    }

    /// The values of keys, as RocksDB reads them: together, but one after the other in the default column family of a database that
    /// was opened elsewhere.
    ///
    /// # Errors
    /// What RocksDB said.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>, DatabaseError> {
        self.multi_get_in(&Scope::default(), keys)
    }

    /// The same, in a column family or of a snapshot.
    ///
    /// # Errors
    /// What RocksDB said.
    pub fn multi_get_in<K: AsRef<[u8]>>(
        &self,
        scope: &Scope<'_>,
        keys: &[K],
    ) -> Result<Vec<Option<Vec<u8>>>, DatabaseError> {
        let family = self.family_of(scope);
        if family.is_null() {
            return keys.iter().map(|key| self.get_in(scope, key.as_ref())).collect();
        }
        let (at, lens): (Vec<_>, Vec<_>) = keys.iter().map(|key| (chars(key.as_ref()), key.as_ref().len())).unzip();
        let (mut values, mut errors) = (vec![ptr::null_mut(); keys.len()], vec![ptr::null_mut(); keys.len()]);
        let own = scope.snapshot.map(|snapshot| ReadOptions::new().at(snapshot));
        let (db, options) = (self.db.as_ptr(), own.as_ref().unwrap_or(&self.usual).as_ptr());
        // SAFETY: all lists are as long as `keys`, and the keys outlive the call.
        unsafe {
            let (values, errors) = (values.as_mut_ptr(), errors.as_mut_ptr());
            let (at, lens) = (at.as_ptr(), lens.as_ptr());
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
    pub fn get_in_memory(&self, scope: &Scope<'_>, key: &[u8]) -> Result<InMemory, DatabaseError> {
        let own = scope.snapshot.map(|snapshot| cached_options().at(snapshot));
        let options = own.as_ref().unwrap_or(&self.cached);
        match self.get_by(options, scope, key) {
            // Some versions say so of a table that is not open: rocksdb 7.8's TableCache::Get. Nothing else is sure of it: KeyMayExist says
            // the same, "found", of a key whose index is not in memory, and iterators over such tables free memory twice.
            Ok(Some(value)) if value.is_empty() => Ok(InMemory::Unknown),
            Ok(value) => Ok(InMemory::Known(value)),
            Err(error) if FILES_ARE_NEEDED.iter().any(|text| error.0.starts_with(text)) => Ok(InMemory::Unknown),
            Err(error) => Err(error),
        }
    }

    /// Number of the super version: it changes with the set of memtables and tables.
    #[must_use]
    pub fn super_version(&self, scope: &Scope<'_>) -> Option<u64> {
        self.property(scope, SUPER_VERSION)
    }

    /// The cache of blocks; `None`: there is none.
    #[must_use]
    pub fn cache(&self) -> Option<Cache> {
        let property = |name| self.property(&Scope::default(), name);
        Some(Cache { capacity_bytes: property(CACHE_CAPACITY)?, used_bytes: property(CACHE_USAGE)? })
    }

    fn property(&self, scope: &Scope<'_>, name: &CStr) -> Option<u64> {
        let (mut number, db, family) = (0, self.db.as_ptr(), self.family_of(scope));
        // SAFETY: the name ends with a zero, and `number` outlives the call.
        let failed = unsafe {
            if family.is_null() {
                rocksdb_property_int(db, name.as_ptr(), &raw mut number)
            } else {
                rocksdb_property_int_cf(db, family, name.as_ptr(), &raw mut number)
            }
        };
        (failed == 0).then_some(number)
    }

    /// Pins the super version of now.
    #[must_use]
    pub fn pin(&self, scope: &Scope<'_>) -> Pin<'_> {
        // SAFETY: the options live as long as `self`, and so longer than the iterator.
        let iterator = unsafe { self.iterator(&self.memory, scope) };
        Pin {
            iterator: NonNull::new(iterator).expect("RocksDB gives an iterator, if need be one with an error"),
            database: PhantomData,
        }
    }

    /// The tables of now; `None`: they have another form, as those of another path.
    #[must_use]
    pub fn plan(&self, scope: &Scope<'_>) -> Option<Plan> {
        loop {
            let super_version = self.super_version(scope)?;
            let levels = self.levels(scope)?;
            if self.super_version(scope)? == super_version {
                return Some(Plan { super_version, levels });
            }
        }
    }

    fn levels(&self, scope: &Scope<'_>) -> Option<Vec<Vec<TableFile>>> {
        let handle = self.family_of(scope);
        // SAFETY: each part of the metadata is destroyed before the whole, and its strings are copied before they are freed.
        unsafe {
            let family = if handle.is_null() {
                rocksdb_get_column_family_metadata(self.db.as_ptr())
            } else {
                rocksdb_get_column_family_metadata_cf(self.db.as_ptr(), handle)
            };
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

    fn get_by(&self, options: &ReadOptions, scope: &Scope<'_>, key: &[u8]) -> Result<Option<Vec<u8>>, DatabaseError> {
        let (mut len, db, options) = (0, self.db.as_ptr(), options.as_ptr());
        let (at, key_len, family) = (chars(key), key.len(), self.family_of(scope));
        // SAFETY: the slice outlives the call.
        let value = checked(|error| unsafe {
            if family.is_null() {
                rocksdb_get(db, options, at, key_len, &raw mut len, error)
            } else {
                rocksdb_get_cf(db, options, family, at, key_len, &raw mut len, error)
            }
        })?;
        // SAFETY: RocksDB gives null, or so many bytes that are ours.
        Ok((!value.is_null()).then(|| unsafe { taken(value, len) }))
    }

    /// # Safety
    /// The options must outlive the iterator.
    unsafe fn iterator(&self, options: &ReadOptions, scope: &Scope<'_>) -> *mut rocksdb_iterator_t {
        let (db, options, family) = (self.db.as_ptr(), options.as_ptr(), self.family_of(scope));
        // SAFETY: the database is open, and the caller's promise.
        unsafe {
            if family.is_null() {
                rocksdb_create_iterator(db, options)
            } else {
                rocksdb_create_iterator_cf(db, options, family)
            }
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: nothing uses them any more: pins borrow the database.
        unsafe {
            rocksdb_writeoptions_destroy(self.writing.as_ptr());
            for (_, family) in &self.own {
                rocksdb_column_family_handle_destroy(family.as_ptr());
            }
            if !self.own.is_empty() {
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

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("super_version", &self.super_version(&Scope::default()))
            .finish_non_exhaustive()
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
