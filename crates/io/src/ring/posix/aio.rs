//! Reads and writes past the page cache (`O_DIRECT`) by the kernel's older asynchronous interface, `io_submit(2)`. Container engines
//! allow it, and no thread waits for the disk.
//!
//! The kernel is told not to wait while it begins one (`RWF_NOWAIT`). A [thread](super::workers) does those that it refuses then, such as a
//! write that has to allocate, and those that there is no room for.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::super::driver::DROP_WAIT_MAX;
use super::super::op::{Op, TRANSFER_BYTES_MAX};
use super::workers::{Done, Job};
use crate::slab::{Key, Slab};

/// Operations of one ring that are with the kernel at a time. Others go to threads, so a disk that hangs does not keep them all.
const OPERATIONS_MAX: usize = 128;

/// A context of the kernel, and the operations that it has.
pub(super) struct Aio {
    context: libc::c_ulong,
    /// Signalled at the end of each operation.
    bell: OwnedFd,
    jobs: Slab<Job>,
    /// To be submitted.
    queued: Vec<Key>,
}

/// What became of operations.
#[derive(Default)]
pub(super) struct Ends {
    /// They are over.
    pub(super) done: Vec<Done>,
    /// The kernel would have waited: for threads.
    pub(super) refused: Vec<Job>,
}

impl Aio {
    /// A context of the calling process. Fails where the kernel has none, denies it, or has no more for anybody (`fs.aio-max-nr`).
    pub(super) fn new() -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes the context's number, which is as long as that of a `long`, and zero before.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, OPERATIONS_MAX as libc::c_uint, &raw mut context) };
        if made < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { context, bell, jobs: Slab::with_capacity(0), queued: Vec::new() })
    }

    /// What is readable whenever an operation has ended.
    pub(super) fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    /// Operations that have not ended.
    pub(super) fn in_flight(&self) -> usize {
        self.jobs.len()
    }

    /// Takes a read or a write, to be submitted with others. Gives it back if there is no room.
    pub(super) fn push(&mut self, job: Job) -> Result<(), Job> {
        if self.jobs.len() >= OPERATIONS_MAX {
            return Err(job);
        }
        let key = self.jobs.insert(job);
        self.queued.push(key);
        Ok(())
    }

    /// Hands everything to the kernel that was pushed; gives back what it does not take.
    pub(super) fn submit(&mut self) -> Vec<Job> {
        let queued = std::mem::take(&mut self.queued);
        let bell = self.bell.as_raw_fd();
        let blocks = queued.iter().map(|key| block(*key, self.jobs.get_mut(*key).expect("it was pushed"), bell));
        let mut blocks: Vec<libc::iocb> = blocks.collect();
        let blocks: Vec<*mut libc::iocb> = blocks.iter_mut().map(std::ptr::from_mut).collect();
        let (mut at, mut refused) = (0, Vec::new());
        while at < blocks.len() {
            let rest = &blocks[at..];
            // SAFETY: the kernel copies the blocks. They point to memory of jobs, which stay until their events have come.
            let taken =
                unsafe { libc::syscall(libc::SYS_io_submit, self.context, rest.len() as libc::c_long, rest.as_ptr()) };
            if taken > 0 {
                at += taken as usize;
            } else if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                // The first of them is refused; a thread finds out why.
                refused.extend(self.jobs.remove(queued[at]));
                at += 1;
            }
        }
        refused
    }

    /// What has ended, without waiting.
    pub(super) fn take_ended(&mut self) -> Ends {
        let mut ends = Ends::default();
        while self.jobs.len() > self.queued.len() && self.take_some(&mut ends, None) == EVENTS_MAX {}
        ends
    }

    /// Takes some ends, the first of which it waits for if it may. Says how many.
    fn take_some(&mut self, ends: &mut Ends, wait: Option<Duration>) -> usize {
        let mut events = [Event::default(); EVENTS_MAX];
        let (least, most) = (libc::c_long::from(wait.is_some()), EVENTS_MAX as libc::c_long);
        let wait = wait.unwrap_or_default();
        let mut timeout =
            libc::timespec { tv_sec: wait.as_secs() as libc::time_t, tv_nsec: wait.subsec_nanos().into() };
        // SAFETY: there is room for so many events, and the time lives through the call.
        let found = unsafe {
            libc::syscall(libc::SYS_io_getevents, self.context, least, most, events.as_mut_ptr(), &raw mut timeout)
        };
        let found = usize::try_from(found).unwrap_or(0);
        for event in &events[..found] {
            let Some(job) = self.jobs.remove(Key::from_bits(event.data)) else { continue };
            match job.ended(event.outcome) {
                Ok(done) => ends.done.push(done),
                Err(job) => ends.refused.push(job),
            }
        }
        found
    }
}

