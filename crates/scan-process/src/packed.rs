//! Comparisons of whole columns.

use arrow_buffer::{BooleanBuffer, Buffer};

const BITS: usize = u64::BITS as usize;

/// A bit for each value. Truth values are bytes first, which are compared and then packed eight at a time with vector instructions; bits that
/// are shifted into a word one by one are not.
#[inline]
pub(crate) fn packed<T: Copy>(values: &[T], holds: impl Fn(T) -> bool) -> BooleanBuffer {
    let (whole, rest) = values.as_chunks::<BITS>();
    let mut words = Vec::with_capacity(values.len().div_ceil(BITS));
    words.extend(whole.iter().map(|chunk| word(&chunk.map(|value| u8::from(holds(value))))));
    if !rest.is_empty() {
        let mut bytes = [0; BITS];
        for (byte, value) in bytes.iter_mut().zip(rest) {
            *byte = u8::from(holds(*value));
        }
        words.push(word(&bytes));
    }
    BooleanBuffer::new(Buffer::from_vec(words), 0, values.len())
}

/// The lowest bits of bytes, the first one lowest.
fn word(bytes: &[u8; BITS]) -> u64 {
    // The product has the lowest bit of each byte in its highest one, in their order.
    const TO_HIGHEST: u64 = 0x0102_0408_1020_4080;
    let (eights, _) = bytes.as_chunks::<8>();
    let packed = eights.iter().map(|eight| u64::from_le_bytes(*eight).wrapping_mul(TO_HIGHEST) >> 56);
    packed.enumerate().fold(0, |word: u64, (at, byte)| word | byte << (8 * at)).to_le()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_those_of_their_values() {
        let mut random = fastrand::Rng::with_seed(1);
        for len in (0..200).chain([4096, 8191]) {
            let values: Vec<i64> = std::iter::repeat_with(|| random.i64(-3..3)).take(len).collect();
            let found = packed(&values, |value| value < 1);
            assert_eq!(found, BooleanBuffer::from_iter(values.iter().map(|value| *value < 1)), "{len} values");
        }
    }
}
