//! Floating point as programs see it: one answer for every bit pattern, in every tier.
//!
//! eBPF has no floating-point registers, so values travel as bit patterns in 64-bit registers;
//! binary32 operands are the low half of a register, and binary32 results are zero-extended.
//! Results follow IEEE 754-2019 in round-to-nearest-even with these choices where it leaves room:
//! - a NaN result is always [`NAN_F64`] or [`NAN_F32`], also of `neg`, `abs` and conversions;
//! - minimum and maximum are NaN when an operand is NaN, and -0 is below +0;
//! - conversions to integers truncate, saturate, and send NaN to 0;
//! - comparisons with NaN are false.

use crate::ir::FloatOp;

/// The NaN of binary64 results.
pub const NAN_F64: u64 = 0x7ff8_0000_0000_0000;
/// The NaN of binary32 results.
pub const NAN_F32: u64 = 0x7fc0_0000;

/// The result of `op`, as bits of `r0`. Unary operations ignore `b`.
#[must_use]
pub fn eval(op: FloatOp, a: u64, b: u64) -> u64 {
    use FloatOp as F;
    let (x, y) = (f64::from_bits(a), f64::from_bits(b));
    let (s, t) = (f32::from_bits(a as u32), f32::from_bits(b as u32));
    match op {
        F::F64Add => bits64(x + y),
        F::F64Sub => bits64(x - y),
        F::F64Mul => bits64(x * y),
        F::F64Div => bits64(x / y),
        F::F64Sqrt => bits64(x.sqrt()),
        F::F64Neg => bits64(-x),
        F::F64Abs => bits64(x.abs()),
        F::F64Min => bits64(minimum64(x, y)),
        F::F64Max => bits64(-minimum64(-x, -y)),
        F::F64Floor => bits64(x.floor()),
        F::F64Ceil => bits64(x.ceil()),
        F::F64Trunc => bits64(x.trunc()),
        F::F64Round => bits64(x.round_ties_even()),
        F::F64Eq => u64::from(x == y),
        F::F64Lt => u64::from(x < y),
        F::F64Le => u64::from(x <= y),
        F::F64FromI64 => bits64(a as i64 as f64),
        F::F64FromU64 => bits64(a as f64),
        F::F64ToI64 => x as i64 as u64,
        F::F64ToU64 => x as u64,
        F::F64FromF32 => bits64(f64::from(s)),
        F::F32Add => bits32(s + t),
        F::F32Sub => bits32(s - t),
        F::F32Mul => bits32(s * t),
        F::F32Div => bits32(s / t),
        F::F32Sqrt => bits32(s.sqrt()),
        F::F32Neg => bits32(-s),
        F::F32Abs => bits32(s.abs()),
        F::F32Min => bits32(minimum32(s, t)),
        F::F32Max => bits32(-minimum32(-s, -t)),
        F::F32Floor => bits32(s.floor()),
        F::F32Ceil => bits32(s.ceil()),
        F::F32Trunc => bits32(s.trunc()),
        F::F32Round => bits32(s.round_ties_even()),
        F::F32Eq => u64::from(s == t),
        F::F32Lt => u64::from(s < t),
        F::F32Le => u64::from(s <= t),
        F::F32FromI64 => bits32(a as i64 as f32),
        F::F32FromU64 => bits32(a as f32),
        F::F32ToI64 => s as i64 as u64,
        F::F32ToU64 => s as u64,
        F::F32FromF64 => bits32(x as f32),
    }
}

/// The bits of a result, NaN made canonical.
pub(crate) fn bits64(x: f64) -> u64 {
    if x.is_nan() { NAN_F64 } else { x.to_bits() }
}

/// The bits of a result, NaN made canonical.
fn bits32(x: f32) -> u64 {
    if x.is_nan() { NAN_F32 } else { u64::from(x.to_bits()) }
}

fn minimum64(x: f64, y: f64) -> f64 {
    if x.is_nan() || y.is_nan() {
        f64::NAN
    } else if x < y || (x == y && x.is_sign_negative()) {
        x
    } else {
        y
    }
}

