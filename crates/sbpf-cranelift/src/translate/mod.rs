//! From the checked IR to Cranelift's, function by function and operation by operation.
//!
//! A native function takes the machine, `r1` to `r5` and the frame pointer, and returns a status and
//! `r0`. Variables become SSA values, in the forms that [`Liveness`] found necessary. `FUEL` is a
//! value too; it is written to the machine only where something outside looks at it.

mod alu;
mod calls;
mod choice;
mod float;
mod listed;
mod memory;
mod numbers;

use crate::layout::{Loops, reverse_postorder};
use crate::liveness::{Form, Liveness, Need, State};
use crate::runtime::{CALL_CONV, Runtime};
use choice::{Choice, choices};
use cranelift_codegen::ir::condcodes::{CondCode, IntCC};
use cranelift_codegen::ir::{self as clif, AbiParam, InstBuilder, MemFlagsData, Signature, Type, types};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};
use diskside_sbpf::insn::{Cond, Width};
use diskside_sbpf::ir::{BlockId, Func, Module, Op, Term, Value, Var};
use diskside_sbpf::machine::{Machine, Status};
pub(crate) use listed::Lists;
use listed::listed;
use memory::Regions;
use numbers::Numbers;
use std::collections::BTreeSet;
use std::mem::offset_of;

/// Translates one function into `out`, which is empty. The lists that the code refers to go to `lists`.
pub(crate) fn translate(
    module: &Module,
    func: &Func,
    runtime: &'static Runtime,
    out: &mut clif::Function,
    context: &mut FunctionBuilderContext,
    lists: &mut Lists,
) {
    out.signature = native_signature();
    let liveness = Liveness::new(func);
    let loops = Loops::new(func);
    let choices = choices(func, &loops, &liveness);
    let mut b = FunctionBuilder::new(out, context);
    let entry = b.create_block();
    b.append_block_params_for_function_params(entry);
    b.switch_to_block(entry);
    b.seal_block(entry);
    let machine = b.block_params(entry)[0];
    let blocks = func.blocks.iter().map(|_| b.create_block()).collect();
    let full = (0..func.vars).map(|_| b.declare_var(types::I64)).collect();
    let low = (0..func.vars).map(|_| b.declare_var(types::I32)).collect();
    let numbers = Numbers::new(func, &mut b);
    let mut t = Translator {
        module,
        func,
        runtime,
        machine,
        blocks,
        full,
        low,
        numbers,
        counts: counts_edges(func),
        regions: Regions::default(),
        access_trap: None,
        plain_trap: None,
        liveness,
        in_loop: None,
        cold: false,
        loops,
        choices,
        before: State::new(),
        after: State::new(),
        lists,
        thunk: None,
        b,
    };
    t.prologue(entry);
    t.body();
    if let Some(block) = t.plain_trap {
        t.b.switch_to_block(block);
        t.return_trapped();
    }
    t.b.seal_all_blocks();
    t.b.finalize(runtime.isa.frontend_config());
}

/// The signature of every function of a module.
fn native_signature() -> Signature {
    let mut signature = Signature::new(CALL_CONV);
    signature.params = vec![AbiParam::new(types::I64); 7];
    signature.returns = vec![AbiParam::new(types::I64); 2];
    signature
}

/// Whether `FUEL` is anything but what the machine holds: if not, it never leaves the machine.
fn counts_edges(func: &Func) -> bool {
    func.blocks.iter().any(|b| {
        let reads_at_end = matches!(b.term, Term::Branch { lhs, rhs, .. }
            if lhs == Var::FUEL || rhs == Value::Var(Var::FUEL));
        reads_at_end
            || b.ops.iter().any(|(op, _)| match op {
                Op::CallHelper { .. } | Op::CallLocal { .. } => false,
                op => {
                    let mut touches = false;
                    op.each_read(|v| touches |= v == Var::FUEL);
                    op.each_write(|v| touches |= v == Var::FUEL);
                    touches
                }
            })
    })
}

/// A computed value: 64 bits, or the low half of something whose high half is zero.
#[derive(Clone, Copy, Debug)]
enum Result {
    Full(clif::Value),
    ZeroExtended(clif::Value),
}

