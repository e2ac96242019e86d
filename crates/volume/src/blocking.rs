//! A volume's medium, used by a thread that may wait: what a reactor gives its ring, this thread gives its own.
//!
//! The same guards are held as for commands of hosts, in short pieces, so that nobody waits long for a block that a
//! function reads. A function therefore sees every write that was acknowledged before, and whole blocks.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use diskside_io::Errno;
use diskside_io::buffer::{Buffer, Part};
use diskside_io::bytefile::Direction;
use diskside_io::ownring;
use diskside_io::readahead::{ReadAt, Reading};
use diskside_io::request::Outcome;
use diskside_io::ring::Op;

use crate::Volume;
use crate::guard::{Asks, Mode};
use crate::medium::{Access, Action};
use crate::volume_file::{begin_read, begin_write};

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
        let (mut tries, mut asks) = (0_u32, Asks::First);
        while !volume.guards.try_hold(range.clone(), mode, asks) {
            (tries, asks) = (tries + 1, Asks::Again);
            if tries < 16 { std::thread::yield_now() } else { std::thread::sleep(GUARD_RETRY) }
        }
        Self { volume, range, mode }
    }

    /// The same for a reader, which gives others the thread meanwhile.
    pub(crate) async fn shared(volume: &'a Volume, range: Range<u64>) -> Self {
        let (mut tries, mode) = (0_u32, Mode::Shared);
        while !volume.guards.try_hold(range.clone(), mode, Asks::Again) {
            tries += 1;
            if tries < 16 { std::thread::yield_now() } else { ownring::sleep(GUARD_RETRY).await }
        }
        Self { volume, range, mode }
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.volume.release(self.range.clone(), self.mode);
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

    fn read(&self, offset: u64, into: Part) -> Reading<'_> {
        Box::pin(async move {
            let Part { mut buffer, range } = into;
            for start in range.clone().step_by(HOLD_BYTES) {
                let part = start..range.end.min(start + HOLD_BYTES);
                let from = offset + (start - range.start) as u64;
                let _hold = Hold::shared(&self.volume, from..from + part.len() as u64).await;
                if self.volume.is_removed() {
                    return Err(std::io::Error::from(Errno::NODEV).into());
                }
                let read = fill_held(&self.volume, from, Part { buffer, range: part }).await;
                buffer = read.map_err(|errno| self.volume.error(errno))?;
            }
            Ok(buffer)
        })
    }

    fn read_now(&self, offset: u64, buffer: &mut [u8]) -> bool {
        let Some(memory) = self.volume.medium.memory() else { return false };
        for (from, part) in (offset..).step_by(HOLD_BYTES).zip(buffer.chunks_mut(HOLD_BYTES)) {
            // Nothing is waited for but commands that change these bytes at this moment.
            let _hold = Hold::of(&self.volume, from..from + part.len() as u64, Mode::Shared);
            if self.volume.is_removed() {
                return false;
            }
            memory.read(from as usize, part);
        }
        true
    }

    fn has_memory(&self) -> bool {
        self.volume.medium.memory().is_some()
    }

    fn reads_at_once(&self) -> usize {
        reads_at_once(&self.volume)
    }
}

/// Reads that keep a disk busy while their bytes are looked at; memory is not waited for.
pub fn reads_at_once(volume: &Volume) -> usize {
    if volume.medium.memory().is_some() { 1 } else { volume.medium.reads_at_once() }
}

/// Reads a range that the caller holds. Waits.
pub fn read_held(volume: &Volume, offset: u64, buffer: &mut [u8]) -> Result<(), Errno> {
    let blocks = Part::whole(Buffer::zeroed(buffer.len()));
    buffer.copy_from_slice(&ownring::run(fill_held(volume, offset, blocks))?);
    Ok(())
}

/// The same for a write, whose caller tells of a failure.
fn read_edge(volume: &Volume, offset: u64, buffer: &mut [u8]) -> Result<(), Errno> {
    let blocks = Part::whole(Buffer::zeroed(buffer.len()));
    buffer.copy_from_slice(&ownring::run(fill(volume, offset, blocks))?);
    Ok(())
}

/// Fills a part of a buffer with a range that the caller holds.
pub(crate) async fn fill_held(volume: &Volume, offset: u64, into: Part) -> Result<Buffer, Errno> {
    fill(volume, offset, into).await.inspect_err(|errno| volume.failed("read", Some(offset), *errno))
}

async fn fill(volume: &Volume, offset: u64, mut into: Part) -> Result<Buffer, Errno> {
    if let Some(memory) = volume.medium.memory() {
        memory.read(offset as usize, into.bytes());
        return Ok(into.buffer);
    }
    let whole = blocks_of(volume, offset, into.len());
    if into.is_aligned() && whole == (offset..offset + into.len() as u64) {
        return fill_blocks(volume, offset, into).await;
    }
    // Whole blocks into aligned memory, then the part that was asked for.
    let (start, skip) = (whole.start, (offset - whole.start) as usize);
    let blocks = fill_blocks(volume, start, Part::whole(Buffer::zeroed((whole.end - start) as usize))).await?;
    let len = into.len();
    into.bytes().copy_from_slice(&blocks[skip..skip + len]);
    Ok(into.buffer)
}

