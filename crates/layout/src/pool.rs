//! Written files, kept to be written at a volume and then to be given a name.
//!
//! A volume may write only space that the file system knows as written: a new file has none. So whole output goes into a
//! file of a pool, whose blocks all hold data, and that file then takes its place: it is cut to its length, synced and
//! renamed. Files come into the pool when output takes *their* place, or when they are made of zeroes, once.
//!
//! A pool is the directory `.diskside-pool` beside the files that its files become. Only its owner may enter it. All that is
//! to be known of a file is its name:
//!
//! | name | |
//! |---|---|
//! | `free-ID` | nobody uses it |
//! | `used-OWNER-ID` | a process has it; one rename takes it, so that no two processes do |
//! | `left-ID` | its last owner does not vouch for it any more: a target may write it for a while yet |
//! | `lock-OWNER` | locked (`flock`) as long as that process lives |
//!
//! **After a kill** the next who opens the pool finds the lock free, and renames what that process had to `left-ID`. Such a
//! file is used again, or removed, only when no target can be writing it any more: when it was left alone for longer than the
//! kernel is patient with leases. A destination is never anything but what it was before or the whole output.

use std::collections::hash_map::RandomState;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::hash::BuildHasher;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use diskside_outfile::{Found, Name, keep_attributes, reset_attributes};
use diskside_sys::extent::{Extent, ExtentFlags, Told, extents};
use rustix::fs::{CWD, FallocateFlags, FlockOperation, Mode, OFlags, RenameFlags, fallocate, flock, renameat_with};
use rustix::io::Errno;

/// The directory of a pool.
pub const POOL_DIRECTORY: &str = ".diskside-pool";
/// Lengths of files that are made are multiples of this, so that they serve again for a little more.
const GRAIN_BYTES: u64 = 1 << 20;
/// Zeroes that are written at a time: more are no faster.
const ZEROES_LEN: usize = 4 << 20;
/// What `O_DIRECT` wants memory and offsets to be multiples of.
const ALIGNMENT: usize = 4096;
/// Extents of a file that are looked at; one in more pieces is not worth keeping.
const EXTENTS_MAX: usize = 4096;

/// Bounds of a pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    /// The most bytes of all its files together.
    pub len_max_bytes: u64,
    /// The most files.
    pub files_max: usize,
    /// The shortest file that is worth keeping.
    pub file_len_min: u64,
    /// How long a target may be writing a file that its process has left: as long as the kernel is patient with leases.
    pub patience: Duration,
}

impl Default for PoolLimits {
    fn default() -> Self {
        let patience = diskside_sys::lease::break_time();
        Self { len_max_bytes: 1 << 30, files_max: 16, file_len_min: GRAIN_BYTES, patience }
    }
}

/// A file without a name in a directory: it tells where new files there are, and goes when it is closed.
///
/// # Errors
/// What the file system says.
pub fn nameless(directory: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE.bits().cast_signed();
    OpenOptions::new().read(true).write(true).mode(0o600).custom_flags(flags).open(directory)
}

/// The directory that a path names a file in.
#[must_use]
pub fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Waits until a file's name, as it was just made or changed, is on stable media.
///
/// # Errors
/// What the file system says.
pub fn sync_name(path: &Path) -> io::Result<()> {
    File::open(directory_of(path))?.sync_all()
}

/// A pool that this process uses.
#[derive(Debug)]
pub struct Pool {
    directory: PathBuf,
    limits: PoolLimits,
    owner: String,
    /// Locked. Its name goes with the pool.
    _lock: File,
}

/// A file of a pool, for one output. Dropped, it is left: nobody uses it until it is sure that no target writes it.
#[derive(Debug)]
pub struct PooledFile<'a> {
    pool: &'a Pool,
    path: PathBuf,
    len: u64,
    is_gone: bool,
}

impl Pool {
    /// The pool for files in `parent`; it is made if it is not there.
    ///
    /// # Errors
    /// The file system's error; or a directory of this name that others may enter, or that belongs to someone else.
    pub fn open(parent: &Path, limits: PoolLimits) -> io::Result<Self> {
        match DirBuilder::new().mode(0o700).create(parent.join(POOL_DIRECTORY)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Self::open_if_there(parent, limits)?.ok_or_else(|| io::ErrorKind::NotFound.into()),
        }
    }

