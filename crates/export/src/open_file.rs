//! An open file of a session, and where an operation starts.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use diskside_outfile::Unnamed;

use crate::export::Export;
use crate::reading::Readers;

/// What a handle stands for.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) export: Arc<Export>,
    pub(super) fd: OwnedFd,
    /// How messages call it.
    pub(super) name: String,
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// Of a writable file: where its path started, to find it again. `None`: the export's root. No other file keeps
    /// its directory, so that a chain of lookups keeps no more files open than there are handles.
    pub(super) dir: Option<Arc<OpenFile>>,
    /// Of a writable file: its path from there.
    pub(super) path: Vec<u8>,
    /// A sync failed, so what was written before may be lost: no later sync can say otherwise.
    pub(super) sync_failed: AtomicBool,
    /// Of a file that has no name yet: which it is going to have.
    pub(super) unnamed: Option<Arc<Unnamed>>,
    pub(super) readers: Readers,
}

/// Where an operation starts: a directory of an export, and the path from there.
pub(super) struct Start<'a> {
    pub(super) export: Arc<Export>,
    /// Whether the host may change nothing there.
    pub(super) read_only: bool,
    pub(super) dir: Option<Arc<OpenFile>>,
    pub(super) path: &'a [u8],
}

impl Start<'_> {
    /// The directory to resolve the path from.
    pub(super) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_ref().map_or_else(|| self.export.root.as_fd(), |dir| dir.fd.as_fd())
    }

    /// How messages call what the path means.
    pub(super) fn name(&self) -> String {
        let mut name = self.dir.as_ref().map_or(&self.export.name, |dir| &dir.name).clone();
        if !self.path.is_empty() {
            name.push('/');
            name.extend(self.path.escape_ascii().map(char::from));
        }
        name.truncate(NAME_LEN_MAX);
        name
    }

    /// What was found there, open.
    pub(super) fn open(self, fd: OwnedFd, readable: bool, writable: bool) -> OpenFile {
        OpenFile {
            fd,
            name: self.name(),
            readable,
            writable,
            export: self.export,
            dir: self.dir.filter(|_| writable),
            path: if writable { self.path.to_vec() } else { Vec::new() },
            sync_failed: AtomicBool::new(false),
            unnamed: None,
            readers: Readers::default(),
        }
    }
}

/// Names in messages are cut here.
const NAME_LEN_MAX: usize = 1024;
