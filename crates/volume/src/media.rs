//! The media: files and block devices, memory, objects of a remote store, ones with atomic writes and slower ones of any, and two
//! for tests.

mod atomic;
mod checksums;
mod faulty;
mod file;
mod lossy;
mod memory;
mod object;
mod slowed;

pub use atomic::{ATOMIC_LEN_MAX, ATOMIC_LEN_MIN, AtomicMedium, DELTA_DEPTH, DELTA_DEPTH_MAX};
pub use faulty::{FaultPlan, FaultyMedium};
pub use file::{FileMedium, OpenOptions};
pub use lossy::LossyMedium;
pub use memory::MemoryMedium;
pub use object::{OBJECT_READS_AT_ONCE, ObjectMedium};
pub use slowed::SlowedMedium;

use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
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
    if spec.atomic.is_none()
        && let Source::Path(path) | Source::Lossy(path) = &source
    {
        check_journal(&beside(path))?;
    }
    let journal = match &source {
        Source::Path(path) | Source::Lossy(path) => spec.journal.as_ref().map_or_else(|| beside(path), PathBuf::from),
        Source::Memory(_) | Source::Object(_) => PathBuf::new(),
    };
    let mut medium: Arc<dyn Medium> = match source {
        Source::Path(path) => Arc::new(FileMedium::open(&path, &options)?),
        Source::Lossy(path) => Arc::new(LossyMedium::open(&path, &options)?),
        Source::Memory(size) => Arc::new(MemoryMedium::new(size.bytes(), !spec.rw)?),
        Source::Object(url) => Arc::new(ObjectMedium::open(&url, spec.block)?),
    };
    if let Some(atomic) = spec.atomic {
        let atomic_len = u32::try_from(atomic.bytes()).unwrap_or(u32::MAX);
        let depth = spec.delta_depth.unwrap_or(DELTA_DEPTH);
        medium = Arc::new(AtomicMedium::with_depth(medium, open_journal(&journal)?, atomic_len, depth)?);
    }
    if spec.latency_us.is_none() && spec.rate.is_none() {
        return Ok(medium);
    }
    let latency = Duration::from_micros(spec.latency_us.unwrap_or(0).into());
    Ok(Arc::new(SlowedMedium::new(medium, latency, spec.rate.map(|rate| rate.bytes()))))
}

/// Where the journal of a file is, unless the user said another place.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".journal");
    name.into()
}

/// Opens a journal, or makes one of zeroes.
fn open_journal(path: &Path) -> io::Result<Arc<dyn Medium>> {
    let in_journal =
        |error: io::Error| io::Error::new(error.kind(), format!("the journal {}: {error}", path.display()));
    let is_empty = std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() == 0);
    if is_empty || !path.exists() {
        make_journal(path).map_err(in_journal)?;
    }
    if !atomic::may_be_journal(path).map_err(in_journal)? {
        let what = format!("{} is not a journal: name a file that is not there, or a device of zeroes", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let options = OpenOptions { read_only: false, buffered: false, size: None, block_bytes: 4096 };
    let medium = FileMedium::open(path, &options)?;
    if medium.properties().len_bytes < atomic::JOURNAL_LEN_MIN {
        let what = format!("the journal {} is shorter than {} bytes", path.display(), atomic::JOURNAL_LEN_MIN);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(Arc::new(medium))
}

fn make_journal(path: &Path) -> io::Result<()> {
    let partial = path.with_extension("journal-new");
    // One may be left of a start that was cut short. A link in its place goes, and not the file to which it leads.
    match std::fs::remove_file(&partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&partial)?;
    // Blocks that were written before are written again without a change of the file system's own.
    io::copy(&mut io::Read::take(io::repeat(0), atomic::JOURNAL_LEN), &mut &file)?;
    file.sync_all()?;
    std::fs::rename(&partial, path)?;
    // Without its name a journal is nothing after power loss.
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(directory)?.sync_all()
}

/// Refuses a volume whose last writes are in a journal only.
fn check_journal(path: &Path) -> io::Result<()> {
    if !atomic::has_pending(path)? {
        return Ok(());
    }
    let what = format!(
        "{} has writes that may not be in the volume: serve it with rw and atomic= once, and end that in order",
        path.display()
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}
