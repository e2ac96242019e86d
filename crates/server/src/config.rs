//! The configuration: a TOML file, flags, or both, checked before anything is opened.
//!
//! [`Settings`] is the user's text, in a file or as flags; every field may be absent.
//! [`ServeConfig`] is what the target runs with. Flags win over the file; their volumes are added to it.
//!
//! ```
//! use diskside_server::config::{ServeConfig, Settings};
//!
//! let file = Settings::from_toml(
//!     r#"
//!     listen = ["127.0.0.1:4420"]
//!     [[volume]]
//!     name = "data"
//!     path = "mem:64MiB"
//!     "#,
//!     "diskside.toml",
//! )?;
//! let flags = Settings { reactors: Some(2), ..Settings::default() };
//! let config = ServeConfig::resolve(file.overridden_by(flags))?;
//! assert_eq!(config.reactors, 2);
//! # Ok::<(), diskside_server::config::ConfigError>(())
//! ```

mod address;
mod exposed;
mod limits;
mod lines;
mod moment;
mod quota;
mod reach;
mod security;
mod warnings;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use diskside_nvme::{DISCOVERY_NQN, NQN_LEN_MAX, Nqn};
use diskside_rights::{Grants, Quotas};
use serde::{Deserialize, Serialize};

pub use address::parse_address;
pub use diskside_compute::{ComputeConfig, ComputeSettings};
pub use diskside_export::{ExportSpec, FileAccess};
pub use diskside_rights::{FunctionRule, GrantSpec, MemoryRight, Mode};
pub use diskside_volume::{Size, Source, VolumeSpec};
pub use limits::{LimitSettings, Limits};
pub use moment::Moment;
pub use quota::QuotaSpec;
pub use security::{HostSpec, KeyFile, Requirement, Security, SecuritySettings, check_host_name};

/// The user's text, in a file or as flags. Absent fields get a default in [`ServeConfig::resolve`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Addresses or names to listen on; port 0 takes a free one. Absent: port 4420 of 127.0.0.1, for this machine alone.
    #[serde(default, deserialize_with = "address::parse_list")]
    pub listen: Option<Vec<SocketAddr>>,
    /// Addresses that discovery tells hosts, where they differ from those listened on.
    #[serde(default, deserialize_with = "address::parse_list")]
    pub advertise: Option<Vec<SocketAddr>>,
    /// The NQN of the subsystem.
    pub nqn: Option<String>,
    /// NQNs of the hosts that may connect; absent or empty: any host.
    pub hosts: Option<Vec<String>>,
    /// Listen beyond this machine although hosts are not authenticated.
    pub insecure: Option<bool>,
    /// The user that a server becomes which root starts: a name, or `UID:GID`; absent: `diskside`, or an account that
    /// can open everything.
    pub user: Option<String>,
    /// Whether the server's process gives up what it does not need. Absent: yes.
    pub confine: Option<bool>,
    /// The number of reactors, one thread each; absent: one for each core, at most 8.
    pub reactors: Option<usize>,
    /// Cores to pin the reactors to, in order.
    pub cores: Option<Vec<usize>>,
    /// How long a reactor polls at most before it sleeps, in microseconds, four times that while a disk owes it an answer;
    /// less while that does not pay.
    pub poll_us: Option<u32>,
    /// TCP congestion control of accepted connections, such as `reno`, `cubic` or `bbr`.
    pub congestion_control: Option<String>,
    /// The address at which the server tells what it does: a page for browsers, and numbers for Prometheus. Absent: nowhere.
    #[serde(default, deserialize_with = "address::parse_one")]
    pub metrics: Option<SocketAddr>,
    /// Directories in which there may be exports and volumes later, when the configuration is read again.
    pub reach: Option<Vec<PathBuf>>,
    /// Bounds of what peers can take.
    #[serde(default)]
    pub limits: LimitSettings,
    /// What is computed, and how much of it.
    #[serde(default)]
    pub compute: ComputeSettings,
    /// How hosts prove who they are.
    #[serde(default)]
    pub security: SecuritySettings,
    /// The hosts that are known.
    #[serde(default, rename = "host")]
    pub known_hosts: Vec<HostSpec>,
    /// The rights of hosts; without any, each may use all that is served.
    #[serde(default, rename = "grant")]
    pub grants: Vec<GrantSpec>,
    /// How much hosts may take; without any, each what all may.
    #[serde(default, rename = "quota")]
    pub quotas: Vec<QuotaSpec>,
    /// The volumes.
    #[serde(default, rename = "volume")]
    pub volumes: Vec<VolumeSpec>,
    /// The exported directories.
    #[serde(default, rename = "export")]
    pub exports: Vec<ExportSpec>,
    /// The file that they were read from.
    #[serde(skip)]
    pub file: Option<PathBuf>,
}

