//! Values that can be checked: each is made of its key.

/// FNV-1a of 64 bits, by which YCSB scatters keys.
pub(crate) fn scrambled(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// A value of so many bytes, which no other number has.
pub(crate) fn contents(number: u64, len: usize) -> Vec<u8> {
    let word = scrambled(&(number ^ 0x5bd1_e995).to_le_bytes()).to_le_bytes();
    word.iter().copied().cycle().take(len).collect()
}
