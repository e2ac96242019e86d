//! The scope of a read: a column family, and a snapshot.

use crate::database::{Database, DatabaseError, checked};
use crate::ffi::*;
use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// The scope of a read. By default: the default column family, as it is now.
#[derive(Clone, Copy, Default, Debug)]
pub struct Scope<'a> {
    /// The column family; `None`: the default one.
    pub family: Option<Family<'a>>,
    /// The snapshot; `None`: what is now.
    pub snapshot: Option<&'a Snapshot<'a>>,
}

/// A column family of an open database.
#[derive(Clone, Copy)]
pub struct Family<'a> {
    handle: NonNull<rocksdb_column_family_handle_t>,
    id: u32,
    database: &'a Database,
}

/// A database as it was at one moment.
pub struct Snapshot<'a> {
    handle: NonNull<rocksdb_snapshot_t>,
    sequence: Option<u64>,
    /// The database that releases it; `None`: somebody else does.
    own: Option<&'a Database>,
    database: PhantomData<&'a Database>,
}

// SAFETY: handles of column families and snapshots may be used by any thread, and by several at a time.
unsafe impl Send for Family<'_> {}
// SAFETY: as above.
unsafe impl Sync for Family<'_> {}
// SAFETY: as above.
unsafe impl Send for Snapshot<'_> {}
// SAFETY: as above.
unsafe impl Sync for Snapshot<'_> {}

impl<'a> Family<'a> {
    /// Over a handle of the C interface (`rocksdb_column_family_handle_t *`).
    ///
    /// # Safety
    /// It must be one of this database, and stay valid as long as this is used.
    ///
    /// # Panics
    /// If it is null.
    #[must_use]
    pub unsafe fn over(database: &'a Database, handle: *mut c_void) -> Self {
        let handle = NonNull::new(handle.cast()).expect("a column family's handle is not null");
        // SAFETY: the caller's promise.
        let id = unsafe { rocksdb_column_family_handle_get_id(handle.as_ptr()) };
        Self { handle, id, database }
    }

    /// Its number, which no other one of the database ever has.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// # Panics
    /// If it is another database's.
    pub(crate) fn handle_in(&self, database: &Database) -> *mut rocksdb_column_family_handle_t {
        assert!(self.database.is(database), "a column family of another database");
        self.handle.as_ptr()
    }
}

impl<'a> Snapshot<'a> {
    /// Over a handle of the C interface (`const rocksdb_snapshot_t *`) with its sequence number.
    ///
    /// # Safety
    /// It must be one of the database that is read, with this number, and stay valid as long as this is used.
    ///
    /// # Panics
    /// If it is null.
    #[must_use]
    pub unsafe fn over(handle: *const c_void, sequence: u64) -> Self {
        let handle = NonNull::new(handle.cast_mut().cast()).expect("a snapshot is not null");
        Self { handle, sequence: Some(sequence), own: None, database: PhantomData }
    }

    /// Of now.
    pub(crate) fn of(database: &'a Database) -> Self {
        // The C interface of 7.8 does not tell a snapshot's number: it is that of the moment if nothing is written meanwhile.
        const TRIES: usize = 64;
        for left in (0..TRIES).rev() {
            // SAFETY: the database is open; a snapshot that is not kept is released once.
            unsafe {
                let before = rocksdb_get_latest_sequence_number(database.handle());
                let handle = rocksdb_create_snapshot(database.handle()).cast_mut();
                let is_sure = rocksdb_get_latest_sequence_number(database.handle()) == before;
                if is_sure || left == 0 {
                    let handle = NonNull::new(handle).expect("RocksDB gives a snapshot");
                    let sequence = is_sure.then_some(before);
                    return Self { handle, sequence, own: Some(database), database: PhantomData };
                }
                rocksdb_release_snapshot(database.handle(), handle);
            }
        }
        unreachable!("the last try is taken")
    }

    /// The newest sequence number that it shows, if that is known.
    #[must_use]
    pub fn sequence(&self) -> Option<u64> {
        self.sequence
    }

    pub(crate) fn handle(&self) -> *const rocksdb_snapshot_t {
        self.handle.as_ptr()
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        if let Some(database) = self.own {
            // SAFETY: it is released once, before the database is closed.
            unsafe { rocksdb_release_snapshot(database.handle(), self.handle.as_ptr()) }
        }
    }
}

impl fmt::Debug for Family<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Family").field("id", &self.id).finish_non_exhaustive()
    }
}

impl fmt::Debug for Snapshot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("sequence", &self.sequence).finish_non_exhaustive()
    }
}

/// Options of reads, which are not changed once they are made.
pub(crate) struct ReadOptions(NonNull<rocksdb_readoptions_t>);

impl ReadOptions {
    pub(crate) fn new() -> Self {
        // SAFETY: takes nothing.
        Self(NonNull::new(unsafe { rocksdb_readoptions_create() }).expect("RocksDB allocates or aborts"))
    }

    pub(crate) fn as_ptr(&self) -> *mut rocksdb_readoptions_t {
        self.0.as_ptr()
    }

    /// The scope of a snapshot.
    pub(crate) fn at(self, snapshot: &Snapshot<'_>) -> Self {
        // SAFETY: both are valid; RocksDB keeps the address of the snapshot, which outlives each read.
        unsafe { rocksdb_readoptions_set_snapshot(self.as_ptr(), snapshot.handle()) }
        self
    }
}

impl Drop for ReadOptions {
    fn drop(&mut self) {
        // SAFETY: it is destroyed once.
        unsafe { rocksdb_readoptions_destroy(self.0.as_ptr()) }
    }
}

/// Writes a range deletion.
impl Database {
    /// Deletes the keys from the first one to before the last one, of the default column family.
    ///
    /// # Errors
    /// What RocksDB said.
    pub fn delete_range(&self, from: &[u8], to: &[u8]) -> Result<(), DatabaseError> {
        // SAFETY: the slices outlive the calls; the batch is destroyed once.
        unsafe {
            let batch = rocksdb_writebatch_create();
            rocksdb_writebatch_delete_range(batch, from.as_ptr().cast(), from.len(), to.as_ptr().cast(), to.len());
            let written = checked(|error| rocksdb_write(self.handle(), self.writing(), batch, error));
            rocksdb_writebatch_destroy(batch);
            written
        }
    }
}
