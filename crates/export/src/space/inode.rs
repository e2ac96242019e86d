//! The record of an open file: its owner, and how long it is going to be once the writes under way are done.
//!
//! A file counts, whole, for the host that made it or made it longer last. So nobody can have more than its quota, by
//! writing to any files; and it counts until nobody has it open any more, also without a name.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use diskside_rights::HostQuota;
use rustix::fs::{AtFlags, FileType, Statx, StatxFlags, statx};
use rustix::io::Errno;

use super::account::{Account, Space};
use super::ledger::{Ledger, NoSpace};
use super::owner::{owner, remove_owner, set_owner};

/// Tells a file from all others of an export.
pub(crate) type Key = (u32, u32, u64);

pub(crate) fn key_of(status: &Statx) -> Key {
    (status.stx_dev_major, status.stx_dev_minor, status.stx_ino)
}

/// A file that somebody holds.
#[derive(Debug)]
pub(crate) struct Inode {
    state: Mutex<State>,
    /// Counts that had begun when it was looked at first.
    pub(crate) born: u64,
    /// The last count whose walk met it.
    pub(crate) seen: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    is_known: bool,
    owner: Option<Arc<Account>>,
    /// What counts for its owner.
    bytes: u64,
    /// Changes of its length that are under way.
    changes: u32,
    /// One of them did not do all that it was to.
    is_unsure: bool,
}

