//! The identity of a host: its name and its key, in one file; and how a server gets to know it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use diskside_nvme::Nqn;
use diskside_nvme::auth::{Secret, TlsSecret};
use zeroize::Zeroizing;

use crate::file::{KeyFileError, Trouble, at, lines, read, replace, write};
use crate::{new_nqn, new_secret, new_tls_secret};

/// The environment variable that names a file with the host's key, or says `none`.
pub const KEY_VARIABLE: &str = "DISKSIDE_KEY";

/// A host's name and keys, as its file has them:
///
/// ```text
/// nqn nqn.2014-08.org.nvmexpress:uuid:…
/// key DHHC-1:01:…:
/// server-key DHHC-1:01:…:
/// tls-key NVMeTLSkey-1:01:…:
/// ```
///
/// It has a `key`, a `tls-key` or both.
#[derive(Clone, Debug)]
pub struct HostKey {
    /// Its name, which servers know the key by.
    pub nqn: Nqn,
    /// Its key.
    pub key: Option<Secret>,
    /// A key with which servers prove who they are, if they must.
    pub server_key: Option<Secret>,
    /// Its key of TLS: it talks to servers over TLS alone.
    pub tls_key: Option<TlsSecret>,
}

/// Which keys a new host has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// One with which it proves who it is.
    #[default]
    Host,
    /// Servers must prove who they are, too.
    Mutual,
    /// One of TLS, with which both do, and nobody else hears what they say.
    Tls,
    /// One of TLS, and one with which it proves within the channel who it is.
    Both,
}

/// Where a host's key comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KeySource {
    /// The file that [`KEY_VARIABLE`] names; else that of the user, if there is one ([`default_path`]).
    #[default]
    Usual,
    /// This file.
    File(PathBuf),
    /// There is no key.
    None,
}

/// The line about a host for a server's operator: one line, as secret as the key in it.
#[derive(Clone, Debug)]
pub struct Introduction {
    /// The host's name.
    pub nqn: Nqn,
    /// Its key.
    pub key: Option<Secret>,
    /// The key with which the server proves who it is, if it must.
    pub server_key: Option<Secret>,
    /// Its key of TLS.
    pub tls_key: Option<TlsSecret>,
}

/// The file of the user's key: `$XDG_CONFIG_HOME/diskside/key`, which usually is `~/.config/diskside/key`.
pub fn default_path() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(config.join("diskside/key"))
}

/// The file of the user's key for one server, `HOST:PORT` as URLs name it: `servers/HOST:PORT` beside the usual key.
pub fn server_path(server: &str) -> Option<PathBuf> {
    Some(default_path()?.with_file_name("servers").join(server))
}

impl KeySource {
    /// The key for a server, `HOST:PORT` as its URL names it. One that the user keeps for this server goes before the usual
    /// one, and is as strict as one that was named: the server has to take it.
    #[must_use]
    pub fn for_server(&self, server: &str) -> Self {
        let is_named = std::env::var_os(KEY_VARIABLE).is_some_and(|text| !text.is_empty());
        match server_path(server) {
            // One that cannot be read is an error later, not another key.
            Some(path) if *self == Self::Usual && !is_named && path.symlink_metadata().is_ok() => Self::File(path),
            _ => self.clone(),
        }
    }

    /// The servers with the port of this one for which the user keeps keys that are not used for it, some of them: its name may be
    /// another one for the same server.
    pub fn other_servers(&self, server: &str) -> Vec<String> {
        const SERVERS_MAX: usize = 16;
        let is_named = std::env::var_os(KEY_VARIABLE).is_some_and(|text| !text.is_empty());
        let port = |name: &str| name.rsplit_once(':').map(|(_, port)| port.to_owned());
        let directory = server_path(server).and_then(|path| path.parent()?.read_dir().ok());
        let Some(directory) = directory.filter(|_| *self == Self::Usual && !is_named) else { return Vec::new() };
        let names = directory.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| name != server && port(name) == port(server)).collect();
        names.sort_unstable();
        names.truncate(SERVERS_MAX);
        names
    }

    /// The key, if there is one, and whether the user named it.
    pub fn read(&self) -> Result<Option<(HostKey, bool)>, KeyFileError> {
        self.read_with(std::env::var_os(KEY_VARIABLE), default_path())
    }

    fn read_with(
        &self,
        variable: Option<OsString>,
        usual: Option<PathBuf>,
    ) -> Result<Option<(HostKey, bool)>, KeyFileError> {
        let named = |path: &Path| HostKey::read(path).map(|key| Some((key, true)));
        match (self, variable) {
            (Self::None, _) => Ok(None),
            (Self::File(path), _) => named(path),
            (Self::Usual, Some(text)) if text == "none" => Ok(None),
            (Self::Usual, Some(text)) if !text.is_empty() => named(Path::new(&text)),
            (Self::Usual, _) => {
                let Some(path) = usual else { return Ok(None) };
                match HostKey::read(&path) {
                    Ok(key) => Ok(Some((key, false))),
                    Err(KeyFileError { trouble: Trouble::Io(error), .. })
                        if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) =>
                    {
                        Ok(None)
                    }
                    Err(error) => Err(error),
                }
            }
        }
    }
}

