//! The threads that run calls, and the queue before them: hosts in turn, each within its bounds.
//!
//! Threads are started when they are needed and end when they are not. How many of them compute at a time is not
//! decided here but by the gate.

mod queues;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use diskside_io::ownring;
use diskside_sbpf::machine::CancelToken;
use diskside_sys::schedule::{Behind, leave_processors, step_back};
use diskside_wire::function::Class;

use crate::schedule::quota::Bounds;

pub use queues::Queues;

/// Bounds of the calls of one host.
#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    /// Threads.
    pub threads_max: usize,
    /// Calls of one host that run at a time.
    pub host_calls_max: usize,
    /// What they may use while they run.
    pub memory: Bounds,
    /// Calls of one host that wait, and as much work that is prompt.
    pub host_queue_max: usize,
    /// Prompt work of one host at a time, beside its calls.
    pub host_prompt_max: usize,
    /// Threads that calls leave to prompt work.
    pub prompt_threads: usize,
    /// Threads beside those, for calls that wait for their hosts.
    pub parked_max: usize,
}

/// A thread pool with a fair queue.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    inner: Arc<Inner>,
}

struct Inner {
    limits: PoolLimits,
    /// Processors of reactors, which are left to them if there are others.
    reactor_cores: Vec<usize>,
    state: Mutex<State>,
    changed: Condvar,
    /// Work that was given and has not ended: a thread has it, or is to have it.
    working: AtomicUsize,
}

#[derive(Default)]
struct State {
    queues: Queues,
    threads: usize,
    idle: usize,
    stopping: bool,
}

/// Something to run on a thread of the pool.
pub struct Work {
    /// Whose it is.
    pub host: u64,
    /// How it stands to the host's other work.
    pub class: WorkClass,
    /// Bytes that it uses; of prompt work they are not counted.
    pub memory: u64,
    /// Bytes that all running work of its host may use.
    pub memory_max: u64,
    /// Work that is cancelled waits no longer: it only says so.
    pub cancel: Option<CancelToken>,
    /// What to do.
    pub run: Box<dyn FnOnce() + Send>,
}

/// What work waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorkClass {
    /// For none of its host's calls: it takes milliseconds, or has a bound of its own.
    Prompt,
    /// For a place among its host's calls.
    #[default]
    Normal,
    /// For such a place, and until no normal work waits.
    Background,
}

impl From<Class> for WorkClass {
    fn from(class: Class) -> Self {
        match class {
            Class::Normal => Self::Normal,
            Class::Background => Self::Background,
        }
    }
}

impl Pool {
    #[cfg(test)]
    pub(crate) fn new(limits: PoolLimits) -> Self {
        Self::beside(limits, Vec::new())
    }

    /// A pool whose threads leave these processors to the reactors that are pinned to them.
    pub(crate) fn beside(limits: PoolLimits, reactor_cores: Vec<usize>) -> Self {
        let (state, changed, working) = (Mutex::default(), Condvar::new(), AtomicUsize::new(0));
        Self { inner: Arc::new(Inner { limits, reactor_cores, state, changed, working }) }
    }

    /// Queues work. False: the host has too much of it waiting, or the pool is stopping.
    pub(crate) fn submit(&self, mut work: Work) -> bool {
        let (host, cancel) = (work.host, work.cancel.clone());
        if let Some(cancel) = &cancel {
            work = self.watched(work, cancel);
        }
        let mut state = self.inner.lock();
        if state.stopping {
            return false;
        }
        if !state.queues.push(work, &self.inner.limits) {
            return false;
        }
        // Before a thread has it: a reactor that gave it and polls on would keep that thread from its processor.
        self.inner.working.fetch_add(1, Ordering::Relaxed);
        self.inner.find_thread(&mut state);
        drop(state);
        // Before it was in the queue nobody found it there.
        if cancel.is_some_and(|cancel| cancel.is_cancelled()) {
            self.inner.hurry(host);
        }
        true
    }

