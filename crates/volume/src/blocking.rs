//! A volume's medium, used by a thread that may wait: what a reactor gives its ring, this thread does itself.
//!
//! The same guards are held as for commands of hosts, in short pieces, so that nobody waits long for a block that a
//! function reads. A function therefore sees every write that was acknowledged before, and whole blocks.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use diskside_io::Errno;
use diskside_io::buffer::{ALIGNMENT_BYTES, Buffer};
use diskside_io::readahead::{ReadAt, ReadAtError};
use diskside_io::request::{Outcome, block_on};
use diskside_io::ring::Op;

use crate::Volume;
use crate::guard::Mode;
use crate::medium::{Access, Action};

/// Bytes that are read or written under one hold of their guard.
pub const HOLD_BYTES: usize = 512 << 10;
/// How soon a block is asked for again that a command holds.
const GUARD_RETRY: Duration = Duration::from_micros(50);

/// A hold of a range of a volume.
pub struct Hold<'a> {
    volume: &'a Volume,
    range: Range<u64>,
    mode: Mode,
}

impl<'a> Hold<'a> {
    /// Waits until nobody else holds the range in a way that excludes this.
    pub fn of(volume: &'a Volume, range: Range<u64>, mode: Mode) -> Self {
        let mut tries = 0_u32;
        while !volume.guards.try_hold(range.clone(), mode) {
            tries += 1;
            if tries < 16 { std::thread::yield_now() } else { std::thread::sleep(GUARD_RETRY) }
        }
        Self { volume, range, mode }
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.volume.release(self.range.clone(), self.mode);
    }
}

/// Where the bytes came from that one call was given.
#[derive(Debug, Default)]
pub struct Reads {
    /// Bytes that were read from a medium or a file.
    pub media_bytes: AtomicU64,
    /// Bytes that the cache had.
    pub kept_bytes: AtomicU64,
}

/// Counts what is read from a medium or a file.
#[derive(Debug)]
pub struct Counted<R> {
    /// What is read.
    pub inner: R,
    /// Where its bytes are counted.
    pub reads: Arc<Reads>,
}

impl<R: ReadAt> ReadAt for Counted<R> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadAtError> {
        self.inner.read_exact_at(offset, buffer)?;
        self.reads.media_bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn read_now(&self, offset: u64, buffer: &mut [u8]) -> bool {
        let is_read = self.inner.read_now(offset, buffer);
        if is_read {
            self.reads.media_bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        }
        is_read
    }

    fn reads_at_once(&self) -> usize {
        self.inner.reads_at_once()
    }
}

/// Bytes of a volume, to be read by a function.
#[derive(Debug)]
pub struct VolumeReader {
    /// The volume.
    pub volume: Arc<Volume>,
}

