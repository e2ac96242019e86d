//! The state of a namespace in use that a connection keeps, and which requests it admits.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use diskside_io::request::{Cause, Request, Status};
use diskside_nvme::host::NamespaceInfo;

use crate::error::HostError;
use crate::job::BUFFER_LEN_MAX;

/// What a connection remembers of a namespace in use.
#[derive(Debug)]
pub(crate) struct VolumeState {
    pub(crate) nsid: u32,
    pub(crate) block_len: u32,
    pub(crate) atomic_len: u32,
    pub(crate) delta_len_max: u32,
    pub(crate) blocks: AtomicU64,
    pub(crate) uuid: Option<[u8; 16]>,
    pub(crate) nguid: Option<[u8; 16]>,
    pub(crate) deallocate_zeroes: bool,
    pub(crate) read_only: AtomicBool,
    /// The namespace went away, or became another one.
    pub(crate) gone: AtomicBool,
    /// Changes that were acknowledged, but not as durable.
    pub(crate) acknowledged: AtomicU64,
    /// Those of them that a flush covers.
    pub(crate) flushed: AtomicU64,
    /// A loss of the connection may have undone changes, and no request has said so yet.
    pub(crate) at_risk: AtomicBool,
}

impl VolumeState {
    pub(crate) fn new(info: &NamespaceInfo) -> Result<Self, HostError> {
        if info.csi != diskside_nvme::wire::CSI_NVM {
            return Err(HostError::NotBlocks { nsid: info.nsid, csi: info.csi });
        }
        Ok(Self {
            nsid: info.nsid,
            block_len: info.block_len,
            atomic_len: info.atomic_len,
            delta_len_max: info.delta_len_max,
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

    /// The controller says that there is no such namespace. Its properties have to be asked for when it comes back,
    /// before anything else is sent to its number. True for the first who notes it.
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

    pub(crate) fn len_bytes(&self) -> u64 {
        self.blocks.load(Ordering::Acquire).saturating_mul(self.block_len.into())
    }

    pub(crate) fn check(&self, request: &Request) -> Result<(), Status> {
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
            return Err(Status::AccessDenied(Cause::Refused("the volume is read-only; serve it with `,rw`")));
        }
        if changes && offset.checked_add(len).is_none_or(|end| end > self.len_bytes()) {
            let cause = Cause::Refused("the range reaches past the end of the volume");
            return Err(Status::OutOfSpace(cause));
        }
        Ok(())
    }
}

pub(crate) const GONE: &str = "the namespace went away, or is another one than before";
const ASKEW: &str = "offset and length must be multiples of the volume's block length";
const TOO_LONG: &str = "one request moves less than 4 GiB";
