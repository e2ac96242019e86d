//! A volume in a regular file or on a block device.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use diskside_io::Errno;
use diskside_io::buffer::Buffer;
use diskside_io::patience::Patience;
use diskside_io::ring::Op;
use diskside_sys::extent::learn_places;
use diskside_sys::lock::{Lock, try_lock};
use rustix::fs::{
    Advice, AtFlags, CWD, FallocateFlags, FileType, FlockOperation, Mode, OFlags, StatxFlags, fadvise, fallocate,
    fcntl_getfl, fcntl_setfl, fdatasync, flock, fstat, open, openat, readlinkat, statx,
};
use rustix::io::{ReadWriteFlags, preadv2, retry_on_intr};
use rustix::process::geteuid;

use crate::medium::{Access, Action, Medium, Properties, Shortened, Step};

/// Anyone who may read the directory need not read what hosts keep in a volume.
const NEW_FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
/// Links that lead to a file one after the other, as many as the kernel follows.
const LINKS_MAX: usize = 40;

/// A file or block device, with `O_DIRECT` where the file system has it.
///
/// A regular file is locked in both of the ways that there are (`flock`, and `fcntl` with `F_OFD_SETLK`), exclusively unless it
/// is read-only: so no second target, and no program that respects either, uses it at the same time. A block device is
/// opened exclusively, so that a mounted one is refused.
#[derive(Debug)]
pub struct FileMedium {
    file: Arc<OwnedFd>,
    /// `None`: it is a device, which nobody shortens.
    path: Option<PathBuf>,
    is_remote: bool,
    properties: Properties,
    /// The file system has `FALLOC_FL_PUNCH_HOLE`.
    punches: AtomicBool,
    /// The file system has `FALLOC_FL_ZERO_RANGE`.
    zeroes: AtomicBool,
    /// The file has holes, or may have some.
    has_holes: AtomicBool,
}

/// How to open a file.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Refuse writes.
    pub read_only: bool,
    /// Go through the page cache.
    pub buffered: bool,
    /// Create the file with this size, or grow it to this size.
    pub size: Option<u64>,
    /// The block that every access is a multiple of.
    pub block_bytes: u32,
}

impl FileMedium {
    /// Opens `path`; an error names it and says what to do.
    pub fn open(path: &Path, options: &OpenOptions) -> io::Result<Self> {
        let (file, direct) = open_file(path, options).map_err(|error| in_file(path, error))?;
        let metadata = file.metadata().map_err(|error| in_file(path, error))?;
        let is_device = metadata.file_type().is_block_device();
        if !is_device && !metadata.is_file() {
            return Err(wrong(path, "is neither a regular file nor a block device"));
        }
        if !is_device {
            lock(&file, path, options.read_only)?;
        }
        let len_bytes = size_file(&file, path, is_device, metadata.len(), options)?;
        if !is_device {
            // A reactor that began a read would wait for a disk that hangs.
            learn_places(&file);
        }
        let properties = Properties {
            len_bytes,
            read_only: options.read_only,
            volatile_write_cache: !options.read_only,
            thin: true,
            direct,
            atomic_len: 0,
            delta_len: 0,
        };
        Ok(Self {
            is_remote: diskside_sys::attributes::is_remote(&file).unwrap_or(false),
            file: Arc::new(file.into()),
            path: (!is_device).then(|| path.to_owned()),
            properties,
            punches: AtomicBool::new(true),
            zeroes: AtomicBool::new(true),
            has_holes: AtomicBool::new(!is_device && metadata.blocks() * 512 < len_bytes),
        })
    }

    /// Whether a file could be opened to read it, by the rules for links that [`open`](Self::open) has.
    ///
    /// # Errors
    /// Why not, with its name.
    pub fn look(path: &Path) -> io::Result<()> {
        // Opening a FIFO would wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let opened = if geteuid().is_root() {
            open_checked(path, flags)
        } else {
            open(path, flags | OFlags::CLOEXEC, Mode::empty()).map(Into::into).map_err(Into::into)
        };
        match opened {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(error),
            Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
        }
    }

    /// The open file, for an embedder with a ring of its own.
    pub fn file(&self) -> &Arc<OwnedFd> {
        &self.file
    }

    fn zero(&self, offset: u64, len: u64, deallocate: bool) -> Action {
        let flags = if deallocate && self.punches.load(Ordering::Relaxed) {
            self.has_holes.store(true, Ordering::Relaxed);
            FallocateFlags::PUNCH_HOLE
        } else if self.zeroes.load(Ordering::Relaxed) {
            FallocateFlags::ZERO_RANGE
        } else {
            return Action::WriteZeroes;
        };
        let flags = flags | FallocateFlags::KEEP_SIZE;
        Action::Ring(Op::Allocate { file: Arc::clone(&self.file), flags, offset, len })
    }
}