/// A checked configuration: what the target runs with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServeConfig {
    /// Addresses to listen on; port 0 takes a free one.
    pub listen: Vec<SocketAddr>,
    /// Addresses that discovery tells hosts; empty: those listened on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub advertise: Vec<SocketAddr>,
    /// The NQN of the subsystem.
    pub nqn: String,
    /// NQNs of the hosts that may connect; empty: any host.
    pub hosts: Vec<String>,
    /// Listen beyond this machine although hosts are not authenticated.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
    /// The user that a server becomes which root starts; `None`: `diskside`, or an account that can open everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Whether the server's process gives up what it does not need. Only the command `diskside serve` does; see
    /// [`confine`](crate::confine).
    pub confine: bool,
    /// The number of reactors, one thread each.
    pub reactors: usize,
    /// Cores to pin the reactors to, in order; empty: not pinned.
    pub cores: Vec<usize>,
    /// How long a reactor polls at most before it sleeps, in microseconds, four times that while a disk owes it an answer;
    /// less while that does not pay.
    pub poll_us: u32,
    /// TCP congestion control of accepted connections; `None`: the system's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// The address at which the server tells what it does; `None`: nowhere. Only the command `diskside serve` does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<SocketAddr>,
    /// Directories in which there may be exports and volumes later; see [`confine`](crate::confine).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reach: Vec<PathBuf>,
    /// Bounds of what peers can take.
    pub limits: Limits,
    /// What is computed, and how much of it.
    pub compute: ComputeConfig,
    /// How hosts prove who they are.
    pub security: Security,
    /// The hosts that are known.
    #[serde(rename = "host", skip_serializing_if = "Vec::is_empty")]
    pub known_hosts: Vec<HostSpec>,
    /// The rights of hosts; without any, each may use all that is served.
    #[serde(rename = "grant", skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<GrantSpec>,
    /// How much hosts may take; without any, each what all may.
    #[serde(rename = "quota", skip_serializing_if = "Vec::is_empty")]
    pub quotas: Vec<QuotaSpec>,
    /// The volumes.
    #[serde(rename = "volume", skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeSpec>,
    /// The exported directories.
    #[serde(rename = "export", skip_serializing_if = "Vec::is_empty")]
    pub exports: Vec<ExportSpec>,
    /// The file that it was read from.
    #[serde(skip)]
    pub file: Option<PathBuf>,
}

impl Settings {
    /// Reads and parses the file at `path`.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let text = read_config(path)?;
        let mut settings = Self::from_toml(&text, &path.display().to_string())?;
        let beside = std::path::absolute(path).map_err(|error| ConfigError::Read { path: path.to_owned(), error })?;
        let directory = beside.parent().unwrap_or(Path::new("/"));
        settings.file = Some(beside.clone());
        for host in &mut settings.known_hosts {
            host.beside(directory);
        }
        settings.security.audit = settings.security.audit.map(|path| directory.join(path));
        settings.exports.iter_mut().for_each(|export| export.beside(directory));
        settings.volumes.iter_mut().for_each(|volume| volume.beside(directory));
        Ok(settings)
    }

    /// Parses `text`; `origin` names it in errors.
    pub fn from_toml(text: &str, origin: &str) -> Result<Self, ConfigError> {
        toml::from_str(text).map_err(|error| {
            let before = &text[..error.span().map_or(0, |span| span.start).min(text.len())];
            ConfigError::Parse {
                origin: origin.to_owned(),
                line: before.matches('\n').count() + 1,
                what: error.message().to_owned(),
            }
        })
    }

    /// These settings, with every field that `flags` sets replaced, and the volumes, exports and hosts of `flags` added.
    /// One of the same name is replaced.
    pub fn overridden_by(self, flags: Self) -> Self {
        let mut volumes = self.volumes;
        volumes.retain(|volume| flags.volumes.iter().all(|flag| flag.name != volume.name));
        volumes.extend(flags.volumes);
        let mut exports = self.exports;
        exports.retain(|export| flags.exports.iter().all(|flag| flag.name != export.name));
        exports.extend(flags.exports);
        let mut known_hosts = self.known_hosts;
        known_hosts.retain(|host| flags.known_hosts.iter().all(|flag| flag.name != host.name));
        known_hosts.extend(flags.known_hosts);
        Self {
            listen: flags.listen.or(self.listen),
            advertise: flags.advertise.or(self.advertise),
            nqn: flags.nqn.or(self.nqn),
            hosts: flags.hosts.or(self.hosts),
            insecure: flags.insecure.or(self.insecure),
            user: flags.user.or(self.user),
            confine: flags.confine.or(self.confine),
            reactors: flags.reactors.or(self.reactors),
            cores: flags.cores.or(self.cores),
            poll_us: flags.poll_us.or(self.poll_us),
            congestion_control: flags.congestion_control.or(self.congestion_control),
            metrics: flags.metrics.or(self.metrics),
            reach: flags.reach.or(self.reach),
            limits: self.limits.overridden_by(flags.limits),
            compute: self.compute.overridden_by(flags.compute),
            security: self.security.overridden_by(flags.security),
            known_hosts,
            grants: self.grants.into_iter().chain(flags.grants).collect(),
            quotas: self.quotas.into_iter().chain(flags.quotas).collect(),
            volumes,
            exports,
            file: self.file.or(flags.file),
        }
    }
}

