//! New files of an export: their names are found beneath its root, and given when the files are whole.

use std::os::fd::{AsFd, OwnedFd};

use diskside_outfile::{Name, Published, Unnamed, WriteError};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::open_file::{OpenFile, Start};
use super::root::open_beneath;
use crate::counted::Before;
use crate::reply::FileError;
use crate::space::{FileSpace, NoSpace};

/// The name that a path means in the end: symbolic links are followed, but not out of the export.
pub(super) fn own_name(start: &Start<'_>) -> Result<Name, WriteError> {
    let path = start.path.strip_suffix(b"/").unwrap_or(start.path);
    if path.is_empty() {
        return Err(Errno::INVAL.into());
    }
    let at =
        Name::follow(path, |dir| Ok(open_beneath(start.dir(), dir, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?))?;
    // It may be where another file is mounted.
    match open_beneath(at.parent.as_fd(), &at.name, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()) {
        Err(Errno::XDEV) => Err(Errno::XDEV.into()),
        _ => Ok(at),
    }
}

/// A file that has no name yet: what is open, what becomes of it, and what is counted of it as long as that is kept.
pub(super) type New = (OwnedFd, Unnamed, Option<FileSpace>);

/// A new file to be called so. Where it cannot be made in its directory, it waits in the export's root.
pub(super) fn create(start: &Start<'_>, at: Name, mode: Mode) -> Result<New, WriteError> {
    let export = &start.export;
    let _changing = export.ledger.is_kept().then(|| export.ledger.changing_names());
    let room = export.new_file(&start.quota).map_err(NoSpace::into_write_error)?;
    let (fd, unnamed) = Unnamed::create(at, export.file_mode(mode), || {
        let how = OFlags::RDWR | OFlags::TMPFILE;
        let made = open_beneath(start.export.root.as_fd(), b".", how, Mode::RUSR | Mode::WUSR);
        made.map_err(|errno| WriteError {
            errno,
            meaning:
                "the export's user can make no file in its directory, nor in the export's root, to hold the new content"
                    .into(),
            file: None,
        })
    })?;
    let space = room.made_to_keep(&export.ledger, fd.as_fd())?;
    Ok((fd, unnamed, space))
}

/// Gives a new file its name. What is then open as that name, and whether it can be read.
pub(super) fn publish(file: &OpenFile, unnamed: &Unnamed) -> Result<(OwnedFd, bool), WriteError> {
    let ledger = &file.export.ledger;
    let _changing = ledger.is_kept().then(|| ledger.changing_names());
    // The file that has the name now is kept until the outcome is known.
    let mut before = Vec::new();
    let published = unnamed.publish_unless(file.fd.as_fd(), true, &mut |succession, old| {
        before.extend(Before::of(file, succession, old)?);
        Ok(())
    });
    drop(before);
    match published? {
        Published::Named => Ok((rustix::io::fcntl_dupfd_cloexec(&file.fd, 0)?, true)),
        Published::Overwritten { fd, readable } => Ok((fd, readable)),
    }
}

/// The error of `what`, which names the file.
pub(super) fn refused(what: &str, error: &WriteError) -> FileError {
    match error {
        WriteError { errno, meaning, .. } if meaning.is_empty() => FileError::new(*errno, what),
        _ => FileError::because(error.errno, format!("{what}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ExportSpec;
    use crate::Exports;
    use diskside_wire::file::FileOp;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    /// NFS and some others have no files without a name.
    #[test]
    fn where_every_file_has_a_name_what_is_given_up_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let names = || std::fs::read_dir(dir.path()).unwrap().count();
        let session = Exports::open(&[ExportSpec::new("data", dir.path()).writable()]).unwrap().session();
        let begin = || {
            let start = session.start(FileOp::Create, None, b"data/x").unwrap();
            let at = own_name(&start).unwrap();
            let (fd, unnamed) = Unnamed::make_named(at, Mode::RWXU).unwrap();
            let mut file = start.open(fd, true, true);
            file.unnamed = Some(Arc::new(unnamed));
            file
        };
        let handle = session.insert(FileOp::Create, begin()).unwrap();
        assert_eq!(names(), 1, "it has a name of its own");
        drop(session.remove(FileOp::Close, handle).unwrap());
        let began = Instant::now();
        while names() > 0 {
            assert!(began.elapsed() < Duration::from_secs(30), "it stays");
            std::thread::sleep(Duration::from_millis(1));
        }
        let file = begin();
        file.unnamed.as_ref().unwrap().publish(file.fd.as_fd(), true).unwrap();
        drop(file);
        assert_eq!((names(), dir.path().join("x").exists()), (1, true), "what was published stays");
    }
}
