//! A namespace of blocks behind a connection, with the same interface as a local file.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use diskside_io::buffer::Buffer;
use diskside_io::request::{AsyncIo, Outcome, Request, RequestFuture, promise};
use diskside_nvme::wire::Sqe;
use diskside_wire::delta::Delta;

use crate::connection::Connection;
use crate::error::HostError;
use crate::job::{Command, CommandData, CommandOutcome, Staged};
use crate::options::ConnectOptions;
use crate::url::Url;
use crate::volume_state::VolumeState;

/// A namespace of the NVM command set on a connected controller. Clones refer to the same one.
///
/// It takes requests like a local file ([`AsyncIo`]), and survives the loss of its connection: while the host connects
/// again, requests wait; those that were in flight are sent again where that is right, and fail where it is not (a
/// Flush).
///
/// Offsets and lengths are multiples of the block length. A read past the end brings fewer bytes, a
/// write past the end fails. Requests longer than the controller takes at once are cut into commands.
#[derive(Clone, Debug)]
pub struct Volume {
    state: Arc<VolumeState>,
    connection: Connection,
}

impl Volume {
    /// Connects to the volume that a URL names.
    pub fn connect(url: &Url, options: &ConnectOptions) -> Result<Self, HostError> {
        let nsid = nsid_of(url)?;
        Connection::connect(url, options)?.volume(nsid)
    }

    pub(crate) fn new(state: Arc<VolumeState>, connection: Connection) -> Self {
        Self { state, connection }
    }

    /// A request as a queue takes it; one that is not valid ends at once.
    pub(crate) fn prepare(&self, request: Request) -> (Option<Staged>, RequestFuture) {
        let (promise, future) = promise();
        match self.state.check(&request) {
            Ok(()) => (Some(Staged::Request { volume: Arc::clone(&self.state), request, promise }), future),
            Err(status) => {
                promise.complete(Outcome::failed(status, request.into_buffer()));
                (None, future)
            }
        }
    }

    /// Namespace identifier.
    pub fn nsid(&self) -> u32 {
        self.state.nsid
    }

    /// Bytes of a block.
    pub fn block_len(&self) -> u32 {
        self.state.block_len
    }

    /// Bytes of a write that is there as a whole or not at all, also when the target is killed or power fails.
    pub fn atomic_len(&self) -> u32 {
        self.state.atomic_len
    }

    /// Bytes of the longest page that [`write_delta`](Self::write_delta) changes; 0 if the target has no such command.
    pub fn delta_len_max(&self) -> u32 {
        self.state.delta_len_max
    }

    /// Changes a page as a record says ([`diskside_wire::delta`]). It is durable when the command succeeds; with *Delta Base
    /// Mismatch* nothing has changed, and the whole page is to be written.
    pub fn write_delta(&self, delta: &Delta<'_>) -> RequestFuture<CommandOutcome> {
        let block_len = u64::from(self.state.block_len);
        let (lba, blocks) = (delta.offset / block_len, u64::from(delta.page_len) / block_len);
        self.command(Command {
            sqe: Sqe::write_delta(self.state.nsid, lba, blocks as u32),
            data: CommandData::Send(Buffer::copy_of(delta.as_bytes())),
            timeout: None,
            // A target that has the result already says so.
            repeatable: true,
        })
    }

    /// Whether writes are refused.
    pub fn is_read_only(&self) -> bool {
        self.state.read_only.load(Ordering::Relaxed)
    }

    /// Whether deallocated blocks are known to read as zeroes.
    pub fn deallocate_zeroes(&self) -> bool {
        self.state.deallocate_zeroes
    }

    /// The namespace's UUID, if it has one.
    pub fn uuid(&self) -> Option<[u8; 16]> {
        self.state.uuid
    }

    /// The connection that the volume uses.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Sends any command on an I/O queue. Its namespace is what its `sqe` says.
    pub fn command(&self, command: Command) -> RequestFuture<CommandOutcome> {
        let (promise, future) = promise();
        self.connection.stage(Staged::Command { command, promise });
        future
    }
}

impl AsyncIo for Volume {
    fn submit(&self, request: Request) -> RequestFuture {
        let (staged, future) = self.prepare(request);
        if let Some(staged) = staged {
            self.connection.stage(staged);
        }
        future
    }

    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.state.len_bytes())
    }

    fn alignment_bytes(&self) -> u32 {
        self.state.block_len
    }
}

/// The namespace that a URL names.
pub(crate) fn nsid_of(url: &Url) -> Result<u32, HostError> {
    url.nsid.ok_or(HostError::Incomplete {
        missing: "namespace",
        example: "a volume is written nvme-tcp://host:port/NQN/NSID, NSID being a number from 1 on",
    })
}
