//! Copying between files and volumes, with verification.

mod content;
mod file;

use diskside_io::buffer::Buffer;
use diskside_io::readahead::{ReadAtError, ReadStream};
use diskside_io::request::{AsyncIo, Cause, Outcome, Request, RequestFuture, block_on};
use std::collections::VecDeque;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

pub use content::{Content, find_content};
pub use file::{FileCopyError, copy_file_in_order};

/// Bytes of one transfer.
pub const TRANSFER_LEN: u64 = 1 << 20;
/// Transfers in flight.
const DEPTH: usize = 8;
/// A volume is flushed whenever so much was written to it: no more is written again after a loss, and twice that while a flush
/// takes its time.
const FLUSH_PERIOD: u64 = 64 << 20;
/// How often the same bytes are written again, when the target went away before it had made them durable.
const LOSSES_MAX: u32 = 32;

/// Which side failed, where, and why.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// Reading the source.
    #[error("reading the source at byte {offset}: {error}")]
    Read {
        /// Where.
        offset: u64,
        /// Why.
        error: std::io::Error,
    },
    /// Writing the destination.
    #[error("writing the destination at byte {offset}: {error}")]
    Write {
        /// Where.
        offset: u64,
        /// Why.
        error: std::io::Error,
    },
    /// The target of the destination went away too often.
    #[error(
        "the target went away {losses} times before it had made bytes {start}..{end} durable, the last time with: {error}"
    )]
    Lost {
        /// First byte that may not be there.
        start: u64,
        /// The end of what was written.
        end: u64,
        /// How often.
        losses: u32,
        /// What was said the last time.
        error: std::io::Error,
    },
    /// The source is longer than the destination can be.
    #[error("the source has {source_len} bytes, the destination only {destination_len}")]
    TooLong {
        /// Bytes of the source.
        source_len: u64,
        /// Bytes of the destination.
        destination_len: u64,
    },
    /// The source is a stream, and longer than the destination can be.
    #[error("the source goes on behind its first {0} bytes, and the destination has no more")]
    GoesOn(u64),
    /// The source ended early.
    #[error("the source ended at byte {0} while it was read")]
    Shrunk(u64),
    /// The destination does not hold what was written.
    #[error("the destination differs from the source at byte {0}")]
    Differs(u64),
}

/// One end of a copy.
pub struct End<'a> {
    /// How it is read and written.
    pub io: &'a dyn AsyncIo,
    /// Bytes that it holds; for a file being written, any number.
    pub len: u64,
    /// Whether it has this length for good, as volumes do.
    pub fixed: bool,
}

/// Copies all of `source` to the start of `destination` and makes it durable. Counts bytes in `done`.
///
/// When the target of a volume goes away and comes back, what it had not yet made durable is written again.
///
/// # Errors
/// Which side failed, where, and why.
pub fn copy(source: &End<'_>, destination: &End<'_>, done: &AtomicU64) -> Result<u64, CopyError> {
    if destination.fixed && source.len > destination.len {
        return Err(CopyError::TooLong { source_len: source.len, destination_len: destination.len });
    }
    let mut pump = Pump::new(source, destination, done);
    while !pump.is_done() {
        match pump.turn() {
            Err(Stopped::Failed(error)) => return Err(error),
            Err(Stopped::Lost(error)) => pump.go_back(error)?,
            Ok(()) => {}
        }
    }
    Ok(source.len)
}

/// Copies all of `source` to what takes bytes only in their order. Counts bytes in `done`.
///
/// # Errors
/// Which side failed, where, and why.
pub fn copy_in_order(source: &End<'_>, destination: &mut impl Write, done: &AtomicU64) -> Result<u64, CopyError> {
    let mut reads = VecDeque::new();
    let mut next = 0;
    while next < source.len || !reads.is_empty() {
        start_reads(source, &mut next, &mut reads);
        let Some(Piece { offset, len, future }) = reads.pop_front() else { break };
        let bytes = finish_read(offset, len, future)?;
        destination.write_all(&bytes).map_err(|error| CopyError::Write { offset, error })?;
        done.fetch_add(len, Ordering::Relaxed);
    }
    destination.flush().map_err(|error| CopyError::Write { offset: source.len, error })?;
    Ok(source.len)
}

/// Copies a stream, to its end, to the start of `destination` and makes it durable. Counts bytes in `done`.
///
/// # Errors
/// Which side failed, where, and why. What a target lost cannot be read again.
pub fn copy_stream(source: &dyn ReadStream, destination: &End<'_>, done: &AtomicU64) -> Result<u64, CopyError> {
    let mut writes: VecDeque<Piece> = VecDeque::new();
    let mut end = 0;
    loop {
        let bytes = read_next(source, end)?;
        let len = bytes.len() as u64;
        if destination.fixed && end + len > destination.len {
            return Err(CopyError::GoesOn(destination.len));
        }
        if len > 0 {
            writes.push_back(Piece { offset: end, len, future: write(destination, end, bytes)? });
            end += len;
        }
        let left = if len == 0 { 0 } else { DEPTH };
        while writes.len() > left
            && let Some(Piece { offset, len, future }) = writes.pop_front()
        {
            succeeded(block_on(future), offset).map_err(|stopped| stopped.for_good(offset))?;
            done.fetch_add(len, Ordering::Relaxed);
        }
        if len == 0 {
            let flush = block_on(destination.io.submit(Request::Flush));
            return succeeded(flush, end).map(|()| end).map_err(|stopped| stopped.for_good(end));
        }
    }
}

