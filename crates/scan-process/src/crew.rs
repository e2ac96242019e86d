//! Threads that decode groups and compute with them, while the thread that leads puts together what they make of them, in the order
//! of the file. So the result is the same however many there are.
//!
//! They are started before the process gives up starting any, and before anybody knows what it is to scan.

use crate::panics;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::{io, thread};

/// The most threads of a scan.
const THREADS_MAX: usize = 8;
/// What a thread may make of a group before the leader takes it.
const MADE_MAX: usize = 1;

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
            match thread::Builder::new().name("scan".into()).spawn(run) {
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
    flying: VecDeque<Receiver<Result<T, E>>>,
}

/// Says how a group goes.
pub(crate) struct Group {
    turns: Arc<Turns>,
    index: usize,
}

/// Which groups it is the turn of.
#[derive(Default)]
struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The first group that the leader has not all of.
    first: usize,
    /// So many groups from that one on may be worked at.
    threads: usize,
    /// The first group that was not begun.
    begun: usize,
}

impl<T: Send + 'static, E: Send + 'static> Groups<T, E> {
    pub(crate) fn new(crew: Crew) -> Self {
        Self { crew, turns: Arc::default(), given: 0, flying: VecDeque::new() }
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

    /// Gives the next group to the crew. `make` says what becomes of it, in parts; if it panics, `panicked` says so.
    pub(crate) fn give(
        &mut self,
        make: impl FnOnce(&Group, &mut dyn FnMut(T) -> bool) -> Result<(), E> + Send + 'static,
        panicked: impl FnOnce(String) -> E + Send + 'static,
    ) {
        let (made, taken) = sync_channel(MADE_MAX);
        let group = Group { turns: Arc::clone(&self.turns), index: self.given };
        let job = move || {
            group.awaits_turn();
            let done = panics::caught(|| make(&group, &mut |part| group.hand(&made, part)));
            group.turns.has_begun(group.index);
            let failed = match done {
                Ok(Ok(())) => return,
                Ok(Err(failed)) => failed,
                Err(told) => panicked(told),
            };
            // The leader may have ended.
            let _ = made.send(Err(failed));
        };
        // The crew is there as long as its leader.
        let _ = self.crew.jobs.send(Box::new(job));
        self.given += 1;
        self.flying.push_back(taken);
    }

    /// The next part of the first group; `None`: the group is at its end, or there is none.
    pub(crate) fn take(&mut self) -> Option<Result<T, E>> {
        match self.flying.front()?.recv() {
            Ok(made) => Some(made),
            Err(_) => {
                self.flying.pop_front();
                self.turns.lock().first += 1;
                self.turns.changed.notify_all();
                None
            }
        }
    }
}

impl Group {
    /// Runs what has to be done of each group in order, before it is done of the next one.
    pub(crate) fn in_order<R>(&self, work: impl FnOnce() -> R) -> R {
        self.turns.wait_until(|state| state.begun == self.index);
        let done = work();
        self.turns.has_begun(self.index);
        done
    }

    fn awaits_turn(&self) {
        self.turns.wait_until(|state| self.index < state.first + state.threads);
    }

    /// Hands a part to the leader; false: it takes no more.
    fn hand<T, E>(&self, made: &SyncSender<Result<T, E>>, part: T) -> bool {
        let is_taken = made.send(Ok(part)).is_ok();
        // Others may want to compute by now.
        self.awaits_turn();
        is_taken
    }
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_until(&self, is_time: impl Fn(&State) -> bool) {
        let waits = |state: &mut State| !is_time(state);
        drop(self.changed.wait_while(self.lock(), waits).unwrap_or_else(PoisonError::into_inner));
    }

    fn has_begun(&self, index: usize) {
        let mut state = self.lock();
        if state.begun == index {
            state.begun += 1;
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Made = Groups<(usize, usize), String>;

    fn crew(threads: usize) -> Made {
        let groups = Groups::new(Crew::start().unwrap());
        groups.let_work(threads);
        groups
    }

    /// All parts of all groups, and the first failure.
    fn taken(groups: &mut Made) -> (Vec<(usize, usize)>, Option<String>) {
        let mut all = Vec::new();
        while !groups.flying.is_empty() {
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
                let parts = move |_: &Group, hand: &mut dyn FnMut((usize, usize)) -> bool| {
                    (0..5).for_each(|part| assert!(hand((group, part))));
                    Ok(())
                };
                groups.give(parts, |told| told);
            }
            let wanted: Vec<_> = (0..20).flat_map(|group| (0..5).map(move |part| (group, part))).collect();
            assert_eq!(taken(&mut groups), (wanted, None), "{threads} threads");
        }
    }

    #[test]
    fn what_is_done_in_order_is_done_in_order_even_where_one_of_them_panics() {
        let (mut groups, order) = (crew(2), Arc::new(Mutex::new(Vec::new())));
        for index in 0..10 {
            let order = Arc::clone(&order);
            let make = move |group: &Group, hand: &mut dyn FnMut((usize, usize)) -> bool| {
                group.in_order(|| order.lock().unwrap().push(index));
                hand((index, 0));
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
                    hand((11, 0));
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
