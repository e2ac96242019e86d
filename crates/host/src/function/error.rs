//! How a call fails.

use std::io;

use diskside_io::Errno;
use diskside_io::request::{Lost, Status as IoStatus};
use diskside_nvme::Status;
use diskside_nvme::host::CommandError;
use diskside_wire::function::{FieldError, Outcome, Trailer};

use crate::error::HostError;
use crate::job::CommandFailure;

/// Why a function at a target, or an operation on a file, did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FunctionError {
    /// The function, or what it works on, failed. The trailer has the message, the trap, the place and the line.
    #[error("{}", described(.0))]
    Failed(Box<Trailer>),
    /// A command was refused, or its connection was lost.
    #[error("{what}: {failure}{}", also(.said))]
    Command {
        /// What the command was for.
        what: &'static str,
        /// The status, or why there is none.
        failure: CommandFailure,
        /// The message in the target's error log, for instance the verifier's.
        said: Option<String>,
    },
    /// The target's bytes are not what the specification says.
    #[error("the target's {what} is malformed: {problem}")]
    Malformed {
        /// What was to be read.
        what: &'static str,
        /// What is wrong, and where.
        problem: String,
    },
    /// The call has ended, and the target does not say how.
    #[error("the target ended the call without telling how: it gives calls up whose result nobody takes for a minute")]
    Untold,
    /// The controller has no compute namespace.
    #[error(
        "{subsystem} runs no functions for this host: it shows no compute namespace (I/O command set 4); a server shows none to a host \
         that has no grants"
    )]
    NoCompute {
        /// The subsystem.
        subsystem: String,
    },
    /// The target has no room for another program.
    #[error("the target has no free program index: all {programs} are in use")]
    NoIndex {
        /// How many there are.
        programs: u32,
    },
    /// The request is longer than the target takes.
    #[error(
        "the request has {len} bytes, and the server takes {len_max}: with arguments so long, a function runs on the host only"
    )]
    RequestTooLong {
        /// Its length.
        len: usize,
        /// The longest.
        len_max: usize,
    },
    /// The result is longer than the caller takes.
    #[error("the result exceeds {len_max} bytes")]
    ResultTooLong {
        /// The limit.
        len_max: u64,
    },
    /// A list is longer than a host takes.
    #[error("{of}: it lists {what}; perhaps without end")]
    ListTooLong {
        /// The target, and which list of it.
        of: String,
        /// How much it is.
        what: String,
    },
    /// The connection on which a file without a name was written is gone, and the file with it.
    #[error("{path}: it had no name yet and went with the connection on which it was written; write it again")]
    GoneUnnamed {
        /// What it was to be called.
        path: String,
    },
    /// The connection cannot be used.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl FunctionError {
    pub(super) fn command(what: &'static str, failure: impl Into<CommandFailure>) -> Self {
        Self::Command { what, failure: failure.into(), said: None }
    }

    pub(super) fn malformed(what: &'static str, problem: FieldError) -> Self {
        Self::Malformed { what, problem: problem.to_string() }
    }

    /// The trailer of a call that was run.
    #[must_use]
    pub fn trailer(&self) -> Option<&Trailer> {
        match self {
            Self::Failed(trailer) => Some(trailer),
            _ => None,
        }
    }

    /// The errno that a function, a file operation or a medium gave, positive.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        let trailer = self.trailer().filter(|trailer| matches!(trailer.outcome, Outcome::Errno | Outcome::Media))?;
        let errno = trailer.returned.checked_neg().and_then(|errno| i32::try_from(errno).ok());
        errno.filter(|errno| *errno > 0)
    }

    /// As the outcome of a read, a write or a flush has it.
    #[must_use]
    pub fn status(&self) -> IoStatus {
        if let Some(errno) = self.errno() {
            return IoStatus::from_errno(Errno::from_raw_os_error(errno));
        }
        if self.trailer().is_some_and(|trailer| trailer.outcome == Outcome::Stale) {
            return IoStatus::lost("the file changed while it was read; read it again");
        }
        match self {
            Self::Command { failure: CommandFailure::NotSent(why), .. } => IoStatus::lost(why),
            _ if self.is_loss() => IoStatus::lost("the connection was lost before the request completed"),
            _ => IoStatus::lost("the target failed the request"),
        }
    }

    /// Whether a command was refused with this status.
    #[must_use]
    pub fn is_status(&self, wanted: Status) -> bool {
        let failure = match self {
            Self::Command { failure: CommandFailure::Command(error), .. } => error,
            Self::Host(HostError::Command { source, .. }) => source,
            _ => return false,
        };
        matches!(failure, CommandError::Status { status, .. } if status.is(wanted))
    }

    /// Whether the function was never begun or its end is unknown because the connection was lost: without
    /// effects it may be called again.
    #[must_use]
    pub fn is_loss(&self) -> bool {
        match self {
            Self::Command { failure, .. } => {
                matches!(failure, CommandFailure::NotSent(_) | CommandFailure::Command(CommandError::ConnectionLost))
            }
            _ => false,
        }
    }
}

