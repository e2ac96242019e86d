//! Functions over local files that are on a mounted volume: at the volume's target where that can be proved, else here,
//! and the same result either way. Needs root.

#[path = "../../layout/tests/lab/mod.rs"]
mod lab;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use diskside::host::mounted::{Pool, PoolLimits, Reason};
use diskside::session::{OpenMode, Ran, RunOptions, Session, SessionFunction, SessionOptions, Side, Where};
use diskside::target::config::{Size, VolumeSpec};
use diskside::target::{Running, Target};
use lab::{Kind, Lab, until_nobody_writes};

const NQN: &str = "nqn.2026-11.org.example:mounted";

/// A file system whose image a target serves: the kernel knows nothing of that, so the session is configured.
struct World {
    lab: Lab,
    running: Running,
}

impl World {
    fn new(kind: Kind) -> Option<Self> {
        let lab = Lab::new(kind)?;
        let volume = VolumeSpec::new("data", lab.image.to_str().expect("a path")).writable();
        let builder = Target::builder().nqn(NQN).listen(["127.0.0.1:0".parse().expect("an address")]);
        // The kernel writes the image itself, past the target: this one keeps nothing of what it read.
        let builder = builder.compute(|compute| compute.cache = Size::from_bytes(0)).volume(volume);
        Some(Self { lab, running: builder.build().expect("a target").start().expect("started") })
    }

    fn session(&self) -> Session {
        let url = format!("nvme-tcp://{}/{NQN}/1", self.running.handle().local_addresses()[0]);
        let mounted_volumes = vec![url.parse().expect("a URL")];
        Session::new(SessionOptions { mounted_volumes, ..SessionOptions::default() })
    }
}

fn options(place: Where) -> RunOptions {
    RunOptions { place, ..RunOptions::default() }
}

fn sides(ran: &Ran) -> Vec<Side> {
    ran.parts.iter().map(|part| part.side).collect()
}

fn numbers(len: u64) -> Vec<u8> {
    (0..len).flat_map(|n| (n * 7).to_le_bytes()).collect()
}

fn fold(session: &Session, path: &Path, function: &SessionFunction, place: Where) -> Ran {
    let file = session.open(path.to_str().expect("a path")).expect("open");
    file.fold_fn(function, &[], &options(place)).wait().expect("it runs")
}

#[test]
fn a_function_runs_at_the_volume_of_a_local_file_or_says_why_not() {
    for kind in [Kind::Ext4, Kind::Xfs] {
        let Some(world) = World::new(kind) else { return };
        let path = world.lab.mount.join("file");
        fs::write(&path, numbers(200_000)).expect("written");
        until_nobody_writes(&path);
        let session = world.session();
        let stats = session.function("stats64").expect("shipped");
        let here = fold(&session, &path, &stats, Where::Host);
        assert_eq!((sides(&here), here.decisions.len()), (vec![Side::Host], 0), "nothing was asked");

        let there = fold(&session, &path, &stats, Where::Device);
        assert_eq!((sides(&there), &there.result), (vec![Side::Device], &here.result), "{kind:?}");
        assert_eq!((there.refusals.len(), there.decisions.len()), (0, 1));
        assert!(there.received_bytes < 4096, "the result travels, not the file: {}", there.received_bytes);
        assert_eq!(session.mounted_counters().at_volume(), 1);
        for _ in 0..6 {
            let anywhere = fold(&session, &path, &stats, Where::Auto);
            assert_eq!(anywhere.result, here.result);
            assert!(anywhere.refusals.is_empty(), "{:?}", anywhere.refusals);
        }

        // Someone writes: it runs here, and says so.
        let writer = OpenOptions::new().write(true).open(&path).expect("open");
        let refused = fold(&session, &path, &stats, Where::Device);
        assert_eq!((sides(&refused), &refused.result), (vec![Side::Host], &here.result));
        assert!(refused.refusals[0].1.starts_with("someone has it open for writing"), "{:?}", refused.refusals);
        writer.write_all_at(&[0xff; 8], 8 * 100).expect("written");
        drop(writer);
        until_nobody_writes(&path);
        let changed = fold(&session, &path, &stats, Where::Host);
        assert_ne!(changed.result, here.result);
        assert_eq!(fold(&session, &path, &stats, Where::Device).result, changed.result, "what is new is seen");

        // A range, and several files, one of which is not there.
        let file = session.open(path.to_str().expect("a path")).expect("open");
        let ranges = [Where::Host, Where::Device]
            .map(|place| file.pread_fn(800..160_000, &stats, &[], &options(place)).wait().expect("it runs").result);
        assert_eq!(ranges[0], ranges[1]);
        let elsewhere = tempfile::NamedTempFile::new().expect("a file");
        fs::write(elsewhere.path(), numbers(1000)).expect("written");
        let other = session.open(elsewhere.path().to_str().expect("a path")).expect("open");
        let files = [file, other];
        let run = |place| session.run(&files, &stats, &[], &options(place), None).expect("it runs");
        let (both, told) = (run(Where::Auto), run(Where::Host));
        assert_eq!(both.result, told.result);
        assert_eq!(both.decisions.len(), 1, "of the one that has a choice");
    }
}

