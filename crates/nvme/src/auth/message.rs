//! The messages of DH-HMAC-CHAP (NVMe Base 8.3.5.5.3 and following): parsed once, then types.
//!
//! All numbers are little endian. A message may have bytes behind its end, which say nothing: hosts send and ask for
//! more than messages need.

use std::fmt;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::group::Group;
use super::hash::Hash;

/// The most bytes of any message: a reply with SHA-512 and ffdhe8192 has 1,168, a negotiation with 255 protocols 16,328.
pub const MESSAGE_LEN_MAX: usize = size_of::<NegotiateHeader>() + 255 * size_of::<Protocol>();
/// Bytes that hosts ask for when they receive a message, as Linux does.
pub const RECEIVE_LEN: u32 = 4096;

/// Why an authentication failed: the Reason Code Explanation of a failure message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Explanation {
    /// Authentication failed.
    Failed = 1,
    /// Authentication protocol not usable.
    ProtocolNotUsable = 2,
    /// Secure channel concatenation mismatch.
    ConcatenationMismatch = 3,
    /// Hash function not usable.
    HashNotUsable = 4,
    /// DH group not usable.
    GroupNotUsable = 5,
    /// Incorrect payload.
    IncorrectPayload = 6,
    /// Incorrect protocol message.
    IncorrectMessage = 7,
}

impl Explanation {
    /// The one with this number; a number that the specification does not have says that it failed.
    pub fn from_code(code: u8) -> Self {
        use Explanation::*;
        let all = [ProtocolNotUsable, ConcatenationMismatch, HashNotUsable, GroupNotUsable, IncorrectPayload];
        all.into_iter().chain([IncorrectMessage]).find(|explanation| *explanation as u8 == code).unwrap_or(Failed)
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failed => "the keys do not fit",
            Self::ProtocolNotUsable => "no authentication protocol that both sides have",
            Self::ConcatenationMismatch => "TLS from this authentication on (concatenation) is not to be had",
            Self::HashNotUsable => "no hash function that both sides accept",
            Self::GroupNotUsable => "no Diffie-Hellman group that both sides accept",
            Self::IncorrectPayload => "a message is malformed",
            Self::IncorrectMessage => "a message came out of turn",
        })
    }
}

/// A message that a host sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostMessage {
    /// The host's offer.
    Negotiate(Negotiate),
    /// Its answer to a challenge.
    Reply(Reply),
    /// The controller proved itself.
    Success2 {
        /// T_ID.
        transaction: u16,
    },
    /// It gives up.
    Failure2 {
        /// T_ID.
        transaction: u16,
        /// Why.
        explanation: Explanation,
    },
}

/// A message that a controller sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControllerMessage {
    /// The challenge to be answered.
    Challenge(Challenge),
    /// The host proved itself.
    Success1 {
        /// T_ID.
        transaction: u16,
        /// The hash function: it says how long the answer is.
        hash: Hash,
        /// The answer to the host's challenge, if it had one.
        answer: Option<Vec<u8>>,
    },
    /// It gives up.
    Failure1 {
        /// T_ID.
        transaction: u16,
        /// Why.
        explanation: Explanation,
    },
}

/// AUTH_Negotiate: what a host offers, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Negotiate {
    /// T_ID.
    pub transaction: u16,
    /// SC_C: the secure channel that is to follow; 0 none.
    pub channel: u8,
    /// Whether DH-HMAC-CHAP is among the protocols.
    pub has_dhchap: bool,
    /// Identifiers of hash functions.
    pub hashes: Vec<u8>,
    /// Identifiers of groups.
    pub groups: Vec<u8>,
}

/// DH-HMAC-CHAP_Challenge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// T_ID.
    pub transaction: u16,
    /// The hash function chosen.
    pub hash: Hash,
    /// The group chosen.
    pub group: Group,
    /// S1.
    pub sequence: u32,
    /// C1.
    pub challenge: Vec<u8>,
    /// The controller's half, as long as the group.
    pub public: Vec<u8>,
}

