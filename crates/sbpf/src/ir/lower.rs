//! From a verified program to the checked IR, one check at every access.

use super::{BinOp, Block, BlockId, Check, Func, Module, Op, Term, Value, Var};
use crate::helpers::HelperSet;
use crate::image::Image;
use crate::insn::{AluOp, CallTarget, Insn, Operand, Reg, Size, Slot, Width, decode};
use crate::region::RegionId;
use crate::verify::{Base, Contract, Verified, VerifiedFunction};
use std::collections::BTreeMap;

/// Most stack slots of a function that become variables; the others stay memory. Each variable costs later stages
/// something in each block.
const SLOT_VARIABLES_MAX: usize = 512;

/// Lowers a verified program.
#[must_use]
pub fn lower(verified: &Verified, helpers: &HelperSet) -> Module {
    let functions = verified
        .functions
        .iter()
        .map(|f| FunctionLowering::new(verified, f, &verified.contract, helpers).lower())
        .collect();
    Module {
        functions,
        stack_len: verified.stack_len,
        stack_addressable: verified.stack_addressable,
        effects: verified.effects,
        lens: lens(verified),
    }
}

fn lens(verified: &Verified) -> BTreeMap<RegionId, u64> {
    let (image, entry) = (&verified.image, &verified.image.programs[verified.program]);
    let mut lens =
        BTreeMap::from([(RegionId::RODATA, image.rodata.len() as u64), (RegionId::DATA, image.data.len() as u64)]);
    if image.note.out_ratio.0 == 0 {
        lens.insert(RegionId::OUTPUT, image.note.out_constant);
    }
    if let Some(args) = &entry.args {
        lens.insert(RegionId::ARGS, u64::from(args.len_bytes));
    }
    lens
}

struct FunctionLowering<'a> {
    image: &'a Image,
    function: &'a VerifiedFunction,
    contract: &'a Contract,
    helpers: &'a HelperSet,
    /// First slot of the function in the image.
    start: usize,
    /// Variables that represent stack slots, by frame offset and size.
    slots: BTreeMap<(i32, Size), Var>,
    uses_frame_memory: bool,
    vars: u16,
    blocks: Vec<Block>,
}

impl<'a> FunctionLowering<'a> {
    fn new(
        verified: &'a Verified,
        function: &'a VerifiedFunction,
        contract: &'a Contract,
        helpers: &'a HelperSet,
    ) -> Self {
        let mut lowering = Self {
            image: &verified.image,
            function,
            contract,
            helpers,
            start: verified.image.functions[function.function].start,
            slots: BTreeMap::new(),
            uses_frame_memory: verified.stack_addressable,
            vars: Var::FIRST_FREE,
            blocks: Vec::new(),
        };
        if !verified.stack_addressable {
            lowering.promote_slots();
        }
        lowering
    }

