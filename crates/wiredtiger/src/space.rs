//! A directory of an export, as the file system of one database.

use crate::failure::Failure;
use crate::file::DataFile;
use crate::follow::Functions;
use crate::ledger::Ledger;
use crate::owner::Owner;
use crate::slot::Slot;
use diskside::ExportUrl;
use diskside::host::ConnectOptions;
use diskside::host::function::{FileInfo, Files, FunctionError, RemoteFile};
use diskside::io::request::block_on;
use diskside::session::{Session, SessionOptions};
use diskside::wire::file::{FileFlags, FileKind};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// The file of which WiredTiger locks a byte, so that one process has the database.
const LOCKED: &str = "WiredTiger.lock";
/// WiredTiger's error that ends all use of a connection.
const WT_PANIC: i32 = -31804;
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;
/// A process that writes asks so often whether it still has the database, beside each sync.
const KEPT: Duration = Duration::from_secs(1);
/// Between two tries when the server is lost.
const PAUSE: Duration = Duration::from_millis(50);
/// Counts when a database is opened or closed, or a file of one is removed: then what a thread has found before is not used any more.
pub(crate) static CHANGES: AtomicU64 = AtomicU64::new(0);

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
    /// Of files that are open, or were closed before all that was written was durable.
    ledgers: Mutex<HashMap<String, Arc<Ledger>>>,
    /// Why nothing is written any more.
    broken: OnceLock<String>,
    owner: Owner,
    /// When that was asked for before a write.
    kept: Mutex<Option<Instant>>,
    /// Its directory was found: from now on its server is waited for.
    is_found: AtomicBool,
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
            ledgers: Mutex::default(),
            broken: OnceLock::new(),
            owner: Owner::default(),
            kept: Mutex::default(),
            is_found: AtomicBool::new(false),
        };
        space.find_directory()?;
        space.is_found.store(true, Ordering::Relaxed);
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
        self.session.files(&self.url).map_err(|error| Failure::new(libc::EIO, &self.name(), &error))
    }

    pub(crate) fn name(&self) -> String {
        self.url.to_string()
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

    /// Runs an operation over names, again when the server is lost, for as long as `timeout`. It is told whether it may have been run
    /// before. When a database is opened, a server that is not there is not waited for.
    fn retried<T>(
        &self,
        name: &str,
        run: impl Fn(&Files, &[u8], bool) -> Result<T, FunctionError>,
    ) -> Result<T, Failure> {
        let (path, until, mut is_again) = (self.path(name), Instant::now() + self.timeout, false);
        loop {
            let failure = match self.files().map(|files| run(&files, &path, is_again)) {
                Ok(Ok(done)) => return Ok(done),
                Ok(Err(error)) if error.is_loss() || error.errno() == Some(libc::ESTALE) => Failure::of(name, &error),
                Ok(Err(error)) => return Err(Failure::of(name, &error)),
                Err(failure) if self.is_found.load(Ordering::Relaxed) => failure,
                Err(failure) => return Err(failure),
            };
            is_again = true;
            if Instant::now() >= until {
                return Err(failure);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Asks for something that changes nothing.
    pub(crate) fn ask<T>(
        &self,
        name: &str,
        ask: impl Fn(&Files, &[u8]) -> Result<T, FunctionError>,
    ) -> Result<T, Failure> {
        self.retried(name, |files, path, _| ask(files, path))
    }

    /// Changes names. The directory is opened before, so that a server that is lost between the change and the sync is noticed: then
    /// both are repeated. Sent twice, the second one finds the old name gone.
    fn change(
        &self,
        name: &str,
        durable: bool,
        change: impl Fn(&Files, &[u8]) -> Result<(), FunctionError>,
    ) -> Result<(), Failure> {
        self.retried(name, |files, path, is_again| {
            let directory = if durable { Some(self.directory_of(files, name)?) } else { None };
            match change(files, path) {
                Err(error) if is_again && error.errno() == Some(libc::ENOENT) => {}
                changed => changed?,
            }
            directory.map_or(Ok(()), |directory| directory.sync())
        })
    }

    /// The directory of a file, to be synced.
    fn directory_of(&self, files: &Files, name: &str) -> Result<RemoteFile, FunctionError> {
        let path = match self.relative(name).rsplit_once('/') {
            Some((parent, _)) => self.path(parent),
            None => self.url.path.clone(),
        };
        files.open(&path, FileFlags::READ | FileFlags::DIRECTORY)
    }

    pub(crate) fn list(&self, directory: &str, prefix: &str) -> Result<Vec<Vec<u8>>, Failure> {
        let listed = self.ask(directory, |files, path| files.list(path))?;
        let names = listed.into_iter().filter(|one| one.kind != FileKind::Directory).map(|one| one.name);
        Ok(names.filter(|name| name.starts_with(prefix.as_bytes())).collect())
    }

    /// The length of a file; `None`: there is none.
    pub(crate) fn len_of(&self, name: &str) -> Result<Option<u64>, Failure> {
        Ok(self.info_of(name)?.map(|info| info.len_bytes))
    }

    pub(crate) fn info_of(&self, name: &str) -> Result<Option<FileInfo>, Failure> {
        match self.ask(name, |files, path| files.stat(path)) {
            Ok(info) => Ok(Some(info)),
            Err(failure) if failure.errno == libc::ENOENT => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    pub(crate) fn remove(&self, name: &str, durable: bool) -> Result<(), Failure> {
        self.writable()?;
        self.change(name, durable, |files, path| files.unlink(path))?;
        self.ledgers().remove(self.relative(name));
        self.forget_slot(name);
        Ok(())
    }

    pub(crate) fn rename(&self, from: &str, to: &str, durable: bool) -> Result<(), Failure> {
        self.writable()?;
        let new = self.path(to);
        self.change(from, durable, |files, path| files.rename(path, &new, true))?;
        self.move_slot(from, to);
        let mut ledgers = self.ledgers();
        match ledgers.remove(self.relative(from)) {
            Some(ledger) => ledgers.insert(self.relative(to).to_owned(), ledger),
            None => ledgers.remove(self.relative(to)),
        };
        drop(ledgers);
        Ok(())
    }

    /// Removes a file, whether the database may be written or not.
    pub(crate) fn unlink(&self, name: &str) -> Result<(), Failure> {
        self.change(name, false, |files, path| files.unlink(path))
    }

    /// Gives a file another name, for good. EEXIST: another file has it.
    pub(crate) fn rename_once(&self, from: &str, to: &str, replace: bool) -> Result<(), Failure> {
        let new = self.path(to);
        self.change(from, true, |files, path| files.rename(path, &new, replace))
    }

    /// Makes a file with these few bytes, for good.
    pub(crate) fn write_file(&self, name: &str, bytes: &[u8]) -> Result<(), Failure> {
        self.ask(name, |files, path| {
            let file = files.create(path, FILE_MODE, FileFlags::READ_WRITE)?;
            block_on(file.write_once(0, bytes, FileFlags::NONE))?;
            file.sync()
        })
    }

    pub(crate) fn open_file(self: &Arc<Self>, name: &str, how: OpenHow) -> Result<DataFile, Failure> {
        let flags = match how {
            OpenHow { is_directory: true, .. } => FileFlags::READ | FileFlags::DIRECTORY,
            OpenHow { is_readonly: true, .. } => FileFlags::READ,
            _ => FileFlags::READ_WRITE,
        };
        if how.is_created {
            self.writable()?;
        }
        let opened = self.retried(name, |files, path, is_again| {
            if !how.is_created {
                return files.open(path, flags);
            }
            let directory = if how.is_durable { Some(self.directory_of(files, name)?) } else { None };
            let created = match files.create(path, FILE_MODE, flags | FileFlags::EXCLUSIVE.when(how.is_exclusive)) {
                // One process has the database, so an empty file is the one that the lost request made.
                Err(error) if is_again && error.errno() == Some(libc::EEXIST) => files
                    .open(path, flags)
                    .and_then(|found| if found.info().len_bytes == 0 { Ok(found) } else { Err(error) }),
                created => created,
            }?;
            directory.map_or(Ok(()), |directory| directory.sync())?;
            Ok(created)
        });
        let remote = opened.map_err(|failure| match failure.errno {
            // WiredTiger opens a database read-only where it may not write, and knows that by this error alone.
            libc::EROFS => Failure::new(libc::EACCES, name, &failure),
            _ => failure,
        })?;
        // Only tables have decisions: a log has ever more files.
        let slot = if how.is_data { self.slot(self.relative(name)) } else { Arc::default() };
        Ok(DataFile::new(self, slot, name, remote, how.is_data, flags))
    }

    /// The last writes may be lost: nothing is written any more, so that WiredTiger gives up and recovers.
    pub(crate) fn give_up(&self, name: &str, why: &str) {
        self.broken.get_or_init(|| if why.contains(name) { why.to_owned() } else { format!("{name}: {why}") });
    }

    /// Whether the database may still be written.
    pub(crate) fn writable(&self) -> Result<(), Failure> {
        match self.broken.get() {
            None => Ok(()),
            Some(why) => Err(Failure::new(WT_PANIC, "", &format!("{why}; open the database again"))),
        }
    }

    pub(crate) fn ledger(&self, name: &str) -> Arc<Ledger> {
        Arc::clone(self.ledgers().entry(self.relative(name).to_owned()).or_default())
    }

    /// A handle of the file is closed. Writes that are not durable stay in the account: the next sync of the file answers for it.
    pub(crate) fn close_ledger(&self, name: &str, ledger: &Arc<Ledger>) {
        let mut ledgers = self.ledgers();
        let is_last = ledgers.get(self.relative(name)).is_some_and(|known| Arc::ptr_eq(known, ledger));
        if is_last && Arc::strong_count(ledger) == 2 && !ledger.owes_sync() {
            ledgers.remove(self.relative(name));
        }
    }

    fn ledgers(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Ledger>>> {
        self.ledgers.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// The file is gone: nothing that was decided about it counts for another one of its name.
    fn forget_slot(&self, name: &str) {
        let forgotten = self.slots.write().unwrap_or_else(PoisonError::into_inner).remove(self.relative(name));
        if forgotten.is_some() {
            CHANGES.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn move_slot(&self, from: &str, to: &str) {
        self.forget_slot(to);
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = slots.remove(self.relative(from)) {
            slots.insert(self.relative(to).to_owned(), slot);
            CHANGES.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Takes or gives up the database. A server has no locks: a file beside the database shows who has it.
    pub(crate) fn lock(&self, name: &str, lock: bool) -> Result<(), Failure> {
        match lock {
            _ if self.relative(name) != LOCKED => Ok(()),
            true => self.owner.take(self),
            false => self.owner.leave(self),
        }
    }

    /// Stops all writing if another process has taken the database over.
    pub(crate) fn keep(&self) -> Result<(), Failure> {
        if self.owner.is_lost(self)? {
            self.give_up(&self.name(), "another process has taken the database over (takeover=true)");
        }
        Ok(())
    }

    /// The same before a write, if that was not asked for a second.
    pub(crate) fn keep_now_and_then(&self) -> Result<(), Failure> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.is_some_and(|kept| kept.elapsed() < KEPT) {
            return Ok(());
        }
        self.keep()?;
        *kept = Some(Instant::now());
        Ok(())
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
