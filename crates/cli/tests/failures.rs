//! Mistakes of users and failures of functions: the exit code and the exact words of each.

mod common;

use common::{Server, diskside};
use std::path::{Path, PathBuf};
use std::process::Command;

struct Case {
    dir: tempfile::TempDir,
}

impl Case {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a temporary directory") }
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        path
    }

    /// A function whose body is `body`, in a file.
    fn function(&self, body: &str) -> PathBuf {
        let source = format!(
            "#include \"diskside.h\"\nSEC(\"read/f\")\n\
             __s64 f(__u64 *out, const __u64 *in, __u64 in_len, const void *args, const struct ds_call *call) {{\n\
             {body}\n}}\n"
        );
        self.file("f.bpf.c", source.as_bytes())
    }

    /// Exit code and standard error, the directory's path left out.
    fn run(&self, args: &[&dyn AsRef<std::ffi::OsStr>]) -> (i32, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_diskside")).args(args).output().expect("diskside runs");
        let said = String::from_utf8_lossy(&output.stderr).replace(&format!("{}/", self.dir.path().display()), "");
        (output.status.code().expect("ended by itself"), said.trim_end().to_owned())
    }

    fn run_over(&self, function: &Path, input: &Path, extra: &[&str]) -> (i32, String) {
        let mut args: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"run", &function, &input];
        args.extend(extra.iter().map(|e| e as &dyn AsRef<std::ffi::OsStr>));
        self.run(&args)
    }
}

/// It failed on the first line, and so not at all where there was none. The same words here and at a target, and nothing is printed.
#[test]
fn a_regular_expression_that_is_none_is_refused_with_its_place() {
    let server = Server::start("");
    let here = server.file("log", b"a line\n").display().to_string();
    for (file, place) in [(&here, "auto"), (&server.at("log"), "host"), (&server.at("log"), "device")] {
        let (code, out, said) = diskside(&["run", "regex", file, "--where", place, "--arg", "pattern=ab(c"]);
        assert_eq!((code, &out[..]), (2, &b""[..]), "{place}: {said}");
        let told = "regex: argument `pattern`: `ab(c` is no regular expression: a `(` is not closed, at byte 2\n";
        assert!(said.contains(told), "{place}: {said}");
        let (code, out, said) = diskside(&["run", "regex", file, "--where", place, "--arg", "pattern=^a [lm]ine$"]);
        assert_eq!((code, &out[..]), (0, &b"a line\n"[..]), "{place}: {said}");
    }
}

#[test]
fn an_access_past_the_input_names_instruction_line_region_offset_and_bound() {
    let case = Case::new();
    let f = case.function("*out = in[in_len / 8];\nreturn 8;");
    let input = case.file("in", &[0; 64]);
    for tier in ["interp", "cranelift"] {
        let (code, said) = case.run_over(&f, &input, &["--tier", tier]);
        assert_eq!(code, 1, "{said}");
        assert!(said.contains("in, bytes 0..64: read/f was stopped at instruction"), "{said}");
        assert!(said.contains("f.bpf.c:4: *out = in[in_len / 8];"), "{said}");
        assert!(
            said.ends_with("out-of-bounds read of 8 bytes of input at offset 64, which is 64 bytes long"),
            "{said}"
        );
    }
}

#[test]
fn the_last_trip_of_a_hoisted_loop_traps_where_the_checked_loop_does() {
    let case = Case::new();
    // One element too many: the guard covers the trips before it, the checked copy traps in it.
    let f = case.function("__u64 s = 0;\nfor (__u64 i = 0; i <= in_len / 8; i++)\ns += in[i];\n*out = s;\nreturn 8;");
    let input = case.file("in", &[1; 80_000]);
    let (code, interpreted) = case.run_over(&f, &input, &["--tier", "interp"]);
    assert_eq!(code, 1, "{interpreted}");
    assert!(interpreted.contains("out-of-bounds read of 8 bytes of input at offset 80000"), "{interpreted}");
    assert_eq!(case.run_over(&f, &input, &["--tier", "cranelift"]), (1, interpreted));
}

