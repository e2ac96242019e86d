//! Named state: what a function keeps from call to call, at a target and here, as a user of a session gets it.

#[path = "steer/world.rs"]
#[expect(dead_code, reason = "each test uses its part")]
mod world;

use diskside::host::function::Compute;
use diskside::host::{ConnectOptions, Connection};
use diskside::session::{RunOptions, Session, SessionError, SessionFunction, Where};
use diskside::wire::function::StateName;
use diskside_nvme::Status;
use std::time::Duration;
use world::{NQN, World, at, serve, session};

/// Counts its runs, and the bytes that it was given.
const COUNT: &str = "__u64 *counts = DS_STATE(__u64);\ncounts[0]++;\ncounts[1] += in_len;\nout[0] = counts[0];\n\
                     out[1] = counts[1];\nreturn 16;";

fn with_state(place: Where, name: &str, len_bytes: u32) -> RunOptions {
    RunOptions { state: Some(StateName { name: name.into(), len_bytes }), ..at(place) }
}

fn counts(world: &World, session: &Session, count: &SessionFunction, options: &RunOptions) -> [u64; 2] {
    let ran = world.open(session).fold_fn(count, &[], options).wait().expect("it counts");
    let word = |at: usize| u64::from_le_bytes(ran.result[at * 8..][..8].try_into().expect("a word"));
    [word(0), word(1)]
}

#[test]
fn a_state_is_kept_from_call_to_call_and_cleared() {
    let world = World::new(8);
    let session = session();
    let count = world.function(&session, "count", COUNT);
    for place in [Where::Device, Where::Host] {
        let options = with_state(place, "counters", 64);
        for calls in 1..=3 {
            assert_eq!(counts(&world, &session, &count, &options), [calls, calls * 64], "{place:?}");
        }
        let others = with_state(place, "others", 64);
        assert_eq!(counts(&world, &session, &count, &others), [1, 64], "another name, another state");
        let larger = with_state(place, "counters", 128);
        let error = world.open(&session).fold_fn(&count, &[], &larger).wait().unwrap_err();
        assert!(error.to_string().contains("state"), "{place:?}: {error}");
    }
    // Where nobody says, it runs where its state is: with the data.
    assert_eq!(counts(&world, &session, &count, &with_state(Where::Auto, "counters", 64)), [4, 256]);

    // Other programs of this host share it, and clear it.
    let url = format!("nvme-tcp://{}/{NQN}", world.address());
    let connection = Connection::connect(&url.parse().expect("a URL"), &ConnectOptions::default()).expect("connected");
    let compute = Compute::new(&connection).expect("functions");
    compute.clear_state("counters", 0..8).expect("cleared");
    let device = with_state(Where::Device, "counters", 64);
    assert_eq!(counts(&world, &session, &count, &device), [1, 320], "its second word stays");
    compute.clear_state("counters", 0..u64::MAX).expect("cleared");
    assert_eq!(counts(&world, &session, &count, &device), [1, 64]);
    let error = compute.clear_state("nothing", 0..8).unwrap_err();
    assert!(error.is_status(Status::INVALID_FIELD), "{error}");
    assert!(error.to_string().contains("there is no state with this hash"), "{error}");
    compute.clear_cache(None).expect("dropped");
    let error = compute.clear_cache(Some(77)).unwrap_err();
    assert!(error.is_status(Status::NAMESPACE_NOT_REACHABLE), "{error}");
    assert!(error.to_string().contains("there is no volume with namespace ID 77"), "{error}");
}

