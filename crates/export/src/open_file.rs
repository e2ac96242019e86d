//! An open file of a session, and where an operation starts.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use diskside_outfile::Unnamed;
use diskside_rights::HostQuota;

use crate::export::Export;
use crate::reading::Readers;
use crate::space::{FileSpace, give_back};

/// The file that a handle refers to.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) export: Arc<Export>,
    pub(super) fd: Arc<OwnedFd>,
    /// How messages call it.
    pub(super) name: String,
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// For a writable file: where its path started, to find it again. `None`: the export's root. No other file keeps
    /// its directory, so that a chain of lookups keeps no more files open than there are handles.
    pub(super) dir: Option<Arc<OpenFile>>,
    /// For a writable file: its path from there.
    pub(super) path: Vec<u8>,
    /// A sync failed, so what was written before may be lost: no later sync can say otherwise.
    pub(super) sync_failed: AtomicBool,
    /// For a file that has no name yet: the one it is going to have.
    pub(super) unnamed: Option<Arc<Unnamed>>,
    pub(super) readers: Readers,
    /// How much its host may hold.
    pub(super) quota: Arc<HostQuota>,
    /// What it counts for, if anything is counted.
    pub(super) space: OnceLock<FileSpace>,
}

/// Where an operation starts: a directory of an export, and the path from there.
pub(super) struct Start<'a> {
    pub(super) export: Arc<Export>,
    /// Whether the host may change nothing there.
    pub(super) read_only: bool,
    pub(super) dir: Option<Arc<OpenFile>>,
    pub(super) path: &'a [u8],
    /// How much the host may hold.
    pub(super) quota: Arc<HostQuota>,
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
            fd: Arc::new(fd),
            name: self.name(),
            readable,
            writable,
            export: self.export,
            dir: self.dir.filter(|_| writable),
            path: if writable { self.path.to_vec() } else { Vec::new() },
            sync_failed: AtomicBool::new(false),
            unnamed: None,
            readers: Readers::default(),
            quota: self.quota,
            space: OnceLock::new(),
        }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let unnamed = self.unnamed.take().filter(|unnamed| unnamed.has_temporary_name());
        let space = self.space.take();
        if unnamed.is_none() && space.is_none() {
            return;
        }
        let export = Arc::clone(&self.export);
        let Some(unnamed) = unnamed else {
            // Most files still have their name: nothing is to be done.
            if let Some(gone) = space.and_then(|space| space.hold.leave(self.fd.as_fd()))
                && let Ok(fd) = self.fd.try_clone()
            {
                export.workers.soon(move || gone.give_back(fd.as_fd()));
            }
            return;
        };
        // As the export's user, and on a thread that may wait for a disk.
        let (name, fd) = (std::mem::take(&mut self.name), self.fd.try_clone());
        export.workers.soon(move || {
            unnamed.discard(&name);
            if let (Some(space), Ok(fd)) = (space, fd) {
                give_back(space.hold, fd.as_fd());
            }
        });
    }
}

/// Names in messages are cut here.
const NAME_LEN_MAX: usize = 1024;
