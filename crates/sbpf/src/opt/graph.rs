//! Dominators and natural loops of a function, or of one loop of it.

use crate::ir::{BlockId, Func};
use crate::work::{Exhausted, Work};
use std::collections::{BTreeSet, HashMap};

/// Orders and dominators of the blocks that are reachable from an entry.
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

/// The loops of a function, without the blocks that inner loops have as well. This is flat, however deep they are
/// nested.
#[derive(Debug, Default)]
pub(super) struct Loops {
    all: Vec<Found>,
    /// Those that lie in no other, in the order of the function.
    pub(super) outermost: Vec<usize>,
}

#[derive(Debug)]
struct Found {
    header: BlockId,
    /// Blocks of the loop and of no loop inside, the header first.
    own: Vec<BlockId>,
    inner: Vec<usize>,
    /// Loops on the longest way in, this one among them.
    height: usize,
}

impl Graph {
    /// The graph of a whole function.
    pub(super) fn new(func: &Func, work: &Work) -> Result<Self, Exhausted> {
        Self::from(func, BlockId(0), |_| true, work)
    }

    /// The graph of a loop alone. Its header dominates it, so what dominates what is the same as in the whole function.
    pub(super) fn within(func: &Func, the_loop: &Loop, work: &Work) -> Result<Self, Exhausted> {
        Self::from(func, the_loop.header, |b| the_loop.blocks.contains(&b), work)
    }

    fn from(func: &Func, entry: BlockId, has: impl Fn(BlockId) -> bool, work: &Work) -> Result<Self, Exhausted> {
        let n = func.blocks.len();
        let order = reverse_postorder(func, entry, &has);
        work.spend(n as u64 / 16 + 16 * order.len() as u64)?;
        let mut graph = Self {
            predecessors: Vec::new(),
            first: vec![0; n + 1],
            order_of: vec![None; n],
            order,
            idom: vec![None; n],
        };
        for (i, b) in graph.order.iter().enumerate() {
            graph.order_of[b.0 as usize] = Some(i as u32);
        }
        graph.find_predecessors(func);
        graph.find_dominators(work)?;
        Ok(graph)
    }