impl Lost for FunctionError {
    fn lost(what: &'static str) -> Self {
        Self::command("the call", CommandFailure::NotSent(what))
    }
}

impl From<FunctionError> for io::Error {
    fn from(error: FunctionError) -> Self {
        let kind = match (&error, error.errno()) {
            (_, Some(errno)) => Self::from_raw_os_error(errno).kind(),
            (FunctionError::Failed(trailer), _) if trailer.outcome == Outcome::Cancelled => io::ErrorKind::Interrupted,
            (FunctionError::Failed(trailer), _) if trailer.outcome == Outcome::Deadline => io::ErrorKind::TimedOut,
            _ if error.is_loss() => io::ErrorKind::ConnectionAborted,
            (FunctionError::NoCompute { .. }, _) => io::ErrorKind::Unsupported,
            (FunctionError::Malformed { .. }, _) => io::ErrorKind::InvalidData,
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

fn described(trailer: &Trailer) -> String {
    if !trailer.message.is_empty() {
        return trailer.message.clone();
    }
    match trailer.outcome {
        Outcome::Ok => "the call ended well".into(),
        Outcome::Errno => {
            let errno = trailer.returned.checked_neg().and_then(|errno| i32::try_from(errno).ok()).unwrap_or(0);
            io::Error::from_raw_os_error(errno).to_string()
        }
        Outcome::Trap => format!("the function was stopped at instruction {}", trailer.insn),
        Outcome::Budget => "the budget of loop iterations is used up".into(),
        Outcome::Deadline => "the deadline passed".into(),
        Outcome::Cancelled => "the call was cancelled".into(),
        Outcome::Media => "a medium or a file failed".into(),
        Outcome::Stale => "the file changed while it was used".into(),
        Outcome::OutputFull => "the output did not fit".into(),
        Outcome::Refused => "the call could not be begun".into(),
    }
}

fn also(said: &Option<String>) -> String {
    said.as_ref().map_or_else(String::new, |said| format!(": {}", said.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A volume that was full was an error like any other to who asked for the errno.
    #[test]
    fn what_a_function_a_file_or_a_medium_said_is_an_errno() {
        let failed = |outcome, returned| FunctionError::Failed(Box::new(Trailer { returned, ..Trailer::new(outcome) }));
        for (outcome, returned, errno, kind) in [
            (Outcome::Errno, -17, Some(17), io::ErrorKind::AlreadyExists),
            (Outcome::Media, -28, Some(28), io::ErrorKind::StorageFull),
            (Outcome::Media, 0, None, io::ErrorKind::Other),
            (Outcome::Errno, i64::MIN, None, io::ErrorKind::Other),
            (Outcome::OutputFull, -28, None, io::ErrorKind::Other),
        ] {
            let error = failed(outcome, returned);
            assert_eq!((error.errno(), io::Error::from(error).kind()), (errno, kind), "{outcome:?}, {returned}");
        }
    }
}
