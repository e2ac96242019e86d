//! The native part of the Python package `diskside`: only what needs the Rust crate. The rest is written in Python, in
//! `python/diskside`, which users import; nothing here is for them.
//!
//! Python's lock is released while anything here waits, and threads of sessions never take it: a thread of its own
//! reports ended requests to Python ([`request`]).

mod arrow;
mod batch;
mod buffer;
mod error;
mod file;
mod function;
mod here;
mod local;
mod options;
mod ran;
mod request;
mod scan;
mod server;
mod session;
mod writer;

use pyo3::prelude::*;

/// The module `diskside._diskside`.
#[pymodule(gil_used = false)]
fn _diskside(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<buffer::Data>()?;
    module.add_class::<file::File>()?;
    module.add_class::<function::Function>()?;
    module.add_class::<ran::Ran>()?;
    module.add_class::<request::Request>()?;
    module.add_class::<scan::Scan>()?;
    module.add_class::<server::Server>()?;
    module.add_class::<session::Session>()?;
    module.add_class::<writer::Writer>()?;
    module.add_function(wrap_pyfunction!(scan::scan_columns, module)?)?;
    module.add_function(wrap_pyfunction!(function::shipped, module)?)?;
    module.add_function(wrap_pyfunction!(function::compile, module)?)?;
    module.add_function(wrap_pyfunction!(function::compile_text, module)?)?;
    module.add_function(wrap_pyfunction!(function::lower, module)?)?;
    module.add_function(wrap_pyfunction!(function::has_lowering, module)?)?;
    module.add_function(wrap_pyfunction!(function::interface, module)?)?;
    module.add_function(wrap_pyfunction!(local::find_local, module)?)?;
    module.add_function(wrap_pyfunction!(function::find, module)?)
}
