//! The groups of DH-HMAC-CHAP (NVMe Base 8.3.5.5.2, figure "DH-HMAC-CHAP Diffie-Hellman group identifiers"): the finite
//! fields of RFC 7919, all with generator 2.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};
use zeroize::{Zeroize as _, Zeroizing};

use super::primes;

/// A group, by its identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Group {
    /// None: challenges are answered as they are.
    Null = 0,
    /// ffdhe2048.
    Ffdhe2048 = 1,
    /// ffdhe3072.
    Ffdhe3072 = 2,
    /// ffdhe4096.
    Ffdhe4096 = 3,
    /// ffdhe6144.
    Ffdhe6144 = 4,
    /// ffdhe8192.
    Ffdhe8192 = 5,
}

/// The longest exponent, in bytes.
pub(super) const EXPONENT_LEN_MAX: usize = 56;

/// A secret exponent, and the group that it is for. Wiped when it is dropped.
#[derive(Clone)]
pub(super) struct Exponent {
    group: Group,
    bytes: Zeroizing<Vec<u8>>,
}

impl Group {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Null, Self::Ffdhe2048, Self::Ffdhe3072, Self::Ffdhe4096, Self::Ffdhe6144, Self::Ffdhe8192];

    /// The one with this identifier.
    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.id() == id)
    }

    /// Its identifier.
    pub const fn id(self) -> u8 {
        self as u8
    }

    /// Bytes of an element; none of NULL.
    pub const fn len_bytes(self) -> usize {
        match self {
            Self::Null => 0,
            Self::Ffdhe2048 => 256,
            Self::Ffdhe3072 => 384,
            Self::Ffdhe4096 => 512,
            Self::Ffdhe6144 => 768,
            Self::Ffdhe8192 => 1024,
        }
    }

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Ffdhe2048 => "ffdhe2048",
            Self::Ffdhe3072 => "ffdhe3072",
            Self::Ffdhe4096 => "ffdhe4096",
            Self::Ffdhe6144 => "ffdhe6144",
            Self::Ffdhe8192 => "ffdhe8192",
        }
    }

    /// Bytes of a secret exponent: twice the strength of the group, and a little more (RFC 7919, 5.2 and appendix A).
    const fn exponent_len_bytes(self) -> usize {
        match self {
            Self::Null => 0,
            Self::Ffdhe2048 => 32,
            Self::Ffdhe3072 => 40,
            Self::Ffdhe4096 | Self::Ffdhe6144 => 48,
            Self::Ffdhe8192 => EXPONENT_LEN_MAX,
        }
    }

    fn field(self) -> Option<&'static BoxedMontyParams> {
        static FIELDS: [LazyLock<BoxedMontyParams>; 5] = [
            LazyLock::new(|| field(primes::FFDHE2048)),
            LazyLock::new(|| field(primes::FFDHE3072)),
            LazyLock::new(|| field(primes::FFDHE4096)),
            LazyLock::new(|| field(primes::FFDHE6144)),
            LazyLock::new(|| field(primes::FFDHE8192)),
        ];
        usize::from(self.id()).checked_sub(1).map(|index| &*FIELDS[index])
    }

    /// Whether `public` may be the other side's half: as long as the group, and neither 0, 1, p - 1 nor beyond. Those would
    /// give away, or fix, the secret that is shared.
    pub(super) fn accepts(self, public: &[u8]) -> bool {
        let Some(field) = self.field() else { return public.is_empty() };
        let Some(public) = number(public).filter(|_| public.len() == self.len_bytes()) else { return false };
        let one = BoxedUint::one_with_precision(public.bits_precision());
        let last = field.modulus().wrapping_sub(&one);
        public > one && public < last
    }
}

impl Exponent {
    /// From random bytes.
    pub(super) fn new(group: Group, random: &[u8; EXPONENT_LEN_MAX]) -> Self {
        let mut bytes = Zeroizing::new(random[..group.exponent_len_bytes()].to_vec());
        // All are of one length: how long an exponentiation takes says nothing about them.
        if let Some(first) = bytes.first_mut() {
            *first |= 0x80;
        }
        Self { group, bytes }
    }

    #[cfg(test)]
    pub(super) fn exactly(group: Group, bytes: &[u8]) -> Self {
        Self { group, bytes: Zeroizing::new(bytes.to_vec()) }
    }

