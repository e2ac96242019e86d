//! Who may connect, and how hosts prove who they are.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use diskside_keys::Signer;
use diskside_nvme::auth::{Accepted, Group, Hash};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{ConfigError, Moment, check_nqn};

/// What a host must do to be let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Requirement {
    /// Say its name. Hosts with keys must prove it.
    None,
    /// Prove its name with a key: of DH-HMAC-CHAP or of TLS.
    Auth,
    /// Come over TLS, with its key.
    Tls,
    /// Both: come over TLS, and authenticate in it.
    #[serde(rename = "tls+auth")]
    TlsAuth,
}

impl Requirement {
    /// Whether a host must come over TLS.
    pub fn needs_tls(self) -> bool {
        matches!(self, Self::Tls | Self::TlsAuth)
    }
}

/// [`Security`] as a user wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecuritySettings {
    /// See [`Security::require`]. Absent: `tls` if hosts with keys have some of TLS and no others, `auth` if there is a host
    /// with a key, else `none`.
    pub require: Option<Requirement>,
    /// See [`Security::audit`].
    pub audit: Option<PathBuf>,
    /// See [`Security::require_signed_by`].
    pub require_signed_by: Option<Vec<String>>,
    /// See [`Security::dhchap_hashes`].
    pub dhchap_hashes: Option<Vec<String>>,
    /// See [`Security::dhchap_groups`].
    pub dhchap_groups: Option<Vec<String>>,
}

/// What is demanded of hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Security {
    /// What a host must do to be let in.
    pub require: Requirement,
    /// The file that says who came, was refused, loaded and ran what; none without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit: Option<PathBuf>,
    /// Public keys, one of whose holders must have signed each program that a host loads; empty: nobody need.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub require_signed_by: Vec<String>,
    /// Hash functions that hosts may authenticate with, the most wanted first.
    pub dhchap_hashes: Vec<String>,
    /// Diffie-Hellman groups that hosts may authenticate with, the most wanted first.
    pub dhchap_groups: Vec<String>,
}

/// A host that is known. Once there is one, others are refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSpec {
    /// How it is called here.
    pub name: String,
    /// Its NQN.
    pub nqn: String,
    /// Files with its keys, any of which will do; none: it is let in by its NQN alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dhchap_keys: Vec<KeyFile>,
    /// The file with the key by which the target proves itself to this host, if the host asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dhchap_controller_key: Option<KeyFile>,
    /// Groups that it is in, which grants can name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Files with its keys of TLS, any of which will do. A host with one comes over TLS alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tls_keys: Vec<KeyFile>,
}

/// Where a key is: `file:PATH`, `credential:NAME` (of systemd's `LoadCredential=`), or `{ file = "PATH", until = "2026-12-01" }`. Keys themselves never stand in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFile {
    /// The file.
    pub path: PathBuf,
    /// When the key ends. Hosts that are connected then stay.
    pub until: Option<Moment>,
}

/// [`KeyFile`] as it is written.
#[derive(Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "a key stands in a file: write file:PATH, credential:NAME, or { file = \"PATH\", until = \"2026-12-01\" }"
)]
enum KeyFileText {
    Path(String),
    Table(KeyFileTable),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyFileTable {
    file: PathBuf,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<Moment>,
}

/// Where the service manager puts what it passes.
const CREDENTIALS_VARIABLE: &str = "CREDENTIALS_DIRECTORY";
/// Keys that one host may have at a time: all are tried.
const KEYS_MAX: usize = 8;
/// Hosts that one target may know.
const HOSTS_MAX: usize = 4096;

impl SecuritySettings {
    /// A list of nobody demands nothing, and reads as if it let nothing run.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        match &self.require_signed_by {
            Some(signers) if signers.is_empty() => Err(ConfigError::Value {
                field: "security.require_signed_by".into(),
                what: "it names nobody, so that programs that nobody signed would run: name a key (`diskside sign --show` \
                       prints it), or leave the line away"
                    .into(),
            }),
            _ => Ok(()),
        }
    }

    pub(super) fn overridden_by(self, flags: Self) -> Self {
        Self {
            require: flags.require.or(self.require),
            audit: flags.audit.or(self.audit),
            require_signed_by: flags.require_signed_by.or(self.require_signed_by),
            dhchap_hashes: flags.dhchap_hashes.or(self.dhchap_hashes),
            dhchap_groups: flags.dhchap_groups.or(self.dhchap_groups),
        }
    }
}

