//! The media: files and block devices, memory, and two for tests.

mod faulty;
mod file;
mod lossy;
mod memory;

pub use faulty::{FaultPlan, FaultyMedium};
pub use file::{FileMedium, OpenOptions};
pub use lossy::LossyMedium;
pub use memory::MemoryMedium;

use std::io;
use std::sync::Arc;

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
    Ok(match source {
        Source::Path(path) => Arc::new(FileMedium::open(&path, &options)?),
        Source::Lossy(path) => Arc::new(LossyMedium::open(&path, &options)?),
        Source::Memory(size) => Arc::new(MemoryMedium::new(size.bytes(), !spec.rw)?),
    })
}
