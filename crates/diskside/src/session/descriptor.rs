//! Open files of the caller's: what is read and written goes through their descriptors, with the rights that these have,
//! whatever their names mean by then.

use super::open_mode::OpenMode;
use diskside_engine::Source;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags, statx};
use rustix::io::Errno;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

/// A duplicate of the caller's descriptor.
#[derive(Debug)]
pub(super) struct Descriptor {
    open: Arc<OwnedFd>,
}

impl Descriptor {
    /// # Errors
    /// `EBADF`: it is not open for what the mode says. `ESPIPE`: it has no positions. `EISDIR`. `EINVAL`: it appends whatever
    /// the position.
    pub(super) fn new(open: OwnedFd, mode: OpenMode) -> io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(&open)?;
        let access = flags & OFlags::RWMODE;
        let fits = if mode.writes() { access != OFlags::RDONLY } else { access != OFlags::WRONLY };
        if !fits || flags.contains(OFlags::PATH) {
            return Err(Errno::BADF.into());
        }
        if mode.writes() && flags.contains(OFlags::APPEND) {
            return Err(Errno::INVAL.into());
        }
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&open)?.st_mode);
        match kind {
            FileType::RegularFile | FileType::BlockDevice => {}
            FileType::Directory => return Err(Errno::ISDIR.into()),
            _ => return Err(Errno::SPIPE.into()),
        }
        let this = Self { open: Arc::new(open) };
        if kind == FileType::RegularFile && !flags.contains(OFlags::DIRECT) {
            return Ok(this);
        }
        // The length of a device is found by its position, which must stay where the caller has it; and bytes that are not
        // aligned do not matter for O_DIRECT.
        let own = rustix::fs::open(this.path(), access | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { open: Arc::new(own) })
    }

    /// A path that means this open file for as long as this lives.
    pub(super) fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.open.as_raw_fd()).into()
    }

    /// Its name in messages: where it is, or was.
    pub(super) fn name(&self) -> PathBuf {
        std::fs::read_link(self.path()).unwrap_or_else(|_| self.path())
    }

    /// The same for every descriptor of the file, and for no other file: an inode number is used again, but not with the same
    /// time of birth.
    pub(super) fn file_id(&self) -> io::Result<u64> {
        let told = statx(&self.open, "", AtFlags::EMPTY_PATH, StatxFlags::INO | StatxFlags::BTIME)?;
        let mut hasher = DefaultHasher::new();
        (told.stx_dev_major, told.stx_dev_minor, told.stx_ino).hash(&mut hasher);
        (told.stx_btime.tv_sec, told.stx_btime.tv_nsec).hash(&mut hasher);
        Ok(hasher.finish())
    }

    /// The open file once more; position and leases are shared.
    pub(super) fn duplicate(&self) -> io::Result<File> {
        Ok(self.open.try_clone()?.into())
    }

    /// As the engine reads it.
    pub(super) fn source(&self, name: &str, range: Option<Range<u64>>) -> Source {
        Source::Open { name: name.to_owned(), file: Arc::clone(&self.open), range }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;

    /// Measurements were kept by `/proc/self/fd/N`: the next file with the same number inherited them.
    #[test]
    fn a_file_is_known_by_itself_and_not_by_its_number() {
        let of = |file: &File| Descriptor::new(file.as_fd().try_clone_to_owned().unwrap(), OpenMode::Read).unwrap();
        let [one, two] = [(); 2].map(|()| tempfile::NamedTempFile::new().unwrap());
        let id = of(one.as_file()).file_id().unwrap();
        assert_eq!(of(&File::open(one.path()).unwrap()).file_id().unwrap(), id, "opened twice");
        assert_ne!(of(two.as_file()).file_id().unwrap(), id);
        // A number that no other test gets.
        let at = |file: &File| rustix::io::fcntl_dupfd_cloexec(file, 900).unwrap();
        let first = Descriptor::new(at(one.as_file()), OpenMode::Read).unwrap();
        let number = first.path();
        assert_eq!(first.name(), one.path());
        drop(first);
        let next = Descriptor::new(at(two.as_file()), OpenMode::Read).unwrap();
        assert!(next.path() == number && next.name() == two.path(), "the number is another file's now");
    }
}
