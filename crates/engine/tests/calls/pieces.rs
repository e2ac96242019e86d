//! The input of a call in pieces: however it is cut and wherever it is from, the result is the same.

use diskside_engine::pieces::PIECE_LEN;
use diskside_engine::split::Split;
use diskside_engine::{Call, ReadAt, ReadAtError, ReadStream, Sink, Source};
use diskside_io::buffer::Part;
use diskside_io::readahead::Reading;
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{COPY, LENGTH, bytes, engine, function, function_noted, lens};

/// An expansion of 8 MiB by 32 was made as a whole before any of it was written.
#[test]
fn a_function_that_expands_works_by_short_chunks() {
    let engine = engine();
    let function = function_noted(&engine, COPY, |note| (note.out_ratio, note.out_constant) = ((32, 1), 0));
    let input: Vec<u8> = (0..1_u32 << 20).map(|n| (n >> 8) as u8).collect();
    let chunks = |chunk_len: Option<usize>| {
        let call = Call { chunk_len, ..Call::new(&function, bytes(&input), Vec::new()) };
        let ran = engine.run(&call, &mut Sink::Memory).expect("it runs");
        assert!(ran.result == input);
        ran.stats.chunks
    };
    assert_eq!(chunks(None), 4, "of 256 KiB, whose output has 8 MiB");
    assert_eq!(chunks(Some(128 << 10)), 8, "others are as they were asked for");
    assert_eq!(chunks(Some(PIECE_LEN)), 1, "also longer ones");
}

/// Chunks of a function whose output is a little more than twice its input were 4,194,288 bytes long. A bitmap of one bit an
/// element, which is made of whole bytes, could not be put together from those.
#[test]
fn shorter_chunks_hold_whole_groups_of_elements() {
    let engine = engine();
    let function = function_noted(&engine, COPY, |note| (note.out_ratio, note.out_constant) = ((2, 1), 64));
    let input: Vec<u8> = (0..8_u32 << 20).map(|n| (n >> 8) as u8).collect();
    let call = Call::new(&function, bytes(&input), Vec::new());
    let ran = engine.run(&call, &mut Sink::Memory).expect("it runs");
    assert!(ran.result == input);
    assert_eq!(ran.stats.chunks, 2, "of 4 MiB");
}

/// Bytes somewhere else, as a volume or a host's stream would give them.
#[derive(Debug)]
struct Remote {
    bytes: Vec<u8>,
    at: std::sync::atomic::AtomicUsize,
}

impl Remote {
    fn new(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), at: Default::default() }
    }
}

impl ReadAt for Remote {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, offset: u64, mut into: Part) -> Reading<'_> {
        let end = offset as usize + into.len();
        into.bytes().copy_from_slice(&self.bytes[offset as usize..end]);
        Box::pin(async { Ok(into.buffer) })
    }
}

impl ReadStream for Remote {
    fn read(&self, buffer: &mut [u8]) -> Result<usize, ReadAtError> {
        let at = self.at.load(Ordering::Relaxed);
        let len = buffer.len().min(self.bytes.len() - at).min(17);
        buffer[..len].copy_from_slice(&self.bytes[at..at + len]);
        self.at.store(at + len, Ordering::Relaxed);
        Ok(len)
    }

    fn close(&self) {}
}

/// Bytes of which it is noted what was read, from where.
#[derive(Debug)]
struct Noted {
    bytes: Vec<u8>,
    read: std::sync::Mutex<Vec<(u64, usize)>>,
}

impl ReadAt for Noted {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, offset: u64, mut into: Part) -> Reading<'_> {
        self.read.lock().unwrap().push((offset, into.len()));
        let end = offset as usize + into.len();
        into.bytes().copy_from_slice(&self.bytes[offset as usize..end]);
        Box::pin(async { Ok(into.buffer) })
    }
}

