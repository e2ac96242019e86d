//! How a loop counts its own trips: variables that step by a constant, and exit tests that say how
//! many trips are left. A fast copy needs no counter of its own where the loop has one.

use super::analysis::{Body, Pass};
use super::conditions::Conditions;
use super::linear::{Form, Linear, Terms};
use crate::insn::{Cond, Width};
use crate::ir::lower::charge;
use crate::ir::{BlockId, Op, Term, Value, Var};
use std::collections::{BTreeMap, BTreeSet};

/// Larger steps could wrap around within the trips that a guard allows.
const STEP_MAX: i64 = 1 << 40;

/// A variable that every trip changes by the same amount.
#[derive(Clone, Debug)]
pub(super) struct Counter {
    pub(super) var: Var,
    /// Not 0.
    pub(super) step: i64,
    /// By how much it differs from its value at the header, at the end of each block where that is
    /// known. No loop inside writes it.
    pub(super) after: BTreeMap<BlockId, i64>,
}

/// A branch that leaves the loop unless `of < bound` (or another relation), where `of` moves by `step`
/// a trip and `bound` stays.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ExitTest {
    pub(super) relation: Relation,
    pub(super) width: Width,
    /// In terms of the header's variables, in the first trip.
    pub(super) of: Linear,
    pub(super) bound: Linear,
    pub(super) step: i64,
}

/// The condition for the loop to continue. `of` rises in the first two and falls in the second two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Relation {
    Below { signed: bool },
    BelowOrEqual { signed: bool },
    Above { signed: bool },
    AboveOrEqual { signed: bool },
    Different,
}

/// Where the chosen exit test is made.
#[derive(Clone, Debug)]
pub(super) enum Tested {
    /// By the blocks just before latches.
    AtLatch(Vec<BlockId>),
    /// By a block that every trip passes earlier.
    Before(BlockId),
}

/// The variables that may serve as counters, best first. `proved` are the conditions that the guard
/// proves anyway.
pub(super) fn counters(body: &Body<'_>, pass: &Pass, proved: &Conditions, preferred: Option<Var>) -> Vec<Counter> {
    let written_inside: BTreeSet<Var> = body.inner_loops.values().flat_map(|i| &i.written).copied().collect();
    let mut counters: Vec<Counter> = (0..body.func.vars)
        .map(Var)
        .filter(|v| !written_inside.contains(v) && !body.slots.has(*v) && pass.latch.conditions(*v).is_subset(proved))
        .filter_map(|var| {
            let step = pass.exact_step(var).filter(|s| *s != 0 && s.abs() < STEP_MAX)?;
            let offset = |b: &BlockId| Some((*b, pass.at_end.get(b)?.get(var).offset_from(var)?));
            Some(Counter { var, step, after: body.order.iter().filter_map(offset).collect() })
        })
        .collect();
    // A power of two is cheap to divide by.
    counters.sort_by_key(|c| (Some(c.var) != preferred, c.step.unsigned_abs().count_ones() != 1));
    counters
}

/// The exit test that gives the number of trips, and where it is made.
pub(super) fn exit_test(body: &Body<'_>, pass: &Pass, proved: &Conditions) -> Option<(ExitTest, Tested)> {
    let mut before = None;
    let mut at_latch: Option<(ExitTest, Vec<BlockId>)> = None;
    for &b in body.order.iter().filter(|b| !body.inner.contains(b)) {
        let Some((test, stays_at)) = test_of(body, pass, proved, b) else {
            continue;
        };
        if body.is_lone_latch(stays_at) {
            match &mut at_latch {
                None => at_latch = Some((test, vec![b])),
                Some((first, all)) if *first == test => all.push(b),
                Some(_) => {}
            }
        } else if before.is_none() && body.latches().all(|l| body.graph.dominates(b, l)) {
            before = Some((test, Tested::Before(b)));
        }
    }
    at_latch.map(|(test, blocks)| (test, Tested::AtLatch(blocks))).or(before)
}

