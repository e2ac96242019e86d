//! lambda-IO's three calls, over one session for the process: `include/lambda_io.h`.

use crate::error::{Failure, guard_int};
use crate::memory::{bytes_of, copy_out, text_of};
use libc::{EBADF, off_t, ssize_t};
use rust::session::{EnvironmentError, File, OpenMode, RunOptions, Session, SessionFunction, SessionOptions};
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, OnceLock, PoisonError};

struct Loaded {
    session: Session,
    functions: Mutex<Vec<SessionFunction>>,
}

fn loaded() -> Result<&'static Loaded, Failure> {
    static LOADED: OnceLock<Result<Loaded, EnvironmentError>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| {
        let session = Session::new(SessionOptions::from_environment()?);
        Ok(Loaded { session, functions: Mutex::default() })
    });
    loaded.as_ref().map_err(Failure::invalid)
}

/// Loads a function: an object (FILE.o[:NAME]) or a shipped function's name. Returns its lambda_id, or a negative
/// errno; ds_error() of libdiskside.h says why.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn load_lambda(path: *const c_char) -> c_int {
    guard_int(|| {
        // SAFETY: the caller keeps the crate's contract.
        let path = unsafe { text_of(path)? };
        let loaded = loaded()?;
        let function = loaded.session.function(path).map_err(Failure::invalid)?;
        let mut functions = loaded.functions.lock().unwrap_or_else(PoisonError::into_inner);
        functions.push(function);
        Ok(functions.len() as isize - 1)
    }) as c_int
}

/// Loads length bytes at offset, runs the function over them, and copies its output, at most length bytes, into
/// buffer. Returns the output's length. The descriptor is open for reading, else it is -EBADF; its position stays.
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

/// Runs the function over the buffer and writes its output at offset. Returns the output's length. The descriptor is
/// open for writing, else it is -EBADF, and without O_APPEND, else it is -EINVAL; its position stays.
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

/// The file behind a descriptor, which keeps its rights, position and flags.
fn named(fd: c_int, offset: i64, lambda_id: c_int, mode: OpenMode) -> Result<(File, SessionFunction, u64), Failure> {
    let loaded = loaded()?;
    let functions = loaded.functions.lock().unwrap_or_else(PoisonError::into_inner);
    let function = usize::try_from(lambda_id).ok().and_then(|id| functions.get(id)).cloned();
    let function = function.ok_or_else(|| Failure::invalid(format!("no function was loaded as {lambda_id}")))?;
    drop(functions);
    let offset = u64::try_from(offset).map_err(|_| Failure::invalid("the offset is negative"))?;
    if fd < 0 {
        return Err(Failure::of_errno(EBADF, format!("{fd} is no descriptor")));
    }
    // SAFETY: it is not -1, the caller keeps it open until the call returns, and a number without a descriptor is an
    // error of the kernel's.
    let descriptor = unsafe { BorrowedFd::borrow_raw(fd) };
    Ok((loaded.session.open_descriptor(descriptor, mode)?, function, offset))
}
