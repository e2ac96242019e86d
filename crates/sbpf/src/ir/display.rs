//! The checked IR as text, for `inspect` and for reading what the optimiser did.

use super::{BinOp, Block, BlockId, Check, Func, Module, Op, Term, Value, Var};
use crate::insn::{AluOp, Cond, Size, Width};
use std::fmt;

impl fmt::Display for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, func) in self.functions.iter().enumerate() {
            writeln!(
                f,
                "{}function {i} {} (frame {} bytes)",
                if i > 0 { "\n" } else { "" },
                func.name,
                func.frame_len
            )?;
            func.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Func {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, b) in self.blocks.iter().enumerate() {
            block(f, BlockId(i as u32), b)?;
        }
        Ok(())
    }
}

fn block(f: &mut fmt::Formatter<'_>, id: BlockId, b: &Block) -> fmt::Result {
    writeln!(f, "{id}:{}", if b.cold { " (cold)" } else { "" })?;
    for (op, insn) in &b.ops {
        writeln!(f, "  {insn:>5}  {op}")?;
    }
    writeln!(f, "  {:>5}  {}", b.term_insn, b.term)
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b{}", self.0)
    }
}

impl fmt::Display for Var {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::FUEL => f.write_str("fuel"),
            Self(n) if n < Self::FUEL.0 => write!(f, "r{n}"),
            Self(n) => write!(f, "v{n}"),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Var(v) => v.fmt(f),
            Self::Imm(i) if i.unsigned_abs() < 4096 => write!(f, "{i}"),
            Self::Imm(i) => write!(f, "{i:#x}"),
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct(r) => write!(f, "{r}, proved"),
            Self::Hinted(r) => write!(f, "{r}, checked"),
            Self::Any => f.write_str("any region, looked up"),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mov { width, dst, src } => write!(f, "{dst} = {src}{}", suffix(*width)),
            Self::MovSx { width, dst, src, bits } => write!(f, "{dst} = sext{bits} {src}{}", suffix(*width)),
            Self::MovZx { dst, src, bits } => write!(f, "{dst} = zext{bits} {src}"),
            Self::Bin { op: BinOp::UMin, dst, lhs, rhs } => write!(f, "{dst} = umin {lhs}, {rhs}"),
            Self::Bin { op: BinOp::Alu(op, width), dst, lhs, rhs } => {
                write!(f, "{dst} = {lhs} {} {rhs}{}", symbol(*op), suffix(*width))
            }
            Self::Neg { width, dst, src } => write!(f, "{dst} = -{src}{}", suffix(*width)),
            Self::End { order, dst, src, bits } => write!(f, "{dst} = {order:?}{bits} {src}"),
            Self::Load { dst, base, off, size, signed, check } => {
                write!(f, "{dst} = {}{} [{base}{off:+}]  ; {check}", if *signed { "s" } else { "u" }, bits(*size))
            }
            Self::Store { base, off, size, src, check } => {
                write!(f, "u{} [{base}{off:+}] = {src}  ; {check}", bits(*size))
            }
            Self::Atomic { op, fetch, size, base, off, src } => {
                let fetch = if *fetch { " fetch" } else { "" };
                write!(f, "atomic{fetch} {op:?} u{} [{base}{off:+}], {src}", bits(*size))
            }
            Self::CallHelper { import } => write!(f, "r0 = helper {import}"),
            Self::CallLocal { function } => write!(f, "r0 = function {function}"),
            Self::Float { op } => write!(f, "r0 = {op:?} r1, r2"),
            Self::ZeroFrame { len } => write!(f, "zero the frame, {len} bytes"),
            Self::RegionLen { dst, region, write } => {
                write!(f, "{dst} = length of {region}{}", if *write { " for writing" } else { "" })
            }
            Self::Opaque { dst, src, bits } => write!(f, "{dst} = {src}, opaque, {bits} bits"),
            Self::Refill => f.write_str("refill"),
        }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Jump(b) => write!(f, "goto {b}"),
            Self::Branch { width, cond, lhs, rhs, then, otherwise } => {
                write!(f, "if {lhs} {} {rhs}{} goto {then} else {otherwise}", relation(*cond), suffix(*width))
            }
            Self::Return => f.write_str("return r0"),
        }
    }
}

fn suffix(width: Width) -> &'static str {
    match width {
        Width::W32 => " (32)",
        Width::W64 => "",
    }
}

fn bits(size: Size) -> u64 {
    size.bytes() * 8
}

fn symbol(op: AluOp) -> &'static str {
    match op {
        AluOp::Add => "+",
        AluOp::Sub => "-",
        AluOp::Mul => "*",
        AluOp::Div => "/",
        AluOp::SDiv => "s/",
        AluOp::Mod => "%",
        AluOp::SMod => "s%",
        AluOp::Or => "|",
        AluOp::And => "&",
        AluOp::Xor => "^",
        AluOp::Lsh => "<<",
        AluOp::Rsh => ">>",
        AluOp::Arsh => "s>>",
    }
}

fn relation(cond: Cond) -> &'static str {
    match cond {
        Cond::Eq => "==",
        Cond::Ne => "!=",
        Cond::Gt => ">",
        Cond::Ge => ">=",
        Cond::Lt => "<",
        Cond::Le => "<=",
        Cond::Set => "&",
        Cond::SGt => "s>",
        Cond::SGe => "s>=",
        Cond::SLt => "s<",
        Cond::SLe => "s<=",
    }
}