/// A session without a volume finds none, and says nothing of it: most files of a machine are on none.
#[test]
fn a_plain_file_is_just_here() {
    let Some(world) = World::new(Kind::Ext4) else { return };
    let path = world.lab.mount.join("file");
    fs::write(&path, numbers(1000)).expect("written");
    let session = Session::new(SessionOptions::default());
    let stats = session.function("stats64").expect("shipped");
    let ran = fold(&session, &path, &stats, Where::Auto);
    assert_eq!((sides(&ran), ran.refusals.len(), ran.decisions.len()), (vec![Side::Host], 0, 0));
    let file = session.open(path.to_str().expect("a path")).expect("open");
    let error = file.fold_fn(&stats, &[], &options(Where::Device)).wait().expect_err("there is no device");
    assert!(error.to_string().contains("no target serves it"), "{error}");
}

#[test]
fn output_is_written_at_the_volume_of_a_local_file_or_from_here() {
    for kind in [Kind::Ext4, Kind::Xfs] {
        let Some(world) = World::new(kind) else { return };
        let path = world.lab.mount.join("file");
        let mut bytes = vec![1_u8; 12 << 20];
        fs::write(&path, &bytes).expect("written");
        let session = world.session();
        let bitmap = session.function("bitmap").expect("shipped");
        let name: diskside::Location = path.to_str().expect("a path").parse().expect("a path");
        let file = session.open_as(&name, OpenMode::Write).expect("open");
        let mut write = |offset: usize, pairs: usize, byte: u8, place| {
            let input = [60, byte].repeat(pairs);
            let ran = file.pwrite_fn(offset as u64, input, &bitmap, &[], &options(place)).wait().expect("it runs");
            let end = offset + 60 * pairs;
            bytes.resize(bytes.len().max(end), 0);
            bytes[offset..end].fill(byte);
            assert_eq!(ran.written_bytes as usize, 60 * pairs);
            assert!(fs::read(&path).expect("read") == bytes, "{kind:?}: {pairs} pairs at {offset}");
            ran
        };
        // Other tests start programs, and their children have our files for a moment.
        let patience = Instant::now() + Duration::from_secs(20);
        let at_volume = loop {
            let ran = write(4096, 100_000, 7, Where::Device);
            if sides(&ran) == [Side::Device] || Instant::now() > patience {
                break ran;
            }
        };
        assert_eq!((sides(&at_volume), at_volume.refusals.len()), (vec![Side::Device], 0));
        assert!(at_volume.sent_bytes < 300_000, "the input travels, not the output: {}", at_volume.sent_bytes);
        let counted = session.mounted_counters().at_volume();
        assert!(counted >= 1);
        // Little comes back; so does what makes the file longer, if it is little.
        assert_eq!(sides(&write(100, 10, 8, Where::Device)), [Side::Device]);
        assert_eq!(sides(&write((12 << 20) - 100, 10, 9, Where::Device)), [Side::Device]);
        assert_eq!(session.mounted_counters().at_volume(), counted, "neither was written by the volume");
        // What makes it much longer is written from here.
        let longer = write(11 << 20, 200_000, 10, Where::Device);
        assert!(sides(&longer) == [Side::Host] && longer.refusals.len() == 1, "{:?}", longer.refusals);
        // Someone reads it.
        let reader = File::open(&path).expect("open");
        let refused = write(0, 100_000, 11, Where::Device);
        assert_eq!(sides(&refused), [Side::Host]);
        assert!(refused.refusals[0].1.starts_with(Reason::Opened.words()), "{:?}", refused.refusals);
        drop(reader);
        for _ in 0..4 {
            write(8192, 50_000, 12, Where::Auto);
        }
    }
}

