//! How much each host holds in an export: bytes and files, counted for the host that made a file or made it longer last.
//!
//! | module | what |
//! |---|---|
//! | `account` | the sums of a host, and the bounds that a count sets them |
//! | `owner` | whose a file is: an extended attribute of it |
//! | `inode` | what is known of files that are open, and of changes of their length that are under way |
//! | `ledger` | all of that of an export |
//! | `count` | the walk that finds out what is there |
//!
//! Lengths count, not blocks: what a write needs is known before it is done, and a hole that is filled later is paid for already.

mod account;
mod count;
mod inode;
mod ledger;
mod owner;

use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use diskside_outfile::WriteError;
use rustix::io::Errno;

use crate::attributes::status;
use crate::reply::FileError;
use account::Account;
pub use account::Space;
pub(crate) use count::{Countable, count_if_due};
pub(crate) use inode::{Change, Hold, is_gone};
pub(crate) use ledger::{Ledger, NoSpace};
pub(crate) use owner::has_owners;

/// The record of an open file in an export's ledger, and for whom it grows.
#[derive(Debug)]
pub(crate) struct FileSpace {
    pub(crate) hold: Hold,
    pub(crate) account: Option<Arc<Account>>,
}

/// Room for a file that is going to be made. Dropping it gives that back.
#[derive(Debug)]
pub(crate) struct NewFile {
    pub(crate) account: Option<Arc<Account>>,
}

impl NewFile {
    /// It is made: from here on it is counted by itself.
    pub(crate) fn made(self, ledger: &Arc<Ledger>, file: BorrowedFd<'_>) -> Result<(), Errno> {
        if let Some(space) = self.made_to_keep(ledger, file)? {
            give_back(space.hold, file);
        }
        Ok(())
    }

    /// It is made, without a name: it counts as long as what is returned is kept.
    pub(crate) fn made_to_keep(
        mut self,
        ledger: &Arc<Ledger>,
        file: BorrowedFd<'_>,
    ) -> Result<Option<FileSpace>, Errno> {
        let Some(account) = self.account.take() else { return Ok(None) };
        let found = status(file).inspect_err(|_| account.give_back(Space::file(0)))?;
        let hold = ledger.hold(file, &found);
        match hold.is_new(file, &account) {
            Ok(()) => Ok(Some(FileSpace { hold, account: Some(account) })),
            Err(errno) => {
                give_back(hold, file);
                Err(errno)
            }
        }
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(account) = &self.account {
            account.give_back(Space::file(0));
        }
    }
}

/// Lets a file go, on a thread of the export.
pub(crate) fn give_back(hold: Hold, file: BorrowedFd<'_>) {
    if let Some(gone) = hold.leave(file) {
        gone.give_back(file);
    }
}

impl NoSpace {
    pub(crate) fn into_write_error(self) -> WriteError {
        WriteError { errno: self.errno, meaning: self.why, file: None }
    }

    /// As the error of `what`, which names the file.
    pub(crate) fn about(self, what: impl fmt::Display) -> FileError {
        FileError::because(self.errno, format!("{what}: {}", self.why))
    }
}

/// A file whose name changes. Dropping it, on a thread of the export, gives back what nobody can reach any more.
#[derive(Debug)]
pub(crate) struct NameHold {
    pub(crate) hold: Option<Hold>,
    pub(crate) file: OwnedFd,
    pub(crate) is_directory: bool,
}

impl Drop for NameHold {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            give_back(hold, self.file.as_fd());
        }
    }
}

/// A change of an open file's length that is under way, if it is counted. Dropping it looks what became of it.
#[derive(Debug)]
pub(crate) struct Growth<'a> {
    pub(crate) change: Option<Change>,
    pub(crate) file: BorrowedFd<'a>,
}

impl Growth<'_> {
    /// All that was to be written is.
    pub(crate) fn done(mut self) {
        if let Some(change) = self.change.take() {
            change.end(self.file, true);
        }
    }
}

impl Drop for Growth<'_> {
    fn drop(&mut self) {
        if let Some(change) = self.change.take() {
            change.end(self.file, false);
        }
    }
}
