//! The optimiser: from a check at every access to checks before loops.
//!
//! For each loop, inner ones first, `analysis` finds out how addresses move from trip to trip.
//! Where they move by bounded steps, `version` puts a guard before the loop that computes for how
//! many trips every access stays inside its region, and a copy of the loop that runs that many trips
//! without checks and without paying for each trip. When the guard proves nothing, the original loop
//! runs, so a trap is always the checked one.
//!
//! The analysis is trusted: what it calls proved is not checked again by compiled code. The
//! interpreter checks it again, and the differential tests run both forms.

mod analysis;
mod exits;
mod graph;
mod linear;
mod version;

use crate::ir::{Func, LoopReport, Module};
use graph::Graph;

/// Beyond this many operations a function is left as it is.
const OPS_MAX: usize = 50_000;
/// How much versioning may multiply a function.
const GROWTH_MAX: usize = 12;

/// The module with checks hoisted out of loops.
#[must_use]
pub fn optimise(module: &Module) -> Module {
    let mut module = module.clone();
    module.functions.iter_mut().for_each(optimise_function);
    module
}

fn optimise_function(func: &mut Func) {
    let limit = (size(func) * GROWTH_MAX).min(OPS_MAX);
    for header in Graph::new(func).loop_headers() {
        let graph = Graph::new(func);
        let Some(the_loop) = graph.natural_loop(header) else {
            continue;
        };
        let mut report = LoopReport {
            insn: version::first_insn(func, header),
            accesses: 0,
            unchecked: 0,
            hoisted: false,
            why: Vec::new(),
        };
        let grown: usize = the_loop.blocks.iter().map(|b| func.blocks[b.0 as usize].ops.len() + 1).sum();
        if size(func) + grown > limit {
            report.why.push("the function would grow too much".into());
        } else if let Some(plan) = analysis::analyse(func, &graph, &the_loop) {
            report.accesses = plan.accesses;
            report.unchecked = plan.covered.len() as u32;
            report.hoisted = !plan.covered.is_empty();
            report.why.clone_from(&plan.why);
            if report.hoisted {
                version::version(func, &the_loop, &plan);
            }
        } else {
            report.why.push("control enters the loop in the middle".into());
        }
        func.loops.push(report);
    }
    func.loops.sort_by_key(|l| l.insn);
}

fn size(func: &Func) -> usize {
    func.blocks.iter().map(|b| b.ops.len() + 1).sum()
}
