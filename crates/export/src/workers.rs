//! The threads of an export: they have its user and group, and may wait for a disk. Each job that runs is something that the disk is
//! asked for, until it ends or [`goes_on`].

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use diskside_io::unanswered::Asked;
use diskside_volume::health::Health;

use super::credentials::Credentials;

/// Threads of one export at a time. They are started when work waits and none is idle.
pub(super) const THREADS_MAX: usize = 8;
/// The same of an export of a store: its threads wait for a network, many of them at no cost.
pub(super) const STORE_THREADS_MAX: usize = 64;

thread_local! {
    /// The address of the queue that this thread serves.
    static WORKS_FOR: Cell<usize> = const { Cell::new(0) };
    /// What its job has asked the disk for.
    static ASKED: RefCell<Option<Asked>> = const { RefCell::new(None) };
}

/// The job of this thread takes its time, and that is not the disk's: it has answered so far.
pub(super) fn goes_on() {
    ASKED.with_borrow(|asked| {
        if let Some(asked) = asked {
            asked.goes_on(Instant::now());
        }
    });
}

type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs as the export's user. Dropping it ends the threads, after the jobs that are queued.
pub(super) struct Workers {
    queue: Arc<Queue>,
    name: String,
    credentials: Credentials,
    threads_max: usize,
}

struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    /// Jobs of one host at a time: others find a thread without waiting for any of them.
    running_max: usize,
    health: Arc<Health>,
}

#[derive(Default)]
struct State {
    /// The one that was served last is last. One without jobs that wait or run is not there.
    hosts: Vec<Jobs>,
    threads: usize,
    idle: usize,
    ended: bool,
}

/// The jobs of one host.
struct Jobs {
    whose: Whose,
    waiting: VecDeque<Job>,
    running: usize,
}

/// For whom a job is, which hosts take turns with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// A host, by a number of its own.
    Host(usize),
    /// The server itself, and calls that have begun, which are bounded.
    Ours,
}

impl Workers {
    /// Starts the first thread, and so learns whether the credentials can be taken on.
    pub(super) fn start(
        name: &str,
        credentials: Credentials,
        threads_max: usize,
        health: &Arc<Health>,
    ) -> io::Result<Self> {
        let running_max = threads_max.saturating_sub(threads_max / 4).max(1);
        let health = Arc::clone(health);
        let queue = Arc::new(Queue { state: Mutex::default(), changed: Condvar::new(), running_max, health });
        let workers = Self { queue, name: name.to_owned(), credentials, threads_max };
        workers.queue.lock().threads += 1;
        let started = workers.spawn()?;
        started.recv().map_err(|_| io::Error::other("the thread ended before it began"))??;
        Ok(workers)
    }

    /// Runs `job` as soon as a thread is free.
    pub(super) fn submit(&self, job: impl FnOnce() + Send + 'static) {
        self.submit_for(Whose::Ours, job);
    }

    /// The same, in turns with those of other hosts.
    pub(super) fn submit_for(&self, whose: Whose, job: impl FnOnce() + Send + 'static) {
        let mut state = self.queue.lock();
        state.push(whose, Box::new(job));
        let waiting: usize = state.hosts.iter().map(|jobs| jobs.waiting.len()).sum();
        let grow = waiting > state.idle && state.threads < self.threads_max;
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
        self.run_for(Whose::Ours, job)
    }

    /// The same, in turns with those of other hosts.
    pub(super) fn run_for<T: Send + 'static>(
        &self,
        whose: Whose,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.submit_for(whose, move || drop(sender.send(job())));
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
            if let Some((whose, job)) = state.take(self.running_max) {
                drop(state);
                ASKED.set(Some(self.health.ask(Instant::now())));
                // A job that panics answers through its reply's guard; the thread serves the others.
                let _ = catch_unwind(AssertUnwindSafe(job));
                ASKED.set(None);
                state = self.lock();
                state.ended(whose);
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

impl State {
    fn push(&mut self, whose: Whose, job: Job) {
        match self.hosts.iter_mut().find(|jobs| jobs.whose == whose) {
            Some(jobs) => jobs.waiting.push_back(job),
            None => self.hosts.push(Jobs { whose, waiting: VecDeque::from([job]), running: 0 }),
        }
    }

    /// The next job: of the host that has the fewest running, and of several the one that was served longest ago.
    fn take(&mut self, running_max: usize) -> Option<(Whose, Job)> {
        let may_run = |jobs: &Jobs| {
            let max = if jobs.whose == Whose::Ours { usize::MAX } else { running_max };
            !jobs.waiting.is_empty() && jobs.running < max
        };
        let waiting = self.hosts.iter().enumerate().filter(|(_, jobs)| may_run(jobs));
        let (at, _) = waiting.min_by_key(|(at, jobs)| (jobs.running, *at))?;
        let mut jobs = self.hosts.remove(at);
        let job = jobs.waiting.pop_front()?;
        jobs.running += 1;
        let whose = jobs.whose;
        self.hosts.push(jobs);
        Some((whose, job))
    }

    fn ended(&mut self, whose: Whose) {
        let Some(at) = self.hosts.iter().position(|jobs| jobs.whose == whose) else { return };
        self.hosts[at].running -= 1;
        if self.hosts[at].running == 0 && self.hosts[at].waiting.is_empty() {
            self.hosts.remove(at);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn order(state: &mut State, running_max: usize) -> Vec<Whose> {
        std::iter::from_fn(|| state.take(running_max).map(|(whose, _)| whose)).collect()
    }

    /// All hosts shared one queue: who asked for hundreds of searches kept every other host's lookup waiting for half a minute.
    #[test]
    fn hosts_take_turns_and_one_leaves_threads_to_others() {
        let (greedy, other) = (Whose::Host(1), Whose::Host(2));
        let mut state = State::default();
        for _ in 0..100 {
            state.push(greedy, Box::new(|| ()));
        }
        assert_eq!(order(&mut state, 6), [greedy; 6], "the rest waits, and two threads are left");
        state.push(other, Box::new(|| ()));
        assert_eq!(order(&mut state, 6), [other]);
        for _ in 0..2 {
            state.push(other, Box::new(|| ()));
            state.ended(greedy);
        }
        assert_eq!(order(&mut state, 6), [other, other, greedy, greedy]);
        (0..6).for_each(|_| state.ended(greedy));
        (0..3).for_each(|_| state.ended(other));
        let (left, running) = (&state.hosts[0].waiting, state.hosts[0].running);
        assert_eq!((state.hosts.len(), left.len(), running), (1, 92, 0), "who has nothing to do is forgotten");
    }
}
