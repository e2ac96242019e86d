//! Keys of TLS for NVMe over TCP (NVMe TCP Transport 3.6.1): their text, `NVMeTLSkey-1:hh:BASE64:`, and what TLS is given of
//! them: an identity, which travels, and a pre-shared key, which does not.
//!
//! There are two versions of identities, and Linux's tools made keys in two ways: those before 2025-08, which Debian 13 has,
//! built the label of HKDF wrongly. So a configured key has up to four pre-shared keys. A host offers one; a server knows all.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use super::Names;
use super::hash::Hash;
use super::secret::{Bytes, SecretError};

const PREFIX: &str = "NVMeTLSkey-1:";
const FORM: &str = "NVMeTLSkey-1:hh:BASE64:";

/// A configured key of TLS. It is wiped when it is dropped, and `Debug` does not show it.
#[derive(Clone)]
pub struct TlsSecret {
    key: Zeroizing<Vec<u8>>,
    /// With which it is bound to the host's name; `None`: it is bound already.
    transform: Option<Hash>,
}

/// The input of TLS: a pre-shared key and its name.
#[derive(Clone)]
pub struct TlsPsk {
    /// The identity that the host sends in the clear: it names both sides.
    pub identity: String,
    /// The hash function of its cipher suite.
    pub hash: Hash,
    /// The key.
    pub key: Zeroizing<Vec<u8>>,
}

/// The version of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityVersion {
    /// With both names (TCP Transport 1.0).
    V0,
    /// With a digest of the key as well, so that a host may have several.
    V1,
}

/// How a pre-shared key is derived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Derivation {
    /// As the specification says.
    Standard,
    /// As Linux's tools did before 2025-08.
    OldTools,
}

impl TlsSecret {
    /// A key of 32 bytes, for SHA-256, or of 48, for SHA-384. `transform` binds it to the host's name.
    pub fn new(key: &[u8], transform: Option<Hash>) -> Result<Self, SecretError> {
        let len_of = |hash: Option<Hash>| hash.map(Hash::len_bytes);
        match (key.len(), len_of(transform)) {
            (32 | 48, None) => {}
            (len, Some(wanted)) if len == wanted && len != 64 => {}
            (len @ (32 | 48), Some(_)) => return Err(SecretError::LengthOfHash(len)),
            (len, _) => return Err(SecretError::TlsLength(len)),
        }
        Ok(Self { key: Zeroizing::new(key.to_vec()), transform })
    }

    /// Reads a key's text; space around it does not matter.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let Bytes { digits, key, is_whole } = Bytes::parse(text, PREFIX).map_err(|error| match error {
            SecretError::Form => SecretError::OtherForm(FORM),
            error => error,
        })?;
        let transform = match digits {
            "00" => None,
            "01" => Some(Hash::Sha256),
            "02" => Some(Hash::Sha384),
            _ => return Err(SecretError::TlsTransform),
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

    /// The hash function of its cipher suite.
    pub fn hash(&self) -> Hash {
        if self.key.len() == Hash::Sha256.len_bytes() { Hash::Sha256 } else { Hash::Sha384 }
    }

    /// The key that TLS is given, derived from it for these two. `None`: the names are too long for an identity of this version.
    pub fn psk(&self, names: &Names, version: IdentityVersion, derivation: Derivation) -> Option<TlsPsk> {
        let hash = self.hash();
        let retained = match self.transform {
            None => self.key.clone(),
            Some(_) => derivation.derive(hash, &self.key, "HostNQN", names.host.as_str().as_bytes()),
        };
        TlsPsk::derive(&retained, hash, names, ('R', version), derivation)
    }

    /// All that a server accepts of it.
    pub fn psks(&self, names: &Names) -> Vec<TlsPsk> {
        let versions = [IdentityVersion::V1, IdentityVersion::V0];
        let both =
            versions.into_iter().flat_map(|version| [(version, Derivation::Standard), (version, Derivation::OldTools)]);
        both.filter_map(|(version, derivation)| self.psk(names, version, derivation)).collect()
    }
}

