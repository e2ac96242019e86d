//! Read-ahead over real files.

mod without;

use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use diskside_io::buffer::{Buffer, Part};
use diskside_io::ownring;
use diskside_io::readahead::{Access, ChunkReader, ReadAhead, ReadAt, ReadAtError, ReadError, ReadStream, Reading};
use diskside_io::ring::Op;
use proptest::prelude::*;

fn how(chunk_bytes: usize, depth: usize, tailroom_bytes: usize, access: Access) -> ReadAhead {
    ReadAhead { chunk_bytes, depth, tailroom_bytes, access, ..ReadAhead::default() }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// A file in the build's directory, which is on a file system that takes `O_DIRECT` where any is.
fn file_with(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn read_all(reader: ChunkReader) -> Result<Vec<u8>, ReadError> {
    let mut all = Vec::new();
    let start = reader.range().start;
    for chunk in reader {
        let chunk = chunk?;
        assert_eq!(chunk.offset(), start + all.len() as u64);
        all.extend_from_slice(&chunk);
    }
    Ok(all)
}

fn takes_direct(path: &Path) -> bool {
    ChunkReader::open(path, .., &how(4096, 1, 0, Access::Direct)).is_ok()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_chunks_of_a_range_are_its_bytes(
        len in 0_usize..200_000, cut in (0.0..=1.0_f64, 0.0..=1.0_f64), chunk in 1_usize..70_000,
        depth in 1_usize..5, tailroom in 0_usize..5_000, lead in 0_usize..3,
        access in prop_oneof![Just(Access::Auto), Just(Access::Buffered), Just(Access::Direct)],
    ) {
        let chunk = chunk.max(len / 64);
        let bytes = pattern(len);
        let file = file_with(&bytes);
        let ends = [cut.0, cut.1].map(|part| (part * len as f64) as usize);
        let (start, end) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
        let access = if takes_direct(file.path()) { access } else { Access::Auto };
        let how = ReadAhead { lead_bytes: lead, ..how(chunk, depth, tailroom, access) };
        let reader = ChunkReader::open(file.path(), start as u64..end as u64, &how).unwrap();
        prop_assert_eq!(read_all(reader).unwrap(), &bytes[start..end]);
    }
}

#[test]
fn an_empty_file_has_no_chunks() {
    let file = file_with(b"");
    for access in [Access::Auto, Access::Buffered] {
        assert_eq!(ChunkReader::open(file.path(), .., &how(4096, 2, 0, access)).unwrap().count(), 0);
    }
}

#[test]
fn the_last_chunk_says_so_and_the_one_before_takes_the_start_of_it() {
    let file = file_with(&pattern(10_000));
    let mut reader = ChunkReader::open(file.path(), .., &how(6_000, 2, 100, Access::Auto)).unwrap();
    let mut first = reader.next().unwrap().unwrap();
    let second = reader.next().unwrap().unwrap();
    assert!(!first.is_last() && second.is_last());
    assert!(first.append(&second[..50]));
    assert!(first.append(&second[50..100]));
    assert_eq!(&first[..], &pattern(10_000)[..6_100]);
    assert_eq!((first.offset(), second.offset()), (0, 6_000));
    assert!(!first.append(&vec![0; first.tailroom_bytes() + 1]), "more than the tailroom is refused");
    assert!(reader.next().is_none());
}

#[test]
fn a_file_that_shrinks_while_it_is_read_is_an_error_that_says_where_it_ends() {
    for access in [Access::Buffered, Access::Direct] {
        let file = file_with(&pattern(100_000));
        if access == Access::Direct && !takes_direct(file.path()) {
            continue;
        }
        let mut reader = ChunkReader::open(file.path(), .., &how(10_000, 1, 0, access)).unwrap();
        let first = reader.next().unwrap().unwrap();
        file.as_file().set_len(25_000).unwrap();
        // One chunk may have been read ahead before the file was cut.
        let error = reader.by_ref().find_map(Result::err).expect("the end of the range cannot be reached");
        let ReadError::Shrunk { found, expected, .. } = &error else { panic!("{error}") };
        assert_eq!((*found, *expected), (25_000, 100_000));
        assert!(error.to_string().contains("it ends at byte 25000"), "{error}");
        assert!(reader.next().is_none(), "after an error the reader ends");
        assert_eq!(&first[..], &pattern(10_000));
    }
}

#[test]
fn what_is_not_a_file_is_refused_by_its_kind() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
    for (path, kind) in [(folder.path(), "directory"), (&pipe, "pipe"), (Path::new("/dev/full"), "character device")] {
        let error = ChunkReader::open(path, .., &ReadAhead::default()).unwrap_err().to_string();
        assert!(error.contains(&format!("is a {kind}")), "{error}");
    }
    let error = ChunkReader::open("/nowhere/at/all", .., &ReadAhead::default()).unwrap_err().to_string();
    assert!(error.contains("/nowhere/at/all") && error.contains("No such file"), "{error}");
}

#[test]
fn a_range_outside_the_file_and_senseless_sizes_are_refused() {
    let file = file_with(b"0123456789");
    let error = ChunkReader::open(file.path(), 5..11, &ReadAhead::default()).unwrap_err().to_string();
    assert!(error.contains("bytes 5..11") && error.contains("10 bytes"), "{error}");
    assert!(ChunkReader::open(file.path(), 11.., &ReadAhead::default()).is_err());
    assert!(ChunkReader::open(file.path(), .., &how(0, 1, 0, Access::Auto)).is_err());
    assert!(ChunkReader::open(file.path(), .., &how(1, 0, 0, Access::Auto)).is_err());
    assert_eq!(
        read_all(ChunkReader::open(file.path(), .., &how(usize::MAX, usize::MAX, 0, Access::Auto)).unwrap()).unwrap(),
        b"0123456789"
    );
}

#[test]
fn a_reader_that_is_dropped_early_ends_its_thread() {
    let file = file_with(&pattern(1 << 20));
    for taken in 0..5 {
        let mut reader = ChunkReader::open(file.path(), .., &how(4096, 3, 0, Access::Auto)).unwrap();
        let kept: Vec<_> = reader.by_ref().take(taken.min(3)).collect();
        drop(reader);
        assert!(kept.iter().all(|chunk| chunk.as_ref().is_ok_and(|chunk| chunk.len() == 4096)));
    }
}

#[test]
fn chunks_may_be_worked_on_by_several_threads() {
    let bytes = pattern(1 << 20);
    let file = file_with(&bytes);
    let reader = std::sync::Mutex::new(ChunkReader::open(file.path(), .., &how(10_000, 4, 0, Access::Auto)).unwrap());
    let sums: u64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut sum = 0;
                    loop {
                        let Some(chunk) = reader.lock().unwrap().next() else {
                            return sum;
                        };
                        sum += chunk.unwrap().iter().map(|&byte| u64::from(byte)).sum::<u64>();
                    }
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    assert_eq!(sums, bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>());
}

#[test]
fn what_was_just_written_is_read_also_past_the_page_cache() {
    let file = file_with(&pattern(50_000));
    if !takes_direct(file.path()) {
        return;
    }
    file.as_file().write_all_at(b"fresh", 20_000).unwrap();
    let bytes = read_all(ChunkReader::open(file.path(), .., &how(8192, 2, 0, Access::Direct)).unwrap()).unwrap();
    assert_eq!(&bytes[20_000..20_005], b"fresh");
}

/// Bytes in memory behind the trait, and what goes wrong with them.
#[derive(Debug)]
struct Remote {
    bytes: Vec<u8>,
    fails_at: Option<(u64, fn() -> ReadAtError)>,
    panics_at: Option<u64>,
    at_once: usize,
}

impl ReadAt for Remote {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, offset: u64, mut into: Part) -> Reading<'_> {
        Box::pin(async move {
            let end = offset + into.len() as u64;
            assert!(self.panics_at.is_none_or(|at| !(offset..end).contains(&at)), "this reader panics on purpose");
            if let Some((_, error)) = self.fails_at.filter(|(at, _)| (offset..end).contains(at)) {
                return Err(error());
            }
            into.bytes().copy_from_slice(&self.bytes[offset as usize..end as usize]);
            Ok(into.buffer)
        })
    }

    fn reads_at_once(&self) -> usize {
        self.at_once
    }
}

