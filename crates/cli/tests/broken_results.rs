//! Results of runs that fail: what stood before the first piece that failed is printed, the same wherever the function runs.

mod common;

use std::process::Command;

use common::{Server, diskside};

/// Gives its input back, and fails at the element 7777.
fn source(output: &str, failure: &str) -> String {
    format!(
        "#include \"diskside.h\"
DS_CONCATENATE;
struct row {{ __u64 number; }};
SEC(\"read/copy\")
__s64 copy({output} *out, const __u64 *in, __u64 in_len, const void *args, const struct ds_call *call) {{
    for (__u64 i = 0; i < in_len / 8; i++) {{
        if (in[i] == 7777)
            {failure};
        ((__u64 *)out)[i] = in[i];
    }}
    return in_len;
}}
"
    )
}

fn numbers(of: impl IntoIterator<Item = u64>) -> Vec<u8> {
    of.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// Output before an error was printed or not depending on the place: of a short result at a server nothing, of rows
/// nothing anywhere, of the second of several files what it had made by its turn.
#[test]
fn what_stood_before_a_failure_is_printed_wherever_the_function_runs() {
    let server = Server::start("");
    let sources = [
        ("bytes", "char", "return DS_FAIL(DS_EINVAL, \"7777 is not wanted\")", "returned -22: 7777 is not wanted"),
        ("trap", "char", "return in[in_len]", "was stopped at instruction"),
        ("rows", "struct row", "return DS_FAIL(DS_EINVAL, \"7777 is not wanted\")", "returned -22: 7777 is not wanted"),
    ];
    // Few pieces, and more than any answer of a server has room for.
    for (fails_at, count) in [(700, 1_000), (150_000, 151_000)] {
        let file = format!("fails_at_{fails_at}");
        let all = || (0..count).map(|n| if n == fails_at { 7777 } else { n % 7777 });
        let here = server.file(&file, &numbers(all())).display().to_string();
        for (name, output, failure, said) in sources {
            let function = server.file(&format!("{name}.bpf.c"), source(output, failure).as_bytes());
            let function = function.display().to_string();
            let run = |place: &[&str], input: &str| {
                let base = ["run", &function, input, "--chunk", "800"];
                let (code, out, told) = diskside(&[&base, place].concat());
                assert_eq!(code, 1, "{name} {place:?}: {told}");
                assert!(told.contains(said), "{name} {place:?}: {told}");
                (out, told.replace(input, "FILE"))
            };
            let (printed, told) = run(&[], &here);
            let before = all().take(fails_at as usize / 100 * 100);
            match name {
                "rows" => {
                    let rows: Vec<u64> = String::from_utf8(printed.clone())
                        .expect("text")
                        .lines()
                        .filter_map(|line| line.trim().parse().ok())
                        .collect();
                    assert_eq!(rows, before.collect::<Vec<_>>(), "of rows");
                }
                _ => assert!(printed == numbers(before), "{name}: {} bytes", printed.len()),
            }
            let url = server.at(&file);
            for (place, input) in [
                (&["--threads", "3"][..], &here),
                (&["--where", "host"], &url),
                (&["--where", "device"], &url),
                (&["--where", "device", "--threads", "3"], &url),
                (&[], &url),
            ] {
                assert!(run(place, input) == (printed.clone(), told.clone()), "{name} {fails_at} {place:?} {input}");
            }
        }
    }
}

/// The same of several files, of which one fails.
#[test]
fn of_several_files_those_before_the_failure_are_printed() {
    let server = Server::start("");
    let function = server.file("copy.bpf.c", source("char", "return -DS_EINVAL").as_bytes()).display().to_string();
    let name = |at: u64| format!("{at:02}");
    for at in 0..20 {
        let numbers = numbers((0..300).map(|n| if (at, n) == (3, 250) { 7777 } else { 10_000 * at + n }));
        server.file(&name(at), &numbers);
    }
    let expected =
        numbers((0..3).flat_map(|at| (0..300).map(move |n| 10_000 * at + n)).chain((0..200).map(|n| 30_000 + n)));
    for count in [4, 7, 20] {
        let here = |at| server.dir.join(name(at)).display().to_string();
        let there = |at| server.at(&name(at));
        let locals: Vec<String> = (0..count).map(here).collect();
        let urls: Vec<String> = (0..count).map(there).collect();
        let mixed: Vec<String> = (0..count).map(|at| if at % 2 == 0 { here(at) } else { there(at) }).collect();
        for (inputs, place) in
            [(&locals, "auto"), (&urls, "host"), (&urls, "device"), (&urls, "auto"), (&mixed, "auto"), (&mixed, "host")]
        {
            let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
            let run = [&["run", &function, "--chunk", "800", "--where", place][..], &inputs].concat();
            let (code, out, told) = diskside(&run);
            assert_eq!(code, 1, "{told}");
            assert!(out == expected, "{count} {place} {}: {} of {}", inputs[1], out.len(), expected.len());
            let last =
                format!("{}, bytes 1600..2400: read/copy returned -22: Invalid argument (os error 22)\n", inputs[3]);
            assert_eq!(told, format!("diskside: {last}"));
        }
        // A range that one of them does not have is found when it is its turn.
        let short = |at: u64| if at == 2 { 100 } else { 300 };
        for at in 0..count {
            server.file(&name(at), &numbers(0..short(at)));
        }
        for inputs in [&locals, &urls, &mixed] {
            let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
            let (code, out, told) = diskside(&[&["run", &function, "--offset", "2000"][..], &inputs].concat());
            let not_there = format!("diskside: bytes 2000..2000 are not in {}, which has 800\n", inputs[2]);
            assert_eq!((code, told), (2, not_there));
            assert!(out == numbers((250..300).chain(250..300)), "{} bytes", out.len());
        }
        for at in 0..count {
            let numbers = numbers((0..300).map(|n| if (at, n) == (3, 250) { 7777 } else { 10_000 * at + n }));
            server.file(&name(at), &numbers);
        }
    }
}

/// A JSON document of a failed run is not begun, or ends in its rows.
#[test]
fn what_is_folded_and_what_is_json_is_whole_or_not_there() {
    let server = Server::start("");
    let all = (0..1_000).map(|n| if n == 700 { 7777 } else { n });
    let here = server.file("in", &numbers(all)).display().to_string();
    let failure = "return -DS_EINVAL";
    let rows = server.file("rows.bpf.c", source("struct row", failure).as_bytes()).display().to_string();
    let folded = source("struct row", failure).replace("DS_CONCATENATE;", "")
        + "SEC(\"combine/copy\") __s64 fold(void *acc, __u64 acc_len, __u64 cap, const void *part, __u64 len) \
           { ds_memcpy(acc, part, 8); return 8; }\n";
    let folded = server.file("folded.bpf.c", folded.as_bytes()).display().to_string();
    for (place, input) in [("host", &here), ("host", &server.at("in")), ("device", &server.at("in"))] {
        for run in [&["run", &rows, "--json"][..], &["run", &folded]] {
            let (code, out, told) = diskside(&[run, &["--chunk", "800", "--where", place, input]].concat());
            assert_eq!((code, &out[..]), (1, &b""[..]), "{place}: {told}");
        }
    }
}

/// Closed, not full: results were lost with exit code 0, `cp` said how much it had copied, and closed input was an empty one.
#[test]
fn standard_input_and_output_that_are_closed_are_errors() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(dir.path().join("a.log"), "one ERROR\ntwo\n").expect("written");
    let shell = |line: &str| {
        let line = line.replace("diskside", env!("CARGO_BIN_EXE_diskside"));
        let output = Command::new("sh").args(["-c", &line]).current_dir(dir.path()).output().expect("a shell");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for line in [
        "diskside run wc a.log >&-",
        "diskside run grep a.log --arg pattern=ERROR >&-",
        "diskside run grep a.log --arg pattern=ERROR --out - >&-",
        "diskside cp a.log - >&-",
        "diskside functions >&-",
        "diskside --help >&-",
        "diskside run wc - <&-",
    ] {
        let (code, said) = shell(line);
        assert_eq!(code, Some(4), "{line}: {said}");
        assert!(said.starts_with("diskside: "), "{line}: {said}");
    }
    let (_, said) = shell("diskside run wc a.log >&-");
    assert_eq!(said, "diskside: standard output is closed: to discard it, send it to /dev/null\n");
    for line in ["diskside run wc - <&-", "diskside run wc /dev/stdin <&-", "diskside cp - b <&-"] {
        let (_, said) = shell(line);
        assert!(said.ends_with("standard input is closed: for empty input, give it /dev/null\n"), "{line}: {said}");
    }
    for line in ["diskside run wc a.log --out - >&-", "diskside cp a.log /dev/stdout >&-"] {
        let (_, said) = shell(line);
        assert!(said.contains("this process was not started with that descriptor open for writing"), "{line}: {said}");
    }
    // A command that writes nothing there, or discards it, does not hear of it.
    for line in ["diskside run wc a.log --out counted >&-", "diskside run wc a.log >/dev/null"] {
        let (code, said) = shell(line);
        assert_eq!(code, Some(0), "{line}: {said}");
    }
}
