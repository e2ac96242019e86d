//! Variables that a compiler of eBPF keeps on the stack because it has too few registers.
//!
//! A slot is eight bytes at a fixed place of the frame, written and read as a whole. Inside a loop, a variable of the
//! analysis represents the slot's value; the guard loads it. So a pointer that was spilled is as good as one in a register.
//!
//! A store through a pointer might hit a slot. That is not known before the store is proved to stay in another region:
//! at first this is supposed, and if a store turns out not to be proved, the loop is looked at once more, with slots
//! forgotten at that store.

use super::linear::{Form, State};
use crate::insn::Size;
use crate::ir::{BlockId, Check, Func, Op, Value, Var};
use crate::region::RegionId;
use std::collections::{BTreeMap, BTreeSet};

/// Most slots of a function that are followed.
const SLOTS_MAX: usize = 32;

/// Where an operation is: block, and index in it.
pub(super) type At = (BlockId, usize);

/// The slots of a function, by their place relative to the frame pointer.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots {
    of: BTreeMap<i64, Var>,
    /// Stores that may hit any of them.
    stray: BTreeSet<At>,
}

/// The effect of an operation on slots.
enum Effect {
    Nothing,
    Reads {
        dst: Var,
        slot: Var,
    },
    Sets {
        slot: Var,
        src: Value,
    },
    /// It may write these bytes of the frame.
    Writes {
        from: i64,
        to: i64,
    },
    WritesAny,
}

pub(super) static NO_SLOTS: Slots = Slots { of: BTreeMap::new(), stray: BTreeSet::new() };

impl Slots {
    /// Those of a function, each with a new variable.
    pub(super) fn of(func: &mut Func) -> Self {
        let mut places: BTreeSet<(i64, u64)> = BTreeSet::new();
        let mut loaded = BTreeSet::new();
        for (op, _) in func.blocks.iter().flat_map(|block| &block.ops) {
            match *op {
                Op::Load { base: Var::FP, off, size, check: Check::Direct(RegionId::STACK), .. } => {
                    places.insert((off, size.bytes()));
                    loaded.insert(off);
                }
                Op::Store { base: Var::FP, off, size, check: Check::Direct(RegionId::STACK), .. } => {
                    places.insert((off, size.bytes()));
                }
                _ => {}
            }
        }
        let whole = Size::DW.bytes();
        let overlaps = |off: i64| {
            places.iter().any(|&(other, len)| {
                (other, len) != (off, whole) && other < off + whole as i64 && off < other + len as i64
            })
        };
        let mut slots = Self::default();
        let found = places.iter().filter(|(off, len)| *len == whole && loaded.contains(off) && !overlaps(*off));
        for &(off, _) in found.take(SLOTS_MAX) {
            slots.of.insert(off, Var(func.vars));
            func.vars += 1;
        }
        slots
    }

