//! Jobs of hosts, which take turns: a host with many of them keeps nobody waiting but itself.

use std::collections::VecDeque;

/// Jobs that wait, and how many of each host are under way.
#[derive(Debug)]
pub struct Turns<W, J> {
    /// The one that was served last is last. One without jobs that wait or run is not there.
    hosts: Vec<Jobs<W, J>>,
}

/// The jobs of one host.
#[derive(Debug)]
struct Jobs<W, J> {
    whose: W,
    waiting: VecDeque<J>,
    running: usize,
}

impl<W: Copy + PartialEq, J> Turns<W, J> {
    /// One more job waits.
    pub fn push(&mut self, whose: W, job: J) {
        match self.hosts.iter_mut().find(|jobs| jobs.whose == whose) {
            Some(jobs) => jobs.waiting.push_back(job),
            None => self.hosts.push(Jobs { whose, waiting: VecDeque::from([job]), running: 0 }),
        }
    }

    /// The next job: of the host that has the fewest running, and of several the one that was served longest ago. `may_run` is
    /// told whose it is and how many of that host run.
    pub fn take(&mut self, may_run: impl Fn(W, usize, &J) -> bool) -> Option<(W, J)> {
        let first = |jobs: &Jobs<W, J>| {
            let Jobs { whose, waiting, running } = jobs;
            waiting.iter().position(|job| may_run(*whose, *running, job))
        };
        let ready = self.hosts.iter().enumerate().filter_map(|(at, jobs)| Some((jobs.running, at, first(jobs)?)));
        let (_, at, of_host) = ready.min()?;
        let mut jobs = self.hosts.remove(at);
        let job = jobs.waiting.remove(of_host)?;
        jobs.running += 1;
        let whose = jobs.whose;
        self.hosts.push(jobs);
        Some((whose, job))
    }

    /// A job has ended.
    pub fn ended(&mut self, whose: W) {
        let Some(at) = self.hosts.iter().position(|jobs| jobs.whose == whose) else { return };
        self.hosts[at].running -= 1;
        self.forget_idle();
    }

    /// Takes out the jobs that wait for nothing any more.
    pub fn take_out(&mut self, is_out: impl Fn(&J) -> bool) -> Vec<J> {
        let mut out = Vec::new();
        for jobs in &mut self.hosts {
            let (taken, waiting) = std::mem::take(&mut jobs.waiting).into_iter().partition(&is_out);
            jobs.waiting = waiting;
            out.extend::<VecDeque<J>>(taken);
        }
        self.forget_idle();
        out
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.hosts.iter().map(|jobs| jobs.waiting.len()).sum()
    }

    /// Whether no job waits or runs.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    fn forget_idle(&mut self) {
        self.hosts.retain(|jobs| jobs.running > 0 || !jobs.waiting.is_empty());
    }
}

impl<W, J> Default for Turns<W, J> {
    fn default() -> Self {
        Self { hosts: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(turns: &mut Turns<u8, char>, running_max: usize) -> Vec<u8> {
        std::iter::from_fn(|| turns.take(|_, running, _| running < running_max).map(|(whose, _)| whose)).collect()
    }

    /// All hosts shared one queue: who asked for hundreds of searches kept every other host's lookup waiting for half a minute.
    #[test]
    fn hosts_take_turns_and_one_leaves_threads_to_others() {
        let (greedy, other) = (1, 2);
        let mut turns = Turns::default();
        for _ in 0..100 {
            turns.push(greedy, 'g');
        }
        assert_eq!(order(&mut turns, 6), [greedy; 6], "the rest waits, and two threads are left");
        turns.push(other, 'o');
        assert_eq!(order(&mut turns, 6), [other]);
        for _ in 0..2 {
            turns.push(other, 'o');
            turns.ended(greedy);
        }
        assert_eq!(order(&mut turns, 6), [other, other, greedy, greedy]);
        (0..6).for_each(|_| turns.ended(greedy));
        (0..3).for_each(|_| turns.ended(other));
        assert_eq!(
            (turns.hosts.len(), turns.waiting(), turns.hosts[0].running),
            (1, 92, 0),
            "an idle host is forgotten"
        );
        assert_eq!(turns.take_out(|_| true).len(), 92);
        assert!(turns.is_empty());
    }

    /// Behind a job that may not run, others of its host are found.
    #[test]
    fn a_job_that_may_not_run_keeps_no_other_one_waiting() {
        let mut turns = Turns::default();
        for job in ['a', 'a', 'b'] {
            turns.push(1, job);
        }
        assert_eq!(turns.take(|_, _, job| *job == 'b'), Some((1, 'b')));
        assert_eq!(turns.take(|_, _, job| *job == 'b'), None);
        assert_eq!(turns.take_out(|job| *job == 'a'), ['a', 'a']);
        assert!(!turns.is_empty(), "one still runs");
        turns.ended(1);
        assert!(turns.is_empty());
    }
}
