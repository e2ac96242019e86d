//! Rings over an io_uring.

use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::register::Restriction;
use io_uring::types::{CancelBuilder, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;

use super::config::{OpId, RingConfig};
use super::driver::{DROP_WAIT_MAX, Driver};
use super::files::Files;
use super::interface::{NEEDED, VARIABLE, explained};
use super::op::{self, Completion, Held, Op, Payload};
use super::provided::{Group, GroupId};
use super::rest;
use super::waker::Waker;
use crate::buffer::Arena;
use crate::slab::{Key, Slab};

/// Marks completions that nobody waits for.
const NOBODY: u64 = u64::MAX;

/// What is kept of an operation while it is in flight.
pub(super) struct InFlight {
    pub(super) token: u64,
    pub(super) held: Held,
}

/// One io_uring and its operations in flight.
pub(super) struct Uring {
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
    sq_polls: bool,
    io_polls: bool,
    enters: u64,
    completions: u64,
}

impl Uring {
    pub(super) fn new(config: &RingConfig, waker: Waker) -> io::Result<Self> {
        Ok(Self {
            uring: ManuallyDrop::new(make(config, true)?),
            slots: ManuallyDrop::new(Slab::with_capacity(config.entries as usize)),
            groups: ManuallyDrop::default(),
            arena: None,
            files: Files::default(),
            backlog: VecDeque::new(),
            ready: VecDeque::new(),
            waker,
            listening: false,
            sq_polls: config.sq_poll.is_some(),
            io_polls: config.io_poll,
            enters: 0,
            completions: 0,
        })
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
                    Payload::Received(self.groups[group.index()].received(index, len))
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

    fn push_with(&mut self, token: u64, op: Op, flags: squeue::Flags) -> OpId {
        let (entry, held) = op.prepare(self.arena.as_ref(), &self.files);
        let key = self.slots.insert(InFlight { token, held });
        self.enqueue(entry.flags(flags).user_data(key.to_bits()));
        OpId(key)
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
            || (!queue.is_empty() && !self.sq_polls)
            || !self.backlog.is_empty()
            || (self.sq_polls && queue.need_wakeup())
    }

    /// Hands everything pushed to the kernel, runs deferred work and waits for `want` completions.
    fn enter(&mut self, want: usize, rest: Duration, timeout: Option<Duration>) -> io::Result<()> {
        loop {
            self.reap();
            self.fill();
            // Completions that are already reaped, or do not fit yet, must not wait for others.
            let want = if self.ready.is_empty() && self.backlog.is_empty() { want } else { 0 };
            self.enters += 1;
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
        self.completions += (self.ready.len() - before) as u64;
    }

    /// Cancels everything and waits until the kernel has released all memory; false if it did not in time.
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

impl Driver for Uring {
    fn push(&mut self, token: u64, op: Op) -> OpId {
        self.push_with(token, op, squeue::Flags::empty())
    }

    fn push_to_worker(&mut self, token: u64, op: Op) -> OpId {
        self.push_with(token, op, squeue::Flags::ASYNC)
    }

    fn cancel(&mut self, id: OpId) {
        if self.slots.get(id.0).is_some() {
            self.enqueue(opcode::AsyncCancel::new(id.0.to_bits()).build().user_data(NOBODY));
        }
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - usize::from(self.listening)
    }

    fn provide(&mut self, buffers: u16, len_bytes: usize) -> io::Result<GroupId> {
        let id = GroupId::at(self.groups.len());
        let group = Group::register(&self.uring, id, buffers, len_bytes)?;
        self.groups.push(group);
        Ok(id)
    }

    fn register(&mut self, arena: &Arena) -> io::Result<()> {
        let iov_base = arena.address().as_ptr().cast();
        let pieces = [libc::iovec { iov_base, iov_len: arena.len_bytes() }];
        // SAFETY: the piece is the arena's memory. The kernel takes references of its own to the pages; operations name
        // addresses in it only through buffers that they own, which keep the arena alive.
        unsafe { self.uring.submitter().register_buffers(&pieces)? };
        self.arena = Some(arena.clone());
        Ok(())
    }

    fn register_file(&mut self, file: &Arc<OwnedFd>) -> bool {
        self.files.add(&self.uring, file)
    }

    fn is_registered(&self, file: &OwnedFd) -> bool {
        self.files.place(file).is_some()
    }

    fn unregister_file(&mut self, file: &OwnedFd) {
        self.files.remove(&self.uring, file);
    }

    fn submit(&mut self) -> io::Result<()> {
        self.enter(0, Duration::ZERO, None)
    }

    fn look(&mut self) -> io::Result<bool> {
        let entered = self.wants_enter();
        if entered {
            self.enter(0, Duration::ZERO, None)?;
        }
        self.reap();
        Ok(entered)
    }

    fn has_completions(&mut self) -> bool {
        self.reap();
        !self.ready.is_empty()
    }

    fn listen(&mut self) {
        if !self.listening {
            let (entry, held) = Held::counter_read(self.waker.eventfd().clone());
            let key = self.slots.insert(InFlight { token: NOBODY, held });
            self.listening = true;
            self.enqueue(entry.user_data(key.to_bits()));
        }
    }

    fn can_rest(&self) -> bool {
        !self.sq_polls && !self.io_polls && self.uring.params().is_feature_min_timeout()
    }

    fn sleep(&mut self, rest: Duration, timeout: Option<Duration>) -> io::Result<()> {
        let want = if rest.is_zero() { 1 } else { rest::COMPLETIONS };
        self.enter(want, rest, timeout)
    }

    fn next_completion(&mut self) -> Option<Completion> {
        loop {
            let entry = self.ready.pop_front()?;
            if let Some(completion) = self.complete(&entry) {
                return Some(completion);
            }
        }
    }

    fn counts(&self) -> (u64, u64) {
        (self.enters, self.completions)
    }
}

impl AsFd for Uring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring is open for as long as `self` is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.uring.as_raw_fd()) }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
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
pub(super) fn build(config: &RingConfig, one_thread: bool) -> io::Result<IoUring> {
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
    let uring = builder.setup_r_disabled().build(config.entries)?;
    // By default the kernel has four a processor, and a disk that hangs keeps its own. Where it has no such bound there is none to raise.
    let _ = uring.submitter().register_iowq_max_workers(&mut [WORKERS_MAX, 0]);
    restrict(&uring)?;
    uring.submitter().register_enable_rings()?;
    Ok(uring)
}

/// Threads of the kernel for what a ring's own thread must not wait for, such as flushes of files; they are made when they are needed.
/// So many that disks that hang keep only their own: a volume or an export has at most 16.
const WORKERS_MAX: u32 = 512;

/// Has the kernel refuse every operation and registration that rings here have no use for, for the life of the ring.
fn restrict(uring: &IoUring) -> io::Result<()> {
    let operations = NEEDED.iter().map(|(_, code)| Restriction::sqe_op(*code));
    let registrations = REGISTRATIONS.iter().map(|code| Restriction::register_op(*code));
    let flags = squeue::Flags::FIXED_FILE | squeue::Flags::BUFFER_SELECT | squeue::Flags::ASYNC;
    let flags = Restriction::sqe_flags_allowed(flags.bits());
    let mut all: Vec<_> = operations.chain(registrations).chain([flags]).collect();
    uring.submitter().register_restrictions(&mut all)
}

/// The registrations that rings make, by the kernel's numbers (`io_uring_register(2)`): buffers (0), changes of files
/// (6), a probe (8), files (13), rings of buffers (22), and cancellation at their end (24).
const REGISTRATIONS: [u8; 6] = [0, 6, 8, 13, 22, 24];

/// As [`build`], with an error that explains itself.
pub(super) fn make(config: &RingConfig, one_thread: bool) -> io::Result<IoUring> {
    build(config, one_thread).map_err(|error| {
        let explained = explained(&format!("io_uring with {} entries", config.entries), &error);
        match error.kind() {
            // Other rings, also of the user's other processes, took what the limit allows since the interface was chosen.
            io::ErrorKind::OutOfMemory => {
                io::Error::new(error.kind(), format!("{explained}; {VARIABLE}=posix does without io_uring"))
            }
            _ => explained,
        }
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

fn timespec(timeout: Duration) -> Timespec {
    Timespec::from(timeout)
}

pub(super) fn outcome(entry: &cqueue::Entry) -> Result<u32, Errno> {
    match entry.result() {
        errno @ ..0 => Err(Errno::from_raw_os_error(-errno)),
        count => Ok(count.cast_unsigned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A filter of system calls does not see the operations of a ring: an attacker who took over a server could have opened files
    /// by its rings. The test tried one of the forbidden operations, and said nothing where there is no io_uring; now it tries all
    /// that the kernel has.
    #[test]
    fn a_ring_takes_no_operation_but_its_own() {
        let one_thread = RingConfig { entries: 4, spin: Duration::ZERO, ..RingConfig::default() };
        let kernel_thread = RingConfig { sq_poll: Some(Duration::from_millis(10)), ..one_thread.clone() };
        for config in [one_thread, kernel_thread] {
            let mut uring = match build(&config, true) {
                Ok(uring) => uring,
                Err(error) => return eprintln!("not tested: there is no io_uring here: {error}"),
            };
            let mut known = io_uring::Probe::new();
            uring.submitter().register_probe(&mut known).unwrap();
            let forbidden = |code: &u8| known.is_supported(*code) && NEEDED.iter().all(|(_, needed)| needed != code);
            let forbidden: Vec<u8> = (0..=u8::MAX).filter(forbidden).collect();
            let open = opcode::OpenAt::CODE;
            assert!(forbidden.contains(&open) && forbidden.contains(&opcode::Socket::CODE), "{forbidden:?}");
            for code in forbidden {
                assert_eq!(result(&mut uring, &operation(code)), -libc::EACCES, "operation {code}");
            }
            assert_eq!(result(&mut uring, &operation(opcode::Nop::CODE)), 0);
            let linked = opcode::Nop::new().build().flags(squeue::Flags::IO_LINK);
            assert_eq!(result(&mut uring, &linked), -libc::EACCES);
            // The registrations of Linux 6.1, which later ones also have.
            for code in (0..=24).filter(|code| !REGISTRATIONS.contains(code)) {
                let (nothing, fd, number) = (std::ptr::null::<u8>(), uring.as_raw_fd(), u32::from(code));
                // SAFETY: the kernel reads no memory of this process at a null pointer.
                let done = unsafe { libc::syscall(libc::SYS_io_uring_register, fd, number, nothing, 0) };
                let error = io::Error::last_os_error().raw_os_error();
                assert_eq!((done, error), (-1, Some(libc::EACCES)), "registration {code}");
            }
        }
    }

    /// An operation whose fields are zero.
    fn operation(code: u8) -> squeue::Entry {
        let mut entry = opcode::Nop::new().build();
        // SAFETY: an entry is the kernel's `io_uring_sqe`, whose first byte is the code.
        unsafe { std::ptr::from_mut(&mut entry).cast::<u8>().write(code) };
        entry
    }

    fn result(uring: &mut IoUring, entry: &squeue::Entry) -> i32 {
        // SAFETY: the entry refers to no memory.
        unsafe { uring.submission().push(entry) }.unwrap();
        uring.submit_and_wait(1).unwrap();
        uring.completion().next().unwrap().result()
    }
}
