//! Places for commands that wait at the target until something else happens there: Function Sends and Receives.
//!
//! A target lets half of the entries of a queue wait, and refuses others as busy. So a queue has no more of them under way; those beyond wait
//! on this side, in the order in which they came. A call needs its Send and a Receive at the same time, and others' parts must not take
//! that room: each call that has begun has two places of its own, and more as long as there are others. Operations on files, which are short,
//! do not wait for the end of long calls, nor calls for that of many operations: a quarter is left to either.

use std::collections::{HashMap, VecDeque};

/// Places that a call has for itself.
const OWN: usize = 2;

/// The places of a queue. Jobs are named by index, calls by tag.
#[derive(Debug)]
pub(crate) struct Places {
    calls_max: usize,
    /// Places of all calls beyond their own.
    extra_max: usize,
    /// Calls that have begun: of functions, of files.
    begun: [usize; 2],
    extra: usize,
    calls: HashMap<u64, Call>,
    /// Calls that have begun and have jobs that are held; in turns.
    parts: VecDeque<u64>,
    /// Calls that have not begun: of functions, of files.
    next_calls: [VecDeque<u64>; 2],
}

#[derive(Debug, Default)]
struct Call {
    has_begun: bool,
    is_of_file: bool,
    is_in_parts: bool,
    /// Jobs that have a place.
    placed: usize,
    held: VecDeque<u32>,
}

impl Places {
    /// Those of a queue with so many entries.
    pub(crate) fn new(entries: u16) -> Self {
        let mut this = Self {
            calls_max: 0,
            extra_max: 0,
            begun: [0; 2],
            extra: 0,
            calls: HashMap::new(),
            parts: VecDeque::new(),
            next_calls: Default::default(),
        };
        this.set_entries(entries);
        this
    }

    /// The queue has so many entries from now on; places that are taken stay so.
    pub(crate) fn set_entries(&mut self, entries: u16) {
        let waiting_max = usize::from(entries) / 2;
        // An eighth is left to what stops calls.
        let all = waiting_max - waiting_max / 8;
        self.calls_max = (all * 3 / 7).max(1);
        self.extra_max = all.saturating_sub(OWN * self.calls_max);
    }

    /// A job of a call asks for a place: it is held until [`next`](Self::next) names it.
    pub(crate) fn ask(&mut self, tag: u64, index: u32, is_of_file: bool) {
        let call = self.calls.entry(tag).or_insert_with(|| Call { is_of_file, ..Call::default() });
        call.held.push_back(index);
        if !call.has_begun {
            if call.held.len() == 1 {
                self.next_calls[usize::from(call.is_of_file)].push_back(tag);
            }
        } else if !call.is_in_parts {
            call.is_in_parts = true;
            self.parts.push_back(tag);
        }
    }

    /// A job that has a place from now on: it is to be sent.
    pub(crate) fn next(&mut self) -> Option<u32> {
        loop {
            for _ in 0..self.parts.len() {
                let tag = self.parts.pop_front()?;
                let Some(call) = self.calls.get_mut(&tag) else { continue };
                let is_own = call.placed < OWN;
                let named = if is_own || self.extra < self.extra_max { call.held.pop_front() } else { None };
                call.is_in_parts = !call.held.is_empty();
                if call.is_in_parts {
                    self.parts.push_back(tag);
                }
                if named.is_some() {
                    call.placed += 1;
                    self.extra += usize::from(!is_own);
                    return named;
                }
            }
            if self.begun[0] + self.begun[1] >= self.calls_max {
                return None;
            }
            let of_kind_max = self.calls_max - self.calls_max / 4;
            // Those of files first: they are short.
            let kind =
                [1, 0].into_iter().find(|&kind| self.begun[kind] < of_kind_max && !self.next_calls[kind].is_empty())?;
            let tag = self.next_calls[kind].pop_front()?;
            if let Some(call) = self.calls.get_mut(&tag).filter(|call| !call.has_begun) {
                self.begun[kind] += 1;
                (call.has_begun, call.is_in_parts) = (true, true);
                self.parts.push_back(tag);
            }
        }
    }

    /// A job that had a place is over.
    pub(crate) fn give_back(&mut self, tag: u64) {
        let call = self.calls.get_mut(&tag).expect("a call with a place is known");
        self.extra -= usize::from(call.placed > OWN);
        call.placed -= 1;
        self.forget_idle(tag);
    }

    /// A job that was held is over.
    pub(crate) fn forget(&mut self, tag: u64, index: u32) {
        if let Some(call) = self.calls.get_mut(&tag) {
            call.held.retain(|&held| held != index);
            self.forget_idle(tag);
        }
    }

    /// A call is cancelled: its jobs, if it has not begun; none of them is named any more.
    pub(crate) fn withdraw(&mut self, tag: u64) -> VecDeque<u32> {
        match self.calls.get(&tag) {
            Some(call) if !call.has_begun => self.calls.remove(&tag).map(|call| call.held).unwrap_or_default(),
            _ => VecDeque::new(),
        }
    }

    /// Forgets a call that has no job any more.
    fn forget_idle(&mut self, tag: u64) {
        if self.calls.get(&tag).is_some_and(|call| call.placed == 0 && call.held.is_empty())
            && let Some(call) = self.calls.remove(&tag)
        {
            self.begun[usize::from(call.is_of_file)] -= usize::from(call.has_begun);
        }
    }

