//! The checked IR: one small language that every tier consumes.
//!
//! A function is a graph of blocks over mutable 64-bit variables: `r0` to `r10`, the retreating-edge
//! counter [`Var::FUEL`], promoted stack slots and temporaries. Everything that costs or can stop
//! the program is explicit: each access says how it is checked ([`Check`]), each retreating edge
//! is a subtraction from [`Var::FUEL`] with a branch to a block that refills it, each helper call is
//! an operation. Nothing is implied, so a tier that lowers each operation one by one is correct.
//!
//! [`lower`] makes it from a verified program with a check at every access (the form that the
//! interpreter runs); `opt` rewrites it so that loops run without checks where one test before the
//! loop proves them (the form that the compilers take). Both forms give the same results, traps and
//! budget left.
//!
//! # What must hold
//! - An [`Check::Direct`] access lies inside its region whenever control reaches it. Lowering proves
//!   it for constant stack and context offsets, `opt` by a guard. This is the trusted part.
//! - [`Check::Hinted`] is a hint: a wrong region costs speed only.
//! - When an operation traps, the budget left is `FUEL`. Fast loops that pay for several trips in
//!   advance have no operation that traps, looks at the budget or calls.
//! - On entry of a [`Op::Refill`], `FUEL` is -1. When a call or a refill traps, `Machine::slice` already
//!   holds what is left.

pub mod display;
pub mod lower;

use crate::insn::{AluOp, AtomicOp, ByteOrder, Cond, Size, Width};
use crate::region::RegionId;
use crate::verify::Effects;

/// A verified program in checked form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Module {
    /// Functions; the first is the entry point.
    pub functions: Vec<Func>,
    /// Bytes of stack for the deepest chain of calls; 0 when the stack is not used as memory.
    pub stack_len: u64,
    /// Whether the stack may be reached by computed addresses. If not, its window is unmapped.
    pub stack_addressable: bool,
    /// The effects of the program besides its result.
    pub effects: Effects,
    /// Lengths that regions have in every call, where the object says them: hints of what a guard may ask for.
    pub lens: std::collections::BTreeMap<RegionId, u64>,
}

/// A function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Func {
    /// Symbol name.
    pub name: String,
    /// Blocks; the first is the entry. `r1` to `r5`, `r10` and `FUEL` are set there, the rest is 0.
    pub blocks: Vec<Block>,
    /// Number of variables, all 0 on entry except those above.
    pub vars: u16,
    /// Bytes of its frame.
    pub frame_len: u64,
    /// A report of the optimiser on each loop.
    pub loops: Vec<LoopReport>,
}

/// A variable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Var(pub u16);

impl Var {
    /// `r0`; the registers follow up to `r10`.
    pub const R0: Self = Self(0);
    /// The frame pointer.
    pub const FP: Self = Self(10);
    /// Retreating edges left in this slice, signed; below 0 means that one is not yet paid.
    pub const FUEL: Self = Self(11);
    /// The first variable that is not a register.
    pub const FIRST_FREE: u16 = 12;
}

/// Index of a block in its function.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockId(pub u32);

/// A straight run of operations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block {
    /// Operations, each with the instruction slot it came from.
    pub ops: Vec<(Op, u32)>,
    /// How it ends.
    pub term: Term,
    /// Instruction slot of the end.
    pub term_insn: u32,
    /// True where control comes rarely: refills, slow copies' entries.
    pub cold: bool,
}

/// A value: a variable or a constant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Value {
    /// A variable.
    Var(Var),
    /// A constant, already sign-extended to 64 bits.
    Imm(i64),
}

impl From<Var> for Value {
    fn from(v: Var) -> Self {
        Self::Var(v)
    }
}

/// How an access is proved to lie inside its region.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Check {
    /// Proved before: host address is region base plus offset, no test.
    Direct(RegionId),
    /// Probably this region: test its bound inline, else look the address up. For a store the
    /// region is one that the program may write.
    Hinted(RegionId),
    /// Any region: look the address up.
    Any,
}

/// Binary operations: those of eBPF, and two that only the optimiser emits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BinOp {
    /// As the RFC defines it, in this width.
    Alu(AluOp, Width),
    /// Unsigned minimum of 64 bits.
    UMin,
}

