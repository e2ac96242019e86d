//! Functions.

use crate::error::{Failure, guard, guard_int};
use crate::memory::{self, bytes_of, object, text_of};
use crate::session::ds_session;
use libc::ssize_t;
use rust::sandbox::image::ArgSchema;
use rust::session::SessionFunction;
use std::ffi::{c_char, c_void};

/// A function, to be run here and at targets.
pub struct ds_function(pub(crate) SessionFunction);

/// Finds a function: a shipped one by its name, FILE.o[:NAME], or FILE.c[:NAME] to compile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_function_find(session: *mut ds_session, what: *const c_char) -> *mut ds_function {
    guard(|| {
        // SAFETY: the caller keeps the crate's contract.
        let (session, what) = unsafe { (object(session)?, text_of(what)?) };
        session.0.function(what).map(ds_function).map_err(Failure::invalid)
    })
}

/// Takes a function from the bytes of an object; name may be NULL if there is one function in it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_function_load(
    session: *mut ds_session,
    object_bytes: *const c_void,
    len: usize,
    name: *const c_char,
) -> *mut ds_function {
    guard(|| {
        // SAFETY: the caller keeps the crate's contract.
        let (session, bytes) = unsafe { (object(session)?, bytes_of(object_bytes, len)?) };
        // SAFETY: as above.
        let name = if name.is_null() { None } else { Some(unsafe { text_of(name)? }) };
        session.0.load(bytes, name).map(ds_function).map_err(Failure::invalid)
    })
}

/// Makes arguments "name=value" the bytes of the function's structure. Returns their number; nothing is written
/// beyond cap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_function_args(
    function: *const ds_function,
    pairs: *const *const c_char,
    count: usize,
    args: *mut c_void,
    cap: usize,
) -> ssize_t {
    guard_int(|| {
        // SAFETY: the caller keeps the crate's contract.
        let (function, pairs) = unsafe { (object(function)?, memory::elements(pairs, count)?) };
        // SAFETY: as above.
        let bytes = unsafe { encode(function.0.args(), pairs)? };
        // SAFETY: as above.
        unsafe { memory::copy_out(&bytes, args, cap) }
    })
}

/// Arguments "name=value" as the bytes of the structure that the schema describes.
///
/// # Safety
/// The crate's contract.
pub(crate) unsafe fn encode(schema: Option<&ArgSchema>, pairs: &[*const c_char]) -> Result<Vec<u8>, Failure> {
    let mut given = Vec::new();
    for pair in pairs {
        // SAFETY: the caller's promise.
        let pair = unsafe { text_of(*pair)? };
        let (name, value) =
            pair.split_once('=').ok_or_else(|| Failure::invalid(format!("{pair}: write NAME=VALUE")))?;
        given.push((name.to_owned(), value.to_owned()));
    }
    match schema {
        Some(schema) => rust::args::encode(schema, &given).map_err(Failure::invalid),
        None if given.is_empty() => Ok(Vec::new()),
        None => Err(Failure::invalid("the function describes no arguments; compile it with -g")),
    }
}

/// Frees a function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_function_free(function: *mut ds_function) {
    // SAFETY: the caller keeps the crate's contract.
    unsafe { memory::free(function) };
}