/// Files of a server were run over several at once, each on its way to the same state: every run gave something else.
#[test]
fn a_state_goes_from_each_of_several_files_to_the_next() {
    let world = World::new(1 << 20);
    for (name, count) in [("b", 4096_usize), ("c", 1)] {
        std::fs::write(world.dir.path().join(name), vec![0; 8 * count]).expect("written");
    }
    // The first takes longest.
    let source = "#include \"diskside.h\"\nDS_CONCATENATE;\nSEC(\"read/seen\")\n\
        __s64 seen(__u64 *out, const __u64 *in, __u64 in_len, const void *args, const struct ds_call *call) {\n\
        __u64 *seen = DS_STATE(__u64);\n\
        for (volatile __u64 i = 0; i < in_len / 8; i++);\n\
        *seen += in_len;\n*out = *seen;\nreturn 8;\n}\n";
    let path = world.dir.path().join("seen.bpf.c");
    std::fs::write(&path, source).expect("written");
    let session = session();
    let seen = session.function(&path).expect("it compiles");
    let expected: Vec<u8> = [8 << 20, (8 << 20) + 32_768, (8 << 20) + 32_776_u64].map(u64::to_le_bytes).concat();
    for (place, is_local) in [(Where::Device, false), (Where::Host, false), (Where::Auto, false), (Where::Auto, true)] {
        let at = |name| if is_local { world.dir.path().join(name).display().to_string() } else { world.url(name) };
        let files: Vec<_> = ["n", "b", "c"].map(|name| session.open(&at(name)).expect("it is there")).into();
        let mut options = with_state(place, &format!("seen-{place:?}-{is_local}"), 64);
        options.chunk_len = Some(8 << 20);
        let ran = session.run(&files, &seen, &[], &options, None).expect("it runs");
        assert_eq!(ran.result, expected, "{place:?}, local: {is_local}");
    }
}

/// Files here and at a server had a state each, and gave something else than the same files in one place.
#[test]
fn files_of_two_places_have_no_common_state_but_on_the_host() {
    let world = World::new(8);
    let session = session();
    let count = world.function(&session, "count", COUNT);
    let here = session.open(&world.dir.path().join("n").display().to_string()).expect("it is there");
    let files = [here, world.open(&session)];
    for place in [Where::Auto, Where::Device] {
        let error = session.run(&files, &count, &[], &with_state(place, "common", 64), None).expect_err("two places");
        assert!(error.to_string().contains("a named state is kept in one place"), "{place:?}: {error}");
    }
    let ran = session.run(&files, &count, &[], &with_state(Where::Host, "common", 64), None).expect("one place");
    let words: Vec<u64> = ran.result.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().expect("8"))).collect();
    assert_eq!(words, [1, 64, 2, 128]);
}

#[test]
fn a_function_without_the_state_that_it_uses_says_where() {
    let world = World::new(8);
    let session = session();
    let count = world.function(&session, "count", COUNT);
    for place in [Where::Device, Where::Host] {
        let error: SessionError = world.open(&session).fold_fn(&count, &[], &at(place)).wait().unwrap_err();
        let told = error.to_string();
        assert!(told.contains("count.bpf.c:6") && told.contains("state"), "{place:?}: {told}");
    }
}

/// As [`COUNT`], and over more than 8 bytes it does not end.
const COUNT_OR_SPIN: &str = "__u64 *counts = DS_STATE(__u64);\ncounts[0]++;\ncounts[1] += in_len;\nout[0] = counts[0];\n\
                             for (volatile __u64 i = 0; in_len > 8 && i < 1ull << 62; i++)\n;\n\
                             out[1] = counts[1];\nreturn 16;";

/// Nobody knows how far a call had come whose server is started again: a function that keeps something is not run a second time.
#[test]
fn a_function_with_a_state_is_not_run_again_when_its_server_is_started_again_meanwhile() {
    let world = World::new(8);
    let session = session();
    let count = world.function(&session, "count", COUNT_OR_SPIN);
    let mut options = with_state(Where::Device, "counters", 64);
    options.limits.budget = Some(u64::MAX);
    // Should it run again, that ends, too.
    options.limits.deadline = Some(Duration::from_secs(30));
    let file = world.open(&session);
    let spinning = file.fold_fn(&count, &[], &options);
    world.until_busy(&session, 1);
    let address = world.address();
    let World { running, dir } = world;
    running.handle().stop_now();
    running.wait().expect("stopped");
    let world = World { running: serve(dir.path(), &address), dir };
    let error = spinning.wait().expect_err("its call is gone");
    assert_eq!(error.kind(), diskside::session::FailureKind::Environment, "{error}");
    let ran = file.pread_fn(0..8, &count, &[], &options).wait().expect("the server is back");
    assert_eq!(ran.result[..8], 1u64.to_le_bytes(), "it counted once, in the state of the new server");
    drop(world);
}
