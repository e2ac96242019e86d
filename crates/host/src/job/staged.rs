//! Requests and commands as they wait for a queue, and what becomes of commands.

use std::sync::Arc;
use std::time::Duration;

use diskside_io::buffer::Buffer;
use diskside_io::request::{Lost, Outcome, Promise, Request, Status as IoStatus};
use diskside_nvme::host::{Answer, CommandError};
use diskside_nvme::wire::Sqe;

use crate::volume_state::VolumeState;

/// Any command, for [`Volume::command`](crate::Volume::command) and
/// [`Connection::command`](crate::Connection::command).
#[derive(Debug)]
pub struct Command {
    /// The command. Its identifier and data pointer are filled in.
    pub sqe: Sqe,
    /// Its data.
    pub data: CommandData,
    /// How long it may take; `None`: as long as the connection's `command_timeout`.
    pub timeout: Option<Duration>,
    /// Whether executing it twice is executing it once, so that it is sent again after a loss.
    pub repeatable: bool,
}

/// The data of a [`Command`].
#[derive(Debug)]
pub enum CommandData {
    /// None.
    None,
    /// Bytes for the controller: the whole buffer.
    Send(Buffer),
    /// Room for bytes from the controller: the whole buffer.
    Receive(Buffer),
}

/// What became of a [`Command`].
#[derive(Debug)]
pub struct CommandOutcome {
    /// The controller's answer.
    pub result: Result<Answer, CommandFailure>,
    /// The command's buffer.
    pub buffer: Option<Buffer>,
}

/// Why a [`Command`] did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandFailure {
    /// It was executed, or may have been.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// It was not sent.
    #[error("{0}")]
    NotSent(&'static str),
}

impl Lost for CommandOutcome {
    fn lost(what: &'static str) -> Self {
        Self { result: Err(CommandFailure::NotSent(what)), buffer: None }
    }
}

/// What waits in a staging queue.
pub(crate) enum Staged {
    Request { volume: Arc<VolumeState>, request: Request, promise: Promise },
    Command { command: Command, promise: Promise<CommandOutcome> },
}

/// Ends what was never handed to a queue.
pub(crate) fn refuse(staged: Staged, why: &'static str) {
    match staged {
        Staged::Request { request, promise, .. } => {
            promise.complete(Outcome::failed(IoStatus::lost(why), request.into_buffer()));
        }
        Staged::Command { promise, .. } => promise.complete(CommandOutcome::lost(why)),
    }
}
