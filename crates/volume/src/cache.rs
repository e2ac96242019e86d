//! Blocks of volumes, and of objects of stores, that one call read, kept for the next.
//!
//! Only for volumes that bypass the page cache: the kernel keeps what goes through it, exported files among it, and a
//! volume in memory is as near as it can be. A block gets here under the shared guard of all of its pages, and a writer
//! of one of them takes it out again under the exclusive guard: so the blocks here are those of the medium.

mod reader;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::Volume;
use crate::metered::Reads;
pub use reader::{version_reader, volume_reader};

/// Bytes of a block.
pub const BLOCK_LEN: u64 = 32 << 10;
/// Bytes of a page: a multiple of the logical blocks of all volumes.
const PAGE_LEN: u64 = 4096;

/// A block or a page.
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
    /// The same, in pages.
    Pages(u64),
    Object(ObjectVersion),
}

/// In what pieces lookups read through the cache. A disk gives a block as soon as a page, mostly, and so a volume that fits is there after few
/// reads. In a long one a block would be read for a node of some hundred bytes, and be pushed out before another of its nodes is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// [`BLOCK_LEN`] bytes.
    Blocks,
    /// A page of the processor.
    Pages,
}

/// A cache, and in what pieces a call's lookups read through it.
#[derive(Clone, Debug)]
pub struct Lookups {
    cache: Arc<BlockCache>,
    unit: Unit,
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

    /// How lookups in so many bytes of this volume read through here, each of which touches few of them. `None`: they do not.
    pub fn lookups(self: &Arc<Self>, volume: &Volume, len_bytes: u64) -> Option<Lookups> {
        let is_on_disk = volume.medium.properties().direct && volume.medium.memory().is_none();
        let unit = if self.takes_bytes(len_bytes) { Unit::Blocks } else { Unit::Pages };
        (is_on_disk && self.blocks.is_some()).then(|| Lookups { cache: Arc::clone(self), unit })
    }

    /// Whether a call over so many bytes reads through here, of what the kernel keeps nothing of.
    fn takes_bytes(&self, len_bytes: u64) -> bool {
        self.blocks.is_some() && len_bytes <= self.len_max_bytes / 2
    }

    /// Drops what is kept of a range of a volume that was written. The caller holds the range alone.
    pub fn written(&self, volume: u64, range: &Range<u64>) {
        let Some(blocks) = &self.blocks else { return };
        for unit in [Unit::Blocks, Unit::Pages] {
            let (of, touched) = (unit.of(volume), unit.touched(range));
            if touched.end.saturating_sub(touched.start) > blocks.len() as u64 {
                blocks.retain(|key, _| key.of != of || !touched.contains(&key.block));
                continue;
            }
            for block in touched {
                blocks.remove(&Key { of, block });
            }
        }
    }

    /// Drops what is kept of a volume, or of all.
    pub fn clear(&self, volume: Option<u64>) {
        let Some(blocks) = &self.blocks else { return };
        match volume {
            Some(volume) => blocks.retain(|key, _| key.of != Of::Volume(volume) && key.of != Of::Pages(volume)),
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

    /// Keeps the blocks from `first` on. The caller holds all of them.
    fn insert(&self, of: Of, first: u64, bytes: &[u8]) {
        let Some(blocks) = &self.blocks else { return };
        let unit = if let Of::Pages(_) = of { Unit::Pages } else { Unit::Blocks };
        for (block, bytes) in (first..).zip(bytes.chunks(unit.len_bytes() as usize)) {
            blocks.insert(Key { of, block }, bytes.into());
        }
    }
}

impl Unit {
    fn len_bytes(self) -> u64 {
        match self {
            Self::Blocks => BLOCK_LEN,
            Self::Pages => PAGE_LEN,
        }
    }

    fn of(self, volume: u64) -> Of {
        match self {
            Self::Blocks => Of::Volume(volume),
            Self::Pages => Of::Pages(volume),
        }
    }

    /// The numbers of those with bytes of a range.
    fn touched(self, range: &Range<u64>) -> Range<u64> {
        range.start / self.len_bytes()..range.end.div_ceil(self.len_bytes())
    }
}

impl Lookups {
    /// The cache itself.
    pub fn cache(&self) -> &Arc<BlockCache> {
        &self.cache
    }

    /// Bytes of what is read, and kept, at a time.
    pub fn unit_len_bytes(&self) -> u64 {
        self.unit.len_bytes()
    }

    /// Fills `into` with the bytes at `offset` if all of them are kept; else it holds anything. The caller holds the range.
    pub fn read_kept(&self, volume: &Volume, offset: u64, into: &mut [u8]) -> bool {
        let range = offset..offset + into.len() as u64;
        let touched = self.unit.touched(&range);
        for block in touched.clone() {
            let Some(bytes) = self.cache.get(self.unit.of(volume.serial()), block) else { return false };
            copy(block * self.unit.len_bytes(), &bytes, &range, into);
        }
        self.cache.hits.fetch_add(touched.end - touched.start, Ordering::Relaxed);
        self.cache.served_bytes.fetch_add(range.end - range.start, Ordering::Relaxed);
        true
    }

    /// Whether all of a range is kept.
    pub fn has(&self, volume: &Volume, range: &Range<u64>) -> bool {
        let key = |block| Key { of: self.unit.of(volume.serial()), block };
        let is_kept =
            |blocks: &Cache<_, _, _>| self.unit.touched(range).all(|block| blocks.peek(&key(block)).is_some());
        self.cache.blocks.as_ref().is_some_and(is_kept)
    }

    /// Keeps what was read where it was missed: whole ones. The caller holds all of them. Pages in a row are a range that is
    /// read through, and not the nodes that many lookups pass.
    pub fn keep(&self, volume: &Volume, offset: u64, bytes: &[u8]) {
        let unit_len = self.unit.len_bytes();
        self.cache.misses.fetch_add((bytes.len() as u64).div_ceil(unit_len), Ordering::Relaxed);
        if self.unit == Unit::Pages && bytes.len() as u64 > BLOCK_LEN {
            return;
        }
        self.cache.insert(self.unit.of(volume.serial()), offset / unit_len, bytes);
    }
}

impl std::fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockCache").field("stats", &self.stats()).finish_non_exhaustive()
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