/// Copies a stream, to its end, to what takes bytes only in their order. Counts bytes in `done`.
///
/// # Errors
/// Which side failed, where, and why.
pub fn copy_stream_in_order(
    source: &dyn ReadStream,
    destination: &mut impl Write,
    done: &AtomicU64,
) -> Result<u64, CopyError> {
    let (mut buffer, mut offset) = (vec![0; TRANSFER_LEN as usize], 0);
    loop {
        let len = source.read(&mut buffer).map_err(|error| CopyError::Read { offset, error: io_error(error) })?;
        let written = if len == 0 { destination.flush() } else { destination.write_all(&buffer[..len]) };
        written.map_err(|error| CopyError::Write { offset, error })?;
        if len == 0 {
            return Ok(offset);
        }
        offset += len as u64;
        done.fetch_add(len as u64, Ordering::Relaxed);
    }
}

/// The next bytes of a stream: as many as one transfer has, or fewer at its end.
fn read_next(source: &dyn ReadStream, offset: u64) -> Result<Buffer, CopyError> {
    let mut buffer = Buffer::zeroed(TRANSFER_LEN as usize);
    let mut filled = 0;
    while filled < buffer.len() {
        let failed = |error| CopyError::Read { offset: offset + filled as u64, error: io_error(error) };
        match source.read(&mut buffer[filled..]).map_err(failed)? {
            0 => break,
            len => filled += len,
        }
    }
    buffer.set_len(filled);
    Ok(buffer)
}

fn io_error(error: ReadAtError) -> std::io::Error {
    match error {
        ReadAtError::Io(error) => error,
        other => std::io::Error::other(other.to_string()),
    }
}

/// A copy under way: pieces are read ahead, written in their order, and made durable behind that.
struct Pump<'a> {
    source: &'a End<'a>,
    destination: &'a End<'a>,
    done: &'a AtomicU64,
    reads: VecDeque<Piece>,
    writes: VecDeque<Piece>,
    /// Where the next read begins.
    next: u64,
    /// Everything before this is written.
    written: u64,
    /// Everything before this is durable.
    durable: u64,
    /// A flush in flight, and before which byte everything is durable when it succeeds.
    flush: Option<(u64, RequestFuture)>,
    /// How often the target went away since something became durable.
    losses: u32,
}

struct Piece {
    offset: u64,
    len: u64,
    future: RequestFuture,
}

/// Why the copy does not simply continue.
enum Stopped {
    Failed(CopyError),
    /// What was not durable may be gone.
    Lost(std::io::Error),
}

impl Stopped {
    /// For data that is written once.
    fn for_good(self, offset: u64) -> CopyError {
        match self {
            Self::Failed(error) => error,
            Self::Lost(error) => CopyError::Write { offset, error },
        }
    }
}

impl From<CopyError> for Stopped {
    fn from(error: CopyError) -> Self {
        Self::Failed(error)
    }
}

impl<'a> Pump<'a> {
    fn new(source: &'a End<'a>, destination: &'a End<'a>, done: &'a AtomicU64) -> Self {
        let (reads, writes, flush) = Default::default();
        Self { source, destination, done, reads, writes, next: 0, written: 0, durable: 0, flush, losses: 0 }
    }

    fn is_done(&self) -> bool {
        self.durable == self.source.len
    }

    /// Moves one piece on, or waits for what is durable.
    fn turn(&mut self) -> Result<(), Stopped> {
        start_reads(self.source, &mut self.next, &mut self.reads);
        if let Some(Piece { offset, len, future }) = self.reads.pop_front() {
            let buffer = finish_read(offset, len, future)?;
            let future = write(self.destination, offset, buffer)?;
            self.writes.push_back(Piece { offset, len, future });
        }
        if (self.writes.len() > DEPTH || self.reads.is_empty())
            && let Some(Piece { offset, len, future }) = self.writes.pop_front()
        {
            succeeded(block_on(future), offset)?;
            self.written += len;
            self.done.fetch_add(len, Ordering::Relaxed);
        }
        self.make_durable()
    }

