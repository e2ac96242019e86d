//! Calls that end before their input does: cancelled, out of time, refused, or over a file that is shortened.

use diskside_engine::split::Split;
use diskside_engine::{Call, CallError, ChunkCodec, ChunkCodecs, ReadAt, Sink, Source};
use diskside_io::buffer::Part;
use diskside_io::readahead::Reading;
use diskside_sbpf::machine::CancelToken;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{COPY, LENGTH, bytes, engine, function};

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

/// A disk that hung made a deadline name "instruction 0" of a function that had not run.
#[test]
fn a_deadline_that_passes_while_bytes_are_waited_for_blames_no_instruction() {
    /// A disk that answers the first reads, and then hangs.
    #[derive(Debug)]
    struct Hangs {
        answers: u64,
    }
    impl ReadAt for Hangs {
        fn len(&self) -> u64 {
            1 << 20
        }

        fn read(&self, offset: u64, into: Part) -> Reading<'_> {
            match offset < self.answers {
                true => Box::pin(std::future::ready(Ok(into.buffer))),
                false => Box::pin(std::future::pending()),
            }
        }
    }
    let engine = engine();
    let f = function(&engine, LENGTH);
    for (answers, told) in [
        (0, "disk: the deadline passed before anything was read"),
        (65536, "disk: the deadline passed while byte 65536 was waited for"),
    ] {
        let reader = Arc::new(Hangs { answers });
        let mut call = Call::new(&f, vec![Source::Reader { name: "disk".into(), reader, range: None }], Vec::new());
        call.chunk_len = Some(64 << 10);
        call.limits.deadline = Some(Duration::from_millis(200));
        let error = engine.run(&call, &mut Sink::Memory).expect_err("the disk hangs");
        assert!(matches!(error, CallError::Late { .. }) && error.to_string() == told, "{error}");
    }
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
    let length = function(&engine, LENGTH);
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
