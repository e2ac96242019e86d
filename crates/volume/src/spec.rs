//! The specification of a volume: `NAME=PATH[,rw][,size=…][,block=4096]` or a `[[volume]]` table.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Size;
use crate::media::{ATOMIC_LEN_MAX, ATOMIC_LEN_MIN, DELTA_DEPTH_MAX};

/// One volume as the user wrote it.
///
/// As a flag: `NAME=PATH[,option…]`, where PATH is a file or a block device, `mem:SIZE` for memory, `s3://BUCKET/KEY` or
/// `https://HOST/PATH` for an object of a store, which is read-only, or `lossy:PATH` for a test volume that loses what was not flushed. Options: `rw` lets hosts write, `ro` says that they
/// may not, which is so without it; `size=SIZE` creates the file or grows it, `block=512|4096` sets the logical block,
/// `buffered` goes through the page cache, `latency_us=N` and `rate=SIZE` make it as slow as another disk, `atomic=16KiB` makes writes of so many bytes
/// whole or nothing (`journal=PATH`: where their journal is; `delta_depth=N`: pages of deltas at a time), `nsid=N` fixes the namespace ID, `uuid=…` the namespace UUID.
/// A path with a comma needs the table form in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeSpec {
    /// The name that users and statistics know it by: letters, digits, `.`, `_`, `-`; at most 64 bytes.
    pub name: String,
    /// Where the bytes are: a path, `mem:SIZE`, the URL of an object, or `lossy:PATH`.
    pub path: String,
    /// Create a file of this size, or grow it to it. A file is never shrunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// Let hosts write. Without it every change is refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rw: bool,
    /// The logical block in bytes: 512 or 4096 (the default).
    #[serde(default = "default_block_bytes")]
    pub block: u32,
    /// Go through the page cache instead of `O_DIRECT`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub buffered: bool,
    /// Every access takes so many microseconds longer, up to a second: for measurements. Then a volume in memory is read as
    /// a disk is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<u32>,
    /// Accesses move no more than so many bytes a second together: for measurements, as `latency_us`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Size>,
    /// Writes of up to so many bytes, 4 to 64 KiB, are there as a whole or not at all, also when the target is killed or power
    /// fails. What was written goes through a journal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub atomic: Option<Size>,
    /// Where that journal is: a file, which is made, or a block device; beside the volume, with `.journal` behind its name, when
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<String>,
    /// Pages that are read for deltas, or written to their places, at a time: 1 to 64; 16 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta_depth: Option<u32>,
    /// The namespace ID; the first free one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nsid: Option<u32>,
    /// The namespace UUID; made from machine, subsystem and name when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
}

/// Where the bytes of a volume are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A regular file or a block device.
    Path(PathBuf),
    /// Anonymous memory; empty at every start.
    Memory(Size),
    /// An object of a store, by its URL.
    Object(String),
    /// A file whose unflushed writes are kept in memory only, and are lost with the process. For tests.
    Lossy(PathBuf),
}

