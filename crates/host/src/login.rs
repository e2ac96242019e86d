//! Who connects, and with which key.

use std::path::PathBuf;
use std::sync::Arc;

use diskside_keys::{HostKey, KEY_VARIABLE, KeySource};
use diskside_nvme::Nqn;
use diskside_nvme::auth::{Accepted, Credentials, Group, Names, Secret};
use diskside_nvme::host::{HostIdentity, Login};

use crate::channel::ChannelKey;
use crate::error::HostError;
use crate::options::{ConnectOptions, host_identity, id_of_nqn};
use crate::route::Peer;

/// Who connects, and how.
pub(crate) struct Party {
    pub(crate) identity: HostIdentity,
    pub(crate) login: Login,
    /// With what it makes secure channels.
    pub(crate) channel: Option<ChannelKey>,
}

impl Party {
    fn anybody(options: &ConnectOptions) -> Self {
        Self { identity: options.identity.clone(), login: Login::Never, channel: None }
    }
}

/// Finds out the identity with which to connect to a subsystem at `peer`, and how. `tls`: over TLS, or not at all; with
/// a key for proof of the server alone, over TLS with a key that authenticating makes.
///
/// A host with a key has the name in the key's file. A key that is there is used: a server that does not ask for it is
/// refused, because anybody who answers in its place would not ask; and so is one that does not speak TLS, if the key
/// is one of TLS. Servers on this machine need neither ask nor speak it, unless the user named the key or wants TLS;
/// those that take the key are talked to over TLS all the same.
pub(crate) fn login(options: &ConnectOptions, peer: Peer, tls: bool, subsystem: &Nqn) -> Result<Party, HostError> {
    let Peer::Tcp(address) = peer else { return Ok(Party::anybody(options)) };
    let without = || if tls { Err(HostError::NoTlsKey) } else { Ok(Party::anybody(options)) };
    let Some((key, is_named)) = options.key.read()? else { return without() };
    if options.identity.nqn != key.nqn && options.identity != host_identity() {
        // The user wants to be another, whom the usual key is not of.
        return if is_named {
            Err(HostError::OtherKey { nqn: options.identity.nqn.clone(), of: key.nqn, file: named(&options.key) })
        } else {
            without()
        };
    }
    let HostKey { nqn, key, server_key, tls_key } = key;
    let identity = HostIdentity { id: id_of_nqn(&nqn).unwrap_or(options.identity.id), nqn: nqn.clone() };
    let is_due = is_named || !address.ip().to_canonical().is_loopback();
    // Without a key of TLS authenticating can make one. An attacker in between would do so, too, if the server need not
    // prove itself.
    if tls && tls_key.is_none() && server_key.is_none() {
        return Err(HostError::NoTlsKey);
    }
    let concatenate = tls && tls_key.is_none() && !subsystem.is_discovery();
    let (names, optional) = (Names { host: nqn, subsystem: subsystem.clone() }, !tls && !is_due);
    let channel = tls_key.map(|secret| ChannelKey::new(&names, &secret, optional));
    let credentials = key.map(|key| Arc::new(credentials(key, server_key, concatenate)));
    let login = match credentials {
        None => Login::Never,
        // Who has the key of the channel is who is meant.
        Some(credentials) if (is_due || concatenate) && channel.is_none() => Login::Always(credentials),
        Some(credentials) => Login::IfAsked(credentials),
    };
    Ok(Party { identity, login, channel })
}

/// All groups are offered, and the server chooses; but at least one is required, because an eavesdropper could try weak
/// keys.
fn credentials(key: Secret, controller_key: Option<Secret>, concatenate: bool) -> Credentials {
    let accepted = Accepted { groups: Group::ALL[1..].to_vec(), ..Accepted::usual() };
    Credentials { key, controller_key, accepted, concatenate }
}

fn named(source: &KeySource) -> PathBuf {
    match source {
        KeySource::File(path) => path.clone(),
        KeySource::Usual | KeySource::None => std::env::var_os(KEY_VARIABLE).unwrap_or_default().into(),
    }
}

#[cfg(test)]
mod tests {
    use diskside_keys::Kind;

    use super::*;

    fn party(options: &ConnectOptions, address: &str, tls: bool) -> Result<Party, HostError> {
        login(options, Peer::Tcp(address.parse().unwrap()), tls, &Nqn::discovery())
    }

    fn of(options: &ConnectOptions, address: &str) -> (String, &'static str) {
        let Party { identity, login, channel } = party(options, address, false).unwrap();
        let login = match login {
            _ if channel.is_some() => "over TLS",
            Login::Never => "never",
            Login::IfAsked(_) => "if asked",
            Login::Always(_) => "always",
        };
        (identity.nqn.to_string(), login)
    }

    #[test]
    fn a_key_that_is_named_is_used_with_its_name_everywhere() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let key = HostKey::new(None, Kind::Mutual);
        key.write(&path).unwrap();
        let options = ConnectOptions { key: KeySource::File(path), ..ConnectOptions::default() };
        for address in ["127.0.0.1:4420", "[::1]:4420", "192.0.2.1:4420"] {
            assert_eq!(of(&options, address), (key.nqn.to_string(), "always"));
        }
        let identity = party(&options, "192.0.2.1:1", false).unwrap().identity;
        assert_eq!(Some(identity.id), id_of_nqn(&key.nqn), "NVMe's tools derive it so, too");
        let embedded = login(&options, Peer::Embedded, false, &Nqn::discovery()).unwrap();
        assert!(embedded.identity == options.identity && matches!(embedded.login, Login::Never));

        let mut other = options.clone();
        other.identity.nqn = Nqn::new("nqn.2026-01.test:other").unwrap();
        let error = party(&other, "127.0.0.1:1", false).err().expect("another's key").to_string();
        assert!(error.contains("test:other") && error.contains(key.nqn.as_str()), "{error}");
        let none = ConnectOptions { key: KeySource::None, ..ConnectOptions::default() };
        assert_eq!(of(&none, "192.0.2.1:4420"), (none.identity.nqn.to_string(), "never"));
    }

    #[test]
    fn a_key_of_tls_is_used_for_tls_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let (tls, other) = (directory.path().join("tls"), directory.path().join("other"));
        HostKey::new(None, Kind::Tls).write(&tls).unwrap();
        HostKey::new(None, Kind::Host).write(&other).unwrap();
        let options = |path| ConnectOptions { key: KeySource::File(path), ..ConnectOptions::default() };
        let none = ConnectOptions { key: KeySource::None, ..ConnectOptions::default() };
        for address in ["127.0.0.1:4420", "192.0.2.1:4420"] {
            assert_eq!(of(&options(tls.clone()), address).1, "over TLS");
            assert!(party(&options(tls.clone()), address, true).unwrap().channel.is_some());
            for without in [options(other.clone()), none.clone()] {
                assert!(matches!(party(&without, address, true), Err(HostError::NoTlsKey)));
            }
        }
    }
}
