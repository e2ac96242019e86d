//! Sessions against a target in this process, over TCP.

mod restarted;
mod world;

use diskside::host::ConnectOptions;
use diskside::session::{
    Decompress, FailureKind, Header, OpenMode, Plan, Policy, Reason, RunOptions, Session, SessionError, SessionOptions,
    Side, Where,
};
use diskside::{Codec, Location, args};
use std::time::Duration;
use world::{NQN, Served, at, numbers, serve, session};

/// A server that took connections and never answered blocked every thread of a session that opened a file, wherever it
/// was: one lock was held while connecting. Only those that want that server wait for it now.
#[test]
fn a_server_that_does_not_answer_keeps_nobody_from_another() {
    let served = Served::new();
    served.file("x", b"text");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_url = format!("diskside://{}/data/x", silent.local_addr().unwrap());
    let connect = ConnectOptions { connect_timeout: Duration::from_secs(60), ..ConnectOptions::default() };
    let session = Session::new(SessionOptions { connect, ..SessionOptions::default() });
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| session.open(&silent_url).map(drop));
        let connection = silent.accept().unwrap();
        let file = session.open(&served.url("x")).unwrap();
        assert_eq!(&*file.pread(0, 4).wait().unwrap(), b"text");
        assert!(!waiting.is_finished(), "nobody has answered it");
        drop((connection, silent));
        assert!(waiting.join().unwrap().is_err());
    });
}

/// A read beyond the end of a file that had just changed made its connection's thread panic: a length below 0.
#[test]
fn a_read_beyond_the_end_gives_nothing() {
    let served = Served::new();
    std::fs::write(served.dir.path().join("fresh"), b"20 bytes of something").unwrap();
    served.file("old", b"20 bytes of something");
    let session = session(Policy::Adaptive);
    for name in ["fresh", "old"] {
        let file = session.open(&served.url(name)).unwrap();
        assert!(file.pread(100, 4).wait().unwrap().is_empty(), "{name}");
        assert_eq!(&file.pread(17, 100).wait().unwrap()[..], b"hing", "{name}");
    }
}

#[test]
fn ranges_and_whole_files_give_the_same_on_both_sides() {
    let served = Served::new();
    served.file("n", &numbers(100_000, 1));
    let session = session(Policy::Adaptive);
    let file = session.open(&served.url("n")).unwrap();
    let stats = session.function("stats64").unwrap();
    for range in [0..800_000, 8..16, 80_000..640_000, 0..0] {
        let device = file.pread_fn(range.clone(), &stats, &[], &at(Where::Device)).wait().unwrap();
        let host = file.pread_fn(range.clone(), &stats, &[], &at(Where::Host)).wait().unwrap();
        assert_eq!(device.result, host.result, "{range:?}");
        assert_eq!(device.input_bytes, range.end - range.start);
    }
    let error = file.pread_fn(0..800_001, &stats, &[], &at(Where::Auto)).wait().unwrap_err();
    assert!(matches!(error, SessionError::OutOfRange { len: 800_000, .. }), "{error}");
}