impl VolumeSpec {
    /// A volume of defaults: 4096-byte blocks, read-only, direct.
    pub fn new(name: impl Into<String>, path: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            path: path.into(),
            size: None,
            rw: false,
            block: default_block_bytes(),
            buffered: false,
            latency_us: None,
            rate: None,
            atomic: None,
            journal: None,
            delta_depth: None,
            nsid: None,
            uuid: None,
        }
    }

    /// The same, which hosts may write.
    #[must_use]
    pub fn writable(self) -> Self {
        Self { rw: true, ..self }
    }

    /// Where the bytes are, from [`VolumeSpec::path`].
    pub fn source(&self) -> Result<Source, String> {
        if let Some(size) = self.path.strip_prefix("mem:") {
            return size.parse().map(Source::Memory);
        }
        if diskside_objects::is_url(&self.path) {
            return Ok(Source::Object(self.path.clone()));
        }
        let (path, lossy) = match self.path.strip_prefix("lossy:") {
            Some(path) => (path, true),
            None => (self.path.as_str(), false),
        };
        if path.is_empty() {
            return Err("the path is empty".into());
        }
        let path = PathBuf::from(path);
        Ok(if lossy { Source::Lossy(path) } else { Source::Path(path) })
    }

    /// Takes a relative path as one beside the configuration, which is in this directory.
    pub fn beside(&mut self, directory: &Path) {
        let (prefix, path) = match self.source() {
            Ok(Source::Path(path)) => ("", path),
            Ok(Source::Lossy(path)) => ("lossy:", path),
            _ => return,
        };
        if path.is_relative() {
            self.path = format!("{prefix}{}", directory.join(path).display());
        }
    }

    /// The UUID as 16 bytes, when one is written.
    pub fn uuid_bytes(&self) -> Result<Option<[u8; 16]>, String> {
        self.uuid.as_deref().map(parse_uuid).transpose()
    }

    /// Checks every field; the error says which and what to write instead.
    pub fn check(&self) -> Result<(), String> {
        check_name(&self.name)?;
        let source = self.source()?;
        if let (Source::Memory(_), Some(_)) = (&source, self.size) {
            return Err("`mem:SIZE` already says the size; drop `size=`".into());
        }
        if matches!(source, Source::Object(_)) && (self.rw || self.size.is_some()) {
            return Err("an object of a store is read-only; drop `rw` and `size=`".into());
        }
        if self.buffered && matches!(source, Source::Memory(_) | Source::Object(_)) {
            return Err("only files and devices have a page cache; drop `buffered`".into());
        }
        if self.block != 512 && self.block != 4096 {
            return Err(format!("a block of {} bytes is not supported; use 512 or 4096", self.block));
        }
        let size = match source {
            Source::Memory(size) => Some(size),
            _ => self.size,
        };
        if let Some(size) = size
            && (size.bytes() == 0 || !size.bytes().is_multiple_of(u64::from(self.block)))
        {
            return Err(format!("the size {size} is not a positive multiple of the {}-byte block", self.block));
        }
        if !self.rw && self.size.is_some() {
            return Err("a read-only volume is neither made nor grown; add `rw`, or drop `size=`".into());
        }
        if self.latency_us.is_some_and(|latency_us| latency_us > LATENCY_US_MAX) {
            return Err(format!("a latency is at most {LATENCY_US_MAX} us"));
        }
        if self.rate.is_some_and(|rate| rate.bytes() == 0) {
            return Err("a rate of 0 moves nothing; write bytes a second, such as rate=2GiB".into());
        }
        self.check_atomic()?;
        if self.nsid == Some(0) || self.nsid == Some(u32::MAX) {
            return Err("a namespace ID is between 1 and 4294967294".into());
        }
        self.uuid_bytes().map(drop)
    }
}

