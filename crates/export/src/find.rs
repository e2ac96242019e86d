//! What a pattern means beneath the root of a directory.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Instant;

use diskside_paths::{Kind, Tree};
use diskside_sbpf::machine::CancelToken;
use diskside_wire::file::{FileFlags, FileOp};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;

use super::attributes::{attributes, status, status_at};
use super::open_file::Start;
use super::root::{LIST_BUFFER_LEN, open_beneath};
use crate::reply::{FileError, FileReply};
use crate::search::{Progress, Search};
use crate::workers::goes_on;

/// The page of a search behind `after`, in a directory.
pub(super) fn find(
    op: FileOp,
    start: &Start<'_>,
    after: &[u8],
    len_max: usize,
    flags: FileFlags,
    cancel: &CancelToken,
) -> Result<FileReply, FileError> {
    if start.export.is_removed() {
        return Err(start.export.error(Errno::NOENT, format!("{op} {}", start.name())));
    }
    let progress = Progress::new(cancel);
    let mut tree = Beneath { dir: start.dir(), progress: &progress, began: Instant::now() };
    let attributes_of = |path: &[u8], kind: Kind| {
        let how = if kind == Kind::Symlink { OFlags::PATH | OFlags::NOFOLLOW } else { OFlags::PATH };
        let fd = open_beneath(start.dir(), path, how, Mode::empty()).ok()?;
        Some(attributes(&status(fd.as_fd()).ok()?, start.read_only))
    };
    // Paths begin as the pattern's does: with the export's name, if no directory's handle says where.
    let prefix = if start.dir.is_none() { format!("{}/", start.export.name) } else { String::new() };
    let search = Search { what: format!("{op} {}", start.name()), prefix, pattern: start.path, after, len_max, flags };
    search.page(&mut tree, &progress, attributes_of)
}

/// The directories beneath one, none of them left by a symbolic link.
struct Beneath<'a> {
    dir: BorrowedFd<'a>,
    progress: &'a Progress,
    began: Instant,
}

impl Tree for Beneath<'_> {
    type Error = Errno;

    fn kind(&mut self, path: &[u8]) -> Result<Option<Kind>, Errno> {
        let found = open_beneath(self.dir, path, OFlags::PATH, Mode::empty()).and_then(|fd| status(fd.as_fd()));
        match found {
            Ok(found) => Ok(Some(kind(FileType::from_raw_mode(found.stx_mode.into())))),
            // Nothing is there, or it leads nowhere.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::XDEV | Errno::LOOP | Errno::NAMETOOLONG) => Ok(None),
            Err(errno) => {
                *self.progress.at.borrow_mut() = path.to_vec();
                Err(errno)
            }
        }
    }

    fn list(&mut self, directory: &[u8], each: &mut dyn FnMut(&[u8], Kind)) -> Result<(), Errno> {
        *self.progress.at.borrow_mut() = directory.to_vec();
        goes_on();
        let how = OFlags::RDONLY | OFlags::DIRECTORY;
        let dir = match open_beneath(self.dir, directory, how, Mode::empty()) {
            // Removed since its name was listed, or another file system that is mounted there.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::XDEV) => return Ok(()),
            opened => opened?,
        };
        let mut buffer = vec![MaybeUninit::uninit(); LIST_BUFFER_LEN];
        let mut entries = RawDir::new(&dir, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            self.progress.look(self.began)?;
            let found = match entry.file_type() {
                FileType::Unknown => match status_at(dir.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(found) => FileType::from_raw_mode(found.stx_mode.into()),
                    Err(_) => continue,
                },
                known => known,
            };
            each(name, kind(found));
        }
        Ok(())
    }
}

fn kind(found: FileType) -> Kind {
    match found {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        _ => Kind::Other,
    }
}
