//! What floating-point intrinsics give, bit for bit (IEEE 754-2019).
//!
//! Operands and results are bit patterns. A NaN result is always the canonical quiet NaN, so that
//! every tier and every processor gives the same bits.

use crate::ir::FloatOp;

/// The canonical NaN of 64 bits.
pub const NAN_F64: u64 = 0x7ff8_0000_0000_0000;
/// The canonical NaN of 32 bits.
pub const NAN_F32: u64 = 0x7fc0_0000;

/// Evaluates an intrinsic on `r1` and `r2`. 32-bit operands are the low halves.
#[must_use]
pub fn eval(op: FloatOp, a: u64, b: u64) -> u64 {
    use FloatOp as Op;
    let (x, y) = (f64::from_bits(a), f64::from_bits(b));
    let (p, q) = (f32::from_bits(a as u32), f32::from_bits(b as u32));
    match op {
        Op::F64Add => bits64(x + y),
        Op::F64Sub => bits64(x - y),
        Op::F64Mul => bits64(x * y),
        Op::F64Div => bits64(x / y),
        Op::F64Sqrt => bits64(x.sqrt()),
        Op::F64Neg => bits64(-x),
        Op::F64Abs => bits64(x.abs()),
        Op::F64Min => bits64(minimum64(x, y)),
        Op::F64Max => bits64(-minimum64(-x, -y)),
        Op::F64Floor => bits64(x.floor()),
        Op::F64Ceil => bits64(x.ceil()),
        Op::F64Trunc => bits64(x.trunc()),
        Op::F64Round => bits64(x.round_ties_even()),
        Op::F64Eq => u64::from(x == y),
        Op::F64Lt => u64::from(x < y),
        Op::F64Le => u64::from(x <= y),
        Op::F64FromI64 => bits64(a as i64 as f64),
        Op::F64FromU64 => bits64(a as f64),
        Op::F64ToI64 => x as i64 as u64,
        Op::F64ToU64 => x as u64,
        Op::F64FromF32 => bits64(f64::from(p)),
        Op::F32Add => bits32(p + q),
        Op::F32Sub => bits32(p - q),
        Op::F32Mul => bits32(p * q),
        Op::F32Div => bits32(p / q),
        Op::F32Sqrt => bits32(p.sqrt()),
        Op::F32Neg => bits32(-p),
        Op::F32Abs => bits32(p.abs()),
        Op::F32Min => bits32(minimum32(p, q)),
        Op::F32Max => bits32(-minimum32(-p, -q)),
        Op::F32Floor => bits32(p.floor()),
        Op::F32Ceil => bits32(p.ceil()),
        Op::F32Trunc => bits32(p.trunc()),
        Op::F32Round => bits32(p.round_ties_even()),
        Op::F32Eq => u64::from(p == q),
        Op::F32Lt => u64::from(p < q),
        Op::F32Le => u64::from(p <= q),
        Op::F32FromI64 => bits32(a as i64 as f32),
        Op::F32FromU64 => bits32(a as f32),
        Op::F32ToI64 => p as i64 as u64,
        Op::F32ToU64 => p as u64,
        Op::F32FromF64 => bits32(x as f32),
    }
}

fn bits64(x: f64) -> u64 {
    if x.is_nan() { NAN_F64 } else { x.to_bits() }
}

fn bits32(x: f32) -> u64 {
    if x.is_nan() {
        NAN_F32
    } else {
        u64::from(x.to_bits())
    }
}

/// `minimum` of the standard: NaN wins, and -0 is below +0.
fn minimum64(x: f64, y: f64) -> f64 {
    if x.is_nan() || y.is_nan() {
        f64::NAN
    } else if x == y {
        if x.is_sign_negative() { x } else { y }
    } else if x < y {
        x
    } else {
        y
    }
}

fn minimum32(x: f32, y: f32) -> f32 {
    minimum64(f64::from(x), f64::from(y)) as f32
}
