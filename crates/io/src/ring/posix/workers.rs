//! Threads that do what may block: reads of what is not cached, writes, and what makes them durable.
//!
//! They are made when there is something for them, and end when there is nothing for a while. An operation is moved into
//! its thread and back, so that a ring can go while a disk still keeps a thread.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::{Errno, ReadWriteFlags};

use super::super::driver::DROP_WAIT_MAX;
use super::super::op::{Op, TRANSFER_BYTES_MAX};
use super::super::waker::Waker;

/// As many operations of one ring may be with disks at once. One file may have three quarters of the threads that others leave, so that a
/// disk that hangs does not keep them all.
const THREADS_MAX: usize = 32;
/// A thread without work ends after this long.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// The threads of one ring.
pub(crate) struct Workers {
    shared: Arc<Shared>,
}

/// What a thread does.
pub(crate) struct Job {
    /// Names it among its ring's.
    pub(crate) id: u64,
    pub(crate) op: Op,
    /// Bytes of it that were moved before.
    pub(crate) moved: usize,
    /// Whether it has an offset: not of pipes, sockets and terminals.
    pub(crate) is_positioned: bool,
}

/// What a thread has done.
pub(crate) struct Done {
    pub(crate) id: u64,
    pub(crate) op: Op,
    pub(crate) result: Result<u32, Errno>,
}

struct Shared {
    state: Mutex<State>,
    /// There is a job, or the end.
    work: Condvar,
    /// A job is done, or a thread has ended.
    news: Condvar,
    /// Whether `done` has something. Changed only under the lock.
    has_done: AtomicBool,
    /// The ring's thread sleeps on this, if it sleeps on a ring.
    bell: Option<Waker>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    /// The number of threads that each file has now.
    busy: HashMap<usize, usize>,
    done: Vec<Done>,
    threads: usize,
    /// The number of threads that wait for a job.
    idle: usize,
    stopping: bool,
}

impl Workers {
    /// No threads yet. `bell` wakes who takes what is done, if it does not [wait](Self::wait) for it here.
    pub(crate) fn new(bell: Option<Waker>) -> Self {
        let (work, news, has_done) = (Condvar::new(), Condvar::new(), AtomicBool::new(false));
        Self { shared: Arc::new(Shared { state: Mutex::default(), work, news, has_done, bell }) }
    }

    /// Has a thread do a job. Where no thread can be made, this one does it.
    pub(crate) fn push(&self, job: Job) {
        let mut state = self.shared.lock();
        state.queue.push_back(job);
        // It may be another's turn although jobs wait that came before.
        self.shared.work.notify_one();
        if state.queue.len() <= state.idle {
            return;
        }
        if state.threads < THREADS_MAX {
            state.threads += 1;
            let shared = Arc::clone(&self.shared);
            let spawned = std::thread::Builder::new().name("io-file".into()).spawn(move || shared.work());
            state.threads -= usize::from(spawned.is_err());
        }
        while state.threads == 0
            && let Some(job) = state.queue.pop_front()
        {
            state.done.push(job.run());
            self.shared.tell();
        }
    }

    /// Takes a job back that no thread has begun.
    pub(crate) fn cancel(&self, id: u64) -> Option<Op> {
        let mut state = self.shared.lock();
        let at = state.queue.iter().position(|job| job.id == id)?;
        state.queue.remove(at).map(|job| job.op)
    }

    /// Whether something is done and not taken.
    pub(crate) fn has_done(&self) -> bool {
        self.shared.has_done.load(Ordering::SeqCst)
    }

    /// What was done since the last call.
    pub(crate) fn take_done(&self) -> Vec<Done> {
        if !self.has_done() {
            return Vec::new();
        }
        let mut state = self.shared.lock();
        // Under the lock, as it is set: a thread that told of more in between would leave it set with nothing done, and the next
        // one would wake nobody.
        self.shared.has_done.store(false, Ordering::SeqCst);
        std::mem::take(&mut state.done)
    }

