//! Sources of read-ahead: bytes at positions, and streams.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Weak};

use rustix::io::Errno;

use super::chunk::Chunk;
use super::control::Control;
use super::error::ReadError;
use crate::buffer::{Buffer, Part, Pool};
use crate::ownring;

/// Bytes that can be read at any position: a volume, or a file on another machine.
pub trait ReadAt: fmt::Debug + Send + Sync {
    /// How many there are. It stays the same for as long as somebody reads.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills a part of a buffer with the bytes from `offset` on, and gives the buffer back. Read-ahead asks for whole blocks of
    /// 4,096 bytes, into parts that are aligned to that, except at the end. It is for [`ownring::run`], and may be dropped.
    ///
    /// # Errors
    /// Why not all of them could be read.
    fn read(&self, offset: u64, into: Part) -> Reading<'_>;

    /// Fills the buffer with the bytes from `offset` on. Waits.
    ///
    /// # Errors
    /// Why not all of them could be read; the buffer's content is then undefined.
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadAtError> {
        self.read_unless(offset, buffer, &|| false)
    }

    /// The same, unless it is `stopped`, which is asked some times a second: then it ends with `ECANCELED`, whatever the medium does.
    ///
    /// # Errors
    /// As for [`read_exact_at`](Self::read_exact_at).
    fn read_unless(&self, offset: u64, buffer: &mut [u8], stopped: &dyn Fn() -> bool) -> Result<(), ReadAtError> {
        if self.read_now(offset, buffer) {
            return Ok(());
        }
        let read = self.read(offset, Part::whole(Buffer::zeroed(buffer.len())));
        let read = ownring::run_unless(read, stopped).ok_or_else(|| io::Error::from(Errno::CANCELED))??;
        buffer.copy_from_slice(&read);
        Ok(())
    }

    /// Fills the buffer, if all of its bytes are in memory: then it takes time of the processor and waits for nothing. False: they are
    /// not, or nobody knows; the buffer's content is then undefined.
    fn read_now(&self, offset: u64, buffer: &mut [u8]) -> bool {
        let _ = (offset, buffer);
        false
    }

    /// Whether there are bytes that [`read_now`](Self::read_now) may find.
    fn has_memory(&self) -> bool {
        false
    }

    /// How many reads are worth having under way at once: more than one where each waits for a disk of its own speed.
    fn reads_at_once(&self) -> usize {
        1
    }
}

/// A read that is under way: with the buffer in the end.
pub type Reading<'a> = Pin<Box<dyn Future<Output = Result<Buffer, ReadAtError>> + 'a>>;

/// Bytes that come one after another. Reading may block.
pub trait ReadStream: fmt::Debug + Send + Sync {
    /// Puts the next bytes into the start of the buffer and says how many they are: 0 only at the end.
    ///
    /// # Errors
    /// Why there are no more, although it is not the end.
    fn read(&self, buffer: &mut [u8]) -> Result<usize, ReadAtError>;

    /// Nobody will read any more: a read that waits returns, with whatever answer.
    fn close(&self);

    /// Where it begins in what it is a part of.
    fn start(&self) -> u64 {
        0
    }

    /// What a user has to know of it, now that it has ended.
    fn warning(&self) -> Option<String> {
        None
    }

    /// Bytes that it gives before its own: that of a part of a stream before which a record may end.
    fn lead_bytes(&self) -> usize {
        0
    }
}

/// Why bytes could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadAtError {
    /// The system, or the other machine, says so.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// What was being read is no longer what it was.
    #[error("{0}")]
    Changed(String),
    /// What was read is not what it has to be.
    #[error("{0}")]
    Damaged(String),
    /// A stream ended before the range that was asked for did.
    #[error("bytes {start}..{end} are not there: it has {len} bytes")]
    OutOfRange {
        /// Start of the range.
        start: u64,
        /// End of the range.
        end: u64,
        /// Bytes that came.
        len: u64,
    },
    /// Another error, with the name of what was read and the place.
    #[error(transparent)]
    At(Box<ReadError>),
}

