//! A short read of a host that a reactor does by itself: at once if the page cache has all of it, else by its ring.
//!
//! A read of an open file asks for no permission, so it needs no thread with the export's user, and on a file system of this machine
//! nobody else is asked as whom. Long reads stay with the export's threads, which fill memory that the reactor would have to clear before,
//! and look ahead. So do writes: a ring learns whose an operation is only from its own thread
//! (`IORING_REGISTER_PERSONALITY`), which would have to become the export's user while it serves others, and a server that is
//! confined cannot any more.

use std::ops::Deref;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Instant;

use diskside_io::buffer::Buffer;
use diskside_io::ring::Op;
use diskside_io::unanswered::Asked;
use diskside_rights::Access;
use diskside_wire::file::{FileOp, FileRequest};
use rustix::fs::{FileType, Statx};
use rustix::io::Errno;

use crate::FileSession;
use crate::attributes::status_now;
use crate::open_file::OpenFile;
use crate::operations::{read_bytes, read_failed};
use crate::reading::{LONG_LEN_MIN, is_cached};
use crate::reply::{FileError, FileReply};
use crate::session::Opened;
use crate::used::UsedExport;

/// A read that was asked for.
#[derive(Debug)]
pub struct PlainRead {
    session: FileSession,
    file: Lent,
    offset: u64,
    len: usize,
    /// Whether the page cache may have it.
    is_worth_a_look: bool,
    /// Its status when the read began.
    before: Statx,
    began: Instant,
    /// The bytes that came so far, and room for the others; with the ring while that reads.
    buffer: Option<Buffer>,
    done: usize,
    ended: Option<Result<(), Errno>>,
    /// What the disk is asked for now.
    asked: Option<Asked>,
}

/// An open file that a reactor uses. If nobody else does any more, a thread of the export closes it: the blocks of a file without a
/// name are given back then, which may wait for the disk.
#[derive(Debug)]
struct Lent(Option<Arc<OpenFile>>);

impl FileSession {
    /// The read that a request asks for, if a reactor can do it; others are for [`submit_unless`](Self::submit_unless). `by_ring`:
    /// it can, too, if the bytes are hardly in memory. `uses` is told of the export before the host's right to it is looked at for the
    /// last time. Waits for nothing.
    ///
    /// # Errors
    /// The host may not read it.
    pub fn plain_read(
        &self,
        request: &[u8],
        result_len_max: usize,
        by_ring: bool,
        uses: impl FnOnce(UsedExport),
    ) -> Option<Result<PlainRead, FileError>> {
        let Ok(FileRequest::Read { file: handle, offset, len }) = FileRequest::parse(request) else { return None };
        uses(self.used(handle, Access::Read)?);
        let opened = match self.get(FileOp::Read, handle) {
            Ok(opened) => opened,
            Err(error) => return Some(Err(error)),
        };
        let Opened::File(file) = opened else { return None };
        let file = Lent(Some(file));
        if !file.readable || !file.export.is_local {
            return None;
        }
        if len as usize >= LONG_LEN_MIN {
            return None;
        }
        let is_worth_a_look = file.readers.is_worth_a_look();
        if !is_worth_a_look && !by_ring {
            return None;
        }
        let before = status_now(file.fd.as_fd())?;
        let is_regular = FileType::from_raw_mode(before.stx_mode.into()) == FileType::RegularFile;
        let len = (len as usize).min(result_len_max);
        // A ring takes the largest number for the file's own position.
        let is_position = offset.checked_add(len as u64).is_some_and(|end| i64::try_from(end).is_ok());
        let (session, began) = (self.clone(), Instant::now());
        let (buffer, done, ended, asked) = (None, 0, None, None);
        let read = PlainRead { session, file, offset, len, is_worth_a_look, before, began, buffer, done, ended, asked };
        (is_regular && is_position).then_some(Ok(read))
    }
}