    /// The work, looked for in the queue when it is cancelled; not any more once it has begun.
    fn watched(&self, work: Work, cancel: &CancelToken) -> Work {
        let (pool, host) = (Arc::downgrade(&self.inner), work.host);
        let watch = cancel.when_cancelled(move || {
            if let Some(pool) = pool.upgrade() {
                pool.hurry(host);
            }
        });
        let Work { run, .. } = work;
        let run = Box::new(move || {
            drop(watch);
            run();
        });
        Work { run, ..work }
    }

    /// Work that was given and has not ended: it computes, or waits for a disk, a host, or a thread.
    pub(crate) fn working(&self) -> usize {
        self.inner.working.load(Ordering::Relaxed)
    }

    /// Calls that wait.
    pub(crate) fn queued(&self) -> usize {
        self.inner.lock().queues.waiting()
    }

    /// Calls of a host that wait, and bytes that those of its which run may use.
    pub(crate) fn of_host(&self, host: u64) -> (usize, u64) {
        self.inner.lock().queues.of_host(host)
    }

    /// Bytes that calls which run may use.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.inner.lock().queues.memory_bytes()
    }

    /// Gives a call that runs more memory than it came with. False: its host may not have it now.
    pub(crate) fn grow(&self, host: u64, bytes: u64) -> bool {
        self.inner.lock().queues.grow(host, bytes, &self.inner.limits)
    }

    /// Takes back what a call was given more.
    pub(crate) fn shrink(&self, host: u64, bytes: u64) {
        self.inner.lock().queues.shrink(host, bytes);
        self.inner.changed.notify_one();
    }

    /// A call that runs waits for its host: its thread is not counted until [`unpark`](Self::unpark).
    pub(crate) fn park(&self) {
        let mut state = self.inner.lock();
        state.queues.park();
        if state.queues.waiting() > 0 {
            self.inner.find_thread(&mut state);
        }
    }

    /// A call that was parked continues.
    pub(crate) fn unpark(&self) {
        self.inner.lock().queues.unpark();
    }

    /// Whether a call of another host than this waits for a thread or for memory that others have.
    pub(crate) fn stands_still(&self, host: u64) -> bool {
        self.inner.lock().queues.stands_still(host, &self.inner.limits)
    }

    /// Takes no more work; drops what waits, and returns when what runs has ended, or waits for a disk that hangs.
    pub(crate) fn stop(&self) {
        let mut state = self.inner.lock();
        state.stopping = true;
        let dropped = state.queues.clear();
        self.inner.working.fetch_sub(dropped.len(), Ordering::Relaxed);
        self.inner.changed.notify_all();
        let until = Instant::now() + STOP_MAX;
        while state.threads > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                tracing::warn!(calls = state.threads, "calls wait for disks that have not answered, and are given up");
                break;
            }
            state = self.inner.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(state);
        drop(dropped);
    }
}

impl Inner {
    /// Work of a host was cancelled.
    fn hurry(self: &Arc<Self>, host: u64) {
        let mut state = self.lock();
        if state.queues.hurry(host) {
            self.find_thread(&mut state);
        }
    }

    /// A thread for work that waits. An idle one may have been woken already for work that came just before, so a
    /// thread that takes some looks for a thread for the rest.
    fn find_thread(self: &Arc<Self>, state: &mut State) {
        if state.idle > 0 {
            self.changed.notify_one();
        } else if state.threads < self.limits.threads_max + state.queues.parked(&self.limits) {
            self.start_thread(state);
        }
    }