impl HostKey {
    /// A new one, of this name or of a new one.
    pub fn new(nqn: Option<Nqn>, kind: Kind) -> Self {
        Self {
            nqn: nqn.unwrap_or_else(new_nqn),
            key: (kind != Kind::Tls).then(new_secret),
            server_key: (kind == Kind::Mutual).then(new_secret),
            tls_key: matches!(kind, Kind::Tls | Kind::Both).then(new_tls_secret),
        }
    }

    /// Reads a host's file.
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        let text = read(path, None)?;
        let (mut nqn, mut key, mut server_key, mut tls_key) = (None, None, None, None);
        for (line, text) in lines(&text) {
            let unknown = || at(path, Trouble::Line { line });
            let (word, rest) = text.split_once(char::is_whitespace).ok_or_else(unknown)?;
            let secret = || Secret::parse(rest).map_err(|error| at(path, Trouble::Secret { line, error }));
            let is_first = match word {
                "nqn" => {
                    let name = Nqn::new(rest.trim()).map_err(|error| at(path, Trouble::Nqn { line, error }))?;
                    nqn.replace(name).is_none()
                }
                "key" => key.replace(secret()?).is_none(),
                "server-key" => server_key.replace(secret()?).is_none(),
                "tls-key" => {
                    let secret = TlsSecret::parse(rest);
                    let secret = secret.map_err(|error| at(path, Trouble::Secret { line, error }))?;
                    tls_key.replace(secret).is_none()
                }
                _ => false,
            };
            if !is_first {
                return Err(unknown());
            }
        }
        let missing = |what| move || at(path, Trouble::Missing(what));
        let nqn = nqn.ok_or_else(missing("nqn"))?;
        if key.is_none() && (tls_key.is_none() || server_key.is_some()) {
            return Err(missing("key")());
        }
        Ok(Self { nqn, key, server_key, tls_key })
    }

    /// Makes its file, which only its owner can read. There must be none.
    pub fn write(&self, path: &Path) -> Result<(), KeyFileError> {
        write(path, &self.to_file())
    }

    /// Makes its file in the place of one that may be there.
    pub fn replace(&self, path: &Path) -> Result<(), KeyFileError> {
        replace(path, &self.to_file())
    }

    fn to_file(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(format!(
            "# Who has this file is this host. It goes nowhere; `diskside key show` gives what a server needs.\n\
             nqn {}\n",
            self.nqn,
        ));
        for (word, key) in self.introduction().keys() {
            text.push_str(&Zeroizing::new(format!("{word} {}\n", *key)));
        }
        text
    }

    /// New keys of the same kinds for the same host. That by which servers prove who they are stays: they keep one alone.
    pub fn renewed(&self) -> Self {
        Self {
            nqn: self.nqn.clone(),
            key: self.key.as_ref().map(|_| new_secret()),
            server_key: self.server_key.clone(),
            tls_key: self.tls_key.as_ref().map(|_| new_tls_secret()),
        }
    }

    /// The introduction for a server's operator.
    pub fn introduction(&self) -> Introduction {
        let Self { nqn, key, server_key, tls_key } = self.clone();
        Introduction { nqn, key, server_key, tls_key }
    }
}

impl Introduction {
    /// Reads the line: a name, its key and, if servers must prove who they are, the key for that; and its key of TLS.
    pub fn parse(text: &str) -> Result<Self, String> {
        const FORM: &str =
            "this is not the line that `diskside key new` prints: NQN KEY, NQN KEY SERVER-KEY, or NQN TLS-KEY";
        let mut words = text.split_whitespace();
        // The first word may be a key, which is not repeated.
        let nqn = Nqn::new(words.next().ok_or(FORM)?).map_err(|_| format!("{FORM}; it begins with no NQN"))?;
        let mut line = Self { nqn, key: None, server_key: None, tls_key: None };
        for word in words {
            let wrong = |error| format!("the key in this line: {error}");
            if word.starts_with("NVMeTLSkey-") {
                if line.tls_key.replace(TlsSecret::parse(word).map_err(wrong)?).is_some() {
                    return Err(FORM.into());
                }
                continue;
            }
            let secret = Secret::parse(word).map_err(wrong)?;
            let place = if line.key.is_none() { &mut line.key } else { &mut line.server_key };
            if place.replace(secret).is_some() {
                return Err(FORM.into());
            }
        }
        if line.key.is_none() && line.tls_key.is_none() { Err(FORM.into()) } else { Ok(line) }
    }