/// DH-HMAC-CHAP_Reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// T_ID.
    pub transaction: u16,
    /// R1.
    pub answer: Vec<u8>,
    /// C2, if CVALID says that there is one.
    pub challenge: Option<Vec<u8>>,
    /// S2; zero: the controller need not prove itself.
    pub sequence: u32,
    /// The host's half, of whatever length.
    pub public: Vec<u8>,
}

const COMMON: u8 = 0;
const DHCHAP: u8 = 1;
const DHCHAP_PROTOCOL: u8 = 1;
const FAILURE_REASON: u8 = 1;

mod id {
    pub(super) const NEGOTIATE: u8 = 0x00;
    pub(super) const CHALLENGE: u8 = 0x01;
    pub(super) const REPLY: u8 = 0x02;
    pub(super) const SUCCESS1: u8 = 0x03;
    pub(super) const SUCCESS2: u8 = 0x04;
    pub(super) const FAILURE2: u8 = 0xf0;
    pub(super) const FAILURE1: u8 = 0xf1;
}

/// The start of all messages.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Start {
    kind: u8,
    id: u8,
    reserved: U16,
    transaction: U16,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct NegotiateHeader {
    start: Start,
    channel: u8,
    protocols: u8,
}

/// One authentication protocol that is offered.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Protocol {
    protocol: u8,
    reserved: u8,
    hash_count: u8,
    group_count: u8,
    hashes: [u8; 30],
    groups: [u8; 30],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ChallengeHeader {
    start: Start,
    hash_len: u8,
    reserved: u8,
    hash: u8,
    group: u8,
    public_len: U16,
    sequence: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ReplyHeader {
    start: Start,
    hash_len: u8,
    reserved7: u8,
    challenge_valid: u8,
    reserved9: u8,
    public_len: U16,
    sequence: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct SuccessHeader {
    start: Start,
    hash_len: u8,
    reserved7: u8,
    answer_valid: u8,
    reserved9: [u8; 7],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Failure {
    start: Start,
    reason: u8,
    explanation: u8,
}

const _: () = assert!(size_of::<NegotiateHeader>() == 8 && size_of::<Protocol>() == 64 && size_of::<Failure>() == 8);
const _: () = assert!(size_of::<ChallengeHeader>() == 16 && size_of::<ReplyHeader>() == 16);
const _: () = assert!(size_of::<SuccessHeader>() == 16);

/// The transaction that a message says it belongs to, whatever else is wrong with it.
pub fn transaction_of(bytes: &[u8]) -> u16 {
    Start::ref_from_prefix(bytes).map_or(0, |(start, _)| start.transaction.get())
}

impl HostMessage {
    /// Parses what a host sent.
    pub fn parse(bytes: &[u8]) -> Result<Self, Explanation> {
        let (start, _) = read::<Start>(bytes)?;
        let transaction = start.transaction.get();
        match (start.kind, start.id) {
            (COMMON, id::NEGOTIATE) => Negotiate::parse(bytes).map(Self::Negotiate),
            (DHCHAP, id::REPLY) => Reply::parse(bytes).map(Self::Reply),
            // 16 bytes, of which the last ten are reserved.
            (DHCHAP, id::SUCCESS2) => read::<SuccessHeader>(bytes).map(|_| Self::Success2 { transaction }),
            (COMMON, id::FAILURE2) => {
                let explanation = Explanation::from_code(read::<Failure>(bytes)?.0.explanation);
                Ok(Self::Failure2 { transaction, explanation })
            }
            _ => Err(Explanation::IncorrectMessage),
        }
    }

    /// The message's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Negotiate(negotiate) => negotiate.to_bytes(),
            Self::Reply(reply) => reply.to_bytes(),
            Self::Success2 { transaction } => {
                let start = Start::new(DHCHAP, id::SUCCESS2, *transaction);
                let header = SuccessHeader { start, hash_len: 0, reserved7: 0, answer_valid: 0, reserved9: [0; 7] };
                header.as_bytes().to_vec()
            }
            Self::Failure2 { transaction, explanation } => failure(id::FAILURE2, *transaction, *explanation),
        }
    }
}

impl ControllerMessage {
    /// Parses what a controller sent.
    pub fn parse(bytes: &[u8]) -> Result<Self, Explanation> {
        let (start, _) = read::<Start>(bytes)?;
        let transaction = start.transaction.get();
        match (start.kind, start.id) {
            (DHCHAP, id::CHALLENGE) => Challenge::parse(bytes).map(Self::Challenge),
            (DHCHAP, id::SUCCESS1) => {
                let (header, rest) = read::<SuccessHeader>(bytes)?;
                let hash = hash_of_len(header.hash_len)?;
                let answer = match header.answer_valid {
                    0 => None,
                    1 => Some(part(&mut &*rest, hash.len_bytes())?),
                    _ => return Err(Explanation::IncorrectPayload),
                };
                Ok(Self::Success1 { transaction, hash, answer })
            }
            (COMMON, id::FAILURE1) => {
                let explanation = Explanation::from_code(read::<Failure>(bytes)?.0.explanation);
                Ok(Self::Failure1 { transaction, explanation })
            }
            _ => Err(Explanation::IncorrectMessage),
        }
    }

    /// The message's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Challenge(challenge) => challenge.to_bytes(),
            Self::Success1 { transaction, hash, answer } => {
                let header = SuccessHeader {
                    start: Start::new(DHCHAP, id::SUCCESS1, *transaction),
                    hash_len: hash.len_bytes() as u8,
                    reserved7: 0,
                    answer_valid: answer.is_some().into(),
                    reserved9: [0; 7],
                };
                let none = vec![0; hash.len_bytes()];
                [header.as_bytes(), answer.as_ref().unwrap_or(&none)].concat()
            }
            Self::Failure1 { transaction, explanation } => failure(id::FAILURE1, *transaction, *explanation),
        }
    }
}

