//! Read-ahead along b-trees: an interior page names its children, and a scan reads them in order.

use super::page;
use std::collections::HashMap;
use std::sync::Arc;

/// Pages that a scan asks for ahead when it has read two in order.
const WINDOW_MIN: u32 = 4;
/// Pages ahead of the schema, all of which SQLite reads: it is the tree whose root is page 1.
const SCHEMA_WINDOW: u32 = 64;
/// Interior pages that are asked for where a scan needs the children of the next one.
const INTERIORS_AHEAD: u32 = 8;
/// Interior pages that one look ahead passes, and levels that it climbs: a file can have cycles.
const HOPS_MAX: u32 = 128;
const LEVELS_MAX: u32 = 6;
/// Levels of a tree: SQLite has at most 20.
const DEPTH_MAX: u32 = 20;
/// Children that are known at most.
const KNOWN_MAX: usize = 256 << 10;

/// The pages that are there.
pub(crate) trait Pages {
    fn get(&self, page: u32) -> Option<Arc<[u8]>>;

    /// Whether it is there or has been asked for.
    fn is_held(&self, page: u32) -> bool;
}

/// The interior pages that were read, and how far scans have come in each.
#[derive(Debug, Default)]
pub(crate) struct Trees {
    nodes: HashMap<u32, Node>,
    /// The parent of a page, and its index there.
    places: HashMap<u32, (u32, u32)>,
    /// Children of all nodes: in a damaged file several may be the same page.
    known: usize,
    /// Counts what is learnt and used.
    clock: u64,
}

#[derive(Debug)]
struct Node {
    children: Vec<u32>,
    run: Run,
    used: u64,
}

/// How the children of a page are read.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    last: Option<u32>,
    in_order: bool,
    backward: bool,
    window: u32,
    /// Pages behind the last one that were asked for.
    ahead: u32,
}

enum Next {
    /// An interior page whose children are known.
    Known(u32),
    /// One whose children are not.
    Unknown(u32),
    End,
}

impl Trees {
    /// Takes note of a page that was read.
    pub(crate) fn learn(&mut self, number: u32, bytes: &[u8]) -> bool {
        self.clock += 1;
        let used = self.clock;
        if let Some(node) = self.nodes.get_mut(&number) {
            node.used = used;
            return true;
        }
        let Some(children) = page::children(number, bytes) else { return false };
        for (index, child) in children.iter().enumerate() {
            self.places.insert(*child, (number, index as u32));
        }
        let run = if number == 1 { Run { window: SCHEMA_WINDOW / 2, ..Run::default() } } else { Run::default() };
        self.known += children.len();
        self.nodes.insert(number, Node { children, run, used });
        if self.known > KNOWN_MAX {
            self.forget_older_half();
        }
        true
    }

    fn forget_older_half(&mut self) {
        let mut used: Vec<u64> = self.nodes.values().map(|node| node.used).collect();
        used.sort_unstable();
        let least = used[used.len() / 2];
        self.nodes.retain(|_, node| node.used > least);
        self.known = self.nodes.values().map(|node| node.children.len()).sum();
        self.places.retain(|_, (parent, _)| self.nodes.contains_key(parent));
    }

    /// A page is read: the pages to ask for ahead, of which some may be there. `None`: the page has no known parent.
    pub(crate) fn read(&mut self, number: u32, window_max: u32, pages: &impl Pages) -> Option<Vec<u32>> {
        let (parent, index) = *self.places.get(&number)?;
        let mut run = self.advanced(parent, index)?;
        let mut ahead = Vec::new();
        if run.in_order {
            run.ahead = if pages.is_held(number) { run.ahead.saturating_sub(1) } else { 0 };
            if run.ahead <= run.window / 2 {
                let window = (run.window * 2).clamp(WINDOW_MIN, window_max.max(WINDOW_MIN));
                ahead = self.behind(parent, index, run.backward, window, pages);
                run.ahead = ahead.len() as u32;
                // Where the next interior page has to come first, a wider window would ask for no more.
                run.window = if run.ahead >= window { window } else { run.window.max(WINDOW_MIN / 2) };
            }
        }
        self.nodes.get_mut(&parent)?.run = run;
        Some(ahead)
    }

    /// The root of a page's tree, as far up as it is known.
    pub(crate) fn root_of(&self, number: u32) -> Option<u32> {
        let mut root = self.places.get(&number)?.0;
        for _ in 0..DEPTH_MAX {
            match self.places.get(&root) {
                Some((parent, _)) if *parent != root => root = *parent,
                _ => break,
            }
        }
        Some(root)
    }

    /// The page below a root where the row of a table with this key is, as far down as pages are there.
    pub(crate) fn page_of(&self, root: u32, key: i64, pages: &impl Pages) -> Option<u32> {
        let mut at = page::child_with(root, &pages.get(root)?, key)?;
        for _ in 0..DEPTH_MAX {
            // The children of interior pages that SQLite has read are known: others are asked for like leaves.
            if !self.nodes.contains_key(&at) {
                break;
            }
            let Some(bytes) = pages.get(at) else { break };
            at = page::child_with(at, &bytes, key)?;
        }
        Some(at)
    }

