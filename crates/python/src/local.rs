//! Files of this machine.

use crate::error::Failure;
use crate::request::interruptible;
use diskside::local_files::{FindError, below, matching};
use diskside::session::SessionError;
use pyo3::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;

/// The files that a pattern means, or those below a directory, as a server finds those of its exports.
#[pyfunction]
pub(crate) fn find_local(py: Python<'_>, path: PathBuf, recursive: bool) -> PyResult<Vec<OsString>> {
    interruptible(py, move || {
        let found = if recursive { below(&path) } else { matching(&path) };
        let found = found.map_err(|error| match error {
            FindError::Directory { path, error: source } => {
                SessionError::Open { name: path.display().to_string(), source }.into()
            }
            error => Failure::usage(format!("{}: {error}", path.display())),
        });
        Ok(found?.into_iter().map(PathBuf::into_os_string).collect())
    })
}
