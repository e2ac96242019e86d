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
mod check;
mod error;
mod exposed;
mod limits;
mod lines;
mod listen;
mod moment;
mod nqn;
mod quota;
mod reach;
mod security;
mod settings;
mod warnings;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use nqn::default_nqn;
use serde::Serialize;

pub use address::{parse_address, parse_metrics_address};
pub use diskside_compute::{ComputeConfig, ComputeSettings};
pub use diskside_export::{ExportSpec, FileAccess};
pub use diskside_nvme::controller::PathState;
pub use diskside_rights::{FunctionRule, GrantSpec, MemoryRight, Mode};
pub use diskside_volume::{Size, Source, VolumeSpec};
pub use error::ConfigError;
pub use limits::{LimitSettings, Limits};
pub use listen::ListenSpec;
pub use moment::Moment;
pub use nqn::check_nqn;
pub use quota::QuotaSpec;
pub use security::{HostSpec, KeyFile, Requirement, Security, SecuritySettings, check_host_name};
pub use settings::{Settings, read_config};

/// A checked configuration: what the target runs with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServeConfig {
    /// Addresses to listen on, and the states of these paths; port 0 takes a free one.
    pub listen: Vec<ListenSpec>,
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

impl ServeConfig {
    /// Fills in defaults and checks everything that can be checked without opening anything.
    pub fn resolve(settings: Settings) -> Result<Self, ConfigError> {
        settings.security.check()?;
        let listen = settings.listen.clone();
        let reactors = settings.reactors.is_none() && settings.cores.is_none();
        let mut config = Self::listening_nowhere(settings);
        if reactors {
            config.reactors = default_reactors();
        }
        config.listen = listen.unwrap_or_else(|| vec![SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)).into()]);
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

    /// Whether hosts have to prove their identity. A list of names is not a proof: anybody can claim one.
    pub fn authenticates_hosts(&self) -> bool {
        self.security.require != Requirement::None
    }

    /// Whether a connection that does not begin with TLS is refused at once. Not where a host makes the key of its channel by
    /// authenticating, in the clear.
    pub(crate) fn begins_with_tls(&self) -> bool {
        self.security.require.needs_tls() && self.known_hosts.iter().all(|host| !host.tls_keys.is_empty())
    }
}

/// One for each core that this process may use, as far as the default memory goes.
fn default_reactors() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(8))
}

/// The port that IANA assigned to NVMe over Fabrics.
pub const PORT: u16 = 4420;
/// Volumes of one subsystem.
pub const VOLUMES_MAX: usize = 1024;
/// Exported directories of one target.
pub const EXPORTS_MAX: usize = 256;