    /// All jobs are over.
    pub(crate) fn clear(&mut self) {
        (self.begun, self.extra) = ([0; 2], 0);
        self.calls.clear();
        self.parts.clear();
        self.next_calls.iter_mut().for_each(VecDeque::clear);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(places: &mut Places) -> Vec<u32> {
        std::iter::from_fn(|| places.next()).collect()
    }

    /// The Sends of hundreds of calls took all tags of a target, and their Receives had no place: nothing moved until they were given up.
    #[test]
    fn a_call_that_begins_has_room_for_its_receive() {
        let mut places = Places::new(129);
        // Their Sends before all their Receives.
        (0..100).for_each(|tag| places.ask(tag, tag as u32, false));
        (0..100).for_each(|tag| places.ask(tag, 100 + tag as u32, false));
        let mut first: Vec<u32> = (0..18).chain(100..118).collect();
        let mut begun = named(&mut places);
        begun.sort_unstable();
        assert_eq!(begun, first);
        places.give_back(3);
        assert_eq!(named(&mut places), [], "no call has ended");
        places.give_back(3);
        first = named(&mut places);
        assert_eq!(first, [18, 118], "the next call, in the order in which they came");
    }

    #[test]
    fn a_call_with_many_parts_leaves_room_for_others() {
        let mut places = Places::new(17);
        (0..9).for_each(|index| places.ask(1, index, false));
        assert_eq!(named(&mut places), [0, 1, 2], "two of its own, and one more");
        places.ask(2, 20, false);
        places.ask(2, 21, false);
        places.ask(2, 22, false);
        assert_eq!(named(&mut places), [20, 21]);
        places.give_back(1);
        assert_eq!(named(&mut places).len(), 1, "the calls take turns in what is more");
        places.give_back(1);
        places.give_back(2);
        assert_eq!(named(&mut places).len(), 2);
    }

    #[test]
    fn files_and_functions_leave_each_other_room() {
        for is_of_file in [false, true] {
            let mut places = Places::new(129);
            (0..50).for_each(|tag| places.ask(tag, tag as u32, is_of_file));
            assert_eq!(named(&mut places).len(), 18, "of 24");
            (50..100).for_each(|tag| places.ask(tag, tag as u32, !is_of_file));
            assert_eq!(named(&mut places), (50..56).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_job_that_is_over_while_it_is_held_is_not_named() {
        let mut places = Places::new(5);
        (0..4).for_each(|tag| (0..2).for_each(|part| places.ask(tag, 2 * tag as u32 + part, false)));
        assert_eq!(named(&mut places), [0, 1]);
        places.forget(1, 2);
        places.forget(2, 4);
        places.forget(2, 5);
        places.forget(7, 77);
        places.give_back(0);
        places.give_back(0);
        assert_eq!(named(&mut places), [3]);
        places.give_back(1);
        assert_eq!(named(&mut places), [6, 7]);
        places.give_back(3);
        places.give_back(3);
        assert_eq!((places.calls.len(), places.extra, places.begun), (0, 0, [0; 2]));
    }

    /// Forty calls without an end were begun and cancelled: the cancels of those that had not begun found nothing, and these began when
    /// the others had ended.
    #[test]
    fn a_call_that_is_cancelled_before_it_begins_never_does() {
        let mut places = Places::new(5);
        (0..3).for_each(|tag| (0..2).for_each(|part| places.ask(tag, 2 * tag as u32 + part, false)));
        assert_eq!(named(&mut places), [0, 1]);
        assert_eq!(places.withdraw(1), [2, 3]);
        assert_eq!((places.withdraw(0), places.withdraw(1), places.withdraw(9)), Default::default());
        places.give_back(0);
        places.give_back(0);
        assert_eq!(named(&mut places), [4, 5]);
    }

    proptest::proptest! {
        /// Any jobs in any order: none is lost, none named twice, and never are more under way than a target lets wait.
        #[test]
        fn every_job_has_its_turn(entries in 8_u16..200, steps in proptest::collection::vec((0_u64..40, 0..3_usize), 1..600)) {
            let mut places = Places::new(entries);
            let (mut under_way, mut seen) = (Vec::new(), vec![false; steps.len()]);
            let mut take = |places: &mut Places, under_way: &mut Vec<u32>| {
                for index in named(places) {
                    assert!(!std::mem::replace(&mut seen[index as usize], true), "{index} is named twice");
                    under_way.push(index);
                }
                assert!(under_way.len() <= usize::from(entries / 2), "{} of {entries}", under_way.len());
            };
            for (index, (tag, ends)) in steps.iter().enumerate() {
                places.ask(*tag, index as u32, tag % 3 == 0);
                take(&mut places, &mut under_way);
                for _ in 0..(*ends).min(under_way.len()) {
                    let over = under_way.remove(index % under_way.len());
                    places.give_back(steps[over as usize].0);
                    take(&mut places, &mut under_way);
                }
            }
            while let Some(over) = under_way.pop() {
                places.give_back(steps[over as usize].0);
                take(&mut places, &mut under_way);
            }
            assert!(seen.iter().all(|seen| *seen) && places.calls.is_empty() && places.begun == [0; 2] && places.extra == 0);
        }
    }
}
