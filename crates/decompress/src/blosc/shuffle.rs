//! Elements whose bytes, or bits, were put in order of their place in the element, put together again.

/// The first bytes of all elements come first, then the second ones, and so on; a rest that is not a whole element
/// stays.
pub(super) fn unshuffle(element_len: usize, from: &[u8], to: &mut [u8]) {
    let count = to.len() / element_len;
    let whole = count * element_len;
    let (to, rest) = to.split_at_mut(whole);
    rest.copy_from_slice(&from[whole..]);
    if count == 0 {
        return;
    }
    let plane = |index: usize| &from[index * count..(index + 1) * count];
    match element_len {
        2 => {
            for ((to, a), b) in to.as_chunks_mut::<2>().0.iter_mut().zip(plane(0)).zip(plane(1)) {
                *to = [*a, *b];
            }
        }
        4 => {
            let planes = plane(0).iter().zip(plane(1)).zip(plane(2)).zip(plane(3));
            for (to, (((a, b), c), d)) in to.as_chunks_mut::<4>().0.iter_mut().zip(planes) {
                *to = [*a, *b, *c, *d];
            }
        }
        8 => unshuffle_8(from, to, count),
        _ => {
            for (index, element) in to.chunks_exact_mut(element_len).enumerate() {
                for (byte, to) in element.iter_mut().enumerate() {
                    *to = from[byte * count + index];
                }
            }
        }
    }
}

/// Eight elements at a time: a square of bytes is turned over.
fn unshuffle_8(from: &[u8], to: &mut [u8], count: usize) {
    let planes: [&[[u8; 8]]; 8] = std::array::from_fn(|index| from[index * count..(index + 1) * count].as_chunks().0);
    let (squares, rest) = to.as_chunks_mut::<64>();
    for (at, square) in squares.iter_mut().enumerate() {
        let rows = transposed(std::array::from_fn(|row| u64::from_le_bytes(planes[row][at])));
        for (to, row) in square.as_chunks_mut::<8>().0.iter_mut().zip(rows) {
            *to = row.to_le_bytes();
        }
    }
    let done = squares.len() * 8;
    for (index, element) in rest.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *element = std::array::from_fn(|byte| from[byte * count + done + index]);
    }
}

/// Byte `i` of row `j` becomes byte `j` of row `i`.
fn transposed(mut rows: [u64; 8]) -> [u64; 8] {
    for (step, mask) in [(4, 0x0000_0000_ffff_ffff), (2, 0x0000_ffff_0000_ffff), (1, 0x00ff_00ff_00ff_00ff_u64)] {
        let bits = 8 * step;
        for row in 0..8 {
            if row & step == 0 {
                let (low, high) = (rows[row], rows[row + step]);
                rows[row] = low & mask | (high & mask) << bits;
                rows[row + step] = low >> bits & mask | high & !mask;
            }
        }
    }
    rows
}

/// The lowest bits of all first bytes come first, then the next ones, and so on. Blosc leaves a rest of fewer than
/// eight elements as it is.
pub(super) fn bit_unshuffle(element_len: usize, from: &[u8], planes: &mut [u8], to: &mut [u8]) {
    let count = to.len() / element_len;
    if !count.is_multiple_of(8) || count == 0 {
        return to.copy_from_slice(from);
    }
    // At first each byte of an element from its bits, so that the bytes of each place in an element stand together.
    let row_len = count / 8;
    for (byte, plane) in planes[..count * element_len].chunks_exact_mut(count).enumerate() {
        let rows: [&[u8]; 8] = std::array::from_fn(|bit| &from[(byte * 8 + bit) * row_len..][..row_len]);
        for (at, to) in plane.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *to = with_bits_transposed(u64::from_le_bytes(std::array::from_fn(|bit| rows[bit][at]))).to_le_bytes();
        }
    }
    let whole = count * element_len;
    planes[whole..].copy_from_slice(&from[whole..]);
    unshuffle(element_len, planes, to);
}

/// Bit `i` of byte `j` becomes bit `j` of byte `i`.
fn with_bits_transposed(mut square: u64) -> u64 {
    for (shift, mask) in [(7, 0x00aa_00aa_00aa_00aa), (14, 0x0000_cccc_0000_cccc), (28, 0x0000_0000_f0f0_f0f0_u64)] {
        let changed = (square ^ square >> shift) & mask;
        square ^= changed ^ changed << shift;
    }
    square
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
    }

    #[test]
    fn bytes_and_bits_come_back_for_every_element_and_length() {
        for element_len in 1..=20 {
            for count in [0, 1, 7, 8, 16, 24, 65, 72, 200] {
                for rest in 0..element_len.min(3) {
                    let wanted = bytes(count * element_len + rest);
                    let (whole, mut from) = (count * element_len, wanted.clone());
                    for at in 0..whole {
                        from[at % element_len * count + at / element_len] = wanted[at];
                    }
                    let mut to = vec![0; wanted.len()];
                    unshuffle(element_len, &from, &mut to);
                    assert_eq!(to, wanted, "{count} elements of {element_len} bytes and {rest}");

                    let mut from = wanted.clone();
                    if count % 8 == 0 {
                        from[..whole].fill(0);
                        for bit in 0..whole * 8 {
                            let (index, place) = (bit / 8 / element_len, bit / 8 % element_len * 8 + bit % 8);
                            let set = wanted[bit / 8] >> (bit % 8) & 1;
                            from[place * count / 8 + index / 8] |= set << (index % 8);
                        }
                    }
                    to.fill(0);
                    bit_unshuffle(element_len, &from, &mut vec![0; wanted.len()], &mut to);
                    assert_eq!(to, wanted, "bits of {count} elements of {element_len} bytes and {rest}");
                }
            }
        }
    }
}