    fn start_thread(self: &Arc<Self>, state: &mut State) {
        let inner = Arc::clone(self);
        let started = std::thread::Builder::new().name("engine".into()).spawn(move || {
            // A reactor may have started it, which is pinned.
            if let Err(error) = leave_processors(&inner.reactor_cores) {
                tracing::debug!(%error, "an engine keeps the processors of the thread that started it");
            }
            // Reactors come first: a command of a host must not wait until a function has used up its time slice.
            if let Err(error) = step_back(Behind::Answers) {
                tracing::debug!(%error, "an engine keeps its scheduling policy and priority");
            }
            ownring::land_at_end();
            inner.serve();
        });
        match started {
            Ok(_) => state.threads += 1,
            // Another thread will take the work when it is done with its own.
            Err(error) if state.threads > 0 => tracing::warn!(%error, "an engine's thread could not be started"),
            Err(error) => tracing::error!(%error, "no engine's thread could be started; calls wait"),
        }
    }

    fn serve(self: &Arc<Self>) {
        let mut idle = Duration::ZERO;
        let mut state = self.lock();
        loop {
            if let Some(work) = state.queues.next(&self.limits) {
                let (host, class, memory) = (work.host, work.class, work.memory);
                if state.queues.waiting() > 0 {
                    self.find_thread(&mut state);
                }
                drop(state);
                // A panic may leave the work's own state broken; the pool's state is not touched meanwhile.
                let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work.run));
                if ran.is_err() {
                    tracing::error!("an engine's thread panicked in a call");
                }
                self.working.fetch_sub(1, Ordering::Relaxed);
                hear_of_late();
                state = self.lock();
                state.queues.done(host, class, memory);
                // Another host's call, or the next of this one, may wait for its memory.
                self.changed.notify_one();
                continue;
            }
            if state.stopping {
                break;
            }
            state.idle += 1;
            let most = if ownring::has_late() { LATE_LOOK } else { IDLE };
            let (next, timeout) = self.changed.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner);
            state = next;
            state.idle -= 1;
            if !timeout.timed_out() {
                idle = Duration::ZERO;
                continue;
            }
            hear_of_late();
            idle += most;
            if idle >= IDLE && state.queues.waiting() == 0 {
                break;
            }
        }
        state.threads -= 1;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("threads", &self.lock().threads).finish_non_exhaustive()
    }
}

/// Takes what disks have answered of the reads that calls of this thread left. Nobody waits for it, but who looks at the disks has to
/// hear of it.
fn hear_of_late() {
    if ownring::has_late() {
        ownring::look();
    }
}

