//! How files are named: a local path, a file of an export, or a volume.

mod servers;

pub use servers::{Copies, Server};

use diskside_host::{Url, UrlError};
use diskside_wire::file::PATH_LEN_MAX;
use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::str::FromStr;

const EXPORT_SCHEME: &str = "diskside://";
const VOLUME_SCHEME: &str = "nvme-tcp://";
const VOLUME_TLS_SCHEME: &str = "nvme-tcp+tls://";

/// Where bytes are.
///
/// ```
/// use diskside::Location;
/// let file: Location = "diskside://server:4420/data/logs/today.txt".parse()?;
/// let Location::Export(export) = &file else { panic!("an export") };
/// assert_eq!((export.host.as_str(), export.port), ("server", Some(4420)));
/// assert_eq!(export.path, b"data/logs/today.txt");
/// assert_eq!(file.to_string(), "diskside://server:4420/data/logs/today.txt");
/// assert!(matches!("data.bin".parse()?, Location::Local(_)));
/// # Ok::<(), diskside::LocationError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A file, or a block device, of this machine.
    Local(PathBuf),
    /// A file of an export: `diskside://HOST[:PORT]/EXPORT/PATH`; over TLS alone, `diskside+tls://…`. Several servers that hold
    /// copies are named with commas between them, or by a service: see [`Copies`].
    Export(ExportUrl),
    /// A volume: `nvme-tcp://HOST[:PORT]/NQN/NSID`; over TLS alone, `nvme-tcp+tls://…`.
    Volume(Url),
}

/// A target, an export of it, or a file or directory in that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportUrl {
    /// Over TLS alone. Without it TLS is used where the host's key is one of TLS.
    pub tls: bool,
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port, if it is written.
    pub port: Option<u16>,
    /// Other servers that hold copies of the same exports.
    pub copies: Copies,
    /// The export's name, and the path in it; empty for the target itself. In text `%` and two hexadecimal digits are a byte of
    /// it, as [`PathText`] writes it; any other character is itself.
    pub path: Vec<u8>,
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
    /// Something else where a target, an export or a file of one is needed.
    #[error(
        "{0:?} is no URL of a target that serves directories: write {EXPORT_SCHEME}HOST[:PORT]/EXPORT/PATH; \
         `diskside ls {EXPORT_SCHEME}HOST[:PORT]` lists its exports"
    )]
    NoExport(String),
    /// A target or an export where a file is needed.
    #[error(
        "{0} names no file: write {EXPORT_SCHEME}HOST[:PORT]/EXPORT/PATH; `diskside ls` lists the exports of a target, and \
         their files"
    )]
    NoFile(String),
    /// A path with a byte that no name has.
    #[error("{0:?}: %00 is no byte of a name")]
    Nul(String),
    /// A path that is longer than paths can be.
    #[error("{text:?}: its path has {len_bytes} bytes, and at most {PATH_LEN_MAX} can be")]
    Long {
        /// The URL, cut.
        text: String,
        /// The length of the path.
        len_bytes: usize,
    },
    /// Not a volume.
    #[error(transparent)]
    Volume(#[from] UrlError),
    /// A URL of an export whose host is an IPv6 address without brackets, or with a stray one.
    #[error("{0:?} is not a host: an IPv6 address stands in brackets, as in {EXPORT_SCHEME}[2001:db8::1]:4420")]
    Host(String),
    /// A URL of an export without a host.
    #[error("{0:?} names no host: write {EXPORT_SCHEME}HOST[:PORT]/EXPORT/PATH")]
    NoHost(String),
    /// A service with something else beside its name.
    #[error(
        "{0:?}: write the name of a service, without a port, as in diskside+srv://NAME/EXPORT/PATH: DNS has its servers"
    )]
    Service(String),
    /// Several servers where one is needed.
    #[error("{0} names several servers, and one is needed here: name that one")]
    Several(String),
    /// Several servers where something is to be written.
    #[error("{0} names several servers that hold copies, which are only read: name the one server to write to")]
    Copies(String),
    /// The host or port of an export's URL.
    #[error("{text:?}: {source}")]
    Export {
        /// The URL.
        text: String,
        /// The problem with its host or port.
        source: UrlError,
    },
}

impl FromStr for Location {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Self, LocationError> {
        let starts = |scheme: &str| text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
        if servers::SCHEMES.iter().any(|(scheme, ..)| starts(scheme)) {
            return text.parse().map(Self::Export);
        }
        if starts(VOLUME_SCHEME) || starts(VOLUME_TLS_SCHEME) {
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

impl TryFrom<&OsStr> for Location {
    type Error = LocationError;

    /// Accepts a path of any bytes; a URL of an export may have any in its path, too.
    fn try_from(text: &OsStr) -> Result<Self, LocationError> {
        if let Some(text) = text.to_str() {
            return text.parse();
        }
        match text.to_string_lossy().parse()? {
            Self::Local(_) => Ok(Self::Local(text.into())),
            Self::Export(_) => PathText(text.as_bytes()).escaped_bytes().parse().map(Self::Export),
            volume @ Self::Volume(_) => Ok(volume),
        }
    }
}

impl FromStr for ExportUrl {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Self, LocationError> {
        let behind = |scheme: &str| {
            let start = text.get(..scheme.len()).filter(|start| start.eq_ignore_ascii_case(scheme));
            start.map(|_| &text[scheme.len()..])
        };
        let known = servers::SCHEMES.iter().find_map(|(scheme, tls, service)| Some((behind(scheme)?, *tls, *service)));
        let (rest, tls, is_service) = known.ok_or_else(|| LocationError::NoExport(shown(text)))?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (Server { host, port }, copies) = servers::parse(authority, is_service, text)?;
        let path = decoded(path.trim_matches('/'));
        if path.contains(&0) {
            return Err(LocationError::Nul(shown(text)));
        }
        if path.len() > PATH_LEN_MAX {
            return Err(LocationError::Long { text: shown(text), len_bytes: path.len() });
        }
        Ok(Self { tls, host, port, copies, path })
    }
}

/// The bytes that a path in a URL means.
fn decoded(text: &str) -> Vec<u8> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16)).map(|digit| digit as u8);
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let (byte, behind) = match (first, digit(behind.first()), digit(behind.get(1))) {
            (b'%', Some(high), Some(low)) => (high << 4 | low, &behind[2..]),
            _ => (*first, behind),
        };
        bytes.push(byte);
        rest = behind;
    }
    bytes
}