struct Translator<'a> {
    module: &'a Module,
    func: &'a Func,
    runtime: &'static Runtime,
    machine: clif::Value,
    blocks: Vec<clif::Block>,
    full: Vec<Variable>,
    low: Vec<Variable>,
    numbers: Numbers,
    counts: bool,
    regions: Regions,
    /// Where a refused access of the current block goes: it stores the fuel.
    access_trap: Option<clif::Block>,
    /// Where a trap goes that has left the right fuel in the machine.
    plain_trap: Option<clif::Block>,
    liveness: Liveness,
    /// The innermost loop that the current block is in, by its header.
    in_loop: Option<usize>,
    /// Whether the current block rarely runs.
    cold: bool,
    /// Loops of each block.
    loops: Loops,
    /// Which blocks end in a selection instead of a branch.
    choices: Vec<Option<Choice>>,
    /// Forms before the current operation.
    before: State,
    /// Forms after it.
    after: State,
    lists: &'a mut Lists,
    /// The signature of thunks, once one is called.
    thunk: Option<clif::SigRef>,
    b: FunctionBuilder<'a>,
}

impl Translator<'_> {
    fn prologue(&mut self, entry: clif::Block) {
        let params = self.b.block_params(entry).to_vec();
        self.after = self.liveness.live_in(BlockId(0)).clone();
        for r in 1..=5u16 {
            self.define(Var(r), Result::Full(params[usize::from(r)]));
        }
        self.define(Var::FP, Result::Full(params[6]));
        if self.counts {
            self.load_fuel();
        }
        let given = |v: u16| (1..=5).contains(&v) || Var(v) == Var::FP || Var(v) == Var::FUEL;
        for v in (0..self.func.vars).filter(|&v| !given(v)) {
            if self.wanted(Var(v)) != Form::Dead {
                let zero = self.b.ins().iconst(types::I64, 0);
                self.define(Var(v), Result::Full(zero));
            }
        }
        self.load_regions();
        self.load_frame(params[6]);
        self.declare_loop_regions();
        self.b.ins().jump(self.blocks[0], &[]);
    }

    /// All blocks, each after those that lead to it except by loops, so that most predecessors are known when a
    /// variable is looked up.
    fn body(&mut self) {
        let func = self.func;
        let taken_in: BTreeSet<BlockId> = self.choices.iter().flatten().flat_map(Choice::ways).collect();
        let ways_on = |t: &Self, i: usize| -> BTreeSet<BlockId> {
            match t.choices[i] {
                Some(choice) => [choice.join].into(),
                None => func.blocks[i].term.successors().collect(),
            }
        };
        let order: Vec<usize> =
            reverse_postorder(func).into_iter().filter(|&i| !taken_in.contains(&BlockId(i as u32))).collect();
        let mut to_come = vec![0usize; func.blocks.len()];
        for &i in &order {
            for s in ways_on(self, i) {
                to_come[s.0 as usize] += 1;
            }
        }
        let entry = self.blocks[0];
        if to_come[0] == 0 {
            self.b.seal_block(entry);
        }
        for i in order {
            self.block(i);
            for s in ways_on(self, i) {
                let left = &mut to_come[s.0 as usize];
                *left -= 1;
                if *left == 0 {
                    let block = self.target(s);
                    self.b.seal_block(block);
                }
            }
        }
    }

    fn block(&mut self, index: usize) {
        let func = self.func;
        let block = &func.blocks[index];
        self.b.switch_to_block(self.blocks[index]);
        self.cold = block.cold;
        self.in_loop = self.loops.innermost[index];
        if block.cold {
            self.b.set_cold_block(self.blocks[index]);
        }
        let mut states = self.liveness.states_of(func, index).into_iter();
        self.before = states.next().unwrap_or_default();
        let mut lists = if block.cold { listed(block) } else { Vec::new() }.into_iter();
        for ((op, insn), after) in block.ops.iter().zip(states) {
            self.after = after;
            match (op, lists.next().flatten()) {
                (Op::Load { dst, .. }, Some(listed)) => self.listed_load(*dst, listed),
                _ => self.op(op, *insn),
            }
            std::mem::swap(&mut self.before, &mut self.after);
        }
        if let Term::Jump(to) = block.term {
            self.enter_loop(index, to);
        }
        self.term(&block.term, self.choices[index]);
        if let Some(trap) = self.access_trap.take() {
            self.enter_block(trap);
            self.store_fuel();
            self.return_trapped();
        }
    }

    fn op(&mut self, op: &Op, insn: u32) {
        match *op {
            Op::Mov { width, dst, src } => self.mov(width, dst, src),
            Op::Opaque { dst, src, .. } => self.mov(Width::W64, dst, src.into()),
            Op::MovSx { width, dst, src, bits } => self.mov_sx(width, dst, src, bits),
            Op::MovZx { dst, src, bits } => self.mov_zx(dst, src, bits),
            Op::Bin { op, dst, lhs, rhs } => self.bin(op, dst, lhs, rhs),
            Op::Neg { width, dst, src } => self.neg(width, dst, src),
            Op::End { order, dst, src, bits } => self.byte_order(order, dst, src, bits),
            Op::Load { .. } | Op::Store { .. } | Op::Atomic { .. } => self.access(op, insn),
            Op::CallHelper { import } => self.call_helper(import, insn),
            Op::CallLocal { function } => self.call_local(function),
            Op::Float { op } => self.float(op),
            Op::ZeroFrame { len } => self.zero_frame(len),
            Op::RegionLen { dst, region, write } => {
                if self.wanted(dst) != Form::Dead {
                    let len = self.load_region_len(region, write);
                    self.define(dst, Result::Full(len));
                }
            }
            Op::Refill => self.refill(insn),
        }
    }

    fn term(&mut self, term: &Term, choice: Option<Choice>) {
        match *term {
            Term::Jump(to) => {
                let to = self.target(to);
                self.b.ins().jump(to, &[]);
            }
            Term::Branch { width, cond, lhs, rhs, then, otherwise } => {
                if let Some(choice) = choice {
                    let condition = self.condition_for_choice(width, cond, lhs, rhs);
                    return self.choose(choice, condition);
                }
                // The second way falls through: let that be the one that stays in the loop.
                if self.is_rarer(otherwise, then) {
                    let condition = self.condition(width, cond, lhs, rhs, true);
                    let (then, otherwise) = (self.target(then), self.target(otherwise));
                    self.b.ins().brif(condition, otherwise, &[], then, &[]);
                } else {
                    let condition = self.condition(width, cond, lhs, rhs, false);
                    let (then, otherwise) = (self.target(then), self.target(otherwise));
                    self.b.ins().brif(condition, then, &[], otherwise, &[]);
                }
            }
            Term::Return => {
                if self.counts {
                    self.store_fuel();
                }
                let status = self.b.ins().iconst(types::I64, Status::Returned as i64);
                let value = self.read_full(Var::R0);
                self.b.ins().return_(&[status, value]);
            }
        }
    }

    fn target(&self, block: BlockId) -> clif::Block {
        self.blocks[block.0 as usize]
    }

    fn is_rarer(&self, a: BlockId, b: BlockId) -> bool {
        let frequency = |block: BlockId| {
            let i = block.0 as usize;
            (!self.func.blocks[i].cold, self.loops.depths[i])
        };
        frequency(a) < frequency(b)
    }

    /// A value that is not zero when the condition holds; when it does not, if `inverted`.
    fn condition(&mut self, width: Width, cond: Cond, lhs: Var, rhs: Value, inverted: bool) -> clif::Value {
        let ty = type_of(width);
        let l = self.read_as(ty, lhs.into());
        let r = self.read_as(ty, rhs);
        let Some(code) = comparison(cond) else {
            let common = self.b.ins().band(l, r);
            let code = if inverted { IntCC::Equal } else { IntCC::NotEqual };
            return self.b.ins().icmp_imm_s(code, common, 0);
        };
        let code = if inverted { code.complement() } else { code };
        self.b.ins().icmp(code, l, r)
    }

    /// The forms that later code needs of the value that the current operation writes to `v`.
    fn needed(&self, v: Var) -> Need {
        self.after[usize::from(v.0)]
    }

    /// The form in which that can be computed from bits.
    fn wanted(&self, v: Var) -> Form {
        self.needed(v).form()
    }

    /// Gives a variable a value, in the forms that are needed.
    fn define(&mut self, v: Var, result: Result) {
        self.define_needed(v, self.needed(v), result);
    }

    fn define_needed(&mut self, v: Var, need: Need, result: Result) {
        if need.is_number() {
            self.define_number_from_bits(v, need, result);
        }
        let i = usize::from(v.0);
        let low_too = self.liveness.has_low_use[i];
        match (need.bits, result) {
            (Form::Dead, _) => {}
            (Form::Low, Result::ZeroExtended(x)) => self.b.def_var(self.low[i], x),
            (Form::Low, Result::Full(x)) => {
                let x = self.b.ins().ireduce(types::I32, x);
                self.b.def_var(self.low[i], x);
            }
            (Form::Full, Result::ZeroExtended(x)) => {
                let wide = self.b.ins().uextend(types::I64, x);
                self.b.def_var(self.full[i], wide);
                if low_too {
                    self.b.def_var(self.low[i], x);
                }
            }
            (Form::Full, Result::Full(x)) => {
                self.b.def_var(self.full[i], x);
                if low_too {
                    let x = self.b.ins().ireduce(types::I32, x);
                    self.b.def_var(self.low[i], x);
                }
            }
        }
    }

    /// All 64 bits of a variable.
    fn read_full(&mut self, v: Var) -> clif::Value {
        debug_assert_eq!(self.before[usize::from(v.0)].bits, Form::Full, "{v:?}");
        self.b.use_var(self.full[usize::from(v.0)])
    }

    /// The low half of a variable.
    fn read_low(&mut self, v: Var) -> clif::Value {
        let i = usize::from(v.0);
        debug_assert_ne!(self.before[i].bits, Form::Dead, "{v:?}");
        if self.before[i].bits == Form::Full {
            let x = self.b.use_var(self.full[i]);
            self.b.ins().ireduce(types::I32, x)
        } else {
            self.b.use_var(self.low[i])
        }
    }

    fn read_as(&mut self, ty: Type, value: Value) -> clif::Value {
        match value {
            Value::Var(v) if ty == types::I64 => self.read_full(v),
            Value::Var(v) => self.read_low(v),
            Value::Imm(i) => self.constant(ty, i),
        }
    }

    /// A constant, of which a 32-bit type takes the low half.
    fn constant(&mut self, ty: Type, i: i64) -> clif::Value {
        let i = if ty == types::I32 { i64::from(i as u32) } else { i };
        self.b.ins().iconst(ty, i)
    }

    fn load_machine(&mut self, ty: Type, offset: usize) -> clif::Value {
        self.b.ins().load(ty, trusted(), self.machine, offset as i32)
    }

    fn store_machine(&mut self, value: clif::Value, offset: usize) {
        self.b.ins().store(trusted(), value, self.machine, offset as i32);
    }

    fn load_fuel(&mut self) {
        let fuel = self.load_machine(types::I64, offset_of!(Machine, slice));
        self.b.def_var(self.full[usize::from(Var::FUEL.0)], fuel);
    }

    fn store_fuel(&mut self) {
        let fuel = self.b.use_var(self.full[usize::from(Var::FUEL.0)]);
        self.store_machine(fuel, offset_of!(Machine, slice));
    }

    fn return_trapped(&mut self) {
        let status = self.b.ins().iconst(types::I64, Status::Trapped as i64);
        let value = self.b.ins().iconst(types::I64, 0);
        self.b.ins().return_(&[status, value]);
    }

    fn cold_block(&mut self) -> clif::Block {
        let block = self.b.create_block();
        self.b.set_cold_block(block);
        block
    }

    /// Goes on in a block that nothing more will lead to.
    fn enter_block(&mut self, block: clif::Block) {
        self.b.switch_to_block(block);
        self.b.seal_block(block);
    }

    /// Where a refused access goes.
    fn access_trap(&mut self) -> clif::Block {
        if !self.counts {
            return self.plain_trap();
        }
        if let Some(block) = self.access_trap {
            return block;
        }
        let block = self.cold_block();
        self.access_trap = Some(block);
        block
    }

    /// Where a trap goes that needs nothing stored.
    fn plain_trap(&mut self) -> clif::Block {
        if let Some(block) = self.plain_trap {
            return block;
        }
        let block = self.cold_block();
        self.plain_trap = Some(block);
        block
    }
}