    /// Counts them first, so that all lie in one piece of memory.
    fn find_predecessors(&mut self, func: &Func) {
        let is_in = |s: &BlockId| self.order_of[s.0 as usize].is_some();
        let ways = |b: &BlockId| func.blocks[b.0 as usize].term.successors().filter(is_in);
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
    fn find_dominators(&mut self, work: &Work) -> Result<(), Exhausted> {
        let entry = self.order[0];
        self.idom[entry.0 as usize] = Some(entry);
        let mut changed = true;
        while changed {
            changed = false;
            for &b in &self.order[1..] {
                let mut new = None;
                let mut steps = 1;
                for &p in self.predecessors(b) {
                    if self.idom[p.0 as usize].is_some() {
                        new = Some(new.map_or(p, |q| self.common_dominator(p, q, &mut steps)));
                    }
                }
                work.spend(steps)?;
                if self.idom[b.0 as usize] != new {
                    self.idom[b.0 as usize] = new;
                    changed = true;
                }
            }
        }
        Ok(())
    }

    fn common_dominator(&self, mut a: BlockId, mut b: BlockId, steps: &mut u64) -> BlockId {
        while a != b {
            while self.position(a) > self.position(b) {
                a = self.idom[a.0 as usize].expect("processed");
                *steps += 1;
            }
            while self.position(b) > self.position(a) {
                b = self.idom[b.0 as usize].expect("processed");
                *steps += 1;
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

    /// All natural loops. Those found inside count as one block for the loops around them, so that each edge is
    /// looked at once.
    pub(super) fn loops(&self, work: &Work) -> Result<Loops, Exhausted> {
        let n = self.order_of.len();
        // The header of the outermost loop that a block is known to be in.
        let mut outermost: Vec<BlockId> = (0..n as u32).map(BlockId).collect();
        let mut by_header: Vec<Option<usize>> = vec![None; n];
        let mut loops = Loops::default();
        for &header in self.order.iter().rev() {
            let mut waiting: Vec<BlockId> = Vec::new();
            for &p in self.predecessors(header) {
                let Some(behind) = self.position(p).checked_sub(self.position(header)) else { continue };
                work.spend(1 + u64::from(behind) / 8)?;
                if self.dominates(header, p) {
                    waiting.push(p);
                }
            }
            if waiting.is_empty() {
                continue;
            }
            let mut found = Found { header, own: vec![header], inner: Vec::new(), height: 1 };
            while let Some(b) = waiting.pop() {
                let b = representative(&mut outermost, b);
                if b == header {
                    continue;
                }
                outermost[b.0 as usize] = header;
                work.spend(2 + self.predecessors(b).len() as u64)?;
                waiting.extend(self.predecessors(b));
                match by_header[b.0 as usize].take() {
                    Some(inner) => {
                        found.height = found.height.max(loops.all[inner].height + 1);
                        found.inner.push(inner);
                    }
                    None => found.own.push(b),
                }
            }
            // In the order of the function, however they were found.
            found.inner.sort_by_key(|&i| self.position(loops.all[i].header));
            by_header[header.0 as usize] = Some(loops.all.len());
            loops.all.push(found);
        }
        loops.outermost = self.order.iter().filter_map(|b| by_header[b.0 as usize]).collect();
        Ok(loops)
    }
}

/// The header of the outermost known loop, shortening the way for the next lookup.
fn representative(outermost: &mut [BlockId], b: BlockId) -> BlockId {
    let mut top = b;
    while outermost[top.0 as usize] != top {
        top = outermost[top.0 as usize];
    }
    let mut at = b;
    while at != top {
        at = std::mem::replace(&mut outermost[at.0 as usize], top);
    }
    top
}

impl Loops {
    /// The deepest nesting of loops in this one.
    pub(super) fn height(&self, index: usize) -> usize {
        self.all[index].height
    }

    pub(super) fn header(&self, index: usize) -> BlockId {
        self.all[index].header
    }

    /// Blocks of a loop and of no loop inside.
    pub(super) fn own(&self, index: usize) -> &[BlockId] {
        &self.all[index].own
    }

    pub(super) fn inner(&self, index: usize) -> &[usize] {
        &self.all[index].inner
    }

    /// With the blocks of every loop, of which there are as many copies as loops around. The height has to be small.
    pub(super) fn nest(&self, index: usize) -> Nest {
        let found = &self.all[index];
        let inner: Vec<Nest> = found.inner.iter().map(|&i| self.nest(i)).collect();
        let mut blocks: BTreeSet<BlockId> = found.own.iter().copied().collect();
        blocks.extend(inner.iter().flat_map(|n| &n.the_loop.blocks));
        Nest { the_loop: Loop { header: found.header, blocks }, inner }
    }
}

impl Nest {
    /// All loops inside, those inside them among them.
    pub(super) fn each_inner<'n>(&'n self, visit: &mut impl FnMut(&'n Nest)) {
        for inner in &self.inner {
            visit(inner);
            inner.each_inner(visit);
        }
    }
}

/// The natural loop with this header, of blocks among these. None of them leads to the header from outside of it.
pub(super) fn natural_loop_among(
    func: &Func,
    header: BlockId,
    among: impl IntoIterator<Item = BlockId>,
) -> BTreeSet<BlockId> {
    let mut predecessors = HashMap::<BlockId, Vec<BlockId>>::new();
    for b in among {
        for s in func.blocks[b.0 as usize].term.successors() {
            predecessors.entry(s).or_default().push(b);
        }
    }
    let mut blocks = BTreeSet::from([header]);
    let mut waiting = predecessors.get(&header).cloned().unwrap_or_default();
    while let Some(b) = waiting.pop() {
        if blocks.insert(b) {
            waiting.extend(predecessors.get(&b).into_iter().flatten());
        }
    }
    blocks
}

/// Whether blocks can be reached from the start of the function.
pub(super) fn reachable(func: &Func) -> Vec<bool> {
    let mut reached = vec![false; func.blocks.len()];
    for b in reverse_postorder(func, BlockId(0), &|_| true) {
        reached[b.0 as usize] = true;
    }
    reached
}

fn reverse_postorder(func: &Func, entry: BlockId, has: &impl Fn(BlockId) -> bool) -> Vec<BlockId> {
    let mut seen = vec![false; func.blocks.len()];
    let mut order = Vec::new();
    let mut stack = Vec::new();
    let mut visit = |b: BlockId, stack: &mut Vec<_>| {
        if has(b) && !std::mem::replace(&mut seen[b.0 as usize], true) {
            let [a, b2] = {
                let mut ways = func.blocks[b.0 as usize].term.successors();
                [ways.next(), ways.next()]
            };
            stack.push((b, [a, b2]));
        }
    };
    visit(entry, &mut stack);
    while let Some((b, ways)) = stack.last_mut() {
        // The second first, as always.
        if let Some(s) = ways[1].take().or_else(|| ways[0].take()) {
            visit(s, &mut stack);
        } else {
            order.push(*b);
            stack.pop();
        }
    }
    order.reverse();
    order
}
