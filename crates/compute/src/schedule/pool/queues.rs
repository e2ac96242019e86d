//! The work that waits for a thread: hosts in turn, each within its bounds.

use std::collections::{BTreeMap, VecDeque};

use super::{PoolLimits, Work, WorkClass};
use crate::schedule::quota::{Book, Bounds};
use diskside_sbpf::machine::CancelToken;

/// The queues of all hosts. No threads and no clock: work comes in, and goes out when it may run.
#[derive(Default)]
pub struct Queues {
    hosts: BTreeMap<u64, HostQueue>,
    /// The host that was served last: the next one is next.
    last_host: u64,
    /// Calls of all hosts that run, and those of them that wait for their hosts.
    running: usize,
    parked: usize,
    /// What they use.
    memory: Book,
}

#[derive(Default)]
struct HostQueue {
    /// Calls: normal before background.
    waiting: VecDeque<Work>,
    running: usize,
    /// Bytes that they may use, as the last of them said.
    memory_max: u64,
    /// Prompt work, which has bounds of its own.
    prompt: VecDeque<Work>,
    prompt_running: usize,
}

impl Queues {
    /// Queues work: normal before background. False: its host has too much of it waiting.
    pub fn push(&mut self, work: Work, limits: &PoolLimits) -> bool {
        let host = self.hosts.entry(work.host).or_default();
        host.memory_max = work.memory_max;
        let queue = if work.class == WorkClass::Prompt { &mut host.prompt } else { &mut host.waiting };
        if queue.len() >= limits.host_queue_max {
            return false;
        }
        let at = match work.class {
            WorkClass::Normal => queue.partition_point(|other| other.class == WorkClass::Normal),
            WorkClass::Prompt | WorkClass::Background => queue.len(),
        };
        queue.insert(at, work);
        true
    }

    /// Work of a host that waits was cancelled: it is prompt from now on. Whether there is any.
    pub(crate) fn hurry(&mut self, host: u64) -> bool {
        let Some(host) = self.hosts.get_mut(&host) else { return false };
        let is_cancelled = |work: &Work| work.cancel.as_ref().is_some_and(CancelToken::is_cancelled);
        let (cancelled, waiting) =
            std::mem::take(&mut host.waiting).into_iter().partition::<VecDeque<_>, _>(is_cancelled);
        host.waiting = waiting;
        let is_any = !cancelled.is_empty();
        host.prompt.extend(cancelled.into_iter().map(|work| Work { class: WorkClass::Prompt, ..work }));
        is_any
    }

    /// Takes the next work: prompt before normal before background, hosts in turn, each within its bounds.
    pub fn next(&mut self, limits: &PoolLimits) -> Option<Work> {
        let has_room = self.has_room(limits);
        let may = |id: u64, host: &HostQueue, class: WorkClass| {
            if class == WorkClass::Prompt {
                return host.prompt_running < limits.host_prompt_max && !host.prompt.is_empty();
            }
            let fits = |next: &Work| self.memory.fits(id, next.memory, host.bounds(limits));
            let next = host.waiting.front().filter(|work| work.class == class);
            has_room && host.running < limits.host_calls_max && next.is_some_and(fits)
        };
        let find = |class| {
            let after = self.hosts.range(self.last_host.wrapping_add(1)..);
            let mut turns = after.chain(self.hosts.range(..=self.last_host));
            turns.find(|(id, host)| may(**id, host, class)).map(|(id, _)| (*id, class))
        };
        let classes = [WorkClass::Prompt, WorkClass::Normal, WorkClass::Background];
        let (id, class) = classes.into_iter().find_map(find)?;
        let host = self.hosts.get_mut(&id)?;
        if class == WorkClass::Prompt {
            host.prompt_running += 1;
            return host.prompt.pop_front();
        }
        // Whose turn it is among calls, what is prompt does not change.
        self.last_host = id;
        let work = host.waiting.pop_front()?;
        self.running += 1;
        host.running += 1;
        let fits = self.memory.take(id, work.memory, host.bounds(limits));
        debug_assert!(fits, "it was chosen because it fits");
        Some(work)
    }

    /// Whether there is a thread for one more call.
    fn has_room(&self, limits: &PoolLimits) -> bool {
        self.running - self.parked(limits) < limits.threads_max - limits.prompt_threads
    }

    /// A call that runs waits for its host.
    pub(crate) fn park(&mut self) {
        self.parked += 1;
    }

