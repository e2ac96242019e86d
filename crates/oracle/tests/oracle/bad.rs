//! What goes wrong goes wrong in the same words everywhere.

use crate::kept;
use diskside::embedded;
use diskside::host::ConnectOptions;
use diskside::session::{FailureKind, RunOptions, Session, SessionError, SessionFunction, SessionOptions, Where};
use diskside::target::config::ExportSpec;
use diskside::target::{Running, Target};
use diskside_oracle::compile;
use std::io::{self, Write};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::Duration;

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/cases");

#[test]
fn what_is_wrong_is_told_in_the_same_words_everywhere() {
    let cases = crate::cases(&format!("{DIRECTORY}/bad"));
    assert!(cases.iter().all(|case| case.fails.is_some()), "each says what it is told");
    let failures = crate::check_all(&cases);
    assert!(failures.is_empty(), "{} of {} cases:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

#[test]
fn what_is_strange_is_no_error_and_the_same_everywhere() {
    let failures = crate::check_all(&crate::cases(&format!("{DIRECTORY}/strange")));
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Gives its input back: with more than anybody buffers, it is still running when its first output is written.
const COPY: &str = "#include \"diskside.h\"
DS_SPLIT_RECORDS(8);
DS_CONCATENATE;
DS_OUTPUT(1, 1, 0);
SEC(\"read/copy\")
__s64 copy(char *out, const void *in, __u64 in_len, const void *args, const struct ds_call *call)
{
    ds_memcpy(out, in, in_len);
    return in_len;
}
";
const LEN: u64 = 96 << 20;
const CHUNK_LEN: usize = 1 << 20;

/// A target of its own with a long file, and a session that gives up soon when it is gone.
struct World {
    dir: tempfile::TempDir,
    running: Running,
    session: Session,
    copy: SessionFunction,
}

/// Where it runs: over the file here, or over that of the target.
const PLACES: [(bool, Where); 4] =
    [(true, Where::Auto), (false, Where::Host), (false, Where::Device), (false, Where::Auto)];

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let file = std::fs::File::create(dir.path().join("long")).expect("a file");
        file.set_len(LEN).expect("sparse");
        let builder = Target::builder().nqn("nqn.2026-11.org.example:bad").listen([]).reactors(1);
        let running = builder.export(ExportSpec::new("data", dir.path()).writable()).build().expect("a target").start();
        let running = running.expect("started");
        let connect = ConnectOptions {
            reconnect_delay_min: Duration::from_millis(10),
            reconnect_delay_max: Duration::from_millis(50),
            loss_timeout: Duration::from_millis(300),
            ..ConnectOptions::default()
        };
        let session = Session::new(SessionOptions { connect: connect.clone(), ..SessionOptions::default() });
        let connection = embedded::connect(running.handle(), &connect).expect("connected");
        session.attach("here", connection).expect("it runs functions");
        let object = compile::object(COPY, "copy.bpf.c", &kept().join("objects")).expect("it compiles");
        let copy = session.load(&object, Some("copy")).expect("it loads");
        Self { dir, running, session, copy }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("long")
    }

    /// Runs it into a writer.
    fn run(&self, (is_local, place): (bool, Where), out: &mut (dyn Write + Send)) -> Result<u64, SessionError> {
        let name = if is_local { self.path().display().to_string() } else { "diskside://here/data/long".to_owned() };
        let file = self.session.open(&name)?;
        let options = RunOptions { place, chunk_len: Some(CHUNK_LEN), ..RunOptions::default() };
        Ok(self.session.run(&[file], &self.copy, &[], &options, Some(out))?.written_bytes)
    }

    /// An error without the file's name.
    fn told(&self, error: &SessionError) -> String {
        let path = self.path().display().to_string();
        error.to_string().replace(&path, "FILE").replace("diskside://here/data/long", "FILE")
    }
}

/// Does something after its first bytes, or fails then.
struct Then<F> {
    act: Option<F>,
    fails: Option<io::ErrorKind>,
    written: u64,
}

impl<F> Then<F> {
    fn act(act: F) -> Self {
        Self { act: Some(act), fails: None, written: 0 }
    }
}

impl<F: FnOnce()> Write for Then<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let (Some(kind), true) = (self.fails, self.written > 0) {
            return Err(kind.into());
        }
        self.written += bytes.len() as u64;
        if let Some(act) = self.act.take() {
            act();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_file_of_a_target_that_changes_between_two_pieces_is_no_result() {
    // A file of this machine has no known version.
    for place in PLACES.into_iter().filter(|(is_local, _)| !is_local) {
        let world = World::new();
        let change = || {
            let file = std::fs::File::options().write(true).open(world.path()).expect("open");
            file.write_all_at(b"changed", LEN - 7).expect("written");
        };
        let error = world.run(place, &mut Then::act(change)).expect_err("it changed");
        let told = "FILE changed while it was read: its result would mix two versions";
        assert_eq!((error.kind(), &world.told(&error)[..]), (FailureKind::Changed, told), "{place:?}");
    }
}

#[test]
fn a_file_that_becomes_shorter_between_two_pieces_is_no_result() {
    for place in PLACES {
        let world = World::new();
        let shorten = || {
            let file = std::fs::File::options().write(true).open(world.path()).expect("open");
            file.set_len(2 * CHUNK_LEN as u64).expect("shorter");
        };
        let error = world.run(place, &mut Then::act(shorten)).expect_err("it changed");
        let told = "FILE changed while it was read: its result would mix two versions";
        assert_eq!((error.kind(), &world.told(&error)[..]), (FailureKind::Changed, told), "{place:?}");
    }
}

#[test]
fn a_server_that_vanishes_between_two_pieces_is_no_result() {
    for place in PLACES.into_iter().filter(|(is_local, _)| !is_local) {
        let world = World::new();
        let handle = world.running.handle().clone();
        let error = world.run(place, &mut Then::act(|| handle.stop_now())).expect_err("it is gone");
        assert_eq!(error.kind(), FailureKind::Environment, "{place:?}: {error}");
        let told = world.told(&error);
        assert!(told.contains("FILE"), "{place:?}: {told}");
    }
}

#[test]
fn output_that_fails_half_way_is_told_in_the_same_words_everywhere() {
    let world = World::new();
    for kind in [io::ErrorKind::StorageFull, io::ErrorKind::BrokenPipe] {
        for place in PLACES {
            let mut full = Then { act: None::<fn()>, fails: Some(kind), written: 0 };
            let error = world.run(place, &mut full).expect_err("there is no room");
            let told = format!("writing the result: {}", io::Error::from(kind));
            assert_eq!((error.kind(), error.to_string()), (FailureKind::Environment, told), "{place:?}");
            assert!(full.written < LEN, "{place:?}: it stopped");
        }
    }
    // And it continues with the next.
    let mut out = Then::act(|| ());
    assert_eq!(world.run((false, Where::Device), &mut out).expect("it runs"), LEN);
}
