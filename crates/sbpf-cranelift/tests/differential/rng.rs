//! A small generator of pseudo-random numbers (SplitMix64): the same numbers for a seed everywhere. A fuzzer's bytes
//! come first, if there are any: each changes one decision, so that coverage can steer them.

#[derive(Clone, Debug)]
pub(crate) struct Rng {
    state: u64,
    bytes: std::vec::IntoIter<u8>,
}

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed, bytes: Vec::new().into_iter() }
    }

    #[allow(dead_code, reason = "fuzz/targets/tiers.rs uses it")]
    pub(crate) fn from_bytes(bytes: Vec<u8>) -> Self {
        Self { state: bytes.len() as u64, bytes: bytes.into_iter() }
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.bytes.next().map_or(self.state, |byte| u64::from(byte) + 1);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next_u64() % n.max(1) as u64) as usize
    }

    /// From `lo` to `hi`, both included.
    pub(crate) fn range(&mut self, lo: i64, hi: i64) -> i64 {
        lo + (self.next_u64() % (hi - lo + 1) as u64) as i64
    }

    pub(crate) fn percent(&mut self, p: usize) -> bool {
        self.below(100) < p
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}
