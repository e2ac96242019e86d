//! How files are named: a local path, a file of an export, or a volume.

use diskside_host::{Url, UrlError};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

const EXPORT_SCHEME: &str = "diskside://";
const VOLUME_SCHEME: &str = "nvme-tcp://";

/// Where bytes are.
///
/// ```
/// use diskside::Location;
/// let file: Location = "diskside://server:4420/data/logs/today.txt".parse()?;
/// let Location::Export(export) = &file else { panic!("an export") };
/// assert_eq!((export.host.as_str(), export.port, export.path.as_str()), ("server", Some(4420), "data/logs/today.txt"));
/// assert_eq!(file.to_string(), "diskside://server:4420/data/logs/today.txt");
/// assert!(matches!("data.bin".parse()?, Location::Local(_)));
/// # Ok::<(), diskside::LocationError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A file, or a block device, of this machine.
    Local(PathBuf),
    /// A file of an export: `diskside://HOST[:PORT]/EXPORT/PATH`.
    Export(ExportUrl),
    /// A volume: `nvme-tcp://HOST[:PORT]/NQN/NSID`.
    Volume(Url),
}

/// A target, an export of it, or a file or directory in that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportUrl {
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port, if it is written.
    pub port: Option<u16>,
    /// The export's name, and the path in it; empty for the target itself. Taken as it is written: no character
    /// stands for another.
    pub path: String,
}

/// Why a text names no place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LocationError {
    /// Some other scheme.
    #[error(
        "{0:?} is no URL that is known here: write {EXPORT_SCHEME}HOST[:PORT]/EXPORT/PATH, {VOLUME_SCHEME}HOST[:PORT]/NQN/NSID, or a path"
    )]
    Scheme(String),
    /// Not a volume.
    #[error(transparent)]
    Volume(#[from] UrlError),
    /// The host or port of an export's URL.
    #[error("{text:?}: {source}")]
    Export {
        /// The URL.
        text: String,
        /// What is wrong with its host or port.
        source: UrlError,
    },
}

impl FromStr for Location {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Self, LocationError> {
        let starts = |scheme: &str| text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
        if starts(EXPORT_SCHEME) {
            return text.parse().map(Self::Export);
        }
        if starts(VOLUME_SCHEME) {
            return Ok(Self::Volume(text.parse()?));
        }
        match text.split_once("://") {
            Some((scheme, _)) if scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)) => {
                Err(LocationError::Scheme(shown(text)))
            }
            _ => Ok(Self::Local(text.into())),
        }
    }
}

impl FromStr for ExportUrl {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Self, LocationError> {
        let rest = text.get(..EXPORT_SCHEME.len()).filter(|start| start.eq_ignore_ascii_case(EXPORT_SCHEME));
        let rest = rest.map(|_| &text[EXPORT_SCHEME.len()..]).ok_or_else(|| LocationError::Scheme(shown(text)))?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        // The same rules as for volumes.
        let at: Url = format!("{VOLUME_SCHEME}{authority}")
            .parse()
            .map_err(|source| LocationError::Export { text: shown(text), source })?;
        Ok(Self { host: at.host, port: at.port, path: path.trim_matches('/').to_owned() })
    }
}

impl ExportUrl {
    /// The same target's URL for volumes, without a subsystem.
    #[must_use]
    pub fn target(&self) -> Url {
        Url { host: self.host.clone(), port: self.port, subsystem: None, nsid: None }
    }

    /// The last name of the path.
    #[must_use]
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// The file of this name in this directory.
    #[must_use]
    pub fn join(&self, name: &str) -> Self {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}/{name}", self.path) };
        Self { path, ..self.clone() }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => path.display().fmt(f),
            Self::Export(url) => url.fmt(f),
            Self::Volume(url) => url.fmt(f),
        }
    }
}

impl fmt::Display for ExportUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = self.target().to_string();
        write!(f, "{EXPORT_SCHEME}{}", &target[VOLUME_SCHEME.len()..])?;
        if self.path.is_empty() { Ok(()) } else { write!(f, "/{}", self.path) }
    }
}

/// A text as an error repeats it: not longer than a line.
fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_understood_and_written_the_same() {
        for (text, host, port, path) in [
            ("diskside://server/data", "server", None, "data"),
            ("DISKSIDE://[::1]:4420/data/a b/%20?x#y", "::1", Some(4420), "data/a b/%20?x#y"),
            ("diskside://10.0.0.1:1/", "10.0.0.1", Some(1), ""),
            ("diskside://server", "server", None, ""),
            ("diskside://server//data//x/", "server", None, "data//x"),
        ] {
            let url: ExportUrl = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!((url.host.as_str(), url.port, url.path.as_str()), (host, port, path), "{text}");
            assert_eq!(url.to_string().parse::<ExportUrl>(), Ok(url.clone()));
        }
        for local in ["data.bin", "/a/b:c", "./x", "a/b://c", "C:x"] {
            assert_eq!(local.parse(), Ok(Location::Local(local.into())));
        }
        let volume = "nvme-tcp://h/nqn.2014-08.org.example:d/1";
        assert!(matches!(volume.parse(), Ok(Location::Volume(url)) if url.nsid == Some(1)));
    }

    #[test]
    fn what_is_no_place_says_what_would_be() {
        for (text, teaches) in [
            ("http://server/x", "write diskside://HOST[:PORT]/EXPORT/PATH"),
            ("diskside://", "names no host"),
            ("diskside://::1/data", "stands in brackets"),
            ("diskside://server:0/data", "from 1 to 65535"),
            ("nvme-tcp://server/data", "starts with \"nqn.\""),
        ] {
            let error = text.parse::<Location>().unwrap_err().to_string();
            assert!(error.contains(teaches), "{text}: {error}");
        }
    }

    #[test]
    fn names_are_joined_and_split() {
        let dir: ExportUrl = "diskside://s/data".parse().unwrap();
        assert_eq!(dir.join("x").to_string(), "diskside://s/data/x");
        assert_eq!(dir.join("x").name(), "x");
        let target: ExportUrl = "diskside://s".parse().unwrap();
        assert_eq!(target.join("data"), dir);
    }
}