    /// The run of a parent when this child is read.
    fn advanced(&mut self, parent: u32, index: u32) -> Option<Run> {
        self.clock += 1;
        let node = self.nodes.get_mut(&parent)?;
        node.used = self.clock;
        let (run, count) = (node.run, node.children.len() as u32);
        let next = match run.last {
            Some(last) if last == index => run,
            Some(last) if index.checked_sub(last) == Some(1) => Self::stepped(run, false),
            Some(last) if last.checked_sub(index) == Some(1) => Self::stepped(run, true),
            None if parent == 1 && index == 0 => Run { in_order: true, ..run },
            None if index == 0 => self.ended_before(parent, false),
            None if index + 1 == count => self.ended_before(parent, true),
            None => Run::default(),
            Some(_) => Run::default(),
        };
        Some(Run { last: Some(index), ..next })
    }

    fn stepped(run: Run, backward: bool) -> Run {
        if run.in_order && run.backward != backward {
            return Run { backward, in_order: true, ..Run::default() };
        }
        Run { backward, in_order: true, ..run }
    }

    /// The run that came to the end of the interior page before this one, and continues here.
    fn ended_before(&self, parent: u32, backward: bool) -> Run {
        let Next::Known(before) = self.next(parent, !backward) else { return Run::default() };
        let Some(Node { children, run, .. }) = self.nodes.get(&before) else { return Run::default() };
        let end = if backward { 0 } else { children.len() as u32 - 1 };
        if run.in_order && run.backward == backward && run.last == Some(end) { *run } else { Run::default() }
    }

    /// Up to `count` pages of the same level behind a child. Where the next interior page is not there, that one and some behind it.
    fn behind(&mut self, parent: u32, index: u32, backward: bool, count: u32, pages: &impl Pages) -> Vec<u32> {
        let (mut found, mut at) = (Vec::new(), parent);
        let mut from = if backward { index } else { index + 1 };
        for _ in 0..HOPS_MAX {
            let Some(node) = self.nodes.get(&at) else { break };
            let room = count as usize - found.len();
            let from_index = (from as usize).min(node.children.len());
            if backward {
                found.extend(node.children[..from_index].iter().rev().take(room));
            } else {
                found.extend(node.children[from_index..].iter().take(room));
            }
            if found.len() >= count as usize {
                break;
            }
            at = match self.next(at, backward) {
                Next::Known(next) => next,
                Next::Unknown(next) => match pages.get(next) {
                    Some(bytes) if self.learn(next, &bytes) => next,
                    Some(_) => break,
                    None => {
                        found.extend(self.interiors(next, backward));
                        break;
                    }
                },
                Next::End => break,
            };
            from = if backward { u32::MAX } else { 0 };
        }
        found
    }

    /// An interior page and some behind it.
    fn interiors(&self, first: u32, backward: bool) -> Vec<u32> {
        let mut found = vec![first];
        while let Some(last) = found.last().copied().filter(|_| found.len() < INTERIORS_AHEAD as usize) {
            match self.next(last, backward) {
                Next::Known(next) | Next::Unknown(next) if !found.contains(&next) => found.push(next),
                _ => break,
            }
        }
        found
    }

    /// The page of the same level behind an interior page.
    fn next(&self, of: u32, backward: bool) -> Next {
        let mut at = of;
        for level in 0..LEVELS_MAX {
            let Some((parent, index)) = self.places.get(&at) else { return Next::End };
            let Some(node) = self.nodes.get(parent) else { return Next::End };
            let sibling = if backward { index.checked_sub(1) } else { index.checked_add(1) };
            if let Some(sibling) = sibling.and_then(|index| node.children.get(index as usize)) {
                return self.down(*sibling, level, backward);
            }
            at = *parent;
        }
        Next::End
    }

