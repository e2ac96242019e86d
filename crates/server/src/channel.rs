//! Secure channels of hosts: which keys are known, and how a handshake is carried on, on any thread.

use std::collections::HashMap;
use std::fmt;

use diskside_nvme::Nqn;
use diskside_nvme::auth::{Names, TlsPsk, TlsSecret};
use diskside_tls::{Alert, Done, Handshake, HandshakeError, Hello, HelloError, Secrets};

/// The keys of all hosts, by identity.
#[derive(Default)]
pub(crate) struct TlsKeys {
    /// Those of one identity have the same names.
    by_identity: HashMap<String, (Names, Vec<TlsPsk>)>,
}

impl TlsKeys {
    /// Adds what `secret` is for a host and a subsystem.
    pub(crate) fn add(&mut self, names: &Names, secret: &TlsSecret) {
        for psk in secret.psks(names) {
            let (_, psks) = self.by_identity.entry(psk.identity.clone()).or_insert_with(|| (names.clone(), Vec::new()));
            psks.push(psk);
        }
    }

    fn host_of(&self, identity: &str) -> Option<Nqn> {
        self.by_identity.get(identity).map(|(names, _)| names.host.clone())
    }

    fn of(&self, identity: &str) -> &[TlsPsk] {
        self.by_identity.get(identity).map_or(&[], |(_, psks)| psks)
    }
}

impl fmt::Debug for TlsKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsKeys").field("identities", &self.by_identity.len()).finish()
    }
}

/// A handshake as far as it is.
#[derive(Debug)]
pub(crate) enum Shaking {
    /// The host's first message, as far as it concerns us.
    Begins(Hello),
    /// With the host of these names.
    GoesOn(Handshake, Names),
}

/// What came of some bytes of the host's.
#[derive(Debug)]
pub(crate) enum Shaken {
    /// More is needed.
    NeedsMore {
        /// The handshake.
        shaking: Shaking,
        /// What the host is sent.
        output: Vec<u8>,
    },
    /// The channel is made.
    Made {
        /// Whose key it has.
        names: Names,
        /// The keys of its records.
        secrets: Secrets,
        /// What the host sent behind the handshake.
        rest: Vec<u8>,
        /// What the host is sent.
        output: Vec<u8>,
    },
    /// There will be none.
    Failed {
        /// Why.
        why: String,
        /// Who the host says it is, if such a host is known.
        host: Option<Nqn>,
        /// What the host is sent.
        output: Vec<u8>,
    },
}

impl Shaking {
    /// Takes what the host sent: up to half a millisecond of a processor.
    pub(crate) fn go_on(self, received: &[u8], keys: &TlsKeys) -> Shaken {
        let failed =
            |why: String, host, alert: Alert| Shaken::Failed { why, host, output: alert.to_plain_record().to_vec() };
        let (mut handshake, names) = match self {
            Self::GoesOn(handshake, names) => (handshake, names),
            Self::Begins(hello) => match hello.choose(|identity| keys.of(identity)) {
                Ok(psk) => {
                    let names = keys.by_identity[&psk.identity].0.clone();
                    match Handshake::server(psk.clone()) {
                        Ok(handshake) => (handshake, names),
                        Err(error) => return failed(error.to_string(), Some(names.host), Alert::INTERNAL_ERROR),
                    }
                }
                Err(error) => {
                    let host = match &error {
                        HelloError::WrongKey(identity) => keys.host_of(identity),
                        _ => None,
                    };
                    return failed(format!("the host's secure channel: {error}"), host, error.alert());
                }
            },
        };
        match handshake.step(received) {
            Ok(step) => match step.done {
                None => Shaken::NeedsMore { shaking: Self::GoesOn(handshake, names), output: step.output },
                Some(Done { secrets, rest }) => Shaken::Made { names, secrets, rest, output: step.output },
            },
            Err(HandshakeError { why, theirs, output, .. }) => {
                let told = theirs.map(|alert| format!(" (it says {alert})")).unwrap_or_default();
                let why = format!("the secure channel of {}: {why}{told}", names.host);
                Shaken::Failed { why, host: Some(names.host), output }
            }
        }
    }
}
