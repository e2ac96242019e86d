//! A call gives the same result however its input is cut, on however many threads, in every tier.

use diskside_engine::pieces::PIECE_LEN;
use diskside_engine::split::Split;
use diskside_engine::{
    Call, CallError, ChunkCodec, ChunkCodecs, Engine, Function, ReadAt, ReadAtError, ReadStream, Sink, Source, State,
    TierChoice,
};
use diskside_sbpf::activation::Tier;
use diskside_sbpf::asm::assemble;
use diskside_sbpf::image::Kind;
use diskside_sbpf::machine::CancelToken;
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

fn engine() -> Engine {
    Engine::new(diskside_sbpf::helpers::standard())
}

/// Assembles a `read` program.
fn function(engine: &Engine, text: &str) -> Function {
    let assembly = assemble(text).expect("the test's program assembles");
    let mut image = assembly.into_image(Kind::Read, engine.helpers()).expect("the test's program links");
    (image.note.split, image.note.concatenates) = (Some(Split::Bytes), true);
    Function::from_image(&Arc::new(image), None, engine.helpers()).expect("the test's program verifies")
}

/// Copies its input to its output.
const COPY: &str = "
    mov %r6, %r1
    mov %r7, %r3
    call helper ds_memcpy
    mov %r0, %r7
    exit";

fn bytes(b: &[u8]) -> Vec<Source> {
    vec![Source::Bytes { name: "memory".into(), bytes: b.into() }]
}

/// The function gets a copy of the chunk; the rest of that copy is the output, and the return value is beside it.
#[test]
fn a_program_that_works_in_place_leaves_its_output_where_its_input_was() {
    let engine = engine();
    // Adds its length to the first byte, and 1 to the last; returns ~0 - the first byte.
    let text = "
        mov %r5, %r1
        add %r5, %r2
        ldxb %r0, [%r5-1]
        add %r0, 1
        stxb [%r5-1], %r0
        ldxb %r0, [%r1]
        add %r2, %r0
        stxb [%r1], %r2
        xor %r0, -1
        exit";
    let image = assemble(text).expect("it assembles").into_image(Kind::Delilah, engine.helpers()).expect("it links");
    let function = Function::from_image(&Arc::new(image), None, engine.helpers()).expect("it verifies");
    assert!(function.is_pure() && function.is_in_place());
    let input: Vec<u8> = (0..100).collect();
    let mut expected = input.clone();
    expected[99] += 1;
    expected[0] += 100;
    for threads in [1, 3] {
        for tier in [Tier::Interpreter, Tier::Cranelift] {
            let tier = TierChoice::Only(tier);
            let call = Call { chunk_len: Some(8), threads, tier, ..Call::new(&function, bytes(&input), Vec::new()) };
            let ran = engine.run(&call, &mut Sink::Memory).expect("it runs");
            assert_eq!(ran.result, expected, "{threads} threads");
            assert_eq!(ran.returned, Some(!0), "no errno, though it is negative");
            assert_eq!((ran.stats.chunks, ran.stats.output_bytes), (1, 100), "a request is one run");
        }
    }
    // Of others the length of the output says it.
    let copy = self::function(&engine, COPY);
    let call = Call::new(&copy, bytes(&input), Vec::new());
    assert_eq!(engine.run(&call, &mut Sink::Memory).expect("it runs").returned, None);
}