impl TlsPsk {
    /// The TLS key from a key that authentication made (secure channel concatenation, NVMe Base 8.3.5.5.9): `hash` is that of the
    /// authentication, and not SHA-512. `None`: there is none for such a hash function.
    pub fn generated(key: &[u8], hash: Hash, names: &Names) -> Option<Self> {
        if hash == Hash::Sha512 || key.len() != hash.len_bytes() {
            return None;
        }
        Self::derive(key, hash, names, ('G', IdentityVersion::V1), Derivation::Standard)
    }

    fn derive(
        key: &[u8],
        hash: Hash,
        names: &Names,
        (kind, version): (char, IdentityVersion),
        derivation: Derivation,
    ) -> Option<Self> {
        let (host, subsystem) = (names.host.as_str(), names.subsystem.as_str());
        let number = hash.id();
        let (identity, context) = match version {
            IdentityVersion::V0 => {
                let identity = format!("NVMe0{kind}{number:02} {host} {subsystem}");
                (identity.clone(), identity)
            }
            IdentityVersion::V1 => {
                let parts: [&[u8]; 5] = [host.as_bytes(), b" ", subsystem.as_bytes(), b" ", b"NVMe-over-Fabrics"];
                let digest = STANDARD.encode(&*hash.hmac(key, &parts));
                let identity = format!("NVMe1{kind}{number:02} {host} {subsystem} {digest}");
                (identity, format!("{number:02} {digest}"))
            }
        };
        if context.len() > CONTEXT_LEN_MAX {
            return None;
        }
        Some(Self { identity, hash, key: derivation.derive(hash, key, "nvme-tls-psk", context.as_bytes()) })
    }
}

/// A context of HKDF-Expand-Label is no longer.
const CONTEXT_LEN_MAX: usize = 255;

impl Derivation {
    fn derive(self, hash: Hash, key: &[u8], label: &str, context: &[u8]) -> Zeroizing<Vec<u8>> {
        let secret = hash.extract(None, key);
        match self {
            Self::Standard => hash.expand_label(&secret, label, context, hash.len_bytes()),
            Self::OldTools => hash.expand_label_as_old_tools(&secret, label, context),
        }
    }
}

impl fmt::Debug for TlsSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsSecret(…)")
    }
}

