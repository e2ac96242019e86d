//! Leases on files: the kernel's word that nobody opens the file for writing unseen.
//!
//! Guarantees, and their limits (`fcntl(2)`, "Leases", and experiments):
//!
//! * Only [`lease`] says whether a lease is in force. [`take`] succeeds also while a break is pending.
//! * A break shows in [`lease`] at once, before the other's `open` continues; the other waits until [`release`], at
//!   most `/proc/sys/fs/lease-break-time` seconds.
//! * The signal that tells of a break kills the process by default (`SIGIO`). Giving a lease up resets which signal
//!   is sent and to whom. So [`take`] sets both, every time.
//! * A lease belongs to the open file description. Descriptors that were duplicated or inherited by a fork keep it
//!   alive; [`release`] ends it for all of them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::checked;

/// What a lease keeps others from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// Nobody opens the file for writing or truncates it.
    Read,
    /// Nobody opens the file at all: the holder's descriptor is the only one.
    Write,
}

/// Who hears that a lease is to be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Nobody: the holder asks [`lease`] and is quick. (The process is sent `SIGURG`, which is ignored by default.)
    Silent,
    /// A thread with a [`Listener`].
    Listener(Address),
}

/// Where a [`Listener`]'s notices go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    thread: libc::pid_t,
    signal: libc::c_int,
}

/// Asks for a lease. [`lease`] says whether it is in force then.
///
/// # Errors
/// `EAGAIN`: others have the file open in a way that the lease excludes. `EACCES`: the file belongs to someone else and
/// the caller has no `CAP_LEASE`. `EINVAL`: the file system has no leases, or this is not a regular file.
pub fn take(file: impl AsFd, lease: Lease, notice: Notice) -> io::Result<()> {
    let file = file.as_fd();
    let signal = match notice {
        Notice::Silent => libc::SIGURG,
        Notice::Listener(address) => {
            let owner = OwnerEx { kind: F_OWNER_TID, pid: address.thread };
            // SAFETY: F_SETOWN_EX reads one `struct f_owner_ex`.
            checked(unsafe { libc::fcntl(file.as_raw_fd(), F_SETOWN_EX, &raw const owner) })?;
            address.signal
        }
    };
    // SAFETY: F_SETSIG and F_SETLEASE take integers.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), F_SETSIG, signal) })?;
    let kind = match lease {
        Lease::Read => libc::F_RDLCK,
        Lease::Write => libc::F_WRLCK,
    };
    // SAFETY: as above.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) })?;
    Ok(())
}

/// The lease that is in force on this open file description. While a break is pending there is none.
///
/// # Errors
/// Those of `fcntl`.
pub fn lease(file: impl AsFd) -> io::Result<Option<Lease>> {
    // SAFETY: F_GETLEASE takes nothing.
    let kind = checked(unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_GETLEASE) })?;
    Ok(match kind {
        libc::F_RDLCK => Some(Lease::Read),
        libc::F_WRLCK => Some(Lease::Write),
        _ => None,
    })
}

/// Releases the lease; those who wait for it continue. Without a lease nothing happens.
///
/// # Errors
/// Those of `fcntl`, but not `EAGAIN`, which says that there was none.
pub fn release(file: impl AsFd) -> io::Result<()> {
    // SAFETY: F_SETLEASE takes an integer.
    match checked(unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) }) {
        Err(error) if error.raw_os_error() != Some(libc::EAGAIN) => Err(error),
        _ => Ok(()),
    }
}

/// How long the kernel waits for a holder that does not answer, before it removes the lease itself.
#[must_use]
pub fn break_time() -> Duration {
    let text = std::fs::read_to_string("/proc/sys/fs/lease-break-time").unwrap_or_default();
    // The kernel's own default, where /proc is not mounted.
    Duration::from_secs(text.trim().parse().unwrap_or(45))
}

