//! The command, as users run it.

use std::path::Path;
use std::process::{Command, Output, Stdio};

fn run(args: &[&str], store: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_diskside-kv"));
    command.arg(args[0]).arg(store).args(&args[1..]).stdin(Stdio::null());
    command.output().expect("it runs")
}

fn ok(args: &[&str], store: &Path) -> String {
    let output = run(args, store);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn fails(args: &[&str], store: &Path, code: i32, says: &str) {
    let output = run(args, store);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
    assert!(stderr.contains(says), "{args:?}: {stderr}");
}

/// It said that a device was full, which nobody had named.
#[test]
fn closed_standard_output_is_told_as_such() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = dir.path().join("store");
    ok(&["create", "--levels", "2"], &store);
    let line = format!("{} get store 7 >&-", env!("CARGO_BIN_EXE_diskside-kv"));
    let output = Command::new("sh").args(["-c", &line]).current_dir(dir.path()).output().expect("a shell");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let told = "diskside-kv: standard output is closed: to discard it, send it to /dev/null\n";
    assert_eq!((output.status.code(), &said[..]), (Some(4), told));
}

#[test]
fn a_store_is_made_read_changed_and_checked() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = dir.path().join("store");
    assert_eq!(ok(&["create", "--levels", "2"], &store), "2 levels, 78336 bytes\n");
    for mode in ["plain", "async", "pushdown"] {
        let mode = ["--mode", mode];
        assert_eq!(ok(&["get", "500", mode[0], mode[1], "--cache", "1"], &store), "500\n");
        assert_eq!(ok(&["multi-get", "7", "960", mode[0], mode[1]], &store), "7\t7\n960\t960\n");
        assert_eq!(ok(&["range", "10", "12", mode[0], mode[1]], &store), "10\t10\n11\t11\n12\t12\n");
        assert_eq!(ok(&["range", "10", "12", "--limit", "1", mode[0], mode[1]], &store), "10\t10\n");
        assert_eq!(ok(&["sum", "1", "100", mode[0], mode[1]], &store), "100 keys, sum 5050\n");
    }
    ok(&["put", "500", "five hundred"], &store);
    assert_eq!(ok(&["get", "500"], &store), "five hundred\n");
    assert_eq!(
        ok(&["get", "500", "--json"], &store),
        "{\"pairs\":[{\"key\":500,\"value\":\"five hundred\"}],\"schema\":1}\n"
    );
    assert_eq!(ok(&["check"], &store), "sound: 2 levels, 32 nodes, 961 keys\n");
    fails(&["get", "961"], &store, 1, "961 is not there");
    fails(&["put", "961", "x"], &store, 1, "961 is not there");
    fails(&["put", "1", &"x".repeat(65)], &store, 2, "a value has at most 64 bytes, this one has 65");
}

/// `create` emptied whatever file it was given, before it looked at anything else.
#[test]
fn nothing_that_is_there_is_overwritten_unasked() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = dir.path().join("letters");
    std::fs::write(&store, "dear reader").expect("written");
    let create = ["create", "--levels", "1"];
    let told = format!(
        "diskside-kv: {} holds a file of 11 bytes, which the new store would overwrite; --force does",
        store.display()
    );
    fails(&create, &store, 2, &told);
    assert_eq!(std::fs::read(&store).expect("it is there"), b"dear reader");
    // What cannot be made does not empty it either.
    fails(&["create", "--levels", "40", "--force"], &store, 2, "more than 2^64 bytes");
    assert_eq!(std::fs::read(&store).expect("it is there"), b"dear reader");
    assert_eq!(ok(&["create", "--levels", "1", "--force"], &store), "1 levels, 2560 bytes\n");
    std::fs::write(dir.path().join("empty"), "").expect("written");
    ok(&create, &dir.path().join("empty"));
    fails(&create, dir.path(), 4, "Is a directory (os error 21): name a file in it");
    fails(&create, &dir.path().join("none/x"), 4, "make it first");
    assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 2);
}

#[test]
fn what_is_dumped_makes_the_same_store_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    ok(&["create", "--keys", "2000", "--fill", "5"], &first);
    let dump = ok(&["dump"], &first);
    assert_eq!(dump.lines().count(), 2000);
    let pairs = dir.path().join("pairs");
    std::fs::write(&pairs, &dump).expect("written");
    let pairs = pairs.to_str().expect("a path");
    ok(&["create", "--from", pairs, "--fill", "5"], &second);
    assert_eq!(ok(&["dump", "--mode", "plain"], &second), dump);
    std::fs::write(pairs, "1\ta\n2 b\n").expect("written");
    fails(&["create", "--from", pairs], &second, 2, "line 2: no tab between key and value");
    std::fs::write(pairs, "2\ta\n1\tb\n").expect("written");
    fails(&["create", "--from", pairs], &second, 2, "keys must ascend");
}

