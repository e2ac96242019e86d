//! Tests at the end of a trip that decide whether there is another.
//!
//! Where such a test compares something that moves by a fixed step with something that stays, the guard
//! can tell for how many trips it says "another". The fast copy runs so many trips without the test and
//! makes it after the last: one comparison a trip less, and one way out instead of two, which is what
//! vectorising compilers ask for.

use super::analysis::{Body, Pass};
use super::linear::{Condition, Conditions, Form, Linear};
use crate::insn::{Cond, Width};
use crate::ir::lower::charge;
use crate::ir::{BlockId, Term, Value, Var};

/// A test whose outcome is known for a number of trips.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ExitTest {
    /// The block that ends with it.
    pub(super) block: BlockId,
    /// The block that pays for another trip; it comes next when there is one.
    pub(super) latch: BlockId,
    /// What is compared in the first trip: terms, and a constant.
    pub(super) terms: Vec<(Var, i64)>,
    pub(super) constant: i64,
    /// How much that changes in a trip; not 0.
    pub(super) step: i64,
    /// What it is compared with, in this width.
    pub(super) limit: Value,
    pub(super) width: Width,
    /// When there is another trip.
    pub(super) stays: Stays,
}

/// On which side of the limit there is another trip. Ordered ones step towards the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stays {
    Unequal,
    Short { signed: bool },
    ShortOrEqual { signed: bool },
}

/// The tests of a loop, each with the conditions that its form rests on. `conditions` gets what they
/// ask for besides.
pub(super) fn find(
    body: &Body<'_>,
    pass: &Pass,
    deltas: &[(i64, i64)],
    conditions: &mut Vec<Condition>,
) -> Vec<(ExitTest, Conditions)> {
    let outside = |b: &&BlockId| !body.inner.contains(b);
    body.order.iter().filter(outside).filter_map(|&b| test_of(body, pass, deltas, b, conditions)).collect()
}

fn test_of(
    body: &Body<'_>,
    pass: &Pass,
    deltas: &[(i64, i64)],
    block: BlockId,
    conditions: &mut Vec<Condition>,
) -> Option<(ExitTest, Conditions)> {
    let Term::Branch { width, cond, lhs, rhs, then, otherwise } = body.func.blocks[block.0 as usize].term else {
        return None;
    };
    let inside = |b: BlockId| body.the_loop.blocks.contains(&b);
    let (latch, cond) = match (inside(then), inside(otherwise)) {
        (true, false) => (then, cond),
        (false, true) => (otherwise, opposite(cond)?),
        _ => return None,
    };
    if !pays_only(body, latch) || body.graph.predecessors[latch.0 as usize] != [block] {
        return None;
    }
    let state = pass.at_end.get(&block)?;
    let moving = |v: Var| match state.get(v) {
        Form::Linear(l) => exact_step(l, deltas).map(|step| (l.clone(), step)),
        Form::Any => None,
    };
    // What stays is a constant, or a variable that no trip changes.
    let staying = |v: Var| match state.get(v) {
        Form::Linear(l) if l.terms.is_empty() && l.lo == l.hi => Some(Value::Imm(l.lo)),
        Form::Linear(l) if matches!(l.terms[..], [(_, 1)]) && (l.lo, l.hi) == (0, 0) => {
            let h = l.terms[0].0;
            (deltas[usize::from(h.0)] == (0, 0)).then_some(Value::Var(h))
        }
        _ => None,
    };
    let (tested, other, limit, cond) = match rhs {
        Value::Imm(_) => (lhs, None, rhs, cond),
        Value::Var(r) => match (staying(r), staying(lhs)) {
            (Some(limit), _) => (lhs, Some(r), limit, cond),
            (None, Some(limit)) => (r, Some(lhs), limit, mirrored(cond)),
            (None, None) => return None,
        },
    };
    let (form, step) = moving(tested)?;
    let stays = stays(cond, step)?;
    let mut rests_on = state.conditions(tested).clone();
    rests_on.extend(pass.conditions_of_steps(&form));
    if let Some(v) = other {
        rests_on.extend(state.conditions(v));
    }
    if let Value::Var(h) = limit {
        rests_on.extend(pass.latch.conditions(h));
    }
    if width == Width::W32 {
        // Then the low half is the whole, also as a signed number.
        let signed = matches!(stays, Stays::Short { signed: true } | Stays::ShortOrEqual { signed: true });
        let fits = Condition::Fits { form: form.clone(), bits: if signed { 31 } else { 32 } };
        rests_on.insert(super::linear::index_of(fits, conditions));
    }
    let test = ExitTest { block, latch, terms: form.terms, constant: form.lo, step, limit, width, stays };
    Some((test, rests_on))
}

/// The step of a form that is exact, and moves.
fn exact_step(form: &Linear, deltas: &[(i64, i64)]) -> Option<i64> {
    if form.lo != form.hi {
        return None;
    }
    let mut step = 0i64;
    for &(v, c) in &form.terms {
        let (lo, hi) = deltas[usize::from(v.0)];
        if lo != hi {
            return None;
        }
        step = step.checked_add(lo.checked_mul(c)?)?;
    }
    (step != 0 && step.unsigned_abs() < 1 << 40).then_some(step)
}

/// Whether a block does nothing but pay for an edge to the header.
fn pays_only(body: &Body<'_>, b: BlockId) -> bool {
    let block = &body.func.blocks[b.0 as usize];
    matches!(&block.ops[..], [(op, _)] if *op == charge())
        && matches!(block.term, Term::Branch { cond: Cond::SLt, lhs: Var::FUEL, otherwise, .. }
            if otherwise == body.the_loop.header)
}

fn stays(cond: Cond, step: i64) -> Option<Stays> {
    let up = step > 0;
    Some(match cond {
        Cond::Ne => Stays::Unequal,
        Cond::Lt if up => Stays::Short { signed: false },
        Cond::Le if up => Stays::ShortOrEqual { signed: false },
        Cond::SLt if up => Stays::Short { signed: true },
        Cond::SLe if up => Stays::ShortOrEqual { signed: true },
        Cond::Gt if !up => Stays::Short { signed: false },
        Cond::Ge if !up => Stays::ShortOrEqual { signed: false },
        Cond::SGt if !up => Stays::Short { signed: true },
        Cond::SGe if !up => Stays::ShortOrEqual { signed: true },
        _ => return None,
    })
}

fn opposite(cond: Cond) -> Option<Cond> {
    Some(match cond {
        Cond::Eq => Cond::Ne,
        Cond::Ne => Cond::Eq,
        Cond::Gt => Cond::Le,
        Cond::Ge => Cond::Lt,
        Cond::Lt => Cond::Ge,
        Cond::Le => Cond::Gt,
        Cond::SGt => Cond::SLe,
        Cond::SGe => Cond::SLt,
        Cond::SLt => Cond::SGe,
        Cond::SLe => Cond::SGt,
        Cond::Set => return None,
    })
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
        Cond::Eq | Cond::Ne | Cond::Set => cond,
    }
}
