//! Which CSxes there are: the environment variable `DISKSIDE_CSX`, and URLs that callers write.

use crate::status::{CS_INVALID_OPTION, Done, Failure};
use diskside::Location;
use diskside::host::{PORT_DEFAULT, Url};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The environment variable: one CSx after another, with white space between, each as [`Csx::parse`] takes it.
pub(crate) const VARIABLE: &str = "DISKSIDE_CSX";

/// A server, as a CSx.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Csx {
    /// What callers know it by.
    pub(crate) name: String,
    /// Where it is.
    pub(crate) url: Url,
    /// Directories of this machine in which exports of it are seen: the directory, and the export with the path in it.
    pub(crate) mounts: Vec<(PathBuf, String)>,
    /// The part of its memory that is allocated from; `None`: all of it.
    pub(crate) memory: Option<Range<u64>>,
}

impl Csx {
    /// `[NAME=]URL[,mount=EXPORT[/PATH]:DIRECTORY]...[,memory=START..END]`.
    fn parse(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let first = parts.next().unwrap_or_default();
        let scheme =
            first.find("://").ok_or_else(|| format!("`{first}` is not a URL: write diskside://HOST[:PORT]"))?;
        let (name, url) = match first[..scheme].split_once('=') {
            Some((name, _)) => (Some(name), &first[name.len() + 1..]),
            None => (None, first),
        };
        if name.is_some_and(|name| name.is_empty() || name.contains('/')) {
            return Err(format!("`{first}`: a name has at least one character, and no slash"));
        }
        let mut csx = Self::of_url(url)?.0;
        csx.name = name.map_or(csx.name, ToOwned::to_owned);
        for part in parts {
            match part.split_once('=') {
                Some(("mount", mount)) => {
                    let (export, directory) = mount
                        .split_once(':')
                        .filter(|(export, directory)| !export.is_empty() && directory.starts_with('/'))
                        .ok_or_else(|| {
                            format!("`{part}`: write mount=EXPORT:DIRECTORY, the directory from the root")
                        })?;
                    csx.mounts.push((directory.into(), export.trim_matches('/').to_owned()));
                }
                Some(("memory", range)) => {
                    csx.memory = Some(parse_range(range).ok_or_else(|| {
                        format!("`{part}`: write memory=START..END, in bytes or as 32MiB; END may be left out")
                    })?);
                }
                _ => return Err(format!("`{part}` is not known: mount=EXPORT:DIRECTORY or memory=START..END")),
            }
        }
        Ok(csx)
    }

    /// The CSx that a URL names, and the path in it: that of a file in an export.
    pub(crate) fn of_url(url: &str) -> Result<(Self, Vec<u8>), String> {
        let (target, path) = match url.parse().map_err(|error| format!("`{url}`: {error}"))? {
            Location::Export(export) => (export.one_target().map_err(|error| error.to_string())?, export.path),
            Location::Volume(volume) => (Url { nsid: None, ..volume }, Vec::new()),
            Location::Local(_) => return Err(format!("`{url}` is a path of this machine, and no URL")),
        };
        let tls = if target.tls { "+tls" } else { "" };
        let (host, port) = (&target.host, target.port.map_or(String::new(), |port| format!(":{port}")));
        let name = match &target.subsystem {
            Some(_) => target.to_string(),
            None if host.contains(':') => format!("diskside{tls}://[{host}]{port}"),
            None => format!("diskside{tls}://{host}{port}"),
        };
        Ok((Self { name, url: target, mounts: Vec::new(), memory: None }, path))
    }

    /// Whether both are one server.
    fn is_same_server(&self, other: &Self) -> bool {
        let differ = |a: &Option<_>, b: &Option<_>| a.is_some() && b.is_some() && a != b;
        self.url.tls == other.url.tls
            && self.url.server(PORT_DEFAULT) == other.url.server(PORT_DEFAULT)
            && !differ(&self.url.subsystem, &other.url.subsystem)
    }

    /// The path in an export that a path of this machine, from the root, is seen at.
    pub(crate) fn export_path(&self, path: &Path) -> Option<PathBuf> {
        let beneath = self.mounts.iter().filter(|(directory, _)| path.starts_with(directory));
        let (directory, export) = beneath.max_by_key(|(directory, _)| directory.as_os_str().len())?;
        Some(Path::new(export).join(path.strip_prefix(directory).ok()?))
    }
}

/// `START..END` in bytes or binary units; END may be missing.
fn parse_range(text: &str) -> Option<Range<u64>> {
    let (start, end) = text.split_once("..")?;
    let start = parse_bytes(start)?;
    let end = if end.is_empty() { u64::MAX } else { parse_bytes(end)? };
    (start < end).then_some(start..end)
}