/// The last record of the first KiB of a disk that answers in 10 ms ended after 63 MiB, and was read in pieces of 256 KiB, one after another: that
/// took seven times as long as to read the whole disk.
#[test]
fn a_record_that_does_not_end_soon_is_read_in_long_pieces() {
    const MIB: u64 = 1 << 20;
    let engine = engine();
    let f = function(&engine, COPY);
    let mut bytes = vec![b'x'; 8 * MIB as usize];
    *bytes.last_mut().expect("some") = b'\n';
    let noted = Arc::new(Noted { bytes, read: Default::default() });
    let reader = Arc::clone(&noted) as Arc<dyn ReadAt>;
    let mut call =
        Call::new(&f, vec![Source::Reader { name: "noted".into(), reader, range: Some(0..1024) }], Vec::new());
    call.split = Some(Split::Delimiter(b'\n'));
    assert_eq!(engine.run(&call, &mut Sink::Memory).expect("it runs").result.len() as u64, 8 * MIB);
    let read = std::mem::take(&mut *noted.read.lock().unwrap());
    let long = read.iter().filter(|(offset, _)| *offset >= MIB).count();
    assert!((1..=14).contains(&long), "{read:?}");
    assert!(read[1].1 <= 24 << 10, "most records end soon: {read:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn chunks_of_lines_put_together_are_the_input(
        lines in proptest::collection::vec("[a-z]{0,40}", 0..60),
        ends in any::<bool>(),
        chunk in 1usize..200,
        threads in 1usize..4,
        origin in 0usize..4,
    ) {
        let mut input = lines.join("\n");
        if ends {
            input.push('\n');
        }
        let engine = engine();
        let f = function(&engine, COPY);
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), &input).expect("written");
        let remote = Arc::new(Remote::new(input.as_bytes()));
        let sources = match origin {
            0 => bytes(input.as_bytes()),
            1 => vec![Source::file(file.path())],
            2 => vec![Source::Reader { name: "remote".into(), reader: remote, range: None }],
            _ => vec![Source::Stream { name: "stream".into(), stream: remote }],
        };
        let mut call = Call::new(&f, sources, Vec::new());
        call.chunk_len = Some(chunk);
        call.threads = threads;
        call.split = Some(Split::Delimiter(b'\n'));
        let outcome = engine.run(&call, &mut Sink::Memory).expect("runs");
        prop_assert_eq!(outcome.result, input.as_bytes());
        prop_assert_eq!(outcome.stats.input_bytes, input.len() as u64);
    }

    #[test]
    fn ranges_that_cover_a_file_see_each_line_once(
        lines in proptest::collection::vec("[a-z]{0,30}", 1..50),
        cuts in proptest::collection::vec(0usize..1000, 0..5),
        chunk in 1usize..100,
        remote in any::<bool>(),
    ) {
        let input = lines.join("\n") + "\n";
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), &input).expect("written");
        let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c % (input.len() + 1)).collect();
        cuts.extend([0, input.len()]);
        cuts.sort_unstable();
        let engine = engine();
        let f = function(&engine, COPY);
        let mut joined = Vec::new();
        for pair in cuts.windows(2) {
            let range = pair[0] as u64..pair[1] as u64;
            let reader = Arc::new(Remote::new(input.as_bytes()));
            let source = if remote {
                Source::Reader { name: "remote".into(), reader, range: Some(range) }
            } else {
                Source::File { path: file.path().to_owned(), range: Some(range) }
            };
            let mut call = Call::new(&f, vec![source], Vec::new());
            call.chunk_len = Some(chunk);
            call.split = Some(Split::Delimiter(b'\n'));
            joined.extend(engine.run(&call, &mut Sink::Memory).expect("runs").result);
        }
        prop_assert_eq!(joined, input.as_bytes());
    }
}

#[test]
fn a_source_of_fixed_records_is_cut_at_records() {
    let engine = engine();
    let f = function(&engine, LENGTH);
    let mut call = Call::new(&f, bytes(&[1; 100]), Vec::new());
    call.chunk_len = Some(30);
    call.split = Some(Split::Fixed(12));
    let result = engine.run(&call, &mut Sink::Memory).expect("runs").result;
    assert_eq!(lens(&result), [24, 24, 24, 24, 4], "whole records, and at the end what is left");
}

/// A log that had become longer since the request was made was read to the end of what was its last, unfinished line then, and its
/// length was the new one; on the host's side nothing of that was seen.
#[test]
fn a_source_that_has_grown_is_as_long_as_the_request_says() {
    let engine = engine();
    let copy = function(&engine, COPY);
    let reader = Arc::new(Remote::new(b"one\ntwo\nthree\nfour\n"));
    let source = Source::Reader { name: "log".into(), reader, range: Some(0..11) };
    let run = |source_len: Option<u64>| {
        let split = Some(Split::Delimiter(b'\n'));
        let call = Call { split, source_len, ..Call::new(&copy, vec![source.clone()], Vec::new()) };
        engine.run(&call, &mut Sink::Memory).expect("it runs").result
    };
    assert_eq!(run(Some(11)), b"one\ntwo\nthr");
    assert_eq!(run(Some(12)), b"one\ntwo\nthre", "a line is finished as far as it went then");
    assert_eq!(run(Some(1000)), b"one\ntwo\nthree\n");
    assert_eq!(run(None), b"one\ntwo\nthree\n");
}
