//! One ring, owned by one thread: an io_uring, or what does the same with epoll and threads.
//!
//! A [`Ring`] is made on the thread that uses it and stays there; other threads reach it through
//! their own queues and a [`Waker`]. An [`Op`] owns everything that the kernel will touch and gives
//! it back with its [`Completion`], so this interface needs no `unsafe`.
//!
//! The loop of a reactor:
//!
//! ```
//! # use diskside_io::{buffer::Buffer, ring::{Op, Ring, RingConfig}};
//! # fn main() -> std::io::Result<()> {
//! # let file = std::sync::Arc::new(std::fs::File::open("/proc/self/exe")?.into());
//! let mut ring = Ring::new(&RingConfig::default())?;
//! ring.push(1, Op::Read { file, offset: 0, buffer: Buffer::zeroed(4096), range: 0..4096 });
//! while ring.in_flight() > 0 {
//!     let wait = ring.wait(None)?; // submits everything pushed, polls a while, then sleeps
//!     if wait.woken { /* look into the queue that another thread filled */ }
//!     while let Some(done) = ring.next_completion() {
//!         assert_eq!((done.token, done.result), (1, Ok(4096)));
//!         // pushing more operations here is fine: they go out with the next `wait`
//!     }
//! }
//! # Ok(()) }
//! ```
//!
//! It takes care of this: completions are drained before anything is pushed; operations wait in a backlog while the
//! submission queue is full; deferred task work runs whenever the kernel asks for it, also while polling; a dropped
//! ring cancels what is in flight and waits for it.
//!
//! All rings of a process have the same [`interface()`] to the kernel: io_uring, unless that is denied or too old. The
//! following is about io_uring; the other one is slower, and gives the same bytes and errors.
//!
//! With [`RingConfig::default`] the kernel does nothing behind the thread's back
//! (`SINGLE_ISSUER | DEFER_TASKRUN | COOP_TASKRUN | TASKRUN_FLAG`), and [`Ring::wait`] polls for
//! up to 100 µs before it sleeps, where that pays: full speed under load, no CPU time when idle.

mod batch;
mod config;
mod driver;
mod files;
mod interface;
mod op;
mod polling;
mod posix;
mod precedence;
mod provided;
mod rest;
mod split;
mod stable;
mod uring;
mod waker;

use std::io;
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::ClockId;

pub use batch::{SEGMENTS_MAX, SendBatch};
pub use config::{OpId, RingConfig};
pub use interface::{Interface, check_variable, interface};
pub use op::{Completion, Op, Payload, TRANSFER_BYTES_MAX};
pub use precedence::Precedence;
pub use provided::{GROUP_BUFFERS_MAX, GroupId, Received};
pub use waker::Waker;

pub(crate) use split::{CompletionHalf, SubmissionHalf, split};

use crate::buffer::Arena;
use driver::Driver;
use polling::Polling;
use posix::Posix;
use precedence::Seat;
use rest::Rests;
use uring::Uring;

/// What happened during [`Ring::wait`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// [`Waker::wake`] was called.
    pub woken: bool,
    /// There are completions to take.
    pub completions: bool,
}

/// What a ring has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingStats {
    /// System calls to submit or to wait.
    pub enters: u64,
    /// Times the thread slept.
    pub sleeps: u64,
    /// Completions reaped.
    pub completions: u64,
}

/// One ring and its operations in flight. See the [module](self).
pub struct Ring {
    driver: Box<dyn Driver>,
    waker: Waker,
    config: RingConfig,
    polling: Polling,
    /// Whether an answer is due, see [`expect_answers`](Ring::expect_answers).
    answers_due: bool,
    /// Whether others have use for the processor, see [`give_way`](Ring::give_way).
    gives_way: bool,
    rests: Rests,
    /// See [`precedence`](Ring::precedence).
    seat: Option<Seat>,
    sleeps: u64,
    /// A ring belongs to the thread that made it.
    not_send: PhantomData<*const ()>,
}

