//! `diskside inspect` over functions that call much of the library.

mod common;

use common::{Server, diskside, good};

/// The report on a function of twenty lines had 185, because clang copies functions of headers into loops, and each copy of an
/// access had its own advice. The advice on the author's own lines was somewhere between them.
#[test]
fn a_report_on_loops_says_the_same_once_and_puts_headers_last() {
    let guide = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/functions.md");
    let guide = std::fs::read_to_string(guide).expect("the guide is there");
    let mut blocks = guide.split("```c\n").skip(1).filter_map(|rest| rest.split("```").next());
    let source = blocks.find(|block| block.contains("read/by_status")).expect("it shows the function");
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("by_status.bpf.c");
    std::fs::write(&path, source).expect("written");
    let report = good(&["inspect", path.to_str().expect("text")]);
    let programs: Vec<&str> = report.split("\n\n").skip(1).collect();
    assert!(report.lines().count() < 90 && programs.len() == 2, "{report}");
    for program in programs {
        let advice: Vec<&str> = program.lines().filter(|line| line.starts_with("      instead: ")).collect();
        let different: std::collections::HashSet<&str> = advice.iter().copied().collect();
        assert_eq!(different.len(), advice.len(), "{program}");
        let (own, of_headers) = program.split_once("  in headers:\n").expect("loops of headers");
        for (of, is_of_headers) in [(own, false), (of_headers, true)] {
            let loops: Vec<&str> = of.lines().filter(|line| line.starts_with("  loop at instruction ")).collect();
            let in_header = |line: &&str| line.split_once("): ").expect("a place, and what").0.contains(".h:");
            assert!(!loops.is_empty() && loops.iter().all(|line| in_header(line) == is_of_headers), "{program}");
        }
    }
    // How many there are is told: of loops, and of accesses that one reason holds for.
    assert!(report.contains(" more like it\n") && report.contains(" accesses ("), "{report}");
}

/// A loop of the author's that began with inlined code of a header was listed among those of headers, where nobody looks for it.
#[test]
fn a_loop_that_begins_with_code_of_a_header_is_its_authors() {
    let header = "static inline __attribute__((always_inline)) int goes_on(const volatile __u8 *in, __u64 at, __u64 len) {\n\
                  return at < len && in[at] != 10;\n}\n";
    let source = "#include \"diskside.h\"\n#include \"lines.h\"\nSEC(\"read/first\")\n\
                  __s64 first(__u64 *out, const __u8 *in, __u64 in_len, const void *args, const struct ds_call *call) {\n\
                  __u64 at = 0, sum = 0;\nwhile (goes_on(in, at, in_len))\nsum += in[at++];\n*out = sum;\nreturn 8;\n}\n";
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("lines.h"), header).expect("written");
    let path = dir.path().join("first.bpf.c");
    std::fs::write(&path, source).expect("written");
    let report = good(&["inspect", path.to_str().expect("text")]);
    assert!(!report.contains("in headers:"), "{report}");
    let (_, place) = report.split_once("  loop at instruction ").expect("a loop");
    assert!(place.split_once("): ").expect("a place").0.contains("first.bpf.c:"), "{report}");
}

/// Hints of an author are shown, and choose the side of a first run. Its result is the same.
#[test]
fn hints_are_shown_and_choose_the_side_of_a_first_run() {
    let server = Server::start("");
    let numbers: Vec<u8> = (0..100_000_u64).flat_map(u64::to_le_bytes).collect();
    server.file("n.u64", &numbers);
    let body = "struct total { __u64 total; };\nSEC(\"read/sum\")\n__s64 sum(struct total *out, const __u64 *in, __u64 len, const void *args, const struct ds_call *call) {\n\
                for (__u64 i = 0; i < len / 8; i++)\nout->total += in[i];\nreturn 8;\n}\n";
    let cases = [
        (
            "DS_COST(1, 1, DS_IN_ORDER);",
            Some(("1 bytes of output for 1000 of input, 1 pass, accesses in order", "device")),
        ),
        (
            "DS_COST(2000, 3, DS_SCATTERED);",
            Some(("2000 bytes of output for 1000 of input, 3 passes, scattered accesses", "host")),
        ),
        ("", None),
    ];
    for (at, (hints, told)) in cases.into_iter().enumerate() {
        let text = format!("#include \"diskside.h\"\n{hints}\n{body}");
        let source = server.file(&format!("sum{at}.bpf.c"), text.as_bytes()).display().to_string();
        let report = good(&["inspect", &source]);
        let (code, out, said) = diskside(&["run", &source, &server.at("n.u64"), "--explain"]);
        assert_eq!(
            (code, out),
            (0, good(&["run", &source, &server.at("n.u64"), "--where", "device"]).into_bytes()),
            "{said}"
        );
        match told {
            Some((hints, side)) => {
                assert!(report.contains(&format!("\nhints: {hints}\n")), "{report}");
                let why = format!(": {side}: nothing is measured yet, and the function's hints speak for it");
                assert!(said.contains(&why), "{said}");
            }
            None => {
                assert!(!report.contains("hints"), "{report}");
                assert!(said.contains(": device: one side is not measured yet"), "{said}");
            }
        }
    }
}
