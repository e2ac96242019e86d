//! One file at the server, as WiredTiger has it open.

use crate::failure::Failure;
use crate::ledger::Ledger;
use crate::order::Order;
use crate::slot::Slot;
use crate::space::Space;
use crate::stats::{STATS, add, trip};
use crate::writes::Writes;
use diskside::host::function::{FunctionError, RemoteFile};
use diskside::io::request::block_on;
use diskside::wire::file::FileFlags;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// The most bytes of one write, and of one read.
const WRITE_LEN_MAX: usize = 192 << 10;
const READ_LEN_MAX: usize = 1 << 20;
/// Linux' ESTALE: the server has forgotten the handle.
const ESTALE: i32 = libc::ESTALE;
/// Between two tries to open a file again.
const PAUSE: Duration = Duration::from_millis(50);

/// An open file.
#[derive(Debug)]
pub(crate) struct DataFile {
    /// No two have the same, whatever their names are.
    pub(crate) id: u64,
    pub(crate) space: Arc<Space>,
    pub(crate) slot: Arc<Slot>,
    pub(crate) name: String,
    flags: FileFlags,
    /// It has blocks of a tree.
    pub(crate) is_data: bool,
    remote: RwLock<RemoteFile>,
    /// One process has the database: nobody else changes it.
    len_bytes: AtomicU64,
    ledger: Arc<Ledger>,
    /// The unit of addresses; 0: not known.
    allocation: AtomicU32,
    pub(crate) writes: Writes,
    pub(crate) order: Mutex<Order>,
}

