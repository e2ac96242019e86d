//! Secure channel concatenation (NVMe Base 8.3.5.5.9): an authentication on a connection in the clear makes the key of a
//! secure channel, and all queues come over that.

use super::{Group, Hash};

/// SC_C: no secure channel follows.
pub(super) const NO_CHANNEL: u8 = 0;
/// SC_C: one follows, with the key that this authentication makes. Linux's target takes no other.
pub(super) const CHANNEL: u8 = 2;
/// SC_C: one follows, which does not say with which key.
const ANY_CHANNEL: u8 = 1;
/// SC_C, over a channel: the key that this authentication makes replaces that of the channel.
const REPLACED_KEY: u8 = 3;

/// Whether a controller makes keys of secure channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Concatenation {
    /// No: there is a channel already whose key was not made so.
    #[default]
    Never,
    /// If the host wants it.
    IfAsked,
    /// In any case: a host that does not want it is refused.
    Required,
    /// Over a channel with such a key: it may be replaced.
    Replace,
}

impl Concatenation {
    /// Whether this value of SC_C fits.
    pub(super) fn takes(self, channel: u8) -> bool {
        match self {
            Self::Never => channel == NO_CHANNEL,
            Self::IfAsked => matches!(channel, NO_CHANNEL | CHANNEL | ANY_CHANNEL),
            Self::Required => matches!(channel, CHANNEL | ANY_CHANNEL),
            Self::Replace => matches!(channel, NO_CHANNEL | REPLACED_KEY),
        }
    }
}

/// Whether a key can be made: of nothing that both share there is none, and TLS has no cipher suite with SHA-512.
pub(super) fn makes_key(hash: Option<Hash>, group: Option<Group>) -> bool {
    hash != Some(Hash::Sha512) && group != Some(Group::Null)
}
