//! Functions that never end are stopped, wherever they run.

use crate::world::{PATIENCE, SPIN, World, at, endless, session};
use diskside::sandbox::machine::CancelToken;
use diskside::session::{FailureKind, OpenMode, Pending, Policy, Ran, Session, SessionError, SessionOptions, Where};
use std::sync::mpsc;

/// How it ended, in time.
fn ended<T: Send + 'static>(pending: Pending<T>) -> Result<T, SessionError> {
    let (send, result) = mpsc::channel();
    std::thread::spawn(move || send.send(pending.wait()));
    result.recv_timeout(PATIENCE).expect("it ends soon after it was cancelled")
}

fn is_cancelled(ran: Result<Ran, SessionError>) {
    let error = ran.expect_err("it never ends by itself");
    assert_eq!(error.kind(), FailureKind::Cancelled, "{error}");
    assert!(error.to_string().contains("cancelled"), "{error}");
}

/// The session and the target serve others as before.
fn is_usable(world: &World, session: &Session) {
    world.until_busy(session, 0);
    let stats = session.function("stats64").expect("shipped");
    for place in [Where::Device, Where::Host] {
        world.open(session).fold_fn(&stats, &[], &at(place)).wait().expect("it runs");
    }
}

#[test]
fn a_function_at_the_device_is_over_soon_after_it_was_cancelled() {
    let world = World::new(100);
    let session = session();
    let spin = world.function(&session, "spin", SPIN);
    let file = world.open(&session);
    let pending = file.fold_fn(&spin, &[], &endless(Where::Device));
    world.until_busy(&session, 1);
    assert!(!pending.is_done());
    pending.cancel();
    pending.cancel();
    is_cancelled(ended(pending));
    is_usable(&world, &session);
}

#[test]
fn a_function_on_the_host_is_over_soon_after_it_was_cancelled() {
    let world = World::new(100);
    let session = session();
    let spin = world.function(&session, "spin", SPIN);
    let local = session.open(world.dir.path().join("n").to_str().expect("a path")).expect("it is there");
    for file in [world.open(&session), local] {
        let pending = file.fold_fn(&spin, &[], &endless(Where::Host));
        // It may or may not have begun: it ends the same way.
        std::thread::sleep(std::time::Duration::from_millis(20));
        pending.cancel();
        is_cancelled(ended(pending));
        let soon = file.fold_fn(&spin, &[], &endless(Where::Host));
        soon.cancel();
        is_cancelled(ended(soon));
    }
    is_usable(&world, &session);
}

/// lambda-IO's policy runs its first requests on both sides.
#[test]
fn a_function_on_both_sides_is_stopped_on_both() {
    let world = World::new(100);
    let session = Session::new(SessionOptions { policy: Policy::PAPER, ..SessionOptions::default() });
    let spin = world.function(&session, "spin", SPIN);
    let pending = world.open(&session).fold_fn(&spin, &[], &endless(Where::Auto));
    world.until_busy(&session, 1);
    pending.cancel();
    is_cancelled(ended(pending));
    is_usable(&world, &session);
}

#[test]
fn a_request_that_is_dropped_is_cancelled() {
    let world = World::new(100);
    let session = session();
    let spin = world.function(&session, "spin", SPIN);
    let file = world.open(&session);
    let requests: Vec<_> = (0..2).map(|_| file.fold_fn(&spin, &[], &endless(Where::Device))).collect();
    world.until_busy(&session, 2);
    drop(requests);
    is_usable(&world, &session);
}

/// The token of the options stops every request that has it; cancelling one request leaves the others alone.
#[test]
fn one_token_stops_many_and_one_request_stops_itself_alone() {
    let world = World::new(100);
    let session = session();
    let spin = world.function(&session, "spin", SPIN);
    let file = world.open(&session);
    let token = CancelToken::new();
    let mut options = endless(Where::Device);
    options.limits.cancel = Some(token.clone());
    let (one, other) = (file.fold_fn(&spin, &[], &options), file.fold_fn(&spin, &[], &options));
    world.until_busy(&session, 2);
    one.cancel();
    is_cancelled(ended(one));
    world.until_busy(&session, 1);
    assert!(!other.is_done() && !token.is_cancelled());
    token.cancel();
    is_cancelled(ended(other));
    is_cancelled(ended(file.fold_fn(&spin, &[], &options)));
    is_usable(&world, &session);
}

/// Several files at once, and a result that is written out as it comes: what a command does.
#[test]
fn a_run_over_several_files_is_stopped_by_its_token() {
    let world = World::new(100);
    let session = session();
    let spin = world.function(&session, "spin", SPIN);
    let files = [world.open(&session), world.open(&session)];
    for is_written_out in [false, true] {
        let token = CancelToken::new();
        let mut options = endless(Where::Device);
        options.limits.cancel = Some(token.clone());
        let (session, spin, files) = (&session, &spin, &files);
        let ran = std::thread::scope(|scope| {
            let run = scope.spawn(move || {
                let mut out = Vec::new();
                session.run(files, spin, &[], &options, is_written_out.then_some(&mut out))
            });
            world.until_busy(session, 2);
            token.cancel();
            run.join().expect("no panic")
        });
        is_cancelled(ran);
    }
    is_usable(&world, &session);
}

/// When a write that was cancelled has ended, the target writes no more: the file can be used for something else.
#[test]
fn a_write_that_was_cancelled_writes_no_more() {
    let world = World::new(100);
    let session = session();
    let source = world.dir.path().join("w.bpf.c");
    let text = "#include \"diskside.h\"\nDS_SPLIT_RECORDS(8);\nDS_CONCATENATE;\nDS_OUTPUT(1, 1, 0);\nSEC(\"write/w\")\n\
        __s64 w(__u64 *out, const __u64 *in, __u64 in_len, const void *args, const struct ds_call *call) {\n\
        for (__u64 i = 0; i < in_len / 8; i++) out[i] = in[i];\n\
        for (volatile __u64 i = 0; call->in_offset >= 1 << 20 && i < 1ull << 62; i++) out[0] = i;\nreturn in_len;\n}\n";
    std::fs::write(&source, text).expect("written");
    let write = session.function(&source).expect("it compiles");
    let location = world.url("out").parse().expect("a location");
    let file = session.open_as(&location, OpenMode::Create).expect("made");
    let mut options = endless(Where::Device);
    options.chunk_len = Some(64 << 10);
    let pending = file.pwrite_fn(0, vec![7; 8 << 20], &write, &[], &options);
    world.until_busy(&session, 1);
    pending.cancel();
    is_cancelled(ended(pending));
    let path = world.dir.path().join("out");
    std::fs::write(&path, "mine now").expect("written");
    is_usable(&world, &session);
    assert_eq!(std::fs::read(&path).expect("there"), b"mine now");
}

#[test]
fn cancelling_what_is_over_or_has_no_function_changes_nothing() {
    let world = World::new(100);
    let session = session();
    let file = world.open(&session);
    let stats = session.function("stats64").expect("shipped");
    let done = file.fold_fn(&stats, &[], &at(Where::Device));
    crate::world::until("it is done", || done.is_done());
    done.cancel();
    done.wait().expect("it had ended well");
    let read = file.pread(0, 800);
    read.cancel();
    assert_eq!(read.wait().expect("read")[..], crate::world::numbers(100));
}