/// The test at the end of a block, and where it goes to stay in the loop.
fn test_of(body: &Body<'_>, pass: &Pass, proved: &Conditions, b: BlockId) -> Option<(ExitTest, BlockId)> {
    let Term::Branch { width, cond, lhs, rhs, then, otherwise } = body.func.blocks[b.0 as usize].term else {
        return None;
    };
    let inside = |s: BlockId| body.the_loop.blocks.contains(&s);
    let (stays_at, cond) = match (inside(then), inside(otherwise)) {
        (true, false) => (then, cond),
        (false, true) => (otherwise, cond.negated()?),
        _ => return None,
    };
    let state = pass.at_end.get(&b)?;
    let l = exact(state.get(lhs))?;
    let r = match rhs {
        Value::Var(v) => exact(state.get(v))?,
        Value::Imm(i) => Linear { terms: Terms::default(), lo: i, hi: i },
    };
    let mut rests_on = state.conditions(lhs).clone();
    if let Value::Var(v) = rhs {
        rests_on.extend(state.conditions(v));
    }
    for form in [&l, &r] {
        rests_on.extend(&pass.conditions_of_steps(form));
    }
    if width == Width::W32 {
        // The low half moves by the step whether or not the whole fits 32 bits.
        rests_on.retain(|&i| !pass.is_about_width(i));
    }
    if !rests_on.is_subset(proved) {
        return None;
    }
    let (of, bound, cond, step) = match (pass.step_of_form(&l)?, pass.step_of_form(&r)?) {
        (step, 0) => (l, r, cond, step),
        (0, step) => (r, l, mirrored(cond), step),
        _ => return None,
    };
    let rises = step > 0;
    let relation = match cond {
        Cond::Ne => Relation::Different,
        Cond::Lt if rises => Relation::Below { signed: false },
        Cond::SLt if rises => Relation::Below { signed: true },
        Cond::Le if rises => Relation::BelowOrEqual { signed: false },
        Cond::SLe if rises => Relation::BelowOrEqual { signed: true },
        Cond::Gt if !rises => Relation::Above { signed: false },
        Cond::SGt if !rises => Relation::Above { signed: true },
        Cond::Ge if !rises => Relation::AboveOrEqual { signed: false },
        Cond::SGe if !rises => Relation::AboveOrEqual { signed: true },
        _ => return None,
    };
    let small = step != 0 && step.abs() < if width == Width::W32 { 1 << 30 } else { STEP_MAX };
    small.then_some((ExitTest { relation, width, of, bound, step }, stays_at))
}

fn exact(form: &Form) -> Option<Linear> {
    match form {
        Form::Linear(l) if l.lo == l.hi => Some(l.clone()),
        _ => None,
    }
}

/// The condition with its sides exchanged.
fn mirrored(cond: Cond) -> Cond {
    match cond {
        Cond::Gt => Cond::Lt,
        Cond::Ge => Cond::Le,
        Cond::Lt => Cond::Gt,
        Cond::Le => Cond::Ge,
        Cond::SGt => Cond::SLt,
        Cond::SGe => Cond::SLe,
        Cond::SLt => Cond::SGt,
        Cond::SLe => Cond::SGe,
        symmetric => symmetric,
    }
}

impl Body<'_> {
    /// Blocks of the loop that go back to its header, except those by which they ask for fuel.
    pub(super) fn latches(&self) -> impl Iterator<Item = BlockId> + '_ {
        let header = self.the_loop.header;
        let ways = self.graph.predecessors(header);
        let asks = |b: &BlockId| self.func.blocks[b.0 as usize].ops.last().is_some_and(|(op, _)| *op == Op::Refill);
        ways.iter().copied().filter(move |b| self.the_loop.blocks.contains(b) && !asks(b))
    }

    /// Whether a block does nothing but pay for an edge to the header, and only one block leads to it.
    fn is_lone_latch(&self, b: BlockId) -> bool {
        let block = &self.func.blocks[b.0 as usize];
        let pays = matches!(&block.ops[..], [(op, _)] if *op == charge());
        let goes_back = matches!(block.term,
            Term::Branch { lhs: Var::FUEL, otherwise, .. } if otherwise == self.the_loop.header);
        pays && goes_back && self.graph.predecessors(b).len() == 1
    }
}