/// The host asked for what was left of a buffer though the result had ended there, and a target refuses to be asked for fewer
/// than 128 bytes: results of 32,641 to 32,767 bytes, and such of many blocks, were errors.
#[test]
fn a_result_that_nearly_fills_what_was_asked_for_ends_well() {
    let served = Served::new();
    let bytes = numbers(200_000, 1);
    served.file("n", &bytes);
    let session = session(Policy::Adaptive);
    let file = session.open(&served.url("n")).unwrap();
    let rows = session.function("filter_u64").unwrap();
    let given = [("op", "ge"), ("lo", "0"), ("form", "rows")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let args = args::encode(rows.args().unwrap(), &given).unwrap();
    for full in [32 << 10, 544 << 10] {
        for len in [full - 136, full - 128, full - 120, full - 64, full - 8, full, full + 8] {
            let ran = file.pread_fn(0..len, &rows, &args, &at(Where::Device)).wait().unwrap();
            assert!(ran.result == bytes[..len as usize], "{len} bytes");
        }
    }
}

/// The second run over a file reads it from this side's memory; a change of the file is seen at once.
#[test]
fn what_was_read_is_kept_until_the_file_changes() {
    let served = Served::new();
    served.file("n", &numbers(200_000, 1));
    let session = session(Policy::Adaptive);
    let file = session.open(&served.url("n")).unwrap();
    let stats = session.function("stats64").unwrap();
    let first = file.fold_fn(&stats, &[], &at(Where::Host)).wait().unwrap();
    assert!(first.received_bytes >= 1_600_000, "{}", first.received_bytes);
    let again = file.fold_fn(&stats, &[], &at(Where::Host)).wait().unwrap();
    assert_eq!((&again.result, again.received_bytes), (&first.result, 0));
    assert_eq!(file.pread(800, 80).wait().unwrap()[..], numbers(200_000, 1)[800..880]);

    served.file("n", &numbers(200_000, 2));
    let changed = file.fold_fn(&stats, &[], &at(Where::Host)).wait().unwrap();
    assert!(changed.received_bytes >= 1_600_000 && changed.result != first.result);
    assert_eq!(file.pread(800, 80).wait().unwrap()[..], numbers(200_000, 2)[800..880]);
}

/// A block that is read now and changed within the clock's grain must not be taken for the new version.
#[test]
fn a_file_that_changes_all_the_time_is_never_read_from_memory() {
    let served = Served::new();
    let session = session(Policy::Adaptive);
    let path = served.dir.path().join("n");
    std::fs::write(&path, numbers(1000, 0)).unwrap();
    let file = session.open(&served.url("n")).unwrap();
    for seed in 1..50 {
        std::fs::write(&path, numbers(1000, seed)).unwrap();
        assert_eq!(file.pread(0, 8000).wait().unwrap()[..], numbers(1000, seed), "write {seed}");
    }
}

#[test]
fn auto_measures_both_sides_and_says_why_and_records_stay_whole() {
    let served = Served::new();
    let text: String = (0..400_000).map(|n| format!("line {n} of the file\n")).collect();
    served.file("log", text.as_bytes());
    let session = session(Policy::Adaptive);
    let file = session.open(&served.url("log")).unwrap();
    let wc = session.function("wc").unwrap();
    let wanted = file.fold_fn(&wc, &[], &at(Where::Device)).wait().unwrap().result;
    for _ in 0..30 {
        let ran = file.fold_fn(&wc, &[], &RunOptions::default()).wait().unwrap();
        assert_eq!(ran.result, wanted, "{:?}", ran.decisions);
        assert_eq!(ran.parts.iter().map(|part| part.range.end - part.range.start).sum::<u64>(), text.len() as u64);
    }
    let measured = session.measured(&file, &wc).unwrap();
    assert!(measured.measured.iter().all(|&count| count > 0), "{measured:?}");
    let counts = session.decisions();
    assert!(counts.of(Reason::Faster) + counts.of(Reason::FasterTogether) + counts.of(Reason::Tie) > 0, "{counts:?}");
}

#[test]
fn the_papers_policy_runs_its_first_requests_on_both_sides() {
    let served = Served::new();
    served.file("n", &numbers(50_000, 3));
    let session = session(Policy::PAPER);
    let file = session.open(&served.url("n")).unwrap();
    let stats = session.function("stats64").unwrap();
    let plans: Vec<Plan> =
        (0..7).map(|_| file.fold_fn(&stats, &[], &RunOptions::default()).wait().unwrap().decisions[0].1.plan).collect();
    assert!(plans[..5].iter().all(|plan| *plan == Plan::Both), "{plans:?}");
    assert!(plans[5..].iter().all(|plan| plan.side().is_some()), "{plans:?}");
}

#[test]
fn the_output_of_a_write_is_the_same_from_either_side() {
    let served = Served::new();
    let session = session(Policy::Adaptive);
    let bitmap = session.function("bitmap").unwrap();
    // Pairs: how often, and what.
    let bits: Vec<u8> = (0..25_000_u32).flat_map(|n| [(n * 31 % 60) as u8, n as u8]).collect();
    let options = |place| RunOptions { place, durable: true, ..RunOptions::default() };
    let mut written = Vec::new();
    for (name, place) in [("h", Where::Host), ("d", Where::Device), ("a", Where::Auto)] {
        let location: Location = served.url(name).parse().unwrap();
        let file = session.open_as(&location, OpenMode::Create).unwrap();
        let ran = file.pwrite_fn(100, bits.clone(), &bitmap, &[], &options(place)).wait().unwrap();
        let bytes = std::fs::read(served.dir.path().join(name)).unwrap();
        assert_eq!(bytes.len() as u64, 100 + ran.written_bytes, "{name}");
        assert!(ran.written_bytes > bits.len() as u64);
        if place == Where::Device {
            assert!(ran.sent_bytes < bits.len() as u64 + 1024, "only the input travels: {}", ran.sent_bytes);
        }
        written.push(bytes);
    }
    assert!(written[0] == written[1] && written[0] == written[2]);
}

/// The input of a write is longer than any buffer of the way: it travels in parts.
#[test]
fn a_write_may_be_longer_than_any_buffer() {
    let served = Served::new();
    let session = session(Policy::Adaptive);
    let bitmap = session.function("bitmap").unwrap();
    let runs: Vec<u8> = (0..5_000_000_u32).flat_map(|n| [(n % 5) as u8, (n >> 8) as u8]).collect();
    let wanted: Vec<u8> = runs.chunks(2).flat_map(|run| std::iter::repeat_n(run[1], run[0].into())).collect();
    let location: Location = served.url("long").parse().unwrap();
    let file = session.open_as(&location, OpenMode::Create).unwrap();
    for place in [Where::Device, Where::Auto] {
        let ran = file.pwrite_fn(3, runs.clone(), &bitmap, &[], &at(place)).wait().unwrap();
        assert_eq!((ran.input_bytes, ran.written_bytes), (runs.len() as u64, wanted.len() as u64));
        assert!(std::fs::read(served.dir.path().join("long")).unwrap()[3..] == wanted, "{place:?}");
    }
}

/// The first write of a pair must not go over the network whole, expanded, only to be measured.
#[test]
fn the_first_write_measures_the_host_without_writing_from_it() {
    let served = Served::new();
    let session = session(Policy::Adaptive);
    let bitmap = session.function("bitmap").unwrap();
    let runs: Vec<u8> = (0..400_000_u32).flat_map(|n| [64, n as u8]).collect();
    let location: Location = served.url("first").parse().unwrap();
    let file = session.open_as(&location, OpenMode::Create).unwrap();
    let ran = file.pwrite_fn(0, runs.clone(), &bitmap, &[], &RunOptions::default()).wait().unwrap();
    assert_eq!((ran.decisions[0].1.plan, ran.decisions[0].1.reason), (Plan::Device, Reason::Unmeasured));
    assert!(ran.sent_bytes < runs.len() as u64 + 1024, "{}", ran.sent_bytes);
    let second = file.pwrite_fn(0, runs.clone(), &bitmap, &[], &RunOptions::default()).wait().unwrap();
    assert!(second.decisions[0].1.estimate.is_some(), "{}", second.decisions[0].1);
}

#[test]
fn volumes_are_sources_as_files_are() {
    let served = Served::new();
    let session = session(Policy::Adaptive);
    let url = format!("nvme-tcp://{}/{NQN}/1", served.address());
    let volume = session.open_as(&url.parse().unwrap(), OpenMode::Write).unwrap();
    let bytes = numbers(1 << 17, 9);
    assert_eq!(volume.pwrite(0, bytes.clone(), false).wait().unwrap(), 1 << 20);
    assert_eq!(volume.pread(1001, 5000).wait().unwrap()[..], bytes[1001..6001], "also where no block begins");
    let stats = session.function("stats64").unwrap();
    let device = volume.pread_fn(0..1 << 20, &stats, &[], &at(Where::Device)).wait().unwrap();
    let host = volume.pread_fn(0..1 << 20, &stats, &[], &at(Where::Host)).wait().unwrap();
    assert_eq!(device.result, host.result);
}

/// A program that reads a file through a function reads the file, unless it asks for more.
#[test]
fn only_who_asks_gets_what_a_file_decompresses_to() {
    let served = Served::new();
    let session = session(Policy::Adaptive);
    // "hello, hello, hello\n", by `gzip -n`.
    let bytes = b"\x1f\x8b\x08\0\0\0\0\0\0\x03\xcb\x48\xcd\xc9\xc9\xd7\x51\xc8\x40\xa2\xb8\0\xe7\x42\x6e\x52\x14\0\0\0";
    served.file("hello.gz", bytes);
    let wc = session.function("wc").unwrap();
    let local = served.dir.path().join("hello.gz");
    let volume = format!("nvme-tcp://{}/{NQN}/1", served.address());
    for (input, place) in [
        (local.to_str().unwrap(), Where::Auto),
        (&served.url("hello.gz"), Where::Host),
        (&served.url("hello.gz"), Where::Device),
    ] {
        let file = session.open(input).unwrap();
        let len = |options: RunOptions| {
            let ran = file.fold_fn(&wc, &[], &options).wait().unwrap();
            u64::from_le_bytes(ran.result[16..24].try_into().unwrap())
        };
        assert_eq!(len(at(place)), bytes.len() as u64);
        assert_eq!(len(RunOptions { decompress: Decompress::Auto, ..at(place) }), 20);
        assert_eq!(len(RunOptions { decompress: Decompress::Only(Codec::Gzip), ..at(place) }), 20);
    }
    // A volume may begin with anything.
    let disk = session.open_as(&volume.parse().unwrap(), OpenMode::Write).unwrap();
    let mut block = bytes.to_vec();
    block.resize(4096, 0);
    disk.pwrite(0, block, false).wait().unwrap();
    let ran = disk.fold_fn(&wc, &[], &RunOptions { decompress: Decompress::Auto, ..at(Where::Auto) }).wait().unwrap();
    assert_eq!(ran.result[16..24], (16_u64 << 20).to_le_bytes());
}

#[test]
fn arguments_reach_the_device_and_errors_come_back_typed() {
    let served = Served::new();
    served.file("log", b"one\ntwo\nthree\n");
    let session = session(Policy::Adaptive);
    let file = session.open(&served.url("log")).unwrap();
    let grep = session.function("grep").unwrap();
    let bytes = args::encode(grep.args().unwrap(), &[("pattern".into(), "t".into())]).unwrap();
    let ran = file.fold_fn(&grep, &bytes, &at(Where::Device)).wait().unwrap();
    assert_eq!(ran.result, b"two\nthree\n");
    let error = file.fold_fn(&grep, &[], &at(Where::Device)).wait().unwrap_err();
    assert!(error.function().is_some(), "{error}");
    let missing = session.open(&served.url("missing")).unwrap_err();
    assert_eq!(missing.function().and_then(diskside::host::function::FunctionError::errno), Some(2), "{missing}");
}

/// Where the caller did not say where a function runs, one over a short file took three round trips, however often it was asked
/// for: two were for opening the file and for looking at it. Of one that was short the last time, the target does that itself.
#[test]
fn a_short_file_that_a_function_ran_over_before_takes_one_round_trip() {
    let served = Served::new();
    let session = session(Policy::Fixed(Side::Device));
    let stats = session.function("stats64").unwrap();
    let header = format!("{:<117}\n", "{'descr': '<i8', 'fortran_order': False, 'shape': (1000,), }");
    let array = [b"\x93NUMPY\x01\0\x76\0", header.as_bytes(), &numbers(1000, 1)].concat();
    for (name, bytes) in [("plain", numbers(1000, 1)), ("long", numbers(1 << 16, 3)), ("array", array)] {
        served.file(name, &bytes);
    }
    let target = served.url("plain").parse::<diskside::ExportUrl>().unwrap().target();
    // Files are closed when nobody waits for it any more.
    let commands = || {
        let sent = || session.compute(&target).unwrap().connection().stats().commands;
        let mut last = sent();
        loop {
            std::thread::sleep(Duration::from_millis(30));
            match sent() {
                now if now == last => return now,
                now => last = now,
            }
        }
    };
    let run = |name: &str, place| {
        let looked_at = RunOptions { decompress: Decompress::Auto, header: Header::Auto, ..at(place) };
        let (before, file) = (commands(), session.open_late(&served.url(name).parse().unwrap()).unwrap());
        let ran = session.run(&[file], &stats, &[], &looked_at, None).unwrap();
        (ran.result, commands() - before)
    };
    // The first one has the program loaded, too.
    run("plain", Where::Device);
    let (_, least) = run("plain", Where::Device);
    for name in ["plain", "long", "array"] {
        let (result, _) = run(name, Where::Host);
        for round in 0..3 {
            let (again, took) = run(name, Where::Auto);
            assert_eq!(again, result, "{name}, round {round}");
            assert_eq!(
                took == least,
                name == "plain",
                "{name}, round {round}: {took} commands; one round trip has {least}"
            );
        }
    }
    // It is long by now, which is known after the next time.
    served.file("plain", &numbers(1 << 16, 3));
    let (longer, took) = run("plain", Where::Auto);
    assert_eq!((longer, took), (run("long", Where::Host).0, least));
    assert!(run("plain", Where::Auto).1 > least);
}

/// A function over a short file took as long as four round trips, three of which were for opening and looking. The
/// target of a file that is opened late gets the path instead, and does all of that itself: results, statistics and
/// errors are the same.
#[test]
fn a_file_that_is_opened_late_is_the_same_to_a_function_at_its_target() {
    let served = Served::new();
    let session = session(Policy::Adaptive);
    let bytes = numbers(1000, 1);
    served.file("plain", &bytes);
    served.file("empty", b"");
    // Longer than what a target reads when it looks a file up.
    served.file("long", &numbers(1 << 18, 3));
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut gzip, &bytes).unwrap();
    served.file("packed", &gzip.finish().unwrap());
    let header = format!("{:<117}\n", "{'descr': '<i8', 'fortran_order': False, 'shape': (1000,), }");
    served.file("array", &[b"\x93NUMPY\x01\0\x76\0", header.as_bytes(), &bytes].concat());
    served.file("odd", &bytes[..7999]);
    let stats = session.function("stats64").unwrap();
    let as_it_is = at(Where::Device);
    let looked_at = RunOptions { decompress: Decompress::Auto, header: Header::Auto, ..at(Where::Device) };
    let told = |ran: Result<diskside::session::Ran, SessionError>| match ran {
        Ok(ran) => {
            let part = &ran.parts[0];
            let decided: Vec<_> =
                ran.decisions.iter().map(|(name, decision)| (name.clone(), decision.reason)).collect();
            Ok((ran.result, ran.input_bytes, ran.parts.len(), part.name.clone(), part.range.clone(), decided))
        }
        Err(error) => Err((error.kind(), error.to_string())),
    };
    for name in ["plain", "empty", "long", "packed", "array", "odd"] {
        for options in [&as_it_is, &looked_at] {
            let url = served.url(name);
            let [opened, late] = [session.open(&url), session.open_late(&url.parse().unwrap())].map(Result::unwrap);
            // Once more it is asked for by this thread, as the target has the program by then.
            let submitted = told(session.submit_run(std::slice::from_ref(&late), &stats, &[], options, None).wait());
            let [opened, late] = [opened, late].map(|file| told(session.run(&[file], &stats, &[], options, None)));
            assert_eq!(late, opened, "{name}");
            assert_eq!(submitted, opened, "{name}, submitted");
        }
    }
    let missing = session.open_late(&served.url("missing").parse().unwrap()).unwrap();
    let error = session.run(&[missing], &stats, &[], &as_it_is, None).unwrap_err();
    assert_eq!(error.kind(), session.open(&served.url("missing")).unwrap_err().kind(), "{error}");
    let said = format!("cannot open {}: No such file or directory (os error 2)", served.url("missing"));
    assert_eq!(error.to_string(), said);
}

