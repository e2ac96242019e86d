//! The media: files and block devices, memory, objects of a remote store, ones with atomic writes and slower ones of any, and two
//! for tests.

mod atomic;
mod checksums;
mod faulty;
mod file;
mod journaled;
mod lossy;
mod memory;
mod object;
mod slowed;

pub use atomic::{ATOMIC_LEN_MAX, ATOMIC_LEN_MIN, AtomicMedium, AtomicOptions, DELTA_DEPTH, DELTA_DEPTH_MAX};
pub use faulty::{FaultPlan, FaultyMedium};
pub use file::{FileMedium, OpenOptions};
pub use lossy::LossyMedium;
pub use memory::MemoryMedium;
pub use object::{OBJECT_READS_AT_ONCE, ObjectMedium};
pub use slowed::SlowedMedium;

use std::io;
use std::path::Path;
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
    let (mut medium, file): (Arc<dyn Medium>, _) = match &source {
        Source::Path(path) => {
            let medium = FileMedium::open(path, &options)?;
            let file = Arc::clone(medium.file());
            (Arc::new(medium), Some((path, file)))
        }
        Source::Lossy(path) => {
            let medium = LossyMedium::open(path, &options)?;
            let file = Arc::clone(medium.file());
            (Arc::new(medium), Some((path, file)))
        }
        Source::Memory(size) => (Arc::new(MemoryMedium::new(size.bytes(), !spec.rw)?), None),
        Source::Object(url) => (Arc::new(ObjectMedium::open(url, spec.block)?), None),
    };
    match (file, spec.atomic) {
        (Some((path, file)), None) => journaled::check_without(path, &file)?,
        (Some((path, file)), Some(atomic)) => {
            let options = AtomicOptions {
                name: spec.name.clone(),
                atomic_len: u32::try_from(atomic.bytes()).unwrap_or(u32::MAX),
                delta_depth: spec.delta_depth.unwrap_or(DELTA_DEPTH),
            };
            let journal = spec.journal.as_ref().map(Path::new);
            medium = Arc::new(journaled::open((medium, &file), path, journal, &options)?);
        }
        (None, _) => {}
    }
    if spec.latency_us.is_none() && spec.rate.is_none() {
        return Ok(medium);
    }
    let latency = Duration::from_micros(spec.latency_us.unwrap_or(0).into());
    Ok(Arc::new(SlowedMedium::new(medium, latency, spec.rate.map(|rate| rate.bytes()))))
}