impl Inode {
    pub(crate) fn new(born: u64) -> Self {
        Self { state: Mutex::default(), born, seen: AtomicU64::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For whom it counts, and how much; `None`: nobody has looked yet.
    pub(crate) fn counts(&self) -> Option<(Option<Arc<Account>>, Space)> {
        let state = self.lock();
        state.is_known.then(|| (state.owner.clone(), Space::file(state.bytes)))
    }

    /// The walk of a count meets it. Whether it did before.
    pub(crate) fn meet(&self, count: u64) -> bool {
        self.seen.swap(count, Ordering::SeqCst) == count
    }
}

/// Keeps an [`Inode`]. Its last user calls [`leave`](Self::leave), so that space that nobody can reach any more is
/// given back.
#[derive(Debug)]
pub(crate) struct Hold {
    ledger: Arc<Ledger>,
    key: Key,
    inode: Arc<Inode>,
    has_left: bool,
}

/// A file that has no name and that nobody else has open: its space is to be given back.
#[derive(Debug)]
#[must_use]
pub(crate) struct Gone {
    ledger: Arc<Ledger>,
    key: Key,
    inode: Arc<Inode>,
}

/// A change of a file's length that is under way. Who is through with it says so by [`end`](Self::end).
#[derive(Debug)]
#[must_use]
pub(crate) struct Change(Arc<Inode>);

impl Hold {
    pub(crate) fn new(ledger: Arc<Ledger>, key: Key, inode: Arc<Inode>) -> Self {
        Self { ledger, key, inode, has_left: false }
    }

    /// Its state. The first caller looks it up.
    pub(crate) fn state(&self, file: BorrowedFd<'_>) -> MutexGuard<'_, State> {
        let mut state = self.inode.lock();
        if !state.is_known {
            state.owner = owner(file).and_then(|nqn| self.ledger.account(&nqn));
            state.bytes = len_bytes(file).unwrap_or(0);
            state.is_known = true;
        }
        state
    }

    /// It has just been made by this host, whose it has been taken for.
    pub(crate) fn is_new(&self, file: BorrowedFd<'_>, account: &Arc<Account>) -> Result<(), Errno> {
        let mut state = self.state(file);
        if state.owner.is_some() {
            // Somebody who found it by its name was faster, and writes to it already.
            account.give_back(Space::file(0));
            return Ok(());
        }
        set_owner(file, account.nqn()).inspect_err(|_| account.give_back(Space::file(0)))?;
        account.add(Space::bytes(state.bytes));
        state.owner = Some(Arc::clone(account));
        Ok(())
    }

    /// It gets another name, or loses one: to be said before that happens.
    pub(crate) fn disturb(&self) {
        if let Some((Some(owner), space)) = self.inode.counts() {
            owner.disturb(space);
        }
    }

    /// Bytes from here on, or from the end, are about to be written by this host.
    pub(crate) fn grow(
        &self,
        file: BorrowedFd<'_>,
        (account, quota): (Option<&Arc<Account>>, &HostQuota),
        from: Option<u64>,
        more_bytes: u64,
    ) -> Result<Change, NoSpace> {
        let mut state = self.state(file);
        let from = match from {
            Some(from) => from,
            None => {
                // Where in the file they come only the kernel knows.
                state.is_unsure = true;
                state.bytes.max(len_bytes(file).unwrap_or(0))
            }
        };
        let end = from.saturating_add(more_bytes);
        if more_bytes > 0 && end > state.bytes {
            self.take(&mut state, file, (account, quota), end)?;
        }
        Ok(self.begin(&mut state))
    }

    /// It is about to become shorter, or something else that is looked at when it is done.
    pub(crate) fn change(&self, file: BorrowedFd<'_>) -> Change {
        let mut state = self.state(file);
        state.is_unsure = true;
        self.begin(&mut state)
    }

    fn begin(&self, state: &mut State) -> Change {
        state.changes += 1;
        Change(Arc::clone(&self.inode))
    }

    fn take(
        &self,
        state: &mut State,
        file: BorrowedFd<'_>,
        (account, quota): (Option<&Arc<Account>>, &HostQuota),
        end: u64,
    ) -> Result<(), NoSpace> {
        let is_own = match (&state.owner, account) {
            (Some(owner), Some(account)) => Arc::ptr_eq(owner, account),
            (None, None) => return Ok(()),
            _ => false,
        };
        let more = if is_own { Space::bytes(end - state.bytes) } else { Space::file(end) };
        if let Some(account) = account {
            let is_whole = !is_own && state.bytes > 0;
            let note = if is_whole { ", since the whole file counts for who makes it longer" } else { "" };
            self.ledger.take(account, quota, more, note)?;
        }
        if !is_own {
            let set = account.map_or_else(|| remove_owner(file), |account| set_owner(file, account.nqn()));
            if let Err(errno) = set {
                if let Some(account) = account {
                    account.give_back(more);
                }
                let why = format!("it cannot be noted whose the file is ({})", std::io::Error::from(errno));
                return Err(NoSpace { errno, why });
            }
            if let Some(before) = state.owner.take() {
                before.give_back(Space::file(state.bytes));
            }
            state.owner = account.cloned();
        }
        state.bytes = end;
        Ok(())
    }

    /// Drops it. The export's user must [give back](Gone::give_back) the result.
    pub(crate) fn leave(mut self, file: BorrowedFd<'_>) -> Option<Gone> {
        self.has_left = true;
        if self.ledger.count_down(self.key) && is_gone(file) {
            let (ledger, inode) = (Arc::clone(&self.ledger), Arc::clone(&self.inode));
            return Some(Gone { ledger, key: self.key, inode });
        }
        self.ledger.forget(self.key);
        None
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.has_left {
            self.ledger.count_down(self.key);
            self.ledger.forget(self.key);
        }
    }
}

impl Gone {
    pub(crate) fn give_back(self, file: BorrowedFd<'_>) {
        let mut state = self.inode.lock();
        if self.ledger.is_held(self.key) {
            // By somebody who opened it a moment ago, and gives it back in turn.
            return;
        }
        if let Some(owner) = state.owner.take() {
            // Anyone who still finds it, having opened it a moment ago, finds nobody's: so nothing is given back twice.
            match remove_owner(file) {
                Ok(()) => owner.give_back(Space::file(state.bytes)),
                Err(errno) => tracing::debug!(%errno, "what a removed file took is given back by the next count"),
            }
        }
    }
}

impl Drop for Gone {
    fn drop(&mut self) {
        self.ledger.forget(self.key);
    }
}

impl Change {
    /// It is over. If `is_whole`, all that was to be written is. When nothing is under way any more, what was taken and not
    /// needed is given back.
    pub(crate) fn end(self, file: BorrowedFd<'_>, is_whole: bool) {
        let mut state = self.0.lock();
        state.is_unsure |= !is_whole;
        if state.changes > 1 || !state.is_unsure {
            return;
        }
        let Ok(len) = len_bytes(file) else { return };
        if let Some(owner) = &state.owner {
            if len < state.bytes {
                owner.give_back(Space::bytes(state.bytes - len));
            } else {
                // Somebody beside us wrote, too.
                owner.add(Space::bytes(len - state.bytes));
            }
        }
        (state.bytes, state.is_unsure) = (len, false);
    }
}

impl Drop for Change {
    /// Where nobody says how it ended, the next one that ends looks.
    fn drop(&mut self) {
        self.0.lock().changes -= 1;
    }
}

/// A directory's length says nothing about what its owner holds.
fn len_bytes(file: BorrowedFd<'_>) -> Result<u64, Errno> {
    let known = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::SIZE | StatxFlags::TYPE)?;
    Ok(counted_bytes(&known))
}

pub(crate) fn counted_bytes(status: &Statx) -> u64 {
    let is_file = FileType::from_raw_mode(status.stx_mode.into()) == FileType::RegularFile;
    if is_file { status.stx_size } else { 0 }
}

/// Whether a file has no name any more, as far as this machine knows: nobody else is asked.
pub(crate) fn is_gone(file: BorrowedFd<'_>) -> bool {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    statx(file, "", flags, StatxFlags::NLINK).is_ok_and(|known| known.stx_nlink == 0)
}
