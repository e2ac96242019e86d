//! The optimiser's output: ways into a fast loop, how its trips are counted, and operations.

use super::graph::Loop;
use crate::insn::{AluOp, Width};
use crate::ir::{BinOp, BlockId, Func, Op, Term, Value, Var};
use std::collections::BTreeMap;

/// Maps blocks to their slow copies.
pub(super) type Twins = BTreeMap<BlockId, BlockId>;

/// How control enters a fast loop that has no other inside and pays before it runs.
pub(super) struct Entrance {
    /// Blocks outside of the loop that lead to its guard.
    pub(super) from: Vec<BlockId>,
    pub(super) guard: BlockId,
    /// The target of the guard, when it has paid for this many edges.
    pub(super) settled: BlockId,
    pub(super) edges: Var,
    pub(super) insn: u32,
}

pub(super) fn retarget(term: &mut Term, from: BlockId, to: BlockId) {
    let change = |b: &mut BlockId| {
        if *b == from {
            *b = to;
        }
    };
    match term {
        Term::Jump(b) => change(b),
        Term::Branch { then, otherwise, .. } => {
            change(then);
            change(otherwise);
        }
        Term::Return => {}
    }
}

pub(super) fn fresh(func: &mut Func) -> Var {
    func.vars += 1;
    Var(func.vars - 1)
}

/// `v / by` in place.
pub(super) fn divided(v: Var, by: u64) -> Option<Op> {
    match by {
        1 => None,
        _ if by.is_power_of_two() => Some(alu(AluOp::Rsh, v, v, Value::Imm(i64::from(by.trailing_zeros())))),
        _ => Some(alu(AluOp::Div, v, v, Value::Imm(by as i64))),
    }
}

pub(super) fn alu(op: AluOp, dst: Var, lhs: Var, rhs: Value) -> Op {
    Op::Bin { op: BinOp::Alu(op, Width::W64), dst, lhs, rhs }
}

pub(super) fn mov(dst: Var, src: Value) -> Op {
    Op::Mov { width: Width::W64, dst, src }
}

/// The loop around one that is hoisted out of, itself in a loop that was copied.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    pub(super) the_loop: &'a Loop,
    /// Blocks from there on were added inside of it.
    pub(super) added_from: usize,
    pub(super) twins: &'a Twins,
}

impl Around<'_> {
    /// Its blocks and those that were added, on the fast side.
    pub(super) fn blocks(&self, func: &Func) -> Vec<BlockId> {
        let added = (self.added_from..func.blocks.len()).map(|i| BlockId(i as u32));
        self.the_loop.blocks.iter().copied().chain(added).collect()
    }
}
