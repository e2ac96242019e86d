//! In-band authentication: DH-HMAC-CHAP (NVMe Base 8.3.5.5), both sides, without I/O.
//!
//! A host proves that it has a key, and a controller, if the host asks for it, that it has another; neither key
//! travels. [`Controller`] and [`Host`] take the other side's messages and say what comes next. Slow work, an
//! exponentiation in a group of 2,048 bits or more, and work that needs random bytes, they hand out as [`Work`]: the code that
//! drives them carries it out wherever it may take a millisecond, and hands [`Done`] back.
//!
//! Keys are [`Secret`]s: wiped when they are dropped, and never shown by `Debug`. Answers are compared in constant time.
//! Keys of TLS are here too, and what TLS is given of them ([`TlsSecret`]); the channel itself is `diskside-tls`'s. With secure
//! channel concatenation an authentication makes such a key ([`Concatenation`]).

mod concatenation;
mod controller;
mod group;
mod hash;
mod hkdf;
mod host;
pub mod message;
mod primes;
mod response;
mod secret;
mod tls;
mod work;

use std::collections::BTreeMap;
use std::fmt;

pub use concatenation::Concatenation;
pub use controller::{Controller, Received, Sent};
pub use group::Group;
pub use hash::Hash;
pub use host::{Host, Step};
pub use message::Explanation;
pub use secret::{Secret, SecretError};
pub use tls::{Derivation, IdentityVersion, TlsPsk, TlsSecret};
pub use work::{Done, Exponents, Work};

use crate::nqn::Nqn;

/// The choices that a side of DH-HMAC-CHAP accepts, the most wanted first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Hash functions.
    pub hashes: Vec<Hash>,
    /// Diffie-Hellman groups.
    pub groups: Vec<Group>,
}

impl Accepted {
    /// All hash functions, and the groups that cost an exponentiation a few milliseconds at most. Without a group an eavesdropper
    /// could try weak keys; groups above 4,096 bits make every connection wait.
    pub fn usual() -> Self {
        Self { hashes: Hash::ALL.to_vec(), groups: vec![Group::Ffdhe2048, Group::Ffdhe3072, Group::Ffdhe4096] }
    }

    /// All that the specification has, NULL last.
    pub fn everything() -> Self {
        let groups = Group::ALL.into_iter().skip(1).chain([Group::Null]).collect();
        Self { hashes: Hash::ALL.to_vec(), groups }
    }
}

/// The hosts that a subsystem lets in, by keys.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Whether a host without keys here is refused. If not, it is let in as before, and a host with keys must prove
    /// that it has one.
    pub required: bool,
    /// Whether every host must come over a secure channel.
    pub channel_required: bool,
    /// Whether a host that comes over a secure channel, and so has proved that it has the channel's key, authenticates
    /// with its other key as well.
    pub both_required: bool,
    /// The hosts with keys.
    pub hosts: BTreeMap<Nqn, HostKeys>,
    /// The choices accepted from them.
    pub accepted: Accepted,
}

impl Policy {
    /// Nobody has a key, nobody needs one.
    pub fn open() -> Self {
        Self {
            required: false,
            channel_required: false,
            both_required: false,
            hosts: BTreeMap::new(),
            accepted: Accepted::usual(),
        }
    }
}

impl Policy {
    /// Whether a host with these keys may make the key of its secure channel by authenticating: one that has no other for
    /// it.
    pub fn concatenates(&self, keys: &HostKeys) -> bool {
        !keys.keys.is_empty() && !keys.has_channel_key && !self.both_required
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::open()
    }
}

/// The keys of one host, as the controller has them.
#[derive(Clone, Default)]
pub struct HostKeys {
    /// Any of them will do: while a key is changed for another there are two.
    pub keys: Vec<Secret>,
    /// With which the controller authenticates to this host, if it asks.
    pub controller_key: Option<Secret>,
    /// It has a key for a secure channel, and is let in over that alone.
    pub has_channel_key: bool,
    /// It had keys that have ended.
    pub has_ended_keys: bool,
}

impl fmt::Debug for HostKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { keys, controller_key, has_channel_key, has_ended_keys } = self;
        f.debug_struct("HostKeys")
            .field("keys", &keys.len())
            .field("controller_key", &controller_key.is_some())
            .field("has_channel_key", has_channel_key)
            .field("has_ended_keys", has_ended_keys)
            .finish()
    }
}

/// With what a host authenticates.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Its own key.
    pub key: Secret,
    /// The controller's: it must prove then that it has it.
    pub controller_key: Option<Secret>,
    /// The choices offered to controllers.
    pub accepted: Accepted,
    /// A secure channel must follow, with a key that the authentication makes. Without it one follows where the
    /// controller wants it.
    pub concatenate: bool,
}

/// The two names that answers are bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The host's.
    pub host: Nqn,
    /// The subsystem's.
    pub subsystem: Nqn,
}

/// Why an authentication failed, as one side sees it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthError {
    /// We refused what the peer said.
    #[error("{0}")]
    Ours(Explanation),
    /// The peer refused what we said.
    #[error("the other side says: {0}")]
    Theirs(Explanation),
    /// The host's answer fits none of its keys.
    #[error("the host has another key than is kept for it here")]
    WrongHostKey,
    /// The host's keys have all ended.
    #[error("the keys that are kept for the host here have ended")]
    HostKeysEnded,
    /// The controller's answer does not fit its key, or it gave none.
    #[error("the controller did not prove that it has the key that this host keeps for it")]
    WrongControllerKey,
    /// The host wants proof of the controller, and there is no key for it.
    #[error("the host asks for proof of this side, and no key is kept for that (dhchap_controller_key)")]
    NoControllerKey,
    /// The other side used what was not offered to it.
    #[error("the controller chose {0}, which was not offered to it")]
    NotOffered(&'static str),
    /// The other side closed the connection meanwhile, as Linux does instead of saying why.
    #[error("the other side closed the connection; the keys may not fit")]
    Closed,
    /// It took too long.
    #[error("it was not over in time")]
    Timeout,
    /// The host has no such controller that takes I/O queues, or another connection has this queue's identifier.
    #[error("the queue cannot be admitted: its controller is not there or not ready, or has such a queue")]
    QueueGone,
}
