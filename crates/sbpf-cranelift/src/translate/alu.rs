//! Arithmetic, as RFC 9669 section 4 defines it.

use super::{Result, Translator, type_of};
use crate::liveness::Form;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self as clif, InstBuilder, Type, types};
use diskside_sbpf::insn::{AluOp, ByteOrder, Width};
use diskside_sbpf::ir::{BinOp, Value, Var};

impl Translator<'_> {
    pub(super) fn mov(&mut self, width: Width, dst: Var, src: Value) {
        let need = match src {
            Value::Var(src) => self.copy_number(width, dst, src),
            Value::Imm(_) => self.needed(dst),
        };
        let ty = match (need.form(), width) {
            (Form::Dead, _) => return,
            (Form::Full, Width::W64) => types::I64,
            _ => types::I32,
        };
        if let (Value::Imm(i), Form::Full) = (src, need.form()) {
            let i = if width == Width::W32 { i64::from(i as u32) } else { i };
            let x = self.constant(types::I64, i);
            return self.define(dst, Result::Full(x));
        }
        let x = self.read_as(ty, src);
        let x = if ty == types::I64 { Result::Full(x) } else { Result::ZeroExtended(x) };
        self.define_needed(dst, need, x);
    }

    pub(super) fn mov_sx(&mut self, width: Width, dst: Var, src: Var, bits: u8) {
        if self.wanted(dst) == Form::Dead {
            return;
        }
        let ty = if self.wanted(dst) == Form::Full { type_of(width) } else { types::I32 };
        let x = self.read_low(src);
        let x = self.narrow(x, bits);
        let x = if self.b.func.dfg.value_type(x) == ty { x } else { self.b.ins().sextend(ty, x) };
        self.define_as(ty, dst, x);
    }

    pub(super) fn mov_zx(&mut self, dst: Var, src: Value, bits: u8) {
        if bits == 32 {
            return self.mov(Width::W32, dst, src);
        }
        if self.wanted(dst) == Form::Dead {
            return;
        }
        let x = self.read_as(types::I32, src);
        let x = self.narrow(x, bits);
        let x = self.b.ins().uextend(types::I32, x);
        self.define(dst, Result::ZeroExtended(x));
    }

    pub(super) fn bin(&mut self, op: BinOp, dst: Var, lhs: Var, rhs: Value) {
        let wanted = self.wanted(dst);
        if wanted == Form::Dead {
            return;
        }
        let (op, width) = match op {
            BinOp::UMin => {
                let l = self.read_full(lhs);
                let r = self.read_as(types::I64, rhs);
                let less = self.b.ins().icmp(IntCC::UnsignedLessThan, l, r);
                let x = self.b.ins().select(less, l, r);
                return self.define(dst, Result::Full(x));
            }
            BinOp::Alu(op, width) => (op, width),
        };
        match op {
            AluOp::Add | AluOp::Sub | AluOp::Mul | AluOp::Or | AluOp::And | AluOp::Xor => {
                let ty = if wanted == Form::Full { type_of(width) } else { types::I32 };
                let l = self.read_as(ty, lhs.into());
                let r = self.read_as(ty, rhs);
                let x = match op {
                    AluOp::Add => self.b.ins().iadd(l, r),
                    AluOp::Sub => self.b.ins().isub(l, r),
                    AluOp::Mul => self.b.ins().imul(l, r),
                    AluOp::Or => self.b.ins().bor(l, r),
                    AluOp::And => self.b.ins().band(l, r),
                    _ => self.b.ins().bxor(l, r),
                };
                self.define_as(ty, dst, x);
            }
            AluOp::Lsh | AluOp::Rsh | AluOp::Arsh => self.shift(op, width, dst, lhs, rhs),
            AluOp::Div | AluOp::SDiv | AluOp::Mod | AluOp::SMod => {
                let ty = type_of(width);
                let l = self.read_as(ty, lhs.into());
                let x = match rhs {
                    Value::Imm(i) => self.divide_by_constant(op, ty, l, i),
                    Value::Var(_) => {
                        let r = self.read_as(ty, rhs);
                        self.divide(op, ty, l, r)
                    }
                };
                self.define_as(ty, dst, x);
            }
        }
    }

    pub(super) fn neg(&mut self, width: Width, dst: Var, src: Var) {
        let ty = match self.wanted(dst) {
            Form::Dead => return,
            Form::Full => type_of(width),
            Form::Low => types::I32,
        };
        let x = self.read_as(ty, src.into());
        let x = self.b.ins().ineg(x);
        self.define_as(ty, dst, x);
    }

    pub(super) fn byte_order(&mut self, order: ByteOrder, dst: Var, src: Var, bits: u8) {
        if self.wanted(dst) == Form::Dead {
            return;
        }
        let swap = order != ByteOrder::ToLe;
        if bits == 64 {
            if !swap {
                return self.mov(Width::W64, dst, src.into());
            }
            let x = self.read_full(src);
            let x = self.b.ins().bswap(x);
            return self.define(dst, Result::Full(x));
        }
        let x = self.read_low(src);
        let x = self.narrow(x, bits);
        let x = if swap { self.b.ins().bswap(x) } else { x };
        let x = if bits == 32 { x } else { self.b.ins().uextend(types::I32, x) };
        self.define(dst, Result::ZeroExtended(x));
    }

    /// Defines `dst` from a result of this type; one of 32 bits is zero-extended.
    fn define_as(&mut self, ty: Type, dst: Var, x: clif::Value) {
        let result = if ty == types::I64 { Result::Full(x) } else { Result::ZeroExtended(x) };
        self.define(dst, result);
    }

    /// The low bits of a 32-bit value.
    fn narrow(&mut self, x: clif::Value, bits: u8) -> clif::Value {
        match bits {
            8 => self.b.ins().ireduce(types::I8, x),
            16 => self.b.ins().ireduce(types::I16, x),
            _ => x,
        }
    }

    /// Shifts use the amount modulo the width, here as in the RFC.
    fn shift(&mut self, op: AluOp, width: Width, dst: Var, lhs: Var, rhs: Value) {
        let mut ty = type_of(width);
        let mut amount = rhs;
        if let Value::Imm(i) = rhs {
            let i = i & i64::from(ty.bits() - 1);
            amount = Value::Imm(i);
            if i == 0 {
                let form = if self.wanted(dst) == Form::Full { ty } else { types::I32 };
                let x = self.read_as(form, lhs.into());
                return self.define_as(form, dst, x);
            }
            if op == AluOp::Lsh && width == Width::W64 && self.wanted(dst) == Form::Low {
                if i >= 32 {
                    let zero = self.constant(types::I32, 0);
                    return self.define(dst, Result::ZeroExtended(zero));
                }
                ty = types::I32;
            }
        }
        let l = self.read_as(ty, lhs.into());
        let amount = self.read_as(types::I32, amount);
        let x = match op {
            AluOp::Lsh => self.b.ins().ishl(l, amount),
            AluOp::Rsh => self.b.ins().ushr(l, amount),
            _ => self.b.ins().sshr(l, amount),
        };
        self.define_as(ty, dst, x);
    }

    fn divide_by_constant(&mut self, op: AluOp, ty: Type, l: clif::Value, by: i64) -> clif::Value {
        let by = if ty == types::I32 { i64::from(by as i32) } else { by };
        let signed = matches!(op, AluOp::SDiv | AluOp::SMod);
        match (op, by) {
            (AluOp::Div | AluOp::SDiv, 0) => self.constant(ty, 0),
            (AluOp::Mod | AluOp::SMod, 0) => l,
            (AluOp::SDiv, -1) => self.b.ins().ineg(l),
            (AluOp::SMod, -1) => self.constant(ty, 0),
            _ => {
                debug_assert!(by != 0 && (by != -1 || !signed), "these trap");
                let r = self.constant(ty, by);
                self.division(op, l, r)
            }
        }
    }

    /// Division by zero gives 0 and modulo by zero the dividend; the least number divided by -1 is
    /// itself. None of these may reach the processor's instruction, which would trap.
    fn divide(&mut self, op: AluOp, ty: Type, l: clif::Value, r: clif::Value) -> clif::Value {
        let signed = matches!(op, AluOp::SDiv | AluOp::SMod);
        let ordinary = self.b.create_block();
        let special = self.cold_block();
        let done = self.b.create_block();
        self.b.append_block_param(done, ty);
        if signed {
            // Only 0 and -1 are special: adding 1 makes them 1 and 0.
            let shifted = self.b.ins().iadd_imm_s(r, 1);
            let is_special = self.b.ins().icmp_imm_s(IntCC::UnsignedLessThanOrEqual, shifted, 1);
            self.b.ins().brif(is_special, special, &[], ordinary, &[]);
        } else {
            self.b.ins().brif(r, ordinary, &[], special, &[]);
        }

        self.enter_block(special);
        let zero = self.constant(ty, 0);
        let x = match op {
            AluOp::Div => zero,
            AluOp::Mod => l,
            // By -1 the quotient is the negation; by 0 it is 0: both are `l * r`.
            AluOp::SDiv => self.b.ins().imul(l, r),
            _ => {
                let by_zero = self.b.ins().icmp_imm_s(IntCC::Equal, r, 0);
                self.b.ins().select(by_zero, l, zero)
            }
        };
        self.b.ins().jump(done, &[x.into()]);

        self.enter_block(ordinary);
        let x = self.division(op, l, r);
        self.b.ins().jump(done, &[x.into()]);

        self.enter_block(done);
        self.b.block_params(done)[0]
    }

    fn division(&mut self, op: AluOp, l: clif::Value, r: clif::Value) -> clif::Value {
        match op {
            AluOp::Div => self.b.ins().udiv(l, r),
            AluOp::SDiv => self.b.ins().sdiv(l, r),
            AluOp::Mod => self.b.ins().urem(l, r),
            _ => self.b.ins().srem(l, r),
        }
    }
}
