//! Why a target cannot be built, served or changed.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use diskside_export::ExportError;
use diskside_keys::KeyFileError;
use diskside_nvme::controller;

use crate::config::{ConfigError, Security};
use crate::keyring::KeyRingError;

/// Why a target cannot be built, or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A volume cannot be opened.
    #[error("volume `{name}`: {error}")]
    Volume {
        /// The volume.
        name: String,
        /// Why.
        error: io::Error,
    },
    /// A directory cannot be exported.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// A key cannot be read.
    #[error("host `{host}`: the key in {source}")]
    Key {
        /// Whose.
        host: String,
        /// Which file, and why.
        source: KeyFileError,
    },
    /// Hosts have keys of TLS, and there is none here.
    #[error("hosts have keys of TLS (tls_keys): {0}")]
    Tls(diskside_tls::Unavailable),
    /// There is a volume of this name already.
    #[error("there is a volume `{0}` already")]
    VolumeExists(String),
    /// There is no volume of this name.
    #[error("there is no volume `{0}`")]
    NoSuchVolume(String),
    /// The subsystem refused it.
    #[error(transparent)]
    Subsystem(#[from] controller::ConfigError),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {}", why_not_listening(*address, error))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// A socket that the process was given cannot be used.
    #[error("a socket that this process was given: {0}")]
    Inherited(io::Error),
    /// What changed needs a new start.
    #[error("{0}")]
    NeedsRestart(String),
    /// The audit file cannot be opened.
    #[error("the audit file {}: {error}", path.display())]
    Audit {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The compute namespace cannot be set up.
    #[error("compute: {0}")]
    Compute(io::Error),
    /// Signals cannot be waited for.
    #[error("cannot wait for signals: {0}")]
    Signals(io::Error),
    /// A reactor cannot start, or cannot continue.
    #[error("reactor {index}: {error}")]
    Reactor {
        /// Which.
        index: usize,
        /// Why.
        error: io::Error,
    },
}

impl TargetError {
    pub(super) fn audit(security: &Security, error: io::Error) -> Self {
        Self::Audit { path: security.audit.clone().unwrap_or_default(), error }
    }
}

impl From<KeyRingError> for TargetError {
    fn from(error: KeyRingError) -> Self {
        match error {
            KeyRingError::Config(error) => error.into(),
            KeyRingError::Key { host, source } => Self::Key { host, source },
            KeyRingError::Tls(source) => Self::Tls(source),
        }
    }
}

/// Why an address cannot be listened on, and what can be done about it.
fn why_not_listening(address: SocketAddr, error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another program listens there; stop it, or choose another port, or port 0 for a free one".into()
        }
        io::ErrorKind::AddrNotAvailable => {
            format!(
                "this machine does not have the address {}; 0.0.0.0 and [::] stand for all that it has",
                address.ip()
            )
        }
        io::ErrorKind::PermissionDenied => "ports below 1024 need privileges; choose a higher one".into(),
        _ => return error.to_string(),
    };
    format!("{error}: {remedy}")
}
