//! A directory of an export, as the file system of one database.

use crate::failure::Failure;
use crate::file::DataFile;
use crate::follow::Functions;
use crate::tuner::Tuner;
use diskside::ExportUrl;
use diskside::host::ConnectOptions;
use diskside::host::function::{Files, FunctionError};
use diskside::session::{Session, SessionOptions};
use diskside::wire::file::{FileFlags, FileKind};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// The file of which WiredTiger locks a byte, so that one process has the database.
const LOCKED: &str = "WiredTiger.lock";
/// The file that is there as long as a process has it.
const OWNER: &str = "WiredTiger.diskside";
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;
/// Operations that change names are repeated so often when the server is lost.
const REPEATS_MAX: u32 = 3;

/// How a database is opened.
#[derive(Clone, Debug)]
pub(crate) struct SpaceOptions {
    pub(crate) home: String,
    pub(crate) timeout: Duration,
    pub(crate) takeover: bool,
    pub(crate) make_directory: bool,
    /// Keys may be looked up at the server.
    pub(crate) may_push: bool,
}

#[derive(Debug)]
pub(crate) struct Space {
    session: Session,
    url: ExportUrl,
    pub(crate) options: SpaceOptions,
    pub(crate) timeout: Duration,
    pub(crate) functions: Functions,
    /// By name of the file.
    slots: RwLock<HashMap<String, Arc<Slot>>>,
    is_owner: Mutex<bool>,
}

/// Decisions about reads of a table, whether its file is open or not.
#[derive(Debug)]
pub(crate) struct Slot {
    policy: AtomicU8,
    pub(crate) sample_percent: AtomicU32,
    pub(crate) truncated: AtomicBool,
    pub(crate) tuner: Tuner,
    /// Room for values of lookups, and for the blocks of paths.
    pub(crate) value_room: AtomicU32,
    pub(crate) path_room: AtomicU32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    Off = 0,
    Path = 1,
    Push = 2,
}

impl Slot {
    pub(crate) fn policy(&self) -> Policy {
        match self.policy.load(Ordering::Acquire) {
            0 => Policy::Off,
            1 => Policy::Path,
            _ => Policy::Push,
        }
    }

    pub(crate) fn set_policy(&self, policy: Policy) {
        self.policy.store(policy as u8, Ordering::Release);
    }
}

impl Default for Slot {
    fn default() -> Self {
        Self {
            policy: AtomicU8::new(Policy::Path as u8),
            sample_percent: AtomicU32::new(1),
            truncated: AtomicBool::new(false),
            tuner: Tuner::default(),
            value_room: AtomicU32::new(2 << 10),
            path_room: AtomicU32::new(8 << 10),
        }
    }
}

impl Space {
    pub(crate) fn open(url: &str, options: SpaceOptions) -> Result<Arc<Self>, Failure> {
        let invalid = |why: &dyn std::fmt::Display| Failure::new(libc::EINVAL, url, why);
        let parsed: ExportUrl = url.parse().map_err(|error: diskside::LocationError| invalid(&error))?;
        if parsed.has_copies() {
            return Err(invalid(&"a database is at one server: name only that one"));
        }
        let mut session = SessionOptions::from_environment().map_err(|error| invalid(&error))?;
        let timeout = options.timeout;
        session.connect = ConnectOptions {
            connect_timeout: timeout.min(session.connect.connect_timeout),
            command_timeout: timeout / 4,
            loss_timeout: timeout / 2,
            retries_max: 1,
            ..session.connect
        };
        session.cache_len_bytes = 0;
        let space = Self {
            session: Session::new(session),
            url: parsed,
            timeout,
            options,
            functions: Functions::default(),
            slots: RwLock::default(),
            is_owner: Mutex::new(false),
        };
        space.find_directory()?;
        Ok(Arc::new(space))
    }

    fn find_directory(&self) -> Result<(), Failure> {
        let (files, path, name) = (self.files()?, &self.url.path, self.url.to_string());
        match files.stat(path) {
            Ok(info) if info.kind == FileKind::Directory => Ok(()),
            Ok(_) => Err(Failure::new(libc::ENOTDIR, &name, &"a database is a directory")),
            Err(error) if error.errno() == Some(libc::ENOENT) && self.options.make_directory => {
                files.make_directory(path, DIRECTORY_MODE).map_err(|error| Failure::of(&name, &error))
            }
            Err(error) if error.errno() == Some(libc::ENOENT) => {
                let why = "there is no such directory; make it, or give make_directory=true";
                Err(Failure::new(libc::ENOENT, &name, &why))
            }
            Err(error) => Err(Failure::of(&name, &error)),
        }
    }

    pub(crate) fn files(&self) -> Result<Files, Failure> {
        self.session.files(&self.url).map_err(|error| Failure::new(libc::EIO, &self.url.to_string(), &error))
    }

