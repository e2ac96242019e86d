//! A namespace of blocks behind a connection, with the same interface as a local file.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use diskside_io::request::{AsyncIo, Cause, Lost, Outcome, Request, RequestFuture, Status, promise};
use diskside_nvme::host::NamespaceInfo;

use crate::connection::Connection;
use crate::error::HostError;
use crate::job::{BUFFER_LEN_MAX, Command, CommandOutcome, Staged};
use crate::options::ConnectOptions;
use crate::url::Url;

/// A namespace of the NVM command set on a connected controller. Clones refer to the same one.
///
/// It takes requests like a local file ([`AsyncIo`]), and survives the loss of its connection: while
/// the host connects anew, requests wait; those that were in flight are sent again where that is
/// right, and fail where it is not (a Flush).
///
/// Offsets and lengths are multiples of the block length. A read past the end brings fewer bytes, a
/// write past the end fails. Requests longer than the controller takes at once are cut into commands.
#[derive(Clone, Debug)]
pub struct Volume {
    state: Arc<VolumeState>,
    connection: Connection,
}

/// What a connection remembers of a namespace in use.
#[derive(Debug)]
pub(crate) struct VolumeState {
    nsid: u32,
    block_len: u32,
    blocks: AtomicU64,
    uuid: Option<[u8; 16]>,
    nguid: Option<[u8; 16]>,
    deallocate_zeroes: bool,
    read_only: AtomicBool,
    /// The namespace went away, or became another one.
    gone: AtomicBool,
    /// Changes that were acknowledged, but not as durable.
    acknowledged: AtomicU64,
    /// Those of them that a flush covers.
    flushed: AtomicU64,
    /// A loss of the connection may have undone changes, and no request has said so yet.
    at_risk: AtomicBool,
}

pub(crate) const GONE: &str = "the namespace went away, or is another one than before";
const ASKEW: &str = "offset and length must be multiples of the volume's block length";
const TOO_LONG: &str = "one request moves less than 4 GiB";

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

impl VolumeState {
    pub(crate) fn new(info: &NamespaceInfo) -> Result<Self, HostError> {
        if info.csi != diskside_nvme::wire::CSI_NVM {
            return Err(HostError::NotBlocks { nsid: info.nsid, csi: info.csi });
        }
        Ok(Self {
            nsid: info.nsid,
            block_len: info.block_len,
            blocks: AtomicU64::new(info.blocks),
            uuid: info.uuid,
            nguid: info.nguid,
            deallocate_zeroes: info.deallocate_zeroes,
            read_only: AtomicBool::new(info.read_only),
            gone: AtomicBool::new(false),
            acknowledged: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            at_risk: AtomicBool::new(false),
        })
    }

    pub(crate) fn nsid(&self) -> u32 {
        self.nsid
    }

    pub(crate) fn block_len(&self) -> u32 {
        self.block_len
    }

    /// How many of `len` bytes at `offset` there are.
    pub(crate) fn readable(&self, offset: u64, len: usize) -> u64 {
        self.len_bytes().saturating_sub(offset).min(len as u64)
    }

    /// Takes note of what the controller says now.
    pub(crate) fn update(&self, info: Option<&NamespaceInfo>) {
        let is_same =
            |info: &NamespaceInfo| (info.block_len, info.uuid, info.nguid) == (self.block_len, self.uuid, self.nguid);
        let same = info.filter(|info| is_same(info));
        self.gone.store(same.is_none(), Ordering::Release);
        if let Some(info) = same {
            self.blocks.store(info.blocks, Ordering::Release);
            self.read_only.store(info.read_only, Ordering::Release);
        }
    }

    /// Whether the namespace is not, or not any more, the one that this volume was made for.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// The controller says that there is no such namespace. What it is when it comes back has to be asked for before
    /// anything else is sent to its number. True for the first who notes it.
    pub(crate) fn note_gone(&self) -> bool {
        !self.gone.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn writes_acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Acquire)
    }

    pub(crate) fn note_acknowledged(&self) {
        self.acknowledged.fetch_add(1, Ordering::AcqRel);
    }

    /// A flush that was submitted after so many acknowledgements has succeeded.
    pub(crate) fn note_flushed(&self, acknowledged: u64) {
        self.flushed.fetch_max(acknowledged, Ordering::AcqRel);
    }

    /// A request has told that changes may be undone: no other needs to.
    pub(crate) fn note_loss_reported(&self) {
        self.note_flushed(self.writes_acknowledged());
    }

    /// The connection to a controller with a volatile write cache is lost. Nothing is in flight any more.
    pub(crate) fn note_loss(&self) {
        let acknowledged = self.writes_acknowledged();
        if self.flushed.swap(acknowledged, Ordering::AcqRel) < acknowledged {
            self.at_risk.store(true, Ordering::Release);
        }
    }

    /// Whether changes may be undone and no request has said so; the caller does now.
    pub(crate) fn take_at_risk(&self) -> bool {
        self.at_risk.swap(false, Ordering::AcqRel)
    }

    fn len_bytes(&self) -> u64 {
        self.blocks.load(Ordering::Acquire).saturating_mul(self.block_len.into())
    }

    fn check(&self, request: &Request) -> Result<(), Status> {
        if self.is_gone() {
            return Err(Status::lost(GONE));
        }
        let (offset, len, changes) = match request {
            Request::Read { offset, buffer } => (*offset, buffer.len() as u64, false),
            Request::Write { offset, buffer, .. } => (*offset, buffer.len() as u64, true),
            Request::Deallocate { offset, len } | Request::WriteZeroes { offset, len } => (*offset, *len, true),
            Request::Flush => return Ok(()),
        };
        let block_len = u64::from(self.block_len);
        if !offset.is_multiple_of(block_len) || !len.is_multiple_of(block_len) {
            return Err(Status::refused(ASKEW));
        }
        if matches!(request, Request::Read { .. } | Request::Write { .. }) && len > BUFFER_LEN_MAX as u64 {
            return Err(Status::refused(TOO_LONG));
        }
        if changes && self.read_only.load(Ordering::Acquire) {
            return Err(Status::AccessDenied(Cause::Refused("the volume is read-only")));
        }
        if changes && offset.checked_add(len).is_none_or(|end| end > self.len_bytes()) {
            let cause = Cause::Refused("the range reaches past the end of the volume");
            return Err(Status::OutOfSpace(cause));
        }
        Ok(())
    }
}

/// The namespace that a URL names.
pub(crate) fn nsid_of(url: &Url) -> Result<u32, HostError> {
    url.nsid.ok_or(HostError::Incomplete {
        missing: "namespace",
        example: "a volume is written nvme-tcp://host:port/NQN/NSID, NSID being a number from 1 on",
    })
}

/// Ends what was never handed to a queue.
pub(crate) fn refuse(staged: Staged, why: &'static str) {
    match staged {
        Staged::Request { request, promise, .. } => {
            promise.complete(Outcome::failed(Status::lost(why), request.into_buffer()));
        }
        Staged::Command { promise, .. } => promise.complete(CommandOutcome::lost(why)),
    }
}
