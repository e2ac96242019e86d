//! What C hands over, as Rust sees it.

use crate::error::Failure;
use rust::Location;
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;

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

/// The location of a path of any bytes, or of a URL.
///
/// # Safety
/// As of [`text_of`].
pub(crate) unsafe fn location_of(text: *const c_char) -> Result<Location, Failure> {
    if text.is_null() {
        return Err(Failure::invalid("a string is NULL"));
    }
    // SAFETY: not NULL, and ends with a NUL, as the caller promises.
    let text = unsafe { CStr::from_ptr(text) };
    Location::try_from(OsStr::from_bytes(text.to_bytes())).map_err(Failure::invalid)
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

/// An array.
///
/// # Safety
/// It has so many elements, which stay as they are while the result is used.
pub(crate) unsafe fn elements<'a, T>(array: *const T, count: usize) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if array.is_null() || count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Failure::invalid("an array is NULL, or longer than memory"));
    }
    // SAFETY: `count` elements, aligned as C aligns them, as the caller promises.
    Ok(unsafe { std::slice::from_raw_parts(array, count) })
}

/// A structure that grows with versions of the library: the caller's may have fewer fields or more.
///
/// # Safety
/// It is `repr(C)`, its first field is a `usize` that says how many bytes the caller's has, and it is made of numbers and
/// pointers alone: any bits are a value of it.
pub(crate) unsafe trait Growing: Copy {}

/// Takes a structure from the caller: fields that it does not have are 0, and those that are not known here must be 0.
///
/// # Safety
/// The pointer is valid, and to as many bytes as its size says.
pub(crate) unsafe fn sized_in<T: Growing>(given: *const T, name: &str) -> Result<T, Failure> {
    // SAFETY: the size comes first, as the trait promises.
    let size = unsafe { given.cast::<usize>().read() };
    check_size(size, name)?;
    // SAFETY: the caller promises so many bytes.
    let bytes = unsafe { bytes_of(given.cast(), size)? };
    let known = size.min(size_of::<T>());
    if bytes[known..].iter().any(|byte| *byte != 0) {
        let len = size_of::<T>();
        return Err(Failure::invalid(format!("{name}: fields beyond byte {len} are set, which this version lacks")));
    }
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: there are `known` bytes on either side, and ours does not overlap the caller's; then each bit of the value is
    // set, by the caller or to 0, and any bits are one, as the trait promises. Pointers stay what they were.
    unsafe {
        std::ptr::copy_nonoverlapping(given.cast::<u8>(), value.as_mut_ptr().cast::<u8>(), known);
        Ok(value.assume_init())
    }
}

/// Fills in a structure of the caller's: fields that are not known here become 0.
///
/// # Safety
/// The pointer is NULL, or valid and to as many bytes as its size says.
pub(crate) unsafe fn sized_out<T: Growing>(value: &T, to: *mut T, name: &str) -> Result<(), Failure> {
    if to.is_null() {
        return Err(Failure::invalid(format!("{name}: the pointer is NULL")));
    }
    // SAFETY: the size comes first, as the trait promises.
    let size = unsafe { to.cast::<usize>().read() };
    check_size(size, name)?;
    let known = size.min(size_of::<T>());
    // SAFETY: there are `size` bytes at `to`, as the caller promises, and `known` at `value`; the caller's memory is
    // not ours, so they do not overlap. The size stays what the caller said.
    unsafe {
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(value).cast::<u8>(), to.cast(), known);
        to.cast::<u8>().add(known).write_bytes(0, size - known);
        to.cast::<usize>().write(size);
    }
    Ok(())
}

/// Longest structure of a caller's that is believed: longer is memory that was never set.
const STRUCTURE_LEN_MAX: usize = 4096;

fn check_size(size: usize, name: &str) -> Result<(), Failure> {
    match size {
        _ if size < size_of::<usize>() => Err(Failure::invalid(format!("{name}: its size is not set"))),
        _ if size > STRUCTURE_LEN_MAX => Err(Failure::invalid(format!("{name}: its size is {size}, and not set"))),
        _ => Ok(()),
    }
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