/// An operation.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are the operands that the variant's doc shows")]
pub enum Op {
    /// `dst = src`; with `W32` zero-extended.
    Mov { width: Width, dst: Var, src: Value },
    /// `dst = sign-extend(low bits of src)`, then zero-extended from `width`.
    MovSx { width: Width, dst: Var, src: Var, bits: u8 },
    /// `dst = zero-extend(low bits of src)`, bits 8, 16 or 32.
    MovZx { dst: Var, src: Value, bits: u8 },
    /// `dst = lhs op rhs`.
    Bin { op: BinOp, dst: Var, lhs: Var, rhs: Value },
    /// `dst = -src`.
    Neg { width: Width, dst: Var, src: Var },
    /// Byte order of the low `bits`.
    End { order: ByteOrder, dst: Var, src: Var, bits: u8 },
    /// `dst = *(size *)(base + off)`.
    Load { dst: Var, base: Var, off: i64, size: Size, signed: bool, check: Check },
    /// `*(size *)(base + off) = src`.
    Store { base: Var, off: i64, size: Size, src: Value, check: Check },
    /// Sequentially consistent; `off` and base as in `Store`. With `fetch` the old value goes to
    /// `src` (to `r0` for compare-and-exchange), zero-extended.
    Atomic { op: AtomicOp, fetch: bool, size: Size, base: Var, off: i64, src: Var },
    /// `r0 = import(r1, …, r5)`. Stores `FUEL` before and loads it after. `r1` to `r5` become 0.
    CallHelper { import: u32 },
    /// `r0 = function(r1, …, r5)` with `r10` moved up by the callee's frame; `FUEL` passes through.
    /// `r1` to `r5` become 0.
    CallLocal { function: u32 },
    /// `r0 = op(r1, r2)`. `r1` to `r5` become 0.
    Float { op: FloatOp },
    /// Writes zeros to `[r10 - len, r10)`.
    ZeroFrame { len: u64 },
    /// `dst` = length of the region (for a write: 0 when it is read-only).
    RegionLen { dst: Var, region: RegionId, write: bool },
    /// `dst = src`, which is below `2^bits`. A compiler takes it as given and does not look at how it was made:
    /// what a guard has computed is not computed again in the loop behind it.
    Opaque { dst: Var, src: Var, bits: u8 },
    /// Asks the host for more fuel; traps when there is none, or on deadline or cancellation.
    Refill,
}

/// How a block ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Term {
    /// Goes on there.
    Jump(BlockId),
    /// Goes to `then` when the condition holds.
    Branch {
        /// Width of the comparison.
        width: Width,
        /// Condition.
        cond: Cond,
        /// Left side.
        lhs: Var,
        /// Right side.
        rhs: Value,
        /// Where it goes when the condition holds.
        then: BlockId,
        /// Where it goes otherwise.
        otherwise: BlockId,
    },
    /// Returns `r0` and `FUEL`.
    Return,
}

/// Floating point. Operands are bit patterns; a NaN result is the canonical quiet NaN; conversions
/// to integers saturate and send NaN to 0. Nothing is reassociated or fused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "named as the header's intrinsics")]
pub enum FloatOp {
    F64Add,
    F64Sub,
    F64Mul,
    F64Div,
    F64Sqrt,
    F64Neg,
    F64Abs,
    /// IEEE 754-2019 minimum: NaN if either is NaN, -0 below +0.
    F64Min,
    F64Max,
    F64Floor,
    F64Ceil,
    F64Trunc,
    /// To nearest, ties to even.
    F64Round,
    /// 1 or 0; false when unordered.
    F64Eq,
    F64Lt,
    F64Le,
    F64FromI64,
    F64FromU64,
    F64ToI64,
    F64ToU64,
    F64FromF32,
    F32Add,
    F32Sub,
    F32Mul,
    F32Div,
    F32Sqrt,
    F32Neg,
    F32Abs,
    F32Min,
    F32Max,
    F32Floor,
    F32Ceil,
    F32Trunc,
    F32Round,
    F32Eq,
    F32Lt,
    F32Le,
    F32FromI64,
    F32FromU64,
    F32ToI64,
    F32ToU64,
    F32FromF64,
}