impl VolumeSpec {
    fn check_atomic(&self) -> Result<(), String> {
        let Some(atomic) = self.atomic else {
            return match self.journal {
                Some(_) => Err("a journal is for atomic writes: add atomic=16KiB, or drop `journal=`".into()),
                None if self.delta_depth.is_some() => {
                    Err("deltas need a journal: add atomic=16KiB, or drop `delta_depth=`".into())
                }
                None => Ok(()),
            };
        };
        let len = atomic.bytes();
        if !len.is_power_of_two() || !(ATOMIC_LEN_MIN..=ATOMIC_LEN_MAX).contains(&len) {
            return Err(format!("atomic={atomic} is not 4, 8, 16, 32 or 64 KiB"));
        }
        if self.delta_depth.is_some_and(|depth| !(1..=DELTA_DEPTH_MAX).contains(&depth)) {
            return Err(format!("a delta_depth is 1 to {DELTA_DEPTH_MAX} pages"));
        }
        if !self.rw {
            return Err("nobody writes a read-only volume; add `rw`, or drop `atomic=`".into());
        }
        match self.source()? {
            Source::Memory(_) => Err("memory does not outlive the target; drop `atomic=`".into()),
            Source::Object(_) => Err("an object is read-only; drop `atomic=`".into()),
            Source::Path(path) if path.starts_with("/dev") && self.journal.is_none() => {
                Err("the journal of a device has to be named: journal=PATH".into())
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for VolumeSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, rest) = text
            .split_once('=')
            .ok_or_else(|| format!("`{text}` is not a volume; write NAME=PATH[,rw][,size=SIZE][,block=512|4096]"))?;
        let mut parts = rest.split(',');
        let mut spec = Self::new(name, parts.next().unwrap_or_default());
        spec.apply_options(&parts.collect::<Vec<_>>())
            .and_then(|()| spec.check())
            .map_err(|error| format!("volume `{name}`: {error}"))?;
        Ok(spec)
    }
}

impl VolumeSpec {
    fn apply_options(&mut self, options: &[&str]) -> Result<(), String> {
        let key = |option: &str| option.split_once('=').map_or(option, |(key, _)| key).to_owned();
        for (index, option) in options.iter().enumerate() {
            self.apply_option(option)?;
            if options[..index].iter().any(|earlier| key(earlier) == key(option)) {
                return Err(format!("`{}` is there twice; drop one", key(option)));
            }
        }
        if self.rw && options.contains(&"ro") {
            return Err("`ro` and `rw` exclude each other; drop one".into());
        }
        Ok(())
    }

    fn apply_option(&mut self, option: &str) -> Result<(), String> {
        let (key, value) = match option.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (option, None),
        };
        let needs = |value: Option<&str>| {
            value
                .filter(|value| !value.is_empty())
                .map(str::to_owned)
                .ok_or_else(|| format!("`{key}` needs a value: `{key}=…`"))
        };
        let number = |value: String| value.parse::<u32>().map_err(|_| format!("`{key}={value}` is not a number"));
        match (key, value) {
            ("rw", None) => self.rw = true,
            // As without it: for those who want it said.
            ("ro", None) => {}
            ("buffered", None) => self.buffered = true,
            ("rw" | "ro" | "buffered", Some(_)) => return Err(format!("`{key}` takes no value")),
            ("size", value) => self.size = Some(needs(value)?.parse()?),
            ("block", value) => self.block = number(needs(value)?)?,
            ("latency_us", value) => self.latency_us = Some(number(needs(value)?)?),
            ("rate", value) => self.rate = Some(needs(value)?.parse()?),
            ("atomic", value) => self.atomic = Some(needs(value)?.parse()?),
            ("journal", value) => self.journal = Some(needs(value)?),
            ("delta_depth", value) => self.delta_depth = Some(number(needs(value)?)?),
            ("nsid", value) => self.nsid = Some(number(needs(value)?)?),
            ("uuid", value) => self.uuid = Some(needs(value)?),
            _ => {
                return Err(format!(
                    "unknown option `{option}`; known are rw, ro, size=, block=, buffered, latency_us=, rate=, \
                     atomic=, journal=, delta_depth=, nsid=, uuid= \
                     (a path with a comma needs a [[volume]] table)"
                ));
            }
        }
        Ok(())
    }
}

/// A volume's or export's name: what can stand in a URL and in a path.
pub fn check_name(name: &str) -> Result<(), String> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(fine) {
        return Err(format!(
            "the name `{}` must be 1 to {NAME_BYTES_MAX} letters, digits, `.`, `_` or `-`",
            name.escape_debug()
        ));
    }
    Ok(())
}

fn parse_uuid(text: &str) -> Result<[u8; 16], String> {
    let error = || format!("`{text}` is not a UUID; write 32 hex digits as 8-4-4-4-12");
    let hex: String = text.split('-').collect();
    let dashes: Vec<usize> = text.match_indices('-').map(|(at, _)| at).collect();
    if hex.len() != 32 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) || dashes != [8, 13, 18, 23] {
        return Err(error());
    }
    let mut bytes = [0; 16];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * index..2 * index + 2], 16).map_err(|_| error())?;
    }
    if bytes == [0; 16] {
        return Err("the UUID of all zeroes means none".into());
    }
    Ok(bytes)
}