impl PlainRead {
    /// Reads it here and now if the page cache has all of it. Others are for the ring.
    pub fn at_once(&self) -> Option<FileReply> {
        let there = self.before.stx_size.saturating_sub(self.offset).min(self.len as u64);
        // Where it is not known, to try would have the kernel read, which may wait.
        let is_cached = || is_cached(&self.file, self.offset..self.offset + there).unwrap_or(false);
        if !self.is_worth_a_look || !is_cached() || self.file.readers.is_noted(&self.file, &self.before) {
            return None;
        }
        let mut bytes = vec![0; self.len];
        // Fewer bytes are as good as none: the ring reports any error.
        if !self.file.readers.read_plain_now(&self.file, self.offset, &mut bytes, there as usize) {
            return None;
        }
        self.file.readers.was_in_memory();
        bytes.truncate(there as usize);
        Some(self.answer(Ok(bytes)))
    }

    /// The operation that is next, by a worker of the ring: even its beginning may wait for the disk.
    pub fn operation(&mut self) -> Op {
        if self.buffer.is_none() {
            self.began = Instant::now();
        }
        self.asked = Some(self.file.export.health.ask(Instant::now()));
        let buffer = self.buffer.take().unwrap_or_else(|| Buffer::from(vec![0; self.len]));
        let offset = self.offset + self.done as u64;
        Op::Read { file: Arc::clone(&self.file.fd), offset, buffer, range: self.done..self.len }
    }

    /// Takes the result of that operation, and the buffer that it came with; of another operation there is none, and the read is given
    /// up. False: there is another one.
    pub fn completed(&mut self, result: Result<u32, Errno>, buffer: Option<Buffer>) -> bool {
        self.asked = None;
        let Some(buffer) = buffer else { return true };
        self.buffer = Some(buffer);
        match result {
            Ok(count) => {
                self.done += count as usize;
                if count > 0 && self.done < self.len {
                    return false;
                }
                self.ended = Some(Ok(()));
            }
            Err(Errno::INTR | Errno::AGAIN) => return false,
            Err(errno) => self.ended = Some(Err(errno)),
        }
        true
    }

    /// The answer: the bytes, why there are none, or that they were not wanted any more.
    pub fn reply(mut self) -> FileReply {
        let Some(ended) = self.ended else {
            return FileError::because(Errno::CANCELED, "cancelled before it began").into();
        };
        let mut bytes = self.buffer.take().map_or_else(Vec::new, Buffer::into_vec);
        bytes.truncate(self.done);
        self.answer(ended.map(|()| bytes))
    }

    /// Tells its export from others.
    pub fn export_id(&self) -> usize {
        Arc::as_ptr(&self.file.export).addr()
    }

    /// Tells its file from others of the export, whichever handle it has.
    pub fn file_id(&self) -> u64 {
        self.before.stx_ino
    }

    /// How messages call its export.
    pub fn export_name(&self) -> &str {
        &self.file.export.name
    }

    fn answer(&self, read: Result<Vec<u8>, Errno>) -> FileReply {
        let read = read.and_then(|bytes| Ok((status_now(self.file.fd.as_fd()).ok_or(Errno::IO)?, bytes)));
        let done = match read {
            Ok((after, bytes)) => Ok(read_bytes(&self.before, &after, bytes)),
            Err(errno) => {
                let (operation, file) = (FileOp::Read.to_string(), &self.file);
                file.export.failed(&operation, &file.name, Some(self.offset), errno);
                Err(read_failed(&self.file, self.offset, errno))
            }
        };
        let bytes = done.as_ref().ok().map(|reply| reply.result.len() as u64);
        self.session.count_read(&self.file.export, self.began.elapsed(), bytes);
        done.unwrap_or_else(Into::into)
    }
}

impl Deref for Lent {
    type Target = Arc<OpenFile>;

    fn deref(&self) -> &Arc<OpenFile> {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(file) = self.0.take().and_then(Arc::into_inner) {
            let export = Arc::clone(&file.export);
            export.workers.submit(move || drop(file));
        }
    }
}
