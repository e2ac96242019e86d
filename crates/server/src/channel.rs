//! Secure channels of hosts: which keys are known, and how a handshake is carried on, on any thread.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use diskside_nvme::Nqn;
use diskside_nvme::auth::{Names, TlsPsk, TlsSecret};
use diskside_nvme::controller::ChannelKind;
use diskside_tls::{Alert, Done, Handshake, HandshakeError, Hello, HelloError, Secrets};

use crate::config::Moment;

/// The keys of all hosts, by identity.
#[derive(Default)]
pub(crate) struct TlsKeys {
    by_identity: HashMap<String, Identified>,
    /// Identities of the keys that each host's authentications made, the oldest first.
    generated: HashMap<Nqn, VecDeque<String>>,
    /// Identities of keys that have ended, of which only that is known: whose, and when.
    ended: HashMap<String, (Nqn, Moment)>,
}

/// The keys of one identity.
struct Identified {
    owner: Owner,
    psks: Vec<TlsPsk>,
    /// From when on they are none any more.
    until: Option<Instant>,
}

/// Whose a key is, and where it is from.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) names: Names,
    pub(crate) kind: ChannelKind,
}

/// How long a key that an authentication made is good for new connections: the host's queues come at once. Those that are made
/// stay.
const GENERATED_FOR: Duration = Duration::from_secs(300);
/// Such keys of one host: more than one connects with the same name at a time when a host runs several programs.
const GENERATED_MAX: usize = 16;

impl TlsKeys {
    /// Adds what `secret` is for a host and a subsystem.
    pub(crate) fn add(&mut self, names: &Names, secret: &TlsSecret) {
        for psk in secret.psks(names) {
            let owner = || Owner { names: names.clone(), kind: ChannelKind::Known };
            let new = || Identified { owner: owner(), psks: Vec::new(), until: None };
            self.by_identity.entry(psk.identity.clone()).or_insert_with(new).psks.push(psk);
        }
    }

    /// Adds that what `secret` is for a host and a subsystem has ended.
    pub(crate) fn add_ended(&mut self, names: &Names, secret: &TlsSecret, until: Moment) {
        self.ended
            .extend(secret.psks(names).into_iter().map(|psk| (psk.identity.clone(), (names.host.clone(), until))));
    }

    /// Adds a key that an authentication made. The host's oldest goes when it has too many.
    pub(crate) fn add_generated(&mut self, names: Names, psk: TlsPsk, now: Instant) {
        let identities = self.generated.entry(names.host.clone()).or_default();
        while let Some(oldest) = identities.front() {
            let until = self.by_identity.get(oldest).and_then(|known| known.until);
            if identities.len() < GENERATED_MAX && until.is_some_and(|until| now < until) {
                break;
            }
            self.by_identity.remove(oldest);
            identities.pop_front();
        }
        identities.push_back(psk.identity.clone());
        let owner = Owner { names, kind: ChannelKind::Generated };
        let until = Some(now + GENERATED_FOR);
        self.by_identity.insert(psk.identity.clone(), Identified { owner, psks: vec![psk], until });
    }

    fn host_of(&self, identity: &str) -> Option<Nqn> {
        self.by_identity.get(identity).map(|known| known.owner.names.host.clone())
    }

    /// The host that an identity of version 1 names, if it has keys here: such an identity ends with a digest of its key, so that
    /// one of another key is not found. That of version 0 has none.
    fn host_named_in(&self, identity: &str) -> Option<Nqn> {
        let (_, rest) = identity.strip_prefix("NVMe1R")?.split_once(' ')?;
        let (names, _) = rest.rsplit_once(' ')?;
        ["01", "02"].iter().find_map(|hash| self.host_of(&format!("NVMe0R{hash} {names}")))
    }

    /// Why a host is refused, for us: it is told no more than that its identity is unknown, or that its key is wrong.
    fn why_refused(&self, error: &HelloError) -> (String, Option<Nqn>) {
        match error {
            HelloError::WrongKey(identity) => (error.to_string(), self.host_of(identity)),
            HelloError::UnknownIdentity(identity) => match self.ended.get(identity) {
                Some((host, until)) => (format!("the key of {host} ended at {until}"), Some(host.clone())),
                None => match self.host_named_in(identity) {
                    Some(host) => (format!("it has another key than is kept for {host}: {error}"), Some(host)),
                    None => (error.to_string(), None),
                },
            },
            _ => (error.to_string(), None),
        }
    }

    fn of(&self, identity: &str) -> &[TlsPsk] {
        let known = self.by_identity.get(identity);
        let known = known.filter(|known| known.until.is_none_or(|until| Instant::now() < until));
        known.map_or(&[], |known| &known.psks)
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
    GoesOn(Handshake, Owner),
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
        owner: Owner,
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
    /// Whether what comes next takes some ten microseconds, and not up to half a millisecond.
    pub(crate) fn is_brief(&self) -> bool {
        matches!(self, Self::GoesOn(handshake, _) if handshake.awaits_proof())
    }

    /// Takes what the host sent: up to half a millisecond of a processor.
    pub(crate) fn go_on(self, received: &[u8], keys: &RwLock<TlsKeys>) -> Shaken {
        let failed =
            |why: String, host, alert: Alert| Shaken::Failed { why, host, output: alert.to_plain_record().to_vec() };
        let (mut handshake, owner) = match self {
            Self::GoesOn(handshake, owner) => (handshake, owner),
            // Reactors may want to add a key: they do not wait for a handshake.
            Self::Begins(hello) => {
                let keys = keys.read().unwrap_or_else(PoisonError::into_inner);
                match hello.choose(|identity| keys.of(identity)) {
                    Ok(psk) => {
                        let owner = keys.by_identity[&psk.identity].owner.clone();
                        match Handshake::server(psk.clone()) {
                            Ok(handshake) => (handshake, owner),
                            Err(error) => {
                                return failed(error.to_string(), Some(owner.names.host), Alert::INTERNAL_ERROR);
                            }
                        }
                    }
                    Err(error) => {
                        let (why, host) = keys.why_refused(&error);
                        return failed(format!("the host's secure channel: {why}"), host, error.alert());
                    }
                }
            }
        };
        match handshake.step(received) {
            Ok(step) => match step.done {
                None => Shaken::NeedsMore { shaking: Self::GoesOn(handshake, owner), output: step.output },
                Some(Done { secrets, rest }) => Shaken::Made { owner, secrets, rest, output: step.output },
            },
            Err(HandshakeError { why, theirs, output, .. }) => {
                let told = theirs.map(|alert| format!(" (it says {alert})")).unwrap_or_default();
                let why = format!("the secure channel of {}: {why}{told}", owner.names.host);
                Shaken::Failed { why, host: Some(owner.names.host), output }
            }
        }
    }
}
