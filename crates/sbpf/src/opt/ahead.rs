//! The guard of an inner loop, made ahead: once for many trips of the outer loop.
//!
//! ```text
//!     guard of the loop around:  edges = what the loop inside takes each time, or too many
//!
//!     first:   taken = edges                 direct:   FUEL = left, goto settled with these edges
//!              goto asks
//!     again:   taken = too many              guard:    as it was, and leads to settled or slow;
//!              goto asks                               what led back to it leads to again
//!     asks:    left = FUEL - taken
//!              if left < 0 goto guard        settled:  limit = where the counter is after so many edges
//!              goto direct                             goto fast
//! ```
//! Where the inner loop begins at addresses that move by strides, and runs the same number of trips each time,
//! its guard would find the same each time: that there is room, for that number of trips. So the guard of
//! the outer loop finds it for all of its trips, as far as they go, and the only question left is
//! whether there is fuel. When it finds nothing, the inner loop asks its own guard, as it did.

use super::analysis::{Outlook, Plan};
use super::conditions::Conditions;
use super::constraint::{Constraint, Within};
use super::emit::{Around, Entrance, alu, fresh, mov, retarget};
use super::linear::{Form, Linear};
use super::trips::{ExitTest, Relation, Tested};
use crate::insn::{AluOp, Cond, Width};
use crate::ir::{Block, BlockId, Func, Op, Term, Value, Var};
use crate::machine::SLICE_EDGES;
use crate::region::{REGION_COUNT, REGION_SHIFT};
use std::collections::BTreeSet;

/// Loops with more edges ask their own guard.
pub(super) const EDGES_MAX: i64 = (1 << 20) - 1;

/// Bits of a number of edges.
pub(super) const EDGES_BITS: u8 = 31;

/// More edges than there ever is fuel.
pub(super) const TOO_MANY: i64 = (1 << EDGES_BITS) - 1;
const _: () = assert!(TOO_MANY > EDGES_MAX && TOO_MANY > SLICE_EDGES);

/// Bits of the address of a region, and of what lies near it.
const ADDRESS_BITS: u32 = 48;
const _: () = assert!((REGION_COUNT as u64) << REGION_SHIFT <= 1 << ADDRESS_BITS);

/// The most that a place may move in a trip of the loop inside.
const SPREAD_MAX: i64 = 1 << 32;

/// The values that the guard of an outer loop computes for an inner loop, all in terms of its own header's variables.
#[derive(Debug)]
pub(super) struct Ahead {
    /// Gets the number of edges.
    pub(super) edges: Var,
    /// The same in all trips; that many edges are its quotient by `step`, or none if it is negative.
    pub(super) numerator: Linear,
    pub(super) step: u64,
    /// The conditions that hold in every trip, and how far the places move down and up in a trip of the inner loop.
    pub(super) constraints: Vec<(Constraint, (i64, i64))>,
    /// As those of a plan.
    pub(super) equalities: BTreeSet<(Var, Var, i64)>,
}

impl Ahead {
    /// The conditions that prove the plan of an inner loop for every entry of it, if that can be told.
    pub(super) fn new(func: &mut Func, around: &Outlook, header: BlockId, inside: &Plan) -> Option<Self> {
        let entry = around.entries.get(&header)?;
        let (test, Tested::AtLatch(_)) = inside.exit_test.as_ref()? else {
            return None;
        };
        let mut needed = Conditions::new();
        let mut in_terms_around = |form: &Linear| {
            form.terms.iter().for_each(|&(v, _)| needed.extend(entry.conditions(v)));
            let form = form.substituted(entry).linear()?.clone();
            needed.extend(&around.pass.conditions_of_steps(&form));
            Some(form)
        };
        let (of, bound) = (in_terms_around(&test.of)?, in_terms_around(&test.bound)?);
        let numerator = numerator(test, &of, &bound)?;
        if !numerator.terms.iter().all(|t| around.pass.stays(t.0)) {
            return None;
        }
        let mut constraints = Vec::new();
        for c in &inside.constraints {
            let form = in_terms_around(&Linear { terms: c.terms.clone(), lo: c.lo, hi: c.lo })?;
            let end = form.hi.checked_add(c.end - c.lo)?;
            let spread = (-c.step.lo.min(0), c.step.hi.max(0));
            if !c.step.terms.is_empty() || spread.0 >= SPREAD_MAX || spread.1 >= SPREAD_MAX {
                return None;
            }
            constraints.push((Constraint::new(&around.deltas, &form, end, c.within)?, spread));
        }
        for &(var, of, plus) in &inside.equalities {
            let (var, of) = (in_terms_around(&variable(var))?, in_terms_around(&variable(of))?);
            let is_sure = of.offset(plus) == Form::Linear(var.clone()) && is_one(&var);
            is_sure.then_some(())?;
        }
        let mut others = Vec::new();
        for (side, bits) in compared_as_integers(test, &of, &bound) {
            let is_address = |c: &Constraint| {
                matches!(c.within, Within::Region { .. }) && c.terms == side.terms && side.lo.abs_diff(c.lo) < 1 << 16
            };
            // A place near one that lies in its region has no more bits than addresses have.
            if bits < ADDRESS_BITS || !constraints.iter().any(|(c, _)| is_address(c)) {
                others.push(Constraint::new(&around.deltas, side, side.hi.checked_add(1)?, Within::Bits(bits))?);
            }
        }
        let mut equalities = BTreeSet::new();
        around.pass.prove(needed, &around.deltas, &mut others, &mut equalities)?;
        constraints.extend(others.into_iter().map(|c| (c, (0, 0))));
        Some(Self { edges: fresh(func), numerator, step: test.step.unsigned_abs(), constraints, equalities })
    }

