//! The optimiser: from a check at every access to checks before loops.
//!
//! `analysis` finds out how addresses move from trip to trip of a loop. Where they move by bounded
//! steps, `version` puts a guard before the loop that computes for how many trips every access stays
//! inside its region, and lets a fast form of the loop run that many trips without checks and, where it
//! can, without paying for each trip. When the guard proves nothing, a slow form runs, which is the loop
//! as it was, so a trap is always the checked one.
//!
//! What the guard of a loop inside would find each time that control comes to it, `ahead` has the guard of
//! the loop around find out for all times, where it can.
//!
//! Outer loops come first: each outermost loop that can have a guard is copied once, and the loops
//! inside it find their slow forms in that copy. So code grows to twice its size at most, however deep
//! loops are nested.
//!
//! The analysis is trusted: what it calls proved is not checked again by compiled code. The
//! interpreter checks it again, and the differential tests run both forms.

mod ahead;
mod analysis;
mod graph;
mod guard;
mod inner;
mod linear;
mod trips;
mod version;

use crate::ir::{Block, Func, LoopReport, Module, Term};
use ahead::Ahead;
use analysis::{Outlook, Plan};
use graph::{Graph, Nest};
use version::{Entrance, Inner, Twins};

/// Beyond this many operations a function is left as it is.
const OPS_MAX: usize = 50_000;

/// The module with checks hoisted out of loops.
#[must_use]
pub fn optimise(module: &Module) -> Module {
    let mut module = module.clone();
    module.functions.iter_mut().for_each(optimise_function);
    module
}

fn optimise_function(func: &mut Func) {
    for nest in Graph::new(func).loop_nests() {
        hoist(func, &nest, None);
    }
    func.loops.sort_by_key(|l| l.insn);
    drop_unreachable(func);
}

/// Hoists checks out of a loop and the loops inside. `slow` has the copies of its blocks, if it lies in
/// a loop that was copied. Gives how a loop around may get past the guard.
fn hoist(func: &mut Func, nest: &Nest, slow: Option<&Twins>) -> Option<(Entrance, Plan)> {
    let the_loop = &nest.the_loop;
    let mut report = LoopReport {
        insn: version::first_insn(func, the_loop.header),
        accesses: 0,
        unchecked: 0,
        hoisted: false,
        why: Vec::new(),
    };
    let analysis = analysis::analyse(func, &Graph::new(func), the_loop);
    match &analysis {
        Some((plan, _)) => {
            report.accesses = plan.accesses;
            report.unchecked = plan.unchecked;
            report.hoisted = !plan.covered.is_empty();
            report.why.clone_from(&plan.why);
        }
        None => report.why.push("control enters the loop in the middle".into()),
    }
    if let Some((_, outlook)) = &analysis
        && !report.hoisted
    {
        report.hoisted = looks_ahead(func, nest, outlook);
    }
    let grown: usize = the_loop.blocks.iter().map(|b| size(&func.blocks[b.0 as usize])).sum();
    if report.hoisted && slow.is_none() && func.blocks.iter().map(size).sum::<usize>() + grown > OPS_MAX {
        report.why.push("the function would grow too much".into());
        (report.hoisted, report.unchecked) = (false, 0);
    }
    let analysis = analysis.filter(|_| report.hoisted);
    if let Some(twins) = slow {
        // What the guard of a loop around has covered already.
        let covered = version::covered_before(func, nest, twins);
        report.accesses += covered;
        report.unchecked += covered;
        report.hoisted |= covered > 0;
    }
    func.loops.push(report);
    let Some((mut plan, outlook)) = analysis else {
        for inner in &nest.inner {
            hoist(func, inner, slow);
        }
        return None;
    };
    let copied = slow.is_none().then(|| version::copy(func, the_loop));
    let twins = slow.or(copied.as_ref()).expect("one or the other");
    version::cover(func, &plan);
    let mut inner_loops = Vec::new();
    for inner in &nest.inner {
        let first = func.blocks.len() as u32;
        let header = inner.the_loop.header;
        let hoisted = hoist(func, inner, Some(twins));
        inner_loops.push(Inner { header, added: first..func.blocks.len() as u32 });
        if let Some((entrance, inside)) = hoisted
            && let Some(ahead) = Ahead::new(func, &outlook, header, &inside)
        {
            ahead.take(func, &entrance);
            plan.ahead.push(ahead);
        }
    }
    let entrance = version::version(func, the_loop, &plan, twins, &inner_loops, copied.is_some())?;
    Some((entrance, plan))
}

/// Whether a guard of a loop without accesses of its own could stand for one of a loop inside.
fn looks_ahead(func: &mut Func, nest: &Nest, outlook: &Outlook) -> bool {
    nest.inner.iter().filter(|inner| inner.inner.is_empty()).any(|inner| {
        let inside = analysis::analyse(func, &Graph::new(func), &inner.the_loop);
        let inside = inside.filter(|(plan, _)| !plan.covered.is_empty());
        inside.is_some_and(|(plan, _)| Ahead::new(func, outlook, inner.the_loop.header, &plan).is_some())
    })
}

fn size(block: &Block) -> usize {
    block.ops.len() + 1
}

/// Removes blocks that nothing leads to any more.
fn drop_unreachable(func: &mut Func) {
    let order_of = Graph::new(func).order_of;
    let mut new_ids = Vec::with_capacity(order_of.len());
    let mut next = 0;
    for reachable in &order_of {
        new_ids.push(crate::ir::BlockId(next));
        next += u32::from(reachable.is_some());
    }
    let mut reachable = order_of.iter().map(Option::is_some);
    func.blocks.retain(|_| reachable.next().expect("one for each block"));
    for block in &mut func.blocks {
        match &mut block.term {
            Term::Jump(to) => *to = new_ids[to.0 as usize],
            Term::Branch { then, otherwise, .. } => {
                *then = new_ids[then.0 as usize];
                *otherwise = new_ids[otherwise.0 as usize];
            }
            Term::Return => {}
        }
    }
}
