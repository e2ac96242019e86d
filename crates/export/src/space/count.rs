//! Counting the holdings of hosts: once when they have to be known, and again now and then, because others change
//! files, too.
//!
//! The walk is done a little at a time by the export's threads, in turns with requests of hosts. It keeps the names of
//! one directory's part for each level, so it needs little memory however many files there are. Changes by hosts
//! meanwhile are allowed for ([`Account::end_count`]). Only a directory that gets another name can take any number of
//! files out of its way: the count is then abandoned and begun again later, and before the first one such a rename is
//! refused.
//!
//! [`Account::end_count`]: super::account::Account::end_count

use std::collections::{BTreeMap, HashSet};
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RawDir, SeekFrom, Statx};
use rustix::io::Errno;

use super::account::Space;
use super::inode::{Key, counted_bytes, key_of};
use super::ledger::{Ledger, OWNERS_MAX};
use super::owner::owner_at;
use crate::attributes::status_at;
use crate::root::open_beneath;

/// How long a count is good for while hosts write.
const GOOD_FOR: Duration = Duration::from_secs(3600);
/// The least time between a count and the next one that is wanted because a host was refused something; and so many times
/// as long as the last one took, so that refusals cannot keep a disk busy.
const PAUSE_MIN: Duration = Duration::from_secs(60);
const PAUSE_TIMES: u32 = 10;
/// After a first count in whose time something moved.
const SETTLE: Duration = Duration::from_secs(1);
/// Of one turn.
const TURN: Duration = Duration::from_millis(2);
/// How directories are opened.
const HOW: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW);
/// What one system call takes of a path.
const PATH_LEN_MAX: usize = 4000;

/// Names that are read at once.
const NAMES_LEN: usize = 32 << 10;
/// Directories that a walk keeps open, the deepest ones. Opening one from the root takes as long as its path is.
const OPEN_MAX: usize = 32;

/// A tree that is counted: the files beneath a directory.
pub(crate) trait Countable: Send + Sync + 'static {
    /// The directory.
    fn root(&self) -> BorrowedFd<'_>;
    /// What is known of what hosts hold there.
    fn ledger(&self) -> &Arc<Ledger>;
    /// Whether nobody asks any more.
    fn is_withdrawn(&self) -> bool;
    /// Does something as the export's user.
    fn submit(&self, job: impl FnOnce() + Send + 'static);
}

/// When to count.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    state: Mutex<State>,
    changed: Condvar,
    is_counted: AtomicBool,
    is_wanted: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    is_running: bool,
    is_disturbed: bool,
    is_urgent: bool,
    /// None has ended yet: `None`.
    ended: Option<Ended>,
}

#[derive(Clone, Copy, Debug)]
struct Ended {
    at: Instant,
    took: Duration,
    /// It is known to be inexact.
    again: bool,
}

impl Schedule {
    /// Whether it is known what hosts hold.
    pub(crate) fn is_counted(&self) -> bool {
        self.is_counted.load(Ordering::Acquire)
    }

    /// Somebody would like to know better.
    pub(crate) fn want(&self) {
        self.is_wanted.store(true, Ordering::Relaxed);
    }

    /// It is to be counted again without a pause.
    pub(crate) fn want_at_once(&self) {
        self.state().is_urgent = true;
    }

    /// A directory is about to get another name. False: not before the first count is over.
    pub(crate) fn may_rename_directory(&self) -> bool {
        let mut state = self.state();
        state.is_disturbed |= state.is_running;
        self.is_counted() || !state.is_running
    }

    /// Waits until no count runs, and one has been. False: not within `patience`.
    pub(crate) fn wait(&self, patience: Duration) -> bool {
        let waits = |state: &mut State| state.is_running || state.is_urgent || !self.is_counted();
        !self
            .changed
            .wait_timeout_while(self.state(), patience, waits)
            .unwrap_or_else(PoisonError::into_inner)
            .1
            .timed_out()
    }

