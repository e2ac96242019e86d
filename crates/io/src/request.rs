//! Requests by position, from any thread, and the futures of their outcomes.
//!
//! This is the asynchronous interface of DAPHNE D6.3, part 2: [`AsyncIo::submit`] returns a
//! [`RequestFuture`]; [`poll`] looks whether one of several is done, [`block_on`],
//! [`block_on_any`] and [`block_on_all`] wait. The same interface serves local files
//! ([`instance`](crate::instance)) and whatever else implements [`AsyncIo`], such as a volume
//! behind a network. Futures complete in any order.
//!
//! A `RequestFuture` also is a [`Future`], for any executor.

mod future;
pub mod passing;
mod status;

use std::io;
use std::sync::Arc;

pub use future::{Lost, Promise, RequestFuture, block_on, block_on_all, block_on_any, poll, promise, run_here};
pub use status::{Cause, Status};

use crate::buffer::Buffer;

/// Something that takes requests by position, from any thread.
pub trait AsyncIo: Send + Sync {
    /// Starts a request. It sleeps only while the back end's staging queue is full.
    fn submit(&self, request: Request) -> RequestFuture;

    /// Present length in bytes.
    fn len_bytes(&self) -> io::Result<u64>;

    /// The alignment in bytes of offsets, lengths and buffer addresses; 1 where anything is allowed.
    fn alignment_bytes(&self) -> u32;
}

impl<T: AsyncIo + ?Sized> AsyncIo for Arc<T> {
    fn submit(&self, request: Request) -> RequestFuture {
        (**self).submit(request)
    }

    fn len_bytes(&self) -> io::Result<u64> {
        (**self).len_bytes()
    }

    fn alignment_bytes(&self) -> u32 {
        (**self).alignment_bytes()
    }
}

/// One request. Its buffer comes back in the [`Outcome`].
#[derive(Debug)]
pub enum Request {
    /// Fills the buffer from `offset` on. At the end of the file the outcome is a success with fewer
    /// [`transferred_bytes`](Outcome::transferred_bytes).
    Read {
        /// Position in bytes.
        offset: u64,
        /// What is filled.
        buffer: Buffer,
    },
    /// Writes the whole buffer to `offset`.
    Write {
        /// Position in bytes.
        offset: u64,
        /// What is written.
        buffer: Buffer,
        /// Whether the bytes are durable when the request completes (force unit access).
        durable: bool,
    },
    /// Makes durable what was written by requests that completed before this one was submitted.
    Flush,
    /// Says that a range is no longer needed (a hole, a trim). It reads as zeroes afterwards where
    /// the back end can promise that; local files do.
    Deallocate {
        /// Position in bytes.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Makes a range read as zeroes.
    WriteZeroes {
        /// Position in bytes.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
}

/// How a request ended.
#[derive(Debug)]
pub struct Outcome {
    /// Success, or the error and its cause.
    pub status: Status,
    /// Bytes read or written, also before an error.
    pub transferred_bytes: u64,
    /// The request's buffer, at its full length; `None` where it had none or the back end died with it.
    pub buffer: Option<Buffer>,
}

impl Request {
    /// The request's buffer, if it has one.
    pub fn into_buffer(self) -> Option<Buffer> {
        match self {
            Self::Read { buffer, .. } | Self::Write { buffer, .. } => Some(buffer),
            Self::Flush | Self::Deallocate { .. } | Self::WriteZeroes { .. } => None,
        }
    }
}

impl Outcome {
    /// The outcome of a request that failed before anything was transferred.
    pub fn failed(status: Status, buffer: Option<Buffer>) -> Self {
        Self { status, transferred_bytes: 0, buffer }
    }

    /// The buffer, cut to the bytes that were read, or the error.
    pub fn into_read(self) -> io::Result<Buffer> {
        self.status.to_result()?;
        let mut buffer = self.buffer.unwrap_or_else(|| Buffer::zeroed(0));
        buffer.set_len(buffer.len().min(self.transferred_bytes as usize));
        Ok(buffer)
    }

    /// The bytes transferred, or the error.
    pub fn into_result(self) -> io::Result<u64> {
        self.status.to_result()?;
        Ok(self.transferred_bytes)
    }
}