impl Security {
    pub(super) fn resolve(settings: SecuritySettings, hosts: &[HostSpec]) -> Self {
        let usual = Accepted::usual();
        let has = |keys: fn(&HostSpec) -> &Vec<KeyFile>| hosts.iter().any(|host| !keys(host).is_empty());
        let usually = match (has(|host| &host.dhchap_keys), has(|host| &host.tls_keys)) {
            (true, _) => Requirement::Auth,
            (false, true) => Requirement::Tls,
            (false, false) => Requirement::None,
        };
        let names = |list: Vec<&'static str>| list.into_iter().map(String::from).collect();
        Self {
            require: settings.require.unwrap_or(usually),
            audit: settings.audit,
            require_signed_by: settings.require_signed_by.unwrap_or_default(),
            dhchap_hashes: settings
                .dhchap_hashes
                .unwrap_or_else(|| names(usual.hashes.iter().map(|hash| hash.name()).collect())),
            dhchap_groups: settings
                .dhchap_groups
                .unwrap_or_else(|| names(usual.groups.iter().map(|group| group.name()).collect())),
        }
    }

    /// What is accepted of hosts, or which field is wrong and why.
    pub(crate) fn accepted(&self) -> Result<Accepted, (&'static str, String)> {
        let hashes: Result<Vec<Hash>, _> = self.dhchap_hashes.iter().map(|name| name.parse()).collect();
        let groups: Result<Vec<Group>, _> = self.dhchap_groups.iter().map(|name| name.parse()).collect();
        let accepted = Accepted {
            hashes: hashes.map_err(|what| ("dhchap_hashes", what))?,
            groups: groups.map_err(|what| ("dhchap_groups", what))?,
        };
        let none = || "nobody could authenticate; name at least one, or leave the line away".to_owned();
        if accepted.hashes.is_empty() {
            return Err(("dhchap_hashes", none()));
        }
        if accepted.groups.is_empty() {
            return Err(("dhchap_groups", none()));
        }
        Ok(accepted)
    }

    /// Who must have signed what hosts load.
    pub(super) fn signers(&self) -> Result<BTreeSet<[u8; 32]>, String> {
        self.require_signed_by.iter().map(|key| key.parse().map(|Signer(key)| key)).collect()
    }

    /// Checks it together with the hosts; `by_name` are NQNs that are let in without more.
    pub(super) fn check(&self, hosts: &[HostSpec], by_name: &[String]) -> Result<(), (String, String)> {
        self.accepted().map_err(|(field, what)| (format!("security.{field}"), what))?;
        let wrong = |host: &HostSpec, what: String| Err((format!("host `{}`", host.name), what));
        let (mut names, mut nqns, mut files) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
        for host in hosts {
            for KeyFile { path, .. } in host.dhchap_keys.iter().chain(&host.tls_keys) {
                // With one key for two, either could be the other.
                if let Some(other) = files.insert(path, &host.name) {
                    let path = path.display();
                    return wrong(
                        host,
                        if *other == host.name {
                            format!("{path} is there twice; once is enough")
                        } else {
                            format!("{path} is a key of `{other}` already; each host needs its own")
                        },
                    );
                }
            }
            if let Err(what) = host.check() {
                return wrong(host, what);
            }
            if !names.insert(&host.name) {
                return wrong(host, "there are two of this name".into());
            }
            if !nqns.insert(&host.nqn) {
                return wrong(host, format!("another host has the NQN {}; write both keys into one", host.nqn));
            }
            let missing = match self.require {
                Requirement::Auth if !host.has_keys() => "dhchap_keys and no tls_keys",
                Requirement::Tls if !host.has_keys() => "tls_keys and no dhchap_keys",
                Requirement::TlsAuth if host.tls_keys.is_empty() => "tls_keys",
                Requirement::TlsAuth if host.dhchap_keys.is_empty() => "dhchap_keys",
                _ => continue,
            };
            let require = self.require;
            let what =
                format!("security.require is \"{require}\", and it has no {missing}; `diskside key allow` adds one");
            return wrong(host, what);
        }
        if hosts.len() > HOSTS_MAX {
            return Err(("host".into(), format!("{} hosts; at most {HOSTS_MAX}", hosts.len())));
        }
        if self.require == Requirement::None {
            return Ok(());
        }
        if let Some(nqn) = by_name.iter().find(|nqn| !nqns.contains(nqn)) {
            let require = self.require;
            let what =
                format!("security.require is \"{require}\", and {nqn} has no key; `diskside key allow` adds one");
            return Err(("hosts".into(), what));
        }
        Ok(())
    }
}

impl HostSpec {
    /// Whether it can prove who it is.
    pub fn has_keys(&self) -> bool {
        !self.dhchap_keys.is_empty() || !self.tls_keys.is_empty()
    }

    fn check(&self) -> Result<(), String> {
        check_host_name(&self.name)?;
        check_nqn(&self.nqn)?;
        self.groups.iter().try_for_each(|group| check_host_name(group))?;
        let count = self.dhchap_keys.len().max(self.tls_keys.len());
        if count > KEYS_MAX {
            return Err(format!("{count} keys; at most {KEYS_MAX}"));
        }
        if self.dhchap_keys.is_empty() && self.dhchap_controller_key.is_some() {
            return Err("dhchap_controller_key is of no use without dhchap_keys".into());
        }
        if self.dhchap_controller_key.as_ref().is_some_and(|key| key.until.is_some()) {
            return Err("dhchap_controller_key cannot have an end: without it this host would be locked out".into());
        }
        Ok(())
    }

