//! What C hands over, as Rust sees it.

use crate::status::{CS_INVALID_LENGTH, Done, Failure};
use std::ffi::{CStr, c_char, c_int, c_void};

/// A structure, copied.
///
/// # Safety
/// The pointer is NULL or valid.
pub(crate) unsafe fn structure<T: Copy>(pointer: *const T, what: &str) -> Done<T> {
    if pointer.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: valid, as the caller promises; its alignment is C's own business.
    Ok(unsafe { pointer.read_unaligned() })
}

/// A string.
///
/// # Safety
/// The pointer is NULL, or the string ends with a NUL and stays as it is while the result is used.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Done<&'a str> {
    if pointer.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Failure::argument(format!("{what} is not UTF-8")))
}

/// Elements of an array that begins in a structure.
///
/// # Safety
/// There are so many.
pub(crate) unsafe fn elements<T: Copy>(first: *const T, count: usize) -> Vec<T> {
    // SAFETY: `count` elements are there, as the caller promises.
    (0..count).map(|index| unsafe { first.add(index).read_unaligned() }).collect()
}

/// Tells a caller something, if it wants to know.
///
/// # Safety
/// The pointer is NULL or valid.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: valid, as the caller promises.
        unsafe { to.write_unaligned(value) };
    }
}

/// Bytes of a caller's that are written or read by another thread; the caller keeps them until the request has completed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostBytes {
    pointer: *mut c_void,
    len: usize,
}

// SAFETY: it is an address; who uses it keeps the contract of the request.
unsafe impl Send for HostBytes {}
// SAFETY: as above.
unsafe impl Sync for HostBytes {}

impl HostBytes {
    pub(crate) fn new(pointer: *mut c_void, len: usize) -> Done<Self> {
        if pointer.is_null() && len > 0 {
            return Err(Failure::null("HostVAddress"));
        }
        Ok(Self { pointer, len })
    }

    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// # Safety
    /// There are so many bytes, which nobody changes while the result is used.
    pub(crate) unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: not NULL, and as the caller promises.
        unsafe { std::slice::from_raw_parts(self.pointer.cast(), self.len) }
    }

    /// # Safety
    /// There are so many bytes, which nobody else uses while the result is used.
    pub(crate) unsafe fn bytes_mut<'a>(self) -> &'a mut [u8] {
        if self.len == 0 {
            return &mut [];
        }
        // SAFETY: not NULL, and as the caller promises.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.cast(), self.len) }
    }
}

/// A pointer of a caller's that is given back to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallerPointer(pub(crate) *mut c_void);

// SAFETY: it is never followed here.
unsafe impl Send for CallerPointer {}
// SAFETY: as above.
unsafe impl Sync for CallerPointer {}

/// Gives bytes to a caller by the API's rule: without a buffer, `length` becomes the length that is needed; with one that is
/// too short as well, and that is an error; else `length` becomes that of the bytes.
///
/// # Safety
/// `length` is NULL or valid, `buffer` is NULL or has as many bytes as `length` says.
pub(crate) unsafe fn give(bytes: &[u8], length: *mut c_int, buffer: *mut c_void) -> Done<()> {
    // SAFETY: the caller's promise.
    let room = unsafe { structure(length, "Length")? };
    let needed = c_int::try_from(bytes.len()).map_err(|_| Failure::new(CS_INVALID_LENGTH, "the list is too long"))?;
    // SAFETY: as above, and not NULL.
    unsafe { length.write_unaligned(needed) };
    if buffer.is_null() {
        return Ok(());
    }
    if room < needed {
        let why = format!("the buffer has {room} bytes, and {needed} are needed");
        return Err(Failure::new(CS_INVALID_LENGTH, why));
    }
    // SAFETY: there is room, as the caller promises, and its memory is not ours.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast(), bytes.len()) };
    Ok(())
}

/// Gives names to a caller, with commas between them and a NUL behind.
///
/// # Safety
/// As [`give`].
pub(crate) unsafe fn give_names(names: &[String], length: *mut c_int, buffer: *mut c_char) -> Done<()> {
    let mut bytes = names.join(",").into_bytes();
    bytes.push(0);
    // SAFETY: the caller's promise.
    unsafe { give(&bytes, length, buffer.cast()) }
}

/// The bytes of a structure that is given away.
///
/// # Safety
/// It has no padding, or was zeroed before it was filled in.
pub(crate) unsafe fn bytes_of<T: Copy>(value: &T) -> &[u8] {
    // SAFETY: as many bytes as it has, each of them set, as the caller promises.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// A name, cut to what fits with a NUL.
pub(crate) fn name_of(name: &str) -> [c_char; 32] {
    let mut cut = [0; 32];
    let len = name.floor_char_boundary(cut.len() - 1);
    for (to, byte) in cut.iter_mut().zip(&name.as_bytes()[..len]) {
        *to = *byte as c_char;
    }
    cut
}

/// What a name of at most 32 bytes says.
pub(crate) fn name_in(name: &[c_char; 32]) -> Done<String> {
    let bytes: Vec<u8> = name.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
    String::from_utf8(bytes).map_err(|_| Failure::argument("UniqueName is not UTF-8"))
}