impl fmt::Debug for TlsPsk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsPsk").field("identity", &self.identity).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::nqn::Nqn;

    const PSK: &str = "5512dbb6737d0106f65975b773dfb011ffc344bcf442e2dd6d8bc4870b5d5b03";
    const TEXT: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";

    fn names() -> Names {
        Names { host: Nqn::unchecked("nqn.psk-test-host"), subsystem: Nqn::unchecked("nqn.psk-test-subsys") }
    }

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn long() -> TlsSecret {
        let psk = bytes(PSK);
        TlsSecret::new(&[&psk[..], &psk[16..]].concat(), Some(Hash::Sha384)).unwrap()
    }

    /// The keys and names are those of libnvme's own test.
    #[test]
    fn keys_and_identities_are_those_of_the_tools() {
        let short = TlsSecret::parse(TEXT).unwrap();
        assert_eq!((*short.to_text()).as_str(), TEXT);
        assert!(short.is(&TlsSecret::new(&bytes(PSK), Some(Hash::Sha256)).unwrap()));
        for (secret, derivation, number, digest, key) in [
            (&short, Derivation::Standard, "01", "iSbjiStwJ/1TrTvDlt2fjFmzvsytOJelidNnA+X5lEU=", "8fc3c0badfd4c0c6"),
            (&short, Derivation::OldTools, "01", "66GuqV08TsAGII39teWUfwQwizjv06Jy8jOcX3NAAzM=", ""),
            (&long(), Derivation::Standard, "02", "QhW2+Rp6RzHl", "a2b2f943f479fc68"),
            (&long(), Derivation::OldTools, "02", "RsKmYJ3nAn1A", ""),
        ] {
            let psk = secret.psk(&names(), IdentityVersion::V1, derivation).unwrap();
            let start = format!("NVMe1R{number} nqn.psk-test-host nqn.psk-test-subsys {digest}");
            assert!(psk.identity.starts_with(&start), "{}", psk.identity);
            assert!(hex(&psk.key).starts_with(key), "{}", psk.identity);
            assert_eq!(psk.key.len(), psk.hash.len_bytes());
            let old = secret.psk(&names(), IdentityVersion::V0, derivation).unwrap();
            assert_eq!(old.identity, format!("NVMe0R{number} nqn.psk-test-host nqn.psk-test-subsys"));
            assert_ne!(old.key, psk.key);
        }
        assert_eq!(short.psks(&names()).len(), 4);
    }

    /// The numbers are those of the Linux kernel's own test.
    #[test]
    fn the_key_that_authentication_makes_is_that_of_the_kernel() {
        let names = Names { host: Nqn::unchecked("hostnqn"), subsystem: Nqn::unchecked("subsysnqn") };
        let shared: Vec<u8> = (0..32).map(|index| b'A' + index).collect();
        let (ours, theirs): (Vec<u8>, Vec<u8>) = (0..32).map(|index: u8| (index, 0xff - index)).unzip();
        let key = Hash::Sha256.hmac(&shared, &[&ours, &theirs]);
        assert!(hex(&key).starts_with("1733c59fa7f48fcf"), "{}", hex(&key));
        let psk = TlsPsk::generated(&key, Hash::Sha256, &names).unwrap();
        assert_eq!(psk.identity, "NVMe1G01 hostnqn subsysnqn OldoKuTfKddMuyCznAZojkWD7P4D9/AtzDzLimtOxqI=");
        assert!(hex(&psk.key).starts_with("3c17da628474a04d"));
        assert!(TlsPsk::generated(&[0; 64], Hash::Sha512, &names).is_none());
    }

    #[test]
    fn names_that_are_too_long_for_the_old_identity_have_the_new_one() {
        let long = |letter: &str| Nqn::new(&format!("nqn.2026-01.test:{}", letter.repeat(180))).unwrap();
        let names = Names { host: long("a"), subsystem: long("b") };
        let psks = TlsSecret::parse(TEXT).unwrap().psks(&names);
        assert!(psks.len() == 2 && psks.iter().all(|psk| psk.identity.starts_with("NVMe1R01 ")));
    }

    #[test]
    fn a_key_is_not_shown() {
        let secret = TlsSecret::parse(TEXT).unwrap();
        let psk = secret.psk(&names(), IdentityVersion::V0, Derivation::Standard).unwrap();
        assert_eq!(format!("{secret:?}"), "TlsSecret(…)");
        assert_eq!(format!("{psk:?}"), format!("TlsPsk {{ identity: {:?}, .. }}", psk.identity));
    }

    #[test]
    fn what_is_no_key_is_refused_with_the_reason() {
        let short = format!("NVMeTLSkey-1:00:{}:", STANDARD.encode([0; 20]));
        for (text, error) in [
            ("", SecretError::OtherForm(FORM)),
            ("DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:", SecretError::OtherForm(FORM)),
            (&TEXT[..TEXT.len() - 1], SecretError::OtherForm(FORM)),
            (&TEXT.replace(":01:", ":03:"), SecretError::TlsTransform),
            (&TEXT.replace(":01:", ":02:"), SecretError::LengthOfHash(32)),
            (&TEXT.replace("VRLb", "VRLc"), SecretError::Checksum),
            (&TEXT.replace("VRLb", "VR!b"), SecretError::Base64),
            (&short, SecretError::TlsLength(16)),
        ] {
            assert_eq!(TlsSecret::parse(text).unwrap_err(), error, "{text}");
        }
    }

    proptest! {
        #[test]
        fn texts_come_back(key in prop_oneof![Just(32_usize), Just(48)]
            .prop_flat_map(|len| proptest::collection::vec(any::<u8>(), len)), is_bound: bool)
        {
            let hash = if key.len() == 32 { Hash::Sha256 } else { Hash::Sha384 };
            let secret = TlsSecret::new(&key, is_bound.then_some(hash)).unwrap();
            let back = TlsSecret::parse(&format!(" {}\n", *secret.to_text())).unwrap();
            prop_assert!(back.is(&secret) && back.hash() == hash);
        }

        #[test]
        fn no_text_panics(text in "(NVMeTLSkey-1:)?[0-9]{0,2}:?[A-Za-z0-9+/=é]{0,96}:?") {
            let _ = TlsSecret::parse(&text);
        }
    }
}