/// Bytes that `grep` finds in half of their lines.
fn lines(len: usize) -> Vec<u8> {
    let lines = (0..).map(|at| format!("{} {at:07}\n", if at % 2 == 0 { "found" } else { "other" }));
    let mut bytes: Vec<u8> = lines.flat_map(String::into_bytes).take(len - 1).collect();
    bytes.push(b'\n');
    bytes
}

/// Whole output, from a file of the volume into a new one: nothing but the request travels. What is replaced serves again.
#[test]
fn a_new_file_is_written_at_the_volume_into_one_of_the_pool() {
    for kind in [Kind::Ext4, Kind::Xfs] {
        let Some(world) = World::new(kind) else { return };
        let (source, output) = (world.lab.mount.join("log"), world.lab.mount.join("found"));
        fs::write(&source, lines(6 << 20)).expect("written");
        until_nobody_writes(&source);
        let session = world.session();
        let grep = session.function("grep").expect("shipped");
        let args = diskside::args::encode(grep.args().expect("it has some"), &[("pattern".into(), "found".into())]);
        let args = args.expect("a pattern");
        let run = |place| {
            let files = [session.open(source.to_str().expect("a path")).expect("open")];
            session.run_into_path(&files, &grep, &args, &options(place), &output).expect("it runs")
        };
        // Without a pool nobody makes one unasked.
        let here = run(Where::Host);
        let expected = fs::read(&output).expect("read");
        assert!(expected.len() > 2 << 20 && sides(&here) == [Side::Host]);
        run(Where::Auto);
        assert!(!world.lab.mount.join(".diskside-pool").exists());

        // Children of other tests have our files for a moment: then it is written from here.
        let patience = Instant::now() + Duration::from_secs(20);
        let at_volume = |place| loop {
            let ran = run(place);
            assert!(fs::read(&output).expect("read") == expected, "{kind:?}: {:?}", ran.refusals);
            if sides(&ran) == [Side::Device] && ran.refusals.is_empty() || Instant::now() > patience {
                break ran;
            }
        };
        let there = at_volume(Where::Device);
        assert_eq!((sides(&there), there.refusals.len()), (vec![Side::Device], 0), "{:?}", there.refusals);
        assert_eq!(there.written_bytes as usize, expected.len());
        assert!(there.received_bytes + there.sent_bytes < 16 << 10, "neither input nor output travels: {there:?}");
        // Its old output is in the pool, but shorter than what grep might find: a file that was made for it serves.
        let pool = || Pool::open(&world.lab.mount, PoolLimits::default()).expect("a pool");
        assert!(pool().len_bytes().expect("told") >= expected.len() as u64, "what was replaced came into the pool");
        pool().prepare(32 << 20).expect("made").expect("room").give_back().expect("given back");
        assert_eq!(sides(&at_volume(Where::Auto)), [Side::Device]);
        assert_eq!(fs::metadata(&output).expect("told").nlink(), 1);

        // Nothing long enough: it is written from here, and says so.
        pool().release().expect("released");
        let plain = run(Where::Auto);
        let says = |ran: &Ran, reason: Reason| ran.refusals.iter().any(|(_, why)| why.starts_with(reason.words()));
        assert!(says(&plain, Reason::Pool), "{:?}", plain.refusals);
        assert!(fs::read(&output).expect("read") == expected);
        // Someone writes the source: what would come of it cannot be proved.
        let writer = OpenOptions::new().write(true).open(&source).expect("open");
        let refused = run(Where::Device);
        assert!(says(&refused, Reason::Writer), "{:?}", refused.refusals);
        assert!(fs::read(&output).expect("read") == expected);
        drop(writer);
    }
}

