//! The user's text: the settings of a file or of flags, and how one wins over the other.

use std::fs::File;
use std::io::Read as _;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use diskside_compute::ComputeSettings;
use diskside_export::ExportSpec;
use diskside_rights::GrantSpec;
use diskside_volume::VolumeSpec;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use super::address;
use super::error::ConfigError;
use super::limits::LimitSettings;
use super::listen::ListenSpec;
use super::quota::QuotaSpec;
use super::security::{HostSpec, SecuritySettings};

/// The user's text, in a file or as flags. Absent fields get a default in
/// [`ServeConfig::resolve`](super::ServeConfig::resolve).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Addresses or names to listen on, and the states of these paths; port 0 takes a free one. Absent: port 4420 of 127.0.0.1,
    /// for this machine alone.
    pub listen: Option<Vec<ListenSpec>>,
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
    #[serde(default, deserialize_with = "address::parse_metrics")]
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

impl Settings {
    /// Reads and parses the file at `path`. For root it must be root's: another owner could have root serve any file, or become any
    /// user.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let text = read_checked(path, geteuid().is_root())?;
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

/// The text of a configuration, which says who is let in.
///
/// # Errors
/// It cannot be read, or everybody on the machine could have written it.
pub fn read_config(path: &Path) -> Result<String, ConfigError> {
    read_checked(path, false)
}

fn read_checked(path: &Path, must_be_of_root: bool) -> Result<String, ConfigError> {
    let cannot = |error| ConfigError::Read { path: path.to_owned(), error };
    let mut file = File::open(path).map_err(cannot)?;
    // The metadata of the open file, not of one that may be in its place a moment later.
    let metadata = file.metadata().map_err(cannot)?;
    let mode = metadata.permissions().mode() & 0o7777;
    if metadata.is_file() && mode & 0o002 != 0 {
        return Err(ConfigError::Writable { path: path.to_owned(), mode });
    }
    if must_be_of_root && metadata.is_file() && metadata.uid() != 0 {
        return Err(ConfigError::Owner { path: path.to_owned(), owner: metadata.uid() });
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(cannot)?;
    Ok(text)
}
