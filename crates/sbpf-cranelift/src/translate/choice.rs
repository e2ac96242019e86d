//! Branches around a few cheap operations become selections.
//!
//! eBPF has no conditional move, so that each choice is a branch. The way that such a branch takes depends on
//! data and is often mispredicted; a selection costs the same every time.
//!
//! A maximum (or minimum) that is kept over a loop stays a branch: it rarely finds a new one, so the
//! branch is predicted, where a selection would make each trip wait for the one before.

use super::{Result, Translator, comparison, type_of};
use crate::layout::Loops;
use crate::liveness::{Form, Liveness};
use cranelift_codegen::ir::condcodes::CondCode;
use cranelift_codegen::ir::{self as clif, InstBuilder, Opcode, ValueDef, types};
use diskside_sbpf::insn::{AluOp, Cond, Width};
use diskside_sbpf::ir::{BinOp, Block, BlockId, Func, Op, Term, Value, Var};

/// Most operations in one way of a branch.
const OPS_MAX: usize = 3;

/// The two ways of a branch that meet again at once. A way that goes straight to where they meet has
/// no block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    then: Option<BlockId>,
    otherwise: Option<BlockId>,
    pub(super) join: BlockId,
}

impl Choice {
    /// The blocks that the choice takes in.
    pub(super) fn ways(&self) -> impl Iterator<Item = BlockId> + use<> {
        self.then.into_iter().chain(self.otherwise)
    }
}

/// For each block, whether its end becomes a choice.
pub(super) fn choices(func: &Func, loops: &Loops, liveness: &Liveness) -> Vec<Option<Choice>> {
    let mut arrivals = vec![0usize; func.blocks.len()];
    for s in func.blocks.iter().flat_map(|b| b.term.successors()) {
        arrivals[s.0 as usize] += 1;
    }
    // Where a block leads when it is a way: entered by one edge, cheap, with one exit.
    let leads_to = |b: BlockId| {
        let block = &func.blocks[b.0 as usize];
        let cheap = block.ops.len() <= OPS_MAX && block.ops.iter().all(|(op, _)| is_cheap(op));
        match block.term {
            Term::Jump(join) if cheap && !block.cold && arrivals[b.0 as usize] == 1 => Some(join),
            _ => None,
        }
    };
    let choice = |term: Term| {
        let Term::Branch { then, otherwise, .. } = term else {
            return None;
        };
        let (a, b) = (leads_to(then), leads_to(otherwise));
        let (then, otherwise, join) = match (a, b) {
            (Some(join), Some(other)) if join == other => (Some(then), Some(otherwise), join),
            (Some(join), _) if join == otherwise => (Some(then), None, join),
            (_, Some(join)) if join == then => (None, Some(otherwise), join),
            _ => return None,
        };
        Some(Choice { then, otherwise, join })
    };
    let is_kept_extreme = |block: usize, choice: &Choice| {
        let Term::Branch { cond, lhs, rhs: Value::Var(rhs), .. } = func.blocks[block].term else {
            return false;
        };
        let takes_one = |b: BlockId| {
            matches!(func.blocks[b.0 as usize].ops[..],
                [(Op::Mov { src: Value::Var(v), .. }, _)] if v == lhs || v == rhs)
        };
        let ordered = !matches!(cond, Cond::Eq | Cond::Ne | Cond::Set);
        loops.innermost[block].is_some_and(|header| {
            let at_header = liveness.live_in(BlockId(header as u32));
            let comes_in = |v: Var| at_header[usize::from(v.0)].form() != Form::Dead;
            ordered && comes_in(lhs) != comes_in(rhs) && choice.ways().all(takes_one)
        })
    };
    // Between numbers a selection is a branch again.
    let selects_numbers = |choice: &Choice| {
        let at_join = liveness.live_in(choice.join);
        let ops = choice.ways().flat_map(|b| &func.blocks[b.0 as usize].ops);
        ops.filter_map(|(op, _)| op.dst()).any(|v| at_join[usize::from(v.0)].is_number())
    };
    let chosen = |(i, b): (usize, &Block)| choice(b.term).filter(|c| !is_kept_extreme(i, c) && !selects_numbers(c));
    func.blocks.iter().enumerate().map(chosen).collect()
}

fn is_cheap(op: &Op) -> bool {
    let cheap = match op {
        Op::Mov { .. } | Op::MovSx { .. } | Op::MovZx { .. } | Op::Neg { .. } | Op::End { .. } => true,
        Op::Bin { op, .. } => match op {
            BinOp::UMin => false,
            BinOp::Alu(op, _) => !matches!(op, AluOp::Mul | AluOp::Div | AluOp::SDiv | AluOp::Mod | AluOp::SMod),
        },
        _ => false,
    };
    cheap && op.dst() != Some(Var::FUEL)
}

