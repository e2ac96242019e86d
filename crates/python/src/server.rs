//! A server in this process.

use crate::error::Failure;
use crate::here::Here;
use diskside::target::config::{ExportSpec, ServeConfig, Settings, VolumeSpec};
use diskside::target::{Handle, Running, Target};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// A server that runs until it is stopped.
#[pyclass(frozen)]
pub(crate) struct Server {
    running: Here<Mutex<Option<Running>>>,
    addresses: Vec<String>,
    nqn: String,
}

#[pymethods]
impl Server {
    /// Serves directories, of which each is a name, a path, and whether hosts may change what is in it; and volumes, as the
    /// command's `--volume` has them.
    #[new]
    fn new(
        py: Python<'_>,
        exports: Vec<(String, PathBuf, bool)>,
        volumes: Vec<String>,
        listen: Vec<String>,
        nqn: Option<String>,
        engines: Option<usize>,
        insecure: bool,
    ) -> PyResult<Self> {
        let listen = listen.iter().map(|address| address.parse()).collect::<Result<Vec<_>, _>>();
        let volumes = volumes.iter().map(|volume| volume.parse::<VolumeSpec>()).collect::<Result<Vec<_>, _>>();
        let export = |(name, path, rw): (String, PathBuf, bool)| ExportSpec { rw, ..ExportSpec::new(name, path) };
        let mut settings = Settings {
            listen: Some(listen.map_err(Failure::usage)?),
            nqn,
            insecure: Some(insecure),
            volumes: volumes.map_err(Failure::usage)?,
            exports: exports.into_iter().map(export).collect(),
            ..Settings::default()
        };
        settings.compute.engines = engines;
        let config = ServeConfig::resolve(settings)
            .map_err(|error| Failure::usage(Failure::in_words_of_python(&error.to_string())))?;
        let started = py.detach(|| Target::builder().config(config).build().and_then(Target::start));
        let running = started.map_err(Failure::environment)?;
        let addresses = running.handle().local_addresses().iter().map(ToString::to_string).collect();
        let nqn = running.handle().nqn().to_owned();
        Ok(Self { running: Here::new(Mutex::new(Some(running))), addresses, nqn })
    }

    #[getter]
    fn addresses(&self) -> Vec<String> {
        self.addresses.clone()
    }

    #[getter]
    fn nqn(&self) -> &str {
        &self.nqn
    }

    /// The volumes: name and number.
    #[getter]
    fn volumes(&self) -> PyResult<Vec<(String, u32)>> {
        Ok(self.handle()?.volumes().iter().map(|volume| (volume.name.clone(), volume.nsid)).collect())
    }

    /// Ends what runs, and closes connections. Once more it does nothing.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        let Some(running) = self.lock()?.take() else { return Ok(()) };
        py.detach(|| {
            running.handle().stop();
            running.wait()
        })
        .map_err(|error| Failure::environment(error).into())
    }
}

impl Server {
    pub(crate) fn handle(&self) -> Result<Handle, Failure> {
        let running = self.lock()?;
        let handle = running.as_ref().map(|running| running.handle().clone());
        handle.ok_or_else(|| Failure::usage("the server is stopped"))
    }

    fn lock(&self) -> Result<std::sync::MutexGuard<'_, Option<Running>>, Failure> {
        Ok(self.running.get()?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
