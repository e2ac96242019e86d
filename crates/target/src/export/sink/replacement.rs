//! A new file that takes the name of an old one when it is whole and durable.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{self, AtFlags, Mode, Statx};
use rustix::io::Errno;

use crate::export::FileError;
use crate::export::attributes::{status, status_at};
use crate::export::root::{open_parent, same_file};
use crate::export::session::{OpenFile, Start};
use crate::export::unnamed::Unnamed;

/// A new file in the directory of the old one, with its mode.
#[derive(Debug)]
pub(super) struct Replacement {
    old: Arc<OpenFile>,
    new: Unnamed,
}

impl Replacement {
    pub(super) fn begin(old: Arc<OpenFile>) -> Result<(OpenFile, Self), FileError> {
        Self::begin_with(old, Unnamed::make)
    }

    fn begin_with(
        old: Arc<OpenFile>,
        make: impl FnOnce(OwnedFd, Vec<u8>, Mode) -> Result<(OwnedFd, Unnamed), Errno>,
    ) -> Result<(OpenFile, Self), FileError> {
        let (parent, name, status) = own_name(&old)?;
        let mode = Mode::from_raw_mode(u32::from(status.stx_mode) & 0o777);
        let failed = |errno| FileError::new(errno, format!("making a file beside {}", old.name));
        let (fd, new) = make(parent, name, mode).map_err(failed)?;
        let replacement = Self { old: Arc::clone(&old), new };
        // The process's umask may have taken bits that the old file has.
        if let Err(errno) = fs::fchmod(&fd, mode) {
            replacement.discard();
            return Err(failed(errno));
        }
        Ok((replacement.open_file(fd), replacement))
    }

    /// Whose place it takes.
    pub(super) fn old(&self) -> &OpenFile {
        &self.old
    }

    /// Whether it can still take the name.
    pub(super) fn check(&self) -> Result<(), FileError> {
        own_name(&self.old).map(drop)
    }

    /// Gives the new file, all of which is on stable media, the name. The answer is what the handle stands for from now on.
    pub(super) fn publish(&self, new: &OpenFile) -> Result<OpenFile, FileError> {
        let published = self.try_publish(new);
        if published.is_err() {
            self.discard();
        }
        published
    }

    fn try_publish(&self, new: &OpenFile) -> Result<OpenFile, FileError> {
        let failed = |errno| FileError::new(errno, format!("replacing {}", self.old.name));
        own_name(&self.old)?;
        let fd = rustix::io::fcntl_dupfd_cloexec(&new.fd, 0).map_err(failed)?;
        self.new.publish(new.fd.as_fd()).map_err(failed)?;
        Ok(self.open_file(fd))
    }

    pub(super) fn discard(&self) {
        self.new.discard(&self.old.name);
    }

    fn open_file(&self, fd: OwnedFd) -> OpenFile {
        let (export, dir) = (Arc::clone(&self.old.export), self.old.dir.clone());
        Start { export, dir, path: &self.old.path }.open(fd, self.old.readable, true)
    }
}

/// The directory and name of an open file, if that name still means this file, and no symbolic link.
fn own_name(file: &Arc<OpenFile>) -> Result<(OwnedFd, Vec<u8>, Statx), FileError> {
    let failed = |errno| FileError::new(errno, format!("replacing {}", file.name));
    let start = Start { export: Arc::clone(&file.export), dir: file.dir.clone(), path: &file.path };
    let (parent, name) = open_parent(start.dir(), &file.path).map_err(failed)?;
    let named = status_at(parent.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
    let opened = status(file.fd.as_fd()).map_err(failed)?;
    if !same_file(&named, &opened) {
        let message = format!("replacing {}: that name means another file by now, or a symbolic link", file.name);
        return Err(FileError::because(Errno::STALE, message));
    }
    Ok((parent, name.to_vec(), opened))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ExportSpec;
    use crate::export::Exports;
    use crate::export::operations::{opened_for, write_all};
    use diskside_nvme::wire::file::{FileFlags, FileOp, FileRequest, OpenedFile};
    use zerocopy::FromBytes;

    /// NFS and some others have no files without a name.
    #[test]
    fn where_every_file_has_a_name_the_new_one_has_its_own_until_it_is_published() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("x"), "old").unwrap();
        let session = Exports::open(&[ExportSpec::new("data", dir.path())]).unwrap().session();
        let (sender, receiver) = std::sync::mpsc::channel();
        let open = FileRequest::Lookup { dir: None, path: b"data/x", flags: FileFlags::READ_WRITE };
        session.submit(open.to_bytes(), 4096, move |reply| sender.send(reply).unwrap()).unwrap();
        let opened = receiver.recv().unwrap().result;
        let handle = OpenedFile::read_from_bytes(&opened).unwrap().handle();
        let named = |parent, name, mode| Unnamed::make_with(parent, name, mode, |_, _| None);
        let begin = || Replacement::begin_with(opened_for(&session, FileOp::Write, handle).unwrap(), named).unwrap();
        let names = || std::fs::read_dir(dir.path()).unwrap().count();

        let (new, replacement) = begin();
        write_all(&new, Some(0), b"half").unwrap();
        assert_eq!(names(), 2);
        replacement.discard();
        assert_eq!((names(), std::fs::read(dir.path().join("x")).unwrap()), (1, b"old".to_vec()));

        let (new, replacement) = begin();
        write_all(&new, Some(0), b"new").unwrap();
        replacement.publish(&new).unwrap();
        assert_eq!((names(), std::fs::read(dir.path().join("x")).unwrap()), (1, b"new".to_vec()));
    }
}
