//! Picking fields out of words.

/// `width` bits of `word`, from bit `low` on.
pub(super) const fn field(word: u64, low: u32, width: u32) -> u64 {
    word >> low & mask(width)
}

/// `word` with `width` bits from bit `low` on replaced by `value`, whose higher bits are dropped.
pub(super) const fn with_field(word: u64, low: u32, width: u32, value: u64) -> u64 {
    word & !(mask(width) << low) | (value & mask(width)) << low
}

const fn mask(width: u32) -> u64 {
    if width == 64 { u64::MAX } else { (1 << width) - 1 }
}
