//! `ds_sum_*`, `ds_min_*`, `ds_max_*`, `ds_popcount`: one value from an array.
//!
//! Integer sums wrap modulo 2^64; sums of 32-bit integers are made in 64 bits. Floating-point sums
//! have one order on every host: element `i` is added to lane `i mod 8`, all lanes start at 0, and
//! the lanes are added as `((0+4) + (2+6)) + ((1+5) + (3+7))`. Minimum and maximum of nothing are
//! the neutral elements: the greatest and the least value of the type (the infinities for floats).

use super::access::{cost, steps};
use crate::float::{NAN_F32, NAN_F64, bits64};
use crate::machine::{Fault, Machine};
use multiversion::multiversion;

/// Runs `step` over the array in pieces.
fn fold<A>(
    machine: &mut Machine,
    [p, n, ..]: [u64; 5],
    element_len: u64,
    mut state: A,
    step: fn(A, &[u8]) -> A,
) -> Result<A, Fault> {
    let len = n.saturating_mul(element_len);
    machine.check_read(p, len)?;
    machine.charge(1)?;
    for (offset, n) in steps(len) {
        machine.charge(cost(n))?;
        state = step(state, machine.bytes(p + offset, n)?);
    }
    Ok(state)
}

/// The elements of a step.
#[inline(always)]
fn elements<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> {
    bytes.chunks_exact(N).map(|c| c.try_into().expect("chunks of N bytes"))
}

macro_rules! integer_fold {
    ($sum:ident, $min:ident, $max:ident, $type:ident, $wide:ident, $sum_step:ident, $min_step:ident, $max_step:ident) => {
        pub(super) fn $sum(machine: &mut Machine, args: [u64; 5]) -> Result<u64, Fault> {
            fold(machine, args, size_of::<$type>() as u64, 0, $sum_step)
        }

        pub(super) fn $min(machine: &mut Machine, args: [u64; 5]) -> Result<u64, Fault> {
            fold(machine, args, size_of::<$type>() as u64, $type::MAX, $min_step).map(|v| v as $wide as u64)
        }

        pub(super) fn $max(machine: &mut Machine, args: [u64; 5]) -> Result<u64, Fault> {
            fold(machine, args, size_of::<$type>() as u64, $type::MIN, $max_step).map(|v| v as $wide as u64)
        }

        #[multiversion(targets("x86_64+avx2"))]
        fn $sum_step(state: u64, bytes: &[u8]) -> u64 {
            elements(bytes).fold(state, |sum, b| sum.wrapping_add($type::from_le_bytes(b) as $wide as u64))
        }

        #[multiversion(targets("x86_64+avx2"))]
        fn $min_step(state: $type, bytes: &[u8]) -> $type {
            elements(bytes).fold(state, |least, b| least.min($type::from_le_bytes(b)))
        }

        #[multiversion(targets("x86_64+avx2"))]
        fn $max_step(state: $type, bytes: &[u8]) -> $type {
            elements(bytes).fold(state, |most, b| most.max($type::from_le_bytes(b)))
        }
    };
}

integer_fold!(ds_sum_u32, ds_min_u32, ds_max_u32, u32, u64, sum_u32, min_u32, max_u32);
integer_fold!(ds_sum_i32, ds_min_i32, ds_max_i32, i32, i64, sum_i32, min_i32, max_i32);
integer_fold!(ds_sum_u64, ds_min_u64, ds_max_u64, u64, u64, sum_u64, min_u64, max_u64);
integer_fold!(ds_sum_i64, ds_min_i64, ds_max_i64, i64, i64, sum_i64, min_i64, max_i64);

/// Sums in the making, lane by lane.
type Lanes = [f64; 8];

/// `ds_sum_f32(p, n)`: the sum in binary64.
pub(super) fn ds_sum_f32(machine: &mut Machine, args: [u64; 5]) -> Result<u64, Fault> {
    fold(machine, args, 4, [0.0; 8], sum_f32).map(total)
}

/// `ds_sum_f64(p, n)`.
pub(super) fn ds_sum_f64(machine: &mut Machine, args: [u64; 5]) -> Result<u64, Fault> {
    fold(machine, args, 8, [0.0; 8], sum_f64).map(total)
}

