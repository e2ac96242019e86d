//! The memory of a call: for records longer than a chunk, for input that is one piece, and for output.

use diskside_engine::split::Split;
use diskside_engine::{Call, CallError, Sink, Source};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{COPY, LENGTH, bytes, engine, function, function_noted, lens};

#[test]
fn a_record_without_an_end_is_refused_at_its_limit_and_not_before() {
    let engine = engine();
    let f = function(&engine, "mov %r0, 0\nexit");
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().set_len(diskside_engine::split::RECORD_LEN_MAX as u64 + (9 << 20)).expect("sparse");
    let mut call = Call::new(&f, vec![Source::file(file.path())], Vec::new());
    call.split = Some(Split::Delimiter(b'\n'));
    match engine.run(&call, &mut Sink::Memory) {
        Err(CallError::RecordTooLong { place, max }) => {
            assert_eq!((place.range.start, max), (0, diskside_engine::split::RECORD_LEN_MAX));
        }
        other => panic!("{other:?}"),
    }
}

/// A function's object once said how much memory it got.
#[test]
fn room_for_output_is_bounded_by_the_caller_and_by_the_machine() {
    let engine = engine();
    let function = function_noted(&engine, COPY, |note| note.out_constant = 1 << 39);
    let mut call = Call::new(&function, bytes(b"1234"), Vec::new());
    let error = engine.run(&call, &mut Sink::Memory).expect_err("too much").to_string();
    assert_eq!(
        error,
        "memory, bytes 0..4: read/read asks for room for 549755813892 bytes of output, but a run is given 4294967296 at \
         most; ask for less with DS_OUTPUT in its source, or for shorter chunks"
    );
    call.limits.output_len_max = u64::MAX;
    let outcome = engine.run(&call, &mut Sink::Memory);
    // Memory that nobody touches is there, or it is not: either is fine, and nothing is torn down.
    match outcome {
        Ok(outcome) => assert_eq!(outcome.result, b"1234"),
        Err(error) => assert!(error.to_string().contains("no memory for 549755813892 bytes of output"), "{error}"),
    }
}

/// While one thread was at its chunk, the others went on and on: all of their results waited in memory for the first.
#[test]
fn results_that_wait_for_an_earlier_one_are_few() {
    #[derive(Debug, Default)]
    struct FirstIsSlow {
        begun: std::sync::atomic::AtomicUsize,
        most: std::sync::atomic::AtomicUsize,
    }
    impl diskside_engine::Turns for FirstIsSlow {
        fn take(&self, work: &mut dyn FnMut()) {
            if self.begun.fetch_add(1, Ordering::SeqCst) == 0 {
                // As long as the others run, and a while more.
                let began = Instant::now();
                while began.elapsed() < Duration::from_millis(300) && self.begun.load(Ordering::SeqCst) < 30 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                self.most.store(self.begun.load(Ordering::SeqCst), Ordering::SeqCst);
            }
            work();
        }
    }
    let engine = engine();
    let copy = function(&engine, COPY);
    let input: Vec<u8> = (0..64_u32 << 10).map(|n| (n >> 4) as u8).collect();
    let turns = Arc::new(FirstIsSlow::default());
    let mut call = Call::new(&copy, bytes(&input), Vec::new());
    (call.threads, call.chunk_len) = (3, Some(1024));
    call.turns = Some(turns.clone());
    assert!(engine.run(&call, &mut Sink::Memory).expect("it runs").result == input);
    let most = turns.most.load(Ordering::SeqCst);
    // The slow one may be the third chunk, and the two before it be handed out meanwhile.
    assert!(most <= 3 * diskside_engine::CHUNKS_OUT_MAX + 2, "{most} of 64 chunks were begun behind the first");
}

/// Gives memory for long chunks up to a bound, and notes the requests.
#[derive(Debug, Default)]
struct Bounded {
    max: usize,
    asked: std::sync::Mutex<Vec<usize>>,
}

impl diskside_engine::Growth for Bounded {
    fn grow(&self, chunk_len: usize) -> Result<(), String> {
        self.asked.lock().expect("nobody panicked").push(chunk_len);
        if chunk_len > self.max { Err(format!("{} is all there is", self.max)) } else { Ok(()) }
    }
}

#[test]
fn a_record_that_outgrows_its_chunk_asks_for_memory_first() {
    let engine = engine();
    let f = function(&engine, LENGTH);
    let mut input = vec![b'x'; 100_000];
    input.extend_from_slice(b"\nshort\n");
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), &input).expect("written");
    let run = |max: usize, range: Option<std::ops::Range<u64>>| {
        let growth = Arc::new(Bounded { max, ..Bounded::default() });
        let source = Source::File { path: file.path().to_owned(), range };
        let mut call = Call::new(&f, vec![source], Vec::new());
        call.chunk_len = Some(4096);
        call.growth = Some(growth.clone());
        call.split = Some(Split::Delimiter(b'\n'));
        let ran = engine.run(&call, &mut Sink::Memory).map(|ran| ran.result);
        let asked = growth.asked.lock().expect("nobody panicked").clone();
        (ran, asked)
    };
    let (ran, asked) = run(128 << 10, None);
    assert_eq!(lens(&ran.expect("there is memory")).iter().sum::<u64>(), input.len() as u64);
    assert_eq!(asked, [16 << 10, 32 << 10, 64 << 10, 128 << 10]);
    // Also beyond the end of a range.
    let (ran, asked) = run(128 << 10, Some(0..10_000));
    assert_eq!((lens(&ran.expect("there is memory")), *asked.last().expect("it asked")), (vec![100_001], 128 << 10));
    for range in [None, Some(0..10_000)] {
        let (ran, _) = run(64 << 10, range);
        let error = ran.expect_err("there is no memory");
        let CallError::NoRoomForRecord { place, .. } = &error else { panic!("{error:?}") };
        assert!(place.range.start == 0 && place.range.end > 64 << 10, "{place}");
        assert!(error.to_string().ends_with("for a longer one there is no memory: 65536 is all there is"), "{error}");
    }
    // Records that fit their chunks ask for nothing.
    let lines = "a line\n".repeat(10_000);
    std::fs::write(file.path(), &lines).expect("written");
    let (ran, asked) = run(0, None);
    assert_eq!((lens(&ran.expect("runs")).iter().sum::<u64>(), asked.len()), (lines.len() as u64, 0));
}

/// Input of unknown length that was one piece was refused with "the record does not end here", although it had no records: what
/// lacked was memory.
#[test]
fn input_that_is_one_piece_says_that_memory_lacks_for_it() {
    let engine = engine();
    let f = function(&engine, LENGTH);
    // It is read in windows of 8 MiB.
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().set_len(20 << 20).expect("a hole");
    let run = |max: usize| {
        let mut call = Call::new(&f, vec![Source::File { path: file.path().to_owned(), range: None }], Vec::new());
        call.split = Some(Split::Whole);
        call.growth = Some(Arc::new(Bounded { max, ..Bounded::default() }));
        engine.run(&call, &mut Sink::Memory).map(|ran| ran.result)
    };
    assert_eq!(run(20 << 20).expect("there is memory"), (20_u64 << 20).to_le_bytes());
    let error = run(16 << 20).expect_err("there is no memory");
    let CallError::NoRoomForPiece { place, .. } = &error else { panic!("{error:?}") };
    assert_eq!(place.range, 0..20 << 20);
    let told = "the function runs once over its whole input, and for one piece that is so long there is no memory: 16777216 is \
                all there is";
    assert!(error.to_string().ends_with(told), "{error}");
}
