//! Which variables are live, and in which form.
//!
//! A variable holds 64 bits, but much code uses only the low 32. [`Form`] says what later code needs:
//! nothing, the low half, or all of it. A definition then computes no more than that: dead operations
//! vanish, 32-bit arithmetic stays 32-bit, and a zero-extension is made only where all bits are read.
//!
//! Floating-point operations read a variable as a number, which is a need of its own: between such operations a number
//! stays in a register for numbers, and which NaN it is need not be known before somebody reads its bits.

use diskside_sbpf::insn::{AluOp, AtomicOp, ByteOrder, Size, Width};
use diskside_sbpf::ir::{BinOp, Block, BlockId, Check, FloatOp, Func, Op, Term, Value, Var};

/// The bits that are needed of a variable. A later form includes the earlier ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) enum Form {
    /// Nothing: dead.
    #[default]
    Dead,
    /// Bits 31:0.
    Low,
    /// All 64 bits.
    Full,
}

/// The forms that later code needs of a variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Need {
    /// Its bits.
    pub(crate) bits: Form,
    /// The binary64 that all bits are.
    pub(crate) double: bool,
    /// The binary32 that the low half is.
    pub(crate) single: bool,
}

impl Need {
    pub(crate) const fn bits(bits: Form) -> Self {
        Self { bits, double: false, single: false }
    }

    /// The bits that give all of it.
    pub(crate) fn form(self) -> Form {
        let double = if self.double { Form::Full } else { Form::Dead };
        let single = if self.single { Form::Low } else { Form::Dead };
        self.bits.max(double).max(single)
    }

    pub(crate) fn is_number(self) -> bool {
        self.double || self.single
    }

    fn join(&mut self, other: Self) {
        self.bits = self.bits.max(other.bits);
        self.double |= other.double;
        self.single |= other.single;
    }
}

/// The needs of every variable at one point.
pub(crate) type State = Vec<Need>;

/// The result of the analysis.
#[derive(Debug)]
pub(crate) struct Liveness {
    /// The needs of each block's successors.
    pub(crate) live_out: Vec<State>,
    /// The needs of each block and of the code that follows it.
    live_in: Vec<State>,
    /// Variables that some operation reads in [`Form::Low`] while nothing later reads them in full.
    pub(crate) has_low_use: Vec<bool>,
}

impl Liveness {
    /// Analyses a function: a backward dataflow over the lattice dead < low < full.
    pub(crate) fn new(func: &Func) -> Self {
        let vars = usize::from(func.vars);
        let mut predecessors = vec![Vec::new(); func.blocks.len()];
        for (i, block) in func.blocks.iter().enumerate() {
            for s in block.term.successors() {
                predecessors[s.0 as usize].push(i);
            }
        }
        let mut live_in = vec![vec![Need::default(); vars]; func.blocks.len()];
        let mut queued = vec![true; func.blocks.len()];
        let mut worklist: Vec<usize> = (0..func.blocks.len()).collect();
        while let Some(i) = worklist.pop() {
            queued[i] = false;
            let block = &func.blocks[i];
            let mut state = live_out(block, &live_in, vars);
            needs_of_term(&block.term, &mut state);
            for (op, _) in block.ops.iter().rev() {
                step_back(op, &mut state);
            }
            if state != live_in[i] {
                live_in[i] = state;
                for &p in &predecessors[i] {
                    if !std::mem::replace(&mut queued[p], true) {
                        worklist.push(p);
                    }
                }
            }
        }
        let live_out: Vec<State> = func.blocks.iter().map(|b| live_out(b, &live_in, vars)).collect();
        let has_low_use = low_uses(func, &live_out);
        Self { live_out, live_in, has_low_use }
    }

    /// The needs at the start of a block.
    pub(crate) fn live_in(&self, block: BlockId) -> &State {
        &self.live_in[block.0 as usize]
    }