    /// Relative paths are those beside the file that the host is written in.
    pub(super) fn beside(&mut self, directory: &Path) {
        let files = self.dhchap_keys.iter_mut().chain(&mut self.dhchap_controller_key).chain(&mut self.tls_keys);
        for file in files {
            file.path = directory.join(&file.path);
        }
    }
}

/// Checks how a host is called: it is also the name of a file.
pub fn check_host_name(name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) || name.starts_with('.') {
        let shown: String = name.escape_debug().take(80).collect();
        return Err(format!("`{shown}` is not a name for a host: write up to 64 letters, digits, `.`, `_` and `-`"));
    }
    Ok(())
}

impl FromStr for HostSpec {
    type Err = String;

    /// `NAME=NQN[,key=FILE]...[,controller-key=FILE][,tls-key=FILE]...`.
    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str = "a host is written NAME=NQN[,key=FILE][,controller-key=FILE][,tls-key=FILE]";
        let (name, rest) = text.split_once('=').ok_or(FORM)?;
        let mut parts = rest.split(',');
        let nqn = parts.next().unwrap_or_default().to_owned();
        let mut host = Self { name: name.to_owned(), nqn, ..Self::default() };
        for part in parts {
            match part.split_once('=') {
                Some(("tls-key", path)) if !path.is_empty() => host.tls_keys.push(KeyFile::new(path)),
                Some(("key", path)) if !path.is_empty() => host.dhchap_keys.push(KeyFile::new(path)),
                Some(("controller-key", path)) if !path.is_empty() && host.dhchap_controller_key.is_none() => {
                    host.dhchap_controller_key = Some(KeyFile::new(path));
                }
                _ => return Err(format!("{FORM}: what is {part:?}?")),
            }
        }
        host.check()?;
        Ok(host)
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Auth => "auth",
            Self::Tls => "tls",
            Self::TlsAuth => "tls+auth",
        })
    }
}

impl KeyFile {
    /// The key in a file, without an end.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), until: None }
    }

    /// The key that the service manager passes by this name (systemd.exec(5), `LoadCredential=`).
    fn credential(name: &str, directory: Option<OsString>) -> Result<Self, String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@');
        if name.is_empty() || name.starts_with('.') || !name.chars().all(is_plain) {
            return Err("credential:NAME names a credential of systemd: letters, digits, `.`, `_`, `-` and `@`".into());
        }
        let directory = directory.map(PathBuf::from).filter(|directory| directory.is_absolute());
        let directory = directory.ok_or_else(|| {
            format!(
                "credential:{name}: ${CREDENTIALS_VARIABLE} is not set; it is in services of systemd with LoadCredential={name}:FILE"
            )
        })?;
        Ok(Self::new(directory.join(name)))
    }
}

impl FromStr for KeyFile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(name) = text.strip_prefix("credential:") {
            return Self::credential(name, std::env::var_os(CREDENTIALS_VARIABLE));
        }
        match text.strip_prefix("file:") {
            Some(path) if !path.is_empty() => Ok(Self::new(path)),
            // It may be the key itself: it is not repeated.
            _ => Err(
                "a key stands in a file, and is written file:PATH or credential:NAME; the key itself never stands here"
                    .into(),
            ),
        }
    }
}

impl fmt::Display for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file:{}", self.path.display())
    }
}

impl Serialize for KeyFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.until {
            None => KeyFileText::Path(self.to_string()),
            until => KeyFileText::Table(KeyFileTable { file: self.path.clone(), until }),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for KeyFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match KeyFileText::deserialize(deserializer)? {
            KeyFileText::Path(text) => text.parse().map_err(serde::de::Error::custom),
            KeyFileText::Table(KeyFileTable { file, until }) => Ok(Self { path: file, until }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_a_file_of_the_service_managers() {
        let of = |name, directory: Option<&str>| KeyFile::credential(name, directory.map(OsString::from));
        assert_eq!(
            of("ann.tls", Some("/run/credentials/diskside")),
            Ok(KeyFile::new("/run/credentials/diskside/ann.tls"))
        );
        for name in ["", "..", ".hidden", "a/b", "../../etc/shadow", "a b"] {
            assert!(of(name, Some("/run/credentials/diskside")).is_err(), "{name}");
        }
        for directory in [None, Some(""), Some("relative")] {
            assert!(of("ann", directory).unwrap_err().contains("LoadCredential=ann:FILE"), "{directory:?}");
        }
    }
}
