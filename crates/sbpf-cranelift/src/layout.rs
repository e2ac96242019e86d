//! How deep in loops each block lies: the translation lets a loop fall through to itself and leave by
//! a jump, and puts what runs rarely out of the way.

use diskside_sbpf::ir::Func;

/// The loops that each block is in.
///
/// Loops are natural ones, found by the retreating edges of a depth-first walk; where control enters
/// a loop in the middle the answer is a guess, which costs speed at most.
#[derive(Debug)]
pub(crate) struct Loops {
    /// How many; 0 outside of loops and for unreachable blocks.
    pub(crate) depths: Vec<u32>,
    /// The header of the innermost one.
    pub(crate) innermost: Vec<Option<usize>>,
}

impl Loops {
    pub(crate) fn new(func: &Func) -> Self {
        let count = func.blocks.len();
        let successors: Vec<Vec<usize>> =
            func.blocks.iter().map(|b| b.term.successors().map(|s| s.0 as usize).collect()).collect();
        let mut predecessors = vec![Vec::new(); count];
        for (from, to) in successors.iter().enumerate() {
            for &to in to {
                predecessors[to].push(from);
            }
        }
        let mut depths = vec![0; count];
        let mut innermost: Vec<Option<(usize, usize)>> = vec![None; count];
        let mut latches_by_header = std::collections::BTreeMap::<usize, Vec<usize>>::new();
        for (latch, header) in retreating_edges(&successors) {
            latches_by_header.entry(header).or_default().push(latch);
        }
        for (header, latches) in latches_by_header {
            // Everything that reaches a latch without passing the header is in the loop.
            let mut inside = vec![false; count];
            inside[header] = true;
            let mut waiting = latches;
            while let Some(block) = waiting.pop() {
                if !std::mem::replace(&mut inside[block], true) {
                    waiting.extend(&predecessors[block]);
                }
            }
            let len = inside.iter().filter(|b| **b).count();
            for (block, _) in inside.into_iter().enumerate().filter(|(_, inside)| *inside) {
                depths[block] += 1;
                if innermost[block].is_none_or(|(least, _)| len < least) {
                    innermost[block] = Some((len, header));
                }
            }
        }
        Self { depths, innermost: innermost.into_iter().map(|i| i.map(|(_, header)| header)).collect() }
    }
}

/// The blocks that can be reached, each after those that lead to it but for loops.
pub(crate) fn reverse_postorder(func: &Func) -> Vec<usize> {
    let mut seen = vec![false; func.blocks.len()];
    seen[0] = true;
    let mut order = Vec::with_capacity(func.blocks.len());
    let mut path = vec![(0, func.blocks[0].term.successors())];
    while let Some((block, ways)) = path.last_mut() {
        match ways.next().map(|s| s.0 as usize) {
            Some(to) if !seen[to] => {
                seen[to] = true;
                path.push((to, func.blocks[to].term.successors()));
            }
            Some(_) => {}
            None => {
                order.push(*block);
                path.pop();
            }
        }
    }
    order.reverse();
    order
}

fn retreating_edges(successors: &[Vec<usize>]) -> Vec<(usize, usize)> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        OnPath,
        Done,
    }
    let mut marks = vec![Mark::New; successors.len()];
    let mut edges = Vec::new();
    let mut path = vec![(0, 0)];
    marks[0] = Mark::OnPath;
    while let Some((block, next)) = path.last_mut() {
        let Some(&to) = successors[*block].get(*next) else {
            marks[*block] = Mark::Done;
            path.pop();
            continue;
        };
        *next += 1;
        match marks[to] {
            Mark::New => {
                marks[to] = Mark::OnPath;
                path.push((to, 0));
            }
            Mark::OnPath => edges.push((*block, to)),
            Mark::Done => {}
        }
    }
    edges
}
