//! The answers to challenges (NVMe Base 8.3.5.5.5), and what they are made of.

use zeroize::Zeroizing;

use super::Names;
use super::hash::Hash;
use super::secret::Secret;
use super::tls::TlsPsk;

/// The values that both answers of a transaction have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context<'a> {
    pub(super) hash: Hash,
    pub(super) names: &'a Names,
    pub(super) transaction: u16,
    /// SC_C, which both answers cover: nobody in between can change it.
    pub(super) channel: u8,
}

impl Context<'_> {
    /// The host's answer to the controller's challenge, for one of its keys.
    pub(super) fn of_host(&self, key: &Secret, challenge: &[u8], sequence: u32) -> Zeroizing<Vec<u8>> {
        let (host, subsystem) = (self.names.host.as_str(), self.names.subsystem.as_str());
        self.answer(&key.bound_to(host), challenge, sequence, [b"HostHost", host.as_bytes(), subsystem.as_bytes()])
    }

    /// The controller's answer to the host's challenge.
    pub(super) fn of_controller(&self, key: &Secret, challenge: &[u8], sequence: u32) -> Zeroizing<Vec<u8>> {
        let (host, subsystem) = (self.names.host.as_str(), self.names.subsystem.as_str());
        let parts = [b"Controller".as_slice(), subsystem.as_bytes(), host.as_bytes()];
        self.answer(&key.bound_to(subsystem), challenge, sequence, parts)
    }

    fn answer(&self, key: &[u8], challenge: &[u8], sequence: u32, [label, from, to]: [&[u8]; 3]) -> Zeroizing<Vec<u8>> {
        let (sequence, transaction) = (sequence.to_le_bytes(), self.transaction.to_le_bytes());
        self.hash.hmac(key, &[challenge, &sequence, &transaction, &[self.channel], label, from, &[0], to])
    }

    /// The pre-shared key of the channel that follows (secure channel concatenation, 8.3.5.5.9). `ours` is the controller's
    /// challenge, `theirs` the host's. `None`: none can be made with this hash function.
    pub(super) fn generated(&self, shared: &[u8], ours: &[u8], theirs: &[u8]) -> Option<TlsPsk> {
        TlsPsk::generated(&self.hash.hmac(shared, &[ours, theirs]), self.hash, self.names)
    }

    /// The challenge as it is answered: with a group it is bound to the secret that both sides share.
    pub(super) fn augmented(&self, challenge: &[u8], shared: Option<&[u8]>) -> Zeroizing<Vec<u8>> {
        match shared {
            None => Zeroizing::new(challenge.to_vec()),
            Some(shared) => self.hash.hmac(&self.hash.digest(shared), &[challenge]),
        }
    }
}
