//! A target that is gone.

use crate::world::{World, at, endless, numbers, serve, until};
use diskside::host::ConnectOptions;
use diskside::session::{FailureKind, Plan, Reason, RunOptions, Session, SessionError, SessionOptions, Where};
use diskside::target::Running;
use std::path::Path;
use std::time::{Duration, Instant};

/// Gives a target up soon.
fn session(loss_timeout: Duration) -> Session {
    let connect = ConnectOptions {
        reconnect_delay_min: Duration::from_millis(10),
        reconnect_delay_max: Duration::from_millis(50),
        loss_timeout,
        ..ConnectOptions::default()
    };
    Session::new(SessionOptions { connect, ..SessionOptions::default() })
}

/// Old enough that its version tells every change.
fn settle(world: &World) {
    let file = std::fs::File::open(world.dir.path().join("n")).expect("there");
    file.set_modified(std::time::SystemTime::now() - Duration::from_secs(60)).expect("set");
    std::thread::sleep(Duration::from_millis(60));
}

/// Bytes that this session holds are computed on here, and the decision says why; bytes that it does not hold are an
/// error that names the peer; and when the target is back, a file that is opened again is as any other.
#[test]
fn a_target_that_is_killed_between_calls_is_said_to_be_gone() {
    let world = World::new(100_000);
    settle(&world);
    let session = session(Duration::from_millis(500));
    let (held, url) = (world.open(&session), world.url("n"));
    let stats = session.function("stats64").expect("shipped");
    let before = held.fold_fn(&stats, &[], &at(Where::Host)).wait().expect("it runs");
    let half = held.pread_fn(0..400_000, &stats, &[], &at(Where::Device)).wait().expect("it runs");
    let address = world.address();
    let World { running, dir } = world;
    running.handle().stop_now();
    running.wait().expect("stopped");

    // The first calls may still find out that nobody is there.
    let mut lost = None;
    until("the loss is known", || {
        lost = held.fold_fn(&stats, &[], &RunOptions::default()).wait().ok();
        lost.is_some()
    });
    let lost = lost.expect("just seen");
    assert_eq!((lost.result, lost.received_bytes, lost.sent_bytes), (before.result.clone(), 0, 0));
    let decision = lost.decisions[0].1;
    assert_eq!((decision.plan, decision.reason), (Plan::Host, Reason::LinkLost), "{decision}");
    assert!(session.decisions().of(Reason::LinkLost) >= 1);
    let part = held.pread_fn(0..400_000, &stats, &[], &RunOptions::default()).wait().expect("it is held");
    assert_eq!(part.result, half.result);

    // Insisting on a side, or needing what is not held, is an error in bounded time.
    session.drop_cache();
    for place in [Where::Device, Where::Host, Where::Auto] {
        let began = Instant::now();
        let error = held.fold_fn(&stats, &[], &at(place)).wait().expect_err("nobody is there");
        assert_eq!(error.kind(), FailureKind::Environment, "{error}");
        assert!(error.to_string().contains(&address), "it names the peer: {error}");
        assert!(began.elapsed() < Duration::from_secs(30), "{error}");
    }
    until("it is given up", || session.open(&url).is_err_and(|error| error.to_string().contains("refused")));
    let error = session.open(&url).expect_err("nobody is there");
    assert!(error.to_string().contains(&address), "it names the peer: {error}");

    let _again = serve(dir.path(), &address);
    let file = session.open(&url).expect("it is back");
    let after = file.fold_fn(&stats, &[], &at(Where::Device)).wait().expect("it runs");
    assert_eq!(after.result, before.result);
}

/// Nobody knows whether a function that was under way had ended: without effects it is run again, and there is nobody.
#[test]
fn a_target_that_is_killed_in_a_call_is_an_error_that_names_it() {
    let world = World::new(100);
    let session = session(Duration::from_millis(300));
    let spin = world.function(&session, "spin", crate::world::SPIN);
    let pending = world.open(&session).fold_fn(&spin, &[], &endless(Where::Device));
    world.until_busy(&session, 1);
    let address = world.address();
    world.running.handle().stop_now();
    let error = pending.wait().expect_err("its target is gone");
    assert!(error.to_string().contains(&address), "{error}");
    world.running.wait().expect("stopped");
}

