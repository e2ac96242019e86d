//! Every kind of program runs, or says how it is run; and what goes with that: helpers, named states.

mod common;

use std::path::Path;

use common::diskside;
use diskside::session::{RunOptions, Session, SessionOptions, Where};
use diskside::target::config::ExportSpec;
use diskside::target::{Running, Target};
use diskside::wire::function::StateName;

const HOST: &str = "nqn.2026-11.org.example:kinds-host";

/// A target of a directory, as `data`, and sources beside it.
struct World {
    running: Running,
    dir: tempfile::TempDir,
    sources: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let [dir, sources] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let target = Target::builder().nqn("nqn.2026-11.org.example:kinds");
        let target = target.listen(["127.0.0.1:0".parse().expect("an address")]);
        let target = target.volume("disk=mem:1MiB,rw".parse().expect("a volume"));
        let running = target.export(ExportSpec::new("data", dir.path()).writable()).build().and_then(Target::start);
        Self { running: running.expect("it serves"), dir, sources }
    }

    fn target(&self) -> String {
        format!("diskside://{}", self.running.handle().local_addresses()[0])
    }

    fn file(&self, name: &str, bytes: &[u8]) -> String {
        std::fs::write(self.dir.path().join(name), bytes).expect("written");
        self.dir.path().join(name).display().to_string()
    }

    fn source(&self, name: &str, text: &str) -> String {
        let path = self.sources.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    }
}

fn good(args: &[&str]) -> (Vec<u8>, String) {
    let (code, out, said) = diskside(args);
    assert_eq!(code, 0, "{args:?}: {said}");
    (out, said)
}

/// A selection as for Delilah, which names no kind of its own.
fn select() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/tests/compute/select.bpf.c");
    path.display().to_string()
}

/// Data slots with a column of 1,000 rows, of which those above the bound are wanted: as they are, and as they are left.
fn slots(bound: u64) -> (Vec<u8>, Vec<u8>, usize) {
    let column: Vec<u32> = (0..1000).map(|row| row * 7919 % 1000).collect();
    let matches: Vec<u32> = (0..1000).filter(|row| u64::from(column[*row as usize]) > bound).collect();
    let slot = |found: usize, column: &[u32]| {
        let head: Vec<u8> = [1000, bound, found as u64, 0].into_iter().flat_map(u64::to_le_bytes).collect();
        [head, column.iter().flat_map(|value| value.to_le_bytes()).collect()].concat()
    };
    let mut left = column.clone();
    left[..matches.len()].copy_from_slice(&matches);
    (slot(0, &column), slot(matches.len(), &left), matches.len())
}

#[test]
fn a_program_of_delilah_runs_over_files_here_and_at_a_target() {
    let world = World::new();
    let (slot, left, matches) = slots(900);
    let (here, there, select) = (world.file("slot", &slot), format!("{}/data/slot", world.target()), select());
    let mut tiers = vec!["interp", "cranelift"];
    tiers.extend(cfg!(feature = "llvm-tests").then_some("llvm"));
    for (file, place) in [(&here, "auto"), (&there, "host"), (&there, "device")] {
        for &tier in tiers.iter().filter(|tier| **tier != "llvm" || place != "device") {
            let (out, said) = good(&["run", &select, file, "--where", place, "--tier", tier]);
            assert!(out == left, "{place}, {tier}: what it left in its slot");
            assert!(said.contains(&format!("select_rows returned {matches}\n")), "{place}, {tier}: {said}");
        }
        let (out, _) = good(&["run", &select, file, "--where", place, "--json"]);
        let told: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
        assert_eq!((&told["kind"], &told["returned"]), (&"delilah".into(), &matches.into()), "{place}");
        // The shared state: what it found in both.
        let twice = ["run", &select, file, file, "--where", place, "--state", "found=64", "--threads", "1"];
        let (out, said) = good(&twice);
        assert!(out == [&left[..], &left[..]].concat());
        let returned = [matches, 2 * matches].map(|found| said.contains(&format!("returned {found}\n")));
        assert_ne!(returned, [false, false], "{place}: {said}");
        // The file itself stays as it was.
        assert!(std::fs::read(&here).expect("read") == slot);
    }
    let made = format!("{}/data/made", world.target());
    for file in [&here, &there] {
        good(&["run", &select, file, "--out", &made]);
        assert!(std::fs::read(world.dir.path().join("made")).expect("made") == left);
    }
    // It refuses by its return value, which is not a failure here; a forbidden access is one.
    world.file("short", &slot[..31]);
    let (_, said) = good(&["run", &select, &format!("{}/data/short", world.target()), "--where", "device"]);
    assert!(said.contains(&format!("returned {}", u64::MAX)), "{said}");
    let beyond = select.replace("select.bpf.c", "beyond.bpf.c");
    world.file("beyond", &[&1_u64.to_le_bytes()[..], &[0; 24]].concat());
    for (file, place) in
        [(&format!("{}/data/beyond", world.target()), "device"), (&world.file("b", &[1, 0, 0, 0, 0, 0, 0, 0]), "auto")]
    {
        let (code, _, said) = diskside(&["run", &beyond, file, "--where", place]);
        assert!(code == 1 && said.contains("out-of-bounds write of 1 bytes of range 0 at offset"), "{code}: {said}");
    }
}

