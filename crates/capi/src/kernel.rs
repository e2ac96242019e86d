//! Kernels: functions that read and write files themselves.

use crate::error::{Failure, guard, guard_int};
use crate::file::ds_file;
use crate::function;
use crate::memory::{self, bytes_of, elements, object, text_of};
use crate::options::ds_options;
use crate::request::{self, ds_request};
use crate::result::ds_result;
use crate::session::ds_session;
use libc::ssize_t;
use rust::session::{File, SessionKernel};
use std::ffi::{c_char, c_void};

/// A function that reads and writes files itself: of kind kernel.
pub struct ds_kernel(SessionKernel);

/// Finds a kernel, as ds_function_find finds functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_kernel_find(session: *mut ds_session, what: *const c_char) -> *mut ds_kernel {
    guard(|| {
        // SAFETY: the caller keeps the crate's contract.
        let (session, what) = unsafe { (object(session)?, text_of(what)?) };
        session.0.kernel(what).map(ds_kernel).map_err(Failure::invalid)
    })
}

/// As ds_function_args, for a kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_kernel_args(
    kernel: *const ds_kernel,
    pairs: *const *const c_char,
    count: usize,
    args: *mut c_void,
    cap: usize,
) -> ssize_t {
    guard_int(|| {
        // SAFETY: the caller keeps the crate's contract.
        let (kernel, pairs) = unsafe { (object(kernel)?, elements(pairs, count)?) };
        // SAFETY: as above.
        let bytes = unsafe { function::encode(kernel.0.args(), pairs)? };
        // SAFETY: as above.
        unsafe { memory::copy_out(&bytes, args, cap) }
    })
}

/// Launches a kernel. It knows its files by numbers from 0: `count` of them, which it may read, and behind them those of
/// writable, which were opened to be written. It runs once, at the target that has all of them, or here. Of options, which may
/// be NULL, count: place, tier, DS_BACKGROUND, chunk_len (bytes of a slice), budget, deadline_ms, result_len_max, heap_len,
/// depth (accesses under way), direct and result_blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_submit_launch(
    session: *mut ds_session,
    files: *const *const ds_file,
    count: usize,
    writable: *const *const ds_file,
    writable_count: usize,
    kernel: *const ds_kernel,
    args: *const c_void,
    args_len: usize,
    options: *const ds_options,
) -> *mut ds_request {
    guard(|| {
        // SAFETY: the caller keeps the crate's contract.
        let (session, kernel, args) = unsafe { (object(session)?, object(kernel)?, bytes_of(args, args_len)?) };
        // SAFETY: as above.
        let (files, writable) = unsafe { (files_of(files, count)?, files_of(writable, writable_count)?) };
        // SAFETY: as above.
        let options = unsafe { ds_options::read(options)? };
        Ok(request::of_launch(session.0.launch(&files, &writable, &kernel.0, args, &options)))
    })
}

/// The mask of a kernel's result: bit i % 8 of byte i / 8 is 1 if its block i, of 4096 bytes, was given back, and 0 if it was held
/// back and is zeroes here. Returns its length in bytes; 0: the whole result was given back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_result_blocks(result: *const ds_result, mask: *mut u8, cap: usize) -> ssize_t {
    guard_int(|| {
        // SAFETY: the caller keeps the crate's contract.
        let result = unsafe { object(result)? };
        // SAFETY: as above.
        unsafe { memory::copy_out(result.blocks(), mask.cast(), cap) }
    })
}

/// Frees a kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_kernel_free(kernel: *mut ds_kernel) {
    // SAFETY: the caller keeps the crate's contract.
    unsafe { memory::free(kernel) };
}

/// # Safety
/// The crate's contract.
unsafe fn files_of(files: *const *const ds_file, count: usize) -> Result<Vec<File>, Failure> {
    // SAFETY: the caller's promise.
    let files = unsafe { elements(files, count)? };
    // SAFETY: as above.
    files.iter().map(|file| Ok(unsafe { object(*file)? }.0.clone())).collect()
}
