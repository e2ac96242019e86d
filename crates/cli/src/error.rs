//! How a command fails, and with which exit code.

use crate::commands::near::explain_here;
use diskside::io::readahead::ReadError;
use diskside::{CallError, CompileError, ResolveError};
use std::io::ErrorKind;

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line is wrong.
    Usage(String),
    /// The function cannot be loaded.
    Load(String),
    /// The function failed on the data.
    Function(String),
    /// The environment failed.
    Environment(String),
    /// The user stopped it.
    Interrupted(String),
    /// Standard output cannot be written.
    Output(std::io::Error),
}

impl Failure {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Function(_) => 1,
            Self::Usage(_) => 2,
            Self::Load(_) => 3,
            Self::Environment(_) | Self::Output(_) => 4,
            // As shells have it of a command that SIGINT ended.
            Self::Interrupted(_) => 130,
        }
    }
}

impl Failure {
    /// Makes a failure of a system's error in this.
    pub(crate) fn environment(what: &str) -> impl Fn(std::io::Error) -> Self {
        move |error| Self::Environment(format!("{what}: {error}"))
    }

    /// With what may have been meant.
    #[must_use]
    pub(crate) fn hinting(self, near: &[String]) -> Self {
        if near.is_empty() { self } else { self.adding(&format!("; did you mean {}?", near.join(" or "))) }
    }

    /// With more behind the message.
    #[must_use]
    pub(crate) fn adding(mut self, more: &str) -> Self {
        if let Self::Usage(m) | Self::Load(m) | Self::Function(m) | Self::Environment(m) = &mut self {
            *m += more;
        }
        self
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Usage(m) | Self::Load(m) | Self::Function(m) | Self::Environment(m) | Self::Interrupted(m) => {
                f.write_str(m)
            }
            Self::Output(_) if diskside_sys::standard::output_was_closed() => {
                f.write_str(diskside_sys::standard::OUTPUT_IS_CLOSED)
            }
            Self::Output(e) => write!(f, "writing the output: {e}"),
        }
    }
}

impl From<ResolveError> for Failure {
    fn from(e: ResolveError) -> Self {
        match e {
            ResolveError::Unknown { .. } => Self::Usage(e.to_string()),
            ResolveError::Read { ref path, ref source }
            | ResolveError::Compile(CompileError::Read { ref path, ref source }) => {
                let failure = Self::Environment(e.to_string());
                if source.kind() == ErrorKind::NotFound { explain_here(path, failure) } else { failure }
            }
            ResolveError::Compile(CompileError::Environment { .. } | CompileError::Child { .. }) => {
                Self::Environment(e.to_string())
            }
            ResolveError::Compile(_) | ResolveError::Load { .. } | ResolveError::NotRaw { .. } => {
                Self::Load(e.to_string())
            }
        }
    }
}

impl From<CallError> for Failure {
    fn from(e: CallError) -> Self {
        let message = e.to_string();
        match e {
            CallError::Read { error: ReadError::OutOfRange { .. }, .. } => Self::Usage(message),
            CallError::Read { .. } | CallError::Write(_) | CallError::Thread(_) | CallError::NoMemory { .. } => {
                Self::Environment(message)
            }
            CallError::Tier(_) => Self::Load(message),
            CallError::BadArgs { .. }
            | CallError::BadRanges { .. }
            | CallError::BadChunkLen(_)
            | CallError::BadRecordLen(_) => Self::Usage(message),
            _ => Self::Function(message),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(e: std::io::Error) -> Self {
        Self::Output(e)
    }
}