/// The outcome for a loop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoopReport {
    /// Instruction slot of its header.
    pub insn: u32,
    /// Slots of all its instructions, in order, with those of the loops inside.
    pub insns: Vec<u32>,
    /// Accesses in the loop.
    pub accesses: u32,
    /// The number of these that run without a check in the fast copy.
    pub unchecked: u32,
    /// True when a fast copy was made.
    pub hoisted: bool,
    /// Why not, or why some checks stayed; empty when all went.
    pub why: Vec<String>,
}

impl Op {
    /// Whether it is an access that can stop the program.
    #[must_use]
    pub fn may_trap_on_access(&self) -> bool {
        match self {
            Self::Load { check, .. } | Self::Store { check, .. } => !matches!(check, Check::Direct(_)),
            Self::Atomic { .. } => true,
            _ => false,
        }
    }

    /// The variable that the operation writes, apart from the fixed ones of calls.
    #[must_use]
    pub fn dst(&self) -> Option<Var> {
        match *self {
            Self::Mov { dst, .. }
            | Self::MovSx { dst, .. }
            | Self::MovZx { dst, .. }
            | Self::Bin { dst, .. }
            | Self::Neg { dst, .. }
            | Self::End { dst, .. }
            | Self::Load { dst, .. }
            | Self::RegionLen { dst, .. }
            | Self::Opaque { dst, .. } => Some(dst),
            Self::Atomic { op: AtomicOp::Cmpxchg, .. } => Some(Var::R0),
            Self::Atomic { fetch: true, src, .. } => Some(src),
            _ => None,
        }
    }

    /// Calls `f` with every variable that the operation writes.
    pub fn each_write(&self, mut f: impl FnMut(Var)) {
        match self {
            Self::CallHelper { .. } | Self::CallLocal { .. } => {
                (0..=5).for_each(|r| f(Var(r)));
                f(Var::FUEL);
            }
            Self::Float { .. } => (0..=5).for_each(|r| f(Var(r))),
            Self::Refill => f(Var::FUEL),
            _ => {
                if let Some(v) = self.dst() {
                    f(v);
                }
            }
        }
    }

    /// Calls `f` with every variable that the operation reads.
    pub fn each_read(&self, mut f: impl FnMut(Var)) {
        let mut value = |v: &Value| {
            if let Value::Var(v) = v {
                f(*v);
            }
        };
        match self {
            Self::Mov { src, .. } | Self::MovZx { src, .. } => value(src),
            Self::MovSx { src, .. } | Self::Neg { src, .. } | Self::End { src, .. } | Self::Opaque { src, .. } => {
                f(*src);
            }
            Self::Bin { lhs, rhs, .. } => {
                value(rhs);
                f(*lhs);
            }
            Self::Load { base, .. } => f(*base),
            Self::Store { base, src, .. } => {
                value(src);
                f(*base);
            }
            Self::Atomic { op, base, src, .. } => {
                f(*base);
                f(*src);
                if *op == AtomicOp::Cmpxchg {
                    f(Var::R0);
                }
            }
            Self::CallHelper { .. } | Self::CallLocal { .. } => {
                (1..=5).for_each(|r| f(Var(r)));
                f(Var::FUEL);
                if matches!(self, Self::CallLocal { .. }) {
                    f(Var::FP);
                }
            }
            Self::Float { .. } => {
                f(Var(1));
                f(Var(2));
            }
            Self::ZeroFrame { .. } => f(Var::FP),
            Self::RegionLen { .. } => {}
            Self::Refill => f(Var::FUEL),
        }
    }
}

impl Term {
    /// The blocks that may follow.
    pub fn successors(&self) -> impl Iterator<Item = BlockId> + use<> {
        let (a, b) = match *self {
            Self::Jump(b) => (Some(b), None),
            Self::Branch { then, otherwise, .. } => (Some(then), Some(otherwise)),
            Self::Return => (None, None),
        };
        a.into_iter().chain(b)
    }
}
