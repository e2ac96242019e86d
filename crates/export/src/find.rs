//! What a pattern means beneath an export, page by page. Nothing is kept between two pages: each goes on behind a path.
//!
//! The work of a command is bounded by what it looks at. Where that is much and little is found, the page ends with a mark,
//! and the next command goes on there.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use diskside_paths::{Kind, Pattern, Tree, Visit, WalkError, walk};
use diskside_wire::file::{FileAttributes, FileFlags, FileKind, FileOp, FoundFile};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;

use super::attributes::{attributes, status, status_at};
use super::open_file::Start;
use super::operations::{LIST_BUFFER_LEN, too_short};
use super::root::open_beneath;
use crate::reply::{FileError, FileReply};

/// Names that one command looks at before it leaves the next directory to another.
const NAMES_MAX: usize = 200_000;
/// How long a command may look at one directory.
const TIME_MAX: Duration = Duration::from_secs(10);

/// The page of a search behind `after`.
pub(super) fn find(
    op: FileOp,
    start: &Start<'_>,
    after: &[u8],
    len_max: usize,
    flags: FileFlags,
) -> Result<FileReply, FileError> {
    let invalid = |what: String| FileError::because(Errno::INVAL, format!("{op} {}: {what}", start.name()));
    // Paths begin as the pattern's does: with the export's name, if no directory's handle says where.
    let prefix = if start.dir.is_none() { format!("{}/", start.export.name) } else { String::new() };
    let behind = if after.is_empty() { Some(after) } else { after.strip_prefix(prefix.as_bytes()) };
    let after = behind.ok_or_else(|| invalid("the path to go on behind is in another export".into()))?;
    let below = flags.contains(FileFlags::RECURSIVE);
    let looked_at = Cell::new(0);
    let mut tree = Beneath { dir: start.dir(), looked_at: &looked_at, began: Instant::now(), at: Vec::new() };
    // A name may have these characters in it.
    let is_itself = Pattern::has_wildcards(start.path) && matches!(tree.kind(start.path), Ok(Some(_)));
    let pattern = if is_itself { Pattern::literal(start.path, below) } else { Pattern::parse(start.path, below) };
    let pattern = pattern.map_err(|error| invalid(error.to_string()))?;
    let mut page = Page { result: Vec::new(), count: 0, len_max, is_full: false, prefix };
    let mut entered = 0;
    let attributes_of = |path: &[u8], kind: Kind| {
        let how = if kind == Kind::Symlink { OFlags::PATH | OFlags::NOFOLLOW } else { OFlags::PATH };
        let fd = open_beneath(start.dir(), path, how, Mode::empty()).ok()?;
        Some(attributes(&status(fd.as_fd()).ok()?, start.read_only))
    };
    let walked = walk(&pattern, &mut tree, after, &mut |visit| match visit {
        Visit::Enter(path) => {
            // Directories on the way to where this goes on are no progress.
            let is_new = !after.starts_with(path);
            if is_new && entered > 0 && looked_at.get() > NAMES_MAX {
                // Without room for it, the next page goes on behind the last record.
                let _ = page.add(path, FileKind::Directory, true, None);
                return ControlFlow::Break(());
            }
            entered += usize::from(is_new);
            ControlFlow::Continue(())
        }
        Visit::Found(path, kind) => {
            let found = if flags.contains(FileFlags::ATTRIBUTES) { attributes_of(path, kind) } else { None };
            page.add(path, file_kind(kind), false, found)
        }
    });
    match walked {
        Err(WalkError::Tree(errno)) => {
            let directory = page.prefix + &tree.at.escape_ascii().to_string();
            Err(FileError::new(errno, format!("{op} {}: listing {directory}", start.name())))
        }
        Err(error @ WalkError::TooDeep) => {
            Err(FileError::because(Errno::LOOP, format!("{op} {}: {error}", start.name())))
        }
        Ok(()) if page.is_full && page.count == 0 => Err(too_short(op)),
        Ok(()) => Ok(FileReply { result: page.result, ..FileReply::done(page.count) }),
    }
}

/// Records of a page, as many as there is room for.
struct Page {
    result: Vec<u8>,
    count: u64,
    len_max: usize,
    is_full: bool,
    /// What paths begin with.
    prefix: String,
}

impl Page {
    fn add(
        &mut self,
        path: &[u8],
        kind: FileKind,
        is_mark: bool,
        attributes: Option<FileAttributes>,
    ) -> ControlFlow<()> {
        let path = [self.prefix.as_bytes(), path].concat();
        if self.result.len() + FoundFile::encoded_len(path.len(), attributes.is_some()) > self.len_max {
            self.is_full = true;
            return ControlFlow::Break(());
        }
        FoundFile { kind, is_mark, attributes, path: &path }.encode(&mut self.result);
        self.count += 1;
        ControlFlow::Continue(())
    }
}

/// The directories beneath one, none of them left by a symbolic link.
struct Beneath<'a> {
    dir: BorrowedFd<'a>,
    looked_at: &'a Cell<usize>,
    began: Instant,
    /// What is being listed.
    at: Vec<u8>,
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
                self.at = path.to_vec();
                Err(errno)
            }
        }
    }

    fn list(&mut self, directory: &[u8], each: &mut dyn FnMut(&[u8], Kind)) -> Result<(), Errno> {
        self.at = directory.to_vec();
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
            let looked_at = self.looked_at.get() + 1;
            self.looked_at.set(looked_at);
            if looked_at.is_multiple_of(4096) && self.began.elapsed() > TIME_MAX {
                return Err(Errno::TIMEDOUT);
            }
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

fn file_kind(kind: Kind) -> FileKind {
    match kind {
        Kind::File => FileKind::File,
        Kind::Directory => FileKind::Directory,
        Kind::Symlink => FileKind::Symlink,
        Kind::Other => FileKind::Other,
    }
}
