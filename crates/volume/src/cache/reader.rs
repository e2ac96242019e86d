//! Volumes and versions of files, read through the cache.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use diskside_io::Errno;
use diskside_io::buffer::Buffer;
use diskside_io::readahead::{ReadAt, ReadAtError};

use super::{BLOCK_LEN, BlockCache, ObjectVersion, Of, copy};
use crate::Volume;
use crate::blocking::{Counted, HOLD_BYTES, Hold, Reads, VolumeReader, read_held};
use crate::guard::Mode;
use crate::metered::Metered;

/// Blocks that are read under one hold of their guard.
const READ_BLOCKS: usize = HOLD_BYTES / BLOCK_LEN as usize;

/// Bytes of a volume, read through the cache.
#[derive(Debug)]
pub(super) struct KeptReader {
    pub(super) volume: Arc<Volume>,
    pub(super) cache: Arc<BlockCache>,
    pub(super) reads: Arc<Reads>,
}

/// A volume as input of a call over so many bytes of it.
pub fn volume_reader(
    cache: &Arc<BlockCache>,
    volume: &Arc<Volume>,
    len_bytes: u64,
    reads: &Arc<Reads>,
) -> Arc<dyn ReadAt> {
    let (volume, reads) = (Arc::clone(volume), Arc::clone(reads));
    if cache.takes(&volume, len_bytes) {
        return Arc::new(KeptReader { volume, cache: Arc::clone(cache), reads });
    }
    let counters = Arc::clone(&volume.functions);
    Arc::new(Counted { inner: Metered { inner: VolumeReader { volume }, counters }, reads })
}

/// A version of a file, read through the cache: what nobody changes needs no guard.
#[derive(Debug)]
struct KeptVersion<R> {
    inner: R,
    of: Of,
    cache: Arc<BlockCache>,
    reads: Arc<Reads>,
}

/// A version of a file, of which the kernel keeps nothing, as input of a call over so many bytes of it. `version` tells it from all
/// others.
pub fn version_reader<R: ReadAt + 'static>(
    cache: &Arc<BlockCache>,
    inner: R,
    version: ObjectVersion,
    len_bytes: u64,
    reads: &Arc<Reads>,
) -> Arc<dyn ReadAt> {
    let reads = Arc::clone(reads);
    if cache.takes_bytes(len_bytes) {
        return Arc::new(KeptVersion { inner, of: Of::Object(version), cache: Arc::clone(cache), reads });
    }
    Arc::new(Counted { inner, reads })
}

impl<R: ReadAt> ReadAt for KeptVersion<R> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadAtError> {
        let range = offset..offset + buffer.len() as u64;
        let missing = self.cache.take_kept(self.of, &range, buffer, &self.reads);
        for blocks in missing.chunk_by(|a, b| a + 1 == *b) {
            let whole = blocks[0] * BLOCK_LEN..((blocks[blocks.len() - 1] + 1) * BLOCK_LEN).min(self.len());
            let mut bytes = vec![0; (whole.end - whole.start) as usize];
            self.inner.read_exact_at(whole.start, &mut bytes)?;
            self.reads.media_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            copy(whole.start, &bytes, &range, buffer);
            self.cache.insert(self.of, blocks[0], &bytes);
        }
        Ok(())
    }

    fn reads_at_once(&self) -> usize {
        self.inner.reads_at_once()
    }
}

impl KeptReader {
    /// Reads whole blocks that are not kept, and keeps them. `within` is what is wanted of the volume, and lies in `buffer`.
    fn fetch(&self, blocks: &[u64], within: &Range<u64>, buffer: &mut [u8]) -> Result<(), Errno> {
        let whole = self.bytes_of(blocks[0]).start..self.bytes_of(blocks[blocks.len() - 1]).end;
        let len = (whole.end - whole.start) as usize;
        self.volume.keep_in(&self.cache);
        let began = Instant::now();
        let _hold = Hold::of(&self.volume, whole.clone(), Mode::Shared);
        if whole.start >= within.start && whole.end <= within.end {
            let at = (whole.start - within.start) as usize;
            let part = &mut buffer[at..at + len];
            self.read(whole.start, part, began)?;
            self.cache.insert(Of::Volume(self.volume.serial()), blocks[0], part);
        } else {
            let mut bytes = Buffer::zeroed(len);
            self.read(whole.start, &mut bytes[..len], began)?;
            copy(whole.start, &bytes[..len], within, buffer);
            self.cache.insert(Of::Volume(self.volume.serial()), blocks[0], &bytes[..len]);
        }
        self.reads.media_bytes.fetch_add(len as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Reads the medium, and counts that.
    fn read(&self, offset: u64, into: &mut [u8], began: Instant) -> Result<(), Errno> {
        let (read, counters) = (read_held(&self.volume, offset, into), &self.volume.functions);
        counters.took(began.elapsed());
        counters.read(read.is_ok().then_some(into.len() as u64));
        read
    }

    fn bytes_of(&self, block: u64) -> Range<u64> {
        block * BLOCK_LEN..((block + 1) * BLOCK_LEN).min(self.len())
    }
}

impl ReadAt for KeptReader {
    fn len(&self) -> u64 {
        self.volume.medium.properties().len_bytes
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadAtError> {
        let range = offset..offset + buffer.len() as u64;
        let missing = self.cache.take_kept(Of::Volume(self.volume.serial()), &range, buffer, &self.reads);
        // Blocks at the edges, of which only a part is wanted, are read apart: the others go where they belong at once.
        let is_whole = |block: u64| {
            let bytes = self.bytes_of(block);
            bytes.start >= range.start && bytes.end <= range.end
        };
        let runs = missing.chunk_by(|a, b| a + 1 == *b && is_whole(*a) && is_whole(*b));
        for blocks in runs.flat_map(|run| run.chunks(READ_BLOCKS)) {
            self.fetch(blocks, &range, buffer).map_err(std::io::Error::from)?;
        }
        Ok(())
    }

    fn reads_at_once(&self) -> usize {
        self.volume.medium.reads_at_once()
    }
}
