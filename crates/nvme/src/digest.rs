//! CRC32C, the checksum of header and data digests (NVMe/TCP 3.3.1.1).

use crc_fast::{CrcAlgorithm, checksum};

/// The CRC32C (Castagnoli; initial value and final XOR FFFFFFFFh, reflected) of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// A CRC32C over bytes that arrive in pieces.
#[derive(Debug)]
pub struct Crc32c(crc_fast::Digest);

impl Crc32c {
    /// The checksum of nothing so far.
    pub fn new() -> Self {
        Self(crc_fast::Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all bytes so far.
    pub fn finish(&self) -> u32 {
        self.0.finalize() as u32
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test vectors of RFC 3720, appendix B.4.
    #[test]
    fn agrees_with_the_vectors_of_iscsi() {
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        let cases: [(&[u8], u32); 5] = [
            (&[0; 32], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&ascending, 0x46dd_794e),
            (&descending, 0x113f_db5c),
            (b"123456789", 0xe306_9283),
        ];
        for (bytes, want) in cases {
            assert_eq!(crc32c(bytes), want);
            for split in 0..bytes.len() {
                let mut digest = Crc32c::new();
                digest.update(&bytes[..split]);
                digest.update(&bytes[split..]);
                assert_eq!(digest.finish(), want, "split at {split}");
            }
        }
    }
}
