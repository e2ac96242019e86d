//! The jobs that wait for a thread that authenticates hosts: addresses, and hosts that are let in, in turn, so that one with
//! many connections keeps nobody waiting for more than a job of each.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Whose connection it is that work is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    /// Its host is not let in yet, and came from there.
    Address(IpAddr),
    /// It is let in, and authenticates again: a number of its name.
    Host(u64),
}

/// Jobs that wait, at most so many.
#[derive(Debug)]
pub(super) struct Queue<J> {
    waiting_max: usize,
    waiting: Mutex<Waiting<J>>,
    changed: Condvar,
}

#[derive(Debug)]
struct Waiting<J> {
    jobs: HashMap<Origin, VecDeque<J>>,
    /// Origins that have jobs, the next one first.
    turns: VecDeque<Origin>,
    count: usize,
    is_closed: bool,
}

/// What became of a job that came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pushed<J> {
    Waits,
    /// It waits, and this one of an origin with more jobs does not any more.
    InPlaceOf(J),
    /// Its own origin has most of all jobs.
    Refused,
}

impl<J> Queue<J> {
    pub(super) fn new(waiting_max: usize) -> Self {
        let waiting = Waiting { jobs: HashMap::new(), turns: VecDeque::new(), count: 0, is_closed: false };
        Self { waiting_max, waiting: Mutex::new(waiting), changed: Condvar::new() }
    }

    pub(super) fn push(&self, origin: Origin, job: J) -> Pushed<J> {
        let mut waiting = self.lock();
        let mut pushed = Pushed::Waits;
        if waiting.count >= self.waiting_max {
            match waiting.take_newest_of_most(origin) {
                Some(job) => pushed = Pushed::InPlaceOf(job),
                None => return Pushed::Refused,
            }
        }
        waiting.push(origin, job);
        drop(waiting);
        self.changed.notify_one();
        pushed
    }

    /// Waits for the next job. `None`: the queue is closed.
    pub(super) fn pop(&self) -> Option<J> {
        let is_idle = |waiting: &mut Waiting<J>| waiting.count == 0 && !waiting.is_closed;
        let mut waiting = self.changed.wait_while(self.lock(), is_idle).unwrap_or_else(PoisonError::into_inner);
        if waiting.is_closed { None } else { waiting.pop() }
    }

    /// Nothing is done any more, and nobody waits.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<J>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<J> Waiting<J> {
    fn push(&mut self, origin: Origin, job: J) {
        let jobs = self.jobs.entry(origin).or_default();
        if jobs.is_empty() {
            self.turns.push_back(origin);
        }
        jobs.push_back(job);
        self.count += 1;
    }

    fn pop(&mut self) -> Option<J> {
        let origin = self.turns.pop_front()?;
        let job = self.take(origin, VecDeque::pop_front);
        if self.jobs.contains_key(&origin) {
            self.turns.push_back(origin);
        }
        job
    }

    /// Makes room for a job of `newcomer`: one goes of the origin that has most, if that has more than the newcomer; of an address
    /// rather than of a host that is let in and has as many.
    fn take_newest_of_most(&mut self, newcomer: Origin) -> Option<J> {
        let own = self.jobs.get(&newcomer).map_or(0, VecDeque::len);
        let counts = self.jobs.iter().map(|(origin, jobs)| (*origin, jobs.len())).filter(|(_, count)| *count > own);
        let (most, _) = counts.max_by_key(|(origin, count)| (*count, matches!(origin, Origin::Address(_))))?;
        let job = self.take(most, VecDeque::pop_back);
        if !self.jobs.contains_key(&most) {
            self.turns.retain(|origin| *origin != most);
        }
        job
    }

    /// An origin without jobs is forgotten.
    fn take(&mut self, origin: Origin, take: impl FnOnce(&mut VecDeque<J>) -> Option<J>) -> Option<J> {
        let jobs = self.jobs.get_mut(&origin)?;
        let job = take(jobs);
        if jobs.is_empty() {
            self.jobs.remove(&origin);
        }
        self.count -= usize::from(job.is_some());
        job
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: Origin = Origin::Host(1);

    fn of(last: u8) -> Origin {
        Origin::Address(IpAddr::from([192, 0, 2, last]))
    }

    /// One address with a thousand connections had a thousand exponentiations done before that of a host elsewhere.
    #[test]
    fn addresses_take_turns() {
        let queue = Queue::new(10);
        for job in [10, 11, 12] {
            queue.push(of(1), job);
        }
        queue.push(of(2), 20);
        queue.push(ANN, 30);
        let order: Vec<_> = (0..5).filter_map(|_| queue.pop()).collect();
        assert_eq!(order, [10, 20, 30, 11, 12]);
        let waiting = queue.lock();
        assert!((waiting.count, waiting.jobs.len(), waiting.turns.len()) == (0, 0, 0));
    }

    /// An address that had filled the queue kept everybody out.
    #[test]
    fn where_it_is_full_the_newest_job_of_the_origin_with_most_gives_way() {
        let queue = Queue::new(3);
        for job in [10, 11, 12] {
            assert_eq!(queue.push(of(1), job), Pushed::Waits);
        }
        assert_eq!(queue.push(of(1), 13), Pushed::Refused);
        assert_eq!(queue.push(of(2), 20), Pushed::InPlaceOf(12));
        assert_eq!(queue.push(ANN, 30), Pushed::InPlaceOf(11));
        assert!(matches!(queue.push(of(3), 40), Pushed::InPlaceOf(10 | 20)), "of those with as many, one goes");
    }

    /// A host that was let in filled the queue by authenticating again on thousands of queues, and no other got in.
    #[test]
    fn hosts_that_are_let_in_lose_a_job_only_where_they_have_all_of_them() {
        let queue = Queue::new(3);
        for job in [30, 31] {
            queue.push(ANN, job);
        }
        queue.push(of(1), 10);
        assert_eq!(queue.push(of(2), 20), Pushed::InPlaceOf(31), "one that has more than the newcomer");
        let queue = Queue::new(3);
        queue.push(ANN, 30);
        for job in [10, 11] {
            queue.push(of(1), job);
        }
        assert_eq!(queue.push(of(2), 20), Pushed::InPlaceOf(11));
        assert_eq!(queue.push(of(2), 21), Pushed::Refused);
    }

    #[test]
    fn the_end_of_the_target_ends_the_wait_for_a_job() {
        let queue = Queue::<u32>::new(2);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| queue.pop());
            queue.close();
            assert_eq!(waits.join().unwrap(), None);
        });
    }
}
