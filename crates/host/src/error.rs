//! The errors before there is a volume to send requests to.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use diskside_keys::KeyFileError;
use diskside_nvme::auth::{AuthError, Explanation};
use diskside_nvme::host::{CommandError, ConnectionError};
use diskside_nvme::wire::ConnectError;
use diskside_nvme::{Nqn, Status};
use diskside_tls::RecordError;

use crate::channel::ChannelError;
use crate::route::Peer;
use crate::url::UrlError;

/// Why a target, a subsystem or a namespace cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The URL is none.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The URL leaves out what is needed here.
    #[error("the URL names no {missing}: {example}")]
    Incomplete {
        /// What is missing.
        missing: &'static str,
        /// What would be right.
        example: &'static str,
    },
    /// The host's name has no address.
    #[error("cannot find the host {host:?}: {source}")]
    Resolve {
        /// The name.
        host: String,
        /// What the system said.
        source: io::Error,
    },
    /// The key's file cannot be used.
    #[error("the key of this host: {0}")]
    Key(#[from] KeyFileError),
    /// The key is another's.
    #[error(
        "the key in {} is that of {of}, and not of {nqn}: name the key of {nqn} (--key FILE), or none (--key none)",
        file.display()
    )]
    OtherKey {
        /// Who connects.
        nqn: Nqn,
        /// Whose key it is.
        of: Nqn,
        /// Where it is.
        file: PathBuf,
    },
    /// No connection.
    #[error("cannot connect to {address}: {source}{}", remedy_of_connect(source))]
    Connect {
        /// Where to.
        address: Peer,
        /// What the system said.
        source: io::Error,
    },
    /// No secure channel.
    #[error("{address}: {source}")]
    Channel {
        /// The peer.
        address: Peer,
        /// Why.
        source: ChannelError,
    },
    /// The secure channel could not continue.
    #[error("{address}: {source}")]
    ChannelBroken {
        /// The peer.
        address: Peer,
        /// Why.
        source: RecordError,
    },
    /// TLS is wanted, and there is no key for it.
    #[error(
        "this host has no key of TLS, and the URL wants TLS (+tls): make one (diskside key new --tls), and give the line that \
         it prints to the server's operator (diskside key allow)"
    )]
    NoTlsKey,
    /// The connection ended while it came up, or later.
    #[error("{address}: {source}{}{}", remedy_of_end(source), remedy_of_name(joined_as.as_deref()))]
    Ended {
        /// The peer.
        address: Peer,
        /// Why.
        source: ConnectionError,
        /// The name of the same server for which the user keeps a key, where it was named otherwise and no key was used.
        joined_as: Option<String>,
    },
    /// The server lists nothing for a host without the key that the user keeps for it under another name.
    #[error("it lists no subsystem that this host may use{}", remedy_of_name(Some(joined_as)))]
    NotListed {
        /// That name.
        joined_as: String,
    },
    /// The controller was not up in time.
    #[error("{address}: the server was reached, but did not answer within {} ms", after.as_millis())]
    TooSlow {
        /// The peer.
        address: Peer,
        /// How long it was given.
        after: Duration,
    },
    /// A command failed.
    #[error("{what}: {source}")]
    Command {
        /// What the command was for.
        what: String,
        /// Why it failed.
        source: CommandError,
    },
    /// The subsystem has no such namespace.
    #[error("the subsystem has no namespace {nsid}; it has {}", listed(there))]
    NoNamespace {
        /// The namespace asked for.
        nsid: u32,
        /// Those that are there.
        there: Vec<u32>,
    },
    /// The namespace holds no blocks.
    #[error("namespace {nsid} has the I/O command set {csi}, not NVM (0): it has no blocks to read")]
    NotBlocks {
        /// The namespace.
        nsid: u32,
        /// Its command set.
        csi: u8,
    },
    /// The controller grants fewer queues than there were before.
    #[error("{address}: the server granted {granted} I/O queues, {needed} are needed")]
    Queues {
        /// The peer.
        address: Peer,
        /// What it granted.
        granted: u16,
        /// What is needed.
        needed: u16,
    },
    /// A parameter is out of bounds.
    #[error("{0}")]
    Options(&'static str),
    /// The connection is closed.
    #[error("the connection is closed: {0}")]
    Closed(&'static str),
    /// This system failed.
    #[error("{what}: {source}")]
    Environment {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

fn remedy_of_connect(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::ConnectionRefused => {
            ": no server listens there; start one there (diskside serve --listen), or check the host and the port"
        }
        io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            ": the server cannot be reached; check its name, the network, and that no firewall closes the port"
        }
        _ => "",
    }
}

/// Where a Connect's data has the subsystem's NQN.
const SUBSYSTEM_NQN: u16 = 256;

fn remedy_of_end(source: &ConnectionError) -> &'static str {
    match source {
        ConnectionError::Refused { status, .. } if status.is(Status::CONNECT_INVALID_HOST) => {
            ": the target does not let this host in; let it in there (diskside key allow, or diskside serve --hosts NQN,...), or \
             connect as a host that may (--key FILE, --hostnqn NQN)"
        }
        ConnectionError::Refused { status, .. } if status.is(Status::CONNECT_CONTROLLER_BUSY) => {
            ": it has no room for one more connection of this host now; close others, or have its operator raise the quota \
             (connections)"
        }
        ConnectionError::Refused { parameter: Some(ConnectError::InData(SUBSYSTEM_NQN)), .. } => {
            "; `diskside discover nvme-tcp://HOST:PORT` lists the subsystems that are"
        }
        ConnectionError::AuthenticationRequired => {
            ": make one (diskside key new), and give the line that it prints to the server's operator (diskside key allow)"
        }
        ConnectionError::AuthenticationNotAsked => {
            ", so it may not be the server that is meant; where it is, and needs no key: DISKSIDE_KEY=none, or --key none"
        }
        ConnectionError::Authentication(AuthError::Theirs(Explanation::Failed) | AuthError::Closed) => {
            ": the server keeps another key for this host, or, if this host's file has a server-key, none for itself; \
             `diskside key show` prints the line that its operator must have given to `diskside key allow`"
        }
        ConnectionError::Authentication(AuthError::WrongControllerKey) => {
            ": it may not be the server that is meant; where it is, its dhchap_controller_key is not the server-key of \
             this host's file"
        }
        ConnectionError::ConnectTimeout { .. } => {
            ": the server stands still or is very busy, or what listens there is no NVMe/TCP server: check the port"
        }
        ConnectionError::PeerClosed => {
            "; if that is so each time, it wants TLS, perhaps, which was not used (diskside key new --tls, and URLs with +tls; a key of \
             `diskside join` is used where the URL names the server as the invitation does); or what listens there is no NVMe/TCP \
             server: check the port"
        }
        ConnectionError::Protocol(_) => {
            "; if that is so each time, what listens there is no NVMe/TCP server: check the port; or one that wants TLS \
             (diskside key new --tls, and URLs with +tls; a key of `diskside join` is used where the URL names the server as the \
             invitation does)"
        }
        _ => "",
    }
}