/// An expansion of 8 MiB by 32 was made as a whole before any of it was written.
#[test]
fn a_function_that_expands_works_by_short_chunks() {
    let engine = engine();
    let image = assemble(COPY).expect("it assembles").into_image(Kind::Read, engine.helpers());
    let mut image = image.expect("it links");
    (image.note.out_ratio, image.note.out_constant) = ((32, 1), 0);
    (image.note.split, image.note.concatenates) = (Some(Split::Bytes), true);
    let function = Function::from_image(&Arc::new(image), None, engine.helpers()).expect("it verifies");
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
    let image = assemble(COPY).expect("it assembles").into_image(Kind::Read, engine.helpers());
    let mut image = image.expect("it links");
    (image.note.out_ratio, image.note.out_constant) = ((2, 1), 64);
    (image.note.split, image.note.concatenates) = (Some(Split::Bytes), true);
    let function = Function::from_image(&Arc::new(image), None, engine.helpers()).expect("it verifies");
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

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadAtError> {
        let end = offset as usize + buffer.len();
        buffer.copy_from_slice(&self.bytes[offset as usize..end]);
        Ok(())
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
    // Returns the chunk's length as 8 bytes.
    let f = function(&engine, "stxdw [%r1], %r3\nmov %r0, 8\nexit");
    let mut call = Call::new(&f, bytes(&[1; 100]), Vec::new());
    call.chunk_len = Some(30);
    call.split = Some(Split::Fixed(12));
    let result = engine.run(&call, &mut Sink::Memory).expect("runs").result;
    let lens: Vec<u64> = result.chunks(8).map(|b| u64::from_le_bytes(b.try_into().expect("8 bytes"))).collect();
    assert_eq!(lens, [24, 24, 24, 24, 4], "whole records, and at the end what is left");
}

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

#[test]
fn a_file_that_shrinks_while_it_is_read_is_an_error_that_says_where() {
    let engine = engine();
    let f = function(&engine, "mov %r0, 0\nexit");
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().set_len(256 << 20).expect("sparse");
    let mut call = Call::new(&f, vec![Source::file(file.path())], Vec::new());
    call.chunk_len = Some(1 << 20);
    // The first chunk's run shortens the file, long before the reader is at its end.
    let progress = Arc::new(std::sync::atomic::AtomicU64::new(0));
    call.progress = Some(Arc::clone(&progress));
    let handle = file.as_file().try_clone().expect("cloned");
    let result = std::thread::scope(|scope| {
        scope.spawn(move || {
            while progress.load(Ordering::Relaxed) == 0 {
                std::hint::spin_loop();
            }
            handle.set_len(1 << 20).expect("shortened");
        });
        engine.run(&call, &mut Sink::Memory)
    });
    let error = result.expect_err("the file was shortened").to_string();
    assert!(error.contains("was shortened while it was read: it ends at byte 1048576"), "{error}");
}

#[test]
fn every_tier_gives_the_same_trap_at_the_same_place() {
    let engine = engine();
    let f = function(&engine, "ldxdw %r0, [%r2+8]\nexit");
    let mut errors = Vec::new();
    for tier in [Tier::Interpreter, Tier::Cranelift] {
        let mut call = Call::new(&f, bytes(&[0; 12]), Vec::new());
        call.tier = TierChoice::Only(tier);
        errors.push(engine.run(&call, &mut Sink::Memory).expect_err("out of bounds").to_string());
    }
    assert_eq!(errors[0], errors[1]);
    assert!(errors[0].starts_with("memory, bytes 0..12: "), "{}", errors[0]);
}

#[test]
fn a_cancelled_call_ends_promptly_also_in_a_long_loop() {
    let engine = engine();
    // Sums bytes over and over, for ever.
    let f = function(
        &engine,
        "mov %r4, 0\nagain:\nmov %r5, 0\nmov %r6, %r2\nnext:\nldxb %r0, [%r6]\nadd %r4, %r0\nadd %r6, 1\n\
         add %r5, 1\njlt %r5, %r3, next\nja again",
    );
    let cancel = CancelToken::new();
    let mut call = Call::new(&f, bytes(&vec![1; 64 << 20]), Vec::new());
    call.limits.budget = Some(u64::MAX / 2);
    call.limits.cancel = Some(cancel.clone());
    call.chunk_len = Some(64 << 20);
    let (result, after) = std::thread::scope(|scope| {
        let pulled = scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            cancel.cancel();
            Instant::now()
        });
        let result = engine.run(&call, &mut Sink::Memory);
        (result, pulled.join().expect("no panic").elapsed())
    });
    assert!(result.expect_err("cancelled").to_string().ends_with("the call was cancelled"));
    // A bound for a broken test only: how fast it really is, the bench says.
    assert!(after < Duration::from_secs(5), "{after:?}");
}

/// A range in which no record begins has windows that the function never sees, and only the function looked at the deadline: with
/// pieces of a byte such a call ran for minutes, and neither its host nor the server could end it.
#[test]
fn a_call_ends_in_time_although_no_record_begins() {
    let engine = engine();
    let f = function(&engine, COPY);
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), [b'x'; 4096]).expect("written");
    let source = || vec![Source::File { path: file.path().to_owned(), range: Some(1..4096) }];
    let mut call = Call::new(&f, source(), Vec::new());
    (call.chunk_len, call.split) = (Some(1), Some(Split::Delimiter(b'\n')));
    assert_eq!(engine.run(&call, &mut Sink::Memory).expect("it has no pieces").result, b"");
    call.limits.cancel = Some(CancelToken::new());
    call.limits.cancel.as_ref().expect("just set").cancel();
    let error = engine.run(&call, &mut Sink::Memory).expect_err("cancelled").to_string();
    assert!(error.contains("cancelled"), "{error}");
    let mut call = Call::new(&f, source(), Vec::new());
    (call.chunk_len, call.split) = (Some(1), Some(Split::Delimiter(b'\n')));
    call.limits.deadline = Some(Duration::ZERO);
    let error = engine.run(&call, &mut Sink::Memory).expect_err("its time is over").to_string();
    assert!(error.contains("deadline"), "{error}");
}

