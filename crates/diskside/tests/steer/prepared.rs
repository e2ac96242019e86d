//! Functions that run often over one range of a file.

use crate::world::{World, at, numbers, serve, session};
use diskside::session::{FailureKind, File, Prepared, RunOptions, SessionError, Side, Where};
use std::os::unix::fs::FileExt as _;

/// `args[0] + in[0] + ... `, and as many bytes of it as `args[1]` says, eight at least.
const SUM: &str = "__u64 sum = args[0];\nfor (__u64 i = 0; i < in_len / 8; i++) sum += in[i];\n\
    for (__u64 i = 0; i < 64; i++) out[i] = sum;\nreturn args[1];";

fn source(world: &World) -> diskside::session::SessionFunction {
    let path = world.dir.path().join("sum.bpf.c");
    let text = format!(
        "#include \"diskside.h\"\nDS_OUTPUT(0, 1, 512);\nSEC(\"read/sum\")\n\
         __s64 sum(__u64 *out, const __u64 *in, __u64 in_len, const __u64 *args, const struct ds_call *call)\n\
         {{\n{SUM}\n}}\n"
    );
    std::fs::write(&path, text).expect("written");
    session().function(&path).expect("it compiles")
}

fn args(add: u64, len: u64) -> Vec<u8> {
    [add, len].into_iter().flat_map(u64::to_le_bytes).collect()
}

fn first(result: &[u8]) -> u64 {
    u64::from_le_bytes(result[..8].try_into().expect("eight bytes"))
}

fn prepare(file: &File, function: &diskside::session::SessionFunction, place: Where) -> Result<Prepared, SessionError> {
    file.prepare(80..160, function, &args(0, 8), &at(place))
}

/// The sum of the numbers 10 to 19.
const WANTED: u64 = 145;

#[test]
fn a_prepared_function_gives_the_same_on_both_sides_call_after_call() {
    let world = World::new(100);
    let (session, sum) = (session(), source(&world));
    let remote = world.open(&session);
    let local = session.open(world.dir.path().join("n").to_str().expect("a path")).expect("there");
    for (file, place, side) in [
        (&remote, Where::Device, Side::Device),
        (&remote, Where::Auto, Side::Device),
        (&remote, Where::Host, Side::Host),
        (&local, Where::Auto, Side::Host),
    ] {
        let prepared = prepare(file, &sum, place).expect("it is prepared");
        assert_eq!(prepared.side(), side);
        assert_eq!(first(&prepared.call(&[]).wait().expect("it runs")), WANTED, "as it was prepared");
        for add in 0..20 {
            let result = prepared.call(&u64::to_le_bytes(add)).wait().expect("it runs");
            assert_eq!((result.len(), first(&result)), (8, WANTED + add));
        }
        // Results of another length than the last one: longer, shorter, none, as long as there is room for.
        for len in [24, 8, 0, 512, 504, 8] {
            let result = prepared.call(&args(1, len)).wait().expect("it runs");
            assert_eq!(result.len() as u64, len);
            assert!(len == 0 || first(&result) == WANTED + 1);
        }
        let calls: Vec<_> = (0..50).map(|add| prepared.call(&u64::to_le_bytes(add))).collect();
        for (add, call) in calls.into_iter().enumerate() {
            assert_eq!(first(&call.wait().expect("it runs")), WANTED + add as u64);
        }
    }
}

/// One command, and nothing else, for each call.
#[test]
fn calls_at_the_device_are_prepared_calls() {
    let world = World::new(100);
    let (session, sum) = (session(), source(&world));
    let prepared = prepare(&world.open(&session), &sum, Where::Device).expect("it is prepared");
    let compute =
        session.compute(&format!("nvme-tcp://{}", world.address()).parse().expect("a URL")).expect("functions");
    let (before, sent) = (compute.statistics().expect("statistics").0, compute.connection().stats().commands);
    for _ in 0..30 {
        prepared.call(&[]).wait().expect("it runs");
    }
    let after = compute.statistics().expect("statistics").0;
    assert_eq!(after.prepared_calls.get() - before.prepared_calls.get(), 30);
    assert_eq!(compute.connection().stats().commands - sent, 30);
}

/// The file is not a copy: each call sees it as it is.
#[test]
fn each_call_sees_the_file_as_it_is() {
    let world = World::new(100);
    let (session, sum) = (session(), source(&world));
    for place in [Where::Device, Where::Host] {
        let prepared = prepare(&world.open(&session), &sum, place).expect("it is prepared");
        let file = std::fs::OpenOptions::new().write(true).open(world.dir.path().join("n")).expect("there");
        for add in [0, 7, 1000] {
            file.write_all_at(&u64::to_le_bytes(10 + add), 80).expect("written");
            assert_eq!(first(&prepared.call(&[]).wait().expect("it runs")), WANTED + add, "{place:?}");
        }
    }
}

#[test]
fn a_target_that_comes_back_has_it_prepared_anew() {
    let world = World::new(100);
    let (session, sum) = (session(), source(&world));
    let prepared = prepare(&world.open(&session), &sum, Where::Device).expect("it is prepared");
    assert_eq!(first(&prepared.call(&[]).wait().expect("it runs")), WANTED);
    let address = world.address();
    let World { running, dir } = world;
    running.handle().stop_now();
    running.wait().expect("stopped");
    let _again = serve(dir.path(), &address);
    for add in 0..3 {
        assert_eq!(first(&prepared.call(&u64::to_le_bytes(add)).wait().expect("it runs")), WANTED + add);
    }
}

#[test]
fn what_cannot_be_prepared_or_called_is_said() {
    let world = World::new(100);
    let (session, sum) = (session(), source(&world));
    let file = world.open(&session);
    let usage = |error: SessionError, words: &str| {
        assert_eq!(error.kind(), FailureKind::Usage, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    };
    usage(file.prepare(0..801, &sum, &args(0, 8), &RunOptions::default()).expect_err("too long"), "which has 800");
    let local = session.open(world.dir.path().join("n").to_str().expect("a path")).expect("there");
    usage(prepare(&local, &sum, Where::Device).expect_err("no device"), "no target serves it");
    std::fs::write(world.dir.path().join("n"), numbers(1 << 20)).expect("written");
    let grep = session.function("grep").expect("shipped");
    let pattern =
        diskside::args::encode(grep.args().expect("described"), &[("pattern".into(), "x".into())]).expect("good");
    usage(file.prepare(.., &grep, &pattern, &at(Where::Device)).expect_err("its result"), "256 KiB");
    for place in [Where::Device, Where::Host] {
        let prepared = prepare(&file, &sum, place).expect("it is prepared");
        usage(prepared.call(&[0; 17]).wait().expect_err("too long"), "16 bytes");
        let error = prepared.call(&args(0, 513)).wait().expect_err("it returns too much");
        assert!(error.to_string().contains("513"), "{place:?}: {error}");
        assert_eq!(first(&prepared.call(&[]).wait().expect("it runs")), WANTED, "others go on");
    }
}
