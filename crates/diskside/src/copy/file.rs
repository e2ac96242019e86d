//! Copies of a session's file, which continue at another server if its URL names several.

use super::{CopyError, End, copy_in_order};
use crate::session::{File, Resumed, SessionError};
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a file was not copied.
#[derive(Debug, thiserror::Error)]
pub enum FileCopyError {
    /// Which side failed, where, and why.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// The file cannot be read.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// Copies all of one version of a file to what takes bytes only in their order. Counts bytes in `done`.
///
/// If the server of several vanishes, the file is read again from its beginning at another one: the bytes that were written
/// before have to be the same there.
///
/// # Errors
/// Why it was not copied.
pub fn copy_file_in_order(file: &File, destination: &mut impl Write, done: &AtomicU64) -> Result<u64, FileCopyError> {
    if !file.has_copies() {
        let (io, len) = file.version_io()?;
        return Ok(copy_in_order(&End { io: &io, len, fixed: false }, destination, done)?);
    }
    let (mut out, before) = (Resumed::new(destination), done.load(Ordering::Relaxed));
    file.with_version(|io, len| {
        out.rewind();
        done.store(before, Ordering::Relaxed);
        let copied = copy_in_order(&End { io, len, fixed: false }, &mut out, done);
        if out.is_of_another(copied.is_ok()) {
            return Err(SessionError::OtherResult(file.location().to_string()).into());
        }
        Ok(copied?)
    })?
}
