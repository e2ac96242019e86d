//! A target that is gone.

use crate::world::{World, at, endless, serve, until};
use diskside::host::ConnectOptions;
use diskside::session::{FailureKind, Plan, Reason, RunOptions, Session, SessionOptions, Where};
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

/// What this session holds is computed on here, and the decision says why; what it does not hold is an error that
/// names the peer; and when the target is back, a file that is opened again is as any other.
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