impl ReadAt for VolumeReader {
    fn len(&self) -> u64 {
        self.volume.medium.properties().len_bytes
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadAtError> {
        let mut at = 0;
        while at < buffer.len() {
            let len = (buffer.len() - at).min(HOLD_BYTES);
            let from = offset + at as u64;
            let _hold = Hold::of(&self.volume, from..from + len as u64, Mode::Shared);
            if self.volume.is_removed() {
                return Err(std::io::Error::from(Errno::NODEV).into());
            }
            read_held(&self.volume, from, &mut buffer[at..at + len]).map_err(std::io::Error::from)?;
            at += len;
        }
        Ok(())
    }

    fn read_now(&self, offset: u64, buffer: &mut [u8]) -> bool {
        // Of memory nothing is waited for but commands that change these bytes at this moment.
        self.volume.medium.memory().is_some() && self.read_exact_at(offset, buffer).is_ok()
    }

    fn reads_at_once(&self) -> usize {
        reads_at_once(&self.volume)
    }
}

/// Reads that keep a disk busy while their bytes are looked at; memory is not waited for.
pub fn reads_at_once(volume: &Volume) -> usize {
    if volume.medium.memory().is_some() { 1 } else { volume.medium.reads_at_once() }
}

/// Reads a range that the caller holds.
pub fn read_held(volume: &Volume, offset: u64, buffer: &mut [u8]) -> Result<(), Errno> {
    if let Some(memory) = volume.medium.memory() {
        memory.read(offset as usize, buffer);
        return Ok(());
    }
    let block = u64::from(volume.block_bytes);
    let aligned = buffer.as_ptr().addr().is_multiple_of(ALIGNMENT_BYTES)
        && offset.is_multiple_of(block)
        && (buffer.len() as u64).is_multiple_of(block);
    if aligned {
        return read_blocks(volume, offset, buffer);
    }
    // Whole blocks into aligned memory, then the part that was asked for.
    let start = offset / block * block;
    let end = (offset + buffer.len() as u64).next_multiple_of(block);
    let mut blocks = Buffer::zeroed((end - start) as usize);
    read_blocks(volume, start, &mut blocks)?;
    let skip = (offset - start) as usize;
    buffer.copy_from_slice(&blocks[skip..skip + buffer.len()]);
    Ok(())
}

fn read_blocks(volume: &Volume, offset: u64, buffer: &mut [u8]) -> Result<(), Errno> {
    let mut done = 0;
    while done < buffer.len() {
        let at = offset + done as u64;
        let rest = &mut buffer[done..];
        let step = volume.medium.start(&Access::Read { offset: at, len: rest.len() });
        wait(step.delay);
        let action = match step.action {
            Action::Pending(pending) => pending.wait(),
            action => action,
        };
        let moved = match action {
            Action::Bytes(slice) => {
                let len = slice.len().min(rest.len());
                slice.part(0..len).copy_to(&mut rest[..len]);
                len
            }
            Action::File { file, len } => {
                let len = len.min(rest.len());
                rustix::io::retry_on_intr(|| rustix::io::pread(&file, &mut rest[..len], at))?
            }
            Action::Failed(errno) => return Err(errno),
            _ => return Err(Errno::IO),
        };
        // A file that is shorter than it was when the volume was opened ends inside a block.
        let moved = moved / volume.block_bytes as usize * volume.block_bytes as usize;
        if moved == 0 {
            return Err(Errno::IO);
        }
        done += moved;
    }
    Ok(())
}

/// Writes whole blocks of a range that the caller holds alone. `blocks` is aligned memory.
pub fn write_blocks(volume: &Volume, offset: u64, blocks: &[u8]) -> Result<(), Errno> {
    if volume.read_only {
        return Err(Errno::ROFS);
    }
    if volume.has_failed() {
        return Err(Errno::IO);
    }
    let mut done = 0;
    while done < blocks.len() {
        let (at, rest) = (offset + done as u64, &blocks[done..]);
        let step = volume.medium.start(&Access::Write { offset: at, data: rest, durable: false });
        wait(step.delay);
        let moved = match step.action {
            Action::Done(len) => len as usize,
            Action::Elsewhere(future) => moved_elsewhere(block_on(future))? as usize,
            Action::File { file, len } => {
                let len = len.min(rest.len());
                rustix::io::retry_on_intr(|| rustix::io::pwrite(&file, &rest[..len], at))?
            }
            Action::Failed(errno) => return Err(errno),
            _ => return Err(Errno::IO),
        };
        if moved == 0 {
            return Err(Errno::IO);
        }
        done += moved;
    }
    Ok(())
}

/// Writes bytes anywhere: the blocks at the edges keep what is not written, also against commands that write them.
pub fn write_at(volume: &Volume, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
    let began = Instant::now();
    let _hold = Hold::of(volume, blocks_of(volume, offset, bytes.len()), Mode::Exclusive);
    if volume.is_removed() {
        return Err(Errno::NODEV);
    }
    let written = write_held(volume, offset, bytes);
    volume.functions.took(began.elapsed());
    volume.functions.wrote(if written.is_ok() { bytes.len() as u64 } else { 0 }, written.is_err());
    written
}

/// The whole blocks that bytes are in.
pub fn blocks_of(volume: &Volume, offset: u64, len: usize) -> Range<u64> {
    let block = u64::from(volume.block_bytes);
    offset / block * block..(offset + len as u64).next_multiple_of(block)
}

/// Writes bytes anywhere. The caller holds their whole blocks alone.
pub fn write_held(volume: &Volume, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
    let block = u64::from(volume.block_bytes);
    let end = offset + bytes.len() as u64;
    let Range { start: first, end: last } = blocks_of(volume, offset, bytes.len());
    let mut blocks = Buffer::zeroed((last - first) as usize);
    if first < offset {
        read_held(volume, first, &mut blocks[..block as usize])?;
    }
    if end < last && (last - block > first || first == offset) {
        let at = (last - block - first) as usize;
        read_held(volume, last - block, &mut blocks[at..])?;
    }
    let skip = (offset - first) as usize;
    blocks[skip..skip + bytes.len()].copy_from_slice(bytes);
    write_blocks(volume, first, &blocks)
}

/// How much somebody else has done.
pub fn moved_elsewhere(outcome: Outcome) -> Result<u64, Errno> {
    match outcome.status.to_result() {
        Ok(()) => Ok(outcome.transferred_bytes),
        Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
    }
}

/// Makes every completed write survive power loss.
pub fn flush(volume: &Volume) -> Result<(), Errno> {
    if volume.has_failed() {
        return Err(Errno::IO);
    }
    let step = volume.medium.start(&Access::Flush);
    wait(step.delay);
    let flushed = match step.action {
        Action::Done(_) => Ok(()),
        Action::Ring(Op::Sync { file, .. }) => rustix::fs::fdatasync(&file),
        Action::Failed(errno) => Err(errno),
        _ => Err(Errno::IO),
    };
    flushed.inspect_err(|_| volume.set_failed())
}

fn wait(delay: Duration) {
    if !delay.is_zero() {
        std::thread::sleep(delay);
    }
}
