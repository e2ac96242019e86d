//! Which blocks of a kernel's result its host gets: a bit for each, which the host and the kernel can set.

use diskside_abi::context::RESULT_BLOCK_LEN;
use std::ops::Range;

/// Blocks of a result: bit `i % 8` of byte `i / 8` is block `i`. Blocks without a bit are not among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResultBlocks {
    bits: Vec<u8>,
}

impl ResultBlocks {
    /// Those whose bits are set.
    #[must_use]
    pub const fn of_bits(bits: Vec<u8>) -> Self {
        Self { bits }
    }

    /// All blocks of a result of so many bytes.
    #[must_use]
    pub fn all(result_len: usize) -> Self {
        let mut all = Self::default();
        all.add(0..result_len.div_ceil(RESULT_BLOCK_LEN));
        all
    }

    /// Adds blocks.
    pub fn add(&mut self, blocks: Range<usize>) {
        let len = self.bits.len().max(blocks.end.div_ceil(8));
        self.bits.resize(len, 0);
        for block in blocks {
            self.bits[block / 8] |= 1 << (block % 8);
        }
    }

    /// The bits.
    #[must_use]
    pub fn bits(&self) -> &[u8] {
        &self.bits
    }

    /// Whether it is one of them.
    #[must_use]
    pub fn has(&self, block: usize) -> bool {
        self.bits.get(block / 8).is_some_and(|bits| bits >> (block % 8) & 1 == 1)
    }

    /// The number behind that of the last one.
    #[must_use]
    pub fn end(&self) -> usize {
        let last = self.bits.iter().rposition(|bits| *bits != 0);
        last.map_or(0, |at| at * 8 + 8 - self.bits[at].leading_zeros() as usize)
    }

    /// They, as ranges in order, with others between them.
    #[must_use]
    pub fn ranges(&self) -> Vec<Range<usize>> {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for block in (0..self.bits.len() * 8).filter(|block| self.has(*block)) {
            match ranges.last_mut() {
                Some(range) if range.end == block => range.end += 1,
                _ => ranges.push(block..block + 1),
            }
        }
        ranges
    }

    /// Whether a result of so many bytes has a block that is not one of them.
    #[must_use]
    pub fn leave_some(&self, result_len: usize) -> bool {
        !(0..result_len.div_ceil(RESULT_BLOCK_LEN)).all(|block| self.has(block))
    }

    /// The same without blocks behind a result of so many bytes, with a bit for each block of it.
    #[must_use]
    pub fn within(&self, result_len: usize) -> Self {
        let blocks = result_len.div_ceil(RESULT_BLOCK_LEN);
        let mut bits = self.bits.clone();
        bits.resize(blocks.div_ceil(8), 0);
        if let Some(last) = bits.last_mut()
            && !blocks.is_multiple_of(8)
        {
            *last &= (1 << (blocks % 8)) - 1;
        }
        Self { bits }
    }

    /// Their bytes in a result of so many bytes.
    #[must_use]
    pub fn bytes(&self, result_len: usize) -> Vec<Range<usize>> {
        let place = |block: usize| block.saturating_mul(RESULT_BLOCK_LEN).min(result_len);
        let ranges = self.ranges().into_iter().map(|range| place(range.start)..place(range.end));
        ranges.filter(|range| !range.is_empty()).collect()
    }

    /// Makes all other blocks zeroes.
    pub fn clear_others(&self, result: &mut [u8]) {
        let mut from = 0;
        for range in self.bytes(result.len()) {
            result[from..range.start].fill(0);
            from = range.end;
        }
        result[from..].fill(0);
    }

    /// The result of so many bytes of which only these blocks are there, one behind the other; the others are zeroes. `None`:
    /// they are more bytes, or fewer, than those.
    #[must_use]
    pub fn spread(&self, blocks: &[u8], result_len: usize) -> Option<Vec<u8>> {
        let ranges = self.bytes(result_len);
        if ranges.iter().map(ExactSizeIterator::len).sum::<usize>() != blocks.len() {
            return None;
        }
        let mut result = vec![0; result_len];
        let mut rest = blocks;
        for range in ranges {
            let (these, behind) = rest.split_at(range.len());
            result[range].copy_from_slice(these);
            rest = behind;
        }
        Some(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 9 * RESULT_BLOCK_LEN + 5;

    #[test]
    fn blocks_are_counted_from_the_lowest_bit_of_the_first_byte() {
        let blocks = ResultBlocks::of_bits(vec![0b1000_0110, 0b1]);
        assert_eq!(blocks.ranges(), [1..3, 7..9]);
        assert_eq!(blocks.end(), 9);
        assert_eq!((blocks.has(2), blocks.has(3), blocks.has(1 << 40)), (true, false, false));
        let mut made = ResultBlocks::default();
        assert_eq!((made.end(), made.ranges()), (0, Vec::new()));
        made.add(7..9);
        made.add(1..3);
        assert_eq!(made, blocks);
        assert_eq!(ResultBlocks::of_bits(vec![4, 0, 0]).end(), 3);
    }

    #[test]
    fn the_last_block_of_a_result_may_be_short() {
        let all = ResultBlocks::all(LEN);
        assert_eq!((all.end(), all.leave_some(LEN)), (10, false));
        assert_eq!(all.bytes(LEN), std::slice::from_ref(&(0..LEN)));
        assert!(all.leave_some(LEN + RESULT_BLOCK_LEN) && !all.leave_some(0));
        let mut last = ResultBlocks::default();
        last.add(9..20);
        assert_eq!(last.bytes(LEN), std::slice::from_ref(&(9 * RESULT_BLOCK_LEN..LEN)));
        assert_eq!(last.within(LEN).bits(), [0, 0b10]);
        assert_eq!(last.within(8 * RESULT_BLOCK_LEN).bits(), [0]);
        assert_eq!(last.within(0).bits(), [0; 0]);
    }

    #[test]
    fn a_result_is_put_together_again_from_its_blocks() {
        let whole: Vec<u8> = (0..LEN).map(|at| (at / 100) as u8 | 1).collect();
        for bits in [vec![], vec![0b101], vec![0xff, 0b10], vec![0xff, 0xff], vec![0, 0b11]] {
            let blocks = ResultBlocks::of_bits(bits);
            let travel: Vec<u8> = blocks.bytes(LEN).into_iter().flat_map(|range| whole[range].to_vec()).collect();
            let mut expected = whole.clone();
            blocks.clear_others(&mut expected);
            assert_eq!(blocks.spread(&travel, LEN).as_ref(), Some(&expected), "{blocks:?}");
            assert_eq!(expected == whole, !blocks.leave_some(LEN), "{blocks:?}");
            assert_eq!(blocks.spread(&[&travel[..], &[1]].concat(), LEN), None, "{blocks:?}");
            if let Some((_, fewer)) = travel.split_last() {
                assert_eq!(blocks.spread(fewer, LEN), None, "{blocks:?}");
            }
        }
    }
}
