//! `libdiskside`: sessions, functions and files for C. `include/libdiskside.h` says what each call does.
//!
//! Objects are boxes behind pointers. The unsafe code here trusts the caller in what C callers are trusted in:
//! that a pointer is NULL or came from here and was not freed, that a string ends with a NUL, and that a buffer
//! has as many bytes as was said. Nothing unwinds into C: a panic becomes `-EIO` with its message.

mod error;
pub mod lambda;
mod memory;

use error::{Failure, guard, guard_int};
use memory::{bytes_of, object, text_of};
use session::session::{File, OpenMode, Pending, Ran, RunOptions, Session, SessionFunction, SessionOptions, Where};
use std::ffi::{c_char, c_int, c_void};

/// A session.
#[allow(non_camel_case_types, reason = "C's name")]
pub struct ds_session(Session);
/// A function.
#[allow(non_camel_case_types, reason = "C's name")]
pub struct ds_function(SessionFunction);
/// A file.
#[allow(non_camel_case_types, reason = "C's name")]
pub struct ds_file(File);
/// A request under way.
#[allow(non_camel_case_types, reason = "C's name")]
pub struct ds_request(Request);

enum Request {
    Read(Pending<session::io::buffer::Buffer>),
    Write(Pending<u64>),
    ReadFn(Pending<Ran>),
    WriteFn(Pending<Ran>),
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn ds_error() -> *const c_char {
    error::last()
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn ds_error_kind() -> c_int {
    error::last_kind()
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn ds_session_new(cache_len: u64) -> *mut ds_session {
    guard(|| Ok(ds_session(Session::new(SessionOptions { cache_len_bytes: cache_len, ..SessionOptions::default() }))))
}

/// See the header.
///
/// # Safety
/// `session` is NULL or from `ds_session_new`, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_session_free(session: *mut ds_session) {
    // SAFETY: the caller's promise is this function's.
    unsafe { memory::free(session) };
}

/// See the header.
///
/// # Safety
/// `session` is NULL or valid; `what` is NULL or ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_function_find(session: *mut ds_session, what: *const c_char) -> *mut ds_function {
    guard(|| {
        // SAFETY: the caller's promise is this function's.
        let (session, what) = unsafe { (object(session)?, text_of(what)?) };
        session.0.function(what).map(ds_function).map_err(Failure::invalid)
    })
}

/// See the header.
///
/// # Safety
/// `session` is NULL or valid; `object_bytes` has `len` bytes; `name` is NULL or ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_function_load(
    session: *mut ds_session,
    object_bytes: *const c_void,
    len: usize,
    name: *const c_char,
) -> *mut ds_function {
    guard(|| {
        // SAFETY: the caller's promise is this function's.
        let (session, bytes) = unsafe { (object(session)?, bytes_of(object_bytes, len)?) };
        // SAFETY: as above.
        let name = if name.is_null() { None } else { Some(unsafe { text_of(name)? }) };
        session.0.load(bytes, name).map(ds_function).map_err(Failure::invalid)
    })
}

/// See the header.
///
/// # Safety
/// `function` is NULL or valid; `pairs` has `count` strings; `args` has room for `cap` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_function_args(
    function: *const ds_function,
    pairs: *const *const c_char,
    count: usize,
    args: *mut c_void,
    cap: usize,
) -> isize {
    guard_int(|| {
        // SAFETY: the caller's promise is this function's.
        let (function, pairs) = unsafe { (object(function)?, memory::pointers(pairs, count)?) };
        let mut given = Vec::new();
        for pair in pairs {
            // SAFETY: as above.
            let pair = unsafe { text_of(*pair)? };
            let (name, value) =
                pair.split_once('=').ok_or_else(|| Failure::invalid(format!("{pair}: write NAME=VALUE")))?;
            given.push((name.to_owned(), value.to_owned()));
        }
        let bytes = match function.0.args() {
            Some(schema) => session::args::encode(schema, &given).map_err(Failure::invalid)?,
            None if given.is_empty() => Vec::new(),
            None => return Err(Failure::invalid("the function describes no arguments; compile it with -g")),
        };
        // SAFETY: as above.
        unsafe { memory::copy_out(&bytes, args, cap) }
    })
}

