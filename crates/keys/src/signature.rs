//! Signed programs: an object, and behind it who says that it is good.
//!
//! The signature is a part of the file, so whatever carries objects carries it, and a signed object has a SHA-256 of its own.
//! Readers of ELF do not look behind the sections. It is Ed25519 (RFC 8032) over [`CONTEXT`] and the object.
//!
//! | bytes from the end | |
//! |---|---|
//! | 112 | the signer's public key |
//! | 80 | the signature |
//! | 16 | [`MAGIC`] |

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use zeroize::Zeroizing;

use crate::file::{KeyFileError, Trouble, at, lines, read, write};

/// The end of a file that is signed.
const MAGIC: &[u8; 16] = b"diskside signed\n";
/// A signature is of this use alone.
const CONTEXT: &[u8] = b"diskside object 1\0";
const PUBLIC_LEN: usize = 32;
const SIGNATURE_LEN: usize = 64;
const BLOCK_LEN: usize = PUBLIC_LEN + SIGNATURE_LEN + MAGIC.len();
/// The start of a private key, so that nobody takes it for a public one.
const PRIVATE_PREFIX: &str = "diskside-signing-key-1:";

/// The key that signs: a private key.
pub struct SigningKey {
    seed: Zeroizing<[u8; 32]>,
    pair: Ed25519KeyPair,
}

/// The signer: a public key, written as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signer(pub [u8; PUBLIC_LEN]);

/// An object that says it is signed, and is not by whom it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its signature does not fit: the object was changed after it was signed")]
pub struct BadSignature;

impl SigningKey {
    /// A new one.
    pub fn generate() -> Self {
        let mut seed = Zeroizing::new([0; 32]);
        crate::random(&mut *seed);
        Self::from_seed(seed)
    }

    fn from_seed(seed: Zeroizing<[u8; 32]>) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(&*seed).expect("any 32 bytes are a seed");
        Self { seed, pair }
    }

    /// Reads the only key of a file that nobody else can read.
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        let text = read(path, None)?;
        let mut found = Vec::new();
        for (line, text) in lines(&text) {
            let seed = text.strip_prefix(PRIVATE_PREFIX).and_then(bytes_of).map(Zeroizing::new);
            found.push(seed.ok_or_else(|| at(path, Trouble::SigningKey { line }))?);
        }
        match found.pop() {
            Some(seed) if found.is_empty() => Ok(Self::from_seed(seed)),
            other => Err(at(path, Trouble::SigningKeys(found.len() + usize::from(other.is_some())))),
        }
    }

    /// Makes a file for it, which only its owner can read. There must be none.
    pub fn write(&self, path: &Path) -> Result<(), KeyFileError> {
        let digits = Zeroizing::new(hex(&*self.seed));
        write(path, &Zeroizing::new(format!("{PRIVATE_PREFIX}{}\n", *digits)))
    }

    /// By which others know it.
    pub fn signer(&self) -> Signer {
        let public = self.pair.public_key().as_ref();
        Signer(public.try_into().expect("a public key of Ed25519 has 32 bytes"))
    }

    /// The object with a signature behind it, in place of one that it has.
    pub fn sign(&self, object: &[u8]) -> Vec<u8> {
        let plain = split(object).map_or(object, |(plain, _)| plain);
        let signature = self.pair.sign(&message(plain));
        [plain, &self.signer().0, signature.as_ref(), MAGIC].concat()
    }
}

/// The signer of an object; `None` if nobody signed it.
pub fn signer_of(object: &[u8]) -> Result<Option<Signer>, BadSignature> {
    let Some((plain, block)) = split(object) else { return Ok(None) };
    let (public, signature) = block.split_at(PUBLIC_LEN);
    let key = UnparsedPublicKey::new(&ED25519, public);
    key.verify(&message(plain), &signature[..SIGNATURE_LEN]).map_err(|_| BadSignature)?;
    Ok(Some(Signer(public.try_into().expect("it was split there"))))
}

