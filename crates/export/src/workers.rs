//! The threads of an export: they have its user and group, and may wait for a disk. Each job that runs is something that the disk is
//! asked for, until it ends or [`goes_on`].

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use diskside_io::unanswered::Asked;
use diskside_sys::schedule::leave_processors;
use diskside_volume::health::Health;

use super::credentials::Credentials;
use super::turns::Turns;

/// Threads of one export at a time. They are started when work waits and none is idle.
pub(super) const THREADS_MAX: usize = 16;
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

/// A job, and the file whose disk it may wait for.
type Job = (Option<u64>, Box<dyn FnOnce() + Send>);

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
    /// Jobs of one file at a time: one that hangs leaves threads to the others.
    of_file_max: usize,
    health: Arc<Health>,
}

#[derive(Default)]
struct State {
    turns: Turns<Whose, Job>,
    /// Jobs that run, by file.
    files: HashMap<u64, usize>,
    threads: usize,
    idle: usize,
    ended: bool,
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
        let (of_file_max, health) = (threads_max.div_ceil(2), Arc::clone(health));
        let queue = Queue { state: Mutex::default(), changed: Condvar::new(), running_max, of_file_max, health };
        let queue = Arc::new(queue);
        let workers = Self { queue, name: name.to_owned(), credentials, threads_max };
        workers.queue.lock().threads += 1;
        let started = workers.spawn()?;
        started.recv().map_err(|_| io::Error::other("the thread ended before it began"))??;
        Ok(workers)
    }

    /// Runs `job` as soon as a thread is free.
    pub(super) fn submit(&self, job: impl FnOnce() + Send + 'static) {
        self.submit_for(Whose::Ours, None, job);
    }

    /// The same, in turns with those of other hosts, and of other files.
    pub(super) fn submit_for(&self, whose: Whose, file: Option<u64>, job: impl FnOnce() + Send + 'static) {
        let mut state = self.queue.lock();
        state.turns.push(whose, (file, Box::new(job)));
        let grow = state.turns.waiting() > state.idle && state.threads < self.threads_max;
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
        self.submit_for(whose, None, move || drop(sender.send(job())));
        receiver.recv().ok()
    }

    /// Starts a thread, which says whether it got its credentials.
    fn spawn(&self) -> io::Result<mpsc::Receiver<io::Result<()>>> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let (queue, credentials) = (Arc::clone(&self.queue), self.credentials.clone());
        let mut name = format!("x-{}", self.name);
        name.truncate(15);
        std::thread::Builder::new().name(name).spawn(move || {
            // A reactor may have started it, which is pinned.
            if let Err(error) = leave_processors(&[]) {
                tracing::debug!(%error, "a thread of an export keeps the processors of the one that started it");
            }
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
            if let Some((whose, (file, job))) = self.next(&mut state) {
                drop(state);
                ASKED.set(Some(self.health.ask(Instant::now())));
                // A job that panics answers through its reply's guard; the thread serves the others.
                let _ = catch_unwind(AssertUnwindSafe(job));
                ASKED.set(None);
                state = self.lock();
                state.ended(whose, file);
                // Another job of its host and another one of its file may have waited for it, and this thread takes one of them.
                self.changed.notify_one();
            } else if state.ended {
                return;
            } else {
                state.idle += 1;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }

    fn next(&self, state: &mut State) -> Option<(Whose, Job)> {
        let State { turns, files, .. } = state;
        let of_file = |file: &Option<u64>| file.and_then(|file| files.get(&file)).copied().unwrap_or(0);
        let next = turns.take(|whose, running, (file, _)| {
            let has_turn = whose == Whose::Ours || running < self.running_max;
            has_turn && of_file(file) < self.of_file_max
        })?;
        if let (_, (Some(file), _)) = next {
            *files.entry(file).or_default() += 1;
        }
        Some(next)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn ended(&mut self, whose: Whose, file: Option<u64>) {
        self.turns.ended(whose);
        if let Some(of_file) = file.and_then(|file| self.files.get_mut(&file)) {
            *of_file -= 1;
            self.files.retain(|_, of_file| *of_file > 0);
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
    use std::time::Duration;

    use super::*;
    use crate::ExportSpec;
    use diskside_volume::health::Below;

    /// The end of a job lets two begin: one of its host, and one of its file. The second of them waited until something else came.
    #[test]
    fn what_waits_for_a_host_and_what_waits_for_a_file_begin_together() {
        let credentials = Credentials::of(&ExportSpec::new("test", "/")).unwrap();
        let health = Arc::new(Health::new(Below::Export, "test"));
        let workers = Workers::start("test", credentials, 8, &health).unwrap();
        let (begins, begun) = mpsc::channel();
        let submit = |whose, file, name: &'static str| {
            let (end, ended) = mpsc::channel::<()>();
            let begins = begins.clone();
            workers.submit_for(Whose::Host(whose), file, move || {
                begins.send(name).unwrap();
                // Its other end is dropped.
                let _ = ended.recv();
            });
            end
        };
        let next = || begun.recv_timeout(Duration::from_secs(20)).expect("a thread is free");
        // A host that has all it may have at a time, a file too, and two threads without work.
        let mut of_file: Vec<_> = (0..4).map(|_| submit(1, Some(7), "file")).collect();
        let others: Vec<_> = (0..2).map(|_| submit(1, None, "other")).collect();
        assert_eq!((0..6).map(|_| next()).filter(|name| *name == "file").count(), 4);
        let waiting = [submit(1, None, "of the host"), submit(2, Some(7), "of the file")];
        assert!(begun.recv_timeout(Duration::from_millis(100)).is_err(), "neither may begin");
        of_file.pop();
        let mut both = [next(), next()];
        both.sort_unstable();
        assert_eq!(both, ["of the file", "of the host"]);
        drop((of_file, others, waiting));
    }
}
