//! The keys of all hosts, from their files, and which of them are good now.

use std::collections::BTreeMap;
use std::fmt;

use diskside_keys::{KeyFileError, read_secret, read_tls_secret};
use diskside_nvme::Nqn;
use diskside_nvme::auth::{Accepted, HostKeys, Names, Policy, Secret, TlsSecret};

use crate::channel::TlsKeys;
use crate::config::{ConfigError, KeyFile, Moment, Requirement, ServeConfig};
use crate::confine::user_to_be;

/// What is demanded of hosts, and their keys as they were read.
pub(crate) struct KeyRing {
    require: Requirement,
    accepted: Accepted,
    subsystem: Nqn,
    hosts: BTreeMap<Nqn, KnownKeys>,
    /// Keys that were to end when it was last said who is let in.
    told_endings: usize,
}

#[derive(Default)]
struct KnownKeys {
    keys: Vec<Ending<Secret>>,
    controller_key: Option<Secret>,
    tls_keys: Vec<Ending<TlsSecret>>,
}

/// A key that may end.
struct Ending<T> {
    key: T,
    until: Option<Moment>,
}

/// Why there are no keys.
pub(crate) enum KeyRingError {
    Config(ConfigError),
    Key { host: String, source: KeyFileError },
    Tls(diskside_tls::Unavailable),
}

impl KeyRing {
    /// Reads the keys of the hosts of a subsystem. Where root starts the server, they may belong to the user that it becomes.
    pub(crate) fn read(config: &ServeConfig, subsystem: &Nqn) -> Result<Self, KeyRingError> {
        let (security, hosts) = (&config.security, &config.known_hosts);
        let user = user_to_be(config);
        let wrong = |field: String, what| KeyRingError::Config(ConfigError::Value { field, what });
        let accepted = security.accepted().map_err(|(field, what)| wrong(format!("security.{field}"), what))?;
        if security.require.needs_tls() || hosts.iter().any(|host| !host.tls_keys.is_empty()) {
            diskside_tls::is_available().map_err(KeyRingError::Tls)?;
        }
        let mut known = BTreeMap::new();
        for host in hosts.iter().filter(|host| host.has_keys()) {
            let nqn = Nqn::new(&host.nqn).map_err(|error| wrong(format!("host `{}`", host.name), error.to_string()))?;
            let unread = |source| KeyRingError::Key { host: host.name.clone(), source };
            let mut keys = KnownKeys::default();
            for KeyFile { path, until } in &host.dhchap_keys {
                keys.keys.push(Ending { key: read_secret(path, user).map_err(unread)?, until: *until });
            }
            for KeyFile { path, until } in &host.tls_keys {
                keys.tls_keys.push(Ending { key: read_tls_secret(path, user).map_err(unread)?, until: *until });
            }
            if let Some(KeyFile { path, .. }) = &host.dhchap_controller_key {
                keys.controller_key = Some(read_secret(path, user).map_err(unread)?);
            }
            known.insert(nqn, keys);
        }
        Ok(Self { require: security.require, accepted, subsystem: subsystem.clone(), hosts: known, told_endings: 0 })
    }

    /// Who is let in by what now. A host whose keys have all ended is one that must have a key, and has none.
    pub(crate) fn now(&mut self) -> (Policy, TlsKeys) {
        // Before it is looked which are good: one that ends meanwhile is noticed the next time.
        self.told_endings = self.endings();
        let mut tls = TlsKeys::default();
        let mut hosts = BTreeMap::new();
        for (nqn, known) in &self.hosts {
            for secret in known.tls_keys.iter().filter_map(Ending::good) {
                for subsystem in [self.subsystem.clone(), Nqn::discovery()] {
                    tls.add(&Names { host: nqn.clone(), subsystem }, secret);
                }
            }
            let keys = HostKeys {
                keys: known.keys.iter().filter_map(Ending::good).cloned().collect(),
                controller_key: known.controller_key.clone(),
                has_channel_key: !known.tls_keys.is_empty(),
            };
            hosts.insert(nqn.clone(), keys);
        }
        let policy = Policy {
            required: self.require != Requirement::None,
            channel_required: self.require.needs_tls(),
            both_required: self.require == Requirement::TlsAuth,
            hosts,
            accepted: self.accepted.clone(),
        };
        (policy, tls)
    }

    /// Who is let in now, if that is not what was said before.
    pub(crate) fn changed(&mut self) -> Option<(Policy, TlsKeys)> {
        (self.endings() != self.told_endings).then(|| self.now())
    }

    /// How many keys are to end, and have not yet.
    pub(crate) fn endings(&self) -> usize {
        let count = |known: &KnownKeys| {
            let of = known.keys.iter().map(|key| key.until).chain(known.tls_keys.iter().map(|key| key.until));
            of.flatten().filter(|until| !until.is_past()).count()
        };
        self.hosts.values().map(count).sum()
    }
}

impl<T> Ending<T> {
    fn good(&self) -> Option<&T> {
        self.until.is_none_or(|until| !until.is_past()).then_some(&self.key)
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRing").field("hosts", &self.hosts.len()).finish_non_exhaustive()
    }
}