#[test]
fn an_endless_loop_runs_out_of_budget_or_meets_its_deadline() {
    let case = Case::new();
    let f = case.function("volatile __u64 x = 1;\nwhile (x)\n;\nreturn 0;");
    let input = case.file("in", b"x");
    let (code, said) = case.run_over(&f, &input, &["--budget", "1000"]);
    assert_eq!(code, 1);
    assert!(said.ends_with("the budget of 1000 loop iterations is used up; --budget gives each run more"), "{said}");
    let (code, said) = case.run_over(&f, &input, &["--budget", "100000000000", "--deadline-ms", "50"]);
    assert_eq!(code, 1);
    assert!(said.ends_with("the deadline passed"), "{said}");
}

#[test]
fn what_a_function_returns_is_checked() {
    let case = Case::new();
    let input = case.file("in", b"12345678");
    let (code, said) = case.run_over(&case.function("return -DS_EINVAL;"), &input, &[]);
    assert_eq!(
        (code, said.as_str()),
        (1, "diskside: in, bytes 0..8: read/f returned -22: Invalid argument (os error 22)")
    );
    let (code, said) = case.run_over(&case.function("return 1 << 20;"), &input, &[]);
    assert_eq!(
        (code, said.as_str()),
        (
            1,
            "diskside: in, bytes 0..8: read/f returned 1048576, but its output holds 4104 bytes; ask for more with DS_OUTPUT in its source"
        )
    );
}

#[test]
fn refused_and_broken_functions_exit_with_3() {
    let case = Case::new();
    let input = case.file("in", b"x");
    let (code, said) = case.run_over(&case.function("return *(__s64 *)0;"), &input, &[]);
    assert_eq!(code, 3, "{said}");
    let (code, said) = case.run_over(&case.function("this is no C"), &input, &[]);
    assert_eq!(code, 3);
    assert!(said.starts_with("diskside: f.bpf.c does not compile:"), "{said}");
    let object = case.file("x.o", b"\x7fELF and no more");
    assert_eq!(case.run_over(&object, &input, &[]).0, 3);
    let (code, said) = case.run_over(&case.function("extern __u64 ds_finf(void); return ds_finf();"), &input, &[]);
    assert_eq!(code, 3);
    assert!(said.contains("ds_finf") && said.contains("ds_find"), "names what is missing and what is near: {said}");
}

/// A `combine` with a name of its own was never called, and nobody said so: a sum was as many sums as there were pieces, or one run.
#[test]
fn a_combine_that_nobody_calls_is_refused_with_the_names_that_there_are() {
    let case = Case::new();
    let input = case.file("in", b"x");
    let body = "return 0;\n}\nSEC(\"combine/sum\")\n\
                __s64 fold(void *acc, __u64 acc_len, __u64 acc_cap, const void *part, __u64 part_len) {\nreturn 0;";
    let told = "diskside: f.bpf.c: `combine/sum` folds the results of no function: the object has none of that name that runs over \
                bytes, but read/f; name it combine/FUNCTION";
    assert_eq!(case.run_over(&case.function(body), &input, &[]), (3, told.to_owned()));
    assert_eq!(case.run_over(&case.function(&body.replace("combine/sum", "combine/f")), &input, &[]).0, 0);
}

#[test]
fn wrong_usage_exits_with_2_and_says_what_is_right() {
    let case = Case::new();
    let input = case.file("in", b"x\n");
    let cases: &[(&[&str], &str)] = &[
        (&["run", "stats65", "in"], "no function is called `stats65` (did you mean stats32 or stats64?)"),
        (
            &["run", "grep_count", "IN", "--arg", "patern=x"],
            "the function has no argument `patern`; it has row_len, pattern",
        ),
        (&["run", "grep_count", "IN", "--arg", "row_len=-1"], "argument `row_len`: `-1` is not a number (u32)"),
        (&["run", "grep_count", "IN", "--arg", "pattern"], "--arg pattern: write NAME=VALUE"),
        (&["run", "wc", "IN", "--split", "words"], "use lines, records:N (N bytes a record), bytes or whole"),
        (&["run", "wc", "IN", "--chunk", "8XB"], "`xb` is no unit"),
        (&["explain", "V9999"], "no code V9999"),
        (&["info", "nvme://x"], "does not start with nvme-tcp://"),
    ];
    for (args, expected) in cases {
        let path = input.display().to_string();
        let args: Vec<String> = args.iter().map(|a| if *a == "IN" { path.clone() } else { (*a).to_owned() }).collect();
        let args: Vec<&dyn AsRef<std::ffi::OsStr>> = args.iter().map(|a| a as &dyn AsRef<std::ffi::OsStr>).collect();
        let (code, said) = case.run(&args);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains(expected), "expected {expected:?} in {said:?}");
    }
}

