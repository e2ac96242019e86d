//! Reading, writing and running functions, waited for or not.

use crate::error::{self, Failure, guard, guard_int};
use crate::file::ds_file;
use crate::function::ds_function;
use crate::memory::{self, bytes_of, elements, location_of, object};
use crate::options::ds_options;
use crate::result::ds_result;
use crate::session::ds_session;
use libc::ssize_t;
use rust::io::buffer::Buffer;
use rust::session::{Followed, KernelRan, Pending, Ran};
use std::ffi::{c_char, c_int, c_void};

/// A request under way.
pub struct ds_request(Request);

enum Request {
    Read(Pending<Buffer>),
    Write(Pending<u64>),
    ReadFn(Pending<Ran>),
    WriteFn(Pending<Ran>),
    Call(Pending<Vec<u8>>),
    Traverse(Pending<Followed>),
    Launch(Pending<KernelRan>),
}

/// A prepared call.
pub(crate) fn of_call(pending: Pending<Vec<u8>>) -> ds_request {
    ds_request(Request::Call(pending))
}

/// A function that follows pointers.
pub(crate) fn of_traversal(pending: Pending<Followed>) -> ds_request {
    ds_request(Request::Traverse(pending))
}

/// A kernel.
pub(crate) fn of_launch(pending: Pending<KernelRan>) -> ds_request {
    ds_request(Request::Launch(pending))
}

/// Reads as pread(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_pread(file: *const ds_file, buffer: *mut c_void, len: usize, offset: u64) -> ssize_t {
    // SAFETY: the caller keeps the crate's contract.
    unsafe { ds_wait(ds_submit_pread(file, len, offset), buffer, len) }
}

/// Writes as pwrite(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_pwrite(file: *const ds_file, buffer: *const c_void, len: usize, offset: u64) -> ssize_t {
    // SAFETY: the caller keeps the crate's contract.
    unsafe { ds_wait(ds_submit_pwrite(file, buffer, len, offset), std::ptr::null_mut(), 0) }
}

/// Runs a function over len bytes at offset (UINT64_MAX: to the end) and copies its result, of which there may
/// be cap bytes. Returns the result's length; -ENOBUFS if it is longer than cap. options may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_pread_fn(
    file: *const ds_file,
    result: *mut c_void,
    cap: usize,
    offset: u64,
    len: u64,
    function: *const ds_function,
    args: *const c_void,
    args_len: usize,
    options: *const ds_options,
) -> ssize_t {
    // SAFETY: the caller keeps the crate's contract.
    unsafe { ds_wait(ds_submit_pread_fn(file, offset, len, function, args, args_len, options), result, cap) }
}

/// Runs a function over the buffer and writes its output at offset. Returns the output's length. options may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_pwrite_fn(
    file: *const ds_file,
    buffer: *const c_void,
    len: usize,
    offset: u64,
    function: *const ds_function,
    args: *const c_void,
    args_len: usize,
    options: *const ds_options,
) -> ssize_t {
    // SAFETY: the caller keeps the crate's contract.
    unsafe {
        let request = ds_submit_pwrite_fn(file, buffer, len, offset, function, args, args_len, options);
        ds_wait(request, std::ptr::null_mut(), 0)
    }
}

/// As ds_pread, without waiting. The bytes are copied when they are taken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_submit_pread(file: *const ds_file, len: usize, offset: u64) -> *mut ds_request {
    // SAFETY: the caller keeps the crate's contract.
    guard(|| Ok(ds_request(Request::Read(unsafe { object(file)? }.0.pread(offset, len)))))
}

/// As ds_pwrite, without waiting. The buffer is copied at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_submit_pwrite(
    file: *const ds_file,
    buffer: *const c_void,
    len: usize,
    offset: u64,
) -> *mut ds_request {
    guard(|| {
        // SAFETY: the caller keeps the crate's contract.
        let (file, bytes) = unsafe { (object(file)?, bytes_of(buffer, len)?) };
        Ok(ds_request(Request::Write(file.0.pwrite(offset, bytes.to_vec(), false))))
    })
}

/// As ds_pread_fn, without waiting. Arguments and options are copied at once, the result when it is taken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_submit_pread_fn(
    file: *const ds_file,
    offset: u64,
    len: u64,
    function: *const ds_function,
    args: *const c_void,
    args_len: usize,
    options: *const ds_options,
) -> *mut ds_request {
    guard(|| {
        // SAFETY: the caller keeps the crate's contract.
        let (file, function, args) = unsafe { (object(file)?, object(function)?, bytes_of(args, args_len)?) };
        // SAFETY: as above.
        let options = unsafe { ds_options::read(options)? };
        let pending = match len {
            u64::MAX => file.0.pread_fn(offset.., &function.0, args, &options),
            len => file.0.pread_fn(offset..offset.saturating_add(len), &function.0, args, &options),
        };
        Ok(ds_request(Request::ReadFn(pending)))
    })
}

/// As ds_pwrite_fn, without waiting. The buffer, arguments and options are copied at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_submit_pwrite_fn(
    file: *const ds_file,
    buffer: *const c_void,
    len: usize,
    offset: u64,
    function: *const ds_function,
    args: *const c_void,
    args_len: usize,
    options: *const ds_options,
) -> *mut ds_request {
    guard(|| {
        // SAFETY: the caller keeps the crate's contract.
        let (file, function, args) = unsafe { (object(file)?, object(function)?, bytes_of(args, args_len)?) };
        // SAFETY: as above.
        let (bytes, options) = unsafe { (bytes_of(buffer, len)?.to_vec(), ds_options::read(options)?) };
        Ok(ds_request(Request::WriteFn(file.0.pwrite_fn(offset, bytes, &function.0, args, &options))))
    })
}

