//! Tests of what is kept, read again, and dropped, with a medium that counts its reads.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use diskside_io::buffer::{Buffer, Hugepages, Part, SharedMemory};
use diskside_io::readahead::{ReadAt, Reading};

use super::reader::KeptReader;
use super::{BLOCK_LEN, BlockCache, ObjectVersion, version_reader};
use crate::Volume;
use crate::blocking::Hold;
use crate::guard::Mode;
use crate::medium::{Access, Action, Medium, Properties, Step};
use crate::metered::{Meter, Metered, Reads};

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
            delta_len: 0,
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
    KeptReader { volume: Arc::clone(volume), cache: Arc::clone(cache), meter: Meter::default() }
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
    assert_eq!(reader.meter.reads.media_bytes.load(Ordering::Relaxed), 5 * B);
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

    fn read(&self, offset: u64, mut into: Part) -> Reading<'_> {
        let len = into.len();
        self.1.lock().unwrap().push((offset, offset + len as u64));
        into.bytes().copy_from_slice(&self.0[offset as usize..][..len]);
        Box::pin(async { Ok(into.buffer) })
    }
}

fn metered(object: &Object, reads: &Arc<Reads>) -> Metered<Object> {
    Metered { inner: object.clone(), meter: Meter { counters: None, reads: Arc::clone(reads) } }
}

/// Each function over an object of a store read all of it from the store again.
#[test]
fn a_version_of_a_file_is_read_once_and_another_version_anew() {
    let bytes: Vec<u8> = (0..3 * B + 100).map(|at| (at / 7) as u8).collect();
    let object = Object(bytes.as_slice().into(), Arc::default());
    let cache = Arc::new(BlockCache::new(64 * B));
    let reads = Arc::<Reads>::default();
    let read = |version: u8, range: Range<u64>| {
        let metered = metered(&object, &reads);
        let reader = version_reader(&cache, metered, version_of(version), object.len());
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
    let past = version_reader(&small, metered(&object, &reads), version_of(1), 3 * B);
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
