//! A new file that gets its name when it is whole.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::WriteError;
use crate::attributes::keep_attributes;
use crate::name::{Found, Name, path_of, refusal_of};
use crate::overwrite::overwrite;

/// Another process may take or give the name meanwhile: looked at again this often.
const ATTEMPTS_MAX: usize = 16;

/// The future name of a new file. Until then it has no name, so that nothing of it stays when the process is killed;
/// where the file system has no such files, a random one.
#[derive(Debug)]
pub struct Unnamed {
    at: Name,
    temporary: String,
    /// Whether the temporary name is there.
    named: AtomicBool,
    /// The mode that a new file has here, where the file was made with less.
    mode: Option<Mode>,
    /// It was made elsewhere, so it cannot get the name: what has that is overwritten.
    elsewhere: bool,
}

/// What is about to be done with the file that has the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Succession {
    /// It loses the name.
    Replace,
    /// It gets the content of the new one.
    Overwrite,
}

/// Is asked, with the file that has the name, before that is changed. An error leaves it as it is.
pub type BeforeSuccession<'a> = &'a mut dyn FnMut(Succession, BorrowedFd<'_>) -> Result<(), WriteError>;

/// How a file got its content.
#[derive(Debug)]
pub enum Published {
    /// It is the new file: nothing had the name, or what had it is gone.
    Named,
    /// The file that had the name was overwritten, and is open here.
    Overwritten {
        /// For writing, and for reading where the user may.
        fd: OwnedFd,
        /// Whether it can be read.
        readable: bool,
    },
}

impl Unnamed {
    /// A new file to be called `at`, readable and writable. A file that has that name now must be a regular file that
    /// this user may write. Where files cannot be made in its directory, `elsewhere` makes one.
    ///
    /// # Errors
    /// The system's error, and what it means.
    pub fn create(
        at: Name,
        mode: Mode,
        elsewhere: impl FnOnce() -> Result<OwnedFd, WriteError>,
    ) -> Result<(OwnedFd, Self), WriteError> {
        let exists = match at.find().map_err(|errno| WriteError::new(errno, meaning_for_file(errno)))? {
            Found::Nothing => false,
            Found::File { .. } => true,
            Found::Other { kind, .. } => return Err(refusal_of(kind)),
        };
        match Self::make(at, mode) {
            Err((at, Errno::ACCESS | Errno::PERM | Errno::ROFS)) if exists => {
                let temporary = random_name();
                let unnamed = Self { at, temporary, named: AtomicBool::new(false), mode: None, elsewhere: true };
                Ok((elsewhere()?, unnamed))
            }
            made => made.map_err(|(_, errno)| WriteError::new(errno, meaning_for_directory(errno))),
        }
    }

    /// As [`create`](Self::create), without a look at the name: [`publish`](Self::publish) does that.
    ///
    /// # Errors
    /// The system's error; the name comes back with it.
    pub fn make(at: Name, mode: Mode) -> Result<(OwnedFd, Self), (Name, Errno)> {
        match make_nameless(at.parent.as_fd(), mode) {
            Some(fd) => {
                let (temporary, named) = (random_name(), AtomicBool::new(false));
                Ok((fd, Self { at, temporary, named, mode: None, elsewhere: false }))
            }
            None => Self::make_named(at, mode),
        }
    }

    /// The same, on file systems where every file has a name.
    ///
    /// # Errors
    /// As [`make`](Self::make).
    pub fn make_named(at: Name, mode: Mode) -> Result<(OwnedFd, Self), (Name, Errno)> {
        let how = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let temporary = random_name();
        let fd = match fs::openat(&at.parent, &*temporary, how, mode) {
            Ok(fd) => fd,
            Err(errno) => return Err((at, errno)),
        };
        // Others see it: they may not open it before it has what the old file has. What the umask left is kept for later.
        let mode = fs::fstat(&fd).map(|stat| Mode::from_raw_mode(stat.st_mode & 0o777));
        let hidden = mode.and_then(|mode| fs::fchmod(&fd, Mode::RUSR | Mode::WUSR).map(|()| mode));
        let unnamed = Self { at, temporary, named: AtomicBool::new(true), mode: hidden.ok(), elsewhere: false };
        Ok((fd, unnamed))
    }

    /// Gives the file its name. A file that had the name is replaced, and the new one then has its attributes; where
    /// that cannot be ([`keep_attributes`], several names, no right to change names), its content is overwritten
    /// instead. With `sync` all is on stable media when this returns.
    ///
    /// # Errors
    /// The system's error, and what it means. The file that had the name is unchanged, unless the error says otherwise.
    pub fn publish(&self, file: BorrowedFd<'_>, sync: bool) -> Result<Published, WriteError> {
        self.publish_unless(file, sync, &mut |_, _| Ok(()))
    }

    /// The same, unless `before` has an error.
    ///
    /// # Errors
    /// As [`publish`](Self::publish), and that.
    pub fn publish_unless(
        &self,
        file: BorrowedFd<'_>,
        sync: bool,
        before: BeforeSuccession<'_>,
    ) -> Result<Published, WriteError> {
        for _ in 0..ATTEMPTS_MAX {
            match self.at.find().map_err(|errno| WriteError::new(errno, meaning_for_file(errno)))? {
                Found::Nothing if self.elsewhere => {
                    return Err(WriteError::new(Errno::STALE, "someone removed it while it was being written"));
                }
                Found::Nothing => match self.name_new(file, sync) {
                    Err(Errno::EXIST) => {}
                    named => return named.map(|()| Published::Named).map_err(WriteError::from),
                },
                Found::Other { kind, .. } => return Err(refusal_of(kind)),
                Found::File { fd, readable, stat } => {
                    let replaceable = !self.elsewhere && stat.st_nlink == 1;
                    if replaceable && keep_attributes(fd.as_fd(), &stat, file).is_ok() {
                        before(Succession::Replace, fd.as_fd())?;
                        match self.replace(file, sync) {
                            Err(Errno::ACCESS | Errno::PERM | Errno::BUSY | Errno::XDEV) => {}
                            replaced => return replaced.map(|()| Published::Named).map_err(WriteError::from),
                        }
                    }
                    before(Succession::Overwrite, fd.as_fd())?;
                    self.write_over(file, fd.as_fd(), sync)?;
                    return Ok(Published::Overwritten { fd, readable });
                }
            }
        }
        Err(WriteError::new(Errno::AGAIN, "others make and remove it all the time"))
    }

    /// Takes the name from whatever has it, with no more attributes than the file has.
    ///
    /// # Errors
    /// What the system says.
    pub fn publish_as_is(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        self.replace(file, false)
    }

    /// The name.
    #[must_use]
    pub fn at(&self) -> &Name {
        &self.at
    }

    /// Whether it waits in another place until it is whole.
    #[must_use]
    pub fn is_elsewhere(&self) -> bool {
        self.elsewhere
    }

    /// Whether something of it is to be removed when it is given up.
    #[must_use]
    pub fn has_temporary_name(&self) -> bool {
        self.named.load(Ordering::Relaxed)
    }

    /// Removes what others see of it. `called` is what messages call the file.
    pub fn discard(&self, called: &str) {
        if self.named.swap(false, Ordering::Relaxed)
            && let Err(errno) = fs::unlinkat(&self.at.parent, &*self.temporary, AtFlags::empty())
            && errno != Errno::NOENT
        {
            tracing::warn!(file = self.temporary, %errno, "a half-written file stays next to {called}");
        }
    }

    fn name_new(&self, file: BorrowedFd<'_>, sync: bool) -> Result<(), Errno> {
        let (parent, name) = (&self.at.parent, &*self.at.name);
        if let Some(mode) = self.mode {
            fs::fchmod(file, mode)?;
        }
        if sync {
            fs::fsync(file)?;
        }
        if self.has_temporary_name() {
            match fs::renameat_with(parent, &*self.temporary, parent, name, RenameFlags::NOREPLACE) {
                // Not known to this file system. Anyone who makes such a file in this instant loses it.
                Err(Errno::INVAL | Errno::NOSYS) if self.at.is_free()? => {
                    fs::renameat(parent, &*self.temporary, parent, name)?;
                }
                renamed => renamed?,
            }
            self.named.store(false, Ordering::Relaxed);
        } else {
            fs::linkat(CWD, &*path_of(file), parent, name, AtFlags::SYMLINK_FOLLOW)?;
        }
        self.sync_directory(sync)
    }

    fn replace(&self, file: BorrowedFd<'_>, sync: bool) -> Result<(), Errno> {
        let parent = &self.at.parent;
        if sync {
            fs::fsync(file)?;
        }
        if !self.named.load(Ordering::Relaxed) {
            // Linking cannot replace a name, renaming can.
            fs::linkat(CWD, &*path_of(file), parent, &*self.temporary, AtFlags::SYMLINK_FOLLOW)?;
            self.named.store(true, Ordering::Relaxed);
        }
        fs::renameat(parent, &*self.temporary, parent, &*self.at.name)?;
        self.named.store(false, Ordering::Relaxed);
        self.sync_directory(sync)
    }

    fn sync_directory(&self, sync: bool) -> Result<(), Errno> {
        if !sync {
            return Ok(());
        }
        let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match fs::openat(&self.at.parent, ".", how, Mode::empty()) {
            // Who may write in a directory need not be allowed to read it.
            Err(Errno::ACCESS) => Ok(()),
            directory => fs::fsync(directory?),
        }
    }

    fn write_over(&self, file: BorrowedFd<'_>, old: BorrowedFd<'_>, sync: bool) -> Result<(), WriteError> {
        let written = overwrite(file, old).and_then(|()| clear_set_id(old));
        written.and_then(|()| if sync { fs::fsync(old) } else { Ok(()) }).map_err(|errno| match errno {
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => errno.into(),
            _ => WriteError::new(errno, "it was being overwritten in place, and may be part new, part old"),
        })
    }
}

impl Drop for Unnamed {
    fn drop(&mut self) {
        self.discard("its place");
    }
}

/// Set-user-ID and set-group-ID were for another content. The kernel clears them, but not for root.
fn clear_set_id(file: BorrowedFd<'_>) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(fs::fstat(file)?.st_mode);
    let set = Mode::SUID | Mode::SGID;
    if mode.intersects(set) { fs::fchmod(file, mode.difference(set)) } else { Ok(()) }
}

/// A file without a name, if it can be made and can get one later.
fn make_nameless(parent: BorrowedFd<'_>, mode: Mode) -> Option<OwnedFd> {
    let how = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let fd = fs::openat(parent, ".", how, mode).ok()?;
    // Without /proc it could not.
    fs::statat(CWD, &*path_of(fd.as_fd()), AtFlags::empty()).is_ok().then_some(fd)
}

fn random_name() -> String {
    // Seeded by the system for each thread; a name that is taken is an error, never a file of someone else.
    format!(".diskside-{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..))
}

fn meaning_for_file(errno: Errno) -> &'static str {
    match errno {
        Errno::ACCESS => "this user may not write the file; change its mode, or choose another",
        Errno::PERM => "the file may not be changed (chattr); choose another",
        Errno::ROFS => "the file system is mounted read-only; choose another place",
        Errno::TXTBSY => "the file is a program that runs",
        _ => "",
    }
}

fn meaning_for_directory(errno: Errno) -> &'static str {
    match errno {
        Errno::ACCESS | Errno::PERM => "this user may not make files in that directory; choose another",
        Errno::ROFS => "the file system is mounted read-only; choose another place",
        Errno::NOSPC | Errno::DQUOT => "there is no room for a new file",
        _ => "",
    }
}