fn total(l: Lanes) -> u64 {
    bits64(((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7])))
}

#[multiversion(targets("x86_64+avx2"))]
fn sum_f32(lanes: Lanes, bytes: &[u8]) -> Lanes {
    sum_lanes::<4>(lanes, bytes, |b| f64::from(f32::from_le_bytes(b)))
}

#[multiversion(targets("x86_64+avx2"))]
fn sum_f64(lanes: Lanes, bytes: &[u8]) -> Lanes {
    sum_lanes::<8>(lanes, bytes, f64::from_le_bytes)
}

/// Every step but the last is a multiple of eight elements long: lanes stay in step.
#[inline(always)]
fn sum_lanes<const N: usize>(mut lanes: Lanes, bytes: &[u8], read: impl Fn([u8; N]) -> f64) -> Lanes {
    let rows = bytes.chunks_exact(8 * N);
    let rest = rows.remainder();
    for row in rows {
        for (lane, b) in lanes.iter_mut().zip(elements::<N>(row)) {
            *lane += read(b);
        }
    }
    for (lane, b) in lanes.iter_mut().zip(elements::<N>(rest)) {
        *lane += read(b);
    }
    lanes
}

/// The least (or greatest) value so far and whether a NaN was seen. Values are compared as integers
/// in the order of the numbers, with -0 below +0.
#[derive(Clone, Copy)]
struct Extreme<K> {
    key: K,
    nan: bool,
}

macro_rules! float_extreme {
    ($helper:ident, $step:ident, $type:ident, $key:ident, $bits:ident, $start:ident, $pick:ident, $nan:ident) => {
        pub(super) fn $helper(machine: &mut Machine, args: [u64; 5]) -> Result<u64, Fault> {
            let start = Extreme { key: key($type::$start.to_bits() as $key), nan: false };
            let end = fold(machine, args, size_of::<$type>() as u64, start, $step)?;
            // The key's mapping is its own inverse.
            Ok(if end.nan { $nan } else { u64::from(key(end.key) as $bits) })
        }

        #[multiversion(targets("x86_64+avx2"))]
        fn $step(state: Extreme<$key>, bytes: &[u8]) -> Extreme<$key> {
            let infinity = $type::INFINITY.to_bits() as $key;
            let mut nan = 0;
            let extreme = elements(bytes).fold(state.key, |extreme, b| {
                let bits = $key::from_le_bytes(b);
                nan |= $key::from(bits & $key::MAX > infinity);
                extreme.$pick(key(bits))
            });
            Extreme { key: extreme, nan: state.nan | (nan != 0) }
        }
    };
}

/// Float bits as a signed integer in the order of the numbers.
#[inline(always)]
fn key<K: Key>(bits: K) -> K {
    bits.ordered()
}

trait Key {
    fn ordered(self) -> Self;
}

impl Key for i32 {
    #[inline(always)]
    fn ordered(self) -> Self {
        self ^ ((self >> 31) & Self::MAX)
    }
}

impl Key for i64 {
    #[inline(always)]
    fn ordered(self) -> Self {
        self ^ ((self >> 63) & Self::MAX)
    }
}

float_extreme!(ds_min_f32, min_f32, f32, i32, u32, INFINITY, min, NAN_F32);
float_extreme!(ds_max_f32, max_f32, f32, i32, u32, NEG_INFINITY, max, NAN_F32);
float_extreme!(ds_min_f64, min_f64, f64, i64, u64, INFINITY, min, NAN_F64);
float_extreme!(ds_max_f64, max_f64, f64, i64, u64, NEG_INFINITY, max, NAN_F64);

/// `ds_popcount(p, len)`.
pub(super) fn ds_popcount(machine: &mut Machine, args: [u64; 5]) -> Result<u64, Fault> {
    fold(machine, args, 1, 0, popcount)
}

#[multiversion(targets("x86_64+avx2+popcnt", "x86_64+popcnt"))]
fn popcount(state: u64, bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(8);
    let rest: u32 = words.remainder().iter().map(|b| b.count_ones()).sum();
    elements(bytes).fold(state + u64::from(rest), |n, b| n + u64::from(u64::from_le_bytes(b).count_ones()))
}
