//! What waits for a thread: hosts in turn, each within its bounds.

use std::collections::{BTreeMap, VecDeque};

use diskside_nvme::wire::function::Class;

use super::{PoolLimits, Work};

/// The queues of all hosts. No threads and no clock: work comes in, and goes out when it may run.
#[derive(Default)]
pub(in crate::compute) struct Queues {
    hosts: BTreeMap<u64, HostQueue>,
    /// The host that was served last: the next one is next.
    last_host: u64,
}

#[derive(Default)]
struct HostQueue {
    waiting: VecDeque<Work>,
    running: usize,
    memory: u64,
}

impl Queues {
    /// Queues work: normal before background. False: its host has too much of it waiting.
    pub(in crate::compute) fn push(&mut self, work: Work, limits: &PoolLimits) -> bool {
        let waiting = &mut self.hosts.entry(work.host).or_default().waiting;
        if waiting.len() >= limits.host_queue_max {
            return false;
        }
        let at = match work.class {
            Class::Normal => waiting.partition_point(|other| other.class == Class::Normal),
            Class::Background => waiting.len(),
        };
        waiting.insert(at, work);
        true
    }

    /// Takes the next work: normal before background, hosts in turn, each within its bounds.
    pub(in crate::compute) fn next(&mut self, limits: &PoolLimits) -> Option<Work> {
        let may = |host: &HostQueue, class: Class| {
            let next = host.waiting.front().filter(|work| work.class == class)?;
            let fits = host.running == 0 || host.memory + next.memory <= limits.host_memory_max;
            (host.running < limits.host_calls_max && fits).then_some(())
        };
        let find = |class| {
            let after = self.hosts.range(self.last_host.wrapping_add(1)..);
            let mut turns = after.chain(self.hosts.range(..=self.last_host));
            turns.find(|(_, host)| may(host, class).is_some()).map(|(id, _)| *id)
        };
        let id = find(Class::Normal).or_else(|| find(Class::Background))?;
        self.last_host = id;
        let host = self.hosts.get_mut(&id)?;
        let work = host.waiting.pop_front()?;
        host.running += 1;
        host.memory += work.memory;
        Some(work)
    }

    /// Work of this host that was taken has ended.
    pub(in crate::compute) fn done(&mut self, host: u64, memory: u64) {
        let Some(queue) = self.hosts.get_mut(&host) else { return };
        queue.running -= 1;
        queue.memory -= memory;
        if queue.running == 0 && queue.waiting.is_empty() {
            self.hosts.remove(&host);
        }
    }

    /// Work that waits.
    pub(in crate::compute) fn len(&self) -> usize {
        self.hosts.values().map(|host| host.waiting.len()).sum()
    }

    /// Whether nothing waits or runs.
    #[cfg(test)]
    pub(in crate::compute) fn is_idle(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Takes out everything that waits.
    pub(in crate::compute) fn clear(&mut self) -> Vec<Work> {
        self.hosts.values_mut().flat_map(|host| std::mem::take(&mut host.waiting)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_take_turns_within_their_bounds() {
        let limits = PoolLimits { threads_max: 4, host_calls_max: 2, host_memory_max: 100, host_queue_max: 8 };
        let mut queues = Queues::default();
        let mut queue = |host: u64, class: Class, memory: u64| {
            assert!(queues.push(Work { host, class, memory, run: Box::new(|| {}) }, &limits));
        };
        for _ in 0..4 {
            queue(1, Class::Normal, 10);
        }
        queue(2, Class::Normal, 60);
        queue(2, Class::Normal, 60);
        queue(3, Class::Background, 500);
        let mut taken = Vec::new();
        while let Some(work) = queues.next(&limits) {
            taken.push(work.host);
        }
        assert_eq!(taken, [1, 2, 1, 3], "two calls at most, memory for one of host 2, and one call always fits");
        queues.done(2, 60);
        assert_eq!(queues.next(&limits).map(|work| work.host), Some(2));
        queues.done(1, 10);
        assert_eq!(queues.next(&limits).map(|work| work.host), Some(1));
    }
}
