//! lambda-IO's three calls, over one session for the process: `include/lambda_io.h`.

use crate::error::{Failure, guard_int};
use crate::memory::{bytes_of, copy_out, text_of};
use libc::{off_t, ssize_t};
use rust::Location;
use rust::session::{File, OpenMode, RunOptions, Session, SessionFunction, SessionOptions};
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

struct Loaded {
    session: Session,
    functions: Mutex<Vec<SessionFunction>>,
}

fn loaded() -> &'static Loaded {
    static LOADED: OnceLock<Loaded> = OnceLock::new();
    LOADED.get_or_init(|| Loaded { session: Session::new(SessionOptions::default()), functions: Mutex::default() })
}

/// Loads a function: an object (FILE.o[:NAME]) or a shipped function's name. Returns its lambda_id, or a negative
/// errno; ds_error() of libdiskside.h says why.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn load_lambda(path: *const c_char) -> c_int {
    guard_int(|| {
        // SAFETY: the caller keeps the crate's contract.
        let path = unsafe { text_of(path)? };
        let function = loaded().session.function(path).map_err(Failure::invalid)?;
        let mut functions = loaded().functions.lock().unwrap_or_else(PoisonError::into_inner);
        functions.push(function);
        Ok(functions.len() as isize - 1)
    }) as c_int
}

/// Loads length bytes at offset, runs the function over them, and copies its output, at most length bytes, into
/// buffer. Returns the output's length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pread_lambda(
    fd: c_int,
    buffer: *mut c_void,
    length: usize,
    offset: off_t,
    lambda_id: c_int,
) -> ssize_t {
    guard_int(|| {
        let (file, function, offset) = named(fd, offset, lambda_id, OpenMode::Read)?;
        let end = file.len_bytes()?.min(offset.saturating_add(length as u64)).max(offset);
        let ran = file.pread_fn(offset..end, &function, &[], &RunOptions::default()).wait()?;
        // SAFETY: the caller keeps the crate's contract.
        unsafe { copy_out(&ran.result, buffer, length) }
    })
}

/// Runs the function over the buffer and writes its output at offset. Returns the output's length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite_lambda(
    fd: c_int,
    buffer: *const c_void,
    length: usize,
    offset: off_t,
    lambda_id: c_int,
) -> ssize_t {
    guard_int(|| {
        let (file, function, offset) = named(fd, offset, lambda_id, OpenMode::Write)?;
        // SAFETY: the caller keeps the crate's contract.
        let bytes = unsafe { bytes_of(buffer, length)? }.to_vec();
        let ran = file.pwrite_fn(offset, bytes, &function, &[], &RunOptions::default()).wait()?;
        Ok(ran.written_bytes as isize)
    })
}

/// The file behind a descriptor, by the name that the kernel gives it in this process.
fn named(fd: c_int, offset: i64, lambda_id: c_int, mode: OpenMode) -> Result<(File, SessionFunction, u64), Failure> {
    let functions = loaded().functions.lock().unwrap_or_else(PoisonError::into_inner);
    let function = usize::try_from(lambda_id).ok().and_then(|id| functions.get(id)).cloned();
    let function = function.ok_or_else(|| Failure::invalid(format!("no function was loaded as {lambda_id}")))?;
    drop(functions);
    let offset = u64::try_from(offset).map_err(|_| Failure::invalid("the offset is negative"))?;
    let path = Location::Local(format!("/proc/self/fd/{fd}").into());
    Ok((loaded().session.open_as(&path, mode)?, function, offset))
}
