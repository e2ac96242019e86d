//! Why work on a session failed.

use super::answered::ServerFailure;
use crate::location::LocationError;
use diskside_engine::CallError;
use diskside_host::HostError;
use diskside_host::function::FunctionError;
use diskside_io::readahead::ReadError;
use diskside_io::request::Lost;
use diskside_nvme::Status;
use diskside_sbpf::trap::TrapKind;
use diskside_scan::Stop;
use diskside_wire::function::{MissingRange, Outcome};
use std::io;
use std::ops::Range;

/// Why a file could not be used, or a function not be run over it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The text names no place.
    #[error(transparent)]
    Location(#[from] LocationError),
    /// The target cannot be reached, or not be used.
    #[error("{}", naming(address(target), source))]
    Target {
        /// Which target.
        target: String,
        /// Why.
        source: HostError,
    },
    /// None of several servers that hold copies can be used.
    #[error("no server of {name} can be used: {}", listed(failures))]
    NoCopy {
        /// The URL that names them.
        name: String,
        /// Why each of them was not used.
        failures: Vec<ServerFailure>,
    },
    /// A server vanished, and the copy at another one is not the same, or not known to be.
    #[error(
        "{name} differs from {read}, which was read before: {}",
        "copies need the same length and the same time of their last change (rsync -a keeps it); open the file again"
    )]
    Copies {
        /// The copy that is there.
        name: String,
        /// The copy that bytes were read from.
        read: String,
    },
    /// A server vanished while a result was written, and over the copy at another one it begins in another way.
    #[error("{0}: another server has another copy: its result does not begin with the bytes that were written before")]
    OtherResult(String),
    /// The target failed the operation, or the function that ran there.
    #[error("{}", naming(name, source))]
    Device {
        /// Which file, or which target.
        name: String,
        /// Why.
        source: FunctionError,
    },
    /// The function of a scan failed on the rows of a file.
    #[error("{name}: {why}")]
    OnRows {
        /// Which file, or how messages call several.
        name: String,
        /// Where, and why.
        why: String,
        /// The same for programs.
        stop: Box<Stop>,
    },
    /// The function failed on this machine.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A local file, or a volume, could not be used.
    #[error("{}", naming(name, source))]
    File {
        /// Which one.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// A local file could not be opened.
    #[error("cannot open {name}: {source}")]
    Open {
        /// Which one.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// A local file could not be written; the error names it.
    #[error("cannot write {0}")]
    Output(io::Error),
    /// It cannot be done with this file.
    #[error("{name}: {why}")]
    Unsupported {
        /// Which one.
        name: String,
        /// Why, and what can be done instead.
        why: &'static str,
    },
    /// The function is to run at a device, and the file has none.
    #[error("{name}: {why}")]
    NoDevice {
        /// Which one.
        name: String,
        /// Why, and what can be done instead.
        why: String,
    },
    /// The file's content is not what the function takes.
    #[error("{name}: {why}")]
    Input {
        /// Which one.
        name: String,
        /// Why, and what can be done.
        why: String,
    },
    /// The range is not in the file.
    #[error("bytes {start}..{end} are not in {name}, which has {len}")]
    OutOfRange {
        /// Which file.
        name: String,
        /// Start of the range.
        start: u64,
        /// End of the range.
        end: u64,
        /// Length of the file.
        len: u64,
    },
    /// The file changed while it was read, and again when it was read once more.
    #[error("{0} changed while it was read: its result would mix two versions")]
    Changed(String),
    /// A function that follows pointers did not end well.
    #[error("{name}: {why}")]
    Traversal {
        /// Over which files.
        name: String,
        /// The kind of failure.
        kind: FailureKind,
        /// The errno that the function returned, positive, that represents what it asked for, or that a read failed with.
        errno: Option<i32>,
        /// The step, and what was wrong there.
        why: String,
    },
    /// The request was cancelled before the function ran, or between its runs.
    #[error("{0}: the call was cancelled")]
    Cancelled(String),
    /// The input was a stream, and there was no more of it in time.
    #[error("{0}: the deadline passed while the call waited for more of it")]
    Late(String),
    /// The output goes to somebody who did not read it in time.
    #[error("{0}: the deadline passed while nobody read it")]
    Unread(String),
    /// What ran the request is gone.
    #[error("{0}")]
    Lost(&'static str),
}

/// The kind of failure: who has to act, and for a function why it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// The call is wrong: a place, a range, arguments.
    Usage = 1,
    /// A file, the network, a target, memory.
    Environment = 2,
    /// The function was stopped at an access that it must not make.
    Trap = 3,
    /// The function used up its loop iterations.
    Budget = 4,
    /// The function ran until its deadline.
    Deadline = 5,
    /// The function gave more output than there is room for.
    OutputFull = 6,
    /// The function itself returned an error.
    Returned = 7,
    /// The function cannot be loaded or run there.
    Refused = 8,
    /// The file changed while it was read.
    Changed = 9,
    /// The call was cancelled.
    Cancelled = 10,
}

impl SessionError {
    /// The kind of failure, the same wherever the function ran. The text has the place in the input,
    /// the instruction and the source line.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Location(_)
            | Self::OutOfRange { .. }
            | Self::Input { .. }
            | Self::NoDevice { .. }
            | Self::Unsupported { .. } => FailureKind::Usage,
            Self::Changed(_) | Self::Copies { .. } | Self::OtherResult(_) => FailureKind::Changed,
            Self::Cancelled(_) => FailureKind::Cancelled,
            Self::Late(_) | Self::Unread(_) => FailureKind::Deadline,
            Self::Traversal { kind, .. } => *kind,
            Self::Call(error) => kind_of_call(error),
            Self::OnRows { stop, .. } => match TrapKind::from_u16(stop.trap_kind) {
                Some(kind) => kind_of_trap(kind),
                None if stop.returned < 0 => FailureKind::Returned,
                None => FailureKind::Trap,
            },
            Self::Device { source: FunctionError::Failed(trailer), .. } => match trailer.outcome {
                Outcome::Trap => FailureKind::Trap,
                Outcome::Budget => FailureKind::Budget,
                Outcome::Deadline => FailureKind::Deadline,
                Outcome::Cancelled => FailureKind::Cancelled,
                Outcome::OutputFull => FailureKind::OutputFull,
                Outcome::Refused => FailureKind::Refused,
                Outcome::Stale => FailureKind::Changed,
                // An errno of the function, not of a file operation, says where in the input it was.
                Outcome::Errno if trailer.place.is_some() => FailureKind::Returned,
                _ => FailureKind::Environment,
            },
            _ => FailureKind::Environment,
        }
    }

    /// Whether a function was stopped, or failed, where it ran: that depends on its input alone.
    pub(super) fn is_of_function(&self) -> bool {
        matches!(self.kind(), FailureKind::Trap | FailureKind::Budget | FailureKind::OutputFull | FailureKind::Returned)
    }

    /// Where the piece begins in its file that the function failed on.
    pub(super) fn offset(&self) -> Option<u64> {
        match self {
            Self::Call(
                CallError::Trapped { place, .. } | CallError::Errno { place, .. } | CallError::OutputFull { place, .. },
            ) => Some(place.range.start),
            _ => Some(self.function()?.trailer()?.place?.offset),
        }
    }

    pub(super) fn device(name: &str, source: FunctionError) -> Self {
        if let Some(MissingRange { start, end, len }) = source.trailer().and_then(|trailer| trailer.missing) {
            return Self::out_of_range(name, start..end, len);
        }
        Self::Device { name: name.to_owned(), source }
    }

    /// As [`device`](Self::device), of a call over a file that the target calls `known`: the message has the name that it has
    /// here.
    pub(super) fn device_over(name: &str, known: &str, mut source: FunctionError) -> Self {
        if let FunctionError::Failed(trailer) = &mut source {
            let place = trailer.place.map(|place| format!(", bytes {}..{}: ", place.offset, place.offset + place.len));
            let result = trailer.place.map(|place| format!(", result of the piece at byte {} (", place.offset));
            // A volume has a name of its own there, which stands before the place.
            let find = |place: Option<String>| place.and_then(|place| trailer.message.find(&place));
            let at = find(place).or_else(|| find(result));
            if !known.is_empty() && trailer.message.contains(known) {
                trailer.message = trailer.message.replacen(known, name, 1);
            } else if let Some(at) = at {
                trailer.message.replace_range(..at, name);
            }
        }
        Self::device(name, source)
    }

    pub(super) fn out_of_range(name: &str, range: Range<u64>, len: u64) -> Self {
        Self::OutOfRange { name: name.to_owned(), start: range.start, end: range.end, len }
    }

    pub(super) fn file(name: &str, source: io::Error) -> Self {
        Self::File { name: name.to_owned(), source }
    }

    /// The target's own failure, also where a function on this side was to read from it.
    pub(super) fn told_by_target(&self) -> Option<&FunctionError> {
        match self {
            Self::Call(CallError::Read { error: ReadError::Read { source, .. }, .. }) => {
                source.get_ref()?.downcast_ref()
            }
            _ => self.function(),
        }
    }

    /// Whether the request failed because a connection was lost, or not made, as far as the error tells.
    pub(super) fn is_loss(&self) -> bool {
        let is_aborted = |source: &io::Error| source.kind() == io::ErrorKind::ConnectionAborted;
        match self {
            Self::Target { .. } => true,
            Self::File { source, .. } | Self::Open { source, .. } if is_aborted(source) => true,
            Self::Call(CallError::Read { error: ReadError::Read { source, .. }, .. }) if is_aborted(source) => true,
            _ => self.told_by_target().is_some_and(|told| told.is_loss() || told.is_status(Status::UNKNOWN_TAG)),
        }
    }

    /// The error of a function at a target.
    #[must_use]
    pub fn function(&self) -> Option<&FunctionError> {
        match self {
            Self::Device { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// A message with the name of what it is about, if it does not have that.
fn naming(name: &str, source: &impl std::fmt::Display) -> String {
    let told = source.to_string();
    if told.contains(name) { told } else { format!("{name}: {told}") }
}

fn listed(failures: &[ServerFailure]) -> String {
    failures.iter().map(ServerFailure::to_string).collect::<Vec<_>>().join("; ")
}

/// The address of a target: whether it is asked for volumes or for exports makes no difference.
fn address(target: &str) -> &str {
    target.split_once("://").map_or(target, |(_, address)| address)
}

/// The kind of failure of a function that was stopped.
pub(super) fn kind_of_trap(kind: TrapKind) -> FailureKind {
    match kind {
        TrapKind::Budget => FailureKind::Budget,
        TrapKind::Deadline => FailureKind::Deadline,
        TrapKind::Cancelled => FailureKind::Cancelled,
        _ => FailureKind::Trap,
    }
}

fn kind_of_call(error: &CallError) -> FailureKind {
    match error {
        CallError::Read { error: ReadError::Changed { .. } | ReadError::Shrunk { .. }, .. } => FailureKind::Changed,
        CallError::Read { error: ReadError::OutOfRange { .. }, .. } => FailureKind::Usage,
        CallError::Read { .. }
        | CallError::Write(_)
        | CallError::Thread(_)
        | CallError::NoMemory { .. }
        | CallError::FileWrite { .. } => FailureKind::Environment,
        CallError::Trapped { trap, .. } => kind_of_trap(trap.kind),
        CallError::Cancelled { .. } => FailureKind::Cancelled,
        CallError::Late { .. } => FailureKind::Deadline,
        CallError::Errno { .. } => FailureKind::Returned,
        CallError::OutputFull { .. } | CallError::ResultTooLarge { .. } | CallError::BadMask { .. } => {
            FailureKind::OutputFull
        }
        CallError::Tier(_) | CallError::OutputTooLarge { .. } => FailureKind::Refused,
        _ => FailureKind::Usage,
    }
}

impl Lost for SessionError {
    fn lost(what: &'static str) -> Self {
        Self::Lost(what)
    }
}

impl From<SessionError> for io::Error {
    fn from(error: SessionError) -> Self {
        let kind = match &error {
            _ if error.kind() == FailureKind::Cancelled => io::ErrorKind::Interrupted,
            SessionError::File { source, .. } | SessionError::Open { source, .. } => source.kind(),
            SessionError::Output(source) => source.kind(),
            SessionError::Location(_) | SessionError::OutOfRange { .. } | SessionError::Input { .. } => {
                io::ErrorKind::InvalidInput
            }
            SessionError::Unsupported { .. } | SessionError::NoDevice { .. } => io::ErrorKind::Unsupported,
            SessionError::Device { source, .. } => {
                source.errno().map_or(io::ErrorKind::Other, |errno| Self::from_raw_os_error(errno).kind())
            }
            SessionError::Traversal { errno: Some(errno), .. } => Self::from_raw_os_error(*errno).kind(),
            SessionError::NoCopy { .. } => io::ErrorKind::NotConnected,
            SessionError::Target { .. }
            | SessionError::Copies { .. }
            | SessionError::OtherResult(_)
            | SessionError::Traversal { .. }
            | SessionError::Call(_)
            | SessionError::OnRows { .. }
            | SessionError::Changed(_)
            | SessionError::Cancelled(_)
            | SessionError::Late(_)
            | SessionError::Unread(_)
            | SessionError::Lost(_) => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}
