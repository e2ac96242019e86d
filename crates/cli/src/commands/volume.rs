//! The common part of commands that connect: connecting, and naming either end of a copy.

use crate::error::Failure;
use clap::Args;
use diskside::host::function::FunctionError;
use diskside::host::{ConnectOptions, HostError, KeySource, Nqn, Url};
use diskside::session::{FailureKind, SessionError};
use diskside::wire::function::Outcome;
use std::path::PathBuf;
use std::time::Duration;

/// How to connect.
#[derive(Args)]
pub(super) struct Connect {
    /// Protect headers and data by a CRC32C
    #[arg(long)]
    digests: bool,
    /// I/O queue pairs
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=128))]
    queues: u16,
    /// Connect as the host with this NQN
    #[arg(long, value_name = "NQN")]
    hostnqn: Option<String>,
    /// File of the key to authenticate with, or `none` [default: what DISKSIDE_KEY names, or ~/.config/diskside/key]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Give up connecting after this many milliseconds
    #[arg(long, default_value_t = 5000, value_name = "MS")]
    timeout_ms: u64,
    /// Wait this many milliseconds for a server that was lost to come back
    #[arg(long, default_value_t = 30_000, value_name = "MS")]
    pub(super) loss_timeout_ms: u64,
}

impl Connect {
    pub(super) fn options(&self) -> Result<ConnectOptions, Failure> {
        let mut options = ConnectOptions {
            header_digest: self.digests,
            data_digest: self.digests,
            io_queues: self.queues,
            connect_timeout: Duration::from_millis(self.timeout_ms),
            loss_timeout: Duration::from_millis(self.loss_timeout_ms),
            key: match &self.key {
                None => KeySource::Usual,
                Some(path) if path.as_os_str() == "none" => KeySource::None,
                Some(path) => KeySource::File(path.clone()),
            },
            ..ConnectOptions::default()
        };
        if let Some(nqn) = &self.hostnqn {
            options.identity.nqn = nqn.parse().map_err(|e| Failure::Usage(format!("--hostnqn {nqn}: {e}")))?;
        }
        Ok(options)
    }
}

/// The NQN that an argument holds.
pub(super) fn parse_nqn(text: &str) -> Result<Nqn, String> {
    text.parse().map_err(|e: diskside::host::NqnError| e.to_string())
}

/// The URL that an argument holds.
pub(super) fn parse_url(text: &str) -> Result<Url, String> {
    text.parse().map_err(|e: diskside::host::UrlError| e.to_string())
}

/// The peer or the network failed, unless the URL is incomplete.
pub(super) fn host_failure(e: HostError) -> Failure {
    match e {
        HostError::Url(_) | HostError::OtherKey { .. } | HostError::Incomplete { .. } => Failure::Usage(e.to_string()),
        _ => Failure::Environment(e.to_string()),
    }
}

/// Whether the user, the function or the environment has to change, as the exit codes say.
pub(super) fn session_failure(e: SessionError) -> Failure {
    let text = e.to_string();
    match e {
        _ if e.kind() == FailureKind::Cancelled => Failure::Interrupted(text),
        SessionError::Late(_) | SessionError::Unread(_) | SessionError::OnRows { .. } => Failure::Function(text),
        SessionError::Call(call) => call.into(),
        SessionError::Location(_)
        | SessionError::OutOfRange { .. }
        | SessionError::Input { .. }
        | SessionError::NoDevice { .. } => Failure::Usage(text),
        SessionError::Target { source, .. } => match host_failure(source) {
            Failure::Usage(_) => Failure::Usage(text),
            _ => Failure::Environment(text),
        },
        SessionError::Device { source: FunctionError::Failed(trailer), .. } => match trailer.outcome {
            Outcome::Trap | Outcome::Budget | Outcome::Deadline | Outcome::OutputFull | Outcome::Refused => {
                Failure::Function(text)
            }
            // An errno of the function, not of a file operation, says where in the input it was.
            Outcome::Errno if trailer.place.is_some() => Failure::Function(text),
            _ => Failure::Environment(text),
        },
        _ => Failure::Environment(text),
    }
}