    fn code(&self) -> &'a [Slot] {
        let f = &self.image.functions[self.function.function];
        &self.image.code[f.start..f.end]
    }

    /// Gives a variable to each stack slot that is always accessed at one offset and size. Nobody
    /// else can reach it: the stack's window is unmapped when no stack address escapes.
    fn promote_slots(&mut self) {
        let mut accesses: BTreeMap<(i32, Size), bool> = BTreeMap::new();
        for block in &self.function.cfg.blocks {
            for (at, insn) in insns(self.code(), block.start, block.end) {
                let Base::Frame(off) = self.function.bases[at] else {
                    continue;
                };
                let (size, plain) = match insn {
                    Insn::Load { size, .. } | Insn::Store { size, .. } => (size, true),
                    Insn::Atomic { size, .. } => (size, false),
                    _ => continue,
                };
                *accesses.entry((off, size)).or_insert(true) &= plain;
            }
        }
        let all: Vec<_> = accesses.into_iter().collect();
        let end = |(off, size): (i32, Size)| off + size.bytes() as i32;
        let overlaps = |i: usize| {
            let (slot, _) = all[i];
            // They are in the order of their first bytes, and none is longer than 8.
            let before = all[..i].iter().rev().take_while(|(other, _)| slot.0 - other.0 < 8);
            let behind = all[i + 1..].iter().take_while(|(other, _)| other.0 < end(slot));
            before.chain(behind).any(|&(other, _)| other.0 < end(slot) && slot.0 < end(other))
        };
        for (i, &(slot, plain)) in all.iter().enumerate() {
            if plain && self.slots.len() < SLOT_VARIABLES_MAX && !overlaps(i) {
                self.slots.insert(slot, Var(self.vars));
                self.vars += 1;
            } else {
                self.uses_frame_memory = true;
            }
        }
    }

    fn lower(mut self) -> Func {
        let cfg = &self.function.cfg;
        // Block 0 is the prologue, so that the entry is never the target of a jump.
        let mut prologue = Block::empty(self.start as u32, Term::Jump(BlockId(1)));
        if self.uses_frame_memory && self.function.frame_len > 0 {
            prologue.ops.push((Op::ZeroFrame { len: self.function.frame_len }, self.start as u32));
        }
        self.blocks.push(prologue);
        for _ in &cfg.blocks {
            self.blocks.push(Block::empty(0, Term::Return));
        }
        for (i, block) in cfg.blocks.iter().enumerate() {
            self.lower_block(i, block);
        }
        Func {
            name: self.image.functions[self.function.function].name.clone(),
            blocks: self.blocks,
            vars: self.vars,
            frame_len: self.function.frame_len,
            loops: Vec::new(),
        }
    }

    fn lower_block(&mut self, index: usize, block: &crate::verify::CfgBlock) {
        let mut ops = Vec::new();
        let mut last = (block.start, None);
        let code: Vec<_> = insns(self.code(), block.start, block.end).collect();
        let mut i = 0;
        while i < code.len() {
            let (at, insn) = code[i];
            last = (at, Some(insn));
            let absolute = (self.start + at) as u32;
            if let Some(op) = extension_idiom(insn, code.get(i + 1).map(|n| n.1)) {
                ops.push((op, absolute));
                i += 2;
                continue;
            }
            if let Some(op) = self.op(at, insn) {
                ops.push((op, absolute));
            }
            i += 1;
        }
        let term_insn = (self.start + last.0) as u32;
        let edge = |this: &mut Self, n: usize| {
            let target = BlockId(block.successors[n] as u32 + 1);
            if block.retreats[n] { this.charged_edge(target, term_insn) } else { target }
        };
        let term = match last.1 {
            Some(Insn::Exit) => Term::Return,
            Some(Insn::Jmp { width, cond, dst, src, .. }) => {
                let otherwise = edge(self, 0);
                let then = edge(self, 1);
                Term::Branch { width, cond, lhs: var(dst), rhs: value(src), then, otherwise }
            }
            _ if block.retreats[0] => {
                // The only way out: pay in place.
                ops.push((charge(), term_insn));
                let target = BlockId(block.successors[0] as u32 + 1);
                let refill = self.refill_block(target, term_insn);
                out_of_fuel(refill, target)
            }
            _ => Term::Jump(BlockId(block.successors[0] as u32 + 1)),
        };
        self.blocks[index + 1] = Block { ops, term, term_insn, cold: false };
    }

    /// A block on a retreating edge that pays for it.
    fn charged_edge(&mut self, target: BlockId, insn: u32) -> BlockId {
        let refill = self.refill_block(target, insn);
        let mut block = Block::empty(insn, out_of_fuel(refill, target));
        block.ops.push((charge(), insn));
        self.push(block)
    }

    fn refill_block(&mut self, target: BlockId, insn: u32) -> BlockId {
        let mut block = Block::empty(insn, Term::Jump(target));
        block.ops.push((Op::Refill, insn));
        block.cold = true;
        self.push(block)
    }

    fn push(&mut self, block: Block) -> BlockId {
        self.blocks.push(block);
        BlockId(self.blocks.len() as u32 - 1)
    }

    fn op(&self, at: usize, insn: Insn) -> Option<Op> {
        Some(match insn {
            Insn::Alu { width, op, dst, src } => {
                Op::Bin { op: BinOp::Alu(op, width), dst: var(dst), lhs: var(dst), rhs: value(src) }
            }
            Insn::Mov { width, dst, src } => Op::Mov { width, dst: var(dst), src: value(src) },
            Insn::MovSx { width, dst, src, bits } => Op::MovSx { width, dst: var(dst), src: var(src), bits },
            Insn::Neg { width, dst } => Op::Neg { width, dst: var(dst), src: var(dst) },
            Insn::End { order, dst, bits } => Op::End { order, dst: var(dst), src: var(dst), bits },
            Insn::LoadImm64 { dst, imm, .. } => {
                Op::Mov { width: Width::W64, dst: var(dst), src: Value::Imm(imm as i64) }
            }
            Insn::Load { dst, base, off, size, signed } => {
                if let Some(slot) = self.slot(at, size) {
                    return Some(if signed {
                        let bits = size.bytes() as u8 * 8;
                        Op::MovSx { width: Width::W64, dst: var(dst), src: slot, bits }
                    } else {
                        Op::Mov { width: Width::W64, dst: var(dst), src: slot.into() }
                    });
                }
                let check = self.check(at, false);
                Op::Load { dst: var(dst), base: var(base), off: i64::from(off), size, signed, check }
            }
            Insn::Store { base, off, size, src } => {
                if let Some(slot) = self.slot(at, size) {
                    return Some(match size {
                        Size::DW => Op::Mov { width: Width::W64, dst: slot, src: value(src) },
                        _ => Op::MovZx { dst: slot, src: value(src), bits: size.bytes() as u8 * 8 },
                    });
                }
                let check = self.check(at, true);
                Op::Store { base: var(base), off: i64::from(off), size, src: value(src), check }
            }
            Insn::Atomic { op, fetch, size, base, off, src } => {
                Op::Atomic { op, fetch, size, base: var(base), off: i64::from(off), src: var(src) }
            }
            Insn::Call { target: CallTarget::Local(_) } => {
                Op::CallLocal { function: self.function.callees[&at] as u32 }
            }
            Insn::Call { target: CallTarget::Helper(import) } => {
                let helper = self.image.imports.get(import as usize).and_then(|i| i.helper);
                match helper.and_then(|id| self.helpers.get(id).float) {
                    Some(op) => Op::Float { op },
                    None => Op::CallHelper { import },
                }
            }
            // The verifier refuses calls by BTF id; the rest ends a block.
            Insn::Call { target: CallTarget::Btf(_) } | Insn::Ja { .. } | Insn::Jmp { .. } | Insn::Exit => {
                return None;
            }
        })
    }

    fn slot(&self, at: usize, size: Size) -> Option<Var> {
        let Base::Frame(off) = self.function.bases[at] else {
            return None;
        };
        self.slots.get(&(off, size)).copied()
    }

    fn check(&self, at: usize, write: bool) -> Check {
        match self.function.bases[at] {
            Base::Unknown => Check::Any,
            Base::Frame(_) => Check::Direct(RegionId::STACK),
            Base::Context(_) => Check::Direct(RegionId::CONTEXT),
            Base::Region(r) if write && !self.writable(r) => Check::Any,
            Base::Region(r) => Check::Hinted(r),
        }
    }

    fn writable(&self, region: RegionId) -> bool {
        matches!(region, RegionId::STACK | RegionId::DATA | RegionId::HEAP | RegionId::STATE)
            || self.contract.writable.contains(&region)
    }
}