    /// Those that these blocks load.
    pub(super) fn loaded_in<'b>(&self, func: &Func, blocks: impl Iterator<Item = &'b BlockId>) -> Self {
        let ops = blocks.flat_map(|b| &func.blocks[b.0 as usize].ops);
        let loaded = ops.filter_map(|(op, _)| match *op {
            Op::Load { base: Var::FP, off, check: Check::Direct(RegionId::STACK), .. } => {
                Some((off, *self.of.get(&off)?))
            }
            _ => None,
        });
        Self { of: loaded.collect(), stray: BTreeSet::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// The same, where these stores may hit any of them.
    pub(super) fn with_stray(&self, stray: BTreeSet<At>) -> Self {
        Self { of: self.of.clone(), stray }
    }

    /// Whether the analysis allowed for these stores to hit them.
    pub(super) fn allows(&self, stray: &BTreeSet<At>) -> bool {
        stray.is_subset(&self.stray)
    }

    pub(super) fn has_stray(&self) -> bool {
        !self.stray.is_empty()
    }

    pub(super) fn vars(&self) -> impl Iterator<Item = Var> + '_ {
        self.of.values().copied()
    }

    pub(super) fn has(&self, v: Var) -> bool {
        self.of.values().any(|slot| *slot == v)
    }

    /// Loads them.
    pub(super) fn loads(&self) -> Vec<Op> {
        let check = Check::Direct(RegionId::STACK);
        let load =
            |(&off, &dst): (&i64, &Var)| Op::Load { dst, base: Var::FP, off, size: Size::DW, signed: false, check };
        self.of.iter().map(load).collect()
    }

    /// Stores of these blocks that hit no slot only if they stay in the region that they are supposed to go to.
    pub(super) fn supposed<'b>(&self, func: &Func, blocks: impl Iterator<Item = &'b BlockId>) -> BTreeSet<At> {
        let mut supposed = BTreeSet::new();
        for &b in blocks {
            for (at, (op, _)) in func.blocks[b.0 as usize].ops.iter().enumerate() {
                if matches!(op, Op::Store { check: Check::Hinted(region), .. } if *region != RegionId::STACK) {
                    supposed.insert((b, at));
                }
            }
        }
        supposed
    }

    /// Follows an operation that `state` has passed over already, which may write this `place`.
    pub(super) fn follow(&self, state: &mut State, at: At, op: &Op, place: Option<(i64, i64)>) {
        if self.is_empty() {
            return;
        }
        match self.effect(at, op, place) {
            Effect::Nothing => {}
            Effect::Reads { dst, slot } => state.copy(dst, slot),
            Effect::Sets { slot, src } => state.assign(slot, src),
            Effect::Writes { from, to } => self.within(from, to).for_each(|slot| state.forget(slot)),
            Effect::WritesAny => self.vars().for_each(|slot| state.forget(slot)),
        }
    }

    /// Slots that blocks may write.
    pub(super) fn written_in(&self, func: &Func, blocks: &BTreeSet<BlockId>) -> BTreeSet<Var> {
        let mut written = BTreeSet::new();
        if self.is_empty() {
            return written;
        }
        for &b in blocks {
            for (at, (op, _)) in func.blocks[b.0 as usize].ops.iter().enumerate() {
                let place = match *op {
                    Op::Store { base: Var::FP, off, size, .. } => Some((off, off + size.bytes() as i64)),
                    _ => None,
                };
                match self.effect((b, at), op, place) {
                    Effect::Nothing | Effect::Reads { .. } => {}
                    Effect::Sets { slot, .. } => written.extend([slot]),
                    Effect::Writes { from, to } => written.extend(self.within(from, to)),
                    Effect::WritesAny => written.extend(self.vars()),
                }
            }
        }
        written
    }

    fn effect(&self, at: At, op: &Op, place: Option<(i64, i64)>) -> Effect {
        match *op {
            Op::Load { dst, base: Var::FP, off, check: Check::Direct(RegionId::STACK), .. } => {
                self.of.get(&off).map_or(Effect::Nothing, |&slot| Effect::Reads { dst, slot })
            }
            Op::Store { base, off, src, check, .. } => match (check, place) {
                (Check::Direct(RegionId::STACK), _) if base == Var::FP && self.of.contains_key(&off) => {
                    Effect::Sets { slot: self.of[&off], src }
                }
                // There, or it traps.
                (Check::Direct(RegionId::STACK) | Check::Hinted(RegionId::STACK), Some((from, to))) => {
                    Effect::Writes { from, to }
                }
                (Check::Direct(region), _) if region != RegionId::STACK => Effect::Nothing,
                (Check::Hinted(region), _) if region != RegionId::STACK && !self.stray.contains(&at) => Effect::Nothing,
                _ => Effect::WritesAny,
            },
            Op::Atomic { .. } | Op::CallHelper { .. } | Op::CallLocal { .. } | Op::ZeroFrame { .. } => {
                Effect::WritesAny
            }
            _ => Effect::Nothing,
        }
    }

    /// Slots that have some of these bytes.
    fn within(&self, from: i64, to: i64) -> impl Iterator<Item = Var> + '_ {
        let len = Size::DW.bytes() as i64;
        self.of.iter().filter(move |(off, _)| **off < to && from < **off + len).map(|(_, slot)| *slot)
    }
}

/// Which bytes of the frame a store may write, where that is sure.
pub(super) fn place(state: &State, op: &Op) -> Option<(i64, i64)> {
    let Op::Store { base, off, size, .. } = *op else { return None };
    let Form::Linear(form) = state.get(base) else { return None };
    let is_sure = *form.terms == [(Var::FP, 1)] && state.conditions(base).is_empty();
    let (lo, hi) = (form.lo.checked_add(off)?, form.hi.checked_add(off)?.checked_add(size.bytes() as i64)?);
    is_sure.then_some((lo, hi))
}
