//! Open files.

use crate::error::Failure;
use crate::function::Function;
use crate::here::Here;
use crate::options;
use crate::request::{Output, Request, interruptible};
use diskside::io::buffer::Buffer;
use diskside::io::request::{AsyncIo, Request as ReadOrWrite};
use diskside::session::{Decompress, File as SessionFile, SessionError, is_another_version};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;

/// A path here, a file of an export, or a volume.
#[pyclass(frozen)]
pub(crate) struct File(Here<SessionFile>, Option<Here<Arc<dyn AsyncIo>>>);

impl File {
    pub(crate) fn of(file: SessionFile) -> Self {
        Self(Here::new(file), None)
    }

    /// See [`SessionFile::first_line`].
    pub(crate) fn first_line(&self, py: Python<'_>, decompress: Decompress) -> PyResult<String> {
        let file = self.get()?.clone();
        interruptible(py, move || Ok(file.first_line(decompress)?))
    }

    pub(crate) fn get(&self) -> Result<&SessionFile, Failure> {
        self.0.get()
    }
}

#[pymethods]
impl File {
    /// What it was opened by.
    #[getter]
    fn name(&self) -> PyResult<String> {
        Ok(self.get()?.location().to_string())
    }

    /// Its present length.
    fn len_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        let file = self.get()?.clone();
        interruptible(py, move || Ok(file.len_bytes()?))
    }

    /// The same file, of which [`read_past_cache`](Self::read_past_cache) reads the version that it has now, and that version's length.
    fn of_one_version(&self, py: Python<'_>) -> PyResult<(Self, u64)> {
        let file = self.get()?.clone();
        interruptible(py, move || {
            let (io, len) = file.version_io()?;
            Ok((Self(Here::new(file), Some(Here::new(io))), len))
        })
    }

    fn truncate(&self, py: Python<'_>, len: u64) -> PyResult<()> {
        let file = self.get()?.clone();
        interruptible(py, move || Ok(file.truncate(len)?))
    }

    /// Reads up to `len` bytes; fewer only at the end.
    fn read(&self, py: Python<'_>, offset: u64, len: usize) -> PyResult<Request> {
        let file = self.get()?;
        Ok(py.detach(|| {
            let read = file.pread(offset, len);
            Request::begin(async move { Ok(Output::Bytes(read.await?)) })
        }))
    }

    /// As [`read`](Self::read), exactly these bytes: not through the session's cache, which reads whole blocks.
    fn read_past_cache(&self, py: Python<'_>, offset: u64, len: usize) -> PyResult<Request> {
        let file = self.get()?;
        let name = file.location().to_string();
        let begun: Result<_, Failure> = py.detach(|| {
            let io = match &self.1 {
                Some(io) => Arc::clone(io.get()?),
                None => file.io()?,
            };
            if io.alignment_bytes() > 1 {
                let read = file.pread(offset, len);
                return Ok(Request::begin(async move { Ok(Output::Bytes(read.await?)) }));
            }
            let read = io.submit(ReadOrWrite::Read { offset, buffer: Buffer::zeroed(len) });
            Ok(Request::begin(async move {
                let bytes = read.await.into_read().map_err(|source| match is_another_version(&source) {
                    true => SessionError::Changed(name),
                    false => SessionError::File { name, source },
                });
                Ok(Output::Bytes(bytes?))
            }))
        });
        Ok(begun?)
    }

    /// Writes bytes, which are copied first.
    fn write(&self, py: Python<'_>, offset: u64, bytes: &[u8], durable: bool) -> PyResult<Request> {
        let file = self.get()?;
        Ok(py.detach(|| {
            let written = file.pwrite(offset, Buffer::copy_of(bytes), durable);
            Request::begin(async move { Ok(Output::Count(written.await?)) })
        }))
    }

    /// Makes durable what was written before.
    fn sync(&self, py: Python<'_>) -> PyResult<Request> {
        let file = self.get()?;
        Ok(py.detach(|| {
            let synced = file.sync();
            Request::begin(async move { Ok(Output::Count(synced.await.map(|()| 0)?)) })
        }))
    }

    /// Runs a function over bytes of Python's and writes its output at `offset`.
    fn write_fn(
        &self,
        py: Python<'_>,
        offset: u64,
        input: &[u8],
        function: &Function,
        args: &[u8],
        given: &Bound<'_, PyDict>,
    ) -> PyResult<Request> {
        let (file, (options, cancel, progress)) = (self.get()?, options::read(given)?);
        let function = function.over_bytes()?;
        Ok(py.detach(|| {
            let pending = file.pwrite_fn(offset, Buffer::copy_of(input), function, args, &options);
            Request::begin_run(pending, cancel, Some(progress))
        }))
    }
}