impl Drop for Aio {
    /// Waits for what cannot be cancelled, but not for ever: then it is left to the kernel, with its memory.
    fn drop(&mut self) {
        for key in std::mem::take(&mut self.queued) {
            self.jobs.remove(key);
        }
        let deadline = Instant::now() + DROP_WAIT_MAX;
        while self.jobs.len() > 0
            && let left = deadline.saturating_duration_since(Instant::now())
            && !left.is_zero()
        {
            self.take_some(&mut Ends::default(), Some(left));
        }
        if self.jobs.len() > 0 {
            return self.jobs.drain().for_each(std::mem::forget);
        }
        // SAFETY: a number, of a context without operations, which is not used again.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

impl Job {
    /// It has ended, or is for a thread.
    fn ended(self, outcome: i64) -> Result<Done, Self> {
        let result = match u32::try_from(outcome) {
            Ok(moved) => Ok(moved),
            Err(_) => Err(Errno::from_raw_os_error(i32::try_from(-outcome).unwrap_or(libc::EIO))),
        };
        match result {
            Err(Errno::AGAIN | Errno::OPNOTSUPP) => Err(self),
            result => Ok(Done { id: self.id, op: self.op, result }),
        }
    }
}

/// What tells the kernel of an operation.
fn block(key: Key, job: &mut Job, bell: libc::c_int) -> libc::iocb {
    // SAFETY: zero is a value of every field.
    let mut block: libc::iocb = unsafe { std::mem::zeroed() };
    block.aio_data = key.to_bits();
    block.aio_rw_flags = libc::RWF_NOWAIT;
    block.aio_flags = RESULT_DESCRIPTOR;
    block.aio_resfd = bell.cast_unsigned();
    let (file, offset, bytes) = match &mut job.op {
        Op::Read { file, offset, buffer, range } => {
            block.aio_lio_opcode = READ;
            (file, *offset, &mut buffer[range.clone()])
        }
        Op::Write { file, offset, buffer, range, durable } => {
            block.aio_lio_opcode = WRITE;
            block.aio_rw_flags |= if *durable { libc::RWF_DSYNC } else { 0 };
            (file, *offset, &mut buffer[range.clone()])
        }
        other => unreachable!("{other:?} is neither a read nor a write"),
    };
    block.aio_fildes = file.as_raw_fd().cast_unsigned();
    block.aio_buf = bytes.as_mut_ptr().addr() as u64;
    block.aio_nbytes = bytes.len().min(TRANSFER_BYTES_MAX) as u64;
    block.aio_offset = offset.cast_signed();
    block
}

/// `struct io_event` of `linux/aio_abi.h`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    object: u64,
    outcome: i64,
    outcome_more: i64,
}

/// `IOCB_CMD_PREAD`, `IOCB_CMD_PWRITE` and `IOCB_FLAG_RESFD` of the same.
const READ: u16 = 0;
const WRITE: u16 = 1;
const RESULT_DESCRIPTOR: u32 = 1;
/// Ends that one call takes; more are there for the next.
const EVENTS_MAX: usize = 32;