/// The condition as a comparison; `Set` is none.
fn comparison(cond: Cond) -> Option<IntCC> {
    Some(match cond {
        Cond::Eq => IntCC::Equal,
        Cond::Ne => IntCC::NotEqual,
        Cond::Gt => IntCC::UnsignedGreaterThan,
        Cond::Ge => IntCC::UnsignedGreaterThanOrEqual,
        Cond::Lt => IntCC::UnsignedLessThan,
        Cond::Le => IntCC::UnsignedLessThanOrEqual,
        Cond::SGt => IntCC::SignedGreaterThan,
        Cond::SGe => IntCC::SignedGreaterThanOrEqual,
        Cond::SLt => IntCC::SignedLessThan,
        Cond::SLe => IntCC::SignedLessThanOrEqual,
        Cond::Set => return None,
    })
}

fn type_of(width: Width) -> Type {
    match width {
        Width::W32 => types::I32,
        Width::W64 => types::I64,
    }
}

/// Flags of an access that is known to be mapped. Nothing may be assumed of its alignment, and it
/// may not be repeated or moved: others may write the memory.
fn trusted() -> MemFlagsData {
    MemFlagsData::new().with_notrap()
}

/// Where an element of [`Machine::args`] is.
fn argument_offset(i: usize) -> usize {
    offset_of!(Machine, args) + i * size_of::<u64>()
}