    /// Sleeps until something is done, for so long at most.
    pub(crate) fn wait(&self, timeout: Duration) {
        let state = self.shared.lock();
        let waited = self.shared.news.wait_timeout_while(state, timeout, |state| state.done.is_empty());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Workers {
    /// Waits for what cannot be cancelled, but not for ever: a thread owns what it works on.
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.stopping = true;
        let unbegun = std::mem::take(&mut state.queue);
        self.shared.work.notify_all();
        let deadline = Instant::now() + DROP_WAIT_MAX;
        while state.threads > 0
            && let left = deadline.saturating_duration_since(Instant::now())
            && !left.is_zero()
        {
            state = self.shared.news.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let done = std::mem::take(&mut state.done);
        drop(state);
        drop((unbegun, done));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread: one job after the other.
    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.next_job() {
                drop(state);
                let file = job.file();
                let done = job.run();
                state = self.lock();
                state.give_back(file);
                state.done.push(done);
                self.tell();
            } else if state.stopping {
                break;
            } else {
                state.idle += 1;
                let (woken, waited) = self.work.wait_timeout(state, IDLE_MAX).unwrap_or_else(PoisonError::into_inner);
                state = woken;
                state.idle -= 1;
                if waited.timed_out() && state.queue.is_empty() {
                    break;
                }
            }
        }
        state.threads -= 1;
        self.news.notify_all();
    }

    /// Says that something is done, to who takes it.
    fn tell(&self) {
        // Anyone who found it unset before has rung the bell.
        if self.has_done.swap(true, Ordering::SeqCst) {
            return;
        }
        match &self.bell {
            Some(bell) => bell.nudge(),
            None => self.news.notify_all(),
        }
    }
}

impl State {
    /// The first job whose file may have one more thread.
    fn next_job(&mut self) -> Option<Job> {
        let running: usize = self.busy.values().sum();
        let may_run = |job: &Job| {
            let own = self.busy.get(&job.file()).copied().unwrap_or(0);
            own < ((THREADS_MAX - (running - own)) * 3 / 4).max(1)
        };
        let at = self.queue.iter().position(may_run)?;
        let job = self.queue.remove(at)?;
        *self.busy.entry(job.file()).or_default() += 1;
        Some(job)
    }

    /// A job of this file is done.
    fn give_back(&mut self, file: usize) {
        if let Some(busy) = self.busy.get_mut(&file) {
            *busy -= 1;
            if *busy == 0 {
                self.busy.remove(&file);
            }
        }
    }
}

impl Job {
    /// Tells its file from others that are open.
    fn file(&self) -> usize {
        match &self.op {
            Op::Read { file, .. } | Op::Write { file, .. } | Op::Sync { file, .. } | Op::Allocate { file, .. } => {
                Arc::as_ptr(file).addr()
            }
            _ => 0,
        }
    }

    fn run(mut self) -> Done {
        let result = loop {
            match self.call() {
                Err(Errno::INTR) => {}
                // A part that was moved before an error is there; who asks for the rest learns of the error.
                Err(_) if self.moved > 0 => break Ok(0),
                other => break other,
            }
        };
        let result = result.map(|moved| (self.moved + moved) as u32);
        Done { id: self.id, op: self.op, result }
    }