/// Runs a function over count whole files, wherever each is, several at once, and puts their results together in this
/// order: with the function's combine, or one after another. With out (a path, or diskside://HOST/EXPORT/PATH) the
/// result becomes that file, which appears whole or not at all, and ds_wait gives its length; NULL: ds_wait copies it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_submit_run(
    session: *mut ds_session,
    files: *const *const ds_file,
    count: usize,
    function: *const ds_function,
    args: *const c_void,
    args_len: usize,
    options: *const ds_options,
    out: *const c_char,
) -> *mut ds_request {
    guard(|| {
        // SAFETY: the caller keeps the crate's contract.
        let (session, function) = unsafe { (object(session)?, object(function)?) };
        // SAFETY: as above.
        let (files, args) = unsafe { (elements(files, count)?, bytes_of(args, args_len)?) };
        // SAFETY: as above.
        let files = files.iter().map(|file| Ok(unsafe { object(*file)? }.0.clone()));
        let files = files.collect::<Result<Vec<_>, Failure>>()?;
        // SAFETY: as above.
        let options = unsafe { ds_options::read(options)? };
        // SAFETY: as above.
        let out = if out.is_null() { None } else { Some(unsafe { location_of(out)? }) };
        let written = out.is_some();
        let pending = session.0.submit_run(&files, &function.0, args, &options, out);
        Ok(ds_request(if written { Request::WriteFn(pending) } else { Request::ReadFn(pending) }))
    })
}

/// 1 if the request is done, else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_poll(request: *const ds_request) -> c_int {
    guard_int(|| {
        // SAFETY: the caller keeps the crate's contract.
        Ok(match &unsafe { object(request)? }.0 {
            Request::Read(pending) => pending.is_done(),
            Request::Write(pending) => pending.is_done(),
            Request::ReadFn(pending) | Request::WriteFn(pending) => pending.is_done(),
            Request::Call(pending) => pending.is_done(),
            Request::Traverse(pending) => pending.is_done(),
            Request::Launch(pending) => pending.is_done(),
        }
        .into())
    }) as c_int
}

/// Asks that the request's function be stopped, here or at the target, and does not wait. The request then ends with
/// -ECANCELED, or well if it was faster; when ds_wait returns, nothing of it runs or writes any more. Plain reads and writes
/// end by themselves.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_cancel(request: *const ds_request) -> c_int {
    guard_int(|| {
        // SAFETY: the caller keeps the crate's contract.
        match &unsafe { object(request)? }.0 {
            Request::Read(pending) => pending.cancel(),
            Request::Write(pending) => pending.cancel(),
            Request::ReadFn(pending) | Request::WriteFn(pending) => pending.cancel(),
            Request::Call(pending) => pending.cancel(),
            Request::Traverse(pending) => pending.cancel(),
            Request::Launch(pending) => pending.cancel(),
        }
        Ok(0)
    }) as c_int
}

/// Waits, copies the result, of which there may be cap bytes, and frees the request. Returns the length of what was read
/// or written. If the request is NULL, this is the failure of the call that was to make it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_wait(request: *mut ds_request, result: *mut c_void, cap: usize) -> ssize_t {
    if request.is_null() && error::last_code() != 0 {
        return error::last_code();
    }
    guard_int(|| {
        // SAFETY: the caller keeps the crate's contract.
        let request = unsafe { memory::take(request)? };
        let written = |len: u64| isize::try_from(len).map_err(Failure::invalid);
        match request.0 {
            // SAFETY: as above.
            Request::Read(pending) => unsafe { memory::copy_out(&pending.wait()?, result, cap) },
            Request::Write(pending) => written(pending.wait()?),
            // SAFETY: as above.
            Request::ReadFn(pending) => unsafe { memory::copy_out(&pending.wait()?.result, result, cap) },
            Request::WriteFn(pending) => written(pending.wait()?.written_bytes),
            // SAFETY: as above.
            Request::Call(pending) => unsafe { memory::copy_out(&pending.wait()?, result, cap) },
            // SAFETY: as above.
            Request::Traverse(pending) => unsafe { memory::copy_out(&pending.wait()?.result, result, cap) },
            // SAFETY: as above.
            Request::Launch(pending) => unsafe { memory::copy_out(&pending.wait()?.result, result, cap) },
        }
    })
}

/// Waits, frees the request, and gives its result, however long, with its statistics (a prepared call, and plain reads
/// and writes, have only the result). If the request is NULL, this is the failure of the call that was to make it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_wait_result(request: *mut ds_request) -> *mut ds_result {
    if request.is_null() && error::last_code() != 0 {
        return std::ptr::null_mut();
    }
    guard(|| {
        // SAFETY: the caller keeps the crate's contract.
        let request = unsafe { memory::take(request)? };
        let ran = match request.0 {
            Request::Read(pending) => Ran { result: pending.wait()?.to_vec(), ..Ran::default() },
            Request::Write(pending) => Ran { written_bytes: pending.wait()?, ..Ran::default() },
            Request::ReadFn(pending) | Request::WriteFn(pending) => pending.wait()?,
            Request::Call(pending) => Ran { result: pending.wait()?, ..Ran::default() },
            Request::Traverse(pending) => return Ok(ds_result::of_traversal(pending.wait()?)),
            Request::Launch(pending) => return Ok(ds_result::of_launch(pending.wait()?)),
        };
        Ok(ds_result::new(ran))
    })
}

/// Abandons a request: its function is stopped as by ds_cancel, without a report of when. A plain write may still take
/// effect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_request_free(request: *mut ds_request) {
    // SAFETY: the caller keeps the crate's contract.
    unsafe { memory::free(request) };
}
