//! The specification of an export: `NAME=PATH[,rw][,uid=…][,gid=…]` or an `[[export]]` table.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use diskside_volume::check_name;

/// One export as the user wrote it.
///
/// As a flag: `NAME=PATH[,option…]`. Options: `rw` lets hosts change what is in it, `ro` says that they may not, which is so
/// without it; `uid=N` and `gid=N` say as whom files are opened, made and written, `buffered` and `direct` how functions read
/// them. A path with a comma needs the table form in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportSpec {
    /// The name with which paths start: letters, digits, `.`, `_`, `-`; at most 64 bytes, and not dots alone.
    pub name: String,
    /// The directory; or `s3://BUCKET/KEY` or `https://HOST/PATH`, below which objects are.
    pub path: PathBuf,
    /// Let hosts change what is in it. Without it every change is refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rw: bool,
    /// The user that accesses run as; the target's own when absent. Another one needs root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The group that accesses run as; the target's own when absent. Another one needs root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
    /// Further groups of the user. Used where `uid` or `gid` is another than the target's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<u32>,
    /// How functions read its files.
    #[serde(default, skip_serializing_if = "FileAccess::is_auto")]
    pub access: FileAccess,
}

/// Through the page cache or past it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileAccess {
    /// Past it, with `O_DIRECT`, where a file is too large to stay in it and less than half of what is read is there;
    /// else through it.
    #[default]
    Auto,
    /// Through it.
    Buffered,
    /// Past it, where the file system takes `O_DIRECT`.
    Direct,
}

impl FileAccess {
    fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}

impl ExportSpec {
    /// An export of defaults: read-only, as the target's own user and group.
    pub fn new(name: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            path: path.into(),
            rw: false,
            uid: None,
            gid: None,
            groups: Vec::new(),
            access: FileAccess::Auto,
        }
    }

    /// The same, which hosts may change.
    #[must_use]
    pub fn writable(self) -> Self {
        Self { rw: true, ..self }
    }

    /// Where the objects are, if no directory is exported.
    pub fn url(&self) -> Option<&str> {
        self.path.to_str().filter(|path| diskside_objects::is_url(path))
    }

    /// Takes a relative directory as one beside the configuration, which is in this directory.
    pub fn beside(&mut self, directory: &Path) {
        if self.directory().is_some() && !self.path.as_os_str().is_empty() {
            self.path = directory.join(&self.path);
        }
    }

    /// The directory, unless objects are exported.
    pub fn directory(&self) -> Option<&Path> {
        self.url().is_none().then_some(&self.path)
    }

    /// Checks every field; the error says which and what to write instead.
    pub fn check(&self) -> Result<(), String> {
        check_name(&self.name)?;
        if self.name.bytes().all(|byte| byte == b'.') {
            return Err("a name of dots alone means another directory in a path; choose another".into());
        }
        if self.path.as_os_str().is_empty() {
            return Err("the path is empty".into());
        }
        if self.url().is_some() {
            let as_somebody = self.uid.is_some() || self.gid.is_some() || !self.groups.is_empty();
            if self.rw || as_somebody || !self.access.is_auto() {
                return Err("objects of a store are read-only, and belong to no user of this machine: \
                            drop rw, uid=, gid=, groups, buffered and direct"
                    .into());
            }
        }
        if self.uid == Some(u32::MAX) || self.gid == Some(u32::MAX) || self.groups.contains(&u32::MAX) {
            return Err("4294967295 is no user and no group: it means \"unchanged\"".into());
        }
        Ok(())
    }

    fn apply_option(&mut self, option: &str) -> Result<(), String> {
        let number = |key: &str, value: &str| {
            value.parse::<u32>().map_err(|_| format!("`{key}={value}` is not a number; see `id NAME`"))
        };
        match option.split_once('=') {
            None if option == "rw" => self.rw = true,
            // As without it: for those who want it said.
            None if option == "ro" => {}
            None if option == "buffered" => self.access = FileAccess::Buffered,
            None if option == "direct" => self.access = FileAccess::Direct,
            Some(("uid", value)) => self.uid = Some(number("uid", value)?),
            Some(("gid", value)) => self.gid = Some(number("gid", value)?),
            _ => {
                return Err(format!(
                    "unknown option `{option}`; known are rw, ro, uid=, gid=, buffered, direct \
                     (a path with a comma needs an [[export]] table)"
                ));
            }
        }
        Ok(())
    }
}

impl FromStr for ExportSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, rest) = text
            .split_once('=')
            .ok_or_else(|| format!("`{text}` is not an export; write NAME=PATH[,rw][,uid=N][,gid=N][,direct]"))?;
        let mut parts = rest.split(',');
        let mut spec = Self::new(name, parts.next().unwrap_or_default());
        for option in parts.clone() {
            spec.apply_option(option).map_err(|error| format!("export `{name}`: {error}"))?;
        }
        if spec.rw && parts.any(|option| option == "ro") {
            return Err(format!("export `{name}`: `ro` and `rw` exclude each other; drop one"));
        }
        spec.check().map_err(|error| format!("export `{name}`: {error}"))?;
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_says_all_that_most_need() {
        let spec: ExportSpec = "data=/srv/data,rw,uid=1000,gid=100,direct".parse().unwrap();
        let want = ExportSpec {
            rw: true,
            uid: Some(1000),
            gid: Some(100),
            access: FileAccess::Direct,
            ..ExportSpec::new("data", "/srv/data")
        };
        assert_eq!(spec, want);
        assert_eq!("a=b=c".parse(), Ok(ExportSpec::new("a", "b=c")));
        assert_eq!("a=b,ro".parse(), Ok(ExportSpec::new("a", "b")));
        let store: ExportSpec = "a=s3://bucket/2026/logs".parse().unwrap();
        assert_eq!((store.url(), store.directory()), (Some("s3://bucket/2026/logs"), None));
        assert_eq!((spec.url(), spec.directory()), (None, Some(Path::new("/srv/data"))));
    }

    #[test]
    fn what_is_wrong_is_said_with_the_export_and_the_remedy() {
        for (text, hint) in [
            ("/srv/data", "write NAME=PATH"),
            ("=x", "must be 1 to 64"),
            ("a/b=x", "must be 1 to 64"),
            ("..=x", "choose another"),
            ("a=", "export `a`: the path is empty"),
            ("a=x,wr", "unknown option `wr`; known are rw, ro,"),
            ("a=x,ro,rw", "export `a`: `ro` and `rw` exclude each other"),
            ("a=x,ro=1", "unknown option `ro=1`"),
            ("a=x,uid=root", "`uid=root` is not a number; see `id NAME`"),
            ("a=x,uid=-1", "is not a number"),
            ("a=x,gid=4294967295", "is no user and no group"),
            ("a=s3://bucket/logs,rw", "objects of a store are read-only"),
            ("a=https://server/data,uid=1000", "belong to no user of this machine"),
        ] {
            let error = text.parse::<ExportSpec>().unwrap_err();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }
}