/// Output whose first bytes have its target ended, and started again after something else was done.
struct Restarting<'a> {
    bytes: Vec<u8>,
    running: Option<Running>,
    dir: &'a Path,
    between: &'a (dyn Fn() + Sync),
}

impl std::io::Write for Restarting<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.bytes.is_empty() {
            let running = self.running.take().expect("it runs");
            let address = running.handle().local_addresses()[0].to_string();
            running.handle().stop_now();
            running.wait().expect("stopped");
            (self.between)();
            self.running = Some(serve(self.dir, &address));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Runs a function that copies 32 MB, and has its target started again when the first of them come. They are in so many files, of
/// which the first one may change between.
fn copied(count: usize, place: Where, between: impl Fn(&Path) + Sync) -> (Result<(), SessionError>, Vec<u8>, World) {
    let world = World::new(4_000_000 / count as u64);
    for index in 1..count {
        let path = world.dir.path().join(format!("n{index}"));
        std::fs::write(path, numbers(4_000_000 / count as u64)).expect("written");
    }
    settle(&world);
    let session = session(Duration::from_secs(60));
    let body = "for (__u64 i = 0; i < in_len / 8; i++) out[i] = in[i]; return in_len;";
    let function = world.function(
        &session,
        "copy",
        &format!("{body}\n}}\nDS_SPLIT_RECORDS(8);\nDS_CONCATENATE;\nstatic inline void end(void) {{"),
    );
    let name = |index| if index == 0 { "n".to_owned() } else { format!("n{index}") };
    let files: Vec<_> = (0..count).map(|index| session.open(&world.url(&name(index))).expect("it is there")).collect();
    let World { running, dir } = world;
    let options = RunOptions { chunk_len: Some(64 << 10), ..at(place) };
    let between = || between(&dir.path().join("n"));
    let mut out = Restarting { bytes: Vec::new(), running: Some(running), dir: dir.path(), between: &between };
    let ran = session.run(&files, &function, &[], &options, Some(&mut out));
    let Restarting { bytes, running, .. } = out;
    (ran.map(drop), bytes, World { running: running.expect("started again"), dir })
}

/// A server that was started again while a long result came ended the run in the middle of a line, with "Unknown Tag" or a handle
/// that is not open; where it was of many files, it still did. The same function over the same bytes gives the same output, so
/// the rest comes from another try.
#[test]
fn a_result_goes_on_where_it_was_when_its_target_is_started_again() {
    for (count, place) in
        [1, MANY].into_iter().flat_map(|count| [Where::Device, Where::Host, Where::Auto].map(|place| (count, place)))
    {
        let (ran, bytes, world) = copied(count, place, |_| ());
        ran.unwrap_or_else(|error| panic!("{count} {place:?}: {error}"));
        let wanted = std::fs::read(world.dir.path().join("n")).expect("there").repeat(count);
        assert!(bytes == wanted, "{count} {place:?}: {} bytes of {}", bytes.len(), wanted.len());
    }
}

/// Files that are one request.
const MANY: usize = 20;

fn change(file: &Path, offset: u64) {
    use std::os::unix::fs::FileExt as _;
    let file = std::fs::File::options().write(true).open(file).expect("there");
    file.write_all_at(&[0xEE; 8], offset).expect("written");
}

/// What came before would be of another version.
#[test]
fn a_result_does_not_go_on_when_the_file_changed_meanwhile() {
    for place in [Where::Device, Where::Host, Where::Auto] {
        let (ran, bytes, _world) = copied(1, place, |file| change(file, 31_000_000));
        let error = ran.expect_err("it changed");
        assert!(matches!(error, SessionError::Changed(_)), "{place:?}: {error}");
        assert!(bytes.len() < 31_000_000, "{place:?}: {}", bytes.len());
    }
}

/// Of many files nobody knows the versions, but what was printed.
#[test]
fn a_result_of_many_files_does_not_go_on_behind_what_is_another_one_now() {
    for place in [Where::Device, Where::Host, Where::Auto] {
        let (ran, bytes, _world) = copied(MANY, place, |file| change(file, 8));
        let error = ran.expect_err("it changed");
        assert!(matches!(error, SessionError::Changed(_)), "{place:?}: {error}");
        let before = numbers(4_000_000 / MANY as u64).repeat(MANY);
        assert!(bytes.len() < before.len() && before.starts_with(&bytes), "{place:?}: {}", bytes.len());
    }
}