/// Hears of breaks in the thread that made it, by a real-time signal that only this thread gets and no handler sees.
///
/// It stays in its thread: signals are the thread's.
#[derive(Debug)]
pub struct Listener {
    signals: OwnedFd,
    wake: OwnedFd,
    address: Address,
    /// Not `Send`: the descriptor tells the signals of the thread that reads it.
    not_send: std::marker::PhantomData<*const ()>,
}

/// Ends a [`Listener`]'s wait from another thread.
#[derive(Debug)]
pub struct Waker(OwnedFd);

/// Why a [`Listener`] stopped waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The lease on this descriptor is to be given up: the one that [`take`] was called with.
    Break(RawFd),
    /// A lease is to be given up, but there were too many signals to say which.
    AnyBreak,
    /// Another thread used the [`Waker`].
    Woken,
    /// The time is over.
    Nothing,
}

impl Listener {
    /// Makes the calling thread hear of breaks.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> io::Result<Self> {
        // The last real-time signal: applications count from the first.
        let signal = libc::SIGRTMAX();
        // SAFETY: `sigset_t` is plain data that sigemptyset initialises; the calls get valid pointers to it.
        // Blocking is for this thread alone, and the two signals of which nobody else in this thread makes use.
        let signals = unsafe {
            let mut set = std::mem::zeroed::<libc::sigset_t>();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, signal);
            // The kernel's signal when the queue of real-time signals is full.
            libc::sigaddset(&raw mut set, libc::SIGIO);
            let errno = libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            if errno != 0 {
                return Err(io::Error::from_raw_os_error(errno));
            }
            checked(libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))?
        };
        // SAFETY: signalfd returned a new descriptor, which nobody else owns.
        let signals = unsafe { OwnedFd::from_raw_fd(signals) };
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        Ok(Self { signals, wake, address: Address { thread, signal }, not_send: std::marker::PhantomData })
    }

    /// Where notices for this listener go.
    #[must_use]
    pub fn address(&self) -> Address {
        self.address
    }

    /// Something that ends a wait from another thread.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn waker(&self) -> io::Result<Waker> {
        Ok(Waker(self.wake.try_clone()?))
    }

    /// Waits for a break; without a timeout for as long as it takes.
    ///
    /// # Errors
    /// Those of `poll` and `read`; an interruption is none.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<Heard> {
        let timeout = timeout.map(|t| Timespec { tv_sec: t.as_secs() as i64, tv_nsec: t.subsec_nanos().into() });
        loop {
            if let Some(heard) = self.heard()? {
                return Ok(heard);
            }
            let mut count = [0; 8];
            if rustix::io::read(&self.wake, &mut count).is_ok() {
                return Ok(Heard::Woken);
            }
            let mut waits = [PollFd::new(&self.signals, PollFlags::IN), PollFd::new(&self.wake, PollFlags::IN)];
            match poll(&mut waits, timeout.as_ref()) {
                Ok(0) => return Ok(Heard::Nothing),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn heard(&self) -> io::Result<Option<Heard>> {
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.signals, &mut info) {
            Ok(_) => {}
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
        // SAFETY: the kernel fills whole structures, which are plain integers; reading it unaligned is allowed.
        let info = unsafe { std::ptr::read_unaligned(info.as_ptr().cast::<libc::signalfd_siginfo>()) };
        Ok(Some(if info.ssi_signo as libc::c_int == self.address.signal {
            Heard::Break(info.ssi_fd)
        } else {
            Heard::AnyBreak
        }))
    }
}

impl Waker {
    /// Ends the present or the next wait.
    pub fn wake(&self) {
        // Any number counts; and a counter that is full wakes as well.
        let _ = rustix::io::write(&self.0, &[1; 8]);
    }
}

const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;
const F_OWNER_TID: libc::c_int = 0;

/// `struct f_owner_ex`.
#[repr(C)]
struct OwnerEx {
    kind: libc::c_int,
    pid: libc::pid_t,
}
