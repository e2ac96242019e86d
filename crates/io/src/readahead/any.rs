//! Read-ahead over bytes without a file descriptor: a thread asks for them, chunk after chunk.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::chunk::Chunk;
use super::control::Control;
use super::error::ReadError;
use super::plan::{Piece, Plan};
use crate::buffer::{Buffer, Pool};

/// Threads of one reader, whatever is worth it.
const READS_AT_ONCE_MAX: usize = 8;

/// Bytes that can be read at any position: a volume, or a file on another machine. Reading may block.
pub trait ReadAt: fmt::Debug + Send + Sync {
    /// How many there are. It stays the same for as long as somebody reads.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills the buffer with the bytes from `offset` on. Read-ahead asks for whole blocks of 4,096 bytes, into buffers
    /// that are aligned to that, except at the end.
    ///
    /// # Errors
    /// Why not all of them could be read; the buffer's content is then undefined.
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadAtError>;

    /// Fills the buffer, if all of its bytes are in memory: then it takes time of the processor and waits for nothing. False: they are
    /// not, or nobody knows; the buffer's content is then undefined.
    fn read_now(&self, offset: u64, buffer: &mut [u8]) -> bool {
        let _ = (offset, buffer);
        false
    }

    /// How many reads are worth having under way at once: more than one where each waits for a disk of its own speed.
    fn reads_at_once(&self) -> usize {
        1
    }
}

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
}

/// Reads a range ahead, on one thread or several.
pub(super) struct RangeReader {
    pub(super) reader: Arc<dyn ReadAt>,
    pub(super) name: PathBuf,
    pub(super) plan: Plan,
    pub(super) pool: Pool,
    pub(super) control: Arc<Control>,
    /// The piece that is read next. The thread that takes it has its buffer already: so the pieces that come first
    /// never wait for buffers that later ones have.
    pub(super) next: Mutex<u64>,
    pub(super) deliver: Mutex<InOrder>,
}

/// Hands chunks out in the order of their range, whichever thread read them first.
pub(super) struct InOrder {
    next: u64,
    early: BTreeMap<u64, Result<Chunk, ReadError>>,
    /// `None` after an error: nothing comes after it.
    out: Option<Sender<Result<Chunk, ReadError>>>,
}

impl InOrder {
    pub(super) fn new(out: Sender<Result<Chunk, ReadError>>) -> Self {
        Self { next: 0, early: BTreeMap::new(), out: Some(out) }
    }

    /// Takes a chunk. False: no more are wanted.
    fn put(&mut self, index: u64, chunk: Result<Chunk, ReadError>) -> bool {
        self.early.insert(index, chunk);
        while let Some(out) = &self.out
            && let Some(chunk) = self.early.remove(&self.next)
        {
            self.next += 1;
            let failed = chunk.is_err();
            // A consumer that is gone has set `stop`.
            if out.send(chunk).is_err() || failed {
                self.out = None;
                self.early.clear();
            }
        }
        self.out.is_some()
    }
}

impl RangeReader {
    /// Reads everything, on this thread and on others if that is worth it.
    pub(super) fn run(self) {
        let pieces = usize::try_from(self.plan.pieces()).unwrap_or(usize::MAX);
        let others = self.reader.reads_at_once().min(READS_AT_ONCE_MAX).min(pieces).saturating_sub(1);
        std::thread::scope(|scope| {
            for _ in 0..others {
                let read = || self.read_some();
                // With fewer threads it takes longer.
                let _ = std::thread::Builder::new().name("read-ahead".into()).spawn_scoped(scope, read);
            }
            self.read_some();
        });
    }

    /// Reads the pieces that nobody else has taken yet.
    fn read_some(&self) {
        while let Some((index, buffer)) = self.take_next() {
            let ended = OnPanic(self);
            let chunk = self.read(&self.plan.piece(index), buffer);
            std::mem::forget(ended);
            let wanted = self.deliver.lock().unwrap_or_else(PoisonError::into_inner).put(index, chunk);
            if !wanted {
                return self.end();
            }
        }
    }

    /// Nothing comes after what was handed out.
    fn end(&self) {
        self.control.stop.store(true, Ordering::Release);
        self.deliver.lock().unwrap_or_else(PoisonError::into_inner).out = None;
        self.control.wake();
    }

    fn take_next(&self) -> Option<(u64, Buffer)> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if *next == self.plan.pieces() {
            return None;
        }
        let buffer = take(&self.pool, &self.control)?;
        *next += 1;
        Some((*next - 1, buffer))
    }

    fn read(&self, piece: &Piece, mut buffer: Buffer) -> Result<Chunk, ReadError> {
        let data = Plan::position(piece, piece.wanted.start)..Plan::position(piece, piece.wanted.end);
        // The whole window, as far as it goes: so a reader that needs alignment can read into this very buffer.
        let window = piece.window.start..piece.window.end.min(self.reader.len()).max(piece.wanted.end);
        let target = Plan::position(piece, window.start)..Plan::position(piece, window.end);
        self.reader
            .read_exact_at(window.start, &mut buffer[target])
            .map_err(|error| read_error(&self.name, piece.wanted.start, error))?;
        Ok(chunk(buffer, data, piece.wanted.start, piece.last, &self.control))
    }
}

/// Ends a reader whose read panicked: the other threads would wait for buffers, and the consumer for the piece, for ever.
struct OnPanic<'a>(&'a RangeReader);

impl Drop for OnPanic<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
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
            if self.deliver.send(Ok(chunk(buffer, data, offset, next.is_none(), &self.control))).is_err() {
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

/// A free buffer; sleeps until there is one. `None`: nobody wants chunks any more. One thread at a time is here.
fn take(pool: &Pool, control: &Control) -> Option<Buffer> {
    control.wake.is_for_this_thread();
    loop {
        if control.stop.load(Ordering::Acquire) {
            return None;
        }
        match pool.take() {
            Some(buffer) => return Some(buffer),
            // A buffer that came back between the two left its wake-up.
            None => std::thread::park(),
        }
    }
}

fn chunk(buffer: Buffer, data: Range<usize>, offset: u64, last: bool, control: &Arc<Control>) -> Chunk {
    Chunk { buffer: Some(buffer), data, offset, last, control: Arc::clone(control) }
}

fn read_error(name: &std::path::Path, offset: u64, error: ReadAtError) -> ReadError {
    let path = name.to_owned();
    match error {
        ReadAtError::Io(source) => ReadError::Read { path, offset, source },
        ReadAtError::Changed(how) => ReadError::Changed { path, how },
        ReadAtError::Damaged(how) => ReadError::Damaged { path, how },
        ReadAtError::OutOfRange { start, end, len } => ReadError::OutOfRange { path, start, end, len },
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
