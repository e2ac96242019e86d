//! Sessions against a target in this process, over TCP.

use std::path::Path;
use std::time::Duration;

use diskside::host::ConnectOptions;
use diskside::session::{OpenMode, Plan, Policy, Reason, RunOptions, Session, SessionError, SessionOptions, Where};
use diskside::target::config::{ExportSpec, VolumeSpec};
use diskside::target::{Running, Target};
use diskside::{Location, args};

const NQN: &str = "nqn.2026-11.org.example:session";

struct Served {
    running: Running,
    dir: tempfile::TempDir,
}

impl Served {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { running: serve(dir.path(), "127.0.0.1:0"), dir }
    }

    fn address(&self) -> String {
        self.running.handle().local_addresses()[0].to_string()
    }

    fn url(&self, name: &str) -> String {
        format!("diskside://{}/data/{name}", self.address())
    }

    /// A file old enough that its version tells every further change.
    fn file(&self, name: &str, bytes: &[u8]) {
        let path = self.dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        std::fs::File::open(path)
            .unwrap()
            .set_modified(std::time::SystemTime::now() - Duration::from_secs(60))
            .unwrap();
        // The time of the change of attributes cannot be set: let it pass.
        std::thread::sleep(Duration::from_millis(60));
    }
}

fn serve(dir: &Path, listen: &str) -> Running {
    let builder = Target::builder().nqn(NQN).listen([listen.parse().unwrap()]);
    let builder = builder.export(ExportSpec::new("data", dir)).volume(VolumeSpec::new("disk", "mem:16MiB"));
    builder.build().unwrap().start().unwrap()
}

fn session(policy: Policy) -> Session {
    let connect = ConnectOptions {
        reconnect_delay_min: Duration::from_millis(10),
        reconnect_delay_max: Duration::from_millis(100),
        ..ConnectOptions::default()
    };
    Session::new(SessionOptions { connect, policy, ..SessionOptions::default() })
}

fn numbers(count: u64, seed: u64) -> Vec<u8> {
    (0..count).flat_map(|n| (n * 7 + seed).to_le_bytes()).collect()
}

fn at(place: Where) -> RunOptions {
    RunOptions { place, ..RunOptions::default() }
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

/// A target that was restarted has forgotten handles and programs; the session has them anew.
#[test]
fn a_target_that_comes_back_is_used_on() {
    let served = Served::new();
    served.file("n", &numbers(10_000, 5));
    let address = served.address();
    let session = session(Policy::Adaptive);
    let file = session.open(&served.url("n")).unwrap();
    let source = served.dir.path().join("own.bpf.c");
    let text = "#include \"diskside.h\"\nSEC(\"read/own\")\n\
        __s64 own(__u64 *out, const void *in, __u64 in_len, const void *args, const struct ds_call *call) {\n\
        *out = in_len;\nreturn 8;\n}\n";
    std::fs::write(&source, text).unwrap();
    let own = session.function(&source.display().to_string()).unwrap();
    let before = file.fold_fn(&own, &[], &at(Where::Device)).wait().unwrap();
    let Served { running, dir } = served;
    running.handle().stop_now();
    running.wait().unwrap();
    let _again = serve(dir.path(), &address);
    let after = file.fold_fn(&own, &[], &at(Where::Device)).wait().unwrap();
    assert_eq!((before.result, after.result), (80_000_u64.to_le_bytes().to_vec(), 80_000_u64.to_le_bytes().to_vec()));
}

/// What was written and not flushed may be gone with a target that was restarted. A read had the file opened anew, and the
/// flush after it said that all was well.
#[test]
fn a_flush_after_a_restart_says_that_writes_before_may_be_lost() {
    let served = Served::new();
    served.file("bits", &[0; 4096]);
    let address = served.address();
    let session = session(Policy::Adaptive);
    let location = served.url("bits").parse::<Location>().unwrap();
    let file = session.open_as(&location, OpenMode::Write).unwrap();
    let bitmap = session.function("bitmap").unwrap();
    let input = || vec![3, 0xff, 5, 0x55];
    let Served { mut running, dir } = served;
    let writes: [&dyn Fn(); 3] = [
        &|| assert_eq!(file.pwrite(0, vec![7; 16], false).wait().unwrap(), 16),
        &|| drop(file.pwrite_fn(0, input(), &bitmap, &[], &at(Where::Device)).wait().unwrap()),
        &|| {
            file.pwrite(0, vec![7; 16], false).wait().unwrap();
            file.sync().wait().unwrap();
            file.pwrite(0, vec![8; 16], true).wait().unwrap();
        },
    ];
    for (write, at_risk) in writes.into_iter().zip([true, true, false]) {
        write();
        running.handle().stop_now();
        running.wait().unwrap();
        running = serve(dir.path(), &address);
        file.pread(0, 16).wait().unwrap();
        let flushed = file.sync().wait();
        assert_eq!(flushed.is_err(), at_risk, "{flushed:?}");
        if let Err(error) = flushed {
            assert!(error.to_string().contains("may be lost, write it again"), "{error}");
            file.sync().wait().unwrap();
        }
    }
}

/// A function that wrote into a file failed at a target that had been restarted, where one that read went on.
#[test]
fn a_file_at_a_target_that_comes_back_is_written_on() {
    let served = Served::new();
    served.file("bits", &[0; 4096]);
    let address = served.address();
    let session = session(Policy::Adaptive);
    let location = served.url("bits").parse::<Location>().unwrap();
    let file = session.open_as(&location, OpenMode::Write).unwrap();
    let bitmap = session.function("bitmap").unwrap();
    let write = |offset| file.pwrite_fn(offset, vec![3, 0xff, 5, 0x55], &bitmap, &[], &at(Where::Device)).wait();
    let written = write(0).unwrap().written_bytes;
    let expanded = std::fs::read(served.dir.path().join("bits")).unwrap()[..written as usize].to_vec();
    assert!(expanded.iter().any(|byte| *byte != 0));
    let Served { running, dir } = served;
    running.handle().stop_now();
    running.wait().unwrap();
    let _again = serve(dir.path(), &address);
    assert_eq!(write(1000).unwrap().written_bytes, written);
    assert_eq!(std::fs::read(dir.path().join("bits")).unwrap()[1000..][..expanded.len()], expanded);
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
