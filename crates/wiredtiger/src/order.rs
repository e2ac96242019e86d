//! Which leaf comes behind which: learnt from inner pages as they pass by.

use crate::blocks::Address;
use crate::page::{Child, ChildKind};
use std::collections::HashMap;

/// Leaves that are known at a time: when there are more, all are forgotten.
const LEAVES_MAX: usize = 64 << 10;

/// What is known of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub(crate) next: Option<Address>,
    /// Values of it may be in blocks of their own.
    pub(crate) may_overflow: bool,
}

/// The order of the leaves of a tree. It may be out of date: blocks say by their checksum whether they are those that are meant.
#[derive(Debug, Default)]
pub(crate) struct Order {
    leaves: HashMap<u64, Leaf>,
    /// Of inner pages above leaves, the last leaf.
    last: HashMap<u64, u64>,
    first: HashMap<u64, Address>,
    /// Inner pages in order.
    behind: HashMap<u64, u64>,
    before: HashMap<u64, u64>,
}

impl Order {
    /// An inner page at `offset` passes by.
    pub(crate) fn learn(&mut self, offset: u64, children: &[Child]) {
        if self.leaves.len() + children.len() > LEAVES_MAX {
            *self = Self::default();
        }
        for pair in children.windows(2) {
            self.link(&pair[0], pair[1]);
        }
        let (Some(first), Some(last)) = (children.first(), children.last()) else { return };
        if first.kind == ChildKind::Inner || last.kind == ChildKind::Inner {
            return;
        }
        self.leaves.insert(last.address.offset, Leaf { next: None, may_overflow: last.kind == ChildKind::Leaf });
        self.first.insert(offset, first.address);
        self.last.insert(offset, last.address.offset);
        self.join(self.before.get(&offset).copied(), Some(offset));
        self.join(Some(offset), self.behind.get(&offset).copied());
    }

    fn link(&mut self, child: &Child, next: Child) {
        let at = child.address.offset;
        match (child.kind, next.kind) {
            (ChildKind::Inner, ChildKind::Inner) => {
                self.behind.insert(at, next.address.offset);
                self.before.insert(next.address.offset, at);
                self.join(Some(at), Some(next.address.offset));
            }
            (ChildKind::Leaf | ChildKind::LeafAlone, ChildKind::Leaf | ChildKind::LeafAlone) => {
                let may_overflow = child.kind == ChildKind::Leaf;
                self.leaves.insert(at, Leaf { next: Some(next.address), may_overflow });
            }
            _ => {}
        }
    }

    /// The last leaf of an inner page is followed by the first one of the next.
    fn join(&mut self, page: Option<u64>, next: Option<u64>) {
        let last = page.and_then(|page| self.last.get(&page));
        let first = next.and_then(|next| self.first.get(&next));
        if let (Some(last), Some(first)) = (last, first)
            && let Some(leaf) = self.leaves.get_mut(last)
        {
            leaf.next = Some(*first);
        }
    }

    pub(crate) fn leaf(&self, offset: u64) -> Option<Leaf> {
        self.leaves.get(&offset).copied()
    }

    /// The leaves behind this one: at most `count`, of at most so many bytes.
    pub(crate) fn behind(&self, offset: u64, count: usize, len_max: usize) -> Vec<Address> {
        let (mut found, mut at, mut len) = (Vec::new(), offset, 0);
        while found.len() < count
            && let Some(next) = self.leaves.get(&at).and_then(|leaf| leaf.next)
        {
            len += next.len as usize;
            if len > len_max {
                break;
            }
            found.push(next);
            at = next.offset;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child(offset: u64, kind: ChildKind) -> Child {
        Child { address: Address { offset, len: 512, checksum: offset as u32 }, kind }
    }

    fn offsets(order: &Order, at: u64, count: usize, len_max: usize) -> Vec<u64> {
        order.behind(at, count, len_max).iter().map(|address| address.offset).collect()
    }

    #[test]
    fn leaves_are_followed_from_one_inner_page_to_the_next() {
        let leaves = |from: u64| (from..from + 3).map(|at| child(at, ChildKind::LeafAlone)).collect::<Vec<_>>();
        let parents = [child(100, ChildKind::Inner), child(200, ChildKind::Inner), child(300, ChildKind::Inner)];
        // In whichever order the pages pass by.
        for order_of in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]] {
            let mut order = Order::default();
            for which in order_of {
                match which {
                    3 => order.learn(1000, &parents),
                    which => order.learn(100 * (which + 1), &leaves(10 * which)),
                }
            }
            assert_eq!(offsets(&order, 0, 99, 1 << 20), [1, 2, 10, 11, 12, 20, 21, 22], "{order_of:?}");
            assert_eq!(offsets(&order, 11, 2, 1 << 20), [12, 20]);
            assert_eq!(offsets(&order, 11, 9, 1024), [12, 20]);
            assert_eq!(offsets(&order, 22, 9, 1 << 20), [0; 0]);
            assert_eq!(offsets(&order, 5, 9, 1 << 20), [0; 0]);
        }
    }

    #[test]
    fn a_ring_of_leaves_ends() {
        let mut order = Order::default();
        let ring: Vec<Child> = [1, 2, 1].iter().map(|at| child(*at, ChildKind::Leaf)).collect();
        order.learn(9, &ring);
        order.learn(8, &ring[1..]);
        assert!(order.behind(1, 256, 1 << 20).len() <= 256);
    }

    #[test]
    fn it_does_not_grow_for_ever() {
        let mut order = Order::default();
        for page in 0..3000_u64 {
            let leaves: Vec<Child> = (0..100).map(|at| child(page * 100 + at, ChildKind::Leaf)).collect();
            order.learn(1 << 40 | page, &leaves);
        }
        assert!(order.leaves.len() <= LEAVES_MAX && order.leaf(299_999).is_some());
    }
}
