//! Threads that decode groups and compute with them, while the thread that leads puts together what they make of them, in the order
//! of the file. So the result is the same however many there are.
//!
//! No more threads compute at one time than are let, the leader among them: it comes first, and the others let it at the end of the
//! part that they make.
//!
//! They are started before the process gives up starting any, and before anybody knows what it is to scan.

use crate::panics;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::{io, thread};

/// The most threads of a scan, and the address space of the stack of each.
const THREADS_MAX: usize = 8;
const STACK_LEN: usize = 2 << 20;
/// Parts of the group that the leader takes from that are made before it takes them.
const AHEAD: usize = 2;

type Job = Box<dyn FnOnce() + Send>;

/// Threads that wait for work.
pub(crate) struct Crew {
    jobs: Sender<Job>,
    threads: usize,
}

impl Crew {
    /// As many as there are processors, if the system gives so many. They are there when it returns: a process that gives up
    /// calls to the system must not do so while a thread is on its way.
    ///
    /// # Errors
    /// It gives none.
    pub(crate) fn start() -> io::Result<Self> {
        let (jobs, queue) = channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        let wanted = thread::available_parallelism().map_or(1, |count| count.get().min(THREADS_MAX));
        let (ready, all_ready) = sync_channel(wanted);
        let mut threads = 0;
        while threads < wanted {
            let (queue, ready) = (Arc::clone(&queue), ready.clone());
            let run = move || {
                drop(ready);
                work(&queue);
            };
            match thread::Builder::new().name("scan".into()).stack_size(STACK_LEN).spawn(run) {
                Ok(_) => threads += 1,
                Err(error) if threads == 0 => return Err(error),
                Err(_) => break,
            }
        }
        drop(ready);
        // Nothing is sent: it ends when the last one has begun.
        let _: Result<(), _> = all_ready.recv();
        Ok(Self { jobs, threads })
    }

    /// Address space of all stacks. Little of it is ever used.
    pub(crate) fn stacks_len(&self) -> u64 {
        (self.threads * STACK_LEN) as u64
    }
}

fn work(queue: &Mutex<Receiver<Job>>) {
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        job();
    }
}

/// Groups on their way through the crew, in order: `T` is what is made of a part of one, `E` why there is no more.
pub(crate) struct Groups<T, E> {
    crew: Crew,
    turns: Arc<Turns>,
    given: usize,
    in_flight: VecDeque<Receiver<Result<(T, u64), E>>>,
}

/// A group, as the thread has it that works at it.
pub(crate) struct Group {
    turns: Arc<Turns>,
    index: usize,
}

/// Whose turn it is.
struct Turns {
    state: Mutex<State>,
    changed: Condvar,
    /// Bytes that parts may have together while they wait until the groups before them are taken.
    waiting_len_max: u64,
}

#[derive(Default)]
struct State {
    /// How many threads may compute.
    threads: usize,
    /// How many of the crew do.
    computing: usize,
    /// The leader computes, or is about to.
    is_led: bool,
    /// The first group that the leader has not all of, and all behind it.
    first: usize,
    in_flight: VecDeque<Progress>,
    /// The first group that was not begun.
    begun: usize,
    /// Bytes of parts that wait.
    waiting_len: u64,
}

#[derive(Default)]
struct Progress {
    is_done: bool,
    /// Parts that were made and not taken.
    parts: usize,
}

impl<T: Send + 'static, E: Send + 'static> Groups<T, E> {
    pub(crate) fn new(crew: Crew, waiting_len_max: u64) -> Self {
        let state = Mutex::new(State { is_led: true, ..State::default() });
        let turns = Turns { state, changed: Condvar::new(), waiting_len_max };
        Self { crew, turns: Arc::new(turns), given: 0, in_flight: VecDeque::new() }
    }

    /// Lets so many threads work from now on, where there are so many.
    pub(crate) fn let_work(&self, threads: usize) {
        self.turns.lock().threads = threads.min(self.crew.threads);
        self.turns.changed.notify_all();
    }

    /// How many threads work.
    pub(crate) fn threads(&self) -> usize {
        self.turns.lock().threads.max(1)
    }

