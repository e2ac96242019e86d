//! Read-ahead of the rows that an index names.
//!
//! A query by an index reads a leaf of the index, and then the row of each of its cells: a page of the table somewhere else, which
//! the cell names by the row's key. Interior pages of the table that are there lead from the key to the page.

use super::page;
use super::tree::{Pages, Trees};
use std::collections::VecDeque;

/// Leaves of indexes that were read last.
const LEAVES_MAX: usize = 3;
/// Cells of a leaf that are looked at; a damaged one may have any number.
const KEYS_MAX: usize = 2048;
/// Rows that are asked for ahead at first, and at most.
const WINDOW_MIN: usize = 4;
const WINDOW_MAX: usize = 128;
/// Cells behind the last one among which the next is looked for: rows on one page are read once.
const CELLS_MAX: usize = 64;
/// Pages of tables that are read before an index is forgotten that names none of them.
const STRANGERS_MAX: u32 = 64;

#[derive(Debug, Default)]
pub(crate) struct Rows {
    /// The last one first.
    leaves: VecDeque<Leaf>,
    now: Option<Now>,
    strangers: u32,
}

#[derive(Debug)]
struct Leaf {
    number: u32,
    keys: Vec<i64>,
}

/// Where a query is in an index.
#[derive(Clone, Copy, Debug)]
struct Now {
    leaf: u32,
    cell: usize,
    /// Cells that were met in order.
    in_order: u32,
    window: usize,
    /// The cell up to which rows were asked for.
    asked_to: usize,
}

impl Rows {
    /// Takes note of a page that was read.
    pub(crate) fn learn(&mut self, number: u32, bytes: &[u8], usable_len: u32) {
        if self.leaves.front().is_some_and(|leaf| leaf.number == number) {
            return;
        }
        let mut keys = page::keys_of_rows(number, bytes, usable_len);
        keys.truncate(KEYS_MAX);
        if !keys.is_empty() {
            self.leaves.retain(|leaf| leaf.number != number);
            self.leaves.truncate(LEAVES_MAX - 1);
            self.leaves.push_front(Leaf { number, keys });
            self.strangers = 0;
        }
    }

    /// A page is read: those of the rows that are next in the index by which it was found, of which some may be there.
    pub(crate) fn read(&mut self, number: u32, window_max: u32, trees: &Trees, pages: &impl Pages) -> Vec<u32> {
        if self.leaves.is_empty() {
            return Vec::new();
        }
        let Some(root) = trees.root_of(number) else { return Vec::new() };
        // Trees of other kinds have no rows that an index names.
        if trees.page_of(root, 0, pages).is_none() {
            return Vec::new();
        }
        let Some((leaf, cell)) = self.find(number, root, trees, pages) else {
            self.strangers += 1;
            if self.strangers > STRANGERS_MAX {
                *self = Self::default();
            }
            return Vec::new();
        };
        self.strangers = 0;
        let mut now = self.stepped(leaf, cell);
        let most = WINDOW_MAX.min(window_max as usize);
        let mut wanted = Vec::new();
        let keys = self.leaves.iter().find(|known| known.number == leaf).map_or(&[][..], |known| &known.keys);
        // Half of them are asked for before they are needed.
        if now.in_order > 0 && now.asked_to.saturating_sub(cell + 1) <= now.window / 2 && now.asked_to < keys.len() {
            now.window = (now.window * 2).clamp(WINDOW_MIN.min(most), most);
            let from = now.asked_to.max(cell + 1);
            let to = (cell + 1 + now.window).clamp(from, keys.len());
            wanted.extend(keys[from..to].iter().filter_map(|key| trees.page_of(root, *key, pages)));
            now.asked_to = to;
        }
        self.now = Some(now);
        wanted
    }

