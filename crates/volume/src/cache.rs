//! Blocks of volumes, and of objects of stores, that one call read, kept for the next.
//!
//! Only for volumes that bypass the page cache: the kernel keeps what goes through it, exported files among it, and a
//! volume in memory is as near as it can be. A block gets here under the shared guard of all of its pages, and a writer
//! of one of them takes it out again under the exclusive guard: so the blocks here are those of the medium.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use diskside_io::Errno;
use diskside_io::buffer::Buffer;
use diskside_io::readahead::{ReadAt, ReadAtError};
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::Volume;
use crate::blocking::{Counted, HOLD_BYTES, Hold, Reads, VolumeReader, read_held};
use crate::guard::Mode;
use crate::metered::Metered;

/// Bytes of a block.
pub const BLOCK_LEN: u64 = 32 << 10;
/// Blocks that are read under one hold of their guard.
const READ_BLOCKS: usize = HOLD_BYTES / BLOCK_LEN as usize;

/// A block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    of: Of,
    block: u64,
}

/// The volume or object of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Of {
    /// A volume, by its serial number: a later one of the same name is another.
    Volume(u64),
    Object(ObjectVersion),
}

/// A version of an object of a store, which never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectVersion {
    /// A number that all objects of a store have.
    pub store: u64,
    /// What tells it from all other versions, of all stores.
    pub digest: [u8; 32],
}

#[derive(Clone)]
struct ByLength;

impl Weighter<Key, Arc<[u8]>> for ByLength {
    fn weight(&self, _: &Key, bytes: &Arc<[u8]>) -> u64 {
        (bytes.len() + size_of::<Key>()) as u64
    }
}

/// Blocks of all volumes, up to a number of bytes.
pub struct BlockCache {
    /// `None`: nothing is kept.
    blocks: Option<Cache<Key, Arc<[u8]>, ByLength>>,
    len_max_bytes: u64,
    hits: AtomicU64,
    misses: AtomicU64,
    served_bytes: AtomicU64,
}

/// What calls found there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheStats {
    /// Bytes that are kept.
    pub len_bytes: u64,
    /// Blocks that were there.
    pub hits: u64,
    /// Blocks that were not there.
    pub misses: u64,
    /// Bytes that calls were given from there.
    pub served_bytes: u64,
}

impl BlockCache {
    /// An empty cache of at most so many bytes; with less than a block it keeps nothing.
    pub fn new(len_max_bytes: u64) -> Self {
        let blocks = (len_max_bytes >= BLOCK_LEN).then(|| {
            let items = (len_max_bytes / BLOCK_LEN) as usize;
            Cache::with_weighter(items, len_max_bytes, ByLength)
        });
        let (hits, misses, served_bytes) = Default::default();
        Self { blocks, len_max_bytes, hits, misses, served_bytes }
    }

    /// Whether a call over so many bytes of this volume reads through here. One over more than half of what can be kept
    /// is read past it: it would push out everything else, and itself before anybody reads it again.
    pub fn takes(&self, volume: &Volume, len_bytes: u64) -> bool {
        volume.medium.properties().direct && volume.medium.memory().is_none() && self.takes_bytes(len_bytes)
    }

    /// Whether a call over so many bytes reads through here, of what the kernel keeps nothing of.
    fn takes_bytes(&self, len_bytes: u64) -> bool {
        self.blocks.is_some() && len_bytes <= self.len_max_bytes / 2
    }

    /// Drops what is kept of a range of a volume that was written. The caller holds the range alone.
    pub fn written(&self, volume: u64, range: &Range<u64>) {
        let Some(blocks) = &self.blocks else { return };
        let touched = range.start / BLOCK_LEN..range.end.div_ceil(BLOCK_LEN);
        if touched.end.saturating_sub(touched.start) > blocks.len() as u64 {
            return blocks.retain(|key, _| key.of != Of::Volume(volume) || !touched.contains(&key.block));
        }
        for block in touched {
            blocks.remove(&Key { of: Of::Volume(volume), block });
        }
    }

    /// Drops what is kept of a volume, or of all.
    pub fn clear(&self, volume: Option<u64>) {
        let Some(blocks) = &self.blocks else { return };
        match volume {
            Some(volume) => blocks.retain(|key, _| key.of != Of::Volume(volume)),
            None => blocks.clear(),
        }
    }

    /// Drops what is kept of the objects of a store.
    pub fn clear_store(&self, store: u64) {
        let is_of = |of: Of| matches!(of, Of::Object(version) if version.store == store);
        let Some(blocks) = &self.blocks else { return };
        blocks.retain(|key, _| !is_of(key.of));
    }

