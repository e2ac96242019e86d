//! Verifies and compiles programs behind the calls that run: it takes milliseconds that nothing interrupts, and calls of other
//! hosts come first.
//!
//! Each job has a thread of its own with a lower priority than engines have, while the call that needs it waits. A few jobs run at a
//! time. A free place goes to the waiting host that has compiled for the least time, and what a job took is charged to its host as if
//! a function had computed for so long. A job that has not begun when its call ends is not done.
//!
//! A kernel lets a thread of low priority run seldom, but then until its next tick, which calls that take a millisecond notice. So
//! while functions of other hosts run, a host that has had many programs compiled waits before the next one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use diskside_engine::Compiler;
use diskside_sys::schedule::{Behind, processor_time, step_back};

use crate::schedule::permits::{Gate, Turn};
use crate::schedule::pool::Pool;

/// Threads that verify and compile at a time.
const AT_ONCE_MAX: usize = 2;
/// How much a host can have compiled at once, and its part of the time beyond that while functions of others run.
const BURST: Duration = Duration::from_millis(100);
const PART: u32 = 30;
/// Functions of another host run if it asked for an engine so lately.
const LATELY: Duration = Duration::from_millis(100);
/// How often a host that waits looks whether they still do.
const LOOK: Duration = Duration::from_millis(5);
/// Hosts whose time is remembered.
const HOSTS_KEPT: usize = 1024;

#[derive(Debug)]
pub(crate) struct Compilers {
    places: Gate,
    /// Where hosts are charged.
    engines: Arc<Gate>,
    /// Whose threads wait here.
    pool: Pool,
    taken: Mutex<Taken>,
}

/// A thread of the pool that waits, in whose place the pool may have another one: the calls of some hosts, each with a program of
/// its own to compile, would otherwise have all threads.
struct Waits<'a>(&'a Pool);

impl<'a> Waits<'a> {
    fn of(pool: &'a Pool) -> Self {
        pool.park();
        Self(pool)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.unpark();
    }
}

/// The compiler time of hosts, which decays by a part of the time that passes.
#[derive(Debug, Default)]
struct Taken(HashMap<u64, (Duration, Instant)>);

impl Taken {
    fn of(&self, host: u64, now: Instant) -> Duration {
        let left = |(taken, at): &(Duration, Instant)| taken.saturating_sub(now.saturating_duration_since(*at) / PART);
        self.0.get(&host).map(left).unwrap_or_default()
    }

    fn add(&mut self, host: u64, now: Instant, took: Duration) {
        if self.0.len() >= HOSTS_KEPT {
            let all = std::mem::take(self);
            self.0 = all
                .0
                .iter()
                .filter(|(host, _)| !all.of(**host, now).is_zero())
                .map(|(host, it)| (*host, *it))
                .collect();
        }
        let taken = self.of(host, now) + took;
        self.0.insert(host, (taken, now));
    }
}

impl Compilers {
    pub(crate) fn new(engines: &Arc<Gate>, pool: &Pool) -> Self {
        let (places, engines, pool) = (Gate::new(AT_ONCE_MAX), Arc::clone(engines), pool.clone());
        Self { places, engines, pool, taken: Mutex::default() }
    }

    /// The result of work that verifies a program. `None`: it was not done, because nobody wants it any more.
    pub(crate) fn verify<T: Send>(&self, turn: &Turn, work: impl FnOnce() -> T + Send) -> Option<T> {
        let (mut work, mut result) = (Some(work), None);
        self.run(turn, Compiler::Quick, &mut || result = work.take().map(|work| work()));
        result
    }

    /// Runs the work of a compiler to its end. False: it was not done, because nobody wants it any more.
    pub(crate) fn run(&self, turn: &Turn, compiler: Compiler, work: &mut (dyn FnMut() + Send)) -> bool {
        let place = match compiler {
            // A program of its own, on the one thread that waits for such programs.
            Compiler::Thorough => None,
            Compiler::Quick => {
                let waits = (!self.is_free_for(turn)).then(|| Waits::of(&self.pool));
                if !self.await_others(turn) {
                    return false;
                }
                let Some(place) = self.places.enter(turn) else { return false };
                drop(waits);
                Some(place)
            }
        };
        let took = on_a_thread_behind_calls(compiler, work);
        drop(place);
        self.engines.charge(turn, took);
        self.taken().add(turn.host, Instant::now(), took);
        true
    }

    /// Whether a job of the host would begin at once.
    fn is_free_for(&self, turn: &Turn) -> bool {
        self.places.busy() < AT_ONCE_MAX && !self.is_turn_of_others(turn, Instant::now())
    }