/// Each run that was submitted began a thread, which took longer than the run did. Over a short file one request does
/// all, which the caller's thread sends; its errors are handled as in a thread.
#[test]
fn a_run_that_is_submitted_without_a_thread_goes_on_where_it_fails() {
    let served = Served::new();
    let session = session(Policy::Adaptive);
    served.file("plain", &numbers(1000, 1));
    let stats = session.function("stats64").unwrap();
    let options = RunOptions { decompress: Decompress::Auto, header: Header::Auto, ..at(Where::Device) };
    let address = served.address();
    let url = served.url("plain");
    let submit = |options: &RunOptions| {
        let late = session.open_late(&url.parse().unwrap()).unwrap();
        session.submit_run(&[late], &stats, &[], options, None)
    };
    let expected = submit(&options).wait().unwrap().result;
    let several: Vec<_> = (0..64).map(|_| submit(&options)).collect();
    assert!(several.into_iter().all(|one| one.wait().unwrap().result == expected));
    let auto = RunOptions { place: Where::Auto, ..options.clone() };
    for _ in 0..40 {
        assert_eq!(submit(&auto).wait().unwrap().result, expected);
    }
    // The thread that hears of its end holds the last of its session.
    for _ in 0..8 {
        let other = Session::new(SessionOptions::default());
        let late = || other.open_late(&url.parse().unwrap()).unwrap();
        other.submit_run(&[late()], &stats, &[], &options, None).wait().unwrap();
        let under_way = other.submit_run(&[late()], &stats, &[], &options, None);
        drop(other);
        assert_eq!(under_way.wait().unwrap().result, expected);
    }
    // One that is stopped before it begins.
    let (mut stopped, cancel) = (options.clone(), diskside::sandbox::machine::CancelToken::new());
    stopped.limits.cancel = Some(cancel.clone());
    cancel.cancel();
    assert_eq!(submit(&stopped).wait().unwrap_err().kind(), FailureKind::Cancelled);
    // Its header is looked at from here where the caller gives what it is read as.
    let header = format!("{:<117}\n", "{'descr': '<i8', 'fortran_order': False, 'shape': (1000,), }");
    served.file("plain", &[b"\x93NUMPY\x01\0\x76\0", header.as_bytes(), &numbers(1000, 1)].concat());
    assert_eq!(submit(&options).wait().unwrap().result, expected);
    // It was restarted and has no programs.
    let Served { running, dir } = served;
    running.handle().stop_now();
    running.wait().unwrap();
    let (_again, under_way) = (serve(dir.path(), &address), submit(&options));
    assert_eq!(under_way.wait().unwrap().result, expected);
    std::fs::remove_file(dir.path().join("plain")).unwrap();
    let error = submit(&options).wait().unwrap_err();
    assert_eq!(error.to_string(), format!("cannot open {url}: No such file or directory (os error 2)"));
}

