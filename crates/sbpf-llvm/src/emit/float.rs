//! Floating point, with the bits of [`diskside_sbpf::float::eval`].

use super::{Computed, FunctionEmitter};
use diskside_sbpf::float::{NAN_F32, NAN_F64};
use diskside_sbpf::ir::{FloatOp, Var};

/// What an operation is in LLVM's words.
enum Shape {
    /// An instruction on two numbers of one type.
    Binary(&'static str),
    /// An intrinsic on one or two numbers of one type.
    Intrinsic(&'static str, usize),
    /// `fneg`.
    Negate,
    /// A comparison.
    Compare(&'static str),
    /// From a 64-bit integer.
    FromInteger(&'static str),
    /// To a 64-bit integer, saturating.
    ToInteger(&'static str),
    /// To the other type.
    Convert,
}

impl FunctionEmitter<'_> {
    /// `r0 = op(r1, r2)`.
    pub(super) fn float(&mut self, op: FloatOp) {
        let (ty, shape) = shape(op);
        let result = self.float_result(ty, &shape);
        self.define(Var::R0, result);
        self.zero_arguments();
    }

    fn float_result(&mut self, ty: &'static str, shape: &Shape) -> Computed {
        match *shape {
            Shape::Binary(name) => {
                let (a, b) = (self.number(1, ty), self.number(2, ty));
                let x = self.value(format_args!("{name} {ty} {a}, {b}"));
                self.canonical(ty, x)
            }
            Shape::Intrinsic(name, 1) => {
                let a = self.number(1, ty);
                let x = self.value(format_args!("call {ty} @llvm.{name}.{}({ty} {a})", suffix(ty)));
                self.canonical(ty, x)
            }
            Shape::Intrinsic(name, _) => {
                let (a, b) = (self.number(1, ty), self.number(2, ty));
                let x = self.value(format_args!("call {ty} @llvm.{name}.{}({ty} {a}, {ty} {b})", suffix(ty)));
                self.canonical(ty, x)
            }
            Shape::Negate => {
                let a = self.number(1, ty);
                let x = self.value(format_args!("fneg {ty} {a}"));
                self.canonical(ty, x)
            }
            Shape::Compare(predicate) => {
                let (a, b) = (self.number(1, ty), self.number(2, ty));
                let holds = self.value(format_args!("fcmp {predicate} {ty} {a}, {b}"));
                Computed::Low(self.value(format_args!("zext i1 {holds} to i32")))
            }
            Shape::FromInteger(name) => {
                let a = self.read_full(Var(1));
                // Never NaN.
                let x = self.value(format_args!("{name} i64 {a} to {ty}"));
                self.bits(ty, &x)
            }
            Shape::ToInteger(name) => {
                let a = self.number(1, ty);
                let x = self.value(format_args!("call i64 @llvm.{name}.sat.i64.{}({ty} {a})", suffix(ty)));
                Computed::Full(x)
            }
            Shape::Convert if ty == "float" => {
                let a = self.number(1, "double");
                let x = self.value(format_args!("fptrunc double {a} to float"));
                self.canonical("float", x)
            }
            Shape::Convert => {
                let a = self.number(1, "float");
                let x = self.value(format_args!("fpext float {a} to double"));
                self.canonical("double", x)
            }
        }
    }

    fn number(&mut self, register: u16, ty: &str) -> String {
        let (bits, x) = match ty {
            "float" => ("i32", self.read_low(Var(register))),
            _ => ("i64", self.read_full(Var(register))),
        };
        self.value(format_args!("bitcast {bits} {x} to {ty}"))
    }

    /// The bits of a result; any NaN becomes the canonical one. The choice is between numbers, and numbers are expected: it
    /// costs a chain of operations no way through integers, and no time where it is a branch.
    fn canonical(&mut self, ty: &str, x: String) -> Computed {
        let often = self.metadata.often;
        let is_number = self.value(format_args!("fcmp ord {ty} {x}, 0.0"));
        let x = self.value(format_args!("select i1 {is_number}, {ty} {x}, {ty} {NAN}, !prof !{often}"));
        self.bits(ty, &x)
    }

    fn bits(&mut self, ty: &str, x: &str) -> Computed {
        match ty {
            "float" => Computed::Low(self.value(format_args!("bitcast float {x} to i32"))),
            _ => Computed::Full(self.value(format_args!("bitcast double {x} to i64"))),
        }
    }
}

/// The canonical NaN of both types, as LLVM writes constants: the bits of a double, from which those of a float follow.
const NAN: &str = "0x7FF8000000000000";
const _: () = assert!(NAN_F64 == 0x7ff8_0000_0000_0000 && NAN_F32 == 0x7fc0_0000);

fn suffix(ty: &str) -> &'static str {
    if ty == "float" { "f32" } else { "f64" }
}

/// The type of the result, of the operands of a comparison or of what becomes an integer; and the shape.
fn shape(op: FloatOp) -> (&'static str, Shape) {
    use FloatOp as F;
    let shape = match op {
        F::F64Add | F::F32Add => Shape::Binary("fadd"),
        F::F64Sub | F::F32Sub => Shape::Binary("fsub"),
        F::F64Mul | F::F32Mul => Shape::Binary("fmul"),
        F::F64Div | F::F32Div => Shape::Binary("fdiv"),
        F::F64Sqrt | F::F32Sqrt => Shape::Intrinsic("sqrt", 1),
        F::F64Neg | F::F32Neg => Shape::Negate,
        F::F64Abs | F::F32Abs => Shape::Intrinsic("fabs", 1),
        F::F64Min | F::F32Min => Shape::Intrinsic("minimum", 2),
        F::F64Max | F::F32Max => Shape::Intrinsic("maximum", 2),
        F::F64Floor | F::F32Floor => Shape::Intrinsic("floor", 1),
        F::F64Ceil | F::F32Ceil => Shape::Intrinsic("ceil", 1),
        F::F64Trunc | F::F32Trunc => Shape::Intrinsic("trunc", 1),
        F::F64Round | F::F32Round => Shape::Intrinsic("roundeven", 1),
        F::F64Eq | F::F32Eq => Shape::Compare("oeq"),
        F::F64Lt | F::F32Lt => Shape::Compare("olt"),
        F::F64Le | F::F32Le => Shape::Compare("ole"),
        F::F64FromI64 | F::F32FromI64 => Shape::FromInteger("sitofp"),
        F::F64FromU64 | F::F32FromU64 => Shape::FromInteger("uitofp"),
        F::F64ToI64 | F::F32ToI64 => Shape::ToInteger("fptosi"),
        F::F64ToU64 | F::F32ToU64 => Shape::ToInteger("fptoui"),
        F::F64FromF32 | F::F32FromF64 => Shape::Convert,
    };
    (type_of(op), shape)
}

fn type_of(op: FloatOp) -> &'static str {
    use FloatOp as F;
    match op {
        F::F64Add | F::F64Sub | F::F64Mul | F::F64Div | F::F64Sqrt | F::F64Neg | F::F64Abs => "double",
        F::F64Min | F::F64Max | F::F64Floor | F::F64Ceil | F::F64Trunc | F::F64Round => "double",
        F::F64Eq | F::F64Lt | F::F64Le | F::F64ToI64 | F::F64ToU64 => "double",
        F::F64FromI64 | F::F64FromU64 | F::F64FromF32 => "double",
        F::F32Add | F::F32Sub | F::F32Mul | F::F32Div | F::F32Sqrt | F::F32Neg | F::F32Abs => "float",
        F::F32Min | F::F32Max | F::F32Floor | F::F32Ceil | F::F32Trunc | F::F32Round => "float",
        F::F32Eq | F::F32Lt | F::F32Le | F::F32ToI64 | F::F32ToU64 => "float",
        F::F32FromI64 | F::F32FromU64 | F::F32FromF64 => "float",
    }
}
