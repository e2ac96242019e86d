//! The holdings of hosts, as exports and open files have to do with them: see [`space`](crate::space).

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use diskside_outfile::{Succession, Unnamed, WriteError};
use diskside_rights::HostQuota;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::ExportSpec;
use crate::attributes::status;
use crate::export::{Export, ExportError};
use crate::open_file::OpenFile;
use crate::reply::FileError;
use crate::root::open_beneath;
use crate::space::{
    Change, FileSpace, Growth, Hold, NameHold, NewFile, NoSpace, Space, count_if_due, give_back, has_owners, is_gone,
};

/// The access that the owner of a file always has, so that it can be counted.
const COUNTABLE_FILE: Mode = Mode::RUSR.union(Mode::WUSR);
const COUNTABLE_DIRECTORY: Mode = Mode::RWXU;

impl Export {
    /// Keeps accounts from now on, and begins to count what is there.
    pub(crate) fn keep_accounts(self: &Arc<Self>) {
        if !self.read_only {
            self.ledger.keep();
            self.ledger.schedule.want_at_once();
            count_if_due(self);
        }
    }

    /// Counts what is there if it is time to. Not while names change.
    pub(crate) fn count_if_due(self: &Arc<Self>) {
        count_if_due(self);
    }

    /// Waits until what hosts hold has been counted. False: not within `patience`.
    pub(crate) fn is_counted_within(&self, patience: Duration) -> bool {
        !self.ledger.is_kept() || self.ledger.schedule.wait(patience)
    }

    /// Room for one more file of this host, which is to be asked for before the file is made.
    pub(crate) fn new_file(&self, quota: &HostQuota) -> Result<NewFile, NoSpace> {
        let account = if self.ledger.is_kept() { self.ledger.account(quota.nqn()) } else { None };
        if let Some(account) = &account {
            self.ledger.take(account, quota, Space::file(0), "")?;
        }
        Ok(NewFile { account })
    }

    /// The mode of a new file.
    pub(crate) fn file_mode(&self, mode: Mode) -> Mode {
        if self.ledger.is_kept() { mode | COUNTABLE_FILE } else { mode }
    }

    /// The mode of a new directory.
    pub(crate) fn directory_mode(&self, mode: Mode) -> Mode {
        if self.ledger.is_kept() { mode | COUNTABLE_DIRECTORY } else { mode }
    }

    /// Why a directory may not get another name now.
    pub(crate) fn refuse_rename(&self, hold: Option<&NameHold>) -> Result<(), NoSpace> {
        let is_directory = hold.is_some_and(|hold| hold.is_directory);
        if is_directory && !self.ledger.schedule.may_rename_directory() {
            let why =
                "it is being counted what hosts hold, for which directories have to stay where they are; try again";
            return Err(NoSpace { errno: Errno::AGAIN, why: why.into() });
        }
        Ok(())
    }

    /// Keeps what a name means, whose name is about to change: `None` where nothing is counted, or there is nothing.
    pub(crate) fn hold_name(&self, parent: &OwnedFd, name: &[u8]) -> Option<NameHold> {
        if !self.ledger.is_kept() {
            return None;
        }
        let file = open_beneath(parent.as_fd(), name, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()).ok()?;
        let found = status(file.as_fd()).ok()?;
        let kind = FileType::from_raw_mode(found.stx_mode.into());
        if !matches!(kind, FileType::RegularFile | FileType::Directory) {
            return None;
        }
        let hold = self.ledger.hold(file.as_fd(), &found);
        hold.disturb();
        Some(NameHold { hold: Some(hold), file, is_directory: kind == FileType::Directory })
    }
}

impl OpenFile {
    /// It has no name yet, and this is counted of it.
    pub(crate) fn is_unnamed(&mut self, unnamed: Arc<Unnamed>, space: Option<FileSpace>) {
        self.unnamed = Some(unnamed);
        self.space = space.map_or_else(Default::default, Into::into);
    }

    fn space(&self) -> Result<Option<&FileSpace>, Errno> {
        let ledger = &self.export.ledger;
        if !ledger.is_kept() {
            return Ok(None);
        }
        if let Some(known) = self.space.get() {
            return Ok(Some(known));
        }
        let found = status(self.fd.as_fd())?;
        let account = ledger.account(self.quota.nqn());
        let new = FileSpace { hold: ledger.hold(self.fd.as_fd(), &found), account };
        Ok(Some(self.space.get_or_init(|| new)))
    }

