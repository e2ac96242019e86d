//! Short files, read one after another. Alone in its process, whose threads it counts.

use diskside_io::readahead::{ChunkReader, ReadAhead};

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// Each file had a thread, a ring and an eventfd of its own: of a run over 5,000 small files nine tenths of the time went
/// into making and ending them. A range of one short chunk is read where it is asked for.
#[test]
fn a_short_file_is_read_without_a_thread_or_a_ring_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("short");
    let bytes: Vec<u8> = (0..10_000_u32).map(|i| i as u8).collect();
    std::fs::write(&path, &bytes).unwrap();
    let before = threads();
    for range in [0..10_000, 0..4096, 4095..10_000, 17..18] {
        let mut reader = ChunkReader::open(&path, range.clone(), &ReadAhead::default()).unwrap();
        assert_eq!(threads(), before);
        let chunk = reader.next().unwrap().unwrap();
        assert_eq!(chunk[..], bytes[range.start as usize..range.end as usize]);
        assert_eq!((chunk.offset(), chunk.is_last()), (range.start, true));
        assert!(reader.next().is_none());
    }
    // More than one chunk is worth a thread: it reads the next while this one is used.
    let how = ReadAhead { chunk_bytes: 1000, ..ReadAhead::default() };
    let reader = ChunkReader::open(&path, .., &how).unwrap();
    assert!(threads() > before);
    assert_eq!(reader.map(|chunk| chunk.unwrap().len()).sum::<usize>(), bytes.len());
}
