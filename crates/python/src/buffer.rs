//! Bytes that Python sees where they are, by the buffer protocol: read-only, for as long as anything there looks at them.

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;
use std::ptr;

/// Bytes that nobody changes any more.
#[pyclass(frozen)]
pub(crate) struct Data(pub(crate) diskside::io::buffer::Buffer);

#[pymethods]
impl Data {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// # Safety
    /// Python's: `view` is to be filled, or NULL.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let (start, len) = {
            let bytes: &[u8] = &slf.get().0;
            (bytes.as_ptr(), bytes.len())
        };
        // SAFETY: the bytes are those of `slf`, which nothing changes, and which the view keeps.
        unsafe { fill(view, slf.into_any(), start, len, flags) }
    }
}

/// Lends bytes of an object to Python.
///
/// # Safety
/// `view` is Python's to be filled, or NULL; the bytes stay where they are and as they are for as long as `owner` lives.
pub(crate) unsafe fn fill(
    view: *mut ffi::Py_buffer,
    owner: Bound<'_, PyAny>,
    start: *const u8,
    len: usize,
    flags: c_int,
) -> PyResult<()> {
    if view.is_null() {
        return Err(PyBufferError::new_err("the view is NULL"));
    }
    // SAFETY: Python fills it in, takes a reference to the owner, and refuses writers.
    let failed =
        unsafe { ffi::PyBuffer_FillInfo(view, owner.as_ptr(), start.cast_mut().cast(), len as isize, 1, flags) };
    if failed == 0 {
        return Ok(());
    }
    // SAFETY: `view` is valid; a view that was not filled has no owner.
    unsafe { (*view).obj = ptr::null_mut() };
    Err(PyErr::fetch(owner.py()))
}