impl ServeConfig {
    /// Fills in defaults and checks everything that can be checked without opening anything.
    pub fn resolve(settings: Settings) -> Result<Self, ConfigError> {
        let listen = settings.listen.clone();
        let reactors = settings.reactors.is_none() && settings.cores.is_none();
        let mut config = Self::listening_nowhere(settings);
        if reactors {
            config.reactors = default_reactors();
        }
        config.listen = listen.unwrap_or_else(|| vec![(Ipv4Addr::LOCALHOST, PORT).into()]);
        if config.listen.is_empty() {
            let what = "no address; write at least one, such as 127.0.0.1:4420".into();
            return Err(ConfigError::Value { field: "listen".into(), what });
        }
        config.check()?;
        config.check_granted_names()?;
        Ok(config)
    }

    /// Fills in defaults, and leaves open where to listen.
    pub(crate) fn listening_nowhere(settings: Settings) -> Self {
        Self {
            listen: Vec::new(),
            advertise: settings.advertise.unwrap_or_default(),
            nqn: settings.nqn.unwrap_or_else(default_nqn),
            hosts: settings.hosts.unwrap_or_default(),
            insecure: settings.insecure.unwrap_or(false),
            user: settings.user,
            confine: settings.confine.unwrap_or(true),
            reactors: settings
                .reactors
                .unwrap_or_else(|| settings.cores.as_ref().map_or(1, |cores| cores.len().max(1))),
            cores: settings.cores.unwrap_or_default(),
            poll_us: settings.poll_us.unwrap_or(100),
            congestion_control: settings.congestion_control,
            metrics: settings.metrics,
            reach: settings.reach.unwrap_or_default(),
            limits: Limits::resolve(settings.limits),
            compute: ComputeConfig::resolve(settings.compute),
            security: Security::resolve(settings.security, &settings.known_hosts),
            known_hosts: settings.known_hosts,
            grants: settings.grants,
            quotas: settings.quotas,
            volumes: settings.volumes,
            exports: settings.exports,
            file: settings.file,
        }
    }

