//! Small files that a program keeps for itself.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::name::Name;
use crate::unnamed::Unnamed;

/// Makes `bytes` the file at `path`, which only its owner may read and write, and replaces any file of that name.
/// Others find the old one or the new one, whole. It need not survive power loss.
///
/// # Errors
/// The system's error. The file that had the name is unchanged.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let parent = openat(CWD, directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let at = Name { parent, name: name.as_bytes().to_vec() };
    let (fd, unnamed) = Unnamed::make(at, Mode::RUSR | Mode::WUSR).map_err(|(_, errno)| errno)?;
    let mut file = File::from(fd);
    file.write_all(bytes)?;
    Ok(unnamed.publish_as_is(file.as_fd())?)
}