#[test]
fn state_is_shared_by_calls_and_makes_them_impure() {
    let engine = engine();
    // state[0] += 1; returns it as 8 bytes.
    let f = function(
        &engine,
        "lddw %r6, 0xb0000000000\nldxdw %r7, [%r6]\nadd %r7, 1\nstxdw [%r6], %r7\nstxdw [%r1], %r7\nmov %r0, 8\nexit",
    );
    assert!(!f.is_pure());
    let state = State::new(8);
    for expected in 1..=3u64 {
        let mut call = Call::new(&f, bytes(b"x"), Vec::new());
        call.state = Some(state.clone());
        call.threads = 4;
        let outcome = engine.run(&call, &mut Sink::Memory).expect("runs");
        assert_eq!(outcome.result, expected.to_le_bytes());
        assert_eq!(outcome.stats.threads, 1, "a program with effects runs on one thread");
    }
    state.clear(0, usize::MAX).unwrap();
    assert_eq!(state.snapshot(), [0; 8]);
    let call = Call::new(&f, bytes(b"x"), Vec::new());
    let error = engine.run(&call, &mut Sink::Memory).expect_err("no state is mapped").to_string();
    assert!(error.contains("of state at offset 0, where nothing is mapped"), "{error}");
}

// A call of several threads hung now and then when it was cancelled: its last worker had stopped just when the next chunk
// was on its way to it, and nobody took that.
#[test]
fn a_call_whose_workers_have_all_stopped_ends() {
    let engine = engine();
    let refuses = function(&engine, "mov %r0, -22\n exit");
    for round in 0..400 {
        let mut call = Call::new(&refuses, bytes(&[0; 4096]), Vec::new());
        call.threads = 1 + round % 3;
        call.chunk_len = Some(64);
        let error = engine.run(&call, &mut Sink::Memory).expect_err("it refuses every chunk");
        assert!(matches!(error, CallError::Errno { code: -22, .. }), "{error}");
    }
}

/// A function's object once said how much memory it got.
#[test]
fn room_for_output_is_bounded_by_the_caller_and_by_the_machine() {
    let engine = engine();
    let image = assemble(COPY).expect("it assembles").into_image(Kind::Read, engine.helpers());
    let mut image = image.expect("it links");
    image.note.out_constant = 1 << 39;
    let function = Function::from_image(&Arc::new(image), None, engine.helpers()).expect("it verifies");
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
    assert!(most <= 3 * diskside_engine::CHUNKS_OUT_MAX, "{most} of 64 chunks were begun behind the first");
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
    // Returns the chunk's length as 8 bytes.
    let f = function(&engine, "stxdw [%r1], %r3\nmov %r0, 8\nexit");
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
    let lens = |result: Vec<u8>| -> Vec<u64> {
        result.chunks(8).map(|b| u64::from_le_bytes(b.try_into().expect("8 bytes"))).collect()
    };
    let (ran, asked) = run(128 << 10, None);
    assert_eq!(lens(ran.expect("there is memory")).iter().sum::<u64>(), input.len() as u64);
    assert_eq!(asked, [16 << 10, 32 << 10, 64 << 10, 128 << 10]);
    // Also beyond the end of a range.
    let (ran, asked) = run(128 << 10, Some(0..10_000));
    assert_eq!((lens(ran.expect("there is memory")), *asked.last().expect("it asked")), (vec![100_001], 128 << 10));
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
    assert_eq!((lens(ran.expect("runs")).iter().sum::<u64>(), asked.len()), (lines.len() as u64, 0));
}

