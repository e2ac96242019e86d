//! The threads of an export: they have its user and group, and may wait for a disk.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::credentials::Credentials;

/// Threads of one export at a time. They are started when work waits and none is idle.
pub(super) const THREADS_MAX: usize = 8;
/// The same of an export of a store: its threads wait for a network, many of them at no cost.
pub(super) const STORE_THREADS_MAX: usize = 64;

thread_local! {
    /// The address of the queue that this thread serves.
    static WORKS_FOR: Cell<usize> = const { Cell::new(0) };
}

type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs as the export's user. Dropping it ends the threads, after the jobs that are queued.
pub(super) struct Workers {
    queue: Arc<Queue>,
    name: String,
    credentials: Credentials,
    threads_max: usize,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    ended: bool,
}

impl Workers {
    /// Starts the first thread, and so learns whether the credentials can be taken on.
    pub(super) fn start(name: &str, credentials: Credentials, threads_max: usize) -> io::Result<Self> {
        let workers = Self { queue: Arc::default(), name: name.to_owned(), credentials, threads_max };
        workers.queue.lock().threads += 1;
        let started = workers.spawn()?;
        started.recv().map_err(|_| io::Error::other("the thread ended before it began"))??;
        Ok(workers)
    }

    /// Runs `job` as soon as a thread is free.
    pub(super) fn submit(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.queue.lock();
        state.jobs.push_back(Box::new(job));
        let grow = state.jobs.len() > state.idle && state.threads < self.threads_max;
        if grow {
            state.threads += 1;
        }
        drop(state);
        self.queue.changed.notify_one();
        if grow && let Err(error) = self.spawn() {
            // The first thread is there and does the work.
            tracing::warn!(export = self.name, %error, "cannot start one more thread");
            self.queue.lock().threads -= 1;
        }
    }

    /// The same; on one of these threads it is done at once.
    pub(super) fn soon(&self, job: impl FnOnce() + Send + 'static) {
        if WORKS_FOR.get() == Arc::as_ptr(&self.queue).addr() { job() } else { self.submit(job) }
    }

    /// Whether what any thread of this process writes is written as these threads would.
    pub(super) fn writes_as_process(&self) -> bool {
        self.credentials.are_process()
    }

    /// Runs `job` and waits for what it gives. `None` if it panicked.
    pub(super) fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.submit(move || drop(sender.send(job())));
        receiver.recv().ok()
    }

    /// Starts a thread, which says whether it got its credentials.
    fn spawn(&self) -> io::Result<mpsc::Receiver<io::Result<()>>> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let (queue, credentials) = (Arc::clone(&self.queue), self.credentials.clone());
        let mut name = format!("x-{}", self.name);
        name.truncate(15);
        std::thread::Builder::new().name(name).spawn(move || {
            let taken = credentials.take_on();
            let fine = taken.is_ok();
            // Only the first thread is waited for.
            drop(sender.send(taken));
            if fine {
                WORKS_FOR.set(Arc::as_ptr(&queue).addr());
                queue.work();
            }
            queue.lock().threads -= 1;
        })?;
        Ok(receiver)
    }
}

impl Queue {
    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                // A job that panics answers through its reply's guard; the thread serves the others.
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = self.lock();
            } else if state.ended {
                return;
            } else {
                state.idle += 1;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.queue.lock().ended = true;
        self.queue.changed.notify_all();
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").field("credentials", &self.credentials).finish_non_exhaustive()
    }
}
