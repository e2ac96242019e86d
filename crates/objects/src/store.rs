//! A store, as a server asks it: what is at a path, its bytes, and what is below it.

use std::fmt;
use std::io;
use std::sync::mpsc;
use std::time::Duration;

use rustix::io::Errno;

use crate::frames::{Ask, Entry, Meta, Reply};
use crate::process::Process;

/// How long a thread waits for an answer. The process gives up a read before that.
const WAIT_MAX: Duration = Duration::from_secs(120);

/// A store, below a URL. Any thread may ask; answers come as the store gives them.
#[derive(Debug)]
pub struct Store {
    process: Process,
}

/// Why a store gives no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    /// `ENOENT`, `ESTALE` for another version, `EACCES`, `EOPNOTSUPP` for what the store cannot do, `ETIMEDOUT`, else `EIO`.
    pub errno: Errno,
    /// What the store says.
    pub message: String,
}

/// Some of what is below a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// In order of the keys.
    pub entries: Vec<Entry>,
    /// Whether there may be more behind the last.
    pub has_more: bool,
}

/// A reply and the bytes behind it, or why there is none.
pub type Answered = Result<(Reply, Vec<u8>), StoreError>;

/// Who asked.
pub trait Asker: Send {
    /// Whether the answer still matters. Where it does not when its turn comes, the store is not asked.
    fn is_wanted(&self) -> bool {
        true
    }

    /// Takes the answer: what the reply says, and the bytes behind it. Called on the thread that listens to the process, or on
    /// that of [`Store::ask`] if there is none.
    fn take(self: Box<Self>, answer: Answered);
}

impl Store {
    /// Starts a process for what is at a URL or below it. Nothing is asked of the store yet.
    ///
    /// # Errors
    /// The program `diskside-objects` is not there, or the URL is none that it understands.
    pub fn open(url: &str) -> io::Result<Self> {
        Ok(Self { process: Process::open(url)? })
    }

    /// Asks, and does not wait.
    pub fn ask(&self, ask: Ask, asker: Box<dyn Asker>) {
        self.process.ask(ask, asker);
    }

    /// The metadata at a path.
    ///
    /// # Errors
    /// Nothing is there, or the store's error.
    pub fn head(&self, path: &str) -> Result<Meta, StoreError> {
        meta_of(self.wait(Ask::Head { path: path.into() })?.0)
    }

    /// The metadata at a path, with the first bytes if it is an object.
    ///
    /// # Errors
    /// As [`head`](Self::head).
    pub fn first(&self, path: &str, len: u32) -> Result<(Meta, Vec<u8>), StoreError> {
        let (reply, data) = self.wait(Ask::First { path: path.into(), len })?;
        Ok((meta_of(reply)?, data))
    }

    /// Bytes of an object in this version.
    ///
    /// # Errors
    /// As [`head`](Self::head); `ESTALE` if there is another version now, or none.
    pub fn read(&self, path: &str, version: &str, offset: u64, len: u32) -> Result<Vec<u8>, StoreError> {
        let ask = Ask::Read { path: path.into(), version: version.into(), offset, len };
        Ok(self.wait(ask)?.1)
    }

    /// Names directly below a path, behind one of them.
    ///
    /// # Errors
    /// The store gives no lists, or what it says.
    pub fn list(&self, path: &str, after: &str) -> Result<Page, StoreError> {
        let (reply, _) = self.wait(Ask::List { path: path.into(), after: after.into() })?;
        Ok(Page { entries: reply.entries, has_more: reply.has_more })
    }

    fn wait(&self, ask: Ask) -> Answered {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.ask(ask, Box::new(Waiter(sender)));
        receiver.recv_timeout(WAIT_MAX).unwrap_or_else(|_| Err(StoreError::of(Errno::TIMEDOUT)))
    }
}

/// A thread that waits.
struct Waiter(mpsc::SyncSender<Answered>);

impl Asker for Waiter {
    fn take(self: Box<Self>, answer: Answered) {
        let _ = self.0.send(answer);
    }
}

impl StoreError {
    /// An error of this system.
    pub(crate) fn of(errno: Errno) -> Self {
        Self { errno, message: io::Error::from(errno).to_string() }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

fn meta_of(reply: Reply) -> Result<Meta, StoreError> {
    reply.meta.ok_or_else(|| StoreError { errno: Errno::IO, message: "a reply without what was asked for".into() })
}
