//! The keys of records (RFC 8446, 7.2 and 7.3).

use std::fmt;

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, LessSafeKey, Nonce, UnboundKey};
use diskside_nvme::auth::Hash;
use zeroize::Zeroizing;

/// The result of a handshake: the traffic secrets of both directions.
#[derive(Clone)]
pub struct Secrets {
    /// The hash function of the cipher suite: SHA-256 of AES-128-GCM, SHA-384 of AES-256-GCM.
    pub hash: Hash,
    /// The secret of the data that this side sends.
    pub ours: Zeroizing<Vec<u8>>,
    /// The secret of the data that the other side sends.
    pub theirs: Zeroizing<Vec<u8>>,
}

/// One direction of a channel.
pub(crate) struct Direction {
    hash: Hash,
    secret: Zeroizing<Vec<u8>>,
    key: LessSafeKey,
    iv: [u8; 12],
    /// The number of the next record.
    sequence: u64,
}

impl Direction {
    pub(crate) fn new(hash: Hash, secret: Zeroizing<Vec<u8>>) -> Self {
        let algorithm = if hash == Hash::Sha256 { &AES_128_GCM } else { &AES_256_GCM };
        let key = hash.expand_label(&secret, "key", &[], algorithm.key_len());
        let key = UnboundKey::new(algorithm, &key).expect("the key is as long as the algorithm's");
        let mut iv = [0; 12];
        iv.copy_from_slice(&hash.expand_label(&secret, "iv", &[], 12));
        Self { hash, secret, key: LessSafeKey::new(key), iv, sequence: 0 }
    }

    /// Goes over to the next key, as KeyUpdate says.
    pub(crate) fn update(&mut self) {
        let secret = self.hash.expand_label(&self.secret, "traffic upd", &[], self.hash.len_bytes());
        *self = Self::new(self.hash, secret);
    }

    /// The key and the nonce for the next record.
    pub(crate) fn next(&mut self) -> (&LessSafeKey, Nonce) {
        let mut nonce = self.iv;
        for (byte, count) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= count;
        }
        // 2^64 records are more than anybody sends.
        self.sequence += 1;
        (&self.key, Nonce::assume_unique_for_key(nonce))
    }

    /// Records under this key.
    pub(crate) fn records(&self) -> u64 {
        self.sequence
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").field("hash", &self.hash).finish_non_exhaustive()
    }
}