async fn fill_blocks(volume: &Volume, offset: u64, into: Part) -> Result<Buffer, Errno> {
    let block = volume.block_bytes as usize;
    // Copies from the page cache would be this thread's, one after the other.
    let by_worker = volume.medium.is_remote() || !volume.medium.properties().direct;
    let Part { mut buffer, range } = into;
    let mut at = range.start;
    while at < range.end {
        let rest = Part { buffer, range: at..range.end };
        let begun = begin_read(volume, offset + (at - range.start) as u64, rest, None);
        let (moved, _) = ownring::ended(begun, by_worker, || volume.ask(Instant::now())).await;
        buffer = moved.buffer;
        // A file that is shorter than it was when the volume was opened ends inside a block.
        match moved.result.map(|moved| moved as usize / block * block) {
            Ok(0) => {
                volume.note_end();
                return Err(Errno::IO);
            }
            Ok(moved) => at += moved,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(buffer)
}

/// Writes whole blocks of a range that the caller holds alone, and gives their memory, which is aligned, back. Waits, also for a medium
/// that hangs: what became of a write has to be known.
pub fn write_blocks(volume: &Volume, offset: u64, blocks: Part) -> Result<Buffer, Errno> {
    write_held_blocks(volume, offset, blocks).inspect_err(|errno| volume.failed("write", Some(offset), *errno))
}

fn write_held_blocks(volume: &Volume, offset: u64, blocks: Part) -> Result<Buffer, Errno> {
    if volume.read_only {
        return Err(Errno::ROFS);
    }
    if volume.has_failed() {
        return Err(Errno::IO);
    }
    ownring::run(async {
        let Part { mut buffer, range } = blocks;
        let mut at = range.start;
        while at < range.end {
            let rest = Part { buffer, range: at..range.end };
            let begun = begin_write(volume, offset + (at - range.start) as u64, rest, None);
            let (moved, _) = ownring::ended(begun, volume.medium.is_remote(), || volume.ask(Instant::now())).await;
            buffer = moved.buffer;
            match moved.result {
                Ok(0) => return Err(Errno::IO),
                Ok(moved) => at += moved as usize,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(buffer)
    })
}

/// Writes bytes anywhere: the blocks at the edges keep what is not written, also against commands that write them.
pub fn write_at(volume: &Volume, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
    let began = Instant::now();
    let _hold = Hold::of(volume, blocks_of(volume, offset, bytes.len()), Mode::Exclusive);
    if volume.is_removed() {
        return Err(Errno::NODEV);
    }
    let written = write_held(volume, offset, bytes);
    let written = written.inspect_err(|errno| volume.failed("write", Some(offset), *errno));
    volume.functions.ended(Direction::Write, written.map(|()| bytes.len() as u64), began.elapsed());
    written
}

/// The whole blocks that bytes are in.
pub fn blocks_of(volume: &Volume, offset: u64, len: usize) -> Range<u64> {
    let block = u64::from(volume.block_bytes);
    offset / block * block..(offset + len as u64).next_multiple_of(block)
}

/// Writes bytes anywhere. The caller holds their whole blocks alone, and tells of a failure.
pub(crate) fn write_held(volume: &Volume, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
    let block = u64::from(volume.block_bytes);
    let end = offset + bytes.len() as u64;
    let Range { start: first, end: last } = blocks_of(volume, offset, bytes.len());
    let mut blocks = Buffer::zeroed((last - first) as usize);
    if first < offset {
        read_edge(volume, first, &mut blocks[..block as usize])?;
    }
    if end < last && (last - block > first || first == offset) {
        let at = (last - block - first) as usize;
        read_edge(volume, last - block, &mut blocks[at..])?;
    }
    let skip = (offset - first) as usize;
    blocks[skip..skip + bytes.len()].copy_from_slice(bytes);
    write_held_blocks(volume, first, Part::whole(blocks)).map(drop)
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
    let _asked = volume.ask(Instant::now());
    let flushed = match step.action {
        Action::Done(_) => Ok(()),
        Action::Ring(Op::Sync { file, .. }) => rustix::fs::fdatasync(&file),
        Action::Failed(errno) => Err(errno),
        _ => Err(Errno::IO),
    };
    flushed.inspect_err(|errno| {
        volume.failed("flush", None, *errno);
        volume.set_failed();
    })
}

/// Drops what the kernel keeps of it in memory. Waits for the disk.
pub fn drop_cached(volume: &Volume) -> Result<(), Errno> {
    let _asked = volume.ask(Instant::now());
    volume.medium.drop_cached().inspect_err(|errno| volume.failed("flush", None, *errno))
}

fn wait(delay: Duration) {
    if !delay.is_zero() {
        std::thread::sleep(delay);
    }
}
