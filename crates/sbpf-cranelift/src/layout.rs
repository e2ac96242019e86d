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
        let mut latches_by_header = std::collections::BTreeMap::<usize, Vec<usize>>::new();
        for (latch, header) in retreating_edges(&successors) {
            latches_by_header.entry(header).or_default().push(latch);
        }
        // The header of the outermost loop that a block is known to be in. A loop that was found counts as one block
        // for those around it, so that each edge is looked at once.
        let mut outermost: Vec<usize> = (0..count).collect();
        let mut innermost = vec![None; count];
        let mut around = vec![None; count];
        let mut found = Vec::new();
        for header in reverse_postorder(func).into_iter().rev() {
            let Some(mut waiting) = latches_by_header.remove(&header) else { continue };
            if outermost[header] != header {
                // Entered in the middle, it lies in one of those that it goes around.
                continue;
            }
            found.push(header);
            innermost[header] = Some(header);
            while let Some(block) = waiting.pop() {
                let block = representative(&mut outermost, block);
                if block == header {
                    continue;
                }
                outermost[block] = header;
                match innermost[block] {
                    Some(inner) if inner == block => around[block] = Some(header),
                    _ => innermost[block] = Some(header),
                }
                waiting.extend(&predecessors[block]);
            }
        }
        let mut depths = vec![0; count];
        for header in found.into_iter().rev() {
            depths[header] = 1 + around[header].map_or(0, |h: usize| depths[h]);
        }
        for block in 0..count {
            depths[block] = innermost[block].map_or(0, |header| depths[header]);
        }
        Self { depths, innermost }
    }
}

/// The header of the outermost known loop, shortening the way for the next lookup.
fn representative(outermost: &mut [usize], block: usize) -> usize {
    let mut top = block;
    while outermost[top] != top {
        top = outermost[top];
    }
    let mut at = block;
    while at != top {
        at = std::mem::replace(&mut outermost[at], top);
    }
    top
}

/// The blocks that can be reached, each after those that lead to it, except for loops.
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