impl Ring {
    /// A new ring for the calling thread.
    pub fn new(config: &RingConfig) -> io::Result<Self> {
        Self::over(config, interface()?)
    }

    /// The same; where no more memory may be locked for an io_uring, it does without.
    pub(crate) fn new_or_posix(config: &RingConfig) -> io::Result<Self> {
        Self::new(config).or_else(|error| match error.kind() {
            io::ErrorKind::OutOfMemory => Self::over(config, &Interface::Posix(error.to_string())),
            _ => Err(error),
        })
    }

    fn over(config: &RingConfig, interface: &Interface) -> io::Result<Self> {
        let waker = Waker::new()?;
        let mut config = config.clone();
        let driver: Box<dyn Driver> = match interface {
            Interface::IoUring => Box::new(Uring::new(&config, waker.clone())?),
            Interface::Posix(_) => {
                // It sleeps until a thread has asked the device.
                config.io_poll = false;
                Box::new(Posix::new(&config, waker.clone())?)
            }
        };
        Ok(Self {
            driver,
            waker,
            polling: Polling::new(config.spin),
            config,
            answers_due: false,
            gives_way: false,
            rests: Rests::default(),
            seat: None,
            sleeps: 0,
            not_send: PhantomData,
        })
    }

    /// Adds an operation; it goes to the kernel with the next [`wait`](Self::wait) or
    /// [`submit`](Self::submit). `token` comes back in its completions.
    pub fn push(&mut self, token: u64, op: Op) -> OpId {
        self.driver.push(token, op)
    }

    /// As [`push`](Self::push), for a file of which even the beginning of an operation may wait, as on a file system of FUSE: a thread of
    /// the kernel begins it, and not this one.
    pub fn push_to_worker(&mut self, token: u64, op: Op) -> OpId {
        self.driver.push_to_worker(token, op)
    }

    /// Asks the kernel to cancel an operation. It still completes: with `ECANCELED`, or as if it had not been cancelled.
    pub fn cancel(&mut self, id: OpId) {
        self.driver.cancel(id);
    }

    /// Operations pushed and not completed.
    pub fn in_flight(&self) -> usize {
        self.driver.in_flight()
    }

    /// Says whether something that was asked for is to be answered soon: by a disk through this ring, by a peer through a
    /// socket. Then [`wait`](Self::wait) polls for up to four times as long.
    pub fn expect_answers(&mut self, due: bool) {
        self.answers_due = due;
    }

    /// Says whether another thread has use for this one's processor while there is nothing to do: then
    /// [`wait`](Self::wait) does not poll, it sleeps at once; and where the kernel can (Linux 6.12 and later),
    /// for half as long as the thread has worked before, up to 100 µs, although completions come meanwhile. So the other has a third
    /// of the processor in pieces that are worth having, a thread with much to do does more of it at a time, and one
    /// with little is as quick as before.
    pub fn give_way(&mut self, gives_way: bool) {
        self.gives_way = gives_way;
        if !gives_way {
            self.rests.forget();
        }
    }

    /// What lets this ring's thread go first on its processor.
    pub fn precedence(&mut self) -> io::Result<Precedence> {
        if self.seat.is_none() {
            self.seat = Some(Seat::new(rustix::io::fcntl_dupfd_cloexec(self.driver.as_fd(), 0)?));
        }
        Ok(self.seat.as_ref().expect("it was made just now").precedence())
    }

    /// What wakes this ring's thread from others.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// What the ring has done so far.
    pub fn stats(&self) -> RingStats {
        let (enters, completions) = self.driver.counts();
        RingStats { enters, sleeps: self.sleeps, completions }
    }

    /// Makes `buffers` (a power of two) of `len_bytes` each for [`Op::Receive`] to take from.
    pub fn provide(&mut self, buffers: u16, len_bytes: usize) -> io::Result<GroupId> {
        self.driver.provide(buffers, len_bytes)
    }