/// How long calls have to end that are stopped. They look many times a second whether they are.
const STOP_MAX: Duration = Duration::from_secs(5);
/// How long a thread waits for work before it ends.
const IDLE: Duration = Duration::from_secs(10);
/// How often a thread that waits for work looks for answers that come late.
const LATE_LOOK: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use diskside_sys::schedule;
    use std::sync::mpsc;

    impl Pool {
        /// One with three threads for calls, for tests.
        pub(crate) fn of_three() -> Self {
            Self::new(limits())
        }
    }

    fn limits() -> PoolLimits {
        PoolLimits {
            threads_max: 4,
            host_calls_max: 2,
            memory: Bounds { host_max: 100, total_max: 1000 },
            host_queue_max: 8,
            host_prompt_max: 1,
            prompt_threads: 1,
            parked_max: 4,
        }
    }

    /// Work of host 1.
    fn normal(run: Box<dyn FnOnce() + Send>) -> Work {
        Work { host: 1, class: WorkClass::Normal, memory: 1, memory_max: u64::MAX, cancel: None, run }
    }

    #[test]
    fn work_runs_and_a_stop_waits_for_it() {
        let pool = Pool::new(limits());
        let (sender, receiver) = mpsc::channel();
        for index in 0..6 {
            let sender = sender.clone();
            let run = Box::new(move || {
                assert!(index != 3, "one call panics on purpose");
                sender.send(index).unwrap();
            });
            assert!(pool.submit(Work {
                host: index % 2,
                class: WorkClass::Normal,
                memory: 1,
                memory_max: u64::MAX,
                cancel: None,
                run
            }));
        }
        drop(sender);
        let mut ran: Vec<u64> = receiver.iter().collect();
        ran.sort_unstable();
        assert_eq!(ran, [0, 1, 2, 4, 5]);
        pool.stop();
        assert!(!pool.submit(Work {
            host: 0,
            class: WorkClass::Normal,
            memory: 1,
            memory_max: u64::MAX,
            cancel: None,
            run: Box::new(|| {})
        }));
    }

    /// Two calls came at once while one thread was idle: it was woken for both, took one that did not end, and the
    /// other waited for it although there was room for more threads.
    #[test]
    fn work_that_comes_at_once_does_not_wait_for_one_thread() {
        for _ in 0..50 {
            let pool = Pool::new(limits());
            let idle = || pool.inner.lock().idle;
            assert!(pool.submit(normal(Box::new(|| {}))));
            while idle() == 0 || pool.working() > 0 {
                std::thread::yield_now();
            }
            let (begin, begun) = mpsc::channel();
            let held: Vec<_> = (0..2).map(|_| mpsc::channel::<()>()).collect();
            let (holds, held): (Vec<_>, Vec<_>) = held.into_iter().unzip();
            for held in held {
                let begin = begin.clone();
                assert!(pool.submit(normal(Box::new(move || {
                    begin.send(()).expect("it is heard");
                    assert!(held.recv().is_err(), "held until the end");
                }))));
            }
            for _ in 0..2 {
                begun.recv_timeout(Duration::from_secs(60)).expect("both run side by side");
            }
            drop(holds);
            pool.stop();
        }
    }

    /// A reactor that had given a call to an engine went on polling, on the engine's own processor, until its time slice ended.
    #[test]
    fn work_counts_from_when_it_is_given_to_its_end() {
        let pool = Pool::new(limits());
        let (hold, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        for given in 1..=6 {
            let held = Arc::clone(&held);
            let run = Box::new(move || assert!(held.lock().unwrap().recv().is_err(), "held until the end"));
            // Two run, the others wait for these.
            assert!(pool.submit(normal(run)));
            assert_eq!(pool.working(), given);
        }
        drop(hold);
        while pool.working() > 0 {
            std::thread::yield_now();
        }
        pool.stop();
    }

    #[test]
    fn engines_step_back_behind_reactors() {
        let own = || (schedule::policy().unwrap(), schedule::nice());
        let (before, pool, (sender, receiver)) = (own(), Pool::new(limits()), mpsc::channel());
        let run = Box::new(move || sender.send(own()).unwrap());
        assert!(pool.submit(normal(run)));
        let (policy, nice) = receiver.recv().unwrap();
        assert_eq!(policy, before.0);
        assert_eq!(nice, before.1.max(Behind::Answers.nice()));
        pool.stop();
        assert_eq!(own(), before, "the thread that submits is no engine");
    }

    /// Once a host's sixteen long calls kept its own Identify waiting for as long as they liked.
    #[test]
    fn prompt_work_waits_for_no_call() {
        let pool = Pool::new(limits());
        let (hold, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        // As many calls as threads, of several hosts.
        for host in 0..4 {
            let held = Arc::clone(&held);
            let run = Box::new(move || assert!(held.lock().unwrap().recv().is_err(), "held until the end"));
            assert!(pool.submit(Work {
                host,
                class: WorkClass::Normal,
                memory: 1,
                memory_max: u64::MAX,
                cancel: None,
                run
            }));
        }
        let (sender, receiver) = mpsc::channel();
        for host in 0..4 {
            let sender = sender.clone();
            let run = Box::new(move || sender.send(host).unwrap());
            assert!(pool.submit(Work {
                host,
                class: WorkClass::Prompt,
                memory: 1 << 40,
                memory_max: u64::MAX,
                cancel: None,
                run
            }));
        }
        drop(sender);
        let mut ran: Vec<u64> = receiver.iter().collect();
        ran.sort_unstable();
        assert_eq!(ran, [0, 1, 2, 3]);
        drop(hold);
        pool.stop();
    }

    /// Calls whose hosts did not read their results had all threads: everybody else's waited for a minute.
    #[test]
    fn calls_that_wait_for_their_hosts_take_no_thread_from_others() {
        let pool = Pool::new(limits());
        let (parked, is_parked) = mpsc::channel();
        let (hold, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let submit = |host: u64, run: Box<dyn FnOnce() + Send>| {
            assert!(pool.submit(Work {
                host,
                class: WorkClass::Normal,
                memory: 1,
                memory_max: u64::MAX,
                cancel: None,
                run
            }));
        };
        // Three are for calls, one for what is prompt; four more for those that wait.
        for host in 0..7 {
            let (pool, parked, held) = (pool.clone(), parked.clone(), Arc::clone(&held));
            let run = move || {
                pool.park();
                parked.send(host).unwrap();
                assert!(held.lock().unwrap().recv().is_err(), "held until the end");
                pool.unpark();
            };
            submit(host, Box::new(run));
        }
        let mut waiting: Vec<u64> = is_parked.iter().take(7).collect();
        waiting.sort_unstable();
        assert_eq!(waiting, [0, 1, 2, 3, 4, 5, 6]);
        // Now there are no more threads.
        assert!(!pool.stands_still(7));
        let (sender, receiver) = mpsc::channel();
        submit(7, Box::new(move || sender.send(()).unwrap()));
        assert!(pool.stands_still(0), "a call of another host waits");
        assert!(!pool.stands_still(7), "one's own calls do not count");
        drop(hold);
        receiver.recv().unwrap();
        pool.stop();
    }

    /// A call that was cancelled while others of its host had all places, or all memory, ended when one of these did: three scans whose
    /// results nobody read kept one that was cancelled for as long as they stood still.
    #[test]
    fn a_call_that_is_cancelled_waits_for_no_place() {
        let pool = Pool::new(limits());
        let work = |memory, cancel, run: Box<dyn FnOnce() + Send>| {
            let (host, class, memory_max) = (1, WorkClass::Normal, u64::MAX);
            assert!(pool.submit(Work { host, class, memory, memory_max, cancel, run }));
        };
        let (end, ends) = mpsc::channel::<()>();
        work(60, None, Box::new(move || assert!(ends.recv().is_err())));
        let (cancels, (sender, receiver)) = ([CancelToken::new(), CancelToken::new()], mpsc::channel());
        for (number, cancel) in cancels.iter().enumerate() {
            let sender = sender.clone();
            work(60, Some(cancel.clone()), Box::new(move || sender.send(number).unwrap()));
        }
        cancels[1].cancel();
        assert_eq!(receiver.recv_timeout(Duration::from_secs(20)), Ok(1));
        // One that was cancelled before it came waits as little.
        work(60, Some(cancels[1].clone()), Box::new(move || sender.send(2).unwrap()));
        assert_eq!(receiver.recv_timeout(Duration::from_secs(20)), Ok(2));
        assert!(receiver.try_recv().is_err(), "the other waits for memory");
        drop(end);
        assert_eq!(receiver.recv_timeout(Duration::from_secs(20)), Ok(0));
        pool.stop();
    }

    #[test]
    fn a_host_cannot_queue_without_end() {
        let pool = Pool::new(PoolLimits { host_queue_max: 2, threads_max: 2, ..limits() });
        let (hold, held) = mpsc::channel::<()>();
        let work = |run: Box<dyn FnOnce() + Send>| Work {
            host: 1,
            class: WorkClass::Normal,
            memory: 1,
            memory_max: u64::MAX,
            cancel: None,
            run,
        };
        assert!(pool.submit(work(Box::new(move || assert!(held.recv().is_err(), "held until the end")))));
        while pool.queued() > 0 {
            std::thread::yield_now();
        }
        assert!(pool.submit(work(Box::new(|| {}))) && pool.submit(work(Box::new(|| {}))));
        assert!(!pool.submit(work(Box::new(|| {}))));
        drop(hold);
        pool.stop();
    }
}
