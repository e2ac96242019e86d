//! Copying between files and volumes, with verification.

use diskside_io::buffer::Buffer;
use diskside_io::request::{AsyncIo, Request, RequestFuture, block_on};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of one transfer.
pub const TRANSFER_LEN: u64 = 1 << 20;
/// Transfers in flight.
const DEPTH: usize = 8;

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
    /// The source is longer than the destination can be.
    #[error("the source has {source_len} bytes, the destination only {destination_len}")]
    TooLong {
        /// Bytes of the source.
        source_len: u64,
        /// Bytes of the destination.
        destination_len: u64,
    },
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
/// # Errors
/// Which side failed, where, and why.
pub fn copy(source: &End<'_>, destination: &End<'_>, done: &AtomicU64) -> Result<u64, CopyError> {
    if destination.fixed && source.len > destination.len {
        return Err(CopyError::TooLong { source_len: source.len, destination_len: destination.len });
    }
    let mut reads = VecDeque::new();
    let mut writes: VecDeque<(u64, u64, RequestFuture)> = VecDeque::new();
    let mut next = 0;
    while next < source.len || !reads.is_empty() || !writes.is_empty() {
        while next < source.len && reads.len() < DEPTH {
            let len = TRANSFER_LEN.min(source.len - next);
            reads.push_back((next, len, read(source, next, len)));
            next += len;
        }
        if let Some((offset, len, future)) = reads.pop_front() {
            let buffer = finish_read(offset, len, future)?;
            writes.push_back((offset, len, write(destination, offset, buffer)?));
        }
        if (writes.len() > DEPTH || reads.is_empty())
            && let Some((offset, len, future)) = writes.pop_front()
        {
            block_on(future).into_result().map_err(|error| CopyError::Write { offset, error })?;
            done.fetch_add(len, Ordering::Relaxed);
        }
    }
    block_on(destination.io.submit(Request::Flush))
        .into_result()
        .map_err(|error| CopyError::Write { offset: source.len, error })?;
    Ok(source.len)
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