/// `diskside run grep LOG` without a pattern printed the whole file and exited with 0.
#[test]
fn an_argument_without_a_default_must_be_given() {
    let case = Case::new();
    let input = case.file("in", b"x\n");
    assert_eq!(
        case.run(&[&"run", &"grep", &input]),
        (
            2,
            "diskside: grep: argument `pattern` (text) must be given: what to look for\n\
             Usage: diskside run grep FILE... --arg pattern=TEXT [--arg row_len=NUMBER]"
                .to_owned()
        )
    );
    assert_eq!(case.run(&[&"run", &"grep", &input, &"--arg", &"pattern="]).0, 0, "every line has the empty text");
}

/// The last line of the first file and the first of the second were printed as one.
#[test]
fn the_last_line_of_a_file_does_not_join_the_first_of_the_next() {
    let case = Case::new();
    let (a, b) = (case.file("a", b"one x\ntwo x"), case.file("b", b"three x\nfour x"));
    for extra in [&[][..], &["--threads", "2"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_diskside"))
            .args(["run", "grep", "--arg", "pattern=x"])
            .args([&a, &b])
            .args(extra)
            .output()
            .expect("runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "one x\ntwo x\nthree x\nfour x\n");
    }
}

#[test]
fn files_that_cannot_be_read_exit_with_4() {
    let case = Case::new();
    let missing = case.dir.path().join("missing");
    let (code, said) = case.run_over(Path::new("wc"), &missing, &[]);
    assert_eq!((code, said.as_str()), (4, "diskside: cannot open missing: No such file or directory (os error 2)"));
    let (code, said) = case.run_over(Path::new("wc"), case.dir.path(), &[]);
    assert_eq!(code, 4);
    assert!(said.contains("is a directory"), "{said}");
}

#[test]
fn a_compiler_that_is_missing_is_named() {
    let case = Case::new();
    let (function, input) = (case.function("return 0;"), case.file("in", b"x"));
    let run = |name: &str, value: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_diskside"));
        let output = command.arg("run").args([&function, &input]).env(name, value).output().expect("runs");
        let said = String::from_utf8_lossy(&output.stderr).replace(&format!("{}/", case.dir.path().display()), "");
        (output.status.code(), said)
    };
    let expected = "diskside: /no/clang cannot be run to compile f.bpf.c: No such file or directory (os error 2); set \
                    DISKSIDE_CLANG to a clang that can\n";
    assert_eq!(run("DISKSIDE_CLANG", "/no/clang"), (Some(3), expected.to_owned()));
    let expected = "diskside: no clang was found to compile f.bpf.c: install one (Debian: apt-get install clang-19), or set \
                    DISKSIDE_CLANG\n";
    if std::env::var_os("DISKSIDE_CLANG").is_none() {
        assert_eq!(run("PATH", "/no/directory"), (Some(3), expected.to_owned()));
    }
}

#[test]
fn an_empty_file_has_a_result() {
    let case = Case::new();
    let input = case.file("in", b"");
    let output = Command::new(env!("CARGO_BIN_EXE_diskside")).args(["run", "wc"]).arg(&input).output().expect("runs");
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "lines  0\nwords  0\nbytes  0\n");
}