fn remote(len: usize) -> Remote {
    Remote { bytes: pattern(len), fails_at: None, panics_at: None, at_once: 1 }
}

/// Gives its bytes in pieces of uneven lengths.
#[derive(Debug)]
struct Trickle {
    bytes: Vec<u8>,
    at: std::sync::Mutex<usize>,
    /// Blocks at the end until it is closed, as a host that sends no more.
    endless: bool,
    closed: (std::sync::Mutex<bool>, std::sync::Condvar),
}

impl Trickle {
    fn new(bytes: Vec<u8>, endless: bool) -> Arc<Self> {
        Arc::new(Self { bytes, at: Default::default(), endless, closed: Default::default() })
    }
}

impl ReadStream for Trickle {
    fn read(&self, buffer: &mut [u8]) -> Result<usize, ReadAtError> {
        let mut at = self.at.lock().unwrap();
        let len = buffer.len().min(self.bytes.len() - *at).min(1 + *at % 1000);
        buffer[..len].copy_from_slice(&self.bytes[*at..*at + len]);
        *at += len;
        if len == 0 && self.endless {
            let closed = self.closed.0.lock().unwrap();
            drop(self.closed.1.wait_while(closed, |closed| !*closed).unwrap());
        }
        Ok(len)
    }

    fn close(&self) {
        *self.closed.0.lock().unwrap() = true;
        self.closed.1.notify_all();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn chunks_of_any_reader_and_of_a_stream_are_its_bytes(
        len in 0_usize..100_000, cut in (0.0..=1.0_f64, 0.0..=1.0_f64), chunk in 1_usize..30_000,
        depth in 1_usize..5, tailroom in 0_usize..5_000, at_once in 0_usize..6,
    ) {
        let chunk = chunk.max(len / 64);
        let how = how(chunk, depth, tailroom, Access::Auto);
        let source = Remote { at_once, ..remote(len) };
        let bytes = source.bytes.clone();
        let ends = [cut.0, cut.1].map(|part| (part * len as f64) as usize);
        let (start, end) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
        let reader = ChunkReader::over(Arc::new(source), "remote", start as u64..end as u64, &how).unwrap();
        prop_assert_eq!(read_all(reader).unwrap(), &bytes[start..end]);

        let mut lasts = 0;
        let mut all = Vec::new();
        for next in ChunkReader::of_stream(Trickle::new(bytes.clone(), false), "stream", &how).unwrap() {
            let mut next = next.unwrap();
            prop_assert_eq!(next.offset(), all.len() as u64);
            let len = next.len();
            prop_assert!(next.tailroom_bytes() >= tailroom && next.append(&vec![0; tailroom]));
            lasts += usize::from(next.is_last());
            all.extend_from_slice(&next[..len]);
        }
        prop_assert_eq!((all, lasts), (bytes, 1), "one chunk says that it is the last");
    }
}

#[test]
fn errors_of_a_reader_keep_their_kind_and_place() {
    type Case = (fn() -> ReadAtError, &'static str);
    let cases: [Case; 2] = [
        (
            || std::io::Error::from_raw_os_error(5).into(),
            "reading remote at byte 8192: Input/output error (os error 5)",
        ),
        (|| ReadAtError::Changed("its size is 7 now".into()), "remote changed while it was read: its size is 7 now"),
    ];
    for ((error, want), at_once) in cases.into_iter().flat_map(|case| [(case, 1), (case, 3)]) {
        let source = Remote { fails_at: Some((9000, error)), at_once, ..remote(20_000) };
        let mut reader = ChunkReader::over(Arc::new(source), "remote", .., &how(4096, 2, 0, Access::Auto)).unwrap();
        assert_eq!(reader.next().unwrap().unwrap().len(), 4096);
        assert_eq!(reader.next().unwrap().unwrap().len(), 4096);
        assert_eq!(reader.next().unwrap().unwrap_err().to_string(), want);
        assert!(reader.next().is_none(), "it ends after an error");
    }
    let range = ChunkReader::over(Arc::new(remote(5)), "remote", 3..9, &ReadAhead::default()).unwrap_err();
    assert_eq!(range.to_string(), "bytes 3..9 are not in remote, which has 5 bytes");
}

/// The thread's panic once looked like the end of the bytes, so a call over half of a file would have succeeded.
#[test]
fn a_reader_that_panics_is_an_error_and_no_early_end() {
    let source = Remote { panics_at: Some(9000), ..remote(20_000) };
    let chunks: Vec<_> =
        ChunkReader::over(Arc::new(source), "remote", .., &how(4096, 2, 0, Access::Auto)).unwrap().collect();
    assert_eq!(chunks.len(), 3);
    assert_eq!(
        chunks[2].as_ref().unwrap_err().to_string(),
        "read-ahead: the reading thread ended before the last chunk"
    );
}

/// With several threads, those that did not panic waited for buffers for ever, and the consumer for them.
#[test]
fn one_of_several_reads_that_panics_ends_them_all() {
    for at in [0, 9000, 90_000] {
        let source = Remote { panics_at: Some(at), at_once: 4, ..remote(100_000) };
        let reader = ChunkReader::over(Arc::new(source), "remote", .., &how(4096, 2, 0, Access::Auto)).unwrap();
        let mut chunks: Vec<_> = reader.map(|chunk| chunk.map(drop)).collect();
        assert!(chunks.len() as u64 <= at / 4096 + 1, "{}", chunks.len());
        chunks.pop().unwrap().unwrap_err();
        assert!(chunks.iter().all(Result::is_ok));
    }
}

/// Reads that are answered only when so many of them wait, as a disk answers a queue faster than single reads.
#[derive(Debug)]
struct Together {
    reads: usize,
    waiting: std::sync::Mutex<(usize, Vec<Waker>)>,
}

impl ReadAt for Together {
    fn len(&self) -> u64 {
        self.reads as u64 * 4096
    }

    fn read(&self, _: u64, into: Part) -> Reading<'_> {
        self.waiting.lock().unwrap().0 += 1;
        Box::pin(async move {
            poll_fn(|context| {
                let (waiting, wakers) = &mut *self.waiting.lock().unwrap();
                if *waiting == self.reads {
                    wakers.drain(..).for_each(Waker::wake);
                    return Poll::Ready(());
                }
                wakers.push(context.waker().clone());
                Poll::Pending
            })
            .await;
            Ok(into.buffer)
        })
    }

    fn reads_at_once(&self) -> usize {
        self.reads
    }
}

#[test]
fn as_many_reads_are_under_way_as_a_reader_asks_for() {
    let source = Together { reads: 4, waiting: Default::default() };
    let mut reader = ChunkReader::over(Arc::new(source), "disk", .., &how(4096, 4, 0, Access::Auto)).unwrap();
    let patience = Instant::now() + Duration::from_secs(30);
    for _ in 0..4 {
        let next = reader.next_unless(&|| Instant::now() >= patience).unwrap();
        assert_eq!(next.expect("the others never came").len(), 4096);
    }
}

/// A file of which every read waits for a disk that hangs: a pipe that nobody writes to.
#[derive(Debug)]
struct Hung {
    file: Arc<OwnedFd>,
    len: u64,
}

impl ReadAt for Hung {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, offset: u64, into: Part) -> Reading<'_> {
        Box::pin(async move {
            let Part { buffer, range } = into;
            let read = Op::Read { file: Arc::clone(&self.file), offset, buffer, range };
            let moved = ownring::moved(read, false).await;
            moved.result.map_err(std::io::Error::from)?;
            Ok(moved.buffer)
        })
    }
}