impl DataFile {
    pub(crate) fn new(
        space: &Arc<Space>,
        slot: Arc<Slot>,
        name: &str,
        remote: RemoteFile,
        is_data: bool,
        flags: FileFlags,
    ) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let ledger = space.ledger(name);
        let file = Self {
            ledger,
            id: IDS.fetch_add(1, Ordering::Relaxed),
            space: Arc::clone(space),
            slot,
            name: name.to_owned(),
            flags,
            is_data,
            len_bytes: AtomicU64::new(remote.info().len_bytes),
            remote: RwLock::new(remote),
            allocation: AtomicU32::new(0),
            writes: Writes::default(),
            order: Mutex::default(),
        };
        file.note_handle(&file.remote());
        file
    }

    /// A handle is used from now on: what was written by one before it may be lost.
    fn note_handle(&self, remote: &RemoteFile) {
        if !self.ledger.succeed(remote.endpoint(0, 0).generation) {
            let why = "the server was lost after it was written and before that was durable: some of it may be lost";
            self.space.give_up(&self.name, why);
        }
    }

    pub(crate) fn remote(&self) -> RemoteFile {
        self.remote.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn len_bytes(&self) -> u64 {
        self.len_bytes.load(Ordering::SeqCst)
    }

    /// The unit of addresses. WiredTiger reads or writes so many bytes, the file's description, at the beginning of a file.
    pub(crate) fn allocation(&self) -> Option<u32> {
        Some(self.allocation.load(Ordering::Relaxed)).filter(|allocation| *allocation != 0)
    }

    fn note_description(&self, offset: u64, len: usize) {
        if self.is_data && offset == 0 && len >= 512 && len.is_power_of_two() && len <= 128 << 10 {
            self.allocation.store(len as u32, Ordering::Relaxed);
        }
    }

    /// Fills `to` by one read at the server.
    pub(crate) fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), Failure> {
        self.note_description(offset, to.len());
        let mut done = 0;
        while done < to.len() {
            let len = READ_LEN_MAX.min(to.len() - done);
            let result =
                self.retried(|remote| Ok(block_on(remote.read_once(offset + done as u64, len as u32))?.result))?;
            trip(None, result.len());
            if result.is_empty() || result.len() > len {
                return Err(Failure::new(
                    libc::EIO,
                    &self.name,
                    &format!("it ends before byte {}", offset + to.len() as u64),
                ));
            }
            to[done..done + result.len()].copy_from_slice(&result);
            done += result.len();
        }
        Ok(())
    }

    pub(crate) fn write(&self, offset: u64, from: &[u8]) -> Result<(), Failure> {
        self.space.keep_now_and_then()?;
        self.note_description(offset, from.len());
        let range = offset..offset + from.len() as u64;
        self.writes.note(range.clone());
        let mut outcome = Ok(());
        for (index, part) in from.chunks(WRITE_LEN_MAX).enumerate() {
            let at = offset + (index * WRITE_LEN_MAX) as u64;
            outcome = self.write_part(at, part);
            if outcome.is_err() {
                break;
            }
        }
        self.len_bytes.fetch_max(range.end, Ordering::SeqCst);
        self.writes.note(range);
        add(&STATS.writes, 1);
        add(&STATS.written_bytes, from.len() as u64);
        outcome
    }

    fn write_part(&self, offset: u64, part: &[u8]) -> Result<(), Failure> {
        let write =
            |remote: &RemoteFile| Ok(block_on(remote.write_once(offset, part, FileFlags::NONE))?.trailer.returned);
        let written = self.change(write)?;
        if usize::try_from(written) == Ok(part.len()) {
            return Ok(());
        }
        Err(Failure::new(libc::ENOSPC, &self.name, &"the server has no room for it"))
    }

    pub(crate) fn truncate(&self, len: u64) -> Result<(), Failure> {
        self.space.writable()?;
        // WiredTiger does so whenever it opens a file, and would have to sync it to make nothing durable.
        if len == self.len_bytes() {
            return Ok(());
        }
        let everything = len..u64::MAX;
        self.writes.note(everything.clone());
        let outcome = self.change(|remote| remote.truncate(len));
        if outcome.is_ok() {
            self.len_bytes.store(len, Ordering::SeqCst);
        }
        self.writes.note(everything);
        outcome
    }

    /// Makes what was written survive power loss. If that fails, nothing of the database is written any more: the server's kernel
    /// says once that it lost something.
    pub(crate) fn sync(&self) -> Result<(), Failure> {
        add(&STATS.syncs, 1);
        self.space.writable()?;
        let mark = self.ledger.mark();
        let synced = || self.retried(|remote| if self.space.writable().is_ok() { remote.sync() } else { Ok(()) });
        if let Err(failure) = self.space.keep().and_then(|()| synced()) {
            self.space.give_up(&self.name, &failure.to_string());
        }
        self.space.writable()?;
        self.ledger.note_durable(mark);
        Ok(())
    }

    /// Changes the file, again if the server is lost before it has confirmed it, or while another thread opens the file again: then
    /// that thread did not know of it.
    fn change<T>(&self, run: impl Fn(&RemoteFile) -> Result<T, FunctionError>) -> Result<T, Failure> {
        loop {
            let used = std::cell::RefCell::new(None);
            let done = self.retried(|remote| {
                used.replace(Some(remote.clone()));
                if self.space.writable().is_ok() { run(remote).map(Some) } else { Ok(None) }
            })?;
            self.space.writable()?;
            let now = self.remote.read().unwrap_or_else(PoisonError::into_inner);
            if let (Some(done), Some(used)) = (done, used.take())
                && used.endpoint(0, 0) == now.endpoint(0, 0)
            {
                self.ledger.confirm();
                return Ok(done);
            }
        }
    }

    /// Runs an operation that may be repeated, again after the server was lost or has forgotten the file.
    fn retried<T>(&self, run: impl Fn(&RemoteFile) -> Result<T, FunctionError>) -> Result<T, Failure> {
        let until = Instant::now() + self.space.timeout;
        loop {
            let remote = self.remote();
            match run(&remote) {
                Ok(done) => return Ok(done),
                Err(error) if (error.is_loss() || error.errno() == Some(ESTALE)) && Instant::now() < until => {
                    self.reopen(&remote, until)?;
                }
                Err(error) => return Err(Failure::of(&self.name, &error)),
            }
        }
    }

    /// Opens the file again, unless another thread has done that.
    fn reopen(&self, lost: &RemoteFile, until: Instant) -> Result<(), Failure> {
        let mut remote = self.remote.write().unwrap_or_else(PoisonError::into_inner);
        if remote.endpoint(0, 0) != lost.endpoint(0, 0) {
            return Ok(());
        }
        // Earlier writes may not be there; a trip that is under way may bring bytes from before.
        self.writes.note(0..u64::MAX);
        loop {
            let opened = self
                .space
                .files()
                .and_then(|files| files.open(lost.path(), self.flags).map_err(|error| Failure::of(&self.name, &error)))
                .and_then(|opened| self.space.keep().map(|()| opened));
            match opened {
                Ok(opened) => {
                    self.note_handle(&opened);
                    *remote = opened;
                    add(&STATS.reopened, 1);
                    return Ok(());
                }
                Err(failure) if failure.errno == libc::ENOENT || Instant::now() > until => return Err(failure),
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }
}

impl Drop for DataFile {
    fn drop(&mut self) {
        self.space.close_ledger(&self.name, &self.ledger);
    }
}
