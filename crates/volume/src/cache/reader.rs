//! Volumes and versions of files, read through the cache.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use diskside_io::Errno;
use diskside_io::buffer::{Buffer, Part};
use diskside_io::readahead::{ReadAt, Reading};

use super::{BLOCK_LEN, BlockCache, ObjectVersion, Of, copy};
use crate::Volume;
use crate::blocking::{HOLD_BYTES, Hold, VolumeReader, fill_held};
use crate::metered::{Meter, Metered, Reads};

/// Blocks that are read under one hold of their guard.
const READ_BLOCKS: usize = HOLD_BYTES / BLOCK_LEN as usize;

/// Bytes of a volume, read through the cache.
#[derive(Debug)]
pub(super) struct KeptReader {
    pub(super) volume: Arc<Volume>,
    pub(super) cache: Arc<BlockCache>,
    pub(super) meter: Meter,
}

/// A volume as input of a call over so many bytes of it.
pub fn volume_reader(
    cache: &Arc<BlockCache>,
    volume: &Arc<Volume>,
    len_bytes: u64,
    reads: &Arc<Reads>,
) -> Arc<dyn ReadAt> {
    let volume = Arc::clone(volume);
    let meter = Meter { counters: Some(Arc::clone(&volume.functions)), reads: Arc::clone(reads) };
    if cache.takes(&volume, len_bytes) {
        return Arc::new(KeptReader { volume, cache: Arc::clone(cache), meter });
    }
    Arc::new(Metered { inner: VolumeReader { volume }, meter })
}

/// A version of a file, read through the cache: what nobody changes needs no guard.
#[derive(Debug)]
struct KeptVersion<R> {
    inner: Metered<R>,
    of: Of,
    cache: Arc<BlockCache>,
}

/// A version of a file, of which the kernel keeps nothing, as input of a call over so many bytes of it. `version` tells it from all
/// others.
pub fn version_reader<R: ReadAt + 'static>(
    cache: &Arc<BlockCache>,
    inner: Metered<R>,
    version: ObjectVersion,
    len_bytes: u64,
) -> Arc<dyn ReadAt> {
    if cache.takes_bytes(len_bytes) {
        return Arc::new(KeptVersion { inner, of: Of::Object(version), cache: Arc::clone(cache) });
    }
    Arc::new(inner)
}

impl<R: ReadAt> ReadAt for KeptVersion<R> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, offset: u64, mut into: Part) -> Reading<'_> {
        Box::pin(async move {
            let range = offset..offset + into.len() as u64;
            let missing = self.cache.take_kept(self.of, &range, into.bytes(), &self.inner.meter.reads);
            for blocks in missing.chunk_by(|a, b| a + 1 == *b) {
                let whole = blocks[0] * BLOCK_LEN..((blocks[blocks.len() - 1] + 1) * BLOCK_LEN).min(self.len());
                let bytes = Part::whole(Buffer::zeroed((whole.end - whole.start) as usize));
                let bytes = self.inner.read(whole.start, bytes).await?;
                copy(whole.start, &bytes, &range, into.bytes());
                self.cache.insert(self.of, blocks[0], &bytes);
            }
            Ok(into.buffer)
        })
    }

    fn reads_at_once(&self) -> usize {
        self.inner.reads_at_once()
    }
}

impl KeptReader {
    /// Reads whole blocks that are not kept, and keeps them. `within` is what is wanted of the volume, and lies in `into`.
    async fn fetch(&self, blocks: &[u64], within: &Range<u64>, mut into: Part) -> Result<Part, Errno> {
        let whole = self.bytes_of(blocks[0]).start..self.bytes_of(blocks[blocks.len() - 1]).end;
        let len = (whole.end - whole.start) as usize;
        self.volume.keep_in(&self.cache);
        let began = Instant::now();
        // Until they are kept: a write would not find what it has to drop.
        let _hold = Hold::shared(&self.volume, whole.clone()).await;
        if self.volume.is_removed() {
            return Err(Errno::NODEV);
        }
        let is_within = whole.start >= within.start && whole.end <= within.end;
        let part = match is_within {
            true => {
                let at = into.range.start + (whole.start - within.start) as usize;
                let buffer = std::mem::replace(&mut into.buffer, Buffer::zeroed(0));
                Part { buffer, range: at..at + len }
            }
            false => Part::whole(Buffer::zeroed(len)),
        };
        let part_range = part.range.clone();
        let read = fill_held(&self.volume, whole.start, part).await;
        self.meter.ended(began, read.is_ok().then_some(len as u64));
        let bytes = read?;
        self.cache.insert(Of::Volume(self.volume.serial()), blocks[0], &bytes[part_range]);
        match is_within {
            true => into.buffer = bytes,
            false => drop(copy(whole.start, &bytes, within, into.bytes())),
        }
        Ok(into)
    }

    fn bytes_of(&self, block: u64) -> Range<u64> {
        block * BLOCK_LEN..((block + 1) * BLOCK_LEN).min(self.len())
    }
}

impl ReadAt for KeptReader {
    fn len(&self) -> u64 {
        self.volume.medium.properties().len_bytes
    }

    fn read(&self, offset: u64, mut into: Part) -> Reading<'_> {
        Box::pin(async move {
            let range = offset..offset + into.len() as u64;
            let of = Of::Volume(self.volume.serial());
            let missing = self.cache.take_kept(of, &range, into.bytes(), &self.meter.reads);
            // Blocks at the edges, of which only a part is wanted, are read apart: the others go where they belong at once.
            let is_whole = |block: u64| {
                let bytes = self.bytes_of(block);
                bytes.start >= range.start && bytes.end <= range.end
            };
            let runs = missing.chunk_by(|a, b| a + 1 == *b && is_whole(*a) && is_whole(*b));
            for blocks in runs.flat_map(|run| run.chunks(READ_BLOCKS)) {
                into = self.fetch(blocks, &range, into).await.map_err(|errno| self.volume.error(errno))?;
            }
            Ok(into.buffer)
        })
    }

    fn reads_at_once(&self) -> usize {
        self.volume.medium.reads_at_once()
    }
}