/// A thread that read a disk which hung came back with the disk, although the call was cancelled. Now it leaves, and what is
/// under way keeps its own memory.
#[test]
fn who_reads_a_disk_that_hangs_can_leave() {
    for pieces in [1, 3] {
        let (end, writer) = rustix::pipe::pipe().unwrap();
        let hung = Hung { file: Arc::new(end), len: pieces * 4096 };
        let hung = Arc::new(hung);
        let disk = Arc::clone(&hung) as Arc<dyn ReadAt>;
        let mut reader = ChunkReader::over(disk, "disk", .., &how(4096, 2, 0, Access::Auto)).unwrap();
        let asked = std::cell::Cell::new(0);
        let stopped = || asked.replace(asked.get() + 1) > 0;
        assert!(matches!(reader.next_unless(&stopped), Some(Err(ReadError::Stopped))));
        assert!(reader.next().is_none(), "it ends after an error");
        drop(reader);
        assert_eq!(Arc::strong_count(&hung), 1, "nobody reads from it any more");
        // The answer that comes late does not touch the bytes of another read.
        let bytes = pattern(10_000);
        let other = Remote { bytes: bytes.clone(), ..remote(0) };
        let other = ChunkReader::over(Arc::new(other), "other", .., &how(4096, 2, 0, Access::Auto)).unwrap();
        assert_eq!(rustix::io::write(&writer, &[0xff; 4096]), Ok(4096));
        assert_eq!(read_all(other).unwrap(), bytes);
    }
}

