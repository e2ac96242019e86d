//! One answer, wherever a function runs: by commands and real servers. The cases are those of the oracle.

mod common;

use common::{Server, diskside};
use diskside_oracle::case::{self, Case, Origin, Said};
use diskside_oracle::{Oracle, draw};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Generated cases.
const CASES: u64 = 20;

fn cases() -> Vec<Case> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../oracle/cases");
    let read = |name: &str| {
        let mut paths: Vec<_> =
            std::fs::read_dir(directory.join(name)).expect("cases").map(|entry| entry.expect("one").path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "case"));
        paths.sort();
        paths.iter().flat_map(|path| case::read(path).expect("cases")).collect::<Vec<_>>()
    };
    // Each shipped function once, and those of several files.
    let mut cases: Vec<Case> = Vec::new();
    for case in read("shipped").into_iter().filter(|case| case.inputs[0].len >= 1000) {
        if !cases.iter().any(|known| known.origin == case.origin && known.inputs.len() == case.inputs.len()) {
            cases.push(case);
        }
    }
    cases.extend(read("bad"));
    cases.extend((0..CASES).map(|number| draw::case(4, number)));
    cases
}

/// The end of a command: its exit code, its output, and its messages, without the names of files.
type Ended = (i32, Vec<u8>, String);

#[test]
fn a_command_gives_the_same_everywhere() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let oracle = Oracle::new(dir.path());
    let servers = [(); 2].map(|()| Server::of(oracle.world().dir(), "", &[]));
    let (cases, next) = (cases(), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    check(&oracle, &servers, case);
                }
            });
        }
    });
}

fn check(oracle: &Oracle, servers: &[Server; 2], case: &Case) {
    let what = what(oracle, case);
    let here: Vec<String> = case.inputs.iter().map(|input| oracle.world().path(input).display().to_string()).collect();
    let name = |path: &String| path.rsplit('/').next().expect("a name").to_owned();
    let there: Vec<String> =
        here.iter().enumerate().map(|(at, path)| servers[at % servers.len()].at(&name(path))).collect();
    let run = |files: &[String], more: &[&str]| -> Ended {
        let given = options(case);
        let mut args = vec!["run", &what];
        args.extend(files.iter().map(String::as_str));
        args.extend(given.iter().map(String::as_str));
        args.extend(["--stateless"]);
        args.extend(more);
        let (code, out, said) = diskside(&args);
        (code, out, without_names(&said, &here, &there))
    };
    let wanted = run(&here, &[]);
    for more in [&["--where", "host"][..], &["--where", "device"], &["--where", "auto"], &["--threads", "2"]] {
        let found = run(&there, more);
        assert_eq!((found.0, &found.2), (wanted.0, &wanted.2), "{more:?} of\n{case}");
        assert_prints(&found, &wanted, &format!("{more:?} of\n{case}"));
    }
    let threads = run(&here, &["--threads", "3", "--tier", "cranelift"]);
    assert_eq!((threads.0, &threads.2), (wanted.0, &wanted.2), "several threads of\n{case}");
    assert_prints(&threads, &wanted, &format!("several threads of\n{case}"));
}

/// The same; of what fails, what came before, as far as it was on its way.
fn assert_prints(found: &Ended, wanted: &Ended, what: &str) {
    let (short, long) = if found.1.len() < wanted.1.len() { (found, wanted) } else { (wanted, found) };
    let is_same = if wanted.0 == 0 { found.1 == wanted.1 } else { long.1.starts_with(&short.1) };
    let [printed, expected] = [found, wanted].map(|ended| String::from_utf8_lossy(&ended.1));
    assert!(is_same, "printed `{printed}` instead of `{expected}`: {what}");
}

/// The function as the command names it.
fn what(oracle: &Oracle, case: &Case) -> String {
    static OBJECTS: AtomicUsize = AtomicUsize::new(0);
    let name = match &case.origin {
        Origin::Shipped(name) => return name.clone(),
        Origin::Source(_, name) | Origin::Generated(_, name) => name,
    };
    let loaded = oracle.load(case).unwrap_or_else(|why| panic!("{case}{why}"));
    let object = oracle.world().dir().join(format!("f{}.o", OBJECTS.fetch_add(1, Ordering::Relaxed)));
    std::fs::write(&object, loaded.function.object()).expect("written");
    format!("{}:{name}", object.display())
}

fn options(case: &Case) -> Vec<String> {
    let mut options: Vec<String> =
        case.args.iter().flat_map(|(n, v)| ["--arg".to_owned(), format!("{n}={v}")]).collect();
    let mut give = |name: &str, value: Option<String>| {
        options.extend(value.map(|value| [name.to_owned(), value]).into_iter().flatten());
    };
    give("--chunk", case.chunk_len.map(|len| len.to_string()));
    give("--offset", case.range.as_ref().map(|range| range.start.to_string()));
    give("--length", case.range.as_ref().map(|range| (range.end - range.start).to_string()));
    give("--budget", case.budget.map(|budget| budget.to_string()));
    give("--state", case.state_len.map(|len| format!("state={len}")));
    give(
        "--split",
        case.split.map(|split| match split {
            Said::Lines => "lines".to_owned(),
            Said::Records(len) => format!("records:{len}"),
        }),
    );
    options.extend((!case.folds).then(|| "--no-combine".to_owned()));
    options
}

/// Full names first: a target calls `data/FILE` what a URL ends with.
fn without_names(said: &str, here: &[String], there: &[String]) -> String {
    let full = here.iter().chain(there);
    let said = full.fold(said.to_owned(), |said, name| said.replace(name, "FILE"));
    let short = here.iter().map(|path| format!("data/{}", path.rsplit('/').next().expect("a name")));
    short.fold(said, |said, name| said.replace(&name, "FILE")).replace("FILE: FILE", "FILE")
}