    /// Whether to begin now. Then it has begun.
    fn begin(&self, now: Instant) -> bool {
        let mut state = self.state();
        let is_due = match state.ended {
            _ if state.is_running => false,
            None => true,
            _ if state.is_urgent => true,
            Some(Ended { at, took, again }) => {
                let since = now.saturating_duration_since(at);
                let pause = PAUSE_MIN.max(took * PAUSE_TIMES);
                let is_wanted = self.is_wanted.load(Ordering::Relaxed);
                since >= GOOD_FOR.max(pause) || is_wanted && since >= pause || again && since >= SETTLE.max(took)
            }
        };
        if is_due {
            (state.is_running, state.is_disturbed, state.is_urgent) = (true, false, false);
            self.is_wanted.store(false, Ordering::Relaxed);
        }
        is_due
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Begins to count if it is time to. Cheap.
pub(crate) fn count_if_due(export: &Arc<impl Countable>) {
    let ledger = export.ledger();
    if ledger.is_kept() && ledger.schedule.begin(Instant::now()) {
        let names = ledger.no_name_changes();
        let number = ledger.counts.fetch_add(1, Ordering::SeqCst) + 1;
        ledger.accounts().values().for_each(|account| account.begin_count());
        drop(names);
        Walk::new(number).queue(export);
    }
}

/// A count on its way.
#[derive(Debug)]
struct Walk {
    number: u64,
    began: Instant,
    path: Vec<u8>,
    levels: Vec<Level>,
    found: BTreeMap<String, Space>,
    /// Those that have several names, which are one file.
    linked: HashSet<Key>,
    entries: u64,
    unread: u64,
}

/// A directory: how long its path is, which directories in it are still to be walked, and where the next names begin, if there
/// are any.
#[derive(Debug)]
struct Level {
    path_len: usize,
    directories: Vec<Vec<u8>>,
    next: Option<u64>,
    open: Option<OwnedFd>,
    /// Once it was open.
    key: Option<Key>,
}

impl Level {
    fn new(path_len: usize, open: Option<OwnedFd>) -> Self {
        Self { path_len, directories: Vec::new(), next: Some(0), open, key: None }
    }

    fn has_more(&self) -> bool {
        self.next.is_some() || !self.directories.is_empty()
    }
}

impl Walk {
    fn new(number: u64) -> Self {
        let levels = vec![Level::new(0, None)];
        let (path, found, linked, entries, unread) = Default::default();
        Self { number, began: Instant::now(), path, levels, found, linked, entries, unread }
    }

    fn queue(self, export: &Arc<impl Countable>) {
        let weak = Arc::downgrade(export);
        export.submit(move || self.turn(&weak));
    }

    fn turn(mut self, export: &Weak<impl Countable>) {
        // Who serves it no more has no use for it.
        let Some(export) = export.upgrade().filter(|export| !export.is_withdrawn()) else { return };
        let began = Instant::now();
        while began.elapsed() < TURN {
            if !self.step(&*export) {
                self.end(export.ledger());
                return count_if_due(&export);
            }
        }
        self.queue(&export);
    }

    /// Walks on. False: it is at its end.
    fn step(&mut self, export: &impl Countable) -> bool {
        let Some(level) = self.levels.last_mut() else { return false };
        let done = if let Some(name) = level.directories.pop() {
            self.descend(export, &name)
        } else if let Some(cursor) = level.next.take() {
            self.read(export, cursor)
        } else {
            self.ascend();
            Ok(())
        };
        if let Err(errno) = done {
            // Removed meanwhile, or not for the export's user to look at.
            self.unread += u64::from(errno != Errno::NOENT);
        }
        true
    }

    fn descend(&mut self, export: &impl Countable, name: &[u8]) -> Result<(), Errno> {
        let child = open_beneath(self.directory(export)?, name, HOW, Mode::empty())?;
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        self.levels.push(Level::new(self.path.len(), Some(child)));
        if let Some(level) = self.levels.len().checked_sub(OPEN_MAX + 1) {
            self.levels[level].open = None;
        }
        Ok(())
    }

    /// Goes back, if there is something left to do above, by the name that a directory has for the one above.
    fn ascend(&mut self) {
        let Some(Level { open: Some(below), .. }) = self.levels.pop() else { return };
        let Some(level) = self.levels.last_mut().filter(|level| level.open.is_none() && level.has_more()) else {
            return;
        };
        let above = fs::openat(&below, "..", HOW | OFlags::CLOEXEC, Mode::empty()).ok();
        // Moved meanwhile, it is above another one.
        level.open = above.filter(|above| level.key.is_some() && key_at(above.as_fd()).ok() == level.key);
    }

    /// The directory of the last level.
    fn directory(&mut self, export: &impl Countable) -> Result<BorrowedFd<'_>, Errno> {
        let level = self.levels.last_mut().expect("the walk is not over");
        self.path.truncate(level.path_len);
        if level.open.is_none() {
            level.open = Some(open_directory(export.root(), &self.path)?);
        }
        let open = level.open.as_ref().expect("it is open now").as_fd();
        if level.key.is_none() {
            level.key = Some(key_at(open)?);
        }
        Ok(open)
    }

    /// Reads a part of the directory of the last level.
    fn read(&mut self, export: &impl Countable, cursor: u64) -> Result<(), Errno> {
        let directory = self.directory(export)?.try_clone_to_owned().map_err(|_| Errno::MFILE)?;
        fs::seek(&directory, SeekFrom::Start(cursor))?;
        let mut buffer = vec![MaybeUninit::uninit(); NAMES_LEN];
        let mut entries = RawDir::new(&directory, &mut buffer);
        let (mut directories, mut next) = (Vec::new(), None);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let (name, after) = (entry.file_name().to_bytes().to_owned(), entry.next_entry_cookie());
            if !matches!(&name[..], b"." | b"..") && self.meet(export.ledger(), directory.as_fd(), &name) {
                directories.push(name);
            }
            if entries.is_buffer_empty() {
                next = Some(after);
                break;
            }
        }
        if let Some(level) = self.levels.last_mut() {
            (level.directories, level.next) = (directories, next);
        }
        Ok(())
    }