impl Negotiate {
    fn parse(bytes: &[u8]) -> Result<Self, Explanation> {
        let (header, mut rest) = read::<NegotiateHeader>(bytes)?;
        let mut offer = Self {
            transaction: header.start.transaction.get(),
            channel: header.channel,
            has_dhchap: false,
            hashes: Vec::new(),
            groups: Vec::new(),
        };
        for _ in 0..header.protocols {
            let (protocol, behind) = read::<Protocol>(rest)?;
            rest = behind;
            if protocol.protocol != DHCHAP_PROTOCOL || offer.has_dhchap {
                continue;
            }
            let listed = |ids: &[u8; 30], count: u8| ids.get(..count.into()).map(<[u8]>::to_vec);
            offer.has_dhchap = true;
            offer.hashes = listed(&protocol.hashes, protocol.hash_count).ok_or(Explanation::IncorrectPayload)?;
            offer.groups = listed(&protocol.groups, protocol.group_count).ok_or(Explanation::IncorrectPayload)?;
        }
        if header.protocols == 0 { Err(Explanation::IncorrectPayload) } else { Ok(offer) }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let start = Start::new(COMMON, id::NEGOTIATE, self.transaction);
        let header = NegotiateHeader { start, channel: self.channel, protocols: 1 };
        let listed = |ids: &[u8]| {
            let mut field = [0; 30];
            let len = ids.len().min(field.len());
            field[..len].copy_from_slice(&ids[..len]);
            (len as u8, field)
        };
        let ((hash_count, hashes), (group_count, groups)) = (listed(&self.hashes), listed(&self.groups));
        let protocol = if self.has_dhchap { DHCHAP_PROTOCOL } else { 0 };
        let protocol = Protocol { protocol, reserved: 0, hash_count, group_count, hashes, groups };
        [header.as_bytes(), protocol.as_bytes()].concat()
    }
}

