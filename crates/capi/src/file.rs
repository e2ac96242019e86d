//! Files.

use crate::error::{Failure, guard, guard_int};
use crate::memory::{self, location_of, object};
use crate::session::ds_session;
use rust::session::{File, OpenMode};
use std::ffi::{c_char, c_int};

/// A file here, a file of an export, or a volume.
pub struct ds_file(pub(crate) File);

/// What ds_file_open opens for.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ds_mode {
    /// Reading.
    DS_READ = 0,
    /// Reading and writing; it must be there.
    DS_WRITE = 1,
    /// Reading and writing; it is made if it is not there.
    DS_CREATE = 2,
}

/// Opens a path of any bytes, diskside://HOST[:PORT]/EXPORT/PATH (with %FF for a byte; HOST,HOST where several servers hold copies,
/// which are only read), or nvme-tcp://HOST[:PORT]/NQN/NSID.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_file_open(session: *mut ds_session, path: *const c_char, mode: c_int) -> *mut ds_file {
    guard(|| {
        // SAFETY: the caller keeps the crate's contract.
        let (session, location) = unsafe { (object(session)?, location_of(path)?) };
        let modes = [
            (ds_mode::DS_READ, OpenMode::Read),
            (ds_mode::DS_WRITE, OpenMode::Write),
            (ds_mode::DS_CREATE, OpenMode::Create),
        ];
        let wanted = modes.into_iter().find(|(number, _)| *number as c_int == mode);
        let wanted =
            wanted.ok_or_else(|| Failure::invalid(format!("{mode} is no mode: DS_READ, DS_WRITE or DS_CREATE")))?;
        Ok(ds_file(session.0.open_as(&location, wanted.1)?))
    })
}

/// Its present length in bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_file_len(file: *const ds_file) -> i64 {
    // SAFETY: the caller keeps the crate's contract.
    guard_int(|| Ok(unsafe { object(file)? }.0.len_bytes()? as isize)) as i64
}

/// Makes durable what was written before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_file_sync(file: *const ds_file) -> c_int {
    // SAFETY: the caller keeps the crate's contract.
    guard_int(|| Ok(unsafe { object(file)? }.0.sync().wait().map(|()| 0)?)) as c_int
}

/// Makes it len bytes long.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_file_truncate(file: *const ds_file, len: u64) -> c_int {
    // SAFETY: the caller keeps the crate's contract.
    guard_int(|| Ok(unsafe { object(file)? }.0.truncate(len).map(|()| 0)?)) as c_int
}

/// Closes a file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_file_free(file: *mut ds_file) {
    // SAFETY: the caller keeps the crate's contract.
    unsafe { memory::free(file) };
}
