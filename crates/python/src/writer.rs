//! Files of exports that are written whole, piece by piece.

use crate::batch::Handles;
use crate::error::Failure;
use crate::here::Here;
use diskside::ExportUrl;
use diskside::session::{FileWriter, SessionError};
use pyo3::prelude::*;
use std::io::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A new file, which gets its name when it is published; dropped before, nothing of it is left.
#[pyclass(frozen)]
pub(crate) struct Writer {
    url: ExportUrl,
    writer: Here<Mutex<Option<FileWriter>>>,
    handles: Here<Arc<Handles>>,
}

impl Writer {
    pub(crate) fn of(url: ExportUrl, writer: FileWriter, handles: Arc<Handles>) -> Self {
        Self { url, writer: Here::new(Mutex::new(Some(writer))), handles: Here::new(handles) }
    }

    fn lock(&self) -> Result<MutexGuard<'_, Option<FileWriter>>, Failure> {
        Ok(self.writer.get()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn ended(&self) -> Failure {
        Failure::usage(format!("{}: it is written already, or given up", self.url))
    }
}

#[pymethods]
impl Writer {
    /// Takes more bytes; what came before is on its way meanwhile.
    fn write(&self, py: Python<'_>, bytes: &[u8]) -> PyResult<()> {
        py.detach(|| {
            let mut writer = self.lock()?;
            let written = writer.as_mut().ok_or_else(|| self.ended())?.write_all(bytes);
            written.map_err(|source| Failure::from(SessionError::File { name: self.url.to_string(), source }))
        })
        .map_err(Into::into)
    }

    /// Makes it durable and gives it its name.
    fn publish(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| {
            let writer = self.lock()?.take().ok_or_else(|| self.ended())?;
            let published = writer.publish().map_err(Failure::from);
            self.handles.get()?.forget(&self.url);
            published
        })
        .map_err(Into::into)
    }

    /// Gives it up.
    fn discard(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| {
            self.lock()?.take();
            Ok(())
        })
        .map_err(|error: Failure| error.into())
    }
}