#[test]
fn a_result_file_appears_whole_or_not_at_all() {
    let case = Case::new();
    let input = case.file("in", &[7; 4096]);
    let out = case.dir.path().join("out");
    let bad = case.function("return -DS_EINVAL;");
    let (code, _) = case.run(&[&"run", &bad, &input, &"--out", &out]);
    assert_eq!(code, 1);
    assert!(!out.exists() && !out.with_extension("partial").exists());
    let good = case.function("*out = in[0];\nreturn 8;");
    let (code, said) = case.run(&[&"run", &good, &input, &"--out", &out]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(std::fs::read(&out).expect("written"), [7; 8]);
}

/// A name that was nearly right got `No such file or directory`, a missing source 3, and a target alone the internals of its requests.
#[test]
fn a_name_that_is_not_there_gets_names_like_it() {
    let server = Server::start("");
    server.file("server.log", b"a line\n");
    let case = Case::new();
    let log = case.file("server.log", b"a line\n");
    case.function("return 0;");
    let target = server.url.strip_suffix("/data").expect("it ends with the export");
    let at = |name: &str| format!("{}/{name}", server.url);
    let here = |name: &str| case.dir.path().join(name).display().to_string();
    let not_there = "No such file or directory (os error 2)";
    let cases: &[(&[&str], i32, String)] = &[
        (
            &["run", "wc", &here("serverlog")],
            4,
            format!("cannot open serverlog: {not_there}; did you mean server.log?"),
        ),
        (&["run", "wc", &here("nothing")], 4, format!("cannot open nothing: {not_there}")),
        (
            &["cp", &here("Server.lgo"), "x"],
            4,
            format!("cannot open Server.lgo: {not_there}; did you mean server.log?"),
        ),
        (
            &["run", &here("g.bpf.c"), &here("server.log")],
            4,
            format!("cannot read g.bpf.c: {not_there}; did you mean f.bpf.c?"),
        ),
        (&["run", &here("none.o"), &here("server.log")], 4, format!("cannot read none.o: {not_there}")),
        (&["run", "wc", &at("serverlog")], 4, format!("{not_there}; did you mean {}?", at("server.log"))),
        (&["cat", &at("serverlog")], 4, format!("{not_there}; did you mean {}?", at("server.log"))),
        (&["stat", &at("serverlog")], 4, format!("{not_there}; did you mean {}?", at("server.log"))),
        (&["ls", &at("serverlog")], 4, format!("{not_there}; did you mean {}?", at("server.log"))),
        (&["rm", &at("serverlog")], 4, format!("{not_there}; did you mean {}?", at("server.log"))),
        (&["cp", &at("serverlog"), "x"], 4, format!("{not_there}; did you mean {}?", at("server.log"))),
        (&["cat", &at("nothing")], 4, format!("{}: lookup data/nothing: {not_there}", at("nothing"))),
        (
            &["cat", &format!("{target}/dat/server.log")],
            4,
            format!("there is no export `dat`; did you mean {}?", at("server.log")),
        ),
    ];
    for (args, code, said) in cases {
        let args: Vec<&dyn AsRef<std::ffi::OsStr>> = args.iter().map(|arg| arg as _).collect();
        let (exit, told) = case.run(&args);
        assert_eq!(exit, *code, "{told}");
        assert!(told.ends_with(said.as_str()), "expected {said:?} at the end of {told:?}");
    }
    assert!(log.exists());
}

#[test]
fn a_target_or_a_directory_is_no_name_for_what_is_written() {
    let server = Server::start("");
    std::fs::create_dir(server.dir.join("results")).expect("made");
    let case = Case::new();
    let input = case.file("in", b"x\n");
    let target = server.url.strip_suffix("/data").expect("it ends with the export").to_owned();
    let expected = format!(
        "diskside: {target} names no export: write diskside://HOST[:PORT]/EXPORT/PATH; `diskside ls {target}` lists its exports"
    );
    assert_eq!(case.run(&[&"cp", &input, &target]), (2, expected.clone()));
    assert_eq!(case.run(&[&"run", &"wc", &input, &"--out", &target]), (2, expected));
    for directory in [server.url.clone(), format!("{}/results", server.url)] {
        let expected = format!("diskside: cannot write {directory}: it is a directory: name a file in it");
        assert_eq!(case.run(&[&"run", &"wc", &input, &"--out", &directory]), (4, expected));
    }
    let here = case.dir.path().join("results");
    std::fs::create_dir(&here).expect("made");
    let expected = "diskside: cannot write results: Is a directory (os error 21): name a file in it";
    assert_eq!(case.run(&[&"run", &"wc", &input, &"--out", &here]), (4, expected.to_owned()));
}
