//! Memory as a source and as a sink of function commands.
//!
//! A call has no memory for itself, as an execution has: each piece that it reads or writes it has alone meanwhile, like
//! a Memory Read or Write of these bytes.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use diskside_engine::{ReadAt, ReadAtError};

use super::super::Compute;
use super::super::sink::Written;
use super::Standard;

/// Bytes that are written under one hold.
const WRITE_BYTES: usize = 256 << 10;

/// The memory namespace, to be read by a function.
#[derive(Debug)]
pub(crate) struct MemoryReader {
    pub(crate) compute: Arc<Compute>,
}

/// A range of the memory namespace that is being written.
#[derive(Debug)]
pub(crate) struct MemorySink {
    compute: Arc<Compute>,
    range: Range<u64>,
    /// Where the next byte goes.
    at: u64,
}

impl Compute {
    fn memory(&self) -> io::Result<&Standard> {
        self.standard.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Standard {
    /// Bytes of the memory.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.memory.len() as u64
    }

    fn with_piece(&self, at: u64, len: usize, act: impl FnOnce(&mut [u8])) -> io::Result<()> {
        let piece = at as usize..at as usize + len;
        self.with(&[piece], |parts| act(parts[0])).map_err(|problem| {
            let told = problem.record.map(|record| record.message);
            io::Error::new(io::ErrorKind::ResourceBusy, told.unwrap_or_else(|| problem.status.to_string()))
        })
    }
}

impl ReadAt for MemoryReader {
    fn len(&self) -> u64 {
        self.compute.standard.as_ref().map_or(0, Standard::len_bytes)
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadAtError> {
        let len = buffer.len();
        self.compute.memory()?.with_piece(offset, len, |bytes| buffer.copy_from_slice(bytes))?;
        Ok(())
    }
}

impl MemorySink {
    /// A sink of the range, which lies in the memory.
    pub(crate) fn new(compute: Arc<Compute>, range: Range<u64>) -> Self {
        Self { compute, at: range.start, range }
    }

    pub(crate) fn room(&self) -> u64 {
        self.range.end - self.at
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        for part in bytes.chunks(WRITE_BYTES) {
            self.compute.memory()?.with_piece(self.at, part.len(), |memory| memory.copy_from_slice(part))?;
            self.at += part.len() as u64;
        }
        Ok(())
    }

    /// Where the next byte goes.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Nothing of it is on stable media.
    pub(crate) fn written(&self) -> Written {
        Written { written: self.at - self.range.start, durable: 0 }
    }
}