impl Medium for FileMedium {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn is_remote(&self) -> bool {
        self.is_remote
    }

    fn has_name(&self) -> bool {
        fstat(&self.file).map_or(true, |status| status.st_nlink > 0)
    }

    fn shortened(&self) -> Option<Shortened> {
        // As this machine knows it: a file system elsewhere may hang, and with it a reactor.
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let len_bytes = statx(&self.file, "", flags, StatxFlags::SIZE).ok()?.stx_size;
        let path = self.path.clone().filter(|_| len_bytes < self.properties.len_bytes)?;
        Some(Shortened { path, len_bytes })
    }

    fn start(&self, access: &Access<'_>) -> Step {
        if self.properties.read_only && access.is_write() {
            return Action::Failed(Errno::ROFS).into();
        }
        let file = || Arc::clone(&self.file);
        let action = match *access {
            Access::Read { len, .. } => Action::File { file: file(), len },
            Access::Write { data, .. } => Action::File { file: file(), len: data.len() },
            Access::Delta(_) => Action::Failed(Errno::OPNOTSUPP),
            Access::Flush if self.properties.read_only => Action::Done(0),
            Access::Flush => Action::Ring(Op::Sync { file: file(), data_only: true }),
            Access::Zero { offset, len, deallocate } => self.zero(offset, len, deallocate),
        };
        action.into()
    }

    fn read_now(&self, offset: u64, into: &mut [u8]) -> bool {
        if self.properties.direct {
            return false;
        }
        let len = into.len();
        // Fewer bytes are as good as none, and the read that waits reports any error.
        preadv2(&self.file, &mut [io::IoSliceMut::new(into)], offset, ReadWriteFlags::NOWAIT) == Ok(len)
    }

    fn may_lack_space(&self) -> bool {
        self.has_holes.load(Ordering::Relaxed)
    }

    fn reserve(&self, offset: u64, len: u64) -> Result<(), Errno> {
        match retry_on_intr(|| fallocate(&self.file, FallocateFlags::KEEP_SIZE, offset, len)) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.has_holes.store(false, Ordering::Relaxed);
                Ok(())
            }
            result => result,
        }
    }

    fn drop_cached(&self) -> Result<(), Errno> {
        if self.properties.read_only {
            // No flush reaches it, but what made it may have left pages that are not written out.
            fdatasync(&self.file)?;
        }
        fadvise(&self.file, 0, None, Advice::DontNeed)
    }

    fn refused(&self, access: &Access<'_>) {
        if let Access::Zero { deallocate, .. } = access {
            if *deallocate && self.punches.swap(false, Ordering::Relaxed) {
                return;
            }
            self.zeroes.store(false, Ordering::Relaxed);
        }
    }
}

/// Opens a file for root, who can open any: root would serve the file to which somebody else has a link lead, such as the user
/// that the server becomes in a directory of its own. So each link in the place of the file is opened itself, its owner is
/// looked at, and where it leads is read from what was opened: nobody can exchange it in between.
fn open_checked(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut directory = None;
    let mut place = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Some(name) = place.file_name().map(OsStr::to_owned) else {
            let beneath = directory.as_ref().map_or(CWD, OwnedFd::as_fd);
            return Ok(openat(beneath, &place, flags, NEW_FILE_MODE)?.into());
        };
        // Links among the directories are followed.
        let above = above(&place);
        let to_directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(directory.as_ref().map_or(CWD, OwnedFd::as_fd), above, to_directory, Mode::empty())?;
        match openat(&opened, &name, flags, NEW_FILE_MODE) {
            Err(Errno::LOOP) => {}
            file => return Ok(file?.into()),
        }
        let link = openat(&opened, &name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let found = fstat(&link)?;
        if !FileType::from_raw_mode(found.st_mode).is_symlink() {
            // It was a link a moment ago.
            directory = Some(opened);
            place = name.into();
            continue;
        }
        if found.st_uid != 0 {
            let owner = found.st_uid;
            return Err(wrong(
                path,
                &format!("is a link of user {owner}, who could have it lead to any file: name that file itself"),
            ));
        }
        let target = readlinkat(&link, "", Vec::new())?;
        place = PathBuf::from(OsString::from_vec(target.into_bytes()));
        directory = Some(opened);
    }
    Err(Errno::LOOP.into())
}

/// Opens the file, direct if it can be: the second value says so.
fn open_file(path: &Path, options: &OpenOptions) -> io::Result<(File, bool)> {
    let (file, direct) = open_as_it_can_be(path, options)?;
    // To note the time of a read may wait for the disk where the bytes are in memory. Those who do not own the file may not leave it.
    if let Ok(flags) = fcntl_getfl(&file) {
        let _ = fcntl_setfl(&file, flags | OFlags::NOATIME);
    }
    Ok((file, direct))
}