    /// The pool for files in `parent`, if there is one.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_if_there(parent: &Path, limits: PoolLimits) -> io::Result<Option<Self>> {
        let directory = parent.join(POOL_DIRECTORY);
        let found = match fs::symlink_metadata(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            found => found?,
        };
        if !found.is_dir() || !is_mine(&found) || found.mode() & 0o077 != 0 {
            let what = format!("{} is not a directory that only you may enter", directory.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        let (owner, lock) = lock_new(&directory)?;
        let pool = Self { directory, limits, owner, _lock: lock };
        pool.sweep()?;
        Ok(Some(pool))
    }

    /// Takes the shortest file of at least `len` bytes, if there is one.
    ///
    /// # Errors
    /// What the file system says.
    pub fn take(&self, len: u64) -> io::Result<Option<PooledFile<'_>>> {
        let mut free = self.files("free-")?;
        free.retain(|(_, found)| found.len() >= len);
        free.sort_by_key(|(_, found)| found.len());
        for (path, found) in free {
            let used = self.name("used");
            match renameat_with(CWD, &path, CWD, &used, RenameFlags::NOREPLACE) {
                Ok(()) => {
                    return Ok(Some(PooledFile { pool: self, path: used, len: found.len(), is_gone: false }));
                }
                // Another process was first.
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(None)
    }

    /// Makes a file of `len` zeroes that are written, not only promised. `None`: that is more than the pool may have.
    ///
    /// # Errors
    /// The file system's error: no space, above all. Then nothing of it is left, nor any file that nobody uses.
    pub fn prepare(&self, len: u64) -> io::Result<Option<PooledFile<'_>>> {
        let len = len.next_multiple_of(GRAIN_BYTES);
        if !self.make_room(len)? {
            return Ok(None);
        }
        let path = self.name("used");
        let mut made = zeroes(&path, len);
        if made.as_ref().is_err_and(is_full) && self.release()? > 0 {
            made = zeroes(&path, len);
        }
        match made {
            Ok(()) => Ok(Some(PooledFile { pool: self, path, len, is_gone: false })),
            Err(error) => {
                // It was never given to a target. The first error is what matters.
                let _ = fs::remove_file(&path);
                Err(error)
            }
        }
    }

    /// Takes a file that is not needed any more, with all its bytes, which nobody but the owner sees from now on. False: it
    /// is not one that could be written again (holes, blocks that others have, another owner, other names, too short, or
    /// more than the pool may have), and stays.
    ///
    /// # Errors
    /// What the file system says.
    pub fn recycle(&self, path: &Path) -> io::Result<bool> {
        let found = fs::symlink_metadata(path)?;
        if !self.suits(path, &found) || !self.has_room(found.len())? {
            return Ok(false);
        }
        fs::rename(path, self.name("free"))?;
        Ok(true)
    }

    /// Removes all files that nobody uses. Says how many bytes that were.
    ///
    /// # Errors
    /// What the file system says.
    pub fn release(&self) -> io::Result<u64> {
        let mut released = 0;
        for (path, found) in self.files("free-")? {
            // Taken first, so that nobody else does.
            let used = self.name("used");
            if fs::rename(&path, &used).is_ok() {
                fs::remove_file(&used)?;
                released += found.len();
            }
        }
        Ok(released)
    }

    /// Bytes of all its files.
    ///
    /// # Errors
    /// What the file system says.
    pub fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.all()?.iter().map(|(_, found)| found.len()).sum())
    }

    // -- names --------------------------------------------------------------------------------------------------------

    fn name(&self, state: &str) -> PathBuf {
        let id = new_id();
        self.directory.join(if state == "used" { format!("used-{}-{id}", self.owner) } else { format!("{state}-{id}") })
    }

    /// Files whose names begin so.
    fn files(&self, prefix: &str) -> io::Result<Vec<(PathBuf, Metadata)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            // One that has gone meanwhile is none.
            if entry.file_name().to_string_lossy().starts_with(prefix)
                && let Ok(metadata) = entry.metadata()
                && metadata.is_file()
            {
                found.push((entry.path(), metadata));
            }
        }
        Ok(found)
    }

    fn all(&self) -> io::Result<Vec<(PathBuf, Metadata)>> {
        let mut all = self.files("free-")?;
        all.extend(self.files("used-")?);
        all.extend(self.files("left-")?);
        Ok(all)
    }

    fn has_room(&self, len: u64) -> io::Result<bool> {
        let all = self.all()?;
        let sum: u64 = all.iter().map(|(_, found)| found.len()).sum();
        Ok(all.len() < self.limits.files_max && sum.saturating_add(len) <= self.limits.len_max_bytes)
    }

    /// Removes what nobody uses, if it has to be.
    fn make_room(&self, len: u64) -> io::Result<bool> {
        Ok(self.has_room(len)? || self.release()? > 0 && self.has_room(len)?)
    }

    /// Deals with what processes have left that are no more.
    fn sweep(&self) -> io::Result<()> {
        let mut living: Vec<String> = vec![self.owner.clone()];
        for (path, _) in self.files("lock-")? {
            let owner = name_of(&path).trim_start_matches("lock-").to_owned();
            if owner == self.owner {
                continue;
            }
            // One that cannot be opened has gone.
            let Ok(file) = File::open(&path) else { continue };
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // Nobody has it. It is removed while it is ours, so that its process, had it only begun, notices.
                Ok(()) => drop(fs::remove_file(&path)),
                Err(_) => living.push(owner),
            }
        }
        for (path, _) in self.files("used-")? {
            let name = name_of(&path);
            let owner = name.trim_start_matches("used-").split('-').next().unwrap_or_default();
            if !living.iter().any(|living| living == owner) {
                // Another may sweep at the same time.
                let _ = fs::rename(&path, self.name("left"));
            }
        }
        for (path, found) in self.files("left-")? {
            // A rename counts as a change: it is long ago that someone had it.
            let changed =
                SystemTime::UNIX_EPOCH + Duration::new(found.ctime().max(0) as u64, found.ctime_nsec() as u32);
            let rested = SystemTime::now().duration_since(changed).unwrap_or_default();
            if rested > self.limits.patience {
                let _ = fs::rename(&path, self.name("free"));
            }
        }
        Ok(())
    }

    /// Whether a file could be written at its volume again.
    fn suits(&self, path: &Path, found: &Metadata) -> bool {
        let is_plain =
            found.is_file() && is_mine(found) && found.nlink() == 1 && found.len() >= self.limits.file_len_min;
        // A file that cannot be looked at counts as unknown.
        is_plain && File::open(path).and_then(|file| is_written(&file, found.len())).unwrap_or(false)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // While it is locked, so that nobody takes us for dead before. A name that stays is swept.
        let _ = fs::remove_file(self.directory.join(format!("lock-{}", self.owner)));
    }
}