    /// The configuration as TOML; parsing and resolving it gives the same configuration.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).unwrap_or_else(|error| format!("# cannot be written as TOML: {error}\n"))
    }

    /// Checks every field; a target that is only reached in memory may listen nowhere.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let wrong = |field: &str, what: String| Err(ConfigError::Value { field: field.to_owned(), what });
        if let Err(what) = check_nqn(&self.nqn) {
            return wrong("nqn", what);
        }
        if self.nqn == DISCOVERY_NQN {
            return wrong("nqn", "this is the discovery service's own name; choose another".into());
        }
        for host in &self.hosts {
            if let Err(what) = check_nqn(host) {
                return wrong("hosts", what);
            }
        }
        self.check_reach()?;
        if self.reactors == 0 || self.reactors > REACTORS_MAX {
            return wrong("reactors", format!("{} is not between 1 and {REACTORS_MAX}", self.reactors));
        }
        if !self.cores.is_empty() && self.cores.len() != self.reactors {
            let what = format!("{} cores for {} reactors; write one each", self.cores.len(), self.reactors);
            return wrong("cores", what);
        }
        if let Err((field, what)) = self.security.check(&self.known_hosts, &self.hosts) {
            return wrong(&field, what);
        }
        self.rights()?;
        self.quotas()?;
        self.limits.check(self.reactors)?;
        self.compute.check(|nsid| self.volumes.iter().any(|volume| volume.nsid == Some(nsid))).map_err(|problem| {
            ConfigError::Value { field: format!("compute.{}", problem.field), what: problem.what }
        })?;
        self.check_volumes()?;
        self.check_exports()
    }

    /// Whether hosts have to prove their identity. A list of names is not a proof: anybody can claim one.
    pub fn authenticates_hosts(&self) -> bool {
        self.security.require != Requirement::None
    }

    /// Whether a connection that does not begin with TLS is refused at once. Not where a host makes the key of its channel by
    /// authenticating, in the clear.
    pub(crate) fn begins_with_tls(&self) -> bool {
        self.security.require.needs_tls() && self.known_hosts.iter().all(|host| !host.tls_keys.is_empty())
    }

    /// What hosts may use.
    pub(crate) fn rights(&self) -> Result<Grants, ConfigError> {
        let known = || self.known_hosts.iter().map(|host| (&*host.name, &*host.nqn, &*host.groups));
        for (index, grant) in self.grants.iter().enumerate() {
            let wrong = |what| ConfigError::Value { field: nth("grant", index, self.grants.len()), what };
            if let Some(nqn) = grant.to.iter().find(|to| to.starts_with("nqn.")) {
                check_nqn(nqn).map_err(wrong)?;
            }
            Grants::new(std::slice::from_ref(grant), known()).map_err(wrong)?;
        }
        let grants =
            Grants::new(&self.grants, known()).map_err(|what| ConfigError::Value { field: "grant".into(), what })?;
        let signers = self
            .security
            .signers()
            .map_err(|what| ConfigError::Value { field: "security.require_signed_by".into(), what })?;
        Ok(if signers.is_empty() { grants } else { grants.requiring_signature(signers) })
    }

    /// How much hosts may take.
    pub(crate) fn quotas(&self) -> Result<Quotas, ConfigError> {
        let known = || self.known_hosts.iter().map(|host| (&*host.name, &*host.nqn, &*host.groups));
        for (index, quota) in self.quotas.iter().enumerate() {
            let wrong = |what| ConfigError::Value { field: nth("quota", index, self.quotas.len()), what };
            quota.check(&self.limits, &self.compute).map_err(|(field, what)| wrong(format!("{field}: {what}")))?;
            for nqn in quota.of.iter().filter(|of| of.starts_with("nqn.")) {
                check_nqn(nqn).map_err(wrong)?;
            }
            Quotas::new(&[quota.rule()], known()).map_err(wrong)?;
        }
        let rules: Vec<_> = self.quotas.iter().map(QuotaSpec::rule).collect();
        Quotas::new(&rules, known()).map_err(|what| ConfigError::Value { field: "quota".into(), what })
    }

    /// A name that is misspelt grants nothing, and nobody would know why.
    fn check_granted_names(&self) -> Result<(), ConfigError> {
        let volume = |name: &str| self.volumes.iter().any(|volume| volume.name == name);
        let export = |name: &str| self.exports.iter().any(|export| export.name == name);
        for (index, grant) in self.grants.iter().enumerate() {
            let wrong = |what| Err(ConfigError::Value { field: nth("grant", index, self.grants.len()), what });
            let missing = |name: &&String, there: &dyn Fn(&str) -> bool| *name != "*" && !there(name);
            let volumes = grant.volumes.keys().find(|name| missing(name, &volume)).map(|name| ("volume", name));
            let exports = grant.exports.keys().find(|name| missing(name, &export)).map(|name| ("export", name));
            if let Some((kind, name)) = volumes.or(exports) {
                return wrong(format!("there is no {kind} `{name}`; name one that is served, or \"*\" for all"));
            }
            let shipped = |name: &str| {
                name == diskside_scan::SCAN_NAME || diskside_functions::shipped().iter().any(|known| known.name == name)
            };
            let unknown = grant.functions.iter().find_map(|rule| match rule {
                FunctionRule::ShippedNamed(name) if !shipped(name) => Some(name),
                _ => None,
            });
            if let Some(name) = unknown {
                return wrong(format!(
                    "no function `{name}` comes with the server; `diskside functions` lists those that do"
                ));
            }
        }
        Ok(())
    }

    fn check_exports(&self) -> Result<(), ConfigError> {
        let wrong = |name: &str, what: String| Err(ConfigError::Value { field: format!("export `{name}`"), what });
        let mut names = BTreeSet::new();
        for export in &self.exports {
            if let Err(what) = export.check() {
                return wrong(&export.name, what);
            }
            if !names.insert(&export.name) {
                return wrong(&export.name, "there are two of this name".into());
            }
        }
        if self.exports.len() > EXPORTS_MAX {
            let what = format!("{} exports; at most {EXPORTS_MAX}", self.exports.len());
            return Err(ConfigError::Value { field: "export".into(), what });
        }
        Ok(())
    }

    fn check_volumes(&self) -> Result<(), ConfigError> {
        let wrong = |name: &str, what: String| Err(ConfigError::Value { field: format!("volume `{name}`"), what });
        let (mut names, mut nsids) = (BTreeSet::new(), BTreeSet::new());
        for volume in &self.volumes {
            if let Err(what) = volume.check() {
                return wrong(&volume.name, what);
            }
            if !names.insert(&volume.name) {
                return wrong(&volume.name, "there are two of this name".into());
            }
            if let Some(nsid) = volume.nsid
                && !nsids.insert(nsid)
            {
                return wrong(&volume.name, format!("namespace ID {nsid} is taken by another volume"));
            }
        }
        if self.volumes.len() > VOLUMES_MAX {
            let what = format!("{} volumes; at most {VOLUMES_MAX}", self.volumes.len());
            return Err(ConfigError::Value { field: "volume".into(), what });
        }
        Ok(())
    }
}

