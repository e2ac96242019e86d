//! Which variables are known to hold no more than 32 bits.
//!
//! Every variable has two shadows in the text, of 64 and of 32 bits, and both are written. A read
//! takes the one that is primary at that point, so that the other is dead there: a 32-bit loop counter
//! stays a 32-bit induction variable, which LLVM understands better than masks of a wide one.

use diskside_sbpf::insn::{AluOp, Size, Width};
use diskside_sbpf::ir::{BinOp, FloatOp, Func, Op, Value, Var};

/// One flag for each variable: whether bits 63:32 are zero.
pub(super) type Narrow = Vec<bool>;

/// The flags at the start of each block: what holds on every way to it.
pub(super) fn narrow_at_entry(func: &Func) -> Vec<Narrow> {
    let vars = usize::from(func.vars);
    // Optimistic: nothing is known to be wide yet, and each round only finds more that is.
    let mut at_entry = vec![vec![true; vars]; func.blocks.len()];
    for v in (1..=5).chain([Var::FP.0, Var::FUEL.0]) {
        at_entry[0][usize::from(v)] = false;
    }
    let mut worklist: Vec<usize> = (0..func.blocks.len()).rev().collect();
    while let Some(i) = worklist.pop() {
        let mut state = at_entry[i].clone();
        func.blocks[i].ops.iter().for_each(|(op, _)| step(op, &mut state));
        for s in func.blocks[i].term.successors().map(|s| s.0 as usize) {
            let mut changed = false;
            for (theirs, mine) in at_entry[s].iter_mut().zip(&state) {
                changed |= *theirs && !mine;
                *theirs &= mine;
            }
            if changed {
                worklist.push(s);
            }
        }
    }
    at_entry
}

/// From the flags before an operation to those after it.
pub(super) fn step(op: &Op, state: &mut Narrow) {
    let result = op.dst().map(|dst| (dst, is_narrow(op, state)));
    match op {
        Op::CallHelper { .. } | Op::CallLocal { .. } | Op::Float { .. } => {
            state[0] = matches!(op, Op::Float { op } if is_narrow_float(*op));
            state[1..=5].fill(true);
        }
        _ => {
            if let Some((dst, narrow)) = result {
                state[usize::from(dst.0)] = narrow;
            }
        }
    }
}

fn is_narrow(op: &Op, state: &Narrow) -> bool {
    let of = |v: Var| state[usize::from(v.0)];
    let value = |v: Value| match v {
        Value::Var(v) => of(v),
        Value::Imm(i) => u32::try_from(i).is_ok(),
    };
    match *op {
        Op::Mov { width: Width::W64, src, .. } => value(src),
        Op::Bin { op: BinOp::UMin | BinOp::Alu(AluOp::And, Width::W64), lhs, rhs, .. } => of(lhs) || value(rhs),
        Op::Bin { op: BinOp::Alu(AluOp::Or | AluOp::Xor, Width::W64), lhs, rhs, .. } => of(lhs) && value(rhs),
        Op::Bin { op: BinOp::Alu(AluOp::Rsh, Width::W64), lhs, .. } => of(lhs),
        Op::Mov { width: Width::W32, .. }
        | Op::MovZx { .. }
        | Op::MovSx { width: Width::W32, .. }
        | Op::Neg { width: Width::W32, .. }
        | Op::Bin { op: BinOp::Alu(_, Width::W32), .. } => true,
        Op::End { bits, .. } => bits <= 32,
        Op::Load { size, signed, .. } => size != Size::DW && !signed,
        Op::Atomic { size, .. } => size != Size::DW,
        _ => false,
    }
}

/// Whether a floating-point result has 32 bits or fewer.
pub(super) fn is_narrow_float(op: FloatOp) -> bool {
    use FloatOp as F;
    match op {
        F::F64Add | F::F64Sub | F::F64Mul | F::F64Div | F::F64Sqrt | F::F64Neg | F::F64Abs => false,
        F::F64Min | F::F64Max | F::F64Floor | F::F64Ceil | F::F64Trunc | F::F64Round => false,
        F::F64FromI64 | F::F64FromU64 | F::F64ToI64 | F::F64ToU64 | F::F64FromF32 => false,
        F::F32ToI64 | F::F32ToU64 => false,
        F::F64Eq | F::F64Lt | F::F64Le | F::F32Eq | F::F32Lt | F::F32Le => true,
        F::F32Add | F::F32Sub | F::F32Mul | F::F32Div | F::F32Sqrt | F::F32Neg | F::F32Abs => true,
        F::F32Min | F::F32Max | F::F32Floor | F::F32Ceil | F::F32Trunc | F::F32Round => true,
        F::F32FromI64 | F::F32FromU64 | F::F32FromF64 => true,
    }
}
