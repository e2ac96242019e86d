//! The part of a reactor's turn that traversals of a host may take, so that endless walks of one host do not delay
//! reads of another.
//!
//! Work is counted in units of roughly a tenth of a microsecond: a step, a KiB that was read, 256 loop iterations. When
//! a host has had its share, or all hosts together theirs, its traversals stay where they are and continue in the next
//! turn, those first that had nothing of this one; meanwhile the reactor serves everybody else. Nothing here knows of
//! time, so the delay that one host can cause another is bounded in turns.

use std::collections::BTreeMap;

use diskside_engine::Traversal;

/// Work of one host in a turn: some hundred microseconds.
pub(crate) const HOST_WORK_MAX: u32 = 1024;
/// Work of all hosts in a turn, however many names they have.
pub(crate) const TURN_WORK_MAX: u32 = 4 * HOST_WORK_MAX;
/// Traversals of one host that a reactor has begun; more than these go to threads.
pub(crate) const HOST_LANES_MAX: usize = 64;
/// Loop iterations that make a unit, and bytes.
const UNIT_EDGES: u64 = 256;
const UNIT_BYTES: u64 = 1024;
/// What a step in the interpreter costs beside compiled code.
const INTERPRETER_FACTOR: u32 = 8;

/// What one connection may take now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Units of work. A unit that begins also ends: the last step may take more than is left.
    pub work_left: u32,
    /// Traversals that may be begun.
    pub lanes_left: usize,
}

impl Share {
    /// Whether there is work left to take.
    pub fn has_work(&self) -> bool {
        self.work_left > 0
    }

    pub(crate) fn take(&mut self, units: u32) {
        self.work_left = self.work_left.saturating_sub(units);
    }
}

/// The shares of all hosts of one reactor.
#[derive(Debug, Default)]
pub struct Shares {
    /// By the host's number: those that took something in this turn, or have traversals under way.
    hosts: BTreeMap<u64, Taken>,
    /// Of this turn.
    work: u32,
    /// The most of one turn.
    work_max: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    work: u32,
    lanes: usize,
}

impl Shares {
    /// Everybody has a share again.
    pub fn begin_turn(&mut self) {
        if std::mem::take(&mut self.work) > 0 {
            self.hosts.retain(|_, taken| {
                taken.work = 0;
                taken.lanes > 0
            });
        }
    }

    /// What is left for a host.
    pub fn of(&self, host: u64) -> Share {
        let taken = self.hosts.get(&host).copied().unwrap_or_default();
        let of_host = HOST_WORK_MAX.saturating_sub(taken.work);
        let of_turn = TURN_WORK_MAX.saturating_sub(self.work);
        Share { work_left: of_host.min(of_turn), lanes_left: HOST_LANES_MAX.saturating_sub(taken.lanes) }
    }

    /// A connection of the host took so much, and has `after` traversals under way instead of `before`.
    pub fn took(&mut self, host: u64, work: u32, before: usize, after: usize) {
        if work == 0 && before == after {
            return;
        }
        let taken = self.hosts.entry(host).or_default();
        taken.work = taken.work.saturating_add(work);
        taken.lanes = taken.lanes + after - before;
        if taken.work == 0 && taken.lanes == 0 {
            self.hosts.remove(&host);
        }
        self.work = self.work.saturating_add(work);
        self.work_max = self.work_max.max(self.work);
    }

    /// The most work of one turn so far.
    pub fn work_max(&self) -> u32 {
        self.work_max
    }
}

/// Why traversals of a connection continue in the next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOff {
    /// Their host has had its share of this one.
    Share,
    /// All hosts together had theirs before.
    Nothing,
    /// What they read is being written.
    Busy,
}

/// Connections whose traversals continue in the next turn.
#[derive(Debug, Default)]
pub struct NextTurn {
    first: Vec<usize>,
    then: Vec<usize>,
}

impl NextTurn {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.first.is_empty() && self.then.is_empty()
    }

    /// False if it is there already.
    pub fn push(&mut self, connection: usize, why: PutOff) -> bool {
        let list = if why == PutOff::Nothing { &mut self.first } else { &mut self.then };
        let is_new = list.last() != Some(&connection);
        if is_new {
            list.push(connection);
        }
        is_new
    }

    /// Takes them, in the order in which they are served.
    pub fn take(&mut self) -> Vec<usize> {
        let mut all = std::mem::take(&mut self.first);
        all.append(&mut self.then);
        all
    }
}

