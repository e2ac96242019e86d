//! The steps of long commands, such as Verify and Copy: hosts take turns, and all steps together have a little of each turn of the
//! reactor. A command has a step of some ten microseconds at a time, and one host may have thousands of such commands.

use std::collections::VecDeque;
use std::time::Duration;

/// Tasks that wait for their next step.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// Those of each host, which is next in this order.
    by_host: VecDeque<(usize, VecDeque<usize>)>,
    len: usize,
}

/// How long the steps of one turn may take, except for the last one.
pub(super) const STEPS_TIME: Duration = Duration::from_micros(50);

impl Steps {
    /// A task of this host waits for its next step.
    pub(super) fn push(&mut self, host: usize, task: usize) {
        self.len += 1;
        match self.by_host.iter_mut().find(|(known, _)| *known == host) {
            Some((_, tasks)) => tasks.push_back(task),
            None => self.by_host.push_back((host, VecDeque::from([task]))),
        }
    }

    /// The task that is next.
    pub(super) fn pop(&mut self) -> Option<usize> {
        let (host, mut tasks) = self.by_host.pop_front()?;
        let next = tasks.pop_front()?;
        self.len -= 1;
        if !tasks.is_empty() {
            self.by_host.push_back((host, tasks));
        }
        Some(next)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every long command had a step in each turn of its reactor: with a few hundred of one host, a turn took 14 ms, and as
    /// long waited the reads of others. Now a turn ends after some of them, and the next begins with another host's.
    #[test]
    fn hosts_take_turns_however_many_commands_they_have() {
        let mut steps = Steps::default();
        for task in 0..100 {
            steps.push(1, task);
        }
        steps.push(2, 200);
        steps.push(3, 300);
        steps.push(2, 201);
        assert_eq!(steps.len(), 103);
        let first: Vec<usize> = std::iter::from_fn(|| steps.pop()).take(7).collect();
        assert_eq!(first, [0, 200, 300, 1, 201, 2, 3]);
        // One that comes again is behind the others of its host, and before their second ones.
        steps.push(1, 0);
        steps.push(2, 200);
        assert_eq!([steps.pop(), steps.pop(), steps.pop()], [Some(4), Some(200), Some(5)]);
        let rest: Vec<usize> = std::iter::from_fn(|| steps.pop()).collect();
        assert_eq!((rest.len(), rest.last()), (95, Some(&0)));
        assert!(steps.is_empty());
    }
}