    /// Whether it holds in all trips of the outer loop if it holds in the first.
    pub(super) fn is_for_ever(&self) -> bool {
        self.constraints.iter().all(|(c, _)| c.step.is_zero())
    }

    /// Lets control enter the loop inside past its guard.
    pub(super) fn take(&self, func: &mut Func, entrance: &Entrance, around: &Around<'_>) {
        let insn = entrance.insn;
        let push = |func: &mut Func, ops: Vec<Op>, term: Term| {
            let mut block = Block::empty(insn, term);
            block.ops.extend(ops.into_iter().map(|op| (op, insn)));
            func.blocks.push(block);
            BlockId(func.blocks.len() as u32 - 1)
        };
        let (taken, left) = (fresh(func), fresh(func));
        let pays = vec![mov(Var::FUEL, left.into()), mov(entrance.edges, self.edges.into())];
        let direct = push(func, pays, Term::Jump(entrance.settled));
        let has_fuel = Term::Branch {
            width: Width::W64,
            cond: Cond::SLt,
            lhs: left,
            rhs: Value::Imm(0),
            then: entrance.guard,
            otherwise: direct,
        };
        let asks = push(func, vec![alu(AluOp::Sub, left, Var::FUEL, taken.into())], has_fuel);
        let first = push(func, vec![mov(taken, self.edges.into())], Term::Jump(asks));
        let again = push(func, vec![mov(taken, Value::Imm(TOO_MANY))], Term::Jump(asks));
        func.blocks[again.0 as usize].cold = true;
        func.blocks[entrance.guard.0 as usize].cold = true;
        for b in around.blocks(func).into_iter().filter(|b| *b != asks) {
            let block = &mut func.blocks[b.0 as usize];
            if entrance.from.contains(&b) {
                retarget(&mut block.term, entrance.guard, first);
            } else if block.term.successors().any(|s| s == entrance.guard) {
                // The trips are over before their number is, unless fuel ran out on the way.
                block.cold = true;
                retarget(&mut block.term, entrance.guard, again);
            }
        }
    }
}

/// The number of edges is a quotient of this: how often the test lets control continue.
fn numerator(test: &ExitTest, of: &Linear, bound: &Linear) -> Option<Linear> {
    let step = test.step.abs();
    let (from, to) = if test.step > 0 { (of, bound) } else { (bound, of) };
    let more = match test.relation {
        Relation::Below { .. } | Relation::Above { .. } | Relation::Different => step - 1,
        Relation::BelowOrEqual { .. } | Relation::AboveOrEqual { .. } => step,
    };
    let distance = to.add(from.scale(-1).linear()?).linear()?.offset(more);
    distance.linear().filter(|d| is_one(d)).cloned()
}

/// The forms that have to fit so many bits, so that wherever the test is said to let control continue, it compares
/// integers that do not wrap around. In 64 bits that is the lesser side: the other is so many steps away, at most.
fn compared_as_integers<'a>(test: &ExitTest, of: &'a Linear, bound: &'a Linear) -> Vec<(&'a Linear, u32)> {
    match (test.width, test.step > 0) {
        (Width::W32, _) => vec![(of, 31), (bound, 31)],
        (Width::W64, true) => vec![(of, ADDRESS_BITS)],
        (Width::W64, false) => vec![(bound, ADDRESS_BITS)],
    }
}

fn is_one(form: &Linear) -> bool {
    form.lo == form.hi
}

fn variable(v: Var) -> Linear {
    Linear { terms: [(v, 1)].into_iter().collect(), lo: 0, hi: 0 }
}
