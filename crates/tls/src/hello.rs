//! The first thing that a host says, read before OpenSSL does (RFC 8446, 4.1.2 and 4.2.11).
//!
//! The host names its keys, and proves that it has them: with both we know which of ours is meant. OpenSSL could not find
//! out: it wants to be told the cipher suite first, which depends on the key; it knows one key for an identity, where there
//! are two that tools derive differently; and it does not tell the host that its identity is unknown.

use diskside_nvme::auth::{Hash, TlsPsk};
use subtle::ConstantTimeEq as _;

use crate::alert::Alert;

/// The bytes of a ClientHello, with the heads of its records, are fewer. Browsers with keys that resist quantum computers need
/// a tenth of it.
pub const HELLO_LEN_MAX: usize = 16 << 10;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const PRE_SHARED_KEY: u16 = 41;
/// Records that it may come in. One holds all that hosts say first; some cut it, lest anybody on the way knows its size.
const RECORDS_MAX: usize = 32;
/// Identities that are looked at. A host with more does not know who it is.
const IDENTITIES_MAX: usize = 8;
/// Keys that are tried: all that hosts have of one key, for as many as may be kept of one. Each takes a few microseconds.
const PROOFS_MAX: usize = 32;

/// Looks at what a host says first while it comes, in pieces of any size: each byte once.
#[derive(Debug, Default)]
pub struct Lookout {
    /// Where the next record begins.
    at: usize,
    records: usize,
    message: Vec<u8>,
}

/// The kind of the first bytes.
#[derive(Debug)]
pub enum Look {
    /// The start of a ClientHello.
    Incomplete,
    /// A whole one.
    Hello(Hello),
}

/// A ClientHello that offers keys.
#[derive(Debug)]
pub struct Hello {
    offers: Vec<Offer>,
    /// The message up to the proofs, which they are about.
    proved: Vec<u8>,
}

/// A key that a host says it has.
#[derive(Debug)]
struct Offer {
    identity: Vec<u8>,
    proof: Vec<u8>,
}

/// Why no channel can be made of what a host says first.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HelloError {
    /// It is not TLS.
    #[error("it does not begin as TLS does")]
    NotTls,
    /// It is not a ClientHello, or one that cannot be read.
    #[error("its first message cannot be read ({0})")]
    Malformed(&'static str),
    /// It is longer than it may be.
    #[error("its first message is longer than {HELLO_LEN_MAX} bytes")]
    TooLong,
    /// It comes in more pieces than it may.
    #[error("its first message comes in more than {RECORDS_MAX} records")]
    TooManyRecords,
    /// It offers no key.
    #[error("it offers no pre-shared key, and there is nothing else here: it needs the key that this server has of it")]
    NoKey,
    /// None of its keys is known.
    #[error("no host is known by the identity {0:?}")]
    UnknownIdentity(String),
    /// It has another key.
    #[error("it has another key than is kept for its identity {0:?}")]
    WrongKey(String),
}

impl HelloError {
    /// The alert for the host.
    pub fn alert(&self) -> Alert {
        match self {
            Self::NotTls | Self::Malformed(_) => Alert::DECODE_ERROR,
            Self::TooLong | Self::TooManyRecords => Alert::RECORD_OVERFLOW,
            // Linux forgets a key that gets this alert, and reports that to the process that connects.
            Self::NoKey | Self::UnknownIdentity(_) => Alert::UNKNOWN_PSK_IDENTITY,
            Self::WrongKey(_) => Alert::DECRYPT_ERROR,
        }
    }
}

impl Lookout {
    /// Looks at all that a host has sent so far: what it was shown before, and what came since.
    pub fn look(&mut self, bytes: &[u8]) -> Result<Look, HelloError> {
        let whole_len = loop {
            if let &[kind, a, b, c, ..] = &self.message[..] {
                if kind != CLIENT_HELLO {
                    return Err(HelloError::Malformed("it is no ClientHello"));
                }
                let len = 4 + u32::from_be_bytes([0, a, b, c]) as usize;
                if len > HELLO_LEN_MAX {
                    return Err(HelloError::TooLong);
                }
                if self.message.len() >= len {
                    break len;
                }
            }
            let rest = bytes.get(self.at..).unwrap_or_default();
            let Some((&[kind, major, _, high, low], behind)) = rest.split_first_chunk::<5>() else {
                return starts_well(rest).map(|()| Look::Incomplete);
            };
            let len = usize::from(u16::from_be_bytes([high, low]));
            if kind != HANDSHAKE || major != 3 {
                return Err(HelloError::NotTls);
            }
            // A record without bytes is not allowed here, and would let a host say nothing for ever.
            if len == 0 || len > crate::RECORD_LEN_MAX {
                return Err(HelloError::Malformed("the length of a record"));
            }
            if self.records == RECORDS_MAX {
                return Err(HelloError::TooManyRecords);
            }
            // The length with this record: do not wait for a host that says too much.
            if self.at + 5 + len > HELLO_LEN_MAX + 5 * RECORDS_MAX {
                return Err(HelloError::TooLong);
            }
            let Some(text) = behind.get(..len) else { return Ok(Look::Incomplete) };
            self.message.extend_from_slice(text);
            self.at += 5 + len;
            self.records += 1;
        };
        if self.message.len() > whole_len {
            return Err(HelloError::Malformed("something follows it at once"));
        }
        Hello::parse(std::mem::take(&mut self.message)).map(Look::Hello)
    }
}

