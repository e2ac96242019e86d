//! What all hosts hold in one export.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use diskside_rights::{HostQuota, Limit};
use diskside_volume::Size;
use rustix::fs::Statx;
use rustix::io::Errno;

use super::account::{Account, Exceeded, Space, SpaceMax};
use super::count::Schedule;
use super::inode::{Hold, Inode, Key, key_of};
use super::owner::is_owner;

/// Hosts that own files of an export, at most: where anybody may claim any name, each may make a file.
pub(crate) const OWNERS_MAX: usize = 64 << 10;

/// The accounts of an export, and the files of which they have to know more than their owner and length. Nothing is kept, and
/// nothing costs time, before somebody has a quota of space.
#[derive(Debug)]
pub(crate) struct Ledger {
    export: String,
    is_kept: AtomicBool,
    accounts: Mutex<BTreeMap<Arc<str>, Arc<Account>>>,
    /// Those that are open, or just being named or unnamed, and how often.
    inodes: Mutex<HashMap<Key, (Arc<Inode>, usize)>>,
    /// Held, to read, from before files change their names until the accounts know. No count begins or ends meanwhile.
    names: RwLock<()>,
    /// Counts that began.
    pub(crate) counts: AtomicU64,
    pub(crate) schedule: Schedule,
}

/// Why there is no space: what the system would say, and why.
#[derive(Debug)]
pub(crate) struct NoSpace {
    pub(crate) errno: Errno,
    pub(crate) why: String,
}

impl Ledger {
    pub(crate) fn new(export: &str) -> Arc<Self> {
        let (is_kept, accounts, inodes, names, counts) = Default::default();
        let schedule = Schedule::default();
        Arc::new(Self { export: export.to_owned(), is_kept, accounts, inodes, names, counts, schedule })
    }

    /// Whether what hosts hold is known, or about to be.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept.load(Ordering::Acquire)
    }

    pub(crate) fn keep(&self) {
        self.is_kept.store(true, Ordering::Release);
    }

    /// What every host holds that holds anything, by its NQN.
    pub(crate) fn held(&self) -> Vec<(String, Space)> {
        let held = |account: &Arc<Account>| (account.nqn().to_owned(), account.space());
        self.accounts().values().map(held).filter(|(_, space)| *space != Space::default()).collect()
    }

    /// The account of a host; `None`: it is one that has no name, or there are too many.
    pub(crate) fn account(&self, nqn: &str) -> Option<Arc<Account>> {
        let mut accounts = self.accounts();
        if let Some(known) = accounts.get(nqn) {
            return Some(Arc::clone(known));
        }
        if !is_owner(nqn) || accounts.len() >= OWNERS_MAX {
            return None;
        }
        let nqn: Arc<str> = nqn.into();
        let account = Account::new(Arc::clone(&nqn));
        accounts.insert(nqn, Arc::clone(&account));
        Some(account)
    }

    pub(crate) fn accounts(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<Account>>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what a host is about to have; the note says why it is so much.
    pub(crate) fn take(&self, account: &Account, quota: &HostQuota, more: Space, note: &str) -> Result<(), NoSpace> {
        let (bytes, files) = quota.space();
        let max = SpaceMax { bytes, files };
        if max.is_some() && !self.schedule.is_counted() {
            let why =
                format!("{} has a quota there, and it is still being counted what it holds; try again", self.name());
            return Err(NoSpace { errno: Errno::AGAIN, why });
        }
        account.take(more, max).map_err(|exceeded| {
            // Files that somebody else removed show only when they are counted again.
            self.schedule.want();
            let who = quota.name();
            let (limit, why) = match exceeded {
                Exceeded::Bytes { held, more, max } => {
                    let (max, more) = (Size::from_bytes(max), Size::from_bytes(more));
                    let told = format!(
                        "{who} may hold {max} in {} (quota `space`) and holds {held} bytes, so {more} more are too much{note}",
                        self.name()
                    );
                    (Limit::Space, told)
                }
                Exceeded::Files { held, max } => {
                    let told = format!(
                        "{who} may have {max} files and directories in {} (quota `files`) and has {held}{note}",
                        self.name()
                    );
                    (Limit::Files, told)
                }
            };
            quota.refuse_more(limit, &why);
            NoSpace { errno: Errno::DQUOT, why: format!("{why}; remove some of its files there, or have the quota raised") }
        })
    }

    fn name(&self) -> String {
        format!("export `{}`", self.export)
    }

    // -- files --------------------------------------------------------------------------------------------------------

    /// Keeps what is known of a file as long as it is open, or being renamed.
    pub(crate) fn hold(self: &Arc<Self>, file: BorrowedFd<'_>, status: &Statx) -> Hold {
        let key = key_of(status);
        let inode = match self.inodes().entry(key) {
            Entry::Occupied(mut known) => {
                known.get_mut().1 += 1;
                Arc::clone(&known.get().0)
            }
            Entry::Vacant(free) => {
                let inode = Arc::new(Inode::new(self.counts.load(Ordering::SeqCst)));
                free.insert((Arc::clone(&inode), 1));
                inode
            }
        };
        let hold = Hold::new(Arc::clone(self), key, inode);
        drop(hold.state(file));
        hold
    }

    /// One holds it less. Whether that was the last one.
    pub(crate) fn count_down(&self, key: Key) -> bool {
        let mut inodes = self.inodes();
        let Some((_, holds)) = inodes.get_mut(&key) else { return false };
        *holds -= 1;
        *holds == 0
    }

    pub(crate) fn is_held(&self, key: Key) -> bool {
        self.inodes().get(&key).is_some_and(|(_, holds)| *holds > 0)
    }

    /// Forgets a file that nobody holds.
    pub(crate) fn forget(&self, key: Key) {
        if let Entry::Occupied(known) = self.inodes().entry(key)
            && known.get().1 == 0
        {
            known.remove();
        }
    }

    pub(crate) fn known(&self, key: Key) -> Option<Arc<Inode>> {
        self.inodes().get(&key).map(|(inode, _)| Arc::clone(inode))
    }

    pub(crate) fn all_known(&self) -> Vec<Arc<Inode>> {
        self.inodes().values().map(|(inode, _)| Arc::clone(inode)).collect()
    }

    fn inodes(&self) -> MutexGuard<'_, HashMap<Key, (Arc<Inode>, usize)>> {
        self.inodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // -- names --------------------------------------------------------------------------------------------------------

    pub(crate) fn changing_names(&self) -> RwLockReadGuard<'_, ()> {
        self.names.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn no_name_changes(&self) -> RwLockWriteGuard<'_, ()> {
        self.names.write().unwrap_or_else(PoisonError::into_inner)
    }
}
