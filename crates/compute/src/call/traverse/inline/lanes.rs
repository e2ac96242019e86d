//! Calls of one connection that have begun: those that compute, side by side, and those that wait for their reads.

use std::collections::VecDeque;
use std::time::Instant;

use diskside_io::Errno;
use slab::Slab;

use super::reads::{AwaitedRead, CallId, Outbox, ReadId};
use super::{Lane, Progress};
use crate::call::used::Lost;
use crate::reactors::Name;
use crate::schedule::turn_share::Share;

/// Calls that have begun.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    all: Slab<Lane>,
    /// Those that can take a step, in turn.
    ready: VecDeque<usize>,
    outbox: Outbox,
    /// No later than the first deadline of those that wait.
    look_at: Option<Instant>,
    last_serial: u64,
}

impl Lanes {
    /// How many can take a step.
    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Adds a call that has asked for its first read.
    pub(crate) fn push(&mut self, mut lane: Lane) {
        self.last_serial += 1;
        let entry = self.all.vacant_entry();
        let place = entry.key();
        lane.running.id = Some(CallId { place, serial: self.last_serial });
        entry.insert(lane);
        self.ready.push_back(place);
    }

    /// Takes steps, of each call in turn, until one has ended, and gives it; or until the share is used up, or none can
    /// take a step.
    pub(crate) fn run(&mut self, share: &mut Share) -> Option<(Lane, Progress)> {
        let mut busy = 0;
        while busy < self.ready.len()
            && share.has_work()
            && let Some(place) = self.ready.pop_front()
        {
            let running = &mut self.all[place].running;
            match running.step(share, &mut self.outbox) {
                Progress::Goes => {
                    self.ready.push_back(place);
                    busy = 0;
                }
                Progress::Busy => {
                    self.ready.push_back(place);
                    busy += 1;
                }
                Progress::Waits => self.look_at = self.look_at.into_iter().chain(running.deadline()).min(),
                ended => return Some((self.all.remove(place), ended)),
            }
        }
        None
    }

    /// The next read that one of them waits for.
    pub(crate) fn next_read(&mut self) -> Option<AwaitedRead> {
        self.outbox.next()
    }

    /// A read has ended. The call may have ended before it.
    pub(crate) fn arrived(&mut self, id: ReadId, blocks: Result<&[u8], Errno>) {
        let ReadId { call, read } = id;
        if let Some(lane) = self.all.get_mut(call.place).filter(|lane| lane.running.id == Some(call))
            && lane.running.arrived(read, blocks)
        {
            self.ready.push_back(call.place);
        }
    }

    /// When to look for calls that have waited for too long.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.look_at
    }

    /// Takes those that have waited for too long, with the error that says so.
    pub(crate) fn take_late(&mut self, now: Instant) -> Vec<(Lane, Progress)> {
        if self.look_at.is_none_or(|at| at > now) {
            return Vec::new();
        }
        let waiting = self.all.iter().filter(|(_, lane)| lane.running.waits);
        let late: Vec<_> = waiting.filter_map(|(place, lane)| Some((place, lane.running.is_late(now)?))).collect();
        let late = late.into_iter().map(|(place, ended)| (self.all.remove(place), ended)).collect();
        let waiting = self.all.iter().filter(|(_, lane)| lane.running.waits);
        self.look_at = waiting.filter_map(|(_, lane)| lane.running.deadline()).min();
        late
    }

    /// Takes those whose host lost a right, with what it was.
    pub(crate) fn take_lost(&mut self, lost: impl Fn(&Lane) -> Option<Lost>) -> Vec<(Lane, Lost)> {
        let found: Vec<_> = self.all.iter().filter_map(|(place, lane)| Some((place, lost(lane)?))).collect();
        self.ready.retain(|ready| !found.iter().any(|(place, _)| place == ready));
        found.into_iter().map(|(place, lost)| (self.all.remove(place), lost)).collect()
    }

    /// Takes the call of this command.
    pub(crate) fn take_named(&mut self, name: Name) -> Option<Lane> {
        let place = self.all.iter().find(|(_, lane)| lane.name == name)?.0;
        self.ready.retain(|ready| *ready != place);
        Some(self.all.remove(place))
    }
}