fn open_as_it_can_be(path: &Path, options: &OpenOptions) -> io::Result<(File, bool)> {
    let is_device = path.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device());
    let open_as = |direct: bool| {
        let mut flags = if options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
        flags.set(OFlags::DIRECT, direct);
        flags.set(OFlags::EXCL, is_device && !options.read_only);
        flags.set(OFlags::CREATE, options.size.is_some() && !is_device && !options.read_only);
        if geteuid().is_root() {
            return open_checked(path, flags);
        }
        Ok(open(path, flags | OFlags::CLOEXEC, NEW_FILE_MODE)?.into())
    };
    if options.buffered {
        return open_as(false).map(|file| (file, false));
    }
    let direct = match open_as(true) {
        Ok(file) => reads_blocks(&file, options.block_bytes).then_some(file),
        Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => None,
        Err(error) => return Err(error),
    };
    // Nothing has it open any more: a device would be in use.
    match direct {
        Some(file) => Ok((file, true)),
        None => open_as(false).map(|file| (file, false)),
    }
}

/// Whether direct reads may start at any block: a device with 4-KiB sectors refuses 512-byte blocks.
fn reads_blocks(file: &File, block_bytes: u32) -> bool {
    let mut block = Buffer::zeroed(block_bytes as usize);
    let read = file.read_at(&mut block, u64::from(block_bytes));
    !read.is_err_and(|error| error.raw_os_error() == Some(Errno::INVAL.raw_os_error()))
}

/// Locks it, also where a target that was killed a moment ago still has the lock.
fn lock(file: &File, path: &Path, read_only: bool) -> io::Result<()> {
    let mut patience = Patience::new();
    let tell = |at_most_s| tracing::warn!(path = %path.display(), at_most_s, "another program has locked it: waiting for its end");
    while !lock_now(file, read_only).map_err(|error| in_file(path, error))? {
        if !patience.wait(tell) {
            let what = "is served by another process or as another volume of this one, or in use by a program that locks what it uses, \
                        such as QEMU";
            return Err(wrong(path, what));
        }
    }
    Ok(())
}

/// False: somebody holds a lock on it.
fn lock_now(file: &File, read_only: bool) -> io::Result<bool> {
    let (operation, kind) = match read_only {
        true => (FlockOperation::NonBlockingLockShared, Lock::Shared),
        false => (FlockOperation::NonBlockingLockExclusive, Lock::Exclusive),
    };
    match flock(file, operation) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(false),
        Err(errno) => return Err(errno.into()),
    }
    // Where a file system does not have these, those have to do.
    Ok(try_lock(file, kind).unwrap_or(true))
}

/// Grows the file to the size asked for; gives the length to serve.
fn size_file(file: &File, path: &Path, is_device: bool, len: u64, options: &OpenOptions) -> io::Result<u64> {
    let len = if is_device { device_len(file).map_err(|error| in_file(path, error))? } else { len };
    let len = match options.size {
        None => len,
        Some(size) if is_device && size != len => {
            return Err(wrong(path, &format!("is a device of {len} bytes; drop `size=`")));
        }
        Some(size) if size < len => {
            return Err(wrong(path, &format!("has {len} bytes, more than size={size}; files are never shrunk")));
        }
        Some(size) => {
            if size > len {
                file.set_len(size).map_err(|error| in_file(path, error))?;
                // The new length must be on disk before a write beyond the old one is acknowledged.
                file.sync_all().map_err(|error| in_file(path, error))?;
            }
            size
        }
    };
    let block = u64::from(options.block_bytes);
    if len == 0 {
        return Err(wrong(path, "is empty; give it a size with `size=`, such as size=1GiB"));
    }
    if !len.is_multiple_of(block) {
        let (smaller, size) = (if block > 512 { "use block=512, or " } else { "" }, len.next_multiple_of(block));
        let what = format!(
            "has {len} bytes, not a multiple of the {block}-byte block; {smaller}make it longer: rw,size={size}"
        );
        return Err(wrong(path, &what));
    }
    Ok(len)
}

/// The directory of a file.
fn above(path: &Path) -> &Path {
    path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn device_len(file: &File) -> io::Result<u64> {
    use std::io::Seek;
    (&mut &*file).seek(io::SeekFrom::End(0))
}

fn in_file(path: &Path, error: io::Error) -> io::Error {
    let hint = match error.kind() {
        io::ErrorKind::NotFound if !above(path).exists() => "; its directory is missing",
        io::ErrorKind::NotFound => "; to make it, give it rw and a size, such as rw,size=1GiB",
        io::ErrorKind::ResourceBusy => "; is it mounted?",
        _ => "",
    };
    io::Error::new(error.kind(), format!("{}: {error}{hint}", path.display()))
}

fn wrong(path: &Path, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{} {what}", path.display()))
}