/// See the header.
///
/// # Safety
/// `function` is NULL or from here, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_function_free(function: *mut ds_function) {
    // SAFETY: the caller's promise is this function's.
    unsafe { memory::free(function) };
}

/// See the header.
///
/// # Safety
/// `session` is NULL or valid; `path` is NULL or ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_file_open(session: *mut ds_session, path: *const c_char, mode: c_int) -> *mut ds_file {
    guard(|| {
        // SAFETY: the caller's promise is this function's.
        let (session, path) = unsafe { (object(session)?, text_of(path)?) };
        let mode = match mode {
            0 => OpenMode::Read,
            1 => OpenMode::Write,
            2 => OpenMode::Create,
            _ => return Err(Failure::invalid(format!("{mode} is no mode: DS_READ, DS_WRITE or DS_CREATE"))),
        };
        let location = path.parse().map_err(Failure::invalid)?;
        Ok(ds_file(session.0.open_as(&location, mode)?))
    })
}

/// See the header.
///
/// # Safety
/// `file` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_file_len(file: *const ds_file) -> i64 {
    // SAFETY: the caller's promise is this function's.
    guard_int(|| Ok(unsafe { object(file)? }.0.len_bytes()? as isize)) as i64
}

/// See the header.
///
/// # Safety
/// `file` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_file_sync(file: *const ds_file) -> c_int {
    // SAFETY: the caller's promise is this function's.
    guard_int(|| Ok(unsafe { object(file)? }.0.sync().wait().map(|()| 0)?)) as c_int
}

/// See the header.
///
/// # Safety
/// `file` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_file_truncate(file: *const ds_file, len: u64) -> c_int {
    // SAFETY: the caller's promise is this function's.
    guard_int(|| Ok(unsafe { object(file)? }.0.truncate(len).map(|()| 0)?)) as c_int
}

/// See the header.
///
/// # Safety
/// `file` is NULL or from here, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_file_free(file: *mut ds_file) {
    // SAFETY: the caller's promise is this function's.
    unsafe { memory::free(file) };
}

/// See the header.
///
/// # Safety
/// `file` is NULL or valid; `buffer` has room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_pread(file: *const ds_file, buffer: *mut c_void, len: usize, offset: u64) -> isize {
    // SAFETY: the caller's promise is that of both.
    unsafe { ds_wait_if(ds_submit_pread(file, len, offset), buffer, len) }
}

/// See the header.
///
/// # Safety
/// `file` is NULL or valid; `buffer` has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_pwrite(file: *const ds_file, buffer: *const c_void, len: usize, offset: u64) -> isize {
    // SAFETY: the caller's promise is that of both.
    unsafe { ds_wait_if(ds_submit_pwrite(file, buffer, len, offset), std::ptr::null_mut(), 0) }
}

/// See the header.
///
/// # Safety
/// Pointers are NULL or valid; `result` has room for `cap` bytes, `args` has `args_len`.
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
    place: c_int,
) -> isize {
    // SAFETY: the caller's promise is that of both.
    unsafe { ds_wait_if(ds_submit_pread_fn(file, offset, len, function, args, args_len, place), result, cap) }
}

/// See the header.
///
/// # Safety
/// Pointers are NULL or valid; `buffer` has `len` bytes, `args` has `args_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_pwrite_fn(
    file: *const ds_file,
    buffer: *const c_void,
    len: usize,
    offset: u64,
    function: *const ds_function,
    args: *const c_void,
    args_len: usize,
    place: c_int,
    durable: c_int,
) -> isize {
    // SAFETY: the caller's promise is that of both.
    unsafe {
        let request = ds_submit_pwrite_fn(file, buffer, len, offset, function, args, args_len, place, durable);
        ds_wait_if(request, std::ptr::null_mut(), 0)
    }
}

/// See the header.
///
/// # Safety
/// `file` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_submit_pread(file: *const ds_file, len: usize, offset: u64) -> *mut ds_request {
    // SAFETY: the caller's promise is this function's.
    guard(|| Ok(ds_request(Request::Read(unsafe { object(file)? }.0.pread(offset, len)))))
}

