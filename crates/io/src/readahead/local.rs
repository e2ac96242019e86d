//! A file of this machine, through the page cache or past it.

use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use diskside_sys::attributes::is_remote;
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::any::{ReadAt, ReadAtError, Reading};
use super::error::ReadError;
use crate::buffer::{ALIGNMENT_BYTES, Buffer, Part};
use crate::instance::file_len_bytes;
use crate::ownring::{self, Moved};
use crate::ring::Op;
use crate::unanswered;

/// A file that is read up to `end`.
#[derive(Debug)]
pub(super) struct LocalFile {
    path: PathBuf,
    buffered: Arc<OwnedFd>,
    /// The same file past the page cache.
    direct: Option<Arc<OwnedFd>>,
    /// Whether a file system that refuses direct reads is read buffered instead.
    may_fall_back: bool,
    has_refused: AtomicBool,
    /// Whether its file system waits for others while a read is begun.
    is_remote: bool,
    end: u64,
}

impl LocalFile {
    pub(super) fn new(
        path: PathBuf,
        buffered: Arc<OwnedFd>,
        direct: Option<Arc<OwnedFd>>,
        may_fall_back: bool,
        end: u64,
    ) -> Self {
        let is_remote = is_remote(&buffered).unwrap_or(false);
        Self { path, buffered, direct, may_fall_back, has_refused: AtomicBool::new(false), is_remote, end }
    }

    async fn fill(&self, offset: u64, Part { mut buffer, range }: Part) -> Result<Buffer, ReadError> {
        let end = offset + range.len() as u64;
        let (wanted_end, mut at) = (end.min(self.end), offset);
        // Bytes that are in memory need no ring.
        if self.direct.is_none() {
            let wanted = range.start..range.start + wanted_end.saturating_sub(offset) as usize;
            at += self.read_now(offset, &mut buffer[wanted]);
        }
        while at < wanted_end {
            let direct = self.direct.as_ref().filter(|_| !self.has_refused.load(Ordering::Relaxed));
            let (file, from, to) = match direct {
                // The part of a block that a short read left is read again.
                Some(direct) => (direct, at / ALIGNMENT_BYTES as u64 * ALIGNMENT_BYTES as u64, end),
                None => (&self.buffered, at, wanted_end),
            };
            let part = range.start + (from - offset) as usize..range.start + (to - offset) as usize;
            let read = Op::Read { file: Arc::clone(file), offset: from, buffer, range: part };
            let asked = Some(unanswered::here().ask(Instant::now()));
            let Moved { result, buffer: again } = ownring::moved_of(asked, read, self.is_remote).await;
            buffer = again;
            let moved = match result {
                Ok(moved) => moved,
                Err(Errno::INTR) => continue,
                Err(Errno::INVAL | Errno::OPNOTSUPP) if direct.is_some() && self.may_fall_back => {
                    self.has_refused.store(true, Ordering::Relaxed);
                    continue;
                }
                Err(errno) => {
                    return Err(ReadError::Read { path: self.path.clone(), offset: from, source: errno.into() });
                }
            };
            let before = std::mem::replace(&mut at, from + moved);
            // A direct read stops inside a block only at the end of the file: the same block again has no more.
            if at < wanted_end && at <= before {
                let found = file_len_bytes(&self.buffered)?.min(at.max(offset));
                return Err(ReadError::Shrunk { path: self.path.clone(), found, expected: self.end });
            }
        }
        Ok(buffer)
    }

    /// Reads the first bytes of these as far as the page cache has them.
    fn read_now(&self, offset: u64, into: &mut [u8]) -> u64 {
        let read = preadv2(&self.buffered, &mut [IoSliceMut::new(into)], offset, ReadWriteFlags::NOWAIT);
        read.map_or(0, |count| count as u64)
    }
}

impl ReadAt for LocalFile {
    /// With the rest of the last block, which a direct read needs room for.
    fn len(&self) -> u64 {
        self.end.next_multiple_of(ALIGNMENT_BYTES as u64)
    }

    fn read(&self, offset: u64, into: Part) -> Reading<'_> {
        let read = self.fill(offset, into);
        Box::pin(async { read.await.map_err(|error| ReadAtError::At(Box::new(error))) })
    }
}
