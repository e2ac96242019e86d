//! One io_uring, owned by one thread.
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
//! What it takes care of: completions are drained before anything is pushed on; operations wait in a
//! backlog while the submission queue is full; deferred task work runs whenever the kernel asks
//! for it, also while polling; a dropped ring cancels what is in flight and waits for it.
//!
//! With [`RingConfig::default`] the kernel does nothing behind the thread's back
//! (`SINGLE_ISSUER | DEFER_TASKRUN | COOP_TASKRUN | TASKRUN_FLAG`), and [`Ring::wait`] polls for
//! up to 100 µs before it sleeps, where that pays: full speed under load, no CPU time when idle.

mod batch;
mod files;
mod op;
mod polling;
mod precedence;
mod provided;
mod rest;
mod split;
mod stable;
mod waker;

use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::types::{CancelBuilder, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;
use rustix::time::ClockId;

pub use batch::{SEGMENTS_MAX, SendBatch};
pub use op::{Completion, Op, Payload, TRANSFER_BYTES_MAX};
pub use precedence::Precedence;
pub use provided::{GROUP_BUFFERS_MAX, GroupId, Received};
pub use waker::Waker;

pub(crate) use split::{CompletionHalf, SubmissionHalf, split};

use crate::buffer::Arena;
use crate::slab::{Key, Slab};
use files::Files;
use op::Held;
use polling::Polling;
use precedence::Seat;
use provided::Group;
use rest::Rests;

/// How long a dropped ring waits for operations that cannot be cancelled, before it leaks their memory.
const DROP_WAIT_MAX: Duration = Duration::from_secs(5);
/// Marks completions that nobody waits for.
const NOBODY: u64 = u64::MAX;

/// What the ring keeps of an operation while it is in flight.
struct InFlight {
    token: u64,
    held: Held,
}

/// How a ring is set up.
#[derive(Clone, Debug)]
pub struct RingConfig {
    /// Entries of the submission queue, rounded up to a power of two. The completion queue has four times as many.
    pub entries: u32,
    /// How long [`Ring::wait`] polls at most before it sleeps, four times that for an
    /// [answer that is due](Ring::expect_answers). Zero sleeps at once. While pauses are longer than
    /// that, and while other threads want the processor, it polls for less or not at all.
    pub spin: Duration,
    /// Let a kernel thread submit; it sleeps after this long without work. It needs a core of its own.
    pub sq_poll: Option<Duration>,
    /// Poll the device for completions. Only for `O_DIRECT` reads and writes on devices with poll
    /// queues; such a ring cannot be woken, receive, send or synchronise.
    pub io_poll: bool,
}

impl Default for RingConfig {
    fn default() -> Self {
        Self { entries: 256, spin: Duration::from_micros(100), sq_poll: None, io_poll: false }
    }
}

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

/// Names one operation in flight of one ring. Once it is over, the name refers to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpId(Key);

/// One io_uring and its operations in flight. See the [module](self).
pub struct Ring {
    uring: ManuallyDrop<IoUring>,
    slots: ManuallyDrop<Slab<InFlight>>,
    groups: ManuallyDrop<Vec<Rc<Group>>>,
    /// Registered memory. The kernel holds its pages for itself, so that it may go at any time.
    arena: Option<Arena>,
    files: Files,
    /// Pushed, but not yet in the submission queue.
    backlog: VecDeque<squeue::Entry>,
    /// Reaped, but not yet taken.
    ready: VecDeque<cqueue::Entry>,
    waker: Waker,
    /// Whether a read of the waker's eventfd is in flight.
    listening: bool,
    config: RingConfig,
    polling: Polling,
    /// Whether an answer is due, see [`expect_answers`](Ring::expect_answers).
    answers_due: bool,
    /// Whether others have use for the processor, see [`give_way`](Ring::give_way).
    gives_way: bool,
    rests: Rests,
    /// See [`precedence`](Ring::precedence).
    seat: Option<Seat>,
    stats: RingStats,
    /// A ring belongs to the thread that made it.
    not_send: PhantomData<*const ()>,
}

impl Ring {
    /// A new ring for the calling thread.
    pub fn new(config: &RingConfig) -> io::Result<Self> {
        Ok(Self {
            uring: ManuallyDrop::new(build(config, true)?),
            slots: ManuallyDrop::new(Slab::with_capacity(config.entries as usize)),
            groups: ManuallyDrop::default(),
            arena: None,
            files: Files::default(),
            backlog: VecDeque::new(),
            ready: VecDeque::new(),
            waker: Waker::new()?,
            listening: false,
            config: config.clone(),
            polling: Polling::new(config.spin),
            answers_due: false,
            gives_way: false,
            rests: Rests::default(),
            seat: None,
            stats: RingStats::default(),
            not_send: PhantomData,
        })
    }

    /// Adds an operation; it goes to the kernel with the next [`wait`](Self::wait) or
    /// [`submit`](Self::submit). `token` comes back in its completions.
    pub fn push(&mut self, token: u64, op: Op) -> OpId {
        let (entry, held) = op.prepare(self.arena.as_ref(), &self.files);
        let key = self.slots.insert(InFlight { token, held });
        self.enqueue(entry.user_data(key.to_bits()));
        OpId(key)
    }

    /// Asks the kernel to cancel an operation. It still completes: with `ECANCELED`, or as if it had not been cancelled.
    pub fn cancel(&mut self, id: OpId) {
        if self.slots.get(id.0).is_some() {
            self.enqueue(opcode::AsyncCancel::new(id.0.to_bits()).build().user_data(NOBODY));
        }
    }

    /// Operations pushed and not completed.
    pub fn in_flight(&self) -> usize {
        self.slots.len() - usize::from(self.listening)
    }

    /// Says whether something that was asked for is to be answered soon: by a disk through this ring, by a peer through a
    /// socket. Then [`wait`](Self::wait) polls for up to four times as long.
    pub fn expect_answers(&mut self, due: bool) {
        self.answers_due = due;
    }

    /// Says whether another thread has use for this one's processor while there is nothing to do: then
    /// [`wait`](Self::wait) does not poll, it sleeps at once; and where the kernel can (Linux 6.12 and later), for as long
    /// as the thread has worked before, up to 100 µs, although completions come meanwhile. So the other has half of the
    /// processor in pieces that are worth having, a thread with much to do does more of it at a time, and one with
    /// little is as quick as ever.
    pub fn give_way(&mut self, gives_way: bool) {
        self.gives_way = gives_way;
        if !gives_way {
            self.rests.forget();
        }
    }

    /// What lets this ring's thread go first on its processor.
    pub fn precedence(&mut self) -> io::Result<Precedence> {
        if self.seat.is_none() {
            // SAFETY: the ring is open for as long as `self` is borrowed.
            let ring = unsafe { BorrowedFd::borrow_raw(self.uring.as_raw_fd()) };
            self.seat = Some(Seat::new(rustix::io::fcntl_dupfd_cloexec(ring, 0)?));
        }
        Ok(self.seat.as_ref().expect("it was made just now").precedence())
    }

    /// What wakes this ring's thread from others.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// What the ring has done so far.
    pub fn stats(&self) -> RingStats {
        self.stats
    }

    /// Makes `buffers` (a power of two) of `len_bytes` each for [`Op::Receive`] to take from.
    pub fn provide(&mut self, buffers: u16, len_bytes: usize) -> io::Result<GroupId> {
        let id = GroupId(self.groups.len() as u16);
        let group = Group::register(&self.uring, id, buffers, len_bytes)?;
        self.groups.push(group);
        Ok(id)
    }

    /// Registers an arena, once: from now on [`Op::Read`] and [`Op::Write`] with its buffers spare the kernel the search
    /// for their pages. Fails where the process may not lock that much memory (`RLIMIT_MEMLOCK`); then, and on any other
    /// ring, the arena's buffers are buffers like others.
    pub fn register(&mut self, arena: &Arena) -> io::Result<()> {
        let iov_base = arena.address().as_ptr().cast();
        let pieces = [libc::iovec { iov_base, iov_len: arena.len_bytes() }];
        // SAFETY: the piece is the arena's memory. The kernel takes references of its own to the pages; operations name
        // addresses in it only through buffers that they own, which keep the arena alive.
        unsafe { self.uring.submitter().register_buffers(&pieces)? };
        self.arena = Some(arena.clone());
        Ok(())
    }

    /// Registers a descriptor: from now on operations with it spare the kernel the search for it. It stays open until
    /// [`unregister_file`](Self::unregister_file), or the end of the ring. False where the ring has no place for it; then
    /// it is one like others.
    pub fn register_file(&mut self, file: &Arc<OwnedFd>) -> bool {
        self.files.add(&self.uring, file)
    }

    /// Whether a descriptor is registered.
    pub fn is_registered(&self, file: &OwnedFd) -> bool {
        self.files.place(file).is_some()
    }

    /// Ends a registration. Operations in flight go on.
    pub fn unregister_file(&mut self, file: &OwnedFd) {
        self.files.remove(&self.uring, file);
    }

    /// Submits what was pushed, without waiting for anything.
    pub fn submit(&mut self) -> io::Result<()> {
        self.enter(0, Duration::ZERO, None)
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
            self.reap();
            if self.ready.is_empty() && !self.waker.is_pending() {
                self.sleep(timeout)?;
            } else {
                self.enter(0, Duration::ZERO, None)?;
            }
            return Ok(self.outcome());
        }
        let started = Instant::now();
        let due = self.answers_due;
        let window = if self.gives_way { Duration::ZERO } else { self.polling.window(started, due) };
        let spin = timeout.map_or(window, |timeout| timeout.min(window));
        let mut looked = started;
        loop {
            let entered = self.wants_enter();
            if entered {
                self.enter(0, Duration::ZERO, None)?;
            }
            self.reap();
            if !self.ready.is_empty() || self.waker.is_pending() {
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
        loop {
            let entry = self.ready.pop_front()?;
            if let Some(completion) = self.complete(&entry) {
                return Some(completion);
            }
        }
    }

    fn complete(&mut self, entry: &cqueue::Entry) -> Option<Completion> {
        if entry.user_data() == NOBODY {
            return None;
        }
        let key = Key::from_bits(entry.user_data());
        let more = cqueue::more(entry.flags());
        let result = outcome(entry);
        let InFlight { token, held } = self.slots.get(key).expect("a completion belongs to an operation in flight");
        let token = *token;
        let produced = match held {
            Held::Counter(..) => {
                self.listening = false;
                self.slots.remove(key);
                return None;
            }
            Held::Accept(_) => op::accepted(result),
            Held::Receive(_, group) => match cqueue::buffer_select(entry.flags()) {
                Some(index) => {
                    let len = result.map_or(0, |len| len as usize);
                    Payload::Received(self.groups[usize::from(group.0)].received(index, len))
                }
                None => Payload::None,
            },
            _ => Payload::None,
        };
        let held = if more { None } else { self.slots.remove(key).map(|ended| ended.held) };
        let payload = match (produced, held) {
            (Payload::None, Some(held)) => held.into_payload(),
            (produced, _) => produced,
        };
        Some(Completion { token, result, more, payload })
    }

    fn enqueue(&mut self, entry: squeue::Entry) {
        self.backlog.push_back(entry);
        self.fill();
    }

    /// Moves the backlog into the submission queue, as far as it fits.
    fn fill(&mut self) {
        let mut queue = self.uring.submission();
        while let Some(entry) = self.backlog.front() {
            // SAFETY: everything the entry points to is owned by its slot until the completion is taken.
            if unsafe { queue.push(entry) }.is_err() {
                break;
            }
            self.backlog.pop_front();
        }
    }

    fn wants_enter(&mut self) -> bool {
        let queue = self.uring.submission();
        queue.taskrun()
            || queue.cq_overflow()
            || (!queue.is_empty() && self.config.sq_poll.is_none())
            || !self.backlog.is_empty()
            || (self.config.sq_poll.is_some() && queue.need_wakeup())
    }

    /// Sleeps until something happens, unless it already has.
    fn sleep(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if self.config.io_poll {
            return self.enter(1, Duration::ZERO, timeout);
        }
        if !self.listening {
            let (entry, held) = Held::counter_read(self.waker.eventfd().clone());
            let key = self.slots.insert(InFlight { token: NOBODY, held });
            self.listening = true;
            self.enqueue(entry.user_data(key.to_bits()));
        }
        if !self.waker.fall_asleep() {
            return self.enter(0, Duration::ZERO, None);
        }
        self.stats.sleeps += 1;
        let rest = self.rest(timeout);
        if let Some(seat) = &self.seat {
            seat.falls_asleep(rest);
        }
        let want = if rest.is_zero() { 1 } else { rest::COMPLETIONS };
        let entered = self.enter(want, rest, timeout);
        self.waker.wake_up();
        entered
    }

    /// How long to sleep whatever comes.
    fn rest(&mut self, timeout: Option<Duration>) -> Duration {
        if !self.gives_way || self.config.sq_poll.is_some() || !self.uring.params().is_feature_min_timeout() {
            return Duration::ZERO;
        }
        self.rests.next(processor_time(), timeout)
    }

    /// Hands everything pushed to the kernel, runs deferred work and waits for `want` completions.
    fn enter(&mut self, want: usize, rest: Duration, timeout: Option<Duration>) -> io::Result<()> {
        loop {
            self.reap();
            self.fill();
            // What is already reaped, or does not fit yet, must not wait for what comes.
            let want = if self.ready.is_empty() && self.backlog.is_empty() { want } else { 0 };
            self.stats.enters += 1;
            let entered = enter(&self.uring, want, rest, timeout);
            self.reap();
            match entered {
                Ok(()) => {}
                Err(Errno::INTR | Errno::TIME) => {}
                // The completion queue was full, or memory is short for a moment: reaping helps.
                Err(Errno::BUSY | Errno::AGAIN) if !self.ready.is_empty() => {}
                Err(Errno::BUSY | Errno::AGAIN) => std::thread::yield_now(),
                Err(errno) => return Err(errno.into()),
            }
            if self.backlog.is_empty() {
                return Ok(());
            }
        }
    }

    /// Takes all completions from the shared queue.
    fn reap(&mut self) {
        let before = self.ready.len();
        self.ready.extend(self.uring.completion());
        self.stats.completions += (self.ready.len() - before) as u64;
    }

    fn outcome(&mut self) -> Wait {
        self.reap();
        Wait { woken: self.waker.take_pending(), completions: !self.ready.is_empty() }
    }

    /// Cancels everything and waits until the kernel has let go of all memory; false if it did not in time.
    fn quiesce(&mut self) -> bool {
        let deadline = Instant::now() + DROP_WAIT_MAX;
        let mut cancelled = false;
        while self.slots.len() > 0 && Instant::now() < deadline {
            let step = if cancelled { Duration::from_millis(20) } else { Duration::ZERO };
            let want = usize::from(cancelled);
            if self.enter(want, Duration::ZERO, Some(step)).is_err() {
                return false;
            }
            while self.next_completion().is_some() {}
            // `ENOENT` (nothing to cancel) and rings that cannot cancel leave it to the loop.
            let now = Timespec::new();
            let _ = self.uring.submitter().register_sync_cancel(Some(now), CancelBuilder::any().all());
            cancelled = true;
        }
        self.slots.len() == 0
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.seat = None;
        let quiet = self.quiesce();
        // SAFETY: dropped once, here, and not used again. The io_uring goes first: it refers to the rest.
        unsafe { ManuallyDrop::drop(&mut self.uring) };
        if quiet {
            // SAFETY: no operation is in flight, so the kernel no longer touches what slots and groups own.
            unsafe {
                ManuallyDrop::drop(&mut self.slots);
                ManuallyDrop::drop(&mut self.groups);
            }
        }
    }
}

/// Sets up an io_uring; `one_thread` when the calling thread alone will submit and reap.
fn build(config: &RingConfig, one_thread: bool) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.setup_cqsize(config.entries.next_power_of_two().saturating_mul(4)).setup_clamp().dontfork();
    if let Some(idle) = config.sq_poll {
        builder.setup_sqpoll(idle.as_millis().clamp(1, u128::from(u32::MAX)) as u32);
    } else if one_thread {
        builder.setup_single_issuer().setup_defer_taskrun().setup_coop_taskrun().setup_taskrun_flag();
    }
    if config.io_poll {
        builder.setup_iopoll();
    }
    builder.build(config.entries).map_err(|error| {
        let hint = match error.raw_os_error() {
            Some(libc::ENOSYS | libc::EPERM) => {
                "; is io_uring switched off (kernel.io_uring_disabled, a container's seccomp)?"
            }
            Some(libc::ENOMEM) => "; RLIMIT_MEMLOCK may be too low",
            Some(libc::EINVAL) => "; Linux 6.1 or newer is needed",
            _ => "",
        };
        io::Error::new(error.kind(), format!("io_uring with {} entries: {error}{hint}", config.entries))
    })
}

fn enter(uring: &IoUring, want: usize, rest: Duration, timeout: Option<Duration>) -> Result<(), Errno> {
    let submitter = uring.submitter();
    let entered = if uring.params().is_setup_sqpoll() {
        match timeout.filter(|_| want > 0) {
            None => submitter.submit_and_wait(want),
            Some(timeout) => submitter.submit_with_args(want, &SubmitArgs::new().timespec(&timespec(timeout))),
        }
    } else {
        // SAFETY: only this thread moves the tail, so the count is exact; a shared reference to the
        // ring with one user at a time is all that `submission_shared` asks for.
        let queued = unsafe { uring.submission_shared() }.len() as u32;
        // Without GETEVENTS the kernel does not run deferred work.
        let flags = EnterFlags::GETEVENTS;
        let timeout = timeout.or((!rest.is_zero()).then_some(rest::TIMEOUT));
        match timeout.filter(|_| want > 0) {
            None => {
                // SAFETY: no argument is passed; the count is that of the entries in the queue.
                unsafe { submitter.enter::<libc::sigset_t>(queued, want as u32, flags.bits(), None) }
            }
            Some(timeout) => {
                let timespec = timespec(timeout);
                let args = SubmitArgs::new().min_wait_usec(rest.as_micros() as u32).timespec(&timespec);
                let flags = flags | EnterFlags::EXT_ARG;
                // SAFETY: EXT_ARG goes with `SubmitArgs`, which lives through the call.
                unsafe { submitter.enter(queued, want as u32, flags.bits(), Some(&args)) }
            }
        }
    };
    entered.map(drop).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// What the calling thread has used of processors so far.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

fn timespec(timeout: Duration) -> Timespec {
    Timespec::from(timeout)
}

fn outcome(entry: &cqueue::Entry) -> Result<u32, Errno> {
    match entry.result() {
        errno @ ..0 => Err(Errno::from_raw_os_error(-errno)),
        count => Ok(count.cast_unsigned()),
    }
}
