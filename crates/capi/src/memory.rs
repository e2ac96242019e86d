//! What C hands over, as Rust sees it.

use crate::error::Failure;
use std::ffi::{CStr, c_char, c_void};

/// An object behind a pointer.
///
/// # Safety
/// It is NULL or valid for as long as the result is used.
pub(crate) unsafe fn object<'a, T>(pointer: *const T) -> Result<&'a T, Failure> {
    // SAFETY: valid, as the caller promises.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::invalid("a pointer is NULL"))
}

/// A string.
///
/// # Safety
/// It is NULL or ends with a NUL, and stays as it is while the result is used.
pub(crate) unsafe fn text_of<'a>(text: *const c_char) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::invalid("a string is NULL"));
    }
    // SAFETY: not NULL, and ends with a NUL, as the caller promises.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| Failure::invalid("a string is not UTF-8"))
}

/// Bytes.
///
/// # Safety
/// There are so many, which stay as they are while the result is used.
pub(crate) unsafe fn bytes_of<'a>(bytes: *const c_void, len: usize) -> Result<&'a [u8], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    if bytes.is_null() || len > isize::MAX as usize {
        return Err(Failure::invalid("a buffer is NULL, or longer than memory"));
    }
    // SAFETY: `len` bytes from a pointer that is not NULL, as the caller promises; bytes need no alignment.
    Ok(unsafe { std::slice::from_raw_parts(bytes.cast(), len) })
}

/// An array of strings.
///
/// # Safety
/// There are so many.
pub(crate) unsafe fn pointers<'a>(pairs: *const *const c_char, count: usize) -> Result<&'a [*const c_char], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if pairs.is_null() || count > isize::MAX as usize / size_of::<usize>() {
        return Err(Failure::invalid("an array is NULL, or longer than memory"));
    }
    // SAFETY: `count` pointers, aligned as C aligns them, as the caller promises.
    Ok(unsafe { std::slice::from_raw_parts(pairs, count) })
}

/// Copies bytes to the caller and returns their number.
///
/// # Safety
/// There is room for `cap` bytes.
pub(crate) unsafe fn copy_out(bytes: &[u8], to: *mut c_void, cap: usize) -> Result<isize, Failure> {
    if bytes.len() > cap {
        return Err(Failure::too_long(bytes.len(), cap));
    }
    if bytes.is_empty() {
        return Ok(0);
    }
    if to.is_null() {
        return Err(Failure::invalid("the buffer for the result is NULL"));
    }
    // SAFETY: there is room, as the caller promises, and memory of ours does not overlap it.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), bytes.len()) };
    Ok(bytes.len() as isize)
}

/// Takes an object back.
///
/// # Safety
/// It is NULL or came from a box, and is not used again.
pub(crate) unsafe fn take<T>(pointer: *mut T) -> Result<T, Failure> {
    if pointer.is_null() {
        return Err(Failure::invalid("a pointer is NULL"));
    }
    // SAFETY: from a box, and not used again, as the caller promises.
    Ok(*unsafe { Box::from_raw(pointer) })
}

/// Frees an object; NULL is nothing to free.
///
/// # Safety
/// As [`take`].
pub(crate) unsafe fn free<T>(pointer: *mut T) {
    // SAFETY: the caller's promise is that of `take`.
    drop(unsafe { take(pointer) });
}
