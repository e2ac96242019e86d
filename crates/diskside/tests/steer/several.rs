//! One result of files at several targets, one of which goes wrong: it is named, and nothing passes for the result.

use crate::world::{World, at, endless, numbers, until};
use diskside::host::ConnectOptions;
use diskside::session::{
    ChunkRange, Chunks, FailureKind, File, RunOptions, Session, SessionFunction, SessionOptions, Where,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Gives a target up soon.
fn session() -> Session {
    let connect = ConnectOptions {
        reconnect_delay_min: Duration::from_millis(10),
        reconnect_delay_max: Duration::from_millis(50),
        loss_timeout: Duration::from_millis(300),
        ..ConnectOptions::default()
    };
    Session::new(SessionOptions { connect, ..SessionOptions::default() })
}

/// A function that gives the first number of its input, and a `combine` whose body is `combine`.
fn first(world: &World, session: &Session, body: &str, combine: &str) -> SessionFunction {
    let source = format!(
        "#include \"diskside.h\"\nSEC(\"read/first\")\n\
         __s64 first(__u64 *out, const __u64 *in, __u64 in_len, const void *args, const struct ds_call *call)\n\
         {{\n{body}\n*out = *in;\nreturn 8;\n}}\n\
         SEC(\"combine/first\")\n\
         __s64 first_combine(__u64 *acc, __u64 acc_len, __u64 acc_cap, const __u64 *part, __u64 part_len)\n\
         {{\n{combine}\n}}\n"
    );
    let path = world.dir.path().join("first.bpf.c");
    std::fs::write(&path, source).expect("written");
    session.function(&path).expect("it compiles")
}

/// Two targets with a file each, in one chunk; the second one's begins with `begins`.
fn two(session: &Session, begins: u64) -> ([World; 2], [File; 2]) {
    let worlds = [World::new(8), World::new(8)];
    let bytes = [&begins.to_le_bytes()[..], &numbers(7)].concat();
    std::fs::write(worlds[1].dir.path().join("n"), bytes).expect("written");
    let files = [worlds[0].open(session), worlds[1].open(session)];
    (worlds, files)
}

/// Results that are folded in order are folded here, piece by piece; the fold over the second file's fails. The place
/// is that of a fold over files of this machine.
#[test]
fn a_combine_that_is_stopped_names_the_result_that_it_was_stopped_at() {
    let session = session();
    let (worlds, files) = two(&session, 7);
    let sums = "acc[0] = acc_len ? acc[0] + part[0] : part[0];\nreturn 8;";
    let sum = first(&worlds[0], &session, "", sums);
    let ran = session.run(&files, &sum, &[], &at(Where::Device), None).expect("it runs");
    assert_eq!(ran.result, 7_u64.to_le_bytes(), "0 and 7");

    let options = at(Where::Device);
    let stray = first(&worlds[0], &session, "", "if (acc_len)\nreturn part[part_len / 8];\nacc[0] = 0;\nreturn 8;");
    let mut out = Vec::new();
    let error = session.run(&files, &stray, &[], &options, Some(&mut out)).expect_err("it reads what is not there");
    let said = error.to_string();
    assert_eq!(error.kind(), FailureKind::Trap, "{said}");
    let place =
        format!("{}, result of the piece at byte 0 (8 bytes, folded into 8): combine/first", worlds[1].url("n"));
    assert!(said.starts_with(&format!("{place} was stopped at instruction ")), "{said}");
    assert!(said.contains("first.bpf.c:13: return part[part_len / 8];"), "{said}");
    assert!(said.contains("out-of-bounds read of 8 bytes"), "{said}");
    assert_eq!(out, b"", "nothing passes for the result");
}

#[test]
fn a_target_that_is_killed_in_the_middle_is_named_and_gives_no_result() {
    let session = session();
    let (worlds, files) = two(&session, 7);
    // Only the second one's runs for ever.
    let body = "for (volatile __u64 i = 0; *in == 7 && i < 1ull << 62; i++)\n;";
    let spin = first(&worlds[0], &session, body, "acc[0] = part[0];\nreturn 8;");
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("out");
    let [one, other] = worlds;
    let address = other.address();
    std::thread::scope(|scope| {
        let failed = scope.spawn(|| session.run_into_path(&files, &spin, &[], &endless(Where::Device), &path));
        other.until_busy(&session, 1);
        until("the first one has ended", || one.engines_busy(&session) == 0);
        other.running.handle().stop_now();
        let error = failed.join().expect("no panic").expect_err("one of them is gone");
        let said = error.to_string();
        assert_eq!(error.kind(), FailureKind::Environment, "{said}");
        assert!(said.contains(&address) && !said.contains(&one.address()), "{said}");
    });
    other.running.wait().expect("stopped");
    let left = std::fs::read_dir(dir.path()).expect("it is there").count();
    assert_eq!(left, 0, "neither a result nor a part of one");

    // Runs that do not need it continue.
    let stats = session.function("stats64").expect("shipped");
    session.run(&files[..1], &stats, &[], &RunOptions::default(), None).expect("it is there");
}

/// Once the others went on for as long as they took, and their results were thrown away.
#[test]
fn what_is_behind_a_file_that_fails_is_stopped() {
    let session = session();
    let (worlds, files) = two(&session, 7);
    let body = "if (*in != 7)\nreturn -DS_EBADMSG;\nfor (volatile __u64 i = 0; i < 1ull << 62; i++)\n;";
    let spin = first(&worlds[0], &session, body, "acc[0] = part[0];\nreturn 8;");
    let began = Instant::now();
    let error = session.run(&files, &spin, &[], &endless(Where::Device), None).expect_err("the first one fails");
    let said = error.to_string();
    assert!(said.starts_with(&worlds[0].url("n")) && said.contains("Bad message"), "{said}");
    assert!(began.elapsed() < crate::world::PATIENCE, "{:?}", began.elapsed());
    until("nothing runs any more", || worlds[1].engines_busy(&session) == 0);
}

/// The error of two files that fail was that of the one that failed sooner; over files of this machine it was always
/// the first.
#[test]
fn of_several_files_that_fail_the_first_one_is_told() {
    let session = session();
    let (worlds, files) = two(&session, 7);
    let body =
        "if (*in == 7)\nreturn -DS_EBADMSG;\nfor (volatile __u64 i = 0; i < 1ull << 24; i++)\n;\nreturn -DS_EINVAL;";
    let fails = first(&worlds[0], &session, body, "acc[0] = part[0];\nreturn 8;");
    for place in [Where::Device, Where::Host] {
        let error = session.run(&files, &fails, &[], &endless(place), None).expect_err("both fail");
        let said = error.to_string();
        assert!(said.starts_with(&worlds[0].url("n")) && said.contains("Invalid argument"), "{place:?}: {said}");
    }
}

#[test]
fn a_file_that_is_not_there_is_named_with_its_target() {
    let session = session();
    let world = World::new(8);
    let url = world.url("missing");
    let error = session.open(&url).expect_err("it is not there");
    assert_eq!(error.to_string(), format!("{url}: lookup data/missing: No such file or directory (os error 2)"));
    assert_eq!(error.kind(), FailureKind::Environment);
}

/// Only runs over files took chunks for what they are: everything else gave the function the encoded bytes, and said nothing.
#[test]
fn what_is_no_run_over_files_refuses_chunks() {
    let world = World::new(100);
    let session = session();
    let file = world.open(&session);
    let function = session.function("stats64").expect("it is shipped");
    let chunks = Chunks { codecs: Vec::new(), len_bytes: 800, ranges: Vec::new() };
    for place in [Where::Auto, Where::Host, Where::Device] {
        let options = RunOptions { chunks: Some(Arc::new(chunks.clone())), ..at(place) };
        let ran = session.run(std::slice::from_ref(&file), &function, &[], &options, None).expect("it is a chunk");
        assert_eq!(ran.result[..8], 100_u64.to_le_bytes());
        let local = session.open(world.dir.path().join("n").to_str().expect("a path")).expect("there");
        let out = world.url("out").parse().expect("a URL");
        for (what, refused) in [
            ("pread_fn", file.pread_fn(0..80, &function, &[], &options).wait().map(drop)),
            ("fold_fn", file.fold_fn(&function, &[], &options).wait().map(drop)),
            ("pwrite_fn", file.pwrite_fn(0, vec![1; 80], &function, &[], &options).wait().map(drop)),
            ("prepare", file.prepare(0..80, &function, &[], &options).map(drop)),
            ("run_into", session.run_into(std::slice::from_ref(&local), &function, &[], &options, &out).map(drop)),
            (
                "run_into_path",
                session.run_into_path(&[local], &function, &[], &options, &world.dir.path().join("o")).map(drop),
            ),
        ] {
            let error = refused.expect_err(what);
            assert!(
                error.kind() == FailureKind::Usage && error.to_string().contains("chunks of an array"),
                "{what}: {error}"
            );
        }
        assert!(!world.dir.path().join("o").exists() && !world.dir.path().join("out").exists());
        let into = session
            .run_into(std::slice::from_ref(&file), &function, &[], &options, &out)
            .expect("it is a run over files");
        assert_eq!(into.written_bytes, 32);
        std::fs::remove_file(world.dir.path().join("out")).expect("it was made");
    }
}

/// Chunks of a shard belong together: of a file that was replaced, none is taken by the index of the one before.
#[test]
fn chunks_of_another_version_are_not_taken() {
    let world = World::new(100);
    let session = session();
    let path = world.dir.path().join("n");
    let function = session.function("stats64").expect("it is shipped");
    let stat =
        || session.files(&world.url("n").parse().expect("a URL")).expect("connected").stat(b"data/n").expect("there");
    let before = stat().version;
    let range = |at: u64, version| ChunkRange { bytes: at * 80..(at + 1) * 80, version };
    // More than are looked up at a time.
    let run = |version, place| {
        let files: Vec<_> = (0..200).map(|_| world.open(&session)).collect();
        let ranges = (0..200).map(|at| range(at % 10, version)).collect();
        let chunks = Chunks { codecs: Vec::new(), len_bytes: 80, ranges };
        let options = RunOptions { chunks: Some(Arc::new(chunks)), ..at(place) };
        session.run(&files, &function, &[], &options, None)
    };
    for place in [Where::Host, Where::Device] {
        for version in [None, Some(before)] {
            assert_eq!(run(version, place).expect("one version").result[..8], 2000_u64.to_le_bytes());
        }
    }
    std::fs::write(world.dir.path().join("other"), vec![7; 800]).expect("written");
    std::fs::rename(world.dir.path().join("other"), &path).expect("replaced");
    for place in [Where::Host, Where::Device, Where::Auto] {
        let error = run(Some(before), place).expect_err("the file is another one");
        assert_eq!(error.kind(), FailureKind::Changed, "{error}");
        assert!(error.to_string().contains("another version than its other chunks are of"), "{error}");
        assert_eq!(run(Some(stat().version), place).expect("one version").result[..8], 2000_u64.to_le_bytes());
    }
}