/// See the header.
///
/// # Safety
/// `file` is NULL or valid; `buffer` has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_submit_pwrite(
    file: *const ds_file,
    buffer: *const c_void,
    len: usize,
    offset: u64,
) -> *mut ds_request {
    guard(|| {
        // SAFETY: the caller's promise is this function's.
        let (file, bytes) = unsafe { (object(file)?, bytes_of(buffer, len)?) };
        Ok(ds_request(Request::Write(file.0.pwrite(offset, bytes.to_vec(), false))))
    })
}

/// See the header.
///
/// # Safety
/// Pointers are NULL or valid; `args` has `args_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_submit_pread_fn(
    file: *const ds_file,
    offset: u64,
    len: u64,
    function: *const ds_function,
    args: *const c_void,
    args_len: usize,
    place: c_int,
) -> *mut ds_request {
    guard(|| {
        // SAFETY: the caller's promise is this function's.
        let (file, function, args) = unsafe { (object(file)?, object(function)?, bytes_of(args, args_len)?) };
        let options = options(place, false)?;
        let pending = match len {
            u64::MAX => file.0.pread_fn(offset.., &function.0, args, &options),
            len => file.0.pread_fn(offset..offset.saturating_add(len), &function.0, args, &options),
        };
        Ok(ds_request(Request::ReadFn(pending)))
    })
}

/// See the header.
///
/// # Safety
/// Pointers are NULL or valid; `buffer` has `len` bytes, `args` has `args_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_submit_pwrite_fn(
    file: *const ds_file,
    buffer: *const c_void,
    len: usize,
    offset: u64,
    function: *const ds_function,
    args: *const c_void,
    args_len: usize,
    place: c_int,
    durable: c_int,
) -> *mut ds_request {
    guard(|| {
        // SAFETY: the caller's promise is this function's.
        let (file, function, args) = unsafe { (object(file)?, object(function)?, bytes_of(args, args_len)?) };
        // SAFETY: as above.
        let bytes = unsafe { bytes_of(buffer, len)? }.to_vec();
        let options = options(place, durable != 0)?;
        Ok(ds_request(Request::WriteFn(file.0.pwrite_fn(offset, bytes, &function.0, args, &options))))
    })
}

/// See the header.
///
/// # Safety
/// `request` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_poll(request: *const ds_request) -> c_int {
    guard_int(|| {
        // SAFETY: the caller's promise is this function's.
        Ok(match &unsafe { object(request)? }.0 {
            Request::Read(pending) => pending.is_done(),
            Request::Write(pending) => pending.is_done(),
            Request::ReadFn(pending) | Request::WriteFn(pending) => pending.is_done(),
        }
        .into())
    }) as c_int
}

/// See the header.
///
/// # Safety
/// `request` is NULL or from here, and is not used again; `result` has room for `cap` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_wait(request: *mut ds_request, result: *mut c_void, cap: usize) -> isize {
    guard_int(|| {
        // SAFETY: the caller's promise is this function's.
        let request = unsafe { memory::take(request)? };
        let written = |len: u64| isize::try_from(len).map_err(Failure::invalid);
        match request.0 {
            // SAFETY: as above.
            Request::Read(pending) => unsafe { memory::copy_out(&pending.wait()?, result, cap) },
            Request::Write(pending) => written(pending.wait()?),
            // SAFETY: as above.
            Request::ReadFn(pending) => unsafe { memory::copy_out(&pending.wait()?.result, result, cap) },
            Request::WriteFn(pending) => written(pending.wait()?.written_bytes),
        }
    })
}

/// See the header.
///
/// # Safety
/// `request` is NULL or from here, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_request_free(request: *mut ds_request) {
    // SAFETY: the caller's promise is this function's.
    unsafe { memory::free(request) };
}

/// Waits for a request that may have failed when it was submitted.
///
/// # Safety
/// As `ds_wait`.
unsafe fn ds_wait_if(request: *mut ds_request, result: *mut c_void, cap: usize) -> isize {
    if request.is_null() {
        return error::last_code();
    }
    // SAFETY: the caller's promise is this function's.
    unsafe { ds_wait(request, result, cap) }
}

fn options(place: c_int, durable: bool) -> Result<RunOptions, Failure> {
    let place = match place {
        0 => Where::Auto,
        1 => Where::Host,
        2 => Where::Device,
        _ => return Err(Failure::invalid(format!("{place} is no place: DS_AUTO, DS_HOST or DS_DEVICE"))),
    };
    Ok(RunOptions { place, durable, ..RunOptions::default() })
}
