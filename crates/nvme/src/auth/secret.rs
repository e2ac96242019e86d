//! Keys of DH-HMAC-CHAP, and their text (NVMe Base 8.3.5.5.7): `DHHC-1:hh:BASE64:`.
//!
//! The base64 holds the key and behind it its CRC-32, little endian. `hh` says what is done to the key before it is used:
//! 00 nothing, 01 to 03 that it is bound to a name with SHA-256, SHA-384 or SHA-512. It does not say how long the key is.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crc_fast::CrcAlgorithm::Crc32IsoHdlc;
use subtle::ConstantTimeEq as _;
use zeroize::{Zeroize as _, Zeroizing};

use super::hash::Hash;

const PREFIX: &str = "DHHC-1:";
/// The text appended to a name when a key is bound to it.
const BINDING: &[u8] = b"NVMe-over-Fabrics";

/// A key. It is wiped when it is dropped, and `Debug` does not show it.
#[derive(Clone)]
pub struct Secret {
    key: Zeroizing<Vec<u8>>,
    transform: Option<Hash>,
}

/// Why a text is not a key. None of these repeats any of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// It has another form.
    #[error("a key is written DHHC-1:hh:BASE64:, with the colon at the end")]
    Form,
    /// The same, of a key of another kind.
    #[error("a key is written {0}, with the colon at the end")]
    OtherForm(&'static str),
    /// The transform is none.
    #[error("the two digits after DHHC-1: are 00, 01, 02 or 03")]
    Transform,
    /// The same, of a key of TLS.
    #[error("the two digits after NVMeTLSkey-1: are 00, 01 or 02")]
    TlsTransform,
    /// A part that should be base64 is not.
    #[error("what is between the last two colons is not base64: a character may be missing or changed")]
    Base64,
    /// A key of another length.
    #[error("the key has {0} bytes; there are keys of 32, 48 and 64")]
    Length(usize),
    /// A key of TLS of another length.
    #[error("the key has {0} bytes; there are keys of TLS of 32 and 48")]
    TlsLength(usize),
    /// A key of TLS that does not fit its hash function.
    #[error("the key has {0} bytes; one of 32 is written NVMeTLSkey-1:01:, one of 48 NVMeTLSkey-1:02:")]
    LengthOfHash(usize),
    /// The checksum is another.
    #[error("the checksum of the key is wrong: a character was changed when it was copied")]
    Checksum,
}

impl Secret {
    /// A key of 32, 48 or 64 bytes. `transform` binds it to the name of who uses it.
    pub fn new(key: &[u8], transform: Option<Hash>) -> Result<Self, SecretError> {
        match key.len() {
            32 | 48 | 64 => Ok(Self { key: Zeroizing::new(key.to_vec()), transform }),
            len => Err(SecretError::Length(len)),
        }
    }

    /// Reads a key's text; space around it does not matter.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let Bytes { digits, key, is_whole } = Bytes::parse(text, PREFIX)?;
        let transform = match digits {
            "00" => None,
            "01" => Some(Hash::Sha256),
            "02" => Some(Hash::Sha384),
            "03" => Some(Hash::Sha512),
            _ => return Err(SecretError::Transform),
        };
        let secret = Self::new(&key, transform)?;
        if is_whole { Ok(secret) } else { Err(SecretError::Checksum) }
    }

    /// The key's text. Anyone who has it is the host.
    pub fn to_text(&self) -> Zeroizing<String> {
        Bytes::to_text(PREFIX, self.transform, &self.key)
    }

    /// Whether it is the same key, in constant time.
    pub fn is(&self, other: &Self) -> bool {
        self.transform == other.transform && bool::from(self.key.ct_eq(&other.key))
    }

    /// Length of the key.
    pub fn len_bytes(&self) -> usize {
        self.key.len()
    }

    /// The hash function that binds it to a name, if one does.
    pub fn transform(&self) -> Option<Hash> {
        self.transform
    }

    /// The key as `nqn` uses it (NVMe Base 8.3.5.5.5).
    pub(super) fn bound_to(&self, nqn: &str) -> Zeroizing<Vec<u8>> {
        match self.transform {
            None => self.key.clone(),
            Some(hash) => hash.hmac(&self.key, &[nqn.as_bytes(), BINDING]),
        }
    }
}