    /// The state before each operation of a block, then the state before its end.
    pub(crate) fn states_of(&self, func: &Func, block: usize) -> Vec<State> {
        let b = &func.blocks[block];
        let mut state = self.live_out[block].clone();
        needs_of_term(&b.term, &mut state);
        let mut states = vec![state.clone()];
        for (op, _) in b.ops.iter().rev() {
            step_back(op, &mut state);
            states.push(state.clone());
        }
        states.reverse();
        states
    }
}

/// Operands of a floating-point operation: their number, and the need for each.
pub(crate) fn float_operands(op: FloatOp) -> (usize, Need) {
    use FloatOp as F;
    let double = Need { double: true, ..Need::default() };
    let single = Need { single: true, ..Need::default() };
    match op {
        F::F64Add | F::F64Sub | F::F64Mul | F::F64Div | F::F64Min | F::F64Max => (2, double),
        F::F64Eq | F::F64Lt | F::F64Le => (2, double),
        F::F64Sqrt | F::F64Neg | F::F64Abs | F::F64ToI64 | F::F64ToU64 | F::F32FromF64 => (1, double),
        F::F64Floor | F::F64Ceil | F::F64Trunc | F::F64Round => (1, double),
        F::F64FromI64 | F::F64FromU64 | F::F32FromI64 | F::F32FromU64 => (1, Need::bits(Form::Full)),
        F::F32Add | F::F32Sub | F::F32Mul | F::F32Div | F::F32Min | F::F32Max => (2, single),
        F::F32Eq | F::F32Lt | F::F32Le => (2, single),
        F::F32Sqrt | F::F32Neg | F::F32Abs | F::F32ToI64 | F::F32ToU64 | F::F64FromF32 => (1, single),
        F::F32Floor | F::F32Ceil | F::F32Trunc | F::F32Round => (1, single),
    }
}

fn live_out(block: &Block, live_in: &[State], vars: usize) -> State {
    let mut state = vec![Need::default(); vars];
    for s in block.term.successors() {
        for (mine, theirs) in state.iter_mut().zip(&live_in[s.0 as usize]) {
            mine.join(*theirs);
        }
    }
    state[usize::from(Var::FUEL.0)] = Need::bits(Form::Full);
    state
}

fn need(state: &mut State, v: Var, form: Form) {
    state[usize::from(v.0)].join(Need::bits(form));
}

fn need_value(state: &mut State, v: Value, form: Form) {
    if let Value::Var(v) = v {
        need(state, v, form);
    }
}

/// Records the need for the source of a copy of all bits, or of one of the low half, whose high half is zero.
fn need_copied(state: &mut State, src: Value, width: Width, wanted: Need) {
    let Value::Var(src) = src else { return };
    let wanted = match width {
        Width::W64 => wanted,
        Width::W32 => {
            let double = if wanted.double { Form::Low } else { Form::Dead };
            Need { bits: wanted.bits.min(Form::Low).max(double), double: false, single: wanted.single }
        }
    };
    state[usize::from(src.0)].join(wanted);
}

fn needs_of_term(term: &Term, state: &mut State) {
    match *term {
        Term::Jump(_) => {}
        Term::Branch { width, lhs, rhs, .. } => {
            need(state, lhs, form_of(width));
            need_value(state, rhs, form_of(width));
        }
        Term::Return => need(state, Var::R0, Form::Full),
    }
}

/// From the state after an operation to the state before it.
fn step_back(op: &Op, state: &mut State) {
    let dst = op.dst();
    let wanted = dst.map_or(Need::default(), |v| state[usize::from(v.0)]);
    let r0_wanted = state[0].form();
    op.each_write(|v| state[usize::from(v.0)] = Need::default());
    needs_of_op(op, wanted, r0_wanted, state);
    state[usize::from(Var::FUEL.0)] = Need::bits(Form::Full);
}