/// A name or a path of any bytes as text, as URLs of exports have it: bytes that are not UTF-8, control characters and `%` are
/// `%` and two hexadecimal digits for each byte.
#[derive(Clone, Copy, Debug)]
pub struct PathText<'a>(pub &'a [u8]);

impl PathText<'_> {
    /// With escapes only for the bytes that are not UTF-8, so that what was escaped stays so.
    fn escaped_bytes(self) -> String {
        let escape = |bytes: &[u8]| bytes.iter().map(|byte| format!("%{byte:02X}")).collect::<String>();
        self.0.utf8_chunks().map(|chunk| chunk.valid().to_owned() + &escape(chunk.invalid())).collect()
    }
}

impl fmt::Display for PathText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c.is_control() || c == '%' {
                    c.encode_utf8(&mut [0; 4]).bytes().try_for_each(|byte| write!(f, "%{byte:02X}"))?;
                } else {
                    f.write_char(c)?;
                }
            }
            chunk.invalid().iter().try_for_each(|byte| write!(f, "%{byte:02X}"))?;
        }
        Ok(())
    }
}

impl ExportUrl {
    /// The last name of the path.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }

    /// The file of this name in this directory.
    #[must_use]
    pub fn join(&self, name: impl AsRef<[u8]>) -> Self {
        let between: &[u8] = if self.path.is_empty() { b"" } else { b"/" };
        Self { path: [&self.path, between, name.as_ref()].concat(), ..self.clone() }
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
        write!(f, "{}{}", self.scheme(), self.authority())?;
        if self.path.is_empty() { Ok(()) } else { write!(f, "/{}", PathText(&self.path)) }
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
            ("DISKSIDE://[::1]:4420/data/a b/%20?x#y", "::1", Some(4420), "data/a b/ ?x#y"),
            ("diskside://server/data/100%/%2", "server", None, "data/100%/%2"),
            ("diskside://server/data/%e2%82%AC%25", "server", None, "data/\u{20ac}%"),
            ("diskside://10.0.0.1:1/", "10.0.0.1", Some(1), ""),
            ("diskside://server", "server", None, ""),
            ("diskside://server//data//x/", "server", None, "data//x"),
        ] {
            let url: ExportUrl = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!((url.host.as_str(), url.port, &url.path[..]), (host, port, path.as_bytes()), "{text}");
            assert_eq!(url.to_string().parse::<ExportUrl>(), Ok(url.clone()));
        }
        for local in ["data.bin", "/a/b:c", "./x", "a/b://c", "C:x"] {
            assert_eq!(local.parse(), Ok(Location::Local(local.into())));
        }
        let volume = "nvme-tcp://h/nqn.2014-08.org.example:d/1";
        assert!(matches!(volume.parse(), Ok(Location::Volume(url)) if url.nsid == Some(1)));
    }

    /// A file whose name was no UTF-8 had no URL.
    #[test]
    fn any_bytes_have_a_url() {
        let bytes: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').collect();
        let file = "diskside://s/data".parse::<ExportUrl>().unwrap().join(&bytes);
        assert_eq!(file.to_string().parse::<ExportUrl>(), Ok(file.clone()));
        assert!(file.to_string().starts_with("diskside://s/data/%01%02") && file.to_string().ends_with("%FE%FF"));
        let raw = OsStr::from_bytes(b"diskside://s/data/a\xff%20\xe2\x82\xac");
        let Ok(Location::Export(url)) = Location::try_from(raw) else { panic!("a URL") };
        assert_eq!(url.path, b"data/a\xff \xe2\x82\xac");
        assert_eq!(url.to_string(), "diskside://s/data/a%FF \u{20ac}");
        let local = OsStr::from_bytes(b"a\xff%20");
        assert_eq!(Location::try_from(local), Ok(Location::Local(local.into())));
    }

    #[test]
    fn what_is_no_place_says_what_would_be() {
        for (text, teaches) in [
            ("http://server/x", "write diskside://HOST[:PORT]/EXPORT/PATH"),
            ("diskside://", "names no host"),
            ("diskside://::1/data", "stands in brackets"),
            ("diskside://server/data/a%00", "%00 is no byte of a name"),
            // It went to the server with the lower 16 bits of its length.
            (
                &format!("diskside://server/data/{}", "a".repeat(5000)),
                "its path has 5005 bytes, and at most 4095 can be",
            ),
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
        assert_eq!(dir.join("x").name(), b"x");
        let target: ExportUrl = "diskside://s".parse().unwrap();
        assert_eq!(target.join("data"), dir);
    }
}