impl PooledFile<'_> {
    /// Where it is. Opened by nobody but who writes it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many bytes can be written at the volume.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.len
    }

    /// It is certain that nobody writes it any more: it may be used for something else at once.
    ///
    /// # Errors
    /// What the file system says.
    pub fn give_back(mut self) -> io::Result<()> {
        fs::rename(&self.path, self.pool.name("free"))?;
        self.is_gone = true;
        Ok(())
    }

    /// It is of no use: for instance, it shares blocks.
    ///
    /// # Errors
    /// What the file system says.
    pub fn remove(mut self) -> io::Result<()> {
        fs::remove_file(&self.path)?;
        self.is_gone = true;
        Ok(())
    }

    /// Makes its first `len` bytes the file at `destination`, on stable media. A file that is there is replaced at
    /// once, and is added to the pool if it can. The new one has its attributes, or those of any new file.
    ///
    /// # Errors
    /// The file system's error; or another file must not take that name, since the one that has it is not a regular
    /// file, has other names, or attributes that this user cannot give. Then `destination` is unchanged.
    pub fn publish(mut self, len: u64, destination: &Path) -> io::Result<()> {
        let old = self.take_on_attributes(len, destination)?;
        let is_kept = match &old {
            Some(old) => self.pool.suits(destination, old) && self.pool.has_room(old.len())?,
            None => false,
        };
        if is_kept {
            renameat_with(CWD, &self.path, CWD, destination, RenameFlags::EXCHANGE)?;
        } else {
            fs::rename(&self.path, destination)?;
        }
        self.is_gone = !is_kept;
        sync_name(destination)?;
        if is_kept {
            // The file that was there is ours now. Should it be something else by now, it goes as it would have.
            let found = fs::symlink_metadata(&self.path)?;
            let kept = self.pool.suits(&self.path, &found);
            if kept { self.give_back() } else { self.remove() }?;
        }
        Ok(())
    }
}