/// The room for a result that a caller had set no bound to was more than there is, and ended the process.
#[test]
fn a_result_without_a_bound_is_made_as_any_other() {
    let served = Served::new();
    let session = session(Policy::Adaptive);
    served.file("n", &numbers(1000, 1));
    let stats = session.function("stats64").unwrap();
    let file = session.open(&served.url("n")).unwrap();
    for (place, most) in [(Where::Host, 1 << 46), (Where::Host, usize::MAX), (Where::Device, usize::MAX)] {
        let mut options = at(place);
        options.limits.result_len_max = most;
        assert_eq!(file.fold_fn(&stats, &[], &options).wait().unwrap().result.len(), 32);
    }
}

/// What a host counted reached nobody but its own program.
#[test]
fn a_session_tells_prometheus_what_it_did() {
    let served = Served::new();
    served.file("n", &numbers(10_000, 3));
    let session = session(Policy::Adaptive);
    let quiet = session.metrics();
    assert!(quiet.contains("\ndiskside_client_probes_total 0\n") && quiet.ends_with("# EOF\n"), "{quiet}");
    let file = session.open(&served.url("n")).unwrap();
    let sum = session.function("stats64").unwrap();
    file.fold_fn(&sum, &[], &at(Where::Device)).wait().unwrap();
    file.fold_fn(&sum, &[], &at(Where::Host)).wait().unwrap();
    let metrics = session.metrics();
    let has = |line: &str| assert!(metrics.lines().any(|found| found == line), "{line}\n{metrics}");
    has("diskside_client_requests_total{plan=\"device\"} 1");
    has("diskside_client_requests_total{plan=\"host\"} 1");
    has("diskside_client_decisions_total{reason=\"told\"} 2");
    has("# TYPE diskside_client_connection_read_bytes counter");
    has(&format!("diskside_client_connection_losses_total{{server=\"{}\"}} 0", served.address()));
    has(&format!("diskside_client_cache_bytes {}", session.cached_bytes()));
}