/// Why a configuration cannot be used: where, what, and what to write instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {error}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// Everybody on the machine may write the file.
    #[error(
        "{path}: its mode is {mode:04o}, so everybody on this machine could let himself in by it: look through it, and `chmod o-w` it, or keep it \
         where modes can be changed",
        path = path.display()
    )]
    Writable {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file is not TOML, or has a field that is unknown or of the wrong kind.
    #[error("{origin}:{line}: {what}")]
    Parse {
        /// The file.
        origin: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong there.
        what: String,
    },
    /// A value that cannot be.
    #[error("{field}: {what}")]
    Value {
        /// The field, as in the file.
        field: String,
        /// What is wrong with it.
        what: String,
    },
}

/// The text of a configuration, which says who is let in.
///
/// # Errors
/// It cannot be read, or everybody on the machine could have written it.
pub fn read_config(path: &Path) -> Result<String, ConfigError> {
    let cannot = |error| ConfigError::Read { path: path.to_owned(), error };
    let mut file = File::open(path).map_err(cannot)?;
    // The metadata of the open file, not of one that may be in its place a moment later.
    let metadata = file.metadata().map_err(cannot)?;
    let mode = metadata.permissions().mode() & 0o7777;
    if metadata.is_file() && mode & 0o002 != 0 {
        return Err(ConfigError::Writable { path: path.to_owned(), mode });
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(cannot)?;
    Ok(text)
}

/// Checks an NVMe Qualified Name (Base 4.5): `nqn.yyyy-mm.reverse.domain[:name]`, at most 223 bytes.
pub fn check_nqn(nqn: &str) -> Result<(), String> {
    let shown = nqn.escape_debug();
    if nqn.len() > NQN_LEN_MAX {
        return Err(format!("the NQN has {} bytes; at most {NQN_LEN_MAX}", nqn.len()));
    }
    let month = nqn.strip_prefix("nqn.").and_then(|rest| rest.split_once('.'));
    let dated = month.is_some_and(|(date, domain)| {
        let date = date.as_bytes();
        let digit = |at: usize| date[at].is_ascii_digit();
        date.len() == 7
            && (0..4).all(digit)
            && date[4] == b'-'
            && (5..7).all(digit)
            && !domain.is_empty()
            && !domain.starts_with(':')
    });
    if !dated || Nqn::new(nqn).is_err() {
        return Err(format!("`{shown}` is not an NQN; write nqn.YYYY-MM.reverse.domain:name"));
    }
    Ok(())
}

/// One for each core that this process may use, as far as the default memory goes.
fn default_reactors() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(8))
}

/// The subsystem's name when none is given: one per machine name, so that two machines do not look like
/// two paths to the same volumes.
fn default_nqn() -> String {
    let uname = rustix::system::uname();
    let host: String = uname
        .nodename()
        .to_string_lossy()
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || "._-".contains(*c))
        .take(64)
        .collect();
    let host = if host.is_empty() { "localhost" } else { &host };
    format!("nqn.2026-11.io.diskside:{host}")
}

/// The port that IANA assigned to NVMe over Fabrics.
pub const PORT: u16 = 4420;
/// Volumes of one subsystem.
pub const VOLUMES_MAX: usize = 1024;
/// Exported directories of one target.
pub const EXPORTS_MAX: usize = 256;
const REACTORS_MAX: usize = 256;

/// How errors call one of several tables of a kind.
fn nth(kind: &str, index: usize, of: usize) -> String {
    if of > 1 { format!("{kind} {}", index + 1) } else { kind.to_owned() }
}
