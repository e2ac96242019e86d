//! One answer, wherever a function runs: from C as from Rust. The cases are those of the oracle.

mod build;

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use build::{compile, libraries, root};
use diskside_oracle::case::{self, Case, Origin};
use diskside_oracle::ending::Ending;
use diskside_oracle::{Oracle, draw};

/// Generated cases.
const CASES: u64 = 60;
/// What C gives room for.
const RESULT_LEN_MAX: usize = 1 << 20;
/// Place, tier and threads of each run, by the numbers of the header: on the host, at the device, where it is faster.
const WAYS: [(i32, i32, u32); 5] = [(1, 0, 1), (2, 0, 1), (2, 1, 2), (0, 0, 1), (1, 2, 3)];

fn cases() -> Vec<Case> {
    let shipped = root().join("../oracle/cases/shipped");
    let mut paths: Vec<_> =
        std::fs::read_dir(shipped).expect("cases").map(|entry| entry.expect("one").path()).collect();
    paths.sort();
    let shipped = paths.iter().flat_map(|path| case::read(path).expect("cases"));
    // Each function with its arguments, once.
    let mut cases: Vec<Case> = Vec::new();
    for case in shipped.filter(|case| (1000..10_000).contains(&case.inputs[0].len)) {
        if !cases.iter().any(|known| (&known.origin, &known.args) == (&case.origin, &case.args)) {
            cases.push(case);
        }
    }
    cases.extend((0..CASES).map(|number| draw::case(3, number)));
    // Of one file, and what a case can say that a line cannot is said elsewhere.
    cases.retain(|case| case.inputs.len() == 1 && case.state_len.is_none() && case.split.is_none());
    cases
}

#[test]
fn a_function_gives_the_same_from_c() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let oracle = Oracle::new(dir.path());
    let address = oracle.world().targets()[0].handle().local_addresses()[0];
    let (mut lines, mut wanted) = (String::new(), Vec::new());
    for (number, case) in cases().iter().enumerate() {
        let loaded = oracle.load(case).unwrap_or_else(|why| panic!("{case}{why}"));
        let what = match &case.origin {
            Origin::Shipped(name) => name.clone(),
            Origin::Source(_, name) | Origin::Generated(_, name) => {
                let object = dir.path().join(format!("f{number}.o"));
                std::fs::write(&object, loaded.function.object()).expect("written");
                format!("{}:{name}", object.display())
            }
        };
        // Who writes C reads the first line of a table.
        let Ok(args) = oracle.args(case, &loaded) else { continue };
        let args: String = args.iter().map(|byte| format!("{byte:02x}")).collect();
        let args = if args.is_empty() { "-".to_owned() } else { args };
        let ending = oracle.first(case, &loaded);
        if matches!(&ending, Ending::Gave(gave) if gave.bytes.len() > RESULT_LEN_MAX) {
            continue;
        }
        let path = oracle.world().path(&case.inputs[0]);
        let name = path.file_name().expect("a name").to_string_lossy();
        let (from, len) =
            case.range.as_ref().map_or((0, -1), |range| (range.start, (range.end - range.start).cast_signed()));
        let (chunk, flags, budget) =
            (case.chunk_len.unwrap_or(0), if case.folds { 0 } else { 4 }, case.budget.unwrap_or(0));
        let local = path.display().to_string();
        let remote = format!("diskside://{address}/data/{name}");
        for (file, (place, tier, threads)) in [(&local, (0, 0, 1))].into_iter().chain(WAYS.map(|way| (&remote, way))) {
            let how = format!("{place} {tier} {threads} {chunk} {flags} {budget} {from} {len} {args}");
            writeln!(lines, "{what} {file} {how}").expect("a string");
            wanted.push((format!("{case}place {place}, tier {tier}, {threads} threads, {file}"), ending.clone()));
        }
    }
    let program = compile(dir.path(), &root().join("tests/oracle.c"));
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", libraries()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let mut stdin = child.stdin.take().expect("piped");
    let feed = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = child.wait_with_output().expect("it ends");
    feed.join().expect("no panic").expect("it reads all");
    assert!(output.status.success(), "{}", output.status);
    let said = String::from_utf8(output.stdout).expect("text");
    assert_eq!(said.lines().count(), wanted.len(), "a line for each run");
    for (said, (what, ending)) in said.lines().zip(&wanted) {
        let (line, said) = (in_words(ending), without_text(said));
        assert_eq!(said, line, "{what}");
    }
}

/// As the program prints it, without the words.
fn in_words(ending: &Ending) -> String {
    match ending {
        Ending::Gave(gave) => {
            format!("gave {}", gave.bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
        }
        Ending::Failed(failed) => {
            let (insn, kind) = failed.trap.unwrap_or_default();
            let (_, from, to) = failed.place.unwrap_or_default();
            format!("failed {} {kind} {insn} {from} {to}", failed.kind as i32)
        }
    }
}

fn without_text(said: &str) -> String {
    if said.starts_with("gave") {
        return said.to_owned();
    }
    let words: Vec<&str> = said.split(' ').collect();
    let [_, _, kind, trap, insn, from, to, ..] = words[..] else { return said.to_owned() };
    let trap = if trap == "-1" { "0" } else { trap };
    format!("failed {kind} {trap} {insn} {from} {to}")
}
