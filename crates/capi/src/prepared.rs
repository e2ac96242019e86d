//! Functions that run often over one short range.

use crate::error::{guard, guard_int};
use crate::file::ds_file;
use crate::function::ds_function;
use crate::memory::{self, bytes_of, object};
use crate::options::{ds_options, ds_place};
use crate::request::{self, ds_request, ds_wait};
use libc::ssize_t;
use rust::session::{Prepared, Side};
use std::ffi::{c_int, c_void};

/// A function over a range of a file, ready to be called often.
pub struct ds_prepared(Prepared);

/// Prepares a function to run often over len bytes at offset (UINT64_MAX: to the end). The target keeps the request, so that
/// each call is one command; its result may have 256 KiB. It runs at the device, unless options say DS_HOST or the file is
/// here. options may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_prepare(
    file: *const ds_file,
    offset: u64,
    len: u64,
    function: *const ds_function,
    args: *const c_void,
    args_len: usize,
    options: *const ds_options,
) -> *mut ds_prepared {
    guard(|| {
        // SAFETY: the caller keeps the crate's contract.
        let (file, function, args) = unsafe { (object(file)?, object(function)?, bytes_of(args, args_len)?) };
        // SAFETY: as above.
        let options = unsafe { ds_options::read(options)? };
        Ok(ds_prepared(match len {
            u64::MAX => file.0.prepare(offset.., &function.0, args, &options)?,
            len => file.0.prepare(offset..offset.saturating_add(len), &function.0, args, &options)?,
        }))
    })
}

/// DS_HOST or DS_DEVICE: where it runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_prepared_place(prepared: *const ds_prepared) -> c_int {
    guard_int(|| {
        // SAFETY: the caller keeps the crate's contract.
        Ok(match unsafe { object(prepared)? }.0.side() {
            Side::Host => ds_place::DS_HOST as isize,
            Side::Device => ds_place::DS_DEVICE as isize,
        })
    }) as c_int
}

/// Runs it and copies its result, of which there may be cap bytes; returns the result's length. args, up to 16 bytes, take
/// the place of the first of those that it was prepared with.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_prepared_call(
    prepared: *const ds_prepared,
    args: *const c_void,
    args_len: usize,
    result: *mut c_void,
    cap: usize,
) -> ssize_t {
    // SAFETY: the caller keeps the crate's contract.
    unsafe { ds_wait(ds_submit_prepared_call(prepared, args, args_len), result, cap) }
}

/// As ds_prepared_call, without waiting; several may be under way. At a target a call ends within ten seconds by itself:
/// ds_cancel does nothing there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_submit_prepared_call(
    prepared: *const ds_prepared,
    args: *const c_void,
    args_len: usize,
) -> *mut ds_request {
    guard(|| {
        // SAFETY: the caller keeps the crate's contract.
        let (prepared, args) = unsafe { (object(prepared)?, bytes_of(args, args_len)?) };
        Ok(request::of_call(prepared.0.call(args)))
    })
}

/// Frees it; calls that are under way continue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_prepared_free(prepared: *mut ds_prepared) {
    // SAFETY: the caller keeps the crate's contract.
    unsafe { memory::free(prepared) };
}