/// Bytes from elsewhere on this machine are sent, and what a function makes of them is not.
#[test]
fn a_new_file_is_made_of_bytes_that_are_sent() {
    for kind in [Kind::Ext4, Kind::Xfs] {
        let Some(world) = World::new(kind) else { return };
        let output = world.lab.mount.join("expanded");
        let runs = tempfile::NamedTempFile::new().expect("a file");
        let input = [60, 7].repeat(80_000);
        fs::write(runs.path(), &input).expect("written");
        let session = world.session();
        let bitmap = session.function("bitmap").expect("shipped");
        let patience = Instant::now() + Duration::from_secs(20);
        for _ in 0..2 {
            let ran = loop {
                let files = [session.open(runs.path().to_str().expect("a path")).expect("open")];
                let ran = session.run_into_path(&files, &bitmap, &[], &options(Where::Device), &output);
                let ran = ran.expect("it runs");
                let bytes = fs::read(&output).expect("read");
                assert!(bytes.len() == 60 * 80_000 && bytes.iter().all(|byte| *byte == 7), "{kind:?}");
                if ran.refusals.is_empty() || Instant::now() > patience {
                    break ran;
                }
            };
            assert_eq!((sides(&ran), ran.refusals.len()), (vec![Side::Device], 0), "{:?}", ran.refusals);
            assert!(
                ran.sent_bytes < input.len() as u64 + 16_384,
                "the input travels, not the output: {}",
                ran.sent_bytes
            );
        }
        // A function that fails leaves what was there.
        fs::write(runs.path(), [input, vec![9]].concat()).expect("written");
        let files = [session.open(runs.path().to_str().expect("a path")).expect("open")];
        let failed = session.run_into_path(&files, &bitmap, &[], &options(Where::Device), &output);
        assert!(failed.is_err(), "{failed:?}");
        assert_eq!(fs::metadata(&output).expect("told").len(), 60 * 80_000);
    }
}

/// A failed run at the volume wrote nothing, one through the file system wrote what stood before the failure.
#[test]
fn what_stands_before_a_failure_is_written_on_either_side() {
    const SOURCE: &str = "#include \"diskside.h\"
DS_CONCATENATE;
SEC(\"read/copy\")
__s64 copy(char *out, const __u64 *in, __u64 in_len, const void *args, const struct ds_call *call) {
    if (call->chunk_index == 3)
        return -DS_EINVAL;
    ds_memcpy(out, in, in_len);
    return in_len;
}
";
    let Some(world) = World::new(Kind::Ext4) else { return };
    let path = world.lab.mount.join("file");
    fs::write(&path, numbers(1000)).expect("written");
    until_nobody_writes(&path);
    let source = world.lab.mount.with_file_name("copy.bpf.c");
    fs::write(&source, SOURCE).expect("written");
    let session = world.session();
    let function = session.function(source.to_str().expect("a path")).expect("it compiles");
    let file = session.open(path.to_str().expect("a path")).expect("open");
    let run = |place| {
        let mut written = Vec::new();
        let options = RunOptions { chunk_len: Some(800), ..options(place) };
        let ran = session.run(std::slice::from_ref(&file), &function, &[], &options, Some(&mut written));
        (ran.unwrap_err().to_string(), written)
    };
    let (said, written) = run(Where::Host);
    assert_eq!(written, numbers(300));
    assert!(said.ends_with("file, bytes 2400..3200: read/copy returned -22: Invalid argument (os error 22)"), "{said}");
    for place in [Where::Device, Where::Auto] {
        assert_eq!(run(place), (said.clone(), written.clone()), "{place:?}");
    }
}