    /// The half that the other side gets; empty for NULL.
    pub(super) fn public(&self) -> Vec<u8> {
        let mut generator = vec![0; self.group.len_bytes()];
        if let Some(last) = generator.last_mut() {
            *last = 2;
        }
        self.raise(&generator).map_or_else(Vec::new, |public| public.to_vec())
    }

    /// The shared secret of both sides, as long as the group; `None` for NULL. The other side's half must be one that the group
    /// [accepts](Group::accepts).
    pub(super) fn shared(&self, public: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        self.raise(public)
    }

    fn raise(&self, base: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let field = self.group.field()?;
        let mut exponent = number(&self.bytes)?;
        let base = BoxedMontyForm::new(number(base)?, field);
        let mut power = base.pow_bounded_exp(&exponent, self.bytes.len() as u32 * 8).retrieve();
        let bytes = Zeroizing::new(power.to_be_bytes().to_vec());
        exponent.zeroize();
        power.zeroize();
        debug_assert_eq!(bytes.len(), self.group.len_bytes(), "an element is as long as its group");
        Some(bytes)
    }
}

fn number(bytes: &[u8]) -> Option<BoxedUint> {
    BoxedUint::from_be_slice(bytes, bytes.len() as u32 * 8).ok()
}

fn field(prime: &str) -> BoxedMontyParams {
    let prime = BoxedUint::from_be_hex(prime, prime.len() as u32 * 4).expect("the constants are hexadecimal");
    BoxedMontyParams::new(Odd::new(prime).expect("these primes are odd"))
}

impl fmt::Debug for Exponent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exponent({}, …)", self.group)
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Group {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|group| group.name() == text).ok_or_else(|| {
            format!("{text:?} is no group: there are null, ffdhe2048, ffdhe3072, ffdhe4096, ffdhe6144 and ffdhe8192")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::hash::Hash;
    use super::*;

    /// A digit lost in one of them would not show: both sides would compute with the same wrong number.
    #[test]
    fn the_primes_are_those_of_the_rfc() {
        let expected = [
            (Group::Ffdhe2048, [0x9c, 0xd3, 0xb7, 0xf3]),
            (Group::Ffdhe3072, [0x0e, 0xaf, 0x67, 0xdb]),
            (Group::Ffdhe4096, [0x46, 0x48, 0x41, 0x42]),
            (Group::Ffdhe6144, [0x22, 0x7a, 0xc9, 0x06]),
            (Group::Ffdhe8192, [0x77, 0x0b, 0x14, 0xef]),
        ];
        for (group, start) in expected {
            let prime = group.field().unwrap().modulus().to_be_bytes();
            assert_eq!(Hash::Sha256.digest(&prime)[..4], start, "{group}");
        }
    }

    #[test]
    fn both_sides_share_a_secret_in_every_group() {
        for group in Group::ALL {
            let ours = Exponent::new(group, &[0x15; EXPONENT_LEN_MAX]);
            let theirs = Exponent::new(group, &[0xa2; EXPONENT_LEN_MAX]);
            assert_eq!(ours.public().len(), group.len_bytes());
            assert!(group.accepts(&ours.public()) && group.accepts(&theirs.public()));
            let shared = ours.shared(&theirs.public());
            assert_eq!(shared.is_none(), group == Group::Null);
            assert_eq!(shared, theirs.shared(&ours.public()), "{group}");
        }
    }

    #[test]
    fn halves_that_give_the_secret_away_are_not_accepted() {
        for group in &Group::ALL[1..] {
            let prime = group.field().unwrap().modulus().to_be_bytes();
            let mut small = vec![0; group.len_bytes()];
            assert!(!group.accepts(&small), "0");
            *small.last_mut().unwrap() = 1;
            assert!(!group.accepts(&small), "1");
            *small.last_mut().unwrap() = 2;
            assert!(group.accepts(&small), "2");
            assert!(!group.accepts(&small[1..]), "too short");
            assert!(!group.accepts(&[&[0], &*small].concat()), "too long");
            assert!(!group.accepts(&prime), "p");
            let mut last = prime.to_vec();
            *last.last_mut().unwrap() -= 1;
            assert!(!group.accepts(&last), "p - 1");
            *last.last_mut().unwrap() -= 1;
            assert!(group.accepts(&last), "p - 2");
            assert!(!group.accepts(&vec![0xff; group.len_bytes()]), "beyond p");
        }
        assert!(Group::Null.accepts(&[]) && !Group::Null.accepts(&[2]));
    }
}