    /// Gives the next group to the crew. `make` hands over what becomes of it, in parts, each with its length; if it panics,
    /// `panicked` says so.
    pub(crate) fn give(
        &mut self,
        make: impl FnOnce(&Group, &mut dyn FnMut(T, u64) -> bool) -> Result<(), E> + Send + 'static,
        panicked: impl FnOnce(String) -> E + Send + 'static,
    ) {
        let (made, taken) = channel();
        let group = Group { turns: Arc::clone(&self.turns), index: self.given };
        let job = move || {
            group.begins_to_compute();
            let done = panics::caught(|| make(&group, &mut |part, len| group.hand(&made, part, len)));
            let failed = match done {
                Ok(Ok(())) => None,
                Ok(Err(failed)) => Some(failed),
                Err(told) => Some(panicked(told)),
            };
            if let Some(failed) = failed {
                // The leader may have ended.
                let _ = made.send(Err(failed));
            }
            group.is_done();
        };
        self.turns.lock().in_flight.push_back(Progress::default());
        // The crew is there as long as its leader.
        let _ = self.crew.jobs.send(Box::new(job));
        self.given += 1;
        self.in_flight.push_back(taken);
    }

    /// Has the crew compute with all threads that are let while the leader waits for something.
    pub(crate) fn while_leader_waits<R>(&self, wait: impl FnOnce() -> R) -> R {
        self.turns.lock().is_led = false;
        self.turns.changed.notify_all();
        let waited = wait();
        self.turns.lock().is_led = true;
        // Those that compute end their part first.
        drop(self.turns.wait_until(|state| state.computing < state.threads.max(1)));
        waited
    }

    /// The next part of the first group; `None`: the group is at its end, or there is none.
    pub(crate) fn take(&mut self) -> Option<Result<T, E>> {
        let first = self.in_flight.front()?;
        let made = self.while_leader_waits(|| first.recv());
        let mut state = self.turns.lock();
        let taken = match made {
            Ok(Ok((part, len))) => {
                state.waiting_len -= len;
                if let Some(first) = state.in_flight.front_mut() {
                    first.parts -= 1;
                }
                Some(Ok(part))
            }
            Ok(Err(failed)) => Some(Err(failed)),
            Err(_) => {
                self.in_flight.pop_front();
                state.in_flight.pop_front();
                state.first += 1;
                None
            }
        };
        drop(state);
        self.turns.changed.notify_all();
        taken
    }
}

impl Group {
    /// Runs what has to be done of each group in order, before it is done of the next one.
    pub(crate) fn in_order<R>(&self, work: impl FnOnce() -> R) -> R {
        self.ends_to_compute();
        drop(self.turns.wait_until(|state| state.begun == self.index));
        self.begins_to_compute();
        let done = work();
        self.has_begun();
        done
    }

    /// Waits until few enough of the groups before this one are worked at, and few enough threads compute.
    fn begins_to_compute(&self) {
        let mut state = self.turns.wait_until(|state| {
            let before = state.in_flight.iter().take(self.index - state.first);
            let worked_at = before.filter(|group| !group.is_done).count();
            worked_at < state.threads && state.computing + usize::from(state.is_led) < state.threads
        });
        state.computing += 1;
    }

    fn ends_to_compute(&self) {
        self.turns.lock().computing -= 1;
        self.turns.changed.notify_all();
    }

    /// Hands a part to the leader, once there is room for it; false: it takes no more.
    fn hand<T, E>(&self, made: &Sender<Result<(T, u64), E>>, part: T, len: u64) -> bool {
        let has_room = |state: &State| match self.index - state.first {
            0 => state.in_flight[0].parts < AHEAD,
            _ => state.waiting_len + len <= self.turns.waiting_len_max,
        };
        self.ends_to_compute();
        {
            let mut state = self.turns.wait_until(has_room);
            state.waiting_len += len;
            let at = self.index - state.first;
            state.in_flight[at].parts += 1;
        }
        let is_taken = made.send(Ok((part, len))).is_ok();
        // Others may want to compute by now.
        self.begins_to_compute();
        is_taken
    }

    fn has_begun(&self) {
        self.turns.lock().begun = self.index + 1;
        self.turns.changed.notify_all();
    }