/// The thread that reads a stream ahead.
pub(super) struct StreamReader {
    pub(super) stream: Arc<dyn ReadStream>,
    pub(super) name: PathBuf,
    pub(super) chunk_bytes: usize,
    /// What the first chunk has more than the others.
    pub(super) lead_bytes: usize,
    pub(super) pool: Pool,
    pub(super) control: Arc<Control>,
    pub(super) deliver: Sender<Result<Chunk, ReadError>>,
}

impl StreamReader {
    pub(super) fn run(self) {
        if let Err(error) = self.read_all() {
            // Without a consumer nobody wants to know.
            let _ = self.deliver.send(Err(error));
        }
    }

    /// A chunk is handed out when it is known whether it is the last: when the next has a byte, or the stream has ended.
    fn read_all(&self) -> Result<(), ReadError> {
        let (mut offset, mut wanted) = (0, self.chunk_bytes + self.lead_bytes);
        let Some(mut buffer) = take(&self.pool, &self.control) else { return Ok(()) };
        let mut len = self.fill(&mut buffer, 0, wanted, offset)?;
        loop {
            let (mut next, mut next_len) = (None, 0);
            if len == wanted {
                let Some(mut free) = take(&self.pool, &self.control) else { return Ok(()) };
                // Only the first bytes: the chunk before must not wait until this one is full.
                next_len = self.read(&mut free[..self.chunk_bytes], offset + len as u64)?;
                next = (next_len > 0).then_some(free);
            }
            let data = 0..len;
            let chunk = Chunk::new(buffer, data, offset, next.is_none(), &self.control);
            if self.deliver.send(Ok(chunk)).is_err() {
                return Ok(());
            }
            let Some(free) = next else { return Ok(()) };
            offset += len as u64;
            buffer = free;
            wanted = self.chunk_bytes;
            len = self.fill(&mut buffer, next_len, wanted, offset)?;
        }
    }

    /// Reads until a chunk has the bytes that are wanted of it, or the stream ends.
    fn fill(&self, buffer: &mut Buffer, mut len: usize, wanted: usize, offset: u64) -> Result<usize, ReadError> {
        while len < wanted {
            match self.read(&mut buffer[len..wanted], offset + len as u64)? {
                0 => break,
                more => len += more,
            }
        }
        Ok(len)
    }

    fn read(&self, free: &mut [u8], offset: u64) -> Result<usize, ReadError> {
        let read = self.stream.read(free).map_err(|error| read_error(&self.name, offset, error))?;
        assert!(read <= free.len(), "a stream gave {read} bytes for a buffer of {}", free.len());
        Ok(read)
    }
}

/// A free buffer; sleeps until there is one. `None`: nobody wants chunks any more.
fn take(pool: &Pool, control: &Control) -> Option<Buffer> {
    loop {
        if control.is_stopped() {
            return None;
        }
        match pool.take() {
            Some(buffer) => return Some(buffer),
            // A buffer that came back between the two left its wake-up.
            None => std::thread::park(),
        }
    }
}

pub(super) fn read_error(name: &std::path::Path, offset: u64, error: ReadAtError) -> ReadError {
    let path = name.to_owned();
    match error {
        ReadAtError::Io(source) => ReadError::Read { path, offset, source },
        ReadAtError::Changed(how) => ReadError::Changed { path, how },
        ReadAtError::Damaged(how) => ReadError::Damaged { path, how },
        ReadAtError::OutOfRange { start, end, len } => ReadError::OutOfRange { path, start, end, len },
        ReadAtError::At(error) => *error,
    }
}

/// Ends a stream's reads when the consumer is gone.
pub(super) struct CloseStream(pub(super) Weak<dyn ReadStream>);

impl Drop for CloseStream {
    fn drop(&mut self) {
        if let Some(stream) = self.0.upgrade() {
            stream.close();
        }
    }
}
