//! What came of a function, and how.

use crate::buffer::fill;
use crate::error::Failure;
use crate::function::Function;
use diskside::result::Value;
use diskside::sandbox::activation::Tier;
use diskside::session::{RanPart, Side};
use pyo3::IntoPyObjectExt;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyDict, PyTuple};
use std::ffi::c_int;
use std::sync::Arc;

/// A result, whose bytes Python sees where they are.
#[pyclass(frozen, subclass)]
pub(crate) struct Ran {
    ran: Arc<diskside::session::Ran>,
}

impl Ran {
    pub(crate) fn of(ran: diskside::session::Ran) -> Self {
        Self { ran: Arc::new(ran) }
    }
}

#[pymethods]
impl Ran {
    /// The same result, as a class that is made of this one.
    #[new]
    #[pyo3(signature = (of, *_more))]
    fn new(of: &Bound<'_, Self>, _more: &Bound<'_, PyTuple>) -> Self {
        Self { ran: Arc::clone(&of.get().ran) }
    }

    /// A result that is not of a run.
    #[staticmethod]
    fn of_bytes(bytes: &[u8]) -> Self {
        Self::of(diskside::session::Ran { result: bytes.to_vec(), ..diskside::session::Ran::default() })
    }

    /// # Safety
    /// Python's: `view` is to be filled, or NULL.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let (start, len) = {
            let bytes = &slf.get().ran.result;
            (bytes.as_ptr(), bytes.len())
        };
        // SAFETY: the bytes are those of `slf`, which nothing changes, and which the view keeps.
        unsafe { fill(view, slf.into_any(), start, len, flags) }
    }

    #[getter]
    fn bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.ran.result)
    }

    #[getter]
    fn nbytes(&self) -> usize {
        self.ran.result.len()
    }

    /// Its rows as tuples; `None` if it is not made of whole rows.
    fn _rows<'py>(&self, py: Python<'py>, function: &Function) -> PyResult<Option<Vec<Bound<'py, PyTuple>>>> {
        let Some(schema) = function.result_schema() else { return Ok(None) };
        let Some(rows) = diskside::result::rows(schema, &self.ran.result) else { return Ok(None) };
        let row = |row: Vec<Value>| {
            let values = row.into_iter().map(|value| to_python(py, value)).collect::<PyResult<Vec<_>>>()?;
            PyTuple::new(py, values)
        };
        rows.into_iter().map(row).collect::<PyResult<Vec<_>>>().map(Some)
    }

    /// Its rows as an Arrow C stream of one batch; `None` if it is not made of whole rows.
    fn _arrow_stream<'py>(&self, py: Python<'py>, function: &Function) -> PyResult<Option<Bound<'py, PyCapsule>>> {
        let Some(schema) = function.result_schema() else { return Ok(None) };
        let stream = crate::arrow::stream(py, schema, &self.ran.result).transpose();
        stream.map_err(|error| Failure::environment(error).into())
    }

    /// Its times by name, in seconds.
    #[getter]
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let ran = &self.ran;
        let sum = |of: fn(&RanPart) -> u64| ran.parts.iter().map(of).sum::<u64>();
        let seconds = |of: fn(&RanPart) -> std::time::Duration| ran.parts.iter().map(of).sum::<std::time::Duration>();
        let told = PyDict::new(py);
        told.set_item("input_bytes", ran.input_bytes)?;
        told.set_item("output_bytes", sum(|part| part.output_bytes))?;
        told.set_item("written_bytes", ran.written_bytes)?;
        told.set_item("sent_bytes", ran.sent_bytes)?;
        told.set_item("received_bytes", ran.received_bytes)?;
        told.set_item("iterations", sum(|part| part.back_edges))?;
        told.set_item("queue_s", seconds(|part| part.queue).as_secs_f64())?;
        told.set_item("wait_s", seconds(|part| part.wait).as_secs_f64())?;
        told.set_item("run_s", seconds(|part| part.run).as_secs_f64())?;
        told.set_item("fold_s", ran.folding().map(|fold| fold.as_secs_f64()))?;
        told.set_item("total_s", ran.total.as_secs_f64())?;
        Ok(told)
    }

    /// The parts that it ran in, in the order of the input.
    #[getter]
    fn parts<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let part = |part: &RanPart| {
            let told = PyDict::new(py);
            let (reason, why) = self.why(part);
            told.set_item("name", &part.name)?;
            told.set_item("range", (part.range.start, part.range.end))?;
            told.set_item("place", place_name(part.side))?;
            told.set_item("reason", reason)?;
            told.set_item("why", why)?;
            told.set_item("tier", part.tier.map(Tier::name))?;
            told.set_item("chunks", part.chunks)?;
            told.set_item("input_bytes", part.input_bytes)?;
            told.set_item("output_bytes", part.output_bytes)?;
            told.set_item("iterations", part.back_edges)?;
            told.set_item("queue_s", part.queue.as_secs_f64())?;
            told.set_item("wait_s", part.wait.as_secs_f64())?;
            told.set_item("run_s", part.run.as_secs_f64())?;
            told.set_item("fold_s", part.fold.map(|fold| fold.as_secs_f64()))?;
            told.set_item("total_s", part.total.as_secs_f64())?;
            Ok(told)
        };
        self.ran.parts.iter().map(part).collect()
    }

    #[getter]
    fn log(&self) -> Vec<String> {
        self.ran.log.0.clone()
    }

    #[getter]
    fn log_dropped(&self) -> u64 {
        self.ran.log.1
    }

    #[getter]
    fn returned(&self) -> Option<u64> {
        self.ran.returned()
    }
}

impl Ran {
    /// Why a part ran where it did: in a word, and in a sentence.
    fn why(&self, part: &RanPart) -> (&'static str, String) {
        let refused = self.ran.refusals.iter().find(|(name, _)| *name == part.name);
        let decided = self.ran.decisions.iter().find(|(name, _)| *name == part.name);
        match (refused, decided) {
            (Some((_, why)), _) => ("refused", format!("host, through the file system: {why}")),
            (None, Some((_, decision))) => (decision.reason.name(), decision.to_string()),
            (None, None) => ("here", "host: the data is here".to_owned()),
        }
    }
}

fn place_name(side: Side) -> &'static str {
    match side {
        Side::Host => "host",
        Side::Device => "device",
    }
}

fn to_python(py: Python<'_>, value: Value) -> PyResult<Bound<'_, PyAny>> {
    match value {
        Value::Integer(number) => match i64::try_from(number) {
            Ok(number) => number.into_bound_py_any(py),
            // A number that does not fit an i64 is a u64.
            Err(_) => (number as u64).into_bound_py_any(py),
        },
        Value::Float(number) => number.into_bound_py_any(py),
        Value::Text(text) => text.into_bound_py_any(py),
        Value::Bool(value) => value.into_bound_py_any(py),
        Value::List(values) => {
            let values = values.into_iter().map(|value| to_python(py, value)).collect::<PyResult<Vec<_>>>()?;
            values.into_bound_py_any(py)
        }
    }
}