    /// The cell that names a row on a page: one behind the last if there is one, else any.
    fn find(&self, number: u32, root: u32, trees: &Trees, pages: &impl Pages) -> Option<(u32, usize)> {
        let is_here = |key: &i64| trees.page_of(root, *key, pages) == Some(number);
        let known = self.now.and_then(|now| Some((now, self.leaves.iter().find(|leaf| leaf.number == now.leaf)?)));
        if let Some((now, leaf)) = known {
            let from = (now.cell + 1).min(leaf.keys.len());
            let found = leaf.keys[from..].iter().take(CELLS_MAX).position(is_here);
            if let Some(at) = found {
                return Some((leaf.number, from + at));
            }
        }
        if pages.is_held(number) && known.is_none() {
            return None;
        }
        self.leaves.iter().find_map(|leaf| Some((leaf.number, leaf.keys.iter().position(is_here)?)))
    }

    fn stepped(&self, leaf: u32, cell: usize) -> Now {
        let begun = Now { leaf, cell, in_order: 0, window: 0, asked_to: 0 };
        match self.now {
            Some(now) if now.leaf == leaf && cell > now.cell && cell - now.cell <= CELLS_MAX => {
                Now { cell, in_order: now.in_order + 1, ..now }
            }
            // The next leaf of the same index, as far as can be seen.
            Some(now) if now.leaf != leaf && cell < CELLS_MAX && now.in_order > 0 => {
                Now { in_order: now.in_order, window: now.window, ..begun }
            }
            _ => begun,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::tests::Memory;
    use super::page::tests::{index_leaf, keyed_interior};
    use super::*;
    use std::collections::{HashMap, HashSet};

    /// A table, 2, with ten rows on each of its leaves 100 to 199; an index's leaf, 3, that names 60 rows in another order.
    fn world() -> (Memory, Vec<i64>) {
        let keys: Vec<i64> = (0..60).map(|at| at * 379 % 1000).collect();
        let children: Vec<(i64, u32)> = (0..100).map(|leaf| (i64::from(leaf) * 10 + 9, 100 + leaf)).collect();
        let pages = HashMap::from([(2, keyed_interior(4096, &children)), (3, index_leaf(4096, &keys))]);
        (Memory::with_leaves(pages), keys)
    }

    fn trips(memory: &mut Memory, order: impl IntoIterator<Item = u32>) -> usize {
        let (mut rows, mut trees, mut trips) = (Rows::default(), Trees::default(), 0);
        for number in order {
            let mut wanted = rows.read(number, 256, &trees, memory);
            wanted.push(number);
            wanted.retain(|page| !memory.asked.contains(page));
            trips += usize::from(!wanted.is_empty());
            memory.asked.extend(wanted);
            let bytes = memory.get(number).expect("it was asked for");
            trees.learn(number, &bytes);
            rows.learn(number, &bytes, 4096);
        }
        trips
    }

    #[test]
    fn rows_are_asked_for_in_the_order_of_the_index() {
        let (mut memory, keys) = world();
        let read = keys.iter().map(|key| 100 + (key / 10) as u32);
        let taken = trips(&mut memory, [3, 2].into_iter().chain(read));
        assert!(taken <= 10, "{taken} trips for 60 rows");
        let named: HashSet<u32> = keys.iter().map(|key| 100 + (key / 10) as u32).chain([2, 3]).collect();
        assert_eq!(memory.asked, named, "pages without a row that the index names");
    }

    #[test]
    fn one_row_is_asked_for_alone() {
        let (mut memory, keys) = world();
        assert_eq!(trips(&mut memory, [3, 2, 100 + (keys[20] / 10) as u32]), 3);
        assert_eq!(memory.asked.len(), 3);
    }

    #[test]
    fn rows_in_another_order_are_not_guessed() {
        let (mut memory, keys) = world();
        let read: Vec<u32> = keys.iter().rev().map(|key| 100 + (key / 10) as u32).collect();
        trips(&mut memory, [vec![3, 2], read.clone()].concat());
        let needed: HashSet<u32> = read.into_iter().chain([2, 3]).collect();
        assert!(memory.asked.len() <= needed.len() + WINDOW_MIN, "{}", memory.asked.len());
    }
}