    /// Registers an arena, once: from now on [`Op::Read`] and [`Op::Write`] with its buffers spare the kernel the search
    /// for their pages. Fails where the process may not lock that much memory (`RLIMIT_MEMLOCK`); then, and on any other
    /// ring, the arena's buffers are buffers like others.
    pub fn register(&mut self, arena: &Arena) -> io::Result<()> {
        self.driver.register(arena)
    }

    /// Registers a descriptor: from now on operations with it spare the kernel the search for it. It stays open until
    /// [`unregister_file`](Self::unregister_file), or the end of the ring. False where the ring has no place for it; then
    /// it is one like others.
    pub fn register_file(&mut self, file: &Arc<OwnedFd>) -> bool {
        self.driver.register_file(file)
    }

    /// Whether a descriptor is registered.
    pub fn is_registered(&self, file: &OwnedFd) -> bool {
        self.driver.is_registered(file)
    }

    /// Ends a registration. Operations in flight continue.
    pub fn unregister_file(&mut self, file: &OwnedFd) {
        self.driver.unregister_file(file);
    }

    /// Submits what was pushed, without waiting for anything.
    pub fn submit(&mut self) -> io::Result<()> {
        self.driver.submit()
    }

    /// Submits what was pushed and waits for a completion, a [`Waker::wake`] or the timeout.
    ///
    /// It may also return with neither, for instance after a signal.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<Wait> {
        let waited = self.poll_and_sleep(timeout);
        if let Some(seat) = &self.seat {
            seat.awakes();
        }
        waited
    }

    fn poll_and_sleep(&mut self, timeout: Option<Duration>) -> io::Result<Wait> {
        if self.config.io_poll || (self.config.spin.is_zero() && timeout != Some(Duration::ZERO)) {
            if self.driver.has_completions() || self.waker.is_pending() {
                self.driver.submit()?;
            } else {
                self.sleep(timeout)?;
            }
            return Ok(self.outcome());
        }
        let started = Instant::now();
        let due = self.answers_due;
        let window = if self.gives_way { Duration::ZERO } else { self.polling.window(started, due) };
        let spin = timeout.map_or(window, |timeout| timeout.min(window));
        let mut looked = started;
        loop {
            let entered = self.driver.look()?;
            if self.driver.has_completions() || self.waker.is_pending() {
                return Ok(self.outcome());
            }
            let now = Instant::now();
            let disturbed = !entered && self.polling.note_look(now - looked, now);
            looked = now;
            let elapsed = now - started;
            if elapsed >= spin || disturbed {
                let left = timeout.map(|timeout| timeout.saturating_sub(elapsed));
                if left != Some(Duration::ZERO) {
                    // Everything pushed is with the kernel: only what happens from here on ends the pause.
                    self.sleep(left)?;
                    self.polling.note_sleep(started.elapsed(), due);
                }
                return Ok(self.outcome());
            }
            std::hint::spin_loop();
        }
    }

    /// The next completion that the last [`wait`](Self::wait) found.
    pub fn next_completion(&mut self) -> Option<Completion> {
        self.driver.next_completion()
    }

    /// Sleeps until something happens, unless it already has.
    fn sleep(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if self.config.io_poll {
            return self.driver.sleep(Duration::ZERO, timeout);
        }
        self.driver.listen();
        if !self.waker.fall_asleep() {
            return self.driver.submit();
        }
        self.sleeps += 1;
        let rest = self.rest(timeout);
        if let Some(seat) = &self.seat {
            seat.falls_asleep(rest);
        }
        let slept = self.driver.sleep(rest, timeout);
        self.waker.wake_up();
        slept
    }

    /// How long to sleep whatever comes.
    fn rest(&mut self, timeout: Option<Duration>) -> Duration {
        if !self.gives_way || !self.driver.can_rest() {
            return Duration::ZERO;
        }
        self.rests.next(processor_time(), timeout)
    }

    fn outcome(&mut self) -> Wait {
        Wait { woken: self.waker.take_pending(), completions: self.driver.has_completions() }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // A thread that waits for this one's sleep does not wait any longer, and the driver's descriptor has one name
        // again.
        self.seat = None;
    }
}

/// What the calling thread has used of processors so far.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}
