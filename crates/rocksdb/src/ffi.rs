//! RocksDB's C interface, as far as it is used here (`rocksdb/c.h`; the same from 7.8 to 11).

use std::ffi::{c_char, c_int, c_uchar};

/// Declares types that are known by pointers alone.
macro_rules! opaque {
    ($($name:ident)*) => {
        $(
            #[repr(C)]
            pub(crate) struct $name {
                _private: [u8; 0],
            }
        )*
    };
}

opaque! {
    rocksdb_t rocksdb_options_t rocksdb_readoptions_t rocksdb_writeoptions_t rocksdb_flushoptions_t rocksdb_iterator_t
    rocksdb_env_t rocksdb_snapshot_t rocksdb_writebatch_t rocksdb_checkpoint_t rocksdb_column_family_handle_t rocksdb_pinnableslice_t
    rocksdb_column_family_metadata_t rocksdb_level_metadata_t rocksdb_sst_file_metadata_t
}

pub(crate) const BLOCK_CACHE_TIER: c_int = 1;
pub(crate) const MEMTABLE_TIER: c_int = 3;

#[link(name = "rocksdb")]
unsafe extern "C" {
    pub(crate) fn rocksdb_free(ptr: *mut std::ffi::c_void);

    pub(crate) fn rocksdb_create_mem_env() -> *mut rocksdb_env_t;
    pub(crate) fn rocksdb_env_destroy(env: *mut rocksdb_env_t);

    pub(crate) fn rocksdb_options_create() -> *mut rocksdb_options_t;
    pub(crate) fn rocksdb_options_destroy(options: *mut rocksdb_options_t);
    pub(crate) fn rocksdb_options_set_env(options: *mut rocksdb_options_t, env: *mut rocksdb_env_t);
    pub(crate) fn rocksdb_options_set_create_if_missing(options: *mut rocksdb_options_t, yes: c_uchar);
    pub(crate) fn rocksdb_get_options_from_string(
        base: *const rocksdb_options_t,
        text: *const c_char,
        options: *mut rocksdb_options_t,
        error: *mut *mut c_char,
    );

    pub(crate) fn rocksdb_open(
        options: *const rocksdb_options_t,
        path: *const c_char,
        error: *mut *mut c_char,
    ) -> *mut rocksdb_t;
    pub(crate) fn rocksdb_open_column_families(
        options: *const rocksdb_options_t,
        path: *const c_char,
        count: c_int,
        names: *const *const c_char,
        family_options: *const *const rocksdb_options_t,
        families: *mut *mut rocksdb_column_family_handle_t,
        error: *mut *mut c_char,
    ) -> *mut rocksdb_t;
    pub(crate) fn rocksdb_column_family_handle_destroy(family: *mut rocksdb_column_family_handle_t);
    pub(crate) fn rocksdb_close(db: *mut rocksdb_t);

    pub(crate) fn rocksdb_readoptions_create() -> *mut rocksdb_readoptions_t;
    pub(crate) fn rocksdb_readoptions_destroy(options: *mut rocksdb_readoptions_t);
    pub(crate) fn rocksdb_readoptions_set_read_tier(options: *mut rocksdb_readoptions_t, tier: c_int);
    pub(crate) fn rocksdb_readoptions_set_background_purge_on_iterator_cleanup(
        options: *mut rocksdb_readoptions_t,
        yes: c_uchar,
    );
    pub(crate) fn rocksdb_readoptions_set_deadline(options: *mut rocksdb_readoptions_t, microseconds: u64);
    pub(crate) fn rocksdb_writeoptions_create() -> *mut rocksdb_writeoptions_t;
    pub(crate) fn rocksdb_writeoptions_destroy(options: *mut rocksdb_writeoptions_t);
    pub(crate) fn rocksdb_flushoptions_create() -> *mut rocksdb_flushoptions_t;
    pub(crate) fn rocksdb_flushoptions_destroy(options: *mut rocksdb_flushoptions_t);

    pub(crate) fn rocksdb_readoptions_set_snapshot(
        options: *mut rocksdb_readoptions_t,
        snapshot: *const rocksdb_snapshot_t,
    );
    pub(crate) fn rocksdb_create_snapshot(db: *mut rocksdb_t) -> *const rocksdb_snapshot_t;
    pub(crate) fn rocksdb_release_snapshot(db: *mut rocksdb_t, snapshot: *const rocksdb_snapshot_t);
    pub(crate) fn rocksdb_get_latest_sequence_number(db: *mut rocksdb_t) -> u64;
    pub(crate) fn rocksdb_column_family_handle_get_id(family: *mut rocksdb_column_family_handle_t) -> u32;
    pub(crate) fn rocksdb_checkpoint_object_create(
        db: *mut rocksdb_t,
        error: *mut *mut c_char,
    ) -> *mut rocksdb_checkpoint_t;
    pub(crate) fn rocksdb_checkpoint_object_destroy(checkpoint: *mut rocksdb_checkpoint_t);
    pub(crate) fn rocksdb_checkpoint_create(
        checkpoint: *mut rocksdb_checkpoint_t,
        directory: *const c_char,
        log_len_for_flush: u64,
        error: *mut *mut c_char,
    );
    pub(crate) fn rocksdb_disable_file_deletions(db: *mut rocksdb_t, error: *mut *mut c_char);
    // The same from 7.8 to 8; from 9 on without `force`, which a C caller may pass nevertheless.
    pub(crate) fn rocksdb_enable_file_deletions(db: *mut rocksdb_t, force: c_uchar, error: *mut *mut c_char);
    pub(crate) fn rocksdb_writebatch_create() -> *mut rocksdb_writebatch_t;
    pub(crate) fn rocksdb_writebatch_destroy(batch: *mut rocksdb_writebatch_t);
    pub(crate) fn rocksdb_writebatch_delete_range(
        batch: *mut rocksdb_writebatch_t,
        from: *const c_char,
        from_len: usize,
        to: *const c_char,
        to_len: usize,
    );
    pub(crate) fn rocksdb_write(
        db: *mut rocksdb_t,
        options: *const rocksdb_writeoptions_t,
        batch: *mut rocksdb_writebatch_t,
        error: *mut *mut c_char,
    );
    pub(crate) fn rocksdb_put_cf(
        db: *mut rocksdb_t,
        options: *const rocksdb_writeoptions_t,
        family: *mut rocksdb_column_family_handle_t,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
        error: *mut *mut c_char,
    );
    pub(crate) fn rocksdb_get_cf(
        db: *mut rocksdb_t,
        options: *const rocksdb_readoptions_t,
        family: *mut rocksdb_column_family_handle_t,
        key: *const c_char,
        key_len: usize,
        value_len: *mut usize,
        error: *mut *mut c_char,
    ) -> *mut c_char;
    pub(crate) fn rocksdb_flush_cf(
        db: *mut rocksdb_t,
        options: *const rocksdb_flushoptions_t,
        family: *mut rocksdb_column_family_handle_t,
        error: *mut *mut c_char,
    );
    pub(crate) fn rocksdb_property_int_cf(
        db: *mut rocksdb_t,
        family: *mut rocksdb_column_family_handle_t,
        name: *const c_char,
        value: *mut u64,
    ) -> c_int;
    pub(crate) fn rocksdb_create_iterator_cf(
        db: *mut rocksdb_t,
        options: *const rocksdb_readoptions_t,
        family: *mut rocksdb_column_family_handle_t,
    ) -> *mut rocksdb_iterator_t;
    pub(crate) fn rocksdb_get_column_family_metadata_cf(
        db: *mut rocksdb_t,
        family: *mut rocksdb_column_family_handle_t,
    ) -> *mut rocksdb_column_family_metadata_t;
    pub(crate) fn rocksdb_put(
        db: *mut rocksdb_t,
        options: *const rocksdb_writeoptions_t,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
        error: *mut *mut c_char,
    );
    pub(crate) fn rocksdb_merge(
        db: *mut rocksdb_t,
        options: *const rocksdb_writeoptions_t,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
        error: *mut *mut c_char,
    );
    pub(crate) fn rocksdb_delete(
        db: *mut rocksdb_t,
        options: *const rocksdb_writeoptions_t,
        key: *const c_char,
        key_len: usize,
        error: *mut *mut c_char,
    );
    pub(crate) fn rocksdb_get(
        db: *mut rocksdb_t,
        options: *const rocksdb_readoptions_t,
        key: *const c_char,
        key_len: usize,
        value_len: *mut usize,
        error: *mut *mut c_char,
    ) -> *mut c_char;
    pub(crate) fn rocksdb_batched_multi_get_cf(
        db: *mut rocksdb_t,
        options: *const rocksdb_readoptions_t,
        family: *mut rocksdb_column_family_handle_t,
        count: usize,
        keys: *const *const c_char,
        key_lens: *const usize,
        values: *mut *mut rocksdb_pinnableslice_t,
        errors: *mut *mut c_char,
        are_sorted: bool,
    );
    pub(crate) fn rocksdb_pinnableslice_value(value: *const rocksdb_pinnableslice_t, len: *mut usize) -> *const c_char;
    pub(crate) fn rocksdb_pinnableslice_destroy(value: *mut rocksdb_pinnableslice_t);
    pub(crate) fn rocksdb_flush(db: *mut rocksdb_t, options: *const rocksdb_flushoptions_t, error: *mut *mut c_char);
    pub(crate) fn rocksdb_compact_range(
        db: *mut rocksdb_t,
        start: *const c_char,
        start_len: usize,
        limit: *const c_char,
        limit_len: usize,
    );

    pub(crate) fn rocksdb_property_int(db: *mut rocksdb_t, name: *const c_char, value: *mut u64) -> c_int;

    pub(crate) fn rocksdb_create_iterator(
        db: *mut rocksdb_t,
        options: *const rocksdb_readoptions_t,
    ) -> *mut rocksdb_iterator_t;
    pub(crate) fn rocksdb_iter_destroy(iterator: *mut rocksdb_iterator_t);
    pub(crate) fn rocksdb_iter_seek(iterator: *mut rocksdb_iterator_t, key: *const c_char, key_len: usize);
    pub(crate) fn rocksdb_iter_valid(iterator: *const rocksdb_iterator_t) -> c_uchar;
    pub(crate) fn rocksdb_iter_key(iterator: *const rocksdb_iterator_t, len: *mut usize) -> *const c_char;
    pub(crate) fn rocksdb_iter_value(iterator: *const rocksdb_iterator_t, len: *mut usize) -> *const c_char;
    pub(crate) fn rocksdb_iter_next(iterator: *mut rocksdb_iterator_t);
    pub(crate) fn rocksdb_iter_get_error(iterator: *const rocksdb_iterator_t, error: *mut *mut c_char);

    pub(crate) fn rocksdb_get_column_family_metadata(db: *mut rocksdb_t) -> *mut rocksdb_column_family_metadata_t;
    pub(crate) fn rocksdb_column_family_metadata_destroy(family: *mut rocksdb_column_family_metadata_t);
    pub(crate) fn rocksdb_column_family_metadata_get_level_count(
        family: *mut rocksdb_column_family_metadata_t,
    ) -> usize;
    pub(crate) fn rocksdb_column_family_metadata_get_level_metadata(
        family: *mut rocksdb_column_family_metadata_t,
        i: usize,
    ) -> *mut rocksdb_level_metadata_t;
    pub(crate) fn rocksdb_level_metadata_destroy(level: *mut rocksdb_level_metadata_t);
    pub(crate) fn rocksdb_level_metadata_get_file_count(level: *mut rocksdb_level_metadata_t) -> usize;
    pub(crate) fn rocksdb_level_metadata_get_sst_file_metadata(
        level: *mut rocksdb_level_metadata_t,
        i: usize,
    ) -> *mut rocksdb_sst_file_metadata_t;
    pub(crate) fn rocksdb_sst_file_metadata_destroy(file: *mut rocksdb_sst_file_metadata_t);
    pub(crate) fn rocksdb_sst_file_metadata_get_relative_filename(
        file: *mut rocksdb_sst_file_metadata_t,
    ) -> *mut c_char;
    pub(crate) fn rocksdb_sst_file_metadata_get_size(file: *mut rocksdb_sst_file_metadata_t) -> u64;
    pub(crate) fn rocksdb_sst_file_metadata_get_smallestkey(
        file: *mut rocksdb_sst_file_metadata_t,
        len: *mut usize,
    ) -> *mut c_char;
    pub(crate) fn rocksdb_sst_file_metadata_get_largestkey(
        file: *mut rocksdb_sst_file_metadata_t,
        len: *mut usize,
    ) -> *mut c_char;
}