const fn default_block_bytes() -> u32 {
    4096
}

const NAME_BYTES_MAX: usize = 64;
/// Far from the time in which hosts give up a command.
const LATENCY_US_MAX: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_says_all_a_table_can() {
        let spec: VolumeSpec =
            "data=/srv/data.img,rw,size=1GiB,block=512,buffered,nsid=7,uuid=00112233-4455-6677-8899-aabbccddeeff"
                .parse()
                .unwrap();
        assert_eq!(spec.source(), Ok(Source::Path("/srv/data.img".into())));
        assert_eq!((spec.size, spec.block, spec.buffered), (Some(Size::from_mib(1024)), 512, true));
        assert_eq!((spec.nsid, spec.rw), (Some(7), true));
        assert_eq!(spec.uuid_bytes().unwrap().unwrap()[..4], [0x00, 0x11, 0x22, 0x33]);
        let memory: VolumeSpec = "fast=mem:64MiB".parse().unwrap();
        assert_eq!((memory.source(), memory.rw), (Ok(Source::Memory(Size::from_mib(64))), false));
        let slow: VolumeSpec = "slow=mem:64MiB,latency_us=90,rate=2GiB".parse().unwrap();
        assert_eq!((slow.latency_us, slow.rate), (Some(90), Some(Size::from_mib(2048))));
        let object: VolumeSpec = "far=s3://bucket/a/key,latency_us=5".parse().unwrap();
        assert_eq!(object.source(), Ok(Source::Object("s3://bucket/a/key".into())));
        let lossy: VolumeSpec = "test=lossy:a.img,ro".parse().unwrap();
        assert_eq!((lossy.source(), lossy.rw), (Ok(Source::Lossy("a.img".into())), false));
    }

    #[test]
    fn what_is_wrong_is_said_with_the_volume_and_the_remedy() {
        for (text, hint) in [
            ("/srv/data.img", "write NAME=PATH"),
            ("=x", "must be 1 to 64"),
            ("a b=x", "must be 1 to 64"),
            ("a=", "volume `a`: the path is empty"),
            ("a=x,size", "`size` needs a value"),
            ("a=x,size=64M", "`64MiB` (1024)"),
            ("a=x,size=1000", "multiple of the 4096-byte block"),
            ("a=x,block=1024", "use 512 or 4096"),
            ("a=x,wr", "unknown option `wr`; known are rw, ro,"),
            ("a=x,rw,ro", "volume `a`: `ro` and `rw` exclude each other"),
            ("a=x,rw,rw", "volume `a`: `rw` is there twice; drop one"),
            ("a=x,rw,size=1MiB,size=2MiB", "`size` is there twice"),
            ("a=mem:1MiB,buffered", "only files and devices have a page cache"),
            ("a=x,rw=1", "`rw` takes no value"),
            ("a=x,ro=1", "`ro` takes no value"),
            ("a=x,size=1MiB", "add `rw`, or drop `size=`"),
            ("a=mem:1MiB,size=1MiB", "drop `size=`"),
            ("a=mem:0", "not a positive multiple"),
            ("a=s3://bucket/key,rw", "an object of a store is read-only"),
            ("a=x,latency_us=fast", "`latency_us=fast` is not a number"),
            ("a=x,latency_us=2000000", "at most 1000000 us"),
            ("a=x,rate=0", "moves nothing"),
            ("a=x,delta_depth=4", "add atomic=16KiB"),
            ("a=x,rw,atomic=16KiB,delta_depth=65", "1 to 64 pages"),
            ("a=x,nsid=0", "between 1 and 4294967294"),
            ("a=x,uuid=12", "8-4-4-4-12"),
            ("a=x,uuid=é0112233-4455-6677-8899-aabbccddeef", "8-4-4-4-12"),
            ("a=x,uuid=00000000-0000-0000-0000-000000000000", "means none"),
        ] {
            let error = text.parse::<VolumeSpec>().unwrap_err();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }
}
