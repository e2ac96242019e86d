//! Choices from the fuzzer's bytes: each changes one decision, so that coverage can steer them.

#[derive(Clone, Debug)]
pub(crate) struct Rng {
    bytes: Vec<u8>,
    at: usize,
    state: u64,
}

impl Rng {
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), at: 0, state: bytes.len() as u64 }
    }

    pub(crate) fn new(seed: u64) -> Self {
        Self { bytes: Vec::new(), at: 0, state: seed }
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let seed = match self.bytes.get(self.at) {
            Some(&byte) => u64::from(byte) + 1,
            None => self.state,
        };
        self.at += 1;
        let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
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
