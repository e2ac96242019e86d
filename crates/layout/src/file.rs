//! The guards' kernel: an open file, and the thread that answers breaks of leases.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use diskside_sys::cache::{self, Residency};
use diskside_sys::extent::{self, Extent, Told};
use diskside_sys::lease::{self, Address, Heard, Lease, Listener, Notice};
use rustix::fs::{
    Advice, AtFlags, StatxFlags, StatxTimestamp, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, fadvise, fgetxattr,
    futimens, statx,
};
use rustix::io::Errno;
use rustix::process::{Pid, getpid};
use rustix::time::{ClockId, clock_gettime};

use crate::guard::{AnswerBreak, FileOps, Guard, GuardConfig, Stamp};
use crate::write::{WriteGuard, WriteGuardConfig, WriteOps};

/// An open file of ours, closed by `exec`: read-only to be read at the volume, for reading and writing to be written.
#[derive(Debug)]
pub struct OpenFile {
    file: File,
    process: Pid,
    notices: Option<Address>,
    is_shared: bool,
}

impl OpenFile {
    /// Takes a file that nobody else uses: a lease belongs to the open file description, and others who asked for one
    /// by it would end ours unseen.
    ///
    /// A writer that breaks a lease waits for the next step of the guard, or for as long as the kernel is patient
    /// (45 s). [`watched`] spares it that.
    #[must_use]
    pub fn new(file: File) -> Self {
        Self { file, process: getpid(), notices: None, is_shared: false }
    }

    /// The file, for the plain path.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if self.notices.is_some()
            && let Ok(watcher) = Watcher::of_process()
        {
            // Before the descriptor is closed and its number another file's.
            lock(&watcher.guards).remove(&self.file.as_raw_fd());
        }
    }
}

impl FileOps for OpenFile {
    fn take_lease(&self, lease: Lease) -> io::Result<()> {
        // It would be changed to ours, and given up with ours.
        if self.is_shared && lease::lease(&self.file)?.is_some() {
            return Err(Errno::BUSY.into());
        }
        lease::take(&self.file, lease, self.notices.map_or(Notice::Silent, Notice::Listener))
    }

    fn lease(&self) -> io::Result<Option<Lease>> {
        lease::lease(&self.file)
    }

    fn release_lease(&self) -> io::Result<()> {
        lease::release(&self.file)
    }

    fn flush(&self, range: Range<u64>) -> io::Result<()> {
        cache::flush(&self.file, range)
    }

    fn extents(&self, range: Range<u64>, sync: bool, extents_max: usize, found: &mut Vec<Extent>) -> io::Result<Told> {
        extent::extents(&self.file, range, sync, extents_max, found)
    }

    fn stamp(&self) -> io::Result<Stamp> {
        let wanted = StatxFlags::SIZE | StatxFlags::BLOCKS | StatxFlags::MTIME | StatxFlags::CTIME;
        let told = statx(&self.file, "", AtFlags::EMPTY_PATH, wanted)?;
        Ok(Stamp {
            len: told.stx_size,
            sectors: told.stx_blocks,
            mtime: since_1970(told.stx_mtime),
            ctime: since_1970(told.stx_ctime),
        })
    }

    fn now(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    fn is_ours(&self) -> bool {
        getpid() == self.process
    }
}

impl WriteOps for OpenFile {
    fn drop_cache(&self) -> io::Result<()> {
        // All of it: a folio that lies across the borders of a range would stay.
        Ok(fadvise(&self.file, 0, None, Advice::DontNeed)?)
    }

    fn residency(&self, range: Range<u64>) -> io::Result<Residency> {
        cache::residency(&self.file, range)
    }

    fn touch(&self) -> io::Result<()> {
        let at = |nsec| Timespec { tv_sec: 0, tv_nsec: nsec };
        let times = Timestamps { last_access: at(UTIME_OMIT), last_modification: at(UTIME_NOW) };
        Ok(futimens(&self.file, &times)?)
    }

    fn loses_rights_when_written(&self) -> io::Result<bool> {
        const SET_IDS: u16 = 0o6000;
        let mode = statx(&self.file, "", AtFlags::EMPTY_PATH, StatxFlags::MODE)?.stx_mode;
        match fgetxattr(&self.file, "security.capability", &mut [0_u8; 0]) {
            Ok(_) => Ok(true),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(mode & SET_IDS != 0),
            Err(errno) => Err(errno.into()),
        }
    }

