//! Floating point, with the bits of [`diskside_sbpf::float::eval`].
//!
//! Where only floating-point operations read a result, it stays a number, and which NaN it is stays open: all of them
//! do the same with each NaN. Where its bits are read, they are made canonical when it is defined.

use super::{Result, Translator};
use crate::liveness::{Form, Need, float_operands};
use cranelift_codegen::ir::condcodes::FloatCC;
use cranelift_codegen::ir::{self as clif, InstBuilder, MemFlagsData, Type, types};
use diskside_sbpf::float::{NAN_F32, NAN_F64};
use diskside_sbpf::insn::{Size, Width};
use diskside_sbpf::ir::{FloatOp, Var};

impl Translator<'_> {
    /// `r0 = op(r1, r2)`.
    pub(super) fn float(&mut self, op: FloatOp) {
        if self.wanted(Var::R0) != Form::Dead {
            let (count, need) = float_operands(op);
            let a = self.operand(Var(1), need);
            let b = if count == 2 { self.operand(Var(2), need) } else { a };
            self.float_result(op, a, b);
        }
        self.zero_arguments();
    }

    fn operand(&mut self, v: Var, need: Need) -> clif::Value {
        let i = usize::from(v.0);
        match need {
            Need { double: true, .. } => self.b.use_var(self.numbers.double[i]),
            Need { single: true, .. } => self.b.use_var(self.numbers.single[i]),
            _ => self.read_full(v),
        }
    }

    fn float_result(&mut self, op: FloatOp, x: clif::Value, y: clif::Value) {
        use FloatOp as F;
        let result = match op {
            F::F64Add | F::F32Add => self.b.ins().fadd(x, y),
            F::F64Sub | F::F32Sub => self.b.ins().fsub(x, y),
            F::F64Mul | F::F32Mul => self.b.ins().fmul(x, y),
            F::F64Div | F::F32Div => self.b.ins().fdiv(x, y),
            F::F64Sqrt | F::F32Sqrt => self.b.ins().sqrt(x),
            F::F64Neg | F::F32Neg => self.b.ins().fneg(x),
            F::F64Abs | F::F32Abs => self.b.ins().fabs(x),
            F::F64Min | F::F32Min => self.b.ins().fmin(x, y),
            F::F64Max | F::F32Max => self.b.ins().fmax(x, y),
            F::F64Floor | F::F32Floor => self.b.ins().floor(x),
            F::F64Ceil | F::F32Ceil => self.b.ins().ceil(x),
            F::F64Trunc | F::F32Trunc => self.b.ins().trunc(x),
            F::F64Round | F::F32Round => self.b.ins().nearest(x),
            F::F64FromF32 => self.b.ins().fpromote(types::F64, x),
            F::F32FromF64 => self.b.ins().fdemote(types::F32, x),
            F::F64FromI64 => self.b.ins().fcvt_from_sint(types::F64, x),
            F::F64FromU64 => self.b.ins().fcvt_from_uint(types::F64, x),
            F::F32FromI64 => self.b.ins().fcvt_from_sint(types::F32, x),
            F::F32FromU64 => self.b.ins().fcvt_from_uint(types::F32, x),
            F::F64Eq | F::F32Eq => return self.truth(FloatCC::Equal, x, y),
            F::F64Lt | F::F32Lt => return self.truth(FloatCC::LessThan, x, y),
            F::F64Le | F::F32Le => return self.truth(FloatCC::LessThanOrEqual, x, y),
            F::F64ToI64 | F::F32ToI64 => {
                let x = self.b.ins().fcvt_to_sint_sat(types::I64, x);
                return self.define(Var::R0, Result::Full(x));
            }
            F::F64ToU64 | F::F32ToU64 => {
                let x = self.b.ins().fcvt_to_uint_sat(types::I64, x);
                return self.define(Var::R0, Result::Full(x));
            }
        };
        self.define_number(Var::R0, result);
    }

    fn truth(&mut self, code: FloatCC, x: clif::Value, y: clif::Value) {
        let holds = self.b.ins().fcmp(code, x, y);
        let holds = self.b.ins().uextend(types::I32, holds);
        self.define(Var::R0, Result::ZeroExtended(holds));
    }

    /// Gives a variable a number, which may be any NaN where its bits are not read.
    pub(super) fn define_number(&mut self, v: Var, x: clif::Value) {
        let i = usize::from(v.0);
        let mut need = self.needed(v);
        let single = self.b.func.dfg.value_type(x) == types::F32;
        if single && std::mem::take(&mut need.single) {
            self.b.def_var(self.numbers.single[i], x);
        }
        if !single && std::mem::take(&mut need.double) {
            self.b.def_var(self.numbers.double[i], x);
        }
        if need.form() != Form::Dead {
            let bits = self.canonical(x);
            self.define_needed(v, need, bits);
        }
    }

    /// Gives a variable the numbers that its bits are, as far as they are needed.
    pub(super) fn define_number_from_bits(&mut self, v: Var, need: Need, bits: Result) {
        let i = usize::from(v.0);
        if need.double {
            let wide = match bits {
                Result::Full(x) => x,
                Result::ZeroExtended(x) => self.b.ins().uextend(types::I64, x),
            };
            let x = self.number_of(types::F64, wide);
            self.b.def_var(self.numbers.double[i], x);
        }
        if need.single {
            let low = match bits {
                Result::Full(x) => self.b.ins().ireduce(types::I32, x),
                Result::ZeroExtended(x) => x,
            };
            let x = self.number_of(types::F32, low);
            self.b.def_var(self.numbers.single[i], x);
        }
    }

    /// Copies the numbers that a variable is, as far as they stay what they are. Gives what else is needed.
    pub(super) fn copy_number(&mut self, width: Width, dst: Var, src: Var) -> Need {
        let mut need = self.needed(dst);
        let (to, from) = (usize::from(dst.0), usize::from(src.0));
        if width == Width::W64 && std::mem::take(&mut need.double) {
            let x = self.b.use_var(self.numbers.double[from]);
            self.b.def_var(self.numbers.double[to], x);
        }
        if std::mem::take(&mut need.single) {
            let x = self.b.use_var(self.numbers.single[from]);
            self.b.def_var(self.numbers.single[to], x);
        }
        need
    }

    /// The type of a value loaded from memory, if it is read as a number alone.
    pub(super) fn loads_number(&self, dst: Var, size: Size) -> Option<Type> {
        match (self.needed(dst), size) {
            (Need { bits: Form::Dead, double: true, single: false }, Size::DW) => Some(types::F64),
            (Need { bits: Form::Dead, double: false, single: true }, Size::W) => Some(types::F32),
            _ => None,
        }
    }

    fn number_of(&mut self, ty: Type, bits: clif::Value) -> clif::Value {
        self.b.ins().bitcast(ty, MemFlagsData::new(), bits)
    }

    /// The bits of a result; any NaN becomes the canonical one. The choice is between integers: between numbers it would be
    /// a branch, with the constant loaded in each trip.
    fn canonical(&mut self, x: clif::Value) -> Result {
        let single = self.b.func.dfg.value_type(x) == types::F32;
        let (ty, nan) = if single { (types::I32, NAN_F32) } else { (types::I64, NAN_F64) };
        let bits = self.b.ins().bitcast(ty, MemFlagsData::new(), x);
        let is_nan = self.b.ins().fcmp(FloatCC::Unordered, x, x);
        let nan = self.b.ins().iconst(ty, nan as i64);
        let bits = self.b.ins().select(is_nan, nan, bits);
        if single { Result::ZeroExtended(bits) } else { Result::Full(bits) }
    }
}