fn minimum32(x: f32, y: f32) -> f32 {
    if x.is_nan() || y.is_nan() {
        f32::NAN
    } else if x < y || (x == y && x.is_sign_negative()) {
        x
    } else {
        y
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FloatOp as F;

    fn f64s(op: FloatOp, x: f64, y: f64) -> u64 {
        eval(op, x.to_bits(), y.to_bits())
    }

    fn f32s(op: FloatOp, x: f32, y: f32) -> u64 {
        // The upper half of an operand is noise that must not matter.
        let noise = 0xdead_beef_0000_0000;
        eval(op, noise | u64::from(x.to_bits()), noise | u64::from(y.to_bits()))
    }

    #[test]
    fn every_nan_result_is_the_canonical_one() {
        let odd = f64::from_bits(0xfff4_0000_0000_0001);
        let odd32 = f32::from_bits(0xffa0_0001);
        for op in [
            F::F64Add,
            F::F64Sub,
            F::F64Mul,
            F::F64Div,
            F::F64Sqrt,
            F::F64Neg,
            F::F64Abs,
            F::F64Min,
            F::F64Max,
            F::F64Floor,
            F::F64Ceil,
            F::F64Trunc,
            F::F64Round,
        ] {
            assert_eq!(f64s(op, odd, 1.0), NAN_F64, "{op:?}");
        }
        for op in [
            F::F32Add,
            F::F32Sub,
            F::F32Mul,
            F::F32Div,
            F::F32Sqrt,
            F::F32Neg,
            F::F32Abs,
            F::F32Min,
            F::F32Max,
            F::F32Floor,
            F::F32Ceil,
            F::F32Trunc,
            F::F32Round,
        ] {
            assert_eq!(f32s(op, odd32, 1.0), NAN_F32, "{op:?}");
        }
        assert_eq!(eval(F::F64FromF32, u64::from(odd32.to_bits()), 0), NAN_F64);
        assert_eq!(eval(F::F32FromF64, odd.to_bits(), 0), NAN_F32);
        assert_eq!(f64s(F::F64Div, 0.0, 0.0), NAN_F64);
        assert_eq!(f64s(F::F64Sqrt, -1.0, 0.0), NAN_F64);
        assert_eq!(f64s(F::F64Sub, f64::INFINITY, f64::INFINITY), NAN_F64);
        for op in [F::F64Min, F::F64Max] {
            assert_eq!(f64s(op, 1.0, odd), NAN_F64, "a NaN on either side counts");
        }
    }

    #[test]
    fn zeros_have_an_order_in_min_and_max_but_not_in_comparisons() {
        for (x, y) in [(0.0, -0.0), (-0.0, 0.0)] {
            assert_eq!(f64s(F::F64Min, x, y), (-0.0f64).to_bits());
            assert_eq!(f64s(F::F64Max, x, y), 0.0f64.to_bits());
            assert_eq!(f64s(F::F64Eq, x, y), 1);
            assert_eq!(f64s(F::F64Lt, x, y), 0);
            assert_eq!(f64s(F::F64Le, x, y), 1);
            let (s, t) = (x as f32, y as f32);
            assert_eq!(f32s(F::F32Min, s, t), u64::from((-0.0f32).to_bits()));
            assert_eq!(f32s(F::F32Max, s, t), u64::from(0.0f32.to_bits()));
        }
    }

    #[test]
    fn comparisons_with_nan_are_false() {
        for op in [F::F64Eq, F::F64Lt, F::F64Le] {
            assert_eq!(f64s(op, f64::NAN, f64::NAN), 0);
        }
        for op in [F::F32Eq, F::F32Lt, F::F32Le] {
            assert_eq!(f32s(op, f32::NAN, 0.0), 0);
        }
    }

    #[test]
    fn conversions_to_integers_saturate_and_send_nan_to_zero() {
        assert_eq!(f64s(F::F64ToI64, 1e300, 0.0), i64::MAX as u64);
        assert_eq!(f64s(F::F64ToI64, -1e300, 0.0), i64::MIN as u64);
        assert_eq!(f64s(F::F64ToI64, -1.9, 0.0), -1i64 as u64);
        assert_eq!(f64s(F::F64ToU64, -1.0, 0.0), 0);
        assert_eq!(f64s(F::F64ToU64, f64::INFINITY, 0.0), u64::MAX);
        assert_eq!(f64s(F::F64ToU64, 18_446_744_073_709_549_568.0, 0.0), 0xffff_ffff_ffff_f800);
        assert_eq!(f64s(F::F64ToI64, f64::NAN, 0.0), 0);
        assert_eq!(f32s(F::F32ToI64, f32::NEG_INFINITY, 0.0), i64::MIN as u64);
        assert_eq!(f32s(F::F32ToU64, f32::NAN, 0.0), 0);
    }

    #[test]
    fn conversions_from_integers_round_ties_to_even() {
        let two53 = 1u64 << 53;
        assert_eq!(eval(F::F64FromU64, two53 + 1, 0), (two53 as f64).to_bits());
        assert_eq!(eval(F::F64FromU64, two53 + 3, 0), ((two53 + 4) as f64).to_bits());
        assert_eq!(eval(F::F64FromI64, -5i64 as u64, 0), (-5.0f64).to_bits());
        assert_eq!(eval(F::F32FromU64, u64::MAX, 0), u64::from(18_446_744_073_709_551_616.0f32.to_bits()));
        // Not by way of binary64, which would round twice.
        let n = (1u64 << 54) + (1 << 30) + 1;
        assert_eq!(eval(F::F32FromI64, n, 0), u64::from((18_014_400_656_965_632.0f32).to_bits()));
    }

    #[test]
    fn rounding_to_integers() {
        for (x, floor, ceil, trunc, round) in [
            (2.5, 2.0, 3.0, 2.0, 2.0),
            (-2.5, -3.0, -2.0, -2.0, -2.0),
            (3.5, 3.0, 4.0, 3.0, 4.0),
            (-0.2, -1.0, -0.0, -0.0, -0.0),
        ] {
            assert_eq!(f64s(F::F64Floor, x, 0.0), f64::to_bits(floor));
            assert_eq!(f64s(F::F64Ceil, x, 0.0), f64::to_bits(ceil));
            assert_eq!(f64s(F::F64Trunc, x, 0.0), f64::to_bits(trunc));
            assert_eq!(f64s(F::F64Round, x, 0.0), f64::to_bits(round));
            assert_eq!(f32s(F::F32Round, x as f32, 0.0), u64::from((round as f32).to_bits()));
        }
    }

    #[test]
    fn sign_operations_touch_the_sign_alone() {
        assert_eq!(f64s(F::F64Neg, 0.0, 0.0), (-0.0f64).to_bits());
        assert_eq!(f64s(F::F64Abs, -7.5, 0.0), 7.5f64.to_bits());
        assert_eq!(f32s(F::F32Neg, -1.5, 0.0), u64::from(1.5f32.to_bits()));
        assert_eq!(f32s(F::F32Abs, f32::NEG_INFINITY, 0.0), u64::from(f32::INFINITY.to_bits()));
    }
}
