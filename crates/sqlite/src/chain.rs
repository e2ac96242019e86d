//! Read-ahead of values that do not fit into their cells: each of their pages names the next one.
//!
//! The cell says how many pages a value has, but of their numbers only the first. They mostly follow one another, because a value
//! is written at once: so that is guessed, for more pages each time that it was right.

use super::page::{self, Chain, Geometry};
use super::tree::Pages;
use std::collections::VecDeque;

/// Pages with cells that were read last, to whose values a page may belong.
const RECENT_MAX: usize = 8;
/// Pages of a value that are guessed at first.
const WINDOW_START: u32 = 16;
/// Values that are asked for ahead when the cells of a page are read in order.
const VALUES_MAX: u32 = 64;

#[derive(Debug)]
pub(crate) struct Chains {
    /// The last one first.
    recent: VecDeque<u32>,
    now: Option<Now>,
    window: u32,
    /// Values that are asked for ahead.
    values: u32,
}

/// The value that is read now.
#[derive(Clone, Copy, Debug)]
struct Now {
    /// The page with its cell, and which of the values that continue elsewhere it is there.
    of: u32,
    index: usize,
    /// The page before, and the next page; 0: none.
    before: u32,
    next: u32,
    /// Pages from the next one on.
    left: u32,
}

impl Default for Chains {
    fn default() -> Self {
        Self { recent: VecDeque::new(), now: None, window: WINDOW_START, values: 1 }
    }
}

impl Chains {
    /// A page is read: the pages to ask for with it, of which some may be there. `None`: it belongs to no value that is known.
    pub(crate) fn read(
        &mut self,
        number: u32,
        window_max: u32,
        geometry: &Geometry,
        pages: &impl Pages,
    ) -> Option<Vec<u32>> {
        if let Some(now) = self.now.filter(|now| now.next == number) {
            if pages.is_held(number) {
                return Some(Vec::new());
            }
            let followed = number == now.before.wrapping_add(1);
            self.window = if followed { self.window.saturating_mul(2).min(window_max) } else { self.window / 4 }.max(1);
            return Some(guessed(number, now.left.min(self.window)));
        }
        let recent = self.recent.iter().copied();
        let found = recent.filter_map(|of| Some((of, page::chains(of, &pages.get(of)?, geometry.usable_len))));
        let (of, chains, index) = found
            .filter_map(|(of, chains)| {
                let index = chains.iter().position(|chain| chain.first == number)?;
                Some((of, chains, index))
            })
            .next()?;
        let in_order = self.now.is_some_and(|now| if now.of == of { index == now.index + 1 } else { index == 0 });
        self.values = if in_order { (self.values * 2).min(VALUES_MAX) } else { 1 };
        self.now = Some(Now { of, index, before: 0, next: number, left: chains[index].pages });
        Some(self.ahead(&chains[index..], window_max, pages))
    }

    /// The guessed pages of a value, and of some behind it.
    fn ahead(&self, chains: &[Chain], window_max: u32, pages: &impl Pages) -> Vec<u32> {
        let mut wanted = Vec::new();
        // Where the next value is there already, the ones behind it were asked for with it.
        let is_there = |chain: &Chain| pages.is_held(chain.first);
        if is_there(&chains[0]) && chains.get(1).is_none_or(is_there) {
            return wanted;
        }
        for chain in chains.iter().take(self.values as usize) {
            let room = window_max.saturating_sub(wanted.len() as u32);
            wanted.extend(guessed(chain.first, chain.pages.min(self.window).min(room)));
        }
        wanted
    }

    /// Takes note of a page that was read.
    pub(crate) fn learn(&mut self, number: u32, bytes: &[u8]) {
        if let Some(now) = self.now.as_mut().filter(|now| now.next == number) {
            now.before = number;
            now.next = page::next_of_chain(bytes);
            now.left = now.left.saturating_sub(1);
            return;
        }
        if page::has_values(number, bytes) && self.recent.front() != Some(&number) {
            self.recent.retain(|recent| *recent != number);
            self.recent.truncate(RECENT_MAX - 1);
            self.recent.push_front(number);
        }
    }
}

fn guessed(first: u32, count: u32) -> Vec<u32> {
    (first..first.saturating_add(count)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tree::tests::Memory;
    use super::page::tests::leaf;
    use super::*;
    use std::collections::HashMap;

    impl Memory {
        /// A leaf, 2, with these values; each value is on the pages that its list names.
        fn of(values: &[Vec<u32>]) -> Self {
            let cells: Vec<_> = values.iter().map(|pages| (508 * pages.len() as u16 + 39, pages[0])).collect();
            let mut pages = HashMap::from([(2, leaf(512, &cells))]);
            for value in values {
                for (page, next) in value.iter().zip(value.iter().skip(1).chain([&0])) {
                    pages.insert(*page, [&next.to_be_bytes()[..], &[0; 508]].concat());
                }
            }
            Self::with_ends(pages)
        }

        fn trips(&mut self, order: impl IntoIterator<Item = u32>) -> usize {
            let (mut chains, mut trips) = (Chains::default(), 0);
            let geometry = Geometry { page_len: 512, usable_len: 512, pages: 10_000 };
            for number in order {
                let mut wanted = chains.read(number, 256, &geometry, self).unwrap_or_default();
                wanted.push(number);
                wanted.retain(|page| !self.asked.contains(page));
                trips += usize::from(!wanted.is_empty());
                self.asked.extend(wanted);
                let bytes = self.get(number).expect("it was asked for");
                chains.learn(number, &bytes);
            }
            trips
        }
    }

    #[test]
    fn a_value_on_pages_that_follow_one_another_takes_few_trips() {
        let pages: Vec<u32> = (100..200).collect();
        let mut memory = Memory::of(std::slice::from_ref(&pages));
        assert_eq!(memory.trips([vec![2], pages].concat()), 4, "the leaf, 16 and 32 pages, and the rest");
    }

    #[test]
    fn values_of_cells_in_order_are_asked_for_together() {
        let values: Vec<Vec<u32>> = (0..6).map(|at| (100 + 20 * at..103 + 20 * at).collect()).collect();
        let mut memory = Memory::of(&values);
        let taken = memory.trips([vec![2], values.concat()].concat());
        assert!(taken <= 5, "{taken} trips for seven reads that depend on each other");
        assert_eq!(memory.asked.len(), 19, "pages of no value were asked for");
    }

    #[test]
    fn a_value_on_scattered_pages_costs_little_more_than_itself() {
        let pages: Vec<u32> = (0..50).map(|at| 100 + 37 * at).collect();
        let mut memory = Memory::of(std::slice::from_ref(&pages));
        assert_eq!(memory.trips([vec![2], pages].concat()), 51);
        assert!(memory.asked.len() <= 51 + 16 + 4, "{}", memory.asked.len());
    }

    #[test]
    fn a_value_that_leads_in_a_circle_asks_for_bounded_pages() {
        let mut memory = Memory::of(&[(100..130).collect()]);
        memory.pages.insert(120, [&100_u32.to_be_bytes()[..], &[0; 508]].concat());
        let order = (0..1000).map(|at| 100 + at % 21);
        memory.trips([2].into_iter().chain(order));
        assert!(memory.asked.len() <= 40, "{}", memory.asked.len());
    }
}