    fn make_durable(&mut self) -> Result<(), Stopped> {
        let is_last = self.written == self.source.len;
        let is_waited_for = is_last || self.written - self.durable >= 2 * FLUSH_PERIOD;
        if let Some((end, flush)) = self.flush.take_if(|(_, flush)| is_waited_for || flush.is_done()) {
            succeeded(block_on(flush), end)?;
            if end > self.durable {
                self.losses = 0;
            }
            self.durable = end;
        }
        // Files that are new are flushed once: nobody misses what is lost of them.
        let is_due = self.destination.fixed && self.written - self.durable >= FLUSH_PERIOD;
        if self.flush.is_none() && (is_due || is_last && !self.is_done()) {
            self.flush = Some((self.written, self.destination.io.submit(Request::Flush)));
        }
        Ok(())
    }

    /// Begins again behind what is durable.
    fn go_back(&mut self, error: std::io::Error) -> Result<(), CopyError> {
        self.losses += 1;
        let (start, end, losses) = (self.durable, self.written, self.losses);
        if !self.destination.fixed {
            return Err(CopyError::Write { offset: end, error });
        }
        if losses > LOSSES_MAX {
            return Err(CopyError::Lost { start, end, losses, error });
        }
        // None of them may come after those that write the same again.
        self.writes.drain(..).for_each(|piece| drop(block_on(piece.future)));
        self.reads.clear();
        if let Some((_, flush)) = self.flush.take() {
            drop(block_on(flush));
        }
        self.done.fetch_sub(end - start, Ordering::Relaxed);
        (self.next, self.written) = (start, start);
        Ok(())
    }
}

/// Whether a write or a flush came to a good end.
fn succeeded(outcome: Outcome, offset: u64) -> Result<(), Stopped> {
    let is_lost = matches!(outcome.status.cause(), Some(Cause::Lost(_)));
    // A full disk takes a part of the last transfer.
    let offset = offset + outcome.transferred_bytes;
    outcome.into_result().map(drop).map_err(|error| {
        if is_lost { Stopped::Lost(error) } else { Stopped::Failed(CopyError::Write { offset, error }) }
    })
}

/// Reads both and compares. Counts bytes in `done`.
///
/// # Errors
/// Which side failed, or where they differ.
pub fn verify(source: &End<'_>, destination: &End<'_>, done: &AtomicU64) -> Result<(), CopyError> {
    let mut pairs = VecDeque::new();
    let mut next = 0;
    while next < source.len || !pairs.is_empty() {
        while next < source.len && pairs.len() < DEPTH {
            let len = TRANSFER_LEN.min(source.len - next);
            pairs.push_back((next, len, read(source, next, len), read(destination, next, len)));
            next += len;
        }
        let Some((offset, len, a, b)) = pairs.pop_front() else { break };
        let a = finish_read(offset, len, a)?;
        let b = finish_read(offset, len, b)?;
        if let Some(i) = a.iter().zip(b.iter()).position(|(x, y)| x != y) {
            return Err(CopyError::Differs(offset + i as u64));
        }
        done.fetch_add(len, Ordering::Relaxed);
    }
    Ok(())
}

fn start_reads(source: &End<'_>, next: &mut u64, reads: &mut VecDeque<Piece>) {
    while *next < source.len && reads.len() < DEPTH {
        let (offset, len) = (*next, TRANSFER_LEN.min(source.len - *next));
        reads.push_back(Piece { offset, len, future: read(source, offset, len) });
        *next += len;
    }
}

/// Whole blocks are read; what is beyond the end of the range is cut off in [`finish_read`].
fn read(end: &End<'_>, offset: u64, len: u64) -> RequestFuture {
    let aligned = len.next_multiple_of(u64::from(end.io.alignment_bytes().max(1)));
    end.io.submit(Request::Read { offset, buffer: Buffer::zeroed(aligned as usize) })
}

fn finish_read(offset: u64, len: u64, future: RequestFuture) -> Result<Buffer, CopyError> {
    let mut buffer = block_on(future).into_read().map_err(|error| CopyError::Read { offset, error })?;
    if (buffer.len() as u64) < len {
        return Err(CopyError::Shrunk(offset + buffer.len() as u64));
    }
    buffer.set_len(len as usize);
    Ok(buffer)
}

/// Starts a write. The rest of a last, partial block keeps what the destination has there.
fn write(end: &End<'_>, offset: u64, bytes: Buffer) -> Result<RequestFuture, CopyError> {
    let align = u64::from(end.io.alignment_bytes().max(1));
    let len = bytes.len() as u64;
    let tail = len % align;
    let buffer = if tail == 0 || !end.fixed {
        bytes
    } else {
        let start = offset + len - tail;
        let block = block_on(end.io.submit(Request::Read { offset: start, buffer: Buffer::zeroed(align as usize) }))
            .into_read()
            .map_err(|error| CopyError::Write { offset: start, error })?;
        let mut whole = Buffer::zeroed((len - tail + align) as usize);
        whole[(len - tail) as usize..].copy_from_slice(&block);
        whole[..len as usize].copy_from_slice(&bytes);
        whole
    };
    Ok(end.io.submit(Request::Write { offset, buffer, durable: false }))
}
