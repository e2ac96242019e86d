//! Who connects, and with which key.

use std::path::PathBuf;
use std::sync::Arc;

use diskside_keys::{HostKey, KEY_VARIABLE, KeySource};
use diskside_nvme::auth::{Accepted, Credentials, Group};
use diskside_nvme::host::{HostIdentity, Login};

use crate::error::HostError;
use crate::options::{ConnectOptions, host_identity, id_of_nqn};
use crate::route::Peer;

/// Finds out who connects to `peer`, and how.
///
/// Who has a key is who the key's file says. A key that is there is used: a server that does not ask for it is given up,
/// because anybody who answers in the place of the one that is meant would not ask. Servers on this machine need not
/// ask, unless the user named the key.
pub(crate) fn login(options: &ConnectOptions, peer: Peer) -> Result<(HostIdentity, Login), HostError> {
    let Peer::Tcp(address) = peer else { return Ok((options.identity.clone(), Login::Never)) };
    let Some((key, is_named)) = options.key.read()? else { return Ok((options.identity.clone(), Login::Never)) };
    if options.identity.nqn != key.nqn && options.identity != host_identity() {
        // The user wants to be another, whom the usual key is not of.
        return if is_named {
            Err(HostError::OtherKey { nqn: options.identity.nqn.clone(), of: key.nqn, file: named(&options.key) })
        } else {
            Ok((options.identity.clone(), Login::Never))
        };
    }
    let identity = HostIdentity { id: id_of_nqn(&key.nqn).unwrap_or(options.identity.id), nqn: key.nqn.clone() };
    let credentials = Arc::new(credentials(key));
    if is_named || !address.ip().to_canonical().is_loopback() {
        Ok((identity, Login::Always(credentials)))
    } else {
        Ok((identity, Login::IfAsked(credentials)))
    }
}

/// All groups are offered, and the server chooses; but none at all is not: whoever listens could try weak keys.
fn credentials(key: HostKey) -> Credentials {
    let accepted = Accepted { groups: Group::ALL[1..].to_vec(), ..Accepted::usual() };
    Credentials { key: key.key, controller_key: key.server_key, accepted }
}

fn named(source: &KeySource) -> PathBuf {
    match source {
        KeySource::File(path) => path.clone(),
        KeySource::Usual | KeySource::None => std::env::var_os(KEY_VARIABLE).unwrap_or_default().into(),
    }
}

#[cfg(test)]
mod tests {
    use diskside_nvme::Nqn;

    use super::*;

    fn of(options: &ConnectOptions, address: &str) -> (String, &'static str) {
        let (identity, login) = login(options, Peer::Tcp(address.parse().unwrap())).unwrap();
        let login = match login {
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
        let key = HostKey::new(None, true);
        key.write(&path).unwrap();
        let options = ConnectOptions { key: KeySource::File(path), ..ConnectOptions::default() };
        for address in ["127.0.0.1:4420", "[::1]:4420", "192.0.2.1:4420"] {
            assert_eq!(of(&options, address), (key.nqn.to_string(), "always"));
        }
        let (identity, _) = login(&options, Peer::Tcp("192.0.2.1:1".parse().unwrap())).unwrap();
        assert_eq!(Some(identity.id), id_of_nqn(&key.nqn), "NVMe's tools derive it so, too");
        let (identity, none) = login(&options, Peer::Embedded).unwrap();
        assert!(identity == options.identity && matches!(none, Login::Never));

        let mut other = options.clone();
        other.identity.nqn = Nqn::new("nqn.2026-01.test:other").unwrap();
        let error = login(&other, Peer::Tcp("127.0.0.1:1".parse().unwrap())).unwrap_err().to_string();
        assert!(error.contains("test:other") && error.contains(key.nqn.as_str()), "{error}");
        let none = ConnectOptions { key: KeySource::None, ..ConnectOptions::default() };
        assert_eq!(of(&none, "192.0.2.1:4420"), (none.identity.nqn.to_string(), "never"));
    }
}