/// The parts that the texts of all keys have: two digits, and bytes with their checksum.
pub(super) struct Bytes<'a> {
    pub(super) digits: &'a str,
    pub(super) key: Zeroizing<Vec<u8>>,
    /// Whether the checksum fits.
    pub(super) is_whole: bool,
}

impl<'a> Bytes<'a> {
    pub(super) fn parse(text: &'a str, prefix: &str) -> Result<Self, SecretError> {
        let rest = text.trim().strip_prefix(prefix).ok_or(SecretError::Form)?;
        let (digits, rest) = rest.split_once(':').ok_or(SecretError::Form)?;
        let body = rest.strip_suffix(':').filter(|body| !body.contains(':')).ok_or(SecretError::Form)?;
        let mut key = Zeroizing::new(STANDARD.decode(body).map_err(|_| SecretError::Base64)?);
        let Some((bytes, &checksum)) = key.split_last_chunk::<4>() else {
            return Err(SecretError::Length(0));
        };
        let (len, is_whole) = (bytes.len(), checksum_of(bytes).to_le_bytes() == checksum);
        key.truncate(len);
        Ok(Self { digits, key, is_whole })
    }

    pub(super) fn to_text(prefix: &str, transform: Option<Hash>, key: &[u8]) -> Zeroizing<String> {
        let mut bytes = Zeroizing::new(key.to_vec());
        bytes.extend_from_slice(&checksum_of(key).to_le_bytes());
        let transform = transform.map_or(0, Hash::id);
        let mut body = STANDARD.encode(&*bytes);
        let text = format!("{prefix}{transform:02}:{body}:");
        body.zeroize();
        Zeroizing::new(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

fn checksum_of(key: &[u8]) -> u32 {
    crc_fast::checksum(Crc32IsoHdlc, key) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

    fn counting() -> Vec<u8> {
        (0..32).collect()
    }

    #[test]
    fn the_text_is_that_of_the_specification() {
        let secret = Secret::parse(TEXT).unwrap();
        assert_eq!(*secret.key, counting());
        assert_eq!(*secret.to_text(), TEXT);
        assert_eq!(secret.transform(), None);
        assert!(secret.is(&Secret::new(&counting(), None).unwrap()));
        assert!(!secret.is(&Secret::new(&counting(), Some(Hash::Sha256)).unwrap()));
    }

    #[test]
    fn a_key_is_not_shown() {
        assert_eq!(format!("{:?}", Secret::parse(TEXT).unwrap()), "Secret(…)");
    }

    #[test]
    fn what_is_no_key_is_refused_with_the_reason() {
        let changed = TEXT.replace("AAEC", "AAED");
        let short = format!("DHHC-1:00:{}:", STANDARD.encode([0; 35]));
        for (text, error) in [
            ("", SecretError::Form),
            ("DHHC-1:00:", SecretError::Form),
            ("DHHC-1:00:AAEC", SecretError::Form),
            ("NVMeTLSkey-1:01:AAEC:", SecretError::Form),
            (&TEXT.replace(":00:", ":04:"), SecretError::Transform),
            (&TEXT.replace(":00:", ":0:"), SecretError::Transform),
            (&TEXT.replace("KfiaR", "KfiaR="), SecretError::Base64),
            (&TEXT.replace("KfiaR", "Kf!aR"), SecretError::Base64),
            ("DHHC-1:00:AAE=:", SecretError::Length(0)),
            (&short, SecretError::Length(31)),
            (&changed, SecretError::Checksum),
            (&format!("{TEXT}:"), SecretError::Form),
        ] {
            assert_eq!(Secret::parse(text).unwrap_err(), error, "{text}");
        }
    }

    proptest! {
        #[test]
        fn texts_come_back(key in prop_oneof![Just(32_usize), Just(48), Just(64)]
            .prop_flat_map(|len| proptest::collection::vec(any::<u8>(), len)), transform in 0_u8..4)
        {
            let secret = Secret::new(&key, Hash::from_id(transform)).unwrap();
            let back = Secret::parse(&format!(" {}\n", *secret.to_text())).unwrap();
            prop_assert!(back.is(&secret));
        }

        #[test]
        fn no_text_panics(text in "(DHHC-1:)?[0-9]{0,2}:?[A-Za-z0-9+/=é]{0,96}:?") {
            let _ = Secret::parse(&text);
        }
    }
}
