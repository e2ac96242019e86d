//! Commands that a host sends, and what becomes of them.

use std::time::Duration;

use crate::buffer::{BufferId, BufferSlice, Buffers};
use crate::status::Status;
use crate::wire::Sqe;

/// A command to send. Its command identifier and SGL are filled in by the connection.
#[derive(Debug)]
pub struct Submission {
    /// The command; see the constructors of [`Sqe`].
    pub sqe: Sqe,
    /// Its data.
    pub data: Data,
    /// Handed back with the completion.
    pub user_data: u64,
    /// How long it may take before it is reported as late; `None`: for ever.
    pub timeout: Option<Duration>,
}

/// The data of a command.
#[derive(Debug)]
pub enum Data {
    /// None.
    None,
    /// Bytes of the caller's buffer for the controller. The buffer must stay as it is until the completion.
    Send(BufferSlice),
    /// A place for bytes from the controller. It may be written to until the completion.
    Receive(BufferSlice),
    /// A few bytes for the controller, kept by the connection.
    SendBytes(Vec<u8>),
    /// Room for so many bytes from the controller, kept by the connection and handed over in [`Answer::bytes`].
    ReceiveBytes(u32),
}

impl Data {
    /// Bytes of data, in whichever direction.
    pub fn len(&self) -> u32 {
        match self {
            Data::None => 0,
            Data::Send(slice) | Data::Receive(slice) => slice.len,
            Data::SendBytes(bytes) => bytes.len() as u32,
            Data::ReceiveBytes(len) => *len,
        }
    }

    /// Whether there is no data to move.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A command has ended.
#[derive(Debug)]
pub struct Completed {
    /// From its [`Submission`].
    pub user_data: u64,
    /// The outcome of the command.
    pub outcome: Result<Answer, CommandError>,
}

/// The answer of a controller to a command that succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Dwords 0 (low half) and 1 (high half) of the completion queue entry.
    pub result: u64,
    /// Bytes of data that came.
    pub received_len: u32,
    /// Those bytes, if the submission asked for [`Data::ReceiveBytes`].
    pub bytes: Vec<u8>,
}

/// Why a command did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// The controller said so.
    #[error("{status}{}", status.remedy().map(|what| format!(": {what}")).unwrap_or_default())]
    Status {
        /// With the specification's name.
        status: Status,
        /// Dwords 0 and 1 of the completion queue entry: some statuses say more there.
        result: u64,
    },
    /// Data arrived damaged (its data digest is wrong); the controller believes it sent it. A retry can help.
    #[error("the data arrived with a wrong digest")]
    DataDigest,
    /// The controller reported success but sent fewer bytes than a Read asked for.
    #[error("the controller sent {got} of {want} bytes and reported success")]
    ShortTransfer {
        /// Bytes that came.
        got: u32,
        /// Bytes asked for.
        want: u32,
    },
    /// Identify says that the namespace is not there.
    #[error("there is no such namespace")]
    NoSuchNamespace,
    /// The namespace's block size is unusual, or its blocks carry metadata.
    #[error("the namespace's format (block size or metadata) is not supported")]
    UnsupportedFormat,
    /// The connection ended first. Whether the command was executed is unknown.
    #[error("the connection was lost before the command completed")]
    ConnectionLost,
}

/// Why a command was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// Every entry of the queue is in use: wait for a completion.
    #[error("the queue is full")]
    Full,
    /// The connection is not established yet, or no longer.
    #[error("the connection takes no commands now")]
    NotReady,
    /// More data than the controller takes in one command.
    #[error("{len} bytes exceed the most of one command, {max}")]
    TooLong {
        /// Bytes of data.
        len: u32,
        /// The most that the controller takes.
        max: u32,
    },
}

/// For commands of our own, which keep their data themselves.
pub(super) struct NoBuffers;

impl Buffers for NoBuffers {
    fn write(&mut self, _: BufferId, _: u32, _: &[u8]) {
        debug_assert!(false, "no command of our own has a buffer");
    }

    fn digest(&mut self, _: BufferSlice) -> u32 {
        debug_assert!(false, "no command of our own has a buffer");
        0
    }

    fn release(&mut self, _: BufferId) {
        debug_assert!(false, "no command of our own has a buffer");
    }
}
