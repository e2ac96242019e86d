//! Arithmetic, as RFC 9669 section 4 defines it, without a branch: LLVM chooses.

use super::{Computed, FunctionEmitter, type_of};
use diskside_sbpf::insn::{AluOp, ByteOrder, Width};
use diskside_sbpf::ir::{BinOp, Value, Var};

impl FunctionEmitter<'_> {
    pub(super) fn mov(&mut self, width: Width, dst: Var, src: Value) {
        // A copy keeps its form: a narrow variable stays one.
        let narrow = matches!(src, Value::Var(v) if self.narrow[usize::from(v.0)]);
        let width = if narrow { Width::W32 } else { width };
        let x = self.read_as(width, src);
        self.define_as(width, dst, x);
    }

    /// An empty piece of assembly is what LLVM does not look through. How many bits there are it may know.
    pub(super) fn opaque(&mut self, dst: Var, src: Var, bits: u8) {
        let x = self.read_full(src);
        let mut x = self.value(format_args!("call i64 asm \"\", \"=r,0\"(i64 {x})"));
        if bits < 64 {
            x = self.value(format_args!("and i64 {x}, {}", (1u64 << bits) - 1));
        }
        self.define(dst, Computed::Full(x));
    }

    pub(super) fn mov_sx(&mut self, width: Width, dst: Var, src: Var, bits: u8) {
        let x = self.read_low(src);
        let x = self.narrowed(x, bits);
        let ty = type_of(width);
        let same = width == Width::W32 && bits == 32;
        let x = if same { x } else { self.value(format_args!("sext i{bits} {x} to {ty}")) };
        self.define_as(width, dst, x);
    }

    pub(super) fn mov_zx(&mut self, dst: Var, src: Value, bits: u8) {
        let x = self.read_as(Width::W32, src);
        let x = self.zero_extended(x, bits);
        self.define(dst, Computed::Low(x));
    }

    pub(super) fn bin(&mut self, op: BinOp, dst: Var, lhs: Var, rhs: Value) {
        let (op, width) = match op {
            BinOp::UMin => {
                let l = self.read_full(lhs);
                let r = self.read_as(Width::W64, rhs);
                let x = self.value(format_args!("call i64 @llvm.umin.i64(i64 {l}, i64 {r})"));
                return self.define(dst, Computed::Full(x));
            }
            BinOp::Alu(op, width) => (op, width),
        };
        let ty = type_of(width);
        let l = self.read_as(width, lhs.into());
        let r = self.read_as(width, rhs);
        let x = match op {
            AluOp::Add => self.value(format_args!("add {ty} {l}, {r}")),
            AluOp::Sub if self.counts_down(dst, lhs, rhs) => self.value(format_args!("sub nsw {ty} {l}, {r}")),
            AluOp::Sub => self.value(format_args!("sub {ty} {l}, {r}")),
            AluOp::Mul => self.value(format_args!("mul {ty} {l}, {r}")),
            AluOp::Or => self.value(format_args!("or {ty} {l}, {r}")),
            AluOp::And => self.value(format_args!("and {ty} {l}, {r}")),
            AluOp::Xor => self.value(format_args!("xor {ty} {l}, {r}")),
            AluOp::Lsh | AluOp::Rsh | AluOp::Arsh => self.shift(op, width, &l, &r),
            AluOp::Div | AluOp::SDiv | AluOp::Mod | AluOp::SMod => self.divide(op, width, &l, &r),
        };
        self.define_as(width, dst, x);
    }

    /// Fuel is not negative when one is taken off: below zero, control leaves for a refill.
    fn counts_down(&self, dst: Var, lhs: Var, rhs: Value) -> bool {
        dst == lhs && rhs == Value::Imm(1) && dst == Var::FUEL
    }

    pub(super) fn neg(&mut self, width: Width, dst: Var, src: Var) {
        let x = self.read_as(width, src.into());
        let x = self.value(format_args!("sub {} 0, {x}", type_of(width)));
        self.define_as(width, dst, x);
    }

    pub(super) fn byte_order(&mut self, order: ByteOrder, dst: Var, src: Var, bits: u8) {
        let swap = order != ByteOrder::ToLe;
        if bits == 64 {
            let mut x = self.read_full(src);
            if swap {
                x = self.value(format_args!("call i64 @llvm.bswap.i64(i64 {x})"));
            }
            return self.define(dst, Computed::Full(x));
        }
        let x = self.read_low(src);
        let mut x = self.narrowed(x, bits);
        if swap {
            x = self.value(format_args!("call i{bits} @llvm.bswap.i{bits}(i{bits} {x})"));
        }
        if bits < 32 {
            x = self.value(format_args!("zext i{bits} {x} to i32"));
        }
        self.define(dst, Computed::Low(x));
    }

    /// The low bits of a 32-bit value, in a type of that width.
    pub(super) fn narrowed(&mut self, x: String, bits: u8) -> String {
        if bits == 32 { x } else { self.value(format_args!("trunc i32 {x} to i{bits}")) }
    }

    /// The low bits of a 32-bit value.
    fn zero_extended(&mut self, x: String, bits: u8) -> String {
        if bits == 32 { x } else { self.value(format_args!("and i32 {x}, {}", (1u32 << bits) - 1)) }
    }

    /// Shifts use the amount modulo the width.
    fn shift(&mut self, op: AluOp, width: Width, l: &str, r: &str) -> String {
        let ty = type_of(width);
        let mask = if width == Width::W64 { 63 } else { 31 };
        let amount = self.value(format_args!("and {ty} {r}, {mask}"));
        let name = match op {
            AluOp::Lsh => "shl",
            AluOp::Rsh => "lshr",
            _ => "ashr",
        };
        self.value(format_args!("{name} {ty} {l}, {amount}"))
    }

    /// Division by zero gives 0 and modulo by zero the dividend; the least number divided by -1 is
    /// itself. None of these may reach the division, for which they are undefined: it divides by 1.
    fn divide(&mut self, op: AluOp, width: Width, l: &str, r: &str) -> String {
        let ty = type_of(width);
        let zero = self.value(format_args!("icmp eq {ty} {r}, 0"));
        let signed = matches!(op, AluOp::SDiv | AluOp::SMod);
        let mut special = zero.clone();
        let mut minus_one = String::new();
        if signed {
            minus_one = self.value(format_args!("icmp eq {ty} {r}, -1"));
            special = self.value(format_args!("or i1 {zero}, {minus_one}"));
        }
        let by = self.value(format_args!("select i1 {special}, {ty} 1, {ty} {r}"));
        let name = match op {
            AluOp::Div => "udiv",
            AluOp::SDiv => "sdiv",
            AluOp::Mod => "urem",
            _ => "srem",
        };
        let mut x = self.value(format_args!("{name} {ty} {l}, {by}"));
        if op == AluOp::SDiv {
            let negated = self.value(format_args!("sub {ty} 0, {l}"));
            x = self.value(format_args!("select i1 {minus_one}, {ty} {negated}, {ty} {x}"));
        }
        // By -1 nothing remains, as by 1.
        let by_zero = if matches!(op, AluOp::Mod | AluOp::SMod) { l } else { "0" };
        self.value(format_args!("select i1 {zero}, {ty} {by_zero}, {ty} {x}"))
    }
}