impl Challenge {
    fn parse(bytes: &[u8]) -> Result<Self, Explanation> {
        let (header, mut rest) = read::<ChallengeHeader>(bytes)?;
        let hash = Hash::from_id(header.hash).ok_or(Explanation::HashNotUsable)?;
        let group = Group::from_id(header.group).ok_or(Explanation::GroupNotUsable)?;
        if usize::from(header.hash_len) != hash.len_bytes() {
            return Err(Explanation::HashNotUsable);
        }
        let challenge = part(&mut rest, hash.len_bytes())?;
        let public = part(&mut rest, header.public_len.get().into())?;
        let (transaction, sequence) = (header.start.transaction.get(), header.sequence.get());
        Ok(Self { transaction, hash, group, sequence, challenge, public })
    }

    fn to_bytes(&self) -> Vec<u8> {
        let header = ChallengeHeader {
            start: Start::new(DHCHAP, id::CHALLENGE, self.transaction),
            hash_len: self.hash.len_bytes() as u8,
            reserved: 0,
            hash: self.hash.id(),
            group: self.group.id(),
            public_len: U16::new(self.public.len() as u16),
            sequence: U32::new(self.sequence),
        };
        [header.as_bytes(), &self.challenge, &self.public].concat()
    }
}

impl Reply {
    fn parse(bytes: &[u8]) -> Result<Self, Explanation> {
        let (header, mut rest) = read::<ReplyHeader>(bytes)?;
        let len = hash_of_len(header.hash_len)?.len_bytes();
        let answer = part(&mut rest, len)?;
        // The field is there also when it is not valid.
        let challenge = part(&mut rest, len)?;
        let public = part(&mut rest, header.public_len.get().into())?;
        let challenge = match header.challenge_valid {
            0 => None,
            1 => Some(challenge),
            _ => return Err(Explanation::IncorrectPayload),
        };
        let (transaction, sequence) = (header.start.transaction.get(), header.sequence.get());
        Ok(Self { transaction, answer, challenge, sequence, public })
    }

    fn to_bytes(&self) -> Vec<u8> {
        let header = ReplyHeader {
            start: Start::new(DHCHAP, id::REPLY, self.transaction),
            hash_len: self.answer.len() as u8,
            reserved7: 0,
            challenge_valid: self.challenge.is_some().into(),
            reserved9: 0,
            public_len: U16::new(self.public.len() as u16),
            sequence: U32::new(self.sequence),
        };
        let none = vec![0; self.answer.len()];
        [header.as_bytes(), &self.answer, self.challenge.as_ref().unwrap_or(&none), &self.public].concat()
    }
}

impl Start {
    fn new(kind: u8, id: u8, transaction: u16) -> Self {
        Self { kind, id, reserved: U16::ZERO, transaction: U16::new(transaction) }
    }
}

fn failure(id: u8, transaction: u16, explanation: Explanation) -> Vec<u8> {
    let start = Start::new(COMMON, id, transaction);
    Failure { start, reason: FAILURE_REASON, explanation: explanation as u8 }.as_bytes().to_vec()
}

fn read<T: FromBytes + Immutable + KnownLayout + Unaligned>(bytes: &[u8]) -> Result<(&T, &[u8]), Explanation> {
    T::ref_from_prefix(bytes).map_err(|_| Explanation::IncorrectPayload)
}

fn part(rest: &mut &[u8], len: usize) -> Result<Vec<u8>, Explanation> {
    let (part, behind) = rest.split_at_checked(len).ok_or(Explanation::IncorrectPayload)?;
    *rest = behind;
    Ok(part.to_vec())
}

fn hash_of_len(len: u8) -> Result<Hash, Explanation> {
    let of_len = Hash::ALL.into_iter().find(|hash| hash.len_bytes() == usize::from(len));
    of_len.ok_or(Explanation::IncorrectPayload)
}
