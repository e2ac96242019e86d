//! `ds_filter_*`: which elements of an array satisfy a comparison, as a bitmap or as positions.
//!
//! Every comparison becomes "`lo <= x <= hi`, or the opposite", so one loop a type does it all, and
//! it has no branch: 64 elements become one mask word.

use super::access::{cost, steps};
use crate::machine::{Fault, Machine};
use multiversion::multiversion;

/// `-ENOSPC`: the output is too small.
const NO_SPACE: u64 = -28i64 as u64;
/// Bytes of `struct ds_filter`.
pub(super) const SPEC_LEN_BYTES: u64 = 24;

/// `ds_filter_T(out, out_cap, in, n, spec)`.
pub(super) fn ds_filter<T: Element>(
    machine: &mut Machine,
    [out, out_cap, input, n, spec]: [u64; 5],
) -> Result<u64, Fault> {
    let spec = Spec::parse(machine.bytes(spec, SPEC_LEN_BYTES)?)?;
    let len = n.saturating_mul(T::LEN_BYTES);
    // Both ranges as a whole: nothing is written before all is known to be right.
    machine.bytes_and_mut((input, len), (out, out_cap))?;
    machine.charge(1)?;
    let range = T::range(spec.op, spec.lo, spec.hi);
    let mut sink = Sink { form: spec.form, position: 0, written: 0, matches: 0 };
    match spec.form {
        Form::Bitmap if n.div_ceil(8) > out_cap => return Ok(NO_SPACE),
        Form::Positions if n > 1 << 32 => {
            return Err(Fault::Refused("positions are 32-bit numbers, and there are more elements"));
        }
        Form::Bitmap | Form::Positions => {}
    }
    let mut masks = Vec::new();
    for (offset, n) in steps(len) {
        machine.charge(cost(n))?;
        let (input, output) = machine.bytes_and_mut((input + offset, n), (out, out_cap))?;
        let elements = n / T::LEN_BYTES;
        masks.clear();
        masks.resize(elements.div_ceil(64) as usize, 0);
        T::masks(input, &range, &mut masks);
        if sink.take(&masks, elements, output).is_none() {
            return Ok(NO_SPACE);
        }
    }
    Ok(sink.matches)
}

#[derive(Clone, Copy)]
struct Spec {
    op: Comparison,
    form: Form,
    lo: u64,
    hi: u64,
}

/// `enum ds_filter_op`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Comparison {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Between,
}

/// `enum ds_filter_form`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Bitmap,
    Positions,
}

impl Spec {
    fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let op = match word(0) {
            0 => Comparison::Eq,
            1 => Comparison::Ne,
            2 => Comparison::Lt,
            3 => Comparison::Le,
            4 => Comparison::Gt,
            5 => Comparison::Ge,
            6 => Comparison::Between,
            _ => return Err(Fault::Refused("spec->op is not one of enum ds_filter_op")),
        };
        let form = match word(4) {
            0 => Form::Bitmap,
            1 => Form::Positions,
            _ => {
                return Err(Fault::Refused("spec->form is not one of enum ds_filter_form"));
            }
        };
        Ok(Self { op, form, lo: long(8), hi: long(16) })
    }
}

/// The place of the result, step after step.
struct Sink {
    form: Form,
    position: u64,
    written: usize,
    matches: u64,
}

impl Sink {
    /// Appends the masks of `elements` elements; `None` when the output is too small.
    fn take(&mut self, masks: &[u64], elements: u64, output: &mut [u8]) -> Option<()> {
        let count: u64 = masks.iter().map(|m| u64::from(m.count_ones())).sum();
        match self.form {
            Form::Bitmap => {
                // Every step but the last holds a multiple of 64 elements.
                let mut left = elements.div_ceil(8) as usize;
                for mask in masks {
                    let n = left.min(8);
                    output[self.written..self.written + n].copy_from_slice(&mask.to_le_bytes()[..n]);
                    self.written += n;
                    left -= n;
                }
            }
            Form::Positions => {
                let mut room = output.get_mut(self.written..)?.chunks_exact_mut(4);
                for (base, &mask) in (self.position..).step_by(64).zip(masks) {
                    let mut rest = mask;
                    while rest != 0 {
                        let position = (base + u64::from(rest.trailing_zeros())) as u32;
                        room.next()?.copy_from_slice(&position.to_le_bytes());
                        rest &= rest - 1;
                    }
                }
                self.written += count as usize * 4;
            }
        }
        self.position += elements;
        self.matches += count;
        Some(())
    }
}

/// The elements that match: those from `lo` to `hi`, or all others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range<T> {
    lo: T,
    hi: T,
    inverted: bool,
}

