//! Constraints that a guard has to prove: that places stay within a region, or numbers within their bits, in every trip.

use super::conditions::Conditions;
use super::linear::{Form, Linear, Terms};
use super::reason;
use crate::insn::Size;
use crate::ir::{BlockId, Var};
use crate::region::RegionId;
use std::collections::BTreeMap;

/// `form + [0, len)` lies in a region (or in `[0, 2^bits)`), in every trip.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Constraint {
    pub(super) within: Within,
    pub(super) terms: Terms,
    /// First byte of the lowest access, relative to the terms, in the first trip.
    pub(super) lo: i64,
    /// One past the last byte of the highest.
    pub(super) end: i64,
    /// How much the terms change in a trip: at least and at most, or by terms that stay the same.
    pub(super) step: Linear,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Within {
    Region { region: RegionId, write: bool },
    Bits(u32),
}

impl Within {
    /// Whether one range can replace both. A region is written as far as it is read, or not at all.
    fn is_about_the_same(self, other: Self) -> bool {
        match (self, other) {
            (Self::Region { region: a, .. }, Self::Region { region: b, .. }) => a == b,
            _ => self == other,
        }
    }

    fn stricter(self, other: Self) -> Self {
        if matches!(other, Self::Region { write: true, .. }) { other } else { self }
    }
}

/// An access of a loop, with what is known of its place.
pub(super) struct Access {
    pub(super) at: (BlockId, usize),
    pub(super) region: Option<RegionId>,
    pub(super) write: bool,
    pub(super) size: Size,
    pub(super) form: Form,
    pub(super) conditions: Conditions,
    pub(super) insn: u32,
}

/// More would cost more at each entry than they save.
const CONSTRAINTS_MAX: usize = 16;

/// In a region of unknown length, an address that data decide is proved for all values that they may have, if these lie no
/// farther apart: tables by a byte.
const SPREAD_MAX: i64 = 4096;
/// The same of the heap.
const HEAP_SPREAD_MAX: i64 = 1 << 20;

/// Whether data alone say where an access goes: to a table, which is as long in every trip.
pub(super) fn rests_on_data(deltas: &[Linear], form: &Form) -> bool {
    let Form::Linear(form) = form else { return false };
    form.lo != form.hi && step_of_terms(deltas, form).is_some_and(|step| step.is_zero())
}

/// The constraints that cover one more access, and its region.
pub(super) fn cover(
    old: &[Constraint],
    deltas: &[Linear],
    access: &Access,
    lens: &BTreeMap<RegionId, u64>,
) -> Result<(RegionId, Vec<Constraint>), &'static str> {
    let region = access.region.ok_or(reason::REGION)?;
    let Form::Linear(form) = &access.form else {
        return Err(reason::NOT_LINEAR);
    };
    let end = form.hi.saturating_add(access.size.bytes() as i64);
    // A guard that asks for more than there ever is refuses always, and keeps the whole loop slow.
    let spread = form.hi.saturating_sub(form.lo);
    let whole = spread.saturating_add(access.size.bytes() as i64) as u64;
    match lens.get(&region) {
        Some(&len) if spread > 0 && whole > len => return Err(reason::BEYOND_REGION),
        None if spread > spread_max(region) => return Err(reason::UNBOUNDED),
        _ => {}
    }
    if region == RegionId::STACK && *form.terms == [(Var::FP, 1)] && end > 0 {
        return Err(reason::BEYOND_ARRAY);
    }
    if step_of_terms(deltas, form).is_some_and(|step| step.hi.saturating_sub(step.lo) > SPREAD_MAX) {
        return Err(reason::STEP);
    }
    let constraints = constrain(old, deltas, form, end, Within::Region { region, write: access.write });
    Ok((region, constraints.ok_or(reason::TOO_MANY)?))
}

/// A program that allocates a table and bounds an index by its length says both; given memory may be shorter than any bound.
fn spread_max(region: RegionId) -> i64 {
    if region == RegionId::HEAP { HEAP_SPREAD_MAX } else { SPREAD_MAX }
}

/// The constraints with one more; one with the same terms is widened.
pub(super) fn constrain(
    old: &[Constraint],
    deltas: &[Linear],
    form: &Linear,
    end: i64,
    within: Within,
) -> Option<Vec<Constraint>> {
    let mut new = old.to_vec();
    if let Some(c) = new.iter_mut().find(|c| c.within.is_about_the_same(within) && c.terms == form.terms) {
        c.within = c.within.stricter(within);
        c.lo = c.lo.min(form.lo);
        c.end = c.end.max(end);
        return Some(new);
    }
    if new.len() == CONSTRAINTS_MAX {
        return None;
    }
    new.push(Constraint::new(deltas, form, end, within)?);
    Some(new)
}

/// How much a form changes in a trip.
pub(super) fn step_of_terms(deltas: &[Linear], form: &Linear) -> Option<Linear> {
    let mut step = Linear::default();
    for &(v, c) in form.terms.iter() {
        let moved = deltas[usize::from(v.0)].scale(c);
        step = step.add(moved.linear()?).linear()?.clone();
    }
    Some(step)
}

impl Constraint {
    /// `form + [0, end - form.hi)` lies within.
    pub(super) fn new(deltas: &[Linear], form: &Linear, end: i64, within: Within) -> Option<Self> {
        let step = step_of_terms(deltas, form)?;
        let small = |v: i64| v.unsigned_abs() < 1 << 40;
        let span = end.checked_sub(form.lo)?;
        // A stride has to be one number.
        let is_one = step.terms.is_empty() || step.lo == step.hi;
        (small(step.lo) && small(step.hi) && small(span) && is_one).then(|| Self {
            within,
            terms: form.terms.clone(),
            lo: form.lo,
            end,
            step,
        })
    }
}
