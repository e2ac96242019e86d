//! A new file that takes the name of an old one when it is whole and durable.

use std::os::fd::AsFd;
use std::sync::Arc;

use diskside_outfile::{Name, Unnamed, WriteError};
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;

use crate::attributes::{status, status_at};
use crate::open_file::{OpenFile, Start};
use crate::reply::FileError;
use crate::root::same_file;
use crate::unnamed;

/// A new file that takes the place of an old one, or gives it its content.
#[derive(Debug)]
pub(super) struct Replacement {
    old: Arc<OpenFile>,
    new: Arc<Unnamed>,
}

impl Replacement {
    pub(super) fn begin(old: Arc<OpenFile>) -> Result<(OpenFile, Self), FileError> {
        Self::begin_with(old, unnamed::create)
    }

    fn begin_with(
        old: Arc<OpenFile>,
        make: impl FnOnce(&Start<'_>, Name, Mode) -> Result<unnamed::New, WriteError>,
    ) -> Result<(OpenFile, Self), FileError> {
        let at = name_of(&old)?;
        let made = make(&start_of(&old), at, Mode::RUSR | Mode::WUSR);
        let (fd, new, space) = made.map_err(|error| unnamed::refused(&format!("replacing {}", old.name), &error))?;
        let replacement = Self { old, new: Arc::new(new) };
        let mut file = start_of(&replacement.old).open(fd, replacement.old.readable, true);
        // If nobody ends it, it goes with the drop on a thread of the export.
        file.is_unnamed(Arc::clone(&replacement.new), space);
        file.is_counted().map_err(|errno| FileError::new(errno, format!("replacing {}", file.name)))?;
        Ok((file, replacement))
    }

    /// Whose place it takes.
    pub(super) fn old(&self) -> &OpenFile {
        &self.old
    }

    /// Whether it can still take the name.
    pub(super) fn check(&self) -> Result<(), FileError> {
        name_of(&self.old).map(drop)
    }

    /// Gives the new file, all of which is on stable media, the name. The answer is the file of the handle from now on.
    pub(super) fn publish(&self, new: &OpenFile) -> Result<OpenFile, FileError> {
        let published = self.try_publish(new);
        if published.is_err() {
            self.discard();
        }
        published
    }

    fn try_publish(&self, new: &OpenFile) -> Result<OpenFile, FileError> {
        self.check()?;
        let published = unnamed::publish(new, &self.new);
        let (fd, readable) =
            published.map_err(|error| unnamed::refused(&format!("replacing {}", self.old.name), &error))?;
        let named = start_of(&self.old).open(fd, self.old.readable && readable, true);
        named.is_counted().map_err(|errno| FileError::new(errno, &self.old.name))?;
        Ok(named)
    }

    pub(super) fn discard(&self) {
        self.new.discard(&self.old.name);
    }
}

fn start_of(file: &Arc<OpenFile>) -> Start<'_> {
    // Anyone who replaces it was let write to it.
    let (export, quota) = (Arc::clone(&file.export), Arc::clone(&file.quota));
    Start { export, read_only: false, dir: file.dir.clone(), path: &file.path, quota }
}

/// The directory and name of an open file, if that name still means this file.
fn name_of(file: &Arc<OpenFile>) -> Result<Name, FileError> {
    let what = || format!("replacing {}", file.name);
    let failed = |errno| FileError::new(errno, what());
    let at = unnamed::own_name(&start_of(file)).map_err(|error| unnamed::refused(&what(), &error))?;
    let named = status_at(at.parent.as_fd(), &at.name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
    let opened = status(file.fd.as_fd()).map_err(failed)?;
    if !same_file(&named, &opened) {
        let message = format!("replacing {}: that name means another file by now", file.name);
        return Err(FileError::because(Errno::STALE, message));
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ExportSpec;
    use crate::Exports;
    use crate::operations::{opened_for, write_all};
    use diskside_wire::file::{FileFlags, FileOp, FileRequest, OpenedFile};
    use zerocopy::FromBytes;

    /// NFS and some others have no files without a name.
    #[test]
    fn where_every_file_has_a_name_the_new_one_has_its_own_until_it_is_published() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("x"), "old").unwrap();
        let session = Exports::open(&[ExportSpec::new("data", dir.path()).writable()]).unwrap().session();
        let (sender, receiver) = std::sync::mpsc::channel();
        let open = FileRequest::Lookup { dir: None, path: b"data/x", flags: FileFlags::READ_WRITE };
        session.submit(open.to_bytes(), 4096, move |reply| sender.send(reply).unwrap()).unwrap();
        let opened = receiver.recv().unwrap().result;
        let handle = OpenedFile::read_from_bytes(&opened).unwrap().handle();
        let named = |_: &Start<'_>, at, mode| match Unnamed::make_named(at, mode) {
            Ok((fd, unnamed)) => Ok((fd, unnamed, None)),
            Err((_, errno)) => Err(WriteError::from(errno)),
        };
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