    /// Drops what is kept of a version of an object.
    pub fn clear_object(&self, version: &ObjectVersion) {
        let Some(blocks) = &self.blocks else { return };
        blocks.retain(|key, _| key.of != Of::Object(*version));
    }

    /// What it holds, and how often it helped.
    pub fn stats(&self) -> CacheStats {
        CacheStats {
            len_bytes: self.blocks.as_ref().map_or(0, Cache::weight),
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            served_bytes: self.served_bytes.load(Ordering::Relaxed),
        }
    }

    fn get(&self, of: Of, block: u64) -> Option<Arc<[u8]>> {
        self.blocks.as_ref()?.get(&Key { of, block })
    }

    /// Fills `into` with the bytes at `offset` if all of them are kept; else it holds anything. The caller holds the range.
    pub fn read_kept(&self, volume: &Volume, offset: u64, into: &mut [u8]) -> bool {
        let range = offset..offset + into.len() as u64;
        let touched = range.start / BLOCK_LEN..range.end.div_ceil(BLOCK_LEN);
        for block in touched.clone() {
            let Some(bytes) = self.get(Of::Volume(volume.serial()), block) else { return false };
            copy(block * BLOCK_LEN, &bytes, &range, into);
        }
        self.hits.fetch_add(touched.end - touched.start, Ordering::Relaxed);
        self.served_bytes.fetch_add(range.end - range.start, Ordering::Relaxed);
        true
    }

    /// Copies what is kept of a range into the buffer for it, and gives the blocks that are not.
    fn take_kept(&self, of: Of, range: &Range<u64>, buffer: &mut [u8], reads: &Reads) -> Vec<u64> {
        let (mut missing, mut hits, mut served) = (Vec::new(), 0, 0);
        for block in range.start / BLOCK_LEN..range.end.div_ceil(BLOCK_LEN) {
            match self.get(of, block) {
                Some(bytes) => {
                    hits += 1;
                    served += copy(block * BLOCK_LEN, &bytes, range, buffer);
                }
                None => missing.push(block),
            }
        }
        self.hits.fetch_add(hits, Ordering::Relaxed);
        self.misses.fetch_add(missing.len() as u64, Ordering::Relaxed);
        self.served_bytes.fetch_add(served, Ordering::Relaxed);
        reads.kept_bytes.fetch_add(served, Ordering::Relaxed);
        missing
    }

    /// Whether all of a range is kept.
    pub fn has(&self, volume: &Volume, range: &Range<u64>) -> bool {
        let key = |block| Key { of: Of::Volume(volume.serial()), block };
        let mut touched = range.start / BLOCK_LEN..range.end.div_ceil(BLOCK_LEN);
        self.blocks.as_ref().is_some_and(|blocks| touched.all(|block| blocks.peek(&key(block)).is_some()))
    }

    /// Keeps whole blocks that were read where they were missed. The caller holds all of them.
    pub fn keep(&self, volume: &Volume, offset: u64, bytes: &[u8]) {
        self.misses.fetch_add((bytes.len() as u64).div_ceil(BLOCK_LEN), Ordering::Relaxed);
        self.insert(Of::Volume(volume.serial()), offset / BLOCK_LEN, bytes);
    }

    /// Keeps the blocks from `first` on. The caller holds all of them.
    fn insert(&self, of: Of, first: u64, bytes: &[u8]) {
        let Some(blocks) = &self.blocks else { return };
        for (block, bytes) in (first..).zip(bytes.chunks(BLOCK_LEN as usize)) {
            blocks.insert(Key { of, block }, bytes.into());
        }
    }
}