    /// Whether functions of others run and the host has had its part.
    fn is_turn_of_others(&self, turn: &Turn, now: Instant) -> bool {
        self.taken().of(turn.host, now) > BURST
            && self.engines.others_asked_since(turn.host, now.checked_sub(LATELY).unwrap_or(now))
    }

    /// Waits while functions of others run and the host has had its part. False: nobody wants the job any more.
    fn await_others(&self, turn: &Turn) -> bool {
        loop {
            let now = Instant::now();
            if turn.cancel.is_cancelled() || now >= turn.until {
                return false;
            }
            if !self.is_turn_of_others(turn, now) {
                return true;
            }
            std::thread::sleep(LOOK);
        }
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives the processor time of the work; that of a program that it waits for is at most the time until it ended.
fn on_a_thread_behind_calls(compiler: Compiler, work: &mut (dyn FnMut() + Send)) -> Duration {
    let mut timed = || {
        let (begun, used) = (Instant::now(), processor_time());
        work();
        if compiler == Compiler::Thorough { begun.elapsed() } else { processor_time().saturating_sub(used) }
    };
    let run = || {
        if let Err(error) = step_back(Behind::Calls) {
            tracing::debug!(%error, "a thread that compiles keeps its scheduling policy and priority");
        }
        timed()
    };
    let ended = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("prepare".into()).spawn_scoped(scope, run).ok()?;
        Some(thread.join())
    });
    match ended {
        Some(Ok(took)) => took,
        Some(Err(panic)) => std::panic::resume_unwind(panic),
        // The process may have no more threads: the thread that needs the result does it.
        None => timed(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::pool::{Work, WorkClass};
    use diskside_rights::CPU_SHARE;
    use diskside_sbpf::machine::CancelToken;
    use diskside_sys::schedule;
    use diskside_wire::function::Class;
    use std::sync::mpsc;

    fn turn(host: u64) -> Turn {
        let until = Instant::now() + Duration::from_secs(3600);
        Turn { host, cpu_share: CPU_SHARE, class: Class::Normal, cancel: CancelToken::new(), until }
    }

    fn compilers() -> Compilers {
        of(&Arc::new(Gate::new(1)))
    }

    fn of(engines: &Arc<Gate>) -> Compilers {
        Compilers::new(engines, &Pool::of_three())
    }

    fn compute_for(time: Duration) {
        let begun = processor_time();
        while processor_time() - begun < time {
            std::hint::spin_loop();
        }
    }

    /// A host that had one program after the other compiled had half of the processors, in time slices of milliseconds.
    #[test]
    fn jobs_run_behind_engines_and_their_panics_come_back() {
        let compilers = compilers();
        let before = (schedule::policy().unwrap(), schedule::nice());
        let during = compilers.verify(&turn(1), || (schedule::policy().unwrap(), schedule::nice()));
        assert_eq!(during, Some((Some(schedule::Policy::Batch), Behind::Calls.nice().max(before.1))));
        assert_eq!((schedule::policy().unwrap(), schedule::nice()), before, "the thread that waits keeps its own");
        let panic = || compilers.verify(&turn(1), || panic!("on purpose"));
        let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(panic));
        assert_eq!(panics.unwrap_err().downcast_ref(), Some(&"on purpose"));
        assert_eq!(compilers.places.busy(), 0, "its place is free again");
    }

    /// The load of a host with one program waited for the hundred loads of another, which had come first.
    #[test]
    fn the_host_that_has_compiled_least_is_next() {
        let compilers = compilers();
        let (sender, receiver) = mpsc::channel();
        let (begin, wait) = mpsc::channel::<()>();
        let (compilers, wait) = (&compilers, &Mutex::new(wait));
        std::thread::scope(|scope| {
            for _ in 0..AT_ONCE_MAX {
                scope.spawn(move || compilers.verify(&turn(1), || wait.lock().unwrap().recv().unwrap()));
            }
            await_until(|| compilers.places.busy() == AT_ONCE_MAX);
            for (waiting, host) in [1, 1, 1, 1, 2].into_iter().enumerate() {
                let sender = sender.clone();
                scope.spawn(move || compilers.verify(&turn(host), || sender.send(host).unwrap()));
                await_until(|| compilers.places.waiting() == waiting + 1);
            }
            std::thread::sleep(Duration::from_millis(2));
            // One place becomes free, so that one job runs at a time.
            begin.send(()).unwrap();
            let order: Vec<_> = receiver.iter().take(5).collect();
            assert_eq!(order, [2, 1, 1, 1, 1]);
            (1..AT_ONCE_MAX).for_each(|_| begin.send(()).unwrap());
        });
    }

    fn await_until(what: impl Fn() -> bool) {
        let begun = Instant::now();
        while !what() {
            assert!(begun.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A host that did nothing but have programs compiled had all engines as often as a host that had computed nothing.
    #[test]
    fn a_host_is_charged_for_what_it_has_compiled() {
        let engines = Arc::new(Gate::new(1));
        let compilers = of(&engines);
        // While somebody else is there: times of hosts that nobody competes with are forgotten.
        let other = engines.enter(&turn(2)).unwrap();
        compilers.verify(&turn(1), || compute_for(Duration::from_millis(20)));
        let charged = engines.used(1).unwrap();
        assert!(charged >= Duration::from_millis(20), "{charged:?}");
        drop(other);
    }

    /// Calls of a millisecond waited for a tick of the kernel, four of them, as often as another host had programs compiled.
    #[test]
    fn a_host_has_its_part_of_the_time_while_functions_of_others_run() {
        let (mut taken, now) = (Taken::default(), Instant::now());
        taken.add(1, now, 3 * BURST);
        assert_eq!((taken.of(1, now), taken.of(2, now)), (3 * BURST, Duration::ZERO));
        assert_eq!(taken.of(1, now + PART * BURST), 2 * BURST);
        taken.add(1, now + PART * BURST, BURST);
        assert_eq!(taken.of(1, now + 4 * PART * BURST), Duration::ZERO);

        let compilers = compilers();
        compilers.taken().add(1, Instant::now(), Duration::from_secs(3600));
        assert!(compilers.verify(&turn(1), || ()).is_some(), "nobody else computes");
        let other = compilers.engines.enter(&turn(2)).unwrap();
        let soon = Turn { until: Instant::now() + 4 * LOOK, ..turn(1) };
        assert!(compilers.verify(&soon, || ()).is_none(), "it has had its part");
        assert!(compilers.verify(&turn(2), || ()).is_some() && compilers.verify(&turn(3), || ()).is_some());
        drop(other);
        assert!(compilers.verify(&turn(1), || ()).is_some(), "the other host has computed for the last time");
    }

    #[test]
    fn hosts_without_end_take_no_memory() {
        let (mut taken, now) = (Taken::default(), Instant::now());
        for host in 0..4 * HOSTS_KEPT as u64 {
            taken.add(host, now + host as u32 * LOOK, LOOK / 100);
        }
        assert!(taken.0.len() <= HOSTS_KEPT, "{}", taken.0.len());
    }

    /// The calls of some hosts, each with a program of its own, had all threads until these were compiled one after the other.
    #[test]
    fn a_thread_that_waits_for_a_compiler_makes_room_for_another() {
        let (compilers, cancel) = (Arc::new(compilers()), CancelToken::new());
        let _other = compilers.engines.enter(&turn(2)).unwrap();
        let submit = |host, run: Box<dyn FnOnce() + Send>| {
            let (class, memory, memory_max) = (WorkClass::Normal, 1, u64::MAX);
            assert!(compilers.pool.submit(Work { host, class, memory, memory_max, cancel: None, run }));
        };
        for host in [1, 3, 4] {
            compilers.taken().add(host, Instant::now(), Duration::from_secs(3600));
            let (compilers, turn) = (Arc::clone(&compilers), Turn { cancel: cancel.clone(), ..turn(host) });
            submit(host, Box::new(move || assert!(compilers.verify(&turn, || ()).is_none())));
        }
        let (sender, receiver) = mpsc::channel();
        submit(2, Box::new(move || sender.send(()).unwrap()));
        receiver.recv_timeout(Duration::from_secs(20)).expect("the other host has a thread");
        cancel.cancel();
        compilers.pool.stop();
    }

    /// Compilers worked on for hosts that had left.
    #[test]
    fn a_job_that_nobody_wants_any_more_does_not_begin() {
        let compilers = compilers();
        let (begin, wait) = mpsc::channel::<()>();
        let (compilers, wait) = (&compilers, &Mutex::new(wait));
        std::thread::scope(|scope| {
            for _ in 0..AT_ONCE_MAX {
                scope.spawn(move || compilers.verify(&turn(1), || wait.lock().unwrap().recv().unwrap()));
            }
            await_until(|| compilers.places.busy() == AT_ONCE_MAX);
            let left = turn(2);
            let cancel = left.cancel.clone();
            let job = scope.spawn(move || compilers.verify(&left, || unreachable!("it is not done")));
            await_until(|| compilers.places.waiting() == 1);
            cancel.cancel();
            assert_eq!(job.join().unwrap(), None);
            (0..AT_ONCE_MAX).for_each(|_| begin.send(()).unwrap());
        });
    }
}
