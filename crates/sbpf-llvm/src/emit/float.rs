//! Floating point, with the bits of [`diskside_sbpf::float::eval`].
//!
//! In functions with floating point, variables have two more shadows: the numbers that their bits are. A number passes
//! from one operation to the next in those, and which NaN it is stays open, as no operation can tell. Where bits are read,
//! they are the canonical ones. LLVM drops the shadows that are not read.

use super::{Computed, FunctionEmitter};
use diskside_sbpf::float::{NAN_F32, NAN_F64};
use diskside_sbpf::insn::Width;
use diskside_sbpf::ir::{FloatOp, Func, Op, Var};
use std::fmt::Write as _;

/// The result of an operation: bits, or a number, with its type and whether it is never a NaN.
enum Outcome {
    Bits(Computed),
    Number(&'static str, String, bool),
}

/// The form of an operation in LLVM.
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

/// Which numbers a function computes with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    double: bool,
    single: bool,
}

impl Numbers {
    pub(super) fn of(func: &Func) -> Self {
        let mut numbers = Self { double: false, single: false };
        for (op, _) in func.blocks.iter().flat_map(|b| &b.ops) {
            let Op::Float { op } = *op else { continue };
            // A conversion between them has an operand of the other type.
            let both = matches!(op, FloatOp::F64FromF32 | FloatOp::F32FromF64);
            numbers.double |= both || type_of(op) == "double";
            numbers.single |= both || type_of(op) == "float";
        }
        numbers
    }
}

impl FunctionEmitter<'_> {
    /// Makes room for the numbers that a variable is.
    pub(super) fn declare_numbers(&mut self, v: u16) {
        if self.numbers.double {
            let _ = writeln!(self.out, "  %d{v} = alloca double");
        }
        if self.numbers.single {
            let _ = writeln!(self.out, "  %s{v} = alloca float");
        }
    }

    /// The numbers that a variable is, from its bits.
    pub(super) fn define_numbers(&mut self, v: u16, full: &str, low: &str) {
        if self.numbers.double {
            let x = self.value(format_args!("bitcast i64 {full} to double"));
            self.line(format_args!("store double {x}, ptr %d{v}"));
        }
        if self.numbers.single {
            let x = self.value(format_args!("bitcast i32 {low} to float"));
            self.line(format_args!("store float {x}, ptr %s{v}"));
        }
    }

    /// After a copy: the numbers are the same ones, if all bits were copied, or the low half.
    pub(super) fn copy_numbers(&mut self, width: Width, dst: Var, src: Var) {
        let (dst, src) = (dst.0, src.0);
        if self.numbers.double && width == Width::W64 {
            let x = self.value(format_args!("load double, ptr %d{src}"));
            self.line(format_args!("store double {x}, ptr %d{dst}"));
        }
        if self.numbers.single {
            let x = self.value(format_args!("load float, ptr %s{src}"));
            self.line(format_args!("store float {x}, ptr %s{dst}"));
        }
    }

    /// `r0 = op(r1, r2)`.
    pub(super) fn float(&mut self, op: FloatOp) {
        let (ty, shape) = shape(op);
        let result = self.float_result(ty, &shape);
        match result {
            Outcome::Bits(bits) => self.define(Var::R0, bits),
            Outcome::Number(ty, x, never_nan) => {
                let bits = if never_nan { self.bits(ty, &x) } else { self.canonical(ty, &x) };
                self.define(Var::R0, bits);
                let shadow = if ty == "float" { "%s0" } else { "%d0" };
                self.line(format_args!("store {ty} {x}, ptr {shadow}"));
            }
        }
        self.zero_arguments();
    }

    fn float_result(&mut self, ty: &'static str, shape: &Shape) -> Outcome {
        match *shape {
            Shape::Binary(name) => {
                let (a, b) = (self.number(1, ty), self.number(2, ty));
                let x = self.value(format_args!("{name} {ty} {a}, {b}"));
                Outcome::Number(ty, x, false)
            }
            Shape::Intrinsic(name, 1) => {
                let a = self.number(1, ty);
                let x = self.value(format_args!("call {ty} @llvm.{name}.{}({ty} {a})", suffix(ty)));
                Outcome::Number(ty, x, false)
            }
            Shape::Intrinsic(name, _) => {
                let (a, b) = (self.number(1, ty), self.number(2, ty));
                let x = self.value(format_args!("call {ty} @llvm.{name}.{}({ty} {a}, {ty} {b})", suffix(ty)));
                Outcome::Number(ty, x, false)
            }
            Shape::Negate => {
                let a = self.number(1, ty);
                let x = self.value(format_args!("fneg {ty} {a}"));
                Outcome::Number(ty, x, false)
            }
            Shape::Compare(predicate) => {
                let (a, b) = (self.number(1, ty), self.number(2, ty));
                let holds = self.value(format_args!("fcmp {predicate} {ty} {a}, {b}"));
                Outcome::Bits(Computed::Low(self.value(format_args!("zext i1 {holds} to i32"))))
            }
            Shape::FromInteger(name) => {
                let a = self.read_full(Var(1));
                // Never NaN.
                let x = self.value(format_args!("{name} i64 {a} to {ty}"));
                Outcome::Number(ty, x, true)
            }
            Shape::ToInteger(name) => {
                let a = self.number(1, ty);
                let x = self.value(format_args!("call i64 @llvm.{name}.sat.i64.{}({ty} {a})", suffix(ty)));
                Outcome::Bits(Computed::Full(x))
            }
            Shape::Convert if ty == "float" => {
                let a = self.number(1, "double");
                let x = self.value(format_args!("fptrunc double {a} to float"));
                Outcome::Number("float", x, false)
            }
            Shape::Convert => {
                let a = self.number(1, "float");
                let x = self.value(format_args!("fpext float {a} to double"));
                Outcome::Number("double", x, false)
            }
        }
    }

    fn number(&mut self, register: u16, ty: &str) -> String {
        let shadow = if ty == "float" { 's' } else { 'd' };
        self.value(format_args!("load {ty}, ptr %{shadow}{register}"))
    }

    /// The bits of a result; any NaN becomes the canonical one. The choice is between numbers, and numbers are expected: it
    /// costs a chain of operations no way through integers, and no time where it is a branch.
    fn canonical(&mut self, ty: &str, x: &str) -> Computed {
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