    fn call(&mut self) -> Result<usize, Errno> {
        match &mut self.op {
            Op::Read { file, offset, buffer, range } => {
                let wanted = &mut buffer[range.clone()];
                let len = wanted.len().min(TRANSFER_BYTES_MAX);
                let rest = &mut wanted[self.moved..len];
                if self.is_positioned {
                    match rustix::io::pread(&*file, &mut *rest, offset.saturating_add(self.moved as u64)) {
                        // Nobody has looked whether it has positions.
                        Err(Errno::SPIPE) => {}
                        other => return other,
                    }
                }
                rustix::io::read(file, rest)
            }
            Op::Write { file, offset, buffer, range, durable } => {
                let bytes = &buffer[range.clone()];
                let bytes = &bytes[..bytes.len().min(TRANSFER_BYTES_MAX)];
                if self.is_positioned {
                    let written = match *durable {
                        true => write_durably(file, bytes, *offset),
                        false => rustix::io::pwrite(&*file, bytes, *offset),
                    };
                    match written {
                        Err(Errno::SPIPE) => {}
                        other => return other,
                    }
                }
                rustix::io::write(file, bytes)
            }
            Op::Sync { file, data_only: true } => rustix::fs::fdatasync(file).map(|()| 0),
            Op::Sync { file, data_only: false } => rustix::fs::fsync(file).map(|()| 0),
            Op::Allocate { file, flags, offset, len } => rustix::fs::fallocate(file, *flags, *offset, *len).map(|()| 0),
            _ => Ok(0),
        }
    }
}

fn write_durably(file: &std::os::fd::OwnedFd, bytes: &[u8], offset: u64) -> Result<usize, Errno> {
    let pieces = [std::io::IoSlice::new(bytes)];
    match rustix::io::pwritev2(file, &pieces, offset, ReadWriteFlags::DSYNC) {
        Err(Errno::NOSYS | Errno::OPNOTSUPP) => {
            let written = rustix::io::pwrite(file, bytes, offset)?;
            rustix::fs::fdatasync(file)?;
            Ok(written)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffer;

    fn job(id: u64, file: std::fs::File) -> Job {
        let op = Op::Read { file: Arc::new(file.into()), offset: 0, buffer: Buffer::zeroed(4), range: 0..4 };
        Job { id, op, moved: 0, is_positioned: true }
    }

    #[test]
    fn what_no_thread_has_begun_is_taken_back() {
        let workers = Workers::new(None);
        // As if all threads were kept by a disk.
        workers.shared.lock().threads = THREADS_MAX;
        workers.push(job(1, tempfile::tempfile().unwrap()));
        workers.push(job(2, tempfile::tempfile().unwrap()));
        assert!(matches!(workers.cancel(1), Some(Op::Read { .. })));
        assert!(workers.cancel(1).is_none() && workers.cancel(3).is_none());
        workers.shared.lock().threads = 0;
        workers.push(job(3, tempfile::tempfile().unwrap()));
        let mut done = Vec::new();
        while done.len() < 2 {
            workers.wait(Duration::from_secs(10));
            done.extend(workers.take_done().into_iter().map(|done| (done.id, done.result)));
        }
        done.sort_by_key(|(id, _)| *id);
        assert_eq!(done, [(2, Ok(0)), (3, Ok(0))]);
    }

    /// All threads of a ring were one disk's that hung, and operations of every other file waited until it went on.
    #[test]
    fn a_file_that_hangs_leaves_threads_to_others() {
        let workers = Workers::new(None);
        let (end, start) = rustix::pipe::pipe().unwrap();
        let hanging = Arc::new(end);
        for id in 0..100 {
            let op = Op::Read { file: Arc::clone(&hanging), offset: 0, buffer: Buffer::zeroed(4), range: 0..4 };
            workers.push(Job { id, op, moved: 0, is_positioned: false });
        }
        workers.push(job(100, tempfile::tempfile().unwrap()));
        let mut done = Vec::new();
        let began = Instant::now();
        while done.is_empty() && began.elapsed() < Duration::from_secs(60) {
            workers.wait(Duration::from_secs(1));
            done.extend(workers.take_done().into_iter().map(|done| done.id));
        }
        assert_eq!(done, [100]);
        // The others come to their end.
        drop(start);
        while done.len() < 101 {
            workers.wait(Duration::from_secs(10));
            done.extend(workers.take_done().into_iter().map(|done| done.id));
        }
    }

    /// `has_done` was cleared before the lock was taken. A thread that finished in between set it again, its work was taken with the
    /// rest, and the flag stayed set with nothing done: the next thread to finish told nobody, and the waiter slept ten seconds.
    #[test]
    fn who_finishes_while_done_work_is_taken_leaves_no_flag_behind() {
        let workers = Workers::new(None);
        let done = |id| job(id, tempfile::tempfile().unwrap()).run();
        let mut state = workers.shared.lock();
        state.done.push(done(1));
        workers.shared.tell();
        let (tell_thread, thread) = std::sync::mpsc::channel();
        let taken = std::thread::scope(|scope| {
            let taker = scope.spawn(|| {
                tell_thread.send(rustix::thread::gettid()).unwrap();
                workers.take_done()
            });
            wait_until_asleep(thread.recv().unwrap());
            // The taker waits for the lock now.
            state.done.push(done(2));
            workers.shared.tell();
            drop(state);
            taker.join().unwrap()
        });
        assert_eq!(taken.iter().map(|done| done.id).collect::<Vec<_>>(), [1, 2]);
        assert!(!workers.has_done(), "the next thread that finishes would tell nobody");
    }

    /// Waits until a thread of this process sleeps: until it waits for a lock, if it does nothing else.
    fn wait_until_asleep(thread: rustix::thread::Pid) {
        let path = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
        let state = || std::fs::read_to_string(&path).unwrap().rsplit(") ").next().unwrap().chars().next();
        while state() != Some('S') {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_disk_that_never_answers_does_not_keep_a_ring_for_ever() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let workers = Workers::new(None);
        workers.push(job(1, reader.into()));
        let begun = || workers.shared.lock().queue.is_empty();
        while !begun() {
            std::thread::yield_now();
        }
        let started = Instant::now();
        drop(workers);
        assert!((DROP_WAIT_MAX..4 * DROP_WAIT_MAX).contains(&started.elapsed()));
        // The thread owns its operation: it ends when the answer comes.
        assert_eq!(rustix::io::write(&writer, b"late"), Ok(4));
    }
}
