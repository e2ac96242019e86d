//! The effects of an inner loop on variables, as far as the outer loop's analysis needs them.
//!
//! For most inner loops it knows only which variables they write. A loop that counts a variable down to
//! a constant, from a value that is known to be small, runs for a known number of trips at most: then
//! a variable that steps by a bounded amount in each trip changes by a bounded amount in all.

use super::analysis::{Body, NotAnalysed, Pass, settle};
use super::conditions::Conditions;
use super::graph::Nest;
use super::linear::State;
use super::slots::{NO_SLOTS, Slots};
use super::trips::{self, Relation, Tested};
use crate::insn::Width;
use crate::ir::{BlockId, Func, Var};
use crate::work::{Exhausted, Work};
use std::collections::{BTreeMap, BTreeSet};

/// A loop inside.
#[derive(Debug)]
pub(super) struct InnerLoop {
    pub(super) blocks: BTreeSet<BlockId>,
    pub(super) written: BTreeSet<Var>,
    countdown: Option<Countdown>,
}

/// How many retreating edges loops take.
#[derive(Clone, Debug, Default)]
pub(super) struct Edges {
    pub(super) most: i64,
    /// The conditions under which that holds.
    pub(super) rest_on: Conditions,
}

/// A variable that falls by `by` a trip; there is another trip while it is then above `bound`.
#[derive(Debug)]
struct Countdown {
    var: Var,
    by: i64,
    bound: i64,
    /// How much other variables change in a trip, at least and at most.
    steps: BTreeMap<Var, (i64, i64)>,
}

/// A loop with more trips gets a guard of its own.
const TRIPS_MAX: i64 = 64;

impl InnerLoop {
    pub(super) fn new(func: &Func, nest: &Nest, slots: &Slots, work: &Work) -> Result<Self, Exhausted> {
        let the_loop = &nest.the_loop;
        let mut written = BTreeSet::new();
        for b in &the_loop.blocks {
            work.spend(func.blocks[b.0 as usize].ops.len() as u64)?;
            for (op, _) in &func.blocks[b.0 as usize].ops {
                op.each_write(|v| {
                    written.insert(v);
                });
            }
        }
        written.extend(slots.written_in(func, &the_loop.blocks));
        let countdown = match countdown(func, nest, &written, work) {
            Err(NotAnalysed::Exhausted) => return Err(Exhausted),
            Err(_) => None,
            Ok(found) => found,
        };
        Ok(Self { blocks: the_loop.blocks.clone(), written, countdown })
    }

    /// From the state in which control comes to the loop to one that holds in each of its trips. Gives how many
    /// edges it takes at most, where that is bounded.
    pub(super) fn enter(&self, state: &mut State) -> Option<Edges> {
        let range = self.countdown.as_ref().and_then(|c| Some((c, state.get(c.var).range()?)));
        // Below its step the first trip would wrap around.
        let Some((c, (lo, hi))) = range.filter(|(c, (lo, hi))| *lo >= c.by && hi / c.by <= TRIPS_MAX) else {
            self.written.iter().for_each(|&v| state.forget(v));
            return None;
        };
        let repeats = hi / c.by - 1;
        let edges = Edges { most: repeats, rest_on: state.conditions(c.var).clone() };
        for &v in &self.written {
            if v == c.var {
                state.narrow(v, lo.min(c.bound + 1), hi);
            } else if let Some(&(least, most)) = c.steps.get(&v) {
                state.widen(v, ((repeats * least).min(0), (repeats * most).max(0)), c.var);
            } else {
                state.forget(v);
            }
        }
        Some(edges)
    }
}

fn countdown(func: &Func, nest: &Nest, written: &BTreeSet<Var>, work: &Work) -> Result<Option<Countdown>, NotAnalysed> {
    if !nest.inner.is_empty() {
        return Ok(None);
    }
    let body = Body::new(func, nest, &NO_SLOTS, work)?;
    if body.latches().count() != 1 {
        return Ok(None);
    }
    let (pass, _) = settle(&body)?;
    Ok(counts_down(&body, &pass, written))
}

fn counts_down(body: &Body<'_>, pass: &Pass, written: &BTreeSet<Var>) -> Option<Countdown> {
    let unconditional = Conditions::new();
    let (test, Tested::AtLatch(_)) = trips::exit_test(body, pass, &unconditional)? else {
        return None;
    };
    let &[(var, 1)] = &test.of.terms[..] else {
        return None;
    };
    let is_countdown = test.relation == Relation::Above { signed: false }
        && test.width == Width::W64
        && test.bound.terms.is_empty()
        // The variable is compared after its step, and the next step cannot wrap around.
        && pass.exact_step(var) == Some(test.step)
        && test.of.lo == test.step
        && test.bound.lo >= -test.step - 1
        && test.bound.lo < 1 << 32;
    if !is_countdown {
        return None;
    }
    let small = |s: &(i64, i64)| s.0.abs() < 1 << 32 && s.1.abs() < 1 << 32;
    let step = |&v: &Var| {
        let step = pass.step(v).filter(small).filter(|_| pass.latch.conditions(v).is_empty())?;
        Some((v, step))
    };
    Some(Countdown { var, by: -test.step, bound: test.bound.lo, steps: written.iter().filter_map(step).collect() })
}