    /// Keeps what is counted of it as long as it is open. One that has lost its name a moment ago may be given back already.
    pub(crate) fn is_counted(&self) -> Result<(), Errno> {
        match self.space()? {
            Some(_) if self.unnamed.is_none() && is_gone(self.fd.as_fd()) => Err(Errno::NOENT),
            _ => Ok(()),
        }
    }

    /// Makes room for bytes that are about to be written: from `offset` on, or at the end.
    pub(crate) fn grow(
        &self,
        what: impl Fn() -> String,
        offset: Option<u64>,
        more_bytes: u64,
    ) -> Result<Growth<'_>, FileError> {
        let file = self.fd.as_fd();
        let Some(space) = self.space().map_err(|errno| FileError::new(errno, what()))? else {
            return Ok(Growth { change: None, file });
        };
        let host = (space.account.as_ref(), &*self.quota);
        let grown = space.hold.grow(file, host, offset, more_bytes);
        count_if_due(&self.export);
        grown.map(|change| Growth { change: Some(change), file }).map_err(|no_space| no_space.about(what()))
    }

    /// It is going to be changed for a while.
    pub(crate) fn begin_change(&self) -> Option<Change> {
        self.space().ok().flatten().map(|space| space.hold.change(self.fd.as_fd()))
    }

    /// Its length is about to change, and is looked at when that is done.
    pub(crate) fn changing(&self) -> Growth<'_> {
        Growth { change: self.begin_change(), file: self.fd.as_fd() }
    }
}

/// A file that a new one takes the place of, or whose content that becomes. Dropping it, on a thread of the export, looks what became of
/// it.
#[derive(Debug)]
pub(crate) struct Before {
    file: OwnedFd,
    hold: Option<Hold>,
    change: Option<Change>,
}

impl Before {
    /// To be made before anything is changed; `None` where nothing is counted.
    pub(crate) fn of(new: &OpenFile, succession: Succession, old: BorrowedFd<'_>) -> Result<Option<Self>, WriteError> {
        let ledger = &new.export.ledger;
        if !ledger.is_kept() {
            return Ok(None);
        }
        let file = rustix::io::fcntl_dupfd_cloexec(old, 0)?;
        let mut before = Self { hold: Some(ledger.hold(old, &status(old)?)), file, change: None };
        match (&before.hold, succession) {
            (Some(hold), Succession::Overwrite) => {
                let account = ledger.account(new.quota.nqn());
                let len = status(new.fd.as_fd())?.stx_size;
                let grown = hold.grow(old, (account.as_ref(), &new.quota), Some(0), len);
                before.change = Some(grown.map_err(NoSpace::into_write_error)?);
            }
            (Some(hold), Succession::Replace) => hold.disturb(),
            (None, _) => {}
        }
        Ok(Some(before))
    }
}

impl Drop for Before {
    fn drop(&mut self) {
        if let Some(change) = self.change.take() {
            change.end(self.file.as_fd(), false);
        }
        if let Some(hold) = self.hold.take() {
            give_back(hold, self.file.as_fd());
        }
    }
}

/// Whether it can be counted what hosts hold in these exports: their file systems keep whose a file is, and nothing is changed
/// through one that counts for another.
///
/// # Errors
/// Which cannot, why, and what to do.
pub(crate) fn check_countable<'a>(
    exports: impl Iterator<Item = (&'a ExportSpec, Option<&'a Export>)>,
) -> Result<(), ExportError> {
    let mut roots: Vec<(&ExportSpec, PathBuf)> = Vec::new();
    for (spec, export) in exports {
        let wrong = |what: String| Err(ExportError { name: spec.name.clone(), what });
        let place = spec.path.canonicalize().unwrap_or_else(|_| spec.path.clone());
        let overlaps = |other: &Path| place.starts_with(other) || other.starts_with(&place);
        if let Some((other, _)) = roots.iter().find(|(other, path)| (spec.rw || other.rw) && overlaps(path)) {
            return wrong(format!(
                "it has files in common with export `{}`, so quotas of space and files cannot be kept; serve them once, and let \
                 grants say who may write",
                other.name
            ));
        }
        let root = export.map(|export| export.root.as_fd().try_clone_to_owned());
        let root = root.unwrap_or_else(|| Ok(std::fs::File::open(&spec.path)?.into()));
        if let Some(errno) = root.ok().filter(|_| spec.rw).and_then(|root| has_owners(root.as_fd()).err()) {
            return wrong(format!(
                "{} keeps no attributes of files ({}), so quotas of space and files cannot be kept; ext4, XFS, btrfs and tmpfs of \
                 Linux 6.6 do",
                spec.path.display(),
                std::io::Error::from(errno)
            ));
        }
        roots.push((spec, place));
    }
    Ok(())
}