fn parse_bytes(text: &str) -> Option<u64> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
    let (digits, shift) =
        units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift))).unwrap_or((text, 0));
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// All that are configured. The variable is read once.
pub(crate) fn configured() -> Done<&'static [Csx]> {
    static CONFIGURED: OnceLock<Result<Vec<Csx>, String>> = OnceLock::new();
    let read = || {
        let mut all = parse_all(&std::env::var(VARIABLE).unwrap_or_default())?;
        // Without symbolic links, like the paths of descriptors.
        for (directory, _) in all.iter_mut().flat_map(|csx| &mut csx.mounts) {
            if let Ok(real) = directory.canonicalize() {
                *directory = real;
            }
        }
        Ok(all)
    };
    let configured = CONFIGURED.get_or_init(read).as_ref();
    configured.map(Vec::as_slice).map_err(|why| Failure::new(CS_INVALID_OPTION, format!("{VARIABLE}: {why}")))
}

fn parse_all(text: &str) -> Result<Vec<Csx>, String> {
    let all: Vec<Csx> = text.split_whitespace().map(Csx::parse).collect::<Result<_, _>>()?;
    match all.iter().enumerate().find(|(index, csx)| all[..*index].iter().any(|other| other.name == csx.name)) {
        Some((_, twice)) => Err(format!("two are called `{}`", twice.name)),
        None => Ok(all),
    }
}

/// The CSx that a name means: that of a configured one, or a URL. With a URL, the path behind it.
pub(crate) fn find(name: &str) -> Done<Option<(Csx, Vec<u8>)>> {
    let configured = configured()?;
    if let Some(csx) = configured.iter().find(|csx| csx.name == name) {
        return Ok(Some((csx.clone(), Vec::new())));
    }
    if !name.contains("://") {
        return Ok(None);
    }
    let (csx, path) = Csx::of_url(name).map_err(Failure::argument)?;
    Ok(Some((configured.iter().find(|known| known.is_same_server(&csx)).cloned().unwrap_or(csx), path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_csx_has_a_name_a_server_and_options() {
        let plain = Csx::parse("diskside://server").unwrap();
        assert_eq!((plain.name.as_str(), plain.mounts.len(), plain.memory.clone()), ("diskside://server", 0, None));
        let text = "near=diskside://[::1]:4421,mount=data/sub:/mnt/data,mount=logs:/mnt/data/logs,memory=4096..32MiB";
        let csx = Csx::parse(text).unwrap();
        assert_eq!((csx.name.as_str(), csx.url.port, csx.memory.clone()), ("near", Some(4421), Some(4096..32 << 20)));
        assert_eq!(csx.export_path(Path::new("/mnt/data/a/b")), Some("data/sub/a/b".into()));
        assert_eq!(csx.export_path(Path::new("/mnt/data/logs/x")), Some("logs/x".into()));
        assert_eq!(csx.export_path(Path::new("/mnt/database")), None);
        let volume = Csx::parse("nvme-tcp://server:4420/nqn.2026-11.org.example:d").unwrap();
        assert_eq!(volume.name, "nvme-tcp://server:4420/nqn.2026-11.org.example:d");
        assert!(volume.is_same_server(&plain));
        assert_eq!(Csx::of_url("diskside://[::1]:4421/data/x").unwrap().0.name, "diskside://[::1]:4421");
        assert!(Csx::parse("a=diskside://s,memory=1GiB..").unwrap().memory.unwrap().end == u64::MAX);
    }

    #[test]
    fn what_is_no_csx_is_told() {
        let cases = [
            ("server", "not a URL"),
            ("=diskside://s", "a name has at least one character"),
            ("a/b=diskside://s", "no slash"),
            ("diskside://s,mount=data", "mount=EXPORT:DIRECTORY"),
            ("diskside://s,mount=data:relative", "from the root"),
            ("diskside://s,memory=9..4", "memory=START..END"),
            ("diskside://s,memory=x", "memory=START..END"),
            ("diskside://s,colour=red", "not known"),
            ("ftp://s", "ftp"),
        ];
        for (text, wanted) in cases {
            let why = Csx::parse(text).unwrap_err();
            assert!(why.contains(wanted), "{text}: {why}");
        }
        assert!(parse_all("diskside://s  diskside://s").unwrap_err().contains("two are called"));
        assert_eq!(parse_all(" \n").unwrap(), []);
    }
}
