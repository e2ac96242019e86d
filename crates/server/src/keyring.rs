//! The keys of all hosts, from their files, and which of them are good now.

use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

use diskside_keys::{KeyFileError, read_secret, read_tls_secret};
use diskside_nvme::Nqn;
use diskside_nvme::auth::{Accepted, HostKeys, Names, Policy, Secret, TlsSecret};

use crate::channel::TlsKeys;
use crate::config::{ConfigError, HostSpec, KeyFile, Moment, Requirement, ServeConfig};
use crate::confine::user_to_be;

/// What is demanded of hosts, and their keys as they were read.
pub(crate) struct KeyRing {
    require: Requirement,
    accepted: Accepted,
    subsystem: Nqn,
    hosts: BTreeMap<Nqn, KnownKeys>,
    /// How many keys with an end were good, by host, when it was last said who is let in.
    good: BTreeMap<Nqn, usize>,
}

/// Who is let in from now on.
pub(crate) struct Changed {
    pub(crate) policy: Policy,
    pub(crate) tls: TlsKeys,
    /// Hosts of which that has changed, and how many of their keys with an end are good.
    pub(crate) hosts: Vec<(Nqn, usize)>,
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
        check_not_reflected(hosts, &known).map_err(|(host, what)| wrong(format!("host `{host}`"), what))?;
        check_different(hosts, &known).map_err(|(host, what)| wrong(format!("host `{host}`"), what))?;
        Ok(Self {
            require: security.require,
            accepted,
            subsystem: subsystem.clone(),
            hosts: known,
            good: BTreeMap::new(),
        })
    }

    /// The hosts that are let in, and by which keys, when the clock shows this. A host whose keys have all ended must
    /// have a key, and has none.
    pub(crate) fn at(&mut self, clock: SystemTime) -> (Policy, TlsKeys) {
        self.good = self.good_at(clock);
        let mut tls = TlsKeys::default();
        let mut hosts = BTreeMap::new();
        for (nqn, known) in &self.hosts {
            for key in &known.tls_keys {
                for subsystem in [self.subsystem.clone(), Nqn::discovery()] {
                    let names = Names { host: nqn.clone(), subsystem };
                    match key.ended_at(clock) {
                        None => tls.add(&names, &key.key),
                        Some(until) => tls.add_ended(&names, &key.key, until),
                    }
                }
            }
            let keys = HostKeys {
                keys: known.keys.iter().filter_map(|key| key.good_at(clock)).cloned().collect(),
                controller_key: known.controller_key.clone(),
                has_channel_key: !known.tls_keys.is_empty(),
                has_ended_keys: known.keys.iter().any(|key| key.ended_at(clock).is_some()),
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

    /// The hosts that are let in when the clock shows this, if that has changed: keys have ended, or are good again
    /// because the clock was set back.
    pub(crate) fn changed(&mut self, clock: SystemTime) -> Option<Changed> {
        let now = self.good_at(clock);
        let changed: Vec<_> = now.into_iter().filter(|(nqn, good)| self.good.get(nqn) != Some(good)).collect();
        if changed.is_empty() {
            return None;
        }
        let (policy, tls) = self.at(clock);
        Some(Changed { policy, tls, hosts: changed })
    }

    /// Whether any key has an end, past ones included: a clock that is set back makes those good again.
    pub(crate) fn has_endings(&self) -> bool {
        self.hosts.values().any(|known| known.endings().next().is_some())
    }

    fn good_at(&self, clock: SystemTime) -> BTreeMap<Nqn, usize> {
        let good = |known: &KnownKeys| known.endings().filter(|until| !until.is_over_at(clock)).count();
        self.hosts.iter().map(|(nqn, known)| (nqn.clone(), good(known))).collect()
    }
}

impl KnownKeys {
    fn endings(&self) -> impl Iterator<Item = Moment> {
        self.keys.iter().map(|key| key.until).chain(self.tls_keys.iter().map(|key| key.until)).flatten()
    }
}

impl<T> Ending<T> {
    fn good_at(&self, clock: SystemTime) -> Option<&T> {
        self.ended_at(clock).is_none().then_some(&self.key)
    }

    /// When it ended.
    fn ended_at(&self, clock: SystemTime) -> Option<Moment> {
        self.until.filter(|until| until.is_over_at(clock))
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRing").field("hosts", &self.hosts.len()).finish_non_exhaustive()
    }
}

/// Refuses a server whose proof can be made with a key of a host: who takes the server's place would have the host itself make the
/// answer to the host's challenge, or, with another host's key, could make it.
fn check_not_reflected(hosts: &[HostSpec], known: &BTreeMap<Nqn, KnownKeys>) -> Result<(), (String, String)> {
    let keys_of = |host: &HostSpec| Nqn::new(&host.nqn).ok().and_then(|nqn| known.get(&nqn));
    for host in hosts {
        let Some(proof) = keys_of(host).and_then(|keys| keys.controller_key.as_ref()) else { continue };
        let has_it = |other: &&HostSpec| {
            keys_of(other).is_some_and(|keys| {
                keys.keys.iter().any(|key| bytes_in(&key.key.to_text()) == bytes_in(&proof.to_text()))
            })
        };
        if has_it(&host) {
            let what = "its dhchap_controller_key is also its own key, so that its own answers would prove the identity of any \
                        server; `diskside key new --mutual` makes two";
            return Err((host.name.clone(), what.into()));
        }
        if let Some(other) = hosts.iter().find(has_it) {
            let what = format!(
                "its dhchap_controller_key is also a key of `{}`, which could take the server's place; \
                 `diskside key new --mutual` makes two that nobody else has",
                other.name
            );
            return Err((host.name.clone(), what));
        }
    }
    Ok(())
}

/// Refuses one key in two files: with one key for two hosts, either could be the other. The files may say different digests for it,
/// or that it is of another kind. With the key by which the server proves its identity to a host, that host could be the other, too.
fn check_different(hosts: &[HostSpec], known: &BTreeMap<Nqn, KnownKeys>) -> Result<(), (String, String)> {
    let mut all = Vec::new();
    for host in hosts {
        // Those without keys are not in it.
        let Some(keys) = Nqn::new(&host.nqn).ok().and_then(|nqn| known.get(&nqn)) else { continue };
        all.extend(keys.keys.iter().map(|key| (key.key.to_text(), &*host.name, true)));
        all.extend(keys.tls_keys.iter().map(|key| (key.key.to_text(), &*host.name, true)));
        all.extend(keys.controller_key.iter().map(|key| (key.to_text(), &*host.name, false)));
    }
    all.sort_by(|(one, ..), (other, ..)| bytes_in(one).cmp(bytes_in(other)));
    for same in all.chunk_by(|(one, ..), (other, ..)| bytes_in(one) == bytes_in(other)) {
        let Some((_, owner, _)) = same.iter().find(|(.., is_hosts)| *is_hosts) else { continue };
        if let Some((_, other, _)) = same.iter().find(|(_, name, _)| name != owner) {
            return Err(((*other).to_owned(), format!("it has the same key as `{owner}`; each host needs its own")));
        }
    }
    Ok(())
}

/// The bytes of a key, in its text: behind its kind and its digest.
fn bytes_in(text: &str) -> &str {
    text.splitn(3, ':').nth(2).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskside_nvme::auth::Hash;
    use std::time::Duration;

    /// A clock that was an hour fast for a moment ended a key that was to be good for ten minutes more, and the host was
    /// refused until the configuration was read again, although the clock was right again.
    #[test]
    fn a_key_that_a_wrong_clock_ended_is_good_again_once_the_clock_is_right() {
        let host = Nqn::new("nqn.2026-11.io.diskside:ann").unwrap();
        // Ten minutes after a midnight.
        let (midnight, until) = (SystemTime::UNIX_EPOCH + Duration::from_secs(1_796_083_200), "2026-12-01T00:10:00Z");
        let key = Ending { key: Secret::new(&[7; 32], None).unwrap(), until: Some(until.parse().unwrap()) };
        let known = KnownKeys { keys: vec![key], ..KnownKeys::default() };
        let mut ring = KeyRing {
            require: Requirement::Auth,
            accepted: Accepted::usual(),
            subsystem: Nqn::new("nqn.2026-11.io.diskside:server").unwrap(),
            hosts: BTreeMap::from([(host.clone(), known)]),
            good: BTreeMap::new(),
        };
        assert_eq!(ring.at(midnight).0.hosts[&host].keys.len(), 1);
        let keys = |Changed { policy, hosts, .. }| {
            assert_eq!(hosts, [(host.clone(), policy.hosts[&host].keys.len())]);
            policy.hosts[&host].keys.len()
        };
        assert!(ring.changed(midnight + Duration::from_secs(599)).is_none());
        assert_eq!(ring.changed(midnight + Duration::from_secs(3600)).map(keys), Some(0));
        assert!(ring.changed(midnight + Duration::from_secs(7200)).is_none() && ring.has_endings());
        assert_eq!(ring.changed(midnight + Duration::from_secs(2)).map(keys), Some(1));
    }
    /// Hosts with one key in two files were let in, and each could be the other: only a file that was named twice was found.
    #[test]
    fn a_key_in_two_files_is_not_for_two_hosts() {
        let host = |name: &str| HostSpec {
            name: name.into(),
            nqn: format!("nqn.2026-11.io.diskside:{name}"),
            ..HostSpec::default()
        };
        let hosts = ["ann", "bob", "carl"].map(host);
        let check = |keys: [[u8; 2]; 3]| {
            let known = hosts.iter().zip(keys).map(|(host, [dhchap, tls])| {
                let key = Ending { key: Secret::new(&[dhchap; 32], None).unwrap(), until: None };
                let tls_key = Ending { key: TlsSecret::new(&[tls; 32], None).unwrap(), until: None };
                let keys = KnownKeys { keys: vec![key], tls_keys: vec![tls_key], ..KnownKeys::default() };
                (Nqn::new(&host.nqn).unwrap(), keys)
            });
            check_different(&hosts, &known.collect()).map_err(|(host, what)| format!("{host}: {what}"))
        };
        assert_eq!(check([[1, 2], [3, 4], [5, 6]]), Ok(()));
        let told =
            |host: &str, other: &str| Err(format!("{host}: it has the same key as `{other}`; each host needs its own"));
        assert_eq!(check([[1, 2], [3, 4], [5, 2]]), told("carl", "ann"));
        assert_eq!(check([[1, 2], [1, 4], [5, 6]]), told("bob", "ann"));
    }

    /// A host that asked for the server's proof could be given its own answers as that proof: one key for both was taken.
    #[test]
    fn the_key_that_proves_the_server_is_of_no_host() {
        let host = |name: &str| HostSpec {
            name: name.into(),
            nqn: format!("nqn.2026-11.io.diskside:{name}"),
            ..HostSpec::default()
        };
        let hosts = ["ann", "bob"].map(host);
        let secret = |byte: u8| Secret::new(&[byte; 32], None).unwrap();
        let check = |keys: [[u8; 2]; 2]| {
            let known = hosts.iter().zip(keys).map(|(host, [own, proof])| {
                let keys = vec![Ending { key: secret(own), until: None }];
                (
                    Nqn::new(&host.nqn).unwrap(),
                    KnownKeys { keys, controller_key: Some(secret(proof)), tls_keys: vec![] },
                )
            });
            check_not_reflected(&hosts, &known.collect())
        };
        assert_eq!(check([[1, 9], [2, 9]]), Ok(()), "one key may prove the server to all of its hosts");
        let (name, told) = check([[1, 9], [2, 2]]).unwrap_err();
        assert!(name == "bob" && told.starts_with("its dhchap_controller_key is also its own key"), "{told}");
        let (name, told) = check([[1, 2], [2, 9]]).unwrap_err();
        assert!(name == "ann" && told.starts_with("its dhchap_controller_key is also a key of `bob`"), "{told}");
    }

    /// The same bytes with another digest before them, or as a key of the other kind, were taken for another key: a host that knows the
    /// bytes makes all of these keys. So were those of the key with which the server proves its identity to another host.
    #[test]
    fn the_bytes_of_a_key_are_not_for_two_hosts() {
        let host = |name: &str| HostSpec {
            name: name.into(),
            nqn: format!("nqn.2026-11.io.diskside:{name}"),
            ..HostSpec::default()
        };
        let hosts = ["ann", "bob"].map(host);
        let check = |keys: [KnownKeys; 2]| {
            let known = hosts.iter().zip(keys).map(|(host, keys)| (Nqn::new(&host.nqn).unwrap(), keys));
            check_different(&hosts, &known.collect()).map_err(|(host, what)| format!("{host}: {what}"))
        };
        let secret = |byte, hash| Secret::new(&[byte; 32], hash).unwrap();
        let dhchap = |byte, hash| KnownKeys {
            keys: vec![Ending { key: secret(byte, hash), until: None }],
            ..KnownKeys::default()
        };
        let tls = KnownKeys {
            tls_keys: vec![Ending { key: TlsSecret::new(&[1; 32], Some(Hash::Sha256)).unwrap(), until: None }],
            ..KnownKeys::default()
        };
        let proof = |byte, of_server| KnownKeys { controller_key: Some(secret(of_server, None)), ..dhchap(byte, None) };
        let told = Err("bob: it has the same key as `ann`; each host needs its own".to_owned());
        assert_eq!(check([dhchap(1, None), dhchap(1, Some(Hash::Sha256))]), told);
        assert_eq!(check([dhchap(1, None), tls]), told);
        assert_eq!(check([dhchap(1, None), proof(2, 1)]), told);
        // One key of the server's for all hosts is good; a host whose own key it is has a message of its own.
        assert_eq!(check([proof(1, 3), proof(2, 3)]), Ok(()));
        assert_eq!(check([proof(1, 1), proof(2, 3)]), Ok(()));
    }
}