/// A file that was cut to some sectors behind a page was read again and again at its new end.
#[test]
fn a_file_that_is_cut_while_it_is_read_is_said_to_have_shrunk() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("cut");
    for (access, len) in [Access::Direct, Access::Auto, Access::Buffered]
        .into_iter()
        .flat_map(|access| [0, 100, 512, 1536, 4096].map(|behind| (access, (1 << 20) + behind)))
    {
        std::fs::write(&path, pattern(4 << 20)).unwrap();
        let Ok(reader) = ChunkReader::open(&path, .., &how(256 << 10, 1, 0, access)) else { continue };
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(len).unwrap();
        let (ended, has_ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || ended.send(read_all(reader)));
        let read = has_ended.recv_timeout(Duration::from_secs(30)).expect("it ends");
        assert!(matches!(read, Err(ReadError::Shrunk { .. })), "{access:?}, {len} bytes: {read:?}");
    }
}

/// A read that a thread had left behind when it ended was counted for good: after 64 of them no thread could leave a disk that hangs.
#[test]
fn what_threads_left_behind_when_they_ended_is_not_counted_any_more() {
    let (end, _writer) = rustix::pipe::pipe().unwrap();
    let file = Arc::new(end);
    for _ in 0..70 {
        let (file, (left, has_left)) = (Arc::clone(&file), std::sync::mpsc::channel());
        let thread = std::thread::spawn(move || {
            let read = Op::Read { file, offset: 0, buffer: Buffer::zeroed(512), range: 0..512 };
            let ran = ownring::run_unless(ownring::moved(read, false), &|| true);
            left.send(ran.is_none()).unwrap();
        });
        assert!(has_left.recv_timeout(Duration::from_secs(20)).unwrap());
        thread.join().unwrap();
    }
}

#[test]
fn a_consumer_that_leaves_ends_all_reads() {
    for taken in 0..4 {
        let source = Remote { at_once: 4, ..remote(100_000) };
        let reader = ChunkReader::over(Arc::new(source), "remote", .., &how(4096, 3, 0, Access::Auto)).unwrap();
        assert_eq!(reader.take(taken).filter(Result::is_ok).count(), taken);
    }
}

#[test]
fn a_consumer_that_leaves_frees_a_stream_that_waits() {
    let how = how(4096, 2, 0, Access::Auto);
    let mut reader = ChunkReader::of_stream(Trickle::new(pattern(10_000), true), "stream", &how).unwrap();
    assert_eq!(reader.next().unwrap().unwrap().len(), 4096);
    drop(reader);
}

#[test]
fn all_of_this_holds_without_io_uring() {
    without::all_again("all_of_this_holds_without_io_uring");
}