    /// The name of a file from the database's directory on: WiredTiger puts its home in front of most names.
    pub(crate) fn relative<'a>(&self, name: &'a str) -> &'a str {
        let home = self.options.home.trim_end_matches('/');
        let inside = name.strip_prefix(home).filter(|rest| rest.is_empty() || rest.starts_with('/')).unwrap_or(name);
        let inside = if home.is_empty() { name } else { inside };
        let inside = inside.trim_start_matches('/').trim_start_matches("./");
        if inside == "." { "" } else { inside.trim_end_matches('/') }
    }

    fn path(&self, name: &str) -> Vec<u8> {
        let relative = self.relative(name);
        if relative.is_empty() {
            return self.url.path.clone();
        }
        [&self.url.path, b"/".as_slice(), relative.as_bytes()].concat()
    }

    /// Asks for something that changes nothing.
    fn ask<T>(&self, name: &str, ask: impl Fn(&Files, &[u8]) -> Result<T, FunctionError>) -> Result<T, Failure> {
        let (path, mut repeats) = (self.path(name), 0);
        loop {
            match ask(&self.files()?, &path) {
                Err(error) if error.is_loss() && repeats < REPEATS_MAX => repeats += 1,
                outcome => return outcome.map_err(|error| Failure::of(name, &error)),
            }
        }
    }

    /// Changes names. Sent twice, the second one finds the old name gone.
    fn change(&self, name: &str, change: impl Fn(&Files, &[u8]) -> Result<(), FunctionError>) -> Result<(), Failure> {
        let (path, mut repeats) = (self.path(name), 0);
        loop {
            match change(&self.files()?, &path) {
                Err(error) if error.is_loss() && repeats < REPEATS_MAX => repeats += 1,
                Err(error) if repeats > 0 && error.errno() == Some(libc::ENOENT) => return Ok(()),
                outcome => return outcome.map_err(|error| Failure::of(name, &error)),
            }
        }
    }

    /// Makes the names in the directory of a file survive power loss.
    fn sync_directory(&self, name: &str) -> Result<(), Failure> {
        let parent = self.relative(name).rsplit_once('/').map_or("", |(parent, _)| parent);
        let path = self.path(if parent.is_empty() { "." } else { parent });
        let path = if parent.is_empty() { self.url.path.clone() } else { path };
        let directory = self.files()?.open(&path, FileFlags::READ | FileFlags::DIRECTORY);
        directory.and_then(|directory| directory.sync()).map_err(|error| Failure::of(name, &error))
    }

    pub(crate) fn list(&self, directory: &str, prefix: &str) -> Result<Vec<Vec<u8>>, Failure> {
        let listed = self.ask(directory, |files, path| files.list(path))?;
        let names = listed.into_iter().filter(|one| one.kind != FileKind::Directory).map(|one| one.name);
        Ok(names.filter(|name| name.starts_with(prefix.as_bytes())).collect())
    }

    /// The length of a file; `None`: there is none.
    pub(crate) fn len_of(&self, name: &str) -> Result<Option<u64>, Failure> {
        match self.ask(name, |files, path| files.stat(path)) {
            Ok(info) => Ok(Some(info.len_bytes)),
            Err(failure) if failure.errno == libc::ENOENT => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    pub(crate) fn remove(&self, name: &str, durable: bool) -> Result<(), Failure> {
        self.change(name, |files, path| files.unlink(path))?;
        if durable { self.sync_directory(name) } else { Ok(()) }
    }

    pub(crate) fn rename(&self, from: &str, to: &str, durable: bool) -> Result<(), Failure> {
        let new = self.path(to);
        self.change(from, |files, path| files.rename(path, &new, true))?;
        if durable { self.sync_directory(to) } else { Ok(()) }
    }

    pub(crate) fn open_file(self: &Arc<Self>, name: &str, how: OpenHow) -> Result<DataFile, Failure> {
        let flags = match how {
            OpenHow { is_directory: true, .. } => FileFlags::READ | FileFlags::DIRECTORY,
            OpenHow { is_readonly: true, .. } => FileFlags::READ,
            _ => FileFlags::READ_WRITE,
        };
        let exclusive = FileFlags::EXCLUSIVE.when(how.is_exclusive);
        let remote = self.ask(name, |files, path| {
            if how.is_created { files.create(path, FILE_MODE, flags | exclusive) } else { files.open(path, flags) }
        })?;
        if how.is_created && how.is_durable {
            self.sync_directory(name)?;
        }
        let slot = self.slot(self.relative(name));
        Ok(DataFile::new(self, slot, name, remote, how.is_data, flags))
    }

    /// What is decided about the file with this name.
    pub(crate) fn slot(&self, name: &str) -> Arc<Slot> {
        if let Some(slot) = self.slots.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return Arc::clone(slot);
        }
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(slots.entry(name.to_owned()).or_default())
    }

    /// The same, if the file was ever open.
    pub(crate) fn known_slot(&self, name: &str) -> Option<Arc<Slot>> {
        self.slots.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Takes or gives up the database. A server has no locks: a file beside the database shows that somebody has it.
    pub(crate) fn lock(&self, name: &str, lock: bool) -> Result<(), Failure> {
        if self.relative(name) != LOCKED {
            return Ok(());
        }
        let mut is_owner = self.is_owner.lock().unwrap_or_else(PoisonError::into_inner);
        if !lock {
            return if std::mem::take(&mut *is_owner) { self.remove(OWNER, false) } else { Ok(()) };
        }
        let flags = FileFlags::READ_WRITE | FileFlags::EXCLUSIVE.when(!self.options.takeover);
        match self.ask(OWNER, |files, path| files.create(path, FILE_MODE, flags)) {
            Ok(_) => {
                *is_owner = true;
                Ok(())
            }
            Err(failure) if failure.errno == libc::EEXIST => {
                let why = format!(
                    "a process has the database open, or ended without closing it, because {OWNER} is there; if no process \
                     has it, open it with takeover=true"
                );
                Err(Failure::new(libc::EBUSY, &self.url.to_string(), &why))
            }
            Err(failure) => Err(failure),
        }
    }
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OpenHow {
    pub(crate) is_created: bool,
    pub(crate) is_exclusive: bool,
    pub(crate) is_readonly: bool,
    pub(crate) is_durable: bool,
    pub(crate) is_data: bool,
    pub(crate) is_directory: bool,
}