    /// Counts what has this name. Whether it is a directory.
    fn meet(&mut self, ledger: &Ledger, directory: BorrowedFd<'_>, name: &[u8]) -> bool {
        let Ok(status) = status_at(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { return false };
        let is_directory = match FileType::from_raw_mode(status.stx_mode.into()) {
            FileType::Directory => true,
            FileType::RegularFile => false,
            _ => return false,
        };
        self.entries += 1;
        if let Some(inode) = ledger.known(key_of(&status)) {
            if inode.meet(self.number) {
                return is_directory;
            }
            if let Some((owner, space)) = inode.counts() {
                if let Some(owner) = owner {
                    self.add(owner.nqn(), space);
                }
                return is_directory;
            }
        }
        if let Some(owner) = owner_at(directory, name)
            && self.is_first_name(&status, is_directory)
        {
            self.add(&owner, Space::file(counted_bytes(&status)));
        }
        is_directory
    }

    fn is_first_name(&mut self, status: &Statx, is_directory: bool) -> bool {
        is_directory || status.stx_nlink <= 1 || self.linked.insert(key_of(status))
    }

    fn add(&mut self, owner: &str, space: Space) {
        if let Some(found) = self.found.get_mut(owner) {
            *found = found.plus(space);
        } else if self.found.len() < OWNERS_MAX {
            self.found.insert(owner.to_owned(), space);
        }
    }

    fn end(mut self, ledger: &Ledger) {
        let (took, schedule) = (self.began.elapsed(), &ledger.schedule);
        let is_first = !schedule.is_counted();
        let names = ledger.no_name_changes();
        let is_disturbed = mem::take(&mut schedule.state().is_disturbed);
        let mut again = false;
        if is_disturbed && !is_first {
            schedule.want();
        } else {
            self.add_nameless(ledger);
            again = self.tell(ledger, is_first) && is_first;
        }
        drop(names);
        if self.unread > 0 {
            tracing::warn!(
                directories = self.unread,
                "what hosts hold there is not counted: the export's user may not read it"
            );
        }
        tracing::debug!(files = self.entries, ?took, "counted what hosts hold");
        let mut state = schedule.state();
        (state.is_running, state.ended) = (false, Some(Ended { at: Instant::now(), took, again }));
        schedule.is_counted.store(true, Ordering::Release);
        drop(state);
        schedule.changed.notify_all();
    }

    /// Open files without a name were not met. Those that were looked at first meanwhile were, or moved.
    fn add_nameless(&mut self, ledger: &Ledger) {
        for inode in ledger.all_known() {
            if inode.born < self.number
                && inode.seen.load(Ordering::SeqCst) < self.number
                && let Some((Some(owner), space)) = inode.counts()
            {
                self.add(owner.nqn(), space);
            }
        }
    }

    /// Whether anything moved meanwhile.
    fn tell(&self, ledger: &Ledger, is_first: bool) -> bool {
        for owner in self.found.keys() {
            ledger.account(owner);
        }
        let mut moved = false;
        let mut accounts = ledger.accounts();
        for (nqn, account) in accounts.iter() {
            moved |= account.end_count(self.found.get(&**nqn).copied().unwrap_or_default(), is_first);
        }
        accounts.retain(|_, account| Arc::strong_count(account) > 1 || account.space() != Space::default());
        moved
    }
}

/// Opens a directory, however long its path is.
fn open_directory(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let (mut from, mut rest) = (None, path);
    while rest.len() > PATH_LEN_MAX {
        let at = rest[..PATH_LEN_MAX].iter().rposition(|&byte| byte == b'/').ok_or(Errno::NAMETOOLONG)?;
        let next = open_beneath(
            from.as_ref().map_or(root, OwnedFd::as_fd),
            &rest[..at],
            OFlags::PATH | OFlags::DIRECTORY,
            Mode::empty(),
        )?;
        (from, rest) = (Some(next), &rest[at + 1..]);
    }
    open_beneath(from.as_ref().map_or(root, OwnedFd::as_fd), rest, HOW, Mode::empty())
}

fn key_at(directory: BorrowedFd<'_>) -> Result<Key, Errno> {
    Ok(key_of(&status_at(directory, b"", AtFlags::EMPTY_PATH)?))
}