    /// The line.
    pub fn to_line(&self) -> Zeroizing<String> {
        let mut line = Zeroizing::new(self.nqn.to_string());
        for (_, key) in self.keys() {
            line.push(' ');
            line.push_str(&key);
        }
        line
    }

    /// The keys as text, with what they are called in a host's file.
    fn keys(&self) -> impl Iterator<Item = (&'static str, Zeroizing<String>)> {
        let key = self.key.as_ref().map(|key| ("key", key.to_text()));
        let server_key = self.server_key.as_ref().map(|key| ("server-key", key.to_text()));
        let tls_key = self.tls_key.as_ref().map(|key| ("tls-key", key.to_text()));
        key.into_iter().chain(server_key).chain(tls_key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_comes_back_from_its_file_and_from_its_line() {
        let directory = tempfile::tempdir().unwrap();
        for kind in [Kind::Host, Kind::Mutual, Kind::Tls] {
            let host = HostKey::new(None, kind);
            let path = directory.path().join(format!("{kind:?}"));
            host.write(&path).unwrap();
            let back = HostKey::read(&path).unwrap().introduction();
            let line = Introduction::parse(&host.introduction().to_line()).unwrap();
            for found in [back, line] {
                assert_eq!(found.nqn, host.nqn);
                assert_eq!(found.key.is_some(), kind != Kind::Tls);
                assert_eq!(found.server_key.is_some(), kind == Kind::Mutual);
                assert_eq!(found.tls_key.is_some(), kind == Kind::Tls);
                assert_eq!(found.to_line(), host.introduction().to_line());
            }
        }
    }

    /// A user who pasted the key without the name before it got most of the key back, in an error that may be kept in a log.
    #[test]
    fn a_line_that_begins_with_a_key_is_refused_and_not_repeated() {
        let (key, tls_key) = (new_secret().to_text(), new_tls_secret().to_text());
        for text in [&key, &tls_key] {
            let error = Introduction::parse(text).unwrap_err();
            assert!(error.contains("not the line") && !error.contains(&text[15..30]), "{error}");
        }
    }

    #[test]
    fn a_file_that_is_none_is_refused_by_line() {
        let directory = tempfile::tempdir().unwrap();
        let key = new_secret().to_text();
        for (name, text, want) in [
            ("no-key", "nqn nqn.2026-01.test:a\n", "no line `key"),
            ("no-nqn", &format!("key {}\n", *key), "no line `nqn"),
            ("other", "hello world\n", "line 1: a line is"),
            ("word", "nqn\n", "line 1: a line is"),
            ("twice", &format!("key {}\nkey {}\n", *key, *key), "line 2: a line is"),
            ("bad-nqn", "nqn iqn.a\n", "line 1: an NQN starts with"),
            ("bad-key", "\nkey DHHC-1:01:AAAA:\n", "line 2: the key has"),
        ] {
            let path = directory.path().join(name);
            write(&path, text).unwrap();
            let error = HostKey::read(&path).unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        }
    }

    #[test]
    fn the_key_is_the_users_unless_another_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let (usual, other) = (directory.path().join("usual"), directory.path().join("other"));
        let read = |source: &KeySource, variable: Option<&str>| {
            let found = source.read_with(variable.map(OsString::from), Some(usual.clone())).unwrap();
            found.map(|(key, named)| (key.nqn.as_str().to_owned(), named))
        };
        assert_eq!(read(&KeySource::Usual, None), None);
        let named = |name: &str| HostKey::new(Some(Nqn::new(name).unwrap()), Kind::Host);
        named("nqn.usual").write(&usual).unwrap();
        named("nqn.other").write(&other).unwrap();
        let (is_usual, is_other) = (Some(("nqn.usual".into(), false)), Some(("nqn.other".into(), true)));
        assert_eq!(read(&KeySource::Usual, None), is_usual);
        assert_eq!(read(&KeySource::Usual, Some("")), is_usual);
        assert_eq!(read(&KeySource::Usual, other.to_str()), is_other);
        assert_eq!(read(&KeySource::Usual, Some("none")), None);
        assert_eq!(read(&KeySource::File(other.clone()), Some("none")), is_other);
        assert_eq!(read(&KeySource::None, other.to_str()), None);
        // One that was named and is not there is an error; so is one that others can read.
        assert!(KeySource::Usual.read_with(Some("/nowhere/key".into()), None).is_err());
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(&usual, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(KeySource::Usual.read_with(None, Some(usual)).is_err());
    }
}
