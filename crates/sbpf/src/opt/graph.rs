//! Dominators and natural loops of a function.

use crate::ir::{BlockId, Func};
use std::collections::BTreeSet;

/// Orders and dominators of the blocks that are reachable from the entry.
#[derive(Debug)]
pub(super) struct Graph {
    /// Those of block `i` lie from `first[i]` up to `first[i + 1]`.
    predecessors: Vec<BlockId>,
    first: Vec<u32>,
    /// Position in reverse postorder; `None` for unreachable blocks.
    pub(super) order_of: Vec<Option<u32>>,
    pub(super) order: Vec<BlockId>,
    idom: Vec<Option<BlockId>>,
}

/// A natural loop: all blocks that reach a back edge without passing the header.
#[derive(Clone, Debug)]
pub(super) struct Loop {
    pub(super) header: BlockId,
    /// Blocks in the loop, the header among them.
    pub(super) blocks: BTreeSet<BlockId>,
}

/// A loop and the loops inside it.
#[derive(Debug)]
pub(super) struct Nest {
    pub(super) the_loop: Loop,
    pub(super) inner: Vec<Nest>,
}

impl Graph {
    pub(super) fn new(func: &Func) -> Self {
        let n = func.blocks.len();
        let mut graph = Self {
            predecessors: Vec::new(),
            first: vec![0; n + 1],
            order_of: vec![None; n],
            order: reverse_postorder(func),
            idom: vec![None; n],
        };
        for (i, b) in graph.order.iter().enumerate() {
            graph.order_of[b.0 as usize] = Some(i as u32);
        }
        graph.find_predecessors(func);
        graph.find_dominators();
        graph
    }

    /// Counts them first, so that all lie in one piece of memory.
    fn find_predecessors(&mut self, func: &Func) {
        let ways = |b: &BlockId| func.blocks[b.0 as usize].term.successors();
        for s in self.order.iter().flat_map(ways) {
            self.first[s.0 as usize + 1] += 1;
        }
        for i in 1..self.first.len() {
            self.first[i] += self.first[i - 1];
        }
        let mut next = self.first.clone();
        self.predecessors = vec![BlockId(0); next.last().map_or(0, |n| *n as usize)];
        for &b in &self.order {
            for s in ways(&b) {
                let at = &mut next[s.0 as usize];
                self.predecessors[*at as usize] = b;
                *at += 1;
            }
        }
    }

    /// The blocks that lead to a block and can be reached, in reverse postorder.
    pub(super) fn predecessors(&self, b: BlockId) -> &[BlockId] {
        let i = b.0 as usize;
        &self.predecessors[self.first[i] as usize..self.first[i + 1] as usize]
    }

    /// Cooper, Harvey and Kennedy's iteration.
    fn find_dominators(&mut self) {
        let entry = self.order[0];
        self.idom[entry.0 as usize] = Some(entry);
        let mut changed = true;
        while changed {
            changed = false;
            for &b in &self.order[1..] {
                let mut new = None;
                for &p in self.predecessors(b) {
                    if self.idom[p.0 as usize].is_some() {
                        new = Some(new.map_or(p, |q| self.common_dominator(p, q)));
                    }
                }
                if self.idom[b.0 as usize] != new {
                    self.idom[b.0 as usize] = new;
                    changed = true;
                }
            }
        }
    }

    fn common_dominator(&self, mut a: BlockId, mut b: BlockId) -> BlockId {
        while a != b {
            while self.position(a) > self.position(b) {
                a = self.idom[a.0 as usize].expect("processed");
            }
            while self.position(b) > self.position(a) {
                b = self.idom[b.0 as usize].expect("processed");
            }
        }
        a
    }

    fn position(&self, b: BlockId) -> u32 {
        self.order_of[b.0 as usize].expect("reachable")
    }

    pub(super) fn dominates(&self, a: BlockId, mut b: BlockId) -> bool {
        if self.order_of[a.0 as usize].is_none() {
            return false;
        }
        while self.position(b) > self.position(a) {
            b = self.idom[b.0 as usize].expect("reachable");
        }
        a == b
    }

    /// The natural loop with this header, or `None` when no back edge comes to it.
    pub(super) fn natural_loop(&self, header: BlockId) -> Option<Loop> {
        self.order_of[header.0 as usize]?;
        let mut blocks = BTreeSet::from([header]);
        let mut work: Vec<BlockId> =
            self.predecessors(header).iter().copied().filter(|&p| self.dominates(header, p)).collect();
        if work.is_empty() {
            return None;
        }
        while let Some(b) = work.pop() {
            if blocks.insert(b) {
                work.extend(self.predecessors(b));
            }
        }
        Some(Loop { header, blocks })
    }

    /// All natural loops, each with those inside it.
    pub(super) fn loop_nests(&self) -> Vec<Nest> {
        let mut loops: Vec<Loop> = self.order.iter().filter_map(|&b| self.natural_loop(b)).collect();
        loops.sort_by_key(|l| std::cmp::Reverse(l.blocks.len()));
        let mut nests: Vec<Nest> = Vec::new();
        for the_loop in loops {
            let mut siblings = &mut nests;
            while let Some(around) = siblings.iter().position(|n| n.the_loop.blocks.contains(&the_loop.header)) {
                siblings = &mut siblings[around].inner;
            }
            siblings.push(Nest { the_loop, inner: Vec::new() });
        }
        nests
    }
}

fn reverse_postorder(func: &Func) -> Vec<BlockId> {
    let mut seen = vec![false; func.blocks.len()];
    let mut order = Vec::new();
    let mut stack: Vec<(BlockId, Vec<BlockId>)> = Vec::new();
    let mut visit = |b: BlockId, stack: &mut Vec<(BlockId, Vec<BlockId>)>| {
        if !std::mem::replace(&mut seen[b.0 as usize], true) {
            stack.push((b, func.blocks[b.0 as usize].term.successors().collect()));
        }
    };
    visit(BlockId(0), &mut stack);
    while let Some((b, next)) = stack.last_mut() {
        if let Some(s) = next.pop() {
            visit(s, &mut stack);
        } else {
            order.push(*b);
            stack.pop();
        }
    }
    order.reverse();
    order
}