    fn is_done(&self) {
        let mut state = self.turns.lock();
        let at = self.index - state.first;
        state.in_flight[at].is_done = true;
        state.computing -= 1;
        // One that failed may not have come to what is done in order.
        if state.begun == self.index {
            state.begun += 1;
        }
        drop(state);
        self.turns.changed.notify_all();
    }
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_until(&self, is_time: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let waits = |state: &mut State| !is_time(state);
        self.changed.wait_while(self.lock(), waits).unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Made = Groups<(usize, usize), String>;

    fn crew(threads: usize) -> Made {
        let groups = Groups::new(Crew::start().unwrap(), 100);
        groups.let_work(threads);
        groups
    }

    /// All parts of all groups, and the first failure.
    fn taken(groups: &mut Made) -> (Vec<(usize, usize)>, Option<String>) {
        let mut all = Vec::new();
        while !groups.in_flight.is_empty() {
            match groups.take() {
                Some(Ok(part)) => all.push(part),
                Some(Err(failed)) => return (all, Some(failed)),
                None => {}
            }
        }
        (all, None)
    }

    #[test]
    fn parts_come_in_the_order_of_their_groups() {
        for threads in [1, 2, THREADS_MAX] {
            let mut groups = crew(threads);
            for group in 0..20 {
                let parts = move |_: &Group, hand: &mut dyn FnMut((usize, usize), u64) -> bool| {
                    (0..5).for_each(|part| assert!(hand((group, part), 7)));
                    Ok(())
                };
                groups.give(parts, |told| told);
            }
            let wanted: Vec<_> = (0..20).flat_map(|group| (0..5).map(move |part| (group, part))).collect();
            assert_eq!(taken(&mut groups), (wanted, None), "{threads} threads");
        }
    }

    /// One thread was let, and the leader computed beside it: a scan had two processors of a server for the one that it was granted.
    #[test]
    fn no_more_compute_than_are_let_and_the_leader_is_one_of_them() {
        use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
        for threads in 1..4 {
            let mut groups = crew(threads);
            let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let compute = {
                let (now, most) = (Arc::clone(&now), Arc::clone(&most));
                move || {
                    most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
                    thread::sleep(std::time::Duration::from_micros(300));
                    now.fetch_sub(1, SeqCst);
                }
            };
            for group in 0..12 {
                let compute = compute.clone();
                let make = move |_: &Group, hand: &mut dyn FnMut((usize, usize), u64) -> bool| {
                    for part in 0..4 {
                        compute();
                        hand((group, part), 1);
                    }
                    Ok(())
                };
                groups.give(make, |told| told);
            }
            let mut parts = 0;
            while !groups.in_flight.is_empty() {
                parts += usize::from(groups.take().is_some());
                compute();
            }
            assert_eq!(parts, 48);
            let (most, threads_max) = (most.load(SeqCst), groups.crew.threads.min(threads));
            assert!(most <= threads_max, "{most} of {threads_max}");
        }
    }

    #[test]
    fn fewer_are_let_while_all_compute() {
        let mut groups = crew(THREADS_MAX);
        for index in 0..40 {
            let make = move |group: &Group, hand: &mut dyn FnMut((usize, usize), u64) -> bool| {
                group.in_order(|| ());
                (0..3).for_each(|part| assert!(hand((index, part), 40)));
                Ok(())
            };
            groups.give(make, |told| told);
        }
        let mut taken = 0;
        while !groups.in_flight.is_empty() {
            groups.let_work(1 + taken * 7 % THREADS_MAX);
            taken += usize::from(groups.take().is_some());
        }
        assert_eq!(taken, 120);
    }

    #[test]
    fn what_is_done_in_order_is_done_in_order_even_where_one_of_them_panics() {
        let (mut groups, order) = (crew(2), Arc::new(Mutex::new(Vec::new())));
        for index in 0..10 {
            let order = Arc::clone(&order);
            let make = move |group: &Group, hand: &mut dyn FnMut((usize, usize), u64) -> bool| {
                group.in_order(|| order.lock().unwrap().push(index));
                hand((index, 0), 1);
                Ok(())
            };
            groups.give(make, |told| told);
        }
        assert_eq!(taken(&mut groups).0.len(), 10);
        assert_eq!(*order.lock().unwrap(), (0..10).collect::<Vec<_>>());
        groups.give(|group, _| group.in_order(|| panic!("a damaged group")), |told| told);
        groups.give(
            |group, hand| {
                group.in_order(|| {
                    hand((11, 0), 1);
                    Ok(())
                })
            },
            |told| told,
        );
        let (_, failed) = taken(&mut groups);
        assert!(failed.unwrap().contains("a damaged group"));
        assert!(groups.take().is_none(), "the failed group is at its end");
        assert_eq!(taken(&mut groups), (vec![(11, 0)], None));
    }
}
