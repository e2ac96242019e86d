//! A new file that takes the name of an old one when it is whole and durable.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, Statx};
use rustix::io::Errno;

use crate::export::FileError;
use crate::export::attributes::{status, status_at};
use crate::export::root::{open_beneath, open_parent, same_file};
use crate::export::session::{OpenFile, Start};

/// A new file in the directory of the old one. It has no name until it is published, so that nothing of it stays when
/// the target is killed; where the file system knows no such files, a name of its own.
#[derive(Debug)]
pub(super) struct Replacement {
    old: Arc<OpenFile>,
    parent: OwnedFd,
    name: Vec<u8>,
    temporary: String,
    /// Whether the temporary name is there.
    named: AtomicBool,
}

impl Replacement {
    pub(super) fn begin(old: Arc<OpenFile>) -> Result<(OpenFile, Self), FileError> {
        Self::begin_with(old, make_nameless)
    }

    fn begin_with(
        old: Arc<OpenFile>,
        make_nameless: impl FnOnce(BorrowedFd<'_>, Mode) -> Option<OwnedFd>,
    ) -> Result<(OpenFile, Self), FileError> {
        let (parent, name, status) = own_name(&old)?;
        let temporary = format!(".diskside-{:016x}", RandomState::new().hash_one(&name));
        let mode = Mode::from_raw_mode(u32::from(status.stx_mode) & 0o777);
        let failed = |errno| FileError::new(errno, format!("making a file beside {}", old.name));
        let (fd, named) = match make_nameless(parent.as_fd(), mode) {
            Some(fd) => (fd, false),
            None => {
                let how = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
                (open_beneath(parent.as_fd(), temporary.as_bytes(), how, mode).map_err(failed)?, true)
            }
        };
        let replacement = Self { old: Arc::clone(&old), parent, name, temporary, named: AtomicBool::new(named) };
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
        if !self.named.load(Ordering::Relaxed) {
            // Linking cannot replace a name, renaming can.
            let from = path_of(new.fd.as_fd());
            fs::linkat(CWD, &*from, &self.parent, &*self.temporary, AtFlags::SYMLINK_FOLLOW).map_err(failed)?;
            self.named.store(true, Ordering::Relaxed);
        }
        fs::renameat(&self.parent, &*self.temporary, &self.parent, &*self.name).map_err(failed)?;
        self.named.store(false, Ordering::Relaxed);
        let dir = open_beneath(self.parent.as_fd(), b".", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
        dir.and_then(|dir| fs::fsync(&dir)).map_err(failed)?;
        Ok(self.open_file(fd))
    }

    pub(super) fn discard(&self) {
        if self.named.swap(false, Ordering::Relaxed)
            && let Err(errno) = fs::unlinkat(&self.parent, &*self.temporary, AtFlags::empty())
            && errno != Errno::NOENT
        {
            tracing::warn!(file = self.temporary, %errno, "a half-written file stays beside {}", self.old.name);
        }
    }

    fn open_file(&self, fd: OwnedFd) -> OpenFile {
        let (export, dir) = (Arc::clone(&self.old.export), self.old.dir.clone());
        Start { export, dir, path: &self.old.path }.open(fd, self.old.readable, true)
    }
}

/// A file without a name, if it can be made and can get one later.
fn make_nameless(parent: BorrowedFd<'_>, mode: Mode) -> Option<OwnedFd> {
    let fd = open_beneath(parent, b".", OFlags::RDWR | OFlags::TMPFILE, mode).ok()?;
    // Without /proc it could not.
    fs::statat(CWD, &*path_of(fd.as_fd()), AtFlags::empty()).is_ok().then_some(fd)
}

fn path_of(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
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
        let begin =
            || Replacement::begin_with(opened_for(&session, FileOp::Write, handle).unwrap(), |_, _| None).unwrap();
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