/// The page's own program.
#[test]
fn the_page_shows_what_works() {
    let world = World::new();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/functions.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let (_, section) = page.split_once("## Programs of Delilah").expect("it has a section on them");
    let shown = section.split("```c\n").nth(1).and_then(|rest| rest.split("```").next()).expect("it shows a program");
    let (slot, left, matches) = slots(500);
    let (source, file) = (world.source("select.bpf.c", shown), world.file("slot", &slot));
    let (out, said) = good(&["run", &source, &file, &file, "--state", "found=8"]);
    assert!(out == [&left[..], &left[..]].concat());
    assert!(said.contains(&format!("select_rows returned {}\n", 2 * matches)), "{said}");
    // A slot that says that it has more rows than it has is not written beyond.
    let more = world.file("more", &[&2000_u64.to_le_bytes()[..], &slot[8..]].concat());
    let (code, _, said) = diskside(&["run", &source, &more]);
    assert!(code == 1 && said.contains("out-of-bounds read of 4 bytes of range 0 at offset 4032"), "{code}: {said}");
}

/// The first program of the page on standard computing, before it is loaded anywhere.
#[test]
fn a_program_is_executed_over_memory_ranges_of_this_machine() {
    let world = World::new();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/standard.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let shown = page.split("```c\n").nth(1).and_then(|rest| rest.split("```").next()).expect("it shows a program");
    let words = world.source("words.bpf.c", shown);
    let numbers: Vec<u8> = (1..=10_u64).flat_map(u64::to_le_bytes).collect();
    let (file, sum) = (world.file("numbers", &numbers), world.sources.path().join("sum").display().to_string());
    let out = format!("2={sum}");
    for tier in ["interp", "cranelift"] {
        let (said, _) = good(&["execute", &words, &file, "=8", "--cparam1", "0x5", "--tier", tier, "--out", &out]);
        assert_eq!(String::from_utf8_lossy(&said), "returned 10\n");
        assert_eq!(std::fs::read(&sum).expect("made"), 60_u64.to_le_bytes());
    }
    let (said, _) = good(&["execute", &words, &file, "=8", "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&said).expect("JSON");
    assert_eq!((&told["kind"], &told["returned"]), (&"exec".into(), &10.into()));
    // A file whose length is not a multiple of 8 is rounded up to one, with zeroes.
    let odd = world.file("odd", &[&numbers[..], &[1]].concat());
    assert_eq!(good(&["execute", &words, &odd, "=8"]).0, b"returned 11\n");

    // A data slot with its shared one, and a function over bytes.
    let (slot, left, matches) = slots(900);
    let (slot, kept) = (world.file("slot", &slot), world.sources.path().join("slot").display().to_string());
    let (said, _) =
        good(&["execute", &select(), &slot, "--cparam1", "1", "--cparam2", "16", "--out", &format!("1={kept}")]);
    assert_eq!(String::from_utf8_lossy(&said), format!("returned {matches}\n"));
    assert!(std::fs::read(&kept).expect("made") == left);
    let text = world.file("text", b"one two\nthree\n==");
    assert_eq!(good(&["execute", "wc", &text, "=24", "--out", &out]).0, b"returned 24\n");

    let wrong = |args: &[&str], code: i32, told: &str| {
        let (ended, _, said) = diskside(&[&["execute"], args].concat());
        assert!(ended == code && said.contains(told), "{args:?}: {ended}: {said}");
    };
    wrong(&[&words, &file], 1, "exec/words returned -22");
    wrong(&[&words, &file, "=9"], 2, "a range has a multiple of 8 bytes");
    wrong(&[&words, &file, "=8", "--out", "3=x"], 2, "there are 2 ranges, from 1 on");
    wrong(&[&words, &file, "=8", "--cparam1", "five"], 2, "`five` is no number of 64 bits");
    wrong(&[&words, "missing", "=8"], 4, "cannot read missing");
    wrong(&[&select(), &slot, "=8"], 2, "was given 2 memory ranges: it takes one, and no data");
    wrong(&[&select(), &slot, "--cparam2", "16777217"], 2, "a state has at most 16 MiB");
    wrong(&["kv_get", &file], 2, "its kind is not run by an execution");
    let trap = "#include \"diskside.h\"\nSEC(\"exec/f\")\n__s64 f(struct ds_exec *x) { return *((__u64 *)x->range[1].addr + 10); }\n";
    wrong(&[&world.source("trap.bpf.c", trap), &file], 1, "out-of-bounds read of 8 bytes of range 1 at offset 80");
}

/// A program that `run` does not run was refused with a list of kinds that it does, and no word on what else to do.
#[test]
fn a_program_of_another_kind_is_told_how_it_is_run() {
    let world = World::new();
    let file = world.file("in", &[0; 64]);
    let cases = [
        ("exec", "struct ds_exec *x", "`diskside execute` here"),
        ("traverse", "struct ds_traverse *t", "Session::traverse in Rust and ds_traverse in C"),
        ("kernel", "struct ds_kernel *k", "`diskside launch` runs it"),
    ];
    for (kind, parameter, told) in cases {
        let text = format!("#include \"diskside.h\"\nSEC(\"{kind}/f\")\n__s64 f({parameter}) {{ return 1; }}\n");
        let source = world.source(&format!("{kind}.bpf.c"), &text);
        for input in [&file, &format!("{}/data/in", world.target())] {
            let (code, _, said) = diskside(&["run", &source, input]);
            assert_eq!(code, 3, "{said}");
            let wrong = format!("`{kind}/f` is of kind `{kind}`, which does not run over the bytes of a file: ");
            assert!(said.contains(&wrong) && said.contains(told), "{said}");
        }
        good(&["verify", &source]);
    }
    let source =
        "#include \"xrp.h\"\nSEC(\"oliver_agg\")\nunsigned int f(struct bpf_xrp *c) { c->done = 1; return 0; }\n";
    let (code, _, said) = diskside(&["run", &world.source("xrp.bpf.c", source), &file]);
    assert!(code == 3 && said.contains("`oliver_agg` is of kind `xrp`"), "{said}");
}

#[test]
fn the_helpers_of_a_target_are_listed_with_what_they_cost() {
    let world = World::new();
    let (here, _) = good(&["functions", "--helpers"]);
    let (there, _) = good(&["functions", &world.target(), "--helpers"]);
    assert_eq!(String::from_utf8_lossy(&here), String::from_utf8_lossy(&there), "this target is of the same version");
    let said = String::from_utf8(there).expect("text");
    assert!(said.contains("__u64 ds_now(void);\n    ") && said.contains(" [version 1, fixed]\n"), "{said}");
    let (out, _) = good(&["functions", &world.target(), "--helpers", "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
    let helpers = told["helpers"].as_array().expect("a list");
    let find = helpers.iter().find(|helper| helper["name"] == "ds_find").expect("it is there");
    assert_eq!((&find["version"], &find["cost"]), (&1.into(), &"linear".into()));
    let prototype = "__s64 ds_find(const void *hay, __u64 hay_len, const void *needle, __u64 needle_len)";
    assert_eq!(find["prototype"], prototype);
    let (code, _, said) = diskside(&["functions", "grep", "--helpers"]);
    assert!(code == 2 && said.contains("--helpers grep: helpers are those of"), "{code}: {said}");
}

/// The command line clears what another program of this host keeps at a target.
#[test]
fn a_named_state_is_cleared() {
    let world = World::new();
    world.file("in", &[1; 24]);
    let source = "#include \"diskside.h\"\nSEC(\"read/count\")\n\
        __s64 count(__u64 *out, const __u64 *in, __u64 in_len, const void *args, const struct ds_call *call) {\n\
        __u64 *runs = DS_STATE(__u64);\nout[0] = ++runs[0];\nout[1] = ++runs[1];\nreturn 16;\n}\n";
    let mut options = SessionOptions::default();
    options.connect.identity.nqn = HOST.parse().expect("an NQN");
    let session = Session::new(options);
    let count = session.function(world.source("count.bpf.c", source)).expect("it compiles");
    let file = session.open(&format!("{}/data/in", world.target())).expect("it is there");
    let state = Some(StateName { name: "runs".into(), len_bytes: 64 });
    let run = RunOptions { place: Where::Device, state, ..RunOptions::default() };
    let counts = || {
        let ran = file.fold_fn(&count, &[], &run).wait().expect("it counts");
        [0, 8].map(|at| u64::from_le_bytes(ran.result[at..at + 8].try_into().expect("a word")))
    };
    let clear = |args: &[&str]| diskside(&[&["clear", &world.target(), "--hostnqn", HOST], args].concat());
    assert_eq!((counts(), counts()), ([1, 1], [2, 2]));
    assert_eq!(clear(&["--state", "runs"]).0, 0);
    assert_eq!((counts(), counts()), ([1, 1], [2, 2]));
    assert_eq!(clear(&["--state", "runs", "--from", "8", "--len", "8"]).0, 0);
    assert_eq!(counts(), [3, 1]);
    let (code, _, said) = clear(&["--state", "others"]);
    assert!(code == 4 && said.contains("there is no state with this hash"), "{code}: {said}");
    // Another host has none of this one's.
    let (code, _, said) = diskside(&["clear", &world.target(), "--hostnqn", &format!("{HOST}-2"), "--state", "runs"]);
    assert!(code == 4 && said.contains("there is no state with this hash"), "{code}: {said}");
    assert_eq!(counts(), [4, 2]);
    // The same for what a target keeps of its volumes.
    assert_eq!([clear(&["--cache"]).0, clear(&["--cache=1"]).0], [0, 0]);
    let (code, _, said) = clear(&["--cache=77"]);
    assert!(code == 4 && said.contains("there is no volume with namespace ID 77"), "{code}: {said}");
    for wrong in [&[][..], &["--len", "8"], &["--cache", "--from", "8"]] {
        assert_eq!(clear(wrong).0, 2, "{wrong:?}");
    }
}

/// Raw bytecode was looked at by `inspect` and `verify`, which named `--kind`, and run by no command.
#[test]
fn raw_bytecode_runs_here_and_at_a_target() {
    let world = World::new();
    let (here, there) = (world.file("in", &[1; 24]), format!("{}/data/in", world.target()));
    // *(u64 *)out = in_len; return eight();
    let code = [
        [0x7b, 0x31, 0, 0, 0, 0, 0, 0],
        [0x85, 0x10, 0, 0, 1, 0, 0, 0],
        [0x95, 0, 0, 0, 0, 0, 0, 0],
        [0xb7, 0, 0, 0, 8, 0, 0, 0],
        [0x95, 0, 0, 0, 0, 0, 0, 0],
    ];
    let path = |name: &str, code: &[u8]| {
        let path = world.sources.path().join(name);
        std::fs::write(&path, code).expect("written");
        path.display().to_string()
    };
    let raw = path("raw.bin", &code.concat());
    for (file, place) in [(&here, "auto"), (&there, "host"), (&there, "device")] {
        let (out, _) = good(&["run", "--kind", "read", &raw, file, "--where", place, "--json"]);
        let told: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
        assert_eq!((&told["hex"], &told["kind"]), (&"1800000000000000".into(), &"read".into()), "{place}: {told}");
    }
    let out = world.sources.path().join("out").display().to_string();
    good(&["run", "--kind", "read", &raw, &here, "--out", &out]);
    assert_eq!(std::fs::read(&out).expect("made"), 24_u64.to_le_bytes());
    // What cannot be, says why.
    for (file, told) in [
        (path("short", &code.concat()[..12]), "raw eBPF code of 12 bytes: the length must be a positive multiple of 8"),
        (path("object", b"\x7fELF\x02\x01"), "it is an object, whose sections name the kinds of its programs"),
        (path("wild", &[[0x7b, 0x31, 0, 0, 0, 0, 0, 0]].concat()), "wild"),
    ] {
        let (code, _, said) = diskside(&["run", "--kind", "read", &file, &here]);
        assert!(code == 3 && said.contains(told), "{file}: {code}: {said}");
    }
    let (code, _, said) = diskside(&["run", &raw, &here]);
    assert!(code == 3 && said.contains("raw code needs a kind, chosen with `--kind`"), "{code}: {said}");
    let (code, _, said) = diskside(&["run", "--kind", "reed", &raw, &here]);
    assert!(code == 2 && said.contains("`reed` is no kind"), "{code}: {said}");
}