#[test]
fn older_stores_open_and_others_do_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = dir.path().join("store");
    ok(&["create", "--levels", "2", "--older"], &store);
    assert_eq!(ok(&["check"], &store), "sound: 2 levels, 32 nodes, 961 keys, older format\n");
    assert_eq!(ok(&["sum", "950", "2000"], &store), "11 keys, sum 10505\n");
    std::fs::write(&store, vec![b' '; 4096]).expect("written");
    let told = format!("diskside-kv: {}: not a sound store: bytes that are no node at offset 0", store.display());
    fails(&["get", "1"], &store, 1, &told);
    let told = "diskside-kv: nvme-tcp://127.0.0.1:1: the URL names no namespace";
    fails(&["get", "1"], Path::new("nvme-tcp://127.0.0.1:1"), 2, told);
    fails(&["get", "1"], Path::new("diskside://127.0.0.1:1/data/store"), 2, "does not start with nvme-tcp://");
    fails(&["get", "1"], &dir.path().join("none"), 4, "No such file");
    fails(&["get", "1", "--sampling", "200"], &store, 2, "a percentage from 0 to 100");
}

/// Every workload does what its name says; how fast is not looked at.
#[test]
fn workloads_run() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = dir.path().join("store");
    ok(&["create", "--levels", "2"], &store);
    for (workload, operations) in [
        ("a", "read update"),
        ("b", "read update"),
        ("c", "read"),
        ("d", "read insert"),
        ("e", "insert scan"),
        ("f", "read read_modify_write"),
        ("uniform", "read"),
    ] {
        let args =
            ["ycsb", "--workload", workload, "--operations", "500", "--clients", "4", "--json", "--seconds", "60"];
        let document: serde_json::Value = serde_json::from_str(&ok(&args, &store)).expect("JSON");
        let latencies = document["latencies"].as_array().expect("a list");
        let names: Vec<&str> = latencies.iter().map(|l| l["operation"].as_str().expect("a name")).collect();
        assert_eq!(names.join(" "), operations, "{workload}");
        assert_eq!(document["operations"], 500);
        for latency in latencies {
            let at = |name: &str| latency[name].as_f64().expect("a number");
            assert!(0.1 < at("p50_us") && at("p50_us") <= at("p99_us") && at("p99_us") <= at("max_us"), "{latency}");
        }
        assert_eq!(document["missing"], 0);
    }
    assert_eq!(ok(&["check"], &store), "sound: 2 levels, 32 nodes, 961 keys\n");
    let open_loop = ["ycsb", "--operations", "50", "--rate", "1000", "--mode", "async", "--json", "--seconds", "60"];
    let document: serde_json::Value = serde_json::from_str(&ok(&open_loop, &store)).expect("JSON");
    let rate = document["operations_per_s"].as_f64().expect("a number");
    assert!(rate < 1100.0, "operations start by the clock: {rate}");
    fails(&["ycsb", "--rate", "0"], &store, 2, "--seconds and --rate are positive numbers");
}

/// Help that could not be written was lost, with exit code 0; a message that could not be written was a panic.
#[test]
fn streams_that_cannot_be_written_are_no_panic() {
    let full = || Stdio::from(std::fs::File::options().write(true).open("/dev/full").expect("every Linux has it"));
    let dir = tempfile::tempdir().expect("a directory");
    let store = dir.path().join("store");
    ok(&["create", "--levels", "2"], &store);
    let path = store.to_str().expect("text");
    for args in [&["--help"][..], &["get", path, "500"], &["check", path]] {
        let run = |stdout| Command::new(env!("CARGO_BIN_EXE_diskside-kv")).args(args).stdout(stdout).output();
        let output = run(full()).expect("it runs");
        assert_eq!(output.status.code(), Some(4), "{args:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(said, "diskside-kv: writing the output: No space left on device (os error 28)\n", "{args:?}");
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = run(writer.into()).expect("it runs");
        assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()), "{args:?}");
    }
    for (args, code) in [(&["get", path, "5000000"][..], 1), (&["get", path], 2), (&["get", "/no/such", "1"], 4)] {
        let ended = Command::new(env!("CARGO_BIN_EXE_diskside-kv")).args(args).stderr(full()).status();
        assert_eq!(ended.expect("it runs").code(), Some(code), "{args:?}");
    }
}
