//! The bytes behind a volume: one trait for files, block devices, memory and the media that tests need.
//!
//! A medium never blocks and never touches a ring. Asked to [`start`](Medium::start) an access it either does it at
//! once, or answers with the operations of a ring; the owner of the ring carries these out, and asks again for the rest
//! when an access came back short. A medium that is not a file descriptor, such as an object of a remote store,
//! promises an answer ([`Action::Pending`]). So one medium serves any number of threads, each with a ring of its own.
//! [`drop_cached`](Medium::drop_cached) and [`reserve`](Medium::reserve) alone may wait.
//!
//! Guarantees of every medium:
//! * a read sees every write that completed before it was started;
//! * what a completed [`Access::Flush`] found completed survives power loss, if
//!   [`volatile_write_cache`](Properties::volatile_write_cache) says that a flush is needed at all;
//! * deallocated ranges read as zeroes.

use std::fmt;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use diskside_io::Errno;
use diskside_io::buffer::{SharedMemory, SharedSlice};
use diskside_io::request::RequestFuture;
use diskside_io::ring::Op;
use diskside_wire::delta::Delta;

use crate::pending::Pending;

/// Reads of a disk, or of a file, for one call at a time.
pub const READS_AT_ONCE: usize = 3;

/// Bytes that can be read and written by position.
pub trait Medium: fmt::Debug + Send + Sync {
    /// Its properties and abilities. They do not change as long as it is open.
    fn properties(&self) -> &Properties;

    /// Starts `access`, whose range lies inside the medium and is a multiple of the block that it was opened with.
    fn start(&self, access: &Access<'_>) -> Step;

    /// The bytes themselves, where they are in memory and every read of them succeeds at once and as a whole: then
    /// reads are answered from there without [`start`](Self::start).
    fn memory(&self) -> Option<&SharedMemory> {
        None
    }

    /// The CRC32C of a range of [`memory`](Self::memory) that the caller holds, as it is sent from there.
    fn crc32c(&self, range: Range<usize>) -> Option<u32> {
        let _ = range;
        None
    }

    /// Fills `into` with the bytes at `offset` if they are available at once and without a wait, for instance from the
    /// page cache. False: they are not, or nobody knows; then the content of `into` is undefined.
    fn read_now(&self, offset: u64, into: &mut [u8]) -> bool {
        let _ = (offset, into);
        false
    }

    /// Whether a ring's thread must not begin operations with its file itself, because that may wait already.
    fn is_remote(&self) -> bool {
        false
    }

    /// Whether its bytes can be found again: a file that was removed while it is served is gone with the server.
    fn has_name(&self) -> bool {
        true
    }

    /// The file that it is in, if that has become shorter than the medium: reads beyond that end fail.
    fn shortened(&self) -> Option<Shortened> {
        None
    }

    /// Whether a write may find no space: there are holes, or may be.
    fn may_lack_space(&self) -> bool {
        false
    }

    /// Has space for a range, so that writes there do not lack it later. Its content stays. May wait for a disk.
    fn reserve(&self, offset: u64, len: u64) -> Result<(), Errno> {
        let _ = (offset, len);
        Ok(())
    }

    /// How long it has enough to do: it should be given nothing more before, so that others may come first meanwhile.
    fn busy_for(&self) -> Duration {
        Duration::ZERO
    }

    /// Reads that functions have under way for one call: as many as keep it at work.
    fn reads_at_once(&self) -> usize {
        READS_AT_ONCE
    }

    /// Drops what the kernel keeps of it in memory. Bytes that were written and not flushed may stay. May wait for a
    /// disk, unlike all else here, so a reactor must not call it.
    fn drop_cached(&self) -> Result<(), Errno> {
        Ok(())
    }

    /// Hears that the ring refused `access` as not supported. The next [`start`](Self::start) of this kind must
    /// answer with another way.
    fn refused(&self, access: &Access<'_>) {
        let _ = access;
    }
}

/// What a medium is and can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Length in bytes.
    pub len_bytes: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether completed writes can be lost with power until a flush.
    pub volatile_write_cache: bool,
    /// Whether deallocated ranges give their space back.
    pub thin: bool,
    /// Whether reads and writes pass the page cache by.
    pub direct: bool,
    /// A write of up to so many bytes is there as a whole or not at all, whatever ends it; 0: nothing is promised.
    pub atomic_len: u32,
    /// Bytes of the longest page that an [`Access::Delta`] changes; 0: it takes none.
    pub delta_len: u32,
}

/// A file that somebody made shorter while it was served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortened {
    /// Its path, as it was opened.
    pub path: PathBuf,
    /// Its length now.
    pub len_bytes: u64,
}

/// What to do with a range of bytes.
#[derive(Clone, Debug)]
pub enum Access<'a> {
    /// Read `len` bytes at `offset`.
    Read {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len: usize,
    },
    /// Write `data` at `offset`.
    Write {
        /// First byte.
        offset: u64,
        /// What to write.
        data: &'a [u8],
        /// The data must survive power loss when the access completes.
        durable: bool,
    },
    /// Make a page of what is there, as the record says. It is durable when the access completes, which fails with `ESTALE` if the
    /// base is another one, and with `EBADMSG` if the record does not make the page that it promises.
    Delta(Delta<'a>),
    /// Make every completed write survive power loss.
    Flush,
    /// Make a range read as zeroes.
    Zero {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// Whether the space may be given back.
        deallocate: bool,
    },
}

/// How an access continues.
#[derive(Debug)]
pub struct Step {
    /// Wait this long first.
    pub delay: Duration,
    /// What to do then.
    pub action: Action,
}

/// What carries an access out.
#[derive(Debug)]
pub enum Action {
    /// This many bytes are done (of a flush: 0). Fewer than asked for: start again with the rest.
    Done(u64),
    /// It failed.
    Failed(Errno),
    /// The bytes to read, in memory that stays theirs. Fewer than asked for: start again with the rest.
    Bytes(SharedSlice),
    /// Read from or write to this file at the access's own offset, at most `len` bytes.
    File {
        /// The file.
        file: Arc<OwnedFd>,
        /// The most bytes to move in this step.
        len: usize,
    },
    /// A ring operation without a buffer, which does the whole access.
    Ring(Op),
    /// Write zeroes: there is no shorter way.
    WriteZeroes,
    /// For a read: the answer comes later, as [`Action::Bytes`] or [`Action::Failed`].
    Pending(Pending),
    /// Somebody else does it, and has the bytes. The outcome says how many are done, as [`Done`](Self::Done) does.
    Elsewhere(RequestFuture),
}

impl Access<'_> {
    /// Whether it changes bytes.
    pub fn is_write(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::Zero { .. } | Self::Delta(_))
    }
}

impl From<Action> for Step {
    fn from(action: Action) -> Self {
        Self { delay: Duration::ZERO, action }
    }
}
