//! The cost of compiling a function, known before it is done: the code generator cannot be stopped in the middle.

use cranelift_codegen::ir::Function;
use diskside_sbpf::ir::{Check, Func, Module, Op};
use std::ops::AddAssign;

/// How a function is compiled.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Effort {
    /// Registers are allocated with care.
    Full,
    /// In one pass.
    Quick,
}

/// The size of the code generator's input, in all functions of a module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// Its instructions.
    pub insns: u64,
    /// Its basic blocks.
    pub blocks: u64,
    /// Values that come into blocks from several others.
    pub joined: u64,
}

/// The most that is compiled with care: some 40 MiB and 200 ms.
const FULL: Cost = Cost { insns: 40_000, blocks: 8_000, joined: 4_000 };

/// The most that is compiled at all: as much in one pass.
const QUICK: Cost = Cost { insns: 140_000, blocks: 40_000, joined: 40_000 };

/// Most operations of the checked IR that are looked at.
const OPS_MAX: u64 = 120_000;

/// Most variables times blocks: for each of these it is known whether it lives.
const LIVENESS_MAX: u64 = 8 << 20;

/// Whether it is worthwhile to compute the size of the code generator's input.
pub(crate) fn is_small_enough(module: &Module) -> bool {
    let looks = |func: &Func| {
        let ops = func.blocks.iter().flat_map(|b| b.ops.iter().map(move |(op, _)| (op, b.cold)));
        ops.map(|(op, cold)| insns_at_least(op, cold)).sum::<u64>() + 2 * func.blocks.len() as u64
    };
    let alive = |func: &Func| u64::from(func.vars) * func.blocks.len() as u64;
    let all = &module.functions;
    all.iter().map(looks).sum::<u64>() <= OPS_MAX && all.iter().map(alive).sum::<u64>() <= LIVENESS_MAX
}

/// The fewest instructions that the code generator gets for one operation.
fn insns_at_least(op: &Op, cold: bool) -> u64 {
    match op {
        Op::Load { check, .. } | Op::Store { check, .. } => match check {
            Check::Direct(_) => 2,
            _ if cold => 2,
            Check::Hinted(_) => 12,
            Check::Any => 24,
        },
        Op::Atomic { .. } | Op::CallHelper { .. } | Op::CallLocal { .. } => 16,
        _ => 1,
    }
}

impl Cost {
    /// How much effort it allows; `None` when it is too much for any.
    pub(crate) fn effort(self) -> Option<Effort> {
        [(FULL, Effort::Full), (QUICK, Effort::Quick)]
            .into_iter()
            .find(|(most, _)| self.insns <= most.insns && self.blocks <= most.blocks && self.joined <= most.joined)
            .map(|(_, effort)| effort)
    }

    pub(crate) fn of(function: &Function) -> Self {
        let blocks = function.layout.blocks();
        let joined = blocks.map(|b| function.dfg.num_block_params(b) as u64).sum();
        Self { insns: function.dfg.num_insts() as u64, blocks: function.dfg.num_blocks() as u64, joined }
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.insns += other.insns;
        self.blocks += other.blocks;
        self.joined += other.joined;
    }
}
