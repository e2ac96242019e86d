//! The media: files and block devices, memory, objects of a remote store, slower ones of any, and two for tests.

mod faulty;
mod file;
mod lossy;
mod memory;
pub mod object;
mod slowed;

pub use faulty::{FaultPlan, FaultyMedium};
pub use file::{FileMedium, OpenOptions};
pub use lossy::LossyMedium;
pub use memory::MemoryMedium;
pub use object::ObjectMedium;
pub use slowed::SlowedMedium;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::medium::Medium;
use crate::{Source, VolumeSpec};

/// Opens the medium that `spec` describes. An error says which file and what to do.
pub fn open(spec: &VolumeSpec) -> io::Result<Arc<dyn Medium>> {
    let source = spec.source().map_err(|what| io::Error::new(io::ErrorKind::InvalidInput, what))?;
    let options = OpenOptions {
        read_only: !spec.rw,
        buffered: spec.buffered,
        size: spec.size.map(|size| size.bytes()),
        block_bytes: spec.block,
    };
    let medium: Arc<dyn Medium> = match source {
        Source::Path(path) => Arc::new(FileMedium::open(&path, &options)?),
        Source::Lossy(path) => Arc::new(LossyMedium::open(&path, &options)?),
        Source::Memory(size) => Arc::new(MemoryMedium::new(size.bytes(), !spec.rw)?),
        Source::Object(url) => Arc::new(ObjectMedium::open(&url, spec.block)?),
    };
    if spec.latency_us.is_none() && spec.rate.is_none() {
        return Ok(medium);
    }
    let latency = Duration::from_micros(spec.latency_us.unwrap_or(0).into());
    Ok(Arc::new(SlowedMedium::new(medium, latency, spec.rate.map(|rate| rate.bytes()))))
}
