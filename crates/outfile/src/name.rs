//! A name in a directory, and what has it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat};
use rustix::io::Errno;

use crate::WriteError;

/// As many symbolic links as the kernel follows.
const LINKS_MAX: usize = 40;
/// How often a name is looked at again when what has it changes meanwhile.
const ATTEMPTS_MAX: usize = 16;

/// A name in an open directory. The file with the name is not a symbolic link, unless someone makes one later.
#[derive(Debug)]
pub struct Name {
    /// The directory.
    pub parent: OwnedFd,
    /// One component.
    pub name: Vec<u8>,
}

/// What has a name.
#[derive(Debug)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// A regular file, open for writing, and for reading where the user may.
    File {
        /// The open file.
        fd: OwnedFd,
        /// Whether it can be read.
        readable: bool,
        /// What is known of it.
        stat: Stat,
    },
    /// Something else, opened only to name it (`O_PATH`).
    Other {
        /// What refers to it.
        fd: OwnedFd,
        /// What it is.
        kind: FileType,
    },
}

impl Name {
    /// Follows symbolic links to the name that a path means in the end. `open_dir` opens a directory by its path; it decides
    /// where paths start and what they may not leave.
    ///
    /// # Errors
    /// `ELOOP`; `EISDIR` for a path that can only be a directory's; those of `open_dir`.
    pub fn follow(path: &[u8], open_dir: impl Fn(&[u8]) -> Result<OwnedFd, WriteError>) -> Result<Self, WriteError> {
        let mut path = path.to_vec();
        for _ in 0..=LINKS_MAX {
            let (dir, name) = split(&path)?;
            let at = Self { parent: open_dir(dir)?, name: name.to_vec() };
            // Links of /proc are none to follow by their text.
            if at.is_in_proc() {
                return Ok(at);
            }
            match fs::readlinkat(&at.parent, &*at.name, Vec::new()) {
                Ok(target) => path = join(dir, target.as_bytes()),
                Err(Errno::INVAL | Errno::NOENT) => return Ok(at),
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(WriteError::new(Errno::LOOP, "its symbolic links lead in a circle; remove one of them"))
    }

    /// The file that has the name now. A regular file is opened for writing, so an error says that this user may not
    /// write it.
    ///
    /// # Errors
    /// The system's error.
    pub fn find(&self) -> Result<Found, Errno> {
        for _ in 0..ATTEMPTS_MAX {
            let how = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = match fs::openat(&self.parent, &*self.name, how, Mode::empty()) {
                Ok(fd) => fd,
                Err(Errno::NOENT) => return Ok(Found::Nothing),
                Err(errno) => return Err(errno),
            };
            let seen = fs::fstat(&fd)?;
            let kind = FileType::from_raw_mode(seen.st_mode);
            if kind != FileType::RegularFile {
                return Ok(Found::Other { fd, kind });
            }
            let (fd, readable) = match self.reopen(fd.as_fd(), OFlags::RDWR) {
                Err(Errno::ACCESS) => (self.reopen(fd.as_fd(), OFlags::WRONLY)?, false),
                opened => (opened?, true),
            };
            let stat = fs::fstat(&fd)?;
            if (stat.st_dev, stat.st_ino) == (seen.st_dev, seen.st_ino) {
                return Ok(Found::File { fd, readable, stat });
            }
        }
        Err(Errno::AGAIN)
    }

    /// Opens what was found: through /proc the very same, and otherwise what has the name now, without waiting.
    fn reopen(&self, found: BorrowedFd<'_>, how: OFlags) -> Result<OwnedFd, Errno> {
        let how = how | OFlags::CLOEXEC | OFlags::NOCTTY;
        match fs::openat(CWD, &*path_of(found), how, Mode::empty()) {
            Err(Errno::NOENT) => {
                fs::openat(&self.parent, &*self.name, how | OFlags::NOFOLLOW | OFlags::NONBLOCK, Mode::empty())
            }
            opened => opened,
        }
    }

    pub(crate) fn is_in_proc(&self) -> bool {
        fs::fstatfs(&self.parent).is_ok_and(|found| found.f_type == PROC_SUPER_MAGIC)
    }

    /// Whether a file could have the name.
    pub(crate) fn is_free(&self) -> Result<bool, Errno> {
        match fs::statat(&self.parent, &*self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(false),
            Err(Errno::NOENT) => Ok(true),
            Err(errno) => Err(errno),
        }
    }
}

/// How a refusal calls a kind of file.
pub(crate) fn refusal_of(kind: FileType) -> WriteError {
    match kind {
        FileType::Directory => WriteError::new(Errno::ISDIR, "name a file in it"),
        FileType::Socket => WriteError::new(Errno::NXIO, "it is a socket, which cannot be written as a file"),
        FileType::Symlink => WriteError::new(Errno::LOOP, "someone made it a symbolic link meanwhile; try again"),
        _ => WriteError::new(Errno::INVAL, "it is a device or a FIFO, which is never replaced"),
    }
}

/// What refers to an open file by a path.
pub(crate) fn path_of(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// The directory's path and the last name.
fn split(path: &[u8]) -> Result<(&[u8], &[u8]), WriteError> {
    let (dir, name) = match path.iter().rposition(|&byte| byte == b'/') {
        Some(0) => (&path[..1], &path[1..]),
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&b"."[..], path),
    };
    match name {
        b"" if path.is_empty() => Err(WriteError::new(Errno::NOENT, "the name is empty")),
        b"" | b"." | b".." => Err(match fs::stat(path) {
            Err(Errno::NOENT) => WriteError::new(Errno::NOENT, "make the directory first"),
            Err(errno) => WriteError::new(errno, "name a file"),
            Ok(_) => WriteError::new(Errno::ISDIR, "name a file in it"),
        }),
        _ => Ok((dir, name)),
    }
}

/// Where a link in `dir` leads.
fn join(dir: &[u8], target: &[u8]) -> Vec<u8> {
    if target.starts_with(b"/") { target.to_vec() } else { [dir, b"/", target].concat() }
}