/// Counts the work of one traversal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    factor: u32,
    edges: u64,
}

impl Meter {
    pub(crate) fn new(is_interpreted: bool) -> Self {
        Self { factor: if is_interpreted { INTERPRETER_FACTOR } else { 1 }, edges: 0 }
    }

    /// Units of the step that was just taken, which was given so many bytes.
    pub(crate) fn step(&mut self, traversal: &Traversal, read_len: u64) -> u32 {
        let edges = traversal.edges();
        let iterations = edges.saturating_sub(std::mem::replace(&mut self.edges, edges));
        let units = 1 + read_len / UNIT_BYTES + iterations / UNIT_EDGES * u64::from(self.factor);
        u32::try_from(units).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection, as a reactor deals with it: what its traversals still have to do, and how many turns it was served
    /// in.
    struct Walks {
        host: u64,
        /// `None`: without end.
        work: Option<u32>,
        ended_in: Option<usize>,
    }

    /// Serves connections as a reactor does. Says how much was done in each turn.
    fn serve(connections: &mut [Walks], turns: usize) -> Vec<u32> {
        let (mut shares, mut next) = (Shares::default(), NextTurn::default());
        (0..connections.len()).for_each(|at| assert!(next.push(at, PutOff::Nothing)));
        let mut done = Vec::new();
        for turn in 0..turns {
            shares.begin_turn();
            let mut of_turn = 0;
            for at in next.take() {
                let walks = &mut connections[at];
                let share = shares.of(walks.host);
                let work = walks.work.map_or(share.work_left, |work| work.min(share.work_left));
                shares.took(walks.host, work, 0, 0);
                of_turn += work;
                if walks.work.is_some_and(|left| left == work) {
                    walks.ended_in = Some(turn);
                    continue;
                }
                walks.work = walks.work.map(|left| left - work);
                next.push(at, if work == 0 { PutOff::Nothing } else { PutOff::Share });
            }
            done.push(of_turn);
        }
        done
    }

    #[test]
    fn endless_walks_of_one_host_take_nothing_of_anothers_share() {
        // Thirty connections of one host that never end, in front of one lookup of another.
        let endless = || Walks { host: 1, work: None, ended_in: None };
        let mut connections: Vec<Walks> = (0..30).map(|_| endless()).collect();
        connections.push(Walks { host: 2, work: Some(8), ended_in: None });
        connections.push(Walks { host: 3, work: Some(3 * HOST_WORK_MAX), ended_in: None });
        let done = serve(&mut connections, 10);
        assert_eq!(connections[30].ended_in, Some(0), "in the turn in which it came");
        assert_eq!(connections[31].ended_in, Some(2), "three shares in three turns");
        assert!(done.iter().all(|work| (HOST_WORK_MAX..=TURN_WORK_MAX).contains(work)), "{done:?}");
    }

    #[test]
    fn many_names_make_no_turn_longer_and_everybody_has_a_turn() {
        // A host that calls itself by a hundred names gets what four may have, and who came last is served all the same.
        let mut connections: Vec<Walks> =
            (0..100).map(|host| Walks { host, work: Some(4 * HOST_WORK_MAX), ended_in: None }).collect();
        connections.push(Walks { host: 1000, work: Some(8), ended_in: None });
        let done = serve(&mut connections, 30);
        assert!(done.iter().all(|work| *work <= TURN_WORK_MAX), "{done:?}");
        let served = connections[100].ended_in.expect("it was served");
        assert!(served <= 100 / 4 + 1, "after everybody before it had one share: {served}");
    }

    #[test]
    fn traversals_under_way_are_counted_and_forgotten() {
        let mut shares = Shares::default();
        shares.took(1, 10, 0, 8);
        shares.took(1, 0, 0, HOST_LANES_MAX - 8);
        assert_eq!(shares.of(1), Share { work_left: HOST_WORK_MAX - 10, lanes_left: 0 });
        assert_eq!(shares.of(2), Share { work_left: HOST_WORK_MAX, lanes_left: HOST_LANES_MAX });
        shares.begin_turn();
        assert_eq!(shares.of(1), Share { work_left: HOST_WORK_MAX, lanes_left: 0 }, "they are still there");
        shares.took(1, 5, HOST_LANES_MAX, 0);
        assert_eq!(shares.of(1).lanes_left, HOST_LANES_MAX);
        shares.begin_turn();
        assert!(shares.hosts.is_empty());
        assert_eq!(shares.work_max(), 10);
    }
}