fn needs_of_op(op: &Op, need_of_result: Need, r0_wanted: Form, state: &mut State) {
    let wanted = need_of_result.form();
    // The form in which a 32-bit operand is needed: none when nobody wants the result.
    let low = wanted.min(Form::Low);
    let all = if wanted == Form::Dead { Form::Dead } else { Form::Full };
    match *op {
        Op::Mov { width, src, .. } => need_copied(state, src, width, need_of_result),
        Op::Opaque { src, .. } => need_copied(state, src.into(), Width::W64, need_of_result),
        Op::MovSx { src, .. } => need(state, src, low),
        Op::MovZx { src, bits: 32, .. } => need_copied(state, src, Width::W32, need_of_result),
        Op::MovZx { src, .. } => need_value(state, src, low),
        Op::Bin { op, lhs, rhs, .. } => {
            let (l, r) = match op {
                BinOp::UMin => (all, all),
                BinOp::Alu(_, Width::W32) => (low, low),
                BinOp::Alu(op, Width::W64) => match op {
                    AluOp::Add | AluOp::Sub | AluOp::Mul | AluOp::Or | AluOp::And | AluOp::Xor => (wanted, wanted),
                    AluOp::Lsh if matches!(rhs, Value::Imm(_)) => (wanted, low),
                    AluOp::Lsh | AluOp::Rsh | AluOp::Arsh => (all, low),
                    AluOp::Div | AluOp::SDiv | AluOp::Mod | AluOp::SMod => (all, all),
                },
            };
            need(state, lhs, l);
            need_value(state, rhs, r);
        }
        Op::Neg { width, src, .. } => {
            need(state, src, if width == Width::W32 { low } else { wanted });
        }
        Op::End { order, src, bits, .. } => {
            let form = match (bits, order) {
                (64, ByteOrder::ToLe) => wanted,
                (64, _) => all,
                _ => low,
            };
            need(state, src, form);
        }
        Op::Load { base, check, .. } => {
            if wanted != Form::Dead || !matches!(check, Check::Direct(_)) {
                need(state, base, Form::Full);
            }
        }
        Op::Store { base, src, size, .. } => {
            need(state, base, Form::Full);
            need_value(state, src, form_of_size(size));
        }
        Op::Atomic { op, size, base, src, .. } => {
            need(state, base, Form::Full);
            need(state, src, form_of_size(size));
            if op == AtomicOp::Cmpxchg {
                need(state, Var::R0, form_of_size(size));
            }
        }
        Op::CallHelper { .. } | Op::CallLocal { .. } => {
            for r in 1..=5 {
                need(state, Var(r), Form::Full);
            }
            if matches!(op, Op::CallLocal { .. }) {
                need(state, Var::FP, Form::Full);
            }
        }
        Op::Float { op } => {
            if r0_wanted != Form::Dead {
                let (count, need) = float_operands(op);
                state[1..=count].iter_mut().for_each(|r| r.join(need));
            }
        }
        Op::ZeroFrame { .. } => need(state, Var::FP, Form::Full),
        Op::RegionLen { .. } | Op::Refill => {}
    }
}

/// Variables with a read in low form where the state before the reader is low.
fn low_uses(func: &Func, live_out: &[State]) -> Vec<bool> {
    let mut found = vec![false; usize::from(func.vars)];
    for (block, out) in func.blocks.iter().zip(live_out) {
        let mut state = out.clone();
        needs_of_term(&block.term, &mut state);
        let mark = |state: &State, found: &mut Vec<bool>| {
            for (f, s) in found.iter_mut().zip(state) {
                *f |= s.bits == Form::Low;
            }
        };
        mark(&state, &mut found);
        for (op, _) in block.ops.iter().rev() {
            step_back(op, &mut state);
            mark(&state, &mut found);
        }
    }
    found
}

fn form_of(width: Width) -> Form {
    match width {
        Width::W32 => Form::Low,
        Width::W64 => Form::Full,
    }
}

fn form_of_size(size: Size) -> Form {
    if size == Size::DW { Form::Full } else { Form::Low }
}
