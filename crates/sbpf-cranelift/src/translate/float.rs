//! Floating point, with the bits of [`diskside_sbpf::float::eval`].

use super::{Result, Translator};
use crate::liveness::{Form, float_operands};
use cranelift_codegen::ir::condcodes::FloatCC;
use cranelift_codegen::ir::{self as clif, InstBuilder, MemFlagsData, Type, types};
use diskside_sbpf::float::{NAN_F32, NAN_F64};
use diskside_sbpf::ir::{FloatOp, Var};

impl Translator<'_> {
    /// `r0 = op(r1, r2)`.
    pub(super) fn float(&mut self, op: FloatOp) {
        if self.wanted(Var::R0) != Form::Dead {
            let (count, form) = float_operands(op);
            let read = |t: &mut Self, v| match form {
                Form::Full => t.read_full(v),
                _ => t.read_low(v),
            };
            let a = read(self, Var(1));
            let b = if count == 2 { read(self, Var(2)) } else { a };
            let result = self.float_result(op, a, b);
            self.define(Var::R0, result);
        }
        self.zero_arguments();
    }

    fn float_result(&mut self, op: FloatOp, a: clif::Value, b: clif::Value) -> Result {
        use FloatOp as F;
        let ty = if self.b.func.dfg.value_type(a) == types::I32 { types::F32 } else { types::F64 };
        match op {
            F::F64FromI64 => {
                let x = self.b.ins().fcvt_from_sint(types::F64, a);
                return self.bits(x);
            }
            F::F64FromU64 => {
                let x = self.b.ins().fcvt_from_uint(types::F64, a);
                return self.bits(x);
            }
            F::F32FromI64 => {
                let x = self.b.ins().fcvt_from_sint(types::F32, a);
                return self.bits(x);
            }
            F::F32FromU64 => {
                let x = self.b.ins().fcvt_from_uint(types::F32, a);
                return self.bits(x);
            }
            _ => {}
        }
        let (x, y) = (self.float_of(ty, a), self.float_of(ty, b));
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
            F::F64Eq | F::F32Eq => return self.truth(FloatCC::Equal, x, y),
            F::F64Lt | F::F32Lt => return self.truth(FloatCC::LessThan, x, y),
            F::F64Le | F::F32Le => return self.truth(FloatCC::LessThanOrEqual, x, y),
            F::F64ToI64 | F::F32ToI64 => {
                return Result::Full(self.b.ins().fcvt_to_sint_sat(types::I64, x));
            }
            F::F64ToU64 | F::F32ToU64 => {
                return Result::Full(self.b.ins().fcvt_to_uint_sat(types::I64, x));
            }
            F::F64FromI64 | F::F64FromU64 | F::F32FromI64 | F::F32FromU64 => {
                unreachable!("handled above")
            }
        };
        self.canonical(result)
    }

    fn float_of(&mut self, ty: Type, bits: clif::Value) -> clif::Value {
        self.b.ins().bitcast(ty, MemFlagsData::new(), bits)
    }

    fn truth(&mut self, code: FloatCC, x: clif::Value, y: clif::Value) -> Result {
        let holds = self.b.ins().fcmp(code, x, y);
        Result::ZeroExtended(self.b.ins().uextend(types::I32, holds))
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

    fn bits(&mut self, x: clif::Value) -> Result {
        match self.b.func.dfg.value_type(x) {
            types::F32 => Result::ZeroExtended(self.b.ins().bitcast(types::I32, MemFlagsData::new(), x)),
            _ => Result::Full(self.b.ins().bitcast(types::I64, MemFlagsData::new(), x)),
        }
    }
}