    fn elapsed(&self) -> Duration {
        let now = clock_gettime(ClockId::Monotonic);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    }

    fn pause(&self) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn since_1970(time: StatxTimestamp) -> Duration {
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), time.tv_nsec)
}

/// A guard whose lease is given up as soon as someone else wants to write, by a thread that the process has for that.
/// So no writer waits for a request of ours, be it in the same thread.
///
/// # Errors
/// The thread cannot be started.
pub fn watched(file: File, config: GuardConfig) -> io::Result<Guard<OpenFile>> {
    with_watcher(file, false, |file| Guard::new(file, config), Guard::answerer)
}

/// [`watched`] for a duplicate of somebody else's descriptor. A lease that its owner has taken is left alone: it is `EBUSY`.
/// One request at a time, since they all have the one lease.
///
/// # Errors
/// The thread cannot be started.
pub fn watched_duplicate(file: File, config: GuardConfig) -> io::Result<Guard<OpenFile>> {
    with_watcher(file, true, |file| Guard::new(file, config), Guard::answerer)
}

/// A guard for writes, whose request hears from that thread when someone else wants the file.
///
/// # Errors
/// The thread cannot be started.
pub fn watched_writer(file: File, config: WriteGuardConfig) -> io::Result<WriteGuard<OpenFile>> {
    with_watcher(file, false, |file| WriteGuard::new(file, config), WriteGuard::answerer)
}

fn with_watcher<G>(
    file: File,
    is_shared: bool,
    guard: impl FnOnce(OpenFile) -> G,
    answerer: impl FnOnce(&G) -> WeakGuard,
) -> io::Result<G> {
    let watcher = Watcher::of_process()?;
    let number = file.as_raw_fd();
    let guard = guard(OpenFile { file, process: watcher.process, notices: Some(watcher.address), is_shared });
    lock(&watcher.guards).insert(number, answerer(&guard));
    Ok(guard)
}

/// The thread that answers breaks, one for the process.
struct Watcher {
    process: Pid,
    address: Address,
    /// By descriptor: the kernel names a file by the descriptor that its lease was asked for with.
    guards: Arc<Mutex<HashMap<RawFd, WeakGuard>>>,
}

type WeakGuard = Weak<dyn AnswerBreak>;

impl Watcher {
    fn of_process() -> io::Result<&'static Self> {
        static WATCHER: OnceLock<Watcher> = OnceLock::new();
        static STARTING: Mutex<()> = Mutex::new(());
        if WATCHER.get().is_none() {
            let _one = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
            if WATCHER.get().is_none() {
                let _ = WATCHER.set(Self::start()?);
            }
        }
        let watcher = WATCHER.get().expect("it was just set");
        if watcher.process != getpid() {
            return Err(io::Error::other(
                "the thread that answers breaks of leases is the parent's: this is after a fork",
            ));
        }
        Ok(watcher)
    }

    fn start() -> io::Result<Self> {
        let guards: Arc<Mutex<HashMap<RawFd, WeakGuard>>> = Arc::default();
        let (send, receive) = channel();
        let watched = Arc::clone(&guards);
        std::thread::Builder::new().name("diskside-leases".into()).spawn(move || match Listener::new() {
            Err(error) => drop(send.send(Err(error))),
            Ok(listener) => {
                drop(send.send(Ok(listener.address())));
                answer(&listener, &watched);
            }
        })?;
        let address = receive.recv().map_err(|_| io::Error::other("the thread that answers breaks ended"))??;
        Ok(Self { process: getpid(), address, guards })
    }
}

/// Answers for as long as the process lives. A break of which nobody hears costs the writer the kernel's patience, so
/// the thread ends for nothing.
fn answer(listener: &Listener, guards: &Mutex<HashMap<RawFd, WeakGuard>>) {
    loop {
        let asked: Vec<WeakGuard> = match listener.wait(None) {
            Ok(Heard::Break(number)) => lock(guards).get(&number).cloned().into_iter().collect(),
            Ok(Heard::AnyBreak) => lock(guards).values().cloned().collect(),
            Ok(Heard::Woken | Heard::Nothing) => continue,
            Err(_) => {
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        for guard in asked {
            if let Some(answer) = guard.upgrade() {
                answer.answer_break();
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
