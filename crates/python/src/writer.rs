//! Files of exports that are written whole, piece by piece.

use crate::batch::Handles;
use crate::error::Failure;
use crate::here::Here;
use crate::request::interruptible;
use diskside::ExportUrl;
use diskside::session::{FileWriter, SessionError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// A new file, which gets its name when it is published; dropped before, nothing of it is left.
#[pyclass(frozen)]
pub(crate) struct Writer(Here<Arc<Shared>>);

struct Shared {
    url: ExportUrl,
    writer: Mutex<Option<FileWriter>>,
    handles: Arc<Handles>,
    /// Nobody waits for it any more, so it must not get its name.
    is_given_up: AtomicBool,
}

impl Writer {
    pub(crate) fn of(url: ExportUrl, writer: FileWriter, handles: Arc<Handles>) -> Self {
        let (writer, is_given_up) = (Mutex::new(Some(writer)), AtomicBool::new(false));
        Self(Here::new(Arc::new(Shared { url, writer, handles, is_given_up })))
    }

    /// Does what waits for the server. When that is interrupted, the file is given up.
    fn working<F>(&self, py: Python<'_>, work: F) -> PyResult<()>
    where
        F: FnOnce(&Shared) -> Result<(), Failure> + Send + 'static,
    {
        let shared = Arc::clone(self.0.get()?);
        let worked = interruptible(py, move || {
            let done = work(&shared);
            shared.drop_given_up();
            done
        });
        worked.inspect_err(|_| drop(self.discard(py)))
    }
}

#[pymethods]
impl Writer {
    /// Takes more bytes; what came before is on its way meanwhile.
    pub(crate) fn write(&self, py: Python<'_>, bytes: PyBackedBytes) -> PyResult<()> {
        self.working(py, move |shared| {
            let mut writer = shared.lock();
            let written = writer.as_mut().ok_or_else(|| shared.ended())?.write_all(&bytes);
            written.map_err(|source| SessionError::File { name: shared.url.to_string(), source }.into())
        })
    }

    /// Makes it durable and gives it its name.
    pub(crate) fn publish(&self, py: Python<'_>) -> PyResult<()> {
        self.working(py, |shared| {
            let writer = shared.lock().take().ok_or_else(|| shared.ended())?;
            let published = writer.publish().map_err(Failure::from);
            shared.handles.forget(&shared.url);
            published
        })
    }

    /// Gives it up.
    fn discard(&self, py: Python<'_>) -> PyResult<()> {
        let shared = self.0.get()?;
        shared.is_given_up.store(true, Ordering::SeqCst);
        py.detach(|| shared.drop_given_up());
        Ok(())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Option<FileWriter>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The writer has the lock, and does this afterwards.
    fn drop_given_up(&self) {
        if !self.is_given_up.load(Ordering::SeqCst) {
            return;
        }
        match self.writer.try_lock() {
            Ok(mut writer) => drop(writer.take()),
            Err(TryLockError::Poisoned(writer)) => drop(writer.into_inner().take()),
            Err(TryLockError::WouldBlock) => {}
        }
    }

    fn ended(&self) -> Failure {
        Failure::usage(format!("{}: it is written already, or given up", self.url))
    }
}