impl std::fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockCache").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// Bytes of a volume, read through the cache.
#[derive(Debug)]
struct KeptReader {
    volume: Arc<Volume>,
    cache: Arc<BlockCache>,
    reads: Arc<Reads>,
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

/// Copies what `bytes`, which begin at `at`, have of `range` into the buffer for that range; gives how many that are.
fn copy(at: u64, bytes: &[u8], range: &Range<u64>, buffer: &mut [u8]) -> u64 {
    let start = at.max(range.start);
    let end = (at + bytes.len() as u64).min(range.end);
    if start >= end {
        return 0;
    }
    let from = &bytes[(start - at) as usize..(end - at) as usize];
    buffer[(start - range.start) as usize..(end - range.start) as usize].copy_from_slice(from);
    end - start
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::medium::{Access, Action, Medium, Properties, Step};
    use diskside_io::buffer::{Hugepages, SharedMemory};
    use std::sync::Mutex;

    /// Bytes that count how many of them were read, and look like a disk's.
    #[derive(Debug)]
    struct Disk {
        bytes: SharedMemory,
        properties: Properties,
        reads: Mutex<Vec<(u64, u64)>>,
    }

    impl Disk {
        fn new(len: u64, direct: bool) -> Arc<Self> {
            let bytes = SharedMemory::zeroed(len as usize, Hugepages::No);
            let properties = Properties {
                len_bytes: len,
                read_only: false,
                volatile_write_cache: false,
                thin: false,
                direct,
                atomic_len: 0,
            };
            Arc::new(Self { bytes, properties, reads: Mutex::default() })
        }

        /// From where to where was read since the last time.
        fn take_reads(&self) -> Vec<(u64, u64)> {
            std::mem::take(&mut *self.reads.lock().unwrap())
        }
    }

    impl Medium for Disk {
        fn properties(&self) -> &Properties {
            &self.properties
        }

        fn start(&self, access: &Access<'_>) -> Step {
            match *access {
                Access::Read { offset, len } => {
                    self.reads.lock().unwrap().push((offset, offset + len as u64));
                    Action::Bytes(self.bytes.slice(offset as usize..offset as usize + len)).into()
                }
                Access::Write { offset, data, .. } => {
                    self.bytes.write(offset as usize, data);
                    Action::Done(data.len() as u64).into()
                }
                _ => Action::Done(0).into(),
            }
        }
    }

    fn volume_on(disk: &Arc<Disk>) -> Arc<Volume> {
        Arc::new(Volume::new("disk", 1, [0; 16], 512, Arc::clone(disk) as Arc<dyn Medium>))
    }

    fn reader(volume: &Arc<Volume>, cache: &Arc<BlockCache>) -> KeptReader {
        KeptReader { volume: Arc::clone(volume), cache: Arc::clone(cache), reads: Arc::default() }
    }

    fn read(reader: &KeptReader, range: Range<u64>) -> Vec<u8> {
        let mut buffer = Buffer::zeroed((range.end - range.start) as usize);
        reader.read_exact_at(range.start, &mut buffer[..(range.end - range.start) as usize]).unwrap();
        buffer[..(range.end - range.start) as usize].to_vec()
    }

    fn write(volume: &Volume, offset: u64, bytes: &[u8]) {
        crate::blocking::write_at(volume, offset, bytes).unwrap();
    }

    const B: u64 = BLOCK_LEN;

    #[test]
    fn what_was_read_once_is_not_read_again() {
        let disk = Disk::new(20 * B + 512, true);
        let (volume, cache) = (volume_on(&disk), Arc::new(BlockCache::new(64 * B)));
        write(&volume, 3 * B + 7, b"something");
        disk.take_reads();
        let reader = reader(&volume, &cache);
        let first = read(&reader, 2 * B - 100..5 * B + 1);
        assert_eq!(first[(B + 107) as usize..][..9], *b"something");
        assert_eq!(
            disk.take_reads(),
            [(B, 2 * B), (2 * B, 5 * B), (5 * B, 6 * B)],
            "whole blocks, those at the edges apart"
        );
        assert_eq!(read(&reader, 2 * B - 100..5 * B + 1), first);
        assert_eq!(disk.take_reads(), []);
        let stats = cache.stats();
        assert_eq!((stats.hits, stats.misses, stats.served_bytes), (5, 5, 3 * B + 101));
        assert_eq!(reader.reads.media_bytes.load(Ordering::Relaxed), 5 * B);
        // The last block of a volume may be short.
        read(&reader, 20 * B..20 * B + 512);
        read(&reader, 19 * B..20 * B + 512);
        assert_eq!(disk.take_reads(), [(20 * B, 20 * B + 512), (19 * B, 20 * B)]);
    }

    #[test]
    fn a_write_drops_what_it_touches_and_nothing_else() {
        let disk = Disk::new(64 * B, true);
        let (volume, other) = (volume_on(&disk), volume_on(&disk));
        let cache = Arc::new(BlockCache::new(256 * B));
        let (mine, theirs) = (reader(&volume, &cache), reader(&other, &cache));
        read(&mine, 0..8 * B);
        read(&theirs, 0..8 * B);
        disk.take_reads();
        write(&volume, 3 * B - 1, b"xy");
        disk.take_reads();
        assert_eq!(read(&mine, 0..8 * B)[(3 * B - 1) as usize..][..2], *b"xy");
        assert_eq!(disk.take_reads(), [(2 * B, 4 * B)]);
        read(&theirs, 0..8 * B);
        assert_eq!(disk.take_reads(), [], "another volume's blocks stay");
        // A long range, of which little is kept.
        drop(Hold::of(&volume, 0..64 * B, Mode::Exclusive));
        read(&mine, 0..B);
        assert_eq!(disk.take_reads(), [(0, B)]);
        cache.clear(Some(volume.serial()));
        read(&mine, 0..B);
        read(&theirs, 0..B);
        assert_eq!(disk.take_reads(), [(0, B)]);
        cache.clear(None);
        assert_eq!(cache.stats().len_bytes, 0);
    }

    #[test]
    fn it_stays_within_its_bytes_and_takes_no_more_than_half_of_them() {
        let disk = Disk::new(256 * B, true);
        let (volume, cache) = (volume_on(&disk), Arc::new(BlockCache::new(16 * B)));
        assert!(cache.takes(&volume, 8 * B) && !cache.takes(&volume, 8 * B + 1));
        assert!(!cache.takes(&volume_on(&Disk::new(B, false)), 1), "the kernel keeps what goes through it");
        assert!(!BlockCache::new(0).takes(&volume, 1));
        let reader = reader(&volume, &cache);
        for block in 0..256 {
            read(&reader, block * B..(block + 1) * B);
            assert!(cache.stats().len_bytes <= 16 * B);
        }
        assert!(cache.stats().len_bytes >= 8 * B, "{cache:?}");
    }

    const STORE: u64 = 9;

    fn version_of(number: u8) -> ObjectVersion {
        ObjectVersion { store: STORE, digest: [number; 32] }
    }

    /// Bytes that count how many of them were read.
    #[derive(Clone, Debug)]
    struct Object(Arc<[u8]>, Arc<Mutex<Vec<(u64, u64)>>>);

    impl ReadAt for Object {
        fn len(&self) -> u64 {
            self.0.len() as u64
        }

        fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadAtError> {
            self.1.lock().unwrap().push((offset, offset + buffer.len() as u64));
            buffer.copy_from_slice(&self.0[offset as usize..][..buffer.len()]);
            Ok(())
        }
    }

    /// Each function over an object of a store read all of it from the store again.
    #[test]
    fn a_version_of_a_file_is_read_once_and_another_version_anew() {
        let bytes: Vec<u8> = (0..3 * B + 100).map(|at| (at / 7) as u8).collect();
        let object = Object(bytes.as_slice().into(), Arc::default());
        let cache = Arc::new(BlockCache::new(64 * B));
        let reads = Arc::<Reads>::default();
        let read = |version: u8, range: Range<u64>| {
            let reader = version_reader(&cache, object.clone(), version_of(version), object.len(), &reads);
            let mut buffer = vec![0; (range.end - range.start) as usize];
            reader.read_exact_at(range.start, &mut buffer).unwrap();
            assert_eq!(buffer, bytes[range.start as usize..range.end as usize]);
            std::mem::take(&mut *object.1.lock().unwrap())
        };
        assert_eq!(read(1, B + 5..2 * B), [(B, 2 * B)], "whole blocks");
        assert_eq!(read(1, 0..3 * B + 100), [(0, B), (2 * B, 3 * B + 100)], "what is missing, and the end of the file");
        assert_eq!(read(1, 7..3 * B + 100), []);
        assert_eq!(read(2, 0..B), [(0, B)], "another version");
        assert_eq!(reads.media_bytes.load(Ordering::Relaxed), 4 * B + 100);
        cache.clear_store(0);
        cache.clear(Some(7));
        assert_eq!(read(1, 0..B), [], "what is of others stays");
        cache.clear_object(&version_of(2));
        assert_eq!((read(1, 0..B), read(2, 0..B)), (vec![], vec![(0, B)]), "of a version");
        cache.clear_store(STORE);
        assert_eq!((read(1, 0..B), read(2, 0..B)), (vec![(0, B)], vec![(0, B)]), "of a store");
        let small = Arc::new(BlockCache::new(2 * B));
        let past = version_reader(&small, object.clone(), version_of(1), 3 * B, &reads);
        past.read_exact_at(0, &mut [0; 9]).unwrap();
        assert_eq!(object.1.lock().unwrap()[..], [(0, 9)], "what would push out everything else is read past it");
        assert_eq!(small.stats().len_bytes, 0);
    }

    /// Readers and writers of the same blocks at once: a reader never gets bytes that a finished write replaced.
    #[test]
    fn nobody_reads_what_was_overwritten() {
        let disk = Disk::new(4 * B, true);
        let (volume, cache) = (volume_on(&disk), Arc::new(BlockCache::new(16 * B)));
        let written = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=2000_u64 {
                    write(&volume, B, &round.to_le_bytes());
                    written.store(round, Ordering::SeqCst);
                }
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    let reader = reader(&volume, &cache);
                    while written.load(Ordering::SeqCst) < 2000 {
                        let least = written.load(Ordering::SeqCst);
                        let bytes = read(&reader, B..B + 8);
                        let found = u64::from_le_bytes(bytes.try_into().unwrap());
                        assert!(found >= least, "{found} after {least} was written");
                    }
                });
            }
        });
    }
}
