//! Resolving paths beneath an export's root, and never out of it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags, openat, openat2};
use rustix::io::Errno;

use super::attributes::status;

/// The root directory of an export, kept open: it stays the same directory when its path is renamed.
#[derive(Debug)]
pub(super) struct Root {
    fd: OwnedFd,
}

/// How often a path is resolved again when something beneath it was renamed meanwhile.
const ATTEMPTS_MAX: usize = 64;

/// Bytes of names that are taken from a directory at a time.
pub(super) const LIST_BUFFER_LEN: usize = 32 << 10;

const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS).union(ResolveFlags::NO_XDEV);

impl Root {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = Self { fd: openat(CWD, path, flags, Mode::empty())? };
        match open_beneath(root.fd.as_fd(), b".", OFlags::PATH, Mode::empty()) {
            Err(Errno::NOSYS) => Err(io::Error::other("exports need openat2, which Linux has since 5.6")),
            checked => checked.map(|_| root).map_err(Into::into),
        }
    }
}

impl Root {
    /// The root of an export that is not a directory: every path beneath it fails with `ENOTDIR`.
    pub(super) fn none() -> Result<Self, Errno> {
        Ok(Self { fd: eventfd(0, EventfdFlags::CLOEXEC)? })
    }
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Opens `path` beneath `dir`; empty means `dir` itself.
pub(super) fn open_beneath(dir: BorrowedFd<'_>, path: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b"." } else { path };
    for _ in 0..ATTEMPTS_MAX {
        match openat2(dir, path, flags | OFlags::CLOEXEC, mode, BENEATH) {
            // The kernel cannot tell whether a rename meanwhile led out; that is not an error of the path.
            Err(Errno::AGAIN) => {}
            result => return result,
        }
    }
    Err(Errno::AGAIN)
}

/// Opens what is at `path` if it is a regular file or a directory. Opening others can have effects or wait, so the
/// kind is looked at first.
pub(super) fn open_file(dir: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<(OwnedFd, Statx), Errno> {
    for _ in 0..ATTEMPTS_MAX {
        let seen = status(open_beneath(dir, path, OFlags::PATH | flags & OFlags::NOFOLLOW, Mode::empty())?.as_fd())?;
        match FileType::from_raw_mode(seen.stx_mode.into()) {
            FileType::RegularFile | FileType::Directory => {}
            FileType::Symlink => return Err(Errno::LOOP),
            _ => return Err(Errno::INVAL),
        }
        // Should it become a pipe meanwhile, nothing waits. With O_PATH openat2 takes no such flag.
        let patience = if flags.contains(OFlags::PATH) { OFlags::empty() } else { OFlags::NONBLOCK | OFlags::NOCTTY };
        let opened = open_beneath(dir, path, flags | patience, Mode::empty())?;
        let found = status(opened.as_fd())?;
        if same_file(&seen, &found) {
            return Ok((opened, found));
        }
    }
    Err(Errno::AGAIN)
}

/// Opens the directory that holds the last name of `path`, and gives that name.
pub(super) fn open_parent<'a>(dir: BorrowedFd<'_>, path: &'a [u8]) -> Result<(OwnedFd, &'a [u8]), Errno> {
    let trimmed = path.strip_suffix(b"/").unwrap_or(path);
    let (parent, name) = match trimmed.iter().rposition(|&byte| byte == b'/') {
        // "/name" stays absolute and so is refused, instead of being taken as "name".
        Some(at) => (&trimmed[..at.max(1)], &trimmed[at + 1..]),
        None => (&b"."[..], trimmed),
    };
    if matches!(name, b"" | b"." | b"..") {
        return Err(Errno::INVAL);
    }
    Ok((open_beneath(dir, parent, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?, name))
}

/// Whether both are the same file.
pub(super) fn same_file(a: &Statx, b: &Statx) -> bool {
    let known = StatxFlags::INO.bits();
    debug_assert!(a.stx_mask & b.stx_mask & known == known, "asked for");
    (a.stx_ino, a.stx_dev_major, a.stx_dev_minor) == (b.stx_ino, b.stx_dev_major, b.stx_dev_minor)
}