    /// The parked call continues.
    pub(crate) fn unpark(&mut self) {
        self.parked -= 1;
    }

    /// Calls that wait for their hosts and are not counted.
    pub(crate) fn parked(&self, limits: &PoolLimits) -> usize {
        self.parked.min(limits.parked_max).min(self.running)
    }

    /// Whether a call of another host waits for a thread or for memory, and not for its host's own calls.
    pub(crate) fn stands_still(&self, besides: u64, limits: &PoolLimits) -> bool {
        let has_room = self.has_room(limits);
        self.hosts.iter().filter(|(id, host)| **id != besides && host.running < limits.host_calls_max).any(
            |(id, host)| {
                let fits = |next: &Work| self.memory.fits(*id, next.memory, host.bounds(limits));
                host.waiting.front().is_some_and(|next| !has_room || !fits(next))
            },
        )
    }

    /// Work of this host that was taken has ended.
    pub fn done(&mut self, host: u64, class: WorkClass, memory: u64) {
        let Some(queue) = self.hosts.get_mut(&host) else { return };
        if class == WorkClass::Prompt {
            queue.prompt_running -= 1;
        } else {
            self.running -= 1;
            queue.running -= 1;
            self.memory.give_back(host, memory);
        }
        if queue.is_idle() {
            self.hosts.remove(&host);
        }
    }

    /// Work that waits.
    pub fn waiting(&self) -> usize {
        self.hosts.values().map(|host| host.waiting.len() + host.prompt.len()).sum()
    }

    /// Gives a call that runs more memory.
    pub(crate) fn grow(&mut self, host: u64, bytes: u64, limits: &PoolLimits) -> bool {
        let bounds = self.hosts.get(&host).map_or(limits.memory, |host| host.bounds(limits));
        self.memory.take(host, bytes, bounds)
    }

    /// Takes it back.
    pub(crate) fn shrink(&mut self, host: u64, bytes: u64) {
        self.memory.give_back(host, bytes);
    }

    /// Calls of a host that wait, and bytes that its running ones may use.
    pub(super) fn of_host(&self, host: u64) -> (usize, u64) {
        let waiting = self.hosts.get(&host).map_or(0, |host| host.waiting.len() + host.prompt.len());
        (waiting, self.memory.held(host))
    }

    /// Bytes that calls which run use.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory.total()
    }

    /// Whether nothing waits or runs.
    pub fn is_idle(&self) -> bool {
        self.hosts.is_empty() && self.running == 0
    }

    /// Takes out everything that waits.
    pub(crate) fn clear(&mut self) -> Vec<Work> {
        let take = |host: &mut HostQueue| host.waiting.drain(..).chain(host.prompt.drain(..)).collect::<Vec<_>>();
        self.hosts.values_mut().flat_map(take).collect()
    }
}

impl HostQueue {
    fn bounds(&self, limits: &PoolLimits) -> Bounds {
        Bounds { host_max: limits.memory.host_max.min(self.memory_max), ..limits.memory }
    }

    fn is_idle(&self) -> bool {
        self.running + self.prompt_running == 0 && self.waiting.is_empty() && self.prompt.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_take_turns_within_their_bounds() {
        let limits = PoolLimits {
            threads_max: 5,
            host_calls_max: 2,
            memory: Bounds { host_max: 100, total_max: 1000 },
            host_queue_max: 8,
            host_prompt_max: 1,
            prompt_threads: 1,
            parked_max: 0,
        };
        let mut queues = Queues::default();
        let mut queue =
            |host: u64, class: WorkClass, memory: u64| {
                assert!(queues.push(
                    Work { host, class, memory, memory_max: u64::MAX, cancel: None, run: Box::new(|| {}) },
                    &limits
                ));
            };
        for _ in 0..4 {
            queue(1, WorkClass::Normal, 10);
        }
        queue(2, WorkClass::Normal, 60);
        queue(2, WorkClass::Normal, 60);
        queue(3, WorkClass::Background, 500);
        let mut taken = Vec::new();
        while let Some(work) = queues.next(&limits) {
            taken.push(work.host);
        }
        assert_eq!(taken, [1, 2, 1, 3], "two calls at most, memory for one of host 2, and one call always fits");
        queues.done(2, WorkClass::Normal, 60);
        assert_eq!(queues.next(&limits).map(|work| work.host), Some(2));
        queues.done(1, WorkClass::Normal, 10);
        assert_eq!(queues.next(&limits).map(|work| work.host), Some(1));
    }
}