/// The object, and what says who signed it.
fn split(object: &[u8]) -> Option<(&[u8], &[u8; BLOCK_LEN])> {
    let (plain, block) = object.split_last_chunk()?;
    block.ends_with(MAGIC).then_some((plain, block))
}

fn message(object: &[u8]) -> Vec<u8> {
    [CONTEXT, object].concat()
}

fn bytes_of(digits: &str) -> Option<[u8; 32]> {
    if digits.len() != 64 || !digits.is_ascii() {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = (digit(0)? << 4 | digit(1)?) as u8;
    }
    Some(bytes)
}

fn hex(bytes: &[u8]) -> String {
    // As long as it gets at once: nothing that is copied from stays behind.
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.extend([byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16).expect("below 16")));
    }
    text
}

impl FromStr for Signer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // It may be a private key: it is not repeated.
        let wrong = "a signer is the 64 hexadecimal digits that `diskside sign --show` prints";
        bytes_of(text).map(Self).ok_or_else(|| wrong.into())
    }
}

impl fmt::Display for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signer({self})")
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("signer", &self.signer()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8032, 7.1, test 1.
    #[test]
    fn the_public_key_is_that_of_the_specification() {
        let seed = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
        let key = SigningKey::from_seed(Zeroizing::new(bytes_of(seed).unwrap()));
        assert_eq!(key.signer().to_string(), "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
    }

    #[test]
    fn who_signed_is_known_and_each_changed_byte_is_noticed() {
        let (key, other) = (SigningKey::generate(), SigningKey::generate());
        let object = b"an object".repeat(50);
        assert_eq!(signer_of(&object), Ok(None));
        let signed = key.sign(&object);
        assert_eq!(signer_of(&signed), Ok(Some(key.signer())));
        assert!(signed.starts_with(&object));
        // Signed again it has one signature, of the last who did.
        let again = other.sign(&signed);
        assert_eq!((again.len(), signer_of(&again)), (signed.len(), Ok(Some(other.signer()))));
        for at in 0..signed.len() {
            let mut changed = signed.clone();
            changed[at] ^= 1;
            let is_unsigned = at >= signed.len() - MAGIC.len();
            assert_eq!(signer_of(&changed), if is_unsigned { Ok(None) } else { Err(BadSignature) }, "byte {at}");
        }
        // The signature of one under the name of another.
        let mut stolen = signed.clone();
        let at = object.len();
        stolen[at..at + PUBLIC_LEN].copy_from_slice(&other.signer().0);
        assert_eq!(signer_of(&stolen), Err(BadSignature));
        for len in 0..BLOCK_LEN {
            let _ = signer_of(&signed[signed.len() - len..]);
        }
    }

    #[test]
    fn a_key_comes_back_from_its_file_and_what_is_none_is_not_repeated() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let key = SigningKey::generate();
        key.write(&path).unwrap();
        assert_eq!(SigningKey::read(&path).unwrap().signer(), key.signer());
        let kept = std::fs::read_to_string(&path).unwrap();
        for (text, want) in [
            (kept.replace("key-1", "key-2"), "line 1: a signing key is"),
            (kept.trim_end()[..80].to_owned(), "line 1: a signing key is"),
            (kept.repeat(2), "2 signing keys"),
            (String::new(), "0 signing keys"),
        ] {
            let wrong = directory.path().join("wrong");
            write(&wrong, &text).unwrap();
            let error = SigningKey::read(&wrong).unwrap_err().to_string();
            assert!(error.contains(want) && !error.contains(&kept[30..50]), "{error}");
            std::fs::remove_file(wrong).unwrap();
        }
        assert!(kept.trim_end().parse::<Signer>().is_err_and(|error| !error.contains(&kept[30..50])));
        assert_eq!(key.signer().to_string().parse(), Ok(key.signer()));
    }
}