impl PooledFile<'_> {
    /// Makes the file what is to be seen of it, on stable media. Gives what is known of the file that has the name.
    fn take_on_attributes(&self, len: u64, destination: &Path) -> io::Result<Option<Metadata>> {
        let file = OpenOptions::new().write(true).open(&self.path)?;
        file.set_len(len)?;
        let name = destination.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let parent: OwnedFd = File::open(directory_of(destination))?.into();
        let old = match (Name { parent, name: name.as_bytes().to_vec() }).find()? {
            Found::Nothing => {
                reset_attributes(file.as_fd(), Mode::from_raw_mode(0o666 & !umask()?))?;
                None
            }
            Found::File { fd, stat, .. } if stat.st_nlink == 1 => {
                keep_attributes(fd.as_fd(), &stat, file.as_fd())?;
                Some(File::from(fd).metadata()?)
            }
            Found::File { .. } | Found::Other { .. } => {
                return Err(io::Error::other("it has other names, or is no regular file"));
            }
        };
        file.sync_all()?;
        Ok(old)
    }
}

impl Drop for PooledFile<'_> {
    fn drop(&mut self) {
        if !self.is_gone {
            // If it fails, the next sweep finds a file whose process has gone.
            let _ = fs::rename(&self.path, self.pool.name("left"));
        }
    }
}

/// Makes a lock of our own, which no sweep has taken for that of a dead process.
fn lock_new(directory: &Path) -> io::Result<(String, File)> {
    loop {
        let owner = new_id();
        let path = directory.join(format!("lock-{owner}"));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let is_locked = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        let is_there =
            fs::symlink_metadata(&path).is_ok_and(|found| file.metadata().is_ok_and(|f| f.ino() == found.ino()));
        if is_locked && is_there {
            return Ok((owner, file));
        }
    }
}

/// Writes `len` zeroes into a new file, past the page cache, and makes sure that they are there after a crash.
fn zeroes(path: &Path, len: u64) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let direct = options.clone().custom_flags(OFlags::DIRECT.bits().cast_signed()).open(path);
    let file = match direct {
        // A file system that has no direct writes.
        Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => options.open(path)?,
        opened => opened?,
    };
    // In few extents.
    fallocate(&file, FallocateFlags::empty(), 0, len)?;
    let memory = vec![0; ZEROES_LEN + ALIGNMENT];
    let skip = memory.as_ptr().align_offset(ALIGNMENT);
    let mut at = 0;
    while at < len {
        let part = ZEROES_LEN.min(usize::try_from(len - at).unwrap_or(usize::MAX));
        file.write_all_at(&memory[skip..skip + part], at)?;
        at += part as u64;
    }
    // That the space was written has to be in the journal, or a crash would bring zeroes back over what a volume wrote.
    file.sync_all()
}

/// Whether all of a file's bytes have a place that was written, and that it shares with no other file.
fn is_written(file: &File, len: u64) -> io::Result<bool> {
    let mut found: Vec<Extent> = Vec::new();
    if extents(file, 0..len, true, EXTENTS_MAX, &mut found)? == Told::Part {
        return Ok(false);
    }
    let bad = [ExtentFlags::UNWRITTEN, ExtentFlags::SHARED, ExtentFlags::UNKNOWN, ExtentFlags::DATA_INLINE];
    let mut at = 0;
    for extent in &found {
        if extent.logical > at || bad.iter().any(|flag| extent.flags.contains(*flag)) {
            return Ok(false);
        }
        at = extent.logical + extent.len;
    }
    Ok(at >= len)
}

fn is_mine(found: &Metadata) -> bool {
    found.uid() == rustix::process::geteuid().as_raw()
}

/// The disk is full, or what this user may have of it.
fn is_full(error: &io::Error) -> bool {
    let full = [Errno::NOSPC, Errno::DQUOT];
    full.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// What new files leave out of their permissions.
fn umask() -> io::Result<u32> {
    let status = fs::read_to_string("/proc/self/status")?;
    let umask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let umask = umask.and_then(|text| u32::from_str_radix(text.trim(), 8).ok());
    umask.ok_or_else(|| io::Error::other("/proc/self/status has no Umask"))
}

fn new_id() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("{:016x}", RandomState::new().hash_one(COUNT.fetch_add(1, Ordering::Relaxed)))
}

fn name_of(path: &Path) -> String {
    path.file_name().map(OsString::from).unwrap_or_default().to_string_lossy().into_owned()
}
