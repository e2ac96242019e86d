//! Functions that follow pointers.

use crate::error::{Failure, guard};
use crate::file::ds_file;
use crate::memory::{self, bytes_of, elements, object, text_of};
use crate::options::ds_options;
use crate::request::{self, ds_request};
use crate::session::ds_session;
use rust::session::SessionTraversal;
use std::ffi::{c_char, c_void};

/// A function that follows pointers: of kind traverse or xrp.
pub struct ds_traversal(SessionTraversal);

/// Finds a function that follows pointers, as ds_function_find finds others.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_traversal_find(session: *mut ds_session, what: *const c_char) -> *mut ds_traversal {
    guard(|| {
        // SAFETY: the caller keeps the crate's contract.
        let (session, what) = unsafe { (object(session)?, text_of(what)?) };
        session.0.traversal(what).map(ds_traversal).map_err(Failure::invalid)
    })
}

/// Follows pointers over count files, which the function knows by their place in the array. Its scratch has scratch_len bytes
/// and begins with the input; its result is made there. It runs at the target that has all of the files, in one round trip;
/// here, read by read, if there is none or options say DS_HOST. options may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_submit_traverse(
    session: *mut ds_session,
    files: *const *const ds_file,
    count: usize,
    traversal: *const ds_traversal,
    input: *const c_void,
    input_len: usize,
    scratch_len: u32,
    options: *const ds_options,
) -> *mut ds_request {
    guard(|| {
        // SAFETY: the caller keeps the crate's contract.
        let (session, traversal) = unsafe { (object(session)?, object(traversal)?) };
        // SAFETY: as above.
        let (files, input) = unsafe { (elements(files, count)?, bytes_of(input, input_len)?) };
        // SAFETY: as above.
        let files = files.iter().map(|file| Ok(unsafe { object(*file)? }.0.clone()));
        let files = files.collect::<Result<Vec<_>, Failure>>()?;
        // SAFETY: as above.
        let options = unsafe { ds_options::read(options)? };
        Ok(request::of_traversal(session.0.traverse(&files, &traversal.0, input, scratch_len, &options)))
    })
}

/// Frees a function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ds_traversal_free(traversal: *mut ds_traversal) {
    // SAFETY: the caller keeps the crate's contract.
    unsafe { memory::free(traversal) };
}