impl Block {
    /// A block without operations.
    #[must_use]
    pub fn empty(term_insn: u32, term: Term) -> Self {
        Self { ops: Vec::new(), term, term_insn, cold: false }
    }
}

/// One retreating edge.
pub(crate) fn charge() -> Op {
    Op::Bin { op: BinOp::Alu(AluOp::Sub, Width::W64), dst: Var::FUEL, lhs: Var::FUEL, rhs: Value::Imm(1) }
}

/// The end of a charge: to `refill` when the edge could not be paid.
pub(crate) fn out_of_fuel(refill: BlockId, target: BlockId) -> Term {
    is_negative(Var::FUEL, refill, target)
}

/// Goes to `then` when the variable is below zero.
pub(crate) fn is_negative(v: Var, then: BlockId, otherwise: BlockId) -> Term {
    Term::Branch { width: Width::W64, cond: crate::insn::Cond::SLt, lhs: v, rhs: Value::Imm(0), then, otherwise }
}

/// The shift pairs by which compilers extend before `-mcpu=v4` has instructions for it.
fn extension_idiom(first: Insn, second: Option<Insn>) -> Option<Op> {
    let shift = |i: Insn| match i {
        Insn::Alu { width: Width::W64, op, dst, src: Operand::Imm(k) } => Some((op, dst, k)),
        _ => None,
    };
    let (AluOp::Lsh, dst, k) = shift(first)? else {
        return None;
    };
    let (op, dst2, k2) = shift(second?)?;
    if dst != dst2 || k != k2 || !matches!(k, 32 | 48 | 56) {
        return None;
    }
    let (dst, bits) = (var(dst), 64 - k as u8);
    match op {
        AluOp::Rsh => Some(Op::MovZx { dst, src: dst.into(), bits }),
        AluOp::Arsh => Some(Op::MovSx { width: Width::W64, dst, src: dst, bits }),
        _ => None,
    }
}

fn var(r: Reg) -> Var {
    Var(u16::from(r.0))
}

fn value(o: Operand) -> Value {
    match o {
        Operand::Reg(r) => Value::Var(var(r)),
        Operand::Imm(i) => Value::Imm(i64::from(i)),
    }
}

fn insns(code: &[Slot], start: usize, end: usize) -> impl Iterator<Item = (usize, Insn)> {
    let mut at = start;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let insn = decode(&code[at..]).expect("the verifier decoded every slot");
        let here = at;
        at += insn.slots();
        Some((here, insn))
    })
}