    /// The first page so many levels below.
    fn down(&self, from: u32, levels: u32, backward: bool) -> Next {
        let mut at = from;
        for _ in 0..levels {
            let Some(node) = self.nodes.get(&at) else { return Next::Unknown(at) };
            let Some(child) = (if backward { node.children.last() } else { node.children.first() }) else {
                return Next::End;
            };
            at = *child;
        }
        if self.nodes.contains_key(&at) { Next::Known(at) } else { Next::Unknown(at) }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::page::tests::interior;
    use super::*;
    use std::collections::HashSet;

    /// A file of pages of which one has those that were asked for.
    pub(crate) struct Memory {
        pub(crate) pages: HashMap<u32, Vec<u8>>,
        pub(crate) asked: HashSet<u32>,
        /// Every byte of the pages that are not listed.
        others: u8,
    }

    impl Memory {
        /// All other pages are leaves of tables.
        pub(crate) fn with_leaves(pages: HashMap<u32, Vec<u8>>) -> Self {
            Self { pages, asked: HashSet::new(), others: 13 }
        }

        /// All other pages are empty, and the last ones of their chains.
        pub(crate) fn with_ends(pages: HashMap<u32, Vec<u8>>) -> Self {
            Self { pages, asked: HashSet::new(), others: 0 }
        }
    }

    impl Pages for Memory {
        fn get(&self, page: u32) -> Option<Arc<[u8]>> {
            let bytes = || self.pages.get(&page).cloned().unwrap_or(vec![self.others; 512]).into();
            self.asked.contains(&page).then(bytes)
        }

        fn is_held(&self, page: u32) -> bool {
            self.asked.contains(&page)
        }
    }

    /// Reads pages one after the other; how many times some had to be asked for.
    fn trips(trees: &mut Trees, memory: &mut Memory, order: impl IntoIterator<Item = u32>) -> usize {
        let mut trips = 0;
        for number in order {
            let mut ahead = trees.read(number, 256, memory).unwrap_or_default();
            ahead.push(number);
            ahead.retain(|page| !memory.asked.contains(page));
            trips += usize::from(!ahead.is_empty());
            memory.asked.extend(ahead);
            let bytes = memory.get(number).expect("it was asked for");
            trees.learn(number, &bytes);
        }
        trips
    }

    /// A root, 2, with interior pages 10 to 19 that have 100 leaves each, from 1000 on.
    fn tall() -> Memory {
        let mut memory = Memory::with_leaves(HashMap::new());
        memory.pages.insert(2, interior(4096, &(10..20).collect::<Vec<_>>()));
        for index in 0..10 {
            let leaves: Vec<u32> = (0..100).map(|leaf| 1000 + 100 * index + leaf).collect();
            memory.pages.insert(10 + index, interior(4096, &leaves));
        }
        memory
    }

    /// A scan as SQLite makes it: each interior page before its leaves.
    fn scan(indexes: impl Iterator<Item = u32>, leaves: impl Fn(u32) -> Vec<u32>) -> Vec<u32> {
        [2].into_iter().chain(indexes.flat_map(|index| [vec![10 + index], leaves(index)].concat())).collect()
    }

    #[test]
    fn a_scan_over_several_interior_pages_takes_few_trips() {
        let order = scan(0..10, |index| (1000 + 100 * index..1100 + 100 * index).collect());
        let taken = trips(&mut Trees::default(), &mut tall(), order);
        assert!((5..=30).contains(&taken), "{taken} trips for 1,011 pages");
    }

    #[test]
    fn so_does_a_scan_from_the_end() {
        let order = scan((0..10).rev(), |index| (1000 + 100 * index..1100 + 100 * index).rev().collect());
        let taken = trips(&mut Trees::default(), &mut tall(), order);
        assert!((5..=30).contains(&taken), "{taken} trips for 1,011 pages");
    }

    #[test]
    fn a_lookup_asks_for_its_path_alone() {
        let (mut trees, mut memory) = (Trees::default(), tall());
        assert_eq!(trips(&mut trees, &mut memory, [2, 15, 1533]), 3);
        assert_eq!(trips(&mut trees, &mut memory, [15, 1560, 12, 1250, 1203]), 4);
        assert_eq!(memory.asked.len(), 7, "{:?}", memory.asked);
    }

    #[test]
    fn the_schema_is_asked_for_at_once() {
        let mut memory = Memory::with_leaves(HashMap::new());
        let mut root = vec![0; page::HEADER_LEN];
        root.extend(interior(4096, &(2..40).collect::<Vec<_>>()));
        // The cells of page 1 are counted from its beginning, where the file's header is.
        let cells: Vec<_> = (0..37).map(|index| 4096 - 5 * (index + 1) + page::HEADER_LEN).collect();
        for (index, cell) in cells.iter().enumerate() {
            let at = page::HEADER_LEN + 12 + 2 * index;
            root[at..at + 2].copy_from_slice(&(*cell as u16).to_be_bytes());
        }
        memory.pages.insert(1, root);
        assert_eq!(trips(&mut Trees::default(), &mut memory, 1..40), 2);
    }

    #[test]
    fn cycles_end() {
        let mut memory = Memory::with_leaves(HashMap::new());
        memory.pages.insert(2, interior(512, &[2, 3, 2, 3]));
        memory.pages.insert(3, interior(512, &[3, 2, 3, 2]));
        memory.asked.extend([2, 3]);
        let mut trees = Trees::default();
        for _ in 0..100 {
            trips(&mut trees, &mut memory, [2, 3, 2, 2, 3, 3]);
        }
        assert!(trees.nodes.len() == 2 && memory.asked.len() == 2);
    }

    #[test]
    fn the_number_of_known_children_is_bounded() {
        let mut trees = Trees::default();
        for number in 2..2000 {
            let first = number * 1000;
            trees.learn(number, &interior(4096, &(first..first + 500).collect::<Vec<_>>()));
        }
        assert!(trees.places.len() <= KNOWN_MAX && trees.nodes.contains_key(&1999), "{}", trees.places.len());
        for number in 2000..4000 {
            trees.learn(number, &interior(4096, &[7; 500]));
        }
        let children: usize = trees.nodes.values().map(|node| node.children.len()).sum();
        assert!(children <= KNOWN_MAX && trees.nodes.contains_key(&3999), "{children}");
    }
}
