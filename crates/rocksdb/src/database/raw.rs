//! Strings, values and errors of the C interface.

use super::DatabaseError;
use crate::ffi::*;
use crate::plan::{TableFile, number_of};
use std::ffi::{CStr, CString, c_char};
use std::ptr;

/// Calls with room for an error, which RocksDB allocates.
pub(crate) fn checked<T>(call: impl FnOnce(*mut *mut c_char) -> T) -> Result<T, DatabaseError> {
    let mut error = ptr::null_mut();
    let value = call(&raw mut error);
    // SAFETY: RocksDB leaves null there, or an error that is ours.
    unsafe { refused(error) }.map(|()| value)
}

/// Takes an error of RocksDB's; null is none.
///
/// # Safety
/// It must be ours.
pub(super) unsafe fn refused(error: *mut c_char) -> Result<(), DatabaseError> {
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
pub(super) unsafe fn pinned_value(value: *mut rocksdb_pinnableslice_t) -> Option<Vec<u8>> {
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
pub(super) unsafe fn taken(bytes: *mut c_char, len: usize) -> Vec<u8> {
    // SAFETY: the caller's promise.
    unsafe {
        let copy = std::slice::from_raw_parts(bytes.cast::<u8>(), len).to_vec();
        rocksdb_free(bytes.cast());
        copy
    }
}

/// # Safety
/// The metadata of a file must be valid.
pub(super) unsafe fn table_file(file: *mut rocksdb_sst_file_metadata_t) -> Option<TableFile> {
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

pub(super) fn chars(bytes: &[u8]) -> *const c_char {
    bytes.as_ptr().cast()
}

pub(super) fn c_string(bytes: &[u8]) -> Result<CString, DatabaseError> {
    CString::new(bytes).map_err(|error| DatabaseError(error.to_string()))
}