fn remedy_of_name(joined_as: Option<&str>) -> String {
    joined_as.map_or_else(String::new, |name| {
        format!("; this user has a key for the same server under the name {name}: write that name in the URL")
    })
}

impl From<HostError> for io::Error {
    fn from(error: HostError) -> Self {
        let kind = match &error {
            HostError::Connect { source, .. }
            | HostError::Resolve { source, .. }
            | HostError::Environment { source, .. } => source.kind(),
            HostError::TooSlow { .. } | HostError::Channel { source: ChannelError::TimedOut, .. } => {
                io::ErrorKind::TimedOut
            }
            HostError::Key(_) | HostError::NoTlsKey | HostError::NotListed { .. } | HostError::Channel { .. } => {
                io::ErrorKind::PermissionDenied
            }
            HostError::NoNamespace { .. } => io::ErrorKind::NotFound,
            HostError::Url(_) | HostError::OtherKey { .. } | HostError::Incomplete { .. } | HostError::Options(_) => {
                io::ErrorKind::InvalidInput
            }
            HostError::Ended { .. } | HostError::ChannelBroken { .. } | HostError::Closed(_) => {
                io::ErrorKind::ConnectionAborted
            }
            HostError::Command { .. } | HostError::NotBlocks { .. } | HostError::Queues { .. } => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

fn listed(namespaces: &[u32]) -> String {
    if namespaces.is_empty() {
        return "none".to_owned();
    }
    let mut text = namespaces.iter().take(16).map(u32::to_string).collect::<Vec<_>>().join(", ");
    if namespaces.len() > 16 {
        text.push_str(", …");
    }
    text
}
