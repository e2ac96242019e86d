//! Memory as a source and as a sink of function commands.
//!
//! A call has no memory for itself, as an execution has: each piece that it reads or writes it has alone meanwhile, like
//! a Memory Read or Write of these bytes.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use diskside_engine::ReadAt;
use diskside_io::buffer::Part;
use diskside_io::readahead::Reading;
use diskside_sbpf::machine::CancelToken;

use crate::call::answer::Problem;
use crate::endpoint::Written;
use crate::standard::state::Standard;

/// Bytes that are written under one hold.
const WRITE_BYTES: usize = 256 << 10;

/// The memory namespace, to be read by a function.
#[derive(Debug)]
pub(crate) struct MemoryReader {
    pub(crate) memory: Arc<Standard>,
    /// The call's: when it is cancelled, the wait for memory that a program holds ends.
    pub(crate) cancel: CancelToken,
}

/// A range of the memory namespace that is being written.
#[derive(Debug)]
pub(crate) struct MemorySink {
    memory: Arc<Standard>,
    cancel: CancelToken,
    range: Range<u64>,
    /// Where the next byte goes.
    at: u64,
}

impl Standard {
    /// Does something with a piece of the memory that nobody else has meanwhile.
    fn with_piece(
        self: &Arc<Self>,
        piece: Range<usize>,
        cancel: &CancelToken,
        act: impl FnOnce(&mut [u8]),
    ) -> io::Result<()> {
        let pieces = [piece];
        let no_room = |problem: Problem| {
            let told = problem.record.map(|record| record.message).unwrap_or_default();
            io::Error::new(io::ErrorKind::ResourceBusy, told)
        };
        self.touch(&pieces).map_err(no_room)?;
        if let Some(mut guard) = self.memory.try_lock(&pieces) {
            act(guard.parts()[0]);
            return Ok(());
        }
        let waiting = Arc::clone(self);
        let _watch = cancel.when_cancelled(move || waiting.memory.wake());
        let until = Instant::now() + self.wait_max;
        let guard = self.memory.lock_unless(&pieces, Some(until), || cancel.is_cancelled());
        let busy = || io::Error::new(io::ErrorKind::ResourceBusy, "a program, or another command, has this memory");
        act(guard.ok_or_else(busy)?.parts()[0]);
        Ok(())
    }

    /// Bytes of the memory.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.memory.len() as u64
    }
}

impl ReadAt for MemoryReader {
    fn len(&self) -> u64 {
        self.memory.len_bytes()
    }

    fn read(&self, offset: u64, mut into: Part) -> Reading<'_> {
        Box::pin(async move {
            let piece = offset as usize..offset as usize + into.len();
            self.memory.with_piece(piece, &self.cancel, |bytes| into.bytes().copy_from_slice(bytes))?;
            Ok(into.buffer)
        })
    }
}

impl MemorySink {
    /// A sink of the range, which lies in the memory.
    pub(crate) fn new(memory: Arc<Standard>, range: Range<u64>, cancel: CancelToken) -> Self {
        Self { memory, cancel, at: range.start, range }
    }

    pub(crate) fn room(&self) -> u64 {
        self.range.end - self.at
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        for part in bytes.chunks(WRITE_BYTES) {
            let piece = self.at as usize..self.at as usize + part.len();
            self.memory.with_piece(piece, &self.cancel, |bytes| bytes.copy_from_slice(part))?;
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