impl Hello {
    fn parse(mut message: Vec<u8>) -> Result<Self, HelloError> {
        let malformed = HelloError::Malformed;
        let extensions = (|| {
            let mut fields = Fields(message.get(4..)?);
            fields.take(2 + 32)?;
            fields.short()?;
            fields.long()?;
            fields.short()?;
            let extensions = fields.long()?;
            fields.0.is_empty().then_some(extensions)
        })();
        let mut extensions = Fields(extensions.ok_or(malformed("its fields"))?);
        let mut keys = None;
        while !extensions.0.is_empty() {
            let both = extensions.number().zip(extensions.long());
            let (kind, body) = both.ok_or(malformed("an extension"))?;
            if kind == PRE_SHARED_KEY {
                keys = Some(body);
                break;
            }
        }
        let mut keys = Fields(keys.ok_or(HelloError::NoKey)?);
        if !extensions.0.is_empty() {
            return Err(malformed("its keys are not at its end"));
        }
        let lists = keys.long().zip(Some(keys.0.len())).zip(keys.long());
        let Some(((identities, proofs_len), proofs)) = lists.filter(|_| keys.0.is_empty()) else {
            return Err(malformed("its keys"));
        };
        let (mut identities, mut proofs) = (Fields(identities), Fields(proofs));
        let mut offers: Vec<Offer> = Vec::new();
        while !identities.0.is_empty() {
            let offer = (|| {
                let identity = identities.long()?.to_vec();
                identities.take(4)?;
                Some(Offer { identity, proof: proofs.short()?.to_vec() })
            })();
            let offer = offer.ok_or(malformed("a key"))?;
            if offers.iter().any(|other| other.identity == offer.identity) {
                return Err(malformed("one identity twice"));
            }
            offers.push(offer);
            if offers.len() > IDENTITIES_MAX {
                return Err(malformed("too many keys"));
            }
        }
        if offers.is_empty() || !proofs.0.is_empty() {
            return Err(malformed("its proofs"));
        }
        // The proofs, with their length before them, are the end of the message.
        message.truncate(message.len() - proofs_len);
        Ok(Self { offers, proved: message })
    }

    /// The first key that the host has and that is known: `known` gives all keys of an identity.
    pub fn choose<'a>(&self, known: impl Fn(&str) -> &'a [TlsPsk]) -> Result<&'a TlsPsk, HelloError> {
        let mut wrong = None;
        let mut digests = [None, None];
        let mut proofs_left = PROOFS_MAX;
        for offer in &self.offers {
            let Ok(identity) = str::from_utf8(&offer.identity) else { continue };
            for psk in known(identity).iter().take(proofs_left) {
                proofs_left -= 1;
                // The message may be long, and is the same for all of them.
                let digest = digests[usize::from(psk.hash == Hash::Sha256)]
                    .get_or_insert_with(|| digest(psk.hash, &self.proved));
                if proof_of(psk, digest).ct_eq(&offer.proof).into() {
                    return Ok(psk);
                }
                wrong = Some(identity);
            }
        }
        Err(match wrong {
            Some(identity) => HelloError::WrongKey(identity.to_owned()),
            None => HelloError::UnknownIdentity(self.shown()),
        })
    }

    /// The first identity as a log shows it.
    fn shown(&self) -> String {
        let identity = self.offers.first().map_or(&[][..], |offer| &offer.identity);
        String::from_utf8_lossy(identity).chars().take(600).collect()
    }
}

/// The proof of a key: a MAC of what was said before it (4.2.11.2), whose digest this is.
fn proof_of(psk: &TlsPsk, message: &[u8]) -> Vec<u8> {
    let TlsPsk { hash, key, .. } = psk;
    let len = hash.len_bytes();
    let early = hash.extract(None, key);
    let binder = hash.expand_label(&early, "ext binder", &digest(*hash, &[]), len);
    let finished = hash.expand_label(&binder, "finished", &[], len);
    hash.authenticate(&finished, message).to_vec()
}

fn digest(hash: Hash, bytes: &[u8]) -> Vec<u8> {
    hash.digest(bytes).to_vec()
}

/// Whether less than the head of a record may be the start of one.
fn starts_well(bytes: &[u8]) -> Result<(), HelloError> {
    match bytes {
        [kind, ..] if *kind != HANDSHAKE => Err(HelloError::NotTls),
        [_, major, ..] if *major != 3 => Err(HelloError::NotTls),
        _ => Ok(()),
    }
}

/// The rest of a message.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u16> {
        let bytes = self.take(2)?;
        Some(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// Bytes behind a length of one byte.
    fn short(&mut self) -> Option<&'a [u8]> {
        let len = self.take(1)?[0];
        self.take(len.into())
    }

    /// Bytes behind a length of two bytes.
    fn long(&mut self) -> Option<&'a [u8]> {
        let len = self.number()?;
        self.take(len.into())
    }
}
