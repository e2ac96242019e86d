//! The control-flow graph of one function.

use crate::insn::{Insn, Slot, decode};

/// Blocks and edges of a function. Slot numbers are relative to the function's start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cfg {
    /// Blocks in order of their first slot; the first is the entry. Only reachable ones.
    pub blocks: Vec<CfgBlock>,
}

/// A block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CfgBlock {
    /// First slot.
    pub start: usize,
    /// One past its last slot.
    pub end: usize,
    /// Where it goes: fall-through (or the only way) first, then the taken branch. Empty after `exit`.
    pub successors: Vec<usize>,
    /// For each successor: whether the edge retreats, that is, goes to a block on the path by which
    /// a depth-first walk (fall-through first) came here. Each such edge costs one unit of budget.
    pub retreats: Vec<bool>,
}

impl Cfg {
    /// The graph of decodable, well-targeted code. The verifier has checked both.
    ///
    /// # Panics
    /// If a slot does not decode or a jump leaves the function: the caller has to check first.
    #[must_use]
    pub fn build(code: &[Slot]) -> Self {
        let leaders = leaders(code);
        let starts: Vec<usize> = (0..code.len()).filter(|&i| leaders[i]).collect();
        let block_at = |slot: usize| starts.binary_search(&slot).expect("jump targets are leaders");
        let all: Vec<CfgBlock> = starts
            .iter()
            .enumerate()
            .map(|(i, &start)| {
                let end = starts.get(i + 1).copied().unwrap_or(code.len());
                let (last, insn) = last_insn(code, start, end);
                let successors = match insn {
                    Insn::Exit => Vec::new(),
                    Insn::Ja { off } => vec![block_at(target(last, i64::from(off)))],
                    Insn::Jmp { off, .. } => {
                        vec![block_at(end), block_at(target(last, i64::from(off)))]
                    }
                    _ => vec![block_at(end)],
                };
                let retreats = vec![false; successors.len()];
                CfgBlock { start, end, successors, retreats }
            })
            .collect();
        Self { blocks: all }.reachable_with_retreats()
    }

    /// Marks retreating edges and drops unreachable blocks.
    fn reachable_with_retreats(mut self) -> Self {
        #[derive(Clone, Copy, PartialEq)]
        enum Mark {
            New,
            OnPath,
            Done,
        }
        let mut marks = vec![Mark::New; self.blocks.len()];
        let mut stack = vec![(0usize, 0usize)];
        marks[0] = Mark::OnPath;
        while let Some(&mut (block, ref mut next)) = stack.last_mut() {
            let Some(&successor) = self.blocks[block].successors.get(*next) else {
                marks[block] = Mark::Done;
                stack.pop();
                continue;
            };
            let edge = *next;
            *next += 1;
            match marks[successor] {
                Mark::New => {
                    marks[successor] = Mark::OnPath;
                    stack.push((successor, 0));
                }
                Mark::OnPath => self.blocks[block].retreats[edge] = true,
                Mark::Done => {}
            }
        }
        let kept: Vec<usize> = (0..self.blocks.len()).filter(|&i| marks[i] == Mark::Done).collect();
        let blocks = kept
            .iter()
            .map(|&i| {
                let mut b = self.blocks[i].clone();
                for s in &mut b.successors {
                    *s = kept.binary_search(s).expect("a successor of a reachable block is reachable");
                }
                b
            })
            .collect();
        Self { blocks }
    }
}

fn leaders(code: &[Slot]) -> Vec<bool> {
    let mut leaders = vec![false; code.len()];
    if let Some(first) = leaders.first_mut() {
        *first = true;
    }
    let mut i = 0;
    while i < code.len() {
        let insn = decode(&code[i..]).expect("the verifier decoded every slot");
        let next = i + insn.slots();
        let ends = match insn {
            Insn::Ja { off } => {
                leaders[target(i, i64::from(off))] = true;
                true
            }
            Insn::Jmp { off, .. } => {
                leaders[target(i, i64::from(off))] = true;
                true
            }
            Insn::Exit => true,
            _ => false,
        };
        if ends && next < code.len() {
            leaders[next] = true;
        }
        i = next;
    }
    leaders
}

fn last_insn(code: &[Slot], start: usize, end: usize) -> (usize, Insn) {
    let mut i = start;
    loop {
        let insn = decode(&code[i..]).expect("the verifier decoded every slot");
        if i + insn.slots() >= end {
            return (i, insn);
        }
        i += insn.slots();
    }
}

fn target(at: usize, off: i64) -> usize {
    usize::try_from(at as i64 + 1 + off).expect("the verifier checked every target")
}