/// Input of unknown length that was one piece was refused with "the record does not end here", although it had no records: what
/// lacked was memory.
#[test]
fn input_that_is_one_piece_says_that_memory_lacks_for_it() {
    let engine = engine();
    let f = function(&engine, "stxdw [%r1], %r3\nmov %r0, 8\nexit");
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

/// A function of tens of kilobytes could take seconds to compile, once for each call that found it not compiled. What
/// would take too long is compiled in one pass, or not at all; the result is the same, and the statistics say so.
#[test]
fn what_is_too_long_to_compile_runs_in_a_plainer_form_and_says_so() {
    let checked = "ldxdw %r5, [%r4]\nadd %r0, %r5\nadd %r4, %r5\n";
    let joined = "jlt %r3, 1, +1\nmul %r0, 3\nadd %r0, 1\n";
    let of = |body: &str| format!("mov %r0, 0\nmov %r4, %r2\n{body}mov %r5, %r0\nstxdw [%r1], %r5\nmov %r0, 8\nexit");
    let cases = [
        (joined.repeat(100), Tier::Cranelift, None),
        (joined.repeat(5000), Tier::Cranelift, Some("it is long, and was compiled in one pass")),
        (
            checked.repeat(9000),
            Tier::Interpreter,
            Some("function `read` is too large for the Cranelift tier; it is interpreted"),
        ),
    ];
    for (body, tier, why) in cases {
        let engine = engine();
        let text = of(&body);
        let mut image =
            assemble(&text).expect("it assembles").into_image(Kind::Read, engine.helpers()).expect("it links");
        (image.note.split, image.note.concatenates) = (Some(Split::Bytes), true);
        image.note.out_constant = 8;
        let function = Function::from_image(&Arc::new(image), None, engine.helpers()).expect("it verifies");
        let run = |tier| {
            let mut call = Call::new(&function, bytes(&[0; 64]), Vec::new());
            call.tier = tier;
            engine.run(&call, &mut Sink::Memory)
        };
        let (best, interpreted) = (run(TierChoice::Best), run(TierChoice::Only(Tier::Interpreter)));
        let (best, interpreted) = (best.expect("it runs"), interpreted.expect("it runs"));
        assert_eq!((&best.result, best.stats.tier), (&interpreted.result, tier));
        assert_eq!(engine.code().stats().plainer, why.map(|why| format!("read/read: {why}")));
        if tier == Tier::Interpreter {
            let refused = run(TierChoice::Only(Tier::Cranelift)).expect_err("it is too long");
            assert_eq!(
                refused.to_string(),
                "cranelift cannot compile `read/read`: function `read` is too large for the Cranelift tier"
            );
        }
    }
}

/// A chunk of an array in blocks that are stored as they are (RFC 1950, 1951): so many zeroes.
fn stored_zlib(len: usize) -> Vec<u8> {
    let mut encoded = vec![0x78, 0x01];
    let mut left = len;
    while left > 0 {
        let part = left.min(u16::MAX.into());
        left -= part;
        encoded.push((left == 0).into());
        encoded.extend((part as u16).to_le_bytes());
        encoded.extend((!(part as u16)).to_le_bytes());
        encoded.extend(vec![0; part]);
    }
    encoded.extend((((len % 65_521) as u32) << 16 | 1).to_be_bytes());
    encoded
}

/// Chunks were decoded to their end whatever the time, by calls that had waited past their deadline for a turn.
#[test]
fn a_chunk_is_not_decoded_when_its_calls_time_is_over() {
    /// Gives turns, of which the second comes late.
    #[derive(Debug, Default)]
    struct SecondIsLate {
        taken: std::sync::atomic::AtomicUsize,
        until: std::sync::Mutex<Option<Instant>>,
    }
    impl diskside_engine::Turns for SecondIsLate {
        fn take(&self, work: &mut dyn FnMut()) {
            if self.taken.fetch_add(1, Ordering::SeqCst) == 1 {
                let until = self.until.lock().expect("nobody panicked").expect("it was set");
                std::thread::sleep(until.saturating_duration_since(Instant::now()));
            }
            work();
        }
    }
    const LEN: usize = 4 << 20;
    let engine = engine();
    let length = function(&engine, "stxdw [%r1], %r3\nmov %r0, 8\nexit");
    let chunk = || Source::Chunk {
        name: "c/0/0".into(),
        bytes: stored_zlib(LEN).into(),
        codecs: Arc::new(ChunkCodecs::new(vec![ChunkCodec::Zlib], LEN)),
    };
    for threads in [1, 2] {
        let mut call = Call::new(&length, vec![chunk(), chunk()], Vec::new());
        (call.threads, call.split) = (threads, Some(Split::Whole));
        let whole = engine.run(&call, &mut Sink::Memory).expect("it runs").result;
        assert_eq!(whole, [LEN as u64, LEN as u64].map(u64::to_le_bytes).concat());
        let (turns, deadline) = (Arc::new(SecondIsLate::default()), Duration::from_millis(200));
        *turns.until.lock().expect("nobody panicked") = Some(Instant::now() + deadline);
        call.turns = Some(turns.clone());
        call.limits.deadline = Some(deadline);
        let error = engine.run(&call, &mut Sink::Memory).expect_err("it has no more time");
        let told = error.to_string();
        assert!(told.contains("c/0/0, bytes 0..4194304") && told.contains("the deadline passed"), "{told}");
        let taken = turns.taken.load(Ordering::SeqCst);
        // Each thread's chunk has sixteen turns of decoding. Others may decode while one waits.
        assert!(threads > 1 || taken == 2, "{taken} turns were taken");
        call.turns = None;
        call.limits.cancel = Some(CancelToken::new());
        call.limits.cancel.as_ref().expect("just set").cancel();
        let error = engine.run(&call, &mut Sink::Memory).expect_err("it was cancelled").to_string();
        assert!(error.contains("c/0/0") && error.contains("cancelled"), "{error}");
    }
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