impl Translator<'_> {
    /// The condition of a choice. For a maximum kept over a loop, the code generator updates the left
    /// side in place: let that be the one that comes from the trip before.
    pub(super) fn condition_for_choice(&mut self, width: Width, cond: Cond, lhs: Var, rhs: Value) -> clif::Value {
        let ty = type_of(width);
        let l = self.read_as(ty, lhs.into());
        let r = self.read_as(ty, rhs);
        match comparison(cond) {
            Some(code) if self.is_kept(r) && !self.is_kept(l) => self.b.ins().icmp(code.swap_args(), r, l),
            Some(code) => self.b.ins().icmp(code, l, r),
            None => self.b.ins().band(l, r),
        }
    }

    /// Whether a value came into its block from several others.
    fn is_kept(&self, x: clif::Value) -> bool {
        let dfg = &self.b.func.dfg;
        let mut x = dfg.resolve_aliases(x);
        if let ValueDef::Result(inst, _) = dfg.value_def(x)
            && dfg.insts[inst].opcode() == Opcode::Ireduce
        {
            x = dfg.resolve_aliases(dfg.inst_args(inst)[0]);
        }
        matches!(dfg.value_def(x), ValueDef::Param(..))
    }

    /// Does both ways, selects by the condition, and continues where they meet.
    pub(super) fn choose(&mut self, choice: Choice, condition: clif::Value) {
        let func = self.func;
        let written = |way: Option<BlockId>| -> Vec<Var> {
            let ops = way.map(|b| &func.blocks[b.0 as usize].ops);
            let mut all: Vec<Var> = ops.into_iter().flatten().filter_map(|(op, _)| op.dst()).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        let (by_then, by_otherwise) = (written(choice.then), written(choice.otherwise));
        let mut all = [&by_then[..], &by_otherwise[..]].concat();
        all.sort_unstable();
        all.dedup();

        let here = self.before.clone();
        let old: Vec<Option<Result>> = all.iter().map(|&v| self.current(v)).collect();
        let then = self.way(choice.then, &all, choice.join);
        for (&v, old) in all.iter().zip(&old) {
            if let Some(old) = *old {
                self.after.clone_from(&here);
                self.define(v, old);
            }
        }
        self.before = here;
        let otherwise = self.way(choice.otherwise, &all, choice.join);

        self.after.clone_from(self.liveness.live_in(choice.join));
        for ((&v, a), b) in all.iter().zip(then).zip(otherwise) {
            if let (Some(a), Some(b)) = (a, b) {
                let x = match (a, b) {
                    (Result::Full(a), Result::Full(b)) => Result::Full(self.b.ins().select(condition, a, b)),
                    (a, b) => {
                        let (a, b) = (self.low_half(a), self.low_half(b));
                        Result::ZeroExtended(self.b.ins().select(condition, a, b))
                    }
                };
                self.define(v, x);
            }
        }
        let join = self.target(choice.join);
        self.b.ins().jump(join, &[]);
    }

    /// Does the operations of one way and gives what the variables are where the ways meet.
    fn way(&mut self, way: Option<BlockId>, all: &[Var], join: BlockId) -> Vec<Option<Result>> {
        let func = self.func;
        if let Some(b) = way {
            let index = b.0 as usize;
            let mut states = self.liveness.states_of(func, index).into_iter();
            self.before = states.next().unwrap_or_default();
            for ((op, insn), after) in func.blocks[index].ops.iter().zip(states) {
                self.after = after;
                self.op(op, *insn);
                std::mem::swap(&mut self.before, &mut self.after);
            }
        }
        let at_join = self.liveness.live_in(join).clone();
        let mut values = Vec::with_capacity(all.len());
        for &v in all {
            let i = usize::from(v.0);
            values.push(match at_join[i].bits {
                Form::Dead => None,
                Form::Low => Some(Result::ZeroExtended(self.read_low(v))),
                Form::Full => Some(Result::Full(self.read_full(v))),
            });
        }
        values
    }

    /// The current value of a variable, in the form that is live.
    fn current(&mut self, v: Var) -> Option<Result> {
        match self.before[usize::from(v.0)].bits {
            Form::Dead => None,
            Form::Low => Some(Result::ZeroExtended(self.read_low(v))),
            Form::Full => Some(Result::Full(self.read_full(v))),
        }
    }

    fn low_half(&mut self, x: Result) -> clif::Value {
        match x {
            Result::ZeroExtended(x) => x,
            Result::Full(x) => self.b.ins().ireduce(types::I32, x),
        }
    }
}