/// An element type.
pub(super) trait Element: Copy + PartialOrd {
    /// Its size.
    const LEN_BYTES: u64;
    /// The comparison as a range; `lo` and `hi` are bits of an element.
    fn range(op: Comparison, lo: u64, hi: u64) -> Range<Self>;
    /// Reads an element.
    fn read(bytes: &[u8]) -> Self;
    /// One bit an element, the first in the lowest bit of the first mask.
    fn masks(input: &[u8], range: &Range<Self>, masks: &mut [u64]);
}

#[inline(always)]
fn masks_of<T: Element>(input: &[u8], range: &Range<T>, masks: &mut [u64]) {
    let len = T::LEN_BYTES as usize;
    let (lo, hi) = (range.lo, range.hi);
    let flip = if range.inverted { u64::MAX } else { 0 };
    let test = |bytes: &[u8]| {
        let x = T::read(bytes);
        u8::from(lo <= x) & u8::from(x <= hi)
    };
    let blocks = input.chunks_exact(64 * len);
    let rest = blocks.remainder();
    let full = blocks.len();
    for (mask, block) in masks.iter_mut().zip(blocks) {
        let mut flags = [0u8; 64];
        for (flag, bytes) in flags.iter_mut().zip(block.chunks_exact(len)) {
            *flag = test(bytes);
        }
        *mask = pack(&flags) ^ flip;
    }
    if let Some(mask) = masks.get_mut(full) {
        let n = rest.len() / len;
        for (i, bytes) in rest.chunks_exact(len).enumerate() {
            *mask |= u64::from(test(bytes)) << i;
        }
        *mask = (*mask ^ flip) & ((1 << n) - 1);
    }
}

/// 64 bytes of 0 or 1 to 64 bits. The product brings the low bits of eight bytes together in its
/// highest byte: bit `8 i` moves to bit `56 + i`, and no two terms meet below.
#[inline(always)]
fn pack(flags: &[u8; 64]) -> u64 {
    let mut mask = 0;
    for (i, eight) in flags.chunks_exact(8).enumerate() {
        let word = u64::from_le_bytes(eight.try_into().expect("eight bytes"));
        mask |= (word.wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * i);
    }
    mask
}

macro_rules! element {
    ($type:ident, $masks:ident, $range:ident) => {
        impl Element for $type {
            const LEN_BYTES: u64 = size_of::<$type>() as u64;

            fn range(op: Comparison, lo: u64, hi: u64) -> Range<Self> {
                $range!($type, op, lo, hi)
            }

            #[inline(always)]
            fn read(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().expect("one element"))
            }

            fn masks(input: &[u8], range: &Range<Self>, masks: &mut [u64]) {
                $masks(input, range, masks);
            }
        }

        #[multiversion(targets("x86_64+avx2+bmi1+bmi2+popcnt+lzcnt"))]
        fn $masks(input: &[u8], range: &Range<$type>, masks: &mut [u64]) {
            masks_of(input, range, masks);
        }
    };
}

macro_rules! integer_range {
    ($type:ident, $op:expr, $lo:expr, $hi:expr) => {{
        let (v, hi) = ($lo as $type, $hi as $type);
        let (lo, hi, inverted) = match $op {
            Comparison::Eq => (v, v, false),
            Comparison::Ne => (v, v, true),
            Comparison::Lt => (v, $type::MAX, true),
            Comparison::Le => ($type::MIN, v, false),
            Comparison::Gt => ($type::MIN, v, true),
            Comparison::Ge => (v, $type::MAX, false),
            Comparison::Between => (v, hi, false),
        };
        Range { lo, hi, inverted }
    }};
}

// The opposite of a comparison is not the other comparison when NaN takes part, so strict ones end
// at the neighbouring number. NaN bounds and "below minus infinity" match nothing.
macro_rules! float_range {
    ($type:ident, $op:expr, $lo:expr, $hi:expr) => {{
        let (v, hi) = ($type::from_bits($lo as _), $type::from_bits($hi as _));
        let (least, most) = ($type::NEG_INFINITY, $type::INFINITY);
        let nothing = (most, least, false);
        let (lo, hi, inverted) = match $op {
            Comparison::Eq => (v, v, false),
            Comparison::Ne => (v, v, true),
            Comparison::Lt if v == least => nothing,
            Comparison::Gt if v == most => nothing,
            Comparison::Lt => (least, v.next_down(), false),
            Comparison::Le => (least, v, false),
            Comparison::Gt => (v.next_up(), most, false),
            Comparison::Ge => (v, most, false),
            Comparison::Between => (v, hi, false),
        };
        Range { lo, hi, inverted }
    }};
}

element!(u32, masks_u32, integer_range);
element!(i32, masks_i32, integer_range);
element!(u64, masks_u64, integer_range);
element!(i64, masks_i64, integer_range);
element!(f32, masks_f32, float_range);
element!(f64, masks_f64, float_range);
