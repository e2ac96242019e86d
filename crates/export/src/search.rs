//! The meaning of a pattern, page by page. Nothing is kept between two pages: each continues behind a path.
//!
//! The work of a command is bounded by what it looks at. Where that is much and little is found, the page ends with a mark,
//! and the next command continues there.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use diskside_paths::{Kind, Pattern, Tree, Visit, WalkError, walk};
use diskside_sbpf::machine::CancelToken;
use diskside_wire::file::{FileAttributes, FileFlags, FileKind, FileOp, FoundFile};
use rustix::io::Errno;

use crate::reply::{FileError, FileReply};
use crate::workers::goes_on;

/// Names that one command looks at before it leaves the next directory to another.
const NAMES_MAX: usize = 200_000;
/// How long a command may look at one directory.
const TIME_MAX: Duration = Duration::from_secs(10);
/// Names between two looks at the clock.
const CHECKED_EVERY: usize = 4096;

/// What is looked for.
pub(super) struct Search<'a> {
    /// How messages call it.
    pub(super) what: String,
    /// What paths begin with.
    pub(super) prefix: String,
    pub(super) pattern: &'a [u8],
    pub(super) after: &'a [u8],
    pub(super) len_max: usize,
    pub(super) flags: FileFlags,
}

/// How far a search is.
#[derive(Debug)]
pub(super) struct Progress {
    /// Nobody wants it any more.
    cancel: CancelToken,
    /// Names that were looked at.
    pub(super) looked_at: Cell<usize>,
    /// What is being listed.
    pub(super) at: RefCell<Vec<u8>>,
}

impl Search<'_> {
    /// The page that comes next.
    pub(super) fn page(
        self,
        tree: &mut impl Tree<Error = Errno>,
        progress: &Progress,
        attributes_of: impl Fn(&[u8], Kind) -> Option<FileAttributes>,
    ) -> Result<FileReply, FileError> {
        let Self { what, prefix, pattern, after, len_max, flags } = self;
        let invalid = |why: String| FileError::because(Errno::INVAL, format!("{what}: {why}"));
        let behind = if after.is_empty() { Some(after) } else { after.strip_prefix(prefix.as_bytes()) };
        let after = behind.ok_or_else(|| invalid("the path to go on behind is in another export".into()))?;
        let below = flags.contains(FileFlags::RECURSIVE);
        // A name may have these characters in it.
        let is_itself = Pattern::has_wildcards(pattern) && matches!(tree.kind(pattern), Ok(Some(_)));
        let pattern = if is_itself { Pattern::literal(pattern, below) } else { Pattern::parse(pattern, below) };
        let pattern = pattern.map_err(|error| invalid(error.to_string()))?;
        let pattern = pattern.with_links(flags.contains(FileFlags::LINKS));
        let mut page = Page { result: Vec::new(), count: 0, len_max, is_full: false, prefix };
        let mut entered = 0;
        let walked = walk(&pattern, tree, after, &mut |visit| match visit {
            Visit::Enter(path) => {
                // Directories on the way to where this continues are not progress.
                let is_new = !after.starts_with(path);
                if is_new && entered > 0 && progress.looked_at.get() > NAMES_MAX {
                    // Without room for it, the next page continues behind the last record.
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
            Err(WalkError::Tree(_)) if progress.cancel.is_cancelled() => {
                Err(FileError::because(Errno::CANCELED, format!("{what}: cancelled")))
            }
            Err(WalkError::Tree(errno)) => {
                let directory = page.prefix + &progress.at.borrow().escape_ascii().to_string();
                Err(FileError::new(errno, format!("{what}: listing {directory}")))
            }
            Err(error @ WalkError::TooDeep) => Err(FileError::because(Errno::LOOP, format!("{what}: {error}"))),
            Ok(()) if page.is_full && page.count == 0 => Err(FileError::too_short(FileOp::Find)),
            Ok(()) => Ok(FileReply { result: page.result, ..FileReply::done(page.count) }),
        }
    }
}

impl Progress {
    /// Nothing was looked at yet.
    pub(super) fn new(cancel: &CancelToken) -> Self {
        Self { cancel: cancel.clone(), looked_at: Cell::default(), at: RefCell::default() }
    }

    /// One more name. A directory that has been listed for too long is given up, and so is one that nobody wants any more.
    pub(super) fn look(&self, began: Instant) -> Result<(), Errno> {
        if self.cancel.is_cancelled() {
            return Err(Errno::CANCELED);
        }
        let looked_at = self.looked_at.get() + 1;
        self.looked_at.set(looked_at);
        if !looked_at.is_multiple_of(CHECKED_EVERY) {
            return Ok(());
        }
        goes_on();
        let too_long = began.elapsed() > TIME_MAX;
        if too_long { Err(Errno::TIMEDOUT) } else { Ok(()) }
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

fn file_kind(kind: Kind) -> FileKind {
    match kind {
        Kind::File => FileKind::File,
        Kind::Directory => FileKind::Directory,
        Kind::Symlink => FileKind::Symlink,
        Kind::Other => FileKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory without end, of which the search is cancelled at one of its names.
    struct Endless<'a> {
        progress: &'a Progress,
        cancel: &'a CancelToken,
    }

    const CANCELLED_AT: usize = 100_000;

    impl Tree for Endless<'_> {
        type Error = Errno;

        fn kind(&mut self, path: &[u8]) -> Result<Option<Kind>, Errno> {
            Ok(path.is_empty().then_some(Kind::Directory))
        }

        fn list(&mut self, _directory: &[u8], each: &mut dyn FnMut(&[u8], Kind)) -> Result<(), Errno> {
            let began = Instant::now();
            for number in 1.. {
                self.progress.look(began)?;
                each(format!("{number}.log").as_bytes(), Kind::File);
                if number == CANCELLED_AT {
                    self.cancel.cancel();
                }
            }
            Ok(())
        }
    }

    /// A search of one huge directory kept its thread, one of eight of the export, for ten seconds after its host had gone.
    #[test]
    fn a_search_that_nobody_wants_ends_within_a_directory() {
        let cancel = CancelToken::new();
        let progress = Progress::new(&cancel);
        let mut tree = Endless { progress: &progress, cancel: &cancel };
        let search = Search {
            what: "Find data/*.txt".into(),
            prefix: "data/".into(),
            pattern: b"*.txt",
            after: b"",
            len_max: 4096,
            flags: FileFlags::NONE,
        };
        let error = search.page(&mut tree, &progress, |_, _| None).unwrap_err();
        assert_eq!((error.errno, error.message.as_str()), (Errno::CANCELED, "Find data/*.txt: cancelled"));
        assert_eq!(progress.looked_at.get(), CANCELLED_AT);
    }
}
